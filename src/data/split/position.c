/* position.c - the position of a dealer: a step, and for a stream the state of its reader. */
#include "data/split/dealer.h"

#define MAX_STATE ((int64_t)4 << 30)

static const char magic[] = "weft dealer position 2\n";

/* ---- saving ---------------------------------------------------------------------------------- */

/* Whether the reader can be put anywhere, so that its state need not be saved. */
static bool can_seek(const weft_dealer *a)
{
    return !a->it || (!a->grouped && wf_ds_addressable(a->ds));
}

static weft_status save_reader(weft_dealer *a, struct wf_buf *out)
{
    weft_status st = wf_iter_save_stages(a->it, out);

    if (st)
        return st;
    wf_put_i64(out, a->next);
    wf_put_i64(out, a->next_epoch);
    wf_put_i64(out, a->next_number);
    for (int64_t t = a->committed; t < a->next && !st; t++) {
        struct wf_dealt *k = wf_kept_at(a, t);

        wf_put_i64(out, k->epoch);
        wf_put_i64(out, k->number);
        st = wf_block_save(
            k->samples ? k->samples : (const struct wf_block *)(const void *)k->batch->inside, out);
    }
    return st ? st : out->st;
}

/* The first step that is not committed. */
static void place(weft_dealer *a, struct wf_step_at *at)
{
    *at = (struct wf_step_at){.epoch = a->first_epoch};
    if (a->it && a->committed < a->next)
        *at = (struct wf_step_at){wf_kept_at(a, a->committed)->epoch,
                                  wf_kept_at(a, a->committed)->number, 0};
    else if (a->it)
        *at = (struct wf_step_at){a->next_epoch, a->next_number, 0};
    else if (weft_dealer_steps(a) != 0)
        (void)wf_dealer_locate(a, a->committed, at);
}

weft_status weft_dealer_save(weft_dealer *a, char **state, int64_t *n)
{
    struct wf_buf b;
    struct wf_step_at at;
    char *text = NULL;
    weft_status st = weft_ds_text(a->data, wf_ds_handle(a->ds), &text);

    if (st)
        return st;
    wf_buf_init(&b, a->ctx, MAX_STATE);
    wf_buf_add(&b, magic, sizeof magic - 1);
    wf_put_bytes(&b, text, (int64_t)strlen(text));
    wf_free(a->ctx, text);
    pthread_mutex_lock(&a->lock);
    place(a, &at);
    wf_put_i64(&b, a->committed);
    wf_put_i64(&b, at.epoch);
    wf_put_i64(&b, at.number);
    wf_put_i64(&b, !can_seek(a));
    st = b.st ? b.st : can_seek(a) ? WEFT_OK : save_reader(a, &b);
    pthread_mutex_unlock(&a->lock);
    if (!st)
        st = b.st;
    if (!st) {
        *state = b.data;
        *n = b.len;
        b.data = NULL;
    }
    wf_buf_free(&b);
    return st;
}

/* ---- restoring ------------------------------------------------------------------------------- */

static weft_status check_text(weft_dealer *a, struct wf_reader *r)
{
    char *text = NULL;
    const char *saved;
    int64_t n;
    weft_status st = weft_ds_text(a->data, wf_ds_handle(a->ds), &text);

    if (st)
        return st;
    saved = wf_get_bytes(r, &n);
    st = r->st;
    if (!st && (n != (int64_t)strlen(text) || memcmp(saved, text, (size_t)n) != 0))
        st = wf_err_other_pipeline(saved, n, text);
    wf_free(a->ctx, text);
    return st;
}

/* Whether a kept batch has as many rows as samples, in every column: it will be cut. */
static bool check_rows(const weft_dealer *a, const struct wf_block *b)
{
    bool ok = b->n == 1 && b->n_cols == a->ds->n_cols && (!b->sample || b->n_samples >= 0);

    for (int c = 0; c + 1 < b->n_cols && ok; c++) {
        const weft_column *col = a->ds->col;
        size_t n = strlen(col[c].name);
        weft_tensor t, o;
        int64_t at = 0;

        if (strncmp(col[c + 1].name, col[c].name, n) != 0 ||
            strcmp(col[c + 1].name + n, ":offsets") != 0)
            continue;
        t = wf_col_element(&b->col[c], 0);
        o = wf_col_element(&b->col[c + 1], 0);
        ok = !b->col[c].offset && !b->col[c + 1].offset && t.rank > 0 && o.rank == 1 &&
             o.dtype == WEFT_I64 && o.dim[0] > 0;
        for (int64_t k = 0; ok && k < o.dim[0]; k++) {
            int64_t next = ((const int64_t *)o.data)[k];

            ok = k == 0 ? next == 0 : next >= at && next <= t.dim[0];
            at = next;
        }
    }
    return ok;
}

static weft_status restore_kept(weft_dealer *a, struct wf_reader *r)
{
    struct wf_dealt k = {.batch = NULL};
    struct wf_block *b = NULL;
    weft_status st;

    k.epoch = wf_get_i64(r);
    k.number = wf_get_range(r, 0, INT64_MAX, "a number of a step");
    st = r->st ? r->st : wf_block_load(a->env, a->grouped ? a->samples : a->ds, r, &b);
    if (st)
        return st;
    if (a->grouped ? b->n < 1 || b->n > a->n : !check_rows(a, b))
        st = wf_err(WEFT_EPARSE, "saved position: a batch whose columns differ");
    k.samples = a->grouped ? b : NULL;
    if (!st && !a->grouped)
        st = wf_batch_of(b, a->ds, &k.batch);
    if (st) {
        wf_block_free(b);
        return st;
    }
    k.n = a->grouped ? b->n : k.batch->n;
    *wf_kept_at(a, a->next++) = k;
    return WEFT_OK;
}

static weft_status restore_reader(weft_dealer *a, struct wf_reader *r)
{
    int64_t next;
    weft_status st = wf_iter_restore_stages(a->it, r);

    if (st)
        return st;
    next = wf_get_range(r, a->committed, INT64_MAX, "a step");
    a->next_epoch = wf_get_i64(r);
    a->next_number = wf_get_range(r, 0, INT64_MAX, "a number of a step");
    if (!r->st && next - a->committed > a->max_open)
        return wf_err(WEFT_EINVAL,
                      "the saved position keeps %lld steps; this dealer keeps at most %lld",
                      (long long)(next - a->committed), (long long)a->max_open);
    while (!r->st && !st && a->next < next)
        st = restore_kept(a, r);
    return st ? st : r->st;
}

/* To step t, which is `number` in its epoch. The lock is held. */
static weft_status go_to(weft_dealer *a, int64_t t, const struct wf_step_at *at)
{
    weft_status st = a->it && can_seek(a) ? wf_iter_seek(a->it, at->epoch, at->number) : WEFT_OK;

    if (st)
        return st;
    wf_ahead_clear(a);
    wf_reader_let_go(a, a->next);
    a->committed = a->next = t;
    a->first_step = t - at->number;
    a->first_epoch = a->next_epoch = at->epoch;
    a->next_number = at->number;
    a->at_end = false;
    return WEFT_OK;
}

weft_status weft_dealer_restore(weft_dealer *a, const char *state, int64_t n)
{
    struct wf_reader r = {state, state + n, WEFT_OK};
    struct wf_step_at at;
    int64_t t, has_reader, steps = weft_dealer_steps(a);
    weft_status st;

    if (n < (int64_t)sizeof magic - 1 || memcmp(state, magic, sizeof magic - 1) != 0)
        return wf_err(WEFT_EPARSE, "not a saved position of a dealer, or one of another version");
    r.p += sizeof magic - 1;
    st = check_text(a, &r);
    if (st)
        return st;
    t = wf_get_range(&r, 0, INT64_MAX - 1, "a step");
    at.epoch = wf_get_i64(&r);
    at.number = wf_get_range(&r, 0, steps < 0 || a->steps_per_epoch ? INT64_MAX - 1 : steps,
                             "a number of a step");
    has_reader = wf_get_range(&r, 0, 1, "a flag");
    if (!r.st && has_reader == can_seek(a))
        return wf_err(WEFT_EINVAL, "the saved position is that of %s; this dealer reads %s",
                      has_reader ? "a stream" : "samples by number",
                      has_reader ? "samples by number" : "a stream");
    if (!r.st && !has_reader && r.p != r.end)
        return wf_err(WEFT_EPARSE, "saved position: %lld bytes too many", (long long)(r.end - r.p));
    if (r.st)
        return r.st;
    pthread_mutex_lock(&a->lock);
    st = go_to(a, t, &at);
    if (!st && has_reader)
        st = restore_reader(a, &r);
    pthread_mutex_unlock(&a->lock);
    if (!st && r.p != r.end)
        st = wf_err(WEFT_EPARSE, "saved position: %lld bytes too many", (long long)(r.end - r.p));
    return st;
}

/* Reads up to a batch of an epoch. */
static weft_status read_up_to(weft_dealer *a, int64_t epoch, int64_t number)
{
    weft_status st = weft_dealer_begin(a, epoch);
    bool has = true;

    for (int64_t i = 0; i < number && !st && has; i++) {
        int64_t t = weft_dealer_committed(a);

        st = weft_dealer_has(a, epoch, t, &has);
        if (!st && has)
            st = weft_dealer_commit(a, t);
    }
    return st || has ? st
                     : wf_err(WEFT_EDATA, "epoch %lld has fewer than %lld batches",
                              (long long)epoch + 1, (long long)number);
}

weft_status wf_dealer_seek(weft_dealer *a, int64_t epoch, int64_t number)
{
    struct wf_step_at at = {.epoch = epoch, .number = number};
    weft_status st;

    if (!can_seek(a))
        return read_up_to(a, epoch, number);
    pthread_mutex_lock(&a->lock);
    st = go_to(a, wf_max_i64(a->committed, number), &at);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* Where a position of an iterator over the same batches is. */
static weft_status place_of_iter(weft_dealer *a, const char *state, int64_t n,
                                 struct wf_step_at *at)
{
    weft_iter *it = NULL;
    weft_status st = weft_iter_new(a->data, wf_ds_handle(a->ds),
                                   WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);

    if (!st)
        st = weft_iter_restore(it, state, n);
    if (!st)
        st = wf_iter_place(it, &at->epoch, &at->number);
    weft_iter_free(it);
    return st;
}

weft_status wf_dealer_restore_iter(weft_dealer *a, const char *state, int64_t n, int64_t epoch,
                                   int64_t number)
{
    struct wf_reader r = {state, state + n, WEFT_OK};
    struct wf_step_at at = {.epoch = epoch, .number = number};
    weft_status st = wf_iter_is_position(&r) ? check_text(a, &r)
                                             : wf_err(WEFT_EPARSE, "not a saved position of data");

    if (!st && can_seek(a))
        st = place_of_iter(a, state, n, &at);
    if (st)
        return st;
    pthread_mutex_lock(&a->lock);
    st = go_to(a, at.number, &at);
    if (!st && !can_seek(a))
        st = wf_iter_restore_stages(a->it, &r);
    pthread_mutex_unlock(&a->lock);
    return st;
}
