"""One ONNX node at a time on arrays: the oracle of random models, in ONNX Runtime or in ONNX's reference evaluator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from rewrite.engine.operators.folding.fold_by_reference import reference_deviates
from rewrite.system.hardware import saturates_pairs

Array = np.ndarray[Any, Any]
Value = Any
"""An array, or a list of arrays."""
BF16 = np.dtype(ml_dtypes.bfloat16)
IR_VERSION = 11
ML_OPSET = 3


_TYPED = frozenset(
    ("Cast", "CastLike", "BitCast", "QuantizeLinear", "DequantizeLinear", "EyeLike", "If", "Loop", "Scan", "IsInf")
)
"""Operators whose results do not have the type of the operands; ONNX Runtime takes no bf16 from NumPy."""


_ROUNDED = (np.dtype(np.float64), np.dtype(np.float16), BF16)


class Invalid(Exception):
    """No oracle computes the node: it is not valid, or nobody implements it."""


@dataclass(frozen=True)
class Oracle:
    """A node that is ready to run; `name` says what computes it."""

    name: str
    run: Callable[[Sequence[Value | None]], list[Value]]


def opset_imports(nodes: Iterable[onnx.NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """Return the operator sets of some nodes."""
    versions = {"": opset, "ai.onnx.ml": ML_OPSET, "com.microsoft": 1}
    domains = dict.fromkeys(("", *_domains(nodes)))
    return [helper.make_opsetid(domain, versions[domain]) for domain in domains]


def _domains(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield node.domain
        for attribute in node.attribute:
            yield from _domains(attribute.g.node)


def value_info(name: str, value: Value, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    """Return the declaration of a value: its element type and shape, or the type of a sequence."""
    if isinstance(value, list):
        kind = helper.np_dtype_to_tensor_dtype(value[0].dtype) if value else onnx.TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape if shape is None else shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Value],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    """Return a model of these nodes; the types of its outputs are left to be inferred."""
    graph = helper.make_graph(
        list(nodes),
        "node",
        [value_info(name, value) for name, value in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=opset_imports(nodes, opset), ir_version=IR_VERSION)


def oracles(
    node: onnx.NodeProto, values: Mapping[str, Value], fixed: Mapping[str, Array], opset: int
) -> list[Callable[[], Oracle]]:
    """Return the makers of what may compute a node, the most trusted one first.

    `values` are examples of all operands (and of what bodies read), `fixed` those that are constants."""
    inputs = {name: value for name, value in values.items() if name not in fixed}
    outputs = [name for name in node.output if name]

    def runtime(convert: bool) -> Oracle:
        changed = {k: _widened(v) for k, v in inputs.items()} if convert else inputs
        constants = {k: _widened(v) for k, v in fixed.items()} if convert else fixed
        model = model_of([node], changed, constants, outputs, opset)
        session = _session(model)

        def run(arrays: Sequence[Value | None]) -> list[Value]:
            feeds = {k: v for k, v in zip(inputs, arrays, strict=True) if v is not None}
            if convert:
                feeds = {k: _widened(v) for k, v in feeds.items()}
            found = session.run(outputs, feeds)
            return [_narrowed(v) for v in found] if convert else found

        return Oracle("onnxruntime in f32" if convert else "onnxruntime", run)

    def reference() -> Oracle:
        if wrong := {n.op_type for n in with_bodies(node) if _reference_is_wrong(n)}:
            raise Invalid(f"the reference computes {', '.join(sorted(wrong))} otherwise than the standard")
        evaluator = ReferenceEvaluator(model_of([node], inputs, fixed, outputs, opset))

        def run(arrays: Sequence[Value | None]) -> list[Value]:
            feeds = {k: v for k, v in zip(inputs, arrays, strict=True) if v is not None}
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = evaluator.run(outputs, feeds)
            return [v if isinstance(v, list) else np.asarray(v) for v in found]

        return Oracle("onnx.reference", run)

    def formula() -> Oracle:
        return Oracle("a formula", lambda arrays: [_FORMULAS[node.op_type](node, *arrays)])

    kinds = {getattr(v, "dtype", None) for v in values.values()}
    if node.op_type in _FORMULAS and (node.op_type not in ROUNDED_IN_F64 or np.dtype(np.float64) in kinds):
        return [formula]
    if runtime_deviates(node, values):
        return [reference]
    if BF16 not in kinds:
        return [lambda: runtime(convert=False), reference]
    if np.dtype(np.float32) in kinds or node.op_type in _TYPED:
        return [reference]
    return [lambda: runtime(convert=True), reference]


def runtime_deviates(node: onnx.NodeProto, values: Mapping[str, Value]) -> bool:
    """Whether ONNX Runtime computes a node, or one in its bodies, otherwise than the standard."""
    return any(_runtime_deviates(inner, values) for inner in with_bodies(node))


def _runtime_deviates(node: onnx.NodeProto, values: Mapping[str, Value]) -> bool:
    kinds = {getattr(values.get(name), "dtype", None) for name in node.input}
    match node.op_type:
        case "Shrink" | "Sigmoid" | "DFT" | "STFT":  # it rounds f64 to f32, or what is nearly 0 to that, or factors
            return np.dtype(np.float64) in kinds
        case "GroupNormalization":  # it subtracts squares, which cancel where a group is nearly uniform
            return True
        case "Sign":  # that of a NaN is 0 in f16, and NaN in the reference and in other floats
            return np.dtype(np.float16) in kinds
        case "Tan":  # it does not round the f16 that it just computed: near a pole that is another number
            return np.dtype(np.float16) in kinds
        case "QLinearConv" if any(values[name].size == 0 for name in node.input[:4:3] if name in values):
            return True  # sums of nothing are whatever lies in memory
        case "Resize":
            return _aligns_fractions(node, values)
        case "MaxPool" | "AveragePool" | "LpPool":  # automatic padding is that of a window that is not dilated
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            return given.get("auto_pad", b"")[:4] == b"SAME" and any(d != 1 for d in given.get("dilations", ()))
    # without VNNI, it adds pairs of products of signed bytes in 16 bits, which saturates
    return node.op_type in _OF_BYTES and np.dtype(np.int8) in kinds and saturates_pairs()


_OF_BYTES = frozenset({
    "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat", "QAttention", "QGemm",
})  # fmt: skip
"""Operators that multiply bytes. ONNX Runtime's own have no other oracle, and are left out where it saturates."""


def _aligns_fractions(node: onnx.NodeProto, values: Mapping[str, Value]) -> bool:
    """Whether corners are aligned where a scale makes the length a fraction, which ONNX Runtime takes without it.

    The tests of the standard have the fraction, such as `test_resize_downsample_scales_linear_align_corners`."""
    modes = [a.s for a in node.attribute if a.name == "coordinate_transformation_mode"]
    if modes != [b"align_corners"] or len(node.input) < 3 or not node.input[2]:
        return False
    if not set(node.input[:3:2]) <= set(values):  # computed in a body
        return True
    lengths = values[node.input[2]].astype(np.float64) * values[node.input[0]].shape
    return bool((lengths != np.floor(lengths)).any())


def with_bodies(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node and those of its bodies."""
    yield node
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from with_bodies(inner)


def _reference_is_wrong(node: onnx.NodeProto) -> bool:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
    texts = {name: _decoded(value) for name, value in attributes.items()}
    op = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
    return reference_deviates(op, texts, [bool(name) for name in node.input], sum(map(bool, node.output)))


def _decoded(value: Any) -> Any:
    """Return an attribute with texts instead of bytes."""
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    return value.decode() if isinstance(value, bytes) else value


def _global_lp_pool(node: onnx.NodeProto, x: Array) -> Array:
    p = next((a.i for a in node.attribute if a.name == "p"), 2)
    axes = tuple(range(2, x.ndim))
    total = (np.abs(x.astype(np.float64)) ** p).sum(axes, keepdims=True)
    return np.asarray(total ** (1 / p)).astype(x.dtype)


def _group_normalization(node: onnx.NodeProto, x: Array, scale: Array, bias: Array) -> Array:
    """Compute it in f64, from deviations. Before opset 21 there is one factor for each group."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    wide = x.astype(np.float64).reshape(x.shape[0], attributes["num_groups"], -1)
    deviations = wide - wide.mean(-1, keepdims=True)
    variances = np.square(deviations).mean(-1, keepdims=True)
    normal = (deviations / np.sqrt(variances + attributes.get("epsilon", 1e-5))).reshape(x.shape)
    scale, bias = (
        np.repeat(a.astype(np.float64), x.shape[1] // a.size).reshape(-1, *(1 for _ in x.shape[2:]))
        for a in (scale, bias)
    )
    return np.asarray(normal * scale + bias).astype(x.dtype)


_FORMULAS: dict[str, Callable[..., Array]] = {
    "GlobalLpPool": _global_lp_pool,
    "GroupNormalization": _group_normalization,
    "HardSwish": lambda node, x: np.asarray(x * np.clip(x / 6 + 0.5, 0, 1)),
    "Erf": lambda node, x: np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x)),
}
"""Operators that neither oracle has, or that both compute with too few digits."""
ROUNDED_IN_F64 = frozenset({"HardSwish", "Erf"})
"""Those of them that are lacking in f64 only. The reference has HardSwish with a sixth, and Erf, rounded to f32."""


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _widened(value: Value) -> Value:
    if isinstance(value, list):
        return [_widened(member) for member in value]
    return value.astype(np.float32) if getattr(value, "dtype", None) == BF16 else value


def _narrowed(value: Value) -> Value:
    if isinstance(value, list):
        return [_narrowed(member) for member in value]
    return value.astype(BF16) if getattr(value, "dtype", None) == np.float32 else value


class Step:
    """A node with what computes it, and the operands that change from run to run."""

    def __init__(
        self, node: onnx.NodeProto, values: Mapping[str, Value], fixed: Mapping[str, Array], opset: int
    ) -> None:
        self.node = node
        if node.op_type == "QuantizeLinear":  # runs with rounding errors change its operands, constants too
            fixed = {}
        self.reads = [name for name in values if name not in fixed]
        inferred = self._types(values, fixed, opset)
        problems = []
        for make in oracles(node, values, fixed, opset):
            try:
                self.oracle = make()
                self.example = self.run(values)
                self._check(inferred)
                if self.oracle.name == "onnx.reference":
                    self._confirm(values, fixed, opset)
                return
            except Exception as error:  # oracles raise whatever they like
                problems.append(str(error)[:300])
        raise Invalid("; ".join(problems))

    def _types(self, values: Mapping[str, Value], fixed: Mapping[str, Array], opset: int) -> onnx.ModelProto:
        """Return the model of the node with inferred types. Raises `Invalid` if the standard does not admit it."""
        inputs = {name: value for name, value in values.items() if name not in fixed}
        model = model_of([self.node], inputs, fixed, [n for n in self.node.output if n], opset)
        if self.node.domain == "com.microsoft":
            return model
        version = next(o.version for o in model.opset_import if o.domain == self.node.domain)
        try:
            schema = onnx.defs.get_schema(self.node.op_type, version, self.node.domain)
            if unknown := {a.name for a in self.node.attribute} - set(schema.attributes):
                raise ValueError(f"unknown attributes {unknown}")
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception as error:
            raise Invalid(str(error)[:300]) from error

    def _check(self, inferred: onnx.ModelProto) -> None:
        for info in inferred.graph.output:
            kind = info.type.tensor_type
            value = self.example[info.name]
            if not kind.elem_type or not isinstance(value, np.ndarray):
                continue
            if helper.np_dtype_to_tensor_dtype(value.dtype) != kind.elem_type:
                raise Invalid(f"{self.oracle.name} returned {value.dtype}")
            dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
            known = kind.HasField("shape")
            if known and (
                len(dims) != value.ndim or any(d not in (None, n) for d, n in zip(dims, value.shape, strict=True))
            ):
                raise Invalid(f"{self.oracle.name} returned shape {value.shape}, not {dims}")

    def _confirm(self, values: Mapping[str, Value], fixed: Mapping[str, Array], opset: int) -> None:
        """Compare the reference evaluator with ONNX Runtime in f32, where that has the operator for no other float."""
        coarse = {name for name, v in values.items() if getattr(v, "dtype", None) in _ROUNDED}
        if not coarse or self.node.op_type in _TYPED or runtime_deviates(self.node, values):
            return
        wide = {n: v.astype(np.float32) if n in coarse else v for n, v in values.items()}
        known = {n: wide[n] for n in fixed}
        model = model_of([self.node], {n: wide[n] for n in self.reads}, known, list(self.example), opset)
        try:
            found = _session(model).run(list(self.example), {n: wide[n] for n in self.reads})
        except Exception:  # no second opinion
            return
        for name, value in zip(self.example, found, strict=True):
            a, b = self.example[name], value
            if not isinstance(a, np.ndarray) or a.shape != b.shape:
                raise Invalid("oracles disagree")
            x, y = a.astype(np.float64), b.astype(np.float64)
            least = 0.1 if a.dtype.itemsize == 2 else 1e-3
            if not np.allclose(
                x, y, rtol=least, atol=least * np.abs(x[np.isfinite(x)]).max(initial=0.0), equal_nan=True
            ):
                raise Invalid("oracles disagree")

    def run(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the outputs by name."""
        found = self.oracle.run([values[name] for name in self.reads])
        return dict(zip((name for name in self.node.output if name), found, strict=True))
