"""Kernels with vectors of 256 bits for AVX-512: where formulas and points choose them, with the same results."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend.codegen.render import render_kernel, render_module
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.schedule import DEFAULT, Point
from rewrite.backend.ir.target import Target, make_target, runs_here
from rewrite.backend.kernels.gemm import tiles
from rewrite.benchmarks import harness, machine_code
from rewrite.engine.ir.graph import Graph, Node
from rewrite.system import hardware
from rewrite.tuning.strategies.loop_features import loop_features

from .test_schedules import At, bf16, conv, feeds, floats, int8, product

WHOLE = replace(make_target("avx512"), halves=False, intel=False)
HALVES = replace(WHOLE, halves=True)
"""A CPU that computes vectors of 512 bits by halves, as a Zen 4 does."""
needs_avx512 = pytest.mark.skipif(not runs_here(WHOLE), reason="runs code of AVX-512")


def free_rows(k: int, n: int, rows: int = 40) -> Graph:
    node, shapes = Node("MatMul", ("x", "w"), ("y",)), {"x": ("M", k)}
    return harness.make_graph([node], {"x": floats(rows, k)}, constants={"w": floats(k, n)}, symbolic_shapes=shapes)


def steps(graph: Graph, target: Target, point: Point = DEFAULT) -> list[Step]:
    items, _ = harness.lower(graph, target=target, schedules=At(point))
    return [item for item in items or () if isinstance(item, Step)]


def bits(graph: Graph, target: Target, point: Point = DEFAULT) -> int:
    """Width of the vectors of the last kernel."""
    return int(steps(graph, target, point)[-1].kernel.params.get("vector_bits", 8 * target.vector_bytes))


@pytest.mark.parametrize(
    ("columns", "width"), [(8, 256), (16, 512), (20, 256), (24, 256), (32, 512), (40, 256), (72, 256), (512, 512)]
)
def test_columns_that_leave_half_a_vector_empty(columns: int, width: int) -> None:
    for graph in (product(196, 96, columns), free_rows(96, columns)):
        assert bits(graph, HALVES) == width
        assert bits(graph, WHOLE) == 512
        assert bits(graph, make_target("avx2")) == 256
        assert "vector_bits" not in steps(graph, make_target("avx2"))[-1].kernel.params


CONVOLUTIONS: Sequence[tuple[str, Callable[[], Graph], int]] = (
    ("conv", lambda: conv(12, 33, 7, 3, stride=2), 512),  # of 16 pixels
    ("conv", lambda: conv(24, 48, 10, 1), 512),  # of 100
    ("conv", lambda: conv(24, 96, 14, 1, stride=2), 256),  # of 49, which gathered panels hold in seven short vectors
    ("conv_nhwc", lambda: conv(32, 40, 13, 3, stride=2, nhwc=True), 256),
    ("conv_nhwc", lambda: conv(32, 48, 13, 3, stride=2, nhwc=True), 512),
    ("winograd_nhwc", lambda: conv(32, 40, 13, 3, nhwc=True), 256),
    ("winograd_nhwc", lambda: conv(32, 48, 13, 3, nhwc=True), 512),
    ("winograd", lambda: conv(32, 40, 28, 3), 256),
    ("winograd", lambda: conv(32, 48, 28, 3), 512),
    ("conv_small", lambda: conv(64, 72, 14, 5), 256),
    ("conv_small", lambda: conv(64, 64, 14, 5), 512),
)


@pytest.mark.parametrize("number", range(len(CONVOLUTIONS)))
def test_convolutions_have_the_width_that_fits(number: int) -> None:
    template, graph, width = CONVOLUTIONS[number]
    kernel = steps(graph(), HALVES)[-1].kernel
    assert (kernel.template, kernel.params.get("vector_bits", 512)) == (template, width)
    assert "vector_bits" not in steps(graph(), WHOLE)[-1].kernel.params


def test_a_point_decides() -> None:
    graph = product(196, 96, 24)
    assert [bits(graph, HALVES, {"bits": width}) for width in (256, 512)] == [256, 512]
    assert [bits(graph, WHOLE, {"bits": width}) for width in (256, 512)] == [256, 512]
    assert bits(graph, HALVES, {"tile": "8x3"}) == 256  # what a point leaves out follows the formula


@needs_avx512
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 16, 24, 40, 100])
def test_each_sum_is_the_same_at_both_widths(columns: int) -> None:
    for graph in (product(45, 70, columns), free_rows(70, columns)):
        for rows in (45,) if graph.type("x").shape == (45, 70) else (1, 3, 5, 45):
            narrow, wide = (harness.run(graph, {"x": floats(rows, 70)}, target=target) for target in (HALVES, WHOLE))
            np.testing.assert_array_equal(narrow["y"], wide["y"])


@needs_avx512
@pytest.mark.parametrize("transposed", [0, 1])
def test_matrices_of_run_time_are_packed_for_the_width(transposed: int) -> None:
    node = Node("Gemm", ("x", "w"), ("y",), {"transB": transposed})
    values = {"x": floats(320, 70), "w": floats(24, 70) if transposed else floats(70, 24)}
    graph, target = harness.make_graph([node], values), replace(HALVES, l2=64 << 10)
    assert [step.kernel.params.get("vector_bits") for step in steps(graph, target)] == [256, 256]
    narrow, wide = (harness.run(graph, values, target=t) for t in (target, replace(target, halves=False)))
    np.testing.assert_array_equal(narrow["y"], wide["y"])


@needs_avx512
def test_narrow_weights_and_results_of_a_narrow_kernel() -> None:
    w = (floats(300, 24).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    nodes = [Node("MatMul", ("x", "w"), ("t",)), Node("QuantizeLinear", ("t", "scale", "zero"), ("y",))]
    constants = {"w": w, "scale": np.array(0.02, np.float32), "zero": np.array(9, np.uint8)}
    graph, target = harness.make_graph(nodes, {"x": floats(3, 300)}, constants=constants), replace(HALVES, l2=8 << 10)
    params = steps(graph, target)[-1].kernel.params
    assert (params["vector_bits"], params["tiles"]["stored"], params["tiles"]["out"]) == (256, "v_bf16", "uint8_t")
    narrow, wide = (
        harness.run(graph, {"x": floats(3, 300)}, target=t) for t in (target, replace(target, halves=False))
    )
    np.testing.assert_array_equal(narrow["y"], wide["y"])


@needs_avx512
@pytest.mark.parametrize("number", [n for n, (_, _, width) in enumerate(CONVOLUTIONS) if width == 256])
def test_convolutions_agree_at_both_widths(number: int) -> None:
    graph = CONVOLUTIONS[number][1]()
    narrow, wide = (harness.run(graph, feeds(graph), target=target) for target in (HALVES, WHOLE))
    np.testing.assert_allclose(narrow["y"], wide["y"], rtol=1e-4, atol=2e-5)


def test_doubles_and_narrow_numbers_keep_their_width() -> None:
    x, w = np.ones((40, 30)), np.ones((30, 4))
    doubles = harness.make_graph([Node("MatMul", ("x", "w"), ("y",))], {"x": x}, constants={"w": w})
    for graph in (doubles, int8(product=True), int8(nhwc=True), bf16()):
        assert all("vector_bits" not in step.kernel.params for step in steps(graph, HALVES))


def test_narrow_kernels_are_modules_of_their_own() -> None:
    narrow, wide = (render_kernel(steps(product(45, 70, n), HALVES)[-1].kernel, HALVES) for n in (24, 32))
    assert narrow.kind != wide.kind
    assert render_module([narrow]).startswith('#include "kernel_256.h"')
    assert render_module([wide]).startswith('#include "kernel.h"')


def test_the_learned_model_sees_the_width() -> None:
    graph = product(196, 96, 24)
    narrow, wide = (loop_features(steps(graph, WHOLE, {"tile": "8x3", "bits": b}), WHOLE) for b in (256, 512))
    assert narrow["vector_bits"] == 256
    assert narrow["panel of L1"] * 2 == pytest.approx(wide["panel of L1"], rel=1e-3)


@pytest.mark.skipif(shutil.which("gcc") is None or machine_code.find_disassembler() is None, reason="counts are gcc's")
@pytest.mark.skipif(hardware.architecture() != "x86_64", reason="for x86-64")
def test_sums_of_a_narrow_kernel_fill_twice_the_registers_of_avx2(tmp_path: Path) -> None:
    [kernel] = [step.kernel for step in steps(product(64, 96, 24), HALVES, {"tile": "8x3"})]
    functions = machine_code.compiled([kernel], HALVES, tmp_path).values()
    operands = " ".join(i.operands for code in functions for i in code if i.mnemonic.startswith("vfmadd"))
    assert "zmm" not in operands
    assert len(set(re.findall(r"ymm\d+", operands))) >= 24


@pytest.mark.parametrize(("vendor", "family", "halves"), [
    ("AuthenticAMD", "25", True), ("AuthenticAMD", "26", False), ("GenuineIntel", "6", False), ("", "", False)
])  # fmt: skip
def test_which_cpus_compute_by_halves(vendor: str, family: str, halves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cpu_info", {"vendor_id": vendor, "cpu family": family}.get)
    assert hardware.halves_vectors() is halves
    assert make_target("avx512").halves is halves
    assert not make_target("avx2").halves


def test_tiles_of_wide_vectors_do_not_depend_on_the_cpu() -> None:
    for columns in (16, 24, 100, None):
        assert tiles.choose(HALVES, 196, columns, 96) == tiles.choose(WHOLE, 196, columns, 96)


def test_filters_are_stored_transformed_where_vectors_take_two_cycles() -> None:
    """Transforming them in the kernel saves memory traffic, at the price of vectors."""
    graph = conv(256, 256, 14, 3, nhwc=True)
    caches = {"l1": 32 << 10, "l2": 1 << 20, "l3": 8 << 20}  # less than four times the weights
    chunks = [steps(graph, replace(target, **caches))[-1].kernel.params["chunk"] for target in (HALVES, WHOLE)]
    assert chunks == [0, 40]
