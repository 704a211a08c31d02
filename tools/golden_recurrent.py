#!/usr/bin/env python3
"""Numbers of recurrent, attention and embedding layers from Keras 3: writes test/golden/recurrent.json.

  KERAS_BACKEND=tensorflow python3 tools/golden_recurrent.py [folder]

A case is a small functional model: `inputs` (name, dtype, shape with the batch, data), `steps` (a weft kind with its
attributes, called on earlier results; "x:1" is the second output of the step x; `inner` is a wrapped layer; a step
without `in` is only made, to be used by name), `outputs`, `weights` in Keras' order, and what Keras computes: `out`,
and the gradients of sum(out * cot) for the weights (`dw`) and the float inputs (`dx`). All numbers are functions of a
fixed seed."""
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
rng = np.random.default_rng(21)
cases = []


def num(x):
    return float(f"{float(x):.7g}")


def flat(x):
    return [num(v) for v in np.asarray(x, "float64").ravel()]


def rounded(x):
    return np.array(flat(x), "f").reshape(x.shape)


def gapped(shape):
    """A sequence with some steps of zeros, one at the end and one inside."""
    x = rng.normal(size=shape).astype("f")
    x[0, -2:] = 0
    x[1, 1] = 0
    return x


def step(name, kind, attrs="", on=None, inner=None):
    s = dict(name=name, kind=kind, attrs=attrs)
    if on is not None:
        s["in"] = on.split()
    if inner:
        s["inner"] = dict(kind=inner[0], attrs=inner[1])
    return s


def case(name, inputs, steps, build, outputs):
    """inputs: {name: array}; build(*keras inputs) -> Keras outputs, in the order of `outputs`."""
    inputs = {k: rounded(v) if v.dtype == np.float32 else v for k, v in inputs.items()}
    ks = [keras.Input(batch_shape=v.shape, dtype=v.dtype.name) for v in inputs.values()]
    outs = build(*ks)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    model = keras.Model(ks, outs)
    for w in model.weights:
        if "rnn_state" not in w.path and "seed" not in w.path:
            w.assign(rounded(rng.normal(size=w.shape).astype("f") * 0.6))
    weights = [w for w in model.weights if "seed" not in w.path]
    trainable = model.trainable_weights
    feeds = [tf.constant(v) for v in inputs.values()]
    floats = [f for f in feeds if f.dtype == tf.float32]
    start = [w.numpy() for w in weights]
    with tf.GradientTape() as tape:
        for f in floats:
            tape.watch(f)
        ys = model(feeds, training=False)
        ys = list(ys) if isinstance(ys, (list, tuple)) else [ys]
        cots = [rounded(rng.normal(size=y.shape).astype("f")) for y in ys]
        total = sum(tf.reduce_sum(y * c) for y, c in zip(ys, cots))
    grads = tape.gradient(total, [w.value for w in trainable] + floats)
    assert all(g is not None for g in grads), name
    grads = [tf.convert_to_tensor(g) for g in grads]
    dtype = {"float32": "f32", "int32": "i32", "bool": "bool"}
    cases.append(dict(
        name=name,
        inputs=[dict(name=k, dtype=dtype[v.dtype.name], shape=list(v.shape), data=flat(v)) for k, v in inputs.items()],
        steps=steps,
        outputs=outputs.split(),
        weights=[dict(shape=list(w.shape), data=flat(v)) for w, v in zip(weights, start)],
        out=[dict(shape=list(y.shape), data=flat(y), cot=flat(c)) for y, c in zip(ys, cots)],
        dw=[flat(g) for g in grads[:len(trainable)]],
        dx=[flat(g) for g in grads[len(trainable):]]))


def n(*shape):
    return rng.normal(size=shape).astype("f")


# ---------------------------------------------------------------------------------- recurrent layers

def text(kwargs):
    word = lambda v: str(v).lower() if isinstance(v, bool) else str(v)
    return " ".join(f"{k}={word(v)}" for k, v in kwargs.items())


def recurrent(name, kind, masked=False, states=0, gate=True, **kwargs):
    layer = lambda: getattr(L, kind)(2, **kwargs)
    inputs = dict(x=gapped((2, 4, 3)) if masked else n(2, 4, 3))
    for i in range(states):
        inputs[f"s{i}"] = n(2, 2)
    src = "m" if masked else "x"
    steps = [step("m", "Masking", "", "x")] if masked else []
    steps.append(step("r", kind, "units=2 " + text(kwargs), " ".join([src] + [f"s{i}" for i in range(states)])))
    n_out = 1 + ((2 if kind == "LSTM" else 1) if kwargs.get("return_state") else 0)

    def build(x, *s):
        if masked and s:  # Keras forgets the mask when states are given, unless it is given too
            masking = L.Masking()
            return layer()(masking(x), initial_state=list(s), mask=masking.compute_mask(x))
        x = L.Masking()(x) if masked else x
        return layer()(x, initial_state=list(s)) if s else layer()(x)
    case(name, inputs, steps, build, " ".join(["r"] + [f"r:{i}" for i in range(1, n_out)]))


for kind, n_states in (("SimpleRNN", 1), ("LSTM", 2), ("GRU", 1)):
    k = kind.lower()
    recurrent(f"{k}", kind)
    recurrent(f"{k} sequences", kind, return_sequences=True, return_state=True)
    recurrent(f"{k} backwards", kind, return_sequences=True, go_backwards=True)
    recurrent(f"{k} backwards last, states", kind, go_backwards=True, return_state=True, states=n_states)
    recurrent(f"{k} masked", kind, masked=True)
    recurrent(f"{k} masked sequences, states", kind, masked=True, return_sequences=True, return_state=True, states=n_states)
    recurrent(f"{k} masked backwards", kind, masked=True, return_sequences=True, go_backwards=True)
    recurrent(f"{k} masked last, states", kind, masked=True, states=n_states)
    recurrent(f"{k} other activation, masked", kind, masked=True, return_sequences=True, return_state=True, activation="softsign")
    recurrent(f"{k} other activation, backwards", kind, activation="relu" if kind != "SimpleRNN" else "elu", go_backwards=True, return_sequences=True)
    recurrent(f"{k} without bias", kind, use_bias=False)
    recurrent(f"{k} zeros for masked", kind, masked=True, return_sequences=True, zero_output_for_mask=True)
recurrent("simplernn relu", "SimpleRNN", activation="relu", return_sequences=True)
recurrent("lstm gates hard_sigmoid", "LSTM", recurrent_activation="hard_sigmoid", masked=True, states=2)
recurrent("gru reset before", "GRU", reset_after=False, return_sequences=True)
recurrent("gru reset before, masked", "GRU", reset_after=False, masked=True, states=1)
recurrent("gru reset before, other activation", "GRU", reset_after=False, activation="relu")
recurrent("gru without bias, other activation", "GRU", use_bias=False, activation="relu")

# cells and wrappers
for kind in ("SimpleRNN", "LSTM", "GRU"):
    case(f"rnn of {kind} cell", dict(x=gapped((2, 4, 3))),
         [step("m", "Masking", "", "x"), step("r", "RNN", "return_sequences=true return_state=true", "m", (kind + "Cell", "units=3"))],
         lambda x, kind=kind: L.RNN(getattr(L, kind + "Cell")(3), return_sequences=True, return_state=True)(L.Masking()(x)),
         "r r:1" + (" r:2" if kind == "LSTM" else ""))
case("stacked cells", dict(x=n(2, 4, 3)),
     [step("a", "LSTMCell", "units=3 name=a"), step("b", "GRUCell", "units=2 name=b"), step("c", "SimpleRNNCell", "units=4 name=c"),
      step("r", "RNN", "return_sequences=true go_backwards=true", "x", ("StackedRNNCells", 'cells="a b c"'))],
     lambda x: L.RNN([L.LSTMCell(3), L.GRUCell(2), L.SimpleRNNCell(4)], return_sequences=True, go_backwards=True)(x), "r")


class Cell(keras.layers.Layer):
    """The user's cell of the test: y = s0' + s1', s0' = tanh(x w + s0), s1' = s1 * 0.5 + x u."""
    state_size, output_size = [3, 3], 3

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 3), name="w")
        self.u = self.add_weight(shape=(shape[-1], 3), name="u")

    def call(self, x, states):
        a = keras.ops.tanh(x @ self.w + states[0])
        b = states[1] * 0.5 + x @ self.u
        return a + b, [a, b]


case("the user's cell", dict(x=gapped((2, 4, 3))),
     [step("m", "Masking", "", "x"), step("r", "RNN", "return_sequences=true", "m", ("TestCell", "state_size=[3,3]"))],
     lambda x: L.RNN(Cell(), return_sequences=True)(L.Masking()(x)), "r")

for mode in ("concat", "sum", "mul", "ave", None):
    word = str(mode).lower()
    case(f"bidirectional {word}", dict(x=gapped((2, 5, 3))),
         [step("m", "Masking", "", "x"), step("b", "Bidirectional", f"merge_mode={word}", "m", ("LSTM", "units=2 return_sequences=true"))],
         lambda x, mode=mode: L.Bidirectional(L.LSTM(2, return_sequences=True), merge_mode=mode)(L.Masking()(x)),
         "b b:1" if mode is None else "b")
case("bidirectional last", dict(x=n(2, 5, 3)), [step("b", "Bidirectional", "", "x", ("GRU", "units=2"))],
     lambda x: L.Bidirectional(L.GRU(2))(x), "b")
case("bidirectional last, masked", dict(x=gapped((2, 5, 3))), [step("m", "Masking", "", "x"), step("b", "Bidirectional", "", "m", ("GRU", "units=2"))],
     lambda x: L.Bidirectional(L.GRU(2))(L.Masking()(x)), "b")
case("bidirectional states", dict(x=n(2, 5, 3), a=n(2, 2), b=n(2, 2), c=n(2, 2), d=n(2, 2)),
     [step("b2", "Bidirectional", "", "x a b c d", ("LSTM", "units=2 return_sequences=true return_state=true"))],
     lambda x, *s: L.Bidirectional(L.LSTM(2, return_sequences=True, return_state=True))(x, initial_state=list(s)),
     "b2 b2:1 b2:2 b2:3 b2:4")
case("bidirectional rnn of cell", dict(x=n(2, 4, 3)),
     [step("r", "RNN", "return_sequences=true", None, ("GRUCell", "units=2")), step("b", "Bidirectional", "merge_mode=sum", "x", ("@r", ""))],
     lambda x: L.Bidirectional(L.RNN(L.GRUCell(2), return_sequences=True), merge_mode="sum")(x), "b")
case("time distributed dense", dict(x=n(2, 3, 4)), [step("t", "TimeDistributed", "", "x", ("Dense", "units=2 activation=tanh"))],
     lambda x: L.TimeDistributed(L.Dense(2, activation="tanh"))(x), "t")

# embeddings and masks through layers
ids = np.array([[1, 2, 0, 0], [3, 0, 2, 4], [4, 4, 1, 0]], "int32")
case("embedding", dict(i=ids), [step("e", "Embedding", "input_dim=5 output_dim=3", "i")], lambda i: L.Embedding(5, 3)(i), "e")
case("embedding, mask, lstm, dense", dict(i=ids),
     [step("e", "Embedding", "input_dim=5 output_dim=3 mask_zero=true", "i"), step("d", "Dense", "units=3 activation=tanh", "e"),
      step("r", "LSTM", "units=2 return_sequences=true", "d"), step("q", "GRU", "units=2", "r")],
     lambda i: L.GRU(2)(L.LSTM(2, return_sequences=True)(L.Dense(3, activation="tanh")(L.Embedding(5, 3, mask_zero=True)(i)))), "q")
case("masking value", dict(x=np.where(gapped((2, 5, 3)) == 0, np.float32(-1), n(2, 5, 3)).astype("f")),
     [step("m", "Masking", "mask_value=-1", "x"), step("r", "SimpleRNN", "units=2", "m")],
     lambda x: L.SimpleRNN(2)(L.Masking(-1.0)(x)), "r")

# ----------------------------------------------------------------------------------------- attention
qv = lambda: dict(q=n(2, 3, 4), v=n(2, 5, 4))
qvk = lambda: dict(q=n(2, 3, 4), v=n(2, 5, 6), k=n(2, 5, 4))
for kind in ("Attention", "AdditiveAttention"):
    case(f"{kind}", qv(), [step("a", kind, "", "q v")], lambda q, v, kind=kind: getattr(L, kind)()([q, v]), "a")
    case(f"{kind} key, scores", qvk(), [step("a", kind, "return_attention_scores=true", "q v k")],
         lambda q, v, k, kind=kind: getattr(L, kind)()([q, v, k], return_attention_scores=True), "a a:1")
    case(f"{kind} causal", qv(), [step("a", kind, "use_causal_mask=true", "q v")],
         lambda q, v, kind=kind: getattr(L, kind)()([q, v], use_causal_mask=True), "a")
    case(f"{kind} masked", dict(q=gapped((2, 4, 3)), v=gapped((2, 5, 3))),
         [step("mq", "Masking", "", "q"), step("mv", "Masking", "", "v"), step("a", kind, "", "mq mv")],
         lambda q, v, kind=kind: getattr(L, kind)()([L.Masking()(q), L.Masking()(v)]), "a")
case("Attention scale", qv(), [step("a", "Attention", "use_scale=true", "q v")], lambda q, v: L.Attention(use_scale=True)([q, v]), "a")
case("Attention concat", qv(), [step("a", "Attention", "use_scale=true score_mode=concat", "q v")],
     lambda q, v: L.Attention(use_scale=True, score_mode="concat")([q, v]), "a")
case("AdditiveAttention without scale", qv(), [step("a", "AdditiveAttention", "use_scale=false", "q v")],
     lambda q, v: L.AdditiveAttention(use_scale=False)([q, v]), "a")

mha = lambda name, inputs, on, attrs, build, outs="a", steps=(): case(
    "mha " + name, inputs, [*steps, step("a", "MultiHeadAttention", "num_heads=2 key_dim=3 " + attrs, on)], build, outs)
M = lambda **k: L.MultiHeadAttention(2, 3, **k)
mha("self", dict(q=n(2, 4, 5)), "q q", "", lambda q: M()(q, q))
mha("one input", dict(q=n(2, 4, 5)), "q", "", lambda q: M()(q, q))
mha("value", qv(), "q v", "", lambda q, v: M()(q, v))
mha("key, value_dim, output_shape", qvk(), "q v k", "value_dim=4 output_shape=[6]", lambda q, v, k: M(value_dim=4, output_shape=6)(q, v, k))
mha("output of two axes", qv(), "q v", "output_shape=[3,2]", lambda q, v: M(output_shape=(3, 2))(q, v))
mha("without bias", qv(), "q v", "use_bias=false", lambda q, v: M(use_bias=False)(q, v))
mha("causal", dict(q=n(2, 4, 5)), "q q", "use_causal_mask=true", lambda q: M()(q, q, use_causal_mask=True))
mha("scores", qv(), "q v", "return_attention_scores=true", lambda q, v: M()(q, v, return_attention_scores=True), "a a:1")
mha("causal scores", dict(q=n(2, 4, 5)), "q q", "use_causal_mask=true return_attention_scores=true",
    lambda q: M()(q, q, use_causal_mask=True, return_attention_scores=True), "a a:1")
am = np.array(rng.uniform(size=(2, 3, 5)) < 0.6)
am[:, :, 0] = True
mha("attention mask", dict(q=n(2, 3, 4), v=n(2, 5, 4), m=am), "q v v m", "", lambda q, v, m: M()(q, v, attention_mask=m))
mha("masked values", dict(q=n(2, 3, 3), v=gapped((2, 5, 3))), "q mv", "", lambda q, v: M()(q, L.Masking()(v)), steps=[step("mv", "Masking", "", "v")])
mha("gate", qv(), "q v", "use_gate=true value_dim=4", lambda q, v: M(use_gate=True, value_dim=4)(q, v))
mha("window", dict(q=n(2, 5, 4)), "q q", "sliding_window=2", lambda q: M(sliding_window=2)(q, q))
mha("two axes", dict(q=n(2, 3, 2, 4), v=n(2, 3, 4, 4)), "q v", "attention_axes=[2]", lambda q, v: M(attention_axes=2)(q, v))
mha("all axes", dict(q=n(2, 3, 2, 4)), "q q", "", lambda q: M()(q, q))
gqa = lambda name, inputs, on, attrs, build, outs="a": case(
    "gqa " + name, inputs, [step("a", "GroupQueryAttention", "head_dim=3 num_query_heads=4 num_key_value_heads=2 " + attrs, on)], build, outs)
G = lambda **k: L.GroupQueryAttention(3, 4, 2, **k)
gqa("plain", qv(), "q v", "", lambda q, v: G()(q, v))
gqa("causal, gate", dict(q=n(2, 4, 4)), "q q", "use_causal_mask=true use_gate=true", lambda q: G(use_gate=True)(q, q, use_causal_mask=True))
gqa("scores", qv(), "q v", "return_attention_scores=true use_bias=false", lambda q, v: G(use_bias=False)(q, v, return_attention_scores=True), "a a:1")

with open(os.path.join(OUT, "recurrent.json"), "w") as f:
    f.write('{"made_by": "tools/golden_recurrent.py, Keras %s", "cases": [\n' % keras.__version__)
    f.write(",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
print(len(cases), "cases")
