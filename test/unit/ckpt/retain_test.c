/* retain_test.c - which checkpoints stay: a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "ckpt/ckpt.h"

#define HOUR ((int64_t)3600 * 1000000000)
#define N 12

/* The series of all rows: step 10·i at i half hours, with this metric. */
static const double metric[N] = {0.9, 0.5, 0.7, 0.2, 0.2, 0.6, 0.3, 0.8, 0.4, 0.25, 0.95, 0.1};

struct row {
    const char *what;
    weft_ckpt_policy policy;
    const char *keep; /* a letter for each: '+' stays, '-' goes; shorter: fewer entries */
    const char *odd;  /* 'x' an error, '=' the previous one's step, 'n' NaN, '0' no metric */
};

static const struct row rows[] = {
    {"five by default", {0}, "-------+++++", ""},
    {"three", {.keep_last = 3}, "---------+++", ""},
    {"more than there are", {.keep_last = 99}, "++++", ""},
    {"all", {.keep_last = WEFT_CKPT_ALL}, "++++++++++++", ""},
    {"the newest stays whatever is asked", {.keep_last = (int)WEFT_ZERO}, "-----------+", ""},
    {"one alone", {.keep_last = 1}, "+", ""},
    {"none at all", {.keep_last = 1}, "", ""},
    {"the lowest", {.keep_last = (int)WEFT_ZERO, .keep_best = 1}, "---+-------+", "           0"},
    {"of equal ones the older", {.keep_last = (int)WEFT_ZERO, .keep_best = 1}, "---+--+", ""},
    {"three lowest", {.keep_last = (int)WEFT_ZERO, .keep_best = 3}, "---++-+", ""},
    {"four lowest, the newest among them",
     {.keep_last = (int)WEFT_ZERO, .keep_best = 4},
     "---++----+-+",
     ""},
    {"the two highest",
     {.keep_last = (int)WEFT_ZERO, .keep_best = 2, .keep_highest = true},
     "+---------++",
     ""},
    {"best and last together", {.keep_last = 2, .keep_best = 2}, "---++---++", ""},
    {"NaN is never best",
     {.keep_last = (int)WEFT_ZERO, .keep_best = 2},
     "------+--+-+",
     "   nn      0"},
    {"nor the highest",
     {.keep_last = (int)WEFT_ZERO, .keep_best = 1, .keep_highest = true},
     "-------+---+",
     "n         n "},
    {"no metric, no best", {.keep_last = (int)WEFT_ZERO, .keep_best = 3}, "-----+", "000000"},
    {"more best than metrics", {.keep_last = (int)WEFT_ZERO, .keep_best = 3}, "-+---+", "0 0000"},
    {"every hour", {.keep_last = (int)WEFT_ZERO, .keep_hours = 1}, "+-+-+-+-+-++", ""},
    {"every two hours and a half",
     {.keep_last = (int)WEFT_ZERO, .keep_hours = 2.5},
     "+----+----++",
     ""},
    {"hours, last and best", {.keep_last = 2, .keep_best = 1, .keep_hours = 3}, "+--+--+--++", ""},
    {"the damaged stay and do not count", {.keep_last = 2}, "--+x+xx", "   x xx"},
    {"the damaged newest is not the newest", {.keep_last = (int)WEFT_ZERO}, "---+x", "    x"},
    {"the damaged are not best",
     {.keep_last = (int)WEFT_ZERO, .keep_best = 1},
     "---x+-+",
     "   x   "},
    {"the damaged do not start the hours",
     {.keep_last = (int)WEFT_ZERO, .keep_hours = 1},
     "x+-+-+-+",
     "x       "},
    {"the second of a step replaces the first", {.keep_last = 2}, "---+-+", "     ="},
    {"whatever the rules, the first of two goes",
     {.keep_last = WEFT_CKPT_ALL, .keep_best = 12, .keep_hours = 0.1},
     "++-+-+",
     "   = ="},
    {"unless the second is damaged", {.keep_last = 2}, "---++x", "     #"},
    {"three of one step", {.keep_last = 2}, "-+--+", "   =="},
};

static void set(weft_ckpt_entry *e, int i, char odd)
{
    *e = (weft_ckpt_entry){.path = "x",
                           .step = 10 * i,
                           .time_ns = i * HOUR / 2,
                           .metric = odd == 'n' ? NAN : metric[i],
                           .has_metric = odd != '0',
                           .error = odd == 'x' || odd == '#' ? "damaged" : NULL};
    if (odd == '=' || odd == '#')
        e->step = e[-1].step;
}

static void the_table(void **state)
{
    (void)state;
    for (int r = 0; r < WF_COUNT(rows); r++) {
        weft_ckpt_entry e[N];
        weft_ckpt_policy p = rows[r].policy;
        bool keep[N];
        char have[N + 1] = "", want[N + 1] = "";
        int n = (int)strlen(rows[r].keep);

        p.size = sizeof p;
        for (int i = 0; i < n; i++)
            set(&e[i], i, i < (int)strlen(rows[r].odd) ? rows[r].odd[i] : ' ');
        assert_int_equal(weft_ckpt_retain(&p, n, e, keep), 0);
        for (int i = 0; i < n; i++) {
            have[i] = keep[i] ? '+' : '-';
            want[i] = rows[r].keep[i] == '-' ? '-' : '+'; /* 'x' reads better where it is damaged */
        }
        if (strcmp(have, want))
            fail_msg("%s: wanted %s, got %s", rows[r].what, want, have);
    }
}

/* Whatever the policy and the entries: the newest valid one stays, and the damaged. */
static void the_newest_sound_one_always_stays(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        weft_ckpt_entry e[N];
        weft_ckpt_policy p = {.size = sizeof p};
        bool keep[N];
        int n, newest = -1;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        n = (int)(seed >> 60) % (N + 1);
        p.keep_last = (seed >> 40) % 4 == 3 ? (int)WEFT_ZERO : (int)((seed >> 40) % 4);
        p.keep_best = (int)((seed >> 42) % 3);
        p.keep_highest = (seed >> 44) & 1;
        p.keep_hours = (double)((seed >> 45) % 4);
        for (int i = 0; i < n; i++) {
            set(&e[i], i, " xn0="[i ? (seed >> (2 * i)) % 5 : (seed >> 1) % 4]);
            if (!e[i].error)
                newest = i;
        }
        assert_int_equal(weft_ckpt_retain(&p, n, e, keep), 0);
        if (newest >= 0)
            assert_true(keep[newest]);
        for (int i = 0; i < n; i++)
            assert_true(keep[i] || !e[i].error);
    }
}

static void a_policy_without_sense_is_refused(void **state)
{
    static const weft_ckpt_policy bad[] = {
        {.size = 1},
        {.size = sizeof bad[0], .keep_last = -2},
        {.size = sizeof bad[0], .keep_best = -1},
        {.size = sizeof bad[0], .keep_hours = -0.5},
        {.size = sizeof bad[0], .keep_hours = NAN},
    };
    bool keep[1];

    (void)state;
    for (int i = 0; i < WF_COUNT(bad); i++)
        assert_int_equal(weft_ckpt_retain(&bad[i], 0, NULL, keep), WEFT_EINVAL);
    assert_int_equal(weft_ckpt_retain(NULL, 0, NULL, keep), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(the_newest_sound_one_always_stays),
        cmocka_unit_test(a_policy_without_sense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
