/* grads.h - gradients as values: a flat vector of the dense ones, ids and rows of the sparse
 * ones. */
#ifndef WF_TRAIN_STEP_GRADS_H
#define WF_TRAIN_STEP_GRADS_H

#include "train/train.h"
#include "weft/loop.h"

/* One weight in it. */
struct wf_grad_entry {
    const char *name;
    int weight; /* its number in the model */
    bool sparse;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    int64_t count, offset; /* dense: number of floats, and their offset */
};

struct wf_grad_rows {
    int64_t n, cap_ids, cap_rows;
    int64_t *id;
    float *row; /* [n][width] */
};

struct weft_grads {
    weft_ctx *ctx;
    struct wf_arena arena;
    int n;
    struct wf_grad_entry *entry;
    int64_t n_dense;
    float *dense;
    struct wf_grad_rows *rows; /* by entry */
    double weight;
    bool bad; /* some of it is not finite: checked if the loss is scaled */
};

weft_status wf_grads_new(weft_ctx *ctx, int n, const struct wf_grad_entry *entry, weft_grads **out);
/* The same weights, of the same shapes and kinds. */
bool wf_grads_fit(const weft_grads *g, int n, const struct wf_grad_entry *entry);
void wf_grads_clear(weft_grads *g);
/* Appends rows; ids i32 or i64 of any shape, rows [ids…, width]. */
weft_status wf_grads_append(weft_grads *g, int i, const weft_tensor *ids, const weft_tensor *rows);
/* to += factor · from, without the weights; sparse rows are appended. */
weft_status wf_grads_add_scaled(weft_grads *to, const weft_grads *from, float factor);

#endif
