/* regression.c - how well a regression model predicts data it was not trained on: predicted against
 * true values, residuals, and the largest errors. Sums are over all values, plots over the first
 * ones. */
#define _GNU_SOURCE
#include <math.h>

#include "train/report/report.h"

#define MAX_WIDTH 16    /* values per sample; more is an image or a sequence */
#define MAX_KEPT 200000 /* values kept for the plots */
#define MAX_POINTS 1500 /* points in the scatter plot */
#define N_BINS 31       /* odd: the middle bin is centered on zero */

static double value_at(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32: return (double)((const float *)t->data)[i];
    case WEFT_F64: return ((const double *)t->data)[i];
    case WEFT_I32: return ((const int32_t *)t->data)[i];
    case WEFT_I64: return (double)((const int64_t *)t->data)[i];
    case WEFT_U8: return ((const uint8_t *)t->data)[i];
    case WEFT_I8: return ((const int8_t *)t->data)[i];
    default: return NAN;
    }
}

static void keep_error(struct wf_regression *r, struct wf_error e)
{
    int at = r->n_errors;

    if (at == WF_REGRESSION_ERRORS &&
        !(fabs(e.guess - e.truth) > fabs(r->error[at - 1].guess - r->error[at - 1].truth)))
        return;
    if (at < WF_REGRESSION_ERRORS)
        r->n_errors = at + 1;
    else
        at--;
    for (;
         at > 0 && fabs(e.guess - e.truth) > fabs(r->error[at - 1].guess - r->error[at - 1].truth);
         at--)
        r->error[at] = r->error[at - 1];
    r->error[at] = e;
}

static weft_status add_value(struct wf_regression *r, const struct wf_error *e)
{
    double d = e->guess - e->truth, shift;
    weft_status st;

    if (!isfinite(d)) {
        r->n_bad++;
        return WEFT_OK;
    }
    r->n++;
    r->sum_abs += fabs(d);
    r->sum_square += d * d;
    r->sum += d;
    shift = e->truth - r->mean; /* Welford: mean of the truth and squared deviations from it */
    r->mean += shift / (double)r->n;
    r->spread += shift * (e->truth - r->mean);
    keep_error(r, *e);
    if (r->n_kept == MAX_KEPT)
        return WEFT_OK;
    st = wf_grow(r->ctx, &r->kept, &r->cap, 2 * (r->n_kept + 1), sizeof *r->kept);
    if (st)
        return st;
    r->kept[2 * r->n_kept] = e->truth;
    r->kept[2 * r->n_kept + 1] = e->guess;
    r->n_kept++;
    return WEFT_OK;
}

static weft_status look(void *arg, const weft_batch *b, int n_outputs, const weft_tensor *out)
{
    struct wf_regression *r = arg;
    const weft_tensor *y = NULL;
    int64_t n = weft_tensor_count(&out[0]);
    weft_status st = WEFT_OK;

    (void)n_outputs;
    for (int i = 0; i < b->n_cols && !y; i++)
        y = b->column[i].role == WEFT_LABEL ? &b->col[i] : NULL;
    if (!y || !b->n || weft_tensor_count(y) != n || n / b->n > MAX_WIDTH)
        return WEFT_OK;
    r->width = (int)(n / b->n);
    for (int64_t i = 0; i < n && !st; i++) {
        int64_t row = i / r->width;
        struct wf_error e = {.sample = b->id ? b->id[row] : r->seen + row,
                             .which = (int)(i % r->width),
                             .truth = value_at(y, i) * r->scale + r->offset,
                             .guess = value_at(&out[0], i) * r->scale + r->offset};

        st = add_value(r, &e);
    }
    r->seen += b->n;
    return st;
}

weft_status wf_regression_make(weft_job_run *run, struct wf_regression *out)
{
    weft_trainer *t = run->trainer;
    weft_job_output o;
    const char *part;
    weft_ds s;
    weft_status st;

    *out = (struct wf_regression){.ctx = run->ctx};
    if (t->n_out != 1)
        return WEFT_OK;
    st = weft_job_output_at(run, 0, &o);
    if (st || o.kind != WEFT_OUTPUT_QUANTITIES)
        return st;
    out->scale = o.scale;
    out->offset = o.offset;
    st = wf_report_data(run, &s, &part);
    if (st || !s.id)
        return st;
    st = wf_report_predict(run, s, look, out);
    if (!st && out->n)
        out->part = part;
    return st;
}

void wf_regression_free(struct wf_regression *r)
{
    wf_free(r->ctx, r->kept);
    r->kept = NULL;
    r->n_kept = 0;
}

double wf_regression_r2(const struct wf_regression *r)
{
    return r->spread > 0 ? 1 - r->sum_square / r->spread : NAN;
}

/* ---- on the page ----------------------------------------------------------------------------- */

static void put_scatter(struct wf_buf *b, const struct wf_regression *r)
{
    int64_t stride = (r->n_kept + MAX_POINTS - 1) / MAX_POINTS;

    wf_buf_printf(b, "<div class=\"card\">");
    wf_svg_scatter(b, "predicted against true", "true", (r->n_kept + stride - 1) / stride, r->kept,
                   2 * stride);
    wf_buf_printf(b, "</div>\n");
}

/* Bins centered on zero; the outermost ones also count what lies beyond them. */
static void put_histogram(struct wf_buf *b, const struct wf_regression *r)
{
    double most = 0, width;
    int64_t count[N_BINS] = {0};

    for (int64_t i = 0; i < r->n_kept; i++)
        most = fmax(most, fabs(r->kept[2 * i + 1] - r->kept[2 * i]));
    width = most > 0 ? 2 * most / N_BINS : 1;
    for (int64_t i = 0; i < r->n_kept; i++) {
        double at = floor((r->kept[2 * i + 1] - r->kept[2 * i]) / width + 0.5) + N_BINS / 2;

        count[(int)fmin(fmax(at, 0), N_BINS - 1)]++;
    }
    wf_buf_printf(b, "<div class=\"card\">");
    wf_svg_bars(b, "errors", "predicted minus true", -width * N_BINS / 2, width, N_BINS, count);
    wf_buf_printf(b, "</div>\n");
}

static void put_errors(struct wf_buf *b, const struct wf_regression *r)
{
    wf_buf_printf(b,
                  "<h2>Largest errors</h2><div class=\"scroll\"><table><tr><th>sample</th>%s"
                  "<th>true</th><th>predicted</th><th>error</th></tr>\n",
                  r->width > 1 ? "<th>value</th>" : "");
    for (int i = 0; i < r->n_errors; i++) {
        const struct wf_error *e = &r->error[i];

        wf_buf_printf(b, "<tr><td>#%lld</td>", (long long)e->sample);
        if (r->width > 1)
            wf_buf_printf(b, "<td>%d</td>", e->which);
        wf_buf_printf(b, "<td>");
        wf_html_number(b, e->truth, 5);
        wf_buf_printf(b, "</td><td>");
        wf_html_number(b, e->guess, 5);
        wf_buf_printf(b, "</td><td class=\"no\">%s", e->guess > e->truth ? "+" : "");
        wf_html_number(b, e->guess - e->truth, 5);
        wf_buf_printf(b, "</td></tr>\n");
    }
    wf_buf_printf(b, "</table></div>\n");
}

void wf_regression_put(struct wf_buf *b, const struct wf_regression *r)
{
    double n = (double)r->n;

    if (!r->part)
        return;
    wf_buf_printf(b,
                  "<h2>Predictions</h2><p class=\"soft\">%lld value%s of the %s data: mean error ",
                  (long long)r->n, r->n == 1 ? "" : "s", r->part);
    wf_html_number(b, r->sum / n, 4);
    wf_buf_printf(b, ", mean absolute error ");
    wf_html_number(b, r->sum_abs / n, 4);
    wf_buf_printf(b, ", root mean square error ");
    wf_html_number(b, sqrt(r->sum_square / n), 4);
    wf_buf_printf(b, isfinite(wf_regression_r2(r)) ? ", R² %.4f." : ".", wf_regression_r2(r));
    if (r->n_bad)
        wf_buf_printf(b, " %lld more are NaN or infinite.", (long long)r->n_bad);
    wf_buf_printf(b, "</p><div class=\"grid\">\n");
    put_scatter(b, r);
    put_histogram(b, r);
    wf_buf_printf(b, "</div>\n");
    put_errors(b, r);
}
