/* load.c - loads a model and its weights from a safetensors file, a checkpoint, or another trainer.
 * Nothing in a trainer is changed before every weight was checked. */
#include <stdio.h>

#include "train/loop/checkpoint.h"
#include "train/saved/save.h"
#include "train/saved/load.h"
#include "train/step/dist.h"
#include "train/step/work.h"

/* ---- the three places ------------------------------------------------------------------------ */

weft_status wf_saved_open(weft_ctx *ctx, const char *path, struct wf_saved *out)
{
    struct wf_file_info info;
    char manifest[WF_CKPT_PATH];
    int rc = ctx->fs->stat(ctx->fs->arg, path, &info);
    weft_status st;

    *out = (struct wf_saved){.ctx = ctx};
    if (rc < 0)
        return wf_file_err(rc, path, "cannot open");
    if (!info.folder)
        return weft_st_open(ctx, path, &out->file);
    st = wf_ckpt_join(manifest, path, WF_CKPT_MANIFEST);
    if (st)
        return st;
    return ctx->fs->stat(ctx->fs->arg, manifest, &info) == 0
               ? weft_ckpt_open(ctx, path, &out->ckpt)
               : weft_ckpt_open_latest(ctx, path, &out->ckpt);
}

void wf_saved_close(struct wf_saved *s)
{
    weft_st_close(s->file);
    weft_ckpt_close(s->ckpt);
    *s = (struct wf_saved){0};
}

weft_status wf_saved_model(const struct wf_saved *s, char **json)
{
    const char *text;

    if (s->ckpt)
        return weft_ckpt_blob_read(s->ckpt, WEFT_CKPT_MODEL, json, NULL);
    text = weft_st_metadata(s->file, WF_SAVE_MODEL);
    if (!text)
        return wf_err(WEFT_EPARSE,
                      "it has no \"%s\" in its metadata: these are weights without a model",
                      WF_SAVE_MODEL);
    *json = wf_strdup(s->ctx, text);
    return *json ? WEFT_OK : wf_err_nomem(s->ctx, strlen(text), "a model");
}

weft_status wf_saved_learned(const struct wf_saved *s, char **text, int64_t *n)
{
    int64_t i = s->file ? weft_st_find(s->file, WF_SAVE_LEARNED) : -1;
    weft_tensor t;
    weft_status st;

    if (s->ckpt)
        return weft_ckpt_blob_read(s->ckpt, WEFT_CKPT_LEARNED, text, n);
    if (i < 0)
        return wf_err(WEFT_ENOENT, "it contains nothing that a pipeline has learned");
    st = weft_st_type(s->file, i, NULL, &t);
    if (!st && (t.dtype != WEFT_U8 || t.rank != 1))
        st = wf_err(WEFT_EPARSE, "'%s' is not a vector of bytes", WF_SAVE_LEARNED);
    if (st)
        return st;
    *text = wf_alloc(s->ctx, (size_t)t.dim[0] + 1);
    if (!*text)
        return wf_err_nomem(s->ctx, (size_t)t.dim[0], "learned values");
    st = weft_st_read(s->file, i, *text, t.dim[0]);
    if (st) {
        wf_free(s->ctx, *text);
        *text = NULL;
    }
    *n = t.dim[0];
    return st;
}

static const char *place(const struct wf_saved *s)
{
    return s->file ? "file" : s->ckpt ? "checkpoint" : "other model";
}

static int64_t n_tensors(const struct wf_saved *s)
{
    return s->file   ? weft_st_n(s->file)
           : s->ckpt ? weft_ckpt_info(s->ckpt)->n_tensors
                     : weft_trainer_n_weights(s->trainer);
}

/* The name of tensor i; "" for what is not a weight: the optimizer's slots, what was learned. */
static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

static const char *name_of(const struct wf_saved *s, int64_t i)
{
    const weft_ckpt_tensor *c = s->ckpt ? &weft_ckpt_info(s->ckpt)->tensors[i] : NULL;
    const char *name = "";
    weft_tensor type;

    if (c)
        return (c->section && strcmp(c->section, "slot") == 0) || ends_with(c->name, ":ids")
                   ? ""
                   : c->name;
    if (s->trainer)
        return weft_trainer_weight_name(s->trainer, (int)i);
    (void)weft_st_type(s->file, i, &name, &type); /* the name is set for any dtype */
    return strcmp(name, WF_SAVE_LEARNED) == 0 ? "" : name;
}

static int64_t find(const struct wf_saved *s, const char *name)
{
    int64_t i = s->file ? weft_st_find(s->file, name) : s->ckpt ? weft_ckpt_find(s->ckpt, name) : 0;

    if (s->ckpt && i < 0) { /* of a table that servers held there are rows */
        char rows[600];

        snprintf(rows, sizeof rows, "%s:rows", name);
        i = weft_ckpt_find(s->ckpt, rows);
    }
    if (!s->trainer)
        return i >= 0 && *name_of(s, i) ? i : -1;
    while (i < n_tensors(s) && strcmp(name_of(s, i), name))
        i++;
    return i < n_tensors(s) ? i : -1;
}

/* A table that the trainer's strategy holds; NULL: the weight is in this process. */
static const struct wf_segment *held(const weft_trainer *t, const char *name)
{
    const struct wf_segment *seg = wf_weight_segment(t, name);

    return seg && seg->remote ? seg : NULL;
}

/* Without data, if it is held elsewhere. */
static weft_status weight_of(weft_trainer *t, const char *name, weft_tensor *out)
{
    const struct wf_segment *seg = held(t, name);

    if (!seg)
        return weft_trainer_weight(t, name, out);
    *out = weft_view(WEFT_F32, NULL, 2, seg->type.dim);
    return WEFT_OK;
}

static weft_status type_of(const struct wf_saved *s, int64_t i, weft_tensor *out)
{
    if (s->file)
        return weft_st_type(s->file, i, NULL, out);
    if (s->trainer)
        return weight_of(s->trainer, name_of(s, i), out);
    *out = weft_ckpt_info(s->ckpt)->tensors[i].tensor;
    return WEFT_OK;
}

/* Whether tensor i is not the weight itself, but those rows of it that exist. */
static bool is_rows(const struct wf_saved *s, int64_t i, const char *name)
{
    return s->ckpt && strcmp(weft_ckpt_info(s->ckpt)->tensors[i].name, name) != 0;
}

static weft_status read_into(const struct wf_saved *s, int64_t i, const weft_tensor *to)
{
    weft_tensor from;
    weft_status st;

    if (s->file)
        return weft_st_read(s->file, i, to->data, weft_tensor_bytes(to));
    if (s->ckpt)
        return weft_ckpt_read(s->ckpt, i, to);
    if (held(s->trainer, name_of(s, i)))
        return wf_table_values(s->trainer, held(s->trainer, name_of(s, i)), to->data);
    st = weft_trainer_weight(s->trainer, name_of(s, i), &from);
    if (!st)
        memmove(to->data, from.data, (size_t)weft_tensor_bytes(to));
    return st;
}

/* ---- weights by name ------------------------------------------------------------------------- */

struct loading {
    weft_trainer *t;
    const struct wf_saved *s;
    const weft_load_opts *o;
    int64_t n_layers; /* -1: all */
    int64_t *from;    /* for each weight: which tensor, or -1 */
    int n;
};

static bool has_prefix(const struct loading *l, const char *name)
{
    const char *prefix = l->o->prefix;

    return !prefix || strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool wanted(const struct loading *l, int i)
{
    const struct wf_weight *w = wf_model_weight(l->t->model, i);

    return (l->n_layers < 0 || w->layer.id <= l->n_layers) && has_prefix(l, w->name);
}

static weft_status missing(const struct loading *l, const char *name)
{
    int64_t n = n_tensors(l->s);
    const char **names = wf_alloc_n(l->t->ctx, n + 1, sizeof *names);
    struct wf_hint hint;

    if (!names)
        return wf_err_nomem(l->t->ctx, 0, "names of weights");
    for (int64_t i = 0; i < n; i++)
        names[i] = name_of(l->s, i);
    hint = wf_did_you_mean(name, names, (int)n);
    wf_free(l->t->ctx, names);
    return wf_err(WEFT_ENOENT, "the %s has no weight '%s'%s (by_name loads those it has)",
                  place(l->s), name, hint.text);
}

/* Whether shapes match. A mismatch is skipped with a warning if requested. */
static weft_status check(struct loading *l, int i, const char *name)
{
    char here[WF_TYPE_TEXT], there[WF_TYPE_TEXT];
    struct wf_type a, b;
    weft_tensor mine, its;
    weft_status st = weight_of(l->t, name, &mine);

    if (!st)
        st = type_of(l->s, l->from[i], &its);
    if (st)
        return wf_err_wrap(st, "weight '%s'", name);
    if (is_rows(l->s, l->from[i], name))
        its.dim[0] = mine.dim[0]; /* how many there are is not known, nor needed */
    a = wf_type_of(mine.dtype, mine.rank, mine.dim);
    b = wf_type_of(its.dtype, its.rank, its.dim);
    if (a.dtype == b.dtype && a.rank == b.rank &&
        memcmp(a.dim, b.dim, (size_t)a.rank * sizeof a.dim[0]) == 0)
        return WEFT_OK;
    wf_type_text(&a, here);
    wf_type_text(&b, there);
    if (!l->o->skip_mismatch)
        return wf_err(a.dtype == b.dtype ? WEFT_ESHAPE : WEFT_EDTYPE,
                      "weight '%s' is %s in the model and %s in the %s", name, here, there,
                      place(l->s));
    wf_log(l->t->ctx, WEFT_LOG_WARN, "weight '%s' is skipped: %s in the model, %s in the %s", name,
           here, there, place(l->s));
    l->from[i] = -1;
    return WEFT_OK;
}

/* Strict loading must also use all weights of the source. */
static weft_status nothing_left(const struct loading *l)
{
    for (int64_t k = 0; k < n_tensors(l->s); k++) {
        const char *name = name_of(l->s, k);
        bool used = !*name;

        for (int i = 0; i < l->n && !used; i++)
            used = l->from[i] == k;
        if (!used && has_prefix(l, name))
            return wf_err(WEFT_ENOENT, "the model has no weight '%s' of the %s", name, place(l->s));
    }
    return WEFT_OK;
}

static weft_status match(struct loading *l)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < l->n && !st; i++) {
        const char *name = weft_trainer_weight_name(l->t, i);

        l->from[i] = wanted(l, i) ? find(l->s, name) : -1;
        if (l->from[i] >= 0)
            st = check(l, i, name);
        else if (wanted(l, i) && !l->o->by_name)
            st = missing(l, name);
    }
    return st || l->n_layers >= 0 || l->o->by_name || l->o->skip_mismatch ? st : nothing_left(l);
}

static weft_status copy_one(const struct loading *l, int i, const weft_tensor *to)
{
    const char *name = weft_trainer_weight_name(l->t, i);

    return is_rows(l->s, l->from[i], name) ? wf_stored_weight(l->t, l->s->ckpt, name, to)
                                           : read_into(l->s, l->from[i], to);
}

/* To the servers that hold the table. */
static weft_status copy_held(const struct loading *l, int i, const struct wf_segment *seg)
{
    float *rows = wf_alloc_n(l->t->ctx, seg->count + 1, sizeof *rows);
    weft_tensor to = weft_view(WEFT_F32, rows, 2, seg->type.dim);
    weft_status st =
        rows ? copy_one(l, i, &to)
             : wf_err_nomem(l->t->ctx, (size_t)seg->count * sizeof *rows, "a table to load");

    if (!st)
        st = wf_table_set_values(l->t, seg, rows);
    wf_free(l->t->ctx, rows);
    return st;
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
        if (held(l->t, name)) {
            st = copy_held(l, i, held(l->t, name));
        } else {
            st = weft_trainer_weight(l->t, name, &w);
            if (!st)
                st = copy_one(l, i, &w);
        }
        *n_loaded += !st;
    }
    return st;
}

weft_status wf_saved_weights(const struct wf_saved *s, weft_trainer *t, const weft_load_opts *opts,
                             int64_t n_layers, int *n_loaded)
{
    weft_load_opts given;
    struct loading l = {
        .t = t, .s = s, .o = &given, .n_layers = n_layers, .n = weft_trainer_n_weights(t)};
    int n = 0;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_load_opts");

    if (st)
        return st;
    l.from = wf_alloc_n(t->ctx, l.n + 1, sizeof *l.from);
    st = l.from ? match(&l) : wf_err_nomem(t->ctx, 0, "weights to load");
    if (!st)
        st = copy(&l, &n);
    if (!st && n_loaded)
        *n_loaded = n;
    wf_free(t->ctx, l.from);
    return st;
}
