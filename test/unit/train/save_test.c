/* Saved models: one file with architecture and weights, read back without code; weights by name
 * into a part of another model; and the callback that writes such files. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/ckpt.h"
#include "weft/sys/layer.h"
#include "weft/weft.h"

#define N 64
#define D 4

static weft_ctx *ctx;
static float x[N][D];
static int32_t y[N];
static char dir[64], log_text[1 << 14];

static void note(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

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
        for (int k = 0; k < D; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
        y[i] = x[i][0] > 0 ? x[i][1] > 0 : 2;
    }
    strcpy(dir, "/tmp/weft-save-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5, .log = note), &ctx);
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
    static char path[4][128];
    static int i;

    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

struct net {
    weft_model *m;
    weft_trainer *t;
};

#define COMPILE                                       \
    WEFT_OPTS(weft_compile_opts, .optimizer = "adam", \
              .loss = "sparse_categorical_crossentropy from_logits=true", .metrics = "accuracy")

/* A small model; head: of the last layer, which is named by it. */
static struct net open_net(weft_ctx *c, const char *head)
{
    struct net n;
    weft_sym s;

    ok(weft_model_new(c, NULL, &n.m));
    s = weft_input(n.m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(n.m, "Dense", "units=8 activation=tanh name=body", s);
    s = weft_apply(n.m, "BatchNormalization", "name=norm", s);
    s = weft_apply(n.m, "Dense", head, s);
    weft_model_output(n.m, s);
    ok(weft_compile(n.m, COMPILE, &n.t));
    return n;
}

static void close_net(struct net *n)
{
    weft_trainer_free(n->t);
    weft_model_free(n->m);
}

static void fit(struct net *n, int64_t epochs, int n_callbacks, weft_callback *cb)
{
    weft_data *d;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};

    ok(weft_data_new(ctx, &d));
    ok(weft_fit(n->t, d, weft_ds_tensors(d, 2, col, t),
                WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 16, .validation_split = 0.25,
                          .n_callbacks = n_callbacks, .callbacks = cb),
                NULL));
    weft_data_free(d);
}

static void predict(struct net *n, float *out, int n_out)
{
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}), got = {.data = NULL};

    ok(weft_predict_on_batch(n->t, &in, &got));
    memcpy(out, got.data, (size_t)(N * n_out) * sizeof *out);
}

static void saved_model_predicts_the_same_bits_in_a_fresh_context(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b;
    float before[N * 3], after[N * 3];
    weft_ctx *fresh;
    int n = 0;

    (void)state;
    fit(&a, 3, 0, NULL);
    predict(&a, before, 3);
    ok(weft_trainer_save(a.t, in_dir("m.safetensors")));
    close_net(&a);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 77), &fresh));
    ok(weft_model_load(fresh, in_dir("m.safetensors"), &b.m));
    ok(weft_compile(b.m, NULL, &b.t));
    ok(weft_trainer_load_weights(b.t, in_dir("m.safetensors"), NULL, &n));
    assert_int_equal(n, weft_trainer_n_weights(b.t));
    assert_int_equal(n, 8);
    predict(&b, after, 3);
    assert_memory_equal(before, after, sizeof before);
    close_net(&b);
    weft_ctx_free(fresh);
}

static void weights_go_by_name_into_a_part_of_another_model(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b = open_net(ctx, "units=5 name=other");
    weft_tensor from, to, norm;
    int n = -1;

    (void)state;
    fit(&a, 1, 0, NULL);
    ok(weft_trainer_save(a.t, in_dir("part.safetensors")));
    assert_int_equal(weft_trainer_load_weights(b.t, in_dir("part.safetensors"), NULL, &n),
                     WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "the file has no weight 'other/kernel'"));
    assert_int_equal(n, -1);
    ok(weft_trainer_weight(b.t, "norm/moving_mean", &norm));
    ok(weft_trainer_load_weights(b.t, in_dir("part.safetensors"),
                                 WEFT_OPTS(weft_load_opts, .by_name = true, .prefix = "body/"),
                                 &n));
    assert_int_equal(n, 2);
    ok(weft_trainer_weight(a.t, "body/kernel", &from));
    ok(weft_trainer_weight(b.t, "body/kernel", &to));
    assert_memory_equal(from.data, to.data, (size_t)weft_tensor_bytes(&to));
    assert_true(((float *)norm.data)[0] == 0.0f);
    ok(weft_trainer_load_weights(b.t, in_dir("part.safetensors"),
                                 WEFT_OPTS(weft_load_opts, .by_name = true), &n));
    assert_int_equal(n, 6);
    assert_true(((float *)norm.data)[0] != 0.0f);
    close_net(&a);
    close_net(&b);
}

static void mismatch_names_both_shapes_and_changes_nothing(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b = open_net(ctx, "units=5 name=head");
    weft_tensor w;
    float kept[D * 8];
    int n = -1;

    (void)state;
    fit(&a, 1, 0, NULL);
    ok(weft_trainer_save(a.t, in_dir("shape.safetensors")));
    ok(weft_trainer_weight(b.t, "body/kernel", &w));
    memcpy(kept, w.data, sizeof kept);
    assert_int_equal(weft_trainer_load_weights(b.t, in_dir("shape.safetensors"), NULL, &n),
                     WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "weight 'head/kernel'"));
    assert_non_null(strstr(weft_error(), "[8,5]"));
    assert_non_null(strstr(weft_error(), "[8,3]"));
    assert_memory_equal(kept, w.data, sizeof kept);
    log_text[0] = 0;
    ok(weft_trainer_load_weights(b.t, in_dir("shape.safetensors"),
                                 WEFT_OPTS(weft_load_opts, .skip_mismatch = true), &n));
    assert_int_equal(n, 6);
    assert_non_null(strstr(log_text, "weight 'head/kernel' is skipped"));
    close_net(&a);
    close_net(&b);
}

static void damaged_and_foreign_files_are_refused_with_a_reason(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_model *m = NULL;
    weft_tensor one = weft_view(WEFT_F32, x, 1, (int64_t[]){D});
    FILE *f;

    (void)state;
    ok(weft_trainer_save(a.t, in_dir("whole.safetensors")));
    assert_int_equal(weft_model_load(ctx, in_dir("none.safetensors"), &m), WEFT_ENOENT);
    assert_int_equal(truncate(in_dir("whole.safetensors"), 2000), 0);
    assert_int_equal(weft_model_load(ctx, in_dir("whole.safetensors"), &m), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "whole.safetensors"));
    assert_int_equal(weft_trainer_load_weights(a.t, in_dir("whole.safetensors"), NULL, NULL),
                     WEFT_EPARSE);
    f = fopen(in_dir("text.safetensors"), "w");
    assert_non_null(f);
    fputs("this is not a model", f);
    fclose(f);
    assert_int_equal(weft_model_load(ctx, in_dir("text.safetensors"), &m), WEFT_EPARSE);
    ok(weft_st_write(ctx, in_dir("bare.safetensors"), 1, (const char *[]){"w"}, &one, 0, NULL,
                     NULL));
    assert_int_equal(weft_model_load(ctx, in_dir("bare.safetensors"), &m), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "weights without a model"));
    ok(weft_st_write(ctx, in_dir("odd.safetensors"), 1, (const char *[]){"w"}, &one, 1,
                     (const char *[]){"weft.model"}, (const char *[]){"{\"layers\": 3}"}));
    assert_int_equal(weft_model_load(ctx, in_dir("odd.safetensors"), &m), WEFT_EPARSE);
    assert_null(m);
    close_net(&a);
}

/* ---- transfer learning ----------------------------------------------------------------------- */

static void a_saved_base_is_cut_frozen_and_given_a_new_head(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b;
    weft_model *whole;
    weft_tensor from, to, mean, head;
    float kept[8];
    int n = 0;

    (void)state;
    fit(&a, 2, 0, NULL);
    ok(weft_trainer_save(a.t, in_dir("base.safetensors")));
    ok(weft_model_load(ctx, in_dir("base.safetensors"), &whole));
    ok(weft_model_cut(whole, WEFT_OPTS(weft_cut_opts, .until = "norm"), &b.m));
    weft_model_free(whole);
    assert_int_equal(weft_model_freeze(b.m, "*", true), 2);
    weft_model_add(b.m, "Dense", "units=3 name=new");
    ok(weft_compile(b.m, COMPILE, &b.t));
    ok(weft_trainer_load_weights(b.t, in_dir("base.safetensors"),
                                 WEFT_OPTS(weft_load_opts, .by_name = true), &n));
    assert_int_equal(n, 6);
    fit(&b, 2, 0, NULL); /* the base stays as it was, its moving averages too */
    ok(weft_trainer_weight(a.t, "body/kernel", &from));
    ok(weft_trainer_weight(b.t, "body/kernel", &to));
    assert_memory_equal(from.data, to.data, (size_t)weft_tensor_bytes(&to));
    ok(weft_trainer_weight(a.t, "norm/moving_mean", &from));
    ok(weft_trainer_weight(b.t, "norm/moving_mean", &mean));
    assert_memory_equal(from.data, mean.data, (size_t)weft_tensor_bytes(&mean));
    close_net(&a);

    assert_true(weft_model_freeze(b.m, "*", false) >
                0); /* fine-tuning: the same model, compiled again */
    a = (struct net){.m = b.m};
    ok(weft_compile(a.m, COMPILE, &a.t));
    ok(weft_trainer_copy_weights(a.t, b.t, NULL, &n));
    assert_int_equal(n, 8);
    ok(weft_trainer_weight(b.t, "new/kernel", &head));
    ok(weft_trainer_weight(a.t, "new/kernel", &to));
    assert_memory_equal(head.data, to.data, (size_t)weft_tensor_bytes(&to));
    ok(weft_trainer_weight(a.t, "norm/moving_mean", &to));
    memcpy(kept, to.data, sizeof kept);
    fit(&a, 1, 0, NULL);
    ok(weft_trainer_weight(a.t, "norm/moving_mean", &to));
    assert_memory_not_equal(kept, to.data, sizeof kept);
    assert_memory_equal(kept, mean.data, sizeof kept); /* the other trainer has its own */
    weft_trainer_free(b.t);
    close_net(&a);
}

static void a_folder_of_checkpoints_is_a_saved_model_too(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b;
    weft_data *d;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};
    float before[N * 3], after[N * 3];
    weft_model *m = NULL;
    int n = 0;

    (void)state;
    ok(weft_data_new(ctx, &d));
    ok(weft_fit(a.t, d, weft_ds_tensors(d, 2, col, t),
                WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 16, .checkpoint = in_dir("run")),
                NULL));
    weft_data_free(d);
    predict(&a, before, 3);
    ok(weft_model_load(ctx, in_dir("run"), &b.m));
    ok(weft_compile(b.m, NULL, &b.t));
    ok(weft_trainer_load_weights(b.t, in_dir("run"), NULL, &n)); /* all weights, no slots */
    assert_int_equal(n, 8);
    predict(&b, after, 3);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(weft_model_load(ctx, dir, &m), WEFT_ENOENT);
    close_net(&a);
    close_net(&b);
}

static void weights_of_another_shape_are_not_copied(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head"), b = open_net(ctx, "units=5 name=head");
    int n = -1;

    (void)state;
    assert_int_equal(weft_trainer_copy_weights(b.t, a.t, NULL, &n), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "[8,5] in the model and f32[8,3] in the other model"));
    ok(weft_trainer_copy_weights(b.t, a.t, WEFT_OPTS(weft_load_opts, .prefix = "body/"), &n));
    assert_int_equal(n, 2);
    close_net(&a);
    close_net(&b);
}

/* ---- ModelCheckpoint ------------------------------------------------------------------------- */

static void callback(weft_callback *cb, const char *fmt, const char *path)
{
    char spec[512];

    snprintf(spec, sizeof spec, fmt, path);
    ok(weft_callback_new(ctx, spec, cb));
}

static void each_epoch_gets_its_file(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_callback cb;
    weft_model *m;

    (void)state;
    log_text[0] = 0;
    callback(&cb, "ModelCheckpoint filepath=\"%s-{epoch:03d}.safetensors\" verbose=1",
             in_dir("sub/deeper/each"));
    fit(&a, 2, 1, &cb);
    weft_callback_free(&cb);
    assert_int_equal(access(in_dir("sub/deeper/each-001.safetensors"), F_OK), 0);
    assert_int_equal(access(in_dir("sub/deeper/each-002.safetensors"), F_OK), 0);
    assert_int_not_equal(access(in_dir("sub/deeper/each-003.safetensors"), F_OK), 0);
    assert_non_null(strstr(log_text, "Epoch 2: saving model to "));
    ok(weft_model_load(ctx, in_dir("sub/deeper/each-002.safetensors"), &m));
    weft_model_free(m);
    close_net(&a);
}

static void only_better_epochs_are_saved(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_callback cb;
    const char *names[2] = {"loss", "val_loss"};
    const double values[3][2] = {{1, 0.5}, {1, 0.75}, {1, 0.25}};

    (void)state;
    log_text[0] = 0;
    callback(&cb,
             "ModelCheckpoint filepath=\"%s-{val_loss:.2f}.safetensors\" verbose=1 "
             "save_best_only=true",
             in_dir("best"));
    ok(cb.train_begin(cb.arg, a.t));
    for (int e = 0; e < 3; e++)
        ok(cb.epoch_end(cb.arg, a.t, e, &(weft_logs){2, names, values[e]}));
    assert_int_equal(access(in_dir("best-0.50.safetensors"), F_OK), 0);
    assert_int_not_equal(access(in_dir("best-0.75.safetensors"), F_OK), 0);
    assert_int_equal(access(in_dir("best-0.25.safetensors"), F_OK), 0);
    assert_non_null(strstr(log_text, "Epoch 1: val_loss improved from inf to 0.50000, saving"));
    assert_non_null(strstr(log_text, "Epoch 2: val_loss did not improve from 0.50000"));
    assert_non_null(strstr(log_text, "Epoch 3: val_loss improved from 0.50000 to 0.25000"));
    weft_callback_free(&cb);
    close_net(&a);
}

static void best_value_and_count_survive_a_checkpoint(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_callback cb, again;
    const char *names[1] = {"val_loss"};
    const double value[2] = {0.5, 0.75};
    char *kept;
    int64_t n;

    (void)state;
    log_text[0] = 0;
    callback(&cb, "ModelCheckpoint filepath=\"%s-{epoch}\" save_best_only=true verbose=1",
             in_dir("kept"));
    ok(cb.train_begin(cb.arg, a.t));
    ok(cb.epoch_end(cb.arg, a.t, 0, &(weft_logs){1, names, &value[0]}));
    ok(cb.save(cb.arg, &kept, &n));
    weft_callback_free(&cb);
    callback(&again, "ModelCheckpoint filepath=\"%s-{epoch}\" save_best_only=true verbose=1",
             in_dir("kept"));
    ok(again.train_begin(again.arg, a.t));
    ok(again.restore(again.arg, kept, n));
    ok(again.epoch_end(again.arg, a.t, 1, &(weft_logs){1, names, &value[1]}));
    assert_non_null(strstr(log_text, "Epoch 2: val_loss did not improve from 0.50000"));
    assert_int_not_equal(access(in_dir("kept-2"), F_OK), 0);
    assert_int_equal(again.restore(again.arg, kept, n - 1), WEFT_EPARSE);
    weft_text_free(ctx, kept);
    weft_callback_free(&again);
    close_net(&a);
}

static void batches_are_counted_across_epochs(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_callback cb;

    (void)state; /* 48 samples to train on: 3 batches an epoch, 9 in all */
    callback(&cb,
             "ModelCheckpoint filepath=\"%s-{epoch}-{batch}.safetensors\" save_freq=4 "
             "save_weights_only=true",
             in_dir("batch"));
    fit(&a, 3, 1, &cb);
    weft_callback_free(&cb);
    assert_int_equal(access(in_dir("batch-2-1.safetensors"), F_OK), 0);
    assert_int_equal(access(in_dir("batch-3-2.safetensors"), F_OK), 0);
    close_net(&a);
}

static void mistakes_in_the_path_are_named(void **state)
{
    struct net a = open_net(ctx, "units=3 name=head");
    weft_callback cb;
    const char *names[1] = {"loss"};
    const double value = 1;
    const weft_logs logs = {1, names, &value};

    (void)state;
    callback(&cb, "ModelCheckpoint filepath=\"%s-{acc:.2f}.safetensors\"", in_dir("bad"));
    assert_int_equal(cb.epoch_end(cb.arg, a.t, 0, &logs), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "there is no 'acc'; there are epoch, loss"));
    weft_callback_free(&cb);
    callback(&cb, "ModelCheckpoint filepath=\"%s-{loss:.2x}.safetensors\"", in_dir("bad"));
    assert_int_equal(cb.epoch_end(cb.arg, a.t, 0, &logs), WEFT_EINVAL);
    weft_callback_free(&cb);
    callback(&cb, "ModelCheckpoint filepath=\"%s\"", dir);
    assert_int_equal(cb.epoch_end(cb.arg, a.t, 0, &logs), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "is a directory"));
    weft_callback_free(&cb);
    assert_int_equal(weft_callback_new(ctx, "ModelCheckpoint filepath=a save_freq=often", &cb),
                     WEFT_EINVAL);
    close_net(&a);
}

/* ---- custom layers --------------------------------------------------------------------------- */

static weft_status double_it(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_add(weft_lc_graph(c), weft_lc_in(c, 0), weft_lc_in(c, 0)));
    return WEFT_OK;
}

static void a_model_with_own_layers_loads_where_they_are_known(void **state)
{
    static const weft_layer_kind kind = {.size = sizeof kind,
                                         .name = "Double",
                                         .n_in_min = 1,
                                         .n_in_max = 1,
                                         .attrs = "",
                                         .build = double_it};
    struct net a = {0};
    weft_model *m;
    weft_sym v;

    (void)state;
    ok(weft_model_new(ctx, NULL, &a.m));
    ok(weft_layer_register(a.m, &kind));
    v = weft_input(a.m, "x", WEFT_F32, 1, (int64_t[]){D});
    v = weft_apply(a.m, "Double", NULL, weft_apply(a.m, "Dense", "units=2", v));
    weft_model_output(a.m, v);
    ok(weft_compile(a.m, NULL, &a.t));
    ok(weft_trainer_save(a.t, in_dir("own.safetensors")));
    assert_int_not_equal(weft_model_load(ctx, in_dir("own.safetensors"), &m), WEFT_OK);
    assert_non_null(strstr(weft_error(), "Double"));
    ok(weft_model_new(ctx, NULL, &m));
    ok(weft_layer_register(m, &kind));
    ok(weft_model_load_into(m, in_dir("own.safetensors")));
    assert_int_equal(weft_model_n_layers(m), weft_model_n_layers(a.m));
    weft_model_free(m);
    weft_trainer_free(a.t);
    weft_model_free(a.m);
}

/* A program without a job: its vocabulary goes into the file and the checkpoint, and comes back. */
static void learned_values_travel_with_the_model(void **state)
{
    static const weft_str words[] = {{"red", 3}, {"blue", 4}};
    static const char *const from[] = {"learned.safetensors", "learned-ckpt"};
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};
    struct net n = open_net(ctx, "units=3 name=head"), m;
    weft_learned *l = NULL, *back;
    weft_vocab *v;
    weft_data *d;
    char *a, *b;

    (void)state;
    ok(weft_trainer_save(n.t, in_dir("plain.safetensors")));
    assert_int_equal(weft_learned_load(ctx, in_dir("plain.safetensors"), &l), WEFT_ENOENT);
    assert_int_equal(weft_learned_load(ctx, in_dir("nothing.safetensors"), &l), WEFT_ENOENT);
    ok(weft_learned_new(ctx, &l));
    ok(weft_vocab_new(ctx, 2, words, &v));
    ok(weft_learned_add_vocab(l, "color", v));
    ok(weft_trainer_set_learned(n.t, l));
    ok(weft_data_new(ctx, &d));
    ok(weft_fit(n.t, d, weft_ds_tensors(d, 2, col, t),
                WEFT_OPTS(weft_fit_opts, .checkpoint = in_dir("learned-ckpt")), NULL));
    ok(weft_trainer_save(n.t, in_dir("learned.safetensors")));
    ok(weft_learned_format(l, &a, NULL));
    for (int i = 0; i < 2; i++) {
        ok(weft_learned_load(ctx, in_dir(from[i]), &back));
        assert_int_equal(weft_vocab_find(weft_learned_vocab(back, "color"), "blue", 4), 1);
        ok(weft_learned_format(back, &b, NULL));
        assert_string_equal(a, b);
        weft_text_free(ctx, b);
        weft_learned_free(back);
    }
    /* weights load as before, also all of them */
    m = open_net(ctx, "units=3 name=head");
    ok(weft_trainer_load_weights(m.t, in_dir("learned.safetensors"), NULL, NULL));
    close_net(&m);
    /* a run that resumes with other values is told */
    m = open_net(ctx, "units=3 name=head");
    ok(weft_learned_add_text(l, "more", "values"));
    ok(weft_trainer_set_learned(m.t, l));
    log_text[0] = 0;
    ok(weft_fit(m.t, d, weft_ds_tensors(d, 2, col, t),
                WEFT_OPTS(weft_fit_opts, .epochs = 2, .checkpoint = in_dir("learned-ckpt")), NULL));
    assert_non_null(strstr(log_text, "other vocabularies or statistics"));
    close_net(&m);
    weft_data_free(d);
    weft_text_free(ctx, a);
    weft_learned_free(l);
    close_net(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learned_values_travel_with_the_model),
        cmocka_unit_test(saved_model_predicts_the_same_bits_in_a_fresh_context),
        cmocka_unit_test(weights_go_by_name_into_a_part_of_another_model),
        cmocka_unit_test(mismatch_names_both_shapes_and_changes_nothing),
        cmocka_unit_test(damaged_and_foreign_files_are_refused_with_a_reason),
        cmocka_unit_test(a_saved_base_is_cut_frozen_and_given_a_new_head),
        cmocka_unit_test(a_folder_of_checkpoints_is_a_saved_model_too),
        cmocka_unit_test(weights_of_another_shape_are_not_copied),
        cmocka_unit_test(each_epoch_gets_its_file),
        cmocka_unit_test(only_better_epochs_are_saved),
        cmocka_unit_test(best_value_and_count_survive_a_checkpoint),
        cmocka_unit_test(batches_are_counted_across_epochs),
        cmocka_unit_test(mistakes_in_the_path_are_named),
        cmocka_unit_test(a_model_with_own_layers_loads_where_they_are_known),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
