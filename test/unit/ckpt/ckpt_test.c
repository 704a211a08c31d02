/* ckpt_test.c - checkpoints: what is saved comes back bit for bit; what is damaged is found,
 * named and skipped. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/ckpt_sample.h"
#include "ckpt/ckpt.h"

struct room {
    weft_ctx *ctx;
    char dir[64];
    struct sample_log log;
    int64_t memory; /* of the bare context */
};

static int open_room(void **state)
{
    struct room *r = calloc(1, sizeof *r);

    temp_make(r->dir);
    *state = r;
    if (weft_ctx_new(
            WEFT_OPTS(weft_ctx_opts, .threads = 2, .log = sample_log_fn, .log_arg = &r->log),
            &r->ctx))
        return -1;
    r->memory = weft_ctx_memory(r->ctx);
    return 0;
}

static int close_room(void **state)
{
    struct room *r = *state;

    assert_int_equal(weft_ctx_memory(r->ctx), r->memory);
    weft_ctx_free(r->ctx);
    temp_remove(r->dir);
    free(r);
    return 0;
}

static void save(struct room *r, int64_t step, const weft_ckpt_writer_opts *opts)
{
    weft_ckpt_writer *w = NULL;
    struct sample s;

    sample_make(&s, step);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, opts, &w), 0);
    assert_int_equal(weft_ckpt_save(w, &s.data), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
}

static void latest_is(struct room *r, int64_t step)
{
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open_latest(r->ctx, r->dir, &c);
    const char *what;

    if (st)
        fail_msg("wanted step %lld: %s", (long long)step, weft_error());
    what = sample_differs(c, step);
    if (what)
        fail_msg("step %lld, wanted %lld: %s differs", (long long)weft_ckpt_info(c)->step,
                 (long long)step, what);
    weft_ckpt_close(c);
}

static void what_is_saved_comes_back_bit_for_bit(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    char *blob = NULL;
    struct sample s;
    int64_t n = 0;
    double v = 0;

    save(r, 1234, NULL);
    latest_is(r, 1234);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_non_null(strstr(weft_ckpt_path(c), "/ckpt-000001234"));
    assert_string_equal(weft_ckpt_library(c), weft_version());
    assert_true(weft_ckpt_bytes(c) > 400);
    sample_make(&s, 1234);
    assert_int_equal(weft_ckpt_blob_read(c, WEFT_CKPT_POSITION, &blob, &n), 0);
    assert_int_equal(n, sizeof s.position);
    assert_memory_equal(blob, s.position, sizeof s.position);
    weft_text_free(r->ctx, blob);
    assert_int_equal(weft_ckpt_blob_read(c, WEFT_CKPT_GRAPH, &blob, NULL), 0);
    assert_string_equal(blob, "weft graph 1\n");
    weft_text_free(r->ctx, blob);
    assert_int_equal(weft_ckpt_blob_read(c, "empty.bin", &blob, &n), 0);
    assert_int_equal(n, 0);
    weft_text_free(r->ctx, blob);
    assert_int_equal(weft_ckpt_blob_read(c, "nothing", &blob, &n), WEFT_ENOENT);
    /* a tensor is no blob, nor the other way round, and no name is a file's */
    assert_int_equal(weft_ckpt_blob_read(c, "dense/bias", &blob, &n), WEFT_ENOENT);
    assert_int_equal(weft_ckpt_find(c, WEFT_CKPT_GRAPH), -1);
    assert_int_equal(weft_ckpt_blob_read(c, "../.lock", &blob, &n), WEFT_ENOENT);
    assert_true(weft_ckpt_metric_get(c, "loss", &v));
    assert_true(v == 1.0 / 1237);
    assert_false(weft_ckpt_metric_get(c, "los", &v));
    weft_ckpt_close(c);
    weft_ckpt_close(NULL);
}

static void a_tensor_is_read_only_into_its_own_type(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    float out[35] = {0};
    double wide[35] = {0};
    weft_tensor t = weft_view(WEFT_F32, out, 2, (int64_t[]){7, 5});
    const char *file;
    uint64_t hash;

    save(r, 1, NULL);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_load(c, "dense/kernel", &t), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "f32[5,7], but f32[7,5] was requested"));
    t = weft_view(WEFT_F64, wide, 2, (int64_t[]){5, 7});
    assert_int_equal(weft_ckpt_load(c, "dense/kernel", &t), WEFT_EDTYPE);
    assert_int_equal(weft_ckpt_load(c, "dense/kernl", &t), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "did you mean 'dense/kernel'?"));
    assert_int_equal(weft_ckpt_read(c, 99, &t), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_read(c, -1, &t), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_where(c, 99, &file, &hash), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_find(c, "nope"), -1);
    weft_ckpt_close(c);
}

static void tensors_are_split_over_shards_by_size(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    weft_st *st = NULL;
    char path[256];
    const char *file;
    uint64_t hash;

    save(r, 5, WEFT_OPTS(weft_ckpt_writer_opts, .shard_bytes = 170));
    latest_is(r, 5);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_where(c, 0, &file, &hash), 0);
    assert_string_equal(file, "tensors-00001-of-00003.safetensors");
    assert_int_equal(weft_ckpt_where(c, 2, &file, &hash), 0);
    assert_string_equal(file, "tensors-00002-of-00003.safetensors");
    weft_ckpt_close(c);
    /* a shard alone says where it belongs */
    snprintf(path, sizeof path, "%s/ckpt-000000005/tensors-00002-of-00003.safetensors", r->dir);
    assert_int_equal(weft_st_open(r->ctx, path, &st), 0);
    assert_string_equal(weft_st_metadata(st, "step"), "5");
    assert_string_equal(weft_st_metadata(st, "shard"), "2");
    assert_string_equal(weft_st_metadata(st, "shards"), "3");
    weft_st_close(st);
}

static void a_tensor_larger_than_a_shard_has_one_of_its_own(void **state)
{
    struct room *r = *state;

    save(r, 6, WEFT_OPTS(weft_ckpt_writer_opts, .shard_bytes = 1));
    latest_is(r, 6);
}

static void a_checkpoint_without_tensors_is_fine(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *w = NULL;
    weft_ckpt *c = NULL;

    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, NULL, &w), 0);
    assert_int_equal(weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 0)), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_info(c)->n_tensors, 0);
    assert_true(weft_ckpt_info(c)->time_ns > 1600000000000000000); /* a wall clock */
    weft_ckpt_close(c);
}

static void the_newest_is_by_step_whatever_lies_around(void **state)
{
    struct room *r = *state;
    static const char *const odd[] = {"ckpt-",          "ckpt-7x",    "ckpt-000000099-", "ckpt--1",
                                      ".tmp-ckpt-0099", "checkpoint", "ckpt-9-0"};
    char path[256];

    for (int i = 0; i < WF_COUNT(odd); i++) {
        snprintf(path, sizeof path, "%s/%s", r->dir, odd[i]);
        file_put(path, "", 0);
    }
    save(r, 9, NULL);
    save(r, 1000000000000, NULL);
    save(r, 10, NULL);
    latest_is(r, 1000000000000);
    assert_string_equal(r->log.text, "");
}

static void nothing_there_is_enoent(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    weft_ckpt_list *l = NULL;

    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), WEFT_ENOENT);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, "no-such-folder", &c), WEFT_ENOENT);
    assert_int_equal(weft_ckpt_list_new(r->ctx, "no-such-folder", NULL, &l), WEFT_ENOENT);
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, NULL, &l), 0);
    assert_int_equal(l->n, 0);
    weft_ckpt_list_free(r->ctx, l);
    assert_int_equal(weft_ckpt_open(r->ctx, r->dir, &c), WEFT_ENOENT);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static const char *const files[] = {"manifest.json", "tensors-00001-of-00002.safetensors",
                                    "tensors-00002-of-00002.safetensors"};
static const char the_shard[] = "tensors-00001-of-00001.safetensors"; /* with the default size */

static void falls_back(struct room *r, const char *how, const char *file)
{
    r->log.text[0] = '\0';
    latest_is(r, 1);
    if (!strstr(r->log.text, "ckpt-000000002 is damaged; skipping it: ") ||
        !strstr(r->log.text, "falling back to the newest valid checkpoint") ||
        !strstr(r->log.text, "(step 1)"))
        fail_msg("%s of %s: the log says: %s", how, file, r->log.text);
}

static void two_checkpoints(struct room *r)
{
    save(r, 1, WEFT_OPTS(weft_ckpt_writer_opts, .shard_bytes = 300));
    save(r, 2, WEFT_OPTS(weft_ckpt_writer_opts, .shard_bytes = 300));
    latest_is(r, 2);
}

static void any_flipped_bit_falls_back_to_the_last_good_one(void **state)
{
    struct room *r = *state;

    two_checkpoints(r);
    for (int f = 0; f < WF_COUNT(files); f++) {
        char path[256], *bytes;
        int64_t n, stride = getenv("WEFT_TEST_QUICK") ? 61 : 7;

        snprintf(path, sizeof path, "%s/ckpt-000000002/%s", r->dir, files[f]);
        bytes = file_get(path, &n);
        for (int64_t i = 0; i < n; i += n < 50 ? 1 : stride) {
            bytes[i] ^= (char)(1 << (i % 8));
            file_put(path, bytes, n);
            falls_back(r, "a flipped bit", files[f]);
            bytes[i] ^= (char)(1 << (i % 8));
        }
        file_put(path, bytes, n);
        free(bytes);
        latest_is(r, 2);
    }
}

static void any_cut_or_grown_or_missing_file_falls_back(void **state)
{
    struct room *r = *state;

    two_checkpoints(r);
    for (int f = 0; f < WF_COUNT(files); f++) {
        char path[256], *bytes;
        int64_t n;

        snprintf(path, sizeof path, "%s/ckpt-000000002/%s", r->dir, files[f]);
        bytes = file_get(path, &n);
        for (int cut = 0; cut < 4; cut++) {
            file_put(path, bytes, (int64_t[]){0, 1, n / 2, n - 1}[cut]);
            falls_back(r, "a cut", files[f]);
        }
        file_put(path, bytes, n + 1); /* file_get puts a NUL behind */
        falls_back(r, "a byte more", files[f]);
        assert_int_equal(remove(path), 0);
        falls_back(r, "the loss", files[f]);
        file_put(path, bytes, n);
        free(bytes);
        latest_is(r, 2);
    }
}

static int64_t find_bytes(const char *in, int64_t n, const char *text)
{
    int64_t len = (int64_t)strlen(text);

    for (int64_t i = 0; i + len <= n; i++)
        if (!memcmp(in + i, text, (size_t)len))
            return i;
    fail_msg("'%s' is missing", text);
    return -1;
}

static void reading_finds_damage_that_came_after_opening(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    char path[256], *bytes, *blob;
    float out[35] = {0};
    weft_tensor t = weft_view(WEFT_F32, out, 2, (int64_t[]){5, 7});
    int64_t n, at;

    two_checkpoints(r);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    snprintf(path, sizeof path, "%s/ckpt-000000002/%s", r->dir, files[1]);
    bytes = file_get(path, &n);
    for (int64_t i = n - 160; i < n; i++) /* tensors, not the header */
        bytes[i] ^= 0x40;
    file_put(path, bytes, n);
    free(bytes);
    assert_int_equal(weft_ckpt_load(c, "dense/kernel", &t), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "'dense/kernel': damaged: its checksum is"));
    snprintf(path, sizeof path, "%s/ckpt-000000002/%s", r->dir, files[2]);
    bytes = file_get(path, &n);
    at = find_bytes(bytes, n, "weft graph 1\n");
    bytes[at] ^= 1;
    file_put(path, bytes, n);
    assert_int_equal(weft_ckpt_blob_read(c, WEFT_CKPT_GRAPH, &blob, NULL), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "'graph.txt': damaged: its checksum is"));
    bytes[at] ^= 1;
    file_put(path, bytes, n);
    assert_int_equal(weft_ckpt_blob_read(c, WEFT_CKPT_GRAPH, &blob, NULL), 0);
    assert_string_equal(blob, "weft graph 1\n");
    weft_text_free(r->ctx, blob);
    file_put(path, bytes, at + 3);
    assert_int_equal(weft_ckpt_blob_read(c, WEFT_CKPT_GRAPH, &blob, NULL), WEFT_EPARSE);
    free(bytes);
    weft_ckpt_close(c);
}

/* A pipe must not hold the job, a folder not confuse it, and a manifest larger than any is
 * damage, not lack of memory. */
static void a_pipe_a_folder_or_a_monster_in_the_place_of_a_file_falls_back(void **state)
{
    struct room *r = *state;

    two_checkpoints(r);
    for (int f = 0; f < WF_COUNT(files); f++) {
        char path[256], *bytes;
        int64_t n;

        snprintf(path, sizeof path, "%s/ckpt-000000002/%s", r->dir, files[f]);
        bytes = file_get(path, &n);
        assert_int_equal(remove(path), 0);
        assert_int_equal(mkfifo(path, 0666), 0);
        falls_back(r, "a pipe", files[f]);
        assert_int_equal(remove(path), 0);
        assert_int_equal(mkdir(path, 0777), 0);
        falls_back(r, "a folder", files[f]);
        assert_int_equal(remove(path), 0);
        file_put(path, bytes, n);
        assert_int_equal(truncate(path, WF_CKPT_MANIFEST_MAX + 1), 0); /* takes no room */
        falls_back(r, "a monster", files[f]);
        file_put(path, bytes, n);
        free(bytes);
        latest_is(r, 2);
    }
}

/* Moved to another disk, with a link left behind: it is read, and goes with its turn. */
static void a_checkpoint_behind_a_link_is_one(void **state)
{
    struct room *r = *state;
    char path[256], moved[256], target[64];

    two_checkpoints(r);
    snprintf(path, sizeof path, "%s/ckpt-000000002", r->dir);
    snprintf(moved, sizeof moved, "%s/elsewhere", r->dir);
    snprintf(target, sizeof target, "elsewhere");
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(target, path), 0);
    latest_is(r, 2);
    save(r, 3, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1));
    assert_int_equal(access(path, F_OK), -1);
    latest_is(r, 3);
}

/* Two sound files in each other's place: every checksum of a tensor fits, the whole does not. */
static void shards_in_each_others_place_are_found(void **state)
{
    struct room *r = *state;
    char a[256], b[256], *x, *y;
    int64_t n, m;

    two_checkpoints(r);
    snprintf(a, sizeof a, "%s/ckpt-000000002/%s", r->dir, files[1]);
    snprintf(b, sizeof b, "%s/ckpt-000000002/%s", r->dir, files[2]);
    x = file_get(a, &n);
    y = file_get(b, &m);
    file_put(a, y, m);
    file_put(b, x, n);
    free(x);
    free(y);
    falls_back(r, "an exchange", files[1]);
}

static void all_damaged_is_an_error_and_no_fresh_start(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    char path[256];

    two_checkpoints(r);
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "%s/ckpt-00000000%d/%s", r->dir, i, files[1]);
        file_put(path, "x", 1);
    }
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "none of the 2 checkpoints is valid"));
}

static void a_newer_version_is_said_and_not_skipped(void **state)
{
    struct room *r = *state;
    weft_ckpt *c = NULL;
    struct wf_buf b;
    char path[256], *text, *v;
    int64_t n;

    two_checkpoints(r);
    snprintf(path, sizeof path, "%s/ckpt-000000002/manifest.json", r->dir);
    text = file_get(path, &n);
    v = strstr(text, "\"version\": 1");
    assert_non_null(v);
    v[11] = '3';
    *strstr(text, ",\n  \"xxh64\": ") = '\0';
    wf_buf_init(&b, r->ctx, 1 << 20);
    wf_buf_add(&b, text, (int64_t)strlen(text));
    wf_manifest_seal(&b);
    file_put(path, b.data, b.len);
    wf_buf_free(&b);
    free(text);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "version 3"));
}

/* ---- several of a step, pruning -------------------------------------------------------------- */

static void list_is(struct room *r, const char *want)
{
    weft_ckpt_list *l = NULL;
    char text[1024] = "";

    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, "loss", &l), 0);
    for (int64_t i = 0; i < l->n; i++) {
        size_t at = strlen(text);

        snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "",
                 strrchr(l->entry[i].path, '/') + 1);
    }
    weft_ckpt_list_free(r->ctx, l);
    assert_string_equal(text, want);
}

static void a_second_of_a_step_supersedes_the_first(void **state)
{
    struct room *r = *state;
    char path[256];

    save(r, 7, NULL);
    snprintf(path, sizeof path, "%s/ckpt-000000007/%s", r->dir, the_shard);
    file_put(path, "broken", 6);
    save(r, 7, NULL); /* the first goes when the second is there */
    list_is(r, "ckpt-000000007-2");
    latest_is(r, 7);
    save(r, 7, NULL);
    list_is(r, "ckpt-000000007-3");
    save(r, 8, NULL);
    list_is(r, "ckpt-000000007-3 ckpt-000000008");
    latest_is(r, 8);
}

static void the_list_tells_what_manifests_say(void **state)
{
    struct room *r = *state;
    weft_ckpt_list *l = NULL;
    char path[256];

    two_checkpoints(r);
    snprintf(path, sizeof path, "%s/ckpt-000000001/manifest.json", r->dir);
    file_put(path, "{}", 2);
    assert_int_equal(weft_ckpt_list_new(r->ctx, r->dir, "loss", &l), 0);
    assert_int_equal(l->n, 2);
    assert_int_equal(l->entry[0].step, 1);
    assert_non_null(l->entry[0].error);
    assert_null(l->entry[1].error);
    assert_int_equal(l->entry[1].n_tensors, SAMPLE_TENSORS);
    assert_true(l->entry[1].has_metric && l->entry[1].metric == 1.0 / 5);
    assert_int_equal(l->entry[1].time_ns, 1700000002000000000);
    weft_ckpt_list_free(r->ctx, l);
    weft_ckpt_list_free(r->ctx, NULL);
}

static void pruning_keeps_the_last_and_the_best(void **state)
{
    struct room *r = *state;
    weft_ckpt_list *gone = NULL;

    for (int i = 1; i <= 6; i++)
        save(r, i, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = WEFT_CKPT_ALL));
    /* the loss falls with the step: the highest is the first one's */
    weft_ckpt_prune_opts o = {.size = sizeof o,
                              .keep = {.keep_last = 2, .keep_best = 1, .keep_highest = true},
                              .monitor = "loss",
                              .dry_run = true};
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, &o, &gone), 0);
    assert_int_equal(gone->n, 3);
    assert_int_equal(gone->entry[0].step, 2);
    weft_ckpt_list_free(r->ctx, gone);
    list_is(r, "ckpt-000000001 ckpt-000000002 ckpt-000000003 ckpt-000000004 ckpt-000000005 "
               "ckpt-000000006");
    o.dry_run = false;
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, &o, NULL), 0);
    list_is(r, "ckpt-000000001 ckpt-000000005 ckpt-000000006");
    latest_is(r, 6);
    o.monitor = NULL;
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, &o, NULL), WEFT_EINVAL);
}

static void pruning_never_deletes_the_last_good_one(void **state)
{
    struct room *r = *state;
    weft_ckpt_prune_opts o = {.size = sizeof o, .keep = {.keep_last = (int)WEFT_ZERO}};
    char path[256];

    for (int i = 1; i <= 4; i++)
        save(r, i, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = WEFT_CKPT_ALL));
    for (int i = 3; i <= 4; i++) { /* their manifests are valid, their data is not */
        snprintf(path, sizeof path, "%s/ckpt-00000000%d/%s", r->dir, i, the_shard);
        file_put(path, "x", 1);
    }
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, &o, NULL), 0);
    list_is(r, "ckpt-000000002 ckpt-000000003 ckpt-000000004");
    latest_is(r, 2);
    o.damaged = true;
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, &o, NULL), 0);
    list_is(r, "ckpt-000000002");
}

static void one_writer_a_folder(void **state)
{
    struct room *r = *state;
    weft_ckpt_writer *a = NULL, *b = NULL;

    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, NULL, &a), 0);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, NULL, &b), WEFT_ESTATE);
    assert_int_equal(weft_ckpt_prune(r->ctx, r->dir, NULL, NULL), WEFT_ESTATE);
    assert_int_equal(weft_ckpt_writer_close(a), 0);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, NULL, &b), 0);
    assert_int_equal(weft_ckpt_writer_close(b), 0);
    assert_int_equal(weft_ckpt_writer_close(NULL), 0);
}

static void a_writer_sweeps_up_after_a_killed_one(void **state)
{
    struct room *r = *state;
    static const char *const left[] = {".tmp-ckpt-000000003", ".del-ckpt-000000001-2", ".tmp-mine"};
    char path[256];

    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", r->dir, left[i]);
        assert_int_equal(wf_fs_posix.mkdir(NULL, path, 0777), 0);
        snprintf(path, sizeof path, "%s/%s/junk", r->dir, left[i]);
        file_put(path, "x", 1);
    }
    save(r, 3, NULL);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", r->dir, left[i]);
        assert_int_equal(access(path, F_OK), i < 2 ? -1 : 0); /* what is not ours stays */
    }
    latest_is(r, 3);
}

static void folders_are_made_with_their_parents(void **state)
{
    struct room *r = *state;
    char deep[256];
    weft_ckpt_writer *w = NULL;

    snprintf(deep, sizeof deep, "%s/a//b/c/", r->dir);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, deep, NULL, &w), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    snprintf(deep, sizeof deep, "%s/file", r->dir);
    file_put(deep, "", 0);
    assert_int_equal(weft_ckpt_writer_new(r->ctx, deep, NULL, &w), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "is not a directory"));
    assert_int_equal(weft_ckpt_writer_new(r->ctx, "", NULL, &w), WEFT_EINVAL);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void differences_are_measured(void **state)
{
    struct room *r = *state;
    float a[4] = {1, 2, NAN, 4}, b[4] = {1, 2.5f, NAN, 3}, c[4] = {NAN, 2, NAN, 4};
    int64_t big[2] = {((int64_t)1 << 60) + 1, 5}, other[2] = {(int64_t)1 << 60, 5};
    weft_ckpt_tensor ta[] = {
        {"w", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
        {"same", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
        {"shape", NULL, weft_view(WEFT_F32, a, 2, (int64_t[]){2, 2})},
        {"nan", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
        {"big", NULL, weft_view(WEFT_I64, big, 1, (int64_t[]){2})},
        {"old", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
    };
    weft_ckpt_tensor tb[] = {
        {"new", NULL, weft_view(WEFT_F32, b, 1, (int64_t[]){4})},
        {"w", NULL, weft_view(WEFT_F32, b, 1, (int64_t[]){4})},
        {"same", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
        {"shape", NULL, weft_view(WEFT_F32, a, 1, (int64_t[]){4})},
        {"nan", NULL, weft_view(WEFT_F32, c, 1, (int64_t[]){4})},
        {"big", NULL, weft_view(WEFT_I64, other, 1, (int64_t[]){2})},
    };
    static const weft_ckpt_change want[] = {WEFT_CKPT_VALUES, WEFT_CKPT_SAME,   WEFT_CKPT_TYPE,
                                            WEFT_CKPT_VALUES, WEFT_CKPT_VALUES, WEFT_CKPT_REMOVED,
                                            WEFT_CKPT_ADDED};
    weft_ckpt_writer *w = NULL;
    weft_ckpt *x = NULL, *y = NULL;
    weft_ckpt_delta *d = NULL;
    char path[256];
    int64_t n = 0;

    assert_int_equal(weft_ckpt_writer_new(r->ctx, r->dir, NULL, &w), 0);
    assert_int_equal(
        weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 1, .n_tensors = 6, .tensors = ta)), 0);
    assert_int_equal(
        weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 2, .n_tensors = 6, .tensors = tb)), 0);
    assert_int_equal(weft_ckpt_writer_close(w), 0);
    snprintf(path, sizeof path, "%s/ckpt-000000001", r->dir);
    assert_int_equal(weft_ckpt_open(r->ctx, path, &x), 0);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &y), 0);
    assert_int_equal(weft_ckpt_diff(x, y, &n, &d), 0);
    assert_int_equal(n, 7);
    for (int i = 0; i < 7; i++)
        assert_int_equal(d[i].change, want[i]);
    assert_true(d[0].max_abs == 1 && d[0].at == 3 && d[0].n_diff == 2 && d[0].count == 4);
    assert_true(d[3].max_abs != d[3].max_abs && d[3].at == 0 && d[3].n_diff == 1);
    assert_int_equal(d[4].n_diff, 1); /* a difference that doubles do not see */
    weft_ckpt_diff_free(r->ctx, d);
    weft_ckpt_close(x);
    weft_ckpt_close(y);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void names_of_checkpoints(void **state)
{
    static const struct {
        const char *name;
        int64_t step, attempt; /* step -1: no checkpoint */
    } rows[] = {
        {"ckpt-000000000", 0, 1},
        {"ckpt-5", 5, 1},
        {"ckpt-000001234-2", 1234, 2},
        {"ckpt-9223372036854775807", INT64_MAX, 1},
        {"ckpt-9223372036854775808", -1, 0},
        {"ckpt-1-0", -1, 0},
        {"ckpt-1-", -1, 0},
        {"ckpt-1-2-3", -1, 0},
        {"ckpt-", -1, 0},
        {"ckpt-x", -1, 0},
        {"ckpt-1 ", -1, 0},
        {"Ckpt-1", -1, 0},
        {"ckp", -1, 0},
        {"", -1, 0},
    };
    int64_t step, attempt;
    char out[WF_CKPT_NAME];

    (void)state;
    for (int i = 0; i < WF_COUNT(rows); i++) {
        bool ok = wf_ckpt_name_parse(rows[i].name, &step, &attempt);

        if (ok != (rows[i].step >= 0) ||
            (ok && (step != rows[i].step || attempt != rows[i].attempt)))
            fail_msg("'%s': %d, step %lld, attempt %lld", rows[i].name, ok, (long long)step,
                     (long long)attempt);
    }
    wf_ckpt_name_make(out, INT64_MAX, INT64_MAX);
    assert_true(wf_ckpt_name_parse(out, &step, &attempt));
    assert_true(step == INT64_MAX && attempt == INT64_MAX);
}

#define IN_ROOM(f) cmocka_unit_test_setup_teardown(f, open_room, close_room)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOM(what_is_saved_comes_back_bit_for_bit),
        IN_ROOM(a_tensor_is_read_only_into_its_own_type),
        IN_ROOM(tensors_are_split_over_shards_by_size),
        IN_ROOM(a_tensor_larger_than_a_shard_has_one_of_its_own),
        IN_ROOM(a_checkpoint_without_tensors_is_fine),
        IN_ROOM(the_newest_is_by_step_whatever_lies_around),
        IN_ROOM(nothing_there_is_enoent),
        IN_ROOM(any_flipped_bit_falls_back_to_the_last_good_one),
        IN_ROOM(any_cut_or_grown_or_missing_file_falls_back),
        IN_ROOM(reading_finds_damage_that_came_after_opening),
        IN_ROOM(a_pipe_a_folder_or_a_monster_in_the_place_of_a_file_falls_back),
        IN_ROOM(a_checkpoint_behind_a_link_is_one),
        IN_ROOM(shards_in_each_others_place_are_found),
        IN_ROOM(all_damaged_is_an_error_and_no_fresh_start),
        IN_ROOM(a_newer_version_is_said_and_not_skipped),
        IN_ROOM(a_second_of_a_step_supersedes_the_first),
        IN_ROOM(the_list_tells_what_manifests_say),
        IN_ROOM(pruning_keeps_the_last_and_the_best),
        IN_ROOM(pruning_never_deletes_the_last_good_one),
        IN_ROOM(one_writer_a_folder),
        IN_ROOM(a_writer_sweeps_up_after_a_killed_one),
        IN_ROOM(folders_are_made_with_their_parents),
        IN_ROOM(differences_are_measured),
        cmocka_unit_test(names_of_checkpoints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
