/* bind_index.c - ops that find elements by index, sorting, bags. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include "kernels/cuda/dev.h"
#include "op/shape.h"

weft_status wfc_plan_bag(struct wf_kplan *p);
static wf_kernel_many_fn run_gathers;
weft_status wfc_plan_gather(struct wf_kplan *p);
wf_kernel_fn wfc_run_gather, wfc_run_gather_nd, wfc_run_take, wfc_run_take_grad, wfc_run_one_hot,
    wfc_run_scatter, wfc_run_sort, wfc_run_bag;

static int size_of(const struct wf_tensor *t)
{
    return (int)weft_dtype_size(t->type.dtype);
}

static struct wf_gather_dims dims_of(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *ids = &c->in[1].type;

    if (c->op->id == WF_OP_gather)
        return wf_gather_dims(x, ids, wf_call_int(c, "axis"), wf_call_int(c, "batch_dims"));
    return (struct wf_gather_dims){1, 1, x->dim[0], wf_type_count(ids),
                                   wf_type_part(x, 1, x->rank)};
}

/* Rows of a table, one after the other: what wfc_lookups does. Axes of one element may come before
 * the rows. */
static bool is_lookup(const struct wf_call *c)
{
    struct wf_gather_dims d = dims_of(c);

    return d.batch == 1 && d.outer == 1;
}

weft_status wfc_plan_gather(struct wf_kplan *p)
{
    p->run_many = run_gathers;
    return wfc_plan_any(p);
}

weft_status wfc_run_gather(const struct wf_call *c)
{
    struct wf_gather_dims d = dims_of(c);
    struct wfc_gather a = {.batch = (uint32_t)d.batch,
                           .outer = (uint32_t)d.outer,
                           .n = (uint32_t)d.n,
                           .k = (uint32_t)d.k,
                           .inner = (uint32_t)d.inner,
                           .size = size_of(&c->in[0]),
                           .id_dtype = (int32_t)c->in[1].type.dtype,
                           .x = c->in[0].data,
                           .ids = c->in[1].data,
                           .y = c->out[0].data,
                           .fault = wfc_fault(c)};

    if (is_lookup(c))
        return run_gathers(&c, 1);
    return wfc_launch_each(c, WFC_K_wfc_gather, wf_count(&c->out[0]), &a);
}

/* Sizes in units of 16 bytes where rows allow it. */
static void set_units(const struct wf_call *c, struct wfc_lookups *a)
{
    struct wf_gather_dims d = dims_of(c);
    int64_t row = d.inner * size_of(&c->in[0]);
    uintptr_t bits = (uintptr_t)c->in[0].data | (uintptr_t)c->out[0].data;

    a->k = (uint32_t)d.k;
    a->id_dtype = (int32_t)c->in[1].type.dtype;
    a->size = row % 16 == 0 && bits % 16 == 0 ? 16 : size_of(&c->in[0]);
    a->inner = (uint32_t)(row / a->size);
}

static weft_status run_gathers(const struct wf_call *const *calls, int n)
{
    struct wfc_lookups a = {.n = 0}, next = {.n = 0};
    weft_status st = WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        const struct wf_call *c = calls[i];
        bool last = i + 1 == n || !is_lookup(calls[i + 1]);

        if (!is_lookup(c)) {
            st = wfc_run_gather(c);
            continue;
        }
        set_units(c, &a);
        a.words = c->trouble;
        a.one[a.n].x = c->in[0].data;
        a.one[a.n].ids = c->in[1].data;
        a.one[a.n].y = c->out[0].data;
        a.one[a.n].n_rows = (uint32_t)dims_of(c).n;
        a.one[a.n++].instr = c->instr;
        if (!last)
            set_units(calls[i + 1], &next);
        if (!last && a.n < WFC_LOOKUPS && next.k == a.k && next.inner == a.inner &&
            next.size == a.size && next.id_dtype == a.id_dtype)
            continue;
        st = wfc_launch(c, WFC_K_wfc_lookups,
                        wf_min_i64(4096, ((int64_t)a.k * a.inner + WFC_THREADS - 1) / WFC_THREADS),
                        a.n, WFC_THREADS, &a);
        a.n = 0;
    }
    return st;
}

weft_status wfc_run_gather_nd(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *ix = &c->in[1].type;
    struct wfc_gather_nd a = {.depth = (int32_t)ix->dim[ix->rank - 1],
                              .n = (uint32_t)wf_type_part(ix, 0, ix->rank - 1),
                              .size = size_of(&c->in[0]),
                              .id_dtype = (int32_t)ix->dtype,
                              .x = c->in[0].data,
                              .ids = c->in[1].data,
                              .y = c->out[0].data,
                              .fault = wfc_fault(c)};

    a.width = (uint32_t)wf_type_part(x, a.depth, x->rank);
    for (int i = 0; i < x->rank; i++)
        a.dim[i] = (uint32_t)x->dim[i];
    return wfc_launch_each(c, WFC_K_wfc_gather_nd, wf_count(&c->out[0]), &a);
}

weft_status wfc_run_take(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *ix = &c->in[1].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), x->rank);
    struct wfc_take a = {.count = (uint32_t)wf_type_count(ix),
                         .n = (uint32_t)x->dim[axis],
                         .k = (uint32_t)ix->dim[axis],
                         .inner = (uint32_t)wf_type_part(x, axis + 1, x->rank),
                         .size = size_of(&c->in[0]),
                         .id_dtype = (int32_t)ix->dtype,
                         .x = c->in[0].data,
                         .ids = c->in[1].data,
                         .y = c->out[0].data,
                         .fault = wfc_fault(c)};

    return wfc_launch_each(c, WFC_K_wfc_take, a.count, &a);
}

weft_status wfc_run_take_grad(const struct wf_call *c)
{
    const struct wf_type *dx = &c->out[0].type, *ix = &c->in[1].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), dx->rank);
    struct wfc_take a = {.count = (uint32_t)wf_type_count(dx),
                         .n = (uint32_t)dx->dim[axis],
                         .k = (uint32_t)ix->dim[axis],
                         .inner = (uint32_t)wf_type_part(dx, axis + 1, dx->rank),
                         .dtype = (int32_t)dx->dtype,
                         .id_dtype = (int32_t)ix->dtype,
                         .x = c->in[0].data,
                         .ids = c->in[1].data,
                         .y = c->out[0].data,
                         .fault = wfc_fault(c)};

    return wfc_launch_each(
        c, wf_is_float(dx->dtype) ? WFC_K_wfc_take_grad + wfc_wide(c) : WFC_K_wfc_take_grad_int,
        a.count, &a);
}

weft_status wfc_run_one_hot(const struct wf_call *c)
{
    const struct wf_type *y = &c->out[0].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), y->rank);
    struct wfc_one_hot a = {.count = (uint32_t)wf_type_count(y),
                            .depth = (uint32_t)y->dim[axis],
                            .inner = (uint32_t)wf_type_part(y, axis + 1, y->rank),
                            .dtype = (int32_t)y->dtype,
                            .id_dtype = (int32_t)c->in[0].type.dtype,
                            .anywhere = (int32_t)wf_call_int(c, "allow_outside"),
                            .on = wf_call_float(c, "on"),
                            .off = wf_call_float(c, "off"),
                            .ids = c->in[0].data,
                            .y = c->out[0].data,
                            .fault = wfc_fault(c)};

    return wfc_launch_each(c, WFC_K_wfc_one_hot, a.count, &a);
}

/* ---- sums by index --------------------------------------------------------------------------- */

/* Which operands are ids and addends, and the sizes. */
static struct wfc_scatter scatter_args(const struct wf_call *c)
{
    const struct wf_type *y = &c->out[0].type;
    bool ids_first = c->op->id == WF_OP_scatter_add || c->op->id == WF_OP_embedding_grad ||
                     c->op->id == WF_OP_scatter_nd_add;
    const struct wf_tensor *ids = &c->in[ids_first ? 0 : 1], *x = &c->in[ids_first ? 1 : 0];
    struct wf_gather_dims d = {1, 1, y->dim[0], wf_count(ids), wf_type_part(y, 1, y->rank)};
    struct wfc_scatter a = {.depth = 1,
                            .dtype = (int32_t)y->dtype,
                            .id_dtype = (int32_t)ids->type.dtype,
                            .id_input = ids_first ? 0 : 1,
                            .x = x->data,
                            .ids = ids->data,
                            .y = c->out[0].data,
                            .fault = wfc_fault(c)};

    if (c->op->id == WF_OP_gather_grad)
        d = wf_gather_dims(y, &ids->type, wf_call_int(c, "axis"), wf_call_int(c, "batch_dims"));
    a.dim[0] = (uint32_t)d.n;
    if (c->op->id == WF_OP_scatter_nd_add) {
        a.depth = (int32_t)ids->type.dim[ids->type.rank - 1];
        d.k = wf_type_part(&ids->type, 0, ids->type.rank - 1);
        d.inner = wf_type_part(y, a.depth, y->rank);
        for (int i = 0; i < a.depth; i++)
            a.dim[i] = (uint32_t)y->dim[i];
    }
    a.batch = (uint32_t)d.batch;
    a.outer = (uint32_t)d.outer;
    a.n = (uint32_t)d.n;
    a.k = (uint32_t)d.k;
    a.inner = (uint32_t)d.inner;
    return a;
}

weft_status wfc_run_scatter(const struct wf_call *c)
{
    struct wfc_scatter a = scatter_args(c);
    weft_status st = wfc_zero(c, &c->out[0]);

    if (st)
        return st;
    return wfc_launch(c,
                      wf_is_float(c->out[0].type.dtype) ? WFC_K_wfc_scatter + wfc_wide(c)
                                                        : WFC_K_wfc_scatter_int,
                      a.k, (int64_t)a.batch * a.outer, WFC_THREADS, &a);
}

/* ---- sorting --------------------------------------------------------------------------------- */

weft_status wfc_run_sort(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type;
    bool top = c->op->id == WF_OP_top_k;
    int axis = top ? x->rank - 1 : wf_axis_of(wf_call_int(c, "axis"), x->rank);
    struct wfc_sort a = {.n = (uint32_t)x->dim[axis],
                         .k = (uint32_t)c->out[0].type.dim[axis],
                         .inner = (uint32_t)wf_type_part(x, axis + 1, x->rank),
                         .dtype = (int32_t)x->dtype,
                         .descending = top || wf_call_int(c, "descending"),
                         .x = c->in[0].data,
                         .y = c->out[0].data,
                         .places = c->out[1].data};

    a.n_lines = (uint32_t)(wf_type_part(x, 0, axis) * a.inner);
    return wfc_launch_each(c, WFC_K_wfc_sort, wf_count(&c->in[0]), &a);
}

/* ---- bags ------------------------------------------------------------------------------------ */

weft_status wfc_plan_bag(struct wf_kplan *p)
{
    return wf_is_float(p->in[0].dtype) ? wfc_plan_any(p) : WEFT_ENOSUP;
}

weft_status wfc_run_bag(const struct wf_call *c)
{
    bool lookup = c->op->id == WF_OP_embedding_bag, spread = c->op->id == WF_OP_bag_spread;
    int offsets = lookup ? 2 : 1, weights = lookup || spread ? 3 : 2;
    enum wf_combiner combiner = WF_BAG_SUM;
    struct wfc_bag a = {
        .n_bags = (uint32_t)c->in[offsets].type.dim[0] - 1,
        .width = (uint32_t)c->in[0].type.dim[1],
        .n = (uint32_t)(lookup   ? wf_count(&c->in[1])
                        : spread ? c->out[0].type.dim[0]
                                 : c->in[0].type.dim[0]),
        .dtype = (int32_t)c->in[0].type.dtype,
        .offset_dtype = (int32_t)c->in[offsets].type.dtype,
        .what = spread,
        .offsets_input = offsets,
        .x = c->in[0].data,
        .offsets = c->in[offsets].data,
        .y = c->out[0].data,
        .fault = wfc_fault(c),
    };

    wf_combiner_parse(wf_attr_str(c->op, c->attr, "combiner"), &combiner);
    a.combiner = (int32_t)combiner;
    a.n_rows = lookup ? (uint32_t)c->in[0].type.dim[0] : a.n;
    if (lookup) {
        a.ids = c->in[1].data;
        a.id_dtype = (int32_t)c->in[1].type.dtype;
    }
    if (weights < c->n_in && c->in[weights].type.dtype) {
        a.weights = c->in[weights].data;
        a.weight_dtype = (int32_t)c->in[weights].type.dtype;
    }
    return wfc_launch_each(c, WFC_K_wfc_bag + wfc_wide(c), (int64_t)a.n_bags * a.width, &a);
}

#endif
