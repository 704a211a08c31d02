/* lease.h - workers whose shards are leased one by one: bounded staleness, asynchronous training.
 *
 * A lease is shard l of step t, number t · L + l. The chief grants leases (cluster/ledger.h); for
 * each, in order, a worker
 *   pulls     the pieces that it needs, each at whatever version it is
 *   computes  the shard
 *   pushes    to each piece its part of the gradient, as soon as it is there or with the closing
 *             record, which says what the whole of it does: scale or skip, state, logs
 * A primary holds what is not closed. The first closing record of a lease that comes to a piece is
 * recorded at the backup, applied, and acknowledged; the piece's version is the number of leases in
 * it. A worker has done a lease when all pieces have acknowledged it. At most `inflight` pushes are
 * not acknowledged; with one, a worker reads what it wrote.
 *
 * With a bound s, a worker that has closed c leases reads only what contains all leases that others
 * closed before their clock c - s: ps/server_clocks.c. A worker that holds no lease is not waited
 * for.
 *
 * The server machine is the same as for steps (ps.h): epochs, copies and moves do not differ. */
#ifndef WF_PS_LEASE_H
#define WF_PS_LEASE_H

#include "ps/ps.h"

enum { WF_NO_LEASE = -1 };

struct wf_lessee_data {
    void *arg;
    /* A piece has arrived, for the lease that is to be computed. WEFT_ECANCEL: it was overwritten
     * meanwhile, and is requested again. */
    weft_status (*take)(void *arg, int piece, int64_t lease, const void *payload);
    /* Whether the shard of a lease needs the piece. With a bound, pieces of which rows are read
     * must be among them. */
    bool (*needs)(void *arg, int64_t lease, int piece);
    /* Rows that were requested with wf_lessee_read have arrived. */
    weft_status (*rows)(void *arg, int piece, int64_t lease, const void *payload);
    /* A new history: all leases are gone. May be NULL. */
    void (*restart)(void *arg);
    /* All pieces have it: its gradient is no longer needed. */
    void (*forget)(void *arg, int64_t lease);
    /* The control record of step t, which is in the store. NULL: there are none. */
    weft_status (*control)(void *arg, int64_t t, const void *payload);
    /* May be NULL. What the caller does while it is neither to compute nor to decide: it waits, or
     * others may have to wait for it. */
    enum wf_doing (*doing)(void *arg);
    /* Whether a lease may be begun: the driver's memory is free for it. Whenever the answer changes
     * to true, it calls wf_lessee_go. NULL: always. */
    bool (*may)(void *arg);
};

/* A piece, for the lease that is pulled or computed. */
struct wf_lessee_piece {
    bool here;       /* it was pulled for this lease */
    bool sent;       /* its part of the gradient was pushed in this epoch */
    int64_t version; /* that was pulled */
    int64_t heard_ns;
    bool clocked; /* it knows how this worker counts, in this epoch */
    bool reads;   /* rows were requested, and have not arrived */
    int read_number;
};

struct wf_lessee_push {
    int64_t lease, clock, sent_ns;
    int n_left;        /* pieces that have not acknowledged it */
    uint64_t *applied; /* by piece */
    int64_t *version;  /* by piece: that it was computed from; -1: none */
};

struct wf_lessee_worker {
    struct wf_view view;
    struct wf_ps_plan plan;
    struct wf_lessee_data data;
    struct wf_lessee_piece *piece;
    int64_t *queue; /* leases that are not begun, rising */
    int n_queue, n_granted;
    int64_t lease; /* that is pulled or computed; WF_NO_LEASE */
    bool computing;
    struct wf_lessee_push *push;
    int n_push;
    struct wf_leases held; /* as it is sent */
    uint64_t grant_term;
    int grant; /* the last one of that term */
    /* The bound on clocks. */
    enum wf_clock_state state;
    bool joining; /* not all pieces have said where it begins */
    int clock_number;
    int64_t clock;
    /* Control records, as in struct wf_client. */
    int64_t control, asked, decided, control_ns;
    int64_t needs_control; /* leases from the last grants on need this one, or a later one */
    bool wants_control;
    bool halts; /* a control record after step halt_after is wanted, which nobody planned */
    int64_t halt_after, halt_ns;
    int64_t t;   /* all steps before it are done, as far as it is known */
    int64_t low; /* likewise leases */
    int64_t begun_ns, pace_ns;
    int64_t begun; /* the lease that is computed, also if it was lost meanwhile */
    int64_t moves; /* how often the caller did anything */
    /* How many leases came between what was read and what was written: of each piece and lease. */
    int64_t n_measured, sum_behind, most_behind;
    int64_t now, beat_ns;
};

weft_status wf_lessee_init(struct wf_lessee_worker *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_lessee_data *data, int node, uint64_t incarnation,
                           int chief);
void wf_lessee_free(struct wf_lessee_worker *c);
weft_status wf_lessee_step(struct wf_lessee_worker *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out);
weft_status wf_lessee_tick(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out);
/* WF_ACT_DECIDE is answered: the control record of step t is there. */
weft_status wf_lessee_decided(struct wf_lessee_worker *c, int64_t now, int64_t t,
                              struct wf_actions *out);
bool wf_lessee_decides(const struct wf_lessee_worker *c);
/* There shall be a control record as soon as possible, at a step that nobody planned: to stop, or
 * for a checkpoint on request. The chief grants nothing beyond the step that it chooses, until all
 * leases before it are done on all pieces and whoever decides has made the record: WF_ACT_DECIDE
 * comes for a step after the last one that this worker knows of, perhaps a planned one, unless the
 * job has granted its last leases before. The worker repeats its request until then, also to a
 * chief that takes over. Whoever decides may ask, or any other worker; the chief does not know why:
 * what the record says is up to the one that decides. */
weft_status wf_lessee_halt(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out);
/* A lease may be begun now. */
weft_status wf_lessee_go(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out);
/* What the lease gives to a piece is there, before all of it is. */
weft_status wf_lessee_ready(struct wf_lessee_worker *c, int64_t now, int64_t lease, int piece,
                            struct wf_actions *out);
/* Requests rows of a piece, for the lease that is computed or at a boundary; `reads` says whether
 * they have come. */
weft_status wf_lessee_read(struct wf_lessee_worker *c, int64_t now, int piece,
                           struct wf_actions *out);
/* The gradient that WF_ACT_COMPUTE (t: the lease) wanted is there. If the lease was lost meanwhile,
 * nothing happens but that another one may begin. */
weft_status wf_lessee_computed(struct wf_lessee_worker *c, int64_t now, int64_t lease,
                               struct wf_actions *out);
/* Whether a lease is held: granted, and not done. */
bool wf_lessee_holds(const struct wf_lessee_worker *c, int64_t lease);

#endif
