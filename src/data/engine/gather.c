/* gather.c - gathers rows scattered in memory into a batch. */
#include "data/data.h"

#define TILE ((int64_t)16 << 10) /* bytes */
#define AHEAD 8                  /* rows that are prefetched */

struct tiles {
    const struct wf_gather *g;
    int64_t rows; /* per tile */
};

static void gather_tile(void *arg, int64_t tile, int thread)
{
    const struct tiles *t = arg;
    const struct wf_gather *g = t->g;
    const int64_t end = wf_min_i64(g->n, (tile + 1) * t->rows);

    (void)thread;
    for (int64_t i = tile * t->rows; i < end; i++) {
        const char *from = g->base + g->at[i].id * g->row;

        if (i + AHEAD < end && g->row <= 4096)
            for (int64_t b = 0; b < g->row; b += 64)
                __builtin_prefetch(g->base + g->at[i + AHEAD].id * g->row + b);
        if (g->convert)
            g->convert(g->how, from, g->to + i * g->out);
        else
            memcpy(g->to + i * g->out, from, (size_t)g->row);
    }
}

void wf_rows_gather(const struct wf_env *env, const struct wf_gather *g)
{
    struct tiles t = {g, wf_max_i64(TILE / wf_max_i64(g->row, 1), 1)};

    bool alone = !wf_crew_size(env->crew) && !env->no_pool;

    /* If the consumer does all work, the pool's threads have nothing else to do than this batch. */
    wf_pool_for(alone ? env->ctx->pool : NULL, (g->n + t.rows - 1) / t.rows, gather_tile, &t);
}
