/* shuffle.c - the shuffle buffer.
 *
 * The next element is drawn from a buffer of n and replaced by the next of the input; draw number i
 * of a pass is a function of (seed, epoch, i). For an addressable input the buffer holds numbers,
 * and elements are read when they are needed. For a stream it holds elements, in slots (pick.h). */
#include "data/data.h"
#include "data/engine/pick.h"

#define SALT_BUFFER 0x62756666u

struct shuffle {
    int64_t n;
    uint64_t seed;
    bool same_each_epoch;
};

struct buffer {
    int64_t epoch, n_drawn;
    int64_t cap, n; /* of the buffer, and elements in it */
    bool filled, ended;
    /* over an addressable input */
    int64_t *id, next;
    /* over a stream */
    struct wf_slots slots;
    struct wf_cursor in;
    int64_t bytes; /* bytes read while filling */
};

static bool by_number(const struct wf_stage *s)
{
    return wf_ds_addressable(s->ds->in[0]);
}

static int64_t draw(const struct wf_stage *s, struct buffer *b)
{
    const struct shuffle *o = s->ds->param;
    int64_t epoch = o->same_each_epoch ? 0 : b->epoch;

    return wf_random_index(wf_random_word(o->seed, epoch, b->n_drawn++, SALT_BUFFER), b->n);
}

static weft_status buffer_open(struct wf_stage *s)
{
    const struct shuffle *o = s->ds->param;
    weft_ctx *ctx = s->env->ctx;
    struct buffer *b = wf_alloc(ctx, sizeof *b);
    int64_t count = s->ds->in[0]->count, bytes;
    weft_status st;

    if (!b)
        return wf_env_nomem(s->env, sizeof *b, "a buffer");
    s->state = b;
    b->cap = count >= 0 ? wf_max_i64(wf_min_i64(o->n, count), 1) : o->n;
    if (!wf_mul_i64(b->cap, sizeof(struct wf_pick), &bytes) || bytes > s->env->budget)
        return wf_err(WEFT_ELIMIT,
                      "a buffer of %lld elements does not fit the iterator's memory of %lld bytes",
                      (long long)b->cap, (long long)s->env->budget);
    if (!by_number(s)) {
        st = wf_slots_init(&b->slots, s->env, b->cap);
        return st ? st : wf_stage_input(s, 0, WF_IN_MADE, 0);
    }
    s->n_in = 0; /* elements are read by number: the input does not run */
    b->id = wf_alloc_n(ctx, b->cap, sizeof *b->id);
    return b->id ? WEFT_OK : wf_env_nomem(s->env, bytes, "a buffer");
}

/* ---- elements of a stream -------------------------------------------------------------------- */

static void buffer_close(struct wf_stage *s)
{
    struct buffer *b = s->state;

    if (!b)
        return;
    wf_cursor_clear(&b->in);
    wf_slots_free(&b->slots);
    wf_free(s->env->ctx, b->id);
    wf_free(s->env->ctx, b);
}

static weft_status buffer_reset(struct wf_stage *s, int64_t epoch)
{
    struct buffer *b = s->state;

    wf_slots_clear_all(&b->slots);
    wf_cursor_clear(&b->in);
    b->epoch = epoch;
    b->n_drawn = b->n = b->next = b->bytes = 0;
    b->filled = b->ended = false;
    return s->n_in ? wf_stage_reset(s->in[0], epoch) : WEFT_OK;
}

static weft_status too_large(struct wf_stage *s, struct buffer *b, int64_t bytes, int64_t n)
{
    return wf_err(
        WEFT_ELIMIT,
        "a buffer of %lld elements of about %lld bytes does not fit the iterator's memory "
        "of %lld bytes: give it more (weft_iter_opts.memory) or make the buffer smaller",
        (long long)b->cap, (long long)(bytes / n), (long long)s->env->budget);
}

/* Elements of the input into free slots, up to the capacity. */
static weft_status fill_slots(struct wf_stage *s, struct buffer *b)
{
    bool more = true;
    double each;
    weft_status st = WEFT_OK;

    while (b->n < b->cap && more) {
        bool fresh = !b->in.held || b->in.i >= b->in.held->block->n;

        st = wf_cursor_need(&b->in, s->in[0], INT64_MAX, &more);
        if (st || !more)
            break;
        if (fresh) {
            b->bytes += wf_block_content_bytes(b->in.held->block);
            each = (double)b->bytes / (double)(b->n + b->in.held->block->n);
            if (each * (double)b->cap > (double)s->env->budget)
                return too_large(s, b, b->bytes, b->n + b->in.held->block->n);
        }
        wf_slots_set(&b->slots, b->n++, b->in.held, b->in.i++);
    }
    b->ended = !more;
    b->filled = !st;
    return st;
}

/* The next element takes the slot of the one drawn, or the last of the buffer does. */
static weft_status replace(struct wf_stage *s, struct buffer *b, int64_t j)
{
    bool more = !b->ended;
    weft_status st = WEFT_OK;

    if (more)
        st = wf_cursor_need(&b->in, s->in[0], INT64_MAX, &more);
    if (st)
        return st;
    wf_slots_clear(&b->slots, j);
    if (more) {
        wf_slots_set(&b->slots, j, b->in.held, b->in.i++);
    } else {
        b->ended = true;
        b->n--;
        b->slots.slot[j] = b->slots.slot[b->n];
        b->slots.slot[b->n].held = NULL;
    }
    return WEFT_OK;
}

static weft_status pull_slots(struct wf_stage *s, struct buffer *b, int64_t want,
                              struct wf_promise **out)
{
    struct wf_picks *p = NULL;
    weft_status st = b->filled ? WEFT_OK : fill_slots(s, b);

    *out = NULL;
    if (st || !b->n)
        return st;
    st = wf_picks_new(s->env->ctx, want, &p);
    while (!st && p->n < want && b->n) {
        int64_t j = draw(s, b);

        wf_picks_add(p, b->slots.slot[j].held, b->slots.slot[j].i);
        st = replace(s, b, j);
    }
    if (!st)
        st = wf_slots_tidy(&b->slots);
    if (st) {
        wf_picks_free(p);
        return st;
    }
    p->text = WF_TEXT_COPIED;
    return wf_picks_promise(s, p, p->n, out);
}

/* ---- numbers over an addressable input ------------------------------------------------------- */

static weft_status pull_numbers(struct wf_stage *s, struct buffer *b, int64_t want,
                                struct wf_promise **out)
{
    int64_t count = s->ds->in[0]->count, n = 0;
    struct wf_at *at;

    while (b->n < b->cap && b->next < count)
        b->id[b->n++] = b->next++;
    b->filled = true;
    want = wf_min_i64(want, count - (b->next - b->n));
    *out = NULL;
    if (!b->n)
        return WEFT_OK;
    at = wf_alloc_n(s->env->ctx, want, sizeof *at);
    if (!at)
        return wf_env_nomem(s->env, want * (int64_t)sizeof *at, "a buffer");
    while (n < want && b->n) {
        int64_t j = draw(s, b);

        at[n++] = (struct wf_at){b->epoch, b->id[j]};
        b->id[j] = b->next < count ? b->next++ : b->id[--b->n];
    }
    *out = wf_promise_new(s, n, 0, NULL, at);
    if (!*out) {
        wf_free(s->env->ctx, at);
        return WEFT_ENOMEM;
    }
    return WEFT_OK;
}

static weft_status buffer_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    return by_number(s) ? pull_numbers(s, s->state, want, out) : pull_slots(s, s->state, want, out);
}

static weft_status buffer_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    weft_status st;

    if (!by_number(p->stage))
        return wf_picks_make(p, w, out);
    st = wf_ds_get_block(p->stage->ds->in[0], w, p->data, p->n, out);
    wf_free(w->env->ctx, p->data);
    return st;
}

static void buffer_drop(struct wf_promise *p)
{
    if (by_number(p->stage))
        wf_free(p->stage->env->ctx, p->data);
    else
        wf_picks_drop(p);
}

/* ---- position -------------------------------------------------------------------------------- */

static weft_status buffer_save(struct wf_stage *s, struct wf_buf *out)
{
    struct buffer *b = s->state;

    wf_put_i64(out, b->epoch);
    wf_put_i64(out, b->n_drawn);
    wf_put_i64(out, b->filled);
    wf_put_i64(out, b->ended);
    wf_put_i64(out, b->n);
    wf_put_i64(out, b->next);
    for (int64_t j = 0; j < b->n && b->id; j++)
        wf_put_i64(out, b->id[j]);
    if (!b->id && !out->st)
        out->st = wf_slots_save(&b->slots, 0, b->n, out);
    return b->id || out->st ? out->st : wf_cursor_save(&b->in, out);
}

static weft_status buffer_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct buffer *b = s->state;
    int64_t n, count = s->ds->in[0]->count;
    weft_status st;

    wf_slots_clear_all(&b->slots);
    wf_cursor_clear(&b->in);
    b->n = 0;
    b->epoch = wf_get_i64(r);
    b->n_drawn = wf_get_range(r, 0, WF_MANY, "a number of draws");
    b->filled = wf_get_range(r, 0, 1, "a flag");
    b->ended = wf_get_range(r, 0, 1, "a flag");
    n = wf_get_range(r, 0, b->cap, "elements in the buffer");
    b->next = wf_get_range(r, b->id ? n : 0, b->id ? count : WF_MANY, "a sample number");
    if (r->st)
        return r->st;
    b->n = n;
    for (int64_t j = 0; j < n && b->id; j++)
        b->id[j] = wf_get_range(r, 0, count - 1, "a sample number");
    if (b->id)
        return r->st;
    st = wf_slots_restore(&b->slots, s->ds->in[0], 0, n, r);
    return st ? st : wf_cursor_restore(&b->in, s->env, s->ds->in[0], r);
}

static void buffer_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct shuffle *o = ds->param;

    wf_buf_printf(out, "%lld seed=%llu%s", (long long)o->n, (unsigned long long)o->seed,
                  o->same_each_epoch ? " same" : "");
}

static const struct wf_ds_kind buffer_kind = {
    .name = "shuffle",
    .open = buffer_open,
    .close = buffer_close,
    .reset = buffer_reset,
    .pull = buffer_pull,
    .make = buffer_make,
    .drop = buffer_drop,
    .save = buffer_save,
    .restore = buffer_restore,
    .text = buffer_text,
};

weft_ds weft_ds_shuffle(weft_data *d, weft_ds s, int64_t n, const weft_shuffle_opts *opts)
{
    weft_shuffle_opts given;
    struct wf_ds *ds;
    struct shuffle *o;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_shuffle_opts");

    if (!st && n < 1)
        st = wf_err(WEFT_EINVAL, "a buffer of %lld elements", (long long)n);
    if (st)
        return wf_ds_fail(d, "shuffle", st);
    ds = wf_ds_new(d, &buffer_kind, 1, &s, sizeof *o);
    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    *o = (struct shuffle){n, given.seed, given.same_each_epoch};
    ds->addressable = false;
    ds->heavy = true;
    ds->reordered = ds->reordered || !o->same_each_epoch;
    return wf_ds_handle(ds);
}
