/* stats.c - statistics of columns in one pass, and as JSON files.
 *
 * Elements are summed in groups of GROUP, counted from the first, regardless of blocks, as
 * differences from a shift (the mean so far, or the first value), so that little precision is lost;
 * groups are merged in order by the formula of Chan, Golub and LeVeque. So the result depends only
 * on the elements and their order. */
#include <math.h>

#include "data/feature/feature.h"
#include "data/feature/learned.h"

#define GROUP 1024
#define MAX_DISTINCT ((int64_t)1 << 20)
#define MAX_FILE ((int64_t)256 << 20)
#define MAX_COLUMNS (1 << 20) /* of a file */

/* One set of numbers while it is being computed. */
struct set {
    int64_t count, n_missing;
    double mean, m2, min, max;
    int64_t g_count; /* of the current group: */
    double shift, sum, sum2;
};

struct column {
    weft_column_stats out;
    int from; /* column of the dataset */
    struct set *set;
    int64_t *count, *n_missing;
    double *mean, *std, *min, *max;
    uint64_t *seen; /* hashes of different items; 0: free */
    int64_t n_seen, n_slots;
};

struct weft_stats {
    weft_ctx *ctx;
    struct wf_arena arena;
    int n;
    struct column *col;
    int64_t max_distinct;
    int64_t in_group; /* elements */
};

void weft_stats_free(weft_stats *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n && s->col; i++)
        wf_free(s->ctx, s->col[i].seen);
    wf_arena_free(&s->arena);
    wf_free(s->ctx, s);
}

static weft_status stats_new(weft_ctx *ctx, int n, weft_stats **out)
{
    weft_stats *s = wf_alloc(ctx, sizeof *s);

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "statistics");
    s->ctx = ctx;
    wf_arena_init(&s->arena, ctx);
    s->col = wf_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof *s->col);
    s->n = n;
    if (!s->col) {
        weft_stats_free(s);
        return wf_err_nomem(ctx, (size_t)n * sizeof *s->col, "statistics");
    }
    *out = s;
    return WEFT_OK;
}

/* Arrays for n sets. */
static weft_status column_room(weft_stats *s, struct column *c, int64_t n, const char *name)
{
    struct wf_arena *a = &s->arena;
    size_t bytes = (size_t)n * 8;

    c->count = wf_arena_alloc(a, bytes);
    c->n_missing = wf_arena_alloc(a, bytes);
    c->mean = wf_arena_alloc(a, bytes);
    c->std = wf_arena_alloc(a, bytes);
    c->min = wf_arena_alloc(a, bytes);
    c->max = wf_arena_alloc(a, bytes);
    c->set = wf_arena_alloc(a, (size_t)n * sizeof *c->set);
    c->out = (weft_column_stats){
        .name = wf_arena_strdup(a, name),
        .n = n,
        .count = c->count,
        .n_missing = c->n_missing,
        .mean = c->mean,
        .std = c->std,
        .min = c->min,
        .max = c->max,
        .n_distinct = -1,
    };
    if (!c->count || !c->n_missing || !c->mean || !c->std || !c->min || !c->max || !c->set ||
        !c->out.name)
        return wf_err_nomem(s->ctx, bytes, "statistics");
    for (int64_t i = 0; i < n; i++) {
        c->set[i].min = INFINITY;
        c->set[i].max = -INFINITY;
    }
    return WEFT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static inline void add_value(struct set *s, double x)
{
    double d;

    if (isnan(x)) {
        s->n_missing++;
        return;
    }
    if (s->g_count++ == 0)
        s->shift = s->count ? s->mean : x;
    d = x - s->shift;
    s->sum += d;
    s->sum2 += d * d;
    s->min = x < s->min ? x : s->min;
    s->max = x > s->max ? x : s->max;
}

/* Adds the group's sums to the total. */
static void close_group(struct set *s)
{
    double n = (double)s->g_count, all, mean, m2, delta;

    if (!s->g_count)
        return;
    mean = s->shift + s->sum / n;
    m2 = fmax(s->sum2 - s->sum * (s->sum / n), 0);
    all = (double)(s->count + s->g_count);
    delta = mean - s->mean;
    s->m2 += m2 + delta * delta * ((double)s->count * n / all);
    s->mean += delta * (n / all);
    s->count += s->g_count;
    s->g_count = 0;
    s->sum = s->sum2 = 0;
}

/* ---- different items ------------------------------------------------------------------------- */

static weft_status see(weft_stats *s, struct column *c, uint64_t hash)
{
    uint64_t mask, i, *old = c->seen;
    int64_t n_old = c->n_slots;

    hash += hash == 0;
    if (c->out.at_least)
        return WEFT_OK;
    if (2 * (c->n_seen + 1) > c->n_slots) {
        int64_t n = n_old ? 2 * n_old : 256;
        uint64_t *slots = wf_alloc_n(s->ctx, n, sizeof *slots);

        if (!slots)
            return wf_err_nomem(s->ctx, (size_t)n * sizeof *slots, "statistics");
        c->seen = slots;
        c->n_slots = n;
        c->n_seen = 0;
        for (int64_t k = 0; k < n_old; k++)
            if (old[k])
                see(s, c, old[k]); /* room for all: nothing is allocated */
        wf_free(s->ctx, old);
    }
    mask = (uint64_t)c->n_slots - 1;
    for (i = hash & mask; c->seen[i]; i = (i + 1) & mask)
        if (c->seen[i] == hash)
            return WEFT_OK;
    if (c->n_seen == s->max_distinct) {
        c->out.at_least = true;
        return WEFT_OK;
    }
    c->seen[i] = hash;
    c->n_seen++;
    return WEFT_OK;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static weft_status add_element(weft_stats *s, struct column *c, const weft_tensor *t)
{
    int64_t n = weft_tensor_count(t), at = 0;
    weft_status st = WEFT_OK;

    if (t->dtype == WEFT_F32 && c->out.n == 1) {
        for (int64_t i = 0; i < n; i++)
            add_value(c->set, ((const float *)t->data)[i]);
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n && !st; i++) {
        if (t->dtype == WEFT_STR) {
            const weft_str *w = (const weft_str *)t->data + i;

            add_value(c->set, w->n ? (double)w->n : NAN);
            st = see(s, c, wf_hash64(w->data, (size_t)w->n, 0));
        } else {
            add_value(&c->set[at], wf_get(t->data, t->dtype, i));
            if (c->out.n_distinct >= 0)
                st = see(s, c, wf_hash_int(wf_get_int(t->data, t->dtype, i), 0));
            at = at + 1 == c->out.n ? 0 : at + 1;
        }
    }
    return st;
}

static void close_groups(weft_stats *s)
{
    for (int i = 0; i < s->n; i++)
        for (int64_t k = 0; k < s->col[i].out.n; k++)
            close_group(&s->col[i].set[k]);
    s->in_group = 0;
}

weft_status wf_stats_block(void *arg, const struct wf_block *b)
{
    weft_stats *s = arg;
    weft_status st = WEFT_OK;

    for (int64_t e = 0; e < b->n && !st; e++) {
        for (int i = 0; i < s->n && !st; i++) {
            weft_tensor t = wf_col_element(&b->col[s->col[i].from], e);

            st = add_element(s, &s->col[i], &t);
        }
        if (++s->in_group == GROUP)
            close_groups(s);
    }
    return st;
}

void wf_stats_end(weft_stats *s)
{
    close_groups(s);
    for (int i = 0; i < s->n; i++) {
        struct column *c = &s->col[i];

        for (int64_t k = 0; k < c->out.n; k++) {
            const struct set *x = &c->set[k];

            c->count[k] = x->count;
            c->n_missing[k] = x->n_missing;
            c->mean[k] = x->mean;
            c->std[k] = x->count ? sqrt(x->m2 / (double)x->count) : 0;
            c->min[k] = x->count ? x->min : 0;
            c->max[k] = x->count ? x->max : 0;
        }
        if (c->out.n_distinct >= 0)
            c->out.n_distinct = c->n_seen;
        wf_free(s->ctx, c->seen);
        c->seen = NULL;
    }
}

/* Size of the last axis, if it is fixed; the sample axis does not count. */
static int64_t places(const weft_column *c, bool batched)
{
    if (c->dtype == WEFT_STR || c->rank <= (batched ? 1 : 0) || c->dim[c->rank - 1] < 1)
        return 1;
    return c->dim[c->rank - 1];
}

weft_status wf_stats_begin(weft_data *d, weft_ds s, const weft_stats_opts *o, weft_stats **out)
{
    struct wf_ds *ds = wf_ds_node(d, s);
    weft_stats *v = NULL;
    int *number = NULL, n = ds ? ds->n_cols : 0;
    weft_status st = weft_data_status(d);

    if (!st && !ds)
        st = wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    if (!st && o->columns)
        st = wf_ds_columns_named(ds, o->columns, &number, &n);
    if (!st)
        st = stats_new(d->ctx, n, &v);
    if (!st)
        v->max_distinct = o->max_distinct > 0 ? o->max_distinct : MAX_DISTINCT;
    for (int i = 0; i < n && !st; i++) {
        const weft_column *c = &ds->col[number ? number[i] : i];

        st = column_room(v, &v->col[i], places(c, ds->batched), c->name);
        v->col[i].from = number ? number[i] : i;
        v->col[i].out.dtype = c->dtype;
        v->col[i].out.n_distinct = c->dtype == WEFT_STR || wf_is_int(c->dtype) ? 0 : -1;
    }
    if (st) {
        weft_stats_free(v);
        return wf_err_wrap(st, "statistics");
    }
    *out = v;
    return WEFT_OK;
}

weft_status weft_ds_stats(weft_data *d, weft_ds s, const weft_stats_opts *opts, weft_stats **out)
{
    weft_stats_opts o;
    weft_stats *v = NULL;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_stats_opts");

    if (!st)
        st = wf_stats_begin(d, s, &o, &v);
    if (st)
        return st;
    st = wf_pass_over(d, s, o.threads, o.memory, wf_stats_block, v);
    if (st) {
        weft_stats_free(v);
        return wf_err_wrap(st, "statistics");
    }
    wf_stats_end(v);
    *out = v;
    return WEFT_OK;
}

int weft_stats_columns(const weft_stats *s)
{
    return s->n;
}

const weft_column_stats *weft_stats_column(const weft_stats *s, int i)
{
    return i >= 0 && i < s->n ? &s->col[i].out : NULL;
}

const weft_column_stats *weft_stats_find(const weft_stats *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->col[i].out.name, name) == 0)
            return &s->col[i].out;
    return NULL;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* ,"key":[…], from one of the two, whichever is given. */
static void put_numbers(struct wf_buf *b, const char *key, int64_t n, const int64_t *whole,
                        const double *real)
{
    wf_buf_printf(b, ", \"%s\": [", key);
    for (int64_t i = 0; i < n; i++) {
        wf_buf_add(b, ", ", i ? 2 : 0);
        if (whole)
            wf_buf_printf(b, "%lld", (long long)whole[i]);
        else
            wf_learned_put_real(b, real[i]);
    }
    wf_buf_add(b, "]", 1);
}

void wf_stats_put(const weft_stats *s, struct wf_buf *b)
{
    wf_buf_add(b, "[", 1);
    for (int i = 0; i < s->n; i++) {
        const weft_column_stats *c = &s->col[i].out;

        wf_buf_printf(b, "%s\n  {\"name\": ", i ? "," : "");
        wf_learned_put_bytes(b, c->name, (int64_t)strlen(c->name));
        wf_buf_printf(b, ", \"dtype\": \"%s\"", wf_learned_dtype(c->dtype));
        put_numbers(b, "count", c->n, c->count, NULL);
        put_numbers(b, "missing", c->n, c->n_missing, NULL);
        put_numbers(b, "mean", c->n, NULL, c->mean);
        put_numbers(b, "std", c->n, NULL, c->std);
        put_numbers(b, "min", c->n, NULL, c->min);
        put_numbers(b, "max", c->n, NULL, c->max);
        wf_buf_printf(b, ", \"distinct\": %lld, \"at_least\": %s}", (long long)c->n_distinct,
                      c->at_least ? "true" : "false");
    }
    wf_buf_add(b, "]", 1);
}

weft_status weft_stats_write(const weft_stats *s, const char *path)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, s->ctx, MAX_FILE);
    wf_buf_printf(&b, "{\"weft_stats\": 1, \"columns\": ");
    wf_stats_put(s, &b);
    wf_buf_printf(&b, "}\n");
    st = b.st ? wf_err_wrap(b.st, "statistics '%s'", path)
              : wf_file_write(s->ctx, path, b.data, b.len);
    wf_buf_free(&b);
    return st;
}

static bool read_list(const json_t *c, const char *key, int64_t n, int64_t *whole, double *real)
{
    const json_t *list = json_object_get(c, key);

    for (int64_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, (size_t)i);

        if (whole ? !json_is_integer(x) || json_integer_value(x) < 0
                  : !wf_learned_get_real(x, &real[i]))
            return false;
        if (whole)
            whole[i] = json_integer_value(x);
    }
    return true;
}

/* Lists of one length, not empty. */
static bool same_lengths(const json_t *c, int64_t *n)
{
    static const char *const keys[] = {"mean", "std", "min", "max", "count", "missing"};

    *n = (int64_t)json_array_size(json_object_get(c, keys[0]));
    for (int i = 1; i < WF_COUNT(keys); i++)
        if ((int64_t)json_array_size(json_object_get(c, keys[i])) != *n)
            return false;
    return *n > 0;
}

static weft_status read_column(weft_stats *s, struct column *c, const json_t *j)
{
    weft_str name;
    weft_dtype t;
    int64_t n;
    weft_status st = wf_learned_get_name(json_object_get(j, "name"), &s->arena, &name);

    if (st)
        return wf_err_wrap(st, "the name of a column");
    if (!wf_learned_dtype_parse(json_object_get(j, "dtype"), &t))
        return wf_err(WEFT_EPARSE, "column '%s': a dtype that does not exist", name.data);
    if (!same_lengths(j, &n))
        return wf_err(WEFT_EPARSE,
                      "column '%s': a list of numbers is missing or has the wrong "
                      "length",
                      name.data);
    st = column_room(s, c, n, name.data);
    if (st)
        return st;
    c->out.dtype = t;
    c->out.n_distinct = json_integer_value(json_object_get(j, "distinct"));
    c->out.at_least = json_is_true(json_object_get(j, "at_least"));
    if (!read_list(j, "count", n, c->count, NULL) ||
        !read_list(j, "missing", n, c->n_missing, NULL) ||
        !read_list(j, "mean", n, NULL, c->mean) || !read_list(j, "std", n, NULL, c->std) ||
        !read_list(j, "min", n, NULL, c->min) || !read_list(j, "max", n, NULL, c->max))
        return wf_err(WEFT_EPARSE, "column '%s': a list holds something that is not a number",
                      name.data);
    return WEFT_OK;
}

weft_status wf_stats_get(weft_ctx *ctx, const json_t *list, weft_stats **out)
{
    weft_stats *s = NULL;
    weft_status st;

    if (!json_is_array(list) || json_array_size(list) > MAX_COLUMNS)
        return wf_err(WEFT_EPARSE, "the list of columns is missing, or has more than %d",
                      MAX_COLUMNS);
    st = stats_new(ctx, (int)json_array_size(list), &s);
    for (int i = 0; !st && i < s->n; i++)
        st = read_column(s, &s->col[i], json_array_get(list, (size_t)i));
    if (st)
        weft_stats_free(s);
    else
        *out = s;
    return st;
}

weft_status weft_stats_read(weft_ctx *ctx, const char *path, weft_stats **out)
{
    char *text = NULL;
    int64_t n = 0;
    json_t *root = NULL;
    weft_status st = wf_file_read(ctx, path, MAX_FILE, &text, &n);

    if (st)
        return st;
    st = wf_json_parse(text, n, &root);
    if (!st && json_integer_value(json_object_get(root, "weft_stats")) != 1)
        st = wf_err(WEFT_EPARSE, "not a statistics file, or one of a later version");
    if (!st)
        st = wf_stats_get(ctx, json_object_get(root, "columns"), out);
    json_decref(root);
    wf_free(ctx, text);
    return st ? wf_err_wrap(st, "statistics '%s'", path) : WEFT_OK;
}
