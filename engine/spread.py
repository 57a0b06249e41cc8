"""The inputs of a variadic operator, dealt out to the parts of its pattern: `xs[*]`, one input, `Relu(x[i]) ...`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..grammar import ast
from .attributes import Binding
from .evaluate import Evaluator, count_of
from .patterns import Part
from .submatch import Search
from .values import TensorRef, Unprovable

START = "#start"
"""Under this name and that of an index a match keeps where the inputs begin that the index numbers."""


@dataclass(slots=True)
class Spread:
    """One node: its inputs, the parts of the pattern, and at which of the inputs the matcher has found them."""

    children: Sequence[int]
    parts: tuple[Part, ...]
    at: Mapping[str, int]
    env: Binding
    evaluator: Evaluator
    exact: bool
    given: Sequence[ast.Given] = ()

    def bind(self) -> None:
        """Binds the variables of the parts; raises `Unprovable` where they do not cover the inputs exactly."""
        runs = {number: self._run(number, part) for number, part in enumerate(self.parts) if part.each is not None}
        start = 0
        for number, part in enumerate(self.parts):
            if part.name:
                following = number + 1
                end = len(self.children)
                if following < len(self.parts):
                    end = runs[following][0] if following in runs else self.at[self.parts[following].position]
                if end < start or (end == start and len(self.parts) == 1):
                    raise Unprovable(f"nothing is left for {part.name}")
                found = [TensorRef(c) for c in self.children[start:end]]
                if self.env.setdefault(part.name, found) != found:
                    raise Unprovable(f"{part.name} stands for other inputs elsewhere")
                start = end
            elif number in runs:
                if runs[number][0] != start:
                    raise Unprovable("an input is not of the form that each has")
                start = runs[number][1]
            else:
                if self.at[part.position] != start:
                    raise Unprovable("an input is at another position")
                start += self._width(part, start)
        if start != len(self.children):
            raise Unprovable("it has more inputs")

    def _width(self, part: Part, start: int) -> int:
        """How many inputs a part is that the matcher has found: one, or all outputs of a node."""
        if not part.whole:
            return 1
        egraph = self.evaluator.egraph
        whole = egraph.find(self.at[part.whole])
        count = len(egraph.types(whole))
        for k in range(count):
            if start + k >= len(self.children) or not egraph.is_output(self.children[start + k], whole, k):
                raise Unprovable("its inputs are not all the outputs of one node in order")
        return count

    def _run(self, number: int, part: Part) -> tuple[int, int]:
        """The inputs around the one that the matcher has found that are of the form of a part, bound; from where to
        where they go."""
        low, high = self._bounds(number)
        loose_left = number > 0 and bool(self.parts[number - 1].name)
        loose_right = number + 1 < len(self.parts) and bool(self.parts[number + 1].name)
        seed = self.at[part.position]
        if not low <= seed < high:
            raise Unprovable("an input is at another position")
        search = Search(self.evaluator, exact=self.exact, given=self.given)
        assert part.each is not None
        for env in search.matches(part.each, self.children[seed], self.env):
            own = [{name: env.pop(name) for name in part.own}]
            start, end = seed, seed + 1
            while start > low and (one := self._next(search, part, start - 1, env)) is not None:
                own.insert(0, one)
                start -= 1
            while end < high and (one := self._next(search, part, end, env)) is not None:
                own.append(one)
                end += 1
            if (start == low or loose_left) and (end == high or loose_right):
                self.env.update(env)
                self.env.update({name: [one[name] for one in own] for name in part.own})
                self.env[count_of(part.index)] = end - start
                self.env[START + part.index] = start
                return start, end
        raise Unprovable("not all inputs are of the form that each has")

    def _next(self, search: Search, part: Part, place: int, env: Binding) -> Binding | None:
        """What is bound for the one input at a place; `env` is added to."""
        assert part.each is not None
        for found in search.matches(part.each, self.children[place], env):
            own = {name: found.pop(name) for name in part.own}
            env.update(found)
            return own
        return None

    def _bounds(self, number: int) -> tuple[int, int]:
        """Between which places a part of many inputs may lie: the nearest parts on both sides that have a place."""
        low, high = 0, len(self.children)
        for part in reversed(self.parts[:number]):
            if part.position and part.each is None:
                place = self.at[part.position]
                low = place + self._width(part, place)
                break
        for part in self.parts[number + 1 :]:
            if part.position and part.each is None:
                high = self.at[part.position]
                break
        return low, high
