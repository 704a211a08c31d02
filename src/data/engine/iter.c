/* iter.c - iterators: a pipeline running, its position, its counters. */
#include <stdio.h>

#include "data/data.h"

#define DEFAULT_MEMORY ((int64_t)256 << 20)
#define MAX_STATE ((int64_t)4 << 30)
#define STARVED_SHARE 0.2 /* of the time, after STARVED_AFTER: worth a warning */
#define STARVED_AFTER 5.0

struct weft_iter {
    struct wf_env *env;
    struct wf_crew *crew;
    struct wf_ds *ds;
    struct wf_stage *root;
    int n_stages, *stage; /* node ids, sources first */
    int64_t first_ns, waited_ns;
    _Atomic bool warned;
    bool fresh;    /* nothing has been requested since the pass began */
    int64_t epoch; /* of that pass */
    weft_status st;
    char *error;
};

/* ---- environment ----------------------------------------------------------------------------- */

weft_status wf_env_new(weft_data *data, int64_t budget, struct wf_crew *crew, struct wf_env **out)
{
    struct wf_env *env = wf_alloc(data->ctx, sizeof *env);

    if (env)
        env->stats = wf_alloc_n(data->ctx, data->n + 1, sizeof *env->stats);
    if (!env || !env->stats) {
        wf_free(data->ctx, env);
        return wf_err_nomem(data->ctx, sizeof *env, "an iterator");
    }
    env->refs = 1;
    env->ctx = data->ctx;
    env->data = data;
    env->n_nodes = data->n;
    env->budget = budget;
    env->crew = crew;
    pthread_mutex_init(&env->lock, NULL);
    *out = env;
    return WEFT_OK;
}

static void worker_free(struct wf_worker *w)
{
    const weft_data *d = w->env->data;

    for (int64_t i = 1; i <= w->env->n_nodes; i++)
        if (w->scratch[i] && d->ds[i]->kind->scratch_free)
            d->ds[i]->kind->scratch_free(d->ds[i], w->scratch[i]);
    wf_free(w->env->ctx, w->scratch);
    wf_free(w->env->ctx, w);
}

/* The workers' scratch belongs to nodes, so it is freed with the iterator, not with the last
 * chunk. */
static void workers_free(struct wf_env *env)
{
    while (env->workers) {
        struct wf_worker *w = env->workers;

        env->workers = w->next;
        worker_free(w);
    }
}

void wf_env_unref(struct wf_env *env)
{
    if (!env || atomic_fetch_sub_explicit(&env->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int c = 0; c < WF_CHUNK_CLASSES; c++) {
        while (env->free_chunks[c]) {
            struct wf_chunk *s = env->free_chunks[c];

            env->free_chunks[c] = s->next_free;
            wf_free(env->ctx, s->data);
            wf_free(env->ctx, s);
        }
    }
    pthread_mutex_destroy(&env->lock);
    wf_free(env->ctx, env->stats);
    wf_free(env->ctx, env);
}

void wf_env_close(struct wf_env *env)
{
    if (!env)
        return;
    workers_free(env);
    wf_env_unref(env);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

/* Nodes below ds, inputs first, each once. */
static void list_stages(const struct wf_ds *ds, int *list, int *n)
{
    for (int i = 0; i < *n; i++)
        if (list[i] == ds->id)
            return;
    for (int i = 0; i < ds->n_in; i++)
        list_stages(ds->in[i], list, n);
    list[(*n)++] = ds->id;
}

static weft_status open_iter(weft_iter *it, weft_data *d, const weft_iter_opts *o)
{
    int threads = o->threads == WEFT_ZERO ? 0 : o->threads;
    weft_status st;

    if (o->threads == 0)
        threads = weft_ctx_threads(d->ctx);
    if (threads < 0 || threads > 1024)
        return wf_err(WEFT_EINVAL, "iterator: threads %d is not in 1..1024", threads);
    if (o->memory < 0 || o->ahead < 0)
        return wf_err(WEFT_EINVAL, "iterator: memory and ahead must not be negative");
    it->stage = wf_alloc_n(d->ctx, d->n + 1, sizeof *it->stage);
    if (!it->stage)
        return wf_err_nomem(d->ctx, (size_t)d->n * sizeof(int), "an iterator");
    list_stages(it->ds, it->stage, &it->n_stages);
    st = wf_crew_new(d->ctx, threads, &it->crew);
    if (st)
        return st;
    st = wf_env_new(d, o->memory ? o->memory : DEFAULT_MEMORY, it->crew, &it->env);
    if (st)
        return st;
    st = wf_stage_open(it->env, it->ds, WF_IN_MADE, 1, &it->root);
    if (st)
        return st;
    wf_queue_set_ahead(it->root, o->ahead);
    it->fresh = true;
    it->epoch = o->epoch;
    return wf_stage_reset(it->root, o->epoch);
}

weft_status weft_iter_new(weft_data *d, weft_ds s, const weft_iter_opts *opts, weft_iter **out)
{
    weft_iter_opts o;
    weft_iter *it;
    weft_status st = weft_data_status(d);

    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_iter_opts");
    if (st)
        return st;
    if (!wf_ds_node(d, s))
        return wf_err(WEFT_EINVAL, "iterator: not a dataset of this pipeline");
    it = wf_alloc(d->ctx, sizeof *it);
    if (!it)
        return wf_err_nomem(d->ctx, sizeof *it, "an iterator");
    it->ds = wf_ds_node(d, s);
    st = open_iter(it, d, &o);
    if (st) {
        weft_iter_free(it);
        return st;
    }
    *out = it;
    return WEFT_OK;
}

void weft_iter_free(weft_iter *it)
{
    weft_ctx *ctx;

    if (!it)
        return;
    ctx = it->ds->data->ctx;
    if (it->env)
        atomic_store_explicit(&it->env->stopping, true, memory_order_relaxed);
    wf_crew_stop(it->crew);
    wf_stage_close(it->root);
    wf_crew_free(it->crew);
    wf_env_close(it->env);
    wf_free(ctx, it->stage);
    wf_free(ctx, it->error);
    wf_free(ctx, it);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* The element of a block of one as a batch, which is in the block's memory. */
weft_status wf_batch_of(struct wf_block *b, const struct wf_ds *ds, weft_batch **out)
{
    bool batched = ds->batched && b->sample;
    int64_t n = batched ? b->n_samples : 1;
    int64_t head = (int64_t)(sizeof(weft_batch) + (size_t)b->n_cols * sizeof(weft_tensor));
    void *p = NULL;
    weft_status st = wf_block_alloc(b, head + n * 8, &p);
    weft_batch *batch = p;
    weft_tensor *col;
    int64_t *id;

    if (st)
        return st;
    col = (void *)(batch + 1);
    id = (void *)(col + b->n_cols);
    for (int c = 0; c < b->n_cols; c++)
        col[c] = wf_col_element(&b->col[c], 0);
    for (int64_t i = 0; i < n; i++)
        id[i] = batched ? b->sample[i].id : b->at[0].id;
    if (ds->batched && !batched && b->n_cols && col[0].rank)
        n = col[0].dim[0];
    *batch = (weft_batch){
        .n_cols = b->n_cols,
        .column = ds->col,
        .col = col,
        .n = n,
        .epoch = b->at[0].epoch,
        .id = batched || !ds->batched ? id : NULL,
        .inside = (void *)b,
    };
    *out = batch;
    return WEFT_OK;
}

void weft_batch_free(weft_batch *b)
{
    if (b)
        wf_block_free((void *)b->inside);
}

static const char *busiest(const struct wf_env *env, const struct wf_ds *ds, int64_t *most)
{
    int64_t busy = atomic_load_explicit(&env->stats[ds->id].busy_ns, memory_order_relaxed);
    const char *name = busy > *most ? ds->name : NULL;

    *most = busy > *most ? busy : *most;
    for (int i = 0; i < ds->n_in; i++) {
        const char *in = busiest(env, ds->in[i], most);

        name = in ? in : name;
    }
    return name;
}

void wf_warn_starved(const struct wf_env *env, const struct wf_ds *ds, int64_t first_ns,
                     int64_t now_ns, int64_t waited_ns, _Atomic bool *warned)
{
    double total = (double)(now_ns - first_ns) * 1e-9, waited = (double)waited_ns * 1e-9;
    int64_t most = -1;

    if (total < STARVED_AFTER || waited < STARVED_SHARE * total ||
        atomic_exchange_explicit(warned, true, memory_order_relaxed))
        return;
    wf_log(env->ctx, WEFT_LOG_WARN,
           "data: the reader waited %.0f %% of the last %.1f s for the pipeline; the busiest stage "
           "is '%s'",
           100 * waited / total, total, busiest(env, ds, &most));
}

int64_t wf_env_skipped(const struct wf_env *env, const struct wf_ds *ds)
{
    int64_t n = atomic_load_explicit(&env->stats[ds->id].n_skipped, memory_order_relaxed);

    for (int i = 0; i < ds->n_in; i++)
        n += wf_env_skipped(env, ds->in[i]);
    return n;
}

static void count_wait(weft_iter *it, int64_t start, int64_t end)
{
    it->waited_ns += end - start;
    wf_warn_starved(it->env, it->ds, it->first_ns, end, it->waited_ns, &it->warned);
}

static weft_status fail(weft_iter *it, weft_status st)
{
    it->st = st;
    wf_free(it->env->ctx, it->error);
    it->error = wf_strdup(it->env->ctx, weft_error());
    return st;
}

weft_status wf_iter_block(weft_iter *it, int64_t n, struct wf_block **out)
{
    int64_t start = wf_now(it->env->ctx);
    weft_status st;

    *out = NULL;
    if (it->st) {
        wf_err_set(it->error ? it->error : "out of memory");
        return it->st;
    }
    it->fresh = false;
    if (!it->first_ns)
        it->first_ns = start;
    st = wf_stage_next(it->root, n, out);
    if (st)
        return fail(it, st);
    count_wait(it, start, wf_now(it->env->ctx));
    return WEFT_OK;
}

weft_status weft_iter_next(weft_iter *it, weft_batch **out)
{
    struct wf_block *b = NULL;
    weft_status st = wf_iter_block(it, 1, &b);

    if (st)
        return st;
    if (!b) {
        *out = NULL;
        return WEFT_OK;
    }
    st = wf_batch_of(b, it->ds, out);
    if (st) {
        wf_block_free(b);
        return fail(it, st);
    }
    return WEFT_OK;
}

static void forget_error(weft_iter *it)
{
    it->st = WEFT_OK;
    wf_free(it->env->ctx, it->error);
    it->error = NULL;
}

weft_status weft_iter_reset(weft_iter *it, int64_t epoch)
{
    weft_status st;

    if (it->fresh && it->epoch == epoch && !it->st)
        return WEFT_OK; /* what was read ahead is valid */
    st = wf_stage_reset(it->root, epoch);
    it->fresh = !st;
    it->epoch = epoch;
    if (st)
        return fail(it, st);
    forget_error(it);
    return WEFT_OK;
}

weft_status wf_iter_seek(weft_iter *it, int64_t epoch, int64_t number)
{
    weft_status st = wf_queue_seek(it->root, epoch, number);

    it->fresh = false;
    if (st)
        return fail(it, st);
    forget_error(it);
    return WEFT_OK;
}

weft_status wf_iter_place(const weft_iter *it, int64_t *epoch, int64_t *number)
{
    return wf_stage_place(it->root->in[0], epoch, number)
               ? WEFT_OK
               : wf_err(WEFT_EBUG, "%s is not addressable", it->ds->name);
}

const weft_tensor *weft_batch_find(const weft_batch *b, const char *name)
{
    for (int i = 0; i < b->n_cols; i++)
        if (strcmp(b->column[i].name, name) == 0)
            return &b->col[i];
    return NULL;
}

weft_status weft_batch_feeds(const weft_batch *b, int n, const char *const *names,
                             weft_tensor *feeds)
{
    for (int i = 0; i < n; i++) {
        const weft_tensor *t = weft_batch_find(b, names[i]);

        if (!t)
            return wf_err(WEFT_ENOENT, "the batch has no column '%s'", names[i]);
        if (t->dtype == WEFT_STR)
            return wf_err(WEFT_EDTYPE,
                          "column '%s' is text: look it up, hash it or decode it before feeding",
                          names[i]);
    }
    for (int i = 0; i < n; i++)
        feeds[i] = *weft_batch_find(b, names[i]);
    return WEFT_OK;
}

/* ---- position -------------------------------------------------------------------------------- */

static const char magic[] = "weft data position 1\n";

weft_status wf_iter_save_stages(weft_iter *it, struct wf_buf *out)
{
    weft_status st;

    if (it->st) {
        wf_err_set(it->error ? it->error : "out of memory");
        return it->st;
    }
    st = wf_stage_save(it->root, out);
    return st ? st : out->st;
}

weft_status weft_iter_save(weft_iter *it, char **state, int64_t *n)
{
    struct wf_buf buf;
    char *text = NULL;
    weft_status st = weft_ds_text(it->ds->data, wf_ds_handle(it->ds), &text);

    if (st)
        return st;
    wf_buf_init(&buf, it->env->ctx, MAX_STATE);
    wf_buf_add(&buf, magic, sizeof magic - 1);
    wf_put_bytes(&buf, text, (int64_t)strlen(text));
    wf_free(it->env->ctx, text);
    st = wf_iter_save_stages(it, &buf);
    if (!st) {
        *state = buf.data;
        *n = buf.len;
        buf.data = NULL;
    }
    wf_buf_free(&buf);
    return st;
}

weft_status wf_err_other_pipeline(const char *saved, int64_t n, const char *here)
{
    const char *end = saved + n;

    while (saved < end && *here) {
        const char *a = memchr(saved, '\n', (size_t)(end - saved)), *b = strchr(here, '\n');
        int na = (int)((a ? a : end) - saved), nb = (int)(b ? b - here : (int64_t)strlen(here));

        if (na != nb || memcmp(saved, here, (size_t)na) != 0)
            return wf_err(
                WEFT_EINVAL,
                "the saved position belongs to another pipeline: '%.*s' there, '%.*s' here", na,
                saved, nb, here);
        saved += na + 1;
        here += nb + 1;
    }
    return wf_err(WEFT_EINVAL, "the saved position belongs to a %s pipeline",
                  saved < end ? "longer" : "shorter");
}

bool wf_iter_is_position(struct wf_reader *r)
{
    if (r->end - r->p < (int64_t)sizeof magic - 1 || memcmp(r->p, magic, sizeof magic - 1) != 0)
        return false;
    r->p += sizeof magic - 1;
    return true;
}

weft_status wf_iter_restore_stages(weft_iter *it, struct wf_reader *r)
{
    weft_status st = wf_stage_restore(it->root, r);

    it->fresh = false;
    if (st)
        return fail(it, st); /* the iterator may be anywhere now */
    forget_error(it);
    return WEFT_OK;
}

weft_status weft_iter_restore(weft_iter *it, const char *state, int64_t n)
{
    struct wf_reader r = {state, state + n, WEFT_OK};
    char *text = NULL;
    const char *saved;
    int64_t n_saved;
    weft_status st;

    it->fresh = false;
    if (!wf_iter_is_position(&r))
        return wf_err(WEFT_EPARSE, "not a saved position of a data pipeline");
    saved = wf_get_bytes(&r, &n_saved);
    if (r.st)
        return r.st;
    st = weft_ds_text(it->ds->data, wf_ds_handle(it->ds), &text);
    if (st)
        return st;
    if (n_saved != (int64_t)strlen(text) || memcmp(saved, text, (size_t)n_saved) != 0) {
        st = wf_err_other_pipeline(saved, n_saved, text);
        wf_free(it->env->ctx, text);
        return st;
    }
    wf_free(it->env->ctx, text);
    st = wf_iter_restore_stages(it, &r);
    if (!st && r.p != r.end)
        st = fail(it, wf_err(WEFT_EPARSE, "saved position: %lld bytes too many",
                             (long long)(r.end - r.p)));
    return st;
}

/* ---- counters -------------------------------------------------------------------------------- */

int weft_iter_n_stages(const weft_iter *it)
{
    return it->n_stages;
}

weft_status weft_iter_stage(const weft_iter *it, int i, weft_stage_stats *out)
{
    struct wf_stats *s;

    if (i < 0 || i >= it->n_stages)
        return wf_err(WEFT_ERANGE, "stage %d is not in 0..%d", i, it->n_stages - 1);
    s = &it->env->stats[it->stage[i]];
    *out = (weft_stage_stats){
        .name = it->ds->data->ds[it->stage[i]]->name,
        .n_elements = atomic_load_explicit(&s->n_elements, memory_order_relaxed),
        .n_bytes = atomic_load_explicit(&s->n_bytes, memory_order_relaxed),
        .n_skipped = atomic_load_explicit(&s->n_skipped, memory_order_relaxed),
        .busy_s = (double)atomic_load_explicit(&s->busy_ns, memory_order_relaxed) * 1e-9,
        .wait_s = (double)atomic_load_explicit(&s->wait_ns, memory_order_relaxed) * 1e-9,
    };
    return WEFT_OK;
}

void weft_iter_waited(const weft_iter *it, double *seconds, double *share)
{
    double total = it->first_ns ? (double)(wf_now(it->env->ctx) - it->first_ns) * 1e-9 : 0;

    *seconds = (double)it->waited_ns * 1e-9;
    *share = total > 0 ? *seconds / total : 0;
}
