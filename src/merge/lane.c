/* lane.c - contributions whose dense gradients are in the memory of a device.
 *
 * A lane is a device and one stream of it, in which all sums on this device are made, in the order
 * of the tree. What comes from another device is copied into the lane's own memory first. The sums
 * are additions of floats, element by element: on every device they have the host's bits. Nothing
 * here waits on the host: a stream waits for another one's sums where it reads what they wrote, or
 * overwrites what they read. */
#include "merge/lane.h"

#include "kernels/kernels.h"
#include "op/step.h"

struct wf_lane {
    weft_ctx *ctx;
    struct wf_device *dev;
    int64_t n;      /* elements */
    void *stream;   /* of its sums */
    void *event;    /* after the last of them */
    int64_t n_sums; /* that were enqueued; those up to `quiet` are done */
    int64_t quiet;
    float *stage;  /* what comes from another device */
    char *block;   /* for the kernel: a step block of zeros, and words of trouble */
    void *scratch; /* likewise */
    int64_t scratch_bytes;
    struct wf_arena arena;
    struct wf_type type[3];
    struct wf_kplan plan;
    const struct wf_kernel *add;
};

enum { BLOCK = sizeof(struct wf_step_block) + 4 * WF_TROUBLE_WORDS };

static int64_t bytes_of(const struct wf_lane *l)
{
    return l->n * (int64_t)sizeof(float);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static weft_status choose(struct wf_lane *l)
{
    weft_status st;

    for (int i = 0; i < 3; i++)
        l->type[i] = wf_type_of(WEFT_F32, 1, &l->n);
    l->plan = (struct wf_kplan){.ctx = l->ctx,
                                .arena = &l->arena,
                                .op = wf_op_row(l->ctx, WF_OP_add),
                                .n_in = 2,
                                .n_out = 1,
                                .in = l->type,
                                .out = l->type + 2,
                                .n_threads = 1,
                                .device = l->dev->dev};
    st = l->dev->ops.choose(l->dev->dev, &l->plan, &l->add);
    if (!st && l->plan.step_bytes)
        st = WEFT_ENOSUP;
    if (st)
        return st;
    l->scratch_bytes = (int64_t)l->plan.scratch_bytes;
    return l->scratch_bytes ? wf_dev_alloc(l->dev, l->scratch_bytes, "sums", &l->scratch) : WEFT_OK;
}

weft_status wf_lane_new(weft_ctx *ctx, struct wf_device *dev, const struct wf_rules *r,
                        struct wf_lane **out)
{
    struct wf_lane *l = wf_alloc(ctx, sizeof *l);
    weft_status st;

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "sums");
    l->ctx = ctx;
    l->dev = dev;
    l->n = r->n_groups * r->n_dense;
    wf_arena_init(&l->arena, ctx);
    st = dev->ops.stream_new(dev->dev, &l->stream);
    if (!st)
        st = dev->ops.event_new(dev->dev, &l->event);
    if (!st)
        st = wf_dev_alloc(dev, BLOCK, "sums", (void **)&l->block);
    if (!st)
        st = wf_dev_zero(dev, l->block, BLOCK);
    if (!st && l->n)
        st = choose(l);
    if (st) {
        wf_lane_free(l);
        return st == WEFT_ENOSUP ? st : wf_err_wrap(st, "%s", dev->name);
    }
    *out = l;
    return WEFT_OK;
}

/* Whatever it may still do is done. */
static weft_status rest(struct wf_lane *l)
{
    weft_status st = l->dev->ops.stream_sync(l->dev->dev, l->stream);

    l->quiet = l->n_sums;
    return st;
}

void wf_lane_free(struct wf_lane *l)
{
    const struct wf_device *d;

    if (!l)
        return;
    d = l->dev;
    if (l->stream) {
        rest(l);
        d->ops.stream_free(d->dev, l->stream);
    }
    if (l->event)
        d->ops.event_free(d->dev, l->event);
    wf_dev_free(l->dev, l->stage, bytes_of(l));
    wf_dev_free(l->dev, l->block, BLOCK);
    wf_dev_free(l->dev, l->scratch, l->scratch_bytes);
    wf_arena_free(&l->arena);
    wf_free(l->ctx, l);
}

struct wf_device *wf_lane_device(const struct wf_lane *l)
{
    return l->dev;
}

void wf_lane_quiet(struct wf_lane *l)
{
    l->quiet = l->n_sums;
}

/* ---- memory of contributions ----------------------------------------------------------------- */

weft_status wf_lane_get(struct wf_lane *l, struct wf_contribution *c)
{
    weft_status st =
        wf_dev_alloc(l->dev, bytes_of(l), "gradients of a shard", (void **)&c->away.dense);

    if (!st)
        c->away.lane = l;
    return st;
}

void wf_lane_give(struct wf_contribution *c)
{
    struct wf_away_dense *a = &c->away;

    if (!a->lane)
        return;
    rest(a->lane);
    if (a->reader && a->reader != a->lane)
        rest(a->reader);
    wf_dev_free(a->lane->dev, a->dense, bytes_of(a->lane));
    *a = (struct wf_away_dense){.lane = NULL};
}

/* Work on a stream of device d waits for the n-th sum of a lane. */
static weft_status after(struct wf_device *d, void *stream, struct wf_lane *l, int64_t n)
{
    return n > l->quiet ? wf_dev_after(d, stream, l->dev, l->event) : WEFT_OK;
}

weft_status wf_lane_reuse(const struct wf_contribution *c, void *stream)
{
    const struct wf_away_dense *a = &c->away;
    weft_status st = WEFT_OK;

    if (a->reader)
        st = after(a->lane->dev, stream, a->reader, a->n_read);
    if (!st && a->reader != a->lane)
        st = after(a->lane->dev, stream, a->lane, a->n_wrote);
    return st;
}

weft_status wf_lane_ready(const struct wf_contribution *c, struct wf_device *d, void *stream)
{
    return after(d, stream, c->away.lane, c->away.n_wrote);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* What another device has, into memory of this one, in the order of the lane's stream. */
static weft_status bring(struct wf_lane *l, float *to, struct wf_contribution *from)
{
    weft_status st = wf_lane_ready(from, l->dev, l->stream);

    if (!st)
        st =
            wf_dev_peer(l->dev, l->stream, to, from->away.lane->dev, from->away.dense, bytes_of(l));
    return st;
}

/* The lane has enqueued its next sum, into `to`, from what `from` had. */
static weft_status enqueued(struct wf_lane *l, struct wf_contribution *to,
                            struct wf_contribution *from)
{
    l->n_sums++;
    to->away.n_wrote = l->n_sums;
    from->away.reader = l;
    from->away.n_read = l->n_sums;
    return l->dev->ops.event_record(l->dev->dev, l->event, l->stream);
}

weft_status wf_lane_add(struct wf_contribution *to, struct wf_contribution *from)
{
    struct wf_lane *l = to->away.lane;
    struct wf_tensor in[2] = {{.type = l->type[0], .data = to->away.dense},
                              {.type = l->type[1], .data = from->away.dense}};
    struct wf_tensor out = {.type = l->type[2], .data = to->away.dense};
    struct wf_call call = {.ctx = l->ctx,
                           .op = l->plan.op,
                           .n_in = 2,
                           .n_out = 1,
                           .in = in,
                           .out = &out,
                           .state = l->plan.state,
                           .scratch = l->scratch,
                           .device = l->dev->dev,
                           .stream = l->stream,
                           .step = (const void *)l->block,
                           .trouble = (void *)(l->block + sizeof(struct wf_step_block))};
    weft_status st = WEFT_OK;

    if (l->n == 0)
        return WEFT_OK;
    if (from->away.lane != l) {
        if (!l->stage)
            st = wf_dev_alloc(l->dev, bytes_of(l), "sums", (void **)&l->stage);
        if (!st)
            st = bring(l, l->stage, from);
        in[1].data = l->stage;
    }
    if (!st)
        st = l->add->run(&call);
    return st ? wf_err_wrap(st, "%s", l->dev->name) : enqueued(l, to, from);
}

weft_status wf_lane_copy(struct wf_contribution *to, struct wf_contribution *from)
{
    struct wf_lane *l = to->away.lane;
    weft_status st;

    if (l->n == 0)
        return WEFT_OK;
    st = wf_lane_reuse(to, l->stream);
    if (!st)
        st = bring(l, to->away.dense, from);
    return st ? st : enqueued(l, to, from);
}

weft_status wf_lane_read(struct wf_contribution *c, float *host)
{
    struct wf_lane *l = c->away.lane;
    weft_status st = WEFT_OK;

    if (l->n)
        st = l->dev->ops.copy(l->dev->dev, l->stream, WEFT_COPY_OUT, host, c->away.dense,
                              (size_t)bytes_of(l));
    if (!st && l->n)
        st = rest(l);
    return st ? wf_err_wrap(st, "%s", l->dev->name) : WEFT_OK;
}
