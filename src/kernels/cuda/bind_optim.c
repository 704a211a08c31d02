/* bind_optim.c - updates of variables, and norms of many tensors. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/optim.h"
#include "op/schedule.h"
#include "op/shape.h"

weft_status wfc_plan_apply(struct wf_kplan *p);
weft_status wfc_plan_assign_add(struct wf_kplan *p);
weft_status wfc_plan_apply_rows(struct wf_kplan *p);
weft_status wfc_plan_global_norm(struct wf_kplan *p);
weft_status wfc_plan_penalty(struct wf_kplan *p);
weft_status wfc_plan_scatter_rows(struct wf_kplan *p);
static wf_kernel_many_fn run_applies, run_apply_rows;
wf_kernel_fn wfc_run_scatter_rows, wfc_run_apply, wfc_run_apply_rows, wfc_run_assign_add,
    wfc_run_global_norm, wfc_run_penalty;

enum { NORM_BLOCK = 4096, SPANS = 64 };

/* ---- the scalars of a step ------------------------------------------------------------------- */

/* Where the optional rate stands among a call's operands. */
static int rate_of(const struct wf_op *op)
{
    return op->id == WF_OP_apply ? 2 : 3;
}

static double scheduled_rate(const struct wf_call *c, const double *attrs)
{
    const struct wf_schedule_row *s = wf_schedule_find(wf_attr_str(c->op, c->attr, "schedule"));
    const struct wf_attr *p = wf_call_attr(c, "schedule_params");

    return s ? wf_schedule_rate(s, p->floats, p->floats + s->n_attrs, p->n - s->n_attrs,
                                c->iteration - 1)
             : attrs[WF_OPTIM_ATTR_LR];
}

/* On the host, before each run. With a rate among the operands: the scalars of rate 1, and FTRL's
 * l2 as a constant and a part over the rate. */
static void fill_scalars(const struct wf_call *c, void *to)
{
    const struct wf_optim_row *row = wf_optim_find(wf_attr_str(c->op, c->attr, "optimizer"));
    const double *attrs = wf_call_attr(c, "params")->floats;
    bool given = c->in[rate_of(c->op)].type.dtype != WEFT_NONE;
    struct wfc_scalars s = {0};
    struct wf_optim_scalars twice;

    wf_optim_prepare(row, attrs, given ? 1 : scheduled_rate(c, attrs), c->iteration, 1, &s.k);
    if (given) {
        wf_optim_prepare(row, attrs, 2, c->iteration, 1, &twice);
        s.beta = 2 * (s.k.l2 - twice.l2);
        s.two_l2 = s.k.l2 - s.beta;
    }
    memcpy(to, &s, sizeof s);
}

static bool is_lamb(const struct wf_op *op, const struct wf_attr *attr)
{
    return strcmp(wf_attr_str(op, attr, "optimizer"), "lamb") == 0;
}

weft_status wfc_plan_update(struct wf_kplan *p, int rate)
{
    const struct wf_optim_row *row = wf_optim_find(wf_attr_str(p->op, p->attr, "optimizer"));

    (void)rate;
    if (!row || !wfc_fits(p))
        return WEFT_ENOSUP;
    if (!strcmp(row->name, "lamb") && p->op->id != WF_OP_apply)
        return WEFT_ENOSUP;
    p->step_bytes = sizeof(struct wfc_scalars);
    p->step_fill = fill_scalars;
    return WEFT_OK;
}

static struct wfc_apply apply_args(const struct wf_call *c, int rate, const void *gradient)
{
    struct wfc_apply a = {.n = (uint32_t)wf_count(&c->in[0]),
                          .own = c->own,
                          .rate = c->in[rate].data,
                          .scale = c->in[rate + 1].data,
                          .w = c->in[0].data,
                          .g = gradient,
                          .fault = wfc_fault(c)};

    for (int i = 0; i < 3; i++)
        a.slot[i] = c->in[c->n_in - 3 + i].data;
    return a;
}

/* ---- updates --------------------------------------------------------------------------------- */

weft_status wfc_run_update(const struct wf_call *c, int rate, const void *gradient, void *scratch)
{
    struct wfc_apply a = apply_args(c, rate, gradient);
    weft_status st;

    if (!is_lamb(c->op, c->attr))
        return wfc_launch_each(c, WFC_K_wfc_apply, a.n, &a);
    a.sums = scratch;
    a.n_blocks = (a.n + NORM_BLOCK - 1) / NORM_BLOCK;
    st = wfc_launch(c, WFC_K_wfc_lamb_slots, a.n_blocks, 1, WFC_THREADS, &a);
    return st ? st : wfc_launch_each(c, WFC_K_wfc_lamb_apply, a.n, &a);
}

weft_status wfc_plan_apply(struct wf_kplan *p)
{
    if (is_lamb(p->op, p->attr))
        p->scratch_bytes =
            (size_t)((wf_type_count(&p->in[0]) + NORM_BLOCK - 1) / NORM_BLOCK) * 2 * sizeof(double);
    p->run_many = run_applies;
    return wfc_plan_update(p, 2);
}

weft_status wfc_run_apply(const struct wf_call *c)
{
    return wfc_run_update(c, 2, c->in[1].data, c->scratch);
}

/* Whether an update can be part of a kernel of many. */
static bool can_group(const struct wf_call *c)
{
    uintptr_t bits = (uintptr_t)c->in[0].data | (uintptr_t)c->in[1].data;

    for (int i = 0; i < 3; i++)
        bits |= (uintptr_t)c->in[c->n_in - 3 + i].data;
    return bits % 16 == 0 && !is_lamb(c->op, c->attr);
}

/* Elements of a block: a few for each thread, more where there are many. Depends
 * on the sizes only. */
static uint32_t update_each(const struct wf_call *const *calls, int n)
{
    int64_t total = 0, least = (int64_t)WFC_THREADS * 4;

    for (int i = 0; i < n; i++)
        total += wf_count(&calls[i]->in[0]);
    return (uint32_t)(least * wf_max_i64(1, wf_min_i64(8, total / (least * 512))));
}

static weft_status run_applies(const struct wf_call *const *calls, int n)
{
    struct wfc_update u = {.each = update_each(calls, n)};
    uint32_t n_blocks = 0;
    weft_status st = WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        const struct wf_call *c = calls[i];
        struct wfc_apply a = apply_args(c, 2, c->in[1].data);

        if (can_group(c)) {
            u.fault = a.fault;
            u.one[u.n++] = (struct wfc_update_one){.own = a.own,
                                                   .rate = a.rate,
                                                   .scale = a.scale,
                                                   .w = a.w,
                                                   .g = a.g,
                                                   .slot = {a.slot[0], a.slot[1], a.slot[2]},
                                                   .n = a.n,
                                                   .first = n_blocks};
            n_blocks += (a.n + u.each - 1) / u.each;
        } else {
            st = wfc_run_apply(c);
        }
        if (!st && u.n > 0 && (u.n == WFC_UPDATES || i + 1 == n)) {
            st = wfc_launch(c, WFC_K_wfc_update, n_blocks, 1, WFC_THREADS, &u);
            u.n = n_blocks = 0;
        }
    }
    return st;
}

/* ---- looked-up rows -------------------------------------------------------------------------- */

/* Two lists of keys, or one if it is a single chunk. */
static size_t keys_bytes(int64_t n_ids)
{
    return (size_t)n_ids * sizeof(uint64_t) * (n_ids > WFC_SORTED ? 2 : 1);
}

static void set_keys(struct wfc_table *r, const struct wf_tensor *ids, int input, void *scratch)
{
    r->ids = ids->data;
    r->id_dtype = (int32_t)ids->type.dtype;
    r->id_input = input;
    r->n_ids = (uint32_t)wf_count(ids);
    r->chunks = scratch;
    r->keys = r->chunks + (r->n_ids > WFC_SORTED ? r->n_ids : 0);
}

/* Threads that share a row: a power of two. */
static uint32_t lanes_of(int64_t width)
{
    uint32_t lanes = 1;

    while (lanes < WFC_THREADS && lanes < width)
        lanes *= 2;
    return lanes;
}

/* Sorts the keys of all tables; *most: the largest number of ids. */
static weft_status sort_keys(const struct wf_call *c, struct wfc_tables *a, int64_t *most)
{
    weft_status st;

    *most = 0;
    a->words = c->trouble;
    for (uint32_t i = 0; i < a->n; i++)
        *most = wf_max_i64(*most, a->one[i].n_ids);
    st = wfc_launch(c, WFC_K_wfc_sort_ids, (*most + WFC_SORTED - 1) / WFC_SORTED, a->n, 1024, a);
    if (!st && *most > WFC_SORTED)
        st = wfc_launch(c, WFC_K_wfc_merge_ids, (*most + WFC_THREADS - 1) / WFC_THREADS, a->n,
                        WFC_THREADS, a);
    return st;
}

weft_status wfc_plan_apply_rows(struct wf_kplan *p)
{
    p->scratch_bytes = keys_bytes(wf_type_count(&p->in[1]));
    p->run_many = run_apply_rows;
    return wfc_plan_update(p, 3);
}

static weft_status run_apply_rows(const struct wf_call *const *calls, int n)
{
    struct wfc_tables a = {.n = 0};
    weft_status st = WEFT_OK;
    int64_t most, width = 1;

    for (int i = 0; i < n && !st; i++) {
        const struct wf_call *c = calls[i];
        struct wfc_apply one = apply_args(c, 3, c->in[2].data);
        struct wfc_table *r = &a.one[a.n++];

        *r = (struct wfc_table){.own = one.own,
                                .rate = one.rate,
                                .scale = one.scale,
                                .w = one.w,
                                .g = one.g,
                                .slot = {one.slot[0], one.slot[1], one.slot[2]},
                                .width = (uint32_t)c->in[0].type.dim[1],
                                .n_rows = (uint32_t)c->in[0].type.dim[0],
                                .instr = c->instr};
        set_keys(r, &c->in[1], 1, c->scratch);
        width = wf_max_i64(width, r->width);
        if (a.n < WFC_TABLES && i + 1 < n)
            continue;
        a.lanes = lanes_of(width);
        st = sort_keys(c, &a, &most);
        if (!st)
            st = wfc_launch(c, WFC_K_wfc_apply_rows,
                            (most * a.lanes + WFC_THREADS - 1) / WFC_THREADS, a.n, WFC_THREADS, &a);
        a.n = 0;
        width = 1;
    }
    return st;
}

weft_status wfc_run_apply_rows(const struct wf_call *c)
{
    return run_apply_rows(&c, 1);
}

/* ---- sums of looked-up rows: the gradient of a table ----------------------------------------- */

weft_status wfc_plan_scatter_rows(struct wf_kplan *p)
{
    if (!wf_is_float(p->out[0].dtype))
        return WEFT_ENOSUP;
    p->scratch_bytes = keys_bytes(wf_type_count(&p->in[0]));
    return wfc_plan_any(p);
}

weft_status wfc_run_scatter_rows(const struct wf_call *c)
{
    const struct wf_type *y = &c->out[0].type;
    struct wfc_tables a = {.n = 1};
    struct wfc_sum_rows s = {.width = (uint32_t)wf_type_part(y, 1, y->rank),
                             .dtype = (int32_t)y->dtype,
                             .x = c->in[1].data,
                             .y = c->out[0].data};
    int64_t n;
    weft_status st = wfc_zero(c, &c->out[0]);

    a.one[0].n_rows = (uint32_t)y->dim[0];
    a.one[0].instr = c->instr;
    set_keys(&a.one[0], &c->in[0], 0, c->scratch);
    s.lanes = lanes_of(s.width);
    s.n_ids = a.one[0].n_ids;
    s.keys = a.one[0].keys;
    if (!st)
        st = sort_keys(c, &a, &n);
    return st ? st
              : wfc_launch(c, WFC_K_wfc_sum_rows + wfc_wide(c),
                           (n * s.lanes + WFC_THREADS - 1) / WFC_THREADS, 1, WFC_THREADS, &s);
}

static weft_status run_assigns(const struct wf_call *const *calls, int n);

weft_status wfc_plan_assign_add(struct wf_kplan *p)
{
    p->run_many = run_assigns;
    return wfc_plan_any(p);
}

weft_status wfc_run_assign_add(const struct wf_call *c)
{
    weft_dtype t = c->out[0].type.dtype;
    struct wfc_assign a = {.fault = wfc_fault(c),
                           .n = (uint32_t)wf_count(&c->out[0]),
                           .dtype = (int32_t)t,
                           .ema = c->op->id == WF_OP_assign_ema,
                           .var = c->in[0].data,
                           .value = c->in[1].data,
                           .out = c->out[0].data};

    if (a.ema)
        a.momentum = wf_call_float(c, "momentum");
    return wfc_launch_each(
        c, wf_is_float(t) ? WFC_K_wfc_assign + wfc_wide(c) : WFC_K_wfc_assign_int, a.n, &a);
}

static double momentum_of(const struct wf_call *c)
{
    return c->op->id == WF_OP_assign_ema ? wf_call_float(c, "momentum") : 0;
}

/* Of small variables, such as the statistics of normalizations: those of one momentum together. */
static bool same_assign(const struct wf_call *a, const struct wf_call *b)
{
    return b->out[0].type.dtype == WEFT_F32 && b->in[1].type.dtype == WEFT_F32 &&
           a->op->id == b->op->id && momentum_of(a) == momentum_of(b);
}

static weft_status run_assigns(const struct wf_call *const *calls, int n)
{
    weft_status st = WEFT_OK;

    for (int i = 0, end; i < n && !st; i = end) {
        struct wfc_assigns a = {.fault = wfc_fault(calls[i]),
                                .ema = calls[i]->op->id == WF_OP_assign_ema,
                                .momentum = momentum_of(calls[i])};
        int64_t most = 0;

        for (end = i; end < n && end - i < WFC_ASSIGNS && same_assign(calls[i], calls[end]);
             end++) {
            const struct wf_call *c = calls[end];

            a.one[end - i].var = c->in[0].data;
            a.one[end - i].value = c->in[1].data;
            a.one[end - i].out = c->out[0].data;
            a.one[end - i].n = (uint32_t)wf_count(&c->out[0]);
            most = wf_max_i64(most, a.one[end - i].n);
        }
        if (end < i + 2) {
            st = wfc_run_assign_add(calls[i]);
            end = i + 1;
        } else {
            st = wfc_launch(calls[i], WFC_K_wfc_assigns, (most + WFC_THREADS - 1) / WFC_THREADS,
                            end - i, WFC_THREADS, &a);
        }
    }
    return st;
}

/* ---- norms ----------------------------------------------------------------------------------- */

weft_status wfc_plan_global_norm(struct wf_kplan *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_in; i++) {
        if (p->in[i].dtype != p->in[0].dtype)
            return WEFT_ENOSUP;
        n += (wf_type_count(&p->in[i]) + NORM_BLOCK - 1) / NORM_BLOCK;
    }
    p->scratch_bytes = (size_t)(n + 1) * sizeof(double);
    return wfc_plan_floats(p);
}

weft_status wfc_run_global_norm(const struct wf_call *c)
{
    struct wfc_norm_end end = {.dtype = (int32_t)c->out[0].type.dtype,
                               .clip = c->op->id == WF_OP_clip_factor,
                               .blocks = c->scratch,
                               .out = c->out[0].data};
    weft_status st = WEFT_OK;

    for (int from = 0; from < c->n_in && !st; from += SPANS) {
        struct wfc_sumsq a = {.dtype = (int32_t)c->in[0].type.dtype,
                              .blocks = (double *)c->scratch + end.n_blocks};

        for (int i = from; i < c->n_in && a.n < SPANS; i++, a.n++) {
            a.in[a.n] = c->in[i].data;
            a.count[a.n] = wf_count(&c->in[i]);
            a.first[a.n + 1] =
                a.first[a.n] + (uint32_t)((a.count[a.n] + NORM_BLOCK - 1) / NORM_BLOCK);
        }
        st = wfc_launch(c, WFC_K_wfc_sumsq, a.first[a.n], 1, WFC_THREADS, &a);
        end.n_blocks += a.first[a.n];
    }
    if (end.clip)
        end.limit = wf_call_float(c, "limit");
    return st ? st : wfc_launch(c, WFC_K_wfc_norm_end, 1, 1, WFC_THREADS, &end);
}

weft_status wfc_plan_penalty(struct wf_kplan *p)
{
    return wf_kplan_float(p, "orthogonal") == 0 ? wfc_plan_floats(p) : WEFT_ENOSUP;
}

weft_status wfc_run_penalty(const struct wf_call *c)
{
    struct wfc_penalty a = {.n = (uint32_t)wf_count(&c->in[0]),
                            .dtype = (int32_t)c->in[0].type.dtype,
                            .l1 = wf_call_float(c, "l1"),
                            .l2 = wf_call_float(c, "l2"),
                            .w = c->in[0].data,
                            .out = c->out[0].data};

    return wfc_launch_each(c, WFC_K_wfc_penalty + wfc_wide(c), a.n, &a);
}

#endif
