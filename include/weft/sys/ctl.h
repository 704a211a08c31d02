/* weft/sys/ctl.h - questions to the chief of a running job, as `weft ctl` asks them. */
#ifndef WEFT_SYS_CTL_H
#define WEFT_SYS_CTL_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_ctl_opts {
    size_t size;
    /* Addresses of the job's chiefs, separated by commas: the one that leads answers. */
    const char *chiefs;
    /* PEM files, for tls: the authority's certificate, one of the role control, and its key. */
    const char *authority, *certificate, *key;
    double timeout_s; /* of an attempt; 0: 5 */
} weft_ctl_opts;

/* A question: "status" (a table; "status json": docs/formats/ctl.md), "checkpoint", "stop", "drain
 * TASK", "add worker N", "add ps N". *answer is freed with weft_text_free. WEFT_ESTATE: the chief
 * says no, and why. WEFT_EPEER, WEFT_ETIME: nobody answers. */
WEFT_API weft_status weft_ctl(weft_ctx *ctx, const weft_ctl_opts *opts, const char *question,
                              char **answer);

#ifdef __cplusplus
}
#endif
#endif
