/* tasks.c - the lines that tasks report to the launcher, written and read. */
#define _GNU_SOURCE
#include "tasks.h"

#include <math.h>
#include <unistd.h>

#include "cli.h"

/* The pipe does not block: a line is written whole (it is shorter than PIPE_BUF), or not at all. */
static void put(int fd, const char *line, int n)
{
    ssize_t done = n > 0 && n < TASK_LINE ? write(fd, line, (size_t)n) : 0;

    (void)done;
}

void report_stat(int fd, const struct task_stat *s)
{
    char line[TASK_LINE], loss[32] = "nan", stale[32] = "0";

    if (fd < 0)
        return;
    if (isfinite(s->loss))
        number_text(s->loss, false, loss);
    number_text(s->staleness, false, stale);
    put(fd, line,
        snprintf(line, sizeof line,
                 "stat step=%lld epoch=%lld loss=%s sent=%lld received=%lld messages=%lld "
                 "shards=%lld waited=%lld busy=%lld send_messages=%lld send_bytes=%lld "
                 "receive_messages=%lld receive_bytes=%lld staleness=%s staleness_most=%lld\n",
                 (long long)s->step, (long long)s->epoch, loss, (long long)s->sent,
                 (long long)s->received, (long long)s->messages, (long long)s->shards,
                 (long long)(s->waited_s * 1e6), (long long)(s->busy_s * 1e6),
                 (long long)s->send_messages, (long long)s->send_bytes,
                 (long long)s->receive_messages, (long long)s->receive_bytes, stale,
                 (long long)s->staleness_most));
}

void report_event(int fd, const char *task, const char *what)
{
    char line[TASK_LINE];

    if (fd >= 0)
        put(fd, line, snprintf(line, sizeof line, "event %.31s %.400s\n", task, what));
}

void report_note(int fd, const char *task, const char *what)
{
    char line[TASK_LINE];

    if (fd >= 0)
        put(fd, line, snprintf(line, sizeof line, "note %.31s %.400s\n", task, what));
}

bool report_add(int fd, const char *role, int n)
{
    char line[TASK_LINE];
    int bytes = snprintf(line, sizeof line, "add %.20s %d\n", role, n);

    return fd >= 0 && write(fd, line, (size_t)bytes) == bytes;
}

static void take_value(struct task_stat *s, const char *name, const char *value)
{
    const struct {
        const char *name;
        int64_t *to;
    } numbers[] = {{"step", &s->step},
                   {"epoch", &s->epoch},
                   {"sent", &s->sent},
                   {"received", &s->received},
                   {"messages", &s->messages},
                   {"shards", &s->shards},
                   {"send_messages", &s->send_messages},
                   {"send_bytes", &s->send_bytes},
                   {"receive_messages", &s->receive_messages},
                   {"receive_bytes", &s->receive_bytes},
                   {"staleness_most", &s->staleness_most}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(name, numbers[i].name))
            *numbers[i].to = strtoll(value, NULL, 10);
    if (!strcmp(name, "loss"))
        s->loss = strtod(value, NULL);
    if (!strcmp(name, "staleness"))
        s->staleness = strtod(value, NULL);
    if (!strcmp(name, "waited"))
        s->waited_s = (double)strtoll(value, NULL, 10) * 1e-6;
    if (!strcmp(name, "busy"))
        s->busy_s = (double)strtoll(value, NULL, 10) * 1e-6;
}

void report_wrote(int fd)
{
    if (fd >= 0)
        put(fd, "wrote\n", 6);
}

enum report_kind report_read(char *line, struct task_stat *s, const char **task, const char **what)
{
    char *at = line + strcspn(line, " "), *word, *rest = NULL;

    bool note = !strncmp(line, "note ", 5), add = !strncmp(line, "add ", 4);

    if (note || add || !strncmp(line, "event ", 6)) {
        char *blank = strchr(at + 1, ' ');

        if (!blank)
            return REPORT_NOTHING;
        *blank = '\0';
        *task = at + 1;
        *what = blank + 1;
        return add ? REPORT_ADD : note ? REPORT_NOTE : REPORT_EVENT;
    }
    if (!strcmp(line, "wrote"))
        return REPORT_WROTE;
    if (strncmp(line, "stat ", 5))
        return REPORT_NOTHING;
    *s = (struct task_stat){.loss = NAN};
    for (word = strtok_r(at, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');

        if (equals) {
            *equals = '\0';
            take_value(s, word, equals + 1);
        }
    }
    return REPORT_STAT;
}

bool task_parts(const char *task, char role[TASK_NAME], int *number)
{
    size_t n = strcspn(task, "/");
    char *end;
    long k;

    if (n == 0 || n >= TASK_NAME || task[n] != '/' || task[n + 1] < '0' || task[n + 1] > '9')
        return false;
    k = strtol(task + n + 1, &end, 10);
    if (*end || k > 1000000)
        return false;
    memcpy(role, task, n);
    role[n] = '\0';
    *number = (int)k;
    return true;
}
