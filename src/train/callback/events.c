/* events.c - event files. Field numbers are those of event.proto, summary.proto, tensor.proto and
 * the plugins' messages. A value is a tensor with the name of the plugin that shows it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "ckpt/ckpt.h"
#include "data/data.h"
#include "data/record/record.h"
#include "train/callback/events.h"
#include "train/callback/proto.h"

#define MAX_EVENT ((int64_t)256 << 20)
#define MAX_TAIL ((int64_t)64 << 10)
#define MAX_COPY ((int64_t)256 << 20)
#define BUCKETS 30

enum {
    EVENT_WALL = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,
    EVENT_SOURCE = 10
};
enum { VALUE_TAG = 1, VALUE_TENSOR = 8, VALUE_METADATA };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_FLOAT = 5, TENSOR_DOUBLE, TENSOR_STRING = 8 };
enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_STRING = 7 };
enum { CLASS_SCALAR = 1, CLASS_TENSOR, CLASS_BLOBS };
enum { SESSION_STARTED = 1 };
enum { HPARAMS_EXPERIMENT = 2, HPARAMS_START, HPARAMS_END };
enum { HPARAM_TEXT = 1, HPARAM_NUMBER = 3 };

double wf_wall(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- events ---------------------------------------------------------------------------------- */

void wf_event_begin(struct wf_events *e, int64_t step)
{
    e->event.len = 0;
    wf_pb_double(&e->event, EVENT_WALL, e->wall());
    if (step)
        wf_pb_int(&e->event, EVENT_STEP, step);
}

static void add_to_tail(struct wf_events *e)
{
    if (e->tail_from < 0)
        return;
    wf_put_bytes(&e->tail, e->event.data, e->event.len);
    if (e->tail.st) { /* too much, or no memory: what is in the file cannot be written again */
        wf_buf_free(&e->tail);
        e->tail_from = -1;
    }
}

void wf_events_mark(struct wf_events *e)
{
    e->tail.len = 0;
    e->tail.st = WEFT_OK;
    e->tail_from = e->bytes;
}

weft_status wf_event_write(struct wf_events *e)
{
    weft_status st = e->event.st;

    if (st)
        return wf_err(st, "an event: out of memory, or larger than %lld bytes",
                      (long long)MAX_EVENT);
    st = weft_record_writer_add(e->file, e->event.data, e->event.len);
    if (st)
        return st;
    add_to_tail(e);
    e->bytes += e->event.len + WF_RECORD_FRAME;
    return WEFT_OK;
}

weft_status wf_events_open(struct wf_events *e, weft_ctx *ctx, const char *path,
                           double (*wall)(void))
{
    char dir[WF_CKPT_PATH];
    char *slash;
    int64_t at;
    weft_status st = WEFT_OK;

    *e = (struct wf_events){.ctx = ctx, .wall = wall};
    wf_buf_init(&e->event, ctx, MAX_EVENT);
    wf_buf_init(&e->tail, ctx, MAX_TAIL);
    if (snprintf(dir, sizeof dir, "%s", path) >= (int)sizeof dir)
        return wf_err(WEFT_EINVAL, "'%s' is too long", path);
    slash = strrchr(dir, '/');
    if (slash && slash != dir) {
        *slash = 0;
        st = wf_ckpt_make_dir(ctx, dir);
    }
    if (!st)
        st = weft_record_writer_new(ctx, path, NULL, &e->file);
    if (st)
        return st;
    wf_event_begin(e, 0);
    wf_pb_text(&e->event, EVENT_VERSION, "brain.Event:2");
    at = wf_pb_open(&e->event, EVENT_SOURCE);
    wf_pb_text(&e->event, 1, "weft");
    wf_pb_close(&e->event, at);
    return wf_event_write(e);
}

weft_status wf_events_flush(struct wf_events *e)
{
    return e->file ? weft_record_writer_flush(e->file, false) : WEFT_OK;
}

weft_status wf_events_close(struct wf_events *e)
{
    weft_status st = weft_record_writer_close(e->file);

    e->file = NULL;
    if (e->ctx) {
        wf_buf_free(&e->event);
        wf_buf_free(&e->tail);
    }
    return st;
}

/* ---- files that were cut off, or that others may write to ------------------------------------ */

/* The first `bytes` of the open file, as another file at its path. */
static weft_status copy_begin(weft_ctx *ctx, int fd, const char *path, int64_t bytes)
{
    enum { PART = 1 << 20 };
    const struct wf_fs *fs = ctx->fs;
    struct wf_newfile f;
    char *part = wf_alloc(ctx, PART);
    weft_status st = part ? wf_newfile_open(&f, ctx, path) : wf_err_nomem(ctx, PART, path);

    if (!st) {
        for (int64_t at = 0, n = 1; at < bytes && !st; at += n) {
            n = fs->pread(fs->arg, fd, part, wf_min_i64(PART, bytes - at), at);
            if (n <= 0) {
                st = wf_file_err(n ? n : -EIO, path, "cannot read");
                break;
            }
            for (int64_t put = 0, k; put < n && !st; put += k) {
                k = fs->write(fs->arg, f.fd, part + put, n - put);
                if (k <= 0)
                    st = wf_file_err(k ? k : -ENOSPC, path, "cannot write");
            }
        }
        st = wf_newfile_close(&f, st, false);
    }
    wf_free(ctx, part);
    return st;
}

/* Without room for a copy, the file itself. */
static weft_status cut_at(weft_ctx *ctx, int fd, const char *path, int64_t size, int64_t bytes,
                          bool apart)
{
    int64_t rc = 0;

    if (apart && bytes <= MAX_COPY && copy_begin(ctx, fd, path, bytes) == WEFT_OK)
        return WEFT_OK;
    if (size > bytes)
        rc = ctx->fs->truncate(ctx->fs->arg, fd, bytes);
    return rc < 0 ? wf_file_err(rc, path, "cannot truncate") : WEFT_OK;
}

static weft_status add_tail(weft_ctx *ctx, const char *path, const struct wf_events_end *end)
{
    struct wf_reader in = {end->tail, end->tail + end->n_tail, WEFT_OK};
    weft_record_writer *w = NULL;
    weft_status st =
        weft_record_writer_new(ctx, path, WEFT_OPTS(weft_record_writer_opts, .append = true), &w);
    weft_status closed;

    while (!st && in.p < in.end) {
        int64_t n;
        const char *event = wf_get_bytes(&in, &n);

        st = in.st ? in.st : weft_record_writer_add(w, event, n);
    }
    closed = weft_record_writer_close(w);
    return st ? st : closed;
}

weft_status wf_events_settle(weft_ctx *ctx, const char *path, const struct wf_events_end *end,
                             bool apart, bool *lost)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = fs->open(fs->arg, path, O_RDWR | O_NOFOLLOW, 0);
    int64_t size = fd;
    bool again;
    weft_status st = WEFT_OK;

    *lost = false;
    if (fd == -ELOOP || (fd == -ENOTDIR) || (fd == -ENOENT && end->from != 0))
        return WEFT_OK;
    if (fd >= 0)
        size = fs->size(fs->arg, fd);
    else if (fd == -ENOENT)
        size = 0;
    if (size < 0)
        st = wf_file_err(size, path, "cannot truncate");
    again = size < end->bytes && end->from >= 0 && end->from <= size;
    *lost = !st && size < end->bytes && !again;
    if (!st && fd >= 0 && !*lost)
        st = cut_at(ctx, fd, path, size, again ? end->from : end->bytes, apart);
    if (fd >= 0)
        fs->close(fs->arg, fd);
    return !st && again ? add_tail(ctx, path, end) : st;
}

weft_status wf_events_start(struct wf_events *e, int64_t step)
{
    int64_t at;

    wf_event_begin(e, step);
    at = wf_pb_open(&e->event, EVENT_SESSION);
    wf_pb_int(&e->event, 1, SESSION_STARTED);
    wf_pb_close(&e->event, at);
    return wf_event_write(e);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Starts an event with one value; the tensor's data is still to be added. */
struct value {
    int64_t summary, value, tensor;
};

static struct value begin_value(struct wf_events *e, int64_t step, const char *tag, int dtype,
                                int rank, const int64_t *dim)
{
    struct wf_buf *b = &e->event;
    struct value v;
    int64_t shape;

    wf_event_begin(e, step);
    v.summary = wf_pb_open(b, EVENT_SUMMARY);
    v.value = wf_pb_open(b, 1);
    wf_pb_text(b, VALUE_TAG, tag);
    v.tensor = wf_pb_open(b, VALUE_TENSOR);
    wf_pb_int(b, TENSOR_DTYPE, dtype);
    shape = wf_pb_open(b, TENSOR_SHAPE);
    for (int i = 0; i < rank; i++) {
        int64_t d = wf_pb_open(b, 2);

        if (dim[i])
            wf_pb_int(b, 1, dim[i]);
        wf_pb_close(b, d);
    }
    wf_pb_close(b, shape);
    return v;
}

/* content: a plugin-specific message, or NULL */
static weft_status end_value(struct wf_events *e, struct value v, const char *plugin, int class,
                             const struct wf_buf *content)
{
    struct wf_buf *b = &e->event;
    int64_t meta, data;

    wf_pb_close(b, v.tensor);
    meta = wf_pb_open(b, VALUE_METADATA);
    data = wf_pb_open(b, 1);
    wf_pb_text(b, 1, plugin);
    if (content)
        wf_pb_bytes(b, 2, content->data, content->len);
    wf_pb_close(b, data);
    if (class)
        wf_pb_int(b, 4, class);
    wf_pb_close(b, meta);
    wf_pb_close(b, v.value);
    wf_pb_close(b, v.summary);
    return wf_event_write(e);
}

weft_status wf_events_scalar(struct wf_events *e, int64_t step, const char *tag, double v)
{
    struct value at = begin_value(e, step, tag, DT_FLOAT, 0, NULL);
    int64_t list = wf_pb_open(&e->event, TENSOR_FLOAT);

    wf_pb_put_float(&e->event, (float)v);
    wf_pb_close(&e->event, list);
    return end_value(e, at, "scalars", CLASS_SCALAR, NULL);
}

weft_status wf_events_text(struct wf_events *e, int64_t step, const char *tag, const char *text)
{
    struct value at = begin_value(e, step, tag, DT_STRING, 0, NULL);

    wf_pb_text(&e->event, TENSOR_STRING, text);
    return end_value(e, at, "text", CLASS_TENSOR, NULL);
}

weft_status wf_events_histogram(struct wf_events *e, int64_t step, const char *tag,
                                const weft_tensor *t)
{
    const float *v = t->data;
    int64_t n = weft_tensor_count(t), count[BUCKETS] = {0}, list;
    float lo = INFINITY, hi = -INFINITY;
    double width;
    struct value at;

    if (t->dtype != WEFT_F32)
        return WEFT_OK;
    for (int64_t i = 0; i < n; i++) {
        lo = isfinite(v[i]) && v[i] < lo ? v[i] : lo;
        hi = isfinite(v[i]) && v[i] > hi ? v[i] : hi;
    }
    if (!(lo <= hi))
        return WEFT_OK; /* nothing finite to show */
    width = ((double)hi - (double)lo) / BUCKETS;
    for (int64_t i = 0; i < n; i++) {
        int k = width > 0 ? (int)fmin(((double)v[i] - (double)lo) / width, BUCKETS - 1)
                          : BUCKETS - 1; /* all equal */

        if (isfinite(v[i]))
            count[k]++;
    }
    at = begin_value(e, step, tag, DT_DOUBLE, 2, (int64_t[]){BUCKETS, 3});
    list = wf_pb_open(&e->event, TENSOR_DOUBLE);
    for (int k = 0; k < BUCKETS; k++) {
        wf_pb_put_double(&e->event, (double)lo + k * width);
        wf_pb_put_double(&e->event, k == BUCKETS - 1 ? (double)hi : (double)lo + (k + 1) * width);
        wf_pb_put_double(&e->event, (double)count[k]);
    }
    wf_pb_close(&e->event, list);
    return end_value(e, at, "histograms", CLASS_TENSOR, NULL);
}

weft_status wf_events_images(struct wf_events *e, int64_t step, const char *tag,
                             const struct wf_picture *p, weft_dtype dtype, int n,
                             const void *const *values)
{
    uint8_t *pixels = wf_alloc(e->ctx, (size_t)(p->h * p->w * p->c));
    struct value at;
    struct wf_buf png;
    char text[24];
    weft_status st = WEFT_OK;

    if (!pixels)
        return wf_err_nomem(e->ctx, (size_t)(p->h * p->w * p->c), "an image");
    wf_buf_init(&png, e->ctx, MAX_EVENT);
    at = begin_value(e, step, tag, DT_STRING, 1, (int64_t[]){n + 2});
    snprintf(text, sizeof text, "%lld", (long long)p->w);
    wf_pb_text(&e->event, TENSOR_STRING, text);
    snprintf(text, sizeof text, "%lld", (long long)p->h);
    wf_pb_text(&e->event, TENSOR_STRING, text);
    for (int i = 0; i < n && !st; i++) {
        png.len = 0;
        wf_picture_pixels(p, dtype, values[i], pixels);
        st = wf_png_encode(p, pixels, &png);
        if (!st)
            wf_pb_bytes(&e->event, TENSOR_STRING, png.data, png.len);
    }
    if (!st)
        st = end_value(e, at, "images", CLASS_BLOBS, NULL);
    wf_buf_free(&png);
    wf_free(e->ctx, pixels);
    return st;
}

/* ---- hyper-parameters ------------------------------------------------------------------------ */

static weft_status put_hparams(struct wf_events *e, const char *tag, const struct wf_buf *content)
{
    struct value at = begin_value(e, 0, tag, DT_FLOAT, 1, (int64_t[]){0});

    return content->st ? wf_err(content->st, "hyperparameters: out of memory")
                       : end_value(e, at, "hparams", CLASS_TENSOR, content);
}

weft_status wf_events_experiment(struct wf_events *e, int n, const struct wf_hparam *params,
                                 int n_metrics, const struct wf_metric_place *metrics)
{
    struct wf_buf b;
    int64_t info, row, name;
    weft_status st;

    wf_buf_init(&b, e->ctx, 1 << 24);
    info = wf_pb_open(&b, HPARAMS_EXPERIMENT);
    wf_pb_double(&b, 3, e->wall());
    for (int i = 0; i < n; i++) {
        row = wf_pb_open(&b, 4);
        wf_pb_text(&b, 1, params[i].name);
        wf_pb_int(&b, 4, params[i].text ? HPARAM_TEXT : HPARAM_NUMBER);
        wf_pb_close(&b, row);
    }
    for (int i = 0; i < n_metrics; i++) {
        row = wf_pb_open(&b, 5);
        name = wf_pb_open(&b, 1);
        wf_pb_text(&b, 1, metrics[i].run);
        wf_pb_text(&b, 2, metrics[i].tag);
        wf_pb_close(&b, name);
        wf_pb_close(&b, row);
    }
    wf_pb_close(&b, info);
    st = put_hparams(e, "_hparams_/experiment", &b);
    wf_buf_free(&b);
    return st;
}

weft_status wf_events_session_start(struct wf_events *e, const char *group, int n,
                                    const struct wf_hparam *params)
{
    struct wf_buf b;
    int64_t info;
    weft_status st;

    wf_buf_init(&b, e->ctx, 1 << 24);
    info = wf_pb_open(&b, HPARAMS_START);
    for (int i = 0; i < n; i++) {
        int64_t entry = wf_pb_open(&b, 1), value;

        wf_pb_text(&b, 1, params[i].name);
        value = wf_pb_open(&b, 2);
        if (params[i].text)
            wf_pb_text(&b, 3, params[i].text);
        else
            wf_pb_double(&b, 2, params[i].number);
        wf_pb_close(&b, value);
        wf_pb_close(&b, entry);
    }
    wf_pb_text(&b, 4, group);
    wf_pb_double(&b, 5, e->wall());
    wf_pb_close(&b, info);
    st = put_hparams(e, "_hparams_/session_start_info", &b);
    wf_buf_free(&b);
    return st;
}

weft_status wf_events_session_end(struct wf_events *e, bool success)
{
    struct wf_buf b;
    int64_t info;
    weft_status st;

    wf_buf_init(&b, e->ctx, 1 << 12);
    info = wf_pb_open(&b, HPARAMS_END);
    wf_pb_int(&b, 1, success ? 1 : 2);
    wf_pb_double(&b, 2, e->wall());
    wf_pb_close(&b, info);
    st = put_hparams(e, "_hparams_/session_end_info", &b);
    wf_buf_free(&b);
    return st;
}
