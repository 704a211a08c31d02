/* command_test.c - weft ckpt as a user meets it: tables, JSON that parses, exit codes, damage,
 * pruning. The command is $WEFT; %d in an argument list is the folder of the checkpoints. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../../support/ckpt_sample.h"
#include "ckpt/ckpt.h"

static char dir[64], output[1 << 16];

/* Runs the command, keeps what it prints, returns its exit code. */
static int weft(const char *args, bool with_errors)
{
    char line[2048] = "", *to = line;
    size_t n;
    FILE *p;
    int rc;

    to += snprintf(to, 1024, "%s ckpt ", getenv("WEFT"));
    for (; *args; args++)
        if (args[0] == '%' && args[1] == 'd') {
            to += snprintf(to, 64, "%s", dir);
            args++;
        } else {
            *to++ = *args;
        }
    strcpy(to, with_errors ? " 2>&1" : " 2>/dev/null");
    p = popen(line, "r");
    assert_non_null(p);
    n = fread(output, 1, sizeof output - 1, p);
    output[n] = '\0';
    rc = pclose(p);
    assert_true(WIFEXITED(rc));
    return WEXITSTATUS(rc);
}

static int make_folder(void **state)
{
    weft_ckpt_writer *w = NULL;
    weft_ctx *ctx = NULL;
    struct sample s;

    (void)state;
    if (!getenv("WEFT"))
        return -1;
    temp_make(dir);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(weft_ckpt_writer_new(ctx, dir,
                                          WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = -1,
                                                    .shard_bytes = 300, .foreground = true),
                                          &w),
                     0);
    for (int64_t step = 100; step <= 500; step += 100) {
        sample_make(&s, step);
        assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    }
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    weft_ctx_free(ctx);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_remove(dir);
    return 0;
}

struct row {
    const char *args;
    int code;
    const char *text;
};

static void want_all(const struct row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        int code = weft(rows[i].args, true);

        if (code != rows[i].code || !strstr(output, rows[i].text))
            fail_msg("weft ckpt %s: wanted exit %d and '%s', got exit %d and:\n%s", rows[i].args,
                     rows[i].code, rows[i].text, code, output);
    }
}

#define SHARD "tensors-00001-of-00002.safetensors"

static void damage(int64_t step, const char *file)
{
    char path[256];

    snprintf(path, sizeof path, "%s/ckpt-%09lld/%s", dir, (long long)step, file);
    file_put(path, "x", 1);
}

static void tables_texts_and_exit_codes(void **state)
{
    static const struct row rows[] = {
        {"ls %d", 0, "        step   epoch  time (UTC)           tensors      size"},
        {"ls %d", 0, "         500      50  2023-11-14 22:21:40       12"},
        {"ls %d --monitor loss", 0, "0.00970874"},
        {"ls %d --monitor nothing", 0, "           -  "},
        {"ls nowhere", 3, "nowhere: cannot list: No such file"},
        {"ls /proc/self/fdinfo", 0, "no checkpoint"},
        {"ls", 2, "needs the directory"},
        {"ls %d %d", 2, "needs the directory"},
        {"ls --help", 0, "usage: weft ckpt ls DIR"},
        {"ls %d --jsn", 2, "did you mean --json"},
        {"show %d", 0, "step         500, epoch 50"},
        {"show %d", 0, "seed         fedcba9876543210"},
        {"show %d", 0, "metrics      loss = 0.00198807157"},
        {"show %d", 0, "             grad_norm = inf"},
        {"show %d", 0, "metadata     job = line one\\nline two\\t\\x01"},
        {"show %d", 0, "blobs        position.bin (40 B)"},
        {"show %d", 0, "param    f32[5,7]"},
        {"show %d", 0, "i64[]"},
        {"show %d/ckpt-000000200", 0, "step         200, epoch 20"},
        {"show nowhere", 3, "No such file"},
        {"show", 2, "needs a checkpoint"},
        {"show --help", 0, "usage: weft ckpt show"},
        {"verify %d", 0, "ok       "},
        {"verify %d/ckpt-000000100 %d/ckpt-000000200", 0, "ckpt-000000200"},
        {"verify nowhere", 3, "No such file"},
        {"verify /proc/self/fdinfo", 3, "no checkpoint"},
        {"verify", 2, "needs a checkpoint"},
        {"verify --help", 0, "Exit code 3"},
        {"diff %d/ckpt-000000100 %d/ckpt-000000100", 0, "12 of 12 tensors are identical"},
        {"diff %d/ckpt-000000100 %d/ckpt-000000100 --all", 0, "same     dense/kernel:m"},
        {"diff %d/ckpt-000000100 %d", 1, "max |a - b| = 400 at element 0; 35 of 35 differ"},
        {"diff %d/ckpt-000000100 %d", 1, "(step 100, step 500)"},
        {"diff %d", 2, "needs two checkpoints"},
        {"diff %d nowhere", 3, "No such file"},
        {"diff --help", 0, "Exit code 1"},
        {"prune %d", 2, "give what to keep"},
        {"prune", 2, "needs the directory"},
        {"prune %d --keep-best 2", 2, "--keep-best needs --monitor"},
        {"prune %d --keep-hours soon", 2, "takes a number, not 'soon'"},
        {"prune %d --keep-hours -1", 2, "takes a number"},
        {"prune nowhere --keep-last 1", 3, "No such file"},
        {"prune %d --keep-last 2 --dry-run", 0, "would delete"},
        {"prune %d --damaged", 0, "nothing to delete"},
    };

    (void)state;
    want_all(rows, WF_COUNT(rows));
}

static void json_parses(void **state)
{
    static const struct {
        const char *args;
        int code;
        bool list;
        size_t n;
    } rows[] = {
        {"ls %d --json", 0, true, 5},
        {"ls %d --json --monitor val_acc", 0, true, 5},
        {"ls /proc/self/fdinfo --json", 0, true, 0},
        {"show %d --json", 0, false, 12},
        {"verify %d --json", 3, true, 5},
        {"diff %d/ckpt-000000100 %d/ckpt-000000300 --json", 1, true, 12},
        {"prune %d --keep-last 3 --dry-run --json", 0, true, 2},
    };

    (void)state;
    damage(400, SHARD);
    for (int i = 0; i < WF_COUNT(rows); i++) {
        json_t *v;
        json_error_t e;
        wf_locale plain;
        size_t n;

        assert_int_equal(weft(rows[i].args, false), rows[i].code);
        plain = wf_plain_locale_enter();
        v = json_loads(output, JSON_REJECT_DUPLICATES, &e);
        wf_plain_locale_leave(plain);
        if (!v)
            fail_msg("weft ckpt %s: line %d: %s\n%s", rows[i].args, e.line, e.text, output);
        n = rows[i].list ? json_array_size(v) : json_object_size(v);
        if (n != rows[i].n)
            fail_msg("weft ckpt %s: %zu entries\n%s", rows[i].args, n, output);
        json_decref(v);
    }
}

static void damage_is_named(void **state)
{
    static const struct row rows[] = {
        {"verify %d", 3, "DAMAGED  "},
        {"verify %d", 3, SHARD ": "},
        {"verify %d/ckpt-000000500", 3, "1 byte"},
        {"verify %d/ckpt-000000300", 0, "ok"},
        {"ls %d", 0, "         400  damaged: "},
        {"show %d", 0, "is damaged; skipping it"}, /* … and the last good one is shown */
        {"show %d", 0, "step         300"},
        {"show %d/ckpt-000000400", 3, "truncated"},
        {"diff %d/ckpt-000000300 %d/ckpt-000000400", 3, "truncated"},
        {"prune %d --keep-last 1 --dry-run", 0, "ckpt-000000200"},
    };

    (void)state;
    damage(400, "manifest.json");
    damage(500, SHARD);
    want_all(rows, WF_COUNT(rows));
}

static void pruning_prunes(void **state)
{
    static const struct row rows[] = {
        {"prune %d --keep-last 1 --keep-best 1 --monitor loss --highest", 0,
         "deleted /"}, /* the loss falls: the highest is the first */
        {"ls %d", 0, "ckpt-000000100\n"},
        {"verify %d", 0, "ckpt-000000500\n"},
        {"prune %d --keep-last 2", 0, "nothing to delete"},
        {"prune %d --keep-last 0", 0, "ckpt-000000100\n"},
        {"show %d", 0, "step         500"},
    };

    (void)state;
    if (dir[0] != '/') /* the first row's text needs an absolute path */
        skip();
    want_all(rows, WF_COUNT(rows));
    assert_int_equal(weft("ls %d", true), 0);
    assert_null(strstr(output, "ckpt-000000200"));
    assert_null(strstr(output, "ckpt-000000100"));
}

static void a_folder_in_use_is_not_pruned(void **state)
{
    weft_ckpt_writer *w = NULL;
    weft_ctx *ctx = NULL;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(weft_ckpt_writer_new(ctx, dir, NULL, &w), 0);
    assert_int_equal(weft("prune %d --keep-last 1", true), 1);
    assert_non_null(strstr(output, "another process"));
    assert_int_equal(weft("verify %d", true), 0); /* looking is fine */
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    weft_ctx_free(ctx);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tables_texts_and_exit_codes),
        IN_FOLDER(json_parses),
        IN_FOLDER(damage_is_named),
        IN_FOLDER(pruning_prunes),
        IN_FOLDER(a_folder_in_use_is_not_pruned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
