/* chief_store.h - the chief's store, wherever it is: a directory (folder.h), or etcd (etcd.h). */
#ifndef WF_CLUSTER_CHIEF_STORE_H
#define WF_CLUSTER_CHIEF_STORE_H

#include "cluster/folder.h"

struct wf_chief_store;

struct wf_chief_store_opts {
    const char *where; /* a directory, or etcd[s]://HOST:PORT,…/PREFIX */
    /* Of etcds: PEM files; NULL: the authorities of this system, and no certificate. */
    const char *authority, *certificate, *key;
    bool insecure; /* etcd:// (without TLS) to other machines is allowed */
};

/* WEFT_EPARSE, WEFT_EINVAL or WEFT_ENOSUP: no such store is possible. No connection is made. */
weft_status wf_chief_store_open(weft_ctx *ctx, const struct wf_chief_store_opts *o,
                                struct wf_chief_store **out);
void wf_chief_store_close(struct wf_chief_store *r);
/* As wf_folder_do, and wf_etcd_do. WEFT_EPEER: it cannot be reached now; try again. By one
 * thread at a time. */
weft_status wf_chief_store_do(struct wf_chief_store *r, const struct wf_action *a,
                              struct wf_store_answer *out);
/* Removes everything: the job has ended. A directory is left as it is. */
weft_status wf_chief_store_drop(struct wf_chief_store *r);
/* From any thread: what is under way ends soon. */
void wf_chief_store_stop(struct wf_chief_store *r);

#endif
