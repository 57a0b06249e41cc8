"""Layer 3 of `rewrite check`: proofs that a rule holds for tensors of any size.

In: a rule and its library. Out: a `Proof` with its bounds, or `NotProved` with the reason. Both sides of the rule are
executed symbolically, case by case, and compared as scalar expressions over reads of the rule's variables.

The layers, from the top: `prover` iterates over the cases of a rule and over ranks. `execution` evaluates the rule's
expressions, `equality` brings two scalars to normal form and compares them, with an SMT solver where necessary.
`semantics` defines the operators. `paths` holds the choices and facts of a case, and the tensors that depend on them.
`terms` are symbolic integers, scalars and their algebra.

Proofs for any size at a given rank are the idea of TensorRight (Arora et al., "TensorRight: Automated Verification of
Tensor Graph Rewrites", POPL 2025), which applies it to XLA. Assumptions: the semantics defined here, which a test
compares with ONNX's reference implementation; the solver; and that the engine applies a rule only where both sides have
the same element type and shape. Sums of class `exact` are equal if they add the same terms in the same order. A proof
of class `reassoc` is over the real numbers and drops no operand that could be infinite or NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .proof import NotProved, Proof

if TYPE_CHECKING:
    from ...grammar.library.load import Library
    from ...grammar.syntax import ast

__all__ = ["NotProved", "Proof", "prove"]


def prove(rule: ast.Rule, library: Library, *, seconds: float = 6.0) -> Proof | NotProved:
    """Prove a rule within about `seconds` of work, which is counted in steps rather than timed.

    A missing proof is not a refutation; layer 2 looks for counterexamples."""
    try:
        import z3  # noqa: F401
    except ImportError:
        return NotProved("layer 3 needs the extra `prove`: pip install onnx-rewrite[prove]")
    from ..certificates.checker import check  # both need z3, which is optional
    from .prover import prove_rule, shortened

    try:
        found = prove_rule(rule, library, seconds)
        if isinstance(found, NotProved):
            return found
        proof, certificate = found
        refused = check(certificate)
        return proof if refused is None else NotProved(shortened(f"not confirmed: {refused}"))
    except Exception as error:  # a bug on one rule must not end a check of many
        return NotProved(f"failed: {type(error).__name__}: {error}")
