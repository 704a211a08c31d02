/* layers.h - what the layers share: their argument texts, and weights whose words are arguments of the layer. */
#ifndef WF_MODEL_LAYERS_H
#define WF_MODEL_LAYERS_H

#include "model/model.h"
#include "weft/ops.h"

/* The weight `name`; its initializer, regularizer and constraint are the layer's arguments prefix_initializer, …. */
weft_val wf_lc_param_as(weft_layer_call *c, const char *name, const char *prefix, int rank,
                        const int64_t *dim);
/* The same with fans for the initializer, where the shape does not say them. */
weft_val wf_lc_param_fans(weft_layer_call *c, const char *name, const char *prefix, int rank,
                          const int64_t *dim, double fan_in, double fan_out);
/* The same where the prefix is the name. */
weft_val wf_lc_param(weft_layer_call *c, const char *name, int rank, const int64_t *dim);
/* activation(y + bias), by the arguments use_bias, bias_… and activation; n is the number of units. */
weft_val wf_lc_finish(weft_layer_call *c, weft_val y, int64_t n);
/* One of `n` words; the place of the argument's word among them, or an error that lists them and -1. */
int wf_lc_choice(weft_layer_call *c, const char *attr, int n, const char *const *words);
/* An axis argument counted from the front; -1 after an error. */
int wf_lc_axis(weft_layer_call *c, const char *attr, int64_t axis, int rank);
/* The call's first input with the rank that it must have, or an error. */
weft_status wf_lc_need_rank(weft_layer_call *c, int rank, const char *meaning);

/* An argument that must be positive. */
weft_status wf_lc_positive(weft_layer_call *c, const char *attr, int64_t v);
/* Does the channel axis come last? The only format there is; an error otherwise. */
weft_status wf_lc_channels_last(weft_layer_call *c);
/* A constant f32 vector. */
weft_val wf_lc_vector(weft_layer_call *c, int n, const double *values);
/* x as f32 when it is not a float. */
weft_val wf_lc_float_input(weft_layer_call *c, weft_val x);
/* What a regularizer says of v, per sample, is added to the training loss. */
weft_status wf_lc_activity(weft_layer_call *c, const char *regularizer, weft_val v);
/* x with `axis` moved to the end, or back from there. */
weft_val wf_lc_axis_last(weft_layer_call *c, weft_val x, int axis, bool back);

/* The build functions of all kinds. */
#define LAYER(name, in_min, in_max, attrs, flags, build, doc) weft_status build(weft_layer_call *c);
#include "model/layers.def"
#undef LAYER

#endif
