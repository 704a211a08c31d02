/* infer_optim.c - shape rules of updates. */
#include "op/infer.h"
#include "op/optim.h"
#include "op/schedule.h"

/* The schedule, if there is one, with all its numbers and, if it takes one, its list. */
static weft_status check_schedule(struct wf_infer *r)
{
    const char *name = wf_attr_str(r->op, r->attr, "schedule"), *bad;
    const struct wf_attr *params = wf_in_attr(r, "schedule_params");
    const struct wf_schedule_row *row = wf_schedule_find(name);

    if (!*name && !params->n)
        return WEFT_OK;
    if (!row)
        return wf_infer_err(r, WEFT_ENOENT, "no schedule '%.32s'", name);
    if (params->n < row->n_attrs || (params->n > row->n_attrs && !row->takes_list))
        return wf_infer_err(r, WEFT_EINVAL, "%s takes %d numbers%s, got %d", row->name,
                            row->n_attrs, row->takes_list ? " and a list" : "", params->n);
    bad = wf_schedule_check(row, params->floats, params->floats + row->n_attrs,
                            params->n - row->n_attrs);
    return bad ? wf_infer_err(r, WEFT_EINVAL, "%s: %s", row->name, bad) : WEFT_OK;
}

/* The attributes name an optimizer and give all its numbers. */
static weft_status check_optimizer(struct wf_infer *r)
{
    const struct wf_optim_row *row = wf_optim_find(wf_attr_str(r->op, r->attr, "optimizer"));
    const struct wf_attr *params = wf_in_attr(r, "params");
    const char *bad;

    if (!row)
        return wf_infer_err(r, WEFT_ENOENT, "no optimizer '%s'",
                            wf_attr_str(r->op, r->attr, "optimizer"));
    if (params->n != row->n_attrs)
        return wf_infer_err(r, WEFT_EINVAL, "%s takes %d numbers, got %d", row->name, row->n_attrs,
                            params->n);
    bad = wf_optim_check(row, params->floats);
    if (bad)
        return wf_infer_err(r, WEFT_EINVAL, "%s: %s", row->name, bad);
    return check_schedule(r);
}

static weft_status check_scalars(struct wf_infer *r, int from)
{
    for (int i = from; i < r->n_in && i < from + 2; i++)
        if (r->in[i].dtype != WEFT_NONE && (r->in[i].dtype != WEFT_F32 || r->in[i].rank != 0))
            return wf_infer_err(r, WEFT_ESHAPE,
                                "learning rate and gradient scale must be f32 scalars");
    return check_optimizer(r);
}

weft_status wf_infer_apply(struct wf_infer *r)
{
    if (r->in[0].dtype != WEFT_F32 || r->in[1].dtype != WEFT_F32)
        return wf_infer_err(r, WEFT_EDTYPE, "variables and gradients must be f32");
    if (r->in[0].rank != r->in[1].rank)
        return wf_infer_err(r, WEFT_ESHAPE, "a gradient must have its variable's shape");
    for (int i = 0; i < r->in[0].rank; i++)
        if (r->in[1].dim[i] >= 0 && r->in[1].dim[i] != r->in[0].dim[i])
            return wf_infer_err(r, WEFT_ESHAPE, "a gradient must have its variable's shape");
    r->out[0] = r->in[0];
    return check_scalars(r, 2);
}

weft_status wf_infer_apply_rows(struct wf_infer *r)
{
    const struct wf_type *ids = &r->in[1], *dy = &r->in[2];

    if (r->in[0].dtype != WEFT_F32 || dy->dtype != WEFT_F32 ||
        (ids->dtype != WEFT_I32 && ids->dtype != WEFT_I64))
        return wf_infer_err(r, WEFT_EDTYPE, "needs an f32 table, i32 or i64 ids and f32 rows");
    if (r->in[0].rank != 2 || dy->rank != ids->rank + 1)
        return wf_infer_err(r, WEFT_ESHAPE, "needs a table [rows, width] and rows [ids…, width]");
    if (dy->dim[dy->rank - 1] >= 0 && dy->dim[dy->rank - 1] != r->in[0].dim[1])
        return wf_infer_err(r, WEFT_ESHAPE, "the rows and the table differ in width");
    for (int i = 0; i < ids->rank; i++) {
        int64_t unused;
        weft_status st =
            wf_same_dim(r, ids->dim[i], dy->dim[i], "numbers of ids and rows", &unused);

        if (st)
            return st;
    }
    r->out[0] = r->in[0];
    return check_scalars(r, 3);
}

weft_status wf_infer_clip_factor(struct wf_infer *r)
{
    if (!(wf_in_float(r, "limit") > 0))
        return wf_infer_err(r, WEFT_EINVAL, "the limit must be positive");
    return wf_infer_global_norm(r);
}

weft_status wf_infer_penalty_grad(struct wf_infer *r)
{
    if (!wf_is_float(r->in[0].dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "a weight must be of a float type");
    if (wf_in_float(r, "orthogonal") != 0 && r->in[0].rank != 2)
        return wf_infer_err(r, WEFT_ESHAPE, "an orthogonal penalty needs a matrix");
    r->out[0] = r->in[0];
    return WEFT_OK;
}
