/* devmem.c - memory of a device: counted allocations, and copies that the caller waits for. */
#include "base/device.h"

static bool charge(struct wf_device *d, int64_t bytes)
{
    int64_t used = atomic_fetch_add(&d->used, bytes) + bytes, peak = atomic_load(&d->peak);

    if (d->limit > 0 && used > d->limit) {
        atomic_fetch_sub(&d->used, bytes);
        return false;
    }
    while (used > peak && !atomic_compare_exchange_weak(&d->peak, &peak, used))
        ;
    return true;
}

weft_status wf_dev_alloc(struct wf_device *d, int64_t bytes, const char *what, void **out)
{
    int64_t all = wf_round_up(bytes > 0 ? bytes : 1, (int64_t)d->info.align);
    weft_status st;

    if (bytes < 0 || all < bytes)
        return wf_err(WEFT_ENOMEM, "%s: its size overflows", what);
    if (!charge(d, all))
        return wf_err(
            WEFT_ELIMIT, "%s: %lld bytes exceed the memory limit of %s (%lld of %lld in use)", what,
            (long long)bytes, d->name, (long long)atomic_load(&d->used), (long long)d->limit);
    st = d->ops.alloc(d->dev, (size_t)all, out);
    if (st) {
        atomic_fetch_sub(&d->used, all);
        return wf_err_wrap(st, "%s: %lld bytes on %s", what, (long long)bytes, d->name);
    }
    return WEFT_OK;
}

void wf_dev_free(struct wf_device *d, void *p, int64_t bytes)
{
    int64_t all;

    if (!p)
        return;
    all = wf_round_up(bytes > 0 ? bytes : 1, (int64_t)d->info.align);
    d->ops.free(d->dev, p, (size_t)all);
    atomic_fetch_sub(&d->used, all);
}

weft_status wf_dev_host_alloc(struct wf_device *d, int64_t bytes, const char *what, void **out)
{
    if (d->ops.host_alloc)
        return d->ops.host_alloc(d->dev, (size_t)(bytes > 0 ? bytes : 1), out);
    *out = wf_alloc(d->ctx, (size_t)bytes + 1);
    return *out ? WEFT_OK : wf_err_nomem(d->ctx, (size_t)bytes, what);
}

void wf_dev_host_free(struct wf_device *d, void *p, int64_t bytes)
{
    if (!p)
        return;
    if (d->ops.host_alloc)
        d->ops.host_free(d->dev, p, (size_t)(bytes > 0 ? bytes : 1));
    else
        wf_free(d->ctx, p);
}

/* ---- two devices ----------------------------------------------------------------------------- */

static bool are_peers(const struct wf_device *a, const struct wf_device *b)
{
    return a->ops.copy_peer && a->ops.copy_peer == b->ops.copy_peer;
}

weft_status wf_dev_after(struct wf_device *d, void *stream, struct wf_device *other, void *event)
{
    if (d == other || are_peers(d, other))
        return d->ops.stream_wait(d->dev, stream, event);
    return other->ops.event_sync(other->dev, event);
}

/* Through the host's memory, part by part. */
static weft_status copy_over(struct wf_device *d, void *stream, void *to, struct wf_device *other,
                             const void *from, int64_t bytes)
{
    int64_t part = wf_min_i64(bytes, 4 << 20);
    void *host = NULL;
    weft_status st = wf_dev_host_alloc(d, part, "a copy between devices", &host);

    if (!st) /* what the stream waits for has happened */
        st = d->ops.stream_sync(d->dev, stream);
    for (int64_t at = 0; at < bytes && !st; at += part) {
        int64_t n = wf_min_i64(part, bytes - at);

        st = wf_dev_get(other, host, (const char *)from + at, n);
        if (!st)
            st = d->ops.copy(d->dev, stream, WEFT_COPY_IN, (char *)to + at, host, (size_t)n);
        if (!st)
            st = d->ops.stream_sync(d->dev, stream);
    }
    wf_dev_host_free(d, host, part);
    return st;
}

weft_status wf_dev_peer(struct wf_device *d, void *stream, void *to, struct wf_device *other,
                        const void *from, int64_t bytes)
{
    weft_status st = WEFT_ENOSUP;

    if (bytes <= 0)
        return WEFT_OK;
    if (d == other)
        return d->ops.copy(d->dev, stream, WEFT_COPY_WITHIN, to, from, (size_t)bytes);
    if (are_peers(d, other))
        st = d->ops.copy_peer(d->dev, stream, to, other->dev, from, (size_t)bytes);
    if (st == WEFT_ENOSUP)
        st = copy_over(d, stream, to, other, from, bytes);
    return st ? wf_err_wrap(st, "from %s to %s", other->name, d->name) : WEFT_OK;
}

/* ---- copies that are waited for -------------------------------------------------------------- */

void wf_dev_begin(struct wf_device *d)
{
    pthread_mutex_lock(&d->lock);
}

weft_status wf_dev_copy(struct wf_device *d, weft_copy_way way, void *to, const void *from,
                        int64_t bytes)
{
    return bytes > 0 ? d->ops.copy(d->dev, d->stream, way, to, from, (size_t)bytes) : WEFT_OK;
}

weft_status wf_dev_end(struct wf_device *d, weft_status st)
{
    weft_status late = d->ops.stream_sync(d->dev, d->stream);

    pthread_mutex_unlock(&d->lock);
    st = st ? st : late;
    return st ? wf_err_wrap(st, "%s", d->name) : WEFT_OK;
}

static weft_status copy(struct wf_device *d, weft_copy_way way, void *to, const void *from,
                        int64_t bytes)
{
    if (bytes <= 0)
        return WEFT_OK;
    wf_dev_begin(d);
    return wf_dev_end(d, wf_dev_copy(d, way, to, from, bytes));
}

weft_status wf_dev_get(struct wf_device *d, void *host, const void *from, int64_t bytes)
{
    return copy(d, WEFT_COPY_OUT, host, from, bytes);
}

weft_status wf_dev_set(struct wf_device *d, void *to, const void *host, int64_t bytes)
{
    return copy(d, WEFT_COPY_IN, to, host, bytes);
}

weft_status wf_dev_zero(struct wf_device *d, void *to, int64_t bytes)
{
    if (bytes <= 0)
        return WEFT_OK;
    wf_dev_begin(d);
    return wf_dev_end(d, d->ops.fill(d->dev, d->stream, to, 0, (size_t)bytes));
}
