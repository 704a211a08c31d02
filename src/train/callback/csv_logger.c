/* csv_logger.c - the callback CSVLogger: a row an epoch, the epoch counted from 0, names sorted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/number.h"
#include "train/callback/callback.h"
#include "train/loop/checkpoint.h"

#define MAX_NAMES 256

struct csv_logger {
    weft_ctx *ctx;
    char *path;
    char separator;
    bool append;
    int64_t start; /* where the rows of this run begin: append leaves what is before */
    int64_t at;    /* bytes of the file that are this run's and what is before; -1: not known */
    FILE *file;
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

static weft_status cannot_write(const struct csv_logger *c)
{
    return wf_err(errno == ENOSPC ? WEFT_ENOSPC : WEFT_EIO, "%s: cannot write: %s", c->path,
                  wf_errno_text(errno));
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

/* The columns: what the first row has, and room for validation that comes in later epochs. */
static weft_status choose_names(struct csv_logger *c, const weft_logs *logs)
{
    bool ok = true;

    for (int i = 0; i < logs->n && ok; i++)
        ok = add_name(c, "", logs->name[i]);
    for (int i = 0; i < logs->n && ok && !has_validation(logs); i++)
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
    fprintf(c->file, "epoch");
    for (int i = 0; i < c->n; i++)
        fprintf(c->file, "%c%s", c->separator, c->name[i]);
    fputc('\n', c->file);
}

static void put_row(struct csv_logger *c, int64_t epoch, const weft_logs *logs)
{
    fprintf(c->file, "%lld", (long long)epoch);
    for (int i = 0; i < c->n; i++) {
        double v = weft_logs_get(logs, c->name[i]);
        char text[WF_NUMBER_TEXT];

        wf_snprintf(text, sizeof text, "%.17g", v);
        if (isnan(v))
            fprintf(c->file, "%cNA", c->separator);
        else
            fprintf(c->file, "%c%s", c->separator, text);
    }
    fputc('\n', c->file);
}

/* The rows of a resumed run, from the history that its checkpoint brought, up to an epoch. */
static void put_history(struct csv_logger *c, const weft_history *h, int64_t before)
{
    for (int64_t e = 0; e < h->n_epochs && h->first_epoch + e < before; e++)
        put_row(c, h->first_epoch + e,
                &(weft_logs){h->n_names, (const char *const *)h->name, h->value + e * h->n_names});
}

/* Opened with the first row. What the checkpoint does not know is cut off. The history is the truth
 * and the file a view of it: one that is missing or too short is written again. */
static weft_status open_file(struct csv_logger *c, const weft_trainer *t, int64_t epoch)
{
    const weft_history *h = t->history;
    int fd = wf_file_open_out(c->ctx, c->path, O_RDWR | O_CREAT, 0666);
    off_t size;
    bool whole;

    if (fd < 0)
        return wf_file_err(fd, c->path, "cannot write");
    c->file = fdopen(fd, "r+");
    if (!c->file) {
        c->ctx->fs->close(c->ctx->fs->arg, fd);
        return cannot_write(c);
    }
    if (fseeko(c->file, 0, SEEK_END) || (size = ftello(c->file)) < 0) {
        if (errno != ESPIPE)
            return cannot_write(c);
        put_head(c); /* a pipe, a terminal */
        return WEFT_OK;
    }
    whole = c->at >= 0 && size >= c->at;
    if (!whole && c->start > size)
        c->start = 0;
    if (!whole && c->at > 0)
        wf_log(c->ctx, WEFT_LOG_WARN,
               "CSVLogger: %s has %lld bytes, and had %lld when the checkpoint was written: its "
               "rows are written again from the checkpoint",
               c->path, (long long)size, (long long)c->at);
    size = whole ? c->at : c->start;
    if (ftruncate(fileno(c->file), size) || fseeko(c->file, size, SEEK_SET))
        return cannot_write(c);
    if (size == 0)
        put_head(c);
    if (!whole && h)
        put_history(c, h, epoch);
    return fflush(c->file) || ferror(c->file) ? cannot_write(c) : WEFT_OK;
}

static weft_status csv_begin(void *arg, weft_trainer *t)
{
    struct csv_logger *c = arg;
    struct wf_file_info info;

    (void)t;
    if (c->file)
        fclose(c->file);
    c->file = NULL;
    forget_names(c);
    c->start = 0;
    if (c->append && c->ctx->fs->stat(c->ctx->fs->arg, c->path, &info) == 0)
        c->start = info.size;
    c->at = c->start;
    return WEFT_OK;
}

/* Names and the file, when there is a first row to write. */
static weft_status get_ready(struct csv_logger *c, const weft_trainer *t, int64_t epoch,
                             const weft_logs *logs)
{
    weft_status st = c->n ? WEFT_OK : choose_names(c, logs);

    return st || c->file ? st : open_file(c, t, epoch);
}

static weft_status csv_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    weft_status st = get_ready(c, t, epoch, logs);

    if (st)
        return st;
    put_row(c, epoch, logs);
    return fflush(c->file) || ferror(c->file) ? cannot_write(c) : WEFT_OK;
}

/* A run that found nothing to do looks after its file, too. */
static weft_status csv_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    weft_status st = WEFT_OK;

    if (!c->file && t->history && t->history->n_epochs && logs->n)
        st = get_ready(c, t, WF_MAX_EPOCH, logs);
    if (st || !c->file)
        return st;
    c->at = ftello(c->file);
    if (fclose(c->file))
        st = wf_err(WEFT_EIO, "%s: cannot close: %s", c->path, wf_errno_text(errno));
    c->file = NULL;
    return st;
}

static weft_status csv_save(void *arg, char **state, int64_t *n)
{
    struct csv_logger *c = arg;
    int64_t v[2] = {c->file ? ftello(c->file) : c->at, c->start};

    *state = wf_alloc(c->ctx, sizeof v);
    if (!*state)
        return wf_err_nomem(c->ctx, sizeof v, "the state of CSVLogger");
    memcpy(*state, v, sizeof v);
    *n = sizeof v;
    return WEFT_OK;
}

/* Earlier versions kept the length alone, and -1 after the end of training. */
static weft_status csv_restore(void *arg, const char *state, int64_t n)
{
    struct csv_logger *c = arg;
    int64_t v[2] = {0, 0};

    if (n != sizeof v && n != sizeof v[0])
        return wf_err(WEFT_EPARSE, "the saved state of CSVLogger has %lld bytes", (long long)n);
    memcpy(v, state, (size_t)n);
    if (v[1] < 0 || v[0] < -1)
        return wf_err(WEFT_EPARSE, "the saved state of CSVLogger has %lld bytes from %lld on",
                      (long long)v[0], (long long)v[1]);
    c->at = v[0];
    if (n == sizeof v)
        c->start = v[1];
    return WEFT_OK;
}

static void csv_free(void *arg)
{
    struct csv_logger *c = arg;

    if (c->file)
        fclose(c->file);
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
