/* launch_plan.c - who runs where: tasks, cores, addresses; and the same as text. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- tasks and cores ------------------------------------------------------------------------- */

static int count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

struct launched *add_task(struct launch *l, const char *role, int number)
{
    struct launched *t = &l->task[l->n_tasks++];

    *t = (struct launched){.number = number, .threads = 1};
    snprintf(t->name, sizeof t->name, "%s/%d", role, number);
    snprintf(t->role, sizeof t->role, "%s", role);
    t->out.fd = t->err.fd = t->report.fd = -1;
    return t;
}

/* Chiefs hardly compute. Servers get a core each, workers what is left; where there are fewer cores
 * than tasks, nobody spins. */
static void divide_cores(struct launch *l)
{
    int here = l->workers - l->remote, busy = l->servers + here + l->evaluators, left;

    l->n_cores = count_cores();
    l->crowded = busy > l->n_cores;
    left = l->crowded ? l->n_cores : l->n_cores - l->servers - l->evaluators;
    for (int i = 0; i < l->n_tasks; i++) {
        struct launched *t = &l->task[i];

        if (strcmp(t->role, "worker") || t->state == TASK_REMOTE)
            continue;
        t->threads = left / here + (t->number < left % here);
        if (t->threads < 1)
            t->threads = 1;
        if (l->j.threads)
            t->threads = l->j.threads;
    }
}

int make_plan(struct launch *l)
{
    int n = l->servers + l->workers + l->evaluators + l->standby + 1;

    if (n > MAX_LAUNCHED)
        return fail(EXIT_USAGE, "launch: %d tasks; at most %d on one machine", n, MAX_LAUNCHED);
    if (l->replicas > l->servers)
        return fail(EXIT_USAGE, "launch: %d replicas of each piece need %d servers, there %s %d",
                    l->replicas, l->replicas, l->servers == 1 ? "is" : "are", l->servers);
    for (int i = 0; i <= l->standby; i++)
        add_task(l, "chief", i);
    for (int i = 0; i < l->servers; i++)
        add_task(l, "ps", i);
    for (int i = 0; i < l->workers; i++) {
        add_task(l, "worker", i);
        if (i >= l->workers - l->remote)
            l->task[l->n_tasks - 1].state = TASK_REMOTE;
    }
    for (int i = 0; i < l->evaluators; i++)
        add_task(l, "evaluator", i);
    l->next_server = l->servers;
    l->next_worker = l->workers;
    divide_cores(l);
    return EXIT_DONE;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* A port that is free now. Several are held open until all are chosen, so that they differ. */
int free_port(int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t n = sizeof a;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&a, n) ||
        getsockname(*fd, (struct sockaddr *)&a, &n))
        return 0;
    return ntohs(a.sin_port);
}

const char *wire(const struct launch *l)
{
    if (strcmp(l->transport, "tcp"))
        return l->transport;
    return l->insecure ? "tcp" : "tls";
}

int make_addresses(struct launch *l)
{
    bool network = !strcmp(wire(l), "tcp") || !strcmp(wire(l), "tls");
    int fds[MAX_LAUNCHED], n_fds = 0, rc = EXIT_DONE;
    const char *role = "";
    size_t n = 0;

    for (int i = 0; i < l->n_tasks && !rc; i++) {
        const struct launched *t = &l->task[i];
        int port = 0;

        if (!strcmp(t->role, "worker"))
            break;
        n += (size_t)snprintf(l->cluster + n, sizeof l->cluster - n, "%s%s%s",
                              !strcmp(role, t->role) ? ","
                              : n                    ? ";"
                                                     : "",
                              strcmp(role, t->role) ? t->role : "",
                              strcmp(role, t->role) ? "=" : "");
        role = t->role;
        if (network) {
            port = free_port(&fds[n_fds]);
            n_fds += fds[n_fds] >= 0;
            if (!port)
                rc = fail(EXIT_FAILED, "launch: no free port on this machine");
            n += (size_t)snprintf(l->cluster + n, sizeof l->cluster - n, "%s:%s:%d", wire(l),
                                  l->host, port);
        } else {
            n += (size_t)snprintf(l->cluster + n, sizeof l->cluster - n, "%s:%s/%s%d", wire(l),
                                  l->folder, t->role, t->number);
        }
    }
    snprintf(l->cluster + n, sizeof l->cluster - n, ";worker=%d", l->workers);
    if (l->evaluators)
        snprintf(l->cluster + strlen(l->cluster), sizeof l->cluster - strlen(l->cluster),
                 ";evaluator=%d", l->evaluators);
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    return rc;
}

/* ---- the plan as text ------------------------------------------------------------------------ */

static void explain_tasks(const struct launch *l)
{
    printf("%d chief%s, %d server%s, %d worker%s on %d core%s, over %s%s\n", 1 + l->standby,
           plural(1 + l->standby), l->servers, plural(l->servers), l->workers, plural(l->workers),
           l->n_cores, plural(l->n_cores), wire(l),
           !strcmp(wire(l), "tcp") ? " (INSECURE: neither encrypted nor authenticated)" : "");
    if (l->crowded)
        printf("more tasks than cores: threads sleep instead of spinning\n");
    printf("\n%-12s %7s  %s\n", "task", "threads", "does");
    for (int i = 0; i < l->n_tasks; i++) {
        const struct launched *t = &l->task[i];
        int first = (int)(l->shards * t->number / l->workers);
        int end = (int)(l->shards * (t->number + 1) / l->workers);

        if (t->state == TASK_REMOTE)
            printf("%-12s %7s  ", t->name, "");
        else
            printf("%-12s %7d  ", t->name, t->threads);
        if (!strcmp(t->role, "chief"))
            printf("%s\n", t->number ? "waits, and takes over when the chief dies"
                                     : "decides who belongs to the job and who holds what");
        else if (!strcmp(t->role, "evaluator"))
            printf("measures each checkpoint\n");
        else if (!strcmp(t->role, "ps"))
            printf("holds parameters, adds gradients, updates\n");
        else if (first == end)
            printf("has no shard: there are fewer shards than workers\n");
        else
            printf("computes %d of %lld shards at first%s\n", end - first, (long long)l->shards,
                   t->state == TASK_REMOTE ? ", on another machine"
                   : t->number             ? ""
                               : "; prints progress, and writes checkpoints, logs and the model");
    }
}

/* The parameters of the model, and how they lie on the servers. */
static int explain_bytes(struct launch *l)
{
    weft_job_run *run = NULL;
    weft_ctx *ctx = NULL;
    weft_trainer *t;
    double total = 0;
    int copies = l->replicas ? l->replicas : l->servers > 1 ? 2 : 1;
    weft_status st = weft_job_context(l->job, NULL, NULL, &ctx);

    if (!st)
        st = weft_job_open_with(l->job, ctx, NULL, &run);
    t = st ? NULL : weft_job_trainer(run);
    for (int i = 0; t && i < weft_trainer_n_weights(t) && !st; i++) {
        weft_tensor w;

        st = weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w);
        if (!st)
            total += (double)weft_tensor_bytes(&w);
    }
    weft_job_close(run);
    weft_ctx_free(ctx);
    if (st)
        return fail_job(st);
    printf("\nparameters: %.0f bytes in %d cop%s, about %.0f bytes on each server, and the "
           "optimizer's\nstate with them\n",
           total, copies, copies == 1 ? "y" : "ies", total * copies / l->servers);
    return EXIT_DONE;
}

static void explain_waits(const struct launch *l)
{
    printf("\na step of %lld sample%s is %lld shard%s; who waits for what:\n"
           "  a worker   for the next version of the parameters, from all servers\n"
           "  a server   for the contributions of all shards, from the workers%s\n"
           "  the chief  for nobody: no step waits for it\n",
           (long long)l->batch, plural(l->batch), (long long)l->shards, plural(l->shards),
           l->servers > 1 && l->replicas != 1 ? "; then for its backup" : "");
    printf("a task that is silent for %g s counts as dead; up to %lld are started again\n",
           l->timeout_s, (long long)l->max_restarts);
}

int explain_plan(struct launch *l)
{
    int rc;

    explain_tasks(l);
    rc = explain_bytes(l);
    if (!rc)
        explain_waits(l);
    return rc;
}
