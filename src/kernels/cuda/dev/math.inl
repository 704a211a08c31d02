/* math.inl - the functions of the C library by the name of their precision: exp_f, exp_d. Also part
 * of the source of generated kernels (gen.c). */
#define WFC_MATH1(fn)           \
    DEV float fn##_f(float x)   \
    {                           \
        return fn##f(x);        \
    }                           \
    DEV double fn##_d(double x) \
    {                           \
        return fn(x);           \
    }
#define WFC_MATH2(fn)                     \
    DEV float fn##_f(float x, float y)    \
    {                                     \
        return fn##f(x, y);               \
    }                                     \
    DEV double fn##_d(double x, double y) \
    {                                     \
        return fn(x, y);                  \
    }
WFC_MATH1(exp)
WFC_MATH1(expm1)
WFC_MATH1(log)
WFC_MATH1(log1p)
WFC_MATH1(sqrt)
WFC_MATH1(sin)
WFC_MATH1(cos)
WFC_MATH1(tan)
WFC_MATH1(erf)
WFC_MATH1(floor)
WFC_MATH1(ceil)
WFC_MATH1(rint)
WFC_MATH1(tanh)
WFC_MATH1(fabs)
WFC_MATH2(pow)
WFC_MATH2(fmod)
WFC_MATH2(copysign)
#undef WFC_MATH1
#undef WFC_MATH2
