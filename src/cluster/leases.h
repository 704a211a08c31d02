/* leases.h - sets of leases: which shards are applied, held or granted.
 *
 * Shard l of step t is lease t · L + l. A set is a run of bits; what is below it is in a set of
 * applied leases, and not in one of leases that are held. Its length is fixed: a job never has
 * more than `window` leases above the lowest that is not done. A set travels in the head of a
 * message, and must fit there (net/frame.h). */
#ifndef WF_CLUSTER_LEASES_H
#define WF_CLUSTER_LEASES_H

#include "base/base.h"

struct wf_leases {
    int64_t base; /* a multiple of 64: bit i is lease base + i */
    int n_words;
    uint64_t *bits;
};

/* Words of a set for a window. */
int wf_leases_words(int window);
weft_status wf_leases_init(struct wf_leases *s, weft_ctx *ctx, int window);
void wf_leases_free(struct wf_leases *s, weft_ctx *ctx);
/* All leases below low, and no other. */
void wf_leases_start(struct wf_leases *s, int64_t low);
/* None; leases from `low` on can be put into it. */
void wf_leases_clear(struct wf_leases *s, int64_t low);
/* Whether a bit is set; below the run: `below`. */
bool wf_leases_bit(const struct wf_leases *s, int64_t lease, bool below);
/* Sets a bit; false: it is beyond the run. */
bool wf_leases_set(struct wf_leases *s, int64_t lease);
/* A set of applied leases: one more. The run moves up when its first word is full. */
bool wf_leases_apply(struct wf_leases *s, int64_t lease);
/* A set of applied leases: the lowest that is not; how many there are. */
int64_t wf_leases_low(const struct wf_leases *s);
int64_t wf_leases_count(const struct wf_leases *s);
/* Takes a set that a message carries; false: it is not one. */
bool wf_leases_take(struct wf_leases *s, int64_t base, const uint64_t *bits, int n_words);

#endif
