/* move.c - moving elements: boxes, joins, borders and lookups split into tiles for the pool. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/move.h"

#include <stdlib.h>

WF_LEVELS(wf_move_fns, wf_move_fns_at);

enum { TILE_BYTES = 32768 };

static int64_t parts_of(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

static int log2_of(int size)
{
    return size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0;
}

/* ---- boxes: the simplest equal one ------------------------------------------------------- */

static void swap_axes(struct wf_box *b, int i, int j)
{
    int64_t dim = b->dim[i], from = b->from[i], to = b->to[i];

    b->dim[i] = b->dim[j];
    b->from[i] = b->from[j];
    b->to[i] = b->to[j];
    b->dim[j] = dim;
    b->from[j] = from;
    b->to[j] = to;
}

/* Without axes of size 1, ordered by decreasing stride in dst, and with axes that are contiguous on
 * both sides joined. */
static void simplify(struct wf_box *b)
{
    int n = 0;

    for (int a = 0; a < b->rank; a++) {
        if (b->dim[a] == 1)
            continue;
        swap_axes(b, n, a);
        for (int i = n++; i > 0 && llabs(b->to[i - 1]) < llabs(b->to[i]); i--)
            swap_axes(b, i - 1, i);
    }
    b->rank = n;
    for (int a = n - 2; a >= 0; a--) {
        if (b->from[a] != b->from[a + 1] * b->dim[a + 1] ||
            b->to[a] != b->to[a + 1] * b->dim[a + 1])
            continue;
        b->dim[a + 1] *= b->dim[a];
        for (int i = a; i + 1 < b->rank; i++)
            swap_axes(b, i, i + 1);
        b->rank--;
    }
    if (!b->rank) {
        b->rank = 1;
        b->dim[0] = b->from[0] = b->to[0] = 1;
    }
}

/* ---- boxes: running ---------------------------------------------------------------------- */

struct box_job {
    const struct wf_move_fns *f;
    struct wf_box b;
    int size, log2;
    const char *src;
    char *dst;
    int64_t per_tile;                 /* rows per tile */
    int64_t chunk, n_chunks;          /* of the last axis, if a row alone is large */
    int across;                       /* transposing: the axis that is contiguous in src */
    int64_t block, n_across, n_along; /* and its blocks */
};

/* Offsets, in elements, of row i of the first n axes. */
static void offsets(const struct wf_box *b, int n, int64_t i, int64_t *from, int64_t *to)
{
    *from = *to = 0;
    for (int a = n - 1; a >= 0; a--) {
        int64_t at = i % b->dim[a];

        i /= b->dim[a];
        *from += at * b->from[a];
        *to += at * b->to[a];
    }
}

static int64_t count(const struct wf_box *b, int n)
{
    int64_t rows = 1;

    for (int a = 0; a < n; a++)
        rows *= b->dim[a];
    return rows;
}

/* n_runs adjacent rows along axis `a`, `width` elements of the last axis each. */
static void move_runs(const struct box_job *j, int a, int64_t n_runs, int64_t width, int64_t from,
                      int64_t to)
{
    const struct wf_box *b = &j->b;
    int last = b->rank - 1;
    int64_t step_from = a >= 0 ? b->from[a] : 0, step_to = a >= 0 ? b->to[a] : 0;

    if (b->from[last] == 1 && b->to[last] == 1) {
        j->f->copy_runs(n_runs, width * j->size, j->src + from * j->size, step_from * j->size,
                        j->dst + to * j->size, step_to * j->size);
        return;
    }
    for (int64_t i = 0; i < n_runs; i++, from += step_from, to += step_to)
        j->f->strided[j->log2](width, j->src + from * j->size, b->from[last], j->dst + to * j->size,
                               b->to[last]);
}

static void rows_tile(void *arg, int64_t tile, int thread)
{
    const struct box_job *j = arg;
    const struct wf_box *b = &j->b;
    int last = b->rank - 1, a = last - 1;
    int64_t chunk = tile % j->n_chunks * j->chunk,
            width = wf_min_i64(j->chunk, b->dim[last] - chunk);
    int64_t row = tile / j->n_chunks * j->per_tile,
            end = wf_min_i64(row + j->per_tile, count(b, last));

    (void)thread;
    while (row < end) {
        int64_t n = a < 0 ? 1 : wf_min_i64(end - row, b->dim[a] - row % b->dim[a]), from, to;

        offsets(b, last, row, &from, &to);
        move_runs(j, a, n, width, from + chunk * b->from[last], to + chunk * b->to[last]);
        row += n;
    }
}

static void run_rows(struct box_job *j, struct wf_pool *pool)
{
    int last = j->b.rank - 1;
    int64_t width = j->b.dim[last], rows = count(&j->b, last);

    j->chunk = wf_min_i64(width, TILE_BYTES / j->size);
    j->n_chunks = parts_of(width, j->chunk);
    j->per_tile = wf_max_i64(1, TILE_BYTES / (j->chunk * j->size));
    wf_pool_for(pool, parts_of(rows, j->per_tile) * j->n_chunks, rows_tile, j);
}

/* The last axis is contiguous in dst, `across` in src: squares of them, with the other axes
 * counted. */
static void square_tile(void *arg, int64_t tile, int thread)
{
    const struct box_job *j = arg;
    const struct wf_box *b = &j->b; /* across has been moved next to the last */
    int last = b->rank - 1, across = last - 1;
    int64_t along = tile % j->n_along * j->block, at = tile / j->n_along % j->n_across * j->block,
            from, to;

    (void)thread;
    offsets(b, across, tile / (j->n_along * j->n_across), &from, &to);
    from += along * b->from[last] + at;
    to += along + at * b->to[across];
    j->f->transpose[j->log2](wf_min_i64(j->block, b->dim[last] - along),
                             wf_min_i64(j->block, b->dim[across] - at), j->src + from * j->size,
                             b->from[last], j->dst + to * j->size, b->to[across]);
}

static void run_squares(struct box_job *j, struct wf_pool *pool)
{
    struct wf_box *b = &j->b;
    int last = b->rank - 1;

    for (int a = j->across; a < last - 1; a++)
        swap_axes(b, a, a + 1);
    j->block = 64;
    j->n_along = parts_of(b->dim[last], j->block);
    j->n_across = parts_of(b->dim[last - 1], j->block);
    wf_pool_for(pool, count(b, last - 1) * j->n_across * j->n_along, square_tile, j);
}

void wf_copy_box(const struct wf_move_fns *f, struct wf_pool *pool, int size,
                 const struct wf_box *box, const void *src, void *dst)
{
    struct box_job j = {
        .f = f, .b = *box, .size = size, .log2 = log2_of(size), .src = src, .dst = dst};
    int last;

    for (int a = 0; a < box->rank; a++)
        if (box->dim[a] <= 0)
            return;
    simplify(&j.b);
    last = j.b.rank - 1;
    j.across = -1;
    for (int a = 0; a < last && j.b.from[last] != 1 && j.b.to[last] == 1; a++)
        if (j.b.from[a] == 1 && j.b.dim[a] >= 4 && j.b.dim[last] >= 4)
            j.across = a;
    if (j.across >= 0)
        run_squares(&j, pool);
    else
        run_rows(&j, pool);
}

/* ---- boxes of the usual ops -------------------------------------------------------------- */

static void contiguous(int rank, const int64_t *dim, int64_t *stride)
{
    int64_t s = 1;

    for (int a = rank - 1; a >= 0; a--) {
        stride[a] = s;
        s *= dim[a];
    }
}

void wf_box_transpose(int rank, const int64_t *dim, const int *perm, struct wf_box *box)
{
    int64_t stride[WF_BOX_RANK];

    contiguous(rank, dim, stride);
    box->rank = rank;
    for (int a = 0; a < rank; a++) {
        box->dim[a] = dim[perm[a]];
        box->from[a] = stride[perm[a]];
    }
    contiguous(rank, box->dim, box->to);
}

void wf_box_slice(int rank, const int64_t *dim, const int64_t *begin, const int64_t *step,
                  const int64_t *size, struct wf_box *box, int64_t *src_at)
{
    int64_t stride[WF_BOX_RANK];

    contiguous(rank, dim, stride);
    contiguous(rank, size, box->to);
    box->rank = rank;
    *src_at = 0;
    for (int a = 0; a < rank; a++) {
        box->dim[a] = size[a];
        box->from[a] = stride[a] * step[a];
        *src_at += stride[a] * begin[a];
    }
}

void wf_box_unslice(int rank, const int64_t *dim, const int64_t *begin, const int64_t *step,
                    const int64_t *size, struct wf_box *box, int64_t *dst_at)
{
    wf_box_slice(rank, dim, begin, step, size, box, dst_at);
    for (int a = 0; a < rank; a++) {
        int64_t from = box->from[a];

        box->from[a] = box->to[a];
        box->to[a] = from;
    }
}

void wf_box_reverse(int rank, const int64_t *dim, const bool *reversed, struct wf_box *box,
                    int64_t *src_at)
{
    int64_t begin[WF_BOX_RANK], step[WF_BOX_RANK];

    for (int a = 0; a < rank; a++) {
        begin[a] = reversed[a] && dim[a] > 0 ? dim[a] - 1 : 0;
        step[a] = reversed[a] ? -1 : 1;
    }
    wf_box_slice(rank, dim, begin, step, dim, box, src_at);
}

void wf_box_tile(int rank, const int64_t *dim, const int64_t *repeats, struct wf_box *box)
{
    int64_t stride[WF_BOX_RANK];

    contiguous(rank, dim, stride);
    box->rank = 2 * rank;
    for (int a = 0; a < rank; a++) {
        box->dim[2 * a] = repeats[a];
        box->from[2 * a] = 0;
        box->dim[2 * a + 1] = dim[a];
        box->from[2 * a + 1] = stride[a];
    }
    contiguous(box->rank, box->dim, box->to);
}

/* ---- joining and parting ----------------------------------------------------------------- */

struct parts_job {
    const struct wf_move_fns *f;
    int64_t n_outer, row_bytes;
    int64_t per_tile;        /* rows per tile */
    int64_t chunk, n_chunks; /* bytes of a row, if a row alone is large */
    int n_parts;
    const void *const *from;
    void *const *to;
    const int64_t *bytes;
    const char *whole_from;
    char *whole_to;
};

static void parts_tile(void *arg, int64_t tile, int thread)
{
    const struct parts_job *j = arg;
    int64_t row = tile / j->n_chunks * j->per_tile, n = wf_min_i64(j->per_tile, j->n_outer - row);
    int64_t low = tile % j->n_chunks * j->chunk, high = wf_min_i64(low + j->chunk, j->row_bytes);
    int64_t start = 0; /* of the part within a row */

    (void)thread;
    for (int i = 0; i < j->n_parts; start += j->bytes[i++]) {
        int64_t bytes = j->bytes[i], from = wf_max_i64(low, start);
        int64_t width = wf_min_i64(high, start + bytes) - from;
        int64_t whole = row * j->row_bytes + from, part = row * bytes + from - start;

        if (width <= 0)
            continue;
        if (j->whole_to)
            j->f->copy_runs(n, width, (const char *)j->from[i] + part, bytes, j->whole_to + whole,
                            j->row_bytes);
        else
            j->f->copy_runs(n, width, j->whole_from + whole, j->row_bytes, (char *)j->to[i] + part,
                            bytes);
    }
}

static void run_parts(struct parts_job *j, struct wf_pool *pool)
{
    j->row_bytes = 0;
    for (int i = 0; i < j->n_parts; i++)
        j->row_bytes += j->bytes[i];
    if (!j->row_bytes)
        return;
    j->chunk = wf_min_i64(j->row_bytes, TILE_BYTES);
    j->n_chunks = parts_of(j->row_bytes, j->chunk);
    j->per_tile = TILE_BYTES / j->chunk;
    wf_pool_for(pool, parts_of(j->n_outer, j->per_tile) * j->n_chunks, parts_tile, j);
}

void wf_concat(const struct wf_move_fns *f, struct wf_pool *pool, int64_t n_outer, int n_parts,
               const void *const *parts, const int64_t *bytes, void *whole)
{
    struct parts_job j = {.f = f,
                          .n_outer = n_outer,
                          .n_parts = n_parts,
                          .from = parts,
                          .bytes = bytes,
                          .whole_to = whole};

    run_parts(&j, pool);
}

void wf_split(const struct wf_move_fns *f, struct wf_pool *pool, int64_t n_outer, int n_parts,
              const void *whole, const int64_t *bytes, void *const *parts)
{
    struct parts_job j = {.f = f,
                          .n_outer = n_outer,
                          .n_parts = n_parts,
                          .to = parts,
                          .bytes = bytes,
                          .whole_from = whole};

    run_parts(&j, pool);
}

/* ---- borders ----------------------------------------------------------------------------- */

struct fill_job {
    int size;
    int64_t n;
    const void *value;
    char *dst;
};

static void fill(int size, int64_t n, const void *value, char *dst)
{
    uint64_t pattern = 0;

    for (int i = 0; i < 8; i += size)
        memcpy((char *)&pattern + i, value, (size_t)size);
    while (n * size >= 8) {
        memcpy(dst, &pattern, 8);
        dst += 8;
        n -= 8 / size;
    }
    memcpy(dst, &pattern, (size_t)(n * size));
}

static void fill_tile(void *arg, int64_t tile, int thread)
{
    const struct fill_job *j = arg;
    int64_t a_tile = TILE_BYTES / j->size, at = tile * a_tile;

    (void)thread;
    fill(j->size, wf_min_i64(a_tile, j->n - at), j->value, j->dst + at * j->size);
}

void wf_fill(struct wf_pool *pool, int size, int64_t n, const void *value, void *dst)
{
    struct fill_job j = {size, n, value, dst};

    wf_pool_for(pool, parts_of(n, TILE_BYTES / size), fill_tile, &j);
}

struct pad_job {
    const struct wf_move_fns *f;
    int size, rank;
    int64_t dim[WF_BOX_RANK], before[WF_BOX_RANK], out[WF_BOX_RANK];
    enum wf_pad_mode mode;
    const void *value;
    const char *src;
    char *dst;
    int64_t n_rows, per_tile;
};

/* Where coordinate i of the output comes from along an axis of n elements; -1: padding. */
static int64_t pad_source(const struct pad_job *j, int axis, int64_t i)
{
    int64_t n = j->dim[axis], at = i - j->before[axis];

    if (at >= 0 && at < n)
        return at;
    if (j->mode == WF_PAD_CONSTANT)
        return -1;
    if (at < 0)
        return j->mode == WF_PAD_REFLECT ? -at : -at - 1;
    return j->mode == WF_PAD_REFLECT ? 2 * n - 2 - at : 2 * n - 1 - at;
}

static void pad_row(const struct pad_job *j, const char *src, char *dst)
{
    int last = j->rank - 1;
    int64_t n = j->dim[last], left = j->before[last], right = j->out[last] - left - n;

    if (j->mode == WF_PAD_CONSTANT) {
        fill(j->size, left, j->value, dst);
        fill(j->size, right, j->value, dst + (left + n) * j->size);
    } else {
        for (int64_t i = 0; i < left; i++)
            memcpy(dst + i * j->size, src + pad_source(j, last, i) * j->size, (size_t)j->size);
        for (int64_t i = left + n; i < left + n + right; i++)
            memcpy(dst + i * j->size, src + pad_source(j, last, i) * j->size, (size_t)j->size);
    }
    if (n)
        j->f->copy_runs(1, n * j->size, src, 0, dst + left * j->size, 0);
}

static void pad_tile(void *arg, int64_t tile, int thread)
{
    const struct pad_job *j = arg;
    int last = j->rank - 1;
    int64_t end = wf_min_i64((tile + 1) * j->per_tile, j->n_rows);

    (void)thread;
    for (int64_t row = tile * j->per_tile; row < end; row++) {
        int64_t i = row, from = 0, stride = 1;
        char *dst = j->dst + row * j->out[last] * j->size;
        bool outside = false;

        for (int a = last - 1; a >= 0; a--) {
            int64_t at = pad_source(j, a, i % j->out[a]);

            i /= j->out[a];
            outside |= at < 0;
            from += at * stride;
            stride *= j->dim[a];
        }
        if (outside)
            fill(j->size, j->out[last], j->value, dst);
        else
            pad_row(j, j->src + from * j->dim[last] * j->size, dst);
    }
}

void wf_pad(const struct wf_move_fns *f, struct wf_pool *pool, int size, int rank,
            const int64_t *dim, const int64_t *before, const int64_t *after, enum wf_pad_mode mode,
            const void *value, const void *src, void *dst)
{
    struct pad_job j = {.f = f,
                        .size = size,
                        .rank = wf_max_i64(1, rank),
                        .mode = mode,
                        .value = value,
                        .src = src,
                        .dst = dst,
                        .n_rows = 1,
                        .dim = {1},
                        .out = {1}};
    int last = j.rank - 1;

    for (int a = 0; a < rank; a++) {
        j.dim[a] = dim[a];
        j.before[a] = before[a];
        j.out[a] = before[a] + dim[a] + after[a];
    }
    for (int a = 0; a < last; a++)
        j.n_rows *= j.out[a];
    if (!j.out[last])
        return;
    j.per_tile = wf_max_i64(1, TILE_BYTES / (j.out[last] * size));
    wf_pool_for(pool, parts_of(j.n_rows, j.per_tile), pad_tile, &j);
}

/* ---- rows by index ----------------------------------------------------------------------- */

static int64_t id_at(const void *ids, bool wide, int64_t i)
{
    return wide ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

/* Atomic minimum: the smaller value wins, whichever tile comes first. */
static void lower(_Atomic int64_t *to, int64_t value)
{
    int64_t seen = atomic_load(to);

    while (value < seen && !atomic_compare_exchange_weak(to, &seen, value))
        ;
}

/* The lookups of a tile are done in units: one table for a few dozen samples. While one unit is
 * copied, the rows of the next are prefetched. */
enum { UNIT = 32, UNITS_A_TILE = 4, LINE = 64, MAX_LINES_AHEAD = 8 };

struct gather_job {
    const struct wf_move_fns *f;
    const struct wf_gather *tables;
    int64_t n_tables, n;
    _Atomic int64_t bad; /* sample * n_tables + table */
};

static void prefetch_row(const struct wf_gather *g, int64_t i)
{
    int64_t id = id_at(g->ids, g->wide, i * g->id_stride);
    int64_t bytes = wf_min_i64(g->row_bytes, LINE * MAX_LINES_AHEAD);
    const char *row;

    if (id < 0 || id >= g->n_rows)
        return;
    row = (const char *)g->table + id * g->row_bytes;
    for (int64_t b = 0; b < bytes; b += LINE)
        __builtin_prefetch(row + b, 0, 3);
}

/* Samples [begin, end) of table t; those from next_begin of table `next` (or NULL) are
 * prefetched. */
static void gather_unit(struct gather_job *j, int64_t t, int64_t begin, int64_t end,
                        const struct wf_gather *next, int64_t next_begin, int64_t next_end)
{
    const struct wf_gather g = j->tables[t];

    for (int64_t i = begin; i < end; i++) {
        int64_t id = id_at(g.ids, g.wide, i * g.id_stride);
        char *out = (char *)g.out + i * g.out_bytes;
        const char *row;

        if (next && next_begin + i - begin < next_end)
            prefetch_row(next, next_begin + i - begin);
        if (id < 0 || id >= g.n_rows) {
            lower(&j->bad, i * j->n_tables + t);
            continue;
        }
        row = (const char *)g.table + id * g.row_bytes;
        if (g.row_bytes == LINE)
            memcpy(out, row, LINE);
        else
            j->f->copy_runs(1, g.row_bytes, row, 0, out, 0);
    }
}

static void gather_tile(void *arg, int64_t tile, int thread)
{
    struct gather_job *j = arg;
    int64_t begin = tile * UNIT * UNITS_A_TILE, end = wf_min_i64(begin + UNIT * UNITS_A_TILE, j->n);

    (void)thread;
    for (int64_t i = begin; i < wf_min_i64(begin + UNIT, end); i++)
        prefetch_row(&j->tables[0], i);
    for (int64_t at = begin; at < end; at += UNIT) {
        int64_t stop = wf_min_i64(at + UNIT, end);

        for (int64_t t = 0; t < j->n_tables; t++) {
            bool last = t + 1 == j->n_tables;
            const struct wf_gather *next =
                last && stop == end ? NULL : &j->tables[last ? 0 : t + 1];

            gather_unit(j, t, at, stop, next, last ? stop : at,
                        last ? wf_min_i64(stop + UNIT, end) : stop);
        }
    }
}

int64_t wf_gather_rows(const struct wf_move_fns *f, struct wf_pool *pool,
                       const struct wf_gather *tables, int64_t n_tables, int64_t n, int64_t *table)
{
    struct gather_job j = {f, tables, n_tables, n, INT64_MAX};

    wf_pool_for(pool, n_tables ? parts_of(n, UNIT * UNITS_A_TILE) : 0, gather_tile, &j);
    if (j.bad == INT64_MAX)
        return -1;
    if (table)
        *table = j.bad % n_tables;
    return j.bad / n_tables;
}

struct scatter_job {
    const struct wf_optim_fns *f;
    const struct wf_dedupe *d;
    int64_t width, x_stride;
    const float *x;
    float *y;
};

enum { SCATTER_ROWS = 256, ROWS_AHEAD = 16 };

static void scatter_tile(void *arg, int64_t tile, int thread)
{
    const struct scatter_job *j = arg;
    const struct wf_dedupe *d = j->d;
    int64_t end = wf_min_i64((tile + 1) * SCATTER_ROWS, d->n_distinct);

    (void)thread;
    for (int64_t u = tile * SCATTER_ROWS; u < end; u++) {
        if (u + ROWS_AHEAD < end)
            __builtin_prefetch(j->y + d->rows[u + ROWS_AHEAD] * j->width, 1, 3);
        j->f->add_chain(j->width, j->x, j->x_stride, d->first[u], d->next,
                        j->y + d->rows[u] * j->width);
    }
}

void wf_scatter_add_rows(const struct wf_optim_fns *f, struct wf_pool *pool,
                         const struct wf_dedupe *d, int64_t width, const float *x, int64_t x_stride,
                         float *y)
{
    struct scatter_job j = {f, d, width, x_stride, x, y};

    wf_pool_for(pool, parts_of(d->n_distinct, SCATTER_ROWS), scatter_tile, &j);
}

struct hot_job {
    int size;
    int64_t n_outer, depth, n_inner, per_tile;
    const void *ids;
    bool wide, allow_outside;
    const void *on, *off;
    char *out;
    _Atomic int64_t bad;
};

static void hot_tile(void *arg, int64_t tile, int thread)
{
    struct hot_job *j = arg;
    int64_t begin = tile * j->per_tile, end = wf_min_i64(begin + j->per_tile, j->n_outer);
    int64_t a_row = j->depth * j->n_inner;

    (void)thread;
    fill(j->size, (end - begin) * a_row, j->off, j->out + begin * a_row * j->size);
    for (int64_t i = begin * j->n_inner; i < end * j->n_inner; i++) {
        int64_t id = id_at(j->ids, j->wide, i), row = i / j->n_inner, column = i % j->n_inner;

        if (id >= 0 && id < j->depth)
            memcpy(j->out + (row * a_row + id * j->n_inner + column) * j->size, j->on,
                   (size_t)j->size);
        else if (!j->allow_outside)
            lower(&j->bad, i);
    }
}

int64_t wf_one_hot(struct wf_pool *pool, int size, int64_t n_outer, int64_t depth, int64_t n_inner,
                   const void *ids, bool wide, bool allow_outside, const void *on, const void *off,
                   void *out)
{
    struct hot_job j = {size, n_outer,       depth, n_inner, 0,   ids,
                        wide, allow_outside, on,    off,     out, INT64_MAX};

    j.per_tile = wf_max_i64(1, TILE_BYTES / wf_max_i64(1, depth * n_inner * size));
    wf_pool_for(pool, n_inner ? parts_of(n_outer, j.per_tile) : 0, hot_tile, &j);
    return j.bad == INT64_MAX ? -1 : j.bad;
}
