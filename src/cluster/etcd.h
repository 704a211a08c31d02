/* etcd.h - the chief's store in etcd, through its HTTP gateway (/v3/kv/txn).
 *
 * An entry is a key that is created by a transaction, which fails if the key, or a higher term, is
 * there: of any number of processes that try, exactly one succeeds, and only the chief with the
 * highest term creates or removes anything. docs/formats/ps.md has keys and values. */
#ifndef WF_CLUSTER_ETCD_H
#define WF_CLUSTER_ETCD_H

#include "cluster/chief.h"
#include "cluster/etcd_text.h"
#include "cluster/http.h"

struct wf_etcd;

/* How requests are made; a test has its own. */
typedef weft_status wf_post_fn(void *arg, const char *url, const char *body, int64_t n,
                               struct wf_buf *to, long *code);

/* Makes no connection. */
weft_status wf_etcd_open(weft_ctx *ctx, const struct wf_etcd_where *where,
                         const struct wf_http_opts *opts, struct wf_etcd **out);
void wf_etcd_close(struct wf_etcd *e);
void wf_etcd_set_post(struct wf_etcd *e, wf_post_fn *post, void *arg);

/* As wf_folder_do. WEFT_EPEER: no endpoint has answered, and it is not known whether anything was
 * created; the same action can be tried again, and counts as one with the first. */
weft_status wf_etcd_do(struct wf_etcd *e, const struct wf_action *a, struct wf_store_answer *out);
/* Removes everything below the prefix. */
weft_status wf_etcd_drop(struct wf_etcd *e);
/* From any thread: requests end soon, with an error. */
void wf_etcd_stop(struct wf_etcd *e);

#endif
