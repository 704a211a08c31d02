/* writer_test.c - the thread that writes while training continues: snapshots are copies, one at a
 * time, failures are told once, counters count. The seam lets a test hold the disk still. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../support/ckpt_sample.h"
#include "ckpt/ckpt.h"

/* A disk whose renames wait while `held`, and fail on demand. */
struct gate {
    struct wf_fs fs;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held, waiting;
    int fail;        /* errno of the next rename */
    int fail_delete; /* of all renames that begin a deletion */
};

/* Waits at the gate; 0, or the error that the rename shall end with. */
static int pass(struct gate *g, bool deletes)
{
    int fail;

    pthread_mutex_lock(&g->mutex);
    g->waiting = true;
    pthread_cond_broadcast(&g->changed);
    while (g->held)
        pthread_cond_wait(&g->changed, &g->mutex);
    g->waiting = false;
    fail = deletes ? g->fail_delete : g->fail;
    g->fail = 0;
    pthread_mutex_unlock(&g->mutex);
    return -fail;
}

static int gate_rename(void *arg, const char *from, const char *to)
{
    int rc = pass(arg, strstr(to, "/" WF_CKPT_DEL) != NULL);

    return rc ? rc : wf_fs_posix.rename(NULL, from, to);
}

static int gate_rename_at(void *arg, int dir, const char *from, const char *to)
{
    int rc = pass(arg, false);

    return rc ? rc : wf_fs_posix.rename_at(NULL, dir, from, to);
}

static void gate_set(struct gate *g, bool held)
{
    pthread_mutex_lock(&g->mutex);
    g->held = held;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

/* Until the writer's thread stands at the gate. */
static void gate_wait(struct gate *g)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->waiting)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

struct room {
    weft_ctx *ctx;
    char dir[64];
    struct sample_log log;
    struct gate gate;
    int64_t memory;
    int64_t now; /* a clock of our own, a tick a look */
    pthread_mutex_t clock;
};

static int64_t tick(void *arg)
{
    struct room *r = arg;
    int64_t now;

    pthread_mutex_lock(&r->clock);
    now = r->now += 1000;
    pthread_mutex_unlock(&r->clock);
    return now;
}

static int open_room(void **state)
{
    struct room *r = calloc(1, sizeof *r);

    temp_make(r->dir);
    pthread_mutex_init(&r->clock, NULL);
    pthread_mutex_init(&r->gate.mutex, NULL);
    pthread_cond_init(&r->gate.changed, NULL);
    r->gate.fs = wf_fs_posix;
    r->gate.fs.rename = gate_rename;
    r->gate.fs.rename_at = gate_rename_at;
    r->gate.fs.arg = &r->gate;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .log = sample_log_fn,
                               .log_arg = &r->log, .now_ns = tick, .now_arg = r),
                     &r->ctx))
        return -1;
    r->ctx->fs = &r->gate.fs;
    r->memory = weft_ctx_memory(r->ctx);
    *state = r;
    return 0;
}

static int close_room(void **state)
{
    struct room *r = *state;

    assert_int_equal(weft_ctx_memory(r->ctx), r->memory);
    weft_ctx_free(r->ctx);
    temp_remove(r->dir);
    pthread_mutex_destroy(&r->clock);
    free(r);
    return 0;
}

static weft_ckpt_writer *new_writer(struct room *r, const weft_ckpt_writer_opts *o)
{
    weft_ckpt_writer *w = NULL;

    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, o, &w), 0);
    return w;
}

static weft_status save(weft_ckpt_writer *w, int64_t step)
{
    struct sample s;

    sample_make(&s, step);
    return weft_ckpt_save(w, &s.data); /* s is gone when this returns: a copy must have been made */
}

static void latest_is(struct room *r, int64_t step)
{
    weft_ckpt *c = NULL;
    const char *what;

    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    what = sample_differs(c, step);
    if (what)
        fail_msg("step %lld, wanted %lld: %s differs", (long long)weft_ckpt_info(c)->step,
                 (long long)step, what);
    weft_ckpt_close(c);
}

static weft_ckpt_stats stats(weft_ckpt_writer *w)
{
    weft_ckpt_stats s;

    weft_ckpt_writer_stats(w, &s);
    return s;
}

static void a_save_returns_while_the_disk_stands_still(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);
    struct sample s;
    weft_ckpt *c = NULL;

    assert_int_equal(stats(w).last_step, -1);
    gate_set(&r->gate, true);
    sample_make(&s, 1);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    memset(&s, 0xee, sizeof s); /* training continues in the same memory */
    gate_wait(&r->gate);
    assert_int_equal(stats(w).n_saved, 0);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), WEFT_ENOENT); /* not to be seen */
    gate_set(&r->gate, false);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(stats(w).n_saved, 1);
    assert_int_equal(stats(w).last_step, 1);
    latest_is(r, 1);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

static void a_second_save_is_skipped_when_asked(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .busy = WEFT_CKPT_SKIP));

    gate_set(&r->gate, true);
    assert_int_equal(save(w, 1), 0);
    assert_int_equal(save(w, 2), 0);
    assert_int_equal(save(w, 3), 0);
    assert_int_equal(stats(w).n_skipped, 2);
    gate_set(&r->gate, false);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(save(w, 4), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(stats(w).n_saved, 2);
    latest_is(r, 4);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

struct opener {
    struct gate *gate;
    int64_t delay_ms;
};

static void *open_gate_later(void *arg)
{
    struct opener *o = arg;

    nanosleep(&(struct timespec){o->delay_ms / 1000, o->delay_ms % 1000 * 1000000}, NULL);
    gate_set(o->gate, false);
    return NULL;
}

static void a_second_save_waits_by_default(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);
    struct opener o = {&r->gate, 10};
    int64_t step = 0;
    pthread_t t;

    /* On a busy machine the gate may be open before the second save comes: later, then. */
    for (; stats(w).wait_ns == 0 && o.delay_ms < 5000; o.delay_ms *= 2) {
        gate_set(&r->gate, true);
        assert_int_equal(save(w, ++step), 0);
        gate_wait(&r->gate);
        assert_int_equal(pthread_create(&t, NULL, open_gate_later, &o), 0);
        assert_int_equal(save(w, ++step), 0); /* returns when the first is on disk */
        pthread_join(t, NULL);
        assert_int_equal(weft_ckpt_writer_flush(w), 0);
        assert_int_equal(stats(w).n_skipped, 0);
        assert_int_equal(stats(w).n_saved, step);
    }
    assert_true(stats(w).wait_ns > 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    latest_is(r, step);
}

static void closing_waits_for_the_last_snapshot(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);

    for (int64_t step = 1; step <= 20; step++)
        assert_int_equal(save(w, step), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    latest_is(r, 20);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_is_told_once_by_the_next_save_and_training_goes_on(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);

    r->gate.fail = ENOSPC;
    assert_int_equal(save(w, 1), 0);
    assert_int_equal(save(w, 2), 0);
    assert_non_null(strstr(r->log.text, "checkpoint of step 1: "));
    assert_non_null(strstr(r->log.text, "No space left on device"));
    r->log.text[0] = '\0';
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(stats(w).n_failed, 1);
    assert_int_equal(stats(w).n_saved, 1);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    assert_string_equal(r->log.text, "");
    latest_is(r, 2);
}

static void a_failure_stops_training_when_asked(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .stop_on_error = true));

    r->gate.fail = EDQUOT;
    assert_int_equal(save(w, 1), 0);
    assert_int_equal(save(w, 2), WEFT_ENOSPC);
    assert_non_null(strstr(weft_error(), "checkpoint of step 1: "));
    assert_int_equal(stats(w).n_saved, 0); /* 2 was not taken */
    assert_int_equal(save(w, 3), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    latest_is(r, 3);
}

static void closing_tells_of_a_failure(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);

    r->gate.fail = EIO;
    assert_int_equal(save(w, 1), 0);
    assert_int_equal(weft_ckpt_writer_close(w), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "checkpoint of step 1: "));
    assert_non_null(strstr(weft_error(), "Input/output error"));
}

/* The new checkpoint counts, though an old one cannot be deleted: that is told, too. */
static void an_old_one_that_cannot_be_deleted_is_told(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1));

    assert_int_equal(save(w, 1), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    r->gate.fail_delete = EACCES;
    assert_int_equal(save(w, 2), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "step 2 was written, but old ones cannot be deleted"));
    assert_int_equal(stats(w).n_saved, 2);
    assert_int_equal(stats(w).n_failed, 0);
    r->gate.fail_delete = 0;
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    latest_is(r, 2);
}

static void what_makes_no_sense_fails_at_once(void **state)
{
    struct room *r = *state;
    float x[4] = {0};
    int64_t four[] = {4}, bad_dim[] = {-1}, huge[] = {INT64_MAX, INT64_MAX};
    const weft_ckpt_tensor t[] = {
        {"a", NULL, weft_view(WEFT_F32, x, 1, four)},
        {"a", NULL, weft_view(WEFT_F32, x, 1, four)},
        {NULL, NULL, weft_view(WEFT_F32, x, 1, four)},
        {"\xff", NULL, weft_view(WEFT_F32, x, 1, four)},
        {"__metadata__", NULL, weft_view(WEFT_F32, x, 1, four)},
        {"b", NULL, weft_view(WEFT_F32, x, 1, bad_dim)},
        {"b", NULL, weft_view(WEFT_F32, x, 2, huge)},
        {"b", NULL, weft_view(WEFT_NONE, x, 1, four)},
        {"b", NULL, weft_view(WEFT_F32, NULL, 1, four)},
        {"b", "\xc0\x80", weft_view(WEFT_F32, x, 1, four)},
    };
    static const weft_status want[] = {0,           0,           WEFT_EINVAL, WEFT_EINVAL,
                                       WEFT_EINVAL, WEFT_ESHAPE, WEFT_ESHAPE, WEFT_EDTYPE,
                                       WEFT_EINVAL, WEFT_EINVAL};
    static const weft_ckpt_blob blobs[] = {
        {"__metadata__", "x", 1}, {"\xff", "x", 1}, {NULL, "x", 1},
        {"ok", NULL, 1},          {"ok", "x", -1},
    };
    static const weft_ckpt_metric twice[] = {{"loss", 1}, {"loss", 2}};
    static const weft_ckpt_pair pair[] = {{"k", NULL}, {"k", "\xf5"}};
    weft_ckpt_writer *w = new_writer(r, NULL);

    for (int i = 0; i < WF_COUNT(t); i++) {
        weft_status st = weft_ckpt_save(
            w, WEFT_OPTS(weft_ckpt_data, .step = i, .n_tensors = 1, .tensors = &t[i]));

        if (st != want[i])
            fail_msg("tensor %d: %s", i, weft_status_name(st));
    }
    assert_int_equal(weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .n_tensors = 2, .tensors = t)),
                     WEFT_EEXIST);
    for (int i = 0; i < WF_COUNT(blobs); i++)
        assert_int_equal(
            weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .n_blobs = 1, .blobs = &blobs[i])),
            WEFT_EINVAL);
    assert_int_equal(weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .n_metrics = 2, .metrics = twice)),
                     WEFT_EEXIST);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .n_meta = 1, .meta = &pair[i])),
            WEFT_EINVAL);
    assert_int_equal(weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = -1)), WEFT_EINVAL);
    assert_int_equal(weft_ckpt_save(w, &(weft_ckpt_data){.size = 3}), WEFT_EINVAL);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, &(weft_ckpt_writer_opts){.size = 3}, &w),
                     WEFT_EINVAL);
    assert_int_equal(
        weft_ckpt_writer_new(r->ctx, r->dir, WEFT_OPTS(weft_ckpt_writer_opts, .keep_best = 2), &w),
        WEFT_EINVAL);
    assert_int_equal(
        weft_ckpt_writer_new(r->ctx, r->dir, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = -7), &w),
        WEFT_EINVAL);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir,
                                          WEFT_OPTS(weft_ckpt_writer_opts, .copy_limit = -7), &w),
                     WEFT_EINVAL);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void the_copy_is_made_once_and_used_again(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .reserve_bytes = 1 << 16));
    int64_t before = weft_ctx_memory(r->ctx), after;

    assert_true(before - r->memory > 1 << 16);
    for (int64_t step = 1; step <= 3; step++) {
        assert_int_equal(save(w, step), 0);
        assert_int_equal(weft_ckpt_writer_flush(w), 0);
    }
    after = weft_ctx_memory(r->ctx);
    assert_true(after - before < 40000); /* names and lists, no second copy */
    assert_int_equal(save(w, 4), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(weft_ctx_memory(r->ctx), after);
    assert_int_equal(stats(w).copy_bytes, 1 << 16);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

/* Larger than the copies may be, and out of memory: the checkpoint is written all the same, in
 * the foreground. */
static void without_room_for_a_copy_it_is_written_at_once(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .copy_limit = 100));

    assert_int_equal(save(w, 1), 0);
    assert_int_equal(stats(w).n_saved, 1); /* no flush was needed */
    assert_int_equal(stats(w).copy_bytes, 0);
    assert_non_null(strstr(r->log.text, "while training waits"));
    latest_is(r, 1);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

static void large_tensors_are_copied_by_all_threads_and_whole(void **state)
{
    struct room *r = *state;
    enum { COUNT = 3 << 18 };
    float *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y);
    int64_t odd[] = {COUNT - 5}, three[] = {3};
    weft_ckpt_tensor t[] = {
        {"small", NULL, weft_view(WEFT_F32, x, 1, three)},
        {"large", NULL, weft_view(WEFT_F32, x, 1, odd)},
        {"tail", NULL, weft_view(WEFT_F32, x, 1, three)},
    };
    weft_ckpt_writer *w = new_writer(r, NULL);
    weft_ckpt *c = NULL;
    weft_tensor into = weft_view(WEFT_F32, y, 1, odd);

    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i;
    assert_int_equal(
        weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 1, .n_tensors = 3, .tensors = t)), 0);
    memset(x, 0, COUNT * sizeof *x);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_load(c, "large", &into), 0);
    for (int i = 0; i < COUNT - 5; i++)
        if (y[i] != (float)i)
            fail_msg("element %d is %g", i, (double)y[i]);
    into = weft_view(WEFT_F32, y, 1, three);
    assert_int_equal(weft_ckpt_load(c, "tail", &into), 0);
    assert_true(y[0] == 0 && y[1] == 1 && y[2] == 2);
    weft_ckpt_close(c);
    free(x);
    free(y);
}

static void the_counters_count(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, NULL);
    weft_ckpt_stats s;

    assert_int_equal(save(w, 1), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    s = stats(w);
    assert_true(s.stall_ns > 0 && s.stall_ns == s.last_stall_ns);
    assert_true(s.write_ns > 0 && s.write_ns == s.last_write_ns);
    assert_true(s.bytes > 500 && s.bytes == s.last_bytes);
    assert_true(s.copy_bytes > 0);
    assert_int_equal(save(w, 2), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_true(stats(w).bytes > s.bytes);
    assert_true(stats(w).stall_ns == s.stall_ns + stats(w).last_stall_ns);
    assert_int_equal(stats(w).wait_ns, 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

static void a_writer_keeps_what_its_policy_says(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w =
        new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 2, .keep_best = 1,
                                .keep_highest = true, .monitor = "loss", .foreground = true));
    weft_ckpt_list *l = NULL;

    for (int64_t step = 1; step <= 6; step++) /* the loss falls: the highest is the first */
        assert_int_equal(save(w, step), 0);
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, NULL, &l), 0);
    assert_int_equal(l->n, 3);
    assert_int_equal(l->entry[0].step, 1);
    assert_int_equal(l->entry[1].step, 5);
    assert_int_equal(l->entry[2].step, 6);
    weft_ckpt_list_free(r->ctx, l);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

/* Training was taken up again from an older step: what is written now is not the first to go. */
static void the_one_just_written_is_never_deleted(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w =
        new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1, .foreground = true));
    weft_ckpt_list *l = NULL;

    assert_int_equal(save(w, 100), 0);
    assert_int_equal(save(w, 50), 0);
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, NULL, &l), 0);
    assert_int_equal(l->n, 2);
    weft_ckpt_list_free(r->ctx, l);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

/* Others may still go back to one of them. */
static void what_is_held_is_not_deleted(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = new_writer(r, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1));
    static const int64_t left[] = {3, 5, 7};
    weft_ckpt_list *l = NULL;

    for (int64_t step = 1; step <= 7; step += 2) {
        if (step == 5)
            wf_ckpt_writer_hold(w, 3);
        assert_int_equal(save(w, step), 0);
        assert_int_equal(weft_ckpt_writer_flush(w), 0);
    }
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, NULL, &l), 0);
    assert_int_equal(l->n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(l->entry[i].step, left[i]);
    weft_ckpt_list_free(r->ctx, l);
    wf_ckpt_writer_hold(w, 7);
    assert_int_equal(save(w, 9), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, NULL, &l), 0);
    assert_int_equal(l->n, 2);
    weft_ckpt_list_free(r->ctx, l);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

#define IN_ROOM(f) cmocka_unit_test_setup_teardown(f, open_room, close_room)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOM(what_is_held_is_not_deleted),
        IN_ROOM(a_save_returns_while_the_disk_stands_still),
        IN_ROOM(a_second_save_is_skipped_when_asked),
        IN_ROOM(a_second_save_waits_by_default),
        IN_ROOM(closing_waits_for_the_last_snapshot),
        IN_ROOM(a_failure_is_told_once_by_the_next_save_and_training_goes_on),
        IN_ROOM(a_failure_stops_training_when_asked),
        IN_ROOM(closing_tells_of_a_failure),
        IN_ROOM(an_old_one_that_cannot_be_deleted_is_told),
        IN_ROOM(what_makes_no_sense_fails_at_once),
        IN_ROOM(the_copy_is_made_once_and_used_again),
        IN_ROOM(without_room_for_a_copy_it_is_written_at_once),
        IN_ROOM(large_tensors_are_copied_by_all_threads_and_whole),
        IN_ROOM(the_counters_count),
        IN_ROOM(a_writer_keeps_what_its_policy_says),
        IN_ROOM(the_one_just_written_is_never_deleted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
