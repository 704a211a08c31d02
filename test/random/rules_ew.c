/* rules_ew.c - drawing element-wise ops. */
#include <math.h>

#include "random/rules.h"

const char *rule_list(int n, const int64_t *x, char buf[160])
{
    int at = snprintf(buf, 160, "[");

    for (int i = 0; i < n; i++)
        at += snprintf(buf + at, 160 - (size_t)at, "%s%lld", i ? "," : "", (long long)x[i]);
    snprintf(buf + at, 160 - (size_t)at, "]");
    return buf;
}

weft_val rule_scalar(struct gen *g, weft_dtype t, double v)
{
    double data[2] = {0};
    weft_tensor view = weft_view(t, data, 0, NULL);
    weft_val c;

    wf_set(data, t, 0, v);
    c = weft_constant(g->g, &view);
    gen_settle(g);
    return c;
}

weft_val rule_positive(struct gen *g, weft_val x)
{
    weft_val in[2] = {gen_op(g, "abs", 1, &x, "%s", "")};

    if (!in[0].id)
        return WEFT_NIL;
    in[1] = rule_scalar(g, gen_type(g, x)->dtype, 0.5);
    return gen_op(g, "add", 2, in, "%s", "");
}

/* Values for functions that grow fast. */
static weft_val tame(struct gen *g, weft_val x)
{
    if (x.id && !(gen_max_abs(g, x) < 6))
        return gen_op(g, "tanh", 1, &x, "%s", "");
    return x;
}

bool draw_unary(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, NUMBERS, 0, 8);

    return x.id && gen_op(g, op, 1, &x, "%s", "").id;
}

bool draw_unary_float(struct gen *g, const char *op)
{
    weft_val x = tame(g, gen_any(g, FLOATS, 0, 8));

    return x.id && gen_op(g, op, 1, &x, "%s", "").id;
}

bool draw_positive(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 0, 8);

    if (x.id && (g->smooth || !draw_one_in(&g->d, 12)))
        x = rule_positive(g, x);
    return x.id && gen_op(g, op, 1, &x, "%s", "").id;
}

static const char *limits(struct gen *g, char buf[96])
{
    double lo = (double)draw_int(&g->d, -3, 1), hi = lo + (double)draw_int(&g->d, 0, 3);

    switch (draw_int(&g->d, 0, 3)) {
    case 0: snprintf(buf, 96, "min=%g", lo); break;
    case 1: snprintf(buf, 96, "max=%g", hi); break;
    default: snprintf(buf, 96, "min=%g max=%g", lo + 0.25, hi + 0.25);
    }
    return buf;
}

bool draw_clip(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, NUMBERS, 0, 8);
    char buf[96];

    return x.id && gen_op(g, op, 1, &x, "%s", limits(g, buf)).id;
}

bool draw_alpha(struct gen *g, const char *op)
{
    weft_val x = tame(g, gen_any(g, FLOATS, 0, 8));

    return x.id && gen_op(g, op, 1, &x, "alpha=%g", draw_real(&g->d, 0, 2)).id;
}

bool draw_prelu(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 8)};

    if (!in[0].id)
        return false;
    in[1] = gen_spread(g, gen_type(g, in[0])->dtype, in[0]);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

/* (dy, x) of a gradient op. */
bool draw_pair(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 8)};

    if (!in[0].id)
        return false;
    in[1] = tame(g, gen_like(g, in[0]));
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_pair_attrs(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 8)};
    char buf[96];

    if (!in[0].id)
        return false;
    in[1] = tame(g, gen_like(g, in[0]));
    if (strcmp(op, "clip_grad"))
        snprintf(buf, sizeof buf, "alpha=%g", draw_real(&g->d, 0, 2));
    else
        limits(g, buf);
    return in[1].id && gen_op(g, op, 2, in, "%s", buf).id;
}

static bool two(struct gen *g, unsigned kinds, weft_val in[2])
{
    int swap;

    in[0] = gen_any(g, kinds, 0, 8);
    if (!in[0].id)
        return false;
    in[1] = draw_one_in(&g->d, 12) ? in[0] : gen_spread(g, gen_type(g, in[0])->dtype, in[0]);
    swap = draw_one_in(&g->d, 2);
    if (swap) {
        weft_val t = in[0];

        in[0] = in[1];
        in[1] = t;
    }
    return in[0].id && in[1].id;
}

bool draw_binary(struct gen *g, const char *op)
{
    weft_val in[2];

    return two(g, NUMBERS, in) && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_div(struct gen *g, const char *op)
{
    weft_val in[2];

    if (!two(g, FLOATS, in))
        return false;
    if (g->smooth || !draw_one_in(&g->d, 12))
        in[1] = rule_positive(g, in[1]);
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_mod(struct gen *g, const char *op)
{
    weft_val in[2];

    if (!two(g, NUMBERS, in))
        return false;
    if (wf_is_float(gen_type(g, in[1])->dtype))
        in[1] = rule_positive(g, in[1]);
    else
        in[1] = rule_scalar(g, gen_type(g, in[1])->dtype, (double)draw_int(&g->d, 1, 4));
    return in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_pow(struct gen *g, const char *op)
{
    weft_val in[2];

    if (!two(g, FLOATS, in))
        return false;
    in[0] = rule_positive(g, in[0]);
    in[1] = draw_one_in(&g->d, 2) && in[1].id
                ? rule_scalar(g, gen_type(g, in[1])->dtype, (double)draw_int(&g->d, -2, 3))
                : tame(g, in[1]);
    return in[0].id && in[1].id && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_compare(struct gen *g, const char *op)
{
    weft_val in[2];

    return two(g, ANYTHING, in) && gen_op(g, op, 2, in, "%s", "").id;
}

bool draw_logical(struct gen *g, const char *op)
{
    weft_val in[2];

    if (!two(g, BOOLS, in))
        return false;
    return gen_op(g, op, strcmp(op, "logical_not") ? 2 : 1, in, "%s", "").id;
}

bool draw_where(struct gen *g, const char *op)
{
    weft_val in[3];

    if (!two(g, draw_one_in(&g->d, 4) ? ANYTHING : FLOATS, in + 1))
        return false;
    in[0] = gen_spread(g, WEFT_BOOL, in[1]);
    return in[0].id && gen_op(g, op, 3, in, "%s", "").id;
}

bool draw_cast(struct gen *g, const char *op)
{
    static const weft_dtype to[] = {WEFT_F32, WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16,
                                    WEFT_I8,  WEFT_U8,  WEFT_I32, WEFT_I64, WEFT_BOOL};
    weft_val x = gen_any(g, draw_one_in(&g->d, 3) ? ANYTHING : FLOATS, 0, 8);
    weft_dtype t = to[draw_int(&g->d, 0, WF_COUNT(to) - 1)];

    if (g->smooth && (t == WEFT_F16 || t == WEFT_BF16))
        t = WEFT_F64;
    if (x.id && draw_one_in(&g->d, 4) && gen_type(g, x)->dtype != WEFT_BOOL) { /* out of range */
        weft_val in[2] = {x,
                          rule_scalar(g, gen_type(g, x)->dtype, draw_one_in(&g->d, 2) ? 100 : -90)};

        x = gen_op(g, "mul", 2, in, "%s", "");
    }
    if (!x.id || (!wf_is_float(t) && !isfinite(gen_max_abs(g, x))))
        return false;
    return gen_op(g, op, 1, &x, "dtype=%s", weft_dtype_name(t)).id;
}

bool draw_add_n(struct gen *g, const char *op)
{
    weft_val in[5] = {gen_any(g, NUMBERS, 0, 8)};
    int n = (int)draw_int(&g->d, 1, 5);

    for (int i = 1; i < n; i++)
        in[i] = in[0].id ? (draw_one_in(&g->d, 5) ? in[0] : gen_like(g, in[0])) : WEFT_NIL;
    for (int i = 0; i < n; i++)
        if (!in[i].id)
            return false;
    return gen_op(g, op, n, in, "%s", "").id;
}
