/* base.c - models of jobs that start from a file: a saved model, complete or up to a layer, with
 * new layers on top; weights by name; and which layers are frozen.
 *
 * A run that resumes from its own checkpoint no longer needs the file: its architecture is in the
 * checkpoint (base.json), and the weights are the checkpoint's. */

#include "train/job/job.h"
#include "train/saved/load.h"

/* What freeze says about all layers: 1 true, 0 false, -1: it names layers. */
static int for_all(const struct wf_yaml_node *n)
{
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};

    for (int i = 0; i < WF_COUNT(words) && n->kind == WF_YAML_SCALAR && !n->quoted; i++)
        if (wf_same_word(n->text, words[i]))
            return i >= 3;
    return -1;
}

/* ---- the keys -------------------------------------------------------------------------------- */

static weft_status read_weights(weft_job *job, const struct wf_yaml_node *n)
{
    static const char *const names[] = {"file", "by_name", "skip_mismatch", "prefix"};
    struct wf_job_base *b = &job->base;
    const struct wf_yaml_node *file = n->kind == WF_YAML_MAP ? wf_yaml_get(n, "file") : n;
    weft_status st = WEFT_OK;

    if (!file || file->kind != WF_YAML_SCALAR || !*file->text)
        return wf_yaml_err(&job->yaml, n, WEFT_EINVAL,
                           "model.weights takes a path, or a map with `file`");
    b->weights = wf_job_path(job, file->text);
    b->weights_node = file;
    for (int64_t i = 0; n->kind == WF_YAML_MAP && i < n->n && !st; i++) {
        const char *key = n->key[i]->text;

        if (strcmp(key, "by_name") == 0)
            st = wf_job_read_bool(job, n->item[i], "model.weights.by_name", &b->by_name);
        else if (strcmp(key, "skip_mismatch") == 0)
            st =
                wf_job_read_bool(job, n->item[i], "model.weights.skip_mismatch", &b->skip_mismatch);
        else if (strcmp(key, "prefix") == 0)
            st = wf_job_read_text(job, n->item[i], "model.weights.prefix", &b->prefix);
        else if (strcmp(key, "file") != 0)
            st = wf_job_unknown_key(job, n->key[i], "model.weights", names, WF_COUNT(names));
    }
    return st;
}

static weft_status read_freeze(const weft_job *job, const struct wf_yaml_node *n)
{
    bool fine = n->kind == WF_YAML_SCALAR ? *n->text != 0 : n->kind == WF_YAML_LIST;

    for (int64_t i = 0; n->kind == WF_YAML_LIST && i < n->n; i++)
        fine = fine && n->item[i]->kind == WF_YAML_SCALAR && *n->item[i]->text;
    return fine ? WEFT_OK
                : wf_yaml_err(&job->yaml, n, WEFT_EINVAL,
                              "model.freeze takes true, false, a name or a list of names");
}

static weft_status read_key(weft_job *job, const char *key, struct wf_yaml_node *n)
{
    struct wf_job_base *b = &job->base;
    double number;
    weft_status st = WEFT_OK;

    if (strcmp(key, "file") == 0) {
        b->file_node = n;
        if (n->kind != WF_YAML_SCALAR || !*n->text)
            return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "model.file takes a path");
        b->file = wf_job_path(job, n->text);
    } else if (strcmp(key, "until") == 0) {
        b->until_node = n;
        st = wf_job_read_text(job, n, "model.until", &b->until);
    } else if (strcmp(key, "drop") == 0) {
        b->until_node = n;
        st = wf_job_read_number(job, n, "model.drop", 1, 1e6, true, &number);
        b->drop = st ? 0 : (int)number;
    } else if (strcmp(key, "freeze") == 0) {
        b->freeze = n;
        st = read_freeze(job, n);
    } else if (strcmp(key, "layers") == 0) {
        b->layers = n;
    } else if (strcmp(key, "outputs") == 0) {
        b->outputs = n;
    } else {
        st = read_weights(job, n);
    }
    return st;
}

static weft_status check_keys(const weft_job *job)
{
    const struct wf_job_base *b = &job->base;

    if (b->layers && (b->layers->kind != WF_YAML_LIST || b->layers->n == 0))
        return wf_yaml_err(&job->yaml, b->layers, WEFT_EINVAL,
                           "model.layers must be a list of layers");
    if (!b->layers && !b->file)
        return wf_yaml_err(&job->yaml, job->model, WEFT_EINVAL,
                           "model must be a list of layers, or a map with `layers` or `file`");
    if (b->until && b->drop)
        return wf_yaml_err(&job->yaml, b->until_node, WEFT_EINVAL,
                           "model.until and model.drop cannot be combined");
    if (b->until_node && !b->file)
        return wf_yaml_err(&job->yaml, b->until_node, WEFT_EINVAL,
                           "model.until and model.drop need model.file");
    return WEFT_OK;
}

weft_status wf_job_read_model(weft_job *job)
{
    static const char *const names[] = {
#define MODEL(name_, kind_, help_) #name_,
#include "train/job/model.def"
#undef MODEL
    };
    struct wf_yaml_node *n = job->model;
    weft_status st = WEFT_OK;

    if (n->kind != WF_YAML_MAP) {
        job->base.layers = n->kind == WF_YAML_LIST && n->n ? n : NULL;
        return check_keys(job);
    }
    for (int64_t i = 0; i < n->n && !st; i++) {
        bool known = false;

        for (int k = 0; k < WF_COUNT(names); k++)
            known = known || strcmp(names[k], n->key[i]->text) == 0;
        st = known ? read_key(job, n->key[i]->text, n->item[i])
                   : wf_job_unknown_key(job, n->key[i], "model", names, WF_COUNT(names));
    }
    return st ? st : check_keys(job);
}

/* ---- the file's model ------------------------------------------------------------------------ */

/* Whether the run resumes from a checkpoint. If so, *json is the base stored in it, or NULL. */
static weft_status look_back(weft_job_run *run, char **json)
{
    const char *dir = run->job->checkpoint_dir;
    weft_ckpt *c = NULL;
    weft_status st;

    *json = NULL;
    if (!dir || !*dir)
        return WEFT_OK;
    st = weft_ckpt_open_latest(run->ctx, dir, &c);
    if (st == WEFT_ENOENT)
        return WEFT_OK; /* the first start */
    run->resumes = !st;
    if (!st)
        st = weft_ckpt_blob_read(c, WF_CKPT_BASE, json, NULL);
    weft_ckpt_close(c);
    return st == WEFT_ENOENT ? WEFT_OK : st;
}

static weft_status read_base(weft_job_run *run, char **json)
{
    const struct wf_job_base *b = &run->job->base;
    struct wf_saved from = {0};
    weft_status st = wf_saved_open(run->ctx, b->file, &from);

    if (!st)
        st = wf_err_wrap(wf_saved_model(&from, json), "%s", b->file);
    wf_saved_close(&from);
    return st ? wf_yaml_wrap(&run->job->yaml, b->file_node, st) : WEFT_OK;
}

static weft_status freeze_base(weft_job_run *run)
{
    const struct wf_yaml_node *n = run->job->base.freeze;
    int rc;

    if (!n || !weft_model_n_layers(run->model))
        return WEFT_OK;
    rc = weft_model_freeze(run->model, "*", for_all(n) == 1);
    return rc < 0 ? rc : WEFT_OK;
}

weft_status wf_job_open_base(weft_job_run *run)
{
    const struct wf_job_base *b = &run->job->base;
    weft_model *whole = NULL;
    weft_status st = look_back(run, &run->base_json);

    if (st || !b->file)
        return st;
    if (!run->base_json)
        st = read_base(run, &run->base_json);
    if (st)
        return st;
    st = weft_model_parse(run->ctx, run->base_json, (int64_t)strlen(run->base_json), &whole);
    if (st)
        return wf_yaml_wrap(&run->job->yaml, b->file_node, wf_err_wrap(st, "%s", b->file));
    if (b->until || b->drop) {
        st = weft_model_cut(whole, WEFT_OPTS(weft_cut_opts, .until = b->until, .drop = b->drop),
                            &run->model);
        weft_model_free(whole);
        if (st)
            return wf_yaml_wrap(&run->job->yaml, b->until_node, st);
    } else {
        run->model = whole;
    }
    run->n_base_layers = weft_model_n_layers(run->model);
    return freeze_base(run);
}

/* ---- freezing -------------------------------------------------------------------------------- */

static weft_status freeze_named(weft_job_run *run, const struct wf_yaml_node *n)
{
    int rc = weft_model_freeze(run->model, n->text, true);

    return rc < 0 ? wf_yaml_wrap(&run->job->yaml, n, rc) : WEFT_OK;
}

weft_status wf_job_freeze(weft_job_run *run)
{
    const struct wf_yaml_node *n = run->job->base.freeze;
    weft_status st = WEFT_OK;

    if (!n)
        return WEFT_OK;
    if (n->kind == WF_YAML_LIST) {
        for (int64_t i = 0; i < n->n && !st; i++)
            st = freeze_named(run, n->item[i]);
        return st;
    }
    if (for_all(n) < 0)
        return freeze_named(run, n);
    if (for_all(n) == 1 && !run->n_base_layers) {
        int rc = weft_model_freeze(run->model, "*", true);

        st = rc < 0 ? rc : WEFT_OK;
    }
    return st;
}

weft_status wf_job_check_trained(const weft_job_run *run)
{
    const weft_job *job = run->job;
    const struct wf_yaml_node *at = job->base.freeze ? job->base.freeze : job->model;
    int n = wf_model_n_weights(run->model), n_params = 0;

    for (int i = 0; i < n; i++) {
        const struct wf_weight *w = wf_model_weight(run->model, i);

        if (w->state)
            continue;
        n_params++;
        if (!weft_layer_frozen(run->model, w->layer))
            return WEFT_OK;
    }
    return wf_yaml_err(&job->yaml, at, WEFT_EINVAL,
                       n_params ? "every layer with weights is frozen: there is nothing to train"
                                : "no layer has weights: there is nothing to train");
}

/* ---- weights --------------------------------------------------------------------------------- */

static weft_status load_named(weft_job_run *run)
{
    const struct wf_job_base *b = &run->job->base;
    int n = 0;
    weft_status st = weft_trainer_load_weights(
        run->trainer, b->weights,
        WEFT_OPTS(weft_load_opts, .by_name = b->by_name, .skip_mismatch = b->skip_mismatch,
                  .prefix = b->prefix && *b->prefix ? b->prefix : NULL),
        &n);

    if (!st && n == 0)
        st = wf_err(WEFT_ENOENT, "%s: the model has no weight with a requested name", b->weights);
    if (st)
        return wf_yaml_wrap(&run->job->yaml, b->weights_node, st);
    wf_log(run->ctx, WEFT_LOG_INFO, "%d of %d weights come from %s", n,
           weft_trainer_n_weights(run->trainer), b->weights);
    return WEFT_OK;
}

static weft_status load(weft_job_run *run)
{
    const struct wf_job_base *b = &run->job->base;
    struct wf_saved from = {0};
    int n = 0;
    weft_status st = WEFT_OK;

    if (b->file) {
        st = wf_saved_open(run->ctx, b->file, &from);
        if (!st)
            st = wf_err_wrap(wf_saved_weights(&from, run->trainer, NULL, run->n_base_layers, &n),
                             "%s", b->file);
        wf_saved_close(&from);
        if (st)
            return wf_yaml_wrap(&run->job->yaml, b->file_node, st);
        wf_log(run->ctx, WEFT_LOG_INFO, "%d of %d weights come from %s", n,
               weft_trainer_n_weights(run->trainer), b->file);
    }
    return b->weights ? load_named(run) : WEFT_OK;
}

weft_status wf_job_load_base(weft_job_run *run)
{
    const struct wf_job_base *b = &run->job->base;

    run->trainer->base = run->base_json;
    if (run->resumes || (!b->file && !b->weights))
        return WEFT_OK;
    run->loads_late = run->dist != NULL;
    return run->loads_late ? WEFT_OK : load(run);
}

/* Once: a worker that takes over begins to train, too. */
static weft_status load_late(void *arg, weft_trainer *t)
{
    weft_job_run *run = arg;
    bool late = run->loads_late;

    (void)t;
    run->loads_late = false;
    return late ? load(run) : WEFT_OK;
}

weft_callback wf_job_late_base(weft_job_run *run)
{
    return (weft_callback){
        .size = sizeof(weft_callback), .name = "model", .arg = run, .train_begin = load_late};
}
