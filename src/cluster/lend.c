/* lend.c - reads the data files of a job for tasks that lack them. Whatever a peer asks for is
 * checked against the files that the job names. */
#define _GNU_SOURCE
#include "cluster/lend.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>

#include "base/bytes.h"
#include "net/net.h"

#define SILENCE_NS 10000000000

struct wf_lender {
    weft_ctx *ctx;
    struct wf_lend_files files;
    struct wf_net *net;
};

/* ---- which files ----------------------------------------------------------------------------- */

static bool goes_up(const char *path)
{
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/')
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2]))
            return true;
    return false;
}

/* The pattern's own ".." are the job's. */
static bool is_below(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);

    while (n > 1 && pattern[n - 1] == '/')
        n--;
    return strncmp(pattern, path, n) == 0 && (path[n] == '/' || !path[n]) && !goes_up(path + n);
}

bool wf_lend_names(const struct wf_lend_files *f, const char *path)
{
    for (int i = 0; i < f->n; i++)
        if (is_below(f->pattern[i], path) ||
            (!goes_up(path) && fnmatch(f->pattern[i], path, FNM_PATHNAME | FNM_PERIOD) == 0))
            return true;
    return false;
}

/* A pattern of a peer's own could match "..": ".[.]". */
static bool is_pattern(const struct wf_lend_files *f, const char *path)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->pattern[i], path) == 0)
            return true;
    return false;
}

bool wf_lend_outward(const struct wf_lend_files *f, const char *path, char out[WF_LEND_PATH])
{
    size_t n = strlen(f->root);

    if (n && strncmp(path, f->root, n) == 0 && path[n] == '/')
        path += n + 1;
    return wf_snprintf(out, WF_LEND_PATH, "%s", path) < WF_LEND_PATH;
}

bool wf_lend_inward(const struct wf_lend_files *f, const char *path, char out[WF_LEND_PATH])
{
    bool own = *path != '/' && *f->root;

    return wf_snprintf(out, WF_LEND_PATH, "%s%s%s", own ? f->root : "", own ? "/" : "", path) <
           WF_LEND_PATH;
}

/* ---- answers --------------------------------------------------------------------------------- */

struct names {
    const struct wf_lend_files *files;
    bool outward; /* paths, and the request was relative */
    struct wf_buf *to;
};

static int add_name(void *arg, const char *name)
{
    struct names *n = arg;
    char path[WF_LEND_PATH];

    if (n->outward && wf_lend_outward(n->files, name, path))
        name = path;
    wf_buf_add(n->to, name, (int64_t)strlen(name) + 1);
    return n->to->st ? -E2BIG : 0;
}

static int64_t read_block(weft_ctx *ctx, const char *path, int64_t offset, int64_t n,
                          struct wf_buf *to)
{
    const struct wf_fs *fs = ctx->fs;
    char *block = wf_alloc_raw(ctx, WF_LEND_BLOCK);
    int fd = block ? fs->open(fs->arg, path, O_RDONLY, 0) : -ENOMEM;
    int64_t got = fd, done = 0;

    while (fd >= 0 && done < n && got != 0) {
        got = fs->pread(fs->arg, fd, block + done, n - done, offset + done);
        if (got < 0)
            break;
        done += got;
    }
    if (fd >= 0)
        fs->close(fs->arg, fd);
    if (got >= 0)
        wf_buf_add(to, block, done);
    wf_free(ctx, block);
    return got < 0 ? got : to->st ? -ENOMEM : done;
}

static int64_t stat_file(weft_ctx *ctx, const char *path, unsigned char *head)
{
    struct wf_file_info info;
    int64_t rc = ctx->fs->stat(ctx->fs->arg, path, &info);

    if (rc)
        return rc;
    wf_put_le64(head + 8, (uint64_t)info.size);
    wf_put_le64(head + 16, (uint64_t)info.mtime_ns);
    head[24] = (unsigned char)(info.plain | info.folder << 1);
    return 0;
}

static int64_t look(weft_ctx *ctx, const struct wf_lend_files *files, const unsigned char *request,
                    const char *asked, unsigned char *head, struct wf_buf *payload)
{
    struct names names = {files, *asked != '/', payload};
    int64_t offset = (int64_t)wf_get_le64(request + 2), n = wf_get_le32(request + 10);
    char path[WF_LEND_PATH];

    if (!wf_lend_inward(files, asked, path))
        return -ENAMETOOLONG;
    if (request[1] == WF_LEND_GLOB ? !is_pattern(files, path) : !wf_lend_names(files, path))
        return -EACCES;
    switch (request[1]) {
    case WF_LEND_STAT: return stat_file(ctx, path, head);
    case WF_LEND_READ:
        return offset < 0 || n > WF_LEND_BLOCK ? -EINVAL
                                               : read_block(ctx, path, offset, n, payload);
    case WF_LEND_LIST:
        names.outward = false;
        return ctx->fs->list(ctx->fs->arg, path, add_name, &names);
    case WF_LEND_GLOB: return ctx->fs->glob(ctx->fs->arg, path, add_name, &names);
    default: return -EINVAL;
    }
}

void wf_lend_answer(weft_ctx *ctx, const struct wf_lend_files *files, const unsigned char *request,
                    int64_t n, unsigned char *head, struct wf_buf *payload)
{
    char asked[WF_LEND_PATH];
    int64_t n_path = n - WF_LEND_REQUEST, rc = -EINVAL;

    memset(head, 0, WF_LEND_ANSWER);
    if (n_path >= 1 && n_path < WF_LEND_PATH && request[0] == WF_LEND_VERSION &&
        !memchr(request + WF_LEND_REQUEST, 0, (size_t)n_path)) {
        memcpy(asked, request + WF_LEND_REQUEST, (size_t)n_path);
        asked[n_path] = '\0';
        rc = look(ctx, files, request, asked, head, payload);
    }
    if (rc < 0)
        payload->len = 0;
    wf_put_le64(head, (uint64_t)rc);
}

/* ---- the network ----------------------------------------------------------------------------- */

struct answer {
    struct wf_buf b;
    struct wf_part part;
};

static void is_sent(void *arg, weft_status st)
{
    struct answer *a = arg;

    (void)st;
    wf_buf_free(&a->b);
    wf_free(a->b.ctx, a);
}

static void received(void *arg, struct wf_link *link, const struct wf_msg *m)
{
    struct wf_lender *l = arg;
    unsigned char head[WF_LEND_ANSWER];
    struct wf_msg out = {.kind = WF_LEND_KIND, .head = head, .n_head = sizeof head};
    struct answer *a;

    if (m->kind != WF_LEND_KIND || !m->id || m->response || m->n_payload) {
        wf_log(l->ctx, WEFT_LOG_WARN, "%s asks for something unknown, and is refused",
               wf_link_name(link));
        wf_link_close(link);
        return;
    }
    a = wf_alloc(l->ctx, sizeof *a);
    if (!a) {
        wf_link_close(link);
        return;
    }
    wf_buf_init(&a->b, l->ctx, WF_LEND_NAMES);
    wf_lend_answer(l->ctx, &l->files, m->head, m->n_head, head, &a->b);
    if ((int64_t)wf_get_le64(head) == -EACCES)
        wf_log(l->ctx, WEFT_LOG_WARN, "%s asks for a file that the job does not name",
               wf_link_name(link));
    a->part = (struct wf_part){a->b.data, a->b.len};
    out.part = &a->part;
    out.n_parts = a->b.len > 0;
    if (wf_link_reply(link, m->id, WEFT_OK, &out, is_sent, a)) {
        is_sent(a, WEFT_EPEER);
        wf_link_close(link);
    }
}

/* Those who read data: no chief or server has a reason to. */
static weft_status admit(void *arg, struct wf_link *link)
{
    const char *role = wf_link_peer(link)->role;

    (void)arg;
    return strcmp(role, "worker") == 0 || strcmp(role, "evaluator") == 0
               ? WEFT_OK
               : wf_err(WEFT_EPEER, "data is lent to workers and evaluators, not to a %s", role);
}

static void down(void *arg, struct wf_link *link, weft_status st, const char *why)
{
    (void)arg;
    (void)st;
    (void)why;
    wf_link_drop(link);
}

weft_status wf_lender_open(weft_ctx *ctx, const struct wf_lend_opts *o, const char *address,
                           char *bound, size_t n_bound, struct wf_lender **out)
{
    struct wf_lender *l = wf_alloc(ctx, sizeof *l);
    struct wf_net_opts net = {.max_payload = 1,
                              .max_queued = 64,
                              .silence_ns = SILENCE_NS,
                              .stall_ns = SILENCE_NS,
                              .tls = o->tls,
                              .connections = 1};
    weft_status st;

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "a lender");
    l->ctx = ctx;
    l->files = o->files;
    wf_snprintf(net.self.name, sizeof net.self.name, "%s", o->task);
    wf_snprintf(net.self.role, sizeof net.self.role, "%.*s", (int)strcspn(o->task, "/"), o->task);
    net.calls = (struct wf_net_calls){.arg = l, .admit = admit, .down = down, .received = received};
    st = wf_net_new(ctx, &net, &l->net);
    if (!st)
        st = wf_net_listen(l->net, address, bound, n_bound);
    if (st) {
        wf_lender_close(l);
        return wf_err_wrap(st, "lending data at %s", address);
    }
    *out = l;
    return WEFT_OK;
}

void wf_lender_close(struct wf_lender *l)
{
    if (!l)
        return;
    wf_net_free(l->net);
    wf_free(l->ctx, l);
}
