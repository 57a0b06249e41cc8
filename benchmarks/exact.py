"""How far results are from exact ones: a model's own graph, computed in float64.

    python -m benchmarks.exact resnet50.dynamo.raw

Every f32 tensor, type and cast of the original graph becomes f64, and ONNX's reference evaluator runs it. PyTorch in
f64 computes convolutions, pooling and erf, which take the evaluator minutes, and operators of old opsets that it gets
wrong. Neither the optimizer nor our kernels are involved. Prints one JSON object: the largest error of `rewrite` and of
ONNX Runtime (both f32), relative to the largest value of each output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f64 in place of f32 everywhere; the file's f32 numbers keep their values."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    _graph(result.graph)
    for function in result.functions:
        _nodes(function.node)
    return result


def _graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = DOUBLE
    _nodes(graph.node)


def _nodes(nodes: Any) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE
            if attribute.HasField("t"):
                _tensor(attribute.t)
            if attribute.HasField("g"):
                _graph(attribute.g)
            for body in attribute.graphs:
                _graph(body)


def _tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )


# --- operators that the reference evaluator is slow at, or wrong ------------------------------------------------------


def _windows(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int] | None, auto_pad: str, ceil: bool = False,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Padding as declared, and as needed so that all windows are whole: begins, then ends."""
    count = len(size)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [max(0, (-(-n // s) - 1) * s + r - n) for n, s, r in zip(size, strides, reach, strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        declared = [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]
    else:
        declared = [0] * (2 * count) if auto_pad == "VALID" or not pads else list(pads)
    needed = list(declared)
    for axis in range(count):
        begin, end = declared[axis], declared[axis + count]
        span, step = size[axis] + begin + end - reach[axis], strides[axis]
        windows = span // step + 1
        if ceil and span % step and windows * step < size[axis] + begin:
            windows += 1  # a last window that begins inside
        needed[axis + count] = max(end, (windows - 1) * step + reach[axis] - size[axis] - begin)
    return declared, needed


def _pad(x: torch.Tensor, pads: Sequence[int], value: float) -> torch.Tensor:
    count = len(pads) // 2
    return F.pad(x, [p for axis in reversed(range(count)) for p in (pads[axis], pads[axis + count])], value=value)


class Conv(OpRun):
    """Convolution in f64."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **attributes: Any) -> tuple[np.ndarray]:
        """Y = X * W + B, of any spatial rank."""
        rank = x.ndim - 2
        strides, dilations = _ones(attributes, "strides", rank), _ones(attributes, "dilations", rank)
        auto = attributes.get("auto_pad") or "NOTSET"
        pads, _ = _windows(x.shape[2:], w.shape[2:], strides, dilations, attributes.get("pads"), auto)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
        bias = None if b is None else torch.from_numpy(b)
        group = attributes.get("group") or 1
        padded = _pad(torch.from_numpy(x), pads, 0.0)
        return (convolve(padded, torch.from_numpy(w), bias, strides, 0, dilations, group).numpy(),)


class MaxPool(OpRun):
    """The first output of MaxPool."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> tuple[np.ndarray]:
        """The largest value of each window."""
        kernel = list(attributes["kernel_shape"])
        strides, dilations = _ones(attributes, "strides", len(kernel)), _ones(attributes, "dilations", len(kernel))
        auto, ceil = attributes.get("auto_pad") or "NOTSET", bool(attributes.get("ceil_mode"))
        _, pads = _windows(x.shape[2:], kernel, strides, dilations, attributes.get("pads"), auto, ceil)
        largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
        return (largest(_pad(torch.from_numpy(x), pads, -np.inf), kernel, strides, 0, dilations).numpy(),)


class AveragePool(OpRun):
    """AveragePool without dilations."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> tuple[np.ndarray]:
        """The mean of each window, over what of it counts."""
        kernel = list(attributes["kernel_shape"])
        strides, ones = _ones(attributes, "strides", len(kernel)), [1] * len(kernel)
        auto, ceil = attributes.get("auto_pad") or "NOTSET", bool(attributes.get("ceil_mode"))
        declared, pads = _windows(x.shape[2:], kernel, strides, ones, attributes.get("pads"), auto, ceil)
        mean = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
        counted = torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64)
        rest = [p - d for p, d in zip(pads, declared, strict=True)]
        counted = _pad(_pad(counted, declared, float(bool(attributes.get("count_include_pad")))), rest, 0.0)
        value = _pad(torch.from_numpy(x), pads, 0.0)
        return ((mean(value, kernel, strides) / mean(counted, kernel, strides)).numpy(),)


class BatchNormalization(OpRun):
    """BatchNormalization by given statistics; the evaluator takes all of opset 9 and before for training."""

    op_domain = ""

    def _run(self, x: Any, *parameters: Any, **attributes: Any) -> tuple[np.ndarray]:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias, by channel."""
        if attributes.get("training_mode"):
            raise NotImplementedError("BatchNormalization in training")
        scale, bias, mean, variance = (torch.from_numpy(np.ascontiguousarray(p)) for p in parameters)
        epsilon = attributes.get("epsilon") or 1e-5
        return (F.batch_norm(torch.from_numpy(x), mean, variance, scale, bias, False, 0.0, epsilon).numpy(),)


class LRN(OpRun):
    """Local response normalization; the evaluator leaves all channels but the first ones out."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> tuple[np.ndarray]:
        """A value divided by a power of the mean square of its neighbors in other channels."""
        alpha, beta, bias = (attributes.get(n) or d for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
        return (F.local_response_norm(torch.from_numpy(x), attributes["size"], alpha, beta, bias).numpy(),)


class Dropout(OpRun):
    """Dropout in inference; the evaluator drops at random for old opsets."""

    op_domain = ""

    def _run(self, x: Any, ratio: Any = None, training_mode: Any = None, **attributes: Any) -> tuple[np.ndarray, ...]:
        """The input, and a mask of ones."""
        if training_mode is not None and np.any(training_mode):
            raise NotImplementedError("Dropout in training")
        return (x, np.ones(x.shape, bool))[: len(self.onnx_node.output)]


class GlobalMaxPool(OpRun):
    """GlobalMaxPool; the evaluator drops an axis."""

    op_domain = ""

    def _run(self, x: Any) -> tuple[np.ndarray]:
        """The largest value of each channel."""
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Softmax(OpRun):
    """Softmax; the evaluator knows one axis only, where opset 12 and before take all from there on."""

    op_domain = ""

    def _run(self, x: Any, axis: int = -1) -> tuple[np.ndarray]:
        """exp(x) over its sum; `axis` has the newest opset's default where a node has none."""
        value = torch.from_numpy(np.ascontiguousarray(x))
        if self.run_params["opsets"][""] >= 13:
            return (value.softmax(axis).numpy(),)
        given = any(attribute.name == "axis" for attribute in self.onnx_node.attribute)
        return (value.flatten(axis % x.ndim if given else 1).softmax(-1).reshape(x.shape).numpy(),)


class Erf(OpRun):
    """The error function."""

    op_domain = ""

    def _run(self, x: Any) -> tuple[np.ndarray]:
        """erf(x)."""
        return (torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy(),)


class Gelu(OpRun):
    """Gelu, exact or by tanh."""

    op_domain = ""

    def _run(self, x: Any, approximate: Any = None) -> tuple[np.ndarray]:
        """A value times the probability of a smaller one."""
        return (F.gelu(torch.from_numpy(np.ascontiguousarray(x)), approximate=approximate or "none").numpy(),)


OPERATORS = [Conv, MaxPool, AveragePool, GlobalMaxPool, BatchNormalization, LRN, Dropout, Softmax, Erf, Gelu]


def _ones(attributes: Mapping[str, Any], name: str, rank: int) -> list[int]:
    return list(attributes.get(name) or [1] * rank)


# --- comparing -------------------------------------------------------------------------------------------------------


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of a model in f64."""
    inputs = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in feeds.items()}
    with np.errstate(all="ignore"):
        session = ReferenceEvaluator(in_double(model), new_ops=OPERATORS)
        return list(session.run(None, inputs))


def error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest difference, relative to the largest value of each output; infinite where shapes or NaNs differ."""
    worst = 0.0
    for a, b in zip(found, exact, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        if b.size:
            off = float(np.nan_to_num(np.abs(a - b)).max())
            worst = max(worst, off / (float(np.nan_to_num(np.abs(b)).max()) or 1.0) if off else 0.0)
    return worst


def measure(name: str) -> dict[str, Any]:
    """The errors of `rewrite` and ONNX Runtime on one model of the zoo, and the seconds that the exact run took."""
    import onnxruntime
    import rewrite

    from . import models

    file, feeds = models.path(name), models.inputs(name)
    start = time.perf_counter()
    exact = evaluate(onnx.load(file), feeds)
    record: dict[str, Any] = {"seconds": time.perf_counter() - start}
    program = rewrite.compile(file)
    record["rewrite"] = error(list(program.run(dict(feeds)).values()), exact)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    record["onnxruntime"] = error(session.run(None, dict(feeds)), exact)
    return record


def main() -> None:
    """Compare one model and print the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        record = measure(options.name)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
