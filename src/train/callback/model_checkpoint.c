/* model_checkpoint.c - the callback ModelCheckpoint: saves the model to a file after each epoch or
 * every N batches, always or only when a value has improved. File names may contain numbers,
 * formatted as in Python: model-{epoch:02d}-{val_loss:.2f}.safetensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "ckpt/ckpt.h"
#include "train/callback/callback.h"
#include "train/saved/save.h"

struct saver {
    weft_ctx *ctx;
    char *path;
    struct wf_monitor monitor;
    bool best_only, weights_only, verbose;
    int64_t every;         /* batches; 0: once per epoch */
    int64_t epoch, n_seen; /* batches since the last file */
};

/* ---- names ----------------------------------------------------------------------------------- */

/* The shortest text that reads back as v. */
static void put_plain(struct wf_buf *b, double v)
{
    char text[WF_NUMBER_TEXT];

    for (int digits = 6; digits <= 17; digits++) {
        double back = 0;

        wf_snprintf(text, sizeof text, "%.*g", digits, v);
        if (wf_text_f64(text, &back) && back == v)
            break;
    }
    wf_buf_printf(b, "%s", text);
}

/* Formats v by a Python format: [0][width][.digits][d|f|e|g]; returns false if it is not one. */
static bool put_formatted(struct wf_buf *b, const char *spec, double v, bool whole)
{
    bool zero = *spec == '0';
    int width = 0, digits = 6;
    char kind;

    while (wf_is_digit(*spec) && width < 1000)
        width = width * 10 + *spec++ - '0';
    if (*spec == '.') {
        digits = 0;
        for (spec++; wf_is_digit(*spec) && digits < 1000;)
            digits = digits * 10 + *spec++ - '0';
    }
    kind = *spec ? *spec++ : whole ? 'd' : 'g';
    if (*spec || width > 99 || digits > 99 || (kind == 'd' && !whole))
        return false;
    switch (kind) {
    case 'd': wf_buf_printf(b, zero ? "%0*lld" : "%*lld", width, (long long)v); return true;
    case 'f': wf_buf_printf(b, zero ? "%0*.*f" : "%*.*f", width, digits, v); return true;
    case 'e': wf_buf_printf(b, zero ? "%0*.*e" : "%*.*e", width, digits, v); return true;
    case 'g': wf_buf_printf(b, zero ? "%0*.*g" : "%*.*g", width, digits, v); return true;
    default: return false;
    }
}

static weft_status put_place(struct wf_buf *b, const struct saver *s, const char *place, size_t n,
                             int64_t batch, const weft_logs *logs)
{
    char name[64], list[256] = "", *spec;
    size_t at = 0;
    double v = 0;
    bool whole = true, known;

    if (n >= sizeof name)
        return wf_err(WEFT_EINVAL, "filepath '%s': {%.*s} is too long", s->path, (int)n, place);
    memcpy(name, place, n);
    name[n] = 0;
    spec = strchr(name, ':');
    if (spec)
        *spec++ = 0;
    known = strcmp(name, "epoch") == 0 || (strcmp(name, "batch") == 0 && s->every);
    if (known)
        v = (double)(*name == 'e' ? s->epoch + 1 : batch + 1);
    for (int i = 0; i < logs->n && !known; i++) {
        known = strcmp(name, logs->name[i]) == 0;
        v = logs->value[i];
        whole = false;
    }
    for (int i = 0; i < logs->n && !known && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, ", %s", logs->name[i]);
    if (!known)
        return wf_err(WEFT_ENOENT, "filepath '%s': there is no '%s'; there are epoch%s", s->path,
                      name, list);
    if (spec ? !put_formatted(b, spec, v, whole) : false)
        return wf_err(WEFT_EINVAL, "filepath '%s': ':%s' is not a number format", s->path, spec);
    if (!spec)
        put_plain(b, v);
    return WEFT_OK;
}

/* The path with its placeholders replaced by numbers. */
static weft_status make_path(const struct saver *s, int64_t batch, const weft_logs *logs,
                             struct wf_buf *b)
{
    weft_status st = WEFT_OK;

    for (const char *p = s->path; *p && !st;) {
        const char *end = *p == '{' ? strchr(p, '}') : NULL;

        if ((*p == '{' || *p == '}') && p[1] == *p) { /* {{ is a literal brace */
            wf_buf_add(b, p, 1);
            p += 2;
        } else if (*p == '{' && !end) {
            st = wf_err(WEFT_EINVAL, "filepath '%s': a { without a }", s->path);
        } else if (end) {
            st = put_place(b, s, p + 1, (size_t)(end - p - 1), batch, logs);
            p = end + 1;
        } else {
            wf_buf_add(b, p++, 1);
        }
    }
    return st ? st : b->st;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Logs what happens, and returns whether to write a file. */
static bool decide(struct saver *s, weft_trainer *t, const weft_logs *logs, const char *path)
{
    struct wf_monitor *m = &s->monitor;
    double v, before;
    bool better;

    if (!s->best_only) {
        if (s->verbose)
            wf_log(s->ctx, WEFT_LOG_INFO, "Epoch %lld: saving model to %s", (long long)s->epoch + 1,
                   path);
        return true;
    }
    if (!wf_monitor_value(m, t, logs, "ModelCheckpoint", &v))
        return true; /* warned once; one file too many is better than none */
    before = isnan(m->best) ? m->sign > 0 ? -INFINITY : INFINITY : m->best;
    better = wf_monitor_better(m, v, m->best);
    if (s->verbose && better)
        wf_log(s->ctx, WEFT_LOG_INFO,
               "Epoch %lld: %s improved from %.5f to %.5f, saving model to %s",
               (long long)s->epoch + 1, m->name, before, v, path);
    else if (s->verbose)
        wf_log(s->ctx, WEFT_LOG_INFO, "Epoch %lld: %s did not improve from %.5f",
               (long long)s->epoch + 1, m->name, before);
    if (better)
        m->best = v;
    return better;
}

static weft_status make_parent(weft_ctx *ctx, char *path)
{
    struct wf_file_info info;
    char *slash = strrchr(path, '/');
    weft_status st = WEFT_OK;

    if (ctx->fs->stat(ctx->fs->arg, path, &info) == 0 && info.folder)
        return wf_err(WEFT_EINVAL, "filepath '%s' is a directory: give the name of a file", path);
    if (!slash || slash == path)
        return WEFT_OK;
    *slash = 0;
    st = wf_ckpt_make_dir(ctx, path);
    *slash = '/';
    return st;
}

static weft_status save_now(struct saver *s, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct wf_buf path;
    weft_status st;

    wf_buf_init(&path, s->ctx, WF_CKPT_PATH);
    st = make_path(s, batch, logs, &path);
    if (!st && decide(s, t, logs, path.data)) {
        st = make_parent(s->ctx, path.data);
        if (!st)
            st = wf_trainer_save(t, path.data, s->weights_only);
    }
    wf_buf_free(&path);
    return st;
}

static weft_status saver_begin(void *arg, weft_trainer *t)
{
    struct saver *s = arg;

    return s->best_only ? wf_monitor_direction(&s->monitor, t) : WEFT_OK;
}

static weft_status saver_epoch_begin(void *arg, weft_trainer *t, int64_t epoch)
{
    struct saver *s = arg;

    (void)t;
    s->epoch = epoch;
    return WEFT_OK;
}

static weft_status saver_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct saver *s = arg;

    s->epoch = epoch;
    return s->every ? WEFT_OK : save_now(s, t, 0, logs);
}

static weft_status saver_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct saver *s = arg;

    if (++s->n_seen < s->every)
        return WEFT_OK;
    s->n_seen = 0;
    return save_now(s, t, batch, logs);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct saved {
    double best;
    int64_t epoch, n_seen;
};

static weft_status saver_save(void *arg, char **state, int64_t *n)
{
    struct saver *s = arg;
    struct saved v = {s->monitor.best, s->epoch, s->n_seen};

    *state = wf_alloc(s->ctx, sizeof v);
    if (!*state)
        return wf_err_nomem(s->ctx, sizeof v, "the state of ModelCheckpoint");
    memcpy(*state, &v, sizeof v);
    *n = sizeof v;
    return WEFT_OK;
}

static weft_status saver_restore(void *arg, const char *state, int64_t n)
{
    struct saver *s = arg;
    struct saved v;

    if (n != sizeof v)
        return wf_err(WEFT_EPARSE, "the saved state of ModelCheckpoint has %lld bytes",
                      (long long)n);
    memcpy(&v, state, sizeof v);
    s->monitor.best = v.best;
    s->epoch = v.epoch;
    s->n_seen = v.n_seen;
    return WEFT_OK;
}

static void saver_free(void *arg)
{
    struct saver *s = arg;

    wf_free(s->ctx, s->path);
    wf_free(s->ctx, s);
}

weft_status wf_model_checkpoint_make(const struct wf_callback_args *a, weft_callback *out)
{
    const char *freq = wf_cb_arg(a, "save_freq")->s;
    struct saver *s = wf_alloc(a->ctx, sizeof *s);
    int64_t every = 0;
    weft_status st;

    if (!s)
        return wf_err_nomem(a->ctx, sizeof *s, "a callback");
    s->ctx = a->ctx;
    s->best_only = wf_cb_arg(a, "save_best_only")->i;
    s->weights_only = wf_cb_arg(a, "save_weights_only")->i;
    s->verbose = wf_cb_arg(a, "verbose")->i > 0;
    if (strcmp(freq, "epoch") != 0 && (!wf_text_i64(freq, &every) || every == 0))
        every = -1;
    s->every = every;
    s->path = wf_strdup(a->ctx, wf_cb_arg(a, "filepath")->s);
    st = wf_monitor_init(&s->monitor, a);
    s->monitor.best = wf_cb_arg(a, "initial_value_threshold")->f;
    if (!st && !s->path)
        st = wf_err_nomem(a->ctx, 0, "a callback");
    if (!st && s->every < 0)
        st = wf_err(WEFT_EINVAL, "save_freq '%s' is neither epoch nor a number of batches", freq);
    if (st) {
        saver_free(s);
        return st;
    }
    out->arg = s;
    out->train_begin = saver_begin;
    out->epoch_begin = saver_epoch_begin;
    out->epoch_end = saver_epoch;
    out->batch_end = s->every ? saver_batch : NULL;
    out->save = saver_save;
    out->restore = saver_restore;
    out->free = saver_free;
    return WEFT_OK;
}
