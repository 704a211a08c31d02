/* custom_layer.c - a custom layer: a gate, y = x * sigmoid(x . kernel + bias), used with weft's
 * layers.
 *
 * Its row says its arguments, its function how a call becomes graph nodes; weights, regularizers,
 * shapes, the table and saving come from weft. A model that uses it is saved as JSON; a reader that
 * has not registered it refuses the file and names it. */
#include <stdio.h>
#include <string.h>

#include <weft/ops.h>
#include <weft/sys/layer.h>
#include <weft/weft.h>

static weft_status build_gate(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), kernel, bias, gate;
    int64_t n = weft_lc_dim(c, x, -1);

    if (weft_lc_rank(c, x) != 2)
        return weft_lc_fail(c, WEFT_ESHAPE, "needs [batch, features], got rank %d",
                            weft_lc_rank(c, x));
    kernel = weft_lc_weight(
        c, "kernel", 2, (int64_t[]){n, n},
        WEFT_OPTS(weft_weight_opts, .regularizer = weft_lc_text(c, "kernel_regularizer")));
    bias = weft_lc_weight(c, "bias", 1, &n, WEFT_OPTS(weft_weight_opts, .initializer = "ones"));
    gate = weft_add(g, weft_matmul(g, x, kernel, NULL), bias);
    weft_lc_out(c, 0, weft_mul(g, x, weft_lc_activation(c, weft_lc_text(c, "activation"), gate)));
    return WEFT_OK;
}

static const weft_layer_kind gate = {
    .size = sizeof gate,
    .name = "Gate",
    .n_in_min = 1,
    .n_in_max = 1,
    .attrs = "activation:s=sigmoid kernel_regularizer:s=",
    .flags = WEFT_LAYER_PASSES_MASK,
    .build = build_gate,
    .doc = "x * activation(x . kernel + bias)",
};

static weft_status make(weft_ctx *ctx, weft_model **out)
{
    weft_model *m = NULL;
    weft_status st = weft_model_new(ctx, WEFT_OPTS(weft_model_opts, .name = "gated"), &m);

    if (!st)
        st = weft_layer_register(m, &gate);
    if (!st) {
        weft_input(m, "x", WEFT_F32, 1, (int64_t[]){16});
        weft_model_add(m, "Dense", "units=32 activation=relu");
        weft_model_add(m, "Gate", "kernel_regularizer=l2(0.001)");
        weft_model_add(m, "Dense", "units=1");
        st = weft_model_status(m);
    }
    if (st)
        weft_model_free(m);
    else
        *out = m;
    return st;
}

/* Into a model that knows the kind: the same text comes out again. */
static weft_status read_back(weft_ctx *ctx, const char *json)
{
    weft_model *m = NULL;
    char *again = NULL;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (!st)
        st = weft_layer_register(m, &gate);
    if (!st)
        st = weft_model_read(m, json, (int64_t)strlen(json));
    if (!st)
        st = weft_model_json(m, &again);
    if (!st)
        printf("read back: %s\n", strcmp(json, again) ? "it differs" : "the same");
    weft_text_free(ctx, again);
    weft_model_free(m);
    return st;
}

int main(void)
{
    weft_ctx *ctx = NULL;
    weft_model *m = NULL, *stranger = NULL;
    char *table = NULL, *json = NULL;
    weft_status st = weft_ctx_new(NULL, &ctx);

    if (!st)
        st = make(ctx, &m);
    if (!st)
        st = weft_model_summary(m, 0, &table);
    if (!st)
        st = weft_model_json(m, &json);
    if (!st) {
        printf("%s\n%s\n", table, json);
        st = read_back(ctx, json);
    }
    if (!st && weft_model_parse(ctx, json, (int64_t)strlen(json), &stranger) == WEFT_ENOENT)
        printf("without the kind: %s\n", weft_error());
    else if (!st)
        st = WEFT_EBUG;
    if (st)
        fprintf(stderr, "custom_layer: %s\n", weft_error());
    if (ctx) {
        weft_text_free(ctx, table);
        weft_text_free(ctx, json);
    }
    weft_model_free(m);
    weft_model_free(stranger);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
