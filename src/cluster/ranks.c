/* ranks.c - tasks from sources that number processes and give them no roles: torchrun, Open MPI,
 * Slurm.
 *
 * Process 0 is the chief and the first server; the next ones are servers; the last ones
 * evaluators; those between are workers. A single process is chief, server and worker. */
#include "cluster/spec.h"

enum { DEFAULT_PORT = 7070, SLURM_PORT = 20000 };

/* ---- roles ----------------------------------------------------------------------------------- */

static weft_status add_listener(weft_cluster *c, const struct wf_ranks *r, enum wf_role role,
                                int index, int process, int port)
{
    const char *host = r->host[process];
    bool v6 = host && strchr(host, ':');
    char address[320];

    if (!host)
        return wf_err(WEFT_EINVAL,
                      "%s: the machine of process %d is not known, and %s/%d is to listen there; "
                      "name the machines, or have fewer servers",
                      r->who, process, wf_role_name(role), index);
    if (port > 65535)
        return wf_err(WEFT_EINVAL, "%s: %s/%d would listen at port %d; begin with a lower port",
                      r->who, wf_role_name(role), index, port);
    wf_snprintf(address, sizeof address, "%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return wf_cluster_add(c, role, index, process, address, -1);
}

weft_status wf_from_ranks(weft_cluster *c, const struct wf_ranks *r, const weft_cluster_opts *o)
{
    int n = (int)r->n, first = o->own_chief ? 1 : 0;
    int n_ps = o->ps ? o->ps : n / 4 > 1 ? n / 4 : 1, n_workers = n - first - n_ps - o->evaluators;
    bool alone = n == 1 && !o->own_chief && n_ps == 1 && !o->evaluators;
    weft_status st;

    if (!alone && n_workers < 1)
        return wf_err(WEFT_EINVAL,
                      "%s: %d process%s: with %d for ps%s and %d evaluator%s none is left to "
                      "compute",
                      r->who, n, n == 1 ? "" : "es", n_ps,
                      o->own_chief ? ", one for the chief" : "", o->evaluators,
                      o->evaluators == 1 ? "" : "s");
    st = add_listener(c, r, WF_ROLE_CHIEF, 0, 0, r->port);
    for (int k = 0; k < n_ps && !st; k++)
        st = add_listener(c, r, WF_ROLE_SERVER, k, first + k, r->port + 1 + k);
    if (!st && alone)
        st = wf_cluster_add(c, WF_ROLE_WORKER, 0, 0, "", 0);
    for (int k = 0; k < n_workers && !st; k++)
        st = wf_cluster_add(c, WF_ROLE_WORKER, k, first + n_ps + k, "", 0);
    for (int k = 0; k < o->evaluators && !st; k++)
        st = wf_cluster_add(c, WF_ROLE_EVALUATOR, k, n - o->evaluators + k, "", 0);
    c->process = (int)r->self;
    return st;
}

/* ---- machines -------------------------------------------------------------------------------- */

/* The machine of each process, from names and how many processes each has. cyclic: dealt out one
 * after the other. */
static void deal_hosts(const struct wf_hosts *h, const int64_t *count, bool cyclic, int64_t n,
                       const char **host)
{
    int64_t p = 0;

    for (int64_t i = 0; i < h->n && !cyclic; i++)
        for (int64_t k = 0; k < count[i] && p < n; k++)
            host[p++] = h->name[i];
    for (int64_t round = 0; p < n && cyclic; round++) {
        int64_t before = p;

        for (int64_t i = 0; i < h->n && p < n; i++)
            if (round < count[i])
                host[p++] = h->name[i];
        if (p == before)
            break;
    }
}

/* `each` processes on each machine of a list. */
static weft_status name_hosts(weft_cluster *c, const struct wf_ranks *r, const char *list,
                              int64_t each, const char **host, struct wf_hosts *h)
{
    weft_status st = wf_hosts_parse(c->ctx, list, h);

    if (st)
        return wf_err_wrap(st, "%s", r->who);
    if (h->n * each < r->n)
        return wf_err(WEFT_EINVAL,
                      "%s: %lld processes, %lld on each machine, need more than the %lld machines "
                      "of \"%.60s\"",
                      r->who, (long long)r->n, (long long)each, (long long)h->n, list);
    for (int64_t p = 0; p < r->n; p++)
        host[p] = h->name[p / each];
    return WEFT_OK;
}

static weft_status new_hosts(weft_cluster *c, struct wf_ranks *r, const char ***out)
{
    if (r->n > WF_MAX_TASKS)
        return wf_err(WEFT_ELIMIT, "%s: %lld processes; %d are possible", r->who, (long long)r->n,
                      WF_MAX_TASKS);
    if (r->self >= r->n)
        return wf_err(WEFT_EINVAL, "%s: this is process %lld of %lld", r->who, (long long)r->self,
                      (long long)r->n);
    *out = wf_alloc_n(c->ctx, r->n + 1, sizeof **out);
    r->host = *out;
    return *out ? WEFT_OK : wf_err_nomem(c->ctx, (size_t)r->n * sizeof **out, "cluster");
}

/* The variables of a source: its number of processes, and which this is. */
static weft_status read_ranks(const weft_cluster_opts *o, const char *self, const char *n,
                              struct wf_ranks *r, bool *there)
{
    bool has_n = false;
    weft_status st = wf_env_int(o->env, self, 0, INT32_MAX, there, &r->self);

    if (!st && *there)
        st = wf_env_int(o->env, n, 1, INT32_MAX, &has_n, &r->n);
    if (!st && *there && !has_n)
        st = wf_err(WEFT_EINVAL, "%s: %s is set, but %s is not", r->who, self, n);
    return st;
}

static void say(weft_cluster *c, const struct wf_ranks *r)
{
    wf_snprintf(c->said, sizeof c->said, "%s, process %lld of %lld", r->who, (long long)r->self,
                (long long)r->n);
}

/* ---- torchrun -------------------------------------------------------------------------------- */

weft_status wf_from_torchrun(weft_cluster *c, const weft_cluster_opts *o, bool *there)
{
    struct wf_ranks r = {.who = "torchrun"};
    struct wf_hosts h = {.n = 0};
    const char *master = wf_env_get(o->env, "MASTER_ADDR"), **host = NULL;
    int64_t local = 1, port = DEFAULT_PORT - 1;
    bool any;
    weft_status st;

    *there = false;
    if (!master || !wf_env_get(o->env, "WORLD_SIZE"))
        return WEFT_OK;
    st = read_ranks(o, "RANK", "WORLD_SIZE", &r, there);
    if (st || !*there)
        return st;
    st = wf_env_int(o->env, "LOCAL_WORLD_SIZE", 1, INT32_MAX, &any, &local);
    if (!st)
        st = wf_env_int(o->env, "MASTER_PORT", 1, 65535, &any, &port);
    r.port = o->port ? o->port : (int)port + 1; /* torchrun itself listens at MASTER_PORT */
    if (!st)
        st = new_hosts(c, &r, &host);
    if (!st && o->hosts)
        st = name_hosts(c, &r, o->hosts, local, host, &h);
    for (int64_t p = 0; p < r.n && p < local && !st && !o->hosts; p++)
        host[p] = master; /* the machine of the first processes; no other has a name */
    if (!st)
        st = wf_from_ranks(c, &r, o);
    if (h.arena.ctx)
        wf_hosts_free(&h);
    wf_free(c->ctx, host);
    say(c, &r);
    return st;
}

/* ---- Open MPI -------------------------------------------------------------------------------- */

weft_status wf_from_mpi(weft_cluster *c, const weft_cluster_opts *o, bool *there)
{
    struct wf_ranks r = {.who = "Open MPI", .port = o->port ? o->port : DEFAULT_PORT};
    struct wf_hosts h = {.n = 0};
    const char *list = o->hosts ? o->hosts : wf_env_get(o->env, "SLURM_JOB_NODELIST");
    const char **host = NULL;
    int64_t local = 1;
    bool any;
    weft_status st = read_ranks(o, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &r, there);

    if (st || !*there)
        return st;
    st = wf_env_int(o->env, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, INT32_MAX, &any, &local);
    if (!st)
        st = new_hosts(c, &r, &host);
    if (!st && local < r.n && !list)
        st = wf_err(WEFT_EINVAL,
                    "Open MPI: %lld of %lld processes run on this machine, and mpirun does not "
                    "tell the names of the others; name all machines in the order of processes",
                    (long long)local, (long long)r.n);
    if (!st && local < r.n)
        st = name_hosts(c, &r, list, local, host, &h);
    for (int64_t p = 0; p < r.n && !st && local >= r.n; p++)
        host[p] = "127.0.0.1";
    if (!st)
        st = wf_from_ranks(c, &r, o);
    if (h.arena.ctx)
        wf_hosts_free(&h);
    wf_free(c->ctx, host);
    say(c, &r);
    return st;
}

/* ---- Slurm ----------------------------------------------------------------------------------- */

/* The first of several variables that is set. */
static const char *first_of(const weft_cluster_opts *o, const char *a, const char *b,
                            const char **name)
{
    *name = wf_env_get(o->env, a) ? a : b;
    return wf_env_get(o->env, *name);
}

/* How many processes each machine has. */
static weft_status slurm_counts(const weft_cluster_opts *o, const struct wf_ranks *r,
                                int64_t n_hosts, int64_t *count)
{
    const char *name;
    const char *text = first_of(o, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    int64_t each = (r->n + n_hosts - 1) / n_hosts, n, sum = 0;
    bool there = false;
    weft_status st = WEFT_OK;

    if (text) {
        st = wf_hosts_counts(text, count, n_hosts, &n);
        if (st)
            return wf_err_wrap(st, "Slurm: %s", name);
        for (int64_t i = 0; i < n; i++)
            sum += count[i];
        if (sum < r->n)
            return wf_err(WEFT_EINVAL, "Slurm: %s=%.60s is less than the %lld processes", name,
                          text, (long long)r->n);
        return WEFT_OK;
    }
    st = wf_env_int(o->env, "SLURM_NTASKS_PER_NODE", 1, INT32_MAX, &there, &each);
    for (int64_t i = 0; i < n_hosts; i++)
        count[i] = each;
    if (!st && each * n_hosts < r->n)
        st =
            wf_err(WEFT_EINVAL, "Slurm: %lld processes on each of %lld machines are less than %lld",
                   (long long)each, (long long)n_hosts, (long long)r->n);
    return st;
}

/* What Slurm says of this process must agree with what was concluded of all. */
static weft_status check_node(const weft_cluster_opts *o, const struct wf_ranks *r,
                              const struct wf_hosts *h)
{
    int64_t node = 0;
    bool there;
    weft_status st = wf_env_int(o->env, "SLURM_NODEID", 0, INT32_MAX, &there, &node);

    if (st || !there)
        return st;
    if (node >= h->n || strcmp(h->name[node], r->host[r->self]) != 0)
        return wf_err(WEFT_EINVAL,
                      "Slurm: process %lld runs on machine %lld, but should be on %s; only the "
                      "distributions block and cyclic are known (srun -m)",
                      (long long)r->self, (long long)node, r->host[r->self]);
    return WEFT_OK;
}

static weft_status slurm_hosts(weft_cluster *c, const weft_cluster_opts *o, struct wf_ranks *r,
                               const char **host, struct wf_hosts *h)
{
    const char *name, *way = wf_env_get(o->env, "SLURM_DISTRIBUTION");
    const char *list = first_of(o, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    int64_t *count;
    weft_status st;

    if (!list)
        return wf_err(WEFT_EINVAL, "Slurm: SLURM_PROCID is set, but SLURM_JOB_NODELIST is not");
    st = wf_hosts_parse(c->ctx, list, h);
    if (st)
        return wf_err_wrap(st, "Slurm: %s", name);
    count = wf_alloc_n(c->ctx, h->n + 1, sizeof *count);
    if (!count)
        return wf_err_nomem(c->ctx, (size_t)h->n * sizeof *count, "cluster");
    st = slurm_counts(o, r, h->n, count);
    if (!st)
        deal_hosts(h, count, way && strncmp(way, "cyclic", 6) == 0, r->n, host);
    wf_free(c->ctx, count);
    return st ? st : check_node(o, r, h);
}

weft_status wf_from_slurm(weft_cluster *c, const weft_cluster_opts *o, bool *there)
{
    struct wf_ranks r = {.who = "Slurm"};
    struct wf_hosts h = {.n = 0};
    const char *name, **host = NULL;
    int64_t job = 0;
    bool any;
    weft_status st;

    *there = false;
    /* a batch script has a number, too, but its processes are those that srun starts */
    if (!first_of(o, "SLURM_STEP_ID", "SLURM_STEP_NODELIST", &name))
        return WEFT_OK;
    first_of(o, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", &name);
    st = read_ranks(o, "SLURM_PROCID", name, &r, there);
    if (st || !*there)
        return st;
    st = wf_env_int(o->env, "SLURM_JOB_ID", 0, INT64_MAX, &any, &job);
    /* two jobs on one machine use different ports, usually */
    r.port = o->port ? o->port : SLURM_PORT + (int)(job % 1000) * 10;
    if (!st)
        st = new_hosts(c, &r, &host);
    if (!st)
        st = slurm_hosts(c, o, &r, host, &h);
    if (!st)
        st = wf_from_ranks(c, &r, o);
    if (h.arena.ctx)
        wf_hosts_free(&h);
    wf_free(c->ctx, host);
    say(c, &r);
    return st;
}
