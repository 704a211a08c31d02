/* tile.inl - tiles of halves in shared memory, TILE_LD apart from row to row (so that the rows
 * of a fragment are in different banks), their fragments for mma.inl, and sums over the four
 * threads that share a row of a fragment. */

enum { TILE_D = 64, TILE_LD = 72 };

#ifdef __CUDACC__

#define MMA(s, si, a, ai, b, bi) H(mma)((s) + (si), (a) + (ai), (b) + (bi))
#define QUAD_MAX(v, i) ((v)[i] = quad_max((v)[i]))
#define QUAD_SUM(v, i) ((v)[i] = quad_sum((v)[i]))

DEV float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

DEV float quad_sum(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

DEV float exp2_near(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEV void tile_words(uint32_t *f, const uint16_t *at, bool turned)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(at);

    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(p)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(p)
                     : "memory");
}

/* a: rows [r, r + 16), columns [k, k + 16) of the tile. */
DEV void tile_a(const uint16_t *tile, int r, int k, int lane, uint32_t *f)
{
    tile_words(f, tile + (r + lane % 16) * TILE_LD + k + lane / 16 * 8, false);
}

/* Two b's of the turned tile: columns of b are its rows [n, n + 8) and [n + 8, n + 16), rows of b
 * its columns [k, k + 16). */
DEV void tile_b(const uint16_t *tile, int n, int k, int lane, uint32_t *f)
{
    tile_words(f, tile + (n + lane % 8 + lane / 16 * 8) * TILE_LD + k + lane / 8 % 2 * 8, false);
}

/* Two b's of the tile as it is: rows [k, k + 16), columns [n, n + 8) and [n + 8, n + 16). */
DEV void tile_bt(const uint16_t *tile, int k, int n, int lane, uint32_t *f)
{
    tile_words(f, tile + (k + lane % 16) * TILE_LD + n + lane / 16 * 8, true);
}

/* 8 halves into shared memory, zeros unless `there`; done when tiles_wait() returns. */
DEV void fetch8(uint16_t *to, const uint16_t *from, bool there)
{
    uint32_t p = (uint32_t)__cvta_generic_to_shared(to);

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(p), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

DEV void tiles_wait(void)
{
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
}

#else

#define MMA(s, si, a, ai, b, bi) \
    H(mma)(&s[0][si], sizeof s[0] / 4, &a[0][ai], sizeof a[0] / 4, &b[0][bi], sizeof b[0] / 4)
#define QUAD_MAX(v, i) quad_all(&v[0][i], sizeof v[0] / 4, true)
#define QUAD_SUM(v, i) quad_all(&v[0][i], sizeof v[0] / 4, false)

DEV void quad_all(float *v, size_t step, bool max)
{
    for (size_t q = 0; q < (size_t)gpu_at.nt; q += 4) {
        float *a = v + q * step, *b = a + step, *c = b + step, *d = c + step;
        float r = max ? fmaxf(fmaxf(*a, *b), fmaxf(*c, *d)) : (*a + *b) + (*c + *d);

        *a = *b = *c = *d = r;
    }
}

DEV float exp2_near(float x)
{
    return exp2f(x);
}

DEV uint32_t two(const uint16_t *at, int step)
{
    return at[0] | (uint32_t)at[step] << 16;
}

DEV void tile_a(const uint16_t *tile, int r, int k, int lane, uint32_t *f)
{
    for (int i = 0; i < 4; i++)
        f[i] = two(tile + (r + lane / 4 + i % 2 * 8) * TILE_LD + k + lane % 4 * 2 + i / 2 * 8, 1);
}

DEV void tile_b(const uint16_t *tile, int n, int k, int lane, uint32_t *f)
{
    for (int i = 0; i < 4; i++)
        f[i] = two(tile + (n + lane / 4 + i / 2 * 8) * TILE_LD + k + lane % 4 * 2 + i % 2 * 8, 1);
}

DEV void tile_bt(const uint16_t *tile, int k, int n, int lane, uint32_t *f)
{
    for (int i = 0; i < 4; i++)
        f[i] = two(tile + (k + lane % 4 * 2 + i % 2 * 8) * TILE_LD + n + lane / 4 + i / 2 * 8,
                   TILE_LD);
}

DEV void fetch8(uint16_t *to, const uint16_t *from, bool there)
{
    if (there)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}

DEV void tiles_wait(void) {}

#endif

/* Rows [first, first + n) of a view with `limit` rows of d <= TILE_D halves; what is not there is
 * zero. wide: rows are at multiples of 16 bytes, and d of 8. Complete after tiles_wait(). */
DEV void tile_load(uint16_t *tile, int n, const struct wfc_att_view *v, int64_t b, int64_t h,
                   int64_t first, int64_t limit, int d, bool wide, int t)
{
    const uint16_t *from = (const uint16_t *)v->data + v->at + b * v->sb + h * v->sh;

    for (int i = t; i < n * (TILE_D / 8); i += NT) {
        int r = i / (TILE_D / 8), c = i % (TILE_D / 8) * 8;
        const uint16_t *at = from + (first + r) * v->st + c;
        uint16_t *to = tile + r * TILE_LD + c;

        if (wide) {
            bool there = first + r < limit && c < d;

            fetch8(to, there ? at : from, there);
        } else {
            for (int k = 0; k < 8; k++)
                to[k] = first + r < limit && c + k < d ? at[k] : (uint16_t)0;
        }
    }
}
