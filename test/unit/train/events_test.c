/* Event files: bytes against known ones, and the callback TensorBoard: which values it writes
 * under which tags and steps, and that a run which was interrupted leaves none twice. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/record/varint.h"
#include "train/callback/events.h"
#include "weft/weft.h"

#define N 64
#define S 6 /* side of the pictures */

static weft_ctx *ctx;
static float x[N][S][S][1];
static int32_t y[N];
static char dir[64];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    srand(3);
    for (int i = 0; i < N; i++) {
        y[i] = i % 3;
        for (int k = 0; k < S * S; k++)
            x[i][k / S][k % S][0] =
                (float)rand() / (float)RAND_MAX * 0.5f + (k % 3 == y[i] ? 0.5f : 0.0f);
    }
    strcpy(dir, "/tmp/weft-events-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static const char *in_dir(const char *name)
{
    static char path[4][160];
    static int i;

    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

/* ---- reading back ---------------------------------------------------------------------------- */

struct seen {
    char tag[96], plugin[24];
    int64_t step;
    float value; /* of a scalar */
    int n_bytes; /* of the tensor */
};
struct file {
    int n, n_graph_nodes, n_starts, n_files;
    struct seen v[512];
};

struct field {
    int number, kind;
    uint64_t v;
    const unsigned char *p;
    int64_t n;
};

/* The next field of a message; false at its end. */
static bool next(const unsigned char **p, const unsigned char *end, struct field *f)
{
    uint64_t key = 0;

    if (*p >= end)
        return false;
    *p = wf_varint(*p, end, &key);
    assert_non_null(*p);
    f->number = (int)(key >> 3);
    f->kind = (int)(key & 7);
    f->p = *p;
    f->n = f->kind == 1 ? 8 : 4;
    if (f->kind == 0 || f->kind == 2) {
        f->p = wf_varint(*p, end, &f->v);
        assert_non_null(f->p);
        f->n = f->kind == 2 ? (int64_t)f->v : 0;
    }
    *p = f->p + f->n;
    assert_true(*p <= end);
    return true;
}

static void read_value(const struct field *value, struct seen *s)
{
    const unsigned char *p = value->p, *q;
    struct field f, g;

    while (next(&p, value->p + value->n, &f)) {
        if (f.number == 1)
            snprintf(s->tag, sizeof s->tag, "%.*s", (int)f.n, f.p);
        q = f.p;
        while (f.number == 8 && next(&q, f.p + f.n, &g)) {
            if (g.number == 5)
                memcpy(&s->value, g.p, 4);
            s->n_bytes += g.number >= 4 ? (int)g.n : 0;
        }
        q = f.p;
        while (f.number == 9 && next(&q, f.p + f.n, &g))
            if (g.number == 1) /* key, length, text */
                snprintf(s->plugin, sizeof s->plugin, "%.*s", g.p[1], g.p + 2);
    }
}

static void read_event(const weft_str *record, struct file *out)
{
    const unsigned char *p = (const unsigned char *)record->data, *end = p + record->n, *q;
    struct field f, g;
    int64_t step = 0;

    while (next(&p, end, &f)) {
        if (f.number == 2)
            step = (int64_t)f.v;
        out->n_starts += f.number == 7;
        q = f.p;
        while (f.number == 4 && next(&q, f.p + f.n, &g))
            out->n_graph_nodes += g.number == 1;
        q = f.p;
        while (f.number == 5 && next(&q, f.p + f.n, &g)) {
            assert_true(out->n < 512);
            out->v[out->n].step = step;
            read_value(&g, &out->v[out->n++]);
        }
    }
}

/* All event files of a run, in the order of their names. */
static struct file *read_run(const char *run)
{
    static struct file out;
    char pattern[256];
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    glob_t files;

    memset(&out, 0, sizeof out);
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*.v2", in_dir(run));
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    out.n_files = (int)files.gl_pathc;
    globfree(&files);
    ok(weft_data_new(ctx, &d));
    ok(weft_iter_new(d, weft_ds_tfrecord(d, pattern, NULL), NULL, &it));
    for (;;) {
        ok(weft_iter_next(it, &b));
        if (!b)
            break;
        read_event(b->col[0].data, &out);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return &out;
}

static int count(const struct file *f, const char *tag, int64_t step)
{
    int n = 0;

    for (int i = 0; i < f->n; i++)
        n += strcmp(f->v[i].tag, tag) == 0 && (step < 0 || f->v[i].step == step);
    return n;
}

static const struct seen *find(const struct file *f, const char *tag)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->v[i].tag, tag) == 0)
            return &f->v[i];
    print_error("no %s\n", tag);
    assert_true(false);
    return NULL;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static double fixed(void)
{
    return 1.7e9;
}

static void scalar_has_the_bytes_tensorboard_writes(void **state)
{
    static const char want[] =
        "300000000000000095f5d05f0900000040fc54d94110072a230a210a046c6f7373420a"
        "080112002a040000003f4a0d0a090a077363616c6172732001e8b83c5e";
    struct wf_events e;
    char hex[512] = "", head[512];
    unsigned char bytes[512];
    size_t n;
    FILE *f;

    (void)state;
    ok(wf_events_open(&e, ctx, in_dir("golden/events"), fixed));
    ok(wf_events_flush(&e));
    n = (size_t)e.bytes;
    ok(wf_events_scalar(&e, 7, "loss", 0.5));
    assert_int_equal(e.bytes, (int64_t)n + (int64_t)strlen(want) / 2);
    ok(wf_events_close(&e));
    f = fopen(in_dir("golden/events"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, n, f), n);
    assert_memory_equal(head + 12 + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(hex, want);
}

static void histogram_counts_every_finite_value(void **state)
{
    float v[] = {0, 1, 2, 3, 3, NAN, INFINITY};
    weft_tensor t = weft_view(WEFT_F32, v, 1, (int64_t[]){7});
    struct wf_events e;
    const unsigned char *p, *end;
    double total = 0;

    (void)state;
    ok(wf_events_open(&e, ctx, in_dir("histogram/events"), fixed));
    ok(wf_events_histogram(&e, 1, "w", &t));
    p = memmem(e.event.data, (size_t)e.event.len, "\x32\xd0\x05", 3); /* field 6: 720 bytes */
    assert_non_null(p);
    end = (p += 3) + 720;
    for (int k = 0; p < end; p += 24, k++) {
        double row[3];

        memcpy(row, p, sizeof row);
        assert_float_equal(row[0], 0.1 * k, 1e-6);
        assert_float_equal(row[1], 0.1 * (k + 1), 1e-6);
        total += row[2];
        if (k == 29)
            assert_float_equal(row[2], 2, 0);
    }
    assert_float_equal(total, 5, 0);
    ok(wf_events_close(&e));
}

/* ---- the callback ---------------------------------------------------------------------------- */

struct net {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct net open_net(void)
{
    struct net n;
    weft_sym s;
    weft_column col[2] = {{.name = "image"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 4, (int64_t[]){N, S, S, 1}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};

    ok(weft_model_new(ctx, NULL, &n.m));
    s = weft_input(n.m, "image", WEFT_F32, 3, (int64_t[]){S, S, 1});
    s = weft_apply(n.m, "Flatten", NULL, s);
    s = weft_apply(n.m, "Dense", "units=8 activation=relu", s);
    s = weft_apply(n.m, "Dense", "units=3", s);
    weft_model_output(n.m, s);
    ok(weft_compile(n.m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
                              .loss = "sparse_categorical_crossentropy from_logits=true",
                              .metrics = "accuracy"),
                    &n.t));
    ok(weft_data_new(ctx, &n.d));
    n.s = weft_ds_tensors(n.d, 2, col, t);
    return n;
}

static void close_net(struct net *n)
{
    weft_trainer_free(n->t);
    weft_model_free(n->m);
    weft_data_free(n->d);
}

static void make(weft_callback *cb, const char *run, const char *rest)
{
    char spec[512];

    snprintf(spec, sizeof spec, "TensorBoard log_dir=\"%s\" %s", in_dir(run), rest);
    ok(weft_callback_new(ctx, spec, cb));
}

static void runs_have_keras_tags_and_steps(void **state)
{
    struct net n = open_net();
    struct file *f;
    weft_callback cb;
    weft_history *h;
    float loss;
    const bool pictures = wf_png_there();

    (void)state;
    make(&cb, "run",
         pictures ? "histogram_freq=2 write_images=true input_images=5 update_freq=2"
                  : "histogram_freq=2 update_freq=2");
    ok(weft_fit(n.t, n.d, n.s,
                WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = 16, .validation_split = 0.25,
                          .n_callbacks = 1, .callbacks = &cb),
                &h));
    weft_callback_free(&cb);
    f = read_run("run/train");
    assert_int_equal(f->n_files, 1);
    assert_int_equal(f->n_starts, 1);
    for (int e = 0; e < 3; e++) {
        assert_int_equal(count(f, "epoch_loss", e), 1);
        assert_int_equal(count(f, "epoch_accuracy", e), 1);
        assert_int_equal(count(f, "epoch_learning_rate", e), 1);
        assert_int_equal(count(f, "input/image", e), pictures);
        assert_int_equal(count(f, "dense/kernel/histogram", e), e != 1);
        assert_int_equal(count(f, "dense/kernel/image", e), pictures && e != 1);
    }
    assert_int_equal(count(f, "batch_loss", -1), 4); /* steps 2, 4, 6, 8 of 9 */
    assert_int_equal(count(f, "batch_loss", 8), 1);
    loss = (float)h->value[0];
    assert_true(find(f, "epoch_loss")->value == loss);
    assert_true(find(f, "epoch_learning_rate")->value == 0.001f);
    assert_string_equal(find(f, "epoch_loss")->plugin, "scalars");
    assert_string_equal(find(f, "dense/kernel/histogram")->plugin, "histograms");
    if (pictures)
        assert_string_equal(find(f, "input/image")->plugin, "images");
    assert_true(f->n_graph_nodes >= 8);
    f = read_run("run/validation");
    assert_int_equal(count(f, "epoch_loss", -1), 3);
    assert_int_equal(count(f, "evaluation_accuracy_vs_iterations", 9), 1);
    assert_true(find(f, "epoch_loss")->value == (float)h->value[2]);
    f = read_run("run");
    assert_int_equal(count(f, "_hparams_/experiment", -1), 1);
    assert_int_equal(count(f, "_hparams_/session_start_info", -1), 1);
    assert_int_equal(count(f, "_hparams_/session_end_info", -1), 1);
    weft_history_free(h);
    close_net(&n);
}

/* Ends the run as a kill would, in the middle of an epoch: the callback's files are left as they
 * are. */
struct killer {
    int64_t at;
};
static weft_status kill_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    const struct killer *k = arg;

    (void)batch;
    (void)logs;
    return weft_trainer_step(t) == k->at ? WEFT_ECANCEL : WEFT_OK;
}

static weft_status run_until(int64_t at, int64_t epochs)
{
    struct net n = open_net();
    struct killer k = {at};
    weft_callback cb[2] = {
        {0}, {.size = sizeof cb[1], .arg = &k, .name = "killer", .batch_end = kill_batch}};
    weft_status st;

    make(&cb[0], "resumed", "update_freq=batch");
    st = weft_fit(n.t, n.d, n.s,
                  WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 16, .validation_split = 0.25,
                            .n_callbacks = 2, .callbacks = cb, .checkpoint = in_dir("ckpt"),
                            .checkpoint_steps = 4),
                  NULL);
    weft_callback_free(&cb[0]);
    close_net(&n);
    return st;
}

static void resumed_run_writes_no_step_twice(void **state)
{
    struct file *f;

    (void)state; /* 3 steps an epoch; checkpoints after steps 4, 8, 12 */
    assert_int_equal(run_until(6, 5), WEFT_ECANCEL);
    assert_int_equal(run_until(6, 5), WEFT_ECANCEL); /* from step 4 again */
    assert_int_equal(run_until(11, 5), WEFT_ECANCEL);
    ok(run_until(-1, 5));
    f = read_run("resumed/train");
    for (int64_t step = 1; step <= 15; step++)
        assert_int_equal(count(f, "batch_loss", step), 1);
    for (int64_t e = 0; e < 5; e++)
        assert_int_equal(count(f, "epoch_loss", e), 1);
    assert_int_equal(f->n_starts, 1);
    assert_int_equal(f->n_files, 3);
    f = read_run("resumed/validation");
    for (int64_t e = 0; e < 5; e++)
        assert_int_equal(count(f, "epoch_loss", e), 1);
}

/* A clock that moves on by a tenth of a second each time it is asked. */
/* A callback that serves several fits: later epochs belong to the same curves; from epoch 0 on a
 * run starts again. */
static void a_second_fit_adds_its_epochs_or_begins_anew(void **state)
{
    struct net n = open_net();
    struct file *f;
    weft_callback cb;

    (void)state;
    make(&cb, "fits", "");
    for (int i = 0; i < 3; i++) {
        ok(weft_fit(n.t, n.d, n.s,
                    WEFT_OPTS(weft_fit_opts, .epochs = i == 1 ? 4 : 2,
                              .initial_epoch = i == 1 ? 2 : 0, .batch = 16, .n_callbacks = 1,
                              .callbacks = &cb),
                    NULL));
        f = read_run("fits/train");
        assert_int_equal(f->n_files, i + 1);
        assert_int_equal(f->n_starts, i < 2 ? 1 : 2);
        assert_int_equal(count(f, "epoch_loss", -1), 2 * (i + 1));
        f = read_run("fits");
        assert_int_equal(count(f, "_hparams_/session_start_info", -1), i + 1);
        assert_int_equal(count(f, "_hparams_/experiment", -1), i + 1);
    }
    weft_callback_free(&cb);
    close_net(&n);
}

static int64_t ticking(void *arg)
{
    return atomic_fetch_add((_Atomic int64_t *)arg, 100000000) + 100000000; /* threads ask, too */
}

static void batches_are_logged_by_the_clock(void **state)
{
    struct file *f;
    struct net n;
    weft_callback cb;
    weft_ctx *usual = ctx;
    _Atomic int64_t now = 0;

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .now_ns = ticking, .now_arg = &now),
                    &ctx));
    n = open_net();
    make(&cb, "clock", "update_seconds=5");
    ok(weft_fit(
        n.t, n.d, n.s,
        WEFT_OPTS(weft_fit_opts, .epochs = 4, .batch = 8, .n_callbacks = 1, .callbacks = &cb),
        NULL));
    weft_callback_free(&cb);
    close_net(&n);
    weft_ctx_free(ctx);
    ctx = usual;
    f = read_run("clock/train");
    assert_true(count(f, "batch_loss", -1) >= 3); /* 32 steps, a few seconds each */
    assert_true(count(f, "batch_loss", -1) <= 31);
    assert_int_equal(count(f, "epoch_loss", -1), 4);
}

/* ---- workers that both decide ---------------------------------------------------------------- */

static void train_epoch(const weft_callback *cb, weft_trainer *t, int64_t epoch)
{
    const char *name[] = {"loss", "val_loss"};
    weft_logs logs = {2, name, (double[]){1.0 / (double)(epoch + 1), 2}};

    if (epoch == 0)
        ok(cb->epoch_begin(cb->arg, t, epoch));
    ok(cb->epoch_end(cb->arg, t, epoch, &logs));
}

static weft_str record_of(const weft_callback *cb)
{
    char *p;
    weft_str s;

    ok(cb->save(cb->arg, &p, &s.n));
    s.data = p;
    return s;
}

/* It decides from now on, and continues from a record. */
static void take_over(const weft_callback *cb, weft_trainer *t, weft_str record)
{
    ok(cb->train_begin(cb->arg, t));
    ok(cb->restore(cb->arg, record.data, record.n));
}

/* The second worker takes over from the record of epoch 2 while the first one's record of epoch 3
 * is on its way: that one counts, although the second has removed what the first wrote. Whichever
 * continues, each epoch is there once. */
static void each_epoch_is_there_once_when_two_workers_decide(void **state)
{
    struct net n = open_net();

    (void)state;
    for (int on = 0; on < 2; on++) { /* which of them continues */
        weft_callback w[2];
        weft_str record[2];
        char name[16], run[2][32];

        snprintf(name, sizeof name, "two%d", on);
        snprintf(run[0], sizeof run[0], "%s/train", name);
        snprintf(run[1], sizeof run[1], "%s/validation", name);
        for (int i = 0; i < 2; i++) {
            make(&w[i], name, "");
            ok(w[i].train_begin(w[i].arg, n.t));
        }
        for (int e = 0; e < 3; e++)
            train_epoch(&w[0], n.t, e);
        record[0] = record_of(&w[0]);
        train_epoch(&w[0], n.t, 3);
        record[1] = record_of(&w[0]);
        take_over(&w[1], n.t, record[0]);
        train_epoch(&w[1], n.t, 3);
        take_over(&w[on], n.t, record[1]);
        for (int e = 4; e < 6; e++)
            train_epoch(&w[on], n.t, e);
        ok(w[on].train_end(w[on].arg, n.t, &(weft_logs){0}));
        for (int i = 0; i < 2; i++) {
            struct file *f = read_run(run[i]);

            for (int64_t e = 0; e < 6; e++)
                assert_int_equal(count(f, "epoch_loss", e), 1);
            weft_text_free(ctx, (char *)record[i].data);
            weft_callback_free(&w[i]);
        }
    }
    close_net(&n);
}

/* A worker that was silent still has the file open when another has taken over. */
static void what_a_silent_worker_writes_later_is_nowhere(void **state)
{
    struct wf_events e;
    struct wf_events_end end = {.from = -1};
    struct file *f;
    char path[160];
    bool lost;

    (void)state;
    strcpy(path, in_dir("silent/events.out.tfevents.1.v2"));
    ok(wf_events_open(&e, ctx, path, fixed));
    ok(wf_events_scalar(&e, 1, "loss", 0.5));
    ok(wf_events_flush(&e));
    end.bytes = e.bytes;
    ok(wf_events_settle(ctx, path, &end, true, &lost));
    assert_false(lost);
    ok(wf_events_scalar(&e, 2, "loss", 0.25));
    end.bytes = e.bytes;
    ok(wf_events_close(&e));
    f = read_run("silent");
    assert_int_equal(count(f, "loss", -1), 1);
    /* and what is missing, without its events, is reported */
    ok(wf_events_settle(ctx, path, &end, true, &lost));
    assert_true(lost);
    assert_int_equal(count(read_run("silent"), "loss", -1), 1);
}

/* What a run wrote since its last state is written again, at any length that the file may have. */
static void missing_events_are_written_again(void **state)
{
    struct wf_events e;
    struct wf_events_end end;
    char path[160];
    bool lost;

    (void)state;
    strcpy(path, in_dir("cut/events.out.tfevents.1.v2"));
    for (int apart = 0; apart < 2; apart++) {
        ok(wf_events_open(&e, ctx, path, fixed));
        ok(wf_events_scalar(&e, 1, "loss", 0.5));
        ok(wf_events_flush(&e));
        wf_events_mark(&e);
        ok(wf_events_scalar(&e, 2, "loss", 0.25));
        ok(wf_events_scalar(&e, 3, "loss", 0.125));
        ok(wf_events_flush(&e));
        end = (struct wf_events_end){e.bytes, e.tail_from, e.tail.data, e.tail.len};
        for (int64_t at = end.bytes; at >= end.from; at -= 7) {
            struct file *f;

            assert_int_equal(truncate(path, at), 0);
            ok(wf_events_settle(ctx, path, &end, apart, &lost));
            assert_false(lost);
            f = read_run("cut");
            for (int64_t step = 1; step <= 3; step++)
                assert_int_equal(count(f, "loss", step), 1);
        }
        ok(wf_events_close(&e));
    }
}

static void mistakes_are_named(void **state)
{
    weft_callback cb;

    (void)state;
    assert_int_equal(weft_callback_new(ctx, "TensorBoard update_freq=often", &cb), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "'often' is not epoch, batch or a number"));
    assert_int_equal(weft_callback_new(ctx, "TensorBoard histogram_freq=-1", &cb), WEFT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_has_the_bytes_tensorboard_writes),
        cmocka_unit_test(histogram_counts_every_finite_value),
        cmocka_unit_test(runs_have_keras_tags_and_steps),
        cmocka_unit_test(resumed_run_writes_no_step_twice),
        cmocka_unit_test(a_second_fit_adds_its_epochs_or_begins_anew),
        cmocka_unit_test(batches_are_logged_by_the_clock),
        cmocka_unit_test(each_epoch_is_there_once_when_two_workers_decide),
        cmocka_unit_test(what_a_silent_worker_writes_later_is_nowhere),
        cmocka_unit_test(missing_events_are_written_again),
        cmocka_unit_test(mistakes_are_named),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
