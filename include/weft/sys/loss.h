/* weft/sys/loss.h - for people who write losses and metrics of their own.
 *
 * A kind has a name, arguments and a function that turns labels and predictions into graph nodes.
 * Register it in a model, then use its name wherever a built-in name works:
 *
 *   weft_loss_register(m, &asymmetric);
 *   weft_metric_register(m, &within);
 *   weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "asymmetric over=3",
 *                             .metrics = "within tolerance=0.5"), &t);
 *
 * Gradients, sample weights, masks, shards and logging work as for built-in kinds. The function
 * must be made of differentiable ops where gradients are wanted, and it must give the same nodes
 * each time it is called. examples/custom_loss.c is a complete program. */
#ifndef WEFT_SYS_LOSS_H
#define WEFT_SYS_LOSS_H

#include "weft/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One use of a loss or metric: labels, predictions, arguments. Valid inside the function only. */
typedef struct weft_loss_call weft_loss_call;

/* What labels are. */
enum weft_labels {
    WEFT_LABELS_VALUES,  /* numbers, in the dtype and rank of the predictions */
    WEFT_LABELS_CLASSES, /* the same, and class_weights may be given: 0 and 1, one-hot rows */
    WEFT_LABELS_NUMBERS  /* integers without the axis of classes; class_weights may be given */
};

typedef struct weft_loss_kind {
    size_t size;
    const char *name;  /* "Asymmetric"; case and underscores do not matter when it is looked up */
    const char *attrs; /* "over:f=1 under:f=1", as in weft_layer_kind; NULL: none */
    int labels;        /* weft_labels */
    /* The loss of each sample (or of each sample and leading axis), before weights and means: the
     * predictions' shape without the last axis. Predictions are f32 or f64. */
    weft_val (*build)(weft_loss_call *c);
    const char *doc; /* one line */
} weft_loss_kind;

typedef struct weft_metric_kind {
    size_t size;
    const char *name;
    const char *attrs;
    int labels;    /* weft_labels */
    int direction; /* 1: larger is better, -1: smaller is better, 0: neither */
    /* 0: build gives one value for each sample, and the metric is their mean, by weight. Otherwise
     * build gives this many sums over the batch (f32), weft adds them up in f64 over an epoch, and
     * result makes one number of them. */
    int n_sums;
    weft_val (*build)(weft_loss_call *c);
    double (*result)(const weft_loss_call *c, const double *sums); /* NULL when n_sums is 0 */
    const char *doc;
} weft_metric_kind;

/* For this model alone, and for models cut from it. The struct is copied, its strings are not.
 * WEFT_EEXIST: the name is taken. Compiling with a name that is not registered is an error that
 * names it; so is compiling like a saved model (weft_compile_opts.like) that was trained with
 * it. */
WEFT_API weft_status weft_loss_register(weft_model *m, const weft_loss_kind *kind);
WEFT_API weft_status weft_metric_register(weft_model *m, const weft_metric_kind *kind);

/* ---- inside build and result ----------------------------------------------------------------- */

WEFT_API weft_graph *weft_loss_graph(weft_loss_call *c); /* NULL in result */
WEFT_API weft_val weft_loss_label(const weft_loss_call *c);
WEFT_API weft_val weft_loss_pred(const weft_loss_call *c);
/* Weights of the samples, or WEFT_NIL. Only for metrics with sums; a mask is part of it. */
WEFT_API weft_val weft_loss_weight(const weft_loss_call *c);

WEFT_API int64_t weft_loss_int(const weft_loss_call *c, const char *attr);
WEFT_API double weft_loss_float(const weft_loss_call *c, const char *attr);
WEFT_API bool weft_loss_bool(const weft_loss_call *c, const char *attr);
WEFT_API const char *weft_loss_text(const weft_loss_call *c, const char *attr);
WEFT_API int weft_loss_ints(const weft_loss_call *c, const char *attr, const int64_t **out);
WEFT_API int weft_loss_floats(const weft_loss_call *c, const char *attr, const double **out);

/* Fails with a text that begins with the name of the loss or metric; returns WEFT_NIL. */
WEFT_API weft_val weft_loss_fail(weft_loss_call *c, weft_status st, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
