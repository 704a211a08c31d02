/* model.c - the model of a job: a list of layers, one after the other, or with named inputs. Inputs
 * come from the data's feature columns unless the list begins with Input. If it begins with a
 * file's model (base.c), the list continues from that model's end. */
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "train/job/job.h"

/* The inputs derived from the feature columns. */
static weft_status inputs_from_data(weft_job_run *run, weft_sym *last)
{
    const weft_column *col;
    int n, n_features = 0;
    weft_status st = wf_job_columns(run, &n, &col);

    if (st)
        return st;
    for (int i = 0; i < n; i++) {
        int64_t dim[WEFT_MAX_RANK];
        int rank = col[i].rank;
        weft_dtype dtype = col[i].dtype;

        if (col[i].role != WEFT_FEATURE)
            continue;
        if (dtype == WEFT_STR)
            return wf_err(
                WEFT_EDTYPE,
                "column '%s' is text: add `lookup` or `hash` to data.pipeline, or leave it "
                "out with data.train.columns",
                col[i].name);
        if (dtype == WEFT_U8 || dtype == WEFT_F64)
            dtype = WEFT_F32; /* images, doubles: converted when they are read */
        for (int k = 0; k < rank; k++)
            dim[k] = col[i].dim[k];
        if (rank == 2 && dtype == WEFT_F32 && col[i].dtype == WEFT_U8)
            dim[rank++] = 1; /* gray images get their channel axis */
        *last = weft_input(run->model, col[i].name, dtype, rank, dim);
        n_features++;
    }
    return n_features ? weft_model_status(run->model)
                      : wf_err(WEFT_EINVAL, "the training data has no feature column");
}

static weft_status not_above(const weft_job_run *run, const struct wf_yaml_node *n)
{
    enum { MAX = 256 };
    const char *names[MAX];
    int k = 0;

    for (int i = 0; i < weft_model_n_inputs(run->model) && k < MAX; i++)
        names[k++] = weft_sym_name(run->model, weft_model_input_at(run->model, i));
    for (int i = 0; i < weft_model_n_layers(run->model) && k < MAX; i++)
        names[k++] = weft_layer_name(run->model, weft_model_layer_at(run->model, i));
    return wf_yaml_err(&run->job->yaml, n, WEFT_ENOENT, "no layer or input '%s' above%s", n->text,
                       wf_did_you_mean(n->text, names, k).text);
}

/* The layer or input with this name. */
static weft_status find_sym(weft_job_run *run, const struct wf_yaml_node *n, const weft_sym *made,
                            const char *const *names, int n_made, weft_sym *out)
{
    weft_layer l;
    weft_status st;

    for (int i = n_made - 1; i >= 0; i--)
        if (strcmp(names[i], n->text) == 0) {
            *out = made[i];
            return WEFT_OK;
        }
    for (int i = 0; i < weft_model_n_inputs(run->model); i++) {
        *out = weft_model_input_at(run->model, i);
        if (strcmp(weft_sym_name(run->model, *out), n->text) == 0)
            return WEFT_OK;
    }
    if (!weft_model_layer(run->model, n->text, &l)) { /* of the file's model */
        *out = weft_layer_output(run->model, l, 0);
        st = weft_model_status(run->model);
        return st ? wf_yaml_wrap(&run->job->yaml, n, st) : WEFT_OK;
    }
    return not_above(run, n);
}

struct building {
    weft_job_run *run;
    int n;
    weft_sym *sym; /* of each layer, with its name */
    const char **name;
    weft_sym last;
};

/* The inputs of a layer: those it names, or the result of the one above. */
static weft_status layer_inputs(struct building *b, const struct wf_yaml_node *args, weft_sym *in,
                                int max, int *n)
{
    const struct wf_yaml_node *list = wf_yaml_get(args, "inputs");
    weft_status st = WEFT_OK;

    *n = 1;
    in[0] = b->last;
    if (!list && !b->last.id)
        return wf_yaml_err(&b->run->job->yaml, args ? args : b->run->job->base.layers, WEFT_EINVAL,
                           "the file's model has %d outputs: set `inputs` of this layer",
                           weft_model_n_outputs(b->run->model));
    if (!list)
        return WEFT_OK;
    if (list->kind == WF_YAML_SCALAR)
        return find_sym(b->run, list, b->sym, b->name, b->n, &in[0]);
    if (list->kind != WF_YAML_LIST || list->n < 1 || list->n > max)
        return wf_yaml_err(&b->run->job->yaml, list, WEFT_EINVAL,
                           "inputs takes a name or a list of them");
    *n = (int)list->n;
    for (int i = 0; i < *n && !st; i++)
        st = find_sym(b->run, list->item[i], b->sym, b->name, b->n, &in[i]);
    return st;
}

/* The layer of an item. A wrapper has another one as its argument `layer` (RNN: also `cell`):
 * {Bidirectional: {layer: {LSTM: {units: 8}}}}. The depth is bounded by the YAML reader. */
static weft_status make_layer(weft_job_run *run, const struct wf_yaml_node *item, bool inner,
                              weft_layer *out, struct wf_yaml_node **args)
{
    const weft_job *job = run->job;
    const char *kind = NULL, *attrs = NULL;
    const struct wf_yaml_node *wrapped;
    weft_layer within = {0};
    weft_status st = wf_job_item(job, item, &kind, args);

    if (st)
        return st;
    wrapped = wf_yaml_get(*args, "layer");
    if (!wrapped && strcmp(kind, "RNN") == 0)
        wrapped = wf_yaml_get(*args, "cell");
    if (wrapped) {
        struct wf_yaml_node *unused;

        st = make_layer(run, wrapped, true, &within, &unused);
    }
    if (!st)
        st = wf_job_attrs(job, *args, wrapped ? "inputs layer cell" : (inner ? NULL : "inputs"),
                          &attrs);
    if (st)
        return st;
    *out = wrapped ? weft_layer_wrap(run->model, kind, attrs, within)
                   : weft_layer_new(run->model, kind, attrs);
    st = weft_model_status(run->model);
    return st ? wf_yaml_wrap(&job->yaml, item, st) : WEFT_OK;
}

static weft_status add_layer(struct building *b, const struct wf_yaml_node *item)
{
    enum { MAX_IN = 64 };
    const weft_job *job = b->run->job;
    struct wf_yaml_node *args = NULL;
    weft_layer layer = {0};
    weft_sym in[MAX_IN];
    int n = 0;
    weft_status st = make_layer(b->run, item, false, &layer, &args);

    if (!st)
        st = layer_inputs(b, args, in, MAX_IN, &n);
    if (st)
        return st;
    b->last = weft_call_n(b->run->model, layer, n, in);
    st = weft_model_status(b->run->model);
    if (st)
        return wf_yaml_wrap(&job->yaml, item, st);
    b->sym[b->n] = b->last;
    b->name[b->n++] = weft_sym_name(b->run->model, b->last);
    return WEFT_OK;
}

static weft_status add_input(struct building *b, const struct wf_yaml_node *item,
                             const struct wf_yaml_node *args)
{
    const weft_job *job = b->run->job;
    const struct wf_yaml_node *name = wf_yaml_get(args, "name"),
                              *shape = wf_yaml_get(args, "shape");
    const struct wf_yaml_node *type = wf_yaml_get(args, "dtype");
    weft_dtype dtype = WEFT_F32;
    int64_t dim[WEFT_MAX_RANK];
    int rank = 0;

    if (!name || !shape || shape->kind != WF_YAML_LIST || shape->n > WEFT_MAX_RANK - 1)
        return wf_yaml_err(&job->yaml, item, WEFT_EINVAL,
                           "Input needs a name and a shape: {name: image, shape: [28, 28, 1]}");
    for (int64_t i = 0; i < shape->n; i++) {
        if (!wf_text_i64(shape->item[i]->text, &dim[rank++]) || dim[rank - 1] < -1)
            return wf_yaml_err(&job->yaml, shape->item[i], WEFT_EINVAL, "'%s' is not a size",
                               shape->item[i]->text);
    }
    if (type && weft_dtype_parse(type->text, &dtype))
        return wf_yaml_err(&job->yaml, type, WEFT_EINVAL, "no dtype '%s'", type->text);
    b->last = weft_input(b->run->model, name->text, dtype, rank, dim);
    return weft_model_status(b->run->model);
}

static weft_status add_outputs(struct building *b, const struct wf_yaml_node *outputs)
{
    enum { MAX_OUT = 64 };
    weft_sym s[MAX_OUT] = {b->last};
    int n = 1;
    weft_status st = WEFT_OK;

    if (outputs && outputs->kind == WF_YAML_SCALAR)
        st = find_sym(b->run, outputs, b->sym, b->name, b->n, &s[0]);
    if (outputs && outputs->kind == WF_YAML_LIST) {
        if (outputs->n < 1 || outputs->n > MAX_OUT)
            return wf_yaml_err(&b->run->job->yaml, outputs, WEFT_EINVAL,
                               "outputs must be a list of 1 to %d names", MAX_OUT);
        n = (int)outputs->n;
        for (int i = 0; i < n && !st; i++)
            st = find_sym(b->run, outputs->item[i], b->sym, b->name, b->n, &s[i]);
    }
    if (outputs && outputs->kind == WF_YAML_MAP)
        st = wf_yaml_err(&b->run->job->yaml, outputs, WEFT_EINVAL,
                         "outputs takes a name or a list of them");
    if (st)
        return st;
    weft_model_set_outputs(b->run->model, n, s);
    return weft_model_status(b->run->model);
}

/* The layers of the list, after the end of the file's model or the data's columns. */
static weft_status add_layers(struct building *b, const struct wf_yaml_node *list)
{
    weft_job_run *run = b->run;
    const weft_job *job = run->job;
    bool begun = b->run->n_base_layers > 0;
    weft_status st = WEFT_OK;

    b->sym = wf_alloc_n(run->ctx, list->n, sizeof *b->sym);
    b->name = wf_alloc_n(run->ctx, list->n, sizeof *b->name);
    if (!b->sym || !b->name)
        st = wf_err_nomem(run->ctx, 0, "a model");
    for (int64_t i = 0; i < list->n && !st; i++) {
        struct wf_yaml_node *args = NULL;
        const char *kind = NULL;

        st = wf_job_item(job, list->item[i], &kind, &args);
        if (!st && strcmp(kind, "Input") == 0) {
            begun = true;
            st = add_input(b, list->item[i], args);
            continue;
        }
        if (!st && i == 0 && !begun) {
            st = inputs_from_data(run, &b->last);
            if (st)
                wf_yaml_wrap(&job->yaml, list, st);
        }
        if (!st)
            st = add_layer(b, list->item[i]);
    }
    return st;
}

/* Whether the data matches the inputs of a model that was made for other data. */
static weft_status check_inputs(const weft_job_run *run)
{
    const weft_job *job = run->job;
    int n_in = weft_model_n_inputs(run->model), n, n_features = 0, only = -1;
    const weft_column *col;
    weft_status st = wf_job_columns(run, &n, &col);

    for (int c = 0; c < n && !st; c++)
        if (col[c].role == WEFT_FEATURE && ++n_features == 1)
            only = c;
    for (int i = 0; i < n_in && !st; i++) {
        weft_sym x = weft_model_input_at(run->model, i);
        int64_t have = 1, want = 1;
        weft_tensor type;
        int at = n_in == 1 && n_features == 1 ? only : -1;

        for (int c = 0; c < n; c++)
            if (strcmp(col[c].name, weft_sym_name(run->model, x)) == 0 &&
                col[c].role == WEFT_FEATURE)
                at = c;
        st = weft_sym_type(run->model, x, &type);
        if (at < 0 || st)
            continue; /* named when batches are requested */
        for (int k = 0; k < col[at].rank; k++)
            have = have < 0 || col[at].dim[k] < 0 ? -1 : have * col[at].dim[k];
        for (int k = 1; k < type.rank; k++)
            want = want < 0 || type.dim[k] < 0 ? -1 : want * type.dim[k];
        if (have >= 0 && want >= 0 && have != want) {
            struct wf_type p = wf_type_of(col[at].dtype, col[at].rank, col[at].dim);
            struct wf_type q = wf_type_of(type.dtype, type.rank - 1, type.dim + 1);
            char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

            st = wf_yaml_err(&job->yaml, job->base.file_node, WEFT_ESHAPE,
                             "column '%s' is %s, but the input '%s' of the file's model is %s",
                             col[at].name, wf_type_text(&p, a), weft_sym_name(run->model, x),
                             wf_type_text(&q, b));
        }
    }
    return st;
}

weft_status wf_job_open_model(weft_job_run *run)
{
    const weft_job *job = run->job;
    const struct wf_job_base *base = &job->base;
    struct building b = {.run = run};
    weft_status st = WEFT_OK;

    if (base->file || base->weights)
        st = wf_job_open_base(run);
    if (!st && run->model) {
        st = check_inputs(run);
        if (weft_model_n_outputs(run->model) == 1)
            b.last = weft_model_output_at(run->model, 0);
    } else if (!st) {
        const char *name = job->name && *job->name ? job->name : NULL;

        st = weft_model_new(run->ctx, WEFT_OPTS(weft_model_opts, .name = name), &run->model);
    }
    if (!st && base->layers)
        st = add_layers(&b, base->layers);
    if (!st && (base->layers || base->outputs))
        st = add_outputs(&b, base->outputs);
    if (!st)
        st = wf_job_freeze(run);
    wf_free(run->ctx, b.sym);
    wf_free(run->ctx, b.name);
    return st;
}
