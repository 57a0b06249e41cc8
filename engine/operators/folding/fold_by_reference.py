"""Evaluation by the reference implementation in `onnx`: slow, for operators without any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.graph import AttrValue, Constant, DType, Graph, OtherType
from ..schemas import WORKING_OPSET, find_schema, signature, split_name, standard_signature
from .fold_call import Array, Attrs, Refused

REFERENCE_LIMIT = 1 << 18
"""Maximum number of elements that the reference implementation gets, since it is slow."""


def attribute(name: str, value: AttrValue) -> Any:
    """Convert an attribute to an `AttributeProto`; raises `Refused` for graphs and types."""
    import onnx

    if isinstance(value, Graph | OtherType) or (isinstance(value, tuple) and any(isinstance(v, Graph) for v in value)):
        raise Refused
    if isinstance(value, Constant):
        return onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value.array))
    if isinstance(value, tuple):
        kind = onnx.AttributeProto.INTS if not value else None
        return onnx.helper.make_attribute(name, list(value), attr_type=kind)
    return onnx.helper.make_attribute(name, value)


def by_reference(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> list[Array]:
    """Evaluate one operator by `onnx.reference`; raises `Refused` where that fails."""
    if sum(a.size for a in arrays if a is not None) > REFERENCE_LIMIT:
        raise Refused
    if reference_deviates(op, attrs, [a is not None for a in arrays], n_outputs):
        raise Refused
    try:
        found = run_reference(op, attrs, arrays, n_outputs)
    except Exception as error:  # its errors have no common base class
        raise Refused from error
    if any(not isinstance(a, np.ndarray | np.generic) for a in found):
        raise Refused
    results = [np.asarray(a) for a in found]
    if not _well_typed(op, arrays, results):  # it computed in another type as well: the numbers are wrong, too
        raise Refused
    return results


_ACTIVATIONS = {"RNN": ("tanh",), "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
"""Default activations of one direction of a recurrent cell."""


def reference_deviates(op: str, attrs: Attrs, present: Sequence[bool], n_outputs: int = 1) -> bool:
    """Whether the reference implementation computes a node otherwise than the standard; `present` are its inputs.

    Random graphs beside ONNX Runtime found these cases."""

    def has(number: int) -> bool:
        return number < len(present) and present[number]

    match op.partition("@")[0]:
        case "RNN" | "LSTM" | "GRU" as cell:  # it leaves out lengths, bounds and other activations
            names: Any = attrs.get("activations") or ()
            usual = _ACTIVATIONS[cell] * (len(names) // len(_ACTIVATIONS[cell]))
            odd = any(map(attrs.get, ("clip", "input_forget", "activation_alpha", "activation_beta")))
            return has(4) or odd or tuple(str(name).lower() for name in names) != usual
        case "ConvTranspose":  # it adds the bias of the first group to all, and lets padding change the size
            automatic = str(attrs.get("auto_pad", "NOTSET")).startswith("SAME")
            extra: Any = attrs.get("output_padding") or ()
            return automatic or any(extra) or (has(2) and attrs.get("group", 1) != 1)
        case "MaxPool" | "AveragePool" | "LpPool" as pool:
            # its indices start again in each channel; automatic padding leaves out dilations, ceil_mode or a third axis
            dilations: Any = attrs.get("dilations") or ()
            odd = pool == "MaxPool" or bool(attrs.get("ceil_mode", 0)) or any(d != 1 for d in dilations)
            return n_outputs > 1 or (odd and attrs.get("auto_pad", "NOTSET") not in ("NOTSET", ""))
        case "Resize":
            match attrs.get("coordinate_transformation_mode"):
                case "half_pixel_symmetric":  # it takes a position that is rounded below an element for the one before
                    return has(2)
                case "pytorch_half_pixel":  # a single element is half an element before the first, or by the scale
                    return has(2) or attrs.get("mode", "nearest") == "cubic" or bool(attrs.get("antialias", 0))
        case "LpNormalization":  # it adds up elements, not magnitudes
            return attrs.get("p", 2) != 2
        case "NegativeLogLikelihoodLoss":  # its mean counts what is to be ignored, if that is -1
            return attrs.get("ignore_index") == -1 and not has(2) and attrs.get("reduction", "mean") == "mean"
        case "LRN":  # it adds up the squares of as many channels as there are images
            return True
        case "ai.onnx.ml.Normalizer":  # it divides by the largest magnitude, not by the maximum
            return attrs.get("norm", "MAX") == "MAX"
        case "Unique":  # it takes what comes first along the first axis, whatever the axis
            return not attrs.get("sorted", 1) and attrs.get("axis", 0) != 0
        case "SequenceInsert":  # it takes the place behind the last member for the first
            return True
        case "DeformConv" | "GridSample" | "QLinearConv":  # it rounds f64 to f32, or adds an axis
            return True
    return False


def _well_typed(op: str, arrays: Sequence[Array | None], results: Sequence[Array]) -> bool:
    """Whether results have element types that the operator's schema admits beside those of its operands."""
    known = standard_signature(op)  # a definition in rules states no types
    if known is None:
        return True
    bound = {
        formal.type: array.dtype
        for formal, array in zip(known.inputs, arrays, strict=False)
        if array is not None and not (formal.variadic and not formal.homogeneous)
    }
    for formal, array in zip(known.outputs, results, strict=False):
        wanted = bound.get(formal.type)
        if wanted is not None and array.dtype != wanted:
            return False
        if formal.dtypes and DType.from_numpy(array.dtype).value not in formal.dtypes:
            return False
    return True


def run_reference(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> list[Any]:
    """Run one operator in `onnx.reference`, on values of any kind (a sequence is a list), None where absent.

    Raises whatever the reference implementation raises."""
    arrays = by_rows(op, arrays)
    evaluator = reference_evaluator(op, attrs, arrays, n_outputs)
    return list(evaluator.run(None, {f"i{i}": a for i, a in enumerate(arrays) if a is not None}))


_OF_ROWS = {"MatMulInteger": (2,), "QLinearMatMul": (1, 2)}


def by_rows(op: str, arrays: Sequence[Any]) -> list[Any]:
    """Return operands with scales and zero points of the rows of a left factor as a column: the reference
    implementation takes a list for one of columns."""
    places = _OF_ROWS.get(op, ())
    return [
        a.reshape(-1, 1) if i in places and a is not None and a.ndim == 1 and a.size > 1 else a
        for i, a in enumerate(arrays)
    ]


def reference_evaluator(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> Any:
    """Return `onnx.reference`'s evaluator of one operator on inputs `i0`, `i1`, … of the types and ranks of arrays."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    domain, name, version = split_name(op)
    names = ["" if a is None else f"i{i}" for i, a in enumerate(arrays)]
    while names and not names[-1]:  # some implementations take a stated absence for a value
        del names[-1]
    outs = [f"o{i}" for i in range(n_outputs)]
    node = onnx.helper.make_node(name, names, outs, domain=domain)
    known = signature(op)
    formals = known.attributes if known is not None else {}
    for key, value in attrs.items():
        # Defaults are left out: the implementation may not know an attribute of a newer opset.
        if not key.startswith("$") and (key not in formals or formals[key].default != value):
            node.attribute.append(attribute(key, value))
    inputs = []
    for n, a in zip(names, arrays, strict=False):
        if isinstance(a, list):
            inputs.append(onnx.ValueInfoProto(name=n))
        elif a is not None:  # typed, since functions are expanded for the types of their inputs
            kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(n, kind, [None] * a.ndim))
    graph = onnx.helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name=n) for n in outs])
    schema = find_schema(op)
    assert schema is not None
    current = WORKING_OPSET if not domain else schema.since_version
    return ReferenceEvaluator(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(domain, version or current)])
    )
