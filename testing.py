"""Assertions for users' own test suites: what a rule does to a model, and that the results stay the same.

    from rewrite.testing import assert_rewrites, assert_sound, assert_unchanged

    def test_my_rule():
        assert_rewrites(MODEL, rules=["my.rules"], by="my_rule", to=["Relu", "Conv"])
        assert_unchanged(OTHER, rules=["my.rules"])
        assert_sound("my.rules")

A model is a `ModelProto`, a file, or text in the format of `onnx.parser`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from .engine.optimizer import Optimized

    Rules = Sequence[str | PathLike[str]]
    Model = onnx.ModelProto | str | PathLike[str]

__all__ = ["assert_rewrites", "assert_sound", "assert_unchanged"]


def assert_rewrites(
    model: Model,
    *,
    rules: Rules = (),
    by: str | Sequence[str] | None = None,
    to: Sequence[str] | Mapping[str, int] | None = None,
    std_rules: bool = False,
    numerics: str = "reassoc",
    verify: bool = True,
) -> onnx.ModelProto:
    """Assert that optimizing `model` changes it, and that the result computes the same values; return the result.

    Args:
        by: rules that must all have been applied.
        to: the operators of the result: a list in any order, or a dict of counts. Operators of other domains
            include the domain, such as `com.microsoft.Gelu`.
        verify: whether to run both models and compare the outputs.

    The other arguments are those of `rewrite.optimize`.
    """
    __tracebackhide__ = True
    proto = _proto(model)
    result = _optimize(proto, rules, std_rules, numerics)
    used = {rule for node in result.portable.nodes for rule in node.rules}
    applied = used | {rule.name for rule in result.report.rules if rule.applied}
    before, after = _operators(proto.graph), _operators(result.model.graph)
    for name in [by] if isinstance(by, str) else by or []:
        if name not in applied:
            raise AssertionError(f"rule {name!r} was not applied; {_account(result, name)}\n{_graph(result)}")
    if to is not None:
        expected = dict(Counter(to))
        if after != expected:
            what = f"expected the operators {_counts(expected)}, found {_counts(after)}"
            raise AssertionError(f"{what}\n{_graph(result)}")
    if not used and before == after:
        raise AssertionError(f"the model was not changed\n{_graph(result)}")
    if verify and not (verification := result.verify(proto)).ok:
        raise AssertionError(f"the result computes different values: {verification}\n{_graph(result)}")
    return result.model


def assert_unchanged(model: Model, *, rules: Rules = (), std_rules: bool = False, numerics: str = "reassoc") -> None:
    """Assert that no rule creates a node of the result, and that its operators are those of the model."""
    __tracebackhide__ = True
    proto = _proto(model)
    result = _optimize(proto, rules, std_rules, numerics)
    if used := sorted({rule for node in result.portable.nodes for rule in node.rules}):
        raise AssertionError(f"the model was changed by {', '.join(used)}\n{_graph(result)}")
    before, after = _operators(proto.graph), _operators(result.model.graph)
    if before != after:
        raise AssertionError(f"the model had the operators {_counts(before)} and now has {_counts(after)}")


def assert_sound(
    source: str | PathLike[str],
    rule: str | None = None,
    *,
    std_rules: bool = True,
    instances: int = 400,
    seed: int = 0,
    references: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Assert that rules are sound: their tests pass, and both sides agree on all instances tried.

    Args:
        source: a rule file, a directory of them, or the text of rules.
        rule: the only rule to check; by default all of them.
        std_rules: whether the operators that the standard library declares are known.
        instances: instances to try for each rule.
        seed: seed of the random instances.
        references: functions that compute operators, by names such as `com.acme.Swish`. They take the inputs as arrays
            and the attributes by name. Definitions are compared with them.
    """
    __tracebackhide__ = True
    from .engine.verification.reference_functions import reference_functions
    from .system import scoped

    with contextlib.ExitStack() as stack:
        path = Path(source)
        if isinstance(source, str) and ("\n" in source or "=>" in source):
            path = stack.enter_context(scoped.directory("rules")) / "rules.rules"
            path.write_text(source)
        _run_tests(path, rule, std_rules)  # by the definitions alone: a function may round in another way
        stack.enter_context(reference_functions(references or {}))
        _check(path, rule, std_rules, instances, seed)


def _run_tests(path: Path, rule: str | None, std_rules: bool) -> None:
    __tracebackhide__ = True
    from .engine.rule_tests.run_tests import run_tests

    results = run_tests([path], rule, std=std_rules)
    if failed := [result for result in results if not result.ok]:
        lines = [f"{result.file}:{result.line} {result.rule} {result.kind}: {result.message}" for result in failed]
        raise AssertionError("\n".join(lines))


def _check(path: Path, rule: str | None, std_rules: bool, instances: int, seed: int) -> None:
    __tracebackhide__ = True
    from .engine.rewriting.rule_library import load_rules, recognitions
    from .soundness import Budget, check

    place = path.resolve()
    library = load_rules([path], std=std_rules)
    own = [r for r in (*library.rules, *recognitions(library)) if Path(r.span.file).resolve().is_relative_to(place)]
    wanted = [r for r in own if rule is None or r.name in (rule, f"recognize_{rule}")]
    if not wanted:
        raise AssertionError(f"{path} has no rule {rule!r}" if rule else f"there are no rules in {path}")
    reports = check(library, wanted, budget=Budget(instances=instances, seed=seed), workers=1, prove=False)
    if wrong := [report for report in reports if not report.ok]:
        raise AssertionError("\n".join(str(report) for report in wrong))


def _proto(model: Model) -> onnx.ModelProto:
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, str) and model.lstrip().startswith("<"):
        return onnx.parser.parse_model(model)
    return onnx.load(model)


def _optimize(proto: onnx.ModelProto, rules: Rules, std_rules: bool, numerics: str) -> Optimized:
    from .api import optimize

    return optimize(proto, rules=rules, std_rules=std_rules, numerics=numerics)


def _operators(graph: Any) -> Counter[str]:
    """Count the operators of an ONNX graph, except `Constant`, which is another form of initializer."""
    names = (f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in graph.node)
    return Counter(name for name in names if name != "Constant")


def _counts(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{op} ×{count}" if count > 1 else op for op, count in sorted(operators.items())) or "(none)"


def _account(result: Optimized, name: str) -> str:
    """Return what the report says about a rule."""
    for rule in result.report.rules:
        if rule.name == name:
            why = f" ({rule.reason})" if rule.reason else ""
            return f"it matched {rule.matches} times and was applied {rule.applied} times{why}"
    return "no such rule was loaded"


def _graph(result: Optimized) -> str:
    lines = []
    for node in result.portable.nodes:
        by = f"  by {', '.join(node.rules)}" if node.rules else ""
        lines.append(f"  {', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)}){by}")
    return "\n".join(["the result:", *lines])
