/* checkpoint.c - a checkpoint of fit: weights, optimizer slots and step; the position in the data;
 * the sums of the current epoch, the history, the learning rate and the callbacks' state.
 * Everything that the next step depends on, so that a killed run resumes with exactly the results
 * of an uninterrupted one. */
#include <math.h>
#include <stdio.h>

#include "train/step/dist.h"
#include "train/callback/callback.h"
#include "train/saved/learned.h"
#include "train/loop/checkpoint.h"
#include "train/job/settings.h"

#define FIT_BLOB "fit.bin"
#define FIT_VERSION 3

/* ---- what is saved --------------------------------------------------------------------------- */

weft_status wf_resume_add(struct wf_resume *r, int64_t *cap, const char *name, const char *section,
                          const weft_tensor *tensor)
{
    weft_status st = wf_grow(r->t->ctx, &r->tensor, cap, r->n_tensors + 1, sizeof *r->tensor);

    if (st)
        return st;
    r->tensor[r->n_tensors++] = (weft_ckpt_tensor){name, section, *tensor};
    return WEFT_OK;
}

/* The part of each slot vector that belongs to a parameter. */
static weft_status add_slots(struct wf_resume *r, int64_t *cap)
{
    weft_fn *fn = r->t->bound->fit;
    weft_status st = WEFT_OK;

    for (int k = 0; k < WF_OPTIM_MAX_SLOTS && !st; k++)
        for (int64_t i = 0; i < weft_fn_n_segments(fn) && !st; i++) {
            weft_segment seg;
            weft_tensor t;
            char *name;

            st = weft_fn_segment(fn, i, &seg);
            if (st)
                return st;
            if (weft_fn_slot(fn, i, k, &t))
                continue; /* it has none */
            name = wf_arena_alloc(&r->arena, strlen(seg.name) + 16);
            if (!name)
                return wf_err_nomem(r->t->ctx, 0, "checkpoint");
            snprintf(name, strlen(seg.name) + 16, "%s:slot%d", seg.name, k);
            st = wf_resume_add(r, cap, name, "slot", &t);
        }
    return st;
}

/* What is known of the rows of tables that forget some. */
static weft_status add_seen(struct wf_resume *r, int64_t *cap)
{
    const struct wf_store *s = r->t->bound->fit->store;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < s->n_seg && !st; i++) {
        const struct wf_segment *seg = &s->seg[i];
        int64_t dim[2] = {seg->type.dim[0], 2};
        weft_tensor t;
        char *name;

        if (!seg->seen)
            continue;
        t = weft_view(WEFT_I64, seg->seen, 2, dim);
        name = wf_arena_alloc(&r->arena, strlen(seg->name) + 16);
        if (!name)
            return wf_err_nomem(r->t->ctx, 0, "checkpoint");
        snprintf(name, strlen(seg->name) + 16, "%s:seen", seg->name);
        st = wf_resume_add(r, cap, name, "slot", &t);
    }
    return st;
}

weft_status wf_resume_list(struct wf_resume *r)
{
    int64_t cap = 0;
    weft_status st = wf_fn_slots(r->t->bound->fit);

    if (!st)
        st = wf_evict_open(r->t);

    for (int i = 0; i < wf_model_n_weights(r->t->model) && !st; i++) {
        const struct wf_weight *w = wf_model_weight(r->t->model, i);
        const struct wf_segment *seg = wf_store_find(r->t->bound->fit->store, w->name);
        weft_tensor value;

        if (seg && seg->remote && r->o) { /* of a whole checkpoint */
            if (!wf_dist_together(r->t))
                st = wf_whole_add(r, &cap, seg);
            continue;
        }
        st = weft_fn_view(r->t->bound->fit, w->name, &value);
        if (!st)
            st = wf_resume_add(r, &cap, w->name, w->state ? "state" : "param", &value);
    }
    if (!st)
        st = add_slots(r, &cap);
    if (!st)
        st = add_seen(r, &cap);
    if (!st && r->t->bound->scaled) {
        weft_tensor scale = weft_view(WEFT_F64, r->t->scale.state, 1, (int64_t[]){WF_SCALE_STATE});

        st = wf_resume_add(r, &cap, "loss_scale", "slot", &scale);
    }
    return st;
}

static void put_f64(struct wf_buf *b, double v)
{
    int64_t bits;

    memcpy(&bits, &v, sizeof bits);
    wf_put_i64(b, bits);
}

static double get_f64(struct wf_reader *r)
{
    int64_t bits = wf_get_i64(r);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static weft_status save_callbacks(const struct wf_resume *r, struct wf_buf *b)
{
    weft_status st = WEFT_OK;

    wf_put_i64(b, r->o->n_callbacks);
    for (int i = 0; i < r->o->n_callbacks && !st; i++) {
        const weft_callback *c = &r->o->callbacks[i];
        const char *name = c->name ? c->name : "";
        char *state = NULL;
        int64_t n = 0;

        wf_put_bytes(b, name, (int64_t)strlen(name));
        if (c->save)
            st = c->save(c->arg, &state, &n);
        if (!st)
            wf_put_bytes(b, state, n);
        weft_text_free(r->t->ctx, state);
    }
    return st ? st : b->st;
}

static weft_status save_fit(const struct wf_resume *r, const struct wf_fit_state *s,
                            struct wf_buf *b)
{
    const weft_trainer *t = r->t;
    const struct wf_bound *bound = t->bound;
    const weft_history *h = s->history;

    wf_put_i64(b, FIT_VERSION);
    wf_put_i64(b, s->epoch);
    wf_put_i64(b, s->batch);
    wf_put_i64(b, s->ended);
    put_f64(b, (double)t->rate);
    put_f64(b, (double)r->given_rate);
    wf_put_i64(b, bound->n_means);
    for (int i = 0; i < bound->n_means; i++)
        put_f64(b, t->mean_sum[i]);
    put_f64(b, t->mean_weight);
    wf_put_i64(b, bound->n_sums);
    for (int64_t i = 0; i < bound->n_sums; i++)
        put_f64(b, t->sums[i]);
    wf_put_i64(b, h->n_names);
    for (int i = 0; i < h->n_names; i++)
        wf_put_bytes(b, h->name[i], (int64_t)strlen(h->name[i]));
    wf_put_i64(b, h->first_epoch);
    wf_put_i64(b, h->n_epochs);
    for (int64_t i = 0; i < h->n_epochs * h->n_names; i++)
        put_f64(b, h->value[i]);
    return save_callbacks(r, b);
}

weft_status wf_resume_put(const struct wf_resume *r, const struct wf_fit_state *s,
                          struct wf_buf *out)
{
    return save_fit(r, s, out);
}

static weft_ckpt_blob text_blob(const char *name, const char *text)
{
    return (weft_ckpt_blob){name, text, text ? (int64_t)strlen(text) : 0};
}

/* All of it is here, or servers write their part. What a callback has just set is here alone:
 * servers get it after the control record, and what they hold can be saved after that. */
static weft_status save_tensors(struct wf_resume *r, const weft_ckpt_data *data)
{
    weft_status st;

    if (wf_dist_together(r->t) && !wf_dist_changed(r->t))
        return wf_served_save(r, data);
    if (wf_dist_together(r->t) && wf_stored_any(r) && !wf_dist_leased(r->t))
        return wf_later_keep(r, data);
    if (wf_dist_together(r->t) && wf_stored_any(r)) {
        wf_log(r->t->ctx, WEFT_LOG_WARN,
               "step %lld: a callback has just set parameters, and servers hold tables: this "
               "checkpoint is not written",
               (long long)weft_trainer_step(r->t));
        return WEFT_OK;
    }
    st = wf_dist_bring(r->t);
    if (!st)
        st = wf_whole_bring(r);
    if (!st)
        st = wf_store_pull(r->t->bound->fit->store, WF_PART_ALL);
    return st ? st : weft_ckpt_save(r->writer, data);
}

weft_status wf_resume_save(struct wf_resume *r, const struct wf_fit_state *state,
                           const weft_logs *logs)
{
    weft_trainer *t = r->t;
    char hashes[WF_N_FP][WF_META_TEXT];
    weft_ckpt_pair meta[WF_N_META];
    weft_ckpt_metric *metric = wf_alloc_n(t->ctx, logs->n + 1, sizeof *metric);
    struct wf_buf fit;
    char *position = NULL;
    int64_t n_position = 0;
    weft_status st = metric ? WEFT_OK : wf_err_nomem(r->t->ctx, 0, "checkpoint");

    wf_buf_init(&fit, t->ctx, (int64_t)1 << 40);
    if (!st && logs->n && !isfinite(logs->value[0])) {
        if (!r->warned)
            wf_log(t->ctx, WEFT_LOG_WARN,
                   "step %lld: the loss is %g: no checkpoint is written, the earlier ones are kept",
                   (long long)weft_trainer_step(t), logs->value[0]);
        r->warned = true;
        goto out;
    }
    wf_fingerprint_meta(&r->print, hashes, meta);
    if (!st)
        st = save_fit(r, state, &fit);
    if (!st)
        st = weft_dealer_save(state->deal->dealer, &position, &n_position);
    for (int i = 0; i < logs->n && !st; i++)
        metric[i] = (weft_ckpt_metric){logs->name[i], logs->value[i]};
    if (!st) {
        weft_ckpt_blob blobs[] = {
            {FIT_BLOB, fit.data, fit.len},
            {WEFT_CKPT_POSITION, position, n_position},
            text_blob(WEFT_CKPT_MODEL, r->model),
            text_blob(WF_CKPT_BASE, t->base),
            text_blob(WF_CKPT_SETTINGS, t->settings),
            text_blob(WF_CKPT_JOB, t->recorded ? t->recorded : t->job_text),
            {WEFT_CKPT_LEARNED, t->learned, t->n_learned},
            text_blob(WF_CKPT_FINGERPRINT, r->print_text),
        };
        int n_blobs = 0;

        for (int i = 0; i < WF_COUNT(blobs); i++)
            if (blobs[i].data)
                blobs[n_blobs++] = blobs[i];
        st = save_tensors(r, WEFT_OPTS(weft_ckpt_data, .step = weft_trainer_step(t),
                                       .epoch = state->epoch, .seed = t->ctx->seed,
                                       .fingerprint = r->print.part[WF_FP_KERNELS].hash,
                                       .n_tensors = r->n_tensors, .tensors = r->tensor,
                                       .n_blobs = n_blobs, .blobs = blobs, .n_metrics = logs->n,
                                       .metrics = metric, .n_meta = WF_N_META, .meta = meta));
    }
out:
    r->last_step = weft_trainer_step(t);
    r->last_skipped = weft_trainer_skipped(t);
    r->last_ns = wf_now(t->ctx);
    weft_text_free(t->ctx, position);
    wf_buf_free(&fit);
    wf_free(t->ctx, metric);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

/* ---- and read back --------------------------------------------------------------------------- */

/* States go to the callbacks with their names, in order. One that this run does not have is
 * skipped; a new callback starts without one. */
static weft_status restore_callbacks(const struct wf_resume *r, struct wf_reader *in)
{
    int64_t n = wf_get_range(in, 0, 4096, "a number of callbacks");
    bool *used = wf_alloc_n(r->t->ctx, r->o->n_callbacks + 1, sizeof *used);
    weft_status st = used ? in->st : wf_err_nomem(r->t->ctx, 0, "checkpoint");

    for (int64_t i = 0; i < n && !st; i++) {
        int64_t n_name, n_state;
        const char *name = wf_get_bytes(in, &n_name), *state = wf_get_bytes(in, &n_state);
        const weft_callback *c = NULL;

        st = in->st;
        for (int k = 0; k < r->o->n_callbacks && !st && !c; k++) {
            const char *here = r->o->callbacks[k].name ? r->o->callbacks[k].name : "";

            if (!used[k] && (int64_t)strlen(here) == n_name &&
                memcmp(name, here, (size_t)n_name) == 0) {
                used[k] = true;
                c = &r->o->callbacks[k];
            }
        }
        if (!st && c && c->restore && n_state)
            st = c->restore(c->arg, state, n_state);
        if (!st && !c && n_state)
            wf_log(
                r->t->ctx, WEFT_LOG_WARN,
                "the checkpoint has the state of a callback '%.*s', which this run does not have",
                (int)n_name, name);
    }
    wf_free(r->t->ctx, used);
    return st;
}

static void list_names(const weft_history *h, char *text, size_t size)
{
    size_t at = 0;

    text[0] = 0;
    for (int i = 0; i < h->n_names && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? ", " : "", h->name[i]);
}

/* The logged names must match: sums of the epoch and rows of the history are stored by position. */
static weft_status check_names(const weft_history *here, const weft_history *saved)
{
    char a[256], b[256];
    bool same = here->n_names == saved->n_names;

    for (int i = 0; i < here->n_names && same; i++)
        same = strcmp(here->name[i], saved->name[i]) == 0;
    if (same)
        return WEFT_OK;
    list_names(saved, a, sizeof a);
    list_names(here, b, sizeof b);
    return wf_err(WEFT_EINVAL, "the checkpoint logs %s; this run logs %s", a, b);
}

/* The contents of a checkpoint, read and checked before any of it is put into the running model: a
 * checkpoint that does not match changes nothing there. */
struct checked {
    weft_ckpt *c;
    float rate, given_rate;
    struct wf_reader sums, callbacks; /* of the fit state: where they begin */
    char *fit, *position;             /* blobs */
    char *stage;                      /* the tensors; NULL: not enough memory for a second copy */
    bool complete;                    /* nothing is left to train */
};

static void free_checked(const struct wf_resume *r, struct checked *k)
{
    weft_text_free(r->t->ctx, k->fit);
    weft_text_free(r->t->ctx, k->position);
    wf_free(r->t->ctx, k->stage);
}

/* The rows of the history, into that of the new fit. */
static weft_status read_history(struct wf_fit_state *s, struct wf_reader *in,
                                weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    weft_ctx *ctx = s->history->inside;
    int64_t n_names = wf_get_range(in, 0, 1 << 20, "the number of logs"), n_epochs;
    double *row;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n_names && !in->st; i++)
        (void)wf_get_bytes(in, &n_epochs);
    if (in->st || n_names != s->history->n_names)
        return in->st ? in->st : wf_err(WEFT_EPARSE, "%lld logs", (long long)n_names);
    s->history->first_epoch = wf_get_range(in, 0, WF_MAX_EPOCH, "the first epoch");
    n_epochs = wf_get_range(in, 0, (in->end - in->p) / 8 + 1, "a number of epochs");
    if (in->st)
        return in->st;
    row = wf_alloc_n(ctx, n_names + 1, sizeof *row);
    if (!row)
        return wf_err_nomem(ctx, 0, "checkpoint");
    for (int64_t e = 0; e < n_epochs && !st; e++) {
        for (int64_t i = 0; i < n_names; i++)
            row[i] = get_f64(in);
        st = in->st ? in->st : add_epoch(arg, row);
    }
    wf_free(ctx, row);
    return st;
}

/* The state of fit: its position and history into *s, which belongs to the new fit; the rest is
 * kept for later. */
static weft_status read_fit(const struct wf_resume *r, struct wf_fit_state *s, struct wf_reader *in,
                            struct checked *k,
                            weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    const struct wf_bound *b = r->t->bound;
    weft_status st;

    (void)wf_get_i64(in); /* the version: checked by wf_resume_parse */
    s->epoch = wf_get_range(in, 0, WF_MAX_EPOCH, "an epoch");
    s->batch = wf_get_range(in, 0, INT64_MAX / 2, "a batch");
    s->ended = wf_get_range(in, 0, WF_MAX_EPOCH, "a number of epochs");
    k->rate = (float)get_f64(in);
    k->given_rate = (float)get_f64(in);
    k->sums = *in;
    wf_get_range(in, b->n_means, b->n_means, "the number of losses");
    for (int i = 0; i < b->n_means + 1; i++)
        (void)get_f64(in);
    wf_get_range(in, b->n_sums, b->n_sums, "the number of metric sums");
    for (int64_t i = 0; i < b->n_sums; i++)
        (void)get_f64(in);
    st = in->st ? in->st : read_history(s, in, add_epoch, arg);
    k->callbacks = *in;
    return st;
}

/* Tensor i into memory of its type. A complete run does not need the slots: those of another
 * optimizer are skipped. */
static weft_status load_one(const struct wf_resume *r, const struct checked *k, int64_t i,
                            const weft_tensor *to)
{
    const weft_ckpt_tensor *t = &r->tensor[i];
    weft_status st = wf_stored_load(r->t->ctx, r->t->bound->fit->store, k->c, t->name, to);

    if ((st != WEFT_ENOENT && st != WEFT_ESHAPE) || !k->complete || strcmp(t->section, "slot") != 0)
        return st;
    if (to->data && to->data != t->tensor.data)
        memcpy(to->data, t->tensor.data, (size_t)weft_tensor_bytes(to));
    return WEFT_OK;
}

/* Reads all tensors into separate memory. If there is not enough, only their types are compared
 * now. */
static weft_status stage_tensors(const struct wf_resume *r, struct checked *k)
{
    int64_t bytes = 0;
    weft_status st = wf_store_pull(r->t->bound->fit->store, WF_PART_ALL);

    for (int64_t i = 0; i < r->n_tensors; i++)
        bytes += wf_round_up(weft_tensor_bytes(&r->tensor[i].tensor), 64);
    k->stage = wf_alloc(r->t->ctx, (size_t)bytes + 1);
    bytes = 0;
    for (int64_t i = 0; i < r->n_tensors && !st; i++) {
        weft_tensor to = r->tensor[i].tensor;

        to.data = k->stage ? k->stage + bytes : NULL;
        bytes += wf_round_up(weft_tensor_bytes(&to), 64);
        st = load_one(r, k, i, &to);
    }
    return st;
}

/* From here on nothing can fail except reading tensors that could not be staged, from a checkpoint
 * that was just verified. */
static weft_status commit(const struct wf_resume *r, struct checked *k)
{
    weft_trainer *t = r->t;
    const struct wf_bound *b = t->bound;
    struct wf_reader in = k->sums;
    int64_t at = 0;
    weft_status st = wf_store_pull(b->fit->store, WF_PART_ALL);

    if (!st)
        wf_store_touch(b->fit->store, WF_PART_ALL);
    for (int64_t i = 0; i < r->n_tensors && !st; i++) {
        const weft_tensor *to = &r->tensor[i].tensor;
        int64_t n = weft_tensor_bytes(to);

        if (!k->stage)
            st = load_one(r, k, i, to);
        else if (n)
            memcpy(to->data, k->stage + at, (size_t)n);
        at += wf_round_up(n, 64);
    }
    if (st)
        return st;
    (void)wf_get_i64(&in); /* the numbers of sums: compared by read_fit */
    for (int i = 0; i < b->n_means; i++)
        t->mean_sum[i] = get_f64(&in);
    t->mean_weight = get_f64(&in);
    (void)wf_get_i64(&in);
    for (int64_t i = 0; i < b->n_sums; i++)
        t->sums[i] = get_f64(&in);
    /* the rate continues unchanged, unless the user now gives another one */
    if (k->given_rate == r->given_rate)
        t->rate = t->used_rate = k->rate;
    else if (!t->scheduled)
        wf_log(t->ctx, WEFT_LOG_INFO, "the learning rate is %g now; it was %g",
               (double)r->given_rate, (double)k->rate);
    weft_fn_set_step(b->fit, weft_ckpt_info(k->c)->step);
    st = wf_whole_give(r);
    return st ? st : wf_stored_give(r, k->c);
}

/* The names and rows after the sums. */
static weft_status read_rows(struct wf_reader *in, weft_history *h)
{
    weft_ctx *ctx = h->inside;
    int64_t n = wf_get_range(in, 0, 1 << 20, "the number of logs");
    double *value;

    h->name = in->st ? NULL : wf_alloc_n(ctx, n + 1, sizeof *h->name);
    if (!h->name)
        return in->st ? in->st : wf_err_nomem(ctx, 0, "checkpoint");
    for (; h->n_names < n && !in->st; h->n_names++) {
        int64_t len;
        const char *text = wf_get_bytes(in, &len);
        char *name = in->st ? NULL : wf_alloc(ctx, (size_t)len + 1);

        if (!name)
            return in->st ? in->st : wf_err_nomem(ctx, 0, "checkpoint");
        memcpy(name, text, (size_t)len);
        h->name[h->n_names] = name;
    }
    h->first_epoch = wf_get_range(in, 0, WF_MAX_EPOCH, "the first epoch");
    h->n_epochs = wf_get_range(in, 0, (in->end - in->p) / 8 / (n ? n : 1), "a number of epochs");
    value = in->st ? NULL : wf_alloc_n(ctx, (h->n_epochs + 1) * n + 1, sizeof *value);
    if (!value)
        return in->st ? in->st : wf_err_nomem(ctx, 0, "checkpoint");
    for (int64_t i = 0; i < h->n_epochs * n; i++)
        value[i] = get_f64(in);
    h->value = value;
    return in->st;
}

/* Up to the states of callbacks. */
static weft_status parse_fit(weft_ctx *ctx, struct wf_reader *in, int64_t *batch,
                             weft_history **out)
{
    weft_history *h;
    weft_status st;

    if (wf_get_i64(in) != FIT_VERSION)
        return in->st ? in->st : wf_err(WEFT_ENOSUP, "it was written by another version of weft");
    h = wf_alloc(ctx, sizeof *h);
    if (!h)
        return wf_err_nomem(ctx, 0, "checkpoint");
    h->inside = ctx;
    (void)wf_get_i64(in); /* epoch */
    *batch = wf_get_i64(in);
    for (int i = 0; i < 3; i++) /* ended, rate, given rate */
        (void)wf_get_i64(in);
    for (int i = 0; i < 2; i++) { /* losses and their weight; sums */
        int64_t n_skip = wf_get_range(in, 0, (in->end - in->p) / 8, "a number of sums");

        for (int64_t k = 0; k < n_skip + (i == 0); k++)
            (void)get_f64(in);
    }
    st = in->st ? in->st : read_rows(in, h);
    if (st) {
        weft_history_free(h);
        return st;
    }
    *out = h;
    return WEFT_OK;
}

weft_status wf_resume_parse(weft_ctx *ctx, const char *blob, int64_t n, int64_t *batch,
                            weft_history **out)
{
    struct wf_reader in = {blob, blob + n, WEFT_OK};

    return parse_fit(ctx, &in, batch, out);
}

weft_status wf_resume_callback(weft_ctx *ctx, weft_ckpt *c, const weft_callback *cb)
{
    char *blob = NULL;
    int64_t n = 0, batch, n_callbacks;
    weft_history *h = NULL;
    weft_status st = weft_ckpt_blob_read(c, FIT_BLOB, &blob, &n);
    struct wf_reader in = {blob, blob + n, WEFT_OK};

    if (!st)
        st = parse_fit(ctx, &in, &batch, &h);
    n_callbacks = st ? 0 : wf_get_range(&in, 0, 4096, "a number of callbacks");
    for (int64_t i = 0; i < n_callbacks && !st; i++) {
        int64_t n_name, n_state;
        const char *name = wf_get_bytes(&in, &n_name), *state = wf_get_bytes(&in, &n_state);

        st = in.st;
        if (!st && n_name == (int64_t)strlen(cb->name) &&
            memcmp(name, cb->name, (size_t)n_name) == 0 && n_state) {
            st = cb->restore(cb->arg, state, n_state);
            break;
        }
    }
    weft_history_free(h);
    weft_text_free(ctx, blob);
    return st ? wf_err_wrap(st, "%s", weft_ckpt_path(c)) : WEFT_OK;
}

weft_status wf_resume_history(weft_ctx *ctx, weft_ckpt *c, int64_t *batch, weft_history **out)
{
    char *blob = NULL;
    int64_t n = 0;
    weft_status st = weft_ckpt_blob_read(c, FIT_BLOB, &blob, &n);

    if (!st)
        st = wf_resume_parse(ctx, blob, n, batch, out);
    weft_text_free(ctx, blob);
    return st ? wf_err_wrap(st, "%s", weft_ckpt_path(c)) : WEFT_OK;
}

/* *callbacks: where their states begin. */
static weft_status take(const struct wf_resume *r, struct wf_fit_state *s, const char *p, int64_t n,
                        weft_status (*add_epoch)(void *arg, const double *row), void *arg,
                        struct wf_reader *callbacks)
{
    weft_trainer *t = r->t;
    weft_history *saved = NULL;
    struct checked k = {.rate = 0};
    int64_t batch;
    weft_status st = wf_resume_parse(t->ctx, p, n, &batch, &saved);

    if (!st)
        st = check_names(s->history, saved);
    weft_history_free(saved);
    if (!st) {
        s->history->n_epochs = 0; /* all rows are in it */
        st = read_fit(r, s, &(struct wf_reader){p, p + n, WEFT_OK}, &k, add_epoch, arg);
    }
    if (!st)
        t->rate = k.rate;
    *callbacks = k.callbacks;
    return st;
}

weft_status wf_resume_take(const struct wf_resume *r, struct wf_fit_state *s, const char *p,
                           int64_t n, bool callbacks,
                           weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    struct wf_reader states;
    weft_status st = take(r, s, p, n, add_epoch, arg, &states);

    return st || !callbacks ? st : restore_callbacks(r, &states);
}

/* Whether a fit state (of this version) leaves anything to train. */
static bool is_complete(int64_t epochs, const char *fit, int64_t n)
{
    struct wf_reader in = {fit, fit + n, WEFT_OK};
    int64_t epoch, ended;

    (void)wf_get_i64(&in); /* version */
    epoch = wf_get_i64(&in);
    (void)wf_get_i64(&in); /* batch */
    ended = wf_get_i64(&in);
    return !in.st && (epoch >= epochs || ended >= epochs);
}

bool wf_resume_complete(weft_ctx *ctx, weft_ckpt *c, int64_t epochs)
{
    char *fit = NULL;
    int64_t n = 0;
    bool complete = !weft_ckpt_blob_read(c, FIT_BLOB, &fit, &n) && is_complete(epochs, fit, n);

    weft_text_free(ctx, fit);
    return complete;
}

/* Another worker may decide, and be writing the files of its callbacks. */
static weft_status keep_callbacks(struct wf_resume *r, const struct wf_reader *in)
{
    wf_free(r->t->ctx, r->kept);
    r->n_kept = in->end - in->p;
    r->kept = wf_alloc(r->t->ctx, (size_t)r->n_kept + 1);
    if (!r->kept)
        return wf_err_nomem(r->t->ctx, (size_t)r->n_kept, "checkpoint");
    memcpy(r->kept, in->p, (size_t)r->n_kept);
    return WEFT_OK;
}

weft_status wf_resume_callbacks(struct wf_resume *r)
{
    struct wf_reader in = {r->kept, r->kept + r->n_kept, WEFT_OK};
    weft_status st = r->kept ? restore_callbacks(r, &in) : WEFT_OK;

    wf_free(r->t->ctx, r->kept);
    r->kept = NULL;
    return st;
}

/* First everything that may fail; the callbacks last, because they may truncate files. */
static weft_status check(struct wf_resume *r, struct checked *k, struct wf_fit_state *s,
                         weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    weft_history *saved = NULL;
    int64_t n = 0, batch;
    weft_status st = weft_ckpt_blob_read(k->c, FIT_BLOB, &k->fit, &n);

    if (!st)
        st = wf_resume_parse(r->t->ctx, k->fit, n, &batch, &saved);
    if (!st)
        st = check_names(s->history, saved);
    weft_history_free(saved);
    k->complete = !st && is_complete(r->o->epochs ? r->o->epochs : 1, k->fit, n);
    if (!st && !r->back)
        st = wf_resume_changes(r->t, k->c, &r->print, k->complete);
    if (!st)
        st = stage_tensors(r, k);
    if (!st && !k->complete)
        st = wf_stored_check(r, k->c);
    if (!st)
        st = read_fit(r, s, &(struct wf_reader){k->fit, k->fit + n, WEFT_OK}, k, add_epoch, arg);
    if (!st && !k->complete && !r->back)
        st = weft_ckpt_blob_read(k->c, WEFT_CKPT_POSITION, &k->position, &n);
    if (!st && !k->complete && !r->back) {
        st = wf_deal_restore(s->deal, k->position, n, s->epoch, s->batch);
        if (st == WEFT_EINVAL && s->batch == 0 && r->t->data_changed)
            st = WEFT_OK; /* the next epoch starts with the data as it is now */
    }
    if (!st && r->late)
        return keep_callbacks(r, &k->callbacks);
    return st ? st : restore_callbacks(r, &k->callbacks);
}

static weft_status restore(struct wf_resume *r, weft_ckpt *c, struct wf_fit_state *s,
                           weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    const weft_ckpt_data *info = weft_ckpt_info(c);
    struct checked k = {.c = c};
    weft_status st;

    if (info->seed != r->t->ctx->seed)
        return wf_err(WEFT_EINVAL, "it was written with seed %llu, this run has %llu",
                      (unsigned long long)info->seed, (unsigned long long)r->t->ctx->seed);
    st = check(r, &k, s, add_epoch, arg);
    if (!st)
        st = commit(r, &k);
    free_checked(r, &k);
    return st;
}

weft_status wf_resume_back_to(struct wf_resume *r, struct wf_fit_state *s, const char *p, int64_t n,
                              weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    struct wf_reader states;
    weft_status st = take(r, s, p, n, add_epoch, arg, &states);

    return st ? st : keep_callbacks(r, &states);
}

/* The last one of this step. */
static weft_status open_step(const struct wf_resume *r, int64_t step, weft_ckpt **out)
{
    weft_ckpt_list *l = NULL;
    const char *path = NULL;
    weft_status st = WEFT_ENOENT;

    if (r->o->checkpoint)
        st = weft_ckpt_list_new(r->t->ctx, r->o->checkpoint, NULL, &l);
    for (int64_t i = 0; !st && i < l->n; i++)
        if (l->entry[i].step == step && !l->entry[i].error)
            path = l->entry[i].path;
    if (path)
        st = weft_ckpt_open(r->t->ctx, path, out);
    else if (!st || st == WEFT_ENOENT)
        st = wf_err(WEFT_ENOENT, "there is no checkpoint of step %lld%s%s", (long long)step,
                    r->o->checkpoint ? " in " : "", r->o->checkpoint ? r->o->checkpoint : "");
    weft_ckpt_list_free(r->t->ctx, l);
    return st;
}

weft_status wf_resume_back(struct wf_resume *r, int64_t step, struct wf_fit_state *s,
                           weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    weft_ckpt *c = NULL;
    weft_status st = open_step(r, step, &c);

    if (!st) {
        s->history->n_epochs = 0; /* all rows are in it */
        r->back = true;
        st = restore(r, c, s, add_epoch, arg);
        r->back = false;
        if (st)
            wf_err_wrap(st, "%s", weft_ckpt_path(c));
    }
    weft_ckpt_close(c);
    return st;
}

/* Bytes of a snapshot: reserved in advance, so that the first save stalls no longer than the
 * others. */
static int64_t tensor_bytes(const struct wf_resume *r)
{
    int64_t bytes = 0;

    for (int64_t i = 0; i < r->n_tensors; i++)
        bytes += weft_tensor_bytes(&r->tensor[i].tensor);
    return bytes;
}

static void say_where(const struct wf_resume *r, const struct wf_fit_state *s, const char *path)
{
    int64_t epochs = r->o->epochs ? r->o->epochs : 1;

    if (s->ended >= epochs)
        wf_log(r->t->ctx, WEFT_LOG_INFO,
               "%s: a callback ended this run after epoch %lld; raise the number of epochs to "
               "continue",
               path, (long long)s->epoch);
    else if (s->epoch >= epochs)
        wf_log(r->t->ctx, WEFT_LOG_INFO, "%s: this run is complete, %lld epochs of %lld", path,
               (long long)s->epoch, (long long)epochs);
    else
        wf_log(r->t->ctx, WEFT_LOG_INFO, "resuming from %s: epoch %lld, batch %lld", path,
               (long long)s->epoch + 1, (long long)s->batch);
}

/* Which value decides what is best, and in which direction. */
static weft_status find_monitor(struct wf_resume *r, const weft_history *h, bool *highest)
{
    struct wf_monitor m = {.sign = 0};
    const char *const *names = (const char *const *)h->name;
    char list[256];
    weft_status st;

    r->monitor = r->o->checkpoint_monitor;
    if (!r->monitor && r->o->keep_best <= 0)
        return WEFT_OK;
    for (int i = 0; i < h->n_names && !r->monitor; i++)
        r->monitor = strcmp(names[i], "val_loss") == 0 ? names[i] : NULL;
    r->monitor = r->monitor ? r->monitor : "loss";
    list_names(h, list, sizeof list);
    for (int i = 0; i < h->n_names; i++) {
        if (strcmp(names[i], r->monitor) != 0)
            continue;
        snprintf(m.name, sizeof m.name, "%s", r->monitor);
        st = wf_monitor_direction(&m, r->t);
        *highest = m.sign > 0;
        return st;
    }
    return wf_err(WEFT_EINVAL, "there is no '%s' to monitor%s (there are %s)", r->monitor,
                  wf_did_you_mean(r->monitor, names, h->n_names).text, list);
}

/* Without memory for a copy, checkpoints are written synchronously. */
static weft_status open_writer(struct wf_resume *r)
{
    const weft_fit_opts *o = r->o;
    weft_ckpt_writer_opts w = {.size = sizeof w,
                               .keep_last = o->keep_last,
                               .keep_best = o->keep_best,
                               .keep_hours = o->keep_hours,
                               .keep_highest = r->highest,
                               .monitor = r->monitor,
                               .reserve_bytes = wf_dist_together(r->t) ? 0 : tensor_bytes(r)};
    weft_status st = weft_ckpt_writer_new(r->t->ctx, o->checkpoint, &w, &r->writer);

    if (st != WEFT_ELIMIT)
        return st;
    wf_log(r->t->ctx, WEFT_LOG_WARN, "%s: training pauses while a checkpoint is written",
           weft_error());
    w.reserve_bytes = 0;
    w.foreground = true;
    return weft_ckpt_writer_new(r->t->ctx, o->checkpoint, &w, &r->writer);
}

/* The fingerprint: for checkpoints, and for other workers to compare theirs with. */
static weft_status take_print(struct wf_resume *r, const struct wf_fit_state *state)
{
    weft_status st;

    if (!r->o->checkpoint && !wf_dist_together(r->t))
        return WEFT_OK;
    st = wf_fit_fingerprint(r->t, state->data, state->fed, &r->print);
    if (!st)
        st = wf_fp_text(&r->print, &r->print_text);
    return !st && wf_dist_together(r->t) ? wf_dist_tell(r->t, r->print_text) : st;
}

weft_status wf_resume_begin(struct wf_resume *r, weft_trainer *t, const weft_fit_opts *o,
                            struct wf_fit_state *state,
                            weft_status (*add_epoch)(void *arg, const double *row), void *arg)
{
    weft_ckpt *c = NULL;
    bool late = r->late;
    weft_status st;

    *r = (struct wf_resume){.t = t, .o = o, .given_rate = t->rate, .late = late};
    wf_arena_init(&r->arena, t->ctx);
    st = take_print(r, state);
    if (st || !o->checkpoint)
        return st;
    st = wf_resume_list(r);
    if (!st)
        st = find_monitor(r, state->history, &r->highest);
    if (!st)
        st = weft_model_json(t->model, &r->model);
    if (st)
        return st;
    if (!late) /* before callbacks cut their files: another process may be training here */
        st = open_writer(r);
    if (st)
        return wf_err_wrap(st, "checkpoint");
    st = weft_ckpt_open_latest(t->ctx, o->checkpoint, &c);
    if (!st && o->no_resume)
        st = wf_err(WEFT_EEXIST, "%s holds checkpoints of an earlier run", o->checkpoint);
    else if (!st) {
        st = restore(r, c, state, add_epoch, arg);
        r->resumed = true;
        if (!st)
            say_where(r, state, weft_ckpt_path(c));
        else
            wf_err_wrap(st, "%s does not match this run (use another directory to start a new one)",
                        weft_ckpt_path(c));
    } else if (st == WEFT_ENOENT) {
        st = WEFT_OK; /* the first start */
    }
    weft_ckpt_close(c);
    r->last_step = weft_trainer_step(t);
    r->last_skipped = weft_trainer_skipped(t);
    r->last_ns = wf_now(t->ctx);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

weft_status wf_resume_open(struct wf_resume *r)
{
    weft_status st;

    if (r->writer || !r->o->checkpoint)
        return WEFT_OK;
    st = open_writer(r);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

weft_status wf_resume_shut(struct wf_resume *r)
{
    weft_ckpt_writer *w = r->writer;
    weft_status st = w ? weft_ckpt_writer_flush(w) : WEFT_OK, closed;

    wf_resume_drop_later(r);
    r->writer = NULL;
    closed = weft_ckpt_writer_close(w);
    return st ? st : closed;
}

bool wf_resume_due(struct wf_resume *r, bool epoch_done)
{
    const weft_fit_opts *o = r->o;

    if (atomic_fetch_and(&r->t->asked, ~(unsigned)WF_ASK_SAVE) & WF_ASK_SAVE) {
        wf_log(r->t->ctx, r->writer ? WEFT_LOG_INFO : WEFT_LOG_WARN,
               r->writer       ? "checkpoint requested: step %lld"
               : o->checkpoint ? "step %lld: a checkpoint was requested, but the directory is "
                                 "still open in another process"
                               : "step %lld: a checkpoint was requested, but there is no directory "
                                 "for it",
               (long long)weft_trainer_step(r->t));
        return r->writer != NULL;
    }
    if (!r->writer)
        return false;
    if (epoch_done && r->monitor)
        return true;
    if (o->checkpoint_steps == 0 && o->checkpoint_seconds == 0)
        return epoch_done;
    if (o->checkpoint_steps > 0 && weft_trainer_step(r->t) - r->last_step >= o->checkpoint_steps)
        return true;
    return o->checkpoint_seconds > 0 &&
           (double)(wf_now(r->t->ctx) - r->last_ns) * 1e-9 >= o->checkpoint_seconds;
}

weft_status wf_resume_end(struct wf_resume *r, weft_ckpt_stats *stats)
{
    weft_status st = r->writer ? weft_ckpt_writer_flush(r->writer) : WEFT_OK, closed;

    *stats = (weft_ckpt_stats){0};
    if (r->writer)
        weft_ckpt_writer_stats(r->writer, stats);
    closed = weft_ckpt_writer_close(r->writer);
    st = st ? st : closed;
    wf_resume_drop_later(r);
    weft_text_free(r->t->ctx, r->model);
    weft_text_free(r->t->ctx, r->print_text);
    wf_free(r->t->ctx, r->kept);
    wf_fp_free(&r->print);
    wf_free(r->t->ctx, r->tensor);
    wf_whole_free(r);
    wf_arena_free(&r->arena);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}
