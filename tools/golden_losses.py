#!/usr/bin/env python3
"""Numbers of losses and metrics from Keras 3: writes test/golden/losses.json and metrics.json.

  KERAS_BACKEND=tensorflow python3 tools/golden_losses.py [folder]

losses.json  {"data": {name: {dtype, shape, data}}, "cases": [case]}; a case has the weft text `loss`, names
  of its tensors (`y`, `pred`, and where it has them `weight`, `mask`), and Keras' `values` (per sample, before
  weights), `mean` (weighted, sum_over_batch_size) and, for most, `grad` of that mean for pred.
metrics.json the same `data`; a case has the weft text `metric`, `batches` of [y, pred, weight or null] names,
  Keras' `result` after them (the mean where Keras gives a list), its `name`, and `after_one`: the result
  after the first batch alone.
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
L, M = keras.losses, keras.metrics
rng = np.random.default_rng(20)
data = {}


def num(x):
    return float(f"{float(x):.8g}")


def flat(x):
    return [num(v) for v in np.asarray(x, "float64").ravel()]


def put(name, x):
    data[name] = x
    return name


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype("f")


def one_hot(ids, n):
    return np.eye(n, dtype="f")[ids]


def make_data():
    n = lambda *s: rng.normal(size=s).astype("f")
    u = lambda *s: rng.uniform(size=s).astype("f")
    put("ids", rng.integers(0, 4, 6).astype("int32"))
    put("ids_col", data["ids"][:, None])
    put("ids_hole", np.array([0, 255, 3, 1, 255, 2], "int32"))
    put("hot", one_hot(data["ids"], 4))
    put("logits", 2 * n(6, 4))
    put("probs", softmax(data["logits"]))
    put("unnormal", (1.7 * data["probs"]).astype("f"))
    put("sure", one_hot(data["ids"], 4)[:, ::-1].copy())
    put("ids_seq", rng.integers(0, 3, (3, 5)).astype("int32"))
    put("hot_seq", one_hot(data["ids_seq"], 3))
    put("logits_seq", n(3, 5, 3))
    put("probs_seq", softmax(data["logits_seq"]))
    put("channels_y", np.moveaxis(data["hot_seq"], -1, 1).copy())
    put("channels_p", np.moveaxis(data["probs_seq"], -1, 1).copy())
    put("channels_z", np.moveaxis(data["logits_seq"], -1, 1).copy())
    put("bits", rng.integers(0, 2, 6).astype("int32"))
    put("bits_col", data["bits"][:, None].astype("f"))
    put("score_col", u(6, 1))
    put("score", data["score_col"][:, 0].copy())
    put("z_col", 3 * n(6, 1))
    put("bits_wide", rng.integers(0, 2, (6, 3)).astype("f"))
    put("score_wide", u(6, 3))
    put("z_wide", 2 * n(6, 3))
    put("y", n(6, 3))
    put("p", n(6, 3))
    put("y_pos", u(6, 3) * 3)
    put("p_pos", u(6, 3) * 3)
    put("y_far", 4 * n(6, 3))
    put("y_seq", n(3, 5, 2))
    put("p_seq", n(3, 5, 2))
    put("signs", np.where(rng.uniform(size=(6, 3)) < 0.5, -1, 1).astype("f"))
    put("y_flat", n(6))
    put("p_col", n(6, 1))
    put("w", u(6) * 2)
    put("w_col", data["w"][:, None].copy())
    put("w_seq", u(3, 5))
    put("w3", u(3))
    put("mask_seq", np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1], [0, 0, 0, 0, 0]], bool))
    put("dist", softmax(n(6, 4)))
    put("image_y", rng.integers(0, 2, (2, 4, 4, 1)).astype("f"))
    put("image_p", u(2, 4, 4, 1))
    put("labels_map", rng.integers(0, 3, (2, 4, 4)).astype("int32"))
    put("classes_map", rng.integers(0, 3, (2, 4, 4)).astype("int32"))
    put("w_map", rng.integers(0, 3, (2, 4, 4)).astype("f"))
    put("big_y", rng.integers(0, 2, 40).astype("f"))
    put("big_p", np.clip(0.35 * data["big_y"] + u(40) * 0.65, 0, 1).astype("f"))
    put("big_w", u(40))
    put("edge_y", np.array([0, 1, 1, 0, 1], "f"))
    put("edge_p", np.array([0, 1, 0.5, 0.5, 0], "f"))


# ------------------------------------------------------------------------------------------ losses
def loss_cases():
    xe = "from_logits=true"
    yield "mse", L.MeanSquaredError(), ["y p", "y p w", "y p w_col", "y_flat p_col", "p_col y_flat", "y_seq p_seq w_seq", "y_seq p_seq - mask_seq", "y_seq p_seq w_seq mask_seq"]
    yield "MeanAbsoluteError", L.MeanAbsoluteError(), ["y p", "y p w"]
    yield "mean_absolute_percentage_error", L.MeanAbsolutePercentageError(), ["y p", "bits_wide p"]
    yield "msle", L.MeanSquaredLogarithmicError(), ["y_pos p_pos", "y p"]
    yield "huber", L.Huber(), ["y_far p", "y_far p w"]
    yield "Huber delta=2.5", L.Huber(delta=2.5), ["y_far p"]
    yield "log_cosh", L.LogCosh(), ["y_far p w"]
    yield "cosine_similarity", L.CosineSimilarity(), ["y p", "y_seq p_seq"]
    yield "CosineSimilarity axis=1", L.CosineSimilarity(axis=1), ["y_seq p_seq"]
    yield "bce", L.BinaryCrossentropy(), ["bits_col score_col", "bits score_col", "bits_wide score_wide w"]
    yield f"BinaryCrossentropy {xe}", L.BinaryCrossentropy(from_logits=True), ["bits_col z_col", "bits_wide z_wide w", "bits z_col"]
    yield f"binary_crossentropy label_smoothing=0.1 {xe}", L.BinaryCrossentropy(from_logits=True, label_smoothing=0.1), ["bits_wide z_wide"]
    yield "binary_crossentropy label_smoothing=0.2", L.BinaryCrossentropy(label_smoothing=0.2), ["bits_wide score_wide"]
    yield "BinaryCrossentropy axis=1", L.BinaryCrossentropy(axis=1), ["channels_y channels_p"]
    yield "binary_focal_crossentropy", L.BinaryFocalCrossentropy(), ["bits_wide score_wide"]
    yield "BinaryFocalCrossentropy apply_class_balancing=true alpha=0.3 gamma=1.5 from_logits=true", L.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.3, gamma=1.5, from_logits=True), ["bits_wide z_wide w"]
    yield "categorical_crossentropy", L.CategoricalCrossentropy(), ["hot probs", "hot unnormal w", "hot sure", "hot_seq probs_seq - mask_seq"]
    yield f"CategoricalCrossentropy {xe}", L.CategoricalCrossentropy(from_logits=True), ["hot logits", "hot logits w", "hot_seq logits_seq w_seq mask_seq"]
    yield f"CategoricalCrossentropy label_smoothing=0.1 {xe}", L.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1), ["hot logits"]
    yield f"CategoricalCrossentropy axis=1", L.CategoricalCrossentropy(axis=1), ["channels_y channels_p"]
    yield f"CategoricalCrossentropy axis=1 {xe}", L.CategoricalCrossentropy(axis=1, from_logits=True), ["channels_y channels_z"]
    yield "CategoricalFocalCrossentropy", L.CategoricalFocalCrossentropy(), ["hot probs"]
    yield f"CategoricalFocalCrossentropy alpha=0.5 gamma=1 label_smoothing=0.1 {xe}", L.CategoricalFocalCrossentropy(alpha=0.5, gamma=1, label_smoothing=0.1, from_logits=True), ["hot logits w"]
    yield "sparse_categorical_crossentropy", L.SparseCategoricalCrossentropy(), ["ids probs", "ids_col probs", "ids unnormal w", "ids sure", "ids_seq probs_seq - mask_seq"]
    yield f"SparseCategoricalCrossentropy {xe}", L.SparseCategoricalCrossentropy(from_logits=True), ["ids logits", "ids_col logits w", "ids_seq logits_seq w_seq mask_seq"]
    yield f"SparseCategoricalCrossentropy {xe} ignore_class=255", L.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255), ["ids_hole logits", "ids_hole logits w"]
    yield "SparseCategoricalCrossentropy ignore_class=255", L.SparseCategoricalCrossentropy(ignore_class=255), ["ids_hole probs"]
    yield "CategoricalGeneralizedCrossEntropy q=0.7", L.CategoricalGeneralizedCrossEntropy(q=0.7), ["ids probs", "ids_seq probs_seq w_seq"]
    yield "kl_divergence", L.KLDivergence(), ["dist probs", "hot probs w"]
    yield "poisson", L.Poisson(), ["y_pos p_pos", "y_pos p_pos w"]
    yield "hinge", L.Hinge(), ["signs p", "bits_wide p"]
    yield "squared_hinge", L.SquaredHinge(), ["signs p w", "bits_wide p"]
    yield "categorical_hinge", L.CategoricalHinge(), ["hot logits"]
    yield "dice", L.Dice(), ["image_y image_p"]
    yield "Dice axis=[1,2,3]", L.Dice(axis=(1, 2, 3)), ["image_y image_p"]
    yield "Tversky alpha=0.3 beta=0.7", L.Tversky(alpha=0.3, beta=0.7), ["image_y image_p"]
    yield "tversky axis=[1,2,3]", L.Tversky(axis=(1, 2, 3)), ["image_y image_p"]


def run_loss(text, loss, names):
    y, p, w, m = (names.split() + ["-"] * 2)[:4]
    pred = tf.constant(data[p])
    with tf.GradientTape() as tape:
        tape.watch(pred)
        out = pred if m == "-" else tf.identity(pred)
        if m != "-":
            keras.src.backend.set_keras_mask(out, tf.constant(data[m]))
        mean = loss(data[y], out, sample_weight=None if w == "-" else data[w])
    grad = tape.gradient(mean, pred)
    values = loss.call(tf.constant(data[y]), pred)
    case = dict(loss=text, y=y, pred=p, values=flat(values), mean=num(mean), grad=flat(grad))
    case.update({k: v for k, v in (("weight", w), ("mask", m)) if v != "-"})
    return case


# ----------------------------------------------------------------------------------------- metrics
def metric_cases():
    two = lambda a, b: [a, b]
    yield "Accuracy", M.Accuracy, {}, ["classes_map labels_map", "labels_map labels_map w_map"]
    yield "binary_accuracy", M.BinaryAccuracy, {}, ["bits_col score_col", "bits score_col w", "bits_wide score_wide w"]
    yield "BinaryAccuracy threshold=0.3", M.BinaryAccuracy, dict(threshold=0.3), ["bits_wide score_wide"]
    yield "categorical_accuracy", M.CategoricalAccuracy, {}, ["hot probs", "hot logits w"]
    yield "SparseCategoricalAccuracy", M.SparseCategoricalAccuracy, {}, ["ids probs", "ids_col logits w"]
    yield "sparse_categorical_accuracy", M.SparseCategoricalAccuracy, {}, ["ids_seq probs_seq", "ids_seq probs_seq w_seq"]
    yield "TopKCategoricalAccuracy k=2", M.TopKCategoricalAccuracy, dict(k=2), ["hot probs", "hot logits w"]
    yield "SparseTopKCategoricalAccuracy k=2", M.SparseTopKCategoricalAccuracy, dict(k=2), ["ids probs", "ids logits w"]
    yield "sparse_top_k_categorical_accuracy k=2", M.SparseTopKCategoricalAccuracy, dict(k=2), ["ids_seq probs_seq w_seq"]
    yield "TruePositives", M.TruePositives, {}, ["bits_wide score_wide", "bits_wide score_wide w"]
    yield "TrueNegatives thresholds=0.7", M.TrueNegatives, dict(thresholds=0.7), ["bits_wide score_wide", "bits score_col w"]
    yield "FalsePositives thresholds=[0.2,0.8]", M.FalsePositives, dict(thresholds=[0.2, 0.8]), ["bits_wide score_wide"]
    yield "FalseNegatives", M.FalseNegatives, {}, ["bits_wide score_wide w", "big_y big_p big_w"]
    yield "Precision", M.Precision, {}, ["bits_wide score_wide", "bits_wide score_wide w"]
    yield "Precision thresholds=[0.6,0.3]", M.Precision, dict(thresholds=[0.6, 0.3]), ["bits_wide score_wide w"]
    yield "Precision top_k=2", M.Precision, dict(top_k=2), ["hot probs", "hot logits w"]
    yield "precision class_id=1", M.Precision, dict(class_id=1), ["hot probs w", "hot logits"]
    yield "Recall", M.Recall, {}, ["bits_wide score_wide", "bits_wide score_wide w"]
    yield "Recall top_k=1 class_id=2", M.Recall, dict(top_k=1, class_id=2), ["hot probs", "hot logits w"]
    yield "Recall thresholds=[0,0.25,0.5,0.75,1]", M.Recall, dict(thresholds=[0, 0.25, 0.5, 0.75, 1]), ["big_y big_p big_w", "edge_y edge_p"]
    for curve in ("ROC", "PR", "PRGAIN"):
        for how in ("interpolation", "minoring", "majoring"):
            yield f"AUC curve={curve} summation_method={how} num_thresholds=50", M.AUC, dict(curve=curve, summation_method=how, num_thresholds=50), ["big_y big_p", "big_y big_p big_w"]
    yield "AUC", M.AUC, {}, ["big_y big_p", "bits score_col w", "edge_y edge_p"]
    yield "AUC from_logits=true", M.AUC, dict(from_logits=True), ["bits_col z_col", "bits_wide z_wide w"]
    yield "AUC thresholds=[0.7,0.1,0.35]", M.AUC, dict(thresholds=[0.7, 0.1, 0.35]), ["big_y big_p big_w", "edge_y edge_p"]
    yield "AUC multi_label=true num_thresholds=20", M.AUC, dict(multi_label=True, num_thresholds=20), ["bits_wide score_wide", "bits_wide score_wide w_col"]
    yield "AUC multi_label=true label_weights=[0.2,0.3,0.5] curve=PR", M.AUC, dict(multi_label=True, label_weights=[0.2, 0.3, 0.5], curve="PR"), ["bits_wide score_wide"]
    yield "AUC label_weights=[0.2,0.3,0.5]", M.AUC, dict(label_weights=[0.2, 0.3, 0.5]), ["bits_wide score_wide", "bits_wide score_wide w"]
    yield "PrecisionAtRecall recall=0.7", M.PrecisionAtRecall, dict(recall=0.7), ["big_y big_p", "big_y big_p big_w"]
    yield "RecallAtPrecision precision=0.8", M.RecallAtPrecision, dict(precision=0.8), ["big_y big_p big_w"]
    yield "SensitivityAtSpecificity specificity=0.6 num_thresholds=30", M.SensitivityAtSpecificity, dict(specificity=0.6, num_thresholds=30), ["big_y big_p", "edge_y edge_p"]
    yield "SpecificityAtSensitivity sensitivity=0.8 class_id=1", M.SpecificityAtSensitivity, dict(sensitivity=0.8, class_id=1), ["bits_wide score_wide w"]
    yield "SpecificityAtSensitivity sensitivity=0.5 num_thresholds=1", M.SpecificityAtSensitivity, dict(sensitivity=0.5, num_thresholds=1), ["big_y big_p"]
    for average in (None, "macro", "micro", "weighted"):
        yield f"F1Score average={str(average).lower()}", M.F1Score, dict(average=average), ["hot probs", "hot logits w"]
    yield "FBetaScore beta=2 threshold=0.4 average=weighted", M.FBetaScore, dict(beta=2.0, threshold=0.4, average="weighted"), ["bits_wide score_wide", "bits_wide score_wide w"]
    yield "MeanIoU num_classes=3", M.MeanIoU, dict(num_classes=3), ["labels_map classes_map", "labels_map classes_map w_map"]
    yield "MeanIoU num_classes=3 ignore_class=0", M.MeanIoU, dict(num_classes=3, ignore_class=0), ["labels_map classes_map"]
    yield "IoU num_classes=3 target_class_ids=[0,2]", M.IoU, dict(num_classes=3, target_class_ids=[0, 2]), ["labels_map classes_map"]
    yield "IoU num_classes=4 target_class_ids=[1] sparse_y_pred=false", M.IoU, dict(num_classes=4, target_class_ids=[1], sparse_y_pred=False), ["ids probs"]
    yield "OneHotIoU num_classes=4 target_class_ids=[1,2]", M.OneHotIoU, dict(num_classes=4, target_class_ids=[1, 2]), ["hot probs"]
    yield "OneHotMeanIoU num_classes=4", M.OneHotMeanIoU, dict(num_classes=4), ["hot probs"]
    yield "BinaryIoU threshold=0.4", M.BinaryIoU, dict(threshold=0.4), ["image_y image_p"]
    yield "BinaryIoU target_class_ids=[1]", M.BinaryIoU, dict(target_class_ids=[1]), ["bits_wide score_wide"]
    yield "mse", M.MeanSquaredError, {}, ["y p", "y p w", "y_flat p_col"]
    yield "MeanSquaredError", M.MeanSquaredError, {}, ["y_seq p_seq", "y_seq p_seq w_seq", "y_seq p_seq w3"]
    yield "RootMeanSquaredError", M.RootMeanSquaredError, {}, ["y p", "y p w"]
    yield "mae", M.MeanAbsoluteError, {}, ["y p w"]
    yield "mape", M.MeanAbsolutePercentageError, {}, ["y p w"]
    yield "msle", M.MeanSquaredLogarithmicError, {}, ["y_pos p_pos w"]
    yield "LogCoshError", M.LogCoshError, {}, ["y p w"]
    yield "R2Score", M.R2Score, {}, ["y p", "y p w"]
    yield "R2Score class_aggregation=variance_weighted_average num_regressors=2", M.R2Score, dict(class_aggregation="variance_weighted_average", num_regressors=2), ["y p w", "y_far p"]
    yield "R2Score class_aggregation=none", M.R2Score, dict(class_aggregation=None), ["y p", "y p w"]
    yield "CosineSimilarity", M.CosineSimilarity, {}, ["y p", "y p w"]
    yield "PearsonCorrelation", M.PearsonCorrelation, {}, ["y p", "y p w"]
    yield "ConcordanceCorrelation axis=0", M.ConcordanceCorrelation, dict(axis=0), ["y p"]
    yield "kl_divergence", M.KLDivergence, {}, ["dist probs w"]
    yield "Poisson", M.Poisson, {}, ["y_pos p_pos w"]
    yield "Hinge", M.Hinge, {}, ["signs p w"]
    yield "SquaredHinge", M.SquaredHinge, {}, ["bits_wide p"]
    yield "CategoricalHinge", M.CategoricalHinge, {}, ["hot logits w"]
    yield "BinaryCrossentropy label_smoothing=0.1", M.BinaryCrossentropy, dict(label_smoothing=0.1), ["bits_wide score_wide w"]
    yield "CategoricalCrossentropy from_logits=true", M.CategoricalCrossentropy, dict(from_logits=True), ["hot logits", "hot logits w"]
    yield "SparseCategoricalCrossentropy", M.SparseCategoricalCrossentropy, {}, ["ids probs", "ids_seq probs_seq w_seq"]
    yield "Mean", M.Mean, {}, ["y p", "y p w"]
    yield "Sum", M.Sum, {}, ["y p", "y p w"]


def list_of(result, kwargs):
    """All results; those of thresholds from the lowest up."""
    r = np.asarray(result).reshape(-1)
    order = np.argsort(kwargs["thresholds"]) if len(r) > 1 and "thresholds" in kwargs else range(len(r))
    return [num(r[i]) for i in order]


def run_metric(text, cls, kwargs, batches):
    keras.utils.clear_session()  # numbers after names start again
    m, case, results = cls(**kwargs), dict(metric=text, batches=[]), []
    for names in batches:
        y, p, w = (names.split() + [None])[:3]
        weight = None if w is None else data[w]
        if cls in (M.Mean, M.Sum):
            m.update_state(data[p], sample_weight=weight)
        else:
            yt, pt = tf.constant(data[y]), tf.constant(data[p])
            if text.startswith("BinaryCross") or cls is M.BinaryAccuracy:
                yt = tf.cast(yt, "float32")
            m.update_state(yt, pt, sample_weight=weight)
        results.append(list_of(m.result(), kwargs))
        case["batches"].append([y, p, w])
    case.update(result=results[-1], after_one=results[0], name=m.name)
    return case


def write(name, cases):
    used = {v for c in cases for k, v in c.items() if k in ("y", "pred", "weight", "mask")}
    used |= {n for c in cases for b in c.get("batches", []) for n in b if n}
    tensors = {}
    for n in sorted(used):
        x = data[n]
        dtype = {"float32": "f32", "int32": "i32", "bool": "bool"}[x.dtype.name]
        tensors[n] = dict(dtype=dtype, shape=list(x.shape), data=flat(x))
    lines = ['{"made_by": "tools/golden_losses.py, Keras %s", "data": {' % keras.__version__]
    lines.append(",\n".join(f' "{n}": {json.dumps(t)}' for n, t in tensors.items()))
    lines.append('}, "cases": [')
    lines.append(",\n".join(" " + json.dumps(c) for c in cases))
    lines.append("]}")
    with open(os.path.join(OUT, name), "w") as f:
        f.write("\n".join(lines) + "\n")


make_data()
# What is written is rounded: computed with the same numbers.
for k, v in data.items():
    if v.dtype == np.float32:
        data[k] = np.array(flat(v), "f").reshape(v.shape)
write("losses.json", [run_loss(t, l, n) for t, l, cases in loss_cases() for n in cases])
write("metrics.json", [run_metric(*c) for c in metric_cases()])
