/* wf_infer_attention.c - shape rules of scaled dot-product attention. */
#include "op/infer.h"

/* The sizes of one call, whatever the layout. */
struct sizes {
    int64_t b, h, tq, tk, d, dv;
};

/* Axes of time and head in the layout; EINVAL for a layout that does not exist. */
static weft_status layout_axes(struct wf_infer *r, int *t, int *h)
{
    const char *layout = wf_attr_str(r->op, r->attr, "layout");

    if (strcmp(layout, "bhtd") && strcmp(layout, "bthd"))
        return wf_infer_err(r, WEFT_EINVAL, "layout '%.16s': it must be bhtd or bthd", layout);
    *h = strcmp(layout, "bhtd") ? 2 : 1;
    *t = 3 - *h;
    return WEFT_OK;
}

/* The mask must broadcast to [b, h, tq, tk]: bool, or added to the scores. */
static weft_status check_mask(struct wf_infer *r, int i, weft_dtype x, const struct sizes *s)
{
    const int64_t full[4] = {s->b, s->h, s->tq, s->tk};
    const struct wf_type *m;

    if (i >= r->n_in || r->in[i].dtype == WEFT_NONE)
        return WEFT_OK;
    m = &r->in[i];
    if (m->dtype != WEFT_BOOL && m->dtype != x)
        return wf_infer_err(r, WEFT_EDTYPE, "the mask must be bool or %s", weft_dtype_name(x));
    if (m->rank > 4)
        return wf_infer_err(r, WEFT_ESHAPE, "the mask's rank is over 4");
    for (int k = 0; k < m->rank; k++) {
        int64_t size = m->dim[m->rank - 1 - k], want = full[3 - k];

        if (size >= 0 && size != 1 && want >= 0 && size != want)
            return wf_infer_err(r, WEFT_ESHAPE,
                                "the mask must broadcast to [batch,heads,queries,keys]: %lld is "
                                "neither 1 nor %lld",
                                (long long)size, (long long)want);
    }
    return WEFT_OK;
}

/* q, k, v stand at inputs i, i + 1, i + 2. */
static weft_status check_qkv(struct wf_infer *r, int i, struct sizes *s)
{
    const struct wf_type *q = &r->in[i], *k = q + 1, *v = q + 2;
    int t = 0, h = 0;
    weft_status st = layout_axes(r, &t, &h);

    if (st)
        return st;
    if (!wf_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "q, k and v must have the same float type");
    if (q->rank != 4 || k->rank != 4 || v->rank != 4)
        return wf_infer_err(r, WEFT_ESHAPE, "q, k and v need rank 4");
    st = wf_same_dim(r, q->dim[0], k->dim[0], "batch sizes", &s->b);
    if (!st)
        st = wf_same_dim(r, s->b, v->dim[0], "batch sizes", &s->b);
    if (!st)
        st = wf_same_dim(r, q->dim[h], k->dim[h], "numbers of heads", &s->h);
    if (!st)
        st = wf_same_dim(r, s->h, v->dim[h], "numbers of heads", &s->h);
    if (!st)
        st = wf_same_dim(r, k->dim[t], v->dim[t], "lengths of k and v", &s->tk);
    if (!st)
        st = wf_same_dim(r, q->dim[3], k->dim[3], "depths of q and k", &s->d);
    s->tq = q->dim[t];
    s->dv = v->dim[3];
    return st;
}

weft_status wf_infer_attention(struct wf_infer *r)
{
    struct sizes s = {0};
    weft_status st = check_qkv(r, 0, &s);

    if (!st)
        st = check_mask(r, 3, r->in[0].dtype, &s);
    if (st)
        return st;
    r->out[0] = r->in[0];
    r->out[0].dim[3] = s.dv;
    r->out[1] = wf_type_of(r->in[0].dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32, 3,
                           (int64_t[]){s.b, s.h, s.tq});
    return WEFT_OK;
}

/* Input i must have this type (dtype aside) and these sizes. */
static weft_status check_like(struct wf_infer *r, int i, const char *name, weft_dtype dtype,
                              int rank, const int64_t *dim)
{
    int64_t size;

    if (r->in[i].dtype != dtype || r->in[i].rank != rank)
        return wf_infer_err(r, WEFT_ESHAPE, "%s must be %s of rank %d", name,
                            weft_dtype_name(dtype), rank);
    for (int k = 0; k < rank; k++) {
        weft_status st = wf_same_dim(r, r->in[i].dim[k], dim[k], name, &size);

        if (st)
            return st;
    }
    return WEFT_OK;
}

weft_status wf_infer_attention_grad(struct wf_infer *r)
{
    struct sizes s = {0};
    struct wf_type y = r->in[1];
    weft_dtype stat = y.dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_status st = check_qkv(r, 1, &s);

    y.dim[3] = s.dv;
    if (!st)
        st = check_like(r, 0, "dy", y.dtype, 4, y.dim);
    if (!st)
        st = check_like(r, 4, "y", y.dtype, 4, y.dim);
    if (!st)
        st = check_like(r, 5, "lse", stat, 3, (int64_t[]){s.b, s.h, s.tq});
    if (!st)
        st = check_mask(r, 6, y.dtype, &s);
    for (int i = 0; i < 3; i++)
        r->out[i] = r->in[1 + i];
    return st;
}

static weft_status check_packed(struct wf_infer *r, int i, struct sizes *s)
{
    const struct wf_type *t = &r->in[i];

    if (!wf_is_float(t->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type");
    if (t->rank != 5 || (t->dim[2] >= 0 && t->dim[2] != 3))
        return wf_infer_err(r, WEFT_ESHAPE, "qkv must be [batch,time,3,heads,depth]");
    *s = (struct sizes){t->dim[0], t->dim[3], t->dim[1], t->dim[1], t->dim[4], t->dim[4]};
    return WEFT_OK;
}

weft_status wf_infer_attention_packed(struct wf_infer *r)
{
    struct sizes s = {0};
    weft_dtype x = r->in[0].dtype;
    weft_status st = check_packed(r, 0, &s);

    if (!st)
        st = check_mask(r, 1, x, &s);
    r->out[0] = wf_type_of(x, 4, (int64_t[]){s.b, s.tq, s.h, s.d});
    r->out[1] = wf_type_of(x == WEFT_F64 ? WEFT_F64 : WEFT_F32, 3, (int64_t[]){s.b, s.h, s.tq});
    return st;
}

weft_status wf_infer_attention_packed_grad(struct wf_infer *r)
{
    struct sizes s = {0};
    weft_dtype x = r->in[1].dtype, stat = x == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_status st = check_packed(r, 1, &s);

    if (!st)
        st = check_like(r, 0, "dy", x, 4, (int64_t[]){s.b, s.tq, s.h, s.d});
    if (!st)
        st = check_like(r, 2, "y", x, 4, (int64_t[]){s.b, s.tq, s.h, s.d});
    if (!st)
        st = check_like(r, 3, "lse", stat, 3, (int64_t[]){s.b, s.h, s.tq});
    if (!st)
        st = check_mask(r, 4, x, &s);
    r->out[0] = r->in[1];
    return st;
}

weft_status wf_infer_masked_softmax(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    bool masked = r->n_in > 1 && r->in[1].dtype != WEFT_NONE;
    struct wf_type both;
    weft_status st;

    if (!wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type");
    if (x->rank < 2)
        return wf_infer_err(r, WEFT_ESHAPE, "needs a rank of at least 2");
    if (masked && r->in[1].dtype != WEFT_BOOL && r->in[1].dtype != x->dtype)
        return wf_infer_err(r, WEFT_EDTYPE, "the mask must be bool or %s",
                            weft_dtype_name(x->dtype));
    if (masked) {
        st = wf_broadcast(r, x, &r->in[1], &both);
        if (st)
            return st;
        for (int i = 0; i < x->rank; i++)
            if (both.rank != x->rank || (x->dim[i] >= 0 && both.dim[i] != x->dim[i]))
                return wf_infer_err(r, WEFT_ESHAPE, "the mask is larger than the scores");
    }
    r->out[0] = *x;
    r->out[1] = wf_type_of(x->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32, x->rank - 1, x->dim);
    return WEFT_OK;
}
