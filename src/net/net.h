/* net.h - the door of the net layer: messages between processes, with deadlines.
 *
 * A node is this process's end. It has links to peers; a link is one established connection, over
 * any transport:
 *   tls:HOST:PORT    TLS 1.3 over TCP (IPv4, IPv6, names), with certificates on both sides
 *   tcp:HOST:PORT    plain TCP, with checksums of payloads
 *   uds:PATH         a Unix socket, for processes of one host
 *
 * What every transport promises (test/unit/net/link_test.c):
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
 * Threads: a node has one thread, which owns its loop and makes all calls of struct wf_net_calls,
 * and those of replies; they must not block, and may call everything here but wf_net_wait and
 * wf_net_free. `sent` is called by it or by a thread that sends, perhaps before wf_link_send
 * returns, for one message of a link at a time and in their order; it may send. All other functions
 * may be called by any thread.
 *
 * This layer knows nothing of parameters, roles or jobs: kinds and heads belong to the layers
 * above. */
#ifndef WF_NET_H
#define WF_NET_H

#include "net/frame.h"
#include "net/tls.h"

struct wf_net;
struct wf_link;

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
};

struct wf_net_opts {
    struct wf_identity self;
    struct wf_net_calls calls;
    int64_t max_payload;          /* of a message that arrives; 0: 1 TiB */
    int64_t max_queued;           /* messages of a link that wait to be sent; 0: 1024 */
    int64_t silence_ns, stall_ns; /* 0: 3 s; below 0: never */
    int spin_us;                  /* how long the thread looks for work before it sleeps */
    struct wf_tls *tls;           /* for tls; borrowed */
    bool no_checksums;            /* of payloads over tcp */
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

/* ---- messages -------------------------------------------------------------------------------- */

/* sent may be NULL. A message that is refused is not sent at all, and `sent` is not called. */
weft_status wf_link_send(struct wf_link *l, const struct wf_msg *m, wf_sent_fn *sent, void *arg);
/* A request; *id (may be NULL) to cancel it. timeout_ns 0: as long as the link is up. reply is
 * called exactly once, unless the call itself fails; sent may be NULL. */
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

#endif
