"""`rewrite explain`: the rules that made each node, why a rule did not match, and the value after each stage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from ...errors import UserError
from ...system.short_text import plural
from .. import tables
from ..console import Stages, out, say
from ..options import RuleOptions, Shape, existing_model, grouped, parse_shapes, writable
from ..results import SCHEMA, write_json, writing

if TYPE_CHECKING:
    from ...engine.optimizer import Optimized
    from ...engine.options import Options
    from ...engine.saturation.why_not import WhyNot

SHOWN_PLACES = 20


@grouped
def command(
    model: Annotated[Path, Argument(metavar="MODEL", help="The ONNX model to optimize and explain.")],
    rules: RuleOptions,
    node: Annotated[
        str | None, Option("--node", "-n", metavar="NAME", help="Only this node, of the result or the original.")
    ] = None,
    why_not: Annotated[
        str | None, Option(metavar="RULE", help="Show where this rule came closest to matching, and what was missing.")
    ] = None,
    stages: Annotated[
        bool, Option("--stages", help="Show a summary of the value after each stage of the engine.")
    ] = False,
    egraph: Annotated[
        Path | None,
        Option(
            metavar="FILE.html", help="Draw all equal forms of the value of --node, with their costs (or FILE.json)."
        ),
    ] = None,
    depth: Annotated[int, Option(metavar="N", min=0, max=6, help="With --egraph: how many values away to go.")] = 2,
    graph: Annotated[
        Literal["optimized", "native"],
        Option(help="With --egraph: forms for the optimized ONNX model, or for our own kernels."),
    ] = "optimized",
    trail: Annotated[
        bool, Option("--trail", help="Show the single rewrites from the original to the result, or to --node.")
    ] = False,
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FILE.json", help="With --trail: write it, for `rewrite verify --trail FILE`."
        ),
    ] = None,
    shape: Shape = [],  # noqa: B006
) -> None:
    """Show which rules made each node of the result."""
    from ...engine.optimizer import optimize

    options = rules.options(shapes=parse_shapes(shape), why_not=why_not)
    existing_model(model)
    if egraph is not None:
        _egraph(model, options, node, egraph, depth, "portable" if graph == "optimized" else "native")
        return
    if output is not None and (not trail or node is not None):
        raise UserError("--output takes a whole trail", hint="rewrite explain MODEL --trail --output FILE.json")
    if trail:
        _trail(model, options, node, output)
        return
    if stages:
        _stages(model, options)
        return
    with Stages() as progress:
        result = optimize(model, options, progress)
    if result.why_not is not None:
        _why_not(result.why_not, node)
    elif node is not None:
        for line in result.explain(node):
            say(line)
    else:
        _nodes(result)


def _egraph(model: Path, options: Options, node: str | None, target: Path, depth: int, graph: str) -> None:
    """Write the e-class of a value as a page, or as JSON, and print its forms."""
    from ...engine.pictures import egraph_data
    from ...pages.page import make_page

    if node is None:
        raise UserError("--egraph needs a node or value", hint="For example: --node /layer1/Conv")
    writable(target)
    with Stages() as progress:
        progress("saturate", {})
        found = egraph_data.explore(model, options, graph)
    data = egraph_data.egraph_data(found, node, depth)
    if target.suffix == ".json":
        write_json({"schema": SCHEMA, "model": str(model), **data}, target)
    else:
        make_page("egraph", model.name, data).save(target)
    for line in egraph_data.summary(data):
        say(line)
    say(f"written to {target}")


def _trail(model: Path, options: Options, node: str | None, output: Path | None) -> None:
    """Print the steps from the original to the result, or write them."""
    from ...engine.trails import make, text

    writable(output)
    with Stages() as progress:
        progress("saturate", {})
        found = make.run(model, options)
        progress("trail", {})
        steps = make.trail_of(found, options, node)
    if output is None:
        for line in text.lines(steps, found.source):
            say(line)
        return
    with writing(output) as file:
        steps.write(file)
    say(f"{plural(steps.count, 'step')} written to {output}")
    say(f"check them: rewrite verify {model} OPTIMIZED.onnx --trail {output}")


def _stages(model: Path, options: Options) -> None:
    from ...engine.pipeline import stages

    for name, value in stages(model, options):
        if name == "export":
            value = f"{len(value.SerializeToString()):,} bytes"  # type: ignore[attr-defined]
        first, *rest = str(value).splitlines()
        say(f"{name:<22}{first}")
        for line in rest:
            say(f"{'':<22}{line}")


def _nodes(result: Optimized) -> None:
    table = tables.simple("node", "operator", "made by", "stands for")
    for made in result.portable.nodes:
        if made.rules:
            table.add_row(made.name or made.outputs[0], made.op, " → ".join(made.rules), ", ".join(made.origins))
    count = table.row_count
    if count:
        out().print(table)
    unchanged = len(result.portable.nodes) - count
    out().print(f"{plural(count, 'node')} made by rules, {unchanged} as in the original")


def _why_not(answer: WhyNot, node: str | None) -> None:
    """Print where a rule matches and where it nearly does; with `node`, only what concerns that node."""
    fires = [place for place in answer.fires if node is None or f"({node})" in place]
    misses = [
        miss for miss in answer.misses if node is None or node in (miss.node, *miss.others) or f"({node})" in miss.node
    ]
    if fires:
        out().print(f"{answer.rule} holds at {plural(len(fires), 'place')}:", markup=False)
        for place in fires[:SHOWN_PLACES]:
            say(f"  {place}")
        if len(fires) > SHOWN_PLACES:
            out().print(f"  and {len(fires) - SHOWN_PLACES} more")
        out().print("The result has the cheapest form of each value; `rewrite explain` shows which rules made it.")
    if misses:
        out().print(f"{answer.rule} {'came closest to firing elsewhere:' if fires else 'does not fire; closest:'}")
        sources = {m.span.file: Path(m.span.file).read_text(encoding="utf-8") for m in misses}
        for miss in misses:
            out().print(f"\n{miss.matched} of {miss.total} parts match", markup=False)
            say(miss.diagnostic().render(sources))
    if not fires and not misses:
        where = f" at {node}" if node else ""
        out().print(f"{answer.rule} does not come close{where}: no node of the model is like the root of its pattern")
