/* site.h - a member of a job as a process has it: its links to the other members, and the lock of
 * the machine that it drives.
 *
 * A job's tasks are listed in a spec; a node is the place in that list. Chiefs and servers listen.
 * Everybody connects to those that listen, of two servers or chiefs the later one; a link that goes
 * down is tried again. Messages to a node without a link are dropped: machines ask again.
 *
 * Threads: calls of struct wf_site_calls are made with the lock held, by the thread of the node's
 * net, by one that waits in wf_site_wait, or by the node's own, which ticks. */
#ifndef WF_PS_SITE_H
#define WF_PS_SITE_H

#include "cluster/spec.h"
#include "net/net.h"
#include "ps/renew.h"

#include <pthread.h>
#include <stdatomic.h>

/* What is sent besides the messages of machines. */
enum wf_site_kind {
    WF_SITE_JOB = 64, /* a worker tells the chief what is trained; the chief tells servers */
    WF_SITE_JOB_ASK,  /* a server wants to know it */
    WF_SITE_IMAGE,    /* a piece as it is before the first step, from a worker */
    WF_SITE_IMAGE_ASK,
    WF_SITE_SLOTS, /* the optimizer's slots of a piece at version t, from its primary */
    WF_SITE_SLOTS_ASK,
    WF_SITE_FINISHED, /* a worker has done its part, and goes */
    WF_SITE_REFUSED,  /* the receiver cannot take part; the payload says why */
    /* Checkpoints: part.h has the payloads. */
    WF_SITE_SNAP_ASK,
    WF_SITE_SNAP,
    WF_SITE_PART_ASK,
    WF_SITE_PART,
    WF_SITE_PART_READ,
    WF_SITE_PART_DATA,
    WF_SITE_PART_DROP,
    WF_SITE_STAT,     /* a worker or a server tells the chief how far it is: struct wf_site_stat */
    WF_SITE_ASKED,    /* the chief wants something of a worker: a byte, enum wf_ps_asked */
    WF_SITE_QUESTION, /* a request with text in its head: of `weft ctl`, or of a task that wants to
                       * be added */
    WF_SITE_KEPT,     /* the chief tells a worker what would be restored: a step, 8 bytes. From it
                       * on, checkpoints are not deleted */
    WF_SITE_PRINT     /* a worker tells the chief what its numbers depend on: a fingerprint */
};

/* With leases: how many came between what a worker read and what it wrote, of pieces and its
 * leases: how often that was measured, in all, and at most. */
struct wf_staleness {
    int64_t n, sum, most;
};

/* Of a worker or a server, since it began; the queues are those of now. A server has no step and no
 * samples. */
struct wf_site_stat {
    int64_t step, samples, sent, received;
    int64_t
        aside; /* steps of the servers that trained nothing: of a worker, in `step` not counted */
    double waited_s, busy_s;
    struct wf_queues queues;
    struct wf_staleness stale;
};

#define WF_CONTROL_ROLE "control" /* of `weft ctl`; it is no task */

enum { WF_SITE_MAX_QUESTION = 400 };

/* Before the head of a message. */
struct wf_site_head {
    int64_t n_body; /* bytes of the payload; what follows is the decision */
    double rate;    /* of contributions and records: the learning rate, NAN: that of the rules */
    /* Of contributions and versions: 0, or parameters and gradients are in the region of this
     * number that the sender shares, counted from 1; the payload has the rest. */
    uint64_t region;
    uint64_t stamp;                     /* of contributions in a region */
    int64_t control, fresh, kind, step; /* of both: struct wf_ps_mark */
};

/* What has arrived. Its payload stays valid until the call returns. */
struct wf_arrived {
    int from;
    uint32_t kind;
    struct wf_site_head head;
    struct wf_message msg; /* of a machine */
    const char *p;         /* NULL: it was placed by `place` */
    int64_t n;
    void *placed;     /* as `place` left it */
    const char *rest; /* the part that `place` left to the node; NULL: there is none */
};

struct wf_site;
struct wf_site_calls {
    /* May be NULL. Where a payload of n bytes goes: up to WF_SITE_PARTS of it; 0 parts: into memory
     * of the node's own, and so does one part of which p is NULL. *placed is given to received, or
     * to unplace if the link goes down before. */
    int (*place)(void *arg, const struct wf_arrived *a, int64_t n, struct wf_part *part,
                 void **placed);
    void (*unplace)(void *arg, void *placed);
    weft_status (*received)(void *arg, struct wf_arrived *a);
    weft_status (*tick)(void *arg, int64_t now);
    void (*up)(void *arg, int node);
    /* gone: its process has closed the connection. */
    weft_status (*down)(void *arg, int node, uint64_t incarnation, bool gone);
    /* May be NULL: then only tasks of the list are let in. A question, to be answered by
     * wf_site_answer. Over tls the peer is who it says it is. */
    void (*ask)(void *arg, struct wf_link *l, uint64_t id, const char *question);
};

enum { WF_SITE_PARTS = 3 };

struct wf_peer {
    struct wf_link *link; /* NULL: none */
    bool up;
    int64_t tried_ns;
    bool refused;  /* by the last attempt to connect: nobody listens there */
    char why[256]; /* the last link went down, or was not made; "": in order */
    char *mem;     /* of the payload that arrives */
    int64_t cap;
    struct wf_part part[WF_SITE_PARTS];
    void *placed;
    bool placing;
    struct wf_region **region; /* that it shares, in their order */
    int64_t n_regions, cap_regions;
    int n_shared; /* of this node's memories, with it */
};

struct wf_site {
    weft_ctx *ctx;
    struct wf_spec spec; /* its tasks are a copy */
    int self;
    int max_tasks; /* of the spec, with those that are added */
    uint64_t incarnation;
    struct wf_net *net;
    const struct wf_site_calls *calls;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    pthread_t ticker;
    bool ticks, stop;
    atomic_bool leaves; /* links are being closed; read without the lock by whoever admits a peer */
    struct wf_peer *peer;
    struct wf_actions acts;
    pthread_mutex_t list_lock; /* of the spec's tasks, for whoever admits a peer */
    pthread_mutex_t flights_lock;
    struct flight *flights; /* messages that have not left yet */
    /* Regions of links that are gone: somebody may still read them. */
    struct wf_region **old;
    int64_t n_old, cap_old;
    uint64_t *bits; /* of a message that is read */
    char *head;     /* of one that is written */
    /* The first failure; nothing is done afterwards. */
    _Atomic weft_status st; /* written with the lock */
    char why[512];
    atomic_llong sent_bytes, received_bytes, messages;
    atomic_llong busy_ns;  /* of its machine */
    atomic_llong since_ns; /* of a server: when it learned what is trained; 0: not yet */
    atomic_int waiting;    /* threads in wf_site_wait */
};

weft_status wf_site_start(struct wf_site *n, weft_ctx *ctx, const struct wf_spec *spec, int self,
                          const struct wf_site_calls *calls, void *arg);
/* Calls nothing afterwards. */
void wf_site_stop(struct wf_site *n);
void wf_site_lock(struct wf_site *n);
void wf_site_unlock(struct wf_site *n);
int64_t wf_site_now(const struct wf_site *n);
/* Waits without the lock until done(arg), which is asked with it; WEFT_ETIME with `what`. The
 * failure of the node ends the wait, too. */
weft_status wf_site_wait(struct wf_site *n, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                         const char *what);
/* The node has failed; st is returned. */
weft_status wf_site_fail(struct wf_site *n, weft_status st);

/* What is sent; with the lock. Parts are borrowed until `sent`, which may be NULL for none; it is
 * called once, at once if there is no link. It must not take the lock. */
void wf_site_send(struct wf_site *n, int to, uint32_t kind, const struct wf_message *m,
                  const struct wf_site_head *head, const struct wf_part *part, int n_parts,
                  wf_sent_fn *sent, void *arg);
/* A task does not keep to the protocol, as weft_error() says: it is told, and nothing else is
 * disturbed. */
void wf_site_refuse(struct wf_site *n, int from);
/* The same with bytes that are copied. */
void wf_site_send_copy(struct wf_site *n, int to, uint32_t kind, const struct wf_message *m,
                       const void *p, int64_t bytes);
/* What was moved; the status is that of a failure, if there was one. */
struct wf_ps_counts;
weft_status wf_site_count(struct wf_site *n, struct wf_ps_counts *out);
/* Tells the chief; with the lock. */
void wf_site_tell(struct wf_site *n, int chief, const struct wf_site_stat *s);
enum { WF_SITE_TELL_MS = 500 }; /* between two reports to it */
/* Whether there is a link. */
bool wf_site_has(const struct wf_site *n, int node);
/* Nobody listens where chiefs and servers should be. With the lock. */
bool wf_site_is_alone(const struct wf_site *n);
/* Why there is no link to a chief: "not connected", or more. With the lock, as the text. */
const char *wf_site_why(const struct wf_site *n, int chief);

/* Tasks that were added to the job, as wf_added_read takes them; with the lock. Links to them are
 * made at the next tick. */
weft_status wf_site_extend(struct wf_site *n, const char *list);
/* Answers a question: with a text; with why not; or another chief is to be asked. */
enum wf_site_mark { WF_SITE_YES = '+', WF_SITE_NO = '-', WF_SITE_ELSEWHERE = '?' };
void wf_site_answer(struct wf_site *n, struct wf_link *l, uint64_t id, enum wf_site_mark mark,
                    const char *text);

/* Memory that peers on this host read where it is; with the lock. Whether this node's first `count`
 * memories are shared with a peer: those that are not yet are, where the transport maps them. */
bool wf_site_share(struct wf_site *n, int to, struct wf_region *const *memory, int count);
/* Whether a peer is connected that can map memory of this node. */
bool wf_site_maps(const struct wf_site *n, int to);
/* The region of this number (from 1) that a peer shares, if it has `bytes` bytes; NULL
 * otherwise. */
const char *wf_site_region(const struct wf_site *n, int from, uint64_t number, int64_t bytes);
/* Regions of links that are gone are not read any more. */
void wf_site_drop_old(struct wf_site *n);

#endif
