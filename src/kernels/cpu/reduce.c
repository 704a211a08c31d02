/* reduce.c - reductions of whole tensors: pieces for the pool, joined in order.
 * How a tensor is cut depends on its shape alone. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/reduce.h"

#include <math.h>

WF_LEVELS(wf_reduce_fns, wf_reduce_fns_at);

enum {
    RUN = 4096,            /* elements of a row that are summed in f32 */
    RUNS_A_TILE = 4,       /* a longer row is divided into tiles of this many runs */
    NARROW = 16,           /* rows of up to this many elements are done several at a time */
    TILE_ELEMENTS = 16384, /* approximate work of a tile */
    MIN_ROWS = 8,
    MAX_ROWS = 1024,
    COLUMNS = 512, /* per tile; the last one takes the rest as well */
    JOIN_COLUMNS = 256
};

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

struct job {
    const struct wf_reduce_fns *f;
    enum wf_reduce_op op;
    struct wf_reduce_shape s;
    const float *x;
    float *out, *parts;
    int64_t per_tile; /* outers per tile */
    int64_t rows, n_row_tiles, n_col_tiles;
    bool min, wide, exclusive, reverse, all;
    void *index;
    const uint8_t *bytes;
    uint8_t *bytes_out;
};

/* What remains to be done after the sums: n outputs. */
static void finish(const struct job *j, float *out, int64_t n)
{
    if (j->op == WF_REDUCE_MEAN)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((double)out[i] / (double)j->s.n);
    if (j->op == WF_REDUCE_L2)
        for (int64_t i = 0; i < n; i++)
            out[i] = sqrtf(out[i]);
}

/* ---- rows: n_inner == 1 ------------------------------------------------------------------ */

static bool rows_are_cut(const struct wf_reduce_shape *s)
{
    return s->n > RUN * RUNS_A_TILE;
}

static void rows_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int64_t begin = tile * j->per_tile, end = wf_min_i64(begin + j->per_tile, j->s.n_outer),
            n = j->s.n;
    float parts[RUNS_A_TILE];

    (void)thread;
    if (j->op == WF_REDUCE_LOGSUMEXP) {
        j->f->logsumexp_rows(end - begin, n, j->x + begin * n, j->out + begin);
    } else if (n <= NARROW) {
        j->f->narrow_rows(j->op, end - begin, n, j->x + begin * n, j->out + begin);
    } else {
        for (int64_t r = begin; r < end; r++) {
            int64_t n_parts = parts_of(n, RUN);

            for (int64_t i = 0; i < n_parts; i++)
                parts[i] = j->f->run(j->op, wf_min_i64(RUN, n - i * RUN), j->x + r * n + i * RUN);
            if (n_parts == 1)
                j->out[r] = parts[0];
            else
                j->f->join(j->op, n_parts, 1, 1, parts, j->out + r);
        }
    }
    finish(j, j->out + begin, end - begin);
}

static void cut_rows_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int64_t n_runs = parts_of(j->s.n, RUN), a_row = parts_of(n_runs, RUNS_A_TILE);
    int64_t row = tile / a_row, first = tile % a_row * RUNS_A_TILE;
    const float *x = j->x + row * j->s.n;

    (void)thread;
    for (int64_t i = first; i < wf_min_i64(first + RUNS_A_TILE, n_runs); i++)
        j->parts[row * n_runs + i] =
            j->f->run(j->op, wf_min_i64(RUN, j->s.n - i * RUN), x + i * RUN);
}

static void reduce_rows(struct job *j, struct wf_pool *pool)
{
    if (j->op == WF_REDUCE_LOGSUMEXP || !rows_are_cut(&j->s)) {
        j->per_tile = wf_max_i64(1, TILE_ELEMENTS / j->s.n);
        wf_pool_for(pool, parts_of(j->s.n_outer, j->per_tile), rows_tile, j);
        return;
    }
    int64_t n_runs = parts_of(j->s.n, RUN);

    wf_pool_for(pool, j->s.n_outer * parts_of(n_runs, RUNS_A_TILE), cut_rows_tile, j);
    for (int64_t r = 0; r < j->s.n_outer; r++)
        j->f->join(j->op, n_runs, 1, 1, j->parts + r * n_runs, j->out + r);
    finish(j, j->out, j->s.n_outer);
}

/* ---- columns: n_inner > 1 ---------------------------------------------------------------- */

/* rows == 0: never divided along n. */
static void set_grid(struct job *j, bool cut_rows)
{
    int64_t width = wf_min_i64(j->s.n_inner, COLUMNS), size = j->s.n * j->s.n_inner;

    j->rows = wf_max_i64(MIN_ROWS, wf_min_i64(MAX_ROWS, 2 * TILE_ELEMENTS / width));
    if (!cut_rows)
        j->rows = j->s.n;
    j->n_row_tiles = parts_of(j->s.n, j->rows);
    j->n_col_tiles = wf_max_i64(1, j->s.n_inner / COLUMNS);
    j->per_tile = j->n_row_tiles * j->n_col_tiles > 1 ? 1 : wf_max_i64(1, TILE_ELEMENTS / size);
}

struct place {
    int64_t outer, last_outer, row_tile, n_rows, column, n_cols;
};

static struct place place_of(const struct job *j, int64_t tile)
{
    int64_t c = tile % j->n_col_tiles, r = tile / j->n_col_tiles % j->n_row_tiles;
    int64_t outer = tile / (j->n_col_tiles * j->n_row_tiles) * j->per_tile;

    return (struct place){.outer = outer,
                          .last_outer = wf_min_i64(outer + j->per_tile, j->s.n_outer),
                          .row_tile = r,
                          .n_rows = wf_min_i64(j->rows, j->s.n - r * j->rows),
                          .column = c * COLUMNS,
                          .n_cols = c + 1 < j->n_col_tiles ? COLUMNS : j->s.n_inner - c * COLUMNS};
}

static int64_t n_grid_tiles(const struct job *j)
{
    return parts_of(j->s.n_outer, j->per_tile) * j->n_row_tiles * j->n_col_tiles;
}

static int64_t element(const struct job *j, const struct place *p, int64_t outer)
{
    return (outer * j->s.n + p->row_tile * j->rows) * j->s.n_inner + p->column;
}

static void cols_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    struct place p = place_of(j, tile);
    int64_t ld = j->s.n_inner;

    (void)thread;
    for (int64_t o = p.outer; o < p.last_outer; o++) {
        const float *x = j->x + element(j, &p, o);
        float *out = j->out + o * ld + p.column;

        if (j->op == WF_REDUCE_LOGSUMEXP) {
            j->f->logsumexp_cols(p.n_rows, p.n_cols, ld, x, out);
        } else if (j->n_row_tiles > 1) {
            j->f->cols(j->op, p.n_rows, p.n_cols, ld, x,
                       j->parts + (o * j->n_row_tiles + p.row_tile) * ld + p.column);
        } else {
            j->f->cols(j->op, p.n_rows, p.n_cols, ld, x, out);
            finish(j, out, p.n_cols);
        }
    }
}

static void join_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int64_t ld = j->s.n_inner, a_row = parts_of(ld, JOIN_COLUMNS), o = tile / a_row;
    int64_t c = tile % a_row * JOIN_COLUMNS, n = wf_min_i64(JOIN_COLUMNS, ld - c);

    (void)thread;
    j->f->join(j->op, j->n_row_tiles, ld, n, j->parts + o * j->n_row_tiles * ld + c,
               j->out + o * ld + c);
    finish(j, j->out + o * ld + c, n);
}

/* ---- any shape --------------------------------------------------------------------------- */

int64_t wf_reduce_scratch(enum wf_reduce_op op, const struct wf_reduce_shape *s)
{
    struct job j = {.s = *s};

    if (op == WF_REDUCE_LOGSUMEXP || s->n_outer * s->n * s->n_inner == 0)
        return 0;
    if (s->n_inner == 1)
        return rows_are_cut(s) ? s->n_outer * parts_of(s->n, RUN) : 0;
    set_grid(&j, true);
    return j.n_row_tiles > 1 ? s->n_outer * j.n_row_tiles * s->n_inner : 0;
}

static float empty_value(enum wf_reduce_op op)
{
    switch (op) {
    case WF_REDUCE_MEAN: return NAN;
    case WF_REDUCE_LOGSUMEXP:
    case WF_REDUCE_MAX: return -INFINITY;
    case WF_REDUCE_MIN: return INFINITY;
    case WF_REDUCE_PROD: return 1.0f;
    default: return 0.0f;
    }
}

void wf_reduce(const struct wf_reduce_fns *f, struct wf_pool *pool, enum wf_reduce_op op,
               const struct wf_reduce_shape *s, const float *x, float *out, float *scratch)
{
    struct job j = {.f = f, .op = op, .s = *s, .x = x, .out = out, .parts = scratch};

    if (s->n_outer * s->n_inner == 0)
        return;
    if (s->n == 0) {
        for (int64_t i = 0; i < s->n_outer * s->n_inner; i++)
            out[i] = empty_value(op);
        return;
    }
    if (s->n_inner == 1) {
        reduce_rows(&j, pool);
        return;
    }
    set_grid(&j, op != WF_REDUCE_LOGSUMEXP);
    wf_pool_for(pool, n_grid_tiles(&j), cols_tile, &j);
    if (j.n_row_tiles > 1)
        wf_pool_for(pool, s->n_outer * parts_of(s->n_inner, JOIN_COLUMNS), join_tile, &j);
}

/* ---- indices ----------------------------------------------------------------------------- */

static void *index_at(const struct job *j, int64_t i)
{
    return (char *)j->index + i * (j->wide ? 8 : 4);
}

static void arg_rows_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int64_t begin = tile * j->per_tile, n = wf_min_i64(j->per_tile, j->s.n_outer - begin);

    (void)thread;
    j->f->arg_rows(j->min, n, j->s.n, j->x + begin * j->s.n, j->wide, index_at(j, begin));
}

static void arg_cols_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    struct place p = place_of(j, tile);

    (void)thread;
    for (int64_t o = p.outer; o < p.last_outer; o++)
        j->f->arg_cols(j->min, p.n_rows, p.n_cols, j->s.n_inner, j->x + element(j, &p, o), j->wide,
                       index_at(j, o * j->s.n_inner + p.column));
}

static void arg_best(const struct wf_reduce_fns *f, struct wf_pool *pool, bool min,
                     const struct wf_reduce_shape *s, const float *x, bool wide, void *out)
{
    struct job j = {.f = f, .s = *s, .x = x, .min = min, .wide = wide, .index = out};

    if (s->n_outer * s->n * s->n_inner == 0)
        return;
    if (s->n_inner == 1) {
        j.per_tile = wf_max_i64(1, TILE_ELEMENTS / s->n);
        wf_pool_for(pool, parts_of(s->n_outer, j.per_tile), arg_rows_tile, &j);
        return;
    }
    set_grid(&j, false);
    wf_pool_for(pool, n_grid_tiles(&j), arg_cols_tile, &j);
}

void wf_argmax(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               const float *x, bool wide, void *out)
{
    arg_best(f, pool, false, s, x, wide, out);
}

void wf_argmin(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               const float *x, bool wide, void *out)
{
    arg_best(f, pool, true, s, x, wide, out);
}

/* ---- running sums, booleans -------------------------------------------------------------- */

static void cumsum_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    struct place p = place_of(j, tile);

    (void)thread;
    for (int64_t o = p.outer; o < p.last_outer; o++)
        j->f->cumsum_cols(j->exclusive, j->reverse, p.n_rows, p.n_cols, j->s.n_inner,
                          j->x + element(j, &p, o), j->out + element(j, &p, o));
}

void wf_cumsum(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
               bool exclusive, bool reverse, const float *x, float *y)
{
    struct job j = {.f = f, .s = *s, .x = x, .out = y, .exclusive = exclusive, .reverse = reverse};

    if (s->n_outer * s->n * s->n_inner == 0)
        return;
    set_grid(&j, false);
    wf_pool_for(pool, n_grid_tiles(&j), cumsum_tile, &j);
}

static void any_all_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int64_t end = wf_min_i64((tile + 1) * j->per_tile, j->s.n_outer);

    (void)thread;
    for (int64_t o = tile * j->per_tile; o < end; o++)
        j->f->any_all(j->all, j->s.n, j->s.n_inner, j->bytes + o * j->s.n * j->s.n_inner,
                      j->bytes_out + o * j->s.n_inner);
}

static void any_or_all(const struct wf_reduce_fns *f, struct wf_pool *pool, bool all,
                       const struct wf_reduce_shape *s, const uint8_t *x, uint8_t *out)
{
    struct job j = {.f = f, .s = *s, .all = all, .bytes = x, .bytes_out = out};

    if (s->n_outer * s->n_inner == 0)
        return;
    j.per_tile = wf_max_i64(1, TILE_ELEMENTS / wf_max_i64(1, s->n * s->n_inner));
    wf_pool_for(pool, parts_of(s->n_outer, j.per_tile), any_all_tile, &j);
}

void wf_any(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
            const uint8_t *x, uint8_t *out)
{
    any_or_all(f, pool, false, s, x, out);
}

void wf_all(const struct wf_reduce_fns *f, struct wf_pool *pool, const struct wf_reduce_shape *s,
            const uint8_t *x, uint8_t *out)
{
    any_or_all(f, pool, true, s, x, out);
}
