/* visit.c - one question to a task, and its answer. */
#include "cluster/visit.h"

struct visit {
    weft_ctx *ctx;
    const struct wf_visit *v;
    char *answer;
    int64_t n;
    struct wf_part part;
    weft_status st;
    char why[300];
    atomic_bool done; /* then the rest is not written any more */
};

static void end(struct visit *v, weft_status st, const char *why)
{
    if (v->done)
        return;
    v->st = st;
    wf_snprintf(v->why, sizeof v->why, "%s", why);
    v->done = true;
}

static void down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct visit *v = arg;

    (void)l; /* not dropped: the caller may be about to ask; it goes with the node */
    end(v, st ? st : WEFT_EPEER, why && *why ? why : v->v->closed);
}

/* What is not the answer is skipped. */
static weft_status place(void *arg, struct wf_link *l, const struct wf_msg *m,
                         const struct wf_part **parts, int *n_parts)
{
    struct visit *v = arg;

    (void)l;
    *n_parts = 0;
    if (!m->response)
        return WEFT_OK;
    if (v->answer || m->n_payload < v->v->min || m->n_payload > v->v->max)
        return wf_err(WEFT_EPEER, "an answer of %lld bytes", (long long)m->n_payload);
    v->answer = wf_alloc(v->ctx, (size_t)m->n_payload + 1);
    if (!v->answer)
        return wf_err_nomem(v->ctx, (size_t)m->n_payload, "an answer");
    v->n = m->n_payload;
    v->part = (struct wf_part){v->answer, v->n};
    *parts = &v->part;
    *n_parts = 1;
    return WEFT_OK;
}

static void received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    (void)arg;
    (void)l;
    (void)m;
}

static void answered(void *arg, weft_status st, const struct wf_msg *m)
{
    (void)m;
    end(arg, st, st ? weft_error() : "");
}

static bool is_done(void *arg)
{
    return ((struct visit *)arg)->done;
}

weft_status wf_visit(weft_ctx *ctx, const struct wf_visit *v, char **answer, int64_t *n)
{
    struct visit own = {.ctx = ctx, .v = v};
    struct wf_net_opts o = {
        .self = *v->who,
        .calls = {.arg = &own, .down = down, .place = place, .received = received},
        .silence_ns = v->timeout_ns,
        .stall_ns = v->timeout_ns,
        .connections = 1,
        .tls = v->tls};
    struct wf_net *net = NULL;
    struct wf_link *link;
    weft_status st = wf_net_new(ctx, &o, &net);
    bool ended;

    if (!st)
        st = wf_net_connect(net, v->address, v->timeout_ns, &link);
    if (!st)
        st = wf_link_call(link, &v->question, v->timeout_ns, NULL, answered, &own, NULL);
    if (!st)
        st = wf_net_wait(net, is_done, &own, 2 * v->timeout_ns, v->of);
    ended = own.done;
    wf_net_free(net);      /* nothing is written afterwards */
    if (ended && own.st) { /* why it went down says more than that it is down */
        wf_err_set(own.why);
        st = own.st;
    }
    if (!st && !own.answer)
        st = wf_err(WEFT_EPEER, "%s is empty", v->of);
    if (st) {
        wf_free(ctx, own.answer);
        return st;
    }
    *answer = own.answer;
    *n = own.n;
    return WEFT_OK;
}
