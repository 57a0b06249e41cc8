"""`rewrite explain`: which rules led from the old nodes to the new."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import (
    NodeLimit,
    Numerics,
    NumericsOption,
    Rules,
    Shape,
    StdRules,
    TimeLimit,
    existing_model,
    parse_shapes,
)

if TYPE_CHECKING:
    from ...engine.nearest import WhyNot


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model to optimise and explain.")],
    node: Annotated[
        str | None, typer.Option("--node", "-n", metavar="NAME", help="Only this node, of the result or the original.")
    ] = None,
    why_not: Annotated[
        str | None,
        typer.Option(
            "--why-not", metavar="RULE", help="Tell where this rule came nearest to firing, and what was missing."
        ),
    ] = None,
    rules: Rules = [],  # noqa: B006
    std_rules: StdRules = True,
    numerics: NumericsOption = Numerics.REASSOC,
    shape: Shape = [],  # noqa: B006
    time_limit: TimeLimit = None,
    node_limit: NodeLimit = None,
) -> None:
    """Tell which rules made each node of the result."""
    from ... import api
    from .. import tables
    from ..console import out
    from ..progress import Stages

    with Stages() as stages:
        result = api.optimize(
            existing_model(model),
            rules=rules,
            std_rules=std_rules,
            numerics=numerics.value,
            shapes=parse_shapes(shape),
            time_limit=time_limit,
            node_limit=node_limit,
            why_not=why_not,
            progress=stages,
        )
    if why_not is not None:
        assert result.why_not is not None
        _why_not(result.why_not, node)
        return
    if node is not None:
        for line in result.explain(node):
            out().print(line, markup=False, soft_wrap=True)
        return
    table = tables.simple("node", "operator", "made by", "stands for")
    unchanged = 0
    for made in result.portable.nodes:
        if made.rules:
            table.add_row(made.name or made.outputs[0], made.op, " → ".join(made.rules), ", ".join(made.origins))
        else:
            unchanged += 1
    if table.row_count:
        out().print(table)
    made_count = table.row_count
    out().print(f"{made_count} node{'s' * (made_count != 1)} made by rules, {unchanged} as in the original")


def _why_not(answer: WhyNot, node: str | None) -> None:
    """Print where a rule holds and where it nearly does; with `node`, only what concerns that node."""
    from ..console import out

    fires = [place for place in answer.fires if node is None or f"({node})" in place]
    misses = [
        miss for miss in answer.misses if node is None or node in (miss.node, *miss.others) or f"({node})" in miss.node
    ]
    if fires:
        count = len(fires)
        out().print(f"{answer.rule} holds at {count} place{'s' * (count != 1)}:", markup=False)
        for place in fires[:20]:
            out().print(f"  {place}", markup=False, soft_wrap=True)
        if count > 20:
            out().print(f"  and {count - 20} more")
        out().print("What a rule adds is in the result where it is the cheapest form; `rewrite explain` tells where.")
    if misses:
        out().print(
            f"{answer.rule} came nearest to firing elsewhere:" if fires else f"{answer.rule} does not fire; nearest:"
        )
        sources = {m.span.file: Path(m.span.file).read_text(encoding="utf-8") for m in misses}
        for miss in misses:
            out().print(f"\n{miss.matched} of {miss.total} parts match", markup=False)
            out().print(miss.diagnostic().render(sources), markup=False, soft_wrap=True)
    if not fires and not misses:
        where = f" at {node}" if node else ""
        out().print(f"{answer.rule} is nowhere near{where}: the model has no node like the root of its pattern")
