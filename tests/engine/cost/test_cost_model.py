from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rewrite.engine.cost.conv_cycles import (
    FILTERED_CHANNELS,
    Axis,
    Convolution,
    _or_winograd,
    conv_int8_nhwc,
    conv_nhwc,
    pool_taps,
    share_read,
)
from rewrite.engine.cost.cost_model import MODELS, CostModel
from rewrite.engine.cost.kernel_constants import KernelConstants
from rewrite.engine.cost.machine import Machine
from rewrite.engine.cost.operator_cost import Estimator, Kind
from rewrite.engine.ir.graph import AttrValue, Constant, DType, Graph, Node, OtherType, TensorType

F32 = DType.F32


def t(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def work(op: str, inputs: list[TensorType | None], output: TensorType, **attrs: AttrValue) -> float:
    return Estimator().work(op, attrs, inputs, [output]).flops


def test_arithmetic_of_the_heavy_operators() -> None:
    assert work("Conv", [t(1, 16, 8, 8), t(32, 16, 3, 3)], t(1, 32, 6, 6)) == 2 * 32 * 36 * 16 * 9
    assert work("Conv", [t(1, 16, 8, 8), t(16, 1, 3, 3)], t(1, 16, 6, 6), group=16) == 2 * 16 * 36 * 9
    assert work("ConvTranspose", [t(1, 16, 8, 8), t(16, 4, 2, 2)], t(1, 4, 16, 16)) == 2 * 16 * 64 * 4 * 4
    assert work("MatMul", [t(7, 5, 3), t(3, 4)], t(7, 5, 4)) == 2 * 7 * 5 * 4 * 3
    assert work("Gemm", [t(3, 5), t(3, 4)], t(5, 4), transA=1) == 2 * 5 * 4 * 3
    assert work("Einsum", [t(2, 3), t(3, 4)], t(2, 4), equation="ij,jk->ik") == 2 * 2 * 3 * 4
    assert work("MaxPool", [t(1, 1, 8, 8)], t(1, 1, 4, 4), kernel_shape=(2, 2)) == 4 * 16
    attention = work("Attention", [t(1, 8, 10, 64), t(1, 8, 20, 64), t(1, 8, 20, 32)], t(1, 8, 10, 32))
    products = 2 * 8 * 10 * 20 * (64 + 32)
    assert products < attention < 2 * products
    assert work("LSTM", [t(5, 2, 16), t(1, 32, 16), t(1, 32, 8)], t(5, 1, 2, 8)) >= 2 * 5 * 2 * (32 * 16 + 32 * 8)


def test_gathering_reads_only_the_gathered_rows() -> None:
    found = Estimator().work("Gather", {}, [t(30_000, 768), t(8, dtype=DType.I64)], [t(8, 768)])
    assert found.bytes < 200_000


def test_a_sequence_costs_what_goes_in_and_out_of_it() -> None:
    x, part, number, sequence = t(64, 2304), t(64, 768), t(dtype=DType.I64), OtherType(b"")
    whole = Estimator().work("Split", {"axis": 1}, [x], [part] * 3).bytes
    cut = Estimator().work("SplitToSequence", {"axis": 1, "keepdims": 1}, [x, number], [sequence]).bytes
    taken = Estimator().work("SequenceAt", {}, [sequence, number], [part]).bytes
    assert cut + 3 * taken > 1.9 * whole


def test_operators_marked_with_a_version_have_their_work() -> None:
    assert Estimator().work("BatchNormalization@8", {}, [t(1, 4)], [t(1, 4)]).kind is Kind.REDUCTION


def test_work_inside_control_flow_is_counted() -> None:
    body = Graph(nodes=[Node("MatMul", ("a", "b"), ("c",))], types={"a": t(64, 64), "b": t(64, 64), "c": t(64, 64)})
    once = Estimator().work("If", {"then_branch": body, "else_branch": Graph()}, [t()], [t(64, 64)])
    many = Estimator().work("Loop", {"body": body}, [t()], [t(64, 64)])
    assert once.flops >= 2 * 64**3
    assert many.flops > 10 * once.flops


def test_an_empty_convolution_inside_control_flow_costs_nothing() -> None:
    """It has no channels to add up: 0 operations, at no efficiency."""
    types = {"a": t(3, 0, 8, 8), "w": t(1, 0, 1, 1), "c": t(3, 1, 8, 8)}
    body = Graph(nodes=[Node("Conv", ("a", "w"), ("c",), {"group": 1})], types=types)
    assert Estimator().work("Loop", {"body": body}, [t()], [t(3, 1, 8, 8)]).flops == 0


MACHINE = Machine()
X = t(1, 64, 56, 56)
W = t(64, 64, 3, 3)
V = t(64)


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", MODELS)
def test_preferences(name: str, target: str) -> None:
    cost = CostModel(name, target, MACHINE)  # type: ignore[arg-type]

    def price(op: str, *inputs: TensorType, out: TensorType = X, consts: int = 0, **attrs: AttrValue) -> float:
        mask = [k >= len(inputs) - consts for k in range(len(inputs))]
        return cost.node_cost(op, attrs, inputs, [out], mask)

    stored = cost.constant_cost
    conv = price("Conv", X, W, V, consts=2) + stored(W) + stored(V)
    assert conv < conv + price("BatchNormalization", X, V, V, V, V, consts=4) + 4 * stored(V)
    assert price("Gelu", X) < price("Div", X, t(), consts=1) + price("Erf", X) + price("Add", X, t()) + price(
        "Mul", X, X
    ) + price("Mul", X, t())
    rows, column, vector = t(8, 128, 768), t(8, 128, 1), t(768)
    parts = (
        price("ReduceMean", rows, out=column)
        + price("Sub", rows, column, out=rows)
        + price("Mul", rows, rows, out=rows)
        + price("ReduceMean", rows, out=column)
        + price("Div", rows, column, out=rows)
        + price("Mul", rows, vector, out=rows, consts=1)
    )
    assert price("LayerNormalization", rows, vector, vector, out=rows, consts=2) < parts
    q, scores = t(1, 12, 128, 64), t(1, 12, 128, 128)
    apart = (
        price("MatMul", q, t(1, 12, 64, 128), out=scores)
        + price("Softmax", scores, out=scores)
        + price("MatMul", scores, q, out=q)
    )
    assert price("Attention", q, q, q, out=q) < apart + price("Mul", scores, t(), out=scores)
    assert price("Reshape", X, t(2, dtype=DType.I64), consts=1) > 0
    assert 0 <= price("Mul", W, V, out=W, consts=2) <= stored(W)


def test_targets_price_pointwise_nodes_and_views_differently() -> None:
    portable, native = (CostModel("latency", target, MACHINE) for target in ("portable", "native"))  # type: ignore[arg-type]
    for op in ("Relu", "Reshape"):
        assert native.node_cost(op, {}, [X], [X]) < portable.node_cost(op, {}, [X], [X]) / 2
    alone = native.node_cost("Relu", {}, [X], [X], joins=False)
    assert alone > native.node_cost("Relu", {}, [X], [X])
    assert native.node_cost("Add", {}, [X, X], [X]) > native.node_cost("Add", {}, [X, V], [X])


def test_images_of_16_bits_take_half_the_bytes() -> None:
    """In our kernels widening is free, and pools read pixels in less time."""
    halves, floats = t(1, 32, 32, 64, dtype=DType.BF16), t(1, 32, 32, 64)
    estimator = Estimator(lanes=16)
    assert estimator.work("Cast", {"to": F32.onnx}, [halves], [floats]).flops == 0
    assert estimator.work("Cast", {"to": F32.onnx}, [t(1, 32, 32, 64, dtype=DType.I32)], [floats]).flops > 0
    attrs: dict[str, AttrValue] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    works = [
        estimator.work("rewrite.ChannelsLastMaxPool", attrs, [t(1, 32, 32, 64, dtype=d)], [t(1, 16, 16, 64, dtype=d)])
        for d in (DType.BF16, F32)
    ]
    assert works[0].flops == works[1].flops
    assert works[0].efficiency > works[1].efficiency


def test_constants_cost_what_storing_them_costs() -> None:
    cost = CostModel(machine=MACHINE)
    assert cost.constant_cost(t(1000, 1000)) > cost.constant_cost(t(10, 10)) > 0
    assert CostModel("memory", machine=MACHINE).constant_cost(t(10, 10)) >= 400


def test_graph_cost_leaves_out_what_is_evaluated_beforehand() -> None:
    types = {"x": t(4, 4), "y": t(4, 4), "k": t(4, 4), "a": t(4, 4), "b": t(4, 4)}
    constants = {"a": Constant(np.ones((4, 4), np.float32)), "b": Constant(np.full((4, 4), 2, np.float32))}
    product = Node("Mul", ("a", "b"), ("k",))
    whole = Graph(("x",), ("y",), [product, Node("Add", ("x", "k"), ("y",))], constants, types)
    folded = Graph(("x",), ("y",), [Node("Add", ("x", "a"), ("y",))], constants, types)
    cost = CostModel(machine=MACHINE)
    assert cost.graph_cost(whole) == pytest.approx(cost.graph_cost(folded))
    drawn = Graph(("x",), ("y",), [Node("RandomNormalLike", ("a",), ("y",))], constants, types)
    assert cost.graph_cost(drawn) >= MACHINE.dispatch


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ValueError, match="speed"):
        CostModel("speed")  # type: ignore[arg-type]


def test_a_file_has_activations_of_convolutions_for_nothing() -> None:
    portable, native = CostModel(target="portable"), CostModel(target="native")
    assert portable.fuses("Relu", ["Identity", "Conv"])
    assert not portable.fuses("Sigmoid", ["Conv"])  # SiLU reads the convolution twice
    assert not portable.fuses("Relu", ["Add"])
    assert not native.fuses("Relu", ["Conv"])
    assert portable.hides("Flatten", ["DequantizeLinear"])
    assert not portable.hides("Flatten", ["Conv"])
    assert not native.hides("Flatten", ["DequantizeLinear"])
    image = t(1, 8, 64, 64)
    convolution = Node("Conv", ("x", "w"), ("c",))
    graphs = [Graph(("x",), ("y",), [convolution, Node(op, ("c",), ("y",))]) for op in ("Relu", "Sigmoid")]
    for graph in graphs:
        graph.types.update(x=image, c=image, y=image, w=t(8, 8, 1, 1))
        graph.constants["w"] = Constant(np.ones((8, 8, 1, 1), np.float32))
    relu, sigmoid = (portable.node_costs(graph)[1] for graph in graphs)
    assert relu < sigmoid / 100


def test_a_pointwise_node_joins_no_kernel_that_moves_elements() -> None:
    native = CostModel(target="native", machine=MACHINE)
    x = t(1, 64, 56, 56)
    joined = Graph(("x",), ("z",), [Node("MaxPool", ("x",), ("y",)), Node("Relu", ("y",), ("z",))])
    apart = Graph(("x",), ("z",), [Node("Concat", ("x", "x"), ("y",), {"axis": 0}), joined.nodes[1]])
    for graph in (joined, apart):
        graph.types.update(x=x, y=x, z=x)
    assert native.node_costs(apart)[1] > 2 * native.node_costs(joined)[1]


def test_a_factor_for_each_channel_that_is_computed_needs_a_kernel_of_its_own() -> None:
    native = CostModel(target="native", machine=MACHINE)
    image, gate = t(1, 64, 56, 56), t(1, 64, 1, 1)
    assert native.node_cost("Mul", {}, [image, gate], [image]) > 2 * native.node_cost("Add", {}, [image, gate], [image])
    assert native.node_cost("Mul", {}, [image, gate], [image], [False, True]) < native.node_cost(
        "Mul", {}, [image, gate], [image]
    )


def test_a_factor_for_each_row_that_is_computed_needs_a_kernel_of_its_own() -> None:
    """The kernel that makes rows cannot multiply by what is computed from whole ones."""
    native = CostModel(target="native", machine=MACHINE)
    rows, factors = t(1, 64, 512), t(1, 64, 1)
    add, multiply = (native.node_cost(op, {}, [rows, factors], [rows]) for op in ("Add", "Mul"))
    assert multiply > add + native.machine.launch


def test_dynamic_quantization_computes_no_other_node() -> None:
    native = CostModel(target="native", machine=MACHINE)
    graph = Graph(
        ("x",), ("z",), [Node("DynamicQuantizeLinear", ("x",), ("y", "s", "p")), Node("Sqrt", ("s",), ("z",))]
    )
    graph.types.update(x=t(4, 4), y=t(4, 4, dtype=DType.U8), s=t(), p=t(dtype=DType.U8), z=t())
    assert native.node_costs(graph)[1] >= MACHINE.launch
    assert not native.takes_pointwise("DynamicQuantizeLinear")
    assert native.takes_pointwise("MatMul")


def test_movement_takes_time_for_each_run() -> None:
    """Rows that stay together are copied; bytes take longer than a quarter of what words take."""
    native = CostModel(target="native", machine=MACHINE)

    def moved(op: str, given: TensorType, out: TensorType, **attrs: AttrValue) -> float:
        return native.node_cost(op, attrs, [given], [out])

    narrow, wide = (moved("Pad", t(n, 4096 // n), t(n + 2, 4096 // n + 2)) for n in (512, 16))
    assert narrow > 2 * wide
    rows = moved("Transpose", t(64, 64, 64), t(64, 64, 64), perm=(1, 0, 2))
    elements = moved("Transpose", t(64, 64, 64), t(64, 64, 64), perm=(0, 2, 1))
    assert rows < elements
    image, turned = (t(1, *shape, dtype=DType.U8) for shape in ((3, 224, 224), (224, 224, 3)))
    floats = [t(1, *shape) for shape in ((3, 224, 224), (224, 224, 3))]
    assert moved("Transpose", image, turned, perm=(0, 2, 3, 1)) > 0.4 * moved("Transpose", *floats, perm=(0, 2, 3, 1))


def test_keys_and_values_of_attention_are_laid_out_for_each_head() -> None:
    def cycles(heads: int, rows: int) -> float:
        operands = [t(1, heads, rows, 32), *[t(1, heads, 49, 32)] * 2]
        found = Estimator(lanes=8).work("rewrite.ScaledDotProductAttention", {}, operands, [t(1, heads, rows, 32)])
        return found.flops / found.efficiency

    assert cycles(64, 49) > 1.1 * cycles(1, 64 * 49)


def test_windows_of_a_pool_share_elements() -> None:
    """Of 3 x 3 elements, 6 are new where windows move by two, and 3 where they move by one."""
    shared = KernelConstants(pooled_again=0.5)
    assert [pool_taps((3, 3), stride, 1e9, shared) for stride in (1, 2, 3)] == pytest.approx([6.0, 7.5, 9.0])
    assert pool_taps((3, 3), 1, 1.0, shared) == 9.0
    assert pool_taps((3, 3), 1, 56.0, KernelConstants()) == 9.0


def test_windows_of_several_channels_have_a_time_of_their_own() -> None:
    grouped = Convolution(1, 784, 28, 64, 2, 2, 9, 1, True, 3, 8)
    slow = KernelConstants(window_grouped=0.7)
    assert conv_nhwc(replace(grouped, constants=slow)) > 1.1 * conv_nhwc(grouped)
    depthwise = replace(grouped, channels=1, filters=1)
    assert conv_nhwc(replace(depthwise, constants=slow)) == conv_nhwc(depthwise)


def test_rows_of_a_normalization_are_what_it_reduces() -> None:
    """An image that is one group costs the same in all forms; each of its pixels is a row only where channels are."""

    def efficiency(op: str, *shape: int, **attrs: AttrValue) -> float:
        image = t(*shape)
        return Estimator(lanes=16).work(op, attrs, [image, t(64), t(64)], [image]).efficiency

    forms = [
        efficiency("GroupNormalization", 1, 64, 56, 56, num_groups=1),
        efficiency("rewrite.ChannelsLastGroupNormalization", 1, 56, 56, 64, num_groups=1),
        efficiency("InstanceNormalization", 1, 1, 64 * 56 * 56),
    ]
    assert forms == pytest.approx([forms[0]] * 3)
    assert efficiency("GroupNormalization", 1, 64, 56, 56, num_groups=32) < forms[0]
    assert efficiency("LayerNormalization", 1, 56, 56, 64) < forms[0] / 1.5


def test_weights_come_from_further_away_than_what_was_just_computed() -> None:
    native = CostModel(target="native", machine=MACHINE)
    row, matrix, out = t(1, 256), t(256, 256), t(1, 256)
    fixed = native.node_cost("MatMul", {}, [row, matrix], [out], [False, True])
    assert fixed > native.node_cost("MatMul", {}, [row, matrix], [out])


def test_winograds_algorithm_is_not_priced_where_results_must_be_exact() -> None:
    avx2 = Machine(isa="avx2", flops=1e11)
    operands, out = [t(1, 64, 56, 56), t(64, 64, 3, 3)], t(1, 64, 56, 56)
    fast, exact = (
        CostModel(target="native", machine=avx2, exact=e).node_cost(
            "Conv", {"strides": (1, 1)}, operands, [out], [False, True]
        )
        for e in (False, True)
    )
    assert exact > 1.5 * fast


def test_taps_that_read_padding_are_priced_only_where_kernels_compute_them() -> None:
    """Rows count as they are; of a row of outputs, a tile is computed at each end of the image."""
    assert Axis(20, 20, 3, 1, 12, 12).share_read(0) == pytest.approx((8 + 20 + 8) / 60)
    assert Axis(20, 10, 3, 2, 12, 12).share_read(0) == pytest.approx((4 + 10 + 4) / 30)
    assert Axis(20, 20, 3, 1, 40, 40).share_read(0) == pytest.approx(1 / 3)
    assert Axis(20, 20, 3, 1, 12, 12).share_read(5) == pytest.approx((13 + 20 + 13) / 60)
    assert share_read([Axis(56, 56, 3, 1, 1, 1)] * 2) == 1.0
    wide, narrow = (
        CostModel(target="native", machine=Machine(isa="avx2", flops=1e11)).node_cost(
            "rewrite.ChannelsLastConv",
            {"strides": (1, 1), "dilations": (n, n), "pads": (n, 2 * n, n, 2 * n)},
            [t(1, 20, 20, 512), t(256, 512, 3, 5)],
            [t(1, 20, 20, 256)],
            [False, True],
        )
        for n in (12, 1)
    )
    assert wide < 0.7 * narrow


def test_dilated_filters_are_priced_by_winograds_algorithm_where_their_sets_of_lines_fill_tiles() -> None:
    """In NHWC: 33 lines are six tiles of six, four sets of them eight; at a dilation of 33 each is one of its own."""
    plain = Convolution(1, 33 * 33, 33, 1, 256, 256, 9, 1, True, 3, 8)
    assert conv_nhwc(plain) < conv_nhwc(replace(plain, dilated=(4, 1))) < conv_nhwc(replace(plain, dilated=(4, 4)))
    assert conv_nhwc(replace(plain, dilated=(33, 33))) == conv_nhwc(replace(plain, square=0))
    model = CostModel(target="native", machine=Machine(isa="avx2", flops=1e11))
    layouts = {
        "Conv": (t(1, 64, 56, 56), t(1, 64, 52, 52)),
        "rewrite.ChannelsLastConv": (t(1, 56, 56, 64), t(1, 52, 52, 64)),
    }
    first, last = (
        model.node_cost(op, {"dilations": (2, 2)}, [x, t(64, 64, 3, 3)], [y], [False, True])
        for op, (x, y) in layouts.items()
    )
    assert first > 1.5 * last


def test_winograd_filters_that_no_cache_holds_come_from_memory() -> None:
    """25 MB of transformed filters, of tiles of 4 x 2, for 49 pixels take as long as the direct products, or longer."""
    held = Convolution(1, 49, 7, 1, 512, 512, 9, 1, True, 3, 8, cache=32 << 20, far=0.6)
    outside = replace(held, cache=8 << 20)
    assert conv_nhwc(held) < conv_nhwc(outside)
    assert conv_nhwc(outside) <= conv_nhwc(replace(held, square=0))
    few = replace(held, channels=64, filters=64, cache=1 << 20)
    assert conv_nhwc(few) == conv_nhwc(replace(few, far=0.0))


def test_tiles_of_4_x_2_are_priced() -> None:
    """Where the cache holds their filters, 25 MB, and not those of 4 x 4, 38 MB, they are the cheapest ones."""
    layer = Convolution(1, 49, 7, 1, 512, 512, 9, 1, True, 3, 8, cache=32 << 20, far=0.6)
    square = _or_winograd(layer, 1e9, 1.0, ((4, 4), (2, 2)))
    assert _or_winograd(layer, 1e9, 1.0) == _or_winograd(layer, 1e9, 1.0, ((4, 2),)) < 0.95 * square


def test_winograd_of_bytes_saves_products_where_it_has_a_kernel() -> None:
    """Filters of unit steps, of enough channels and not too many."""
    layer = Convolution(1, 196, 14, 1, 256, 256, 9, 1, True, 3, 8)
    direct = conv_int8_nhwc(layer, 1.6)
    assert conv_int8_nhwc(layer, 1.6, 1.8) < 0.6 * direct
    assert conv_int8_nhwc(replace(layer, unit=False), 1.6, 1.8) == direct
    for channels in (8, FILTERED_CHANNELS + 1):
        other = replace(layer, channels=channels)
        assert conv_int8_nhwc(other, 1.6, 1.8) == conv_int8_nhwc(other, 1.6)


def test_products_of_bytes_take_what_was_measured() -> None:
    layer = Convolution(1, 196, 14, 1, 256, 256, 9, 1, True, 3, 8)
    other = replace(layer, unit=False)
    for constants, slower in (
        (KernelConstants(product_quantized=1.5), other),
        (KernelConstants(tile_quantized=1.5), layer),
    ):
        times = [conv_int8_nhwc(replace(slower, constants=c), 1.6, 1.8) for c in (KernelConstants(), constants)]
        assert times[1] > 1.2 * times[0]
    depthwise = Convolution(1, 196, 14, 256, 1, 1, 9, 1, True, 3, 8)
    slow = replace(depthwise, constants=KernelConstants(near_quantized=1.2))
    assert conv_int8_nhwc(slow, 1.6) > 1.5 * conv_int8_nhwc(depthwise, 1.6)
    native = CostModel(target="native", machine=replace(MACHINE, constants=KernelConstants(product_quantized=2.0)))
    operands = [t(64, 256, dtype=DType.U8), t(256, 256, dtype=DType.I8)]
    product = ("MatMulInteger", {}, operands, [t(64, 256, dtype=DType.I32)])
    assert native.node_cost(*product) > 1.5 * CostModel(target="native", machine=MACHINE).node_cost(*product)


def test_winograd_of_bytes_is_exact() -> None:
    """Unlike that of floats it is priced where results have to round as the plain algorithm does."""
    operands = [TensorType(DType.U8, (1, 14, 14, 256)), TensorType(DType.I8, (256, 256, 3, 3))]
    out = TensorType(DType.I32, (1, 14, 14, 256))
    estimators = [Estimator(rates={"int8 vectors": 1.6, "int8 winograd": 1.8}, lanes=8, exact=e) for e in (False, True)]
    plain, exact = (e.work("rewrite.ChannelsLastConvInteger", {}, operands, [out]) for e in estimators)
    assert plain.efficiency == exact.efficiency > 2.0
