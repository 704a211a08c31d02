/* history.c - the epochs of a run, read back from its CSV file or its checkpoints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "train/loop/checkpoint.h"

#define MAX_CSV ((int64_t)256 << 20)

/* ---- from CSV -------------------------------------------------------------------------------- */

struct csv {
    const char *path;
    char *p; /* the next line, split as it is read */
    char separator;
    int64_t line;
};

/* The next field of a line; *more if there are more. */
static char *field(struct csv *c, bool *more)
{
    char *begin = c->p;

    while (*c->p && *c->p != c->separator && *c->p != '\n')
        c->p++;
    *more = *c->p == c->separator;
    if (*c->p)
        *c->p++ = 0;
    if (c->p - begin > 1 && c->p[-2] == '\r')
        c->p[-2] = 0;
    return begin;
}

static weft_status csv_head(struct csv *c, weft_history *h)
{
    weft_ctx *ctx = h->inside;
    int64_t n = 1;
    bool more;

    if (strncmp(c->p, "epoch", 5) != 0 || !c->p[5])
        return wf_err(WEFT_EPARSE, "%s: not a history: its first column is not 'epoch'", c->path);
    c->separator = c->p[5] == '\n' || c->p[5] == '\r' ? ',' : c->p[5];
    for (const char *p = c->p; *p && *p != '\n'; p++)
        n += *p == c->separator;
    h->name = wf_alloc_n(ctx, n, sizeof *h->name);
    if (!h->name)
        return wf_err_nomem(ctx, 0, "history");
    (void)field(c, &more);
    while (more) {
        h->name[h->n_names] = wf_strdup(ctx, field(c, &more));
        if (!h->name[h->n_names++])
            return wf_err_nomem(ctx, 0, "history");
    }
    return WEFT_OK;
}

static weft_status csv_row(struct csv *c, weft_history *h, int64_t *cap)
{
    bool more;
    char *text = field(c, &more);
    int64_t epoch = -1;
    weft_status st =
        wf_grow(h->inside, &h->value, cap, (h->n_epochs + 1) * h->n_names + 1, sizeof *h->value);

    c->line++;
    if (st)
        return st;
    if (!wf_text_i64(text, &epoch) || epoch < 0 || epoch > WF_MAX_EPOCH)
        return wf_err(WEFT_EPARSE, "%s:%lld: '%s' is not an epoch", c->path, (long long)c->line,
                      text);
    if (h->n_epochs == 0)
        h->first_epoch = epoch;
    for (int i = 0; i < h->n_names; i++) {
        double v = NAN;

        if (!more)
            return wf_err(WEFT_EPARSE, "%s:%lld: %d values of %d", c->path, (long long)c->line, i,
                          h->n_names);
        text = field(c, &more);
        if (strcmp(text, "NA") != 0 && !wf_text_f64(text, &v))
            return wf_err(WEFT_EPARSE, "%s:%lld: '%s' is not a number", c->path, (long long)c->line,
                          text);
        h->value[h->n_epochs * h->n_names + i] = v;
    }
    h->n_epochs++;
    return WEFT_OK;
}

weft_status wf_history_parse(weft_ctx *ctx, const char *name, char *text, weft_history **out)
{
    weft_history *h = wf_alloc(ctx, sizeof *h);
    struct csv c = {.path = name, .p = text, .line = 1};
    int64_t cap = 0;
    weft_status st;

    if (!h)
        return wf_err_nomem(ctx, sizeof *h, name);
    h->inside = ctx;
    st = csv_head(&c, h);
    while (!st && *c.p)
        st = csv_row(&c, h, &cap);
    if (st) {
        weft_history_free(h);
        return st;
    }
    *out = h;
    return WEFT_OK;
}

static weft_status from_csv(weft_ctx *ctx, const char *path, weft_history **out)
{
    char *text = NULL;
    int64_t n;
    weft_status st = wf_file_read(ctx, path, MAX_CSV, &text, &n);

    if (!st)
        st = wf_history_parse(ctx, path, text, out);
    wf_free(ctx, text);
    return st;
}

/* ---- from checkpoints ------------------------------------------------------------------------ */

static weft_status from_checkpoints(weft_ctx *ctx, const char *dir, weft_history **out)
{
    weft_history *h = NULL;
    weft_ckpt *c = NULL;
    int64_t batch = 0;
    weft_status st = weft_ckpt_open_latest(ctx, dir, &c);

    if (!st)
        st = wf_resume_history(ctx, c, &batch, &h);
    if (!st && batch > 0) { /* the current epoch, as far as it went */
        double *row = h->value + h->n_epochs * h->n_names;

        for (int i = 0; i < h->n_names; i++)
            if (!weft_ckpt_metric_get(c, h->name[i], &row[i]))
                row[i] = NAN;
        h->n_epochs++;
    }
    weft_ckpt_close(c);
    if (!st)
        *out = h;
    return st;
}

weft_status weft_history_read(weft_ctx *ctx, const char *path, weft_history **out)
{
    struct wf_file_info info;
    char csv[4096];
    int rc = ctx->fs->stat(ctx->fs->arg, path, &info);

    if (rc < 0)
        return wf_file_err(rc, path, "cannot read a history");
    if (!info.folder)
        return from_csv(ctx, path, out);
    if (snprintf(csv, sizeof csv, "%s/history.csv", path) < (int)sizeof csv &&
        ctx->fs->stat(ctx->fs->arg, csv, &info) == 0)
        return from_csv(ctx, csv, out);
    return from_checkpoints(ctx, path, out);
}
