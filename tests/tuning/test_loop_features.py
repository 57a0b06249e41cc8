"""Features of loop nests: what schedules change is in them, and equal codes have equal ones."""

from __future__ import annotations

from random import Random

import numpy as np
from rewrite.backend.ir.target import parse_targets
from rewrite.backend.planning.group import standard_policy
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node
from rewrite.tuning.kernels_of_graph import TunableKernel, tunable_kernels


def kernel(rows: int = 90) -> TunableKernel:
    random = np.random.default_rng(3)
    x, w = (np.asarray(random.standard_normal(shape), np.float32) for shape in ((rows, 64), (64, 80)))
    graph = harness.make_graph([Node("MatMul", ("x", "w"), ("y",), name="product")], {"x": x}, constants={"w": w})
    [found] = tunable_kernels(graph, standard_policy(), parse_targets("avx2")[0], 1, True)
    return found


def test_features_of_a_product() -> None:
    found = kernel().lowered({"tile": "4x2", "near": 8, "group": 2}).features
    assert found["template=gemm"] == 1.0
    assert (found["tiles.mr"], found["tiles.nv"], found["group"]) == (4, 2, 2)
    assert (found["m"], found["n"], found["k"]) == (90, 80, 64)
    assert found["registers"] == (4 * 2 + 2) / 16
    assert found["m rows wasted"] == round(92 / 90, 4)
    assert found["n columns wasted"] == 1.0
    assert found["panel of L1"] == round(64 * 16 * 4 / kernel().settings.target.l1, 4)


def test_features_of_attention() -> None:
    x = {name: np.zeros((1, 2, 90, 64), np.float32) for name in "qkv"}
    graph = harness.make_graph([Node("Attention", ("q", "k", "v"), ("y",), name="attention")], x)
    [kernel] = tunable_kernels(graph, standard_policy(), parse_targets("avx2")[0], 1, True)
    found = kernel.lowered({"tile": "4x2", "block": 32}).features
    assert (found["tile_rows"], found["tile_vectors"], found["block"]) == (4, 2, 32)
    assert found["registers"] == (4 * 2 + 2) / 16
    assert found["m rows wasted"] == round(92 / 90, 4)
    assert found["n columns wasted"] == round(96 / 90, 4)
    assert found["panel of L1"] == round(64 * 16 * 4 / kernel.settings.target.l1, 4)


def test_schedules_differ_in_features_exactly_if_their_codes_do() -> None:
    one, random = kernel(), Random(2)
    lowered = [one.lowered(one.space.sample(random)) for _ in range(60)]
    codes = {found.code for found in lowered}
    assert len(codes) > 20
    by_code = {found.code: found.features for found in lowered}
    assert all(found.features == by_code[found.code] for found in lowered)
    assert len({str(sorted(features.items())) for features in by_code.values()}) == len(codes)


def test_sizes_are_in_the_features_of_other_kernels() -> None:
    assert kernel(30).lowered({}).features["m"] == 30
    assert kernel(30).lowered({}).code != kernel(90).lowered({}).code
