/* run.c - prepares and runs a job. */
#include <math.h>
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "train/job/job.h"
#include "train/saved/learned.h"
#include "train/step/dist.h"
#include "train/job/settings.h"

/* A path with placeholders for numbers, {epoch:02d}: braces in the job's directory are not
 * placeholders. */
static const char *path_with_places(const weft_job *job, const char *path)
{
    struct wf_arena *arena = (struct wf_arena *)&job->yaml.arena;
    size_t n = 2 * strlen(job->dir) + strlen(path) + 2;
    char *full, *to;

    if (!*path || *path == '/' || !*job->dir)
        return path;
    full = to = wf_arena_alloc(arena, n);
    if (!full)
        return NULL;
    for (const char *p = job->dir; *p; p++) {
        if (*p == '{' || *p == '}')
            *to++ = *p;
        *to++ = *p;
    }
    snprintf(to, n - (size_t)(to - full), "/%s", path);
    return full;
}

/* The arguments of a callback; paths among them are relative to the job's directory, like all paths
 * of a job. */
static weft_status callback_attrs(const weft_job *job, const struct wf_yaml_node *args,
                                  const char **out)
{
    static const char *const paths[] = {"filename", "filepath", "log_dir"};
    struct wf_arena *arena = (struct wf_arena *)&job->yaml.arena;
    struct wf_yaml_node map, *copy;

    if (!args || args->kind != WF_YAML_MAP)
        return wf_job_attrs(job, args, NULL, out);
    map = *args;
    map.item = wf_arena_alloc(arena, (size_t)(map.n + 1) * sizeof *map.item);
    for (int64_t i = 0; i < map.n && map.item; i++) {
        map.item[i] = args->item[i];
        for (int k = 0; k < WF_COUNT(paths); k++) {
            if (strcmp(args->key[i]->text, paths[k]) != 0)
                continue;
            copy = wf_arena_alloc(arena, sizeof *copy);
            if (!copy)
                return wf_err_nomem(job->ctx, 0, "the job");
            *copy = *args->item[i];
            copy->text = strcmp(paths[k], "filepath") == 0 ? path_with_places(job, copy->text)
                                                           : wf_job_path(job, copy->text);
            if (!copy->text)
                return wf_err_nomem(job->ctx, 0, "the job");
            map.item[i] = copy;
        }
    }
    return map.item ? wf_job_attrs(job, &map, NULL, out) : wf_err_nomem(job->ctx, 0, "the job");
}

static weft_status open_callbacks(weft_job_run *run)
{
    const weft_job *job = run->job;
    const struct wf_yaml_node *list = job->callbacks;
    weft_status st = WEFT_OK;

    if (!list || (list->kind == WF_YAML_SCALAR && !*list->text))
        return WEFT_OK;
    if (list->kind != WF_YAML_LIST || list->n > WF_JOB_MAX_CALLBACKS)
        return wf_yaml_err(&job->yaml, list, WEFT_EINVAL,
                           "train.callbacks must be a list of at most %d", WF_JOB_MAX_CALLBACKS);
    for (int64_t i = 0; i < list->n && !st; i++) {
        struct wf_yaml_node *args = NULL;
        const char *name = NULL, *attrs = NULL;
        struct wf_buf spec;

        st = wf_job_item(job, list->item[i], &name, &args);
        if (!st)
            st = callback_attrs(job, args, &attrs);
        if (st)
            return st;
        wf_buf_init(&spec, run->ctx, 1 << 16);
        wf_buf_printf(&spec, "%s %s", name, attrs ? attrs : "");
        st = spec.st ? wf_err_nomem(run->ctx, 0, "a callback")
                     : weft_callback_new(run->ctx, spec.data, &run->callback[run->n_callbacks]);
        wf_buf_free(&spec);
        if (st)
            return wf_yaml_wrap(&job->yaml, list->item[i], st);
        run->n_callbacks++;
    }
    return st;
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

/* Puts the position of the key that a message of weft_compile is about before it. */
static weft_status at_train_key(const weft_job *job, weft_status st)
{
    static const char *const keys[] = {"schedule", "optimizer", "metric", "class_weights", "loss"};
    const struct wf_yaml_node *train = wf_yaml_get(job->yaml.root, "train"), *node = NULL;

    for (int i = 0; i < WF_COUNT(keys) && !node && train; i++) {
        if (!strstr(weft_error(), keys[i]))
            continue;
        node = wf_yaml_get(train, keys[i]);
        if (!node && strcmp(keys[i], "metric") == 0)
            node = wf_yaml_get(train, "metrics");
    }
    return node ? wf_yaml_wrap(&job->yaml, node, st) : st;
}

/* Parameter servers: those of a cluster, or in this process. */
static weft_status open_dist(weft_job_run *run, const weft_ps_opts *ps)
{
    const weft_job *job = run->job;
    weft_ps_opts here = {.size = sizeof here,
                         .servers = (int)job->cluster_servers,
                         .replicas = (int)job->cluster_replicas,
                         .timeout_s = job->cluster_timeout,
                         .balance_s = job->cluster_balance,
                         .stall_timeout_s = job->cluster_stall > 0 ? job->cluster_stall : -1};
    weft_status st = ps ? wf_opts_take(&here, sizeof here, ps, "weft_ps_opts") : WEFT_OK;

    if (st)
        return st;
    here.row_cache_bytes = (int64_t)(job->cluster_row_cache * (1 << 20));
    here.placement = strcmp(job->cluster_placement, "greedy") == 0        ? WEFT_PLACE_GREEDY
                     : strcmp(job->cluster_placement, "round_robin") == 0 ? WEFT_PLACE_ROUND_ROBIN
                                                                          : WEFT_PLACE_EVEN;
    here.backup = (int)job->cluster_backup;
    here.consistency = job->cluster_consistency;

    if (!ps && (run->trained || strcmp(job->strategy, "ps") != 0))
        return WEFT_OK;
    st = weft_dist_open_ps(run->ctx, &here, &run->dist);
    return st ? st : weft_dist_scope(run->dist, run->model);
}

static weft_status open_run(const weft_job *job, weft_ctx *ctx, bool trained,
                            const weft_job_open_opts *o, weft_job_run **out)
{
    weft_job_run *run = wf_alloc(ctx, sizeof *run);
    weft_status st;

    if (!run)
        return wf_err_nomem(ctx, sizeof *run, "a job");
    run->job = job;
    run->ctx = ctx;
    run->trained = trained;
    st = wf_job_open_data(run);
    if (!st)
        st = wf_job_open_model(run);
    if (!st)
        st = open_dist(run, o->ps);
    if (!st) {
        st = weft_compile(
            run->model,
            WEFT_OPTS(
                weft_compile_opts, .optimizer = job->optimizer, .schedule = given(job->schedule),
                .loss = given(job->loss), .metrics = given(job->metrics),
                .weighted_metrics = given(job->weighted_metrics),
                .n_class_weights = (int)job->n_class_weights, .class_weights = job->class_weights,
                .class_weights_output = given(job->class_weights_output),
                .shards = (int)job->shards, .accumulate = (int)job->accumulate,
                .precision = job->precision, .update = job->update, .every = (int)job->every,
                .merge = strcmp(job->update, "worker") == 0 ? job->merge : NULL,
                .strategy = strcmp(job->strategy, "ps") == 0 || run->dist ? NULL : job->strategy,
                .trap_numerics = job->trap_numerics,
                .loss_scale = job->loss_scale > 0 ? job->loss_scale : WEFT_ZERO,
                .no_sparse = !job->sparse, .loss_scale_steps = job->loss_scale_steps),
            &run->trainer);
        if (st)
            st = at_train_key(job, st);
    }
    if (!st)
        st = weft_trainer_set_learned(run->trainer, run->learned);
    if (!st)
        st = wf_job_settings(ctx, job, &run->settings);
    if (!st) {
        run->trainer->data_changed = run->data_changed;
        run->trainer->settings = run->settings;
        run->trainer->job_text = job->text;
        st = wf_job_load_base(run);
    }
    if (!st)
        st = open_callbacks(run);
    if (!st)
        st = wf_job_open_log(run);
    if (st) {
        weft_job_close(run);
        return st;
    }
    *out = run;
    return WEFT_OK;
}

weft_status weft_job_open(const weft_job *job, weft_ctx *ctx, weft_job_run **out)
{
    return open_run(job, ctx, false, &(weft_job_open_opts){.size = 0}, out);
}

weft_status weft_job_open_with(const weft_job *job, weft_ctx *ctx, const weft_job_open_opts *opts,
                               weft_job_run **out)
{
    weft_job_open_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_job_open_opts");

    return st ? st : open_run(job, ctx, false, &o, out);
}

weft_status weft_job_open_trained(const weft_job *job, weft_ctx *ctx, weft_job_run **out)
{
    return open_run(job, ctx, true, &(weft_job_open_opts){.size = 0}, out);
}

void weft_job_close(weft_job_run *run)
{
    if (!run)
        return;
    for (int i = 0; i < run->n_callbacks; i++)
        weft_callback_free(&run->callback[i]);
    weft_trainer_free(run->trainer);
    weft_model_free(run->model);
    weft_dist_free(run->dist);
    weft_text_free(run->ctx, run->base_json);
    weft_text_free(run->ctx, run->settings);
    weft_data_free(run->data);
    weft_learned_free(run->learned); /* whose vocabularies the data used */
    wf_free(run->ctx, run);
}

weft_model *weft_job_model(const weft_job_run *run)
{
    return run->model;
}

weft_dist *weft_job_dist(const weft_job_run *run)
{
    return run->dist;
}

weft_trainer *weft_job_trainer(const weft_job_run *run)
{
    return run->trainer;
}

weft_data *weft_job_data(const weft_job_run *run)
{
    return run->data;
}

const weft_learned *weft_job_learned(const weft_job_run *run)
{
    return run->learned;
}

/* The directory of the file named by `save`, created before training: if it cannot be written, that
 * is reported before hours are spent. */
static weft_status make_save_folder(weft_job_run *run)
{
    const char *path = given(run->job->save);
    struct wf_file_info info;
    char folder[WF_CKPT_PATH];
    char *slash;
    weft_status st = WEFT_OK;

    if (!path)
        return WEFT_OK;
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return wf_err(WEFT_EINVAL, "save: the path is too long");
    if (run->ctx->fs->stat(run->ctx->fs->arg, path, &info) == 0 && info.folder)
        return wf_err(WEFT_EINVAL, "save: %s is a directory; it must be a file", path);
    slash = strrchr(folder, '/');
    if (slash && slash > folder) {
        *slash = 0;
        st = wf_ckpt_make_dir(run->ctx, folder);
    }
    return st ? wf_err_wrap(st, "save") : WEFT_OK;
}

/* Writes what `save` asks for. An interrupted run does not replace the file of an earlier one. */
static weft_status save_model(weft_job_run *run)
{
    const char *path = given(run->job->save);
    weft_status st;

    if (!path || !weft_job_decides(run) || !wf_life_in_order(run->trainer))
        return WEFT_OK;
    st = make_save_folder(run);
    if (st)
        return st;
    st = weft_trainer_save(run->trainer, path);
    if (st)
        return st;
    wf_log(run->ctx, WEFT_LOG_INFO, "model: %s", path);
    return WEFT_OK;
}

/* A run that ended with a loss that is not finite has failed, whoever ended it. An interrupted one
 * is not over. */
static weft_status check_loss(const weft_job_run *run, const weft_history *h)
{
    const weft_trainer *t = run->trainer;
    const char *why = weft_trainer_nonfinite(t), *save = given(run->job->save);
    double loss = h->n_epochs ? h->value[(h->n_epochs - 1) * h->n_names] : 0;
    char plain[64];

    if (isfinite(loss) || t->life == WF_LIFE_STOPPED || t->life == WF_LIFE_PAUSED)
        return WEFT_OK;
    wf_snprintf(plain, sizeof plain, "the loss is %g", isnan(loss) ? fabs(loss) : loss);
    return wf_err(WEFT_ENUMERIC, "%s%s%s%s", why ? why : plain,
                  save ? "; no model was written to " : "", save ? save : "",
                  given(run->job->checkpoint_dir) ? "; the checkpoints are from before that" : "");
}

/* Training completed, and then something failed: the last checkpoint could not be written. The
 * model is saved anyway. */
static weft_status save_anyway(weft_job_run *run, weft_status st)
{
    const char *path = weft_job_decides(run) ? given(run->job->save) : NULL;
    char why[512];

    snprintf(why, sizeof why, "%s", weft_error());
    if (path && save_model(run))
        wf_log(run->ctx, WEFT_LOG_WARN, "%s", weft_error());
    else if (path)
        snprintf(why + strlen(why), sizeof why - strlen(why), "; the trained model is in %s", path);
    wf_err_set(why);
    return st;
}

bool weft_job_decides(const weft_job_run *run)
{
    return run->trainer->decided;
}

/* The worker that writes the files of a run, as long as it lives: its directories are checked
 * before training. */
static bool is_first(const weft_job_run *run)
{
    return !run->dist || run->dist->first == 0;
}

/* What a cluster trained asynchronously can be evaluated anywhere, but is not trained alone. */
static weft_status check_consistency(const weft_job_run *run)
{
    const weft_job *job = run->job;
    const struct wf_yaml_node *cluster = wf_yaml_get(job->yaml.root, "cluster");
    const struct wf_yaml_node *node = cluster ? wf_yaml_get(cluster, "consistency") : NULL;
    bool leased;
    int stale;
    weft_status st = wf_consistency_read(job->cluster_consistency, &leased, &stale);

    if (!st && leased && !run->dist)
        st = wf_err(WEFT_EINVAL,
                    "consistency %s needs strategy: ps, not %s; `weft launch` trains with it",
                    job->cluster_consistency, job->strategy);
    return st && node ? wf_yaml_wrap(&job->yaml, node, st) : st;
}

weft_status weft_job_fit(weft_job_run *run, const weft_job_fit_opts *opts, weft_history **history)
{
    weft_job_fit_opts o;
    const weft_job *job = run->job;
    weft_callback all[2 * WF_JOB_MAX_CALLBACKS + 4];
    weft_history *h = NULL;
    int n = 0;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_job_fit_opts");

    if (!st && o.n_callbacks > WF_JOB_MAX_CALLBACKS)
        st = wf_err(WEFT_EINVAL, "%d callbacks", o.n_callbacks);
    if (!st)
        st = check_consistency(run);
    if (!st)
        st = wf_job_check_trained(run);
    if (!st && is_first(run))
        st = make_save_folder(run);
    if (!st && is_first(run))
        st = wf_job_begin_log(run);
    if (st)
        return st;
    if (run->loads_late)
        all[n++] = wf_job_late_base(run);
    for (int i = 0; i < run->n_callbacks; i++)
        all[n++] = run->callback[i];
    for (int i = 0; i < o.n_callbacks && !st; i++)
        st = wf_opts_take_at(&all[n++], sizeof *all, o.callbacks, i, "weft_callback");
    if (st)
        return st;
    st = weft_fit(
        run->trainer, run->data, run->train,
        WEFT_OPTS(
            weft_fit_opts, .epochs = job->epochs, .batch = job->batch, .no_shuffle = !job->shuffle,
            .seed = (uint64_t)job->seed, .steps_per_epoch = job->steps_per_epoch,
            .validation = run->validation, .validation_freq = job->validation_freq,
            .n_callbacks = n, .callbacks = all, .verbose = o.verbose, .print = o.print,
            .print_arg = o.print_arg, .columns = o.columns, .threads = (int)job->data_threads,
            .checkpoint = given(job->checkpoint_dir), .checkpoint_steps = job->checkpoint_steps,
            .checkpoint_seconds = job->checkpoint_seconds, .keep_last = (int)job->keep_last,
            .keep_best = (int)job->keep_best, .checkpoint_monitor = given(job->monitor),
            .keep_hours = job->keep_hours, .watch = o.watch, .watch_arg = o.watch_arg),
        &h);
    if (st && strncmp(weft_error(), "compile", 7) == 0)
        st = at_train_key(job, st);
    if (st && wf_life_in_order(run->trainer))
        return save_anyway(run, st);
    if (!st && weft_job_decides(run))
        st = wf_job_end_log(run, h);
    if (!st)
        st = check_loss(run, h);
    if (!st)
        st = save_model(run);
    if (!st && history)
        *history = h;
    else
        weft_history_free(h);
    return st;
}

bool weft_job_has_checkpoints(const weft_job_run *run)
{
    return given(run->job->checkpoint_dir) != NULL;
}

/* If there is no checkpoint: the saved model, or the one that the job starts from. */
static weft_status load_saved(weft_job_run *run)
{
    const weft_job *job = run->job;
    const char *save = given(job->save);
    struct wf_file_info info;

    if (save && run->ctx->fs->stat(run->ctx->fs->arg, save, &info) == 0) {
        struct wf_saved from = {0};
        weft_status st = wf_saved_open(run->ctx, save, &from);

        if (!st)
            st = wf_learned_check(run->trainer, &from, save);
        wf_saved_close(&from);
        return st ? st : weft_trainer_load_weights(run->trainer, save, NULL, NULL);
    }
    if (job->base.file && !job->base.layers)
        return WEFT_OK; /* they are loaded */
    if (save || given(job->checkpoint_dir))
        return wf_err(WEFT_ENOENT, "%s: nothing has been trained yet",
                      save ? save : job->checkpoint_dir);
    return wf_err(WEFT_EINVAL, "the job has neither checkpoint.dir nor save to read weights from");
}

weft_status wf_job_load_from(weft_job_run *run, weft_ckpt *c)
{
    const char *dir = run->job->checkpoint_dir;
    weft_status st =
        wf_learned_check(run->trainer, &(struct wf_saved){.ctx = run->ctx, .ckpt = c}, dir);

    if (!st)
        st = wf_changes_seen(run->trainer, c);
    for (int i = 0; i < weft_trainer_n_weights(run->trainer) && !st; i++) {
        const char *name = weft_trainer_weight_name(run->trainer, i);
        weft_tensor w;

        st = weft_trainer_weight(run->trainer, name, &w);
        if (!st)
            st = wf_stored_weight(run->trainer, c, name, &w);
    }
    return st ? wf_err_wrap(st, "%s", dir) : WEFT_OK;
}

weft_status weft_job_load_weights(weft_job_run *run)
{
    const char *dir = given(run->job->checkpoint_dir);
    weft_ckpt *c = NULL;
    weft_status st = dir ? weft_ckpt_open_latest(run->ctx, dir, &c) : WEFT_ENOENT;

    if (st == WEFT_ENOENT)
        return load_saved(run);
    if (st)
        return wf_err_wrap(st, "%s", dir);
    st = wf_job_load_from(run, c);
    weft_ckpt_close(c);
    return st;
}
