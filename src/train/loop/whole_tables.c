/* whole_tables.c - checkpoints of tables that the strategy holds: as a whole, in memory of the
 * process that writes or reads one, so that they are like those of any other strategy. */
#include <stdio.h>

#include "train/loop/checkpoint.h"
#include "train/step/work.h"

/* With slots, of all tables. */
#define MAX_BYTES ((int64_t)1 << 30)

struct wf_whole_table {
    struct wf_whole_table *next;
    const struct wf_segment *seg;
    float *rows, *slot[WF_OPTIM_MAX_SLOTS];
};

static weft_status too_large(const struct wf_segment *seg, int64_t bytes)
{
    return wf_err(
        WEFT_ELIMIT,
        "table '%s' of %lld rows is held by servers; with the optimizer's slots the tables "
        "have %lld bytes, and checkpoints can have %lld of them: train without a "
        "checkpoint directory, or with smaller tables",
        seg->name, (long long)seg->type.dim[0], (long long)bytes, (long long)MAX_BYTES);
}

static weft_status add(struct wf_resume *r, int64_t *cap, const struct wf_segment *seg, float *data,
                       int k)
{
    weft_tensor t = weft_view(WEFT_F32, data, 2, seg->type.dim);
    size_t n = strlen(seg->name) + 16;
    char *name;

    if (k < 0)
        return wf_resume_add(r, cap, seg->name, "param", &t);
    name = wf_arena_alloc(&r->arena, n);
    if (!name)
        return wf_err_nomem(r->t->ctx, n, "checkpoint");
    snprintf(name, n, "%s:slot%d", seg->name, k);
    return wf_resume_add(r, cap, name, "slot", &t);
}

weft_status wf_whole_add(struct wf_resume *r, int64_t *cap, const struct wf_segment *seg)
{
    struct wf_whole_table *w;
    int64_t bytes;
    weft_status st = WEFT_OK;

    if (!wf_mul_i64(seg->count, (1 + seg->n_slots) * (int64_t)sizeof(float), &bytes) ||
        bytes > MAX_BYTES - r->table_bytes)
        return too_large(seg, r->table_bytes + bytes);
    r->table_bytes += bytes;
    w = wf_alloc(r->t->ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(r->t->ctx, sizeof *w, "checkpoint");
    w->next = r->tables;
    w->seg = seg;
    r->tables = w;
    for (int k = -1; k < seg->n_slots && !st; k++) {
        float *data = wf_alloc_raw(r->t->ctx, (size_t)(seg->count + 1) * sizeof *data);

        if (!data)
            return wf_err_nomem(r->t->ctx, (size_t)seg->count * sizeof *data, "checkpoint");
        *(k < 0 ? &w->rows : &w->slot[k]) = data;
        st = add(r, cap, seg, data, k);
    }
    return st;
}

weft_status wf_whole_bring(const struct wf_resume *r)
{
    weft_status st = WEFT_OK;

    for (const struct wf_whole_table *w = r->tables; w && !st; w = w->next)
        st = wf_table_dense(r->t, w->seg, w->rows, w->slot, NULL);
    return st;
}

weft_status wf_whole_give(const struct wf_resume *r)
{
    weft_status st = WEFT_OK;

    for (const struct wf_whole_table *w = r->tables; w && !st; w = w->next)
        st = wf_table_store(r->t, w->seg, w->rows, (const float *const *)w->slot);
    return st;
}

void wf_whole_free(struct wf_resume *r)
{
    struct wf_whole_table *w = r->tables, *next;

    for (; w; w = next) {
        next = w->next;
        wf_free(r->t->ctx, w->rows);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            wf_free(r->t->ctx, w->slot[k]);
        wf_free(r->t->ctx, w);
    }
    r->tables = NULL;
}
