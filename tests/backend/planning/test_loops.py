"""Loops and Scans that the runtime drives, compared with ONNX Runtime.

Length: one case for each form of a loop, over the same helpers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.bundle.loop_validation import check_loops
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Control, Item, Loop, ModelPlan
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.backend.runtime.program import Program
from rewrite.engine.onnx_io import importer
from rewrite.errors import UserError

from .. import models

RNG = np.random.default_rng(11)
F = np.float32

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'

COUNTED = """
    g (float[N, 40] x, int64[1] n) => (float[N, 40] y, float[N, 40] z) {
        e = Exp(x)
        y, z = Loop(n, , x, e) <body = b (int64 i, bool c, float[N, 40] p, float[N, 40] q)
                                => (bool on, float[N, 40] r, float[N, 40] s) {
            on = Identity(c)
            t = Tanh(p)
            r = Add(q, t)
            k = Cast<to = 1>(i)
            u = Mul(p, k)
            s = Sub(u, x)
        }>
    }"""
FIXED = """
    g (float[N, 40] x) => (float[N, 40] y, float[T, N, 40] all, int64[T] is) <int64 n = {ITERATIONS}> {
        y, all, is = Loop(n, , x) <body = b (int64 i, bool c, float[N, 40] p)
                                   => (bool on, float[N, 40] r, float[N, 40] s, int64 j) {
            on = Identity(c)
            r = Tanh(p)
            s = Mul(p, r)
            j = Add(i, i)
        }>
    }"""
UNTIL = """
    g (float[N] x, float most, int64 n, bool start) => (float[N] y, float sum, float[K, N] all) {
        zero = Constant<value_float = 0.0>()
        y, sum, all = Loop(COUNT, START, x, zero) <body = b (int64 i, bool c, float[N] p, float a)
                                                 => (bool on, float[N] r, float s, float[N] again) {
            r = Add(p, x)
            m = ReduceMax<keepdims = 0>(r)
            s = Add(a, m)
            on = Less(s, most)
            again = Neg(r)
        }>
    }"""
UNTIL_NOTHING_MADE = (
    UNTIL.replace(", float[K, N] all)", ")")
    .replace("y, sum, all =", "y, sum =")
    .replace(", float[N] again)", ")")
    .replace("            again = Neg(r)\n", "")
)
FIBONACCI = """
    g (float[7] a, float[7] b) => (float[7] y, float[7] z, float[7] same, float[9, 7] seen) <int64 n = {9}> {
        y, z, same, seen = Loop(n, , a, b, a) <body = m (int64 i, bool c, float[7] p, float[7] q, float[7] k)
                                 => (bool on, float[7] q2, float[7] s, float[7] k2, float[7] s2) {
            on = Constant<value = bool {1}>()
            q2 = Identity(q)
            t = Mul(p, k)
            s = Add(t, q)
            k2 = Identity(k)
            s2 = Identity(s)
        }>
    }"""
SCAN = """
    g (float[N, 24] h, float[{XS}] x, float[24, 24] w, float[{PS}] p)
      => (float[N, 24] last, float[{YS}] ys, float[{ZS}] zs) {
        last, ys, zs = Scan<num_scan_inputs = 2{ATTRS}, body = b (float[N, 24] s, float[N, 24] v, float[N, 3] u)
                              => (float[N, 24] s2, float[N, 24] o, float[N, 3] o2) {
            m = MatMul(s, w)
            a = Add(m, v)
            s2 = Tanh(a)
            o = Identity(s2)
            o2 = Neg(u)
        }>(h, x, p)
    }"""
PIECES = """
    g (float[{K}] h, float[T, {K}] x, bool[T, {K}] b) => (float[{K}] last, float[T, {K}] ys, bool[T, {K}] bs) {
        last, ys, bs = Scan<num_scan_inputs = 2, body = b (float[{K}] s, float[{K}] v, bool[{K}] w)
                            => (float[{K}] s2, float[{K}] o, bool[{K}] n) {
            n = Not(w)
            m = Where(w, s, v)
            e = Softmax(m)
            s2 = Add(e, v)
            o = Mul(s, e)
        }>(h, x, b)
    }"""
NESTED = """
    g (float[N, 5] x, int64 n) => (float[N, 5] y, float[N, 5] z) {
        two = Constant<value_int = 2>()
        y = Loop(n, , x) <body = b (int64 i, bool c, float[N, 5] p) => (bool on, float[N, 5] r) {
            on = Identity(c)
            f = Tanh(p)
            m = Add(i, two)
            q, many = Loop(two, , f) <body = bb (int64 j, bool d, float[N, 5] pp)
                                      => (bool on2, float[N, 5] rr, float[N, 5] ss) {
                on2 = Identity(d)
                rr = Add(pp, x)
                k = Cast<to = 1>(j)
                ss = Add(rr, k)
            }>
            w = Loop(m, , q) <body = bc (int64 j2, bool d2, float[N, 5] p3) => (bool on3, float[N, 5] r3) {
                on3 = Identity(d2)
                r3 = Sub(p3, f)
            }>
            s = ReduceSum<keepdims = 0>(many, axes0)
            r = Add(w, s)
        }>
        z = Relu(y)
    }"""
NESTED = NESTED.replace("        two = C", "        axes0 = Constant<value_ints = [0]>()\n        two = C")
BRANCHES = """
    g (float[N, 16] x, int64 n, bool go) => (float[N, 16] y) {
        half = Constant<value_float = 0.5>()
        three = Constant<value_int = 3>()
        y = If(go) <
            then_branch = yes () => (a) {
                a = Loop(n, , x) <body = b (int64 i, bool c, float[N, 16] p) => (bool on, float[N, 16] r) {
                    on = Identity(c)
                    even = Constant<value_int = 1>()
                    odd = Equal(i, even)
                    r = If(odd) <
                        then_branch = t () => (u) { u = Sub(p, x) },
                        else_branch = e () => (v) { w = Mul(p, half)  v = Softmax(w) }
                    >
                }>
            },
            else_branch = no () => (b0) {
                b0 = Loop(three, , x) <body = bo (int64 io, bool co, float[N, 16] po) => (bool ono, float[N, 16] ro) {
                    ono = Identity(co)
                    ro = Mul(po, half)
                }>
            }
        >
    }"""
WIDE = """
    g (float[N, 256] x, float[256, 256] w) => (float[N, 256] y, float[6, N, 256] all) <int64 n = {6}> {
        y, all = Loop(n, , x) <body = b (int64 i, bool c, float[N, 256] p)
                                   => (bool on, float[N, 256] r, float[N, 256] s) {
            on = Identity(c)
            m = MatMul(p, w)
            r = Tanh(m)
            t = Softmax(m)
            s = Mul(t, r)
        }>
    }"""


def items_of(plan: ModelPlan) -> Iterator[Item]:
    for item in plan.items:
        yield item
        if isinstance(item, Loop):
            yield from items_of(item.body)
        elif isinstance(item, Control):
            for body in item.bodies:
                yield from items_of(body)
    for version in plan.versions:
        yield from items_of(version.plan)


def driven(program: Program) -> tuple[int, int]:
    """Return the number of loops that the runtime drives, and that Python drives."""
    found = list(items_of(program.plan))
    return sum(isinstance(i, Loop) for i in found), sum(isinstance(i, Control) for i in found)


@dataclass
class Both:
    """A compiled model, and the same model in ONNX Runtime."""

    program: Program
    model: onnx.ModelProto

    def check(self, feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> dict[str, np.ndarray]:
        """Run three times, where the first run plans; return the outputs."""
        feeds = {name: np.asarray(value) for name, value in feeds.items()}
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [o.name for o in self.model.graph.output]
        expected = dict(zip(names, session.run(names, feeds), strict=True))
        for _ in range(3):
            found = self.program.run(feeds)
            for name, array in expected.items():
                assert found[name].dtype == array.dtype, name
                if not array.size:  # ONNX Runtime reports dims of zero iterations as 0
                    assert found[name].ndim == array.ndim
                    assert not found[name].size
                    continue
                assert found[name].shape == array.shape, name
                np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
        return found


def compiled(text: str, *, threads: int = 1, loops: int = 1, left: int = 0, target: str = "native") -> Both:
    """Compile a model of which the runtime must drive `loops` loops."""
    model = parser.parse_model(HEADER + text)
    onnx.checker.check_model(model, full_check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = compile_graph(importer.read(model), threads=threads, target=target)
    assert driven(program) == (loops, left)
    check_loops(program.plan)
    return Both(program, model)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, F)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_trip_count_that_is_data(threads: int) -> None:
    both = compiled(COUNTED, threads=threads)
    for rows in (1, 3, 8):
        for count in (0, 1, 2, 3, 10, -1):
            both.check({"x": normal(rows, 40) / 8, "n": np.array([count])}, 1e-4)


@pytest.mark.parametrize("iterations", [0, 1, 2, 7])
def test_a_trip_count_that_is_known(iterations: int) -> None:
    both = compiled(FIXED.replace("ITERATIONS", str(iterations)))
    for rows in (2, 5):
        found = both.check({"x": normal(rows, 40)})
        assert found["is"].tolist() == [2 * i for i in range(iterations)]


def test_a_program_with_a_known_trip_count_is_one_call() -> None:
    both = compiled(FIXED.replace("ITERATIONS", "4"))
    feeds = {"x": normal(3, 40)}
    both.program.run(feeds)
    assert len(both.program._calls) == 1
    out = {name: np.empty_like(array) for name, array in both.program.run(feeds).items()}
    found = both.program.run(feeds, out=out)
    assert all(found[name] is out[name] for name in out)
    both.check(feeds)
    np.testing.assert_array_equal(out["y"], both.program.run(feeds)["y"])


@pytest.mark.parametrize("count", ["n", ""])
@pytest.mark.parametrize("start", ["start", ""])
def test_a_condition_that_ends_it(count: str, start: str) -> None:
    for text in (UNTIL, UNTIL_NOTHING_MADE):
        both = compiled(text.replace("COUNT", count).replace("START", start))
        for most in (-1.0, 3.0, 100.0):
            for iterations in (0, 1, 5, 200):
                feeds = {
                    "x": np.abs(normal(6)) + F(0.1),
                    "most": F(most),
                    "n": np.int64(iterations),
                    "start": np.bool_(True),
                }
                both.check(feeds)
        if start:
            both.check({**feeds, "start": np.bool_(False)})
        both.check({**feeds, "x": np.ones(11, F)})


def test_values_that_change_places_or_stay() -> None:
    both = compiled(FIBONACCI)
    both.check({"a": normal(7), "b": normal(7)})


@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (1, 2, 1, -1), (2, 1, 0, 2), (-1, 0, 2, 1)])
@pytest.mark.parametrize("ways", [(0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1)])
def test_scans_along_any_axis_either_way(axes: tuple[int, ...], ways: tuple[int, ...]) -> None:
    def whole(width: int, axis: int) -> tuple[str, ...]:
        shape = ["N", str(width)]
        shape.insert(axis % 3, "T")
        return tuple(shape)

    attrs = (
        f", scan_input_axes = [{axes[0]}, {axes[1]}], scan_output_axes = [{axes[2]}, {axes[3]}]"
        f", scan_input_directions = [{ways[0]}, {ways[1]}], scan_output_directions = [{ways[2]}, {ways[3]}]"
    )
    text = SCAN.replace("{ATTRS}", attrs)
    shapes = {
        "XS": whole(24, axes[0]),
        "PS": whole(3, axes[1]),
        "YS": whole(24, axes[2]),
        "ZS": whole(3, axes[3]),
    }
    for name, shape in shapes.items():
        text = text.replace(f"{{{name}}}", ", ".join(shape))
    both = compiled(text)
    for rows, length in ((1, 1), (2, 6), (3, 17)):

        def sized(name: str, rows: int = rows, length: int = length) -> np.ndarray:
            return normal(*({"N": rows, "T": length}.get(d) or int(d) for d in shapes[name]))

        feeds = {"h": normal(rows, 24), "x": sized("XS"), "p": sized("PS"), "w": normal(24, 24) / 5}
        both.check(feeds)


@pytest.mark.parametrize("target", os.environ.get("REWRITE_TEST_TARGETS", "native,avx2,portable").split(","))
def test_pieces_of_any_length_on_each_target(target: str) -> None:
    if not runs_here(make_target(target)):
        pytest.skip(f"this CPU has no {target}")
    for width in (3, 17):
        both = compiled(PIECES.replace("{K}", str(width)), target=target)
        for length in (1, 2, 9):
            both.check({"h": normal(width), "x": normal(length, width), "b": normal(length, width) > 0})


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_in_loops(threads: int) -> None:
    both = compiled(NESTED, threads=threads, loops=3)
    for rows, iterations in ((1, 1), (2, 3), (4, 0), (3, 6)):
        both.check({"x": normal(rows, 5), "n": np.int64(iterations)}, 1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_in_branches_and_branches_in_loops(threads: int) -> None:
    both = compiled(BRANCHES, threads=threads, loops=2)
    for go in (True, False):
        for iterations in (0, 1, 2, 5):
            both.check({"x": normal(3, 16), "n": np.int64(iterations), "go": np.bool_(go)})


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bodies_for_several_threads(threads: int) -> None:
    both = compiled(WIDE, threads=threads)
    for rows in (1, 50, 130):
        both.check({"x": normal(rows, 256), "w": normal(256, 256) / 16}, 1e-4)


def test_several_callers_at_once() -> None:
    both = compiled(WIDE, threads=2)
    feeds = [{"x": normal(rows, 256), "w": normal(256, 256) / 16} for rows in (3, 4, 70, 3, 90, 4)]
    expected = [both.program.run(one) for one in feeds]

    def again(number: int) -> dict[str, np.ndarray]:
        for _ in range(20):
            found = both.program.run(feeds[number])
        return found

    with ThreadPoolExecutor(len(feeds)) as pool:
        for found, wanted in zip(pool.map(again, range(len(feeds))), expected, strict=True):
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array)


def test_known_iterations_take_no_memory() -> None:
    program = compiled(FIXED.replace("ITERATIONS", "50")).program
    x = normal(30, 40)
    bound = program.bind({"x": x})
    models.check_steady(bound)
    assert len(program._frames) == 1


def test_results_of_data_dependent_length_are_the_callers() -> None:
    both = compiled(UNTIL.replace("COUNT", "n").replace("START", ""))
    feeds = {"x": np.full(5, 0.1, F), "most": F(1e9), "n": np.int64(9), "start": np.bool_(True)}
    first = both.check(feeds)
    kept = first["all"].copy()
    both.check({**feeds, "x": np.full(5, 0.7, F)})
    np.testing.assert_array_equal(first["all"], kept)


def test_a_program_that_ends_with_a_loop_of_unknown_length_is_one_call() -> None:
    both = compiled(UNTIL.replace("COUNT", "n").replace("START", "start"), threads=2)
    feeds = {"x": np.full(7, 0.1, F), "most": F(1e9), "n": np.int64(4), "start": np.bool_(True)}
    both.program.run(feeds)
    [call] = both.program._calls
    kept = []
    for count in (4, 0, 9, 300, 1, 4, 4):
        given = {**feeds, "n": np.int64(count)}
        found = call.run(given)
        assert found["all"].shape == (count, 7)
        kept.append((found["all"], found["all"].copy(), both.check(given)["all"]))
    for array, copy, expected in kept:  # later runs leave the arrays of earlier ones as they were
        np.testing.assert_array_equal(array, copy)
        np.testing.assert_array_equal(array, expected)
    assert both.program._calls == (call,)


@pytest.mark.parametrize("warm", [False, True])
def test_what_a_loop_stacks_is_written_to_a_given_array(warm: bool) -> None:
    program = compiled(UNTIL.replace("COUNT", "n").replace("START", "")).program
    feeds = {"x": np.full(7, 0.1, F), "most": F(1e9), "n": np.int64(4), "start": np.bool_(True)}
    expected = program.run(feeds) if warm else None
    out = {"all": np.empty((4, 7), F)}
    found = program.run(feeds, out=out)
    assert found["all"] is out["all"]
    assert len(program._calls) == 1
    np.testing.assert_array_equal(found["all"], (expected or program.run(feeds))["all"])
    with pytest.raises(UserError, match="all"):
        program.run({**feeds, "n": np.int64(5)}, out=out)


def test_large_results_of_loops_are_whole() -> None:
    both = compiled(UNTIL.replace("COUNT", "n").replace("START", ""))
    x = np.linspace(0, 0.1, 1 << 17, dtype=F)
    for _ in range(2):  # four iterations stack whole huge pages
        both.check({"x": x, "most": F(1e9), "n": np.int64(4), "start": np.bool_(True)})


AFTER = UNTIL.replace("        y, sum, all =", "        last, sum, all =").replace(
    "            again = Neg(r)\n        }>", "            again = Neg(r)\n        }>\n        y = Softmax(last)"
)


def test_what_follows_a_loop_of_unknown_length_does_not_take_over_its_results() -> None:
    both = compiled(AFTER.replace("COUNT", "n").replace("START", ""))
    for iterations in (0, 3, 20):
        both.check({"x": normal(9), "most": F(50), "n": np.int64(iterations), "start": np.bool_(True)})


def test_an_interrupt_ends_a_loop_without_end() -> None:
    import signal

    program = compiled(UNTIL_NOTHING_MADE.replace("COUNT", "").replace("START", "")).program
    feeds = {"x": np.zeros(5, F), "most": F(1), "n": np.int64(9), "start": np.bool_(True)}
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            program.run(feeds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert program.run({**feeds, "x": np.ones(5, F)})["sum"] == 2.0


SIZES = """
    g (float[N, 8] x, int64 n) => (float[M, 8] y) {
        one = Constant<value_int = 1>()
        zero = Constant<value_int = 0>()
        y = Loop(n, , x) <body = b (int64 i, bool c, float[K, 8] p) => (bool on, float[L, 8] r) {
            on = Identity(c)
            shape = Shape(p)
            rows = Gather(shape, zero)
            single = Equal(rows, one)
            r = If(single) <
                then_branch = yes () => (u) { u = Tanh(p) },
                else_branch = no () => (v) { v = Softmax<axis = 0>(p) }
            >
        }>
    }"""


def test_what_sizes_decide_in_a_body_is_settled_when_compiling() -> None:
    both = compiled(SIZES, loops=2)
    assert len(both.program.plan.versions) == 2
    for rows in (1, 2, 5):
        both.check({"x": normal(rows, 8), "n": np.int64(3)})


def test_profiles_tell_the_time_of_loops() -> None:
    program = compiled(FIXED.replace("ITERATIONS", "5")).program
    [row] = [row for row in program.profile({"x": normal(3, 40)}, seconds=0.01).rows if "loop: Loop" in row.kernels]
    assert row.native
    assert row.seconds > 0
    assert row.flops >= 5 * 3 * 40


def test_bundles_have_loops(tmp_path: Path) -> None:
    for name, text, loops in (("a", COUNTED, 1), ("b", NESTED, 3), ("c", BRANCHES, 2)):
        both = compiled(text, loops=loops)
        again = load(both.program.save(tmp_path / f"{name}.rewrite"))
        assert driven(again) == (loops, 0)
        x = normal(3, int(both.model.graph.input[0].type.tensor_type.shape.dim[1].dim_value))
        feeds = {"x": x, "n": np.array([4] if name == "a" else 4)} | ({"go": np.bool_(True)} if "go" in text else {})
        Both(again, both.model).check(feeds, 1e-4)


GROWS = """
    g (float[N, 4] x, int64 n) => (float[M, 4] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[K, 4] p) => (bool on, float[L, 4] r) {
            on = Identity(c)
            r = Concat<axis = 0>(p, x)
        }>
    }"""


def test_values_that_grow_are_left_to_python() -> None:
    both = compiled(GROWS, loops=0, left=1)
    for iterations in (0, 1, 4):
        both.check({"x": normal(2, 4), "n": np.int64(iterations)})


def test_what_has_no_kernel_is_left_to_python() -> None:
    text = FIXED.replace("ITERATIONS", "3").replace(
        "r = Tanh(p)", 'd = Einsum<equation = "ii->">(sq) sum = Add(d, p) r = Tanh(sum)'
    )
    text = text.replace("float[N, 40] x)", "float[N, 40] x, float[3, 3] sq)")
    model = parser.parse_model(HEADER + text)
    with pytest.warns(FallbackWarning, match="Einsum"):
        program = compile_graph(importer.read(model), threads=1)
    assert driven(program) == (0, 1)
    Both(program, model).check({"x": normal(2, 40), "sq": normal(3, 3)})


STACKS = """
    g (float[4, 6] x, float[5, 4, 3] s) => (float[4, 6] y, float[4, 5, 6] all) {
        y, all = Scan(x, s)
            <num_scan_inputs = 1, scan_output_axes = [1], scan_output_directions = [1],
             body = b (float[4, 6] p, float[4, 3] q) => (float[4, 6] r, float[4, 6] t) {
            both = Concat<axis = 1>(q, q)
            r = Add(p, both)
            t = Tanh(r)
        }>
    }"""
DAMAGED = """
import json, pathlib, sys
import numpy as np
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.bundle.manifest import sealed
from rewrite.errors import UserError

place = pathlib.Path(sys.argv[1])
feeds = dict(np.load(place / "feeds.npz"))
manifest = place / "model.rewrite" / "manifest.json"
whole = json.loads(manifest.read_text())
expected = load(manifest.parent).run(feeds)


def numbers(data, path):
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        value = data[key]
        if isinstance(value, int) and not isinstance(value, bool):
            yield data, key, (*path, key)
        elif key != "body":
            yield from numbers(value, (*path, key))


def of_loops(plan, path):  # counts of loops and of their input and output types
    for item in plan["items"]:
        if "loop" not in item:
            continue
        yield from numbers(item, (*path, item["name"]))
        around = {*item["states"], *item["scanned"], *item["captures"], *item["outputs"], item["count"], item["going"]}
        body = item["body"]
        for one, values in ((plan, around), (body, {*body["inputs"], *body["outputs"]})):
            for value in sorted(values & one["types"].keys()):
                yield from numbers(one["types"][value], (*path, item["name"], value))
        yield from of_loops(body, (*path, item["name"]))


refused = ran = 0
for data, key, path in of_loops(whole["variants"][0]["plan"], ()):
    right = data[key]
    for wrong in (-right - 1, right - 1, right + 1, 1 << 20, 1 << 40, -(1 << 40), 1 << 70):
        data[key] = wrong
        manifest.write_bytes(sealed(whole))
        print(path, wrong, file=sys.stderr, flush=True)
        try:
            found = load(manifest.parent).run(feeds)
        except UserError as error:
            assert str(manifest.parent) in str(error) or "the model wants" in str(error), error
            refused += 1
        else:
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array)
            ran += 1
    data[key] = right
print(json.dumps([refused, ran]))
"""


@pytest.mark.parametrize(("text", "loops"), [(STACKS, 1), (FIXED.replace("ITERATIONS", "5"), 1), (NESTED, 3)])
def test_wrong_numbers_of_a_bundle_are_refused(tmp_path: Path, text: str, loops: int) -> None:
    both = compiled(text, loops=loops)
    both.program.save(tmp_path / "model.rewrite")
    feeds = {}
    for port in both.program.inputs:
        shape = [3 if isinstance(d, str) else d for d in port.shape or ()]
        assert port.dtype is not None
        kind = port.dtype.numpy
        feeds[port.name] = normal(*shape) if kind.kind == "f" else np.full(shape, 3, kind)
    np.savez(tmp_path / "feeds.npz", **feeds)
    done = subprocess.run([sys.executable, "-c", DAMAGED, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    refused, ran = json.loads(done.stdout)
    assert refused > 10 * ran
