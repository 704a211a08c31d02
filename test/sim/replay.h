/* replay.h - real parameters in a simulated job whose shards are leased: the truth. It is a plain
 * replay: each piece by itself, one lease after the other, in the order in which the first copy of
 * the piece applied them; each by the contribution that its worker computed from what it had
 * pulled. Every copy must have the same bits.
 *
 * The replay holds everything in flat vectors and in whole tables, so it shares with servers only
 * the merge layer. */
#ifndef WF_SIM_REPLAY_H
#define WF_SIM_REPLAY_H

#include "real.h"
#include "world.h"

enum {
    KEPT = 8, /* versions of a piece: some that nobody was told of may be lost again */
};

/* What a worker has computed for a lease. */
struct given {
    int node;
    uint64_t incarnation, seen; /* seen: what it was computed from */
    int64_t lease;
    bool forgotten;
    struct wf_contribution *c; /* NULL: the shard has no samples */
    float scale[MAX_VARS];
    double rate;
    struct wf_ps_mark mark;
    float *lent; /* the worker's memory: another use of it changes the stamp */
    _Atomic uint64_t stamp;
};

/* All pieces, each at a version of its own. */
struct moment {
    float *params, *slot[WF_OPTIM_MAX_SLOTS];
    double sums[MAX_SUMS];
    struct wf_table_data table[MAX_VARS];
    int64_t at[MAX_PIECES];
};

/* A piece in a checkpoint, or as it is initialized. */
struct saved {
    struct saved *next;
    int piece;
    uint64_t value[MAX_BLOCKS];
    struct moment m;
};

struct lease_truth {
    struct truth u;
    struct wf_rules rules; /* with the logs */
    struct wf_merge *all, *merge[MAX_PIECES];
    struct wf_contribution *mean;
    struct moment *kept[MAX_HISTORIES]; /* KEPT of each */
    struct moment first, scratch;
    struct saved *saved;
    struct given **given;
    int64_t n_given, cap_given;
};

static inline struct lease_truth *replay_of(const struct world *w)
{
    return w->truth;
}

static inline const struct wf_cut_piece *replay_cut(const struct lease_truth *u, int piece)
{
    return &u->u.m.cut->piece[piece];
}

static inline bool replay_is_table(const struct lease_truth *u, int v)
{
    return u->u.m.rules.var[v].table;
}

/* The functions of struct sim_kind. */
void *replay_new(weft_ctx *ctx, const struct sim_case *c);
void replay_free(void *truth);
void replay_begin(struct world *w, uint64_t history);
void replay_keep(struct world *w, uint64_t history, int piece, int64_t version);
void replay_resume(struct world *w, int64_t t);
/* The next version of a piece, by a lease: what its blocks are then. */
void replay_lease(struct world *w, uint64_t history, int piece, int64_t t, const struct given *g,
                  uint64_t *value);

void replay_copy(const struct lease_truth *u, int piece, const struct moment *from,
                 struct moment *to);
/* Of a block; -1: of all. */
uint64_t replay_hash(const struct lease_truth *u, int piece, int block, struct moment *m);
/* NULL: it was never saved. */
const struct saved *replay_saved(const struct lease_truth *u, int piece, const uint64_t *value);

#endif
