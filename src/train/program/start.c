/* start.c - the tasks of a job as processes or threads of this machine.
 *
 * Processes belong to the keeper, a thread that starts them, waits for them and starts them again:
 * they die with it, and so with this process, however it ends (PR_SET_PDEATHSIG). Kept true: every
 * wait has an end; once a program is shut down, none of its processes lives, and its directory is
 * gone. */
#define _GNU_SOURCE
#include "train/program/program.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 20000000             /* how often the keeper looks */
#define AFTER_NS INT64_C(5000000000) /* that servers have after the last worker has ended */
enum { RESTARTS = 3 };

static void sleep_ns(weft_program *p, int64_t ns) /* with the lock */
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (ns + t.tv_nsec) / 1000000000;
    t.tv_nsec = (ns + t.tv_nsec) % 1000000000;
    pthread_cond_timedwait(&p->changed, &p->lock, &t);
}

static bool is_worker(const struct wf_started *t)
{
    return strncmp(t->name, "worker/", 7) == 0;
}

int wf_program_running(const weft_program *p, bool workers)
{
    int n = 0;

    for (int i = 0; i < p->n_tasks; i++)
        n += p->task[i].runs && (!workers || is_worker(&p->task[i]));
    return n;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* What a new process is given. */
struct birth {
    char **env;
    char *tasks, task[64], store[WF_MAX_PATH + 32], keys[WF_MAX_PATH + 32], threads[40];
};

static bool is_replaced(const char *variable)
{
    static const char *const names[] = {
        "WEFT_TASKS=", "WEFT_TASK=", "WEFT_TASK_STORE=", "WEFT_TASK_KEYS=", "WEFT_TASK_THREADS="};

    for (int i = 0; i < WF_COUNT(names); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static weft_status prepare(weft_program *p, const struct wf_started *t, struct birth *b)
{
    const char *tasks = weft_cluster_text(p->cluster);
    size_t length = strlen(tasks) + sizeof "WEFT_TASKS=";
    int n = 0, k = 0;

    while (p->o.env && p->o.env[n])
        n++;
    b->env = wf_alloc_n(p->ctx, n + 6, sizeof *b->env);
    b->tasks = wf_alloc(p->ctx, length);
    if (!b->env || !b->tasks)
        return wf_err_nomem(p->ctx, sizeof *b->env, "variables");
    for (int i = 0; i < n; i++)
        if (!is_replaced(p->o.env[i]))
            b->env[k++] = (char *)(uintptr_t)p->o.env[i];
    wf_snprintf(b->tasks, length, "WEFT_TASKS=%s", tasks);
    wf_snprintf(b->task, sizeof b->task, "WEFT_TASK=%s", t->name);
    wf_snprintf(b->store, sizeof b->store, "WEFT_TASK_STORE=%s", p->store_path);
    wf_snprintf(b->threads, sizeof b->threads, "WEFT_TASK_THREADS=%lld",
                (long long)wf_max_i64(1, weft_ctx_threads(p->ctx) / p->o.workers));
    b->env[k++] = b->tasks;
    b->env[k++] = b->task;
    b->env[k++] = b->store;
    if (p->keys) {
        wf_snprintf(b->keys, sizeof b->keys, "WEFT_TASK_KEYS=%s", p->keys);
        b->env[k++] = b->keys;
    }
    b->env[k++] = b->threads;
    return WEFT_OK;
}

/* In the new process: only what is async-signal-safe. */
static void become(pid_t parent, char *const *argv, char *const *env)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it has ended already */
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve("/proc/self/exe", argv, env);
    _exit(127);
}

/* The socket of a process that was killed is still there. */
static void remove_socket(const weft_program *p, const struct wf_started *t)
{
    char path[WF_MAX_PATH + WF_MAX_TASK_NAME];
    size_t role = strcspn(t->name, "/");

    wf_snprintf(path, sizeof path, "%s/%.*s%s", p->folder, (int)role, t->name, t->name + role + 1);
    unlink(path);
}

/* By the keeper, with the lock. */
static weft_status start_process(weft_program *p, struct wf_started *t)
{
    struct birth *b = wf_alloc(p->ctx, sizeof *b);
    weft_status st = b ? prepare(p, t, b) : wf_err_nomem(p->ctx, sizeof *b, "process");
    pid_t parent = getpid(), pid;

    if (st)
        goto out;
    remove_socket(p, t);
    pid = fork();
    if (pid == 0)
        become(parent, (char *const *)(uintptr_t)p->o.argv, b->env);
    if (pid < 0)
        st = wf_err(WEFT_ENOMEM, "program: no process can be started: %s", wf_errno_text(errno));
    else
        t->pid = pid;
    t->runs = !st;
out:
    if (b) {
        wf_free(p->ctx, b->env);
        wf_free(p->ctx, b->tasks);
    }
    wf_free(p->ctx, b);
    return st;
}

static void fails(weft_program *p, struct wf_started *t, weft_status st, const char *why)
{
    t->st = st;
    if (!p->failed)
        p->failed = t;
    wf_snprintf(t->why, sizeof t->why, "%s", why);
}

/* A process has ended. The job is over when the chief has ended in order: a task that comes back
 * then finds nobody. */
static void ended(weft_program *p, struct wf_started *t, int status)
{
    int most = p->o.restarts ? p->o.restarts : RESTARTS;
    char why[200];

    t->runs = false;
    t->pid = 0;
    t->done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (p->ends || t->done || (p->task[0].done && (t->restarts || WIFSIGNALED(status))))
        return;
    if (WIFSIGNALED(status) && t->restarts < most &&
        wf_program_running(p, true) + is_worker(t) > 0) {
        t->restarts++;
        wf_log(p->ctx, WEFT_LOG_WARN, "task '%s' was ended by signal %d: it is started again",
               t->name, WTERMSIG(status));
        if (start_process(p, t))
            fails(p, t, WEFT_EPEER, weft_error());
        return;
    }
    if (WIFSIGNALED(status))
        wf_snprintf(why, sizeof why,
                    "task '%s' was ended by signal %d, and was started again %d "
                    "times",
                    t->name, WTERMSIG(status), t->restarts);
    else
        wf_snprintf(why, sizeof why, "task '%s' ended with exit code %d", t->name,
                    WEXITSTATUS(status));
    fails(p, t, WEFT_EPEER, why);
}

static void look(weft_program *p)
{
    for (int i = 0; i < p->n_tasks; i++) {
        struct wf_started *t = &p->task[i];
        int status;

        if (t->pid > 0 && waitpid(t->pid, &status, WNOHANG) == t->pid) {
            ended(p, t, status);
            pthread_cond_broadcast(&p->changed);
        }
    }
}

static void end_all(weft_program *p, int signal)
{
    for (int i = 0; i < p->n_tasks; i++)
        if (p->task[i].pid > 0)
            kill(p->task[i].pid, signal);
}

/* Without workers there is no job: servers end by themselves, or are to be ended now. */
static bool are_left(weft_program *p)
{
    if (wf_program_running(p, true) > 0)
        return false;
    if (!p->without) {
        p->without = wf_now(p->ctx);
        wf_program_say_ended(p);
    }
    for (int i = 0; i < p->n_tasks && !p->o.threads; i++) /* it measures the last checkpoint */
        if (p->task[i].runs && strncmp(p->task[i].name, "evaluator/", 10) == 0)
            return p->failed;
    return p->failed || wf_now(p->ctx) - p->without > AFTER_NS;
}

static void *keep(void *arg)
{
    weft_program *p = arg;
    bool asked = false;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_tasks; i++)
        if (start_process(p, &p->task[i])) {
            fails(p, &p->task[i], WEFT_ENOMEM, weft_error());
            p->ends = true;
            p->kill_at = 0;
            break;
        }
    p->begun = true;
    while (wf_program_running(p, false) > 0) {
        int64_t now = wf_now(p->ctx);

        look(p);
        if (are_left(p) && !p->ends) {
            p->ends = true;
            p->kill_at = now + AFTER_NS;
        }
        if (p->ends && !asked)
            end_all(p, SIGTERM);
        asked |= p->ends;
        if (p->ends && now >= p->kill_at)
            end_all(p, SIGKILL);
        sleep_ns(p, LOOK_NS);
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct wf_started *t = arg;
    weft_program *p = t->p;
    weft_status st = wf_program_task(p, t->name);

    pthread_mutex_lock(&p->lock);
    if (st)
        fails(p, t, st, weft_error());
    t->runs = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static weft_status start_threads(weft_program *p)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < p->n_tasks && !st; i++) {
        struct wf_started *t = &p->task[i];

        t->p = p;
        t->runs = true;
        if (pthread_create(&t->thread, NULL, run_thread, t)) {
            t->runs = false;
            st = wf_err(WEFT_ENOMEM, "program: no thread can be started");
        }
        t->threaded = !st;
    }
    return st;
}

/* ---- starting and ending --------------------------------------------------------------------- */

static weft_status list_tasks(weft_program *p)
{
    struct wf_buf text;
    weft_status st;

    wf_buf_init(&text, p->ctx, 1 << 20);
    st = wf_program_list(p, &text);
    if (!st)
        st = weft_cluster_find(p->ctx, WEFT_OPTS(weft_cluster_opts, .tasks = text.data),
                               &p->cluster);
    wf_buf_free(&text);
    if (!st)
        st = wf_device_map_check(p->o.devices, p->cluster);
    if (st)
        return st;
    p->n_tasks = weft_cluster_tasks(p->cluster);
    p->task = wf_alloc_n(p->ctx, p->n_tasks + 1, sizeof *p->task);
    if (!p->task)
        return wf_err_nomem(p->ctx, sizeof *p->task, "tasks");
    for (int i = 0; i < p->n_tasks && !st; i++) {
        weft_task t = {.size = sizeof t};

        st = weft_cluster_task(p->cluster, i, &t);
        wf_snprintf(p->task[i].name, sizeof p->task[i].name, "%s", t.name);
    }
    return st ? st : wf_program_certify(p);
}

weft_status weft_program_start(weft_program *p)
{
    weft_status st;

    if (p->is_task)
        return wf_err(WEFT_ESTATE, "program: this process is a task, and starts none (%s)",
                      p->source);
    if (p->started)
        return wf_err(WEFT_ESTATE, "program: its tasks were started already");
    if (!p->o.threads && (!p->o.argv || !p->o.argv[0]))
        return wf_err(WEFT_EINVAL,
                      "program: `argv` of the processes is missing; or give `threads`");
    p->started = true;
    p->o.workers = p->o.workers ? p->o.workers : 1;
    p->o.ps = p->o.ps ? p->o.ps : 1;
    st = wf_program_folder(p);
    if (!st)
        st = list_tasks(p);
    if (st)
        return st;
    if (p->o.threads) /* their chief cannot come back, and needs no store */
        return start_threads(p);
    p->store = p->store_path;
    p->has_keeper = pthread_create(&p->keeper, NULL, keep, p) == 0;
    return p->has_keeper ? WEFT_OK : wf_err(WEFT_ENOMEM, "program: no thread can be started");
}

/* Whether anything runs, or is about to. */
static bool is_busy(const weft_program *p)
{
    return wf_program_running(p, false) > 0 || (p->has_keeper && !p->begun);
}

static weft_status first_failure(const weft_program *p)
{
    return p->failed ? wf_err(p->failed->st, "%s", p->failed->why) : WEFT_OK;
}

/* As tasks that are threads end: those that are left when a worker has failed are asked to stop. */
static void follow_threads(weft_program *p)
{
    if (p->o.threads && !p->stop && (first_failure(p) || are_left(p)))
        p->stop = true;
    for (weft_worker *w = p->worker; w && p->stop; w = w->next)
        weft_worker_stop(w);
}

weft_status weft_program_join(weft_program *p, double timeout_s)
{
    int64_t until = timeout_s > 0 ? wf_now(p->ctx) + (int64_t)(timeout_s * 1e9) : INT64_MAX;
    bool busy;
    int left;

    if (!p->started)
        return wf_err(WEFT_ESTATE, "program: its tasks were not started");
    pthread_mutex_lock(&p->lock);
    while (is_busy(p) && wf_now(p->ctx) < until) {
        follow_threads(p);
        sleep_ns(p, LOOK_NS);
    }
    busy = is_busy(p);
    left = wf_program_running(p, false);
    pthread_mutex_unlock(&p->lock);
    return busy ? wf_err(WEFT_ETIME, "program: %d of %d tasks run after %g s", left, p->n_tasks,
                         timeout_s)
                : first_failure(p);
}

weft_status weft_program_shutdown(weft_program *p, double grace_s)
{
    int64_t grace = (int64_t)((grace_s > 0 ? grace_s : 10) * 1e9), until = wf_now(p->ctx) + grace;
    int left = 0;

    p->stop = true;
    if (!p->started)
        return WEFT_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->ends) {
        p->ends = true;
        p->kill_at = until;
    }
    pthread_cond_broadcast(&p->changed);
    while (p->o.threads && wf_program_running(p, false) > 0 && wf_now(p->ctx) < until) {
        follow_threads(p);
        sleep_ns(p, LOOK_NS);
    }
    left = p->o.threads ? wf_program_running(p, false) : 0;
    pthread_mutex_unlock(&p->lock);
    if (left)
        return wf_err(WEFT_ETIME, "program: %d threads did not end within %g s", left,
                      (double)grace * 1e-9);
    if (p->has_keeper)
        pthread_join(p->keeper, NULL); /* it ends after kill_at */
    p->has_keeper = false;
    for (int i = 0; i < p->n_tasks; i++) {
        if (p->task[i].threaded)
            pthread_join(p->task[i].thread, NULL);
        p->task[i].threaded = false;
    }
    wf_program_remove(p);
    return WEFT_OK;
}

int64_t weft_program_pid(weft_program *p, const char *task)
{
    int64_t pid = 0;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_tasks; i++)
        if (strcmp(p->task[i].name, task) == 0)
            pid = p->task[i].pid;
    pthread_mutex_unlock(&p->lock);
    return pid;
}
