"""Items run from Python: operators without a native kernel, and control flow over compiled bodies.

Single nodes are run by ONNX Runtime where it is installed and accepts them and their operands, else by NumPy, or by the
reference implementation of `onnx` where NumPy has no function for them. Views, and exact operators on few elements, are
always run by NumPy: a call of ONNX Runtime takes some 30 µs.

Length: the choice of an implementation, and what each of the three gets wrong.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine.ir.graph import Constant, DType, Graph, Node, TensorType, ValueType
from ...engine.ir.protos import attribute_to_proto
from ...engine.operators.schemas import WORKING_OPSET, find_schema, signature, split_name
from ...errors import RewriteError, UserError, naming_packages
from ...system import installed_onnxruntime
from ...system.hardware import saturates_pairs
from ..ir.kernel_graph import HOST_OPERATORS, VIEWS, Control, Fallback, ModelPlan
from .row_maps import ZIP_MAP, RowMaps

if TYPE_CHECKING:
    from ...grammar.syntax import ast


class FallbackWarning(UserWarning):
    """Some operators have no kernel; another implementation, mostly slower, runs them."""


def warn_of_fallbacks(found: Mapping[str, int]) -> None:
    """Warn once, naming the operators without a kernel; `found` has the number of nodes of each."""
    if found:
        peer = installed_onnxruntime.is_installed()
        by = "ONNX Runtime where it follows the standard, else by the slow" if peer else "NumPy or the slow"
        ours = {op: n for op, n in found.items() if op in _OPTIONALS | {ZIP_MAP}}
        others = {op: n for op, n in found.items() if op not in ours}
        parts = [f"{_names(others)}: run by {by} reference implementation"] * bool(others)
        parts += [f"{_names(ours)}: run in Python"] * bool(ours)
        warnings.warn(f"no native kernel for {'; '.join(parts)}", FallbackWarning, stacklevel=3)


def _names(found: Mapping[str, int]) -> str:
    return ", ".join(f"{op} ×{n}" if n > 1 else op for op, n in sorted(found.items()))


def refuse_unknown(plan: ModelPlan, defined: Mapping[str, ast.Op]) -> None:
    """Raise UserError naming all operators that no kernel and no other implementation computes.

    `defined` are the operators that have a definition; the error says why it does not apply to a node."""
    nodes = [item.node for item in plan.all_items() if isinstance(item, Fallback)]
    first = {node.op: node for node in reversed(nodes)}
    unknown = {op: node for op, node in sorted(first.items()) if not computable(node, plan.types)}
    if unknown:
        from ...engine.rewriting.definition_expansion import why_not_defined  # running a program needs no rules

        where = ", ".join(f"node {node.name or node.outputs[0]} ({op})" for op, node in unknown.items())
        graph = Graph(plan.inputs, plan.outputs, constants=dict(plan.constants), types=dict(plan.types))
        reasons = ((op, why_not_defined(graph, node, defined)) for op, node in unknown.items())
        why = "".join(f"The definition of {op} does not apply: {reason}. " for op, reason in reasons if reason)
        raise UserError(
            f"no implementation of operator{'s' * (len(unknown) > 1)} {', '.join(unknown)} is available",
            where=where,
            hint=f"{why}{_install_hint()}To write only the optimized ONNX model: rewrite MODEL.onnx --emit onnx",
        )


def _install_hint() -> str:
    if installed_onnxruntime.is_installed():
        return ""
    return "ONNX Runtime may have it: pip install onnx-rewrite[verify]. "


_MOST_WEIGHTS = 1 << 30
"""Bytes of constants from which they are inputs of a node's model: protobuf's library writes no more than 2 GiB."""


class Runner:
    """A node to run, possibly many times, on some threads.

    `types` are those of the plan: ONNX Runtime wants the element types of the inputs. `constants` are inputs that never
    change, such as weights, which it then prepares once. The implementation is loaded by the first run: that takes half
    a second, and a branch may never be taken."""

    def __init__(
        self, node: Node, types: Mapping[str, ValueType], threads: int = 1,
        constants: Mapping[str, Constant] | None = None,
    ) -> None:  # fmt: skip
        self.node, self.types, self.threads = node, types, threads
        known = {name: found for name in node.inputs if name and (found := (constants or {}).get(name)) is not None}
        kept = {name: found for name, found in known.items() if found.array.dtype.kind in "biuf"}
        self.constants = kept if sum(found.nbytes for found in kept.values()) < _MOST_WEIGHTS else {}

    @cached_property
    def by_numpy(self) -> bool:
        """Whether NumPy is asked first, whatever the operands."""
        return self.node.op in VIEWS | {"Slice"} or not installed_onnxruntime.is_installed() or _pads_dilated(self.node)

    @cached_property
    def cancels(self) -> bool:
        """Whether NumPy is asked first for operands of 16 bits."""
        return self.node.op.partition("@")[0] in _CANCELLING

    @cached_property
    def evaluator(self) -> Any:
        """The node in ONNX Runtime, else in the reference implementation. Raises UserError if neither has it."""
        node = self.node
        with naming_packages(f"{node.op}, which has no kernel,"):
            import onnx.reference  # noqa: F401

        model = self._model()
        try:
            exact = self._saturates()
            if exact and not self._signed() <= set(self.constants):
                return _reference_evaluator(model)
            if _deviates(node) and not (_places_right(node) and self._reference_deviates()):
                if _pads_dilated(node) and len(node.outputs) > 1:
                    raise LookupError("nothing has the indices of dilated windows with automatic padding")
                return _reference_evaluator(model)
            peer, schema = _onnxruntime(model, self.threads, exact), find_schema(node.op)
            if peer is None and schema is not None and schema.since_version == _BF16_ADDED:
                peer = _onnxruntime(self._model({"": _BF16_ADDED - 1}), self.threads)
            if peer is None and self._reference_deviates():
                raise LookupError("ONNX's reference implementation computes it otherwise than the standard")
            return peer or _reference_evaluator(model)
        except Exception as error:
            raise UserError(
                f"operator {node.op} has neither a kernel nor a reference implementation: {error}",
                where=f"node {node.name or node.outputs[0]}",
                hint=_install_hint(),
            ) from error

    def _model(self, opset: Mapping[str, int] | None = None) -> Any:
        """Return a `ModelProto` of the node, by default at the working opset."""
        import onnx

        node = self.node
        inputs = []
        for name in dict.fromkeys(filter(None, node.inputs)):
            if name in self.constants:
                continue
            kind = self.types.get(name)
            if isinstance(kind, TensorType) and kind.dtype is not None:
                # what is known of sizes, since some operators want to know them
                shape = None if kind.shape is None else [d if isinstance(d, int) else None for d in kind.shape]
                inputs.append(onnx.helper.make_tensor_value_info(name, kind.dtype.onnx, shape))
            else:
                inputs.append(onnx.ValueInfoProto(name=name))
        outputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(filter(None, node.outputs))]
        domain, _, version = split_name(node.op)
        if version is None and domain:
            schema = find_schema(node.op)
            version = schema.since_version if schema is not None else 1
        known = {"": WORKING_OPSET, domain: version or WORKING_OPSET}
        weights = [onnx.numpy_helper.from_array(c.array, name) for name, c in self.constants.items()]
        graph = onnx.helper.make_graph([node_proto(node)], "node", inputs, outputs, weights)
        imports = [onnx.helper.make_opsetid(d, v) for d, v in (opset or known).items()]
        return onnx.helper.make_model(graph, opset_imports=imports)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Return the named outputs for values of the inputs that are present, in order.

        Values are arrays, lists (sequences) or None (empty optionals). Raises UserError for an operator without an
        implementation, and RewriteError with the node's name if it fails, mostly because these operands are not
        allowed."""
        node = self.node
        where = f"node {node.name or node.outputs[0]} ({node.op})"
        if node.op == "Range":
            return [number_range(*(np.asarray(v).reshape(()) for v in values), where=where)]
        if node.op in _OPTIONALS:
            return [_optional(node.op, values[0] if values else None, where)]
        if node.op == ZIP_MAP:
            return [RowMaps(node)(values[0])]
        if node.op == "SequenceInsert":
            return [_inserted(*values, where=where)]
        halves = self.cancels and any(isinstance(v, np.ndarray) and v.dtype.name in _HALVES for v in values)
        few = node.op in _EXACT and sum(map(np.size, values)) <= _FEW
        if (self.by_numpy or halves or few) and (found := _by_numpy(node, values)) is not None:
            return found
        evaluator = self.evaluator
        pairs = zip(filter(None, node.inputs), values, strict=True)
        feeds = {name: value for name, value in pairs if name not in self.constants}
        with np.errstate(all="ignore"):
            try:
                return self._run(evaluator, feeds)
            except Exception as error:
                raise RewriteError(f"the operator failed: {error}", where=where) from error

    def _reference_deviates(self) -> bool:
        from ...engine.operators.folding.fold_by_reference import reference_deviates  # imports what programs do without

        node = self.node
        return reference_deviates(node.op, node.attrs, [bool(name) for name in node.inputs], len(node.outputs))

    def _saturates(self) -> bool:
        """Whether ONNX Runtime may add pairs of products of signed bytes in 16 bits, as it does without VNNI.

        It has other kernels for constants."""
        return bool(self._signed()) and self.node.op.partition("@")[0] in _OF_BYTES and saturates_pairs()

    def _signed(self) -> set[str]:
        """Return the operands that are signed bytes."""
        kinds = {name: self.types.get(name) for name in self.node.inputs}
        return {name for name, kind in kinds.items() if isinstance(kind, TensorType) and kind.dtype is DType.I8}

    def _run(self, evaluator: Any, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the node; where ONNX Runtime refuses operands that the reference implementation computes, there.

        It loads some nodes that it computes for no operands, such as LSTM of f64: those do not ask it again. It has
        others only for some sizes. If both refuse, the error is that of ONNX Runtime."""
        try:
            return _arrays(evaluator.run(None, feeds))
        except Exception as error:
            found = None if isinstance(evaluator, type(self._reference)) else self._by_reference(feeds)
            if found is None:
                raise
            if any(words in str(error) for words in _LACKING):
                self.__dict__["evaluator"] = self._reference
            return found

    def _by_reference(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """Return what the reference implementation computes; None if it fails or deviates from the standard."""
        with contextlib.suppress(Exception):  # its errors have no common base class
            if self._reference is not None:
                found = _arrays(self._reference.run(None, feeds))
                return found if self._admits(found) else None
        return None

    @cached_property
    def _reference(self) -> Any:
        """The node in the reference implementation; None if it does not have it as the standard says."""
        if self._reference_deviates():
            return None
        try:
            return _reference_evaluator(self._model())
        except Exception:  # operators of other domains
            return None

    def _admits(self, found: Sequence[Any]) -> bool:
        """Whether results have the types of the node's outputs: of operands that are not allowed, they may not."""
        for name, value in zip(filter(None, self.node.outputs), found, strict=True):
            kind = self.types.get(name)
            if not isinstance(kind, TensorType) or not isinstance(value, np.ndarray):
                continue
            if kind.dtype is not None and value.dtype != kind.dtype.numpy:
                return False
            sizes = kind.shape if kind.shape is not None else value.shape
            if len(sizes) != value.ndim:
                return False
            if any(isinstance(d, int) and d != n for d, n in zip(sizes, value.shape, strict=True)):
                return False
        return True


def _reference_evaluator(model: Any) -> Any:
    """Return the model of a node in the reference implementation, as far as that is right."""
    from onnx.reference import ReferenceEvaluator

    from ...engine.operators.reference_replacements import opset_of, replacements  # imports what programs do without

    return ReferenceEvaluator(model, new_ops=replacements(opset_of(model)))


def _arrays(found: Sequence[Any]) -> list[Any]:
    """Return results with arrays instead of numbers."""
    return [np.asarray(v) if isinstance(v, np.generic | int | float | bool) else v for v in found]


_EXACT = frozenset({
    *("Add", "Sub", "Mul", "Not", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    *("Cast", "Where", "Concat", "Gather", "Shape", "Size"),
})  # fmt: skip
"""Operators that NumPy computes to the last bit as ONNX Runtime does."""
_FEW = 4096
"""Number of elements of their operands up to which NumPy computes these; above it, ONNX Runtime is faster."""
_HALVES = ("float16", "bfloat16")
"""Floats in which the reference implementation rounds each step of an operator; NumPy computes in f64 here."""
_CANCELLING = ("GroupNormalization",)
"""Operators without a kernel of whose steps nothing may be left in so few bits: a variance would be below zero."""
_LACKING = ("does not support", "not supported", "NOT_IMPLEMENTED")
"""What ONNX Runtime's errors say of operands that an operator has no kernel for."""


def _by_numpy(node: Node, values: Sequence[Any]) -> list[Any] | None:
    """Return the named outputs of a node as NumPy computes them; None if it does not."""
    if not all(isinstance(value, np.ndarray) for value in values):
        return None
    from ...engine.operators import folding  # programs of kernels need none of it

    present = iter(values)
    arrays = [next(present) if name else None for name in node.inputs]
    found = folding.compute(node.op, node.attrs, arrays, len(node.outputs))
    return None if found is None else [value for name, value in zip(node.outputs, found, strict=True) if name]


_DEVIATES = frozenset({"Attention", "ConvInteger", "DFT", "Dropout", "MaxUnpool", "Mod", "ReduceMax", "Resize", "STFT"})
"""Operators that ONNX Runtime computes otherwise than the standard in some cases: those tests of ONNX fail there."""


_OF_BYTES = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})


def _deviates(node: Node) -> bool:
    """Whether ONNX Runtime may compute a node otherwise than the standard."""
    return node.op.partition("@")[0] in _DEVIATES or _pads_dilated(node)


def _places_right(node: Node) -> bool:
    """Whether ONNX Runtime finds the positions of a Resize as the standard does, and the reference may not."""
    return node.attrs.get("coordinate_transformation_mode") in ("pytorch_half_pixel", "half_pixel_symmetric")


def _pads_dilated(node: Node) -> bool:
    """Whether a node pools dilated windows with automatic padding, which ONNX Runtime computes without dilations."""
    dilations: Any = node.attrs.get("dilations") or ()
    automatic = str(node.attrs.get("auto_pad", "")).startswith("SAME")
    return node.op.endswith("Pool") and automatic and any(d != 1 for d in dilations)


_BF16_ADDED = 22
"""Opset that only added element types to many operators. ONNX Runtime lacks some of them there, but not before it."""


def _onnxruntime(model: Any, threads: int, exact: bool = False) -> Any:
    """Return the model in ONNX Runtime; None if it is not installed, lacks the operator, or inputs are not typed.

    `exact`: with the kernels that do not add products of bytes in 16 bits."""
    if not all(value.HasField("type") for value in model.graph.input) or not installed_onnxruntime.is_installed():
        return None
    theirs = installed_onnxruntime.onnxruntime()
    options = theirs.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores are the program's
    if exact:
        options.add_session_config_entry(*installed_onnxruntime.EXACT)
    try:
        session = theirs.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # its errors have no common base class
        return None
    passed = (*session.get_inputs(), *session.get_outputs())
    return session if all(value.type in _PASSED for value in passed) else None


_PASSED = frozenset(
    f"tensor({name})"
    for name in (
        "float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    )
)  # fmt: skip
"""Types that ONNX Runtime takes from NumPy, but for f16: it rounds products of them otherwise than the standard."""


def computable(node: Node, types: Mapping[str, ValueType]) -> bool:
    """Return whether a node has an implementation for operands of these types."""
    with contextlib.suppress(UserError):
        return (
            node.op in (_OPTIONALS | HOST_OPERATORS | {ZIP_MAP, "SequenceInsert"})
            or Runner(node, types).evaluator is not None
        )
    return False


_OPTIONALS = frozenset({"Optional", "OptionalGetElement", "OptionalHasElement"})


def _optional(op: str, value: Any, where: str) -> Any:
    """Run an operator on optionals: an optional is its value, or None if it is empty."""
    if op == "OptionalHasElement":
        return np.array(value is not None)
    if op == "OptionalGetElement" and value is None:
        raise RewriteError("the optional is empty", where=where)
    return value


def _inserted(sequence: Sequence[Any], value: Any, position: Any = None, *, where: str) -> list[Any]:
    """Return SequenceInsert. The reference implementation takes the position behind the last member for the first.

    Raises RewriteError for a position outside."""
    at = len(sequence) if position is None else int(_element(position))
    if not -len(sequence) <= at <= len(sequence):
        raise RewriteError(f"position {at} is outside a sequence of {len(sequence)}", where=where)
    found = list(sequence)
    found.insert(at, value)
    return found


def number_range(first: Any, last: Any, step: Any, *, where: str = "") -> Any:
    """Return Range, whose length only its operands determine: first + i * step in their dtype.

    Operands are one-element arrays of one dtype. The length is ⌈(last - first) / step⌉: exact for integers; for floats
    the difference has the dtype, the quotient double precision, as in ONNX Runtime. Raises RewriteError for a step of 0
    and for values that are not finite."""
    a, b, d = first.item(), last.item(), step.item()
    if not d or not np.isfinite([a, b, d]).all():
        raise RewriteError(f"Range({a}, {b}, {d}) is not defined", where=where)
    count = -((a - b) // d) if isinstance(a, int) else math.ceil(float(last - first) / d)
    dtype = first.dtype
    found = np.arange(max(0, count), dtype=dtype)
    found *= step
    found += first
    return found


def node_proto(node: Node) -> Any:
    """Return the node as an ONNX `NodeProto`, without graphs among its attributes."""
    import onnx

    domain, name, _ = split_name(node.op)
    proto = onnx.helper.make_node(name, list(node.inputs), list(node.outputs), name=node.name, domain=domain)
    if any(True for _ in node.subgraphs()):
        raise UserError(
            f"{node.op} has a graph attribute; only If, Loop and Scan may have one", where=f"node {node.name}"
        )
    known = signature(node.op)
    for key, value in node.attrs.items():
        formal = known.attributes.get(key) if known is not None else None
        # defaults are left out: other implementations may not know new attributes
        if formal is None or formal.default is None or formal.default != value:
            proto.attribute.append(attribute_to_proto(key, value, formal.kind if formal is not None else ""))
    return proto


Body = Callable[[Sequence[Any]], list[Any]]


def run_control(
    item: Control, inputs: Sequence[Any], captured: Sequence[Sequence[Any]], bodies: Sequence[Body]
) -> list[Any]:
    """Return the outputs of a control-flow operator for values of its inputs (None if absent).

    `captured` are the values that each body captures."""
    if item.op in ("If", "Branch"):
        branch = 0 if item.op == "Branch" or _element(inputs[0]) else 1
        return bodies[branch](list(captured[branch]))
    run = {"Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}.get(item.op)
    if run is None:
        raise RewriteError(f"{item.op} is not a control-flow operator", where=item.name)
    return run(item, inputs, captured[0], bodies[0])


def _element(value: Any) -> Any:
    return np.asarray(value).reshape(-1)[0]


def _sequence_map(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    found = [body([*(v[i] if isinstance(v, list) else v for v in inputs), *captured]) for i in range(len(inputs[0]))]
    return [[row[column] for row in found] for column in range(len(item.outputs))]


def _loop(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    trips = math.inf if inputs[0] is None else int(_element(inputs[0]))
    going = len(inputs) < 2 or inputs[1] is None or bool(_element(inputs[1]))
    state = list(inputs[2:])
    n, plan = len(state), item.bodies[0]
    rows: list[list[Any]] = []
    # The body may expect the condition as () or (1,).
    condition = (1,) if len(plan.inputs) > 1 and plan.type(plan.inputs[1]).shape == (1,) else ()
    while going and len(rows) < trips:
        again, *found = body([np.array(len(rows), np.int64), np.full(condition, going), *state, *captured])
        going = bool(_element(again))
        state = found[:n]
        rows.append(found[n:])
    made = plan.outputs[1 + n :]
    return [*state, *(_stacked([row[i] for row in rows], plan, value) for i, value in enumerate(made))]


def _stacked(pieces: Sequence[Any], plan: ModelPlan, value: str) -> Any:
    """Return the tensor of these pieces, a value of the body; an empty one of its type if there are none."""
    if pieces:
        return np.stack(pieces)
    kind = plan.types.get(value)
    if not isinstance(kind, TensorType) or kind.dtype is None or kind.shape is None:
        raise RewriteError(f"the loop had no iterations, and the type of {value} is unknown")
    return np.empty((0, *(d if isinstance(d, int) else 0 for d in kind.shape)), kind.dtype.numpy)


def _scan(item: Control, inputs: Sequence[Any], captured: Sequence[Any], body: Body) -> list[Any]:
    plan = item.bodies[0]
    n = len(inputs) - int(item.attrs["num_scan_inputs"])

    def slicings(kind: str, values: Sequence[Any]) -> Iterator[tuple[Any, int, int]]:
        """Return each value with its axis, and the step of its slices."""
        none = (0,) * len(values)
        axes, backward = (item.attrs.get(f"scan_{kind}_{what}") or none for what in ("axes", "directions"))
        return zip(values, axes, [-1 if flag else 1 for flag in backward], strict=True)

    sources = [np.moveaxis(np.asarray(v), axis, 0)[::step] for v, axis, step in slicings("input", inputs[n:])]
    if len({len(s) for s in sources}) > 1:
        raise RewriteError(f"the scanned inputs have different lengths: {[len(s) for s in sources]}", where=item.name)
    state = list(inputs[:n])
    rows: list[list[Any]] = []
    for pieces in zip(*sources, strict=True):
        found = body([*state, *pieces, *captured])
        state = found[:n]
        rows.append(found[n:])
    stacked = [
        np.moveaxis(_stacked([row[i] for row in rows][::step], plan, value), 0, axis)
        for i, (value, axis, step) in enumerate(slicings("output", plan.outputs[n:]))
    ]
    return [*state, *stacked]
