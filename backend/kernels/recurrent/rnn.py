"""Lowering of RNN, LSTM and GRU: one GEMM for the input contributions to all gates at all times, then the time loop.

Weights are reordered: units in blocks of one vector, and within a block all gates, so that a time step finds everything
about VL units side by side (see `recurrent.c.j2`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, minimum, product, required_equal
from ...codegen.template_params import float_attr, int_attr, launch, serial_below, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob, Point, Space
from ...ir.target import Target
from ..gemm.epilogue import Epilogue, Operand
from ..gemm.matmul import gemm_steps
from ..gemm.problem import SMALL_WORK, UNBATCHED, GemmProblem, Matrices
from ..registry import lowering
from ..scheduling import schedule

_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_ACTIVATIONS = {"RNN": ("tanh",), "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
_KNOWN = frozenset(("tanh", "sigmoid", "relu", "leakyrelu", "hardsigmoid", "softsign", "softplus"))
"""Activations of the kernel, each with its default numbers."""
_BACKWARDS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""Whether time runs backwards, for each direction of a layer."""


@lowering("RNN", "LSTM", "GRU", f64=True)
def lower_recurrent(group: Group, ctx: Context) -> list[Step] | None:
    """Layer of known numbers of units and directions, the same activations in both, and lengths of sequences.

    Weights, biases and peepholes that are not constant are reordered by steps."""
    node = group.node
    op, count = node.op, _GATES[node.op]
    inputs = [*node.inputs, *[""] * (8 - len(node.inputs))]
    x, activations = ctx.type(inputs[0]), activations_of(node, op)
    w, r = (ctx.type(v).shape for v in inputs[1:3])
    if len(group.nodes) != 1 or activations is None or x.shape is None or not w or not r:
        return None
    if any(v and ctx.type(v).dtype is not ctx.real for v in (*inputs[:4], *inputs[5:8])):
        return None
    if inputs[4] and ctx.type(inputs[4]).dtype is not DType.I32:
        return None
    directions, _, hidden = r
    k = required_equal(x.shape[-1], w[-1])
    if not isinstance(directions, int) or not isinstance(hidden, int) or not directions * hidden or k is None:
        return None
    by_batch = bool(node.attrs.get("layout", 0))
    time, batch = (x.shape[1], x.shape[0]) if by_batch else (x.shape[0], x.shape[1])
    lanes = ctx.target.lanes
    late = op == "GRU" and not node.attrs.get("linear_before_reset", 0)
    units = _Units(group, ctx, directions, hidden, count)

    columns = units.columns(inputs[1], w[-1])  # [input][direction, block, gate, lane]
    n = directions * count * -(-hidden // lanes) * lanes
    m = product(x.shape[:-1])
    gates = ctx.new_value(TensorType(ctx.real, (m, n)), "gates")
    # the recurrent bias of a GRU's third gate may be subject to the reset
    bias = units.bias(inputs[3], 2 if op == "GRU" and not late else count)
    summand = Operand(bias, (0, 0, 1))
    depth = w[-1] if isinstance(w[-1], int) else x.shape[-1]
    left, right = Matrices(inputs[0], UNBATCHED, depth, 1), Matrices(columns, UNBATCHED, n, 1)
    added = Epilogue((summand,), (), "x + e0", gates)
    multiplied = gemm_steps(GemmProblem(group, added, left, right, (), m, n, depth, k), ctx)
    early = 2 if late else count
    blocks = -(-hidden // lanes)

    def described(extents: Extents) -> dict[str, Any]:
        layer = {"op": op, **layer_params(node, activations), "by_batch": by_batch, "late": late}
        given, taken = ([bool(v) for v in side] for side in (inputs[4:], node.outputs))
        constant = ctx.constant(inputs[2]) is not None
        return {
            "layer": layer,
            "sizes": extents.all((time, batch, hidden, directions)),
            "has": [given, taken, constant],
        }

    label = f"{op.lower()} {time}x{batch}x{hidden}"
    point = schedule(group, ctx, label, described, partial(recurrent_space, batch, early, blocks, ctx.target))
    rows = row_blocks(batch, count, ctx.target.registers, int(point.get("rows", 0)))
    together = [units_together(rows, gates_, blocks) for gates_ in (early, 1)]
    together[0] = int(point.get("together", together[0]))
    recurrent = {"weights": units.recurrent(inputs[2], range(early), together[0])}
    if late:
        recurrent["late"] = units.recurrent(inputs[2], range(2, 3), together[1])
    elif op == "GRU":
        recurrent["bias"] = units.late_bias(inputs[3])
    recurrent |= {key: value for key, value in zip(("h0", "c0"), inputs[5:7], strict=True) if value}
    if inputs[7]:
        recurrent["peepholes"] = units.peepholes(inputs[7])
    if inputs[4]:
        recurrent["lengths"] = inputs[4]
    named = zip(("y", "y_h", "y_c"), node.outputs, strict=False)
    outputs = {key: value for key, value in named if value and value in group.outputs}
    scratch = -(-4 * rows[0] * (-(-hidden // lanes) * lanes) * ctx.target.element_bytes // 64) * 64
    extents = Extents()
    work = product((time, batch, directions * count * hidden * hidden))  # one thread per sequence
    params = {
        "op": op,
        "late": late,
        **layer_params(node, activations),
        "t": extents(time),
        "batch": extents(batch),
        "hidden": hidden,
        "directions": directions,
        "rows": rows,
        "together": together,
        **unrolled(point),
        "by_batch": by_batch,
        "inputs": ["x", *recurrent],
        "outputs": list(outputs),
        "scratch": scratch,
    }
    kernel, inputs_ = Kernel("recurrent", params), (gates, *recurrent.values())
    parts = serial_below(work * minimum(1, directions * batch - 1), SMALL_WORK)
    loop = launch(kernel, group, inputs_, outputs.values(), extents, parts, scratch=scratch)
    return [*units.steps, *multiplied, loop]


@dataclass
class _Units:
    """Reordering of a layer's weights by blocks of units: of constants here, of others by `steps`."""

    group: Group
    ctx: Context
    directions: int
    hidden: int
    gates: int
    steps: list[Step] = field(default_factory=list)

    def columns(self, w: str, k: Dim) -> str:
        """Return W as [k][direction, block, gate, lane]; it has k columns."""
        if (found := self._constant(w)) is not None:
            return self.ctx.add_constant(by_block(found, self.ctx.target.lanes), "inputs")
        return self._packed(w, k, self.gates, range(self.gates))

    def recurrent(self, r: str, gates: range, together: int) -> str:
        """Return these gates of R as `blocked_weights`."""
        if (found := self._constant(r)) is not None:
            weights = blocked_weights(found[:, gates.start : gates.stop], self.ctx.target.lanes, together)
            return self.ctx.add_constant(weights, "recurrent")
        return self._packed(r, self.hidden, self.gates, gates, together)

    def bias(self, b: str, summed: int) -> str:
        """Return the biases of the inputs by blocks, plus the recurrent ones of the first `summed` gates."""
        found = self._constant(b, 2 * self.gates) if b else np.zeros((self.directions, 2 * self.gates, self.hidden, 1))
        if found is None:
            return self._packed(b, 1, 2 * self.gates, range(self.gates), second=self.gates, summed=summed)
        own, other = found[:, : self.gates].astype(self.ctx.real.numpy), found[:, self.gates :]
        own[:, :summed] += other[:, :summed].astype(own.dtype)
        return self.ctx.add_constant(by_block(own, self.ctx.target.lanes)[0], "bias")

    def late_bias(self, b: str) -> str:
        """Return the recurrent bias of the third gate by blocks."""
        found = self._constant(b, 2 * self.gates) if b else np.zeros((self.directions, 2 * self.gates, self.hidden, 1))
        place = self.gates + 2
        if found is None:
            return self._packed(b, 1, 2 * self.gates, range(place, place + 1))
        late = found[:, place : place + 1].astype(self.ctx.real.numpy)
        return self.ctx.add_constant(by_block(late, self.ctx.target.lanes)[0], "bias")

    def peepholes(self, p: str) -> str:
        """Return peepholes as [direction][gate][units], filled up to whole blocks."""
        each = replace(self, directions=3 * self.directions, gates=1)
        if (found := each._constant(p)) is not None:
            return self.ctx.add_constant(by_block(found, self.ctx.target.lanes)[0], "peepholes")
        return each._packed(p, 1, 1, range(1))

    def _constant(self, value: str, gates: int = 0) -> NDArray[Any] | None:
        """Return a constant as [direction, gate, unit, k]; None if it is not constant."""
        found = self.ctx.constant(value)
        return None if found is None else found.array.reshape(self.directions, gates or self.gates, self.hidden, -1)

    def _packed(
        self, value: str, k: Dim, of: int, gates: range, together: int = 0, second: int = 0, summed: int = 0
    ) -> str:
        """Return some of the gates of a value that has `of` for each direction, packed by a step; see its template.

        `second` is the distance, in gates, of what is added to the first `summed` ones."""
        lanes, hidden, extents = self.ctx.target.lanes, self.hidden, Extents()
        width = self.directions * len(gates) * -(-hidden // lanes) * lanes
        packed = self.ctx.new_value(TensorType(self.ctx.real, (k, width)), "units")
        params = {
            "directions": self.directions,
            "rows": of * hidden,
            "hidden": hidden,
            "k": extents(k),
            "first": gates.start * hidden,
            "gates": len(gates),
            "together": together,
            "second": second * hidden,
            "summed": summed,
        }
        kernel = Kernel("pack_units", params)
        self.steps.append(launch(kernel, self.group, (value,), (packed,), extents, threads((width, k), 2)))
        return packed


def layer_params(node: Node, activations: tuple[str, ...]) -> dict[str, Any]:
    """Return the params of a time loop that the attributes of a layer decide."""
    return {
        "activations": activations,
        "clip": float_attr(node, "clip", 0.0),
        "coupled": bool(int_attr(node, "input_forget", 0)),
        "backwards": list(_BACKWARDS[str(node.attrs.get("direction", "forward"))]),
    }


def activations_of(node: Node, op: str) -> tuple[str, ...] | None:
    """Return the names of the activations f, g and h in small letters; None for what the kernel does not implement."""
    usual = _ACTIVATIONS[op]
    names: Any = node.attrs.get("activations") or ()
    given = tuple(str(name).lower() for name in names) or usual
    found = given[: len(usual)]
    known = str(node.attrs.get("direction", "forward")) in _BACKWARDS and set(found) <= _KNOWN
    numbers = any(map(node.attrs.get, ("activation_alpha", "activation_beta")))
    return found if known and given == found * (len(given) // len(usual)) and not numbers else None


def recurrent_space(batch: Dim, gates: int, blocks: int, target: Target) -> Space:
    """Return the schedules of a time loop whose products with the state have this number of gates.

    `rows`: most batch rows computed together; `together`: blocks of units computed together, of `blocks` in all;
    `unroll`: steps of k of an iteration; `near`: steps of k ahead of which weights are fetched, 0: not."""
    count = batch if isinstance(batch, int) else 1

    def constraint(point: Point) -> bool:
        return int(point.get("rows", 1)) * int(point.get("together", 1)) * gates <= target.registers

    knobs = [
        Knob("rows", tuple(n for n in range(1, 9) if n <= count) if count > 1 else ()),
        Knob("together", tuple(n for n in (1, 2, 3, 4, 6, 8) if n <= blocks)),
        Knob("unroll", (1, 2, 4)),
        Knob("near", (0, 8, 16, 32)),
    ]
    return Space(("recurrent",), tuple(knobs), constraint)


def unrolled(point: Point) -> dict[str, Any]:
    """Return the template parameters of a time loop's products that a point of `recurrent_space` names."""
    usual = {"unroll": 1, "near": 0}
    return {name: point[name] for name, value in usual.items() if point.get(name, value) != value}


def row_blocks(batch: Dim, gates: int, registers: int, most: int = 0) -> list[int]:
    """Return the numbers of batch rows computed together, descending: equal ones and what is left, or down to 1.

    `most` of them, or, if 0, as many as registers hold the sums of."""
    most = most or (registers - gates - 2) // gates
    if isinstance(batch, int) and batch > 0:
        equal = -(-batch // -(-batch // most))
        return [equal, batch % equal] if batch % equal else [equal]
    rows = [most]
    while rows[-1] > 1:
        rows.append(rows[-1] // 2)
    return rows


def units_together(rows: list[int], gates: int, blocks: int) -> int:
    """Return the number of blocks of units computed together.

    Chains of multiply-adds hide their latency if there are eight. Several blocks read one stream of weights, so the
    layout of weights is that of these blocks, for all numbers of rows."""
    return max(1, min(-(-8 // (max(rows) * gates)), blocks))


def by_block(gates: NDArray[Any], lanes: int) -> NDArray[Any]:
    """Reorder [direction, gate, unit, k] to [k][direction, unit block, gate, lane], missing units zero."""
    directions, count, hidden, k = gates.shape
    blocks = -(-hidden // lanes)
    padded = np.zeros((directions, count, blocks * lanes, k), gates.dtype)
    padded[:, :, :hidden] = gates
    split = padded.reshape(directions, count, blocks, lanes, k)
    return np.ascontiguousarray(split.transpose(4, 0, 2, 1, 3)).reshape(k, -1)


def blocked_weights(gates: NDArray[Any], lanes: int, together: int) -> NDArray[Any]:
    """Reorder [direction, gate, unit, k] to [direction, unit block / together, k, together, gate, lane], flat.

    Blocks that are left over follow singly."""
    directions, count, _, k = gates.shape
    flat = by_block(gates, lanes).reshape(k, directions, -1, count * lanes)
    whole = flat.shape[2] // together * together
    first = flat[:, :, :whole].reshape(k, directions, -1, together * count * lanes)
    parts = [part.transpose(1, 2, 0, 3).reshape(directions, -1) for part in (first, flat[:, :, whole:])]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).reshape(-1)
