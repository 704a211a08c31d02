/* optim_test.c - optimizer updates against plain f64 formulas and numbers made by Keras, sparse
 * rows against the dense update, dedupe against a naive search, norms bit for bit at every
 * level. */
#include "kernels/cpu/optim.h"
#include "rows_support.h"

/* ---- the formulas in f64, element by element --------------------------------------------- */

struct plain {
    double w, s[3];
};

static double attr(const struct wf_optim_row *row, const double *attrs, const char *name)
{
    int i = wf_optim_attr_find(row, name);

    return i < 0 ? 0 : attrs[i];
}

static double clamp(double x, double limit)
{
    return x < -limit ? -limit : x > limit ? limit : x;
}

/* Keras' decay of momentum in Nadam, product over 1..t. */
static double nadam_u(double b1, double t)
{
    return b1 * (1 - 0.5 * pow(0.96, t));
}

static void plain_adam(const struct wf_optim_row *row, const double *a, double lr, int64_t t,
                       double g, struct plain *p)
{
    double b1 = attr(row, a, "beta_1"), b2 = attr(row, a, "beta_2"), eps = attr(row, a, "epsilon");
    double alpha = lr * sqrt(1 - pow(b2, (double)t)) / (1 - pow(b1, (double)t)), v;

    p->s[0] += (g - p->s[0]) * (1 - b1);
    if (!strcmp(row->name, "adamax")) {
        p->s[1] = fmax(b2 * p->s[1], fabs(g));
        p->w -= lr * p->s[0] / ((1 - pow(b1, (double)t)) * (p->s[1] + eps));
        return;
    }
    p->s[1] += (g * g - p->s[1]) * (1 - b2);
    v = p->s[1];
    if (!strcmp(row->name, "nadam")) {
        double u = nadam_u(b1, (double)t), next = nadam_u(b1, (double)t + 1), product = 1;

        for (int64_t i = 1; i <= t; i++)
            product *= nadam_u(b1, (double)i);
        p->w -= lr * (next * p->s[0] / (1 - product * next) + (1 - u) * g / (1 - product)) /
                (sqrt(v / (1 - pow(b2, (double)t))) + eps);
        return;
    }
    if (attr(row, a, "amsgrad") != 0)
        v = p->s[2] = fmax(p->s[2], v);
    p->w -= alpha * p->s[0] / (sqrt(v) + eps);
}

static void plain_rmsprop(const struct wf_optim_row *row, const double *a, double lr, double g,
                          struct plain *p)
{
    double rho = attr(row, a, "rho"), mu = attr(row, a, "momentum"), denominator, d;
    double *average = mu > 0 ? &p->s[2] : &p->s[1];

    p->s[0] = rho * p->s[0] + (1 - rho) * g * g;
    denominator = p->s[0] + attr(row, a, "epsilon");
    if (attr(row, a, "centered") != 0) {
        *average = rho * *average + (1 - rho) * g;
        denominator -= *average * *average;
    }
    d = lr * g / sqrt(denominator);
    if (mu > 0)
        d = p->s[1] = mu * p->s[1] + d;
    p->w -= d;
}

static void plain_ftrl(const struct wf_optim_row *row, const double *a, double lr, double g,
                       struct plain *p)
{
    double power = -attr(row, a, "learning_rate_power"), sum = p->s[0] + g * g;
    double l1 = attr(row, a, "l1_regularization_strength");
    double l2 = attr(row, a, "l2_regularization_strength") + attr(row, a, "beta") / (2 * lr);

    p->s[1] += g + 2 * attr(row, a, "l2_shrinkage_regularization_strength") * p->w -
               (pow(sum, power) - pow(p->s[0], power)) / lr * p->w;
    p->w = (clamp(p->s[1], l1) - p->s[1]) / (pow(sum, power) / lr + 2 * l2);
    p->s[0] = sum;
}

static void plain_adadelta(const struct wf_optim_row *row, const double *a, double lr, double g,
                           struct plain *p)
{
    double rho = attr(row, a, "rho"), eps = attr(row, a, "epsilon"), d;

    p->s[0] = rho * p->s[0] + (1 - rho) * g * g;
    d = -sqrt(p->s[1] + eps) * g / sqrt(p->s[0] + eps);
    p->s[1] = rho * p->s[1] + (1 - rho) * d * d;
    p->w += lr * d;
}

/* One step of one element; not LAMB. */
static void plain_step(const struct wf_optim_row *row, const double *a, double lr, int64_t t,
                       double scale, double g, struct plain *p)
{
    double mu = attr(row, a, "momentum"), b1 = attr(row, a, "beta_1"), b2 = attr(row, a, "beta_2");

    g *= scale;
    if (attr(row, a, "clipvalue") > 0 && attr(row, a, "clipnorm") == 0)
        g = clamp(g, attr(row, a, "clipvalue"));
    p->w -= p->w * attr(row, a, "weight_decay") * lr;
    if (!strcmp(row->name, "sgd")) {
        if (mu != 0)
            p->s[0] = mu * p->s[0] - lr * g;
        p->w += mu == 0 ? -lr * g : attr(row, a, "nesterov") != 0 ? mu * p->s[0] - lr * g : p->s[0];
    } else if (!strcmp(row->name, "rmsprop")) {
        plain_rmsprop(row, a, lr, g, p);
    } else if (!strcmp(row->name, "adagrad")) {
        p->s[0] += g * g;
        p->w -= lr * g / sqrt(p->s[0] + attr(row, a, "epsilon"));
    } else if (!strcmp(row->name, "adadelta")) {
        plain_adadelta(row, a, lr, g, p);
    } else if (!strcmp(row->name, "ftrl")) {
        plain_ftrl(row, a, lr, g, p);
    } else if (!strcmp(row->name, "lion")) {
        double c = b1 * p->s[0] + (1 - b1) * g;

        p->w -= lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
        p->s[0] = b2 * p->s[0] + (1 - b2) * g;
    } else {
        plain_adam(row, a, lr, t, g, p);
    }
}

/* ---- cases ------------------------------------------------------------------------------- */

struct setting {
    const char *name;
    double value;
};

enum { N_GOLDEN = 5, MAX_SETTINGS = 6 };

/* Weights after three steps of Keras 3.15 (float32) from w0 with the gradients below. */
static const struct golden {
    const char *name;
    struct setting set[MAX_SETTINGS];
    float w[N_GOLDEN];
} goldens[] = {
    {"sgd", {{0}}, {0.995999992f, -2.00650001f, 0.50150001f, -0.25029999f, 2.99600005f}},
    {"sgd",
     {{"momentum", 0.9}},
     {0.997889996f, -2.00533009f, 0.495920002f, -0.250389993f, 3.00365019f}},
    {"sgd",
     {{"momentum", 0.9}, {"nesterov", 1}},
     {0.994100988f, -2.01129699f, 0.497828007f, -0.250651002f, 2.99928498f}},
    {"rmsprop", {{0}}, {0.997152328f, -2.0021894f, 0.499063432f, -0.256000817f, 3.00072145f}},
    {"rmsprop",
     {{"momentum", 0.8}},
     {0.995060384f, -1.99965084f, 0.49407205f, -0.2585181f, 3.00321388f}},
    {"rmsprop",
     {{"centered", 1}},
     {0.997033715f, -2.00217438f, 0.498874754f, -0.256450325f, 3.00088358f}},
    {"rmsprop",
     {{"centered", 1}, {"momentum", 0.8}},
     {0.994768679f, -1.99939477f, 0.493607461f, -0.259102285f, 3.00361514f}},
    {"adam", {{0}}, {0.999228418f, -1.99978566f, 0.498448163f, -0.251572341f, 3.00068235f}},
    {"adam",
     {{"amsgrad", 1}},
     {0.999228418f, -1.99978566f, 0.498448163f, -0.251572341f, 3.00068235f}},
    {"adam",
     {{"clipvalue", 0.3}},
     {0.999331474f, -1.99969149f, 0.49823463f, -0.251572341f, 3.00105429f}},
    {"adam",
     {{"clipnorm", 0.5}},
     {0.99899739f, -1.99963677f, 0.498610377f, -0.251504481f, 3.00094819f}},
    {"adamw",
     {{"learning_rate", 0.05}},
     {0.960836828f, -1.98809946f, 0.422136605f, -0.328459918f, 3.03231049f}},
    {"adamax", {{0}}, {0.999185979f, -1.99955499f, 0.498594522f, -0.25106135f, 3.00073934f}},
    {"nadam", {{0}}, {0.999022782f, -2.00064182f, 0.49956435f, -0.252015829f, 3.00030923f}},
    {"adagrad",
     {{"learning_rate", 0.01}},
     {0.996653378f, -2.00821018f, 0.499494404f, -0.250946969f, 3.00224471f}},
    {"adadelta",
     {{"learning_rate", 1}},
     {0.998125494f, -2.00240993f, 0.499982983f, -0.253185719f, 2.99990535f}},
    {"ftrl",
     {{"learning_rate", 0.1}},
     {0.0130708087f, -0.391794801f, 0.132205725f, -0.00946950074f, 2.40359426f}},
    {"ftrl",
     {{"learning_rate", 0.1},
      {"l1_regularization_strength", 0.01},
      {"l2_regularization_strength", 0.02},
      {"l2_shrinkage_regularization_strength", 0.03},
      {"beta", 0.04}},
     {-0.00650726398f, -0.320094258f, 0.112939909f, -0.00140743551f, 2.31264925f}},
    {"ftrl",
     {{"learning_rate", 0.1}, {"learning_rate_power", -0.7}},
     {0.0328544974f, -0.506712079f, 0.157656178f, -0.014997175f, 2.70124435f}},
    {"lion", {{0}}, {0.999000013f, -2.00099993f, 0.499000013f, -0.251999974f, 3.00099993f}},
    {"lamb",
     {{"learning_rate", 0.01}, {"weight_decay", 0.1}},
     {0.98396337f, -2.00106335f, 0.463677883f, -0.299731702f, 2.99982429f}},
};
enum { N_CASES = sizeof goldens / sizeof goldens[0] };

static const float golden_w[N_GOLDEN] = {1, -2, .5f, -.25f, 3};
static const float golden_g[3][N_GOLDEN] = {
    {.1f, -.2f, .3f, 0, -1.5f}, {-.4f, .25f, .05f, .01f, 2}, {.7f, .6f, -.5f, .02f, -.1f}};

static const struct wf_optim_row *case_row(const struct golden *c, double *attrs)
{
    const struct wf_optim_row *row = wf_optim_find(c->name);

    assert_non_null(row);
    wf_optim_defaults(row, attrs);
    for (int i = 0; i < MAX_SETTINGS && c->set[i].name; i++) {
        int at = wf_optim_attr_find(row, c->set[i].name);

        assert_true(at >= 0);
        attrs[at] = c->set[i].value;
    }
    assert_null(wf_optim_check(row, attrs));
    return row;
}

/* A parameter vector with its slots. */
struct vec {
    int64_t n;
    float *w, *slot[WF_OPTIM_MAX_SLOTS];
};

static struct vec vec_new(const struct wf_optim_row *row, const double *attrs, int64_t n,
                          const float *w)
{
    struct vec v = {.n = n, .w = copy_floats(w, n)};
    float init[WF_OPTIM_MAX_SLOTS];
    int n_slots = wf_optim_slots(row, attrs, NULL, init);

    for (int s = 0; s < n_slots; s++) {
        v.slot[s] = zeros(n, sizeof(float));
        for (int64_t i = 0; i < n; i++)
            v.slot[s][i] = init[s];
    }
    return v;
}

static void vec_free(struct vec *v)
{
    free(v->w);
    for (int s = 0; s < WF_OPTIM_MAX_SLOTS; s++)
        free(v->slot[s]);
}

static void vec_same(const struct vec *a, const struct vec *b, const char *what)
{
    check_same(a->w, b->w, (size_t)a->n * sizeof(float), what);
    for (int s = 0; s < WF_OPTIM_MAX_SLOTS; s++)
        if (a->slot[s])
            check_same(a->slot[s], b->slot[s], (size_t)a->n * sizeof(float), what);
}

static void step(const struct wf_optim_fns *f, struct wf_pool *pool,
                 const struct wf_optim_scalars *k, struct vec *v, const float *g)
{
    if (k->form == WF_OPTIM_LAMB) {
        int64_t n_blocks = wf_norm_blocks(v->n);
        double *sums = zeros(2 * n_blocks, sizeof *sums);

        wf_lamb_slots(f, pool, k, v->n, v->w, g, v->slot[0], v->slot[1], sums);
        wf_lamb_apply(f, pool, k, wf_lamb_ratio(sums, n_blocks), v->n, v->w, v->slot[0],
                      v->slot[1]);
        free(sums);
    } else {
        wf_optim_update(f, pool, k, v->n, v->w, g, v->slot);
    }
}

static void keras_numbers_after_three_steps(void **state)
{
    (void)state;
    for (int c = 0; c < N_CASES; c++)
        for (EACH_LEVEL(level)) {
            const struct wf_optim_fns *f = wf_optim_fns_at(level);
            double attrs[WF_OPTIM_MAX_ATTRS];
            const struct wf_optim_row *row = case_row(&goldens[c], attrs);
            struct vec v = vec_new(row, attrs, N_GOLDEN, golden_w);

            for (int t = 1; t <= 3; t++) {
                struct wf_optim_scalars k;
                double scale = 1, sq, limit = attrs[WF_OPTIM_ATTR_CLIPNORM];

                wf_block_sumsq(f, NULL, N_GOLDEN, golden_g[t - 1], &sq);
                if (limit > 0)
                    scale = wf_clip_scale(sqrt(sq), limit);
                wf_optim_prepare(row, attrs, attrs[WF_OPTIM_ATTR_LR], t, scale, &k);
                step(f, NULL, &k, &v, golden_g[t - 1]);
            }
            for (int i = 0; i < N_GOLDEN; i++)
                check_near(v.w[i], goldens[c].w[i], 1e-6, goldens[c].name, i);
            vec_free(&v);
        }
}

/* Four steps in f64 compared with those of the kernels. */
static void run_plain(const struct wf_optim_row *row, const double *attrs, int64_t n,
                      const float *w, float *const *g, double scale, struct plain *p)
{
    float init[WF_OPTIM_MAX_SLOTS];
    int n_slots = wf_optim_slots(row, attrs, NULL, init);

    for (int64_t i = 0; i < n; i++) {
        p[i].w = w[i];
        for (int s = 0; s < n_slots; s++)
            p[i].s[s] = init[s];
        for (int t = 1; t <= 4; t++)
            plain_step(row, attrs, attrs[WF_OPTIM_ATTR_LR], t, scale, g[t - 1][i], &p[i]);
    }
}

static void run_case(const struct golden *c, int64_t n, int decay, float *const *g, const float *w)
{
    double attrs[WF_OPTIM_MAX_ATTRS];
    const struct wf_optim_row *row = case_row(c, attrs);
    struct plain *p = zeros(n, sizeof *p);
    int lamb = !strcmp(row->name, "lamb");

    if (decay) {
        attrs[WF_OPTIM_ATTR_WEIGHT_DECAY] = .1;
        attrs[WF_OPTIM_ATTR_CLIPVALUE] = .6;
    }
    if (!lamb)
        run_plain(row, attrs, n, w, g, .5, p);
    for (EACH_LEVEL(level)) {
        struct vec first = {0};

        for (int i = 0; i < N_COUNTS; i++) {
            struct vec v = vec_new(row, attrs, n, w);

            for (int t = 1; t <= 4; t++) {
                struct wf_optim_scalars k;

                wf_optim_prepare(row, attrs, attrs[WF_OPTIM_ATTR_LR], t, .5, &k);
                step(wf_optim_fns_at(level), contexts[i]->pool, &k, &v, g[t - 1]);
            }
            if (i) {
                vec_same(&v, &first, row->name);
                vec_free(&v);
                continue;
            }
            first = v;
            for (int64_t j = 0; j < n && !lamb; j++)
                check_near(v.w[j], p[j].w, 3e-6, row->name, j);
        }
        vec_free(&first);
    }
    free(p);
}

static void every_form_matches_plain_f64_at_any_size_and_thread_count(void **state)
{
    static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 100, 4096, 70001};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int64_t n = sizes[s];
        float *w = random_floats(n, -2, 2), *g[4];

        for (int t = 0; t < 4; t++)
            g[t] = random_floats(n, -2, 2);
        for (int c = 0; c < N_CASES; c++)
            for (int decay = 0; decay < 2; decay++)
                run_case(&goldens[c], n, decay, g, w);
        for (int t = 0; t < 4; t++)
            free(g[t]);
        free(w);
    }
}

static void a_range_may_be_cut_anywhere(void **state)
{
    enum { N = 1000 };
    static const int cuts[] = {0, 1, 2, 19, 35, 512, 513, 999, N};
    float *w = random_floats(N, -2, 2), *g = random_floats(N, -2, 2);

    (void)state;
    for (int c = 0; c < N_CASES; c++)
        for (EACH_LEVEL(level)) {
            const struct wf_optim_fns *f = wf_optim_fns_at(level);
            double attrs[WF_OPTIM_MAX_ATTRS];
            const struct wf_optim_row *row = case_row(&goldens[c], attrs);
            struct vec whole, parts;
            struct wf_optim_scalars k;

            wf_optim_prepare(row, attrs, .01, 2, 1, &k);
            if (k.form == WF_OPTIM_LAMB)
                continue;
            whole = vec_new(row, attrs, N, w);
            parts = vec_new(row, attrs, N, w);
            step(f, NULL, &k, &whole, g);
            for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++) {
                float *slot[3];

                for (int s = 0; s < 3; s++)
                    slot[s] = parts.slot[s] ? parts.slot[s] + cuts[i] : NULL;
                wf_optim_update(f, NULL, &k, cuts[i + 1] - cuts[i], parts.w + cuts[i], g + cuts[i],
                                slot);
            }
            vec_same(&whole, &parts, row->name);
            vec_free(&whole);
            vec_free(&parts);
        }
    free(w);
    free(g);
}

/* At every distance from a vector's alignment, and of every length around one. */
static void an_update_into_other_memory_has_the_same_bits(void **state)
{
    enum { N = 70, SHIFTS = 17 };
    float *w = random_floats(N, -2, 2), *g = random_floats(N, -2, 2),
          *to = zeros(N + SHIFTS + 1, 4);

    (void)state;
    for (int c = 0; c < N_CASES; c++)
        for (EACH_LEVEL(level)) {
            const struct wf_optim_fns *f = wf_optim_fns_at(level);
            double attrs[WF_OPTIM_MAX_ATTRS];
            const struct wf_optim_row *row = case_row(&goldens[c], attrs);
            struct wf_optim_scalars k;

            wf_optim_prepare(row, attrs, .01, 2, 1, &k);
            if (k.form == WF_OPTIM_LAMB)
                continue;
            for (int64_t n = N - 2 * SHIFTS; n < N; n += 3) {
                struct vec there = vec_new(row, attrs, n, w), here = vec_new(row, attrs, n, w);

                step(f, NULL, &k, &there, g);
                for (int shift = 0; shift < SHIFTS; shift++) {
                    struct vec v = vec_new(row, attrs, n, w);

                    to[shift + n] = 5;
                    f->update_to[k.form](&k, n, to + shift, v.w, g, v.slot[0], v.slot[1],
                                         v.slot[2]);
                    check_same(v.w, here.w, (size_t)n * sizeof(float), "what it is made from");
                    memcpy(v.w, to + shift, (size_t)n * sizeof(float));
                    vec_same(&there, &v, row->name);
                    assert_true(to[shift + n] == 5);
                    vec_free(&v);
                }
                vec_free(&there);
                vec_free(&here);
            }
        }
    free(w);
    free(g);
    free(to);
}

/* ---- sparse rows ------------------------------------------------------------------------- */

static struct wf_dedupe dedupe_new(const void *ids, bool wide, int64_t stride, int64_t n,
                                   int64_t n_rows)
{
    return (struct wf_dedupe){.ids = ids,
                              .wide = wide,
                              .id_stride = stride,
                              .n = n,
                              .n_rows = n_rows,
                              .scratch = malloc((size_t)wf_dedupe_scratch(n)),
                              .rows = zeros(n, sizeof(int64_t)),
                              .first = zeros(n, sizeof(int32_t)),
                              .next = zeros(n, sizeof(int32_t))};
}

static void dedupe_free(struct wf_dedupe *d)
{
    free(d->scratch);
    free(d->rows);
    free(d->first);
    free(d->next);
}

static void dedupe_check(const struct wf_dedupe *d, const int64_t *ids)
{
    int64_t n_distinct = 0, visited = 0;

    for (int64_t i = 0; i < d->n; i++) {
        int64_t u = 0;

        while (u < n_distinct && d->rows[u] != ids[i])
            u++;
        if (u == n_distinct) {
            assert_true(n_distinct < d->n_distinct);
            assert_int_equal(d->rows[n_distinct], ids[i]);
            assert_int_equal(d->first[n_distinct], i);
            n_distinct++;
        }
    }
    assert_int_equal(n_distinct, d->n_distinct);
    for (int64_t u = 0; u < n_distinct; u++)
        for (int32_t i = d->first[u], last = -1; i >= 0; last = i, i = d->next[i], visited++) {
            assert_true(i > last);
            assert_int_equal(ids[i], d->rows[u]);
        }
    assert_int_equal(visited, d->n);
}

static void dedupe_lists_ids_in_order_of_first_appearance(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 100, 2048}, n_rows[] = {1, 3, 50, 100000};
    enum { TABLES = 5 };

    (void)state;
    for (size_t s = 0; s < 5; s++)
        for (size_t r = 0; r < 4; r++)
            for (int wide = 0; wide < 2; wide++) {
                int64_t n = sizes[s], *ids[TABLES], *all64 = zeros(n * TABLES, sizeof *all64);
                int32_t *all32 = zeros(n * TABLES, sizeof *all32);
                struct wf_dedupe d[TABLES];

                for (int t = 0; t < TABLES; t++) {
                    ids[t] = zeros(n, sizeof **ids);
                    for (int64_t i = 0; i < n; i++) {
                        ids[t][i] = (int64_t)(random_unit() * (double)n_rows[r]);
                        all64[i * TABLES + t] = ids[t][i];
                        all32[i * TABLES + t] = (int32_t)ids[t][i];
                    }
                    d[t] = dedupe_new(wide ? (void *)(all64 + t) : (void *)(all32 + t), wide,
                                      TABLES, n, n_rows[r]);
                }
                assert_int_equal(wf_dedupe_run(contexts[2]->pool, d, TABLES), -1);
                for (int t = 0; t < TABLES; t++) {
                    dedupe_check(&d[t], ids[t]);
                    dedupe_free(&d[t]);
                    free(ids[t]);
                }
                free(all64);
                free(all32);
            }
}

static void ids_out_of_range_are_named(void **state)
{
    int64_t ids[] = {0, 4, 2, 5, -1};
    struct wf_dedupe d = dedupe_new(ids, true, 1, 5, 5);

    (void)state;
    assert_int_equal(wf_dedupe_run(NULL, &d, 1), 0);
    assert_int_equal(d.bad, 3);
    assert_int_equal(d.n_distinct, 0);
    ids[3] = 1;
    assert_int_equal(wf_dedupe_run(NULL, &d, 1), 0);
    assert_int_equal(d.bad, 4);
    ids[4] = 4;
    assert_int_equal(wf_dedupe_run(NULL, &d, 1), -1);
    assert_int_equal(d.n_distinct, 4);
    dedupe_free(&d);
}

/* Row by row through the dense update (LAMB: each row a variable of its own). */
static void dense_rows(const struct wf_optim_fns *f, const struct wf_optim_scalars *k,
                       struct vec *v, int64_t width, const struct wf_dedupe *d, const float *sums)
{
    for (int64_t u = 0; u < d->n_distinct; u++) {
        int64_t at = d->rows[u] * width;
        struct vec row = {.n = width, .w = v->w + at};

        for (int s = 0; s < WF_OPTIM_MAX_SLOTS; s++)
            row.slot[s] = v->slot[s] ? v->slot[s] + at : NULL;
        step(f, NULL, k, &row, sums + u * width);
    }
}

static void sum_naively(const struct wf_dedupe *d, int64_t width, const float *g, int64_t stride,
                        float *out)
{
    for (int64_t u = 0; u < d->n_distinct; u++)
        for (int64_t c = 0; c < width; c++) {
            int32_t i = d->first[u];
            float x = g[i * stride + c];

            while ((i = d->next[i]) >= 0)
                x += g[i * stride + c];
            out[u * width + c] = x;
        }
}

static void rows_case(const struct golden *c, weft_simd level, int64_t width)
{
    enum { ROWS = 700, SAMPLES = 1300 };
    const struct wf_optim_fns *f = wf_optim_fns_at(level);
    double attrs[WF_OPTIM_MAX_ATTRS];
    const struct wf_optim_row *row = case_row(c, attrs);
    int64_t stride = width + 3;
    float *w = random_floats(ROWS * width, -1, 1), *g = random_floats(SAMPLES * stride, -1, 1);
    float *naive = zeros(SAMPLES * width, sizeof *naive),
          *sums = zeros(SAMPLES * width, sizeof *sums);
    struct vec want = vec_new(row, attrs, ROWS * width, w);
    int32_t *ids = zeros(SAMPLES, sizeof *ids);
    struct wf_dedupe d = dedupe_new(ids, false, 1, SAMPLES, ROWS);
    struct wf_optim_scalars k;

    for (int i = 0; i < SAMPLES; i++)
        ids[i] = (int32_t)(random_unit() * ROWS);
    assert_int_equal(wf_dedupe_run(NULL, &d, 1), -1);
    wf_optim_prepare(row, attrs, .01, 3, 1, &k);
    sum_naively(&d, width, g, stride, naive);
    wf_dedupe_sum(f, contexts[1]->pool, &d, width, g, stride, sums);
    check_same(sums, naive, (size_t)(d.n_distinct * width) * sizeof(float), "summed rows");
    dense_rows(f, &k, &want, width, &d, naive);
    for (int i = 0; i < N_COUNTS; i++) {
        struct vec got[2] = {vec_new(row, attrs, ROWS * width, w),
                             vec_new(row, attrs, ROWS * width, w)};
        struct wf_optim_table t[2];

        for (int j = 0; j < 2; j++)
            t[j] = (struct wf_optim_table){.w = got[j].w,
                                           .slot = {got[j].slot[0], got[j].slot[1], got[j].slot[2]},
                                           .width = width,
                                           .rows = d.rows,
                                           .n = d.n_distinct,
                                           .g = j ? sums : g,
                                           .g_stride = j ? width : stride,
                                           .first = j ? NULL : d.first,
                                           .next = j ? NULL : d.next};
        wf_optim_update_tables(f, contexts[i]->pool, &k, t, 2);
        for (int j = 0; j < 2; j++) {
            vec_same(&got[j], &want, row->name);
            vec_free(&got[j]);
        }
    }
    vec_free(&want);
    dedupe_free(&d);
    free(ids);
    free(w);
    free(g);
    free(naive);
    free(sums);
}

/* Rows that are each followed by their slots, as servers keep them: [w][slots][3 more]. */
static void strided_case(const struct golden *c, weft_simd level, int64_t width)
{
    enum { ROWS = 90, N = 60, MORE = 3 };
    const struct wf_optim_fns *f = wf_optim_fns_at(level);
    double attrs[WF_OPTIM_MAX_ATTRS];
    const struct wf_optim_row *row = case_row(c, attrs);
    float *w = random_floats(ROWS * width, -1, 1), *g = random_floats(ROWS * width, -1, 1);
    struct vec want = vec_new(row, attrs, ROWS * width, w);
    int n_slots = 0;
    int64_t rows[N], stride;
    int32_t first[N], alone[ROWS];
    struct wf_optim_table plain = {.w = want.w,
                                   .slot = {want.slot[0], want.slot[1], want.slot[2]},
                                   .width = width,
                                   .rows = rows,
                                   .n = N,
                                   .g = g,
                                   .g_stride = width,
                                   .first = first,
                                   .next = alone};
    struct wf_optim_table t = plain;
    struct wf_optim_scalars k;
    float *data;

    while (n_slots < WF_OPTIM_MAX_SLOTS && want.slot[n_slots])
        n_slots++;
    stride = (1 + n_slots) * width + MORE;
    data = zeros(ROWS * stride, sizeof *data);
    for (int r = 0; r < ROWS; r++) {
        memcpy(data + r * stride, want.w + r * width, (size_t)width * sizeof *data);
        for (int s = 0; s < n_slots; s++)
            memcpy(data + r * stride + (s + 1) * width, want.slot[s] + r * width,
                   (size_t)width * sizeof *data);
        for (int i = 0; i < MORE; i++)
            data[(r + 1) * stride - 1 - i] = 7;
        alone[r] = -1;
    }
    for (int i = 0; i < N; i++) {
        rows[i] = (i * 37 + 11) % ROWS; /* all different */
        first[i] = ROWS - 1 - i;
    }
    t.w = data;
    t.stride = stride;
    for (int s = 0; s < WF_OPTIM_MAX_SLOTS; s++)
        t.slot[s] = s < n_slots ? data + (s + 1) * width : NULL;
    wf_optim_prepare(row, attrs, .01, 3, 1, &k);
    wf_optim_update_tables(f, contexts[1]->pool, &k, &plain, 1);
    wf_optim_update_tables(f, contexts[1]->pool, &k, &t, 1);
    for (int r = 0; r < ROWS; r++) {
        check_same(data + r * stride, want.w + r * width, (size_t)width * sizeof *data, row->name);
        for (int s = 0; s < n_slots; s++)
            check_same(data + r * stride + (s + 1) * width, want.slot[s] + r * width,
                       (size_t)width * sizeof *data, row->name);
        for (int i = 0; i < MORE; i++)
            assert_true(data[(r + 1) * stride - 1 - i] == 7);
    }
    vec_free(&want);
    free(w);
    free(g);
    free(data);
}

static void rows_between_other_numbers_are_updated_alike(void **state)
{
    static const int64_t widths[] = {1, 5, 16, 19};

    (void)state;
    for (int c = 0; c < N_CASES; c++)
        for (EACH_LEVEL(level))
            for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
                strided_case(&goldens[c], level, widths[i]);
}

static void sparse_rows_equal_the_dense_update_of_those_rows(void **state)
{
    static const int64_t widths[] = {1, 5, 16, 19, 64};

    (void)state;
    for (int c = 0; c < N_CASES; c++)
        for (EACH_LEVEL(level))
            for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
                rows_case(&goldens[c], level, widths[i]);
}

/* ---- norms ------------------------------------------------------------------------------- */

static void norms_have_the_same_bits_at_every_level(void **state)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 50000};
    enum { SPANS = sizeof sizes / sizeof sizes[0] };
    struct wf_span spans[SPANS];
    double first[SPANS], total = 0, *blocks;

    (void)state;
    for (int s = 0; s < SPANS; s++)
        spans[s] = (struct wf_span){random_floats(sizes[s], -3, 3), sizes[s]};
    blocks = zeros(wf_span_blocks(spans, SPANS), sizeof *blocks);
    assert_int_equal(wf_span_blocks(spans, SPANS), 0 + 6 + 2 + 13);
    for (EACH_LEVEL(level))
        for (int i = 0; i < N_COUNTS; i++) {
            double sq[SPANS];

            wf_span_sumsq(wf_optim_fns_at(level), contexts[i]->pool, spans, SPANS, blocks, sq);
            if (level == first_level() && i == 0)
                memcpy(first, sq, sizeof sq);
            check_same(sq, first, sizeof sq, "sums of squares");
        }
    for (int s = 0; s < SPANS; s++) {
        double want = 0;

        for (int64_t i = 0; i < spans[s].n; i++)
            want += (double)spans[s].x[i] * spans[s].x[i];
        check_near(first[s], want, 1e-12, "sumsq", s);
        total += want;
    }
    check_near(wf_global_norm(first, SPANS), sqrt(total), 1e-12, "norm", 0);
    for (int s = 0; s < SPANS; s++)
        free((void *)spans[s].x);
    free(blocks);
}

static void one_bad_element_makes_the_norm_not_finite(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    float x[5000];

    (void)state;
    for (EACH_LEVEL(level))
        for (int b = 0; b < 3; b++)
            for (int at = 0; at < 5000; at += 311) {
                double blocks[2];

                for (int i = 0; i < 5000; i++)
                    x[i] = 3e38f;
                wf_block_sumsq(wf_optim_fns_at(level), NULL, 5000, x, blocks);
                assert_true(isfinite(wf_sum_blocks(blocks, 2)));
                x[at] = bad[b];
                wf_block_sumsq(wf_optim_fns_at(level), NULL, 5000, x, blocks);
                assert_false(isfinite(wf_sum_blocks(blocks, 2)));
                assert_true(isnan(wf_clip_scale(sqrt(wf_sum_blocks(blocks, 2)), 1)));
            }
    assert_true(wf_clip_scale(.5, 1) == 1 && wf_clip_scale(4, 1) == .25 &&
                wf_clip_scale(0, 1) == 1);
}

static void a_nan_gradient_survives_clipping(void **state)
{
    (void)state;
    for (EACH_LEVEL(level)) {
        struct wf_optim_scalars k = {.form = WF_OPTIM_SGD, .grad_scale = 1, .clip = .5f, .lr = 1};
        float w[20] = {0}, g[20] = {0}, *slot[3] = {0};

        g[3] = g[18] = NAN;
        g[4] = 7;
        g[19] = -7;
        wf_optim_update(wf_optim_fns_at(level), NULL, &k, 20, w, g, slot);
        assert_true(isnan(w[3]) && isnan(w[18]));
        assert_true(w[4] == -.5f && w[19] == .5f && w[0] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keras_numbers_after_three_steps),
        cmocka_unit_test(every_form_matches_plain_f64_at_any_size_and_thread_count),
        cmocka_unit_test(a_range_may_be_cut_anywhere),
        cmocka_unit_test(an_update_into_other_memory_has_the_same_bits),
        cmocka_unit_test(dedupe_lists_ids_in_order_of_first_appearance),
        cmocka_unit_test(ids_out_of_range_are_named),
        cmocka_unit_test(sparse_rows_equal_the_dense_update_of_those_rows),
        cmocka_unit_test(rows_between_other_numbers_are_updated_alike),
        cmocka_unit_test(norms_have_the_same_bits_at_every_level),
        cmocka_unit_test(one_bad_element_makes_the_norm_not_finite),
        cmocka_unit_test(a_nan_gradient_survives_clipping),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
