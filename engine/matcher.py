"""The adapter to egglog, and the only module that imports it.

egglog does what a relational e-graph is best at: it matches patterns with worst-case optimal joins, semi-naively, and
it keeps the congruence closure (Zhang et al., "Better Together: Unifying Datalog and Equality Saturation", PLDI 2023).
What it holds is bare structure; types, constants and conditions stay on the Python side (`egraph`), which names
e-classes by integer handles.

    (H h)                the class of handle h; the least handle of a class is its canonical one, (id class)
    (Nk op attrs c1..ck) an e-node of arity k; operators and attribute sets are interned integers
    (Ck r op attrs x y)  for a commutative operator: the e-node in both operand orders, so that matching is commutative
    (Var r op attrs n)   e-node number n of a variadic operator, whatever its number of inputs,
    (Child r .. n i c)   and each of its inputs with its position
    (Kind k op)          operator op is of kind k
    (Fixed c)            class c is a term over constants only
    (Mq ..)              the matches of query q, read out and then cleared

Rows go in and out in bulk: facts are loaded with egglog's `input` from files, kept in memory (a command for each fact
would cost many times that), matches are read with `freeze()`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import transient

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """One condition of a query: class variable `root` holds an e-node.

    `op` is an interned operator or the name of a variable that binds it; `attrs` is a variable; `children` are class
    variables. `commutative` matches both operand orders."""

    root: str
    op: int | str
    attrs: str
    children: tuple[str, ...]
    commutative: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """One condition of a query: class variable `root` holds an e-node of a variadic operator.

    Variable `node` binds its number; each of `picks` one of its inputs, by a variable for the position and a class
    variable."""

    root: str
    op: int
    attrs: str
    node: str
    picks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunctive query. A match is a row of the classes' canonical handles, then the interned integers.

    `absent` names the class variables that must be the absent leaf (handle 0), `fixed` those that must be constant
    terms, `kinds` the operator variables that must be of a kind."""

    name: str
    ruleset: str
    atoms: tuple[Atom | Spread, ...]
    classes: tuple[str, ...]
    integers: tuple[str, ...]
    absent: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()


def preload() -> None:
    """Imports egglog, which takes a while, before it is needed."""
    import egglog.bindings  # noqa: F401


class Matcher:
    """An egglog e-graph of e-nodes and registered queries. To be used from one thread."""

    def __init__(self) -> None:
        from egglog.bindings import EGraph

        self._egraph: Any = EGraph()
        self._arities: set[int] = set()
        self._rulesets: set[str] = set()
        self._queries: dict[str, list[Query]] = {}
        self._users = 0
        self.seconds: dict[str, float] = {}
        """How long each query has taken so far."""
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
        """A prefix for the names of rulesets and queries that nobody else uses."""
        self._users += 1
        return f"m{self._users}"

    def _run(self, program: str) -> None:
        self._egraph.run_program(*self._egraph.parse_program(program))

    def _declare(self, arity: int) -> None:
        if arity in self._arities:
            return
        self._arities.add(arity)
        children = [f"c{i}" for i in range(arity)]
        sorts = " ".join("T" for _ in children)
        handles = " ".join(f"(H {c})" for c in children)
        self._run(f"""
            (constructor N{arity} (i64 i64 {sorts}) T)
            (relation n{arity} (i64 i64 i64 {" ".join("i64" for _ in children)}))
            (rule ((n{arity} h op at {" ".join(children)}))
                  ((union (H h) (N{arity} op at {handles})) (set (id (H h)) h)) :ruleset load)
        """)

    def declare_commutative(self, ops: Iterable[int]) -> None:
        """Has `atoms` with `commutative` match these binary operators in both operand orders."""
        self._declare(2)
        self._run("(ruleset commute)")
        for op in ops:
            self._run(f"(rule ((= r (N2 {op} at x y))) ((C2 r {op} at x y) (C2 r {op} at y x)) :ruleset commute)")
        self._rulesets.add("commute")

    def declare_kind(self, kind: str, op: int) -> None:
        """Says that an operator is of a kind."""
        self._run(f'(Kind "{kind}" {op})')

    def add_query(self, query: Query) -> None:
        """Registers a query; its first `matches` sees the whole e-graph, later ones what is new."""
        if query.ruleset not in self._rulesets:
            self._rulesets.add(query.ruleset)
            self._run(f"(ruleset {query.ruleset}) (ruleset clear_{query.ruleset})")
        facts = [f"(= {variable} (H 0))" for variable in query.absent]
        facts += [f'(Kind "{kind}" {op})' for op, kind in query.kinds]
        facts += [f"(Fixed {variable})" for variable in query.fixed]
        for atom in query.atoms:
            if isinstance(atom, Spread):
                facts.append(f"(Var {atom.root} {atom.op} {atom.attrs} {atom.node})")
                for position, child in atom.picks:
                    facts.append(f"(Child {atom.root} {atom.op} {atom.attrs} {atom.node} {position} {child})")
                continue
            self._declare(len(atom.children))
            operands = f"{atom.op} {atom.attrs} {' '.join(atom.children)}"
            facts.append(
                f"(C2 {atom.root} {operands})"
                if atom.commutative
                else f"(= {atom.root} (N{len(atom.children)} {operands}))"
            )
        handles = [f"{v}_h" for v in query.classes]
        facts += [f"(= {h} (id {v}))" for v, h in zip(query.classes, handles, strict=True)]
        row = " ".join([*handles, *query.integers])
        self._run(f"""
            (relation {query.name} ({" ".join("i64" for _ in (*query.classes, *query.integers))}))
            (rule ({" ".join(facts)}) (({query.name} {row})) :ruleset {query.ruleset} :name "{query.name}")
            (rule (({query.name} {row})) ((delete ({query.name} {row}))) :ruleset clear_{query.ruleset})
        """)
        self._queries.setdefault(query.ruleset, []).append(query)

    def load(
        self,
        leaves: Sequence[int],
        nodes: Mapping[int, Sequence[Row]],
        equal: Sequence[tuple[int, int]],
        fixed: Sequence[int] = (),
        variadic: Sequence[Row] = (),
    ) -> None:
        """Adds leaves (handles), e-nodes by arity (rows `handle, op, attrs, *children`), equalities, and which handles
        are constant terms; and rebuilds. `variadic` are the rows of `nodes` whose operators are variadic."""
        tables: dict[str, Sequence[Row]] = {
            "leaf": [(h,) for h in leaves],
            "fixed": [(h,) for h in fixed],
            "var": [row[:3] for row in variadic],
            "child": [(*row[:3], i, child) for row in variadic for i, child in enumerate(row[3:])],
        }
        for arity, rows in nodes.items():
            self._declare(arity)
            tables[f"n{arity}"] = rows
        tables["equal"] = equal
        with contextlib.ExitStack() as files:
            commands = []
            for relation, rows in tables.items():
                if rows:
                    text = "\n".join("\t".join(map(str, row)) for row in rows)
                    path = files.enter_context(transient.file(text.encode(), "facts"))
                    commands.append(f'(input {relation} "{path}")')
            commands.append("(run load 1)" + (" (run commute 1)" if "commute" in self._rulesets else ""))
            self._run("\n".join(commands))

    def matches(self, ruleset: str) -> dict[str, list[Row]]:
        """The new matches of each query of the ruleset since it was last asked, each list sorted."""
        if ruleset not in self._rulesets:
            return {}
        for output in self._egraph.run_program(*self._egraph.parse_program(f"(run {ruleset} 1)")):
            for query_name, took in output.report.search_and_apply_time_per_rule.items():
                self.seconds[query_name] = self.seconds.get(query_name, 0.0) + took.total_seconds()
        functions = self._egraph.freeze().functions
        number = self._egraph.value_to_i64
        found = {}
        for query in self._queries.get(ruleset, []):
            rows = functions[query.name].rows
            if rows:
                found[query.name] = sorted(tuple(number(v) for v in row.inputs) for row in rows)
        if found:
            self._run(f"(run clear_{ruleset} 1)")
        return found

    def canonical(self) -> dict[int, int]:
        """The canonical (least) handle of every handle that is not canonical itself."""
        least: dict[Any, int] = {}
        members = []
        number = self._egraph.value_to_i64
        for row in self._egraph.freeze().functions["H"].rows:
            handle = number(row.inputs[0])
            members.append((handle, row.output))
            least[row.output] = min(handle, least.get(row.output, handle))
        return {handle: least[value] for handle, value in members if least[value] != handle}
