/* store.h - what a parameter server holds: the vectors of its pieces, and what steps do to them.
 *
 * The functions of struct wf_ps_data on real vectors, through the merge layer; and the bytes that
 * messages carry. What is sent is read where it is (wf_ps_parts); what arrives is one block of
 * bytes (struct wf_blob). All numbers on the wire are those of the machine: peers of one job have
 * the same byte order, which their handshake checks. */
#ifndef WF_PS_STORE_H
#define WF_PS_STORE_H

#include "net/frame.h"
#include "ps/pieces.h"
#include "ps/ps.h"

/* Bytes that have arrived, at a multiple of 8. */
struct wf_blob {
    const char *p;
    int64_t n;
};

/* What a message brought: the payload of struct wf_ps_data's functions. */
struct wf_ps_payload {
    struct wf_blob body;     /* contributions, parameters, partials */
    struct wf_blob decision; /* of RECORD, DECISION and FILL */
};

struct wf_ps_store;

struct wf_ps_store_opts {
    const struct wf_rules *rules; /* borrowed, as is the cut */
    const struct wf_cut *cut;
    int64_t n_logs; /* sums that are added up besides those of the rules */
    /* Version t of a piece, and its slots: from a checkpoint, or initial values for t = 0. */
    weft_status (*load)(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums);
    void *load_arg;
};

weft_status wf_ps_store_new(weft_ctx *ctx, const struct wf_ps_store_opts *opts,
                            struct wf_ps_store **out);
void wf_ps_store_free(struct wf_ps_store *s);
struct wf_ps_data wf_ps_store_data(struct wf_ps_store *s);
/* How many rounds of norms the rules need. */
int wf_ps_rounds(const struct wf_rules *rules);
/* The learning rate from the next update on; otherwise that of the schedule. */
void wf_ps_store_rate(struct wf_ps_store *s, float rate);

/* Where the bytes are that a message of this server carries: body, then decision; valid until the
 * machine's next step. version: of the piece. */
enum { WF_PS_PARTS = 2 * WF_OPTIM_MAX_SLOTS + 4 };
struct wf_ps_bytes {
    struct wf_part body[WF_PS_PARTS];
    int n_body;
    struct wf_part decision;
};
void wf_ps_bytes(struct wf_ps_store *s, const struct wf_message *m, int64_t version,
                 struct wf_ps_bytes *out);

/* ---- a worker's side ------------------------------------------------------------------------- */

/* A contribution to a piece is [n_groups][count] f32 in the piece's order, then f64 sums: of the
 * last piece all sums and logs, of others the denominators and the number of samples. No bytes: the
 * shard has no samples. */
int64_t wf_ps_push_bytes(const struct wf_ps_store_opts *opts, int piece);
int64_t wf_ps_n_sums(const struct wf_ps_store_opts *opts, int piece);

#endif
