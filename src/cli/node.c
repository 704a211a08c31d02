/* node.c - weft node: the tasks of a cluster that this process is, started by hand, by a scheduler
 * or by `weft launch`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <weft/cluster.h>

#include "node.h"

extern char **environ;

/* ---- which tasks ----------------------------------------------------------------------------- */

static int name_task(struct node *n)
{
    static const char *const roles[] = {"chief", "ps", "worker", "evaluator"};
    char kind[TASK_NAME];
    int number;

    if (n->role && !check_word("node", "role", n->role, roles, 4))
        return EXIT_USAGE;
    if (!n->task && !n->role)
        return EXIT_DONE; /* as the environment says */
    if (n->task && strchr(n->task, '/'))
        snprintf(n->name, sizeof n->name, "%.60s", n->task);
    else
        snprintf(n->name, sizeof n->name, "%.30s/%.30s", n->role ? n->role : "",
                 n->task ? n->task : "0");
    if (task_parts(n->name, kind, &number) && !check_word("node", "task", kind, roles, 4))
        return EXIT_USAGE;
    if (!task_parts(n->name, kind, &number))
        return fail(EXIT_USAGE, "node: '%s' is not a task: chief/0, ps/1, worker/2, …", n->name);
    if (n->role && strcmp(n->role, kind))
        return fail(EXIT_USAGE, "node: --role %s, but --task %s", n->role, n->name);
    n->task = n->name;
    return EXIT_DONE;
}

/* Evaluators have no links. */
static bool has_links(const struct node *n)
{
    for (int i = 0; i < n->n_mine; i++)
        if (!n->mine[i].evaluator)
            return true;
    return false;
}

/* Plain TCP is neither encrypted nor authenticated. */
static int check_security(const struct node *n)
{
    bool plain = strstr(n->cluster_text, "tcp:") || (n->lend && strstr(n->lend, "tcp:")) ||
                 (n->borrow && strstr(n->borrow, "tcp:"));

    if (!has_links(n) && !n->borrow && !n->explain)
        return EXIT_DONE;
    if (plain && !n->insecure)
        return fail(EXIT_USAGE,
                    "node: the cluster uses plain TCP, which anybody on the network can read and "
                    "change; use tls: addresses, or say --insecure in a network that you trust");
    if (plain && !n->report)
        fprintf(stderr, "weft: warning: INSECURE: links are neither encrypted nor authenticated\n");
    if (strstr(n->cluster_text, "tls:") && !n->keys)
        return fail(EXIT_USAGE, "node: tls needs --keys DIR, with authority.pem and the files of "
                                "this task; `weft cert` makes them");
    return EXIT_DONE;
}

static int list_mine(struct node *n, const weft_cluster *c)
{
    for (int i = 0; i < weft_cluster_tasks(c); i++) {
        weft_task t = {.size = sizeof t};

        if (weft_cluster_task(c, i, &t) || !t.here)
            continue;
        if (n->n_mine == MAX_MINE)
            return fail(EXIT_FAILED, "node: more than %d tasks in one process", MAX_MINE);
        n->mine[n->n_mine] = (struct mine){.n = n,
                                           .worker = t.role == WEFT_TASK_WORKER,
                                           .evaluator = t.role == WEFT_TASK_EVALUATOR,
                                           .chief = t.role == WEFT_TASK_CHIEF,
                                           .number = t.index};
        snprintf(n->mine[n->n_mine++].name, sizeof n->mine[0].name, "%.60s", t.name);
    }
    if (n->n_mine == 0)
        return fail(EXIT_USAGE, "node: which task is this? Say --task ps/0, or --role ps --task 0");
    return EXIT_DONE;
}

/* Lists for other systems may have workers alone. */
static int check_servers(const weft_cluster *c)
{
    for (int i = 0; i < weft_cluster_tasks(c); i++) {
        weft_task t = {.size = sizeof t};

        if (!weft_cluster_task(c, i, &t) && t.role == WEFT_TASK_PS)
            return EXIT_DONE;
    }
    return fail(EXIT_USAGE, "node: the cluster has no ps: parameter servers hold what is trained; "
                            "add one task of this type at least");
}

static int no_cluster(void)
{
    bool batch = getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID");

    return fail(EXIT_USAGE,
                "node: no cluster: neither --cluster, nor TF_CONFIG, nor the variables of "
                "torchrun, mpirun or Slurm are there%s",
                batch ? "; this is a batch script: start it by srun" : "");
}

static int find_cluster(struct node *n, weft_ctx *boot)
{
    bool text = n->cluster && strchr(n->cluster, '=') != NULL;
    weft_status st =
        weft_cluster_find(boot,
                          WEFT_OPTS(weft_cluster_opts, .tasks = text ? n->cluster : NULL,
                                    .file = text ? NULL : n->cluster, .task = n->task,
                                    .env = (const char *const *)environ, .ps = n->ps_count,
                                    .evaluators = n->evaluators, .own_chief = n->own_chief,
                                    .hosts = n->hosts, .transport = n->insecure ? "tcp" : "tls",
                                    .port = n->port, .extra = n->extra, .address = n->address),
                          &n->cluster_found);
    int rc;

    if (st == WEFT_ENOENT && !n->cluster)
        return no_cluster();
    if (st)
        return fail_job(st);
    n->cluster_text = weft_cluster_text(n->cluster_found);
    if (!n->report)
        fprintf(stderr, "cluster: %s\n", weft_cluster_source(n->cluster_found));
    rc = list_mine(n, n->cluster_found);
    if (!rc && has_links(n))
        rc = check_servers(n->cluster_found);
    return rc ? rc : check_security(n);
}

/* ---- options --------------------------------------------------------------------------------- */

static void set_options(struct mine *m)
{
    const struct node *n = m->n;
    const char *names[3] = {"authority", m->name, m->name}, *ends[3] = {".pem", ".pem", ".key"};

    m->ps = (weft_ps_opts){.size = sizeof m->ps,
                           .cluster = n->cluster_text,
                           .task = m->name,
                           .replicas = n->replicas,
                           .timeout_s = n->timeout_s,
                           .balance_s = n->balance_s,
                           .stall_timeout_s = n->stall_s > 0 ? n->stall_s : -1};
    for (int i = 0; n->keys && i < 3; i++) {
        size_t at = (size_t)snprintf(m->pem[i], sizeof m->pem[i], "%s/", n->keys);

        snprintf(m->pem[i] + at, sizeof m->pem[i] - at, "%s%s", names[i], ends[i]);
        for (char *c = m->pem[i] + at; *c; c++)
            *c = *c == '/' ? '-' : *c;
    }
    if (!n->keys)
        return;
    m->ps.authority = m->pem[0];
    m->ps.certificate = m->pem[1];
    m->ps.key = m->pem[2];
}

void node_lending(struct mine *m, const char *address)
{
    m->lend = (weft_lend_opts){.size = sizeof m->lend,
                               .address = address,
                               .task = m->name,
                               .timeout_s = 10 * m->n->timeout_s,
                               .authority = m->ps.authority,
                               .certificate = m->ps.certificate,
                               .key = m->ps.key};
}

/* What the job says about its cluster. */
static int read_job(struct node *n, weft_ctx *boot)
{
    weft_job *job = NULL;
    double replicas = 0, timeout = 3, balance = 0, stall = 60;
    weft_status st = WEFT_OK;

    if (n->j.path) {
        st = n->j.text ? weft_job_parse(boot, n->j.path, n->j.text, (int64_t)strlen(n->j.text),
                                        n->j.sets.n, n->j.sets.item, &job)
                       : weft_job_load(boot, n->j.path, n->j.sets.n, n->j.sets.item, &job);
        if (!st)
            st = weft_job_number(job, "cluster.replicas", &replicas);
        if (!st)
            st = weft_job_number(job, "cluster.timeout", &timeout);
        if (!st)
            st = weft_job_number(job, "cluster.balance", &balance);
        if (!st)
            st = weft_job_number(job, "cluster.stall_timeout", &stall);
        if (!st)
            read_store(job, n->store, n->store_text);
        weft_job_free(job);
    }
    n->replicas = (int)replicas;
    n->timeout_s = timeout;
    n->balance_s = balance;
    n->stall_s = stall;
    return st ? fail_job(st) : EXIT_DONE;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void report_counts(struct mine *m, const weft_dist_counts *c)
{
    m->stat.sent = c->sent;
    m->stat.received = c->received;
    m->stat.messages = c->messages;
    m->stat.shards = c->shards;
    m->stat.waited_s = c->waited_s;
    m->stat.busy_s = c->busy_s;
    m->stat.send_messages = c->send_queue_messages;
    m->stat.send_bytes = c->send_queue_bytes;
    m->stat.receive_messages = c->receive_queue_messages;
    m->stat.receive_bytes = c->receive_queue_bytes;
    m->stat.staleness = c->staleness;
    m->stat.staleness_most = c->staleness_most;
    report_stat(m->n->report_fd, &m->stat);
}

static void on_report(void *arg, const weft_dist_counts *c)
{
    weft_lend_tend(((struct mine *)arg)->lender);
    report_counts(arg, c);
}

static void on_event(void *arg, const char *task, const char *what)
{
    const struct mine *m = arg;

    report_event(m->n->report_fd, task, what);
    if (m->n->report_fd < 0)
        fprintf(stderr, "%s %s\n", task, what);
}

static int64_t newest_checkpoint(const struct mine *m)
{
    const char *dir = weft_job_text(m->n->j.job, "checkpoint.dir");
    weft_ckpt_list *list = NULL;
    int64_t step = -1;

    if (dir && !weft_ckpt_list_new(m->n->j.ctx, dir, NULL, &list) && list->n)
        step = list->entry[list->n - 1].step;
    weft_ckpt_list_free(m->n->j.ctx, list);
    return step;
}

static bool on_add(void *arg, const char *role, int k)
{
    return report_add(((const struct mine *)arg)->n->report_fd, role, k);
}

/* `weft ctl` wants something. */
static void on_asked(void *arg, weft_ps_asked what)
{
    struct job *j = &((struct mine *)arg)->n->j;

    if (what == WEFT_PS_CHECKPOINT) {
        checkpoint_training();
    } else if (what == WEFT_PS_DRAINED) {
        j->drained = true;
    } else if (!j->asked_to_stop) {
        j->asked_to_stop = true;
        interrupt_training();
    }
}

/* Checkpoints that this worker has written since the last report. */
static void report_checkpoints(struct mine *m, const weft_trainer *t)
{
    char what[96];
    weft_times run;
    int64_t n;

    weft_trainer_times(t, NULL, &run);
    n = run.checkpoints - m->checkpoints;
    m->checkpoints = run.checkpoints;
    if (n <= 0)
        return;
    snprintf(what, sizeof what, "wrote %lld checkpoint%s, the last at step %lld", (long long)n,
             n == 1 ? "" : "s", (long long)newest_checkpoint(m));
    report_note(m->n->report_fd, m->name, what);
}

static void on_watch(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct mine *m = arg;
    weft_dist_counts c = {.size = sizeof c};

    m->stat.step = weft_trainer_step(t);
    m->stat.epoch = epoch + 1;
    m->stat.loss = logs->n ? logs->value[0] : NAN;
    if (!weft_dist_count(weft_job_dist(m->n->j.run), &c))
        report_counts(m, &c);
    report_checkpoints(m, t);
}

/* ---- the end of the launcher ----------------------------------------------------------------- */

/* The launcher holds the other end of the pipe: when it is gone, no one wants this process. */
static void *watch_lifeline(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char c;
    ssize_t n;

    do
        n = read(fd, &c, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    kill(getpid(), SIGKILL);
    return NULL;
}

static int open_lines(struct node *n)
{
    pthread_t thread;

    if (n->report) {
        n->report_fd = atoi(n->report);
        fcntl(n->report_fd, F_SETFD, FD_CLOEXEC);
    }
    if (!n->lifeline)
        return EXIT_DONE;
    if (pthread_create(&thread, NULL, watch_lifeline, (void *)(intptr_t)atoi(n->lifeline)))
        return fail(EXIT_FAILED, "node: no thread can be started");
    pthread_detach(thread);
    return EXIT_DONE;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop;

static void on_stop(int sig)
{
    (void)sig;
    asked_to_stop = 1;
}

static bool is_stopped(void *arg)
{
    (void)arg;
    return asked_to_stop;
}

/* A chief or a server lends the data files of the job to workers that lack them. */
static weft_status open_lending(struct mine *m, weft_ctx *ctx)
{
    const struct node *n = m->n;
    weft_status st;
    int first = 0;

    while (n->mine[first].worker || n->mine[first].evaluator)
        first++;
    if (!n->lend || m != &n->mine[first]) /* one of a process */
        return WEFT_OK;
    node_lending(m, n->lend);
    st = weft_job_load(ctx, n->j.path, n->j.sets.n, n->j.sets.item, &m->lent);
    return st ? st : weft_lend_open(ctx, m->lent, &m->lend, NULL, 0, &m->lender);
}

/* Several may run in one process. What happens to the job is an event; this is what went wrong. */
static void on_log(void *arg, int level, const char *line)
{
    const struct mine *m = arg;

    if (level >= WEFT_LOG_WARN)
        fprintf(stderr, "weft: warning: %s%s%s\n", m->n->report ? "" : m->name,
                m->n->report ? "" : ": ", line);
}

/* A chief or a server. */
static void *serve(void *arg)
{
    struct mine *m = arg;
    weft_ctx *ctx = NULL;
    weft_status st;

    m->ps.report = on_report;
    m->ps.event = on_event;
    m->ps.add = m->n->report_fd >= 0 ? on_add : NULL;
    m->ps.stopped = is_stopped;
    m->ps.call_arg = m;
    if (m->chief)
        set_store(&m->ps, m->n->store, m->n->insecure);
    st = weft_ctx_new(
        WEFT_OPTS(weft_ctx_opts, .threads = 1, .spin_us = WEFT_ZERO, .log = on_log, .log_arg = m),
        &ctx);
    if (!st)
        st = open_lending(m, ctx);
    if (!st)
        st = weft_ps_serve(ctx, &m->ps);
    m->rc = st ? fail_status(st, m->name) : EXIT_DONE;
    weft_lend_close(m->lender);
    weft_job_free(m->lent);
    weft_ctx_free(ctx);
    return NULL;
}

/* Failures of a worker that others do not share: the job continues without it. */
static bool is_lost(weft_status st)
{
    return st == WEFT_EPEER || st == WEFT_ESTATE || st == WEFT_ETIME;
}

static void work(struct mine *m)
{
    struct node *n = m->n;
    const weft_job_open_opts with = {.size = sizeof with, .ps = &m->ps};

    m->ps.asked = on_asked;
    m->ps.call_arg = m;
    catch_signals();
    if (n->report)
        signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the launcher, which says what to do */
    n->j.with = &with;
    if (n->borrow) {
        node_lending(m, n->borrow);
        n->j.borrow = &m->lend;
    }
    n->j.hush = m->number != 0;
    n->j.watch = on_watch;
    n->j.watch_arg = m;
    m->rc = run_training(&n->j, "node", n->log ? n->log : "lines");
    if (n->j.run && !n->j.fitted)
        report_checkpoints(m, weft_job_trainer(n->j.run));
    if (n->j.fitted && is_lost(n->j.fitted) && !n->j.drained)
        m->rc = EXIT_LOST;
    if (m->rc == EXIT_STOPPED && n->j.asked_to_stop)
        m->rc = EXIT_DONE;
    if (m->rc == EXIT_DONE && n->j.run && (n->j.asked_to_stop || weft_job_decides(n->j.run)))
        report_wrote(n->report_fd);
    close_job(&n->j, m->rc);
}

/* The task that has this process' first thread and its job. NULL: none; two: an exit code. */
static int find_foremost(struct node *n, struct mine **out)
{
    *out = NULL;
    for (int i = 0; i < n->n_mine; i++) {
        struct mine *m = &n->mine[i];

        if (!m->worker && !m->evaluator)
            continue;
        if (*out)
            return fail(EXIT_FAILED,
                        "node: a process can be one worker or evaluator, not %s and %s",
                        (*out)->name, m->name);
        *out = m;
    }
    return EXIT_DONE;
}

/* Chiefs and servers in threads, a worker or an evaluator in this one. Returns the first exit code
 * that is not 0. */
static int run_mine(struct node *n)
{
    struct mine *first = NULL;
    int rc = find_foremost(n, &first);

    if (rc)
        return rc;

    for (int i = 0; i < n->n_mine; i++)
        set_options(&n->mine[i]);
    signal(SIGTERM, on_stop);
    signal(SIGINT, n->report ? SIG_IGN : on_stop);
    for (int i = 0; i < n->n_mine; i++) {
        struct mine *m = &n->mine[i];

        if (m == first)
            continue;
        m->started = pthread_create(&m->thread, NULL, serve, m) == 0;
        if (!m->started)
            rc = fail(EXIT_FAILED, "node: no thread can be started");
    }
    if (first && !rc && first->worker)
        work(first);
    else if (first && !rc)
        node_evaluate(first);
    if (rc)
        asked_to_stop = 1;
    for (int i = 0; i < n->n_mine; i++)
        if (n->mine[i].started)
            pthread_join(n->mine[i].thread, NULL);
    for (int i = 0; i < n->n_mine && !rc; i++)
        rc = n->mine[i].rc;
    return rc;
}

/* What the job does on these tasks. */
static int explain_parts(const struct node *n, weft_ctx *boot)
{
    struct explained e = {.workers = weft_cluster_count(n->cluster_found, WEFT_TASK_WORKER),
                          .servers = weft_cluster_count(n->cluster_found, WEFT_TASK_PS),
                          .replicas = n->replicas};
    const char *sets[LIST_MAX + 1];
    weft_job *job = NULL;
    double shards = 0;
    weft_status st;
    int rc;

    if (!n->j.path || !e.servers)
        return EXIT_DONE;
    memcpy(sets, n->j.sets.item, (size_t)n->j.sets.n * sizeof *sets);
    sets[n->j.sets.n] = "train.strategy=local"; /* no servers are started for it */
    st = weft_job_load(boot, n->j.path, n->j.sets.n + 1, sets, &job);
    if (!st && weft_job_given(job, "train.shards"))
        st = weft_job_number(job, "train.shards", &shards);
    e.shards = (int64_t)shards;
    rc = st ? fail_job(st) : explain_job(job, &e);
    weft_job_free(job);
    return rc;
}

static int run_node(struct node *n)
{
    weft_ctx *boot = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &boot);
    int rc = st ? fail_status(st, "node") : name_task(n);

    if (!rc)
        rc = open_lines(n);
    if (!rc && n->join)
        rc = node_join(n, boot);
    if (!rc)
        rc = find_cluster(n, boot);
    for (int i = 0; i < n->n_mine && !rc; i++)
        if (!n->j.path && (n->mine[i].worker || n->mine[i].evaluator || n->lend))
            rc = fail(EXIT_USAGE, "node: %s needs a job file", n->mine[i].name);
    if (!rc)
        rc = read_job(n, boot);
    if (!rc && n->explain) {
        char *text = NULL;

        st = weft_cluster_explain(n->cluster_found, &text);
        if (!st)
            fputs(text, stdout);
        weft_text_free(boot, text);
        rc = st ? fail_status(st, "node") : explain_parts(n, boot);
    } else if (!rc) {
        rc = run_mine(n);
    }
    node_leave(n);
    weft_cluster_free(n->cluster_found);
    weft_ctx_free(boot);
    return rc;
}

static int node(int argc, char **argv)
{
    static struct node n = {.report_fd = -1, .wait_minutes = 60};
    static const char *consistency;
    static char set[80];
    const struct flag flags[] = {
        {"role", FLAG_TEXT, "chief|ps|worker|evaluator", "what this process does", &n.role},
        {"task", FLAG_TEXT, "NAME", "which task it is: ps/0; with --role, the number is enough",
         &n.task},
        {"cluster", FLAG_TEXT, "TASKS|FILE",
         "all tasks: \"chief=ADDRESS;ps=ADDRESS,ADDRESS;worker=2\", or a YAML file with them",
         &n.cluster},
        {"ps", FLAG_INT, "N", "how many of the processes of mpirun, srun or torchrun are servers",
         &n.ps_count},
        {"evaluators", FLAG_INT, "N", "how many of them are evaluators: the last ones",
         &n.evaluators},
        {"own-chief", FLAG_BOOL, NULL, "the first of them is the chief, and nothing else",
         &n.own_chief},
        {"hosts", FLAG_TEXT, "LIST", "their machines, in order, where mpirun does not tell",
         &n.hosts},
        {"port", FLAG_INT, "N", "the chief's port there; servers have the next ones", &n.port},
        {"keys", FLAG_TEXT, "DIR", "for tls: authority.pem, and ps-0.pem and ps-0.key for ps/0",
         &n.keys},
        {"join", FLAG_TEXT, "HOST:PORT",
         "join a running job, at the door that `weft launch --token-file` opened", &n.join},
        {"token-file", FLAG_TEXT, "FILE", "the token to join with", &n.token},
        {"lend", FLAG_TEXT, "ADDRESS",
         "of a chief or server: lend the job's data files at this address to workers that lack "
         "them",
         &n.lend},
        {"borrow", FLAG_TEXT, "ADDRESS,…",
         "of a worker: read data files that are missing here from these tasks", &n.borrow},
        {"extra", FLAG_BOOL, NULL,
         "--task is a server or worker beyond the list: it is added to the running job", &n.extra},
        {"address", FLAG_TEXT, "ADDRESS", "of a server that is added: where the others reach it",
         &n.address},
        {"store", FLAG_TEXT, "DIR|etcd://…",
         "of a chief: where it writes who belongs to the job, so that it can be started again, or "
         "another one takes over: a directory, or etcd://HOST:PORT,HOST:PORT/PREFIX; same as --set "
         "cluster.store",
         &n.store[0]},
        STORE_FLAGS(&n.store[1]),
        {"consistency", FLAG_TEXT, "sync|async|stale(S)",
         "the same for all tasks; same as --set cluster.consistency=…", &consistency},
        {"insecure", FLAG_BOOL, NULL, "allow plain TCP, without encryption and authentication",
         &n.insecure},
        {"explain", FLAG_BOOL, NULL,
         "print all tasks, and what the job does on them; start nothing", &n.explain},
        {"log", FLAG_TEXT, "auto|bar|lines|json|none", "of a worker, as in `weft train`", &n.log},
        {"part", FLAG_TEXT, "validation|test",
         "of an evaluator: the data to measure with; default: the first of them that the job has",
         &n.part},
        {"wait-minutes", FLAG_INT, "N",
         "of an evaluator: it fails when no checkpoint comes for so long; default 60, 0: it waits",
         &n.wait_minutes},
        JOB_FLAGS(n.j),
        {"renew-minutes", FLAG_INT, "N",
         "how often a process that joined asks for a new certificate; default 5, or what the job "
         "says",
         &n.minutes},
        {"report", FLAG_TEXT, "FD", "used by `weft launch`", &n.report},
        {"lifeline", FLAG_TEXT, "FD", "used by `weft launch`", &n.lifeline},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int k = parse_flags(&command_node, flags, argc, argv);

    if (k < 0)
        return k == -2 ? EXIT_DONE : EXIT_USAGE;
    if (k > 1)
        return fail(EXIT_USAGE, "node: one job file, not %d arguments", k);
    if (!n.join != !n.token)
        return fail(EXIT_USAGE, "node: --join and --token-file belong together");
    n.j.path = k ? argv[0] : NULL;
    if (consistency && n.j.sets.n >= LIST_MAX)
        return fail(EXIT_USAGE, "node: too many --set");
    if (consistency) {
        snprintf(set, sizeof set, "cluster.consistency=%.40s", consistency);
        n.j.sets.item[n.j.sets.n++] = set;
    }
    return run_node(&n);
}

const struct command command_node = {
    .name = "node",
    .args = "[JOB.yaml]",
    .summary = "run one task of a cluster: a chief, a parameter server or a worker",
    .text =
        "  weft node --task ps/0 --cluster cluster.yaml --keys keys job.yaml\n"
        "  mpirun -n 6 weft node --ps 2 --keys keys job.yaml\n"
        "  srun weft node --ps 2 --keys keys job.yaml\n"
        "  weft node --join 10.0.0.1:7000 --token-file token\n"
        "\n"
        "Every task of the cluster is started with the same job file and the same list of tasks, "
        "in any\norder; `weft launch` does this on one machine. Without --cluster the list is that "
        "of TF_CONFIG,\ntorchrun, Open MPI or Slurm, and is printed. The job begins when all tasks "
        "are there; each ends\nwith exit code 0 when the job has ended. One worker (the first that "
        "lives) prints progress and writes\ncheckpoints, logs and the model.\n",
    .run = node,
};
