/* pieces.c - cuts the parameters into pieces. */
#include "ps/pieces.h"

#include "kernels/cpu/weight.h"

enum { MAX_GAP = 1024 }; /* elements between two runs of a piece that belong to neither */

/* The pieces and runs that a cut has; with `c` they are written, too. */
struct cutting {
    const struct wf_rules *rules;
    int64_t most; /* elements of a piece */
    struct wf_cut *c;
    struct wf_piece *runs; /* of all pieces */
    int n_pieces, n_runs, n_table_pieces;
    bool any;           /* the present piece has a run */
    int64_t first, end; /* of the present piece, in the flat vectors */
    int server;         /* that it is placed on */
};

static void end_piece(struct cutting *k)
{
    if (!k->any)
        return;
    if (k->c) {
        k->c->piece[k->n_pieces].first = k->first;
        k->c->piece[k->n_pieces].count =
            wf_min_i64(wf_round_up(k->end, 16), k->rules->n_dense) - k->first;
        k->c->piece[k->n_pieces].server = k->server;
    }
    k->n_pieces++;
    k->any = false;
}

static void add_run(struct cutting *k, int var, int64_t from, int64_t n)
{
    int64_t at = k->rules->var[var].offset + from;

    if (!k->any)
        k->first = at;
    k->any = true;
    k->end = at + n;
    if (k->c) {
        struct wf_cut_piece *p = &k->c->piece[k->n_pieces];

        if (!p->run)
            p->run = &k->runs[k->n_runs];
        p->run[p->n_runs++] = (struct wf_piece){var, from, n, at - k->first};
    }
    k->n_runs++;
}

/* Whether a variable joins the present piece as a whole. */
static bool joins(const struct cutting *k, const struct wf_var *var)
{
    int64_t gap = var->offset - k->end;

    return k->any && gap >= 0 && gap <= MAX_GAP && var->offset + var->count - k->first <= k->most &&
           var->count < k->most / 4;
}

/* A large variable in parts of about the same size. */
static void add_var(struct cutting *k, int v)
{
    const struct wf_var *var = &k->rules->var[v];
    int64_t parts = (var->count + k->most - 1) / k->most;
    int64_t size = wf_round_up((var->count + parts - 1) / parts, WF_NORM_BLOCK);

    if (k->rules->uncut || wf_weight_whole(&var->penalty, &var->constraint))
        size = var->count;
    if (!joins(k, var))
        end_piece(k);
    for (int64_t at = 0; at < var->count; at += size) {
        if (at > 0)
            end_piece(k);
        add_run(k, v, at, wf_min_i64(size, var->count - at));
    }
}

static void cut_all(struct cutting *k)
{
    k->n_pieces = k->n_runs = 0;
    for (int v = 0; v < k->rules->n_vars; v++) {
        const struct wf_var *var = &k->rules->var[v];

        if (var->count == 0 || var->table)
            continue;
        if (var->server != k->server)
            end_piece(k);
        k->server = var->server;
        add_var(k, v);
    }
    end_piece(k);
    if (k->c)
        k->c->first_table = k->n_pieces;
    for (int i = 0; k->c && i < k->n_table_pieces; i++)
        k->c->piece[k->n_pieces + i].tables = true;
    k->n_pieces += k->n_table_pieces;
    if (k->c)
        k->c->piece[k->n_pieces].state = true;
    k->n_pieces++;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int64_t divisor(int64_t a, int64_t b)
{
    return b ? divisor(b, a % b) : a;
}

/* Rows that end on a block together: a power of two, as a block's elements are. */
static int64_t group_rows(const struct wf_var *v)
{
    return WF_NORM_BLOCK / divisor(WF_NORM_BLOCK, v->dim[1]);
}

int wf_cut_blocks(const struct wf_rules *rules)
{
    double size = 0;

    for (int v = 0; v < rules->n_vars; v++)
        size += rules->var[v].table ? (double)rules->var[v].count * sizeof(float) : 0;
    size /= (double)WF_MAX_TABLE_PIECES * (8 << 20);
    return size < WF_MAX_TABLE_BLOCKS ? 1 + (int)size : WF_MAX_TABLE_BLOCKS;
}

/* As many pieces as the tables would fill, within limits. */
static weft_status count_table_pieces(const struct wf_rules *r, int64_t bytes, int *out)
{
    double size = 0;
    int64_t n_groups = 0;

    for (int v = 0; v < r->n_vars; v++) {
        const struct wf_var *var = &r->var[v];

        if (!var->table)
            continue;
        if (!var->init.kind || !wf_initial_by_rows(var->init.kind))
            return wf_err(
                WEFT_ENOSUP,
                "parameter servers: the initializer '%s' of table '%s' cannot be computed "
                "row by row; use another one",
                var->init.kind ? var->init.kind : "", var->name);
        size += (double)var->count * sizeof(float);
        n_groups += 1 + (var->dim[0] - 1) / group_rows(var);
    }
    size = size / (double)bytes + 1;
    *out =
        (int)wf_min_i64(n_groups, size < WF_MAX_TABLE_PIECES ? (int64_t)size : WF_MAX_TABLE_PIECES);
    return WEFT_OK;
}

weft_status wf_cut_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t bytes,
                       struct wf_cut **out)
{
    struct cutting k = {.rules = rules,
                        .most = wf_max_i64(bytes / (int64_t)sizeof(float), WF_NORM_BLOCK)};
    struct wf_cut *c;
    weft_status st = count_table_pieces(rules, bytes, &k.n_table_pieces);

    if (st)
        return st;
    cut_all(&k);
    c = wf_alloc(ctx, sizeof *c);
    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "pieces");
    c->ctx = ctx;
    c->n_pieces = k.n_pieces;
    c->n_table_pieces = k.n_table_pieces;
    c->inverse = k.n_table_pieces > 1 ? UINT64_MAX / (uint64_t)k.n_table_pieces + 1 : 0;
    c->piece = wf_alloc_n(ctx, k.n_pieces, sizeof *c->piece);
    k.runs = wf_alloc_n(ctx, k.n_runs + 1, sizeof *k.runs);
    c->unit = wf_alloc_n(ctx, rules->n_vars + 1, sizeof *c->unit);
    if (!c->piece || !k.runs || !c->unit) {
        wf_free(ctx, k.runs);
        wf_free(ctx, c->unit);
        wf_free(ctx, c->piece);
        wf_free(ctx, c);
        return wf_err_nomem(ctx, (size_t)k.n_runs * sizeof *k.runs, "pieces");
    }
    k.c = c;
    c->piece[0].run = k.runs; /* also without any run: freed by it */
    cut_all(&k);
    for (int v = 0; v < rules->n_vars; v++)
        c->unit[v] = rules->var[v].table ? __builtin_ctz((unsigned)group_rows(&rules->var[v])) : 0;
    *out = c;
    return WEFT_OK;
}

void wf_cut_free(struct wf_cut *c)
{
    if (!c)
        return;
    wf_free(c->ctx, c->piece[0].run);
    wf_free(c->ctx, c->unit);
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
