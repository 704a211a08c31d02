/* map.c - columns selected and renamed, elements changed and selected by callbacks. */
#include <stdio.h>

#include "data/stage/callback.h"

/* ---- columns --------------------------------------------------------------------------------- */

struct columns {
    int *from; /* column i of the output is from[i] of the input */
};

static weft_status columns_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    const struct columns *p = ds->param;
    struct wf_block *b = NULL;
    weft_status st = wf_block_slice(in, 0, in->n, &b);
    const struct wf_col *col = in->col;

    (void)w;
    if (!st && ds->n_cols > b->n_cols) {
        void *room = NULL;

        st = wf_block_alloc(b, ds->n_cols * (int64_t)sizeof *b->col, &room);
        b->col = room;
    }
    if (st) {
        wf_block_free(b);
        wf_block_free(in);
        return st;
    }
    for (int c = 0; c < ds->n_cols; c++)
        b->col[c] = col[p->from[c]];
    b->n_cols = ds->n_cols;
    b->sample = in->sample;
    b->n_samples = in->n_samples;
    wf_block_free(in);
    *out = b;
    return WEFT_OK;
}

static void columns_text(const struct wf_ds *ds, struct wf_buf *out)
{
    static const char *const roles[] = {"", ":label", ":weight"};
    const struct columns *p = ds->param;

    for (int c = 0; c < ds->n_cols; c++) {
        wf_buf_printf(out, "%s%s%s", c ? "," : "", ds->col[c].name, roles[ds->col[c].role]);
        if (c >= ds->in[0]->n_cols) /* a copy */
            wf_buf_printf(out, "=%s", ds->col[p->from[c]].name);
    }
}

static const struct wf_ds_kind select_kind = {
    .name = "select",
    .apply = columns_apply,
    .text = columns_text,
};

/* A select node over all columns of s, to be changed. */
static struct wf_ds *columns_new(weft_data *d, weft_ds s)
{
    struct wf_ds *ds = wf_ds_new(d, &select_kind, 1, &s, sizeof(struct columns));
    struct columns *p;

    if (!ds)
        return NULL;
    p = ds->param;
    p->from = wf_arena_alloc(&d->arena, (size_t)(ds->n_cols + 1) * sizeof *p->from);
    if (!p->from || wf_ds_set_columns(ds, ds->n_cols, ds->col)) {
        wf_ds_fail(d, "select", wf_err(WEFT_ENOMEM, "out of memory"));
        return NULL;
    }
    for (int c = 0; c < ds->n_cols; c++)
        p->from[c] = c;
    return ds;
}

int wf_names_split(const char *list, char names[][WF_NAME_MAX], int max)
{
    int n = 0;

    while (*list) {
        size_t len = strcspn(list, ","), skip = strspn(list, " \t");
        size_t end = len;

        while (end > skip && (list[end - 1] == ' ' || list[end - 1] == '\t'))
            end--;
        if (end > skip) {
            if (n == max || end - skip >= WF_NAME_MAX)
                return -1;
            memcpy(names[n], list + skip, end - skip);
            names[n++][end - skip] = 0;
        }
        list += len + (list[len] == ',');
    }
    return n;
}

void wf_ds_names_text(const struct wf_ds *ds, int n, const int *col, struct wf_buf *out)
{
    for (int k = 0; k < n; k++)
        wf_buf_printf(out, "%s%s", k ? "," : "", ds->col[col[k]].name);
}

/* The numbers of the columns in a list; *n of them. */
weft_status wf_ds_columns_named(const struct wf_ds *ds, const char *list, int **out, int *n)
{
    struct wf_arena *arena = &ds->data->arena;
    int max = ds->n_cols;
    char(*names)[WF_NAME_MAX] = wf_arena_alloc(arena, (size_t)(max + 1) * WF_NAME_MAX);
    int *number = wf_arena_alloc(arena, (size_t)(max + 1) * sizeof *number);

    if (!names || !number)
        return wf_err(WEFT_ENOMEM, "out of memory");
    if (!list)
        return wf_err(WEFT_EINVAL, "no columns given");
    *n = wf_names_split(list, names, max);
    if (*n <= 0)
        return wf_err(WEFT_EINVAL, "'%s' names %s", list, *n ? "too many columns" : "no column");
    for (int i = 0; i < *n; i++) {
        number[i] = wf_ds_find(ds, names[i]);
        if (number[i] < 0)
            return wf_ds_err_column(ds, names[i]);
    }
    *out = number;
    return WEFT_OK;
}

weft_ds weft_ds_select(weft_data *d, weft_ds s, const char *columns)
{
    struct wf_ds *ds = columns_new(d, s);
    struct columns *p;
    weft_column *col;
    int n = 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    st = wf_ds_columns_named(ds, columns, &p->from, &n);
    if (st)
        return wf_ds_fail(d, "select", st);
    col = wf_arena_alloc(&d->arena, (size_t)n * sizeof *col);
    if (!col)
        return wf_ds_fail(d, "select", wf_err(WEFT_ENOMEM, "out of memory"));
    for (int i = 0; i < n; i++)
        col[i] = ds->in[0]->col[p->from[i]];
    st = wf_ds_set_columns(ds, n, col);
    return st ? wf_ds_fail(d, "select", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_rename(weft_data *d, weft_ds s, const char *column, const char *name)
{
    struct wf_ds *ds = columns_new(d, s);
    int c = ds ? wf_ds_find(ds, column) : 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (c < 0)
        return wf_ds_fail(d, "rename", wf_ds_err_column(ds, column));
    ds->col[c].name = name;
    st = wf_ds_set_columns(ds, ds->n_cols, ds->col);
    return st ? wf_ds_fail(d, "rename", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_copy(weft_data *d, weft_ds s, const char *column, const char *name)
{
    struct wf_ds *ds = columns_new(d, s);
    struct columns *p = ds ? ds->param : NULL;
    int c = ds ? wf_ds_find(ds, column) : 0, n = ds ? ds->n_cols : 0;
    weft_column *col = ds ? wf_arena_alloc(&d->arena, (size_t)(n + 1) * sizeof *col) : NULL;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (c < 0)
        return wf_ds_fail(d, "copy", wf_ds_err_column(ds, column));
    if (!col)
        return wf_ds_fail(d, "copy", wf_err(WEFT_ENOMEM, "out of memory"));
    memcpy(col, ds->col, (size_t)n * sizeof *col);
    col[n] = col[c];
    col[n].name = name;
    p->from[n] = c;
    st = wf_ds_set_columns(ds, n + 1, col);
    return st ? wf_ds_fail(d, "copy", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_role(weft_data *d, weft_ds s, const char *columns, weft_role role)
{
    struct wf_ds *ds = columns_new(d, s);
    int *number = NULL, n = 0;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    if (role < WEFT_FEATURE || role > WEFT_WEIGHT)
        return wf_ds_fail(d, "role", wf_err(WEFT_EINVAL, "role %d does not exist", (int)role));
    st = wf_ds_columns_named(ds, columns, &number, &n);
    for (int i = 0; i < n && !st; i++)
        ds->col[number[i]].role = role;
    return st ? wf_ds_fail(d, "role", st) : wf_ds_handle(ds);
}

/* ---- map ------------------------------------------------------------------------------------- */

struct map {
    weft_map_fn *fn;
    void *arg;
    bool serial;
};

static weft_status map_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                             struct wf_block **out)
{
    const struct map *p = ds->param;
    struct wf_filling f;
    weft_tensor *col;
    void *room = NULL;
    weft_status st = wf_block_alloc(in, in->n_cols * (int64_t)sizeof *col, &room);

    f = (struct wf_filling){0};
    if (!st)
        st = wf_filling_begin(&f, w->env, ds, in->n);
    col = room;
    if (!st && in->from) {
        st = wf_block_origins(f.block);
        if (!st)
            memcpy(f.block->from, in->from, (size_t)in->n * sizeof *in->from);
    }
    for (int64_t i = 0; i < in->n && !st; i++) {
        weft_sample sample = wf_sample_of(in, i, col);

        st = wf_filling_next(&f, in->at[i]);
        if (!st)
            st = p->fn(p->arg, &sample, &f.sample);
        if (st)
            wf_block_err(in, i, st);
    }
    st = wf_filling_end(&f, st, out);
    if (!st && in->sample && in->n == 1) { /* a batch stays one: its samples keep their numbers */
        void *sample = NULL;

        st = wf_block_alloc(*out, in->n_samples * (int64_t)sizeof *in->sample, &sample);
        if (st) {
            wf_block_free(*out);
        } else {
            memcpy(sample, in->sample, (size_t)in->n_samples * sizeof *in->sample);
            (*out)->sample = sample;
            (*out)->n_samples = in->n_samples;
        }
    }
    wf_block_free(in);
    return st;
}

static const struct wf_ds_kind map_kind = {.name = "map", .apply = map_apply};

/* Serial: all calls in order, when promises are pulled. */
static weft_status serial_open(struct wf_stage *s)
{
    return wf_stage_input(s, 0, WF_IN_MADE, s->want);
}

static weft_status serial_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status serial_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct wf_block *in = NULL, *made = NULL;
    struct wf_worker *w;
    weft_status st = wf_stage_next(s->in[0], want, &in);

    *out = NULL;
    if (st || !in)
        return st;
    w = wf_worker_take(s->env);
    if (!w) {
        wf_block_free(in);
        return wf_env_nomem(s->env, sizeof *w, "a worker");
    }
    st = map_apply(s->ds, w, in, &made);
    wf_worker_give(w);
    if (st)
        return st;
    *out = wf_promise_made(s, made);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static const struct wf_ds_kind serial_map_kind = {
    .name = "map",
    .open = serial_open,
    .reset = serial_reset,
    .pull = serial_pull,
};

weft_ds weft_ds_map(weft_data *d, weft_ds s, int n_columns, const weft_column *columns,
                    weft_map_fn *fn, void *arg, const weft_map_opts *opts)
{
    static const weft_map_opts defaults = {.size = sizeof defaults};
    const weft_map_opts *o = opts ? opts : &defaults;
    struct wf_ds *ds;
    weft_status st = wf_opts_check(opts, sizeof *opts, "weft_map_opts");

    if (st)
        return wf_ds_fail(d, "map", st);
    ds = wf_ds_new(d, o->serial ? &serial_map_kind : &map_kind, 1, &s, sizeof(struct map));
    if (!ds)
        return (weft_ds){0};
    if (!fn)
        return wf_ds_fail(d, "map", wf_err(WEFT_EINVAL, "no callback"));
    *(struct map *)ds->param = (struct map){fn, arg, o->serial};
    if (n_columns)
        st = wf_ds_set_columns(ds, n_columns, columns);
    if (o->name && !(ds->name = wf_arena_strdup(&d->arena, o->name)))
        st = wf_err(WEFT_ENOMEM, "out of memory");
    if (o->unordered) {
        ds->unordered = true;
        ds->addressable = false;
    }
    return st ? wf_ds_fail(d, "map", st) : wf_ds_handle(ds);
}

/* ---- filter ---------------------------------------------------------------------------------- */

struct filter {
    weft_filter_fn *fn;
    void *arg;
};

static weft_status filter_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                struct wf_block **out)
{
    const struct filter *p = ds->param;
    void *cols = NULL, *flags = NULL;
    bool *keep;
    weft_status st = wf_block_alloc(in, in->n_cols * (int64_t)sizeof(weft_tensor), &cols);

    (void)w;
    if (!st)
        st = wf_block_alloc(in, in->n, &flags);
    keep = flags;
    for (int64_t i = 0; i < in->n && !st; i++) {
        weft_sample sample = wf_sample_of(in, i, cols);

        keep[i] = false;
        st = p->fn(p->arg, &sample, &keep[i]);
        if (st)
            wf_block_err(in, i, st);
    }
    if (st) {
        wf_block_free(in);
        return st;
    }
    return wf_block_filter(in, keep, out);
}

static const struct wf_ds_kind filter_kind = {.name = "filter", .apply = filter_apply};

weft_ds weft_ds_filter(weft_data *d, weft_ds s, weft_filter_fn *fn, void *arg)
{
    struct wf_ds *ds = wf_ds_new(d, &filter_kind, 1, &s, sizeof(struct filter));

    if (!ds)
        return (weft_ds){0};
    if (!fn)
        return wf_ds_fail(d, "filter", wf_err(WEFT_EINVAL, "no callback"));
    *(struct filter *)ds->param = (struct filter){fn, arg};
    ds->inexact = true;
    return wf_ds_handle(ds);
}
