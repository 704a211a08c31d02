/* as_f64.c - a copy of a graph in which every float is f64. */
#include "graph/graph.h"

/* The attributes of n with float dtypes replaced. */
static void widen_attrs(const struct wf_node *n, struct wf_attr *attr)
{
    for (int i = 0; i < n->op->n_attrs; i++) {
        attr[i] = n->attr[i];
        if (attr[i].kind == WF_DTYPE && wf_is_float((weft_dtype)attr[i].i))
            attr[i].i = WEFT_F64;
    }
}

static weft_status widen_data(weft_graph *to, const struct wf_type *from, const void *data,
                              const void **out)
{
    int64_t n = wf_type_count(from);
    double *p = wf_arena_alloc(&to->arena, (size_t)n * sizeof *p + 64);

    if (!p)
        return wf_err_nomem(to->ctx, (size_t)n * sizeof *p, "gradient check");
    p = (double *)(void *)((char *)p + (64 - (uintptr_t)p % 64) % 64);
    for (int64_t i = 0; i < n; i++)
        p[i] = wf_get(data, from->dtype, i);
    *out = p;
    return WEFT_OK;
}

weft_status wf_pass_as_f64(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out)
{
    struct wf_rewrite rw;
    weft_status st = wf_rewrite_begin(&rw, g, n_roots, roots);

    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        struct wf_node n = g->nodes[k];
        struct wf_attr attr[WF_MAX_ATTRS];
        const struct wf_type *t = &g->values[n.first_out].type;

        if (!rw.live[k])
            continue;
        widen_attrs(&n, attr);
        n.attr = attr;
        if (n.data && wf_is_float(t->dtype))
            st = widen_data(rw.to, t, n.data, &n.data);
        wf_rewrite_inputs(&rw, k);
        if (!st)
            st = wf_rewrite_copy_as(&rw, &n, true);
        if (st)
            wf_err_wrap(st, "'%s' in f64", n.name);
    }
    return wf_rewrite_end(&rw, st, n_roots, roots, out);
}
