/* rnn.h - recurrent nets over whole sequences on the CPU, f32.
 *
 * The batch is divided into tiles of a few rows. A tile runs its whole sequence in one thread: each
 * step is one product [h | x_t] · [R; W] for a group of units, all gates together, and the cell's
 * functions on the sums while they are in the L1 cache. Weights are packed once per call, before
 * the tiles. In the backward pass a tile runs from the last step to the first and leaves the
 * gradients of the sums as packed panels; one product over batch and time then gives the gradients
 * of the weights.
 *
 * Every division depends only on the shape and the SIMD level, and so do the results. */
#ifndef WF_KERNELS_CPU_RNN_H
#define WF_KERNELS_CPU_RNN_H

#include "kernels/cpu/gemm.h"

enum wf_rnn_cell {
    WF_CELL_LSTM,       /* gates i f g o */
    WF_CELL_GRU_AFTER,  /* gates z q n; n from x and q (h r) */
    WF_CELL_GRU_BEFORE, /* n from x and (q h) r */
    WF_CELL_TANH,
    WF_CELL_RELU,
    WF_N_CELLS
};

/* Per row of a tile and step. */
enum wf_rnn_flag {
    WF_STEP_ON = 1,  /* the step counts */
    WF_STEP_SEEN = 2 /* it or one before it counts, in the order of processing */
};

/* ---- the pieces: cell functions of one SIMD level -------------------------------------------- */

/* One step of a group of units. Pointers are to the first row and unit. */
struct wf_rnn_step {
    int64_t n_rows, n;    /* rows of the tile, units of the group */
    int64_t n_units;      /* of the layer: the distance of gates in bias, bias1 and gates */
    const uint8_t *flags; /* per row; NULL: all are on */
    const float *sums;    /* per row, sums_ld apart: parts of the group's width, `part` apart */
    int64_t sums_ld, part;
    const float *bias, *bias1; /* NULL: none; bias1: of the recurrent sums (gru, reset after) */
    const float *h;            /* before */
    float *h_next, *rh;        /* after; q h (gru, reset before) */
    int64_t h_ld;
    float *c; /* lstm: cell, before and after */
    int64_t c_ld;
    float *y, *cells, *gates; /* results of the step; cells has rows n_units apart */
    int64_t y_ld, gates_ld;
};

/* The same for the backward pass. Parts of da are in the order i f g o; n z q and hn (gru); the one
 * (simple). */
struct wf_rnn_back {
    int64_t n_rows, n, n_units;
    const uint8_t *flags; /* NULL: all are on */
    const float *y, *dy;  /* dy NULL: none */
    int64_t y_ld;
    const float *cells, *c_prev; /* rows n_units apart; c_prev NULL: zero */
    const float *gates;
    int64_t gates_ld;
    const float *h_prev;
    int64_t h_prev_ld;
    float *dh, *dc;   /* of the state after the step; becomes that before it, except for da r^T */
    const float *drh; /* of q h (gru, reset before) */
    int64_t dh_ld;
    float *da; /* per row: parts, n_units apart */
    int64_t da_ld;
    float *panel; /* the same, rows panel_ld apart, parts panel_part; NULL: not requested */
    int64_t panel_ld, panel_part;
    float *bias; /* sums over the rows are added: parts, n_units apart; NULL: not requested */
};

struct wf_rnn_fns {
    void (*step[WF_N_CELLS])(const struct wf_rnn_step *s);
    void (*gru_reset)(const struct wf_rnn_step *s); /* z, q and q h, before the last product */
    void (*back[WF_N_CELLS])(const struct wf_rnn_back *s);
    void (*gru_reset_back)(const struct wf_rnn_back *s);
};
const struct wf_rnn_fns *wf_rnn_fns_of(weft_simd level);

/* ---- whole sequences ------------------------------------------------------------------------- */

struct wf_rnn_desc {
    enum wf_rnn_cell cell;
    bool reverse, bias, h0;
    int64_t n_batch, n_time, n_in, n_units;
    /* gradient only */
    bool need_dx, need_dw, need_dh0;
};

/* A plan, for one direction. Copyable. */
struct wf_rnn {
    struct wf_rnn_desc d;
    const struct wf_gemm_fns *gemm;
    const struct wf_rnn_fns *fns;
    int n_gates, n_parts; /* of the weights; of da */
    int64_t tile_rows, n_tiles;
    int64_t n_groups; /* of nr units */
    int64_t a_ld;     /* of rows [h | x | q h] */
    int64_t da_ld, dh_ld;
    int64_t row_cut, n_row_cuts_r, n_row_cuts_w; /* weight gradients: rows of a task */
    bool serial;
    size_t off_w, off_rows, off_panels, off_bias, off_threads, thread_bytes, scratch_bytes;
};

/* The tensors of a call; absent ones are NULL. */
struct wf_rnn_data {
    const float *x, *w, *r, *bias, *h0, *c0;
    const uint8_t *mask; /* [batch, time] */
    const void *lengths; /* [batch] of i32, or i64 if lengths64 */
    bool lengths64;
    float *y;               /* [batch, time, units]; read by the gradient, and so are: */
    float *gates, *cells;   /* [time, batch, values * units] */
    float *h_last, *c_last; /* forward only */
    const float *dy, *dh_last, *dc_last;
    float *dx, *dw, *dr, *dbias, *dh0, *dc0;
};

/* false: the sizes are beyond any memory. */
bool wf_rnn_plan(struct wf_rnn *p, const struct wf_rnn_desc *d, weft_simd level, bool gradient,
                 int n_threads);
/* Lengths must have been checked. */
void wf_rnn_forward(const struct wf_rnn *p, struct wf_pool *pool, const struct wf_rnn_data *t,
                    void *scratch);
void wf_rnn_backward(const struct wf_rnn *p, struct wf_pool *pool, const struct wf_rnn_data *t,
                     void *scratch);

#endif
