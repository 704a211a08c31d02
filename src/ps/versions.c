/* versions.c - the two versions of the parameters at a worker.
 *
 * Kept true: what arrives is written to memory of the version's own parity alone, and only one
 * message at a time writes to a piece; so a version is never changed while a shard is computed
 * from it. */
#include "ps/versions.h"

/* A message that arrives in a vector of the worker. */
struct placing {
    int piece;
    int64_t t;
    bool busy;
};

/* One version of a piece. */
struct place {
    const float *at;              /* its first element; NULL: it is not here */
    const _Atomic int64_t *begun; /* in published memory */
    struct placing arrives;
    float *spare; /* for the rare case that something else arrives where it should be */
};

struct wf_versions {
    weft_ctx *ctx;
    const struct wf_rules *rules;
    const struct wf_cut *cut;
    float *own[2];          /* flat */
    struct place *place[2]; /* by piece */
    int *first, *end;       /* by variable: its pieces */
};

weft_status wf_versions_new(weft_ctx *ctx, const struct wf_rules *rules, const struct wf_cut *cut,
                            struct wf_versions **out)
{
    struct wf_versions *v = wf_alloc(ctx, sizeof *v);

    if (!v)
        return wf_err_nomem(ctx, sizeof *v, "versions");
    *v = (struct wf_versions){.ctx = ctx, .rules = rules, .cut = cut};
    for (int i = 0; i < 2; i++)
        v->place[i] = wf_alloc_n(ctx, cut->n_pieces + 1, sizeof *v->place[i]);
    v->first = wf_alloc_n(ctx, rules->n_vars + 1, sizeof *v->first);
    v->end = wf_alloc_n(ctx, rules->n_vars + 1, sizeof *v->end);
    if (!v->place[0] || !v->place[1] || !v->first || !v->end) {
        wf_versions_free(v);
        return wf_err_nomem(ctx, sizeof *v->place[0], "versions");
    }
    for (int p = cut->n_pieces - 1; p >= 0; p--)
        for (int k = 0; k < cut->piece[p].n_runs; k++) {
            int var = cut->piece[p].run[k].var;

            v->first[var] = p;
            if (v->end[var] == 0)
                v->end[var] = p + 1;
        }
    *out = v;
    return WEFT_OK;
}

void wf_versions_free(struct wf_versions *v)
{
    if (!v)
        return;
    for (int i = 0; i < 2; i++) {
        for (int p = 0; v->place[i] && p < v->cut->n_pieces; p++)
            wf_free(v->ctx, v->place[i][p].spare);
        wf_free(v->ctx, v->place[i]);
        wf_free(v->ctx, v->own[i]);
    }
    wf_free(v->ctx, v->first);
    wf_free(v->ctx, v->end);
    wf_free(v->ctx, v);
}

/* The worker's vector for version t; NULL if there is no memory. */
static float *own(struct wf_versions *v, int64_t t)
{
    float **vector = &v->own[t & 1];

    if (!*vector)
        *vector = wf_alloc_n(v->ctx, v->rules->n_dense + 1, sizeof **vector);
    return *vector;
}

static struct place *place_of(const struct wf_versions *v, int piece, int64_t t)
{
    return &v->place[t & 1][piece];
}

float *wf_versions_place(struct wf_versions *v, int piece, int64_t t, void **token)
{
    struct place *p = place_of(v, piece, t);
    float *vector = own(v, t);

    if (!vector || p->arrives.busy)
        return NULL;
    p->arrives = (struct placing){piece, t, true};
    *token = &p->arrives;
    return vector + v->cut->piece[piece].first;
}

void wf_versions_unplace(struct wf_versions *v, void *token)
{
    (void)v;
    ((struct placing *)token)->busy = false;
}

void wf_versions_took(struct wf_versions *v, void *token)
{
    struct placing *a = token;
    struct place *p = place_of(v, a->piece, a->t);

    p->at = v->own[a->t & 1] + v->cut->piece[a->piece].first;
    p->begun = NULL;
}

void wf_versions_map(struct wf_versions *v, int piece, int64_t t, const float *flat,
                     const _Atomic int64_t *begun)
{
    struct place *p = place_of(v, piece, t);

    p->at = flat + v->cut->piece[piece].first;
    p->begun = &begun[2 * piece + (t & 1)];
}

weft_status wf_versions_copy(struct wf_versions *v, int piece, int64_t t, const float *from)
{
    const struct wf_cut_piece *c = &v->cut->piece[piece];
    struct place *p = place_of(v, piece, t);
    float *vector = p->arrives.busy ? NULL : own(v, t), *to = vector ? vector + c->first : NULL;

    if (p->arrives.busy) {
        if (!p->spare)
            p->spare = wf_alloc_n(v->ctx, c->count + 1, sizeof *p->spare);
        to = p->spare;
    }
    if (!to)
        return wf_err_nomem(v->ctx, (size_t)c->count * sizeof *to, "parameters");
    memcpy(to, from, (size_t)c->count * sizeof *to);
    p->at = to;
    p->begun = NULL;
    return WEFT_OK;
}

/* Part of a variable in a piece. */
static const struct wf_piece *run_of(const struct wf_versions *v, int piece, int var)
{
    const struct wf_cut_piece *c = &v->cut->piece[piece];

    for (int k = 0; k < c->n_runs; k++)
        if (c->run[k].var == var)
            return &c->run[k];
    return NULL;
}

const float *wf_versions_var(struct wf_versions *v, int64_t t, int var)
{
    const struct wf_var *x = &v->rules->var[var];
    const float *first = NULL;
    float *to;
    bool together = true;

    for (int p = v->first[var]; p < v->end[var]; p++) {
        const struct wf_piece *r = run_of(v, p, var);
        const float *at = place_of(v, p, t)->at + r->at;

        if (!first)
            first = at;
        together &= at - first == r->first; /* of one vector or not: only compared */
    }
    if (together)
        return first;
    to = own(v, t);
    for (int p = v->first[var]; p < v->end[var] && to; p++) {
        const struct wf_piece *r = run_of(v, p, var);
        const float *at = place_of(v, p, t)->at + r->at;

        if (at != to + x->offset + r->first)
            memcpy(to + x->offset + r->first, at, (size_t)r->n * sizeof *to);
    }
    return to ? to + x->offset : NULL;
}

bool wf_versions_kept(const struct wf_versions *v, int64_t t)
{
    atomic_thread_fence(memory_order_acquire);
    for (int p = 0; p < v->cut->n_pieces; p++) {
        const struct place *x = place_of(v, p, t);

        if (x->begun && atomic_load_explicit(x->begun, memory_order_relaxed) != t)
            return false;
    }
    return true;
}
