/* The life of a fit: every call in every state, every way to come to an end, and every move
 * between two states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/train.h"
#include "weft/loop.h"
#include "weft/weft.h"

enum { N = 24, D = 3 };

static weft_ctx *ctx;
static float x[N][D], y[N];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        y[i] = (float)(i % 5);
        for (int k = 0; k < D; k++)
            x[i][k] = (float)((i * 7 + k * 3) % 11) * 0.1f;
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

struct job {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static struct job open_job(const char *optimizer)
{
    struct job j;
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &j.m));
    s = weft_input(j.m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_output(j.m, weft_apply(j.m, "Dense", "units=1", s));
    ok(weft_compile(
        j.m, WEFT_OPTS(weft_compile_opts, .optimizer = optimizer, .loss = "mean_squared_error"),
        &j.t));
    ok(weft_data_new(ctx, &j.d));
    j.s = weft_ds_tensors(j.d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                          (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                                          weft_view(WEFT_F32, y, 1, (int64_t[]){N})});
    return j;
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static const int64_t rows[] = {8, D}, one_row[] = {8};

static weft_tensor batch_x(void)
{
    return weft_view(WEFT_F32, x, 2, rows);
}
static weft_tensor batch_y(void)
{
    return weft_view(WEFT_F32, y, 1, one_row);
}

static weft_status call_fit(struct job *j)
{
    return weft_fit(j->t, j->d, j->s, WEFT_OPTS(weft_fit_opts, .batch = 8), NULL);
}

static weft_status call_train(struct job *j)
{
    weft_tensor a = batch_x(), b = batch_y();

    return weft_train_on_batch(j->t, &a, &b, NULL, NULL);
}

static weft_status call_test(struct job *j)
{
    weft_tensor a = batch_x(), b = batch_y();

    return weft_test_on_batch(j->t, &a, &b, NULL, NULL);
}

static weft_status call_predict_batch(struct job *j)
{
    weft_tensor a = batch_x(), out = {.data = NULL};

    return weft_predict_on_batch(j->t, &a, &out);
}

static weft_status call_gradients(struct job *j)
{
    weft_tensor a = batch_x(), b = batch_y();
    weft_grads *g = NULL;
    weft_status st = weft_trainer_gradients(j->t, &a, &b, NULL, &g, NULL);

    weft_grads_free(g);
    return st;
}

/* Gradients are made before, in a state that allows it. */
static weft_status call_apply(struct job *j)
{
    weft_tensor a = batch_x(), b = batch_y();
    enum wf_life life = j->t->life;
    weft_grads *g = NULL;
    weft_status st;

    j->t->life = WF_LIFE_NEW;
    ok(weft_trainer_gradients(j->t, &a, &b, NULL, &g, NULL));
    j->t->life = life;
    st = weft_trainer_apply(j->t, g, NULL);
    weft_grads_free(g);
    return st;
}

static weft_status call_evaluate(struct job *j)
{
    return weft_evaluate(j->t, j->d, j->s, NULL, NULL);
}

static weft_status nothing(void *arg, const weft_batch *b, int n, const weft_tensor *out)
{
    (void)arg;
    (void)b;
    (void)n;
    (void)out;
    return WEFT_OK;
}

static weft_status call_predict(struct job *j)
{
    return weft_predict(j->t, j->d, j->s, NULL, nothing, NULL);
}

static weft_status call_weight(struct job *j)
{
    float one[D] = {1, 2, 3};
    weft_tensor v = weft_view(WEFT_F32, one, 2, (int64_t[]){D, 1});

    return weft_trainer_set_weight(j->t, "dense/kernel", &v);
}

static weft_status call_rate(struct job *j)
{
    return weft_trainer_set_rate(j->t, 0.01);
}

/* Labels of another type. */
static weft_status call_bind(struct job *j)
{
    struct wf_type type = wf_type_of(WEFT_F32, 2, (int64_t[]){WEFT_ANY, 1});

    return wf_trainer_bind(j->t, &type, false);
}

enum rule { ANYTIME, BETWEEN, NOT_WHILE_TRAINING };
static const struct {
    const char *name;
    weft_status (*call)(struct job *j);
    enum rule rule;
    const char *text; /* of the refusal */
} calls[] = {
    {"fit", call_fit, BETWEEN, "fit: a fit of this trainer is under way"},
    {"train_on_batch", call_train, BETWEEN, "train_on_batch: fit is under way"},
    {"gradients", call_gradients, BETWEEN, "gradients: fit is under way"},
    {"apply", call_apply, BETWEEN, "apply: fit is under way"},
    {"bind", call_bind, NOT_WHILE_TRAINING, "labels or weights of another type, while fit is"},
    {"test_on_batch", call_test, ANYTIME, ""},
    {"predict_on_batch", call_predict_batch, ANYTIME, ""},
    {"evaluate", call_evaluate, ANYTIME, ""},
    {"predict", call_predict, ANYTIME, ""},
    {"set_weight", call_weight, ANYTIME, ""},
    {"set_rate", call_rate, ANYTIME, ""},
};

static bool under_way(enum wf_life life)
{
    return life == WF_LIFE_OPENING || life == WF_LIFE_TRAINING || life == WF_LIFE_CLOSING;
}

static void every_call_in_every_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int life = 0; life < WF_N_LIVES; life++) {
            struct job j = open_job("sgd");
            bool allowed = calls[i].rule == ANYTIME || !under_way((enum wf_life)life) ||
                           (calls[i].rule == NOT_WHILE_TRAINING && life == WF_LIFE_OPENING);
            char where[64];
            weft_status st;

            ok(call_test(&j)); /* it has a graph */
            j.t->life = (enum wf_life)life;
            st = calls[i].call(&j);
            if (allowed && st)
                fail_msg("%s while %s: %s", calls[i].name, wf_life_name((enum wf_life)life),
                         weft_error());
            if (!allowed) {
                snprintf(where, sizeof where, "under way (%s)", wf_life_name((enum wf_life)life));
                assert_int_equal(st, WEFT_ESTATE);
                assert_non_null(strstr(weft_error(), calls[i].text));
                assert_non_null(strstr(weft_error(), where));
                assert_int_equal(j.t->life, life);
            }
            close_job(&j);
        }
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void a_state_is_followed_by_no_others_than_these(void **state)
{
    (void)state;
    for (int a = 0; a < WF_N_LIVES; a++)
        for (int b = 0; b < WF_N_LIVES; b++) {
            bool may;

            switch ((enum wf_life)b) {
            case WF_LIFE_NEW: may = false; break;
            case WF_LIFE_OPENING: may = !under_way((enum wf_life)a); break;
            case WF_LIFE_TRAINING: /* or it goes back, as a job of servers may */
                may = a == WF_LIFE_OPENING || a == WF_LIFE_CLOSING;
                break;
            case WF_LIFE_CLOSING: may = a == WF_LIFE_TRAINING; break;
            case WF_LIFE_FAILED: may = under_way((enum wf_life)a); break;
            default: may = a == WF_LIFE_CLOSING; break;
            }
            assert_int_equal(wf_life_follows((enum wf_life)a, (enum wf_life)b), may);
        }
}

/* ---- ways to come to an end ------------------------------------------------------------------ */

enum way { BY_ITSELF, STOP, INTERRUPT, INTERRUPT_LAST, NAN_LOSS, END_FAILS, EPOCH_FAILS };

static weft_status at_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    enum way way = *(enum way *)arg;

    (void)logs;
    assert_int_equal(t->life, WF_LIFE_TRAINING);
    if (way == STOP)
        weft_trainer_stop(t);
    if (way == INTERRUPT || (way == INTERRUPT_LAST && batch == 2 && weft_trainer_step(t) == 6))
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

static weft_status at_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)t;
    (void)epoch;
    (void)logs;
    return *(enum way *)arg == EPOCH_FAILS ? WEFT_EDATA : WEFT_OK;
}

static weft_status at_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    (void)logs;
    assert_int_equal(t->life, WF_LIFE_CLOSING);
    return *(enum way *)arg == END_FAILS ? WEFT_EDATA : WEFT_OK;
}

static void each_way_to_come_to_an_end_is_a_state(void **state)
{
    static const enum wf_life ends[] = {WF_LIFE_COMPLETE, WF_LIFE_ENDED,    WF_LIFE_PAUSED,
                                        WF_LIFE_STOPPED,  WF_LIFE_DIVERGED, WF_LIFE_UNSAVED,
                                        WF_LIFE_FAILED};

    (void)state;
    for (int k = 0; k < 7; k++) {
        enum way way = (enum way)k;
        struct job j = open_job(way == NAN_LOSS ? "sgd learning_rate=1e30" : "sgd");
        weft_callback cb = {.size = sizeof cb,
                            .arg = &way,
                            .batch_end = at_batch,
                            .epoch_end = at_epoch,
                            .train_end = at_end};
        weft_status st;

        assert_int_equal(j.t->life, WF_LIFE_NEW);
        st = weft_fit(
            j.t, j.d, j.s,
            WEFT_OPTS(weft_fit_opts, .batch = 8, .epochs = 2, .n_callbacks = 1, .callbacks = &cb),
            NULL);
        assert_int_equal(st, way == END_FAILS || way == EPOCH_FAILS ? WEFT_EDATA : WEFT_OK);
        assert_string_equal(wf_life_name(j.t->life), wf_life_name(ends[k]));
        assert_int_equal(wf_life_in_order(j.t),
                         way == BY_ITSELF || way == STOP || way == END_FAILS);
        assert_int_equal(weft_trainer_stopped(j.t),
                         way == STOP || way == INTERRUPT || way == INTERRUPT_LAST);
        /* and another fit may follow, which knows nothing of what was asked of this one */
        ok(call_fit(&j));
        assert_false(weft_trainer_stopped(j.t));
        close_job(&j);
    }
}

static void a_fit_that_cannot_begin_has_failed(void **state)
{
    struct job j = open_job("sgd");

    (void)state;
    assert_int_not_equal(weft_fit(j.t, j.d, weft_ds_repeat(j.d, j.s, 0), NULL, NULL), WEFT_OK);
    assert_int_equal(j.t->life, WF_LIFE_FAILED);
    ok(call_fit(&j));
    assert_int_equal(j.t->life, WF_LIFE_COMPLETE);
    close_job(&j);
}

/* ---- in callbacks ---------------------------------------------------------------------------- */

static weft_status try_all(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct job *j = arg;

    (void)batch;
    (void)logs;
    assert_ptr_equal(t, j->t);
    assert_int_equal(call_fit(j), WEFT_ESTATE);
    assert_int_equal(call_train(j), WEFT_ESTATE);
    assert_int_equal(call_gradients(j), WEFT_ESTATE);
    ok(call_test(j));
    ok(call_evaluate(j));
    ok(call_predict(j));
    return WEFT_OK;
}

static void callbacks_measure_and_change_nothing(void **state)
{
    struct job a = open_job("sgd"), b = open_job("sgd");
    weft_callback cb = {.size = sizeof cb, .arg = &b, .batch_end = try_all, .epoch_end = try_all};
    weft_history *h = NULL, *g = NULL;

    (void)state;
    ok(weft_fit(a.t, a.d, a.s, WEFT_OPTS(weft_fit_opts, .batch = 8, .epochs = 2), &h));
    ok(weft_fit(
        b.t, b.d, b.s,
        WEFT_OPTS(weft_fit_opts, .batch = 8, .epochs = 2, .n_callbacks = 1, .callbacks = &cb), &g));
    assert_int_equal(g->n_epochs, 2);
    assert_memory_equal(h->value, g->value, (size_t)(2 * h->n_names) * sizeof *h->value);
    weft_history_free(h);
    weft_history_free(g);
    close_job(&a);
    close_job(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_in_every_state),
        cmocka_unit_test(a_state_is_followed_by_no_others_than_these),
        cmocka_unit_test(each_way_to_come_to_an_end_is_a_state),
        cmocka_unit_test(a_fit_that_cannot_begin_has_failed),
        cmocka_unit_test(callbacks_measure_and_change_nothing),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
