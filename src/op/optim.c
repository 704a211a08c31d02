/* optim.c - the optimizer table and the scalars of a step. All in f64 with plain multiplications,
 * so that every machine gets the same bits. */
#include "op/optim.h"

#include <math.h>
#include <string.h>

/* x to a whole power n >= 0. */
static double power_int(double x, int64_t n)
{
    double r = 1.0;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            r *= x;
        x *= x;
    }
    return r;
}

static double own(const double *attrs, int i)
{
    return attrs[WF_OPTIM_ATTR_OWN + i];
}

/* ---- one function per row: own attributes in the order of the table -------------------------- */

static void prepare_sgd(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    double momentum = own(attrs, 0);

    (void)t;
    s->form = momentum == 0        ? WF_OPTIM_SGD
              : own(attrs, 1) != 0 ? WF_OPTIM_NESTEROV
                                   : WF_OPTIM_MOMENTUM;
    s->lr = (float)lr;
    s->momentum = (float)momentum;
}

static void prepare_rmsprop(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    static const enum wf_optim_form forms[2][2] = {
        {WF_OPTIM_RMSPROP, WF_OPTIM_RMSPROP_MOM},
        {WF_OPTIM_RMSPROP_CENTERED, WF_OPTIM_RMSPROP_CENTERED_MOM},
    };

    (void)t;
    s->form = forms[own(attrs, 3) != 0][own(attrs, 1) > 0];
    s->lr = (float)lr;
    s->b2 = (float)own(attrs, 0);
    s->c2 = (float)(1.0 - own(attrs, 0));
    s->momentum = (float)own(attrs, 1);
    s->eps = (float)own(attrs, 2);
}

/* The attributes that Adam and its relatives share. */
static void prepare_betas(const double *attrs, struct wf_optim_scalars *s)
{
    s->b1 = (float)own(attrs, 0);
    s->b2 = (float)own(attrs, 1);
    s->c1 = (float)(1.0 - own(attrs, 0));
    s->c2 = (float)(1.0 - own(attrs, 1));
    s->eps = (float)own(attrs, 2);
}

static void prepare_adam(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    double p1 = power_int(own(attrs, 0), t), p2 = power_int(own(attrs, 1), t);

    prepare_betas(attrs, s);
    s->form = own(attrs, 3) != 0 ? WF_OPTIM_AMSGRAD : WF_OPTIM_ADAM;
    s->lr = (float)(lr * sqrt(1.0 - p2) / (1.0 - p1));
}

static void prepare_adamax(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    prepare_betas(attrs, s);
    s->form = WF_OPTIM_ADAMAX;
    s->lr = (float)(lr / (1.0 - power_int(own(attrs, 0), t)));
}

static void prepare_nadam(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    double b1 = own(attrs, 0), decay = 1.0, product = 1.0, u = 0.0, u_next;

    /* The product needs no state: it is soon too small to change 1 - product. */
    for (int64_t i = 1; i <= t && product > 0x1p-60; i++) {
        decay *= 0.96;
        product *= b1 * (1.0 - 0.5 * decay);
    }
    decay = power_int(0.96, t);
    u = b1 * (1.0 - 0.5 * decay);
    u_next = b1 * (1.0 - 0.5 * decay * 0.96);
    prepare_betas(attrs, s);
    s->form = WF_OPTIM_NADAM;
    s->lr = (float)lr;
    s->k1 = (float)(u_next / (1.0 - product * u_next));
    s->k2 = (float)((1.0 - u) / (1.0 - product));
    s->k3 = (float)(1.0 / (1.0 - power_int(own(attrs, 1), t)));
}

static void prepare_adagrad(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    (void)t;
    s->form = WF_OPTIM_ADAGRAD;
    s->lr = (float)lr;
    s->eps = (float)own(attrs, 1);
}

static void prepare_adadelta(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    (void)t;
    s->form = WF_OPTIM_ADADELTA;
    s->lr = (float)lr;
    s->b2 = (float)own(attrs, 0);
    s->c2 = (float)(1.0 - own(attrs, 0));
    s->eps = (float)own(attrs, 1);
}

static void prepare_ftrl(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    (void)t;
    s->form = own(attrs, 0) == -0.5 ? WF_OPTIM_FTRL : WF_OPTIM_FTRL_POWER;
    s->lr = (float)lr;
    s->inv_lr = (float)(1.0 / lr);
    s->power = (float)-own(attrs, 0);
    s->l1 = (float)own(attrs, 2);
    s->l2 = (float)(2.0 * own(attrs, 3) + own(attrs, 5) / lr);
    s->shrink = (float)(2.0 * own(attrs, 4));
}

static void prepare_lion(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    (void)t;
    s->form = WF_OPTIM_LION;
    s->lr = (float)lr;
    s->b1 = (float)own(attrs, 0);
    s->b2 = (float)own(attrs, 1);
    s->c1 = (float)(1.0 - own(attrs, 0));
    s->c2 = (float)(1.0 - own(attrs, 1));
}

static void prepare_lamb(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *s)
{
    prepare_betas(attrs, s);
    s->form = WF_OPTIM_LAMB;
    s->lr = (float)lr;
    s->k1 = (float)(1.0 / (1.0 - power_int(own(attrs, 0), t)));
    s->k3 = (float)(1.0 / (1.0 - power_int(own(attrs, 1), t)));
}

/* ---- the table --------------------------------------------------------------------------- */

#define COMMON(lr, decay)                                                                    \
    {"learning_rate", lr}, {"weight_decay", decay}, {"clipnorm", 0}, {"global_clipnorm", 0}, \
    {                                                                                        \
        "clipvalue", 0                                                                       \
    }

const struct wf_optim_row wf_optim_rows[] = {
    {"sgd",
     7,
     {COMMON(.01, 0), {"momentum", 0}, {"nesterov", 0}},
     1,
     {{"momentum", NULL, "momentum"}},
     prepare_sgd},
    {"rmsprop",
     9,
     {COMMON(.001, 0), {"rho", .9}, {"momentum", 0}, {"epsilon", 1e-7}, {"centered", 0}},
     3,
     {{"velocity", NULL, NULL},
      {"momentum", NULL, "momentum"},
      {"average_gradient", NULL, "centered"}},
     prepare_rmsprop},
    {"adam",
     9,
     {COMMON(.001, 0), {"beta_1", .9}, {"beta_2", .999}, {"epsilon", 1e-7}, {"amsgrad", 0}},
     3,
     {{"momentum", NULL, NULL}, {"velocity", NULL, NULL}, {"velocity_hat", NULL, "amsgrad"}},
     prepare_adam},
    {"adamw",
     9,
     {COMMON(.001, .004), {"beta_1", .9}, {"beta_2", .999}, {"epsilon", 1e-7}, {"amsgrad", 0}},
     3,
     {{"momentum", NULL, NULL}, {"velocity", NULL, NULL}, {"velocity_hat", NULL, "amsgrad"}},
     prepare_adam},
    {"adamax",
     8,
     {COMMON(.001, 0), {"beta_1", .9}, {"beta_2", .999}, {"epsilon", 1e-7}},
     2,
     {{"momentum", NULL, NULL}, {"norm", NULL, NULL}},
     prepare_adamax},
    {"nadam",
     8,
     {COMMON(.001, 0), {"beta_1", .9}, {"beta_2", .999}, {"epsilon", 1e-7}},
     2,
     {{"momentum", NULL, NULL}, {"velocity", NULL, NULL}},
     prepare_nadam},
    {"adagrad",
     7,
     {COMMON(.001, 0), {"initial_accumulator_value", .1}, {"epsilon", 1e-7}},
     1,
     {{"accumulator", "initial_accumulator_value", NULL}},
     prepare_adagrad},
    {"adadelta",
     7,
     {COMMON(.001, 0), {"rho", .95}, {"epsilon", 1e-7}},
     2,
     {{"accumulated_grad", NULL, NULL}, {"accumulated_delta_var", NULL, NULL}},
     prepare_adadelta},
    {"ftrl",
     11,
     {COMMON(.001, 0),
      {"learning_rate_power", -.5},
      {"initial_accumulator_value", .1},
      {"l1_regularization_strength", 0},
      {"l2_regularization_strength", 0},
      {"l2_shrinkage_regularization_strength", 0},
      {"beta", 0}},
     2,
     {{"accumulator", "initial_accumulator_value", NULL}, {"linear", NULL, NULL}},
     prepare_ftrl},
    {"lion",
     7,
     {COMMON(.001, 0), {"beta_1", .9}, {"beta_2", .99}},
     1,
     {{"momentum", NULL, NULL}},
     prepare_lion},
    {"lamb",
     8,
     {COMMON(.001, 0), {"beta_1", .9}, {"beta_2", .999}, {"epsilon", 1e-7}},
     2,
     {{"momentum", NULL, NULL}, {"velocity", NULL, NULL}},
     prepare_lamb},
};
const int wf_n_optim_rows = (int)(sizeof wf_optim_rows / sizeof wf_optim_rows[0]);

/* ---- lookup ---------------------------------------------------------------------------------- */

const struct wf_optim_row *wf_optim_find(const char *name)
{
    for (int i = 0; i < wf_n_optim_rows; i++)
        if (!strcmp(wf_optim_rows[i].name, name))
            return &wf_optim_rows[i];
    return NULL;
}

int wf_optim_attr_find(const struct wf_optim_row *row, const char *name)
{
    for (int i = 0; i < row->n_attrs; i++)
        if (!strcmp(row->attrs[i].name, name))
            return i;
    return -1;
}

void wf_optim_defaults(const struct wf_optim_row *row, double *attrs)
{
    for (int i = 0; i < row->n_attrs; i++)
        attrs[i] = row->attrs[i].def;
}

const char *wf_optim_check(const struct wf_optim_row *row, const double *attrs)
{
    static const struct {
        const char *name;
        double low, high; /* low <= value < high */
        const char *text;
    } ranges[] = {
        {"learning_rate", 0, 0x1.ffffffp127, "learning_rate must be finite and not negative"},
        {"momentum", 0, 1 + 0x1p-52, "momentum must be in [0, 1]"},
        {"rho", 0, 1 + 0x1p-52, "rho must be in [0, 1]"},
        {"beta_1", 0, 1, "beta_1 must be in [0, 1)"},
        {"beta_2", 0, 1, "beta_2 must be in [0, 1)"},
        {"epsilon", 0, INFINITY, "epsilon must be finite and not negative"},
        {"weight_decay", 0, INFINITY, "weight_decay must be finite and not negative"},
        {"clipnorm", 0, INFINITY, "clipnorm must be finite and not negative"},
        {"global_clipnorm", 0, INFINITY, "global_clipnorm must be finite and not negative"},
        {"clipvalue", 0, INFINITY, "clipvalue must be finite and not negative"},
        {"initial_accumulator_value", 0, INFINITY,
         "initial_accumulator_value must be finite and not negative"},
        {"learning_rate_power", -0x1.fffffffffffffp1023, 0x1p-1074,
         "learning_rate_power must be finite and not positive"},
        {"beta", 0, INFINITY, "beta must be finite and not negative"},
        {"nesterov", 0, 1 + 0x1p-52, "nesterov must be 0 or 1"},
        {"centered", 0, 1 + 0x1p-52, "centered must be 0 or 1"},
        {"amsgrad", 0, 1 + 0x1p-52, "amsgrad must be 0 or 1"},
        {"l1_regularization_strength", 0, INFINITY,
         "l1_regularization_strength must not be negative"},
        {"l2_regularization_strength", 0, INFINITY,
         "l2_regularization_strength must not be negative"},
        {"l2_shrinkage_regularization_strength", 0, INFINITY,
         "l2_shrinkage_regularization_strength must not be negative"},
    };

    int n_clips = (attrs[WF_OPTIM_ATTR_CLIPNORM] > 0) + (attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] > 0) +
                  (attrs[WF_OPTIM_ATTR_CLIPVALUE] > 0);

    for (int i = 0; i < row->n_attrs; i++)
        for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++)
            if (!strcmp(ranges[r].name, row->attrs[i].name) &&
                (!(attrs[i] >= ranges[r].low && attrs[i] < ranges[r].high) ||
                 (strstr(ranges[r].text, "0 or 1") && attrs[i] != 0 && attrs[i] != 1)))
                return ranges[r].text;
    return n_clips > 1 ? "give only one of clipnorm, global_clipnorm and clipvalue" : NULL;
}

int wf_optim_slots(const struct wf_optim_row *row, const double *attrs, const char **names,
                   float *init)
{
    int n = 0;

    for (int i = 0; i < row->n_slots; i++) {
        const struct wf_optim_slot *slot = &row->slots[i];

        if (slot->when && attrs[wf_optim_attr_find(row, slot->when)] == 0)
            continue;
        if (names)
            names[n] = slot->name;
        if (init)
            init[n] = slot->init ? (float)attrs[wf_optim_attr_find(row, slot->init)] : 0.0f;
        n++;
    }
    return n;
}

void wf_optim_prepare(const struct wf_optim_row *row, const double *attrs, double lr, int64_t t,
                      double grad_scale, struct wf_optim_scalars *out)
{
    int by_norm = attrs[WF_OPTIM_ATTR_CLIPNORM] > 0 || attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] > 0;

    memset(out, 0, sizeof *out);
    out->grad_scale = (float)grad_scale;
    out->clip = by_norm ? 0.0f : (float)attrs[WF_OPTIM_ATTR_CLIPVALUE];
    out->decay = (float)(attrs[WF_OPTIM_ATTR_WEIGHT_DECAY] * lr);
    row->prepare(attrs, lr, t, out);
}

double wf_clip_scale(double norm, double limit)
{
    if (!(norm < INFINITY))
        return NAN;
    return norm > limit ? limit / norm : 1.0;
}
