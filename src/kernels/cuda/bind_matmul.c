/* bind_matmul.c - products through cuBLASLt, and what follows them: bias and activation as its
 * epilogue, programs, sums of columns, updates.
 *
 * cuBLASLt's matrices are columns first. Our row-major y = op(a) op(b) is its y' = op(b)' op(a)':
 * the operands change places and nothing is transposed in memory. The algorithm is the first that
 * the library's heuristic gives for the sizes, or the one of its list that pins.def names for them;
 * it is chosen once when the plan is made. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_matmul(struct wf_kplan *p);
weft_status wfc_plan_matmul_fused(struct wf_kplan *p);
weft_status wfc_plan_matmul_sums(struct wf_kplan *p);
weft_status wfc_plan_matmul_apply(struct wf_kplan *p);
weft_status wfc_plan_fused(struct wf_kplan *p);
weft_status wfc_plan_narrow(struct wf_kplan *p);
wf_kernel_fn wfc_run_narrow, wfc_run_matmul, wfc_run_plain_matmul, wfc_run_matmul_fused,
    wfc_run_matmul_sums, wfc_run_matmul_apply;

enum { MAX_WORKSPACE = 32 << 20, ALIGN = 256, LISTED = 24 };

/* A planned product. */
struct wfc_mm {
    bool blas;   /* otherwise our own kernel */
    bool pinned; /* not the first algorithm of the heuristic */
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t b, a, y; /* in cuBLASLt's order */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    cublasLtEpilogue_t epilogue;
    struct wfc_gemm plain;
    weft_dtype y_dtype;
    /* of the ops built on a product */
    size_t y_at, sums_at; /* in scratch: the product, if it is not output 0; room of the sums */
    const struct wfc_made *made; /* the program that follows, compiled */
};

struct sizes {
    int64_t batch, m, n, k, a_step, b_step;
    bool ta, tb;
    bool tf32;
};

static cudaDataType_t cuda_type(weft_dtype t)
{
    return t == WEFT_F64    ? CUDA_R_64F
           : t == WEFT_F16  ? CUDA_R_16F
           : t == WEFT_BF16 ? CUDA_R_16BF
                            : CUDA_R_32F;
}

/* The step from matrix to matrix, of the batch of y; -1: not a single step. */
static int64_t batch_step(const struct wf_type *t, const struct wf_type *y)
{
    int64_t own = wf_type_part(t, 0, t->rank - 2), all = wf_type_part(y, 0, y->rank - 2);

    if (own == 1)
        return 0;
    return own == all ? t->dim[t->rank - 1] * t->dim[t->rank - 2] : -1;
}

static struct sizes sizes_of(const struct wf_type *a, const struct wf_type *b,
                             const struct wf_type *y, bool ta, bool tb)
{
    struct sizes s = {.batch = wf_type_part(y, 0, y->rank - 2),
                      .m = y->dim[y->rank - 2],
                      .n = y->dim[y->rank - 1],
                      .k = a->dim[a->rank - (ta ? 2 : 1)],
                      .a_step = batch_step(a, y),
                      .b_step = batch_step(b, y),
                      .ta = ta,
                      .tb = tb};

    if (s.batch > 1 && s.b_step == 0 && s.a_step > 0 && !ta) { /* one tall product */
        s.m *= s.batch;
        s.batch = 1;
    }
    return s;
}

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

static weft_status blas_error(struct wf_cuda *d, cublasStatus_t r, const char *what)
{
    return wf_err(WEFT_EIO, "%s: %s", what, d->api.cublasLtGetStatusString(r));
}

static cublasStatus_t set_batch(struct wf_cuda *d, cublasLtMatrixLayoutOpaque_t *l, int64_t batch,
                                int64_t step)
{
    int32_t n = (int32_t)batch;
    cublasStatus_t r = d->api.cublasLtMatrixLayoutSetAttribute(
        l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);

    if (r == CUBLAS_STATUS_SUCCESS)
        r = d->api.cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                    &step, sizeof step);
    return r;
}

static cublasStatus_t set_layouts(struct wf_cuda *d, struct wfc_mm *p, const struct sizes *s,
                                  weft_dtype in, weft_dtype out)
{
    cudaDataType_t t = cuda_type(in);
    uint64_t m = (uint64_t)s->m, n = (uint64_t)s->n, k = (uint64_t)s->k;
    const struct wf_cuda_api *api = &d->api;
    cublasStatus_t r = api->cublasLtMatrixLayoutInit_internal(
        &p->b, sizeof p->b, t, s->tb ? k : n, s->tb ? n : k, (int64_t)(s->tb ? k : n));

    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatrixLayoutInit_internal(&p->a, sizeof p->a, t, s->ta ? m : k,
                                                   s->ta ? k : m, (int64_t)(s->ta ? m : k));
    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatrixLayoutInit_internal(&p->y, sizeof p->y, cuda_type(out), n, m,
                                                   (int64_t)n);
    if (r == CUBLAS_STATUS_SUCCESS && s->batch > 1)
        r = set_batch(d, &p->b, s->batch, s->b_step);
    if (r == CUBLAS_STATUS_SUCCESS && s->batch > 1)
        r = set_batch(d, &p->a, s->batch, s->a_step);
    if (r == CUBLAS_STATUS_SUCCESS && s->batch > 1)
        r = set_batch(d, &p->y, s->batch, s->m * s->n);
    return r;
}

/* Whether the epilogue reads or writes a second matrix, of the result's sizes. */
static bool has_aux(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU;
}

static cublasStatus_t set_desc(struct wf_cuda *d, struct wfc_mm *p, const struct sizes *s,
                               weft_dtype in)
{
    cublasComputeType_t compute = in == WEFT_F64              ? CUBLAS_COMPUTE_64F
                                  : in == WEFT_F32 && s->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                              : CUBLAS_COMPUTE_32F;
    int32_t op_b = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N, op_a = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const struct wf_cuda_api *api = &d->api;
    cublasStatus_t r = api->cublasLtMatmulDescInit_internal(
        &p->desc, sizeof p->desc, compute, in == WEFT_F64 ? CUDA_R_64F : CUDA_R_32F);

    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_b,
                                                sizeof op_b);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_a,
                                                sizeof op_a);
    if (r == CUBLAS_STATUS_SUCCESS && p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        r = api->cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                &p->epilogue, sizeof p->epilogue);
    if (r == CUBLAS_STATUS_SUCCESS && has_aux(p->epilogue)) {
        int64_t ld = s->n;
        const void *aligned = (const void *)256; /* of which the heuristic sees the alignment */

        r = api->cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld,
                                                sizeof ld);
        if (r == CUBLAS_STATUS_SUCCESS)
            r = api->cublasLtMatmulDescSetAttribute(
                &p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aligned, sizeof aligned);
    }
    return r;
}

/* ---- pinned algorithms ----------------------------------------------------------------------- */

struct pin {
    const char *model;
    int64_t m, n, k;
    bool ta, tb;
    weft_dtype in, out;
    cublasLtEpilogue_t epilogue;
    int32_t algorithm, tile, parts;
};

static const struct pin *pin_of(const struct wf_cuda *d, const struct wfc_mm *p,
                                const struct sizes *s, weft_dtype in)
{
    enum { N = 0, A = 1, B = 2 };
    static const struct pin pins[] = {
#define PIN(model, m, n, k, t, in, out, epilogue, ...)                                             \
    {model,      m, n, k, (t) == A, (t) == B, WEFT_##in, WEFT_##out, CUBLASLT_EPILOGUE_##epilogue, \
     __VA_ARGS__},
#include "kernels/cuda/pins.def"
#undef PIN
    };

    for (int i = 0; i < WF_COUNT(pins) && s->batch == 1; i++) {
        const struct pin *q = &pins[i];

        if (s->m == q->m && s->n == q->n && s->k == q->k && s->ta == q->ta && s->tb == q->tb &&
            in == q->in && p->y_dtype == q->out && p->epilogue == q->epilogue &&
            (in != WEFT_F32 || s->tf32) && !strcmp(d->model, q->model))
            return q;
    }
    return NULL;
}

static bool has_config(struct wf_cuda *d, const cublasLtMatmulAlgo_t *a,
                       cublasLtMatmulAlgoConfigAttributes_t what, int32_t want)
{
    int32_t v = -1;
    size_t n;

    return d->api.cublasLtMatmulAlgoConfigGetAttribute(a, what, &v, sizeof v, &n) ==
               CUBLAS_STATUS_SUCCESS &&
           v == want;
}

/* The place in the heuristic's list of the algorithm that is pinned, 0 without one. */
static int place_of(struct wf_cuda *d, const struct pin *q,
                    const cublasLtMatmulHeuristicResult_t *list, int n)
{
    for (int i = 0; q && i < n; i++)
        if (list[i].state == CUBLAS_STATUS_SUCCESS &&
            has_config(d, &list[i].algo, CUBLASLT_ALGO_CONFIG_ID, q->algorithm) &&
            has_config(d, &list[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, q->tile) &&
            has_config(d, &list[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, q->parts))
            return i;
    return 0;
}

static cublasStatus_t set_algorithm(struct wf_cuda *d, struct wfc_mm *p, const struct sizes *s,
                                    weft_dtype in, int *found)
{
    const struct pin *pin = pin_of(d, p, s, in);
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t list[LISTED];
    size_t most = MAX_WORKSPACE;
    uint32_t align = 16;
    const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const struct wf_cuda_api *api = &d->api;
    cublasStatus_t r = api->cublasLtMatmulPreferenceInit_internal(&pref, sizeof pref);

    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatmulPreferenceSetAttribute(
            &pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    for (int i = 0; i < WF_COUNT(aligned) && r == CUBLAS_STATUS_SUCCESS; i++)
        r = api->cublasLtMatmulPreferenceSetAttribute(&pref, aligned[i], &align, sizeof align);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = api->cublasLtMatmulAlgoGetHeuristic(d->blas, &p->desc, &p->b, &p->a, &p->y, &p->y,
                                                &pref, pin ? LISTED : 1, list, found);
    if (r == CUBLAS_STATUS_SUCCESS && *found > 0) {
        const cublasLtMatmulHeuristicResult_t *best = &list[place_of(d, pin, list, *found)];

        p->pinned = best != list;
        p->algo = best->algo;
        p->workspace = best->workspaceSize;
    }
    return r;
}

/* Whether cuBLASLt computes it; false: our own kernel does. */
static bool plan_blas(struct wf_cuda *d, struct wfc_mm *p, const struct sizes *s, weft_dtype a,
                      weft_dtype b, weft_dtype y)
{
    int found = 0;

    if (!d->blas || a != b || !wf_is_float(a) || (y != a && y != WEFT_F32) || s->a_step < 0 ||
        s->b_step < 0 || !s->k || !s->m || !s->n || !s->batch || s->batch > INT32_MAX)
        return false;
    if (has_aux(p->epilogue) && (s->batch > 1 || s->n % 8))
        return false;
    return set_desc(d, p, s, a) == CUBLAS_STATUS_SUCCESS &&
           set_layouts(d, p, s, a, y) == CUBLAS_STATUS_SUCCESS &&
           set_algorithm(d, p, s, a, &found) == CUBLAS_STATUS_SUCCESS && found > 0;
}

static struct wf_type batch_of(const struct wf_type *t)
{
    struct wf_type b = *t;

    b.rank -= 2;
    return b;
}

static void plan_plain(struct wfc_mm *p, const struct wf_type *a, const struct wf_type *b,
                       const struct wf_type *y, bool ta, bool tb)
{
    struct wf_type by = batch_of(y), ba = batch_of(a), bb = batch_of(b);

    p->plain = (struct wfc_gemm){.batch = (uint32_t)wf_type_count(&by),
                                 .m = (uint32_t)y->dim[y->rank - 2],
                                 .n = (uint32_t)y->dim[y->rank - 1],
                                 .k = (uint32_t)a->dim[a->rank - (ta ? 2 : 1)],
                                 .ta = ta,
                                 .tb = tb,
                                 .a_dtype = (int32_t)a->dtype,
                                 .b_dtype = (int32_t)b->dtype,
                                 .a_batch = wfc_broadcast_box(&ba, &by),
                                 .b_batch = wfc_broadcast_box(&bb, &by)};
}

/* The product of operands `first` and the next, of p's state; y: its type. */
static weft_status plan_product(struct wf_kplan *kp, int first, const struct wf_type *y,
                                cublasLtEpilogue_t epilogue, struct wfc_mm **out)
{
    const struct wf_type *a = &kp->in[first], *b = &kp->in[first + 1];
    bool ta = wf_kplan_int(kp, "trans_a"), tb = wf_kplan_int(kp, "trans_b");
    struct sizes s = sizes_of(a, b, y, ta, tb);
    bool tf32 = kp->tf32 && a->dtype == WEFT_F32;
    struct wfc_mm *p = wf_kplan_state(kp, sizeof *p);

    if (!p)
        return wf_kplan_nomem(kp);
    if (!wfc_fits(kp))
        return WEFT_ENOSUP;
    s.tf32 = tf32;
    p->epilogue = epilogue;
    p->y_dtype = y->dtype;
    p->blas = plan_blas(kp->device, p, &s, a->dtype, b->dtype, y->dtype);
    if (!p->blas && epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return plan_product(kp, first, y, CUBLASLT_EPILOGUE_DEFAULT, out);
    if (!p->blas) {
        plan_plain(p, a, b, y, ta, tb);
        kp->impl = "gpu-product";
    } else if (p->pinned) {
        kp->impl = "cublasLt-pinned";
    }
    kp->scratch_bytes = (size_t)wf_round_up((int64_t)p->workspace, ALIGN);
    *out = p;
    return WEFT_OK;
}

static weft_status run_plain(const struct wf_call *c, const struct wfc_mm *p, const void *a,
                             const void *b, void *y)
{
    struct wfc_gemm g = p->plain;
    int wide = g.a_dtype == WFC_F64 || p->y_dtype == WEFT_F64 || !wf_is_float(p->y_dtype);

    g.a = a;
    g.b = b;
    g.y = y;
    g.y_dtype = (int32_t)p->y_dtype;
    return wfc_launch_each(c, WFC_K_wfc_gemm + wide, (int64_t)g.batch * g.m * g.n, &g);
}

static weft_status run_product(const struct wf_call *c, const struct wfc_mm *p, const void *a,
                               const void *b, void *y, const void *bias, const void *aux)
{
    struct wf_cuda *d = wfc_dev(c);
    struct wfc_mm q = *p; /* the library takes no pointers to constant descriptions */
    float one = 1, zero = 0;
    double one64 = 1, zero64 = 0;
    bool wide = p->y_dtype == WEFT_F64;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;

    if (!p->blas)
        return run_plain(c, p, a, b, y);
    if (d->api.cuCtxSetCurrent(d->context))
        return wf_err(WEFT_EIO, "%s: cuCtxSetCurrent failed", c->op->name);
    wfc_other_work(d);
    if (bias)
        r = d->api.cublasLtMatmulDescSetAttribute(&q.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                  sizeof bias);
    if (r == CUBLAS_STATUS_SUCCESS && aux)
        r = d->api.cublasLtMatmulDescSetAttribute(
            &q.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = d->api.cublasLtMatmul(d->blas, &q.desc, wide ? (void *)&one64 : (void *)&one, b, &q.b,
                                  a, &q.a, wide ? (void *)&zero64 : (void *)&zero, y, &q.y, y, &q.y,
                                  &q.algo, c->scratch, q.workspace, c->stream);
    return r == CUBLAS_STATUS_SUCCESS ? WEFT_OK : blas_error(d, r, c->op->name);
}

weft_status wfc_plan_mm(struct wf_kplan *kp, const struct wfc_mm_sizes *z, weft_dtype in,
                        weft_dtype out, const struct wfc_mm **mm)
{
    struct sizes s = {.batch = z->batch > 1 ? z->batch : 1,
                      .m = z->m,
                      .n = z->n,
                      .k = z->k,
                      .a_step = z->a_step,
                      .b_step = z->b_step,
                      .ta = z->ta,
                      .tb = z->tb,
                      .tf32 = kp->tf32 && in == WEFT_F32};
    struct wfc_mm *p = wf_arena_alloc(kp->arena, sizeof *p);

    if (!p)
        return wf_kplan_nomem(kp);
    p->y_dtype = out;
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    p->blas = plan_blas(kp->device, p, &s, in, in, out);
    if (!p->blas)
        return WEFT_ENOSUP;
    kp->scratch_bytes = (size_t)wf_round_up((int64_t)kp->scratch_bytes, ALIGN);
    p->y_at = kp->scratch_bytes; /* where its workspace is */
    kp->scratch_bytes += (size_t)wf_round_up((int64_t)p->workspace, ALIGN);
    *mm = p;
    return WEFT_OK;
}

weft_status wfc_run_mm(const struct wf_call *c, const struct wfc_mm *p, const void *a,
                       const void *b, void *y)
{
    struct wf_call own = *c;

    own.scratch = (char *)c->scratch + p->y_at;
    return run_product(&own, p, a, b, y, NULL, NULL);
}

/* ---- the ops --------------------------------------------------------------------------------- */

weft_status wfc_plan_matmul(struct wf_kplan *p)
{
    struct wfc_mm *m;

    return plan_product(p, 0, &p->out[0], CUBLASLT_EPILOGUE_DEFAULT, &m);
}

weft_status wfc_run_matmul(const struct wf_call *c)
{
    return run_product(c, c->state, c->in[0].data, c->in[1].data, c->out[0].data, NULL, NULL);
}

/* Whether operand `i` is a row of the result's type that is added to every row of it. */
static bool is_bias(const struct wf_kplan *p, int i)
{
    const struct wf_type *y = &p->out[0], *b = &p->in[i];

    return wf_type_count(b) == y->dim[y->rank - 1] && b->dtype == y->dtype && b->rank >= 1 &&
           b->dim[b->rank - 1] == y->dim[y->rank - 1];
}

/* The gradient of GELU: times that of operand 2, the values before it. */
static bool is_gelu_grad(const struct wf_kplan *p, const int64_t *i, int n, const int64_t *outs)
{
    const struct wf_type *y = &p->out[0];

    return n == 1 && i[0] == WF_OP_gelu_tanh_grad && i[1] == 0 && i[2] == 1 && p->n_out == 1 &&
           outs[0] == 2 && p->in[2].dtype == y->dtype &&
           wf_type_count(&p->in[2]) == wf_type_count(y);
}

/* bias, bias and ReLU, bias and GELU (with the values before it as a second result), or the
 * gradient of GELU: what cuBLASLt does itself. */
static cublasLtEpilogue_t epilogue_of(const struct wf_kplan *p)
{
    const struct wf_attr *prog = wf_attr(p->op, p->attr, "prog"),
                         *outs = wf_attr(p->op, p->attr, "outs");
    const int64_t *i = prog->ints;
    int n = prog->n / 5;
    bool half = weft_dtype_size(p->out[0].dtype) == 2 && !(p->without & WF_WITHOUT_EPILOGUES);

    if (p->n_in != 3 || n < 1 || n > 2)
        return CUBLASLT_EPILOGUE_DEFAULT;
    if (half && is_gelu_grad(p, i, n, outs->ints))
        return CUBLASLT_EPILOGUE_DGELU;
    if (i[0] != WF_OP_add || i[1] + i[2] != 1 || i[1] * i[2] != 0 || outs->ints[0] != 1 + n ||
        !is_bias(p, 2))
        return CUBLASLT_EPILOGUE_DEFAULT;
    if (half && n == 2 && i[5] == WF_OP_gelu_tanh && i[6] == 2)
        return p->n_out == 1 ? CUBLASLT_EPILOGUE_GELU_BIAS
               : p->n_out == 2 && outs->ints[1] == 2 && p->out[1].dtype == p->out[0].dtype
                   ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                   : CUBLASLT_EPILOGUE_DEFAULT;
    if (p->n_out != 1)
        return CUBLASLT_EPILOGUE_DEFAULT;
    if (n == 1)
        return CUBLASLT_EPILOGUE_BIAS;
    return i[5] == WF_OP_relu && i[6] == 2 ? CUBLASLT_EPILOGUE_RELU_BIAS
                                           : CUBLASLT_EPILOGUE_DEFAULT;
}

static const char *epilogue_name(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_DGELU ? "cublasLt+dgelu"
           : e == CUBLASLT_EPILOGUE_GELU_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS
               ? "cublasLt+gelu"
               : "cublasLt+bias";
}

/* Other programs read the product from output 0, in its type, and write it there. */
weft_status wfc_plan_matmul_fused(struct wf_kplan *p)
{
    struct wfc_mm *m = NULL;
    cublasLtEpilogue_t e = epilogue_of(p);
    weft_status st = wfc_plan_fused(p);

    if (!st)
        st = plan_product(p, 0, &p->out[0], e, &m);
    if (st)
        return st;
    if (m->blas && m->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        p->impl = epilogue_name(m->epilogue);
    else
        m->made = wfc_make_program(p, 2, &p->out[0]);
    return WEFT_OK;
}

weft_status wfc_run_matmul_fused(const struct wf_call *c)
{
    const struct wfc_mm *m = c->state;
    bool whole = m->blas && m->epilogue != CUBLASLT_EPILOGUE_DEFAULT,
         back = m->epilogue == CUBLASLT_EPILOGUE_DGELU;
    const void *aux = !whole || !has_aux(m->epilogue) ? NULL
                      : back                          ? c->in[2].data
                                                      : c->out[1].data;
    weft_status st = run_product(c, m, c->in[0].data, c->in[1].data, c->out[0].data,
                                 whole && !back ? c->in[2].data : NULL, aux);

    return st || whole ? st : wfc_run_program(c, 2, &c->out[0], m->made);
}

/* ---- with the sums of b's columns ------------------------------------------------------------ */

static void plan_sums(struct wf_kplan *p, struct wfc_mm *m, const struct wf_type *b)
{
    int64_t cols = b->dim[b->rank - 1];

    m->sums_at = p->scratch_bytes;
    p->scratch_bytes += cols ? wfc_column_sums_scratch(wf_type_count(b) / cols, cols) : 0;
}

static weft_status run_sums(const struct wf_call *c, const struct wfc_mm *m,
                            const struct wf_tensor *b, const struct wf_tensor *sums)
{
    int64_t cols = b->type.dim[b->type.rank - 1];

    return cols ? wfc_column_sums(c, b, wf_count(b) / cols, cols, sums,
                                  (char *)c->scratch + m->sums_at)
                : WEFT_OK;
}

/* Small weight gradients with few columns: cuBLASLt needs three kernels for them. */
static bool is_narrow(const struct wf_kplan *p)
{
    const struct wf_type *a = &p->in[0], *b = &p->in[1];

    return wf_kplan_int(p, "trans_a") && !wf_kplan_int(p, "trans_b") && a->rank == 2 &&
           b->rank == 2 && a->dtype == WEFT_F32 && b->dtype == WEFT_F32 &&
           p->out[0].dtype == WEFT_F32 && p->out[1].dtype == WEFT_F32 && b->dim[1] <= WFC_NARROW &&
           a->dim[0] <= 4096 && a->dim[1] <= 4096;
}

weft_status wfc_plan_narrow(struct wf_kplan *p)
{
    return is_narrow(p) ? wfc_plan_any(p) : WEFT_ENOSUP;
}

weft_status wfc_run_narrow(const struct wf_call *c)
{
    struct wfc_narrow a = {.m = (uint32_t)c->in[0].type.dim[1],
                           .n = (uint32_t)c->in[1].type.dim[1],
                           .k = (uint32_t)c->in[0].type.dim[0],
                           .a = c->in[0].data,
                           .b = c->in[1].data,
                           .y = c->out[0].data,
                           .sums = c->out[1].data};

    return wfc_launch(c, WFC_K_wfc_narrow, a.m / WFC_NARROW_M + 1, 1,
                      WFC_NARROW_M * WFC_NARROW_ROWS, &a);
}

/* cuBLASLt sums our second operand, its first, along k as it reads it: for products of one type
 * whose sums have the type of the result. */
weft_status wfc_plan_matmul_sums(struct wf_kplan *p)
{
    struct wfc_mm *m = NULL;
    bool whole = p->out[1].dtype == p->out[0].dtype && p->in[1].dtype != WEFT_F64;
    weft_status st = plan_product(p, 0, &p->out[0],
                                  whole ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_DEFAULT, &m);

    if (st)
        return st;
    if (m->blas && m->epilogue == CUBLASLT_EPILOGUE_BGRADA)
        p->impl = "cublasLt+bgrad";
    else
        plan_sums(p, m, &p->in[1]);
    return WEFT_OK;
}

weft_status wfc_run_matmul_sums(const struct wf_call *c)
{
    const struct wfc_mm *m = c->state;
    bool whole = m->blas && m->epilogue == CUBLASLT_EPILOGUE_BGRADA;
    weft_status st = run_product(c, m, c->in[0].data, c->in[1].data, c->out[0].data,
                                 whole ? c->out[1].data : NULL, NULL);

    return st || whole ? st : run_sums(c, m, &c->in[1], &c->out[1]);
}

weft_status wfc_plan_matmul_apply(struct wf_kplan *p)
{
    struct wfc_mm *m = NULL;
    weft_status st = plan_product(p, 1, &p->in[0], CUBLASLT_EPILOGUE_DEFAULT, &m);

    if (st)
        return st;
    m->y_at = p->scratch_bytes;
    p->scratch_bytes +=
        (size_t)wf_round_up(wf_type_count(&p->in[0]) * (int64_t)sizeof(float), ALIGN);
    if (p->n_out > 1)
        plan_sums(p, m, &p->in[2]);
    return wfc_plan_update(p, 3);
}

weft_status wfc_run_matmul_apply(const struct wf_call *c)
{
    const struct wfc_mm *m = c->state;
    void *gradient = (char *)c->scratch + m->y_at;
    weft_status st = run_product(c, m, c->in[1].data, c->in[2].data, gradient, NULL, NULL);

    if (!st && c->n_out > 1)
        st = run_sums(c, m, &c->in[2], &c->out[1]);
    return st ? st : wfc_run_update(c, 3, gradient, NULL);
}

/* Of any type and any broadcast; also what cuBLASLt refuses. */
weft_status wfc_run_plain_matmul(const struct wf_call *c)
{
    struct wfc_mm p = {.y_dtype = c->out[0].type.dtype};

    plan_plain(&p, &c->in[0].type, &c->in[1].type, &c->out[0].type, wf_call_int(c, "trans_a"),
               wf_call_int(c, "trans_b"));
    return run_plain(c, &p, c->in[0].data, c->in[1].data, c->out[0].data);
}

#endif
