"""Inference of operators of the domain `ai.onnx.ml`: as the ONNX library's, with rows tied to those of the input."""

from __future__ import annotations

from ...ir.graph import DType, TensorType
from .inference_call import Call, Types, rule


def _rows(call: Call) -> TensorType:
    """Return the type of the first input, a matrix; refuses another."""
    x = call.type()
    if x.rank not in (None, 2):
        raise call.refuse(f"rank {x.rank} instead of 2")
    return x


@rule("ai.onnx.ml.TreeEnsembleRegressor ai.onnx.ml.TreeEnsembleRegressor@1 ai.onnx.ml.TreeEnsembleRegressor@3")
def _regressor(call: Call) -> Types:
    x = _rows(call)
    targets = call.integer("n_targets", 1)
    return [TensorType(DType.F32, None if x.shape is None else (x.shape[0], targets))]


@rule("ai.onnx.ml.TreeEnsemble")
def _unified(call: Call) -> Types:
    x = _rows(call)
    return [TensorType(x.dtype, None if x.shape is None else (x.shape[0], call.integer("n_targets", 1)))]


@rule("ai.onnx.ml.SVMRegressor")
def _svm_regressor(call: Call) -> Types:
    x = _rows(call)
    return [TensorType(DType.F32, None if x.shape is None else (x.shape[0], 1))]


@rule("ai.onnx.ml.Scaler ai.onnx.ml.Normalizer")
def _scaled(call: Call) -> Types:
    return [TensorType(DType.F32, call.type().shape)]


@rule("ai.onnx.ml.Imputer ai.onnx.ml.Binarizer")
def _like_the_input(call: Call) -> Types:
    return [call.type()]


@rule("ai.onnx.ml.FeatureVectorizer")
def _feature_vectorizer(call: Call) -> Types:
    """The features of all inputs, of each as many as an attribute says."""
    x = _rows(call)
    widths = call.int_list("inputdimensions")
    return [TensorType(DType.F32, None if x.shape is None or not widths else (x.shape[0], sum(widths)))]


@rule("ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleClassifier@1 ai.onnx.ml.TreeEnsembleClassifier@3")
def _classifier(call: Call) -> Types:
    x = _rows(call)
    named = call.attrs.get("classlabels_strings")
    labels = named or call.attrs.get("classlabels_int64s") or ()
    rows = None if x.shape is None else (x.shape[0],)
    count = len(labels) if isinstance(labels, tuple) and len(labels) > 1 else call.fresh()
    scores = TensorType(DType.F32, None if rows is None else (*rows, count))
    return [TensorType(DType.STRING if named else DType.I64, rows), scores]


@rule("ai.onnx.ml.SVMClassifier")
def _svm_classifier(call: Call) -> Types:
    """Scores of each class, or of each pair of classes if no probabilities are asked for."""
    x = _rows(call)
    named = call.attrs.get("classlabels_strings")
    labels = named or call.attrs.get("classlabels_ints") or ()
    count = len(labels) if isinstance(labels, tuple) else 0
    if count > 2 and call.attrs.get("vectors_per_class") and not call.attrs.get("prob_a"):
        count = count * (count - 1) // 2
    rows = None if x.shape is None else (x.shape[0],)
    scores = TensorType(DType.F32, None if rows is None else (*rows, count if count > 1 else call.fresh()))
    return [TensorType(DType.STRING if named else DType.I64, rows), scores]
