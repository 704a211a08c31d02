#!/usr/bin/env python3
"""Twenty training steps of two small classifiers in Keras 3: writes test/golden/train_cnn.json and train_lstm.json.

  KERAS_BACKEND=tensorflow python3 tools/golden_train.py [folder]

Format: `inputs` [{name, dtype, shape with all samples, data}] and `labels` (int32, one per sample); `batch` samples make
a step: step t takes samples [t * batch, (t + 1) * batch) modulo their number, in order. `steps` is the model (name, weft
kind, attributes, inputs), `output` the name of its output, `loss` the weft text of its loss. `weights` [{name, shape,
data}] before the first step, in Keras' order. `runs` has one entry per optimizer: `optimizer` and its `numbers`, as weft
reads them, `losses` (the batch's mean before each of the 20 updates) and `final` (every weight after the last, in the same order).
All numbers are functions of a fixed seed."""
import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import tensorflow as tf

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../test/golden")
L = keras.layers
STEPS, BATCH, SAMPLES = 20, 8, 24
OPTIMIZERS = [("SGD", dict(learning_rate=0.05, momentum=0.9)), ("Adam", dict(learning_rate=0.01))]


def num(x):
    return float(f"{float(x):.8g}")


def flat(x):
    return [num(v) for v in np.asarray(x, "float64").ravel()]


def rounded(x):
    return np.array(flat(x), "f").reshape(x.shape)


def cnn():
    x = keras.Input((8, 8, 1))
    y = L.Conv2D(3, 3, activation="relu", padding="same")(x)
    y = L.MaxPooling2D(2)(y)
    y = L.Conv2D(4, 3, activation="relu")(y)
    y = L.Flatten()(y)
    steps = [("conv1", "Conv2D", "filters=3 kernel_size=3 activation=relu padding=same", "x"),
             ("pool", "MaxPooling2D", "pool_size=2", "conv1"),
             ("conv2", "Conv2D", "filters=4 kernel_size=3 activation=relu", "pool"),
             ("flat", "Flatten", "", "conv2"), ("logits", "Dense", "units=3", "flat")]
    return keras.Model(x, L.Dense(3)(y)), (8, 8, 1), steps


def lstm():
    x = keras.Input((6, 3))
    y = L.LSTM(5)(x)
    steps = [("lstm", "LSTM", "units=5", "x"), ("logits", "Dense", "units=3", "lstm")]
    return keras.Model(x, L.Dense(3)(y)), (6, 3), steps


def make(name, build):
    rng = np.random.default_rng(len(name))
    keras.utils.set_random_seed(7)
    model, shape, steps = build()
    labels = rng.integers(0, 3, SAMPLES).astype("int32")
    # A pattern per class, so that there is something to learn.
    x = rounded((rng.normal(size=(3, *shape))[labels] + 0.8 * rng.normal(size=(SAMPLES, *shape))).astype("f"))
    start = [rounded(w.numpy()) for w in model.weights]
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    runs = []
    for kind, args in OPTIMIZERS:
        for w, v in zip(model.weights, start):
            w.assign(v)
        optimizer, losses = getattr(keras.optimizers, kind)(**args), []
        for t in range(STEPS):
            at = np.arange(t * BATCH, (t + 1) * BATCH) % SAMPLES
            with tf.GradientTape() as tape:
                loss = loss_of(labels[at], model(x[at], training=True))
            losses.append(num(loss))
            optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        numbers = " ".join(f"{k}={v}" for k, v in args.items())
        runs.append(dict(optimizer=kind.lower(), numbers=numbers, losses=losses, final=[flat(w) for w in model.weights]))
    out = dict(
        made_by=f"tools/golden_train.py, Keras {keras.__version__}", batch=BATCH,
        inputs=[dict(name="x", dtype="f32", shape=list(x.shape), data=flat(x))], labels=labels.tolist(),
        steps=[dict(name=n, kind=k, attrs=a, **{"in": i.split()}) for n, k, a, i in steps], output="logits",
        loss="SparseCategoricalCrossentropy from_logits=true",
        weights=[dict(name=w.path, shape=list(w.shape), data=flat(v)) for w, v in zip(model.weights, start)], runs=runs)
    with open(os.path.join(OUT, f"train_{name}.json"), "w") as f:
        f.write("{" + ",\n ".join(f'"{k}": {json.dumps(v)}' for k, v in out.items()) + "}\n")
    print(name, [r["losses"][0] for r in runs], [r["losses"][-1] for r in runs])


make("cnn", cnn)
make("lstm", lstm)
