/* save.c - a model and its weights as one safetensors file, which any reader of that format can
 * open: the architecture is in its metadata under "weft.model". What the pipeline has learned is a
 * vector of bytes, "weft.learned": vocabularies may be larger than a header. */
#include <stdio.h>

#include "train/saved/load.h"
#include "train/saved/save.h"
#include "train/step/dist.h"
#include "train/step/work.h"

/* A table that the strategy holds, as a whole, in memory of its own: a file has all rows. */
static weft_status read_table(weft_trainer *t, const struct wf_segment *seg, weft_tensor *out)
{
    float *rows = wf_alloc_n(t->ctx, seg->count + 1, sizeof *rows);
    weft_status st = rows ? wf_table_values(t, seg, rows)
                          : wf_err_nomem(t->ctx, (size_t)seg->count * sizeof *rows, "the values");

    if (st) {
        wf_free(t->ctx, rows);
        return wf_err_wrap(st, "table '%s', which servers hold", seg->name);
    }
    *out = weft_view(WEFT_F32, rows, 2, seg->type.dim);
    return WEFT_OK;
}

weft_status wf_trainer_save(weft_trainer *t, const char *path, bool weights_only)
{
    int n_weights = weft_trainer_n_weights(t), n = n_weights, n_meta = 0;
    const char **names = wf_alloc_n(t->ctx, n + 2, sizeof *names);
    weft_tensor *values = wf_alloc_n(t->ctx, n + 2, sizeof *values);
    bool *held = wf_alloc_n(t->ctx, n + 1, sizeof *held); /* read into memory of their own */
    const char *keys[3 + WF_N_SAID], *texts[3 + WF_N_SAID];
    char *json = NULL;
    weft_status st = names && values && held ? WEFT_OK : wf_err_nomem(t->ctx, 0, "a model to save");

    for (int i = 0; i < n_weights && !st; i++) {
        const struct wf_segment *seg;

        names[i] = weft_trainer_weight_name(t, i);
        seg = wf_weight_segment(t, names[i]);
        held[i] = seg && seg->remote;
        st =
            held[i] ? read_table(t, seg, &values[i]) : weft_trainer_weight(t, names[i], &values[i]);
        held[i] &= !st;
    }
    if (!st && !weights_only)
        st = weft_model_json(t->model, &json);
    if (!st && !weights_only && t->learned) {
        names[n] = WF_SAVE_LEARNED;
        values[n++] =
            (weft_tensor){.dtype = WEFT_U8, .rank = 1, .dim = {t->n_learned}, .data = t->learned};
    }
    if (!st) {
        keys[n_meta] = "format";
        texts[n_meta++] = "weft";
        keys[n_meta] = "weft.version";
        texts[n_meta++] = weft_version();
        if (json) {
            keys[n_meta] = WF_SAVE_MODEL;
            texts[n_meta++] = json;
            for (int i = 0; i < WF_N_SAID; i++)
                if (t->said[i]) {
                    keys[n_meta] = wf_said_key(i);
                    texts[n_meta++] = t->said[i];
                }
        }
        st = weft_st_write(t->ctx, path, n, names, values, n_meta, keys, texts);
    }
    weft_text_free(t->ctx, json);
    for (int i = 0; i < n_weights && held && values; i++)
        if (held[i])
            wf_free(t->ctx, values[i].data);
    wf_free(t->ctx, held);
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
    struct wf_saved from = {0};
    char *json = NULL;
    weft_status st = wf_saved_open(ctx, path, &from);

    if (st)
        return wf_err_wrap(st, "load");
    st = wf_saved_model(&from, &json);
    if (!st)
        st = into ? weft_model_read(into, json, (int64_t)strlen(json))
                  : weft_model_parse(ctx, json, (int64_t)strlen(json), out);
    weft_text_free(ctx, json);
    wf_saved_close(&from);
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

weft_status weft_trainer_load_weights(weft_trainer *t, const char *path, const weft_load_opts *opts,
                                      int *n_loaded)
{
    struct wf_saved from = {0};
    weft_status st = wf_saved_open(t->ctx, path, &from);

    if (st)
        return wf_err_wrap(st, "load");
    st = wf_saved_weights(&from, t, opts, -1, n_loaded);
    wf_saved_close(&from);
    return st ? wf_err_wrap(st, "load: %s", path) : WEFT_OK;
}

weft_status weft_trainer_copy_weights(weft_trainer *t, weft_trainer *from,
                                      const weft_load_opts *opts, int *n_copied)
{
    struct wf_saved s = {.ctx = t->ctx, .trainer = from};
    weft_status st = wf_trainer_bind_predict(from);

    if (!st)
        st = wf_saved_weights(&s, t, opts, -1, n_copied);
    return st ? wf_err_wrap(st, "copy weights") : WEFT_OK;
}
