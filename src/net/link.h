/* link.h - inside of the net layer: nodes, links, and what is queued.
 *
 * Whoever holds the node's turn owns everything but what another mutex names, libuv's loop
 * included: the node's thread while it works, or a thread that waits for something (poll.c). Two
 * more mutexes: the node's (what other threads ask for, and waiting), and each link's (what is to
 * be sent). Neither is held while the caller's functions run; the turn is. */
#ifndef WF_NET_LINK_H
#define WF_NET_LINK_H

#include <pthread.h>
#include <sys/uio.h>
#include <uv.h>

#include "base/sys.h"
#include "net/address.h"
#include "net/net.h"
#include "net/stripe.h"

enum {
    WF_STAGING = 1 << 16,
    WF_MAX_LINK_NAME = 256,
    WF_MAX_UNKNOWN = 512, /* connections that were accepted, and have not said who they are */
    WF_MAX_OWED = 1 << 16 /* frames of weft's own that a peer does not take, while it sends */
};

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
    weft_status st;           /* that `sent` is told */
    int64_t queued_ns;        /* over inproc */
    bool lent;                /* `sent` waits until the peer has released its slot */
    uint64_t slot;            /* of one that is lent */
    bool released;            /* by the peer, which has all stripes: this end is about to know */
    struct wf_region *region; /* whose descriptor goes along, over shm */
    bool striped;             /* the payload goes over further connections, */
    bool striped_done;        /* and all of it is written there */
};

/* A request that waits for its response. */
struct wf_pending {
    struct wf_pending *next;
    uint64_t id;
    uint32_t kind;    /* for errors, as timeout_ns */
    int64_t deadline; /* 0: none */
    int64_t timeout_ns;
    wf_reply_fn *reply;
    void *arg;
    bool cancelled;
};

/* How bytes go over a socket: as readv and writev, or a negative errno; writing never gives 0.
 * -EPROTO: the link's
 * wire_error says why. */
struct wf_wire {
    int64_t (*read)(struct wf_link *l, const struct iovec *v, int n);
    int64_t (*write)(struct wf_link *l, const struct iovec *v, int n); /* with the link's mutex */
    /* May be NULL. Whether bytes are here that the socket no longer announces. */
    bool (*pending)(struct wf_link *l);
    bool announces; /* after a short read the socket announces what comes next */
    bool shares;    /* payloads in regions are not copied */
    bool pulled;    /* the peer reads from this end's queue, and is told that there is something */
    bool polled;    /* bytes arrive in a ring, and the socket only says so to who sleeps */
    int64_t (*give)(struct wf_link *l, int fd); /* hands over a descriptor; with the mutex */
};
extern const struct wf_wire wf_wire_plain, wf_wire_tls, wf_wire_shm, wf_wire_inproc;

/* A host's name that is being looked up, in a thread of libuv's. */
struct wf_resolving {
    uv_work_t work;
    struct wf_link *link;
    char host[256], port[8];
    int rc;
    struct addrinfo *found;
};

/* Events of a socket. WF_ENDED: nothing follows what can be read. */
enum { WF_READABLE = 1, WF_WRITABLE = 2, WF_ENDED = 4 };

/* What is waited for: the socket of a link or of a listener. */
struct wf_watched {
    uint64_t key; /* 0: nothing is */
    int events;
    struct wf_link *link;
    struct wf_listener *listener; /* one of the two */
};

/* What a wait has told. */
struct wf_events {
    int n;
    struct epoll_event e[16];
};

enum wf_link_state { WF_LINK_OPENING, WF_LINK_SECURING, WF_LINK_HELLO, WF_LINK_UP, WF_LINK_DOWN };

struct wf_link {
    struct wf_link *next; /* of the node */
    struct wf_net *net;
    int64_t number; /* no other link of the node has it */
    char address[WF_MAX_ADDRESS];
    enum wf_address_kind kind;
    const char *_Atomic name; /* for errors: the address, then full_name */
    char full_name[WF_MAX_LINK_NAME];
    struct wf_identity peer;
    bool promised, told_up;
    bool refused; /* nobody listens at its address */
    bool unknown; /* accepted, and has not said who it is */
    _Atomic bool dropped;
    /* the connection */
    int fd; /* -1: none yet */
    const struct wf_wire *wire;
    struct wf_secure *secure;     /* of tls */
    struct wf_identity certified; /* by the peer's certificate */
    char wire_error[128];
    bool more; /* bytes are left to read, and no event says so */
    bool ends; /* the socket has said that nothing follows what it has */
    struct wf_shm *shm;
    struct wf_sides *_Atomic sides; /* further connections of the pair; NULL: there are none */
    struct wf_link *belongs;        /* this is such a connection, of that link, */
    int index;                      /* its number, */
    bool handing;                   /* which is ready to be given to its carrier, */
    struct wf_side *carried;        /* or has been */
    struct wf_pipe *pipe;           /* of inproc, */
    int side;                       /* and which end of it this is */
    bool held;                      /* the peer's next frame may not pass yet */
    bool heard;                     /* since heard_ns: clocks cost more than messages over shm */
    uint64_t n_slots_in;            /* messages with their payload in regions */
    struct wf_part ref[WF_MAX_REFS];
    struct wf_watched watched;
    struct wf_resolving *resolving;
    struct addrinfo *found, *next_found; /* addresses of the host, and the next to be tried */
    struct sockaddr_storage to;          /* the one that was tried last */
    socklen_t n_to;
    int64_t connect_by; /* 0: no limit */
    bool bye;           /* the peer has said it */
    _Atomic bool said_bye;
    /* arriving */
    struct wf_unframe in;
    const struct wf_part *placed; /* where the payload that is arriving goes */
    int n_placed;
    bool paused;
    bool elsewhere; /* its payload comes in stripes, and not all of them are there */
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
    int64_t unproved;     /* bytes sent since the peer has proved that it takes them, */
    int64_t proved_ns;    /* and when it did */
    bool blocked;         /* the socket takes no more */
    _Atomic bool closing; /* after what is queued */
    bool resume;
    struct wf_outgoing *lent; /* by slot, the newest first */
    int64_t n_lent;
    uint64_t n_slots_out;
    struct wf_shared *_Atomic regions;
    uint64_t next_region;
    struct wf_pending *pending;
    uint64_t next_id;
    weft_status broken; /* found by a thread that sent */
    char why[WF_MAX_LINK_NAME + 256];
};

struct wf_listener {
    struct wf_listener *next;
    struct wf_net *net;
    int fd;
    struct wf_watched watched;
    enum wf_address_kind kind;
    bool resting;              /* nothing more could be accepted: until the next tick */
    bool failing;              /* the last one could not, which has been said */
    char path[WF_MAX_ADDRESS]; /* of a Unix socket: removed at the end */
    char name[64];             /* of inproc */
    struct wf_listener *next_named;
};

/* What another thread asks of the node's. */
struct wf_order {
    struct wf_order *next;
    struct wf_link *link;         /* to be opened */
    bool accepted;                /* it is connected already */
    struct wf_listener *listener; /* to be watched */
};

struct wf_net {
    weft_ctx *ctx;
    struct wf_net_opts opts;
    uv_loop_t loop;
    uv_async_t wake;
    pthread_t thread;
    bool opened, started;     /* the loop, the thread */
    pthread_mutex_t turn;     /* of links and listeners, and of what is done with them */
    _Atomic int wanted;       /* a thread waits for the turn that must not wait long */
    _Atomic int n_rings;      /* links over shm */
    unsigned n_looks;         /* of threads that spin */
    int set, timer;           /* of epoll; it ticks, */
    const struct wf_sys *sys; /* which they were made by */
    int tick_ms;              /* that the timer was set to; 0: it is not */
    struct wf_watch_slot *slot;
    uint32_t n_slots;
    struct wf_carrier *_Atomic carrier[WF_MAX_SIDES]; /* made when they are needed */
    int n_handing;                                    /* links that are */
    _Atomic int64_t n_links;
    _Atomic int n_attending;
    _Atomic int n_keepers; /* threads other than the node's that see to what arrives, */
    _Atomic bool keeping;  /* one of which sleeps at the set, or is about to, */
    _Atomic bool asleep;   /* and is to be woken up when something has happened: */
    _Atomic bool nudged;   /* it is being woken up */
    _Atomic int64_t n_wakes;
    _Atomic bool parked; /* the node's thread leaves the set to them */
    struct wf_link *links;
    int n_unknown;                     /* of them: accepted, and neither up nor down */
    int64_t n_strangers, strangers_ns; /* went down unknown, and not said; when it was said */
    struct wf_listener *listeners;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed, unparked;
    struct wf_order *orders;
    bool stop;
    _Atomic int n_waiting;
    _Atomic int64_t n_turns;   /* how often something has happened */
    _Atomic bool fast;         /* something has a deadline: the timer ticks often */
    struct wf_queues queues;   /* as they were last looked at, */
    _Atomic bool wants_queues; /* and somebody wants to know */
};

/* When a while of ns ends; a caller may mean "for ever" with a large one. */
static inline int64_t wf_net_after(int64_t now, int64_t ns)
{
    int64_t end;

    return wf_add_i64(now, ns, &end) ? end : INT64_MAX;
}

/* link.c */
weft_status wf_link_new(struct wf_net *net, struct wf_link **out);
void wf_link_free(struct wf_link *l);
/* The connection is there: makes it secure, says hello, and reads. */
void wf_link_start(struct wf_link *l);
void wf_link_down(struct wf_link *l, weft_status st, const char *why);
/* Once a turn: what other threads asked for; what time has come. */
void wf_link_serve(struct wf_link *l, int64_t now);
void wf_link_ready(struct wf_link *l, int events);
/* Reads all that has arrived, but for links that wait; whether there was anything. */
bool wf_link_read(struct wf_link *l);
/* All stripes of the payload that the link waits for are there. With the turn. */
void wf_link_arrived(struct wf_link *l);
/* It is known who an accepted link belongs to, or it has ended. */
void wf_link_known(struct wf_link *l);
/* Who a hello says it is. */
weft_status wf_hello_decode(const struct wf_link *l, const struct wf_frame *f, const uint8_t *head,
                            struct wf_identity *out);
/* Any thread: somebody looks at all links soon; something that is waited for may have happened. */
void wf_net_wake(struct wf_net *net);
/* With the turn: what libuv has to do; all that links have to do; the next tick is to come soon. */
void wf_net_run_loop(struct wf_net *net);
void wf_net_serve(struct wf_net *net);
void wf_net_soon(struct wf_net *net);
void wf_net_tick(struct wf_net *net);
void wf_net_happened(struct wf_net *net);
void wf_net_order(struct wf_net *net, struct wf_order *o);

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
/* The peer's end of inproc takes bytes from the queue; -EAGAIN: there are none, or (*held) not
 * yet. */
int64_t wf_sendq_pull(struct wf_link *l, const struct wf_identity *to, const struct iovec *v, int n,
                      bool *held);
/* Says that a region is shared, and hands it over where the wire does that. */
weft_status wf_sendq_region(struct wf_link *l, const struct wf_frame *f, const void *head,
                            struct wf_region *r);
/* The peer has released a slot. */
weft_status wf_sendq_released(struct wf_link *l, uint64_t slot);

/* watch.c: what is waited for. With the turn, but for waiting itself. */
weft_status wf_watch_open(struct wf_net *net);
void wf_watch_close(struct wf_net *net);
/* again: also if these events were waited for before; what is ready now is told once more. */
weft_status wf_watch(struct wf_net *net, struct wf_watched *w, int fd, int events, bool again);
void wf_unwatch(struct wf_net *net, struct wf_watched *w);
/* When the next tick comes; it stays as it is if it was set to so much already. */
void wf_watch_tick(struct wf_net *net, int ms);
int wf_watch_wait(struct wf_net *net, struct wf_events *out, int timeout_ms);
void wf_watch_handle(struct wf_net *net, const struct wf_events *ev);

/* poll.c: the turn; threads that wait, and see to what arrives meanwhile. */
void wf_net_enter(struct wf_net *net);
void wf_net_exit(struct wf_net *net);
/* With the turn: one look without sleeping; whether anything has arrived. */
bool wf_net_look(struct wf_net *net);
/* The node's thread, while others see to what arrives: waits until none does, or until a wake-up
 * after n_wakes was `woken`, or for a while. */
void wf_net_park(struct wf_net *net, int64_t woken, int timeout_ms);
bool wf_net_poll_rings(struct wf_net *net); /* with the turn */
/* Peers are to wake this process up; false: there is something to read first. With the turn. */
bool wf_net_arm(struct wf_net *net);

/* queues.c: with the turn: looks at all queues, if somebody wants to know. */
void wf_net_measure(struct wf_net *net);

/* inproc.c */
void wf_inproc_connect(struct wf_link *l);
weft_status wf_inproc_listen(struct wf_listener *s, const char *name);
void wf_inproc_unlisten(struct wf_listener *s);
void wf_inproc_close(struct wf_link *l); /* this end is down */
void wf_inproc_free(struct wf_link *l);  /* waits for the peer's thread, which may be reading */
bool wf_inproc_visited(struct wf_link *l);
void wf_inproc_wake_peer(struct wf_link *l);                        /* without the link's mutex */
struct wf_region *wf_inproc_region(struct wf_link *l, uint64_t id); /* of the peer, or NULL */
int64_t wf_inproc_transit_ns(weft_ctx *ctx, const struct wf_transit *t);

/* shm.c */
/* Who connects makes the memory, who accepts maps it; as wf_secure_step. */
weft_status wf_shm_new(struct wf_link *l);
weft_status wf_shm_step(struct wf_link *l, int *events);
void wf_shm_woken(struct wf_link *l, int events);   /* the socket says something */
int wf_shm_events(struct wf_link *l, bool blocked); /* what the loop waits for */
bool wf_shm_waiting(const struct wf_link *l);       /* something can be read */
int64_t wf_shm_unread(const struct wf_link *l);
bool wf_shm_room(const struct wf_link *l, int64_t bytes); /* all of them can be written now */
bool wf_shm_idle(const struct wf_link *l);                /* reading gives -EAGAIN */
bool wf_shm_owes(struct wf_link *l); /* tries again what could not be said to the peer */
bool wf_shm_arm(struct wf_link *l);
void wf_shm_disarm(struct wf_link *l);
int wf_shm_take_fd(struct wf_link *l); /* -1: none has come */
void wf_shm_free(struct wf_link *l);
/* Memory that can be given to another process, of a size that is sealed before that; published: the
 * other one can only read it. What was given is checked before it is mapped. */
weft_status wf_shm_make(weft_ctx *ctx, int64_t bytes, int *fd);
weft_status wf_shm_seal(weft_ctx *ctx, int fd, bool published);
weft_status wf_shm_check(weft_ctx *ctx, int fd, int64_t bytes, bool published);
weft_status wf_shm_map(weft_ctx *ctx, int fd, int64_t bytes, bool writable, void **out);

/* region.c */
/* The payload as references, in the bytes that follow a head; 0: it is copied as ever. With the
 * link's mutex. */
int wf_region_refs(const struct wf_link *l, const struct wf_msg *m, uint8_t *out);
/* The other way: *f and *parts become what the receiver sees. */
weft_status wf_region_parts(struct wf_link *l, const struct wf_frame *f, const uint8_t *head,
                            int *n_parts, int64_t *n_payload, int32_t *n_head);
weft_status wf_region_take(struct wf_link *l, const struct wf_frame *f, const uint8_t *head);
struct wf_region *wf_region_of(struct wf_link *l, uint64_t id, bool mine); /* borrowed, or NULL */
int wf_region_fd(const struct wf_region *r);
void wf_region_ref(struct wf_region *r);
void wf_regions_free(struct wf_link *l);

/* tls.c */
struct wf_tls;
weft_status wf_secure_new(struct wf_link *l, struct wf_tls *t);
weft_status wf_secure_step(struct wf_link *l, int *events);
bool wf_secure_resumed(const struct wf_link *l);
/* How often this end has asked for new keys since the handshake. */
int64_t wf_secure_keys(const struct wf_link *l);
void wf_secure_free(struct wf_link *l);

/* side.c: further connections of a pair. With the turn, but for those that say otherwise. */
struct sockaddr;
/* The end that was connected to offers them, after the hello of a peer that wants so many. */
weft_status wf_sides_offer(struct wf_link *l, uint32_t wanted);
/* The other end has been offered some, and connects. */
weft_status wf_sides_take(struct wf_link *l, const struct wf_frame *f, const uint8_t *head);
/* The first frame of a connection: that of one that belongs to a link, and of any other one. */
weft_status wf_sides_greeted(struct wf_link *l, const struct wf_frame *f, const uint8_t *head);
weft_status wf_sides_attach(struct wf_link *l, const struct wf_frame *f, const uint8_t *head);
int32_t wf_sides_attach_head(const struct wf_link *l, uint8_t out[WF_ATTACH_HEAD]);
/* Gives connections that are ready to their carriers. */
void wf_sides_hand_over(struct wf_net *net);
/* A further connection has ended before its carrier had it. */
void wf_sides_missed(struct wf_link *conn, const char *why);
/* Once a turn: why the pair has to end, or WEFT_OK. */
weft_status wf_sides_check(struct wf_link *l, int64_t now);
bool wf_sides_ending(struct wf_link *l); /* that may be soon */
/* The link is down: no memory of a message is used after this. */
void wf_sides_close(struct wf_link *l);
bool wf_sides_kept(const struct wf_link *l); /* a carrier still has one */
void wf_sides_free(struct wf_link *l);
/* There is memory for a payload in stripes. */
weft_status wf_sides_expect(struct wf_link *l, const struct wf_frame *f, const struct wf_part *part,
                            int n_parts);
bool wf_sides_confirmed(struct wf_link *l); /* stripes may come */
/* Any thread: whether a payload of this many bytes goes in stripes. */
bool wf_sides_carry(const struct wf_link *l, int64_t n_payload);
/* With the link's mutex: the header of a message is written, now its stripes. */
void wf_sides_begin(struct wf_link *l, struct wf_outgoing *o);
/* Without it: carriers are told so, if somebody has begun. */
void wf_sides_wake(struct wf_link *l);

/* carrier.c: the threads that read and write stripes. */
weft_status wf_carrier_start(struct wf_net *net, int index);
void wf_carrier_add(struct wf_net *net, int index, struct wf_side *s);
void wf_carrier_wake(struct wf_carrier *c);
void wf_carriers_stop(struct wf_net *net); /* without the turn */
/* What the reader of frames calls. */
weft_status wf_side_place(struct wf_side *s, const struct wf_frame *f, const struct wf_part **parts,
                          int *n_parts);
weft_status wf_side_complete(struct wf_side *s, const struct wf_frame *f);

/* socket.c: connections. With the turn. */
void wf_socket_connect(struct wf_link *l);
/* To where another link is connected. */
void wf_socket_connect_as(struct wf_link *l, const struct wf_link *other);
void wf_socket_connected(struct wf_link *l);
/* again: as of wf_watch. The link may go down. */
void wf_socket_watch(struct wf_link *l, int events, bool again);
void wf_socket_close(struct wf_link *l);
weft_status wf_socket_listen(struct wf_net *net, const struct wf_address *a, char *bound,
                             size_t size, struct wf_listener **out);
void wf_socket_accept(struct wf_listener *s);
weft_status wf_socket_watch_listener(struct wf_listener *s);
void wf_socket_close_listener(struct wf_listener *s);
/* Of a Unix socket: the peer belongs to this process's user. */
weft_status wf_link_check_user(const struct wf_link *l);

#endif
