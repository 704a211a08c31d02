/* tilings.c - whether products are divided as in another build: a hash over the plans of some
 * shapes. Sums depend on how K is divided, and that depends on the shape, the level and the
 * constants of the cost model. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/optim.h"
#include "kernels/kernels.h"

static uint64_t hash_plan(const struct wf_gemm_fns *fns, int64_t m, int64_t n, int64_t k, int trans,
                          int type, uint64_t h)
{
    struct wf_gemm_desc d = {.m = m,
                             .n = n,
                             .k = k,
                             .batch = 1,
                             .trans_a = trans == 1,
                             .trans_b = trans == 2,
                             .type_a = type,
                             .type_b = type,
                             .lda = trans == 1 ? m : k,
                             .ldb = trans == 2 ? k : n,
                             .ldc = n};
    struct wf_gemm g;
    size_t scratch;
    int64_t cut[4];

    wf_gemm_plan(&g, &d, fns, 1, &scratch);
    cut[0] = g.kc;
    cut[1] = g.chunk_k;
    cut[2] = g.n_chunks;
    cut[3] = g.swap;
    return wf_hash64(cut, sizeof cut, h);
}

/* Few rows and many, few columns and many, short and long K, at all levels; where the level
 * multiplies bf16 (in f32 it is the one below), in bf16: about 50 µs each. */
uint64_t wf_tilings_hash(void)
{
    static const int64_t shape[][3] = {{32, 10, 784},    {784, 128, 128},   {64, 9216, 128},
                                       {2048, 512, 429}, {256, 1024, 1024}, {512, 2048, 32}};
    uint64_t h = WF_NORM_BLOCK;

    for (int level = WEFT_SIMD_PORTABLE; level <= WEFT_SIMD_AVX512BF16; level++)
        for (int i = 0; i < WF_COUNT(shape); i++)
            h = hash_plan(wf_gemm_fns_of((weft_simd)level), shape[i][0], shape[i][1], shape[i][2],
                          i % 3, level == WEFT_SIMD_AVX512BF16 ? WF_GEMM_BF16 : WF_GEMM_F32, h);
    return h;
}
