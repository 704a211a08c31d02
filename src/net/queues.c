/* queues.c - what waits at a node's links: to be sent, and to be read.
 *
 * Who asks may hold a lock that the node's calls take, so no one waits for the turn here: if
 * another thread has it, the last answer is given, and that thread makes a new one when it gives
 * the turn back. */
#define _GNU_SOURCE
#include "net/link.h"

static void add_send(struct wf_link *l, struct wf_queues *q)
{
    pthread_mutex_lock(&l->out);
    q->send_messages += l->n_queued;
    for (const struct wf_outgoing *o = l->first; o; o = o->next)
        q->send_bytes += o->n - o->at + (o->striped && !o->striped_done ? o->frame.n_payload : 0);
    pthread_mutex_unlock(&l->out);
}

static int64_t unread_bytes(const struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;

    if (l->shm)
        return wf_shm_unread(l);
    return l->fd < 0 ? 0 : wf_max_i64(sys->unread(sys->arg, l->fd), 0);
}

static void add_receive(const struct wf_link *l, struct wf_queues *q)
{
    int64_t bytes = unread_bytes(l) + l->staged - l->taken;

    q->receive_messages += bytes > 0 || !wf_unframe_between(&l->in);
    q->receive_bytes += bytes;
}

/* With the turn. */
static void measure(struct wf_net *net)
{
    struct wf_queues q = {0};

    for (struct wf_link *l = net->links; l; l = l->next)
        if (l->state == WF_LINK_UP && !l->belongs) {
            add_send(l, &q);
            add_receive(l, &q);
        }
    pthread_mutex_lock(&net->lock);
    net->queues = q;
    pthread_mutex_unlock(&net->lock);
}

void wf_net_measure(struct wf_net *net)
{
    if (net->wants_queues && atomic_exchange(&net->wants_queues, false))
        measure(net);
}

void wf_net_queues(struct wf_net *net, struct wf_queues *out)
{
    if (pthread_mutex_trylock(&net->turn) == 0) {
        measure(net);
        pthread_mutex_unlock(&net->turn);
    } else {
        net->wants_queues = true;
    }
    pthread_mutex_lock(&net->lock);
    *out = net->queues;
    pthread_mutex_unlock(&net->lock);
}
