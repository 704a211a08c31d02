/* netnode.h - two nodes that behave, for tests of src/net: numbered messages whose size and bytes
 * follow from their number, and a node that writes down what has arrived. */
#ifndef WEFT_TEST_NETNODE_H
#define WEFT_TEST_NETNODE_H

#include "net/net.h"
#include "support/counting.h"
#include "support/netpeer.h"

#define NETNODE_SECOND 1000000000ll
#define NETNODE_WAIT (20 * NETNODE_SECOND)

/* A message that has arrived. */
struct netnode_record {
    int64_t number; /* the first eight bytes of its head */
    int64_t n_payload;
    uint32_t crc, kind;
    uint64_t id;
};

struct netnode {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_tls *tls;
    struct counting count;
    struct wf_link *link; /* the newest that is up */
    _Atomic int n_up, n_down, n_received, n_later;
    _Atomic int down_status;
    char why[512], address[512];
    struct netnode_record *record;
    int max_records;
    struct wf_part part[3];
    uint8_t *memory;
    int64_t room;
    _Atomic bool later;   /* payloads are not placed */
    _Atomic bool answers; /* requests are answered with their own head and payload */
    _Atomic bool refuses; /* nobody is admitted */
    bool drops;           /* links that go down are dropped at once */
};

/* Aborts if something is wrong, as everything here. Over inproc all nodes have one context; others
 * have one of their own. opts.tls: NULL: a certificate with this name where the member needs it. */
void netnode_open(struct netnode *n, const char *member, const char *name, struct wf_net_opts opts);
void netnode_close(struct netnode *n); /* nothing is left in its context */
/* a, "server/0", listens at a->address; b, "worker/1", has connected, with all connections. */
void netnode_pair(const char *member, struct netnode *a, struct netnode *b,
                  struct wf_net_opts opts);
void netnode_listen(struct netnode *n, const char *member);

/* Message k: of 0, 1, 2, 100, 1000, 4096 or 60000 bytes, by k % 7. */
struct wf_msg netnode_message(int64_t k, int64_t *head, struct wf_part part[2]);
void netnode_check(const struct netnode_record *r, int64_t k);
/* Sends message k, and waits where the queue is full; sent[0] counts those that are sent, sent[1]
 * those that were given back. */
void netnode_send(struct netnode *n, struct wf_link *l, int64_t k, _Atomic int *sent);
void netnode_sent(void *arg, weft_status st);

/* Waits until *value is at least n. */
void netnode_await(struct netnode *n, _Atomic int *value, int at_least, const char *what, int line);
#define NETNODE_AWAIT(node, field, n) netnode_await(node, &(node)->field, n, #field, __LINE__)

#endif
