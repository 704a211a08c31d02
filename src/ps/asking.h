/* asking.h - a chief's requests to its store, made by a thread of their own: a slow disk or an etcd
 * that is away must not keep the chief from hearing its tasks. */
#ifndef WF_PS_ASKING_H
#define WF_PS_ASKING_H

#include "cluster/chief_store.h"

struct wf_asking;

/* What the store has answered, by the thread, without any lock; st: why it never will. What the
 * answer names is valid until the call returns. */
typedef void wf_asked_fn(void *arg, const struct wf_action *act, weft_status st,
                         const struct wf_store_answer *a);

/* The store does not answer, or does again: for people. By the thread, without any lock. */
typedef void wf_asking_say_fn(void *arg, const char *what);

/* store becomes the thread's. */
weft_status wf_asking_start(weft_ctx *ctx, struct wf_chief_store *store, wf_asked_fn *fn,
                            wf_asking_say_fn *say, void *arg, struct wf_asking **out);
/* A request; what it names is copied. Requests are carried out in their order; one to read is left
 * out while another one waits. */
weft_status wf_asking_add(struct wf_asking *k, const struct wf_action *act);
/* Calls nothing afterwards; further requests are dropped. NULL is fine. */
void wf_asking_stop(struct wf_asking *k);
/* After wf_asking_stop: the store is closed. */
void wf_asking_free(struct wf_asking *k);

#endif
