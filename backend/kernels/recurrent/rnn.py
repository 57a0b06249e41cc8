"""Lowering of RNN, LSTM and GRU: one GEMM for the input contributions to all gates at all times, then the time loop.

Weights are reordered: units in blocks of one vector, and within a block all gates, so that a time step finds everything
about VL units side by side (see `recurrent.c.j2`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, minimum, product
from ...codegen.template_params import float_attr, int_attr, launch, serial_below
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..gemm.epilogue import Epilogue, Operand
from ..gemm.matmul import gemm_steps
from ..gemm.problem import SMALL_WORK, UNBATCHED, GemmProblem, Matrices
from ..registry import lowering

_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_ACTIVATIONS = {"RNN": ("tanh",), "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
_KNOWN = frozenset(("tanh", "sigmoid", "relu", "leakyrelu", "hardsigmoid", "softsign", "softplus"))
"""Activations of the kernel, each with its default numbers."""
_BACKWARDS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
"""Whether time runs backwards, for each direction of a layer."""


@lowering("RNN", "LSTM", "GRU", f64=True)
def lower_recurrent(group: Group, ctx: Context) -> list[Step] | None:
    """Layer with constant weights and peepholes, the same activations in both directions, and lengths of sequences."""
    node = group.node
    op, count = node.op, _GATES[node.op]
    inputs = [*node.inputs, *[""] * (8 - len(node.inputs))]
    x, weights, activations = ctx.type(inputs[0]), _weights(inputs, count, ctx), activations_of(node, op)
    if len(group.nodes) != 1 or activations is None or x.shape is None or x.dtype is not ctx.real:
        return None
    peepholes = ctx.constant(inputs[7]) if inputs[7] else None
    if weights is None or (inputs[7] and (peepholes is None or peepholes.array.dtype != ctx.real.numpy)):
        return None
    if inputs[4] and ctx.type(inputs[4]).dtype is not DType.I32:
        return None
    w, r, wb, rb = weights
    directions, _, hidden, _ = r.shape
    by_batch = bool(node.attrs.get("layout", 0))
    time, batch = (x.shape[1], x.shape[0]) if by_batch else (x.shape[0], x.shape[1])
    lanes = ctx.target.lanes
    late = op == "GRU" and not node.attrs.get("linear_before_reset", 0)

    bias = wb + rb
    if op == "GRU" and not late:  # the recurrent bias of the third gate is subject to the reset
        bias[:, 2] = wb[:, 2]

    columns = by_block(w, lanes)  # [input][direction, block, gate, lane]
    k, n = columns.shape
    m, packed = product(x.shape[:-1]), ctx.add_constant(columns, "inputs")
    gates = ctx.new_value(TensorType(ctx.real, (m, n)), "gates")
    summand = Operand(ctx.add_constant(by_block(bias[..., None], lanes)[0], "bias"), (0, 0, 1))
    left, right = Matrices(inputs[0], UNBATCHED, k, 1), Matrices(packed, UNBATCHED, n, 1)
    added = Epilogue((summand,), (), "x + e0", gates)
    steps = gemm_steps(GemmProblem(group, added, left, right, (), m, n, k, k), ctx)
    early = 2 if late else count
    rows = row_blocks(batch, count, ctx.target.registers)
    together = [units_together(rows, gates_, -(-hidden // lanes)) for gates_ in (early, 1)]
    recurrent = {"weights": ctx.add_constant(blocked_weights(r[:, :early], lanes, together[0]), "recurrent")}
    if late:
        recurrent["late"] = ctx.add_constant(blocked_weights(r[:, 2:], lanes, together[1]), "recurrent")
    elif op == "GRU":
        recurrent["bias"] = ctx.add_constant(by_block(rb[:, 2:, :, None], lanes)[0], "bias")
    recurrent |= {key: value for key, value in zip(("h0", "c0"), inputs[5:7], strict=True) if value}
    if peepholes is not None:
        padded = np.zeros((directions, 3, -(-hidden // lanes) * lanes), peepholes.array.dtype)
        padded[:, :, :hidden] = peepholes.array.reshape(directions, 3, hidden)
        recurrent["peepholes"] = ctx.add_constant(padded, "peepholes")
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
        "by_batch": by_batch,
        "inputs": ["x", *recurrent],
        "outputs": list(outputs),
        "scratch": scratch,
    }
    kernel, inputs_ = Kernel("recurrent", params), (steps[-1].outputs[0], *recurrent.values())
    threads = serial_below(work * minimum(1, directions * batch - 1), SMALL_WORK)
    return [*steps, launch(kernel, group, inputs_, outputs.values(), extents, threads, scratch=scratch)]


def _weights(inputs: list[str], count: int, ctx: Context) -> tuple[NDArray[Any], ...] | None:
    """Return W and R as [direction, gate, unit, k] and both biases as [direction, gate, unit]; None if not constant."""
    constants = [ctx.constant(v) for v in inputs[1:4]]
    if any(v and c is None for v, c in zip(inputs[1:4], constants, strict=True)):
        return None
    arrays = [c.array for c in constants if c is not None]
    if any(array.dtype != ctx.real.numpy for array in arrays):
        return None
    directions, _, hidden = arrays[1].shape
    w, r = (array.reshape(directions, count, hidden, -1) for array in arrays[:2])
    biases: NDArray[Any] = np.zeros((2, directions, count, hidden), arrays[0].dtype)
    if len(arrays) > 2:
        biases = arrays[2].reshape(directions, 2, count, hidden).swapaxes(0, 1)
    return w, r, *biases


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


def row_blocks(batch: Dim, gates: int, registers: int) -> list[int]:
    """Return the numbers of batch rows computed together, descending: equal ones and what is left, or down to 1."""
    most = (registers - gates - 2) // gates
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
