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
        integers: k mod below, bool: whether that is not 0       (where the file gives "below")
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
        return k.astype({"i32": np.int32, "f32": np.float64, "bool": bool}[spec["dtype"]])  # bool: k != 0
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
WIDE = dict(batch=8, tables=26, rows=4, width=4, numeric=13, hidden=[16, 8])
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
        # Dense: given rows, Keras squares those of an id that occurs twice one by one (Adagrad's
        # accumulator differs then); weft, PyTorch and dense gradients add them first.
        grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [w.value for w in weights])]
        first = first or (z.numpy(), {n: g.numpy() for n, g in zip(names, grads)})
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


# ---------------------------------------------------------------- layers
# A layer is a function of named inputs in either framework that gives named outputs. The loss is the
# sum of output * d over the outputs, d being the generator's tensor "d_<output>" (scale 1); an output
# whose name begins with "moving_" is state and takes no part in it.
def call(layer, x, weights, state=(), **more):
    """A Keras layer with given tensors as weights: its results and its new state."""
    layer.build(x.shape)
    state = state or [v.value for v in layer.non_trainable_variables]
    return layer.stateless_call(list(weights), list(state), x, **more)


def apply(layer, x, *weights, **more):
    """The same, for a layer without state of ours."""
    return call(layer, x, weights, **more)[0]


def pads(size, k, stride):
    """TensorFlow's SAME padding of one axis."""
    total = max((-(-size // stride) - 1) * stride + k - size, 0)
    return total // 2, total - total // 2


def torch_pad(x, k, stride, value=0.0):
    """x [n, c, h, w] padded as SAME."""
    (t, b), (l, r) = (pads(n, k, stride) for n in x.shape[2:])
    return F.pad(x, (l, r, t, b), value=value)


def first(x):
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


def batch_norm_case(training):
    def t(i):
        n = tuple(range(i["x"].dim() - 1))
        old = [i["moving_mean"], i["moving_var"]]
        y = F.batch_norm(first(i["x"]), *([None, None] if training else old), i["gamma"], i["beta"], training, eps=1e-3)
        new = [i["x"].detach().mean(n), i["x"].detach().var(n, unbiased=False)] if training else old
        return dict(y=last(y), **{k: i[k] * 0.9 + b * 0.1 for k, b in zip(("moving_mean", "moving_var"), new)})

    def k(i):
        y, state = call(L.BatchNormalization(momentum=0.9, dtype="float64"), i["x"], (i["gamma"], i["beta"]),
                        (i["moving_mean"], i["moving_var"]), training=training)
        return dict(y=y, moving_mean=state[0], moving_var=state[1])
    specs = [number("x", 4, 3, 5, offset=0.5), number("gamma", 5, scale=0.5, offset=1.0), number("beta", 5),
             {**number("moving_mean", 5), "state": True},
             {**number("moving_var", 5, scale=0.5, offset=1.0), "state": True}]
    return specs, k, t


def layer_norm_case(axes, shape):
    sizes = shape[-axes:]
    axis = list(range(-axes, 0)) if axes > 1 else -1
    k = lambda i: dict(y=apply(L.LayerNormalization(axis=axis, dtype="float64"), i["x"], i["gamma"], i["beta"]))
    t = lambda i: dict(y=F.layer_norm(i["x"], sizes, i["gamma"], i["beta"], 1e-3))
    return [number("x", *shape), number("gamma", *sizes, scale=0.5, offset=1.0), number("beta", *sizes)], k, t


def rms_norm_case():
    k = lambda i: dict(y=apply(L.RMSNormalization(dtype="float64"), i["x"], i["gamma"]))
    t = lambda i: dict(y=F.rms_norm(i["x"], (9,), i["gamma"], 1e-6))
    return [number("x", 3, 9), number("gamma", 9, scale=0.5, offset=1.0)], k, t


def group_norm_case(groups):
    k = lambda i: dict(y=apply(L.GroupNormalization(groups, dtype="float64"), i["x"], i["gamma"], i["beta"]))
    t = lambda i: dict(y=last(F.group_norm(first(i["x"]), groups if groups > 0 else 6, i["gamma"], i["beta"], 1e-3)))
    return [number("x", 2, 3, 4, 6), number("gamma", 6, scale=0.5, offset=1.0), number("beta", 6)], k, t


def rnn_specs(gates, bias, units=5):
    return [number("x", 4, 5, 3), number("w", 3, gates * units, scale=0.7),
            number("r", units, gates * units, scale=0.5), number("bias", *bias, scale=0.5)]


def gru_case(reset_after):
    u = 5

    def k(i):
        layer = L.GRU(u, return_sequences=True, return_state=True, reset_after=reset_after, dtype="float64")
        y, h = apply(layer, i["x"], i["w"], i["r"], i["bias"])
        return dict(y=y, h=h)

    def t(i):
        b0, b1 = i["bias"] if reset_after else (i["bias"], torch.zeros(3 * u, dtype=torch.float64))
        h, ys = torch.zeros(4, u, dtype=torch.float64), []
        if reset_after:  # PyTorch's own, whose gates stand in the order r, z, n
            turn = lambda a: torch.cat((a[..., u:2 * u], a[..., :u], a[..., 2 * u:]), -1).mT if a.dim() > 1 else \
                torch.cat((a[u:2 * u], a[:u], a[2 * u:]))
            w = dict(weight_ih_l0=turn(i["w"]), weight_hh_l0=turn(i["r"]), bias_ih_l0=turn(b0), bias_hh_l0=turn(b1))
            y, h = torch.func.functional_call(torch.nn.GRU(3, u, batch_first=True).double(), w, (i["x"],))
            return dict(y=y, h=h[0])
        for s in range(5):
            a, r = i["x"][:, s] @ i["w"] + b0, i["r"]
            z = torch.sigmoid(a[:, :u] + h @ r[:, :u])
            q = torch.sigmoid(a[:, u:2 * u] + h @ r[:, u:2 * u])
            h = z * h + (1 - z) * torch.tanh(a[:, 2 * u:] + (q * h) @ r[:, 2 * u:])
            ys.append(h)
        return dict(y=torch.stack(ys, 1), h=h)
    return rnn_specs(3, (2, 3 * u) if reset_after else (3 * u,)), k, t


def lstm_case(mask, reverse):
    u = 5

    def k(i):
        layer = L.LSTM(u, return_sequences=True, return_state=True, go_backwards=reverse, dtype="float64")
        m = i["mask"] if mask else None
        y, h, c = apply(layer, i["x"], i["w"], i["r"], i["bias"], initial_state=[i["h0"], i["c0"]], mask=m)
        return dict(y=tf.reverse(y, [1]) if reverse else y, h=h, c=c)

    def t(i):
        h, c, ys = i["h0"], i["c0"], [None] * 5
        y = torch.zeros_like(h)
        for s in reversed(range(5)) if reverse else range(5):
            a, f, g, o = (i["x"][:, s] @ i["w"] + h @ i["r"] + i["bias"]).chunk(4, 1)
            new_c = torch.sigmoid(f) * c + torch.sigmoid(a) * torch.tanh(g)
            new_h = torch.sigmoid(o) * torch.tanh(new_c)
            on = i["mask"][:, s, None] if mask else torch.ones(4, 1, dtype=torch.bool)
            h, c, y = (torch.where(on, p, q) for p, q in ((new_h, h), (new_c, c), (new_h, y)))
            ys[s] = y
        return dict(y=torch.stack(ys, 1), h=h, c=c)
    specs = rnn_specs(4, (4 * u,)) + [number("h0", 4, u), number("c0", 4, u)]
    return specs + [whole("mask", 4, 5, below=2, dtype="bool")] * mask, k, t


def conv_case(stride):
    k = lambda i: dict(y=tf.nn.conv2d(i["x"], i["w"], stride, "SAME"))
    t = lambda i: dict(y=last(F.conv2d(torch_pad(first(i["x"]), 3, stride), i["w"].permute(3, 2, 0, 1), stride=stride)))
    return [number("x", 2, 6, 7, 3), number("w", 3, 3, 3, 5, scale=0.4)], k, t


def causal_case():
    layer = lambda: L.Conv1D(5, 3, padding="causal", dilation_rate=2, use_bias=False, dtype="float64")
    k = lambda i: dict(y=apply(layer(), i["x"], i["w"]))
    t = lambda i: dict(y=last(F.conv1d(F.pad(first(i["x"]), (4, 0)), i["w"].permute(2, 1, 0), dilation=2)))
    return [number("x", 2, 8, 3), number("w", 3, 3, 5, scale=0.5)], k, t


def conv_transpose_case(padding, output_padding, k_size=3, stride=2):
    def k(i):
        layer = L.Conv2DTranspose(2, k_size, stride, padding, output_padding, use_bias=False, dtype="float64")
        return dict(y=apply(layer, i["x"], i["w"]))

    def t(i):
        full = F.conv_transpose2d(first(i["x"]), i["w"].permute(3, 2, 0, 1), stride=stride)
        for axis, n in ((2, 4), (3, 5)):
            out = n * stride + (max(k_size - stride, 0) if padding == "valid" else 0)
            if output_padding is not None:
                out = (n - 1) * stride + k_size - (2 * (k_size // 2) if padding == "same" else 0) + output_padding
            if out > full.shape[axis]:
                grow = out - full.shape[axis]
                full = F.pad(full, (0, 0, 0, grow) if axis == 2 else (0, grow))
            full = full.narrow(axis, (full.shape[axis] - out) // 2, out)
        return dict(y=last(full))
    return [number("x", 2, 4, 5, 3), number("w", k_size, k_size, 2, 3, scale=0.5)], k, t


def depthwise_case(stride):
    layer = lambda: L.DepthwiseConv2D(3, stride, "same", 2, use_bias=False, dtype="float64")
    k = lambda i: dict(y=apply(layer(), i["x"], i["w"]))
    t = lambda i: dict(y=last(F.conv2d(torch_pad(first(i["x"]), 3, stride), i["w"].reshape(3, 3, 1, 10).permute(3, 2, 0, 1),
                                       stride=stride, groups=5)))
    return [number("x", 1, 6, 7, 5), number("w", 3, 3, 5, 2, scale=0.5)], k, t


def pool_case(kind):
    layer = L.MaxPooling2D if kind == "max" else L.AveragePooling2D
    k = lambda i: dict(y=layer(3, 2, "same", dtype="float64")(i["x"]))

    def t(i):
        x = first(i["x"])
        if kind == "max":
            return dict(y=last(F.max_pool2d(torch_pad(x, 3, 2, -math.inf), 3, 2)))
        return dict(y=last(F.avg_pool2d(torch_pad(x, 3, 2), 3, 2) / F.avg_pool2d(torch_pad(torch.ones_like(x), 3, 2), 3, 2)))
    return [number("x", 2, 6, 7, 3)], k, t


def resize_case(method, size, to):
    k = lambda i: dict(y=tf.cast(tf.image.resize(i["x"], to, method), tf.float64))
    t = lambda i: dict(y=last(F.interpolate(first(i["x"]), to, mode="nearest-exact" if method == "nearest" else method)))
    return [number("x", 1, *size, 3)], k, t


def gelu_case(approximate):
    k = lambda i: dict(y=keras.activations.gelu(i["x"], approximate=approximate))
    t = lambda i: dict(y=F.gelu(i["x"], approximate="tanh" if approximate else "none"))
    return [number("x", 3, 13, scale=5.0)], k, t


def attention_case(kind):
    def k(i):
        q, kk, v = (tf.transpose(i[n], (0, 2, 1, 3)) for n in "qkv")
        more = dict(mask=i["mask"]) if kind == "mask" else dict(is_causal=True) if kind == "causal" else dict(bias=i["mask"])
        return dict(y=tf.transpose(keras.ops.dot_product_attention(q, kk, v, **more), (0, 2, 1, 3)))

    def t(i):
        more = dict(is_causal=True) if kind == "causal" else dict(attn_mask=i["mask"])
        return dict(y=F.scaled_dot_product_attention(i["q"], i["k"], i["v"], **more))
    keys = 5 if kind == "causal" else 6
    specs = [number("q", 2, 2, 5, 4, scale=2.0), number("k", 2, 2, keys, 4, scale=2.0), number("v", 2, 2, keys, 4)]
    if kind == "mask":
        specs.append(whole("mask", 2, 2, 5, keys, below=4, dtype="bool"))
    elif kind == "bias":
        specs.append(number("mask", 2, 2, 5, keys, scale=2.0))
    return specs, k, t


LAYERS = {
    "batch_norm_training": batch_norm_case(True), "batch_norm_inference": batch_norm_case(False),
    "layer_norm": layer_norm_case(1, (3, 4, 7)), "layer_norm_2_axes": layer_norm_case(2, (3, 4, 5)),
    "rms_norm": rms_norm_case(), "group_norm": group_norm_case(3), "instance_norm": group_norm_case(-1),
    "gru_reset_after": gru_case(True), "gru_reset_before": gru_case(False),
    "lstm_mask": lstm_case(True, False), "lstm_reverse": lstm_case(False, True),
    "lstm_mask_reverse": lstm_case(True, True),
    "conv_same_stride": conv_case(2), "conv1d_causal": causal_case(),
    "conv_transpose_same": conv_transpose_case("same", None),
    "conv_transpose_valid": conv_transpose_case("valid", None),
    "conv_transpose_wide_stride": conv_transpose_case("valid", None, 2, 3),
    "conv_transpose_output_padding": conv_transpose_case("same", 0),
    "depthwise": depthwise_case(1), "depthwise_stride": depthwise_case(2),
    "max_pool_same": pool_case("max"), "avg_pool_same": pool_case("avg"),
    "resize_bilinear_up": resize_case("bilinear", (4, 5), (7, 9)),
    "resize_bilinear_down": resize_case("bilinear", (6, 8), (4, 3)),
    "resize_nearest": resize_case("nearest", (4, 6), (7, 3)),
    "gelu": gelu_case(False), "gelu_tanh": gelu_case(True),
    "attention_mask": attention_case("mask"), "attention_causal": attention_case("causal"),
    "attention_bias": attention_case("bias"),
}


def cotangents(case, outs):
    return {n: make(case, number("d_" + n, *y.shape)) for n, y in outs.items() if not n.startswith("moving_")}


def layer_of(case):
    specs, k, t = LAYERS[case]
    values = {s["name"]: make(case, s) for s in specs}
    free = [s["name"] for s in specs if s["dtype"] == "f32" and "state" not in s]

    i = {n: torch.tensor(v, requires_grad=n in free) for n, v in values.items()}
    outs_t = t(i)
    sum((outs_t[n] * torch.tensor(d)).sum() for n, d in cotangents(case, outs_t).items()).backward()

    x = {n: tf.constant(v) for n, v in values.items()}
    with tf.GradientTape() as tape:
        for n in free:
            tape.watch(x[n])
        outs = {n: tf.convert_to_tensor(y) for n, y in k(x).items()}
        loss = tf.add_n([tf.reduce_sum(outs[n] * d) for n, d in cotangents(case, outs).items()])
    grads = dict(zip(free, tape.gradient(loss, [x[n] for n in free])))

    for n, y in outs.items():
        agree(f"{case}: {n}", outs_t[n].detach().numpy(), y.numpy())
    for n in free:
        agree(f"{case}: gradient of {n}", i[n].grad.numpy(), grads[n].numpy())
    return dict(name=case, inputs=[{**s, "grad": flat(grads[s["name"]])} if s["name"] in free else s for s in specs],
                outputs=[dict(name=n, shape=[int(d) for d in y.shape], values=flat(y)) for n, y in outs.items()])


def layers(folder):
    write(folder, "layers", dict(made_by=versions(), layers=[layer_of(case) for case in LAYERS]))


def main():
    keras.config.set_floatx("float64")
    a = argparse.ArgumentParser(usage="golden.py [--out FOLDER] [NAME ...]")
    a.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "test", "golden"))
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    for name in a.names or [*WORKLOADS, "layers"]:
        if name == "layers":
            layers(a.out)
        elif name in WORKLOADS:
            workload(a.out, name)
        else:
            raise SystemExit(f"golden: no '{name}'; there are {' '.join(WORKLOADS)} layers")


if __name__ == "__main__":
    main()
