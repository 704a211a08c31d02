/* list.c - the checkpoints in a directory, its lock, and what killed writers left in it. The
 * directories themselves are the truth: no file points to the newest. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/ckpt.h"

#define PREFIX "ckpt-"

/* Digits up to `stop`; -1 if there is anything else, or too many. */
static int64_t digits(const char **p, char stop)
{
    const char *s = *p;
    int64_t v = 0;

    if (*s < '0' || *s > '9')
        return -1;
    for (; *s >= '0' && *s <= '9'; s++)
        if (!wf_mul_i64(v, 10, &v) || !wf_add_i64(v, *s - '0', &v))
            return -1;
    *p = s;
    return *s == stop || !*s ? v : -1;
}

bool wf_ckpt_name_parse(const char *name, int64_t *step, int64_t *attempt)
{
    const char *p = name + strlen(PREFIX);

    if (strncmp(name, PREFIX, strlen(PREFIX)) || strlen(name) >= WF_CKPT_NAME)
        return false;
    *step = digits(&p, '-');
    *attempt = 1;
    if (*step >= 0 && *p == '-') {
        p++;
        *attempt = digits(&p, '\0');
    }
    return *step >= 0 && *attempt >= 1;
}

void wf_ckpt_name_make(char out[WF_CKPT_NAME], int64_t step, int64_t attempt)
{
    int at = snprintf(out, WF_CKPT_NAME, PREFIX "%09lld", (long long)step);

    if (attempt > 1)
        snprintf(out + at, (size_t)(WF_CKPT_NAME - at), "-%lld", (long long)attempt);
}

/* ---- scanning -------------------------------------------------------------------------------- */

struct scan {
    weft_ctx *ctx;
    struct wf_ckpt_name *list;
    int64_t n, cap;
    weft_status st;
};

static int scan_one(void *arg, const char *name)
{
    struct scan *s = arg;
    int64_t step, attempt;

    if (!wf_ckpt_name_parse(name, &step, &attempt))
        return 0;
    s->st = wf_grow(s->ctx, &s->list, &s->cap, s->n + 1, sizeof *s->list);
    if (s->st)
        return 1;
    s->list[s->n] = (struct wf_ckpt_name){.step = step, .attempt = attempt};
    memcpy(s->list[s->n++].name, name, strlen(name) + 1);
    return 0;
}

static int by_step(const void *a, const void *b)
{
    const struct wf_ckpt_name *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->attempt != y->attempt)
        return x->attempt < y->attempt ? -1 : 1;
    return strcmp(x->name, y->name);
}

weft_status wf_ckpt_scan(weft_ctx *ctx, const char *dir, int64_t *n, struct wf_ckpt_name **out)
{
    const struct wf_fs *fs = ctx->fs;
    struct scan s = {.ctx = ctx};
    int rc = fs->list(fs->arg, dir, scan_one, &s);

    if (!s.st && rc)
        s.st = wf_file_err(rc, dir, "cannot list");
    if (s.st) {
        wf_free(ctx, s.list);
        return s.st;
    }
    if (s.n)
        qsort(s.list, (size_t)s.n, sizeof *s.list, by_step);
    *n = s.n;
    *out = s.list;
    return WEFT_OK;
}

/* ---- the list with the contents of manifests ------------------------------------------------- */

struct list {
    weft_ckpt_list pub; /* first: the pointer is the public one */
    struct wf_arena mem;
};

static weft_status keep_text(weft_ctx *ctx, struct list *l, const char *s, const char **out)
{
    *out = wf_arena_strdup(&l->mem, s);
    return *out ? WEFT_OK : wf_err_nomem(ctx, strlen(s) + 1, "list of checkpoints");
}

static const weft_ckpt_entry *find_known(const weft_ckpt_list *known, const char *path)
{
    for (int64_t i = 0; known && i < known->n; i++)
        if (!known->entry[i].error && !strcmp(known->entry[i].path, path))
            return &known->entry[i];
    return NULL;
}

static weft_status fill_entry(weft_ctx *ctx, struct list *l, const char *dir,
                              const struct wf_ckpt_name *name, const char *monitor,
                              const weft_ckpt_list *known, weft_ckpt_entry *e)
{
    char path[WF_CKPT_PATH];
    const weft_ckpt_entry *before;
    weft_ckpt *c = NULL;
    weft_status st = wf_ckpt_join(path, dir, name->name);

    *e = (weft_ckpt_entry){.step = name->step};
    before = st ? NULL : find_known(known, path);
    if (before)
        *e = *before;
    if (!st)
        st = keep_text(ctx, l, path, &e->path);
    if (st || before)
        return st;
    st = weft_ckpt_open(ctx, path, &c);
    if (st == WEFT_ENOMEM || st == WEFT_ELIMIT)
        return st;
    if (!st)
        st = wf_ckpt_check_step(c, name->step);
    if (st) {
        weft_ckpt_close(c);
        return keep_text(ctx, l, weft_error(), &e->error);
    }
    e->epoch = weft_ckpt_info(c)->epoch;
    e->time_ns = weft_ckpt_info(c)->time_ns;
    e->n_tensors = weft_ckpt_info(c)->n_tensors;
    e->bytes = weft_ckpt_bytes(c);
    e->has_metric = monitor && weft_ckpt_metric_get(c, monitor, &e->metric);
    weft_ckpt_close(c);
    return WEFT_OK;
}

weft_status weft_ckpt_list_new(weft_ctx *ctx, const char *dir, const char *monitor,
                               weft_ckpt_list **out)
{
    return wf_ckpt_list_again(ctx, dir, monitor, NULL, out);
}

weft_status wf_ckpt_list_again(weft_ctx *ctx, const char *dir, const char *monitor,
                               const weft_ckpt_list *known, weft_ckpt_list **out)
{
    struct list *l = wf_alloc(ctx, sizeof *l);
    struct wf_ckpt_name *names = NULL;
    int64_t n = 0;
    weft_status st;

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "list of checkpoints");
    wf_arena_init(&l->mem, ctx);
    st = wf_ckpt_scan(ctx, dir, &n, &names);
    if (!st) {
        l->pub.entry = wf_arena_alloc(&l->mem, (size_t)n * sizeof *l->pub.entry);
        if (!l->pub.entry)
            st = wf_err_nomem(ctx, (size_t)n * sizeof *l->pub.entry, "list of checkpoints");
    }
    for (int64_t i = 0; i < n && !st; i++)
        st = fill_entry(ctx, l, dir, &names[i], monitor, known, &l->pub.entry[l->pub.n++]);
    wf_free(ctx, names);
    if (st) {
        weft_ckpt_list_free(ctx, &l->pub);
        return st;
    }
    *out = &l->pub;
    return WEFT_OK;
}

void weft_ckpt_list_free(weft_ctx *ctx, weft_ckpt_list *list)
{
    struct list *l = (struct list *)(void *)list;

    if (!l)
        return;
    wf_arena_free(&l->mem);
    wf_free(ctx, l);
}

/* ---- one writer per directory ---------------------------------------------------------------- */

weft_status wf_ckpt_lock(weft_ctx *ctx, const char *dir, int *out)
{
    const struct wf_fs *fs = ctx->fs;
    char path[WF_CKPT_PATH];
    int fd, rc;
    weft_status st = wf_ckpt_join(path, dir, ".lock");

    if (st)
        return st;
    fd = fs->open(fs->arg, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    rc = fs->lock(fs->arg, fd);
    if (rc == -EWOULDBLOCK) {
        fs->close(fs->arg, fd);
        return wf_err(WEFT_ESTATE,
                      "%s: another process, or another writer in this process, is writing "
                      "checkpoints here; wait for it or use another directory",
                      dir);
    }
    if (rc) /* continue on a file system without locks */
        wf_log(ctx, WEFT_LOG_WARN, "%s: cannot lock (%s): make sure that only one job writes there",
               path, wf_errno_text(-rc));
    *out = fd;
    return WEFT_OK;
}

static int sweep_one(void *arg, const char *name)
{
    struct scan *s = arg;
    int64_t step, attempt;
    const char *rest = name + strlen(WF_CKPT_TMP);

    if ((strncmp(name, WF_CKPT_TMP, strlen(WF_CKPT_TMP)) &&
         strncmp(name, WF_CKPT_DEL, strlen(WF_CKPT_DEL))) ||
        !wf_ckpt_name_parse(rest, &step, &attempt) || strlen(name) >= WF_CKPT_NAME)
        return 0;
    s->st = wf_grow(s->ctx, &s->list, &s->cap, s->n + 1, sizeof *s->list);
    if (s->st)
        return 1;
    memcpy(s->list[s->n++].name, name, strlen(name) + 1);
    return 0;
}

weft_status wf_ckpt_sweep(weft_ctx *ctx, const char *dir)
{
    const struct wf_fs *fs = ctx->fs;
    struct scan s = {.ctx = ctx};
    char path[WF_CKPT_PATH];
    int rc = fs->list(fs->arg, dir, sweep_one, &s);

    if (!s.st && rc)
        s.st = wf_file_err(rc, dir, "cannot list");
    for (int64_t i = 0; i < s.n && !s.st; i++) {
        s.st = wf_ckpt_join(path, dir, s.list[i].name);
        if (!s.st)
            s.st = wf_file_remove(ctx, path);
    }
    wf_free(ctx, s.list);
    return s.st;
}
