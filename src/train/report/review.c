/* review.c - how well a trained classifier does on data it was not trained on: a confusion matrix,
 * and the mistakes it was most sure of, with their images. */
#define _GNU_SOURCE
#include <math.h>

#include "train/report/report.h"

#define MAX_SHOWN 256
#define MAX_SCORES 1000000 /* probabilities kept for the curves */

/* ---- which data ------------------------------------------------------------------------------ */

weft_status wf_report_data(weft_job_run *run, weft_ds *out, const char **part)
{
    weft_status st;

    *part = "test";
    st = weft_job_open_part(run, *part, out);
    if (st || out->id)
        return st;
    *part = "validation";
    return weft_job_open_part(run, *part, out);
}

/* Copies the states of stateful layers out of or into the trainer. */
static weft_status copy_states(weft_trainer *t, char *p, bool out)
{
    weft_status st = WEFT_OK;

    for (int i = wf_model_next_state(t->model, 0); i >= 0 && !st;
         i = wf_model_next_state(t->model, i + 1)) {
        weft_tensor w;

        st = weft_trainer_weight(t, wf_model_weight(t->model, i)->name, &w);
        if (st)
            break;
        if (out)
            memcpy(p, w.data, (size_t)weft_tensor_bytes(&w));
        else
            memcpy(w.data, p, (size_t)weft_tensor_bytes(&w));
        p += weft_tensor_bytes(&w);
    }
    return st;
}

static int64_t states_bytes(weft_trainer *t)
{
    int64_t bytes = 0;

    for (int i = wf_model_next_state(t->model, 0); i >= 0;
         i = wf_model_next_state(t->model, i + 1)) {
        weft_tensor w;

        if (!weft_trainer_weight(t, wf_model_weight(t->model, i)->name, &w))
            bytes += weft_tensor_bytes(&w);
    }
    return bytes;
}

/* A stateful model sees the data from its start, in full batches; afterwards its states are
 * restored. */
static weft_status predict_stateful(weft_job_run *run, weft_ds s, weft_predict_fn *fn, void *arg)
{
    weft_trainer *t = run->trainer;
    char *kept = wf_alloc(run->ctx, (size_t)states_bytes(t) + 1);
    weft_status st = kept ? copy_states(t, kept, true) : wf_err_nomem(run->ctx, 0, "states");

    if (!st && !wf_ds_node(run->data, s)->batched)
        s = weft_ds_batch(run->data, s, t->state_batch,
                          WEFT_OPTS(weft_batch_opts, .drop_remainder = true));
    if (!st)
        st = weft_data_status(run->data);
    if (!st)
        st = weft_trainer_reset_states(t, NULL);
    if (!st) {
        weft_status back;

        st = weft_predict(t, run->data, s, NULL, fn, arg);
        back = copy_states(t, kept, false);
        st = st ? st : back;
    }
    wf_free(run->ctx, kept);
    return st;
}

weft_status wf_report_predict(weft_job_run *run, weft_ds s, weft_predict_fn *fn, void *arg)
{
    if (run->trainer->stateful)
        return predict_stateful(run, s, fn, arg);
    return weft_predict(run->trainer, run->data, s, WEFT_OPTS(weft_eval_opts, .batch = 256), fn,
                        arg);
}

/* ---- one sample ------------------------------------------------------------------------------ */

/* Item i of a label tensor, or -1 if it is not a class. */
static int label_at(const weft_tensor *t, int64_t i)
{
    double v = -1;

    switch (t->dtype) {
    case WEFT_I32: v = ((const int32_t *)t->data)[i]; break;
    case WEFT_I64: v = (double)((const int64_t *)t->data)[i]; break;
    case WEFT_U8: v = ((const uint8_t *)t->data)[i]; break;
    case WEFT_I8: v = ((const int8_t *)t->data)[i]; break;
    case WEFT_BOOL: v = ((const uint8_t *)t->data)[i] != 0; break;
    case WEFT_F32: v = (double)((const float *)t->data)[i]; break;
    default: break;
    }
    return v >= 0 && v < WF_REVIEW_CLASSES ? (int)v : -1;
}

/* The class of sample i: a number, or the index of the largest value of a one-hot row. */
static int truth_of(const weft_tensor *y, int64_t n, int64_t i, int n_classes)
{
    int64_t row = n ? weft_tensor_count(y) / n : 0;
    int best = -1;
    float most = 0;

    if (row == 1)
        return label_at(y, i);
    if (row != n_classes || y->dtype != WEFT_F32)
        return -1;
    for (int k = 0; k < n_classes; k++) {
        float v = ((const float *)y->data)[i * row + k];

        if (best < 0 || v > most) {
            best = k;
            most = v;
        }
    }
    return best;
}

/* Probabilities of the classes; a single output is the probability of class 1. */
static void likelihood(const weft_job_output *o, const float *v, int n_out, double *p)
{
    double sum = 0;

    weft_job_output_read(o, n_out, v, n_out == 1 ? p + 1 : p);
    if (n_out == 1) {
        p[0] = 1 - p[1];
        return;
    }
    for (int k = 0; k < n_out; k++)
        sum += p[k];
    for (int k = 0; k < n_out; k++)
        p[k] = sum > 0 ? p[k] / sum : 0;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

struct pass {
    struct wf_review *r;
    const char *input; /* name of the model's input */
    weft_job_output output;
};

/* Keeps the first samples for the curves. */
static weft_status keep_score(struct wf_review *r, int truth, const double *p)
{
    int64_t n = r->n_classes;
    weft_status st;

    if (n > WF_REVIEW_CURVES || r->n_scored >= MAX_SCORES / n)
        return WEFT_OK;
    st = wf_grow(r->ctx, &r->score, &r->score_cap, (r->n_scored + 1) * n, sizeof *r->score);
    if (!st)
        st = wf_grow(r->ctx, &r->truth, &r->truth_cap, r->n_scored + 1, sizeof *r->truth);
    if (st)
        return st;
    for (int k = 0; k < n; k++)
        r->score[r->n_scored * n + k] = (float)p[k];
    r->truth[r->n_scored++] = (uint8_t)truth;
    return WEFT_OK;
}

static weft_status keep_mistake(struct wf_review *r, struct wf_mistake m, const weft_tensor *x,
                                int64_t i)
{
    int at = r->n_mistakes;
    int64_t n = r->picture.h * r->picture.w * r->picture.c;

    if (at == WF_REVIEW_MISTAKES && !(m.p_truth < r->mistake[at - 1].p_truth))
        return WEFT_OK;
    if (r->pictures && x) {
        m.pixels = wf_alloc(r->ctx, (size_t)n);
        if (!m.pixels)
            return wf_err_nomem(r->ctx, (size_t)n, "an image");
        wf_picture_pixels(&r->picture, x->dtype,
                          (const char *)x->data + i * n * weft_dtype_size(x->dtype), m.pixels);
        r->shown = r->picture;
        wf_picture_shrink(&r->shown, m.pixels, MAX_SHOWN);
    }
    for (; at > 0 && m.p_truth < r->mistake[at - 1].p_truth; at--)
        r->mistake[at] = r->mistake[at - 1];
    r->mistake[at] = m;
    if (r->n_mistakes < WF_REVIEW_MISTAKES)
        r->n_mistakes++;
    else
        wf_free(r->ctx, r->mistake[WF_REVIEW_MISTAKES].pixels);
    return WEFT_OK;
}

static weft_status look(void *arg, const weft_batch *b, int n_outputs, const weft_tensor *out)
{
    struct pass *pass = arg;
    struct wf_review *r = pass->r;
    const weft_tensor *y = NULL, *x = weft_batch_find(b, pass->input);
    int n_out = (int)out[0].dim[1];
    weft_status st = WEFT_OK;

    (void)n_outputs;
    for (int i = 0; i < b->n_cols && !y; i++)
        y = b->column[i].role == WEFT_LABEL ? &b->col[i] : NULL;
    if (!y || out[0].dtype != WEFT_F32)
        return WEFT_OK;
    r->pictures = x && x->rank > 2 && wf_picture_of(x->dtype, x->rank - 1, x->dim + 1, &r->picture);
    for (int64_t i = 0; i < b->n && !st; i++) {
        double p[WF_REVIEW_CLASSES];
        int truth = truth_of(y, b->n, i, r->n_classes), guess = 0;

        likelihood(&pass->output, (const float *)out[0].data + i * n_out, n_out, p);
        if (truth < 0 || truth >= r->n_classes)
            continue;
        for (int k = 1; k < r->n_classes; k++)
            guess = p[k] > p[guess] ? k : guess;
        r->n++;
        r->n_right += guess == truth;
        r->confusion[truth * r->n_classes + guess]++;
        st = keep_score(r, truth, p);
        if (!st && guess != truth)
            st = keep_mistake(r,
                              (struct wf_mistake){.sample = b->id ? b->id[i] : r->n - 1,
                                                  .truth = truth,
                                                  .guess = guess,
                                                  .p_truth = p[truth],
                                                  .p_guess = p[guess]},
                              x, i);
    }
    return st;
}

weft_status wf_review_make(weft_job_run *run, struct wf_review *out)
{
    struct pass pass = {.r = out};
    weft_trainer *t = run->trainer;
    weft_tensor type;
    weft_ds s;
    const char *part;
    int n_out;
    weft_status st;

    *out = (struct wf_review){.ctx = run->ctx};
    if (t->n_out != 1 || weft_model_n_inputs(t->model) < 1)
        return WEFT_OK;
    st = weft_job_output_at(run, 0, &pass.output);
    if (st || pass.output.kind != WEFT_OUTPUT_CLASSES)
        return st;
    st = weft_sym_type(t->model, weft_model_output_at(t->model, 0), &type);
    if (!st)
        st = wf_report_data(run, &s, &part);
    if (st || !s.id || type.rank != 2 || type.dim[1] < 1 || type.dim[1] > WF_REVIEW_CLASSES)
        return st;
    n_out = (int)type.dim[1];
    out->n_classes = n_out == 1 ? 2 : n_out;
    out->class_name = pass.output.class_name;
    out->confusion =
        wf_alloc_n(run->ctx, (int64_t)out->n_classes * out->n_classes, sizeof *out->confusion);
    if (!out->confusion)
        return wf_err_nomem(run->ctx, 0, "a confusion matrix");
    pass.input = weft_sym_name(t->model, weft_model_input_at(t->model, 0));
    st = wf_report_predict(run, s, look, &pass);
    if (!st && out->n)
        out->part = part;
    return st;
}

void wf_review_free(struct wf_review *r)
{
    for (int i = 0; i < r->n_mistakes; i++)
        wf_free(r->ctx, r->mistake[i].pixels);
    wf_free(r->ctx, r->confusion);
    wf_free(r->ctx, r->score);
    wf_free(r->ctx, r->truth);
    r->n_mistakes = 0;
    r->confusion = NULL;
    r->score = NULL;
    r->truth = NULL;
}

void wf_review_class(struct wf_buf *b, const struct wf_review *r, int i)
{
    if (r->class_name)
        wf_html_text(b, r->class_name[i]);
    else
        wf_buf_printf(b, "%d", i);
}
