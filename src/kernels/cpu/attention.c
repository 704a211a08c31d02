/* attention.c - how attention is divided into tasks, and the loops over blocks of keys and rows of
 * queries. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/levels.h"

enum {
    ALIGN = 64,
    MAX_ROWS = 28,           /* queries per block */
    MAX_ROWS_CAUSAL = 14,    /* half of them are computed in vain */
    MAX_KEYS = 256,          /* keys per block: packed, they stay in the L2 cache */
    CHUNK_ROWS = 224,        /* queries that share the packing of a block of keys */
    WHOLE_SCORES = 64 << 10, /* a head with up to this many scores is kept whole in the gradient */
    WANT_TASKS = 16,         /* so that several threads have work */
    SERIAL_WORK = 64 << 10   /* multiply-adds that one thread does before another has woken up */
};

WF_LEVELS(wf_attention_fns, wf_attention_fns_of);

/* ---- planning -------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Divides n into as few parts of at most `most` as possible, of nearly equal size; returns that
 * size. */
static int64_t even_part(int64_t n, int64_t most)
{
    return n ? ceil_div(n, ceil_div(n, most)) : 1;
}

/* Whether the product of a few sizes is at most `limit`. Never overflows. */
static bool at_most(int64_t limit, int n, const int64_t *sizes)
{
    int64_t product = 1;

    for (int i = 0; i < n; i++)
        if (!wf_mul_i64(product, sizes[i], &product))
            return false;
    return product <= limit;
}

void wf_attention_plan(struct wf_attention *a, const struct wf_attention_desc *d, weft_simd level,
                       bool backward, int n_threads, size_t *scratch_bytes)
{
    const int64_t n_heads = d->n_b * d->n_h;
    int64_t max_rows = d->causal ? MAX_ROWS_CAUSAL : MAX_ROWS;
    int64_t n_blocks, per_task, held, floats;

    *a = (struct wf_attention){
        .d = *d, .gemm = wf_gemm_fns_of(level), .fns = wf_attention_fns_of(level)};
    a->rows = even_part(d->n_q, max_rows / a->gemm->mr * a->gemm->mr);
    a->serial = at_most(SERIAL_WORK, 4, (int64_t[]){n_heads, d->n_q, d->n_k, d->d + d->dv});
    a->split = backward && n_heads < WANT_TASKS / 2 && !a->serial;
    a->keys = even_part(d->n_k, a->split ? MAX_KEYS / 2 : MAX_KEYS);
    n_blocks = ceil_div(d->n_q, a->rows);
    per_task = CHUNK_ROWS / a->rows;
    while (per_task > 1 && n_heads * ceil_div(n_blocks, per_task) < WANT_TASKS)
        per_task /= 2;
    a->chunk_q = a->rows * per_task;
    a->n_chunks_q = ceil_div(d->n_q, a->chunk_q);
    a->ld = wf_round_up(a->keys, 16) + 16; /* rows of scores should not map to the same cache
                                            * sets */

    a->n_pack = wf_round_up(wf_max_i64(wf_gemm_packed_b(a->gemm, wf_max_i64(d->d, d->dv), a->keys),
                                       wf_gemm_packed_b(a->gemm, a->keys, wf_max_i64(d->d, d->dv))),
                            16);
    a->whole =
        backward && !a->split && d->n_k && d->n_k <= a->keys && d->n_q <= WHOLE_SCORES / a->ld;
    held = a->whole ? d->n_q : a->rows;
    a->n_row_pack = wf_round_up(wf_gemm_packed_b(a->gemm, held, wf_max_i64(d->d, d->dv)), 16);
    a->n_score = held * a->ld;
    a->n_bias = d->mask == WF_MASK_NONE ? 0 : a->rows * a->ld;
    /* forward: K', V, scores, max and sum; backward: K', V', K, rows of dY and Q, two scores,
     * delta */
    floats = backward
                 ? 3 * a->n_pack + 2 * a->n_row_pack + 2 * a->n_score + wf_round_up(a->rows, 16)
                 : 2 * a->n_pack + a->n_score + 2 * wf_round_up(a->chunk_q, 16);
    a->thread_bytes = (size_t)wf_round_up((floats + a->n_bias) * (int64_t)sizeof(float), ALIGN);
    *scratch_bytes = a->thread_bytes * (size_t)n_threads;
}

/* ---- parts shared by both directions --------------------------------------------------------- */

static float *carve(float **at, int64_t n)
{
    float *p = *at;

    *at += n;
    return p;
}

/* The keys of a block starting at `key` that some query of rows [row, row + n_rows) sees. */
static int64_t seen_keys(const struct wf_attention *a, int64_t row, int64_t n_rows, int64_t key,
                         int64_t n_keys)
{
    return a->d.causal ? wf_max_i64(0, wf_min_i64(n_keys, row + n_rows - key)) : n_keys;
}

/* A block of the mask as numbers that are added: 0 or -inf for a bool. NULL without a mask. */
static const float *mask_block(const struct wf_attention *a, const void *mask, int64_t b, int64_t h,
                               int64_t row, int64_t n_rows, int64_t key, int64_t n_keys, float *buf)
{
    const int64_t *step = a->d.mask_step;

    if (a->d.mask == WF_MASK_NONE)
        return NULL;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t at = b * step[0] + h * step[1] + (row + i) * step[2] + key * step[3];
        float *to = buf + i * a->ld;

        if (a->d.mask == WF_MASK_BOOL)
            for (int64_t j = 0; j < n_keys; j++)
                to[j] = ((const uint8_t *)mask)[at + j * step[3]] ? 0.0f : -__builtin_inff();
        else
            for (int64_t j = 0; j < n_keys; j++)
                to[j] = ((const float *)mask)[at + j * step[3]];
    }
    return buf;
}

/* C[m x n] = A[m x k] B, A in place, B packed with b_k rows. */
static void multiply(const struct wf_attention *a, int64_t m, int64_t n, int64_t k, const float *x,
                     int64_t x_rs, int64_t x_cs, const float *b, int64_t b_k, float *c, int64_t ldc,
                     bool accumulate)
{
    struct wf_gemm_block blk = {.m = m,
                                .n = n,
                                .k = k,
                                .a = x,
                                .a_rs = x_rs,
                                .a_cs = x_cs,
                                .accumulate = accumulate,
                                .b = b,
                                .b_ps = b_k * a->gemm->nr,
                                .c = c,
                                .ldc = ldc};

    a->gemm->block(&blk);
}

static void pack(const struct wf_attention *a, float *dst, const float *src, int64_t ld, bool trans,
                 int64_t k, int64_t n)
{
    a->gemm->pack_b(dst, src, WF_GEMM_F32, ld, trans, k, n);
}

/* Rows that will be read soon; most come from the L3 cache. */
static void prefetch_rows(const float *p, int64_t n_rows, int64_t ld, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n; j += ALIGN / (int64_t)sizeof *p)
            __builtin_prefetch(p + i * ld + j, 0, 3);
}

static void zero_rows(float *p, int64_t n_rows, int64_t ld, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++)
        memset(p + i * ld, 0, sizeof *p * (size_t)n);
}

/* ---- forward --------------------------------------------------------------------------------- */

struct forward {
    const struct wf_attention *a;
    const float *q, *k, *v; /* a task: of its batch item and head */
    const void *mask;
    float *y, *lse;
    char *scratch;
};

struct forward_scratch {
    float *kt, *v, *s, *max, *sum, *bias;
};

/* Rows [row, row + n_rows) against the packed keys [key, key + n_keys). */
static void forward_block(const struct forward *f, const struct forward_scratch *t, int64_t b,
                          int64_t h, int64_t first_row, int64_t row, int64_t n_rows, int64_t key,
                          int64_t n_keys)
{
    const struct wf_attention *a = f->a;
    const struct wf_attention_desc *d = &a->d;
    int64_t n = seen_keys(a, row, n_rows, key, n_keys);
    struct wf_attention_rows r = {.n_rows = n_rows,
                                  .n = n,
                                  .n_valid = d->causal ? row + 1 - key : n,
                                  .valid_step = d->causal,
                                  .scale = d->scale,
                                  .s = t->s,
                                  .ld = a->ld,
                                  .bias_ld = a->ld,
                                  .max = t->max + row - first_row,
                                  .sum = t->sum + row - first_row,
                                  .first = key == 0,
                                  .y = f->y + row * d->y.st,
                                  .y_ld = d->y.st,
                                  .dv = d->dv};

    if (n == 0)
        return;
    prefetch_rows(f->q + (row + n_rows) * d->q.st, wf_min_i64(n_rows, d->n_q - row - n_rows),
                  d->q.st, d->d);
    multiply(a, n_rows, n, d->d, f->q + row * d->q.st, d->q.st, 1, t->kt, d->d, t->s, a->ld, false);
    r.bias = mask_block(a, f->mask, b, h, row, n_rows, key, n, t->bias);
    a->fns->softmax(&r);
    multiply(a, n_rows, d->dv, n, t->s, a->ld, 1, t->v, n_keys, r.y, d->y.st, key > 0);
}

static void forward_task(void *arg, int64_t task, int thread)
{
    struct forward f = *(const struct forward *)arg;
    const struct wf_attention *a = f.a;
    const struct wf_attention_desc *d = &a->d;
    float *at = (float *)(void *)(f.scratch + (size_t)thread * a->thread_bytes);
    struct forward_scratch t = {carve(&at, a->n_pack),
                                carve(&at, a->n_pack),
                                carve(&at, a->n_score),
                                carve(&at, wf_round_up(a->chunk_q, 16)),
                                carve(&at, wf_round_up(a->chunk_q, 16)),
                                at};
    int64_t first = task % a->n_chunks_q * a->chunk_q, end = wf_min_i64(d->n_q, first + a->chunk_q);
    int64_t head = task / a->n_chunks_q, b = head / d->n_h, h = head % d->n_h;

    f.q += b * d->q.sb + h * d->q.sh;
    f.k += b * d->k.sb + h * d->k.sh;
    f.v += b * d->v.sb + h * d->v.sh;
    f.y += b * d->y.sb + h * d->y.sh;
    f.lse += head * d->n_q;
    for (int64_t key = 0; key < d->n_k; key += a->keys) {
        int64_t n_keys = wf_min_i64(a->keys, d->n_k - key);

        if (seen_keys(a, first, end - first, key, n_keys) == 0)
            break;
        prefetch_rows(f.v + key * d->v.st, n_keys, d->v.st, d->dv);
        prefetch_rows(f.q + first * d->q.st, wf_min_i64(a->rows, end - first), d->q.st, d->d);
        pack(a, t.kt, f.k + key * d->k.st, d->k.st, true, d->d, n_keys);
        pack(a, t.v, f.v + key * d->v.st, d->v.st, false, n_keys, d->dv);
        for (int64_t row = first; row < end; row += a->rows)
            forward_block(&f, &t, b, h, first, row, wf_min_i64(a->rows, end - row), key, n_keys);
    }
    a->fns->finish(&(struct wf_attention_rows){.n_rows = end - first,
                                               .max = t.max,
                                               .sum = t.sum,
                                               .y = f.y + first * d->y.st,
                                               .y_ld = d->y.st,
                                               .dv = d->dv},
                   f.lse + first);
}

/* Without keys no query attends to anything. */
static void forward_empty(const struct wf_attention_desc *d, float *y, float *lse)
{
    for (int64_t head = 0; head < d->n_b * d->n_h; head++)
        zero_rows(y + head / d->n_h * d->y.sb + head % d->n_h * d->y.sh, d->n_q, d->y.st, d->dv);
    for (int64_t i = 0; i < d->n_b * d->n_h * d->n_q; i++)
        lse[i] = -__builtin_inff();
}

void wf_attention_run(const struct wf_attention *a, struct wf_pool *pool, const float *q,
                      const float *k, const float *v, const void *mask, float *y, float *lse,
                      void *scratch)
{
    struct forward f = {a, q, k, v, mask, y, lse, scratch};

    if (a->d.n_k == 0)
        forward_empty(&a->d, y, lse);
    else
        wf_pool_for(a->serial ? NULL : pool, a->d.n_b * a->d.n_h * a->n_chunks_q, forward_task, &f);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward {
    const struct wf_attention *a;
    struct wf_attention_grad t; /* a task: of its batch item and head */
    char *scratch;
    bool want_q, want_kv;
    int64_t n_parts; /* tasks per head */
    int64_t b, h;
};

struct backward_scratch {
    float *kt, *vt, *k, *rows_dy, *rows_q, *p, *ds, *delta, *bias;
};

static struct backward_scratch carve_backward(const struct wf_attention *a, float *at)
{
    struct backward_scratch s;

    s.kt = carve(&at, a->n_pack);
    s.vt = carve(&at, a->n_pack);
    s.k = carve(&at, a->n_pack);
    s.rows_dy = carve(&at, a->n_row_pack);
    s.rows_q = carve(&at, a->n_row_pack);
    s.p = carve(&at, a->n_score);
    s.ds = carve(&at, a->n_score);
    s.delta = carve(&at, wf_round_up(a->rows, 16));
    s.bias = at;
    return s;
}

static void pack_keys(const struct backward *w, const struct backward_scratch *s, int64_t key,
                      int64_t n_keys)
{
    const struct wf_attention_desc *d = &w->a->d;
    const float *k = w->t.k + key * d->k.st, *v = w->t.v + key * d->v.st;

    prefetch_rows(v, n_keys, d->v.st, d->dv);
    pack(w->a, s->kt, k, d->k.st, true, d->d, n_keys);
    pack(w->a, s->vt, v, d->v.st, true, d->dv, n_keys);
    if (w->want_q)
        pack(w->a, s->k, k, d->k.st, false, n_keys, d->d);
}

/* The weights p and gradients of scores ds of rows [row, row + n_rows) for the packed keys [key,
 * key + n_keys), and their part of dq. Returns the number of keys that count. */
static int64_t backward_rows(const struct backward *w, const struct backward_scratch *s,
                             int64_t row, int64_t n_rows, int64_t key, int64_t n_keys, float *p,
                             float *ds)
{
    const struct wf_attention *a = w->a;
    const struct wf_attention_desc *d = &a->d;
    const float *q = w->t.q + row * d->q.st, *dy = w->t.dy + row * d->y.st;
    int64_t n = seen_keys(a, row, a->whole ? a->rows : n_rows, key, n_keys);
    struct wf_attention_rows r = {.n_rows = n_rows,
                                  .n = n,
                                  .n_valid = d->causal ? row + 1 - key : n,
                                  .valid_step = d->causal,
                                  .scale = d->scale,
                                  .s = p,
                                  .ld = a->ld,
                                  .bias_ld = a->ld,
                                  .lse = w->t.lse + row,
                                  .delta = s->delta,
                                  .ds = ds};

    if (n == 0)
        return 0;
    a->fns->dots(s->delta, n_rows, d->dv, dy, d->y.st, w->t.y + row * d->y.st, d->y.st);
    multiply(a, n_rows, n, d->d, q, d->q.st, 1, s->kt, d->d, p, a->ld, false);
    multiply(a, n_rows, n, d->dv, dy, d->y.st, 1, s->vt, d->dv, ds, a->ld, false);
    r.bias = mask_block(a, w->t.mask, w->b, w->h, row, n_rows, key, n, s->bias);
    a->fns->grad(&r);
    if (w->want_q)
        multiply(a, n_rows, d->d, n, ds, a->ld, 1, s->k, n_keys, w->t.dq + row * d->q.st, d->q.st,
                 !a->whole);
    return n;
}

/* A head whose weights fit in the cache: dk and dv are one product each for every part of keys,
 * over all the queries that see them. Keys are divided like rows, so that if a query of a part
 * counts, its block of rows has weights for the whole part. */
static void backward_whole(const struct backward *w, const struct backward_scratch *s)
{
    const struct wf_attention *a = w->a;
    const struct wf_attention_desc *d = &a->d;
    int64_t n_q = d->n_q, nr = a->gemm->nr;

    pack_keys(w, s, 0, d->n_k);
    for (int64_t row = 0; row < n_q; row += a->rows)
        backward_rows(w, s, row, wf_min_i64(a->rows, n_q - row), 0, d->n_k, s->p + row * a->ld,
                      s->ds + row * a->ld);
    pack(a, s->rows_dy, w->t.dy, d->y.st, false, n_q, d->dv);
    pack(a, s->rows_q, w->t.q, d->q.st, false, n_q, d->d);
    for (int64_t key = 0; key < d->n_k; key += a->rows) {
        int64_t n = wf_min_i64(a->rows, d->n_k - key), from = d->causal ? key : 0;

        from = wf_min_i64(from, n_q); /* keys that no query sees get 0 */
        multiply(a, n, d->dv, n_q - from, s->p + from * a->ld + key, 1, a->ld,
                 s->rows_dy + from * nr, n_q, w->t.dv + key * d->v.st, d->v.st, false);
        multiply(a, n, d->d, n_q - from, s->ds + from * a->ld + key, 1, a->ld,
                 s->rows_q + from * nr, n_q, w->t.dk + key * d->k.st, d->k.st, false);
    }
}

/* Queries [q0, q1) and keys [k0, k1) of the task's head, a block at a time; dq, dk and dv are
 * summed over the blocks. */
static void backward_blocks(const struct backward *w, const struct backward_scratch *s, int64_t q0,
                            int64_t q1, int64_t k0, int64_t k1)
{
    const struct wf_attention *a = w->a;
    const struct wf_attention_desc *d = &a->d;

    if (w->want_q)
        zero_rows(w->t.dq + q0 * d->q.st, q1 - q0, d->q.st, d->d);
    if (w->want_kv) {
        zero_rows(w->t.dk + k0 * d->k.st, k1 - k0, d->k.st, d->d);
        zero_rows(w->t.dv + k0 * d->v.st, k1 - k0, d->v.st, d->dv);
    }
    for (int64_t key = k0; key < k1; key += a->keys) {
        int64_t n_keys = wf_min_i64(a->keys, k1 - key);

        if (seen_keys(a, q0, q1 - q0, key, n_keys) == 0)
            break;
        pack_keys(w, s, key, n_keys);
        for (int64_t row = q0; row < q1; row += a->rows) {
            int64_t n_rows = wf_min_i64(a->rows, q1 - row);
            int64_t n = backward_rows(w, s, row, n_rows, key, n_keys, s->p, s->ds);

            if (!w->want_kv || n == 0)
                continue;
            pack(a, s->rows_dy, w->t.dy + row * d->y.st, d->y.st, false, n_rows, d->dv);
            pack(a, s->rows_q, w->t.q + row * d->q.st, d->q.st, false, n_rows, d->d);
            multiply(a, n, d->dv, n_rows, s->p, 1, a->ld, s->rows_dy, n_rows,
                     w->t.dv + key * d->v.st, d->v.st, true);
            multiply(a, n, d->d, n_rows, s->ds, 1, a->ld, s->rows_q, n_rows,
                     w->t.dk + key * d->k.st, d->k.st, true);
        }
    }
}

static void backward_task(void *arg, int64_t task, int thread)
{
    struct backward w = *(const struct backward *)arg;
    const struct wf_attention_desc *d = &w.a->d;
    struct backward_scratch s;
    int64_t part = task % w.n_parts, head = task / w.n_parts;
    int64_t q0 = 0, q1 = d->n_q, k0 = 0, k1 = d->n_k;

    w.b = head / d->n_h;
    w.h = head % d->n_h;
    w.t.q += w.b * d->q.sb + w.h * d->q.sh;
    w.t.dq += w.b * d->q.sb + w.h * d->q.sh;
    w.t.k += w.b * d->k.sb + w.h * d->k.sh;
    w.t.dk += w.b * d->k.sb + w.h * d->k.sh;
    w.t.v += w.b * d->v.sb + w.h * d->v.sh;
    w.t.dv += w.b * d->v.sb + w.h * d->v.sh;
    w.t.y += w.b * d->y.sb + w.h * d->y.sh;
    w.t.dy += w.b * d->y.sb + w.h * d->y.sh;
    w.t.lse += head * d->n_q;
    if (!w.want_kv) {
        q0 = part * w.a->chunk_q;
        q1 = wf_min_i64(q1, q0 + w.a->chunk_q);
    } else if (!w.want_q) {
        k0 = part * w.a->keys;
        k1 = wf_min_i64(k1, k0 + w.a->keys);
    }
    s = carve_backward(w.a, (float *)(void *)(w.scratch + (size_t)thread * w.a->thread_bytes));
    if (w.a->whole)
        backward_whole(&w, &s);
    else
        backward_blocks(&w, &s, q0, q1, k0, k1);
}

void wf_attention_grad_run(const struct wf_attention *a, struct wf_pool *pool,
                           const struct wf_attention_grad *t, void *scratch)
{
    struct backward w = {
        .a = a, .t = *t, .scratch = scratch, .want_q = true, .want_kv = true, .n_parts = 1};
    int64_t n_heads = a->d.n_b * a->d.n_h;

    if (!a->split) {
        wf_pool_for(a->serial ? NULL : pool, n_heads, backward_task, &w);
        return;
    }
    w.want_kv = false;
    w.n_parts = a->n_chunks_q;
    wf_pool_for(pool, n_heads * w.n_parts, backward_task, &w);
    w.want_kv = true;
    w.want_q = false;
    w.n_parts = ceil_div(a->d.n_k, a->keys);
    wf_pool_for(pool, n_heads * w.n_parts, backward_task, &w);
}
