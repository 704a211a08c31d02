/* outputs.c - what the outputs of a job's model mean: classes with names and probabilities, or
 * values in the units of their label. The loss decides which; names and units come from what the
 * pipeline did to the label. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>

#include "train/job/data.h"

#define MAX_CLASSES 65536 /* with names */

/* ---- what the loss says ---------------------------------------------------------------------- */

static bool loss_is_one_of(const char *loss, int n, const char *const *words)
{
    for (int i = 0; i < n; i++)
        if (strcasestr(loss, words[i]))
            return true;
    return false;
}

static weft_output_kind kind_of(const char *loss, int64_t width)
{
    static const char *const quantities[] = {
        "squared_error", "squarederror", "squared_log", "squaredlog", "absolute", "mse",     "mae",
        "msle",          "mape",         "huber",       "logcosh",    "log_cosh", "poisson",
    };
    static const char *const classes[] = {"crossentropy", "cross_entropy", "bce", "cce"};

    if (loss_is_one_of(loss, WF_COUNT(classes), classes)) {
        bool binary = strcasestr(loss, "binary") || strcasestr(loss, "bce");

        return binary && width != 1 ? WEFT_OUTPUT_PROBABILITIES : WEFT_OUTPUT_CLASSES;
    }
    if (loss_is_one_of(loss, WF_COUNT(quantities), quantities))
        return WEFT_OUTPUT_QUANTITIES;
    return WEFT_OUTPUT_VALUES;
}

/* ---- the label ------------------------------------------------------------------------------- */

/* The label of output i: the one with its name, or else the label with the same index. */
static const char *label_of(const weft_job_run *run, int i)
{
    const weft_column *col;
    const char *name = weft_sym_name(run->model, weft_model_output_at(run->model, i));
    const char *found = NULL;
    int n, k = 0;

    if (wf_job_columns(run, &n, &col))
        return NULL;
    for (int c = 0; c < n; c++) {
        if (col[c].role != WEFT_LABEL)
            continue;
        if (name && strcmp(col[c].name, name) == 0)
            return col[c].name;
        if (k++ == i)
            found = col[c].name;
    }
    return found;
}

static bool names_column(const struct wf_job_stage *s, const char *column)
{
    const struct wf_attr *v = wf_job_arg(s, s->value, "columns");
    const char *list = v && v->s ? v->s : "", *name;
    size_t n;

    while (wf_next_name(&list, &name, &n))
        if (n == strlen(column) && memcmp(name, column, n) == 0)
            return true;
    return false;
}

/* The words of the label, if a stage looks them up; *first: the id of the first word. */
static const weft_vocab *words_of(const weft_job_run *run, const char *label, int64_t *first)
{
    const struct wf_job_plan *p = run->plan;
    const weft_vocab *v = NULL;

    for (int i = 0; i < p->n; i++) {
        const struct wf_job_stage *s = &p->stage[i];

        for (int k = 0; k < s->items.n && strcmp(s->row->name, "lookup") == 0; k++)
            if (strcmp(s->items.column[k], label) == 0) {
                v = weft_learned_vocab(run->learned, s->items.name[k]);
                *first = wf_job_arg(s, s->value, "unknown")->i;
            }
    }
    return v;
}

/* Inverts the pipeline's y = a * label + b. */
static void units_of(const weft_job_run *run, const char *label, weft_job_output *out)
{
    const struct wf_job_plan *p = run->plan;
    double a = 1, b = 0;

    for (int i = 0; i < p->n; i++) {
        const struct wf_job_stage *s = &p->stage[i];

        if (!names_column(s, label))
            continue;
        if (strcmp(s->row->name, "standardize") == 0) {
            const weft_stats *stats = weft_learned_stats(run->learned, s->items.name[0]);
            const weft_column_stats *c = stats ? weft_stats_find(stats, label) : NULL;
            double std = c && c->n == 1 && c->std[0] > 0 ? c->std[0] : 1;

            if (c && c->n == 1) {
                a /= std;
                b = (b - c->mean[0]) / std;
            }
        } else if (strcmp(s->row->name, "rescale") == 0) {
            a *= wf_job_arg(s, s->value, "scale")->f;
            b = b * wf_job_arg(s, s->value, "scale")->f + wf_job_arg(s, s->value, "offset")->f;
        }
    }
    if (a != 0 && isfinite(a) && isfinite(b)) {
        out->scale = 1 / a;
        out->offset = -b / a;
    }
}

/* ---- names of classes ------------------------------------------------------------------------ */

static const char *arena_copy(struct wf_arena *a, const char *text, size_t n)
{
    char *copy = wf_arena_alloc(a, n + 1);

    if (copy)
        memcpy(copy, text, n);
    return copy;
}

/* Class i of log.classes, a comma-separated list; NULL if there is none. */
static const char *listed(struct wf_arena *a, const char *list, int i)
{
    const char *name = NULL;
    size_t n = 0;

    for (; i >= 0; i--)
        if (!list || !wf_next_name(&list, &name, &n))
            return NULL;
    return arena_copy(a, name, n);
}

static weft_status name_classes(const weft_job_run *run, weft_job_output *out)
{
    struct wf_arena *a = &run->data->arena;
    const char *list = run->job->log_classes && *run->job->log_classes ? run->job->log_classes : "";
    const char *const *folder = NULL;
    const weft_vocab *v = NULL;
    int64_t first = 0;
    int n_folders = 0;
    const char **name;
    char number[16];
    weft_status st = wf_job_classes(run, &n_folders, &folder);

    if (st)
        return st;
    if (out->label)
        v = words_of(run, out->label, &first);
    if ((!*list && !n_folders && !v) || out->n_classes > MAX_CLASSES)
        return WEFT_OK;
    name = wf_arena_alloc(a, (size_t)(out->n_classes + 1) * sizeof *name);
    for (int i = 0; i < out->n_classes && name; i++) {
        name[i] = listed(a, list, i);
        if (!name[i] && i < n_folders)
            name[i] = folder[i];
        if (!name[i] && v && i < first)
            name[i] = "(unknown)";
        if (!name[i] && v && i - first < weft_vocab_size(v))
            name[i] = weft_vocab_word(v, i - first).data; /* followed by a NUL */
        snprintf(number, sizeof number, "%d", i);
        if (!name[i])
            name[i] = arena_copy(a, number, strlen(number));
        if (!name[i])
            return wf_err_nomem(run->ctx, 0, "names of classes");
    }
    out->class_name = name;
    return name ? WEFT_OK : wf_err_nomem(run->ctx, 0, "names of classes");
}

weft_status weft_job_output_at_sized(const weft_job_run *run, int i, size_t size,
                                     weft_job_output *out)
{
    const weft_trainer *t = run->trainer;
    weft_job_output o = {.size = sizeof o, .scale = 1};
    weft_tensor type;
    weft_status st;
    int64_t width;

    if (i < 0 || i >= t->n_out)
        return wf_err(WEFT_EINVAL, "the model has %d outputs, not output %d", t->n_out, i);
    st = weft_sym_type(t->model, weft_model_output_at(t->model, i), &type);
    if (st)
        return st;
    width = type.rank > 1 ? type.dim[type.rank - 1] : 1;
    o.label = label_of(run, i);
    if (t->loss[i] && width > 0 && width <= INT32_MAX) {
        o.kind = kind_of(t->loss[i], width);
        if (o.kind == WEFT_OUTPUT_CLASSES && type.rank != 2)
            o.kind = WEFT_OUTPUT_PROBABILITIES; /* e.g. of every step of a sequence */
        o.n_classes = (int)width;
        o.logits = strstr(t->loss[i], "from_logits=true") || strstr(t->loss[i], "from_logits=1");
        o.binary = strcasestr(t->loss[i], "binary") || strcasestr(t->loss[i], "bce");
    }
    if (o.kind == WEFT_OUTPUT_CLASSES && width == 1)
        o.n_classes = 2;
    if (o.kind == WEFT_OUTPUT_CLASSES || o.kind == WEFT_OUTPUT_PROBABILITIES)
        st = name_classes(run, &o);
    if (o.kind == WEFT_OUTPUT_QUANTITIES && o.label)
        units_of(run, o.label, &o);
    return st ? st : wf_opts_give(out, size, &o, sizeof o, "weft_job_output");
}

/* ---- reading --------------------------------------------------------------------------------- */

static void softmax(int64_t n, const float *v, double *p)
{
    double sum = 0, most = -INFINITY;

    for (int64_t k = 0; k < n; k++)
        most = fmax(most, (double)v[k]);
    for (int64_t k = 0; k < n; k++)
        sum += p[k] = exp((double)v[k] - most);
    for (int64_t k = 0; k < n; k++)
        p[k] /= sum;
}

void weft_job_output_read(const weft_job_output *output, int64_t n, const float *v, double *out)
{
    weft_job_output taken, *o = &taken;
    bool probable;

    wf_opts_take(o, sizeof *o, output, "weft_job_output"); /* a bad size: as nothing is known */
    if (output->size < offsetof(weft_job_output, offset) + sizeof o->offset)
        o->scale = 1; /* of a header without units */
    probable = o->kind == WEFT_OUTPUT_CLASSES || o->kind == WEFT_OUTPUT_PROBABILITIES;
    if (probable && o->logits && !o->binary && o->n_classes > 0 && n % o->n_classes == 0) {
        for (int64_t i = 0; i < n; i += o->n_classes)
            softmax(o->n_classes, v + i, out + i);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = (double)v[i];

        if (probable)
            out[i] = o->logits ? 1 / (1 + exp(-x)) : x;
        else
            out[i] = o->kind == WEFT_OUTPUT_QUANTITIES ? x * o->scale + o->offset : x;
    }
}
