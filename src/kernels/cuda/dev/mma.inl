/* mma.inl - products of 16 x 16 by 16 x 8 halves in the registers of a warp, for kernels whose
 * values are declared by KEEP. Included for each half type: H(name), H_BF16.
 *
 * With g = lane / 4 and c = lane % 4 * 2, thread `lane` of a warp has
 *   of a (16 x 16, 4 words of two halves): rows g, g + 8, g, g + 8 at columns c, c, c + 8, c + 8;
 *   of b (16 x 8, 2 words): rows c, c + 1 and c + 8, c + 9 of column g;
 *   of the sums (16 x 8, 4 floats): row g columns c, c + 1, then row g + 8. */

#ifdef __CUDACC__

DEV void H(mma)(float *s, const uint32_t *a, const uint32_t *b)
{
#if H_BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
#endif
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

DEV uint32_t H(pack)(float lo, float hi)
{
#if H_BF16
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
#else
    __half2 v = __floats2half2_rn(lo, hi);
#endif
    uint32_t w;

    memcpy(&w, &v, sizeof w);
    return w;
}

#else

DEV float H(half_of)(uint32_t w, int k)
{
    uint16_t h = (uint16_t)(w >> (16 * k));

    return H_BF16 ? bf16_get(&h, 0) : f16_get(&h, 0);
}

/* All warps of the block; steps from thread to thread in words. */
DEV void H(mma)(float *s, size_t s_step, const uint32_t *a, size_t a_step, const uint32_t *b,
                size_t b_step)
{
    for (int w = 0; w < gpu_at.nt / 32; w++) {
        float x[16][16], y[16][8];

        for (int t = 0; t < 32; t++) {
            const uint32_t *at = a + (size_t)(w * 32 + t) * a_step,
                           *bt = b + (size_t)(w * 32 + t) * b_step;

            for (int k = 0; k < 8; k++)
                x[t / 4 + k / 2 % 2 * 8][t % 4 * 2 + k % 2 + k / 4 * 8] =
                    H(half_of)(at[k / 2], k % 2);
            for (int k = 0; k < 4; k++)
                y[t % 4 * 2 + k % 2 + k / 2 * 8][t / 4] = H(half_of)(bt[k / 2], k % 2);
        }
        for (int t = 0; t < 32; t++)
            for (int k = 0; k < 4; k++) {
                float *to = s + (size_t)(w * 32 + t) * s_step + k;

                for (int i = 0; i < 16; i++)
                    *to += x[t / 4 + k / 2 * 8][i] * y[i][t % 4 * 2 + k % 2];
            }
    }
}

DEV uint32_t H(pack)(float lo, float hi)
{
    uint16_t h[2];

    for (int i = 0; i < 2; i++)
        if (H_BF16)
            bf16_put(h, i, i ? hi : lo);
        else
            f16_put(h, i, i ? hi : lo);
    return h[0] | (uint32_t)h[1] << 16;
}

#endif
