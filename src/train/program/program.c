/* program.c - a program as the tasks of a job: what this process is, and its tasks.
 *
 * Kept true: variables that a started task gets count more than any other description, so that a
 * task never starts tasks. */
#include "train/program/program.h"

#include "base/number.h"

enum { MAX_TASKS_HERE = 1024 };

/* ---- what this process is -------------------------------------------------------------------- */

/* From variables of whoever started this task, or as the options say. */
static weft_status find_cluster(weft_program *p)
{
    const char *tasks = wf_env_get(p->o.env, "WEFT_TASKS");
    weft_cluster_opts o = {.size = sizeof o};
    weft_status st = WEFT_OK;

    if (tasks) {
        o.tasks = tasks;
        o.task = wf_env_get(p->o.env, "WEFT_TASK");
        p->store = wf_env_get(p->o.env, "WEFT_TASK_STORE");
        p->keys = wf_env_get(p->o.env, "WEFT_TASK_KEYS");
        if (!o.task)
            return wf_err(WEFT_EINVAL, "WEFT_TASKS is set, and WEFT_TASK does not say which of "
                                       "them this process is");
        return weft_cluster_find(p->ctx, &o, &p->cluster);
    }
    if (p->o.cluster)
        st = wf_opts_take(&o, sizeof o, p->o.cluster, "weft_cluster_opts");
    o.env = p->o.env;
    if (!st)
        st = weft_cluster_find(p->ctx, &o, &p->cluster);
    if (st == WEFT_ENOENT && !o.tasks && !o.file)
        return WEFT_OK; /* it is no task */
    if (!st && weft_cluster_process(p->cluster) < 0)
        st = wf_err(WEFT_EINVAL, "%s: it does not say which task this process is",
                    weft_cluster_source(p->cluster));
    return st;
}

static weft_status check_opts(const weft_program_opts *o)
{
    static const char *const transports[] = {"shm", "uds", "tls"};
    int k = 0;

    if (!o->work)
        return wf_err(WEFT_EINVAL, "program: the function `work` is missing");
    if (o->workers < 0 || o->ps < 0 || o->workers > MAX_TASKS_HERE || o->ps > MAX_TASKS_HERE)
        return wf_err(WEFT_EINVAL, "program: %d workers, %d servers; 1 to %d are possible",
                      o->workers, o->ps, MAX_TASKS_HERE);
    if (o->evaluators < 0 || o->evaluators > MAX_TASKS_HERE)
        return wf_err(WEFT_EINVAL, "program: %d evaluators; 0 to %d are possible", o->evaluators,
                      MAX_TASKS_HERE);
    if (o->evaluators && !o->evaluate)
        return wf_err(WEFT_EINVAL, "program: %d evaluators, and the function `evaluate` is missing",
                      o->evaluators);
    while (o->transport && k < WF_COUNT(transports) && strcmp(o->transport, transports[k]) != 0)
        k++;
    if (k == WF_COUNT(transports))
        return wf_err(WEFT_EINVAL, "program: no transport '%s'%s", o->transport,
                      wf_did_you_mean(o->transport, transports, WF_COUNT(transports)).text);
    if (o->threads && o->argv)
        return wf_err(WEFT_EINVAL, "program: tasks are threads or processes: give `threads` or "
                                   "`argv`, not both");
    return WEFT_OK;
}

weft_status weft_program_open(weft_ctx *ctx, const weft_program_opts *opts, weft_program **out)
{
    weft_program *p = wf_alloc(ctx, sizeof *p);
    weft_status st;

    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "program");
    p->ctx = ctx;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    st = wf_opts_take(&p->o, sizeof p->o, opts, "weft_program_opts");
    if (!st)
        st = check_opts(&p->o);
    if (!st && p->o.servers)
        st = wf_opts_take(&p->ps, sizeof p->ps, p->o.servers, "weft_ps_opts");
    p->ps.size = sizeof p->ps;
    p->keys = p->o.keys;
    if (!st)
        st = find_cluster(p);
    p->is_task = p->cluster != NULL;
    if (!st)
        st = p->is_task ? wf_device_map_check(p->o.devices, p->cluster)
                        : wf_device_map(p->o.devices, "", &(weft_worker_config){.threads = 0});
    if (st) {
        weft_program_free(p);
        return st;
    }
    wf_snprintf(p->source, sizeof p->source, "%s",
                p->is_task ? weft_cluster_source(p->cluster)
                           : "no task: it starts those of the job on this machine");
    *out = p;
    return WEFT_OK;
}

void weft_program_free(weft_program *p)
{
    weft_ctx *ctx;

    if (!p || weft_program_shutdown(p, 0)) /* threads that run use it */
        return;
    ctx = p->ctx;
    weft_cluster_free(p->cluster);
    wf_free(ctx, p->task);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    wf_free(ctx, p);
}

const char *weft_program_source(const weft_program *p)
{
    return p->source;
}

bool weft_program_is_task(const weft_program *p)
{
    return p->is_task;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* "DIR/ps-0.pem" */
static weft_status name_key(const weft_program *p, const char *name, const char *end, char *to)
{
    int n = wf_snprintf(to, WF_MAX_KEYS, "%s/%s%s", p->keys, name, end);

    if (n < 0 || n >= WF_MAX_KEYS)
        return wf_err(WEFT_ELIMIT, "program: the name of the directory of keys has %zu bytes",
                      strlen(p->keys));
    for (char *c = to + strlen(p->keys) + 1; *c; c++)
        *c = *c == '/' ? '-' : *c;
    return WEFT_OK;
}

weft_status wf_program_opts_of(const weft_program *p, const char *task, struct wf_task_opts *out)
{
    weft_ps_opts *ps = &out->ps;
    weft_status st = WEFT_OK;

    *ps = p->ps;
    ps->cluster = weft_cluster_text(p->cluster);
    ps->task = task;
    ps->report = NULL;
    ps->event = NULL;
    ps->add = NULL;
    ps->asked = NULL;
    ps->stopped = NULL;
    if (!ps->folder)
        ps->folder = p->store;
    if (!p->keys)
        return WEFT_OK;
    st = name_key(p, "authority", ".pem", out->authority);
    if (!st)
        st = name_key(p, task, ".pem", out->certificate);
    if (!st)
        st = name_key(p, task, ".key", out->key);
    ps->authority = out->authority;
    ps->certificate = out->certificate;
    ps->key = out->key;
    return st;
}

/* Threads of a task that does not say: of started workers, cores divided by workers. */
static int usual_threads(const weft_program *p, const char *task)
{
    const char *text = wf_env_get(p->o.env, "WEFT_TASK_THREADS");
    int64_t v;

    if (strncmp(task, "worker", 6) != 0)
        return 1;
    if (p->started)
        return (int)wf_max_i64(1, weft_ctx_threads(p->ctx) / p->o.workers);
    return text && wf_text_i64(text, &v) && v >= 1 && v <= 4096 ? (int)v : 0;
}

weft_status wf_program_ctx(weft_program *p, const char *task, weft_worker_config *config,
                           weft_ctx **out)
{
    weft_worker_config c = {.size = sizeof c, .devices = "cpu", .threads = usual_threads(p, task)};
    weft_status st = wf_device_map(p->o.devices, task, &c);
    bool cpu = strncmp(c.devices, "cpu", 3) == 0;

    if (!st)
        st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = c.threads, .seed = p->o.seed,
                                    .devices = strcmp(c.devices, "cpu") == 0 ? NULL : c.devices,
                                    .memory_limit = cpu ? c.memory : 0,
                                    .device_memory = cpu ? 0 : c.memory, .log = p->o.log,
                                    .log_arg = p->o.log_arg, .spin_us = WEFT_ZERO),
                          out);
    if (st)
        return wf_err_wrap(st, "task '%s'", task);
    *config = c;
    return WEFT_OK;
}

/* Servers end after the workers, which would wait for them. */
static bool is_stopped(void *arg)
{
    weft_program *p = arg;
    bool stopped;

    if (!p->stop)
        return false;
    pthread_mutex_lock(&p->lock);
    stopped = wf_program_running(p, true) == 0;
    pthread_mutex_unlock(&p->lock);
    return stopped;
}

weft_status weft_program_serve(weft_program *p, const char *task)
{
    weft_worker_config config;
    struct wf_task_opts o;
    weft_ctx *ctx;
    weft_status st;

    if (!p->cluster)
        return wf_err(WEFT_ESTATE, "program: '%s' cannot be served: there is no job yet", task);
    st = wf_program_opts_of(p, task, &o);
    if (!st)
        st = wf_program_ctx(p, task, &config, &ctx);
    if (st)
        return st;
    o.ps.stopped = is_stopped;
    o.ps.call_arg = p;
    st = weft_ps_serve(ctx, &o.ps);
    weft_ctx_free(ctx);
    return st;
}

static weft_status work(weft_program *p, const char *task, weft_worker_fn *fn)
{
    weft_worker *w;
    weft_status st = weft_worker_open(p, task, &w), joined;
    char why[256];

    if (st)
        return st;
    st = fn(p->o.work_arg, w);
    if (st)
        wf_snprintf(why, sizeof why, "%s", weft_error());
    weft_worker_stop(w);
    joined = weft_coord_join(weft_worker_coord(w), 0);
    if (joined == WEFT_ETIME) /* threads use it: it stays */
        return wf_err_wrap(joined, "task '%s'", task);
    weft_worker_close(w);
    if (st)
        wf_err_set(why);
    return st ? st : joined;
}

weft_status wf_program_task(weft_program *p, const char *task)
{
    if (strncmp(task, "worker/", 7) == 0)
        return work(p, task, p->o.work);
    if (strncmp(task, "evaluator/", 10) == 0)
        return p->o.evaluate ? work(p, task, p->o.evaluate)
                             : wf_err(WEFT_EINVAL,
                                      "program: this process is '%s', and the function `evaluate` "
                                      "is missing",
                                      task);
    return weft_program_serve(p, task);
}

/* ---- the usual main -------------------------------------------------------------------------- */

struct here {
    weft_program *p;
    char name[WF_MAX_TASK_NAME];
    pthread_t thread;
    bool threaded;
    weft_status st;
    char why[256];
};

static void *run_here(void *arg)
{
    struct here *h = arg;

    h->st = wf_program_task(h->p, h->name);
    if (h->st)
        wf_snprintf(h->why, sizeof h->why, "%s", weft_error());
    return NULL;
}

/* All tasks of this process: the last one in this thread. */
static weft_status run_tasks(weft_program *p)
{
    int n = 0, failed = -1;
    struct here *h = wf_alloc_n(p->ctx, weft_cluster_tasks(p->cluster) + 1, sizeof *h);
    weft_status st = WEFT_OK;

    if (!h)
        return wf_err_nomem(p->ctx, sizeof *h, "tasks");
    for (int i = 0; i < weft_cluster_tasks(p->cluster); i++) {
        weft_task t = {.size = sizeof t};

        if (weft_cluster_task(p->cluster, i, &t) || !t.here)
            continue;
        h[n].p = p;
        wf_snprintf(h[n++].name, sizeof h->name, "%s", t.name);
    }
    for (int i = 0; i + 1 < n; i++) {
        h[i].threaded = pthread_create(&h[i].thread, NULL, run_here, &h[i]) == 0;
        if (!h[i].threaded) {
            h[i].st = WEFT_ENOMEM;
            wf_snprintf(h[i].why, sizeof h->why, "no thread can be started");
            p->stop = true;
        }
    }
    if (n && !p->stop)
        run_here(&h[n - 1]);
    for (int i = 0; i < n; i++) {
        if (h[i].threaded)
            pthread_join(h[i].thread, NULL);
        if (h[i].st && failed < 0)
            failed = i;
    }
    if (failed >= 0)
        st = wf_err(h[failed].st, "task '%s': %s", h[failed].name, h[failed].why);
    wf_free(p->ctx, h);
    return st;
}

weft_status weft_program_run(weft_program *p)
{
    char why[256] = "";
    weft_status st, down;

    if (p->is_task)
        return run_tasks(p);
    st = weft_program_start(p);
    if (!st)
        st = weft_program_join(p, 0);
    if (st)
        wf_snprintf(why, sizeof why, "%s", weft_error());
    down = weft_program_shutdown(p, 0);
    if (st)
        wf_err_set(why);
    return st ? st : down;
}
