/* ckpt_fault.c - a checkpoint is being saved, and at every file call in turn something happens.
 *
 * The call fails; the disk is full from there on; the process is killed; the power goes, and
 * with it what was not synced. Each time, for every call: the checkpoint before is whole, the
 * new one is whole or not to be seen, nothing is leaked, and the next save works. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/weft.h>

#include "../support/ckpt_sample.h"
#include "../support/counting.h"
#include "../support/faultfs.h"
#include "ckpt/ckpt.h"

/* The disk on which things happen, and one on which nothing does, but which need not sync
 * either. */
static struct faultfs disk, calm;

/* Set: steps are saved in two parts, as two processes would. */
static bool in_parts;

/* Odd tensors are split; the others go whole to one part or the other. */
static weft_status save_in_parts(weft_ctx *ctx, const char *dir, const weft_ckpt_data *d)
{
    weft_ckpt_data rest = *d;
    weft_ckpt_build *b = NULL;
    char *text[2] = {NULL};
    weft_status st = weft_ckpt_begin(ctx, dir, d->step, &b);

    rest.n_blobs = 0;
    for (int part = 0; part < 2 && !st; part++) {
        weft_ckpt_piece piece[SAMPLE_TENSORS];
        int64_t n = 0;

        for (int64_t i = 0; i < d->n_tensors; i++) {
            const weft_ckpt_tensor *t = &d->tensors[i];
            int64_t count = weft_tensor_count(&t->tensor), half = count / 2;
            bool cut = i % 2 && count > 1;
            int64_t first = cut && part ? half : 0, size = weft_dtype_size(t->tensor.dtype);

            if (!cut && i / 2 % 2 != part)
                continue;
            piece[n++] = (weft_ckpt_piece){.name = t->name,
                                           .section = t->section,
                                           .whole = t->tensor,
                                           .first = first,
                                           .count = !cut   ? count
                                                    : part ? count - half
                                                           : half,
                                           .data = (const char *)t->tensor.data + first * size};
        }
        st = weft_ckpt_part_write(
            ctx, dir, weft_ckpt_build_name(b),
            WEFT_OPTS(weft_ckpt_part, .writer = part ? "b" : "a", .n_pieces = n, .pieces = piece,
                      .n_blobs = part ? d->n_blobs : 0, .blobs = d->blobs, .shard_bytes = 300),
            &text[part]);
    }
    if (!st)
        st = weft_ckpt_commit(b, 2, (const char *const *)text, &rest);
    weft_ckpt_build_free(b);
    for (int part = 0; part < 2; part++)
        weft_text_free(ctx, text[part]);
    return st;
}

/* One life of a writer: steps first..last are saved. keep_last 2: the third deletes the first. */
static weft_status life(weft_ctx *ctx, const char *dir, int64_t first, int64_t last,
                        bool foreground)
{
    weft_ckpt_writer_opts o = {.size = sizeof o,
                               .keep_last = 2,
                               .foreground = foreground,
                               .stop_on_error = true,
                               .shard_bytes = 300};
    weft_ckpt_writer *w = NULL;
    struct sample s;
    weft_status st, closed;
    char why[1024];

    if (in_parts && first == 3) {
        sample_make(&s, first);
        return save_in_parts(ctx, dir, &s.data);
    }
    st = weft_ckpt_writer_new(ctx, dir, &o, &w);

    for (int64_t step = first; step <= last && !st; step++) {
        sample_make(&s, step);
        st = weft_ckpt_save(w, &s.data);
    }
    snprintf(why, sizeof why, "%s", weft_error());
    closed = weft_ckpt_writer_close(w);
    if (st)
        wf_err_set(why);
    return st ? st : closed;
}

static weft_ctx *new_ctx(struct sample_log *log, bool faults)
{
    weft_ctx *ctx = NULL;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1,
                                            .log = log ? sample_log_fn : NULL, .log_arg = log),
                                  &ctx),
                     0);
    if (!faults)
        faultfs_init(&calm);
    ctx->fs = faults ? &disk.fs : &calm.fs;
    return ctx;
}

/* The newest valid checkpoint, which must be one that was saved, bit for bit; -1: none. */
static int64_t newest(const char *dir, const char *what, int64_t at)
{
    weft_ctx *ctx = new_ctx(NULL, false);
    weft_ckpt *c = NULL;
    int64_t step = -1;
    weft_status st = weft_ckpt_open_latest(ctx, dir, &c);

    if (st && st != WEFT_ENOENT)
        fail_msg("%s at call %lld: %s", what, (long long)at, weft_error());
    if (!st) {
        const char *differs;

        step = weft_ckpt_info(c)->step;
        differs = sample_differs(c, step);
        if (differs)
            fail_msg("%s at call %lld: step %lld: %s differs", what, (long long)at, (long long)step,
                     differs);
    }
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    return step;
}

/* Every checkpoint that can be seen is whole. */
static void all_visible_are_sound(const char *dir, const char *what, int64_t at)
{
    weft_ctx *ctx = new_ctx(NULL, false);
    weft_ckpt_list *l = NULL;

    assert_int_equal(weft_ckpt_list_new(ctx, dir, NULL, &l), 0);
    for (int64_t i = 0; i < l->n; i++) {
        weft_ckpt *c = NULL;

        if (weft_ckpt_open(ctx, l->entry[i].path, &c) || weft_ckpt_verify(c))
            fail_msg("%s at call %lld: %s is to be seen and not whole: %s", what, (long long)at,
                     l->entry[i].path, weft_error());
        weft_ckpt_close(c);
    }
    weft_ckpt_list_free(ctx, l);
    weft_ctx_free(ctx);
}

/* Steps 1 and 2 are there; what follows is done to the saving of step 3. */
static void start(char dir[64])
{
    weft_ctx *ctx;

    temp_make(dir);
    ctx = new_ctx(NULL, false);
    assert_int_equal(life(ctx, dir, 1, 2, true), 0);
    weft_ctx_free(ctx);
    faultfs_init(&disk);
}

/* After whatever happened the directory works again: step 4 can be saved, and leaves nothing
 * behind. */
static void goes_on(const char *dir, const char *what, int64_t at)
{
    weft_ctx *ctx = new_ctx(NULL, false);

    if (life(ctx, dir, 4, 4, true))
        fail_msg("%s at call %lld: the next save fails: %s", what, (long long)at, weft_error());
    weft_ctx_free(ctx);
    assert_int_equal(newest(dir, what, at), 4);
    all_visible_are_sound(dir, what, at);
}

static int64_t calls_of_a_save(void)
{
    char dir[64];
    weft_ctx *ctx;
    int64_t n;

    start(dir);
    ctx = new_ctx(NULL, true);
    assert_int_equal(life(ctx, dir, 3, 3, true), 0);
    weft_ctx_free(ctx);
    assert_int_equal(newest(dir, "nothing", 0), 3);
    temp_remove(dir);
    n = disk.n_calls;
    assert_true(n > 60);
    return n;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void fail_calls(int error, bool sticky, bool foreground)
{
    int64_t n = calls_of_a_save();

    for (int64_t i = 1; i <= n; i++) {
        char dir[64];
        weft_ctx *ctx;
        weft_status st;
        int64_t at, bare;

        start(dir);
        disk.fail_at = i;
        disk.error = error;
        disk.sticky = sticky;
        ctx = new_ctx(NULL, true);
        bare = weft_ctx_memory(ctx);
        st = life(ctx, dir, 3, 3, foreground);
        assert_int_equal(weft_ctx_memory(ctx), bare);
        weft_ctx_free(ctx);
        at = newest(dir, "a failing call", i);
        /* Closing what was only read, and a lock that cannot be taken, may fail unnoticed. */
        if (st ? at < 2 : at != 3)
            fail_msg("call %lld of %lld fails: %s (%s), the newest is %lld", (long long)i,
                     (long long)n, weft_status_name(st), weft_error(), (long long)at);
        if (st && !*weft_error())
            fail_msg("call %lld fails without a text", (long long)i);
        all_visible_are_sound(dir, "a failing call", i);
        goes_on(dir, "a failing call", i);
        temp_remove(dir);
    }
}

static void each_file_call_may_fail(void **state)
{
    (void)state;
    fail_calls(EIO, false, true);
}

static void each_file_call_of_parts_may_fail(void **state)
{
    (void)state;
    in_parts = true;
    fail_calls(EIO, false, true);
    fail_calls(EIO, true, true);
    in_parts = false;
}

static void each_file_call_may_be_the_last_that_works(void **state)
{
    (void)state;
    fail_calls(EIO, true, false);
}

static void a_full_disk_at_every_write_keeps_the_old_and_says_so(void **state)
{
    int64_t n_writes;

    (void)state;
    calls_of_a_save();
    n_writes = disk.n_writes;
    assert_true(n_writes > 6);
    for (int64_t i = 2; i <= n_writes; i++) { /* the first opens the lock */
        struct sample_log log = {{0}};
        char dir[64], tmp[128];
        weft_ctx *ctx;
        weft_status st;

        start(dir);
        disk.full_at = i;
        ctx = new_ctx(&log, true);
        st = life(ctx, dir, 3, 3, true);
        weft_ctx_free(ctx);
        if (st != WEFT_ENOSPC || !strstr(log.text, "checkpoint of step 3: ") ||
            !strstr(log.text, "No space left on device"))
            fail_msg("full at write %lld: %s: %s", (long long)i, weft_status_name(st), log.text);
        assert_int_equal(newest(dir, "a full disk", i), 2);
        snprintf(tmp, sizeof tmp, "%s/.tmp-ckpt-000000003", dir);
        assert_int_equal(access(tmp, F_OK), -1); /* the room is given back at once */
        goes_on(dir, "a full disk", i);
        temp_remove(dir);
    }
}

/* The disk is full for one save, then not: training continues, and later checkpoints are
 * written. */
static void a_failed_save_does_not_stop_training(void **state)
{
    struct sample_log log = {{0}};
    weft_ckpt_writer *w = NULL;
    weft_ckpt_stats stats;
    struct sample s;
    weft_ctx *ctx;
    char dir[64];

    (void)state;
    start(dir);
    ctx = new_ctx(&log, true);
    assert_int_equal(weft_ckpt_writer_new(ctx, dir, NULL, &w), 0);
    disk.full_at = disk.n_writes + 5;
    sample_make(&s, 3);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), WEFT_ENOSPC);
    assert_int_equal(weft_ckpt_writer_flush(w), 0); /* reported once */
    sample_make(&s, 4);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    log.text[0] = '\0';
    sample_make(&s, 5);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0); /* waits, tells of 4, and goes on */
    assert_non_null(strstr(log.text, "checkpoint of step 4: "));
    assert_int_equal(weft_ckpt_writer_flush(w), WEFT_ENOSPC);
    disk.full_at = 0;
    sample_make(&s, 6);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), 0);
    weft_ckpt_writer_stats(w, &stats);
    assert_int_equal(stats.n_failed, 3);
    assert_int_equal(stats.n_saved, 1);
    assert_int_equal(stats.last_step, 6);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    weft_ctx_free(ctx);
    assert_int_equal(newest(dir, "a full disk", 0), 6);
    temp_remove(dir);
}

static void a_read_only_folder_is_said_and_can_be_resumed_from(void **state)
{
    weft_ckpt_writer *w = NULL;
    weft_ckpt *c = NULL;
    weft_ctx *ctx;
    char dir[64];

    (void)state;
    start(dir);
    disk.read_only = true;
    ctx = new_ctx(NULL, true);
    assert_int_equal(weft_ckpt_writer_new(ctx, dir, NULL, &w), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "Read-only file system"));
    assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
    assert_null(sample_differs(c, 2));
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    temp_remove(dir);
}

/* It becomes read-only while the job runs. */
static void a_folder_that_becomes_read_only_keeps_what_it_has(void **state)
{
    weft_ckpt_writer *w = NULL;
    struct sample s;
    weft_ctx *ctx;
    char dir[64];

    (void)state;
    start(dir);
    ctx = new_ctx(NULL, true);
    assert_int_equal(weft_ckpt_writer_new(ctx, dir, NULL, &w), 0);
    disk.read_only = true;
    sample_make(&s, 3);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    assert_int_equal(weft_ckpt_writer_flush(w), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "checkpoint of step 3: "));
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    weft_ctx_free(ctx);
    assert_int_equal(newest(dir, "a read-only folder", 0), 2);
    temp_remove(dir);
}

static void short_reads_and_writes_change_nothing(void **state)
{
    weft_ckpt *c = NULL;
    weft_ctx *ctx;
    char dir[64];

    (void)state;
    start(dir);
    disk.max_io = 7;
    ctx = new_ctx(NULL, true);
    assert_int_equal(life(ctx, dir, 3, 3, true), 0);
    assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
    assert_null(sample_differs(c, 3));
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    temp_remove(dir);
}

/* Opening and reading: each call fails in turn; damage is never the result. */
static void each_call_of_a_restore_may_fail(void **state)
{
    struct sample s;

    (void)state;
    sample_make(&s, 2);
    for (int64_t i = 0, n = 0; i <= n; i++) { /* the first time nothing fails: they are counted */
        float out[5][7] = {{0}};
        weft_tensor t = weft_view(WEFT_F32, out, 2, (int64_t[]){5, 7});
        struct sample_log log = {{0}};
        weft_ckpt *c = NULL;
        weft_ctx *ctx;
        weft_status st;
        int64_t bare;
        char dir[64];

        start(dir);
        disk.fail_at = i;
        ctx = new_ctx(&log, true);
        bare = weft_ctx_memory(ctx);
        st = weft_ckpt_open_latest(ctx, dir, &c);
        if (!st)
            st = weft_ckpt_load(c, "dense/kernel", &t);
        if (!i) {
            assert_int_equal(st, 0);
            n = disk.n_calls;
        }
        if (!st) { /* of the last step or the previous one, as a whole */
            int64_t step = weft_ckpt_info(c)->step;

            sample_make(&s, step);
            assert_true(step == 2 || (step == 1 && strstr(log.text, "skipping")));
            assert_memory_equal(out, s.kernel, sizeof s.kernel);
        }
        weft_ckpt_close(c);
        assert_int_equal(weft_ctx_memory(ctx), bare);
        weft_ctx_free(ctx);
        temp_remove(dir);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static weft_status whole_life(const weft_allocator *mem, const char *dir)
{
    weft_ctx *ctx = NULL;
    weft_ckpt *c = NULL;
    weft_st *f = NULL;
    float out[5][7] = {{0}};
    weft_tensor t = weft_view(WEFT_F32, out, 2, (int64_t[]){5, 7});
    weft_ckpt_delta *delta = NULL;
    char *blob = NULL, path[128];
    int64_t n;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    if (st)
        return st;
    ctx->fs = &disk.fs;
    st = life(ctx, dir, 3, 3, true);
    if (!st)
        st = weft_ckpt_open_latest(ctx, dir, &c);
    if (!st)
        st = weft_ckpt_load(c, "dense/kernel", &t);
    if (!st)
        st = weft_ckpt_blob_read(c, WEFT_CKPT_POSITION, &blob, NULL);
    if (!st)
        st = weft_ckpt_diff(c, c, &n, &delta);
    if (!st) {
        snprintf(path, sizeof path, "%s/%s-00001%s.safetensors", weft_ckpt_path(c),
                 in_parts ? "part-a" : "tensors", in_parts ? "" : "-of-00002");
        st = weft_st_open(ctx, path, &f);
    }
    if (!st)
        st = weft_st_tensor(f, 0, NULL, &t);
    weft_st_close(f);
    weft_ckpt_diff_free(ctx, delta);
    weft_text_free(ctx, blob);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    return st;
}

static void fail_allocations(void)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    int64_t total, stride = getenv("WEFT_TEST_QUICK") ? 5 : 1;
    char dir[64];

    start(dir);
    assert_int_equal(whole_life(&mem, dir), 0);
    assert_int_equal(c.n_live, 0);
    temp_remove(dir);
    total = c.n_allocs;
    assert_true(total > 50);
    for (int64_t i = 1; i <= total; i += stride) {
        weft_status st;

        start(dir);
        c = (struct counting){.fail_at = i};
        st = whole_life(&mem, dir);
        if (st && st != WEFT_ENOMEM)
            fail_msg("allocation %lld of %lld failed: got %s (%s)", (long long)i, (long long)total,
                     weft_status_name(st), weft_error());
        if (c.n_live)
            fail_msg("allocation %lld of %lld failed: %lld blocks leaked", (long long)i,
                     (long long)total, (long long)c.n_live);
        assert_true(newest(dir, "a failing allocation", i) >= 2);
        temp_remove(dir);
    }
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    fail_allocations();
}

static void each_allocation_of_parts_may_fail(void **state)
{
    (void)state;
    in_parts = true;
    fail_allocations();
    in_parts = false;
}

/* ---- death ----------------------------------------------------------------------------------- */

/* The child saves step 3, by a thread as a trainer does, and dies at call `at`. */
static bool dies(const char *dir, int64_t at, bool lose)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (!pid) {
        weft_ctx *ctx = NULL;

        disk.kill_at = at;
        disk.lose = lose;
        if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
            _exit(1);
        ctx->fs = &disk.fs;
        _exit(life(ctx, dir, 3, 3, false) ? 2 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != FAULTFS_KILLED)
        fail_msg("killed at call %lld: the child ended with %d", (long long)at,
                 WEXITSTATUS(status));
    return WEXITSTATUS(status) == FAULTFS_KILLED;
}

static void kill_everywhere(bool lose)
{
    const char *what = lose ? "the power goes" : "killed";
    int64_t at, n_old = 0, n_new = 0;

    for (at = 1;; at++) {
        char dir[64];
        int64_t step;
        bool died;

        start(dir);
        died = dies(dir, at, lose);
        step = newest(dir, what, at);
        if (step != 2 && step != 3)
            fail_msg("%s at call %lld: the newest is %lld", what, (long long)at, (long long)step);
        if (!died)
            assert_int_equal(step, 3);
        n_old += step == 2;
        n_new += step == 3;
        all_visible_are_sound(dir, what, at);
        goes_on(dir, what, at);
        temp_remove(dir);
        if (!died)
            break;
    }
    assert_true(at > 60);
    /* it was killed before and after the point of no return; parts delete nothing after it */
    assert_true(n_old > 30 && n_new > (in_parts ? 1 : 10));
}

static void killed_at_every_call_the_last_good_one_is_there(void **state)
{
    (void)state;
    kill_everywhere(false);
}

static void the_power_goes_at_every_call_the_last_good_one_is_there(void **state)
{
    (void)state;
    kill_everywhere(true);
}

static void killed_at_every_call_of_parts_the_last_good_one_is_there(void **state)
{
    (void)state;
    in_parts = true;
    kill_everywhere(false);
    kill_everywhere(true);
    in_parts = false;
}

/* Nothing is deleted here, so that no later sync helps. */
static void what_was_reported_saved_survives_the_power_going(void **state)
{
    char dir[64];
    pid_t pid;

    (void)state;
    start(dir);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        weft_ckpt_writer *w = NULL;
        weft_ctx *ctx = NULL;
        struct sample s;

        sample_make(&s, 3);
        disk.lose = true;
        if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
            _exit(1);
        ctx->fs = &disk.fs;
        if (weft_ckpt_writer_new(ctx, dir, NULL, &w) || weft_ckpt_save(w, &s.data) ||
            weft_ckpt_writer_flush(w))
            _exit(1);
        faultfs_die(&disk);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(newest(dir, "the power goes", 0), 3);
    temp_remove(dir);
}

/* The first checkpoint of a job: none, or a whole one. */
static void killed_during_the_first_save_there_is_none_or_a_whole_one(void **state)
{
    bool died = true;

    (void)state;
    for (int64_t at = 1; died; at += 3) {
        char dir[64], sub[80];
        int64_t step;

        temp_make(dir);
        snprintf(sub, sizeof sub, "%s/new", dir);
        faultfs_init(&disk);
        died = dies(sub, at, true);
        step = newest(sub, "killed", at);
        assert_true(step == 3 || (died && step == -1));
        temp_remove(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_call_may_fail),
        cmocka_unit_test(each_file_call_of_parts_may_fail),
        cmocka_unit_test(each_file_call_may_be_the_last_that_works),
        cmocka_unit_test(a_full_disk_at_every_write_keeps_the_old_and_says_so),
        cmocka_unit_test(a_failed_save_does_not_stop_training),
        cmocka_unit_test(a_read_only_folder_is_said_and_can_be_resumed_from),
        cmocka_unit_test(a_folder_that_becomes_read_only_keeps_what_it_has),
        cmocka_unit_test(short_reads_and_writes_change_nothing),
        cmocka_unit_test(each_call_of_a_restore_may_fail),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(each_allocation_of_parts_may_fail),
        cmocka_unit_test(killed_at_every_call_the_last_good_one_is_there),
        cmocka_unit_test(the_power_goes_at_every_call_the_last_good_one_is_there),
        cmocka_unit_test(killed_at_every_call_of_parts_the_last_good_one_is_there),
        cmocka_unit_test(what_was_reported_saved_survives_the_power_going),
        cmocka_unit_test(killed_during_the_first_save_there_is_none_or_a_whole_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
