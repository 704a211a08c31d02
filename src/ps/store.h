/* store.h - what a parameter server holds: the vectors of its pieces, and what steps do to them.
 *
 * The functions of struct wf_ps_data on real vectors, through the merge layer; and the bytes that
 * messages carry. What is sent is read where it is (wf_ps_parts); what arrives is one block of
 * bytes (struct wf_blob). All numbers on the wire are those of the machine: peers of one job have
 * the same byte order, which their handshake checks. */
#ifndef WF_PS_STORE_H
#define WF_PS_STORE_H

#include <stdatomic.h>

#include "net/frame.h"
#include "ps/pieces.h"
#include "ps/ps.h"
#include "ps/tables.h"

/* Bytes that have arrived, at a multiple of 8. */
struct wf_blob {
    const char *p;
    int64_t n;
};

/* What a step of the servers does. Versions count all of them, the trainer's steps only updates. */
enum wf_ps_kind {
    WF_PS_UPDATE,    /* gradients, and an update */
    WF_PS_SKIPPED,   /* a gradient of a scaled loss is not finite: nothing is updated; if one
                    * contribution to an update says so, this is what it is */
    WF_PS_SET,       /* parameters and state are replaced by what the first shard gives */
    WF_PS_STILL,     /* nothing changes: batches of validation data are evaluated */
    WF_PS_MODELS,    /* an update: parameters become the sum of what is given */
    WF_PS_KEEP_BEST, /* SET, and the values that tables have afterwards are kept */
    WF_PS_TAKE_BEST, /* SET, but tables get the values that were kept */
    WF_PS_KINDS
};

/* Whether the step replaces parameters and state, of dense variables at least. */
static inline bool wf_ps_replaces(enum wf_ps_kind kind)
{
    return kind == WF_PS_SET || kind == WF_PS_KEEP_BEST || kind == WF_PS_TAKE_BEST;
}

/* Where a step is in training; all contributions to it say the same, but for SKIPPED. */
struct wf_ps_mark {
    int64_t control; /* the step of the last control record; -1: there is none */
    bool fresh;      /* the first step of an epoch: totals begin with it; STILL: the first of a
                      * validation */
    enum wf_ps_kind kind;
    int64_t step; /* the trainer's */
};

/* What a message brought: the payload of struct wf_ps_data's functions. */
struct wf_ps_payload {
    struct wf_blob body;     /* contributions, parameters, partials */
    struct wf_blob decision; /* of RECORD, DECISION and FILL */
    double rate;             /* of PUSH and RECORD: the learning rate; NAN: as the rules say */
    struct wf_ps_mark mark;  /* likewise */
    struct wf_contribution *given; /* of PUSH: the body is already in it; NULL afterwards */
    /* Of PUSH: NULL, or the gradients are there, in memory that a worker shares, and the body has
     * only the sums. */
    const float *lent; /* [n_groups], lent_stride elements apart */
    int64_t lent_stride;
    const _Atomic uint64_t *stamp; /* another one when the worker has taken the memory back */
    uint64_t stamped;
    /* Of VERSION: lent is a vector of struct wf_published, this its `begun`; or where the body was
     * placed (versions.h). */
    const _Atomic int64_t *begun;
    void *placed;
    int64_t version; /* likewise: which */
};

/* Where versions are published, for processes that map them: both as flat vectors, the even and the
 * odd ones. Before version t of a piece is overwritten, begun[2 piece + t mod 2] says by which; so
 * whoever reads looks afterwards whether it still says t. A third vector has the means of records;
 * meant[piece] says of which step, -1 while it is written. */
struct wf_published {
    float *flat[2], *mean; /* NULL: versions are not published */
    _Atomic int64_t *begun, *meant;
};

/* The layout of that memory: begun, meant, then the vectors. */
enum { WF_PUBLISHED_EVEN, WF_PUBLISHED_ODD, WF_PUBLISHED_MEAN, WF_PUBLISHED_VECTORS };
int64_t wf_ps_published_at(const struct wf_rules *rules, const struct wf_cut *cut, int vector);
int64_t wf_ps_published_bytes(const struct wf_rules *rules, const struct wf_cut *cut);
/* And of memory in which a worker leaves a contribution: its stamp, then [n_groups][n_dense]. */
enum { WF_PS_SLOT_HEAD = 64 };
int64_t wf_ps_slot_bytes(const struct wf_rules *rules);

struct wf_ps_store;

struct wf_ps_store_opts {
    const struct wf_rules *rules; /* borrowed, as is the cut */
    const struct wf_cut *cut;
    int n_shards;                    /* of a step */
    int64_t n_logs;                  /* sums that are added up besides those of the rules */
    const struct wf_log_rules *logs; /* what they are; NULL: no totals are kept */
    int n_blocks;                    /* of a piece */
    /* Version t of a piece, and its slots: from a checkpoint, or initial values for t = 0. */
    weft_status (*load)(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums);
    /* The rows of a piece of tables that are not initial ones: what wf_tables_dump wrote. */
    weft_status (*load_rows)(void *arg, int piece, int64_t t, struct wf_blob *rows);
    void *load_arg;
    struct wf_published published; /* borrowed */
    bool leased; /* versions come lease by lease (closing.c): workers take the norms */
    /* Whether the record of a step will be sent to a copy. NULL: always. */
    bool (*records)(void *arg, int piece);
    void *records_arg;
};

weft_status wf_ps_store_new(weft_ctx *ctx, const struct wf_ps_store_opts *opts,
                            struct wf_ps_store **out);
void wf_ps_store_free(struct wf_ps_store *s);
/* Whether the mean of the record of step t is in published memory. */
bool wf_ps_store_shows(const struct wf_ps_store *s, int piece, int64_t t);
struct wf_ps_data wf_ps_store_data(struct wf_ps_store *s);
/* How many rounds of norms the rules need. */
int wf_ps_rounds(const struct wf_rules *rules);
/* Memory for a contribution to a piece that is held: struct wf_ps_payload's `given`. NULL: it is
 * not held, or there is no memory. Given back if it was not added. */
struct wf_contribution *wf_ps_store_take(struct wf_ps_store *s, int piece);
void wf_ps_store_give(struct wf_ps_store *s, int piece, struct wf_contribution *c);
/* Contributions that are read where workers left them, of all pieces: while there are any, that
 * memory stays mapped. */
int64_t wf_ps_store_lent(const struct wf_ps_store *s);
/* Whether a contribution to step t, which the piece is at, could be added. WEFT_EPEER: the
 * sender does not keep to the protocol. */
weft_status wf_ps_store_accepts(const struct wf_ps_store *s, int piece, int64_t t,
                                const struct wf_ps_payload *p);
/* Of tables: a push is checked and read into *out, which is given back if it is not added (it
 * stays NULL if the piece is not held); a request for rows is checked. WEFT_EPEER: the sender
 * does not keep to the protocol. */
weft_status wf_ps_store_read(struct wf_ps_store *s, int piece, const struct wf_blob *b,
                             struct wf_contribution **out);
weft_status wf_ps_store_check(struct wf_ps_store *s, int piece, const struct wf_blob *b);
/* With leases: the same for a part of a push, or its closing record (closes; whole: with the
 * gradient). Rows of tables are read into p->given. */
weft_status wf_ps_store_closes(struct wf_ps_store *s, int piece, struct wf_ps_payload *p,
                               bool closes, bool whole);
/* What a closing record says of clipping: factors by variable, as the decision of a message. */
int64_t wf_ps_scale_bytes(const struct wf_rules *rules);
void wf_ps_scale_write(const struct wf_rules *rules, const float *scale, char *to);
/* The rows of a piece of tables, with slots; valid until the next call. */
weft_status wf_ps_store_rows(struct wf_ps_store *s, int piece, struct wf_blob *out);
/* The slots of a piece, one after the other, into memory of n_slots × count. */
void wf_ps_store_slots(const struct wf_ps_store *s, int piece, float *out);
/* While a piece's vectors are being sent, they stay allocated. wf_ps_store_unpin by any thread, the
 * others by the machine's. */
void wf_ps_store_pin(struct wf_ps_store *s);
void wf_ps_store_unpin(struct wf_ps_store *s);

/* Where the bytes are that a message of this server carries: body, then decision; valid until the
 * machine's next step. version: of the piece. */
enum { WF_PS_PARTS = 2 * WF_OPTIM_MAX_SLOTS + 4 };
struct wf_ps_bytes {
    struct wf_part body[WF_PS_PARTS];
    int n_body;
    struct wf_part decision;
    double rate;
    struct wf_ps_mark mark;
    weft_status st;         /* of tables: no memory for the body */
    struct wf_payload *own; /* of tables: where the body is; NULL: it is in vectors */
};
void wf_ps_bytes(struct wf_ps_store *s, const struct wf_message *m, int64_t version,
                 struct wf_ps_bytes *out);
/* The body that was written for a message becomes the sender's, who gives the memory back when the
 * message has left (by any thread). */
struct wf_payload wf_ps_store_take_body(struct wf_ps_store *s, struct wf_payload *own);
void wf_ps_store_give_body(struct wf_ps_store *s, struct wf_payload body);

/* ---- a worker's side ------------------------------------------------------------------------- */

/* A contribution to a piece is [n_groups][count] f32 in the piece's order, then f64 sums: of the
 * last piece all sums and logs, of others the denominators and the number of samples. No bytes: the
 * shard has no samples. */
int64_t wf_ps_push_bytes(const struct wf_ps_store_opts *opts, int piece);
int64_t wf_ps_n_sums(const struct wf_ps_store_opts *opts, int piece);
/* A version of the last piece: the sums of the step before, then where training is (marks.c); after
 * it the totals of logs, and those of the validation under way, or the last. */
enum wf_ps_marks {
    WF_PS_BATCHES,   /* of the epoch so far */
    WF_PS_CONTROL,   /* the step of the last control record */
    WF_PS_STEP,      /* the trainer's at this version */
    WF_PS_KIND,      /* what the last step was */
    WF_PS_ROUNDS,    /* steps of the validation, */
    WF_PS_VALIDATED, /* and batches that they have evaluated */
    WF_PS_GROWTH,    /* of the loss scale: as in wf_scale_next; 0: the loss is not scaled */
    WF_PS_SCALE,     /* its state */
    WF_PS_TOTALS = WF_PS_SCALE + WF_SCALE_STATE
};
int64_t wf_ps_n_kept(const struct wf_ps_store_opts *opts, int piece);
/* The last piece at the next version, after a step with these sums; NULL: it had no samples. */
void wf_ps_next_kept(const struct wf_ps_store_opts *opts, const struct wf_ps_mark *mark,
                     const double *sums, const double *before, double *to);

#endif
