"""The score as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from .score import Line, Outcome, RuleScore, line, lines

_TOP = """# Mutation testing of the soundness checker

Made by `rewrite check --mutants --report docs/mutation.md` (`make mutation`).

Every rule of the standard library is altered in many small ways: a condition dropped, an operand or an axis mistaken, a
bound off by one, a stronger class claimed. A brute-force oracle applies each mutant to every small graph near the
rule's tests (at most {graphs} of them: every dim, element, attribute, operand and type altered) and compares what it
equates on drawn inputs. It shares no code with the generator of instances that is under test.

A mutant is unsound when the oracle has a witness. It is caught when the static checks refuse it (`static`), or layer 2
of `rewrite check` finds a counterexample (`tested`) or fails it because it fires on no instance (`vacuous`). One that
is not caught is `missed`; one that layer 3 proves, `proved`, would be a fault of the prover. Most mutants without a
witness are true: the engine equates nothing whose element type and shape differ, which defuses many a wrong axis.

"""


def page(scores: Sequence[RuleScore], graphs: int) -> str:
    """The page: the score, by kind and by file, and what was missed."""
    outcomes = [o for s in scores for o in s.outcomes]
    whole = line("all", outcomes)
    loaded = whole.unsound - whole.static
    shown = f"**Score: {whole.caught} of {whole.unsound} unsound mutants caught ({whole.score:.2%})**, of "
    shown += f"{whole.mutants} mutants of {len(scores)} rules; of the {loaded} that load and have a witness, layer 2 "
    shown += f"refutes {whole.tested} and fails {whole.vacuous} because they never fire.\n\n"
    text = _TOP.format(graphs=graphs) + shown
    text += "## By kind\n\n" + _table([*lines(outcomes, "kind"), whole])
    text += "\n## By file\n\n" + _table([*lines(outcomes, "file"), whole])
    text += "\n## Missed\n\n" + _missed([o for o in outcomes if o.caught in ("missed", "proved")])
    text += (
        "\n## Proved, though the oracle has a witness\n\nProofs are about real numbers and IEEE's operations; what the "
    )
    text += (
        "oracle holds against them is what implementations leave open (the sign of a zero, the order of sums), or NaN "
    )
    text += "and infinities, which are for layer 2 to look at.\n\n" + _proved([o for o in outcomes if o.proof])
    return text


def _table(rows: Sequence[Line]) -> str:
    text = "| | mutants | static | tested | vacuous | missed | proved | no witness | score |\n"
    text += "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    for r in rows:
        numbers = (r.mutants, r.static, r.tested, r.vacuous, r.missed, r.proved, r.sound)
        text += f"| {r.name} | {' | '.join(map(str, numbers))} | {r.score:.1%} |\n"
    return text


def _missed(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "None.\n"
    return "".join(
        f"- `{o.rule}` ({o.file}): {o.kind}, {o.description}. Witness: {o.evidence[:300]}\n" for o in outcomes
    )


def _proved(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "None.\n"
    return "".join(
        f"- `{o.rule}` ({o.file}): {o.kind}, {o.description} ({o.caught}). {o.proof[:300]}\n" for o in outcomes
    )
