/* onednn.c - matrix products by oneDNN 2.x or 3.x: the only file that knows the library.
 *
 * The headers decide which of the two C interfaces is compiled and so which library is asked for.
 * A context has one struct library: the functions, an engine, and a list of the primitives that
 * its plans use. The list only grows, by lock-free pushes, and holds each problem once (twice when
 * two threads plan it at the same moment); what runs is read-only but for the memory objects,
 * which each thread makes in the scratch memory of the call. */
#define _GNU_SOURCE
#include "kernels/cpu/onednn.h"

#include "kernels/cpu/matmul.h"

weft_status wf_plan_matmul_onednn(struct wf_kplan *p);
wf_kernel_fn wf_run_matmul_onednn;

#ifdef WF_HAVE_ONEDNN

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <stdio.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define BUILT_VERSION \
    TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH)
#define LIBRARY_FILE "libdnnl.so." TEXT(DNNL_VERSION_MAJOR)

/* ---- the functions ---------------------------------------------------------------------------- */

#define CALLS_OF_ALL(X)                        \
    X(dnnl_version)                            \
    X(dnnl_get_effective_cpu_isa)              \
    X(dnnl_engine_create)                      \
    X(dnnl_engine_destroy)                     \
    X(dnnl_stream_create)                      \
    X(dnnl_stream_wait)                        \
    X(dnnl_stream_destroy)                     \
    X(dnnl_primitive_attr_create)              \
    X(dnnl_primitive_attr_set_scratchpad_mode) \
    X(dnnl_primitive_attr_destroy)             \
    X(dnnl_primitive_desc_query)               \
    X(dnnl_primitive_desc_query_md)            \
    X(dnnl_primitive_desc_destroy)             \
    X(dnnl_primitive_create)                   \
    X(dnnl_primitive_execute)                  \
    X(dnnl_primitive_destroy)                  \
    X(dnnl_memory_desc_get_size)               \
    X(dnnl_memory_create)                      \
    X(dnnl_memory_set_data_handle)             \
    X(dnnl_memory_destroy)
#if DNNL_VERSION_MAJOR < 3
#define CALLS(X)                        \
    CALLS_OF_ALL(X)                     \
    X(dnnl_memory_desc_init_by_strides) \
    X(dnnl_matmul_desc_init)            \
    X(dnnl_primitive_desc_create)
typedef const dnnl_memory_desc_t *md_ref;
#else
#define CALLS(X)                            \
    CALLS_OF_ALL(X)                         \
    X(dnnl_memory_desc_create_with_strides) \
    X(dnnl_memory_desc_destroy)             \
    X(dnnl_matmul_primitive_desc_create)
typedef const_dnnl_memory_desc_t md_ref;
#endif

struct calls {
#define X(f) __typeof__(f) *f;
    CALLS(X)
#undef X
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define X(f) {#f, offsetof(struct calls, f)},
    CALLS(X)
#undef X
};

/* One tile's product: its shape, and the primitive that computes it. */
struct problem {
    int64_t m, n, k;
    int64_t a_rs, a_cs, b_rs, b_cs, ldc; /* elements */
};

enum { SRC, WEIGHTS, DST, PAD, N_ARGS };

struct product {
    struct product *next;
    struct problem problem;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    md_ref md[N_ARGS]; /* belong to desc */
    size_t pad_bytes;
};

struct library {
    void *handle; /* NULL: not usable, and `why` */
    struct calls f;
    int (*omp_get_max_threads)(void);
    void (*omp_set_num_threads)(int n); /* both NULL when the library has no threads */
    dnnl_engine_t engine;
    weft_simd level;
    char version[32];
    char why[200];
    struct product *_Atomic products;
};

/* ---- loading ---------------------------------------------------------------------------------- */

static void *symbol(void *handle, const char *name, size_t bytes, void *out)
{
    void *p = dlsym(handle, name);

    memcpy(out, &p, bytes);
    return p;
}

/* Fill in the functions; false with a reason when the library is not as we need it. */
static bool find_calls(struct library *lib)
{
    const dnnl_version_t *v;
    const char *missing = NULL;

    for (int i = 0; i < WF_COUNT(symbols) && !missing; i++)
        if (!symbol(lib->handle, symbols[i].name, sizeof(void *),
                    (char *)&lib->f + symbols[i].offset))
            missing = symbols[i].name;
    if (missing) {
        snprintf(lib->why, sizeof lib->why, "%s has no %s", LIBRARY_FILE, missing);
        return false;
    }
    v = lib->f.dnnl_version();
    snprintf(lib->version, sizeof lib->version, "%d.%d.%d", v->major, v->minor, v->patch);
    if (v->cpu_runtime == DNNL_RUNTIME_SEQ)
        return true;
    symbol(lib->handle, "omp_get_max_threads", sizeof(void *), &lib->omp_get_max_threads);
    symbol(lib->handle, "omp_set_num_threads", sizeof(void *), &lib->omp_set_num_threads);
    if (v->cpu_runtime == DNNL_RUNTIME_OMP && lib->omp_get_max_threads && lib->omp_set_num_threads)
        return true;
    snprintf(lib->why, sizeof lib->why, "%s %s runs on threads that cannot be held to one",
             LIBRARY_FILE, lib->version);
    return false;
}

static weft_simd level_of(dnnl_cpu_isa_t isa)
{
    unsigned bits = (unsigned)isa, avx2 = dnnl_cpu_isa_avx2, avx512 = dnnl_cpu_isa_avx512_core;

    return (bits & avx512) == avx512 ? WEFT_SIMD_AVX512
           : (bits & avx2) == avx2   ? WEFT_SIMD_AVX2
                                     : WEFT_SIMD_PORTABLE;
}

/* The library stays in the process once it is loaded: it and its OpenMP keep things per thread
 * that are taken down when the threads end. */
static void load(struct library *lib)
{
    bool ok;

    lib->handle = dlopen(LIBRARY_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib->handle) {
        const char *text = dlerror();

        snprintf(lib->why, sizeof lib->why, "%s", text ? text : LIBRARY_FILE " does not load");
        return;
    }
    ok = find_calls(lib);
    if (ok) {
        lib->level = level_of(lib->f.dnnl_get_effective_cpu_isa());
        ok = lib->f.dnnl_engine_create(&lib->engine, dnnl_cpu, 0) == dnnl_success;
        if (!ok)
            snprintf(lib->why, sizeof lib->why, "%s makes no CPU engine", LIBRARY_FILE);
    }
    if (!ok) {
        dlclose(lib->handle);
        lib->handle = NULL;
    }
}

static void unload(weft_ctx *ctx, struct library *lib)
{
    struct product *next;

    if (!lib)
        return;
    for (struct product *q = atomic_load(&lib->products); q; q = next) {
        next = q->next;
        lib->f.dnnl_primitive_destroy(q->primitive);
        lib->f.dnnl_primitive_desc_destroy(q->desc);
        wf_free(ctx, q);
    }
    if (lib->handle) {
        lib->f.dnnl_engine_destroy(lib->engine);
        dlclose(lib->handle);
    }
    wf_free(ctx, lib);
}

static void unload_from(weft_ctx *ctx)
{
    unload(ctx, atomic_load(&ctx->library));
}

/* The context's library, usable or not; NULL when out of memory. */
static struct library *library_of(weft_ctx *ctx)
{
    struct library *lib = atomic_load(&ctx->library);
    void *none = NULL;

    if (lib)
        return lib;
    lib = wf_alloc(ctx, sizeof *lib);
    if (!lib)
        return NULL;
    load(lib);
    if (atomic_compare_exchange_strong(&ctx->library, &none, lib)) {
        atomic_store(&ctx->library_free, unload_from);
        return lib;
    }
    unload(ctx, lib); /* another thread was first */
    return none;
}

const char *wf_onednn_built(void)
{
    return "oneDNN " BUILT_VERSION " (loaded on demand)";
}

const char *wf_onednn_file(void)
{
    return LIBRARY_FILE;
}

const char *wf_onednn_package(void)
{
    return "libdnnl" TEXT(DNNL_VERSION_MAJOR);
}

const char *wf_onednn_version(weft_ctx *ctx, const char **why)
{
    struct library *lib = library_of(ctx);

    *why = !lib ? "out of memory" : lib->handle ? NULL : lib->why;
    return lib && lib->handle ? lib->version : NULL;
}

/* OpenMP's number of threads belongs to the calling thread. */
static int hold_threads(const struct library *lib)
{
    int n = lib->omp_get_max_threads ? lib->omp_get_max_threads() : 0;

    if (n > 1)
        lib->omp_set_num_threads(1);
    return n;
}

static void release_threads(const struct library *lib, int n)
{
    if (n > 1)
        lib->omp_set_num_threads(n);
}

/* ---- primitives ------------------------------------------------------------------------------- */

/* The one place where the two interfaces differ: a description of the product. */
#if DNNL_VERSION_MAJOR < 3
static dnnl_status_t describe(const struct library *lib, const struct problem *q,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    const dnnl_dims_t dims[] = {{q->m, q->k}, {q->k, q->n}, {q->m, q->n}};
    const dnnl_dims_t strides[] = {{q->a_rs, q->a_cs}, {q->b_rs, q->b_cs}, {q->ldc, 1}};
    dnnl_memory_desc_t md[3];
    dnnl_matmul_desc_t op;
    dnnl_status_t st = dnnl_success;

    for (int i = 0; i < 3 && !st; i++)
        st = lib->f.dnnl_memory_desc_init_by_strides(&md[i], 2, dims[i], dnnl_f32, strides[i]);
    if (!st)
        st = lib->f.dnnl_matmul_desc_init(&op, &md[SRC], &md[WEIGHTS], NULL, &md[DST]);
    if (!st)
        st = lib->f.dnnl_primitive_desc_create(out, &op, attr, lib->engine, NULL);
    return st;
}
#else
static dnnl_status_t describe(const struct library *lib, const struct problem *q,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    const dnnl_dims_t dims[] = {{q->m, q->k}, {q->k, q->n}, {q->m, q->n}};
    const dnnl_dims_t strides[] = {{q->a_rs, q->a_cs}, {q->b_rs, q->b_cs}, {q->ldc, 1}};
    dnnl_memory_desc_t md[3] = {NULL};
    dnnl_status_t st = dnnl_success;

    for (int i = 0; i < 3 && !st; i++)
        st = lib->f.dnnl_memory_desc_create_with_strides(&md[i], 2, dims[i], dnnl_f32, strides[i]);
    if (!st)
        st = lib->f.dnnl_matmul_primitive_desc_create(out, lib->engine, md[SRC], md[WEIGHTS], NULL,
                                                      md[DST], attr);
    for (int i = 0; i < 3; i++)
        if (md[i])
            lib->f.dnnl_memory_desc_destroy(md[i]);
    return st;
}
#endif

/* Make the primitive of q->problem. */
static dnnl_status_t make_primitive(const struct library *lib, struct product *q)
{
    static const dnnl_query_t md_queries[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                              dnnl_query_dst_md, dnnl_query_scratchpad_md};
    dnnl_primitive_attr_t attr = NULL;
    int n_held = hold_threads(lib); /* what is chosen depends on their number */
    dnnl_status_t st = lib->f.dnnl_primitive_attr_create(&attr);

    if (!st)
        st = lib->f.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!st)
        st = describe(lib, &q->problem, attr, &q->desc);
    if (!st)
        st = lib->f.dnnl_primitive_create(&q->primitive, q->desc);
    if (st && q->desc)
        lib->f.dnnl_primitive_desc_destroy(q->desc);
    if (attr)
        lib->f.dnnl_primitive_attr_destroy(attr);
    release_threads(lib, n_held);
    if (st)
        return st;
    for (int i = 0; i < N_ARGS; i++)
        q->md[i] = lib->f.dnnl_primitive_desc_query_md(q->desc, md_queries[i], 0);
    q->pad_bytes = q->md[PAD] ? lib->f.dnnl_memory_desc_get_size(q->md[PAD]) : 0;
    return dnnl_success;
}

static struct product *find_product(const struct library *lib, const struct problem *want)
{
    struct product *q = atomic_load(&((struct library *)(uintptr_t)lib)->products);

    while (q && memcmp(&q->problem, want, sizeof *want) != 0)
        q = q->next;
    return q;
}

static weft_status get_product(weft_ctx *ctx, struct library *lib, const struct problem *want,
                               const struct product **out)
{
    struct product *q = find_product(lib, want);
    dnnl_status_t made;

    if (!q) {
        q = wf_alloc(ctx, sizeof *q);
        if (!q)
            return wf_err_nomem(ctx, sizeof *q, "matmul");
        q->problem = *want;
        made = make_primitive(lib, q);
        if (made) {
            wf_free(ctx, q);
            return made == dnnl_out_of_memory
                       ? wf_err(WEFT_ENOMEM, "matmul: oneDNN is out of memory")
                       : WEFT_ENOSUP;
        }
        q->next = atomic_load(&lib->products);
        while (!atomic_compare_exchange_weak(&lib->products, &q->next, q))
            ;
    }
    *out = q;
    return WEFT_OK;
}

/* ---- plans ------------------------------------------------------------------------------------ */

struct wf_onednn_matmul {
    const struct library *lib;
    struct wf_gemm_desc d;
    const struct product *tile, *last; /* of tile_m rows, and of the rest; the same when all fit */
    int64_t tile_m, n_tiles_m;
    int n_threads;
    size_t pad_bytes; /* of one thread */
};

/* What one thread needs during a call. */
struct lane {
    dnnl_stream_t stream;
    dnnl_memory_t mem[2][N_ARGS]; /* for tiles, for last tiles */
    char *pad;
    char fill[128 - sizeof(dnnl_stream_t) - 2 * N_ARGS * sizeof(dnnl_memory_t) - sizeof(char *)];
};

enum { TILE_M = 32, MAX_TILES = 8, SERIAL_FLOP = 1 << 19 };

/* Rows of a tile. B is read anew by every tile, so there are no more than are needed to share the
 * work: about 8 in all, of at least 32 rows. */
static int64_t choose_tile_m(const struct wf_gemm_desc *d)
{
    int64_t n = (MAX_TILES + d->batch - 1) / d->batch;

    if (2.0 * (double)d->m * (double)d->n * (double)d->k < SERIAL_FLOP)
        return d->m;
    n = wf_max_i64(1, wf_min_i64(n, d->m / TILE_M));
    return wf_min_i64(d->m, wf_round_up((d->m + n - 1) / n, TILE_M / 4));
}

static bool can_do(const weft_ctx *ctx, const struct wf_gemm_desc *d)
{
    return ctx->simd > WEFT_SIMD_PORTABLE && ctx->simd == weft_simd_best() && d->m > 0 &&
           d->n > 0 && d->k > 0 && d->batch > 0 && !d->accumulate && !d->col_sums && !d->epilogue &&
           d->type_a == WF_GEMM_F32 && d->type_b == WF_GEMM_F32 && d->type_c == WF_GEMM_F32;
}

static weft_status choose_products(weft_ctx *ctx, struct library *lib, struct wf_onednn_matmul *p)
{
    const struct wf_gemm_desc *d = &p->d;
    struct problem q;
    weft_status st;

    memset(&q, 0, sizeof q);
    q.m = p->tile_m;
    q.n = d->n;
    q.k = d->k;
    q.a_rs = d->trans_a ? 1 : d->lda;
    q.a_cs = d->trans_a ? d->lda : 1;
    q.b_rs = d->trans_b ? 1 : d->ldb;
    q.b_cs = d->trans_b ? d->ldb : 1;
    q.ldc = d->ldc;
    st = get_product(ctx, lib, &q, &p->tile);
    if (st)
        return st;
    q.m = d->m - (p->n_tiles_m - 1) * p->tile_m;
    return get_product(ctx, lib, &q, &p->last);
}

/* The library's name for what it does; NULL for its reference code, which is slow. */
static const char *implementation(const struct library *lib, const struct product *q)
{
    const char *name = NULL;

    if (lib->f.dnnl_primitive_desc_query(q->desc, dnnl_query_impl_info_str, 0, &name) || !name)
        return NULL;
    return strncmp(name, "ref", 3) ? name : NULL;
}

weft_status wf_onednn_matmul_plan(weft_ctx *ctx, struct wf_arena *arena,
                                  const struct wf_gemm_desc *d, int n_threads,
                                  const struct wf_onednn_matmul **out, size_t *scratch_bytes,
                                  const char **impl)
{
    struct library *lib;
    struct wf_onednn_matmul *p;
    const char *name, *last_name;
    char text[96];
    weft_status st;

    if (!can_do(ctx, d))
        return WEFT_ENOSUP;
    lib = library_of(ctx);
    if (!lib)
        return wf_err_nomem(ctx, sizeof *lib, "matmul");
    if (!lib->handle || lib->level != ctx->simd)
        return WEFT_ENOSUP;
    p = wf_arena_alloc(arena, sizeof *p);
    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "matmul");
    p->lib = lib;
    p->d = *d;
    p->n_threads = n_threads;
    p->tile_m = choose_tile_m(d);
    p->n_tiles_m = (d->m + p->tile_m - 1) / p->tile_m;
    st = choose_products(ctx, lib, p);
    if (st)
        return st;
    name = implementation(lib, p->tile);
    last_name = implementation(lib, p->last);
    if (!name || !last_name)
        return WEFT_ENOSUP;
    snprintf(text, sizeof text, "onednn-%s/%s%s%s", lib->version, name,
             strcmp(name, last_name) ? "+" : "", strcmp(name, last_name) ? last_name : "");
    *impl = wf_arena_strdup(arena, text);
    if (!*impl)
        return wf_err_nomem(ctx, sizeof text, "matmul");
    p->pad_bytes =
        p->tile->pad_bytes > p->last->pad_bytes ? p->tile->pad_bytes : p->last->pad_bytes;
    p->pad_bytes = (size_t)wf_round_up((int64_t)p->pad_bytes, 4096) + 64; /* not all on one set */
    *scratch_bytes = (size_t)n_threads * (sizeof(struct lane) + p->pad_bytes);
    *out = p;
    return WEFT_OK;
}

/* ---- running ---------------------------------------------------------------------------------- */

struct job {
    const struct wf_onednn_matmul *p;
    const float *a, *b;
    float *c;
    struct lane *lanes;
    _Atomic int failed; /* a dnnl_status_t */
};

static dnnl_status_t open_lane(const struct wf_onednn_matmul *p, struct lane *l, bool last)
{
    const struct library *lib = p->lib;
    const struct product *q = last ? p->last : p->tile;
    dnnl_status_t st = dnnl_success;

    if (!l->stream)
        st = lib->f.dnnl_stream_create(&l->stream, lib->engine, dnnl_stream_default_flags);
    for (int i = 0; i < N_ARGS && !st; i++)
        if (!l->mem[last][i] && (i != PAD || q->pad_bytes))
            st = lib->f.dnnl_memory_create(&l->mem[last][i], q->md[i], lib->engine,
                                           i == PAD ? l->pad : DNNL_MEMORY_NONE);
    return st;
}

static void close_lane(const struct library *lib, struct lane *l)
{
    for (int i = 0; i < 2 * N_ARGS; i++)
        if (l->mem[i / N_ARGS][i % N_ARGS])
            lib->f.dnnl_memory_destroy(l->mem[i / N_ARGS][i % N_ARGS]);
    if (l->stream)
        lib->f.dnnl_stream_destroy(l->stream);
}

static dnnl_status_t execute(const struct wf_onednn_matmul *p, const struct product *q,
                             struct lane *l, dnnl_memory_t *mem)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, mem[SRC]},
                              {DNNL_ARG_WEIGHTS, mem[WEIGHTS]},
                              {DNNL_ARG_DST, mem[DST]},
                              {DNNL_ARG_SCRATCHPAD, mem[PAD]}};
    dnnl_status_t st =
        p->lib->f.dnnl_primitive_execute(q->primitive, l->stream, mem[PAD] ? 4 : 3, args);

    return st ? st : p->lib->f.dnnl_stream_wait(l->stream);
}

static void run_tile(void *arg, int64_t tile, int thread)
{
    struct job *j = arg;
    const struct wf_onednn_matmul *p = j->p;
    const struct wf_gemm_desc *d = &p->d;
    const struct calls *f = &p->lib->f;
    struct lane *l = &j->lanes[thread];
    int64_t item = tile / p->n_tiles_m, row = tile % p->n_tiles_m * p->tile_m;
    bool last = row + p->tile_m >= d->m && p->last != p->tile;
    const float *a = j->a + item * d->stride_a + row * (d->trans_a ? 1 : d->lda);
    const float *b = j->b + item * d->stride_b;
    float *c = j->c + item * d->stride_c + row * d->ldc;
    int n_held = hold_threads(p->lib);
    dnnl_memory_t *mem = l->mem[last];
    dnnl_status_t st = open_lane(p, l, last);

    if (!st)
        st = f->dnnl_memory_set_data_handle(mem[SRC], (void *)(uintptr_t)a);
    if (!st)
        st = f->dnnl_memory_set_data_handle(mem[WEIGHTS], (void *)(uintptr_t)b);
    if (!st)
        st = f->dnnl_memory_set_data_handle(mem[DST], c);
    if (!st)
        st = execute(p, last ? p->last : p->tile, l, mem);
    release_threads(p->lib, n_held);
    if (st)
        atomic_store(&j->failed, (int)st);
}

weft_status wf_onednn_matmul_run(const struct wf_onednn_matmul *p, struct wf_pool *pool,
                                 const float *a, const float *b, float *c, void *scratch)
{
    struct job j = {.p = p, .a = a, .b = b, .c = c, .lanes = scratch};
    char *pads = (char *)scratch + (size_t)p->n_threads * sizeof(struct lane);
    double flop = 2.0 * (double)p->d.m * (double)p->d.n * (double)p->d.k * (double)p->d.batch;
    int failed;

    memset(j.lanes, 0, (size_t)p->n_threads * sizeof *j.lanes);
    for (int i = 0; i < p->n_threads; i++)
        j.lanes[i].pad = pads + (size_t)i * p->pad_bytes;
    wf_pool_for(flop < SERIAL_FLOP ? NULL : pool, p->n_tiles_m * p->d.batch, run_tile, &j);
    for (int i = 0; i < p->n_threads; i++)
        close_lane(p->lib, &j.lanes[i]);
    failed = atomic_load(&j.failed);
    if (!failed)
        return WEFT_OK;
    return wf_err(failed == (int)dnnl_out_of_memory ? WEFT_ENOMEM : WEFT_EBUG,
                  "oneDNN %s: a product failed with status %d", p->lib->version, failed);
}

#else /* not compiled in: everything declines */

const char *wf_onednn_built(void)
{
    return NULL;
}

const char *wf_onednn_file(void)
{
    return NULL;
}

const char *wf_onednn_package(void)
{
    return NULL;
}

const char *wf_onednn_version(weft_ctx *ctx, const char **why)
{
    (void)ctx;
    *why = "not built in";
    return NULL;
}

weft_status wf_onednn_matmul_plan(weft_ctx *ctx, struct wf_arena *arena,
                                  const struct wf_gemm_desc *d, int n_threads,
                                  const struct wf_onednn_matmul **out, size_t *scratch_bytes,
                                  const char **impl)
{
    (void)ctx, (void)arena, (void)d, (void)n_threads, (void)out, (void)scratch_bytes, (void)impl;
    return WEFT_ENOSUP;
}

weft_status wf_onednn_matmul_run(const struct wf_onednn_matmul *p, struct wf_pool *pool,
                                 const float *a, const float *b, float *c, void *scratch)
{
    (void)p, (void)pool, (void)a, (void)b, (void)c, (void)scratch;
    return wf_err(WEFT_ENOSUP, "oneDNN is not built in");
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------- */

weft_status wf_onednn_plan_call(struct wf_kplan *p, const struct wf_tune_row *rows)
{
    const struct wf_onednn_matmul *plan = NULL;
    struct wf_gemm_desc d;
    const char *tuned;
    weft_status st;

    if (p->ctx->kernels != WEFT_KERNELS_BEST)
        return WEFT_ENOSUP;
    st = wf_matmul_desc(&p->in[0], &p->in[1], &p->out[0], wf_kplan_int(p, "trans_a"),
                        wf_kplan_int(p, "trans_b"), &d);
    if (st)
        return st;
    tuned = wf_tune_matmul(rows, p->ctx->simd, d.m, d.n, d.k, d.trans_a, d.trans_b);
    if (!tuned || strcmp(tuned, "onednn") != 0)
        return WEFT_ENOSUP;
    st = wf_onednn_matmul_plan(p->ctx, p->arena, &d, p->n_threads, &plan, &p->scratch_bytes,
                               &p->impl);
    p->state = plan;
    return st;
}

weft_status wf_plan_matmul_onednn(struct wf_kplan *p)
{
    return wf_onednn_plan_call(p, wf_tune_rows);
}

weft_status wf_run_matmul_onednn(const struct wf_call *c)
{
    return wf_onednn_matmul_run(c->state, c->pool, c->in[0].data, c->in[1].data, c->out[0].data,
                                c->scratch);
}
