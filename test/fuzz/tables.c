/* tables.c - bytes about rows of tables from a stranger: a push, a request, an answer to one, a
 * copy of a block. They are refused, or taken and used: the copy is read, updated and written
 * again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ps/lookup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 3, BLOCKS = 2 };

struct world {
    weft_ctx *ctx;
    struct wf_var var[2];
    struct wf_rules rules;
    struct wf_cut *cut;
    struct wf_tables_opts o;
    struct wf_tables *tables;
    struct wf_merge *merge;
};

static void open_world(struct world *w)
{
    struct wf_piece all[2];

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &w->ctx))
        abort();
    for (int v = 0; v < 2; v++) {
        w->var[v] = (struct wf_var){.name = v ? "items" : "users",
                                    .rank = 2,
                                    .dim = {20000, WIDTH},
                                    .count = 20000 * WIDTH,
                                    .table = true,
                                    .init = {"constant", 0.5, 0, "t", 9}};
        all[v] = (struct wf_piece){v, 0, w->var[v].count, 0};
    }
    w->var[1].evict = (struct wf_evict){.every = 2, .unused = 3, .min_count = 4};
    w->rules = (struct wf_rules){
        .optim = wf_optim_find("adam"), .n_vars = 2, .var = w->var, .n_groups = 1, .n_sums = 2};
    wf_optim_defaults(w->rules.optim, w->rules.attrs);
    if (wf_cut_new(w->ctx, &w->rules, 1 << 18, &w->cut))
        abort();
    w->o = (struct wf_tables_opts){&w->rules, w->cut, BLOCKS};
    if (wf_merge_new(w->ctx, w->ctx->pool, &w->rules, 2, all, &w->merge) ||
        wf_tables_new(w->ctx, &w->o, w->cut->first_table, &w->tables))
        abort();
}

static void close_world(struct world *w)
{
    wf_tables_free(w->tables);
    wf_merge_free(w->merge);
    wf_cut_free(w->cut);
    weft_ctx_free(w->ctx);
}

/* What was pushed is applied, and what it holds is written and taken again. */
static void step(struct world *w, struct wf_contribution *c, int64_t t)
{
    float scale[2] = {1, 1};
    struct wf_payload copy = {.p = NULL};

    if (!wf_tables_apply(w->tables, w->merge, c, &(struct wf_step){.iteration = t + 1}, scale, -1,
                         t) &&
        !wf_tables_dump(w->tables, 0, t + 1, true, &copy))
        (void)wf_tables_take(w->tables, 0, copy.p, copy.n);
    wf_free(w->ctx, copy.p);
}

static void push(struct world *w, const char *p, int64_t n)
{
    struct wf_contribution *c;

    if (wf_contribution_new(w->ctx, &w->rules, &c))
        abort();
    for (int64_t t = 0; t < 5; t++) { /* then rows are forgotten */
        if (t == 0 ? wf_tables_read(&w->o, w->cut->first_table, 1, p, n, c) != WEFT_OK : false)
            break;
        step(w, c, t);
        wf_contribution_clear(c);
    }
    wf_contribution_free(c);
}

static void answer(struct world *w, const char *p, int64_t n)
{
    static const int64_t ids[3] = {4, 9, 2};
    const struct wf_payload *body;
    struct wf_lookup *l;
    float rows[3 * WIDTH];

    if (wf_lookup_new(w->ctx, &w->o, 0, &l))
        abort();
    if (!wf_lookup_want(l, 5, 0, 3, ids) && !wf_lookup_request(l, &body) &&
        !wf_lookup_take(l, 0, 5, p, n))
        (void)wf_lookup_copy(l, 5, 0, 3, ids, rows);
    wf_lookup_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {.ctx = NULL};
    struct wf_payload out = {.p = NULL};
    int64_t n = (int64_t)size - 1;
    char *p = malloc(size + 1); /* aligned, and no longer than it is */

    if (!p)
        abort();
    if (n >= 0) {
        memcpy(p, data + 1, (size_t)n);
        open_world(&w);
        switch (data[0] % 4) {
        case 0: push(&w, p, n); break;
        case 1: (void)wf_tables_answer(w.tables, 3, p, n, &out); break;
        case 2: answer(&w, p, n); break;
        default:
            if (!wf_tables_take(w.tables, 0, p, n)) {
                struct wf_contribution *c;

                if (wf_contribution_new(w.ctx, &w.rules, &c))
                    abort();
                step(&w, c, 7);
                wf_contribution_free(c);
            }
        }
        wf_free(w.ctx, out.p);
        if (weft_ctx_memory(w.ctx) < 0)
            abort();
        close_world(&w);
    }
    free(p);
    return 0;
}
