/* events_test.c - what changes from one epoch to the next, as lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ps/events.h"

enum { CHIEF, PS0, PS1, PS2, W0, W1, N_TASKS, N_PIECES = 4 };

static const struct wf_task tasks[N_TASKS] = {{.name = "chief/0"},  {.name = "ps/0"},
                                              {.name = "ps/1"},     {.name = "ps/2"},
                                              {.name = "worker/0"}, {.name = "worker/1"}};
static const struct wf_spec spec = {.n_tasks = N_TASKS, .task = tasks};

static char told[2048];

static void tell(void *arg, const char *task, const char *what)
{
    size_t n = strlen(told);

    (void)arg;
    snprintf(told + n, sizeof told - n, "%s %s\n", task, what);
}

struct made {
    struct wf_epoch e;
    struct wf_member member[N_TASKS];
    struct wf_holders holders[N_PIECES];
};

/* Servers 0 and 1, both workers; pieces alternate. */
static void make(struct made *m)
{
    const int nodes[] = {PS0, PS1, W0, W1};

    memset(m, 0, sizeof *m);
    m->e = (struct wf_epoch){.term = 1,
                             .history = 1,
                             .number = 3,
                             .chief = CHIEF,
                             .n_members = 4,
                             .n_pieces = N_PIECES,
                             .member = m->member,
                             .holders = m->holders};
    for (int i = 0; i < 4; i++)
        m->member[i] =
            (struct wf_member){nodes[i], i < 2 ? WF_ROLE_SERVER : WF_ROLE_WORKER, 10, false};
    for (int i = 0; i < N_PIECES; i++)
        m->holders[i] = (struct wf_holders){i % 2 ? PS1 : PS0, i % 2 ? PS0 : PS1, WF_NOBODY, false};
}

static void compare_known(const struct made *was, const struct made *is,
                          const struct wf_epoch_known *known, const char *want)
{
    told[0] = '\0';
    wf_epoch_tell(&spec, known, was ? &was->e : NULL, &is->e, tell, NULL);
    assert_string_equal(told, want);
}

static void compare(const struct made *was, const struct made *is, const bool *finished,
                    const char *want)
{
    static const bool nobody[N_TASKS];
    struct wf_epoch_known known = {.finished = finished ? finished : nobody, .step = -1};

    told[0] = '\0';
    wf_epoch_tell(&spec, &known, was ? &was->e : NULL, &is->e, tell, NULL);
    assert_string_equal(told, want);
}

static bool goes(void *arg, const struct wf_member *m)
{
    return m->node == *(const int *)arg && m->incarnation == 10;
}

/* With the step that the chief knows, and what of it the task had. */
static void a_lost_task_is_named_with_what_it_held_up(void **state)
{
    static const bool nobody[N_TASKS];
    static int worker[3] = {W1, W1, W0};
    struct wf_epoch_known known = {.finished = nobody, .step = 41};
    struct made a, b;
    int drained = W1;

    (void)state;
    make(&a);
    make(&b);
    a.e.worker = b.e.worker = worker;
    a.e.n_shards = b.e.n_shards = 3;
    b.e.n_members = 3; /* without worker/1 */
    compare_known(
        &a, &b, &known,
        "worker/1 is gone: it died, was silent too long, or left; it held up what follows "
        "step 41, which needs its 2 shards\n");
    /* one that was asked to go is not lost */
    known.goes = goes;
    known.goes_arg = &drained;
    compare_known(&a, &b, &known, "worker/1 has handed over its work\n");
    a.member[3].incarnation = 9; /* another process of it */
    compare_known(
        &a, &b, &known,
        "worker/1 is gone: it died, was silent too long, or left; it held up what follows "
        "step 41, which needs its 2 shards\n");
}

static bool gone(void *arg, const struct wf_member *m, struct wf_gone *g)
{
    (void)m;
    *g = *(const struct wf_gone *)arg;
    return true;
}

/* How it went, and what its last beat said. */
static void a_lost_worker_is_named_with_what_it_did(void **state)
{
    static const bool nobody[N_TASKS];
    static int worker[3] = {W0, W1, W1};
    struct wf_gone how = {.how = WF_GONE_CLOSED, .doing = WF_DOES_COMPUTE, .step = 812, .shard = 2};
    struct wf_epoch_known known = {.finished = nobody, .gone = gone, .goes_arg = &how, .step = 41};
    struct made a, b;

    (void)state;
    make(&a);
    make(&b);
    a.e.worker = b.e.worker = worker;
    a.e.n_shards = b.e.n_shards = 3;
    b.e.n_members = 3; /* without worker/1 */
    compare_known(&a, &b, &known,
                  "worker/1 is gone (connection closed) while it computed shard 2 of step 812; "
                  "others compute its shards 1 to 2\n");
    how = (struct wf_gone){
        .how = WF_GONE_SILENT, .after_ns = 3100000000, .doing = WF_DOES_DECIDE, .step = 7};
    compare_known(&a, &b, &known,
                  "worker/1 is gone (silent for 3.1 s) while it ran callbacks, validation or "
                  "checkpoints before step 7; others compute its shards 1 to 2\n");
    how = (struct wf_gone){.how = WF_GONE_LEFT, .step = -1};
    worker[1] = W0;
    compare_known(&a, &b, &known, "worker/1 is gone (it left); others compute its shard 2\n");
    how = (struct wf_gone){
        .how = WF_GONE_STALLED, .after_ns = 61000000000, .doing = WF_DOES_READ, .step = 9};
    compare_known(&a, &b, &known,
                  "worker/1 is left out: alive, but without progress for 61 s while it was between "
                  "steps (it read data or parameters) before step 9; others compute its shard 2\n");
    make(&b);
    b.member[1].node = PS2; /* instead of server 1 */
    how = (struct wf_gone){.how = WF_GONE_CLOSED, .step = -1};
    known.step = -1;
    told[0] = '\0';
    wf_epoch_tell(&spec, &known, &a.e, &b.e, tell, NULL);
    assert_non_null(strstr(told, "ps/1 is gone (connection closed)\n"));
}

static void changes_are_told(void **state)
{
    struct made a, b;

    (void)state;
    make(&a);
    make(&b);
    compare(&a, &b, NULL, "");
    compare(NULL, &a, NULL, "ps/0 joined\nps/1 joined\nworker/0 joined\nworker/1 joined\n");
    b.e.n_members = 3; /* a worker is gone */
    compare(&a, &b, NULL, "worker/1 is gone: it died, was silent too long, or left\n");
    compare(&a, &b, (const bool[N_TASKS]){[W1] = true}, "");
    compare(&b, &a, NULL, "worker/1 joined\n");
    make(&b);
    b.member[3].incarnation = 11; /* started again */
    compare(&a, &b, NULL,
            "worker/1 is gone: it died, was silent too long, or left\nworker/1 joined\n");
}

static void promotions_moves_and_missing_backups_are_told(void **state)
{
    struct made a, b;

    (void)state;
    make(&a);
    make(&b);
    b.member[1].node = PS2; /* instead of server 1 */
    for (int i = 0; i < N_PIECES; i++)
        b.holders[i] = (struct wf_holders){PS0, WF_NOBODY, PS2, false};
    compare(&a, &b, NULL,
            "ps/1 is gone: it died, was silent too long, or left\nps/2 joined\n"
            "ps/0 was promoted: it is the primary of 2 pieces of ps/1\n"
            "chief/0 4 of 4 pieces have no backup until one is filled\n");
    a = b;
    a.e.member = a.member;
    a.e.holders = a.holders;
    for (int i = 0; i < N_PIECES; i++)
        b.holders[i] = (struct wf_holders){i ? PS0 : PS2, i ? PS2 : PS0, WF_NOBODY, false};
    compare(&a, &b, NULL,
            "ps/2 takes 1 of 4 pieces over from ps/0\nchief/0 every piece has a backup again\n");
}

static void a_restore_is_told(void **state)
{
    struct made a, b;

    (void)state;
    make(&a);
    make(&b);
    b.e.history = 2;
    b.e.start = 40;
    b.holders[0].primary = PS1;
    compare(&a, &b, NULL,
            "chief/0 parameters were lost: the job continues from step 40, history 2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_task_is_named_with_what_it_held_up),
        cmocka_unit_test(a_lost_worker_is_named_with_what_it_did),
        cmocka_unit_test(changes_are_told),
        cmocka_unit_test(promotions_moves_and_missing_backups_are_told),
        cmocka_unit_test(a_restore_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
