/* conv.c - convolution: the choice of the algorithm, and shared parts. */
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/levels.h"

enum { MIN_WINOGRAD_CHANNELS = 8, ADD_PIECE = 4096 };

WF_LEVELS(wf_conv_fns, wf_conv_fns_of);

/* ---- the choice ------------------------------------------------------------------------------ */

static bool is_product(const struct wf_conv_geom *g)
{
    bool yes = g->groups == 1;

    for (int a = 0; a < 3; a++)
        yes = yes && g->w.k[a] == 1 && g->w.stride[a] == 1 && g->w.lo[a] == 0 &&
              g->w.in[a] == g->w.out[a];
    return yes;
}

static bool is_empty(const struct wf_conv_geom *g)
{
    return !g->batch || !g->c_in || !g->c_out || !wf_volume(g->w.in) || !wf_volume(g->w.out);
}

/* Winograd's 36 products replace the 144 of a tile; for tiles that extend over the edge, part of
 * the work is wasted. */
static bool winograd_pays(const struct wf_conv_geom *g)
{
    int64_t tiles = wf_ceil_div(g->w.out[1], 4) * wf_ceil_div(g->w.out[2], 4);

    return g->c_in >= MIN_WINOGRAD_CHANNELS && g->c_out >= MIN_WINOGRAD_CHANNELS &&
           tiles * 16 * 2 < g->w.out[1] * g->w.out[2] * 3;
}

/* Other algorithms are for f32 only. */
static bool types_fit(const struct wf_conv_desc *d)
{
    return (d->type_a == WF_GEMM_F32 && d->type_b == WF_GEMM_F32 && d->type_out == WF_GEMM_F32) ||
           (is_product(&d->geom) && !is_empty(&d->geom) &&
            (d->algo == WF_CONV_AUTO || d->algo == WF_CONV_PRODUCT));
}

static bool applies(const struct wf_conv_desc *d, enum wf_conv_algo algo)
{
    const struct wf_conv_geom *g = &d->geom;

    switch (algo) {
    case WF_CONV_PRODUCT: return is_product(g);
    case WF_CONV_WINOGRAD: return wf_winograd_fits(g);
    case WF_CONV_DEPTHWISE: return wf_depthwise_fits(g);
    case WF_CONV_FEW: return d->dir != WF_CONV_GRAD_INPUT && wf_few_fits(g);
    case WF_CONV_GENERAL: return true;
    default: return false;
    }
}

static enum wf_conv_algo choose(const struct wf_conv_desc *d)
{
    if (d->algo != WF_CONV_AUTO)
        return d->algo;
    if (applies(d, WF_CONV_PRODUCT))
        return WF_CONV_PRODUCT;
    if (applies(d, WF_CONV_WINOGRAD) && winograd_pays(&d->geom))
        return WF_CONV_WINOGRAD;
    if (applies(d, WF_CONV_DEPTHWISE) && d->geom.groups > 1)
        return WF_CONV_DEPTHWISE;
    if (applies(d, WF_CONV_FEW))
        return WF_CONV_FEW;
    return WF_CONV_GENERAL;
}

/* ---- products -------------------------------------------------------------------------------- */

static void plan_product(struct wf_conv *c, int n_threads, size_t *scratch)
{
    const struct wf_conv_geom *g = &c->d.geom;
    int64_t n_pixels = g->batch * wf_volume(g->w.out);
    struct wf_gemm_desc d = {.batch = 1,
                             .type_a = c->d.type_a,
                             .type_b = c->d.type_b,
                             .type_c = c->d.type_out,
                             .epilogue = c->d.epilogue,
                             .epilogue_arg = c->d.epilogue_arg};

    switch (c->d.dir) {
    case WF_CONV_FORWARD:
        d.m = n_pixels;
        d.k = d.lda = g->c_in;
        d.n = d.ldb = d.ldc = g->c_out;
        break;
    case WF_CONV_GRAD_INPUT:
        d.m = n_pixels;
        d.k = d.lda = d.ldb = g->c_out;
        d.n = d.ldc = g->c_in;
        d.trans_b = true;
        break;
    case WF_CONV_GRAD_FILTER:
        d.m = d.lda = g->c_in;
        d.k = n_pixels;
        d.n = d.ldb = d.ldc = g->c_out;
        d.trans_a = true;
        break;
    }
    wf_gemm_plan(&c->product, &d, c->gemm, n_threads, scratch);
}

/* ---- plan and run ---------------------------------------------------------------------------- */

weft_status wf_conv_plan(const struct wf_conv_desc *d, weft_simd level, int n_threads,
                         struct wf_arena *arena, struct wf_conv **out, size_t *scratch_bytes)
{
    struct wf_conv *c = types_fit(d) ? wf_arena_alloc(arena, sizeof *c) : NULL;
    weft_status st = WEFT_OK;

    if (!types_fit(d))
        return WEFT_ENOSUP;
    if (!c)
        return wf_err_nomem(arena->ctx, sizeof *c, "convolution");
    c->d = *d;
    if (d->dir != WF_CONV_FORWARD)
        c->d.epilogue = NULL;
    c->level = level;
    c->gemm = wf_gemm_fns_of(level);
    c->fns = wf_conv_fns_of(level);
    if (c->fns->nr != c->gemm->nr)
        return wf_err(WEFT_EBUG, "convolution: panels of %d and of %d columns", c->fns->nr,
                      c->gemm->nr);
    c->empty = is_empty(&d->geom);
    c->algo = choose(d);
    if (!applies(d, c->algo))
        return wf_err(WEFT_ENOSUP, "convolution: the algorithm does not apply to this shape");
    *scratch_bytes = 0;
    if (c->empty) {
        *out = c;
        return WEFT_OK;
    }
    if (c->algo == WF_CONV_PRODUCT)
        plan_product(c, n_threads, scratch_bytes);
    else if (c->algo == WF_CONV_WINOGRAD)
        wf_winograd_plan(c);
    else if (c->algo == WF_CONV_DEPTHWISE)
        st = wf_depthwise_plan(c, arena);
    else if (c->algo == WF_CONV_FEW)
        st = wf_few_plan(c, arena);
    else
        st = wf_general_plan(c, arena);
    if (st)
        return st;
    if (c->algo != WF_CONV_PRODUCT) {
        c->shared_floats = wf_round_up(c->shared_floats, 16);
        c->thread_floats = wf_round_up(c->thread_floats, 16);
        *scratch_bytes = (size_t)(c->shared_floats + n_threads * c->thread_floats) * sizeof(float);
    }
    *out = c;
    return WEFT_OK;
}

const char *wf_conv_algo_name(const struct wf_conv *c)
{
    static const char *const names[] = {"auto",           "conv-product", "conv-winograd",
                                        "conv-depthwise", "conv-few",     "conv-general"};

    return names[c->algo];
}

/* Task: a piece of the filter's floats. */
static void add_chunks_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    int64_t n = wf_conv_filter_floats(&r->c->d.geom), from = task * ADD_PIECE;
    int64_t count = wf_min_i64(ADD_PIECE, n - from);
    float *dst = r->w_out + from;

    (void)thread;
    memcpy(dst, r->shared + from, (size_t)count * sizeof *dst);
    for (int64_t i = 1; i < r->n_chunks; i++)
        r->c->fns->add(dst, r->shared + i * n + from, count);
}

void wf_conv_add_chunks(struct wf_conv_run *r, int64_t n_chunks)
{
    r->n_chunks = n_chunks;
    if (n_chunks > 1)
        wf_pool_for(r->pool, wf_ceil_div(wf_conv_filter_floats(&r->c->d.geom), ADD_PIECE),
                    add_chunks_task, r);
}

/* Sizes may be anything if one of them is 0. */
static int64_t product(int64_t a, const int64_t n[3], int64_t b)
{
    return a && n[0] && n[1] && n[2] && b ? a * wf_volume(n) * b : 0;
}

/* An empty sum is zero. */
static void run_empty(struct wf_conv_run *r, float *out)
{
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t n_pixels = product(g->batch, g->w.out, 1), n;

    switch (r->c->d.dir) {
    case WF_CONV_FORWARD: n = n_pixels * g->c_out; break;
    case WF_CONV_GRAD_INPUT: n = product(g->batch, g->w.in, g->c_in); break;
    default: n = product(g->c_in / g->groups, g->w.k, g->c_out); break;
    }
    if (n)
        memset(out, 0, (size_t)n * sizeof *out);
    if (n && r->c->d.dir == WF_CONV_FORWARD)
        wf_conv_finish(r, 0, 0, n_pixels, 0, g->c_out);
}

void wf_conv_run(const struct wf_conv *c, struct wf_pool *pool, const void *a, const void *b,
                 void *out, void *scratch)
{
    struct wf_conv_run r = {.c = c, .pool = pool, .shared = scratch};

    r.threads = r.shared + c->shared_floats;
    switch (c->d.dir) {
    case WF_CONV_FORWARD:
        r.x = a;
        r.w = b;
        r.y_out = out;
        break;
    case WF_CONV_GRAD_INPUT:
        r.y = a;
        r.w = b;
        r.x_out = out;
        break;
    case WF_CONV_GRAD_FILTER:
        r.x = a;
        r.y = b;
        r.w_out = out;
        break;
    }
    if (c->empty)
        run_empty(&r, out);
    else if (c->algo == WF_CONV_PRODUCT)
        wf_gemm_run(&c->product, pool, a, b, out, NULL, scratch);
    else if (c->algo == WF_CONV_WINOGRAD)
        wf_winograd_run(&r);
    else if (c->algo == WF_CONV_DEPTHWISE)
        wf_depthwise_run(&r);
    else if (c->algo == WF_CONV_FEW)
        wf_few_run(&r);
    else
        wf_general_run(&r);
}
