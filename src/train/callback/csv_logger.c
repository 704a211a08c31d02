/* csv_logger.c - the callback CSVLogger: one row per epoch, epochs counted from 0, names sorted.
 *
 * The file has only complete rows whenever a call returns, even one that failed. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/append.h"
#include "base/number.h"
#include "train/callback/callback.h"
#include "train/loop/checkpoint.h"

#define MAX_NAMES 256
#define MAX_TEXT ((int64_t)64 << 20)

struct csv_logger {
    weft_ctx *ctx;
    char *path;
    char separator;
    bool append;
    int64_t start; /* where the rows of this run begin: append keeps what comes before */
    int64_t at;    /* bytes of the file up to this run's last row; -1: unknown */
    struct wf_append file;
    struct wf_buf text; /* to be written */
    int n;
    char *name[MAX_NAMES]; /* of the columns after the epoch */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void forget_names(struct csv_logger *c)
{
    for (int i = 0; i < c->n; i++)
        wf_free(c->ctx, c->name[i]);
    c->n = 0;
}

/* Writes c->text as one piece. */
static weft_status write_text(struct csv_logger *c)
{
    weft_status st = c->text.st ? wf_err(c->text.st, "CSVLogger: a row is too large") : WEFT_OK;

    if (!st)
        st = wf_append_add(&c->file, c->text.data, c->text.len);
    c->text.len = 0;
    c->text.st = WEFT_OK;
    return st;
}

static bool has_validation(const weft_logs *logs)
{
    for (int i = 0; i < logs->n; i++)
        if (strncmp(logs->name[i], "val_", 4) == 0)
            return true;
    return false;
}

static bool add_name(struct csv_logger *c, const char *prefix, const char *name)
{
    size_t n = strlen(prefix) + strlen(name) + 1;

    if (c->n == MAX_NAMES || !(c->name[c->n] = wf_alloc(c->ctx, n)))
        return false;
    snprintf(c->name[c->n++], n, "%s%s", prefix, name);
    return true;
}

/* Whether validation has this value, too: it has no scale of the loss. */
static bool is_validated(const weft_trainer *t, const char *name)
{
    const struct wf_bound *b = t->bound;

    for (int i = 0; b && i < b->n_extra; i++)
        if (strcmp(b->log_name[b->n_logs + i], name) == 0)
            return false;
    return true;
}

/* The columns: those of the first row, and validation values that may come in later epochs. A run
 * that resumes has the same ones, whether its first row has validation or not. */
static weft_status choose_names(struct csv_logger *c, const weft_trainer *t, const weft_logs *logs)
{
    bool ok = true;

    for (int i = 0; i < logs->n && ok; i++)
        ok = add_name(c, "", logs->name[i]);
    for (int i = 0; i < logs->n && ok && !has_validation(logs); i++)
        if (is_validated(t, logs->name[i]))
            ok = add_name(c, "val_", logs->name[i]);
    if (!ok) {
        forget_names(c);
        return wf_err(WEFT_ENOMEM, "CSVLogger: too many columns");
    }
    qsort(c->name, (size_t)c->n, sizeof c->name[0], by_name);
    return WEFT_OK;
}

static void put_head(struct csv_logger *c)
{
    wf_buf_printf(&c->text, "epoch");
    for (int i = 0; i < c->n; i++)
        wf_buf_printf(&c->text, "%c%s", c->separator, c->name[i]);
    wf_buf_printf(&c->text, "\n");
}

static void put_row(struct csv_logger *c, int64_t epoch, const weft_logs *logs)
{
    wf_buf_printf(&c->text, "%lld", (long long)epoch);
    for (int i = 0; i < c->n; i++) {
        double v = weft_logs_get(logs, c->name[i]);
        char text[WF_NUMBER_TEXT];

        wf_snprintf(text, sizeof text, "%.17g", v);
        wf_buf_printf(&c->text, "%c%s", c->separator, isnan(v) ? "NA" : text);
    }
    wf_buf_printf(&c->text, "\n");
}

/* The rows of a resumed run up to an epoch, from the history in its checkpoint. */
static void put_history(struct csv_logger *c, const weft_history *h, int64_t before)
{
    for (int64_t e = 0; e < h->n_epochs && h->first_epoch + e < before; e++)
        put_row(c, h->first_epoch + e,
                &(weft_logs){h->n_names, (const char *const *)h->name, h->value + e * h->n_names});
}

/* Removes rows that are not in the checkpoint, and writes missing ones again: the history is
 * authoritative, the file a view of it. */
static weft_status settle(struct csv_logger *c, const weft_history *h, int64_t epoch)
{
    int64_t size = c->file.size;
    bool whole = c->at >= 0 && size >= c->at;
    weft_status st;

    if (!whole && c->start > size)
        c->start = 0;
    if (!whole && c->at > 0)
        wf_log(c->ctx, WEFT_LOG_WARN,
               "CSVLogger: %s has %lld bytes, but had %lld when the checkpoint was written: its "
               "rows are written again from the checkpoint",
               c->path, (long long)size, (long long)c->at);
    size = whole ? c->at : c->start;
    st = wf_append_cut(&c->file, size);
    if (st)
        return st;
    if (size == 0)
        put_head(c);
    if (!whole && h)
        put_history(c, h, epoch);
    return write_text(c);
}

/* Called before the first row is written. */
static weft_status open_file(struct csv_logger *c, const weft_trainer *t, int64_t epoch)
{
    weft_status st = wf_append_open(&c->file, c->ctx, c->path);

    if (st)
        return st;
    if (c->file.size < 0) { /* a pipe, a terminal */
        put_head(c);
        st = write_text(c);
    } else {
        st = settle(c, t->history, epoch);
    }
    if (st)
        (void)wf_append_close(&c->file);
    return st;
}

static weft_status csv_begin(void *arg, weft_trainer *t)
{
    struct csv_logger *c = arg;
    struct wf_file_info info;
    int rc = -ENOENT;

    (void)t;
    (void)wf_append_close(&c->file);
    forget_names(c);
    if (c->append)
        rc = c->ctx->fs->stat(c->ctx->fs->arg, c->path, &info);
    if (rc && rc != -ENOENT)
        return wf_file_err(rc, c->path, "cannot append");
    c->at = c->start = rc ? 0 : info.size;
    return WEFT_OK;
}

/* Chooses the names and opens the file when there is a first row to write. */
static weft_status get_ready(struct csv_logger *c, const weft_trainer *t, int64_t epoch,
                             const weft_logs *logs)
{
    const struct wf_fs *fs = c->ctx->fs;
    weft_status st = c->n ? WEFT_OK : choose_names(c, t, logs);

    /* another worker, which believed that it decides, has cut rows off */
    if (!st && c->file.ctx && c->file.size >= 0 && fs->size(fs->arg, c->file.fd) < c->file.size) {
        c->at = c->file.size;
        st = wf_append_close(&c->file);
    }
    return st || c->file.ctx ? st : open_file(c, t, epoch);
}

static weft_status csv_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    weft_status st = get_ready(c, t, epoch, logs);

    if (st)
        return st;
    put_row(c, epoch, logs);
    return write_text(c);
}

/* A run that had nothing left to train also repairs its file. */
static weft_status csv_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    weft_status st = WEFT_OK;

    if (!c->file.ctx && t->history && t->history->n_epochs && logs->n)
        st = get_ready(c, t, WF_MAX_EPOCH, logs);
    if (st || !c->file.ctx)
        return st;
    c->at = c->file.size;
    return wf_append_close(&c->file);
}

static weft_status csv_save(void *arg, char **state, int64_t *n)
{
    struct csv_logger *c = arg;
    int64_t v[2] = {c->file.ctx ? c->file.size : c->at, c->start};

    *state = wf_alloc(c->ctx, sizeof v);
    if (!*state)
        return wf_err_nomem(c->ctx, sizeof v, "the state of CSVLogger");
    memcpy(*state, v, sizeof v);
    *n = sizeof v;
    return WEFT_OK;
}

/* Earlier versions saved only the length, and -1 after the end of training. */
static weft_status csv_restore(void *arg, const char *state, int64_t n)
{
    struct csv_logger *c = arg;
    int64_t v[2] = {0, 0};

    if (n != sizeof v && n != sizeof v[0])
        return wf_err(WEFT_EPARSE, "the saved state of CSVLogger has %lld bytes", (long long)n);
    memcpy(v, state, (size_t)n);
    if (v[1] < 0 || v[0] < -1)
        return wf_err(WEFT_EPARSE, "the saved state of CSVLogger has %lld bytes starting at %lld",
                      (long long)v[0], (long long)v[1]);
    c->at = v[0];
    if (n == sizeof v)
        c->start = v[1];
    return WEFT_OK;
}

static void csv_free(void *arg)
{
    struct csv_logger *c = arg;

    (void)wf_append_close(&c->file);
    wf_buf_free(&c->text);
    forget_names(c);
    wf_free(c->ctx, c->path);
    wf_free(c->ctx, c);
}

weft_status wf_csv_logger_make(const struct wf_callback_args *a, weft_callback *out)
{
    const char *separator = wf_cb_arg(a, "separator")->s;
    struct csv_logger *c = wf_alloc(a->ctx, sizeof *c);

    if (!c)
        return wf_err_nomem(a->ctx, sizeof *c, "a callback");
    c->ctx = a->ctx;
    wf_buf_init(&c->text, a->ctx, MAX_TEXT);
    c->append = wf_cb_arg(a, "append")->i;
    c->separator = strcmp(separator, "comma") == 0 ? ','
                   : strcmp(separator, "tab") == 0 ? '\t'
                                                   : separator[0];
    c->path = wf_strdup(a->ctx, wf_cb_arg(a, "filename")->s);
    if (!c->path) {
        csv_free(c);
        return wf_err_nomem(a->ctx, 0, "a callback");
    }
    out->arg = c;
    out->train_begin = csv_begin;
    out->epoch_end = csv_epoch;
    out->train_end = csv_end;
    out->save = csv_save;
    out->restore = csv_restore;
    out->free = csv_free;
    return WEFT_OK;
}
