"""`rewrite explain`: which rules led from the old nodes to the new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model to optimise and explain.")],
    node: Annotated[
        str | None, typer.Option("--node", "-n", metavar="NAME", help="Only this node, of the result or the original.")
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
            progress=stages,
        )
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
