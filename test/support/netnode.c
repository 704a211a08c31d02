/* netnode.c - two nodes that behave, and numbered messages. */
#define _GNU_SOURCE
#include "support/netnode.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_RECORDS = 20100, ANSWERS = 256 };

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "a node: %s: %s\n", what, weft_error());
    abort();
}

/* ---- what happens ---------------------------------------------------------------------------- */

static weft_status on_admit(void *arg, struct wf_link *l)
{
    const struct netnode *n = arg;

    return n->refuses ? wf_err(WEFT_EPEER, "%s is not wanted", wf_link_peer(l)->name) : WEFT_OK;
}

static void on_up(void *arg, struct wf_link *l)
{
    struct netnode *n = arg;

    n->link = l;
    n->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct netnode *n = arg;

    snprintf(n->why, sizeof n->why, "%s", why);
    n->down_status = st;
    n->n_down++;
    if (n->drops) /* otherwise with the node: another thread may be sending */
        wf_link_drop(l);
}

/* In up to three parts, one of them empty. */
static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct netnode *n = arg;
    int64_t half = m->n_payload / 3;

    (void)l;
    if (n->later) {
        n->n_later++;
        *n_parts = WF_PLACE_LATER;
        return WEFT_OK;
    }
    if (m->n_payload > n->room) {
        free(n->memory);
        n->memory = malloc((size_t)m->n_payload);
        n->room = m->n_payload;
    }
    n->part[0] = (struct wf_part){n->memory, half};
    n->part[1] = (struct wf_part){n->memory + half, 0};
    n->part[2] = (struct wf_part){n->memory + half, m->n_payload - half};
    *parts = n->part;
    *n_parts = 3;
    return WEFT_OK;
}

/* With the same head and payload; kind 99: with an error. */
static void answer(struct netnode *n, struct wf_link *l, const struct wf_msg *m)
{
    static uint8_t copies[ANSWERS][1 << 16]; /* borrowed until it is sent */
    uint8_t *copy = copies[n->n_received % ANSWERS];
    struct wf_part part = {copy, m->n_payload};
    struct wf_msg back = {.kind = m->kind,
                          .head = m->head,
                          .n_head = m->n_head,
                          .part = &part,
                          .n_parts = m->n_payload > 0};

    must(m->n_payload <= (int64_t)sizeof copies[0], "a request that is too large");
    if (m->n_payload)
        memcpy(copy, n->memory, (size_t)m->n_payload);
    if (m->kind == 99)
        wf_link_reply(l, m->id, WEFT_EDATA, &(struct wf_msg){.head = "not today", .n_head = 9},
                      NULL, NULL);
    else
        must(!wf_link_reply(l, m->id, WEFT_OK, &back, NULL, NULL), "an answer");
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct netnode *n = arg;
    struct netnode_record *r = &n->record[n->n_received];

    must(n->n_received < MAX_RECORDS, "too many messages");
    *r = (struct netnode_record){.n_payload = m->n_payload, .kind = m->kind, .id = m->id};
    if (m->n_head >= 8)
        memcpy(&r->number, m->head, 8);
    for (int i = 0; i < m->n_parts; i++)
        r->crc = wf_crc32c(r->crc, m->part[i].p, m->part[i].n);
    n->n_received++;
    if (m->id && n->answers)
        answer(n, l, m);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Of nodes over inproc. */
static struct {
    weft_ctx *ctx;
    int n_nodes;
    struct counting count;
} common;

static weft_ctx *new_ctx(struct counting *count)
{
    weft_allocator allocator = counting_allocator(count);
    weft_ctx *ctx;

    must(!weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &ctx),
         "a context");
    return ctx;
}

static weft_ctx *common_ctx(void)
{
    if (common.n_nodes++ == 0)
        common.ctx = new_ctx(&common.count);
    return common.ctx;
}

void netnode_open(struct netnode *n, const char *member, const char *name, struct wf_net_opts opts)
{
    *n = (struct netnode){.max_records = MAX_RECORDS};
    n->ctx = strcmp(member, "inproc") == 0 ? common_ctx() : new_ctx(&n->count);
    n->record = calloc(MAX_RECORDS, sizeof *n->record);
    snprintf(opts.self.name, sizeof opts.self.name, "%s", name);
    snprintf(opts.self.role, sizeof opts.self.role, "test");
    opts.self.incarnation = 7;
    opts.calls = (struct wf_net_calls){.arg = n,
                                       .admit = on_admit,
                                       .up = on_up,
                                       .down = on_down,
                                       .place = on_place,
                                       .received = on_received};
    if (!opts.tls && strncmp(member, "tls", 3) == 0)
        netpeer_certify(n->ctx, name, &n->tls);
    opts.tls = opts.tls ? opts.tls : n->tls;
    opts = netpeer_over(member, opts);
    must(!wf_net_new(n->ctx, &opts, &n->net), name);
}

void netnode_close(struct netnode *n)
{
    const struct counting *count = n->ctx == common.ctx ? &common.count : &n->count;

    wf_net_free(n->net);
    wf_tls_free(n->tls);
    if (n->ctx != common.ctx || --common.n_nodes == 0) {
        weft_ctx_free(n->ctx);
        must(count->n_live == 0, "blocks are left");
        if (n->ctx == common.ctx)
            common.ctx = NULL;
    }
    free(n->record);
    free(n->memory);
}

void netnode_listen(struct netnode *n, const char *member)
{
    char address[128];

    must(!wf_net_listen(n->net, netpeer_address(member, address), n->address, sizeof n->address),
         member);
}

static bool all_connected(const struct netnode *n)
{
    return wf_link_connections(n->link) == wf_net_connections(n->net);
}

void netnode_pair(const char *member, struct netnode *a, struct netnode *b, struct wf_net_opts opts)
{
    struct wf_link *l;

    netnode_open(a, member, "server/0", opts);
    netnode_open(b, member, "worker/1", opts);
    netnode_listen(a, member);
    must(!wf_net_connect(b->net, a->address, NETNODE_WAIT, &l), "connecting");
    NETNODE_AWAIT(b, n_up, 1);
    NETNODE_AWAIT(a, n_up, 1);
    for (int i = 0; i < 100000 && !(all_connected(a) && all_connected(b)); i++)
        usleep(200);
    must(all_connected(a) && all_connected(b), "further connections");
    must(b->link == l, "another link");
    must(!strcmp(wf_link_peer(b->link)->name, "server/0") &&
             !strcmp(wf_link_peer(a->link)->name, "worker/1") &&
             !strcmp(wf_link_peer(a->link)->role, "test") &&
             wf_link_peer(a->link)->incarnation == 7,
         "a peer says that it is another one");
}

struct until {
    _Atomic int *value;
    int at_least;
};

static bool reached(void *arg)
{
    const struct until *u = arg;

    return *u->value >= u->at_least;
}

void netnode_await(struct netnode *n, _Atomic int *value, int at_least, const char *what, int line)
{
    struct until u = {value, at_least};

    if (wf_net_wait(n->net, reached, &u, NETNODE_WAIT, what)) {
        fprintf(stderr, "line %d: %s is %d, not %d: %s; %s\n", line, what, *value, at_least,
                weft_error(), n->why);
        abort();
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t bytes[1 << 16];

__attribute__((constructor)) static void fill_bytes(void)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 17);
}

struct wf_msg netnode_message(int64_t k, int64_t *head, struct wf_part part[2])
{
    static const int64_t sizes[] = {0, 1, 2, 100, 1000, 4096, 60000};
    int64_t n = sizes[k % 7], cut = n / 2;

    *head = k;
    part[0] = (struct wf_part){bytes + k % 16, cut};
    part[1] = (struct wf_part){bytes + k % 16 + cut, n - cut};
    return (struct wf_msg){
        .kind = (uint32_t)k, .head = head, .n_head = 8, .part = part, .n_parts = n ? 2 : 0};
}

void netnode_check(const struct netnode_record *r, int64_t k)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = netnode_message(k, &head, part);
    int64_t n = m.n_parts ? part[0].n + part[1].n : 0;

    if (r->number == k && r->kind == k && r->n_payload == n &&
        r->crc == (n ? wf_crc32c(0, part[0].p, n) : 0))
        return;
    fprintf(stderr, "message %lld has arrived as %lld, kind %u, with %lld bytes, not %lld\n",
            (long long)k, (long long)r->number, (unsigned)r->kind, (long long)r->n_payload,
            (long long)n);
    abort();
}

void netnode_sent(void *arg, weft_status st)
{
    _Atomic int *n = arg;

    n[st ? 1 : 0]++;
}

void netnode_send(struct netnode *n, struct wf_link *l, int64_t k, _Atomic int *sent)
{
    int64_t head;
    struct wf_part part[2];
    struct wf_msg m = netnode_message(k, &head, part);
    weft_status st;

    while ((st = wf_link_send(l, &m, netnode_sent, sent)) == WEFT_ELIMIT)
        usleep(200);
    must(!st, n->why);
}
