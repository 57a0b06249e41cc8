"""Stages whose sizes data determine, as the runtime takes them: malformed ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import rewrite
from rewrite.backend.ir.dim_program import postfix
from rewrite.backend.runtime.native import executor as native
from rewrite.engine.ir.dim_parser import parse

Row = tuple[Any, ...]


def stage(size: Any = 8, part: int = 0, symbol: int = 0, arena: int = 3) -> Row:
    """Return a stage without steps, which measures an extent and has one buffer."""
    return [((2, part, 0), symbol, 100)], None, [], [], [(size, 0, 0)], [], [], arena


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (stage(size=[(0, 1), (2,)]), "not well formed"),
        (stage(size=[(0, 1), (0, 1)]), "not well formed"),
        (stage(size=[(0, 1), (0, 1), (99,)]), "not well formed"),
        (stage(size=[(0, 1)] * 65 + [(2,)] * 64), "not well formed"),
        (stage(size=[(1, 5)]), "no such symbol"),
        (stage(symbol=3), "no such symbol"),
        (stage(part=7), "no such part"),
        (stage(arena=-1), "no such base"),
        ((*stage()[:3], [([], [], [], 1, 0)], *stage()[4:]), "need a walk"),
    ],
)
def test_malformed_stages_are_refused(row: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native.Stages([row], 1, 1)


def test_a_call_needs_as_many_symbols_and_parts_as_its_stages() -> None:
    stages = native.Stages([stage()], 1, 1)
    for bases, symbols, parts in ((3, [-1], [0]), (8, [], [0]), (8, [-1], [])):
        with pytest.raises(ValueError, match="another program"):
            native.Call(native.Block([]), [], bases, 1, [], [], [], None, stages=stages, symbols=symbols, parts=parts)


def test_dims_in_postfix_order() -> None:
    symbols: dict[str, int] = {}
    assert postfix(parse("2*N + 3"), symbols) == [(0, 2), (1, 0), (3,), (0, 3), (2,)]
    assert postfix(parse("max(M, N)"), symbols)[-1] == (5,)
    assert symbols == {"N": 0, "M": 1}


def test_the_program_of_a_loaded_bundle_runs_its_stages(tmp_path: Any) -> None:
    from .test_measured_extents import chosen, model, without_python

    program = rewrite.compile(model("n = NonZero(x) y = Neg(n)", "float[N] x"), threads=1)
    loaded = rewrite.load(program.save(tmp_path / "p.rewrite"))
    x = chosen(40)
    wanted = loaded.run({"x": x})["y"]
    with without_python():
        assert (loaded.run({"x": x})["y"] == wanted).all()
        assert loaded.run({"x": chosen(40)})["y"].dtype == wanted.dtype
