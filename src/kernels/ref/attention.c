/* attention.c - reference kernels of scaled dot-product attention.
 *
 * Scores are computed again wherever they are needed; nothing of size [queries, keys] is kept. A
 * query that may attend to no key gets y = 0, a log-sum-exp of -inf and no gradient. */
#include <math.h>

#include "kernels/ref/ref.h"

enum { CHUNK = 64 }; /* elements of a result row that are summed in one pass */

/* One of q, k, v, y and their gradients: element (b, h, t, i) stands at base + b*sb + h*sh +
 * t*st + i. */
struct view {
    const struct wf_tensor *t;
    int64_t base, sb, sh, st;
};

struct att {
    int64_t n_b, n_h, n_q, n_k, d, dv;
    double scale;
    bool causal;
    const struct wf_tensor *mask; /* NULL: none */
    int64_t mask_step[4];
    struct view q, k, v, y, dy, dq, dk, dv_out;
    const struct wf_tensor *lse;
};

static double at(const struct view *v, int64_t b, int64_t h, int64_t t, int64_t i)
{
    return ref_get(v->t, v->base + b * v->sb + h * v->sh + t * v->st + i);
}

static void put(const struct view *v, int64_t b, int64_t h, int64_t t, int64_t i, double x)
{
    ref_set(v->t, v->base + b * v->sb + h * v->sh + t * v->st + i, x);
}

static struct view plain_view(const struct wf_call *c, const struct wf_tensor *t)
{
    const int64_t *dim = t->type.dim;
    bool head_first = !strcmp(wf_call_attr(c, "layout")->s, "bhtd");

    return (struct view){t, 0, dim[1] * dim[2] * dim[3], dim[3] * (head_first ? dim[2] : 1),
                         dim[3] * (head_first ? 1 : dim[2])};
}

/* part: 0 q, 1 k, 2 v of [b, t, 3, h, d]. */
static struct view packed_view(const struct wf_tensor *t, int part)
{
    const int64_t *dim = t->type.dim;
    int64_t row = dim[3] * dim[4];

    return (struct view){t, part * row, dim[1] * 3 * row, dim[4], 3 * row};
}

static struct view packed_out_view(const struct wf_tensor *t)
{
    const int64_t *dim = t->type.dim;

    return (struct view){t, 0, dim[1] * dim[2] * dim[3], dim[3], dim[2] * dim[3]};
}

static void set_common(const struct wf_call *c, struct att *a, int mask)
{
    a->causal = wf_call_int(c, "causal");
    a->scale = wf_call_float(c, "scale");
    if (a->scale == 0)
        a->scale = 1 / sqrt((double)a->d);
    if (mask < c->n_in && c->in[mask].data) {
        const struct wf_type *t = &c->in[mask].type;
        int64_t stride = 1;

        a->mask = &c->in[mask];
        for (int i = t->rank - 1, k = 3; i >= 0; i--, k--) {
            a->mask_step[k] = t->dim[i] == 1 ? 0 : stride;
            stride *= t->dim[i];
        }
    }
}

static void set_plain(const struct wf_call *c, struct att *a, int first, int mask)
{
    const int64_t *q = c->in[first].type.dim, *k = c->in[first + 1].type.dim;
    int h = strcmp(wf_call_attr(c, "layout")->s, "bhtd") ? 2 : 1;

    *a = (struct att){.n_b = q[0],
                      .n_h = q[h],
                      .n_q = q[3 - h],
                      .n_k = k[3 - h],
                      .d = q[3],
                      .dv = c->in[first + 2].type.dim[3]};
    a->q = plain_view(c, &c->in[first]);
    a->k = plain_view(c, &c->in[first + 1]);
    a->v = plain_view(c, &c->in[first + 2]);
    set_common(c, a, mask);
}

static void set_packed(const struct wf_call *c, struct att *a, int first, int mask)
{
    const struct wf_tensor *t = &c->in[first];
    const int64_t *dim = t->type.dim;

    *a = (struct att){
        .n_b = dim[0], .n_h = dim[3], .n_q = dim[1], .n_k = dim[1], .d = dim[4], .dv = dim[4]};
    a->q = packed_view(t, 0);
    a->k = packed_view(t, 1);
    a->v = packed_view(t, 2);
    set_common(c, a, mask);
}

/* The score of query i and key j; -inf where it may not attend. */
static double score(const struct att *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double sum = 0, m = 0;

    if (a->causal && j > i)
        return -INFINITY;
    if (a->mask) {
        m = ref_get(a->mask, b * a->mask_step[0] + h * a->mask_step[1] + i * a->mask_step[2] +
                                 j * a->mask_step[3]);
        if (a->mask->type.dtype == WEFT_BOOL) {
            if (m == 0)
                return -INFINITY;
            m = 0;
        }
    }
    for (int64_t p = 0; p < a->d; p++)
        sum += at(&a->q, b, h, i, p) * at(&a->k, b, h, j, p);
    return sum * a->scale + m;
}

/* exp(s - lse) with nothing to attend to counting as 0. */
static double weight(double s, double lse)
{
    return s == -INFINITY ? 0 : exp(s - lse);
}

static void forward_row(const struct att *a, const struct wf_tensor *lse, int64_t b, int64_t h,
                        int64_t i)
{
    double max = -INFINITY, sum = 0, l;

    for (int64_t j = 0; j < a->n_k; j++) {
        double s = score(a, b, h, i, j);

        max = s > max || isnan(s) ? s : max;
    }
    for (int64_t j = 0; j < a->n_k; j++)
        sum += weight(score(a, b, h, i, j), max);
    l = max == -INFINITY ? -INFINITY : max + log(sum);
    ref_set(lse, (b * a->n_h + h) * a->n_q + i, l);
    for (int64_t from = 0; from < a->dv; from += CHUNK) {
        int64_t n = wf_min_i64(CHUNK, a->dv - from);
        double acc[CHUNK] = {0};

        for (int64_t j = 0; j < a->n_k; j++) {
            double p = weight(score(a, b, h, i, j), l);

            for (int64_t e = 0; e < n && p != 0; e++)
                acc[e] += p * at(&a->v, b, h, j, from + e);
        }
        for (int64_t e = 0; e < n; e++)
            put(&a->y, b, h, i, from + e, acc[e]);
    }
}

static void forward(const struct att *a, const struct wf_tensor *lse)
{
    for (int64_t row = 0; row < a->n_b * a->n_h * a->n_q; row++)
        forward_row(a, lse, row / a->n_q / a->n_h, row / a->n_q % a->n_h, row % a->n_q);
}

/* p and ds = p * (dp - delta) of one pair, where dp = dy·v and delta = dy·y. */
static double pair_grad(const struct att *a, int64_t b, int64_t h, int64_t i, int64_t j, double *p)
{
    double dp = 0, delta = 0;

    *p = weight(score(a, b, h, i, j), ref_get(a->lse, (b * a->n_h + h) * a->n_q + i));
    if (*p == 0)
        return 0;
    for (int64_t e = 0; e < a->dv; e++) {
        double g = at(&a->dy, b, h, i, e);

        dp += g * at(&a->v, b, h, j, e);
        delta += g * at(&a->y, b, h, i, e);
    }
    return *p * (dp - delta);
}

static void grad_q_row(const struct att *a, int64_t b, int64_t h, int64_t i)
{
    for (int64_t from = 0; from < a->d; from += CHUNK) {
        int64_t n = wf_min_i64(CHUNK, a->d - from);
        double acc[CHUNK] = {0}, p;

        for (int64_t j = 0; j < a->n_k; j++) {
            double ds = pair_grad(a, b, h, i, j, &p);

            for (int64_t e = 0; e < n && p != 0; e++)
                acc[e] += ds * at(&a->k, b, h, j, from + e);
        }
        for (int64_t e = 0; e < n; e++)
            put(&a->dq, b, h, i, from + e, acc[e] * a->scale);
    }
}

static void grad_kv_row(const struct att *a, int64_t b, int64_t h, int64_t j)
{
    for (int64_t from = 0; from < wf_max_i64(a->d, a->dv); from += CHUNK) {
        int64_t n = wf_min_i64(CHUNK, a->d - from), n_v = wf_min_i64(CHUNK, a->dv - from);
        double k_acc[CHUNK] = {0}, v_acc[CHUNK] = {0}, p;

        for (int64_t i = 0; i < a->n_q; i++) {
            double ds = pair_grad(a, b, h, i, j, &p);

            for (int64_t e = 0; e < n && p != 0; e++)
                k_acc[e] += ds * at(&a->q, b, h, i, from + e);
            for (int64_t e = 0; e < n_v && p != 0; e++)
                v_acc[e] += p * at(&a->dy, b, h, i, from + e);
        }
        for (int64_t e = 0; e < n; e++)
            put(&a->dk, b, h, j, from + e, k_acc[e] * a->scale);
        for (int64_t e = 0; e < n_v; e++)
            put(&a->dv_out, b, h, j, from + e, v_acc[e]);
    }
}

static void backward(const struct att *a)
{
    for (int64_t row = 0; row < a->n_b * a->n_h * a->n_q; row++)
        grad_q_row(a, row / a->n_q / a->n_h, row / a->n_q % a->n_h, row % a->n_q);
    for (int64_t row = 0; row < a->n_b * a->n_h * a->n_k; row++)
        grad_kv_row(a, row / a->n_k / a->n_h, row / a->n_k % a->n_h, row % a->n_k);
}

weft_status wf_ref_attention(const struct wf_call *c)
{
    struct att a;

    set_plain(c, &a, 0, 3);
    a.y = plain_view(c, &c->out[0]);
    forward(&a, &c->out[1]);
    return WEFT_OK;
}

weft_status wf_ref_attention_grad(const struct wf_call *c)
{
    struct att a;

    set_plain(c, &a, 1, 6);
    a.dy = plain_view(c, &c->in[0]);
    a.y = plain_view(c, &c->in[4]);
    a.lse = &c->in[5];
    a.dq = plain_view(c, &c->out[0]);
    a.dk = plain_view(c, &c->out[1]);
    a.dv_out = plain_view(c, &c->out[2]);
    backward(&a);
    return WEFT_OK;
}

weft_status wf_ref_attention_packed(const struct wf_call *c)
{
    struct att a;

    set_packed(c, &a, 0, 1);
    a.y = packed_out_view(&c->out[0]);
    forward(&a, &c->out[1]);
    return WEFT_OK;
}

weft_status wf_ref_attention_packed_grad(const struct wf_call *c)
{
    struct att a;

    set_packed(c, &a, 1, 4);
    a.dy = packed_out_view(&c->in[0]);
    a.y = packed_out_view(&c->in[2]);
    a.lse = &c->in[3];
    a.dq = packed_view(&c->out[0], 0);
    a.dk = packed_view(&c->out[0], 1);
    a.dv_out = packed_view(&c->out[0], 2);
    backward(&a);
    return WEFT_OK;
}

weft_status wf_ref_masked_softmax(const struct wf_call *c)
{
    const struct wf_type *t = &c->in[0].type;
    const struct wf_tensor *mask = c->n_in > 1 && c->in[1].data ? &c->in[1] : NULL;
    int64_t n_k = t->dim[t->rank - 1], n_q = t->dim[t->rank - 2], n_rows = wf_count(&c->out[1]);
    bool causal = wf_call_int(c, "causal");

    for (int64_t row = 0; row < n_rows; row++) {
        int64_t n = causal ? wf_min_i64(n_k, row % n_q + 1) : n_k;
        double max = -INFINITY, sum = 0;

        for (int pass = 0; pass < 3; pass++)
            for (int64_t j = 0; j < n_k; j++) {
                double m =
                    mask ? ref_get(mask, wf_ref_broadcast_index(&mask->type, t, row * n_k + j)) : 0;
                double s = ref_get(&c->in[0], row * n_k + j);

                if (j >= n || (mask && mask->type.dtype == WEFT_BOOL && m == 0))
                    s = -INFINITY;
                else if (mask && mask->type.dtype != WEFT_BOOL)
                    s += m;
                if (pass == 0)
                    max = s > max || isnan(s) ? s : max;
                else if (pass == 1)
                    sum += weight(s, max);
                else
                    ref_set(&c->out[0], row * n_k + j, s == -INFINITY ? 0 : weight(s, max) / sum);
            }
        ref_set(&c->out[1], row, max == -INFINITY ? -INFINITY : max + log(sum));
    }
    return WEFT_OK;
}
