/* netpeer.h - a node for tests of src/net that writes down what happens to it. */
#ifndef WEFT_TEST_NETPEER_H
#define WEFT_TEST_NETPEER_H

#include "net/net.h"

enum { NETPEER_MESSAGES = 4096, NETPEER_REGIONS = 64 };

struct netpeer {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_link *link; /* the newest that is up */
    _Atomic int n_up, n_down, n_received, n_regions, n_placed, n_sent, n_unsent, n_replies;
    _Atomic int down_status, reply_status;
    char why[512];
    struct wf_region *region[NETPEER_REGIONS]; /* that peers have shared */
    struct wf_msg message[NETPEER_MESSAGES];   /* without heads */
    struct wf_part part[NETPEER_MESSAGES];     /* the first one of each */
    struct wf_msg reply;
    struct wf_part reply_part;
    uint8_t *memory; /* where payloads are placed, one over the other */
    int64_t room;
    bool echoes; /* requests are answered with their own payload */
    bool keeps;  /* slots: otherwise they are released when they arrive */
};

/* ctx is borrowed. Aborts if something is wrong, as waiting does when it takes too long. */
void netpeer_open(struct netpeer *p, weft_ctx *ctx, const char *name, struct wf_net_opts opts);
void netpeer_close(struct netpeer *p); /* and drops regions */
/* For wf_link_send: counts. */
void netpeer_sent(void *arg, weft_status st);
void netpeer_replied(void *arg, weft_status st, const struct wf_msg *m);
/* Waits until *value is at least n. */
void netpeer_await(struct netpeer *p, _Atomic int *value, int n, const char *what, int line);
#define NETPEER_AWAIT(p, field, n) netpeer_await(p, &(p)->field, n, #field, __LINE__)

/* "tcp", "uds", "tls", "shm" and "inproc": an address of its own. */
const char *netpeer_address(const char *transport, char out[128]);

#endif
