/* bind_att.c - attention: through cuDNN, in tiles of our own, or a block for each query. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <math.h>

#include "kernels/cuda/dnn.h"

weft_status wfc_plan_attention(struct wf_kplan *p);
weft_status wfc_plan_flash(struct wf_kplan *p);
weft_status wfc_plan_attention_dnn(struct wf_kplan *p);
wf_kernel_fn wfc_run_attention, wfc_run_attention_grad, wfc_run_flash, wfc_run_flash_grad,
    wfc_run_attention_dnn, wfc_run_attention_dnn_grad;

static bool is_packed(const struct wf_op *op)
{
    return op->id == WF_OP_attention_packed || op->id == WF_OP_attention_packed_grad;
}

static bool is_grad(const struct wf_op *op)
{
    return op->id == WF_OP_attention_grad || op->id == WF_OP_attention_packed_grad;
}

static bool heads_first(const struct wf_op *op, const struct wf_attr *attr)
{
    return !strcmp(wf_attr_str(op, attr, "layout"), "bhtd");
}

/* Sizes of a call, from the operands' types. */
static struct wfc_att att_sizes(const struct wf_op *op, const struct wf_attr *attr,
                                const struct wf_type *first, const struct wf_type *second,
                                const struct wf_type *third)
{
    const int64_t *d = first->dim;
    struct wfc_att a = {.dtype = (int32_t)first->dtype};

    if (is_packed(op)) {
        a.n_b = (uint32_t)d[0];
        a.n_h = (uint32_t)d[3];
        a.n_q = a.n_k = (uint32_t)d[1];
        a.d = a.dv = (uint32_t)d[4];
    } else {
        int h = heads_first(op, attr) ? 1 : 2;

        a.n_b = (uint32_t)d[0];
        a.n_h = (uint32_t)d[h];
        a.n_q = (uint32_t)d[3 - h];
        a.n_k = (uint32_t)second->dim[3 - h];
        a.d = (uint32_t)d[3];
        a.dv = (uint32_t)third->dim[3];
    }
    return a;
}

weft_status wfc_plan_attention(struct wf_kplan *p)
{
    int first = is_grad(p->op) ? 1 : 0;
    bool packed = is_packed(p->op);
    struct wfc_att a = att_sizes(p->op, p->attr, &p->in[first], packed ? NULL : &p->in[first + 1],
                                 packed ? NULL : &p->in[first + 2]);

    if (a.n_q > WFC_ATT_MAX || a.n_k > WFC_ATT_MAX || !wf_is_float(p->in[0].dtype))
        return WEFT_ENOSUP;
    return wfc_plan_any(p);
}

static struct wfc_att_view plain_view(const struct wf_call *c, const struct wf_tensor *t)
{
    const int64_t *d = t->type.dim;
    bool head = heads_first(c->op, c->attr);

    return (struct wfc_att_view){t->data, 0, d[1] * d[2] * d[3], d[3] * (head ? d[2] : 1),
                                 d[3] * (head ? 1 : d[2])};
}

/* part: 0 q, 1 k, 2 v of [b, t, 3, h, d]. */
static struct wfc_att_view packed_view(const struct wf_tensor *t, int part)
{
    const int64_t *d = t->type.dim;
    int64_t row = d[3] * d[4];

    return (struct wfc_att_view){t->data, part * row, d[1] * 3 * row, d[4], 3 * row};
}

static struct wfc_att_view rows_view(const struct wf_tensor *t)
{
    const int64_t *d = t->type.dim;

    return (struct wfc_att_view){t->data, 0, d[1] * d[2] * d[3], d[3], d[2] * d[3]};
}

static struct wfc_att att_args(const struct wf_call *c, int first, int mask)
{
    bool packed = is_packed(c->op);
    struct wfc_att a =
        att_sizes(c->op, c->attr, &c->in[first].type, packed ? NULL : &c->in[first + 1].type,
                  packed ? NULL : &c->in[first + 2].type);

    a.causal = (int32_t)wf_call_int(c, "causal");
    a.scale = wf_call_float(c, "scale");
    if (a.scale == 0)
        a.scale = 1 / sqrt((double)a.d);
    a.q = packed ? packed_view(&c->in[first], 0) : plain_view(c, &c->in[first]);
    a.k = packed ? packed_view(&c->in[first], 1) : plain_view(c, &c->in[first + 1]);
    a.v = packed ? packed_view(&c->in[first], 2) : plain_view(c, &c->in[first + 2]);
    if (mask < c->n_in && c->in[mask].data) {
        const struct wf_type *t = &c->in[mask].type;
        int64_t stride = 1;

        a.mask = c->in[mask].data;
        a.mask_dtype = (int32_t)t->dtype;
        for (int i = t->rank - 1, k = 3; i >= 0; i--, k--) {
            a.mask_step[k] = t->dim[i] == 1 ? 0 : (uint32_t)stride;
            stride *= t->dim[i];
        }
    }
    return a;
}

static struct wfc_att forward_args(const struct wf_call *c)
{
    bool packed = is_packed(c->op);
    struct wfc_att a = att_args(c, 0, packed ? 1 : 3);

    a.y = packed ? rows_view(&c->out[0]) : plain_view(c, &c->out[0]);
    a.lse = c->out[1].data;
    a.lse_dtype = (int32_t)c->out[1].type.dtype;
    return a;
}

weft_status wfc_run_attention(const struct wf_call *c)
{
    struct wfc_att a = forward_args(c);

    return wfc_launch(c, WFC_K_wfc_att + wfc_wide(c), (int64_t)a.n_b * a.n_h * a.n_q, 1,
                      WFC_THREADS, &a);
}

static struct wfc_att grad_args(const struct wf_call *c)
{
    bool packed = is_packed(c->op);
    struct wfc_att a = att_args(c, 1, packed ? 4 : 6);
    int y = packed ? 2 : 4;

    a.dy = packed ? rows_view(&c->in[0]) : plain_view(c, &c->in[0]);
    a.y = packed ? rows_view(&c->in[y]) : plain_view(c, &c->in[y]);
    a.lse = c->in[y + 1].data;
    a.lse_dtype = (int32_t)c->in[y + 1].type.dtype;
    a.dq = packed ? packed_view(&c->out[0], 0) : plain_view(c, &c->out[0]);
    a.dk = packed ? packed_view(&c->out[0], 1) : plain_view(c, &c->out[1]);
    a.dv_out = packed ? packed_view(&c->out[0], 2) : plain_view(c, &c->out[2]);
    return a;
}

weft_status wfc_run_attention_grad(const struct wf_call *c)
{
    struct wfc_att a = grad_args(c);
    weft_status st;

    st = wfc_launch(c, WFC_K_wfc_att_dq + wfc_wide(c), (int64_t)a.n_b * a.n_h * a.n_q, 1,
                    WFC_THREADS, &a);
    return st ? st
              : wfc_launch(c, WFC_K_wfc_att_dkv + wfc_wide(c), (int64_t)a.n_b * a.n_h * a.n_k, 1,
                           WFC_THREADS, &a);
}

/* ---- attention in tiles: dev/flash.inl, of f32 dev/att32.inl --------------------------------- */

enum { FLASH_D = 64, FLASH_QUERIES = 128, FLASH_ROWS = 64 };

weft_status wfc_plan_flash(struct wf_kplan *p)
{
    bool packed = is_packed(p->op), grad = is_grad(p->op);
    int first = grad ? 1 : 0, mask = packed ? 1 : 3;
    struct wfc_att a = att_sizes(p->op, p->attr, &p->in[first], packed ? NULL : &p->in[first + 1],
                                 packed ? NULL : &p->in[first + 2]);
    weft_dtype t = p->in[0].dtype;

    mask = grad ? mask + 3 : mask; /* after dy; y and lse come before it */
    if (t == WEFT_F64 || !wf_is_float(t) || a.d > FLASH_D || a.dv > FLASH_D || !a.n_k || !a.n_q ||
        !a.d || !a.dv || (mask < p->n_in && p->in[mask].dtype))
        return WEFT_ENOSUP;
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].dtype && p->in[i].dtype != t && i != (packed ? 3 : 5))
            return WEFT_ENOSUP;
    if (grad)
        p->scratch_bytes = (size_t)a.n_b * a.n_h * a.n_q * sizeof(float);
    return wfc_plan_any(p);
}

static bool is_wide(const struct wfc_att_view *v)
{
    return !v->data || ((v->at | v->sb | v->sh | v->st) % 8 == 0 && (uintptr_t)v->data % 16 == 0);
}

/* Kernels of bf16, f16 and f32. */
struct flash {
    int bf16, f16, f32;
};

static weft_status launch_flash(const struct wf_call *c, struct flash k, struct wfc_att *a,
                                int64_t n, int64_t rows)
{
    bool full = a->dtype == WFC_F32;

    if (full)
        rows = FLASH_ROWS;
    a->wide = is_wide(&a->q) && is_wide(&a->k) && is_wide(&a->v) && is_wide(&a->y) &&
              is_wide(&a->dy) && a->d % 8 == 0 && a->dv % 8 == 0;
    return wfc_launch(c,
                      full                   ? k.f32
                      : a->dtype == WFC_BF16 ? k.bf16
                                             : k.f16,
                      (int64_t)a->n_b * a->n_h * ((n + rows - 1) / rows), 1, full ? 256 : 128, a);
}

weft_status wfc_run_flash(const struct wf_call *c)
{
    struct wfc_att a = forward_args(c);

    return launch_flash(c,
                        (struct flash){WFC_K_wfc_flash_bf16, WFC_K_wfc_flash_f16, WFC_K_wfc_att32},
                        &a, a.n_q, FLASH_QUERIES);
}

weft_status wfc_run_flash_grad(const struct wf_call *c)
{
    struct wfc_att a = grad_args(c);
    weft_status st;

    a.delta = c->scratch;
    st = launch_flash(
        c, (struct flash){WFC_K_wfc_flash_dq_bf16, WFC_K_wfc_flash_dq_f16, WFC_K_wfc_att32_dq}, &a,
        a.n_q, FLASH_ROWS);
    return st ? st
              : launch_flash(c,
                             (struct flash){WFC_K_wfc_flash_dkv_bf16, WFC_K_wfc_flash_dkv_f16,
                                            WFC_K_wfc_att32_dkv},
                             &a, a.n_k, FLASH_ROWS);
}

/* ---- through cuDNN: dnn_att.c ---------------------------------------------------------------- */

enum { DNN_LEAST = 64, DNN_MOST_D = 128 }; /* queries and keys; width of a head */

struct att_dnn {
    const struct wfc_dnn_plan *plan;
    size_t delta_at; /* in scratch, after the workspace */
};

static void strides_of(const struct wfc_att_view *v, int64_t *s)
{
    s[0] = v->sb;
    s[1] = v->sh;
    s[2] = v->st;
}

static struct wfc_dnn_desc describe(const struct wfc_att *a, bool grad)
{
    struct wfc_dnn_desc d;
    struct wfc_dnn_att *t = &d.att;

    memset(&d, 0, sizeof d);
    d.what = grad ? WFD_ATTENTION_GRAD : WFD_ATTENTION;
    t->dtype = a->dtype;
    t->causal = a->causal;
    t->n_b = a->n_b;
    t->n_h = a->n_h;
    t->n_q = a->n_q;
    t->n_k = a->n_k;
    t->d = a->d;
    t->dv = a->dv;
    strides_of(&a->q, t->q);
    strides_of(&a->k, t->k);
    strides_of(&a->v, t->v);
    strides_of(&a->y, t->y);
    if (grad) {
        strides_of(&a->dy, t->dy);
        strides_of(&a->dq, t->dq);
        strides_of(&a->dk, t->dk);
        strides_of(&a->dv_out, t->dv_out);
    }
    return d;
}

/* What the operands would be at run time, without their addresses. */
static struct wfc_att planned(const struct wf_kplan *p)
{
    struct wf_tensor in[8] = {0}, out[4] = {0};
    struct wf_call c = {.op = p->op,
                        .attr = p->attr,
                        .n_in = (int)wf_min_i64(p->n_in, WF_COUNT(in)),
                        .n_out = (int)wf_min_i64(p->n_out, WF_COUNT(out)),
                        .in = in,
                        .out = out};

    for (int i = 0; i < c.n_in; i++)
        in[i].type = p->in[i];
    for (int i = 0; i < c.n_out; i++)
        out[i].type = p->out[i];
    return is_grad(p->op) ? grad_args(&c) : forward_args(&c);
}

/* Halves without a mask, rows at multiples of 16 bytes. Small sets of keys are better in tiles. */
static bool suits_dnn(const struct wf_kplan *p, const struct wfc_att *a)
{
    int mask = (is_packed(p->op) ? 1 : 3) + (is_grad(p->op) ? 3 : 0);
    weft_dtype t = p->in[0].dtype;

    if ((t != WEFT_BF16 && t != WEFT_F16) || !a->n_b || !a->n_h || a->n_q < DNN_LEAST ||
        a->n_k < DNN_LEAST || a->d % 8 || a->dv % 8 || !a->d || !a->dv || a->d > DNN_MOST_D ||
        a->dv > DNN_MOST_D || (mask < p->n_in && p->in[mask].dtype))
        return false;
    if ((a->d > FLASH_D || a->dv > FLASH_D) && (a->n_q > WFC_ATT_MAX || a->n_k > WFC_ATT_MAX))
        return false; /* our own kernels do it if an address is odd */
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].dtype && p->in[i].dtype != t && i != (is_packed(p->op) ? 3 : 5))
            return false;
    return wfc_fits(p);
}

weft_status wfc_plan_attention_dnn(struct wf_kplan *p)
{
    bool grad = is_grad(p->op);
    struct att_dnn *s = wf_kplan_state(p, sizeof *s);
    struct wfc_att a = planned(p);
    struct wfc_dnn_desc desc;
    weft_status st;

    if (!s)
        return wf_kplan_nomem(p);
    if ((p->without & WF_WITHOUT_ATTENTION) || !suits_dnn(p, &a))
        return WEFT_ENOSUP;
    desc = describe(&a, grad);
    st = wfc_dnn_find(p->device, &desc, &s->plan);
    if (st)
        return st;
    p->impl = s->plan->name;
    s->delta_at = (size_t)wf_round_up((int64_t)s->plan->workspace, 256);
    p->scratch_bytes = s->delta_at;
    if (grad)
        p->scratch_bytes += (size_t)a.n_b * a.n_h * a.n_q * sizeof(float);
    return WEFT_OK;
}

static const void *address(const struct wfc_att_view *v)
{
    return (const char *)v->data + v->at * (int64_t)sizeof(uint16_t);
}

/* False: an address is not at a multiple of 16 bytes. */
static weft_status run_dnn(const struct wf_call *c, const struct wfc_att *a, bool grad, bool *ran)
{
    const struct att_dnn *s = c->state;
    float scale = (float)a->scale, never = -INFINITY, one = 1;
    const struct {
        int64_t id;
        const void *at;
        bool is_value, wanted; /* cuDNN refuses what its graph does not have */
    } given[] = {{WFD_Q, address(&a->q), false, true},
                 {WFD_K, address(&a->k), false, true},
                 {WFD_V, address(&a->v), false, true},
                 {WFD_Y, address(&a->y), false, true},
                 {WFD_LSE, a->lse, false, true},
                 {WFD_SCALE, &scale, true, true},
                 {WFD_NEVER, &never, true, a->causal},
                 {WFD_ONE, &one, true, grad},
                 {WFD_DY, address(&a->dy), false, grad},
                 {WFD_DQ, address(&a->dq), false, grad},
                 {WFD_DK, address(&a->dk), false, grad},
                 {WFD_DV, address(&a->dv_out), false, grad},
                 {WFD_DELTA, (char *)c->scratch + s->delta_at, false, grad}};
    int64_t ids[WF_COUNT(given)];
    const void *at[WF_COUNT(given)];
    int n = 0;

    *ran = true;
    for (int i = 0; i < (int)WF_COUNT(given); i++) {
        if (!given[i].wanted)
            continue;
        if (!given[i].is_value && (uintptr_t)given[i].at % 16)
            *ran = false;
        ids[n] = given[i].id;
        at[n++] = given[i].at;
    }
    return *ran ? wfc_dnn_run(c, s->plan, n, ids, at, c->scratch) : WEFT_OK;
}

static bool fits_tiles(const struct wfc_att *a)
{
    return a->d <= FLASH_D && a->dv <= FLASH_D;
}

weft_status wfc_run_attention_dnn(const struct wf_call *c)
{
    struct wfc_att a = forward_args(c);
    bool ran;
    weft_status st = run_dnn(c, &a, false, &ran);

    if (st || ran)
        return st;
    return fits_tiles(&a) ? wfc_run_flash(c) : wfc_run_attention(c);
}

weft_status wfc_run_attention_dnn_grad(const struct wf_call *c)
{
    struct wfc_att a = grad_args(c);
    bool ran;
    weft_status st = run_dnn(c, &a, true, &ran);

    if (st || ran)
        return st;
    return fits_tiles(&a) ? wfc_run_flash_grad(c) : wfc_run_attention_grad(c);
}

#endif
