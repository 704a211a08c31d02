/* tasks.h - what `weft launch` and the tasks that it starts share.
 *
 * A task reports to the launcher by lines in a pipe:
 *   stat step=12 epoch=1 loss=0.53 sent=4096 received=4096 messages=7 shards=24 waited=250000
 *   busy=0
 *       send_messages=1 send_bytes=4096 receive_messages=0 receive_bytes=0      (in one line)
 *       staleness=0.78 staleness_most=4                        (in asynchronous training)
 *   event ps/1 was promoted: …
 *   note worker/0 wrote 2 checkpoints
 *   add worker 2
 *   wrote
 * A line that does not fit into the pipe is left out: a task never waits for the launcher. */
#ifndef WEFT_CLI_TASKS_H
#define WEFT_CLI_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TASK_NAME = 32,
    TASK_LINE = 512, /* of the pipe, at most */
    EXIT_LOST = 75   /* a worker that can no longer take part: the job continued without it */
};

struct task_stat {
    int64_t step, epoch;
    double loss; /* NAN: not known */
    int64_t sent, received, messages, shards;
    double waited_s, busy_s;
    /* Queues as they are now: see weft_dist_counts. */
    int64_t send_messages, send_bytes, receive_messages, receive_bytes;
    double staleness; /* likewise */
    int64_t staleness_most;
};

/* Writes a line to a pipe; fd < 0: nowhere. */
void report_stat(int fd, const struct task_stat *s);
void report_event(int fd, const char *task, const char *what);
/* The same for what happens often: it is for the event log, and not worth a line elsewhere. */
void report_note(int fd, const char *task, const char *what);
/* Of a chief: so many further tasks of a role are wanted. false: the line does not fit now. */
bool report_add(int fd, const char *role, int n);
/* Of the worker that decides: everything that the run writes at its end is there. Of any: the
 * run was asked to stop before its end. */
void report_wrote(int fd);
/* Reads a line, without its end: what it is, or 0 if it is neither. The event's parts, or
 * the role and the number that are to be added, point into the line. */
enum report_kind {
    REPORT_NOTHING,
    REPORT_STAT,
    REPORT_EVENT,
    REPORT_NOTE,
    REPORT_ADD,
    REPORT_WROTE
};
enum report_kind report_read(char *line, struct task_stat *s, const char **task, const char **what);

/* The role of "ps/1" and its number; false: it is not a task. */
bool task_parts(const char *task, char role[TASK_NAME], int *number);

#endif
