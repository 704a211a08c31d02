/* vocab.c - vocabularies: words with numbers, given, read from a file, or counted in the data. A
 * vocabulary does not change once it is created, so any number of threads may look up words. */
#include <stdio.h>
#include <stdlib.h>

#include "data/feature/feature.h"

#define MAX_FILE ((int64_t)4 << 30)
#define MAX_WORDS ((int64_t)1 << 24)

struct word {
    const char *data;
    int64_t n, count;
    uint64_t hash;
};

struct weft_vocab {
    weft_ctx *ctx;
    struct wf_arena bytes; /* of the words */
    struct word *word;
    int64_t n, cap;
    int32_t *slot; /* 1 + number of a word, 0: free; open addressing */
    int64_t n_slots;
};

/* ---- the table ------------------------------------------------------------------------------- */

static weft_status vocab_new(weft_ctx *ctx, weft_vocab **out)
{
    weft_vocab *v = wf_alloc(ctx, sizeof *v);

    if (!v)
        return wf_err_nomem(ctx, sizeof *v, "a vocabulary");
    v->ctx = ctx;
    wf_arena_init(&v->bytes, ctx);
    *out = v;
    return WEFT_OK;
}

void weft_vocab_free(weft_vocab *v)
{
    if (!v)
        return;
    wf_arena_free(&v->bytes);
    wf_free(v->ctx, v->word);
    wf_free(v->ctx, v->slot);
    wf_free(v->ctx, v);
}

/* The slot of a word, or where it would go. */
static int32_t *find_slot(const weft_vocab *v, const char *s, int64_t n, uint64_t hash)
{
    uint64_t mask = (uint64_t)v->n_slots - 1, i = hash & mask;

    for (; v->slot[i]; i = (i + 1) & mask) {
        const struct word *w = &v->word[v->slot[i] - 1];

        if (w->hash == hash && w->n == n && (n == 0 || memcmp(w->data, s, (size_t)n) == 0))
            break;
    }
    return &v->slot[i];
}

static weft_status make_slots(weft_vocab *v, int64_t n_slots)
{
    int32_t *slot = wf_alloc_n(v->ctx, n_slots, sizeof *slot);

    if (!slot)
        return wf_err_nomem(v->ctx, (size_t)n_slots * sizeof *slot, "a vocabulary");
    wf_free(v->ctx, v->slot);
    v->slot = slot;
    v->n_slots = n_slots;
    for (int64_t i = 0; i < v->n; i++)
        *find_slot(v, v->word[i].data, v->word[i].n, v->word[i].hash) = (int32_t)i + 1;
    return WEFT_OK;
}

/* The word's entry, added if it is missing: with a copy of its bytes, or borrowed. */
static weft_status add(weft_vocab *v, const char *s, int64_t n, bool copy, struct word **out)
{
    uint64_t hash = wf_hash64(s, (size_t)n, 0);
    int32_t *slot;
    char *bytes;
    weft_status st = WEFT_OK;

    if (2 * (v->n + 1) > v->n_slots)
        st = make_slots(v, v->n_slots ? 2 * v->n_slots : 64);
    if (st)
        return st;
    slot = find_slot(v, s, n, hash);
    if (*slot) {
        *out = &v->word[*slot - 1];
        return WEFT_OK;
    }
    if (v->n >= INT32_MAX - 1)
        return wf_err(WEFT_ELIMIT, "a vocabulary of more than %lld words", (long long)v->n);
    st = wf_grow(v->ctx, &v->word, &v->cap, v->n + 1, sizeof *v->word);
    if (st)
        return st;
    if (copy) {
        bytes = wf_arena_alloc(&v->bytes, (size_t)n + 1);
        if (!bytes)
            return wf_err_nomem(v->ctx, (size_t)n + 1, "a vocabulary");
        if (n)
            memcpy(bytes, s, (size_t)n);
        s = bytes;
    }
    v->word[v->n] = (struct word){s, n, 0, hash};
    *slot = (int32_t)++v->n;
    *out = &v->word[v->n - 1];
    return WEFT_OK;
}

int64_t weft_vocab_size(const weft_vocab *v)
{
    return v->n;
}

weft_str weft_vocab_word(const weft_vocab *v, int64_t id)
{
    if (id < 0 || id >= v->n)
        return (weft_str){"", 0};
    return (weft_str){v->word[id].data, v->word[id].n};
}

int64_t weft_vocab_find(const weft_vocab *v, const char *word, int64_t n)
{
    if (!v->n_slots)
        return -1;
    return (int64_t)*find_slot(v, word, n, wf_hash64(word, (size_t)n, 0)) - 1;
}

/* ---- given, and in files --------------------------------------------------------------------- */

static weft_status add_new(weft_vocab *v, const char *s, int64_t n)
{
    int64_t before = v->n;
    struct word *w;
    weft_status st = add(v, s, n, true, &w);

    if (!st && v->n == before)
        st = wf_err(WEFT_EEXIST, "word %lld, '%.*s', is a duplicate of word %lld",
                    (long long)before, (int)wf_min_i64(n, 40), s, (long long)(w - v->word));
    return st;
}

weft_status weft_vocab_new(weft_ctx *ctx, int64_t n, const weft_str *words, weft_vocab **out)
{
    weft_vocab *v = NULL;
    weft_status st = vocab_new(ctx, &v);

    for (int64_t i = 0; i < n && !st; i++)
        st = add_new(v, words[i].data, words[i].n);
    if (st) {
        weft_vocab_free(v);
        return wf_err_wrap(st, "vocabulary");
    }
    *out = v;
    return WEFT_OK;
}

weft_status weft_vocab_read(weft_ctx *ctx, const char *path, weft_vocab **out)
{
    weft_vocab *v = NULL;
    char *data = NULL, *p, *end;
    int64_t n;
    weft_status st = wf_file_read(ctx, path, MAX_FILE, &data, &n);

    if (!st)
        st = vocab_new(ctx, &v);
    for (p = data, end = data + (st ? 0 : n); p < end && !st;) {
        char *stop = memchr(p, '\n', (size_t)(end - p));
        int64_t len = (stop ? stop : end) - p;

        st = add_new(v, p, len && p[len - 1] == '\r' ? len - 1 : len);
        p += len + 1;
    }
    wf_free(ctx, data);
    if (st) {
        weft_vocab_free(v);
        return wf_err_wrap(st, "vocabulary '%s'", path);
    }
    *out = v;
    return WEFT_OK;
}

weft_status weft_vocab_write(const weft_vocab *v, const char *path)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, v->ctx, MAX_FILE);
    for (int64_t i = 0; i < v->n; i++) {
        if (v->word[i].n && memchr(v->word[i].data, '\n', (size_t)v->word[i].n)) {
            wf_buf_free(&b);
            return wf_err(WEFT_EINVAL, "vocabulary '%s': word %lld has a line break", path,
                          (long long)i);
        }
        wf_buf_add(&b, v->word[i].data, v->word[i].n);
        wf_buf_add(&b, "\n", 1);
    }
    st = b.st ? b.st : wf_file_write(v->ctx, path, b.len ? b.data : "", b.len);
    wf_buf_free(&b);
    return st;
}

/* ---- counted --------------------------------------------------------------------------------- */

weft_status wf_vocab_block(void *arg, const struct wf_block *b)
{
    struct wf_counting *k = arg;
    const struct wf_col *c = &b->col[k->column];
    int64_t n = wf_col_item_count(c, b->n), first = c->offset ? c->offset[0] : 0;
    char number[24];
    struct word *w;
    weft_status st = WEFT_OK;

    for (int64_t i = first; i < first + n && !st; i++) {
        weft_str s;

        if (c->type.dtype == WEFT_STR) {
            s = ((const weft_str *)c->data)[i];
        } else {
            s.n = snprintf(number, sizeof number, "%lld",
                           (long long)wf_get_int(c->data, c->type.dtype, i));
            s.data = number;
        }
        st = add(k->v, s.data, s.n, true, &w);
        if (!st)
            w->count++;
        if (!st && k->v->n > k->max_words)
            st = wf_err(WEFT_ELIMIT,
                        "more than %lld different words: allow more (weft_vocab_opts.max_words), "
                        "or use hash",
                        (long long)k->max_words);
    }
    return st;
}

/* The most frequent first; equally frequent ones by their bytes. */
static int by_count(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    int64_t n = x->n < y->n ? x->n : y->n;
    int order;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    order = n ? memcmp(x->data, y->data, (size_t)n) : 0;
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static weft_status keep_best(weft_vocab *v, const weft_vocab_opts *o)
{
    int64_t n = v->n;

    if (n)
        qsort(v->word, (size_t)n, sizeof *v->word, by_count);
    if (o->top > 0 && o->top < n)
        n = o->top;
    while (n > 0 && v->word[n - 1].count < o->min_count)
        n--;
    v->n = n;
    return v->n_slots ? make_slots(v, v->n_slots) : WEFT_OK;
}

weft_status wf_vocab_begin(weft_data *d, weft_ds s, const char *column, const weft_vocab_opts *o,
                           struct wf_counting *out)
{
    const struct wf_ds *ds = wf_ds_node(d, s);
    struct wf_counting k = {.max_words = MAX_WORDS};
    weft_status st = weft_data_status(d);

    if (o->max_words)
        k.max_words = o->max_words;
    if (!st && !ds)
        st = wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    if (!st && (k.column = wf_ds_find(ds, column)) < 0)
        st = wf_ds_err_column(ds, column);
    if (!st && ds->col[k.column].dtype != WEFT_STR && !wf_is_int(ds->col[k.column].dtype))
        st = wf_err(WEFT_EDTYPE, "column '%s' holds neither text nor integers", column);
    if (!st)
        st = vocab_new(d->ctx, &k.v);
    if (st)
        return wf_err_wrap(st, "vocabulary");
    *out = k;
    return WEFT_OK;
}

weft_status wf_vocab_end(struct wf_counting *k, const weft_vocab_opts *o, weft_vocab **out)
{
    weft_status st = keep_best(k->v, o);

    if (st)
        return wf_err_wrap(st, "vocabulary");
    *out = k->v;
    k->v = NULL;
    return WEFT_OK;
}

weft_status weft_vocab_count(weft_data *d, weft_ds s, const char *column,
                             const weft_vocab_opts *opts, weft_vocab **out)
{
    weft_vocab_opts o;
    struct wf_counting k = {.v = NULL};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_vocab_opts");

    if (!st)
        st = wf_vocab_begin(d, s, column, &o, &k);
    if (st)
        return st;
    st = wf_pass_over(d, s, o.threads, o.memory, wf_vocab_block, &k);
    st = st ? wf_err_wrap(st, "vocabulary") : wf_vocab_end(&k, &o, out);
    weft_vocab_free(k.v);
    return st;
}
