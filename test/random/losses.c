/* losses.c - what training adds to a graph: a loss of several terms, gradients, optimizers. */
#include "random/rules.h"
#include "op/schedule.h"
#include "weft/optim.h"

/* One term as an f32 scalar. */
static weft_val term_of(struct gen *g, weft_val x)
{
    const struct wf_type *t = gen_type(g, x);
    char word[32];

    if (t->rank > 0 && t->dim[t->rank - 1] > 0 && draw_one_in(&g->d, 4)) {
        weft_val in[2] = {x, gen_ids(g, 0, t->dim[t->rank - 1] - 1, t->rank - 1, t->dim)};

        x = in[1].id ? gen_op(g, "sparse_softmax_xent", 2, in, "%s",
                              draw_one_in(&g->d, 3) ? "scale=0.5" : "")
                     : x;
    } else if (draw_one_in(&g->d, 3)) {
        x = gen_op(g, "square", 1, &x, "%s", "");
    } else if (draw_one_in(&g->d, 6)) {
        weft_val in[3] = {x, x, x};

        in[1] = gen_op(g, "mul", 2, in, "%s", "");
        x = in[1].id ? gen_op(g, "mul", 2, in, "%s", "") : x;
    }
    if (x.id)
        x = gen_op(g, draw_word(&g->d, "sum|mean|mean", word), 1, &x, "%s", "");
    if (x.id && gen_type(g, x)->dtype != WEFT_F32)
        x = gen_op(g, "cast", 1, &x, "dtype=f32");
    return x;
}

static weft_val scaled(struct gen *g, weft_val x)
{
    weft_val in[2] = {x, WEFT_NIL};

    if (!draw_one_in(&g->d, 3))
        return x;
    in[1] = rule_scalar(g, WEFT_F32, draw_real(&g->d, 0.1, 2));
    return gen_op(g, "mul", 2, in, "%s", "");
}

/* The sum of some terms, some of them twice (as separate nodes, too). */
static weft_val draw_loss(struct gen *g)
{
    int n = (int)draw_int(&g->d, 1, 3);
    weft_val loss = WEFT_NIL;

    for (int i = 0; i < n; i++) {
        weft_val x = g->n_pool && i == 0 ? g->pool[g->n_pool - 1] : WEFT_NIL, in[2];
        int times = draw_one_in(&g->d, 4) ? 2 : 1;

        if (!x.id || !wf_is_float(gen_type(g, x)->dtype))
            x = gen_any(g, FLOATS, 0, 6);
        if (!x.id)
            continue;
        for (int k = 0; k < times; k++) {
            struct draw again = g->d;
            weft_val y = term_of(g, x);

            if (k + 1 < times)
                g->d = again; /* draw the same nodes again */
            y = y.id ? scaled(g, y) : y;
            in[0] = loss;
            in[1] = y;
            if (y.id)
                loss = loss.id ? gen_op(g, "add", 2, in, "%s", "") : y;
        }
    }
    return loss;
}

/* ---- optimizers ------------------------------------------------------------------------------ */

static void draw_numbers(struct gen *g, const struct wf_optim_row *row, char *text, size_t room)
{
    static const char *const switches[] = {"nesterov", "centered", "amsgrad"};
    static const char *const rates[] = {"momentum", "rho", "beta_1", "beta_2"};
    int at = snprintf(text, room, "learning_rate=%g", draw_one_in(&g->d, 2) ? 0.01 : 0.003);

    for (int i = 0; i < row->n_attrs; i++) {
        const char *name = row->attrs[i].name;
        double value = -1;

        for (int k = 0; k < WF_COUNT(switches); k++)
            if (!strcmp(name, switches[k]) && draw_one_in(&g->d, 2))
                value = 1;
        for (int k = 0; k < WF_COUNT(rates); k++)
            if (!strcmp(name, rates[k]) && draw_one_in(&g->d, 2))
                value = draw_real(&g->d, 0.1, 0.95);
        if (i == WF_OPTIM_ATTR_WEIGHT_DECAY && draw_one_in(&g->d, 4))
            value = 0.01;
        if (i == WF_OPTIM_ATTR_CLIPNORM + (int)draw_int(&g->d, 0, 2) && draw_one_in(&g->d, 4))
            value = 0.3;
        if (value >= 0)
            at += snprintf(text + at, room - (size_t)at, " %s=%g", name, value);
        if (value > 0 && i >= WF_OPTIM_ATTR_CLIPNORM && i <= WF_OPTIM_ATTR_CLIPVALUE)
            i = WF_OPTIM_ATTR_CLIPVALUE; /* only one kind of clipping */
    }
}

static bool draw_optimizer(struct gen *g, weft_optim *o)
{
    static const char *const schedules[] = {
        "exponential_decay decay_steps=2 decay_rate=0.5",
        "cosine_decay decay_steps=5",
        "inverse_time_decay decay_steps=2 decay_rate=0.5",
        "polynomial_decay decay_steps=3 end_learning_rate=0.001",
    };
    const struct wf_optim_row *row = &wf_optim_rows[draw_int(&g->d, 0, wf_n_optim_rows - 1)];
    char text[512];

    draw_numbers(g, row, text, sizeof text);
    if (weft_optim_init(o, row->name, text))
        return false;
    if (draw_one_in(&g->d, 6)) {
        const char *s = schedules[draw_int(&g->d, 0, WF_COUNT(schedules) - 1)];
        char name[32];

        snprintf(name, sizeof name, "%.*s", (int)strcspn(s, " "), s);
        if (weft_optim_schedule(o, name, s + strcspn(s, " ")))
            return false;
    } else if (draw_one_in(&g->d, 6)) {
        int64_t none = 0;
        weft_val x = gen_ids_typed(g, WEFT_F32, 1, 2, false, 0, &none), scale[2];

        if (!x.id)
            return false;
        scale[0] = x;
        scale[1] = rule_scalar(g, WEFT_F32, 0.01);
        o->learning_rate = gen_op(g, "mul", 2, scale, "%s", "");
    }
    return true;
}

static int some_variables(struct gen *g, weft_val *vars, int cap)
{
    weft_val all[MAX_UPDATES];
    int n = weft_trainable(g->g, MAX_UPDATES, all), kept = 0;

    n = n < MAX_UPDATES ? n : MAX_UPDATES;
    for (int i = 0; i < n && kept < cap; i++)
        if (!draw_one_in(&g->d, 6))
            vars[kept++] = all[i];
    return kept;
}

/* Some of the weights are penalized. */
static void add_penalties(struct gen *g, int n, const weft_val *vars, weft_val *grads)
{
    for (int i = 0; i < n; i++)
        if (grads[i].id && draw_one_in(&g->d, 6))
            grads[i] =
                weft_add(g->g, grads[i], weft_op(g->g, "penalty_grad", 1, &vars[i], "l2=0.25"));
}

static bool add_updates(struct gen *g, weft_val loss)
{
    struct graph_case *c = g->c;
    weft_val vars[MAX_UPDATES], grads[MAX_UPDATES], updates[MAX_UPDATES];
    int n = some_variables(g, vars, MAX_UPDATES - c->n_updates);
    bool early = draw_one_in(&g->d, 2); /* the learning rate is built before the gradients */
    weft_optim o;
    weft_status st;

    if (!n || (early && !draw_optimizer(g, &o)) || weft_grad(g->g, loss, n, vars, grads))
        return gen_take(g, WEFT_NIL);
    add_penalties(g, n, vars, grads);
    gen_settle(g);
    if (!early && !draw_optimizer(g, &o))
        return gen_take(g, WEFT_NIL);
    st = weft_apply_gradients(g->g, &o, n, vars, grads, updates);
    if (st)
        return gen_take(g, WEFT_NIL);
    if (!gen_settle(g))
        return false;
    for (int i = 0; i < n; i++) {
        if (updates[i].id)
            c->update[c->n_updates++] = updates[i];
        if (grads[i].id && c->n_fetches < MAX_FETCHES && draw_one_in(&g->d, 6))
            c->fetch[c->n_fetches++] = grads[i];
        if (updates[i].id && c->n_fetches < MAX_FETCHES && draw_one_in(&g->d, 8))
            c->fetch[c->n_fetches++] = draw_one_in(&g->d, 2) ? updates[i] : vars[i];
    }
    return true;
}

static bool fetch_gradients(struct gen *g, weft_val loss)
{
    struct graph_case *c = g->c;
    weft_val with[MAX_UPDATES], grads[MAX_UPDATES];
    int n = some_variables(g, with, 8);

    for (int i = 0; i < c->n_feeds && n < 16; i++)
        if (wf_is_float(c->feeds[0][i].dtype))
            with[n++] = c->feed[i];
    if (!n || weft_grad(g->g, loss, n, with, grads))
        return gen_take(g, WEFT_NIL);
    if (!gen_settle(g))
        return false;
    for (int i = 0; i < n && c->n_fetches < MAX_FETCHES; i++)
        if (grads[i].id)
            c->fetch[c->n_fetches++] = grads[i];
    return true;
}

bool draws_losses(struct gen *g)
{
    struct graph_case *c = g->c;
    weft_val loss = draw_loss(g);

    if (!loss.id)
        return false;
    c->loss = loss;
    if (c->n_fetches < MAX_FETCHES)
        c->fetch[c->n_fetches++] = loss;
    if (g->smooth)
        return true;
    return draw_one_in(&g->d, 3) ? fetch_gradients(g, loss) : add_updates(g, loss);
}
