"""Saturation and extraction in a process of their own.

egglog cannot be interrupted while it runs, and a rule set may grow the e-graph without bound: so it runs where it can
be killed, under a memory limit. `run` is the parent's side; `main` the child's, which reads a pickled `Job` from
standard input and writes pickled messages to standard output. Both are ours: nothing that comes from outside is
unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import transient
from ..errors import RewriteError, UserError
from ..grammar.library import Library
from ..grammar.parse import prepare
from .bodies import all_bodies, body_number
from .constants import ConstantInfo, summarise
from .cost import CostModel
from .egraph import EGraph
from .encode import encode
from .extract import REGIONS, ENodeLike, Extraction, extract
from .graph import Graph
from .library import (
    PRECISIONS,
    QUANTISED,
    RuleSet,
    begin_standard,
    load_rules,
    operators_of,
    rule_set,
    standard_files,
)
from .matcher import preload
from .narrow import narrowed
from .nearest import WhyNot, why_not
from .operators import KERNEL_OPERATORS, OWN_DOMAIN, declaring
from .processes import collect_seldom
from .saturate import Limits, Saturation, Saturator
from .schedule import STANDARD as STANDARD_SCHEDULE
from .schedule import Plan, Repeat, Run

Progress = Callable[[str, Mapping[str, Any]], None]
_GRACE = 10.0
"""Seconds that the child may take beyond its time limit, for the last iteration and extraction …"""
_GRACE_PER_NODE = 0.004
"""… and for each node of the model, for a large one on a busy machine must not be lost after all the work."""
MEMORY = 4 << 30
"""The bytes that the child may use where nothing else is said."""
_BUSY = 5
"""Times that limit in all by the clock: so much slower may a busy machine be."""
_EARLY = ("f32", "int8")
"""Precisions whose rules run before layouts are chosen, or that have none."""
_NO_MEMORY = 12
"""How the child ends when Python gets no memory; egglog's libraries abort then, and the system may kill it."""


@dataclass(slots=True)
class Job:
    """What the child is asked to do, for each of `graphs` (a model's main graph and the bodies in it).

    The main graph comes without its constants, which `constants` summarises. `why_not` names a rule whose nearest
    misses are asked for."""

    graphs: tuple[Graph, ...]
    constants: dict[str, ConstantInfo]
    rules: tuple[Path, ...]
    std: bool
    numerics: str
    disabled: tuple[str, ...]
    limits: Limits
    costs: dict[str, CostModel]
    memory: int = MEMORY
    why_not: str | None = None
    schedule: str = STANDARD_SCHEDULE
    precision: str = "f32"


@dataclass(slots=True)
class Outcome:
    """What comes back: an e-graph's tables and an extraction from it for each cost model, how saturation went, and why
    a rule that was asked for did not fire. `seconds` are by the clock, `computed` those of computing in all."""

    egraphs: dict[str, EGraph]
    extractions: dict[str, Extraction]
    saturation: Saturation
    seconds: dict[str, float] = field(default_factory=dict)
    why_not: WhyNot | None = None
    computed: float = 0.0


class OutOfBounds(UserError):
    """The child was stopped hard before it had a result: the rules make too much of the model. `bound` is the bound
    that it did not keep, `time` or `memory`."""

    def __init__(self, message: str, *, bound: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.bound = bound


def job(graph: Graph, **settings: Any) -> Job:
    """A job for a graph with marked bodies; see `Job` for the settings."""
    with ThreadPoolExecutor(2) as pool:  # what hashes and compares leaves Python to others
        infos = dict(zip(graph.constants, pool.map(summarise, graph.constants.values()), strict=True))
    bodies = sorted(all_bodies(graph), key=body_number)
    return Job((replace(graph, constants={}), *bodies), infos, **settings)


def perform(task: Job, progress: Progress | None = None, standard: Library | None = None) -> list[Outcome]:
    """Does a job in this process; an outcome for each of its graphs. `standard` is the standard library, if it has been
    loaded. Whether that is right is for others to check."""
    if task.std and not task.rules:
        library = standard if standard is not None else begin_standard()[0]
    else:
        library = load_rules(task.rules, std=task.std)
    opsets = task.graphs[0].opset
    rules = rule_set(
        library, task.numerics, task.disabled, schedule=task.schedule, opsets=opsets, precision=task.precision
    )
    end = time.process_time() + task.limits.seconds
    outcomes = []
    with declaring(operators_of(library, opsets)):
        for i, graph in enumerate(task.graphs):
            left = replace(task.limits, seconds=max(0.0, end - time.process_time()))
            outcomes.append(_optimise(graph, task.constants if i == 0 else {}, rules, task, left, progress))
    return outcomes


def _optimise(
    graph: Graph,
    constants: Mapping[str, ConstantInfo],
    rules: RuleSet,
    task: Job,
    limits: Limits,
    progress: Progress | None,
) -> Outcome:
    seconds = {}
    start, begun = time.perf_counter(), time.process_time()
    egraph = EGraph.create(rules.commutative)
    encode(graph, egraph, constants)
    seconds["encode"] = time.perf_counter() - start

    def tell(iteration: int, nodes: int) -> None:
        if progress is not None:
            progress("saturate", {"iterations": iteration, "nodes": nodes})

    general = [rule for rule in rules.rules if rule.ruleset not in (QUANTISED, *PRECISIONS)]
    saturator = Saturator(egraph, general, rules.kinds, limits, plan=rules.plan, declared=rules.declared, progress=tell)
    outcome = Outcome({}, {}, saturator.run(), seconds)
    asked = [rule for rule in rules.rules if rule.name == task.why_not]
    seconds["extract"] = 0.0
    for name, cost in sorted(task.costs.items(), key=lambda item: item[1].target == "native"):
        if cost.target == "native":  # what is written as ONNX keeps the precision
            _lower_precision(egraph, _early(egraph, task), rules, limits, outcome.saturation)
        start = time.perf_counter()
        outcome.egraphs[name] = egraph
        outcome.extractions[name] = extract(egraph, cost, admissible=_admissible(graph, cost, rules))
        seconds["extract"] += time.perf_counter() - start
        if cost.target == "native":
            left = replace(limits, seconds=max(0.0, limits.seconds - (time.process_time() - begun)))
            _choose_kernels(outcome, name, graph, rules, task, left)
    seconds["saturate"] = outcome.saturation.seconds
    if asked and outcome.why_not is None:  # after extraction, for it adds the right sides that it tries
        outcome.why_not = why_not(egraph, asked, saturator.evaluator, rules.kinds)
    outcome.computed = time.process_time() - begun
    return outcome


def _choose_kernels(outcome: Outcome, target: str, graph: Graph, rules: RuleSet, task: Job, limits: Limits) -> None:
    """Runs the rules that are about our kernels on what was chosen for them, and extracts again."""
    chosen, cost = outcome.extractions[target], task.costs[target]
    outcome.saturation.unscheduled = tuple(
        name for name in outcome.saturation.unscheduled if name not in rules.native.rulesets()
    )
    before = outcome.egraphs[target]
    ops = {before.nodes[handle].op for handle in chosen.choice.values()}
    late = () if task.precision in _EARLY else (task.precision,)
    if not (late or rules.further(ops)):
        return
    start = time.perf_counter()
    egraph = narrowed(before, chosen, rules.commutative)
    saturator = Saturator(egraph, rules.rules, rules.kinds, limits, plan=rules.native, declared=rules.declared)
    outcome.saturation.add(saturator.run())
    _lower_precision(egraph, late, rules, limits, outcome.saturation)
    outcome.egraphs[target] = egraph
    outcome.extractions[target] = extract(egraph, cost, admissible=_admissible(graph, cost, rules), limits=REGIONS)
    own = rules.native.rulesets() - rules.plan.rulesets()
    asked = [rule for rule in rules.rules if rule.name == task.why_not and rule.ruleset in own]
    if asked:
        outcome.why_not = why_not(egraph, asked, saturator.evaluator, rules.kinds)
    outcome.seconds["kernels"] = time.perf_counter() - start


def _early(egraph: EGraph, task: Job) -> tuple[str, ...]:
    """The rulesets about the precision of products that don't ask for layouts: that of quantised tensors, if there are
    any, and integers."""
    quantised = any(node.op == "DequantizeLinear" for node in egraph.nodes)
    return (*([QUANTISED] if quantised else []), *([task.precision] if task.precision in _EARLY[1:] else []))


def _lower_precision(
    egraph: EGraph, names: Sequence[str], rules: RuleSet, limits: Limits, saturation: Saturation
) -> None:
    """Runs rulesets about the precision of products, as often as they say; what their rules did goes to the report."""
    chosen = [rule for rule in rules.rules if rule.ruleset in names]
    if not chosen:
        return
    budgets = rules.plan.budgets
    steps = (Repeat((Run((name,)),), (budgets[name].iterations if name in budgets else None) or 1) for name in names)
    plan = Plan("precision", tuple(steps), budgets)
    limits = Limits(max(limits.seconds, _GRACE / 2), len(egraph.nodes) + limits.nodes, limits.iterations)
    found = Saturator(egraph, chosen, rules.kinds, limits, plan=plan, declared=rules.declared).run()
    saturation.counts |= found.counts
    saturation.seconds += found.seconds
    saturation.nodes, saturation.classes = max(saturation.nodes, found.nodes), max(saturation.classes, found.classes)


def _admissible(graph: Graph, cost: CostModel, rules: RuleSet) -> Callable[[ENodeLike], bool]:
    """Whether a node may be in the result: for an ONNX file, whether it can be written at the model's opset."""
    from .onnx_out import can_write

    if cost.target == "native":
        own = f"{OWN_DOMAIN}."  # a definition stands beside those that have one
        return lambda node: node.op in KERNEL_OPERATORS or not (node.op.startswith(own) or node.op in rules.declared)
    return lambda node: can_write(node.op, node.attrs, graph.opset)


@dataclass(frozen=True, slots=True)
class Child:
    """A child process that waits for its job; what it says to its standard error goes to a file."""

    process: subprocess.Popen[bytes]
    said: Path


@contextlib.contextmanager
def start() -> Iterator[Child]:
    """A child process, to be given to `run` once: it gets ready while this process does something else, and is ended
    with the block. Raises OSError."""
    with transient.directory("saturate") as folder, (folder / "said").open("wb") as said:
        # the package may be importable here under a path set by the caller's program
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), TMPDIR=str(folder))
        process = transient.start(
            [sys.executable, "-c", f"from {__package__}.worker import main; main()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=env,
        )  # fmt: skip
        try:
            yield Child(process, folder / "said")
        finally:
            transient.end(process)


def run(task: Job, progress: Progress | None = None, child: Child | None = None) -> list[Outcome]:
    """Does a job in a child process (the one given, or one of its own), within its limits of time and memory.

    Raises `OutOfBounds` if the child had to be stopped, and what the child raised. An interrupt stops the child."""
    if child is None:
        with start() as child:
            return run(task, progress, child)
    process = child.process
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(_BUSY * (task.limits.seconds + _grace(task)), stop)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(task, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.close()
        while True:
            try:
                kind, value = pickle.load(process.stdout)
            except (EOFError, pickle.UnpicklingError):
                code = process.wait()
                raise _stopped(task, code, late.is_set(), child.said.read_text(errors="replace")) from None
            if kind == "result":
                return value  # type: ignore[no-any-return]
            if kind == "error":
                raise value
            if progress is not None:
                progress(*value)
    finally:
        timer.cancel()


def _grace(task: Job) -> float:
    return _GRACE + _GRACE_PER_NODE * sum(len(graph.nodes) for graph in task.graphs)


def _stopped(task: Job, code: int, late: bool, said: str) -> RewriteError:
    """The error for a child that ended without a result."""
    hint = "Some rules make ever more terms of this model: leave them out"
    if late or code == -signal.SIGXCPU:
        return OutOfBounds(
            f"saturation was stopped hard: it did not come back {_grace(task):.0f} s after its time limit of "
            f"{task.limits.seconds:g} s",
            bound="time",
            hint=f"{hint}, or lower --node-limit.",
        )
    if code in (_NO_MEMORY, -signal.SIGABRT, -signal.SIGKILL):
        return OutOfBounds(
            f"saturation was stopped hard: it went past its memory limit of {task.memory >> 20} MiB",
            bound="memory",
            hint=f"{hint}, lower --node-limit or raise --memory-limit.",
        )
    last = said.strip().splitlines()[-1:] or [f"it ended with {code}"]
    return RewriteError(f"saturation broke down: {last[0]}")


def limit(task: Job) -> None:
    """Bounds this process: its memory, and the time it computes, by which the system ends it inside one call of the
    engine even (SIGXCPU)."""
    import resource

    spent = math.ceil(time.process_time() + task.limits.seconds + _grace(task))
    for what, bounds in ((resource.RLIMIT_DATA, (task.memory,) * 2), (resource.RLIMIT_CPU, (spent, spent + 2))):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, bounds)


def _read_rules_meanwhile() -> None:
    """Parses rule files of the standard library that no process has parsed before, until the job is there: from the
    last one on, for the parent begins with the first."""
    for path in reversed(standard_files()):
        if select.select([0], [], [], 0)[0]:
            return
        prepare(path)


def _load_rules_meanwhile() -> Library | None:
    """The standard library, unless there is a job to begin with or it cannot be loaded."""
    if select.select([0], [], [], 0)[0]:
        return None
    with contextlib.suppress(Exception):  # it comes up again with the job, where it can be told
        return begin_standard()[0]
    return None


def main() -> None:
    """The child: one job from standard input, its messages to standard output."""
    transient.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    collect_seldom()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    preload()
    _read_rules_meanwhile()
    standard = _load_rules_meanwhile()
    task: Job = pickle.load(sys.stdin.buffer)
    limit(task)

    def send(kind: str, value: Any) -> None:
        pickle.dump((kind, value), out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()

    try:
        outcome = perform(task, lambda stage, facts: send("progress", (stage, dict(facts))), standard)
        send("result", outcome)
    except MemoryError:
        os._exit(_NO_MEMORY)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            os._exit(_NO_MEMORY)
        try:
            send("error", error)
        except Exception:
            send("error", RewriteError(f"{type(error).__name__}: {error}"))
    os._exit(0)
