/* report.c - the report of a run: one self-contained HTML file without scripts, for light and dark
 * mode, wide screens and phones. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/base64.h"
#include "train/callback/callback.h"
#include "train/report/report.h"
#include "weft/data_image.h"
#include "weft/sys/machine.h"

#define MAX_PAGE ((int64_t)64 << 20)
#define MAX_ROWS 12 /* table rows before the rest is folded away */

struct page {
    struct wf_buf b;
    weft_job_run *run;
    const weft_history *h;
    const struct wf_times_row *times;
    int64_t n_times;
    struct wf_review review;
    struct wf_regression regression;
    int64_t weights; /* the row of h whose weights were saved; -1: the last row */
};

static void text(struct page *p, const char *s)
{
    wf_html_text(&p->b, s);
}

static void put_seconds(struct page *p, double s)
{
    if (s > 0 && s < 0.000995)
        wf_buf_printf(&p->b, "%.3g µs", s * 1e6);
    else if (s < 0.0995)
        wf_buf_printf(&p->b, "%.3g ms", s * 1e3);
    else if (s < 60)
        wf_buf_printf(&p->b, "%.3g s", s);
    else if (s < 3600)
        wf_buf_printf(&p->b, "%d min %02d s", (int)(s / 60), (int)s % 60);
    else
        wf_buf_printf(&p->b, "%d h %02d min", (int)(s / 3600), (int)(s / 60) % 60);
}

static void put_class(struct page *p, int i)
{
    wf_review_class(&p->b, &p->review, i);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int find_name(const weft_history *h, const char *prefix, const char *name)
{
    char full[256];

    snprintf(full, sizeof full, "%s%s", prefix, name);
    for (int i = 0; i < h->n_names; i++)
        if (strcmp(h->name[i], full) == 0)
            return i;
    return -1;
}

static bool is_validation(const char *name)
{
    return strncmp(name, "val_", 4) == 0;
}

/* 1: larger is better; -1: smaller is better; 0: unknown */
static int direction(const weft_trainer *t, const char *name)
{
    const struct wf_bound *b = t->bound;
    size_t n = strlen(name);

    if (n >= 4 && strcmp(name + n - 4, "loss") == 0)
        return -1;
    for (int i = 0; b && i < b->n_logs; i++)
        if (strcmp(b->log[i].name, name) == 0 && b->log[i].metric)
            return wf_metric_direction(b->log[i].metric);
    return weft_log_direction(name); /* nothing was trained here */
}

/* The last epoch that has a value; -1 if none has. */
static int64_t last_of(const weft_history *h, int i)
{
    for (int64_t e = h->n_epochs - 1; e >= 0 && i >= 0; e--)
        if (!isnan(h->value[e * h->n_names + i]))
            return e;
    return -1;
}

/* The epoch whose weights were saved, or else the last one. */
static int64_t shown_of(const struct page *p, int i)
{
    const weft_history *h = p->h;

    if (p->weights >= 0 && i >= 0 && !isnan(h->value[p->weights * h->n_names + i]))
        return p->weights;
    return last_of(h, i);
}

static int64_t best_of(const weft_history *h, int i, int sign)
{
    int64_t best = -1;

    for (int64_t e = 0; e < h->n_epochs && sign && i >= 0; e++) {
        double v = h->value[e * h->n_names + i];

        if (!isnan(v) && (best < 0 || sign * (v - h->value[best * h->n_names + i]) > 0))
            best = e;
    }
    return best;
}

static void put_value_cell(struct page *p, int i, int64_t epoch)
{
    wf_buf_printf(&p->b, "<td>");
    if (i < 0 || epoch < 0)
        wf_buf_printf(&p->b, "–");
    else
        wf_html_number(&p->b, p->h->value[epoch * p->h->n_names + i], 5);
    wf_buf_printf(&p->b, "</td>");
}

static void put_values(struct page *p)
{
    const weft_history *h = p->h;
    struct wf_buf *b = &p->b;

    wf_buf_printf(b, "<h2>Values</h2>");
    if (p->weights >= 0)
        wf_buf_printf(b,
                      "<p class=\"soft\">Training and validation values are those of epoch %lld, "
                      "whose weights were saved.</p>",
                      (long long)(h->first_epoch + p->weights + 1));
    wf_buf_printf(b, "<div class=\"scroll\"><table><tr><th></th><th>training</th>"
                     "<th>validation</th><th>best</th><th>epoch</th></tr>\n");
    for (int i = 0; i < h->n_names; i++) {
        int val, of;
        int64_t best;

        if (is_validation(h->name[i]))
            continue;
        val = find_name(h, "val_", h->name[i]);
        of = val >= 0 ? val : i;
        best = best_of(h, of, direction(p->run->trainer, h->name[i]));
        wf_buf_printf(b, "<tr><td>");
        text(p, h->name[i]);
        wf_buf_printf(b, "</td>");
        put_value_cell(p, i, shown_of(p, i));
        put_value_cell(p, val, shown_of(p, val));
        put_value_cell(p, of, best);
        if (best >= 0)
            wf_buf_printf(b, "<td>%lld</td></tr>\n", (long long)(h->first_epoch + best + 1));
        else
            wf_buf_printf(b, "<td>–</td></tr>\n");
    }
    wf_buf_printf(b, "</table></div>\n");
}

static void put_curves(struct page *p)
{
    const weft_history *h = p->h;
    bool moved = false;

    wf_buf_printf(&p->b, "<h2>Curves</h2><div class=\"grid\">\n");
    for (int i = 0; i < h->n_names; i++) {
        int val = find_name(h, "val_", h->name[i]);
        struct wf_series s[2] = {
            {"training", "train", h->value + i, h->n_names},
            {"validation", "val", h->value + (val < 0 ? 0 : val), h->n_names},
        };

        if (is_validation(h->name[i]) && find_name(h, "", h->name[i] + 4) >= 0)
            continue;
        wf_buf_printf(&p->b, "<div class=\"card\">");
        wf_svg_curves(&p->b, h->name[i], h->first_epoch + 1, h->n_epochs, val < 0 ? 1 : 2, s);
        wf_buf_printf(&p->b, "</div>\n");
    }
    for (int64_t i = 1; i < p->n_times; i++)
        moved = moved || p->times[i].rate != p->times[0].rate;
    if (moved) {
        struct wf_series s = {"learning rate", "train", &p->times[0].rate,
                              sizeof *p->times / sizeof(double)};

        wf_buf_printf(&p->b, "<div class=\"card\">");
        wf_svg_curves(&p->b, "learning_rate", p->times[0].epoch + 1, p->n_times, 1, &s);
        wf_buf_printf(&p->b, "</div>\n");
    }
    wf_buf_printf(&p->b, "</div>\n");
}

/* ---- head ------------------------------------------------------------------------------------ */

static double total_seconds(const struct page *p)
{
    double s = 0;

    for (int64_t i = 0; i < p->n_times; i++)
        s += p->times[i].train_s + p->times[i].validate_s;
    return s;
}

/* A name that may be broken after its underscores. */
static void breakable(struct page *p, const char *name)
{
    for (; *name; name++) {
        text(p, (const char[]){*name, 0});
        if (*name == '_')
            wf_buf_printf(&p->b, "<wbr>");
    }
}

static void put_tile(struct page *p, const char *name, const char *fmt, double v)
{
    wf_buf_printf(&p->b, "<div class=\"tile\"><span class=\"soft\">");
    breakable(p, name);
    wf_buf_printf(&p->b, "</span><b>");
    if (fmt)
        wf_html_number(&p->b, v, 4);
    else
        put_seconds(p, v);
    wf_buf_printf(&p->b, "</b></div>");
}

static void put_head(struct page *p)
{
    const weft_job *job = p->run->job;
    const weft_history *h = p->h;
    const char *name = job->name && *job->name ? job->name : p->run->job->yaml.name;
    int64_t n_epochs = h->first_epoch + h->n_epochs;
    time_t now = time(NULL);
    struct tm tm;
    char date[64] = "";

    if (localtime_r(&now, &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
    wf_page_begin(&p->b, name);
    wf_buf_printf(&p->b, "<p class=\"soft\">%lld of %lld epochs", (long long)n_epochs,
                  (long long)(job->epochs > n_epochs ? job->epochs : n_epochs));
    if (weft_trainer_step(p->run->trainer))
        wf_buf_printf(&p->b, ", %lld steps", (long long)weft_trainer_step(p->run->trainer));
    wf_buf_printf(&p->b, "; written %s</p>\n", date);
    if (p->weights >= 0)
        wf_buf_printf(&p->b,
                      "<p class=\"soft\">The saved weights are those of the best epoch, %lld; so "
                      "are these values:</p>\n",
                      (long long)(h->first_epoch + p->weights + 1));
    wf_buf_printf(&p->b, "<div class=\"tiles\">");
    for (int i = 0; i < h->n_names; i++) {
        int val = find_name(h, "val_", h->name[i]);
        int64_t e = shown_of(p, i);

        if (val < 0 && e >= 0) /* the validation value, if there is one */
            put_tile(p, h->name[i], "g", h->value[e * h->n_names + i]);
    }
    if (p->review.part &&
        (strcmp(p->review.part, "test") == 0 || find_name(h, "", "accuracy") < 0)) {
        char label[48];

        snprintf(label, sizeof label, "%s, right", p->review.part);
        wf_buf_printf(&p->b,
                      "<div class=\"tile\"><span class=\"soft\">%s</span><b>%.2f %%</b></div>",
                      label, 100 * (double)p->review.n_right / (double)p->review.n);
    }
    if (p->regression.part && isfinite(wf_regression_r2(&p->regression))) {
        char label[48];

        snprintf(label, sizeof label, "%s, R²", p->regression.part);
        put_tile(p, label, "g", wf_regression_r2(&p->regression));
    }
    if (p->n_times)
        put_tile(p, "time", NULL, total_seconds(p));
    wf_buf_printf(&p->b, "</div>\n");
}

/* ---- review ---------------------------------------------------------------------------------- */

static void put_matrix_row(struct page *p, int truth)
{
    const struct wf_review *r = &p->review;
    const int64_t *row = r->confusion + (int64_t)truth * r->n_classes;
    int64_t n = 0, column = 0;

    for (int k = 0; k < r->n_classes; k++) {
        n += row[k];
        column += r->confusion[(int64_t)k * r->n_classes + truth];
    }
    wf_buf_printf(&p->b, "<tr><th class=\"row\">");
    put_class(p, truth);
    wf_buf_printf(&p->b, "</th>");
    for (int k = 0; k < r->n_classes; k++) {
        double share = n ? (double)row[k] / (double)n : 0;

        if (!row[k]) {
            wf_buf_printf(&p->b, "<td></td>");
            continue;
        }
        wf_buf_printf(&p->b,
                      "<td style=\"background:rgba(var(--%s),%.2f)\" title=\"%.1f %%\">%lld</td>",
                      k == truth ? "good" : "bad",
                      k == truth ? 0.08 + 0.42 * share : fmin(0.08 + 1.6 * share, 0.75),
                      100 * share, (long long)row[k]);
    }
    wf_buf_printf(&p->b, n ? "<td>%.1f</td>" : "<td>–</td>",
                  n ? 100 * (double)row[truth] / (double)n : 0.0);
    wf_buf_printf(&p->b, column ? "<td>%.1f</td></tr>\n" : "<td>–</td></tr>\n",
                  column ? 100 * (double)row[truth] / (double)column : 0.0);
}

static void put_matrix(struct page *p)
{
    const struct wf_review *r = &p->review;

    if (!r->part)
        return;
    wf_buf_printf(
        &p->b,
        "<h2>Confusion matrix</h2><p class=\"soft\">%lld of %lld samples of the %s data are "
        "correct. Rows: true class; columns: predicted class.</p>"
        "<div class=\"scroll\"><table class=\"matrix%s\"><tr><th></th>",
        (long long)r->n_right, (long long)r->n, r->part, r->n_classes > 14 ? " many" : "");
    for (int k = 0; k < r->n_classes; k++) {
        wf_buf_printf(&p->b, "<th>");
        put_class(p, k);
        wf_buf_printf(&p->b, "</th>");
    }
    wf_buf_printf(&p->b, "<th>recall %%</th><th>precision %%</th></tr>\n");
    for (int k = 0; k < r->n_classes; k++)
        put_matrix_row(p, k);
    wf_buf_printf(&p->b, "</table></div>\n");
}

static weft_status put_mistakes(struct page *p)
{
    const struct wf_review *r = &p->review;
    struct wf_buf png;
    weft_status st = WEFT_OK;

    if (!r->n_mistakes)
        return WEFT_OK;
    wf_buf_init(&png, p->run->ctx, MAX_PAGE);
    wf_buf_printf(
        &p->b, "<h2>Worst mistakes</h2><p class=\"soft\">Samples whose true class got the lowest "
               "probability, shown with the probability of the predicted class.</p><div "
               "class=\"mistakes\">\n");
    for (int i = 0; i < r->n_mistakes && !st; i++) {
        const struct wf_mistake *m = &r->mistake[i];

        wf_buf_printf(&p->b, "<figure>");
        png.len = 0;
        if (m->pixels && !wf_png_encode(&r->shown, m->pixels, &png)) {
            wf_buf_printf(&p->b, "<img alt=\"sample %lld\" src=\"data:image/png;base64,",
                          (long long)m->sample);
            wf_base64(&p->b, png.data, png.len);
            wf_buf_printf(&p->b, "\">");
        }
        wf_buf_printf(&p->b, "<figcaption>true: ");
        put_class(p, m->truth);
        wf_buf_printf(&p->b, "<br><span class=\"no\">predicted: ");
        put_class(p, m->guess);
        wf_buf_printf(&p->b,
                      "</span><br><span class=\"soft\">%.1f&nbsp;%%, #%lld</span></figcaption>"
                      "</figure>\n",
                      100 * m->p_guess, (long long)m->sample);
    }
    wf_buf_printf(&p->b, "</div>\n");
    wf_buf_free(&png);
    return st;
}

/* ---- times ----------------------------------------------------------------------------------- */

static void put_times_row(struct page *p, const struct wf_times_row *r)
{
    wf_buf_printf(&p->b, "<tr><td>%lld</td><td>%lld</td><td>", (long long)r->epoch + 1,
                  (long long)r->steps);
    put_seconds(p, r->train_s);
    wf_buf_printf(&p->b, "</td><td>");
    put_seconds(p, r->steps ? r->train_s / (double)r->steps : 0);
    wf_buf_printf(&p->b, "</td><td>%.1f %%</td><td>",
                  r->train_s > 0 ? 100 * r->wait_s / r->train_s : 0);
    put_seconds(p, r->validate_s);
    wf_buf_printf(&p->b, "</td></tr>\n");
}

static const char times_head[] = "<div class=\"scroll\"><table><tr><th>epoch</th><th>steps</th><th>"
                                 "training</th><th>per step</th><th>waiting for data</th>"
                                 "<th>validation</th></tr>\n";

/* Counts this process only: a resumed run does not know what earlier runs skipped. */
static void put_skipped(struct page *p)
{
    weft_times all;

    weft_trainer_times(weft_job_trainer(p->run), NULL, &all);
    if (all.skipped || all.val_skipped)
        wf_buf_printf(&p->b,
                      " <strong>%lld training and %lld validation records could not be read and "
                      "were skipped</strong> (on_error: skip), over all epochs.",
                      (long long)all.skipped, (long long)all.val_skipped);
}

static void put_times(struct page *p)
{
    struct wf_times_row all = {0};
    int64_t n = p->n_times, shown = n > MAX_ROWS ? MAX_ROWS / 2 : n;

    if (!n)
        return;
    for (int64_t i = 0; i < n; i++) {
        all.steps += p->times[i].steps;
        all.train_s += p->times[i].train_s;
        all.wait_s += p->times[i].wait_s;
        all.stall_s += p->times[i].stall_s;
    }
    wf_buf_printf(&p->b, "<h2>Time</h2><p>");
    put_seconds(p, total_seconds(p));
    wf_buf_printf(&p->b, " in total; a step took ");
    put_seconds(p, all.steps ? all.train_s / (double)all.steps : 0);
    wf_buf_printf(&p->b, " on average, of which %.1f %% was waiting for data.",
                  all.train_s > 0 ? 100 * all.wait_s / all.train_s : 0);
    if (all.stall_s > 0) {
        wf_buf_printf(&p->b, " Training waited for checkpoints for ");
        put_seconds(p, all.stall_s);
        wf_buf_printf(&p->b, ".");
    }
    put_skipped(p);
    wf_buf_printf(&p->b, "</p>%s", times_head);
    for (int64_t i = n - shown; i < n; i++)
        put_times_row(p, &p->times[i]);
    wf_buf_printf(&p->b, "</table></div>\n");
    if (shown == n)
        return;
    wf_buf_printf(&p->b, "<details><summary>all %lld epochs</summary>%s", (long long)n, times_head);
    for (int64_t i = 0; i < n; i++)
        put_times_row(p, &p->times[i]);
    wf_buf_printf(&p->b, "</table></div></details>\n");
}

/* ---- configuration --------------------------------------------------------------------------- */

static void put_cpu(struct page *p)
{
    char name[128];

    weft_cpu_name(p->run->ctx, name, sizeof name);
    text(p, name);
}

static weft_status put_configuration(struct page *p)
{
    weft_ctx *ctx = p->run->ctx;
    struct utsname os;
    char *summary = NULL;
    weft_status st = weft_model_summary(p->run->model, 0, &summary);

    if (st)
        return st;
    wf_buf_printf(&p->b, "<h2>Model</h2><pre>");
    text(p, summary);
    wf_buf_printf(&p->b, "</pre>\n<h2>Job</h2><p class=\"soft\">");
    text(p, p->run->job->yaml.name);
    wf_buf_printf(&p->b, "</p><pre>");
    text(p, p->run->trainer->recorded ? p->run->trainer->recorded : p->run->job->text);
    wf_buf_printf(&p->b,
                  "</pre>\n<h2>Machine</h2><div class=\"scroll\"><table "
                  "class=\"facts\"><tr><td>weft</td><td>%s"
                  "</td></tr><tr><td>processor</td><td>",
                  weft_version());
    put_cpu(p);
    wf_buf_printf(&p->b,
                  "</td></tr><tr><td>threads, kernels</td><td>%d, %s</td></tr><tr><td>peak memory"
                  "</td><td>%.1f MB</td></tr>",
                  weft_ctx_threads(ctx), weft_simd_name(weft_ctx_simd(ctx)),
                  (double)weft_ctx_memory_peak(ctx) / 1e6);
    if (uname(&os) == 0) {
        wf_buf_printf(&p->b, "<tr><td>system</td><td>");
        text(p, os.sysname);
        wf_buf_printf(&p->b, " ");
        text(p, os.release);
        wf_buf_printf(&p->b, " ");
        text(p, os.machine);
        wf_buf_printf(&p->b, "</td></tr><tr><td>host</td><td>");
        text(p, os.nodename);
        wf_buf_printf(&p->b, "</td></tr>");
    }
    wf_buf_printf(&p->b, "<tr><td>seed</td><td>%lld</td></tr></table></div>\n",
                  (long long)p->run->job->seed);
    weft_text_free(ctx, summary);
    return WEFT_OK;
}

weft_status wf_report_write(weft_job_run *run, const weft_history *h, const char *path)
{
    struct page p = {.run = run, .h = h, .weights = -1};
    int64_t epoch;
    weft_status st;

    wf_buf_init(&p.b, run->ctx, MAX_PAGE);
    p.times = wf_report_times(run->times, &p.n_times);
    for (int i = 0; i < run->n_callbacks; i++)
        if (wf_early_stopping_restored(&run->callback[i], &epoch) && epoch >= h->first_epoch &&
            epoch < h->first_epoch + h->n_epochs - 1)
            p.weights = epoch - h->first_epoch;
    st = wf_review_make(run, &p.review);
    if (!st)
        st = wf_regression_make(run, &p.regression);
    if (!st) {
        put_head(&p);
        put_curves(&p);
        put_values(&p);
        put_matrix(&p);
        if (p.review.part)
            st = wf_review_put_curves(&p.b, &p.review);
        if (!st)
            st = put_mistakes(&p);
        wf_regression_put(&p.b, &p.regression);
    }
    if (!st) {
        put_times(&p);
        st = put_configuration(&p);
    }
    wf_buf_printf(&p.b, "</body></html>\n");
    if (!st)
        st = p.b.st ? wf_err(p.b.st, "the page is too large") : WEFT_OK;
    if (!st)
        st = wf_file_write(run->ctx, path, p.b.data, p.b.len);
    wf_review_free(&p.review);
    wf_regression_free(&p.regression);
    wf_buf_free(&p.b);
    return st ? wf_err_wrap(st, "report") : WEFT_OK;
}

/* Loads what the run's callbacks knew when its newest checkpoint was written: times of epochs,
 * whether the best weights were restored. The page can be written without it. */
static void load_callbacks(weft_job_run *run)
{
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open_latest(run->ctx, run->job->checkpoint_dir, &c);

    for (int i = 0; i < run->n_callbacks && !st; i++) {
        const weft_callback *cb = &run->callback[i];

        if (cb == run->times || strcmp(cb->name ? cb->name : "", "EarlyStopping") == 0)
            st = wf_resume_callback(run->ctx, c, cb);
    }
    weft_ckpt_close(c);
    if (st && st != WEFT_ENOENT)
        wf_log(run->ctx, WEFT_LOG_WARN, "report: %s", weft_error());
}

weft_status weft_job_report(weft_job_run *run, const weft_history *h, const char *path)
{
    if (!run->trainer->all_times.steps && run->trainer->n_changed)
        return wf_err(
            WEFT_EINVAL,
            "report: %d setting%s of the model or its data changed since training: the report "
            "would not describe the run",
            run->trainer->n_changed, run->trainer->n_changed == 1 ? "" : "s");
    if (!run->trainer->all_times.steps && run->job->checkpoint_dir && *run->job->checkpoint_dir)
        load_callbacks(run);
    return wf_report_write(run, h, path);
}
