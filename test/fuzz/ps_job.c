/* ps_job.c - the job of a server from a stranger who knows how to make a checksum: it is refused,
 * or written again with the same bytes; and if it is small, one step of it is made, which reads and
 * writes nothing outside of its vectors. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "ps/plan.h"
#include "ps/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static weft_status load(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums)
{
    const struct wf_cut *cut = arg;

    (void)t;
    (void)slot;
    (void)sums;
    for (int64_t i = 0; i < cut->piece[piece].count; i++)
        params[i] = (float)i;
    return WEFT_OK;
}

/* A piece at the step after its first. */
static weft_status take_step(struct wf_ps_data *d, const struct wf_ps_store_opts *o, int piece,
                             int n_shards, int n_rounds)
{
    int64_t n = wf_ps_push_bytes(o, piece);
    struct wf_ps_payload p = {.body = {calloc(1, (size_t)n + 8), n}};
    weft_status st = d->load(d->arg, piece, 0);
    bool gone = false;

    for (int l = 0; l < n_shards && !st; l++)
        st = d->add(d->arg, piece, 0, 0, l, &p);
    free((void *)(uintptr_t)p.body.p);
    if (!st)
        st = d->reduce(d->arg, piece, 0, &gone);
    if (n_rounds && !st)
        st = d->own_partial(d->arg, piece, 0, 0);
    return st;
}

/* The same by a lease. */
static weft_status take_lease(struct wf_ps_store *s, struct wf_ps_data *d,
                              const struct wf_ps_store_opts *o, int piece)
{
    int64_t n = wf_ps_push_bytes(o, piece);
    struct wf_ps_payload p = {.body = {calloc(1, (size_t)n + 8), n}};
    struct wf_message m = {.type = WF_MSG_CLOSE, .piece = piece, .whole = true, .payload = &p};
    weft_status st = d->load(d->arg, piece, 0);

    if (!st)
        st = wf_ps_store_closes(s, piece, &p, true, true);
    if (!st)
        st = d->hold(d->arg, piece, 3, 1, &m);
    wf_ps_store_give(s, piece, p.given);
    free((void *)(uintptr_t)p.body.p);
    if (!st)
        st = d->close(d->arg, piece, 0, 3, 1);
    if (!st)
        st = d->apply(d->arg, piece, -1, 0);
    if (!st)
        d->release(d->arg, piece, 3, 1);
    return st;
}

static void serve(weft_ctx *ctx, const struct wf_ps_job *job)
{
    struct wf_ps_store_opts o = {.rules = &job->rules,
                                 .n_logs = job->n_logs,
                                 .logs = job->logs.n_batches ? &job->logs : NULL,
                                 .leased = job->plan.window > 0,
                                 .load = load};
    struct wf_ps_store *s = NULL;
    struct wf_cut *cut;
    struct wf_ps_data d;
    weft_status st;

    if (wf_ps_job_cut(ctx, job, &cut))
        return;
    o.cut = cut;
    o.load_arg = cut;
    if (wf_ps_store_new(ctx, &o, &s))
        abort();
    d = wf_ps_store_data(s);
    d.begin(d.arg, 0);
    st = WEFT_OK;
    for (int i = 0; i < cut->n_pieces && !st && o.leased; i++)
        st = take_lease(s, &d, &o, i);
    for (int i = 0; i < cut->n_pieces && !st && !o.leased; i++)
        st = take_step(&d, &o, i, job->plan.n_shards, job->plan.n_rounds);
    for (int r = 0; r < job->plan.n_rounds && !st; r++) {
        st = d.decide(d.arg, 0, r);
        for (int i = 0; i < cut->n_pieces && r + 1 < job->plan.n_rounds && !st; i++)
            st = d.half(d.arg, i, 0);
        for (int i = 0; i < cut->n_pieces && r + 1 < job->plan.n_rounds && !st; i++)
            st = d.own_partial(d.arg, i, 0, 1);
    }
    for (int i = 0; i < cut->n_pieces && !st && !o.leased; i++)
        st = d.apply(d.arg, i, -1, 0);
    wf_ps_store_free(s);
    wf_cut_free(cut);
}

static bool is_small(const struct wf_ps_job *job)
{
    int64_t blocks = 0;

    for (int i = 0; i < job->rules.n_vars; i++)
        blocks += job->rules.var[i].count;
    return job->rules.n_dense <= 20000 && blocks <= 20000 && job->rules.n_groups <= 4 &&
           job->rules.n_sums <= 1000 && job->n_logs <= 1000 && job->plan.n_shards <= 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    struct wf_ps_job *job;
    struct wf_buf again;
    weft_ctx *ctx;

    memcpy(bytes, data, size);
    if (size >= 12)
        wf_put_le32(bytes + 8, wf_crc32c(0, bytes + 12, (int64_t)size - 12));
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    if (wf_ps_job_read(ctx, bytes, (int64_t)size, &job) == WEFT_OK) {
        wf_buf_init(&again, ctx, (int64_t)size);
        if (wf_ps_job_write(job, &again) || again.len != (int64_t)size ||
            memcmp(again.data, bytes, size) != 0 || wf_ps_job_same(job, job))
            abort();
        wf_buf_free(&again);
        if (is_small(job))
            serve(ctx, job);
        wf_ps_job_free(job);
    }
    weft_ctx_free(ctx);
    free(bytes);
    return 0;
}
