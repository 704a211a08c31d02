/* Random pipelines over files and memory against their plain definition: lists. Each seed draws a
 * source (with odd line ends, quotes, a byte order mark, empty and one-record files, huge fields),
 * a few transformations and an end; the elements of two epochs are compared with what the lists
 * say, for several numbers of threads, and from positions saved at random moments.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/data.h"
#include "files_support.h"
#include "weft/data_table.h"
#include "weft/weft.h"

#define MOST 4000 /* elements of a list */
#define HUGE_FIELD 70000

static weft_ctx *ctx;
static char *huge_text;

struct rng {
    uint64_t x;
};

static uint32_t roll(struct rng *r, uint32_t n)
{
    r->x = r->x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->x >> 33) % n;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* An element is its key; its text follows from that. */
struct list {
    int64_t n;
    int64_t k[MOST];
};

static weft_str text_of(int64_t k)
{
    static const char *const texts[] = {
        "plain",    "",   "with, a comma", "a \"quoted\" word", "two\nlines", "M\xc3\xbcller",
        " blanks ", "\"", "a\r\nb",        "tab\there",         "x"};
    const char *t = texts[(uint64_t)k % 11];

    if ((uint64_t)k % 97 == 13)
        return (weft_str){huge_text, HUGE_FIELD};
    return (weft_str){t, (int64_t)strlen(t)};
}

static void push(struct list *l, int64_t k)
{
    if (l->n < MOST)
        l->k[l->n++] = k;
}

/* ---- sources --------------------------------------------------------------------------------- */

static const weft_column columns[2] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "t", .dtype = WEFT_STR}};

static weft_status fill(int64_t k, weft_sample *s)
{
    weft_str t = text_of(k);

    *(int64_t *)s->col[0].data = k;
    return weft_sample_text(s, 1, 0, t.data, t.n);
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    return fill(id + (intptr_t)arg, s);
}

struct stream_arg {
    int64_t first, n;
};

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    const struct stream_arg *a = arg;

    *end = id >= a->n;
    return *end ? WEFT_OK : fill(id + a->first, s);
}

static void put_quoted(FILE *f, weft_str t, bool always)
{
    bool quote = always || memchr(t.data, ',', (size_t)t.n) || memchr(t.data, '"', (size_t)t.n) ||
                 memchr(t.data, '\n', (size_t)t.n) || memchr(t.data, '\r', (size_t)t.n);

    if (quote)
        fputc('"', f);
    for (int64_t i = 0; i < t.n; i++) {
        if (t.data[i] == '"')
            fputc('"', f);
        fputc(t.data[i], f);
    }
    if (quote)
        fputc('"', f);
}

/* How many rows file i of a source has: often none or one. */
static int64_t rows_of(struct rng *r)
{
    static const int64_t counts[] = {0, 1, 2, 7, 40, 333};

    return counts[roll(r, 6)];
}

static int n_written;

static weft_ds csv_source(weft_data *d, struct rng *r, struct list *l)
{
    int n_files = 1 + (int)roll(r, 3), id = n_written++;
    const char *end = roll(r, 2) ? "\r\n" : "\n";
    bool bom = roll(r, 3) == 0, always = roll(r, 2), index = roll(r, 2), blank = roll(r, 3) == 0;
    int64_t k = roll(r, 1000);
    char name[64];

    for (int i = 0; i < n_files; i++) {
        int64_t rows = rows_of(r);
        bool last = roll(r, 2);
        FILE *f;

        snprintf(name, sizeof name, "s%d-%d.csv", id, i);
        f = fopen(in_scratch(name), "wb");
        assert_non_null(f);
        fprintf(f, "%sk,t%s", bom ? "\xef\xbb\xbf" : "", rows || last ? end : "");
        for (int64_t j = 0; j < rows; j++, k++) {
            if (blank && j % 5 == 3)
                fputs(end, f);
            fprintf(f, "%lld,", (long long)k);
            put_quoted(f, text_of(k), always);
            fputs(j + 1 < rows || last ? end : "", f);
            push(l, k);
        }
        fclose(f);
    }
    snprintf(name, sizeof name, "s%d-*.csv", id);
    return weft_ds_csv(d, in_scratch(name),
                       WEFT_OPTS(weft_csv_opts, .types = "k:i64,t:str", .index = index));
}

static weft_ds record_source(weft_data *d, struct rng *r, struct list *l)
{
    static const weft_example_feature features[2] = {{.name = "k", .dtype = WEFT_I64},
                                                     {.name = "t", .dtype = WEFT_STR}};
    int n_files = 1 + (int)roll(r, 3), id = n_written++;
    bool index = roll(r, 2);
    int64_t k = roll(r, 1000);
    char name[64];

    for (int i = 0; i < n_files; i++) {
        int64_t rows = rows_of(r);
        weft_record_writer *w;

        snprintf(name, sizeof name, "s%d-%d.tfrecord%s", id, i, index ? "" : ".gz");
        assert_int_equal(weft_record_writer_new(ctx, in_scratch(name), NULL, &w), WEFT_OK);
        for (int64_t j = 0; j < rows; j++, k++) {
            weft_str t = text_of(k);
            const weft_example_value v[2] = {
                {.name = "k", .tensor = weft_view(WEFT_I64, &k, 0, NULL)},
                {.name = "t", .tensor = {.dtype = WEFT_STR, .data = &t}}};

            assert_int_equal(weft_record_writer_example(w, 2, v), WEFT_OK);
            push(l, k);
        }
        assert_int_equal(weft_record_writer_close(w), WEFT_OK);
    }
    snprintf(name, sizeof name, "s%d-*.tfrecord*", id);
    return weft_ds_example(
        d, weft_ds_tfrecord(d, in_scratch(name), WEFT_OPTS(weft_tfrecord_opts, .index = index)), 2,
        features, NULL);
}

/* Keys from an array file, which is read into memory or by rows; the text is made. */
static weft_status add_text(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    return fill(*(const int64_t *)in->col[0].data, out);
}

static weft_ds array_source(weft_data *d, struct rng *r, struct list *l)
{
    int64_t rows = rows_of(r), first = roll(r, 1000), k[400] = {0};
    weft_tensor t = weft_view(WEFT_I64, k, 1, &rows);
    char name[64];
    weft_ds s;

    for (int64_t i = 0; i < rows; i++) {
        k[i] = first + i;
        push(l, k[i]);
    }
    snprintf(name, sizeof name, "s%d.npz", n_written++);
    assert_int_equal(weft_npz_write(ctx, in_scratch(name), 1, (const char *[]){"k"}, &t), WEFT_OK);
    if (roll(r, 2))
        d->array_room = 0;
    s = weft_ds_npz(d, in_scratch(name), NULL, NULL);
    return weft_ds_map(d, s, 2, columns, add_text, NULL, NULL);
}

static weft_ds memory_source(weft_data *d, struct rng *r, struct list *l)
{
    static struct stream_arg args[8];
    struct stream_arg *a = &args[roll(r, 8)];
    int64_t n = rows_of(r);
    bool stream = roll(r, 2);

    /* By its place, so that pipelines of one seed agree. */
    a->first = (a - args) * 50;
    a->n = (a - args) * 23 % 60;
    if (stream) {
        for (int64_t i = 0; i < a->n; i++)
            push(l, a->first + i);
        return weft_ds_stream(d, 2, columns, next, a);
    }
    for (int64_t i = 0; i < n; i++)
        push(l, i + 7);
    return weft_ds_get(d, 2, columns, n, get, (void *)(intptr_t)7);
}

static weft_ds source(weft_data *d, struct rng *r, struct list *l)
{
    l->n = 0;
    switch (roll(r, 5)) {
    case 0:
    case 1: return csv_source(d, r, l);
    case 2: return record_source(d, r, l);
    case 3: return array_source(d, r, l);
    default: return memory_source(d, r, l);
    }
}

/* ---- transformations: the dataset, and what it means ----------------------------------------- */

static weft_status twice(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    return fill(2 * *(const int64_t *)in->col[0].data + 1, out);
}

static weft_status no_thirds(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    *keep = *(const int64_t *)in->col[0].data % 3 != 0;
    return WEFT_OK;
}

static weft_status inner(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    int64_t k = *(const int64_t *)e->col[0].data;

    (void)arg;
    *out = weft_ds_get(d, 2, columns, k % 4, get, (void *)(intptr_t)(k * 10));
    return WEFT_OK;
}

static weft_ds o_map(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    for (int64_t i = 0; i < l->n; i++)
        l->k[i] = 2 * l->k[i] + 1;
    return weft_ds_map(d, s, 0, NULL, twice, NULL,
                       WEFT_OPTS(weft_map_opts, .serial = roll(r, 3) == 0));
}

static weft_ds o_filter(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t n = 0;

    (void)r;
    for (int64_t i = 0; i < l->n; i++)
        if (l->k[i] % 3)
            l->k[n++] = l->k[i];
    l->n = n;
    return weft_ds_filter(d, s, no_thirds, NULL);
}

static weft_ds o_where(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    double low = roll(r, 600);
    int64_t n = 0;

    for (int64_t i = 0; i < l->n; i++)
        if ((double)l->k[i] >= low)
            l->k[n++] = l->k[i];
    l->n = n;
    return weft_ds_where(d, s, "k", WEFT_OPTS(weft_where_opts, .min = &low));
}

static weft_ds o_take(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t n = roll(r, 60);

    l->n = wf_min_i64(l->n, n);
    return weft_ds_take(d, s, n);
}

static weft_ds o_skip(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t n = wf_min_i64(roll(r, 20), l->n), asked = n;

    memmove(l->k, l->k + n, (size_t)(l->n - n) * 8);
    l->n -= n;
    return weft_ds_skip(d, s, asked);
}

static weft_ds o_shard(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t n = 1 + roll(r, 4), i = roll(r, (uint32_t)n), m = 0;

    for (int64_t at = i; at < l->n; at += n)
        l->k[m++] = l->k[at];
    l->n = m;
    return weft_ds_shard(d, s, n, i);
}

static weft_ds o_repeat(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t times = 1 + roll(r, 3), n = l->n;

    if (n * times > MOST / 4)
        return s;
    for (int64_t t = 1; t < times; t++)
        for (int64_t i = 0; i < n; i++)
            push(l, l->k[i]);
    return weft_ds_repeat(d, s, times);
}

static weft_ds o_concat(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    static struct list other;
    weft_ds both[2] = {s, source(d, r, &other)};

    if (l->n + other.n > MOST / 4)
        return s;
    for (int64_t i = 0; i < other.n; i++)
        push(l, other.k[i]);
    return weft_ds_concat(d, 2, both);
}

static weft_ds o_prefetch(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    (void)l;
    return weft_ds_prefetch(d, s, roll(r, 10));
}

static weft_ds o_cache(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    char name[64];

    (void)l;
    snprintf(name, sizeof name, "cache-%d", n_written++);
    return weft_ds_cache(
        d, s,
        WEFT_OPTS(weft_cache_opts, .in = (weft_cache_in)roll(r, 3), .path = in_scratch(name)));
}

static weft_ds o_flat_map(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    static struct list out;

    (void)r;
    if (l->n > MOST / 8)
        return s;
    out.n = 0;
    for (int64_t i = 0; i < l->n; i++)
        for (int64_t j = 0; j < l->k[i] % 4; j++)
            push(&out, l->k[i] * 10 + j);
    *l = out;
    return weft_ds_flat_map(d, s, 2, columns, inner, NULL);
}

static weft_ds o_interleave_n(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    static struct list other, out;
    weft_ds both[2] = {s, source(d, r, &other)};
    int64_t block = 1 + roll(r, 4), a = 0, b = 0;

    if (l->n + other.n > MOST / 4)
        return s;
    out.n = 0;
    while (a < l->n || b < other.n) {
        for (int64_t i = 0; i < block && a < l->n; i++)
            push(&out, l->k[a++]);
        for (int64_t i = 0; i < block && b < other.n; i++)
            push(&out, other.k[b++]);
    }
    *l = out;
    return weft_ds_interleave_n(d, 2, both, block);
}

static weft_ds o_unbatch(weft_data *d, weft_ds s, struct rng *r, struct list *l)
{
    int64_t n = 1 + roll(r, 9);
    bool drop = roll(r, 2);

    if (drop)
        l->n -= l->n % n;
    return weft_ds_unbatch(
        d, weft_ds_batch(d, s, n, WEFT_OPTS(weft_batch_opts, .drop_remainder = drop)));
}

typedef weft_ds op(weft_data *d, weft_ds s, struct rng *r, struct list *l);
static op *const ops[] = {o_map,          o_filter, o_where,    o_take,  o_skip,
                          o_shard,        o_repeat, o_prefetch, o_cache, o_flat_map,
                          o_interleave_n, o_concat, o_unbatch};

/* ---- the end: rows of keys ------------------------------------------------------------------- */

enum end { SAMPLES, BATCHES, WINDOWS, SHUFFLED, N_ENDS };

struct recipe {
    weft_ds ds;
    enum end end;
    int64_t size, shift, stride;
    bool drop;
    struct list l;
};

static void make(weft_data *d, uint64_t seed, struct recipe *p)
{
    struct rng r = {seed * 7919 + 17};
    int depth;

    n_written = (int)seed * 100;
    p->ds = source(d, &r, &p->l);
    depth = (int)roll(&r, 5);
    for (int i = 0; i < depth; i++)
        p->ds = ops[roll(&r, WF_COUNT(ops))](d, p->ds, &r, &p->l);
    p->end = (enum end)roll(&r, N_ENDS);
    p->size = 1 + roll(&r, 8);
    p->shift = 1 + roll(&r, 6);
    p->stride = 1 + roll(&r, 3);
    p->drop = roll(&r, 2);
    if (p->end == BATCHES)
        p->ds =
            weft_ds_batch(d, p->ds, p->size, WEFT_OPTS(weft_batch_opts, .drop_remainder = p->drop));
    if (p->end == WINDOWS)
        p->ds = weft_ds_window(d, p->ds, p->size,
                               WEFT_OPTS(weft_window_opts, .shift = p->shift, .stride = p->stride,
                                         .drop_remainder = p->drop));
    if (p->end == SHUFFLED)
        p->ds = weft_ds_addressable(d, p->ds) && p->drop ? weft_ds_shuffle_all(d, p->ds, NULL)
                                                         : weft_ds_shuffle(d, p->ds, p->size, NULL);
}

/* Element e: the keys it must have. -1: there is none. */
static int64_t wanted(const struct recipe *p, int64_t e, int64_t *keys)
{
    int64_t n = 0, first, step;

    if (p->end == SAMPLES || p->end == SHUFFLED) {
        keys[0] = e < p->l.n ? p->l.k[e] : 0;
        return e < p->l.n ? 1 : -1;
    }
    first = e * (p->end == BATCHES ? p->size : p->shift);
    step = p->end == BATCHES ? 1 : p->stride;
    for (int64_t j = 0; j < p->size && first + j * step < p->l.n; j++)
        keys[n++] = p->l.k[first + j * step];
    return n == 0 || (n < p->size && p->drop) ? -1 : n;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static char about[128]; /* the present try */

static void bad(weft_data *d, const struct recipe *p, int64_t e, const char *what)
{
    char *text = NULL, error[512];

    snprintf(error, sizeof error, "%s", weft_error());
    weft_ds_text(d, p->ds, &text);
    fail_msg("%s, element %lld: %s (%s)\n%s", about, (long long)e, what, error, text ? text : "");
}

static void check_text(weft_data *d, const struct recipe *p, int64_t e, const weft_batch *b,
                       int64_t i, int64_t k)
{
    weft_str want = text_of(k), got = ((const weft_str *)b->col[1].data)[i];

    if (got.n != want.n || (got.n && memcmp(got.data, want.data, (size_t)got.n)))
        bad(d, p, e, "another text");
}

/* Shuffled keys are marked off: each must come as often as the list has it. */
static void check_shuffled(weft_data *d, const struct recipe *p, int64_t e, int64_t k,
                           struct list *left)
{
    for (int64_t i = 0; i < left->n; i++)
        if (left->k[i] == k) {
            left->k[i] = left->k[--left->n];
            return;
        }
    bad(d, p, e, "an element that is not in the list, or too often");
}

static void check_element(weft_data *d, const struct recipe *p, int64_t e, const weft_batch *b,
                          struct list *left)
{
    int64_t keys[16], n = wanted(p, e, keys);
    const int64_t *k = b->col[0].data;

    if (n < 0)
        bad(d, p, e, "too many elements");
    if (weft_tensor_count(&b->col[0]) != n)
        bad(d, p, e, "another number of rows");
    if (p->end == SHUFFLED)
        check_shuffled(d, p, e, k[0], left);
    for (int64_t i = 0; i < n; i++) {
        if (p->end != SHUFFLED && k[i] != keys[i])
            bad(d, p, e, "another key");
        check_text(d, p, e, b, i, k[i]);
    }
}

/* Elements from *e on until `until`, or to the end of the epoch: then true. */
static bool read_on(weft_data *d, weft_iter *it, const struct recipe *p, int64_t *e, int64_t until,
                    struct list *left)
{
    int64_t keys[16];
    weft_batch *b;

    while (*e < until) {
        if (weft_iter_next(it, &b))
            bad(d, p, *e, "an error");
        if (!b && wanted(p, *e, keys) >= 0)
            bad(d, p, *e, "too few elements");
        if (!b)
            return true;
        check_element(d, p, (*e)++, b, left);
        weft_batch_free(b);
    }
    return false;
}

static weft_iter *open_iter(weft_data *d, const struct recipe *p, int threads)
{
    weft_iter *it = NULL;

    if (weft_iter_new(
            d, p->ds,
            WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO, .memory = 8 << 20),
            &it))
        bad(d, p, 0, "cannot be opened");
    return it;
}

/* Two epochs; in each the position is saved somewhere and restored, here or in another iterator. */
static void one_try(uint64_t seed, int threads, struct rng *r)
{
    static struct recipe p, q;
    static struct list left;
    weft_data *d, *other;
    weft_iter *it, *there;

    snprintf(about, sizeof about, "pipeline %llu, %d threads", (unsigned long long)seed, threads);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    assert_int_equal(weft_data_new(ctx, &other), WEFT_OK);
    make(d, seed, &p);
    if (weft_data_status(d))
        bad(d, &p, 0, "cannot be built");
    make(other, seed, &q);
    it = open_iter(d, &p, threads);
    there = open_iter(other, &q, (int)roll(r, 4));
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t e = 0, n = 0, stop = roll(r, (uint32_t)p.l.n + 2);
        char *state = NULL;
        bool ended;

        left = p.l;
        if (weft_iter_reset(it, epoch))
            bad(d, &p, 0, "a reset failed");
        ended = read_on(d, it, &p, &e, stop, &left);
        if (weft_iter_save(it, &state, &n))
            bad(d, &p, e, "save failed");
        if (!ended && roll(r, 2) && weft_iter_restore(it, state, n))
            bad(d, &p, e, "restore failed");
        if (!ended && roll(r, 2)) {
            static struct list rest;
            int64_t at = e;

            rest = left;
            if (weft_iter_restore(there, state, n))
                bad(other, &q, e, "restore elsewhere failed");
            read_on(other, there, &q, &at, INT64_MAX, &rest);
        }
        weft_text_free(ctx, state);
        if (!ended)
            read_on(d, it, &p, &e, INT64_MAX, &left);
    }
    weft_iter_free(it);
    weft_iter_free(there);
    weft_data_free(d);
    weft_data_free(other);
}

static void pipelines_are_what_their_lists_say(void **state)
{
    static const int threads[] = {0, 1, 3};
    const char *one = getenv("LISTS_SEED"), *many = getenv("LISTS_COUNT");
    int count = many ? atoi(many) : getenv("WEFT_TEST_QUICK") ? 100 : 500;

    (void)state;
    for (int seed = one ? atoi(one) : 0; seed < (one ? atoi(one) + 1 : count); seed++) {
        struct rng r = {(uint64_t)seed ^ 0x3c3c};

        if (seed % 50 == 0) { /* files of many seeds need not be kept */
            scratch_drop();
            scratch_make();
        }
        for (int k = 0; k < WF_COUNT(threads); k++)
            one_try((uint64_t)seed, threads[k], &r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pipelines_are_what_their_lists_say)};
    int failed;

    huge_text = malloc(HUGE_FIELD);
    if (!huge_text || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    memset(huge_text, 'h', HUGE_FIELD);
    scratch_make();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_drop();
    weft_ctx_free(ctx);
    free(huge_text);
    return failed;
}
