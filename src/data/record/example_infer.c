/* example_infer.c - which features the Examples of a file have, from its first records. A feature
 * that is in every record with the same number of values has a fixed shape; any other has a
 * variable length. */
#include "data/record/example.h"
#include "data/record/varint.h"

#define RECORDS 100
#define KINDS (WF_LIST_INT64 + 1)

/* What was seen of one feature, for each kind of list separately. */
struct seen {
    const char *name;
    bool sequence;
    struct {
        int64_t n;           /* records (sequences: steps) with it */
        int64_t first;       /* the first such record */
        int64_t least, most; /* values */
    } of[KINDS];
};

struct infer {
    struct wf_arena *arena;
    struct seen *f;
    int64_t n, cap;
    struct wf_map names[2]; /* to f: plain ones, sequences */
    struct wf_buf key;      /* a name, terminated */
    int64_t records;        /* that are Examples */
    int64_t at;             /* the record being looked at */
    bool noting;            /* otherwise only: is it an Example? */
    weft_status st;         /* out of memory, too many features */
};

/* ---- the wire -------------------------------------------------------------------------------- */

struct field {
    int number, wire;
    const unsigned char *p; /* wire type 2: n bytes */
    int64_t n;
};

/* The next field of [*p, end); false at the end or if it is malformed (*p is then NULL). */
static bool next_field(const unsigned char **p, const unsigned char *end, struct field *out)
{
    static const int skip[8] = {0, 8, 0, -1, -1, 4, -1, -1};
    uint64_t key, n;

    if (*p >= end)
        return false;
    *p = wf_varint(*p, end, &key);
    if (!*p || key >> 3 == 0 || key >> 3 > 0x1fffffff) {
        *p = NULL;
        return false;
    }
    out->number = (int)(key >> 3);
    out->wire = (int)(key & 7);
    out->n = 0;
    out->p = *p;
    if (out->wire == 0) {
        *p = wf_varint(*p, end, &n);
        out->n = *p ? *p - out->p : 0;
        return *p != NULL;
    }
    if (out->wire == 2) {
        *p = wf_varint(*p, end, &n);
        if (!*p || n > (uint64_t)(end - *p)) {
            *p = NULL;
            return false;
        }
        out->p = *p;
    } else if (skip[out->wire] < 0 || skip[out->wire] > end - *p) {
        *p = NULL;
        return false;
    } else {
        n = (uint64_t)skip[out->wire];
    }
    out->n = (int64_t)n;
    *p += n;
    return true;
}

/* Values of a list message: packed and single ones. -1: malformed. */
static int64_t count_values(const unsigned char *p, int64_t n, enum wf_list list)
{
    const unsigned char *end = p + n;
    int64_t count = 0;
    struct field f;

    while (next_field(&p, end, &f)) {
        if (f.number != 1)
            continue;
        if (list == WF_LIST_BYTES || f.wire != 2)
            count++;
        else if (list == WF_LIST_FLOAT)
            count += f.n / 4;
        else
            for (int64_t i = 0; i < f.n; i++)
                count += !(f.p[i] & 0x80);
    }
    return p ? count : -1;
}

/* A Feature: its kind of list and number of values. Unknown fields are skipped, as protobuf
 * does. */
static bool read_feature(const unsigned char *p, int64_t n, enum wf_list *list, int64_t *count)
{
    const unsigned char *end = p + n;
    struct field f;

    *list = WF_LIST_NONE;
    *count = 0;
    while (next_field(&p, end, &f)) {
        if (f.wire != 2 || f.number > WF_LIST_INT64)
            continue;
        if (*list != (enum wf_list)f.number)
            *count = 0; /* of several kinds the last counts, lists of one kind are joined */
        *list = (enum wf_list)f.number;
        n = count_values(f.p, f.n, *list);
        if (n < 0)
            return false;
        *count += n;
    }
    return p != NULL;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* The feature with this name, a new one if necessary. NULL with in->st. */
static struct seen *find(struct infer *in, const unsigned char *name, int64_t n, bool sequence)
{
    int64_t k;
    char *copy;

    in->key.len = 0;
    wf_buf_add(&in->key, name, n);
    if (in->key.st) {
        in->st = in->key.st;
        return NULL;
    }
    if (wf_map_get(&in->names[sequence], in->key.data, &k))
        return &in->f[k];
    if (in->n == WF_EXAMPLE_FEATURES) {
        in->st =
            wf_err(WEFT_ELIMIT, "more than %d features: list the ones you need (weft_ds_example)",
                   WF_EXAMPLE_FEATURES);
        return NULL;
    }
    copy = wf_arena_strdup(in->arena, in->key.data);
    in->st = copy ? wf_grow(in->arena->ctx, &in->f, &in->cap, in->n + 1, sizeof *in->f)
                  : wf_err_nomem(in->arena->ctx, (size_t)n, "the name of a feature");
    if (!in->st)
        in->st = wf_map_put(&in->names[sequence], copy, in->n);
    if (in->st)
        return NULL;
    in->f[in->n] = (struct seen){.name = copy, .sequence = sequence};
    return &in->f[in->n++];
}

static void note(const struct infer *in, struct seen *s, enum wf_list list, int64_t count)
{
    if (!s || list == WF_LIST_NONE)
        return;
    if (!s->of[list].n++) {
        s->of[list].first = in->at;
        s->of[list].least = s->of[list].most = count;
    }
    s->of[list].least = wf_min_i64(s->of[list].least, count);
    s->of[list].most = wf_max_i64(s->of[list].most, count);
}

/* A FeatureList: one Feature per step. */
static bool read_steps(const struct infer *in, struct seen *s, const unsigned char *p, int64_t n)
{
    const unsigned char *end = p + n;
    enum wf_list list;
    int64_t count;
    struct field f;

    while (next_field(&p, end, &f)) {
        if (f.number != 1 || f.wire != 2)
            continue;
        if (!read_feature(f.p, f.n, &list, &count))
            return false;
        note(in, s, list, count);
    }
    return p != NULL;
}

/* An entry of the map: key 1, value 2. */
static bool read_entry(struct infer *in, const unsigned char *p, int64_t n, bool sequence)
{
    const unsigned char *end = p + n;
    struct field f, key = {0}, value = {0};
    enum wf_list list;
    int64_t count;
    struct seen *s = NULL;

    while (next_field(&p, end, &f)) {
        if (f.number == 1 && f.wire == 2)
            key = f;
        if (f.number == 2 && f.wire == 2)
            value = f;
    }
    if (!p || !key.n || !value.p || memchr(key.p, 0, (size_t)key.n))
        return false;
    if (in->noting) {
        s = find(in, key.p, key.n, sequence);
        if (!s)
            return false;
    }
    if (sequence)
        return read_steps(in, s, value.p, value.n);
    if (!read_feature(value.p, value.n, &list, &count))
        return false;
    note(in, s, list, count);
    return true;
}

/* Features (or FeatureLists): repeated entries. */
static bool read_map(struct infer *in, const unsigned char *p, int64_t n, bool sequence)
{
    const unsigned char *end = p + n;
    struct field f;

    while (next_field(&p, end, &f))
        if (f.number == 1 && f.wire == 2 && !read_entry(in, f.p, f.n, sequence))
            return false;
    return p != NULL;
}

static bool read_example(struct infer *in, const unsigned char *p, int64_t n)
{
    const unsigned char *end = p + n;
    struct field f;

    while (next_field(&p, end, &f))
        if (f.wire == 2 && f.number <= 2 && !read_map(in, f.p, f.n, f.number == 2))
            return false;
    return p != NULL;
}

/* ---- the result ------------------------------------------------------------------------------ */

static const char *kind_name(int list)
{
    static const char *const names[] = {"nothing", "bytes", "floats", "integers"};

    return names[list];
}

/* The kind of list that most records have. One record of another kind is an error, unless such
 * records are skipped. */
static weft_status choose(const struct seen *s, weft_on_error on_error, enum wf_list *out)
{
    int best = WF_LIST_NONE;

    for (int k = 1; k < KINDS; k++)
        if (s->of[k].n > s->of[best].n)
            best = k;
    for (int k = 1; k < KINDS && on_error == WEFT_ON_ERROR_STOP; k++)
        if (k != best && s->of[k].n)
            return wf_err(WEFT_EDATA,
                          "record %lld: feature '%s' holds %s, but %s in record %lld: fix the "
                          "file, or skip such records (on_error: skip)",
                          (long long)s->of[k].first, s->name, kind_name(k), kind_name(best),
                          (long long)s->of[best].first);
    *out = (enum wf_list)best;
    return WEFT_OK;
}

static weft_example_feature describe(const struct infer *in, const struct seen *s,
                                     enum wf_list list)
{
    static const weft_dtype dtypes[] = {WEFT_NONE, WEFT_STR, WEFT_F32, WEFT_I64};
    weft_example_feature f = {.name = s->name, .dtype = dtypes[list], .sequence = s->sequence};
    int64_t n = 0;
    bool fixed;

    for (int k = 1; k < KINDS; k++)
        n += s->of[k].n;
    fixed = s->of[list].least == s->of[list].most && s->of[list].most > 0 &&
            (s->sequence || n == in->records);
    if (s->sequence)
        f.dim[f.rank++] = WEFT_ANY;
    if (!fixed)
        f.dim[f.rank++] = WEFT_ANY;
    else if (s->of[list].most != 1)
        f.dim[f.rank++] = s->of[list].most;
    return f;
}

static weft_status describe_all(struct infer *in, weft_on_error on_error, int *n,
                                weft_example_feature **out)
{
    weft_status st = WEFT_OK;
    enum wf_list list = WF_LIST_NONE;

    *out = wf_arena_alloc(in->arena, (size_t)(in->n + 1) * sizeof **out);
    if (!*out)
        return wf_err_nomem(in->arena->ctx, (size_t)(in->n + 1) * sizeof **out, "features");
    for (int64_t i = 0; i < in->n && !st; i++) {
        st = choose(&in->f[i], on_error, &list);
        if (!st && list != WF_LIST_NONE)
            (*out)[(*n)++] = describe(in, &in->f[i], list);
    }
    return st;
}

/* All records; one that is not an Example while others are is an error, or skipped. */
static weft_status look(struct infer *in, const struct wf_example_sample *sample,
                        weft_on_error on_error)
{
    int64_t other = -1;

    for (in->at = 0; in->at < sample->n && !in->st; in->at++) {
        const unsigned char *p = (const unsigned char *)sample->record[in->at];

        in->noting = false;
        if (!read_example(in, p, sample->bytes[in->at])) {
            other = other < 0 ? in->at : other;
            continue;
        }
        in->noting = true;
        read_example(in, p, sample->bytes[in->at]);
        in->records++;
    }
    if (!in->st && in->n && other >= 0 && on_error == WEFT_ON_ERROR_STOP)
        return wf_err(WEFT_EDATA,
                      "record %lld is not a tf.train.Example, but others are: fix the file, or "
                      "skip such records (on_error: skip)",
                      (long long)other);
    return in->st;
}

weft_status wf_example_look(struct wf_arena *arena, const struct wf_example_sample *sample,
                            weft_on_error on_error, int *n, weft_example_feature **out)
{
    struct infer in = {.arena = arena};
    weft_status st;

    *n = 0;
    *out = NULL;
    wf_map_init(&in.names[0], arena->ctx);
    wf_map_init(&in.names[1], arena->ctx);
    wf_buf_init(&in.key, arena->ctx, INT64_MAX / 4);
    st = look(&in, sample, on_error);
    if (!st && in.n)
        st = describe_all(&in, on_error, n, out);
    wf_map_free(&in.names[0]);
    wf_map_free(&in.names[1]);
    wf_buf_free(&in.key);
    wf_free(arena->ctx, in.f);
    return st;
}

weft_status wf_example_infer(weft_data *d, const char *files, weft_on_error on_error, int *n,
                             weft_example_feature **out)
{
    weft_data *side = NULL;
    weft_iter *it = NULL;
    weft_batch *b[RECORDS] = {0};
    const char *record[RECORDS];
    int64_t bytes[RECORDS];
    struct wf_example_sample sample = {record, bytes, 0};
    weft_status st = weft_data_new(d->ctx, &side);

    *n = 0;
    if (!st)
        st = weft_iter_new(
            side,
            weft_ds_tfrecord(side, files, WEFT_OPTS(weft_tfrecord_opts, .on_error = on_error)),
            WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    while (!st && sample.n < RECORDS) {
        st = weft_iter_next(it, &b[sample.n]);
        if (st || !b[sample.n])
            break;
        record[sample.n] = ((const weft_str *)b[sample.n]->col[0].data)->data;
        bytes[sample.n] = ((const weft_str *)b[sample.n]->col[0].data)->n;
        sample.n++;
    }
    if (!st)
        st = wf_err_wrap(wf_example_look(&d->arena, &sample, on_error, n, out), "%s", files);
    if (!st && !*n && sample.n)
        wf_log(d->ctx, WEFT_LOG_WARN,
               "%s: the first %lld records are not tf.train.Example, or have no features: the "
               "column 'record' holds their bytes",
               files, (long long)sample.n);
    for (int64_t i = 0; i < sample.n; i++)
        weft_batch_free(b[i]);
    weft_iter_free(it);
    weft_data_free(side);
    return st;
}
