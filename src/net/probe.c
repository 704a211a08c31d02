/* probe.c - which transports this machine has, by using each: a node that connects to itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "net/net.h"
#include "weft/sys/net.h"

#define TIMEOUT_NS 3000000000

struct probe {
    _Atomic int n_up, n_down;
    char why[160];
};

static void on_up(void *arg, struct wf_link *l)
{
    struct probe *p = arg;

    (void)l;
    p->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct probe *p = arg;

    (void)l;
    (void)st;
    if (p->n_down == 0)
        wf_snprintf(p->why, sizeof p->why, "%s", why);
    p->n_down++;
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    (void)arg;
    (void)l;
    (void)m;
}

static bool is_over(void *arg)
{
    const struct probe *p = arg;

    return p->n_up >= 2 || p->n_down > 0;
}

static weft_status credentials(weft_ctx *ctx, struct wf_tls **out)
{
    struct wf_pem authority, own;
    weft_status st = wf_cert_authority(ctx, 1, &authority);

    if (st)
        return st;
    st = wf_cert_issue(ctx, &authority, "probe", "probe", 1, &own);
    if (!st) {
        st = wf_tls_new(
            ctx, &(struct wf_credentials){authority.certificate, own.certificate, own.key}, out);
        wf_pem_free(ctx, &own);
    }
    wf_pem_free(ctx, &authority);
    return st;
}

/* A node listens, and connects to itself. */
static weft_status try_address(weft_ctx *ctx, const char *address, struct wf_tls *tls)
{
    struct probe p = {.n_up = 0};
    struct wf_net_opts opts = {
        .self = {.name = "probe", .role = "probe"},
        .calls = {.arg = &p, .up = on_up, .down = on_down, .received = on_received},
        .tls = tls};
    struct wf_net *net;
    struct wf_link *l;
    char bound[320];
    weft_status st = wf_net_new(ctx, &opts, &net);

    if (st)
        return st;
    st = wf_net_listen(net, address, bound, sizeof bound);
    if (!st)
        st = wf_net_connect(net, bound, TIMEOUT_NS, &l);
    if (!st)
        st = wf_net_wait(net, is_over, &p, TIMEOUT_NS, "a connection");
    if (!st && p.n_down)
        st = wf_err(WEFT_EIO, "%s", p.why);
    wf_net_free(net);
    return st;
}

/* ---- the parts ------------------------------------------------------------------------------- */

static weft_status try_ipv4(weft_ctx *ctx, const char *folder)
{
    (void)folder;
    return try_address(ctx, "tcp:127.0.0.1:0", NULL);
}

static weft_status try_ipv6(weft_ctx *ctx, const char *folder)
{
    (void)folder;
    return try_address(ctx, "tcp:[::1]:0", NULL);
}

static weft_status try_tls(weft_ctx *ctx, const char *folder)
{
    struct wf_tls *tls = NULL;
    weft_status st = credentials(ctx, &tls);

    (void)folder;
    if (!st)
        st = try_address(ctx, "tls:127.0.0.1:0", tls);
    wf_tls_free(tls);
    return st;
}

static weft_status try_uds(weft_ctx *ctx, const char *folder)
{
    char address[320];

    wf_snprintf(address, sizeof address, "uds:%s/u", folder);
    return try_address(ctx, address, NULL);
}

/* Memory that cannot be resized any more: the first call that fails is named. */
static weft_status try_memfd(weft_ctx *ctx)
{
    const struct wf_sys *sys = ctx->sys;
    const char *what = "memfd_create";
    void *p = NULL;
    int fd = sys->memfd_create(sys->arg, "weft-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc = fd;

    if (rc >= 0) {
        what = "ftruncate";
        rc = sys->ftruncate(sys->arg, fd, 4096);
    }
    if (rc >= 0) {
        what = "sealing the size";
        rc = sys->fcntl(sys->arg, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    }
    if (rc >= 0) {
        what = "mmap";
        rc = sys->mmap(sys->arg, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, &p);
    }
    if (p)
        sys->munmap(sys->arg, p, 4096);
    if (fd >= 0)
        sys->close(sys->arg, fd);
    return rc < 0 ? wf_err(WEFT_EIO, "%s: %s", what, wf_errno_text(-rc)) : WEFT_OK;
}

static weft_status try_shm(weft_ctx *ctx, const char *folder)
{
    char address[320];
    weft_status st = try_memfd(ctx);

    if (st)
        return st;
    wf_snprintf(address, sizeof address, "shm:%s/s", folder);
    return try_address(ctx, address, NULL);
}

static const struct part {
    const char *name;
    weft_status (*try)(weft_ctx *ctx, const char *folder);
    const char *text, *instead; /* if it works; if it does not */
} parts[] = {
    {"shm", try_shm, "shared memory: memfd with seals", "processes of this host use uds:"},
    {"uds", try_uds, "Unix sockets", "processes of this host use tcp:"},
    {"tcp, IPv4", try_ipv4, "127.0.0.1", "it needs the loopback interface"},
    {"tcp, IPv6", try_ipv6, "::1", "use IPv4 addresses"},
    {"tls", try_tls, "TLS 1.3", "it needs 127.0.0.1 and OpenSSL 3 with TLS 1.3"},
};

weft_status weft_net_part_at(weft_ctx *ctx, const char *folder, int i, weft_net_part *out)
{
    weft_net_part r = {.size = sizeof r};
    weft_status st;

    if (i < 0 || i >= WF_COUNT(parts))
        return wf_err(WEFT_ERANGE, "part %d of %d", i, WF_COUNT(parts));
    r.name = parts[i].name;
    st = parts[i].try(ctx, folder);
    r.works = !st;
    if (st)
        wf_snprintf(r.text, sizeof r.text, "%.90s; %s", weft_error(), parts[i].instead);
    else if (parts[i].try == try_tls)
        wf_snprintf(r.text, sizeof r.text, "%s, %s", parts[i].text,
                    OpenSSL_version(OPENSSL_VERSION));
    else
        wf_snprintf(r.text, sizeof r.text, "%s", parts[i].text);
    return wf_opts_give(out, out->size, &r, sizeof r, "weft_net_part");
}
