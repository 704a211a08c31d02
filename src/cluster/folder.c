/* folder.c - the chief's store in a directory.
 *
 * Kept true: the WF_ENTRIES_KEPT files with the highest numbers of a kind are never removed. So
 * a process that was stopped between looking and creating, while others created and removed that
 * number, finds numbers far above it afterwards, and knows that it has created nothing. */
#define _GNU_SOURCE
#include "cluster/folder.h"

#include <errno.h>
#include <fcntl.h>

#include "cluster/codec.h"
#include "cluster/entry.h"

#define PULSE "alive"

enum {
    PRUNED = 32, /* at a time: the rest waits for the next creation */
    TRIES = 16,
    NAME_BYTES = 64
};

struct wf_folder {
    weft_ctx *ctx;
    char *path;
    struct wf_epoch *epoch; /* of the last answer */
    char *control;          /* likewise: a file */
};

/* ---- names ----------------------------------------------------------------------------------- */

static void name_of(const struct wf_entry *e, char name[NAME_BYTES])
{
    if (wf_entry_has_b(e->kind))
        wf_snprintf(name, NAME_BYTES, "%s-%06llu-%012lld",
                    e->kind == WF_MANIFEST ? "manifest" : "control", (unsigned long long)e->a,
                    (long long)e->b);
    else
        wf_snprintf(name, NAME_BYTES, "%s-%06llu", e->kind == WF_TERM ? "term" : "epoch",
                    (unsigned long long)e->a);
}

/* Digits; 0 if there are none, or too many. */
static uint64_t take_number(const char **p)
{
    uint64_t v = 0;

    for (int n = 0; wf_is_digit(**p) && n < 18; n++)
        v = v * 10 + (uint64_t)(*(*p)++ - '0');
    return v;
}

/* Only names that name_of gives. */
static bool parse_name(const char *name, struct wf_entry *e)
{
    static const char *const prefix[] = {[WF_TERM] = "term-",
                                         [WF_EPOCH] = "epoch-",
                                         [WF_MANIFEST] = "manifest-",
                                         [WF_CONTROL] = "control-"};
    const char *whole = name;
    char same[NAME_BYTES];

    *e = (struct wf_entry){0};
    for (int k = WF_TERM; k <= WF_CONTROL; k++)
        if (strncmp(name, prefix[k], strlen(prefix[k])) == 0)
            e->kind = (enum wf_entry_kind)k;
    if (!e->kind)
        return false;
    name += strlen(prefix[e->kind]);
    e->a = take_number(&name);
    if (wf_entry_has_b(e->kind) && *name++ != '-')
        return false;
    if (wf_entry_has_b(e->kind))
        e->b = (int64_t)take_number(&name);
    name_of(e, same);
    return e->a > 0 && *name == '\0' && strcmp(whole, same) == 0;
}

static char *join(struct wf_folder *f, const char *name)
{
    size_t n = strlen(f->path), m = strlen(name);
    char *p = wf_alloc(f->ctx, n + m + 2);

    if (!p)
        return NULL;
    memcpy(p, f->path, n);
    p[n] = '/';
    memcpy(p + n + 1, name, m + 1);
    return p;
}

/* ---- what exists --------------------------------------------------------------------------- */

/* The last manifests or control records, the last one first. */
struct recent {
    struct wf_entry e[WF_ENTRIES_KEPT];
    int n;
};

struct listing {
    uint64_t top[WF_MANIFEST]; /* by kind: the highest term and epoch */
    struct recent manifests, controls;
};

static bool is_later(const struct wf_entry *x, const struct wf_entry *y)
{
    return x->a != y->a ? x->a > y->a : x->b > y->b;
}

static void add_recent(struct recent *r, const struct wf_entry *e)
{
    int i = r->n;

    if (i < WF_ENTRIES_KEPT)
        r->n++;
    else if (is_later(&r->e[--i], e))
        return;
    for (; i > 0 && is_later(e, &r->e[i - 1]); i--)
        r->e[i] = r->e[i - 1];
    r->e[i] = *e;
}

static int see(void *arg, const char *name)
{
    struct listing *l = arg;
    struct wf_entry e;

    if (!parse_name(name, &e))
        return 0;
    if (wf_entry_has_b(e.kind))
        add_recent(e.kind == WF_MANIFEST ? &l->manifests : &l->controls, &e);
    else if (e.a > l->top[e.kind])
        l->top[e.kind] = e.a;
    return 0;
}

static weft_status look(struct wf_folder *f, struct listing *l)
{
    const struct wf_fs *fs = f->ctx->fs;
    int rc;

    *l = (struct listing){.manifests.n = 0};
    rc = fs->list(fs->arg, f->path, see, l);
    return rc ? wf_file_err(rc, f->path, "cannot list") : WEFT_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads a file of the store; *data is freed by wf_free, its body begins after the head. */
static weft_status read_entry(struct wf_folder *f, const struct wf_entry *e, char **data,
                              int64_t *n)
{
    char name[NAME_BYTES], *path;
    weft_status st;

    name_of(e, name);
    path = join(f, name);
    if (!path)
        return wf_err_nomem(f->ctx, 0, f->path);
    st = wf_file_read(f->ctx, path, WF_MAX_ENTRY, data, n);
    if (st) {
        wf_free(f->ctx, path);
        return st;
    }
    st = wf_entry_check(e, *data, *n);
    if (!st && wf_entry_parts(*data, *n))
        st = wf_err(WEFT_EDATA, "its body is elsewhere");
    if (st)
        wf_err_wrap(st, "%s", path);
    wf_free(f->ctx, path);
    if (st)
        wf_free(f->ctx, *data);
    return st;
}

/* Whether the file was written by the call with this nonce: a file system over a network may have
 * linked it, and say that the name is taken. */
static bool is_mine(struct wf_folder *f, const struct wf_entry *e, uint64_t nonce)
{
    char *data;
    int64_t n;
    bool mine;

    if (read_entry(f, e, &data, &n))
        return false;
    mine = wf_entry_nonce(data) == nonce;
    wf_free(f->ctx, data);
    return mine;
}

static weft_status put(struct wf_folder *f, struct wf_newfile *file, const void *p, int64_t n)
{
    const struct wf_fs *fs = f->ctx->fs;
    int64_t at = 0;

    while (at < n) {
        int64_t k = fs->write(fs->arg, file->fd, (const char *)p + at, n - at);

        if (k < 0)
            return wf_file_err(k, f->path, "cannot write");
        at += k;
    }
    return WEFT_OK;
}

/* *created: it was not there, and is now. */
static weft_status create(struct wf_folder *f, const struct wf_entry *e, const void *body,
                          int64_t n, bool *created)
{
    const struct wf_fs *fs = f->ctx->fs;
    uint64_t nonce = fs->unique(fs->arg);
    char name[NAME_BYTES], *path = join(f, "new");
    struct wf_newfile file;
    uint8_t head[WF_ENTRY_HEAD];
    weft_status st;

    *created = false;
    if (!path)
        return wf_err_nomem(f->ctx, 0, f->path);
    name_of(e, name);
    wf_entry_head(e, nonce, 0, body, n, head);
    st = wf_newfile_open(&file, f->ctx, path);
    wf_free(f->ctx, path);
    if (st)
        return st;
    st = put(f, &file, head, WF_ENTRY_HEAD);
    if (!st)
        st = put(f, &file, body, n);
    st = wf_newfile_link(&file, st, name, created);
    if (!st && !*created)
        *created = is_mine(f, e, nonce);
    return st ? wf_err_wrap(st, "%s", name) : WEFT_OK;
}

/* ---- removing old ones ----------------------------------------------------------------------- */

struct pruning {
    const struct listing *l;
    struct wf_entry old[PRUNED];
    int n;
};

static int note_old(void *arg, const char *name)
{
    struct pruning *p = arg;
    struct wf_entry e;

    if (p->n == PRUNED || !parse_name(name, &e))
        return 0;
    if (wf_entry_has_b(e.kind)) {
        const struct recent *r = e.kind == WF_MANIFEST ? &p->l->manifests : &p->l->controls;
        int kept = e.kind == WF_MANIFEST ? WF_ENTRIES_KEPT : WF_CONTROLS_KEPT;

        if (r->n >= kept && is_later(&r->e[kept - 1], &e))
            p->old[p->n++] = e;
    } else if (e.a + WF_ENTRIES_KEPT <= p->l->top[e.kind]) {
        p->old[p->n++] = e;
    }
    return 0;
}

/* What cannot be removed stays: the next creation tries again. */
static void prune(struct wf_folder *f, const struct listing *l)
{
    const struct wf_fs *fs = f->ctx->fs;
    struct pruning p = {.l = l};

    if (fs->list(fs->arg, f->path, note_old, &p))
        return;
    for (int i = 0; i < p.n; i++) {
        char name[NAME_BYTES], *path;

        name_of(&p.old[i], name);
        path = join(f, name);
        if (path)
            fs->unlink(fs->arg, path);
        wf_free(f->ctx, path);
    }
}

/* ---- actions --------------------------------------------------------------------------------- */

/* The next of its kind, if it is that. */
static weft_status create_next(struct wf_folder *f, const struct wf_entry *e, const void *body,
                               int64_t n, bool *ok)
{
    struct listing l;
    weft_status st = look(f, &l);

    *ok = false;
    if (st || e->a != l.top[e->kind] + 1)
        return st;
    st = create(f, e, body, n, ok);
    if (st || !*ok)
        return st;
    st = look(f, &l);
    /* this number may have been created and removed before only if that many are above it */
    *ok = !st && l.top[e->kind] < e->a + WF_ENTRIES_KEPT;
    if (*ok)
        prune(f, &l);
    return st;
}

static weft_status create_epoch(struct wf_folder *f, const struct wf_epoch *record, bool *ok)
{
    struct wf_entry e = {.kind = WF_EPOCH, .a = record->number};
    struct wf_buf body;
    struct listing l;
    weft_status st = look(f, &l);

    if (st || l.top[WF_TERM] > record->term) /* another chief acts */
        return st;
    wf_buf_init(&body, f->ctx, WF_MAX_ENTRY - WF_ENTRY_HEAD);
    st = wf_epoch_write(record, &body);
    if (!st)
        st = create_next(f, &e, body.data, body.len, ok);
    wf_buf_free(&body);
    return st;
}

static weft_status create_manifest(struct wf_folder *f, const struct wf_action *a, bool *ok)
{
    struct wf_entry e = {.kind = WF_MANIFEST, .a = a->history, .b = a->t};
    struct listing l;
    char *data;
    int64_t n;
    bool created;
    weft_status st = look(f, &l);

    if (st || a->number != l.top[WF_TERM])
        return st;
    st = create(f, &e, "", 0, &created);
    if (st)
        return st;
    *ok = created;
    if (!created && !read_entry(f, &e, &data, &n)) { /* of a former chief, for the same version */
        wf_free(f->ctx, data);
        *ok = true;
    }
    if (!look(f, &l))
        prune(f, &l);
    return WEFT_OK;
}

/* The record that counts: this one, or the one that somebody created before. */
static weft_status create_control(struct wf_folder *f, const struct wf_action *a,
                                  struct wf_store_answer *out)
{
    struct wf_entry e = {.kind = WF_CONTROL, .a = a->history, .b = a->t};
    const struct wf_control_bytes *body = a->payload;
    struct listing l;
    bool created;
    char *data;
    int64_t n;
    weft_status st = look(f, &l);

    if (st || a->number != l.top[WF_TERM])
        return st;
    st = create(f, &e, body->p, body->n, &created);
    if (!st)
        st = read_entry(f, &e, &data, &n);
    if (st)
        return st;
    f->control = data;
    out->ok = true;
    out->control_t = a->t;
    out->control = f->control + WF_ENTRY_HEAD;
    out->n_control = n - WF_ENTRY_HEAD;
    if (!look(f, &l))
        prune(f, &l);
    return WEFT_OK;
}

/* The last one of the history. */
static void read_control(struct wf_folder *f, const struct listing *l, uint64_t history,
                         struct wf_store_answer *out)
{
    for (int i = 0; i < l->controls.n && !out->control; i++) {
        char *data;
        int64_t n;

        if (l->controls.e[i].a != history)
            continue;
        if (read_entry(f, &l->controls.e[i], &data, &n)) {
            wf_log(f->ctx, WEFT_LOG_WARN, "%s; the control record before it is used", weft_error());
            continue;
        }
        f->control = data;
        out->control_t = l->controls.e[i].b;
        out->control = f->control + WF_ENTRY_HEAD;
        out->n_control = n - WF_ENTRY_HEAD;
    }
}

/* The last epoch; a later one may take its place, and it be removed, while it is looked for. */
static weft_status read_epoch(struct wf_folder *f, struct listing *l)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < TRIES && l->top[WF_EPOCH]; i++) {
        struct wf_entry e = {.kind = WF_EPOCH, .a = l->top[WF_EPOCH]};
        char *data;
        int64_t n;

        st = read_entry(f, &e, &data, &n);
        if (!st) {
            st = wf_epoch_read(f->ctx, data + WF_ENTRY_HEAD, n - WF_ENTRY_HEAD, &f->epoch);
            wf_free(f->ctx, data);
            if (!st && f->epoch->number != e.a)
                st = wf_err(WEFT_EDATA, "the record is that of epoch %llu",
                            (unsigned long long)f->epoch->number);
            return wf_err_wrap(st, "%s: epoch %llu", f->path, (unsigned long long)e.a);
        }
        if (st != WEFT_ENOENT)
            return st;
        st = look(f, l);
        if (st)
            return st;
    }
    return st;
}

static void read_manifest(struct wf_folder *f, const struct listing *l, struct wf_store_answer *out)
{
    for (int i = 0; i < l->manifests.n && !out->has_manifest; i++) {
        char *data;
        int64_t n;

        if (read_entry(f, &l->manifests.e[i], &data, &n)) {
            wf_log(f->ctx, WEFT_LOG_WARN, "%s; the manifest before it is used", weft_error());
            continue;
        }
        wf_free(f->ctx, data);
        out->has_manifest = true;
        out->history = l->manifests.e[i].a;
        out->t = l->manifests.e[i].b;
    }
}

/* The sign of life of a chief: 16 digits in a file of its own, written over. Who cannot write shows
 * none; what is half written is another one. */
static void leave_pulse(struct wf_folder *f, uint64_t pulse)
{
    const struct wf_fs *fs = f->ctx->fs;
    char *path = join(f, PULSE), text[WF_PULSE_TEXT];
    int fd = path ? fs->open(fs->arg, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;

    wf_pulse_write(pulse, text);
    if (fd >= 0) {
        fs->write(fs->arg, fd, text, WF_PULSE_TEXT - 1);
        fs->close(fs->arg, fd);
    }
    wf_free(f->ctx, path);
}

static uint64_t see_pulse(struct wf_folder *f)
{
    char *path = join(f, PULSE), *text;
    uint64_t pulse = 0;
    int64_t n;

    if (path && !wf_file_read(f->ctx, path, WF_PULSE_TEXT, &text, &n)) {
        pulse = wf_pulse_read(text, n);
        wf_free(f->ctx, text);
    }
    wf_free(f->ctx, path);
    return pulse;
}

static weft_status read_all(struct wf_folder *f, uint64_t pulse, struct wf_store_answer *out)
{
    struct listing l;
    weft_status st = look(f, &l);

    if (!st)
        st = read_epoch(f, &l);
    if (st)
        return st;
    if (pulse)
        leave_pulse(f, pulse);
    out->pulse = see_pulse(f);
    out->ok = true;
    out->term = l.top[WF_TERM];
    out->epoch = f->epoch;
    read_manifest(f, &l, out);
    if (f->epoch)
        read_control(f, &l, f->epoch->history, out);
    return WEFT_OK;
}

weft_status wf_folder_do(struct wf_folder *f, const struct wf_action *a,
                         struct wf_store_answer *out)
{
    struct wf_entry term = {.kind = WF_TERM, .a = a->number};

    wf_epoch_free(f->ctx, f->epoch);
    f->epoch = NULL;
    wf_free(f->ctx, f->control);
    f->control = NULL;
    *out = (struct wf_store_answer){.to = a->type, .control_t = -1};
    switch (a->type) {
    case WF_ACT_READ: return read_all(f, a->pulse, out);
    case WF_ACT_CREATE_TERM: out->term = a->number; return create_next(f, &term, "", 0, &out->ok);
    case WF_ACT_CREATE_EPOCH:
        out->term = a->record->term;
        return create_epoch(f, a->record, &out->ok);
    case WF_ACT_CREATE_MANIFEST:
        out->history = a->history;
        out->t = a->t;
        return create_manifest(f, a, &out->ok);
    case WF_ACT_CREATE_CONTROL: out->history = a->history; return create_control(f, a, out);
    default: return wf_err(WEFT_EINVAL, "action %d is not one of the store", (int)a->type);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The new directory survives a power cut. */
static weft_status sync_parent(weft_ctx *ctx, const char *path)
{
    const struct wf_fs *fs = ctx->fs;
    char *folder, *name;
    int dir, rc;
    weft_status st = wf_path_split(ctx, path, &folder, &name);

    if (st)
        return st;
    dir = fs->open(fs->arg, folder, O_RDONLY | O_DIRECTORY, 0);
    rc = dir < 0 ? dir : fs->sync(fs->arg, dir);
    if (dir >= 0)
        fs->close(fs->arg, dir);
    if (rc)
        st = wf_file_err(rc, folder, "cannot sync");
    wf_free(ctx, folder);
    wf_free(ctx, name);
    return st;
}

weft_status wf_folder_open(weft_ctx *ctx, const char *path, struct wf_folder **out)
{
    const struct wf_fs *fs = ctx->fs;
    struct wf_folder *f = wf_alloc(ctx, sizeof *f);
    struct wf_file_info info;
    weft_status st = WEFT_OK;
    int rc;

    if (!f)
        return wf_err_nomem(ctx, sizeof *f, path);
    f->ctx = ctx;
    f->path = wf_strdup(ctx, path);
    if (!f->path) {
        st = wf_err_nomem(ctx, strlen(path), path);
        goto out;
    }
    rc = fs->mkdir(fs->arg, path, 0777);
    if (!rc) {
        st = sync_parent(ctx, path);
    } else if (rc != -EEXIST) {
        st = wf_file_err(rc, path, "cannot create the directory");
    } else {
        rc = fs->stat(fs->arg, path, &info);
        if (rc)
            st = wf_file_err(rc, path, "cannot open");
        else if (!info.folder)
            st = wf_err(WEFT_EEXIST, "%s exists but is not a directory", path);
    }
    if (!st) {
        *out = f;
        return WEFT_OK;
    }
out:
    wf_folder_close(f);
    return st;
}

void wf_folder_close(struct wf_folder *f)
{
    if (!f)
        return;
    wf_epoch_free(f->ctx, f->epoch);
    wf_free(f->ctx, f->control);
    wf_free(f->ctx, f->path);
    wf_free(f->ctx, f);
}
