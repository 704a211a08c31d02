/* files.h - lists of files, and files as streams of bytes: the basis of all file sources.
 *
 * A stream goes through a list of files in this epoch's order, unpacks what is compressed, and
 * shows a window: contiguous bytes in one chunk. Nothing is copied out of it: a record or line in
 * the window is kept by keeping the chunk. A pull typically reads like this:
 *
 *   for (;;) {
 *       st = wf_stream_need(s, HEAD);             // window: s->p[0 .. s->n)
 *       if (st)
 *           return st;
 *       if (!s->n) {                              // the file has ended, or none is open yet
 *           st = wf_stream_next_file(s, &more);
 *           if (st || !more)
 *               return st;
 *           continue;
 *       }
 *       if (s->n < HEAD)
 *           return wf_stream_err(s, "truncated"); // "part-0.tfrecord: byte 5312: truncated"
 *       ... read s->p; need again for a length; more while a delimiter is missing ...
 *       if (s->chunk != kept)                     // before a call that may move the window
 *           wf_block_keep(block, kept = s->chunk);
 *       wf_stream_take(s, n);                     // the window begins n bytes later
 *   }
 *
 * need and more may move the window into another chunk: keep positions relative to s->p across
 * them, not pointers. Bytes of a kept chunk that were once in a window never change again. One
 * thread at a time uses a stream. */
#ifndef WF_DATA_FILE_FILES_H
#define WF_DATA_FILE_FILES_H

#include "data/data.h"
#include "weft/data_file.h"

/* ---- lists ----------------------------------------------------------------------------------- */

struct wf_files {
    int64_t n;
    const char **path; /* in the order of patterns and names; in the pipeline's arena */
    weft_file_opts opts;
};

/* The files that `patterns` name (see weft/data_file.h). opts may be NULL. */
weft_status wf_files_find(weft_data *d, const char *patterns, const weft_file_opts *opts,
                          struct wf_files *out);
/* An error that says what to do unless it is a regular file: a pipe can be read only once and would
 * be empty the second time, and opening one may block forever. */
weft_status wf_file_check_plain(const char *path, const struct wf_file_info *info);
/* The list as text, for wf_ds_kind.text: the names, and the options that affect the order. */
void wf_files_text(const struct wf_files *f, struct wf_buf *out);

/* For wf_ds_kind.file of a node whose parameters begin with a list. */
const char *wf_files_at(const struct wf_ds *ds, int64_t i);

/* ---- one file, unpacked ---------------------------------------------------------------------- */

struct wf_unpack {
    const char *path;     /* borrowed */
    weft_compression how; /* detected or given; never AUTO */
    int64_t size;         /* bytes of the file on disk */
    int64_t n_in, n_out;  /* bytes read from the file, and returned */
    struct wf_unpack_inside *in;
};
/* opts may be NULL. WEFT_ENOSUP names the library that this build lacks. */
weft_status wf_unpack_open(weft_ctx *ctx, const char *path, const weft_file_opts *opts,
                           struct wf_unpack **out);
/* The next bytes, up to n; *got < n only at the end. Damage is an error that names the byte of the
 * file; what was read before stays valid. */
weft_status wf_unpack_read(struct wf_unpack *u, void *buf, int64_t n, int64_t *got);
/* Continues at this offset of the content; beyond the end: at the end. */
weft_status wf_unpack_seek(struct wf_unpack *u, int64_t offset);
void wf_unpack_close(struct wf_unpack *u); /* NULL is fine */

/* The first bytes of a file's content, at most max, for inspecting it when a source is built. *data
 * is NUL-terminated and freed with wf_free; *whole says whether that is all of it. */
weft_status wf_unpack_head(weft_ctx *ctx, const char *path, const weft_file_opts *opts, int64_t max,
                           char **data, int64_t *n, bool *whole);

/* ---- files read at any place (reads.c) ------------------------------------------------------- */

struct wf_reads {
    const struct wf_files *files;
    int64_t *size;   /* of each file when the pipeline was built: the owner fills it in */
    _Atomic int *fd; /* descriptor + 1, 0: not open yet; NULL if there are too many files */
};
/* Tables in the pipeline's arena; files is borrowed. */
weft_status wf_reads_init(weft_data *d, const struct wf_files *files, struct wf_reads *out);
/* n bytes at an offset of a file, exactly; from any thread. */
weft_status wf_reads_at(weft_ctx *ctx, const struct wf_reads *r, int64_t file, int64_t offset,
                        void *to, int64_t n);
void wf_reads_free(weft_ctx *ctx, struct wf_reads *r); /* closes; zeroed is fine */

/* ---- streams --------------------------------------------------------------------------------- */

#define WF_CHUNK_BYTES (1 << 20) /* per chunk, unless something longer must be contiguous */

struct wf_stream {
    /* The window and its position. Read these; only the calls below change them. */
    const char *p; /* the window: n bytes of the content, unpacked */
    int64_t n;
    struct wf_chunk *chunk; /* that contains it; the stream's reference. NULL while no file is
                             * open */
    bool ended;             /* the file has nothing after the window */
    int64_t offset;         /* of p in the unpacked content of the file */
    const char *path;       /* of the current file; lives as long as the pipeline */
    int64_t file;           /* its number in the list */
    int64_t size;           /* of an uncompressed file when it was opened; -1: compressed, or
                             * unknown */
    struct wf_stream_inside *in;
};

/* A stream over `files` (borrowed), before the first file of epoch 0. max_bytes: the longest window
 * allowed, beyond which need and more return WEFT_ELIMIT; 0: 1 GiB. Bytes read from disk are
 * counted in stats, if not NULL. */
weft_status wf_stream_open(struct wf_env *env, const struct wf_files *files, int64_t max_bytes,
                           struct wf_stats *stats, struct wf_stream **out);
void wf_stream_close(struct wf_stream *s); /* NULL is fine */

/* Back to before the first file, in the order of this epoch. */
void wf_stream_reset(struct wf_stream *s, int64_t epoch);
/* Closes the current file, whatever is left of it, and opens the next; *more is false past the
 * last. If opening a file fails, the stream stays before it: calling again tries again. */
weft_status wf_stream_next_file(struct wf_stream *s, bool *more);
/* Skips the rest of the current file; if none is open, as after an error opening it, the next
 * one. */
void wf_stream_pass_file(struct wf_stream *s);

/* Makes the window at least n bytes long, or as long as what is left of the file (then `ended`). It
 * may become longer. */
weft_status wf_stream_need_slow(struct wf_stream *s, int64_t n);
static inline weft_status wf_stream_need(struct wf_stream *s, int64_t n)
{
    return s->n >= n || s->ended ? WEFT_OK : wf_stream_need_slow(s, n);
}
/* Makes the window longer by at least one byte, or sets `ended`. The cost of repeated calls is
 * linear in the bytes seen. */
weft_status wf_stream_more(struct wf_stream *s);
/* Drops n <= s->n bytes at the front of the window. */
static inline void wf_stream_take(struct wf_stream *s, int64_t n)
{
    s->p += n;
    s->n -= n;
    s->offset += n;
}
/* Skips n bytes, also beyond the window (in an uncompressed file: without reading them). Fewer if
 * the file ends before. */
weft_status wf_stream_skip(struct wf_stream *s, int64_t n);

/* WEFT_EDATA if p[0..n), the beginning of a text or all of it, has lines that end in a carriage
 * return alone: no newline but carriage returns, one of them not the last byte. Those within quotes
 * (0: there are none) do not count. */
weft_status wf_text_check_ends(const char *path, const char *p, int64_t n, char quote);

/* WEFT_EDATA with "path: byte offset: text". */
weft_status wf_stream_err(const struct wf_stream *s, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* The position: epoch, which file of its order, and the offset in it. restore opens the file and
 * seeks there (if compressed, by unpacking up to there). */
void wf_stream_save(const struct wf_stream *s, struct wf_buf *out);
weft_status wf_stream_restore(struct wf_stream *s, struct wf_reader *r);

/* ---- sources of strings over a stream -------------------------------------------------------- */

#define WF_PULL_MAX 16384 /* strings per promise */

/* A block of one column of strings, filled by fill(stage, b, want), which sets b->n, b->at, b->from
 * and keeps the chunks. *out is NULL if there were none. */
typedef weft_status wf_fill_fn(struct wf_stage *stage, struct wf_block *b, int64_t want);
weft_status wf_stream_strings(struct wf_stage *stage, int64_t want, wf_fill_fn *fill,
                              struct wf_block **out);
/* Whether WEFT_ON_ERROR_SKIP covers this: damage and files that cannot be read, not memory or
 * limits. */
static inline bool wf_may_skip(weft_on_error policy, weft_status st)
{
    return policy == WEFT_ON_ERROR_SKIP &&
           (st == WEFT_EDATA || st == WEFT_EIO || st == WEFT_ENOENT);
}
/* Skips the rest of the current file (or the one that cannot be opened): logs the current error
 * text, and counts one. */
void wf_stream_give_up(struct wf_stage *stage, struct wf_stream *s);

/* ---- records in streams ---------------------------------------------------------------------- */

/* The position of a record source: the state of its stage, saved and restored the same way by all
 * of them. */
struct wf_records {
    struct wf_stream *s;
    int64_t epoch, id; /* of the next record, counted over all files of the pass */
    int64_t record;    /* in its file */
};
weft_status wf_records_open(struct wf_stage *stage, const struct wf_files *files,
                            int64_t max_bytes);
void wf_records_close(struct wf_stage *stage);
weft_status wf_records_reset(struct wf_stage *stage, int64_t epoch);
/* A promise of strings whose block is its data; what makes it true takes the block over. NULL at
 * the end. */
weft_status wf_records_pull(struct wf_stage *stage, int64_t want, wf_fill_fn *fill,
                            struct wf_promise **out);
void wf_records_drop(struct wf_promise *promise);
/* The next record is at the front of the window: `head` bytes, its own n, `tail` bytes. n < 0: the
 * file has no more. */
struct wf_record {
    int64_t head, n, tail;
};
typedef weft_status wf_record_fn(const void *param, const struct wf_records *t,
                                 struct wf_record *out);
/* Fills b with up to `want` records as `next` finds them, from one file after the other. What came
 * before an error is returned first; the next call meets it again. Inline: this is all that happens
 * to a small record. */
static inline weft_status wf_records_fill(struct wf_stage *stage, struct wf_block *b, int64_t want,
                                          weft_on_error on_error, wf_record_fn *next)
{
    struct wf_records *t = stage->state;
    struct wf_stream *s = t->s;
    struct wf_chunk *kept = NULL;
    weft_str *text = b->col[0].data;
    struct wf_record r;
    bool more = true;
    weft_status st = WEFT_OK;

    for (b->n = 0; b->n < want && more && !st;) {
        st = next(stage->ds->param, t, &r);
        if (!st && r.n < 0) {
            st = wf_stream_next_file(s, &more);
            t->record = 0;
        } else if (!st) {
            if (s->chunk != kept)
                st = wf_block_keep(b, kept = s->chunk);
            text[b->n] = (weft_str){s->p + r.head, r.n};
            b->at[b->n] = (struct wf_at){t->epoch, t->id++};
            b->from[b->n++] = (struct wf_origin){s->path, t->record++, s->offset};
            wf_stream_take(s, r.head + r.n + r.tail);
            continue;
        }
        if (st && b->n)
            return WEFT_OK;
        if (wf_may_skip(on_error, st)) {
            wf_stream_give_up(stage, s);
            st = WEFT_OK;
        }
    }
    return st;
}
/* Which of n files holds record id, by the number of the first record of each. */
int64_t wf_records_file(const int64_t *first, int64_t n, int64_t id);
weft_status wf_records_save(struct wf_stage *stage, struct wf_buf *out);
weft_status wf_records_restore(struct wf_stage *stage, struct wf_reader *r);

#endif
