/* netpeer.c - a node for tests that writes down what happens to it. */
#define _GNU_SOURCE
#include "support/netpeer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const netpeer_members[NETPEER_MEMBERS] = {"inproc", "shm", "uds",   "tcp",
                                                      "tcp6",   "tls", "tcp-3", "tls-3"};

static void on_up(void *arg, struct wf_link *l)
{
    struct netpeer *p = arg;

    p->link = l;
    p->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct netpeer *p = arg;

    (void)l;
    snprintf(p->why, sizeof p->why, "%s", why);
    p->down_status = st;
    p->n_down++;
}

static void keep_block(struct netpeer *p)
{
    p->blocks = realloc(p->blocks, (size_t)(p->n_blocks + 1) * sizeof *p->blocks);
    p->blocks[p->n_blocks++] = p->memory;
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct netpeer *p = arg;
    struct wf_part *part = &p->place[p->n_placed % NETPEER_PLACES];

    (void)l;
    p->n_placed++;
    if (p->fresh || m->n_payload > p->room) {
        if (p->fresh)
            keep_block(p);
        else
            free(p->memory);
        p->memory = malloc((size_t)m->n_payload);
        p->room = m->n_payload;
    }
    *part = (struct wf_part){p->memory, m->n_payload};
    *parts = part;
    *n_parts = 1;
    return WEFT_OK;
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct netpeer *p = arg;
    int k = p->n_received % NETPEER_MESSAGES;

    p->message[k] = *m;
    p->part[k] = m->n_parts ? m->part[0] : (struct wf_part){NULL, 0};
    if (m->id && p->echoes)
        wf_link_reply(l, m->id, WEFT_OK,
                      &(struct wf_msg){.kind = m->kind, .part = m->part, .n_parts = m->n_parts},
                      netpeer_sent, p);
    if (m->slot && !p->keeps)
        wf_link_release(l, m->slot);
    p->n_received++;
}

static void on_region(void *arg, struct wf_link *l, struct wf_region *r)
{
    struct netpeer *p = arg;

    (void)l;
    if (p->n_regions == NETPEER_REGIONS)
        abort();
    p->region[p->n_regions] = r;
    p->n_regions++;
}

void netpeer_sent(void *arg, weft_status st)
{
    struct netpeer *p = arg;

    if (st)
        p->n_unsent++;
    else
        p->n_sent++;
}

void netpeer_replied(void *arg, weft_status st, const struct wf_msg *m)
{
    struct netpeer *p = arg;

    p->reply_status = st;
    if (!st) {
        p->reply = *m;
        p->reply_part = m->n_parts ? m->part[0] : (struct wf_part){NULL, 0};
    }
    p->n_replies++;
}

void netpeer_open(struct netpeer *p, weft_ctx *ctx, const char *name, struct wf_net_opts opts)
{
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    snprintf(opts.self.name, sizeof opts.self.name, "%s", name);
    snprintf(opts.self.role, sizeof opts.self.role, "test");
    opts.calls = (struct wf_net_calls){.arg = p,
                                       .up = on_up,
                                       .down = on_down,
                                       .place = on_place,
                                       .received = on_received,
                                       .region = on_region};
    if (wf_net_new(ctx, &opts, &p->net)) {
        fprintf(stderr, "%s: %s\n", name, weft_error());
        abort();
    }
}

/* One authority for all nodes of the program; it lasts as long as that. */
const struct wf_pem *netpeer_authority(void)
{
    static struct wf_pem pem;
    static weft_ctx *ctx;

    if (!ctx && (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) ||
                 wf_cert_authority(ctx, 2, &pem))) {
        fprintf(stderr, "an authority: %s\n", weft_error());
        abort();
    }
    return &pem;
}

void netpeer_issue(weft_ctx *ctx, const char *name, struct wf_pem *out)
{
    if (wf_cert_issue(ctx, netpeer_authority(), "test", name, 1, out)) {
        fprintf(stderr, "%s: %s\n", name, weft_error());
        abort();
    }
}

void netpeer_certify(weft_ctx *ctx, const char *name, struct wf_tls **out)
{
    const struct wf_pem *by = netpeer_authority();
    struct wf_pem pem;

    netpeer_issue(ctx, name, &pem);
    if (wf_tls_new(ctx, &(struct wf_credentials){by->certificate, pem.certificate, pem.key}, out)) {
        fprintf(stderr, "%s: %s\n", name, weft_error());
        abort();
    }
    wf_pem_free(ctx, &pem);
}

struct wf_net_opts netpeer_over(const char *member, struct wf_net_opts opts)
{
    if (strchr(member, '-')) {
        opts.connections = atoi(strchr(member, '-') + 1);
        opts.striped_min = opts.striped_min ? opts.striped_min : 4096;
        opts.stripe_bytes = opts.stripe_bytes ? opts.stripe_bytes : 4096;
    }
    if (!opts.connections) /* whatever the number of cores */
        opts.connections = 1;
    return opts;
}

void netpeer_open_over(struct netpeer *p, const char *member, weft_ctx *ctx, const char *name,
                       struct wf_net_opts opts)
{
    struct wf_tls *tls = NULL;

    if (strncmp(member, "tls", 3) == 0)
        netpeer_certify(ctx, name, &tls);
    opts = netpeer_over(member, opts);
    opts.tls = tls;
    netpeer_open(p, ctx, name, opts);
    p->tls = tls;
}

void netpeer_close(struct netpeer *p)
{
    wf_net_free(p->net);
    wf_tls_free(p->tls);
    for (int i = 0; i < p->n_regions; i++)
        wf_region_drop(p->region[i]);
    for (int i = 0; i < p->n_blocks; i++)
        free(p->blocks[i]);
    free(p->blocks);
    free(p->memory);
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

void netpeer_await(struct netpeer *p, _Atomic int *value, int n, const char *what, int line)
{
    struct until u = {value, n};

    if (wf_net_wait(p->net, reached, &u, 20000000000, what)) {
        fprintf(stderr, "line %d: %s is %d, not %d: %s; %s\n", line, what, *value, n, weft_error(),
                p->why);
        abort();
    }
}

const char *netpeer_address(const char *member, char out[128])
{
    static int number;

    if (strcmp(member, "tcp6") == 0)
        snprintf(out, 128, "tcp:[::1]:0");
    else if (member[0] == 't')
        snprintf(out, 128, "%.3s:127.0.0.1:0", member);
    else if (member[0] == 'i')
        snprintf(out, 128, "inproc:peer-%d", number++);
    else
        snprintf(out, 128, "%s:/tmp/weft-peer-%d-%d.sock", member, (int)getpid(), number++);
    return out;
}
