/* device.c - placement: the device scopes of a graph, checked when a function is created, and used
 * when a plan is made. An instruction has the pool of its device; all run one after the other in
 * the same memory. Passes do not look at devices, and kernels do not depend on the pool, so results
 * do not depend on the placement. */
#include "base/device.h"
#include "exec/exec.h"

weft_status wf_check_devices(const weft_graph *g)
{
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        weft_ctx *ctx = g->ctx;
        int device;
        weft_status st = *n->device ? wf_device_find(ctx, n->device, &device) : WEFT_OK;

        if (st && !ctx->soft_placement)
            return wf_err_wrap(st, "'%s' (%s)", n->name, n->op->name);
        if (st && !atomic_exchange(&ctx->soft_told, true))
            wf_log(ctx, WEFT_LOG_WARN,
                   "'%s' (%s): %s: it runs on the default device, and so does whatever else asks "
                   "for a device that does not exist",
                   n->name, n->op->name, weft_error());
    }
    return WEFT_OK;
}

weft_status wf_place_node(const struct wf_plan *p, const struct wf_node *n, struct wf_pool **pool,
                          int *device)
{
    weft_ctx *ctx = p->ctx;

    *pool = p->pool;
    *device = WF_DEVICE_DEFAULT;
    /* a strategy that computes on a pool of its own has placed the whole function */
    if (!*n->device || p->pool != ctx->pool || wf_device_find(ctx, n->device, device))
        return WEFT_OK;
    return wf_device_pool(ctx, *device, pool);
}
