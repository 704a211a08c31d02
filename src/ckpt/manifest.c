/* manifest.c - manifest.json, written and read.
 *
 * Its last member is the checksum of all text before it, and it holds the checksum of every byte of
 * the files: who trusts the manifest can trust the rest. A parsed manifest names only plain files
 * of its own folder, each once; names are unique; the pieces of a tensor cover it, each element
 * once. */
#include <stdio.h>

#include "ckpt/ckpt.h"

#define FORMAT "weft checkpoint"
#define PART_FORMAT "weft checkpoint part"
#define VERSION 2                    /* 1: no tensor is in pieces */
#define MAX_ITEMS ((int64_t)1 << 24) /* tensors, files, metrics, pairs: each */
#define TAIL_BYTES ((int64_t)sizeof ",\n  \"xxh64\": \"0123456789abcdef\"\n}\n" - 1)

void wf_manifest_init(struct wf_manifest *m, weft_ctx *ctx)
{
    memset(m, 0, sizeof *m);
    m->data.size = sizeof m->data;
    wf_arena_init(&m->mem, ctx);
}

void wf_manifest_free(struct wf_manifest *m)
{
    weft_ctx *ctx = m->mem.ctx;

    wf_arena_free(&m->mem);
    wf_manifest_init(m, ctx);
}

bool wf_manifest_file_ok(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = strlen(name);

    if (!n || n > 128 || !strchr(letters, name[0]) || !strcmp(name, WF_CKPT_MANIFEST))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(letters, name[i]) && !strchr("._-", name[i]))
            return false;
    return true;
}

const char *wf_manifest_item(const weft_ckpt_data *d, int64_t i, struct wf_type *type,
                             const void **data)
{
    const weft_ckpt_blob *b;

    if (i < d->n_tensors) {
        const weft_tensor *t = &d->tensors[i].tensor;

        *type = wf_type_of(t->dtype, t->rank, t->dim);
        *data = t->data;
        return d->tensors[i].name;
    }
    b = &d->blobs[i - d->n_tensors];
    *type = wf_type_of(WEFT_U8, 1, &b->bytes);
    *data = b->data;
    return b->name;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add_hex(struct wf_buf *b, const char *key, uint64_t v)
{
    wf_buf_printf(b, ",\n  \"%s\": \"%016llx\"", key, (unsigned long long)v);
}

static void add_maps(struct wf_buf *b, const weft_ckpt_data *d)
{
    wf_buf_printf(b, ",\n  \"metrics\": {");
    for (int64_t i = 0; i < d->n_metrics && !b->st; i++) {
        wf_buf_printf(b, "%s\n    ", i ? "," : "");
        wf_json_text(b, d->metrics[i].name);
        wf_buf_printf(b, ": ");
        wf_json_real(b, d->metrics[i].value);
    }
    wf_buf_printf(b, "},\n  \"metadata\": {");
    for (int64_t i = 0; i < d->n_meta && !b->st; i++) {
        wf_buf_printf(b, "%s\n    ", i ? "," : "");
        wf_json_text(b, d->meta[i].key);
        wf_buf_printf(b, ": ");
        wf_json_text(b, d->meta[i].value);
    }
    wf_buf_printf(b, "}");
}

/* One piece, all of it, found by its name: the only kind there was in version 1. */
static bool is_plain(const struct wf_manifest *m, int64_t i)
{
    return m->place[i].n == 1 && m->piece[m->place[i].first].offset < 0;
}

static bool all_plain(const struct wf_manifest *m)
{
    for (int64_t i = 0; i < m->data.n_tensors; i++)
        if (!is_plain(m, i))
            return false;
    return !m->is_part;
}

static void add_pieces(struct wf_buf *b, const struct wf_manifest *m, int64_t i)
{
    const struct wf_mf_piece *p = &m->piece[m->place[i].first];

    if (is_plain(m, i)) {
        wf_buf_printf(b, "\"file\": %lld, \"xxh64\": \"%016llx\"}", (long long)p->file,
                      (unsigned long long)p->hash);
        return;
    }
    wf_buf_printf(b, "\"pieces\": [");
    for (int64_t k = 0; k < m->place[i].n && !b->st; k++, p++)
        wf_buf_printf(b,
                      "%s\n      {\"first\": %lld, \"count\": %lld, \"file\": %lld, "
                      "\"offset\": %lld, \"xxh64\": \"%016llx\"}",
                      k ? "," : "", (long long)p->first, (long long)p->count, (long long)p->file,
                      (long long)p->offset, (unsigned long long)p->hash);
    wf_buf_printf(b, "]}");
}

static void add_tensor(struct wf_buf *b, const struct wf_manifest *m, int64_t i)
{
    const weft_ckpt_tensor *t = &m->data.tensors[i];

    wf_buf_printf(b, "\n    {\"name\": ");
    wf_json_text(b, t->name);
    wf_buf_printf(b, ", \"section\": ");
    wf_json_text(b, t->section);
    wf_buf_printf(b, ", \"dtype\": \"%s\", \"shape\": [", weft_dtype_name(t->tensor.dtype));
    for (int k = 0; k < t->tensor.rank; k++)
        wf_buf_printf(b, "%s%lld", k ? ", " : "", (long long)t->tensor.dim[k]);
    wf_buf_printf(b, "], ");
    add_pieces(b, m, i);
}

static void add_blob(struct wf_buf *b, const struct wf_manifest *m, int64_t i)
{
    const weft_ckpt_blob *o = &m->data.blobs[i];

    wf_buf_printf(b, "\n    {\"name\": ");
    wf_json_text(b, o->name);
    wf_buf_printf(b, ", \"bytes\": %lld, ", (long long)o->bytes);
    add_pieces(b, m, m->data.n_tensors + i);
}

void wf_manifest_seal(struct wf_buf *b)
{
    uint64_t hash = b->st ? 0 : wf_xxh64(b->data, b->len);

    wf_buf_printf(b, ",\n  \"xxh64\": \"%016llx\"\n}\n", (unsigned long long)hash);
}

weft_status wf_manifest_text(const struct wf_manifest *m, struct wf_buf *b)
{
    const weft_ckpt_data *d = &m->data;

    wf_buf_printf(b, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"library\": ",
                  m->is_part ? PART_FORMAT : FORMAT, all_plain(m) ? 1 : VERSION);
    wf_json_text(b, m->library);
    wf_buf_printf(b, ",\n  \"step\": %lld,\n  \"epoch\": %lld,\n  \"time_ns\": %lld",
                  (long long)d->step, (long long)d->epoch, (long long)d->time_ns);
    add_hex(b, "seed", d->seed);
    add_hex(b, "fingerprint", d->fingerprint);
    add_maps(b, d);
    wf_buf_printf(b, ",\n  \"files\": [");
    for (int64_t i = 0; i < m->n_files && !b->st; i++) {
        const struct wf_mf_file *f = &m->files[i];

        wf_buf_printf(b, "%s\n    {\"name\": ", i ? "," : "");
        wf_json_text(b, f->name);
        wf_buf_printf(b, ", \"bytes\": %lld, \"xxh64\": \"%016llx\"}", (long long)f->bytes,
                      (unsigned long long)f->hash);
    }
    wf_buf_printf(b, "],\n  \"blobs\": [");
    for (int64_t i = 0; i < d->n_blobs && !b->st; i++) {
        wf_buf_printf(b, "%s", i ? "," : "");
        add_blob(b, m, i);
    }
    wf_buf_printf(b, "],\n  \"tensors\": [");
    for (int64_t i = 0; i < d->n_tensors && !b->st; i++) {
        wf_buf_printf(b, "%s", i ? "," : "");
        add_tensor(b, m, i);
    }
    wf_buf_printf(b, "]");
    wf_manifest_seal(b);
    return b->st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status copy_text(struct wf_manifest *m, const char *s, const char **out)
{
    *out = wf_arena_strdup(&m->mem, s);
    return *out ? WEFT_OK : wf_err_nomem(m->mem.ctx, strlen(s) + 1, "manifest");
}

/* Room for n items in the arena, with the cap on counts. */
static weft_status room(struct wf_manifest *m, size_t n, size_t size, const char *what, void *out)
{
    void *p;

    if (n > (size_t)MAX_ITEMS)
        return wf_err(WEFT_EPARSE, "\"%s\" has %zu entries; at most %lld are read", what, n,
                      (long long)MAX_ITEMS);
    p = wf_arena_alloc(&m->mem, n * size);
    if (!p)
        return wf_err_nomem(m->mem.ctx, n * size, "manifest");
    memcpy(out, &p, sizeof p);
    return WEFT_OK;
}

static weft_status read_metrics(struct wf_manifest *m, const json_t *root)
{
    json_t *map = NULL, *v;
    weft_ckpt_metric *list = NULL;
    const char *key;
    weft_status st = wf_json_map(root, "metrics", &map);

    if (!st)
        st = room(m, json_object_size(map), sizeof *list, "metrics", &list);
    if (st)
        return st;
    json_object_foreach(map, key, v)
    {
        weft_ckpt_metric *to = &list[m->data.n_metrics++];

        st = copy_text(m, key, &to->name);
        if (!st)
            st = wf_err_wrap(wf_json_to_real(v, &to->value), "metric '%.80s'", key);
        if (st)
            return st;
    }
    m->data.metrics = list;
    return WEFT_OK;
}

static weft_status read_meta(struct wf_manifest *m, const json_t *root)
{
    json_t *map = NULL, *v;
    weft_ckpt_pair *list = NULL;
    const char *key;
    weft_status st = wf_json_map(root, "metadata", &map);

    if (!st)
        st = room(m, json_object_size(map), sizeof *list, "metadata", &list);
    if (st)
        return st;
    json_object_foreach(map, key, v)
    {
        weft_ckpt_pair *to = &list[m->data.n_meta++];

        if (!json_is_string(v))
            return wf_err(WEFT_EPARSE, "metadata '%.80s' is not a string", key);
        st = copy_text(m, key, &to->key);
        if (!st)
            st = copy_text(m, json_string_value(v), &to->value);
        if (st)
            return st;
    }
    m->data.meta = list;
    return WEFT_OK;
}

static weft_status read_file(struct wf_manifest *m, const json_t *o, struct wf_mf_file *f)
{
    const char *name = NULL;
    weft_status st = wf_json_str(o, "name", &name);

    if (!st)
        st = wf_json_int(o, "bytes", 0, INT64_MAX, &f->bytes);
    if (!st)
        st = wf_json_hex(o, "xxh64", &f->hash);
    if (st)
        return st;
    if (!wf_manifest_file_ok(name))
        return wf_err(WEFT_EPARSE, "'%.80s' is not a valid name for a file of a checkpoint", name);
    if (!wf_add_i64(m->bytes, f->bytes, &m->bytes))
        return wf_err(WEFT_EPARSE, "the sizes of the files overflow");
    return copy_text(m, name, &f->name);
}

static weft_status read_files(struct wf_manifest *m, const json_t *root, struct wf_map *names)
{
    json_t *list = NULL, *o;
    size_t i;
    weft_status st = wf_json_list(root, "files", &list);

    if (!st)
        st = room(m, json_array_size(list), sizeof *m->files, "files", &m->files);
    if (st)
        return st;
    json_array_foreach(list, i, o)
    {
        struct wf_mf_file *f = &m->files[m->n_files++];

        st = wf_err_wrap(read_file(m, o, f), "file %zu", i);
        if (!st && wf_map_get(names, f->name, NULL))
            st = wf_err(WEFT_EPARSE, "the file '%s' is listed twice", f->name);
        if (!st)
            st = wf_map_put(names, f->name, (int64_t)i);
        if (st)
            return st;
    }
    return WEFT_OK;
}

static weft_status read_type(const json_t *o, weft_tensor *t)
{
    const char *dtype = NULL;
    json_t *shape = NULL, *v;
    size_t k;
    weft_status st = wf_json_str(o, "dtype", &dtype);

    if (!st)
        st = weft_dtype_parse(dtype, &t->dtype);
    if (!st)
        st = wf_json_list(o, "shape", &shape);
    if (st)
        return st;
    if (json_array_size(shape) > WEFT_MAX_RANK)
        return wf_err(WEFT_EPARSE, "its rank is %zu, more than %d", json_array_size(shape),
                      WEFT_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    json_array_foreach(shape, k, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return wf_err(WEFT_EPARSE, "\"shape\" holds something other than sizes");
        t->dim[k] = json_integer_value(v);
    }
    if (weft_tensor_bytes(t) < 0)
        return wf_err(WEFT_EPARSE, "the product of \"shape\" overflows");
    return WEFT_OK;
}

/* The next piece of m: where it is. */
static weft_status read_place(struct wf_manifest *m, const json_t *o, struct wf_mf_piece **out)
{
    struct wf_mf_piece *p = &m->piece[m->n_pieces++];
    weft_status st = wf_json_int(o, "file", 0, m->n_files - 1, &p->file);

    p->offset = -1;
    *out = p;
    return st ? st : wf_json_hex(o, "xxh64", &p->hash);
}

static weft_status read_piece(struct wf_manifest *m, const json_t *o, int64_t size)
{
    struct wf_mf_piece *p;
    int64_t bytes, end;
    weft_status st = read_place(m, o, &p);

    if (!st)
        st = wf_json_int(o, "first", 0, INT64_MAX, &p->first);
    if (!st)
        st = wf_json_int(o, "count", 0, INT64_MAX, &p->count);
    if (!st)
        st = wf_json_int(o, "offset", 8, INT64_MAX, &p->offset);
    if (st)
        return st;
    if (!wf_mul_i64(p->count, size, &bytes) || !wf_add_i64(p->offset, bytes, &end) ||
        end > m->files[p->file].bytes || !wf_add_i64(p->first, p->count, &end))
        return wf_err(WEFT_EPARSE, "a piece of %lld elements at %lld is not in its file",
                      (long long)p->count, (long long)p->offset);
    return WEFT_OK;
}

/* How many pieces the entry of a tensor lists. */
static size_t n_listed(const json_t *o)
{
    const json_t *list = json_object_get(o, "pieces");

    return json_is_array(list) ? json_array_size(list) : 1;
}

static weft_status read_pieces(struct wf_manifest *m, const json_t *o, const weft_tensor *t,
                               struct wf_mf_place *place)
{
    int64_t size = weft_dtype_size(t->dtype);
    json_t *list = NULL, *v;
    struct wf_mf_piece *whole;
    weft_status st;
    size_t k;

    place->first = m->n_pieces;
    if (!json_object_get(o, "pieces")) {
        st = read_place(m, o, &whole);
        whole->count = weft_tensor_count(t);
        place->n = 1;
        return st;
    }
    st = wf_json_list(o, "pieces", &list);
    if (st)
        return st;
    json_array_foreach(list, k, v)
    {
        st = wf_err_wrap(read_piece(m, v, size), "piece %zu", k);
        if (st)
            return st;
    }
    place->n = (int64_t)json_array_size(list);
    return WEFT_OK;
}

/* Pieces in order, none of them empty, but for the one of a tensor without elements. */
weft_status wf_manifest_covers(const struct wf_manifest *m, int64_t item)
{
    const struct wf_mf_piece *p = &m->piece[m->place[item].first];
    struct wf_type type;
    const void *data;
    const char *name = wf_manifest_item(&m->data, item, &type, &data);
    int64_t at = 0, count = wf_type_count(&type), n = m->place[item].n;

    for (int64_t k = 0; k < n; k++, p++) {
        if (p->first > at)
            return wf_err(WEFT_EPARSE, "'%.80s': elements %lld to %lld are in no piece", name,
                          (long long)at, (long long)p->first - 1);
        if (p->first < at)
            return wf_err(WEFT_EPARSE, "'%.80s': elements from %lld on are in two pieces", name,
                          (long long)p->first);
        if (p->count == 0 && n > 1)
            return wf_err(WEFT_EPARSE, "'%.80s': an empty piece at %lld", name, (long long)at);
        at += p->count;
    }
    if (at > count)
        return wf_err(WEFT_EPARSE, "'%.80s' has %lld elements, its pieces %lld", name,
                      (long long)count, (long long)at);
    if (n == 0)
        return wf_err(WEFT_EPARSE, "'%.80s' is in no piece", name);
    if (at < count)
        return wf_err(WEFT_EPARSE, "'%.80s': elements %lld to %lld are in no piece", name,
                      (long long)at, (long long)count - 1);
    return WEFT_OK;
}

static weft_status read_tensor(struct wf_manifest *m, const json_t *o, weft_ckpt_tensor *t,
                               struct wf_mf_place *place)
{
    const char *name = NULL, *section = NULL;
    weft_status st = wf_json_str(o, "name", &name);

    if (!st)
        st = wf_json_str(o, "section", &section);
    if (!st)
        st = copy_text(m, name, &t->name);
    if (!st)
        st = copy_text(m, section, &t->section);
    if (!st)
        st = read_type(o, &t->tensor);
    if (!st)
        st = read_pieces(m, o, &t->tensor, place);
    return name ? wf_err_wrap(st, "tensor '%.80s'", name) : st;
}

static weft_status read_blob(struct wf_manifest *m, const json_t *o, weft_ckpt_blob *b,
                             struct wf_mf_place *place)
{
    const char *name = NULL;
    struct wf_mf_piece *p;
    weft_status st = wf_json_str(o, "name", &name);

    if (!st)
        st = copy_text(m, name, &b->name);
    if (!st)
        st = wf_json_int(o, "bytes", 0, INT64_MAX, &b->bytes);
    if (!st) {
        *place = (struct wf_mf_place){m->n_pieces, 1};
        st = read_place(m, o, &p);
        p->count = b->bytes;
    }
    return name ? wf_err_wrap(st, "blob '%.80s'", name) : st;
}

/* Both lists share the names of the shards. */
static weft_status note_name(struct wf_map *names, const char *name)
{
    if (wf_map_get(names, name, NULL))
        return wf_err(WEFT_EPARSE, "'%.80s' is listed twice", name);
    return wf_map_put(names, name, 1);
}

/* Of all tensors. */
static size_t n_pieces(const json_t *tensors)
{
    size_t i, n = 0;
    json_t *o;

    json_array_foreach(tensors, i, o) n += n_listed(o);
    return n;
}

static weft_status read_items(struct wf_manifest *m, const json_t *root, struct wf_map *names)
{
    json_t *tensors = NULL, *blobs = NULL, *o;
    weft_ckpt_tensor *t = NULL;
    weft_ckpt_blob *b = NULL;
    size_t i, n = 0;
    weft_status st = wf_json_list(root, "tensors", &tensors);

    if (!st)
        st = wf_json_list(root, "blobs", &blobs);
    if (!st)
        st = room(m, n = json_array_size(tensors), sizeof *t, "tensors", &t);
    if (!st)
        st = room(m, json_array_size(blobs), sizeof *b, "blobs", &b);
    if (!st)
        st = room(m, n + json_array_size(blobs), sizeof *m->place, "tensors", &m->place);
    if (!st)
        st = room(m, n_pieces(tensors) + json_array_size(blobs), sizeof *m->piece, "pieces",
                  &m->piece);
    if (st)
        return st;
    json_array_foreach(tensors, i, o)
    {
        st = read_tensor(m, o, &t[i], &m->place[i]);
        if (!st)
            st = note_name(names, t[i].name);
        if (st)
            return st;
    }
    json_array_foreach(blobs, i, o)
    {
        st = read_blob(m, o, &b[i], &m->place[n + i]);
        if (!st)
            st = note_name(names, b[i].name);
        if (st)
            return st;
    }
    m->data.tensors = t;
    m->data.n_tensors = (int64_t)n;
    m->data.blobs = b;
    m->data.n_blobs = (int64_t)json_array_size(blobs);
    for (int64_t k = 0; k < m->data.n_tensors && !m->is_part; k++) {
        st = wf_manifest_covers(m, k);
        if (st)
            return st;
    }
    return WEFT_OK;
}

static weft_status read_numbers(struct wf_manifest *m, const json_t *root)
{
    weft_ckpt_data *d = &m->data;
    const char *library = NULL;
    weft_status st = wf_json_str(root, "library", &library);

    if (!st)
        st = copy_text(m, library, &m->library);
    if (!st)
        st = wf_json_int(root, "step", 0, INT64_MAX, &d->step);
    if (!st)
        st = wf_json_int(root, "epoch", 0, INT64_MAX, &d->epoch);
    if (!st)
        st = wf_json_int(root, "time_ns", 0, INT64_MAX, &d->time_ns);
    if (!st)
        st = wf_json_hex(root, "seed", &d->seed);
    return st ? st : wf_json_hex(root, "fingerprint", &d->fingerprint);
}

static weft_status check_version(const struct wf_manifest *m, const json_t *root)
{
    const char *format = NULL, *want = m->is_part ? PART_FORMAT : FORMAT;
    int64_t version = 0;
    weft_status st = wf_json_str(root, "format", &format);

    if (!st && strcmp(format, want))
        st = wf_err(WEFT_EPARSE, "\"format\" is '%.32s', not '%s'", format, want);
    if (!st)
        st = wf_json_int(root, "version", 1, INT64_MAX, &version);
    if (!st && version > VERSION)
        st = wf_err(WEFT_ENOSUP, "format version %lld; this library reads up to version %d",
                    (long long)version, VERSION);
    return st;
}

static weft_status check_seal(const char *text, int64_t n)
{
    char want[TAIL_BYTES + 1];

    if (n < TAIL_BYTES)
        return wf_err(WEFT_EPARSE, "%lld bytes: truncated", (long long)n);
    snprintf(want, sizeof want, ",\n  \"xxh64\": \"%016llx\"\n}\n",
             (unsigned long long)wf_xxh64(text, n - TAIL_BYTES));
    if (memcmp(text + n - TAIL_BYTES, want, (size_t)TAIL_BYTES))
        return wf_err(WEFT_EPARSE, "its own checksum does not match: truncated, damaged or edited");
    return WEFT_OK;
}

weft_status wf_manifest_parse(struct wf_manifest *m, const char *text, int64_t n)
{
    struct wf_map files, names;
    json_t *root = NULL;
    weft_status st = check_seal(text, n);

    wf_map_init(&files, m->mem.ctx);
    wf_map_init(&names, m->mem.ctx);
    if (!st)
        st = wf_json_parse(text, n, &root);
    if (!st)
        st = check_version(m, root);
    if (!st)
        st = read_numbers(m, root);
    if (!st)
        st = read_metrics(m, root);
    if (!st)
        st = read_meta(m, root);
    if (!st)
        st = read_files(m, root, &files);
    if (!st)
        st = read_items(m, root, &names);
    json_decref(root);
    wf_map_free(&files);
    wf_map_free(&names);
    if (st)
        wf_manifest_free(m);
    return st;
}
