/* remote.c - lookups in tables that are not in this process's memory.
 *
 * Before such an instruction runs, it requests the rows of its distinct ids. They form a small
 * table in scratch memory, in which the kernel looks up the same rows by their positions. The first
 * one also says what later ones will request, as far as their ids are there already: so that one
 * answer can bring all of them. */
#include "exec/exec.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/optim.h"

/* An instruction's own kernel, and what it is given. */
struct lookup {
    wf_kernel_fn *run;
    const void *state;
    weft_fn *fn;
    const struct wf_segment *seg;
    struct wf_tensor *in;          /* its operands */
    int64_t n;                     /* ids */
    int64_t scratch;               /* bytes of the plan's scratch memory that belong to kernels */
    const struct wf_instr **ahead; /* later lookups whose ids are there when this one runs */
    int n_ahead;
};

/* What a lookup keeps in scratch memory. */
struct room {
    float *rows;     /* [n][width] */
    int64_t *wanted; /* distinct ids */
    int64_t *wide;   /* the ids as int64_t, where they are neither that nor int32_t */
    char *position;  /* of each id's row, in the type of the ids */
    int32_t *first, *next;
    void *dedupe;
    int64_t bytes;
};

static void *take(char *mem, int64_t *at, int64_t bytes)
{
    void *p = mem ? mem + *at : NULL;

    *at += wf_round_up(bytes, 64);
    return p;
}

/* mem NULL: only the number of bytes. */
static struct room room_at(char *mem, int64_t n, int64_t width)
{
    struct room r = {.bytes = 0};

    r.rows = take(mem, &r.bytes, n * width * (int64_t)sizeof *r.rows);
    r.wanted = take(mem, &r.bytes, n * (int64_t)sizeof *r.wanted);
    r.wide = take(mem, &r.bytes, n * (int64_t)sizeof *r.wide);
    r.position = take(mem, &r.bytes, n * (int64_t)sizeof(int64_t));
    r.first = take(mem, &r.bytes, n * (int64_t)sizeof *r.first);
    r.next = take(mem, &r.bytes, n * (int64_t)sizeof *r.next);
    r.dedupe = take(mem, &r.bytes, wf_dedupe_scratch(n));
    return r;
}

static weft_status ask(const struct lookup *l, int64_t n, const int64_t *ids, float *rows)
{
    const struct wf_hooks *h = l->fn->hooks;
    const struct wf_remote *r = &l->fn->store->remote;

    if (n == 0)
        return WEFT_OK;
    return h && h->need_rows ? h->need_rows(h->arg, l->seg, n, ids, rows)
                             : r->need_rows(r->arg, l->seg, n, ids, rows);
}

/* The ids of later lookups. */
static weft_status announce(const struct wf_call *c, const struct lookup *l)
{
    const struct wf_hooks *h = l->fn->hooks;
    weft_status st = WEFT_OK;

    for (int i = 0; i < l->n_ahead && h && h->want_rows && !st; i++) {
        const struct lookup *other = l->ahead[i]->call.state;
        const struct wf_tensor *ids = &l->ahead[i]->call.in[1];
        struct room r = room_at((char *)c->scratch + l->scratch, other->n, other->seg->type.dim[1]);

        for (int64_t k = 0; k < other->n; k++)
            r.wide[k] = wf_get_int(ids->data, ids->type.dtype, k);
        st = h->want_rows(h->arg, other->seg, other->n, r.wide);
    }
    return st;
}

static weft_status run_lookup(const struct wf_call *c)
{
    const struct lookup *l = c->state;
    const struct wf_tensor *ids = &c->in[1];
    struct room r = room_at((char *)c->scratch + l->scratch, l->n, l->seg->type.dim[1]);
    bool is_wide = ids->type.dtype == WEFT_I64, is_fast = is_wide || ids->type.dtype == WEFT_I32;
    struct wf_dedupe d = {.ids = is_fast ? ids->data : r.wide,
                          .wide = is_wide || !is_fast,
                          .id_stride = 1,
                          .n = l->n,
                          .n_rows = l->seg->type.dim[0],
                          .scratch = r.dedupe,
                          .rows = r.wanted,
                          .first = r.first,
                          .next = r.next};
    struct wf_call own = *c;
    weft_status st = announce(c, l);

    if (st)
        return wf_err_wrap(st, "rows of '%s'", l->seg->name);
    for (int64_t i = 0; i < l->n && !is_fast; i++)
        r.wide[i] = wf_get_int(ids->data, ids->type.dtype, i);
    if (wf_dedupe_run(c->pool, &d, 1) >= 0)
        return wf_bad_index(c, ids, d.bad, d.n_rows);
    st = ask(l, d.n_distinct, d.rows, r.rows);
    if (st)
        return wf_err_wrap(st, "rows of '%s'", l->seg->name);
    for (int64_t k = 0; k < d.n_distinct; k++)
        for (int32_t i = d.first[k]; i >= 0; i = d.next[i])
            wf_set_int(r.position, ids->type.dtype, i, k);
    memcpy(l->in, c->in, (size_t)c->n_in * sizeof *l->in);
    l->in[0].data = r.rows;
    l->in[1].data = r.position;
    own.in = l->in;
    own.state = l->state;
    return l->run(&own);
}

static weft_status wrap(struct wf_plan *p, weft_fn *fn, struct wf_instr *in, int64_t scratch,
                        const struct wf_segment *seg)
{
    int64_t *total = p->dev ? &p->host_scratch : &p->scratch_bytes;
    struct lookup *l = wf_arena_alloc(&p->arena, sizeof *l);
    struct wf_tensor *tin = wf_arena_alloc(&p->arena, (size_t)(in->call.n_in + 1) * sizeof *tin);
    int64_t n = wf_count(&in->call.in[1]);

    if (!l || !tin)
        return wf_err_nomem(p->ctx, sizeof *l, "plan");
    if (n >= (int64_t)1 << 30)
        return wf_err(WEFT_ELIMIT, "'%s': %lld ids in one lookup of a remote table; at most 2^30",
                      in->name, (long long)n);
    *l = (struct lookup){in->run, in->call.state, fn, seg, tin, n, scratch, NULL, 0};
    in->run = run_lookup;
    in->call.state = l;
    in->fails = true; /* the owner of the table may */
    *total = wf_max_i64(*total, scratch + room_at(NULL, n, seg->type.dim[1]).bytes);
    return WEFT_OK;
}

/* The instruction that makes the ids of a lookup; -1: they are fed, or constant. */
static int64_t made_by(const struct wf_plan *p, const struct wf_instr *in)
{
    int32_t value = p->root[p->graph->nodes[in->node].in[1]];

    for (int64_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].node == p->graph->values[value].node)
            return i;
    return -1;
}

/* Each lookup is announced by the first one that runs once its ids are there. */
static weft_status list_ahead(struct wf_plan *p)
{
    for (int64_t j = 0; j < p->n_instr; j++) {
        int64_t made, i;
        struct lookup *l;

        if (p->instr[j].run != run_lookup)
            continue;
        made = made_by(p, &p->instr[j]);
        for (i = made + 1; i < j && p->instr[i].run != run_lookup;)
            i++;
        if (i >= j)
            continue;
        l = (struct lookup *)(uintptr_t)p->instr[i].call.state;
        if (!l->ahead)
            l->ahead = wf_arena_alloc(&p->arena, (size_t)p->n_instr * sizeof *l->ahead);
        if (!l->ahead)
            return wf_err_nomem(p->ctx, 0, "plan");
        l->ahead[l->n_ahead++] = &p->instr[j];
    }
    return WEFT_OK;
}

weft_status wf_plan_remote(struct wf_plan *p, weft_fn *fn)
{
    int64_t scratch = wf_round_up(p->dev ? p->host_scratch : p->scratch_bytes, 64);
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < p->n_instr && fn->store->remote.holds && !st; i++) {
        struct wf_instr *in = &p->instr[i];
        const struct wf_node *n = &p->graph->nodes[in->node];

        for (int k = 0; k < n->n_in && !st; k++) {
            struct wf_loc l = n->in[k] ? p->loc[p->root[n->in[k]]] : (struct wf_loc){0};
            const struct wf_segment *seg;

            if (l.place != WF_TABLE)
                continue;
            seg = &fn->store->seg[fn->store->by_number[l.segment]];
            if (!seg->remote || n->op->id == WF_OP_embedding_grad) /* which reads its shape alone */
                continue;
            if (k != 0 || (n->op->id != WF_OP_embedding && n->op->id != WF_OP_embedding_bag))
                st = wf_err(WEFT_ENOSUP,
                            "'%s' (%s): table '%s' is not in this process's memory, and can only "
                            "be looked up",
                            in->name, n->op->name, seg->name);
            else
                st = wrap(p, fn, in, scratch, seg);
        }
    }
    /* on a device, ids may be there before they are here */
    return st || p->dev || !fn->store->remote.holds ? st : list_ahead(p);
}
