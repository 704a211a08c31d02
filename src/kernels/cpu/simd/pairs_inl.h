/* pairs_inl.h - the parts of products whose operands are bf16, two of which follow each other along
 * K in the place of a float. Included by gemm_kernel.c, at the levels whose CPUs multiply them.
 *
 * A K that is odd ends with a pair of the last element and 0, in A and in B. */

/* Two rows of bf16, each pair from one column; the second may be missing. */
WF_SIMD_INLINE vi interleave(const uint16_t *p, const uint16_t *next, int64_t n)
{
    vi even = n == VF_N ? vi_load_u16(p) : vi_load_u16n(p, n);
    vi odd = !next ? vi_zero() : n == VF_N ? vi_load_u16(next) : vi_load_u16n(next, n);

    return even | vi_shl(odd, 16);
}

/* A few rows of a panel: k elements, n <= NR columns. */
WF_SIMD_INLINE void pack_pair_rows(float *dst, const uint16_t *src, int64_t ld, int64_t k,
                                   int64_t n)
{
    const int64_t n0 = n < VF_N ? n : VF_N, n1 = n - n0;

    for (int64_t p = 0; p < k; p += 2, dst += NR, src += 2 * ld) {
        const uint16_t *next = p + 1 < k ? src + ld : NULL;

        vf_store(dst, vf_bits(interleave(src, next, n0)));
        vf_store(dst + VF_N,
                 n1 ? vf_bits(interleave(src + VF_N, next ? next + VF_N : NULL, n1)) : vf_zero());
    }
}

/* Half a panel from rows of B's transpose: n <= VF_N columns. */
WF_SIMD_INLINE void pack_pair_cols(float *dst, const uint16_t *src, int64_t ld, int64_t k,
                                   int64_t n)
{
    for (int64_t p = 0; p < k; p += 2 * VF_N, dst += VF_N * NR) {
        const int64_t n_k = k - p < 2 * VF_N ? k - p : 2 * VF_N, n_pairs = (n_k + 1) / 2;
        vf r[VF_N];

        for (int i = 0; i < VF_N; i++)
            r[i] = i < n ? vf_bits(vi_load_pairsn(src + i * ld + p, n_k)) : vf_zero();
        transpose(r);
        for (int64_t i = 0; i < n_pairs; i++)
            vf_store(dst + i * NR, r[i]);
    }
}

static void pack_pairs_b(float *dst, int64_t ps, const void *from, int64_t ld, bool trans,
                         int64_t k, int64_t n)
{
    const uint16_t *src = from;

    if (!trans) {
        for (int64_t p = 0; p < k; p += 2 * PACK_ROWS)
            for (int64_t col = 0; col < n; col += NR)
                pack_pair_rows(dst + col / NR * ps + p / 2 * NR, src + p * ld + col, ld,
                               k - p < 2 * PACK_ROWS ? k - p : 2 * PACK_ROWS,
                               n - col < NR ? n - col : NR);
        return;
    }
    for (int64_t col = 0; col < n; col += NR, dst += ps) {
        int64_t n_cols = n - col < NR ? n - col : NR, n0 = n_cols < VF_N ? n_cols : VF_N;

        pack_pair_cols(dst, src + col * ld, ld, k, n0);
        pack_pair_cols(dst + VF_N, src + (col + n0) * ld, ld, k, n_cols - n0);
    }
}

/* As pack_a_typed: whole vectors are stored if the next pairs of the group overwrite the rest. */
static void pack_pairs_a(float *dst, const void *from, int64_t ld, int64_t k, int64_t m)
{
    const struct groups groups = cut_rows(m, MR);
    const int64_t n_pairs = (k + 1) / 2;
    const uint16_t *src = from;

    for (int64_t p0 = 0; p0 < n_pairs; p0 += PACK_ROWS) {
        int64_t end = n_pairs - p0 < PACK_ROWS ? n_pairs : p0 + PACK_ROWS, row = 0;

        for (int64_t g = 0; g < groups.n; g++) {
            int64_t rows = groups.rows + (g < groups.longer);
            float *to = dst + row * n_pairs + p0 * rows;

            for (int64_t p = p0; p < end; p++, to += rows) {
                const uint16_t *at = src + 2 * p * ld + row;
                vf x = vf_bits(interleave(at, 2 * p + 1 < k ? at + ld : NULL, rows));

                if ((n_pairs - p) * rows >= VF_N)
                    vf_store(to, x);
                else
                    vf_storen(to, x, rows);
            }
            row += rows;
        }
    }
}

static void copy_pairs_a(float *dst, int64_t dst_ld, const void *from, int64_t ld, int64_t k,
                         int64_t m)
{
    const uint16_t *src = from;

    for (int64_t i = 0; i < m; i++, src += ld, dst += dst_ld)
        for (int64_t p = 0; p < k; p += 2 * VF_N) {
            int64_t n = k - p < 2 * VF_N ? k - p : 2 * VF_N;

            ask(WF_GEMM_BF16, src, ld + p);
            vf_storen(dst + p / 2, vf_bits(vi_load_pairsn(src + p, n)), (n + 1) / 2);
        }
}

static void pair_col_sums(float *dst, const struct wf_gemm_block *p)
{
    for (int64_t col = 0; col < p->n; col += VF_N) {
        int64_t n = p->n - col < VF_N ? p->n - col : VF_N;
        const float *b = p->b + col / NR * p->b_ps + col % NR;
        vf s[4], sum;

        for (int i = 0; i < 4; i++)
            s[i] = vf_zero();
        for (int64_t row = 0; row < p->k; row++) {
            vi pair = vi_bits(vf_load(b + row * NR));
            int even = 2 * row & 3;

            s[even] = vf_add(s[even], vf_from_bf16(pair));
            s[even + 1] = vf_add(s[even + 1], vf_bits(pair & vi_set1(-65536)));
        }
        sum = vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3]));
        vf_storen(dst + col, p->accumulate ? vf_add(vf_loadn(dst + col, n), sum) : sum, n);
    }
}

static void pair_block(const struct wf_gemm_block *p)
{
    all_groups(pair_micros, p);
}

static const struct wf_gemm_pair_fns pair_fns = {
    .block = pair_block,
    .pack_b_part = pack_pairs_b,
    .pack_a = pack_pairs_a,
    .copy_a = copy_pairs_a,
    .col_sums = pair_col_sums,
};
