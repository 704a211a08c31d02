/* proxy.h - a process between two ends of TCP connections, for tests: it delays, loses, cuts and
 * partitions. What it does is changed while it runs, in memory that the caller shares with it. */
#ifndef WEFT_TEST_PROXY_H
#define WEFT_TEST_PROXY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct proxy {
    _Atomic int port;            /* where it listens on 127.0.0.1; 0: not yet */
    _Atomic int delay_ms;        /* of every byte, each way */
    _Atomic bool partitioned;    /* nothing passes, and nobody is told */
    _Atomic int64_t cut_after;   /* bytes from the client: then both ends are reset; 0: never */
    _Atomic int64_t lose_after;  /* bytes from the client: what is read next is lost; 0: never */
    _Atomic int64_t n_forwarded; /* bytes from the client */
    _Atomic int n_accepted;
};

/* Memory for a proxy, shared with children. */
struct proxy *proxy_new(void);
/* Serves connections to host:port one after the other; never returns. */
void proxy_run(struct proxy *p, const char *host, int port);

#endif
