/* Every loss against its plain definition, written once more here in f64: values, weighted and
 * masked means, gradients against differences; and as a metric. Random data, weights, masks,
 * sizes. */
#include "plain.h"

/* ---- losses ---------------------------------------------------------------------------------- */

enum form { NUMBERS, POSITIVE, BITS, SIGNS, HOT, SPREAD, CLASS };

/* What one row of c values loses; y[0] is the class where labels are classes. */
typedef double plain_loss(const double *y, const double *p, int64_t c, const double *arg);

static double clip(double p)
{
    return fmin(fmax(p, 1e-7), 1 - 1e-7);
}

static double mse(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += (y[i] - p[i]) * (y[i] - p[i]);
    return s / (double)c;
}

static double mae(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += fabs(y[i] - p[i]);
    return s / (double)c;
}

static double mape(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += fabs(y[i] - p[i]) / fmax(fabs(y[i]), 1e-7);
    return 100 * s / (double)c;
}

static double msle(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        double e = log1p(fmax(y[i], 1e-7)) - log1p(fmax(p[i], 1e-7));

        s += e * e;
    }
    return s / (double)c;
}

static double huber(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double e = fabs(y[i] - p[i]);

        s += e <= arg[0] ? e * e / 2 : arg[0] * (e - arg[0] / 2);
    }
    return s / (double)c;
}

static double log_cosh(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += log(cosh(p[i] - y[i]));
    return s / (double)c;
}

static double cosine(const double *y, const double *p, int64_t c, const double *arg)
{
    double yy = 0, pp = 0, yp = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        yy += y[i] * y[i];
        pp += p[i] * p[i];
        yp += y[i] * p[i];
    }
    return -yp / sqrt(yy * pp);
}

static double poisson(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++)
        s += p[i] - y[i] * log(p[i] + 1e-7);
    return s / (double)c;
}

static double kld(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        double a = fmin(fmax(y[i], 1e-7), 1), b = fmin(fmax(p[i], 1e-7), 1);

        s += a * log(a / b);
    }
    return s;
}

static double hinge_of(const double *y, const double *p, int64_t c, int power)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++)
        s += pow(fmax(1 - y[i] * p[i], 0), power);
    return s / (double)c;
}

static double hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)arg;
    return hinge_of(y, p, c, 1);
}

static double squared_hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)arg;
    return hinge_of(y, p, c, 2);
}

static double categorical_hinge(const double *y, const double *p, int64_t c, const double *arg)
{
    double right = 0, wrong = -INFINITY;

    (void)arg;
    for (int64_t i = 0; i < c; i++) {
        right += y[i] * p[i];
        wrong = fmax(wrong, (1 - y[i]) * p[i]);
    }
    return fmax(wrong - right + 1, 0);
}

/* arg: label smoothing, are predictions logits */
static double bce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double t = y[i] * (1 - arg[0]) + arg[0] / 2,
               q = arg[1] != 0 ? 1 / (1 + exp(-p[i])) : clip(p[i]);

        s -= t * log(q) + (1 - t) * log(1 - q);
    }
    return s / (double)c;
}

/* arg: smoothing, logits, alpha, gamma, are classes balanced */
static double bfce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double t = y[i] * (1 - arg[0]) + arg[0] / 2, q = arg[1] != 0 ? 1 / (1 + exp(-p[i])) : p[i],
               right = t * q + (1 - t) * (1 - q), one;

        one = -(t * log(clip(q)) + (1 - t) * log(1 - clip(q))) * pow(1 - right, arg[3]);
        s += arg[4] != 0 ? one * (t * arg[2] + (1 - t) * (1 - arg[2])) : one;
    }
    return s / (double)c;
}

/* p / sum p, or the softmax. */
static double share(const double *p, int64_t c, int64_t i, bool logits)
{
    double sum = 0;

    for (int64_t k = 0; k < c; k++)
        sum += logits ? exp(p[k]) : p[k];
    return (logits ? exp(p[i]) : p[i]) / sum;
}

/* arg: smoothing, logits */
static double cce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++)
        s -= (y[i] * (1 - arg[0]) + arg[0] / (double)c) * log(share(p, c, i, arg[1] != 0));
    return s;
}

/* arg: smoothing, logits, alpha, gamma */
static double cfce(const double *y, const double *p, int64_t c, const double *arg)
{
    double s = 0;

    for (int64_t i = 0; i < c; i++) {
        double q = share(p, c, i, arg[1] != 0);

        s -= arg[2] * pow(1 - q, arg[3]) * (y[i] * (1 - arg[0]) + arg[0] / (double)c) * log(q);
    }
    return s;
}

static double scce(const double *y, const double *p, int64_t c, const double *arg)
{
    return -log(share(p, c, (int64_t)y[0], arg[1] != 0));
}

static double gce(const double *y, const double *p, int64_t c, const double *arg)
{
    (void)c;
    return (1 - pow(p[(int64_t)y[0]], arg[0])) / arg[0];
}

static const struct loss_case {
    const char *text;
    enum form labels;
    bool scores; /* predictions in (0, 1); otherwise any number */
    plain_loss *plain;
    double arg[5];
    bool positive; /* predictions above 0 */
} loss_cases[] = {
    {"mse", NUMBERS, false, mse, {0}, false},
    {"mae", NUMBERS, false, mae, {0}, false},
    {"mape", POSITIVE, false, mape, {0}, false},
    {"msle", POSITIVE, false, msle, {0}, true},
    {"huber", NUMBERS, false, huber, {1}, false},
    {"huber delta=0.25", NUMBERS, false, huber, {0.25}, false},
    {"log_cosh", NUMBERS, false, log_cosh, {0}, false},
    {"cosine_similarity", NUMBERS, false, cosine, {0}, false},
    {"poisson", POSITIVE, false, poisson, {0}, true},
    {"kl_divergence", SPREAD, true, kld, {0}, false},
    {"hinge", SIGNS, false, hinge, {0}, false},
    {"squared_hinge", SIGNS, false, squared_hinge, {0}, false},
    {"categorical_hinge", HOT, false, categorical_hinge, {0}, false},
    {"bce", BITS, true, bce, {0, 0}, false},
    {"bce from_logits=true", BITS, false, bce, {0, 1}, false},
    {"bce label_smoothing=0.2", BITS, true, bce, {0.2, 0}, false},
    {"bce label_smoothing=0.2 from_logits=true", BITS, false, bce, {0.2, 1}, false},
    {"binary_focal_crossentropy", BITS, true, bfce, {0, 0, 0.25, 2, 0}, false},
    {"binary_focal_crossentropy apply_class_balancing=true alpha=0.3 gamma=1.5 from_logits=true "
     "label_smoothing=0.1",
     BITS,
     false,
     bfce,
     {0.1, 1, 0.3, 1.5, 1},
     false},
    {"categorical_crossentropy", HOT, true, cce, {0, 0}, false},
    {"categorical_crossentropy label_smoothing=0.3", SPREAD, true, cce, {0.3, 0}, false},
    {"categorical_crossentropy from_logits=true", SPREAD, false, cce, {0, 1}, false},
    {"categorical_crossentropy from_logits=true label_smoothing=0.1",
     HOT,
     false,
     cce,
     {0.1, 1},
     false},
    {"categorical_focal_crossentropy", HOT, true, cfce, {0, 0, 0.25, 2}, false},
    {"categorical_focal_crossentropy alpha=0.6 gamma=1.5 from_logits=true label_smoothing=0.1",
     HOT,
     false,
     cfce,
     {0.1, 1, 0.6, 1.5},
     false},
    {"sparse_categorical_crossentropy", CLASS, true, scce, {0, 0}, false},
    {"sparse_categorical_crossentropy from_logits=true", CLASS, false, scce, {0, 1}, false},
    {"CategoricalGeneralizedCrossEntropy q=0.7", CLASS, true, gce, {0.7}, false},
};

static void fill(struct data *d, const struct loss_case *l)
{
    for (int64_t i = 0; i < n_scores(d); i++) {
        double r = real();

        d->p[i] = l->scores ? 0.02 + 0.95 * r : l->positive ? 0.1 + 2 * r : 4 * r - 2;
    }
    for (int64_t i = 0; i < d->n * d->t; i++) {
        int64_t class = below((int)d->c);
        double sum = 0;

        if (l->labels == CLASS)
            d->y[i] = (double)class;
        for (int64_t k = 0; k < d->c && l->labels != CLASS; k++) {
            double r = real(), *y = &d->y[i * d->c + k];

            switch (l->labels) {
            case NUMBERS: *y = 3 * r - 1.5; break;
            case POSITIVE: *y = 0.2 + r; break;
            case BITS: *y = r < 0.4; break;
            case SIGNS: *y = r < 0.4 ? 1 : -1; break;
            case HOT: *y = k == class; break;
            default: *y = 0.05 + r; break;
            }
            sum += *y;
        }
        for (int64_t k = 0; k < d->c && l->labels == SPREAD; k++)
            d->y[i * d->c + k] = (double)(float)(d->y[i * d->c + k] / sum);
    }
    if (l->labels == SIGNS) /* all 1 would be read as bits */
        d->y[0] = -1;
    d->y_type = l->labels == CLASS ? (below(2) ? WEFT_I32 : WEFT_I64) : WEFT_F64;
}

/* The weighted mean over what the mask lets through. */
static double plain_mean(const struct data *d, const struct loss_case *l, const bool *mask)
{
    int64_t y_wide = d->y_row / d->t;
    double sum = 0, n = 0;

    for (int64_t i = 0; i < d->n * d->t; i++) {
        if (mask && !mask[i])
            continue;
        sum += d->w[i] * l->plain(d->y + i * y_wide, d->p + i * d->c, d->c, l->arg);
        n++;
    }
    return ratio(sum, n);
}

struct loss_run {
    weft_graph *g;
    weft_fn *fn;
    weft_tensor feeds[4], out[3];
    int n_in;
};

/* Values, mean and gradient in f64. */
static void run_loss(struct data *d, const struct loss_case *l, const bool *mask,
                     struct loss_run *r)
{
    weft_val in[4], w = WEFT_NIL, m = WEFT_NIL, values = WEFT_NIL, sum, n, grad = WEFT_NIL, mean;
    int64_t any[4], w_dim[2] = {d->n, d->t}, w_any[2] = {WEFT_ANY, d->t};
    double rows[MAX_ITEMS];
    int rank = d->weights == 2 ? 2 : 1;

    assert_int_equal(weft_graph_new(ctx, &r->g), WEFT_OK);
    memcpy(any, d->y_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[0] = weft_placeholder(r->g, "y", d->y_type, d->y_rank, any);
    memcpy(any, d->p_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[1] = weft_placeholder(r->g, "p", WEFT_F64, d->p_rank, any);
    r->feeds[0] = weft_view(d->y_type, as_type(d->y_type, d->y, n_labels(d)), d->y_rank, d->y_dim);
    r->feeds[1] = weft_view(WEFT_F64, as_type(WEFT_F64, d->p, n_scores(d)), d->p_rank, d->p_dim);
    r->n_in = 2;
    for (int64_t i = 0; i < d->n; i++)
        rows[i] = d->w[i * d->t];
    if (d->weights) {
        r->feeds[r->n_in] = weft_view(
            WEFT_F32, as_type(WEFT_F32, rank == 2 ? d->w : rows, d->n * (rank == 2 ? d->t : 1)),
            rank, w_dim);
        w = in[r->n_in++] = weft_placeholder(r->g, "w", WEFT_F32, rank, w_any);
    }
    if (mask) {
        bool *copy = malloc(MAX_ITEMS);

        memcpy(copy, mask, MAX_ITEMS);
        r->feeds[r->n_in] = weft_view(WEFT_BOOL, copy, d->seq ? 2 : 1, w_dim);
        m = in[r->n_in++] = weft_placeholder(r->g, "m", WEFT_BOOL, d->seq ? 2 : 1, w_any);
    }
    memset(r->out, 0, sizeof r->out);
    if (wf_loss_build(NULL, r->g, l->text, in[0], in[1], &values) ||
        wf_loss_reduce(r->g, values, w, m, &sum, &n))
        fail_msg("%s: %s", l->text, weft_error());
    mean = weft_div(r->g, sum, weft_max(r->g, n, weft_scalar(r->g, 1)));
    if (weft_grad(r->g, mean, 1, &in[1], &grad) ||
        weft_fn_new(r->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = r->n_in, .feeds = in, .n_fetches = 3,
                              .fetches = (weft_val[]){values, mean, grad}),
                    &r->fn) ||
        weft_fn_run(r->fn, r->feeds, r->out))
        fail_msg("%s: %s", l->text, weft_error());
}

static void end_loss(struct loss_run *r)
{
    for (int i = 0; i < r->n_in; i++)
        free(r->feeds[i].data);
    weft_fn_free(r->fn);
    weft_graph_free(r->g);
}

static void check_loss(const struct loss_case *l)
{
    struct data d = {0};
    struct loss_run r;
    bool mask[MAX_ITEMS], masked = below(2);
    int64_t y_wide;
    double mean, want;

    shape(&d, below(2), 2 + below(4), l->labels == CLASS);
    fill(&d, l);
    y_wide = d.y_row / d.t;
    for (int64_t i = 0; i < MAX_ITEMS; i++)
        mask[i] = below(3) > 0;
    run_loss(&d, l, masked ? mask : NULL, &r);
    assert_int_equal(weft_tensor_count(&r.out[0]), d.n * d.t);
    for (int64_t i = 0; i < d.n * d.t; i++) {
        double got = ((double *)r.out[0].data)[i];

        want = l->plain(d.y + i * y_wide, d.p + i * d.c, d.c, l->arg);
        if (!(fabs(got - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("%s: value %d is %.12g, plainly %.12g", l->text, (int)i, got, want);
    }
    mean = (double)((float *)r.out[1].data)[0];
    want = plain_mean(&d, l, masked ? mask : NULL);
    if (!(fabs(mean - want) <= 2e-6 * (1 + fabs(want))))
        fail_msg("%s, weights %d, mask %d: the mean is %.9g, plainly %.9g", l->text, d.weights,
                 masked, mean, want);
    for (int k = 0; k < 6; k++) { /* some of the gradient */
        int64_t i = below((int)n_scores(&d));
        double p = d.p[i], h = 1e-6, up, down, got = ((double *)r.out[2].data)[i];

        d.p[i] = p + h;
        up = plain_mean(&d, l, masked ? mask : NULL);
        d.p[i] = p - h;
        down = plain_mean(&d, l, masked ? mask : NULL);
        d.p[i] = p;
        want = (up - down) / (2 * h);
        if (!(fabs(got - want) <= 1e-6 + 1e-4 * fabs(want)))
            fail_msg("%s, weights %d, mask %d: the gradient is %.9g, by differences %.9g", l->text,
                     d.weights, masked, got, want);
    }
    end_loss(&r);
}

/* The losses that are metrics, too: means of their values, weighted. */
static void losses_as_metrics(void)
{
    const struct loss_case *l = &loss_cases[below(WF_COUNT(loss_cases))];
    struct data d = {0};
    double sum = 0, all = 0;
    int64_t y_wide;

    if (!strncmp(l->text, "CategoricalG", 12) || l->plain == cosine)
        return; /* no metric; the metric has the other sign */
    shape(&d, below(2), 2 + below(4), l->labels == CLASS);
    fill(&d, l);
    /* the margin's "are all labels bits" is computed for each batch */
    for (int64_t i = 0; i < n_labels(&d) && l->labels == SIGNS; i += d.y_row)
        d.y[i] = -1;
    y_wide = d.y_row / d.t;
    d.y_type = l->labels == CLASS ? WEFT_I32 : WEFT_F32;
    for (int64_t i = 0; i < n_labels(&d); i++)
        d.y[i] = (double)(float)d.y[i];
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = (double)(float)d.p[i];
    for (int64_t i = 0; i < d.n * d.t; i++) {
        sum += d.w[i] * l->plain(d.y + i * y_wide, d.p + i * d.c, d.c, l->arg);
        all += d.w[i];
    }
    check(l->text, &d, 1, (double[]){ratio(sum, all)});
    if (l->plain == scce) {
        char spec[96];

        wf_snprintf(spec, sizeof spec, "Perplexity%s", l->arg[1] != 0 ? " from_logits=true" : "");
        check(spec, &d, 1, (double[]){exp(ratio(sum, all))});
    }
}

/* Labels that a metric of a loss leaves out count neither above nor below the line. */
static void ignored_classes(void)
{
    struct data d = {0};
    double sum = 0, all = 0;

    shape(&d, below(2), 3, true);
    d.y_type = WEFT_I32;
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = 0.05 + 0.9 * real();
    for (int64_t i = 0; i < n_scores(&d); i++)
        d.p[i] = (double)(float)d.p[i];
    for (int64_t i = 0; i < n_labels(&d); i++) {
        d.y[i] = below(4) - 1;
        if (d.y[i] < 0)
            continue;
        sum += d.w[i] * scce(d.y + i, d.p + i * d.c, d.c, (double[]){0, 0});
        all += d.w[i];
    }
    check("SparseCategoricalCrossentropy ignore_class=-1", &d, 1, (double[]){ratio(sum, all)});
    check("Perplexity ignore_class=-1", &d, 1, (double[]){exp(ratio(sum, all))});
}

/* ---- all of it ------------------------------------------------------------------------------- */

RANDOM_TEST(metrics_of_losses_are_weighted_means, losses_as_metrics)
RANDOM_TEST(ignored_classes_do_not_count, ignored_classes)

static void losses_and_gradients_follow_their_formulas(void **state)
{
    (void)state;
    seed = 7;
    for (int i = 0; i < rounds() / 6; i++)
        for (int k = 0; k < WF_COUNT(loss_cases); k++)
            check_loss(&loss_cases[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_follow_their_formulas),
        cmocka_unit_test(metrics_of_losses_are_weighted_means),
        cmocka_unit_test(ignored_classes_do_not_count),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
