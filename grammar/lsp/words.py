"""What the words of the language mean, in a line each: for hover and completion."""

from __future__ import annotations

ITEMS = {
    "rule": "Where the left side is found, the right side is equal.",
    "op": "Properties of an operator, and what an operator of one's own means.",
    "fuse": "Operators that may share a kernel.",
    "def": "An abbreviation, expanded where it is called.",
    "use": "The items of another file; or the versions of a domain's operators that the file is for.",
    "ruleset": "Rules that are run together, within limits.",
    "schedule": "Which rulesets are run, and in what order.",
}
CLAUSES = {
    "let": "A name for an expression, evaluated if and when it is used.",
    "given": "Types of tensors; binds the dims and element types that it names.",
    "where": "What must be known to be true.",
    "class": "How far results may change: `exact`, `exact signed_zero`, `reassoc` or `fast`.",
    "direction": "When the rule is applied: `simplify`, `canonical`, `explore` or `lower`.",
    "joins": "The ruleset that the rule is in.",
    "allow": "A warning about the rule that its author knows of, with the reason.",
    "test": "An example (`fires`), a near miss (`refuses`), or two terms that become one (`equals`).",
    "kind": "How the operator joins kernels.",
    "commutative": "The operands may be swapped.",
    "impure": "The operator gives another result each time and is never shared.",
    "order": "The order in which the members of a group are taken.",
}
CLAUSES_OF = {
    "rule": ("let", "given", "where", "order", "class", "direction", "joins", "allow", "test"),
    "fuse": ("given", "where", "test"),
    "op": ("kind", "commutative", "impure", "given", "where", "class", "test"),
    "ruleset": ("joins",),
}
CHOICES = {
    "class": {
        "exact": "The same bits for every input, NaN, infinities and signed zeros included.",
        "signed_zero": "`exact signed_zero`: the same but for the sign of a zero.",
        "reassoc": "Equal in real arithmetic, rounded elsewhere.",
        "fast": "For finite operands; may overflow where the original did not, or turn NaN into a number.",
    },
    "direction": {
        "simplify": "Never worse; applied to a fixpoint.",
        "canonical": "As good; brings forms together, and no rule undoes it.",
        "explore": "May be worse, cost decides; in rounds, within a budget.",
        "lower": "A choice for those who run the result; last.",
    },
    "kind": {
        "elementwise": "One result element from one element of each operand, under broadcasting.",
        "injective": "Data movement: one result element from one operand element.",
        "reduction": "One result element from all elements along some axes.",
        "complex": "Worth a kernel of its own, with an epilogue.",
        "opaque": "Everything else.",
    },
    "test": {
        "fires": "The rule is applied, and both sides compute the same.",
        "refuses": "The rule is not applied.",
        "equals": "Two terms end in one class.",
    },
}
LIMITS = {
    "iterations": "The most iterations.",
    "matches": "The most matches of one rule in an iteration.",
    "nodes": "The most e-nodes.",
    "seconds": "The most seconds.",
}
WORDS = {
    "true": "The truth value.", "false": "The truth value.", "none": "An input that is absent.",
    "inf": "Infinity.", "nan": "Not a number.", "pi": "π.",
}  # fmt: skip
TYPE_WORDS = {
    "const": "Computed from constants only; may stand before any other type.",
    "scalar": "Exactly one element, whatever the rank.",
    "float": "Any floating-point element type.",
    "integer": "Any integer element type.",
    "number": "Any floating-point or integer element type.",
}
KEYWORDS = frozenset((
    *ITEMS, *CLAUSES, "fires", "refuses", "equals", "gives", "for", "in", "if", "else", "and", "or", "not", "is",
    *CHOICES["kind"],
)) - {"order"}  # fmt: skip
