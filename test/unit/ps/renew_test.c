/* renew_test.c - certificates that are replaced while a job runs: the files are read again, and
 * what is broken is not used. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net/net.h"
#include "ps/renew.h"
#include "weft/sys/net.h"
#include "weft/weft.h"

#define SECOND 1000000000

struct world {
    weft_ctx *ctx;
    weft_authority *authority;
    char folder[128], path[WF_PEM_FILES][200];
    int n_renewed, n_warned;
};

static void log_line(void *arg, int level, const char *line)
{
    struct world *w = arg;

    w->n_renewed += strstr(line, "were renewed") != NULL;
    w->n_warned += level >= WEFT_LOG_WARN;
}

static int open_world(void **state)
{
    static const char *const names[] = {"authority.pem", "ps-0.pem", "ps-0.key"};
    const char *tmp = getenv("TMPDIR");
    struct world *w = calloc(1, sizeof *w);

    snprintf(w->folder, sizeof w->folder, "%.60s/weft-renew-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(w->folder));
    for (int i = 0; i < WF_PEM_FILES; i++)
        snprintf(w->path[i], sizeof w->path[i], "%s/%s", w->folder, names[i]);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = log_line, .log_arg = w),
                     &w->ctx),
        0);
    assert_int_equal(weft_authority_new(w->ctx, 1, &w->authority), 0);
    assert_int_equal(weft_authority_issue(w->authority, w->folder, "ps/0", 60), 0);
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    char command[200];

    weft_authority_free(w->authority);
    weft_ctx_free(w->ctx);
    snprintf(command, sizeof command, "rm -rf %s", w->folder);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static weft_status open_files(struct world *w, struct wf_renewal **r, struct wf_tls **tls)
{
    return wf_renewal_new(w->ctx, (const char *const[]){w->path[0], w->path[1], w->path[2]}, r,
                          tls);
}

static void new_files_are_taken_once(void **state)
{
    struct world *w = *state;
    struct wf_renewal *r;
    struct wf_tls *tls;

    assert_int_equal(open_files(w, &r, &tls), 0);
    wf_renewal_look(r, 10 * (int64_t)SECOND);
    assert_int_equal(w->n_renewed, 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* another time in the files */
    assert_int_equal(weft_authority_issue(w->authority, w->folder, "ps/0", 60), 0);
    wf_renewal_look(r, 10 * (int64_t)SECOND + 1); /* too soon to look again */
    assert_int_equal(w->n_renewed, 0);
    wf_renewal_look(r, 20 * (int64_t)SECOND);
    assert_int_equal(w->n_renewed, 1);
    wf_renewal_look(r, 30 * (int64_t)SECOND);
    assert_int_equal(w->n_renewed, 1);
    assert_int_equal(w->n_warned, 0);
    wf_renewal_free(r);
    wf_tls_free(tls);
}

static void files_that_cannot_be_used_leave_the_old_ones(void **state)
{
    struct world *w = *state;
    struct wf_renewal *r;
    struct wf_tls *tls;
    FILE *f;

    assert_int_equal(open_files(w, &r, &tls), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    f = fopen(w->path[1], "w");
    assert_non_null(f);
    fputs("-----BEGIN CERTIFICATE-----\n", f);
    fclose(f);
    wf_renewal_look(r, 10 * (int64_t)SECOND);
    wf_renewal_look(r, 20 * (int64_t)SECOND);
    assert_int_equal(w->n_renewed, 0);
    assert_int_equal(w->n_warned, 1); /* said once */
    assert_int_equal(unlink(w->path[1]), 0);
    wf_renewal_look(r, 30 * (int64_t)SECOND);
    assert_int_equal(weft_authority_issue(w->authority, w->folder, "ps/0", 60), 0);
    wf_renewal_look(r, 40 * (int64_t)SECOND);
    assert_int_equal(w->n_renewed, 1);
    wf_renewal_free(r);
    wf_tls_free(tls);
}

/* Files of two authorities, or a certificate that has expired: no peer would accept this task, so
 * it says so at once, and names the file. */
static void files_that_nobody_would_accept_are_refused(void **state)
{
    struct world *w = *state;
    struct wf_renewal *r = NULL;
    struct wf_tls *tls = NULL;
    char aside[220];
    weft_authority *other;

    assert_int_equal(open_files(w, &r, &tls), 0);
    wf_renewal_free(r);
    wf_tls_free(tls);
    snprintf(aside, sizeof aside, "%s/kept", w->folder);
    assert_int_equal(rename(w->path[0], aside), 0);
    assert_int_equal(weft_authority_new(w->ctx, 1, &other), 0);
    assert_int_equal(weft_authority_issue(other, w->folder, "ps/0", 60), 0);
    weft_authority_free(other);
    assert_int_equal(rename(aside, w->path[0]), 0);
    assert_int_equal(open_files(w, &r, &tls), WEFT_EINVAL);
    if (!strstr(weft_error(), "ps-0.pem: it was made by another authority"))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_authority_issue(w->authority, w->folder, "ps/0", 1), 0);
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100000000}, NULL);
    assert_int_equal(open_files(w, &r, &tls), WEFT_EINVAL);
    if (!strstr(weft_error(), "ps-0.pem: it has expired"))
        fail_msg("%s", weft_error());
}

static void missing_files_are_named(void **state)
{
    struct world *w = *state;
    struct wf_renewal *r = NULL;
    struct wf_tls *tls = NULL;

    assert_int_equal(
        wf_renewal_new(w->ctx, (const char *const[]){w->path[0], NULL, w->path[2]}, &r, &tls),
        WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "a certificate"));
    assert_int_equal(unlink(w->path[2]), 0);
    assert_int_not_equal(open_files(w, &r, &tls), 0);
    assert_non_null(strstr(weft_error(), "ps-0.key"));
    assert_null(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
        ROW(new_files_are_taken_once),
        ROW(files_that_cannot_be_used_leave_the_old_ones),
        ROW(files_that_nobody_would_accept_are_refused),
        ROW(missing_files_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
