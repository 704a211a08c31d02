/* tensorboard.c - the callback TensorBoard: the runs log_dir/train and log_dir/validation with
 * Keras' tags, and hyperparameters and the job's text in log_dir itself.
 *
 * All files of a callback share a base name and are numbered. A checkpoint contains the number and
 * the length of each run's file, so a resumed run truncates what was written after the checkpoint,
 * removes later files of its own, and continues in a new file: no step appears twice. A run that
 * starts over tells TensorBoard to ignore what earlier files in the directory contain.
 *
 * Of workers that train together, two may believe for a moment that they decide, and only one's
 * control record counts. So the state is authoritative, and the files are a view of it: it has the
 * events since the previous one, which the other worker may have removed; and whoever takes over
 * replaces the files by copies, because the other may still write to them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/number.h"
#include "ckpt/ckpt.h"
#include "train/callback/events.h"
#include "train/callback/tensorboard.h"
#include "train/step/deal.h"
#include "train/step/dist.h"

#define FLUSH_NS 10000000000 /* while batches are logged */
#define BASE_TEXT 192
#define MAX_TAG 512
#define MAX_STATE ((int64_t)1 << 20)
#define MAX_INPUTS 64 /* pictures of an input */

enum { ROOT, TRAIN, VALIDATION, N_RUNS };
static const char *const run_dir[N_RUNS] = {"", "train/", "validation/"};

struct board {
    weft_ctx *ctx;
    char *dir, base[BASE_TEXT];
    int64_t every, histogram_freq; /* every: batches; 0: once per epoch */
    double seconds;                /* also at least this often; 0: no limit */
    bool graph, weight_images, speed, resumed, opened, described;
    bool later;        /* the fit started at an epoch after the first */
    bool together;     /* with other workers, which may write the same files */
    bool ended, saved; /* an epoch; and then the state */
    int64_t input_images;
    const char *job_text;
    int64_t batch_size, epochs;
    struct wf_events run[N_RUNS];
    int64_t number[N_RUNS]; /* of the run's file */
    int64_t epoch, flushed_ns, logged_ns, speed_ns, speed_step;
};

/* ---- files ----------------------------------------------------------------------------------- */

static weft_status path_of(const struct board *b, int run, int64_t number, char out[WF_CKPT_PATH])
{
    int n = snprintf(out, WF_CKPT_PATH, "%s/%s%s.%03" PRId64 ".v2", b->dir, run_dir[run], b->base,
                     number);

    return n < WF_CKPT_PATH ? WEFT_OK : wf_err(WEFT_EINVAL, "log_dir '%s' is too long", b->dir);
}

static void set_base(struct board *b)
{
    char host[80] = "";

    if (gethostname(host, sizeof host - 1) || !*host)
        strcpy(host, "localhost");
    for (char *p = host; *p; p++)
        *p = *p == '/' || *p <= ' ' ? '-' : *p;
    snprintf(b->base, sizeof b->base, "events.out.tfevents.%010lld.%s.%ld", (long long)wf_wall(),
             host, (long)getpid());
}

/* Nothing of ours is at the path: no file, or a link, which is never followed. */
static bool is_absent(int64_t rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP;
}

/* Removes what the state does not include, the end of the file and later files, and adds what the
 * file lacks. */
static weft_status settle(struct board *b, int run, int64_t number, const struct wf_events_end *end)
{
    const struct wf_fs *fs = b->ctx->fs;
    char path[WF_CKPT_PATH];
    bool lost = false;
    weft_status st = path_of(b, run, number, path);
    int rc = 0;

    b->number[run] = number;
    if (!st && end->bytes > 0) {
        st = wf_events_settle(b->ctx, path, end, b->together, &lost);
        b->number[run]++;
    }
    if (lost)
        wf_log(b->ctx, WEFT_LOG_WARN,
               "TensorBoard: %s is shorter than when the run was saved (%lld bytes): some of its "
               "values are missing",
               path, (long long)end->bytes);
    for (int64_t i = b->number[run]; !st && !rc; i++) {
        st = path_of(b, run, i, path);
        rc = st ? 0 : fs->unlink(fs->arg, path);
    }
    return !st && rc && !is_absent(rc) ? wf_file_err(rc, path, "cannot delete") : st;
}

/* No link is followed below the directory the user named: a run's directory must be a real one. */
static weft_status check_folder(const struct board *b, int run)
{
    const struct wf_fs *fs = b->ctx->fs;
    struct wf_file_info info;
    char name[32];
    int rc, dir = fs->open(fs->arg, b->dir, O_RDONLY | O_DIRECTORY, 0);

    snprintf(name, sizeof name, "%.*s", (int)strcspn(run_dir[run], "/"), run_dir[run]);
    if (dir < 0 || !*name) { /* does not exist yet, or is the named directory itself */
        if (dir >= 0)
            fs->close(fs->arg, dir);
        return WEFT_OK;
    }
    rc = fs->stat_at(fs->arg, dir, name, &info);
    fs->close(fs->arg, dir);
    if (!rc && !info.folder)
        return wf_err(WEFT_EIO, "%s/%s: exists but is not a directory", b->dir, name);
    return rc && rc != -ENOENT ? wf_file_err(rc, b->dir, "cannot read") : WEFT_OK;
}

static weft_status open_run(struct board *b, int run)
{
    char path[WF_CKPT_PATH];
    struct wf_file_info info;
    weft_status st;
    int rc;

    if (b->run[run].file)
        return WEFT_OK;
    st = check_folder(b, run);
    if (st)
        return st;
    for (;; b->number[run]++) {
        st = path_of(b, run, b->number[run], path);
        rc = st ? 0 : b->ctx->fs->stat(b->ctx->fs->arg, path, &info);
        if (st || rc < 0)
            break;
    }
    if (!st && rc != -ENOENT) /* a file that may exist is not overwritten */
        st = wf_file_err(rc, path, "cannot create");
    if (!st)
        st = wf_events_open(&b->run[run], b->ctx, path, wf_wall);
    if (!st && !b->resumed && !b->later)
        st = wf_events_start(&b->run[run], 0);
    return st;
}

/* The settings that tell runs apart; the names are the same for every run. */
static int list_hparams(const struct board *b, const weft_trainer *t, struct wf_hparam p[8])
{
    char text[32];
    double rate = 0;

    wf_snprintf(text, sizeof text, "%.7g", weft_trainer_rate(t)); /* it is an f32 */
    wf_text_f64(text, &rate);
    p[0] = (struct wf_hparam){.name = "optimizer", .text = t->optim.name};
    p[1] = (struct wf_hparam){.name = "learning_rate", .number = rate};
    p[2] = (struct wf_hparam){.name = "loss", .text = t->loss[0] ? t->loss[0] : "none"};
    p[3] =
        (struct wf_hparam){.name = "schedule", .text = t->scheduled ? t->optim.schedule : "none"};
    p[4] = (struct wf_hparam){.name = "shards", .number = t->shards};
    p[5] = (struct wf_hparam){.name = "accumulate", .number = t->accumulate};
    p[6] = (struct wf_hparam){.name = "batch", .number = (double)b->batch_size};
    p[7] = (struct wf_hparam){.name = "epochs", .number = (double)b->epochs};
    return b->batch_size ? 8 : 6; /* the last two come from a job */
}

static weft_status put_hparams(struct board *b, const weft_trainer *t)
{
    struct wf_hparam p[8];
    const char *slash = strrchr(b->dir, '/');

    return wf_events_session_start(&b->run[ROOT], slash ? slash + 1 : b->dir, list_hparams(b, t, p),
                                   p);
}

/* After the first epoch, when the names of the logs are known. */
static weft_status put_experiment(struct board *b, const weft_trainer *t, const weft_logs *logs)
{
    struct wf_hparam p[8];
    struct wf_metric_place *m;
    char(*tag)[MAX_TAG];
    weft_status st;

    if (b->resumed || b->described)
        return WEFT_OK;
    b->described = true;
    m = wf_alloc_n(b->ctx, logs->n + 1, sizeof *m);
    tag = wf_alloc_n(b->ctx, logs->n + 1, sizeof *tag);
    st = m && tag ? WEFT_OK : wf_err_nomem(b->ctx, 0, "hyperparameters");
    for (int i = 0; i < logs->n && !st; i++) {
        bool val = strncmp(logs->name[i], "val_", 4) == 0;

        snprintf(tag[i], MAX_TAG, "epoch_%s", logs->name[i] + (val ? 4 : 0));
        m[i] = (struct wf_metric_place){val ? "validation" : "train", tag[i]};
    }
    if (!st)
        st = open_run(b, ROOT);
    if (!st)
        st = wf_events_experiment(&b->run[ROOT], list_hparams(b, t, p), p, logs->n, m);
    wf_free(b->ctx, m);
    wf_free(b->ctx, tag);
    return st;
}

static weft_status put_job(struct board *b)
{
    struct wf_buf text;
    weft_status st;

    if (!b->job_text)
        return WEFT_OK;
    wf_buf_init(&text, b->ctx, 1 << 24);
    for (const char *p = b->job_text; *p;) {
        int n = (int)strcspn(p, "\n");

        wf_buf_printf(&text, "    %.*s\n", n, p);
        p += n + (p[n] == '\n');
    }
    st = text.st ? text.st : wf_events_text(&b->run[ROOT], 0, "job", text.data ? text.data : "");
    wf_buf_free(&text);
    return st;
}

/* Describes the run, before its first value. */
static weft_status open_board(struct board *b, weft_trainer *t)
{
    weft_status st;

    if (b->opened)
        return WEFT_OK;
    b->opened = true;
    b->flushed_ns = b->logged_ns = b->speed_ns = wf_now(b->ctx);
    b->speed_step = weft_trainer_step(t);
    st = open_run(b, TRAIN);
    if (st || b->resumed)
        return st;
    if (b->graph)
        st = wf_events_model(&b->run[TRAIN], t->model);
    if (!st)
        st = open_run(b, ROOT);
    if (!st)
        st = put_hparams(b, t);
    return st ? st : put_job(b);
}

static weft_status flush(struct board *b)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < N_RUNS && !st; i++)
        st = wf_events_flush(&b->run[i]);
    b->flushed_ns = wf_now(b->ctx);
    return st;
}

/* ---- values ---------------------------------------------------------------------------------- */

static weft_status put(struct board *b, int run, int64_t step, const char *before, const char *name,
                       const char *after, double v)
{
    char tag[MAX_TAG];
    weft_status st = open_run(b, run);

    snprintf(tag, sizeof tag, "%s%s%s", before, name, after);
    return st ? st : wf_events_scalar(&b->run[run], step, tag, v);
}

/* A weight as one gray image: all axes but the last from top to bottom, the last from left to
 * right. */
static weft_status put_weight_image(struct board *b, int64_t step, const char *tag,
                                    const weft_tensor *w)
{
    int64_t n = weft_tensor_count(w), cols = w->rank ? w->dim[w->rank - 1] : 1;
    struct wf_picture p = {cols ? n / cols : 0, cols, 1};

    if (w->dtype != WEFT_F32 || w->rank == 0 || n == 0 || p.h > 4096 || p.w > 4096)
        return WEFT_OK;
    return wf_events_images(&b->run[TRAIN], step, tag, &p, WEFT_F32, 1,
                            (const void *const[]){w->data});
}

static weft_status put_weights(struct board *b, weft_trainer *t, int64_t epoch)
{
    weft_status st = WEFT_OK;

    if (!b->histogram_freq || epoch % b->histogram_freq)
        return WEFT_OK;
    for (int i = 0; i < weft_trainer_n_weights(t) && !st; i++) {
        const char *name = weft_trainer_weight_name(t, i);
        char tag[MAX_TAG];
        weft_tensor w;

        st = weft_trainer_weight(t, name, &w);
        snprintf(tag, sizeof tag, "%s/histogram", name);
        if (!st)
            st = wf_events_histogram(&b->run[TRAIN], epoch, tag, &w);
        snprintf(tag, sizeof tag, "%s/image", name);
        if (!st && b->weight_images)
            st = put_weight_image(b, epoch, tag, &w);
    }
    return st;
}

/* The first samples of the batch, as many as are wanted: of its first shards. */
struct inputs {
    int n_shards;
    weft_batch *held[MAX_INPUTS];
    weft_tensor *feeds; /* n_feeds for each shard */
    int n_feeds;
};

static void inputs_free(weft_trainer *t, struct inputs *in)
{
    for (int i = 0; i < in->n_shards; i++)
        weft_batch_free(in->held[i]);
    wf_free(t->ctx, in->feeds);
}

static weft_status inputs_read(weft_trainer *t, int n, struct inputs *in)
{
    const struct wf_deal *d = t->deal;
    int64_t have = 0;
    weft_status st = WEFT_OK;

    in->n_feeds = t->bound->n_feeds_fit + 2;
    in->feeds = wf_alloc_n(t->ctx, (int64_t)n * in->n_feeds, sizeof *in->feeds);
    if (!in->feeds)
        return wf_err_nomem(t->ctx, 0, "pictures of inputs");
    for (int64_t l = 0; have < n && l < t->shards && !st; l++) {
        if (l * d->n / t->shards == (l + 1) * d->n / t->shards)
            continue; /* empty */
        st = wf_deal_feeds(d, l, in->feeds + in->n_shards * in->n_feeds, &in->held[in->n_shards]);
        if (!st)
            have += in->held[in->n_shards++]->n;
    }
    return st;
}

/* Pictures of one input; shards that were padded to another size are left out. */
static weft_status put_input(struct board *b, weft_trainer *t, const struct inputs *in, int input,
                             int n)
{
    const weft_tensor *first = &in->feeds[input];
    const void *sample[MAX_INPUTS];
    struct wf_picture p;
    char tag[MAX_TAG];
    int have = 0;

    if (first->rank < 2 || !wf_picture_of(first->dtype, first->rank - 1, first->dim + 1, &p))
        return WEFT_OK;
    for (int s = 0; s < in->n_shards; s++) {
        const weft_tensor *x = &in->feeds[s * in->n_feeds + input];
        int64_t row = p.h * p.w * p.c * weft_dtype_size(x->dtype);
        bool same = memcmp(x->dim + 1, first->dim + 1, (size_t)(x->rank - 1) * 8) == 0;

        for (int64_t k = 0; k < x->dim[0] && have < n && same; k++)
            sample[have++] = (const char *)x->data + k * row;
    }
    snprintf(tag, sizeof tag, "input/%s",
             weft_sym_name(t->model, weft_model_input_at(t->model, input)));
    return wf_events_images(&b->run[TRAIN], b->epoch, tag, &p, first->dtype, have, sample);
}

static weft_status put_inputs(struct board *b, weft_trainer *t)
{
    int n = t->deal ? (int)wf_min_i64(b->input_images, wf_min_i64(t->deal->n, MAX_INPUTS)) : 0;
    struct inputs in = {.n_shards = 0};
    weft_status st = n > 0 ? inputs_read(t, n, &in) : WEFT_OK;

    for (int i = 0; i < weft_model_n_inputs(t->model) && in.n_shards && !st; i++)
        st = put_input(b, t, &in, i, n);
    inputs_free(t, &in);
    return st;
}

/* ---- events of training ---------------------------------------------------------------------- */

/* The tails of all files begin with the first event after an epoch whose state was saved. */
static void mark(struct board *b)
{
    for (int i = 0; i < N_RUNS && b->saved; i++)
        if (b->run[i].file)
            wf_events_mark(&b->run[i]);
    if (b->saved)
        b->ended = b->saved = false;
}

static struct wf_events_end end_of(const struct wf_events *e)
{
    return e->file ? (struct wf_events_end){e->bytes, e->tail_from, e->tail.data, e->tail.len}
                   : (struct wf_events_end){.from = -1};
}

/* A worker that was not entitled to it may have replaced the files that this one has open. */
static weft_status check_files(struct board *b)
{
    const struct wf_fs *fs = b->ctx->fs;
    weft_status st = b->together ? flush(b) : WEFT_OK;

    for (int i = 0; i < N_RUNS && !st && b->together; i++) {
        struct wf_events_end end = end_of(&b->run[i]);
        struct wf_file_info info;
        char path[WF_CKPT_PATH];
        struct wf_buf tail = b->run[i].tail;

        if (!b->run[i].file)
            continue;
        st = path_of(b, i, b->number[i], path);
        if (st || (fs->stat(fs->arg, path, &info) == 0 && info.size == end.bytes))
            continue;
        b->run[i].tail = (struct wf_buf){0}; /* it is needed */
        st = wf_events_close(&b->run[i]);
        b->resumed = true;
        if (!st)
            st = settle(b, i, b->number[i], &end);
        wf_buf_free(&tail);
    }
    return st;
}

static weft_status board_begin(void *arg, weft_trainer *t)
{
    struct board *b = arg;

    b->together = wf_dist_together(t);
    if (!*b->base)
        set_base(b);
    for (int i = 0; i < N_RUNS; i++) { /* still open after a failed fit */
        if (b->run[i].file)
            b->number[i]++;
        (void)wf_events_close(&b->run[i]);
    }
    b->resumed = b->described = b->opened = b->later = b->ended = b->saved = false;
    b->epoch = 0;
    return WEFT_OK;
}

static weft_status board_epoch_begin(void *arg, weft_trainer *t, int64_t epoch)
{
    struct board *b = arg;

    b->epoch = epoch;
    if (!b->opened) /* initial_epoch: earlier files belong to the same curves */
        b->later = epoch > 0;
    return open_board(b, t);
}

static weft_status board_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct board *b = arg;
    int64_t step = weft_trainer_step(t), now;
    bool due;
    weft_status st = open_board(b, t);

    mark(b);

    if (!st && batch == 0 && b->input_images)
        st = put_inputs(b, t);
    now = wf_now(b->ctx);
    due = (b->every && step % b->every == 0) ||
          (b->seconds > 0 && (double)(now - b->logged_ns) * 1e-9 >= b->seconds);
    if (st || !due)
        return st;
    b->logged_ns = now;
    for (int i = 0; i < logs->n && !st; i++)
        st = put(b, TRAIN, step, "batch_", logs->name[i], "", logs->value[i]);
    if (!st && b->speed && now > b->speed_ns)
        st = put(b, TRAIN, step, "batch_", "steps_per_second", "",
                 (double)(step - b->speed_step) * 1e9 / (double)(now - b->speed_ns));
    b->speed_ns = now;
    b->speed_step = step;
    return st || now - b->flushed_ns < FLUSH_NS ? st : flush(b);
}

static weft_status board_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct board *b = arg;
    const weft_times *times = &t->times;
    weft_status st = check_files(b);

    if (!st)
        st = open_board(b, t);
    mark(b);
    for (int i = 0; i < logs->n && !st; i++) {
        bool val = strncmp(logs->name[i], "val_", 4) == 0;
        const char *name = logs->name[i] + (val ? 4 : 0);

        st = put(b, val ? VALIDATION : TRAIN, epoch, "epoch_", name, "", logs->value[i]);
        if (!st && val)
            st = put(b, VALIDATION, weft_trainer_step(t), "evaluation_", name, "_vs_iterations",
                     logs->value[i]);
    }
    if (!st)
        st = put(b, TRAIN, epoch, "epoch_", "learning_rate", "", weft_trainer_used_rate(t));
    if (!st && b->speed && times->train_s > 0)
        st = put(b, TRAIN, epoch, "epoch_", "steps_per_second", "",
                 (double)times->steps / times->train_s);
    if (!st)
        st = put_weights(b, t, epoch);
    if (!st)
        st = put_experiment(b, t, logs);
    b->epoch = epoch + 1;
    b->ended = true;
    return st ? st : flush(b);
}

static weft_status board_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    struct board *b = arg;
    weft_status st = WEFT_OK;

    (void)logs;
    (void)t;
    if (b->opened) {
        st = open_run(b, ROOT);
        if (!st)
            st = wf_events_session_end(&b->run[ROOT], true);
    }
    for (int i = 0; i < N_RUNS; i++) {
        weft_status closed = wf_events_close(&b->run[i]);

        st = st ? st : closed;
        b->number[i]++;
    }
    b->opened = false;
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status board_save(void *arg, char **state, int64_t *n)
{
    struct board *b = arg;
    struct wf_buf text;
    weft_status st = flush(b);

    if (st)
        return st;
    wf_buf_init(&text, b->ctx, MAX_STATE);
    wf_buf_printf(&text, "%s %" PRId64, b->base, b->epoch);
    for (int i = 0; i < N_RUNS; i++)
        wf_buf_printf(&text, " %" PRId64 " %" PRId64, b->number[i],
                      b->run[i].file ? b->run[i].bytes : 0);
    wf_buf_printf(&text, "\n");
    for (int i = 0; i < N_RUNS; i++) {
        struct wf_events_end end = end_of(&b->run[i]);

        wf_put_i64(&text, end.from);
        wf_put_bytes(&text, end.tail, end.n_tail);
    }
    b->saved = b->ended;
    if (text.st) {
        wf_buf_free(&text);
        return wf_err_nomem(b->ctx, 0, "the state of TensorBoard");
    }
    *state = text.data;
    *n = text.len;
    return WEFT_OK;
}

/* What follows the line of text, which was all of the state once. */
static weft_status read_ends(const char *state, int64_t n, struct wf_events_end end[N_RUNS])
{
    const char *line = memchr(state, '\n', (size_t)n);
    struct wf_reader in = {line ? line + 1 : NULL, state + n, WEFT_OK};

    for (int i = 0; i < N_RUNS; i++)
        end[i] = (struct wf_events_end){.from = -1};
    for (int i = 0; i < N_RUNS && line; i++) {
        end[i].from = wf_get_range(&in, -1, INT64_MAX / 2, "a position");
        end[i].tail = wf_get_bytes(&in, &end[i].n_tail);
    }
    return in.st;
}

static weft_status board_restore(void *arg, const char *state, int64_t n)
{
    struct board *b = arg;
    char text[512], base[BASE_TEXT];
    int64_t number[N_RUNS], bytes[N_RUNS], epoch;
    struct wf_events_end end[N_RUNS];
    weft_status st = read_ends(state, n, end);

    if (st)
        return wf_err_wrap(st, "the saved state of TensorBoard");

    snprintf(text, sizeof text, "%.*s", (int)wf_min_i64(n, sizeof text - 1), state);
    if (sscanf(text,
               "%191s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %" SCNd64,
               base, &epoch, &number[0], &bytes[0], &number[1], &bytes[1], &number[2],
               &bytes[2]) != 8 ||
        strchr(base, '/'))
        return wf_err(WEFT_EPARSE, "the saved state of TensorBoard is invalid");
    strcpy(b->base, base);
    b->epoch = epoch;
    b->resumed = false; /* if nothing had been written, the run is described again */
    for (int i = 0; i < N_RUNS && !st; i++) {
        b->resumed |= number[i] > 0 || bytes[i] > 0;
        end[i].bytes = bytes[i];
        st = number[i] < 0 || bytes[i] < 0 || end[i].from > bytes[i]
                 ? wf_err(WEFT_EPARSE, "the saved state of TensorBoard is invalid")
                 : settle(b, i, number[i], &end[i]);
    }
    return st;
}

static void board_free(void *arg)
{
    struct board *b = arg;

    for (int i = 0; i < N_RUNS; i++)
        (void)wf_events_close(&b->run[i]);
    wf_free(b->ctx, b->dir);
    wf_free(b->ctx, b);
}

weft_status wf_tensorboard_describe(weft_callback *cb, const char *job_text, int64_t batch,
                                    int64_t epochs)
{
    struct board *b = cb->arg;

    if (cb->restore != board_restore)
        return wf_err(WEFT_EINVAL, "not a TensorBoard callback");
    b->job_text = job_text;
    b->batch_size = batch;
    b->epochs = epochs;
    return WEFT_OK;
}

weft_status wf_tensorboard_make(const struct wf_callback_args *a, weft_callback *out)
{
    const char *freq = wf_cb_arg(a, "update_freq")->s;
    struct board *b = wf_alloc(a->ctx, sizeof *b);
    weft_status st = WEFT_OK;

    if (!b)
        return wf_err_nomem(a->ctx, sizeof *b, "a callback");
    b->ctx = a->ctx;
    b->histogram_freq = wf_cb_arg(a, "histogram_freq")->i;
    b->graph = wf_cb_arg(a, "write_graph")->i;
    b->weight_images = wf_cb_arg(a, "write_images")->i;
    b->speed = wf_cb_arg(a, "write_steps_per_second")->i;
    b->input_images = wf_cb_arg(a, "input_images")->i;
    b->seconds = wf_cb_arg(a, "update_seconds")->f;
    b->dir = wf_strdup(a->ctx, wf_cb_arg(a, "log_dir")->s);
    b->every = strcmp(freq, "batch") == 0;
    if (!b->every && strcmp(freq, "epoch") != 0 && (!wf_text_i64(freq, &b->every) || !b->every))
        b->every = -1;
    if (!b->dir)
        st = wf_err_nomem(a->ctx, 0, "a callback");
    else if (b->every < 0)
        st = wf_err(WEFT_EINVAL, "update_freq '%s' is not epoch, batch or a number of batches",
                    freq);
    else if (!wf_png_there() && (b->weight_images || b->input_images))
        st = wf_err(WEFT_ENOSUP, "images need libpng, which this build does not have");
    else if (b->histogram_freq < 0 || b->input_images < 0 || !(b->seconds >= 0))
        st = wf_err(WEFT_EINVAL, "histogram_freq %lld, input_images %lld",
                    (long long)b->histogram_freq, (long long)b->input_images);
    if (st) {
        board_free(b);
        return st;
    }
    out->arg = b;
    out->train_begin = board_begin;
    out->epoch_begin = board_epoch_begin;
    out->batch_end = b->every || b->seconds > 0 || b->input_images ? board_batch : NULL;
    out->epoch_end = board_epoch;
    out->train_end = board_end;
    out->save = board_save;
    out->restore = board_restore;
    out->free = board_free;
    return WEFT_OK;
}
