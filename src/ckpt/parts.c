/* parts.c - one checkpoint, written by several processes.
 *
 * Parts go into the temporary directory of the checkpoint, each writer's into files of its own.
 * Each writer returns a manifest of its part as text, which is sent to the process that began the
 * checkpoint. Committing trusts none of them: it checks that the pieces cover every tensor, each
 * element once, and that the files exist. The manifest of the whole comes last, then the rename. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "ckpt/ckpt.h"

#define WRITER_MAX 32

struct weft_ckpt_build {
    weft_ctx *ctx;
    char *dir;
    int64_t step;
    char name[WF_CKPT_NAME], tmp[WF_CKPT_NAME + 8], tmp_path[WF_CKPT_PATH];
    int lock_fd, dir_fd, fd; /* the lock; the folder; the temporary one */
    bool committed;
    int64_t bytes; /* of its files */
};

/* ---- beginning ------------------------------------------------------------------------------- */

static weft_status make_folder(weft_ckpt_build *b)
{
    const struct wf_fs *fs = b->ctx->fs;
    int rc;
    weft_status st = wf_ckpt_choose_name(b->ctx, b->dir, b->step, b->name);

    snprintf(b->tmp, sizeof b->tmp, WF_CKPT_TMP "%s", b->name);
    if (!st)
        st = wf_ckpt_join(b->tmp_path, b->dir, b->tmp);
    if (!st)
        st = wf_ckpt_open_dir(b->ctx, b->dir, &b->dir_fd);
    if (st)
        return st;
    rc = fs->mkdir_at(fs->arg, b->dir_fd, b->tmp, 0777);
    if (rc)
        return wf_file_err(rc, b->tmp_path, "cannot create the folder");
    b->fd = fs->open_at(fs->arg, b->dir_fd, b->tmp, O_RDONLY | O_DIRECTORY, 0);
    return b->fd < 0 ? wf_file_err(b->fd, b->tmp_path, "cannot open") : WEFT_OK;
}

weft_status wf_ckpt_begin(weft_ctx *ctx, const char *dir, int64_t step, bool locked,
                          weft_ckpt_build **out)
{
    weft_ckpt_build *b;
    weft_status st;

    if (step < 0)
        return wf_err(WEFT_EINVAL, "checkpoint of step %lld: a step is not negative",
                      (long long)step);
    b = wf_alloc(ctx, sizeof *b);
    if (!b)
        return wf_err_nomem(ctx, sizeof *b, "checkpoint");
    b->ctx = ctx;
    b->step = step;
    b->lock_fd = b->dir_fd = b->fd = -1;
    b->dir = wf_strdup(ctx, dir);
    st = b->dir ? wf_ckpt_make_dir(ctx, dir) : wf_err_nomem(ctx, strlen(dir) + 1, "checkpoint");
    if (!st && !locked)
        st = wf_ckpt_lock(ctx, dir, &b->lock_fd);
    if (!st)
        st = wf_ckpt_sweep(ctx, dir);
    if (!st)
        st = make_folder(b);
    if (st) {
        weft_ckpt_build_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

weft_status weft_ckpt_begin(weft_ctx *ctx, const char *dir, int64_t step, weft_ckpt_build **out)
{
    return wf_ckpt_begin(ctx, dir, step, false, out);
}

int64_t wf_ckpt_build_bytes(const weft_ckpt_build *b)
{
    return b->bytes;
}

const char *weft_ckpt_build_name(const weft_ckpt_build *b)
{
    return b->name;
}

void weft_ckpt_build_free(weft_ckpt_build *b)
{
    const struct wf_fs *fs;
    char why[1024];

    if (!b)
        return;
    fs = b->ctx->fs;
    snprintf(why, sizeof why, "%s", weft_error());
    if (b->fd >= 0)
        fs->close(fs->arg, b->fd);
    if (!b->committed && b->fd >= 0)
        wf_file_remove(b->ctx, b->tmp_path); /* what fails here is swept up later */
    if (b->dir_fd >= 0)
        fs->close(fs->arg, b->dir_fd);
    if (b->lock_fd >= 0)
        fs->close(fs->arg, b->lock_fd);
    wf_err_set(why);
    wf_free(b->ctx, b->dir);
    wf_free(b->ctx, b);
}

/* ---- one part -------------------------------------------------------------------------------- */

static weft_status check_writer(const char *writer)
{
    size_t n = writer ? strlen(writer) : 0;

    for (size_t i = 0; i < n && n <= WRITER_MAX; i++)
        if (!wf_is_alpha(writer[i]) && !wf_is_digit(writer[i]))
            n = 0;
    if (n == 0 || n > WRITER_MAX)
        return wf_err(WEFT_EINVAL,
                      "the writer of a part is 1 to %d letters and digits, not '%.40s'", WRITER_MAX,
                      writer ? writer : "");
    return WEFT_OK;
}

static weft_status check_piece(const weft_ckpt_piece *p)
{
    int64_t count;
    weft_status st;

    if (!p->name || !wf_utf8_ok(p->name) || !strcmp(p->name, "__metadata__"))
        return wf_err(WEFT_EINVAL, "a piece: '%.80s' cannot be the name of a tensor",
                      p->name ? p->name : "");
    st = wf_st_check(p->name, p->whole.dtype, weft_tensor_bytes(&p->whole));
    if (st)
        return st;
    count = weft_tensor_count(&p->whole);
    if (p->first < 0 || p->count < 0 || p->first > count - p->count || (p->count == 0 && count > 0))
        return wf_err(WEFT_ERANGE,
                      "tensor '%.80s' has %lld elements: no piece of %lld from %lld on", p->name,
                      (long long)count, (long long)p->count, (long long)p->first);
    if (p->count && !p->data && !p->read)
        return wf_err(WEFT_EINVAL, "tensor '%.80s': a piece has no data", p->name);
    return WEFT_OK;
}

/* The order of a manifest: by tensor, in the order they first appear, then by element. */
struct sorted {
    int64_t item;
    const weft_ckpt_piece *p;
};

static int by_item_and_first(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;

    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->p->first > y->p->first) - (x->p->first < y->p->first);
}

static bool same_type(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

/* The tensor of this name among those of the manifest, or a new one, whose type is the same. */
static weft_status find_tensor(struct wf_manifest *m, struct wf_map *names,
                               const weft_ckpt_tensor *t, int64_t *item)
{
    weft_ckpt_tensor *list = (weft_ckpt_tensor *)m->data.tensors;

    if (!wf_map_get(names, t->name, item)) {
        *item = m->data.n_tensors++;
        list[*item] = *t;
        list[*item].tensor.data = NULL;
        return wf_map_put(names, t->name, *item);
    }
    if (*item < 0 || !same_type(&list[*item].tensor, &t->tensor) ||
        strcmp(list[*item].section, t->section))
        return wf_err(WEFT_EINVAL, "'%.80s': two parts do not agree on its type, shape or section",
                      t->name);
    return WEFT_OK;
}

/* The name in the shard: that of the tensor, with the run of elements where it is not all of it. */
static const char *shard_name(struct wf_manifest *m, const weft_ckpt_piece *p)
{
    size_t room = strlen(p->name) + 48;
    char *name;

    if (p->count == weft_tensor_count(&p->whole))
        return p->name;
    name = wf_arena_alloc(&m->mem, room);
    if (name)
        snprintf(name, room, "%s[%lld:%lld]", p->name, (long long)p->first,
                 (long long)(p->first + p->count));
    return name;
}

static weft_status add_items(struct wf_shards *s, const weft_ckpt_part *part, struct sorted *sorted)
{
    struct wf_manifest *m = s->m;

    for (int64_t i = 0; i < part->n_pieces; i++) {
        const weft_ckpt_piece *p = sorted[i].p;
        struct wf_shard_item *it = &s->item[s->n++];

        it->item = sorted[i].item;
        it->first = p->first;
        it->st.name = shard_name(m, p);
        if (!it->st.name)
            return wf_err_nomem(s->ctx, strlen(p->name), "manifest");
        it->st.type = p->count == weft_tensor_count(&p->whole)
                          ? wf_type_of(p->whole.dtype, p->whole.rank, p->whole.dim)
                          : wf_type_of(p->whole.dtype, 1, &p->count);
        it->st.data = p->data;
        it->st.read = p->read;
        it->st.arg = p->arg;
    }
    for (int64_t i = 0; i < part->n_blobs; i++) {
        struct wf_shard_item *it = &s->item[s->n++];

        it->item = m->data.n_tensors + i;
        it->st.name = wf_manifest_item(&m->data, it->item, &it->st.type, &it->st.data);
    }
    return WEFT_OK;
}

/* Tensors and blobs of the part, and what goes into its shards. */
static weft_status prepare(struct wf_shards *s, const weft_ckpt_part *part)
{
    struct wf_manifest *m = s->m;
    size_t n = (size_t)(part->n_pieces + part->n_blobs) + 1;
    struct sorted *sorted = wf_arena_alloc(&m->mem, n * sizeof *sorted);
    struct wf_map names;
    weft_status st = WEFT_OK;

    wf_map_init(&names, s->ctx);
    m->is_part = true;
    m->library = weft_version();
    m->data.tensors = wf_arena_alloc(&m->mem, n * sizeof *m->data.tensors);
    s->item = wf_arena_alloc(&m->mem, n * sizeof *s->item);
    if (!sorted || !m->data.tensors || !s->item)
        return wf_err_nomem(s->ctx, n * sizeof *s->item, "manifest");
    for (int64_t i = 0; i < part->n_pieces && !st; i++) {
        const weft_ckpt_piece *p = &part->pieces[i];

        sorted[i].p = p;
        st = check_piece(p);
        if (!st)
            st = find_tensor(
                m, &names,
                &(weft_ckpt_tensor){p->name, p->section ? p->section : "param", p->whole},
                &sorted[i].item);
    }
    wf_map_free(&names);
    if (st)
        return st;
    qsort(sorted, (size_t)part->n_pieces, sizeof *sorted, by_item_and_first);
    m->data.blobs = part->blobs;
    m->data.n_blobs = part->n_blobs;
    return add_items(s, part, sorted);
}

/* The part's text, which is the caller's. */
static weft_status part_text(weft_ctx *ctx, const struct wf_manifest *m, char **out)
{
    struct wf_buf text;
    weft_status st;

    wf_buf_init(&text, ctx, WF_CKPT_MANIFEST_MAX);
    st = wf_manifest_text(m, &text);
    if (!st && !(*out = wf_strdup(ctx, text.data)))
        st = wf_err_nomem(ctx, (size_t)text.len, "manifest");
    wf_buf_free(&text);
    return st;
}

static weft_status write_part(struct wf_shards *s, const weft_ckpt_part *part, char **text)
{
    char *chunk = wf_alloc(s->ctx, (size_t)WF_CKPT_CHUNK);
    weft_status st =
        chunk ? prepare(s, part) : wf_err_nomem(s->ctx, (size_t)WF_CKPT_CHUNK, "checkpoint");

    if (!st)
        st = wf_shards_write(s);
    if (!st)
        st = wf_ckpt_sync_fd(s->ctx, s->fd, s->dir);
    if (!st)
        st = wf_shards_check(s, chunk);
    if (!st)
        st = part_text(s->ctx, s->m, text);
    wf_free(s->ctx, chunk);
    return st;
}

weft_status weft_ckpt_part_write(weft_ctx *ctx, const char *dir, const char *name,
                                 const weft_ckpt_part *given, char **text)
{
    char tmp[WF_CKPT_NAME + 8], path[WF_CKPT_PATH], prefix[WRITER_MAX + 8];
    struct wf_manifest m;
    struct wf_shards s = {.ctx = ctx, .m = &m, .dir = path, .prefix = prefix};
    weft_ckpt_part part;
    int64_t step, attempt;
    weft_status st = wf_opts_take(&part, sizeof part, given, "weft_ckpt_part");

    if (!st)
        st = check_writer(part.writer);
    if (!st && !wf_ckpt_name_parse(name, &step, &attempt))
        st = wf_err(WEFT_EINVAL, "'%.80s' is not the name of a checkpoint", name);
    if (st)
        return st;
    snprintf(tmp, sizeof tmp, WF_CKPT_TMP "%s", name);
    snprintf(prefix, sizeof prefix, "part-%s", part.writer);
    st = wf_ckpt_join(path, dir, tmp);
    if (!st)
        st = wf_ckpt_open_dir(ctx, path, &s.fd);
    if (st)
        return st;
    s.shard_bytes = part.shard_bytes;
    s.piece_bytes = part.piece_bytes;
    wf_manifest_init(&m, ctx);
    m.data.step = step;
    st = write_part(&s, &part, text);
    wf_manifest_free(&m);
    ctx->fs->close(ctx->fs->arg, s.fd);
    return wf_err_wrap(st, "part '%s' of %s", part.writer, name);
}

/* ---- committing ------------------------------------------------------------------------------ */

/* All parts, and the manifest that they become. */
struct joining {
    weft_ckpt_build *b;
    int64_t n_parts;
    struct wf_manifest *part, m;
    struct wf_map names, files; /* tensors by number, blobs -1; files 1 */
    int64_t *item;              /* of each piece of m */
};

static weft_status parse_parts(struct joining *j, const char *const *texts)
{
    for (int64_t i = 0; i < j->n_parts; i++) {
        weft_status st;

        j->part[i].is_part = true;
        st = wf_manifest_parse(&j->part[i], texts[i], (int64_t)strlen(texts[i]));
        if (!st && j->part[i].data.step != j->b->step)
            st = wf_err(WEFT_EINVAL, "it is of step %lld", (long long)j->part[i].data.step);
        if (st)
            return wf_err_wrap(st, "part %lld", (long long)i);
    }
    return WEFT_OK;
}

static weft_status make_room(struct joining *j, int64_t n_tensors)
{
    size_t tensors = (size_t)n_tensors + 1, blobs = 1, files = 1, pieces = 1;
    struct wf_manifest *m = &j->m;

    for (int64_t i = 0; i < j->n_parts; i++) {
        blobs += (size_t)j->part[i].data.n_blobs;
        files += (size_t)j->part[i].n_files;
        pieces += (size_t)j->part[i].n_pieces;
    }
    m->data.tensors = wf_arena_alloc(&m->mem, tensors * sizeof *m->data.tensors);
    m->data.blobs = wf_arena_alloc(&m->mem, blobs * sizeof *m->data.blobs);
    m->files = wf_arena_alloc(&m->mem, files * sizeof *m->files);
    m->piece = wf_arena_alloc(&m->mem, pieces * sizeof *m->piece);
    m->place = wf_arena_alloc(&m->mem, (tensors + blobs) * sizeof *m->place);
    j->item = wf_arena_alloc(&m->mem, pieces * sizeof *j->item);
    if (!m->data.tensors || !m->data.blobs || !m->files || !m->piece || !m->place || !j->item)
        return wf_err_nomem(j->b->ctx, pieces * sizeof *m->piece, "manifest");
    return WEFT_OK;
}

static weft_status add_files(struct joining *j, const struct wf_manifest *part)
{
    for (int64_t f = 0; f < part->n_files; f++) {
        const char *name = part->files[f].name;
        weft_status st = wf_map_get(&j->files, name, NULL)
                             ? wf_err(WEFT_EEXIST, "two parts have a file '%s'", name)
                             : wf_map_put(&j->files, name, 1);

        if (st)
            return st;
        j->m.files[j->m.n_files++] = part->files[f];
        j->m.bytes += part->files[f].bytes;
    }
    return WEFT_OK;
}

/* The pieces of item i of a part, as those of `item`. */
static void add_pieces(struct joining *j, const struct wf_manifest *part, int64_t i, int64_t item,
                       int64_t first_file)
{
    const struct wf_mf_piece *p = &part->piece[part->place[i].first];

    for (int64_t k = 0; k < part->place[i].n; k++, p++) {
        struct wf_mf_piece *to = &j->m.piece[j->m.n_pieces];

        *to = *p;
        to->file += first_file;
        j->item[j->m.n_pieces++] = item;
    }
}

static weft_status add_tensors(struct joining *j, const struct wf_manifest *part,
                               int64_t first_file)
{
    for (int64_t i = 0; i < part->data.n_tensors; i++) {
        const weft_ckpt_tensor *t = &part->data.tensors[i];
        int64_t item;
        weft_status st =
            wf_map_get(&j->names, t->name, NULL)
                ? find_tensor(&j->m, &j->names, t, &item)
                : wf_err(WEFT_ENOENT, "'%.80s' is not a tensor of this checkpoint", t->name);

        if (st)
            return st;
        add_pieces(j, part, i, item, first_file);
    }
    return WEFT_OK;
}

static weft_status add_blobs(struct joining *j, const struct wf_manifest *part, int64_t first_file)
{
    weft_ckpt_blob *blobs = (weft_ckpt_blob *)j->m.data.blobs;

    for (int64_t i = 0; i < part->data.n_blobs; i++) {
        const weft_ckpt_blob *b = &part->data.blobs[i];
        weft_status st = wf_map_get(&j->names, b->name, NULL)
                             ? wf_err(WEFT_EEXIST, "blob '%.80s' is in two parts", b->name)
                             : wf_map_put(&j->names, b->name, -1);

        if (st)
            return st;
        add_pieces(j, part, part->data.n_tensors + i, j->m.data.n_tensors + j->m.data.n_blobs,
                   first_file);
        blobs[j->m.data.n_blobs++] = *b;
    }
    return WEFT_OK;
}

/* Pieces by item and element. A merge would be shorter in time; there are few of them. */
struct keyed {
    int64_t item;
    struct wf_mf_piece piece;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;

    if (x->item != y->item)
        return x->item < y->item ? -1 : 1;
    return (x->piece.first > y->piece.first) - (x->piece.first < y->piece.first);
}

static weft_status sort_pieces(struct joining *j)
{
    struct wf_manifest *m = &j->m;
    int64_t n_items = m->data.n_tensors + m->data.n_blobs;
    struct keyed *list = wf_alloc_n(j->b->ctx, m->n_pieces, sizeof *list);
    weft_status st = WEFT_OK;

    if (!list)
        return wf_err_nomem(j->b->ctx, (size_t)m->n_pieces * sizeof *list, "manifest");
    for (int64_t k = 0; k < m->n_pieces; k++)
        list[k] = (struct keyed){j->item[k], m->piece[k]};
    qsort(list, (size_t)m->n_pieces, sizeof *list, by_key);
    for (int64_t k = 0; k < m->n_pieces; k++) {
        struct wf_mf_place *place = &m->place[list[k].item];

        m->piece[k] = list[k].piece;
        if (place->n++ == 0)
            place->first = k;
    }
    wf_free(j->b->ctx, list);
    for (int64_t i = 0; i < n_items && !st; i++)
        st = wf_manifest_covers(m, i);
    return st;
}

/* The tensors that there must be. */
static weft_status list_tensors(struct joining *j, const weft_ckpt_data *d)
{
    for (int64_t i = 0; i < d->n_tensors; i++) {
        weft_ckpt_tensor t = d->tensors[i];
        int64_t item;
        weft_status st = t.name && wf_map_get(&j->names, t.name, NULL)
                             ? wf_err(WEFT_EEXIST, "two tensors are called '%.80s'", t.name)
                             : WEFT_OK;

        t.section = t.section ? t.section : "param";
        if (!st && (!t.name || !wf_utf8_ok(t.name) || weft_tensor_bytes(&t.tensor) < 0))
            st = wf_err(WEFT_EINVAL, "tensor %lld has no name, or no shape", (long long)i);
        if (!st)
            st = find_tensor(&j->m, &j->names, &t, &item);
        if (st)
            return st;
    }
    return WEFT_OK;
}

static weft_status join(struct joining *j, const weft_ckpt_data *d)
{
    int64_t first = 0;
    weft_status st = make_room(j, d->n_tensors);

    if (!st)
        st = list_tensors(j, d);
    for (int64_t i = 0; i < j->n_parts && !st; i++) {
        first = j->m.n_files;
        st = add_files(j, &j->part[i]);
        if (!st)
            st = add_tensors(j, &j->part[i], first);
        if (st)
            return wf_err_wrap(st, "part %lld", (long long)i);
    }
    first = 0;
    for (int64_t i = 0; i < j->n_parts && !st; first += j->part[i++].n_files)
        st = add_blobs(j, &j->part[i], first);
    return st ? st : sort_pieces(j);
}

/* Whether the files are there, as long as they should be. */
static weft_status check_files(const struct joining *j)
{
    const struct wf_fs *fs = j->b->ctx->fs;

    for (int64_t f = 0; f < j->m.n_files; f++) {
        const struct wf_mf_file *file = &j->m.files[f];
        struct wf_file_info info;
        char path[WF_CKPT_PATH];
        weft_status st = wf_ckpt_join(path, j->b->tmp_path, file->name);
        int rc = st ? 0 : fs->stat_at(fs->arg, j->b->fd, file->name, &info);

        if (!st && rc)
            st = wf_file_err(rc, path, "a part's file");
        if (!st && (!info.plain || info.size != file->bytes))
            st = wf_err(WEFT_EPARSE, "%s: has %lld bytes, its part says %lld", path,
                        (long long)info.size, (long long)file->bytes);
        if (st)
            return st;
    }
    return WEFT_OK;
}

/* What no part names: of writers that died, or of a commit that failed. */
struct leftovers {
    struct joining *j;
    char **name;
    int64_t n, cap;
    weft_status st;
};

static int note_leftover(void *arg, const char *name)
{
    struct leftovers *l = arg;
    weft_ctx *ctx = l->j->b->ctx;

    if (wf_map_get(&l->j->files, name, NULL))
        return 0;
    l->st = wf_grow(ctx, &l->name, &l->cap, l->n + 1, sizeof *l->name);
    if (!l->st && !(l->name[l->n] = wf_strdup(ctx, name)))
        l->st = wf_err_nomem(ctx, strlen(name), "checkpoint");
    l->n += !l->st;
    return l->st ? 1 : 0;
}

static weft_status remove_leftovers(struct joining *j)
{
    weft_ctx *ctx = j->b->ctx;
    const struct wf_fs *fs = ctx->fs;
    struct leftovers l = {.j = j};
    int rc = fs->list_at(fs->arg, j->b->fd, note_leftover, &l);

    if (!l.st && rc)
        l.st = wf_file_err(rc, j->b->tmp_path, "cannot list");
    for (int64_t i = 0; i < l.n; i++) {
        rc = l.st ? 0 : fs->unlink_at(fs->arg, j->b->fd, l.name[i], false);
        if (rc)
            l.st = wf_file_err(rc, j->b->tmp_path, "cannot remove what a writer left");
        wf_free(ctx, l.name[i]);
    }
    wf_free(ctx, l.name);
    return l.st;
}

static weft_status put_in_place(struct joining *j)
{
    weft_ckpt_build *b = j->b;
    const struct wf_fs *fs = b->ctx->fs;
    struct wf_part manifest;
    char *chunk = wf_alloc(b->ctx, (size_t)WF_CKPT_CHUNK), path[WF_CKPT_PATH];
    int rc;
    weft_status st = chunk ? wf_ckpt_join(path, b->tmp_path, WF_CKPT_MANIFEST)
                           : wf_err_nomem(b->ctx, (size_t)WF_CKPT_CHUNK, "checkpoint");

    if (!st)
        st = wf_ckpt_write_manifest(b->ctx, b->fd, b->tmp_path, &j->m, &manifest);
    if (!st)
        st = wf_ckpt_sync_fd(b->ctx, b->fd, b->tmp_path);
    if (!st)
        st = wf_err_wrap(wf_out_check(b->ctx, b->fd, WF_CKPT_MANIFEST, path, chunk, 1, &manifest),
                         "read back");
    wf_free(b->ctx, chunk);
    if (st)
        return st;
    rc = fs->rename_at(fs->arg, b->dir_fd, b->tmp, b->name);
    if (rc)
        return wf_file_err(rc, b->tmp_path, "cannot rename into place");
    b->committed = true;
    b->bytes = j->m.bytes + manifest.bytes;
    return wf_ckpt_sync_fd(b->ctx, b->dir_fd, b->dir);
}

/* Step, metrics and metadata; what tensors and blobs hold comes with the parts. */
static weft_status take_data(struct joining *j, const weft_ckpt_data *d)
{
    weft_ckpt_data rest = *d;
    weft_status st;

    rest.n_tensors = 0;
    st = wf_ckpt_check(j->b->ctx, &rest);
    if (!st && d->n_blobs)
        st = wf_err(WEFT_EINVAL, "the blobs of this checkpoint come with its parts");
    if (!st && d->step != j->b->step)
        st = wf_err(WEFT_EINVAL, "step %lld: the checkpoint was begun for step %lld",
                    (long long)d->step, (long long)j->b->step);
    j->m.data = rest;
    if (!d->time_ns)
        j->m.data.time_ns = wf_ckpt_wall_time();
    j->m.library = weft_version();
    return st;
}

weft_status weft_ckpt_commit(weft_ckpt_build *b, int64_t n_parts, const char *const *texts,
                             const weft_ckpt_data *data)
{
    struct joining j = {.b = b};
    weft_ckpt_data d;
    weft_status st = wf_opts_take(&d, sizeof d, data, "weft_ckpt_data");

    if (!st && b->committed)
        st = wf_err(WEFT_ESTATE, "%s is committed already", b->name);
    if (st)
        return st;
    wf_manifest_init(&j.m, b->ctx);
    wf_map_init(&j.names, b->ctx);
    wf_map_init(&j.files, b->ctx);
    j.part = wf_alloc_n(b->ctx, n_parts, sizeof *j.part);
    if (!j.part) {
        st = wf_err_nomem(b->ctx, (size_t)n_parts * sizeof *j.part, "checkpoint");
        goto out;
    }
    for (; j.n_parts < n_parts; j.n_parts++)
        wf_manifest_init(&j.part[j.n_parts], b->ctx);
    st = take_data(&j, &d);
    if (!st)
        st = parse_parts(&j, texts);
    if (!st)
        st = join(&j, &d);
    if (!st)
        st = check_files(&j);
    if (!st)
        st = remove_leftovers(&j);
    if (!st)
        st = put_in_place(&j);
out:
    for (int64_t i = 0; i < j.n_parts; i++)
        wf_manifest_free(&j.part[i]);
    wf_free(b->ctx, j.part);
    wf_map_free(&j.files);
    wf_map_free(&j.names);
    wf_manifest_free(&j.m);
    return wf_err_wrap(st, "checkpoint of step %lld", (long long)b->step);
}
