/* gen.c - one random graph: a pool of values that grows op by op; values are computed as they are
 * built.
 *
 * What is drawn depends on the values so far (their sizes, whether they are finite), so every op of
 * the graph can be run. */
#include <math.h>
#include <stdarg.h>

#include "random/random.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* Names that passes, ops and models use themselves, and some that are merely unusual. */
static const char *const odd_names[] = {
    "fused",
    "matmul",
    "matmul_fused",
    "conv",
    "conv_fused",
    "sum",
    "add",
    "cast",
    "constant",
    "variable",
    "fused_1",
    "fused_2",
    "x",
    "loss",
    "w/kernel",
    "a/b/c/d/e",
    "apply",
    "identity",
    "reshape_3",
    "grad",
    "0",
    "-1",
    "matmul_sums",
    "matmul_apply",
    "relu",
    "mul_4",
    "a.b",
    "%s%n",
    "zeros_like",
    "embedding",
    "name",
    "apply_rows",
    "add_5",
    "concat",
    "#",
    "a-name-that-is-so-long-that-no-buffer-of-a-usual-size-holds-it/"
    "and-then-a-second-part-that-makes-it-longer-still/and-a-third-one-because-two-hundred-"
    "characters-are-not-reached-so-quickly-as-one-might-think/kernel",
};

static const char *fresh_name(struct gen *g, char buf[320])
{
    weft_val taken;

    if (draw_one_in(&g->d, 2))
        snprintf(buf, 320, "%s", odd_names[draw_int(&g->d, 0, WF_COUNT(odd_names) - 1)]);
    else
        snprintf(buf, 320, "v%d", g->n_names++);
    while (!weft_find(g->g, buf, &taken))
        snprintf(buf + strlen(buf), 320 - strlen(buf), "_%d", g->n_names++);
    return buf;
}

/* ---- looking at values ----------------------------------------------------------------------- */

const struct wf_type *gen_type(const struct gen *g, weft_val v)
{
    return &g->c->first.val[v.id].type;
}

double gen_max_abs(const struct gen *g, weft_val v)
{
    const struct wf_tensor *t = &g->c->first.val[v.id];
    int64_t n = wf_count(t);
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = fabs(wf_get(t->data, t->type.dtype, i));

        most = x <= most ? most : x; /* a NaN stays NaN */
    }
    return most;
}

static bool of_kind(weft_dtype t, unsigned kinds)
{
    return ((kinds & FLOATS) && wf_is_float(t)) || ((kinds & INTS) && wf_is_int(t)) ||
           ((kinds & BOOLS) && t == WEFT_BOOL) ||
           ((kinds & INDEX) && (t == WEFT_I32 || t == WEFT_I64));
}

/* ---- building -------------------------------------------------------------------------------- */

/* Finite and not huge; other values are kept now and then. */
static bool worth_keeping(struct gen *g, weft_val v)
{
    double most = wf_is_float(gen_type(g, v)->dtype) ? gen_max_abs(g, v) : 0;
    bool half = gen_type(g, v)->dtype == WEFT_F16;

    return most <= (half ? 100 : 1000) || draw_one_in(&g->d, 40);
}

static void keep(struct gen *g, weft_val v)
{
    if (g->n_pool < MAX_POOL && worth_keeping(g, v))
        g->pool[g->n_pool++] = v;
}

static const weft_tensor *feed_of(const struct gen *g, int64_t k)
{
    for (int i = 0; i < g->c->n_feeds; i++)
        if (g->g->values[g->c->feed[i].id].node == k)
            return &g->c->feeds[0][i];
    return NULL;
}

bool gen_settle(struct gen *g)
{
    bool ok = true;

    for (; g->n_done < g->g->n_nodes; g->n_done++) {
        const struct wf_node *n = &g->g->nodes[g->n_done];

        ok &= !plain_node(&g->c->first, g->n_done, feed_of(g, g->n_done));
        for (int i = 0; !ok && i < n->n_out; i++)
            g->c->first.val[n->first_out + i].data = NULL;
    }
    return ok;
}

/* A builder failed: the graph continues as if it had not been called. */
static void forgive(struct gen *g)
{
    g->g->st = WEFT_OK;
    g->g->error[0] = '\0';
}

bool gen_fail(struct gen *g, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(g->broken, sizeof g->broken, fmt, args);
    va_end(args);
    forgive(g);
    gen_settle(g);
    return false;
}

bool gen_take(struct gen *g, weft_val v)
{
    if (!v.id || g->g->st) {
        forgive(g);
        gen_settle(g);
        return false;
    }
    if (!gen_settle(g) || !g->c->first.val[v.id].data)
        return false;
    keep(g, v);
    return true;
}

weft_val gen_op(struct gen *g, const char *op, int n_in, const weft_val *in, const char *fmt, ...)
{
    char attrs[512], name[320];
    weft_val out;
    int n_out;
    va_list args;

    for (int i = 0; i < n_in; i++)
        if (in[i].id && !g->c->first.val[in[i].id].data)
            return WEFT_NIL;
    va_start(args, fmt);
    vsnprintf(attrs, sizeof attrs, fmt, args);
    va_end(args);
    out = weft_op(g->g, op, n_in, in, attrs);
    if (!out.id) {
        forgive(g);
        return WEFT_NIL;
    }
    n_out = wf_val_node(g->g, out)->n_out;
    if (draw_one_in(&g->d, 6))
        weft_named(g->g, out, fresh_name(g, name));
    if (!gen_settle(g))
        return WEFT_NIL;
    for (int i = 0; i < n_out; i++)
        if (i == 0 || draw_one_in(&g->d, 2))
            keep(g, (weft_val){out.id + i});
    return out;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

int64_t gen_size(struct gen *g)
{
    static const int64_t sizes[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 16, 17};
    static const int64_t large[] = {33, 64, 100, 130};

    if (draw_one_in(&g->d, 60) && !g->smooth)
        return 0;
    if (g->large && draw_one_in(&g->d, 3))
        return large[draw_int(&g->d, 0, WF_COUNT(large) - 1)];
    return sizes[draw_int(&g->d, 0, WF_COUNT(sizes) - 1)];
}

weft_dtype gen_float(struct gen *g)
{
    static const weft_dtype others[] = {WEFT_F64, WEFT_F16, WEFT_BF16, WEFT_F32};

    return draw_one_in(&g->d, 12) && !g->smooth ? others[draw_int(&g->d, 0, 3)] : g->main_type;
}

struct fill {
    double lo, hi;
    bool whole, sorted;
};

static void fill(struct gen *g, weft_dtype t, void *data, int64_t n, struct fill f)
{
    double last = f.lo;

    for (int64_t i = 0; i < n; i++) {
        double v = f.whole ? (double)draw_int(&g->d, (int64_t)f.lo, (int64_t)f.hi)
                           : draw_real(&g->d, f.lo, f.hi);

        if (f.sorted) {
            last = fmin(f.hi, last + (draw_one_in(&g->d, 2) ? 1 : 0));
            v = last;
        }
        if (wf_is_float(t))
            wf_set(data, t, i, v);
        else
            wf_set_int(data, t, i, (int64_t)v);
    }
}

static void *leaf_data(struct gen *g, weft_dtype t, int64_t n, struct fill f)
{
    char *m = wf_arena_alloc(&g->c->first.arena, (size_t)(n * weft_dtype_size(t)) + 128);

    m += (64 - (uintptr_t)m % 64) % 64;
    fill(g, t, m, n, f);
    return m;
}

static struct fill usual_fill(struct gen *g, weft_dtype t)
{
    if (t == WEFT_BOOL)
        return (struct fill){0, 1, true, false};
    if (wf_is_int(t))
        return (struct fill){t == WEFT_U8 ? 0 : -3, 4, true, false};
    if (g->whole && !draw_one_in(&g->d, 4))
        return (struct fill){-3, 3, true, false};
    return (struct fill){-1.5, 1.5, false, false};
}

static int64_t count_of(int rank, const int64_t *dim)
{
    int64_t n = 1;

    for (int i = 0; i < rank; i++)
        n *= dim[i];
    return n;
}

static bool is_batch(const struct gen *g, int rank, const int64_t *dim)
{
    return g->batch[0] && rank > 0 && dim[0] == g->batch[0];
}

static weft_val new_feed(struct gen *g, weft_dtype t, int rank, const int64_t *dim, struct fill f)
{
    struct graph_case *c = g->c;
    int64_t declared[WEFT_MAX_RANK];
    bool batch = is_batch(g, rank, dim);
    char name[320];
    weft_val v;

    if (c->n_feeds == MAX_FEEDS)
        return WEFT_NIL;
    for (int i = 0; i < rank; i++)
        declared[i] = dim[i];
    if (batch) {
        declared[0] = WEFT_ANY;
        c->has_batch = true;
    }
    v = weft_placeholder(g->g, fresh_name(g, name), t, rank, declared);
    if (!v.id) {
        forgive(g);
        return v;
    }
    for (int s = 0; s < c->n_sets; s++) {
        int64_t d[WEFT_MAX_RANK];

        for (int i = 0; i < rank; i++)
            d[i] = i == 0 && batch ? g->batch[s] : dim[i];
        c->feeds[s][c->n_feeds] = weft_view(t, leaf_data(g, t, count_of(rank, d), f), rank, d);
    }
    c->feed[c->n_feeds++] = v;
    return v;
}

weft_val gen_variable(struct gen *g, weft_dtype t, int rank, const int64_t *dim, bool state)
{
    struct wf_tensor value = {wf_type_of(t, rank, dim), NULL};
    char name[320];
    weft_val v = weft_variable(g->g, fresh_name(g, name), rank, dim,
                               WEFT_OPTS(weft_variable_opts, .dtype = t, .not_trainable = state));

    if (!v.id) {
        forgive(g);
        return v;
    }
    value.data = leaf_data(g, t, count_of(rank, dim), usual_fill(g, t));
    plain_set_var(&g->c->first, wf_val_node(g->g, v)->var, &value);
    return v;
}

static weft_val new_constant(struct gen *g, weft_dtype t, int rank, const int64_t *dim,
                             struct fill f)
{
    static const double special[] = {0, 1, -1, 2, 0.5};
    void *data = leaf_data(g, t, count_of(rank, dim), f);
    weft_tensor view = weft_view(t, data, rank, dim);

    if (count_of(rank, dim) == 1 && wf_is_float(t) && draw_one_in(&g->d, 2))
        wf_set(data, t, 0, special[draw_int(&g->d, 0, WF_COUNT(special) - 1)]);
    else if (draw_one_in(&g->d, 6)) /* the same number everywhere */
        for (int64_t i = 0; i < weft_tensor_count(&view); i++)
            wf_set(data, t, i, wf_is_float(t) && draw_one_in(&g->d, 9) ? 0.75 : 1);
    return weft_constant(g->g, &view);
}

static weft_val settled(struct gen *g, weft_val v)
{
    if (!v.id)
        forgive(g);
    return v.id && gen_settle(g) ? v : WEFT_NIL;
}

weft_val gen_leaf(struct gen *g, weft_dtype t, int rank, const int64_t *dim)
{
    int64_t pick = draw_int(&g->d, 0, 9);
    weft_val v;

    if (is_batch(g, rank, dim) || pick < 4)
        v = new_feed(g, t, rank, dim, usual_fill(g, t));
    else if (pick < 8 && (t == WEFT_F32 || draw_one_in(&g->d, 3)))
        v = gen_variable(g, t, rank, dim, t != WEFT_F32 || draw_one_in(&g->d, 8));
    else
        v = new_constant(g, t, rank, dim, usual_fill(g, t));
    v = settled(g, v);
    if (v.id)
        keep(g, v);
    return v;
}

weft_val gen_ids_typed(struct gen *g, weft_dtype t, int64_t lo, int64_t hi, bool sorted, int rank,
                       const int64_t *dim)
{
    struct fill f = {(double)lo, (double)hi, true, sorted};
    bool constant = !is_batch(g, rank, dim) && draw_one_in(&g->d, 3);

    if (hi < lo && count_of(rank, dim) > 0)
        return WEFT_NIL;
    return settled(g, constant ? new_constant(g, t, rank, dim, f) : new_feed(g, t, rank, dim, f));
}

weft_val gen_ids(struct gen *g, int64_t lo, int64_t hi, int rank, const int64_t *dim)
{
    return gen_ids_typed(g, draw_one_in(&g->d, 2) ? WEFT_I32 : WEFT_I64, lo, hi, false, rank, dim);
}

/* ---- asking for values ----------------------------------------------------------------------- */

static weft_val random_leaf(struct gen *g, unsigned kinds, int min_rank, int max_rank)
{
    static const weft_dtype ints[] = {WEFT_I32, WEFT_I64, WEFT_I8, WEFT_U8};
    int64_t dim[WEFT_MAX_RANK], most = g->large ? 20000 : 600, n = 1;
    int rank = (int)draw_int(&g->d, min_rank,
                             max_rank < 4   ? max_rank
                             : 4 > min_rank ? 4
                                            : min_rank);
    weft_dtype t = kinds & FLOATS  ? gen_float(g)
                   : kinds & BOOLS ? WEFT_BOOL
                                   : ints[draw_int(&g->d, 0, kinds & INDEX ? 1 : 3)];

    for (int i = 0; i < rank; i++) {
        dim[i] = i == 0 && g->batch[0] && draw_one_in(&g->d, 2) ? g->batch[0] : gen_size(g);
        if (n * dim[i] > most)
            dim[i] = 1;
        n *= dim[i];
    }
    return gen_leaf(g, t, rank, dim);
}

/* Prefers recent values. */
static weft_val from_pool(struct gen *g)
{
    int64_t a, b;

    if (!g->n_pool)
        return WEFT_NIL;
    a = draw_int(&g->d, 0, g->n_pool - 1);
    b = draw_int(&g->d, 0, g->n_pool - 1);
    return g->pool[a > b ? a : b];
}

weft_val gen_any(struct gen *g, unsigned kinds, int min_rank, int max_rank)
{
    for (int i = 0; i < 10 && !draw_one_in(&g->d, 14); i++) {
        weft_val v = from_pool(g);

        if (v.id && of_kind(gen_type(g, v)->dtype, kinds) && gen_type(g, v)->rank >= min_rank &&
            gen_type(g, v)->rank <= max_rank && wf_type_count(gen_type(g, v)) <= 40000)
            return v;
    }
    return random_leaf(g, kinds, min_rank, max_rank);
}

weft_val gen_typed(struct gen *g, weft_dtype t, int rank, const int64_t *dim)
{
    struct wf_type want = wf_type_of(t, rank, dim);
    int start = g->n_pool ? (int)draw_int(&g->d, 0, g->n_pool - 1) : 0;

    for (int i = 0; i < g->n_pool && !draw_one_in(&g->d, 30); i++) {
        weft_val v = g->pool[(start + i) % g->n_pool];
        const struct wf_type *has = gen_type(g, v);

        if (wf_type_same_shape(has, &want)) {
            if (has->dtype == t)
                return v;
            if (wf_is_float(t) && draw_one_in(&g->d, 4))
                return gen_op(g, "cast", 1, &v, "dtype=%s", weft_dtype_name(t));
        }
        if (has->dtype == t && rank > 0 && wf_type_count(has) == wf_type_count(&want) &&
            !is_batch(g, rank, dim) && draw_one_in(&g->d, 4)) {
            char shape[128] = "";

            for (int k = 0; k < rank; k++)
                sprintf(shape + strlen(shape), "%s%lld", k ? "," : "", (long long)dim[k]);
            return gen_op(g, "reshape", 1, &v, "shape=[%s]", shape);
        }
    }
    return gen_leaf(g, t, rank, dim);
}

weft_val gen_like(struct gen *g, weft_val v)
{
    struct wf_type t = *gen_type(g, v);

    return gen_typed(g, t.dtype, t.rank, t.dim);
}

weft_val gen_spread(struct gen *g, weft_dtype t, weft_val v)
{
    struct wf_type s = *gen_type(g, v);
    int drop = 0;

    switch (draw_int(&g->d, 0, 5)) {
    case 0: s.rank = 0; break;
    case 1: drop = s.rank ? (int)draw_int(&g->d, 0, s.rank) : 0; break;
    case 2:
        for (int i = 0; i < s.rank; i++)
            if (draw_one_in(&g->d, 2))
                s.dim[i] = 1;
        break;
    default: break;
    }
    return gen_typed(g, t, s.rank - drop, s.dim + drop);
}

/* ---- the whole graph ------------------------------------------------------------------------- */

static void open_case(struct gen *g, uint64_t seed)
{
    static const weft_dtype mains[] = {WEFT_F64, WEFT_F16, WEFT_BF16};
    struct graph_case *c = g->c;

    /* Gradient rules round constants to the type of their operands: gradients in halves are not
     * exact in f64 either. */
    g->main_type = draw_one_in(&g->d, 8) && !g->smooth ? mains[draw_int(&g->d, 0, 2)] : WEFT_F32;
    g->large = draw_one_in(&g->d, 24);
    g->whole = draw_one_in(&g->d, 4) && !g->smooth;
    c->n_sets = (int)draw_int(&g->d, 1, MAX_SETS);
    c->seed = seed;
    if (draw_one_in(&g->d, 3)) {
        g->batch[0] = 6;
        g->batch[1] = draw_int(&g->d, 1, 11);
        g->batch[2] = draw_one_in(&g->d, 2) ? 6 : draw_int(&g->d, 0, 3);
    }
}

static void draw_fetches(struct gen *g)
{
    struct graph_case *c = g->c;
    int n = (int)draw_int(&g->d, 1, 6);

    for (int i = 0; i < n && g->n_pool && c->n_fetches < MAX_FETCHES; i++) {
        /* The last values depend on most of the graph. */
        weft_val v = i < 2 ? g->pool[g->n_pool - 1 - i < 0 ? 0 : g->n_pool - 1 - i] : from_pool(g);

        c->fetch[c->n_fetches++] = v;
    }
}

/* Drops feed sets whose sizes the graph cannot have. */
static void check_sets(struct gen *g)
{
    struct graph_case *c = g->c;
    weft_val roots[MAX_FETCHES + MAX_UPDATES];

    memcpy(roots, c->fetch, sizeof *roots * (size_t)c->n_fetches);
    memcpy(roots + c->n_fetches, c->update, sizeof *roots * (size_t)c->n_updates);
    for (int s = 1; s < c->n_sets && c->has_batch; s++) {
        struct plain p;
        weft_status st;

        plain_init(&p, c->ctx, c->g);
        for (int64_t i = 0; i < c->g->n_vars; i++)
            plain_set_var(&p, i, &c->var[i]);
        st = plain_run(&p, c->n_feeds, c->feed, c->feeds[s], c->n_fetches + c->n_updates, roots);
        plain_free(&p);
        if (st)
            c->n_sets = s;
    }
}

/* The variables' values before any run (updates were computed while the graph was drawn). */
static void keep_variables(struct gen *g)
{
    struct graph_case *c = g->c;

    c->var = wf_arena_alloc(&c->first.arena, sizeof *c->var * (size_t)(c->g->n_vars + 1));
    for (int64_t i = 0; i < c->g->n_vars; i++)
        c->var[i] = c->first.val[c->g->vars[i]];
}

static void draw_controls(struct gen *g)
{
    for (int i = 0; i < 2 && g->n_pool > 4; i++) {
        weft_val a = from_pool(g), b = from_pool(g);
        bool leaf = wf_val_node(g->g, a)->op->flags & WF_LEAF;

        if (!leaf && g->g->values[b.id].node < g->g->values[a.id].node)
            weft_control(g->g, a, b);
    }
}

/* Now and then some ops, and perhaps the gradients, are built in mixed precision. */
static void draw_policy(struct gen *g)
{
    if (g->smooth || g->main_type != WEFT_F32)
        return;
    if (g->g->n_autocast && draw_one_in(&g->d, 6))
        weft_autocast_pop(g->g);
    else if (!g->g->n_autocast && draw_one_in(&g->d, 150))
        weft_autocast_push(g->g, draw_one_in(&g->d, 3) ? WEFT_F16 : WEFT_BF16);
}

weft_status case_draw(struct graph_case *c, weft_ctx *ctx, uint64_t seed, bool smooth)
{
    struct gen g = {.c = c, .d = draw_from(seed, 1), .smooth = smooth};
    weft_status st;
    int64_t n_ops;
    bool passes;

    *c = (struct graph_case){.ctx = ctx, .smooth = smooth};
    st = weft_graph_new(ctx, &c->g);
    if (st)
        return st;
    g.g = c->g;
    plain_init(&c->first, ctx, c->g);
    open_case(&g, seed);
    n_ops = draw_int(&g.d, 2, draw_one_in(&g.d, 4) ? 30 : 12);
    passes = draw_one_in(&g.d, 3);
    for (int64_t i = 0, tries = 0; i < n_ops && tries < 4 * n_ops; tries++) {
        const struct rule *r = rule_draw(&g.d, passes && !draw_one_in(&g.d, 4));

        draw_policy(&g);
        i += r->draw(&g, r->op);
    }
    if (configs_of_device() && draw_one_in(&g.d, 2))
        draw_for_devices(&g);
    if (draw_one_in(&g.d, 4))
        draw_controls(&g);
    draw_fetches(&g);
    if (g.smooth || !draw_one_in(&g.d, 3))
        draws_losses(&g);
    if (c->n_fetches + c->n_updates == 0)
        c->fetch[c->n_fetches++] = gen_any(&g, FLOATS, 0, 2);
    keep_variables(&g);
    check_sets(&g);
    for (int64_t k = 0; k < c->g->n_nodes; k++)
        c->random |= (c->g->nodes[k].op->flags & WF_RANDOM) != 0;
    return g.broken[0] ? wf_err(WEFT_EBUG, "%s", g.broken) : weft_graph_status(c->g);
}

void case_free(struct graph_case *c)
{
    plain_free(&c->first);
    weft_graph_free(c->g);
}
