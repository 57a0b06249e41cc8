"""Random graphs, built node by node. Each node is run as it is added: every graph is valid, and every value known.

As in NNSmith (Liu et al., "NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers", ASPLOS 2023),
operators are drawn with operands that fit them. Their constraints are not given to a solver: a proposed node that an
oracle refuses is dropped, and the values of the others decide what fits next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from .eager import BF16, IR_VERSION, Array, Invalid, Step, Value, opset_imports, value_info

F32, F64, F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
I64, I32, I16, I8 = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.int16), np.dtype(np.int8)
U64, U32, U16, U8 = np.dtype(np.uint64), np.dtype(np.uint32), np.dtype(np.uint16), np.dtype(np.uint8)
BOOL = np.dtype(np.bool_)
FLOATS = (F32, F32, F32, F64, F16, BF16)
SIGNED = (I64, I32, I8, I16)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = (I64, I64, I32, I32, I8, U8, I16, U16, U32, U64)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*FLOATS, *FLOATS, *INTEGERS, BOOL, BOOL)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
FINITE = (0.0, -0.0, 1e-30, 1.0, -1.0, 0.5)
SPECIAL = (*FINITE, -1e30, np.inf, -np.inf, np.nan)
OPSETS = (13, 17, 18, 20, 21, 23, onnx.defs.onnx_opset_version(), onnx.defs.onnx_opset_version())
_LARGEST = 30_000
"""Elements that a value may have."""
T = TypeVar("T")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether an element type is a float, bf16 included."""
    return dtype == BF16 or dtype.kind == "f"


def is_finite(value: Array) -> bool:
    """Whether an array has neither a NaN nor an infinity."""
    return not is_float(value.dtype) or bool(np.isfinite(value.astype(np.float64)).all())


class Maker:
    """A graph that grows by one node at a time, and the values of all its tensors for one set of inputs."""

    def __init__(
        self, seed: int | np.random.Generator, opset: int | None = None, outer: Maker | None = None, first_name: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = opset if opset is not None else self.pick(OPSETS)
        self.outer = outer
        self.counter: list[int] = outer.counter if outer else [first_name]
        self.values: dict[str, Value] = dict(outer.values) if outer else {}
        self.constants: dict[str, Array] = outer.constants if outer else {}
        self.inputs: dict[str, Array] = {}
        self.declared: dict[str, list[int | str]] = {}
        self.steps: list[Step] = []
        self.shy: set[str] = set(outer.shy) if outer else set()
        self.nan = False  # whether operands may be NaN or infinite

    # --- chance ---------------------------------------------------------------------------------------------------

    def pick(self, items: Iterable[T]) -> T:
        """Return one of the items."""
        listed = list(items)
        return listed[int(self.rng.integers(len(listed)))]

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, empty: float = 0.02) -> int:
        """Return an extent: mostly small, 0 with the given probability."""
        return 0 if self.chance(empty) else self.pick(SIZES)

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """Return a shape with a rank in this range."""
        shape = tuple(self.size() for _ in range(self.between(least, most)))
        return shape if np.prod(shape) <= _LARGEST else tuple(min(d, 5) for d in shape)

    def array(self, dtype: np.dtype[Any], shape: Sequence[int], domain: str = "") -> Array:
        """Return random elements.

        `domain` is "positive" (at least 0.1), "unit" (within [-1, 1]), "small" (integers up to 3), "nonzero",
        "plain" (normal) or empty: anything, with special numbers once in a while."""
        shape = tuple(int(d) for d in shape)
        if dtype == BOOL:
            return self.rng.random(shape) < 0.5
        if is_float(dtype):
            values = self.rng.standard_normal(shape)
            if domain == "positive":
                values = np.abs(values) + 0.1
            elif domain == "unit":
                values = np.clip(values / 2, -1, 1)
            elif domain == "nonzero":
                values = np.where(np.abs(values) < 0.1, 1.0, values)
            elif domain == "small":
                values = np.round(values)
            elif domain == "plain":
                pass
            elif self.chance(0.08):
                values = np.round(values * 2) / 2
            elif self.chance(0.05):
                special = SPECIAL if self.nan else FINITE
                values = np.where(self.rng.random(shape) < 0.2, self.rng.choice(special, shape), values)
            elif self.chance(0.05):
                values = np.full(shape, self.pick((0.0, 1.0, -1.0, 2.0, 0.5)))
            with np.errstate(all="ignore"):
                return np.asarray(values).astype(dtype)
        info = ml_dtypes.iinfo(dtype)
        if domain == "small":
            low, high = 0, 3
        elif dtype.itemsize == 1:
            low, high = int(info.min), int(info.max)
        elif domain == "" and self.chance(0.05):
            low, high = max(int(info.min), -(2**62)), min(int(info.max), 2**62)
        else:
            low, high = (0 if dtype.kind == "u" else -20), 20
        if domain == "positive":
            low = 1
        values = np.asarray(self.rng.integers(low, high, shape, endpoint=True))
        return np.where(values == 0, 1, values).astype(dtype) if domain == "nonzero" else values.astype(dtype)

    # --- operands -------------------------------------------------------------------------------------------------

    def name(self) -> str:
        """Return a fresh name."""
        self.counter[0] += 1
        return f"v{self.counter[0]}"

    def constant(self, array: Any, dtype: np.dtype[Any] = I64) -> str:
        """Return the name of a constant of these numbers."""
        name = self.name()
        self.constants[name] = self.values[name] = np.asarray(array).astype(dtype)
        root = self
        while root.outer is not None:
            root = root.outer
            root.values[name] = self.values[name]
        return name

    def fresh(self, array: Array, fixed: float = 0.3) -> str:
        """Return an input of the model with this value, or a constant, which it is with probability `fixed`."""
        if self.outer is not None or self.chance(fixed):
            return self.constant(array, array.dtype)
        name = self.name()
        self.inputs[name] = self.values[name] = array
        self.declared[name] = [
            f"d{int(d)}{'' if self.chance(0.5) else name}" if d > 1 and self.chance(0.1) else int(d)
            for d in array.shape
        ]
        return name

    def new(self, dtype: np.dtype[Any], shape: Sequence[int], domain: str = "", fixed: float = 0.3) -> str:
        """Return a fresh operand of this type."""
        return self.fresh(self.array(dtype, shape, domain), fixed)

    def like(self, dtype: np.dtype[Any], shape: Sequence[int], domain: str = "", fixed: float = 0.3) -> str:
        """Return an operand of this type: one that is there, if no domain is asked for, or a fresh one."""
        fits = [] if domain else [n for n in self._usable() if self.dtype(n) == dtype and self.dims(n) == tuple(shape)]
        return self.pick(fits) if fits and self.chance(0.75) else self.new(dtype, shape, domain, fixed)

    def some(self, dtypes: Sequence[np.dtype[Any]], least: int = 0, most: int = 4, domain: str = "") -> str:
        """Return an operand of one of these types with a rank in this range."""
        dtype = self.pick(dtypes)
        fits = [
            n for n in self._usable()
            if n not in self.constants and self.dtype(n) in set(dtypes) and least <= len(self.dims(n)) <= most
        ]  # fmt: skip
        if fits and not domain and self.chance(0.8):
            return self.pick(fits)
        return self.new(dtype, self.shape(least, most), domain, 0.05)

    def against(self, x: str, domain: str = "") -> str:
        """Return an operand that broadcasts with `x` and has its type."""
        dims = [d if self.chance(0.7) else 1 for d in self.dims(x)]
        if self.chance(0.3):
            dims = dims[self.between(0, len(dims)) :]
        elif len(dims) < 4 and self.chance(0.1):
            dims = [self.size(), *dims]
        return self.like(self.dtype(x), dims, domain, 0.5)

    def _usable(self) -> list[str]:
        """Return the arrays that operands may be. Implementations differ in how windows and sorts treat NaN."""
        return [
            n for n, v in self.values.items()
            if isinstance(v, np.ndarray) and n not in self.shy and (self.nan or is_finite(v))
        ]  # fmt: skip

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return the element type of a value."""
        return self.values[name].dtype  # type: ignore[no-any-return]

    def dims(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.values[name].shape  # type: ignore[no-any-return]

    def axis(self, x: str) -> int:
        """Return an axis of a value, counted from either end."""
        rank = len(self.dims(x))
        return self.between(-rank, rank - 1) if rank else 0

    def axes(self, x: str) -> list[int]:
        """Return some axes of a value, each once."""
        rank = len(self.dims(x))
        chosen = [a for a in range(rank) if self.chance(0.5)]
        return [a - rank if self.chance(0.3) else a for a in chosen]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def emit(
        self, op: str, operands: Sequence[str], outputs: int | Sequence[bool] = 1, domain: str = "",
        reads: Sequence[str] = (), **attributes: Any,
    ) -> list[str]:  # fmt: skip
        """Add a node, and return the names of its outputs; `outputs` is their number, or which there are.

        `reads` are what bodies read from outside. Attributes that are None are left out. Raises `Invalid` if no oracle
        computes it."""
        wanted = [True] * outputs if isinstance(outputs, int) else outputs
        operands = list(operands)
        while operands and not operands[-1]:
            operands.pop()
        given = {k: v for k, v in attributes.items() if v is not None}
        if "Pool" in op and str(given.get("auto_pad", "")).startswith("SAME"):
            kernel = given["kernel_shape"]
            ones = [1] * len(kernel)
            sizes = zip(kernel, given.get("dilations") or ones, given.get("strides") or ones, strict=True)
            if any(stride > (k - 1) * dilation + 1 for k, dilation, stride in sizes):
                raise Invalid("padding may be below zero, and only some implementations then leave it out")
        elif "Pool" in op and "kernel_shape" in given and "MaxUnpool" not in op:
            kernel = given["kernel_shape"]
            pads = given.get("pads") or [0] * (2 * len(kernel))
            spans = [(k - 1) * d for k, d in zip(kernel, given.get("dilations") or [1] * len(kernel), strict=True)]
            for size, low, high, span in zip(
                self.dims(operands[0])[2:], pads, pads[len(kernel) :], spans, strict=False
            ):
                if size + low + high <= span:
                    raise Invalid("a window that does not fit, of which ONNX Runtime makes one that does")
        made = [self.name() if w else "" for w in wanted]
        node = helper.make_node(op, operands, made, name=f"n_{next(filter(None, made))}", domain=domain, **given)
        read = dict.fromkeys(n for n in (*operands, *reads) if n)
        values = {n: self.values[n] for n in read}
        step = Step(node, values, {n: self.constants[n] for n in read if n in self.constants}, self.opset)
        if any(np.size(v) > _LARGEST for v in step.example.values() if isinstance(v, np.ndarray)):
            raise Invalid("too large")
        if "Pool" in op or "Conv" in op:
            sizes = [np.size(self.values[n]) for n in operands if n]
            if all(sizes) and not all(np.size(v) for v in step.example.values()):
                raise Invalid("a window that does not fit")  # only some implementations return nothing
        self.steps.append(step)
        self.values.update(step.example)
        for name, value in step.example.items():
            if isinstance(value, np.ndarray) and is_float(value.dtype) and value.size:
                magnitudes = np.abs(value.astype(np.float64))
                if not np.isfinite(magnitudes).mean() > 0.5 or np.nanmax(magnitudes) > 1e4:
                    self.shy.add(name)
        return [name for name in made if name]

    def body(self, outputs: Sequence[str], parameters: Mapping[str, Value]) -> onnx.GraphProto:
        """Return the nodes of this inner maker as a body."""
        return helper.make_graph(
            [step.node for step in self.steps],
            "body" + self.name(),
            [value_info(name, value) for name, value in parameters.items()],
            [value_info(name, self.values[name]) for name in outputs],
        )

    def outer_reads(self, graph: onnx.GraphProto) -> list[str]:
        """Return what a body reads from this maker's values."""
        inner = {v.name for v in graph.input} | {o for n in graph.node for o in n.output}
        read = [i for n in graph.node for i in n.input] + [v.name for v in graph.output]
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    read += self.outer_reads(attribute.g)
        return list(dict.fromkeys(n for n in read if n and n not in inner and n in self.values))


def model_of(maker: Maker, outputs: Sequence[str]) -> onnx.ModelProto:
    """Return the model of a maker's nodes, with these outputs."""
    graph = helper.make_graph(
        [step.node for step in maker.steps],
        "random",
        [value_info(name, value, maker.declared.get(name)) for name, value in maker.inputs.items()],
        [value_info(name, maker.values[name], _unknown(maker.values[name])) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in maker.constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=opset_imports((step.node for step in maker.steps), maker.opset), ir_version=IR_VERSION
    )


def _unknown(value: Value) -> list[None] | None:
    """Return a declared shape without sizes, which may follow from symbols or from data."""
    return [None] * value.ndim if isinstance(value, np.ndarray) else None
