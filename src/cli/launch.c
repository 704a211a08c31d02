/* launch.c - weft launch: the command and its flags. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

enum { TOKEN_MINUTES = 60 };

/* ---- the job --------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int add_set(struct launch *l, const char *fmt, ...)
{
    va_list args;

    if (l->j.sets.n >= LIST_MAX || l->n_sets >= (int)(sizeof l->set / sizeof *l->set))
        return fail(EXIT_USAGE, "launch: too many --set");
    va_start(args, fmt);
    vsnprintf(l->set[l->n_sets], sizeof l->set[0], fmt, args);
    va_end(args);
    l->j.sets.item[l->j.sets.n++] = l->set[l->n_sets++];
    return EXIT_DONE;
}

static int load(struct launch *l)
{
    weft_status st;

    weft_job_free(l->job);
    l->job = NULL;
    st = weft_job_load(l->boot, l->j.path, l->j.sets.n, l->j.sets.item, &l->job);
    return st ? fail_job(st) : EXIT_DONE;
}

static int number(const struct launch *l, const char *key)
{
    double v = 0;

    return weft_job_number(l->job, key, &v) ? 0 : (int)v;
}

/* The number of shards belongs to a run: one that resumes keeps it, whatever the number of
 * workers. */
static int keep_shards(struct launch *l)
{
    const char *dir = weft_job_text(l->job, "checkpoint.dir");
    weft_run *run = NULL;
    int rc = EXIT_DONE;

    if (!dir || weft_job_given(l->job, "train.shards") || weft_run_read(l->boot, dir, &run))
        return EXIT_DONE;
    for (int i = 0; i < run->n_settings && !rc; i++)
        if (!strcmp(run->key[i], "train.shards"))
            rc = add_set(l, "train.shards=%.20s", run->value[i]);
    weft_run_free(run);
    return rc;
}

static const char *const transports[] = {"shm", "uds", "tls", "tcp"};

/* Not the job's own text: the job is loaded again. */
static const char *transport_of(const weft_job *job)
{
    const char *word = weft_job_text(job, "cluster.transport");
    int i = 3;

    while (i > 0 && strcmp(word, transports[i]))
        i--;
    return transports[i];
}

/* Flags over the job's keys; tasks get the same settings. */
static int read_job(struct launch *l)
{
    weft_status st = weft_ctx_new(
        WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = door_log, .log_arg = l), &l->boot);
    int rc = st ? fail_status(st, "launch") : EXIT_DONE;

    if (!rc)
        rc = add_set(l, "train.strategy=ps");
    if (!rc && l->servers >= 0)
        rc = add_set(l, "cluster.servers=%d", l->servers);
    if (!rc && l->workers >= 0)
        rc = add_set(l, "cluster.workers=%d", l->workers);
    if (!rc && l->evaluators >= 0)
        rc = add_set(l, "cluster.evaluators=%d", l->evaluators);
    if (!rc && l->replicas >= 0)
        rc = add_set(l, "cluster.replicas=%d", l->replicas);
    if (!rc && l->standby >= 0)
        rc = add_set(l, "cluster.standby=%d", l->standby);
    if (!rc && l->consistency)
        rc = add_set(l, "cluster.consistency=%.40s", l->consistency);
    if (!rc)
        rc = load(l);
    if (!rc)
        rc = keep_shards(l);
    if (!rc && !l->explain && l->j.fresh && move_old_run(l->job))
        rc = EXIT_FAILED;
    if (rc)
        return rc;
    l->servers = number(l, "cluster.servers");
    l->workers = number(l, "cluster.workers");
    l->evaluators = number(l, "cluster.evaluators");
    if (l->evaluators && !weft_job_text(l->job, "checkpoint.dir"))
        return fail(EXIT_INPUT, "launch: evaluators follow checkpoints, and the job writes none: "
                                "set checkpoint.dir");
    l->replicas = number(l, "cluster.replicas");
    l->standby = number(l, "cluster.standby");
    if (l->token && !l->transport)
        l->transport = "tls";
    if (l->remote >= l->workers && l->remote)
        return fail(EXIT_USAGE, "launch: --remote %d of %d workers: worker/0 is on this machine",
                    l->remote, l->workers);
    if (!l->transport)
        l->transport = transport_of(l->job);
    read_store(l->job, l->store_said, l->store_text);
    if (l->insecure && strcmp(l->transport, "tcp") && !l->store_said[0])
        return fail(EXIT_USAGE,
                    "launch: --insecure is for --transport tcp, and for --store etcd://… "
                    "on another machine");
    if (l->host && strcmp(l->transport, "tls") && strcmp(l->transport, "tcp"))
        return fail(EXIT_USAGE,
                    "launch: --host is for --transport tls or --token-file: %s is for this "
                    "machine alone",
                    l->transport);
    if (!l->host)
        l->host = "127.0.0.1";
    weft_job_number(l->job, "cluster.timeout", &l->timeout_s);
    l->max_restarts = number(l, "cluster.restarts");
    l->epochs = number(l, "train.epochs");
    return EXIT_DONE;
}

/* Where there are more tasks than cores, idle threads must not spin. */
static int settle(struct launch *l)
{
    int rc = make_plan(l);

    if (!rc && l->crowded && !weft_job_given(l->job, "resources.spin_us"))
        rc = add_set(l, "resources.spin_us=0");
    if (!rc)
        rc = load(l);
    if (!rc)
        l->shards = number(l, "train.shards");
    if (!rc && l->shards > 0)
        l->shard_samples = (double)number(l, "data.batch") / (double)l->shards;
    return rc;
}

/* ---- keys, files ----------------------------------------------------------------------------- */

static int certify(struct launch *l)
{
    weft_status st = WEFT_OK;

    if (!strstr(l->cluster, "tls:"))
        return EXIT_DONE;
    st = weft_authority_new(l->boot, 3650, &l->authority);
    for (int i = 0; i < l->n_tasks && !st; i++)
        st = weft_authority_issue(l->authority, l->folder, l->task[i].name, l->cert_seconds);
    if (!st) /* of `weft ctl` */
        st = weft_authority_issue(l->authority, l->folder, "control/0", l->cert_seconds);
    l->certified = wall_clock();
    return st ? fail_status(st, "launch") : EXIT_DONE;
}

static int open_events(struct launch *l)
{
    const char *dir = weft_job_text(l->job, "log.dir");
    char path[PATH_MAX];

    if (!l->events && !dir)
        return EXIT_DONE;
    if (!l->events && mkdir(dir, 0777) && errno != EEXIST)
        return EXIT_DONE; /* worker/0 reports what is wrong with log.dir */
    if (l->events)
        snprintf(path, sizeof path, "%s", l->events);
    else
        snprintf(path, sizeof path, "%s/events.log", dir);
    l->event_file = fopen(path, "ae");
    if (!l->event_file && l->events)
        return fail(EXIT_INPUT, "launch: cannot write %s: %s", path, strerror(errno));
    return EXIT_DONE;
}

static int run_job(struct launch *l)
{
    int rc = store_check(l);

    if (!rc)
        rc = open_folder(l);
    if (!rc)
        rc = open_signals(l);
    if (!rc)
        rc = make_addresses(l);
    if (!rc)
        rc = certify(l);
    if (!rc && strstr(l->cluster, "tcp:"))
        fprintf(stderr, "weft: warning: INSECURE: links are neither encrypted nor authenticated; "
                        "leave --insecure out for TLS\n");
    if (!rc && l->metrics_port)
        rc = metrics_open(l);
    if (!rc && l->token)
        rc = door_open(l);
    if (!rc)
        rc = ctl_open(l);
    if (!rc)
        rc = open_events(l);
    if (!rc)
        print_plan(l);
    if (!rc)
        rc = run_tasks(l);
    ctl_close(l);
    door_close(l);
    metrics_close(l);
    store_close(l);
    close_folder(l);
    if (l->event_file)
        fclose(l->event_file);
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* "0.5": minutes with a fraction. */
static bool minutes_of(const char *text, int64_t *seconds)
{
    char *end;
    double minutes = strtod(text, &end);

    *seconds = minutes >= 0.1 && minutes <= 5256000 ? (int64_t)(minutes * 60) : 0;
    return *text && !*end && *seconds > 0;
}

static int check(struct launch *l)
{
    static const char *const logs[] = {"lines", "json", "none"};

    if (l->transport && !check_word("launch", "transport", l->transport, transports, 4))
        return EXIT_USAGE;
    if (l->log && !check_word("launch", "log", l->log, logs, 3))
        return EXIT_USAGE;
    if (!l->token && (l->remote || l->token_uses || l->token_minutes >= 0 || l->join_port))
        return fail(EXIT_USAGE, "launch: %s needs --token-file, with which they join",
                    l->remote               ? "--remote"
                    : l->token_uses         ? "--token-uses"
                    : l->token_minutes >= 0 ? "--token-minutes"
                                            : "--join-port");
    if (l->token && l->transport &&
        (l->insecure || (strcmp(l->transport, "tls") && strcmp(l->transport, "tcp"))))
        return fail(EXIT_USAGE, "launch: other machines join by TLS, not over %s", l->transport);
    if (l->join_port > 65535)
        return fail(EXIT_USAGE, "launch: --join-port %d is not a port", l->join_port);
    if (l->token_minutes == 0)
        return fail(EXIT_USAGE, "launch: --token-minutes is at least 1");
    if (l->token_minutes < 0)
        l->token_minutes = TOKEN_MINUTES;
    if (l->metrics_host && !l->metrics_port)
        return fail(EXIT_USAGE, "launch: --metrics-host needs --metrics PORT");
    if (l->metrics_port > 65535)
        return fail(EXIT_USAGE, "launch: --metrics %d is not a port", l->metrics_port);
    if (!l->cert_text)
        l->cert_seconds = (int64_t)24 * 3600;
    else if (!minutes_of(l->cert_text, &l->cert_seconds))
        return fail(EXIT_USAGE, "launch: --cert-minutes takes minutes, at least 0.1, not '%s'",
                    l->cert_text);
    return EXIT_DONE;
}

static int launch(int argc, char **argv)
{
    static struct launch l = {.servers = -1, /* not given: as the job says */
                              .workers = -1,
                              .evaluators = -1,
                              .replicas = -1,
                              .standby = -1,
                              .token_minutes = -1};
    const struct flag flags[] = {
        {"ps", FLAG_INT, "N", "parameter servers; same as --set cluster.servers=N", &l.servers},
        {"workers", FLAG_INT, "N", "workers; same as --set cluster.workers=N", &l.workers},
        {"evaluators", FLAG_INT, "N",
         "tasks that measure each checkpoint; same as --set cluster.evaluators=N", &l.evaluators},
        {"replicas", FLAG_INT, "N",
         "copies of each part of the parameters: 1 or 2; same as --set cluster.replicas=N",
         &l.replicas},
        {"consistency", FLAG_TEXT, "sync|async|stale(S)",
         "whether workers wait for each other; same as --set cluster.consistency=…",
         &l.consistency},
        {"standby", FLAG_INT, "N", "further chiefs; same as --set cluster.standby=N", &l.standby},
        {"store", FLAG_TEXT, "DIR|etcd://…",
         "where chiefs write who belongs to the job: etcd://HOST:PORT,HOST:PORT/PREFIX (etcds: "
         "with "
         "TLS), or a directory; same as --set cluster.store=…",
         &l.store_said[0]},
        STORE_FLAGS(&l.store_said[1]),
        {"transport", FLAG_TEXT, "shm|uds|tls|tcp",
         "shared memory, Unix sockets or TLS; tcp is TLS, too, unless --insecure is given",
         &l.transport},
        {"insecure", FLAG_BOOL, NULL, "plain TCP, without encryption and authentication",
         &l.insecure},
        {"explain", FLAG_BOOL, NULL, "print the plan and start nothing", &l.explain},
        {"log", FLAG_TEXT, "lines|json|none", "what is printed of training: a line per epoch, …",
         &l.log},
        {"events", FLAG_TEXT, "FILE",
         "append what happens to tasks to this file; default events.log in log.dir", &l.events},
        {"metrics", FLAG_INT, "PORT", "serve counters as Prometheus text on this port of 127.0.0.1",
         &l.metrics_port},
        {"metrics-host", FLAG_TEXT, "ADDRESS", "serve them on this address of the machine instead",
         &l.metrics_host},
        {"cert-minutes", FLAG_TEXT, "N",
         "how long certificates are valid; they are renewed after a third of it; default 1440",
         &l.cert_text},
        {"remote", FLAG_INT, "N",
         "the last N workers are started on other machines, by `weft node --join`", &l.remote},
        {"host", FLAG_TEXT, "ADDRESS",
         "address of this machine that other machines reach; default 127.0.0.1", &l.host},
        {"token-file", FLAG_TEXT, "FILE",
         "write the token that they, and further workers, join with into this file", &l.token},
        {"token-uses", FLAG_INT, "N",
         "how often it can be used; default: twice each worker, or 16 without --remote",
         &l.token_uses},
        {"token-minutes", FLAG_INT, "N", "how long it can be used; default 60", &l.token_minutes},
        {"join-port", FLAG_INT, "PORT", "where they join; default: a free port", &l.join_port},
        {"fresh", FLAG_BOOL, NULL, "start over, as in `weft train`", &l.j.fresh},
        JOB_FLAGS(l.j),
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_launch, flags, argc, argv), rc;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 1)
        return fail(EXIT_USAGE, "launch: takes one job file; '%s' is a second one", argv[1]);
    if (n != 1)
        return fail(EXIT_USAGE, "launch: needs a job file; see `weft launch --help`");
    l.j.path = argv[0];
    rc = check(&l);
    if (!rc)
        rc = read_job(&l);
    if (!rc)
        rc = settle(&l);
    if (!rc)
        rc = l.explain ? explain_plan(&l) : run_job(&l);
    weft_authority_free(l.authority);
    weft_job_free(l.job);
    weft_ctx_free(l.boot);
    return rc;
}

const struct command command_launch = {
    .name = "launch",
    .args = "JOB.yaml",
    .summary = "train a job with parameter servers and workers on this machine",
    .text =
        "  weft launch job.yaml --ps 2 --workers 4\n"
        "  weft launch job.yaml --explain\n"
        "\n"
        "Starts a chief, servers and workers as processes, divides the cores among them, shows "
        "what they\ndo, and ends with exit code 0 when the job has ended. What dies is started "
        "again; the result is\nthe same, to the last bit. Ctrl-C finishes the step and writes a "
        "checkpoint, and the same command\nresumes; a second Ctrl-C stops at once. With the same "
        "number of shards (train.shards, by default\nthe number of workers) the result is that of "
        "`weft train`.\n",
    .run = launch,
};
