"""Assertions for users' own test suites: what a rule does to a model, and that it computes the same.

    from rewrite.testing import assert_rewrites, assert_sound, assert_unchanged

    def test_my_rule():
        assert_rewrites(MODEL, rules=["my.rules"], by="my_rule", to=["Relu", "Conv"])
        assert_unchanged(OTHER, rules=["my.rules"])
        assert_sound("my.rules")

A model is a `ModelProto`, a file, or the text that `onnx.parser` reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

    from .engine.pipeline import Optimized

__all__ = ["assert_rewrites", "assert_sound", "assert_unchanged"]


def assert_rewrites(
    model: onnx.ModelProto | str | PathLike[str],
    *,
    rules: Sequence[str | PathLike[str]] = (),
    by: str | Sequence[str] | None = None,
    to: Sequence[str] | Mapping[str, int] | None = None,
    std_rules: bool = False,
    numerics: str = "reassoc",
    verify: bool = True,
) -> onnx.ModelProto:
    """Assert that optimising `model` changes it, and that the result computes the same.

    Args:
        model: the model.
        rules: rule files or directories.
        by: rules of which each must have been applied.
        to: the operators of the result: a list in any order, or a dict of how often each occurs. Operators of other
            domains are named with them, such as `com.microsoft.Gelu`.
        std_rules: whether the standard library takes part.
        numerics: the widest class of rules to admit.
        verify: whether to run both models and compare.

    Returns:
        The optimised model, for assertions of your own.
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
        expected = dict(to) if isinstance(to, Mapping) else {op: list(to).count(op) for op in to}
        if after != expected:
            raise AssertionError(
                f"expected the operators {_counts(expected)}, found {_counts(after)}\n{_graph(result)}"
            )
    if not used and before == after:
        raise AssertionError(f"the model was not changed\n{_graph(result)}")
    if verify:
        _verify(result, proto, numerics)
    return result.model


def assert_unchanged(
    model: onnx.ModelProto | str | PathLike[str],
    *,
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = False,
    numerics: str = "reassoc",
) -> None:
    """Assert that no rule makes any node of the result: the model comes out with the operators it came in with."""
    __tracebackhide__ = True
    proto = _proto(model)
    result = _optimize(proto, rules, std_rules, numerics)
    if used := sorted({rule for node in result.portable.nodes for rule in node.rules}):
        raise AssertionError(f"the model was changed by {', '.join(used)}\n{_graph(result)}")
    before, after = _operators(proto.graph), _operators(result.model.graph)
    if before != after:
        raise AssertionError(f"the model had the operators {_counts(before)} and now has {_counts(after)}")


def assert_sound(
    source: str | PathLike[str], rule: str | None = None, *, std_rules: bool = True, instances: int = 400, seed: int = 0
) -> None:
    """Assert that rules are true: that their tests pass, and that no instance was found on which their sides differ.

    Args:
        source: a rule file, a directory of them, or the text of rules.
        rule: the only rule to check; by default all of them.
        std_rules: whether what the standard library says of operators is known.
        instances: how many instances of each rule to try.
        seed: another seed draws other instances.
    """
    __tracebackhide__ = True
    if isinstance(source, str) and ("\n" in source or "=>" in source):
        from . import transient

        with transient.directory("rules") as folder:
            path = folder / "rules.rules"
            path.write_text(source)
            _assert_sound(path, rule, std_rules, instances, seed)
    else:
        _assert_sound(Path(source), rule, std_rules, instances, seed)


def _assert_sound(path: Path, rule: str | None, std_rules: bool, instances: int, seed: int) -> None:
    __tracebackhide__ = True
    from .engine.library import load_rules, recognitions
    from .engine.rule_tests import run_tests
    from .engine.soundness import Budget, check

    results = run_tests([path], rule, std=std_rules)
    if failed := [result for result in results if not result.ok]:
        lines = [f"{result.file}:{result.line} {result.rule} {result.kind}: {result.message}" for result in failed]
        raise AssertionError("\n".join(lines))
    library = load_rules([path], std=std_rules)
    place = path.resolve()
    own = [
        r for r in (*library.rules, *recognitions(library))
        if (at := Path(r.span.file).resolve()) == place or place in at.parents
    ]  # fmt: skip
    wanted = [r for r in own if rule is None or r.name in (rule, f"recognise_{rule}")]
    if not wanted:
        raise AssertionError(f"{path} has no rule {rule!r}" if rule else f"there are no rules in {path}")
    reports = check(library, wanted, budget=Budget(instances=instances, seed=seed), workers=1, prove=False)
    if wrong := [report for report in reports if not report.ok]:
        raise AssertionError("\n".join(str(report) for report in wrong))


def _proto(model: onnx.ModelProto | str | PathLike[str]) -> onnx.ModelProto:
    import onnx

    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, str) and model.lstrip().startswith("<"):
        return onnx.parser.parse_model(model)
    return onnx.load(model)


def _optimize(
    proto: onnx.ModelProto, rules: Sequence[str | PathLike[str]], std_rules: bool, numerics: str
) -> Optimized:
    from .api import optimize

    return optimize(proto, rules=rules, std_rules=std_rules, numerics=numerics)


def _verify(result: Optimized, proto: onnx.ModelProto, numerics: str) -> None:
    __tracebackhide__ = True
    from .engine.pipeline import verify

    verification = verify(result, proto, numerics=numerics)
    if not verification.ok:
        raise AssertionError(f"the result computes other values: {verification}\n{_graph(result)}")


def _operators(graph: Any) -> dict[str, int]:
    """How often each operator occurs in an ONNX graph; `Constant`, another way to write an initializer, is left out."""
    found: dict[str, int] = {}
    for node in graph.node:
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        if name != "Constant":
            found[name] = found.get(name, 0) + 1
    return found


def _counts(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{op} ×{count}" if count > 1 else op for op, count in sorted(operators.items())) or "(none)"


def _account(result: Optimized, name: str) -> str:
    """What the report has to say of a rule."""
    for rule in result.report.rules:
        if rule.name == name:
            why = f" ({rule.reason})" if rule.reason else ""
            return f"it matched {rule.matches} times and was applied {rule.applied} times{why}"
    return "no such rule was loaded"


def _graph(result: Optimized) -> str:
    lines = [
        f"  {', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)})"
        + (f"  by {', '.join(node.rules)}" if node.rules else "")
        for node in result.portable.nodes
    ]
    return "\n".join(["the result:", *lines])
