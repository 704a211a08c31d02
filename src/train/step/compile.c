/* compile.c - a trainer's settings: optimizer, losses, metrics, all checked before anything is
 * built. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "op/schedule.h"
#include "train/saved/save.h"
#include "train/step/dist.h"
#include "train/train.h"

/* The distance to the separator, ignoring those in brackets or quotes. */
static size_t part_length(const char *text, char separator)
{
    size_t n = 0;
    bool quoted = false;
    int depth = 0;

    for (; text[n] && (quoted || depth > 0 || text[n] != separator); n++) {
        quoted ^= text[n] == '"';
        if (!quoted)
            depth += (text[n] == '[') - (text[n] == ']');
    }
    return n;
}

/* Splits "a; b; c" into its trimmed parts; an empty part is NULL. Returns their number, or -1 if
 * out of memory. */
static int split(struct wf_arena *a, const char *text, char separator, const char **out, int max)
{
    int n = 0;

    while (text && *text) {
        size_t len = part_length(text, separator), skip = strspn(text, " \t\n"), end = len;
        char *part;

        while (end > skip && strchr(" \t\n", text[end - 1]))
            end--;
        if (n < max) {
            out[n] = NULL;
            if (end > skip) {
                part = wf_arena_alloc(a, end - skip + 1);
                if (!part)
                    return -1;
                memcpy(part, text + skip, end - skip);
                out[n] = part;
            }
        }
        n++;
        text += len + (text[len] == separator);
    }
    return n;
}

/* One text per output; a single one applies to all. */
static weft_status per_output(weft_trainer *t, const char *text, const char *what, const char **out)
{
    int n = split(&t->arena, text, ';', out, t->n_out);

    if (n < 0)
        return wf_err_nomem(t->ctx, 0, "compile");
    for (int i = n; i < t->n_out && n == 1; i++)
        out[i] = out[0];
    if (n > 1 && n != t->n_out)
        return wf_err(WEFT_EINVAL, "%d %s for %d outputs", n, what, t->n_out);
    return WEFT_OK;
}

/* "adam learning_rate=0.1" into name and numbers. */
static weft_status init_optimizer(weft_trainer *t, const char *text, const char *schedule)
{
    char name[32];
    size_t n;
    weft_status st;

    text = text ? text : "rmsprop";
    text += strspn(text, " ");
    n = strcspn(text, " ");
    if (n == 0 || n >= sizeof name)
        return wf_err(WEFT_EINVAL, "compile: optimizer '%s'", text);
    memcpy(name, text, n);
    name[n] = 0;
    for (char *p = name; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
    st = weft_optim_init(&t->optim, name, text[n] ? text + n + 1 : NULL);
    if (st || !schedule || !*schedule)
        return st ? wf_err_wrap(st, "compile") : WEFT_OK;
    schedule += strspn(schedule, " ");
    n = strcspn(schedule, " ");
    if (n >= sizeof name)
        return wf_err(WEFT_EINVAL, "compile: schedule '%s'", schedule);
    memcpy(name, schedule, n);
    name[n] = 0;
    t->scheduled = true;
    st = weft_optim_schedule(&t->optim, name, schedule[n] ? schedule + n + 1 : NULL);
    return st ? wf_err_wrap(st, "compile") : WEFT_OK;
}

static weft_status set_losses(weft_trainer *t, const weft_compile_opts *o)
{
    size_t n = (size_t)t->n_out + 1;
    weft_status st;

    t->loss = wf_arena_alloc(&t->arena, n * sizeof *t->loss);
    t->loss_weight = wf_arena_alloc(&t->arena, n * sizeof *t->loss_weight);
    if (!t->loss || !t->loss_weight)
        return wf_err_nomem(t->ctx, 0, "compile");
    st = per_output(t, o->loss, "losses", t->loss);
    for (int i = 0; i < t->n_out && !st; i++) {
        t->loss_weight[i] = o->loss_weights ? o->loss_weights[i] : 1;
        if (t->loss[i] && strcmp(t->loss[i], "none") == 0)
            t->loss[i] = NULL;
        if (t->loss[i])
            st = wf_loss_check(t->ctx, t->model, t->loss[i]);
    }
    return st ? wf_err_wrap(st, "compile") : WEFT_OK;
}

enum { MAX_METRICS = 256 };

/* Appends the metrics of one output, "mse, AUC curve=PR". */
static weft_status add_metrics(weft_trainer *t, int out, const char *text, bool weighted)
{
    const char *spec[MAX_METRICS];
    int n = split(&t->arena, text, ',', spec, MAX_METRICS);

    if (n < 0)
        return wf_err_nomem(t->ctx, 0, "compile");
    if (n > MAX_METRICS - t->n_metrics)
        return wf_err(WEFT_ELIMIT, "more than %d metrics", MAX_METRICS);
    for (int i = 0; i < n; i++) {
        weft_status st = spec[i] ? wf_metric_check(t->ctx, t->model, spec[i]) : WEFT_OK;

        if (st)
            return st;
        if (spec[i])
            t->metric[t->n_metrics++] =
                (struct wf_metric_spec){.out = out, .weighted = weighted, .text = spec[i]};
    }
    return WEFT_OK;
}

static weft_status set_metrics(weft_trainer *t, const weft_compile_opts *o)
{
    size_t n = (size_t)t->n_out + 1;
    const char **plain = wf_arena_alloc(&t->arena, n * sizeof *plain);
    const char **weighted = wf_arena_alloc(&t->arena, n * sizeof *weighted);
    weft_status st;

    t->metric = wf_arena_alloc(&t->arena, MAX_METRICS * sizeof *t->metric);
    if (!plain || !weighted || !t->metric)
        return wf_err_nomem(t->ctx, 0, "compile");
    st = per_output(t, o->metrics, "lists of metrics", plain);
    if (!st)
        st = per_output(t, o->weighted_metrics, "lists of metrics", weighted);
    for (int i = 0; i < t->n_out && !st; i++) {
        st = add_metrics(t, i, plain[i], false);
        if (!st)
            st = add_metrics(t, i, weighted[i], true);
    }
    return st ? wf_err_wrap(st, "compile") : WEFT_OK;
}

static const char *name_of(const weft_trainer *t, int out)
{
    return weft_sym_name(t->model, weft_model_output_at(t->model, out));
}

/* The output that class weights apply to: the one whose labels are classes, or the named one. */
static weft_status find_class_output(weft_trainer *t, const char *name)
{
    int n = 0, other = -1;

    t->class_output = -1;
    for (int i = 0; i < t->n_out; i++) {
        bool named = name && !strcmp(name, name_of(t, i)),
             classes = wf_loss_has_classes(t->model, t->loss[i]);

        if (named && !classes)
            return wf_err(WEFT_EINVAL,
                          "compile: class_weights of output '%s': the labels of its loss '%s' are "
                          "values, not classes; weigh samples instead",
                          name, t->loss[i] ? t->loss[i] : "none");
        if (!classes || (name && !named))
            continue;
        other = t->class_output;
        t->class_output = i;
        n++;
    }
    if (n == 1)
        return WEFT_OK;
    if (name)
        return wf_err(WEFT_ENOENT, "compile: class_weights: there is no output '%s'", name);
    if (n == 0)
        return wf_err(WEFT_EINVAL,
                      "compile: class_weights: the loss%s of values, not of classes; "
                      "weigh samples instead",
                      t->n_out > 1 ? "es are" : " is");
    return wf_err(WEFT_EINVAL,
                  "compile: class_weights: %d outputs have classes, '%s' and '%s' among them: set "
                  "class_weights_output to one of them",
                  n, name_of(t, other), name_of(t, t->class_output));
}

static weft_status set_class_weights(weft_trainer *t, const weft_compile_opts *o)
{
    weft_status st;

    if (o->n_class_weights <= 0)
        return WEFT_OK;
    st = find_class_output(t, o->class_weights_output);
    if (st)
        return st;
    t->class_weights =
        wf_arena_alloc(&t->arena, (size_t)o->n_class_weights * sizeof *t->class_weights);
    if (!t->class_weights)
        return wf_err_nomem(t->ctx, 0, "compile");
    for (int i = 0; i < o->n_class_weights; i++) {
        if (!(o->class_weights[i] >= 0) || !isfinite((float)o->class_weights[i]))
            return wf_err(WEFT_EINVAL, "compile: class weight %d is %g", i, o->class_weights[i]);
        t->class_weights[i] = (float)o->class_weights[i];
    }
    t->n_class_weights = o->n_class_weights;
    return WEFT_OK;
}

/* The strategy: that of the model's scope, or one by name. */
static weft_status set_strategy(weft_trainer *t, const weft_compile_opts *o)
{
    weft_status st;

    t->dist = wf_model_scope(t->model);
    if (t->dist && o->strategy && strcmp(o->strategy, weft_dist_name(t->dist)) != 0)
        return wf_err(WEFT_EINVAL, "compile: strategy '%s', but the model is in the scope of '%s'",
                      o->strategy, weft_dist_name(t->dist));
    if (t->dist)
        return WEFT_OK;
    st = weft_dist_open(t->ctx, o->strategy, &t->dist);
    t->owns_dist = !st;
    return st ? wf_err_wrap(st, "compile") : WEFT_OK;
}

/* Where updates are made. */
static weft_status set_update(weft_trainer *t, const weft_compile_opts *o)
{
    static const char *const merging[] = {
        [WF_MERGE_MEAN] = "mean", [WF_MERGE_MODELS] = "models", [WF_MERGE_SUM] = "sum"};
    const char *update = o->update ? o->update : "server";
    int how = 0;

    if (strcmp(update, "server") != 0 && strcmp(update, "worker") != 0)
        return wf_err(WEFT_EINVAL, "compile: update '%s' is not server or worker", update);
    t->rounds = strcmp(update, "worker") == 0;
    if (o->every < 0 || o->every > 65536)
        return wf_err(WEFT_EINVAL, "compile: every %d: 1 to 65536 steps are possible", o->every);
    while (o->merge && how < WF_COUNT(merging) && strcmp(o->merge, merging[how]) != 0)
        how++;
    if (how == WF_COUNT(merging))
        return wf_err(WEFT_EINVAL, "compile: merge '%s' is not mean, models or sum", o->merge);
    if (!t->rounds && (o->every > 1 || o->merge))
        return wf_err(WEFT_EINVAL, "compile: every and merge are about updates in the workers: "
                                   "they need update=worker");
    if (t->rounds && o->accumulate > 1)
        return wf_err(WEFT_EINVAL,
                      "compile: accumulate is %d, but with update=worker each worker "
                      "updates after each batch; use every",
                      o->accumulate);
    t->merging = (enum wf_merging)how;
    if (t->rounds && o->every)
        t->accumulate = o->every;
    return WEFT_OK;
}

static weft_status set_rest(weft_trainer *t, const weft_compile_opts *o)
{
    weft_status st;

    const char *p = o->precision ? o->precision : "f32";

    if (o->shards < 0 || o->accumulate < 0 || o->shards > 65536 || o->accumulate > 65536)
        return wf_err(WEFT_EINVAL, "compile: shards %d, accumulate %d", o->shards, o->accumulate);
    t->tf32 = strcmp(p, "tf32") == 0;
    if (weft_dtype_parse(t->tf32 ? "f32" : p, &t->precision) ||
        (t->precision != WEFT_F32 && t->precision != WEFT_BF16 && t->precision != WEFT_F16))
        return wf_err(WEFT_EINVAL, "compile: precision '%s' is not f32, tf32, bf16 or f16", p);
    if (o->shards && t->dist->shards && o->shards != t->dist->shards)
        return wf_err(WEFT_EINVAL,
                      "compile: shards is %d, but replicas_to_aggregate is %d: they are the same "
                      "number; leave one of them out",
                      o->shards, t->dist->shards);
    t->shards = o->shards         ? o->shards
                : t->dist->shards ? t->dist->shards
                                  : weft_dist_replicas(t->dist);
    t->accumulate = o->accumulate ? o->accumulate : 1;
    st = set_update(t, o);
    if (st)
        return st;
    t->trap = o->trap_numerics;
    t->dense = o->no_sparse;
    return wf_scale_init(t, o);
}

/* All settings in their order, each checked before anything is built. */
static weft_status set_all(weft_trainer *t, weft_compile_opts *o)
{
    weft_status st = o->like ? wf_said_fill(t->ctx, &t->arena, t->n_out, o) : WEFT_OK;

    if (!st)
        st = wf_said_keep(t, o);
    if (!st)
        st = init_optimizer(t, o->optimizer, o->schedule);
    if (!st)
        st = set_losses(t, o);
    if (!st)
        st = set_metrics(t, o);
    if (st && o->like)
        wf_err_wrap(st, "%s", o->like);
    if (!st)
        st = set_class_weights(t, o);
    if (!st)
        st = set_strategy(t, o);
    if (!st)
        st = set_rest(t, o);
    return st ? st : wf_states_init(t);
}

weft_status weft_compile(weft_model *m, const weft_compile_opts *opts, weft_trainer **out)
{
    weft_compile_opts o;
    weft_ctx *ctx = wf_model_ctx(m);
    weft_trainer *t;
    weft_status st = weft_model_status(m);

    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_compile_opts");
    if (st)
        return st;
    if (weft_model_n_outputs(m) == 0)
        return wf_err(WEFT_EINVAL, "compile: the model has no output");
    t = wf_alloc(ctx, sizeof *t);
    if (!t)
        return wf_err_nomem(ctx, sizeof *t, "compile");
    t->ctx = ctx;
    t->model = m;
    t->n_out = weft_model_n_outputs(m);
    wf_arena_init(&t->arena, ctx);
    st = set_all(t, &o);
    if (st) {
        weft_trainer_free(t);
        return st;
    }
    t->rate = t->used_rate = (float)t->optim.number[WF_OPTIM_ATTR_LR];
    *out = t;
    return WEFT_OK;
}

void weft_trainer_free(weft_trainer *t)
{
    if (!t)
        return;
    wf_bound_free(t->bound);
    wf_free(t->ctx, t->recorded);
    if (t->owns_dist)
        weft_dist_free(t->dist);
    weft_text_free(t->ctx, t->learned);
    wf_arena_free(&t->arena);
    wf_free(t->ctx, t);
}

weft_model *weft_trainer_model(const weft_trainer *t)
{
    return t->model;
}

_Thread_local const weft_trainer *wf_calling;

void weft_trainer_stop(weft_trainer *t)
{
    wf_ask(t, wf_calling == t ? WF_ASK_END : WF_ASK_INTERRUPT);
}

void weft_trainer_interrupt(weft_trainer *t)
{
    wf_ask(t, WF_ASK_INTERRUPT);
}

void weft_trainer_checkpoint(weft_trainer *t)
{
    wf_ask(t, WF_ASK_SAVE);
}

void weft_trainer_times(const weft_trainer *t, weft_times *epoch, weft_times *run)
{
    if (epoch)
        *epoch = t->times;
    if (run)
        *run = t->all_times;
}

bool weft_trainer_stopped(const weft_trainer *t)
{
    return wf_asked(t, WF_ASK_STOP);
}

/* The rate of a step by the schedule; `rate` if there is none. */
static double rate_at(const weft_trainer *t, int64_t step, float rate)
{
    const struct wf_schedule_row *row = t->scheduled ? wf_schedule_find(t->optim.schedule) : NULL;
    const double *number = t->optim.schedule_number;
    int n = row && row->takes_list ? t->optim.n_schedule - row->n_attrs : 0;

    if (!row)
        return (double)rate;
    return wf_schedule_rate(row, number, number + row->n_attrs, n, step);
}

double weft_trainer_rate(const weft_trainer *t)
{
    return rate_at(t, weft_trainer_step(t), t->rate);
}

const char *weft_trainer_nonfinite(const weft_trainer *t)
{
    return *t->nonfinite ? t->nonfinite : NULL;
}

double weft_trainer_used_rate(const weft_trainer *t)
{
    int64_t step = weft_trainer_step(t);

    return rate_at(t, step > 0 ? step - 1 : 0, t->used_rate);
}

weft_status weft_trainer_set_rate(weft_trainer *t, double rate)
{
    if (t->scheduled)
        return wf_err(WEFT_ESTATE, "the learning rate follows a schedule and cannot be set");
    if (!(rate >= 0) || !isfinite((float)rate))
        return wf_err(WEFT_EINVAL, "learning rate %g", rate);
    t->rate = (float)rate;
    return WEFT_OK;
}

int64_t weft_trainer_step(const weft_trainer *t)
{
    return t->bound && t->bound->fit ? weft_fn_step(t->bound->fit) : 0;
}
