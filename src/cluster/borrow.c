/* borrow.c - a file system in which data files of the job that are missing here are read from
 * lenders.
 *
 * One request at a time, under one lock: reading ahead is the data pipeline's. Blocks that were
 * read are kept, those that were used last, up to a number of bytes. A lender that does not answer
 * is left for the next one; a read fails when none has answered within its time. */
#define _GNU_SOURCE
#include "cluster/lend.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "base/bytes.h"
#include "net/net.h"

#define FIRST_FD (1 << 28) /* descriptors of borrowed files; others are the system's */
#define ANSWER_NS 5000000000
#define PAUSE_NS 100000000
enum { MAX_OPEN = 4096, MAX_BLOCKS = 4096, MAX_FILES = 1 << 20 };

struct file {
    char *path;
    struct wf_file_info info;
};

struct open_file {
    int64_t file; /* -1: free */
    int64_t at;
};

struct block {
    int64_t file, number, n;
    uint64_t used;
    char *data; /* NULL: free */
};

struct wf_borrower {
    weft_ctx *ctx;
    const struct wf_fs *base;
    struct wf_fs fs;
    struct wf_borrow_opts o;
    struct wf_net *net;
    pthread_mutex_t lock; /* of all that follows */
    struct wf_link *link; /* NULL: none */
    int lender;
    struct wf_map known; /* path -> file */
    struct file *file;
    int64_t n_files, cap_files;
    struct open_file open[MAX_OPEN];
    struct block block[MAX_BLOCKS];
    uint64_t clock;
    struct wf_borrowed counts;
    bool told;
    /* The request under way: written by calls of the node. */
    struct wf_link *_Atomic fallen; /* the link that went down, maybe before `link` is set */
    atomic_bool answered;
    weft_status st;
    unsigned char head[WF_LEND_ANSWER];
    char *in; /* the payload */
    int64_t n_in, cap_in;
    struct wf_part part;
};

/* ---- requests -------------------------------------------------------------------------------- */

static void down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct wf_borrower *b = arg;

    (void)st;
    (void)why;
    b->fallen = l;
}

static weft_status place(void *arg, struct wf_link *l, const struct wf_msg *m,
                         const struct wf_part **parts, int *n_parts)
{
    struct wf_borrower *b = arg;

    if (l != b->link || m->n_payload > b->cap_in)
        return wf_err(WEFT_EPEER, "an answer of %lld bytes", (long long)m->n_payload);
    b->n_in = m->n_payload;
    b->part = (struct wf_part){b->in, b->n_in};
    *parts = &b->part;
    *n_parts = 1;
    return WEFT_OK;
}

static void unasked(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    (void)arg;
    (void)m;
    wf_link_close(l);
}

static void reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct wf_borrower *b = arg;

    if (!st && m->n_head != WF_LEND_ANSWER)
        st = WEFT_EPEER;
    if (!st)
        memcpy(b->head, m->head, WF_LEND_ANSWER);
    if (!st && !m->n_payload)
        b->n_in = 0;
    b->st = st;
    b->answered = true;
}

static bool has_answer(void *arg)
{
    const struct wf_borrower *b = arg;

    return b->answered;
}

static bool is_down(void *arg)
{
    const struct wf_borrower *b = arg;

    return b->fallen == b->link;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void leave(struct wf_borrower *b)
{
    struct wf_link *l = b->link;

    if (!l)
        return;
    wf_link_close(l);
    if (!wf_net_wait(b->net, is_down, b, ANSWER_NS, "the end of a link"))
        wf_link_drop(l); /* otherwise it goes with the node */
    b->link = NULL;
}

static weft_status call(struct wf_borrower *b, const unsigned char *request, int32_t n)
{
    struct wf_msg m = {.kind = WF_LEND_KIND, .head = request, .n_head = n};
    weft_status st = WEFT_OK;

    if (!b->link) {
        b->fallen = NULL;
        if (b->o.before)
            b->o.before(b->o.before_arg);
        st = wf_net_connect(b->net, b->o.address[b->lender], ANSWER_NS, &b->link);
    }
    b->answered = false;
    if (!st)
        st = wf_link_call(b->link, &m, ANSWER_NS, NULL, reply, b, NULL);
    if (!st)
        st = wf_net_wait(b->net, has_answer, b, 2 * ANSWER_NS, "an answer");
    return st ? st : b->st;
}

/* 0 or more, or a negative errno: of the lender, or -EIO if none answers. */
static int64_t ask(struct wf_borrower *b, enum wf_lend_what what, const char *path, int64_t offset,
                   int64_t n)
{
    unsigned char request[WF_LEND_REQUEST + WF_LEND_PATH] = {WF_LEND_VERSION, (unsigned char)what};
    char *name = (char *)request + WF_LEND_REQUEST;
    int64_t until = wf_now(b->ctx) + b->o.timeout_ns, rc;

    if (!wf_lend_outward(&b->o.files, path, name))
        return -ENAMETOOLONG;
    wf_put_le64(request + 2, (uint64_t)offset);
    wf_put_le32(request + 10, (uint32_t)n);
    while (call(b, request, (int32_t)(WF_LEND_REQUEST + strlen(name)))) {
        leave(b);
        if (wf_now(b->ctx) >= until) {
            wf_log(b->ctx, WEFT_LOG_WARN,
                   "%s: no task that has it answered within %.0f s (%d asked, the last was %s)",
                   path, (double)b->o.timeout_ns * 1e-9, b->o.n_lenders, b->o.address[b->lender]);
            return -EIO;
        }
        b->lender = (b->lender + 1) % b->o.n_lenders;
        b->counts.moved++;
        (void)wf_net_wait(b->net, never, NULL, PAUSE_NS, "a moment");
    }
    b->counts.requests++;
    b->counts.bytes += b->n_in;
    rc = (int64_t)wf_get_le64(b->head);
    return what == WF_LEND_READ && rc >= 0 && rc != b->n_in ? -EIO : rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* What a lender said of a file that exists is kept. */
static int64_t find(struct wf_borrower *b, const char *path, int64_t *file)
{
    struct file *f;
    int64_t rc;

    if (wf_map_get(&b->known, path, file))
        return 0;
    rc = ask(b, WF_LEND_STAT, path, 0, 0);
    if (rc)
        return rc;
    if (b->n_files >= MAX_FILES ||
        wf_grow(b->ctx, &b->file, &b->cap_files, b->n_files + 1, sizeof *b->file))
        return -ENOMEM;
    f = &b->file[b->n_files];
    f->info = (struct wf_file_info){.size = (int64_t)wf_get_le64(b->head + 8),
                                    .mtime_ns = (int64_t)wf_get_le64(b->head + 16),
                                    .plain = b->head[24] & 1,
                                    .folder = b->head[24] >> 1 & 1};
    f->path = wf_strdup(b->ctx, path);
    if (!f->path || f->info.size < 0 || wf_map_put(&b->known, f->path, b->n_files)) {
        wf_free(b->ctx, f->path);
        return -ENOMEM;
    }
    *file = b->n_files++;
    if (!b->told)
        wf_log(b->ctx, WEFT_LOG_INFO, "%s is not here: data is read from %s", path,
               b->o.address[b->lender]);
    b->told = true;
    return 0;
}

/* The one that was not used for the longest, until another one fits. */
static struct block *make_room(struct wf_borrower *b, int64_t n)
{
    for (;;) {
        struct block *free = NULL, *oldest = NULL;

        for (int i = 0; i < MAX_BLOCKS; i++) {
            struct block *k = &b->block[i];

            if (!k->data)
                free = k;
            else if (!oldest || k->used < oldest->used)
                oldest = k;
        }
        if (free && b->counts.cached + n <= b->o.cache_bytes)
            return free;
        if (!oldest)
            return free;
        b->counts.cached -= oldest->n;
        wf_free(b->ctx, oldest->data);
        oldest->data = NULL;
    }
}

static int64_t get_block(struct wf_borrower *b, int64_t file, int64_t number, struct block **out)
{
    const struct file *f = &b->file[file];
    int64_t offset = number * WF_LEND_BLOCK, n = wf_min_i64(f->info.size - offset, WF_LEND_BLOCK);
    struct block *k = NULL;
    int64_t rc;

    for (int i = 0; i < MAX_BLOCKS && !k; i++)
        if (b->block[i].data && b->block[i].file == file && b->block[i].number == number)
            k = &b->block[i];
    if (!k) {
        rc = ask(b, WF_LEND_READ, f->path, offset, n);
        if (rc < 0)
            return rc;
        if (rc != n) /* it is shorter than it was */
            return -EIO;
        k = make_room(b, n);
        k->data = wf_alloc_raw(b->ctx, (size_t)n + 1);
        if (!k->data)
            return -ENOMEM;
        memcpy(k->data, b->in, (size_t)n);
        k->file = file;
        k->number = number;
        k->n = n;
        b->counts.cached += n;
    }
    k->used = ++b->clock;
    *out = k;
    return 0;
}

static int64_t read_at(struct wf_borrower *b, int64_t file, void *buf, int64_t n, int64_t offset)
{
    int64_t done = 0, size = b->file[file].info.size;

    if (offset < 0 || n < 0)
        return -EINVAL;
    n = wf_max_i64(wf_min_i64(n, size - offset), 0);
    while (done < n) {
        struct block *k = NULL;
        int64_t at = offset + done, part;
        int64_t rc = get_block(b, file, at / WF_LEND_BLOCK, &k);

        if (rc)
            return rc;
        part = wf_min_i64(n - done, k->n - at % WF_LEND_BLOCK);
        memcpy((char *)buf + done, k->data + at % WF_LEND_BLOCK, (size_t)part);
        done += part;
    }
    return done;
}

static struct open_file *opened(struct wf_borrower *b, int fd)
{
    int i = fd - FIRST_FD;

    return i >= 0 && i < MAX_OPEN && b->open[i].file >= 0 ? &b->open[i] : NULL;
}

/* ---- the file system ------------------------------------------------------------------------- */

static bool is_borrowed(int fd)
{
    return fd >= FIRST_FD;
}

static int do_open(void *arg, const char *path, int flags, int mode)
{
    struct wf_borrower *b = arg;
    int rc = b->base->open(b->base->arg, path, flags, mode);
    int64_t file, found;

    if (rc != -ENOENT || (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) ||
        !wf_lend_names(&b->o.files, path))
        return rc;
    pthread_mutex_lock(&b->lock);
    found = find(b, path, &file);
    rc = found ? (int)found : -EMFILE;
    for (int i = 0; i < MAX_OPEN && !found && rc == -EMFILE; i++)
        if (b->open[i].file < 0) {
            b->open[i] = (struct open_file){file, 0};
            rc = FIRST_FD + i;
        }
    pthread_mutex_unlock(&b->lock);
    return rc == -EACCES ? -ENOENT : rc;
}

static int64_t do_read(void *arg, int fd, void *buf, int64_t n)
{
    struct wf_borrower *b = arg;
    struct open_file *o;
    int64_t rc = -EBADF;

    if (!is_borrowed(fd))
        return b->base->read(b->base->arg, fd, buf, n);
    pthread_mutex_lock(&b->lock);
    o = opened(b, fd);
    if (o) {
        rc = read_at(b, o->file, buf, n, o->at);
        o->at += rc > 0 ? rc : 0;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int64_t do_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    struct wf_borrower *b = arg;
    struct open_file *o;
    int64_t rc = -EBADF;

    if (!is_borrowed(fd))
        return b->base->pread(b->base->arg, fd, buf, n, offset);
    pthread_mutex_lock(&b->lock);
    o = opened(b, fd);
    if (o)
        rc = read_at(b, o->file, buf, n, offset);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int64_t do_seek(void *arg, int fd, int64_t offset)
{
    struct wf_borrower *b = arg;
    struct open_file *o;
    int64_t rc = -EBADF;

    if (!is_borrowed(fd))
        return b->base->seek(b->base->arg, fd, offset);
    pthread_mutex_lock(&b->lock);
    o = opened(b, fd);
    if (o)
        rc = o->at = offset;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int64_t do_size(void *arg, int fd)
{
    struct wf_borrower *b = arg;
    const struct open_file *o;
    int64_t rc = -EBADF;

    if (!is_borrowed(fd))
        return b->base->size(b->base->arg, fd);
    pthread_mutex_lock(&b->lock);
    o = opened(b, fd);
    if (o)
        rc = b->file[o->file].info.size;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static int do_close(void *arg, int fd)
{
    struct wf_borrower *b = arg;
    struct open_file *o;

    if (!is_borrowed(fd))
        return b->base->close(b->base->arg, fd);
    pthread_mutex_lock(&b->lock);
    o = opened(b, fd);
    if (o)
        o->file = -1;
    pthread_mutex_unlock(&b->lock);
    return o ? 0 : -EBADF;
}

static int do_stat(void *arg, const char *path, struct wf_file_info *out)
{
    struct wf_borrower *b = arg;
    int rc = b->base->stat(b->base->arg, path, out);
    int64_t file;

    if (rc != -ENOENT || !wf_lend_names(&b->o.files, path))
        return rc;
    pthread_mutex_lock(&b->lock);
    rc = (int)find(b, path, &file);
    if (!rc)
        *out = b->file[file].info;
    pthread_mutex_unlock(&b->lock);
    return rc == -EACCES ? -ENOENT : rc;
}

/* Names of an answer, in this process' terms. They are copied: `each` may ask for more. */
static int give_names(struct wf_borrower *b, char *names, int64_t n, bool paths,
                      int (*each)(void *each_arg, const char *path), void *each_arg)
{
    int rc = n && names[n - 1] ? -EIO : 0;

    for (char *p = names; p < names + n && !rc; p += strlen(p) + 1) {
        char own[WF_LEND_PATH];

        if (paths && (!wf_lend_inward(&b->o.files, p, own) || !wf_lend_names(&b->o.files, own)))
            rc = -EIO;
        else
            rc = each(each_arg, paths ? own : p);
    }
    return rc;
}

static int borrow_names(struct wf_borrower *b, enum wf_lend_what what, const char *path,
                        int (*each)(void *each_arg, const char *path), void *each_arg)
{
    char *names = NULL;
    int64_t rc, n = 0;

    pthread_mutex_lock(&b->lock);
    rc = ask(b, what, path, 0, 0);
    if (!rc && b->n_in) {
        n = b->n_in;
        names = wf_alloc_raw(b->ctx, (size_t)n);
        if (names)
            memcpy(names, b->in, (size_t)n);
        else
            rc = -ENOMEM;
    }
    pthread_mutex_unlock(&b->lock);
    if (!rc)
        rc = give_names(b, names, n, what == WF_LEND_GLOB, each, each_arg);
    wf_free(b->ctx, names);
    return (int)rc;
}

static int do_list(void *arg, const char *path, int (*each)(void *each_arg, const char *name),
                   void *each_arg)
{
    struct wf_borrower *b = arg;
    int rc = b->base->list(b->base->arg, path, each, each_arg);

    if (rc != -ENOENT || !wf_lend_names(&b->o.files, path))
        return rc;
    rc = borrow_names(b, WF_LEND_LIST, path, each, each_arg);
    return rc == -EACCES ? -ENOENT : rc;
}

struct counted {
    int (*each)(void *each_arg, const char *path);
    void *each_arg;
    int64_t n;
};

static int count(void *arg, const char *path)
{
    struct counted *c = arg;

    c->n++;
    return c->each(c->each_arg, path);
}

static int do_glob(void *arg, const char *pattern, int (*each)(void *each_arg, const char *path),
                   void *each_arg)
{
    struct wf_borrower *b = arg;
    struct counted c = {each, each_arg, 0};
    int rc = b->base->glob(b->base->arg, pattern, count, &c);

    if (rc || c.n || !wf_lend_names(&b->o.files, pattern))
        return rc;
    rc = borrow_names(b, WF_LEND_GLOB, pattern, each, each_arg);
    return rc == -EACCES ? 0 : rc;
}

/* Everything else is about files of this machine. */
static int64_t do_write(void *arg, int fd, const void *buf, int64_t n)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return is_borrowed(fd) ? -EBADF : fs->write(fs->arg, fd, buf, n);
}

static int do_truncate(void *arg, int fd, int64_t size)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return is_borrowed(fd) ? -EBADF : fs->truncate(fs->arg, fd, size);
}

static int do_sync(void *arg, int fd)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return is_borrowed(fd) ? -EBADF : fs->sync(fs->arg, fd);
}

static int do_lock(void *arg, int fd)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return is_borrowed(fd) ? -EBADF : fs->lock(fs->arg, fd);
}

static int do_rename(void *arg, const char *from, const char *to)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->rename(fs->arg, from, to);
}

static int do_unlink(void *arg, const char *path)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->unlink(fs->arg, path);
}

static int do_mkdir(void *arg, const char *path, int mode)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->mkdir(fs->arg, path, mode);
}

static int do_rmdir(void *arg, const char *path)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->rmdir(fs->arg, path);
}

static int do_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->open_at(fs->arg, dir, name, flags, mode);
}

static int do_rename_at(void *arg, int dir, const char *from, const char *to)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->rename_at(fs->arg, dir, from, to);
}

static int do_link_at(void *arg, int dir, const char *from, const char *to)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->link_at(fs->arg, dir, from, to);
}

static int do_unlink_at(void *arg, int dir, const char *name, bool folder)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->unlink_at(fs->arg, dir, name, folder);
}

static int do_stat_at(void *arg, int dir, const char *name, struct wf_file_info *out)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->stat_at(fs->arg, dir, name, out);
}

static int do_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->mkdir_at(fs->arg, dir, name, mode);
}

static int do_list_at(void *arg, int dir, int (*each)(void *each_arg, const char *name),
                      void *each_arg)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->list_at(fs->arg, dir, each, each_arg);
}

static uint64_t do_unique(void *arg)
{
    const struct wf_fs *fs = ((struct wf_borrower *)arg)->base;

    return fs->unique(fs->arg);
}

static const struct wf_fs borrowed_fs = {
    .open = do_open,
    .read = do_read,
    .write = do_write,
    .pread = do_pread,
    .seek = do_seek,
    .size = do_size,
    .truncate = do_truncate,
    .sync = do_sync,
    .close = do_close,
    .rename = do_rename,
    .unlink = do_unlink,
    .stat = do_stat,
    .glob = do_glob,
    .mkdir = do_mkdir,
    .rmdir = do_rmdir,
    .list = do_list,
    .lock = do_lock,
    .open_at = do_open_at,
    .rename_at = do_rename_at,
    .link_at = do_link_at,
    .unlink_at = do_unlink_at,
    .stat_at = do_stat_at,
    .mkdir_at = do_mkdir_at,
    .list_at = do_list_at,
    .unique = do_unique,
};

/* ---- life ------------------------------------------------------------------------------------ */

weft_status wf_borrow_open(weft_ctx *ctx, const struct wf_borrow_opts *o, struct wf_borrower **out)
{
    struct wf_borrower *b = wf_alloc(ctx, sizeof *b);
    struct wf_net_opts net = {.max_payload = WF_LEND_NAMES, .tls = o->tls, .connections = 1};
    weft_status st;

    if (!b)
        return wf_err_nomem(ctx, sizeof *b, "a borrower");
    b->ctx = ctx;
    b->base = ctx->fs;
    b->o = *o;
    b->o.cache_bytes = o->cache_bytes ? o->cache_bytes : 64 << 20;
    b->o.timeout_ns = o->timeout_ns ? o->timeout_ns : 30000000000;
    b->fs = borrowed_fs;
    b->fs.arg = b;
    b->cap_in = WF_LEND_NAMES;
    b->in = wf_alloc_raw(ctx, (size_t)b->cap_in);
    pthread_mutex_init(&b->lock, NULL);
    wf_map_init(&b->known, ctx);
    for (int i = 0; i < MAX_OPEN; i++)
        b->open[i].file = -1;
    wf_snprintf(net.self.name, sizeof net.self.name, "%s", o->task);
    wf_snprintf(net.self.role, sizeof net.self.role, "%.*s", (int)strcspn(o->task, "/"), o->task);
    net.calls = (struct wf_net_calls){.arg = b, .down = down, .place = place, .received = unasked};
    st = b->in ? wf_net_new(ctx, &net, &b->net) : wf_err_nomem(ctx, 0, "a borrower");
    if (st) {
        wf_borrow_close(b);
        return st;
    }
    ctx->fs = &b->fs;
    *out = b;
    return WEFT_OK;
}

void wf_borrow_close(struct wf_borrower *b)
{
    if (!b)
        return;
    if (b->ctx->fs == &b->fs)
        b->ctx->fs = b->base;
    if (b->net)
        leave(b);
    wf_net_free(b->net);
    for (int i = 0; i < MAX_BLOCKS; i++)
        wf_free(b->ctx, b->block[i].data);
    for (int64_t i = 0; i < b->n_files; i++)
        wf_free(b->ctx, b->file[i].path);
    wf_free(b->ctx, b->file);
    wf_map_free(&b->known);
    wf_free(b->ctx, b->in);
    pthread_mutex_destroy(&b->lock);
    wf_free(b->ctx, b);
}

struct wf_borrowed wf_borrow_counts(struct wf_borrower *b)
{
    struct wf_borrowed c;

    pthread_mutex_lock(&b->lock);
    c = b->counts;
    pthread_mutex_unlock(&b->lock);
    return c;
}
