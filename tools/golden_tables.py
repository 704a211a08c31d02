#!/usr/bin/env python3
"""Twenty steps of a model with an embedding by each of Keras' optimizers: writes test/golden/train_table.json.

  KERAS_BACKEND=tensorflow python3 tools/golden_tables.py [folder]

The ids of a batch are some rows of the table, and some more than once. Keras gets the table's gradient whole, as its JAX and
PyTorch backends always do: every row moves in every step. (TensorFlow's hands over the rows that were looked up; then Keras
squares the rows of an id that occurs twice one by one. With ids that are all different both are the same, which is checked.)

Format: `ids` [samples][length] and `labels` (int32); step t takes samples [t * batch, (t + 1) * batch) modulo their number.
`weights` [{name, shape, data}] before the first step, `runs` one entry per optimizer: `optimizer` as weft reads it, `losses` before
each of the updates and `final`, every weight after the last. All numbers are functions of a fixed seed."""
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
STEPS, BATCH, SAMPLES, ROWS, WIDTH, LENGTH = 20, 4, 16, 30, 3, 3
OPTIMIZERS = [
    ("SGD", dict(learning_rate=0.05)),
    ("SGD", dict(learning_rate=0.05, momentum=0.9)),
    ("SGD", dict(learning_rate=0.05, momentum=0.9, nesterov=1, weight_decay=0.01)),
    ("RMSprop", dict(learning_rate=0.01)),
    ("RMSprop", dict(learning_rate=0.01, momentum=0.5, centered=1)),
    ("Adam", dict(learning_rate=0.01)),
    ("Adam", dict(learning_rate=0.01, amsgrad=1, global_clipnorm=0.1)),
    ("AdamW", dict(learning_rate=0.01, weight_decay=0.02)),
    ("Adamax", dict(learning_rate=0.01)),
    ("Nadam", dict(learning_rate=0.01)),
    ("Adagrad", dict(learning_rate=0.05)),
    ("Adadelta", dict(learning_rate=0.5)),
    ("Ftrl", dict(learning_rate=0.05, l1_regularization_strength=0.001, l2_regularization_strength=0.01)),
    ("Lion", dict(learning_rate=0.002)),
    ("Lamb", dict(learning_rate=0.01, clipnorm=0.05)),
]


def num(x):
    return float(f"{float(x):.8g}")


def flat(x):
    return [num(v) for v in np.asarray(x, "float64").ravel()]


def rounded(x):
    return np.array(flat(x), "f").reshape(x.shape)


def make_model():
    keras.utils.set_random_seed(7)
    x = keras.Input((LENGTH,), dtype="int32")
    y = L.Embedding(ROWS, WIDTH, embeddings_initializer=keras.initializers.RandomUniform(-0.5, 0.5))(x)
    return keras.Model(x, L.Dense(3)(L.Flatten()(y)))


def train(model, start, ids, labels, kind, args, whole):
    for w, v in zip(model.weights, start):
        w.assign(v)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer, losses = getattr(keras.optimizers, kind)(**args), []
    for t in range(STEPS):
        at = np.arange(t * BATCH, (t + 1) * BATCH) % SAMPLES
        with tf.GradientTape() as tape:
            loss = loss_of(labels[at], model(ids[at], training=True))
        losses.append(num(loss))
        grads = tape.gradient(loss, model.trainable_weights)
        if whole:
            grads = [tf.convert_to_tensor(g) for g in grads]
        optimizer.apply(grads, model.trainable_weights)
    return losses, [flat(w) for w in model.weights]


def apart(a, b):
    return max(np.max(np.abs(np.array(x) - np.array(y))) for x, y in zip(a[1], b[1]))


rng = np.random.default_rng(5)
model = make_model()
labels = rng.integers(0, 3, SAMPLES).astype("int32")
ids = rng.integers(0, ROWS - 4, (SAMPLES, LENGTH)).astype("int32")  # the last rows are never looked up
different = np.stack([rng.permutation(ROWS)[: BATCH * LENGTH].reshape(BATCH, LENGTH) for _ in range(SAMPLES // BATCH)])
different = different.reshape(SAMPLES, LENGTH).astype("int32")
start = [rounded(w.numpy()) for w in model.weights]
runs = []
for kind, args in OPTIMIZERS:
    losses, final = train(model, start, ids, labels, kind, args, True)
    alike = apart(train(model, start, different, labels, kind, args, True), train(model, start, different, labels, kind, args, False))
    twice = apart((losses, final), train(model, start, ids, labels, kind, args, False))
    print(f"{kind:10} {str(args):90} rows all different: {alike:.1e}, some twice: {twice:.1e}")
    assert alike < 1e-6
    numbers = " ".join(f"{k}={v}" for k, v in args.items())
    runs.append(dict(optimizer=f"{kind.lower()} {numbers}", losses=losses, final=final))
out = dict(
    made_by=f"tools/golden_tables.py, Keras {keras.__version__}", batch=BATCH, rows=ROWS, width=WIDTH, ids=ids.tolist(),
    labels=labels.tolist(), weights=[dict(name=w.path, shape=list(w.shape), data=flat(v)) for w, v in zip(model.weights, start)],
    runs=runs)
with open(os.path.join(OUT, "train_table.json"), "w") as f:
    f.write("{" + ",\n ".join(f'"{k}": {json.dumps(v)}' for k, v in out.items()) + "}\n")
