/* later.c - a checkpoint that waits until servers have what callbacks have just set.
 *
 * The state of the loop is that of the boundary at which callbacks were called; tensors are those
 * that the servers have after it. So a run that resumes from it continues after the callbacks. */
#include "train/loop/checkpoint.h"

struct wf_later {
    weft_ckpt_data data;
    struct wf_arena mem;
};

static const char *copy_text(struct wf_arena *mem, const char *text)
{
    size_t n = text ? strlen(text) + 1 : 0;
    char *to = n ? wf_arena_alloc(mem, n) : NULL;

    return to ? memcpy(to, text, n) : NULL;
}

static weft_status copy_blobs(struct wf_later *l, const weft_ckpt_data *from)
{
    weft_ckpt_blob *blob = wf_arena_alloc(&l->mem, (size_t)(from->n_blobs + 1) * sizeof *blob);

    for (int64_t i = 0; i < from->n_blobs && blob; i++) {
        char *bytes = wf_arena_alloc(&l->mem, (size_t)from->blobs[i].bytes + 1);

        blob[i] = from->blobs[i];
        blob[i].name = copy_text(&l->mem, from->blobs[i].name);
        blob[i].data = bytes;
        if (!bytes || !blob[i].name)
            return WEFT_ENOMEM;
        memcpy(bytes, from->blobs[i].data, (size_t)from->blobs[i].bytes);
    }
    l->data.blobs = blob;
    return blob ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status copy_pairs(struct wf_later *l, const weft_ckpt_data *from)
{
    weft_ckpt_metric *metric =
        wf_arena_alloc(&l->mem, (size_t)(from->n_metrics + 1) * sizeof *metric);
    weft_ckpt_pair *meta = wf_arena_alloc(&l->mem, (size_t)(from->n_meta + 1) * sizeof *meta);
    bool ok = metric && meta;

    for (int64_t i = 0; i < from->n_metrics && ok; i++) {
        metric[i] = from->metrics[i];
        metric[i].name = copy_text(&l->mem, from->metrics[i].name);
        ok = metric[i].name;
    }
    for (int64_t i = 0; i < from->n_meta && ok; i++) {
        meta[i].key = copy_text(&l->mem, from->meta[i].key);
        meta[i].value = copy_text(&l->mem, from->meta[i].value);
        ok = meta[i].key && meta[i].value;
    }
    l->data.metrics = metric;
    l->data.meta = meta;
    return ok ? WEFT_OK : WEFT_ENOMEM;
}

weft_status wf_later_keep(struct wf_resume *r, const weft_ckpt_data *data)
{
    struct wf_later *l = wf_alloc(r->t->ctx, sizeof *l);
    weft_status st;

    wf_resume_drop_later(r);
    if (!l)
        return wf_err_nomem(r->t->ctx, sizeof *l, "checkpoint");
    l->data = *data;
    wf_arena_init(&l->mem, r->t->ctx);
    r->later = l;
    st = copy_blobs(l, data);
    if (!st)
        st = copy_pairs(l, data);
    if (!st)
        return WEFT_OK;
    wf_resume_drop_later(r);
    return wf_err_nomem(r->t->ctx, 0, "checkpoint");
}

weft_status wf_resume_save_later(struct wf_resume *r)
{
    weft_status st = r->later ? wf_served_save(r, &r->later->data) : WEFT_OK;

    wf_resume_drop_later(r);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

void wf_resume_drop_later(struct wf_resume *r)
{
    if (!r->later)
        return;
    wf_arena_free(&r->later->mem);
    wf_free(r->t->ctx, r->later);
    r->later = NULL;
}
