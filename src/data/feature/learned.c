/* learned.c - what a pipeline has learned, as an ordered set of named items, and as JSON.
 *
 * Items are added and never changed. The JSON is a function of the items alone: no locale, no
 * clock, no addresses; parsing it and formatting the result gives the same bytes. */
#include <stdio.h>

#include "base/number.h"
#include "data/feature/learned.h"

#define VERSION 1
#define MAX_TEXT ((int64_t)256 << 20)
#define MAX_ITEMS (1 << 20)
#define MAX_COLUMNS (1 << 20)

struct item {
    const char *name; /* like text and columns in the arena */
    weft_learned_kind kind;
    const char *text;
    int n_cols;
    weft_column *col;
    weft_vocab *vocab;
    weft_stats *stats;
};

struct weft_learned {
    weft_ctx *ctx;
    struct wf_arena arena;
    struct wf_map by_name; /* numbers; n or more: the item was removed again */
    struct item *item;
    int64_t n, cap;
};

static const char *const kind_name[] = {"", "text", "columns", "vocabulary", "statistics"};
static const char *const role_name[] = {"feature", "label", "weight"};

/* ---- the set --------------------------------------------------------------------------------- */

weft_status weft_learned_new(weft_ctx *ctx, weft_learned **out)
{
    weft_learned *l = wf_alloc(ctx, sizeof *l);

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "learned values");
    l->ctx = ctx;
    wf_arena_init(&l->arena, ctx);
    wf_map_init(&l->by_name, ctx);
    *out = l;
    return WEFT_OK;
}

void weft_learned_free(weft_learned *l)
{
    if (!l)
        return;
    for (int64_t i = 0; i < l->n; i++) {
        weft_vocab_free(l->item[i].vocab);
        weft_stats_free(l->item[i].stats);
    }
    wf_free(l->ctx, l->item);
    wf_map_free(&l->by_name);
    wf_arena_free(&l->arena);
    wf_free(l->ctx, l);
}

static weft_status err_nomem(const weft_learned *l)
{
    return wf_err_nomem(l->ctx, 0, "learned values");
}

static const struct item *find(const weft_learned *l, const char *name)
{
    static const struct item none = {.kind = WEFT_LEARNED_NONE};
    int64_t i;

    return l && wf_map_get(&l->by_name, name, &i) && i < l->n && !strcmp(l->item[i].name, name)
               ? &l->item[i]
               : &none;
}

static weft_status add(weft_learned *l, const char *name, struct item item)
{
    weft_status st;

    if (!name || !*name || !wf_utf8_ok(name))
        return wf_err(WEFT_EINVAL, "learned: a name is empty or not UTF-8");
    if (find(l, name)->kind)
        return wf_err(WEFT_EEXIST, "learned: item '%s' exists already", name);
    if (l->n >= MAX_ITEMS)
        return wf_err(WEFT_ELIMIT, "learned: more than %d items", MAX_ITEMS);
    item.name = wf_arena_strdup(&l->arena, name);
    if (!item.name)
        return err_nomem(l);
    st = wf_grow(l->ctx, &l->item, &l->cap, l->n + 1, sizeof *l->item);
    if (!st)
        st = wf_map_put(&l->by_name, item.name, l->n);
    if (!st)
        l->item[l->n++] = item;
    return st;
}

weft_status weft_learned_add_text(weft_learned *l, const char *name, const char *text)
{
    struct item item = {.kind = WEFT_LEARNED_TEXT, .text = wf_arena_strdup(&l->arena, text)};

    return item.text ? add(l, name, item) : err_nomem(l);
}

weft_status weft_learned_add_columns(weft_learned *l, const char *name, int n,
                                     const weft_column *columns)
{
    struct item item = {.kind = WEFT_LEARNED_COLUMNS, .n_cols = n};

    if (n < 0 || n > MAX_COLUMNS)
        return wf_err(WEFT_EINVAL, "learned: %d columns", n);
    item.col = wf_arena_alloc(&l->arena, (size_t)(n + 1) * sizeof *item.col);
    if (!item.col)
        return err_nomem(l);
    for (int i = 0; i < n; i++) {
        item.col[i] = columns[i];
        item.col[i].name = wf_arena_strdup(&l->arena, columns[i].name);
        if (!item.col[i].name)
            return err_nomem(l);
    }
    return add(l, name, item);
}

weft_status weft_learned_add_vocab(weft_learned *l, const char *name, weft_vocab *v)
{
    weft_status st = add(l, name, (struct item){.kind = WEFT_LEARNED_VOCAB, .vocab = v});

    if (st)
        weft_vocab_free(v);
    return st;
}

weft_status weft_learned_add_stats(weft_learned *l, const char *name, weft_stats *s)
{
    weft_status st = add(l, name, (struct item){.kind = WEFT_LEARNED_STATS, .stats = s});

    if (st)
        weft_stats_free(s);
    return st;
}

weft_status wf_learned_move(weft_learned *to, weft_learned *from, const char *name, bool *moved)
{
    struct item *i = (struct item *)find(from, name);
    weft_status st;

    *moved = false;
    if (!i->vocab && !i->stats)
        return WEFT_OK;
    st = add(to, name, *i);
    if (!st) {
        i->vocab = NULL; /* an item without contents: `from` is no longer used */
        i->stats = NULL;
        *moved = true;
    }
    return st;
}

int64_t wf_learned_n(const weft_learned *l)
{
    return l->n;
}

void wf_learned_cut(weft_learned *l, int64_t n)
{
    while (l->n > n) {
        l->n--;
        weft_vocab_free(l->item[l->n].vocab);
        weft_stats_free(l->item[l->n].stats);
    }
}

bool weft_learned_at(const weft_learned *l, int i, const char **name, weft_learned_kind *kind)
{
    if (i < 0 || i >= l->n)
        return false;
    *name = l->item[i].name;
    *kind = l->item[i].kind;
    return true;
}

const char *weft_learned_text(const weft_learned *l, const char *name)
{
    return find(l, name)->text;
}

const weft_column *weft_learned_columns(const weft_learned *l, const char *name, int *n)
{
    const struct item *i = find(l, name);

    *n = i->n_cols;
    return i->col;
}

const weft_vocab *weft_learned_vocab(const weft_learned *l, const char *name)
{
    return find(l, name)->vocab;
}

const weft_stats *weft_learned_stats(const weft_learned *l, const char *name)
{
    return find(l, name)->stats;
}

/* ---- values out ------------------------------------------------------------------------------ */

static bool is_text(const char *p, int64_t n)
{
    int k;

    for (int64_t i = 0; i < n; i += k) {
        k = wf_utf8_length(p + i, n - i);
        if (!k || !p[i])
            return false;
    }
    return true;
}

void wf_learned_put_bytes(struct wf_buf *b, const char *p, int64_t n)
{
    int64_t plain = 0; /* bytes before i that need no escape and have not been written */

    if (!is_text(p, n)) {
        wf_buf_printf(b, "{\"hex\": \"");
        for (int64_t i = 0; i < n && !b->st; i++)
            wf_buf_printf(b, "%02x", (unsigned char)p[i]);
        wf_buf_printf(b, "\"}");
        return;
    }
    wf_buf_add(b, "\"", 1);
    for (int64_t i = 0; i < n && !b->st; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c != '"' && c != '\\' && c >= 0x20) {
            plain++;
            continue;
        }
        wf_buf_add(b, p + i - plain, plain);
        plain = 0;
        wf_buf_printf(b, c < 0x20 ? "\\u%04x" : "\\%c", c);
    }
    wf_buf_add(b, p + n - plain, plain);
    wf_buf_add(b, "\"", 1);
}

void wf_learned_put_real(struct wf_buf *b, double v)
{
    wf_put_json_real(b, v);
}

const char *wf_learned_dtype(weft_dtype t)
{
    return t == WEFT_STR ? "text" : weft_dtype_name(t);
}

/* ---- items out ------------------------------------------------------------------------------- */

static void put_columns(struct wf_buf *b, const struct item *item)
{
    wf_buf_printf(b, ", \"columns\": [");
    for (int i = 0; i < item->n_cols; i++) {
        const weft_column *c = &item->col[i];

        wf_buf_printf(b, "%s\n  {\"name\": ", i ? "," : "");
        wf_learned_put_bytes(b, c->name, (int64_t)strlen(c->name));
        wf_buf_printf(b, ", \"dtype\": \"%s\", \"role\": \"%s\", \"shape\": [",
                      wf_learned_dtype(c->dtype), role_name[c->role]);
        for (int k = 0; k < c->rank; k++)
            wf_buf_printf(b, "%s%lld", k ? ", " : "", (long long)c->dim[k]);
        wf_buf_printf(b, "]}");
    }
    wf_buf_add(b, "]", 1);
}

static void put_words(struct wf_buf *b, const weft_vocab *v)
{
    wf_buf_printf(b, ", \"words\": [");
    for (int64_t i = 0; i < weft_vocab_size(v) && !b->st; i++) {
        weft_str w = weft_vocab_word(v, i);

        wf_buf_add(b, ", ", i ? 2 : 0);
        wf_learned_put_bytes(b, w.data, w.n);
    }
    wf_buf_add(b, "]", 1);
}

static void put_item(struct wf_buf *b, const struct item *item)
{
    wf_buf_printf(b, "\n {\"name\": ");
    wf_learned_put_bytes(b, item->name, (int64_t)strlen(item->name));
    wf_buf_printf(b, ", \"kind\": \"%s\"", kind_name[item->kind]);
    if (item->kind == WEFT_LEARNED_TEXT) {
        wf_buf_printf(b, ", \"text\": ");
        wf_learned_put_bytes(b, item->text, (int64_t)strlen(item->text));
    } else if (item->kind == WEFT_LEARNED_COLUMNS) {
        put_columns(b, item);
    } else if (item->kind == WEFT_LEARNED_VOCAB) {
        put_words(b, item->vocab);
    } else {
        wf_buf_printf(b, ", \"columns\": ");
        wf_stats_put(item->stats, b);
    }
    wf_buf_add(b, "}", 1);
}

weft_status weft_learned_format(const weft_learned *l, char **text, int64_t *n)
{
    struct wf_buf b;

    wf_buf_init(&b, l->ctx, MAX_TEXT);
    wf_buf_printf(&b, "{\"weft_learned\": %d, \"items\": [", VERSION);
    for (int64_t i = 0; i < l->n && !b.st; i++) {
        wf_buf_add(&b, ",", i > 0);
        put_item(&b, &l->item[i]);
    }
    wf_buf_printf(&b, "]}\n");
    if (b.st) {
        wf_buf_free(&b);
        return wf_err_wrap(b.st, "learned values (a vocabulary with `top`, or `hash`, is smaller)");
    }
    *text = b.data;
    if (n)
        *n = b.len;
    return WEFT_OK;
}

/* ---- values in ------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

weft_status wf_learned_get_bytes(const json_t *j, struct wf_arena *a, weft_str *out)
{
    const json_t *hex = json_object_get(j, "hex");
    const char *from = json_string_value(hex ? hex : j);
    int64_t n = (int64_t)json_string_length(hex ? hex : j);
    char *to;

    if (!from || (hex && n % 2))
        return wf_err(WEFT_EPARSE, "text is missing");
    n = hex ? n / 2 : n;
    to = wf_arena_alloc(a, (size_t)n + 1);
    if (!to)
        return wf_err_nomem(a->ctx, (size_t)n + 1, "learned values");
    for (int64_t i = 0; i < n; i++) {
        int high = hex ? hex_digit(from[2 * i]) : 0, low = hex ? hex_digit(from[2 * i + 1]) : 0;

        if (high < 0 || low < 0)
            return wf_err(WEFT_EPARSE, "'%.40s' is not hexadecimal", from);
        to[i] = hex ? (char)(high << 4 | low) : from[i];
    }
    *out = (weft_str){to, n};
    return WEFT_OK;
}

weft_status wf_learned_get_name(const json_t *j, struct wf_arena *a, weft_str *out)
{
    weft_status st = wf_learned_get_bytes(j, a, out);

    if (!st && memchr(out->data, 0, (size_t)out->n))
        st = wf_err(WEFT_EPARSE, "'%s' contains a NUL", out->data);
    return st;
}

bool wf_learned_get_real(const json_t *j, double *out)
{
    const char *s = json_string_value(j);

    if (json_is_number(j))
        *out = json_number_value(j);
    else if (!s || !wf_json_real_word(s, out))
        return false;
    return true;
}

bool wf_learned_dtype_parse(const json_t *j, weft_dtype *out)
{
    const char *s = json_string_value(j);

    if (!s)
        return false;
    if (strcmp(s, "text") == 0) {
        *out = WEFT_STR;
        return true;
    }
    return !weft_dtype_parse(s, out) && *out != WEFT_NONE;
}

/* ---- items in -------------------------------------------------------------------------------- */

static weft_status get_column(weft_learned *l, const json_t *j, weft_column *c)
{
    const json_t *shape = json_object_get(j, "shape");
    const char *role = json_string_value(json_object_get(j, "role"));
    weft_str name;
    weft_status st = wf_learned_get_name(json_object_get(j, "name"), &l->arena, &name);

    if (st)
        return wf_err_wrap(st, "the name of a column");
    *c = (weft_column){.name = name.data, .rank = (int)json_array_size(shape)};
    if (!wf_learned_dtype_parse(json_object_get(j, "dtype"), &c->dtype) || !role ||
        !json_is_array(shape) || json_array_size(shape) > WEFT_MAX_RANK)
        return wf_err(WEFT_EPARSE, "column '%s' has no valid dtype, role or shape", c->name);
    for (int k = 0; k < c->rank; k++) {
        const json_t *size = json_array_get(shape, (size_t)k);

        c->dim[k] = json_integer_value(size);
        if (!json_is_integer(size) || c->dim[k] < WEFT_ANY)
            return wf_err(WEFT_EPARSE, "column '%s': axis %d has no size", c->name, k);
    }
    for (int r = 0; r < WF_COUNT(role_name); r++)
        if (strcmp(role, role_name[r]) == 0) {
            c->role = (weft_role)r;
            return WEFT_OK;
        }
    return wf_err(WEFT_EPARSE, "column '%s': unknown role '%.40s'", c->name, role);
}

static weft_status get_columns(weft_learned *l, const char *name, const json_t *list)
{
    int64_t n = (int64_t)json_array_size(list);
    weft_column *col;
    weft_status st = WEFT_OK;

    if (!json_is_array(list) || n > MAX_COLUMNS)
        return wf_err(WEFT_EPARSE, "the list of columns is missing, or has more than %d",
                      MAX_COLUMNS);
    col = wf_alloc_n(l->ctx, n + 1, sizeof *col);
    if (!col)
        return err_nomem(l);
    for (int64_t i = 0; i < n && !st; i++)
        st = get_column(l, json_array_get(list, (size_t)i), &col[i]);
    if (!st)
        st = weft_learned_add_columns(l, name, (int)n, col);
    wf_free(l->ctx, col);
    return st;
}

static weft_status get_words(weft_learned *l, const char *name, const json_t *list)
{
    int64_t n = (int64_t)json_array_size(list);
    weft_str *word;
    weft_vocab *v = NULL;
    struct wf_arena bytes;
    weft_status st = WEFT_OK;

    if (!json_is_array(list))
        return wf_err(WEFT_EPARSE, "the list of words is missing");
    word = wf_alloc_n(l->ctx, n + 1, sizeof *word);
    if (!word)
        return err_nomem(l);
    wf_arena_init(&bytes, l->ctx);
    for (int64_t i = 0; i < n && !st; i++) {
        st = wf_learned_get_bytes(json_array_get(list, (size_t)i), &bytes, &word[i]);
        if (st)
            wf_err_wrap(st, "word %lld", (long long)i);
    }
    if (!st)
        st = weft_vocab_new(l->ctx, n, word, &v);
    if (!st)
        st = weft_learned_add_vocab(l, name, v);
    wf_arena_free(&bytes);
    wf_free(l->ctx, word);
    return st;
}

static weft_status get_stats(weft_learned *l, const char *name, const json_t *list)
{
    weft_stats *s = NULL;
    weft_status st = wf_stats_get(l->ctx, list, &s);

    return st ? st : weft_learned_add_stats(l, name, s);
}

static weft_status get_item(weft_learned *l, const json_t *j)
{
    const char *kind = json_string_value(json_object_get(j, "kind"));
    weft_str name, text;
    weft_status st = wf_learned_get_name(json_object_get(j, "name"), &l->arena, &name);

    if (st || !kind)
        return st ? wf_err_wrap(st, "the name of an item")
                  : wf_err(WEFT_EPARSE, "item '%.80s' has no kind", name.data);
    if (strcmp(kind, kind_name[WEFT_LEARNED_TEXT]) == 0) {
        st = wf_learned_get_name(json_object_get(j, "text"), &l->arena, &text);
        if (!st)
            st = weft_learned_add_text(l, name.data, text.data);
    } else if (strcmp(kind, kind_name[WEFT_LEARNED_COLUMNS]) == 0)
        st = get_columns(l, name.data, json_object_get(j, "columns"));
    else if (strcmp(kind, kind_name[WEFT_LEARNED_VOCAB]) == 0)
        st = get_words(l, name.data, json_object_get(j, "words"));
    else if (strcmp(kind, kind_name[WEFT_LEARNED_STATS]) == 0)
        st = get_stats(l, name.data, json_object_get(j, "columns"));
    else
        st = wf_err(WEFT_EPARSE, "unknown kind '%.40s'", kind);
    return st ? wf_err_wrap(st, "item '%.80s'", name.data) : WEFT_OK;
}

weft_status weft_learned_parse(weft_ctx *ctx, const char *text, int64_t n, weft_learned **out)
{
    weft_learned *l = NULL;
    json_t *root = NULL, *items;
    int64_t version;
    weft_status st = n > MAX_TEXT ? wf_err(WEFT_ELIMIT, "%lld bytes, more than %lld", (long long)n,
                                           (long long)MAX_TEXT)
                                  : wf_json_parse(text, n, &root);

    if (st)
        return wf_err_wrap(st, "learned values");
    version = json_integer_value(json_object_get(root, "weft_learned"));
    items = json_object_get(root, "items");
    if (version > VERSION)
        st = wf_err(WEFT_ENOSUP, "version %lld: written by a later version of weft",
                    (long long)version);
    else if (version < 1 || !json_is_array(items))
        st = wf_err(WEFT_EPARSE, "the version or the list of items is missing");
    if (!st)
        st = weft_learned_new(ctx, &l);
    for (size_t i = 0; !st && i < json_array_size(items); i++)
        st = get_item(l, json_array_get(items, i));
    json_decref(root);
    if (st) {
        weft_learned_free(l);
        if (st == WEFT_EINVAL || st == WEFT_EEXIST) /* names and words that cannot be */
            st = WEFT_EPARSE;
        return wf_err_wrap(st, "learned values");
    }
    *out = l;
    return WEFT_OK;
}
