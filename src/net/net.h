/* net.h - the door of the net layer: messages between processes, with deadlines.
 *
 * A node is this process's end. It has links to peers; a link is one established connection, over
 * any transport:
 *   tls:HOST:PORT    TLS 1.3 over TCP (IPv4, IPv6, names), with certificates on both sides
 *   tcp:HOST:PORT    plain TCP, with checksums of payloads
 *   uds:PATH         a Unix socket, for processes of one host
 *   shm:PATH         shared memory, for processes of one user on one host, who meet at the Unix
 *                    socket PATH
 *   inproc:NAME      queues, for nodes of one context; also the network of simulations
 *
 * What every transport promises (test/unit/net: message_test.c, request_test.c, link_test.c,
 * conform_test.c, hostile_test.c, random_test.c, storm_test.c):
 * - Messages of a link arrive in the order they were sent, each whole and once, or the link goes
 *   down. Nothing arrives on a link after it is down; a new link is a new beginning.
 * - The bytes of a payload are read from where the sender has them, and arrive where the receiver
 *   wants them. A sender's memory is borrowed until `sent` is called, exactly once for each
 *   message.
 * - Memory is bounded: a receiver that places nothing stops its peer, whose messages are then
 *   refused with WEFT_ELIMIT once max_queued of them wait.
 * - Every wait ends: a peer that says nothing for `silence_ns`, or takes no byte for `stall_ns`, is
 *   down with WEFT_ETIME; requests have deadlines of their own. The error names peer and operation.
 *
 * Threads: a node has one thread, which makes the calls of struct wf_net_calls, and those of
 * replies. A thread within wf_net_wait, wf_net_poll, wf_net_attend or wf_net_leave makes them in
 * its place: it sees to all that arrives at the node, not only to what it waits for. One thread at
 * a time makes such calls; it may be another one for each, also of one link, so that nothing may
 * depend on the thread: do not wait with a lock that these calls take, and do not give `place`
 * memory of a thread. They must not block, and may call everything here but those four functions
 * and wf_net_free. `sent` is called by a thread that makes these calls, by a thread that sends,
 * perhaps before wf_link_send returns, or over inproc by the peer's thread; for one message of a
 * link at a time and in their order; it may send. The threads of further connections of a pair make
 * both kinds of calls, too. All other functions may be called by any thread.
 *
 * This layer knows nothing of parameters, roles or jobs: kinds and heads belong to the layers
 * above. */
#ifndef WF_NET_H
#define WF_NET_H

#include "net/frame.h"
#include "net/tls.h"

struct wf_net;
struct wf_link;
struct wf_region;

/* Who is at the other end: over tls as its certificate says, otherwise as it says of itself. */
struct wf_identity {
    char name[64];        /* of the task, "worker/3" */
    char role[16];        /* "worker" */
    uint64_t incarnation; /* of its process: a restarted one has another. Of wf_net_opts, 0: drawn
                           * at random */
};

/* A message: one to be sent, or one that arrives. */
struct wf_msg {
    uint32_t kind;
    const void *head; /* up to WF_FRAME_MAX_HEAD bytes; copied when it is sent */
    int32_t n_head;
    const struct wf_part *part; /* the payload; of one that has arrived: where it was placed */
    int n_parts;
    int64_t n_payload; /* of one that arrives: all of it */
    uint64_t id;       /* of a request that arrives: to be answered with it. Of a response: that of
                        * the request */
    bool response;
    uint64_t slot; /* of one that arrives with its payload in regions: until wf_link_release */
};

struct wf_net_calls {
    void *arg;
    /* May be NULL. The peer has said who it is: a status refuses it. */
    weft_status (*admit)(void *arg, struct wf_link *l);
    /* May be NULL. The link is up. */
    void (*up)(void *arg, struct wf_link *l);
    /* Once for each link that was up or was promised by wf_net_connect. WEFT_OK: closed in order,
     * by either side. The link is dropped by wf_link_drop, here or later. */
    void (*down)(void *arg, struct wf_link *l, weft_status st, const char *why);
    /* Where the payload of a message or response goes: as in struct wf_frame_calls. After
     * WF_PLACE_LATER nothing is read from the link until wf_link_resume. May be NULL: payloads
     * are skipped. */
    weft_status (*place)(void *arg, struct wf_link *l, const struct wf_msg *m,
                         const struct wf_part **parts, int *n_parts);
    void (*received)(void *arg, struct wf_link *l, const struct wf_msg *m);
    /* May be NULL. The peer shares a region; it is dropped by wf_region_drop, here or later, also
     * after the link is gone. Without this call, regions last as long as the link. */
    void (*region)(void *arg, struct wf_link *l, struct wf_region *r);
};

struct wf_net_opts {
    struct wf_identity self;
    struct wf_net_calls calls;
    int64_t max_payload;          /* of a message that arrives; 0: 1 TiB */
    int64_t max_queued;           /* messages of a link that wait to be sent; 0: 1024 */
    int64_t silence_ns, stall_ns; /* 0: 3 s; below 0: never */
    int spin_us;                  /* how long the thread looks for work before it sleeps */
    struct wf_tls *tls;           /* for tls; borrowed */
    int64_t key_records;          /* sent under one key of tls before the next; 0: 2^22 */
    bool no_checksums;            /* of payloads over tcp */
    int64_t max_regions;          /* bytes of all regions that a peer shares; 0: 4 GiB */
    /* Over tcp and tls: connections of a pair, 1 to WF_MAX_CONNECTIONS; 0: automatic. The smaller
     * number of the two ends counts. With more than one, the others carry payloads of at least
     * striped_min bytes (0: 1 MiB), in stripes of stripe_bytes (0: 256 KiB), each read and written
     * by a thread that all links of the node share. */
    int connections;
    int64_t striped_min, stripe_bytes;
    bool manual; /* no thread: the caller's wf_net_turn does all, over inproc alone. For tests and
                  * simulations, which own the clock, too */
};

typedef void wf_sent_fn(void *arg, weft_status st);
/* WEFT_OK: the response m. Otherwise m is NULL: WEFT_ETIME, WEFT_ECANCEL, WEFT_EPEER if the link
 * went down, or the status that the peer answered with. */
typedef void wf_reply_fn(void *arg, weft_status st, const struct wf_msg *m);

/* ---- nodes ----------------------------------------------------------------------------------- */

weft_status wf_net_new(weft_ctx *ctx, const struct wf_net_opts *opts, struct wf_net **out);
/* All links go down, and are gone; after the calls for that, nothing is called any more. */
void wf_net_free(struct wf_net *net);
/* bound (may be NULL): the address as it can be connected to, with the port that was chosen for
 * port 0. */
weft_status wf_net_listen(struct wf_net *net, const char *address, char *bound, size_t size);
/* Promises a link: `up` or `down` follows. It may be used at once; what is sent waits. */
weft_status wf_net_connect(struct wf_net *net, const char *address, int64_t timeout_ns,
                           struct wf_link **out);
/* Waits until done(arg) is true, which is asked after everything that happens; WEFT_ETIME with
 * `what` otherwise. Not by the node's own thread. */
weft_status wf_net_wait(struct wf_net *net, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                        const char *what);

/* A round trip takes less than a thread needs to wake another one up. So a thread that waits sees
 * to what arrives itself: wf_net_wait spins for spin_us, and then sleeps where the node's thread
 * does; wf_net_poll looks once and says whether anything has arrived. A thread that is going to
 * wait again and again says wf_net_attend before and wf_net_leave afterwards: the node's thread
 * then keeps out of its way, and peers over shm need not be told after each message that somebody
 * sleeps or wakes up. In between, wf_net_wait spins for as long as it takes, and what nobody polls
 * for is read at the next tick, of at most silence_ns / 12. */
void wf_net_attend(struct wf_net *net);
void wf_net_leave(struct wf_net *net);
bool wf_net_poll(struct wf_net *net);

/* What waits at all links that are up. To be sent: messages that the system, or a peer over
 * inproc, has not taken whole, and their bytes. Received, and not passed on yet: bytes that have
 * arrived here and were not read (but for those of stripes), and messages, of which only the
 * first of a link is known: links that have such bytes or a part of a message. Any thread, also
 * in a call; it never waits for one: while the node is at work, this is how it was a moment
 * before. */
struct wf_queues {
    int64_t send_messages, send_bytes, receive_messages, receive_bytes;
};
void wf_net_queues(struct wf_net *net, struct wf_queues *out);

/* A node without a thread does what there is to do now; whether that was anything. */
bool wf_net_turn(struct wf_net *net);

/* ---- messages -------------------------------------------------------------------------------- */

/* sent may be NULL. A message that is refused is not sent at all, and `sent` is not called. */
weft_status wf_link_send(struct wf_link *l, const struct wf_msg *m, wf_sent_fn *sent, void *arg);
/* A request; *id (may be NULL) to cancel it. timeout_ns 0: as long as the link is up; below 0: its
 * time is over already. reply is called exactly once, unless the call itself fails; sent may be
 * NULL. */
weft_status wf_link_call(struct wf_link *l, const struct wf_msg *m, int64_t timeout_ns,
                         wf_sent_fn *sent, wf_reply_fn *reply, void *arg, uint64_t *id);
/* Answers request `id`: with a message, or with a status. */
weft_status wf_link_reply(struct wf_link *l, uint64_t id, weft_status st, const struct wf_msg *m,
                          wf_sent_fn *sent, void *arg);
void wf_link_cancel(struct wf_link *l, uint64_t id);
void wf_link_resume(struct wf_link *l);
/* Sends what is queued, then goes down in order. */
void wf_link_close(struct wf_link *l);
/* The caller no longer uses the link, which is down. */
void wf_link_drop(struct wf_link *l);

/* Valid once the link is up. */
const struct wf_identity *wf_link_peer(const struct wf_link *l);
/* "worker/3 (tcp:10.0.0.7:4711)", for errors. */
const char *wf_link_name(const struct wf_link *l);
/* Connections that messages travel over now: those of a pair are made after the link is up. */
int wf_link_connections(const struct wf_link *l);
/* How many this node wants of a pair: as its options say, or chosen by the number of cores. */
int wf_net_connections(const struct wf_net *net);

/* ---- regions ---------------------------------------------------------------------------------
 *
 * Memory that both ends of a link have. A message whose parts (at most WF_MAX_REFS that are not
 * empty) all lie in regions of its link is not copied over shm and inproc: the receiver gets parts
 * that point into its own mapping, without being asked for a place. They stay as they are until it
 * calls wf_link_release with the message's slot, once; the sender learns that as `sent`. Over other
 * transports the same calls copy: a region is plain memory at each end, and bytes that are sent
 * arrive at the same offset.
 *
 * A region belongs to one link, so to this pair of processes, and is not given to anybody else
 * later. After the link is down, both ends keep what they have until they drop it: what a peer had
 * handed over before it died stays readable. */

enum { WF_MAX_CONNECTIONS = 8 };
enum { WF_MAX_REFS = 16, WF_MAX_REGIONS = 64 /* of a link and direction */ };

struct wf_region {
    uint64_t id; /* given by the end that made it */
    void *p;
    int64_t n;
    bool writable; /* by both ends; otherwise the one that did not make it can only read */
    bool mine;     /* made by this end */
};

/* Zeros; for a link that is up. Its bytes count in the context's memory limit. */
weft_status wf_region_new(struct wf_link *l, int64_t n, bool writable, struct wf_region **out);
/* Memory that belongs to no link, for several of them: sealed, and written only through this
 * mapping. charged: it counts in the context's memory limit as a whole; otherwise whoever uses
 * parts of it charges them. */
weft_status wf_region_memory(weft_ctx *ctx, int64_t n, bool charged, struct wf_region **out);
/* Another region of a link on such memory, to be shared; the peer only reads it. */
weft_status wf_region_alias(struct wf_link *l, struct wf_region *memory, struct wf_region **out);
/* Whether what is in regions is not copied: over shm and inproc. */
bool wf_link_maps(const struct wf_link *l);
/* Within `down`: nobody listens at its address (which is not known of a host that does not
 * answer). */
bool wf_link_refused(const struct wf_link *l);
/* The peer gets it before all that is sent afterwards. */
weft_status wf_region_share(struct wf_link *l, struct wf_region *r);
void wf_region_drop(struct wf_region *r);
/* The payload of a message with a slot is no longer read. Does nothing after the link is down. */
void wf_link_release(struct wf_link *l, uint64_t slot);

/* ---- simulations -----------------------------------------------------------------------------
 *
 * Links over inproc pass each frame by a function, where one is set: it delays, partitions, pauses
 * and cuts. */

/* The frame that is the next of a link; the end of a link that was not closed in order is a bye,
 * too. */
struct wf_transit {
    const struct wf_identity *from, *to;
    const struct wf_frame *frame;
    int64_t queued_ns, now_ns; /* when it was sent, and now, by the context's clock */
};
#define WF_TRANSIT_CUT (-1) /* the link goes down at both ends */
/* When the frame may arrive: asked each time its receiver looks. Must not call anything here. */
typedef int64_t wf_transit_fn(void *arg, const struct wf_transit *t);
/* Before the first link. */
weft_status wf_inproc_transit(weft_ctx *ctx, wf_transit_fn *fn, void *arg);

#endif
