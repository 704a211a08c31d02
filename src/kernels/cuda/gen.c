/* gen.c - source text of a kernel for one program: sizes, types, strides and functions are
 * constants, operands and results are read and written several elements at a time. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"

extern const char wf_cuda_text_rtc[], wf_cuda_text_math[], wf_cuda_text_ew[]; /* bin.c */

/* The operands of a program, and how many elements a thread has at a time. */
struct program {
    const struct wf_kplan *p;
    int n_operands, n_steps, n_outs, wide;
    int64_t count;
    struct wf_tensor operand[WFC_OPERANDS]; /* types; no data */
    struct wfc_operand view[WFC_OPERANDS];
    const struct wf_attr *prog, *params, *outs;
};

static const char *type_name(weft_dtype t)
{
    return t == WEFT_F32 ? "f32" : t == WEFT_BF16 ? "bf16" : t == WEFT_F16 ? "f16" : "bool";
}

/* ---- how wide -------------------------------------------------------------------------------- */

/* Whether V neighbors of operand o are V neighbors in memory, or one element. */
static bool is_straight(const struct wfc_operand *o, int v)
{
    if (o->kind != WFC_GENERAL)
        return true;
    if (o->box.dim[0] % (uint32_t)v || (o->box.stride[0] != 1 && o->box.stride[0] != 0))
        return false;
    for (int a = 1; a < o->box.rank; a++)
        if (o->box.stride[0] == 1 && o->box.stride[a] % v)
            return false;
    return true;
}

/* 8 elements where halves are among them, otherwise 4, or as few as the sizes need. */
static int find_width(const struct program *g)
{
    int v = 4;

    for (int i = 0; i < g->n_operands; i++)
        if (g->view[i].kind == WFC_FULL && weft_dtype_size(g->operand[i].type.dtype) == 2)
            v = 8;
    if (g->count < 132 * 1024) /* rather more threads */
        v = 4;
    while (v > 1 && g->count % v)
        v /= 2;
    return v;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_codes(struct wf_buf *b)
{
#define OP(name, ...)
#define OP_EW(n_param, name, ...) wf_buf_printf(b, "#define WFC_EW_" #name " %d\n", WFC_EW_##name);
#include "op/ops_ew.def"
#undef OP
    wf_buf_printf(b, "#define WFC_EW_copy %d\n#define WFC_EW_sigmoid_xent %d\n", WFC_EW_copy,
                  WFC_EW_sigmoid_xent);
}

/* The offset of element `index` in a box. */
static void put_offset(struct wf_buf *b, const struct wfc_box *x, const char *index)
{
    uint64_t below = 1;

    wf_buf_printf(b, "(i64)0");
    for (int a = 0; a < x->rank; a++) {
        if (x->stride[a]) {
            wf_buf_printf(b, " + (i64)(%s / %lluu", index, (unsigned long long)below);
            if (a + 1 < x->rank)
                wf_buf_printf(b, " %% %uu", x->dim[a]);
            wf_buf_printf(b, ") * %d", x->stride[a]);
        }
        below *= x->dim[a];
    }
}

static void put_operand(struct wf_buf *b, const struct program *g, int k)
{
    const struct wfc_operand *o = &g->view[k];
    const char *type = type_name(g->operand[k].type.dtype);

    wf_buf_printf(b, "        float r%d[V];\n", k);
    if (o->kind == WFC_FULL) {
        wf_buf_printf(b, "        get_%s(r%d, A->in[%d], i);\n", type, k, k);
    } else if (o->kind == WFC_SCALAR || (is_straight(o, g->wide) && o->box.stride[0] == 0)) {
        wf_buf_printf(b, "        { float x = one_%s(A->in[%d], ", type, k);
        if (o->kind == WFC_SCALAR)
            wf_buf_printf(b, "0");
        else
            put_offset(b, &o->box, "(u32)i");
        wf_buf_printf(b, "); UNROLLED for (int j = 0; j < V; j++) r%d[j] = x; }\n", k);
    } else if (is_straight(o, g->wide)) {
        wf_buf_printf(b, "        get_%s(r%d, A->in[%d], ", type, k, k);
        put_offset(b, &o->box, "(u32)i");
        wf_buf_printf(b, ");\n");
    } else {
        wf_buf_printf(b,
                      "        UNROLLED for (int j = 0; j < V; j++) { u32 e = (u32)i + (u32)j; "
                      "r%d[j] = one_%s(A->in[%d], ",
                      k, type, k);
        put_offset(b, &o->box, "e");
        wf_buf_printf(b, "); }\n");
    }
}

static uint32_t bits_of(const struct program *g, int64_t i)
{
    float f = i >= 0 && i < g->params->n ? (float)g->params->floats[i] : 0;
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static void put_step(struct wf_buf *b, const struct program *g, int s)
{
    const int64_t *i = &g->prog->ints[5 * s];
    int at = g->n_operands + s;

    wf_buf_printf(
        b, "        float r%d[V];\n        UNROLLED for (int j = 0; j < V; j++) r%d[j] = ", at, at);
    wf_buf_printf(b, "ew_f(%d, r%lld[j], r%lld[j], r%lld[j], bits_f(0x%xu), bits_f(0x%xu));\n",
                  wfc_code_of((int)i[0]), (long long)wf_max_i64(i[1], 0),
                  (long long)wf_max_i64(i[2], 0), (long long)wf_max_i64(i[3], 0),
                  bits_of(g, i[4] < 0 ? -1 : i[4]), bits_of(g, i[4] < 0 ? -1 : i[4] + 1));
}

static void put_source(struct wf_buf *b, const struct program *g)
{
    wf_buf_printf(b, "#define V %d\n%s%s", g->wide, wf_cuda_text_rtc, wf_cuda_text_math);
    put_codes(b);
    wf_buf_printf(b, "#define REAL float\n#define R(name) name##_f\n%s", wf_cuda_text_ew);
    wf_buf_printf(b,
                  "struct args { const void *in[%d]; void *out[%d]; };\n"
                  "DEV void body(const struct args *A, i64 first, i64 step)\n{\n"
                  "    for (i64 i = first * V; i < %lld; i += step * V) {\n",
                  WFC_OPERANDS, WFC_OUTS, (long long)g->count);
    for (int k = 0; k < g->n_operands; k++)
        put_operand(b, g, k);
    for (int s = 0; s < g->n_steps; s++)
        put_step(b, g, s);
    for (int k = 0; k < g->n_outs; k++)
        wf_buf_printf(b, "        put_%s(A->out[%d], i, r%lld);\n", type_name(g->p->out[k].dtype),
                      k, (long long)g->outs->ints[k]);
    wf_buf_printf(b,
                  "    }\n}\n#ifdef __CUDACC_RTC__\n"
                  "extern \"C\" __global__ void __launch_bounds__(%d)\n"
                  "wf_program(const __grid_constant__ struct args a)\n{\n"
                  "#if __CUDA_ARCH__ >= 900\n"
                  "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
                  "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
                  "#endif\n"
                  "    body(&a, (i64)blockIdx.x * %d + threadIdx.x, (i64)gridDim.x * %d);\n}\n"
                  "#else\nvoid wf_program(const void *a);\n"
                  "void wf_program(const void *a)\n{\n    body(a, 0, 1);\n}\n#endif\n",
                  WFC_MADE_THREADS, WFC_MADE_THREADS, WFC_MADE_THREADS);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static bool set_program(struct program *g, struct wf_kplan *p, int first_in,
                        const struct wf_type *anchor)
{
    *g = (struct program){.p = p,
                          .count = wf_type_count(&p->out[0]),
                          .prog = wf_attr(p->op, p->attr, "prog"),
                          .params = wf_attr(p->op, p->attr, "params"),
                          .outs = wf_attr(p->op, p->attr, "outs")};
    g->n_steps = g->prog->n / 5;
    g->n_outs = g->outs->n;
    if (anchor)
        g->operand[g->n_operands++].type = *anchor;
    for (int i = first_in; i < p->n_in; i++)
        g->operand[g->n_operands++].type = p->in[i];
    for (int i = 0; i < g->n_operands; i++)
        g->view[i] = wfc_operand_of(&g->operand[i], &p->out[0]);
    g->wide = find_width(g);
    return g->count > 0;
}

const struct wfc_made *wfc_make_program(struct wf_kplan *p, int first_in,
                                        const struct wf_type *anchor)
{
    struct wf_cuda *d = p->device;
    struct wfc_made *made;
    struct program g;
    struct wf_buf b;
    int64_t per_block;
    CUfunction fn = NULL;

    if (!d->api.rtc || !set_program(&g, p, first_in, anchor))
        return NULL;
    wf_buf_init(&b, d->ctx, 1 << 20);
    put_source(&b, &g);
    if (!b.st)
        fn = wfc_compile(d, b.data);
    wf_buf_free(&b);
    made = fn ? wf_arena_alloc(p->arena, sizeof *made) : NULL;
    if (!made)
        return NULL;
    per_block = (int64_t)WFC_MADE_THREADS * g.wide;
    made->fn = fn;
    made->n_blocks = wf_min_i64((g.count + per_block - 1) / per_block, (int64_t)d->cores * 32);
    for (int i = 0; i < g.n_operands; i++)
        made->full |= (g.view[i].kind == WFC_FULL ||
                       (g.view[i].kind == WFC_GENERAL && is_straight(&g.view[i], g.wide)))
                      << i;
    return made;
}

#endif
