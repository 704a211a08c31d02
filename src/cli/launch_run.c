/* launch_run.c - tasks as processes: started, watched, started again, stopped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

#define LAST_WORDS_S 600 /* for the model and the report, after the last step */
#define QUICK_S 2.0      /* a task that dies sooner has hardly begun */
enum { MAX_QUICK = 6, MAX_LOST = 3, MAX_ARGS = 2 * LIST_MAX + 48 };

static bool is_worker(const struct launched *t)
{
    return !strcmp(t->role, "worker");
}

static bool is_evaluator(const struct launched *t)
{
    return !strcmp(t->role, "evaluator");
}

/* Sets of roles. */
enum { WORKERS = 1, EVALUATORS = 2, HOLDERS = 4 /* chiefs and servers */, ALL = 7 };

static int role_of(const struct launched *t)
{
    return is_worker(t) ? WORKERS : is_evaluator(t) ? EVALUATORS : HOLDERS;
}

static bool is_first(const struct launched *t)
{
    return is_worker(t) && t->number == 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

struct args {
    char *v[MAX_ARGS];
    int n;
    char text[6][MAX_FOLDER + 64];
    int n_texts;
};

static void add(struct args *a, const char *word)
{
    if (a->n + 1 < MAX_ARGS)
        a->v[a->n++] = (char *)(uintptr_t)word;
}

__attribute__((format(printf, 2, 3))) static void add_text(struct args *a, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(a->text[a->n_texts], sizeof a->text[0], fmt, args);
    va_end(args);
    add(a, a->text[a->n_texts++]);
}

static void add_store(const struct launch *l, struct args *a)
{
    static const char *const flag[STORE_KEYS] = {"--store", "--store-ca", "--store-cert",
                                                 "--store-key"};

    for (int i = 0; i < STORE_KEYS; i++) {
        const char *value = i ? l->store_said[i] : l->store;

        if (value) {
            add(a, flag[i]);
            add(a, value);
        }
    }
}

/* The command of a task. Nothing in it is secret: keys are in files of the directory. */
static void list_args(const struct launch *l, const struct launched *t, int report, struct args *a)
{
    *a = (struct args){.n = 0};
    add(a, "weft");
    add(a, "node");
    add(a, "--task");
    add(a, t->name);
    add(a, "--cluster");
    add(a, l->cluster);
    if (t->extra)
        add(a, "--extra");
    if (t->address[0]) {
        add(a, "--address");
        add(a, t->address);
    }
    add(a, "--report");
    add_text(a, "%d", report);
    add(a, "--lifeline");
    add_text(a, "%d", l->keeper.lifeline[0]);
    if (l->authority) {
        add(a, "--keys");
        add(a, l->folder);
    }
    if (!strcmp(t->role, "chief")) {
        add_store(l, a);
    }
    if (l->insecure)
        add(a, "--insecure");
    add(a, "--log");
    add(a, l->log ? l->log : "lines");
    for (int i = 0; i < l->j.sets.n; i++) {
        add(a, "--set");
        add(a, l->j.sets.item[i]);
    }
    if (is_worker(t) && (l->j.threads || !weft_job_given(l->job, "resources.threads"))) {
        add(a, "--threads");
        add_text(a, "%d", t->threads);
    }
    if (is_evaluator(t)) {
        add(a, "--threads");
        add(a, "1");
    }
    if (l->j.memory && is_worker(t)) {
        add(a, "--memory");
        add_text(a, "%d", l->j.memory);
    }
    if (l->j.devices && is_worker(t)) {
        add(a, "--devices");
        add(a, l->j.devices);
    }
    add(a, l->j.path);
    add(a, NULL);
}

/* In the new process: only what is async-signal-safe. */
static void become(const struct launch *l, pid_t parent, int out, int err, int report,
                   char *const *argv)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it has ended already */
        _exit(1);
    setpgid(0, 0); /* Ctrl-C reaches the launcher alone */
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    fcntl(report, F_SETFD, 0);
    fcntl(l->keeper.lifeline[0], F_SETFD, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static void close_pair(int p[2])
{
    for (int i = 0; i < 2; i++)
        if (p[i] >= 0)
            close(p[i]);
}

/* The socket of a process that was killed is still there. */
static void remove_socket(const struct launch *l, const struct launched *t)
{
    char path[MAX_FOLDER + TASK_NAME];

    snprintf(path, sizeof path, "%s/%s%d", l->folder, t->role, t->number);
    unlink(path);
}

static bool start_task(struct launch *l, struct launched *t)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    pid_t parent = getpid();
    struct args a;

    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(report, O_CLOEXEC | O_NONBLOCK)) {
        close_pair(out);
        close_pair(err);
        close_pair(report);
        return false;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    list_args(l, t, report[1], &a);
    remove_socket(l, t);
    fflush(NULL);
    t->pid = fork();
    if (t->pid == 0)
        become(l, parent, out[1], err[1], report[1], a.v);
    close(out[1]);
    close(err[1]);
    close(report[1]);
    if (t->pid < 0) {
        close(out[0]);
        close(err[0]);
        close(report[0]);
        t->pid = 0;
        return false;
    }
    t->out = (struct lines){.fd = out[0]};
    t->err = (struct lines){.fd = err[0]};
    t->report = (struct lines){.fd = report[0]};
    t->state = TASK_RUNS;
    t->hangs = false;
    t->started = wall_clock();
    t->starts++;
    t->stat = t->middle = t->before = (struct task_stat){.loss = NAN};
    t->stat_at = t->middle_at = t->before_at = 0;
    return true;
}

/* ---- lines of tasks -------------------------------------------------------------------------- */

/* Rates are those of the last second or two: single reports are too close together. */
static void take_stat(struct launched *t, const struct task_stat *s, double now)
{
    t->stat = *s;
    t->stat_at = now;
    if (t->middle_at > 0 && now - t->middle_at < 1)
        return;
    t->before = t->middle_at > 0 ? t->middle : *s;
    t->before_at = t->middle_at > 0 ? t->middle_at : now;
    t->middle = *s;
    t->middle_at = now;
}

static void note_drained(struct launch *l, const char *task)
{
    for (int i = 0; i < l->n_tasks; i++)
        if (!strcmp(l->task[i].name, task))
            l->task[i].drains = true;
}

/* Its program hangs, or was stopped: at the end of the job no one waits for it. */
static void note_hung(struct launch *l, const char *task, bool hangs)
{
    for (int i = 0; i < l->n_tasks; i++)
        if (!strcmp(l->task[i].name, task))
            l->task[i].hangs = hangs;
}

static void take_report(struct launch *l, struct launched *t, char *line)
{
    struct task_stat s;
    const char *task, *what;

    switch (report_read(line, &s, &task, &what)) {
    case REPORT_STAT: take_stat(t, &s, wall_clock()); break;
    case REPORT_EVENT:
        show_event(l, task, "%s", what);
        if (strstr(what, "is gone"))
            door_is_gone(l, task);
        if (!strcmp(what, "is drained"))
            note_drained(l, task);
        if (!strncmp(what, "is left out", 11) || !strncmp(what, "is gone (silent", 15) ||
            !strcmp(what, "joined"))
            note_hung(l, task, what[0] == 'i');
        break;
    case REPORT_ADD: ctl_add(l, task, atoi(what)); break;
    case REPORT_WROTE: l->wrote = true; break;
    case REPORT_NOTE: show_note(l, task, what); break;
    case REPORT_NOTHING: break;
    }
}

static void take_line(struct launch *l, struct launched *t, struct lines *in, char *line)
{
    if (in == &t->report)
        take_report(l, t, line);
    else
        show_line(l, t, line, in == &t->err);
}

/* Reads what there is; a line that is too long is cut. */
static void read_lines(struct launch *l, struct launched *t, struct lines *in)
{
    for (;;) {
        ssize_t n = in->fd < 0 ? 0 : read(in->fd, in->text + in->n, sizeof in->text - 1 - in->n);
        char *from = in->text, *end;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if ((n == 0 || errno != EAGAIN) && in->fd >= 0) {
                close(in->fd);
                in->fd = -1;
                in->text[in->n] = '\0';
                if (in->n)
                    take_line(l, t, in, in->text);
                in->n = 0;
            }
            return;
        }
        in->n += (size_t)n;
        in->text[in->n] = '\0';
        while ((end = memchr(from, '\n', in->n - (size_t)(from - in->text)))) {
            *end = '\0';
            take_line(l, t, in, from);
            from = end + 1;
        }
        in->n -= (size_t)(from - in->text);
        memmove(in->text, from, in->n);
        if (in->n == sizeof in->text - 1) {
            in->text[in->n] = '\0';
            take_line(l, t, in, in->text);
            in->n = 0;
        }
    }
}

static void read_task(struct launch *l, struct launched *t)
{
    read_lines(l, t, &t->report);
    read_lines(l, t, &t->err);
    read_lines(l, t, &t->out);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_tasks(struct launch *l, int sig, int roles)
{
    for (int i = 0; i < l->n_tasks; i++) {
        struct launched *t = &l->task[i];

        if (t->pid > 0 && (role_of(t) & roles))
            kill(t->pid, sig);
    }
}

static int count_running(const struct launch *l, int roles)
{
    int n = 0;

    for (int i = 0; i < l->n_tasks; i++)
        n += l->task[i].pid > 0 && (role_of(&l->task[i]) & roles);
    return n;
}

static void enter(struct launch *l, enum phase phase, double seconds)
{
    l->phase = phase;
    l->deadline = wall_clock() + seconds;
}

/* The job has failed: everything ends. */
__attribute__((format(printf, 3, 4))) static void give_up(struct launch *l, int rc, const char *fmt,
                                                          ...)
{
    va_list args;

    if (l->phase == PHASE_CLOSES)
        return;
    va_start(args, fmt);
    vsnprintf(l->why, sizeof l->why, fmt, args);
    va_end(args);
    l->rc = rc;
    signal_tasks(l, SIGKILL, ALL);
    enter(l, PHASE_CLOSES, 0);
}

static void stop(struct launch *l)
{
    if (l->phase == PHASE_STOPS || l->phase == PHASE_LEAVES) { /* the second Ctrl-C */
        show_event(l, "launch", "stopped at once: nothing more is saved");
        signal_tasks(l, SIGKILL, ALL);
        l->rc = EXIT_STOPPED;
        enter(l, PHASE_CLOSES, 0);
        return;
    }
    if (l->phase == PHASE_RATES) { /* the model is there */
        signal_tasks(l, SIGKILL, EVALUATORS);
        return;
    }
    if (l->phase != PHASE_RUNS && l->phase != PHASE_ENDS)
        return;
    l->rc = EXIT_STOPPED;
    show_event(l, "launch", "stopping after this step; Ctrl-C again stops at once");
    signal_tasks(l, SIGTERM, WORKERS);
    enter(l, PHASE_STOPS, 30 + 10 * l->timeout_s);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static const char *how_it_ended(int status, char text[64])
{
    if (WIFSIGNALED(status))
        snprintf(text, 64, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(text, 64, "exit code %d", WEXITSTATUS(status));
    return text;
}

static bool may_restart(struct launch *l, const struct launched *t, const char *how)
{
    if (l->restarts >= l->max_restarts) {
        give_up(l, EXIT_FAILED,
                "%s ended (%s), and tasks were started again %lld times already, which is the "
                "limit; cluster.restarts raises it",
                t->name, how, (long long)l->restarts);
        return false;
    }
    if (t->quick_deaths >= MAX_QUICK) {
        give_up(l, EXIT_FAILED, "%s ended (%s) %d times in a row soon after it was started",
                t->name, how, t->quick_deaths);
        return false;
    }
    l->restarts++;
    return true;
}

/* What waits for the task: the step, and what others lack of it. */
static const char *held_up(const struct launch *l, const struct launched *t)
{
    static char text[96];
    int64_t step = 0;

    for (int i = 0; i < l->n_tasks; i++)
        if (is_worker(&l->task[i]) && l->task[i].stat.step > step)
            step = l->task[i].stat.step;
    if (role_of(t) == EVALUATORS || !strcmp(t->role, "chief") || step == 0)
        return "";
    snprintf(text, sizeof text, " while step %lld needed its %s", (long long)step + 1,
             is_worker(t) ? "shards" : "part of the parameters");
    return text;
}

/* The task alone is started again, later each time it dies at once. */
static void restart_task(struct launch *l, struct launched *t, const char *how)
{
    if (!may_restart(l, t, how))
        return;
    t->state = TASK_WAITS;
    t->start_at = wall_clock() + (t->quick_deaths > 1 ? 0.25 * t->quick_deaths : 0);
    show_event(l, t->name, "ended (%s)%s; it is started again", how, held_up(l, t));
}

/* Nobody knows the parameters any more: all tasks begin again at the last checkpoint, which
 * gives the same bits as if nothing had happened. */
static void restart_all(struct launch *l, const struct launched *t, const char *how)
{
    if (!may_restart(l, t, how))
        return;
    show_event(l, t->name,
               "ended (%s), and the job cannot continue without it: all tasks are started "
               "again, from the last checkpoint",
               how);
    signal_tasks(l, SIGKILL, ALL);
    for (int i = 0; i < l->n_tasks; i++) {
        struct launched *other = &l->task[i];

        if (other->pid > 0)
            waitpid(other->pid, NULL, 0);
        other->pid = 0;
        read_task(l, other);
        door_is_gone(l, other->name);
        if (other->state != TASK_REMOTE)
            other->state = TASK_WAITS;
        other->drains = false;
        other->start_at = 0;
    }
    store_new(l);
}

/* Exit codes that a second attempt would end with, too. */
static bool is_final(const struct launched *t, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    return code == EXIT_USAGE || code == 127 ||
           (is_worker(t) && (code == EXIT_FAILED || code == EXIT_INPUT));
}

/* A worker comes back by itself, and the job continues meanwhile. One that cannot (the
 * parameters were lost, or it does not find the job) is given a few attempts. */
static void worker_ended(struct launch *l, struct launched *t, int status, const char *how)
{
    bool lost = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LOST;

    if (!lost || (!is_first(t) && t->quick_deaths < MAX_LOST))
        restart_task(l, t, how);
    else if (is_first(t))
        restart_all(l, t, "it cannot come back");
    else {
        t->state = TASK_OUT;
        show_event(l, t->name, "cannot come back: the other workers compute its shards");
    }
}

/* Training does not need an evaluator: one that cannot do its work is left out. */
static void evaluator_ended(struct launch *l, struct launched *t, int status, const char *how)
{
    if (WIFSIGNALED(status) && t->quick_deaths < MAX_QUICK)
        restart_task(l, t, how);
    else
        show_event(l, t->name, "ended (%s); training continues without it", how);
}

/* The first worker that is done has seen the last step. The one that decides may still write the
 * model and the report: it has time. */
static void task_done(struct launch *l, struct launched *t)
{
    if (t->drains && l->phase == PHASE_RUNS) {
        t->state = TASK_DRAINED;
        return;
    }
    t->state = TASK_DONE;
    if (l->phase != PHASE_RUNS || !is_worker(t))
        return;
    for (int i = 0; i < l->n_tasks; i++)
        if (l->task[i].hangs && l->task[i].pid > 0)
            kill(l->task[i].pid, SIGKILL);
    enter(l, PHASE_ENDS, LAST_WORDS_S + 10 * l->timeout_s);
}

static void task_ended(struct launch *l, struct launched *t, int status)
{
    char how[64];

    for (int i = 0; i < l->n_tasks; i++) /* the chief may have said why */
        read_task(l, &l->task[i]);
    t->pid = 0;
    how_it_ended(status, how);
    if (wall_clock() - t->started >= QUICK_S)
        t->quick_deaths = 0;
    else if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) /* which is not its own doing */
        t->quick_deaths++;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        task_done(l, t);
        return;
    }
    t->state = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_STOPPED ? TASK_DONE : TASK_OUT;
    if (l->phase == PHASE_ENDS && role_of(t) == HOLDERS)
        show_event(l, t->name, "ended (%s) after the job", how);
    if (l->phase == PHASE_ENDS && is_worker(t) && is_final(t, status)) {
        l->failed = t;
        l->failed_rc = WEXITSTATUS(status);
    }
    if (l->phase != PHASE_RUNS)
        return;
    if (is_evaluator(t))
        evaluator_ended(l, t, status, how);
    else if (is_final(t, status))
        give_up(l, WEXITSTATUS(status), "%s failed (%s)", t->name, how);
    else if (is_worker(t))
        worker_ended(l, t, status, how);
    else
        restart_task(l, t, how);
}

static void reap(struct launch *l)
{
    for (int i = 0; i < l->n_tasks; i++) {
        struct launched *t = &l->task[i];
        int status;

        if (t->pid > 0 && waitpid(t->pid, &status, WNOHANG) == t->pid)
            task_ended(l, t, status);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void start_due(struct launch *l, double now)
{
    for (int i = 0; i < l->n_tasks && l->phase == PHASE_RUNS; i++) {
        struct launched *t = &l->task[i];

        if (t->state == TASK_WAITS && t->start_at <= now && !start_task(l, t))
            give_up(l, EXIT_FAILED, "%s cannot be started: %s", t->name, strerror(errno));
    }
}

/* From one phase to the next: when its tasks are gone, or its time is over. */
static const struct launched *first_worker(const struct launch *l)
{
    int i = 0;

    while (!is_first(&l->task[i])) /* there always is one */
        i++;
    return &l->task[i];
}

/* All workers have finished, and the one that was to write the model died before it had. */
static bool is_unwritten(const struct launch *l)
{
    return l->phase == PHASE_ENDS && !l->wrote && !l->remote && !l->token &&
           !count_running(l, WORKERS);
}

static void advance(struct launch *l, double now)
{
    bool late = l->deadline > 0 && now >= l->deadline;

    if (is_unwritten(l) && l->failed) {
        give_up(l, l->failed_rc, "%s failed (exit code %d) after the last step", l->failed->name,
                l->failed_rc);
    } else if (is_unwritten(l)) {
        l->phase = PHASE_RUNS;
        l->deadline = 0;
        restart_all(l, first_worker(l), "before it had written what the run leaves");
    } else if (l->phase == PHASE_STOPS && (late || !count_running(l, WORKERS))) {
        signal_tasks(l, late ? SIGKILL : SIGTERM, WORKERS);
        enter(l, PHASE_LEAVES, 1);
    } else if (l->phase == PHASE_ENDS && !late && !count_running(l, WORKERS) &&
               count_running(l, EVALUATORS)) {
        signal_tasks(l, SIGTERM, EVALUATORS);
        enter(l, PHASE_RATES, LAST_WORDS_S);
    } else if ((l->phase == PHASE_LEAVES || l->phase == PHASE_ENDS || l->phase == PHASE_RATES) &&
               (late || !count_running(l, l->phase == PHASE_RATES ? EVALUATORS : WORKERS))) {
        bool own = l->phase != PHASE_LEAVES && !late; /* chief and servers end by themselves */

        signal_tasks(l, SIGKILL, own ? WORKERS | EVALUATORS : WORKERS);
        if (!own)
            signal_tasks(l, SIGTERM, HOLDERS | EVALUATORS);
        enter(l, PHASE_CLOSES, own ? 2 : 1);
    } else if (l->phase == PHASE_CLOSES && late) {
        signal_tasks(l, SIGKILL, ALL);
        l->deadline = now + 1;
    }
}

/* Certificates are issued again long before they expire; tasks notice the new files. */
static void renew(struct launch *l, double now)
{
    if (!l->authority || now - l->certified < (double)l->cert_seconds / 3)
        return;
    l->certified = now;
    for (int i = 0; i < l->n_tasks; i++)
        if (weft_authority_issue(l->authority, l->folder, l->task[i].name, l->cert_seconds) ||
            weft_authority_issue(l->authority, l->folder, "control/0", l->cert_seconds)) {
            show_event(l, l->task[i].name, "its certificate could not be renewed: %s",
                       weft_error());
            return;
        }
    if (!door_certify(l))
        show_event(l, "launch", "certificates were renewed");
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void take_signals(struct launch *l)
{
    struct signalfd_siginfo s;

    while (read(l->signals, &s, sizeof s) == (ssize_t)sizeof s)
        if (s.ssi_signo == SIGINT || s.ssi_signo == SIGTERM || s.ssi_signo == SIGHUP)
            stop(l);
        else if (s.ssi_signo == SIGUSR1) /* a checkpoint, as in `weft train` */
            signal_tasks(l, SIGUSR1, WORKERS);
}

static void wait_for_something(struct launch *l)
{
    struct pollfd p[3 * MAX_LAUNCHED + 1] = {{.fd = l->signals, .events = POLLIN}};
    int n = 1;

    for (int i = 0; i < l->n_tasks; i++) {
        const struct launched *t = &l->task[i];
        int fds[3] = {t->out.fd, t->err.fd, t->report.fd};

        for (int k = 0; k < 3; k++)
            if (fds[k] >= 0)
                p[n++] = (struct pollfd){.fd = fds[k], .events = POLLIN};
    }
    poll(p, (nfds_t)n, 100);
}

static bool anything_left(const struct launch *l)
{
    for (int i = 0; i < l->n_tasks; i++)
        if (l->task[i].pid > 0 || (l->task[i].state == TASK_WAITS && l->phase == PHASE_RUNS))
            return true;
    return false;
}

int open_signals(struct launch *l)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGWINCH};
    struct sigaction hangup;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&set, caught[i]);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP); /* nohup */
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals < 0 ? fail(EXIT_FAILED, "launch: no signals: %s", strerror(errno))
                          : EXIT_DONE;
}

int run_tasks(struct launch *l)
{
    int rc = store_new(l);

    if (rc)
        return rc;
    show_open(l);
    while (anything_left(l)) {
        double now = wall_clock();

        start_due(l, now);
        wait_for_something(l);
        take_signals(l);
        for (int i = 0; i < l->n_tasks; i++)
            read_task(l, &l->task[i]);
        reap(l);
        if (l->unread && l->phase == PHASE_RUNS) /* as Ctrl-C */
            stop(l);
        now = wall_clock();
        advance(l, now);
        renew(l, now);
        door_tend(l);
        metrics_tend(l);
        board_tend(l, false);
        show_paint(l, false);
    }
    board_tend(l, true);
    board_close(l);
    show_paint(l, true);
    show_close(l);
    if (*l->why)
        fail(l->rc, "launch: %s", l->why);
    return l->rc;
}
