/* rnn_impl.h - shared by both directions of a recurrent net. */
#ifndef WF_KERNELS_CPU_RNN_IMPL_H
#define WF_KERNELS_CPU_RNN_IMPL_H

#include "kernels/cpu/rnn.h"

/* One call. */
struct wf_rnn_run {
    const struct wf_rnn *p;
    const struct wf_rnn_data *t;
    char *scratch;
};

/* The rows of a tile. */
struct wf_rnn_tile {
    int64_t first, n_rows;
    const uint8_t *flags;  /* [n_time][n_rows] in the order of processing */
    const uint8_t *all_on; /* [n_time] */
};

static inline float *wf_rnn_floats(const struct wf_rnn_run *r, size_t off)
{
    return (float *)(void *)(r->scratch + off);
}

static inline int64_t wf_rnn_time(const struct wf_rnn *p, int64_t k)
{
    return p->d.reverse ? p->d.n_time - 1 - k : k;
}

static inline bool wf_rnn_masked(const struct wf_rnn_data *t)
{
    return t->mask || t->lengths;
}

/* The flags of step k; NULL if every row is on. */
static inline const uint8_t *wf_rnn_flags(const struct wf_rnn_tile *tile, int64_t k)
{
    return tile->flags && !tile->all_on[k] ? tile->flags + k * tile->n_rows : NULL;
}

/* Bytes of a thread's memory for the flags of a tile. */
static inline int64_t wf_rnn_flag_bytes(const struct wf_rnn *p)
{
    return wf_round_up(p->d.n_time * (p->tile_rows + 1), 64);
}

/* The rows of a tile and their flags, written to mem. */
struct wf_rnn_tile wf_rnn_tile_at(const struct wf_rnn_run *r, int64_t tile, uint8_t *mem);

/* A state of n units per row: from a tensor (NULL: zero) into a tile's buffer, or back (NULL:
 * discarded). */
static inline void wf_rnn_load_state(float *to, int64_t ld, const float *from, int64_t n_rows,
                                     int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++) {
        if (from)
            memcpy(to + i * ld, from + i * n, (size_t)n * sizeof *to);
        else
            memset(to + i * ld, 0, (size_t)n * sizeof *to);
    }
}

static inline void wf_rnn_save_state(float *to, const float *from, int64_t ld, int64_t n_rows,
                                     int64_t n)
{
    for (int64_t i = 0; i < n_rows && to; i++)
        memcpy(to + i * n, from + i * ld, (size_t)n * sizeof *to);
}

/* Memory that the next step will use; products prefetch it. */
struct wf_rnn_soon {
    int n;
    struct {
        uintptr_t at; /* may be beyond the memory: it is only prefetched */
        int64_t n_lines;
    } piece[2];
};

/* Adds the saved values of a tile: gates of step k, cells of step k_cells (such steps need not
 * exist). */
void wf_rnn_soon_step(struct wf_rnn_soon *s, const struct wf_rnn_run *r,
                      const struct wf_rnn_tile *tile, int64_t k, int64_t k_cells);
/* Gives a block as many lines to prefetch as it can. */
void wf_rnn_soon_take(struct wf_rnn_soon *s, const struct wf_gemm_fns *fns,
                      struct wf_gemm_block *b);

/* Runs the tasks on the pool, or here if they are too small to wake a thread for. */
void wf_rnn_for(const struct wf_rnn *p, struct wf_pool *pool, int64_t n, wf_tile_fn *fn, void *arg);

#endif
