/* netpeer.h - a node for tests of src/net that writes down what happens to it. */
#ifndef WEFT_TEST_NETPEER_H
#define WEFT_TEST_NETPEER_H

#include "net/net.h"

enum { NETPEER_PLACES = 256, NETPEER_MESSAGES = 4096, NETPEER_REGIONS = 64 };

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
    struct wf_tls *tls; /* of netpeer_open_over */
    struct wf_part place[NETPEER_PLACES];
    uint8_t *memory; /* where payloads are placed, one over the other */
    int64_t room;
    bool fresh;    /* each payload has memory of its own: links arrive side by side */
    void **blocks; /* where those before are */
    int n_blocks;
    _Atomic bool echoes; /* requests are answered with their own payload */
    bool keeps;          /* slots: otherwise they are released when they arrive */
};

/* Every member of the family, for suites that run over all of them: "tcp6" is tcp over IPv6;
 * "tcp-3" and "tls-3" are pairs with three connections, where everything but small payloads
 * travels in stripes. */
enum { NETPEER_MEMBERS = 8 };
extern const char *const netpeer_members[NETPEER_MEMBERS];
/* Options of a node for a member: the number of connections, and what travels in stripes. */
struct wf_net_opts netpeer_over(const char *member, struct wf_net_opts opts);
/* An address of its own to listen at. */
const char *netpeer_address(const char *member, char out[128]);

/* ctx is borrowed. Aborts if something is wrong, as waiting does when it takes too long. */
void netpeer_open(struct netpeer *p, weft_ctx *ctx, const char *name, struct wf_net_opts opts);
/* The same with what the member needs: a certificate, the number of connections. */
void netpeer_open_over(struct netpeer *p, const char *member, weft_ctx *ctx, const char *name,
                       struct wf_net_opts opts);
/* A certificate for a task of role "test", as texts and for a node, and who has issued it. */
const struct wf_pem *netpeer_authority(void);
void netpeer_issue(weft_ctx *ctx, const char *name, struct wf_pem *out);
void netpeer_certify(weft_ctx *ctx, const char *name, struct wf_tls **out);
void netpeer_close(struct netpeer *p); /* and drops regions */
/* For wf_link_send: counts. */
void netpeer_sent(void *arg, weft_status st);
void netpeer_replied(void *arg, weft_status st, const struct wf_msg *m);
/* Waits until *value is at least n. */
void netpeer_await(struct netpeer *p, _Atomic int *value, int n, const char *what, int line);
#define NETPEER_AWAIT(p, field, n) netpeer_await(p, &(p)->field, n, #field, __LINE__)

#endif
