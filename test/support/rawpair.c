/* rawpair.c - a peer without a node that has several connections. */
#define _GNU_SOURCE
#include "support/rawpair.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

uint8_t rawpair_bytes[RAWPAIR_BYTES];

__attribute__((constructor)) static void fill_bytes(void)
{
    for (int i = 0; i < RAWPAIR_BYTES; i++)
        rawpair_bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 17);
}

static void must_at(bool ok, const char *what, int line)
{
    if (ok)
        return;
    fprintf(stderr, "a raw pair, line %d: not so: %s; %s\n", line, what, weft_error());
    abort();
}
#define MUST(what) must_at(what, #what, __LINE__)

weft_ctx *rawpair_ctx(void)
{
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    return ctx;
}

/* ---- a node, a good peer of it, and a pair with a raw one
 * ------------------------------------- */

void rawpair_await_connections(struct wf_link *l, int n)
{
    for (int i = 0; i < 20000 && wf_link_connections(l) < n; i++)
        usleep(1000);
    MUST(wf_link_connections(l) == n);
}

void rawpair_scene_open(struct rawpair_scene *s, const char *transport, struct wf_net_opts opts)
{
    char address[128];

    s->ctx = rawpair_ctx();
    opts.connections = 3;
    opts.silence_ns =
        opts.silence_ns ? opts.silence_ns : 60 * RAWPAIR_SECOND; /* raw peers say little */
    opts.striped_min = opts.stripe_bytes = RAWPAIR_STRIPE;
    netpeer_open_over(&s->node, transport, s->ctx, "node", opts);
    netpeer_open_over(&s->good, transport, s->ctx, "good", opts);
    s->node.echoes = s->node.fresh = s->good.fresh = true;
    MUST(!wf_net_listen(s->node.net, netpeer_address(transport, address), s->address,
                        sizeof s->address));
    MUST(!wf_net_connect(s->good.net, s->address, 20 * RAWPAIR_SECOND, &s->good_link));
    NETPEER_AWAIT(&s->good, n_up, 1);
    NETPEER_AWAIT(&s->node, n_up, 1);
    rawpair_await_connections(s->good_link, 3);
    rawpair_await_connections(s->node.link, 3);
}

/* The good peer has noticed nothing. */
void rawpair_scene_close(struct rawpair_scene *s)
{
    struct wf_part part = {rawpair_bytes, 100000};
    struct wf_msg m = {.part = &part, .n_parts = 1};
    int before = s->good.n_replies;

    MUST(!s->good.n_down);
    MUST(!wf_link_call(s->good_link, &m, 20 * RAWPAIR_SECOND, NULL, netpeer_replied, &s->good,
                       NULL));
    NETPEER_AWAIT(&s->good, n_replies, before + 1);
    MUST(!s->good.reply_status);
    MUST(memcmp(s->good.reply_part.p, rawpair_bytes, 100000) == 0);
    netpeer_close(&s->good);
    netpeer_close(&s->node);
    weft_ctx_free(s->ctx);
}

/* The link is up, and the node has offered further connections. */
void rawpair_open(struct rawpair_scene *s, struct rawpair *p, const char *name)
{
    int up = s->node.n_up;
    uint8_t hello[256], head[256];
    struct wf_frame f;

    memset(p, 0, sizeof *p);
    rawpeer_open(&p->main, s->ctx, s->address, name);
    if (!rawpeer_send(&p->main, hello, rawpeer_hello(hello, name, 3)))
        abort();
    MUST(rawpeer_take(&p->main, &f, head));
    MUST(f.type == WF_FRAME_HELLO);
    MUST(f.kind == 3);
    MUST(rawpeer_take(&p->main, &f, head));
    MUST(f.type == WF_FRAME_SIDES);
    MUST(!wf_sides_decode(head, f.n_head, &p->head));
    MUST(p->head.n == 2);
    MUST(p->head.stripe == RAWPAIR_STRIPE);
    NETPEER_AWAIT(&s->node, n_up, up + 1);
}

int64_t rawpair_attach_frame(uint8_t *out, const struct wf_attach_head *h)
{
    uint8_t head[WF_ATTACH_HEAD];

    wf_attach_encode(h, head);
    return rawpeer_frame(out, &(struct wf_frame){.type = WF_FRAME_ATTACH, .n_head = sizeof head},
                         head, NULL);
}

struct wf_attach_head rawpair_head(const struct rawpair *p, int index)
{
    struct wf_attach_head h = {.index = index, .incarnation = RAWPEER_INCARNATION};

    memcpy(h.token, p->head.token, WF_TOKEN);
    return h;
}

void rawpair_confirm(struct rawpair *p)
{
    uint8_t frame[256], head[WF_SIDES_HEAD];

    wf_sides_encode(&p->head, head);
    rawpeer_send(&p->main, frame,
                 rawpeer_frame(frame,
                               &(struct wf_frame){.type = WF_FRAME_SIDES, .n_head = sizeof head},
                               head, NULL));
}

void rawpair_attach(struct rawpair_scene *s, struct rawpair *p, const char *name)
{
    struct rawpeer *side = &p->side[p->n_sides];
    struct wf_attach_head h = rawpair_head(p, p->n_sides++);
    uint8_t frame[256];
    struct wf_frame f;

    rawpeer_open(side, s->ctx, s->address, name);
    MUST(rawpeer_send(side, frame, rawpair_attach_frame(frame, &h)));
    MUST(rawpeer_take(side, &f, frame)); /* its hello: it knows this connection */
    MUST(f.type == WF_FRAME_HELLO);
    if (p->n_sides == p->head.n)
        rawpair_confirm(p);
}

void rawpair_close(struct rawpair *p)
{
    rawpeer_close(&p->main);
    for (int i = 0; i < p->n_sides; i++)
        rawpeer_close(&p->side[i]);
}

/* A message of RAWPAIR_PAYLOAD bytes in stripes: what goes over the first connection, and a
 * stripe. */
int64_t rawpair_striped_frame(uint8_t *out, int64_t n)
{
    return rawpeer_frame(
        out,
        &(struct wf_frame){
            .type = WF_FRAME_MESSAGE, .flags = WF_FRAME_STRIPED, .kind = 5, .n_payload = n},
        NULL, NULL);
}

int64_t rawpair_stripe_frame(uint8_t *out, uint64_t id, int64_t at, int64_t n)
{
    return rawpeer_frame(out,
                         &(struct wf_frame){.type = WF_FRAME_STRIPE,
                                            .flags = WF_FRAME_SUMMED,
                                            .id = id,
                                            .wait = at,
                                            .n_payload = n},
                         NULL, rawpair_bytes + at);
}

void rawpair_message(struct rawpair *p)
{
    uint8_t frame[256];

    if (!rawpeer_send(&p->main, frame, rawpair_striped_frame(frame, RAWPAIR_PAYLOAD)))
        abort();
}

bool rawpair_stripe(struct rawpair *p, int side, uint64_t id, int64_t at, int64_t n)
{
    static uint8_t frame[2 * RAWPAIR_BYTES];

    return rawpeer_send(&p->side[side], frame, rawpair_stripe_frame(frame, id, at, n));
}

void rawpair_expect_down(struct rawpair_scene *s, int before, const char *why)
{
    NETPEER_AWAIT(&s->node, n_down, before + 1);
    if (s->node.down_status == WEFT_EPEER && strstr(s->node.why, why) &&
        strstr(s->node.why, "raw ("))
        return;
    fprintf(stderr, "'%s' (%d) does not say '%s'\n", s->node.why, s->node.down_status, why);
    abort();
}
