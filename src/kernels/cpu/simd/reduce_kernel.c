/* reduce_kernel.c - reductions of one piece, at one SIMD level. */
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rowops.h"
#include "kernels/cpu/simd/cols_inl.h"
#include "kernels/cpu/simd/math_inl.h"
#include "kernels/cpu/simd/trans_inl.h"

/* ---- terms and joins --------------------------------------------------------------------- */

typedef vf map_fn(vf x);

WF_SIMD_INLINE vf map_same(vf x)
{
    return x;
}
WF_SIMD_INLINE vf map_square(vf x)
{
    return x * x;
}
WF_SIMD_INLINE vf map_abs(vf x)
{
    return vf_abs(x);
}
WF_SIMD_INLINE vf join_max(vf a, vf b)
{
    return vf_max(a, b);
}
WF_SIMD_INLINE vf join_min(vf a, vf b)
{
    return vf_min(a, b);
}
WF_SIMD_INLINE vf join_mul(vf a, vf b)
{
    return a * b;
}

WF_SIMD_INLINE float fold_mul(vf x)
{
    float lane[VF_N];

    vf_store(lane, x);
    for (int half = VF_N / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] *= lane[i + half];
    return lane[0];
}

/* DO(map, join, fold, neutral) for the op at hand; fold joins the lanes of a vector. */
#define EACH_OP(op, DO)                                                            \
    switch (op) {                                                                  \
    case WF_REDUCE_MAX: DO(map_same, join_max, vf_hmax, -__builtin_inff()); break; \
    case WF_REDUCE_MIN: DO(map_same, join_min, vf_hmin, __builtin_inff()); break;  \
    case WF_REDUCE_PROD: DO(map_same, join_mul, fold_mul, 1.0f); break;            \
    case WF_REDUCE_SUMSQ:                                                          \
    case WF_REDUCE_L2: DO(map_square, wf_join_add, vf_hsum, 0.0f); break;          \
    case WF_REDUCE_L1: DO(map_abs, wf_join_add, vf_hsum, 0.0f); break;             \
    default: DO(map_same, wf_join_add, vf_hsum, 0.0f); break;                      \
    }

/* ---- runs and narrow rows ---------------------------------------------------------------- */

typedef float fold_fn(vf x);

WF_SIMD_INLINE float run_with(map_fn *map, wf_join_fn *join, fold_fn *fold, float neutral,
                              int64_t n, const float *x)
{
    vf a = vf_set1(neutral), b = a, c = a, d = a;
    int64_t i = 0;

    for (; i + 4 * VF_N <= n; i += 4 * VF_N) {
        a = join(a, map(vf_load(x + i)));
        b = join(b, map(vf_load(x + i + VF_N)));
        c = join(c, map(vf_load(x + i + 2 * VF_N)));
        d = join(d, map(vf_load(x + i + 3 * VF_N)));
    }
    for (; i + VF_N <= n; i += VF_N)
        a = join(a, map(vf_load(x + i)));
    if (i < n)
        b = join(b, vf_select(vm_first(n - i), map(vf_loadn(x + i, n - i)), vf_set1(neutral)));
    return fold(join(join(a, b), join(c, d)));
}

static float run(enum wf_reduce_op op, int64_t n, const float *x)
{
    float result;

#define DO(map, join, fold, neutral) result = run_with(map, join, fold, neutral, n, x)
    EACH_OP(op, DO)
#undef DO
    return result;
}

WF_SIMD_INLINE void narrow_with(map_fn *map, wf_join_fn *join, int64_t n_rows, int64_t n,
                                const float *x, float *out)
{
    vf col[WF_NARROW];

    for (int64_t r = 0; r < n_rows; r += VF_N) {
        int64_t here = n_rows - r < VF_N ? n_rows - r : VF_N;
        vf a;

        wf_narrow_load(col, here, n, x + r * n);
        a = map(col[0]);
        for (int64_t c = 1; c < n; c++)
            a = join(a, map(col[c]));
        vf_store_to(out + r, a, here);
    }
}

static void narrow_rows(enum wf_reduce_op op, int64_t n_rows, int64_t n, const float *x,
                        float *out){
#define DO(map, join, fold, neutral) narrow_with(map, join, n_rows, n, x, out)
    EACH_OP(op, DO)
#undef DO
}

/* ---- columns ----------------------------------------------------------------------------- */

#define TERM(map)                                                                      \
    WF_SIMD_INLINE vf term_##map(const void *arg, int64_t at, int64_t c, int64_t left) \
    {                                                                                  \
        (void)c;                                                                       \
        return map(vf_load_to((const float *)arg + at, left));                         \
    }
TERM(map_same) TERM(map_square) TERM(map_abs)

    static void cols(enum wf_reduce_op op, int64_t n_rows, int64_t n_cols, int64_t ld,
                     const float *x, float *out)
{
#define DO(map, join, fold, neutral) wf_cols_fold(term_##map, join, x, n_rows, n_cols, ld, out)
    EACH_OP(op, DO)
#undef DO
}

/* Two parts joined in f64. */
static double join_one(enum wf_reduce_op op, double a, double b)
{
    if (op == WF_REDUCE_MAX)
        return a != a || a > b ? a : b;
    if (op == WF_REDUCE_MIN)
        return a != a || a < b ? a : b;
    return op == WF_REDUCE_PROD ? a * b : a + b;
}

static void join_parts(enum wf_reduce_op op, int64_t n_parts, int64_t stride, int64_t n_cols,
                       const float *parts, float *out)
{
    enum { CHUNK = 64 };

    for (int64_t c = 0; c < n_cols; c += CHUNK) {
        int64_t w = n_cols - c < CHUNK ? n_cols - c : CHUNK;
        int adds = op != WF_REDUCE_MAX && op != WF_REDUCE_MIN && op != WF_REDUCE_PROD;
        double acc[CHUNK];

        for (int64_t j = 0; j < w; j++)
            acc[j] = parts[c + j];
        for (int64_t i = 1; i < n_parts; i++) {
            const float *p = parts + i * stride + c;

            if (adds)
                for (int64_t j = 0; j < w; j++)
                    acc[j] += p[j];
            else
                for (int64_t j = 0; j < w; j++)
                    acc[j] = join_one(op, acc[j], p[j]);
        }
        for (int64_t j = 0; j < w; j++)
            out[c + j] = (float)acc[j];
    }
}

static void logsumexp_cols(int64_t n_rows, int64_t n_cols, int64_t ld, const float *x, float *out)
{
    for (int64_t c = 0; c < n_cols; c += VF_N) {
        int64_t left = n_cols - c;
        vf max = vf_load_to(x + c, left), sum = vf_zero(), base;

        for (int64_t r = 1; r < n_rows; r++)
            max = vf_max(max, vf_load_to(x + r * ld + c, left));
        /* An infinite maximum is the result, unless there is a NaN, which is then the maximum. */
        base = vf_select(vm_lt(vf_abs(max), vf_set1(__builtin_inff())), max, vf_zero());
        for (int64_t r = 0; r < n_rows; r++)
            sum = sum + vexp_neg(vf_load_to(x + r * ld + c, left) - base);
        vf_store_to(out + c,
                    vf_select(vm_lt(vf_abs(max), vf_set1(__builtin_inff())), max + vlog(sum), max),
                    left);
    }
}

/* ---- index of the largest or smallest ---------------------------------------------------- */

struct best {
    vf value;
    vi index;
};

/* Takes x if it is better, or the first NaN. */
WF_SIMD_INLINE void best_take(bool min, struct best *b, vf x, vi index)
{
    vm better = min ? vm_lt(x, b->value) : vm_gt(x, b->value);

    better = vm_or(better, vm_and(vm_isnan(x), vm_not(vm_isnan(b->value))));
    b->value = vf_select(better, x, b->value);
    b->index = vi_select(better, index, b->index);
}

WF_SIMD_INLINE void put_index(bool wide, void *out, int64_t at, int32_t index)
{
    if (wide)
        ((int64_t *)out)[at] = index;
    else
        ((int32_t *)out)[at] = index;
}

WF_SIMD_INLINE void put_indices(bool wide, void *out, int64_t at, vi index, int64_t left)
{
    int32_t i[VF_N];

    vi_store(i, index);
    for (int64_t j = 0; j < VF_N && j < left; j++)
        put_index(wide, out, at + j, i[j]);
}

enum { N_BEST = 4 }; /* used in turn: a single one would wait for its own result */

/* The smallest index among the best of all lanes, each of which started with a different
 * element. */
static int32_t best_lane(bool min, const struct best *b)
{
    float value[N_BEST * VF_N];
    int32_t index[N_BEST * VF_N];
    int k = 0;

    for (int i = 0; i < N_BEST; i++) {
        vf_store(value + i * VF_N, b[i].value);
        vi_store(index + i * VF_N, b[i].index);
    }
    for (int i = 1; i < N_BEST * VF_N; i++) {
        bool better = min ? value[i] < value[k] : value[i] > value[k];
        bool nan = value[i] != value[i], had_nan = value[k] != value[k];

        if (nan || had_nan)
            better = nan && (!had_nan || index[i] < index[k]);
        else if (value[i] == value[k])
            better = index[i] < index[k];
        if (better)
            k = i;
    }
    return index[k];
}

/* n > VF_N. If a row has no more elements, the first ones are used again: they change nothing. */
WF_SIMD_INLINE int32_t arg_row(bool min, int64_t n, const float *x)
{
    struct best b[N_BEST];
    vi iota = vi_iota();
    int64_t i = 0;

    for (int j = 0; j < N_BEST; j++) {
        int64_t at = (j + 1) * VF_N <= n ? j * VF_N : 0;

        b[j] = (struct best){vf_load(x + at), iota + vi_set1((int32_t)at)};
    }
    for (; i + N_BEST * VF_N <= n; i += N_BEST * VF_N)
        for (int j = 0; j < N_BEST; j++)
            best_take(min, &b[j], vf_load(x + i + j * VF_N),
                      iota + vi_set1((int32_t)(i + j * VF_N)));
    for (; i + VF_N <= n; i += VF_N)
        best_take(min, &b[0], vf_load(x + i), iota + vi_set1((int32_t)i));
    if (i < n) {
        vf tail = vf_select(vm_first(n - i), vf_loadn(x + i, n - i), b[0].value);

        best_take(min, &b[0], tail, iota + vi_set1((int32_t)i));
    }
    return best_lane(min, b);
}

WF_SIMD_INLINE void arg_narrow(bool min, int64_t n_rows, int64_t n, const float *x, bool wide,
                               void *out)
{
    vf col[WF_NARROW];

    for (int64_t r = 0; r < n_rows; r += VF_N) {
        int64_t here = n_rows - r < VF_N ? n_rows - r : VF_N;
        struct best b;

        wf_narrow_load(col, here, n, x + r * n);
        b = (struct best){col[0], vi_zero()};
        for (int64_t c = 1; c < n; c++)
            best_take(min, &b, col[c], vi_set1((int32_t)c));
        put_indices(wide, out, r, b.index, here);
    }
}

static void arg_rows(bool min, int64_t n_rows, int64_t n, const float *x, bool wide, void *out)
{
    if (n <= WF_NARROW) {
        if (min)
            arg_narrow(true, n_rows, n, x, wide, out);
        else
            arg_narrow(false, n_rows, n, x, wide, out);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++)
        put_index(wide, out, r, min ? arg_row(true, n, x + r * n) : arg_row(false, n, x + r * n));
}

static void arg_cols(bool min, int64_t n_rows, int64_t n_cols, int64_t ld, const float *x,
                     bool wide, void *out)
{
    for (int64_t c = 0; c < n_cols; c += VF_N) {
        struct best b = {vf_load_to(x + c, n_cols - c), vi_zero()};

        for (int64_t r = 1; r < n_rows; r++)
            best_take(min, &b, vf_load_to(x + r * ld + c, n_cols - c), vi_set1((int32_t)r));
        put_indices(wide, out, c, b.index, n_cols - c);
    }
}

/* ---- running sums, booleans -------------------------------------------------------------- */

static void cumsum_cols(bool exclusive, bool reverse, int64_t n_rows, int64_t n_cols, int64_t ld,
                        const float *x, float *y)
{
    int64_t first = reverse ? (n_rows - 1) * ld : 0, step = reverse ? -ld : ld;

    if (n_cols == 1) {
        float sum = 0.0f;

        for (int64_t r = 0, at = first; r < n_rows; r++, at += step) {
            float next = sum + x[at];

            y[at] = exclusive ? sum : next;
            sum = next;
        }
        return;
    }
    for (int64_t c = 0; c < n_cols; c += VF_N) {
        int64_t left = n_cols - c, at = first + c;
        vf sum = vf_zero();

        for (int64_t r = 0; r < n_rows; r++, at += step) {
            vf next = sum + vf_load_to(x + at, left);

            vf_store_to(y + at, exclusive ? sum : next, left);
            sum = next;
        }
    }
}

static void any_all(bool all, int64_t n_rows, int64_t n_cols, const uint8_t *x, uint8_t *out)
{
    if (n_cols == 1) {
        int64_t n_true = 0;

        for (int64_t r = 0; r < n_rows; r++)
            n_true += x[r] != 0;
        *out = all ? n_true == n_rows : n_true > 0;
        return;
    }
    memset(out, all, (size_t)n_cols);
    for (int64_t r = 0; r < n_rows; r++, x += n_cols)
        for (int64_t c = 0; c < n_cols; c++)
            out[c] = (uint8_t)(all ? out[c] & (x[c] != 0) : out[c] | (x[c] != 0));
}

extern const struct wf_row_fns WF_LEVELED(wf_row_fns);

static void logsumexp_rows(int64_t n_rows, int64_t n, const float *x, float *out)
{
    WF_LEVELED(wf_row_fns).logsumexp(n_rows, n, x, out);
}

const struct wf_reduce_fns WF_LEVELED(wf_reduce_fns) = {
    .vector = VF_N,
    .run = run,
    .narrow_rows = narrow_rows,
    .cols = cols,
    .join = join_parts,
    .logsumexp_rows = logsumexp_rows,
    .logsumexp_cols = logsumexp_cols,
    .arg_rows = arg_rows,
    .arg_cols = arg_cols,
    .cumsum_cols = cumsum_cols,
    .any_all = any_all,
};
