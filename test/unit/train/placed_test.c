/* placed_test.c - variables on the parameter servers that device scopes or a rule name: what is
 * printed, what is refused, and that the bits do not change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "weft/weft.h"

enum { BATCH = 8, WIDTH = 64, STEPS = 5 };

struct job {
    weft_ctx *ctx;
    weft_model *m;
};

/* Three layers; the second one in a scope. */
static void start(struct job *j, const char *device, bool soft)
{
    weft_sym v;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3, .soft_placement = soft),
                     &j->ctx),
        WEFT_OK);
    assert_int_equal(weft_model_new(j->ctx, NULL, &j->m), WEFT_OK);
    v = weft_input(j->m, "x", WEFT_F32, 1, (int64_t[]){WIDTH});
    v = weft_apply(j->m, "Dense", "units=128 activation=relu name=a", v);
    weft_model_device(j->m, device);
    v = weft_apply(j->m, "Dense", "units=256 activation=relu name=b", v);
    weft_model_device(j->m, NULL);
    weft_model_output(j->m, weft_apply(j->m, "Dense", "units=10 name=c", v));
    assert_int_equal(weft_model_status(j->m), WEFT_OK);
}

static void end(struct job *j)
{
    weft_model_free(j->m);
    weft_ctx_free(j->ctx);
}

static int by_name(void *arg, const char *variable, int64_t bytes, int n_servers)
{
    int *calls = arg;

    (void)bytes;
    ++*calls;
    return variable[0] == 'a' ? n_servers - 1 : variable[0] == 'b' ? 0 : -1;
}

static void expect(const struct job *j, const weft_ps_opts *o, const char *text)
{
    char *said;

    if (weft_ps_explain(j->m, o, &said))
        fail_msg("%s", weft_error());
    assert_string_equal(said, text);
    weft_text_free(j->ctx, said);
}

static void the_placement_is_printed(void **state)
{
    struct job j;
    int calls = 0;

    (void)state;
    start(&j, "/job:ps/task:1", false);
    expect(&j, WEFT_OPTS(weft_ps_opts, .servers = 2),
           "ps/0: 43.6 kB in 2 pieces, and 132.1 kB as backup\n"
           "  a/kernel                                32.8 kB\n"
           "  a/bias                                512 bytes\n"
           "  c/kernel                                10.2 kB\n"
           "  c/bias                                 40 bytes\n"
           "ps/1: 132.1 kB in 1 piece, and 43.6 kB as backup\n"
           "  b/kernel                               131.1 kB, placed\n"
           "  b/bias                               1024 bytes, placed\n");
    expect(
        &j,
        WEFT_OPTS(weft_ps_opts, .servers = 3, .replicas = 1, .placement = WEFT_PLACE_ROUND_ROBIN),
        "ps/0: 32.8 kB in 2 pieces\n"
        "  a/kernel                                32.8 kB, placed\n"
        "  c/bias                                 40 bytes, placed\n"
        "ps/1: 132.6 kB in 1 piece\n"
        "  a/bias                                512 bytes, placed\n"
        "  b/kernel                               131.1 kB, placed\n"
        "  b/bias                               1024 bytes, placed\n"
        "ps/2: 10.2 kB in 1 piece\n"
        "  c/kernel                                10.2 kB, placed\n");
    expect(&j, WEFT_OPTS(weft_ps_opts, .servers = 3, .replicas = 1, .placement = WEFT_PLACE_GREEDY),
           "ps/0: 32.8 kB in 1 piece\n"
           "  a/kernel                                32.8 kB, placed\n"
           "ps/1: 132.6 kB in 1 piece\n"
           "  a/bias                                512 bytes, placed\n"
           "  b/kernel                               131.1 kB, placed\n"
           "  b/bias                               1024 bytes, placed\n"
           "ps/2: 10.3 kB in 1 piece\n"
           "  c/kernel                                10.2 kB, placed\n"
           "  c/bias                                 40 bytes, placed\n");
    expect(&j,
           WEFT_OPTS(weft_ps_opts, .cluster = "chief=a:1;ps=b:1,c:1;worker=1", .replicas = 1,
                     .place = by_name, .place_arg = &calls),
           "ps/0: 10.3 kB in 1 piece\n"
           "  c/kernel                                10.2 kB\n"
           "  c/bias                                 40 bytes\n"
           "ps/1: 165.4 kB in 1 piece\n"
           "  a/kernel                                32.8 kB, placed\n"
           "  a/bias                                512 bytes, placed\n"
           "  b/kernel                               131.1 kB, placed\n"
           "  b/bias                               1024 bytes, placed\n");
    assert_int_equal(calls, 4); /* those of b have a scope */
    end(&j);
}

/* Rows of a table lie on all servers. */
static void tables_are_in_it(void **state)
{
    struct job j;
    weft_sym v;
    char *said;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j.ctx), WEFT_OK);
    assert_int_equal(weft_model_new(j.ctx, NULL, &j.m), WEFT_OK);
    v = weft_input(j.m, "ids", WEFT_I32, 1, (int64_t[]){1});
    v = weft_apply(j.m, "Embedding", "input_dim=100000 output_dim=64 name=words", v);
    v = weft_apply(j.m, "Flatten", "", v);
    weft_model_output(j.m, weft_apply(j.m, "Dense", "units=2 name=d", v));
    assert_int_equal(weft_model_status(j.m), WEFT_OK);
    if (weft_ps_explain(j.m, WEFT_OPTS(weft_ps_opts, .servers = 2, .replicas = 1), &said))
        fail_msg("%s", weft_error());
    assert_memory_equal(said, "ps/0: ", 6);
    assert_non_null(strstr(said, "  words/embeddings "));
    assert_non_null(strstr(said, "ps/1: "));
    assert_non_null(strstr(strstr(said, "ps/1: "), " MB of 25.6 MB\n"));
    weft_text_free(j.ctx, said);
    end(&j);
}

static int nowhere(void *arg, const char *variable, int64_t bytes, int n_servers)
{
    (void)arg;
    (void)variable;
    (void)bytes;
    return n_servers;
}

static void servers_that_do_not_exist_are_refused_or_ignored(void **state)
{
    struct job j;
    char *said = NULL;

    (void)state;
    start(&j, "/job:ps/task:5", false);
    assert_int_equal(weft_ps_explain(j.m, WEFT_OPTS(weft_ps_opts, .servers = 2), &said),
                     WEFT_ENOENT);
    assert_non_null(
        strstr(weft_error(), "variable 'b/kernel' is placed on /job:ps/task:5, but there are 2"));
    assert_int_equal(
        weft_ps_explain(j.m, WEFT_OPTS(weft_ps_opts, .servers = 8, .place = nowhere), &said),
        WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "variable 'a/kernel' on server 8; 0 to 7 exist"));
    assert_int_equal(
        weft_ps_explain(j.m, WEFT_OPTS(weft_ps_opts, .placement = (weft_placement)7), &said),
        WEFT_EINVAL);
    assert_null(said);
    end(&j);
    start(&j, "/job:ps/task:5", true);
    assert_int_equal(weft_ps_explain(j.m, WEFT_OPTS(weft_ps_opts, .servers = 2), &said), WEFT_OK);
    assert_null(strstr(said, "placed"));
    weft_text_free(j.ctx, said);
    end(&j);
}

static void a_scope_that_is_not_one_is_an_error_of_the_model(void **state)
{
    weft_ctx *ctx;
    weft_model *m;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_model_new(ctx, NULL, &m), WEFT_OK);
    weft_model_device(m, "/job:ps/task:");
    assert_int_equal(weft_model_status(m), WEFT_EINVAL);
    weft_model_free(m);
    weft_ctx_free(ctx);
}

/* ---- training -------------------------------------------------------------------------------- */

static void train(const weft_ps_opts *ps, const char *device, float *kernel, int64_t n)
{
    struct job j;
    float x[BATCH * WIDTH] = {0};
    int32_t y[BATCH] = {0};
    weft_tensor tx = weft_view(WEFT_F32, x, 2, (int64_t[]){BATCH, WIDTH});
    weft_tensor ty = weft_view(WEFT_I32, y, 1, (int64_t[]){BATCH});
    weft_tensor got;
    weft_dist *d = NULL;
    weft_trainer *t = NULL;

    start(&j, device, false);
    for (int i = 0; i < BATCH * WIDTH; i++)
        x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < BATCH; i++)
        y[i] = i;
    if (ps) {
        assert_int_equal(weft_dist_open_ps(j.ctx, ps, &d), WEFT_OK);
        assert_int_equal(weft_dist_scope(d, j.m), WEFT_OK);
    }
    if (weft_compile(j.m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam global_clipnorm=0.5",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .shards = 2),
                     &t))
        fail_msg("%s", weft_error());
    for (int i = 0; i < STEPS; i++)
        if (weft_train_on_batch(t, &tx, &ty, NULL, NULL))
            fail_msg("%s", weft_error());
    assert_int_equal(weft_trainer_weight(t, "b/kernel", &got), WEFT_OK);
    assert_int_equal(got.dim[0] * got.dim[1], n);
    memcpy(kernel, got.data, (size_t)n * sizeof *kernel);
    weft_trainer_free(t);
    weft_model_free(j.m);
    weft_dist_free(d);
    weft_ctx_free(j.ctx);
}

static void placement_does_not_change_a_bit(void **state)
{
    enum { N = 128 * 256 };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);

    (void)state;
    train(NULL, "/job:ps/task:1", a, N);
    for (int placement = WEFT_PLACE_EVEN; placement <= WEFT_PLACE_GREEDY; placement++) {
        train(WEFT_OPTS(weft_ps_opts, .servers = 3, .placement = (weft_placement)placement),
              placement == WEFT_PLACE_GREEDY ? NULL : "/job:ps/task:1", b, N);
        assert_memory_equal(a, b, N * sizeof *a);
    }
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_placement_is_printed),
        cmocka_unit_test(tables_are_in_it),
        cmocka_unit_test(servers_that_do_not_exist_are_refused_or_ignored),
        cmocka_unit_test(a_scope_that_is_not_one_is_an_error_of_the_model),
        cmocka_unit_test(placement_does_not_change_a_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
