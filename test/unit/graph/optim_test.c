/* optim_test.c - optimizers and schedules as text: what they mean, and which mistakes are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include "op/schedule.h"
#include "weft/weft.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

struct mistake {
    const char *name, *numbers, *text; /* what the error must say */
    weft_status st;
};

static void mistakes_in_optimizers_are_named(void **state)
{
    static const struct mistake rows[] = {
        {"sgd", "learning_rate=nan", "learning_rate must be finite and not negative", WEFT_EINVAL},
        {"adam", "learning_rate=-0.1", "learning_rate must be finite", WEFT_EINVAL},
        {"adam", "learning_rate=inf", "learning_rate must be finite", WEFT_EINVAL},
        {"adam", "learning_rate=1e39", "learning_rate must be finite", WEFT_EINVAL}, /* as an f32 */
        {"adam", "learning_rate=0.1 learning_rate=0.2", "learning_rate is given twice",
         WEFT_EINVAL},
        {"sgd", "momentum=0.9, momentum=0.9", "momentum is given twice", WEFT_EINVAL},
        {"sgd", "clipnorm=1 clipvalue=0.5", "only one of clipnorm", WEFT_EINVAL},
        {"adam", "clipnorm=1 global_clipnorm=1", "only one of clipnorm", WEFT_EINVAL},
        {"lion", "global_clipnorm=1 clipvalue=1", "only one of clipnorm", WEFT_EINVAL},
        {"sgd", "clipnorm=-1", "clipnorm must be finite and not negative", WEFT_EINVAL},
        {"sgd", "nesterov=2", "nesterov must be 0 or 1", WEFT_EINVAL},
        {"rmsprop", "centered=nan", "centered must be 0 or 1", WEFT_EINVAL},
        {"ftrl", "beta=nan", "beta must be finite", WEFT_EINVAL},
        {"ftrl", "l1_regularization_strength=inf", "l1_regularization", WEFT_EINVAL},
        {"adam", "epsilon=-1e-7", "epsilon must be", WEFT_EINVAL},
        {"adam", "learning_rate=0,001", "expected name=number", WEFT_EPARSE},
        {"adam", "learning_rate=", "is not a number", WEFT_EPARSE},
        {"adam", "learning_rate=0.1x", "'0.1x' is not a number", WEFT_EPARSE},
        {"adam", "learning_rat=0.1", "did you mean 'learning_rate'", WEFT_ENOENT},
    };
    weft_optim o;

    (void)state;
    for (int i = 0; i < COUNT(rows); i++) {
        weft_status st = weft_optim_init(&o, rows[i].name, rows[i].numbers);

        if (st != rows[i].st || !strstr(weft_error(), rows[i].text))
            fail_msg("%s %s: %s: %s", rows[i].name, rows[i].numbers, weft_status_name(st),
                     weft_error());
    }
    assert_int_equal(weft_optim_init(&o, "sgd", "clipnorm=1 clipvalue=0 learning_rate=0"), 0);
}

static void mistakes_in_schedules_are_named(void **state)
{
    static const struct mistake rows[] = {
        {"piecewise_constant", "boundary=10 boundary=20 value=0.1 value=0.05",
         "2 boundaries and 2 values", WEFT_EINVAL},
        {"piecewise_constant", "boundary=10", "1 boundaries and 0 values", WEFT_EINVAL},
        {"piecewise_constant", NULL, "0 boundaries and 0 values", WEFT_EINVAL},
        {"piecewise_constant", "boundary=20 boundary=10 value=1 value=2 value=3",
         "boundaries must increase", WEFT_EINVAL},
        {"piecewise_constant", "boundary=nan value=1 value=2", "boundaries must be finite",
         WEFT_EINVAL},
        {"piecewise_constant", "boundary=-5 value=1 value=2", "boundaries must be finite and not",
         WEFT_EINVAL},
        {"piecewise_constant", "boundary=10 value=0.1 value=-0.05", "values must be finite and not",
         WEFT_EINVAL},
        {"piecewise_constant", "boundary=10 value=0.1 value=nan", "values must be finite",
         WEFT_EINVAL},
        {"piecewise_constant", "initial_learning_rate=1 value=1", "there are: boundary value",
         WEFT_ENOENT},
        {"exponential_decay", "decay_rate=0.5 decay_rate=0.9", "decay_rate is given twice",
         WEFT_EINVAL},
        {"exponential_decay", "initial_learning_rate=-1", "a learning rate must be finite",
         WEFT_EINVAL},
        {"exponential_decay", "decay_rate=nan", "finite", WEFT_EINVAL},
        {"exponential_decay", "boundary=3", "no number 'boundary'", WEFT_ENOENT},
        {"exponential_decay", "staircase=0.5", "must be 0 or 1", WEFT_EINVAL},
        {"polynomial_decay", "end_learning_rate=-0.1", "a learning rate must be", WEFT_EINVAL},
        {"cosine_decay", "alpha=-1", "alpha and m_mul must not be negative", WEFT_EINVAL},
        {"cosine_decay", "warmup_target=-1", "warmup_target must be", WEFT_EINVAL},
        {"cosine_decay_restarts", "first_decay_steps=1e-300", "must be at least 1", WEFT_EINVAL},
    };
    weft_optim o;

    (void)state;
    for (int i = 0; i < COUNT(rows); i++) {
        weft_status st;

        assert_int_equal(weft_optim_init(&o, "sgd", NULL), 0);
        st = weft_optim_schedule(&o, rows[i].name, rows[i].numbers);
        if (st != rows[i].st || !strstr(weft_error(), rows[i].text))
            fail_msg("%s %s: %s: %s", rows[i].name, rows[i].numbers ? rows[i].numbers : "",
                     weft_status_name(st), weft_error());
        assert_string_equal(o.schedule, "");
    }
}

static double rate_at(const weft_optim *o, int64_t step)
{
    const struct wf_schedule_row *row = wf_schedule_find(o->schedule);

    return wf_schedule_rate(row, o->schedule_number, o->schedule_number + row->n_attrs,
                            o->n_schedule - row->n_attrs, step);
}

static void pieces_may_be_written_in_any_order(void **state)
{
    static const char *const texts[] = {"boundary=10 boundary=20 value=0.1 value=0.05 value=0.01",
                                        "value=0.1 boundary=10 value=0.05 boundary=20 value=0.01",
                                        "value=0.1 value=0.05 value=0.01 boundary=10 boundary=20"};

    (void)state;
    for (int i = 0; i < COUNT(texts); i++) {
        weft_optim o;

        assert_int_equal(weft_optim_init(&o, "sgd", NULL), 0);
        assert_int_equal(weft_optim_schedule(&o, "piecewise_constant", texts[i]), 0);
        assert_true(rate_at(&o, 0) == 0.1 && rate_at(&o, 10) == 0.1);
        assert_true(rate_at(&o, 11) == 0.05 && rate_at(&o, 21) == 0.01);
    }
}

/* The same rules hold for the numbers of a graph that was read. */
static void updates_of_a_graph_are_checked(void **state)
{
    static const struct {
        const char *attrs, *text;
    } rows[] = {
        {"optimizer=sgd params=[nan,0,0,0,0,0,0]", "learning_rate must be finite"},
        {"optimizer=sgd params=[0.1,0,1,0,1,0,0]", "only one of clipnorm"},
        {"optimizer=sgd params=[0.1,0,0,0,0,0,0] schedule=none", "no schedule 'none'"},
        {"optimizer=sgd params=[0.1,0,0,0,0,0,0] schedule=cosine_decay schedule_params=[0.1]",
         "takes 5 numbers, got 1"},
        {"optimizer=sgd params=[0.1,0,0,0,0,0,0] schedule=piecewise_constant "
         "schedule_params=[0.1,5,1]",
         "takes n boundaries"},
    };
    weft_ctx *ctx = NULL;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (int i = 0; i < COUNT(rows); i++) {
        weft_graph *g = NULL;
        weft_val v, x;

        assert_int_equal(weft_graph_new(ctx, &g), 0);
        v = weft_variable(g, "v", 1, (int64_t[]){3}, NULL);
        x = weft_placeholder(g, "x", WEFT_F32, 1, (int64_t[]){3});
        weft_op(g, "apply", 2, (weft_val[]){v, x}, rows[i].attrs);
        if (!weft_graph_status(g) || !strstr(weft_error(), rows[i].text))
            fail_msg("%s: %s", rows[i].attrs, weft_error());
        weft_graph_free(g);
    }
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_in_optimizers_are_named),
        cmocka_unit_test(mistakes_in_schedules_are_named),
        cmocka_unit_test(pieces_may_be_written_in_any_order),
        cmocka_unit_test(updates_of_a_graph_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
