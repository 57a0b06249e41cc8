"""Warnings about two rules: duplicates, shadowing, overlap, loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from operator import attrgetter
from typing import Any

from ..builtins import CLASSES
from ..diagnostics import Diagnostic, Label, start_of
from ..syntax import ast
from ..syntax.ast import Span
from .entailment import Entailment
from .pattern_match import Bound, Matcher, is_renaming
from .rule_normal_form import Open, Variant, instantiate

_place = attrgetter("span.file", "span.line", "span.column")
_PLAIN = (ast.Name, ast.Number, ast.Attribute)


class Pairs:
    """Compares rules with each other."""

    def __init__(self, matcher: Matcher, entailment: Entailment) -> None:
        self.matcher = matcher
        self.entailment = entailment

    def find(self, variants: Sequence[Variant], asked: frozenset[Span]) -> Iterator[Diagnostic]:
        """Yield all warnings about two rules of which at least one is in `asked`."""
        reported: set[tuple[str, ...]] = set()

        def is_asked(*found: Variant) -> bool:
            return any(variant.rule.span in asked for variant in found)

        def once(one: Variant, other: Variant, found: Diagnostic | None) -> Iterator[Diagnostic]:
            key = (found.code if found else "", *sorted((one.rule.name, other.rule.name)))
            if found is not None and key not in reported:
                reported.add(key)
                yield found

        by_left: dict[Any, list[Variant]] = defaultdict(list)
        for variant in variants:
            by_left[_head(variant.left)].append(variant)
        for group in by_left.values():
            for specific, general in permutations(group, 2):
                if general.rule is not specific.rule and is_asked(general, specific):
                    yield from once(general, specific, self._covers(general, specific))
        for variant in variants:
            for other in by_left.get(_head(variant.right), ()):
                if other.rule is not variant.rule and is_asked(variant, other):
                    yield from once(variant, other, self._undoes(variant, other))
            if is_asked(variant):
                yield from self._grows(variant)

    # --- one left side that is an instance of another

    def _covers(self, general: Variant, specific: Variant) -> Diagnostic | None:
        for bound in self.matcher.instances(general.left, specific.left):
            conditions = [instantiate(c, bound) for c in general.conditions]
            equal = self.matcher.same(instantiate(general.right, bound), specific.right)
            if equal and self._adds_nothing(general, specific, conditions, specific.conditions):
                twice = is_renaming(bound) and self._adds_nothing(specific, general, specific.conditions, conditions)
                if twice and _place(general.rule) > _place(specific.rule):
                    continue  # reported with the rules exchanged
                return _covered(general, specific, twice=twice)
            kinds = {kind for v in (general, specific) for kind in (v.rule.ruleset, v.rule.direction)}
            if kinds == {"simplify"} and not equal and _are_variables(bound):
                always = all(self.entailment.implies(specific.conditions, c) for c in conditions)
                if always and not self.entailment.exclude(specific.left, [*conditions, *specific.conditions]):
                    return _overlap(general, specific)
        return None

    def _adds_nothing(
        self, general: Variant, specific: Variant, conditions: Iterable[ast.Expr], known: Sequence[ast.Expr]
    ) -> bool:
        """Return whether a rule applies with the conditions, all of them known, at least as widely as another."""
        strength = CLASSES.index(general.rule.numerics) <= CLASSES.index(specific.rule.numerics)
        if general.rule.numerics == specific.rule.numerics:
            strength = set(general.rule.relaxations) <= set(specific.rule.relaxations)
        if not strength or general.rule.ruleset not in ("simplify", specific.rule.ruleset):
            return False
        return all(self.entailment.implies(known, c) for c in conditions)

    # --- rules that follow each other

    def _undoes(self, first: Variant, second: Variant) -> Diagnostic | None:
        if {first.rule.direction, second.rule.direction} & {"explore", "lower"}:
            return None
        if "explore" in (first.rule.ruleset, second.rule.ruleset) or isinstance(first.right, ast.Name):
            return None
        for bound in self.matcher.instances(second.left, first.right):
            if self.matcher.same(instantiate(second.right, bound), first.left):
                conditions = [instantiate(c, bound) for c in second.conditions]
                if not self.entailment.exclude(first.left, [*first.conditions, *conditions]):
                    message = f"`{second.rule.name}` undoes `{first.rule.name}`"
                    label = Label(_name_span(first.rule), "the inverse rule")
                    hint = "give one of them `direction explore`, or exclude the case with a condition"
                    return _warning("loop", message, second.rule, label, hint=hint)
        return None

    def _grows(self, variant: Variant) -> Iterator[Diagnostic]:
        if "explore" in (variant.rule.direction, variant.rule.ruleset):
            return
        for part in variant.right.walk():
            if not isinstance(part, ast.Call) or not part.is_operator:
                continue
            for bound in self.matcher.instances(variant.left, part):
                if not any(_is_larger(term, name) for name, term in bound.items()):
                    continue
                conditions = [instantiate(c, bound) for c in variant.conditions]
                if not self.entailment.exclude(variant.left, [*variant.conditions, *conditions]):
                    message = f"`{variant.rule.name}` matches its own result, which grows each time"
                    hint = "give it `direction explore`, or add a condition that its result does not satisfy"
                    yield _warning("growth", message, variant.rule, hint=hint)
                    return


def _is_larger(term: Any, name: str) -> bool:
    """Return whether a term of operators only contains the variable."""
    if not isinstance(term, ast.Call):
        return False
    nodes = list(term.walk())
    plain = all(n.is_operator if isinstance(n, ast.Call) else isinstance(n, _PLAIN) for n in nodes)
    return plain and any(isinstance(n, ast.Name) and n.id == name for n in nodes)


def _are_variables(bound: Bound) -> bool:
    """Return whether only variables replace variables, so that the patterns have one shape."""
    return all(isinstance(v, ast.Name | str | Open) for v in bound.values())


def _covered(general: Variant, specific: Variant, *, twice: bool) -> Diagnostic:
    label = Label(_name_span(general.rule), "the first one is here" if twice else "the more general rule")
    if twice:
        message = f"`{specific.rule.name}` is equivalent to `{general.rule.name}`"
        return _warning("duplicate", message, specific.rule, label, hint="remove one of them")
    message = f"`{specific.rule.name}` is a special case of `{general.rule.name}` and adds nothing"
    return _warning("shadowed", message, specific.rule, label, hint="remove it")


def _overlap(general: Variant, specific: Variant) -> Diagnostic:
    label = Label(_name_span(general.rule), "has another right side")
    message = f"`{specific.rule.name}` and `{general.rule.name}` simplify the same term in two ways"
    hint = "give one `direction canonical` or `explore`, or exclude the case with a condition"
    return _warning("overlap", message, specific.rule, label, hint=hint)


def _warning(code: str, message: str, rule: ast.Rule, *labels: Label, hint: str = "") -> Diagnostic:
    return Diagnostic(code, message, _name_span(rule), labels, hint, severity="warning")


def _name_span(rule: ast.Rule) -> Span:
    """Return the span of `rule NAME`."""
    return start_of(rule.span, len("rule ") + len(rule.name))


def _head(term: ast.Expr) -> Any:
    match term:
        case ast.Call(head=head, kind=kind):
            return kind or head
        case ast.Subscript(base=ast.Call(head=head)):
            return f"{head}[]"
    return type(term).__name__
