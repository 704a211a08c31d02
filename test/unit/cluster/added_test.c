/* added_test.c - tasks beyond the list that a job began with: every process gives them the same
 * numbers, and what is not such a list is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/spec.h"

static weft_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
}

static int teardown(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

enum { MAX = 16 };

/* chief/0, ps/0, worker/0. */
static int begin(struct wf_task task[MAX])
{
    struct wf_spec s = {0};
    int n;

    assert_int_equal(wf_spec_parse(ctx, "chief=uds:/a;ps=uds:/b;worker=1", &s), WEFT_OK);
    n = s.n_tasks;
    memset(task, 0, MAX * sizeof *task);
    memcpy(task, s.task, (size_t)n * sizeof *task);
    wf_free(ctx, (void *)(uintptr_t)s.task);
    return n;
}

static void a_list_is_only_continued(void **state)
{
    struct wf_task task[MAX];
    int n = begin(task);
    struct wf_buf b;

    (void)state;
    assert_int_equal(wf_added_read("ps/1 uds:/c\n", task, &n, MAX), WEFT_OK);
    assert_int_equal(n, 4);
    assert_int_equal(wf_added_read("ps/1 uds:/c\nworker/7\n", task, &n, MAX), WEFT_OK);
    assert_int_equal(n, 5);
    assert_string_equal(task[3].address, "uds:/c");
    assert_string_equal(task[4].name, "worker/7");
    assert_true(task[4].added && task[4].role == WF_ROLE_WORKER && task[4].index == 7);
    assert_int_equal(wf_added_read("ps/1 uds:/c\n", task, &n, MAX), WEFT_OK); /* an older one */
    assert_int_equal(n, 5);
    assert_int_equal(wf_added_read("", task, &n, MAX), WEFT_OK);
    assert_int_equal(n, 5);
    assert_int_equal(wf_added_read("worker/7\nps/1 uds:/c\n", task, &n, MAX), WEFT_EDATA);
    wf_buf_init(&b, ctx, 1 << 10);
    assert_int_equal(wf_added_write(task, n, &b), WEFT_OK);
    assert_string_equal(b.data, "ps/1 uds:/c\nworker/7\n");
    wf_buf_free(&b);
}

static void what_is_not_a_list_is_refused(void **state)
{
    static const char *const bad[] = {"ps/1",
                                      "ps/1\n",
                                      "worker/2 x y\n",
                                      "chief/1 uds:/c\n",
                                      "worker/9999\n",
                                      "evaluator/0\n",
                                      "worker/-1\n",
                                      "\n",
                                      "worker/1\nworker/1\n",
                                      "worker/0\n",
                                      "ps/1 nowhere:1\n"};
    char longer[600];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wf_task task[MAX];
        int n = begin(task);

        assert_int_equal(wf_added_read(bad[i], task, &n, MAX), WEFT_EDATA);
    }
    memset(longer, 'x', sizeof longer);
    memcpy(longer, "worker/1 ", 9);
    strcpy(longer + sizeof longer - 2, "\n");
    for (int k = 0; k < 2; k++) {
        struct wf_task task[MAX];
        int n = begin(task);
        char many[20 * 16] = "";

        for (int i = 1; i < 16; i++)
            sprintf(many + strlen(many), "worker/%d\n", i);
        assert_int_equal(wf_added_read(k ? many : longer, task, &n, MAX),
                         k ? WEFT_ELIMIT : WEFT_EDATA);
        assert_true(n <= MAX);
    }
}

static void text_keeps_them_apart_from_the_list(void **state)
{
    weft_cluster *c = NULL;
    struct wf_spec s = {0};
    int self;

    (void)state;
    assert_int_equal(
        weft_cluster_find(ctx,
                          WEFT_OPTS(weft_cluster_opts, .tasks = "chief=uds:/a;ps=uds:/b;worker=2",
                                    .task = "ps/3", .extra = true, .address = "uds:/c"),
                          &c),
        WEFT_OK);
    assert_string_equal(weft_cluster_text(c), "chief=uds:/a;ps=uds:/b;worker=2;+ps/3=uds:/c");
    assert_int_equal(wf_spec_parse(ctx, weft_cluster_text(c), &s), WEFT_OK);
    assert_int_equal(wf_spec_count(&s, WF_ROLE_SERVER), 1);
    assert_int_equal(wf_spec_find(&s, "ps/3", &self), WEFT_OK);
    assert_int_equal(self, s.n_tasks - 1);
    wf_free(ctx, (void *)(uintptr_t)s.task);
    weft_cluster_free(c);
    /* one of the list is not added */
    assert_int_equal(
        weft_cluster_find(ctx,
                          WEFT_OPTS(weft_cluster_opts, .tasks = "chief=uds:/a;ps=uds:/b;worker=2",
                                    .task = "worker/1", .extra = true),
                          &c),
        WEFT_OK);
    assert_string_equal(weft_cluster_text(c), "chief=uds:/a;ps=uds:/b;worker=2");
    weft_cluster_free(c);
    assert_int_equal(wf_spec_parse(ctx, "chief=uds:/a;ps=uds:/b;worker=2;+worker/1", &s),
                     WEFT_EINVAL); /* twice */
    assert_int_equal(wf_spec_parse(ctx, "chief=uds:/a;ps=uds:/b;worker=2;+ps/1", &s), WEFT_EINVAL);
    assert_int_equal(wf_spec_parse(ctx, "chief=uds:/a;ps=uds:/b;worker=2;+chief/1=uds:/c", &s),
                     WEFT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_list_is_only_continued, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_a_list_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(text_keeps_them_apart_from_the_list, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
