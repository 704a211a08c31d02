/* place.h - which server holds which variable.
 *
 * A variable is placed on a server by its device scope, or by a rule for all others; the pieces of
 * one that is not placed go where they make the division even. Placement is passed with the job
 * (struct wf_var); the chief obeys it whenever the server is there. */
#ifndef WF_PS_PLACE_H
#define WF_PS_PLACE_H

#include "cluster/spec.h"
#include "ps/plan.h"

enum wf_placing { WF_PLACE_EVEN, WF_PLACE_ROUND_ROBIN, WF_PLACE_GREEDY };

/* The server of a variable; -1: any. */
typedef int wf_place_fn(void *arg, const char *name, int64_t bytes, int n_servers);

struct wf_place_rule {
    enum wf_placing kind;
    wf_place_fn *fn; /* instead, if not NULL */
    void *arg;
    bool soft; /* a server that does not exist means any; otherwise it is WEFT_ENOENT */
};

/* Sets `server` of all variables; rows of tables are on all servers. device(arg, i): the scope
 * of variable i, "" for none. */
weft_status wf_ps_place(weft_ctx *ctx, struct wf_rules *r, int n_servers,
                        const struct wf_place_rule *rule, const char *(*device)(void *arg, int var),
                        void *arg);

/* Bytes of each piece, as the chief weighs them, and the node that it is placed on, or
 * WF_NOBODY. */
void wf_ps_weigh(const struct wf_cut *cut, int64_t cut_bytes, const struct wf_spec *spec,
                 int64_t *bytes, int *home);

/* Which server holds what, as the chief of these tasks will decide when all of them are there:
 * appended as text. */
weft_status wf_ps_explain(weft_ctx *ctx, const struct wf_rules *r, int64_t cut_bytes,
                          const struct wf_spec *spec, int n_copies, struct wf_buf *out);

#endif
