"""The engine, stage by stage: ModelProto → Graph → EGraph → saturated EGraph → Graph → ModelProto.

`optimize` is the whole of it; each stage is a function of its own that can be run, printed and tested alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from . import bodies, decode, onnx_in, onnx_out, retry, worker
from .cost import CostModel
from .graph import Graph
from .library import NUMERICS, PRECISIONS, begin_standard, load_rules, operators_of, recognitions
from .nearest import WhyNot, combined
from .operators import Declared, declaring
from .report import Report, make_report
from .saturate import Limits
from .schedule import STANDARD as STANDARD_SCHEDULE
from .schedule import make_plan
from .verify import Verification, check_model

if TYPE_CHECKING:
    from onnx import ModelProto

    from ..grammar.library import Library

Progress = Callable[[str, Mapping[str, Any]], None]
_ROUNDS = 3
"""So often bodies are optimised that rules made of bodies, and those made of these."""
Model = "str | Path | bytes | ModelProto | Graph"


@dataclass(slots=True)
class Optimized:
    """What optimising a model gives.

    `graph_in` is the model as read, `portable` the graph that `model` was written from (standard operators at the
    input's opset), `native` the one for our own kernels, `report` what happened; `why_not` is where the rule that was
    asked for holds, and where it came nearest to it. `numerics` is the widest class of rules that was admitted."""

    graph_in: Graph
    portable: Graph
    native: Graph
    report: Report
    why_not: WhyNot | None = None
    declared: Mapping[str, Declared] = field(default_factory=dict, repr=False)
    numerics: str = "reassoc"
    _model: Any = field(default=None, repr=False)

    @property
    def model(self) -> ModelProto:
        """The optimised ONNX model, made when first asked for."""
        if self._model is None:
            self._model = onnx_out.write(self.portable)
        return self._model  # type: ignore[no-any-return]

    def expanded(self) -> tuple[ModelProto, ModelProto]:
        """The original and the result with operators from outside the standard replaced by their definitions.

        Raises `UserError` if one has none."""
        from .expansion import expanded

        before, after = (onnx_out.write(expanded(g, self.declared)) for g in (self.graph_in, self.portable))
        return before, after

    def explain(self, node: str) -> list[str]:
        """How a node of the result, or one of the original model, came to be, as lines of text."""
        from .provenance import explain

        return explain(self.graph_in, self.portable, node)


def optimize(
    model: Any,
    *,
    rules: Sequence[str | Path] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    shapes: Mapping[str, int] | None = None,
    time_limit: float = 20.0,
    node_limit: int = 200_000,
    memory_limit: int = worker.MEMORY,
    cost: str = "latency",
    threads: int = 1,
    disabled: Sequence[str] = (),
    schedule: str = STANDARD_SCHEDULE,
    precision: str = "f32",
    why_not: str | None = None,
    mapped: bool = False,
    progress: Progress | None = None,
) -> Optimized:
    """Optimises a model with the standard rules and those in `rules`.

    `model` is a path, bytes, a `ModelProto` or a `Graph`; `shapes` gives symbolic dims their numbers; `time_limit` is
    in seconds, `node_limit` in e-nodes, `memory_limit` in bytes; `schedule` names the schedule to run, `precision` the
    ruleset that lowers the precision of products (`f32`: none), `why_not` a rule to look into; if `mapped`, large
    constants stay in the model's file (see `onnx_in.read`). Raises `UserError` for bad models and rules, with all that
    is wrong. Warns with `retry.SaturationWarning` where the rules make more of the model than the limits hold, and
    gives the best that can be had."""
    _check_settings(numerics, precision, shapes or {})
    seconds: dict[str, float] = {}
    tell = progress or (lambda stage, facts: None)

    def timed(stage: str, work: Callable[..., Any], *args: Any) -> Any:
        tell(stage, {})
        start = time.perf_counter()
        result = work(*args)
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start
        return result

    child: worker.Child | None
    with worker.start() as child, _Checks() as checks:  # it gets ready while rules and model are read
        library = timed("rules", lambda: checks.load(rules, std=std_rules))
        make_plan(schedule, library.schedules, library.rulesets)  # so that a wrong name is told at once
        if why_not is not None:
            _check_asked(library, why_not, numerics)
        graph_in: Graph = timed("read", lambda: graph_of(model, shapes, library, mapped=mapped))
        costs = {
            target: CostModel(model=cost, target=target, threads=threads)  # type: ignore[arg-type]
            for target in ("portable", "native")
        }
        settings: dict[str, Any] = {
            "rules": tuple(map(Path, rules)),  # as written: the child finds what this process has kept
            "std": std_rules,
            "numerics": numerics,
            "disabled": tuple(disabled),
            "limits": Limits(seconds=time_limit, nodes=node_limit),
            "costs": costs,
            "memory": memory_limit,
            "why_not": why_not,
            "schedule": schedule,
            "precision": precision,
        }
        known = operators_of(library, graph_in.opset)
        parts = bodies.Numbering(bodies.mark_bodies(graph_in))
        outcomes: list[worker.Outcome] = []
        graphs: dict[str, list[Graph]] = {target: [] for target in costs}
        evaluated = decode.Evaluated()
        for task in _tasks(parts, settings, outcomes):
            checks.begin()
            outcomes.extend(timed("saturate", retry.run, task, tell, child))
            child = None
            timed("extract", _decode, parts, outcomes, graphs, known, evaluated)

    def whole(target: str) -> Graph:
        found = graphs[target]
        return bodies.replace_bodies(found[0], lambda n: (found if n + 1 < len(found) else parts.graphs)[n + 1])

    portable = timed("extract", lambda: whole("portable"))
    native = timed("extract", lambda: whole("native"))
    outcome = outcomes[0]
    seconds |= {f"saturate.{k}": v for k, v in outcome.seconds.items()}
    with declaring(known):
        report = make_report(library, graph_in, portable, native, outcome, costs["portable"], seconds, precision)
    missed = combined([o.why_not for o in outcomes if o.why_not])
    return Optimized(graph_in, portable, native, report, missed, known, numerics)


class _Checks:
    """A block in which the standard library may be used before it is checked, which another thread does while this one
    waits: what is wrong with rules is told at the end of the block, and before anything that came of it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._check: Callable[[], None] = lambda: None
        self._begun: Future[None] | None = None

    def __enter__(self) -> _Checks:
        return self

    def load(self, rules: Sequence[str | Path], *, std: bool) -> Library:
        """As `load_rules`."""
        if rules or not std:  # those who write rules want to know at once
            return load_rules(rules, std=std)
        library, self._check = begin_standard()
        return library

    def begin(self) -> None:
        """Begins to check, if that was not done."""
        if self._begun is None:
            self._begun = self._pool.submit(self._check)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._pool:
            if kind is None or issubclass(kind, Exception):
                self.begin()
                assert self._begun is not None
                self._begun.result()


def _check_settings(numerics: str, precision: str, shapes: Mapping[str, int]) -> None:
    """Raises `UserError` for a class or precision that there is not, and for sizes that are none."""
    if numerics not in NUMERICS:
        raise UserError(f"there is no class of numerics {numerics!r}", hint=f"There are {', '.join(NUMERICS)}.")
    if precision not in PRECISIONS:
        raise UserError(f"there is no precision {precision!r}", hint=f"There are {', '.join(PRECISIONS)}.")
    for name, size in shapes.items():
        if not hasattr(size, "__index__") or size < 0:
            raise UserError(f"the size of {name!r} has to be a whole number of at least 0, not {size!r}")


def _tasks(
    parts: bodies.Numbering, settings: dict[str, Any], outcomes: Sequence[worker.Outcome]
) -> Iterator[worker.Job]:
    """What there is to optimise: the graphs of the model, then the bodies that rules have made of their bodies, in the
    time that the `outcomes` so far have left."""
    done = len(parts.graphs)
    yield worker.job(parts.graphs[0], **settings)
    for _ in range(_ROUNDS):
        made = parts.graphs[done:]
        if not made:
            return
        done += len(made)
        limits: Limits = settings["limits"]
        left = max(0.0, limits.seconds - sum(outcome.computed for outcome in outcomes))
        yield worker.Job(tuple(made), {}, **{**settings, "limits": replace(limits, seconds=left)})


def _decode(
    parts: bodies.Numbering,
    outcomes: Sequence[worker.Outcome],
    graphs: Mapping[str, list[Graph]],
    known: Mapping[str, Declared],
    evaluated: decode.Evaluated,
) -> None:
    """Adds to the graphs for each target what has come back since."""
    with declaring(known):
        for target, found in graphs.items():
            for number in range(len(found), len(outcomes)):
                egraph, extraction = outcomes[number].egraphs[target], outcomes[number].extractions[target]
                graph = decode.decode(egraph, extraction, parts.graphs[number], evaluated=evaluated)
                found.append(parts.mark(graph))


def graph_of(model: Any, shapes: Mapping[str, int] | None, library: Library, *, mapped: bool = False) -> Graph:
    """A model as a graph, the operators known that a library declares; see `onnx_in.read`."""
    if isinstance(model, Graph):
        return model
    return onnx_in.read(model, shapes=shapes, declared=lambda opsets: operators_of(library, opsets), mapped=mapped)


def _check_asked(library: Library, name: str, numerics: str) -> None:
    """Raises `UserError` unless a rule is there and its class is admitted."""
    every = [*library.rules, *recognitions(library)]
    rule = next((r for r in every if r.name == name), None)
    if rule is None:
        import difflib

        near = difflib.get_close_matches(name, [r.name for r in every], 3)
        hint = f"Did you mean {', '.join(near)}?" if near else "`rewrite rules` lists all rules."
        raise UserError(f"there is no rule {name!r}", hint=hint)
    if NUMERICS.index(rule.numerics) > NUMERICS.index(numerics):
        raise UserError(
            f"rule {name!r} takes no part: it is of class {rule.numerics}, and the run admits {numerics}",
            hint=f"Say --numerics {rule.numerics}.",
        )


def verify(optimized: Optimized, original: Any, *, numerics: str = "reassoc", seconds: float = 60.0) -> Verification:
    """Runs the original and the optimised model on the same inputs and compares; see `verify`."""
    return check_model(
        original, optimized.model, optimized.graph_in, numerics=numerics, seconds=seconds, expand=optimized.expanded
    )
