/* evict.c - tables in this process's memory that forget rows: they are counted with each step, and
 * at steps divisible by a number those that were not updated for long become initial ones, with
 * fresh slots. Servers do the same with the rows that they hold (ps/tables.c). */
#include "train/step/dist.h"

static weft_status open_segment(weft_trainer *t, const struct wf_weight *weight,
                                struct wf_segment *seg)
{
    struct wf_arena arena;
    weft_status st;

    wf_arena_init(&arena, t->ctx);
    st = wf_evict_parse(&arena, weight->evict, &seg->evict);
    wf_arena_free(&arena);
    if (!st && !wf_initial_by_rows(wf_initial_of(t->ctx, seg->node).kind))
        st = wf_err(WEFT_ENOSUP, "evict: its initializer does not give rows one by one, so a row "
                                 "cannot become its initial value again: use another initializer");
    if (!st && !seg->remote && !seg->seen) {
        seg->seen = wf_alloc_n(t->ctx, seg->type.dim[0] + 1, sizeof *seg->seen);
        if (!seg->seen)
            st = wf_err_nomem(t->ctx, (size_t)seg->type.dim[0] * sizeof *seg->seen, "rows counted");
    }
    return st ? wf_err_wrap(st, "weight '%s'", weight->name) : WEFT_OK;
}

weft_status wf_evict_open(weft_trainer *t)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < wf_model_n_weights(t->model) && !st; i++) {
        const struct wf_weight *weight = wf_model_weight(t->model, i);
        struct wf_segment *seg =
            weight->evict ? wf_store_find(t->bound->fit->store, weight->name) : NULL;

        if (seg && seg->evict.every == 0 && !weft_layer_frozen(t->model, weight->layer))
            st = open_segment(t, weight, seg);
    }
    return st;
}

static struct wf_segment *counted(const struct wf_work *w, int v)
{
    const struct wf_store *s = w->b->fit->store;
    struct wf_segment *seg = &s->seg[s->by_number[w->segment[v]]];

    return seg->seen ? seg : NULL;
}

/* Row `id` is as before its first update. */
static weft_status forget(struct wf_work *w, int v, struct wf_segment *seg, int64_t id)
{
    const struct wf_table_data *d = &w->now.table[v];
    int64_t width = seg->type.dim[1];

    for (int k = 0; k < seg->n_slots; k++)
        for (int64_t i = 0; i < width; i++)
            d->slot[k][id * width + i] = seg->slot_init[k];
    seg->seen[id] = (struct wf_seen){0, 0};
    return wf_init_rows(w->ctx, seg->node, &seg->type, 1, &id, d->w + id * width);
}

weft_status wf_evict_step(struct wf_work *w, const struct wf_contribution *mean,
                          const struct wf_step *step)
{
    weft_status st = WEFT_OK;

    for (int v = 0; v < w->rules.n_vars && !st; v++) {
        struct wf_segment *seg = counted(w, v);
        const struct wf_rows *rows = &mean->rows[v];

        if (!seg)
            continue;
        for (int64_t i = 0; i < rows->n && (!step->chosen || step->chosen[v]); i++)
            wf_see(&seg->seen[rows->id[i]], step->iteration);
        for (int64_t id = 0;
             step->iteration % seg->evict.every == 0 && id < seg->type.dim[0] && !st; id++)
            if (seg->seen[id].count > 0 && wf_evicted(&seg->evict, &seg->seen[id], step->iteration))
                st = forget(w, v, seg, id);
    }
    return st;
}
