/* feed.c - which columns of a dataset feed which input, label and weight; and how batches become
 * feeds. */
#include "train/train.h"
#include "weft/data_feature.h"

static weft_column *columns_of(weft_data *d, weft_ds s, int *n)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    *n = ds ? ds->n_cols : 0;
    return ds ? ds->col : NULL;
}

/* The number of columns with a role, and the first of them. */
static int count_role(const weft_column *col, int n, weft_role role, int *first)
{
    int found = 0;

    *first = -1;
    for (int i = 0; i < n; i++)
        if (col[i].role == role && found++ == 0)
            *first = i;
    return found;
}

static int find_column(const weft_column *col, int n, const char *name, weft_role role)
{
    for (int i = 0; i < n; i++)
        if (strcmp(col[i].name, name) == 0 && col[i].role == role)
            return i;
    return -1;
}

static weft_status find_inputs(weft_trainer *t, const weft_column *col, int n, struct wf_feeding *f)
{
    for (int i = 0; i < f->n_in; i++) {
        const char *name = weft_sym_name(t->model, weft_model_input_at(t->model, i));
        int first;

        f->column[i] = find_column(col, n, name, WEFT_FEATURE);
        if (f->column[i] >= 0)
            continue;
        if (f->n_in == 1 && count_role(col, n, WEFT_FEATURE, &first) == 1)
            f->column[i] = first;
        else
            return wf_err(WEFT_ENOENT, "the data has no feature column '%s' for the model's input",
                          name);
    }
    return WEFT_OK;
}

static weft_status find_labels(weft_trainer *t, const weft_column *col, int n, bool needed,
                               struct wf_feeding *f)
{
    int first, n_labels = count_role(col, n, WEFT_LABEL, &first), next = 0;

    for (int i = 0; i < t->n_out; i++) {
        const char *name = weft_sym_name(t->model, weft_model_output_at(t->model, i));
        int *c = &f->column[f->n_in + i];

        *c = -1;
        if (!wf_output_needs_label(t, i))
            continue;
        *c = find_column(col, n, name, WEFT_LABEL);
        for (int k = 0, seen = 0; k < n && *c < 0; k++) /* otherwise in order */
            if (col[k].role == WEFT_LABEL && seen++ == next)
                *c = k;
        next++;
        if (*c < 0 && needed)
            return wf_err(WEFT_ENOENT,
                          "the data has %d label columns, but output '%s' needs one: mark it with "
                          "weft_ds_role",
                          n_labels, name);
    }
    return WEFT_OK;
}

/* The dtype that an input or label needs. */
static weft_dtype wanted(weft_trainer *t, const struct wf_feeding *f, int i, weft_dtype have)
{
    weft_tensor type;

    if (i < f->n_in) {
        weft_sym_type(t->model, weft_model_input_at(t->model, i), &type);
        return type.dtype;
    }
    if (i == f->n_in + t->n_out)
        return WEFT_F32; /* weights */
    return have == WEFT_U8 || have == WEFT_I8 || have == WEFT_BOOL ? WEFT_I32
           : have == WEFT_F64                                      ? WEFT_F32
                                                                   : have;
}

/* A stage that converts columns of another dtype. */
static weft_status cast_columns(weft_trainer *t, weft_data *d, struct wf_feeding *f)
{
    for (int i = 0; i < f->n_in + t->n_out + 1; i++) {
        int n, c = f->column[i];
        const weft_column *col = columns_of(d, f->ds, &n);
        weft_dtype want = c >= 0 ? wanted(t, f, i, col[c].dtype) : WEFT_NONE;

        if (c < 0 || want == col[c].dtype)
            continue;
        if (col[c].dtype == WEFT_STR)
            return wf_err(
                WEFT_EDTYPE,
                "column '%s' is text: look it up in a vocabulary, hash it or decode it first",
                col[c].name);
        f->ds = weft_ds_rescale(d, f->ds, col[c].name, 1, 0, want);
        if (!f->ds.id)
            return weft_data_status(d);
    }
    return WEFT_OK;
}

static weft_status into_batches(const weft_trainer *t, weft_data *d,
                                const struct wf_feeding_opts *o, struct wf_feeding *f)
{
    int64_t usual = t->stateful ? t->state_batch : 32;
    weft_status st = WEFT_OK;

    if (wf_ds_node(d, f->ds)->batched)
        return WEFT_OK;
    if (o->shuffle)
        st = wf_plan_shuffle(d, o->seed, 0, &f->ds);
    f->batch = o->batch ? o->batch : usual;
    return st ? st : wf_plan_batch(d, f->batch, &f->ds);
}

weft_status wf_feeding_find(weft_trainer *t, weft_data *d, weft_ds s,
                            const struct wf_feeding_opts *opts, struct wf_feeding *out)
{
    int n, weight;
    const weft_column *col = columns_of(d, s, &n);
    struct wf_feeding f = {.n_in = weft_model_n_inputs(t->model), .ds = s};
    weft_status st = weft_data_status(d);

    if (st)
        return st;
    if (!col)
        return wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    f.column = wf_arena_alloc(&d->arena, (size_t)(f.n_in + t->n_out + 1) * sizeof *f.column);
    if (!f.column)
        return wf_err_nomem(d->ctx, 0, "the columns of the model");
    st = find_inputs(t, col, n, &f);
    if (!st)
        st = find_labels(t, col, n, opts->with_labels, &f);
    if (st)
        return st;
    count_role(col, n, WEFT_WEIGHT, &weight);
    f.column[f.n_in + t->n_out] = opts->with_labels ? weight : -1;
    f.weighted = opts->with_labels && weight >= 0;
    for (int i = 0; i < t->n_out; i++)
        f.n_labels += f.column[f.n_in + i] >= 0;
    st = cast_columns(t, d, &f);
    if (!st)
        st = into_batches(t, d, opts, &f);
    if (!st)
        *out = f;
    return st;
}

void wf_feeding_labels(const weft_trainer *t, const weft_data *d, const struct wf_feeding *f,
                       struct wf_type *out)
{
    const struct wf_ds *ds = wf_ds_node(d, f->ds);

    for (int i = 0; i < t->n_out; i++) {
        int c = f->column[f->n_in + i];

        out[i] = (struct wf_type){.dtype = WEFT_NONE};
        if (c < 0)
            continue;
        out[i] = wf_column_type(&ds->col[c]);
        out[i].dim[0] = WEFT_ANY;
    }
}

/* The same items in the model's shape: axes of size 1 may be missing or extra. */
static weft_status fit_shape(const weft_trainer *t, int i, const weft_batch *b, int c,
                             weft_tensor *x)
{
    weft_tensor want;
    int64_t items = 1, known = 1;
    int any = 0;

    *x = b->col[c];
    weft_sym_type(t->model, weft_model_input_at(t->model, i), &want);
    if (want.rank == x->rank)
        return WEFT_OK;
    for (int k = 1; k < x->rank; k++)
        items *= x->dim[k];
    for (int k = 1; k < want.rank; k++) {
        any += want.dim[k] < 0;
        known *= want.dim[k] < 0 ? 1 : want.dim[k];
    }
    if (x->rank < 1 || any || known != items) {
        struct wf_type have = wf_type_of(x->dtype, x->rank, x->dim);
        struct wf_type need = wf_type_of(want.dtype, want.rank, want.dim);
        char p[WF_TYPE_TEXT], q[WF_TYPE_TEXT];

        return wf_err(WEFT_ESHAPE, "column '%s' is %s, but the model's input '%s' is %s",
                      b->column[c].name, wf_type_text(&have, p),
                      weft_sym_name(t->model, weft_model_input_at(t->model, i)),
                      wf_type_text(&need, q));
    }
    x->rank = want.rank;
    for (int k = 1; k < want.rank; k++)
        x->dim[k] = want.dim[k];
    return WEFT_OK;
}

weft_status wf_feeding_batch(const weft_trainer *t, const struct wf_feeding *f, const weft_batch *b,
                             weft_tensor *feeds)
{
    int n = 0;
    weft_status st = WEFT_OK;

    for (int i = 0; i < f->n_in && !st; i++)
        st = fit_shape(t, i, b, f->column[i], &feeds[n++]);
    for (int i = 0; i <= t->n_out && !st; i++)
        if (f->column[f->n_in + i] >= 0)
            feeds[n++] = b->col[f->column[f->n_in + i]];
    if (!st && f->weighted && feeds[n - 1].rank > 1) /* [n, 1] */
        feeds[n - 1].rank = 1;
    return st;
}

/* Rows of memory, in order or gathered, with their numbers scaled: this costs less than a thread
 * that competes with the pool's. */
static bool is_cheap(const struct wf_ds *ds)
{
    static const char *const cheap[] = {"tensors", "batch",  "take",        "skip",    "shard",
                                        "select",  "repeat", "shuffle_all", "rescale", "holdout"};

    if (wf_arrays_in_memory(ds))
        return true;
    for (int i = 0; i < WF_COUNT(cheap); i++)
        if (strcmp(ds->kind->name, cheap[i]) == 0)
            return ds->n_in == 0 || is_cheap(ds->in[0]);
    return false;
}

/* Whether anything has to be moved or computed. In order, rows of memory are views. */
static bool has_work(const struct wf_ds *ds)
{
    return strcmp(ds->kind->name, "shuffle_all") == 0 || strcmp(ds->kind->name, "rescale") == 0 ||
           (ds->n_in && has_work(ds->in[0]));
}

/* A thread that reads ahead overlaps its work with the step, if there is a core for it. If the pool
 * uses all cores, cheap work is done between steps, by the pool. */
int wf_feeding_threads(const weft_data *d, weft_ds s, int asked)
{
    const struct wf_ds *ds = wf_ds_node(d, s);
    bool spare = wf_usable_cpus() > wf_pool_size(d->ctx->pool);

    if (asked)
        return asked;
    if (!is_cheap(ds))
        return 0;
    return has_work(ds) && spare ? 1 : WEFT_ZERO;
}
