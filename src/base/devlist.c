/* devlist.c - opens the devices that a context lists: "cpu", groups of cores ("cpu:0, cpu:1"),
 * devices of drivers ("gpu:0"), those that are used as several ("gpu:0*2": gpu:0 and gpu:0.1), and
 * the word strict. */
#include "base/device.h"

struct list {
    weft_ctx *ctx;
    const weft_ctx_opts *opts;
    uint64_t groups; /* of cores, by number; "cpu" is cpu:0 */
};

weft_status weft_device_error(weft_status st, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    wf_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return wf_err(st, "%s", text);
}

static const weft_device_driver *driver_at(const weft_ctx *ctx, int i)
{
    for (int k = 0; k < ctx->n_drivers; k++)
        if (i-- == 0)
            return ctx->drivers[k];
    for (int k = 0; wf_builtin_drivers[k]; k++)
        if (i-- == 0)
            return wf_builtin_drivers[k];
    return NULL;
}

weft_status weft_ctx_driver(weft_ctx *ctx, int i, const char **kind, int *n)
{
    const weft_device_driver *d = driver_at(ctx, i);

    if (!d)
        return wf_err(WEFT_ERANGE, "driver %d does not exist", i);
    *kind = d->kind;
    return d->count(d->arg, ctx, n);
}

/* Whether a name is of this kind: "gpu:3" is number 3 of "gpu", "gpu" is number 0. */
static bool split_name(const char *name, const char *kind, int *number)
{
    size_t n = strlen(kind);
    int64_t k = 0;

    *number = 0;
    if (strncmp(name, kind, n) != 0)
        return false;
    if (!name[n])
        return true;
    if (name[n] != ':' || !name[n + 1])
        return false;
    for (const char *p = name + n + 1; *p; p++) {
        if (!wf_is_digit(*p) || k > 1000)
            return false;
        k = k * 10 + (*p - '0');
    }
    *number = (int)k;
    return true;
}

static weft_status no_device(const weft_ctx *ctx, const char *name)
{
    char text[512];
    int n = wf_snprintf(text, sizeof text, "cpu");

    for (int i = 0; driver_at(ctx, i) && n < (int)sizeof text; i++)
        n += wf_snprintf(text + n, sizeof text - (size_t)n, ", %s", driver_at(ctx, i)->kind);
    return wf_err(WEFT_ENOENT, "devices: no device '%s' here; available: %s", name, text);
}

/* ---- opening --------------------------------------------------------------------------------- */

static weft_status check_ops(const struct wf_device *d)
{
    const weft_device_ops *o = &d->ops;

    if (!o->info || !o->close || !o->alloc || !o->free || !o->stream_new || !o->stream_free ||
        !o->stream_sync || !o->copy || !o->fill || !o->event_new || !o->event_free ||
        !o->event_record || !o->event_query || !o->event_sync || !o->stream_wait || !o->choose ||
        !o->host_alloc != !o->host_free || !o->capture_begin != !o->capture_end ||
        !o->capture_begin != !o->replay || !o->capture_begin != !o->recorded_free)
        return wf_err(WEFT_EINVAL, "%s: its driver lacks a function that is not optional", d->name);
    return WEFT_OK;
}

/* again: how often it was opened before. */
static weft_status open_device(weft_ctx *ctx, const weft_device_driver *driver, int number,
                               int again, const weft_device_opts *opts, struct wf_device *d)
{
    const weft_device_ops *ops = NULL;
    int n = 0;
    weft_status st = driver->count(driver->arg, ctx, &n);

    wf_snprintf(d->name, sizeof d->name, again ? "%.12s:%d.%d" : "%.15s:%d", driver->kind, number,
                again);
    d->kind = driver->kind;
    d->ctx = ctx;
    d->limit = opts->memory_limit;
    if (!st && number >= n)
        st = wf_err(WEFT_ENOENT, "there are %d", n);
    if (!st)
        st = driver->open(driver->arg, ctx, number, opts, &ops, &d->dev);
    if (st)
        return wf_err_wrap(st, "device '%s'", d->name);
    st = wf_opts_take(&d->ops, sizeof d->ops, ops, "weft_device_ops");
    if (!st)
        st = check_ops(d);
    if (st) {
        if (d->ops.close)
            d->ops.close(d->dev);
        return st;
    }
    pthread_mutex_init(&d->lock, NULL);
    d->info.size = sizeof d->info;
    st = d->ops.info(d->dev, &d->info);
    if (!st && (d->info.align < 64 || (d->info.align & (d->info.align - 1))))
        st = wf_err(WEFT_EINVAL, "%s: memory aligned to %zu bytes", d->name, d->info.align);
    if (!st)
        st = d->ops.stream_new(d->dev, &d->stream);
    if (st) {
        d->ops.close(d->dev);
        pthread_mutex_destroy(&d->lock);
        d->stream = NULL;
    }
    return st;
}

static weft_status add_device(struct list *l, const weft_device_driver *driver, int number,
                              int again)
{
    weft_ctx *ctx = l->ctx;
    weft_device_opts opts = {.size = sizeof opts,
                             .memory_limit = l->opts->device_memory,
                             .preallocate = l->opts->device_preallocate,
                             .cache = l->opts->device_cache};
    struct wf_device *d;
    weft_status st;

    if (ctx->n_own == WF_MAX_OWN)
        return wf_err(WEFT_ELIMIT, "devices: at most %d with memory of their own", WF_MAX_OWN);
    d = wf_alloc(ctx, sizeof *d);
    if (!d)
        return wf_err_nomem(ctx, sizeof *d, "device");
    st = open_device(ctx, driver, number, again, &opts, d);
    if (st) {
        wf_free(ctx, d);
        return st;
    }
    ctx->own[ctx->n_own++] = d;
    return WEFT_OK;
}

int wf_device_times(const char *item, size_t n)
{
    const char *star = memchr(item, '*', n);
    int times = 0;

    if (!star)
        return 1;
    for (star++; star < item + n && wf_is_digit(*star) && times <= WF_MAX_OWN; star++)
        times = times * 10 + (*star - '0');
    return star == item + n ? times : 0;
}

static weft_status add_devices(struct list *l, const weft_device_driver *driver, int number,
                               int times)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < times && !st; i++)
        st = add_device(l, driver, number, i);
    return st;
}

static weft_status add_name(struct list *l, char *name)
{
    const weft_device_driver *driver;
    int number, times = wf_device_times(name, strlen(name));

    if (times < 1)
        return wf_err(WEFT_EINVAL, "devices: '%s': a number from 1 on follows the *", name);
    if (strchr(name, '*') && strncmp(name, "cpu", 3) == 0)
        return wf_err(WEFT_EINVAL,
                      "devices: '%s': groups of cores are listed one by one: cpu:0, cpu:1", name);
    name[strcspn(name, "*")] = 0;
    if (strcmp(name, "strict") == 0) {
        l->ctx->strict_devices = true;
        return WEFT_OK;
    }
    if (split_name(name, "cpu", &number) && number < WF_MAX_GROUPS) {
        if (l->groups >> number & 1)
            return wf_err(WEFT_EINVAL, "devices: '%s' is listed twice", name);
        l->groups |= (uint64_t)1 << number;
        return WEFT_OK;
    }
    for (int i = 0; (driver = driver_at(l->ctx, i)); i++) {
        if (!split_name(name, driver->kind, &number))
            continue;
        for (int k = 0; k < l->ctx->n_own; k++) {
            int other = 0;

            if (split_name(l->ctx->own[k]->name, driver->kind, &other) && other == number)
                return wf_err(WEFT_EINVAL, "devices: '%s' is listed twice", name);
        }
        return add_devices(l, driver, number, times);
    }
    return no_device(l->ctx, name);
}

/* The caller's list may be gone after weft_ctx_new; the drivers themselves are not. */
static weft_status keep_drivers(weft_ctx *ctx, const weft_ctx_opts *o)
{
    const weft_device_driver **copy = wf_alloc_n(ctx, o->n_drivers + 1, sizeof *copy);

    if (!copy)
        return wf_err_nomem(ctx, sizeof *copy, "list of drivers");
    for (int i = 0; i < o->n_drivers; i++)
        copy[i] = o->drivers[i];
    ctx->drivers = copy;
    ctx->n_drivers = o->n_drivers;
    return WEFT_OK;
}

weft_status wf_devices_open(weft_ctx *ctx, const weft_ctx_opts *o)
{
    struct list l = {.ctx = ctx, .opts = o};
    const char *at = o->devices;
    weft_status st = WEFT_OK;

    st = keep_drivers(ctx, o);
    while (at && *at && !st) {
        size_t n = strcspn(at, ","), skip = strspn(at, " ");
        char name[64];

        wf_snprintf(name, sizeof name, "%.*s", (int)(n - (skip < n ? skip : n)), at + skip);
        name[strcspn(name, " ")] = 0;
        st = add_name(&l, name);
        at += n + (at[n] == ',');
    }
    if (st)
        return st;
    ctx->n_groups = __builtin_popcountll(l.groups);
    ctx->n_groups = ctx->n_groups ? ctx->n_groups : 1;
    if (ctx->n_groups < WF_MAX_GROUPS && l.groups >> ctx->n_groups)
        return wf_err(WEFT_EINVAL, "devices: %d groups of cores are cpu:0 to cpu:%d", ctx->n_groups,
                      ctx->n_groups - 1);
    ctx->home = ctx->n_own ? ctx->own[0] : NULL;
    return WEFT_OK;
}

static void close_device(struct wf_device *d)
{
    d->ops.stream_free(d->dev, d->stream);
    d->ops.close(d->dev);
    pthread_mutex_destroy(&d->lock);
    wf_free(d->ctx, d);
}

void wf_devices_free(weft_ctx *ctx)
{
    for (int i = 0; i < ctx->n_groups; i++)
        wf_pool_free(atomic_load(&ctx->group_pool[i]));
    while (ctx->n_own)
        close_device(ctx->own[--ctx->n_own]);
    wf_free(ctx, (void *)(uintptr_t)ctx->drivers);
}
