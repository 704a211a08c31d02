/* chief_store_test.c - what every store of a chief promises: in a directory, in etcd, and in
 * etcd over TLS with certificates. folder_test.c and etcd_test.c have what belongs to one of
 * them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cluster/chief_store.h"
#include "support/etcd.h"

enum member { FOLDER, ETCD, ETCDS };

static struct etcd plain, secure;
static char top[64], cert[128], key[128];
static int n_stores;

struct fixture {
    enum member member;
    weft_ctx *ctx;
    char where[200];
    struct wf_chief_store_opts opts;
    struct wf_chief_store *r;
};

static void open_store(struct fixture *x)
{
    if (wf_chief_store_open(x->ctx, &x->opts, &x->r))
        fail_msg("%s", weft_error());
}

static int setup_as(void **state, enum member m)
{
    struct fixture *x = calloc(1, sizeof *x);

    x->member = m;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &x->ctx), WEFT_OK);
    *state = x;
    if (m == FOLDER)
        snprintf(x->where, sizeof x->where, "%s/store-%d", top, n_stores++);
    else
        snprintf(x->where, sizeof x->where, "%s://127.0.0.1:%d/jobs/%d",
                 m == ETCDS ? "etcds" : "etcd", m == ETCDS ? secure.port : plain.port, n_stores++);
    x->opts = (struct wf_chief_store_opts){.where = x->where};
    if (m == ETCDS) {
        x->opts.authority = x->opts.certificate = cert;
        x->opts.key = key;
    }
    if (m == FOLDER || (m == ETCD ? plain.pid : secure.pid) > 0)
        open_store(x);
    return 0;
}

static int setup_folder(void **state)
{
    return setup_as(state, FOLDER);
}

static int setup_etcd(void **state)
{
    return setup_as(state, ETCD);
}

static int setup_etcds(void **state)
{
    return setup_as(state, ETCDS);
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    wf_chief_store_close(x->r);
    weft_ctx_free(x->ctx);
    free(x);
    return 0;
}

/* The store, or the test is skipped. */
static struct fixture *store_of(void **state)
{
    struct fixture *x = *state;

    if (!x->r) {
        print_message("skipped: %s\n", x->member == ETCDS && plain.pid > 0
                                           ? "the command openssl is not installed"
                                           : "etcd is not installed (apt install etcd-server)");
        skip();
    }
    return x;
}

/* ---- what is asked --------------------------------------------------------------------------- */

static struct wf_store_answer ask(struct fixture *x, const struct wf_action *a)
{
    struct wf_store_answer out;

    if (wf_chief_store_do(x->r, a, &out))
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

/* A chief that acts shows that it is alive; others see its last sign. */
static struct wf_store_answer show(struct fixture *x, uint64_t pulse)
{
    return ask(x, &(struct wf_action){.type = WF_ACT_READ, .pulse = pulse});
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

static struct wf_store_answer create_control(struct fixture *x, uint64_t term, int64_t t,
                                             const void *p, int64_t n)
{
    struct wf_control_bytes bytes = {p, n};

    return ask(x, &(struct wf_action){.type = WF_ACT_CREATE_CONTROL,
                                      .number = term,
                                      .history = 1,
                                      .t = t,
                                      .payload = &bytes});
}

static void is_control(const struct wf_store_answer *a, int64_t t, const void *p, int64_t n)
{
    assert_int_equal(a->control_t, t);
    assert_int_equal(a->n_control, n);
    assert_memory_equal(a->control, p, (size_t)n);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_new_store_is_empty(void **state)
{
    struct wf_store_answer a = read_store(store_of(state));

    assert_true(a.ok && a.term == 0 && !a.epoch && !a.has_manifest && a.control_t == -1);
}

static void what_is_created_is_read_by_another_process(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_store_answer a = take_term(x, 1);

    assert_true(a.ok && a.term == 1);
    assert_true(create_epoch(x, 1, 1, 0));
    assert_true(create_epoch(x, 1, 2, 50));
    assert_true(create_manifest(x, 1, 1, 30));
    assert_true(create_manifest(x, 1, 1, 60));
    assert_true(create_control(x, 1, 7, "seven", 5).ok);
    wf_chief_store_close(x->r);
    open_store(x);
    a = read_store(x);
    assert_true(a.ok && a.term == 1 && a.epoch && a.epoch->number == 2 && a.epoch->start == 50);
    assert_true(a.has_manifest && a.history == 1 && a.t == 60);
    is_control(&a, 7, "seven", 5);
}

static void a_number_is_created_once_and_in_order(void **state)
{
    struct fixture *x = store_of(state);

    assert_false(take_term(x, 2).ok);
    assert_true(take_term(x, 1).ok);
    assert_false(take_term(x, 1).ok);
    assert_false(take_term(x, 3).ok);
    assert_true(take_term(x, 2).ok);
    assert_true(create_epoch(x, 2, 1, 0));
    assert_false(create_epoch(x, 2, 1, 5));
    assert_false(create_epoch(x, 2, 3, 5));
    assert_int_equal(read_store(x).epoch->start, 0);
}

static void a_lower_term_creates_and_removes_nothing(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 0));
    assert_true(create_control(x, 1, 1, "a", 1).ok);
    assert_true(create_control(x, 1, 2, "b", 1).ok);
    assert_true(take_term(x, 2).ok);
    assert_false(create_epoch(x, 1, 2, 0));
    assert_false(create_manifest(x, 1, 1, 30));
    assert_false(create_control(x, 1, 3, "c", 1).ok);
    assert_false(create_control(x, 1, 2, "b", 1).ok); /* not even one that exists */
    a = read_store(x);
    assert_true(a.epoch->number == 1 && !a.has_manifest);
    is_control(&a, 2, "b", 1);
}

static void a_manifest_that_is_there_counts(void **state)
{
    struct fixture *x = store_of(state);

    assert_true(take_term(x, 1).ok);
    assert_true(create_manifest(x, 1, 1, 30));
    assert_true(take_term(x, 2).ok);
    assert_true(create_manifest(x, 2, 1, 30));
}

static void manifests_are_ordered_by_history_and_version(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    assert_true(create_manifest(x, 1, 1, 900));
    assert_true(create_manifest(x, 1, 2, 30));
    assert_true(create_manifest(x, 1, 1, 1000));
    a = read_store(x);
    assert_true(a.history == 2 && a.t == 30);
    for (int64_t t = 1; t < 20; t++)
        assert_true(create_manifest(x, 1, 3, t));
    assert_true(create_manifest(x, 1, 1, 1)); /* older than all that are kept */
    a = read_store(x);
    assert_true(a.history == 3 && a.t == 19);
}

static void of_two_control_records_the_first_counts(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_store_answer a;

    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 0));
    a = create_control(x, 1, 10, "ten", 3);
    is_control(&a, 10, "ten", 3);
    a = create_control(x, 1, 10, "another", 7);
    assert_true(a.ok);
    is_control(&a, 10, "ten", 3);
    assert_true(take_term(x, 2).ok);
    a = create_control(x, 2, 10, "a third", 7);
    assert_true(a.ok);
    is_control(&a, 10, "ten", 3);
    a = create_control(x, 2, 30, "", 0);
    is_control(&a, 30, "", 0);
    a = read_store(x);
    is_control(&a, 30, "", 0);
}

/* Larger than a request of etcd may be: a record may have all parameters. */
static void control_records_may_be_large(void **state)
{
    static const int64_t sizes[] = {(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, (5 << 20) + 77};
    struct fixture *x = store_of(state);
    uint32_t r = 1;

    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 0));
    for (int i = 0; i < WF_COUNT(sizes); i++) {
        char *p = malloc((size_t)sizes[i]);
        struct wf_store_answer a;

        for (int64_t k = 0; k < sizes[i]; k++) {
            r = r * 1664525 + 1013904223;
            p[k] = (char)(r >> 24);
        }
        a = create_control(x, 1, i, p, sizes[i]);
        assert_true(a.ok);
        is_control(&a, i, p, sizes[i]);
        a = create_control(x, 1, i, "other", 5); /* is read again from its parts */
        is_control(&a, i, p, sizes[i]);
        a = read_store(x);
        is_control(&a, i, p, sizes[i]);
        free(p);
    }
}

static void old_ones_are_removed_and_never_created_again(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_store_answer a;

    for (uint64_t i = 1; i <= 30; i++)
        assert_true(take_term(x, i).ok);
    for (uint64_t i = 1; i <= 30; i++)
        assert_true(create_epoch(x, 30, i, (int64_t)i));
    for (int64_t i = 1; i <= 30; i++) {
        assert_true(create_manifest(x, 30, 1, i));
        assert_true(create_control(x, 30, i, "c", 1).ok);
    }
    a = read_store(x);
    assert_true(a.term == 30 && a.epoch->number == 30 && a.t == 30 && a.control_t == 30);
    for (uint64_t i = 1; i <= 30; i++) {
        assert_false(take_term(x, i).ok);
        assert_false(create_epoch(x, 30, i, 0));
    }
}

/* ---- two processes --------------------------------------------------------------------------- */

enum { RACE = 200 };

static void race(struct fixture *x, int to)
{
    static char mine[RACE + 1];

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &x->ctx) ||
        wf_chief_store_open(x->ctx, &x->opts, &x->r))
        _exit(1);
    for (uint64_t n = 1; n <= RACE; n++) {
        struct wf_action a = {.type = WF_ACT_CREATE_TERM, .number = n};
        struct wf_store_answer out;

        if (wf_chief_store_do(x->r, &a, &out))
            _exit(2);
        mine[n] = out.ok;
    }
    _exit(write(to, mine, sizeof mine) == sizeof mine ? 0 : 3);
}

static void signs_of_life_are_seen(void **state)
{
    struct fixture *x = store_of(state);

    assert_true(read_store(x).pulse == 0);
    assert_true(take_term(x, 1).ok);
    assert_true(show(x, (uint64_t)1 << 32 | 1).pulse == ((uint64_t)1 << 32 | 1));
    assert_true(read_store(x).pulse == ((uint64_t)1 << 32 | 1));
    show(x, (uint64_t)1 << 32 | 2);
    show(x, 0xfedcba9876543210);
    assert_true(read_store(x).pulse == 0xfedcba9876543210);
    assert_true(read_store(x).term == 1 && !read_store(x).epoch);
}

static void of_two_processes_at_most_one_gets_each_term(void **state)
{
    struct fixture *x = store_of(state);
    char mine[2][RACE + 1];
    int pipes[2][2], won[2] = {0, 0};

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
    }
    assert_int_equal(read_store(x).term, RACE);
    assert_true(won[0] + won[1] >= RACE * 9 / 10);
    if (x->member != FOLDER) /* no listing is ever old there */
        assert_int_equal(won[0] + won[1], RACE);
    print_message("one process got %d terms, the other one %d\n", won[0], won[1]);
}

/* ---- etcd goes away and comes back ----------------------------------------------------------- */

static void what_was_created_outlives_a_killed_etcd(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_action read = {.type = WF_ACT_READ};
    struct wf_store_answer a;
    struct timespec from, to;

    if (x->member != ETCD)
        skip();
    assert_true(take_term(x, 1).ok);
    assert_true(create_epoch(x, 1, 1, 5));
    etcd_end(&plain, SIGKILL);
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(wf_chief_store_do(x->r, &read, &a), WEFT_EPEER);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true(to.tv_sec - from.tv_sec <= 4);
    assert_non_null(strstr(weft_error(), "etcd at 127.0.0.1:"));
    assert_true(etcd_start(&plain));
    for (int i = 0; i < 100 && wf_chief_store_do(x->r, &read, &a); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    a = read_store(x);
    assert_true(a.term == 1 && a.epoch && a.epoch->start == 5);
    assert_true(create_epoch(x, 1, 2, 6));
}

/* SIGSTOP: connections are accepted by the kernel, and nothing answers. */
static void a_request_to_a_stopped_etcd_ends_in_time(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_action take = {.type = WF_ACT_CREATE_TERM, .number = 1};
    struct wf_store_answer a;
    struct timespec from, to;

    if (x->member != ETCD)
        skip();
    kill(plain.pid, SIGSTOP);
    assert_int_equal(waitpid(plain.pid, NULL, WUNTRACED), plain.pid); /* all of its threads */
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_int_equal(wf_chief_store_do(x->r, &take, &a), WEFT_EPEER);
    clock_gettime(CLOCK_MONOTONIC, &to);
    kill(plain.pid, SIGCONT);
    assert_in_range(to.tv_sec - from.tv_sec, 2, 5);
    /* the request was received, and may be done now: the second attempt counts as one with it */
    for (int i = 0; i < 50 && wf_chief_store_do(x->r, &take, &a); i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_true(a.ok);
    assert_int_equal(read_store(x).term, 1);
    assert_true(take_term(x, 2).ok);
}

static void a_certificate_is_needed_and_checked(void **state)
{
    struct fixture *x = store_of(state);
    struct wf_action read = {.type = WF_ACT_READ};
    struct wf_chief_store_opts o = x->opts;
    struct wf_store_answer a;
    struct wf_chief_store *r;

    if (x->member != ETCDS)
        skip();
    o.certificate = o.key = NULL;
    assert_int_equal(wf_chief_store_open(x->ctx, &o, &r), WEFT_OK);
    assert_int_equal(wf_chief_store_do(r, &read, &a), WEFT_EPEER);
    wf_chief_store_close(r);
    o = x->opts;
    o.authority = NULL; /* the system's do not know it */
    assert_int_equal(wf_chief_store_open(x->ctx, &o, &r), WEFT_OK);
    assert_int_equal(wf_chief_store_do(r, &read, &a), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "certificate"));
    wf_chief_store_close(r);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

static bool make_certificate(void)
{
    char command[700];

    snprintf(cert, sizeof cert, "%s/cert.pem", top);
    snprintf(key, sizeof key, "%s/key.pem", top);
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
             "/CN=weft-test -addext subjectAltName=IP:127.0.0.1 -addext "
             "extendedKeyUsage=serverAuth,clientAuth -keyout %s -out %s >/dev/null 2>&1",
             key, cert);
    return system(command) == 0;
}

static int start(void **state)
{
    (void)state;
    strcpy(top, "chief_store_test.XXXXXX");
    if (!mkdtemp(top))
        return -1;
    if (!etcd_there())
        return 0;
    snprintf(plain.dir, sizeof plain.dir, "%s/plain", top);
    snprintf(secure.dir, sizeof secure.dir, "%s/secure", top);
    mkdir(plain.dir, 0777);
    mkdir(secure.dir, 0777);
    if (!etcd_start(&plain)) {
        print_message("etcd does not start: see %s/log\n", plain.dir);
        return -1;
    }
    if (make_certificate()) {
        secure.cert = cert;
        secure.key = key;
        if (!etcd_start(&secure))
            return -1;
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    etcd_end(&plain, SIGKILL);
    etcd_end(&secure, SIGKILL);
    nftw(top, remove_node, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

int main(void)
{
#define AS(name, member) cmocka_unit_test_setup_teardown(name, setup_##member, teardown)
#define ALL(name) AS(name, folder), AS(name, etcd), AS(name, etcds)
    const struct CMUnitTest tests[] = {
        ALL(a_new_store_is_empty),
        ALL(what_is_created_is_read_by_another_process),
        ALL(a_number_is_created_once_and_in_order),
        ALL(a_lower_term_creates_and_removes_nothing),
        ALL(a_manifest_that_is_there_counts),
        ALL(signs_of_life_are_seen),
        ALL(manifests_are_ordered_by_history_and_version),
        ALL(of_two_control_records_the_first_counts),
        ALL(control_records_may_be_large),
        ALL(old_ones_are_removed_and_never_created_again),
        ALL(of_two_processes_at_most_one_gets_each_term),
        AS(what_was_created_outlives_a_killed_etcd, etcd),
        AS(a_request_to_a_stopped_etcd_ends_in_time, etcd),
        AS(a_certificate_is_needed_and_checked, etcds),
    };

    return cmocka_run_group_tests(tests, start, end);
}
