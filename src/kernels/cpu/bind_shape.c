/* bind_shape.c - ops that move elements, on the boxes, joins and borders of move.h. */
#include "kernels/cpu/ew.h"
#include "kernels/cpu/move.h"
#include "kernels/kernels.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_shape.def"
#undef KERNEL

static int size_of(weft_dtype t)
{
    return (int)weft_dtype_size(t);
}

/* ---- one box --------------------------------------------------------------------------------- */

struct box_state {
    const struct wf_move_fns *f;
    int size;
    struct wf_box box;
    int64_t src_at, dst_at; /* elements */
    int64_t n_zeros;        /* of the result, before the box */
};

static struct box_state *new_box(struct wf_kplan *p)
{
    struct box_state *s = wf_kplan_state(p, sizeof *s);

    if (s) {
        s->f = wf_move_fns_at(p->ctx->simd);
        s->size = size_of(p->in[0].dtype);
    }
    return s;
}

weft_status wf_run_box(const struct wf_call *c)
{
    const struct box_state *s = c->state;

    if (s->n_zeros)
        wf_fill(c->pool, s->size, s->n_zeros, &(uint64_t){0}, c->out[0].data);
    wf_copy_box(s->f, c->pool, s->size, &s->box, (const char *)c->in[0].data + s->src_at * s->size,
                (char *)c->out[0].data + s->dst_at * s->size);
    return WEFT_OK;
}

weft_status wf_plan_transpose(struct wf_kplan *p)
{
    const struct wf_attr *a = wf_attr(p->op, p->attr, "perm");
    struct box_state *s = new_box(p);
    int perm[WEFT_MAX_RANK], rank = p->in[0].rank;

    if (!s)
        return wf_kplan_nomem(p);
    for (int i = 0; i < rank; i++)
        perm[i] = a->n ? wf_axis_of(a->ints[i], rank) : rank - 1 - i;
    wf_box_transpose(rank, p->in[0].dim, perm, &s->box);
    return WEFT_OK;
}

weft_status wf_plan_reverse(struct wf_kplan *p)
{
    const struct wf_attr *axes = wf_attr(p->op, p->attr, "axes");
    struct box_state *s = new_box(p);
    bool reversed[WEFT_MAX_RANK] = {false};

    if (!s)
        return wf_kplan_nomem(p);
    for (int i = 0; i < axes->n; i++)
        reversed[wf_axis_of(axes->ints[i], p->in[0].rank)] = true;
    wf_box_reverse(p->in[0].rank, p->in[0].dim, reversed, &s->box, &s->src_at);
    return WEFT_OK;
}

weft_status wf_plan_tile(struct wf_kplan *p)
{
    struct box_state *s = new_box(p);

    if (!s)
        return wf_kplan_nomem(p);
    wf_box_tile(p->in[0].rank, p->in[0].dim, wf_attr(p->op, p->attr, "repeats")->ints, &s->box);
    return WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* What a slice reads along each axis. */
struct ranges {
    int64_t begin[WEFT_MAX_RANK], step[WEFT_MAX_RANK], size[WEFT_MAX_RANK];
};

static void set_range(struct ranges *r, int axis, struct wf_range v)
{
    r->begin[axis] = v.count ? v.first : 0;
    r->step[axis] = v.count > 1 ? v.stride : 1; /* the stride of a single element may be anything */
    r->size[axis] = v.count;
}

static struct ranges slice_ranges(const struct wf_kplan *p, const struct wf_type *x)
{
    const struct wf_attr *begin = wf_attr(p->op, p->attr, "begin");
    const struct wf_attr *size = wf_attr(p->op, p->attr, "size");
    struct ranges r;

    for (int a = 0; a < x->rank; a++) {
        int64_t b = begin->ints[a], n = size->ints[a];

        set_range(&r, a, (struct wf_range){b, 1, n < 0 ? x->dim[a] - b : n});
    }
    return r;
}

static struct ranges strided_ranges(const struct wf_kplan *p, const struct wf_type *x)
{
    struct ranges r;

    for (int a = 0; a < x->rank; a++)
        set_range(&r, a, wf_strided_axis(p->op, p->attr, a, x->dim[a]));
    return r;
}

static weft_status plan_pick(struct wf_kplan *p, struct ranges r)
{
    const struct wf_type *x = &p->in[0];
    struct box_state *s = new_box(p);

    if (!s)
        return wf_kplan_nomem(p);
    wf_box_slice(x->rank, x->dim, r.begin, r.step, r.size, &s->box, &s->src_at);
    return WEFT_OK;
}

weft_status wf_plan_slice(struct wf_kplan *p)
{
    return plan_pick(p, slice_ranges(p, &p->in[0]));
}

weft_status wf_plan_strided_slice(struct wf_kplan *p)
{
    return plan_pick(p, strided_ranges(p, &p->in[0]));
}

weft_status wf_plan_concat_part(struct wf_kplan *p)
{
    const struct wf_type *part = &p->out[0];
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), part->rank);
    int64_t offset = 0;
    struct ranges r;

    for (int64_t i = 0; i < wf_kplan_int(p, "index"); i++)
        offset += p->in[1 + i].dim[axis];
    for (int a = 0; a < part->rank; a++)
        set_range(&r, a, (struct wf_range){a == axis ? offset : 0, 1, part->dim[a]});
    return plan_pick(p, r);
}

/* Zeros everywhere, then the elements: only where plan_slice_pad declines. */
weft_status wf_plan_unslice(struct wf_kplan *p)
{
    const struct wf_type *y = &p->out[0];
    struct ranges r = strided_ranges(p, y);
    struct box_state *s = new_box(p);

    if (!s)
        return wf_kplan_nomem(p);
    s->n_zeros = wf_type_count(y);
    wf_box_unslice(y->rank, y->dim, r.begin, r.step, r.size, &s->box, &s->dst_at);
    return WEFT_OK;
}

/* ---- borders --------------------------------------------------------------------------------- */

struct pad_state {
    const struct wf_move_fns *f;
    int size, rank;
    int64_t dim[WEFT_MAX_RANK], before[WEFT_MAX_RANK], after[WEFT_MAX_RANK];
    enum wf_pad_mode mode;
    uint64_t value;
};

static struct pad_state *new_pad(struct wf_kplan *p)
{
    struct pad_state *s = wf_kplan_state(p, sizeof *s);

    if (s) {
        s->f = wf_move_fns_at(p->ctx->simd);
        s->size = size_of(p->in[0].dtype);
        s->rank = p->in[0].rank;
        memcpy(s->dim, p->in[0].dim, sizeof s->dim);
    }
    return s;
}

/* Last axes without a border are joined with the previous axis: longer rows. */
static void join_last(struct pad_state *s)
{
    for (int a = s->rank - 1; a > 0 && !s->before[a] && !s->after[a]; a--) {
        s->before[a - 1] *= s->dim[a];
        s->after[a - 1] *= s->dim[a];
        s->dim[a - 1] *= s->dim[a];
        s->rank--;
    }
}

weft_status wf_run_pad(const struct wf_call *c)
{
    const struct pad_state *s = c->state;

    wf_pad(s->f, c->pool, s->size, s->rank, s->dim, s->before, s->after, s->mode, &s->value,
           c->in[0].data, c->out[0].data);
    return WEFT_OK;
}

weft_status wf_plan_pad(struct wf_kplan *p)
{
    const struct wf_attr *pads = wf_attr(p->op, p->attr, "paddings");
    struct pad_state *s = new_pad(p);

    if (!s)
        return wf_kplan_nomem(p);
    wf_pad_mode_parse(wf_attr_str(p->op, p->attr, "mode"), &s->mode);
    wf_set(&s->value, p->out[0].dtype, 0, wf_kplan_float(p, "value"));
    for (int a = 0; a < s->rank; a++) {
        s->before[a] = pads->ints[2 * a];
        s->after[a] = pads->ints[2 * a + 1];
    }
    if (s->mode == WF_PAD_CONSTANT) /* mirrored elements are not mirrored rows */
        join_last(s);
    return WEFT_OK;
}

/* The gradient of a slice without steps is dy padded with zeros. */
static weft_status plan_slice_pad(struct wf_kplan *p, struct ranges r)
{
    const struct wf_type *y = &p->out[0];
    struct pad_state *s;

    for (int a = 0; a < y->rank; a++)
        if (r.step[a] != 1)
            return WEFT_ENOSUP;
    s = new_pad(p);
    if (!s)
        return wf_kplan_nomem(p);
    for (int a = 0; a < y->rank; a++) {
        s->before[a] = r.begin[a];
        s->after[a] = y->dim[a] - r.begin[a] - r.size[a];
    }
    join_last(s);
    return WEFT_OK;
}

weft_status wf_plan_slice_grad(struct wf_kplan *p)
{
    return plan_slice_pad(p, slice_ranges(p, &p->out[0]));
}

weft_status wf_plan_strided_slice_grad(struct wf_kplan *p)
{
    return plan_slice_pad(p, strided_ranges(p, &p->out[0]));
}

/* The middle of dy; mirrored borders must be summed and are left to the reference. */
weft_status wf_plan_pad_grad(struct wf_kplan *p)
{
    const struct wf_attr *pads = wf_attr(p->op, p->attr, "paddings");
    enum wf_pad_mode mode = WF_PAD_CONSTANT;
    struct ranges r;

    wf_pad_mode_parse(wf_attr_str(p->op, p->attr, "mode"), &mode);
    if (mode != WF_PAD_CONSTANT)
        return WEFT_ENOSUP;
    for (int a = 0; a < p->out[0].rank; a++)
        set_range(&r, a, (struct wf_range){pads->ints[2 * a], 1, p->out[0].dim[a]});
    return plan_pick(p, r);
}

/* ---- joining and parting --------------------------------------------------------------------- */

/* n_parts arrays of n_outer rows side by side; part i has bytes[i] in each row. */
struct parts_state {
    const struct wf_move_fns *f;
    int64_t n_outer;
    int n;
    int64_t bytes[];
};

/* A stacked part has size 1 along the axis. */
static weft_status plan_parts(struct wf_kplan *p, const struct wf_type *whole, int n,
                              const struct wf_type *parts, bool stacked)
{
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), whole->rank);
    int64_t inner = wf_type_part(whole, axis + 1, whole->rank) * size_of(whole->dtype);
    struct parts_state *s = wf_kplan_state(p, sizeof *s + sizeof s->bytes[0] * (size_t)n);

    if (!s)
        return wf_kplan_nomem(p);
    s->f = wf_move_fns_at(p->ctx->simd);
    s->n_outer = wf_type_part(whole, 0, axis);
    s->n = n;
    for (int i = 0; i < n; i++)
        s->bytes[i] = (stacked ? 1 : parts[i].dim[axis]) * inner;
    return WEFT_OK;
}

weft_status wf_plan_concat(struct wf_kplan *p)
{
    return plan_parts(p, &p->out[0], p->n_in, p->in, false);
}

weft_status wf_plan_stack(struct wf_kplan *p)
{
    return plan_parts(p, &p->out[0], p->n_in, p->in, true);
}

weft_status wf_plan_split(struct wf_kplan *p)
{
    return plan_parts(p, &p->in[0], p->n_out, p->out, false);
}

weft_status wf_plan_unstack(struct wf_kplan *p)
{
    return plan_parts(p, &p->in[0], p->n_out, p->out, true);
}

weft_status wf_run_join(const struct wf_call *c)
{
    const struct parts_state *s = c->state;
    const void *parts[WF_MAX_IN];

    for (int i = 0; i < s->n; i++)
        parts[i] = c->in[i].data;
    wf_concat(s->f, c->pool, s->n_outer, s->n, parts, s->bytes, c->out[0].data);
    return WEFT_OK;
}

weft_status wf_run_part(const struct wf_call *c)
{
    const struct parts_state *s = c->state;
    void *parts[WF_MAX_OUT];

    for (int i = 0; i < s->n; i++)
        parts[i] = c->out[i].data;
    wf_split(s->f, c->pool, s->n_outer, s->n, c->in[0].data, s->bytes, parts);
    return WEFT_OK;
}

/* ---- the gradient of tile -------------------------------------------------------------------- */

/* dx[row] = the sum of dy[row of each copy], where rows are along the last axis. */
struct tile_sum {
    wf_ew_fn *add;
    int rank; /* without the last axis */
    int64_t n[WEFT_MAX_RANK], repeats[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    int64_t width, n_rows, n_copies, rows_per_tile, last_repeats;
};

weft_status wf_plan_tile_grad(struct wf_kplan *p)
{
    const struct wf_attr *repeats = wf_attr(p->op, p->attr, "repeats");
    const struct wf_type *x = &p->out[0];
    struct tile_sum *s;

    if (p->in[0].dtype != WEFT_F32 || x->rank == 0)
        return WEFT_ENOSUP;
    s = wf_kplan_state(p, sizeof *s);
    if (!s)
        return wf_kplan_nomem(p);
    s->add = wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_add];
    s->rank = x->rank - 1;
    s->width = x->dim[s->rank];
    s->last_repeats = repeats->ints[s->rank];
    s->n_rows = wf_type_part(x, 0, s->rank);
    s->n_copies = s->last_repeats;
    for (int a = 0; a < s->rank; a++) {
        s->n[a] = x->dim[a];
        s->repeats[a] = repeats->ints[a];
        s->stride[a] = wf_type_part(&p->in[0], a + 1, p->in[0].rank);
        s->n_copies *= repeats->ints[a];
    }
    s->rows_per_tile = wf_max_i64(1, 8192 / wf_max_i64(1, s->width * s->n_copies));
    return WEFT_OK;
}

struct tile_sum_job {
    const struct tile_sum *s;
    const float *dy;
    float *dx;
};

/* Where copy `copy` of row `row` starts in dy. */
static int64_t copy_at(const struct tile_sum *s, int64_t row, int64_t copy)
{
    int64_t at = copy % s->last_repeats * s->width;

    copy /= s->last_repeats;
    for (int a = s->rank - 1; a >= 0; a--) {
        at += (copy % s->repeats[a] * s->n[a] + row % s->n[a]) * s->stride[a];
        copy /= s->repeats[a];
        row /= s->n[a];
    }
    return at;
}

static void tile_sum_tile(void *arg, int64_t tile, int thread)
{
    const struct tile_sum_job *j = arg;
    const struct tile_sum *s = j->s;
    int64_t end = wf_min_i64((tile + 1) * s->rows_per_tile, s->n_rows);

    (void)thread;
    for (int64_t row = tile * s->rows_per_tile; row < end; row++) {
        float *dx = j->dx + row * s->width;

        memset(dx, 0, (size_t)s->width * sizeof *dx);
        for (int64_t k = 0; k < s->n_copies; k++)
            s->add(dx, dx, j->dy + copy_at(s, row, k), NULL, s->width, NULL);
    }
}

weft_status wf_run_tile_grad(const struct wf_call *c)
{
    const struct tile_sum *s = c->state;
    struct tile_sum_job j = {s, c->in[0].data, c->out[0].data};

    if (s->width)
        wf_pool_for(c->pool, (s->n_rows + s->rows_per_tile - 1) / s->rows_per_tile, tile_sum_tile,
                    &j);
    return WEFT_OK;
}
