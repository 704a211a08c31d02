/* launch_show.c - what a person sees of a launched job: lines, and on a terminal a table below them
 * that is repainted; and the event log. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

#define PAINT_S 0.25
enum { MIN_RECENT = 4 }; /* rows that tasks leave to events */

/* ---- rates ----------------------------------------------------------------------------------- */

static double between(const struct launched *t)
{
    return t->before_at > 0 ? t->stat_at - t->before_at : 0;
}

double steps_a_second(const struct launched *t)
{
    return between(t) > 0 ? (double)(t->stat.step - t->before.step) / between(t) : 0;
}

double samples_a_second(const struct launch *l, const struct launched *t)
{
    double n = (double)(t->stat.shards - t->before.shards);

    return between(t) > 0 && n > 0 ? n * l->shard_samples / between(t) : 0;
}

double bytes_a_second(const struct launched *t)
{
    int64_t n = t->stat.sent + t->stat.received - t->before.sent - t->before.received;

    return between(t) > 0 && n > 0 ? (double)n / between(t) : 0;
}

static double share_of(const struct launched *t, double seconds)
{
    double share = between(t) > 0 ? seconds / between(t) : 0;

    return share < 0 ? 0 : share > 1 ? 1 : share;
}

double waiting_share(const struct launched *t)
{
    return share_of(t, t->stat.waited_s - t->before.waited_s);
}

bool is_stale(const struct launch *l)
{
    const char *text = weft_job_text(l->job, "cluster.consistency");

    return text && strcmp(text, "sync") != 0;
}

/* The mean of all workers that run. */
static double mean_staleness(const struct launch *l)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < l->n_tasks; i++)
        if (!strcmp(l->task[i].role, "worker") && l->task[i].state == TASK_RUNS) {
            sum += l->task[i].stat.staleness;
            n++;
        }
    return n ? sum / n : 0;
}

double busy_share(const struct launched *t)
{
    return share_of(t, t->stat.busy_s - t->before.busy_s);
}

const char *state_word(const struct launched *t)
{
    switch (t->state) {
    case TASK_WAITS: return "starting";
    case TASK_RUNS: return "running";
    case TASK_REMOTE: return "elsewhere";
    case TASK_DONE: return "done";
    case TASK_OUT: return "out";
    case TASK_DRAINED: return "drained";
    }
    return "?";
}

/* What needs a look is colored. */
#define END_COLOR "\033[0m"

static const char *state_color(const struct launched *t)
{
    return t->state == TASK_WAITS  ? "\033[33m"
           : t->state == TASK_OUT  ? "\033[31m"
           : t->state == TASK_RUNS ? "\033[32m"
                                   : "\033[0m";
}

/* ---- the table ------------------------------------------------------------------------------- */

static int screen_rows(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* per: "/s", or "". */
static const char *amount(double bytes, const char *per, char text[16])
{
    static const char *const units[] = {"B", "kB", "MB", "GB"};
    int u = 0;

    while (bytes >= 999.5 && u < 3) {
        bytes /= 1000;
        u++;
    }
    snprintf(text, 16, bytes < 9.95 && u ? "%.1f %s%s" : "%.0f %s%s", bytes, units[u], per);
    return text;
}

/* A narrow screen has no queues. */
static int queued_width(void)
{
    return screen_columns() >= 85 ? 9 : 0;
}

static void task_row(const struct launch *l, const struct launched *t, char *to, size_t size)
{
    bool computes = !strcmp(t->role, "worker"), evaluates = !strcmp(t->role, "evaluator");
    bool waits = computes || !strcmp(t->role, "ps");
    char step[24] = "", rate[24] = "", loss[24] = "", wait[16] = "", bytes[16] = "",
         queued[16] = "";

    if ((computes || (evaluates && t->stat.step > 0)) && t->stat_at > 0) {
        snprintf(step, sizeof step, "%lld", (long long)t->stat.step);
        if (isfinite(t->stat.loss))
            snprintf(loss, sizeof loss, "%.4f", t->stat.loss);
    }
    if (computes && t->state == TASK_RUNS && between(t) > 0)
        snprintf(rate, sizeof rate, "%.0f", samples_a_second(l, t));
    if (waits && t->state == TASK_RUNS && between(t) > 0)
        snprintf(wait, sizeof wait, "%.0f %%", 100 * waiting_share(t));
    if (!evaluates && t->state == TASK_RUNS && between(t) > 0) {
        amount(bytes_a_second(t), "/s", bytes);
        amount((double)(t->stat.send_bytes + t->stat.receive_bytes), "", queued);
    }
    snprintf(to, size, "%-12s %s%-9s%s %9s %10s %9s %10s %8s%*s", t->name, state_color(t),
             state_word(t), END_COLOR, step, rate, loss, bytes, wait, queued_width(),
             queued_width() ? queued : "");
}

/* The worker that has seen the most steps speaks for the job. */
static const struct launched *foremost(const struct launch *l)
{
    const struct launched *found = NULL;

    for (int i = 0; i < l->n_tasks; i++) {
        const struct launched *t = &l->task[i];

        if (!strcmp(t->role, "worker") && t->stat_at > 0 &&
            (!found || t->stat.step > found->stat.step))
            found = t;
    }
    return found;
}

static void head_row(const struct launch *l, char *to, size_t size)
{
    const struct launched *t = foremost(l);
    const char *name = weft_job_text(l->job, "name");
    double rate = 0;
    int seconds = (int)(wall_clock() - l->screen.opened), n;

    for (int i = 0; i < l->n_tasks; i++)
        if (l->task[i].state == TASK_RUNS)
            rate += samples_a_second(l, &l->task[i]);
    n = snprintf(to, size, "\033[1m%.40s\033[0m  %d:%02d", name && *name ? name : l->j.path,
                 seconds / 60, seconds % 60);
    if (!t) {
        snprintf(to + n, size - (size_t)n, "  starting");
        return;
    }
    n += snprintf(to + n, size - (size_t)n, "  epoch %lld/%lld  step %lld",
                  (long long)t->stat.epoch, (long long)l->epochs, (long long)t->stat.step);
    if (rate > 0)
        n += snprintf(to + n, size - (size_t)n, "  %.0f samples/s", rate);
    if (isfinite(t->stat.loss))
        n += snprintf(to + n, size - (size_t)n, "  loss %.4f", t->stat.loss);
    if (is_stale(l))
        snprintf(to + n, size - (size_t)n, "  staleness %.1f", mean_staleness(l));
}

static void erase(struct launch *l)
{
    if (l->screen.height > 0)
        printf("\033[%dA\r\033[J", l->screen.height);
    l->screen.height = 0;
}

static void paint_row(struct launch *l, const char *text)
{
    char fitted[512];

    screen_fit(text, screen_columns() - 1, l->screen.colors, fitted, sizeof fitted);
    printf("%s\n", fitted);
    l->screen.height++;
}

static void paint_tasks(struct launch *l, int room)
{
    int left_out = 0;
    char row[256];

    for (int i = 0; i < l->n_tasks; i++) {
        if (l->screen.height >= room) {
            left_out++;
            continue;
        }
        task_row(l, &l->task[i], row, sizeof row);
        paint_row(l, row);
    }
    if (left_out) {
        snprintf(row, sizeof row, "… and %d more tasks", left_out);
        paint_row(l, row);
    }
}

/* Events get what tasks leave: four rows, unless the screen is tiny. */
static void paint_events(struct launch *l)
{
    int room = screen_rows() - 1 - l->screen.height, from = 0;

    room = room < 0 ? 0 : room;
    if (room < N_RECENT)
        from = N_RECENT - room;
    for (int i = from; i < N_RECENT; i++)
        if (*l->recent[i])
            paint_row(l, l->recent[i]);
}

void show_paint(struct launch *l, bool now)
{
    double clock = wall_clock();
    char row[256];

    if (!l->screen.live || (!now && clock - l->screen.painted < PAINT_S))
        return;
    l->screen.painted = clock;
    erase(l);
    head_row(l, row, sizeof row);
    paint_row(l, row);
    snprintf(row, sizeof row, "%-12s %-9s %9s %10s %9s %10s %8s%*s", "task", "state", "step",
             "samples/s", "loss", "bytes", "waiting", queued_width(),
             queued_width() ? "queued" : "");
    paint_row(l, row);
    paint_tasks(l, screen_rows() - 2 - MIN_RECENT);
    paint_events(l);
    fflush(stdout);
}

/* ---- lines ----------------------------------------------------------------------------------- */

void show_line(struct launch *l, const struct launched *t, const char *line, bool error)
{
    bool named = t && (strcmp(t->role, "worker") || t->number != 0) &&
                 (error || !l->log || strcmp(l->log, "json"));

    erase(l);
    fflush(stdout);
    fprintf(error ? stderr : stdout, "%s%s%s%s\n", named ? "[" : "", named ? t->name : "",
            named ? "] " : "", line);
    errno = 0;
    if (fflush(error ? stderr : stdout) && errno == EPIPE && !error)
        l->unread = true;
    if (l->screen.live)
        show_paint(l, true);
}

/* To the event log, and on a screen to the last events. */
static void keep_event(struct launch *l, const char *task, const char *what)
{
    char line[512], stamp[32];
    struct timespec now;
    struct tm utc, here;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(line, sizeof line, "%s.%03ldZ %-10s %s", stamp, now.tv_nsec / 1000000, task, what);
    if (l->event_file) {
        fprintf(l->event_file, "%s\n", line);
        fflush(l->event_file);
    }
    if (!l->screen.live)
        return;
    memmove(l->recent[0], l->recent[1], sizeof l->recent - sizeof l->recent[0]);
    localtime_r(&now.tv_sec, &here);
    strftime(stamp, sizeof stamp, "%H:%M:%S", &here);
    snprintf(l->recent[N_RECENT - 1], sizeof l->recent[0], "%s %s %s", stamp, task, what);
    show_paint(l, true);
}

void show_event(struct launch *l, const char *task, const char *fmt, ...)
{
    char what[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    for (char *c = what; *c; c++) /* one line, whatever a message has */
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    keep_event(l, task, what);
    if (!l->screen.live)
        fprintf(stderr, "%s %s\n", task, what);
}

void show_note(struct launch *l, const char *task, const char *what)
{
    keep_event(l, task, what);
}

/* ---- life ------------------------------------------------------------------------------------ */

void show_open(struct launch *l)
{
    const char *no_color = getenv("NO_COLOR");

    l->screen.opened = wall_clock();
    l->screen.colors = !no_color || !*no_color;
    l->screen.live = screen_has_bar() && (!l->log || !strcmp(l->log, "lines"));
}

void show_close(struct launch *l)
{
    l->screen.live = false;
    l->screen.height = 0;
    fflush(stdout);
}
