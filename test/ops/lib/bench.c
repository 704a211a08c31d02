/* bench.c - rows as a benchmark: the time of one call of the row's op at every SIMD level, one JSON
 * object a line. Values and scratch are made once; what is timed is the kernel as a plan would call
 * it. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "ops/lib/row.h"

enum { BLOCKS = 9, BLOCK_NS = 4000000 };

struct timed {
    weft_ctx *ctx;
    struct wf_arena arena;
    const struct wf_kernel *kernel;
    struct wf_call call;
    struct wf_tensor in[OP_MAX_IN], out[WF_MAX_OUT];
    const char *impl;
    int64_t bytes;
};

static void *room(struct timed *t, int64_t bytes)
{
    t->bytes += bytes;
    return wf_alloc(t->ctx, (size_t)bytes + 64);
}

static weft_status prepare(struct timed *t, weft_ctx *ctx, const struct wf_node *n, int n_in,
                           const struct wf_tensor *feeds)
{
    struct wf_type in[OP_MAX_IN], out[WF_MAX_OUT] = {{0}};
    struct wf_infer r = {n->op, n->attr, n->n_in, n->n_out, in, out};
    struct wf_kplan p = {.ctx = ctx,
                         .arena = &t->arena,
                         .op = n->op,
                         .attr = n->attr,
                         .n_in = n->n_in,
                         .n_out = n->n_out,
                         .in = in,
                         .out = out,
                         .n_threads = weft_ctx_threads(ctx)};
    weft_status st;

    t->ctx = ctx;
    wf_arena_init(&t->arena, ctx);
    for (int i = 0; i < n_in; i++) {
        int64_t bytes = wf_type_bytes(&feeds[i].type);

        in[i] = feeds[i].type;
        t->in[i] = (struct wf_tensor){in[i], feeds[i].type.dtype ? room(t, bytes) : NULL};
        if (bytes && t->in[i].data)
            memcpy(t->in[i].data, feeds[i].data, (size_t)bytes);
    }
    st = n->op->infer(&r);
    for (int i = 0; i < n->n_out && !st; i++)
        t->out[i] = (struct wf_tensor){out[i], room(t, wf_type_bytes(&out[i]))};
    if (!st)
        st = wf_kernel_choose(&p, false, &t->kernel);
    t->impl = p.impl;
    t->call = (struct wf_call){.ctx = ctx,
                               .pool = ctx->pool,
                               .op = n->op,
                               .attr = n->attr,
                               .n_in = n->n_in,
                               .n_out = n->n_out,
                               .in = t->in,
                               .out = t->out,
                               .state = p.state,
                               .scratch = wf_alloc(ctx, p.scratch_bytes + 64)};
    return st;
}

static void release(struct timed *t)
{
    for (int i = 0; i < OP_MAX_IN; i++)
        wf_free(t->ctx, t->in[i].data);
    for (int i = 0; i < WF_MAX_OUT; i++)
        wf_free(t->ctx, t->out[i].data);
    wf_free(t->ctx, t->call.scratch);
    wf_arena_free(&t->arena);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median over blocks of the time of one call, in ns. */
static double median_ns(struct timed *t)
{
    double ns[BLOCKS];
    uint64_t mode = wf_fpmode_enter(false);

    t->kernel->run(&t->call);
    for (int b = 0; b < BLOCKS; b++) {
        int64_t begin = wf_now(t->ctx), end, n = 0;

        do {
            t->kernel->run(&t->call);
            n++;
            end = wf_now(t->ctx);
        } while (end - begin < BLOCK_NS);
        ns[b] = (double)(end - begin) / (double)n;
    }
    wf_fpmode_leave(mode);
    qsort(ns, BLOCKS, sizeof *ns, by_value);
    return ns[BLOCKS / 2];
}

void row_bench(struct row *r)
{
    struct wf_tensor feeds[OP_MAX_IN];
    struct built b;

    if (r->c->fails || r->c->build)
        return;
    if (row_build(r, r->b->base, WEFT_F32, false, &b)) {
        weft_graph_free(b.g);
        return;
    }
    row_data(r);
    row_feeds(r, WEFT_F32, feeds);
    for (weft_simd s = WEFT_SIMD_PORTABLE; s <= WEFT_SIMD_AVX512BF16; s++)
        for (int k = 0; k < 2 && r->b->ctx[s][k]; k++) {
            struct timed t = {0};

            if (!prepare(&t, r->b->ctx[s][k], wf_val_node(b.g, b.out[0]), r->c->n_in, feeds)) {
                double ns = median_ns(&t);

                printf("{\"row\": \"%s\", \"kernel\": \"%s\", \"simd\": \"%s\", \"threads\": %d, "
                       "\"ns\": %.0f, "
                       "\"gb_s\": %.2f}\n",
                       r->line, t.impl, weft_simd_name(s), weft_ctx_threads(t.ctx), ns,
                       (double)t.bytes / ns);
            }
            release(&t);
        }
    weft_graph_free(b.g);
    row_feeds_free(r, feeds);
    row_data_free(r);
}
