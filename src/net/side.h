/* side.h - inside of the net layer: further connections of a pair, which carry stripes.
 *
 * A side connection begins as a link of its own (connecting, TLS, its first frame), with the turn.
 * Then it belongs to a carrier, the thread that reads and writes all side connections of one number
 * of a node. What a carrier and the others share is in struct wf_sides, with the link's mutex.
 *
 * A carrier holds `busy` of a side while it uses memory of messages, and never takes the turn then:
 * whoever takes a link down holds the turn, and waits for `busy`. */
#ifndef WF_NET_SIDE_H
#define WF_NET_SIDE_H

#include "net/link.h"

struct wf_side {
    struct wf_side *next;        /* of the carrier, */
    struct wf_carrier *carrier;  /* which frees it once it is gone */
    struct wf_link *link, *conn; /* the pair's, and this connection's */
    pthread_mutex_t busy;
    _Atomic bool dead;  /* the link is down, */
    _Atomic bool gone;  /* and this is the carrier's alone */
    _Atomic bool waits; /* its next stripe is of a message that has no memory yet */
    bool lost;          /* the connection has ended */
    bool again;         /* there is more to do, and nothing announces it */
    int watched;        /* events; 0: it is not in the carrier's set */
    /* arriving */
    struct wf_part *part;
    int max_parts;
    bool arrived; /* the last stripe of a message */
    /* leaving: a stripe */
    struct wf_outgoing *o; /* NULL: none */
    int64_t from, n, at;   /* where it begins in the payload, its bytes, how many are written */
    int64_t n_frame;       /* of all, with header and checksum */
    uint8_t header[WF_FRAME_HEADER], tail[WF_FRAME_TAIL];
    bool blocked;
};

struct wf_sides {
    struct wf_sides_head head;
    struct wf_side *side[WF_MAX_SIDES]; /* with the turn */
    unsigned claimed;                   /* bits of those that are attached, or about to be */
    _Atomic bool ready;                 /* all are there, and both ends know it */
    _Atomic int n_up, n_kept;           /* in use; not yet freed by their carriers */
    /* with the link's mutex */
    bool confirmed; /* by the end that connects: it has them all, */
    bool given_up;  /* or one has ended before that */
    struct wf_gather in;
    bool arrived; /* the message that the link waits for */
    struct wf_outgoing *out;
    uint64_t number;                         /* of the message that is leaving */
    int64_t next;                            /* where its next stripe begins */
    int n_writing;                           /* stripes that are being written */
    bool tell;                               /* carriers: there is something to write */
    int n_lost;                              /* connections that have ended, */
    bool broken;                             /* one of them within a stripe, */
    int64_t lost_ns;                         /* the last one when, and why */
    int64_t since_ns, checked_ns, waited_ns; /* how long the pair has waited for its end since */
    char why[128];
};

#endif
