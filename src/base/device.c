/* device.c - the devices of a context: groups of cores, cpu:0, cpu:1, …, each with its own pool of
 * threads, made when something is placed there; and devices with memory of their own. The default
 * device is the first of these, otherwise the context's pool, over all cores. If there is one
 * group of cores, it is cpu:0. */
#define _GNU_SOURCE
#include "base/device.h"

int weft_ctx_n_devices(const weft_ctx *ctx)
{
    return ctx->n_groups + ctx->n_own;
}

/* Threads of a group: its share of the context's. One of them is the thread that calls. */
static int group_threads(const weft_ctx *ctx)
{
    return (int)wf_max_i64(wf_pool_size(ctx->pool) / ctx->n_groups, 1);
}

struct wf_device *wf_device_own(const weft_ctx *ctx, int device)
{
    if (device == WF_DEVICE_DEFAULT)
        return ctx->home;
    return device < ctx->n_groups ? NULL : ctx->own[device - ctx->n_groups];
}

const char *wf_device_name(const weft_ctx *ctx, int device, char *text)
{
    const struct wf_device *d = wf_device_own(ctx, device);

    if (d)
        memcpy(text, d->name, sizeof d->name);
    else
        wf_snprintf(text, sizeof d->name, "cpu:%d", device < 0 ? 0 : device);
    return text;
}

weft_status weft_ctx_device(const weft_ctx *ctx, int i, weft_device *out)
{
    weft_device d = {.size = sizeof d, .kind = "cpu"};
    int cpus = wf_usable_cpus(), n = ctx->n_groups;
    const struct wf_device *own;

    if (i < 0 || i >= weft_ctx_n_devices(ctx))
        return wf_err(WEFT_ERANGE, "device %d does not exist; there are %d", i,
                      weft_ctx_n_devices(ctx));
    wf_device_name(ctx, i, d.name);
    own = wf_device_own(ctx, i);
    if (own) {
        d.kind = own->kind;
        d.cores = own->info.cores;
        memcpy(d.model, own->info.model, sizeof d.model);
        d.memory_bytes = own->info.memory_bytes;
        d.memory_used = atomic_load(&own->used);
        d.memory_peak = atomic_load(&own->peak);
    } else {
        d.threads = group_threads(ctx);
        d.cores = cpus < n ? cpus : (i + 1) * cpus / n - i * cpus / n;
    }
    return wf_opts_give(out, out->size, &d, sizeof d, "weft_device");
}

static void list_devices(const weft_ctx *ctx, char *text, size_t room)
{
    char name[24];
    int n = 0;

    for (int i = 0; i < weft_ctx_n_devices(ctx) && n < (int)room; i++)
        n += wf_snprintf(text + n, room - (size_t)n, "%s%s", i ? ", " : "",
                         wf_device_name(ctx, i, name));
}

/* Whether a part of a device's name is `head` and a number, which follows; case does not matter. */
static bool numbered(const char *part, size_t n, const char *head, int64_t *out)
{
    size_t h = strlen(head);

    *out = 0;
    if (n <= h)
        return false;
    for (size_t i = 0; i < h; i++)
        if (wf_to_lower(part[i]) != head[i])
            return false;
    for (size_t i = h; i < n; i++) {
        if (!wf_is_digit(part[i]) || *out > 1000000000)
            return false;
        *out = *out * 10 + (part[i] - '0');
    }
    return true;
}

/* Whether a part of a device's name is that of a device with memory of its own. */
static bool is_own(const weft_ctx *ctx, const char *part, size_t n, int *out)
{
    static const char head[] = "device:";
    char name[sizeof head + 24];

    for (int i = 0; i < ctx->n_own; i++)
        for (int skip = 0; skip < 2; skip++) {
            const char *full = name + (skip ? sizeof head - 1 : 0);
            size_t k = 0;

            wf_snprintf(name, sizeof name, "%s%s", head, ctx->own[i]->name);
            while (k < n && full[k] && wf_to_lower(part[k]) == full[k])
                k++;
            if (k == n && !full[k]) {
                *out = ctx->n_groups + i;
                return true;
            }
        }
    return false;
}

/* A cpu by number: the default device if there is no other. */
static int cpu_number(const weft_ctx *ctx, int64_t number)
{
    return ctx->n_groups > 1 || ctx->home ? (int)number : WF_DEVICE_DEFAULT;
}

bool wf_device_server(const char *name, int *server)
{
    static const char job[] = "job:ps";
    bool is_ps = false, has_task = false;

    for (const char *p = name + (*name == '/'); *p;) {
        size_t n = strcspn(p, "/");
        int64_t number;

        if (n == sizeof job - 1 && memcmp(p, job, n) == 0)
            is_ps = true;
        else if (numbered(p, n, "task:", &number)) {
            has_task = true;
            *server = (int)number;
        } else if (!((numbered(p, n, "replica:", &number) || numbered(p, n, "cpu:", &number) ||
                      numbered(p, n, "device:cpu:", &number)) &&
                     number == 0))
            return false;
        p += n + (p[n] == '/');
    }
    return is_ps && has_task;
}

/* "/job:localhost/replica:0/task:0/device:CPU:1": this process is the only one there is. */
weft_status wf_device_find(const weft_ctx *ctx, const char *name, int *out)
{
    static const char here[] = "job:localhost";
    char list[1024];
    int64_t number;
    bool ok = true;
    int server;

    *out = WF_DEVICE_DEFAULT;
    if (wf_device_server(name, &server))
        return WEFT_OK;
    for (const char *p = name + (*name == '/'); *p && ok;) {
        size_t n = strcspn(p, "/");

        if (numbered(p, n, "cpu:", &number) || numbered(p, n, "device:cpu:", &number)) {
            ok = number < ctx->n_groups;
            *out = ok ? cpu_number(ctx, number) : WF_DEVICE_DEFAULT;
        } else if (!is_own(ctx, p, n, out)) {
            ok = (n == sizeof here - 1 && memcmp(p, here, n) == 0) ||
                 ((numbered(p, n, "replica:", &number) || numbered(p, n, "task:", &number)) &&
                  number == 0);
        }
        p += n + (p[n] == '/');
    }
    if (ok)
        return WEFT_OK;
    *out = WF_DEVICE_DEFAULT;
    list_devices(ctx, list, sizeof list);
    return wf_err(WEFT_ENOENT, "no device '%s' here; available: %s", name, list);
}

/* ---- pools ----------------------------------------------------------------------------------- */

struct making {
    weft_ctx *ctx;
    int group;
    struct wf_pool *pool;
    weft_status st;
    char text[256];
};

/* Threads run where the thread that starts them may. */
static void *make_pool(void *arg)
{
    struct making *m = arg;

    wf_use_group(m->group, m->ctx->n_groups);
    m->st = wf_pool_new(m->ctx, group_threads(m->ctx), m->ctx->spin_us, &m->pool);
    if (m->st)
        wf_snprintf(m->text, sizeof m->text, "%s", weft_error());
    return NULL;
}

weft_status wf_device_pool(weft_ctx *ctx, int device, struct wf_pool **out)
{
    struct making m = {.ctx = ctx, .group = device};
    struct wf_pool *none = NULL;
    pthread_t thread;

    *out = device == WF_DEVICE_DEFAULT || ctx->n_groups == 1
               ? ctx->pool
               : atomic_load(&ctx->group_pool[device]);
    if (*out)
        return WEFT_OK;
    if (pthread_create(&thread, NULL, make_pool, &m))
        return wf_err(WEFT_ENOMEM, "cannot start a thread on cpu:%d", device);
    pthread_join(thread, NULL);
    if (m.st) {
        wf_err_set(m.text);
        return m.st;
    }
    if (!atomic_compare_exchange_strong(&ctx->group_pool[device], &none, m.pool)) {
        wf_pool_free(m.pool); /* another thread was faster */
        m.pool = none;
    }
    *out = m.pool;
    return WEFT_OK;
}
