/* example_infer.c - which features the Examples of a file have, from its first records.
 * A feature that is in every record with the same number of values has a fixed shape; any other has a variable length. */
#include "data/example.h"
#include "data/varint.h"

#define RECORDS 100
#define MAX_FEATURES 4096

/* What was seen of one feature. */
struct seen {
    const char *name;
    bool sequence;
    enum wf_list list;
    int64_t records, least, most; /* records it is in; values (sequences: of a step) */
};

struct infer {
    struct wf_arena *arena;
    struct seen *f;
    int64_t n, cap, records;
};

/* ---- the wire -------------------------------------------------------------------------------- */

struct field {
    int number, wire;
    const unsigned char *p; /* wire type 2: n bytes */
    int64_t n;
};

/* The next field of [*p, end); false at the end or when it is malformed (*p is then NULL). */
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

/* A Feature: its kind of list and number of values. */
static bool read_feature(const unsigned char *p, int64_t n, enum wf_list *list, int64_t *count)
{
    const unsigned char *end = p + n;
    struct field f;

    *list = WF_LIST_NONE;
    *count = 0;
    while (next_field(&p, end, &f)) {
        if (f.wire != 2 || f.number > WF_LIST_INT64)
            return false;
        *list = (enum wf_list)f.number;
        *count = count_values(f.p, f.n, *list);
        if (*count < 0)
            return false;
    }
    return p != NULL;
}

/* ---- collecting ------------------------------------------------------------------------------ */

static struct seen *find(struct infer *in, const unsigned char *name, int64_t n, bool sequence)
{
    char *copy;

    for (int64_t i = 0; i < in->n; i++)
        if ((int64_t)strlen(in->f[i].name) == n && memcmp(in->f[i].name, name, (size_t)n) == 0 &&
            in->f[i].sequence == sequence)
            return &in->f[i];
    if (in->n == MAX_FEATURES ||
        wf_grow(in->arena->ctx, &in->f, &in->cap, in->n + 1, sizeof *in->f))
        return NULL;
    copy = wf_arena_alloc(in->arena, (size_t)n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, (size_t)n);
    in->f[in->n] = (struct seen){.name = copy, .sequence = sequence, .least = INT64_MAX};
    return &in->f[in->n++];
}

static bool note(struct seen *s, enum wf_list list, int64_t count)
{
    if (list == WF_LIST_NONE)
        return true;
    if (s->list != WF_LIST_NONE && s->list != list)
        return false;
    s->list = list;
    s->least = wf_min_i64(s->least, count);
    s->most = wf_max_i64(s->most, count);
    return true;
}

/* A FeatureList: one Feature a step. */
static bool note_steps(struct seen *s, const unsigned char *p, int64_t n)
{
    const unsigned char *end = p + n;
    enum wf_list list;
    int64_t count;
    struct field f;

    while (next_field(&p, end, &f))
        if (f.number == 1 &&
            (f.wire != 2 || !read_feature(f.p, f.n, &list, &count) || !note(s, list, count)))
            return false;
    return p != NULL;
}

/* An entry of the map: key 1, value 2. */
static bool read_entry(struct infer *in, const unsigned char *p, int64_t n, bool sequence)
{
    const unsigned char *end = p + n;
    struct field f, key = {0}, value = {0};
    enum wf_list list;
    int64_t count;
    struct seen *s;

    while (next_field(&p, end, &f)) {
        if (f.number == 1)
            key = f;
        if (f.number == 2)
            value = f;
    }
    if (!p || key.wire != 2 || value.wire != 2 || key.n == 0 || memchr(key.p, 0, (size_t)key.n))
        return false;
    s = find(in, key.p, key.n, sequence);
    if (!s)
        return false;
    s->records++;
    if (sequence)
        return note_steps(s, value.p, value.n);
    return read_feature(value.p, value.n, &list, &count) && note(s, list, count);
}

/* Features (or FeatureLists): repeated entries. */
static bool read_map(struct infer *in, const unsigned char *p, int64_t n, bool sequence)
{
    const unsigned char *end = p + n;
    struct field f;

    while (next_field(&p, end, &f))
        if (f.number == 1 && (f.wire != 2 || !read_entry(in, f.p, f.n, sequence)))
            return false;
    return p != NULL;
}

static bool read_example(struct infer *in, const unsigned char *p, int64_t n)
{
    const unsigned char *end = p + n;
    struct field f;

    while (next_field(&p, end, &f))
        if (f.wire != 2 || f.number > 2 || !read_map(in, f.p, f.n, f.number == 2))
            return false;
    in->records++;
    return p != NULL;
}

/* ---- the result ------------------------------------------------------------------------------ */

static weft_example_feature describe(const struct infer *in, const struct seen *s)
{
    static const weft_dtype dtypes[] = {WEFT_NONE, WEFT_STR, WEFT_F32, WEFT_I64};
    weft_example_feature f = {.name = s->name, .dtype = dtypes[s->list], .sequence = s->sequence};
    bool fixed = s->least == s->most && (s->sequence || s->records == in->records);

    if (s->sequence)
        f.dim[f.rank++] = WEFT_ANY;
    if (!fixed)
        f.dim[f.rank++] = WEFT_ANY;
    else if (s->most != 1)
        f.dim[f.rank++] = s->most;
    return f;
}

bool wf_example_look(struct wf_arena *arena, const char *const *record, const int64_t *bytes,
                     int n_records, int *n, weft_example_feature **out)
{
    struct infer in = {.arena = arena};
    bool ok = n_records > 0;
    int k = 0;

    for (int i = 0; i < n_records && ok; i++)
        ok = read_example(&in, (const unsigned char *)record[i], bytes[i]);
    *out = ok ? wf_arena_alloc(arena, (size_t)(in.n + 1) * sizeof **out) : NULL;
    ok = ok && *out && in.n > 0;
    for (int64_t i = 0; i < in.n && ok; i++)
        if (in.f[i].list != WF_LIST_NONE)
            (*out)[k++] = describe(&in, &in.f[i]);
    *n = k;
    wf_free(arena->ctx, in.f);
    return ok && k > 0;
}

weft_status wf_example_infer(weft_data *d, const char *files, int *n, weft_example_feature **out)
{
    weft_data *side = NULL;
    weft_iter *it = NULL;
    weft_batch *b[RECORDS] = {0};
    const char *record[RECORDS];
    int64_t bytes[RECORDS];
    int n_records = 0;
    weft_status st = weft_data_new(d->ctx, &side);

    if (!st)
        st = weft_iter_new(side, weft_ds_tfrecord(side, files, NULL),
                           WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    while (!st && n_records < RECORDS) {
        st = weft_iter_next(it, &b[n_records]);
        if (st || !b[n_records])
            break;
        record[n_records] = ((const weft_str *)b[n_records]->col[0].data)->data;
        bytes[n_records] = ((const weft_str *)b[n_records]->col[0].data)->n;
        n_records++;
    }
    if (!st && !wf_example_look(&d->arena, record, bytes, n_records, n, out))
        *n = 0;
    for (int i = 0; i < n_records; i++)
        weft_batch_free(b[i]);
    weft_iter_free(it);
    weft_data_free(side);
    return st;
}
