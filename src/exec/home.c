/* home.c - the copy of a store in the memory of a device.
 *
 * The host's vectors stay where they are. Each part of the store (parameters, slots, state, tables)
 * is valid in one of the two memories or in both, and is copied when the other needs it: before a
 * run on the device, and before somebody reads or writes the host's. A mirror, on another device,
 * gets what it lacks from the first one, and nothing is ever copied back from it. */
#include "exec/exec.h"

enum wf_store_part wf_segment_part(const struct wf_segment *seg)
{
    return seg->table ? WF_PART_TABLES : seg->flat ? WF_PART_PARAMS : WF_PART_STATE;
}

void *wf_home_table(const struct wf_store *s, const struct wf_home *h, const struct wf_segment *seg)
{
    return h->table ? h->table[seg - s->seg] : seg->home;
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

/* Runs in flight may still read and write the device's copy. With the lock. */
static void quiet(const struct wf_store *s, const struct weft_fn *but)
{
    if (s->home->flying && s->home->flying != but)
        wf_fn_quiet(s->home->flying);
}

void wf_home_quiet(struct wf_store *s, const struct weft_fn *fn)
{
    pthread_mutex_lock(&s->home->lock);
    quiet(s, fn);
    pthread_mutex_unlock(&s->home->lock);
}

void wf_home_flies(struct wf_store *s, struct weft_fn *fn, bool flies)
{
    pthread_mutex_lock(&s->home->lock);
    if (flies)
        s->home->flying = fn;
    else if (s->home->flying == fn)
        s->home->flying = NULL;
    pthread_mutex_unlock(&s->home->lock);
}

/* From the store's device to a mirror. */
static weft_status copy_to_mirror(struct wf_store *s, struct wf_home *m, unsigned parts)
{
    struct wf_device *from = s->home->dev, *to = m->dev;
    weft_status st = WEFT_OK;

    wf_dev_begin(to);
    if (parts & WF_PART_PARAMS)
        st = wf_dev_peer(to, to->stream, m->params, from, s->home->params,
                         s->n_params * (int64_t)sizeof(float));
    if (!st && (parts & WF_PART_STATE))
        st = wf_dev_peer(to, to->stream, m->state, from, s->home->state, s->n_state);
    for (int64_t i = 0; i < s->n_seg && !st && (parts & WF_PART_TABLES); i++)
        if (m->table[i])
            st = wf_dev_peer(to, to->stream, m->table[i], from, s->seg[i].home,
                             s->seg[i].count * (int64_t)sizeof(float));
    return wf_dev_end(to, st);
}

weft_status wf_store_pull(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;
    weft_status st = s->bring ? s->bring(s->watch_arg, parts) : WEFT_OK;

    if (st || !h)
        return st;
    pthread_mutex_lock(&h->lock);
    parts &= h->old_host;
    if (parts) {
        quiet(s, NULL);
        st = copy_parts(s, true, parts);
    }
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
    for (; h; h = h->next)
        h->old_here |= parts;
    pthread_mutex_unlock(&s->home->lock);
}

/* With the lock. */
static weft_status push(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;
    weft_status st = h->st;

    parts &= h->old_here;
    if (st) {
        wf_err_set(h->text);
    } else if (parts) {
        quiet(s, NULL);
        st = copy_parts(s, false, parts);
    }
    if (!st)
        h->old_here &= ~parts;
    return st;
}

weft_status wf_home_push(struct wf_store *s, struct wf_home *h, unsigned parts)
{
    weft_status st;

    pthread_mutex_lock(&s->home->lock);
    if (h == s->home) {
        st = push(s, parts);
    } else {
        parts &= h->old_here;
        st = push(s, parts);
        if (!st && parts) {
            quiet(s, NULL);
            st = copy_to_mirror(s, h, parts);
        }
        if (!st)
            h->old_here &= ~parts;
    }
    pthread_mutex_unlock(&s->home->lock);
    return st;
}

void wf_home_wrote(struct wf_store *s, unsigned parts)
{
    struct wf_home *h = s->home;

    pthread_mutex_lock(&h->lock);
    h->old_host |= parts;
    for (h = h->next; h; h = h->next)
        h->old_here |= parts;
    pthread_mutex_unlock(&s->home->lock);
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

/* ---- mirrors --------------------------------------------------------------------------------- */

static void free_mirror(struct wf_store *s, struct wf_home *m)
{
    for (int64_t i = 0; m->table && i < s->n_seg; i++)
        wf_dev_free(m->dev, m->table[i], s->seg[i].count * (int64_t)sizeof(float));
    wf_free(s->ctx, m->table);
    wf_dev_free(m->dev, m->params, flat_bytes(s));
    wf_dev_free(m->dev, m->state, s->n_state);
    wf_free(s->ctx, m);
}

static weft_status new_mirror(struct wf_store *s, struct wf_device *dev, struct wf_home **out)
{
    struct wf_home *m = wf_alloc(s->ctx, sizeof *m);
    weft_status st;

    if (!m)
        return wf_err_nomem(s->ctx, sizeof *m, "variables");
    m->dev = dev;
    m->old_here = WF_PART_ALL & ~WF_PART_SLOTS;
    m->table = wf_alloc_n(s->ctx, s->n_seg + 1, sizeof *m->table);
    st = m->table ? wf_dev_alloc(dev, flat_bytes(s), "parameters", &m->params)
                  : wf_err_nomem(s->ctx, (size_t)s->n_seg * sizeof *m->table, "variables");
    if (!st)
        st = wf_dev_alloc(dev, s->n_state, "state", &m->state);
    for (int64_t i = 0; i < s->n_seg && !st; i++)
        if (s->seg[i].table && !s->seg[i].remote)
            st = wf_dev_alloc(dev, s->seg[i].count * (int64_t)sizeof(float), "a table",
                              &m->table[i]);
    if (st) {
        free_mirror(s, m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}

weft_status wf_home_at(struct wf_store *s, struct wf_device *dev, struct wf_home **out)
{
    struct wf_home *h = s->home, *m = NULL;
    weft_status st;

    while (h && h->dev != dev)
        h = h->next;
    if (h) {
        *out = h;
        return WEFT_OK;
    }
    st = new_mirror(s, dev, &m);
    if (st)
        return st;
    pthread_mutex_lock(&s->home->lock);
    m->next = s->home->next;
    s->home->next = m;
    pthread_mutex_unlock(&s->home->lock);
    *out = m;
    return WEFT_OK;
}

/* ---------------------------------------------------------------------------------------------- */

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
    for (struct wf_home *m = h->next, *next; m; m = next) {
        next = m->next;
        free_mirror(s, m);
    }
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
