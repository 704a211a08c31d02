/* all.inl - the kernels in the order in which they need each other; included by kernels.cu for the
 * GPU, and by the tests for the host. */
#include "base/philox.h"
#include "base/random.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/dev/gpu.h"

#define FM_INLINE DEV
#define FM_SMALL_ANGLES /* no reduction of large angles: random numbers need none */
#include "base/fmath_scalar.h"
DEV vf vf_sqrt(vf x)
{
    return sqrtf(x);
}
#define vi_srl(x, k) ((vi)((uint32_t)(x) >> (k)))
#include "base/random_inl.h"

#include "kernels/cuda/dev/real.inl"

/* windows come before both.inl, which uses them */
#include "kernels/cuda/dev/window.inl"

#define REAL float
#define R(name) name##_f
#include "kernels/cuda/dev/ew_fn.inl"
#include "kernels/cuda/dev/both.inl"
#include "kernels/cuda/dev/seq.inl"
#undef REAL
#undef R
#define REAL double
#define R(name) name##_d
#include "kernels/cuda/dev/ew_fn.inl"
#include "kernels/cuda/dev/both.inl"
#include "kernels/cuda/dev/seq.inl"
#undef REAL
#undef R

#include "kernels/cuda/dev/common.inl"
#include "kernels/cuda/dev/lstm.inl"

#include "kernels/cuda/dev/tile.inl"
#include "kernels/cuda/dev/att32.inl"
#define H(name) name##_bf16
#define H_BF16 1
#include "kernels/cuda/dev/mma.inl"
#include "kernels/cuda/dev/flash.inl"
#undef H
#undef H_BF16
#define H(name) name##_f16
#define H_BF16 0
#include "kernels/cuda/dev/mma.inl"
#include "kernels/cuda/dev/flash.inl"
#undef H
#undef H_BF16

#include "kernels/cuda/dev/wide.inl"
#include "kernels/cuda/dev/pool.inl"
#include "kernels/cuda/dev/rows.inl"
