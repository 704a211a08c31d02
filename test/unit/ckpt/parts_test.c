/* parts_test.c - checkpoints that several processes write, and ranges that several read: whatever
 * the cut, the tensors are the same; whatever is missing, twice or damaged is found and named. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/ckpt_sample.h"
#include "ckpt/ckpt.h"

enum { N_TENSORS = 5, MAX_PARTS = 5, MAX_PIECES = 64 };

struct room {
    weft_ctx *ctx;
    char dir[64];
    int64_t memory;
    uint64_t random;
    weft_ckpt_tensor tensor[N_TENSORS];
    int64_t n_tensors; /* that a commit is told of */
};

static uint64_t draw(struct room *r, uint64_t n)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (r->random >> 33) % n;
}

/* Tensors of several types; one without elements, one of a single element. */
static int open_room(void **state)
{
    static const struct {
        const char *name, *section;
        weft_dtype dtype;
        int64_t dim[2];
    } rows[N_TENSORS] = {{"table", "param", WEFT_F32, {1000, 7}},
                         {"table:m", "slot", WEFT_F32, {1000, 7}},
                         {"mean", "state", WEFT_F64, {33, 1}},
                         {"none", "param", WEFT_F32, {0, 4}},
                         {"count[0:1]", "state", WEFT_U8, {1, 1}}};
    struct room *r = calloc(1, sizeof *r);

    temp_make(r->dir);
    *state = r;
    r->random = 7;
    r->n_tensors = N_TENSORS;
    for (int i = 0; i < N_TENSORS; i++) {
        weft_tensor *t = &r->tensor[i].tensor;
        int64_t bytes;

        r->tensor[i].name = rows[i].name;
        r->tensor[i].section = rows[i].section;
        *t = weft_view(rows[i].dtype, NULL, 2, rows[i].dim);
        bytes = weft_tensor_bytes(t);
        t->data = malloc((size_t)bytes + 1);
        for (int64_t k = 0; k < bytes; k++)
            ((unsigned char *)t->data)[k] = (unsigned char)draw(r, 256);
    }
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &r->ctx))
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
    for (int i = 0; i < N_TENSORS; i++)
        free(r->tensor[i].tensor.data);
    free(r);
    return 0;
}

/* The pieces of each part. */
struct cut {
    int n_parts, n[MAX_PARTS];
    weft_ckpt_piece piece[MAX_PARTS][MAX_PIECES];
    char *text[MAX_PARTS];
};

static void add(struct cut *c, int part, const weft_ckpt_tensor *t, int64_t first, int64_t count)
{
    const char *data = t->tensor.data;

    c->piece[part][c->n[part]++] =
        (weft_ckpt_piece){.name = t->name,
                          .section = t->section,
                          .whole = t->tensor,
                          .first = first,
                          .count = count,
                          .data = data + first * weft_dtype_size(t->tensor.dtype)};
}

/* Every tensor in runs of random lengths, each to a random part. */
static void cut_at_random(struct room *r, struct cut *c)
{
    *c = (struct cut){.n_parts = 1 + (int)draw(r, MAX_PARTS)};
    for (int i = 0; i < N_TENSORS; i++) {
        int64_t count = weft_tensor_count(&r->tensor[i].tensor), at = 0;

        do {
            int64_t n = count - at;

            if (n > 1 && draw(r, 4))
                n = 1 + (int64_t)draw(r, (uint64_t)n);
            if (c->n[0] > MAX_PIECES - 8)
                n = count - at;
            add(c, (int)draw(r, (uint64_t)c->n_parts), &r->tensor[i], at, n);
            at += n;
        } while (at < count);
    }
}

static weft_status write_part(struct room *r, const char *name, struct cut *c, int part,
                              const weft_ckpt_part *like)
{
    static const weft_ckpt_blob blob = {"position.bin", "here", 4};
    char writer[8];
    weft_ckpt_part p = *like;

    snprintf(writer, sizeof writer, "w%d", part);
    if (!p.writer)
        p.writer = writer;
    p.size = sizeof p;
    p.n_pieces = c->n[part];
    p.pieces = c->piece[part];
    p.n_blobs = part == 0;
    p.blobs = &blob;
    return weft_ckpt_part_write(r->ctx, r->dir, name, &p, &c->text[part]);
}

static void free_texts(struct room *r, struct cut *c)
{
    for (int i = 0; i < c->n_parts; i++) {
        weft_text_free(r->ctx, c->text[i]);
        c->text[i] = NULL;
    }
}

static weft_status commit(struct room *r, weft_ckpt_build *b, const struct cut *c, int64_t step)
{
    static const weft_ckpt_metric metric = {"loss", 0.5};
    const char *texts[MAX_PARTS];

    for (int i = 0; i < c->n_parts; i++)
        texts[i] = c->text[i];
    return weft_ckpt_commit(b, c->n_parts, texts,
                            WEFT_OPTS(weft_ckpt_data, .step = step, .epoch = 2, .n_metrics = 1,
                                      .metrics = &metric, .n_tensors = r->n_tensors,
                                      .tensors = r->tensor));
}

/* All tensors, whole and by random ranges. */
static void is_as_saved(struct room *r, int64_t step)
{
    weft_ckpt *c = NULL;
    char *blob = NULL;
    int64_t n = 0;

    if (weft_ckpt_open_latest(r->ctx, r->dir, &c))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_ckpt_info(c)->step, step);
    assert_int_equal(weft_ckpt_info(c)->n_tensors, N_TENSORS);
    for (int i = 0; i < N_TENSORS; i++) {
        const weft_tensor *t = &r->tensor[i].tensor;
        int64_t bytes = weft_tensor_bytes(t), count = weft_tensor_count(t);
        int64_t size = weft_dtype_size(t->dtype);
        weft_tensor into = *t;
        char *room = malloc((size_t)bytes + 1);

        into.data = room;
        if (weft_ckpt_load(c, r->tensor[i].name, &into))
            fail_msg("%s", weft_error());
        assert_memory_equal(room, t->data, (size_t)bytes);
        for (int k = 0; k < 10; k++) {
            int64_t first = (int64_t)draw(r, (uint64_t)count + 1);
            int64_t len = (int64_t)draw(r, (uint64_t)(count - first) + 1);

            memset(room, 0x55, (size_t)bytes + 1);
            if (weft_ckpt_read_range(c, weft_ckpt_find(c, r->tensor[i].name), first, len, room))
                fail_msg("%s", weft_error());
            assert_memory_equal(room, (char *)t->data + first * size, (size_t)(len * size));
            assert_int_equal(room[len * size], 0x55);
        }
        free(room);
    }
    assert_int_equal(weft_ckpt_blob_read(c, "position.bin", &blob, &n), 0);
    assert_int_equal(n, 4);
    assert_string_equal(blob, "here");
    weft_text_free(r->ctx, blob);
    weft_ckpt_close(c);
}

static weft_status read_memory(void *arg, int64_t at, int64_t n, void *to)
{
    assert_true(n <= 1 << 20);
    memcpy(to, (const char *)arg + at, (size_t)n);
    return WEFT_OK;
}

/* Some pieces are not in memory, but are read while they are written. */
static void read_some(struct room *r, struct cut *c)
{
    for (int i = 0; i < c->n_parts; i++)
        for (int k = 0; k < c->n[i]; k++)
            if (draw(r, 3) == 0) {
                c->piece[i][k].arg = (void *)(uintptr_t)c->piece[i][k].data;
                c->piece[i][k].read = read_memory;
                c->piece[i][k].data = NULL;
            }
}

static void any_cut_gives_the_same_tensors(void **state)
{
    struct room *r = *state;
    struct cut c;

    for (int64_t step = 0; step < 60; step++) {
        weft_ckpt_part like = {.shard_bytes = (int64_t)draw(r, 3) * 4000,
                               .piece_bytes = (int64_t)draw(r, 3) * 640};
        weft_ckpt_build *b = NULL;

        cut_at_random(r, &c);
        read_some(r, &c);
        assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, step, &b), 0);
        for (int i = c.n_parts - 1; i >= 0; i--)
            if (write_part(r, weft_ckpt_build_name(b), &c, i, &like))
                fail_msg("%s", weft_error());
        if (commit(r, b, &c, step))
            fail_msg("step %lld: %s", (long long)step, weft_error());
        assert_int_equal(commit(r, b, &c, step), WEFT_ESTATE);
        weft_ckpt_build_free(b);
        free_texts(r, &c);
        is_as_saved(r, step);
    }
}

/* More than is read at a time, in several parts with checksums. */
static void a_long_piece_is_read_in_blocks(void **state)
{
    enum { LONG = 900001 };
    struct room *r = *state;
    float *x = calloc(LONG, sizeof *x), *back = calloc(LONG, sizeof *back);
    weft_ckpt_tensor t = {"x", "param", weft_view(WEFT_F32, x, 1, (int64_t[]){LONG})};
    weft_ckpt_piece p = {
        .name = "x", .whole = t.tensor, .count = LONG, .read = read_memory, .arg = x};
    weft_ckpt_build *b = NULL;
    weft_ckpt *c = NULL;
    char *text = NULL;

    for (int i = 0; i < LONG; i++)
        x[i] = (float)(i % 7919);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 1, &b), 0);
    assert_int_equal(weft_ckpt_part_write(r->ctx, r->dir, weft_ckpt_build_name(b),
                                          WEFT_OPTS(weft_ckpt_part, .writer = "a", .n_pieces = 1,
                                                    .pieces = &p, .piece_bytes = 1500000),
                                          &text),
                     0);
    assert_int_equal(
        weft_ckpt_commit(b, 1, (const char *[]){text},
                         WEFT_OPTS(weft_ckpt_data, .step = 1, .n_tensors = 1, .tensors = &t)),
        0);
    weft_ckpt_build_free(b);
    weft_text_free(r->ctx, text);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_read_range(c, 0, 0, LONG, back), 0);
    assert_memory_equal(x, back, LONG * sizeof *x);
    weft_ckpt_close(c);
    free(x);
    free(back);
}

/* What one process wrote, several read. */
static void ranges_of_a_plain_checkpoint(void **state)
{
    static const weft_ckpt_blob blob = {"position.bin", "here", 4};
    struct room *r = *state;
    weft_ckpt_writer *w = NULL;
    weft_ckpt *c = NULL;
    char room[8];

    for (int64_t step = 0; step < 3; step++) {
        assert_int_equal(
            weft_ckpt_writer_new(r->ctx, r->dir,
                                 WEFT_OPTS(weft_ckpt_writer_opts, .piece_bytes = step * 1000), &w),
            0);
        assert_int_equal(
            weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = step, .n_tensors = N_TENSORS,
                                        .tensors = r->tensor, .n_blobs = 1, .blobs = &blob)),
            0);
        assert_int_equal(weft_ckpt_writer_close(w), 0);
        is_as_saved(r, step);
    }
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), 0);
    assert_int_equal(weft_ckpt_read_range(c, 0, 6999, 2, room), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_read_range(c, 0, -1, 2, room), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_read_range(c, 0, 1, INT64_MAX, room), WEFT_ERANGE);
    assert_int_equal(weft_ckpt_read_range(c, N_TENSORS, 0, 1, room), WEFT_ERANGE);
    weft_ckpt_close(c);
}

/* One checkpoint in two parts, with something wrong in the second. */
static void refused(struct room *r, void (*spoil)(struct room *r, struct cut *c), const char *why)
{
    static const weft_ckpt_part like;
    weft_ckpt_build *b = NULL;
    struct cut c = {.n_parts = 2};
    weft_status st;

    for (int i = 0; i < N_TENSORS; i++) {
        int64_t count = weft_tensor_count(&r->tensor[i].tensor);

        if (count <= 1) {
            add(&c, 0, &r->tensor[i], 0, count);
            continue;
        }
        add(&c, 0, &r->tensor[i], 0, count / 2);
        add(&c, 1, &r->tensor[i], count / 2, count - count / 2);
    }
    spoil(r, &c);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 9, &b), 0);
    st = write_part(r, weft_ckpt_build_name(b), &c, 0, &like);
    if (!st)
        st = write_part(r, weft_ckpt_build_name(b), &c, 1, &like);
    if (!st)
        st = commit(r, b, &c, 9);
    if (!st || !strstr(weft_error(), why))
        fail_msg("'%s': %s: %s", why, weft_status_name(st), weft_error());
    weft_ckpt_build_free(b);
    free_texts(r, &c);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &(weft_ckpt *){NULL}), WEFT_ENOENT);
}

static void lose_one(struct room *r, struct cut *c)
{
    (void)r;
    c->n[1]--;
}
static void have_one_twice(struct room *r, struct cut *c)
{
    add(c, 1, &r->tensor[0], 3400, 200);
}
static void shift_one(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].first++;
    c->piece[1][0].count--;
}
static void change_type(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].whole.dtype = WEFT_I32;
}
static void change_shape(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].whole.dim[0] = 7;
    c->piece[1][0].whole.dim[1] = 1000;
}
static void too_many(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].count++;
}
static void no_data(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].data = NULL;
}
static weft_status fail_read(void *arg, int64_t at, int64_t n, void *to)
{
    (void)arg;
    (void)at;
    (void)n;
    (void)to;
    return wf_err(WEFT_EPEER, "who has it is gone");
}
static void lost_data(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].data = NULL;
    c->piece[1][0].read = fail_read;
}
static void bad_name(struct room *r, struct cut *c)
{
    (void)r;
    c->piece[1][0].name = "__metadata__";
}

static void forget_none(struct room *r, struct cut *c)
{
    (void)r;
    for (int i = 0; i < c->n[0]; i++)
        if (!strcmp(c->piece[0][i].name, "none"))
            c->piece[0][i] = c->piece[0][--c->n[0]];
}
static void nothing(struct room *r, struct cut *c)
{
    (void)r, (void)c;
}

static void what_does_not_fit_is_refused(void **state)
{
    struct room *r = *state;

    refused(r, lose_one, "'mean': elements 16 to 32 are in no piece");
    refused(r, have_one_twice, "'table': elements from 3400 on are in two pieces");
    refused(r, shift_one, "'table': elements 3500 to 3500 are in no piece");
    refused(r, change_type, "do not agree on its type");
    refused(r, change_shape, "do not agree on its type");
    refused(r, too_many, "no piece of 3501 from 3500 on");
    refused(r, no_data, "a piece has no data");
    refused(r, lost_data, "who has it is gone");
    refused(r, bad_name, "cannot be the name of a tensor");
    refused(r, forget_none, "'none' is in no piece");
    r->n_tensors--;
    refused(r, nothing, "'count[0:1]' is not a tensor of this checkpoint");
}

/* A part that was written once more, by another process, after its writer died; the dead one's
 * files go. */
static void a_dead_writer_is_replaced(void **state)
{
    struct room *r = *state;
    weft_ckpt_part first = {.writer = "a1"}, again = {.writer = "b1"};
    weft_ckpt_build *b = NULL;
    char path[256];
    struct cut c;
    struct stat s;

    cut_at_random(r, &c);
    c.n_parts = 1;
    memset(c.n, 0, sizeof c.n);
    for (int i = 0; i < N_TENSORS; i++)
        add(&c, 0, &r->tensor[i], 0, weft_tensor_count(&r->tensor[i].tensor));
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 4, &b), 0);
    assert_int_equal(write_part(r, weft_ckpt_build_name(b), &c, 0, &first), 0);
    free_texts(r, &c);
    assert_int_not_equal(write_part(r, weft_ckpt_build_name(b), &c, 0, &first), 0); /* its files */
    assert_int_equal(write_part(r, weft_ckpt_build_name(b), &c, 0, &again), 0);
    assert_int_equal(commit(r, b, &c, 4), 0);
    weft_ckpt_build_free(b);
    free_texts(r, &c);
    is_as_saved(r, 4);
    snprintf(path, sizeof path, "%s/ckpt-000000004/part-a1-00001.safetensors", r->dir);
    assert_int_equal(stat(path, &s), -1);
    assert_int_equal(write_part(r, "ckpt-000000004", &c, 0, &first), WEFT_ENOENT); /* too late */
}

static void texts_and_files_are_not_believed(void **state)
{
    static const weft_ckpt_part like;
    struct room *r = *state;
    weft_ckpt_build *b = NULL, *other = NULL;
    char path[256], *text;
    struct cut c;

    do
        cut_at_random(r, &c);
    while (c.n_parts != 2 || !c.n[0] || !c.n[1]);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 5, &b), 0);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 5, &other), WEFT_ESTATE); /* locked */
    for (int i = 0; i < 2; i++)
        assert_int_equal(write_part(r, weft_ckpt_build_name(b), &c, i, &like), 0);
    assert_int_equal(commit(r, b, &c, 6), WEFT_EINVAL);
    c.text[0][strlen(c.text[0]) / 2] ^= 1;
    assert_int_equal(commit(r, b, &c, 5), WEFT_EPARSE);
    c.text[0][strlen(c.text[0]) / 2] ^= 1;
    text = c.text[1]; /* one part twice */
    c.text[1] = c.text[0];
    assert_int_equal(commit(r, b, &c, 5), WEFT_EEXIST);
    c.text[1] = text;
    snprintf(path, sizeof path, "%s/.tmp-ckpt-000000005/part-w1-00001.safetensors", r->dir);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(commit(r, b, &c, 5), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "its part says"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(commit(r, b, &c, 5), WEFT_ENOENT);
    assert_int_equal(
        write_part(r, weft_ckpt_build_name(b), &c, 1, &(weft_ckpt_part){.writer = "a b"}),
        WEFT_EINVAL);
    weft_text_free(r->ctx, c.text[1]);
    assert_int_equal(write_part(r, weft_ckpt_build_name(b), &c, 1, &like), 0);
    assert_int_equal(commit(r, b, &c, 5), 0); /* nothing of it is lost */
    weft_ckpt_build_free(b);
    free_texts(r, &c);
    is_as_saved(r, 5);
}

/* Every flipped bit of every file is found, by reading everything and by reading that piece. */
static void damage_is_found(void **state)
{
    struct room *r = *state;
    weft_ckpt_part like = {.piece_bytes = 4096};
    weft_ckpt_build *b = NULL;
    char path[256], *bytes;
    struct cut c = {.n_parts = 2};
    int64_t n;

    for (int i = 0; i < N_TENSORS; i++) {
        int64_t count = weft_tensor_count(&r->tensor[i].tensor);

        add(&c, 0, &r->tensor[i], 0, count > 1 ? count / 3 : count);
        if (count > 1)
            add(&c, 1, &r->tensor[i], count / 3, count - count / 3);
    }
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 1, &b), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(write_part(r, weft_ckpt_build_name(b), &c, i, &like), 0);
    assert_int_equal(commit(r, b, &c, 1), 0);
    weft_ckpt_build_free(b);
    free_texts(r, &c);
    snprintf(path, sizeof path, "%s/ckpt-000000001/part-w1-00001.safetensors", r->dir);
    bytes = file_get(path, &n);
    for (int64_t at = 0; at < n; at += 1 + (int64_t)draw(r, 200)) {
        weft_ckpt *k = NULL;

        bytes[at] ^= 1;
        file_put(path, bytes, n);
        assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &k), WEFT_EPARSE);
        bytes[at] ^= 1;
    }
    file_put(path, bytes, n);
    free(bytes);
    is_as_saved(r, 1);
}

/* Real processes, each with a context of its own. */
static void processes_write_their_parts(void **state)
{
    static const weft_ckpt_part like;
    struct room *r = *state;
    weft_ckpt_build *b = NULL;
    struct cut c;
    int out[MAX_PARTS][2];

    do
        cut_at_random(r, &c);
    while (c.n_parts < 3);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 3, &b), 0);
    for (int i = 0; i < c.n_parts; i++) {
        assert_int_equal(pipe(out[i]), 0);
        if (fork() == 0) {
            struct room mine = *r;
            FILE *to = fdopen(out[i][1], "w");

            if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &mine.ctx) ||
                write_part(&mine, weft_ckpt_build_name(b), &c, i, &like))
                _exit(1);
            fputs(c.text[i], to);
            fclose(to);
            _exit(0);
        }
        close(out[i][1]);
    }
    for (int i = 0; i < c.n_parts; i++) {
        FILE *from = fdopen(out[i][0], "r");
        size_t room = 1 << 20, n;
        int status = -1;

        c.text[i] = calloc(1, room);
        n = fread(c.text[i], 1, room - 1, from);
        assert_true(n > 0);
        fclose(from);
        wait(&status);
        assert_int_equal(status, 0);
    }
    if (commit(r, b, &c, 3))
        fail_msg("%s", weft_error());
    weft_ckpt_build_free(b);
    for (int i = 0; i < c.n_parts; i++)
        free(c.text[i]);
    is_as_saved(r, 3);
}

/* What was begun and not committed is gone, also when the process is killed. */
static void nothing_appears_before_the_commit(void **state)
{
    struct room *r = *state;
    weft_ckpt_build *b = NULL;
    weft_ckpt *c = NULL;
    char path[256];
    struct stat s;
    int status;

    snprintf(path, sizeof path, "%s/.tmp-ckpt-000000002", r->dir);
    if (fork() == 0) {
        if (weft_ckpt_begin(r->ctx, r->dir, 2, &b))
            _exit(1);
        _exit(0);
    }
    wait(&status);
    assert_int_equal(status, 0);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(weft_ckpt_open_latest(r->ctx, r->dir, &c), WEFT_ENOENT);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, 8, &b), 0); /* sweeps */
    assert_int_equal(stat(path, &s), -1);
    weft_ckpt_build_free(b);
    assert_int_equal(weft_ckpt_begin(r->ctx, r->dir, -1, &b), WEFT_EINVAL);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_room, close_room)
    static const struct CMUnitTest tests[] = {
        TEST(any_cut_gives_the_same_tensors),   TEST(ranges_of_a_plain_checkpoint),
        TEST(a_long_piece_is_read_in_blocks),   TEST(ranges_of_a_plain_checkpoint),
        TEST(what_does_not_fit_is_refused),     TEST(a_dead_writer_is_replaced),
        TEST(texts_and_files_are_not_believed), TEST(damage_is_found),
        TEST(processes_write_their_parts),      TEST(nothing_appears_before_the_commit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
