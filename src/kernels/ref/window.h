/* window.h - which input element a window reads, for the reference kernels of convolution and
 * pooling. */
#ifndef WF_REF_WINDOW_H
#define WF_REF_WINDOW_H

#include "op/conv.h"

static inline int64_t ref_volume(const int64_t n[3])
{
    return n[0] * n[1] * n[2];
}

/* Index i of a box of sizes n, along axis a. */
static inline int64_t ref_index(int64_t i, const int64_t n[3], int a)
{
    return a == 2 ? i % n[2] : a == 1 ? i / n[2] % n[1] : i / n[2] / n[1];
}

/* The input element that output o reads with tap k; -1 if that is padding. */
static inline int64_t ref_meets(const struct wf_window *w, int64_t o, int64_t k)
{
    int64_t i = 0;

    for (int a = 0; a < 3; a++) {
        int64_t p = ref_index(o, w->out, a) * w->stride[a] - w->lo[a] +
                    ref_index(k, w->k, a) * w->dilation[a];

        if (p < 0 || p >= w->in[a])
            return -1;
        i = i * w->in[a] + p;
    }
    return i;
}

/* The output that reads input i with tap k; -1 if there is none. */
static inline int64_t ref_met_by(const struct wf_window *w, int64_t i, int64_t k)
{
    int64_t o = 0;

    for (int a = 0; a < 3; a++) {
        int64_t p = ref_index(i, w->in, a) + w->lo[a] - ref_index(k, w->k, a) * w->dilation[a];

        if (p < 0 || p % w->stride[a] || p / w->stride[a] >= w->out[a])
            return -1;
        o = o * w->out[a] + p / w->stride[a];
    }
    return o;
}

#endif
