/* bench.h - inside of the bench: processes that exchange bytes over weft's links, and without them,
 * in turns.
 *
 * The driver measures; a peer does what the driver's orders say. There is one of them, and with "64
 * peers" there are as many. Orders go over a socket pair that the driver has made for each. */
#ifndef WF_BENCH_H
#define WF_BENCH_H

#include <semaphore.h>

#include "net/net.h"

enum {
    WF_BENCH_PEERS = 64,
    WF_BENCH_TEXT = 2048,
    WF_BENCH_WINDOW = 4,  /* messages of a link that are on their way in "64 peers" */
    WF_BENCH_SMALL = 64,  /* bytes of a round trip */
    WF_BENCH_BLOCK = 4096 /* bytes each way in "64 peers" */
};

/* ---- orders ---------------------------------------------------------------------------------- */

enum wf_bench_op {
    WF_BENCH_OPEN = 1,   /* connect to the driver, with and without weft; answered */
    WF_BENCH_CLOSE,      /* answered */
    WF_BENCH_RAW_STREAM, /* take `bytes` without weft, and say so there */
    WF_BENCH_RAW_PING,   /* send back what comes, `rounds` times */
    WF_BENCH_RAW_REGION, /* read a mapped region, `rounds` times */
    WF_BENCH_RAW_LINE,   /* send a cache line of it back, `rounds` times */
    WF_BENCH_ATTEND,     /* poll weft's rings until `rounds` messages have come in all; answered at
                          * the beginning */
};

struct wf_bench_pem {
    char authority[WF_BENCH_TEXT], certificate[WF_BENCH_TEXT], key[WF_BENCH_TEXT];
};

struct wf_bench_order {
    int op, connections;
    bool no_checksums, raw, trips, spins;
    int64_t bytes, rounds;
    char transport[8], address[320];
    int raw_port;      /* of tcp and tls */
    char raw_name[64]; /* of a Unix socket without a file, or of a region */
    struct wf_bench_pem pem;
};

struct wf_bench_answer {
    weft_status st;
    char text[256];
};

weft_status wf_bench_put(int fd, const void *p, size_t n);
weft_status wf_bench_get(int fd, void *p, size_t n);

/* ---- weft's side ----------------------------------------------------------------------------- */

struct wf_bench_ours {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_tls *tls;
    struct wf_link *link[WF_BENCH_PEERS];
    bool sockets; /* of tcp and tls: a pair may have several connections */
    _Atomic int n_links;
    bool driver;
    uint8_t *memory; /* that is sent and received, also without weft */
    int64_t room;
    struct wf_region *region; /* over shm: of link[0] */
    struct wf_part part;
    _Atomic int64_t left;   /* messages that are still to be sent, */
    _Atomic int64_t coming; /* and to come */
    _Atomic int64_t n_seen; /* that have come, ever */
    int64_t n_pings;        /* that were sent, ever */
    uint64_t sum;           /* of regions: so that reading is not left out */
    int64_t end_ns;
    sem_t done;
    _Atomic int failed;
    char why[256];
};

weft_status wf_bench_ours_open(struct wf_bench_ours *o, weft_ctx *ctx,
                               const struct wf_bench_order *as, const struct wf_bench_pem *pem,
                               bool driver);
/* The driver's: `bound` is what the peer connects to. */
weft_status wf_bench_ours_listen(struct wf_bench_ours *o, const char *address, char *bound,
                                 size_t size);
weft_status wf_bench_ours_connect(struct wf_bench_ours *o, const char *address);
/* n_links links, with all their connections. */
weft_status wf_bench_ours_await(struct wf_bench_ours *o, int n_links);
int wf_bench_ours_connections(const struct wf_bench_ours *o); /* of a link */
void wf_bench_ours_close(struct wf_bench_ours *o);
/* Seconds. */
weft_status wf_bench_ours_stream(struct wf_bench_ours *o, int64_t bytes, int times, double *out);
weft_status wf_bench_ours_ping(struct wf_bench_ours *o, int n_links, int64_t bytes, int window,
                               int64_t rounds, double *out);

/* The same over shared memory: every byte is written there, and read there. */
weft_status wf_bench_ours_region(struct wf_bench_ours *o, int64_t bytes, int times, double *out);
/* Round trips over shared memory: both threads poll. The peer's attends first. */
weft_status wf_bench_ours_poll(struct wf_bench_ours *o, int64_t bytes, int64_t rounds, double *out);
weft_status wf_bench_ours_trips(struct wf_bench_ours *o, int64_t bytes, int64_t rounds, bool attend,
                                double *out);
weft_status wf_bench_ours_attend(struct wf_bench_ours *o, int64_t n_seen);

/* ---- without weft ---------------------------------------------------------------------------- */

struct wf_bench_raw {
    int fd;
    bool spins;
    int set;             /* of epoll, where a thread sleeps that does not spin; 0: none */
    void *ssl, *ssl_ctx; /* of OpenSSL */
};

weft_status wf_bench_raw_listen(struct wf_bench_order *as, int *fd); /* fills in where */
weft_status wf_bench_raw_accept(struct wf_bench_raw *r, int listener,
                                const struct wf_bench_order *as);
weft_status wf_bench_raw_connect(struct wf_bench_raw *r, const struct wf_bench_order *as);
void wf_bench_raw_close(struct wf_bench_raw *r);
weft_status wf_bench_raw_read(struct wf_bench_raw *r, void *p, int64_t n);
weft_status wf_bench_raw_write(struct wf_bench_raw *r, const void *p, int64_t n);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Writes every byte, and reads every byte. */
void wf_bench_fill(void *p, int64_t n, uint64_t seed);
uint64_t wf_bench_sum(const void *p, int64_t n);

/* A mapped region, with one line each way that says that it is filled, or read. */
struct wf_bench_mapped {
    struct wf_bench_lines *lines;
    uint8_t *data;
    int64_t n, n_handed;
    int fd;
};
weft_status wf_bench_map_new(struct wf_bench_mapped *m, int64_t n, char *name, size_t size);
weft_status wf_bench_map_open(struct wf_bench_mapped *m, int64_t n, const char *name);
void wf_bench_map_close(struct wf_bench_mapped *m);
/* Fills it, and waits until it was read. WEFT_ETIME: the other process does not answer. */
weft_status wf_bench_map_write(struct wf_bench_mapped *m);
weft_status wf_bench_map_read(struct wf_bench_mapped *m);
/* A cache line that goes to the other process and back, again and again. */
weft_status wf_bench_line_send(struct wf_bench_mapped *m, int64_t rounds);
weft_status wf_bench_line_return(struct wf_bench_mapped *m, int64_t rounds);

/* Seconds that a cache line takes from one core to another. */
weft_status wf_bench_cache_line(double *out);

#endif
