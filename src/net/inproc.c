/* inproc.c - nodes of one context, without a system between them.
 *
 * Two links are joined by a pipe. Nothing is in it: an end reads from the other end's queue, so
 * that a payload is copied once, from where the sender has it to where the receiver wants it. The
 * names that nodes listen at belong to the context. */
#define _GNU_SOURCE
#include <errno.h>

#include "net/link.h"

struct wf_pipe {
    pthread_mutex_t lock;
    pthread_cond_t left;
    struct wf_link *end[2]; /* NULL: down */
    int n_visits[2];        /* the other end's thread is using this end */
    int n_links;            /* that are not freed yet */
    struct wf_identity self[2];
    int64_t closed_ns[2]; /* when an end went down: the other learns it as it learns the rest */
};

struct registry {
    pthread_mutex_t lock;
    struct wf_listener *listeners;
    wf_transit_fn *transit;
    void *transit_arg;
};

/* ---- names ----------------------------------------------------------------------------------- */

static void registry_free(weft_ctx *ctx)
{
    struct registry *r = atomic_load(&ctx->inproc);

    pthread_mutex_destroy(&r->lock);
    wf_free(ctx, r);
}

static struct registry *registry_of(weft_ctx *ctx)
{
    struct registry *r = atomic_load(&ctx->inproc);
    void *none = NULL;

    if (r)
        return r;
    r = wf_alloc(ctx, sizeof *r);
    if (!r)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    if (atomic_compare_exchange_strong(&ctx->inproc, &none, r)) {
        atomic_store(&ctx->inproc_free, registry_free);
        return r;
    }
    pthread_mutex_destroy(&r->lock); /* another thread was faster */
    wf_free(ctx, r);
    return atomic_load(&ctx->inproc);
}

static struct wf_listener *find(const struct registry *r, const char *name)
{
    struct wf_listener *s = r->listeners;

    while (s && strcmp(s->name, name) != 0)
        s = s->next_named;
    return s;
}

weft_status wf_inproc_listen(struct wf_listener *s, const char *name)
{
    struct registry *r = registry_of(s->net->ctx);
    weft_status st = WEFT_OK;

    if (!r)
        return wf_err_nomem(s->net->ctx, sizeof *r, "a listener");
    pthread_mutex_lock(&r->lock);
    if (find(r, name)) {
        st = wf_err(WEFT_EIO, "another node of this process listens there");
    } else {
        wf_snprintf(s->name, sizeof s->name, "%s", name);
        s->next_named = r->listeners;
        r->listeners = s;
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

void wf_inproc_unlisten(struct wf_listener *s)
{
    struct registry *r = atomic_load(&s->net->ctx->inproc);

    if (!*s->name)
        return;
    pthread_mutex_lock(&r->lock);
    for (struct wf_listener **at = &r->listeners; *at; at = &(*at)->next_named)
        if (*at == s) {
            *at = s->next_named;
            break;
        }
    pthread_mutex_unlock(&r->lock);
    *s->name = 0;
}

weft_status wf_inproc_transit(weft_ctx *ctx, wf_transit_fn *fn, void *arg)
{
    struct registry *r = registry_of(ctx);

    if (!r)
        return wf_err_nomem(ctx, sizeof *r, "a network");
    pthread_mutex_lock(&r->lock);
    r->transit = fn;
    r->transit_arg = arg;
    pthread_mutex_unlock(&r->lock);
    return WEFT_OK;
}

int64_t wf_inproc_transit_ns(weft_ctx *ctx, const struct wf_transit *t)
{
    struct registry *r = atomic_load(&ctx->inproc);
    wf_transit_fn *fn;
    void *arg;

    pthread_mutex_lock(&r->lock);
    fn = r->transit;
    arg = r->transit_arg;
    pthread_mutex_unlock(&r->lock);
    return fn ? fn(arg, t) : t->now_ns;
}

/* ---- pipes ----------------------------------------------------------------------------------- */

static struct wf_pipe *join(weft_ctx *ctx, struct wf_link *a, struct wf_link *b)
{
    struct wf_pipe *p = wf_alloc(ctx, sizeof *p);

    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->left, NULL);
    p->end[0] = a;
    p->end[1] = b;
    p->n_links = 2;
    p->self[0] = a->net->opts.self;
    p->self[1] = b->net->opts.self;
    a->pipe = b->pipe = p;
    b->side = 1;
    return p;
}

/* A link of the listener's node, which its thread will start. The registry's mutex is held, so that
 * the node is there. */
static weft_status reach(struct wf_listener *s, struct wf_link *l)
{
    struct wf_order *o = wf_alloc(s->net->ctx, sizeof *o);
    struct wf_link *peer = NULL;
    weft_status st =
        o ? wf_link_new(s->net, &peer) : wf_err_nomem(l->net->ctx, sizeof *o, "a link");

    if (!st && !join(l->net->ctx, l, peer))
        st = wf_err_nomem(l->net->ctx, sizeof(struct wf_pipe), "a link");
    if (st) {
        if (peer)
            wf_link_free(peer);
        wf_free(s->net->ctx, o);
        return st;
    }
    peer->kind = WF_ADDRESS_INPROC;
    wf_snprintf(peer->address, sizeof peer->address, "%s", l->address);
    *o = (struct wf_order){.link = peer, .accepted = true};
    wf_net_order(s->net, o);
    return WEFT_OK;
}

void wf_inproc_connect(struct wf_link *l)
{
    struct registry *r = registry_of(l->net->ctx);
    struct wf_listener *s;
    weft_status st;

    if (!r) {
        wf_link_down(l, WEFT_ENOMEM, "out of memory");
        return;
    }
    pthread_mutex_lock(&r->lock);
    s = find(r, l->address + strlen("inproc:"));
    st = s ? reach(s, l) : wf_err(WEFT_EPEER, "connecting: nobody listens there");
    pthread_mutex_unlock(&r->lock);
    if (st)
        wf_link_down(l, st, weft_error());
    else
        wf_link_start(l);
}

void wf_inproc_wake_peer(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;

    pthread_mutex_lock(&p->lock);
    if (p->end[!l->side])
        wf_net_wake(p->end[!l->side]->net);
    pthread_mutex_unlock(&p->lock);
}

void wf_inproc_close(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;

    pthread_mutex_lock(&p->lock);
    p->end[l->side] = NULL;
    p->closed_ns[l->side] = wf_now(l->net->ctx);
    pthread_mutex_unlock(&p->lock);
    wf_inproc_wake_peer(l);
}

bool wf_inproc_visited(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;
    bool visited;

    if (!p)
        return false;
    pthread_mutex_lock(&p->lock);
    visited = p->n_visits[l->side] > 0;
    pthread_mutex_unlock(&p->lock);
    return visited;
}

void wf_inproc_free(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;
    bool last;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->end[l->side] = NULL;
    while (p->n_visits[l->side] > 0)
        pthread_cond_wait(&p->left, &p->lock);
    last = --p->n_links == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last)
        return;
    pthread_cond_destroy(&p->left);
    pthread_mutex_destroy(&p->lock);
    wf_free(l->net->ctx, p);
}

/* The other end, which is not freed until the visit ends; NULL: it is down. */
static struct wf_link *visit(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;
    struct wf_link *peer;

    pthread_mutex_lock(&p->lock);
    peer = p->end[!l->side];
    if (peer)
        p->n_visits[!l->side]++;
    pthread_mutex_unlock(&p->lock);
    return peer;
}

static void end_visit(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;

    pthread_mutex_lock(&p->lock);
    p->n_visits[!l->side]--;
    pthread_cond_broadcast(&p->left);
    pthread_mutex_unlock(&p->lock);
}

/* 0: the other end is down, which is passed on like a bye; -EAGAIN: not yet. */
static int64_t read_end(struct wf_link *l)
{
    struct wf_pipe *p = l->pipe;
    const struct wf_frame bye = {.type = WF_FRAME_BYE};
    struct wf_transit t = {.from = &p->self[!l->side],
                           .to = &p->self[l->side],
                           .frame = &bye,
                           .now_ns = wf_now(l->net->ctx)};

    pthread_mutex_lock(&p->lock);
    t.queued_ns = p->closed_ns[!l->side];
    pthread_mutex_unlock(&p->lock);
    l->held = wf_inproc_transit_ns(l->net->ctx, &t) > t.now_ns;
    return l->held ? -EAGAIN : 0;
}

static int64_t read_inproc(struct wf_link *l, const struct iovec *v, int n)
{
    struct wf_link *peer = visit(l);
    int64_t k;

    if (!peer)
        return read_end(l);
    k = wf_sendq_pull(peer, &l->net->opts.self, v, n, &l->held);
    end_visit(l);
    return k;
}

struct wf_region *wf_inproc_region(struct wf_link *l, uint64_t id)
{
    struct wf_link *peer = visit(l);
    struct wf_region *r = NULL;

    if (!peer)
        return NULL;
    pthread_mutex_lock(&peer->out);
    r = wf_region_of(peer, id, true);
    if (r)
        wf_region_ref(r);
    pthread_mutex_unlock(&peer->out);
    end_visit(l);
    return r;
}

const struct wf_wire wf_wire_inproc = {.read = read_inproc, .shares = true, .pulled = true};
