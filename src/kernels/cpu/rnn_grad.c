/* rnn_grad.c - recurrent nets: the backward pass.
 *
 * Three phases: r^T and w^T are packed; tiles run from their last step to the first and leave, for
 * each row and step, [h | x] and the gradients of the sums (da, in panels); products over all of
 * these give dw and dr. Rows and steps are ordered tile by tile, step by step. */
#include "kernels/cpu/rnn_impl.h"

enum {
    STATE_K = 128, /* K blocks: a panel of one stays in the L1 cache */
    WEIGHT_K = 1024
};

static bool is_gru(const struct wf_rnn *p)
{
    return p->n_gates == 3;
}

/* Which part of da belongs to a gate of w and of r. */
static int64_t part_of_w(const struct wf_rnn *p, int64_t gate)
{
    return is_gru(p) ? (gate + 1) % 3 : gate;
}

static int64_t part_of_r(const struct wf_rnn *p, int64_t gate)
{
    return p->d.cell == WF_CELL_GRU_AFTER ? gate + 1 : part_of_w(p, gate);
}

static int64_t n_steps(const struct wf_rnn *p)
{
    return p->d.n_batch * p->d.n_time;
}

/* c (+)= a b, over K in blocks of nearly equal length. */
static void product(const struct wf_rnn *p, struct wf_gemm_block b, int64_t k, int64_t most,
                    struct wf_rnn_soon *soon)
{
    int64_t nr = p->gemm->nr, n_blocks = wf_max_i64((k + most - 1) / most, 1);

    b.b_ps = k * nr;
    for (int64_t i = 0; i < n_blocks; i++) {
        b.k = k * (i + 1) / n_blocks - k * i / n_blocks;
        if (soon)
            wf_rnn_soon_take(soon, p->gemm, &b);
        p->gemm->block(&b);
        b.a += b.k * b.a_cs;
        b.b += b.k * nr;
        b.accumulate = true;
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Floats of packed r^T; with reset before: of gates z and q, those of n follow. */
static int64_t packed_r(const struct wf_rnn *p)
{
    int64_t n_gates = p->d.cell == WF_CELL_GRU_BEFORE ? 2 : p->n_gates;

    return p->n_groups * p->gemm->nr * n_gates * p->d.n_units;
}

/* Task: a panel of r^T, or after those of w^T. Rows of w^T follow the parts of da. */
static void pack_task(void *arg, int64_t task, int thread)
{
    const struct wf_rnn_run *r = arg;
    const struct wf_rnn *p = r->p;
    int64_t n = p->d.n_units, ld = p->n_gates * n, nr = p->gemm->nr;
    bool before = p->d.cell == WF_CELL_GRU_BEFORE;
    float *dst = wf_rnn_floats(r, p->off_w);
    int64_t panel = task < p->n_groups ? task : task - p->n_groups, first = panel * nr;

    (void)thread;
    if (task < p->n_groups) {
        int64_t n_cols = wf_min_i64(nr, n - first), k = before ? 2 * n : ld;
        const float *src = r->t->r + first * ld;

        p->gemm->pack_b(dst + panel * k * nr, src, WF_GEMM_F32, ld, true, k, n_cols);
        if (before)
            p->gemm->pack_b(dst + packed_r(p) + panel * n * nr, src + 2 * n, WF_GEMM_F32, ld, true,
                            n, n_cols);
    } else {
        int64_t n_cols = wf_min_i64(nr, p->d.n_in - first), turned = is_gru(p) ? n : 0;
        const float *src = r->t->w + first * ld;

        dst += p->n_groups * nr * ld + panel * ld * nr;
        p->gemm->pack_b(dst, src + ld - turned, WF_GEMM_F32, ld, true, turned, n_cols);
        p->gemm->pack_b(dst + turned * nr, src, WF_GEMM_F32, ld, true, ld - turned, n_cols);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* A tile in progress. */
struct way {
    const struct wf_rnn_run *r;
    struct wf_rnn_tile tile;
    float *da, *dh, *dc, *drh; /* n_rows each */
    float *bias;               /* sums of da, NULL: not requested */
    float *rows;               /* [h | x | q h] of this step */
    float *panels;             /* da of this step in panel 0; NULL: not requested */
    struct wf_rnn_soon soon;
    int64_t k, t, row; /* row: of the tile's first row and this step in y */
};

/* The state before step k of row i, NULL for zero. */
static const float *h_before(const struct way *s, int64_t i)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_data *t = s->r->t;
    int64_t n = p->d.n_units, row = s->tile.first + i;

    if (s->k == 0 ||
        (s->tile.flags && !(s->tile.flags[(s->k - 1) * s->tile.n_rows + i] & WF_STEP_SEEN)))
        return t->h0 ? t->h0 + row * n : NULL;
    return t->y + (row * p->d.n_time + wf_rnn_time(p, s->k - 1)) * n;
}

/* [h | x | q h] of the step. */
static void fill_rows(const struct way *s)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_data *t = s->r->t;
    int64_t n = p->d.n_units, n_in = p->d.n_in, next = wf_rnn_time(p, wf_max_i64(s->k - 2, 0));

    for (int64_t i = 0; i < s->tile.n_rows; i++) {
        const float *h = h_before(s, i);
        float *to = s->rows + i * p->a_ld;
        int64_t row = s->tile.first + i;

        if (h)
            memcpy(to, h, (size_t)n * sizeof *to);
        else
            memset(to, 0, (size_t)n * sizeof *to);
        memcpy(to + n, t->x + (row * p->d.n_time + s->t) * n_in, (size_t)n_in * sizeof *to);
        for (int64_t u = 0; u < n; u += 16)
            __builtin_prefetch(t->y + (row * p->d.n_time + next) * n + u);
        if (p->d.cell == WF_CELL_GRU_BEFORE) {
            const float *q = t->gates + ((s->t * p->d.n_batch + row) * 3 + 1) * n;

            for (int64_t u = 0; u < n; u++)
                to[n + n_in + u] = to[u] * q[u];
        }
    }
}

/* The step's operands for the group of units that begins at u. */
static struct wf_rnn_back group_at(const struct way *s, int64_t u)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_data *t = s->r->t;
    int64_t n = p->d.n_units, nr = p->gemm->nr, steps = n_steps(p), first = s->tile.first;
    int64_t saved = s->t * p->d.n_batch + first;
    struct wf_rnn_back b = {.n_rows = s->tile.n_rows,
                            .n = wf_min_i64(nr, n - u),
                            .n_units = n,
                            .flags = wf_rnn_flags(&s->tile, s->k),
                            .y = t->y + s->row * n + u,
                            .dy = t->dy ? t->dy + s->row * n + u : NULL,
                            .y_ld = p->d.n_time * n,
                            .cells = t->cells ? t->cells + saved * n + u : NULL,
                            .gates = t->gates ? t->gates + saved * p->n_parts * n + u : NULL,
                            .gates_ld = p->n_parts * n,
                            .h_prev = s->rows + u,
                            .h_prev_ld = p->a_ld,
                            .dh = s->dh + u,
                            .dc = s->dc + u,
                            .drh = s->drh + u,
                            .dh_ld = p->dh_ld,
                            .da = s->da + u,
                            .da_ld = p->da_ld,
                            .panel = s->panels ? s->panels + u / nr * steps * nr : NULL,
                            .panel_ld = nr,
                            .panel_part = p->n_groups * steps * nr,
                            .bias = s->bias ? s->bias + u : NULL};

    if (s->k > 0 && t->cells)
        b.c_prev = t->cells + (wf_rnn_time(p, s->k - 1) * p->d.n_batch + first) * n + u;
    else if (t->c0)
        b.c_prev = t->c0 + first * n + u;
    return b;
}

static void over_groups(const struct way *s, void (*back)(const struct wf_rnn_back *))
{
    const struct wf_rnn *p = s->r->p;

    for (int64_t j = 0; j < p->n_groups; j++) {
        struct wf_rnn_back b = group_at(s, j * p->gemm->nr);

        back(&b);
    }
}

/* to[rows, n] (+)= k columns of da from `part` on, times the panels at b. */
static void through(struct way *s, int64_t part, int64_t k, const float *b, int64_t n, float *to,
                    int64_t ld, bool accumulate)
{
    const struct wf_rnn *p = s->r->p;

    product(p,
            (struct wf_gemm_block){.m = s->tile.n_rows,
                                   .n = n,
                                   .a = s->da + part * p->d.n_units,
                                   .a_rs = p->da_ld,
                                   .a_cs = 1,
                                   .accumulate = accumulate,
                                   .b = b,
                                   .c = to,
                                   .ldc = ld},
            k, STATE_K, &s->soon);
}

static void step_back(struct way *s)
{
    const struct wf_rnn *p = s->r->p;
    const struct wf_rnn_desc *d = &p->d;
    const float *b = wf_rnn_floats(s->r, p->off_w);
    int64_t n = d->n_units, first = is_gru(p) ? 1 : 0, k = p->n_gates * n;

    s->soon.n = 0;
    wf_rnn_soon_step(&s->soon, s->r, &s->tile, s->k - 1, s->k - 2);
    if (d->need_dw || is_gru(p))
        fill_rows(s);
    over_groups(s, p->fns->back[d->cell]);
    if (d->cell == WF_CELL_GRU_BEFORE) {
        through(s, 0, n, b + packed_r(p), n, s->drh, p->dh_ld, false);
        over_groups(s, p->fns->gru_reset_back);
        k = 2 * n;
    }
    if (s->k > 0 || d->need_dh0)
        through(s, first, k, b, n, s->dh, p->dh_ld,
                is_gru(p) || wf_rnn_flags(&s->tile, s->k) != NULL);
    if (d->need_dx)
        through(s, 0, p->n_gates * n, b + p->n_groups * p->gemm->nr * p->n_gates * n, d->n_in,
                s->r->t->dx + s->row * d->n_in, d->n_time * d->n_in, false);
}

static void backward_tile(void *arg, int64_t tile, int thread)
{
    const struct wf_rnn_run *r = arg;
    const struct wf_rnn *p = r->p;
    const struct wf_rnn_data *t = r->t;
    char *mem = r->scratch + p->off_threads + (size_t)thread * p->thread_bytes;
    struct way s = {.r = r};
    int64_t n = p->d.n_units, n_bias = p->n_parts * n, at;

    s.da = (float *)(void *)mem;
    s.dh = s.da + p->tile_rows * p->da_ld;
    s.dc = s.dh + p->tile_rows * p->dh_ld;
    s.drh = s.dc + p->tile_rows * p->dh_ld;
    s.tile = wf_rnn_tile_at(r, tile, (uint8_t *)(s.drh + p->tile_rows * p->dh_ld));
    at = s.tile.first * n;
    wf_rnn_load_state(s.dh, p->dh_ld, t->dh_last ? t->dh_last + at : NULL, s.tile.n_rows, n);
    wf_rnn_load_state(s.dc, p->dh_ld, t->dc_last ? t->dc_last + at : NULL, s.tile.n_rows, n);
    if (t->dbias) {
        s.bias = wf_rnn_floats(r, p->off_bias) + tile * n_bias;
        memset(s.bias, 0, (size_t)n_bias * sizeof *s.bias);
    }
    for (s.k = p->d.n_time - 1; s.k >= 0; s.k--) {
        int64_t step;

        s.t = wf_rnn_time(p, s.k);
        s.row = s.tile.first * p->d.n_time + s.t;
        step = s.tile.first * p->d.n_time + s.t * s.tile.n_rows;
        s.rows = wf_rnn_floats(r, p->off_rows) + step * p->a_ld;
        s.panels = p->d.need_dw ? wf_rnn_floats(r, p->off_panels) + step * p->gemm->nr : NULL;
        step_back(&s);
    }
    wf_rnn_save_state(t->dh0 ? t->dh0 + at : NULL, s.dh, p->dh_ld, s.tile.n_rows, n);
    wf_rnn_save_state(t->dc0 ? t->dc0 + at : NULL, s.dc, p->dh_ld, s.tile.n_rows, n);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* One gate's columns [u, u + n) of the gradient of the bias: the tiles' sums in order. */
static void bias_sums(const struct wf_rnn_run *r, float *to, int64_t part, int64_t u, int64_t n)
{
    const struct wf_rnn *p = r->p;
    const float *from = wf_rnn_floats(r, p->off_bias) + part * p->d.n_units + u;

    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < p->n_tiles; i++)
        for (int64_t j = 0; j < n; j++)
            to[j] += from[i * p->n_parts * p->d.n_units + j];
}

/* Task: some rows of dr or dw by one panel of columns; the first rows' task also sums the bias. */
static void weight_task(void *arg, int64_t task, int thread)
{
    const struct wf_rnn_run *r = arg;
    const struct wf_rnn *p = r->p;
    int64_t n = p->d.n_units, nr = p->gemm->nr, steps = n_steps(p), ld = p->n_gates * n;
    int64_t n_cuts = p->n_row_cuts_r + p->n_row_cuts_w, cut = task % n_cuts, panel = task / n_cuts;
    int64_t gate = panel / p->n_groups, group = panel % p->n_groups, u = group * nr;
    bool of_r = cut < p->n_row_cuts_r;
    int64_t first = (of_r ? cut : cut - p->n_row_cuts_r) * p->row_cut;
    int64_t n_rows = wf_min_i64(p->row_cut, (of_r ? n : p->d.n_in) - first);
    int64_t part = of_r ? part_of_r(p, gate) : part_of_w(p, gate), from = of_r ? 0 : n;
    struct wf_gemm_block b = {
        .m = n_rows, .n = wf_min_i64(nr, n - u), .a_rs = 1, .a_cs = p->a_ld, .ldc = ld};

    (void)thread;
    if (of_r && gate == 2 && p->d.cell == WF_CELL_GRU_BEFORE)
        from = n + p->d.n_in; /* q h */
    b.a = wf_rnn_floats(r, p->off_rows) + from + first;
    b.b = wf_rnn_floats(r, p->off_panels) + (part * p->n_groups + group) * steps * nr;
    b.c = (of_r ? r->t->dr : r->t->dw) + first * ld + gate * n + u;
    product(p, b, steps, WEIGHT_K, NULL);
    if (cut || !r->t->dbias)
        return;
    bias_sums(r, r->t->dbias + gate * n + u, part_of_w(p, gate), u, b.n);
    if (p->d.cell == WF_CELL_GRU_AFTER)
        bias_sums(r, r->t->dbias + ld + gate * n + u, part_of_r(p, gate), u, b.n);
}

void wf_rnn_backward(const struct wf_rnn *p, struct wf_pool *pool, const struct wf_rnn_data *t,
                     void *scratch)
{
    struct wf_rnn_run r = {p, t, scratch};
    int64_t n_panels = p->n_groups * p->n_gates;
    int64_t n_packs = p->n_groups;

    if (p->d.need_dx)
        n_packs += wf_round_up(p->d.n_in, p->gemm->nr) / p->gemm->nr;
    wf_rnn_for(p, pool, n_packs, pack_task, &r);
    wf_rnn_for(p, pool, p->n_tiles, backward_tile, &r);
    if (p->d.need_dw)
        wf_rnn_for(p, pool, n_panels * (p->n_row_cuts_r + p->n_row_cuts_w), weight_task, &r);
}
