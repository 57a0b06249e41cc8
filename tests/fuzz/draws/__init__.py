"""What random graphs are made of: for each operator of the standard and of ai.onnx.ml, how to draw its operands.

In: a graph that grows (`maker`). Out: the graph with one node more, or a few that belong together. Constraints that are
easily stated hold by construction; an oracle refuses what violates the others. The order of the modules decides what a
seed draws.
"""

from __future__ import annotations

from . import (  # isort: skip
    elementwise, movement, reductions, products, windows, recurrent, losses, control, ml, microsoft,
)  # fmt: skip
from .registry import step

MODULES = (elementwise, movement, reductions, products, windows, recurrent, losses, control, ml, microsoft)
__all__ = ["MODULES", "step"]
