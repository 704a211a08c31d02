/* folder_fault.c - a chief uses its store, and at every file call in turn something happens.
 *
 * The call fails; the disk is full from there on; the process is killed; the power goes, and with
 * it what was not synced. Each time, for every call: what was said to be created is there, what
 * exists is whole, and the next chief can use the store. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/folder.h"
#include "support/counting.h"
#include "support/faultfs.h"

static struct faultfs disk;
static char dir[64];
static int64_t *n_calls; /* of the last life: shared with its process */

/* ---- a chief's life -------------------------------------------------------------------------- */

/* What it was told: written to a pipe as it happens, so that it outlives the process. */
struct told {
    uint64_t term, epoch;
    int64_t manifest;
};

static weft_status create_epoch(struct wf_folder *f, uint64_t term, uint64_t number,
                                struct wf_store_answer *out)
{
    struct wf_member member = {1, WF_ROLE_SERVER, 7, false};
    struct wf_holders holders = {1, WF_NOBODY, WF_NOBODY, false};
    int worker = WF_NOBODY;
    struct wf_epoch e = {.term = term,
                         .history = 1,
                         .number = number,
                         .n_members = 1,
                         .n_pieces = 1,
                         .n_shards = 1,
                         .member = &member,
                         .holders = &holders,
                         .worker = &worker};

    return wf_folder_do(f, &(struct wf_action){.type = WF_ACT_CREATE_EPOCH, .record = &e}, out);
}

/* Reads, takes the next term, creates two epochs and a manifest. */
static weft_status live(weft_ctx *ctx, int to)
{
    struct wf_folder *f = NULL;
    struct wf_store_answer a;
    struct told told = {0, 0, -1};
    uint64_t number = 0, term = 0;
    int64_t t = 0;
    weft_status st = wf_folder_open(ctx, dir, &f);

    if (!st)
        st = wf_folder_do(f, &(struct wf_action){.type = WF_ACT_READ}, &a);
    if (!st) {
        number = a.epoch ? a.epoch->number : 0;
        t = a.has_manifest ? a.t : 0;
        term = a.term + 1;
        st = wf_folder_do(f, &(struct wf_action){.type = WF_ACT_CREATE_TERM, .number = term}, &a);
    }
    if (!st && a.ok) {
        told.term = term;
        assert_int_equal(write(to, &told, sizeof told), sizeof told);
    }
    for (int i = 0; i < 2 && !st; i++) {
        st = create_epoch(f, term, ++number, &a);
        if (!st && a.ok) {
            told.epoch = number;
            assert_int_equal(write(to, &told, sizeof told), sizeof told);
        }
    }
    if (!st)
        st = wf_folder_do(
            f,
            &(struct wf_action){
                .type = WF_ACT_CREATE_MANIFEST, .number = term, .history = 1, .t = t + 10},
            &a);
    if (!st && a.ok) {
        told.manifest = t + 10;
        assert_int_equal(write(to, &told, sizeof told), sizeof told);
    }
    wf_folder_close(f);
    return st;
}

static weft_ctx *new_ctx(struct counting *c, bool on_disk)
{
    weft_allocator mem = counting_allocator(c);
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &mem), &ctx),
                     WEFT_OK);
    if (on_disk)
        ctx->fs = &disk.fs;
    return ctx;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

static void start_empty(void)
{
    nftw(dir, remove_node, 8, FTW_DEPTH | FTW_PHYS);
}

static struct told last_told(int from)
{
    struct told t = {0, 0, -1}, more;

    while (read(from, &more, sizeof more) == sizeof more)
        t = more;
    return t;
}

static int count_temporary(void)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strstr(e->d_name, ".tmp") != NULL;
    if (d)
        closedir(d);
    return n;
}

/* The store is whole, has what the former chief was told, and the next one can use it. */
static void check_store(const struct told *told)
{
    struct counting c = {0};
    weft_ctx *ctx = new_ctx(&c, false);
    struct wf_folder *f;
    struct wf_store_answer a;
    struct told next;
    int pipes[2];

    assert_int_equal(wf_folder_open(ctx, dir, &f), WEFT_OK);
    if (wf_folder_do(f, &(struct wf_action){.type = WF_ACT_READ}, &a))
        fail_msg("%s", weft_error());
    assert_true(a.term >= told->term);
    assert_true((a.epoch ? a.epoch->number : 0) >= told->epoch);
    assert_true((a.has_manifest ? a.t : -1) >= told->manifest);
    wf_folder_close(f);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(live(ctx, pipes[1]), WEFT_OK);
    close(pipes[1]);
    next = last_told(pipes[0]);
    close(pipes[0]);
    assert_true(next.term > told->term && next.epoch > told->epoch &&
                next.manifest > told->manifest);
    assert_int_equal(count_temporary(), 0);
    weft_ctx_free(ctx);
    assert_int_equal(c.n_live, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A life of a store that has had one before; in a process of its own, which may be killed. */
static int try_life(const struct faultfs *fault, struct told *told)
{
    struct counting c = {0};
    weft_ctx *ctx;
    int pipes[2], status;

    assert_int_equal(pipe(pipes), 0);
    start_empty();
    ctx = new_ctx(&c, false);
    assert_int_equal(live(ctx, pipes[1]), WEFT_OK);
    weft_ctx_free(ctx);
    if (fork() == 0) {
        weft_status st;

        faultfs_init(&disk);
        disk.fail_at = fault->fail_at;
        disk.full_at = fault->full_at;
        disk.kill_at = fault->kill_at;
        disk.lose = fault->lose;
        ctx = new_ctx(&c, true);
        st = live(ctx, pipes[1]);
        weft_ctx_free(ctx);
        *n_calls = disk.n_calls;
        _exit(c.n_live ? 3 : st ? 1 : 0);
    }
    close(pipes[1]);
    assert_true(wait(&status) > 0 && WIFEXITED(status));
    *told = last_told(pipes[0]);
    close(pipes[0]);
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 1 ||
                WEXITSTATUS(status) == FAULTFS_KILLED);
    return WEXITSTATUS(status);
}

static void every_call_fails_in_turn(void **state)
{
    int failed = 0;
    int64_t n;
    struct told told;

    (void)state;
    assert_int_equal(try_life(&(struct faultfs){.fail_at = 0}, &told), 0);
    n = *n_calls;
    assert_true(n > 60);
    for (struct faultfs f = {.fail_at = 1}; f.fail_at <= n; f.fail_at++) {
        failed += try_life(&f, &told) == 1;
        check_store(&told);
    }
    assert_true(failed > 20);
}

static void the_disk_is_full_from_every_write_on(void **state)
{
    (void)state;
    for (struct faultfs f = {.full_at = 1};; f.full_at++) {
        struct told told;
        int rc = try_life(&f, &told);

        check_store(&told);
        if (rc == 0)
            break;
        assert_true(f.full_at < 100);
    }
}

static void kill_at_every_call(bool lose)
{
    for (struct faultfs f = {.kill_at = 1, .lose = lose};; f.kill_at++) {
        struct told told;
        int rc = try_life(&f, &told);

        check_store(&told);
        if (rc != FAULTFS_KILLED)
            break;
        assert_true(f.kill_at < 500);
    }
}

static void the_process_is_killed_at_every_call(void **state)
{
    (void)state;
    kill_at_every_call(false);
}

static void the_power_goes_at_every_call(void **state)
{
    (void)state;
    kill_at_every_call(true);
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    for (int64_t i = 0;; i++) {
        struct counting c = {0};
        weft_ctx *ctx = new_ctx(&c, false);
        int64_t live_before = c.n_live;
        int pipes[2];
        struct told told;
        weft_status st;

        assert_int_equal(pipe(pipes), 0);
        start_empty();
        assert_int_equal(live(ctx, pipes[1]), WEFT_OK);
        c.fail_at = c.n_allocs + 1 + i;
        st = live(ctx, pipes[1]);
        close(pipes[1]);
        told = last_told(pipes[0]);
        close(pipes[0]);
        c.fail_at = 0;
        assert_int_equal(c.n_live, live_before);
        weft_ctx_free(ctx);
        check_store(&told);
        if (!st && i > 30)
            break;
        assert_true(st == WEFT_OK || st == WEFT_ENOMEM);
        assert_true(i < 300);
    }
}

static int setup(void **state)
{
    static char base[] = "folder_fault.XXXXXX";

    (void)state;
    n_calls =
        mmap(NULL, sizeof *n_calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_calls == MAP_FAILED || !mkdtemp(base))
        return 1;
    snprintf(dir, sizeof dir, "%s/store", base);
    return 0;
}

static int teardown(void **state)
{
    char *slash = strrchr(dir, '/');

    (void)state;
    *slash = '\0';
    return nftw(dir, remove_node, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(the_disk_is_full_from_every_write_on),
        cmocka_unit_test(the_process_is_killed_at_every_call),
        cmocka_unit_test(the_power_goes_at_every_call),
        cmocka_unit_test(every_allocation_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
