/* optim_rows_test.c - the optimizer and schedule tables: defaults, slots, checks, and schedule
 * values against numbers made by Keras. The updates themselves are tested with their kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "op/optim.h"
#include "op/schedule.h"

static void slots_follow_the_attributes(void **state)
{
    static const struct {
        const char *name, *set;
        int n;
        const char *names[3];
        float init;
    } cases[] = {
        {"sgd", NULL, 0, {0}, 0},
        {"sgd", "momentum", 1, {"momentum"}, 0},
        {"rmsprop", NULL, 1, {"velocity"}, 0},
        {"rmsprop", "centered", 2, {"velocity", "average_gradient"}, 0},
        {"adam", NULL, 2, {"momentum", "velocity"}, 0},
        {"adam", "amsgrad", 3, {"momentum", "velocity", "velocity_hat"}, 0},
        {"adagrad", NULL, 1, {"accumulator"}, .1f},
        {"ftrl", NULL, 2, {"accumulator", "linear"}, .1f},
        {"lamb", NULL, 2, {"momentum", "velocity"}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wf_optim_row *row = wf_optim_find(cases[i].name);
        double attrs[WF_OPTIM_MAX_ATTRS];
        const char *names[WF_OPTIM_MAX_SLOTS];
        float init[WF_OPTIM_MAX_SLOTS];

        wf_optim_defaults(row, attrs);
        if (cases[i].set)
            attrs[wf_optim_attr_find(row, cases[i].set)] = .5;
        assert_int_equal(wf_optim_slots(row, attrs, names, init), cases[i].n);
        for (int s = 0; s < cases[i].n; s++)
            assert_string_equal(names[s], cases[i].names[s]);
        if (cases[i].n)
            assert_true(init[0] == cases[i].init);
    }
}

static void every_row_is_whole(void **state)
{
    (void)state;
    for (int i = 0; i < wf_n_optim_rows; i++) {
        const struct wf_optim_row *row = &wf_optim_rows[i];
        double attrs[WF_OPTIM_MAX_ATTRS];
        struct wf_optim_scalars k;

        assert_ptr_equal(wf_optim_find(row->name), row);
        assert_int_equal(wf_optim_attr_find(row, "learning_rate"), WF_OPTIM_ATTR_LR);
        assert_int_equal(wf_optim_attr_find(row, "weight_decay"), WF_OPTIM_ATTR_WEIGHT_DECAY);
        assert_int_equal(wf_optim_attr_find(row, "clipnorm"), WF_OPTIM_ATTR_CLIPNORM);
        assert_int_equal(wf_optim_attr_find(row, "global_clipnorm"), WF_OPTIM_ATTR_GLOBAL_CLIPNORM);
        assert_int_equal(wf_optim_attr_find(row, "clipvalue"), WF_OPTIM_ATTR_CLIPVALUE);
        for (int a = 0; a < row->n_attrs; a++)
            assert_non_null(row->attrs[a].name);
        for (int s = 0; s < row->n_slots; s++) {
            assert_true(!row->slots[s].init || wf_optim_attr_find(row, row->slots[s].init) >= 0);
            assert_true(!row->slots[s].when || wf_optim_attr_find(row, row->slots[s].when) >= 0);
        }
        wf_optim_defaults(row, attrs);
        assert_null(wf_optim_check(row, attrs));
        attrs[WF_OPTIM_ATTR_CLIPVALUE] = 2;
        wf_optim_prepare(row, attrs, .5, 1, 4, &k);
        assert_true(k.grad_scale == 4 && k.clip == 2 && k.form < WF_OPTIM_N_FORMS);
        assert_true(k.decay == (float)(.5 * attrs[WF_OPTIM_ATTR_WEIGHT_DECAY]));
        attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] = 1; /* comes before clipping by value */
        wf_optim_prepare(row, attrs, .5, 1, 4, &k);
        assert_true(k.clip == 0);
        attrs[WF_OPTIM_ATTR_WEIGHT_DECAY] = -1;
        assert_string_equal(wf_optim_check(row, attrs),
                            "weight_decay must be finite and not negative");
    }
    assert_null(wf_optim_find("adamm"));
}

static void bad_attributes_are_named(void **state)
{
    const struct wf_optim_row *row = wf_optim_find("adam");
    double attrs[WF_OPTIM_MAX_ATTRS];

    (void)state;
    wf_optim_defaults(row, attrs);
    attrs[wf_optim_attr_find(row, "beta_2")] = 1;
    assert_string_equal(wf_optim_check(row, attrs), "beta_2 must be in [0, 1)");
    attrs[wf_optim_attr_find(row, "beta_2")] = NAN;
    assert_string_equal(wf_optim_check(row, attrs), "beta_2 must be in [0, 1)");
}

/* Of every optimizer and schedule: no number may be what no training can use. */
static void no_number_of_any_row_may_be_nan_or_infinite(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    double attrs[WF_OPTIM_MAX_ATTRS + WF_SCHEDULE_MAX_ATTRS];

    (void)state;
    for (int b = 0; b < 3; b++) {
        for (int i = 0; i < wf_n_optim_rows; i++)
            for (int a = 0; a < wf_optim_rows[i].n_attrs; a++) {
                wf_optim_defaults(&wf_optim_rows[i], attrs);
                attrs[a] = bad[b];
                if (!wf_optim_check(&wf_optim_rows[i], attrs))
                    fail_msg("%s: %s %g", wf_optim_rows[i].name, wf_optim_rows[i].attrs[a].name,
                             bad[b]);
            }
        for (int i = 0; i < wf_n_schedule_rows; i++)
            for (int a = 0; a < wf_schedule_rows[i].n_attrs; a++) {
                const double one = 0.5;

                wf_schedule_defaults(&wf_schedule_rows[i], attrs);
                attrs[a] = bad[b];
                if (!wf_schedule_check(&wf_schedule_rows[i], attrs, &one,
                                       wf_schedule_rows[i].takes_list))
                    fail_msg("%s: %s %g", wf_schedule_rows[i].name,
                             wf_schedule_rows[i].attrs[a].name, bad[b]);
            }
    }
}

/* Nadam's product is computed again each step; it must agree with the running one, and end at
 * zero. */
static void nadam_needs_no_state(void **state)
{
    const struct wf_optim_row *row = wf_optim_find("nadam");
    double attrs[WF_OPTIM_MAX_ATTRS], product = 1;

    (void)state;
    wf_optim_defaults(row, attrs);
    for (int t = 1; t <= 3000; t++) {
        double u = .9 * (1 - .5 * pow(.96, t)), next = .9 * (1 - .5 * pow(.96, t + 1));
        struct wf_optim_scalars k;

        product *= u;
        wf_optim_prepare(row, attrs, 1, t, 1, &k);
        assert_true(fabs(k.k1 - next / (1 - product * next)) < 1e-6);
        assert_true(fabs(k.k2 - (1 - u) / (1 - product)) < 1e-6);
    }
}

static const int64_t steps[] = {0, 1, 100, 101, 250, 999, 1000, 1001, 2500};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

static const struct {
    const char *name;
    double attrs[5];
    double list[5];
    int n_list;
    double want[N_STEPS];
} schedules[] = {
    {"constant", {.1}, {0}, 0, {.1, .1, .1, .1, .1, .1, .1, .1, .1}},
    {"exponential_decay",
     {.1, 1000, .5, 0},
     {0},
     0,
     {.1, .099930711, .0933033, .093238644, .084089644, .050034668, .05, .049965352, .01767767}},
    {"exponential_decay", {.1, 1000, .5, 1}, {0}, 0, {.1, .1, .1, .1, .1, .1, .05, .05, .025}},
    {"piecewise_constant",
     {0},
     {100, 1000, .1, .05, .01},
     5,
     {.1, .1, .1, .05, .05, .05, .05, .01, .01}},
    {"polynomial_decay",
     {.1, 1000, .01, 2, 0},
     {0},
     0,
     {.1, .099820092, .0829, .082738087, .060625, .01000009, .01, .01, .01}},
    {"polynomial_decay",
     {.1, 1000, .01, .5, 1},
     {0},
     0,
     {.1, .099954985, .095381498, .095334053, .087942287, .012846031, .01, .07360778, .04674235}},
    {"inverse_time_decay",
     {.1, 1000, .5, 0},
     {0},
     0,
     {.1, .09995003, .095238104, .09519276, .088888891, .066688895, .06666667, .066644453,
      .044444446}},
    {"inverse_time_decay",
     {.1, 1000, .5, 1},
     {0},
     0,
     {.1, .1, .1, .1, .1, .1, .06666667, .06666667, .05}},
    {"cosine_decay",
     {.1, 1000, .1, 0, 0},
     {0},
     0,
     {.1, .099999778, .097797543, .097753644, .086819813, .010000223, .01, .01, .01}},
    {"cosine_decay",
     {.01, 1000, .1, .1, 200},
     {0},
     0,
     {.01, .01045, .055, .05545, .099445969, .018677505, .018594233, .018511316, .01}},
    {"cosine_decay_restarts",
     {.1, 300, 2, .9, .1},
     {0},
     0,
     {.1, .099997535, .0775, .077090673, .016028857, .081682578, .081657998, .081633173,
      .071214959}},
    {"cosine_decay_restarts",
     {.1, 300, 1, .9, 0},
     {0},
     0,
     {.1, .09999726, .075, .07454519, .0066987309, .055004556, .054675002, .054343443, .03228505}},
};

static void schedules_match_keras(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        const struct wf_schedule_row *row = wf_schedule_find(schedules[i].name);

        assert_non_null(row);
        assert_null(
            wf_schedule_check(row, schedules[i].attrs, schedules[i].list, schedules[i].n_list));
        for (int s = 0; s < N_STEPS; s++) {
            double got = wf_schedule_rate(row, schedules[i].attrs, schedules[i].list,
                                          schedules[i].n_list, steps[s]);

            if (!(fabs(got - schedules[i].want[s]) < 1e-7))
                fail_msg("%s after %d steps: got %.9g, expected %.9g", row->name, (int)steps[s],
                         got, schedules[i].want[s]);
        }
    }
}

/* Far beyond any decay, and against libm along the way. */
static void schedules_stay_exact(void **state)
{
    const struct wf_schedule_row *e = wf_schedule_find("exponential_decay"),
                                 *c = wf_schedule_find("cosine_decay");
    const double attrs[] = {1, 1000, .96, 0}, cosine[] = {1, 100000, 0, 0, 0};

    (void)state;
    for (int64_t s = 0; s < 100000; s += 37) {
        assert_true(fabs(wf_schedule_rate(e, attrs, NULL, 0, s) / pow(.96, (double)s / 1000) - 1) <
                    1e-13);
        assert_true(fabs(wf_schedule_rate(c, cosine, NULL, 0, s) -
                         (1 + cos(3.14159265358979323846 * (double)s / 1e5)) / 2) < 1e-14);
    }
    assert_true(wf_schedule_rate(e, attrs, NULL, 0, (int64_t)1 << 40) == 0);
    assert_true(wf_schedule_rate(c, cosine, NULL, 0, (int64_t)1 << 40) == 0);
}

static void bad_schedules_are_named(void **state)
{
    const double zero[] = {1, 0, .5, 0}, list[] = {5, 5, 1, 2, 3};
    double attrs[WF_SCHEDULE_MAX_ATTRS];

    (void)state;
    assert_string_equal(wf_schedule_check(wf_schedule_find("exponential_decay"), zero, NULL, 0),
                        "decay_steps must be positive");
    assert_string_equal(wf_schedule_check(wf_schedule_find("piecewise_constant"), zero, list, 5),
                        "boundaries must increase");
    assert_non_null(wf_schedule_check(wf_schedule_find("piecewise_constant"), zero, list, 4));
    assert_non_null(wf_schedule_check(wf_schedule_find("constant"), zero, list, 4));
    assert_null(wf_schedule_find("linear"));
    for (int i = 0; i < wf_n_schedule_rows; i++) {
        wf_schedule_defaults(&wf_schedule_rows[i], attrs);
        assert_null(wf_schedule_check(&wf_schedule_rows[i], attrs, list + 4,
                                      wf_schedule_rows[i].takes_list));
        attrs[0] = INFINITY;
        assert_non_null(wf_schedule_check(&wf_schedule_rows[i], attrs, list + 4,
                                          wf_schedule_rows[i].takes_list));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_follow_the_attributes),
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(bad_attributes_are_named),
        cmocka_unit_test(nadam_needs_no_state),
        cmocka_unit_test(schedules_match_keras),
        cmocka_unit_test(schedules_stay_exact),
        cmocka_unit_test(bad_schedules_are_named),
        cmocka_unit_test(no_number_of_any_row_may_be_nan_or_infinite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
