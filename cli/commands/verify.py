"""`rewrite verify`: compare an optimized model with its original, by running both and, with a trail, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ...errors import CheckFailed, UserError
from ...system.short_text import plural
from ..console import Stages, say
from ..options import Numerics, Rules, Shape, StdRules, existing_model, parse_shapes

if TYPE_CHECKING:
    from ...engine.options import Options

SECONDS = 60.0


def command(
    model: Annotated[Path, Argument(metavar="MODEL", help="The original ONNX model.")],
    optimized: Annotated[Path, Argument(metavar="OPTIMIZED", help="The ONNX model that is to equal it.")],
    trail: Annotated[
        Path | None,
        Option(metavar="FILE.json", help="Repeat these steps, which `rewrite explain MODEL --trail -o FILE` wrote."),
    ] = None,
    rules: Rules = [],  # noqa: B006
    std_rules: StdRules = True,
    numerics: Annotated[Numerics, Option(help="The widest class of rules that may stand in the trail.")] = "reassoc",
    shape: Shape = [],  # noqa: B006
    run: Annotated[bool, Option(help="Run both models on the same inputs.")] = True,
) -> None:
    """Check that an optimized model computes what its original does.

    Both run on the same inputs. With --trail, each rewrite between them is repeated, too, without the engine that found
    it: the types and conditions of its rule must follow from the model, and what it builds must be what the next one
    begins with."""
    from ...engine.options import Options

    existing_model(model)
    existing_model(optimized)
    if trail is None and not run:
        raise UserError("nothing to check", hint="Give --trail FILE, or leave out --no-run.")
    options = Options(rules=rules, std_rules=std_rules, numerics=numerics, shapes=parse_shapes(shape))
    verdicts = []
    with Stages() as progress:
        if trail is not None:
            progress("trail", {})
            verdicts.append(f"trail: {plural(_trail(model, optimized, trail, options), 'step')} repeated, each holds")
        if run:
            progress("verify", {})
            verdicts.append(_run(model, optimized, options))
    for verdict in verdicts:
        say(verdict)


def _trail(model: Path, optimized: Path, trail: Path, options: Options) -> int:
    """Repeat the steps of a trail and return their number. Raises `CheckFailed` if they do not lead to the result."""
    from ...engine.trails import check
    from ...engine.trails.trail import read

    found = read(trail)
    try:
        return check.check_files(found, model, optimized, options)
    except check.Broken as broken:
        place = "at the end" if broken.step is None else f"step {broken.step + 1}"
        graph = found.graphs[broken.graph]
        stage = f" of stage {broken.stage + 1}" if len(graph.stages) > 1 else ""
        body = f" in the body that computes {', '.join(graph.outputs)}" if graph.body else ""
        raise CheckFailed(f"the trail does not hold, {place}{stage}{body}: {broken}") from broken


def _run(model: Path, optimized: Path, options: Options) -> str:
    """Run both models on the same inputs and return the verdict. Raises `CheckFailed` if their outputs differ."""
    from ...engine import pipeline
    from ...engine.rewriting.rule_library import load_rules
    from ...engine.verification.verify import check_model

    library = load_rules(options.rules, std=options.std_rules)
    before, after = (pipeline.read(path, options, library).graph for path in (model, optimized))
    for what, old, new in (("inputs", before.inputs, after.inputs), ("outputs", before.outputs, after.outputs)):
        if [*old] != [*new]:
            raise CheckFailed(f"the models have other {what}: {', '.join(old)} and {', '.join(new)}")
    found = check_model(
        model, optimized, before, numerics=options.numerics, seconds=SECONDS, shapes=dict(options.shapes)
    )
    if not found.ok:
        raise CheckFailed(str(found))
    return str(found)
