/* launch_board.c - the counters of all tasks as curves of TensorBoard: the run `tasks` in
 * log.dir. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>

#include "launch.h"

#define EVERY_S 5.0

static int64_t job_step(const struct launch *l)
{
    int64_t step = 0;

    for (int i = 0; i < l->n_tasks; i++)
        if (!strcmp(l->task[i].role, "worker") && l->task[i].stat.step > step)
            step = l->task[i].stat.step;
    return step;
}

static weft_status put(struct launch *l, int64_t step, const char *what, const struct launched *t,
                       double value)
{
    char tag[96];

    snprintf(tag, sizeof tag, "%s/%s", what, t->name);
    for (char *c = strchr(tag, '/') + 1; *c; c++)
        *c = *c == '/' ? '-' : *c; /* one group for each counter */
    return weft_scalars_put(l->board, step, tag, value);
}

static weft_status put_task(struct launch *l, int64_t step, const struct launched *t)
{
    bool worker = !strcmp(t->role, "worker"), server = !strcmp(t->role, "ps");
    const struct {
        const char *name;
        int64_t value;
    } queues[] = {{"task_send_queue_messages", t->stat.send_messages},
                  {"task_send_queue_bytes", t->stat.send_bytes},
                  {"task_receive_queue_messages", t->stat.receive_messages},
                  {"task_receive_queue_bytes", t->stat.receive_bytes}};
    weft_status st = put(l, step, "task_bytes_per_second", t, bytes_a_second(t));

    if (!st)
        st = put(l, step, "task_bytes_total", t, (double)(t->stat.sent + t->stat.received));
    if (!st && worker)
        st = put(l, step, "task_samples_per_second", t, samples_a_second(l, t));
    if (!st && (worker || server))
        st = put(l, step, "task_waiting_share", t, waiting_share(t));
    if (!st && worker && is_stale(l))
        st = put(l, step, "task_staleness", t, t->stat.staleness);
    if (!st && server)
        st = put(l, step, "task_busy_share", t, busy_share(t));
    for (size_t i = 0; i < sizeof queues / sizeof *queues && !st; i++)
        st = put(l, step, queues[i].name, t, (double)queues[i].value);
    return st;
}

/* A board that cannot be written is no reason to stop. */
static void give_up(struct launch *l)
{
    show_event(l, "launch", "counters are not written to log.dir any more: %s", weft_error());
    board_close(l);
    l->board_off = true;
}

static weft_status open_board(struct launch *l)
{
    char dir[PATH_MAX];

    if (l->board)
        return WEFT_OK;
    snprintf(dir, sizeof dir, "%s/tasks", weft_job_text(l->job, "log.dir"));
    return weft_scalars_open(l->boot, dir, &l->board);
}

void board_tend(struct launch *l, bool now)
{
    const char *dir = weft_job_text(l->job, "log.dir");
    double clock = wall_clock(), wanted = 0;
    int64_t step = job_step(l);
    weft_status st;

    if (!dir || !*dir || l->board_off || step == 0 || (!now && clock - l->board_at < EVERY_S) ||
        weft_job_number(l->job, "log.tensorboard", &wanted) || wanted == 0)
        return;
    l->board_at = clock;
    st = open_board(l);
    for (int i = 0; i < l->n_tasks && !st; i++)
        if (l->task[i].stat_at > 0 && strcmp(l->task[i].role, "evaluator"))
            st = put_task(l, step, &l->task[i]);
    if (!st)
        st = weft_scalars_flush(l->board);
    if (st)
        give_up(l);
}

void board_close(struct launch *l)
{
    weft_scalars_close(l->board);
    l->board = NULL;
}
