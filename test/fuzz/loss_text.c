/* loss_text.c - any text as a loss and as a metric: it is refused with a text, or can be built. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

/* Whatever can be made is built, on shapes that fit many; sums are evaluated where there are
 * few. */
static void try_metric(weft_ctx *ctx, const char *text, int rank)
{
    struct wf_type t = wf_type_of(WEFT_F32, rank, (int64_t[]){WEFT_ANY, 3});
    struct wf_arena arena;
    struct wf_metric m;
    weft_graph *g = NULL;
    bool wrong = wf_metric_check(ctx, NULL, text) != WEFT_OK;
    char suffix[WF_METRIC_SUFFIX];
    weft_val y, p, v;

    wf_arena_init(&arena, ctx);
    check(weft_graph_new(ctx, &g) == WEFT_OK);
    if (wf_metric_init(NULL, &m, &arena, text, &t, &t)) {
        check(*weft_error());
    } else {
        check(!wrong && m.n_state > 0 && m.n_results > 0 && m.name);
        wf_metric_suffix(&m, m.n_results - 1, suffix);
        y = weft_placeholder(g, "y", WEFT_F32, rank, t.dim);
        p = weft_placeholder(g, "p", WEFT_F32, rank, t.dim);
        if (m.n_state < 1 << 16 && !wf_metric_build(g, &m, y, p, WEFT_NIL, &v)) {
            double *sums = wf_alloc_n(ctx, m.n_state, sizeof *sums);
            double *results = wf_alloc_n(ctx, m.n_results, sizeof *results);

            check(wf_val_type_of(g, v)->dim[0] == m.n_state);
            check(sums != NULL && results != NULL);
            wf_metric_result(&m, sums, results);
            wf_free(ctx, sums);
            wf_free(ctx, results);
        }
    }
    weft_graph_free(g);
    wf_arena_free(&arena);
}

static void try_loss(weft_ctx *ctx, const char *text)
{
    int64_t dim[2] = {WEFT_ANY, 3};
    weft_graph *g = NULL;
    weft_val y, p, v;

    check(weft_graph_new(ctx, &g) == WEFT_OK);
    y = weft_placeholder(g, "y", WEFT_F32, 2, dim);
    p = weft_placeholder(g, "p", WEFT_F32, 2, dim);
    if (wf_loss_check(ctx, NULL, text))
        check(wf_loss_build(NULL, g, text, y, p, &v) != WEFT_OK && *weft_error());
    else if (wf_loss_build(NULL, g, text, y, p, &v))
        check(*weft_error());
    weft_graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx = NULL;
    char *text;

    if (size > 4096)
        return 0;
    text = malloc(size + 1);
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) == WEFT_OK);
    check(wf_ops_ensure(ctx) == WEFT_OK);
    try_loss(ctx, text);
    try_metric(ctx, text, 2);
    try_metric(ctx, text, 1);
    weft_ctx_free(ctx);
    free(text);
    return 0;
}
