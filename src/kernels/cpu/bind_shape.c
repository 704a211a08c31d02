/* bind_shape.c - ops that move elements, as boxes to copy. */
#include "kernels/cpu/copy.h"
#include "kernels/cpu/ew.h"
#include "op/shape.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_shape.def"
#undef KERNEL

/* Boxes of a mirrored border grow as 3^axes. */
#define MAX_MIRRORS 81

weft_status run_moves(const struct wf_call *c)
{
    wf_moves_run(c->state, c->pool, c->in, c->out);
    return WEFT_OK;
}

static struct wf_moves *new_moves(struct wf_kplan *p, int max)
{
    struct wf_moves *m = wf_moves_new(p, max, p->in[0].dtype);

    if (!m)
        wf_err_nomem(p->ctx, sizeof *m, p->op->name);
    p->state = m;
    return m;
}

/* Row-major strides, in elements. */
static void strides_of(const struct wf_type *t, int64_t stride[WEFT_MAX_RANK])
{
    int64_t s = 1;

    for (int i = t->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= t->dim[i];
    }
}

/* The box of all elements of `t`, with the strides of `in` and `out`, which have its rank. */
static struct wf_box whole(const struct wf_type *t, const struct wf_type *in,
                           const struct wf_type *out)
{
    struct wf_box b = {.rank = t->rank};

    strides_of(in, b.in);
    strides_of(out, b.out);
    for (int i = 0; i < t->rank; i++)
        b.n[i] = t->dim[i];
    return b;
}

/* ---- order ----------------------------------------------------------------------------------- */

weft_status plan_transpose(struct wf_kplan *p)
{
    const struct wf_attr *perm = wf_attr(p->op, p->attr, "perm");
    struct wf_moves *m = new_moves(p, 1);
    struct wf_box b = whole(&p->out[0], &p->out[0], &p->out[0]);
    int64_t stride[WEFT_MAX_RANK];
    int rank = p->in[0].rank;

    if (!m)
        return WEFT_ENOMEM;
    strides_of(&p->in[0], stride);
    for (int i = 0; i < rank; i++)
        b.in[i] = stride[perm->n ? wf_axis_of(perm->ints[i], rank) : rank - 1 - i];
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

weft_status plan_reverse(struct wf_kplan *p)
{
    const struct wf_attr *axes = wf_attr(p->op, p->attr, "axes");
    struct wf_moves *m = new_moves(p, 1);
    struct wf_box b = whole(&p->out[0], &p->in[0], &p->out[0]);

    if (!m)
        return WEFT_ENOMEM;
    for (int i = 0; i < axes->n; i++) {
        int a = wf_axis_of(axes->ints[i], b.rank);

        b.in_at += (b.n[a] - 1) * b.in[a];
        b.in[a] = -b.in[a];
    }
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

/* ---- joining and parting --------------------------------------------------------------------- */

/* Between a part and elements from `offset` on of an axis of the whole. */
static struct wf_box part_box(const struct wf_type *whole_type, const struct wf_type *part,
                              int axis, int64_t offset, bool to_whole)
{
    struct wf_box b = to_whole ? whole(part, part, whole_type) : whole(part, whole_type, part);

    if (to_whole)
        b.out_at = offset * b.out[axis];
    else
        b.in_at = offset * b.in[axis];
    return b;
}

weft_status plan_concat(struct wf_kplan *p)
{
    struct wf_moves *m = new_moves(p, p->n_in);
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), p->out[0].rank);
    int64_t offset = 0;

    if (!m)
        return WEFT_ENOMEM;
    for (int i = 0; i < p->n_in; i++) {
        struct wf_box b = part_box(&p->out[0], &p->in[i], axis, offset, true);

        wf_moves_add(m, i, 0, &b);
        offset += p->in[i].dim[axis];
    }
    return WEFT_OK;
}

weft_status plan_concat_part(struct wf_kplan *p)
{
    struct wf_moves *m = new_moves(p, 1);
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), p->out[0].rank);
    int64_t offset = 0;
    struct wf_box b;

    if (!m)
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < wf_kplan_int(p, "index"); i++)
        offset += p->in[1 + i].dim[axis];
    b = part_box(&p->in[0], &p->out[0], axis, offset, false);
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

weft_status plan_split(struct wf_kplan *p)
{
    struct wf_moves *m = new_moves(p, p->n_out);
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), p->in[0].rank);
    int64_t offset = 0;

    if (!m)
        return WEFT_ENOMEM;
    for (int i = 0; i < p->n_out; i++) {
        struct wf_box b = part_box(&p->in[0], &p->out[i], axis, offset, false);

        wf_moves_add(m, 0, i, &b);
        offset += p->out[i].dim[axis];
    }
    return WEFT_OK;
}

static struct wf_type with_axis(const struct wf_type *t, int axis)
{
    struct wf_type e = *t;

    e.rank++;
    for (int i = e.rank - 1; i > axis; i--)
        e.dim[i] = e.dim[i - 1];
    e.dim[axis] = 1;
    return e;
}

weft_status plan_stack(struct wf_kplan *p)
{
    struct wf_moves *m = new_moves(p, p->n_in);
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), p->out[0].rank);

    if (!m)
        return WEFT_ENOMEM;
    for (int i = 0; i < p->n_in; i++) {
        struct wf_type part = with_axis(&p->in[i], axis);
        struct wf_box b = part_box(&p->out[0], &part, axis, i, true);

        wf_moves_add(m, i, 0, &b);
    }
    return WEFT_OK;
}

weft_status plan_unstack(struct wf_kplan *p)
{
    struct wf_moves *m = new_moves(p, p->n_out);
    int axis = wf_axis_of(wf_kplan_int(p, "axis"), p->in[0].rank);

    if (!m)
        return WEFT_ENOMEM;
    for (int i = 0; i < p->n_out; i++) {
        struct wf_type part = with_axis(&p->out[i], axis);
        struct wf_box b = part_box(&p->in[0], &part, axis, i, false);

        wf_moves_add(m, 0, i, &b);
    }
    return WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static void slice_ranges(const struct wf_kplan *p, const struct wf_type *x,
                         struct wf_range range[WEFT_MAX_RANK])
{
    const struct wf_attr *begin = wf_attr(p->op, p->attr, "begin");
    const struct wf_attr *size = wf_attr(p->op, p->attr, "size");

    for (int a = 0; a < x->rank; a++) {
        int64_t b = begin->ints[a], n = size->ints[a];

        range[a] = (struct wf_range){b, 1, n < 0 ? x->dim[a] - b : n};
    }
}

static void strided_ranges(const struct wf_kplan *p, const struct wf_type *x,
                           struct wf_range range[WEFT_MAX_RANK])
{
    for (int a = 0; a < x->rank; a++)
        range[a] = wf_strided_axis(p->op, p->attr, a, x->dim[a]);
}

/* The elements that the ranges pick, as strides of the whole. An axis of one element needs no
 * stride, which may be any number there. */
static struct wf_box range_box(const struct wf_type *whole_type, const struct wf_type *part,
                               const struct wf_range *range, bool to_whole)
{
    struct wf_box b = to_whole ? whole(part, part, whole_type) : whole(part, whole_type, part);
    int64_t *stride = to_whole ? b.out : b.in, *at = to_whole ? &b.out_at : &b.in_at;

    for (int a = 0; a < b.rank; a++) {
        if (range[a].count)
            *at += range[a].first * stride[a];
        stride[a] *= range[a].count > 1 ? range[a].stride : 1;
    }
    return b;
}

static weft_status pick(struct wf_kplan *p, const struct wf_range *range)
{
    struct wf_moves *m = new_moves(p, 1);
    struct wf_box b = range_box(&p->in[0], &p->out[0], range, false);

    if (!m)
        return WEFT_ENOMEM;
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

weft_status plan_slice(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];

    slice_ranges(p, &p->in[0], range);
    return pick(p, range);
}

weft_status plan_strided_slice(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];

    strided_ranges(p, &p->in[0], range);
    return pick(p, range);
}

/* ---- borders --------------------------------------------------------------------------------- */

/* Everything of the result outside the ranges (of stride 1) gets the constant: for each axis the
 * parts before and after, within the ranges of the axes before it. */
static void add_border(struct wf_moves *m, const struct wf_type *y, const struct wf_range *range)
{
    struct wf_box b = {.rank = y->rank};

    strides_of(y, b.out);
    for (int i = 0; i < y->rank; i++)
        b.n[i] = y->dim[i];
    for (int a = 0; a < y->rank; a++) {
        int64_t at = b.out_at, end = range[a].first + range[a].count;

        b.n[a] = range[a].first;
        wf_moves_add(m, WF_MOVE_CONSTANT, 0, &b);
        b.n[a] = y->dim[a] - end;
        b.out_at = at + end * b.out[a];
        wf_moves_add(m, WF_MOVE_CONSTANT, 0, &b);
        b.n[a] = range[a].count;
        b.out_at = at + range[a].first * b.out[a];
    }
}

/* x in the ranges of the result, the constant around it. */
static weft_status plan_bordered(struct wf_kplan *p, const struct wf_range *range, double value)
{
    struct wf_moves *m = new_moves(p, 2 * p->out[0].rank + 1);
    struct wf_box b = range_box(&p->out[0], &p->in[0], range, true);

    if (!m)
        return WEFT_ENOMEM;
    wf_set(m->constant, p->out[0].dtype, 0, value);
    add_border(m, &p->out[0], range);
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

weft_status plan_slice_grad(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];

    slice_ranges(p, &p->out[0], range);
    return plan_bordered(p, range, 0);
}

/* With strides: zeros everywhere, then the elements. */
weft_status plan_strided_slice_grad(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];
    struct wf_moves *m;
    struct wf_box b;
    bool plain = true;

    strided_ranges(p, &p->out[0], range);
    for (int a = 0; a < p->out[0].rank; a++)
        plain &= range[a].stride == 1 && range[a].count > 0;
    if (plain)
        return plan_bordered(p, range, 0);
    m = new_moves(p, 2);
    if (!m)
        return WEFT_ENOMEM;
    b = whole(&p->out[0], &p->out[0], &p->out[0]);
    memset(b.in, 0, sizeof b.in);
    wf_moves_add(m, WF_MOVE_CONSTANT, 0, &b);
    wf_moves_next_phase(m);
    b = range_box(&p->out[0], &p->in[0], range, true);
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

/* An axis of a mirrored pad falls into at most three parts: part k starts at `to` in the result and
 * at `from` in x and goes on by `step`. */
struct mirror {
    int64_t to, from, step, n;
};

static int mirrors_of(enum wf_pad_mode mode, int64_t before, int64_t n, int64_t after,
                      struct mirror part[3])
{
    int64_t edge = mode == WF_PAD_REFLECT ? 1 : 0;
    int k = 0;

    if (before)
        part[k++] = (struct mirror){0, before - 1 + edge, -1, before};
    part[k++] = (struct mirror){before, 0, 1, n};
    if (after)
        part[k++] = (struct mirror){before + n, n - 1 - edge, -1, after};
    return k;
}

static weft_status plan_mirrored(struct wf_kplan *p, enum wf_pad_mode mode)
{
    const struct wf_attr *pads = wf_attr(p->op, p->attr, "paddings");
    const struct wf_type *x = &p->in[0], *y = &p->out[0];
    struct mirror part[WEFT_MAX_RANK][3];
    int n_parts[WEFT_MAX_RANK], n = 1;
    struct wf_moves *m;

    for (int a = 0; a < x->rank; a++) {
        n_parts[a] = mirrors_of(mode, pads->ints[2 * a], x->dim[a], pads->ints[2 * a + 1], part[a]);
        n *= n_parts[a];
    }
    if (n > MAX_MIRRORS)
        return WEFT_ENOSUP;
    m = new_moves(p, n);
    if (!m)
        return WEFT_ENOMEM;
    for (int k = 0; k < n; k++) {
        struct wf_box b = whole(x, x, y);

        for (int a = 0, rest = k; a < x->rank; a++) {
            const struct mirror *q = &part[a][rest % n_parts[a]];

            rest /= n_parts[a];
            b.n[a] = q->n;
            b.out_at += q->to * b.out[a];
            b.in_at += q->from * b.in[a];
            b.in[a] *= q->step;
        }
        wf_moves_add(m, 0, 0, &b);
    }
    return WEFT_OK;
}

static enum wf_pad_mode mode_of(const struct wf_kplan *p)
{
    enum wf_pad_mode mode = WF_PAD_CONSTANT;

    wf_pad_mode_parse(wf_attr_str(p->op, p->attr, "mode"), &mode);
    return mode;
}

static void padded_ranges(const struct wf_kplan *p, const struct wf_type *x,
                          struct wf_range range[WEFT_MAX_RANK])
{
    const struct wf_attr *pads = wf_attr(p->op, p->attr, "paddings");

    for (int a = 0; a < x->rank; a++)
        range[a] = (struct wf_range){pads->ints[2 * a], 1, x->dim[a]};
}

weft_status plan_pad(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];

    if (mode_of(p) != WF_PAD_CONSTANT)
        return plan_mirrored(p, mode_of(p));
    padded_ranges(p, &p->in[0], range);
    return plan_bordered(p, range, wf_kplan_float(p, "value"));
}

weft_status plan_pad_grad(struct wf_kplan *p)
{
    struct wf_range range[WEFT_MAX_RANK];

    if (mode_of(p) != WF_PAD_CONSTANT)
        return WEFT_ENOSUP;
    padded_ranges(p, &p->out[0], range);
    return pick(p, range);
}

/* ---- tile ------------------------------------------------------------------------------------ */

weft_status plan_tile(struct wf_kplan *p)
{
    const struct wf_attr *repeats = wf_attr(p->op, p->attr, "repeats");
    struct wf_moves *m = new_moves(p, 1);
    struct wf_box b = {.rank = 2 * p->in[0].rank};
    int64_t in[WEFT_MAX_RANK], out[WEFT_MAX_RANK];

    if (!m)
        return WEFT_ENOMEM;
    strides_of(&p->in[0], in);
    strides_of(&p->out[0], out);
    for (int a = 0; a < p->in[0].rank; a++) {
        int64_t n = p->in[0].dim[a];

        b.n[2 * a] = repeats->ints[a];
        b.out[2 * a] = n * out[a];
        b.n[2 * a + 1] = n;
        b.in[2 * a + 1] = in[a];
        b.out[2 * a + 1] = out[a];
    }
    wf_moves_add(m, 0, 0, &b);
    return WEFT_OK;
}

/* dx[row] = the sum of dy[row of each copy], where rows are the last axis. */
struct tile_sum {
    wf_ew_fn *add;
    int rank; /* without the last axis */
    int64_t n[WEFT_MAX_RANK], repeats[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    int64_t width, n_rows, n_copies, rows_per_tile, last_repeats;
};

weft_status plan_tile_grad(struct wf_kplan *p)
{
    const struct wf_attr *repeats = wf_attr(p->op, p->attr, "repeats");
    const struct wf_type *x = &p->out[0];
    int64_t stride[WEFT_MAX_RANK];
    struct tile_sum *s;

    if (p->in[0].dtype != WEFT_F32 || x->rank == 0)
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, p->op->name);
    s->add = wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_add];
    s->rank = x->rank - 1;
    s->width = x->dim[s->rank];
    s->last_repeats = repeats->ints[s->rank];
    s->n_rows = wf_type_part(x, 0, s->rank);
    s->n_copies = s->last_repeats;
    strides_of(&p->in[0], stride);
    for (int a = 0; a < s->rank; a++) {
        s->n[a] = x->dim[a];
        s->repeats[a] = repeats->ints[a];
        s->stride[a] = stride[a];
        s->n_copies *= repeats->ints[a];
    }
    s->rows_per_tile = wf_max_i64(1, 8192 / wf_max_i64(1, s->width * s->n_copies));
    p->state = s;
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

weft_status run_tile_grad(const struct wf_call *c)
{
    const struct tile_sum *s = c->state;
    struct tile_sum_job j = {s, c->in[0].data, c->out[0].data};

    if (s->width)
        wf_pool_for(c->pool, (s->n_rows + s->rows_per_tile - 1) / s->rows_per_tile, tile_sum_tile,
                    &j);
    return WEFT_OK;
}
