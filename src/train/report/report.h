/* report.h - the parts of a run's report: times of epochs, a review of predictions, curves, and the
 * page itself. */
#ifndef WF_TRAIN_REPORT_REPORT_H
#define WF_TRAIN_REPORT_REPORT_H

#include "train/job/job.h"
#include "train/report/picture.h"

/* ---- times (times.c) ------------------------------------------------------------------------- */

struct wf_times_row {
    int64_t epoch, steps;
    double train_s, wait_s, validate_s, stall_s;
    double rate; /* learning rate in the epoch's last step */
};
/* A callback that records one row per epoch; checkpoints contain the rows. */
weft_status wf_report_times_make(weft_ctx *ctx, weft_callback *out);
const struct wf_times_row *wf_report_times(const weft_callback *cb, int64_t *n);

/* ---- review (review.c) ----------------------------------------------------------------------- */

#define WF_REVIEW_CLASSES 50
#define WF_REVIEW_MISTAKES 24

struct wf_mistake {
    int64_t sample; /* its index in the data */
    int truth, guess;
    double p_truth, p_guess;
    uint8_t *pixels; /* NULL: no image */
};

/* How a classifier does on the job's test data, or on its validation data if there is no test
 * data. */
struct wf_review {
    weft_ctx *ctx;
    const char *part; /* NULL: no such data, or the model is not a classifier */
    int n_classes;
    int64_t n, n_right, *confusion; /* [truth][guess] */
    bool pictures;
    struct wf_picture picture, shown; /* as in the data; as kept: no side over 256 */
    int n_mistakes;                   /* the worst ones, least likely truth first */
    struct wf_mistake mistake[WF_REVIEW_MISTAKES + 1];
    const char *const *class_name; /* or NULL */
    /* For the curves of up to WF_REVIEW_CURVES classes: probabilities and classes of the first
     * samples. */
    float *score; /* [n_scored][n_classes] */
    uint8_t *truth;
    int64_t n_scored, score_cap, truth_cap;
};
#define WF_REVIEW_CURVES 8
weft_status wf_review_make(weft_job_run *run, struct wf_review *out);
void wf_review_free(struct wf_review *r);
/* The name of a class, or its number. */
void wf_review_class(struct wf_buf *b, const struct wf_review *r, int i);
/* ROC and precision-recall curves: of class 1 of two, or of each class against the rest (roc.c). */
weft_status wf_review_put_curves(struct wf_buf *b, const struct wf_review *r);

/* Data the model was not trained on: test, or else validation; {0}: none. */
weft_status wf_report_data(weft_job_run *run, weft_ds *out, const char **part);

/* Predicts it batch by batch. Leaves the trainer unchanged, including states of stateful layers. */
weft_status wf_report_predict(weft_job_run *run, weft_ds s, weft_predict_fn *fn, void *arg);

/* ---- regression (regression.c) --------------------------------------------------------------- */

#define WF_REGRESSION_ERRORS 12

struct wf_error {
    int64_t sample; /* its index in the data */
    int which;      /* index of the value in the sample */
    double truth, guess;
};

/* How a regression model does on the same data. */
struct wf_regression {
    weft_ctx *ctx;
    const char *part;     /* NULL: no such data, or the model predicts something else */
    int width;            /* values per sample */
    double scale, offset; /* to the label's units */
    int64_t n, n_bad, seen;
    double sum, sum_abs, sum_square; /* of errors */
    double mean, spread;             /* of the truth: mean, and sum of squared deviations */
    double *kept;                    /* truth and prediction of the first values */
    int64_t n_kept, cap;
    int n_errors; /* largest first */
    struct wf_error error[WF_REGRESSION_ERRORS];
};
weft_status wf_regression_make(weft_job_run *run, struct wf_regression *out);
void wf_regression_free(struct wf_regression *r);
double wf_regression_r2(const struct wf_regression *r); /* NaN if the truth is constant */
void wf_regression_put(struct wf_buf *b, const struct wf_regression *r);

/* ---- drawing (svg.c) ------------------------------------------------------------------------- */

struct wf_series {
    const char *label, *look; /* look: a CSS class of the page */
    const double *v;          /* point i is v[i * stride]; NaN: none */
    int64_t stride;
};
/* Curves over x = first, first + 1, ... with axes and a legend. */
void wf_svg_curves(struct wf_buf *b, const char *title, int64_t first, int64_t n, int n_series,
                   const struct wf_series *series);
/* Lines through points (x, y) in 0..1: series k has n[k] points, v holds x and y alternately, looks
 * are CSS classes. */
void wf_svg_unit_lines(struct wf_buf *b, const char *title, const char *x_name, bool diagonal,
                       int n_series, const int64_t *n, const double *const *v,
                       const char *const *looks);
/* n points (v[i * stride], v[i * stride + 1]) and the diagonal on which both are equal. */
void wf_svg_scatter(struct wf_buf *b, const char *title, const char *x_name, int64_t n,
                    const double *v, int64_t stride);
/* Counts of values between lo + i * width and lo + (i + 1) * width. */
void wf_svg_bars(struct wf_buf *b, const char *title, const char *x_name, double lo, double width,
                 int n, const int64_t *count);
/* A number with the given number of digits; 10118, not 1.012e+04. */
void wf_html_number(struct wf_buf *b, double v, int digits);
/* Text for HTML: &, <, > and quotes become entities. */
void wf_html_text(struct wf_buf *b, const char *text);

/* Everything before the page's heading (style.c). */
void wf_page_begin(struct wf_buf *b, const char *title);

/* ---- the page (report.c) --------------------------------------------------------------------- */

weft_status wf_report_write(weft_job_run *run, const weft_history *h, const char *path);

#endif
