/* gpu.h - the dialect that device code is written in: it compiles as CUDA C++ (nvcc, NVRTC), and as
 * C11, where a block's threads are a loop. The tests run the same kernels on the host that way.
 *
 * A kernel takes one struct of arguments, `A`. Its body is a row of phases: what follows
 * EACH_THREAD(t) runs once for each thread t of the block, and a SYNC() stands between two phases
 * that share memory. Nothing that a thread keeps in a variable outlives its phase, except in
 * SHARED arrays and in what is declared by KEEP. Sums have a fixed order and nothing is added
 * atomically, so that a run repeats to the bit. Compiled without contraction of a * b + c; where
 * an FMA is wanted, it is written. */
#ifndef WF_CUDA_DEV_GPU_H
#define WF_CUDA_DEV_GPU_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define DEV static __device__ __forceinline__
/* The first thing in every kernel: a kernel may be launched while the previous one on the stream
 * still runs (device.c), and waits here until that is done and its writes are visible. From here on
 * the next one may be launched. */
DEV void gpu_begin(void)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#define KERNEL(name, args) KERNEL_(name, args)
#define KERNEL_(name, args)                                                \
    DEV void name##_body(const struct args *A);                            \
    extern "C" __global__ void name(const __grid_constant__ struct args a) \
    {                                                                      \
        gpu_begin();                                                       \
        name##_body(&a);                                                   \
    }                                                                      \
    DEV void name##_body(const struct args *A)
/* With at most `threads` threads a block, so that the compiler may use more registers; and few
 * enough of them for `blocks` blocks on a multiprocessor. */
#define KERNEL_OF(name, args, threads) KERNEL_OF_(name, args, threads, 1)
#define KERNEL_ON(name, args, threads, blocks) KERNEL_OF_(name, args, threads, blocks)
#define KERNEL_OF_(name, args, threads, blocks)                   \
    DEV void name##_body(const struct args *A);                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks) \
        name(const __grid_constant__ struct args a)               \
    {                                                             \
        gpu_begin();                                              \
        name##_body(&a);                                          \
    }                                                             \
    DEV void name##_body(const struct args *A)
#define SHARED __shared__
/* n halves at a multiple of 16 bytes, of the memory that the launch asks for (wfc_launch_with). */
#define DYNAMIC(name, n) extern __shared__ __align__(16) uint16_t name[]
#define UNROLL _Pragma("unroll 8")
#define UNROLL_ALL _Pragma("unroll") /* a constant number: arrays by its variable are registers */
#define UNROLL4 _Pragma("unroll 4")
/* n values of each thread that outlive a phase; KEPT(name, t) are those of thread t. */
#define KEEP(type, name, n) type name[n]
#define KEPT(name, t) (name)
#define ALIGN16 __align__(16)
#define EACH_THREAD(t) for (int t = (int)threadIdx.x, once_ = 1; once_; once_ = 0)
#define SYNC() __syncthreads()
#define BX ((int64_t)blockIdx.x)
#define BY ((int64_t)blockIdx.y)
#define GX ((int64_t)gridDim.x)
#define GY ((int64_t)gridDim.y)
#define NT ((int)blockDim.x)

DEV float f16_get(const void *p, int64_t i)
{
    return __half2float(((const __half *)p)[i]);
}
DEV float bf16_get(const void *p, int64_t i)
{
    return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}
DEV void f16_put(void *p, int64_t i, float v)
{
    ((__half *)p)[i] = __float2half_rn(v);
}
DEV void bf16_put(void *p, int64_t i, float v)
{
    ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(v);
}
/* A double rounded once to half precision. */
DEV void f16_put_double(void *p, int64_t i, double v)
{
    ((__half *)p)[i] = __double2half(v);
}

DEV bool claim(uint32_t *word, uint32_t value)
{
    return atomicCAS(word, 0, value) == 0;
}

/* Four floats at a multiple of 16 bytes. */
DEV void load4(float *v, const float *p)
{
    float4 x = *(const float4 *)p;

    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}
DEV void store4(float *p, const float *v)
{
    *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
}
DEV void move16(void *to, int64_t i, const void *from, int64_t j)
{
    ((uint4 *)to)[i] = ((const uint4 *)from)[j];
}

#else /* on the host: test/support/fake_cuda.c */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tensor/tensor.h"

struct gpu_place {
    int64_t bx, by, gx, gy;
    int nt;
};
static _Thread_local struct gpu_place gpu_at;

#define DEV static inline __attribute__((unused))
#define KERNEL(name, args) KERNEL_(name, args)
#define KERNEL_(name, args)                           \
    enum { name##_bytes = (int)sizeof(struct args) }; \
    static void name##_body(const struct args *A);    \
    static void name(const void *a)                   \
    {                                                 \
        name##_body((const struct args *)a);          \
    }                                                 \
    static void name##_body(const struct args *A)
#define KERNEL_OF(name, args, threads) KERNEL_(name, args)
#define KERNEL_ON(name, args, threads, blocks) KERNEL_(name, args)
#define SHARED static _Thread_local
#define DYNAMIC(name, n) static _Thread_local _Alignas(16) uint16_t name[n]
#define UNROLL
#define UNROLL_ALL
#define UNROLL4
#define KEEP(type, name, n) static _Thread_local type name[1024][n]
#define KEPT(name, t) (name[t])
#define ALIGN16 _Alignas(16)
#define EACH_THREAD(t) for (int t = 0; t < gpu_at.nt; t++)
#define SYNC() ((void)0)
#define BX gpu_at.bx
#define BY gpu_at.by
#define GX gpu_at.gx
#define GY gpu_at.gy
#define NT gpu_at.nt

DEV float f16_get(const void *p, int64_t i)
{
    return wf_f16_to_f32(((const uint16_t *)p)[i]);
}
DEV float bf16_get(const void *p, int64_t i)
{
    return wf_bf16_to_f32(((const uint16_t *)p)[i]);
}
DEV void f16_put(void *p, int64_t i, float v)
{
    ((uint16_t *)p)[i] = wf_f32_to_f16(v);
}
DEV void bf16_put(void *p, int64_t i, float v)
{
    ((uint16_t *)p)[i] = wf_f32_to_bf16(v);
}
DEV void f16_put_double(void *p, int64_t i, double v)
{
    wf_set(p, WEFT_F16, i, v);
}
DEV bool claim(uint32_t *word, uint32_t value)
{
    if (*word)
        return false;
    *word = value;
    return true;
}
DEV void load4(float *v, const float *p)
{
    memcpy(v, p, 16);
}
DEV void store4(float *p, const float *v)
{
    memcpy(p, v, 16);
}
DEV void move16(void *to, int64_t i, const void *from, int64_t j)
{
    memcpy((char *)to + 16 * i, (const char *)from + 16 * j, 16);
}

#endif

/* ---- elements of any dtype ------------------------------------------------------------------- */

DEV int64_t clamp_int(double v, double lo, double hi, int64_t least, int64_t most)
{
    return v != v ? 0 : v <= lo ? least : v >= hi ? most : (int64_t)v;
}

DEV int64_t get_int(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case WFC_I8: return ((const int8_t *)p)[i];
    case WFC_U8: return ((const uint8_t *)p)[i];
    case WFC_I32: return ((const int32_t *)p)[i];
    case WFC_I64: return ((const int64_t *)p)[i];
    default: return ((const uint8_t *)p)[i] != 0;
    }
}

DEV void put_int(void *p, int dtype, int64_t i, int64_t v)
{
    switch (dtype) {
    case WFC_I8: ((int8_t *)p)[i] = (int8_t)v; break;
    case WFC_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case WFC_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case WFC_I64: ((int64_t *)p)[i] = v; break;
    case WFC_BOOL: ((uint8_t *)p)[i] = v != 0; break;
    case WFC_F32: ((float *)p)[i] = (float)v; break;
    case WFC_F64: ((double *)p)[i] = (double)v; break;
    case WFC_F16: f16_put_double(p, i, (double)v); break;
    default: bf16_put(p, i, (float)v); break;
    }
}

DEV float get_f32(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case WFC_F32: return ((const float *)p)[i];
    case WFC_BF16: return bf16_get(p, i);
    case WFC_F16: return f16_get(p, i);
    case WFC_F64: return (float)((const double *)p)[i];
    default: return (float)get_int(p, dtype, i);
    }
}

DEV double get_f64(const void *p, int dtype, int64_t i)
{
    switch (dtype) {
    case WFC_F64: return ((const double *)p)[i];
    case WFC_F32: return ((const float *)p)[i];
    case WFC_BF16: return bf16_get(p, i);
    case WFC_F16: return f16_get(p, i);
    default: return (double)get_int(p, dtype, i);
    }
}

/* To integers: toward zero, saturating, NaN gives 0. */
DEV void put_rounded(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case WFC_I8: ((int8_t *)p)[i] = (int8_t)clamp_int(v, -128, 127, -128, 127); break;
    case WFC_U8: ((uint8_t *)p)[i] = (uint8_t)clamp_int(v, 0, 255, 0, 255); break;
    case WFC_I32:
        ((int32_t *)p)[i] =
            (int32_t)clamp_int(v, -2147483648.0, 2147483647.0, INT32_MIN, INT32_MAX);
        break;
    case WFC_I64:
        ((int64_t *)p)[i] =
            clamp_int(v, -9223372036854775808.0, 9223372036854775808.0, INT64_MIN, INT64_MAX);
        break;
    default: ((uint8_t *)p)[i] = v != 0; break;
    }
}

DEV void put_f32(void *p, int dtype, int64_t i, float v)
{
    switch (dtype) {
    case WFC_F32: ((float *)p)[i] = v; break;
    case WFC_BF16: bf16_put(p, i, v); break;
    case WFC_F16: f16_put(p, i, v); break;
    case WFC_F64: ((double *)p)[i] = v; break;
    default: put_rounded(p, dtype, i, v); break;
    }
}

DEV void put_f64(void *p, int dtype, int64_t i, double v)
{
    switch (dtype) {
    case WFC_F64: ((double *)p)[i] = v; break;
    case WFC_F32: ((float *)p)[i] = (float)v; break;
    case WFC_BF16: bf16_put(p, i, (float)v); break;
    case WFC_F16: f16_put_double(p, i, v); break;
    default: put_rounded(p, dtype, i, v); break;
    }
}

DEV bool is_float(int dtype)
{
    return dtype == WFC_F32 || dtype == WFC_F64 || dtype == WFC_F16 || dtype == WFC_BF16;
}

/* n bytes, 1, 2, 4, 8 or 16. */
DEV void move_elem(void *to, int64_t i, const void *from, int64_t j, int size)
{
    switch (size) {
    case 1: ((uint8_t *)to)[i] = ((const uint8_t *)from)[j]; break;
    case 2: ((uint16_t *)to)[i] = ((const uint16_t *)from)[j]; break;
    case 4: ((uint32_t *)to)[i] = ((const uint32_t *)from)[j]; break;
    case 16: move16(to, i, from, j); break;
    default: ((uint64_t *)to)[i] = ((const uint64_t *)from)[j]; break;
    }
}

/* ---- indices --------------------------------------------------------------------------------- */

/* The offset of linear index i in a box, innermost axis first. */
DEV int64_t box_at(const struct wfc_box *b, uint32_t i)
{
    int64_t at = 0;

    for (int k = 0; k < b->rank; k++) {
        uint32_t q = i / b->dim[k];

        at += (int64_t)(i - q * b->dim[k]) * b->stride[k];
        i = q;
    }
    return at;
}

/* Notes a fault unless there is one already. */
DEV void set_trouble(const struct wfc_fault *f, uint32_t code, int64_t position, int64_t value,
                     int64_t limit)
{
    if (!f->words || !claim(&f->words[WF_TROUBLE_CODE], code))
        return;
    f->words[WF_TROUBLE_INSTR] = f->instr;
    f->words[WF_TROUBLE_POSITION] = (uint32_t)position;
    f->words[WF_TROUBLE_POSITION + 1] = (uint32_t)((uint64_t)position >> 32);
    f->words[WF_TROUBLE_VALUE] = (uint32_t)value;
    f->words[WF_TROUBLE_VALUE + 1] = (uint32_t)((uint64_t)value >> 32);
    f->words[WF_TROUBLE_LIMIT] = (uint32_t)limit;
    f->words[WF_TROUBLE_LIMIT + 1] = (uint32_t)((uint64_t)limit >> 32);
}

DEV bool troubled(const struct wfc_fault *f)
{
    return f->words && f->words[WF_TROUBLE_CODE] != 0;
}

#endif
