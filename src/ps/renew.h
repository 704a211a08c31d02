/* renew.h - certificates that are replaced while a job runs. */
#ifndef WF_PS_RENEW_H
#define WF_PS_RENEW_H

#include "net/net.h"

enum { WF_PEM_FILES = 3 }; /* the authority's certificate, the task's, its key */

/* The files that a task's credentials come from. One thread at a time. */
struct wf_renewal {
    weft_ctx *ctx;
    struct wf_tls *tls; /* borrowed */
    char *path[WF_PEM_FILES];
    int64_t stamp[WF_PEM_FILES]; /* when each was written, as of the last look */
    int64_t looked_ns;
    bool warned;
};

/* Reads the files and makes credentials of them. *out is freed with wf_renewal_free, *tls with
 * wf_tls_free, in this order. */
weft_status wf_renewal_new(weft_ctx *ctx, const char *const path[WF_PEM_FILES],
                           struct wf_renewal **out, struct wf_tls **tls);
void wf_renewal_free(struct wf_renewal *r);
/* Looks every few seconds whether the files have changed, and takes the new ones. What cannot be
 * read or used yet is tried again later; the old credentials remain. */
void wf_renewal_look(struct wf_renewal *r, int64_t now);

#endif
