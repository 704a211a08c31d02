/* real.inl - elements by the name of their precision, before every file that is included for
 * both. */
#include "kernels/cuda/dev/math.inl"

DEV float get_f(const void *p, int dtype, int64_t i)
{
    return get_f32(p, dtype, i);
}
DEV double get_d(const void *p, int dtype, int64_t i)
{
    return get_f64(p, dtype, i);
}
DEV void put_f(void *p, int dtype, int64_t i, float v)
{
    put_f32(p, dtype, i, v);
}
DEV void put_d(void *p, int dtype, int64_t i, double v)
{
    put_f64(p, dtype, i, v);
}
DEV float huge_f(void)
{
    return 1e30f * 1e30f;
}
DEV double huge_d(void)
{
    return 1e300 * 1e300;
}
