/* sort.c - sorting and the k largest.
 *
 * A value and its index make one 64-bit key, the value's bits above in an order that integers know:
 * keys differ always, so any sort of them is stable. */
#include "kernels/cpu/move.h"

/* ---- keys -------------------------------------------------------------------------------- */

static const uint32_t LAST = UINT32_MAX; /* above every number: NaN */

/* Bits that compare as the values do. NaN comes last in either direction. */
static uint32_t key_of(enum wf_sort_type type, bool descending, uint32_t bits)
{
    uint32_t key;

    if (type == WF_SORT_I32) {
        key = bits ^ 0x80000000u;
        return descending ? ~key : key;
    }
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return LAST;
    if (bits == 0x80000000u)
        bits = 0; /* -0 equals 0 */
    key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return descending ? ~key : key;
}

/* ---- sorting keys ------------------------------------------------------------------------ */

enum { SMALL = 48, DIGITS = 256 };

static void sort_small(uint64_t *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t k = key[i];
        int64_t j = i;

        for (; j > 0 && key[j - 1] > k; j--)
            key[j] = key[j - 1];
        key[j] = k;
    }
}

/* By the bytes of the value, lowest first; a byte that is the same everywhere is skipped. The
 * result is in `key` or in `other`, which is returned. */
static uint64_t *sort_keys(uint64_t *key, uint64_t *other, int64_t n)
{
    int64_t count[4][DIGITS];

    if (n <= SMALL) {
        sort_small(key, n);
        return key;
    }
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 4; d++)
            count[d][key[i] >> (32 + 8 * d) & 255]++;
    for (int d = 0; d < 4; d++) {
        int shift = 32 + 8 * d;
        int64_t at = 0;
        uint64_t *t;

        if (count[d][key[0] >> shift & 255] == n)
            continue;
        for (int i = 0; i < DIGITS; i++) {
            int64_t here = count[d][i];

            count[d][i] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++)
            other[count[d][key[i] >> shift & 255]++] = key[i];
        t = key;
        key = other;
        other = t;
    }
    return key;
}

/* ---- rows -------------------------------------------------------------------------------- */

struct sort_job {
    enum wf_sort_type type;
    bool descending, wide;
    int64_t n_outer, n, n_inner, n_out, per_tile;
    const uint32_t *x;
    uint32_t *values;
    void *indices;
    char *scratch;
};

int64_t wf_sort_scratch(int64_t n)
{
    return 2 * n * (int64_t)sizeof(uint64_t);
}

static void put(const struct sort_job *j, const uint32_t *x, int64_t to, uint64_t key)
{
    int64_t index = (int64_t)(key & UINT32_MAX);

    if (j->values)
        j->values[to] = x[index * j->n_inner];
    if (j->indices && j->wide)
        ((int64_t *)j->indices)[to] = index;
    else if (j->indices)
        ((int32_t *)j->indices)[to] = (int32_t)index;
}

static uint64_t key_at(const struct sort_job *j, const uint32_t *x, int64_t i)
{
    return (uint64_t)key_of(j->type, j->descending, x[i * j->n_inner]) << 32 | (uint64_t)i;
}

static void sort_row(const struct sort_job *j, int64_t row, int thread)
{
    int64_t n = j->n, outer = row / j->n_inner, column = row % j->n_inner;
    uint64_t *key = (uint64_t *)(void *)(j->scratch + thread * wf_sort_scratch(n)), *sorted;
    const uint32_t *x = j->x + outer * n * j->n_inner + column;

    for (int64_t i = 0; i < n; i++)
        key[i] = key_at(j, x, i);
    sorted = sort_keys(key, key + n, n);
    for (int64_t i = 0; i < j->n_out; i++)
        put(j, x, (outer * j->n_out + i) * j->n_inner + column, sorted[i]);
}

/* The k smallest keys, kept in order while the row goes by: for small k. */
static void select_row(const struct sort_job *j, int64_t row, int thread)
{
    int64_t n = j->n, k = j->n_out;
    uint64_t *best = (uint64_t *)(void *)(j->scratch + thread * wf_sort_scratch(n));
    const uint32_t *x = j->x + row * n;

    for (int64_t i = 0; i < k; i++)
        best[i] = key_at(j, x, i);
    sort_small(best, k);
    for (int64_t i = k; i < n; i++) {
        uint64_t key = key_at(j, x, i);
        int64_t at = k - 1;

        if (key > best[at])
            continue;
        for (; at > 0 && best[at - 1] > key; at--)
            best[at] = best[at - 1];
        best[at] = key;
    }
    for (int64_t i = 0; i < k; i++)
        put(j, x, row * k + i, best[i]);
}

enum { TILE_ELEMENTS = 4096, SELECT_AT_MOST = 32 };

static void sort_tile(void *arg, int64_t tile, int thread)
{
    const struct sort_job *j = arg;
    int64_t end = wf_min_i64((tile + 1) * j->per_tile, j->n_outer * j->n_inner);
    bool few = j->n_inner == 1 && j->n_out <= SELECT_AT_MOST && j->n_out * 4 <= j->n;

    for (int64_t row = tile * j->per_tile; row < end; row++) {
        if (few)
            select_row(j, row, thread);
        else
            sort_row(j, row, thread);
    }
}

static void wf_run_sort(struct sort_job *j, struct wf_pool *pool)
{
    int64_t rows = j->n_outer * j->n_inner;

    if (!j->n || !j->n_out)
        return;
    j->per_tile = wf_max_i64(1, TILE_ELEMENTS / j->n);
    wf_pool_for(pool, (rows + j->per_tile - 1) / j->per_tile, sort_tile, j);
}

void wf_sort(struct wf_pool *pool, enum wf_sort_type type, bool descending, int64_t n_outer,
             int64_t n, int64_t n_inner, const void *x, void *values, bool wide, void *indices,
             void *scratch)
{
    struct sort_job j = {.type = type,
                         .descending = descending,
                         .wide = wide,
                         .n_outer = n_outer,
                         .n = n,
                         .n_inner = n_inner,
                         .n_out = n,
                         .x = x,
                         .values = values,
                         .indices = indices,
                         .scratch = scratch};

    wf_run_sort(&j, pool);
}

void wf_top_k(struct wf_pool *pool, enum wf_sort_type type, int64_t n_rows, int64_t n, int64_t k,
              const void *x, void *values, bool wide, void *indices, void *scratch)
{
    struct sort_job j = {.type = type,
                         .descending = true,
                         .wide = wide,
                         .n_outer = n_rows,
                         .n = n,
                         .n_inner = 1,
                         .n_out = k,
                         .x = x,
                         .values = values,
                         .indices = indices,
                         .scratch = scratch};

    wf_run_sort(&j, pool);
}
