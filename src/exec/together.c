/* together.c - instructions on a device that run as one: neighbors whose kernel has the same
 * run_many, none of which reads or writes memory that another writes. Decided by addresses, each
 * time a plan is bound. */
#include "exec/exec.h"

enum { MOST = 256 }; /* in one group: every pair is compared */

static bool overlap(const struct wf_tensor *a, const struct wf_tensor *b)
{
    const char *p = a->data, *q = b->data;

    if (!p || !q || a->type.dtype == WEFT_NONE || b->type.dtype == WEFT_NONE)
        return false;
    return p < q + wf_type_bytes(&b->type) && q < p + wf_type_bytes(&a->type);
}

/* Whether an instruction writes this memory: a result, or the variable and slots of an update. */
static bool writes(const struct wf_instr *in, const struct wf_tensor *t)
{
    for (int k = 0; k < in->call.n_out; k++)
        if (overlap(&in->call.out[k], t))
            return true;
    for (int k = 0; in->is_update && k < in->call.n_in; k++)
        if ((k == 0 || k >= in->call.n_in - WF_OPTIM_MAX_SLOTS) && overlap(&in->call.in[k], t))
            return true;
    return false;
}

/* Whether a writes something that b reads or writes. */
static bool disturbs(const struct wf_instr *a, const struct wf_instr *b)
{
    for (int k = 0; k < b->call.n_in; k++)
        if (writes(a, &b->call.in[k]))
            return true;
    for (int k = 0; k < b->call.n_out; k++)
        if (writes(a, &b->call.out[k]))
            return true;
    return false;
}

static bool can_join(const struct wf_plan *p, int64_t first, int64_t i)
{
    const struct wf_instr *in = &p->instr[i];

    if (in->run_many != p->instr[first].run_many || in->n_undo > 0 || i - first >= MOST)
        return false;
    for (int64_t k = first; k < i; k++)
        if (disturbs(&p->instr[k], in) || disturbs(in, &p->instr[k]))
            return false;
    return true;
}

weft_status wf_plan_calls(struct wf_plan *p)
{
    p->calls = wf_arena_alloc(&p->arena, (size_t)(p->n_instr + 1) * sizeof *p->calls);
    if (!p->calls)
        return wf_err_nomem(p->ctx, (size_t)p->n_instr * sizeof *p->calls, "plan");
    for (int64_t i = 0; i < p->n_instr; i++)
        p->calls[i] = &p->instr[i].call;
    return WEFT_OK;
}

void wf_plan_together(struct wf_plan *p)
{
    for (int64_t i = 0, end; i < p->n_instr; i = end) {
        struct wf_instr *in = &p->instr[i];

        end = i + 1;
        in->n_together = 1;
        if (!in->run_many || in->n_undo > 0)
            continue;
        while (end < p->n_instr && can_join(p, i, end))
            end++;
        in->n_together = (int)(end - i);
    }
}
