/* held.h - the pieces of the parameters that a server holds; for the files of struct wf_ps_store.
 *
 * A piece has two versions of its parameters, the present one and the previous one; one of each
 * optimizer slot; the tree of contributions; and the record of a step: the mean of the gradients
 * and the decision of the norms, kept until the next step makes its own. Where no one needs the
 * record, contributions become the next version in one pass, and there is no mean. */
#ifndef WF_PS_HELD_H
#define WF_PS_HELD_H

#include <pthread.h>

#include "ps/store.h"

/* What norms over all pieces gave, as it is sent: n_sums (f64), factors of clipping by variable
 * (f32, padded to 8 bytes), and the sums of LAMB's second round. */
struct wf_decision {
    char *mem;
    int64_t n, cap;
};

/* A contribution in memory of a worker. */
struct wf_lent {
    const _Atomic uint64_t *stamp;
    uint64_t stamped;
};

/* A push of a worker, until its lease is applied (closing.c). */
struct wf_pushed {
    int64_t lease;
    int node;
    bool is_closing;           /* what it gave is in the tree */
    struct wf_contribution *c; /* NULL: not here yet, or the shard has no samples */
    struct wf_lent lent;       /* stamp NULL: c has its own memory */
    double rate;
    struct wf_ps_mark mark;
    struct wf_decision scale; /* n 0: factors of 1 */
};

struct wf_held {
    bool here, charged;    /* charged: its versions are in published memory */
    struct wf_rules rules; /* those of the job, for the vectors of this piece */
    struct wf_merge *merge;
    struct wf_tables *tables; /* of a piece of tables */
    struct wf_tree tree;
    float *params[2]; /* even and odd versions; the present one is params[now] */
    double *sums[2];  /* of the last piece: what was added up in the step before */
    float *slot[WF_OPTIM_MAX_SLOTS], *next_slot[WF_OPTIM_MAX_SLOTS]; /* next: of LAMB */
    int now;
    struct wf_lent *lent;
    int64_t n_lent, cap_lent;
    struct wf_contribution *mean;
    struct wf_contribution *shown; /* in published memory; NULL: none. It is the mean, or unused */
    struct wf_contribution *total; /* in the tree: the sums of a step that has no mean; or NULL */
    struct wf_decision record;     /* that goes with the mean, once the step is applied */
    bool recorded;                 /* it was sent by the primary */
    bool has_rate;                 /* a contribution to this step said which */
    double rate, record_rate;      /* of the contributions; of the mean. NAN: as the rules say */
    struct wf_ps_mark mark, record_mark; /* likewise */
    int64_t halved;                /* the step whose first half is in the next version; -1: none */
    struct wf_partial *partial[2]; /* what a round needs of this piece */
    int64_t n_partial[2], cap_partial[2];
    struct wf_pushed *pushed; /* with leases */
    int64_t n_pushed, cap_pushed;
};

/* Partials of all pieces, as they arrive. */
struct wf_round {
    struct wf_partial *partial;
    int64_t n, cap;
};

enum { WF_PS_SPARES = 2 * WF_MAX_TABLE_PIECES }; /* messages to two workers */

struct wf_ps_store {
    weft_ctx *ctx;
    struct wf_ps_store_opts opts;
    const struct wf_rules *rules;
    int n_slots, n_rounds;
    float slot_init[WF_OPTIM_MAX_SLOTS];
    struct wf_held *held;
    struct wf_round round[2];
    struct wf_decision decision; /* of the current step, or the last */
    int64_t *first_block;        /* by variable */
    int64_t n_lent;              /* of all pieces */
    atomic_int pins;             /* sends under way */
    void **dead;                 /* freed when there are none */
    int64_t n_dead, cap_dead;
    struct wf_tables_opts tables;
    struct wf_tables_sort sort;
    struct wf_payload answer, body; /* to a request for rows; other messages about tables */
    /* Memory of such messages that have left, for those to come: new memory is slow. */
    pthread_mutex_t spare_lock;
    struct wf_payload spare[WF_PS_SPARES];
    int n_spare;
};

/* Memory for a piece; nothing happens if there is some. */
weft_status wf_held_make(struct wf_ps_store *s, int piece);
void wf_held_free(struct wf_ps_store *s, struct wf_held *h);
/* Memory that may be on its way to somebody. */
void wf_free_later(struct wf_ps_store *s, void *p);
/* The mean is no longer needed. */
void wf_held_give_mean(struct wf_held *h);
/* Memory for the mean of a record: published, if there is such memory. */
weft_status wf_held_take_mean(struct wf_ps_store *s, int piece);
/* Says that version t is about to be written. */
void wf_held_begin(struct wf_ps_store *s, int piece, int64_t t);
/* WEFT_EPEER: a message about a piece has n bytes. */
weft_status wf_held_wrong_size(int piece, int64_t n, int64_t expected);

/* The decision of a step without norms: factors of 1, and no sums. */
weft_status wf_decision_first(struct wf_ps_store *s, struct wf_decision *d);
/* Room for n sums; the factors stay. */
weft_status wf_decision_size(struct wf_ps_store *s, struct wf_decision *d, int64_t n);
/* One that was sent. WEFT_EPEER: it is not valid. */
weft_status wf_decision_copy(struct wf_ps_store *s, struct wf_decision *d, const char *p,
                             int64_t n);
float *wf_decision_scale(const struct wf_decision *d);
struct wf_partial *wf_decision_sums(const struct wf_ps_store *s, const struct wf_decision *d,
                                    int64_t *n);
void wf_decision_free(weft_ctx *ctx, struct wf_decision *d);

/* The functions of struct wf_ps_data about contributions, norms and updates (update.c). */
void wf_update_data(struct wf_ps_data *data);
/* Those about leases (closing.c). */
void wf_closing_data(struct wf_ps_data *data);
void wf_pushed_drop(struct wf_ps_store *s, struct wf_held *h);
/* Of a contribution: whether it has the bytes that it should have; and its memory. */
weft_status wf_given_check(const struct wf_ps_store *s, int piece, const struct wf_ps_payload *p);
weft_status wf_given_fill(struct wf_contribution *c, const struct wf_blob *b);

#endif
