/* launch_plan.c - who runs where: tasks, cores, addresses; and the same as text. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
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

/* Tasks listen there, and so does the door. */
static int check_host(const struct launch *l)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int e = getaddrinfo(l->host, NULL, &hints, &found), fd, rc = EXIT_DONE;

    if (e)
        return fail(EXIT_USAGE, "launch: --host %s: %s", l->host, gai_strerror(e));
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen))
        rc = fail(EXIT_USAGE, "launch: --host %s is not an address of this machine: %s", l->host,
                  strerror(errno));
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return rc;
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
    int fds[MAX_LAUNCHED], n_fds = 0, rc = network ? check_host(l) : EXIT_DONE;
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
        int n = (int)(l->shards / l->workers + (t->number < l->shards % l->workers));

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
        else if (n == 0)
            printf("has no shard: there are fewer shards than workers\n");
        else
            printf("computes %d of %lld shards at first%s\n", n, (long long)l->shards,
                   t->state == TASK_REMOTE ? ", on another machine"
                   : t->number             ? ""
                               : "; prints progress, and writes checkpoints, logs and the model");
    }
}

static void explain_waits(const struct launch *l)
{
    bool stale = is_stale(l);

    printf("\nwho waits for what:\n"
           "  a worker   %s\n"
           "  a server   %s%s\n"
           "  the chief  for nobody: no step waits for it\n",
           stale
               ? "for parameters as they are, from all servers (stale(S): until no worker is more "
                 "than S shards behind)"
               : "for the next version of the parameters, from all servers",
           stale ? "for nobody: it applies each shard as it comes"
                 : "for the contributions of all shards, from the workers",
           l->servers > 1 && l->replicas != 1 ? "; then for its backup" : "");
    printf("a task that is silent for %g s counts as dead; up to %lld are started again\n",
           l->timeout_s, (long long)l->max_restarts);
}

void print_plan(const struct launch *l)
{
    int copies = l->replicas ? l->replicas : l->servers > 1 ? 2 : 1;

    fprintf(stderr,
            "plan: %d server%s hold%s the parameters in %d cop%s, %d worker%s compute%s %lld "
            "shard%s of each step, over %s; --explain prints all of it\n",
            l->servers, plural(l->servers), l->servers == 1 ? "s" : "", copies,
            copies == 1 ? "y" : "ies", l->workers, plural(l->workers), l->workers == 1 ? "s" : "",
            (long long)l->shards, plural(l->shards), wire(l));
}

int explain_plan(struct launch *l)
{
    int rc;

    explain_tasks(l);
    rc = explain_job(l->job, &(struct explained){l->workers, l->servers, l->replicas, l->shards});
    if (!rc)
        explain_waits(l);
    return rc;
}
