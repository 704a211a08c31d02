/* servers_tasks.c - the tasks of a job with parameter servers: those that this process is, and
 * where the others are.
 *
 * Without a cluster, chief and servers are nodes of this process, over queues. */
#include "ps/visit.h"
#include "train/step/servers.h"

enum { MAX_SERVERS = 1024, STALL_S = 60 };
#define REPORT_NS 250000000 /* how often a chief or a server reports */
#define ENTER_TIMEOUTS 10   /* how long a task asks to be added to the job */

void wf_servers_close(void *self)
{
    struct wf_servers *s = self;

    if (!s)
        return;
    wf_ps_worker_stop(s->worker);
    for (int i = 0; s->server && i < s->n_servers; i++)
        wf_ps_server_stop(s->server[i]);
    wf_ps_chief_stop(s->chief);
    wf_renewal_free(s->spec.renewal);
    wf_tls_free(s->tls);
    wf_ps_slots_free(s->slots);
    wf_ps_slots_free(s->old);
    wf_servers_free_leases(s);
    wf_free(s->ctx, s->at[0]);
    wf_free(s->ctx, s->at[1]);
    wf_served_free(s->tables);
    wf_free(s->ctx, s->server);
    wf_free(s->ctx, s->sums);
    wf_free(s->ctx, s->start);
    wf_free(s->ctx, s->task);
    wf_free(s->ctx, s->print);
    wf_free(s->ctx, s);
}

/* Keys and certificates, if an address needs them. */
static weft_status open_tls(weft_ctx *ctx, const weft_ps_opts *o, struct wf_spec *spec)
{
    const char *const path[WF_PEM_FILES] = {o->authority, o->certificate, o->key};
    bool any = false;

    for (int i = 0; i < spec->n_tasks; i++)
        any |= strncmp(spec->task[i].address, "tls:", 4) == 0;
    return any ? wf_renewal_new(ctx, path, &spec->renewal, &spec->tls) : WEFT_OK;
}

/* The tasks of a cluster, and which of them this process is. */
static weft_status open_cluster(weft_ctx *ctx, const weft_ps_opts *o, struct wf_spec *spec,
                                int *self)
{
    weft_status st;

    if (!o->task)
        return wf_err(WEFT_EINVAL, "weft_ps_opts: a cluster needs a task, as \"worker/0\"");
    st = wf_spec_parse(ctx, o->cluster, spec);
    if (!st)
        st = wf_spec_find(spec, o->task, self);
    if (!st)
        st = open_tls(ctx, o, spec);
    return st ? st : wf_ps_enter(ctx, spec, self, ENTER_TIMEOUTS * spec->timeout_ns);
}

static void set_times(const weft_ps_opts *o, struct wf_spec *spec)
{
    spec->timeout_ns = (int64_t)((o->timeout_s > 0 ? o->timeout_s : 3) * 1e9);
    spec->retry_ns = spec->timeout_ns / 30;
    spec->balance_ns = (int64_t)(o->balance_s * 1e9);
    spec->stall_ns = o->stall_timeout_s < 0
                         ? 0
                         : (int64_t)((o->stall_timeout_s > 0 ? o->stall_timeout_s : STALL_S) * 1e9);
}

static weft_status check_slow(const weft_ps_opts *o)
{
    if (!(o->balance_s >= 0 && o->balance_s < 1e9))
        return wf_err(WEFT_EINVAL, "parameter servers: balance_s %g is not a time in seconds",
                      o->balance_s);
    if (!(o->stall_timeout_s < 1e9))
        return wf_err(WEFT_EINVAL, "parameter servers: stall_timeout_s %g is not a time in seconds",
                      o->stall_timeout_s);
    if (o->row_cache_bytes < 0)
        return wf_err(WEFT_EINVAL, "weft_ps_opts: row_cache_bytes is %lld; 0 is 64 MiB",
                      (long long)o->row_cache_bytes);
    if (o->backup < 0)
        return wf_err(WEFT_EINVAL, "weft_ps_opts: backup is %d; 0 is never", o->backup);
    return WEFT_OK;
}

weft_status wf_servers_copies(const weft_ps_opts *o, int n_servers, int *n_copies)
{
    *n_copies = o->replicas ? o->replicas - 1 : n_servers > 1;
    if (*n_copies < 0 || *n_copies > 1)
        return wf_err(WEFT_EINVAL, "parameter servers: %d replicas; 1 and 2 are possible",
                      o->replicas);
    if (*n_copies >= n_servers)
        return wf_err(WEFT_EINVAL, "parameter servers: 2 replicas of each piece need 2 servers");
    return WEFT_OK;
}

static void name_task(struct wf_servers *s, int node, enum wf_role role, const char *kind, int k)
{
    struct wf_task *t = &s->task[node];

    t->role = role;
    t->index = k;
    t->process = node;
    wf_snprintf(t->name, sizeof t->name, "%s/%d", kind, k);
    wf_snprintf(t->address, sizeof t->address, "inproc:%p/%s", (void *)s, t->name);
}

/* A chief, the servers and one worker, in this process. */
static weft_status open_here(struct wf_servers *s, const weft_ps_opts *o)
{
    weft_status st = WEFT_OK;

    s->n_servers = o->servers ? o->servers : 1;
    if (s->n_servers < 1 || s->n_servers > MAX_SERVERS)
        return wf_err(WEFT_EINVAL, "parameter servers: %d servers", o->servers);
    st = wf_servers_copies(o, s->n_servers, &s->n_copies);
    if (st)
        return st;
    s->spec.n_tasks = s->n_servers + 2;
    s->self = s->n_servers + 1;
    s->task = wf_alloc_n(s->ctx, s->spec.n_tasks, sizeof *s->task);
    s->server = wf_alloc_n(s->ctx, s->n_servers, sizeof *s->server);
    if (!s->task || !s->server)
        return wf_err_nomem(s->ctx, sizeof *s->task, "parameter servers");
    s->spec.task = s->task;
    name_task(s, 0, WF_ROLE_CHIEF, "chief", 0);
    for (int i = 0; i < s->n_servers; i++)
        name_task(s, i + 1, WF_ROLE_SERVER, "ps", i);
    name_task(s, s->self, WF_ROLE_WORKER, "worker", 0);
    st = wf_ps_chief_start(s->ctx, &s->spec, 0, NULL, s->n_copies, &s->chief);
    for (int i = 0; i < s->n_servers && !st; i++)
        st = wf_ps_server_start(s->ctx, &s->spec, i + 1, &s->server[i]);
    return st;
}

static void take_counts(const struct wf_ps_counts *n, weft_dist_counts *c)
{
    c->sent = n->sent;
    c->received = n->received;
    c->messages = n->messages;
    c->waited_s = n->waited_s;
    c->busy_s = n->busy_s;
    c->send_queue_messages = n->queues.send_messages;
    c->send_queue_bytes = n->queues.send_bytes;
    c->receive_queue_messages = n->queues.receive_messages;
    c->receive_queue_bytes = n->queues.receive_bytes;
}

static weft_status count(struct wf_ps_chief *chief, struct wf_ps_server *server,
                         const weft_ps_opts *o)
{
    weft_dist_counts c = {.size = sizeof c};
    struct wf_ps_counts n;
    weft_status st = chief ? wf_ps_chief_counts(chief, &n) : wf_ps_server_counts(server, &n);

    take_counts(&n, &c);
    if (o->report)
        o->report(o->call_arg, &c);
    return st;
}

/* Until the job has ended, the task has failed, or somebody stops it. */
static weft_status serve(const weft_ps_opts *o, struct wf_ps_chief *chief,
                         struct wf_ps_server *server)
{
    int64_t slice = o->report || o->stopped ? REPORT_NS : INT64_MAX / 4;

    for (;;) {
        weft_status st = chief ? wf_ps_chief_wait(chief, slice) : wf_ps_server_wait(server, slice);

        if (count(chief, server, o) || st != WEFT_ETIME)
            return st;
        if (o->stopped && o->stopped(o->call_arg))
            return WEFT_OK;
    }
}

/* ---- the store ------------------------------------------------------------------------------- */

static void store_of(const weft_ps_opts *o, struct wf_chief_store_opts *out)
{
    *out = (struct wf_chief_store_opts){.where = o->folder,
                                        .authority = o->store_authority,
                                        .certificate = o->store_certificate,
                                        .key = o->store_key,
                                        .insecure = o->insecure_store};
}

static weft_status open_store(weft_ctx *ctx, const weft_ps_opts *opts, struct wf_chief_store **out)
{
    struct wf_chief_store_opts store;
    weft_ps_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ps_opts");

    if (!st && !o.folder)
        st = wf_err(WEFT_EINVAL, "weft_ps_opts: no store is named");
    if (st)
        return st;
    store_of(&o, &store);
    return wf_chief_store_open(ctx, &store, out);
}

weft_status weft_ps_store_check(weft_ctx *ctx, const weft_ps_opts *opts)
{
    struct wf_action read = {.type = WF_ACT_READ};
    struct wf_store_answer a;
    struct wf_chief_store *r;
    weft_status st = open_store(ctx, opts, &r);

    if (st)
        return st;
    st = wf_chief_store_do(r, &read, &a);
    wf_chief_store_close(r);
    return st;
}

weft_status weft_ps_store_drop(weft_ctx *ctx, const weft_ps_opts *opts)
{
    struct wf_chief_store *r;
    weft_status st = open_store(ctx, opts, &r);

    if (st)
        return st;
    st = wf_chief_store_drop(r);
    wf_chief_store_close(r);
    return st;
}

weft_status weft_ps_serve(weft_ctx *ctx, const weft_ps_opts *opts)
{
    weft_ps_opts o;
    struct wf_spec spec = {0};
    struct wf_ps_chief *chief = NULL;
    struct wf_ps_server *server = NULL;
    struct wf_chief_store_opts store;
    int self = 0, n_copies;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ps_opts");

    store_of(&o, &store);
    if (!st && !o.cluster)
        st = wf_err(WEFT_EINVAL, "weft_ps_serve: needs a cluster");
    if (!st)
        st = check_slow(&o);
    if (st)
        return st;
    set_times(&o, &spec);
    st = open_cluster(ctx, &o, &spec, &self);
    if (!st)
        st = wf_servers_copies(&o, wf_spec_count(&spec, WF_ROLE_SERVER), &n_copies);
    if (!st && spec.task[self].role == WF_ROLE_WORKER)
        st = wf_err(WEFT_EINVAL, "weft_ps_serve: '%s' trains; chiefs and servers serve", o.task);
    if (!st && spec.task[self].role == WF_ROLE_CHIEF) {
        st = wf_ps_chief_start(ctx, &spec, self, o.folder ? &store : NULL, n_copies, &chief);
        if (!st && o.event)
            wf_ps_chief_tell(chief, o.event, o.call_arg);
        if (!st && o.add)
            wf_ps_chief_adds(chief, o.add, o.call_arg);
        if (!st)
            st = serve(&o, chief, NULL);
    } else if (!st) {
        st = wf_ps_server_start(ctx, &spec, self, &server);
        if (!st)
            st = serve(&o, NULL, server);
        while (!st && wf_ps_server_lost(server)) {
            wf_log(
                ctx, WEFT_LOG_WARN,
                "task '%s' was silent for too long, and its pieces were given to others: it joins "
                "again, empty",
                o.task);
            wf_ps_server_stop(server);
            server = NULL;
            st = wf_ps_server_start(ctx, &spec, self, &server);
            if (!st)
                st = serve(&o, NULL, server);
        }
    }
    wf_ps_server_stop(server);
    wf_ps_chief_stop(chief);
    wf_renewal_free(spec.renewal);
    wf_tls_free(spec.tls);
    wf_free(ctx, (void *)(uintptr_t)spec.task);
    return st;
}

/* A worker of a cluster. */
static weft_status join(struct wf_servers *s, const weft_ps_opts *o)
{
    weft_status st = open_cluster(s->ctx, o, &s->spec, &s->self);

    s->task = (struct wf_task *)(uintptr_t)s->spec.task;
    s->tls = s->spec.tls;
    if (!st && s->task[s->self].role != WF_ROLE_WORKER)
        st = wf_err(WEFT_EINVAL, "parameter servers: '%s' does not train; it runs weft_ps_serve",
                    o->task);
    return st;
}

static weft_status read_classic(struct wf_servers *s, const weft_ps_opts *o, int n_workers)
{
    int64_t shards;
    bool backup;
    weft_status st = wf_classic_words(o->replicas_to_aggregate, o->total_num_replicas, n_workers,
                                      &shards, &backup);

    if (!st && backup && !s->backup)
        s->backup = 1;
    return st;
}

weft_status wf_servers_open(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                            int *first)
{
    weft_ps_opts o = {.size = sizeof o};
    struct wf_servers *s;
    weft_status st = arg ? wf_opts_take(&o, sizeof o, arg, "weft_ps_opts") : WEFT_OK;

    if (!st)
        st = check_slow(&o);
    if (st)
        return st;
    s = wf_alloc(ctx, sizeof *s);
    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "parameter servers");
    s->ctx = ctx;
    s->piece_bytes = o.piece_bytes ? o.piece_bytes : WF_PIECE_BYTES;
    s->place = wf_servers_rule(ctx, &o);
    s->backup = o.backup;
    s->row_cache_bytes = o.row_cache_bytes;
    s->asked = o.asked;
    s->call_arg = o.call_arg;
    s->lease = s->epoch_at = -1;
    set_times(&o, &s->spec);
    st = wf_consistency_read(o.consistency, &s->leased, &s->stale);
    if (st) {
        wf_free(ctx, s);
        return st;
    }
    st = o.cluster ? join(s, &o) : read_classic(s, &o, 1);
    if (!st)
        st = o.cluster ? read_classic(s, &o, wf_spec_count(&s->spec, WF_ROLE_WORKER))
                       : open_here(s, &o);
    if (st) {
        wf_servers_close(s);
        return st;
    }
    *self = s;
    *replicas = s->n_workers = wf_spec_count(&s->spec, WF_ROLE_WORKER);
    *local = 1;
    *first = s->task[s->self].index;
    return WEFT_OK;
}

weft_status weft_dist_count(const weft_dist *d, weft_dist_counts *out)
{
    weft_dist_counts c = {.size = out->size};
    const struct wf_servers *s = d->self;

    if (d->kind.compute == wf_servers_compute && s->worker) {
        struct wf_ps_counts n = wf_ps_worker_counts(s->worker);

        take_counts(&n, &c);
        c.shards = s->computed;
        c.staleness = n.stale.n ? (double)n.stale.sum / (double)n.stale.n : 0;
        c.staleness_most = n.stale.most;
    }
    return wf_opts_give(out, out->size, &c, sizeof c, "weft_dist_counts");
}

weft_status weft_dist_open_ps(weft_ctx *ctx, const weft_ps_opts *opts, weft_dist **out)
{
    const weft_strategy *kind;
    weft_ps_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ps_opts");

    if (!st)
        st = wf_dist_find("ps", &kind);
    if (!st)
        st = weft_dist_open_with(ctx, kind, &o, out);
    if (!st)
        (*out)->shards = o.replicas_to_aggregate;
    return st;
}
