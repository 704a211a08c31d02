/* optim.h - optimizers as rows of a table, so that whoever owns the vectors needs no model code.
 *
 * A row says which attributes an optimizer has (Keras' names and defaults), which slots it keeps
 * for a parameter, and how its scalars are computed once per step. The update itself is a kernel
 * that reads those scalars and is chosen by `form`; it works element by element on the flat
 * vectors, so any split of them gives the same bits (LAMB, which needs norms of a variable, says
 * how below).
 *
 * Per element, g the gradient as it comes, in Keras' order:
 *     g *= grad_scale;  g = clip(g, -clip, clip);  w -= w * decay;  then by form:
 *   SGD            w -= lr g
 *   MOMENTUM       m = mu m - lr g;  w += m
 *   NESTEROV       m = mu m - lr g;  w += mu m - lr g
 *   RMSPROP        v = rho v + (1-rho) g^2;  d = lr g / sqrt(v + eps);  w -= d
 *     _MOM           ... b = mu b + d;  w -= b
 *     _CENTERED      ... a = rho a + (1-rho) g;  d = lr g / sqrt(v - a^2 + eps)
 *     _CENTERED_MOM  both
 *   ADAM           m += (g-m)(1-b1);  v += (g^2-v)(1-b2);  w -= alpha m / (sqrt(v) + eps),
 *                  alpha = lr sqrt(1-b2^t) / (1-b1^t)      (AdamW: with weight decay .004)
 *   AMSGRAD        ... h = max(h, v);  w -= alpha m / (sqrt(h) + eps)
 *   ADAMAX         m as Adam;  u = max(b2 u, |g|);  w -= lr m / ((1-b1^t) (u + eps))
 *   NADAM          m, v as Adam;  w -= lr mh / (sqrt(v / (1-b2^t)) + eps),
 *                  mh = u' m / (1 - U u') + (1-u) g / (1 - U),  u = b1 (1 - .96^t / 2),
 *                  u' the same for t+1,  U the product of all u so far
 *   ADAGRAD        a += g^2;  w -= lr g / sqrt(a + eps)
 *   ADADELTA       a = rho a + (1-rho) g^2;  d = -sqrt(b + eps) g / sqrt(a + eps);
 *                  b = rho b + (1-rho) d^2;  w += lr d
 *   FTRL           n' = n + g^2;  z += g + 2 shrink w - (n'^p - n^p) w / lr,  p = -lr_power;
 *                  w = (clip(z, -l1, l1) - z) / (n'^p / lr + 2 l2 + beta / lr);  n = n'
 *   LION           w -= lr sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 *   LAMB           m, v as Adam;  q = m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps);
 *                  w -= lr q |w| / |q|  (1 for the ratio where a norm is zero) */
#ifndef WF_OP_OPTIM_H
#define WF_OP_OPTIM_H

#include <stdint.h>

#define WF_OPTIM_MAX_SLOTS 3
#define WF_OPTIM_MAX_ATTRS 16

enum wf_optim_form {
    WF_OPTIM_SGD,
    WF_OPTIM_MOMENTUM,
    WF_OPTIM_NESTEROV,
    WF_OPTIM_RMSPROP,
    WF_OPTIM_RMSPROP_MOM,
    WF_OPTIM_RMSPROP_CENTERED,
    WF_OPTIM_RMSPROP_CENTERED_MOM,
    WF_OPTIM_ADAM,
    WF_OPTIM_AMSGRAD,
    WF_OPTIM_ADAMAX,
    WF_OPTIM_NADAM,
    WF_OPTIM_ADAGRAD,
    WF_OPTIM_ADADELTA,
    WF_OPTIM_FTRL,       /* lr_power -1/2: the power is a square root */
    WF_OPTIM_FTRL_POWER, /* any other */
    WF_OPTIM_LION,
    WF_OPTIM_LAMB,
    WF_OPTIM_N_FORMS
};

/* What a kernel reads: computed once per step by wf_optim_prepare, in f64, rounded once to f32. A
 * field that a form does not use is zero. */
struct wf_optim_scalars {
    enum wf_optim_form form;
    float grad_scale; /* loss scale, denominator and norm clipping in one factor */
    float clip;       /* clip by value; 0: no clipping */
    float decay;      /* weight decay times learning rate; 0: none */
    float lr;         /* the learning rate, or Adam's alpha, or Adamax' lr / (1 - b1^t) */
    float inv_lr;     /* FTRL */
    float momentum;
    float b1, b2; /* Lion's betas, Adamax' b2, rho in b2 */
    float c1, c2; /* 1 - b1, 1 - b2 */
    float eps;
    float k1, k2; /* Nadam: factors of m and g in mh; LAMB: 1 / (1 - b1^t), unused */
    float k3;     /* Nadam, LAMB: 1 / (1 - b2^t) */
    float l1, l2; /* FTRL: clip of z; 2 l2 + beta / lr */
    float shrink; /* FTRL: twice the l2 shrinkage */
    float power;  /* FTRL: -lr_power */
};

/* The first attributes are common to every row, in this order. */
enum {
    WF_OPTIM_ATTR_LR,
    WF_OPTIM_ATTR_WEIGHT_DECAY,    /* 0: none */
    WF_OPTIM_ATTR_CLIPNORM,        /* of each variable; 0: off. Of these three */
    WF_OPTIM_ATTR_GLOBAL_CLIPNORM, /* only the first that is on is used */
    WF_OPTIM_ATTR_CLIPVALUE,
    WF_OPTIM_ATTR_OWN /* the row's own attributes follow */
};

struct wf_optim_attr {
    const char *name;
    double def;
};

struct wf_optim_slot {
    const char *name;
    const char *init; /* the attribute whose value the slot starts at; NULL: zero */
    const char *when; /* kept only if this attribute is not zero; NULL: always */
};

struct wf_optim_row {
    const char *name;
    int n_attrs; /* including the common ones */
    struct wf_optim_attr attrs[WF_OPTIM_MAX_ATTRS];
    int n_slots; /* maximum; wf_optim_slots says which are kept */
    struct wf_optim_slot slots[WF_OPTIM_MAX_SLOTS];
    /* Fills form and the row's own scalars from attrs, t = 1 for the first step. */
    void (*prepare)(const double *attrs, double lr, int64_t t, struct wf_optim_scalars *out);
};

/* sgd rmsprop adam adamw adamax nadam adagrad adadelta ftrl lion lamb. amsgrad is adam's
 * attribute. */
extern const struct wf_optim_row wf_optim_rows[];
extern const int wf_n_optim_rows;

const struct wf_optim_row *wf_optim_find(const char *name); /* NULL if there is none */
int wf_optim_attr_find(const struct wf_optim_row *row, const char *name); /* -1 if there is none */
void wf_optim_defaults(const struct wf_optim_row *row, double *attrs);
/* The first attribute outside its range as text such as "beta_1 must be in [0, 1)"; NULL: all are
 * valid. */
const char *wf_optim_check(const struct wf_optim_row *row, const double *attrs);

/* The slots kept with these attributes, in the order the kernels take them; returns how many.
 * init[i] is the initial value of slot i, names[i] its name (either array may be NULL). */
int wf_optim_slots(const struct wf_optim_row *row, const double *attrs, const char **names,
                   float *init);

/* The step's scalars. lr: the learning rate after the schedule (which is evaluated at t - 1, as in
 * Keras). grad_scale: 1 / (loss scale * denominator), times wf_clip_scale if a norm is clipped. */
void wf_optim_prepare(const struct wf_optim_row *row, const double *attrs, double lr, int64_t t,
                      double grad_scale, struct wf_optim_scalars *out);

/* The factor that clips a gradient of this norm to `limit`: 1 if it is short enough, NaN if the
 * norm is not finite. */
double wf_clip_scale(double norm, double limit);

#endif
