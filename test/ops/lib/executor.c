/* executor.c - the row through the executor: passes, plan, memory and run loop against the
 * interpreter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ops/lib/row.h"
#include "weft/fn.h"

#define MAX_FETCH (WF_MAX_OUT + OP_MAX_IN)

struct fetched {
    int n_feeds, n;
    weft_val feed[OP_MAX_IN], fetch[MAX_FETCH];
    weft_tensor feeds[OP_MAX_IN];
};

static void gather(const struct row *r, const struct built *b, const struct wf_tensor *feeds,
                   struct fetched *f)
{
    *f = (struct fetched){0};
    for (int i = 0; i < r->c->n_in; i++)
        if (b->in[i].id) {
            f->feed[f->n_feeds] = b->in[i];
            f->feeds[f->n_feeds++] = weft_view(feeds[i].type.dtype, feeds[i].data,
                                               feeds[i].type.rank, feeds[i].type.dim);
        }
    for (int i = 0; i < b->n_out; i++)
        f->fetch[f->n++] = b->out[i];
    for (int i = 0; i < r->c->n_in; i++)
        if (b->grad[i].id)
            f->fetch[f->n++] = b->grad[i];
}

/* One function, run twice: near the interpreter, and the same bits again. */
static void check_fn(const struct row *r, const struct built *b, const struct fetched *f,
                     unsigned passes_off, const struct op_run *want)
{
    weft_tensor got[MAX_FETCH], again[MAX_FETCH];
    const char *what = passes_off ? "executor without passes" : "executor";
    double tol = (r->c->tol > 0 ? r->c->tol : 1e-5) * 5;
    weft_fn *fn = NULL;
    weft_status st =
        weft_fn_new(b->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = f->n_feeds, .feeds = f->feed,
                              .n_fetches = f->n, .fetches = f->fetch, .passes_off = passes_off),
                    &fn);

    MUST(r, !st, "%s: %s: %s", what, weft_status_name(st), weft_error());
    for (int time = 0; time < 2; time++) {
        weft_fn_set_step(fn, 3);
        weft_fn_set_shard(fn, 1);
        for (int i = 0; i < f->n; i++) {
            const struct wf_type *t = &want->val[f->fetch[i].id].type;
            weft_tensor *out = time ? &again[i] : &got[i];

            *out = weft_view(t->dtype, malloc((size_t)wf_type_bytes(t) + 1), t->rank, t->dim);
        }
        st = weft_fn_run(fn, f->feeds, time ? again : got);
        MUST(r, !st, "%s: %s: %s", what, weft_status_name(st), weft_error());
    }
    for (int i = 0; i < f->n; i++) {
        struct wf_tensor a = {wf_type_of(got[i].dtype, got[i].rank, got[i].dim), got[i].data};
        struct wf_tensor c = {a.type, again[i].data};

        row_compare(r, what, &a, &want->val[f->fetch[i].id], tol);
        row_compare_bits(r, "executor, run again", &c, &a);
        free(got[i].data);
        free(again[i].data);
    }
    weft_fn_free(fn);
}

void row_check_executor(const struct row *r, weft_ctx *ctx, const struct wf_tensor *feeds,
                        const struct wf_type *out_types)
{
    struct op_run_opts o = {.fast = true, .rng = {.seed = ctx->seed, .step = 3, .shard = 1}};
    struct built b;
    struct fetched f;
    struct op_run want;
    weft_status st = row_build(r, ctx, WEFT_F32, !(r->c->flags & OP_STATIC), &b);

    if (!st && !(r->c->flags & (OP_NO_GRAD | OP_NO_FAST_GRAD)))
        st = row_differentiate(r, &b, out_types);
    MUST(r, !st, "build: %s: %s", weft_status_name(st), weft_error());
    gather(r, &b, feeds, &f);
    st = op_run(ctx, b.g, r->c->n_in, b.in, feeds, f.n, f.fetch, &o, &want);
    MUST(r, !st, "run: %s: %s", weft_status_name(st), weft_error());
    check_fn(r, &b, &f, 0, &want);
    check_fn(r, &b, &f, WEFT_PASS_ALL, &want);
    op_run_free(&want);
    weft_graph_free(b.g);
}
