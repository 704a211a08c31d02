/* fixed.c - the source of records of a fixed length: bytes, or numbers of either byte order.
 *
 * Uncompressed files are addressable: the position of record i follows from the sizes of the files.
 * Compressed ones are a stream; pull splits it, decoding happens when the promise is made. */
#include "data/file/files.h"
#include "weft/data_record.h"

struct param {
    struct wf_files files;
    weft_on_error on_error;
    int64_t bytes, header, footer;
    struct wf_type type; /* of the column */
    int swap;            /* bytes of an item to reverse, 0: none */
    int64_t *first;      /* if addressable: number of each file's first record, then of all */
    struct wf_reads reads;
};

/* ---- the content ----------------------------------------------------------------------------- */

static void turn_round(char *p, int64_t n_bytes, int item)
{
    for (int64_t i = 0; i < n_bytes; i += item)
        for (int k = 0; k < item / 2; k++) {
            char c = p[i + k];

            p[i + k] = p[i + item - 1 - k];
            p[i + item - 1 - k] = c;
        }
}

/* Bools must be 0 or 1, whatever the file contains. */
static void finish(const struct param *p, char *data, int64_t n)
{
    if (p->swap)
        turn_round(data, n * p->bytes, p->swap);
    for (int64_t i = 0; i < n * p->bytes && p->type.dtype == WEFT_BOOL; i++)
        data[i] = data[i] != 0;
}

/* A column of n numbers from records at the positions in `text`; consumes in. */
static weft_status decode(struct wf_ds *ds, struct wf_block *in, struct wf_block **out)
{
    const struct param *p = ds->param;
    const weft_str *text = in->col[0].data;
    struct wf_block *b = NULL;
    weft_status st;

    if (p->type.dtype == WEFT_STR) {
        *out = in;
        return WEFT_OK;
    }
    st = wf_block_new(in->env, 1, in->n, &b);
    if (!st)
        st = wf_block_col(b, 0, &p->type, 0);
    if (!st)
        st = wf_block_origins(b);
    if (!st) {
        char *to = b->col[0].data;

        memcpy(b->at, in->at, (size_t)in->n * sizeof *b->at);
        memcpy(b->from, in->from, (size_t)in->n * sizeof *b->from);
        for (int64_t i = 0; i < in->n; i++)
            memcpy(to + i * p->bytes, text[i].data, (size_t)p->bytes);
        finish(p, to, in->n);
    }
    wf_block_free(in);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

/* ---- as a stream ----------------------------------------------------------------------------- */

static weft_status fixed_open(struct wf_stage *stage)
{
    const struct param *p = stage->ds->param;

    return wf_records_open(stage, &p->files, p->bytes + p->footer + 1);
}

static weft_status skip_header(const struct param *p, struct wf_stream *s)
{
    weft_status st = wf_stream_skip(s, p->header - s->offset);

    if (!st && s->offset < p->header)
        st = wf_stream_err(s, "ends inside its header of %lld bytes", (long long)p->header);
    return st;
}

/* Whether a whole record is at the front of the window, followed by the footer. */
static weft_status next_record(const void *param, const struct wf_records *t, struct wf_record *out)
{
    const struct param *p = param;
    struct wf_stream *s = t->s;
    weft_status st = s->path && s->offset < p->header ? skip_header(p, s) : WEFT_OK;

    if (!st)
        st = wf_stream_need(s, p->bytes + p->footer);
    *out = (struct wf_record){0, !st && s->n >= p->bytes + p->footer ? p->bytes : -1, 0};
    if (st || out->n >= 0 || !s->path || s->n == p->footer)
        return st;
    return wf_err(WEFT_EDATA, "%s: record %lld (byte %lld): truncated: %lld bytes of %lld", s->path,
                  (long long)t->record, (long long)s->offset,
                  (long long)wf_max_i64(s->n - p->footer, 0), (long long)p->bytes);
}

static weft_status pull_into(struct wf_stage *stage, struct wf_block *b, int64_t want)
{
    const struct param *p = stage->ds->param;

    return wf_records_fill(stage, b, want, p->on_error, next_record);
}

/* Large records: a promise of a few chunks. */
static weft_status fixed_pull(struct wf_stage *stage, int64_t want, struct wf_promise **out)
{
    const struct param *p = stage->ds->param;

    want = wf_min_i64(want, wf_max_i64(1, 4 * WF_CHUNK_BYTES / p->bytes));
    return wf_records_pull(stage, want, pull_into, out);
}

static weft_status fixed_make(struct wf_promise *promise, struct wf_worker *w,
                              struct wf_block **out)
{
    struct wf_block *b = promise->data;

    (void)w;
    promise->data = NULL;
    return decode(promise->stage->ds, b, out);
}

/* ---- at any place ---------------------------------------------------------------------------- */

/* Read the records of these numbers one after the other, neighbors in one read. */
static weft_status read_all(struct wf_block *b, const struct param *p, const struct wf_at *at,
                            int64_t n, char *to)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0, j; i < n && !st; i = j) {
        int64_t file = wf_records_file(p->first, p->files.n, at[i].id),
                record = at[i].id - p->first[file];
        int64_t offset = p->header + record * p->bytes;

        for (j = i; j < n && at[j].id == at[i].id + (j - i) && at[j].id < p->first[file + 1]; j++) {
            b->at[j] = at[j];
            b->from[j] = (struct wf_origin){p->files.path[file], record + (j - i),
                                            offset + (j - i) * p->bytes};
        }
        st = wf_reads_at(b->env->ctx, &p->reads, file, offset, to + i * p->bytes,
                         (j - i) * p->bytes);
    }
    return st;
}

static weft_status fixed_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                             int64_t n, struct wf_block **out)
{
    const struct param *p = ds->param;
    bool text = p->type.dtype == WEFT_STR;
    struct wf_block *b = NULL;
    void *data = NULL;
    int64_t bytes;
    weft_status st = wf_block_new(w->env, 1, n, &b);

    if (!st)
        st = wf_block_col(b, 0, &p->type, 0);
    if (!st)
        st = wf_block_origins(b);
    if (!st && !wf_mul_i64(n, p->bytes, &bytes))
        st = wf_err(WEFT_ERANGE, "%lld records of %lld bytes", (long long)n, (long long)p->bytes);
    if (!st && text)
        st = wf_block_alloc(b, bytes, &data);
    if (!st)
        st = read_all(b, p, at, n, text ? data : b->col[0].data);
    if (st) {
        wf_block_free(b);
        return st;
    }
    for (int64_t i = 0; i < n && text; i++)
        ((weft_str *)b->col[0].data)[i] = (weft_str){(char *)data + i * p->bytes, p->bytes};
    if (!text)
        finish(p, b->col[0].data, n);
    atomic_fetch_add_explicit(&wf_stats_of(w->env, ds)->n_bytes, bytes, memory_order_relaxed);
    *out = b;
    return WEFT_OK;
}

static void fixed_free(struct wf_ds *ds)
{
    struct param *p = ds->param;

    wf_reads_free(ds->data->ctx, &p->reads);
}

static void fixed_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct param *p = ds->param;
    char type[WF_TYPE_TEXT];

    wf_files_text(&p->files, out);
    wf_buf_printf(out, ", %lld bytes", (long long)p->bytes);
    if (p->header || p->footer)
        wf_buf_printf(out, " between %lld and %lld", (long long)p->header, (long long)p->footer);
    if (p->type.dtype != WEFT_STR)
        wf_buf_printf(out, " as %s%s", p->swap ? "big-endian " : "", wf_type_text(&p->type, type));
    if (p->on_error == WEFT_ON_ERROR_SKIP)
        wf_buf_printf(out, ", torn ends skipped");
}

static const struct wf_ds_kind fixed_stream_kind = {
    .name = "fixed",
    .open = fixed_open,
    .close = wf_records_close,
    .reset = wf_records_reset,
    .pull = fixed_pull,
    .make = fixed_make,
    .drop = wf_records_drop,
    .save = wf_records_save,
    .restore = wf_records_restore,
    .text = fixed_text,
    .file = wf_files_at,
};

static const struct wf_ds_kind fixed_get_kind = {
    .name = "fixed",
    .get = fixed_get,
    .free = fixed_free,
    .text = fixed_text,
    .file = wf_files_at,
};

/* ---- building -------------------------------------------------------------------------------- */

/* The format of a record. */
static weft_status plan(struct param *p, int64_t record_bytes, const weft_fixed_opts *o)
{
    int64_t item = 1, count;

    p->type = wf_type_of(WEFT_STR, 0, NULL);
    if (o->dtype != WEFT_NONE) {
        if (o->rank < 0 || o->rank > WEFT_MAX_RANK || o->dtype < 0 || o->dtype >= WEFT_N_DTYPES)
            return wf_err(WEFT_EDTYPE, "dtype %d, rank %d", (int)o->dtype, o->rank);
        p->type = wf_type_of(o->dtype, o->rank, o->dim);
        item = weft_dtype_size(o->dtype);
        count = wf_type_bytes(&p->type);
        if (count < 1 || (record_bytes && record_bytes != count))
            return wf_err(WEFT_ESHAPE, "records of %lld bytes do not match tensors of %lld bytes",
                          (long long)record_bytes, (long long)count);
        record_bytes = count;
    }
    if (record_bytes < 1 || record_bytes > (int64_t)1 << 40 || o->header < 0 || o->footer < 0 ||
        o->header > (int64_t)1 << 40 || o->footer > (int64_t)1 << 40)
        return wf_err(WEFT_EINVAL, "records of %lld bytes between %lld and %lld",
                      (long long)record_bytes, (long long)o->header, (long long)o->footer);
    p->swap = o->big_endian && item > 1 ? (int)item : 0;
    p->bytes = record_bytes;
    p->header = o->header;
    p->footer = o->footer;
    p->on_error = o->on_error;
    return WEFT_OK;
}

/* Inspects one file: its size, and whether records in it can be read at any offset. */
static weft_status look(weft_ctx *ctx, const struct wf_files *files, int64_t i, int64_t *size)
{
    struct wf_unpack *u;
    weft_status st = wf_unpack_open(ctx, files->path[i], &files->opts, &u);

    if (st)
        return st;
    *size = u->how == WEFT_COMPRESSION_NONE ? u->size : -1;
    wf_unpack_close(u);
    return WEFT_OK;
}

/* Counts the records of all files, if they are uncompressed; *all says so. */
static weft_status count(struct wf_ds *ds, bool *all)
{
    struct param *p = ds->param;
    weft_ctx *ctx = ds->data->ctx;
    weft_status st = wf_reads_init(ds->data, &p->files, &p->reads);

    p->first = wf_arena_alloc(&ds->data->arena, (size_t)(p->files.n + 1) * sizeof *p->first);
    if (!st && !p->first)
        st = wf_err_nomem(ctx, (size_t)p->files.n * 8, "list of files");
    *all = true;
    for (int64_t i = 0; i < p->files.n && *all && !st; i++) {
        int64_t body;

        st = look(ctx, &p->files, i, &p->reads.size[i]);
        if (st)
            break;
        *all = p->reads.size[i] >= 0;
        body = p->reads.size[i] - p->header - p->footer;
        if (*all && (body < 0 || body % p->bytes) && p->on_error == WEFT_ON_ERROR_STOP)
            st = wf_err(WEFT_EDATA,
                        "%s: %lld bytes are not a whole number of records of %lld bytes (header "
                        "%lld, footer %lld)",
                        p->files.path[i], (long long)p->reads.size[i], (long long)p->bytes,
                        (long long)p->header, (long long)p->footer);
        p->first[i + 1] = p->first[i] + wf_max_i64(body, 0) / p->bytes;
    }
    return st;
}

weft_ds weft_ds_fixed(weft_data *d, const char *files, int64_t record_bytes,
                      const weft_fixed_opts *opts)
{
    weft_fixed_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_fixed_opts");
    struct wf_ds *ds = st ? NULL : wf_ds_new(d, &fixed_get_kind, 0, NULL, sizeof(struct param));
    struct param *p;
    weft_column col;
    bool plain = false;

    if (!ds)
        return st ? wf_ds_fail(d, "fixed", st) : wf_ds_handle(NULL);
    p = ds->param;
    st = plan(p, record_bytes, &o);
    if (!st)
        st = wf_files_find(d, files, &o.files, &p->files);
    if (!st)
        st = count(ds, &plain);
    if (st)
        return wf_ds_fail(d, "fixed", st);
    col = wf_column_of(o.column                    ? o.column
                       : p->type.dtype == WEFT_STR ? "record"
                                                   : "value",
                       p->type.dtype, p->type.rank, p->type.dim);
    st = wf_ds_set_columns(ds, 1, &col);
    if (st)
        return wf_ds_fail(d, "fixed", st);
    ds->addressable = plain && !o.files.shuffle;
    ds->reordered = o.files.shuffle;
    ds->count = ds->addressable ? p->first[p->files.n] : WEFT_UNKNOWN;
    if (!ds->addressable)
        ds->kind = &fixed_stream_kind;
    return wf_ds_handle(ds);
}
