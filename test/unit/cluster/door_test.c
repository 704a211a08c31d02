/* door_test.c - joining a job: tokens, the door, and all that must not get in. */
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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cluster/door.h"
#include "net/net.h"
#include "weft/sys/join.h"
#include "weft/weft.h"

struct world {
    weft_ctx *ctx;
    weft_authority *authority;
    weft_door *door;
    char folder[128], bound[128], said[4096];
    pthread_mutex_t lock; /* of said */
    int n_taken;
    bool full, wrong;
};

static bool take(void *arg, const char *role, char task[WEFT_TASK_NAME], const char **told)
{
    struct world *w = arg;

    *told = w->full ? "every worker of the job is there" : "the job";
    if (!w->full)
        snprintf(task, WEFT_TASK_NAME, "%s/%d", w->wrong ? "chief" : role, w->n_taken++);
    return !w->full;
}

static void said(void *arg, const char *line)
{
    struct world *w = arg;
    size_t n;

    pthread_mutex_lock(&w->lock);
    n = strlen(w->said);
    snprintf(w->said + n, sizeof w->said - n, "%s\n", line);
    pthread_mutex_unlock(&w->lock);
}

static void has_said(struct world *w, const char *what)
{
    bool found;

    pthread_mutex_lock(&w->lock);
    found = strstr(w->said, what) != NULL;
    if (!found)
        fprintf(stderr, "not said: %s\n%s", what, w->said);
    pthread_mutex_unlock(&w->lock);
    assert_true(found);
}

static int open_world(void **state)
{
    const char *tmp = getenv("TMPDIR");
    struct world *w = calloc(1, sizeof *w);
    const weft_door_opts o = {.size = sizeof o,
                              .address = "tls:127.0.0.1:0",
                              .seconds = 600,
                              .take = take,
                              .said = said,
                              .arg = w};

    pthread_mutex_init(&w->lock, NULL);
    snprintf(w->folder, sizeof w->folder, "%.60s/weft-door-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(w->folder));
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &w->ctx), 0);
    assert_int_equal(weft_authority_new(w->ctx, 1, &w->authority), 0);
    assert_int_equal(weft_door_open(w->ctx, w->authority, &o, w->bound, sizeof w->bound, &w->door),
                     0);
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    char command[256];

    weft_door_close(w->door);
    weft_authority_free(w->authority);
    weft_ctx_free(w->ctx);
    snprintf(command, sizeof command, "rm -rf %s", w->folder);
    assert_int_equal(system(command), 0);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return 0;
}

static const char *file(struct world *w, const char *name)
{
    static char path[8][256];
    static int i;

    i = (i + 1) % 8;
    snprintf(path[i], sizeof path[i], "%s/%s", w->folder, name);
    return path[i];
}

static weft_status join(struct world *w, const char *token, char task[WEFT_TASK_NAME])
{
    char *description = NULL;
    weft_status st = weft_join(w->ctx, w->bound, token, w->folder, 5, task, &description);

    if (!st)
        assert_string_equal(description, "the job");
    weft_text_free(w->ctx, description);
    return st;
}

static void tokens_are_read_as_they_were_written(void **state)
{
    static const char *const wrong[] = {"",
                                        "weft-token-2 worker",
                                        "weft-token-1 ",
                                        "weft-token-1 Worker 00",
                                        "weft-token-1 worker 0011223344556677 00 00",
                                        "weft-token-1 workerworkerworker 0011223344556677"};
    struct world *w = *state;
    unsigned char print[WF_FINGERPRINT] = {1, 2, 3};
    struct wf_token a, b;
    char text[WF_TOKEN_TEXT], more[WF_TOKEN_TEXT + 8];

    assert_int_equal(wf_token_new(w->ctx, "worker", print, &a), 0);
    wf_token_write(&a, text);
    assert_int_equal(wf_token_parse(text, (int64_t)strlen(text), &b), 0);
    assert_memory_equal(&a, &b, sizeof a);
    for (int64_t n = 0; n < (int64_t)strlen(text) - 1; n++)
        assert_int_equal(wf_token_parse(text, n, &b), WEFT_EPARSE);
    snprintf(more, sizeof more, "%s x", text);
    assert_int_equal(wf_token_parse(more, (int64_t)strlen(more), &b), WEFT_EPARSE);
    for (size_t i = 0; i < WF_COUNT(wrong); i++)
        assert_int_equal(wf_token_parse(wrong[i], (int64_t)strlen(wrong[i]), &b), WEFT_EPARSE);
    assert_int_equal(wf_token_new(w->ctx, "Worker 1", print, &a), WEFT_EINVAL);
}

static void a_token_lets_as_many_in_as_it_says(void **state)
{
    struct world *w = *state;
    const char *token = file(w, "token");
    char task[WEFT_TASK_NAME];
    struct stat s;

    assert_int_equal(weft_door_token(w->door, "worker", 2, 60, token), 0);
    assert_int_equal(stat(token, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(join(w, token, task), 0);
    assert_string_equal(task, "worker/0");
    assert_int_equal(stat(file(w, "worker-0.key"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(join(w, token, task), 0);
    assert_string_equal(task, "worker/1");
    assert_int_equal(join(w, token, task), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "used up"));
    has_said(w, "joins as worker/0");
    has_said(w, "used up");
}

/* The certificate that was given is that of the task, and the job's links take it. */
static void who_joined_has_a_certificate_that_can_be_renewed(void **state)
{
    struct world *w = *state;
    const char *token = file(w, "token");
    char task[WEFT_TASK_NAME];
    struct stat before, after;

    assert_int_equal(weft_door_token(w->door, "ps", 1, 60, token), 0);
    assert_int_equal(join(w, token, task), 0);
    assert_int_equal(stat(file(w, "ps-0.pem"), &before), 0);
    assert_int_equal(weft_join_renew(w->ctx, w->bound, w->folder, "ps/0", 5), 0);
    assert_int_equal(stat(file(w, "ps-0.pem"), &after), 0);
    assert_true(before.st_ino != after.st_ino);
    has_said(w, "renewed the certificate of ps/0");
    /* and is renewed with the new one */
    assert_int_equal(weft_join_renew(w->ctx, w->bound, w->folder, "ps/0", 5), 0);
    /* a task that has none cannot */
    assert_int_not_equal(weft_join_renew(w->ctx, w->bound, w->folder, "ps/1", 5), 0);
}

static void copy_token(struct world *w, const char *from, const char *to, int at)
{
    char text[WF_TOKEN_TEXT + 1] = "";
    FILE *f = fopen(from, "r");

    (void)w;
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    text[at] = text[at] == '0' ? '1' : '0';
    f = fopen(to, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void wrong_tokens_are_refused(void **state)
{
    struct world *w = *state;
    const char *token = file(w, "token"), *other = file(w, "other");
    char task[WEFT_TASK_NAME];
    int end;

    assert_int_equal(weft_door_token(w->door, "worker", 1, 60, token), 0);
    end = (int)(sizeof "weft-token-1 worker " - 1 + 16 + 1 + 64 + 1 + 64);
    copy_token(w, token, other, end - 1); /* of the secret */
    assert_int_equal(join(w, other, task), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "not known"));
    copy_token(w, token, other, end - 64);
    assert_int_equal(join(w, other, task), WEFT_EPEER);
    copy_token(w, token, other, (int)sizeof "weft-token-1 worker " - 1); /* of its number */
    assert_int_equal(join(w, other, task), WEFT_EPEER);
    has_said(w, "refused guest");
    assert_int_equal(weft_door_token(w->door, "worker", 1, 0.02, other), 0);
    nanosleep(&(struct timespec){.tv_nsec = 40000000}, NULL);
    assert_int_equal(join(w, other, task), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "expired"));
    /* a refusal by the job does not use it up */
    w->full = true;
    assert_int_equal(join(w, token, task), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "every worker of the job is there"));
    w->full = false;
    /* the role is the token's */
    w->wrong = true;
    assert_int_equal(join(w, token, task), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "not for 'chief/0'"));
    w->wrong = false;
    assert_int_equal(join(w, token, task), 0);
}

/* Somebody else at that address never learns the secret: the handshake fails. */
static void a_door_of_another_authority_gets_no_secret(void **state)
{
    struct world *w = *state;
    weft_authority *other;
    weft_door *door;
    char bound[128], task[WEFT_TASK_NAME], *description = NULL;
    const weft_door_opts o = {.size = sizeof o,
                              .address = "tls:127.0.0.1:0",
                              .seconds = 600,
                              .take = take,
                              .said = said,
                              .arg = w};
    const char *token = file(w, "token");

    assert_int_equal(weft_authority_new(w->ctx, 1, &other), 0);
    assert_int_equal(weft_door_open(w->ctx, other, &o, bound, sizeof bound, &door), 0);
    assert_int_equal(weft_door_token(w->door, "worker", 1, 60, token), 0);
    assert_int_equal(weft_join(w->ctx, bound, token, w->folder, 5, task, &description), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "certificate"));
    assert_null(description);
    assert_null(strstr(w->said, "refused")); /* no question was asked */
    weft_door_close(door);
    weft_authority_free(other);
    assert_int_equal(join(w, token, task), 0);
}

static void bad_options_are_refused(void **state)
{
    struct world *w = *state;
    weft_door *door = NULL;
    char task[WEFT_TASK_NAME], *description = NULL;
    const weft_door_opts o = {.size = sizeof o, .address = "tcp:127.0.0.1:0", .take = take};

    assert_int_equal(weft_door_open(w->ctx, w->authority, &o, NULL, 0, &door), WEFT_EINVAL);
    assert_int_equal(weft_door_token(w->door, "worker", 0, 60, file(w, "t")), WEFT_EINVAL);
    assert_int_equal(weft_door_token(w->door, "worker", 1, 0, file(w, "t")), WEFT_EINVAL);
    assert_int_equal(weft_join(w->ctx, "tcp:a:1", "x", w->folder, 1, task, &description),
                     WEFT_EINVAL);
    assert_int_not_equal(
        weft_join(w->ctx, w->bound, file(w, "none"), w->folder, 1, task, &description), 0);
    assert_null(door);
}

/* ---- strangers ------------------------------------------------------------------------------- */

struct stranger {
    atomic_bool up, down;
};

static void is_up(void *arg, struct wf_link *l)
{
    (void)l;
    ((struct stranger *)arg)->up = true;
}

static void is_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    (void)st;
    (void)why;
    ((struct stranger *)arg)->down = true;
    wf_link_drop(l);
}

static void ignore(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    (void)arg;
    (void)l;
    (void)m;
}

static bool is_gone(void *arg)
{
    return ((struct stranger *)arg)->down;
}

/* A guest that asks for nonsense, or says that it is somebody, is sent away; the door stays. */
static void strangers_are_sent_away(void **state)
{
    static const unsigned char heads[][3] = {{1, 9, 0}, {7, 1, 0}, {1, 1, 0}};
    struct world *w = *state;
    unsigned char print[WF_FINGERPRINT];
    char task[WEFT_TASK_NAME];
    const char *token = file(w, "token");
    struct wf_tls *tls;

    assert_int_equal(wf_cert_fingerprint(wf_authority_pem(w->authority)->certificate, print), 0);
    assert_int_equal(wf_tls_new_guest(w->ctx, print, &tls), 0);
    for (int i = 0; i < 4; i++) {
        struct stranger s = {0};
        struct wf_net_opts o = {
            .self = {.name = WF_GUEST, .role = WF_GUEST},
            .calls = {.arg = &s, .up = is_up, .down = is_down, .received = ignore},
            .tls = tls};
        struct wf_msg m = {.kind = 1, .head = heads[i % 3], .n_head = 3};
        struct wf_net *net;
        struct wf_link *l;

        if (i == 3)
            snprintf(o.self.name, sizeof o.self.name, "chief/0");
        assert_int_equal(wf_net_new(w->ctx, &o, &net), 0);
        assert_int_equal(wf_net_connect(net, w->bound, 5000000000, &l), 0);
        wf_link_send(l, &m, NULL, NULL);
        assert_int_equal(wf_net_wait(net, is_gone, &s, 20000000000, "the end"), 0);
        wf_net_free(net);
    }
    wf_tls_free(tls);
    has_said(w, "unknown");
    assert_int_equal(weft_door_token(w->door, "worker", 1, 60, token), 0);
    assert_int_equal(join(w, token, task), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
        ROW(tokens_are_read_as_they_were_written),
        ROW(a_token_lets_as_many_in_as_it_says),
        ROW(who_joined_has_a_certificate_that_can_be_renewed),
        ROW(wrong_tokens_are_refused),
        ROW(a_door_of_another_authority_gets_no_secret),
        ROW(bad_options_are_refused),
        ROW(strangers_are_sent_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
