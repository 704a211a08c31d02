/* rnn.c - recurrent nets: how the work is cut, and the way forward. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/rnn_impl.h"

enum {
    ALIGN = 64,
    LINE = 16, /* floats per cache line */
    TILE_ROWS = 16,
    WIDE_TILE_ROWS = 8,      /* if this many rows fit in the registers at the same time */
    BIG_TILE_ROWS = 32,      /* if the weights do not stay in the L2 cache */
    BIG_WEIGHTS = 192 << 10, /* floats */
    SMALL_TILE_ROWS = 4,
    SOME_TILES = 2,        /* a small batch is divided at least into this many */
    WANT_TASKS = 16,       /* for the weight gradients */
    MIN_ROW_CUT = 28,      /* their rows: with fewer, a task reads more than it computes */
    SERIAL_WORK = 96 << 10 /* multiply-adds that one thread does before another has woken up */
};

WF_LEVELS(wf_rnn_fns, wf_rnn_fns_of);

/* ---- planning -------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rows of whole cache lines that do not map to the same sets. */
static int64_t spread_ld(int64_t n)
{
    n = wf_round_up(n, 16);
    return n % 128 ? n : n + 16;
}

/* A piece of scratch memory of a * b * c floats; false on overflow. */
static bool reserve(size_t *at, int64_t a, int64_t b, int64_t c)
{
    int64_t n;

    if (!wf_mul_i64(a, b, &n) || !wf_mul_i64(n, c, &n) || !wf_mul_i64(n, sizeof(float), &n) ||
        !wf_add_i64((int64_t)*at, n, &n) || n > INT64_MAX / 4)
        return false;
    *at = (size_t)wf_round_up(n, ALIGN);
    return true;
}

static void cut(struct wf_rnn *p)
{
    const struct wf_rnn_desc *d = &p->d;
    int64_t weights = (d->n_units + d->n_in) * d->n_units * p->n_gates;
    int64_t rows = weights > BIG_WEIGHTS           ? BIG_TILE_ROWS
                   : p->gemm->mr >= WIDE_TILE_ROWS ? WIDE_TILE_ROWS
                                                   : TILE_ROWS;
    int64_t n_tiles = wf_max_i64(ceil_div(d->n_batch, rows),
                                 wf_min_i64(SOME_TILES, d->n_batch / SMALL_TILE_ROWS));

    p->tile_rows = wf_max_i64(ceil_div(d->n_batch, wf_max_i64(n_tiles, 1)), 1);
    p->n_tiles = ceil_div(d->n_batch, p->tile_rows);
    p->n_groups = ceil_div(d->n_units, p->gemm->nr);
    p->a_ld = spread_ld(d->n_units + d->n_in + (d->cell == WF_CELL_GRU_BEFORE ? d->n_units : 0));
    p->da_ld = spread_ld(p->n_parts * d->n_units);
    p->dh_ld = spread_ld(d->n_units);
    p->serial = d->n_batch * d->n_time * weights <= SERIAL_WORK;
}

static bool layout_forward(struct wf_rnn *p)
{
    const struct wf_rnn_desc *d = &p->d;
    int64_t nr = p->gemm->nr;
    size_t at = 0, work = 0;

    p->off_w = at;
    if (!reserve(&at, p->n_groups * nr, p->n_gates, d->n_units + d->n_in))
        return false;
    p->off_threads = at;
    if (!reserve(&work, 2 * p->tile_rows, p->a_ld, 1) ||
        !reserve(&work, p->tile_rows, p->n_parts * nr, 1) ||
        !reserve(&work, p->tile_rows, p->dh_ld, 1))
        return false;
    p->thread_bytes = work + (size_t)wf_rnn_flag_bytes(p);
    return true;
}

/* Tasks of the weight gradients: a panel of columns by row_cut rows of dr, or of dw. */
static void cut_rows(struct wf_rnn *p)
{
    int64_t n_panels = wf_max_i64(p->n_groups * p->n_gates, 1), rows = p->d.n_units + p->d.n_in;
    int64_t n_cuts = wf_min_i64(ceil_div(WANT_TASKS, n_panels), rows / MIN_ROW_CUT);

    p->row_cut = wf_max_i64(ceil_div(rows, wf_max_i64(n_cuts, 1)), 1);
    p->n_row_cuts_r = ceil_div(p->d.n_units, p->row_cut);
    p->n_row_cuts_w = ceil_div(p->d.n_in, p->row_cut);
}

static bool layout_backward(struct wf_rnn *p)
{
    const struct wf_rnn_desc *d = &p->d;
    int64_t nr = p->gemm->nr, n_steps;
    size_t at = 0, work = 0;

    if (!wf_mul_i64(d->n_batch, d->n_time, &n_steps))
        return false;
    cut_rows(p);
    p->off_w = at; /* r^T, then w^T */
    if (!reserve(&at, p->n_groups * nr, p->n_gates * d->n_units, 1) ||
        (d->need_dx && !reserve(&at, wf_round_up(d->n_in, nr), p->n_gates * d->n_units, 1)))
        return false;
    p->off_rows = at;
    if (!reserve(&at, n_steps, p->a_ld, 1))
        return false;
    p->off_panels = at;
    if (d->need_dw && !reserve(&at, n_steps, p->n_groups * nr, p->n_parts))
        return false;
    p->off_bias = at;
    if (!reserve(&at, p->n_tiles, p->n_parts * d->n_units, 1))
        return false;
    p->off_threads = at;
    if (!reserve(&work, p->tile_rows, p->da_ld, 1) ||
        !reserve(&work, 3 * p->tile_rows, p->dh_ld, 1))
        return false;
    p->thread_bytes = work + (size_t)wf_rnn_flag_bytes(p);
    return true;
}

bool wf_rnn_plan(struct wf_rnn *p, const struct wf_rnn_desc *d, weft_simd level, bool gradient,
                 int n_threads)
{
    static const int gates[] = {4, 3, 3, 1, 1}, parts[] = {4, 4, 3, 1, 1};
    int64_t n;

    *p = (struct wf_rnn){.d = *d,
                         .gemm = wf_gemm_fns_of(level),
                         .fns = wf_rnn_fns_of(level),
                         .n_gates = gates[d->cell],
                         .n_parts = parts[d->cell]};
    /* cut() must not overflow: larger sizes are far beyond any memory */
    if (!wf_mul_i64(d->n_units + d->n_in + 64, d->n_units + 64, &n) || !wf_mul_i64(n, 64, &n) ||
        !wf_mul_i64(d->n_batch, n, &n) || !wf_mul_i64(d->n_time, n, &n))
        return false;
    cut(p);
    if (!(gradient ? layout_backward(p) : layout_forward(p)))
        return false;
    p->scratch_bytes = p->off_threads + p->thread_bytes * (size_t)n_threads;
    return p->scratch_bytes < SIZE_MAX / 4;
}

/* ---- shared with the way back ---------------------------------------------------------------- */

void wf_rnn_for(const struct wf_rnn *p, struct wf_pool *pool, int64_t n, wf_tile_fn *fn, void *arg)
{
    if (!p->serial) {
        wf_pool_for(pool, n, fn, arg);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

static int64_t length_of(const struct wf_rnn_data *t, int64_t row)
{
    return t->lengths64 ? ((const int64_t *)t->lengths)[row] : ((const int32_t *)t->lengths)[row];
}

struct wf_rnn_tile wf_rnn_tile_at(const struct wf_rnn_run *r, int64_t tile, uint8_t *mem)
{
    const struct wf_rnn *p = r->p;
    struct wf_rnn_tile at = {.first = tile * p->tile_rows};
    uint8_t *flags = mem, *all_on;
    int64_t n_time = p->d.n_time;

    at.n_rows = wf_min_i64(p->tile_rows, p->d.n_batch - at.first);
    if (!wf_rnn_masked(r->t))
        return at;
    all_on = flags + n_time * at.n_rows;
    memset(all_on, 1, (size_t)n_time);
    for (int64_t i = 0; i < at.n_rows; i++) {
        int64_t row = at.first + i, length = r->t->lengths ? length_of(r->t, row) : 0;
        uint8_t seen = 0;

        for (int64_t k = 0; k < n_time; k++) {
            int64_t time = wf_rnn_time(p, k);
            bool on = r->t->lengths ? time < length : r->t->mask[row * n_time + time] != 0;

            seen = on ? WF_STEP_SEEN : seen;
            flags[k * at.n_rows + i] = (uint8_t)(seen | (on ? WF_STEP_ON : 0));
            all_on[k] &= on;
        }
    }
    at.flags = flags;
    at.all_on = all_on;
    return at;
}

static void soon_add(struct wf_rnn_soon *s, const struct wf_rnn_run *r,
                     const struct wf_rnn_tile *tile, const float *saved, int64_t width, int64_t k)
{
    const struct wf_rnn *p = r->p;

    if (!saved || k < 0 || k >= p->d.n_time)
        return;
    s->piece[s->n].at =
        (uintptr_t)(saved + (wf_rnn_time(p, k) * p->d.n_batch + tile->first) * width);
    s->piece[s->n++].n_lines = (tile->n_rows * width + LINE - 1) / LINE;
}

void wf_rnn_soon_step(struct wf_rnn_soon *s, const struct wf_rnn_run *r,
                      const struct wf_rnn_tile *tile, int64_t k, int64_t k_cells)
{
    soon_add(s, r, tile, r->t->cells, r->p->d.n_units, k_cells);
    soon_add(s, r, tile, r->t->gates, r->p->d.n_units * r->p->n_parts, k);
}

void wf_rnn_soon_take(struct wf_rnn_soon *s, const struct wf_gemm_fns *fns, struct wf_gemm_block *b)
{
    int64_t n_blocks = ceil_div(b->m, fns->mr) * ceil_div(b->n, fns->nr);

    b->soon = NULL;
    if (!s->n || !b->k)
        return;
    b->soon = (const void *)s->piece[s->n - 1].at;
    b->soon_bytes = LINE * sizeof(float);
    b->soon_next = b->k * b->soon_bytes;
    b->soon_n = wf_min_i64(n_blocks, ceil_div(s->piece[s->n - 1].n_lines, b->k));
    s->piece[s->n - 1].at += (uintptr_t)(b->soon_n * b->soon_next);
    s->piece[s->n - 1].n_lines -= b->soon_n * b->k;
    if (s->piece[s->n - 1].n_lines <= 0)
        s->n--;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Floats of one packed gate of a group: rows of R and of W. */
static int64_t gate_floats(const struct wf_rnn *p)
{
    return (p->d.n_units + p->d.n_in) * p->gemm->nr;
}

/* Task: one gate of one group of units. R comes first, then W; for n of a gru W and then R, because
 * x and what multiplies R are in that order in the rows. */
static void pack_task(void *arg, int64_t task, int thread)
{
    const struct wf_rnn_run *r = arg;
    const struct wf_rnn *p = r->p;
    int64_t group = task / p->n_gates, gate = task % p->n_gates, nr = p->gemm->nr;
    int64_t u = group * nr, n = wf_min_i64(nr, p->d.n_units - u), ld = p->n_gates * p->d.n_units;
    float *dst = wf_rnn_floats(r, p->off_w) + task * gate_floats(p);
    bool w_first = gate == 2 && p->n_gates == 3;
    float *dst_r = w_first ? dst + p->d.n_in * nr : dst;
    float *dst_w = w_first ? dst : dst + p->d.n_units * nr;

    (void)thread;
    p->gemm->pack_b(dst_r, r->t->r + gate * p->d.n_units + u, WF_GEMM_F32, ld, false, p->d.n_units,
                    n);
    p->gemm->pack_b(dst_w, r->t->w + gate * p->d.n_units + u, WF_GEMM_F32, ld, false, p->d.n_in, n);
}

/* A tile in progress: its buffers, and its position. */
struct way {
    const struct wf_rnn_run *r;
    struct wf_rnn_tile tile;
    float *a, *a_next; /* rows [h | x | q h], a_ld apart */
    float *sums, *c;
    int64_t k, t;
    bool no_h; /* h is zero */
    struct wf_rnn_soon soon;
};

/* sums[part ...] = a[from .. from + k) times `n_panels` panels at b. */
static void product(struct way *s, int64_t n, int64_t part, int n_panels, int64_t from, int64_t k,
                    const float *b)
{
    const struct wf_rnn *p = s->r->p;
    int64_t nr = p->gemm->nr;

    struct wf_gemm_block c = {.m = s->tile.n_rows,
                              .n = (n_panels - 1) * nr + n,
                              .k = k,
                              .a = s->a + from,
                              .a_rs = p->a_ld,
                              .a_cs = 1,
                              .b = b,
                              .b_ps = gate_floats(p),
                              .c = s->sums + part * nr,
                              .ldc = p->n_parts * nr};

    wf_rnn_soon_take(&s->soon, p->gemm, &c);
    p->gemm->block(&c);
}

/* The gates whose sum is h r + x w. */
static void products(struct way *s, int64_t n, int n_panels, const float *b)
{
    const struct wf_rnn_desc *d = &s->r->p->d;

    if (s->no_h)
        product(s, n, 0, n_panels, d->n_units, d->n_in, b + d->n_units * s->r->p->gemm->nr);
    else
        product(s, n, 0, n_panels, 0, d->n_units + d->n_in, b);
}

static void step_group(struct way *s, struct wf_rnn_step *c, const float *b)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_desc *d = &p->d;
    const float *b_n = b + 2 * gate_floats(p); /* n of a gru */

    if (d->cell == WF_CELL_GRU_AFTER) {
        products(s, c->n, 2, b);
        product(s, c->n, 2, 1, d->n_units, d->n_in, b_n);
        product(s, c->n, 3, 1, 0, s->no_h ? 0 : d->n_units, b_n + d->n_in * p->gemm->nr);
    } else if (d->cell == WF_CELL_GRU_BEFORE) {
        product(s, c->n, 0, 1, d->n_units, d->n_in + (s->no_h ? 0 : d->n_units), b_n);
    } else {
        products(s, c->n, p->n_gates, b);
    }
    p->fns->step[d->cell](c);
}

/* The step's operands for the group of units that begins at u. */
static struct wf_rnn_step group_at(const struct way *s, int64_t u)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_data *t = s->r->t;
    int64_t n = p->d.n_units, nr = p->gemm->nr, n_saved = p->n_parts * n;
    int64_t row = s->tile.first * p->d.n_time + s->t, saved = s->t * p->d.n_batch + s->tile.first;

    return (struct wf_rnn_step){
        .n_rows = s->tile.n_rows,
        .n = wf_min_i64(nr, n - u),
        .n_units = n,
        .flags = wf_rnn_flags(&s->tile, s->k),
        .sums = s->sums,
        .sums_ld = p->n_parts * nr,
        .part = nr,
        .bias = t->bias ? t->bias + u : NULL,
        .bias1 = t->bias && p->d.cell == WF_CELL_GRU_AFTER ? t->bias + 3 * n + u : NULL,
        .h = s->a + u,
        .h_next = s->a_next + u,
        .rh = s->a + n + p->d.n_in + u,
        .h_ld = p->a_ld,
        .c = s->c + u,
        .c_ld = p->dh_ld,
        .y = t->y + row * n + u,
        .y_ld = p->d.n_time * n,
        .cells = t->cells ? t->cells + saved * n + u : NULL,
        .gates = t->gates ? t->gates + saved * n_saved + u : NULL,
        .gates_ld = n_saved};
}

static void step(struct way *s)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_desc *d = &p->d;
    const float *w = wf_rnn_floats(s->r, p->off_w);
    int64_t nr = p->gemm->nr;
    float *swap = s->a;

    s->soon.n = 0;
    wf_rnn_soon_step(&s->soon, s->r, &s->tile, s->k + 1, s->k + 1);
    for (int64_t i = 0; i < s->tile.n_rows; i++)
        memcpy(s->a + i * p->a_ld + d->n_units,
               s->r->t->x + ((s->tile.first + i) * d->n_time + s->t) * d->n_in,
               (size_t)d->n_in * sizeof(float));
    for (int64_t j = 0; d->cell == WF_CELL_GRU_BEFORE && j < p->n_groups; j++) {
        struct wf_rnn_step c = group_at(s, j * nr);

        products(s, c.n, 2, w + j * p->n_gates * gate_floats(p));
        p->fns->gru_reset(&c);
    }
    for (int64_t j = 0; j < p->n_groups; j++) {
        struct wf_rnn_step c = group_at(s, j * nr);

        step_group(s, &c, w + j * p->n_gates * gate_floats(p));
    }
    s->a = s->a_next;
    s->a_next = swap;
    s->no_h = false;
}

static void forward_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_rnn_run *r = arg;
    const struct wf_rnn *p = r->p;
    const struct wf_rnn_data *t = r->t;
    char *mem = r->scratch + p->off_threads + (size_t)thread * p->thread_bytes;
    struct way s = {.r = r, .no_h = !t->h0};
    int64_t n = p->d.n_units, at;

    s.a = (float *)(void *)mem;
    s.a_next = s.a + p->tile_rows * p->a_ld;
    s.sums = s.a_next + p->tile_rows * p->a_ld;
    s.c = s.sums + p->tile_rows * p->n_parts * p->gemm->nr;
    s.tile = wf_rnn_tile_at(r, tile, (uint8_t *)(s.c + p->tile_rows * p->dh_ld));
    at = s.tile.first * n;
    wf_rnn_load_state(s.a, p->a_ld, t->h0 ? t->h0 + at : NULL, s.tile.n_rows, n);
    wf_rnn_load_state(s.c, p->dh_ld, t->c0 ? t->c0 + at : NULL, s.tile.n_rows, n);
    for (s.k = 0; s.k < p->d.n_time; s.k++) {
        s.t = wf_rnn_time(p, s.k);
        step(&s);
    }
    wf_rnn_save_state(t->h_last + at, s.a, p->a_ld, s.tile.n_rows, n);
    wf_rnn_save_state(t->c_last ? t->c_last + at : NULL, s.c, p->dh_ld, s.tile.n_rows, n);
}

void wf_rnn_forward(const struct wf_rnn *p, struct wf_pool *pool, const struct wf_rnn_data *t,
                    void *scratch)
{
    struct wf_rnn_run r = {p, t, scratch};

    if (!p->d.n_units || !p->d.n_batch)
        return;
    wf_rnn_for(p, pool, p->n_groups * p->n_gates, pack_task, &r);
    wf_rnn_for(p, pool, p->n_tiles, forward_tile, &r);
}
