/* standby.h - a chief that does not act: whether the one that acts is gone, or this one is cut off.
 *
 * Silence says little: a process that is cut off hears nobody, either. So a standby that has not
 * heard of the chief for a quarter of the timeout asks all tasks what they hear of it, and looks
 * into the store, where a chief that acts leaves a sign of life twice in a timeout. After the
 * timeout it takes the term if it reaches more tasks than there are members that it does not
 * reach, or if the store shows no sign of life. What a task hears of a chief counts as heard.
 *
 * Nothing here is needed for safety: terms are created in the store, which only one can do. */
#ifndef WF_CLUSTER_STANDBY_H
#define WF_CLUSTER_STANDBY_H

#include "cluster/chief.h"

/* A chief was heard at that time, by this one or by a task. */
void wf_standby_hear(struct wf_chief *c, int64_t at);
/* The answer of a task, WF_MSG_SEEN. */
void wf_standby_take(struct wf_chief *c, const struct wf_message *m);
/* At every tick: asks tasks if it is time to. True: the store is to be read. */
bool wf_standby_tick(struct wf_chief *c, struct wf_actions *out);
/* The store was read: whether to take the next term. c->epoch is what the answer has. */
bool wf_standby_may(struct wf_chief *c, const struct wf_store_answer *a);
/* This process did not run for a while. */
void wf_standby_shift(struct wf_chief *c, int64_t late);
/* A chief begins to act: when it last heard of a member; and then it asks no more. */
int64_t wf_standby_heard(const struct wf_chief *c, const struct wf_member *m);
void wf_standby_end(struct wf_chief *c);
/* A chief that acts, and most members have been silent for as long as the timeout: it may be the
 * one that is cut off. It leaves nobody out for a moment, in which a standby that reaches them may
 * take the next term. */
bool wf_standby_doubts(struct wf_chief *c);

#endif
