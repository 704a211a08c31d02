/* metric.h - shared by the files of metrics: rows and families.
 *
 * A family has functions to check the arguments independently of shapes, to set the number of sums
 * and results (and check the shapes), to compute the sums of a batch, and to compute the results
 * from the sums. Increments are f32, sums are f64. */
#ifndef WF_MODEL_METRIC_H
#define WF_MODEL_METRIC_H

#include "model/loss.h"

enum wf_mean_variant {
    MEAN_EQUAL,
    MEAN_BINARY,
    MEAN_CATEGORICAL,
    MEAN_SPARSE,
    MEAN_TOP_K,
    MEAN_SPARSE_TOP_K,
    MEAN_ROOT,
    MEAN_COSINE,
    MEAN_PEARSON,
    MEAN_CONCORDANCE,
    MEAN_VALUES,
    MEAN_SUM,
};

/* For means of losses: the mean, or e to the power of it. */
enum wf_loss_variant { LOSS_MEAN, LOSS_EXP };

enum wf_curve_variant {
    CURVE_TP,
    CURVE_TN,
    CURVE_FP,
    CURVE_FN,
    CURVE_PRECISION,
    CURVE_RECALL,
    CURVE_AUC,
    CURVE_PRECISION_AT,
    CURVE_RECALL_AT,
    CURVE_SENSITIVITY_AT,
    CURVE_SPECIFICITY_AT,
};

enum { WF_METRIC_MAX_RESULTS = 1024, WF_METRIC_MAX_SUMS = 65536 };

enum wf_iou_variant { IOU_CLASSES, IOU_MEAN, IOU_BINARY };

/* A batch of a metric: predictions and labels as given, float predictions. */
struct wf_metric_batch {
    weft_graph *g;
    const struct wf_metric *m;
    struct wf_args args;
    weft_val y, pred, weight;
};

struct wf_metric_kind;
struct wf_metric_family {
    /* Checks only the arguments; NULL: all are valid. */
    weft_status (*check)(const struct wf_metric_kind *kind, const struct wf_args *args);
    /* Sets n_state, and n_results if it is not 1. */
    weft_status (*init)(struct wf_metric *m, const struct wf_args *args, const struct wf_type *y,
                        const struct wf_type *pred);
    /* The sums, f32 of any shape with n_state elements; nil if the graph failed. */
    weft_val (*build)(struct wf_metric_batch *b);
    /* Writes n_results values. */
    void (*result)(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                   double *out);
    /* What is appended to the name for result i; NULL: "_" and its number. */
    void (*suffix)(const struct wf_metric *m, const struct wf_args *args, int i,
                   char out[WF_METRIC_SUFFIX]);
};
extern const struct wf_metric_family wf_metric_mean, wf_metric_loss, wf_metric_curve,
    wf_metric_f_score, wf_metric_iou, wf_metric_r2, wf_metric_user;

struct wf_metric_kind {
    const char *name, *log_name, *shorts, *attrs;
    const struct wf_metric_family *family;
    int variant, direction;
    const char *doc;
    const weft_metric_kind *user; /* registered by a user; NULL: a row of the table */
};
/* By its word: of the table, or registered in m (which may be NULL). NULL: none. */
const struct wf_metric_kind *wf_metric_kind_of(const weft_model *m, const char *word);
const struct wf_metric_kind *wf_user_metric_of(const weft_model *m, const char *word);
bool wf_metric_is_reserved(const char *word);
/* The row's arguments: of a mean of a loss, those of the loss. */
const char *wf_metric_attrs(const struct wf_metric_kind *kind);
/* The loss that a metric is the mean of: the one with its name; for Perplexity, the cross-entropy
 * of class numbers. NULL: none. */
const struct wf_loss_kind *wf_metric_loss_of(const struct wf_metric_kind *kind);

static inline double wf_ratio(double a, double b) /* 0 if b is 0 */
{
    return b != 0 ? a / b : 0;
}

/* [sum, weight] of values [batch, …], as in Keras' Mean. weight may be nil. */
weft_val wf_metric_mean_of(weft_graph *g, weft_val values, weft_val weight);

#endif
