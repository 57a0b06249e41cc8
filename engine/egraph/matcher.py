"""Adapter to egglog, and the only module that imports it.

egglog matches patterns with worst-case optimal joins, semi-naively, and maintains the congruence closure (Zhang et al.,
"Better Together: Unifying Datalog and Equality Saturation", PLDI 2023). It holds bare structure. Types, constants and
conditions stay on the Python side (`egraph`), which names e-classes by integer handles.

    (H h)                the class of handle h; the least handle of a class is its canonical one, (id class)
    (O_k at c1..ck)      an e-node of operator O with k operands; operators and attribute sets are interned integers
    (CO r at x y)        for a commutative operator: the e-node in both operand orders, so that matching is commutative
    (Kk r O at c1..ck)   e-node of an operator of kind K, for patterns that bind the operator
    (VO r at n)          e-node number n of a variadic operator, with any number of inputs,
    (DO n i c)           and each of its inputs with its position
    (Fixed c)            class c is a term over constants only
    (Mc_i q ..)          the matches of query q with c classes and i integers, and
    (RMc_i q ..)         these with the handles of the classes, both read and then cleared
    (Moved h l)          handle h is not canonical any more, l is; read and then cleared

Two choices keep an iteration that changes little short. Each operator has tables of its own: a query is joined only
with tables that have new rows. And matches are resolved to handles after they were found: with `id` among its
conditions, a query would be joined again, for each of its variables, with all classes that are new.

Rows are transferred in bulk: egglog's `input` loads facts from files in memory, since a command for each fact costs far
more, and matches are read as printed, since `freeze` copies all tables.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ...system import scoped

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """A condition of a query: class variable `root` holds an e-node.

    `op` is an interned operator or the name of a variable that binds it; `attrs` is a variable; `children` are class
    variables. `commutative` matches both operand orders. Of a variadic operator, variable `node` binds the number of
    the e-node, and the children are some of its inputs, each at a known position or at one that a variable binds;
    `neighbors` are pairs of such variables for inputs one after the other."""

    root: str
    op: int | str
    attrs: str
    children: tuple[str, ...]
    commutative: bool = False
    node: str = ""
    positions: tuple[str | int, ...] = ()
    neighbors: tuple[tuple[str, str], ...] = ()

    def facts(self, kinds: Mapping[str, str]) -> list[str]:
        """Return the condition in egglog's language; `kinds` are those of operators that variables bind."""
        children = " ".join(self.children)
        if self.node:
            picks = zip(self.positions, self.children, strict=True)
            inputs = [f"(D{self.op} {self.node} {position} {child})" for position, child in picks]
            inputs += [f"(= {second} (+ {first} 1))" for first, second in self.neighbors]
            return [f"(V{self.op} {self.root} {self.attrs} {self.node})", *inputs]
        if isinstance(self.op, str):
            return [
                f"({_kind_table(kinds[self.op], len(self.children))} {self.root} {self.op} {self.attrs} {children})"
            ]
        if self.commutative:
            return [f"(C{self.op} {self.root} {self.attrs} {children})"]
        return [f"(= {self.root} (O{self.op}_{len(self.children)} {self.attrs} {children}))"]


def _kind_table(kind: str, arity: int) -> str:
    return f"K{kind}{arity}"


@dataclass(frozen=True, slots=True)
class Query:
    """A conjunctive query. A match is a row of the classes' canonical handles, then the interned integers.

    `absent` are the class variables that must be the absent leaf (handle 0), `fixed` those that must be constant terms.
    `kinds` are operator variables with the kind they must be of, `different` pairs of class variables that must hold
    different classes."""

    name: str
    ruleset: str
    atoms: tuple[Atom, ...]
    classes: tuple[str, ...]
    integers: tuple[str, ...]
    absent: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    different: tuple[tuple[str, str], ...] = ()


_PACKAGE = "egglog"
_LOADING = threading.Lock()


@cache
def bindings() -> ModuleType:
    """Return `egglog.bindings`, loaded without the package around it.

    The package imports black, graphviz, OpenTelemetry and more for its own language, which takes twenty times as long
    as the bindings. Nothing of it is used here, so its dependencies need not be installed.

    Raises ModuleNotFoundError if egglog is not installed."""
    with _LOADING:
        if _PACKAGE in sys.modules:
            return importlib.import_module(f"{_PACKAGE}.bindings")
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)  # its path, without running it
        try:
            return importlib.import_module(f"{_PACKAGE}.bindings")
        finally:  # a later import of egglog runs all of it
            del sys.modules[_PACKAGE]
            sys.modules.pop(f"{_PACKAGE}.bindings", None)


_LEFT: list[tuple[threading.Thread, Any]] = []
"""E-graphs of egglog that are no longer used, with the threads that made them and have yet to drop them."""


def _drop(thread: threading.Thread, egraph: Any) -> None:
    """Drop an e-graph of egglog here if `thread` is this one; otherwise leave it to `thread`.

    egglog's e-graphs belong to the thread that made them, but Python collects cycles in any thread."""
    if threading.current_thread() is not thread:
        _LEFT.append((thread, egraph))


_BASE = """
    (sort T)
    (constructor H (i64) T)
    (function id (T) i64 :merge (min old new))
    (let $absent (H 0))
    (ruleset load)
    (relation leaf (i64))
    (rule ((leaf h)) ((set (id (H h)) h)) :ruleset load)
    (relation equal (i64 i64))
    (rule ((equal a b)) ((union (H a) (H b))) :ruleset load)
    (relation Fixed (T))
    (relation fixed (i64))
    (rule ((fixed h)) ((Fixed (H h))) :ruleset load)
    (ruleset derive)
    (ruleset move)
    (relation Moved (i64 i64))
    (rule ((= c (H h)) (= l (id c)) (< l h)) ((Moved h l)) :ruleset move :name "Moved")
    (ruleset resolve)
    (ruleset clear)
    (rule ((Moved h l)) ((delete (Moved h l))) :ruleset clear)
"""
"""Tables that every e-graph has."""


class SharedTables:
    """egglog e-graph whose tables serve one matcher after the other; for one thread only.

    Declaring the tables of a small e-graph takes longer than matching in it. They are declared once and stay empty:
    each matcher fills a copy (`push`), which is dropped when it is closed. `ops` are the numbers of operators, which
    name the tables, so all e-graphs have the same."""

    def __init__(self) -> None:
        self.ops: dict[str, int] = {}
        self.declared: set[str] = set()
        self._egraph: Any = None
        self._lent = False

    def lend(self, programs: Sequence[str]) -> Any:
        """Return an e-graph with these tables, to be returned by `take_back`; None while another matcher has it."""
        if self._lent:
            return None
        if self._egraph is None:
            self._egraph = _new_egraph(self)
        self._declare(programs)
        _run(self._egraph, "(push)")
        self._lent = True
        return self._egraph

    def take_back(self, programs: Sequence[str]) -> None:
        """Empty the tables, and declare those that a matcher has declared in its copy."""
        _run(self._egraph, "(pop)")
        self._declare(programs)
        self._lent = False

    def _declare(self, programs: Sequence[str]) -> None:
        for program in programs:
            if program not in self.declared:
                _run(self._egraph, program)
                self.declared.add(program)


def _new_egraph(owner: object) -> Any:
    """Return an e-graph of egglog, which its thread drops once it or any other has collected the owner."""
    thread = threading.current_thread()
    for left in tuple(_LEFT):
        if left[0] is thread:
            _LEFT.remove(left)
    egraph = bindings().EGraph()
    weakref.finalize(owner, _drop, thread, egraph).atexit = False
    return egraph


def _run(egraph: Any, program: str) -> list[Any]:
    """Run a program and return the reports of its `run` commands."""
    outputs = egraph.run_program(*egraph.parse_program(program))
    return [output.report for output in outputs if hasattr(output, "report")]


class Matcher:
    """An egglog e-graph of e-nodes and registered queries; for one thread only.

    With `shared` tables it takes these when it is first used, unless another matcher still has them."""

    def __init__(self, shared: SharedTables | None = None) -> None:
        self._shared = shared
        self._egraph: Any = None if shared is not None else _new_egraph(self)
        self._declared: list[str] = []
        self._waiting: list[str] = []
        self._tables: set[str] = set()
        self._queries: dict[str, list[tuple[int, Query]]] = {}
        self._count = 0
        self._commutative: frozenset[int] = frozenset()
        self._kinds: dict[int, str] = {}
        self._arities: dict[int, set[int]] = defaultdict(set)
        self._users = 0
        self._new: dict[str, list[Row]] = defaultdict(list)
        self.seconds: dict[str, float] = defaultdict(float)
        """Seconds that each query has taken so far."""
        self._declare_once(_BASE)

    def close(self) -> None:
        """Return shared tables; the matcher cannot be used any more."""
        if self._shared is not None and self._egraph is not None:
            self._shared.take_back(self._declared)
            self._egraph = None

    def _declare_once(self, program: str) -> None:
        """Declare a table with its rules, before the next command; shared tables need not be declared again."""
        self._declared.append(program)
        if self._egraph is not None and (self._shared is None or program not in self._shared.declared):
            self._waiting.append(program)

    def _run(self, program: str) -> list[Any]:
        """Run a program and return the reports of its `run` commands."""
        if self._egraph is None:
            assert self._shared is not None
            self._egraph = self._shared.lend(self._declared)
            if self._egraph is None:
                self._shared, self._egraph = None, _new_egraph(self)
                self._waiting[:0] = self._declared
        waiting, self._waiting = self._waiting, []
        for declaration in waiting:  # one by one: joined in one program they take longer
            _run(self._egraph, declaration)
        return _run(self._egraph, program)

    def new_user(self) -> str:
        """Return a unique prefix for names of rulesets and queries."""
        self._users += 1
        return f"m{self._users}"

    def _is_new(self, table: str) -> bool:
        """Whether a table is not declared yet; from now on it is."""
        new = table not in self._tables
        self._tables.add(table)
        return new

    def _declare(self, op: int, arity: int) -> None:
        """Declare the tables of an operator with some number of operands."""
        table = f"{op}_{arity}"
        if not self._is_new(table):
            return
        self._arities[op].add(arity)
        handles = [f"c{i}" for i in range(arity)]
        self._declare_once(f"""
            (constructor O{table} (i64 {"T " * arity}) T)
            (relation LO{table} (i64 i64 {"i64 " * arity}))
            (rule ((LO{table} h at {" ".join(handles)}))
                  ((union (H h) (O{table} at {" ".join(f"(H {c})" for c in handles)})) (set (id (H h)) h))
                  :ruleset load)
        """)
        if arity == 2 and op in self._commutative:
            self._declare_once(f"""
                (relation C{op} (T i64 T T))
                (rule ((= r (O{table} at x y))) ((C{op} r at x y) (C{op} r at y x)) :ruleset derive)
            """)
        if op in self._kinds:
            self._derive_kind(op, arity)

    def _declare_variadic(self, op: int) -> None:
        if self._is_new(f"V{op}"):
            self._declare_once(f"""
                (relation V{op} (T i64 i64))
                (relation LV{op} (i64 i64))
                (rule ((LV{op} h at)) ((V{op} (H h) at h)) :ruleset load)
                (relation D{op} (i64 i64 T))
                (relation LD{op} (i64 i64 i64))
                (rule ((LD{op} h i c)) ((D{op} h i (H c))) :ruleset load)
            """)

    def _declare_kind_table(self, table: str, arity: int) -> None:
        if self._is_new(table):
            self._declare_once(f"(relation {table} (T i64 i64 {'T ' * arity}))")

    def _derive_kind(self, op: int, arity: int) -> None:
        table, children = _kind_table(self._kinds[op], arity), " ".join(f"c{i}" for i in range(arity))
        self._declare_kind_table(table, arity)
        node = f"(O{op}_{arity} at {children})"
        self._declare_once(f"(rule ((= r {node})) (({table} r {op} at {children})) :ruleset derive)")

    def declare_commutative(self, ops: Iterable[int]) -> None:
        """Let `atoms` with `commutative` match these binary operators in both operand orders; before any e-node."""
        self._commutative = frozenset(ops)

    def declare_kind(self, kind: str, op: int) -> None:
        """Declare an operator to be of a kind."""
        if op not in self._kinds:
            self._kinds[op] = kind
            for arity in sorted(self._arities[op]):
                self._derive_kind(op, arity)

    def add_query(self, query: Query) -> None:
        """Register a query; its first `matches` covers the whole e-graph, later ones only what is new."""
        if query.ruleset not in self._queries:
            self._queries[query.ruleset] = []
            self._waiting.append(f"(ruleset {query.ruleset})")
        kinds = dict(query.kinds)
        facts = [f"(= {variable} $absent)" for variable in query.absent]
        facts += [f"(Fixed {variable})" for variable in query.fixed]
        for atom in query.atoms:
            arity = len(atom.children)
            if isinstance(atom.op, str):
                self._declare_kind_table(_kind_table(kinds[atom.op], arity), arity)
            elif atom.node:
                self._declare_variadic(atom.op)
            else:
                self._declare(atom.op, arity)
            facts += atom.facts(kinds)
        facts += [f"(!= {first} {second})" for first, second in query.different]
        match = f"{self._relation_of(query)} {self._count} {' '.join([*query.classes, *query.integers])}"
        self._waiting.append(f'(rule ({" ".join(facts)}) (({match})) :ruleset {query.ruleset} :name "{query.name}")')
        self._queries[query.ruleset].append((self._count, query))
        self._count += 1

    def _relation_of(self, query: Query) -> str:
        """Return the relation for the matches of a query."""
        classes, integers = len(query.classes), len(query.integers)
        name = f"M{classes}_{integers}"
        if self._is_new(name):
            values = [f"v{i}" for i in range(classes + integers)]
            handles = [f"h{i}" for i in range(classes)]
            found = f"({name} q {' '.join(values)})"
            resolved = f"(R{name} q {' '.join([*handles, *values[classes:]])})"
            lookups = [f"(= {handle} (id {value}))" for handle, value in zip(handles, values, strict=False)]
            self._declare_once(f"""
                (relation {name} (i64 {"T " * classes} {"i64 " * integers}))
                (relation R{name} (i64 {"i64 " * (classes + integers)}))
                (rule ({found} {" ".join(lookups)}) ({resolved}) :ruleset resolve :name "R{name}")
                (rule ({found}) ((delete {found})) :ruleset clear)
                (rule ({resolved}) ((delete {resolved})) :ruleset clear)
            """)
        return name

    def add(self, relation: str, *row: int) -> None:
        """Add a leaf (`leaf`, a handle), an equality (`equal`) or a constant term (`fixed`) at the next `load`."""
        self._new[relation].append(row)

    def add_node(self, row: Row, *, variadic: bool = False) -> None:
        """Add an e-node at the next `load`: its handle, operator, attributes and children."""
        handle, op, attrs, *children = row
        self._declare(op, len(children))
        self.add(f"LO{op}_{len(children)}", handle, attrs, *children)
        if variadic:
            self._declare_variadic(op)
            self.add(f"LV{op}", handle, attrs)
            for position, child in enumerate(children):
                self.add(f"LD{op}", handle, position, child)

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
                self._run("\n".join([*commands, "(run load 1)", "(run derive 1)"]))
        return bool(new)

    def matches(self, ruleset: str) -> dict[str, list[Row]]:
        """Return the new matches of each query of the ruleset since the last call, each list sorted."""
        if ruleset not in self._queries:
            return {}
        _, report = self._run(f"(run derive 1) (run {ruleset} 1)")
        for query_name, duration in report.search_and_apply_time_per_rule.items():
            self.seconds[query_name] += duration.total_seconds()
        if not report.updated:
            return {}
        found: defaultdict[int, list[Row]] = defaultdict(list)
        for query, *row in self._take("resolve"):
            found[query].append(tuple(row))
        return {query.name: sorted(found[i]) for i, query in self._queries[ruleset] if i in found}

    def canonical(self) -> dict[int, int]:
        """Return the canonical (least) handles of those that stopped being canonical since the last call."""
        return dict(self._take("move"))  # type: ignore[arg-type]

    def _take(self, ruleset: str) -> list[Row]:
        """Run a ruleset whose rules are named by the relations of integers that they fill, and empty these.

        They are read as printed, since `freeze` copies all tables."""
        (report,) = self._run(f"(run {ruleset} 1)")
        sizes = {relation: count for relation, count in report.num_matches_per_rule.items() if count}
        if not sizes:
            return []
        program = "".join(f"(print-function {relation} {count})" for relation, count in sizes.items())
        rows: list[Row] = []
        for printed in self._egraph.run_program(*self._egraph.parse_program(program)):
            get = printed.termdag.get
            rows += [tuple([get(value).value.value for value in get(term).args]) for term, _ in printed.terms]
        self._run("(run clear 1)")
        return rows
