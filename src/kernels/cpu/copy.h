/* copy.h - copies of boxes of elements with any strides on both sides: what transpose, concat,
 * slice, pad, tile and their gradients come down to.
 *
 * A box is planned once: axes that lie together are merged, and the copy becomes rows of bytes, a
 * blocked transpose, a fill or plain strides. Elements are 1, 2, 4 or 8 bytes and keep their bits.
 * Tiles are a function of the box alone. */
#ifndef WF_KERNELS_CPU_COPY_H
#define WF_KERNELS_CPU_COPY_H

#include "kernels/kernels.h"

#define WF_BOX_AXES 16

/* Element (i, j, …) goes from in_at + i·in[0] + j·in[1] + … to out_at + i·out[0] + j·out[1] + …, in
 * elements. Strides of `in` may be 0 or negative; no two elements go to the same place. */
struct wf_box {
    int rank;
    int64_t n[WF_BOX_AXES], in[WF_BOX_AXES], out[WF_BOX_AXES];
    int64_t in_at, out_at;
};

enum wf_copy_kind { WF_COPY_ROWS, WF_COPY_FILL, WF_COPY_STRIDED, WF_COPY_TRANSPOSE };

/* The plan of a box. The two inner axes are the columns (n0) of rows (n1), cut into blocks; around
 * them stand the others. All strides are in bytes. */
struct wf_copy {
    enum wf_copy_kind kind;
    int elem, n_outer;
    int64_t n[WF_BOX_AXES], in[WF_BOX_AXES], out[WF_BOX_AXES];
    int64_t in_at, out_at;
    int64_t n0, in0, out0, block0, n_blocks0;
    int64_t n1, in1, out1, block1, n_blocks1;
    int64_t n_units, units_per_tile, n_tiles; /* a unit is one block */
};

void wf_copy_plan(struct wf_copy *c, const struct wf_box *box, int elem);
void wf_copy_tile(const struct wf_copy *c, const void *in, void *out, int64_t tile);

/* ---- several copies -------------------------------------------------------------------------- */

/* One box from an operand (or from the constant) to a result. */
struct wf_move {
    struct wf_copy copy;
    int from, to;       /* operand, WF_MOVE_CONSTANT for the constant; result */
    int64_t first_tile; /* within its phase */
};
#define WF_MOVE_CONSTANT (-1)

/* The boxes of a kernel, in an array that the caller made. Those of phase 1 run after those of
 * phase 0; within a phase no two write the same place. */
struct wf_moves {
    struct wf_move *list;
    int n, max, elem;
    int n_phase0; /* how many of them; the others follow */
    int64_t n_tiles[2];
    unsigned char constant[8];
};

/* Room for `max` boxes of elements of a dtype, from the plan's arena; NULL when out of memory. */
struct wf_moves *wf_moves_new(struct wf_kplan *p, int max, weft_dtype dtype);
void wf_moves_add(struct wf_moves *m, int from, int to, const struct wf_box *box);
/* What is added from now on runs after what was added before. Once. */
void wf_moves_next_phase(struct wf_moves *m);
void wf_moves_run(const struct wf_moves *m, struct wf_pool *pool, const struct wf_tensor *in,
                  struct wf_tensor *out);

#endif
