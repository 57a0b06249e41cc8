"""The cases of ONNX's own test suites, run through `rewrite.onnx_backend`."""

from __future__ import annotations

import contextlib
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from rewrite import onnx_backend
from rewrite.backend.ir.kernel_graph import ModelPlan
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.backend.toolchain.builder import build
from rewrite.engine.onnx_io.importer import read
from rewrite.errors import RewriteError
from rewrite.system.store import Store

from .cases import Case, node_cases, stored_cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

# Every case that isn't expected to pass, by the beginning of its name, with the reason.
UNSUPPORTED = {"test_bernoulli": "draws random numbers: the values differ by nature"}

NAMES = sorted(node_cases())


def unsupported(name: str) -> str | None:
    """Return the reason why a case is expected to fail; None if it must pass."""
    return next((reason for start, reason in UNSUPPORTED.items() if name.startswith(start)), None)


@cache
def plans() -> list[ModelPlan]:
    """Return the plans of all cases that can be planned."""
    found = []
    for case in node_cases().values():
        with contextlib.suppress(RewriteError):
            found.append(lower(group(read(case.model), PlanSettings(standard_policy(), detect(), 1))))
    return found


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Build all kernels of all cases at once: far cheaper than one module for each case."""
    build(list(dict.fromkeys(kernel for plan in plans() for kernel in plan.kernels)), detect(), Store())


@pytest.mark.parametrize("name", NAMES)
def test_node(name: str) -> None:
    reason = unsupported(name)
    if reason is not None:
        pytest.skip(reason)
    check(node_cases()[name], optimize=False)


@pytest.mark.parametrize("name", [n for n in NAMES[::60] if unsupported(n) is None])
def test_optimized_node(name: str) -> None:
    """The same through all stages for some of the cases: each needs a saturation."""
    check(node_cases()[name], optimize=True)


@pytest.mark.parametrize("name", sorted(stored_cases()))
def test_model(name: str) -> None:
    check(stored_cases()[name], optimize=False)


def test_few_cases_are_left_out() -> None:
    left_out = [name for name in NAMES if unsupported(name) is not None]
    assert len(left_out) <= 6
    assert all(any(n.startswith(start) for n in NAMES) for start in UNSUPPORTED)


def test_most_cases_run_natively() -> None:
    native = sum(not plan.fallbacks() for plan in plans())
    assert native >= 0.4 * len(NAMES)


def check(case: Case, *, optimize: bool) -> None:
    """Run a case and compare its outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = onnx_backend.prepare(case.model, threads=1, optimize=optimize)
    for inputs, expected in case.data:
        found = prepared.run(inputs)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs, case)


def compare(ours: Any, theirs: Any, case: Case) -> None:
    """Assert that two values are equal: arrays (within the tolerance of the case), lists of them, or None."""
    if theirs is None:
        assert ours is None
    elif isinstance(theirs, list | tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            compare(a, b, case)
    else:
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype or theirs.dtype.kind in "OUS"
        assert ours.shape == theirs.shape
        if theirs.dtype.kind in "OUS":
            np.testing.assert_array_equal(ours.astype(str), theirs.astype(str))
        elif theirs.dtype.kind in "biu":
            np.testing.assert_array_equal(ours, theirs)
        else:
            kind = np.complex128 if theirs.dtype.kind == "c" else np.float64
            atol = case.atol
            if "dft" in case.name:  # parts that cancel are the rounding of the largest ones, in the reference too
                atol = max(atol, 1e-7 * float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours.astype(kind), theirs.astype(kind), rtol=case.rtol, atol=atol)
