/* build_misc.c - builders of ops that look at values. */
#include "graph/graph.h"
#include "weft/ops_misc.h"

weft_val weft_print(weft_graph *g, weft_val x, const char *message, const weft_print_opts *opts)
{
    weft_print_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_print_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_STR("message", message),
                            WF_SET_INT("every", o.every ? o.every : 1),
                            WF_SET_INT("limit", o.limit ? o.limit : 10)};
    return wf_build(g, WF_OP_print, 1, &x, 3, sets);
}

weft_val weft_check_numerics(weft_graph *g, weft_val x, const char *message)
{
    struct wf_set sets[] = {WF_SET_STR("message", message)};

    return wf_build(g, WF_OP_check_numerics, 1, &x, 1, sets);
}
