/* weft/model.h - models: layers over graph ops, with Keras' names and defaults.
 *
 * A model is a list of layers and their calls. Layers are rows of a table; their arguments are text
 * with Keras' names, the same as in a job file and in a saved model:
 *
 *   weft_model *m;
 *   weft_model_new(ctx, NULL, &m);
 *   weft_sym x = weft_input(m, "image", WEFT_F32, 3, (int64_t[]){28, 28, 1});
 *   x = weft_apply(m, "Conv2D", "filters=32 kernel_size=3 activation=relu", x);
 *   x = weft_apply(m, "MaxPooling2D", NULL, x);
 *   x = weft_apply(m, "Flatten", NULL, x);
 *   x = weft_apply(m, "Dense", "units=10", x);
 *   weft_model_output(m, x);
 *
 * Calls are built immediately, so shapes are known and a mistake is reported where it is made.
 * Builders are sticky: the first error is kept with its text, later builders return the null
 * handle, and weft_model_status (or compiling) reports it. weft/train.h compiles, trains and saves
 * models. A model may be used by one thread at a time. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_model weft_model;

/* A layer: has weights and can be called once or several times. {0} means none. */
typedef struct weft_layer {
    int32_t id;
} weft_layer;

/* A symbolic tensor: the value of an input, or what a call returns. The first axis is the batch.
 * {0} means none. */
typedef struct weft_sym {
    int32_t id;
} weft_sym;

typedef struct weft_model_opts {
    size_t size;
    const char *name; /* NULL: "model" */
} weft_model_opts;

WEFT_API weft_status weft_model_new(weft_ctx *ctx, const weft_model_opts *opts, weft_model **out);
WEFT_API void weft_model_free(weft_model *m);
WEFT_API weft_status weft_model_status(const weft_model *m);

/* An input; dim without the batch axis, WEFT_ANY for sizes that differ between batches. */
WEFT_API weft_sym weft_input(weft_model *m, const char *name, weft_dtype dtype, int rank,
                             const int64_t *dim);

/* Creates a layer of this type and calls it on x. attrs may include name=… (default "dense",
 * "dense_1", …) and trainable=false. */
WEFT_API weft_sym weft_apply(weft_model *m, const char *kind, const char *attrs, weft_sym x);
WEFT_API weft_sym weft_apply_n(weft_model *m, const char *kind, const char *attrs, int n,
                               const weft_sym *x);
/* The same in two steps, for layers that are called more than once: weights are shared. */
WEFT_API weft_layer weft_layer_new(weft_model *m, const char *kind, const char *attrs);
/* A wrapper around another layer: Bidirectional, TimeDistributed, RNN around a cell. */
WEFT_API weft_layer weft_layer_wrap(weft_model *m, const char *kind, const char *attrs,
                                    weft_layer inner);
WEFT_API weft_sym weft_call(weft_model *m, weft_layer l, weft_sym x);
WEFT_API weft_sym weft_call_n(weft_model *m, weft_layer l, int n, const weft_sym *x);
/* Output i of the call that returned x (an LSTM with return_state has three). */
WEFT_API weft_sym weft_sym_part(weft_model *m, weft_sym x, int i);

/* Sequential style: calls the layer on the result of the previous one (or on the input), and makes
 * its result the only output. */
WEFT_API weft_sym weft_model_add(weft_model *m, const char *kind, const char *attrs);

/* Adds an output; its name is that of its layer. */
WEFT_API void weft_model_output(weft_model *m, weft_sym x);
/* Replaces the outputs. */
WEFT_API void weft_model_set_outputs(weft_model *m, int n, const weft_sym *x);
WEFT_API int weft_model_n_inputs(const weft_model *m);
WEFT_API int weft_model_n_outputs(const weft_model *m);
WEFT_API weft_sym weft_model_input_at(const weft_model *m, int i);
WEFT_API weft_sym weft_model_output_at(const weft_model *m, int i);
/* dtype and sizes (WEFT_ANY for the batch) in a tensor without data; the name is that of its input
 * or layer. */
WEFT_API weft_status weft_sym_type(const weft_model *m, weft_sym x, weft_tensor *out);
WEFT_API const char *weft_sym_name(const weft_model *m, weft_sym x);

/* ---- layers by name -------------------------------------------------------------------------- */

WEFT_API weft_status weft_model_layer(const weft_model *m, const char *name, weft_layer *out);
WEFT_API int weft_model_n_layers(const weft_model *m);
WEFT_API weft_layer weft_model_layer_at(const weft_model *m, int i);
WEFT_API const char *weft_layer_name(const weft_model *m, weft_layer l);
WEFT_API const char *weft_layer_kind_name(const weft_model *m, weft_layer l);
/* Layers made from now on have their variables there, as with weft_device_push: a parameter server,
 * "/job:ps/task:1". NULL: wherever. */
WEFT_API void weft_model_device(weft_model *m, const char *device);
/* A frozen layer is not trained, and a frozen BatchNormalization uses its moving averages and does
 * not update them. Takes effect with the next compile. Layers inside wrappers follow. "name",
 * "prefix*" or "*"; returns the number of layers changed, or a status. */
WEFT_API int weft_model_freeze(weft_model *m, const char *pattern, bool frozen);
WEFT_API bool weft_layer_frozen(const weft_model *m, weft_layer l);
/* The result of call number `call` (from 0) of a layer, to build on: for example a second head on
 * an existing model. */
WEFT_API weft_sym weft_layer_output(weft_model *m, weft_layer l, int call);

/* ---- a part of a model ----------------------------------------------------------------------- */

typedef struct weft_cut_opts {
    size_t size;
    const char *until; /* layers (separated by commas) whose results become the outputs:
                        * "flatten" */
    int drop;          /* or: drop this many layers at the end of a model with one output */
} weft_cut_opts;
/* The part that leads to these layers as a separate model, with the same layer names and types,
 * frozen as they are; with neither, a copy of everything that leads to the outputs. weft_model_add
 * continues from its end:
 *
 *   weft_model_load(ctx, "base.safetensors", &whole);
 *   weft_model_cut(whole, WEFT_OPTS(weft_cut_opts, .drop = 1), &m);
 *   weft_model_freeze(m, "*", true);
 *   weft_model_add(m, "Dense", "units=5");
 *   weft_compile(m, …, &t);
 *   weft_trainer_load_weights(t, "base.safetensors",
 *                             WEFT_OPTS(weft_load_opts, .by_name = true), NULL);
 *
 * New layers never reuse the name of a removed layer unless it is given explicitly, so loading by
 * name finds only the layers that were kept. WEFT_ENOENT for a layer that does not exist, with the
 * nearest name. */
WEFT_API weft_status weft_model_cut(const weft_model *m, const weft_cut_opts *opts,
                                    weft_model **out);

/* ---- summary, saving the architecture -------------------------------------------------------- */

/* The usual table: Layer (type), Output Shape, Param #, and "Connected to" if the model is not a
 * chain; totals below. width 0: 80 columns. Freed with weft_text_free. */
WEFT_API weft_status weft_model_summary(const weft_model *m, int width, char **out);
/* The architecture as JSON that reads back, without weights; freed with weft_text_free. */
WEFT_API weft_status weft_model_json(const weft_model *m, char **out);
WEFT_API weft_status weft_model_parse(weft_ctx *ctx, const char *json, int64_t n, weft_model **out);

/* The table of layer types, for help texts and completion: row i's name, arguments ("units:i
 * activation:s=linear …") and one line of documentation; false past the end. */
WEFT_API bool weft_layer_kind_at(int i, const char **name, const char **attrs, const char **doc);
/* Whether row i is a wrapper, which needs another layer (weft_layer_wrap). */
WEFT_API bool weft_layer_kind_wraps(int i);

#ifdef __cplusplus
}
#endif
#endif
