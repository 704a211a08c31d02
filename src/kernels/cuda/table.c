/* table.c - which kernel a call gets on a GPU, and what can be fused there. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"

_Static_assert(WFC_F32 == (int)WEFT_F32 && WFC_F64 == (int)WEFT_F64 && WFC_F16 == (int)WEFT_F16 &&
                   WFC_BF16 == (int)WEFT_BF16 && WFC_I8 == (int)WEFT_I8 && WFC_U8 == (int)WEFT_U8 &&
                   WFC_I32 == (int)WEFT_I32 && WFC_I64 == (int)WEFT_I64 &&
                   WFC_BOOL == (int)WEFT_BOOL && (int)WFC_RANK == WEFT_MAX_RANK,
               "args.h repeats weft's dtypes");
_Static_assert(sizeof(struct wfc_prog) <= 4096 && sizeof(struct wfc_parts) <= 4096 &&
                   sizeof(struct wfc_sumsq) <= 4096 && sizeof(struct wfc_add_n) <= 4096 &&
                   sizeof(struct wfc_update) <= 4096 && sizeof(struct wfc_tables) <= 4096 &&
                   sizeof(struct wfc_lookups) <= 4096 && sizeof(struct wfc_casts) <= 4096,
               "a kernel's arguments fit 4 KB");

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/cuda/kernels_cuda.def"
#undef KERNEL

static const struct wf_kernel rows[] = {
#define KERNEL(op, impl, plan_fn, run_fn) {WF_OP_##op, impl, plan_fn, run_fn},
#include "kernels/cuda/kernels_cuda.def"
#undef KERNEL
    {-1, NULL, NULL, NULL},
};

weft_status wf_cuda_choose(void *dev, struct wf_kplan *p, const struct wf_kernel **out)
{
    p->device = dev;
    for (int i = 0; rows[i].op_id >= 0; i++) {
        weft_status st;

        if (rows[i].op_id != p->op->id || p->op->user)
            continue;
        p->state = NULL;
        p->scratch_bytes = 0;
        p->step_bytes = 0;
        p->step_fill = NULL;
        p->run_many = NULL;
        p->impl = rows[i].impl;
        st = rows[i].plan(p);
        if (st == WEFT_ENOSUP)
            continue;
        *out = &rows[i];
        return st;
    }
    return WEFT_ENOSUP;
}

/* ---- checks that plans share ----------------------------------------------------------------- */

bool wfc_type_fits(const struct wf_type *t)
{
    int64_t n = t->dtype ? wf_type_count(t) : 0;

    for (int i = 0; i < t->rank && t->dtype; i++)
        if (t->dim[i] >= INT32_MAX)
            return false;
    return n >= 0 && n < INT32_MAX;
}

bool wfc_fits(const struct wf_kplan *p)
{
    for (int i = 0; i < p->n_in; i++)
        if (!wfc_type_fits(&p->in[i]))
            return false;
    for (int i = 0; i < p->n_out; i++)
        if (!wfc_type_fits(&p->out[i]))
            return false;
    return true;
}

weft_status wfc_plan_any(struct wf_kplan *p)
{
    return wfc_fits(p) ? WEFT_OK : WEFT_ENOSUP;
}

weft_status wfc_plan_floats(struct wf_kplan *p)
{
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].dtype && !wf_is_float(p->in[i].dtype))
            return WEFT_ENOSUP;
    for (int i = 0; i < p->n_out; i++)
        if (!wf_is_float(p->out[i].dtype))
            return WEFT_ENOSUP;
    return wfc_plan_any(p);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

struct wfc_box wfc_box_of(int rank, const int64_t *dim, const int64_t *stride)
{
    struct wfc_box b = {0};
    int n = 0;

    for (int a = rank - 1; a >= 0; a--) {
        if (dim[a] == 1)
            continue;
        if (n && stride[a] == (int64_t)b.stride[n - 1] * b.dim[n - 1]) {
            b.dim[n - 1] *= (uint32_t)dim[a];
            continue;
        }
        b.dim[n] = (uint32_t)dim[a];
        b.stride[n++] = (int32_t)stride[a];
    }
    if (!n) { /* one element; kernels see a box of rank 0 as "in order" */
        b.dim[n] = 1;
        b.stride[n++] = 0;
    }
    b.rank = n;
    return b;
}

struct wfc_box wfc_broadcast_box(const struct wf_type *t, const struct wf_type *shape)
{
    int64_t stride[WEFT_MAX_RANK] = {0}, step = 1;

    for (int a = shape->rank - 1, b = t->rank - 1; b >= 0; a--, b--) {
        stride[a] = t->dim[b] == 1 ? 0 : step;
        step *= t->dim[b];
    }
    return wfc_box_of(shape->rank, shape->dim, stride);
}

struct wfc_operand wfc_operand_of(const struct wf_tensor *t, const struct wf_type *shape)
{
    struct wfc_operand o = {.data = t->data, .dtype = (int16_t)t->type.dtype};
    int64_t n = wf_type_count(&t->type);

    if (n == wf_type_count(shape))
        o.kind = WFC_FULL;
    else if (n == 1)
        o.kind = WFC_SCALAR;
    else {
        o.kind = WFC_GENERAL;
        o.box = wfc_broadcast_box(&t->type, shape);
    }
    return o;
}

#endif
