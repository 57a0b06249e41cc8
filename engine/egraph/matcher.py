"""Adapter to egglog, and the only module that imports it.

egglog matches patterns with worst-case optimal joins, semi-naively, and maintains the congruence closure (Zhang et al.,
"Better Together: Unifying Datalog and Equality Saturation", PLDI 2023). It holds bare structure. Types, constants and
conditions stay on the Python side (`egraph`), which names e-classes by integer handles.

    (H h)                the class of handle h; the least handle of a class is its canonical one, (id class)
    (Nk op attrs c1..ck) an e-node of arity k; operators and attribute sets are interned integers
    (Ck r op attrs x y)  for a commutative operator: the e-node in both operand orders, so that matching is commutative
    (Var r op attrs n)   e-node number n of a variadic operator, with any number of inputs,
    (Child r .. n i c)   and each of its inputs with its position
    (Kind k op)          operator op is of kind k
    (Fixed c)            class c is a term over constants only
    (Mq ..)              the matches of query q, read and then cleared

Rows are transferred in bulk: egglog's `input` loads facts from files in memory, since a command for each fact costs far
more, and `freeze()` returns matches.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...system import scoped

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """A condition of a query: class variable `root` holds an e-node.

    `op` is an interned operator or the name of a variable that binds it; `attrs` is a variable; `children` are class
    variables. `commutative` matches both operand orders. Of a variadic operator, variable `node` binds the number of
    the e-node, and the children are some of its inputs, at the `positions` that these variables bind."""

    root: str
    op: int | str
    attrs: str
    children: tuple[str, ...]
    commutative: bool = False
    node: str = ""
    positions: tuple[str, ...] = ()

    def facts(self) -> list[str]:
        """Return the condition in egglog's language."""
        if self.node:
            row = f"{self.root} {self.op} {self.attrs} {self.node}"
            picks = zip(self.positions, self.children, strict=True)
            return [f"(Var {row})", *(f"(Child {row} {position} {child})" for position, child in picks)]
        operands = f"{self.op} {self.attrs} {' '.join(self.children)}"
        if self.commutative:
            return [f"(C2 {self.root} {operands})"]
        return [f"(= {self.root} (N{len(self.children)} {operands}))"]


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunctive query. A match is a row of the classes' canonical handles, then the interned integers.

    `absent` are the class variables that must be the absent leaf (handle 0), `fixed` those that must be constant terms.
    `kinds` are operator variables with the kind they must be of."""

    name: str
    ruleset: str
    atoms: tuple[Atom, ...]
    classes: tuple[str, ...]
    integers: tuple[str, ...]
    absent: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()


def preload() -> None:
    """Import egglog before it is needed, since that takes long."""
    import egglog.bindings  # noqa: F401


class Matcher:
    """An egglog e-graph of e-nodes and registered queries; for one thread only."""

    def __init__(self) -> None:
        from egglog.bindings import EGraph

        self._egraph: Any = EGraph()
        self._arities: set[int] = set()
        self._queries: dict[str, list[Query]] = {}
        self._commutes = False
        self._users = 0
        self._new: dict[str, list[Row]] = defaultdict(list)
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds that each query has taken so far."""
        self._run("""
            (sort T)
            (constructor H (i64) T)
            (function id (T) i64 :merge (min old new))
            (ruleset load)
            (relation leaf (i64))
            (rule ((leaf h)) ((set (id (H h)) h)) :ruleset load)
            (relation equal (i64 i64))
            (rule ((equal a b)) ((union (H a) (H b))) :ruleset load)
            (relation C2 (T i64 i64 T T))
            (relation Var (T i64 i64 i64))
            (relation var (i64 i64 i64))
            (rule ((var h op at)) ((Var (H h) op at h)) :ruleset load)
            (relation Child (T i64 i64 i64 i64 T))
            (relation child (i64 i64 i64 i64 i64))
            (rule ((child h op at i c)) ((Child (H h) op at h i (H c))) :ruleset load)
            (relation Kind (String i64))
            (relation Fixed (T))
            (relation fixed (i64))
            (rule ((fixed h)) ((Fixed (H h))) :ruleset load)
        """)

    def new_user(self) -> str:
        """Return a unique prefix for names of rulesets and queries."""
        self._users += 1
        return f"m{self._users}"

    def _run(self, program: str) -> None:
        self._egraph.run_program(*self._egraph.parse_program(program))

    def _declare(self, arity: int) -> None:
        if arity in self._arities:
            return
        self._arities.add(arity)
        children = [f"c{i}" for i in range(arity)]
        self._run(f"""
            (constructor N{arity} (i64 i64 {"T " * arity}) T)
            (relation n{arity} (i64 i64 i64 {"i64 " * arity}))
            (rule ((n{arity} h op at {" ".join(children)}))
                  ((union (H h) (N{arity} op at {" ".join(f"(H {c})" for c in children)})) (set (id (H h)) h))
                  :ruleset load)
        """)

    def declare_commutative(self, ops: Iterable[int]) -> None:
        """Let `atoms` with `commutative` match these binary operators in both operand orders."""
        self._declare(2)
        self._run("(ruleset commute)")
        for op in ops:
            self._run(f"(rule ((= r (N2 {op} at x y))) ((C2 r {op} at x y) (C2 r {op} at y x)) :ruleset commute)")
        self._commutes = True

    def declare_kind(self, kind: str, op: int) -> None:
        """Declare an operator to be of a kind."""
        self._run(f'(Kind "{kind}" {op})')

    def add_query(self, query: Query) -> None:
        """Register a query; its first `matches` covers the whole e-graph, later ones only what is new."""
        if query.ruleset not in self._queries:
            self._queries[query.ruleset] = []
            self._run(f"(ruleset {query.ruleset}) (ruleset clear_{query.ruleset})")
        facts = [f"(= {variable} (H 0))" for variable in query.absent]
        facts += [f'(Kind "{kind}" {op})' for op, kind in query.kinds]
        facts += [f"(Fixed {variable})" for variable in query.fixed]
        for atom in query.atoms:
            if not atom.node:
                self._declare(len(atom.children))
            facts += atom.facts()
        handles = [f"{v}_h" for v in query.classes]
        facts += [f"(= {h} (id {v}))" for v, h in zip(query.classes, handles, strict=True)]
        row = " ".join([*handles, *query.integers])
        self._run(f"""
            (relation {query.name} ({"i64 " * len((*query.classes, *query.integers))}))
            (rule ({" ".join(facts)}) (({query.name} {row})) :ruleset {query.ruleset} :name "{query.name}")
            (rule (({query.name} {row})) ((delete ({query.name} {row}))) :ruleset clear_{query.ruleset})
        """)
        self._queries[query.ruleset].append(query)

    def add(self, relation: str, *row: int) -> None:
        """Add a leaf (`leaf`, a handle), an equality (`equal`) or a constant term (`fixed`) at the next `load`."""
        self._new[relation].append(row)

    def add_node(self, row: Row, *, variadic: bool = False) -> None:
        """Add an e-node at the next `load`: its handle, operator, attributes and children."""
        self._declare(len(row) - 3)
        self._new[f"n{len(row) - 3}"].append(row)
        if variadic:
            self.add("var", *row[:3])
            for position, child in enumerate(row[3:]):
                self.add("child", *row[:3], position, child)

    def load(self) -> bool:
        """Transfer what was added and rebuild; False if there was nothing."""
        new, self._new = self._new, defaultdict(list)
        with contextlib.ExitStack() as files:
            commands = []
            for relation, rows in new.items():
                text = "\n".join("\t".join(map(str, row)) for row in rows)
                path = files.enter_context(scoped.file(text.encode(), "facts"))
                commands.append(f'(input {relation} "{path}")')
            if commands:
                self._run("\n".join([*commands, "(run load 1)", "(run commute 1)" * self._commutes]))
        return bool(new)

    def matches(self, ruleset: str) -> dict[str, list[Row]]:
        """Return the new matches of each query of the ruleset since the last call, each list sorted."""
        if ruleset not in self._queries:
            return {}
        for output in self._egraph.run_program(*self._egraph.parse_program(f"(run {ruleset} 1)")):
            for query_name, duration in output.report.search_and_apply_time_per_rule.items():
                self.seconds[query_name] += duration.total_seconds()
        functions = self._egraph.freeze().functions
        number = self._egraph.value_to_i64
        found = {}
        for query in self._queries[ruleset]:
            if rows := functions[query.name].rows:
                found[query.name] = sorted(tuple(number(v) for v in row.inputs) for row in rows)
        if found:
            self._run(f"(run clear_{ruleset} 1)")
        return found

    def canonical(self) -> dict[int, int]:
        """Return the canonical (least) handle of every handle that is not canonical itself."""
        least: dict[Any, int] = {}
        members = []
        number = self._egraph.value_to_i64
        for row in self._egraph.freeze().functions["H"].rows:
            handle = number(row.inputs[0])
            members.append((handle, row.output))
            least[row.output] = min(handle, least.get(row.output, handle))
        return {handle: least[value] for handle, value in members if least[value] != handle}
