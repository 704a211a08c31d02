/* opts_test.c - every call that takes a struct that begins with its size.
 *
 * A program that was compiled against an older header gives fewer bytes: they are taken, the rest
 * is as if it were zero, and no byte after them is touched (they end at a protected page). More
 * bytes than today's, from a newer header, and no size at all are refused. The last test reads the
 * public headers: a struct with a size that is not in the table here is an error. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include <glob.h>

#include "support/guarded.h"
#include "unit/train/opts_calls.h"

/* Structs that calls fill; the tests at the end. */
static const char *const results[] = {
    "weft_plan_info",     "weft_job_output",   "weft_device",        "weft_device_opts",
    "weft_device_info",   "weft_device_ops",   "weft_device_driver", "weft_net_part",
    "weft_net_row",       "weft_dist_counts",  "weft_task",          "weft_ps_prediction",
    "weft_follow_result", "weft_worker_config"};

/* The first `size` bytes of what the call needs, saying that they are `says` bytes; nothing can be
 * read after them. */
static struct guarded given(const struct call *c, size_t size, size_t says)
{
    struct guarded g = guarded_new(size);

    if (c->proto)
        memcpy(g.p, c->proto, size < c->today ? size : c->today);
    memcpy(g.p, &says, size < sizeof says ? size : sizeof says);
    return g;
}

static weft_status try_size(const struct call *c, size_t size, size_t says)
{
    struct guarded g = given(c, size, says);
    weft_status st = c->call(g.p);

    guarded_free(&g);
    return st;
}

/* The same as a struct of today's size whose tail is zero. */
static weft_status try_padded(const struct call *c, size_t size)
{
    struct guarded g = guarded_new(c->today);
    weft_status st;

    if (c->proto)
        memcpy(g.p, c->proto, size);
    memcpy(g.p, &c->today, sizeof c->today);
    st = c->call(g.p);
    guarded_free(&g);
    return st;
}

static void smaller_structs_are_taken_with_defaults_for_the_rest(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(calls); i++) {
        const struct call *c = &calls[i];
        weft_status full = try_size(c, c->today, c->today);
        size_t step = c->proto || c->today > 128 ? sizeof(void *) : 1; /* no half of a pointer */

        for (size_t size = sizeof size; size < c->today; size += step) {
            weft_status st = try_size(c, size, size), padded = try_padded(c, size);

            if (st != padded || (size >= c->least && st != full))
                fail_msg("%s: %zu of %zu bytes: %s (%s), padded with zeros %s, all %s", c->name,
                         size, c->today, weft_status_name(st), weft_error(),
                         weft_status_name(padded), weft_status_name(full));
        }
    }
}

/* Otherwise the test above would compare refusals. */
static void most_calls_succeed(void **state)
{
    int n_failed = 0;

    (void)state;
    for (int i = 0; i < COUNT(calls); i++) {
        weft_status st = try_size(&calls[i], calls[i].today, calls[i].today);

        n_failed += st != 0;
        if (st)
            print_message("%s: %s: %s\n", calls[i].name, weft_status_name(st), weft_error());
    }
    assert_in_range(n_failed, 0, 10); /* files and a chief that are not there; resize and where */
}

static void null_means_all_defaults(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(calls); i++) {
        weft_status st = calls[i].call(NULL), empty;

        if (calls[i].required) {
            assert_int_not_equal(st, WEFT_OK);
            continue;
        }
        empty = try_size(&calls[i], sizeof(size_t), sizeof(size_t));
        if (st != empty)
            fail_msg("%s: NULL gives %s, a struct without fields %s", calls[i].name,
                     weft_status_name(st), weft_status_name(empty));
    }
}

static void refused(const struct call *c, weft_status st, const char *word)
{
    if (st != WEFT_EINVAL || !strstr(weft_error(), word) || !strstr(weft_error(), c->type))
        fail_msg("%s: %s: %s (wanted '%s')", c->name, weft_status_name(st), st ? weft_error() : "",
                 word);
}

static void larger_structs_are_of_a_newer_weft(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(calls); i++) {
        refused(&calls[i], try_size(&calls[i], calls[i].today + 8, calls[i].today + 8),
                "compiled against a newer weft than the library");
        refused(&calls[i], try_size(&calls[i], calls[i].today, SIZE_MAX), "newer weft");
    }
}

static void structs_without_a_size_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(calls); i++)
        for (size_t says = 0; says < sizeof says; says++)
            refused(&calls[i], try_size(&calls[i], calls[i].today, says), "WEFT_OPTS");
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* weft_callback as an older header would have it. */
struct old_callback {
    size_t size;
    void *arg;
    const char *name;
    weft_status (*train_begin)(void *arg, weft_trainer *t);
};

static weft_status note(void *arg, weft_trainer *t)
{
    char **at = arg;

    (void)t;
    *(*at)++ = 'x';
    return WEFT_OK;
}

static void arrays_are_walked_in_the_callers_steps(void **state)
{
    char text[8] = "", *at = text;
    struct guarded g = guarded_new(3 * sizeof(struct old_callback));
    struct old_callback *cb = g.p;
    weft_job *job;
    weft_job_run *run;

    (void)state;
    for (int i = 0; i < 3; i++)
        cb[i] = (struct old_callback){sizeof *cb, &at, "old", note};
    ok(call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = 3, .callbacks = g.p)));
    assert_string_equal(text, "xxx");
    job_open(&job, &run);
    ok(weft_job_fit(run, WEFT_OPTS(weft_job_fit_opts, .n_callbacks = 3, .callbacks = g.p), NULL));
    weft_job_close(run);
    weft_job_free(job);
    assert_string_equal(text, "xxxxxx");
    cb[1].size = 0;
    assert_int_equal(call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = 3, .callbacks = g.p)),
                     WEFT_EINVAL);
    cb[1].size = sizeof *cb - 8;
    assert_int_equal(call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = 3, .callbacks = g.p)),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "same size"));
    assert_int_equal(call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = 1)), WEFT_EINVAL);
    assert_string_equal(text, "xxxxxx");
    guarded_free(&g);
}

/* ---- results --------------------------------------------------------------------------------- */

static double same_rate(void *arg, int64_t epoch, double rate)
{
    (void)arg, (void)epoch;
    return rate;
}

/* A built-in callback in a struct of an older header: what does not fit is not written. */
static void callbacks_fit_the_callers_struct(void **state)
{
    struct guarded g = guarded_new(sizeof(struct old_callback));
    struct old_callback *cb = g.p;
    weft_callback *out = g.p;

    (void)state;
    ok(weft_callback_new_sized(ctx, "TerminateOnNaN", sizeof *cb, out));
    assert_int_equal(cb->size, sizeof *cb);
    assert_string_equal(cb->name, "TerminateOnNaN");
    ok(call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = 1, .callbacks = out)));
    weft_callback_free(out);
    assert_int_equal(cb->size, 0);
    weft_callback_free(out);
    assert_int_equal(weft_callback_new_sized(ctx, "TerminateOnNaN", 0, out), WEFT_EINVAL);
    assert_int_equal(weft_callback_new_sized(ctx, "TerminateOnNaN", sizeof(weft_callback) + 8, out),
                     WEFT_EINVAL);
    assert_int_equal(weft_callback_rate_sized(ctx, same_rate, NULL, sizeof(weft_callback) + 8, out),
                     WEFT_EINVAL);
    guarded_free(&g);
}

static void plan_info_fits_the_callers_struct(void **state)
{
    struct function f;
    weft_plan_info all = {.size = sizeof all};
    weft_status st;

    (void)state;
    function_open(&f, &st);
    ok(st);
    ok(weft_fn_plan_info(f.fn, &f.feed, &all));
    assert_true(all.n_instructions > 0 && all.fingerprint);
    for (size_t size = sizeof size; size < sizeof all; size += 8) {
        struct guarded g = guarded_new(size);
        weft_plan_info *out = g.p;

        memcpy(g.p, &size, sizeof size);
        ok(weft_fn_plan_info(f.fn, &f.feed, out));
        assert_memory_equal(g.p, &size, sizeof size);
        assert_memory_equal((char *)g.p + 8, (char *)&all + 8, size - 8);
        guarded_free(&g);
    }
    for (int i = 0; i < 2; i++) {
        weft_plan_info wrong = {.size = i ? sizeof wrong + 8 : 0, .n_instructions = 99};

        assert_int_equal(weft_fn_plan_info(f.fn, &f.feed, &wrong), WEFT_EINVAL);
        assert_int_equal(wrong.n_instructions, 99);
    }
    function_close(&f);
}

static void outputs_of_jobs_fit_the_callers_struct(void **state)
{
    weft_job *job;
    weft_job_run *run;
    weft_job_output all;
    float v = 2;
    double read;

    (void)state;
    job_open(&job, &run);
    ok(weft_job_output_at(run, 0, &all));
    assert_int_equal(all.size, sizeof all);
    assert_int_equal(all.kind, WEFT_OUTPUT_QUANTITIES);
    for (size_t size = sizeof size; size < sizeof all; size += 8) {
        struct guarded g = guarded_new(size);

        ok(weft_job_output_at_sized(run, 0, size, g.p));
        assert_memory_equal(g.p, &size, sizeof size);
        assert_memory_equal((char *)g.p + 8, (char *)&all + 8, size - 8);
        weft_job_output_read(g.p, 1, &v, &read);
        assert_true(read == 2); /* the label has no units */
        guarded_free(&g);
    }
    assert_int_equal(weft_job_output_at_sized(run, 0, sizeof all + 8, &all), WEFT_EINVAL);
    weft_job_close(run);
    weft_job_free(job);
}

static void devices_fit_the_callers_struct(void **state)
{
    weft_device all = {.size = sizeof all};

    (void)state;
    ok(weft_ctx_device(ctx, 0, &all));
    assert_string_equal(all.name, "cpu:0");
    for (size_t size = sizeof size; size < sizeof all; size += 8) {
        struct guarded g = guarded_new(size);

        memcpy(g.p, &size, sizeof size);
        ok(weft_ctx_device(ctx, 0, g.p));
        assert_memory_equal(g.p, &size, sizeof size);
        assert_memory_equal((char *)g.p + 8, (char *)&all + 8, size - 8);
        guarded_free(&g);
    }
    for (int i = 0; i < 2; i++) {
        weft_device wrong = {.size = i ? sizeof wrong + 8 : 0, .cores = 99};

        assert_int_equal(weft_ctx_device(ctx, 0, &wrong), WEFT_EINVAL);
        assert_int_equal(wrong.cores, 99);
    }
}

/* ---- the headers ----------------------------------------------------------------------------- */

static bool in_table(const char *type)
{
    for (int i = 0; i < COUNT(calls); i++)
        if (strcmp(calls[i].type, type) == 0)
            return true;
    for (int i = 0; i < COUNT(results); i++)
        if (strcmp(results[i], type) == 0)
            return true;
    return false;
}

/* The structs of a header that begin with their size. */
static int look_at(const char *path, char *missing, size_t room)
{
    FILE *f = fopen(path, "r");
    char line[512], type[128] = "";
    bool first = false;
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "typedef struct %100[a-z0-9_] {", type) == 1) {
            first = strchr(line, '{') != NULL;
            continue;
        }
        if (first && strcmp(line, "    size_t size;\n") == 0) {
            n++;
            if (!in_table(type))
                snprintf(missing + strlen(missing), room - strlen(missing), " %s", type);
        } else if (strstr(line, "size_t size;")) {
            fail_msg("%s: the size of %s is not its first field", path, type);
        }
        first = false;
    }
    fclose(f);
    return n;
}

static void every_struct_with_a_size_is_in_the_table(void **state)
{
    static const char *const patterns[] = {"include/weft/*.h", "include/weft/sys/*.h"};
    const char *src = getenv("SRC");
    char missing[4096] = "", pattern[512];
    int n = 0;

    (void)state;
    if (!src)
        skip();
    for (int i = 0; i < COUNT(patterns); i++) {
        glob_t found;

        snprintf(pattern, sizeof pattern, "%s/%s", src, patterns[i]);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++)
            n += look_at(found.gl_pathv[k], missing, sizeof missing);
        globfree(&found);
    }
    assert_true(n > 90);
    if (*missing)
        fail_msg("structs with a size that this test does not try:%s", missing);
}

static int set_up(void **state)
{
    static const char text[] = "v,y\n1,2\n2,3\n3,4\n4,5\n";

    (void)state;
    temp_make(dir);
    file_put(in_dir("rows.csv"), text, sizeof text - 1);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return -1;
    call_save(WEFT_OPTS(weft_ckpt_data)); /* so that the directory is there */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    temp_remove(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaller_structs_are_taken_with_defaults_for_the_rest),
        cmocka_unit_test(most_calls_succeed),
        cmocka_unit_test(null_means_all_defaults),
        cmocka_unit_test(larger_structs_are_of_a_newer_weft),
        cmocka_unit_test(structs_without_a_size_are_refused),
        cmocka_unit_test(arrays_are_walked_in_the_callers_steps),
        cmocka_unit_test(callbacks_fit_the_callers_struct),
        cmocka_unit_test(plan_info_fits_the_callers_struct),
        cmocka_unit_test(outputs_of_jobs_fit_the_callers_struct),
        cmocka_unit_test(devices_fit_the_callers_struct),
        cmocka_unit_test(every_struct_with_a_size_is_in_the_table),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
