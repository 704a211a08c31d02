/* roc.c - ROC and precision-recall curves of a classifier: of class 1 of two, or of each class
 * against the rest. */
#include <math.h>
#include <stdlib.h>

#include "train/report/report.h"

#define MAX_POINTS 200 /* per curve on the page */

struct scored {
    float score;
    bool positive;
};

/* One class against the rest. */
struct curve {
    double *roc, *pr; /* points, x and y alternately */
    int64_t n;
    double auc, average_precision;
};

static int by_score(const void *a, const void *b)
{
    float x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;

    return (x < y) - (x > y);
}

/* From the highest threshold down; samples with equal scores are taken together. */
static void make_curve(struct scored *s, int64_t n, struct curve *c)
{
    int64_t n_positive = 0, tp = 0, fp = 0, every = n / MAX_POINTS + 1;
    double last_tpr = 0, last_fpr = 0;

    qsort(s, (size_t)n, sizeof *s, by_score);
    for (int64_t i = 0; i < n; i++)
        n_positive += s[i].positive;
    c->roc[0] = c->roc[1] = 0;
    c->pr[0] = 0;
    c->pr[1] = s[0].positive ? 1 : 0;
    c->n = 1;
    for (int64_t i = 0; i < n;) {
        int64_t from = i;
        double tpr, fpr, precision;

        do {
            tp += s[i].positive;
            fp += !s[i].positive;
            i++;
        } while (i < n && s[i].score == s[from].score);
        tpr = (double)tp / (double)n_positive;
        fpr = (double)fp / (double)(n - n_positive);
        precision = (double)tp / (double)i;
        c->auc += (fpr - last_fpr) * (tpr + last_tpr) / 2;
        c->average_precision += (tpr - last_tpr) * precision;
        last_tpr = tpr;
        last_fpr = fpr;
        if (i == n || i / every != from / every) {
            c->roc[2 * c->n] = fpr;
            c->roc[2 * c->n + 1] = tpr;
            c->pr[2 * c->n] = tpr;
            c->pr[2 * c->n++ + 1] = precision;
        }
    }
}

/* The curves need samples of both kinds. */
static bool can_be_drawn(const struct wf_review *r, int class)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->n_scored; i++)
        n += r->truth[i] == class;
    return n > 0 && n < r->n_scored;
}

static const char *const looks[WF_REVIEW_CURVES] = {"run0", "run1", "run2", "run3",
                                                    "run4", "run5", "run6", "run7"};

static void put_pictures(struct wf_buf *b, const struct wf_review *r, int n, const int *class,
                         const struct curve *c)
{
    const double *roc[WF_REVIEW_CURVES], *pr[WF_REVIEW_CURVES];
    int64_t n_points[WF_REVIEW_CURVES];

    for (int k = 0; k < n; k++) {
        roc[k] = c[k].roc;
        pr[k] = c[k].pr;
        n_points[k] = c[k].n;
    }
    wf_buf_printf(b,
                  "<h2>ROC and precision-recall</h2><p class=\"soft\">Over all thresholds%s, on "
                  "the %s data.</p><p class=\"legend\">",
                  r->n_classes > 2 ? ", each class against the rest" : "", r->part);
    for (int k = 0; k < n; k++) {
        wf_buf_printf(b, "<span><span class=\"key %s\"></span>", looks[k]);
        wf_review_class(b, r, class[k]);
        wf_buf_printf(b, ": AUC %.4f, average precision %.4f</span> ", c[k].auc,
                      c[k].average_precision);
    }
    wf_buf_printf(b, "</p><div class=\"grid\"><div class=\"card\">");
    wf_svg_unit_lines(b, "true positive rate", "false positive rate", true, n, n_points, roc,
                      looks);
    wf_buf_printf(b, "</div><div class=\"card\">");
    wf_svg_unit_lines(b, "precision", "recall", false, n, n_points, pr, looks);
    wf_buf_printf(b, "</div></div>\n");
}

weft_status wf_review_put_curves(struct wf_buf *b, const struct wf_review *r)
{
    struct curve curve[WF_REVIEW_CURVES] = {{0}};
    struct scored *s;
    int class[WF_REVIEW_CURVES], n = 0;
    weft_status st = WEFT_OK;

    if (!r->n_scored || r->n_classes > WF_REVIEW_CURVES)
        return WEFT_OK;
    s = wf_alloc_n(r->ctx, r->n_scored, sizeof *s);
    if (!s)
        return wf_err_nomem(r->ctx, 0, "curves");
    for (int k = r->n_classes == 2; k < r->n_classes && !st; k++) {
        int64_t room = 2 * (MAX_POINTS + 8);

        if (!can_be_drawn(r, k))
            continue;
        for (int64_t i = 0; i < r->n_scored; i++)
            s[i] = (struct scored){r->score[i * r->n_classes + k], r->truth[i] == k};
        class[n] = k;
        curve[n].roc = wf_alloc_n(r->ctx, room, sizeof(double));
        curve[n].pr = wf_alloc_n(r->ctx, room, sizeof(double));
        if (!curve[n].roc || !curve[n].pr)
            st = wf_err_nomem(r->ctx, 0, "curves");
        else
            make_curve(s, r->n_scored, &curve[n]);
        n++;
    }
    if (!st && n)
        put_pictures(b, r, n, class, curve);
    for (int k = 0; k < n; k++) {
        wf_free(r->ctx, curve[k].roc);
        wf_free(r->ctx, curve[k].pr);
    }
    wf_free(r->ctx, s);
    return st;
}
