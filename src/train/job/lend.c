/* lend.c - the data files of a job, lent to tasks that lack them (cluster/lend.h). */
#include "cluster/lend.h"

#include "ps/renew.h"
#include "train/job/job.h"
#include "weft/sys/lend.h"

enum { MAX_PATTERNS = 1024, MAX_LENDERS = 64 };

/* What both sides have. */
struct side {
    weft_ctx *ctx;
    struct wf_arena arena;
    struct wf_lend_files files;
    struct wf_renewal *renewal;
    struct wf_tls *tls;
};

struct weft_lender {
    struct side s;
    struct wf_lender *l;
};

struct weft_borrower {
    struct side s;
    struct wf_borrower *b;
};

/* A list separated by commas, "\," within a name: up to max texts. */
static weft_status split(struct wf_arena *arena, const char *list, int max, const char **text,
                         int *n)
{
    for (const char *p = list; p && *p;) {
        char *to = wf_arena_alloc(arena, strlen(p) + 1);
        size_t k = 0;

        if (!to || *n == max)
            return wf_err(WEFT_ELIMIT, "more than %d paths or addresses", max);
        while (*p == ' ')
            p++;
        for (; *p && *p != ','; p++) {
            if (p[0] == '\\' && p[1] == ',')
                p++;
            to[k++] = *p;
        }
        to[k] = '\0';
        p += *p == ',';
        if (k)
            text[(*n)++] = to;
    }
    return WEFT_OK;
}

static weft_status open_side(struct side *s, weft_ctx *ctx, const weft_job *job,
                             const weft_lend_opts *o)
{
    const char *paths[] = {job->train.path, job->validation.path, job->test.path};
    const char *const pem[WF_PEM_FILES] = {o->authority, o->certificate, o->key};
    const char **pattern;
    weft_status st = WEFT_OK;

    s->ctx = ctx;
    wf_arena_init(&s->arena, ctx);
    pattern = wf_arena_alloc(&s->arena, MAX_PATTERNS * sizeof *pattern);
    if (!pattern)
        return wf_err_nomem(ctx, 0, "lending data");
    if (!o->address || !*o->address || !o->task || !strchr(o->task, '/'))
        return wf_err(WEFT_EINVAL, "weft_lend_opts: needs an address and a task");
    s->files = (struct wf_lend_files){.root = job->dir ? job->dir : "", .pattern = pattern};
    for (int i = 0; i < WF_COUNT(paths) && !st; i++)
        st = split(&s->arena, paths[i], MAX_PATTERNS, pattern, &s->files.n);
    if (!st && strstr(o->address, "tls:"))
        st = wf_renewal_new(ctx, pem, &s->renewal, &s->tls);
    return st;
}

static void close_side(struct side *s)
{
    wf_renewal_free(s->renewal);
    wf_tls_free(s->tls);
    wf_arena_free(&s->arena);
}

/* ---- lenders --------------------------------------------------------------------------------- */

weft_status weft_lend_open(weft_ctx *ctx, const weft_job *job, const weft_lend_opts *opts,
                           char *bound, size_t n_bound, weft_lender **out)
{
    weft_lend_opts o;
    weft_lender *l;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_lend_opts");

    if (st)
        return st;
    l = wf_alloc(ctx, sizeof *l);
    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "a lender");
    st = open_side(&l->s, ctx, job, &o);
    if (!st)
        st = wf_lender_open(
            ctx, &(struct wf_lend_opts){.task = o.task, .tls = l->s.tls, .files = l->s.files},
            o.address, bound, n_bound, &l->l);
    if (st) {
        weft_lend_close(l);
        return st;
    }
    *out = l;
    return WEFT_OK;
}

void weft_lend_tend(weft_lender *l)
{
    if (l)
        wf_renewal_look(l->s.renewal, wf_now(l->s.ctx));
}

void weft_lend_close(weft_lender *l)
{
    if (!l)
        return;
    wf_lender_close(l->l);
    close_side(&l->s);
    wf_free(l->s.ctx, l);
}

/* ---- borrowers ------------------------------------------------------------------------------- */

static void look(void *arg)
{
    struct side *s = arg;

    wf_renewal_look(s->renewal, wf_now(s->ctx));
}

weft_status weft_borrow_open(weft_ctx *ctx, const weft_job *job, const weft_lend_opts *opts,
                             weft_borrower **out)
{
    weft_lend_opts o;
    weft_borrower *b;
    const char **address;
    int n = 0;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_lend_opts");

    if (st)
        return st;
    b = wf_alloc(ctx, sizeof *b);
    if (!b)
        return wf_err_nomem(ctx, sizeof *b, "a borrower");
    st = open_side(&b->s, ctx, job, &o);
    address = st ? NULL : wf_arena_alloc(&b->s.arena, MAX_LENDERS * sizeof *address);
    if (!st && !address)
        st = wf_err_nomem(ctx, 0, "a borrower");
    if (!st)
        st = split(&b->s.arena, o.address, MAX_LENDERS, address, &n);
    if (!st && (n == 0 || o.cache_bytes < 0 || o.timeout_s < 0 || o.timeout_s > 1e6))
        st = wf_err(WEFT_EINVAL, "weft_lend_opts: no lender, or a size or time below 0");
    if (!st)
        st = wf_borrow_open(ctx,
                            &(struct wf_borrow_opts){.task = o.task,
                                                     .tls = b->s.tls,
                                                     .files = b->s.files,
                                                     .n_lenders = n,
                                                     .address = address,
                                                     .cache_bytes = o.cache_bytes,
                                                     .timeout_ns = (int64_t)(o.timeout_s * 1e9),
                                                     .before = look,
                                                     .before_arg = &b->s},
                            &b->b);
    if (st) {
        weft_borrow_close(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

void weft_borrow_close(weft_borrower *b)
{
    if (!b)
        return;
    wf_borrow_close(b->b);
    close_side(&b->s);
    wf_free(b->s.ctx, b);
}
