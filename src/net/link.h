/* link.h - inside of the net layer: nodes, links, and what is queued.
 *
 * The node's thread owns everything but what a mutex names. Two mutexes: the node's (what other
 * threads ask of its thread, and waiting), and each link's (what is to be sent). Neither is held
 * while the caller's functions run. */
#ifndef WF_NET_LINK_H
#define WF_NET_LINK_H

#include <pthread.h>
#include <sys/uio.h>
#include <uv.h>

#include "base/sys.h"
#include "net/address.h"
#include "net/net.h"

enum { WF_STAGING = 1 << 16, WF_MAX_LINK_NAME = 256 };

/* A frame that waits to be sent, or is being sent. */
struct wf_outgoing {
    struct wf_outgoing *next;
    struct wf_frame frame;
    uint8_t header[WF_FRAME_HEADER], tail[WF_FRAME_TAIL];
    uint8_t *head;        /* in the same allocation, after the parts */
    struct wf_part *part; /* the caller's memory */
    int n_parts;
    int64_t n, at;  /* bytes of the frame, and how many are sent */
    int64_t summed; /* bytes of the payload that are in the checksum */
    uint32_t crc;
    wf_sent_fn *sent;
    void *arg;
    weft_status st; /* that `sent` is told */
};

/* A request that waits for its response. */
struct wf_pending {
    struct wf_pending *next;
    uint64_t id;
    int64_t deadline; /* 0: none */
    wf_reply_fn *reply;
    void *arg;
    bool cancelled;
};

/* How bytes go over a socket: as readv and writev, or a negative errno. -EPROTO: the link's
 * wire_error says why. */
struct wf_wire {
    int64_t (*read)(struct wf_link *l, const struct iovec *v, int n);
    int64_t (*write)(struct wf_link *l, const struct iovec *v, int n); /* with the link's mutex */
    /* May be NULL. Whether bytes are here that the socket no longer announces. */
    bool (*pending)(struct wf_link *l);
};
extern const struct wf_wire wf_wire_plain, wf_wire_tls;

/* A host's name that is being looked up, in a thread of libuv's. */
struct wf_resolving {
    uv_work_t work;
    struct wf_link *link;
    char host[256], port[8];
    int rc;
    struct addrinfo *found;
};

enum wf_link_state { WF_LINK_OPENING, WF_LINK_SECURING, WF_LINK_HELLO, WF_LINK_UP, WF_LINK_DOWN };

struct wf_link {
    struct wf_link *next; /* of the node */
    struct wf_net *net;
    char address[WF_MAX_ADDRESS];
    const char *_Atomic name; /* for errors: the address, then full_name */
    char full_name[WF_MAX_LINK_NAME];
    struct wf_identity peer;
    bool promised, told_up;
    _Atomic bool dropped;
    /* the connection */
    int fd; /* -1: none yet */
    const struct wf_wire *wire;
    struct wf_secure *secure;     /* of tls */
    struct wf_identity certified; /* by the peer's certificate */
    char wire_error[128];
    bool more; /* bytes are left to read, and no event says so */
    uv_poll_t *poll;
    int events; /* that the loop waits for */
    struct wf_resolving *resolving;
    struct addrinfo *found, *next_found; /* addresses of the host, and the next to be tried */
    int64_t connect_by;                  /* 0: no limit */
    bool bye;                            /* the peer has said it */
    _Atomic bool said_bye;
    /* arriving */
    struct wf_unframe in;
    struct wf_msg placed; /* the message whose payload is arriving */
    bool paused;
    uint8_t *staging;
    int64_t staged, taken; /* bytes in it; how many the frames have taken */
    int64_t heard_ns, pinged_ns;
    /* leaving */
    pthread_mutex_t out; /* of all below, and of writing to fd */
    _Atomic int state;
    struct wf_outgoing *first, **last;
    int64_t n_queued, moved_ns;           /* when bytes were last taken, or the queue was empty */
    struct wf_outgoing *done, **done_end; /* whose `sent` is to be called */
    bool finishing;                       /* a thread is doing that */
    int64_t unproved,
        proved_ns;        /* bytes sent since the peer has proved that it takes them, and when
                                  * it did */
    bool blocked;         /* the socket takes no more */
    _Atomic bool closing; /* after what is queued */
    bool resume;
    struct wf_pending *pending;
    uint64_t next_id;
    weft_status broken; /* found by a thread that sent */
    char why[WF_MAX_LINK_NAME + 256];
};

struct wf_listener {
    struct wf_listener *next;
    struct wf_net *net;
    int fd;
    uv_poll_t *poll;
    enum wf_address_kind kind;
    bool resting;              /* nothing more could be accepted: until the next turn */
    char path[WF_MAX_ADDRESS]; /* of a Unix socket: removed at the end */
};

/* What another thread asks of the node's. */
struct wf_order {
    struct wf_order *next;
    struct wf_link *link;         /* to be opened */
    struct wf_listener *listener; /* to be watched */
};

struct wf_net {
    weft_ctx *ctx;
    struct wf_net_opts opts;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t timer;
    pthread_t thread;
    bool started;
    struct wf_link *links;
    struct wf_listener *listeners;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct wf_order *orders;
    bool stop, stopped;
    int n_waiting;
    _Atomic int64_t n_turns; /* how often something has happened */
    _Atomic bool fast;       /* something has a deadline: the timer ticks often */
};

/* link.c */
weft_status wf_link_new(struct wf_net *net, struct wf_link **out);
void wf_link_free(struct wf_link *l);
/* The connection is there: makes it secure, says hello, and reads. */
void wf_link_start(struct wf_link *l);
void wf_link_down(struct wf_link *l, weft_status st, const char *why);
/* Once a turn: what other threads asked for; what time has come. */
void wf_link_serve(struct wf_link *l, int64_t now);
void wf_link_ready(struct wf_link *l, int events);
/* Any thread: the node's thread looks at all links; something that is waited for may have
 * happened. */
void wf_net_wake(struct wf_net *net);
void wf_net_tick(struct wf_net *net);
void wf_net_happened(struct wf_net *net);

/* sendq.c: what is sent. Any thread, without the link's mutex. */
weft_status wf_sendq_add(struct wf_link *l, const struct wf_frame *f, const struct wf_msg *m,
                         wf_sent_fn *sent, void *arg, struct wf_pending *pending);
/* A frame of weft's own, to which the limit of the queue does not apply. */
weft_status wf_sendq_control(struct wf_link *l, const struct wf_frame *f, const void *head);
/* The first frame, before all that was queued while the link was opening; from here on it is
 * WF_LINK_HELLO. */
weft_status wf_sendq_hello(struct wf_link *l, const struct wf_frame *f, const void *head);
/* Writes as much as the socket takes. */
weft_status wf_sendq_write(struct wf_link *l);
/* Gives back everything that waits, with this status. */
void wf_sendq_clear(struct wf_link *l, weft_status st);
void wf_sendq_init(struct wf_link *l);

/* tls.c */
struct wf_tls;
weft_status wf_secure_new(struct wf_link *l, struct wf_tls *t);
weft_status wf_secure_step(struct wf_link *l, int *events);
bool wf_secure_resumed(const struct wf_link *l);
void wf_secure_free(struct wf_link *l);

/* socket.c: connections. The node's thread. */
void wf_socket_connect(struct wf_link *l);
void wf_socket_connected(struct wf_link *l);
void wf_socket_watch(struct wf_link *l, int events);
void wf_socket_close(struct wf_link *l);
weft_status wf_socket_listen(struct wf_net *net, const struct wf_address *a, char *bound,
                             size_t size, struct wf_listener **out);
void wf_socket_accept(struct wf_listener *s);
weft_status wf_socket_watch_listener(struct wf_listener *s);
void wf_socket_close_listener(struct wf_listener *s);

#endif
