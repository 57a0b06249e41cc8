"""The stages of the backend: each can be called alone, and its value printed."""

from __future__ import annotations

import numpy as np
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.target import detect
from rewrite.backend.pipeline import stages
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

from . import models


def test_each_stage_has_a_value() -> None:
    graph = models.chain()
    values = dict(stages(graph, PlanSettings(standard_policy(), detect(), 1)))
    assert list(values) == ["group", "lower", "place", "generate", "build", "link"]
    assert "relu" in str(values["group"])
    assert all(str(value) for value in values.values())
    program = values["link"]
    assert isinstance(program, Program)
    inputs = {port.name: np.ones([4 if isinstance(d, str) else d for d in port.shape or ()], np.float32)
              for port in program.inputs}  # fmt: skip
    for name, found in compile_graph(graph, threads=1).run(inputs).items():
        np.testing.assert_array_equal(program.run(inputs)[name], found)


def test_constants_beyond_signed_64_bits() -> None:
    """Small constants of integers are numbers of the plan, which has 64 bits with a sign for each."""
    values = np.array([2**63 + 11, 2**64 - 1, 3], np.uint64)
    graph = harness.make_graph([Node("Identity", ("c",), ("y",))], {}, constants={"c": values}, outputs=["y"])
    np.testing.assert_array_equal(compile_graph(graph, threads=1).run({})["y"], values, strict=True)
