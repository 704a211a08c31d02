/* csv_logger.c - the callback CSVLogger: a row an epoch, the epoch counted from 0, names sorted. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/callback.h"

#define MAX_NAMES 256

struct csv_logger {
    weft_ctx *ctx;
    char *path;
    char separator;
    bool append;
    int64_t resume_at; /* bytes of the file that belong to this run; -1: not resumed */
    FILE *file;
    int n;
    char *name[MAX_NAMES]; /* of the columns behind the epoch */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Opened with the first row: a resumed run goes on behind the rows that its checkpoint knows. */
static weft_status open_file(struct csv_logger *c)
{
    c->file = fopen(c->path, c->resume_at >= 0 ? "r+" : c->append ? "a" : "w");
    if (c->file && c->resume_at >= 0 &&
        (ftruncate(fileno(c->file), (off_t)c->resume_at) || fseek(c->file, 0, SEEK_END))) {
        fclose(c->file);
        c->file = NULL;
    }
    if (!c->file)
        return wf_err(WEFT_EIO, "%s: cannot write: %s", c->path, strerror(errno));
    return WEFT_OK;
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
    if (!ok)
        return wf_err(WEFT_ENOMEM, "CSVLogger: too many columns");
    qsort(c->name, (size_t)c->n, sizeof c->name[0], by_name);
    if ((c->append || c->resume_at > 0) && ftell(c->file) > 0)
        return WEFT_OK;
    fprintf(c->file, "epoch");
    for (int i = 0; i < c->n; i++)
        fprintf(c->file, "%c%s", c->separator, c->name[i]);
    fputc('\n', c->file);
    return WEFT_OK;
}

static weft_status csv_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    weft_status st = c->file ? WEFT_OK : open_file(c);

    (void)t;
    if (!st && !c->n)
        st = choose_names(c, logs);
    if (st)
        return st;
    fprintf(c->file, "%lld", (long long)epoch);
    for (int i = 0; i < c->n; i++) {
        double v = weft_logs_get(logs, c->name[i]);

        if (isnan(v))
            fprintf(c->file, "%cNA", c->separator);
        else
            fprintf(c->file, "%c%.17g", c->separator, v);
    }
    fputc('\n', c->file);
    if (fflush(c->file) || ferror(c->file))
        return wf_err(errno == ENOSPC ? WEFT_ENOSPC : WEFT_EIO, "%s: cannot write: %s", c->path,
                      strerror(errno));
    return WEFT_OK;
}

static weft_status csv_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    struct csv_logger *c = arg;
    int rc = c->file ? fclose(c->file) : 0;

    (void)t;
    (void)logs;
    c->file = NULL;
    return rc ? wf_err(WEFT_EIO, "%s: cannot close: %s", c->path, strerror(errno)) : WEFT_OK;
}

static weft_status csv_save(void *arg, char **state, int64_t *n)
{
    struct csv_logger *c = arg;
    int64_t at = c->file ? ftell(c->file) : c->resume_at;

    *state = wf_alloc(c->ctx, sizeof at);
    if (!*state)
        return wf_err_nomem(c->ctx, sizeof at, "the state of CSVLogger");
    memcpy(*state, &at, sizeof at);
    *n = sizeof at;
    return WEFT_OK;
}

static weft_status csv_restore(void *arg, const char *state, int64_t n)
{
    struct csv_logger *c = arg;

    if (n != sizeof c->resume_at)
        return wf_err(WEFT_EPARSE, "the saved state of CSVLogger has %lld bytes", (long long)n);
    memcpy(&c->resume_at, state, sizeof c->resume_at);
    return WEFT_OK;
}

static void csv_free(void *arg)
{
    struct csv_logger *c = arg;

    if (c->file)
        fclose(c->file);
    for (int i = 0; i < c->n; i++)
        wf_free(c->ctx, c->name[i]);
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
    c->resume_at = -1;
    c->separator = strcmp(separator, "comma") == 0 ? ','
                   : strcmp(separator, "tab") == 0 ? '\t'
                                                   : separator[0];
    c->path = wf_strdup(a->ctx, wf_cb_arg(a, "filename")->s);
    if (!c->path) {
        csv_free(c);
        return wf_err_nomem(a->ctx, 0, "a callback");
    }
    out->arg = c;
    out->epoch_end = csv_epoch;
    out->train_end = csv_end;
    out->save = csv_save;
    out->restore = csv_restore;
    out->free = csv_free;
    return WEFT_OK;
}
