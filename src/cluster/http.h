/* http.h - POST requests with a deadline and a bounded answer, by libcurl, which is loaded when
 * something needs it. */
#ifndef WF_CLUSTER_HTTP_H
#define WF_CLUSTER_HTTP_H

#include <stdatomic.h>

#include "base/base.h"

struct wf_http;

struct wf_http_opts {
    const char *authority, *certificate, *key; /* PEM files; NULL: the system's authorities, none */
    int64_t connect_ns, timeout_ns;
};

/* WEFT_ENOSUP if the library was built without libcurl, or it is not installed. Texts are
 * copied. */
weft_status wf_http_open(weft_ctx *ctx, const struct wf_http_opts *opts, struct wf_http **out);
void wf_http_close(struct wf_http *h);
/* Posts JSON; by one thread at a time. *code: of HTTP; the answer is added to *to, which is a
 * buffer with a cap. WEFT_ETIME: not in time. WEFT_EPEER: no connection, or it broke, or too
 * large an answer. What was requested may have been done nevertheless. */
weft_status wf_http_post(struct wf_http *h, const char *url, const char *body, int64_t n,
                         struct wf_buf *to, long *code);
/* From any thread: the request that is under way ends within about a second, and so do all
 * others. */
void wf_http_stop(struct wf_http *h);

#endif
