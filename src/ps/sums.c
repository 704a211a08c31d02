/* sums.c - what several shards of a worker give to a piece, as one contribution.
 *
 * Kept true: numbers are added along the tree over shard numbers, in the order in which the server
 * would add them. So it does not matter who does. */
#include "ps/worker.h"

void wf_ps_sum_free(struct wf_ps_sum *s)
{
    if (!s)
        return;
    wf_contribution_free(s->all);
    wf_free(s->ctx, s->rows.p);
    wf_free(s->ctx, s);
}

/* What a shard gives; nothing, if it has no samples. As wf_ps_worker_push sends it. */
static weft_status put(struct wf_ps_worker *w, struct wf_tree *tree, int piece, int index,
                       const struct kept *k)
{
    const struct wf_cut_piece *p = &w->cut->piece[piece];
    const struct wf_rules *r = &w->opts.job->rules;
    /* batches that are only evaluated give sums to the piece of the state, and nothing else */
    bool gives = k->sums && (p->tables ? k->rows != NULL : k->dense != NULL || p->state);
    struct wf_contribution *c = NULL;
    weft_status st = WEFT_OK;

    if (gives && p->count && !p->tables)
        st = wf_tree_lend(tree, k->dense + p->first, r->n_dense, &c);
    else if (gives)
        st = wf_tree_take(tree, &c);
    if (!st && c && p->tables) {
        const struct wf_payload *rows = &k->rows[piece - w->cut->first_table];

        st = wf_tables_read(&w->tables, piece, r->n_groups, rows->p, rows->n, c);
    } else if (!st && c) {
        memcpy(c->sums, k->sums, (size_t)tree->rules->n_sums * sizeof *c->sums);
    }
    if (!st)
        return wf_tree_put(tree, 0, index, c);
    wf_tree_give(tree, c);
    return st;
}

static weft_status add_up(struct wf_ps_worker *w, int piece, struct kept *const *part, int n,
                          struct wf_ps_sum *s)
{
    struct wf_tree tree;
    weft_status st = WEFT_OK;

    wf_tree_init(&tree, w->node.ctx, NULL, &s->rules);
    for (int i = 0; i < n && !st; i++)
        st = put(w, &tree, piece, i, part[i]);
    if (!st)
        st = wf_tree_sum(&tree, &s->all);
    wf_tree_free(&tree);
    if (!st && s->all && w->cut->piece[piece].tables)
        st = wf_tables_split(w->node.ctx, &w->tables, piece, s->rules.n_groups, s->all->rows,
                             s->all->sums, s->rules.n_sums, &w->sort, &s->rows);
    return st;
}

weft_status wf_ps_sum_new(struct wf_ps_worker *w, int piece, struct kept *const *part, int n,
                          struct wf_ps_sum **out)
{
    struct wf_ps_sum *s = wf_alloc(w->node.ctx, sizeof *s);
    weft_status st;

    if (!s)
        return wf_err_nomem(w->node.ctx, sizeof *s, "contribution");
    s->ctx = w->node.ctx;
    s->rules = w->opts.job->rules;
    s->rules.n_dense = w->cut->piece[piece].count;
    s->rules.n_sums = wf_ps_n_sums(&w->sizes, piece);
    st = add_up(w, piece, part, n, s);
    if (st)
        wf_ps_sum_free(s);
    else
        *out = s;
    return st;
}

int wf_ps_sum_parts(const struct wf_ps_sum *s, struct wf_part *part)
{
    int n = 0;

    if (!s->all)
        return 0;
    if (s->rows.p) {
        part[n++] = (struct wf_part){s->rows.p, s->rows.n};
        return n;
    }
    if (s->rules.n_dense)
        part[n++] = (struct wf_part){s->all->dense,
                                     s->rules.n_groups * s->rules.n_dense * (int64_t)sizeof(float)};
    part[n++] = (struct wf_part){s->all->sums, s->rules.n_sums * (int64_t)sizeof(double)};
    return n;
}
