/* events.c - what is still to happen in a simulated job, by time. */
#include "world.h"

#include <stdlib.h>

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void insert(struct world *w, struct event *e)
{
    int64_t i;

    if (wf_grow(w->ctx, &w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap))
        abort();
    for (i = w->n_heap++; i > 0 && earlier(e, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
}

struct event *sim_add_event(struct world *w, int64_t at, enum event_kind kind, int node)
{
    struct event *e = w->spare;

    if (e)
        w->spare = e->next;
    else
        e = malloc(sizeof *e);
    *e = (struct event){.at = at, .order = w->order++, .kind = kind, .node = node};
    insert(w, e);
    return e;
}

void sim_postpone(struct world *w, struct event *e, int64_t at)
{
    e->at = at;
    e->order = w->order++;
    insert(w, e);
}

struct event *sim_next_event(struct world *w)
{
    struct event *first, *last;
    int64_t i = 0;

    if (w->n_heap == 0)
        return NULL;
    first = w->heap[0];
    last = w->heap[--w->n_heap];
    for (;;) {
        int64_t k = 2 * i + 1;

        if (k >= w->n_heap)
            break;
        if (k + 1 < w->n_heap && earlier(w->heap[k + 1], w->heap[k]))
            k++;
        if (earlier(last, w->heap[k]))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    if (w->n_heap)
        w->heap[i] = last;
    return first;
}

void sim_free_event(struct world *w, struct event *e)
{
    wf_epoch_free(w->ctx, e->record);
    sim_payload_drop(e->payload);
    e->next = w->spare;
    w->spare = e;
}
