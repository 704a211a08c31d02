/* fmath.h - elementary functions with identical results on every machine.
 *
 * Plain C over IEEE operations, nothing from libm. Errors are at most 2.5 ulp (normcdf 3.5 above
 * -1.5, 2^-17 below); special values follow C's <math.h>; denormals are kept. The portable SIMD
 * kernels give identical results. */
#ifndef WF_BASE_FMATH_H
#define WF_BASE_FMATH_H

#include <stdint.h>

float wf_expf(float x);
float wf_expm1f(float x);
float wf_logf(float x);
float wf_log1pf(float x);
float wf_tanhf(float x);
float wf_sigmoidf(float x);  /* 1 / (1 + exp(-x)) */
float wf_softplusf(float x); /* log(1 + exp(x)) */
float wf_erff(float x);
float wf_normcdff(float x); /* (1 + erf(x / sqrt 2)) / 2 */
float wf_sinf(float x);
float wf_cosf(float x);
float wf_powf(float x, float y);

/* The remainder of x / y with the sign of x, exact, as C's fmodf; and with the sign of y, as
 * Python's and NumPy's %. */
float wf_fmodf(float x, float y);
float wf_floormodf(float x, float y);

/* x = q pi/2 + r with |r| <= pi/4, for any finite x; *q is modulo 4. NaN otherwise. */
float wf_rem_pio2f(float x, int32_t *q);

#endif
