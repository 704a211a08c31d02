/* renew.c - certificates that are replaced while a job runs: files that are read again. */
#include "ps/renew.h"

enum { MAX_PEM = 1 << 20 };
#define LOOK_NS 2000000000

static const char *const what[WF_PEM_FILES] = {"the certificate of an authority", "a certificate",
                                               "a key"};

static int64_t stamp_of(const struct wf_renewal *r, int i)
{
    struct wf_file_info info;

    return r->ctx->fs->stat(r->ctx->fs->arg, r->path[i], &info) ? -1 : info.mtime_ns;
}

/* *tls NULL: new credentials. */
static weft_status take(struct wf_renewal *r, struct wf_tls **tls)
{
    char *text[WF_PEM_FILES] = {0};
    int64_t n;
    weft_status st = WEFT_OK;

    for (int i = 0; i < WF_PEM_FILES && !st; i++)
        st = wf_file_read(r->ctx, r->path[i], MAX_PEM, &text[i], &n);
    if (!st)
        st = wf_err_wrap(wf_cert_check(text[0], text[1]), "%s", r->path[1]);
    if (!st) {
        const struct wf_credentials c = {text[0], text[1], text[2]};

        st = *tls ? wf_tls_renew(*tls, &c) : wf_tls_new(r->ctx, &c, tls);
    }
    for (int i = 0; i < WF_PEM_FILES; i++) {
        if (text[i])
            memset(text[i], 0, strlen(text[i]));
        wf_free(r->ctx, text[i]);
    }
    return st;
}

weft_status wf_renewal_new(weft_ctx *ctx, const char *const path[WF_PEM_FILES],
                           struct wf_renewal **out, struct wf_tls **tls)
{
    struct wf_renewal *r = wf_alloc(ctx, sizeof *r);
    weft_status st = r ? WEFT_OK : wf_err_nomem(ctx, sizeof *r, "credentials");

    if (r)
        r->ctx = ctx;
    for (int i = 0; i < WF_PEM_FILES && !st; i++) {
        if (!path[i])
            st = wf_err(WEFT_EINVAL, "parameter servers: tls needs %s", what[i]);
        else if (!(r->path[i] = wf_strdup(ctx, path[i])))
            st = wf_err_nomem(ctx, 0, "credentials");
        else
            r->stamp[i] = stamp_of(r, i);
    }
    if (!st)
        st = take(r, &r->tls);
    if (st) {
        wf_renewal_free(r);
        return st;
    }
    *out = r;
    *tls = r->tls;
    return WEFT_OK;
}

void wf_renewal_free(struct wf_renewal *r)
{
    if (!r)
        return;
    for (int i = 0; i < WF_PEM_FILES; i++)
        wf_free(r->ctx, r->path[i]);
    wf_free(r->ctx, r);
}

void wf_renewal_look(struct wf_renewal *r, int64_t now)
{
    int64_t stamp[WF_PEM_FILES];
    bool changed = false;

    if (!r || (r->looked_ns && now - r->looked_ns < LOOK_NS))
        return;
    r->looked_ns = now;
    for (int i = 0; i < WF_PEM_FILES; i++) {
        stamp[i] = stamp_of(r, i);
        if (stamp[i] < 0) /* between two files of that name */
            return;
        changed |= stamp[i] != r->stamp[i];
    }
    if (!changed)
        return;
    if (take(r, &r->tls)) {
        if (!r->warned)
            wf_log(r->ctx, WEFT_LOG_WARN, "new certificates cannot be used yet: %s", weft_error());
        r->warned = true;
        return;
    }
    r->warned = false;
    memcpy(r->stamp, stamp, sizeof r->stamp);
    wf_log(r->ctx, WEFT_LOG_INFO, "certificates were renewed");
}
