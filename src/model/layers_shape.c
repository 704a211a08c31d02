/* layers_shape.c - layers that move elements: reshaping, padding, cropping, repeating. */
#include "model/core.h"
#include "model/layers.h"

weft_status wf_layer_flatten(weft_layer_call *c)
{
    weft_status st = wf_lc_channels_last(c);

    if (st)
        return st;
    weft_lc_out(c, 0, weft_flatten(weft_lc_graph(c), weft_lc_in(c, 0)));
    return WEFT_OK;
}

weft_status wf_layer_reshape(weft_layer_call *c)
{
    const int64_t *target;
    int n = weft_lc_ints(c, "target_shape", &target), rank = weft_lc_rank(c, weft_lc_in(c, 0)),
        open = 0;
    int64_t shape[WEFT_MAX_RANK] = {-1}, have = 1, want = 1;

    if (n >= WEFT_MAX_RANK)
        return weft_lc_fail(c, WEFT_EINVAL, "target_shape: at most %d sizes", WEFT_MAX_RANK - 1);
    for (int i = 1; i < rank; i++)
        if (!wf_mul_i64(have, weft_lc_dim(c, weft_lc_in(c, 0), i), &have))
            return weft_lc_fail(c, WEFT_ESHAPE, "the input is too large");
    for (int i = 0; i < n; i++) {
        shape[i + 1] = target[i];
        if (target[i] == -1 && !open)
            open = i + 1;
        else if (target[i] < 0 || !wf_mul_i64(want, target[i], &want))
            return weft_lc_fail(c, WEFT_EINVAL, "target_shape: size %lld at position %d",
                                (long long)target[i], i);
    }
    if (open && want > 0 && have % want == 0)
        shape[open] = have / want;
    else if (open || have != want)
        return weft_lc_fail(c, WEFT_ESHAPE, "%lld elements do not fit target_shape (%lld)",
                            (long long)have, (long long)want);
    weft_lc_out(c, 0, weft_reshape(weft_lc_graph(c), weft_lc_in(c, 0), n + 1, shape));
    return WEFT_OK;
}

weft_status wf_layer_permute(weft_layer_call *c)
{
    const int64_t *dims;
    int n = weft_lc_ints(c, "dims", &dims), rank = weft_lc_rank(c, weft_lc_in(c, 0));
    int64_t perm[WEFT_MAX_RANK] = {0};
    unsigned seen = 0;

    if (n != rank - 1)
        return weft_lc_fail(c, WEFT_EINVAL, "dims needs %d numbers, got %d", rank - 1, n);
    for (int i = 0; i < n; i++) {
        if (dims[i] < 1 || dims[i] > n || (seen & 1u << dims[i]))
            return weft_lc_fail(c, WEFT_EINVAL, "dims must be the numbers 1 to %d in some order",
                                n);
        seen |= 1u << dims[i];
        perm[i + 1] = dims[i];
    }
    weft_lc_out(c, 0, weft_transpose(weft_lc_graph(c), weft_lc_in(c, 0), rank, perm));
    return WEFT_OK;
}

weft_status wf_layer_repeat_vector(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_status st = wf_lc_need_rank(c, 2, "[batch, features]");

    if (!st)
        st = wf_lc_positive(c, "n", weft_lc_int(c, "n"));
    if (st)
        return st;
    weft_lc_out(c, 0,
                weft_tile(g, weft_expand_dims(g, weft_lc_in(c, 0), 1), 3,
                          (int64_t[]){1, weft_lc_int(c, "n"), 1}));
    return WEFT_OK;
}

/* ---- borders --------------------------------------------------------------------------------- */

/* Pairs (before, after) for n axes from one number, one per axis, or a pair per axis; in one
 * dimension two are a pair. */
static weft_status read_border(weft_layer_call *c, const char *attr, int n, int64_t out[6])
{
    static const char *const meaning[] = {"", "[batch, time, channels]",
                                          "[batch, height, width, channels]",
                                          "[batch, depth, height, width, channels]"};
    const int64_t *v;
    int given = weft_lc_ints(c, attr, &v);
    weft_status st = wf_lc_need_rank(c, n + 2, meaning[n]);

    if (!st && n > 1)
        st = wf_lc_channels_last(c);
    if (st)
        return st;
    if (given != 1 && given != n && given != 2 * n)
        return weft_lc_fail(c, WEFT_EINVAL, "%s needs 1, %d or %d numbers, got %d", attr, n, 2 * n,
                            given);
    for (int i = 0; i < 2 * n; i++) {
        out[i] = v[given == 1 ? 0 : given == 2 * n ? i : i / 2];
        if (out[i] < 0)
            return weft_lc_fail(c, WEFT_EINVAL, "%s must not be negative", attr);
    }
    return WEFT_OK;
}

static weft_status zero_padding(weft_layer_call *c, int n)
{
    int64_t pads[2 * WEFT_MAX_RANK] = {0}, border[6];
    weft_status st = read_border(c, "padding", n, border);

    if (st)
        return st;
    memcpy(pads + 2, border, sizeof *border * 2 * (size_t)n);
    weft_lc_out(c, 0, weft_pad(weft_lc_graph(c), weft_lc_in(c, 0), n + 2, pads, NULL));
    return WEFT_OK;
}

static weft_status cropping(weft_layer_call *c, int n)
{
    int64_t begin[4] = {WEFT_OMIT}, end[4] = {WEFT_OMIT}, border[6];
    const struct wf_type *t;
    weft_status st = read_border(c, "cropping", n, border);

    if (st)
        return st;
    t = wf_val_type_of(weft_lc_graph(c), weft_lc_in(c, 0));
    for (int i = 0; i < n; i++) {
        begin[i + 1] = border[2 * i];
        end[i + 1] = border[2 * i + 1] ? -border[2 * i + 1] : WEFT_OMIT;
        if (t->dim[i + 1] >= 0 && t->dim[i + 1] <= border[2 * i] + border[2 * i + 1])
            return weft_lc_fail(c, WEFT_ESHAPE, "nothing is left of axis %d of size %lld", i + 1,
                                (long long)t->dim[i + 1]);
    }
    weft_lc_out(c, 0,
                weft_strided_slice(weft_lc_graph(c), weft_lc_in(c, 0), n + 1, begin, end, NULL));
    return WEFT_OK;
}

static weft_status up_sampling(weft_layer_call *c, int n)
{
    static const char *const methods[] = {"nearest", "bilinear"};
    weft_resize_opts o = {.size = sizeof o};
    int method = 0;
    weft_status st = wf_lc_need_rank(c, n + 2, "channels last");

    if (!st && n > 1)
        st = wf_lc_channels_last(c);
    if (!st)
        st = weft_lc_tuple(c, "size", n, o.scale);
    for (int i = 0; i < n && !st; i++)
        st = wf_lc_positive(c, "size", o.scale[i]);
    if (!st && n == 2)
        method = wf_lc_choice(c, "interpolation", 2, methods);
    if (st || method < 0)
        return st ? st : WEFT_EINVAL;
    o.method = method ? WEFT_RESIZE_BILINEAR : WEFT_RESIZE_NEAREST;
    weft_lc_out(c, 0, weft_resize(weft_lc_graph(c), weft_lc_in(c, 0), &o));
    return WEFT_OK;
}

/* ---- the rows -------------------------------------------------------------------------------- */

#define ROW(name, expression)                       \
    weft_status wf_layer_##name(weft_layer_call *c) \
    {                                               \
        return expression;                          \
    }

ROW(zero_padding1d, zero_padding(c, 1))
ROW(zero_padding2d, zero_padding(c, 2))
ROW(zero_padding3d, zero_padding(c, 3))
ROW(cropping1d, cropping(c, 1))
ROW(cropping2d, cropping(c, 2))
ROW(cropping3d, cropping(c, 3))
ROW(up_sampling1d, up_sampling(c, 1))
ROW(up_sampling2d, up_sampling(c, 2))
ROW(up_sampling3d, up_sampling(c, 3))
