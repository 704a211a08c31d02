/* tfrecord.c - the source of TFRecord files, as a stream or, with an index, addressable.
 *
 * Pull hops from length to length (each verified by its CRC before it is used); the CRC of the data
 * is verified when a promise is made, on any thread. Invariant: a record's bytes are in one chunk,
 * followed by the CRC of the data. */
#include "data/record/record.h"

struct param {
    struct wf_files files;
    weft_on_error on_error;
    int64_t max_record;
    struct wf_record_index *index; /* one per file, or NULL */
    int64_t *first;                /* with index: number of each file's first record, then of all */
    struct wf_reads reads;
};

/* ---- the content ----------------------------------------------------------------------------- */

static bool data_is_whole(const weft_str *r)
{
    return wf_crc_mask(wf_crc32c(0, r->data, r->n)) == wf_le32(r->data + r->n);
}

/* The first record from `i` on whose data does not match its CRC, or n. */
static int64_t find_bad(const weft_str *r, int64_t i, int64_t n)
{
    for (; i + 3 <= n; i += 3) {
        const void *p[3] = {r[i].data, r[i + 1].data, r[i + 2].data};
        const int64_t len[3] = {r[i].n, r[i + 1].n, r[i + 2].n};
        uint32_t crc[3] = {0};

        wf_crc32c_3(p, len, crc);
        for (int k = 0; k < 3; k++)
            if (wf_crc_mask(crc[k]) != wf_le32(r[i + k].data + r[i + k].n))
                return i + k;
    }
    for (; i < n; i++)
        if (!data_is_whole(&r[i]))
            return i;
    return n;
}

/* Verifies the data of all records; consumes b. Bad ones are an error, or skipped. */
static weft_status check(struct wf_ds *ds, struct wf_block *b, struct wf_block **out)
{
    const struct param *p = ds->param;
    const weft_str *r = b->col[0].data;
    int64_t bad = find_bad(r, 0, b->n), n_bad = 0;
    void *keep = NULL;
    weft_status st;

    if (bad == b->n) {
        *out = b;
        return WEFT_OK;
    }
    st = wf_err(WEFT_EDATA, "crc of the data does not match");
    if (!wf_may_skip(p->on_error, st)) {
        st = wf_block_err(b, bad, st);
        wf_block_free(b);
        return st;
    }
    st = wf_block_alloc(b, b->n, &keep);
    if (st) {
        wf_block_free(b);
        return st;
    }
    memset(keep, true, (size_t)b->n);
    for (; bad < b->n; bad = find_bad(r, bad + 1, b->n), n_bad++)
        ((bool *)keep)[bad] = false;
    atomic_fetch_add_explicit(&wf_stats_of(b->env, ds)->n_skipped, n_bad, memory_order_relaxed);
    return wf_block_filter(b, keep, out);
}

/* ---- as a stream ----------------------------------------------------------------------------- */

static weft_status tf_open(struct wf_stage *stage)
{
    const struct param *p = stage->ds->param;

    return wf_records_open(stage, &p->files, p->max_record + WF_RECORD_FRAME);
}

static weft_status bad_record(const struct wf_records *t, const char *what)
{
    return wf_err(WEFT_EDATA, "%s: record %lld (byte %lld): %s", t->s->path, (long long)t->record,
                  (long long)t->s->offset, what);
}

/* Brings the next record, complete, to the front of the window. */
static weft_status next_record(const void *param, const struct wf_records *t, struct wf_record *out)
{
    const struct param *p = param;
    int64_t *n = &out->n;
    struct wf_stream *s = t->s;
    weft_status st = wf_stream_need(s, WF_RECORD_FRAME);

    *out = (struct wf_record){WF_RECORD_HEAD, -1, WF_RECORD_FRAME - WF_RECORD_HEAD};
    if (st || !s->n)
        return st;
    if (s->n < WF_RECORD_FRAME)
        return bad_record(t, "truncated");
    if (!wf_record_head(s->p, n))
        return bad_record(t, "crc of the length does not match");
    if (*n < 0 || (s->size >= 0 && *n > s->size - s->offset - WF_RECORD_FRAME))
        return bad_record(t, "longer than the rest of the file");
    if (*n > p->max_record)
        return bad_record(t, "longer than max_record");
    st = wf_stream_need(s, *n + WF_RECORD_FRAME);
    if (st)
        return st;
    return s->n < *n + WF_RECORD_FRAME ? bad_record(t, "truncated") : WEFT_OK;
}

/* All in one function: of small records, calls would be a third of the work. */
__attribute__((flatten)) static weft_status pull_into(struct wf_stage *stage, struct wf_block *b,
                                                      int64_t want)
{
    const struct param *p = stage->ds->param;

    return wf_records_fill(stage, b, want, p->on_error, next_record);
}

static weft_status tf_pull(struct wf_stage *stage, int64_t want, struct wf_promise **out)
{
    return wf_records_pull(stage, want, pull_into, out);
}

static weft_status tf_make(struct wf_promise *promise, struct wf_worker *w, struct wf_block **out)
{
    struct wf_block *b = promise->data;

    (void)w;
    promise->data = NULL;
    return check(promise->stage->ds, b, out);
}

/* ---- with an index --------------------------------------------------------------------------- */

struct place {
    int64_t file, offset, n;
};

static struct place find(const struct param *p, int64_t id)
{
    struct place at = {.file = wf_records_file(p->first, p->files.n, id)};

    at.offset = wf_record_index_at(&p->index[at.file], id - p->first[at.file], &at.n);
    return at;
}

/* Reads the frames at all positions into `to`, adjacent ones in one read. */
static weft_status read_all(weft_ctx *ctx, const struct param *p, const struct place *at, int64_t n,
                            char *to)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0, j; i < n && !st; i = j) {
        int64_t bytes = at[i].n + WF_RECORD_FRAME;

        for (j = i + 1; j < n && at[j].file == at[i].file && at[j].offset == at[i].offset + bytes;
             j++)
            bytes += at[j].n + WF_RECORD_FRAME;
        st = wf_reads_at(ctx, &p->reads, at[i].file, at[i].offset, to, bytes);
        to += bytes;
    }
    return st;
}

static weft_status fill_block(struct wf_ds *ds, struct wf_block *b, const struct wf_at *at,
                              int64_t n, const struct place *place, char *data)
{
    const struct param *p = ds->param;
    weft_str *r = b->col[0].data;
    weft_status st = read_all(b->env->ctx, p, place, n, data);
    int64_t len;

    for (int64_t i = 0; i < n && !st; i++) {
        r[i] = (weft_str){data + WF_RECORD_HEAD, place[i].n};
        b->at[i] = at[i];
        b->from[i] = (struct wf_origin){p->files.path[place[i].file],
                                        at[i].id - p->first[place[i].file], place[i].offset};
        if (!wf_record_head(data, &len) || len != place[i].n)
            st = wf_block_err(b, i, wf_err(WEFT_EDATA, "its length differs from the index"));
        data += place[i].n + WF_RECORD_FRAME;
    }
    return st;
}

static weft_status tf_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                          struct wf_block **out)
{
    const struct param *p = ds->param;
    struct wf_type type = wf_type_of(WEFT_STR, 0, NULL);
    struct wf_chunk *scratch = wf_chunk_new(w->env, n * (int64_t)sizeof(struct place));
    struct place *place = scratch ? (void *)scratch->data : NULL;
    struct wf_block *b = NULL;
    void *data = NULL;
    int64_t bytes = 0;
    weft_status st = scratch ? wf_block_new(w->env, 1, n, &b)
                             : wf_env_nomem(w->env, n * (int64_t)sizeof *place, "tfrecord");

    if (!st)
        st = wf_block_col(b, 0, &type, n);
    if (!st)
        st = wf_block_origins(b);
    for (int64_t i = 0; i < n && !st; i++) {
        place[i] = find(p, at[i].id);
        bytes += place[i].n + WF_RECORD_FRAME;
        if (place[i].n > p->max_record)
            st = wf_err(WEFT_EDATA, "%s: record %lld: longer than max_record",
                        p->files.path[place[i].file],
                        (long long)(at[i].id - p->first[place[i].file]));
    }
    if (!st)
        st = wf_block_alloc(b, bytes, &data);
    if (!st)
        st = fill_block(ds, b, at, n, place, data);
    wf_chunk_unref(scratch);
    if (st) {
        wf_block_free(b);
        return st;
    }
    atomic_fetch_add_explicit(&wf_stats_of(w->env, ds)->n_bytes, bytes, memory_order_relaxed);
    return check(ds, b, out);
}

static void tf_free(struct wf_ds *ds)
{
    struct param *p = ds->param;
    weft_ctx *ctx = ds->data->ctx;

    for (int64_t i = 0; p->index && i < p->files.n; i++)
        wf_record_index_free(ctx, &p->index[i]);
    wf_reads_free(ctx, &p->reads);
}

static void tf_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct param *p = ds->param;

    wf_files_text(&p->files, out);
    if (p->index)
        wf_buf_printf(out, ", %lld records by index", (long long)ds->count);
    if (p->on_error == WEFT_ON_ERROR_SKIP)
        wf_buf_printf(out, ", bad ones skipped");
}

static const struct wf_ds_kind tf_stream_kind = {
    .name = "tfrecord",
    .open = tf_open,
    .close = wf_records_close,
    .reset = wf_records_reset,
    .pull = tf_pull,
    .make = tf_make,
    .drop = wf_records_drop,
    .save = wf_records_save,
    .restore = wf_records_restore,
    .text = tf_text,
    .file = wf_files_at,
};

static const struct wf_ds_kind tf_index_kind = {
    .name = "tfrecord",
    .get = tf_get,
    .free = tf_free,
    .text = tf_text,
    .file = wf_files_at,
};

/* ---- building -------------------------------------------------------------------------------- */

/* An index of a compressed file would have positions in content that cannot be read from there. */
static weft_status must_be_plain(weft_ctx *ctx, const struct param *p, int64_t file)
{
    struct wf_unpack *u;
    bool plain;
    weft_status st = wf_unpack_open(ctx, p->files.path[file], &p->files.opts, &u);

    if (st)
        return st;
    plain = u->how == WEFT_COMPRESSION_NONE && u->size >= 0;
    wf_unpack_close(u);
    return plain ? WEFT_OK
                 : wf_err(WEFT_ENOSUP, "%s: random access needs an uncompressed file",
                          p->files.path[file]);
}

static weft_status make_index(struct wf_ds *ds, const char *dir)
{
    struct param *p = ds->param;
    weft_ctx *ctx = ds->data->ctx;
    int64_t n = p->files.n;
    weft_status st = wf_reads_init(ds->data, &p->files, &p->reads);

    p->first = wf_arena_alloc(&ds->data->arena, (size_t)(n + 1) * sizeof *p->first);
    p->index = wf_arena_alloc(&ds->data->arena, (size_t)n * sizeof *p->index);
    if (st || !p->first || !p->index)
        return st ? st : wf_err_nomem(ctx, (size_t)n * sizeof *p->index, "index");
    for (int64_t i = 0; i < n && !st; i++) {
        st = must_be_plain(ctx, p, i);
        if (!st)
            st = wf_record_index_get(ctx, p->files.path[i], dir, p->max_record, &p->index[i]);
        p->first[i + 1] = p->first[i] + p->index[i].n;
        p->reads.size[i] = p->index[i].file_size;
    }
    ds->count = p->first[n];
    ds->addressable = true;
    return st;
}

weft_ds weft_ds_tfrecord(weft_data *d, const char *files, const weft_tfrecord_opts *opts)
{
    weft_tfrecord_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_tfrecord_opts");
    weft_column col;
    struct wf_files list;
    struct wf_ds *ds;
    struct param *p;

    if (st)
        return wf_ds_fail(d, "tfrecord", st);
    if (o.index && o.files.shuffle)
        return wf_ds_fail(d, "tfrecord",
                          wf_err(WEFT_EINVAL, "index and files.shuffle cannot be combined (with an "
                                              "index, weft_ds_shuffle_all shuffles records)"));
    if (o.index && o.on_error == WEFT_ON_ERROR_SKIP)
        return wf_ds_fail(d, "tfrecord",
                          wf_err(WEFT_EINVAL, "index and skipping bad records cannot be combined: "
                                              "every record number must exist"));
    ds = wf_ds_new(d, o.index ? &tf_index_kind : &tf_stream_kind, 0, NULL, sizeof *p);
    if (!ds)
        return wf_ds_handle(NULL);
    st = wf_files_find(d, files, &o.files, &list);
    if (st)
        return wf_ds_fail(d, "tfrecord", st);
    p = ds->param;
    p->files = list;
    p->on_error = o.on_error;
    p->max_record = o.max_record > 0 ? o.max_record : WF_RECORD_MAX;
    col = wf_column_of(o.column ? o.column : "record", WEFT_STR, 0, NULL);
    st = wf_ds_set_columns(ds, 1, &col);
    ds->count = WEFT_UNKNOWN;
    ds->reordered = o.files.shuffle;
    ds->inexact = p->on_error == WEFT_ON_ERROR_SKIP;
    if (!st && o.index)
        st = make_index(ds, o.index_dir);
    return st ? wf_ds_fail(d, "tfrecord", st) : wf_ds_handle(ds);
}
