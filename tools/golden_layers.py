#!/usr/bin/env python3
"""golden_layers.py - make the numbers of test/golden/model_*.json with Keras.

usage: golden_layers.py [--out FOLDER] [NAME ...]     (default: test/golden beside this script, every file)

One case is a layer with its arguments: the values it gives in inference (and in training, where nothing is drawn at random), the
gradients of sum(values * d_y) with respect to inputs and trained weights, and its state after a training step. All but
3-dimensional pooling is computed in f64. Inputs, weights and d_y are not in the files: script and tests make them with the generator that golden.py
describes, as streams CASE/x0, CASE/kernel, CASE/d_y.
"""
import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import numpy as np
import tensorflow as tf

from golden import flat, keras, make, number, whole, write

L = keras.layers
keras.config.set_floatx("float64")

# Weights that must be positive or near 1.
NEAR_ONE = {"gamma", "scale", "moving_variance", "variance"}


class Case:
    """A layer as weft names it, and the same of Keras."""

    def __init__(self, kind, attrs, layer, *shapes, scale=1.0, train=False, mask=None, offset=0.0):
        self.kind, self.attrs, self.layer, self.shapes = kind, attrs, layer, shapes
        self.scale, self.offset, self.train, self.mask = scale, offset, train, mask


def weight_spec(v):
    near_one = v.name in NEAR_ONE
    return number(v.name, *v.shape, scale=0.25 if near_one else 0.5, offset=1.0 if near_one else 0.0)


def run(layer, xs, mask, training, name):
    """Values, and gradients by the names of inputs and weights."""
    keywords = {} if not any(a == "training" for a in layer._call_signature.parameters) else dict(training=training)
    if mask is not None:
        keywords["mask"] = tf.constant(mask)
    xs = [tf.constant(x, layer.compute_dtype) for x in xs]
    weights = layer.trainable_variables
    with tf.GradientTape() as tape:
        for x in xs:
            tape.watch(x)
        y = layer(xs if len(xs) > 1 else xs[0], **keywords)
        d = tf.constant(make(name, number("d_y", *y.shape)), y.dtype)
        loss = tf.reduce_sum(y * d)
    grads = tape.gradient(loss, xs + [w.value for w in weights])
    names = [f"x{i}" for i in range(len(xs))] + [w.name for w in weights]
    out = dict(y=flat(y), shape=[int(n) for n in y.shape])
    for n, g in zip(names, grads):
        out["d_" + n] = flat(np.zeros(0) if g is None else tf.convert_to_tensor(g))
    return out


def record(name, case):
    layer = case.layer()
    specs = [number(f"x{i}", *s, scale=case.scale, offset=case.offset) for i, s in enumerate(case.shapes)]
    xs = [make(name, s) for s in specs]
    mask = None
    if case.mask:
        specs.append(whole("mask", *case.mask, below=3, dtype="bool"))
        mask = make(name, specs[-1])
    layer.build([x.shape for x in xs] if len(xs) > 1 else xs[0].shape)
    weights = [weight_spec(v) for v in layer.weights if "seed" not in v.name and v.name != "count"]
    for v in layer.weights:
        for s in weights:
            if s["name"] == v.name:
                v.assign(make(name, s))
    r = dict(name=name, kind=case.kind, attrs=case.attrs, inputs=specs, weights=weights)
    r["inference"] = run(layer, xs, mask, False, name)
    if case.train:
        r["training"] = run(layer, xs, mask, True, name)
        for v in layer.non_trainable_variables:
            r["training"]["new_" + v.name] = flat(v)
    return r


def activations():
    words = ["linear", "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "swish", "mish", "tanh",
             "sigmoid", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "softmax", "log_softmax", "softplus",
             "softsign", "exponential", "glu", "squareplus", "soft_shrink", "hard_shrink", "tanh_shrink",
             "log_sigmoid", "sparse_plus", "sparse_sigmoid"]
    out = {w: Case("Activation", "activation=" + w, lambda w=w: L.Activation(w), (3, 6), scale=4.0) for w in words}
    a = keras.activations

    def word(name, text, fn):
        out[name] = Case("Activation", "activation=" + text, lambda: L.Activation(fn), (3, 6), scale=4.0)

    word("relu arguments", "relu(0.1,2,0.5)", lambda x: a.relu(x, 0.1, 2.0, 0.5))
    word("relu slope and top", "relu(negative_slope=0.1,max_value=6)", lambda x: a.relu(x, 0.1, 6.0))
    word("leaky_relu 0.4", "leaky_relu(0.4)", lambda x: a.leaky_relu(x, 0.4))
    word("elu 0.5", "elu(alpha=0.5)", lambda x: a.elu(x, 0.5))
    word("celu 2", "celu(2)", lambda x: a.celu(x, 2.0))
    word("gelu tanh", "gelu(approximate=true)", lambda x: a.gelu(x, True))
    word("softmax 0", "softmax(0)", lambda x: a.softmax(x, 0))
    word("threshold", "threshold(0.7,-1)", lambda x: a.threshold(x, 0.7, -1.0))
    word("glu 1", "glu(axis=1)", lambda x: a.glu(x, 1))
    word("hard_shrink 1", "hard_shrink(1)", lambda x: a.hard_shrink(x, 1.0))
    word("soft_shrink 1", "soft_shrink(threshold=1)", lambda x: a.soft_shrink(x, 1.0))
    word("squareplus 1", "squareplus(b=1)", lambda x: a.squareplus(x, 1))
    out["ReLU"] = Case("ReLU", "", lambda: L.ReLU(), (3, 6))
    out["ReLU all"] = Case("ReLU", "max_value=1.5 negative_slope=0.2 threshold=0.3", lambda: L.ReLU(1.5, 0.2, 0.3), (3, 6),
                           scale=3.0)
    out["LeakyReLU"] = Case("LeakyReLU", "", lambda: L.LeakyReLU(), (3, 6))
    out["LeakyReLU 0"] = Case("LeakyReLU", "negative_slope=0", lambda: L.LeakyReLU(0.0), (3, 6))
    out["PReLU"] = Case("PReLU", "", lambda: L.PReLU(), (3, 2, 4))
    out["PReLU shared"] = Case("PReLU", "shared_axes=[1,2]", lambda: L.PReLU(shared_axes=[1, 2]), (2, 3, 3, 2))
    out["ELU"] = Case("ELU", "alpha=0.7", lambda: L.ELU(0.7), (3, 6))
    out["Softmax"] = Case("Softmax", "", lambda: L.Softmax(), (3, 6))
    out["Softmax 1"] = Case("Softmax", "axis=1", lambda: L.Softmax(1), (2, 3, 4))
    out["Softmax two axes"] = Case("Softmax", "axis=[1,2]", lambda: L.Softmax((1, 2)), (2, 3, 4))
    out["Softmax masked"] = Case("Softmax", "", lambda: L.Softmax(), (3, 6), mask=(3, 6))
    return out


def core():
    return {
        "Dense": Case("Dense", "units=3", lambda: L.Dense(3), (4, 5)),
        "Dense relu": Case("Dense", "units=4 activation=relu", lambda: L.Dense(4, activation="relu"), (3, 5)),
        "Dense no bias": Case("Dense", "units=2 use_bias=false", lambda: L.Dense(2, use_bias=False), (3, 4)),
        "Dense of rank 3": Case("Dense", "units=3 activation=tanh", lambda: L.Dense(3, "tanh"), (2, 3, 4)),
        "EinsumDense": Case("EinsumDense", "equation=ab,bc->ac output_shape=4 bias_axes=c",
                            lambda: L.EinsumDense("ab,bc->ac", 4, bias_axes="c"), (3, 5)),
        "EinsumDense heads": Case("EinsumDense", "equation=abc,cde->abde output_shape=[-1,2,3] bias_axes=de",
                                  lambda: L.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de"), (2, 3, 4)),
        "EinsumDense out": Case("EinsumDense", "equation=abde,dec->abc output_shape=[-1,4] activation=relu",
                                lambda: L.EinsumDense("abde,dec->abc", (None, 4), activation="relu"), (2, 3, 2, 3)),
        "EinsumDense dots": Case("EinsumDense", "equation=...x,xy->...y output_shape=3 bias_axes=y",
                                 lambda: L.EinsumDense("...x,xy->...y", 3, bias_axes="y"), (2, 3, 4)),
        "EinsumDense dots on the right": Case("EinsumDense", "equation=ab...,bc->ac... output_shape=3 bias_axes=c",
                                              lambda: L.EinsumDense("ab...,bc->ac...", 3, bias_axes="c"), (2, 3, 2, 2)),
        "EinsumDense bias of one axis": Case("EinsumDense", "equation=abc,cd->abd output_shape=[3,5] bias_axes=b",
                                             lambda: L.EinsumDense("abc,cd->abd", (3, 5), bias_axes="b"), (2, 3, 4)),
        "Identity": Case("Identity", "", lambda: L.Identity(), (2, 3)),
        "Dropout": Case("Dropout", "rate=0.5", lambda: L.Dropout(0.5), (2, 3)),
        "Dropout 0": Case("Dropout", "rate=0", lambda: L.Dropout(0.0), (2, 3), train=True),
        "SpatialDropout1D": Case("SpatialDropout1D", "rate=0.5", lambda: L.SpatialDropout1D(0.5), (2, 3, 2)),
        "SpatialDropout2D": Case("SpatialDropout2D", "rate=0.5", lambda: L.SpatialDropout2D(0.5), (2, 2, 2, 2)),
        "SpatialDropout3D": Case("SpatialDropout3D", "rate=0.5", lambda: L.SpatialDropout3D(0.5), (1, 2, 2, 2, 2)),
        "GaussianDropout": Case("GaussianDropout", "rate=0.5", lambda: L.GaussianDropout(0.5), (2, 3)),
        "AlphaDropout": Case("AlphaDropout", "rate=0.5", lambda: L.AlphaDropout(0.5), (2, 3)),
        "GaussianNoise": Case("GaussianNoise", "stddev=0.5", lambda: L.GaussianNoise(0.5), (2, 3)),
        "ActivityRegularization": Case("ActivityRegularization", "l1=0.1 l2=0.2",
                                       lambda: L.ActivityRegularization(0.1, 0.2), (2, 3)),
        "Rescaling": Case("Rescaling", "scale=0.5 offset=-1", lambda: L.Rescaling(0.5, -1.0), (2, 3)),
        "Rescaling per channel": Case("Rescaling", "scale=[1,2,3] offset=[0.1,0.2,0.3]",
                                      lambda: L.Rescaling([1.0, 2.0, 3.0], [0.1, 0.2, 0.3]), (2, 2, 3)),
        "Normalization": Case("Normalization", "mean=[1,2,3] variance=[4,5,6]",
                              lambda: L.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0]), (2, 3)),
        "Normalization invert": Case("Normalization", "mean=1 variance=4 invert=true",
                                     lambda: L.Normalization(mean=1.0, variance=4.0, invert=True), (2, 3)),
        "Normalization axis": Case("Normalization", "axis=1 mean=[1,2] variance=[4,5]",
                                   lambda: L.Normalization(axis=1, mean=[1.0, 2.0], variance=[4.0, 5.0]), (2, 2, 3)),
    }


def convs():
    out = {}

    def add(name, *args, **k):
        out[name] = Case(*args, **k)

    add("Conv1D", "Conv1D", "filters=3 kernel_size=2", lambda: L.Conv1D(3, 2), (2, 5, 2))
    add("Conv1D causal", "Conv1D", "filters=2 kernel_size=3 padding=causal dilation_rate=2",
        lambda: L.Conv1D(2, 3, padding="causal", dilation_rate=2), (2, 6, 2))
    add("Conv1D same stride", "Conv1D", "filters=2 kernel_size=3 padding=same strides=2 activation=tanh",
        lambda: L.Conv1D(2, 3, 2, "same", activation="tanh"), (2, 6, 2))
    add("Conv2D", "Conv2D", "filters=3 kernel_size=3", lambda: L.Conv2D(3, 3), (1, 5, 5, 2))
    add("Conv2D relu", "Conv2D", "filters=2 kernel_size=(2,3) activation=relu padding=same",
        lambda: L.Conv2D(2, (2, 3), activation="relu", padding="same"), (1, 4, 5, 2))
    add("Conv2D strides", "Conv2D", "filters=2 kernel_size=3 strides=(2,1) use_bias=false",
        lambda: L.Conv2D(2, 3, (2, 1), use_bias=False), (1, 6, 5, 2))
    add("Conv2D groups", "Conv2D", "filters=4 kernel_size=2 groups=2", lambda: L.Conv2D(4, 2, groups=2), (1, 4, 4, 4))
    add("Conv2D dilation", "Conv2D", "filters=2 kernel_size=2 dilation_rate=(2,3)",
        lambda: L.Conv2D(2, 2, dilation_rate=(2, 3)), (1, 5, 6, 1))
    add("Conv2D same stride", "Conv2D", "filters=2 kernel_size=3 padding=same strides=2",
        lambda: L.Conv2D(2, 3, 2, "same"), (1, 5, 4, 2))
    add("Conv3D", "Conv3D", "filters=2 kernel_size=2", lambda: L.Conv3D(2, 2), (1, 3, 3, 3, 2))
    add("Conv3D same", "Conv3D", "filters=1 kernel_size=(1,2,3) padding=same strides=(1,2,1)",
        lambda: L.Conv3D(1, (1, 2, 3), (1, 2, 1), "same"), (1, 2, 3, 4, 2))
    add("Conv1DTranspose", "Conv1DTranspose", "filters=2 kernel_size=3 strides=2",
        lambda: L.Conv1DTranspose(2, 3, 2), (2, 4, 2))
    add("Conv1DTranspose same", "Conv1DTranspose", "filters=2 kernel_size=3 strides=2 padding=same",
        lambda: L.Conv1DTranspose(2, 3, 2, "same"), (1, 4, 2))
    add("Conv2DTranspose", "Conv2DTranspose", "filters=2 kernel_size=3", lambda: L.Conv2DTranspose(2, 3), (1, 3, 3, 2))
    add("Conv2DTranspose same", "Conv2DTranspose", "filters=2 kernel_size=3 strides=2 padding=same activation=relu",
        lambda: L.Conv2DTranspose(2, 3, 2, "same", activation="relu"), (1, 3, 3, 2))
    add("Conv2DTranspose output_padding", "Conv2DTranspose",
        "filters=2 kernel_size=3 strides=2 padding=same output_padding=1",
        lambda: L.Conv2DTranspose(2, 3, 2, "same", output_padding=1), (1, 3, 3, 2))
    add("Conv2DTranspose output_padding 0", "Conv2DTranspose", "filters=1 kernel_size=3 strides=2 output_padding=0",
        lambda: L.Conv2DTranspose(1, 3, 2, output_padding=0), (1, 3, 2, 2))
    add("Conv3DTranspose", "Conv3DTranspose", "filters=2 kernel_size=2 strides=2",
        lambda: L.Conv3DTranspose(2, 2, 2), (1, 2, 2, 2, 2))
    add("DepthwiseConv1D", "DepthwiseConv1D", "kernel_size=3 depth_multiplier=2",
        lambda: L.DepthwiseConv1D(3, depth_multiplier=2), (2, 5, 2))
    add("DepthwiseConv2D", "DepthwiseConv2D", "kernel_size=3", lambda: L.DepthwiseConv2D(3), (1, 4, 4, 3))
    add("DepthwiseConv2D all", "DepthwiseConv2D",
        "kernel_size=2 strides=2 padding=same depth_multiplier=2 activation=tanh use_bias=false",
        lambda: L.DepthwiseConv2D(2, 2, "same", 2, activation="tanh", use_bias=False), (1, 5, 4, 2))
    add("SeparableConv1D", "SeparableConv1D", "filters=3 kernel_size=2 depth_multiplier=2",
        lambda: L.SeparableConv1D(3, 2, depth_multiplier=2), (2, 4, 2))
    add("SeparableConv2D", "SeparableConv2D", "filters=3 kernel_size=2", lambda: L.SeparableConv2D(3, 2), (1, 4, 4, 2))
    add("SeparableConv2D same", "SeparableConv2D", "filters=2 kernel_size=3 padding=same strides=2 activation=relu",
        lambda: L.SeparableConv2D(2, 3, 2, "same", activation="relu"), (1, 4, 5, 2))
    for n, shape in ((1, (2, 5, 2)), (2, (1, 5, 4, 2)), (3, (1, 3, 4, 3, 2))):
        mx, av = getattr(L, f"MaxPooling{n}D"), getattr(L, f"AveragePooling{n}D")
        t = "float32" if n == 3 else "float64"  # all that TensorFlow has
        add(f"MaxPooling{n}D", f"MaxPooling{n}D", "", lambda mx=mx, t=t: mx(dtype=t), shape)
        add(f"MaxPooling{n}D same", f"MaxPooling{n}D", "pool_size=3 strides=2 padding=same",
            lambda mx=mx, t=t: mx(3, 2, "same", dtype=t), shape)
        add(f"AveragePooling{n}D", f"AveragePooling{n}D", "pool_size=2", lambda av=av, t=t: av(2, dtype=t), shape)
        add(f"AveragePooling{n}D same", f"AveragePooling{n}D", "pool_size=3 strides=1 padding=same",
            lambda av=av, t=t: av(3, 1, "same", dtype=t), shape)
        for what in ("Max", "Average"):
            g = getattr(L, f"Global{what}Pooling{n}D")
            add(f"Global{what}Pooling{n}D", f"Global{what}Pooling{n}D", "", lambda g=g: g(), shape)
            add(f"Global{what}Pooling{n}D keepdims", f"Global{what}Pooling{n}D", "keepdims=true",
                lambda g=g: g(keepdims=True), shape)
        for what in ("Max", "Average"):
            g = getattr(L, f"Adaptive{what}Pooling{n}D")
            add(f"Adaptive{what}Pooling{n}D", f"Adaptive{what}Pooling{n}D", "output_size=2", lambda g=g, t=t: g(2, dtype=t), shape)
            add(f"Adaptive{what}Pooling{n}D of three", f"Adaptive{what}Pooling{n}D", "output_size=3",
                lambda g=g, t=t: g(3, dtype=t), shape)
    add("GlobalAveragePooling1D masked", "GlobalAveragePooling1D", "", lambda: L.GlobalAveragePooling1D(), (2, 5, 2),
        mask=(2, 5))
    return out


def norms():
    B, LN, G, R, U = (L.BatchNormalization, L.LayerNormalization, L.GroupNormalization, L.RMSNormalization,
                      L.UnitNormalization)
    return {
        "BatchNormalization": Case("BatchNormalization", "", lambda: B(), (6, 3), train=True),
        "BatchNormalization images": Case("BatchNormalization", "momentum=0.8 epsilon=0.01",
                                          lambda: B(momentum=0.8, epsilon=0.01), (2, 3, 2, 3), train=True),
        "BatchNormalization axis": Case("BatchNormalization", "axis=1", lambda: B(axis=1), (3, 2, 4), train=True),
        "BatchNormalization bare": Case("BatchNormalization", "center=false scale=false",
                                        lambda: B(center=False, scale=False), (5, 3), train=True),
        "BatchNormalization masked": Case("BatchNormalization", "", lambda: B(), (3, 4, 2), train=True, mask=(3, 4)),
        "LayerNormalization": Case("LayerNormalization", "", lambda: LN(), (2, 3, 4)),
        "LayerNormalization two axes": Case("LayerNormalization", "axis=[1,2] epsilon=0.1",
                                            lambda: LN(axis=[1, 2], epsilon=0.1), (2, 3, 4)),
        "LayerNormalization first": Case("LayerNormalization", "axis=1", lambda: LN(axis=1), (2, 3, 4)),
        "LayerNormalization bare": Case("LayerNormalization", "center=false scale=false",
                                        lambda: LN(center=False, scale=False), (2, 5)),
        "GroupNormalization": Case("GroupNormalization", "groups=2", lambda: G(2), (2, 3, 4)),
        "GroupNormalization each": Case("GroupNormalization", "groups=-1", lambda: G(-1), (2, 2, 2, 3)),
        "GroupNormalization axis": Case("GroupNormalization", "groups=2 axis=1", lambda: G(2, axis=1), (2, 4, 3)),
        "RMSNormalization": Case("RMSNormalization", "", lambda: R(), (2, 3, 4)),
        "RMSNormalization two axes": Case("RMSNormalization", "axis=[1,2] epsilon=0.01", lambda: R([1, 2], 0.01),
                                          (2, 3, 4)),
        "UnitNormalization": Case("UnitNormalization", "", lambda: U(), (2, 3, 4)),
        "UnitNormalization axes": Case("UnitNormalization", "axis=[1,2]", lambda: U([1, 2]), (2, 3, 4)),
    }


def shapes():
    return {
        "Flatten": Case("Flatten", "", lambda: L.Flatten(), (2, 3, 2)),
        "Reshape": Case("Reshape", "target_shape=(2,3)", lambda: L.Reshape((2, 3)), (2, 6)),
        "Reshape -1": Case("Reshape", "target_shape=[3,-1]", lambda: L.Reshape((3, -1)), (2, 2, 6)),
        "Permute": Case("Permute", "dims=(3,1,2)", lambda: L.Permute((3, 1, 2)), (2, 2, 3, 4)),
        "RepeatVector": Case("RepeatVector", "n=3", lambda: L.RepeatVector(3), (2, 4)),
        "ZeroPadding1D": Case("ZeroPadding1D", "", lambda: L.ZeroPadding1D(), (2, 3, 2)),
        "ZeroPadding1D pair": Case("ZeroPadding1D", "padding=(0,2)", lambda: L.ZeroPadding1D((0, 2)), (2, 3, 2)),
        "ZeroPadding2D": Case("ZeroPadding2D", "padding=(1,2)", lambda: L.ZeroPadding2D((1, 2)), (1, 2, 3, 2)),
        "ZeroPadding2D pairs": Case("ZeroPadding2D", "padding=((1,0),(2,1))", lambda: L.ZeroPadding2D(((1, 0), (2, 1))),
                                    (1, 2, 3, 1)),
        "ZeroPadding3D": Case("ZeroPadding3D", "", lambda: L.ZeroPadding3D(), (1, 2, 1, 2, 1)),
        "Cropping1D": Case("Cropping1D", "", lambda: L.Cropping1D(), (2, 5, 2)),
        "Cropping1D pair": Case("Cropping1D", "cropping=[0,2]", lambda: L.Cropping1D((0, 2)), (2, 5, 2)),
        "Cropping2D": Case("Cropping2D", "cropping=((1,0),(0,2))", lambda: L.Cropping2D(((1, 0), (0, 2))), (1, 4, 5, 2)),
        "Cropping2D 1": Case("Cropping2D", "cropping=1", lambda: L.Cropping2D(1), (1, 4, 5, 2)),
        "Cropping3D": Case("Cropping3D", "cropping=(1,0,1)", lambda: L.Cropping3D((1, 0, 1)), (1, 3, 2, 4, 1)),
        "UpSampling1D": Case("UpSampling1D", "size=3", lambda: L.UpSampling1D(3), (2, 3, 2)),
        "UpSampling2D": Case("UpSampling2D", "", lambda: L.UpSampling2D(), (1, 2, 3, 2)),
        "UpSampling2D bilinear": Case("UpSampling2D", "size=(2,3) interpolation=bilinear",
                                      lambda: L.UpSampling2D((2, 3), interpolation="bilinear"), (1, 3, 2, 2)),
        "UpSampling3D": Case("UpSampling3D", "size=(1,2,2)", lambda: L.UpSampling3D((1, 2, 2)), (1, 2, 2, 1, 2)),
    }


def merges():
    out = {}
    for kind in ("Add", "Multiply", "Average", "Maximum", "Minimum"):
        k = getattr(L, kind)
        out[kind] = Case(kind, "", lambda k=k: k(), (2, 3), (2, 3), (2, 3))
        out[kind + " of two ranks"] = Case(kind, "", lambda k=k: k(), (2, 4, 3), (2, 3))
    out["Add broadcast"] = Case("Add", "", lambda: L.Add(), (2, 4, 3), (2, 1, 3))
    out["Subtract"] = Case("Subtract", "", lambda: L.Subtract(), (2, 3), (2, 3))
    out["Concatenate"] = Case("Concatenate", "", lambda: L.Concatenate(), (2, 3), (2, 2), (2, 1))
    out["Concatenate 1"] = Case("Concatenate", "axis=1", lambda: L.Concatenate(1), (2, 3, 2), (2, 1, 2))
    out["Dot"] = Case("Dot", "axes=1", lambda: L.Dot(1), (2, 3), (2, 3))
    out["Dot of rank 3"] = Case("Dot", "axes=(2,1)", lambda: L.Dot((2, 1)), (2, 3, 4), (2, 4, 2))
    out["Dot of unequal ranks"] = Case("Dot", "axes=(1,2)", lambda: L.Dot((1, 2)), (2, 4), (2, 3, 4))
    out["Dot right of rank 2"] = Case("Dot", "axes=(2,1)", lambda: L.Dot((2, 1)), (2, 3, 4), (2, 4))
    out["Dot cosine"] = Case("Dot", "axes=-1 normalize=true", lambda: L.Dot(-1, normalize=True), (2, 3), (2, 3))
    out["Dot of rank 4"] = Case("Dot", "axes=(2,1)", lambda: L.Dot((2, 1)), (2, 3, 4, 2), (2, 4, 3))
    return out


def words():
    """Regularizers with their gradients, constraints with what they make of a weight."""
    r, k = keras.regularizers, keras.constraints
    rows = [("regularizer", "l1", r.L1(), (3, 4)), ("regularizer", "l2(0.1)", r.L2(0.1), (3, 4)),
            ("regularizer", "l1_l2(0.1,0.2)", r.L1L2(0.1, 0.2), (3, 4)), ("regularizer", "L1L2(l2=0.3)", r.L1L2(0, 0.3), (5,)),
            ("regularizer", "orthogonal", r.OrthogonalRegularizer(), (3, 4)),
            ("regularizer", "orthogonal(0.5,columns)", r.OrthogonalRegularizer(0.5, "columns"), (3, 4)),
            ("constraint", "max_norm(0.9)", k.MaxNorm(0.9), (3, 4)),
            ("constraint", "max_norm(1,axis=[0,1,2])", k.MaxNorm(1, [0, 1, 2]), (2, 2, 2, 3)),
            ("constraint", "unit_norm", k.UnitNorm(), (3, 4)), ("constraint", "NonNeg", k.NonNeg(), (3, 4)),
            ("constraint", "unit_norm(axis=1)", k.UnitNorm(axis=1), (3, 4)),
            ("constraint", "min_max_norm(0.5,0.9)", k.MinMaxNorm(0.5, 0.9), (3, 4)),
            ("constraint", "min_max_norm(0.5,0.9,rate=0.5,axis=1)", k.MinMaxNorm(0.5, 0.9, 0.5, 1), (3, 4))]
    out = []
    for what, word, fn, shape in rows:
        spec = number("w", *shape)
        w = tf.Variable(make(word, spec).astype(np.float32))  # Keras keeps factors in f32
        with tf.GradientTape() as tape:
            y = fn(w)
        row = dict(name=word, what=what, inputs=[spec], y=flat(y))
        if what == "regularizer":
            row["d_w"] = flat(tape.gradient(y, w))
        out.append(row)
    return out


FILES = {"model_core": core, "model_activations": activations, "model_conv": convs, "model_norm": norms,
         "model_shape": shapes, "model_merge": merges}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", default=os.path.join(here, "..", "test", "golden"))
    p.add_argument("names", nargs="*", metavar="NAME")
    a = p.parse_args()
    for name in a.names or [*FILES, "model_words"]:
        cases = words() if name == "model_words" else [record(k, c) for k, c in FILES[name]().items()]
        write(a.out, name, dict(cases=cases))


if __name__ == "__main__":
    main()
