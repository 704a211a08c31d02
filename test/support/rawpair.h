/* rawpair.h - a peer without a node that has several connections: it attaches to a node's link,
 * and sends stripes as a test wants. With it, a scene: the node, and a good peer of it that must
 * not notice. */
#ifndef WEFT_TEST_RAWPAIR_H
#define WEFT_TEST_RAWPAIR_H

#include "base/sys.h"
#include "net/side.h"
#include "support/netpeer.h"
#include "support/rawpeer.h"

#define RAWPAIR_SECOND 1000000000ll
enum { RAWPAIR_STRIPE = 4096, RAWPAIR_PAYLOAD = 10000, RAWPAIR_BYTES = 1 << 20 };
extern uint8_t rawpair_bytes[RAWPAIR_BYTES]; /* that are sent */

struct rawpair_scene {
    weft_ctx *ctx;
    struct netpeer node, good;
    struct wf_link *good_link;
    char address[512];
};

weft_ctx *rawpair_ctx(void);
void rawpair_await_connections(struct wf_link *l, int n);
/* Everything here aborts if something is wrong. */
void rawpair_scene_open(struct rawpair_scene *s, const char *transport, struct wf_net_opts opts);
/* The good peer has noticed nothing. */
void rawpair_scene_close(struct rawpair_scene *s);
/* The newest link of the node went down, for this reason, which names the raw peer. */
void rawpair_expect_down(struct rawpair_scene *s, int before, const char *why);

struct rawpair {
    struct rawpeer main, side[2];
    struct wf_sides_head head;
    int n_sides;
};

/* The link is up, and the node has offered further connections. */
void rawpair_open(struct rawpair_scene *s, struct rawpair *p, const char *name);
/* One more of them; all of them: they are confirmed. */
void rawpair_attach(struct rawpair_scene *s, struct rawpair *p, const char *name);
void rawpair_confirm(struct rawpair *p);
void rawpair_close(struct rawpair *p);
/* What a connection says to attach as the index-th. */
struct wf_attach_head rawpair_head(const struct rawpair *p, int index);
int64_t rawpair_attach_frame(uint8_t *out, const struct wf_attach_head *h);

/* A message of RAWPAIR_PAYLOAD bytes in stripes: what goes over the first connection, and a
 * stripe. */
int64_t rawpair_striped_frame(uint8_t *out, int64_t n);
int64_t rawpair_stripe_frame(uint8_t *out, uint64_t id, int64_t at, int64_t n);
void rawpair_message(struct rawpair *p);
bool rawpair_stripe(struct rawpair *p, int side, uint64_t id, int64_t at, int64_t n);

#endif
