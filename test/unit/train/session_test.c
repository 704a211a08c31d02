/* Sessions: a custom loop that takes the steps of a fit one by one has its bits, alone, with
 * servers in the process, and as two workers of servers; hooks are called in their order; what was
 * stopped continues; failures end it. Coordinators: threads that end together. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/store_bytes.h"
#include "base/base.h"
#include "train/step/dist.h"
#include "weft/weft.h"

#define N 96
#define F 7
#define PER_EPOCH 8 /* batches of 12 */

static int n_shards = 2;

static char dir[64];
static float x[N][F];
static int32_t y[N];

static const char *in_dir(const char *name)
{
    static char path[2][128];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-session-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    for (int i = 0; i < N; i++) {
        y[i] = i * 7 % 3;
        for (int k = 0; k < F; k++)
            x[i][k] = (float)((i * 31 + k * 17) % 23) / 11 - (float)y[i];
    }
    return 0;
}

static int end(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void must(weft_status st)
{
    if (st)
        fail_msg("%s", weft_error());
}

/* ---- a program ------------------------------------------------------------------------------- */

struct program {
    weft_ctx *ctx;
    weft_dist *dist;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

/* ps: NULL for one process. */
static weft_status open_program(struct program *p, const weft_ps_opts *ps)
{
    weft_status st;
    weft_sym v;

    *p = (struct program){0};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 9), &p->ctx), 0);
    weft_model_new(p->ctx, NULL, &p->m);
    v = weft_input(p->m, "x", WEFT_F32, 1, (int64_t[]){F});
    v = weft_apply(p->m, "Dense", "units=16 activation=relu", v);
    v = weft_apply(p->m, "Dropout", "rate=0.3", v);
    weft_model_output(p->m, weft_apply(p->m, "Dense", "units=3", v));
    st = ps ? weft_dist_open_ps(p->ctx, ps, &p->dist) : WEFT_OK;
    if (!st && p->dist)
        st = weft_dist_scope(p->dist, p->m);
    if (!st)
        st = weft_compile(p->m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.01",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .metrics = "accuracy", .shards = n_shards),
                          &p->t);
    weft_data_new(p->ctx, &p->d);
    p->s =
        weft_ds_tensors(p->d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    return st;
}

static void close_program(struct program *p)
{
    weft_trainer_free(p->t);
    weft_data_free(p->d);
    weft_model_free(p->m);
    weft_dist_free(p->dist);
    weft_ctx_free(p->ctx);
}

static uint64_t bits_of(struct program *p)
{
    uint64_t h = 1469598103934665603u;
    size_t n;
    char *b;

    assert_int_equal(wf_dist_bring(p->t), 0);
    b = trainer_bytes(p->t, &n);
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)b[i]) * 1099511628211u;
    free(b);
    return h;
}

/* The bits of a plain loop over `steps` steps of one process. */
static uint64_t plain(int64_t steps)
{
    struct program p;
    uint64_t h;

    assert_int_equal(open_program(&p, NULL), 0);
    assert_int_equal(weft_fit(p.t, p.d, p.s,
                              WEFT_OPTS(weft_fit_opts, .epochs = steps / PER_EPOCH, .batch = 12),
                              NULL),
                     0);
    assert_int_equal(weft_trainer_step(p.t), steps);
    h = bits_of(&p);
    close_program(&p);
    return h;
}

/* Runs a session to its end; returns how many calls took a step. */
static int64_t loop(weft_session *s)
{
    int64_t n = 0, before = weft_session_step(s);
    weft_logs logs = {0, NULL, NULL};

    while (!weft_session_should_stop(s)) {
        if (weft_session_run(s, &logs))
            break;
        if (weft_session_step(s) > before) {
            n++;
            assert_true(weft_logs_get(&logs, "loss") > 0);
        }
        before = weft_session_step(s);
    }
    return n;
}

/* ---- one process ----------------------------------------------------------------------------- */

static void a_session_has_the_bits_of_fit(void **state)
{
    struct program p;
    weft_session *s;

    (void)state;
    assert_int_equal(open_program(&p, NULL), 0);
    assert_int_equal(weft_session_open(p.t, p.d, p.s,
                                       WEFT_OPTS(weft_session_opts, .batch = 12, .epochs = 3), &s),
                     0);
    assert_false(weft_session_restored(s));
    assert_true(weft_session_decides(s));
    assert_int_equal(weft_session_step(s), 0);
    assert_int_equal(loop(s), 3 * PER_EPOCH);
    assert_int_equal(weft_session_step(s), 3 * PER_EPOCH);
    assert_int_equal(weft_session_close(s), 0);
    assert_true(bits_of(&p) == plain(3 * PER_EPOCH));
    close_program(&p);
}

/* Asynchronous training has no batches by hand. */
static void asynchronous_batches_by_hand_are_refused(void **state)
{
    struct program p;
    float in[4 * F] = {0};
    int32_t label[4] = {0};
    weft_tensor xt = weft_view(WEFT_F32, in, 2, (int64_t[]){4, F}),
                yt = weft_view(WEFT_I32, label, 1, (int64_t[]){4});

    (void)state;
    assert_int_equal(
        open_program(&p, WEFT_OPTS(weft_ps_opts, .servers = 1, .consistency = "async")), 0);
    assert_int_equal(weft_train_on_batch(p.t, &xt, &yt, NULL, NULL), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "steps by hand"));
    close_program(&p);
}

/* Stopped in the middle of an epoch, at its end, and before a first step; each session goes on. */
static void what_was_stopped_continues(void **state)
{
    const int64_t last[] = {5, PER_EPOCH, PER_EPOCH, 2 * PER_EPOCH + 3, 3 * PER_EPOCH};
    const char *ckpt = in_dir("ckpt");
    int64_t at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        struct program p;
        weft_session *s;

        assert_int_equal(open_program(&p, NULL), 0);
        assert_int_equal(weft_session_open(p.t, p.d, p.s,
                                           WEFT_OPTS(weft_session_opts, .batch = 12,
                                                     .last_step = last[i], .checkpoint = ckpt),
                                           &s),
                         0);
        assert_int_equal(weft_session_step(s), at);
        assert_int_equal(weft_session_restored(s), at > 0);
        assert_int_equal(loop(s), last[i] - at);
        assert_int_equal(weft_session_close(s), 0);
        at = last[i];
        assert_int_equal(weft_trainer_step(p.t), at);
        if (at % PER_EPOCH == 0)
            assert_true(bits_of(&p) == plain(at));
        close_program(&p);
    }
}

static void a_session_that_is_closed_early_takes_no_further_step(void **state)
{
    struct program p;
    weft_session *s;

    (void)state;
    assert_int_equal(weft_session_close(NULL), 0);
    for (int steps = 0; steps < 3; steps++) {
        assert_int_equal(open_program(&p, NULL), 0);
        assert_int_equal(
            weft_session_open(p.t, p.d, p.s, WEFT_OPTS(weft_session_opts, .batch = 12), &s), 0);
        for (int i = 0; i < steps; i++)
            assert_int_equal(weft_session_run(s, NULL), 0);
        assert_int_equal(weft_session_close(s), 0);
        assert_int_equal(weft_trainer_step(p.t), steps);
        close_program(&p);
    }
}

/* ---- shard by shard -------------------------------------------------------------------------- */

/* One worker that reads what it wrote takes the steps of one process. It stops where it is told:
 * before the first epoch ends, where one ends, and later in the middle of one. */
static void an_asynchronous_session_stops_at_its_step_and_continues(void **state)
{
    const int64_t last[] = {
        5, PER_EPOCH, PER_EPOCH, 2 * PER_EPOCH + 3, 3 * PER_EPOCH, 4 * PER_EPOCH + 4};
    const char *ckpt = in_dir("leased");
    int64_t at = 0;

    (void)state;
    n_shards = 1;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        const weft_ps_opts o = {
            .size = sizeof o, .servers = 1 + (int)i % 2, .consistency = "stale(1)"};
        struct program p;
        weft_session *s;

        assert_int_equal(open_program(&p, &o), 0);
        must(weft_session_open(p.t, p.d, p.s,
                               WEFT_OPTS(weft_session_opts, .batch = 12, .last_step = last[i],
                                         .checkpoint = ckpt, .checkpoint_steps = 3),
                               &s));
        assert_int_equal(weft_session_restored(s), at > 0);
        assert_true(last[i] == at || weft_session_step(s) == at);
        assert_int_equal(loop(s), last[i] - at);
        must(weft_session_close(s));
        at = last[i];
        assert_int_equal(weft_trainer_step(p.t), at);
        if (at % PER_EPOCH == 0)
            assert_true(bits_of(&p) == plain(at));
        close_program(&p);
    }
    n_shards = 2;
}

static weft_status change_a_weight(void *arg, weft_session *s)
{
    weft_tensor w;

    if (weft_session_step(s) < *(int *)arg)
        return WEFT_OK;
    if (weft_trainer_weight(weft_session_trainer(s), "dense/kernel", &w))
        return WEFT_EBUG;
    ((float *)w.data)[3] += 1;
    return WEFT_OK;
}

/* What a hook reads is what the last shard was computed from; what it writes would be lost. */
static weft_status read_a_weight(void *arg, weft_session *s, const weft_logs *logs)
{
    weft_tensor w;

    (void)arg;
    (void)logs;
    return weft_trainer_weight(weft_session_trainer(s), "dense/kernel", &w);
}

static void an_asynchronous_session_takes_no_values_from_hooks(void **state)
{
    for (int from = 0; from < 4; from++) {
        const weft_hook hooks[] = {
            {.size = sizeof *hooks, .name = "reads", .after_run = read_a_weight},
            {.size = sizeof *hooks,
             .name = "writes",
             .arg = &from,
             .created = change_a_weight,
             .before_run = change_a_weight}};
        struct program p;
        weft_session *s = NULL;

        (void)state;
        assert_int_equal(
            open_program(&p, WEFT_OPTS(weft_ps_opts, .servers = 2, .consistency = "async")), 0);
        must(weft_session_open(
            p.t, p.d, p.s,
            WEFT_OPTS(weft_session_opts, .batch = 12, .last_step = 3, .n_hooks = 2, .hooks = hooks),
            &s));
        loop(s);
        if (from < 3) {
            assert_int_equal(weft_session_close(s), WEFT_ENOSUP);
            assert_non_null(strstr(weft_error(), "take no new values"));
        } else {
            must(weft_session_close(s));
            assert_int_equal(weft_trainer_step(p.t), 3);
        }
        close_program(&p);
    }
}

static weft_status say_when(void *arg, weft_session *s, const weft_logs *logs)
{
    (void)logs;
    if (weft_session_step(s) >= *(int *)arg)
        weft_session_request_stop(s);
    return WEFT_OK;
}

/* By a hook, or after so many steps: shards that are out are finished first. */
static void an_asynchronous_session_stops_when_it_is_asked(void **state)
{
    int when = 11;
    const weft_hook hook = {
        .size = sizeof hook, .name = "stop", .arg = &when, .after_run = say_when};

    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        struct program p;
        weft_session *s;

        assert_int_equal(
            open_program(&p, WEFT_OPTS(weft_ps_opts, .servers = 2, .consistency = "async")), 0);
        must(weft_session_open(p.t, p.d, p.s,
                               WEFT_OPTS(weft_session_opts, .batch = 12, .n_steps = asked ? 0 : 11,
                                         .n_hooks = asked, .hooks = &hook),
                               &s));
        loop(s);
        must(weft_session_close(s));
        assert_in_range(weft_trainer_step(p.t), 11, 3 * PER_EPOCH);
        close_program(&p);
    }
}

/* ---- hooks ----------------------------------------------------------------------------------- */

struct noted {
    char id, *to;
    int64_t stop_at, fail_at;
};

static void note(struct noted *n, char what)
{
    size_t at = strlen(n->to);

    n->to[at] = n->id;
    n->to[at + 1] = what;
    n->to[at + 2] = ' ';
    n->to[at + 3] = '\0';
}

static weft_status note_begin(void *arg, weft_trainer *t)
{
    assert_int_equal(weft_trainer_step(t), 0);
    note(arg, 'b');
    return WEFT_OK;
}

static weft_status note_created(void *arg, weft_session *s)
{
    assert_non_null(weft_session_trainer(s));
    note(arg, 'c');
    return WEFT_OK;
}

static weft_status note_before(void *arg, weft_session *s)
{
    const struct noted *n = arg;

    note(arg, '<');
    if (n->fail_at && weft_session_step(s) == n->fail_at)
        return wf_err(WEFT_EINVAL, "no luck");
    return WEFT_OK;
}

static weft_status note_after(void *arg, weft_session *s, const weft_logs *logs)
{
    const struct noted *n = arg;

    assert_true(logs->n >= 2);
    note(arg, '>');
    if (n->stop_at && weft_session_step(s) == n->stop_at)
        weft_session_request_stop(s);
    return WEFT_OK;
}

static weft_status note_end(void *arg, weft_session *s)
{
    (void)s;
    note(arg, 'e');
    return WEFT_OK;
}

static weft_hook hook(struct noted *n)
{
    return (weft_hook){.size = sizeof(weft_hook),
                       .name = n->id == 'A' ? "first" : "second",
                       .arg = n,
                       .begin = note_begin,
                       .created = note_created,
                       .before_run = note_before,
                       .after_run = note_after,
                       .end = note_end};
}

static weft_status try_hooks(struct noted *a, struct noted *b, int64_t *steps)
{
    const weft_hook hooks[] = {hook(a), hook(b)};
    struct program p;
    weft_session *s;
    weft_status st;

    assert_int_equal(open_program(&p, NULL), 0);
    assert_int_equal(weft_session_open(p.t, p.d, p.s,
                                       WEFT_OPTS(weft_session_opts, .batch = 12, .n_steps = 4,
                                                 .n_hooks = 2, .hooks = hooks),
                                       &s),
                     0);
    loop(s);
    *steps = weft_session_step(s);
    st = weft_session_close(s);
    close_program(&p);
    return st;
}

static void hooks_are_called_in_their_order(void **state)
{
    char text[300] = "";
    struct noted a = {.id = 'A', .to = text, .stop_at = 2}, b = {.id = 'B', .to = text};
    int64_t steps;

    (void)state;
    assert_int_equal(try_hooks(&a, &b, &steps), 0);
    assert_int_equal(steps, 2);
    assert_string_equal(text, "Ab Bb Ac Bc A< B< A> B> A< B< A> B> Ae Be ");
}

static void a_hook_that_fails_ends_the_session(void **state)
{
    char text[300] = "";
    struct noted a = {.id = 'A', .to = text, .fail_at = 1}, b = {.id = 'B', .to = text};
    int64_t steps;

    (void)state;
    assert_true(try_hooks(&a, &b, &steps) != WEFT_OK);
    assert_non_null(strstr(weft_error(), "hook 'first': "));
    assert_int_equal(steps, 1);
    assert_string_equal(text, "Ab Bb Ac Bc A< B< A> B> A< "); /* no end */
}

/* ---- settings -------------------------------------------------------------------------------- */

static weft_status say_ready(void *arg, weft_trainer *t, bool *ready)
{
    int *left = arg;

    assert_int_equal(weft_trainer_step(t), 0);
    *ready = --*left == 0;
    return *left < -3 ? wf_err(WEFT_EINVAL, "asked for too long") : WEFT_OK;
}

/* Everything below one directory; training begins when the check says so; the model is saved. */
static void a_model_dir_has_everything(void **state)
{
    const char *folder = in_dir("everything");
    char save[200], path[200];
    int left = 3, loaded = 0;
    struct program p;
    weft_session *s;

    (void)state;
    snprintf(save, sizeof save, "%s.safetensors", folder);
    assert_int_equal(open_program(&p, NULL), 0);
    assert_int_equal(
        weft_session_open(p.t, p.d, p.s,
                          WEFT_OPTS(weft_session_opts, .batch = 12, .last_step = 5,
                                    .model_dir = folder, .checkpoint_steps = 2, .ready = say_ready,
                                    .ready_arg = &left, .save = save),
                          &s),
        0);
    assert_int_equal(left, 0);
    assert_int_equal(loop(s), 5);
    assert_int_equal(weft_session_close(s), 0);
    assert_int_equal(weft_trainer_load_weights(p.t, save, NULL, &loaded), 0);
    assert_int_equal(loaded, 4);
    snprintf(path, sizeof path, "%s/ckpt/ckpt-000000004/manifest.json", folder);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path,
             "ls %s/logs/*tfevents* >/dev/null || ls %s/logs/*/*tfevents* >/dev/null", folder,
             folder);
    assert_int_equal(system(path), 0);
    close_program(&p);
}

static void a_check_that_never_says_yes_ends_the_session(void **state)
{
    struct program p;
    weft_session *s = NULL;
    int left = 1000;

    (void)state;
    assert_int_equal(open_program(&p, NULL), 0);
    assert_int_equal(weft_session_open(p.t, p.d, p.s,
                                       WEFT_OPTS(weft_session_opts, .batch = 12, .ready = say_ready,
                                                 .ready_arg = &left, .ready_s = 0.5),
                                       &s),
                     WEFT_ETIME);
    assert_non_null(strstr(weft_error(), "within 0.5 s"));
    left = 0; /* it fails after a few questions */
    assert_int_equal(weft_session_open(p.t, p.d, p.s,
                                       WEFT_OPTS(weft_session_opts, .batch = 12, .ready = say_ready,
                                                 .ready_arg = &left),
                                       &s),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "the check `ready`"));
    assert_null(s);
    close_program(&p);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static weft_status fail_to_init(void *arg, weft_trainer *t)
{
    (void)t;
    *(int *)arg += 1;
    return wf_err(WEFT_EINVAL, "no luck");
}

static void wrong_sessions_are_refused(void **state)
{
    int calls = 0;
    const struct {
        weft_session_opts o;
        const char *says;
    } wrong[] = {
        {{.last_step = 3, .n_steps = 2}, "give one of them"},
        {{.last_step = -1}, "negative"},
        {{.n_hooks = 1}, "none are given"},
        {{.ready_s = -1}, "ready_s -1"},
        {{.batch = -3}, "batch"},
        {{.checkpoint = "/proc/none"}, "/proc/none"},
        {{.init = fail_to_init, .init_arg = &calls}, ""},
    };
    struct program p;
    weft_session *s = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_session_opts o = wrong[i].o;

        assert_int_equal(open_program(&p, NULL), 0);
        o.size = sizeof o;
        assert_true(weft_session_open(p.t, p.d, p.s, &o, &s) != WEFT_OK);
        if (!strstr(weft_error(), wrong[i].says))
            fail_msg("'%s' lacks '%s'", weft_error(), wrong[i].says);
        assert_null(s);
        close_program(&p);
    }
    assert_int_equal(calls, 1);
}

/* ---- parameter servers ----------------------------------------------------------------------- */

static void servers_in_the_process_change_nothing(void **state)
{
    const weft_ps_opts o = {.size = sizeof o, .servers = 2};
    struct program p;
    weft_session *s;

    (void)state;
    assert_int_equal(open_program(&p, &o), 0);
    assert_int_equal(
        weft_session_open(p.t, p.d, p.s,
                          WEFT_OPTS(weft_session_opts, .batch = 12, .n_steps = 2 * PER_EPOCH), &s),
        0);
    assert_int_equal(loop(s), 2 * PER_EPOCH);
    assert_int_equal(weft_session_close(s), 0);
    assert_true(bits_of(&p) == plain(2 * PER_EPOCH));
    close_program(&p);
}

struct task {
    const char *cluster, *ckpt;
    char name[16];
    int64_t last, step;
    uint64_t bits;
    bool decided;
    weft_status st;
    char why[300];
    pthread_t thread;
};

static weft_status work(struct task *k)
{
    const weft_ps_opts o = {.size = sizeof o, .cluster = k->cluster, .task = k->name};
    struct program p;
    weft_session *s = NULL;
    weft_status st = open_program(&p, &o), closed;

    if (!st)
        st = weft_session_open(p.t, p.d, p.s,
                               WEFT_OPTS(weft_session_opts, .batch = 12, .last_step = k->last,
                                         .checkpoint = k->ckpt, .checkpoint_steps = 5),
                               &s);
    if (s)
        loop(s);
    k->decided = s && weft_session_decides(s);
    closed = weft_session_close(s);
    st = st ? st : closed;
    k->step = weft_trainer_step(p.t);
    if (!st && k->decided)
        k->bits = bits_of(&p);
    if (st)
        snprintf(k->why, sizeof k->why, "%s", weft_error());
    close_program(&p);
    return st;
}

static void *run_task(void *arg)
{
    struct task *k = arg;
    weft_ctx *ctx;

    if (strncmp(k->name, "worker", 6) == 0) {
        k->st = work(k);
        return NULL;
    }
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    k->st = weft_ps_serve(ctx, WEFT_OPTS(weft_ps_opts, .cluster = k->cluster, .task = k->name));
    if (k->st)
        snprintf(k->why, sizeof k->why, "%s", weft_error());
    weft_ctx_free(ctx);
    return NULL;
}

/* A chief, a server and two workers, as threads, job after job: each resumes, and one has
 * nothing to do. */
static void workers_stop_at_a_step_and_resume(void **state)
{
    const int64_t last[] = {6, 6, PER_EPOCH, 2 * PER_EPOCH};
    char cluster[200];
    const char *ckpt = in_dir("served");

    (void)state;
    for (int run = 0; run < 4; run++) {
        struct task task[4] = {
            {.name = "chief/0"}, {.name = "ps/0"}, {.name = "worker/0"}, {.name = "worker/1"}};
        int n_decided = 0;

        snprintf(cluster, sizeof cluster, "chief=uds:%s/c%d;ps=uds:%s/p%d;worker=2", dir, run, dir,
                 run);
        for (int i = 0; i < 4; i++) {
            task[i].cluster = cluster;
            task[i].ckpt = ckpt;
            task[i].last = last[run];
            assert_int_equal(pthread_create(&task[i].thread, NULL, run_task, &task[i]), 0);
        }
        for (int i = 0; i < 4; i++)
            pthread_join(task[i].thread, NULL);
        for (int i = 0; i < 4; i++) {
            if (task[i].st)
                fail_msg("run %d, %s: %s", run, task[i].name, task[i].why);
            n_decided += task[i].decided;
            if (i >= 2)
                assert_int_equal(task[i].step, last[run]);
            if (task[i].decided && last[run] % PER_EPOCH == 0)
                assert_true(task[i].bits == plain(last[run]));
        }
        assert_int_equal(n_decided, last[run] > (run ? last[run - 1] : 0));
    }
}

/* ---- coordinators ---------------------------------------------------------------------------- */

static weft_status wait_for_stop(void *arg, weft_coord *c)
{
    *(int *)arg = weft_coord_wait(c, 60);
    return WEFT_OK;
}

static weft_status ask_for_stop(void *arg, weft_coord *c)
{
    (void)arg;
    weft_coord_request_stop(c, WEFT_OK, NULL);
    return WEFT_OK;
}

static weft_status fails(void *arg, weft_coord *c)
{
    (void)arg;
    (void)c;
    return wf_err(WEFT_EINVAL, "no luck");
}

static weft_status never_looks(void *arg, weft_coord *c)
{
    (void)c;
    while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE))
        usleep(1000);
    return WEFT_OK;
}

static void threads_end_together(void **state)
{
    weft_ctx *ctx;
    weft_coord *c;
    int seen[2] = {0, 0}, let_go = 0;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_coord_new(ctx, &c), 0);
    assert_false(weft_coord_should_stop(c));
    assert_false(weft_coord_wait(c, 0.01));
    assert_int_equal(weft_coord_start(c, wait_for_stop, &seen[0]), 0);
    assert_int_equal(weft_coord_start(c, wait_for_stop, &seen[1]), 0);
    assert_int_equal(weft_coord_start(c, ask_for_stop, NULL), 0);
    assert_int_equal(weft_coord_join(c, 30), 0);
    assert_int_equal(seen[0] + seen[1], 2);
    assert_true(weft_coord_should_stop(c));
    weft_coord_free(c);

    assert_int_equal(weft_coord_new(ctx, &c), 0); /* the first failure is that of all */
    assert_int_equal(weft_coord_start(c, never_looks, &let_go), 0);
    assert_int_equal(weft_coord_start(c, fails, NULL), 0);
    assert_int_equal(weft_coord_join(c, 0.05), WEFT_ETIME);
    assert_non_null(strstr(weft_error(), "1 threads did not end within 0.05 s"));
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    weft_coord_request_stop(c, WEFT_EIO, "too late to count");
    assert_int_equal(weft_coord_join(c, 30), WEFT_EINVAL);
    assert_null(strstr(weft_error(), "too late"));
    weft_coord_free(c);
    weft_coord_free(NULL);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_has_the_bits_of_fit),
        cmocka_unit_test(asynchronous_batches_by_hand_are_refused),
        cmocka_unit_test(an_asynchronous_session_stops_at_its_step_and_continues),
        cmocka_unit_test(an_asynchronous_session_takes_no_values_from_hooks),
        cmocka_unit_test(an_asynchronous_session_stops_when_it_is_asked),
        cmocka_unit_test(what_was_stopped_continues),
        cmocka_unit_test(a_session_that_is_closed_early_takes_no_further_step),
        cmocka_unit_test(hooks_are_called_in_their_order),
        cmocka_unit_test(a_hook_that_fails_ends_the_session),
        cmocka_unit_test(a_model_dir_has_everything),
        cmocka_unit_test(a_check_that_never_says_yes_ends_the_session),
        cmocka_unit_test(wrong_sessions_are_refused),
        cmocka_unit_test(servers_in_the_process_change_nothing),
        cmocka_unit_test(workers_stop_at_a_step_and_resume),
        cmocka_unit_test(threads_end_together),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
