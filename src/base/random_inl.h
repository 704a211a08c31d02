/* random_inl.h - from random words to numbers, written once for scalars and vectors (see
 * fmath_inl.h, which comes before, with FM_FUSED 0: results are the same everywhere). */

/* The top 24 bits, 0 .. 2^24 - 1; exact as a float. */
FM_INLINE vi rnd_bits24(vi word)
{
    return vi_srl(word, 8);
}

FM_INLINE vf rnd_uniform(vi word)
{
    return vf_from_vi(rnd_bits24(word)) * vf_set1(0x1p-24f);
}

/* Box-Muller: *a = r cos(2 pi v), *b = r sin(2 pi v), r^2 = -2 log u with u in (0, 1]. The quarter
 * turn comes from the integer, so that the angle is exact except for one rounding. */
FM_INLINE void rnd_normal(vi word_u, vi word_v, vf *a, vf *b)
{
    vf u = vf_from_vi(rnd_bits24(word_u) + vi_set1(1)) * vf_set1(0x1p-24f);
    vf r = vf_sqrt(vf_set1(-2.0f) * vlog(u));
    vi k = rnd_bits24(word_v), q = vi_srl(k + vi_set1(1 << 21), 22);
    vf angle = vf_from_vi(k - vi_shl(q, 22)) * vf_set1(0x1.921fb6p+0f * 0x1p-22f); /* pi/2 */

    *a = r * fm_sin_poly(angle, q + vi_set1(1));
    *b = r * fm_sin_poly(angle, q);
}
