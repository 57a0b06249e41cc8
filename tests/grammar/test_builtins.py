"""The table of library functions, all of which the engine implements."""

from __future__ import annotations

import inspect

from rewrite.grammar.builtins import functions, operand_functions


def test_signatures() -> None:
    table = functions()
    close = table["close"]
    assert close.signature == "close(a: number, b: number, rtol?: number) -> bool"
    assert (close.min_arguments, close.max_arguments) == (2, 3)
    assert (table["zip"].min_arguments, table["zip"].max_arguments) == (0, None)
    assert all(f.doc.endswith((".", "…")) for f in operand_functions().values())


def test_the_engine_implements_the_library() -> None:
    from rewrite.engine.rewriting.conditions import FUNCTIONS

    assert set(functions()) <= set(FUNCTIONS) <= set(operand_functions())
    for name, function in functions().items():
        _, *parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            continue
        needed = sum(p.default is p.empty for p in parameters)
        assert (function.min_arguments, function.max_arguments) == (needed, len(parameters)), name
