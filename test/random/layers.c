/* layers.c - the table of layers, and how a model is drawn from it. */
#include "random/layers.h"

#define ACT "activation={linear|relu|tanh|gelu|sigmoid|softmax|selu}"
#define BIAS "use_bias={true|true|false}"
#define CELL "units={1|3|4} use_bias={true|false} dropout={0|0|0.25}"
#define SEQ "return_sequences={true|false} go_backwards={true|false}"
#define POOL "pool_size={1|2} padding={valid|same}"
#define CONV \
    "filters={1|4|5} kernel_size={1|2|3} strides={1|1|2} padding={valid|same|same} " ACT " " BIAS
#define DEPTH "kernel_size={1|2|3} strides={1|1|2} padding={valid|same} " BIAS

const struct layer_rule layer_rules[] = {
    {"Dense", "units={1|3|8} " ACT " " BIAS " kernel_regularizer={|l2(0.01)}", 1, 4, 1, false, NULL,
     NULL},
    {"EinsumDense", "equation=ab,bc->ac output_shape={3|5} bias_axes={|c}", 1, 1, 1, false, NULL,
     NULL},
    {"Activation", ACT, 1, 4, 1, false, NULL, NULL},
    {"ReLU", "max_value={inf|1} negative_slope={0|0.1} threshold={0|0.2}", 1, 4, 1, false, NULL,
     NULL},
    {"LeakyReLU", "negative_slope={0.3|0.1}", 1, 4, 1, false, NULL, NULL},
    {"ELU", "", 1, 4, 1, false, NULL, NULL},
    {"PReLU", "alpha_initializer={zeros|ones}", 1, 4, 1, false, NULL, NULL},
    {"Softmax", "", 1, 4, 1, false, NULL, NULL},
    {"Identity", "", 1, 4, 1, false, NULL, NULL},
    {"ActivityRegularization", "l1={0|0.01} l2={0|0.01}", 1, 4, 1, false, NULL, NULL},
    {"Dropout", "rate={0|0.25|0.5}", 1, 4, 1, false, NULL, NULL},
    {"SpatialDropout1D", "rate=0.25", 2, 2, 1, false, NULL, NULL},
    {"SpatialDropout2D", "rate=0.25", 3, 3, 1, false, NULL, NULL},
    {"SpatialDropout3D", "rate=0.25", 4, 4, 1, false, NULL, NULL},
    {"GaussianDropout", "rate=0.25", 1, 4, 1, false, NULL, NULL},
    {"GaussianNoise", "stddev=0.5", 1, 4, 1, false, NULL, NULL},
    {"AlphaDropout", "rate=0.25", 1, 4, 1, false, NULL, NULL},
    {"Rescaling", "scale=0.5 offset={0|1}", 1, 4, 1, false, NULL, NULL},
    {"Normalization", "invert={true|false}", 1, 4, 1, false, NULL, NULL},
    {"Embedding", "input_dim=7 output_dim={1|4} mask_zero={true|false}", 1, 2, 1, true, NULL, NULL},
    {"Masking", "mask_value={0|1}", 2, 2, 1, false, NULL, NULL},
    {"Add", "", 1, 4, 2, false, NULL, NULL},
    {"Subtract", "", 1, 4, 2, false, NULL, NULL},
    {"Multiply", "", 1, 4, 2, false, NULL, NULL},
    {"Average", "", 1, 4, 3, false, NULL, NULL},
    {"Maximum", "", 1, 4, 2, false, NULL, NULL},
    {"Minimum", "", 1, 4, 2, false, NULL, NULL},
    {"Concatenate", "axis=-1", 1, 4, 3, false, NULL, NULL},
    {"Dot", "axes=1 normalize={true|false}", 1, 2, 2, false, NULL, NULL},
    {"BatchNormalization", "momentum={0.99|0.5} center={true|false} scale={true|false}", 1, 4, 1,
     false, NULL, NULL},
    {"LayerNormalization", "center={true|false} scale={true|false}", 1, 4, 1, false, NULL, NULL},
    {"GroupNormalization", "groups={-1|1|2}", 2, 4, 1, false, NULL, NULL},
    {"RMSNormalization", "", 1, 4, 1, false, NULL, NULL},
    {"UnitNormalization", "", 1, 4, 1, false, NULL, NULL},
    {"Attention", "use_scale={true|false} score_mode={dot|concat} use_causal_mask={true|false}", 2,
     2, 2, false, NULL, NULL},
    {"AdditiveAttention", "use_scale={true|false} use_causal_mask={true|false}", 2, 2, 2, false,
     NULL, NULL},
    {"MultiHeadAttention",
     "num_heads={1|2} key_dim={2|3} use_causal_mask={true|false} use_bias={true|false}", 2, 2, 2,
     false, NULL, NULL},
    {"GroupQueryAttention", "head_dim=2 num_query_heads=4 num_key_value_heads={2|4}", 2, 2, 2,
     false, NULL, NULL},
    {"Conv1D", CONV, 2, 2, 1, false, NULL, NULL},
    {"Conv2D", CONV, 3, 3, 1, false, NULL, NULL},
    {"Conv3D", CONV, 4, 4, 1, false, NULL, NULL},
    {"Conv1DTranspose", CONV, 2, 2, 1, false, NULL, NULL},
    {"Conv2DTranspose", CONV, 3, 3, 1, false, NULL, NULL},
    {"Conv3DTranspose", CONV, 4, 4, 1, false, NULL, NULL},
    {"DepthwiseConv1D", DEPTH " depth_multiplier={1|2}", 2, 2, 1, false, NULL, NULL},
    {"DepthwiseConv2D", DEPTH " depth_multiplier={1|2}", 3, 3, 1, false, NULL, NULL},
    {"SeparableConv1D", DEPTH " filters={2|3}", 2, 2, 1, false, NULL, NULL},
    {"SeparableConv2D", DEPTH " filters={2|3}", 3, 3, 1, false, NULL, NULL},
    {"MaxPooling1D", POOL, 2, 2, 1, false, NULL, NULL},
    {"MaxPooling2D", POOL, 3, 3, 1, false, NULL, NULL},
    {"MaxPooling3D", POOL, 4, 4, 1, false, NULL, NULL},
    {"AveragePooling1D", POOL, 2, 2, 1, false, NULL, NULL},
    {"AveragePooling2D", POOL, 3, 3, 1, false, NULL, NULL},
    {"AveragePooling3D", POOL, 4, 4, 1, false, NULL, NULL},
    {"GlobalMaxPooling1D", "keepdims={true|false}", 2, 2, 1, false, NULL, NULL},
    {"GlobalMaxPooling2D", "keepdims={true|false}", 3, 3, 1, false, NULL, NULL},
    {"GlobalMaxPooling3D", "keepdims={true|false}", 4, 4, 1, false, NULL, NULL},
    {"GlobalAveragePooling1D", "keepdims={true|false}", 2, 2, 1, false, NULL, NULL},
    {"GlobalAveragePooling2D", "keepdims={true|false}", 3, 3, 1, false, NULL, NULL},
    {"GlobalAveragePooling3D", "keepdims={true|false}", 4, 4, 1, false, NULL, NULL},
    {"AdaptiveAveragePooling1D", "output_size={1|2}", 2, 2, 1, false, NULL, NULL},
    {"AdaptiveAveragePooling2D", "output_size={1|2}", 3, 3, 1, false, NULL, NULL},
    {"AdaptiveAveragePooling3D", "output_size={1|2}", 4, 4, 1, false, NULL, NULL},
    {"AdaptiveMaxPooling1D", "output_size={1|2}", 2, 2, 1, false, NULL, NULL},
    {"AdaptiveMaxPooling2D", "output_size={1|2}", 3, 3, 1, false, NULL, NULL},
    {"AdaptiveMaxPooling3D", "output_size={1|2}", 4, 4, 1, false, NULL, NULL},
    {"SimpleRNN", CELL " " SEQ, 2, 2, 1, false, NULL, NULL},
    {"LSTM", CELL " unit_forget_bias={true|false} " SEQ, 2, 2, 1, false, NULL, NULL},
    {"GRU", CELL " reset_after={true|false} " SEQ, 2, 2, 1, false, NULL, NULL},
    {"RNN", "return_sequences={true|false}", 2, 2, 1, false,
     "{SimpleRNNCell|LSTMCell|GRUCell} units={2|3}", NULL},
    {"Bidirectional", "merge_mode={concat|sum|mul|ave}", 2, 2, 1, false,
     "{LSTM|GRU|SimpleRNN} units={2|3}", NULL},
    {"TimeDistributed", "", 2, 3, 1, false, "Dense units=3", NULL},
    {"Flatten", "", 1, 4, 1, false, NULL, NULL},
    {"Reshape", "target_shape=[-1]", 1, 4, 1, false, NULL, NULL},
    {"Permute", "dims=[2,1]", 2, 2, 1, false, NULL, NULL},
    {"RepeatVector", "n={1|3}", 1, 1, 1, false, NULL, NULL},
    {"ZeroPadding1D", "padding={0|1|2}", 2, 2, 1, false, NULL, NULL},
    {"ZeroPadding2D", "padding={0|1|2}", 3, 3, 1, false, NULL, NULL},
    {"ZeroPadding3D", "padding=1", 4, 4, 1, false, NULL, NULL},
    {"Cropping1D", "cropping={0|1}", 2, 2, 1, false, NULL, NULL},
    {"Cropping2D", "cropping={0|1}", 3, 3, 1, false, NULL, NULL},
    {"Cropping3D", "cropping={0|1}", 4, 4, 1, false, NULL, NULL},
    {"UpSampling1D", "size={1|2}", 2, 2, 1, false, NULL, NULL},
    {"UpSampling2D", "size={1|2} interpolation={nearest|bilinear}", 3, 3, 1, false, NULL, NULL},
    {"UpSampling3D", "size={1|2}", 4, 4, 1, false, NULL, NULL},
    {"SimpleRNNCell", NULL, 0, 0, 0, false, NULL, "inside RNN"},
    {"LSTMCell", NULL, 0, 0, 0, false, NULL, "inside RNN"},
    {"GRUCell", NULL, 0, 0, 0, false, NULL, "inside RNN"},
    {"StackedRNNCells", NULL, 0, 0, 0, false, NULL, "cells by name, in the unit tests"},
};
const int n_layer_rules = WF_COUNT(layer_rules);

/* "units={1|3}" with one of each choice. */
static void choose(struct draw *d, const char *from, char *to, size_t room)
{
    size_t n = 0;

    for (const char *p = from; *p && n + 1 < room; p++) {
        char words[128], word[32];
        size_t len;

        if (*p != '{') {
            to[n++] = *p;
            continue;
        }
        len = strcspn(p, "}");
        snprintf(words, sizeof words, "%.*s", (int)len - 1, p + 1);
        draw_word(d, words, word);
        for (const char *w = word; *w && n + 1 < room; w++)
            to[n++] = *w;
        p += len;
    }
    to[n] = '\0';
}

/* ---- building -------------------------------------------------------------------------------- */

static weft_layer layer_of(weft_model *m, const struct recipe_step *s)
{
    weft_layer inner;

    if (!s->inner[0])
        return weft_layer_new(m, s->kind, s->attrs);
    inner = weft_layer_new(m, s->inner, s->inner_attrs);
    return weft_layer_wrap(m, s->kind, s->attrs, inner);
}

static weft_status build_values(const struct recipe *r, weft_model *m, weft_sym *value)
{
    weft_layer layer[MAX_STEPS];

    for (int i = 0; i < r->n_inputs; i++)
        value[i] = weft_input(m, i ? "second" : "first", r->input[i].dtype, r->input[i].rank,
                              r->input[i].dim);
    for (int i = 0; i < r->n_steps; i++) {
        const struct recipe_step *s = &r->step[i];
        weft_sym in[3];

        for (int k = 0; k < s->n_in; k++)
            in[k] = value[s->in[k]];
        layer[i] = s->shares >= 0 ? layer[s->shares] : layer_of(m, s);
        value[r->n_inputs + i] = weft_call_n(m, layer[i], s->n_in, in);
    }
    return weft_model_status(m);
}

weft_status recipe_build(const struct recipe *r, weft_ctx *ctx, weft_model **out)
{
    weft_sym value[2 + MAX_STEPS];
    weft_model *m = NULL;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (!st)
        st = build_values(r, m, value);
    for (int i = 0; i < r->n_ends && !st; i++)
        weft_model_output(m, value[r->end[i]]);
    if (!st)
        st = weft_model_status(m);
    if (st)
        weft_model_free(m);
    else
        *out = m;
    return st;
}

/* ---- drawing --------------------------------------------------------------------------------- */

struct drawing {
    struct recipe *r;
    struct draw d;
    weft_tensor type[2 + MAX_STEPS]; /* of each value, including the batch */
};

static void draw_input(struct drawing *g, int i)
{
    weft_tensor *t = &g->r->input[i];
    int rank = (int)draw_int(&g->d, 1, 4);

    *t = (weft_tensor){.dtype = WEFT_F32, .rank = rank};
    for (int k = 0; k < rank; k++)
        t->dim[k] = draw_int(&g->d, k + 1 < rank ? 2 : 1, 5);
    if (draw_one_in(&g->d, 5)) {
        t->dtype = WEFT_I32;
        t->rank = 1;
    }
}

static bool same_sample(const weft_tensor *a, const weft_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 1; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* Fills in a step that uses an existing value; false if no value fits. */
static bool draw_step(struct drawing *g, struct recipe_step *s)
{
    const struct layer_rule *rule = &layer_rules[draw_int(&g->d, 0, n_layer_rules - 1)];
    int n = g->r->n_inputs + g->r->n_steps, x = (int)draw_int(&g->d, 0, n - 1);
    char text[MAX_TEXT];

    if (!draw_one_in(&g->d, 3))
        x = n - 1;
    if (rule->why || g->type[x].rank - 1 < rule->min_rank || g->type[x].rank - 1 > rule->max_rank ||
        (g->type[x].dtype == WEFT_I32) != rule->ids)
        return false;
    *s = (struct recipe_step){.shares = -1, .n_in = rule->n_in, .in = {x, x, x}};
    snprintf(s->kind, sizeof s->kind, "%s", rule->kind);
    choose(&g->d, rule->attrs, s->attrs, sizeof s->attrs);
    if (rule->inner) {
        choose(&g->d, rule->inner, text, sizeof text);
        snprintf(s->inner, sizeof s->inner, "%.*s", (int)strcspn(text, " "), text);
        snprintf(s->inner_attrs, sizeof s->inner_attrs, "%s", text + strcspn(text, " "));
    }
    for (int k = 1; k < rule->n_in; k++)
        for (int v = 0; v < n; v++)
            if (same_sample(&g->type[v], &g->type[x]) && draw_one_in(&g->d, 2))
                s->in[k] = v;
    for (int k = 0; k < g->r->n_steps && rule->n_in == 1; k++) /* may call the same layer again */
        if (g->r->step[k].n_in == 1 && g->r->step[k].shares < 0 && draw_one_in(&g->d, 12) &&
            same_sample(&g->type[g->r->step[k].in[0]], &g->type[x]))
            s->shares = k;
    return true;
}

/* Whether the recipe builds with the new last step; then its type is known. */
static bool last_builds(struct drawing *g, weft_ctx *ctx)
{
    weft_sym value[2 + MAX_STEPS];
    weft_model *m = NULL;
    bool ok = !weft_model_new(ctx, NULL, &m) && !build_values(g->r, m, value);
    int last = g->r->n_inputs + g->r->n_steps - 1;

    for (int i = 0; i <= last && ok; i++)
        ok = !weft_sym_type(m, value[i], &g->type[i]);
    if (ok)
        for (int i = 1; i < g->type[last].rank; i++)
            ok &= g->type[last].dim[i] > 0 && g->type[last].dim[i] < 200;
    weft_model_free(m);
    return ok;
}

static void draw_losses(struct drawing *g)
{
    static const char *const rows[] = {
        "mse",
        "mae",
        "huber delta=0.5",
        "log_cosh",
        "cosine_similarity",
        "binary_crossentropy from_logits=true",
        "categorical_crossentropy from_logits=true",
        "sparse_categorical_crossentropy from_logits=true",
        "sparse_categorical_crossentropy from_logits=true",
        "squared_hinge",
        "hinge",
        "categorical_hinge",
        "binary_focal_crossentropy from_logits=true",
    };
    struct recipe *r = g->r;

    r->loss[0] = r->metrics[0] = '\0';
    for (int i = 0; i < r->n_ends; i++) {
        const char *loss = rows[draw_int(&g->d, 0, WF_COUNT(rows) - 1)];
        bool sparse = !strncmp(loss, "sparse", 6);
        char word[32];

        snprintf(r->loss_kind[i], sizeof r->loss_kind[i], "%.*s", (int)strcspn(loss, " "), loss);
        snprintf(r->loss + strlen(r->loss), sizeof r->loss - strlen(r->loss), "%s%s", i ? "; " : "",
                 loss);
        snprintf(
            r->metrics + strlen(r->metrics), sizeof r->metrics - strlen(r->metrics), "%s%s",
            i ? "; " : "",
            draw_word(&g->d,
                      sparse ? "accuracy|sparse_categorical_accuracy" : "mae|mse|cosine_similarity",
                      word));
    }
}

weft_status recipe_draw(struct recipe *r, weft_ctx *ctx, uint64_t seed)
{
    static const char *const optimizers[] = {
        "sgd learning_rate=0.05",
        "sgd learning_rate=0.05 momentum=0.9 nesterov=1",
        "adam learning_rate=0.01",
        "adam learning_rate=0.01 amsgrad=1",
        "rmsprop learning_rate=0.01",
        "rmsprop learning_rate=0.01 centered=1 momentum=0.5",
        "adamw",
        "adamax",
        "nadam",
        "adagrad",
        "adadelta",
        "ftrl",
        "lion",
        "lamb",
        "adam global_clipnorm=0.5",
        "sgd clipnorm=0.3",
    };
    struct drawing g = {.r = r, .d = draw_from(seed, 21)};
    int n;

    *r = (struct recipe){.n_inputs = draw_one_in(&g.d, 4) ? 2 : 1};
    for (int i = 0; i < r->n_inputs; i++) {
        draw_input(&g, i);
        g.type[i] = r->input[i];
        g.type[i].rank++;
        for (int k = 0; k < r->input[i].rank; k++)
            g.type[i].dim[k + 1] = r->input[i].dim[k];
    }
    n = (int)draw_int(&g.d, 1, 7);
    for (int tries = 0; r->n_steps < n && tries < 200; tries++) {
        if (!draw_step(&g, &r->step[r->n_steps]))
            continue;
        r->n_steps++;
        if (!last_builds(&g, ctx))
            r->n_steps--;
    }
    if (r->n_steps == 0)
        return WEFT_ENOENT;
    r->end[r->n_ends++] = r->n_inputs + r->n_steps - 1;
    if (r->n_steps > 2 && draw_one_in(&g.d, 4))
        r->end[r->n_ends++] = r->n_inputs + (int)draw_int(&g.d, 0, r->n_steps - 2);
    for (int i = 0; i < r->n_ends; i++)
        if (g.type[r->end[i]].dtype != WEFT_F32 || g.type[r->end[i]].rank < 2)
            return WEFT_ENOENT;
    snprintf(r->optimizer, sizeof r->optimizer, "%s",
             optimizers[draw_int(&g.d, 0, WF_COUNT(optimizers) - 1)]);
    draw_losses(&g);
    r->shards = draw_one_in(&g.d, 4) ? 2 : 0;
    r->batch = draw_int(&g.d, 2, 6);
    return WEFT_OK;
}

void recipe_show(const struct recipe *r, FILE *out)
{
    for (int i = 0; i < r->n_inputs; i++) {
        struct wf_type t = wf_type_of(r->input[i].dtype, r->input[i].rank, r->input[i].dim);
        char buf[WF_TYPE_TEXT];

        fprintf(out, "%%%d = input %s\n", i, wf_type_text(&t, buf));
    }
    for (int i = 0; i < r->n_steps; i++) {
        const struct recipe_step *s = &r->step[i];

        fprintf(out, "%%%d = %s %s", r->n_inputs + i,
                s->shares >= 0 ? r->step[s->shares].kind : s->kind,
                s->shares >= 0 ? "(shared)" : s->attrs);
        if (s->inner[0] && s->shares < 0)
            fprintf(out, " around %s%s", s->inner, s->inner_attrs);
        for (int k = 0; k < s->n_in; k++)
            fprintf(out, "%s%%%d", k ? ", " : " of ", s->in[k]);
        fprintf(out, "\n");
    }
    for (int i = 0; i < r->n_ends; i++)
        fprintf(out, "output %%%d\n", r->end[i]);
    fprintf(out, "optimizer %s\nloss %s\nmetrics %s\nbatch %lld, shards %d\n", r->optimizer,
            r->loss, r->metrics, (long long)r->batch, r->shards);
}
