"""The samplers by name."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from importlib.util import find_spec

from ...backend.ir.schedule import Point, Space
from ...errors import UserError
from .learned import Guided, Ranking
from .loop_features import Features
from .samplers import Annealing, Evolution, Grid, RandomPoints
from .search import Sampler
from .tpe import TreeParzen

NAMES = ("guided", "evolution", "annealing", "tpe", "random", "grid")


def default_name() -> str:
    """Return the name of the sampler that is used if none is asked for: `guided` where LightGBM is installed."""
    return "guided" if find_spec("lightgbm") is not None else "evolution"


def checked_name(name: str | None) -> str:
    """Return the name of a sampler, the default one for None. Raises UserError for an unknown one."""
    if name is None:
        return default_name()
    if name not in NAMES:
        raise UserError(f"there is no search {name!r}", hint=f"The searches are {', '.join(NAMES)}.")
    return name


def make_sampler(
    name: str,
    space: Space,
    seed: str,
    *,
    ranking: Ranking | None = None,
    kernel: Hashable = None,
    features: Callable[[Point], Features] | None = None,
) -> Sampler:
    """Return a sampler by its name. `guided` needs a ranking, the kernel's name in it, and the features of a point.

    Raises UserError without the library that it needs."""
    if name == "guided":
        assert ranking is not None
        assert features is not None
        return Guided(space, seed, ranking, kernel, features)
    if name == "tpe":
        return TreeParzen(space, zlib.crc32(seed.encode()))
    if name == "grid":
        return Grid(space)
    if name == "annealing":
        return Annealing(space, seed)
    return RandomPoints(space, seed) if name == "random" else Evolution(space, seed)
