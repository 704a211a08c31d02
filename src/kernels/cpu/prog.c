/* prog.c - compiling and running element-wise programs. */
#include "kernels/cpu/prog.h"

enum { BLOCK = 1024, SHORT_PERIOD = 512, MARK_FLOATS = 16 };

/* ---- compiling ------------------------------------------------------------------------------- */

static bool prog_type(weft_dtype t)
{
    return t == WEFT_F32 || t == WEFT_BF16 || t == WEFT_F16 || t == WEFT_BOOL;
}

/* The op's numbers must be the block function's parameters, in order. */
static bool has_block_function(const struct wf_op *op)
{
    int code = wf_ew_code_of(op->id), n_floats = 0;

    for (int i = 0; i < op->n_attrs; i++)
        n_floats += op->attr[i].value.kind == WF_FLOAT;
    return code >= 0 && n_floats == wf_ew_info[code].n_param && wf_ew_info[code].n_in <= 3;
}

bool wf_kernel_can_step(const struct wf_op *op, int n_in, const struct wf_type *in,
                        const struct wf_type *out)
{
    bool types = prog_type(out->dtype);

    for (int i = 0; i < n_in; i++)
        types = types && prog_type(in[i].dtype);
    if (op->id == WF_OP_broadcast_like)
        return types;
    if (op->id == WF_OP_cast)
        return types && wf_is_float(in[0].dtype) && wf_is_float(out->dtype);
    return types && (op->flags & WF_EW) && has_block_function(op);
}

/* Strides of an operand in the result's shape, with neighboring axes merged if the operand is
 * contiguous or constant along them. */
static void merge_dims(struct wf_prog_operand *o, const struct wf_type *t,
                       const struct wf_type *shape)
{
    int64_t stride = 1, dims[WEFT_MAX_RANK] = {0}, strides[WEFT_MAX_RANK] = {0};
    int n = 0;

    for (int a = shape->rank - 1, b = t->rank - 1; a >= 0; a--, b--) {
        int64_t size = b >= 0 ? t->dim[b] : 1, s = size == 1 ? 0 : stride;

        if (b >= 0)
            stride *= size;
        if (shape->dim[a] == 1)
            continue;
        if (n && ((s == 0 && strides[n - 1] == 0) ||
                  (s && strides[n - 1] && s == strides[n - 1] * dims[n - 1]))) {
            dims[n - 1] *= shape->dim[a];
            continue;
        }
        dims[n] = shape->dim[a];
        strides[n++] = s;
    }
    o->rank = n; /* innermost first */
    memcpy(o->dim, dims, sizeof dims);
    memcpy(o->stride, strides, sizeof strides);
}

static void classify(struct wf_prog_operand *o, const struct wf_type *t,
                     const struct wf_type *shape)
{
    o->dtype = t->dtype;
    o->buf = -1;
    merge_dims(o, t, shape);
    if (wf_type_count(t) == wf_type_count(shape)) {
        o->kind = WF_PROG_FULL;
    } else if (wf_type_count(t) == 1) {
        o->kind = WF_PROG_SCALAR;
    } else if (o->rank == 2 && o->stride[0] == 1 && o->stride[1] == 0) {
        o->period = o->dim[0];
        o->kind = o->period <= SHORT_PERIOD ? WF_PROG_PATTERN : WF_PROG_ROW;
    } else {
        o->kind = WF_PROG_GENERAL;
    }
    /* A long row of another dtype would be converted again for each block: gather it instead. */
    if (o->kind == WF_PROG_ROW && o->dtype != WEFT_F32)
        o->kind = WF_PROG_GENERAL;
}

static bool in_place(const struct wf_prog_operand *o)
{
    return o->dtype == WEFT_F32 && (o->kind == WF_PROG_FULL || o->kind == WF_PROG_ROW);
}

static weft_status compile_steps(struct wf_kplan *p, struct wf_prog *g)
{
    const struct wf_attr *prog = wf_attr(p->op, p->attr, "prog"),
                         *params = wf_attr(p->op, p->attr, "params");
    const struct wf_ew_fns *fns = wf_ew_fns_of(p->ctx->simd);

    for (int s = 0; s < g->n_steps; s++) {
        const int64_t *i = &prog->ints[5 * s];
        const struct wf_op *op = wf_op_row(p->ctx, (int)i[0]);
        int code = op ? wf_ew_code_of(op->id) : -1;
        struct wf_prog_step *st = &g->step[s];

        if (code < 0)
            return WEFT_ENOSUP;
        st->fn = fns->fn[code];
        st->dst = g->n_operands + s;
        for (int k = 1; k <= 3; k++)
            if (i[k] >= g->n_operands + s)
                return wf_err(WEFT_EINVAL, "program step %d reads a later step", s);
        st->a = i[1] < 0 ? 0 : (int)i[1];
        st->b = i[2] < 0 ? 0 : (int)i[2];
        st->c = i[3] < 0 ? 0 : (int)i[3];
        for (int k = 0;
             k < wf_ew_info[code].n_param && k < WF_COUNT(st->param) && i[4] + k < params->n; k++)
            st->param[k] = (float)params->floats[i[4] + k];
    }
    return WEFT_OK;
}

static bool reads(const struct wf_prog_step *s, int reg)
{
    return s->a == reg || s->b == reg || s->c == reg;
}

/* Which outputs their step writes directly: those after which no operand that might share their
 * memory is read. */
static void place_outputs(struct wf_prog *g, const struct wf_attr *outs,
                          const struct wf_type *types, bool anchor)
{
    int last_read = -1;

    for (int s = 0; s < g->n_steps; s++)
        for (int i = 0; i < g->n_operands; i++)
            if ((g->operand[i].kind == WF_PROG_FULL || g->operand[i].kind == WF_PROG_ANCHOR) &&
                reads(&g->step[s], i))
                last_read = s;
    for (int k = 0; k < g->n_outs; k++)
        if (outs->ints[k] < g->n_operands) /* the product itself is an output: copied at the end */
            last_read = g->n_steps;
    for (int k = 0; k < g->n_outs; k++) {
        int reg = (int)outs->ints[k], s = reg - g->n_operands;

        g->out[k].reg = reg;
        g->out[k].dtype = types[k].dtype;
        /* The caller's output 0 is f32, even if it is rounded afterwards. */
        g->out[k].direct =
            s >= last_read && s >= 0 && (types[k].dtype == WEFT_F32 || (anchor && k == 0));
        if (g->out[k].direct)
            g->temp[s] = -1 - k;
    }
}

/* Registers of steps that are not outputs share buffers if their lifetimes do not overlap. */
static int place_temps(struct wf_prog *g, int64_t first_buf)
{
    int busy_until[WF_PROG_MAX_REGS], n_bufs = 0;

    for (int s = 0; s < g->n_steps; s++) {
        int last = s, at = 0;

        if (g->temp[s] < 0)
            continue;
        for (int t = s + 1; t < g->n_steps; t++)
            if (reads(&g->step[t], g->n_operands + s))
                last = t;
        for (int k = 0; k < g->n_outs; k++)
            if (g->out[k].reg == g->n_operands + s)
                last = g->n_steps; /* copied out at the end */
        while (at < n_bufs && busy_until[at] >= s)
            at++;
        if (at == n_bufs)
            n_bufs++;
        busy_until[at] = last;
        g->temp[s] = first_buf + (int64_t)at * g->block;
    }
    return n_bufs;
}

static weft_status new_prog(struct wf_kplan *p, int n_operands, struct wf_prog **out)
{
    const struct wf_attr *prog = wf_attr(p->op, p->attr, "prog"),
                         *outs = wf_attr(p->op, p->attr, "outs");
    int n_steps = prog->n / 5;
    struct wf_prog *g = wf_arena_alloc(p->arena, sizeof *g);

    if (n_operands + n_steps > WF_PROG_MAX_REGS || outs->n > WF_PROG_MAX_OUTS)
        return WEFT_ENOSUP;
    if (g) {
        g->operand = wf_arena_alloc(p->arena, sizeof *g->operand * (size_t)(n_operands + 1));
        g->step = wf_arena_alloc(p->arena, sizeof *g->step * (size_t)(n_steps + 1));
        g->temp = wf_arena_alloc(p->arena, sizeof *g->temp * (size_t)(n_steps + 1));
    }
    if (!g || !g->operand || !g->step || !g->temp)
        return wf_err_nomem(p->ctx, sizeof *g, "program");
    g->n_operands = n_operands;
    g->n_steps = n_steps;
    g->n_outs = outs->n;
    *out = g;
    return WEFT_OK;
}

weft_status wf_prog_compile(struct wf_kplan *p, int n_operands, const struct wf_type *operands,
                            bool anchor, const struct wf_type *shape, struct wf_prog **out)
{
    struct wf_prog *g = NULL;
    int64_t at = MARK_FLOATS;
    weft_status st = new_prog(p, n_operands, &g);

    if (!st)
        st = compile_steps(p, g);
    if (st)
        return st;
    g->block = BLOCK;
    g->count = wf_type_count(shape);
    g->cvt = wf_cvt_fns_of(p->ctx->simd);
    g->fill = wf_ew_fns_of(p->ctx->simd)->fn[WF_EW_fill];
    for (int i = 0; i < n_operands; i++) {
        struct wf_prog_operand *o = &g->operand[i];

        classify(o, &operands[i], shape);
        if (anchor && i == 0)
            o->kind = WF_PROG_ANCHOR;
        if (in_place(o))
            continue;
        o->buf = at;
        at += g->block + (o->kind == WF_PROG_PATTERN ? wf_round_up(o->period, 16) : 0);
    }
    place_outputs(g, wf_attr(p->op, p->attr, "outs"), p->out, anchor);
    at += place_temps(g, at) * g->block;
    g->thread_floats = at;
    *out = g;
    return WEFT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

void wf_prog_start(struct wf_prog_run *r, int n_threads)
{
    for (int t = 0; t < n_threads; t++)
        r->scratch[t * r->prog->thread_floats] = 0;
}

/* n elements of an operand from element `from`, as floats. */
static void load(const struct wf_prog *g, const struct wf_prog_operand *o, const void *data,
                 int64_t from, int64_t n, float *to)
{
    const char *src = (const char *)data + from * weft_dtype_size(o->dtype);

    if (o->dtype == WEFT_F32)
        memcpy(to, src, (size_t)n * sizeof *to);
    else
        g->cvt->to_f32[o->dtype](to, src, n);
}

/* n copies of to[0]. */
static void repeat(const struct wf_prog *g, float *to, int64_t n)
{
    float v = to[0];

    g->fill(to, NULL, NULL, NULL, n, &v);
}

/* What is the same for all blocks of a thread: scalars and short patterns. */
static void prepare(const struct wf_prog_run *r, float *mem)
{
    const struct wf_prog *g = r->prog;

    for (int i = 0; i < g->n_operands; i++) {
        const struct wf_prog_operand *o = &g->operand[i];
        float *buf = mem + o->buf;

        if (o->kind == WF_PROG_SCALAR) {
            load(g, o, r->operand[i], 0, 1, buf);
            repeat(g, buf, g->block);
        } else if (o->kind == WF_PROG_PATTERN) {
            load(g, o, r->operand[i], 0, o->period, buf);
            for (int64_t k = o->period; k < g->block + o->period; k++)
                buf[k] = buf[k - o->period];
        }
    }
    mem[0] = 1;
}

/* Elements [first, first + n) of a broadcast operand. */
static void gather(const struct wf_prog *g, const struct wf_prog_operand *o, const void *data,
                   int64_t first, int64_t n, float *to)
{
    int64_t inner = o->dim[0];

    while (n > 0) {
        int64_t rest = first, in_row = first % inner, run = wf_min_i64(n, inner - in_row), at = 0;

        for (int k = 0; k < o->rank; k++) {
            at += rest % o->dim[k] * o->stride[k];
            rest /= o->dim[k];
        }
        if (o->stride[0]) {
            load(g, o, data, at, run, to);
        } else {
            load(g, o, data, at, 1, to);
            repeat(g, to, run);
        }
        to += run;
        first += run;
        n -= run;
    }
}

/* Points the operands' registers to elements [first, first + n). */
static void set_operands(const struct wf_prog_run *r, float *mem, int64_t first, int64_t n,
                         float *anchor, float **reg)
{
    const struct wf_prog *g = r->prog;

    for (int i = 0; i < g->n_operands; i++) {
        const struct wf_prog_operand *o = &g->operand[i];

        switch (o->kind) {
        case WF_PROG_ANCHOR: reg[i] = anchor; break;
        case WF_PROG_SCALAR: reg[i] = mem + o->buf; break;
        case WF_PROG_PATTERN: reg[i] = mem + o->buf + first % o->period; break;
        case WF_PROG_ROW: reg[i] = (float *)(uintptr_t)r->operand[i] + first % o->period; break;
        case WF_PROG_FULL:
            reg[i] = o->buf < 0 ? (float *)(uintptr_t)r->operand[i] + first : mem + o->buf;
            if (o->buf >= 0)
                load(g, o, r->operand[i], first, n, reg[i]);
            break;
        case WF_PROG_GENERAL:
            reg[i] = mem + o->buf;
            gather(g, o, r->operand[i], first, n, reg[i]);
            break;
        }
    }
}

static float *out_at(const struct wf_prog_run *r, int k, int64_t first, float *anchor)
{
    return k == 0 && anchor ? anchor : (float *)r->out[k] + first;
}

static void run_block(const struct wf_prog_run *r, float *mem, int64_t first, int64_t n,
                      float *anchor)
{
    const struct wf_prog *g = r->prog;
    float *reg[WF_PROG_MAX_REGS];

    set_operands(r, mem, first, n, anchor, reg);
    for (int s = 0; s < g->n_steps; s++) {
        const struct wf_prog_step *p = &g->step[s];

        reg[p->dst] =
            g->temp[s] >= 0 ? mem + g->temp[s] : out_at(r, (int)(-1 - g->temp[s]), first, anchor);
        p->fn(reg[p->dst], reg[p->a], reg[p->b], reg[p->c], n, p->param);
    }
    for (int k = g->n_outs - 1; k >= 0; k--) { /* output 0 last: it may be in the anchor's memory */
        weft_dtype t = g->out[k].dtype;

        if (g->out[k].direct)
            continue;
        if (t == WEFT_F32 || (k == 0 && anchor)) {
            float *to = out_at(r, k, first, anchor);

            if (to != reg[g->out[k].reg])
                memcpy(to, reg[g->out[k].reg], (size_t)n * sizeof *to);
        } else {
            g->cvt->from_f32[t]((char *)r->out[k] + first * weft_dtype_size(t), reg[g->out[k].reg],
                                n);
        }
    }
}

/* How far a block may reach before a long row repeats. */
static int64_t block_length(const struct wf_prog *g, int64_t first, int64_t n)
{
    n = wf_min_i64(n, g->block);
    for (int i = 0; i < g->n_operands; i++)
        if (g->operand[i].kind == WF_PROG_ROW)
            n = wf_min_i64(n, g->operand[i].period - first % g->operand[i].period);
    return n;
}

void wf_prog_range(const struct wf_prog_run *r, int thread, int64_t first, int64_t n, float *anchor)
{
    float *mem = r->scratch + thread * r->prog->thread_floats;

    if (mem[0] == 0)
        prepare(r, mem);
    while (n > 0) {
        int64_t len = block_length(r->prog, first, n);

        run_block(r, mem, first, len, anchor);
        first += len;
        n -= len;
        if (anchor)
            anchor += len;
    }
}
