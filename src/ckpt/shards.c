/* shards.c - tensors into the shards of a checkpoint.
 *
 * Every item goes to one file, in order; a file is closed when the next item would make it too
 * large. Long items are hashed in pieces, so that a reader of a range need not read all of them. */
#include <stdio.h>

#include "ckpt/ckpt.h"

#define SHARD_BYTES ((int64_t)1 << 30)
#define PIECE_BYTES ((int64_t)64 << 20)
#define PIECE_UNIT 64                       /* bytes: a multiple of every element */
#define SHARD_HEADER (WF_ST_HEADER_MAX / 2) /* an estimate of its text stays below this */

/* Gives every item its file, in order; returns how many there are. */
static int64_t plan_files(struct wf_shards *s)
{
    int64_t limit = s->shard_bytes > 0 ? s->shard_bytes : SHARD_BYTES;
    int64_t file = 0, bytes = 0, text = 0;

    for (int64_t i = 0; i < s->n; i++) {
        int64_t b = wf_type_bytes(&s->item[i].st.type);
        int64_t t = 6 * (int64_t)strlen(s->item[i].st.name) + 320;

        if (text && (b > limit - bytes || t > SHARD_HEADER - text)) {
            file++;
            bytes = text = 0;
        }
        s->item[i].file = file;
        bytes += wf_min_i64(b, limit);
        text += t;
    }
    return s->n ? file + 1 : 0;
}

/* How each item is cut; returns the number of parts of all files, their headers included. */
static int64_t plan_parts(struct wf_shards *s, int64_t n_files)
{
    int64_t piece = s->piece_bytes > 0 ? wf_round_up(s->piece_bytes, PIECE_UNIT) : PIECE_BYTES;
    int64_t n = n_files;

    for (int64_t i = 0; i < s->n; i++) {
        struct wf_st_item *t = &s->item[i].st;
        int64_t bytes = wf_type_bytes(&t->type);
        bool is_blob = s->item[i].item >= s->m->data.n_tensors;

        t->part_bytes = is_blob ? wf_max_i64(bytes, 1) : piece;
        t->n_parts = wf_max_i64((bytes + t->part_bytes - 1) / t->part_bytes, 1);
        n += t->n_parts;
    }
    return n;
}

static weft_status name_files(struct wf_shards *s)
{
    struct wf_manifest *m = s->m;

    for (int64_t f = 0; f < m->n_files; f++) {
        char name[160], *kept;

        if (s->counted)
            snprintf(name, sizeof name, "%s-%05lld-of-%05lld.safetensors", s->prefix,
                     (long long)f + 1, (long long)m->n_files);
        else
            snprintf(name, sizeof name, "%s-%05lld.safetensors", s->prefix, (long long)f + 1);
        kept = wf_arena_strdup(&m->mem, name);
        if (!kept)
            return wf_err_nomem(s->ctx, sizeof name, "manifest");
        m->files[f].name = kept;
    }
    return WEFT_OK;
}

static weft_status plan(struct wf_shards *s)
{
    struct wf_manifest *m = s->m;
    int64_t n_parts;

    m->n_files = plan_files(s);
    n_parts = plan_parts(s, m->n_files);
    m->files = wf_arena_alloc(&m->mem, (size_t)(m->n_files + 1) * sizeof *m->files);
    m->place = wf_arena_alloc(&m->mem,
                              (size_t)(m->data.n_tensors + m->data.n_blobs + 1) * sizeof *m->place);
    m->piece = wf_arena_alloc(&m->mem, (size_t)(n_parts + 1) * sizeof *m->piece);
    s->part = wf_arena_alloc(&m->mem, (size_t)(n_parts + 1) * sizeof *s->part);
    s->file_part = wf_arena_alloc(&m->mem, (size_t)(m->n_files + 1) * sizeof *s->file_part);
    if (!m->files || !m->place || !m->piece || !s->part || !s->file_part)
        return wf_err_nomem(s->ctx, (size_t)n_parts * sizeof *m->piece, "manifest");
    return name_files(s);
}

/* The item's pieces, after those of the manifest so far. */
static void note_pieces(struct wf_manifest *m, const struct wf_shard_item *it)
{
    int64_t size = weft_dtype_size(it->st.type.dtype), count = wf_type_count(&it->st.type);
    int64_t each = it->st.part_bytes / size;
    struct wf_mf_place *place = &m->place[it->item];
    struct wf_type whole;
    const void *data;

    (void)wf_manifest_item(&m->data, it->item, &whole, &data);
    if (!place->n)
        place->first = m->n_pieces;
    for (int64_t k = 0; k < it->st.n_parts; k++) {
        int64_t first = k * each;
        bool plain = it->st.n_parts == 1 && wf_type_count(&whole) == count;

        m->piece[m->n_pieces++] = (struct wf_mf_piece){
            .first = it->first + first,
            .count = wf_min_i64(each, count - first),
            .file = it->file,
            .offset = plain ? -1 : it->st.offset + first * size,
            .hash = it->st.part[k].hash,
        };
        place->n++;
    }
}

/* File f, whose items begin at *first, and whose parts at *part. */
static weft_status write_file(struct wf_shards *s, int64_t f, int64_t *first, int64_t *part)
{
    struct wf_mf_file *file = &s->m->files[f];
    char path[WF_CKPT_PATH], step[24], number[24], count[24];
    const weft_ckpt_pair meta[] = {
        {"format", "weft"}, {"step", step}, {"shard", number}, {"shards", count}};
    int64_t n = 0, begin = *first;
    struct wf_st_item *items;
    struct wf_out o;
    weft_status st = wf_ckpt_join(path, s->dir, file->name);

    snprintf(step, sizeof step, "%lld", (long long)s->m->data.step);
    snprintf(number, sizeof number, "%lld", (long long)f + 1);
    snprintf(count, sizeof count, "%lld", (long long)s->m->n_files);
    while (begin + n < s->n && s->item[begin + n].file == f)
        n++;
    items = wf_alloc_n(s->ctx, n, sizeof *items);
    if (!items)
        return wf_err_nomem(s->ctx, (size_t)n * sizeof *items, "tensors of a file");
    for (int64_t i = 0; i < n; i++)
        items[i] = s->item[begin + i].st;
    if (!st)
        st = wf_out_open(&o, s->ctx, s->fd, file->name, path);
    if (!st) {
        s->file_part[f] = *part;
        st =
            wf_out_close(&o, wf_st_stream(&o, n, items, s->counted ? 4 : 2, meta, s->part + *part));
        file->bytes = o.bytes;
        file->hash = s->part[*part].hash;
    }
    for (int64_t i = 0; i < n && !st; i++) {
        s->item[begin + i].st = items[i];
        note_pieces(s->m, &s->item[begin + i]);
        *part += items[i].n_parts;
    }
    ++*part;
    *first = begin + n;
    wf_free(s->ctx, items);
    return st;
}

weft_status wf_shards_write(struct wf_shards *s)
{
    int64_t first = 0, part = 0;
    weft_status st = plan(s);

    for (int64_t f = 0; f < s->m->n_files && !st; f++) {
        st = write_file(s, f, &first, &part);
        s->m->bytes += s->m->files[f].bytes;
    }
    if (!st)
        s->file_part[s->m->n_files] = part;
    return st;
}

weft_status wf_shards_check(const struct wf_shards *s, char *chunk)
{
    const struct wf_manifest *m = s->m;
    char path[WF_CKPT_PATH];
    weft_status st = WEFT_OK;

    for (int64_t f = 0; f < m->n_files && !st; f++) {
        st = wf_ckpt_join(path, s->dir, m->files[f].name);
        if (!st)
            st = wf_out_check(s->ctx, s->fd, m->files[f].name, path, chunk,
                              s->file_part[f + 1] - s->file_part[f], s->part + s->file_part[f]);
    }
    return wf_err_wrap(st, "read back");
}
