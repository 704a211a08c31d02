/* conv_impl.h - shared by the files of the convolution: the plan, a run, and helpers. */
#ifndef WF_KERNELS_CPU_CONV_IMPL_H
#define WF_KERNELS_CPU_CONV_IMPL_H

#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_kernel.h"
#include "kernels/cpu/winograd.h"

/* winograd.c */
struct wf_winograd {
    const struct wf_winograd_fns *fns;
    int64_t th, tw;       /* rows of tiles in an image, tiles in a row */
    int64_t strip, block; /* rows of tiles in a strip, in a block */
    int64_t n_strips;
    int64_t per_image;     /* strips per image; 0 if a strip contains whole images */
    int64_t c_in, c_out;   /* channels of a chunk; also the distance of transformed tiles */
    int64_t ps_in, ps_out; /* floats between the 36 elements of transformed tiles */
    int64_t ps_filter;     /* and of the filter or its gradient */
    int64_t n_chunks;      /* of strips, in the filter gradient */
};

/* conv_general.c: the pixels of one phase. A gradient with stride s has s phases along an axis,
 * whose pixels see the same taps; otherwise there is one phase. Destination pixel j along axis a is
 * first + j * step; it sees source pixels j * src_step + offset for each tap. */
struct wf_conv_view {
    int64_t n[3], first[3], step[3], src_step[3];
    struct wf_conv_taps taps;
    const int64_t *filter_tap; /* the filter's tap for each tap of the view */
    int64_t n_pixels;          /* of all images */
    int64_t first_tile, n_tiles;
    int64_t packed; /* offset of the packed filter of group 0 */
};

struct wf_general {
    const struct wf_conv_view *views;
    int64_t n_views;
    int64_t c_src, c_dst; /* channels of a group on either side */
    bool narrow;          /* so few of the latter that products are transposed to fill vectors */
    int64_t rows;         /* pixels per tile */
    int64_t n_tiles;      /* of all views */
    int64_t block_taps;   /* taps of a block of K, and the channels of a tap in it */
    int64_t block_c;
    int64_t ld;             /* floats between gathered rows */
    int64_t tile_n, n_cuts; /* columns per task */
    int64_t n_taps;       /* of all views: fewer than the filter has if an axis is shorter than its
                           * stride */
    int64_t packed_group; /* floats between groups in the packed filter */
    int64_t n_chunks;     /* of pixel tiles, in the filter gradient */
};

/* conv_few.c: the source rows that some rows of output pixels see are copied, with padding, into a
 * box of `planes` x `lines` x `width` pixels; taps are offsets in it. */
struct wf_few {
    int64_t rows;               /* rows of output pixels per task */
    int64_t per_plane, n_tasks; /* tasks per plane of an image; total */
    int64_t lines, width;
    int64_t k;             /* products per sum */
    const int64_t *offset; /* [k] */
    int64_t n_chunks;      /* of tasks, in the filter gradient */
};

/* conv_depthwise.c: rows of pixels of the views of the general convolution. With a multiplier the
 * channels of x are repeated (in its gradient: summed) in scratch memory. */
struct wf_depthwise {
    int64_t mult;
    int64_t n_rows, rows;      /* rows of pixels: in all views, in a task */
    int64_t n_tasks, n_chunks; /* n_chunks: of rows, in the filter gradient */
    int64_t expanded;          /* floats */
};

struct wf_conv {
    struct wf_conv_desc d;
    enum wf_conv_algo algo;
    bool empty; /* nothing to sum, or no output */
    weft_simd level;
    const struct wf_gemm_fns *gemm;
    const struct wf_conv_fns *fns;
    int64_t shared_floats, thread_floats;
    struct wf_gemm product;
    struct wf_winograd winograd;
    struct wf_general general;
    struct wf_few few;
    struct wf_depthwise depthwise;
};

/* One run. One of x, w, y is written, through *_out. */
struct wf_conv_run {
    const struct wf_conv *c;
    struct wf_pool *pool;
    const float *x, *w, *y;
    float *x_out, *w_out, *y_out;
    float *shared, *threads; /* scratch: for all threads, then for each */
    const float *wide;       /* depthwise: x or, */
    float *wide_out;         /* dx with as many channels as y */
    int phase;
    int64_t n_chunks; /* being added */
};

static inline int64_t wf_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t wf_volume(const int64_t n[3])
{
    return n[0] * n[1] * n[2];
}

static inline float *wf_conv_thread(const struct wf_conv_run *r, int thread)
{
    return r->threads + thread * r->c->thread_floats;
}

/* A piece of y is complete: rows are pixels of the batch. */
static inline void wf_conv_finish(const struct wf_conv_run *r, int thread, int64_t row,
                                  int64_t n_rows, int64_t col, int64_t n_cols)
{
    const struct wf_conv_desc *d = &r->c->d;

    if (d->epilogue)
        d->epilogue(d->epilogue_arg, thread, 0, row, n_rows, col, n_cols,
                    r->y_out + row * d->geom.c_out + col, d->geom.c_out);
}

/* Filter gradients are summed in chunks: each has a filter's floats in the shared memory. A single
 * chunk goes directly to the result. */
static inline int64_t wf_conv_filter_floats(const struct wf_conv_geom *g)
{
    return wf_volume(g->w.k) * (g->c_in / g->groups) * g->c_out;
}

static inline int64_t wf_conv_chunk_floats(const struct wf_conv *c, int64_t n_chunks)
{
    return n_chunks > 1 ? n_chunks * wf_conv_filter_floats(&c->d.geom) : 0;
}

static inline float *wf_conv_chunk(const struct wf_conv_run *r, int64_t chunk, int64_t n_chunks)
{
    return n_chunks > 1 ? r->shared + wf_conv_filter_floats(&r->c->d.geom) * chunk : r->w_out;
}

/* Adds the chunks in order. */
void wf_conv_add_chunks(struct wf_conv_run *r, int64_t n_chunks);

bool wf_winograd_fits(const struct wf_conv_geom *g);
void wf_winograd_plan(struct wf_conv *c);
void wf_winograd_run(struct wf_conv_run *r);

bool wf_few_fits(const struct wf_conv_geom *g);
weft_status wf_few_plan(struct wf_conv *c, struct wf_arena *arena);
void wf_few_run(struct wf_conv_run *r);

bool wf_depthwise_fits(const struct wf_conv_geom *g);
weft_status wf_depthwise_plan(struct wf_conv *c, struct wf_arena *arena);
void wf_depthwise_run(struct wf_conv_run *r);

/* Fills c->general.views. */
weft_status wf_conv_make_views(struct wf_conv *c, struct wf_arena *arena);
weft_status wf_general_plan(struct wf_conv *c, struct wf_arena *arena);
void wf_general_run(struct wf_conv_run *r);

#endif
