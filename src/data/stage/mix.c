/* mix.c - several datasets as one: in turn, or drawn by weights. Which dataset comes next depends
 * only on what has ended and, for draws, on (seed, epoch, number of the draw). */
#include <math.h>

#include "data/data.h"
#include "data/engine/pick.h"

#define SALT_MIX 0x6d697865u

struct mix {
    int64_t block_length; /* in turn; 0: drawn */
    double *weight;
    uint64_t seed;
    bool stop_at_first;
};

struct mixing {
    int64_t epoch, n_drawn;
    int64_t turn, taken; /* whose turn it is, and elements taken in it */
    int64_t n_open;
    bool done;
    struct {
        struct wf_cursor cur;
        bool ended;
    } * in;
};

static weft_status mix_open(struct wf_stage *s)
{
    struct mixing *v = wf_alloc(s->env->ctx, sizeof *v);
    weft_status st = WEFT_OK;

    if (!v)
        return wf_env_nomem(s->env, sizeof *v, "a mixture");
    s->state = v;
    v->in = wf_alloc_n(s->env->ctx, s->n_in, sizeof *v->in);
    if (!v->in)
        return wf_env_nomem(s->env, s->n_in * (int64_t)sizeof *v->in, "a mixture");
    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_input(s, i, WF_IN_MADE, wf_max_i64(1, s->want / s->n_in));
    return st;
}

static void mix_clear(struct wf_stage *s, struct mixing *v)
{
    for (int i = 0; i < s->n_in && v->in; i++) {
        wf_cursor_clear(&v->in[i].cur);
        v->in[i].ended = false;
    }
    v->n_drawn = v->turn = v->taken = 0;
    v->n_open = s->n_in;
    v->done = false;
}

static void mix_close(struct wf_stage *s)
{
    struct mixing *v = s->state;

    if (!v)
        return;
    mix_clear(s, v);
    wf_free(s->env->ctx, v->in);
    wf_free(s->env->ctx, v);
}

static weft_status mix_reset(struct wf_stage *s, int64_t epoch)
{
    struct mixing *v = s->state;
    weft_status st = WEFT_OK;

    mix_clear(s, v);
    v->epoch = epoch;
    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_reset(s->in[i], epoch);
    return st;
}

/* Draws an input by weight among those that have not ended. */
static int drawn(const struct wf_stage *s, struct mixing *v)
{
    const struct mix *o = s->ds->param;
    uint64_t word = wf_random_word(o->seed, v->epoch, v->n_drawn++, SALT_MIX);
    double sum = 0, at;
    int last = -1;

    for (int i = 0; i < s->n_in; i++)
        sum += v->in[i].ended ? 0 : o->weight[i];
    at = (double)(word >> 11) * 0x1p-53 * sum;
    for (int i = 0; i < s->n_in; i++) {
        if (v->in[i].ended || o->weight[i] <= 0)
            continue;
        last = i;
        if (at < o->weight[i])
            break;
        at -= o->weight[i];
    }
    return last;
}

/* The input whose turn it is. */
static int in_turn(const struct wf_stage *s, struct mixing *v)
{
    const struct mix *o = s->ds->param;

    if (v->taken >= o->block_length) {
        v->turn = (v->turn + 1) % s->n_in;
        v->taken = 0;
    }
    while (v->in[v->turn].ended) {
        v->turn = (v->turn + 1) % s->n_in;
        v->taken = 0;
    }
    v->taken++;
    return (int)v->turn;
}

/* The next element into p, or v->done. */
static weft_status mix_one(struct wf_stage *s, struct mixing *v, int64_t want, struct wf_picks *p)
{
    const struct mix *o = s->ds->param;
    bool more = false;

    while (!more && !v->done) {
        int i = v->n_open == 0 ? -1 : o->block_length ? in_turn(s, v) : drawn(s, v);
        weft_status st;

        if (i < 0) {
            v->done = true;
            break;
        }
        st = wf_cursor_need(&v->in[i].cur, s->in[i], wf_max_i64(1, want / v->n_open), &more);
        if (st)
            return st;
        if (more) {
            wf_picks_add(p, v->in[i].cur.held, v->in[i].cur.i++);
        } else {
            v->in[i].ended = true;
            v->n_open--;
            v->taken = 0;
            v->done = o->stop_at_first;
        }
    }
    return WEFT_OK;
}

static weft_status mix_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct mixing *v = s->state;
    struct wf_picks *p = NULL;
    weft_status st = wf_picks_new(s->env->ctx, want, &p);

    *out = NULL;
    while (!st && p->n < want && !v->done)
        st = mix_one(s, v, want, p);
    if (st || !p->n) {
        wf_picks_free(p);
        return st;
    }
    return wf_picks_promise(s, p, p->n, out);
}

static weft_status mix_save(struct wf_stage *s, struct wf_buf *out)
{
    struct mixing *v = s->state;
    weft_status st = WEFT_OK;

    wf_put_i64(out, v->epoch);
    wf_put_i64(out, v->n_drawn);
    wf_put_i64(out, v->turn);
    wf_put_i64(out, v->taken);
    wf_put_i64(out, v->done);
    for (int i = 0; i < s->n_in && !st; i++) {
        wf_put_i64(out, v->in[i].ended);
        st = wf_cursor_save(&v->in[i].cur, out);
    }
    return st;
}

static weft_status mix_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct mixing *v = s->state;
    weft_status st = WEFT_OK;

    mix_clear(s, v);
    v->epoch = wf_get_i64(r);
    v->n_drawn = wf_get_range(r, 0, WF_MANY, "a number of draws");
    v->turn = wf_get_range(r, 0, s->n_in - 1, "an input");
    v->taken = wf_get_range(r, 0, WF_MANY, "elements of a turn");
    v->done = wf_get_range(r, 0, 1, "a flag");
    for (int i = 0; i < s->n_in && !st; i++) {
        v->in[i].ended = wf_get_range(r, 0, 1, "a flag");
        v->n_open -= v->in[i].ended;
        st = r->st ? r->st : wf_cursor_restore(&v->in[i].cur, s->env, s->ds->in[i], r);
    }
    return st;
}

static void mix_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct mix *o = ds->param;

    if (o->block_length) {
        wf_buf_printf(out, "block=%lld", (long long)o->block_length);
        return;
    }
    wf_buf_printf(out, "seed=%llu%s", (unsigned long long)o->seed, o->stop_at_first ? " stop" : "");
    for (int i = 0; i < ds->n_in; i++)
        wf_buf_printf(out, " %.17g", o->weight[i]);
}

static const struct wf_ds_kind interleave_n_kind = {
    .name = "interleave",
    .open = mix_open,
    .close = mix_close,
    .reset = mix_reset,
    .pull = mix_pull,
    .make = wf_picks_make,
    .drop = wf_picks_drop,
    .save = mix_save,
    .restore = mix_restore,
    .text = mix_text,
};
static const struct wf_ds_kind sample_from_kind = {
    .name = "sample_from",
    .open = mix_open,
    .close = mix_close,
    .reset = mix_reset,
    .pull = mix_pull,
    .make = wf_picks_make,
    .drop = wf_picks_drop,
    .save = mix_save,
    .restore = mix_restore,
    .text = mix_text,
};

/* ---- builders -------------------------------------------------------------------------------- */

static int64_t joint_count(const struct wf_ds *ds)
{
    int64_t sum = 0;

    for (int i = 0; i < ds->n_in; i++) {
        if (ds->in[i]->inexact || ds->in[i]->count == WEFT_UNKNOWN)
            return WEFT_UNKNOWN;
        if (ds->in[i]->count == WEFT_ENDLESS || !wf_add_i64(sum, ds->in[i]->count, &sum))
            return WEFT_ENDLESS;
    }
    return sum;
}

static struct wf_ds *mix_new(weft_data *d, const struct wf_ds_kind *kind, int n, const weft_ds *s)
{
    struct wf_ds *ds;
    weft_status st;

    if (n < 1) {
        wf_ds_fail(d, kind->name, wf_err(WEFT_EINVAL, "%d datasets", n));
        return NULL;
    }
    ds = wf_ds_new(d, kind, n, s, sizeof(struct mix));
    if (!ds)
        return NULL;
    st = wf_ds_join_inputs(ds);
    if (st) {
        wf_ds_fail(d, kind->name, st);
        return NULL;
    }
    ds->count = joint_count(ds);
    ds->addressable = false;
    ds->heavy = true;
    return ds;
}

weft_ds weft_ds_interleave_n(weft_data *d, int n, const weft_ds *s, int64_t block_length)
{
    struct wf_ds *ds;

    if (block_length < 0)
        return wf_ds_fail(d, "interleave",
                          wf_err(WEFT_EINVAL, "blocks of %lld elements", (long long)block_length));
    ds = mix_new(d, &interleave_n_kind, n, s);
    if (!ds)
        return (weft_ds){0};
    ((struct mix *)ds->param)->block_length = block_length ? block_length : 1;
    return wf_ds_handle(ds);
}

weft_ds weft_ds_sample_from(weft_data *d, int n, const weft_ds *s, const double *weights,
                            const weft_sample_from_opts *opts)
{
    weft_sample_from_opts given;
    struct wf_ds *ds;
    struct mix *o;
    double sum = 0;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_sample_from_opts");

    for (int i = 0; i < n && !st && weights; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            st = wf_err(WEFT_EINVAL, "weight %d is %g", i, weights[i]);
        sum += weights[i];
    }
    if (!st && weights && !(sum > 0 && !isinf(sum)))
        st = wf_err(WEFT_EINVAL, "the weights sum to %g", sum);
    if (st)
        return wf_ds_fail(d, "sample_from", st);
    ds = mix_new(d, &sample_from_kind, n, s);
    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    o->weight = wf_arena_alloc(&d->arena, (size_t)n * sizeof *o->weight);
    if (!o->weight)
        return wf_ds_fail(d, "sample_from", wf_err_nomem(d->ctx, 0, "the pipeline"));
    for (int i = 0; i < n; i++)
        o->weight[i] = weights ? weights[i] : 1;
    o->seed = given.seed;
    o->stop_at_first = given.stop_at_first_end;
    ds->reordered = true;
    if (ds->count != WEFT_ENDLESS && (o->stop_at_first || weights))
        ds->count = WEFT_UNKNOWN; /* where it stops depends on the draws, or on weights of zero */
    return wf_ds_handle(ds);
}
