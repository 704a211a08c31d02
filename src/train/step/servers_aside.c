/* servers_aside.c - steps of the servers that update nothing: batches of validation data are
 * evaluated, by all workers, on one version; or parameters are replaced, by those of a control
 * record. Who computes which shard, and what happens if a worker dies, is as in any step.
 *
 * Kept true: the trainer's step stays what it is; a shard gives the same whoever computes it. */
#include <math.h>
#include <stdio.h>

#include "train/step/rounds.h"
#include "train/step/servers.h"

static struct wf_servers *servers_of(const weft_trainer *t)
{
    return t->dist->self;
}

static const double *marks_of(const struct wf_servers *s)
{
    return wf_ps_worker_sums(s->worker) + wf_servers_marks(s);
}

/* ---- where the job is ------------------------------------------------------------------------ */

int64_t wf_dist_at(const weft_trainer *t)
{
    return servers_of(t)->version;
}

struct wf_dist_validation wf_dist_validation(const weft_trainer *t)
{
    const struct wf_servers *s = servers_of(t);
    struct wf_dist_validation v = {.n_slots = s->worker ? s->job.logs.n_slots : 0};
    const double *marks;

    if (v.n_slots == 0)
        return v;
    marks = marks_of(s);
    v.begun = marks[WF_PS_KIND] == WF_PS_STILL;
    if (!v.begun)
        return v;
    v.rounds = (int64_t)marks[WF_PS_ROUNDS];
    v.batches = (int64_t)marks[WF_PS_VALIDATED];
    v.totals = marks + WF_PS_TOTALS + wf_logs_totals(&s->job.logs);
    return v;
}

bool wf_dist_was_set(const weft_trainer *t)
{
    const struct wf_servers *s = servers_of(t);

    return s->worker && wf_ps_replaces((enum wf_ps_kind)marks_of(s)[WF_PS_KIND]);
}

int64_t wf_dist_trained(const weft_trainer *t)
{
    return wf_dist_at(t) - wf_dist_validation(t).rounds;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What a shard gives, in s->sums, which are 0; *g: or gradients, too. */
typedef weft_status shard_fn(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what);

/* A shard, or the reason why it is not needed any more: then the next turn says so. */
static weft_status give(struct wf_servers *s, int shard, shard_fn *fn, void *arg,
                        const struct wf_ps_mark *mark, int *failed)
{
    struct wf_ps_given what = {.rate = NAN, .mark = *mark};
    weft_status st;

    memset(s->sums, 0, (size_t)(s->job.rules.n_sums + s->job.n_logs) * sizeof *s->sums);
    st = fn(arg, s, shard, &what);
    if (st == WEFT_ESTATE && *failed != shard) { /* the version may be gone: others computed it */
        *failed = shard;
        return WEFT_OK;
    }
    return st ? st : wf_ps_worker_give(s->worker, s->version, shard, &what);
}

static weft_status run(weft_trainer *t, struct wf_ps_mark mark, shard_fn *fn, void *arg)
{
    struct wf_servers *s = servers_of(t);
    struct wf_ps_ask ask = {.t = s->version};
    enum wf_ps_next next = WF_PS_COMPUTE;
    int shard, failed = -1;
    weft_status st = wf_ps_worker_turn(s->worker, &ask, &next);

    mark.control = wf_ps_worker_taken(s->worker);
    mark.step = weft_trainer_step(t);
    s->turned = false;
    while (!st) {
        st = wf_servers_next(s, s->version, &next, &shard);
        if (st || next == WF_PS_COMPLETE)
            break;
        st = give(s, shard, fn, arg, &mark, &failed);
    }
    if (st)
        return st;
    st = wf_servers_have(s, s->version + 1);
    return st == WEFT_ESTATE ? wf_servers_give_up(s, s->version - 1, WF_PS_REJOIN) : st;
}

/* ---- validation ------------------------------------------------------------------------------ */

struct evaluation {
    const struct wf_dist_validation *v;
    wf_evaluate_fn *fn;
    void *arg;
};

/* The shard's batches: a run of those of this step, so that their order is that of the data. */
static weft_status evaluate(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what)
{
    const struct evaluation *e = arg;
    const struct wf_log_rules *l = &s->job.logs;
    int64_t first = e->v->rounds * l->n_slots, shards = s->job.plan.n_shards, n = wf_logs_totals(l);
    int64_t from = shard * l->n_slots / shards, to = (shard + 1) * l->n_slots / shards;
    double *sums = s->sums + s->job.rules.n_sums + l->n_batches * wf_logs_sums(&s->job.rules, l);
    bool end = false;
    weft_status st = WEFT_OK;

    for (int64_t b = from; b < to && !st && !end; b++)
        st = e->fn(e->arg, first + b, sums + b * n, &end);
    what->sums = s->sums;
    return st;
}

weft_status wf_dist_evaluate(weft_trainer *t, wf_evaluate_fn *fn, void *arg)
{
    struct wf_dist_validation v = wf_dist_validation(t);
    struct evaluation e = {&v, fn, arg};

    return run(t, (struct wf_ps_mark){.kind = WF_PS_STILL, .fresh = !v.begun}, evaluate, &e);
}

/* ---- other parameters ------------------------------------------------------------------------ */

bool wf_dist_changed(weft_trainer *t)
{
    return servers_of(t)->n_ops > 0 || wf_servers_changed(servers_of(t));
}

static struct wf_rows *new_lists(struct wf_servers *s, struct wf_rows **lists)
{
    if (!*lists)
        *lists = wf_alloc_n(s->ctx, s->w->rules.n_vars + 1, sizeof **lists);
    return *lists;
}

static void free_lists(struct wf_servers *s, struct wf_rows **lists)
{
    for (int v = 0; *lists && v < s->w->rules.n_vars; v++) {
        wf_free(s->ctx, (*lists)[v].id);
        wf_free(s->ctx, (*lists)[v].row);
    }
    wf_free(s->ctx, *lists);
    *lists = NULL;
}

void wf_servers_drop_set(struct wf_servers *s)
{
    for (int i = 0; i < s->n_ops; i++)
        free_lists(s, &s->op[i].rows);
    s->n_ops = 0;
    s->set_bytes = 0;
    free_lists(s, &s->given_set);
}

/* What a callback does next: with what came before, as one step, if `joins`. */
static weft_status next_op(struct wf_servers *s, enum wf_ps_kind kind, bool joins)
{
    if (joins) {
        s->op[s->n_ops - 1].kind = kind;
        return WEFT_OK;
    }
    if (s->n_ops == WF_SET_OPS)
        return wf_err(WEFT_ELIMIT,
                      "callbacks set rows of tables and keep or restore best weights in turns, "
                      "more than %d times between two steps",
                      WF_SET_OPS);
    s->op[s->n_ops++] = (struct wf_set_op){kind, NULL};
    return WEFT_OK;
}

static weft_status check_caller(const struct wf_servers *s, const weft_trainer *t, const char *what)
{
    if (s->leased)
        return wf_err(WEFT_ENOSUP,
                      "%s: servers hold them, and take no new values of tables from callbacks in "
                      "asynchronous training",
                      what);
    if (s->worker && wf_calling == t)
        return WEFT_OK;
    return wf_err(WEFT_ENOSUP,
                  "%s: servers hold them, and take new values only from callbacks of fit, on the "
                  "worker that decides",
                  what);
}

#define MAX_SET ((int64_t)256 << 20)

weft_status wf_dist_set_rows(weft_trainer *t, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, const float *rows)
{
    struct wf_servers *s = servers_of(t);
    int64_t width = seg->type.dim[1], bytes = n * (width * (int64_t)sizeof *rows + 8);
    struct wf_rows **lists, *r;
    char what[300];
    weft_status st;
    int v;

    snprintf(what, sizeof what, "rows of table '%s'", seg->name);
    st = check_caller(s, t, what);
    if (st)
        return st;
    v = wf_served_var(&s->w->rules, seg->name);
    if (v < 0)
        return wf_err(WEFT_ENOSUP, "table '%s' is not trained: servers do not hold it", seg->name);
    if (bytes > MAX_SET - s->set_bytes)
        return wf_err(WEFT_ELIMIT,
                      "%lld rows of table '%s' between two steps: at most %lld MiB can be set; set "
                      "fewer, and the others after the next step",
                      (long long)n, seg->name, (long long)(MAX_SET >> 20));
    st = next_op(s, WF_PS_SET, s->n_ops && s->op[s->n_ops - 1].kind == WF_PS_SET);
    if (st)
        return st;
    lists = &s->op[s->n_ops - 1].rows;
    r = new_lists(s, lists) ? &(*lists)[v] : NULL;
    st = r ? wf_rows_reserve(s->ctx, r, r->n + n, width) : wf_err_nomem(s->ctx, 0, "rows");
    if (st)
        return st;
    memcpy(r->id + r->n, ids, (size_t)n * sizeof *ids);
    memcpy(r->row + r->n * width, rows, (size_t)(n * width) * sizeof *rows);
    r->n += n;
    s->set_bytes += bytes;
    return WEFT_OK;
}

/* Rows as an op sets them. done: by row, whether it is known already. */
static weft_status read_op(struct wf_servers *s, const struct wf_set_op *op, int v, int64_t n,
                           const int64_t *ids, bool *done, float *rows)
{
    const struct wf_rows *r = op->rows ? &op->rows[v] : NULL;
    int64_t width = s->w->rules.var[v].dim[1];
    struct wf_tables_sort sort = {.key = NULL};
    const int64_t *key = NULL;
    const int32_t *at = NULL;
    weft_status st = WEFT_OK;

    if (r && r->n)
        st = wf_tables_sort_ids(s->ctx, &sort, r->n, r->id, s->w->rules.var[v].dim[0], &key, &at);
    for (int64_t i = 0; i < n && r && r->n && !st; i++) {
        int64_t low = 0, high = r->n; /* the last one of this id, if there is one, is before high */

        while (low < high) {
            int64_t mid = low + (high - low) / 2;

            if (key[mid] <= ids[i])
                low = mid + 1;
            else
                high = mid;
        }
        if (done[i] || low == 0 || key[low - 1] != ids[i])
            continue;
        memcpy(rows + i * width, r->row + at[low - 1] * width, (size_t)width * sizeof *rows);
        done[i] = true;
    }
    wf_tables_sort_free(s->ctx, &sort);
    return st;
}

weft_status wf_dist_read_set(weft_trainer *t, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, float *rows)
{
    struct wf_servers *s = servers_of(t);
    int v = s->n_ops ? wf_served_var(&s->w->rules, seg->name) : -1;
    bool *done = v >= 0 ? wf_alloc_n(s->ctx, n + 1, sizeof *done) : NULL;
    weft_status st = v >= 0 && !done ? wf_err_nomem(s->ctx, (size_t)n, "rows") : WEFT_OK;

    for (int k = s->n_ops - 1; v >= 0 && k >= 0 && !st; k--) {
        st = read_op(s, &s->op[k], v, n, ids, done, rows);
        for (int64_t i = 0; i < n && s->op[k].kind == WF_PS_TAKE_BEST && !st; i++)
            if (!done[i])
                st = wf_err(WEFT_ESTATE,
                            "row %lld of table '%s': the best weights are restored between these "
                            "two steps; servers give rows after that",
                            (long long)ids[i], seg->name);
    }
    wf_free(s->ctx, done);
    return st;
}

weft_status wf_dist_keep(weft_trainer *t)
{
    struct wf_servers *s = servers_of(t);
    weft_status st = check_caller(s, t, "best weights of tables");

    return st ? st
              : next_op(s, WF_PS_KEEP_BEST,
                        s->n_ops && (s->op[s->n_ops - 1].kind == WF_PS_SET ||
                                     s->op[s->n_ops - 1].kind == WF_PS_KEEP_BEST));
}

weft_status wf_dist_restore(weft_trainer *t)
{
    struct wf_servers *s = servers_of(t);
    weft_status st = check_caller(s, t, "best weights of tables");

    return st ? st
              : next_op(s, WF_PS_TAKE_BEST,
                        s->n_ops && s->op[s->n_ops - 1].kind == WF_PS_TAKE_BEST);
}

/* n, ids in rising order, rows. Of a row that was set more than once the last value counts. */
static weft_status put_list(struct wf_servers *s, int v, const struct wf_rows *r,
                            struct wf_buf *out)
{
    int64_t width = s->w->rules.var[v].dim[1], n = 0;
    struct wf_tables_sort sort = {.key = NULL};
    const int64_t *key;
    const int32_t *at;
    weft_status st =
        wf_tables_sort_ids(s->ctx, &sort, r->n, r->id, s->w->rules.var[v].dim[0], &key, &at);

    for (int64_t i = 0; i < r->n && !st; i++)
        n += i + 1 == r->n || key[i + 1] != key[i];
    wf_put_i64(out, n);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < r->n && !st; i++) {
            if (i + 1 < r->n && key[i + 1] == key[i])
                continue;
            if (pass == 0)
                wf_put_i64(out, key[i]);
            else
                wf_buf_add(out, r->row + at[i] * width, width * (int64_t)sizeof *r->row);
        }
    wf_tables_sort_free(s->ctx, &sort);
    return st ? st : out->st;
}

/* A step: what it is, and of each table the rows that are set. */
static weft_status put_op(struct wf_servers *s, const struct wf_set_op *op, struct wf_buf *out)
{
    static const struct wf_rows none = {.n = 0};
    struct wf_buf lists;
    weft_status st = WEFT_OK;

    wf_buf_init(&lists, s->ctx, 2 * MAX_SET);
    for (int v = 0; v < s->w->rules.n_vars && !st; v++)
        if (s->w->rules.var[v].table)
            st = put_list(s, v, op->rows ? &op->rows[v] : &none, &lists);
    if (!st) {
        wf_put_i64(out, op->kind);
        wf_put_bytes(out, lists.data, lists.len);
    }
    wf_buf_free(&lists);
    return st ? st : out->st;
}

/* A list of another worker's: checked as what a peer sends. */
static weft_status take_list(struct wf_servers *s, int v, struct wf_reader *in, struct wf_rows *r)
{
    const struct wf_var *var = &s->w->rules.var[v];
    int64_t width = var->dim[1], n = wf_get_range(in, 0, var->dim[0], "a number of rows"),
            last = -1;
    int64_t each = 8 + width * (int64_t)sizeof *r->row;
    weft_status st = in->st;

    if (!st && n > (in->end - in->p) / each)
        st = wf_err(WEFT_EPEER, "%lld rows of table '%s' in %lld bytes", (long long)n, var->name,
                    (long long)(in->end - in->p));
    if (!st)
        st = wf_rows_reserve(s->ctx, r, n + 1, width);
    r->n = st ? 0 : n;
    for (int64_t i = 0; i < r->n && !st; i++) {
        r->id[i] = wf_get_i64(in);
        if (r->id[i] <= last || r->id[i] >= var->dim[0])
            st = wf_err(WEFT_EPEER, "row %lld of table '%s' is not one, or is out of order",
                        (long long)r->id[i], var->name);
        last = r->id[i];
    }
    if (st)
        return st;
    memcpy(r->row, in->p, (size_t)(n * width) * sizeof *r->row);
    in->p += n * width * (int64_t)sizeof *r->row;
    return WEFT_OK;
}

static weft_status take_set(struct wf_servers *s, const char *p, int64_t n)
{
    struct wf_reader in = {p, p ? p + n : NULL, WEFT_OK};
    weft_status st;

    free_lists(s, &s->given_set);
    st = new_lists(s, &s->given_set) ? WEFT_OK : wf_err_nomem(s->ctx, 0, "rows");

    for (int v = 0; p && v < s->w->rules.n_vars && !st; v++)
        if (s->w->rules.var[v].table)
            st = take_list(s, v, &in, &s->given_set[v]);
    if (!st && in.p != in.end)
        st = wf_err(WEFT_EPEER, "%lld bytes after the rows of all tables",
                    (long long)(in.end - in.p));
    return st;
}

/* The rows are those of the first group. */
static weft_status give_set(struct wf_servers *s, struct wf_contribution *c)
{
    weft_status st = WEFT_OK;

    for (int v = 0; s->given_set && v < s->w->rules.n_vars && !st; v++) {
        const struct wf_rows *from = &s->given_set[v];
        int64_t width = from->n ? s->w->rules.var[v].dim[1] : 0;

        if (from->n == 0)
            continue;
        st = wf_rows_reserve(s->ctx, &c->rows[v], from->n, width);
        if (st)
            break;
        c->rows[v].n = from->n;
        memcpy(c->rows[v].id, from->id, (size_t)from->n * sizeof *from->id);
        memcpy(c->rows[v].row, from->row, (size_t)(from->n * width) * sizeof *from->row);
    }
    return st;
}

/* Of parameters that are not trained: servers do not have them. */
static uint32_t frozen_sum(const struct wf_servers *s)
{
    struct wf_store *store = s->w->b->fit->store;
    const weft_model *m = s->w->t->model;
    uint32_t sum = 0;

    for (int i = 0; i < wf_model_n_weights(m); i++) {
        const struct wf_weight *weight = wf_model_weight(m, i);
        const struct wf_segment *seg = weight->state ? NULL : wf_store_find(store, weight->name);
        bool held =
            seg && (seg->remote || seg->table || (seg->flat && s->w->var_of[seg->number] >= 0));

        if (seg && !held)
            sum = wf_crc32c(sum, wf_store_data(store, seg), wf_type_bytes(&seg->type));
    }
    return sum;
}

void wf_servers_note_frozen(struct wf_servers *s)
{
    s->frozen = frozen_sum(s);
}

weft_status wf_dist_put_values(weft_trainer *t, bool ends, struct wf_buf *out)
{
    const struct wf_set_op set = {WF_PS_SET, NULL};
    struct wf_servers *s = servers_of(t);
    const struct wf_store *store = s->w->b->fit->store;
    weft_status st = wf_store_pull(s->w->b->fit->store, WF_PART_PARAMS | WF_PART_STATE);

    if (!st && frozen_sum(s) != s->frozen)
        st = wf_err(WEFT_ENOSUP,
                    "a callback has changed parameters that are not trained: servers do not hold "
                    "them, so that other workers cannot get them");
    if (!st && s->w->round)
        st = wf_round_save(s->w->round);
    if (!st && ends && s->n_ops)
        st = wf_err(WEFT_ENOSUP,
                    "a callback has changed tables in train_end, after training was stopped in the "
                    "middle of an epoch: servers take no new values there");
    if (st)
        return st;
    wf_put_bytes(out, (const char *)wf_servers_vector(s),
                 s->job.rules.n_dense * (int64_t)sizeof(float));
    wf_put_bytes(out, store->state, store->n_state);
    wf_put_i64(out, ends ? 0 : wf_max_i64(s->n_ops, 1));
    st = s->n_ops || ends ? WEFT_OK : put_op(s, &set, out);
    for (int i = 0; i < s->n_ops && !st; i++)
        st = put_op(s, &s->op[i], out);
    return st ? st : out->st;
}

/* The first shard gives all: parameters as gradients of the first group, rows likewise, and the
 * state. */
static weft_status give_values(void *arg, struct wf_servers *s, int shard, struct wf_ps_given *what)
{
    const struct wf_rules *r = &s->job.rules;
    double *totals = s->start + wf_servers_marks(s) + WF_PS_TOTALS; /* not needed here */
    struct wf_given *g;
    weft_status st;

    (void)arg;
    if (shard > 0)
        return WEFT_OK;
    st = wf_servers_room(s, &g);
    if (st)
        return st;
    memset(g->given.gradients->dense, 0, (size_t)(r->n_groups * r->n_dense) * sizeof(float));
    memcpy(g->given.gradients->dense, wf_servers_vector(s), (size_t)r->n_dense * sizeof(float));
    st = give_set(s, g->given.gradients);
    if (st) {
        weft_work_give(s->w, &g->given);
        wf_free(s->ctx, g);
        return st;
    }
    wf_work_put_sums(s->w, s->sums, totals);
    what->dense = g->given.gradients->dense;
    what->rows = g->given.gradients->rows;
    what->sums = s->sums;
    what->given = g;
    return WEFT_OK;
}

/* The steps of a record: where they begin, and how many there are. Records of programs have no
 * list: there is one. */
static weft_status find_ops(struct wf_reader *in, int64_t *n_ops)
{
    *n_ops = in->p < in->end ? wf_get_range(in, 0, WF_SET_OPS, "a number of steps") : 1;
    return in->st;
}

/* One of them: its kind, and the rows that it sets. */
static weft_status take_op(struct wf_servers *s, struct wf_reader *in, enum wf_ps_kind *kind)
{
    const char *rows = NULL;
    int64_t n_rows = 0, k = WF_PS_SET;

    if (in->p < in->end) {
        k = wf_get_range(in, 0, WF_PS_KINDS - 1, "a kind of step");
        rows = wf_get_bytes(in, &n_rows);
    }
    *kind = (enum wf_ps_kind)k;
    if (!in->st && !wf_ps_replaces(*kind))
        return wf_err(WEFT_EPEER, "a step of kind %lld that replaces parameters", (long long)k);
    return in->st ? in->st : take_set(s, rows, n_rows);
}

int64_t wf_dist_set_steps(const weft_trainer *t, const char *p, int64_t n)
{
    struct wf_reader in = {p, p + n, WEFT_OK};
    int64_t n_ops = 0, bytes;

    (void)t;
    (void)wf_get_bytes(&in, &bytes);
    (void)wf_get_bytes(&in, &bytes);
    n_ops = in.p < in.end ? wf_get_i64(&in) : 1;
    return in.st ? 0 : n_ops;
}

weft_status wf_dist_set(weft_trainer *t, const char *p, int64_t n, int64_t done, bool fresh)
{
    struct wf_servers *s = servers_of(t);
    struct wf_store *store = s->w->b->fit->store;
    struct wf_reader in = {p, p + n, WEFT_OK};
    int64_t n_params = 0, n_state = 0, n_ops = 0;
    const char *params = wf_get_bytes(&in, &n_params), *state = wf_get_bytes(&in, &n_state);
    enum wf_ps_kind kind = WF_PS_SET;
    weft_status st = in.st ? in.st : find_ops(&in, &n_ops);

    if (!st &&
        (n_params != s->job.rules.n_dense * (int64_t)sizeof(float) || n_state != store->n_state))
        st = wf_err(WEFT_EPEER, "%lld bytes of parameters and %lld of state; %lld and %lld here",
                    (long long)n_params, (long long)n_state,
                    (long long)s->job.rules.n_dense * (long long)sizeof(float),
                    (long long)store->n_state);
    for (int64_t i = 0; i < done && !st; i++)
        st = take_op(s, &in, &kind);
    if (!st)
        st = wf_work_open(s->w, WF_PART_PARAMS | WF_PART_STATE);
    if (st)
        return st;
    s->elsewhere = false;
    memcpy(wf_servers_vector(s), params, (size_t)n_params);
    if (s->w->round)
        wf_round_load(s->w->round);
    if (n_state)
        memcpy(store->state, state, (size_t)n_state);
    s->set_here = s->leased;
    if (s->leased) { /* at the end of training it is enough that workers have them */
        s->watched = false;
        return WEFT_OK;
    }
    if (n_ops == 0) /* a later fit begins with these values: they count as changed */
        return WEFT_OK;
    for (int64_t i = done; i < n_ops && !st; i++) {
        st = take_op(s, &in, &kind);
        if (!st && i > done) /* the step before has taken the version over */
            st = wf_servers_params(s);
        if (!st)
            st = run(t, (struct wf_ps_mark){.kind = kind, .fresh = fresh}, give_values, NULL);
    }
    s->watched = false;
    if (!st)
        wf_servers_drop_set(s);
    return st;
}
