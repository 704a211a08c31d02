/* grad_shape.c - gradient rules of ops that move or re-read elements.
 *
 * All of them are linear: an op and its *_grad twin are each other's gradient. No rule reads a
 * size that may be a symbol; the twins follow the shape of an operand instead. */
#include "graph/grad.h"
#include "graph/shape.h"
#include "op/shape.h"

weft_val wf_expand_axes(weft_graph *g, weft_val x, int n, const int64_t *axes, int rank)
{
    int64_t positive[WEFT_MAX_RANK];

    for (int i = 0; i < n && i < WEFT_MAX_RANK; i++)
        positive[i] = axes[i] < 0 ? axes[i] + rank : axes[i];
    struct wf_set sets[] = {WF_SET_INTS("axes", n, positive)};

    return wf_build(g, WF_OP_expand_dims, 1, &x, 1, sets);
}

weft_status wf_grad_reshape(struct wf_grad *r)
{
    r->din[0] = wf_binary(r->g, WF_OP_reshape_like, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_reshape_like(struct wf_grad *r)
{
    if (r->need[0])
        r->din[0] = wf_binary(r->g, WF_OP_reshape_like, r->dout[0], r->in[0]);
    return r->g->st;
}

weft_status wf_grad_transpose(struct wf_grad *r)
{
    const struct wf_attr *perm = wf_attr(r->op, r->attr, "perm");
    int64_t inverse[WEFT_MAX_RANK] = {0};

    for (int i = 0; i < perm->n; i++)
        inverse[wf_axis_of(perm->ints[i], perm->n)] = i;
    struct wf_set sets[] = {WF_SET_INTS("perm", perm->n, inverse)};

    r->din[0] = wf_build(r->g, WF_OP_transpose, 1, &r->dout[0], 1, sets);
    return r->g->st;
}

/* op(y, like; the same attributes under the same names). */
static weft_val twin(struct wf_grad *r, int op_id, weft_val y, weft_val like)
{
    const struct wf_op *op = wf_op_row(r->g->ctx, op_id);
    struct wf_set sets[WF_MAX_ATTRS];
    int n = 0;

    for (int i = 0; i < r->op->n_attrs; i++)
        for (int k = 0; k < op->n_attrs; k++)
            if (!strcmp(op->attr[k].name, r->op->attr[i].name))
                sets[n++] = (struct wf_set){op->attr[k].name, r->attr[i]};
    return wf_build_row(r->g, op, like.id ? 2 : 1, (weft_val[]){y, like}, n, sets);
}

/* The gradient of a forward op is its twin with the operand to follow, and the twin's is the
 * forward op. */
static weft_status forward(struct wf_grad *r, int twin_op)
{
    r->din[0] = twin(r, twin_op, r->dout[0], r->in[0]);
    return r->g->st;
}

static weft_status backward(struct wf_grad *r, int forward_op)
{
    if (r->need[0])
        r->din[0] = twin(r, forward_op, r->dout[0], WEFT_NIL);
    return r->g->st;
}

weft_status wf_grad_slice(struct wf_grad *r)
{
    return forward(r, WF_OP_slice_grad);
}

weft_status wf_grad_slice_grad(struct wf_grad *r)
{
    return backward(r, WF_OP_slice);
}

weft_status wf_grad_strided_slice(struct wf_grad *r)
{
    return forward(r, WF_OP_strided_slice_grad);
}

weft_status wf_grad_strided_slice_grad(struct wf_grad *r)
{
    return backward(r, WF_OP_strided_slice);
}

weft_status wf_grad_pad(struct wf_grad *r)
{
    return forward(r, WF_OP_pad_grad);
}

weft_status wf_grad_pad_grad(struct wf_grad *r)
{
    return backward(r, WF_OP_pad);
}

weft_status wf_grad_tile(struct wf_grad *r)
{
    return forward(r, WF_OP_tile_grad);
}

weft_status wf_grad_tile_grad(struct wf_grad *r)
{
    return backward(r, WF_OP_tile);
}

weft_status wf_grad_reverse(struct wf_grad *r)
{
    return backward(r, WF_OP_reverse);
}

/* ---- joining and parting --------------------------------------------------------------------- */

/* The gradient of output i, or zeros like it when none came. */
static weft_val dout_or_zeros(struct wf_grad *r, int i)
{
    if (r->dout[i].id)
        return r->dout[i];
    return wf_broadcast_like(r->g, wf_const_like(r->g, 0, r->out[i]), r->out[i]);
}

static weft_status join_douts(struct wf_grad *r, int op_id)
{
    weft_val parts[WF_MAX_OUT];
    struct wf_set sets[] = {WF_SET_INT("axis", wf_grad_int(r, "axis"))};

    for (int i = 0; i < r->n_out; i++)
        parts[i] = dout_or_zeros(r, i);
    r->din[0] = wf_build(r->g, op_id, r->n_out, parts, 1, sets);
    return r->g->st;
}

weft_status wf_grad_split(struct wf_grad *r)
{
    return join_douts(r, WF_OP_concat);
}

weft_status wf_grad_unstack(struct wf_grad *r)
{
    return join_douts(r, WF_OP_stack);
}

weft_status wf_grad_stack(struct wf_grad *r)
{
    return wf_unstack_all(r->g, r->dout[0], r->n_in, (int)wf_grad_int(r, "axis"), r->din);
}

static weft_status concat_parts(struct wf_grad *r, int64_t axis)
{
    weft_val in[WF_MAX_IN];

    in[0] = r->dout[0];
    for (int i = 0; i < r->n_in; i++)
        in[1 + i] = r->in[i];
    for (int i = 0; i < r->n_in; i++)
        if (r->need[i]) {
            struct wf_set sets[] = {WF_SET_INT("index", i), WF_SET_INT("axis", axis)};

            r->din[i] = wf_build(r->g, WF_OP_concat_part, 1 + r->n_in, in, 2, sets);
        }
    return r->g->st;
}

/* Where all sizes along the axis are known: one split, or one slice when a single part is
 * wanted. Otherwise each part finds its offset from the operands when a plan is made. */
weft_status wf_grad_concat(struct wf_grad *r)
{
    int64_t sizes[WF_MAX_IN], axis = wf_grad_int(r, "axis"), offset = 0;
    int rank = wf_val_type_of(r->g, r->in[0])->rank, n_need = 0, one = 0;

    axis = wf_axis_of(axis, rank);
    for (int i = 0; i < r->n_in; i++) {
        sizes[i] = wf_val_type_of(r->g, r->in[i])->dim[axis];
        if (sizes[i] < 0)
            return concat_parts(r, axis);
        if (r->need[i]) {
            n_need++;
            one = i;
        }
    }
    if (n_need != 1)
        return wf_split_all(r->g, r->dout[0], r->n_in, sizes, (int)axis, r->din);
    for (int i = 0; i < one; i++)
        offset += sizes[i];
    r->din[one] = wf_slice_axis(r->g, r->dout[0], (int)axis, offset, sizes[one]);
    return r->g->st;
}

/* The part goes back to its place among zeros. */
weft_status wf_grad_concat_part(struct wf_grad *r)
{
    struct wf_set sets[] = {WF_SET_INT("axis", wf_grad_int(r, "axis"))};
    weft_val parts[WF_MAX_IN];

    if (!r->need[0])
        return WEFT_OK;
    for (int i = 0; i < r->n_in - 1; i++)
        parts[i] = i == wf_grad_int(r, "index")
                       ? r->dout[0]
                       : wf_broadcast_like(r->g, wf_const_like(r->g, 0, r->dout[0]), r->in[1 + i]);
    r->din[0] = wf_build(r->g, WF_OP_concat, r->n_in - 1, parts, 1, sets);
    return r->g->st;
}
