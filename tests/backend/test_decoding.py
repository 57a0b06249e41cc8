"""Operators of exported language models, compared with ONNX Runtime or the reference implementation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import TensorProto, helper
from rewrite.backend.ir.kernel_graph import Step
from rewrite.engine.ir.graph import DType

ort = pytest.importorskip("onnxruntime")
Array = NDArray[Any]
RNG = np.random.default_rng(31)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def model(
    op: str,
    feeds: Mapping[str, Array],
    inputs: str,
    outputs: str,
    dims: Mapping[str, tuple[int | str, ...]] | None = None,
    *,
    domain: str = "com.microsoft",
    opset: int = 21,
    more: tuple[onnx.NodeProto, ...] = (),
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node, after others; the inputs have named dims where given."""
    infos = [
        helper.make_tensor_value_info(name, DType.from_numpy(a.dtype).onnx, (dims or {}).get(name, a.shape))
        for name, a in feeds.items()
    ]
    named = [name.strip() for name in outputs.split(",")]
    node = helper.make_node(op, [i.strip() for i in inputs.split(",")], named, domain=domain, **attrs)
    results = [onnx.ValueInfoProto(name=name) for name in named if name]
    for info in results:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph([*more, node], "g", infos, results)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def runtime(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def check(proto: onnx.ModelProto, feeds: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    program = rewrite.compile(proto)
    assert not program.fallbacks()
    found = program.run(dict(feeds))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


_TOTAL = (
    helper.make_node("Shape", ["mask"], ["sizes"]),
    helper.make_node("Constant", [], ["one"], value_int=1),
    helper.make_node("Constant", [], ["axes"], value_ints=[1]),
    helper.make_node("Gather", ["sizes", "one"], ["total64"]),
    helper.make_node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
    helper.make_node("ReduceSum", ["mask", "axes"], ["counts"], keepdims=0),
    helper.make_node("Sub", ["counts", "one"], ["last"]),
    helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
)
"""How exporters compute the inputs of GroupQueryAttention from an attention mask."""

GROUPED = {
    "prompt": {"new": 5, "past": 0},
    "one": {"new": 1, "past": 6},
    "several": {"new": 3, "past": 6},
    "buffer": {"new": 1, "past": 6, "buffer": 16},
    "prompt_in_buffer": {"new": 5, "past": 0, "buffer": 16},
    "batch": {"new": 1, "past": 6, "buffer": 16, "batch": 2},
    "packed": {"new": 1, "past": 6, "packed": True},
    "interleaved": {"new": 3, "past": 2, "rotary_interleaved": 1},
    "partly_turned": {"new": 3, "past": 2, "half": 8},
    "unturned": {"new": 3, "past": 2, "do_rotary": 0},
    "window": {"new": 3, "past": 9, "local_window_size": 4, "buffer": 16},
    "window_at_one": {"new": 1, "past": 9, "local_window_size": 4},
    "capped": {"new": 3, "past": 2, "softcap": 0.7, "scale": 1.5},
}


@pytest.mark.parametrize("fixed", [False, True], ids=["symbolic", "fixed"])
@pytest.mark.parametrize("case", GROUPED)
def test_group_query_attention(case: str, fixed: bool) -> None:
    options: dict[str, Any] = dict(GROUPED[case])
    heads, groups, size, batch = 6, 2, 32, options.pop("batch", 1)
    new, past, half = options.pop("new"), options.pop("past"), options.pop("half", size // 2)
    length, total, packed = options.pop("buffer", past), past + new, options.pop("packed", False)
    widths = (heads * size, groups * size, groups * size)
    feeds = {"mask": np.ones((batch, total), np.int64)}
    feeds |= {"q": floats(batch, new, sum(widths) if packed else widths[0])}
    feeds |= {} if packed else {"k": floats(batch, new, widths[1]), "v": floats(batch, new, widths[2])}
    feeds |= {name: np.zeros((batch, groups, length, size), np.float32) for name in ("pk", "pv")}
    for name in ("pk", "pv"):
        feeds[name][:, :, :past] = floats(batch, groups, past, size)
    attrs = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1, **options}
    feeds |= {"c": floats(32, half), "s": floats(32, half)} if attrs["do_rotary"] else {}
    dims: dict[str, tuple[int | str, ...]] = {
        "mask": ("B", "T"), "q": ("B", "S", feeds["q"].shape[2]),
        "pk": ("B", groups, "P", size), "pv": ("B", groups, "P", size),
    }  # fmt: skip
    dims |= {name: ("B", "S", groups * size) for name in "kv" if name in feeds}
    inputs = f"q, {', ' if packed else 'k, v, '}pk, pv, lengths, total" + (", c, s" if attrs["do_rotary"] else "")
    inputs = inputs.replace("q, , pk", "q, , , pk")
    proto = model("GroupQueryAttention", feeds, inputs, "y, nk, nv", None if fixed else dims, more=_TOTAL, **attrs)
    expected = runtime(proto, feeds)
    check(proto, feeds, expected)


@pytest.mark.parametrize("case", ["plain", "bias", "past", "projected", "mask", "attention_bias"])
def test_multi_head_attention(case: str) -> None:
    new, keys = 3, 5
    feeds = {"q": floats(2, new, 24), "k": floats(2, keys, 24), "v": floats(2, keys, 30)}
    names = ["q", "k", "v", "", "", "", "", ""]
    if case == "bias":
        feeds["b"], names[3] = floats(78), "b"
    elif case == "past":
        feeds |= {"pk": floats(2, 3, 4, 8), "pv": floats(2, 3, 4, 8)}
        names[6:] = ["pk", "pv"]
        feeds |= {"k": floats(2, new, 24), "v": floats(2, new, 24)}
    elif case == "projected":
        feeds |= {"k": floats(2, 3, keys, 8), "v": floats(2, 3, keys, 8)}
    elif case == "mask":
        feeds["m"], names[4] = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32), "m"
    elif case == "attention_bias":
        feeds["a"], names[5] = floats(1, 3, new, keys), "a"
    outputs = "y, nk, nv" if case == "past" else "y"
    proto = model("MultiHeadAttention", feeds, ", ".join(names), outputs, num_heads=3)
    check(proto, feeds, runtime(proto, feeds))


@pytest.mark.parametrize("first", [False, True], ids=["positions", "first position"])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(first: bool, flat: bool, interleaved: int) -> None:
    x = floats(2, 5, 3 * 16) if flat else floats(2, 3, 5, 16)
    ids = np.array([4]) if first else RNG.integers(0, 9, (2, 5))
    feeds = {"x": x, "i": ids, "c": floats(9, 8), "s": floats(9, 8)}
    proto = model("RotaryEmbedding", feeds, "x, i, c, s", "y", interleaved=interleaved)
    check(proto, feeds, runtime(proto, feeds))


def reference(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    from onnx.reference import ReferenceEvaluator

    results = ReferenceEvaluator(proto).run(None, dict(feeds))
    return dict(zip([o.name for o in proto.graph.output], results, strict=True))


ATTENTION: dict[str, dict[str, Any]] = {
    "past": {},
    "causal": {"is_causal": 1},
    "mask": {"mask": (2, 1, 3, 10)},
    "flat": {"is_causal": 1, "q_num_heads": 6, "kv_num_heads": 2},
    "one": {"is_causal": 1, "new": 1, "q_num_heads": 6, "kv_num_heads": 2},
    "capped": {"is_causal": 1, "softcap": 2.0, "scale": 0.3},
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_with_a_cache(case: str) -> None:
    options = dict(ATTENTION[case])
    new, past = options.pop("new", 3), 7
    flat = "q_num_heads" in options
    feeds = {
        name: floats(2, new, heads * size) if flat else floats(2, heads, new, size)
        for name, heads, size in (("q", 6, 8), ("k", 2, 8), ("v", 2, 10))
    }
    feeds |= {"pk": floats(2, 2, past, 8), "pv": floats(2, 2, past, 10)}
    if shape := options.pop("mask", None):
        feeds["m"] = floats(*shape)
    inputs = f"q, k, v, {'m' if 'm' in feeds else ''}, pk, pv"
    dims: dict[str, tuple[int | str, ...]] = {name: (2, 2, "P", feeds[name].shape[3]) for name in ("pk", "pv")}
    for named in (None, dims):
        if not named or "m" not in feeds:
            proto = model("Attention", feeds, inputs, "y, nk, nv", named, domain="", opset=24, **options)
            check(proto, feeds, reference(proto, feeds))


def test_a_cache_of_fixed_size() -> None:
    """TensorScatter into the cache, then attention over the valid keys: opset 24's form of a decoder."""
    feeds = {"q": floats(2, 6, 1, 8), "k": floats(2, 2, 1, 8), "v": floats(2, 2, 1, 10), "at": np.array([5, 2])}
    feeds |= {"pk": floats(2, 2, 16, 8), "pv": floats(2, 2, 16, 10), "n": np.array([6, 3])}
    scatters = (
        helper.make_node("TensorScatter", ["pk", "k", "at"], ["nk"]),
        helper.make_node("TensorScatter", ["pv", "v", "at"], ["nv"]),
    )
    proto = model("Attention", feeds, "q, nk, nv, , , , n", "y", domain="", opset=24, is_causal=1, more=scatters)
    for name in ("nk", "nv"):
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    check(proto, feeds, reference(proto, feeds))


_EXPORTED = """<ir_version: 10, opset_import: ["": 18]> g
 (float[1, S, 128] x, float[1, 2, P, 32] pk, float[1, 2, P, 32] pv, int64[1, S] ids, float[1, 1, S, M] mask,
  float[128, 128] wq, float[128, 64] wk, float[128, 64] wv, float[16] freq)
 => (float[1, S, 128] y, float[1, 2, T, 32] nk, float[1, 2, T, 32] nv) {
 zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
 three = Constant<value_ints = [3]>() four = Constant<value_ints = [4]>() half = Constant<value_ints = [16]>()
 size = Constant<value_ints = [32]>() end = Constant<value_ints = [9223372036854775807]>()
 q_shape = Constant<value_ints = [1, -1, 4, 32]>() k_shape = Constant<value_ints = [1, -1, 2, 32]>()
 qp = MatMul(x, wq) qr = Reshape(qp, q_shape) q = Transpose<perm = [0, 2, 1, 3]>(qr)
 kp = MatMul(x, wk) kr = Reshape(kp, k_shape) k = Transpose<perm = [0, 2, 1, 3]>(kr)
 vp = MatMul(x, wv) vr = Reshape(vp, k_shape) v = Transpose<perm = [0, 2, 1, 3]>(vr)
 place = Cast<to = 1>(ids) places = Unsqueeze(place, two) angles = Mul(places, freq)
 both = Concat<axis = -1>(angles, angles) cosine = Cos(both) sine = Sin(both)
 c = Unsqueeze(cosine, one) s = Unsqueeze(sine, one)
 q1 = Slice(q, zero, half, three, one) q2 = Slice(q, half, end, three, one) qn = Neg(q2) qh = Concat<axis = -1>(qn, q1)
 qc = Mul(q, c) qs = Mul(qh, s) qt = Add(qc, qs)
 k1 = Slice(k, zero, half, three, one) k2 = Slice(k, half, end, three, one) kn = Neg(k2) kh = Concat<axis = -1>(kn, k1)
 kc = Mul(k, c) ks = Mul(kh, s) kt = Add(kc, ks)
 nk = Concat<axis = 2>(pk, kt) nv = Concat<axis = 2>(pv, v)
 shape = Shape(nk) length = Gather(shape, two)
 expanded = Concat<axis = 0>(one, two, two, length, size) repeated = Concat<axis = 0>(one, four, length, size)
 ku = Unsqueeze(nk, two) ke = Expand(ku, expanded) keys = Reshape(ke, repeated)
 vu = Unsqueeze(nv, two) ve = Expand(vu, expanded) values = Reshape(ve, repeated)
 turned = Transpose<perm = [0, 1, 3, 2]>(keys) products = MatMul(qt, turned)
 scale = Constant<value_float = 0.17677669>() scaled = Mul(products, scale) masked = Add(scaled, mask)
 weights = Softmax<axis = -1>(masked) heads = MatMul(weights, values) rows = Transpose<perm = [0, 2, 1, 3]>(heads)
 y_shape = Constant<value_ints = [1, -1, 128]>() y = Reshape(rows, y_shape) }"""
"""A layer as PyTorch's exporters write it: rotate_half, repeat_kv, a cache that grows and a mask that is added."""


@pytest.mark.parametrize("mask", ["P + S", None], ids=["symbolic", "fixed"])
def test_a_layer_exported_from_pytorch(mask: str | None) -> None:
    """Positions turn heads in a kernel of their own, and attention reads shared heads without copies."""
    proto = onnx.parser.parse_model(_EXPORTED)
    new, past = (1, 5) if mask is None else (3, 4)
    sizes = {"S": new, "P": past, "M": new + past, "T": new + past}
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and mask is None:
                dim.dim_value = sizes[dim.dim_param]
            elif dim.dim_param in ("M", "T"):
                dim.dim_param = "P + S"
    feeds: dict[str, Array] = {}
    for value in [*proto.graph.input]:
        shape = [d.dim_value or sizes.get(d.dim_param, new + past) for d in value.type.tensor_type.shape.dim]
        array = floats(*shape) if value.name != "ids" else np.arange(past, past + new).reshape(1, new)
        if value.name in ("wq", "wk", "wv", "freq"):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array * np.float32(0.1), value.name))
            proto.graph.input.remove(value)
        else:
            feeds[value.name] = array
    check(proto, feeds, runtime(proto, feeds))
    steps = [item for item in rewrite.compile(proto).plan.items if isinstance(item, Step)]
    templates = [step.kernel.template for step in steps]
    assert templates.count("rotary") == 2
    assert templates.count("attention") == 1
    assert templates.count("copy") <= 2 + (mask is not None)  # the caches, and the values' transposition


def test_simplified_layer_normalization() -> None:
    """ONNX Runtime's operator in the standard's domain; the optimized model has it under the same name."""
    feeds = {"x": floats(2, 5, 16), "g": floats(16)}
    proto = model("SimplifiedLayerNormalization", feeds, "x, g", "y", domain="", epsilon=1e-3, axis=-1)
    check(proto, feeds, runtime(proto, feeds))
    written = rewrite.optimize(proto).model
    assert [(n.domain, n.op_type) for n in written.graph.node] == [("", "SimplifiedLayerNormalization")]
    check(written, feeds, runtime(proto, feeds))
