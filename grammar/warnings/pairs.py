"""What two rules have to do with each other: duplicates, shadowing, overlap, loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from .. import ast
from ..ast import Span
from ..builtins import CLASSES
from ..diagnostics import Diagnostic, Label
from .match import Bound, Matcher, is_renaming
from .normal import Open, Way, instantiate
from .together import Together


class Pairs:
    """Compares rules with each other."""

    def __init__(self, matcher: Matcher, together: Together) -> None:
        self.matcher = matcher
        self.together = together

    def find(self, ways: Sequence[Way], asked: frozenset[Span]) -> Iterator[Diagnostic]:
        """All warnings about two rules of which one is asked about."""

        def is_asked(*found: Way) -> bool:
            return any(way.rule.span in asked for way in found)

        by_left: dict[Any, list[Way]] = defaultdict(list)
        for way in ways:
            by_left[_head(way.left)].append(way)
        reported: set[tuple[str, str, str]] = set()
        for group in by_left.values():
            for specific in group:
                for general in group:
                    if general.rule is not specific.rule and is_asked(general, specific):
                        yield from self._once(self._covers(general, specific), reported)
        for way in ways:
            for other in by_left.get(_head(way.right), ()):
                if other.rule is not way.rule and is_asked(way, other):
                    yield from self._once(self._undoes(way, other), reported)
            if is_asked(way):
                yield from self._grows(way)

    @staticmethod
    def _once(
        found: Iterator[tuple[Way, Way, Diagnostic]], reported: set[tuple[str, str, str]]
    ) -> Iterator[Diagnostic]:
        for one, other, diagnostic in found:
            names = sorted((one.rule.name, other.rule.name))
            key = (diagnostic.code, names[0], names[1])
            if key not in reported:
                reported.add(key)
                yield diagnostic

    # --- one left side that is an instance of another

    def _covers(self, general: Way, specific: Way) -> Iterator[tuple[Way, Way, Diagnostic]]:
        for bound in self.matcher.instances(general.left, specific.left):
            conditions = [instantiate(c, bound) for c in general.conditions]
            right = instantiate(general.right, bound)
            equal = self.matcher.same(right, specific.right)
            renamed = is_renaming(bound)
            if equal and self._adds_nothing(general, specific, conditions):
                twice = renamed and self._adds_nothing(specific, general, list(specific.conditions), [*conditions])
                if twice and _place(general.rule) > _place(specific.rule):
                    continue  # told from the other side
                yield general, specific, _covered(general, specific, twice=twice)
                return
            simplify = general.rule.ruleset == specific.rule.ruleset == "simplify"
            simplify = simplify and general.rule.direction == specific.rule.direction == "simplify"
            if simplify and not equal and _are_variables(bound) and self._always(conditions, specific):
                if not self.together.exclude(specific.left, [*conditions, *specific.conditions]):
                    yield general, specific, _overlap(general, specific)
                    return

    def _always(self, conditions: list[ast.Expr], specific: Way) -> bool:
        """Whether a rule applies wherever another does."""
        return all(self.together.implies(specific.conditions, c) for c in conditions)

    def _adds_nothing(
        self, general: Way, specific: Way, conditions: list[ast.Expr], known: list[ast.Expr] | None = None
    ) -> bool:
        strength = CLASSES.index(general.rule.numerics) <= CLASSES.index(specific.rule.numerics)
        if general.rule.numerics == specific.rule.numerics:
            strength = set(general.rule.relaxations) <= set(specific.rule.relaxations)
        if not strength or general.rule.ruleset not in ("simplify", specific.rule.ruleset):
            return False
        found = specific.conditions if known is None else known
        return all(self.together.implies(found, c) for c in conditions)

    # --- rules that follow each other

    def _undoes(self, first: Way, second: Way) -> Iterator[tuple[Way, Way, Diagnostic]]:
        if {first.rule.direction, second.rule.direction} & {"explore", "lower"}:
            return
        if "explore" in (first.rule.ruleset, second.rule.ruleset) or isinstance(first.right, ast.Name):
            return
        for bound in self.matcher.instances(second.left, first.right):
            if self.matcher.same(instantiate(second.right, bound), first.left):
                conditions = [instantiate(c, bound) for c in second.conditions]
                if not self.together.exclude(first.left, [*first.conditions, *conditions]):
                    message = f"`{second.rule.name}` undoes `{first.rule.name}`"
                    label = Label(_name_span(first.rule), "which goes the other way")
                    hint = "let one of them be `direction explore`, or exclude one case by a condition"
                    yield first, second, _warning("loop", message, second.rule, label, hint=hint)
                    return

    def _grows(self, way: Way) -> Iterator[Diagnostic]:
        if way.rule.direction == "explore" or way.rule.ruleset == "explore":
            return
        for part in way.right.walk():
            if not isinstance(part, ast.Call) or not part.is_operator:
                continue
            for bound in self.matcher.instances(way.left, part):
                grown = [n for n, v in bound.items() if _is_larger(v, n)]
                if not grown:
                    continue
                conditions = [instantiate(c, bound) for c in way.conditions]
                if not self.together.exclude(way.left, [*way.conditions, *conditions]):
                    message = f"`{way.rule.name}` matches its own result, and grows each time"
                    hint = "let it be `direction explore`, or add a condition that its result does not meet"
                    yield _warning("growth", message, way.rule, hint=hint)
                    return


def _is_larger(term: Any, name: str) -> bool:
    """Whether a tensor made of operators only has the variable somewhere in it."""
    if not isinstance(term, ast.Call) or not term.is_operator:
        return False
    nodes = list(term.walk())
    plain = all(
        isinstance(n, ast.Name | ast.Number | ast.Attribute) or (isinstance(n, ast.Call) and n.is_operator)
        for n in nodes
    )
    return plain and any(isinstance(n, ast.Name) and n.id == name for n in nodes)


def _are_variables(bound: Bound) -> bool:
    """Whether only variables stand for variables, so that the patterns have one shape."""
    return all(isinstance(v, ast.Name | str | Open) for v in bound.values())


def _covered(general: Way, specific: Way, *, twice: bool) -> Diagnostic:
    label = Label(_name_span(general.rule), "this one does it all" if not twice else "the first one is here")
    if twice:
        message = f"`{specific.rule.name}` says the same as `{general.rule.name}`"
        return _warning("duplicate", message, specific.rule, label, hint="remove one of them")
    message = f"`{specific.rule.name}` adds nothing to `{general.rule.name}`, of which it is a case"
    return _warning("shadowed", message, specific.rule, label, hint="remove it")


def _overlap(general: Way, specific: Way) -> Diagnostic:
    label = Label(_name_span(general.rule), "with another right side")
    message = f"`{specific.rule.name}` and `{general.rule.name}` simplify the same term in two ways"
    hint = "say `direction canonical` or `explore` in one, or exclude one case by a condition"
    return _warning("overlap", message, specific.rule, label, hint=hint)


def _warning(code: str, message: str, rule: ast.Rule, *labels: Label, hint: str = "") -> Diagnostic:
    return Diagnostic(code, message, _name_span(rule), labels, hint, severity="warning")


def _name_span(rule: ast.Rule) -> Span:
    """The first line of a rule: `rule NAME`."""
    at = rule.span
    return Span(at.file, at.line, at.column, at.line, at.column + len("rule ") + len(rule.name))


def _head(term: ast.Expr) -> Any:
    match term:
        case ast.Call(head=head, kind=kind):
            return kind or head
        case ast.Subscript(base=ast.Call(head=head)):
            return f"{head}[]"
    return type(term).__name__


def _place(rule: ast.Rule) -> tuple[str, int, int]:
    return rule.span.file, rule.span.line, rule.span.column


__all__ = ["Bound", "Pairs"]
