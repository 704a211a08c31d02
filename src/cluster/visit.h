/* visit.h - one question to a task, and its answer, by a node that exists only for that. */
#ifndef WF_CLUSTER_VISIT_H
#define WF_CLUSTER_VISIT_H

#include "net/net.h"

struct wf_visit {
    const struct wf_identity *who; /* the role and name that this process has */
    struct wf_tls *tls;            /* may be NULL */
    const char *address;
    struct wf_msg question;  /* without a payload */
    int64_t min, max;        /* bytes of an answer */
    int64_t timeout_ns;      /* of the connection, and then of the answer */
    const char *of, *closed; /* "the answer of the door"; what a link that ends means */
};

/* *answer is freed by wf_free; it has a NUL after its n bytes. */
weft_status wf_visit(weft_ctx *ctx, const struct wf_visit *v, char **answer, int64_t *n);

#endif
