/* device.c - the devices of a context: groups of cores, cpu:0, cpu:1, …, each with its own pool of
 * threads, made when something is placed there. The default device is the context's pool,
 * over all cores; if there is one group, it is cpu:0. */
#define _GNU_SOURCE
#include <pthread.h>

#include "base/device.h"

int weft_ctx_n_devices(const weft_ctx *ctx)
{
    return ctx->n_groups;
}

/* Threads of a group: its share of the context's. One of them is the thread that calls. */
static int group_threads(const weft_ctx *ctx)
{
    return (int)wf_max_i64(wf_pool_size(ctx->pool) / ctx->n_groups, 1);
}

weft_status weft_ctx_device(const weft_ctx *ctx, int i, weft_device *out)
{
    weft_device d = {.size = sizeof d, .kind = "cpu", .threads = group_threads(ctx)};
    int cpus = wf_usable_cpus(), n = ctx->n_groups;

    if (i < 0 || i >= n)
        return wf_err(WEFT_ERANGE, "device %d does not exist; there are %d", i, n);
    d.cores = cpus < n ? cpus : (i + 1) * cpus / n - i * cpus / n;
    wf_snprintf(d.name, sizeof d.name, "cpu:%d", i);
    return wf_opts_give(out, out->size, &d, sizeof d, "weft_device");
}

static void list_devices(const weft_ctx *ctx, char *text, size_t room)
{
    int n = 0;

    for (int i = 0; i < ctx->n_groups && n < (int)room; i++)
        n += wf_snprintf(text + n, room - (size_t)n, "%scpu:%d", i ? ", " : "", i);
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

/* "/job:localhost/replica:0/task:0/device:CPU:1": this process is the only one there is. */
weft_status wf_device_find(const weft_ctx *ctx, const char *name, int *out)
{
    static const char here[] = "job:localhost";
    char list[1024];
    int64_t number;
    bool ok = true;

    *out = WF_DEVICE_DEFAULT;
    for (const char *p = name + (*name == '/'); *p && ok;) {
        size_t n = strcspn(p, "/");

        if (numbered(p, n, "cpu:", &number) || numbered(p, n, "device:cpu:", &number)) {
            ok = number < ctx->n_groups;
            *out = ctx->n_groups > 1 ? (int)number : WF_DEVICE_DEFAULT;
        } else {
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

    *out = device == WF_DEVICE_DEFAULT ? ctx->pool : atomic_load(&ctx->group_pool[device]);
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

void wf_devices_free(weft_ctx *ctx)
{
    for (int i = 0; i < ctx->n_groups; i++)
        wf_pool_free(atomic_load(&ctx->group_pool[i]));
}
