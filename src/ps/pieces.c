/* pieces.c - cuts the parameters into pieces. */
#include "ps/pieces.h"

#include "kernels/cpu/weight.h"

/* The pieces and runs that a cut has; with `c` they are written, too. */
struct cutting {
    const struct wf_rules *rules;
    int64_t most; /* elements of a piece */
    struct wf_cut *c;
    struct wf_piece *runs; /* of all pieces */
    int n_pieces, n_runs;
    int64_t count; /* of the present piece */
};

static void end_piece(struct cutting *k)
{
    if (k->count == 0)
        return;
    if (k->c)
        k->c->piece[k->n_pieces].count = k->count;
    k->n_pieces++;
    k->count = 0;
}

static void add_run(struct cutting *k, int var, int64_t first, int64_t n)
{
    if (k->c) {
        struct wf_cut_piece *p = &k->c->piece[k->n_pieces];

        if (!p->run)
            p->run = &k->runs[k->n_runs];
        p->run[p->n_runs++] = (struct wf_piece){var, first, n, k->count};
    }
    k->n_runs++;
    k->count += wf_round_up(n, 16); /* every run at a multiple of 64 bytes */
}

static void cut_all(struct cutting *k)
{
    k->n_pieces = k->n_runs = 0;
    for (int v = 0; v < k->rules->n_vars; v++) {
        const struct wf_var *var = &k->rules->var[v];
        bool whole = wf_weight_whole(&var->penalty, &var->constraint);
        int64_t at = 0;

        while (at < var->count) {
            int64_t room = (k->most - k->count) / WF_NORM_BLOCK * WF_NORM_BLOCK;
            int64_t n = whole || var->count - at <= room ? var->count - at : room;

            if (n <= 0 || (whole && k->count > 0 && n > room)) {
                end_piece(k);
                continue;
            }
            add_run(k, v, at, n);
            at += n;
        }
    }
    end_piece(k);
    if (k->c)
        k->c->piece[k->n_pieces].state = true;
    k->n_pieces++;
}

weft_status wf_cut_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t bytes,
                       struct wf_cut **out)
{
    struct cutting k = {.rules = rules,
                        .most = wf_max_i64(bytes / (int64_t)sizeof(float), WF_NORM_BLOCK)};
    struct wf_cut *c;

    for (int v = 0; v < rules->n_vars; v++)
        if (rules->var[v].table)
            return wf_err(WEFT_ENOSUP, "parameter servers do not hold tables yet: '%s' is one",
                          rules->var[v].name);
    cut_all(&k);
    c = wf_alloc(ctx, sizeof *c);
    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "pieces");
    c->ctx = ctx;
    c->n_pieces = k.n_pieces;
    c->piece = wf_alloc_n(ctx, k.n_pieces, sizeof *c->piece);
    k.runs = wf_alloc_n(ctx, k.n_runs + 1, sizeof *k.runs);
    if (!c->piece || !k.runs) {
        wf_free(ctx, k.runs);
        wf_free(ctx, c->piece);
        wf_free(ctx, c);
        return wf_err_nomem(ctx, (size_t)k.n_runs * sizeof *k.runs, "pieces");
    }
    k.c = c;
    c->piece[0].run = k.runs; /* also without any run: freed by it */
    cut_all(&k);
    *out = c;
    return WEFT_OK;
}

void wf_cut_free(struct wf_cut *c)
{
    if (!c)
        return;
    wf_free(c->ctx, c->piece[0].run);
    wf_free(c->ctx, c->piece);
    wf_free(c->ctx, c);
}

void wf_cut_gather(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *flat,
                   float *piece)
{
    for (int i = 0; i < p->n_runs; i++) {
        const struct wf_piece *r = &p->run[i];

        memcpy(piece + r->at, flat + rules->var[r->var].offset + r->first,
               (size_t)r->n * sizeof *piece);
    }
}

void wf_cut_scatter(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *piece,
                    float *flat)
{
    for (int i = 0; i < p->n_runs; i++) {
        const struct wf_piece *r = &p->run[i];

        memcpy(flat + rules->var[r->var].offset + r->first, piece + r->at,
               (size_t)r->n * sizeof *piece);
    }
}
