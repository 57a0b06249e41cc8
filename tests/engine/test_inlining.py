"""Rules that look into the bodies of If, Loop and Scan, from the model to the optimised model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import rewrite

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
RULES = """
rule if_to_where                               # cheap branches run both
  If(c, then_branch: a, else_branch: b)  =>  Where(c, inline(a)[0], inline(b)[0])
  where node_count(a) <= 2, node_count(b) <= 2
  class exact

rule if_same                                   # both branches compute the same
  If(c, then_branch: a, else_branch: b)  =>  inline(a)[0]
  where same(inline(a)[0], inline(b)[0])
  class exact

rule loop_dead                                 # no run leaves what is carried
  Loop(n, c = none, v[*], body: b)[i]  =>  v[i]
  where scalar(n) == 0
  class exact

rule loop_unroll                               # a few runs, written out
  Loop(n, c = none, v[*], body: b)[i]  =>  iterate(b, scalar(n), v[*])[i]
  where scalar(n) <= 4, c is none
  class exact

rule scan_to_vector                            # elementwise runs are one
  Scan(x[*], num_scan_inputs: k, body: b)[i]  =>  inline(b, x[*])[i]
  where len(x[*]) == k, pointwise(b)
  class exact
"""


@pytest.fixture
def optimised(tmp_path: Path) -> Callable[..., list[str]]:
    """The operators of a model after one of the rules, its results being compared with those of the original."""

    def run(text: str, rule: str) -> list[str]:
        path = tmp_path / "bodies.rules"
        (chosen,) = (part for part in RULES.split("\nrule ") if part.startswith(rule))
        path.write_text("op Add kind elementwise\nop Mul kind elementwise\nop Neg kind elementwise\nrule " + chosen)
        model = onnx.parser.parse_model(HEAD + text)
        onnx.checker.check_model(model)
        result: Any = rewrite.optimize(model, rules=[str(path)], std_rules=False)
        return [node.op_type for node in result.model.graph.node]

    return run


BRANCHES = """g (bool c, float[2] x) => (float[2] z) {{
  z = If (c) <then_branch = t () => (float[2] p) {{ p = {then} (x) }},
              else_branch = e () => (float[2] q) {{ q = {other} (x) }}>
}}"""


def test_cheap_branches_become_a_choice(optimised: Callable[..., list[str]]) -> None:
    found = optimised(BRANCHES.format(then="Neg", other="Relu"), "if_to_where")
    assert sorted(found) == ["Neg", "Relu", "Where"]


def test_equal_branches_are_one(optimised: Callable[..., list[str]]) -> None:
    assert optimised(BRANCHES.format(then="Neg", other="Neg"), "if_same") == ["Neg"]
    assert optimised(BRANCHES.format(then="Neg", other="Relu"), "if_same") == ["If"]


LOOP = """g (float[2] x, float[2] y) => (float[2] z, float[2] w, float[{times}, 2] s)
<int64 n = {{{times}}}> {{
  z, w, s = Loop (n, , x, y) <body = b (int64 i, bool go, float[2] p, float[2] q)
      => (bool on, float[2] p1, float[2] q1, float[2] out) {{
    on = Identity (go)
    p1 = Add (p, q)
    q1 = Mul (q, x)
    out = Neg (p1)
  }}>
}}"""


def test_a_short_loop_is_written_out(optimised: Callable[..., list[str]]) -> None:
    found = optimised(LOOP.format(times=3), "loop_unroll")
    assert found.count("Add") == 3
    assert "Loop" not in found
    assert "Loop" in optimised(LOOP.format(times=5), "loop_unroll")


def test_a_loop_with_one_output_has_a_first(optimised: Callable[..., list[str]]) -> None:
    text = """g (float[2] x) => (float[2] z) <int64 n = {2}> {
  z = Loop (n, , x) <body = b (int64 i, bool go, float[2] p) => (bool on, float[2] q) {
    on = Identity (go)
    q = Neg (p)
  }>
}"""
    assert optimised(text, "loop_unroll") == ["Neg", "Neg"]


def test_a_loop_that_does_not_run_is_what_it_carries(optimised: Callable[..., list[str]]) -> None:
    text = LOOP.format(times=0).replace(", float[0, 2] s)", ")")
    assert "Loop" not in optimised(text, "loop_dead")
    assert "Loop" in optimised(LOOP.format(times=1).replace(", float[1, 2] s)", ")"), "loop_dead")


SCAN = """g (float[5, 2] x, float[5, 2] y, float[{shape}] k) => (float[5, 2] z, float[5, 2] w) {{
  z, w = Scan <num_scan_inputs = 2, body = b (float[2] p, float[2] q) => (float[2] r, float[2] s) {{
    r = Add (p, q)
    s = {op} (r, k)
  }}> (x, y)
}}"""


def test_elementwise_runs_are_one_application(optimised: Callable[..., list[str]]) -> None:
    assert sorted(optimised(SCAN.format(op="Mul", shape="2"), "scan_to_vector")) == ["Add", "Mul"]
    assert optimised(SCAN.format(op="MatMul", shape="2, 2"), "scan_to_vector") == ["Scan"]
