/* open.c - reading one checkpoint, verifying it, and finding the newest valid one. Whatever is read
 * is compared with its checksum before it is returned. */
#include <stdio.h>

#include "base/number.h"
#include "ckpt/ckpt.h"

struct weft_ckpt {
    weft_ctx *ctx;
    char *path;
    struct wf_manifest m;
    struct wf_map by_name; /* of tensors and blobs: items, as wf_manifest_item counts them */
    weft_st *shard;        /* the file that was read last, open; NULL: none */
    int64_t shard_file;
};

static int64_t n_items(const weft_ckpt *c)
{
    return c->m.data.n_tensors + c->m.data.n_blobs;
}

static const char *item_name(const weft_ckpt *c, int64_t i)
{
    struct wf_type type;
    const void *data;

    return wf_manifest_item(&c->m.data, i, &type, &data);
}

/* The text of a manifest, NUL-terminated. One that is too large is damaged: WEFT_EPARSE, so that
 * ELIMIT only means memory. */
static weft_status read_text(weft_ctx *ctx, const char *path, char **data, int64_t *n)
{
    int fd = wf_ckpt_open_file(ctx, path);
    int64_t size;
    char *p = NULL;
    weft_status st;

    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    size = ctx->fs->size(ctx->fs->arg, fd);
    if (size < 0)
        st = wf_file_err(size, path, "not a regular file");
    else if (size > WF_CKPT_MANIFEST_MAX)
        st = wf_err(WEFT_EPARSE, "%s: has %lld bytes; at most %lld are allowed", path,
                    (long long)size, (long long)WF_CKPT_MANIFEST_MAX);
    else
        st = (p = wf_alloc(ctx, (size_t)size + 1)) ? wf_ckpt_pread(ctx, fd, path, p, size, 0)
                                                   : wf_err_nomem(ctx, (size_t)size + 1, path);
    ctx->fs->close(ctx->fs->arg, fd);
    if (st) {
        wf_free(ctx, p);
        return st;
    }
    *data = p;
    *n = size;
    return WEFT_OK;
}

weft_status weft_ckpt_open(weft_ctx *ctx, const char *path, weft_ckpt **out)
{
    weft_ckpt *c = wf_alloc(ctx, sizeof *c);
    char file[WF_CKPT_PATH], *text = NULL;
    int64_t n = 0;
    weft_status st;

    if (!c)
        return wf_err_nomem(ctx, sizeof *c, path);
    c->ctx = ctx;
    wf_manifest_init(&c->m, ctx);
    wf_map_init(&c->by_name, ctx);
    st = wf_ckpt_join(file, path, WF_CKPT_MANIFEST);
    if (!st)
        st = read_text(ctx, file, &text, &n);
    if (!st)
        st = wf_err_wrap(wf_manifest_parse(&c->m, text, n), "%s", file);
    wf_free(ctx, text);
    for (int64_t i = 0; i < n_items(c) && !st; i++)
        st = wf_map_put(&c->by_name, item_name(c, i), i);
    if (st)
        goto out;
    c->path = wf_strdup(ctx, path);
    if (!c->path) {
        st = wf_err_nomem(ctx, strlen(path), path);
        goto out;
    }
    *out = c;
    c = NULL;
out:
    weft_ckpt_close(c);
    return st;
}

void weft_ckpt_close(weft_ckpt *c)
{
    weft_ctx *ctx;

    if (!c)
        return;
    ctx = c->ctx;
    weft_st_close(c->shard);
    wf_map_free(&c->by_name);
    wf_manifest_free(&c->m);
    wf_free(ctx, c->path);
    wf_free(ctx, c);
}

weft_ctx *wf_ckpt_ctx(const weft_ckpt *c)
{
    return c->ctx;
}

const char *weft_ckpt_path(const weft_ckpt *c)
{
    return c->path;
}

const char *weft_ckpt_library(const weft_ckpt *c)
{
    return c->m.library;
}

int64_t weft_ckpt_bytes(const weft_ckpt *c)
{
    return c->m.bytes;
}

const weft_ckpt_data *weft_ckpt_info(const weft_ckpt *c)
{
    return &c->m.data;
}

static const struct wf_mf_piece *pieces_of(const weft_ckpt *c, int64_t item)
{
    return &c->m.piece[c->m.place[item].first];
}

static weft_status check_index(const weft_ckpt *c, int64_t i)
{
    if (i < 0 || i >= c->m.data.n_tensors)
        return wf_err(WEFT_ERANGE, "%s: no tensor %lld; there are %lld", c->path, (long long)i,
                      (long long)c->m.data.n_tensors);
    return WEFT_OK;
}

weft_status weft_ckpt_where(const weft_ckpt *c, int64_t i, const char **file, uint64_t *hash)
{
    weft_status st = check_index(c, i);

    if (st)
        return st;
    *file = c->m.files[pieces_of(c, i)->file].name;
    *hash = pieces_of(c, i)->hash;
    if (c->m.place[i].n > 1) {
        struct wf_xxh64 all;

        wf_xxh64_init(&all);
        for (int64_t k = 0; k < c->m.place[i].n; k++) {
            const struct wf_mf_piece *p = &pieces_of(c, i)[k];
            const uint64_t what[] = {(uint64_t)p->count, p->hash};

            wf_xxh64_add(&all, what, sizeof what);
        }
        *hash = wf_xxh64_end(&all);
    }
    return WEFT_OK;
}

int64_t weft_ckpt_find(const weft_ckpt *c, const char *name)
{
    int64_t i = -1;

    return wf_map_get(&c->by_name, name, &i) && i < c->m.data.n_tensors ? i : -1;
}

bool weft_ckpt_metric_get(const weft_ckpt *c, const char *name, double *value)
{
    const weft_ckpt_data *d = &c->m.data;

    for (int64_t i = 0; i < d->n_metrics; i++)
        if (!strcmp(d->metrics[i].name, name)) {
            *value = d->metrics[i].value;
            return true;
        }
    return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Tensors are mostly read in the order they were saved: one open shard at a time is enough. */
static weft_status open_shard(weft_ckpt *c, int64_t file, weft_st **out)
{
    const struct wf_mf_file *f = &c->m.files[file];
    char path[WF_CKPT_PATH];
    weft_st *s = NULL;
    weft_status st = WEFT_OK;

    if (!c->shard || c->shard_file != file) {
        st = wf_ckpt_join(path, c->path, f->name);
        if (!st)
            st = weft_st_open(c->ctx, path, &s);
        if (!st && wf_st_size(s) != f->bytes) {
            st = wf_err(WEFT_EPARSE, "%s: has %lld bytes, the manifest says %lld", path,
                        (long long)wf_st_size(s), (long long)f->bytes);
            weft_st_close(s);
        }
        if (st)
            return st;
        weft_st_close(c->shard);
        c->shard = s;
        c->shard_file = file;
    }
    *out = c->shard;
    return WEFT_OK;
}

/* Whether a shard's tensor is item i of the manifest. */
static weft_status check_type(const weft_ckpt *c, const weft_st *s, int64_t at, int64_t i)
{
    weft_tensor have;
    weft_status st = weft_st_type(s, at, NULL, &have);
    struct wf_type a, b;
    const void *data;
    const char *name = wf_manifest_item(&c->m.data, i, &b, &data);
    char ta[WF_TYPE_TEXT], tb[WF_TYPE_TEXT];

    if (st)
        return WEFT_EPARSE; /* valid, but not what weft wrote */
    a = wf_type_of(have.dtype, have.rank, have.dim);
    if (a.dtype != b.dtype || !wf_type_same_shape(&a, &b))
        return wf_err(WEFT_EPARSE, "%s: tensor '%.80s' is %s in its file but %s in the manifest",
                      c->path, name, wf_type_text(&a, ta), wf_type_text(&b, tb));
    return WEFT_OK;
}

static weft_status bad_hash(const char *path, const char *what, uint64_t have, uint64_t want)
{
    return wf_err(WEFT_EPARSE, "%s%s: damaged: its checksum is %016llx, the manifest says %016llx",
                  path, what, (unsigned long long)have, (unsigned long long)want);
}

static weft_status hash_range(const weft_ckpt *c, int fd, const char *path, int64_t at, int64_t end,
                              void *chunk, uint64_t *out)
{
    struct wf_xxh64 hash;
    weft_status st = WEFT_OK;

    wf_xxh64_init(&hash);
    while (at < end && !st) {
        int64_t n = wf_min_i64(WF_CKPT_CHUNK, end - at);

        st = wf_ckpt_pread(c->ctx, fd, path, chunk, n, at);
        if (!st)
            wf_xxh64_add(&hash, chunk, n);
        at += n;
    }
    *out = wf_xxh64_end(&hash);
    return st;
}

/* Where the bytes of a piece of item i begin in its file, which is open then. */
static weft_status find_piece(weft_ckpt *c, int64_t i, const struct wf_mf_piece *p, weft_st **s,
                              int64_t *begin)
{
    int64_t at, end;
    weft_status st = open_shard(c, p->file, s);

    *begin = p->offset;
    if (st || p->offset >= 0)
        return st;
    at = weft_st_find(*s, item_name(c, i));
    if (at < 0)
        return wf_err(WEFT_EPARSE, "%s: '%.80s' is not in '%s'", c->path, item_name(c, i),
                      c->m.files[p->file].name);
    st = check_type(c, *s, at, i);
    if (!st)
        wf_st_range(*s, at, begin, &end);
    return st;
}

/* Items [first, first + count) of a piece, which has all of them. Its checksum is compared, so all
 * of it is read: into `to` where all is wanted, otherwise by chunks of which `to` gets its
 * share. */
static weft_status read_piece(weft_ckpt *c, int64_t i, const struct wf_mf_piece *p, int64_t first,
                              int64_t count, int64_t size, char *to, char *chunk)
{
    int64_t begin, at = 0, end = p->count * size;
    int64_t from = (first - p->first) * size, until = from + count * size;
    struct wf_xxh64 hash;
    weft_st *s = NULL;
    char what[128], path[WF_CKPT_PATH];
    weft_status st = wf_ckpt_join(path, c->path, c->m.files[p->file].name);

    if (!st)
        st = find_piece(c, i, p, &s, &begin);

    wf_xxh64_init(&hash);
    while (at < end && !st) {
        int64_t n = wf_min_i64(WF_CKPT_CHUNK, end - at);
        bool inside = at >= from && at + n <= until;
        char *into = inside ? to + (at - from) : chunk;

        st = wf_ckpt_pread(c->ctx, wf_st_fd(s), path, into, n, begin + at);
        if (st)
            break;
        wf_xxh64_add(&hash, into, n);
        if (!inside && at < until && at + n > from) {
            int64_t a = wf_max_i64(at, from), b = wf_min_i64(at + n, until);

            memcpy(to + (a - from), chunk + (a - at), (size_t)(b - a));
        }
        at += n;
    }
    if (st || wf_xxh64_end(&hash) == p->hash)
        return st;
    snprintf(what, sizeof what, ": '%.80s'", item_name(c, i));
    return bad_hash(c->path, what, wf_xxh64_end(&hash), p->hash);
}

/* Elements [first, first + count) of item i, from the pieces that have them. */
static weft_status read_elements(weft_ckpt *c, int64_t i, int64_t first, int64_t count,
                                 int64_t size, char *to)
{
    const struct wf_mf_piece *p = pieces_of(c, i);
    char *chunk = wf_alloc(c->ctx, (size_t)WF_CKPT_CHUNK);
    weft_status st = chunk ? WEFT_OK : wf_err_nomem(c->ctx, (size_t)WF_CKPT_CHUNK, c->path);

    for (int64_t k = 0; k < c->m.place[i].n && !st; k++, p++) {
        int64_t a = wf_max_i64(first, p->first);
        int64_t b = wf_min_i64(first + count, p->first + p->count);

        if (a < b || p->count == 0)
            st = read_piece(c, i, p, a, wf_max_i64(b - a, 0), size, to + (a - first) * size, chunk);
    }
    wf_free(c->ctx, chunk);
    return st;
}

/* The bytes of a tensor or blob, compared with their checksums. */
static weft_status read_item(weft_ckpt *c, int64_t i, void *to)
{
    struct wf_type type;
    const void *data;

    (void)wf_manifest_item(&c->m.data, i, &type, &data);
    return read_elements(c, i, 0, wf_type_count(&type), weft_dtype_size(type.dtype), to);
}

weft_status weft_ckpt_read_range(weft_ckpt *c, int64_t i, int64_t first, int64_t count, void *to)
{
    weft_status st = check_index(c, i);
    const weft_tensor *t;

    if (st)
        return st;
    t = &c->m.data.tensors[i].tensor;
    if (first < 0 || count < 0 || first > weft_tensor_count(t) - count)
        return wf_err(WEFT_ERANGE, "%s: tensor '%.80s' has %lld elements, not %lld from %lld on",
                      c->path, c->m.data.tensors[i].name, (long long)weft_tensor_count(t),
                      (long long)count, (long long)first);
    return count ? read_elements(c, i, first, count, weft_dtype_size(t->dtype), to) : WEFT_OK;
}

weft_status weft_ckpt_read(weft_ckpt *c, int64_t i, const weft_tensor *into)
{
    const weft_ckpt_tensor *t;
    struct wf_type have, want;
    char ta[WF_TYPE_TEXT], tb[WF_TYPE_TEXT];
    weft_status st = check_index(c, i);

    if (st)
        return st;
    t = &c->m.data.tensors[i];
    have = wf_type_of(t->tensor.dtype, t->tensor.rank, t->tensor.dim);
    want = wf_type_of(into->dtype, into->rank, into->dim);
    if (have.dtype != want.dtype || !wf_type_same_shape(&have, &want))
        return wf_err(have.dtype != want.dtype ? WEFT_EDTYPE : WEFT_ESHAPE,
                      "%s: tensor '%.80s' is %s, but %s was requested", c->path, t->name,
                      wf_type_text(&have, ta), wf_type_text(&want, tb));
    return into->data ? read_item(c, i, into->data) : WEFT_OK;
}

weft_status weft_ckpt_load(weft_ckpt *c, const char *name, const weft_tensor *into)
{
    const weft_ckpt_data *d = &c->m.data;
    int64_t i = weft_ckpt_find(c, name), n = wf_min_i64(d->n_tensors, 4096);
    const char **words;
    struct wf_hint hint = {""};

    if (i >= 0)
        return weft_ckpt_read(c, i, into);
    words = wf_alloc_n(c->ctx, n, sizeof *words);
    for (int64_t k = 0; k < n && words; k++)
        words[k] = d->tensors[k].name;
    if (words)
        hint = wf_did_you_mean(name, words, (int)n);
    wf_free(c->ctx, words);
    return wf_err(WEFT_ENOENT, "%s: no tensor '%.80s'%s", c->path, name, hint.text);
}

weft_status weft_ckpt_blob_read(weft_ckpt *c, const char *name, char **data, int64_t *n)
{
    const weft_ckpt_data *d = &c->m.data;
    int64_t i = -1, bytes;
    weft_st *s = NULL;
    char *p = NULL;
    weft_status st;

    if (!wf_map_get(&c->by_name, name, &i) || i < d->n_tensors)
        return wf_err(WEFT_ENOENT, "%s: no blob '%.80s'", c->path, name);
    bytes = d->blobs[i - d->n_tensors].bytes;
    st = open_shard(c, pieces_of(c, i)->file, &s);
    if (!st && bytes > wf_st_size(s)) /* before allocating: nothing is believed */
        st = wf_err(WEFT_EPARSE, "%s: blob '%.80s' has %lld bytes, more than its file", c->path,
                    name, (long long)bytes);
    if (!st && !(p = wf_alloc(c->ctx, (size_t)bytes + 1)))
        st = wf_err_nomem(c->ctx, (size_t)bytes + 1, name);
    if (!st)
        st = read_item(c, i, p);
    if (st) {
        wf_free(c->ctx, p);
        return st;
    }
    *data = p;
    if (n)
        *n = bytes;
    return WEFT_OK;
}

/* ---- verifying ------------------------------------------------------------------------------- */

/* A tensor of a shard as the manifest knows it: elements [first, end) of an item. */
struct found {
    int64_t item, first, end;
};

/* "[first:end]" */
static bool parse_run(const char *text, struct found *f)
{
    const char *colon = strchr(text, ':'), *close = strchr(text, ']');

    return colon && close && colon < close && close[1] == '\0' &&
           wf_parse_i64(text + 1, colon - text - 1, &f->first) &&
           wf_parse_i64(colon + 1, close - colon - 1, &f->end);
}

/* By its name, or "name[first:end]" for a run of its elements. */
static weft_status find_named(const weft_ckpt *c, const char *name, struct found *f)
{
    const char *open = strrchr(name, '[');
    struct wf_type type;
    const void *data;
    char *base;
    bool whole;

    *f = (struct found){.item = -1};
    whole = wf_map_get(&c->by_name, name, &f->item);
    if (!whole && open && parse_run(open, f)) {
        base = wf_strdup(c->ctx, name);
        if (!base)
            return wf_err_nomem(c->ctx, strlen(name) + 1, "verifying");
        base[open - name] = '\0';
        (void)wf_map_get(&c->by_name, base, &f->item);
        wf_free(c->ctx, base);
    }
    if (f->item >= 0) {
        (void)wf_manifest_item(&c->m.data, f->item, &type, &data);
        if (whole)
            f->end = wf_type_count(&type);
        if (f->first >= 0 && f->first <= f->end && f->end <= wf_type_count(&type))
            return WEFT_OK;
    }
    return wf_err(WEFT_EPARSE, "%s: tensor '%.80s' is not the manifest's", c->path, name);
}

/* The pieces of an item that a tensor of the shard holds: where they are, and their bytes. */
static weft_status verify_tensor(weft_ckpt *c, weft_st *s, int64_t i, const struct found *f,
                                 const char *path, void *chunk)
{
    const struct wf_mf_piece *p = pieces_of(c, f->item);
    struct wf_type type;
    const void *data;
    const char *name = wf_manifest_item(&c->m.data, f->item, &type, &data);
    int64_t size = weft_dtype_size(type.dtype), begin, end, at;
    char what[128];
    uint64_t hash = 0;
    weft_status st = WEFT_OK;

    wf_st_range(s, i, &begin, &end);
    if (end - begin != (f->end - f->first) * size)
        return wf_err(WEFT_EPARSE, "%s: '%.80s' has %lld bytes, the manifest says %lld", path, name,
                      (long long)(end - begin), (long long)((f->end - f->first) * size));
    at = f->first;
    for (int64_t k = 0; k < c->m.place[f->item].n && !st; k++, p++) {
        int64_t from = begin + (p->first - f->first) * size;

        if (p->first < f->first || p->first >= f->end + (p->count == 0))
            continue;
        if (p->file != c->shard_file || p->first != at || (p->offset >= 0 && p->offset != from))
            return wf_err(WEFT_EPARSE, "%s: '%.80s' is not where the manifest says", path, name);
        st = hash_range(c, wf_st_fd(s), path, from, from + p->count * size, chunk, &hash);
        if (!st && hash != p->hash) {
            snprintf(what, sizeof what, ": '%.80s'", name);
            st = bad_hash(path, what, hash, p->hash);
        }
        at += p->count;
    }
    if (!st && at != f->end)
        st = wf_err(WEFT_EPARSE, "%s: '%.80s' is not where the manifest says", path, name);
    return st;
}

static weft_status verify_shard(weft_ckpt *c, int64_t file, void *chunk, int64_t *n_found)
{
    const struct wf_mf_file *f = &c->m.files[file];
    char path[WF_CKPT_PATH];
    uint64_t hash = 0;
    weft_st *s = NULL;
    int64_t begin = f->bytes, end;
    weft_status st = open_shard(c, file, &s);

    if (!st)
        st = wf_ckpt_join(path, c->path, f->name);
    if (st)
        return st;
    if (weft_st_n(s))
        wf_st_range(s, 0, &begin, &end);
    st = hash_range(c, wf_st_fd(s), path, 0, begin, chunk, &hash);
    if (!st && hash != f->hash)
        st = bad_hash(path, ": the header", hash, f->hash);
    for (int64_t i = 0; i < weft_st_n(s) && !st; i++) {
        const char *name = NULL;
        weft_tensor type;
        struct found found;

        (void)weft_st_type(s, i, &name, &type);
        st = find_named(c, name, &found);
        if (st)
            return st;
        if (strcmp(name, item_name(c, found.item)) == 0)
            st = check_type(c, s, i, found.item);
        if (!st)
            st = verify_tensor(c, s, i, &found, path, chunk);
        *n_found += found.end - found.first;
    }
    return st;
}

/* Of all tensors and blobs; the manifest's parser has seen that each is covered. */
static int64_t n_elements(const weft_ckpt *c)
{
    int64_t n = 0;

    for (int64_t k = 0; k < c->m.n_pieces; k++)
        n += c->m.piece[k].count;
    return n;
}

weft_status weft_ckpt_verify(weft_ckpt *c)
{
    void *chunk = wf_alloc(c->ctx, (size_t)WF_CKPT_CHUNK);
    int64_t n_found = 0;
    weft_status st = WEFT_OK;

    if (!chunk)
        return wf_err_nomem(c->ctx, (size_t)WF_CKPT_CHUNK, "verifying");
    for (int64_t i = 0; i < c->m.n_files && !st; i++)
        st = verify_shard(c, i, chunk, &n_found);
    if (!st && n_found != n_elements(c))
        st = wf_err(WEFT_EPARSE, "%s: the manifest lists %lld elements, the files hold %lld",
                    c->path, (long long)n_elements(c), (long long)n_found);
    wf_free(c->ctx, chunk);
    return st;
}

/* ---- the newest valid one -------------------------------------------------------------------- */

weft_status wf_ckpt_check_step(const weft_ckpt *c, int64_t step)
{
    if (c->m.data.step == step)
        return WEFT_OK;
    return wf_err(
        WEFT_EPARSE,
        "%s: the directory name says step %lld, its manifest says step %lld: was it renamed?",
        c->path, (long long)step, (long long)c->m.data.step);
}

static weft_status open_sound(weft_ctx *ctx, const char *path, int64_t step, weft_ckpt **out)
{
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open(ctx, path, &c);

    if (!st)
        st = wf_ckpt_check_step(c, step);
    if (!st)
        st = weft_ckpt_verify(c);
    if (st) {
        weft_ckpt_close(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

/* Failures that another checkpoint would not fix. */
static bool is_ours(weft_status st)
{
    return st == WEFT_ENOMEM || st == WEFT_ELIMIT || st == WEFT_ENOSUP;
}

weft_status weft_ckpt_open_latest(weft_ctx *ctx, const char *dir, weft_ckpt **out)
{
    struct wf_ckpt_name *list = NULL;
    char path[WF_CKPT_PATH];
    int64_t n = 0, i;
    weft_status st = wf_ckpt_scan(ctx, dir, &n, &list);

    if (st)
        return st;
    if (!n)
        st = wf_err(WEFT_ENOENT, "%s: no checkpoint", dir);
    for (i = n - 1; i >= 0; i--) {
        st = wf_ckpt_join(path, dir, list[i].name);
        if (!st)
            st = open_sound(ctx, path, list[i].step, out);
        if (!st || is_ours(st))
            break;
        wf_log(ctx, WEFT_LOG_WARN, "checkpoint %s is damaged; skipping it: %s", path, weft_error());
    }
    if (!st && i < n - 1)
        wf_log(ctx, WEFT_LOG_WARN, "falling back to the newest valid checkpoint, %s (step %lld)",
               path, (long long)(*out)->m.data.step);
    if (n && i < 0)
        st = wf_err_wrap(WEFT_EPARSE, "%s: none of the %lld checkpoints is valid; the oldest", dir,
                         (long long)n);
    wf_free(ctx, list);
    return st;
}
