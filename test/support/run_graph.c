/* run_graph.c - plans and runs whatever graph it is given: what a stranger's file may ask for. */
#include "run_graph.h"

#include <stdlib.h>

#include "weft/fn.h"
#include "weft/ops.h"

#define MAX_FEEDS 32
#define MAX_ROOTS 16
#define MAX_FEED_BYTES (1 << 22)
#define MAX_FLOP 2e7

struct roots {
    weft_val feeds[MAX_FEEDS], fetches[MAX_ROOTS], updates[MAX_ROOTS];
    weft_tensor data[MAX_FEEDS];
    int n_feeds, n_fetches, n_updates;
};

/* Small numbers: they are also valid as most indices and as counts. */
static void fill(const weft_tensor *t, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        wf_set(t->data, t->dtype, i,
               wf_is_float(t->dtype) ? (double)(i % 7) / 4 - 0.5 : (double)(i % 3 % 2));
}

static bool add_feed(struct roots *r, const weft_graph *g, int64_t k)
{
    struct wf_type t = g->values[g->nodes[k].first_out].type;
    weft_tensor *to = &r->data[r->n_feeds];
    int64_t bytes;

    for (int i = 0; i < t.rank; i++)
        t.dim[i] = t.dim[i] < 0 ? 2 : t.dim[i];
    bytes = wf_type_bytes(&t);
    if (r->n_feeds == MAX_FEEDS || bytes < 0 || bytes > MAX_FEED_BYTES)
        return false;
    *to = weft_view(t.dtype, NULL, t.rank, t.dim);
    to->data = malloc((size_t)bytes + !bytes); /* exactly: the sanitizer sees the byte after it */
    fill(to, wf_type_count(&t));
    r->feeds[r->n_feeds++] = (weft_val){g->nodes[k].first_out};
    return true;
}

static bool collect(struct roots *r, const weft_graph *g)
{
    for (int64_t k = 0; k < g->n_nodes; k++)
        if (g->nodes[k].op->id == WF_OP_placeholder && !add_feed(r, g, k))
            return false;
    for (int64_t k = g->n_nodes - 1; k >= 0 && r->n_updates < MAX_ROOTS; k--)
        if (g->nodes[k].op->flags & WF_STATE_IN0)
            r->updates[r->n_updates++] = (weft_val){g->nodes[k].first_out};
    for (int64_t v = g->n_values - 1; v > 0 && r->n_fetches < MAX_ROOTS; v--)
        r->fetches[r->n_fetches++] = (weft_val){(int32_t)v};
    return true;
}

static bool run_once(weft_graph *g, const struct roots *r, bool reference, unsigned passes_off)
{
    weft_tensor out[MAX_ROOTS] = {{0}};
    weft_plan_info info = {.size = sizeof info};
    weft_fn *fn = NULL;
    bool ok = !weft_fn_new(g,
                           WEFT_OPTS(weft_fn_opts, .n_feeds = r->n_feeds, .feeds = r->feeds,
                                     .n_fetches = r->n_fetches, .fetches = r->fetches,
                                     .n_updates = r->n_updates, .updates = r->updates,
                                     .reference_kernels = reference, .passes_off = passes_off),
                           &fn) &&
              !weft_fn_plan_info(fn, r->data, &info) && info.flop < MAX_FLOP;

    for (int i = 0; ok && i < 2; i++)
        ok = !weft_fn_run(fn, r->data, out);
    if (!ok && !*weft_error() && !(info.flop >= MAX_FLOP))
        abort(); /* a status without a text */
    weft_fn_free(fn);
    return ok;
}

/* Gradients of the sum of the last float value with respect to what is fed and to the variables. */
static bool add_gradients(weft_graph *g, struct roots *r)
{
    weft_val of[MAX_ROOTS], grad[MAX_ROOTS], loss = WEFT_NIL;
    int n = 0;

    for (int i = 0; i < r->n_fetches && !loss.id; i++)
        if (wf_is_float(wf_val_type_of(g, r->fetches[i])->dtype) &&
            !(wf_val_node(g, r->fetches[i])->op->flags & WF_LEAF))
            loss = weft_sum(g, r->fetches[i], NULL);
    for (int i = 0; i < r->n_feeds && n < MAX_ROOTS; i++)
        if (wf_is_float(r->data[i].dtype))
            of[n++] = r->feeds[i];
    for (int64_t i = 0; i < g->n_vars && n < MAX_ROOTS; i++)
        if (wf_is_float(g->values[g->vars[i]].type.dtype))
            of[n++] = (weft_val){g->vars[i]};
    if (!loss.id || !n || weft_grad(g, loss, n, of, grad))
        return false;
    r->n_updates = r->n_fetches = 0;
    for (int i = 0; i < n; i++)
        if (grad[i].id)
            r->fetches[r->n_fetches++] = grad[i];
    return r->n_fetches > 0;
}

int run_graph(weft_graph *g)
{
    struct roots *r = calloc(1, sizeof *r);
    int n = 0;

    if (!r)
        abort();
    if (!collect(r, g))
        goto out;
    n += run_once(g, r, true, 0);
    n += run_once(g, r, false, 0);
    n += run_once(g, r, false, WEFT_PASS_ALL);
    if (add_gradients(g, r)) {
        n += run_once(g, r, true, 0);
        n += run_once(g, r, false, 0);
    }
out:
    for (int i = 0; i < r->n_feeds; i++)
        free(r->data[i].data);
    free(r);
    return n;
}

int run_graph_text(weft_ctx *ctx, const char *text, int64_t n)
{
    weft_graph *g = NULL;
    int ran;

    if (weft_graph_parse(ctx, text, n, &g))
        return -1;
    ran = run_graph(g);
    weft_graph_free(g);
    return ran;
}
