/* infer_norm.c - shape rules of the normalisations.
 *
 * Statistics are f32 (f64 for f64 inputs) whatever the type of x; scale and offset have either
 * the type of x or that of the statistics. */
#include "op/infer.h"

static weft_dtype stat_dtype(weft_dtype t)
{
    return t == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

static weft_status check_x(struct wf_infer *r, const struct wf_type *x, int min_rank)
{
    if (!wf_is_float(x->dtype))
        return wf_infer_err(r, WEFT_EDTYPE, "needs a float type (cast it)");
    if (x->rank < min_rank)
        return wf_infer_err(r, WEFT_ESHAPE, "needs a rank of at least %d", min_rank);
    return WEFT_OK;
}

/* Input i, if there, must have these n sizes and a type that goes with x. */
static weft_status check_sizes(struct wf_infer *r, int i, const char *name, weft_dtype x,
                               bool is_stat, int n, const int64_t *dim)
{
    int64_t size;

    if (i >= r->n_in || r->in[i].dtype == WEFT_NONE)
        return WEFT_OK;
    if (r->in[i].dtype != stat_dtype(x) && (is_stat || r->in[i].dtype != x))
        return wf_infer_err(r, WEFT_EDTYPE, "%s must be %s%s%s", name,
                            weft_dtype_name(stat_dtype(x)),
                            is_stat || x == stat_dtype(x) ? "" : " or ",
                            is_stat || x == stat_dtype(x) ? "" : weft_dtype_name(x));
    if (r->in[i].rank != n)
        return wf_infer_err(r, WEFT_ESHAPE, "%s must have rank %d, not %d", name, n, r->in[i].rank);
    for (int k = 0; k < n; k++) {
        weft_status st = wf_same_dim(r, r->in[i].dim[k], dim[k], name, &size);

        if (st)
            return st;
    }
    return WEFT_OK;
}

static weft_status check_param(struct wf_infer *r, int i, const char *name, weft_dtype x, int n,
                               const int64_t *dim)
{
    return check_sizes(r, i, name, x, false, n, dim);
}

static weft_status check_stat(struct wf_infer *r, int i, const char *name, weft_dtype x, int n,
                              const int64_t *dim)
{
    return check_sizes(r, i, name, x, true, n, dim);
}

/* dy (input 0) must be like x (input 1). */
static weft_status check_dy(struct wf_infer *r)
{
    const struct wf_type *dy = &r->in[0], *x = &r->in[1];
    int64_t size;

    if (dy->dtype != x->dtype || dy->rank != x->rank)
        return wf_infer_err(r, WEFT_ESHAPE, "dy must be like x");
    for (int i = 0; i < x->rank; i++) {
        weft_status st = wf_same_dim(r, dy->dim[i], x->dim[i], "sizes of dy and x", &size);

        if (st)
            return st;
    }
    return WEFT_OK;
}

/* dgamma and dbeta: the type of gamma where there is one, otherwise that of the statistics. */
static struct wf_type param_grad(const struct wf_infer *r, int gamma, int n, const int64_t *dim)
{
    bool given = gamma < r->n_in && r->in[gamma].dtype != WEFT_NONE;

    return wf_type_of(given ? r->in[gamma].dtype : stat_dtype(r->in[1].dtype), n, dim);
}

weft_status wf_infer_batch_norm(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    weft_status st = check_x(r, x, 2);
    const int64_t *c = &x->dim[x->rank > 0 ? x->rank - 1 : 0];

    if (!st)
        st = check_param(r, 1, "gamma", x->dtype, 1, c);
    if (!st)
        st = check_param(r, 2, "beta", x->dtype, 1, c);
    if (st)
        return st;
    r->out[0] = *x;
    r->out[1] = r->out[2] = wf_type_of(stat_dtype(x->dtype), 1, c);
    return WEFT_OK;
}

weft_status wf_infer_batch_norm_grad(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[1];
    weft_status st = check_x(r, x, 2);
    const int64_t *c = &x->dim[x->rank > 0 ? x->rank - 1 : 0];

    if (!st)
        st = check_dy(r);
    if (!st)
        st = check_stat(r, 2, "mean", x->dtype, 1, c);
    if (!st)
        st = check_stat(r, 3, "var", x->dtype, 1, c);
    if (!st)
        st = check_param(r, 4, "gamma", x->dtype, 1, c);
    if (st)
        return st;
    r->out[0] = *x;
    r->out[1] = r->out[2] = param_grad(r, 4, 1, c);
    return WEFT_OK;
}

/* The number of last axes that are normalised; at least one. */
static weft_status last_axes(struct wf_infer *r, const struct wf_type *x, int *out)
{
    int64_t n = wf_in_int(r, "n_axes");

    if (n < 1 || n > x->rank)
        return wf_infer_err(r, WEFT_ERANGE, "n_axes %lld is not in 1..%d", (long long)n, x->rank);
    *out = (int)n;
    return WEFT_OK;
}

static weft_status infer_last(struct wf_infer *r, int n_stats)
{
    const struct wf_type *x = &r->in[0];
    int n = 0;
    weft_status st = check_x(r, x, 1);

    if (!st)
        st = last_axes(r, x, &n);
    if (!st)
        st = check_param(r, 1, "gamma", x->dtype, n, x->dim + x->rank - n);
    if (!st)
        st = check_param(r, 2, "beta", x->dtype, n, x->dim + x->rank - n);
    if (st)
        return st;
    r->out[0] = *x;
    for (int i = 0; i < n_stats; i++)
        r->out[1 + i] = wf_type_of(stat_dtype(x->dtype), x->rank - n, x->dim);
    return WEFT_OK;
}

static weft_status infer_last_grad(struct wf_infer *r, int n_stats)
{
    const struct wf_type *x = &r->in[1];
    int n = 0, gamma = 2 + n_stats;
    weft_status st = check_x(r, x, 1);

    if (!st)
        st = check_dy(r);
    if (!st)
        st = last_axes(r, x, &n);
    for (int i = 0; i < n_stats && !st; i++)
        st = check_stat(r, 2 + i, "statistics", x->dtype, x->rank - n, x->dim);
    if (!st)
        st = check_param(r, gamma, "gamma", x->dtype, n, x->dim + x->rank - n);
    if (st)
        return st;
    r->out[0] = *x;
    for (int i = 1; i < r->n_out; i++)
        r->out[i] = param_grad(r, gamma, n, x->dim + x->rank - n);
    return WEFT_OK;
}

weft_status wf_infer_layer_norm(struct wf_infer *r)
{
    return infer_last(r, 2);
}

weft_status wf_infer_layer_norm_grad(struct wf_infer *r)
{
    return infer_last_grad(r, 2);
}

weft_status wf_infer_rms_norm(struct wf_infer *r)
{
    return infer_last(r, 1);
}

weft_status wf_infer_rms_norm_grad(struct wf_infer *r)
{
    return infer_last_grad(r, 1);
}

/* The number of groups; WEFT_ANY when it follows from channels that are not known yet. */
static weft_status group_count(struct wf_infer *r, int64_t channels, int64_t *out)
{
    int64_t n = wf_in_int(r, "groups");

    if (n == -1) {
        *out = channels;
        return WEFT_OK;
    }
    if (n < 1)
        return wf_infer_err(r, WEFT_EINVAL,
                            "%lld groups: give a positive number, or -1 for one per channel",
                            (long long)n);
    if (channels >= 0 && channels % n)
        return wf_infer_err(r, WEFT_ESHAPE, "%lld channels cannot be cut in %lld groups",
                            (long long)channels, (long long)n);
    *out = n;
    return WEFT_OK;
}

weft_status wf_infer_group_norm(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[0];
    int64_t c, groups = 0;
    weft_status st = check_x(r, x, 2);

    if (st)
        return st;
    c = x->dim[x->rank - 1];
    st = group_count(r, c, &groups);
    if (!st)
        st = check_param(r, 1, "gamma", x->dtype, 1, &c);
    if (!st)
        st = check_param(r, 2, "beta", x->dtype, 1, &c);
    if (st)
        return st;
    r->out[0] = *x;
    r->out[1] = r->out[2] = wf_type_of(stat_dtype(x->dtype), 2, (int64_t[]){x->dim[0], groups});
    return WEFT_OK;
}

weft_status wf_infer_group_norm_grad(struct wf_infer *r)
{
    const struct wf_type *x = &r->in[1];
    int64_t c, stat[2] = {0};
    weft_status st = check_x(r, x, 2);

    if (!st)
        st = check_dy(r);
    if (st)
        return st;
    c = x->dim[x->rank - 1];
    stat[0] = x->dim[0];
    st = group_count(r, c, &stat[1]);
    if (!st)
        st = check_stat(r, 2, "mean", x->dtype, 2, stat);
    if (!st)
        st = check_stat(r, 3, "var", x->dtype, 2, stat);
    if (!st)
        st = check_param(r, 4, "gamma", x->dtype, 1, &c);
    if (st)
        return st;
    r->out[0] = *x;
    r->out[1] = r->out[2] = param_grad(r, 4, 1, &c);
    return WEFT_OK;
}

weft_status wf_infer_split_last(struct wf_infer *r)
{
    int64_t parts = wf_in_int(r, "parts"), size = wf_in_int(r, "size"), last, by;
    struct wf_type t = r->in[0];

    if (t.rank < 1 || t.rank >= WEFT_MAX_RANK)
        return wf_infer_err(r, WEFT_ESHAPE, "needs a rank in 1..%d", WEFT_MAX_RANK - 1);
    if (parts < 0 || size < 0 || (parts > 0) == (size > 0))
        return wf_infer_err(r, WEFT_EINVAL, "either parts or size must be given");
    last = t.dim[t.rank - 1];
    by = parts ? parts : size;
    if (last >= 0 && last % by)
        return wf_infer_err(r, WEFT_ESHAPE, "the last size is no multiple of %lld", (long long)by);
    t.dim[t.rank - 1] = parts ? parts : last >= 0 ? last / by : by == 1 ? last : WEFT_ANY;
    t.dim[t.rank++] = size ? size : last >= 0 ? last / by : by == 1 ? last : WEFT_ANY;
    r->out[0] = t;
    return WEFT_OK;
}
