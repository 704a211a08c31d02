/* chief_store.c - the chief's store: a directory, or etcd. */
#include "cluster/chief_store.h"

#include "cluster/etcd.h"

enum { CONNECT_MS = 1000, REQUEST_MS = 3000 };

struct wf_chief_store {
    weft_ctx *ctx;
    struct wf_folder *folder; /* one of the two */
    struct wf_etcd *etcd;
};

static weft_status open_etcd(struct wf_chief_store *r, const struct wf_chief_store_opts *o)
{
    struct wf_http_opts http = {o->authority, o->certificate, o->key, (int64_t)CONNECT_MS * 1000000,
                                (int64_t)REQUEST_MS * 1000000};
    struct wf_etcd_where where;
    weft_status st = wf_etcd_where_parse(o->where, &where);

    if (st)
        return st;
    if (!where.tls && (o->authority || o->certificate || o->key))
        return wf_err(WEFT_EINVAL,
                      "store: etcd:// has no TLS, and so no certificates; say "
                      "etcds://%s/%s",
                      where.endpoint[0], where.prefix);
    if (!where.tls && !o->insecure && !wf_etcd_is_local(&where))
        return wf_err(WEFT_EINVAL,
                      "store: etcd:// is neither encrypted nor authenticated, and %s "
                      "is another machine; use etcds://, or say --insecure in a "
                      "network that you trust",
                      where.endpoint[0]);
    return wf_etcd_open(r->ctx, &where, &http, &r->etcd);
}

weft_status wf_chief_store_open(weft_ctx *ctx, const struct wf_chief_store_opts *o,
                                struct wf_chief_store **out)
{
    struct wf_chief_store *r = wf_alloc(ctx, sizeof *r);
    weft_status st;

    if (!r)
        return wf_err_nomem(ctx, sizeof *r, "store");
    r->ctx = ctx;
    st = wf_etcd_named(o->where) ? open_etcd(r, o) : wf_folder_open(ctx, o->where, &r->folder);
    if (st) {
        wf_chief_store_close(r);
        return st;
    }
    *out = r;
    return WEFT_OK;
}

void wf_chief_store_close(struct wf_chief_store *r)
{
    if (!r)
        return;
    wf_folder_close(r->folder);
    wf_etcd_close(r->etcd);
    wf_free(r->ctx, r);
}

weft_status wf_chief_store_do(struct wf_chief_store *r, const struct wf_action *a,
                              struct wf_store_answer *out)
{
    return r->etcd ? wf_etcd_do(r->etcd, a, out) : wf_folder_do(r->folder, a, out);
}

weft_status wf_chief_store_drop(struct wf_chief_store *r)
{
    return r->etcd ? wf_etcd_drop(r->etcd) : WEFT_OK;
}

void wf_chief_store_stop(struct wf_chief_store *r)
{
    if (r->etcd)
        wf_etcd_stop(r->etcd);
}
