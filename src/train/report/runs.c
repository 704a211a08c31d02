/* runs.c - finished runs, read back and compared: settings that differ, last and best values,
 * curves in one plot. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>

#include "train/job/settings.h"
#include "train/loop/checkpoint.h"
#include "train/report/report.h"

#define MAX_RUNS 12 /* per page: colors that can be told apart */
#define MAX_PAGE ((int64_t)64 << 20)

/* A run with what it owns. */
struct whole_run {
    weft_run run;
    weft_ctx *ctx;
    char *path, *settings; /* settings: split into lines */
    const char **key, **value;
};

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status cut_settings(struct whole_run *r)
{
    int64_t n = 1;
    char *p = r->settings;

    for (const char *c = p; *c; c++)
        n += *c == '\n';
    r->key = wf_alloc_n(r->ctx, n, sizeof *r->key);
    r->value = wf_alloc_n(r->ctx, n, sizeof *r->value);
    if (!r->key || !r->value)
        return wf_err_nomem(r->ctx, 0, "settings");
    while (*p) {
        char *end = p + strcspn(p, "\n"), *eq;

        if (*end)
            *end++ = 0;
        eq = strchr(p, '=');
        if (eq) {
            *eq = 0;
            r->key[r->run.n_settings] = p;
            r->value[r->run.n_settings++] = eq + 1;
        }
        p = end;
    }
    r->run.key = r->key;
    r->run.value = r->value;
    return WEFT_OK;
}

/* What the newest checkpoint contains besides the history. */
static weft_status read_checkpoint(struct whole_run *r, weft_ckpt *c)
{
    const struct wf_times_row *row;
    weft_callback times = {0};
    int64_t n = 0;
    weft_status st = wf_report_times_make(r->ctx, &times);

    r->run.steps = weft_ckpt_info(c)->step;
    if (!st)
        st = wf_resume_callback(r->ctx, c, &times);
    row = st ? NULL : wf_report_times(&times, &n);
    for (int64_t i = 0; i < n; i++) {
        r->run.seconds = i ? r->run.seconds : 0;
        r->run.seconds += row[i].train_s + row[i].validate_s;
    }
    weft_callback_free(&times);
    if (!st && weft_ckpt_blob_read(c, WF_CKPT_SETTINGS, &r->settings, NULL) == WEFT_OK)
        st = cut_settings(r);
    return st;
}

weft_status weft_run_read(weft_ctx *ctx, const char *path, weft_run **out)
{
    struct whole_run *r = wf_alloc(ctx, sizeof *r);
    weft_history *h = NULL;
    weft_ckpt *c = NULL;
    weft_status st;

    if (!r)
        return wf_err_nomem(ctx, sizeof *r, "a run");
    r->ctx = ctx;
    r->run = (weft_run){.steps = -1, .seconds = NAN};
    r->path = wf_strdup(ctx, path);
    st = r->path ? weft_history_read(ctx, path, &h) : wf_err_nomem(ctx, 0, "a run");
    r->run.history = h;
    r->run.path = r->path;
    if (!st && weft_ckpt_open_latest(ctx, path, &c) == WEFT_OK)
        st = read_checkpoint(r, c);
    weft_ckpt_close(c);
    if (st) {
        weft_run_free(&r->run);
        return st;
    }
    *out = &r->run;
    return WEFT_OK;
}

void weft_run_free(weft_run *run)
{
    struct whole_run *r = (struct whole_run *)run; /* its first member */

    if (!r)
        return;
    weft_history_free((weft_history *)r->run.history);
    weft_text_free(r->ctx, r->settings);
    wf_free(r->ctx, r->key);
    wf_free(r->ctx, r->value);
    wf_free(r->ctx, r->path);
    wf_free(r->ctx, r);
}

/* ---- what differs ---------------------------------------------------------------------------- */

static const char *setting_of(const weft_run *r, const char *key)
{
    if (!r->n_settings)
        return NULL;
    for (int i = 0; i < r->n_settings; i++)
        if (strcmp(r->key[i], key) == 0)
            return r->value[i];
    return wf_job_key_default(key) ? wf_job_key_default(key) : "";
}

static bool changes_nothing(const char *key)
{
    static const char *const left_out[] = {"name", "save", "log", "checkpoint"};

    for (int i = 0; i < WF_COUNT(left_out); i++) {
        size_t n = strlen(left_out[i]);

        if (strncmp(key, left_out[i], n) == 0 && (!key[n] || key[n] == '.'))
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

weft_status weft_runs_differ(weft_ctx *ctx, int n, const weft_run *const *runs, weft_differ_fn *fn,
                             void *arg)
{
    const char **keys, **values;
    int64_t total = 0, m = 0;

    for (int i = 0; i < n; i++)
        total += runs[i]->n_settings;
    keys = wf_alloc_n(ctx, total + 1, sizeof *keys);
    values = wf_alloc_n(ctx, n + 1, sizeof *values);
    if (!keys || !values) {
        wf_free(ctx, keys);
        wf_free(ctx, values);
        return wf_err_nomem(ctx, 0, "settings");
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < runs[i]->n_settings; k++)
            keys[m++] = runs[i]->key[k];
    if (m)
        qsort(keys, (size_t)m, sizeof *keys, by_name);
    for (int64_t k = 0; k < m; k++) {
        const char *first = NULL;
        bool differs = false;

        if ((k && strcmp(keys[k], keys[k - 1]) == 0) || changes_nothing(keys[k]))
            continue;
        for (int i = 0; i < n; i++) {
            values[i] = setting_of(runs[i], keys[k]);
            first = first ? first : values[i];
            differs = differs || (values[i] && strcmp(values[i], first) != 0);
        }
        if (differs)
            fn(arg, keys[k], values);
    }
    wf_free(ctx, keys);
    wf_free(ctx, values);
    return WEFT_OK;
}

/* ---- the page -------------------------------------------------------------------------------- */

struct page {
    struct wf_buf b;
    int n;
    const weft_run *const *run;
    const char *const *name;
    int n_rows;
};

static int find_log(const weft_history *h, const char *name)
{
    for (int i = 0; i < h->n_names; i++)
        if (strcmp(h->name[i], name) == 0)
            return i;
    return -1;
}

static void put_setting(void *arg, const char *key, const char *const *values)
{
    struct page *p = arg;

    wf_buf_printf(&p->b, "<tr><td>");
    wf_html_text(&p->b, key);
    wf_buf_printf(&p->b, "</td>");
    for (int i = 0; i < p->n; i++) {
        wf_buf_printf(&p->b, "<td class=\"text\">");
        wf_html_text(&p->b, values[i] ? values[i] : "?");
        wf_buf_printf(&p->b, "</td>");
    }
    wf_buf_printf(&p->b, "</tr>\n");
    p->n_rows++;
}

static void put_table_head(struct page *p, const char *title)
{
    wf_buf_printf(&p->b, "<h2>%s</h2><div class=\"scroll\"><table><tr><th></th>", title);
    for (int i = 0; i < p->n; i++) {
        wf_buf_printf(&p->b, "<th><span class=\"key run%d\"></span>", i);
        wf_html_text(&p->b, p->name[i]);
        wf_buf_printf(&p->b, "</th>");
    }
    wf_buf_printf(&p->b, "</tr>\n");
}

/* The last and the best value of a log in each run; the best of all in bold. */
static void put_log_row(struct page *p, const char *name)
{
    int direction = weft_log_direction(name);
    double best_of_all = NAN;

    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            wf_buf_printf(&p->b, "<tr><td>");
            wf_html_text(&p->b, name);
            wf_buf_printf(&p->b, "</td>");
        }
        for (int i = 0; i < p->n; i++) {
            const weft_history *h = p->run[i]->history;
            int k = find_log(h, name);
            double last = NAN, best = NAN;
            int64_t at = 0;

            for (int64_t e = 0; e < h->n_epochs && k >= 0; e++) {
                double v = h->value[e * h->n_names + k];

                if (isnan(v))
                    continue;
                last = v;
                if (isnan(best) || direction * (v - best) > 0) {
                    best = v;
                    at = e;
                }
            }
            if (!direction)
                best = last;
            if (!pass) {
                if (!isnan(best) && (isnan(best_of_all) || direction * (best - best_of_all) > 0))
                    best_of_all = best;
                continue;
            }
            if (isnan(last)) {
                wf_buf_printf(&p->b, "<td>–</td>");
                continue;
            }
            wf_buf_printf(&p->b, direction && best == best_of_all ? "<td><b>%.5g</b>" : "<td>%.5g",
                          best);
            if (direction)
                wf_buf_printf(&p->b, "<span class=\"soft\"> (epoch %lld; last %.5g)</span>",
                              (long long)(h->first_epoch + at + 1), last);
            wf_buf_printf(&p->b, "</td>");
        }
    }
    wf_buf_printf(&p->b, "</tr>\n");
}

static void put_time_row(struct page *p)
{
    wf_buf_printf(&p->b, "<tr><td>epochs</td>");
    for (int i = 0; i < p->n; i++)
        wf_buf_printf(&p->b, "<td>%lld</td>",
                      (long long)(p->run[i]->history->first_epoch + p->run[i]->history->n_epochs));
    wf_buf_printf(&p->b, "</tr><tr><td>seconds</td>");
    for (int i = 0; i < p->n; i++)
        wf_buf_printf(&p->b, isnan(p->run[i]->seconds) ? "<td>–</td>" : "<td>%.4g</td>",
                      p->run[i]->seconds);
    wf_buf_printf(&p->b, "</tr>\n");
}

/* One log of all runs over the same epochs. */
static weft_status put_overlay(struct page *p, const char *name)
{
    static const char *const looks[MAX_RUNS] = {"run0", "run1", "run2", "run3", "run4",  "run5",
                                                "run6", "run7", "run8", "run9", "run10", "run11"};
    struct wf_series series[MAX_RUNS];
    int64_t first = INT64_MAX, last = 0, n;
    double *v;
    int n_series = 0;

    for (int i = 0; i < p->n; i++) {
        const weft_history *h = p->run[i]->history;

        first = wf_min_i64(first, h->first_epoch);
        last = wf_max_i64(last, h->first_epoch + h->n_epochs);
    }
    n = last - first;
    if (n <= 0 || n > (int64_t)1 << 24)
        return WEFT_OK;
    v = wf_alloc_n(p->b.ctx, n * p->n + 1, sizeof *v);
    if (!v)
        return wf_err_nomem(p->b.ctx, 0, "curves");
    for (int i = 0; i < p->n; i++) {
        const weft_history *h = p->run[i]->history;
        int k = find_log(h, name);

        for (int64_t e = 0; e < n; e++) {
            int64_t at = e + first - h->first_epoch;

            v[i * n + e] =
                k >= 0 && at >= 0 && at < h->n_epochs ? h->value[at * h->n_names + k] : NAN;
        }
        if (k >= 0)
            series[n_series++] = (struct wf_series){p->name[i], looks[i], v + i * n, 1};
    }
    wf_buf_printf(&p->b, "<div class=\"card\">");
    wf_svg_curves(&p->b, name, first + 1, n, n_series, series);
    wf_buf_printf(&p->b, "</div>\n");
    wf_free(p->b.ctx, v);
    return WEFT_OK;
}

/* Whether this is the first run that has the log. */
static bool is_new_log(const struct page *p, int run, const char *name)
{
    for (int i = 0; i < run; i++)
        if (find_log(p->run[i]->history, name) >= 0)
            return false;
    return true;
}

static weft_status put_logs(struct page *p, bool curves)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->run[i]->history->n_names && !st; k++) {
            const char *name = p->run[i]->history->name[k];

            if (!is_new_log(p, i, name))
                continue;
            if (curves)
                st = put_overlay(p, name);
            else
                put_log_row(p, name);
        }
    return st;
}

weft_status weft_runs_report(weft_ctx *ctx, int n, const weft_run *const *runs,
                             const char *const *names, const char *path)
{
    const char *paths[MAX_RUNS];
    struct page p = {.n = n, .run = runs, .name = names ? names : paths};
    weft_status st;

    if (n < 1 || n > MAX_RUNS)
        return wf_err(WEFT_EINVAL, "cannot compare %d runs on one page: the limit is 1 to %d", n,
                      MAX_RUNS);
    for (int i = 0; i < n; i++)
        paths[i] = runs[i]->path;
    wf_buf_init(&p.b, ctx, MAX_PAGE);
    wf_page_begin(&p.b, "Runs compared");
    put_table_head(&p, "Values");
    put_time_row(&p);
    st = put_logs(&p, false);
    wf_buf_printf(&p.b, "</table></div>\n<h2>Curves</h2><div class=\"grid\">\n");
    if (!st)
        st = put_logs(&p, true);
    wf_buf_printf(&p.b, "</div>\n");
    if (!st) {
        put_table_head(&p, "Settings that differ");
        st = weft_runs_differ(ctx, n, runs, put_setting, &p);
        wf_buf_printf(&p.b, "</table></div>\n%s</body></html>\n",
                      p.n_rows ? "" : "<p class=\"soft\">none are known</p>");
    }
    if (!st)
        st = p.b.st ? wf_err(p.b.st, "the page is too large") : WEFT_OK;
    if (!st)
        st = wf_file_write(ctx, path, p.b.data, p.b.len);
    wf_buf_free(&p.b);
    return st ? wf_err_wrap(st, "report") : WEFT_OK;
}
