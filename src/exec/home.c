/* home.c - the copy of a store in the memory of a device.
 *
 * The host's vectors stay where they are. Each part of the store (parameters, slots, state, tables)
 * is valid in one of the two memories or in both, and is copied when the other needs it: before a
 * run on the device, and before somebody reads or writes the host's. */
#include "exec/exec.h"

enum wf_store_part wf_segment_part(const struct wf_segment *seg)
{
    return seg->table ? WF_PART_TABLES : seg->flat ? WF_PART_PARAMS : WF_PART_STATE;
}

void *wf_home_data(const struct wf_store *s, const struct wf_segment *seg)
{
    const struct wf_home *h = s->home;

    if (seg->table)
        return seg->home;
    return seg->flat ? (char *)h->params + seg->offset * (int64_t)sizeof(float)
                     : (char *)h->state + seg->offset;
}

void *wf_home_slot(const struct wf_store *s, const struct wf_segment *seg, int k)
{
    if (!seg->flat || seg->remote || k < 0 || k >= seg->n_slots)
        return NULL;
    return seg->table ? seg->home_slot[k]
                      : (char *)s->home->slot[k] + seg->offset * (int64_t)sizeof(float);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static weft_status copy(struct wf_home *h, bool pull, void *home, void *host, int64_t bytes)
{
    if (!home || !host)
        return WEFT_OK;
    return wf_dev_copy(h->dev, pull ? WEFT_COPY_OUT : WEFT_COPY_IN, pull ? host : home,
                       pull ? home : host, bytes);
}

static weft_status copy_tables(struct wf_store *s, bool pull, unsigned parts)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < s->n_seg && !st; i++) {
        struct wf_segment *seg = &s->seg[i];
        int64_t bytes = seg->count * (int64_t)sizeof(float);

        if (!seg->table || seg->remote)
            continue;
        if (parts & WF_PART_TABLES)
            st = copy(s->home, pull, seg->home, seg->data, bytes);
        for (int k = 0; k < seg->n_slots && !st && (parts & WF_PART_SLOTS); k++)
            st = copy(s->home, pull, seg->home_slot[k], seg->slot[k], bytes);
    }
    return st;
}

static weft_status copy_parts(struct wf_store *s, bool pull, unsigned parts)
{
    struct wf_home *h = s->home;
    int64_t bytes = s->n_params * (int64_t)sizeof(float);
    weft_status st = WEFT_OK;

    wf_dev_begin(h->dev);
    if (parts & WF_PART_PARAMS)
        st = copy(h, pull, h->params, s->params, bytes);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS && !st && (parts & WF_PART_SLOTS); k++)
        st = copy(h, pull, h->slot[k], s->slot[k], bytes);
    if (!st && (parts & WF_PART_STATE))
        st = copy(h, pull, h->state, s->state, s->n_state);
    if (!st && (parts & (WF_PART_TABLES | WF_PART_SLOTS)))
        st = copy_tables(s, pull, parts);
    return wf_dev_end(h->dev, st);
}

weft_status wf_store_pull(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;
    weft_status st = s->bring ? s->bring(s->watch_arg, parts) : WEFT_OK;

    if (st || !h)
        return st;
    pthread_mutex_lock(&h->lock);
    parts &= h->old_host;
    if (parts)
        st = copy_parts(s, true, parts);
    if (st && !h->st) {
        h->st = st;
        wf_snprintf(h->text, sizeof h->text, "%s", weft_error());
    }
    if (!st)
        h->old_host &= ~parts;
    pthread_mutex_unlock(&h->lock);
    return st;
}

void wf_store_touch(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;

    if (s->watch)
        s->watch(s->watch_arg, parts);
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->old_host &= ~parts;
    h->old_here |= parts;
    pthread_mutex_unlock(&h->lock);
}

weft_status wf_home_push(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;
    weft_status st;

    pthread_mutex_lock(&h->lock);
    parts &= h->old_here;
    st = h->st;
    if (st)
        wf_err_set(h->text);
    else if (parts)
        st = copy_parts(s, false, parts);
    if (!st)
        h->old_here &= ~parts;
    pthread_mutex_unlock(&h->lock);
    return st;
}

void wf_home_wrote(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;

    pthread_mutex_lock(&h->lock);
    h->old_host |= parts;
    pthread_mutex_unlock(&h->lock);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t flat_bytes(const struct wf_store *s)
{
    return s->n_params * (int64_t)sizeof(float);
}

weft_status wf_home_new(struct wf_store *s, struct wf_device *dev)
{
    struct wf_home *h = wf_alloc(s->ctx, sizeof *h);
    weft_status st;

    if (!h)
        return wf_err_nomem(s->ctx, sizeof *h, "variables");
    s->home = h;
    h->dev = dev;
    h->old_here = WF_PART_ALL;
    pthread_mutex_init(&h->lock, NULL);
    st = wf_dev_alloc(dev, flat_bytes(s), "parameters", &h->params);
    if (!st)
        st = wf_dev_alloc(dev, s->n_state, "state", &h->state);
    for (int64_t i = 0; i < s->n_seg && !st; i++) {
        struct wf_segment *seg = &s->seg[i];

        if (!seg->table || seg->remote)
            continue;
        st = wf_dev_alloc(dev, seg->count * (int64_t)sizeof(float), "a table", &seg->home);
        if (st)
            wf_err_wrap(st, "variable '%s'", seg->name);
    }
    return st;
}

weft_status wf_home_slot_new(struct wf_store *s, struct wf_segment *seg, int k)
{
    void **slot = seg->table ? &seg->home_slot[k] : &s->home->slot[k];
    int64_t bytes = seg->table ? seg->count * (int64_t)sizeof(float) : flat_bytes(s);

    if (*slot || seg->remote)
        return WEFT_OK;
    return wf_dev_alloc(s->home->dev, bytes, "optimizer slots", slot);
}

void wf_home_free(struct wf_store *s)
{
    struct wf_home *h = s->home;

    if (!h)
        return;
    for (int64_t i = 0; s->seg && i < s->n_seg; i++) {
        struct wf_segment *seg = &s->seg[i];
        int64_t bytes = seg->count * (int64_t)sizeof(float);

        wf_dev_free(h->dev, seg->home, bytes);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            wf_dev_free(h->dev, seg->home_slot[k], bytes);
    }
    wf_dev_free(h->dev, h->params, flat_bytes(s));
    wf_dev_free(h->dev, h->state, s->n_state);
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
        wf_dev_free(h->dev, h->slot[k], flat_bytes(s));
    pthread_mutex_destroy(&h->lock);
    wf_free(s->ctx, h);
    s->home = NULL;
}
