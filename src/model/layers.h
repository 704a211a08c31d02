/* layers.h - shared by the layers: argument texts, and weights configured by arguments of the
 * layer. */
#ifndef WF_MODEL_LAYERS_H
#define WF_MODEL_LAYERS_H

#include "model/model.h"
#include "weft/ops.h"

/* The weight `name`; its initializer, regularizer and constraint are the layer's arguments
 * prefix_initializer, …. */
weft_val wf_lc_param_as(weft_layer_call *c, const char *name, const char *prefix, int rank,
                        const int64_t *dim);
/* The same with fans for the initializer, if they do not follow from the shape. */
weft_val wf_lc_param_fans(weft_layer_call *c, const char *name, const char *prefix, int rank,
                          const int64_t *dim, double fan_in, double fan_out);
/* The same if the prefix is the name. */
weft_val wf_lc_param(weft_layer_call *c, const char *name, int rank, const int64_t *dim);
/* activation(y + bias), by the arguments use_bias, bias_… and activation; n is the number of
 * units. */
weft_val wf_lc_finish(weft_layer_call *c, weft_val y, int64_t n);
/* One of `n` words: the position of the argument's word among them, or -1 with an error that lists
 * them. */
int wf_lc_choice(weft_layer_call *c, const char *attr, int n, const char *const *words);
/* An axis argument counted from the front; -1 after an error. */
int wf_lc_axis(weft_layer_call *c, const char *attr, int64_t axis, int rank);
/* Checks the rank of the call's first input. */
weft_status wf_lc_need_rank(weft_layer_call *c, int rank, const char *meaning);

/* Checks that an argument is positive. */
weft_status wf_lc_positive(weft_layer_call *c, const char *attr, int64_t v);
/* Checks that the channel axis is last, the only supported format. */
weft_status wf_lc_channels_last(weft_layer_call *c);
/* A constant f32 vector. */
weft_val wf_lc_vector(weft_layer_call *c, int n, const double *values);
/* x as f32 if it is not a float. */
weft_val wf_lc_float_input(weft_layer_call *c, weft_val x);
/* Adds the regularizer's value for v, per sample, to the training loss. */
weft_status wf_lc_activity(weft_layer_call *c, const char *regularizer, weft_val v);
/* x with `axis` moved to the end, or back from there. */
weft_val wf_lc_axis_last(weft_layer_call *c, weft_val x, int axis, bool back);

/* The build functions of all layer types. */
#define LAYER(name, in_min, in_max, attrs, flags, build, doc) weft_status build(weft_layer_call *c);
#include "model/layers.def"
#undef LAYER

#endif
