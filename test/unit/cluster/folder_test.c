/* folder_test.c - the chief's store in a directory: of many that create, one succeeds; damaged
 * files are found; old ones go. test/fault/folder_fault.c has what happens when the disk fails. */
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
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/folder.h"
#include "support/wirepage.h"

struct fixture {
    weft_ctx *ctx;
    char dir[64], path[80];
    struct wf_folder *f;
    int n_warnings;
};

static void count_warnings(void *arg, int level, const char *text)
{
    (void)text;
    ((struct fixture *)arg)->n_warnings += level >= WEFT_LOG_WARN;
}

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);

    strcpy(x->dir, "folder_test.XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->path, sizeof x->path, "%s/store", x->dir);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = count_warnings, .log_arg = x),
                     &x->ctx),
        WEFT_OK);
    assert_int_equal(wf_folder_open(x->ctx, x->path, &x->f), WEFT_OK);
    *state = x;
    return 0;
}

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    wf_folder_close(x->f);
    weft_ctx_free(x->ctx);
    nftw(x->dir, remove_node, 8, FTW_DEPTH | FTW_PHYS);
    free(x);
    return 0;
}

/* ---- what is asked --------------------------------------------------------------------------- */

static struct wf_store_answer ask(struct fixture *x, const struct wf_action *a)
{
    struct wf_store_answer out;

    if (wf_folder_do(x->f, a, &out))
        fail_msg("%s", weft_error());
    assert_int_equal(out.to, a->type);
    return out;
}

static struct wf_store_answer take_term(struct fixture *x, uint64_t n)
{
    return ask(x, &(struct wf_action){.type = WF_ACT_CREATE_TERM, .number = n});
}

static struct wf_store_answer read_store(struct fixture *x)
{
    return ask(x, &(struct wf_action){.type = WF_ACT_READ});
}

static bool create_epoch(struct fixture *x, uint64_t term, uint64_t number, int64_t start)
{
    struct wf_member member = {1, WF_ROLE_SERVER, 7, false};
    struct wf_holders holders = {1, WF_NOBODY, WF_NOBODY, false};
    int worker = WF_NOBODY;
    struct wf_epoch e = {.term = term,
                         .history = 1,
                         .number = number,
                         .start = start,
                         .n_members = 1,
                         .n_pieces = 1,
                         .n_shards = 1,
                         .member = &member,
                         .holders = &holders,
                         .worker = &worker};

    return ask(x, &(struct wf_action){.type = WF_ACT_CREATE_EPOCH, .record = &e}).ok;
}

static bool create_manifest(struct fixture *x, uint64_t term, uint64_t history, int64_t t)
{
    struct wf_store_answer a =
        ask(x, &(struct wf_action){
                   .type = WF_ACT_CREATE_MANIFEST, .number = term, .history = history, .t = t});

    assert_true(a.history == history && a.t == t);
    return a.ok;
}

static int count_files(struct fixture *x, const char *prefix)
{
    DIR *d = opendir(x->path);
    struct dirent *e;
    int n = 0;

    while ((e = readdir(d)))
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0 && strcmp(e->d_name, ".") &&
             strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void change_byte(struct fixture *x, const char *name, long at)
{
    char path[160];
    FILE *f;
    int c;

    snprintf(path, sizeof path, "%s/%s", x->path, name);
    f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_new_store_is_empty(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a = read_store(x);

    assert_true(a.ok && a.term == 0 && !a.epoch && !a.has_manifest);
}

static void what_is_created_is_read(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a = take_term(x, 1);

    assert_true(a.ok && a.term == 1);
    assert_true(create_epoch(x, 1, 1, 0));
    assert_true(create_epoch(x, 1, 2, 50));
    assert_true(create_manifest(x, 1, 1, 30));
    assert_true(create_manifest(x, 1, 1, 60));
    wf_folder_close(x->f);
    assert_int_equal(wf_folder_open(x->ctx, x->path, &x->f), WEFT_OK);
    a = read_store(x);
    assert_true(a.ok && a.term == 1 && a.epoch && a.epoch->number == 2 && a.epoch->start == 50);
    assert_true(a.has_manifest && a.history == 1 && a.t == 60);
}

static void a_number_is_created_once_and_in_order(void **state)
{
    struct fixture *x = *state;

    assert_true(take_term(x, 1).ok);
    assert_false(take_term(x, 1).ok);
    assert_false(take_term(x, 3).ok);
    assert_true(take_term(x, 2).ok);
    assert_true(create_epoch(x, 2, 1, 0));
    assert_false(create_epoch(x, 2, 1, 5));
    assert_false(create_epoch(x, 2, 3, 5));
    assert_int_equal(read_store(x).epoch->start, 0);
}

/* A chief that was replaced grants nothing any more. */
static void a_lower_term_creates_nothing(void **state)
{
    struct fixture *x = *state;

    assert_true(take_term(x, 1).ok && take_term(x, 2).ok);
    assert_false(create_epoch(x, 1, 1, 0));
    assert_false(create_manifest(x, 1, 1, 30));
    assert_null(read_store(x).epoch);
    assert_false(read_store(x).has_manifest);
}

/* A new chief saves the same version again: it is there. */
static void a_manifest_that_is_there_counts(void **state)
{
    struct fixture *x = *state;

    assert_true(take_term(x, 1).ok);
    assert_true(create_manifest(x, 1, 1, 30));
    assert_true(take_term(x, 2).ok);
    assert_true(create_manifest(x, 2, 1, 30));
    change_byte(x, "manifest-000001-000000000030", 20);
    assert_false(create_manifest(x, 2, 1, 30));
}

static struct wf_store_answer create_control(struct fixture *x, uint64_t term, int64_t t,
                                             const char *text)
{
    struct wf_control_bytes bytes = {text, (int64_t)strlen(text)};

    return ask(x, &(struct wf_action){.type = WF_ACT_CREATE_CONTROL,
                                      .number = term,
                                      .history = 1,
                                      .t = t,
                                      .payload = &bytes});
}

static void is_control(const struct wf_store_answer *a, int64_t t, const char *text)
{
    assert_int_equal(a->control_t, t);
    assert_int_equal(a->n_control, strlen(text));
    assert_memory_equal(a->control, text, strlen(text));
}

/* Of two control records for a step the first counts, whoever reads it. */
static void a_control_record_is_created_once(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 0));
    a = read_store(x);
    assert_true(a.control_t == -1 && !a.control);
    a = create_control(x, 1, 10, "ten");
    assert_true(a.ok);
    is_control(&a, 10, "ten");
    a = create_control(x, 1, 10, "another");
    assert_true(a.ok);
    is_control(&a, 10, "ten");
    assert_true(take_term(x, 2).ok);
    assert_false(create_control(x, 1, 20, "late").ok);
    a = create_control(x, 2, 30, "");
    is_control(&a, 30, "");
    assert_true(create_control(x, 2, 40, "forty").ok);
    assert_int_equal(count_files(x, "control-"), 2);
    a = read_store(x);
    is_control(&a, 40, "forty");
    change_byte(x, "control-000001-000000000040", 41);
    a = read_store(x);
    is_control(&a, 30, "");
}

static void manifests_are_ordered_by_history_and_version(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    assert_true(create_manifest(x, 1, 1, 900));
    assert_true(create_manifest(x, 1, 2, 30));
    assert_true(create_manifest(x, 1, 1, 1000));
    a = read_store(x);
    assert_true(a.history == 2 && a.t == 30);
}

static void old_files_are_removed(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a;

    for (uint64_t i = 1; i <= 40; i++)
        assert_true(take_term(x, i).ok);
    for (uint64_t i = 1; i <= 40; i++)
        assert_true(create_epoch(x, 40, i, (int64_t)i));
    for (int64_t i = 1; i <= 40; i++)
        assert_true(create_manifest(x, 40, 1, i));
    assert_int_equal(count_files(x, "term-"), 8);
    assert_int_equal(count_files(x, "epoch-"), 8);
    assert_int_equal(count_files(x, "manifest-"), 8);
    assert_int_equal(count_files(x, ""), 24); /* and nothing else */
    a = read_store(x);
    assert_true(a.term == 40 && a.epoch->number == 40 && a.t == 40);
    assert_false(take_term(x, 3).ok);
    assert_false(create_epoch(x, 40, 5, 0));
    assert_int_equal(count_files(x, ""), 24);
}

/* Looked at an old listing, and creates a number that was removed meanwhile. */
static struct wf_fs stale;
static int n_lists;

static int list_late(void *arg, const char *path, int (*each)(void *, const char *), void *each_arg)
{
    if (n_lists++ == 0)
        return each(each_arg, "term-000002");
    return wf_fs_posix.list(arg, path, each, each_arg);
}

static void whoever_looked_too_early_creates_nothing(void **state)
{
    struct fixture *x = *state;
    const struct wf_fs *fs = x->ctx->fs;
    struct wf_store_answer a;

    for (uint64_t i = 1; i <= 20; i++)
        assert_true(take_term(x, i).ok);
    stale = *fs;
    stale.list = list_late;
    x->ctx->fs = &stale;
    n_lists = 0;
    a = take_term(x, 3);
    x->ctx->fs = fs;
    assert_true(n_lists > 1);
    assert_false(a.ok);
    assert_int_equal(read_store(x).term, 20);
}

/* A link that was made, and whose answer was lost: over a network, the second try says "exists". */
static int link_lost(void *arg, int dir, const char *from, const char *to)
{
    int rc = wf_fs_posix.link_at(arg, dir, from, to);

    return rc ? rc : -EEXIST;
}

static void a_link_whose_answer_was_lost_counts(void **state)
{
    struct fixture *x = *state;
    const struct wf_fs *fs = x->ctx->fs;

    stale = *fs;
    stale.link_at = link_lost;
    x->ctx->fs = &stale;
    assert_true(take_term(x, 1).ok);
    assert_false(take_term(x, 1).ok);
    x->ctx->fs = fs;
    assert_int_equal(read_store(x).term, 1);
}

static int link_unknown(void *arg, int dir, const char *from, const char *to)
{
    (void)arg;
    (void)dir;
    (void)from;
    (void)to;
    return -EPERM;
}

static void a_file_system_without_links_is_named(void **state)
{
    struct fixture *x = *state;
    const struct wf_fs *fs = x->ctx->fs;
    struct wf_store_answer a;

    stale = *fs;
    stale.link_at = link_unknown;
    x->ctx->fs = &stale;
    assert_int_equal(
        wf_folder_do(x->f, &(struct wf_action){.type = WF_ACT_CREATE_TERM, .number = 1}, &a),
        WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "has no hard links; use another directory"));
    x->ctx->fs = fs;
    assert_int_equal(count_files(x, ""), 0);
}

static void a_damaged_epoch_is_an_error(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a;
    struct stat s;

    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 0));
    assert_true(create_epoch(x, 1, 2, 0));
    change_byte(x, "epoch-000001", 60); /* not the last: no one reads it */
    assert_int_equal(read_store(x).epoch->number, 2);
    assert_int_equal(stat(x->path, &s), 0);
    for (long at = 0; at < 140; at++) {
        change_byte(x, "epoch-000002", at);
        assert_int_equal(wf_folder_do(x->f, &(struct wf_action){.type = WF_ACT_READ}, &a),
                         WEFT_EDATA);
        assert_non_null(strstr(weft_error(), "epoch-000002"));
        change_byte(x, "epoch-000002", at);
    }
    assert_int_equal(read_store(x).epoch->number, 2);
}

static void a_damaged_manifest_is_skipped(void **state)
{
    struct fixture *x = *state;
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    for (int64_t t = 10; t <= 30; t += 10)
        assert_true(create_manifest(x, 1, 1, t));
    change_byte(x, "manifest-000001-000000000030", 39);
    x->n_warnings = 0;
    a = read_store(x);
    assert_true(a.has_manifest && a.t == 20);
    assert_int_equal(x->n_warnings, 1);
}

static void other_files_are_left_alone(void **state)
{
    static const char *const name[] = {"term-5",
                                       "term-0000007",
                                       "term-000007x",
                                       "epoch-",
                                       "epoch-00002a",
                                       "manifest-000009",
                                       "term-9999999999999999999999",
                                       "README",
                                       "term-000000",
                                       "manifest-000001-7"};
    struct fixture *x = *state;
    char path[160];

    for (int i = 0; i < WF_COUNT(name); i++) {
        FILE *f;

        snprintf(path, sizeof path, "%s/%s", x->path, name[i]);
        f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
    for (uint64_t i = 1; i <= 20; i++)
        assert_true(take_term(x, i).ok);
    assert_null(read_store(x).epoch);
    assert_int_equal(count_files(x, ""), 8 + WF_COUNT(name));
}

static void a_path_that_is_not_a_directory_is_refused(void **state)
{
    struct fixture *x = *state;
    struct wf_folder *f;
    char path[160];
    FILE *file;

    snprintf(path, sizeof path, "%s/file", x->dir);
    file = fopen(path, "w");
    fclose(file);
    assert_int_equal(wf_folder_open(x->ctx, path, &f), WEFT_EEXIST);
    assert_non_null(strstr(weft_error(), "exists but is not a directory"));
    snprintf(path, sizeof path, "%s/no/such", x->dir);
    assert_int_equal(wf_folder_open(x->ctx, path, &f), WEFT_ENOENT);
}

/* The example of docs/formats/ps.md; the nonce is a random number. */
static uint64_t always_258(void *arg)
{
    (void)arg;
    return 258;
}

static void the_documented_file_is_this(void **state)
{
    struct fixture *x = *state;
    const struct wf_fs *fs = x->ctx->fs;
    uint8_t want[128], bytes[128];
    int n = wirepage_bytes(PSPAGE, PSPAGE_MANIFEST, want, sizeof want);
    char path[160];
    FILE *f;

    assert_true(take_term(x, 1).ok);
    stale = *fs;
    stale.unique = always_258;
    x->ctx->fs = &stale;
    assert_true(create_manifest(x, 1, 2, 300));
    x->ctx->fs = fs;
    snprintf(path, sizeof path, "%s/manifest-000002-000000000300", x->path);
    f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), n);
    fclose(f);
    assert_memory_equal(bytes, want, (size_t)n);
}

/* ---- two processes --------------------------------------------------------------------------- */

enum { RACE = 1000 };

/* Takes every term it can; returns through a pipe, for each one, whether it was given to it. */
static void race(struct fixture *x, int to)
{
    static char mine[RACE + 1];
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) ||
        wf_folder_open(ctx, x->path, &x->f))
        _exit(1);
    ctx->fs = &stale;
    for (uint64_t n = 1; n <= RACE; n++) {
        struct wf_action a = {.type = WF_ACT_CREATE_TERM, .number = n};
        struct wf_store_answer out;

        if (wf_folder_do(x->f, &a, &out))
            _exit(2);
        mine[n] = out.ok;
    }
    _exit(write(to, mine, sizeof mine) == sizeof mine ? 0 : 3);
}

/* What takes time between two processes; a race needs none of it. */
static int no_sync(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    return 0;
}

static void of_two_processes_exactly_one_gets_each_term(void **state)
{
    struct fixture *x = *state;
    char mine[2][RACE + 1];
    int pipes[2][2], won[2] = {0, 0}, none = 0;
    struct wf_store_answer a;

    stale = wf_fs_posix;
    stale.sync = no_sync;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
        if (fork() == 0)
            race(x, pipes[i][1]);
        close(pipes[i][1]);
    }
    for (int i = 0; i < 2; i++) {
        int status;

        assert_int_equal(read(pipes[i][0], mine[i], sizeof mine[i]), sizeof mine[i]);
        close(pipes[i][0]);
        assert_true(wait(&status) > 0 && status == 0);
    }
    for (int n = 1; n <= RACE; n++) {
        assert_true(mine[0][n] + mine[1][n] <= 1);
        won[0] += mine[0][n];
        won[1] += mine[1][n];
        none += !mine[0][n] && !mine[1][n];
    }
    /* a term is given to nobody if its creator was stopped while the other one took eight more */
    a = read_store(x);
    assert_int_equal(a.term, RACE);
    print_message("one process got %d terms, the other one %d\n", won[0], won[1]);
    assert_true(mine[0][RACE] + mine[1][RACE] == 1);
    assert_true(none <= RACE / 20);
    /* a listing while the other one creates and removes need not show everything */
    assert_in_range(count_files(x, "term-"), 8, 16);
    assert_int_equal(count_files(x, "."), 0);
}

/* What is not a sign of life counts as none, and disturbs nothing. */
static void a_damaged_sign_of_life_is_none(void **state)
{
    static const char *const text[] = {"", "12", "000000010000000g", "00000001000000001",
                                       "-000000100000001"};
    struct fixture *x = *state;
    char path[120];

    assert_true(take_term(x, 1).ok);
    snprintf(path, sizeof path, "%s/alive", x->path);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fputs(text[i], f);
        fclose(f);
        assert_true(read_store(x).pulse == 0);
        assert_true(read_store(x).term == 1);
    }
    remove(path);
    assert_int_equal(mkdir(path, 0755), 0); /* nothing can be written there */
    assert_true(ask(x, &(struct wf_action){.type = WF_ACT_READ, .pulse = 5}).pulse == 0);
    assert_int_equal(rmdir(path), 0);
    assert_true(ask(x, &(struct wf_action){.type = WF_ACT_READ, .pulse = 5}).pulse == 5);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_new_store_is_empty),
        T(what_is_created_is_read),
        T(a_number_is_created_once_and_in_order),
        T(a_lower_term_creates_nothing),
        T(a_manifest_that_is_there_counts),
        T(a_control_record_is_created_once),
        T(manifests_are_ordered_by_history_and_version),
        T(old_files_are_removed),
        T(whoever_looked_too_early_creates_nothing),
        T(a_link_whose_answer_was_lost_counts),
        T(a_file_system_without_links_is_named),
        T(a_damaged_epoch_is_an_error),
        T(a_damaged_manifest_is_skipped),
        T(other_files_are_left_alone),
        T(a_path_that_is_not_a_directory_is_refused),
        T(the_documented_file_is_this),
        T(of_two_processes_exactly_one_gets_each_term),
        cmocka_unit_test_setup_teardown(a_damaged_sign_of_life_is_none, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
