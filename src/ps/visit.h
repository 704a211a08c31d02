/* visit.h - one question to the chief of a job, by a process that is not, or not yet, a member. */
#ifndef WF_PS_VISIT_H
#define WF_PS_VISIT_H

#include "ps/site.h"

/* Asks one chief. who: the role and name that this process has; tls may be NULL. *answer is freed
 * by wf_free. WEFT_ESTATE: the chief says no. */
weft_status wf_ps_visit(weft_ctx *ctx, const struct wf_identity *who, struct wf_tls *tls,
                        const char *address, const char *question, int64_t timeout_ns,
                        char **answer);

/* A task that is not in the list that the job began with asks the chief for its number: the spec
 * gets all tasks that were added, and *self is this one's. It asks again until timeout_ns. */
weft_status wf_ps_enter(weft_ctx *ctx, struct wf_spec *spec, int *self, int64_t timeout_ns);

#endif
