#!/usr/bin/env python3
"""golden.py - make the numbers of the golden tests with PyTorch and TensorFlow (Keras).

usage: golden.py [--out FOLDER] [NAME ...]     (default: test/golden beside this script, every file)

Needs torch and tensorflow. Writes FOLDER/<workload>.json for the seven workloads at small size:
logits, loss, the gradient of every variable, and the losses of ten training steps; and
FOLDER/layers.json for single layers: outputs and gradients. Both frameworks start from the same
weights, compute in f64 and must agree within AGREE of each tensor's largest element, or nothing is
written. What is written are TensorFlow's numbers, as %.9g. The ten steps are Keras' optimizers;
PyTorch's gradients under the same formulas must give the same losses (Keras keeps the optimizers'
numbers in f32, which shows in the seventh digit).

Inputs and initial weights are not in the files: script and tests make them with the same generator.
A tensor called NAME of the file or layer CASE is a stream of its own:

    s = FNV-1a, 32 bits, of the text "CASE/NAME"
    for each element in row-major order:
        s = s * 1664525 + 1013904223  mod 2^32;  k = s >> 8                      (24 bits)
        numbers:  (k - 2^23) / 2^23 * scale + offset, in f64, then rounded to f32
        integers: k mod below                          (where the file gives "below")
"""
import argparse
import json
import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from tensorflow import keras

L = keras.layers
AGREE = 1e-5
STEPS = 10


# ---------------------------------------------------------------- the generator
def stream(case, name, count):
    s = 2166136261
    for byte in f"{case}/{name}".encode():
        s = ((s ^ byte) * 16777619) & 0xFFFFFFFF
    out = np.empty(count, np.int64)
    for i in range(count):
        s = (s * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = s >> 8
    return out


def make(case, spec):
    """The tensor that a spec (name, dtype, shape, and below or scale and offset) stands for."""
    k = stream(case, spec["name"], math.prod(spec["shape"])).reshape(spec["shape"])
    if "below" in spec:
        k = k % spec["below"]
        return k.astype({"i32": np.int32, "f32": np.float64, "bool": bool}[spec["dtype"]])
    x = (k - 2**23) / 2**23 * spec["scale"] + spec["offset"]
    return x.astype(np.float32).astype(np.float64)


def number(name, *shape, scale=1.0, offset=0.0):
    return dict(name=name, dtype="f32", shape=list(shape), scale=scale, offset=offset)


def whole(name, *shape, below, dtype="i32"):
    return dict(name=name, dtype=dtype, shape=list(shape), below=below)


# ---------------------------------------------------------------- comparing and writing
def agree(what, a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        raise SystemExit(f"golden: {what}: shapes {a.shape} and {b.shape}")
    worst = np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30) if a.size else 0
    if not worst <= AGREE:
        raise SystemExit(f"golden: {what}: PyTorch and TensorFlow differ by {worst:.2g}")
    return worst


def flat(x):
    return [float(v) for v in np.asarray(x, np.float64).ravel()]


def text(v, indent=0):
    """JSON with floats as %.9g, lists of numbers filled to 100 columns."""
    pad = " " * indent
    if isinstance(v, dict):
        rows = [f'{pad} {json.dumps(k)}: {text(x, indent + 1)}' for k, x in v.items()]
        return "{\n" + ",\n".join(rows) + "\n" + pad + "}"
    if isinstance(v, list) and v and isinstance(v[0], dict):
        return "[\n" + ",\n".join(pad + " " + text(x, indent + 1) for x in v) + "\n" + pad + "]"
    if isinstance(v, list):
        lines, line = [], ""
        for word in (text(x) for x in v):
            if line and len(line) + len(word) > 98:
                lines.append(line)
                line = ""
            line += ("," if line or lines else "") + word
        return "[" + "\n".join(lines + [line]) + "]"
    return "%.9g" % v if isinstance(v, float) else json.dumps(v)


def write(folder, name, data):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="ascii") as f:
        f.write(text(data) + "\n")
    print(f"{path}: {os.path.getsize(path)} bytes")


# ---------------------------------------------------------------- workloads: variables and feeds
def dense_vars(name, n_in, n_out):
    return [number(name + "/kernel", n_in, n_out, scale=round((3 / n_in) ** 0.5, 3)),
            number(name + "/bias", n_out, scale=0.1)]


def conv_vars(name, n_in, n_out):
    return [number(name + "/kernel", 3, 3, n_in, n_out, scale=round((1 / n_in) ** 0.5 / 2, 3)),
            number(name + "/bias", n_out, scale=0.1)]


def norm_vars(name, n):
    return [number(name + "/gamma", n, scale=0.2, offset=1.0), number(name + "/beta", n, scale=0.1)]


MLP = {"softmax64": (8, [64, 10]), "mlp-s": (12, [28, 24, 10]), "mlp-l": (9, [20, 32, 24, 10])}
CNN = dict(batch=4, size=12, filters=[8, 16], hidden=8)
LSTM = dict(batch=5, time=6, n_in=6, units=12)
WIDE = dict(batch=8, tables=26, rows=10, width=4, numeric=13, hidden=[16, 8])
GPT = dict(batch=2, tokens=8, vocabulary=24, width=16, heads=2, blocks=2)
SGD = ("sgd", "learning_rate=0.01 momentum=0.9")
ADAM = ("adam", "learning_rate=0.001")
ADAGRAD = ("adagrad", "learning_rate=0.01")


def mlp_specs(name):
    batch, sizes = MLP[name]
    v = [s for i in range(len(sizes) - 1) for s in dense_vars(f"dense{i}", sizes[i], sizes[i + 1])]
    return [number("x", batch, sizes[0]), whole("labels", batch, below=sizes[-1])], v


def cnn_specs(_):
    c, (f0, f1) = CNN, CNN["filters"]
    side = (c["size"] - 4) // 2
    v = conv_vars("conv0", 1, f0) + conv_vars("conv1", f0, f1)
    v += dense_vars("dense0", side * side * f1, c["hidden"]) + dense_vars("dense1", c["hidden"], 10)
    return [number("x", c["batch"], c["size"], c["size"], 1), whole("labels", c["batch"], below=10)], v


def lstm_specs(_):
    c = LSTM
    v = [number("lstm/kernel", c["n_in"], 4 * c["units"], scale=0.5),
         number("lstm/recurrent_kernel", c["units"], 4 * c["units"], scale=0.4),
         number("lstm/bias", 4 * c["units"], scale=0.3)] + dense_vars("dense", c["units"], 10)
    return [number("x", c["batch"], c["time"], c["n_in"]), whole("labels", c["batch"], below=10)], v


def wide_specs(_):
    c = WIDE
    sizes = [c["tables"] * c["width"] + c["numeric"], *c["hidden"], 1]
    v = [number(f"embedding{i}", c["rows"], c["width"], scale=0.5) for i in range(c["tables"])]
    v += [s for i in range(3) for s in dense_vars(f"dense{i}", sizes[i], sizes[i + 1])]
    return [whole("ids", c["batch"], c["tables"], below=c["rows"]),
            number("numeric", c["batch"], c["numeric"]),
            whole("targets", c["batch"], 1, below=2, dtype="f32")], v


def gpt_specs(_):
    c, d = GPT, GPT["width"]
    v = [number("embedding", c["vocabulary"], d, scale=0.5), number("position", c["tokens"], d, scale=0.5)]
    for i in range(c["blocks"]):
        b = f"block{i}/"
        v += norm_vars(b + "norm1", d) + dense_vars(b + "qkv", d, 3 * d) + dense_vars(b + "out", d, d)
        v += norm_vars(b + "norm2", d) + dense_vars(b + "up", d, 4 * d) + dense_vars(b + "down", 4 * d, d)
    return [whole("tokens", c["batch"], c["tokens"], below=c["vocabulary"]),
            whole("labels", c["batch"], c["tokens"], below=c["vocabulary"])], v + norm_vars("norm", d)


# ---------------------------------------------------------------- workloads: PyTorch
def torch_mlp(p, h, n, first=0):
    for i in range(n):
        h = h @ p[f"dense{first + i}/kernel"] + p[f"dense{first + i}/bias"]
        h = F.relu(h) if i + 1 < n else h
    return h


def torch_conv(p, name, x):
    return F.relu(F.conv2d(x, p[name + "/kernel"].permute(3, 2, 0, 1), p[name + "/bias"]))


def torch_logits(name, p, f):
    if name in MLP:
        return torch_mlp(p, f["x"], len(MLP[name][1]) - 1)
    if name == "cnn":
        h = torch_conv(p, "conv1", torch_conv(p, "conv0", f["x"].permute(0, 3, 1, 2)))
        return torch_mlp(p, F.max_pool2d(h, 2).permute(0, 2, 3, 1).flatten(1), 2)
    if name == "lstm":
        net = torch.nn.LSTM(LSTM["n_in"], LSTM["units"], batch_first=True).double()
        w = dict(weight_ih_l0=p["lstm/kernel"].t(), weight_hh_l0=p["lstm/recurrent_kernel"].t(),
                 bias_ih_l0=p["lstm/bias"], bias_hh_l0=torch.zeros_like(p["lstm/bias"]))
        h = torch.func.functional_call(net, w, (f["x"],))[0][:, -1]
        return h @ p["dense/kernel"] + p["dense/bias"]
    if name == "widedeep":
        rows = [F.embedding(f["ids"][:, i].long(), p[f"embedding{i}"]) for i in range(WIDE["tables"])]
        return torch_mlp(p, torch.cat(rows + [f["numeric"]], 1), 3)
    return torch_gpt(p, f["tokens"].long())


def torch_gpt(p, tokens):
    b, t, d, heads = GPT["batch"], GPT["tokens"], GPT["width"], GPT["heads"]
    dense = lambda n, x: x @ p[n + "/kernel"] + p[n + "/bias"]
    norm = lambda n, x: F.layer_norm(x, (d,), p[n + "/gamma"], p[n + "/beta"], 1e-5)
    h = F.embedding(tokens, p["embedding"]) + p["position"]
    for i in range(GPT["blocks"]):
        k = f"block{i}/"
        qkv = dense(k + "qkv", norm(k + "norm1", h)).view(b, t, 3, heads, d // heads)
        a = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        h = h + dense(k + "out", a.transpose(1, 2).reshape(b, t, d))
        h = h + dense(k + "down", F.gelu(dense(k + "up", norm(k + "norm2", h)), approximate="tanh"))
    return norm("norm", h) @ p["embedding"].t()


def torch_loss(name, z, f):
    if name == "widedeep":
        return F.binary_cross_entropy_with_logits(z, f["targets"])
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), f["labels"].long().reshape(-1))


def torch_update(kind, t, p, s):
    """One step of Keras' formulas on PyTorch's gradients; s holds the slots."""
    with torch.no_grad():
        for n, w in p.items():
            g = w.grad
            if kind == "sgd":
                s[n] = 0.9 * s.get(n, 0) - 0.01 * g
                w += s[n]
            elif kind == "adam":
                m, v = s.get(n, (0, 0))
                s[n] = m, v = m + (g - m) * 0.1, v + (g * g - v) * 0.001
                w -= 1e-3 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (v.sqrt() + 1e-7)
            else:
                s[n] = s.get(n, 0.1) + g * g
                w -= 0.01 * g / (s[n] + 1e-7).sqrt()
            w.grad = None


def torch_run(name, kind, feeds, values):
    f = {k: torch.tensor(v) for k, v in feeds.items()}
    p = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
    losses, slots, first = [], {}, None
    for t in range(1, STEPS + 1):
        z = torch_logits(name, p, f)
        loss = torch_loss(name, z, f)
        loss.backward()
        first = first or (z.detach().numpy(), {k: w.grad.clone().numpy() for k, w in p.items()})
        losses.append(loss.item())
        torch_update(kind, t, p, slots)
    return *first, losses


# ---------------------------------------------------------------- workloads: TensorFlow
class Net:
    """Keras layers with our weights, found again by our names."""

    def __init__(self, values):
        self.values, self.vars = values, {}

    def add(self, layer, shape, *names):
        layer.build(shape)
        assert len(layer.trainable_weights) == len(names)
        for name, w in zip(names, layer.trainable_weights):
            w.assign(self.values[name])
            self.vars[name] = w
        return layer

    def dense(self, name, act=None):
        n_in, n_out = self.values[name + "/kernel"].shape
        layer = L.Dense(n_out, activation=act, dtype="float64")
        return self.add(layer, (None, n_in), name + "/kernel", name + "/bias")

    def norm(self, name):
        layer = L.LayerNormalization(epsilon=1e-5, dtype="float64")
        return self.add(layer, (None, len(self.values[name + "/gamma"])), name + "/gamma", name + "/beta")

    def conv(self, name):
        shape = self.values[name + "/kernel"].shape
        layer = L.Conv2D(shape[3], 3, activation="relu", dtype="float64")
        return self.add(layer, (None, 9, 9, shape[2]), name + "/kernel", name + "/bias")

    def embedding(self, name):
        rows, width = self.values[name].shape
        return self.add(L.Embedding(rows, width, dtype="float64"), (None,), name)


def chain(*layers):
    def run(x):
        for layer in layers:
            x = layer(x)
        return x
    return run


def tf_mlp(net, n):
    return chain(*(net.dense(f"dense{i}", "relu" if i + 1 < n else None) for i in range(n)))


def tf_net(name, net):
    if name in MLP:
        f = tf_mlp(net, len(MLP[name][1]) - 1)
        return lambda feeds: f(feeds["x"])
    if name == "cnn":
        f = chain(net.conv("conv0"), net.conv("conv1"), L.MaxPooling2D(2, dtype="float64"),
                  L.Flatten(dtype="float64"), tf_mlp(net, 2))
        return lambda feeds: f(feeds["x"])
    if name == "lstm":
        names = ("lstm/kernel", "lstm/recurrent_kernel", "lstm/bias")
        cell = net.add(L.LSTM(LSTM["units"], dtype="float64"), (None, LSTM["time"], LSTM["n_in"]), *names)
        f = chain(cell, net.dense("dense"))
        return lambda feeds: f(feeds["x"])
    if name == "widedeep":
        tables = [net.embedding(f"embedding{i}") for i in range(WIDE["tables"])]
        f = tf_mlp(net, 3)
        return lambda feeds: f(tf.concat(
            [t(feeds["ids"][:, i]) for i, t in enumerate(tables)] + [feeds["numeric"]], 1))
    return tf_gpt(net)


def tf_gpt(net):
    b, t, d, heads = GPT["batch"], GPT["tokens"], GPT["width"], GPT["heads"]
    table, position = net.embedding("embedding"), net.embedding("position")
    blocks = [[net.norm(f"block{i}/norm1"), net.dense(f"block{i}/qkv"), net.dense(f"block{i}/out"),
               net.norm(f"block{i}/norm2"), net.dense(f"block{i}/up"), net.dense(f"block{i}/down")]
              for i in range(GPT["blocks"])]
    last = net.norm("norm")
    mask = tf.constant(np.triu(np.full((t, t), -1e30), 1))

    def run(feeds):
        h = table(feeds["tokens"]) + position(tf.range(t))
        for norm1, qkv, out, norm2, up, down in blocks:
            a = tf.transpose(tf.reshape(qkv(norm1(h)), (b, t, 3, heads, d // heads)), (2, 0, 3, 1, 4))
            s = tf.matmul(a[0], a[1], transpose_b=True) / math.sqrt(d // heads) + mask
            a = tf.reshape(tf.transpose(tf.nn.softmax(s) @ a[2], (0, 2, 1, 3)), (b, t, d))
            h = h + out(a)
            h = h + down(keras.activations.gelu(up(norm2(h)), approximate=True))
        return tf.matmul(last(h), table.embeddings, transpose_b=True)
    return run


def tf_run(name, kind, feeds, values):
    net = Net(values)
    f = {k: tf.constant(v) for k, v in feeds.items()}
    logits = tf_net(name, net)
    xent = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    bce = keras.losses.BinaryCrossentropy(from_logits=True, dtype="float64")
    opt = {"sgd": lambda: keras.optimizers.SGD(0.01, momentum=0.9),
           "adam": lambda: keras.optimizers.Adam(1e-3),
           "adagrad": lambda: keras.optimizers.Adagrad(0.01)}[kind]()
    names = list(values)
    weights = [net.vars[n] for n in names]
    losses, first = [], None
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            z = logits(f)
            loss = bce(f["targets"], z) if name == "widedeep" else xent(f["labels"], z)
        grads = tape.gradient(loss, [w.value for w in weights])
        first = first or (z.numpy(), {n: tf.convert_to_tensor(g).numpy() for n, g in zip(names, grads)})
        losses.append(float(loss))
        opt.apply(grads, weights)
    return *first, losses


WORKLOADS = {"softmax64": (mlp_specs, SGD), "mlp-s": (mlp_specs, ADAM), "mlp-l": (mlp_specs, SGD),
             "cnn": (cnn_specs, ADAM), "lstm": (lstm_specs, ADAM), "widedeep": (wide_specs, ADAGRAD),
             "gpt-s": (gpt_specs, ADAM)}


def versions():
    return dict(torch=torch.__version__.split("+")[0], tensorflow=tf.__version__, keras=keras.__version__)


def workload(folder, name):
    specs, (kind, numbers) = WORKLOADS[name]
    feeds, variables = specs(name)
    f, v = ({s["name"]: make(name, s) for s in part} for part in (feeds, variables))
    zt, gt, lt = torch_run(name, kind, f, v)
    z, g, losses = tf_run(name, kind, f, v)
    worst = [agree(f"{name}: gradient of {n}", gt[n], g[n]) for n in v]
    print(f"{name}: PyTorch and TensorFlow agree: logits {agree(f'{name}: logits', zt, z):.1g}, "
          f"gradients {max(worst):.1g}, losses {agree(f'{name}: losses', lt, losses):.1g}")
    write(folder, name, dict(
        made_by=versions(), optimizer=kind, numbers=numbers, feeds=feeds,
        variables=[{**s, "grad": flat(g[s["name"]])} for s in variables],
        logits=flat(z), loss=losses[0], losses=losses))


def main():
    keras.config.set_floatx("float64")
    a = argparse.ArgumentParser(usage="golden.py [--out FOLDER] [NAME ...]")
    a.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "test", "golden"))
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    for name in a.names or WORKLOADS:
        if name not in WORKLOADS:
            raise SystemExit(f"golden: no workload '{name}'; there are {' '.join(WORKLOADS)}")
        workload(a.out, name)


if __name__ == "__main__":
    main()
