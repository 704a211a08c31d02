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
