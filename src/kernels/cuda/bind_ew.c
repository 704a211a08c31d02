/* bind_ew.c - element-wise ops and programs, casts, constants, sums of many. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"

weft_status wfc_plan_ew(struct wf_kplan *p);
weft_status wfc_plan_fused(struct wf_kplan *p);
wf_kernel_fn wfc_run_ew, wfc_run_fused, wfc_run_cast, wfc_run_add_n, wfc_run_fill, wfc_run_finite;
static wf_kernel_many_fn run_casts;

int wfc_code_of(int op_id)
{
    static const int16_t codes[WF_N_OPS] = {
#define OP(name, ...)
#define OP_EW(n_param, name, ...) [WF_OP_##name] = WFC_EW_##name + 1,
#include "op/ops_ew.def"
#undef OP
        [WF_OP_identity] = WFC_EW_copy + 1,
        [WF_OP_sigmoid_xent] = WFC_EW_sigmoid_xent + 1,
    };

    return op_id >= 0 && op_id < WF_N_OPS ? codes[op_id] - 1 : -1;
}

static bool prog_type(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16 || t == WEFT_BOOL;
}

bool wf_cuda_can_step(const struct wf_op *op, int n_in, const struct wf_type *in,
                      const struct wf_type *out)
{
    bool types = prog_type(out->dtype) && n_in <= 3;

    for (int i = 0; i < n_in; i++)
        types = types && prog_type(in[i].dtype);
    if (op->user)
        return false;
    if (op->id == WF_OP_broadcast_like)
        return types;
    if (op->id == WF_OP_cast)
        return types && wf_is_float(in[0].dtype) && wf_is_float(out->dtype);
    return types && (op->flags & WF_EW) && op->id != WF_OP_sigmoid_xent && wfc_code_of(op->id) >= 0;
}

bool wf_cuda_can_anchor(const struct wf_op *op, const struct wf_attr *attr,
                        const struct wf_type *in, const struct wf_type *product, weft_dtype last)
{
    (void)attr;
    if (op->id != WF_OP_matmul || in[0].dtype != in[1].dtype)
        return false;
    if (product->dtype == WEFT_F32)
        return in[0].dtype != WEFT_F64 && last == WEFT_F32;
    return (product->dtype == WEFT_BF16 || product->dtype == WEFT_F16) && last == product->dtype;
}

/* ---- one op ---------------------------------------------------------------------------------- */

weft_status wfc_plan_ew(struct wf_kplan *p)
{
    return p->n_in <= 3 ? wfc_plan_any(p) : WEFT_ENOSUP;
}

/* The op's numbers in their order. */
static void numbers(const struct wf_call *c, double *p, double *q)
{
    double v[2] = {0, 0};

    for (int i = 0, n = 0; i < c->op->n_attrs && n < 2; i++)
        if (c->op->attr[i].value.kind == WF_FLOAT)
            v[n++] = c->attr[i].f;
    *p = v[0];
    *q = v[1];
}

static bool is_whole(weft_dtype t)
{
    return wf_is_int(t) || t == WEFT_BOOL;
}

weft_status wfc_run_ew(const struct wf_call *c)
{
    const struct wf_type *shape = &c->out[0].type;
    struct wfc_one a = {.count = (uint32_t)wf_type_count(shape),
                        .n_operands = (int16_t)c->n_in,
                        .code = (int16_t)wfc_code_of(c->op->id),
                        .fault = wfc_fault(c),
                        .out = c->out[0].data,
                        .out_dtype = (int32_t)shape->dtype};
    /* `where` computes in the type of its values, everything else in that of its first operand */
    weft_dtype t = c->in[c->op->id == WF_OP_where ? 1 : 0].type.dtype;

    numbers(c, &a.p, &a.q);
    for (int i = 0; i < c->n_in; i++)
        a.operand[i] = wfc_operand_of(&c->in[i], shape);
    return wfc_launch_each(c, is_whole(t) ? WFC_K_wfc_one_int : WFC_K_wfc_one + wfc_wide(c),
                           a.count, &a);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The state of programs that only round f32 to a half: one kernel does many of them. */
static const char a_cast;

static bool is_cast(const struct wf_kplan *p, const struct wf_attr *prog)
{
    return p->op->id == WF_OP_fused && p->n_in == 1 && p->n_out == 1 && prog->n == 5 &&
           prog->ints[0] == WF_OP_identity && p->in[0].dtype == WEFT_F32 &&
           weft_dtype_size(p->out[0].dtype) == 2 && wf_is_float(p->out[0].dtype) &&
           wf_type_count(&p->in[0]) == wf_type_count(&p->out[0]);
}

weft_status wfc_plan_fused(struct wf_kplan *p)
{
    const struct wf_attr *prog = wf_attr(p->op, p->attr, "prog"),
                         *outs = wf_attr(p->op, p->attr, "outs");
    bool anchored = p->op->id != WF_OP_fused;
    int n_operands = anchored ? p->n_in - 1 : p->n_in;

    if (!wfc_fits(p) || n_operands > WFC_OPERANDS || prog->n / 5 > WFC_STEPS || outs->n > WFC_OUTS)
        return WEFT_ENOSUP;
    for (int s = 0; s < prog->n / 5; s++) {
        const struct wf_op *op = wf_op_row(p->ctx, (int)prog->ints[5 * s]);

        if (!op || wfc_code_of(op->id) < 0)
            return WEFT_ENOSUP;
    }
    if (is_cast(p, prog)) {
        p->state = &a_cast;
        p->run_many = run_casts;
        p->impl = "gpu-cast";
        return WEFT_OK;
    }
    if (!anchored)
        p->state = wfc_make_program(p, 0, NULL);
    if (p->state)
        p->impl = "gpu-compiled";
    return WEFT_OK;
}

static void set_steps(const struct wf_call *c, struct wfc_prog *a)
{
    const struct wf_attr *prog = wf_call_attr(c, "prog"), *params = wf_call_attr(c, "params");

    a->n_steps = (int16_t)(prog->n / 5);
    for (int s = 0; s < a->n_steps; s++) {
        const int64_t *i = &prog->ints[5 * s];
        struct wfc_ew_step *st = &a->step[s];

        st->code = (int16_t)wfc_code_of((int)i[0]);
        st->a = (uint8_t)(i[1] < 0 ? 0 : i[1]);
        st->b = (uint8_t)(i[2] < 0 ? 0 : i[2]);
        st->c = (uint8_t)(i[3] < 0 ? 0 : i[3]);
        st->p = i[4] >= 0 && i[4] < params->n ? (float)params->floats[i[4]] : 0;
        st->q = i[4] >= 0 && i[4] + 1 < params->n ? (float)params->floats[i[4] + 1] : 0;
    }
}

/* Whether a compiled kernel can have these addresses: it reads and writes 16 bytes at a time. */
static bool is_aligned(const struct wfc_made *m, const struct wfc_made_args *a, int n_outs)
{
    uintptr_t bits = 0;

    for (int i = 0; i < WFC_OPERANDS; i++)
        bits |= m->full >> i & 1 ? (uintptr_t)a->in[i] : 0;
    for (int i = 0; i < n_outs; i++)
        bits |= (uintptr_t)a->out[i];
    return bits % 16 == 0;
}

static bool run_made(const struct wf_call *c, int first_in, const struct wf_tensor *anchor,
                     const struct wfc_made *m, weft_status *st)
{
    struct wfc_made_args a = {{NULL}, {NULL}};
    int n = 0;

    if (anchor)
        a.in[n++] = anchor->data;
    for (int i = first_in; i < c->n_in; i++)
        a.in[n++] = c->in[i].data;
    for (int i = 0; i < c->n_out; i++)
        a.out[i] = c->out[i].data;
    if (!is_aligned(m, &a, c->n_out))
        return false;
    *st = wfc_launch_made(c, m, &a);
    return true;
}

/* Operands from `first_in` on are registers from `to` on; registers below are the caller's. */
weft_status wfc_run_program(const struct wf_call *c, int first_in, const struct wf_tensor *anchor,
                            const struct wfc_made *made)
{
    const struct wf_attr *outs = wf_call_attr(c, "outs");
    const struct wf_type *shape = &c->out[0].type;
    struct wfc_prog a = {.count = (uint32_t)wf_type_count(shape)};
    int64_t per_block = (int64_t)WFC_THREADS * 4, most = (int64_t)wfc_dev(c)->cores * 64;
    weft_status st;

    if (made && run_made(c, first_in, anchor, made, &st))
        return st;
    if (anchor)
        a.operand[a.n_operands++] = wfc_operand_of(anchor, shape);
    for (int i = first_in; i < c->n_in; i++)
        a.operand[a.n_operands++] = wfc_operand_of(&c->in[i], shape);
    set_steps(c, &a);
    a.n_outs = (int16_t)outs->n;
    for (int k = 0; k < outs->n; k++) {
        a.out[k].data = c->out[k].data;
        a.out[k].dtype = (int16_t)c->out[k].type.dtype;
        a.out[k].reg = (int16_t)outs->ints[k];
    }
    return wfc_launch(c, WFC_K_wfc_prog, wf_min_i64((a.count + per_block - 1) / per_block, most), 1,
                      WFC_THREADS, &a);
}

weft_status wfc_run_fused(const struct wf_call *c)
{
    return c->state == &a_cast ? run_casts(&c, 1) : wfc_run_program(c, 0, NULL, c->state);
}

/* Elements of a block: 8 for each thread, more where there are many. Depends on the sizes only. */
static uint32_t cast_each(const struct wf_call *const *calls, int n)
{
    int64_t total = 0, least = (int64_t)WFC_THREADS * 8;

    for (int i = 0; i < n; i++)
        total += wf_count(&calls[i]->out[0]);
    return (uint32_t)(least * wf_max_i64(1, wf_min_i64(4, total / (least * 1056))));
}

static weft_status run_casts(const struct wf_call *const *calls, int n)
{
    struct wfc_casts a = {.each = cast_each(calls, n)};
    uint32_t n_blocks = 0;
    weft_status st = WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        const struct wf_call *c = calls[i];

        if (((uintptr_t)c->in[0].data | (uintptr_t)c->out[0].data) % 16 || !wf_count(&c->out[0])) {
            st = wfc_run_program(c, 0, NULL, NULL);
        } else {
            a.one[a.n].from = c->in[0].data;
            a.one[a.n].to = c->out[0].data;
            a.one[a.n].n = (uint32_t)wf_count(&c->out[0]);
            a.one[a.n].dtype = (int32_t)c->out[0].type.dtype;
            a.one[a.n++].first = n_blocks;
            n_blocks += (a.one[a.n - 1].n + a.each - 1) / a.each;
        }
        if (!st && a.n > 0 && (a.n == WFC_CASTS || i + 1 == n)) {
            st = wfc_launch(c, WFC_K_wfc_casts, n_blocks, 1, WFC_THREADS, &a);
            a.n = n_blocks = 0;
        }
    }
    return st;
}

/* ---- the rest -------------------------------------------------------------------------------- */

weft_status wfc_run_cast(const struct wf_call *c)
{
    struct wfc_one a = {.count = (uint32_t)wf_count(&c->out[0]),
                        .n_operands = 1,
                        .out = c->out[0].data,
                        .out_dtype = (int32_t)c->out[0].type.dtype};

    a.operand[0] = wfc_operand_of(&c->in[0], &c->out[0].type);
    return wfc_launch_each(c, WFC_K_wfc_cast, a.count, &a);
}

weft_status wfc_run_add_n(const struct wf_call *c)
{
    weft_status st = WEFT_OK;
    weft_dtype t = c->out[0].type.dtype;

    for (int from = 0; from < c->n_in && !st; from += WFC_MANY) {
        struct wfc_add_n a = {.count = (uint32_t)wf_count(&c->out[0]),
                              .dtype = (int32_t)t,
                              .onto = from > 0,
                              .out = c->out[0].data};

        for (int i = from; i < c->n_in && a.n < WFC_MANY; i++)
            a.in[a.n++] = c->in[i].data;
        st = wfc_launch_each(
            c, wf_is_float(t) ? WFC_K_wfc_add_n + wfc_wide(c) : WFC_K_wfc_add_n_int, a.count, &a);
    }
    return st;
}

static double size_of(const struct wf_call *c)
{
    const struct wf_attr *axes = wf_call_attr(c, "axes");
    const struct wf_type *x = &c->in[0].type;
    double n = 1;

    for (int i = 0; i < x->rank && !axes->n; i++)
        n *= (double)x->dim[i];
    for (int i = 0; i < axes->n; i++)
        n *= (double)x->dim[axes->ints[i] < 0 ? axes->ints[i] + x->rank : axes->ints[i]];
    return n;
}

weft_status wfc_run_fill(const struct wf_call *c)
{
    struct wfc_fill a = {.count = wf_count(&c->out[0]),
                         .out = c->out[0].data,
                         .dtype = (int32_t)c->out[0].type.dtype};

    switch (c->op->id) {
    case WF_OP_ones_like: a.value = 1; break;
    case WF_OP_full: a.value = wf_call_float(c, "value"); break;
    case WF_OP_size_of: a.value = size_of(c); break;
    default: return wfc_zero(c, &c->out[0]);
    }
    return wfc_launch_each(c, WFC_K_wfc_fill, a.count, &a);
}

weft_status wfc_run_finite(const struct wf_call *c)
{
    struct wfc_finite a = {.fault = wfc_fault(c),
                           .count = (uint32_t)wf_count(&c->in[0]),
                           .dtype = (int32_t)c->in[0].type.dtype,
                           .x = c->in[0].data,
                           .y = c->out[0].data};

    return wfc_launch_each(c, WFC_K_wfc_finite, a.count, &a);
}

#endif
