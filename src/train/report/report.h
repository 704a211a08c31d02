/* report.h - the parts of the page about a run: times of epochs, a review of predictions,
 * curves, and the page itself. */
#ifndef WF_TRAIN_REPORT_REPORT_H
#define WF_TRAIN_REPORT_REPORT_H

#include "train/job/job.h"
#include "train/report/picture.h"

/* ---- times (times.c) ------------------------------------------------------------------------- */

struct wf_times_row {
    int64_t epoch, steps;
    double train_s, wait_s, validate_s, stall_s;
    double rate; /* of learning, in the epoch's last step */
};
/* A callback that notes a row an epoch; checkpoints keep them. */
weft_status wf_report_times_make(weft_ctx *ctx, weft_callback *out);
const struct wf_times_row *wf_report_times(const weft_callback *cb, int64_t *n);

/* ---- review (review.c) ----------------------------------------------------------------------- */

#define WF_REVIEW_CLASSES 50
#define WF_REVIEW_MISTAKES 24

struct wf_mistake {
    int64_t sample; /* its number in the data */
    int truth, guess;
    double p_truth, p_guess;
    uint8_t *pixels; /* NULL: no picture */
};

/* What a classifier says of the job's test data, or else of its validation data. */
struct wf_review {
    weft_ctx *ctx;
    const char *part; /* NULL: there is no such data, or the model is not a classifier */
    int n_classes;
    int64_t n, n_right, *confusion; /* [truth][guess] */
    bool pictures;
    struct wf_picture picture, shown; /* as the data has it; as it is kept: no side over 256 */
    int n_mistakes;                   /* the worst, the least likely truth first */
    struct wf_mistake mistake[WF_REVIEW_MISTAKES + 1];
    const char *const *class_name; /* or NULL */
    /* Of up to WF_REVIEW_CURVES classes, for curves: the probabilities of the first samples, and what they are. */
    float *score; /* [n_scored][n_classes] */
    uint8_t *truth;
    int64_t n_scored, score_cap, truth_cap;
};
#define WF_REVIEW_CURVES 8
weft_status wf_review_make(weft_job_run *run, struct wf_review *out);
void wf_review_free(struct wf_review *r);
/* The name of a class, or its number. */
void wf_review_class(struct wf_buf *b, const struct wf_review *r, int i);
/* ROC and precision-recall curves: of class 1 of two, or of each against the rest (roc.c). */
weft_status wf_review_put_curves(struct wf_buf *b, const struct wf_review *r);

/* Data that the model was not trained on: test, or else validation; {0}: there is none. */
weft_status wf_report_data(weft_job_run *run, weft_ds *out, const char **part);

/* Predictions of it, batch by batch. The trainer is as before afterwards, states of stateful layers included. */
weft_status wf_report_predict(weft_job_run *run, weft_ds s, weft_predict_fn *fn, void *arg);

/* ---- regression (regression.c) --------------------------------------------------------------- */

#define WF_REGRESSION_ERRORS 12

struct wf_error {
    int64_t sample; /* its number in the data */
    int which;      /* of the sample's values */
    double truth, guess;
};

/* What a model that predicts quantities says of the same data. */
struct wf_regression {
    weft_ctx *ctx;
    const char *part;     /* NULL: there is no such data, or the model predicts something else */
    int width;            /* values of a sample */
    double scale, offset; /* to the label's own units */
    int64_t n, n_bad, seen;
    double sum, sum_abs, sum_square; /* of errors */
    double mean, spread;             /* of the truth: its mean, and the squares around it */
    double *kept;                    /* truth and guess of the first values */
    int64_t n_kept, cap;
    int n_errors; /* the largest first */
    struct wf_error error[WF_REGRESSION_ERRORS];
};
weft_status wf_regression_make(weft_job_run *run, struct wf_regression *out);
void wf_regression_free(struct wf_regression *r);
double wf_regression_r2(const struct wf_regression *r); /* NaN where the truth does not vary */
void wf_regression_put(struct wf_buf *b, const struct wf_regression *r);

/* ---- drawing (svg.c) ------------------------------------------------------------------------- */

struct wf_series {
    const char *label, *look; /* look: a class of the page's style */
    const double *v;          /* point i is v[i * stride]; NaN: none */
    int64_t stride;
};
/* Curves over x = first, first + 1, … with axes and legend. */
void wf_svg_curves(struct wf_buf *b, const char *title, int64_t first, int64_t n, int n_series,
                   const struct wf_series *series);
/* Lines through points (x, y) of 0 to 1, n[k] of them for series k; v has x and y by turns, looks are classes of the style. */
void wf_svg_unit_lines(struct wf_buf *b, const char *title, const char *x_name, bool diagonal,
                       int n_series, const int64_t *n, const double *const *v,
                       const char *const *looks);
/* n points (v[i * stride], v[i * stride + 1]) and the line on which both are equal. */
void wf_svg_scatter(struct wf_buf *b, const char *title, const char *x_name, int64_t n,
                    const double *v, int64_t stride);
/* Counts of values between lo + i * width and lo + (i + 1) * width. */
void wf_svg_bars(struct wf_buf *b, const char *title, const char *x_name, double lo, double width,
                 int n, const int64_t *count);
/* A number with so many digits; 10118, not 1.012e+04. */
void wf_html_number(struct wf_buf *b, double v, int digits);
/* Text for a page: &, <, > and quotes as entities. */
void wf_html_text(struct wf_buf *b, const char *text);

/* Everything of a page up to its heading (style.c). */
void wf_page_begin(struct wf_buf *b, const char *title);

/* ---- the page (report.c) --------------------------------------------------------------------- */

weft_status wf_report_write(weft_job_run *run, const weft_history *h, const char *path);

#endif
