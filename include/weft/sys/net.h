/* weft/sys/net.h - the transports of this machine, and how fast they are. */
#ifndef WEFT_SYS_NET_H
#define WEFT_SYS_NET_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A transport between processes, and whether it works here. */
typedef struct weft_net_part {
    size_t size;
    const char *name; /* "tcp, IPv6" */
    bool works;
    char text[160]; /* what was found, or why it does not work and what to do */
} weft_net_part;

/* Tries the i-th of them, by connecting to itself on this machine; WEFT_ERANGE past the last.
 * folder: where Unix sockets may be made. */
WEFT_API weft_status weft_net_part_at(weft_ctx *ctx, const char *folder, int i, weft_net_part *out);

/* Certificates for the tasks of a job, whose links use tls: an authority.pem, and TASK.pem and
 * TASK.key for each of them ("ps/0" as ps-0.pem), in a directory that exists. Keys are readable by
 * their owner alone. The authority's own key is not kept: certificates for other tasks need all of
 * them to be issued again. */
WEFT_API weft_status weft_net_certify(weft_ctx *ctx, const char *folder, int n_tasks,
                                      const char *const *tasks, int days);

/* An authority whose key stays in memory: certificates can be issued again before they expire, and
 * for further tasks. */
typedef struct weft_authority weft_authority;
WEFT_API weft_status weft_authority_new(weft_ctx *ctx, int days, weft_authority **out);
WEFT_API void weft_authority_free(weft_authority *a);
/* The files of weft_net_certify for one task; those that exist are replaced, each at once. A
 * running task notices it, and uses them for its next links. */
WEFT_API weft_status weft_authority_issue(weft_authority *a, const char *folder, const char *task,
                                          int64_t seconds);

/* One result of weft_net_bench: weft, and the same thing done without it in the same run. */
typedef struct weft_net_row {
    size_t size;
    const char *measure;   /* "one way", "round trip", "64 peers", "idle", "cache line" */
    const char *transport; /* "shm", "uds", "tcp" or "tls" */
    const char *mode;      /* "checksums", "spinning", …; "" */
    const char *unit;      /* of weft and raw: "GB/s", "us", "%" */
    int64_t bytes;         /* of a message */
    int blocks;            /* weft and raw are medians of so many */
    double weft, raw;      /* below 0: was not measured */
    double ratio;          /* weft / raw */
    double target;         /* of the ratio, or of weft if there is no raw; 0: none */
    bool at_most;          /* the target is an upper limit */
    int connections;       /* of a pair of weft's; raw has one */
} weft_net_row;

typedef struct weft_net_bench_opts {
    size_t size;
    const char *transport; /* "shm", "uds", "tcp" or "tls" */
    int64_t bytes;         /* of a message one way; 0: 64 MiB */
    int blocks;            /* 0: 9 */
    const char *measure;   /* only this one: "one way", …; NULL: all */
    const char *folder;    /* for Unix sockets: a directory that exists */
    /* Starts a process that calls weft_net_bench_peer with this descriptor. Called once, and 63
     * times more for "64 peers" and "idle". Returns 0 or a negative status. */
    weft_status (*start)(void *arg, int fd);
    void (*row)(void *arg, const weft_net_row *row);
    void *arg;       /* of both */
    int connections; /* of a pair, over tcp and tls: 1 to 8; 0: as weft chooses */
} weft_net_bench_opts;

/* Measures a transport between this process and those that opts->start starts, and calls opts->row
 * for each result. */
WEFT_API weft_status weft_net_bench(weft_ctx *ctx, const weft_net_bench_opts *opts);
/* Another process: returns when the first one is done, or gone. */
WEFT_API weft_status weft_net_bench_peer(weft_ctx *ctx, int fd);

#ifdef __cplusplus
}
#endif
#endif
