"""Forward type inference over the nodes of a graph, and completion of types."""

from __future__ import annotations

from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import DType, Node, OtherType, TensorType, ValueType
from rewrite.engine.operators.inference import IllTyped
from rewrite.engine.operators.type_inference import FreshSymbols, TypeEnvironment, complete_type

F32 = DType.F32


def f32(*dims: str | int) -> TensorType:
    return TensorType(F32, tuple(parse(str(d)) for d in dims))


def environment(**types: ValueType) -> TypeEnvironment:
    return TypeEnvironment(FreshSymbols("_t", set()), dict(types))


def unchanged(name: str, kind: ValueType) -> ValueType:
    return kind


def test_types_and_contents_flow_from_node_to_node() -> None:
    known = environment(x=f32("N", 4))
    for node in (Node("Shape", ("x",), ("s",), {"start": 0}), Node("Expand", ("one", "s"), ("y",))):
        known.types["one"] = f32()
        known.record(node, known.infer(node), unchanged)
    assert known.contents["s"].dims == (parse("N"), 4)
    assert known.type("y") == f32("N", 4)
    assert known.type("s") == TensorType(DType.I64, (2,))


def test_a_node_that_always_fails_has_unknown_outputs_and_the_error() -> None:
    found = environment(a=f32(3), b=f32(4)).infer(Node("Add", ("a", "b"), ("c",)))
    assert isinstance(found.error, IllTyped)
    assert found.types == (TensorType(),)


def test_outputs_without_names_are_not_recorded() -> None:
    known = environment(x=f32(2, 3))
    node = Node("MaxPool", ("x",), ("y", ""), {"kernel_shape": (1,)})
    known.record(node, known.infer(node), unchanged)
    assert set(known.types) == {"x", "y"}


def test_one_description_completes_another() -> None:
    def complete(a: ValueType, b: ValueType, prefer: bool = False) -> ValueType:
        return complete_type(a, b, lambda x, y: prefer)

    assert complete(TensorType(F32), TensorType(DType.F16, (2,))) == f32(2)
    assert complete(TensorType(None, (3,)), f32(2)) == f32(3)
    assert complete(f32("N"), f32(2), prefer=True) == f32(2)
    assert complete(f32("N", 1), f32(2), prefer=True) == f32("N", 1)  # of different ranks
    assert complete(TensorType(), OtherType(b"")) == OtherType(b"")
    assert complete(f32(2), OtherType(b"")) == f32(2)


def test_fresh_symbols_are_not_taken() -> None:
    taken = {"v0", "v2"}
    fresh = FreshSymbols("v", taken)
    assert [str(fresh()) for _ in range(3)] == ["v1", "v3", "v4"]
    assert fresh.made == {"v1", "v3", "v4"} < taken
