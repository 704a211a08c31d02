/* copy.c - copies of boxes of elements with any strides on both sides. */
#include "kernels/cpu/copy.h"

/* Bytes of a block and of a tile: a part of L1, and enough work to be worth handing out. */
enum { BLOCK_BYTES = 8 << 10, TILE_BYTES = 32 << 10 };

/* A transpose goes by squares, in blocks that need few pages and lines at a time on both sides. */
enum { SQUARE = 16, BLOCK_ROWS = 64, BLOCK_COLUMNS = 128 };

/* Elements by size; the memory holds floats and integers alike. */
typedef uint8_t u8 __attribute__((may_alias));
typedef uint16_t u16 __attribute__((may_alias));
typedef uint32_t u32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));

/* ---- planning -------------------------------------------------------------------------------- */

/* Drop axes of size 1 and merge neighbours that one stride covers. Returns the element count. */
static int64_t simplify(const struct wf_box *box, struct wf_box *s)
{
    int64_t count = 1;

    *s = (struct wf_box){.in_at = box->in_at, .out_at = box->out_at};
    for (int i = 0; i < box->rank; i++) {
        int last = s->rank - 1;

        count *= box->n[i];
        if (box->n[i] == 1)
            continue;
        if (s->rank && s->in[last] == box->n[i] * box->in[i] &&
            s->out[last] == box->n[i] * box->out[i]) {
            s->n[last] *= box->n[i];
            s->in[last] = box->in[i];
            s->out[last] = box->out[i];
            continue;
        }
        s->n[s->rank] = box->n[i];
        s->in[s->rank] = box->in[i];
        s->out[s->rank] = box->out[i];
        s->rank++;
    }
    return count;
}

/* Take axis i out of the box and return its size and strides in bytes. */
static void take_axis(struct wf_box *s, int i, int elem, int64_t *n, int64_t *in, int64_t *out)
{
    *n = 1;
    *in = *out = 0;
    if (i < 0)
        return;
    *n = s->n[i];
    *in = s->in[i] * elem;
    *out = s->out[i] * elem;
    s->rank--;
    for (; i < s->rank; i++) {
        s->n[i] = s->n[i + 1];
        s->in[i] = s->in[i + 1];
        s->out[i] = s->out[i + 1];
    }
}

/* Cut n into blocks of about `want`, at least 1. */
static void cut(int64_t n, int64_t want, int64_t *block, int64_t *n_blocks)
{
    *block = want < 1 ? 1 : want < n ? want : n;
    *n_blocks = *block ? (n + *block - 1) / *block : 0;
}

/* The axis along which the input is contiguous, when that is not the innermost one. */
static int transposed_axis(const struct wf_box *s)
{
    int inner = s->rank - 1;

    if (s->rank < 2 || s->out[inner] != 1 || s->in[inner] == 0 || s->in[inner] == 1)
        return -1;
    for (int i = inner - 1; i >= 0; i--)
        if (s->in[i] == 1 && s->n[i] >= 4 && s->n[inner] >= 4)
            return i;
    return -1;
}

void wf_copy_plan(struct wf_copy *c, const struct wf_box *box, int elem)
{
    struct wf_box s;
    int64_t count = simplify(box, &s);
    int across = transposed_axis(&s);

    *c = (struct wf_copy){.elem = elem, .in_at = s.in_at * elem, .out_at = s.out_at * elem};
    if (!count)
        return;
    take_axis(&s, s.rank - 1, elem, &c->n0, &c->in0, &c->out0);
    if (across >= 0)
        c->kind = WF_COPY_TRANSPOSE;
    else if ((c->in0 == elem && c->out0 == elem) || c->n0 == 1)
        c->kind = WF_COPY_ROWS;
    else
        c->kind = c->in0 == 0 && c->out0 == elem ? WF_COPY_FILL : WF_COPY_STRIDED;
    take_axis(&s, across >= 0 ? across : s.rank - 1, elem, &c->n1, &c->in1, &c->out1);
    cut(c->n0, across >= 0 ? BLOCK_COLUMNS : BLOCK_BYTES / elem, &c->block0, &c->n_blocks0);
    cut(c->n1, across >= 0 ? BLOCK_ROWS : BLOCK_BYTES / elem / c->block0, &c->block1,
        &c->n_blocks1);
    c->n_outer = s.rank;
    c->n_units = c->n_blocks0 * c->n_blocks1;
    for (int i = 0; i < s.rank; i++) {
        c->n[i] = s.n[i];
        c->in[i] = s.in[i] * elem;
        c->out[i] = s.out[i] * elem;
        c->n_units *= s.n[i];
    }
    c->units_per_tile = wf_max_i64(1, TILE_BYTES / (c->block0 * c->block1 * elem));
    c->n_tiles = (c->n_units + c->units_per_tile - 1) / c->units_per_tile;
}

/* ---- blocks: n1 rows of n0 elements ---------------------------------------------------------- */

static inline __attribute__((always_inline)) void rows_of(char *out, const char *in, int64_t n1,
                                                          int64_t out1, int64_t in1, size_t bytes)
{
    for (int64_t i = 0; i < n1; i++)
        memcpy(out + i * out1, in + i * in1, bytes);
}

/* Rows of bytes; the short ones of usual length without a call. */
static void copy_rows(char *out, const char *in, int64_t n1, int64_t out1, int64_t in1,
                      size_t bytes)
{
    switch (bytes) {
    case 1: rows_of(out, in, n1, out1, in1, 1); break;
    case 2: rows_of(out, in, n1, out1, in1, 2); break;
    case 4: rows_of(out, in, n1, out1, in1, 4); break;
    case 8: rows_of(out, in, n1, out1, in1, 8); break;
    case 16: rows_of(out, in, n1, out1, in1, 16); break;
    case 32: rows_of(out, in, n1, out1, in1, 32); break;
    case 64: rows_of(out, in, n1, out1, in1, 64); break;
    case 128: rows_of(out, in, n1, out1, in1, 128); break;
    default: rows_of(out, in, n1, out1, in1, bytes); break;
    }
}

/* The loops for each element size. Strides are in bytes: an element may lie anywhere. A square of a
 * transpose is read into one that lies together: rows whose distance is a power of two share cache
 * sets, and would drive each other out. */
#define COPIES(T)                                                                                \
    static void strided_##T(char *out, const char *in, int64_t n1, int64_t out1, int64_t in1,    \
                            int64_t n0, int64_t out0, int64_t in0)                               \
    {                                                                                            \
        for (int64_t i = 0; i < n1; i++)                                                         \
            for (int64_t j = 0; j < n0; j++)                                                     \
                memcpy(out + i * out1 + j * out0, in + i * in1 + j * in0, sizeof(T));            \
    }                                                                                            \
    static void fill_##T(char *out, const char *in, int64_t n1, int64_t out1, int64_t in1,       \
                         int64_t n0)                                                             \
    {                                                                                            \
        for (int64_t i = 0; i < n1; i++) {                                                       \
            T *to = (T *)(void *)(out + i * out1), v = *(const T *)(const void *)(in + i * in1); \
                                                                                                 \
            for (int64_t j = 0; j < n0; j++)                                                     \
                to[j] = v;                                                                       \
        }                                                                                        \
    }                                                                                            \
    static void square_##T(char *out, const char *in, int64_t n1, int64_t out1, int64_t n0,      \
                           int64_t in0)                                                          \
    {                                                                                            \
        T sq[SQUARE][SQUARE];                                                                    \
                                                                                                 \
        for (int64_t j = 0; j < n0; j++)                                                         \
            memcpy(sq[j], in + j * in0, (size_t)n1 * sizeof(T));                                 \
        for (int64_t i = 0; i < n1; i++) {                                                       \
            T *to = (T *)(void *)(out + i * out1);                                               \
                                                                                                 \
            for (int64_t j = 0; j < n0; j++)                                                     \
                to[j] = sq[j][i];                                                                \
        }                                                                                        \
    }
COPIES(u8)
COPIES(u16)
COPIES(u32)
COPIES(u64)

typedef uint32_t v4 __attribute__((vector_size(16), may_alias));

static inline v4 load4(const void *p)
{
    v4 v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The same for words, four by four in registers. */
static void words_square(char *out, const char *in, int64_t out1, int64_t in0)
{
    _Alignas(16) uint32_t sq[SQUARE][SQUARE];

    for (int j = 0; j < SQUARE; j += 4)
        for (int i = 0; i < SQUARE; i += 4) {
            const char *p = in + j * in0 + i * 4;
            v4 a = load4(p), b = load4(p + in0), c = load4(p + 2 * in0), d = load4(p + 3 * in0);
            v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            v4 ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            v4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            v4 cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);

            *(v4 *)(void *)&sq[i][j] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
            *(v4 *)(void *)&sq[i + 1][j] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
            *(v4 *)(void *)&sq[i + 2][j] = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
            *(v4 *)(void *)&sq[i + 3][j] = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
        }
    for (int i = 0; i < SQUARE; i++)
        memcpy(out + i * out1, sq[i], sizeof sq[i]);
}

#define FULL_SQUARE(T)                                                                \
    static void full_square_##T(char *out, const char *in, int64_t out1, int64_t in0) \
    {                                                                                 \
        square_##T(out, in, SQUARE, out1, SQUARE, in0);                               \
    }
FULL_SQUARE(u8)
FULL_SQUARE(u16)
FULL_SQUARE(u64)

static const struct {
    void (*part)(char *out, const char *in, int64_t n1, int64_t out1, int64_t n0, int64_t in0);
    void (*full)(char *out, const char *in, int64_t out1, int64_t in0);
} squares[] = {
    [1] = {square_u8, full_square_u8},
    [2] = {square_u16, full_square_u16},
    [4] = {square_u32, words_square},
    [8] = {square_u64, full_square_u64},
};

/* Rows are contiguous in `out`, columns in `in`. */
static void transpose(char *out, const char *in, int64_t n1, int64_t out1, int64_t n0, int64_t in0,
                      int elem)
{
    for (int64_t i = 0; i < n1; i += SQUARE)
        for (int64_t j = 0; j < n0; j += SQUARE) {
            int64_t h = wf_min_i64(SQUARE, n1 - i), w = wf_min_i64(SQUARE, n0 - j);
            char *to = out + i * out1 + j * elem;
            const char *from = in + i * elem + j * in0;

            if (h == SQUARE && w == SQUARE)
                squares[elem].full(to, from, out1, in0);
            else
                squares[elem].part(to, from, h, out1, w, in0);
        }
}

static void run_unit(const struct wf_copy *c, char *out, const char *in, int64_t n1, int64_t n0)
{
    switch (c->kind) {
    case WF_COPY_ROWS: copy_rows(out, in, n1, c->out1, c->in1, (size_t)(n0 * c->elem)); break;
    case WF_COPY_TRANSPOSE: transpose(out, in, n1, c->out1, n0, c->in0, c->elem); break;
    case WF_COPY_FILL:
        if (c->elem == 1)
            fill_u8(out, in, n1, c->out1, c->in1, n0);
        else if (c->elem == 2)
            fill_u16(out, in, n1, c->out1, c->in1, n0);
        else if (c->elem == 4)
            fill_u32(out, in, n1, c->out1, c->in1, n0);
        else
            fill_u64(out, in, n1, c->out1, c->in1, n0);
        break;
    case WF_COPY_STRIDED:
        if (c->elem == 1)
            strided_u8(out, in, n1, c->out1, c->in1, n0, c->out0, c->in0);
        else if (c->elem == 2)
            strided_u16(out, in, n1, c->out1, c->in1, n0, c->out0, c->in0);
        else if (c->elem == 4)
            strided_u32(out, in, n1, c->out1, c->in1, n0, c->out0, c->in0);
        else
            strided_u64(out, in, n1, c->out1, c->in1, n0, c->out0, c->in0);
        break;
    }
}

void wf_copy_tile(const struct wf_copy *c, const void *in, void *out, int64_t tile)
{
    int64_t unit = tile * c->units_per_tile;
    int64_t end = wf_min_i64(unit + c->units_per_tile, c->n_units);

    for (; unit < end; unit++) {
        int64_t rest = unit, b0 = rest % c->n_blocks0 * c->block0, b1;
        const char *from = (const char *)in + c->in_at;
        char *to = (char *)out + c->out_at;

        rest /= c->n_blocks0;
        b1 = rest % c->n_blocks1 * c->block1;
        rest /= c->n_blocks1;
        for (int i = c->n_outer - 1; i >= 0; i--) {
            int64_t at = rest % c->n[i];

            rest /= c->n[i];
            from += at * c->in[i];
            to += at * c->out[i];
        }
        run_unit(c, to + b1 * c->out1 + b0 * c->out0, from + b1 * c->in1 + b0 * c->in0,
                 wf_min_i64(c->block1, c->n1 - b1), wf_min_i64(c->block0, c->n0 - b0));
    }
}

/* ---- several copies -------------------------------------------------------------------------- */

struct wf_moves *wf_moves_new(struct wf_kplan *p, int max, weft_dtype dtype)
{
    struct wf_moves *m = wf_arena_alloc(p->arena, sizeof *m);

    if (!m)
        return NULL;
    m->list = wf_arena_alloc(p->arena, sizeof *m->list * (size_t)(max + 1));
    m->max = max;
    m->n_phase0 = max;
    m->elem = (int)weft_dtype_size(dtype);
    return m->list ? m : NULL;
}

void wf_moves_add(struct wf_moves *m, int from, int to, const struct wf_box *box)
{
    struct wf_move *v = &m->list[m->n];
    int phase = m->n >= m->n_phase0;

    if (m->n == m->max)
        return;
    wf_copy_plan(&v->copy, box, m->elem);
    v->from = from;
    v->to = to;
    v->first_tile = m->n_tiles[phase];
    if (!v->copy.n_tiles)
        return; /* empty */
    m->n_tiles[phase] += v->copy.n_tiles;
    m->n++;
}

void wf_moves_next_phase(struct wf_moves *m)
{
    m->n_phase0 = m->n;
}

struct job {
    const struct wf_moves *m;
    const struct wf_tensor *in;
    struct wf_tensor *out;
    int first, n; /* of this phase */
};

static void move_tile(void *arg, int64_t tile, int thread)
{
    const struct job *j = arg;
    int lo = j->first, hi = j->first + j->n - 1;
    const struct wf_move *v;

    (void)thread;
    while (lo < hi) { /* the last whose first tile is not after this one */
        int mid = (lo + hi + 1) / 2;

        if (j->m->list[mid].first_tile <= tile)
            lo = mid;
        else
            hi = mid - 1;
    }
    v = &j->m->list[lo];
    wf_copy_tile(&v->copy, v->from == WF_MOVE_CONSTANT ? j->m->constant : j->in[v->from].data,
                 j->out[v->to].data, tile - v->first_tile);
}

void wf_moves_run(const struct wf_moves *m, struct wf_pool *pool, const struct wf_tensor *in,
                  struct wf_tensor *out)
{
    int n0 = m->n_phase0 < m->n ? m->n_phase0 : m->n;
    struct job j = {m, in, out, 0, n0};

    wf_pool_for(pool, m->n_tiles[0], move_tile, &j);
    j.first = n0;
    j.n = m->n - n0;
    wf_pool_for(pool, m->n_tiles[1], move_tile, &j);
}
