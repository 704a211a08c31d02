/* ulps.h - how far a float is from what it should be, and some functions in double to compare
 * with. */
#ifndef WEFT_TEST_ULPS_H
#define WEFT_TEST_ULPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float from_bits(uint32_t b)
{
    float x;

    memcpy(&x, &b, sizeof x);
    return x;
}

/* |got - want| in units of the last place of a float of want's size. */
static inline double ulps(float got, double want)
{
    int e;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(got) || isinf(want))
        return (double)got == want || (isinf(got) && fabs(want) > 0x1.fffffep127) ? 0 : INFINITY;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static inline double d_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static inline double d_softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

#endif
