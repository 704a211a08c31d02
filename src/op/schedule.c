/* schedule.c - the schedule table. Powers and cosines use our own series: libm's last bits differ
 * between systems. */
#include "op/schedule.h"

#include <math.h>
#include <string.h>

/* ---- exp, log, cos in f64, to about 1e-15 ------------------------------------------------ */

static double exp64(double x)
{
    double n, r, sum = 1.0, term = 1.0;

    if (x < -745.0)
        return 0.0;
    if (x > 709.0)
        return INFINITY;
    n = floor(x * 1.4426950408889634 + 0.5);
    r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10; /* ln 2 in two parts */
    for (int i = 1; i < 18; i++) {
        term *= r / i;
        sum += term;
    }
    return ldexp(sum, (int)n);
}

/* x > 0 */
static double log64(double x)
{
    int e;
    double m = frexp(x, &e), z, z2, term, sum = 0.0;

    if (m < 0.70710678118654752440) {
        m *= 2.0;
        e--;
    }
    z = (m - 1.0) / (m + 1.0); /* log m = 2 atanh z, |z| < 0.172 */
    z2 = z * z;
    term = z;
    for (int i = 1; i < 24; i += 2) {
        sum += term / i;
        term *= z2;
    }
    return 2.0 * sum + e * 1.90821492927058770002e-10 + e * 0.693147180369123816490;
}

static double power64(double x, double y)
{
    double n = floor(y), r = 1.0;

    if (n == y && n >= 0 && n < 1024) {
        for (int64_t i = (int64_t)n; i > 0; i >>= 1, x *= x)
            if (i & 1)
                r *= x;
        return r;
    }
    return x > 0 ? exp64(y * log64(x)) : y == 0 ? 1.0 : 0.0;
}

/* cos(pi x) for x in [0, 1]. */
static double cos_pi(double x)
{
    double r, r2, term = 1.0, sum = 1.0;

    if (x > 0.5)
        return -cos_pi(1.0 - x);
    r = x * 3.14159265358979323846;
    r2 = r * r;
    for (int i = 2; i < 26; i += 2) {
        term *= -r2 / ((i - 1) * i);
        sum += term;
    }
    return sum;
}

/* ---- one function per row -------------------------------------------------------------------- */

static double constant(const double *a, const double *list, int64_t n_list, double s)
{
    (void)list, (void)n_list, (void)s;
    return a[0];
}

static double exponential(const double *a, const double *list, int64_t n_list, double s)
{
    double p = s / a[1];

    (void)list, (void)n_list;
    return a[0] * power64(a[2], a[3] != 0 ? floor(p) : p);
}

static double piecewise(const double *a, const double *list, int64_t n_list, double s)
{
    int64_t n = n_list / 2, i = 0; /* n boundaries, then n + 1 values */

    (void)a;
    while (i < n && s > list[i])
        i++;
    return list[n + i];
}

static double polynomial(const double *a, const double *list, int64_t n_list, double s)
{
    double steps = a[1];

    (void)list, (void)n_list;
    if (a[4] != 0)
        steps *= s == 0 ? 1.0 : ceil(s / steps);
    else if (s > steps)
        s = steps;
    return (a[0] - a[2]) * power64(1.0 - s / steps, a[3]) + a[2];
}

static double inverse_time(const double *a, const double *list, int64_t n_list, double s)
{
    double p = s / a[1];

    (void)list, (void)n_list;
    return a[0] / (1.0 + a[2] * (a[3] != 0 ? floor(p) : p));
}

static double cosine_part(double done, double alpha)
{
    return (1.0 - alpha) * 0.5 * (1.0 + cos_pi(done)) + alpha;
}

static double cosine(const double *a, const double *list, int64_t n_list, double s)
{
    double rate = a[0], steps = a[1], alpha = a[2], target = a[3], warmup = a[4];

    (void)list, (void)n_list;
    if (target > 0) {
        if (s < warmup)
            return (target - rate) * (s / warmup) + rate;
        rate = target;
        s -= warmup;
    }
    return rate * cosine_part(s < steps ? s / steps : 1.0, alpha);
}

static double cosine_restarts(const double *a, const double *list, int64_t n_list, double s)
{
    double rate = a[0], done = s / a[1], t_mul = a[2], m_mul = a[3], alpha = a[4], period = 1.0,
           factor = 1.0;

    (void)list, (void)n_list;
    if (t_mul == 1.0) {
        double i = floor(done);

        return rate * ((1.0 - alpha) * 0.5 * power64(m_mul, i) * (1.0 + cos_pi(done - i)) + alpha);
    }
    for (; done >= period; period *= t_mul, factor *= m_mul)
        done -= period; /* t_mul > 1: a few dozen iterations at most */
    return rate * ((1.0 - alpha) * 0.5 * factor * (1.0 + cos_pi(done / period)) + alpha);
}

/* ---- the table --------------------------------------------------------------------------- */

const struct wf_schedule_row wf_schedule_rows[] = {
    {"constant", 1, {{"learning_rate", .01}}, false, constant},
    {"exponential_decay",
     4,
     {{"initial_learning_rate", .01}, {"decay_steps", 1000}, {"decay_rate", .96}, {"staircase", 0}},
     false,
     exponential},
    {"piecewise_constant", 1, {{"initial_learning_rate", 0}}, true, piecewise},
    {"polynomial_decay",
     5,
     {{"initial_learning_rate", .01},
      {"decay_steps", 1000},
      {"end_learning_rate", 1e-4},
      {"power", 1},
      {"cycle", 0}},
     false,
     polynomial},
    {"inverse_time_decay",
     4,
     {{"initial_learning_rate", .01}, {"decay_steps", 1000}, {"decay_rate", .5}, {"staircase", 0}},
     false,
     inverse_time},
    {"cosine_decay",
     5,
     {{"initial_learning_rate", .01},
      {"decay_steps", 1000},
      {"alpha", 0},
      {"warmup_target", 0},
      {"warmup_steps", 0}},
     false,
     cosine},
    {"cosine_decay_restarts",
     5,
     {{"initial_learning_rate", .01},
      {"first_decay_steps", 1000},
      {"t_mul", 2},
      {"m_mul", 1},
      {"alpha", 0}},
     false,
     cosine_restarts},
};
const int wf_n_schedule_rows = (int)(sizeof wf_schedule_rows / sizeof wf_schedule_rows[0]);

const struct wf_schedule_row *wf_schedule_find(const char *name)
{
    for (int i = 0; i < wf_n_schedule_rows; i++)
        if (!strcmp(wf_schedule_rows[i].name, name))
            return &wf_schedule_rows[i];
    return NULL;
}

int wf_schedule_attr_find(const struct wf_schedule_row *row, const char *name)
{
    for (int i = 0; i < row->n_attrs; i++)
        if (!strcmp(row->attrs[i].name, name))
            return i;
    return -1;
}

void wf_schedule_defaults(const struct wf_schedule_row *row, double *attrs)
{
    for (int i = 0; i < row->n_attrs; i++)
        attrs[i] = row->attrs[i].def;
}

static bool positive_finite(double x)
{
    return x > 0 && x < INFINITY;
}

/* Also as the f32 that a step uses. */
static bool is_rate(double x)
{
    return x >= 0 && x < 0x1.ffffffp127;
}

const char *wf_schedule_check(const struct wf_schedule_row *row, const double *attrs,
                              const double *list, int64_t n_list)
{
    for (int i = 0; i < row->n_attrs; i++) {
        const char *name = row->attrs[i].name;

        if (!isfinite(attrs[i]))
            return "a schedule's attributes must be finite";
        if (strstr(name, "decay_steps") && attrs[i] <= 0)
            return "decay_steps must be positive";
        if (strstr(name, "decay_steps") && attrs[i] < 1)
            return "decay_steps must be at least 1";
        if (strstr(name, "learning_rate") && !is_rate(attrs[i]))
            return "a learning rate must be finite and not negative";
        if (!strcmp(name, "warmup_target") && !is_rate(attrs[i]))
            return "warmup_target must be finite and not negative";
        if ((!strcmp(name, "alpha") || !strcmp(name, "m_mul")) && attrs[i] < 0)
            return "alpha and m_mul must not be negative";
        if ((!strcmp(name, "staircase") || !strcmp(name, "cycle")) && attrs[i] != 0 &&
            attrs[i] != 1)
            return "staircase and cycle must be 0 or 1";
        if (!strcmp(name, "warmup_steps") && attrs[i] < 0)
            return "warmup_steps must not be negative";
        if (!strcmp(name, "decay_rate") && attrs[i] < 0)
            return "decay_rate must not be negative";
        if (!strcmp(name, "t_mul") && attrs[i] < 1)
            return "t_mul must be at least 1";
        if (!strcmp(name, "t_mul") && attrs[i] != 1 && attrs[i] < 1.0001) /* periods are counted */
            return "t_mul must be 1, or at least 1.0001";
        if (strstr(name, "decay_steps") && attrs[i] < 1e-6)
            return "decay_steps must be at least 0.000001";
        if (!strcmp(name, "power") && !positive_finite(attrs[i]))
            return "power must be positive";
    }
    if (!row->takes_list)
        return n_list ? "this schedule takes no list" : NULL;
    if (n_list % 2 == 0)
        return "piecewise_constant takes n boundaries and n + 1 values";
    for (int64_t i = 0; i < n_list / 2; i++)
        if (!(list[i] >= 0 && list[i] < INFINITY))
            return "boundaries must be finite and not negative";
    for (int64_t i = 0; i + 1 < n_list / 2; i++)
        if (!(list[i] < list[i + 1]))
            return "boundaries must increase";
    for (int64_t i = n_list / 2; i < n_list; i++)
        if (!is_rate(list[i]))
            return "values must be finite and not negative";
    return NULL;
}

double wf_schedule_rate(const struct wf_schedule_row *row, const double *attrs, const double *list,
                        int64_t n_list, int64_t done)
{
    return row->rate(attrs, list, n_list, (double)done);
}
