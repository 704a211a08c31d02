/* shape.c - reference kernels of ops that move elements. Moves keep the bits whatever the dtype. */
#include "kernels/ref/ref.h"
#include "op/shape.h"

static void move(const struct wf_tensor *to, int64_t i, const struct wf_tensor *from, int64_t j)
{
    size_t size = (size_t)weft_dtype_size(to->type.dtype);

    memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)j * size, size);
}

static void zero(const struct wf_tensor *t)
{
    if (wf_type_bytes(&t->type))
        memset(t->data, 0,
               (size_t)wf_type_bytes(&t->type)); /* all zero bits are 0 in every dtype */
}

/* The coordinates of linear index i, and back. */
static void unravel(const struct wf_type *t, int64_t i, int64_t at[WEFT_MAX_RANK])
{
    for (int a = t->rank - 1; a >= 0; a--) {
        at[a] = i % t->dim[a];
        i /= t->dim[a];
    }
}

static int64_t ravel(const struct wf_type *t, const int64_t at[WEFT_MAX_RANK])
{
    int64_t i = 0;

    for (int a = 0; a < t->rank; a++)
        i = i * t->dim[a] + at[a];
    return i;
}

weft_status wf_ref_transpose(const struct wf_call *c)
{
    const struct wf_attr *perm = wf_call_attr(c, "perm");
    const struct wf_type *x = &c->in[0].type, *y = &c->out[0].type;
    int64_t at[WEFT_MAX_RANK] = {0}, from[WEFT_MAX_RANK] = {0}, n = wf_type_count(y);

    for (int64_t i = 0; i < n; i++) {
        unravel(y, i, at);
        for (int a = 0; a < y->rank; a++)
            from[perm->n ? wf_axis_of(perm->ints[a], x->rank) : x->rank - 1 - a] = at[a];
        move(&c->out[0], i, &c->in[0], ravel(x, from));
    }
    return WEFT_OK;
}

weft_status wf_ref_reverse(const struct wf_call *c)
{
    const struct wf_attr *axes = wf_call_attr(c, "axes");
    const struct wf_type *y = &c->out[0].type;
    int64_t at[WEFT_MAX_RANK] = {0}, n = wf_type_count(y);

    for (int64_t i = 0; i < n; i++) {
        unravel(y, i, at);
        for (int k = 0; k < axes->n; k++) {
            int a = wf_axis_of(axes->ints[k], y->rank);

            at[a] = y->dim[a] - 1 - at[a];
        }
        move(&c->out[0], i, &c->in[0], ravel(y, at));
    }
    return WEFT_OK;
}

/* ---- joining and parting --------------------------------------------------------------------- */

/* Copy between `part` and elements [offset, offset + size) of an axis of `whole`. */
static void copy_part(const struct wf_tensor *whole, const struct wf_tensor *part, int axis,
                      int64_t offset, bool to_whole)
{
    int64_t at[WEFT_MAX_RANK] = {0}, n = wf_count(part);

    for (int64_t i = 0; i < n; i++) {
        int64_t k;

        unravel(&part->type, i, at);
        at[axis] += offset;
        k = ravel(&whole->type, at);
        if (to_whole)
            move(whole, k, part, i);
        else
            move(part, i, whole, k);
    }
}

weft_status wf_ref_concat(const struct wf_call *c)
{
    int axis = wf_axis_of(wf_call_int(c, "axis"), c->out[0].type.rank);
    int64_t offset = 0;

    for (int i = 0; i < c->n_in; i++) {
        copy_part(&c->out[0], &c->in[i], axis, offset, true);
        offset += c->in[i].type.dim[axis];
    }
    return WEFT_OK;
}

weft_status wf_ref_concat_part(const struct wf_call *c)
{
    int axis = wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank);
    int64_t index = wf_call_int(c, "index"), offset = 0;

    for (int64_t i = 0; i < index; i++)
        offset += c->in[1 + i].type.dim[axis];
    copy_part(&c->in[0], &c->out[0], axis, offset, false);
    return WEFT_OK;
}

weft_status wf_ref_split(const struct wf_call *c)
{
    int axis = wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank);
    int64_t offset = 0;

    for (int i = 0; i < c->n_out; i++) {
        copy_part(&c->in[0], &c->out[i], axis, offset, false);
        offset += c->out[i].type.dim[axis];
    }
    return WEFT_OK;
}

/* A part with its axis of size 1 put back. */
static struct wf_tensor with_axis(const struct wf_tensor *t, int axis)
{
    struct wf_tensor e = *t;

    e.type.rank++;
    for (int i = e.type.rank - 1; i > axis; i--)
        e.type.dim[i] = e.type.dim[i - 1];
    e.type.dim[axis] = 1;
    return e;
}

weft_status wf_ref_stack(const struct wf_call *c)
{
    int axis = wf_axis_of(wf_call_int(c, "axis"), c->out[0].type.rank);

    for (int i = 0; i < c->n_in; i++) {
        struct wf_tensor part = with_axis(&c->in[i], axis);

        copy_part(&c->out[0], &part, axis, i, true);
    }
    return WEFT_OK;
}

weft_status wf_ref_unstack(const struct wf_call *c)
{
    int axis = wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank);

    for (int i = 0; i < c->n_out; i++) {
        struct wf_tensor part = with_axis(&c->out[i], axis);

        copy_part(&c->in[0], &part, axis, i, false);
    }
    return WEFT_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* The range of each axis of x that the call picks. */
static void slice_ranges(const struct wf_call *c, const struct wf_type *x,
                         struct wf_range range[WEFT_MAX_RANK])
{
    const struct wf_attr *begin = wf_call_attr(c, "begin"), *size = wf_call_attr(c, "size");

    for (int a = 0; a < x->rank; a++) {
        int64_t b = begin->ints[a], n = size->ints[a];

        range[a] = (struct wf_range){b, 1, n < 0 ? x->dim[a] - b : n};
    }
}

static void strided_ranges(const struct wf_call *c, const struct wf_type *x,
                           struct wf_range range[WEFT_MAX_RANK])
{
    for (int a = 0; a < x->rank; a++)
        range[a] = wf_strided_axis(c->op, c->attr, a, x->dim[a]);
}

/* Copy between `part` and the elements of `whole` that the ranges pick. */
static void copy_ranges(const struct wf_tensor *whole, const struct wf_tensor *part,
                        const struct wf_range range[WEFT_MAX_RANK], bool to_whole)
{
    int64_t at[WEFT_MAX_RANK] = {0}, n = wf_count(part);

    for (int64_t i = 0; i < n; i++) {
        int64_t k;

        unravel(&part->type, i, at);
        for (int a = 0; a < whole->type.rank; a++)
            at[a] = range[a].first + at[a] * range[a].stride;
        k = ravel(&whole->type, at);
        if (to_whole)
            move(whole, k, part, i);
        else
            move(part, i, whole, k);
    }
}

weft_status wf_ref_slice(const struct wf_call *c)
{
    struct wf_range range[WEFT_MAX_RANK];

    slice_ranges(c, &c->in[0].type, range);
    copy_ranges(&c->in[0], &c->out[0], range, false);
    return WEFT_OK;
}

weft_status wf_ref_slice_grad(const struct wf_call *c)
{
    struct wf_range range[WEFT_MAX_RANK];

    slice_ranges(c, &c->out[0].type, range);
    zero(&c->out[0]);
    copy_ranges(&c->out[0], &c->in[0], range, true);
    return WEFT_OK;
}

weft_status wf_ref_strided_slice(const struct wf_call *c)
{
    struct wf_range range[WEFT_MAX_RANK];

    strided_ranges(c, &c->in[0].type, range);
    copy_ranges(&c->in[0], &c->out[0], range, false);
    return WEFT_OK;
}

weft_status wf_ref_strided_slice_grad(const struct wf_call *c)
{
    struct wf_range range[WEFT_MAX_RANK];

    strided_ranges(c, &c->out[0].type, range);
    zero(&c->out[0]);
    copy_ranges(&c->out[0], &c->in[0], range, true);
    return WEFT_OK;
}

/* ---- borders and copies ---------------------------------------------------------------------- */

/* Where element i of the padded shape comes from in x; -1: from the constant. */
static int64_t pad_from(const struct wf_call *c, const struct wf_type *x,
                        const struct wf_type *padded, int64_t i)
{
    const struct wf_attr *p = wf_call_attr(c, "paddings");
    enum wf_pad_mode mode = WF_PAD_CONSTANT;
    int64_t at[WEFT_MAX_RANK] = {0};

    wf_pad_mode_parse(wf_attr_str(c->op, c->attr, "mode"), &mode);
    unravel(padded, i, at);
    for (int a = 0; a < x->rank; a++) {
        at[a] = wf_pad_source(mode, at[a], p->ints[2 * a], x->dim[a]);
        if (at[a] < 0)
            return -1;
    }
    return ravel(x, at);
}

weft_status wf_ref_pad(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++) {
        int64_t from = pad_from(c, &c->in[0].type, &c->out[0].type, i);

        if (from < 0)
            ref_set(&c->out[0], i, wf_call_float(c, "value"));
        else
            move(&c->out[0], i, &c->in[0], from);
    }
    return WEFT_OK;
}

weft_status wf_ref_pad_grad(const struct wf_call *c)
{
    int64_t n = wf_count(&c->in[0]);

    zero(&c->out[0]);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = pad_from(c, &c->out[0].type, &c->in[0].type, i);

        if (to >= 0)
            ref_set(&c->out[0], to, ref_get(&c->out[0], to) + ref_get(&c->in[0], i));
    }
    return WEFT_OK;
}

/* Where element i of the tiled shape comes from in x. */
static int64_t tile_from(const struct wf_type *x, const struct wf_type *tiled, int64_t i)
{
    int64_t at[WEFT_MAX_RANK] = {0};

    unravel(tiled, i, at);
    for (int a = 0; a < x->rank; a++)
        at[a] %= x->dim[a];
    return ravel(x, at);
}

weft_status wf_ref_tile(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        move(&c->out[0], i, &c->in[0], tile_from(&c->in[0].type, &c->out[0].type, i));
    return WEFT_OK;
}

/* The sum over the copies of one element, in their order in dy. */
static double sum_copies(const struct wf_call *c, int64_t i)
{
    const struct wf_attr *repeats = wf_call_attr(c, "repeats");
    const struct wf_type *x = &c->out[0].type, *y = &c->in[0].type;
    struct wf_type copies = {.rank = x->rank};
    int64_t at[WEFT_MAX_RANK] = {0}, which[WEFT_MAX_RANK] = {0}, n;
    double sum = 0;

    for (int a = 0; a < x->rank; a++)
        copies.dim[a] = repeats->ints[a];
    n = wf_type_count(&copies);
    for (int64_t k = 0; k < n; k++) {
        unravel(x, i, at);
        unravel(&copies, k, which);
        for (int a = 0; a < x->rank; a++)
            at[a] += which[a] * x->dim[a];
        sum += ref_get(&c->in[0], ravel(y, at));
    }
    return sum;
}

weft_status wf_ref_tile_grad(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, sum_copies(c, i));
    return WEFT_OK;
}
