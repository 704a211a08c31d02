/* loss.h - shared by the files of losses and metrics: rows, arguments, matching labels to
 * predictions. */
#ifndef WF_MODEL_LOSS_H
#define WF_MODEL_LOSS_H

#include "model/model.h"
#include "weft/sys/loss.h"

/* ---- arguments ------------------------------------------------------------------------------- */

/* Values of a row's arguments, in the order of its attrs text. */
struct wf_args {
    const char *attrs;
    const struct wf_attr *value;
};
const struct wf_attr *wf_arg(const struct wf_args *a, const char *name);
static inline int64_t wf_arg_int(const struct wf_args *a, const char *name)
{
    return wf_arg(a, name)->i;
}
static inline double wf_arg_float(const struct wf_args *a, const char *name)
{
    return wf_arg(a, name)->f;
}
static inline const char *wf_arg_text(const struct wf_args *a, const char *name)
{
    const char *s = wf_arg(a, name)->s;

    return s ? s : "";
}
/* Optional arguments are lists of at most one integer: false if it is omitted. */
bool wf_arg_maybe(const struct wf_args *a, const char *name, int64_t *out);

/* ---- texts ----------------------------------------------------------------------------------- */

enum { WF_MAX_KIND_NAME = 64 };
/* The first word of a text, reduced to letters and digits in lower case: "Mean_Squared" ->
 * "meansquared". *rest is what follows it. False if it is empty or too long. */
bool wf_kind_word(const char *text, char out[WF_MAX_KIND_NAME], const char **rest);
/* Whether the word names a row: its name in the same form, or one of its short names. */
bool wf_kind_is(const char *word, const char *name, const char *shorts);

/* ---- losses ---------------------------------------------------------------------------------- */

/* A loss being built: labels and predictions of one float type (labels of a sparse loss are
 * integers) and equal rank. */
struct wf_loss {
    weft_graph *g;
    weft_val y, pred;
    struct wf_args args;
    const struct wf_loss_kind *kind;
};
typedef weft_val wf_loss_fn(struct wf_loss *l);

struct wf_loss_kind {
    const char *name, *shorts, *attrs;
    wf_loss_fn *fn;
    int labels; /* weft_labels */
    const char *doc;
    const weft_loss_kind *user; /* registered by a user; NULL: a row of the table */
};
#define LOSS(name, shorts, attrs, fn, labels, doc) wf_loss_fn wf_loss_##fn;
#include "model/losses.def"
#undef LOSS
/* By its word: of the table, or registered in m (which may be NULL). NULL: none. */
const struct wf_loss_kind *wf_loss_kind_of(const weft_model *m, const char *word);
const struct wf_loss_kind *wf_loss_kind_at(int i); /* NULL past the end */
bool wf_loss_is_reserved(const char *word); /* a word with a meaning that is not a row: "none" */

/* Runs a row's function on labels and predictions as they come. */
weft_status wf_loss_values(weft_graph *g, const struct wf_loss_kind *kind,
                           const struct wf_attr *attr, weft_val y, weft_val pred, weft_val *out);

/* Which labels are not ignored (ignore_class), bool; nil if none are. */
weft_status wf_loss_ignored(weft_graph *g, const struct wf_loss_kind *kind,
                            const struct wf_attr *attr, weft_val y, weft_val pred, weft_val *mask);

/* ---- registered by users (custom.c) ---------------------------------------------------------- */

const struct wf_loss_kind *wf_user_loss_of(const weft_model *m, const char *word);
/* Names, at most `room` of them; how many. */
int wf_user_loss_names(const weft_model *m, int room, const char **names);
int wf_user_metric_names(const weft_model *m, int room, const char **names);

/* ---- values ---------------------------------------------------------------------------------- */

/* Rows of ranks that differ by one and end in 1 are squeezed or expanded as Keras does. */
void wf_fit_ranks(weft_graph *g, weft_val *a, weft_val *b);
/* Labels and predictions of one float type and rank; WEFT_LABELS_NUMBERS: labels as integers
 * without the axis of classes. `what` is named in errors. */
weft_status wf_fit_labels(weft_graph *g, const char *what, int labels, weft_val *y, weft_val *pred);
/* x as dtype t; x itself when it has it. */
weft_val wf_as(weft_graph *g, weft_val x, weft_dtype t);
/* The float type that losses are computed in: f64 stays, all others become f32. */
weft_val wf_as_float(weft_graph *g, weft_val x);
weft_val wf_sum_axis(weft_graph *g, weft_val x, int64_t axis, bool keepdims);
weft_val wf_mean_axis(weft_graph *g, weft_val x, int64_t axis, bool keepdims);
/* x / |x| along an axis, as Keras' normalize: |x| counts as at least 1e-7. */
weft_val wf_normalize(weft_graph *g, weft_val x, int64_t axis);
/* a·x + b */
weft_val wf_affine(weft_graph *g, weft_val x, double a, double b);

#define WF_EPSILON 1e-7

#endif
