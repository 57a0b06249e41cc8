"""Lowering of RNN, LSTM and GRU: one GEMM for what the inputs give to all gates at all times, then the time loop.

Gates and hidden units are laid out anew: units in blocks of one vector, and within a block all gates, so that a step in
time finds everything about VL units side by side (see `templates/recurrent.pyx.j2`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, minimum, product
from ..iteration import Extents, contiguous
from ..lower import Context, Group, Kernel, Step, lowering
from ..template_params import serial_below
from .epilogue import Epilogue, Operand
from .matmul import SMALL_WORK, Matrices, Product, lower_product

_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_ACTIVATIONS = {"RNN": ("tanh",), "LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
_BACKWARDS = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}


@lowering("RNN", "LSTM", "GRU")
def lower_recurrent(group: Group, ctx: Context) -> list[Step] | None:
    """A layer with constant weights and the default activations; without sequence lengths, peepholes or clip."""
    node = group.anchor
    assert node is not None
    op, count = node.op, _GATES[node.op]
    inputs = [*node.inputs, *[""] * (8 - len(node.inputs))]
    x = ctx.type(inputs[0])
    constants = [ctx.constant(v) for v in inputs[1:4]]
    if len(group.nodes) != 1 or not _plain(node, inputs) or x.shape is None or x.dtype is not DType.F32:
        return None
    if constants[0] is None or constants[1] is None or (inputs[3] and constants[2] is None):
        return None
    if any(c is not None and c.type.dtype is not DType.F32 for c in constants):
        return None
    directions, _, hidden = constants[1].array.shape
    backwards = _BACKWARDS[str(node.attrs.get("direction", "forward"))]
    by_batch = bool(node.attrs.get("layout", 0))
    time, batch = (x.shape[1], x.shape[0]) if by_batch else (x.shape[0], x.shape[1])
    lanes = ctx.target.lanes
    late = op == "GRU" and not node.attrs.get("linear_before_reset", 0)

    w, r = (c.array.reshape(directions, count, hidden, -1) for c in constants[:2] if c is not None)
    biases: NDArray[Any] = np.zeros((2, directions, count, hidden), np.float32)
    if constants[2] is not None:
        biases = constants[2].array.reshape(directions, 2, count, hidden).swapaxes(0, 1)
    wb, rb = biases
    bias = wb + rb
    if op == "GRU" and not late:
        bias = np.stack([bias[:, 0], bias[:, 1], wb[:, 2]], axis=1)  # the third gate's own one is under the reset

    columns = _by_block(w, lanes)  # [input][direction, block, gate, lane]
    steps = _contributions(group, ctx, inputs[0], x, columns, _by_block(bias[..., None], lanes)[0])
    kept = 2 if late else count
    recurrent = {"weights": ctx.add_constant(_blocks(r[:, :kept], lanes), "recurrent")}
    if late:
        recurrent["late"] = ctx.add_constant(_blocks(r[:, 2:], lanes), "recurrent")
    elif op == "GRU":
        recurrent["bias"] = ctx.add_constant(_by_block(rb[:, 2:, :, None], lanes)[0], "bias")
    for key, value in (("h0", inputs[5]), ("c0", inputs[6])):
        if value:
            recurrent[key] = value
    outputs = {
        key: value
        for key, value in zip(("y", "y_h", "y_c"), node.outputs, strict=False)
        if value and value in group.outputs
    }
    rows = _rows(batch, count, ctx.target.registers)
    width = -(-hidden // lanes) * lanes
    extents = Extents()
    work = product((time, batch, directions * count * hidden * hidden))  # a sequence is done by one thread
    params = {
        "op": op,
        "late": late,
        "t": extents(time),
        "batch": extents(batch),
        "hidden": hidden,
        "directions": directions,
        "backwards": list(backwards),
        "rows": rows,
        "by_batch": by_batch,
        "inputs": ["x", *recurrent],
        "outputs": list(outputs),
        "scratch": -(-4 * rows[0] * width * 4 // 64) * 64,
    }
    steps.append(
        Step(
            Kernel("recurrent", params, 2.0 + len(rows)),
            (steps[-1].outputs[0], *recurrent.values()),
            tuple(outputs.values()),
            dims=tuple(extents.dims),
            scratch=int(params["scratch"]),
            threads=serial_below(work * minimum(1, directions * batch - 1), SMALL_WORK),
            nodes=(node.name,),
        )
    )
    return steps


def _plain(node: Node, inputs: list[str]) -> bool:
    """Whether nothing is asked for that the kernel doesn't do."""
    given: Any = node.attrs.get("activations") or ()
    usual = _ACTIVATIONS[node.op]
    return (
        not inputs[4]
        and not inputs[7]
        and not node.attrs.get("clip")
        and not node.attrs.get("input_forget")
        and (not given or tuple(str(a).lower() for a in given) == usual * (len(given) // len(usual)))
        and not node.attrs.get("activation_alpha")
        and not node.attrs.get("activation_beta")
        and str(node.attrs.get("direction", "forward")) in _BACKWARDS
    )


def _rows(batch: Dim, gates: int, registers: int) -> list[int]:
    """The numbers of batch rows done together, descending; the last is 1."""
    most = (registers - gates - 2) // gates
    if isinstance(batch, int):
        most = max(1, min(most, batch))
    rows = [most]
    while rows[-1] > 1:
        rows.append(rows[-1] // 2)
    return rows


def _by_block(gates: NDArray[Any], lanes: int) -> NDArray[Any]:
    """[direction, gate, unit, k] as [k][direction, unit block, gate, lane], missing units zero."""
    directions, count, hidden, k = gates.shape
    blocks = -(-hidden // lanes)
    padded = np.zeros((directions, count, blocks * lanes, k), np.float32)
    padded[:, :, :hidden] = gates
    split = padded.reshape(directions, count, blocks, lanes, k)
    return np.ascontiguousarray(split.transpose(4, 0, 2, 1, 3)).reshape(k, -1)


def _blocks(gates: NDArray[Any], lanes: int) -> NDArray[Any]:
    """[direction, gate, unit, k] as [direction, unit block, k, gate, lane], flat."""
    directions, count, _, k = gates.shape
    flat = _by_block(gates, lanes).reshape(k, directions, -1, count, lanes)
    return np.ascontiguousarray(flat.transpose(1, 2, 0, 3, 4)).reshape(-1)


def _contributions(
    group: Group, ctx: Context, x: str, kind: TensorType, columns: NDArray[Any], bias: NDArray[Any]
) -> list[Step]:
    """The GEMM steps for x * W + bias; the last one's output is `[rows of x][columns]`."""
    assert kind.shape is not None
    k, n = columns.shape
    rows = product(kind.shape[:-1])
    packed = ctx.add_constant(columns, "inputs")
    none = contiguous("", ())
    output = ctx.new_value(TensorType(DType.F32, (rows, n)), "gates")
    added = Epilogue((Operand(ctx.add_constant(bias, "bias"), (0, 0, 1)),), (), "x + e0", output, ())
    left, right = Matrices(x, none, k, 1), Matrices(packed, none, n, 1)
    return lower_product(Product(left, right, (), rows, n, k), added, group, ctx)
