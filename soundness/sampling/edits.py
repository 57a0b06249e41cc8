"""The table of edits, and its two drivers: one samples the table, the other enumerates it.

From an instance on which a rule fires, most edits lead to another one or to a near miss, on which a condition that
should hold does not. The rule itself decides whether it fires; both sides must then be equal. A mistake often shows at
one place only, such as one axis of one operand. So the first instances on which a rule fires are edited at every place,
and later ones at random.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from .coupled_edits import COUPLED_EDITS
from .edit import Edit, Editing, weight_bounds, weighted
from .instance import Instance
from .operand_edits import DTYPES, STRUCTURE_EDITS, VALUE_EDITS
from .shape_edits import SHAPE_EDITS

EDITS: tuple[Edit, ...] = (*SHAPE_EDITS, *VALUE_EDITS, *STRUCTURE_EDITS, *COUPLED_EDITS)
_TRIES = 12
_LARGEST = 4096
"""Maximum number of elements of a tensor in a sampled instance."""
_ALTERNATIVES = 64
"""Maximum number of alternatives at one place among which a sample is taken."""
PER_KIND = 120
"""Maximum number of instances by an edit of which all are tried. Rules of quantized operators have up to five times as
many of some, which would take the time of all others."""


def sample_edit(editing: Editing, instance: Instance) -> Instance | None:
    """Return the instance with one random edit; None if none was found that changes it."""
    weights = [e.weight + (e.per_place and e.per_place * len(e.places(editing, instance))) for e in EDITS]
    bounds = weight_bounds(weights)
    for _ in range(_TRIES):
        edit = EDITS[weighted(editing.rng, bounds)]
        places = edit.places(editing, instance)
        if not places:
            continue
        found = edit.alternatives(editing, instance, *editing.pick(places))
        number = int(editing.rng.integers(_ALTERNATIVES))
        options = list(itertools.islice(found, number + 1))
        changed = options[number % len(options)] if options else instance
        sizes = [math.prod(d if isinstance(d, int) else 3 for d in t.shape) for _, t in changed.tensors]
        if changed.key != instance.key and max(sizes, default=0) <= _LARGEST:
            return changed
    return None


def enumerate_edits(editing: Editing, instance: Instance, most: int, per_kind: int = PER_KIND) -> list[Instance]:
    """Return the instances one edit away: up to `most` with other shapes, and up to `per_kind` by each other edit.

    `most` is divided evenly among the kinds of edits that have many alternatives; what a kind leaves over goes to the
    larger ones."""
    known = {instance.key}

    def new(edit: Edit) -> list[Instance]:
        found = {one.key: one for one in _in_turn(editing, instance, edit) if one.key not in known}
        known.update(found)
        return list(found.values())

    chosen = [one for edit in EDITS if edit.enumerated == "all" for one in _spread(new(edit), per_kind)]
    kinds = [new(edit) for edit in EDITS if edit.enumerated == "share"]
    for number, found in enumerate(sorted(kinds, key=len)):
        share = _spread(found, most // (len(kinds) - number))
        most -= len(share)
        chosen += share
    return chosen


def _spread(found: Sequence[Instance], most: int) -> list[Instance]:
    """Return at most as many instances: the simplest ones, which come first, as one half, the rest from all others."""
    count = min(len(found), most)
    first = count // 2
    rest = found[first:]
    return [*found[:first], *(rest[i * len(rest) // (count - first)] for i in range(count - first))]


def _in_turn(editing: Editing, instance: Instance, edit: Edit) -> Iterator[Instance]:
    """Yield all alternatives of an edit: the first one of each place, the second one of each place, and so on."""
    rows = (edit.alternatives(editing, instance, *place) for place in edit.places(editing, instance))
    for row in itertools.zip_longest(*rows):
        yield from (one for one in row if one is not None)


def retyped(editing: Editing, instance: Instance) -> list[Instance]:
    """Return the instance in every other element type; tensors of one type change together."""
    return list({one.key: one for one in _in_turn(editing, instance, DTYPES)}.values())
