/* scramble.c - a strategy for tests that does everything in another order. */
#define _GNU_SOURCE
#include "support/scramble.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "train/step/dist.h"

static uint64_t next(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    return wf_hash64(s, sizeof *s, 7);
}

/* ---- computing ------------------------------------------------------------------------------- */

struct party {
    struct scramble *s;
    weft_work *w;
    pthread_mutex_t lock;
    int64_t *todo, n;
    uint64_t seed;
    weft_status st;
    char text[256];
};

struct member {
    struct party *p;
    int replica;
    float *params;
};

static void keep_error(struct party *p, weft_status st)
{
    pthread_mutex_lock(&p->lock);
    if (st && !p->st) {
        p->st = st;
        wf_snprintf(p->text, sizeof p->text, "%s", weft_error());
    }
    pthread_mutex_unlock(&p->lock);
}

static bool take(struct party *p, int64_t *number, bool *twice)
{
    bool any;

    pthread_mutex_lock(&p->lock);
    any = p->n > 0 && !p->st;
    if (any)
        *number = p->todo[--p->n];
    *twice = next(&p->seed) % 5 == 0;
    pthread_mutex_unlock(&p->lock);
    return any;
}

static weft_status compute_one(struct member *m, int64_t number)
{
    weft_given given;
    weft_status st = weft_work_compute(m->p->w, m->replica, number, &given);

    if (!st)
        st = weft_work_put(m->p->w, number, &given);
    return st;
}

/* The parameters of a member: a mapping that can only be read. */
static size_t params_bytes(const struct member *m)
{
    return (size_t)(m->p->w->rules.n_dense + 1) * sizeof *m->params;
}

static void map_params(struct member *m)
{
    struct wf_store *store = m->p->w->b->fit->store;

    m->params =
        mmap(NULL, params_bytes(m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->params == MAP_FAILED)
        abort();
    if (wf_store_pull(store, WF_PART_PARAMS))
        abort();
    memcpy(m->params, store->params, (size_t)store->n_params * sizeof *m->params);
    if (mprotect(m->params, params_bytes(m), PROT_READ))
        abort();
}

static void *work(void *arg)
{
    struct member *m = arg;
    int64_t number;
    bool twice;

    map_params(m);
    m->p->w->replica[m->replica].params = m->params;
    while (take(m->p, &number, &twice)) {
        weft_status st = compute_one(m, number);

        keep_error(m->p, st);
        if (st || !twice)
            continue;
        m->p->s->n_twice++;
        if (compute_one(m, number) != WEFT_EEXIST)
            m->p->s->bad = true; /* it would count twice */
    }
    m->p->w->replica[m->replica].params = NULL;
    munmap(m->params, params_bytes(m));
    return NULL;
}

static weft_status compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    struct scramble *s = self;
    struct party p = {.s = s, .w = w, .n = n, .seed = s->seed ^ (uint64_t)(t * 1009 + first)};
    struct member member[8];
    pthread_t thread[8];
    weft_status st = weft_work_replicas(w, s->n_stores);

    if (st)
        return st;
    pthread_mutex_init(&p.lock, NULL);
    p.todo = malloc((size_t)n * sizeof *p.todo);
    for (int64_t i = 0; i < n; i++) { /* inside out */
        int64_t k = (int64_t)(next(&p.seed) % (uint64_t)(i + 1));

        p.todo[i] = p.todo[k];
        p.todo[k] = first + i;
    }
    for (int i = 0; i < s->n_stores; i++) {
        member[i] = (struct member){&p, i, NULL};
        if (pthread_create(&thread[i], NULL, work, &member[i]))
            abort();
    }
    for (int i = 0; i < s->n_stores; i++)
        pthread_join(thread[i], NULL);
    free(p.todo);
    pthread_mutex_destroy(&p.lock);
    if (p.st)
        wf_err_set(p.text);
    return p.st;
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static weft_status count(struct scramble *s)
{
    return ++s->n_calls == s->fail_at ? wf_err(WEFT_EPEER, "call %d fails", s->fail_at) : WEFT_OK;
}

static weft_status need(void *self, const weft_range *range, int64_t t, int64_t number)
{
    (void)range;
    (void)t;
    (void)number;
    return count(self);
}

static weft_status ready(void *self, const weft_range *range, int64_t t, int64_t number,
                         const float *gradients, void *event)
{
    struct scramble *s = self;

    (void)t;
    (void)number;
    s->n_ready++;
    if (range->offset < 0 || range->count < 0 || event || !gradients)
        s->bad = true;
    return count(self);
}

/* ---- updating -------------------------------------------------------------------------------- */

enum { MAX_UPDATERS = 5, MAX_PIECES = 256 };

struct updater {
    struct wf_merge *m;
    struct wf_contribution *sum;
    struct wf_piece piece[MAX_PIECES];
    int n;
};

/* Each variable in pieces of whole blocks, dealt out at random. */
static void deal(struct scramble *s, const struct wf_rules *r, uint64_t seed, struct updater *u)
{
    for (int v = 0; v < r->n_vars; v++) {
        const struct wf_var *var = &r->var[v];
        int64_t unit = WF_NORM_BLOCK * (var->table ? var->dim[1] : 1), step = var->count;
        bool cut = !wf_weight_whole(&var->penalty, &var->constraint) &&
                   !(var->table && var->constraint.kind);

        if (cut)
            step = unit * (int64_t)(1 + next(&seed) % 3);
        for (int64_t at = 0; at < var->count; at += step) {
            struct updater *to = &u[next(&seed) % (uint64_t)s->n_updaters];
            int64_t n = wf_min_i64(step, var->count - at);

            if (to->n == MAX_PIECES)
                abort();
            to->piece[to->n++] = (struct wf_piece){v, at, n, var->table ? 0 : var->offset + at};
        }
    }
}

/* The partials of all updaters in one list. */
static int64_t gather(const struct updater *u, int n_updaters, struct wf_partial *all)
{
    int64_t n = 0;

    for (int i = n_updaters - 1; i >= 0; i--) /* any order */
        for (int64_t k = 0; k < u[i].m->n_partials; k++)
            all[n++] = u[i].m->partial[k];
    return n;
}

static weft_status update(struct scramble *s, weft_work *w, struct updater *u,
                          const struct wf_step *step)
{
    int64_t cap = u[0].m->first_block[w->rules.n_vars] + 1, n;
    struct wf_partial *all = malloc((size_t)cap * sizeof *all);
    float *scale = malloc((size_t)(w->rules.n_vars + 1) * sizeof *scale);
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->n_updaters && !st; i++)
        st = wf_merge_norms(u[i].m, u[i].sum, step);
    if (!st) {
        n = gather(u, s->n_updaters, all);
        wf_merge_scales(&w->rules, u[0].m->first_block, n, all, scale);
    }
    for (int i = 0; i < s->n_updaters && !st; i++)
        st = wf_merge_update(u[i].m, u[i].sum, step, scale, &w->now);
    n = st ? 0 : gather(u, s->n_updaters, all);
    for (int i = 0; i < s->n_updaters && !st; i++)
        wf_merge_finish(u[i].m, step, n, all, scale, &w->now);
    free(all);
    free(scale);
    return st;
}

static weft_status prepare(struct scramble *s, weft_work *w, const struct wf_contribution *sum,
                           struct updater *u)
{
    weft_status st = WEFT_OK;

    deal(s, &w->rules, s->seed + (uint64_t)weft_trainer_step(w->t), u);
    for (int i = 0; i < s->n_updaters && !st; i++) {
        st = wf_merge_new(w->ctx, w->ctx->pool, &w->rules, u[i].n, u[i].piece, &u[i].m);
        if (!st)
            st = wf_contribution_new(w->ctx, &w->rules, &u[i].sum);
        if (!st)
            st = wf_contribution_copy(u[i].sum, sum);
    }
    for (int i = 0; i < s->n_updaters && !st; i++)
        st = wf_merge_mean(u[i].m, u[i].sum, w->now.params);
    return st;
}

static weft_status apply(void *self, weft_work *w, int64_t t)
{
    struct scramble *s = self;
    struct updater *u = calloc(MAX_UPDATERS, sizeof *u);
    struct wf_step step = {.iteration = t + 1, .has_rate = w->b->rate.id != 0, .rate = w->t->rate};
    struct wf_contribution *sum = NULL;
    weft_status st = count(self);

    if (!st)
        st = wf_tree_sum(&w->tree, &sum);
    if (!st && !sum)
        abort(); /* the tests have samples in every step */
    if (!st && !sum->finite) {
        st = wf_work_step(w, sum, NULL);
    } else if (!st) {
        uint64_t mode = wf_fpmode_enter(w->ctx->flush_denormals);

        st = wf_work_open(w, WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_TABLES);
        if (!st)
            st = prepare(s, w, sum, u);
        if (!st)
            st = update(s, w, u, &step);
        wf_fpmode_leave(mode);
        if (!st)
            wf_work_done(w);
    }
    if (!st)
        wf_work_take_state(w, sum);
    wf_tree_give(&w->tree, sum);
    for (int i = 0; i < MAX_UPDATERS; i++) {
        wf_merge_free(u[i].m);
        wf_contribution_free(u[i].sum);
    }
    free(u);
    return st;
}

static weft_status open_scramble(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                                 int *first)
{
    struct scramble *s = arg;

    (void)ctx;
    *self = s;
    *replicas = *local = s->n_stores;
    *first = 0;
    return s->n_stores < 1 || s->n_stores > 8 || s->n_updaters < 1 || s->n_updaters > MAX_UPDATERS
               ? wf_err(WEFT_EINVAL, "%d stores, %d updaters", s->n_stores, s->n_updaters)
               : WEFT_OK;
}

const weft_strategy scramble_strategy = {.size = sizeof scramble_strategy,
                                         .name = "scramble",
                                         .doc = "for tests",
                                         .open = open_scramble,
                                         .compute = compute,
                                         .need = need,
                                         .ready = ready,
                                         .apply = apply};

/* ---- local, without fused updates ------------------------------------------------------------ */

static weft_status open_unfused(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                                int *first)
{
    (void)ctx;
    *self = arg;
    *replicas = *local = 1;
    *first = 0;
    return WEFT_OK;
}

static weft_status compute_unfused(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    weft_status st = WEFT_OK;

    (void)self;
    (void)t;
    for (int64_t k = first + n - 1; k >= first && !st; k--) {
        weft_given given;

        st = weft_work_compute(w, 0, k, &given);
        if (!st)
            st = weft_work_put(w, k, &given);
    }
    return st;
}

static weft_status apply_unfused(void *self, weft_work *w, int64_t t)
{
    (void)self;
    (void)t;
    return weft_work_update(w);
}

const weft_strategy unfused_strategy = {.size = sizeof unfused_strategy,
                                        .name = "unfused",
                                        .doc = "for tests",
                                        .open = open_unfused,
                                        .compute = compute_unfused,
                                        .apply = apply_unfused};
