/* node_eval.c - weft node as an evaluator: measures the checkpoints of a run until its last one.
 *
 * It has no links: it looks into the directory of checkpoints. SIGTERM means that training has
 * ended: one more look, and it ends, too. */
#define _GNU_SOURCE
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "node.h"

#define LOOK_S 0.5

static volatile sig_atomic_t last_look;

static void on_end(int sig)
{
    (void)sig;
    last_look = 1;
}

static void print_result(struct mine *m, const weft_follow_result *r)
{
    const struct node *n = m->n;
    char what[300];
    int at;

    m->stat.step = r->step;
    m->stat.epoch = r->epoch;
    m->stat.loss = r->logs.n ? r->logs.value[0] : 0;
    report_stat(n->report_fd, &m->stat);
    at = snprintf(what, sizeof what, "measured step %lld:", (long long)r->step);
    for (int i = 0; i < r->logs.n && at < (int)sizeof what - 80; i++)
        at += snprintf(what + at, sizeof what - (size_t)at, " %.40s %.4f", r->logs.name[i],
                       r->logs.value[i]);
    report_note(n->report_fd, m->name, what);
    if (n->j.quiet)
        return;
    if (n->j.json)
        printf("{\"evaluator\": \"%s\", \"step\": %lld, \"epoch\": %lld, ", r->part,
               (long long)r->step, (long long)r->epoch);
    else
        printf("%s at step %lld: ", r->part, (long long)r->step);
    print_logs(&r->logs, n->j.json);
    printf(n->j.json ? "}\n" : "\n");
    fflush(stdout);
}

/* A checkpoint that is complete when this is called is measured, also after SIGTERM. */
static int follow(struct mine *m, weft_follow *f)
{
    const struct node *n = m->n;
    double since = wall_clock();
    bool last;

    do {
        weft_follow_result r = {.size = sizeof r};
        weft_status st;

        last = last_look;
        st = weft_follow_next(f, &r);
        if (st)
            return fail_job(st);
        if (r.measured) {
            print_result(m, &r);
            since = wall_clock();
        }
        if (r.complete)
            return EXIT_DONE;
        if (!n->report && n->wait_minutes > 0 && wall_clock() - since > n->wait_minutes * 60.0)
            return fail(EXIT_FAILED,
                        "%s: no new checkpoint in %s for %d minutes, and the run is not complete; "
                        "--wait-minutes says how long to wait",
                        m->name, weft_job_text(n->j.job, "checkpoint.dir"), n->wait_minutes);
        if (!last && !last_look)
            nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_S * 1e9)}, NULL);
    } while (!last);
    return EXIT_DONE;
}

void node_evaluate(struct mine *m)
{
    struct node *n = m->n;
    const char *log = n->log ? n->log : "lines";
    struct sigaction end = {.sa_handler = on_end}; /* interrupts the wait */
    weft_follow *f = NULL;
    weft_status st;

    sigaction(SIGTERM, &end, NULL);
    signal(SIGINT, n->report ? SIG_IGN : SIG_DFL);
    n->j.json = !strcmp(log, "json");
    n->j.quiet = !strcmp(log, "none");
    n->j.hush = true;
    n->j.only_context = true;
    if (n->borrow) {
        node_lending(m, n->borrow);
        n->j.borrow = &m->lend;
    }
    m->rc = open_job(&n->j);
    if (!m->rc) {
        st = weft_follow_open(n->j.job, n->j.ctx, n->part, &f);
        m->rc = st ? fail_job(st) : follow(m, f);
    }
    weft_follow_free(f);
    close_job(&n->j, m->rc);
}
