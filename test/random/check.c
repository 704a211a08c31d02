/* check.c - runs a case and compares it with the expected results. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "random/random.h"

const char *const direction_names[N_DIRECTIONS] = {"plain definition", "same bits", "gradients"};

/* ---- results --------------------------------------------------------------------------------- */

/* All results of a sequence of runs: fetches of each run, then variables and slots, and the
 * gradients of the last run if they are outputs of the function. */
struct item {
    char what; /* f(etch), v(ariable), s(lot), g(radient) */
    int run, index, slot;
    bool open; /* depends on an undecided step of an optimizer */
    struct wf_tensor t;
};

struct results {
    struct wf_arena *arena;
    struct item *item;
    int n, cap;
};

static int runs_of(const struct graph_case *c)
{
    return c->n_sets + 1;
}

static void results_init(struct results *r, const struct graph_case *c, struct wf_arena *arena)
{
    r->arena = arena;
    r->cap = runs_of(c) * c->n_fetches + (2 + WF_OPTIM_MAX_SLOTS) * (int)c->g->n_vars + 1;
    r->n = 0;
    r->item = wf_arena_alloc(arena, sizeof *r->item * (size_t)r->cap);
}

static void add_item(struct results *r, char what, int run, int index, int slot,
                     const struct wf_type *type, const void *data)
{
    struct item *it = &r->item[r->n++];
    int64_t bytes = wf_type_bytes(type);

    *it = (struct item){what, run, index, slot, false, {*type, NULL}};
    it->t.data = wf_arena_alloc(r->arena, (size_t)bytes + 1);
    if (bytes)
        memcpy(it->t.data, data, (size_t)bytes);
}

static void item_text(const struct graph_case *c, const struct item *it, char buf[256])
{
    weft_val v = it->what == 'f' ? c->fetch[it->index] : (weft_val){c->g->vars[it->index]};

    if (it->what == 'f')
        snprintf(buf, 256, "run %d, fetch %d '%.100s' (%s)", it->run, it->index,
                 weft_val_name(c->g, v), wf_val_node(c->g, v)->op->name);
    else if (it->what == 'v')
        snprintf(buf, 256, "variable '%.100s'", weft_val_name(c->g, v));
    else if (it->what == 'g')
        snprintf(buf, 256, "gradient of '%.100s'", weft_val_name(c->g, v));
    else
        snprintf(buf, 256, "slot %d of '%.100s'", it->slot, weft_val_name(c->g, v));
}

/* ---- expected results ------------------------------------------------------------------------ */

static void add_state(const struct graph_case *c, const struct plain *p, struct results *r)
{
    for (int64_t i = 0; i < c->g->n_vars; i++) {
        bool open = p->peers && p->peers->open_var[i];

        add_item(r, 'v', 0, (int)i, 0, &p->var[i].type, p->var[i].data);
        r->item[r->n - 1].open = open;
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            if (p->slot[i][k]) {
                struct wf_type f32 = p->var[i].type;

                f32.dtype = WEFT_F32;
                add_item(r, 's', 0, (int)i, k, &f32, p->slot[i][k]);
                r->item[r->n - 1].open = open;
            }
    }
}

/* The first step of an optimizer on variable i, or NULL. */
static const struct wf_node *first_step(const struct graph_case *c, int64_t i)
{
    const struct wf_node *first = NULL;

    for (int k = 0; k < c->n_updates; k++) {
        const struct wf_node *n = wf_val_node(c->g, c->update[k]);

        if (n->op->id == WF_OP_apply && n->in[0] == c->g->vars[i] && (!first || n < first))
            first = n;
    }
    return first;
}

static void add_gradients(const struct graph_case *c, const struct plain *p, struct results *r)
{
    for (int64_t i = 0; c->flat && i < c->g->n_vars; i++) {
        const struct wf_node *n = first_step(c, i);

        if (n) {
            add_item(r, 'g', 0, (int)i, 0, &p->val[n->in[1]].type, p->val[n->in[1]].data);
            r->item[r->n - 1].open = plain_is_open(p, (weft_val){n->in[1]});
        }
    }
}

/* Runs the whole sequence n times in lockstep, each with its own results. */
static weft_status run_plain(const struct graph_case *c, struct plain *p, int n, struct results *r)
{
    weft_val roots[MAX_FETCHES + MAX_UPDATES];
    weft_status st = WEFT_OK;

    memcpy(roots, c->fetch, sizeof *roots * (size_t)c->n_fetches);
    memcpy(roots + c->n_fetches, c->update, sizeof *roots * (size_t)c->n_updates);
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < c->g->n_vars; i++)
            plain_set_var(&p[j], i, &c->var[i]);
    for (int run = 0; run < runs_of(c) && !st; run++) {
        st = plain_run_all(p, n, c->n_feeds, c->feed, c->feeds[run % c->n_sets],
                           c->n_fetches + c->n_updates, roots);
        for (int j = 0; j < n && !st; j++)
            for (int i = 0; i < c->n_fetches; i++) {
                struct wf_tensor t = plain_fetch(&p[j], c->fetch[i]);

                add_item(&r[j], 'f', run, i, 0, &t.type, t.data);
                r[j].item[r[j].n - 1].open = plain_is_open(&p[j], c->fetch[i]);
            }
    }
    for (int j = 0; j < n && !st; j++) {
        add_state(c, &p[j], &r[j]);
        add_gradients(c, &p[j], &r[j]);
    }
    return st;
}

/* ---- actual results -------------------------------------------------------------------------- */

/* The graph after saving and reading it as text; nodes and values keep their numbers. */
static weft_status through_text(const struct graph_case *c, weft_ctx *ctx, weft_graph **out)
{
    char *text = NULL;
    weft_status st = weft_graph_text(c->g, &text);

    if (!st)
        st = weft_graph_parse(ctx, text, (int64_t)strlen(text), out);
    weft_text_free(c->ctx, text);
    if (!st && ((*out)->n_values != c->g->n_values || (*out)->n_nodes != c->g->n_nodes))
        st = wf_err(WEFT_EBUG, "read back: %lld nodes instead of %lld", (long long)(*out)->n_nodes,
                    (long long)c->g->n_nodes);
    return st;
}

static weft_status set_variables(const struct graph_case *c, weft_fn *fn)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < c->g->n_vars && !st; i++) {
        const struct wf_tensor *v = &c->var[i];
        weft_tensor t = weft_view(v->type.dtype, v->data, v->type.rank, v->type.dim);

        st = weft_fn_set(fn, weft_val_name(c->g, (weft_val){c->g->vars[i]}), &t);
    }
    return st;
}

static weft_status add_store(const struct graph_case *c, weft_fn *fn, struct results *r)
{
    const struct wf_store *s = fn->store;
    weft_status st = wf_store_pull(fn->store, WF_PART_ALL);
    int64_t n_grads;
    const float *grads = c->flat ? weft_fn_gradients(fn, &n_grads) : NULL;

    if (st)
        return st;

    for (int64_t i = 0; i < c->g->n_vars; i++) {
        const struct wf_segment *seg = &s->seg[i];

        add_item(r, 'v', 0, (int)i, 0, &seg->type, wf_store_data(s, seg));
        for (int k = 0; k < seg->n_slots; k++)
            add_item(r, 's', 0, (int)i, k, &seg->type, wf_store_slot(s, seg, k));
    }
    for (int64_t i = 0; c->flat && i < c->g->n_vars; i++)
        if (first_step(c, i))
            add_item(r, 'g', 0, (int)i, 0, &s->seg[i].type, grads + s->seg[i].offset);
    return WEFT_OK;
}

static weft_status run_fn(const struct graph_case *c, const struct config *f, struct results *r)
{
    weft_graph *read = NULL;
    weft_tensor out[MAX_FETCHES];
    weft_gradient gradients[MAX_UPDATES];
    int n_gradients = 0;
    weft_fn *fn = NULL;
    weft_status st = f->text ? through_text(c, c->ctx, &read) : WEFT_OK;

    for (int64_t i = 0; c->flat && i < c->g->n_vars; i++) {
        const struct wf_node *n = first_step(c, i);

        if (n)
            gradients[n_gradients++] = (weft_gradient){{n->in[0]}, {n->in[1]}, 0};
    }
    if (!st)
        st = weft_fn_new(read ? read : c->g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = c->n_feeds, .feeds = c->feed,
                                   .n_fetches = c->n_fetches, .fetches = c->fetch,
                                   .n_updates = c->n_updates, .updates = c->update,
                                   .passes_off = f->passes_off, .reference_kernels = f->reference,
                                   .max_plans = f->max_plans, .n_gradients = n_gradients,
                                   .gradients = gradients, .without = f->without),
                         &fn);
    if (!st)
        st = set_variables(c, fn);
    for (int run = 0; run < runs_of(c) && !st; run++) {
        memset(out, 0, sizeof out);
        st = weft_fn_run(fn, c->feeds[run % c->n_sets], out);
        for (int i = 0; i < c->n_fetches && !st; i++) {
            struct wf_type t = wf_type_of(out[i].dtype, out[i].rank, out[i].dim);

            add_item(r, 'f', run, i, 0, &t, out[i].data);
        }
    }
    if (!st)
        st = add_store(c, fn, r);
    if (!st) {
        for (int i = 0; i < fn->n_plans; i++)
            cover_graph(fn->plans[i]->graph, true);
    }
    weft_fn_free(fn);
    weft_graph_free(read);
    return st;
}

/* ---- comparing ------------------------------------------------------------------------------- */

void report_fail(struct report *r, const char *fmt, ...)
{
    va_list args;

    r->failed = true;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
}

/* The same items in the same order, with the same types. */
static bool same_layout(const struct graph_case *c, const struct results *a,
                        const struct results *b, struct report *r)
{
    char ta[WF_TYPE_TEXT], tb[WF_TYPE_TEXT], what[256];

    if (a->n != b->n) {
        report_fail(r, "got %d results, expected %d", b->n, a->n);
        return false;
    }
    for (int i = 0; i < a->n; i++)
        if (a->item[i].t.type.dtype != b->item[i].t.type.dtype ||
            !wf_type_same_shape(&a->item[i].t.type, &b->item[i].t.type)) {
            item_text(c, &a->item[i], what);
            report_fail(r, "%s: type %s, expected %s", what, wf_type_text(&b->item[i].t.type, tb),
                        wf_type_text(&a->item[i].t.type, ta));
            return false;
        }
    return true;
}

static double unit_of(weft_dtype t)
{
    return t == WEFT_F64 ? 0x1p-53 : t == WEFT_F32 ? 0x1p-24 : t == WEFT_F16 ? 0x1p-11 : 0x1p-8;
}

/* The first element that differs by more than a few roundings, or -1. */
static int64_t first_far(const struct wf_tensor *want, const struct wf_tensor *got)
{
    weft_dtype t = want->type.dtype;
    double unit = wf_is_float(t) ? unit_of(t) : 0;
    int64_t n = wf_count(want);

    for (int64_t i = 0; i < n; i++) {
        double a = wf_get(want->data, t, i), b = wf_get(got->data, t, i);

        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 8 * unit * fabs(a)))
            return i;
    }
    return -1;
}

static bool any_far(const struct results *want, const struct results *got)
{
    for (int i = 0; i < want->n; i++)
        if (first_far(&want->item[i].t, &got->item[i].t) >= 0)
            return true;
    return false;
}

/* What the noisy runs say about one element: whether they agree, and on what. */
struct spread {
    double lo, hi;
    bool settled; /* all finite, or all the same infinity or NaN */
};

static struct spread spread_of(const struct results *noisy, int n, int item, int64_t e)
{
    struct spread s = {INFINITY, -INFINITY, true};
    int n_odd = 0;

    for (int k = 0; k < n; k++) {
        const struct wf_tensor *t = &noisy[k].item[item].t;
        double v = wf_get(t->data, t->type.dtype, e);

        n_odd += !isfinite(v);
        s.lo = fmin(s.lo, v);
        s.hi = fmax(s.hi, v);
    }
    s.settled = n_odd == 0 || n_odd == n;
    return s;
}

/* Whether an element is outside of what rounding explains. */
static bool is_wrong(const struct spread *s, double want, double got, weft_dtype t, bool odd)
{
    double slack;

    if (want == got || (isnan(want) && isnan(got)) || !s->settled)
        return false;
    if (odd && !(isfinite(want) && isfinite(got)))
        return false; /* how NaN spreads is not specified: 0 times NaN where there is only
                       * padding */
    if (!wf_is_float(t))
        return s->lo == s->hi;
    if (!isfinite(s->lo) || !isfinite(s->hi)) /* all runs agree on NaN or infinity */
        return isfinite(got) && !isfinite(want);
    if (isnan(want) || isinf(want))
        return false; /* an overflow of the narrow type inside the op */
    slack = 3 * (s->hi - s->lo) + 8 * unit_of(t) * fabs(want) +
            (t == WEFT_F16   ? 0x1p-23
             : t == WEFT_F64 ? 0
                             : 0x1p-140);
    return !(got >= fmin(s->lo, want) - slack && got <= fmax(s->hi, want) + slack);
}

enum { N_NOISY = 12, N_ROUNDS = 10, N_ALL = N_ROUNDS * N_NOISY, MOST_BYTES = 1 << 29 };

/* An element that depends on an undecided step, and of which the runs have no digit in common: a
 * step as large as the learning rate went one way or the other, and all that followed is by chance.
 * A number as small as the noise of 0 has no digits to begin with. */
static bool is_arbitrary(const struct item *it, const struct spread *s)
{
    double size = fmax(fabs(s->lo), fabs(s->hi));

    return it->open && size > 0x1p-100 && s->hi - s->lo >= size / 2;
}

static void compare_noisy(const struct graph_case *c, const struct results *want,
                          const struct results *got, const struct results *noisy, int n_noisy,
                          bool odd, struct report *r)
{
    char what[256];

    for (int i = 0; i < want->n && !r->failed; i++) {
        const struct wf_tensor *a = &want->item[i].t, *b = &got->item[i].t;
        int64_t n = wf_count(a);

        for (int64_t e = 0; e < n && !r->failed; e++) {
            double x = wf_get(a->data, a->type.dtype, e), y = wf_get(b->data, a->type.dtype, e);
            struct spread s;

            if (x == y)
                continue;
            s = spread_of(noisy, n_noisy, i, e);
            if (isfinite(x)) {
                s.settled &= isfinite(s.lo) && isfinite(s.hi); /* else all runs were NaN */
                s.lo = fmin(s.lo, x);
                s.hi = fmax(s.hi, x);
            }
            if (is_wrong(&s, x, y, a->type.dtype, odd) &&
                !(n_noisy > N_NOISY && is_arbitrary(&noisy[0].item[i], &s))) {
                item_text(c, &want->item[i], what);
                report_fail(r, "%s, element %lld: got %.9g, expected %.9g (between %.9g and %.9g)",
                            what, (long long)e, y, x, s.lo, s.hi);
            }
        }
    }
}

/* What run k does with undecided decisions. Some of each come first: large graphs have few runs. */
static enum choice choice_of(int k)
{
    static const enum choice first[2][N_NOISY] = {
        {BELOW, EXACTLY, ABOVE},
        {FARTHEST, LARGEST, SMALLEST, NARROW, AS_IT_IS, CAUTIOUS, BELOW, EXACTLY, ABOVE}};
    static const enum choice rounds[N_ROUNDS] = {[2] = FARTHEST, AS_IT_IS, CAUTIOUS, LARGEST,
                                                 SMALLEST,       CAUTIOUS, CAUTIOUS};

    return k < 2 * N_NOISY ? first[k / N_NOISY][k % N_NOISY] : rounds[k / N_NOISY];
}

/* n of the runs that rounding and undecided decisions lead to. */
static void noisy_init(const struct graph_case *c, struct plain *q, int n, struct peers *peers,
                       struct results *noisy)
{
    for (int k = 0; k < n; k++) {
        int number = k % N_NOISY;

        plain_init(&q[k], c->ctx, c->g);
        q[k].wide = true;
        q[k].noise = 4;
        q[k].unbounded = number % 2; /* programs keep halves in f32: only some of them overflow */
        q[k].seed = c->seed * N_NOISY + (uint64_t)number;
        q[k].chance = draw_from(c->seed, 100 + (uint64_t)k);
        q[k].peers = peers;
        q[k].number = k;
        q[k].choice = choice_of(k);
        results_init(&noisy[k], c, &q[k].arena);
    }
    *peers = (struct peers){.run = q,
                            .n_noisy = N_NOISY,
                            .n = n,
                            .open_var = wf_arena_alloc(&q->arena, (size_t)c->g->n_vars + 1),
                            .open_val = wf_arena_alloc(&q->arena, (size_t)c->g->n_values + 1)};
}

static weft_status compare_with(const struct graph_case *c, const struct results *want,
                                const struct results *got, int n, bool odd, int *n_more,
                                struct report *r)
{
    struct plain q[N_ALL];
    struct results noisy[N_ALL];
    struct peers peers;
    weft_status st;

    noisy_init(c, q, n, &peers, noisy);
    st = run_plain(c, q, n, noisy);
    if (!st)
        compare_noisy(c, want, got, noisy, n, odd, r);
    *n_more = 0;
    if (peers.varies)
        *n_more = (int)wf_max_i64(2 * N_NOISY, wf_min_i64(N_ALL, MOST_BYTES / (q->bytes + 1)));
    for (int k = 0; k < n; k++)
        plain_free(&q[k]);
    return st;
}

/* Compares with the noisy runs; what these do not explain, with as many more as fit. */
static weft_status compare_far(const struct graph_case *c, const struct results *want,
                               const struct results *got, bool odd, struct report *r)
{
    struct report again = {.failed = false};
    int n, unused;
    weft_status st = compare_with(c, want, got, N_NOISY, odd, &n, r);

    if (!st && r->failed && n > 0 && !compare_with(c, want, got, n, odd, &unused, &again)) {
        *r = again;
        r->excused = !again.failed;
    }
    return st;
}

static weft_status against_plain(struct graph_case *c, const struct config *f, struct report *r)
{
    struct plain p;
    struct results want, got;
    weft_status st;

    plain_init(&p, c->ctx, c->g);
    results_init(&want, c, &p.arena);
    results_init(&got, c, &p.arena);
    st = run_plain(c, &p, 1, &want);
    if (st) { /* e.g. an index that only a later step computes */
        plain_free(&p);
        return WEFT_OK;
    }
    st = run_fn(c, f, &got);
    if (st)
        report_fail(r, "%s: %s", weft_status_name(st), weft_error());
    else if (same_layout(c, &want, &got, r) && any_far(&want, &got) &&
             compare_far(c, &want, &got, p.saw_odd, r))
        report_fail(r, "the noisy run failed: %s", weft_error());
    plain_free(&p);
    return WEFT_OK;
}

weft_status check_fault(struct graph_case *c, const struct fault *fault, bool *changed,
                        struct report *r)
{
    struct plain p, faulty;
    struct results want, got;
    weft_status st;

    *r = (struct report){.failed = false};
    plain_init(&p, c->ctx, c->g);
    plain_init(&faulty, c->ctx, c->g);
    faulty.fault = fault;
    results_init(&want, c, &p.arena);
    results_init(&got, c, &p.arena);
    st = run_plain(c, &p, 1, &want);
    if (!st)
        st = run_plain(c, &faulty, 1, &got);
    *changed = !st && same_layout(c, &want, &got, r) && any_far(&want, &got);
    if (*changed)
        st = compare_far(c, &want, &got, p.saw_odd, r);
    plain_free(&p);
    plain_free(&faulty);
    return st;
}

/* ---- looking at one case --------------------------------------------------------------------- */

/* The element of a that differs most from b, relative to its size; -1: none differs. */
static int64_t farthest(const struct wf_tensor *a, const struct wf_tensor *b)
{
    int64_t at = -1;
    double most = 0;

    for (int64_t e = 0; e < wf_count(a); e++) {
        double x = wf_get(a->data, a->type.dtype, e), y = wf_get(b->data, b->type.dtype, e);
        double far = x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y) / (fabs(x) + fabs(y));

        if (far > most || (far != far && at < 0)) {
            most = far;
            at = e;
        }
    }
    return at;
}

static void show_value(struct graph_case *c, const struct config *f, int32_t v)
{
    struct plain p, q[N_ALL];
    struct results want, got, noisy[N_ALL];
    struct peers peers;
    const struct wf_node *n = wf_val_node(c->g, (weft_val){v});

    c->fetch[c->n_fetches - 1].id = v;
    plain_init(&p, c->ctx, c->g);
    results_init(&want, c, &p.arena);
    results_init(&got, c, &p.arena);
    noisy_init(c, q, N_ALL, &peers, noisy);
    if (!run_plain(c, &p, 1, &want) && !run_fn(c, f, &got) && !run_plain(c, q, N_ALL, noisy))
        for (int i = c->n_fetches - 1; i < runs_of(c) * c->n_fetches; i += c->n_fetches) {
            const struct wf_tensor *a = &want.item[i].t, *b = &got.item[i].t;
            int64_t e = farthest(a, b);
            struct spread s = spread_of(noisy, N_ALL, i, e < 0 ? 0 : e);

            if (e >= 0)
                printf("  run %d, %%%d %s, element %lld: %.9g, plain %.9g, noisy %.9g to %.9g\n",
                       want.item[i].run, v - 1, n->op->name, (long long)e,
                       wf_get(b->data, b->type.dtype, e), wf_get(a->data, a->type.dtype, e), s.lo,
                       s.hi);
        }
    for (int k = 0; k < N_ALL; k++)
        plain_free(&q[k]);
    plain_free(&p);
}

void check_values(const struct graph_case *c, const struct config *f)
{
    struct graph_case one = *c;

    if (one.n_fetches < MAX_FETCHES)
        one.n_fetches++;
    for (int32_t v = 1; v < c->g->n_values; v++)
        show_value(&one, f, v);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static bool same_element(const struct wf_tensor *a, const struct wf_tensor *b, int64_t i)
{
    int64_t size = weft_dtype_size(a->type.dtype);

    return !memcmp((char *)a->data + i * size, (char *)b->data + i * size, (size_t)size) ||
           (isnan(wf_get(a->data, a->type.dtype, i)) && isnan(wf_get(b->data, a->type.dtype, i)));
}

static void compare_bits(const struct graph_case *c, const struct results *a,
                         const struct results *b, const char *why, struct report *r)
{
    char what[256];

    for (int i = 0; i < a->n && !r->failed; i++)
        for (int64_t e = 0; e < wf_count(&a->item[i].t) && !r->failed; e++)
            if (!same_element(&a->item[i].t, &b->item[i].t, e)) {
                item_text(c, &a->item[i], what);
                report_fail(r, "%s: %s, element %lld: %.9g and %.9g", why, what, (long long)e,
                            wf_get(a->item[i].t.data, a->item[i].t.type.dtype, e),
                            wf_get(b->item[i].t.data, b->item[i].t.type.dtype, e));
            }
}

/* The last run has the feeds of the first: without updates all results must be equal. */
static void compare_repeated(const struct graph_case *c, const struct results *a, struct report *r)
{
    int n = c->n_fetches, last = (runs_of(c) - 1) * n;
    struct results first = *a, again = *a;

    if (c->n_updates || c->waits)
        return;
    first.n = again.n = n;
    again.item = a->item + last;
    compare_bits(c, &first, &again, "repeated feeds", r);
}

/* The same graph in a context with another number of threads. */
static weft_status run_elsewhere(const struct graph_case *c, const struct config *f,
                                 struct results *r)
{
    struct graph_case other = *c;
    weft_status st;

    other.ctx = config_ctx(f);
    other.g = NULL;
    st = other.ctx ? through_text(c, other.ctx, &other.g) : WEFT_ENOMEM;
    if (!st)
        st = run_fn(&other, f, r);
    weft_graph_free(other.g);
    return st;
}

static weft_status same_bits(struct graph_case *c, const struct config *f, struct report *r)
{
    static const int threads[] = {2, 3, 7};
    struct config many = *f;
    struct results a, b;
    struct wf_arena arena;
    weft_status st;

    many.threads = threads[c->seed % 3];
    wf_arena_init(&arena, c->ctx);
    results_init(&a, c, &arena);
    results_init(&b, c, &arena);
    st = run_fn(c, f, &a);
    if (!st)
        compare_repeated(c, &a, r);
    if (!st && !r->failed) {
        st = run_elsewhere(c, &many, &b);
        if (!st && same_layout(c, &a, &b, r))
            compare_bits(c, &a, &b, "another number of threads", r);
    }
    if (st)
        report_fail(r, "%s: %s", weft_status_name(st), weft_error());
    wf_arena_free(&arena);
    return WEFT_OK;
}

weft_status check_case(struct graph_case *c, const struct config *f, enum direction dir,
                       struct report *r)
{
    r->failed = false;
    r->text[0] = '\0';
    c->flat = f->flat;
    cover_graph(c->g, false);
    switch (dir) {
    case SAME_BITS: return same_bits(c, f, r);
    case GRADIENTS: return check_gradients(c, r);
    default: return against_plain(c, f, r);
    }
}
