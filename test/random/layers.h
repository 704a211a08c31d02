/* layers.h - random models: a recipe of layers and calls, which builds the same model in any
 * context. */
#ifndef RANDOM_LAYERS_H
#define RANDOM_LAYERS_H

#include "random/random.h"
#include "weft/train.h"

enum { MAX_STEPS = 16, MAX_ENDS = 2, MAX_TEXT = 256 };

/* How a kind of layer is drawn. Texts may contain choices: "units={1|3} use_bias={true|false}". */
struct layer_rule {
    const char *kind, *attrs;
    int min_rank, max_rank; /* of a sample */
    int n_in;
    bool ids;          /* takes integers */
    const char *inner; /* wrappers: "Dense units=3" */
    const char *why;   /* why it is not drawn by itself */
};
extern const struct layer_rule layer_rules[];
extern const int n_layer_rules;

/* A call of a new layer, or of the layer of an earlier step. */
struct recipe_step {
    char kind[32], attrs[MAX_TEXT], inner[32], inner_attrs[MAX_TEXT];
    int shares; /* the step whose layer is called again, or -1 */
    int n_in, in[3];
};

struct recipe {
    int n_inputs;
    weft_tensor input[2]; /* types of a sample */
    int n_steps;
    struct recipe_step step[MAX_STEPS]; /* values: inputs first, then one for each step */
    int n_ends, end[MAX_ENDS];
    char optimizer[MAX_TEXT], loss[MAX_TEXT], metrics[MAX_TEXT], loss_kind[MAX_ENDS][40];
    int shards;
    int64_t batch;
};

/* Draws a model that builds. */
weft_status recipe_draw(struct recipe *r, weft_ctx *ctx, uint64_t seed);
weft_status recipe_build(const struct recipe *r, weft_ctx *ctx, weft_model **out);
void recipe_show(const struct recipe *r, FILE *out);

#endif
