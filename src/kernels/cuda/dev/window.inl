/* window.inl - which input a window reads, for convolution, pooling and resizing. */

DEV int box_index(uint32_t i, const int32_t n[3], int a)
{
    return (int)(a == 2   ? i % (uint32_t)n[2]
                 : a == 1 ? i / (uint32_t)n[2] % (uint32_t)n[1]
                          : i / (uint32_t)n[2] / (uint32_t)n[1]);
}

/* The input element that output o reads with tap k; -1 if that is padding. */
DEV int64_t meets(const struct wfc_window *w, uint32_t o, uint32_t k)
{
    int64_t i = 0;

    for (int a = 0; a < 3; a++) {
        int p = box_index(o, w->out, a) * w->stride[a] - w->lo[a] +
                box_index(k, w->k, a) * w->dilation[a];

        if (p < 0 || p >= w->in[a])
            return -1;
        i = i * w->in[a] + p;
    }
    return i;
}

/* The output that reads input i with tap k; -1 if there is none. */
DEV int64_t met_by(const struct wfc_window *w, uint32_t i, uint32_t k)
{
    int64_t o = 0;

    for (int a = 0; a < 3; a++) {
        int p = box_index(i, w->in, a) + w->lo[a] - box_index(k, w->k, a) * w->dilation[a];

        if (p < 0 || p % w->stride[a] || p / w->stride[a] >= w->out[a])
            return -1;
        o = o * w->out[a] + p / w->stride[a];
    }
    return o;
}

/* The taps of output o that are not padding. */
DEV int met_count(const struct wfc_window *w, uint32_t o, uint32_t n_k)
{
    int n = 0;

    for (uint32_t k = 0; k < n_k; k++)
        n += meets(w, o, k) >= 0;
    return n;
}

struct resize_at {
    int64_t a, b;
    double f;
};

DEV struct resize_at resize_source(bool bilinear, int64_t n_in, int64_t n_out, int64_t i)
{
    double at = ((double)i + 0.5) * (double)n_in / (double)n_out;
    int64_t a = (int64_t)at < n_in - 1 ? (int64_t)at : n_in - 1;
    struct resize_at r = {a, a, 0};

    if (!bilinear)
        return r;
    at -= 0.5;
    a = at < 0 ? -1 : (int64_t)at;
    r.a = a < 0 ? 0 : a;
    r.b = a + 1 < n_in - 1 ? a + 1 : n_in - 1;
    r.f = at - (double)a;
    return r;
}
