/* rtc.inl - how generated kernels (gen.c) read and write: V elements at a time, of any type of a
 * program. Compiled by NVRTC, which has no headers; and as C by the tests. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

#ifdef __CUDACC_RTC__

#define DEV static __device__ __forceinline__
DEV float bits_f(u32 x)
{
    return __uint_as_float(x);
}
DEV float of_bf16(u16 x)
{
    return __uint_as_float((u32)x << 16);
}
DEV u16 to_bf16(float x)
{
    u16 y;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEV float of_f16(u16 x)
{
    float y;

    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
DEV u16 to_f16(float x)
{
    u16 y;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
/* 16, 8 or fewer bytes, at a multiple of their number. */
DEV void move_bytes(void *to, const void *from, int n)
{
    if (n == 16)
        *(uint4 *)to = *(const uint4 *)from;
    else if (n == 8)
        *(uint2 *)to = *(const uint2 *)from;
    else if (n == 4)
        *(u32 *)to = *(const u32 *)from;
    else if (n == 2)
        *(u16 *)to = *(const u16 *)from;
    else
        *(u8 *)to = *(const u8 *)from;
}
#define ALIGNED __align__(16)
#define UNROLLED _Pragma("unroll")

#else

#include <math.h>
#include <string.h>
#define DEV static inline __attribute__((unused))
#define bool _Bool
DEV float bits_f(u32 x)
{
    float y;

    memcpy(&y, &x, 4);
    return y;
}
DEV float of_bf16(u16 x)
{
    return bits_f((u32)x << 16);
}
DEV u16 to_bf16(float x)
{
    u32 u;

    memcpy(&u, &x, 4);
    return x != x ? (u16)(u >> 16 | 64) : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
DEV float of_f16(u16 x)
{
    _Float16 y;

    memcpy(&y, &x, 2);
    return (float)y;
}
DEV u16 to_f16(float x)
{
    _Float16 y = (_Float16)x;
    u16 u;

    memcpy(&u, &y, 2);
    return u;
}
DEV void move_bytes(void *to, const void *from, int n)
{
    memcpy(to, from, (unsigned)n);
}
#define ALIGNED __attribute__((aligned(16)))
#define UNROLLED

#endif

/* V elements of `size` bytes at element `at`, which is a multiple of V. */
DEV void move_all(void *to, const void *from, int size)
{
    int n = V * size, step = n < 16 ? n : 16;

    UNROLLED
    for (int i = 0; i < n; i += step)
        move_bytes((u8 *)to + i, (const u8 *)from + i, step);
}

#define READS(name, type, convert)                       \
    DEV void get_##name(float *r, const void *p, i64 at) \
    {                                                    \
        ALIGNED type x[V];                               \
                                                         \
        move_all(x, (const type *)p + at, sizeof(type)); \
        UNROLLED                                         \
        for (int j = 0; j < V; j++)                      \
            r[j] = convert(x[j]);                        \
    }                                                    \
    DEV float one_##name(const void *p, i64 at)          \
    {                                                    \
        return convert(((const type *)p)[at]);           \
    }
#define WRITES(name, type, convert)                      \
    DEV void put_##name(void *p, i64 at, const float *r) \
    {                                                    \
        ALIGNED type x[V];                               \
                                                         \
        UNROLLED                                         \
        for (int j = 0; j < V; j++)                      \
            x[j] = convert(r[j]);                        \
        move_all((type *)p + at, x, sizeof(type));       \
    }
#define SAME(x) (x)
#define OF_BOOL(x) ((float)((x) != 0))
#define TO_BOOL(x) ((u8)((x) != 0))
READS(f32, float, SAME)
READS(bf16, u16, of_bf16)
READS(f16, u16, of_f16)
READS(bool, u8, OF_BOOL)
WRITES(f32, float, SAME)
WRITES(bf16, u16, to_bf16)
WRITES(f16, u16, to_f16)
WRITES(bool, u8, TO_BOOL)
