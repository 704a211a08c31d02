/* choose.c - chooses the kernel of a call. */
#include "kernels/cpu/widen.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels.def"
#undef KERNEL

static const struct wf_kernel fast[] = {
#define KERNEL(op, impl, plan_fn, run_fn) {WF_OP_##op, impl, plan_fn, run_fn},
#include "kernels/kernels.def"
#undef KERNEL
    {-1, NULL, NULL, NULL},
};

static const struct wf_kernel reference[WF_N_OPS] = {
#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) \
    {WF_OP_##name, "ref", NULL, ref},
#include "op/ops.def"
#undef OP
};

static const struct wf_kernel user_kernel = {-1, "user", NULL, wf_user_op_run};

const struct wf_kernel *wf_kernel_ref(const struct wf_op *op)
{
    return op->user ? &user_kernel : &reference[op->id];
}

uint64_t wf_kernels_hash(void)
{
    uint64_t h = WF_N_OPS;

    for (int i = 0; fast[i].op_id >= 0; i++)
        h = wf_hash64(fast[i].impl, strlen(fast[i].impl), h ^ (uint64_t)fast[i].op_id);
    return h;
}

bool wf_kplan_all(const struct wf_kplan *p, weft_dtype t)
{
    for (int i = 0; i < p->n_in; i++)
        if (p->in[i].dtype != t && p->in[i].dtype != WEFT_NONE)
            return false;
    for (int i = 0; i < p->n_out; i++)
        if (p->out[i].dtype != t)
            return false;
    return true;
}

void *wf_kplan_state(struct wf_kplan *p, size_t bytes)
{
    void *s = wf_arena_alloc(p->arena, bytes);

    p->state = s;
    return s;
}

weft_status wf_kplan_nomem(const struct wf_kplan *p)
{
    return wf_err_nomem(p->ctx, 0, p->op->name);
}

/* The first kernel of the table that accepts the call; *out stays NULL if none does. The table also
 * has the reference kernels that need scratch memory, for their plan. */
static weft_status choose_listed(struct wf_kplan *p, bool ref_only, const struct wf_kernel **out)
{
    for (int i = 0; fast[i].op_id >= 0; i++) {
        weft_status st;

        if (fast[i].op_id != p->op->id || (ref_only && strcmp(fast[i].impl, "ref") != 0))
            continue;
        p->state = NULL;
        p->scratch_bytes = 0;
        p->impl = fast[i].impl;
        st = fast[i].plan ? fast[i].plan(p) : WEFT_OK;
        if (st == WEFT_ENOSUP)
            continue;
        *out = &fast[i];
        return st;
    }
    return WEFT_OK;
}

static weft_status choose_fast(struct wf_kplan *p, const struct wf_kernel **out)
{
    return choose_listed(p, false, out);
}

weft_status wf_kernel_choose(struct wf_kplan *p, bool ref_only, const struct wf_kernel **out)
{
    weft_status st;

    *out = NULL;
    st = choose_listed(p, ref_only, out);
    if (!st && !*out && !ref_only)
        st = wf_plan_widened(p, choose_fast, out);
    if (st || *out)
        return st;
    p->state = NULL;
    p->scratch_bytes = 0;
    *out = wf_kernel_ref(p->op);
    p->impl = (*out)->impl;
    return WEFT_OK;
}
