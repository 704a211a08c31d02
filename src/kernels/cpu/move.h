/* move.h - moving elements: transposing, slicing, joining, repeating, padding, lookups, sorting.
 *
 * If only bytes are moved, an element may have 1, 2, 4 or 8 bytes. Strides are in elements unless
 * a name says bytes. Inputs and outputs do not overlap. Conventions of `f` and `pool` as in
 * optim.h. */
#ifndef WF_KERNELS_CPU_MOVE_H
#define WF_KERNELS_CPU_MOVE_H

#include "kernels/cpu/optim.h"
#include "op/shape.h"

/* ---- one box of elements ----------------------------------------------------------------- */

/* Element i, j, ... goes from src[i*from[0] + j*from[1] + ...] to dst[i*to[0] + j*to[1] + ...]. A
 * stride of src may be 0 (the same element again) or negative; those of dst must not make
 * elements overlap. Transposing, slicing with steps, reversing, tiling and broadcasting are all
 * such boxes. */
#define WF_BOX_RANK 16
struct wf_box {
    int rank;
    int64_t dim[WF_BOX_RANK], from[WF_BOX_RANK], to[WF_BOX_RANK];
};

/* One tile, one thread. Sizes are given as log2: 0 to 3. */
struct wf_move_fns {
    /* n runs of `bytes` bytes, from stride to stride (in bytes). */
    void (*copy_runs)(int64_t n, int64_t bytes, const char *src, int64_t src_bytes, char *dst,
                      int64_t dst_bytes);
    /* dst[c * dst_ld + r] = src[r * src_ld + c] for n_rows x n_cols elements of src. */
    void (*transpose[4])(int64_t n_rows, int64_t n_cols, const void *src, int64_t src_ld, void *dst,
                         int64_t dst_ld);
    /* dst[i * to] = src[i * from] */
    void (*strided[4])(int64_t n, const void *src, int64_t from, void *dst, int64_t to);
};

const struct wf_move_fns *wf_move_fns_at(weft_simd level);

/* Element size in bytes. */
void wf_copy_box(const struct wf_move_fns *f, struct wf_pool *pool, int size,
                 const struct wf_box *box, const void *src, void *dst);

/* The boxes of contiguous tensors of shape dim[rank]; the result is in *box, and *src_at or *dst_at
 * is the start (in elements). */
void wf_box_transpose(int rank, const int64_t *dim, const int *perm, struct wf_box *box);
/* out[i, ...] = x[begin[0] + i*step[0], ...], size[] the output's shape; steps may be negative. */
void wf_box_slice(int rank, const int64_t *dim, const int64_t *begin, const int64_t *step,
                  const int64_t *size, struct wf_box *box, int64_t *src_at);
/* The inverse move: a contiguous [size] into the positions of a [dim] tensor that slice would
 * read. */
void wf_box_unslice(int rank, const int64_t *dim, const int64_t *begin, const int64_t *step,
                    const int64_t *size, struct wf_box *box, int64_t *dst_at);
void wf_box_reverse(int rank, const int64_t *dim, const bool *reversed, struct wf_box *box,
                    int64_t *src_at);
void wf_box_tile(int rank, const int64_t *dim, const int64_t *repeats, struct wf_box *box);

/* ---- joining, parting, padding ------------------------------------------------------------ */

/* n_parts arrays, part i being [n_outer, bytes[i]] in bytes, side by side as the rows of `whole`.
 * An axis of a tensor: n_outer the product of the axes before it, bytes[i] = size of the axis times
 * the axes after it times the element size. */
void wf_concat(const struct wf_move_fns *f, struct wf_pool *pool, int64_t n_outer, int n_parts,
               const void *const *parts, const int64_t *bytes, void *whole);
void wf_split(const struct wf_move_fns *f, struct wf_pool *pool, int64_t n_outer, int n_parts,
              const void *whole, const int64_t *bytes, void *const *parts);

/* before[a] + dim[a] + after[a] elements along axis a. reflect needs paddings below dim, symmetric
 * at most dim. value: one element, read only for constant. */
void wf_pad(const struct wf_move_fns *f, struct wf_pool *pool, int size, int rank,
            const int64_t *dim, const int64_t *before, const int64_t *after, enum wf_pad_mode mode,
            const void *value, const void *src, void *dst);

/* n elements of dst. */
void wf_fill(struct wf_pool *pool, int size, int64_t n, const void *value, void *dst);

/* ---- rows by index ------------------------------------------------------------------------ */

/* One table of a lookup: sample i takes row ids[i * id_stride] to out + i * out_bytes. */
struct wf_gather {
    const void *table; /* [n_rows, row_bytes] */
    int64_t n_rows, row_bytes;
    const void *ids; /* int64_t if wide, otherwise int32_t */
    bool wide;
    int64_t id_stride; /* elements */
    void *out;
    int64_t out_bytes; /* from one sample to the next: columns of a wider matrix if larger */
};

/* n samples from each of the tables, in parallel over samples, so that the rows of a wide output
 * are written by one thread. Returns -1, or the first sample with an id out of range (*table is the
 * first table where it is; may be NULL); rows of such ids are not changed. */
int64_t wf_gather_rows(const struct wf_move_fns *f, struct wf_pool *pool,
                       const struct wf_gather *tables, int64_t n_tables, int64_t n, int64_t *table);

/* y[rows] += x in sample order, for ids deduplicated by wf_dedupe_run: rows of `width` floats,
 * those of x x_stride apart. Rows of y that no sample names are not changed. */
void wf_scatter_add_rows(const struct wf_optim_fns *f, struct wf_pool *pool,
                         const struct wf_dedupe *d, int64_t width, const float *x, int64_t x_stride,
                         float *y);

/* [n_outer, n_inner] ids to [n_outer, depth, n_inner] elements, *on where the axis' index is the
 * id, otherwise *off. Returns -1, or the first id outside [0, depth); with allow_outside those are
 * all off. */
int64_t wf_one_hot(struct wf_pool *pool, int size, int64_t n_outer, int64_t depth, int64_t n_inner,
                   const void *ids, bool wide, bool allow_outside, const void *on, const void *off,
                   void *out);

/* ---- order --------------------------------------------------------------------------------- */

enum wf_sort_type { WF_SORT_F32, WF_SORT_I32 };

/* x seen as [n_outer, n, n_inner], along n: values and the indices they came from (either may be
 * NULL; indices int64_t if wide, otherwise int32_t). Stable; NaN last in either direction; -0
 * equals
 * 0. n below 2^31. scratch: wf_sort_scratch(n) bytes for each thread of the pool. */
int64_t wf_sort_scratch(int64_t n);
void wf_sort(struct wf_pool *pool, enum wf_sort_type type, bool descending, int64_t n_outer,
             int64_t n, int64_t n_inner, const void *x, void *values, bool wide, void *indices,
             void *scratch);

/* The k largest of each row of [n_rows, n], largest first, equals by index, NaN last; k <= n. The
 * outputs are [n_rows, k]. Scratch as for wf_sort. */
void wf_top_k(struct wf_pool *pool, enum wf_sort_type type, int64_t n_rows, int64_t n, int64_t k,
              const void *x, void *values, bool wide, void *indices, void *scratch);

#endif
