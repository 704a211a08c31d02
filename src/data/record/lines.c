/* lines.c - the source of lines of text.
 *
 * Finding the line ends is all the work, so pull does it, and a promise is already fulfilled when
 * it is returned. A line is a view of the chunk it was read into. */
#include "data/file/files.h"
#include "weft/data_record.h"

#define MAX_LINE (16ll << 20)

struct param {
    struct wf_files files;
    weft_on_error on_error;
    bool skip_empty;
    const char *comment;
    int64_t comment_n, header, max_line;
};

/* Room for a line of the greatest length, and for telling that it is longer. */
static weft_status lines_open(struct wf_stage *stage)
{
    const struct param *p = stage->ds->param;

    return wf_records_open(stage, &p->files, p->max_line + 16);
}

static weft_status too_long(const struct param *p, const struct wf_records *t)
{
    return wf_err(WEFT_EDATA, "%s: line %lld (byte %lld): longer than %lld bytes (max_line)",
                  t->s->path, (long long)t->record + 1, (long long)t->s->offset,
                  (long long)p->max_line);
}

/* Brings the next line to the front of the window: n bytes of text, `all` including its end. *all
 * is 0 at the end of the file. */
static weft_status next_line(const struct param *p, struct wf_records *t, int64_t *n, int64_t *all)
{
    struct wf_stream *s = t->s;
    int64_t seen = 0;
    weft_status st = wf_stream_need(s, 1);

    *all = 0;
    if (st || !s->n)
        return st;
    for (;;) {
        const char *lf = memchr(s->p + seen, '\n', (size_t)(s->n - seen));

        if (!lf && s->ended && !t->record) {
            st = wf_text_check_ends(s->path, s->p, s->n, 0);
            if (st)
                return st;
        }
        if (lf || s->ended) {
            *n = lf ? lf - s->p : s->n;
            *all = *n + (lf != NULL);
            break;
        }
        seen = s->n;
        if (seen > p->max_line + 1)
            return too_long(p, t);
        st = wf_stream_more(s);
        if (st)
            return st;
    }
    if (*n && s->p[*n - 1] == '\r')
        --*n;
    return *n > p->max_line ? too_long(p, t) : WEFT_OK;
}

/* Skips past the end of a line of any length. */
static weft_status pass_line(struct wf_stream *s)
{
    for (;;) {
        const char *lf;
        weft_status st = wf_stream_need(s, 1);

        if (st || !s->n)
            return st;
        lf = memchr(s->p, '\n', (size_t)s->n);
        wf_stream_take(s, lf ? lf - s->p + 1 : s->n);
        if (lf)
            return WEFT_OK;
    }
}

static bool wanted(const struct param *p, int64_t line, const char *text, int64_t n)
{
    if (line < p->header || (p->skip_empty && !n))
        return false;
    return !p->comment_n || n < p->comment_n || memcmp(text, p->comment, (size_t)p->comment_n) != 0;
}

/* After `st`: skips the line, or the file, if that is the policy. */
static weft_status give_up(struct wf_stage *stage, weft_status st)
{
    const struct param *p = stage->ds->param;
    struct wf_records *t = stage->state;

    if (!wf_may_skip(p->on_error, st))
        return st;
    if (st == WEFT_EDATA && t->s->n > p->max_line) {
        atomic_fetch_add_explicit(&wf_stats_of(stage->env, stage->ds)->n_skipped, 1,
                                  memory_order_relaxed);
        t->record++;
        st = pass_line(t->s);
        if (!wf_may_skip(p->on_error, st))
            return st;
    }
    wf_stream_give_up(stage, t->s);
    return WEFT_OK;
}

static weft_status skip_mark(struct wf_stream *s)
{
    weft_status st = wf_stream_need(s, 3);

    if (!st && s->n >= 3 && !memcmp(s->p, "\xef\xbb\xbf", 3))
        wf_stream_take(s, 3);
    return st;
}

static weft_status pull_into(struct wf_stage *stage, struct wf_block *b, int64_t want)
{
    const struct param *p = stage->ds->param;
    struct wf_records *t = stage->state;
    struct wf_stream *s = t->s;
    struct wf_chunk *kept = NULL;
    weft_str *text = b->col[0].data;
    int64_t n, all;
    bool more = true;
    weft_status st = WEFT_OK;

    for (b->n = 0; b->n < want && more && !st;) {
        st = next_line(p, t, &n, &all);
        if (!st && !all) {
            st = wf_stream_next_file(s, &more);
            t->record = 0;
            if (!st && more)
                st = skip_mark(s);
        } else if (!st) {
            if (wanted(p, t->record, s->p, n)) {
                if (s->chunk != kept)
                    st = wf_block_keep(b, kept = s->chunk);
                text[b->n] = (weft_str){s->p, n};
                b->at[b->n] = (struct wf_at){t->epoch, t->id++};
                b->from[b->n++] = (struct wf_origin){s->path, t->record, s->offset};
            }
            t->record++;
            wf_stream_take(s, all);
            continue;
        }
        if (st && b->n)
            return WEFT_OK;
        if (st)
            st = give_up(stage, st);
    }
    return st;
}

static weft_status lines_pull(struct wf_stage *stage, int64_t want, struct wf_promise **out)
{
    struct wf_block *b;
    weft_status st = wf_stream_strings(stage, want, pull_into, &b);

    *out = NULL;
    if (st || !b)
        return st;
    *out = wf_promise_made(stage, b);
    return *out ? WEFT_OK : wf_env_nomem(stage->env, sizeof **out, "lines");
}

static void lines_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct param *p = ds->param;

    wf_files_text(&p->files, out);
    if (p->skip_empty)
        wf_buf_printf(out, ", no empty ones");
    if (p->comment_n)
        wf_buf_printf(out, ", comments begin with %s", p->comment);
    if (p->header)
        wf_buf_printf(out, ", %lld of header", (long long)p->header);
    if (p->on_error == WEFT_ON_ERROR_SKIP)
        wf_buf_printf(out, ", long ones skipped");
}

static const struct wf_ds_kind lines_kind = {
    .name = "lines",
    .open = lines_open,
    .close = wf_records_close,
    .reset = wf_records_reset,
    .pull = lines_pull,
    .save = wf_records_save,
    .restore = wf_records_restore,
    .text = lines_text,
    .file = wf_files_at,
};

weft_ds weft_ds_lines(weft_data *d, const char *files, const weft_lines_opts *opts)
{
    weft_lines_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_lines_opts");
    struct wf_ds *ds = st ? NULL : wf_ds_new(d, &lines_kind, 0, NULL, sizeof(struct param));
    struct param *p;
    weft_column col;

    if (!ds)
        return st ? wf_ds_fail(d, "lines", st) : wf_ds_handle(NULL);
    p = ds->param;
    if (o.header < 0 || o.max_line < 0 || o.max_line > INT64_MAX / 4)
        st = wf_err(WEFT_EINVAL, "header %lld, max_line %lld", (long long)o.header,
                    (long long)o.max_line);
    if (!st)
        st = wf_files_find(d, files, &o.files, &p->files);
    if (!st && o.comment) {
        p->comment = wf_arena_strdup(&d->arena, o.comment);
        p->comment_n = (int64_t)strlen(o.comment);
        if (!p->comment)
            st = wf_err_nomem(d->ctx, strlen(o.comment), "lines");
    }
    p->on_error = o.on_error;
    p->skip_empty = o.skip_empty;
    p->header = o.header;
    p->max_line = o.max_line ? o.max_line : MAX_LINE;
    col = wf_column_of(o.column ? o.column : "line", WEFT_STR, 0, NULL);
    if (!st)
        st = wf_ds_set_columns(ds, 1, &col);
    ds->count = WEFT_UNKNOWN;
    ds->reordered = o.files.shuffle;
    return st ? wf_ds_fail(d, "lines", st) : wf_ds_handle(ds);
}
