"""Likely sizes of free dims, by the inputs that have them, and the choices that follow."""

from __future__ import annotations

import pytest
from rewrite.engine.cost.likely_sizes import BATCH, DENSE, FRAMES, IMAGE, SAMPLES, SEQUENCE, VOLUME, likely_sizes
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType


def graph(**inputs: tuple[DType, str]) -> Graph:
    found = Graph(inputs=tuple(inputs), outputs=(), nodes=[], constants={}, opset={"": 21})
    for name, (dtype, shape) in inputs.items():
        found.types[name] = TensorType(dtype, tuple(parse(dim) for dim in shape.split()))
    return found


@pytest.mark.parametrize(
    ("dtype", "shape", "sizes"),
    [
        (DType.F32, "b 3 h w", {"b": BATCH, "h": IMAGE, "w": IMAGE}),
        (DType.U8, "b h w 3", {"b": BATCH, "h": IMAGE, "w": IMAGE}),
        (DType.F32, "b 3 48 w", {"b": BATCH, "w": IMAGE}),
        (DType.F32, "b 1 d h w", {"b": BATCH, "d": VOLUME, "h": VOLUME, "w": VOLUME}),
        (DType.I64, "b s", {"b": BATCH, "s": SEQUENCE}),
        (DType.F32, "b s", {"b": BATCH, "s": SAMPLES}),
        (DType.F32, "b s 768", {"b": BATCH, "s": SEQUENCE}),
        (DType.F32, "b 80 t", {"b": BATCH, "t": FRAMES}),
        (DType.F32, "b 12 past 64", {"b": BATCH, "past": SEQUENCE}),
        (DType.F32, "2 batch 128", {"batch": BATCH}),
        (DType.F32, "1 3 224 224", {}),
        (DType.F32, "b 2*h", {"b": BATCH}),
    ],
)
def test_ranks_and_types_decide(dtype: DType, shape: str, sizes: dict[str, int]) -> None:
    assert likely_sizes(graph(x=(dtype, shape))) == sizes


def test_the_first_input_decides() -> None:
    assert likely_sizes(graph(ids=(DType.I64, "b s"), mask=(DType.F32, "b s"))) == {"b": BATCH, "s": SEQUENCE}


def test_images_are_larger_where_results_grow_with_them() -> None:
    found = graph(x=(DType.F32, "b 3 h w"), y=(DType.F32, "b 84 (h+31)//32*8"))
    found.inputs, found.outputs = ("x",), ("y",)
    assert likely_sizes(found) == {"b": BATCH, "h": DENSE, "w": IMAGE}


def test_floats_that_become_integers_are_tokens() -> None:
    found = graph(x=(DType.F32, "b s"))
    assert likely_sizes(found)["s"] == SAMPLES
    found.nodes.append(Node("Cast", ("x",), ("i",), {"to": DType.I32.onnx}))
    assert likely_sizes(found)["s"] == SEQUENCE
    found.nodes[-1] = Node("Cast", ("x",), ("i",), {"to": DType.F64.onnx})
    assert likely_sizes(found)["s"] == SAMPLES
