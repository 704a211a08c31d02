/* save.c - a model and its weights as one safetensors file, which any reader of that format
 * opens: the architecture stands in its metadata under "weft.model". Nothing is changed in a
 * trainer before every weight of the file was looked at. */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "train/save.h"

weft_status wf_trainer_save(weft_trainer *t, const char *path, bool weights_only)
{
    int n = weft_trainer_n_weights(t), n_meta = 0;
    const char **names = wf_alloc_n(t->ctx, n + 1, sizeof *names);
    weft_tensor *values = wf_alloc_n(t->ctx, n + 1, sizeof *values);
    const char *keys[3], *texts[3];
    char *json = NULL;
    weft_status st = names && values ? WEFT_OK : wf_err_nomem(t->ctx, 0, "a model to save");

    for (int i = 0; i < n && !st; i++) {
        names[i] = weft_trainer_weight_name(t, i);
        st = weft_trainer_weight(t, names[i], &values[i]);
    }
    if (!st && !weights_only)
        st = weft_model_json(t->model, &json);
    if (!st) {
        keys[n_meta] = "format";
        texts[n_meta++] = "weft";
        keys[n_meta] = "weft.version";
        texts[n_meta++] = weft_version();
        if (json) {
            keys[n_meta] = WF_SAVE_MODEL;
            texts[n_meta++] = json;
        }
        st = weft_st_write(t->ctx, path, n, names, values, n_meta, keys, texts);
    }
    weft_text_free(t->ctx, json);
    wf_free(t->ctx, names);
    wf_free(t->ctx, values);
    return st ? wf_err_wrap(st, "save") : WEFT_OK;
}

weft_status weft_trainer_save(weft_trainer *t, const char *path)
{
    return wf_trainer_save(t, path, false);
}

/* into NULL: a new model, in *out. */
static weft_status load_model(weft_ctx *ctx, const char *path, weft_model *into, weft_model **out)
{
    weft_st *file = NULL;
    const char *json;
    weft_status st = weft_st_open(ctx, path, &file);

    if (st)
        return wf_err_wrap(st, "load");
    json = weft_st_metadata(file, WF_SAVE_MODEL);
    if (!json)
        st = wf_err(WEFT_EPARSE,
                    "it has no \"%s\" in its metadata: these are weights without a model",
                    WF_SAVE_MODEL);
    if (!st)
        st = into ? weft_model_read(into, json, (int64_t)strlen(json))
                  : weft_model_parse(ctx, json, (int64_t)strlen(json), out);
    weft_st_close(file);
    return st ? wf_err_wrap(st, "load: %s", path) : WEFT_OK;
}

weft_status weft_model_load(weft_ctx *ctx, const char *path, weft_model **out)
{
    return load_model(ctx, path, NULL, out);
}

weft_status weft_model_load_into(weft_model *m, const char *path)
{
    return load_model(wf_model_ctx(m), path, m, NULL);
}

/* ---- weights by name ------------------------------------------------------------------------- */

struct loading {
    weft_trainer *t;
    weft_st *file;
    const weft_load_opts *o;
    int64_t *from; /* for each weight: which tensor of the file, or -1 */
    int n;
};

static bool wanted(const struct loading *l, const char *name)
{
    const char *prefix = l->o->prefix;

    return !prefix || strncmp(name, prefix, strlen(prefix)) == 0;
}

static weft_status missing(const struct loading *l, const char *name)
{
    int64_t n = weft_st_n(l->file);
    const char **names = wf_alloc_n(l->t->ctx, n + 1, sizeof *names), *near;
    weft_status st;

    if (!names)
        return wf_err_nomem(l->t->ctx, 0, "names of weights");
    for (int64_t i = 0; i < n; i++) {
        weft_tensor type;

        if (weft_st_type(l->file, i, &names[i], &type) && !names[i])
            names[i] = "";
    }
    near = weft_nearest(name, names, (int)n);
    st = wf_err(WEFT_ENOENT, "the file has no weight '%s'%s%s%s; by_name loads those it has", name,
                near ? " (it has '" : "", near ? near : "", near ? "')" : "");
    wf_free(l->t->ctx, names);
    return st;
}

/* Do shapes fit? A mismatch is left out with a warning where that is asked for. */
static weft_status check(struct loading *l, int i, const char *name)
{
    char here[WF_TYPE_TEXT], there[WF_TYPE_TEXT];
    struct wf_type a, b;
    weft_tensor mine, its;
    weft_status st = weft_trainer_weight(l->t, name, &mine);

    if (!st)
        st = weft_st_type(l->file, l->from[i], NULL, &its);
    if (st)
        return wf_err_wrap(st, "weight '%s'", name);
    a = wf_type_of(mine.dtype, mine.rank, mine.dim);
    b = wf_type_of(its.dtype, its.rank, its.dim);
    if (a.dtype == b.dtype && a.rank == b.rank &&
        memcmp(a.dim, b.dim, (size_t)a.rank * sizeof a.dim[0]) == 0)
        return WEFT_OK;
    wf_type_text(&a, here);
    wf_type_text(&b, there);
    if (!l->o->skip_mismatch)
        return wf_err(a.dtype == b.dtype ? WEFT_ESHAPE : WEFT_EDTYPE,
                      "weight '%s' is %s in the model and %s in the file", name, here, there);
    wf_log(l->t->ctx, WEFT_LOG_WARN, "weight '%s' is left out: %s in the model, %s in the file",
           name, here, there);
    l->from[i] = -1;
    return WEFT_OK;
}

/* Strict loading takes all of the file, too. */
static weft_status nothing_left(const struct loading *l)
{
    for (int64_t k = 0; k < weft_st_n(l->file); k++) {
        weft_tensor type;
        const char *name = "";
        bool used = false;

        (void)weft_st_type(l->file, k, &name, &type);
        for (int i = 0; i < l->n && !used; i++)
            used = l->from[i] == k;
        if (!used && wanted(l, name))
            return wf_err(WEFT_ENOENT, "the model has no weight '%s' of the file", name);
    }
    return WEFT_OK;
}

static weft_status match(struct loading *l)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < l->n && !st; i++) {
        const char *name = weft_trainer_weight_name(l->t, i);

        l->from[i] = wanted(l, name) ? weft_st_find(l->file, name) : -1;
        if (l->from[i] >= 0)
            st = check(l, i, name);
        else if (wanted(l, name) && !l->o->by_name)
            st = missing(l, name);
    }
    return st || l->o->by_name || l->o->skip_mismatch ? st : nothing_left(l);
}

static weft_status copy(const struct loading *l, int *n_loaded)
{
    weft_status st = WEFT_OK;

    *n_loaded = 0;
    for (int i = 0; i < l->n && !st; i++) {
        const char *name = weft_trainer_weight_name(l->t, i);
        weft_tensor w;

        if (l->from[i] < 0)
            continue;
        st = weft_trainer_weight(l->t, name, &w);
        if (!st)
            st = weft_st_read(l->file, l->from[i], w.data, weft_tensor_bytes(&w));
        *n_loaded += !st;
    }
    return st;
}

weft_status weft_trainer_load_weights(weft_trainer *t, const char *path, const weft_load_opts *opts,
                                      int *n_loaded)
{
    static const weft_load_opts defaults = {.size = sizeof defaults};
    struct loading l = {.t = t, .o = opts ? opts : &defaults, .n = weft_trainer_n_weights(t)};
    int n = 0;
    weft_status st = wf_opts_check(opts, sizeof *opts, "weft_load_opts");

    if (!st)
        st = weft_st_open(t->ctx, path, &l.file);
    if (st)
        return wf_err_wrap(st, "load");
    l.from = wf_alloc_n(t->ctx, l.n + 1, sizeof *l.from);
    st = l.from ? match(&l) : wf_err_nomem(t->ctx, 0, "weights to load");
    if (!st)
        st = copy(&l, &n);
    if (!st && n_loaded)
        *n_loaded = n;
    wf_free(t->ctx, l.from);
    weft_st_close(l.file);
    return st ? wf_err_wrap(st, "load: %s", path) : WEFT_OK;
}
