"""Adapter to egglog: matching, commutativity, congruence."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from rewrite.engine.egraph import matcher as matcher_module
from rewrite.engine.egraph.matcher import Atom, Matcher, Query, Row, SharedTables

ADD, RELU = 5, 7


@pytest.fixture
def matcher() -> Matcher:
    made = Matcher()
    made.declare_commutative([ADD])
    for leaf in (0, 1, 2):
        made.add("leaf", leaf)
    made.load()
    return made


def load(matcher: Matcher, *nodes: Row, equal: Sequence[Row] = ()) -> None:
    for node in nodes:
        matcher.add_node(node)
    for pair in equal:
        matcher.add("equal", *pair)
    assert matcher.load()


RELU_OF_ADD = Query(
    "q",
    "phase",
    (Atom("r", RELU, "a1", ("x",)), Atom("x", ADD, "a2", ("y", "z"), commutative=True)),
    ("r", "y", "z"),
    ("a1",),
)


def test_a_commutative_operator_matches_in_both_orders(matcher: Matcher) -> None:
    matcher.add_query(RELU_OF_ADD)
    load(matcher, (3, ADD, 0, 1, 2), (4, RELU, 9, 3))
    assert matcher.matches("phase") == {"q": [(4, 1, 2, 9), (4, 2, 1, 9)]}


def test_matches_are_given_once(matcher: Matcher) -> None:
    matcher.add_query(RELU_OF_ADD)
    load(matcher, (3, ADD, 0, 1, 2), (4, RELU, 9, 3))
    assert matcher.matches("phase")
    assert matcher.matches("phase") == {}


def test_equal_operands_make_equal_results(matcher: Matcher) -> None:
    load(matcher, (3, RELU, 0, 1), (4, RELU, 0, 2))
    assert matcher.canonical() == {}
    load(matcher, equal=[(1, 2)])
    assert matcher.canonical() == {2: 1, 4: 3}


def test_a_new_equality_brings_new_matches(matcher: Matcher) -> None:
    matcher.add_query(Query("q", "phase", (Atom("r", RELU, "a", ("x",)), Atom("x", RELU, "b", ("y",))), ("r", "y"), ()))
    load(matcher, (3, RELU, 0, 1), (4, RELU, 0, 2))
    assert matcher.matches("phase") == {}
    load(matcher, equal=[(2, 3)])  # now 4 = Relu(3) = Relu(Relu(1))
    assert matcher.matches("phase") == {"q": [(4, 1)]}


def test_classes_that_must_differ(matcher: Matcher) -> None:
    atoms = (Atom("r", RELU, "a", ("x",)), Atom("x", RELU, "b", ("y",)))
    matcher.add_query(Query("q", "phase", atoms, ("r", "y"), (), different=(("r", "x"),)))
    load(matcher, (3, RELU, 0, 1), (4, RELU, 0, 3))
    assert matcher.matches("phase") == {"q": [(4, 1)]}
    load(matcher, equal=[(3, 4)])
    load(matcher, (5, RELU, 0, 2), equal=[(3, 5)])  # 3 = Relu(2) = Relu(3), which contains itself
    assert matcher.matches("phase") == {}


def test_an_absent_input_matches_the_absent_leaf_only(matcher: Matcher) -> None:
    matcher.add_query(Query("q", "phase", (Atom("r", RELU, "a", ("x", "n")),), ("r", "x"), (), absent=("n",)))
    load(matcher, (3, RELU, 0, 1, 0), (4, RELU, 0, 1, 2))
    assert matcher.matches("phase") == {"q": [(3, 1)]}


def test_an_operator_can_be_bound(matcher: Matcher) -> None:
    atom = Atom("r", "f", "a", ("x",))
    matcher.declare_kind("unary", RELU)
    matcher.add_query(Query("q", "phase", (atom,), ("r", "x"), ("f",), kinds=(("f", "unary"),)))
    load(matcher, (3, RELU, 0, 1), (4, 11, 0, 3), (5, 13, 0, 4))
    matcher.declare_kind("unary", 11)
    assert matcher.matches("phase") == {"q": [(3, 1, RELU), (4, 3, 11)]}


def test_an_input_at_a_known_position_is_the_only_row(matcher: Matcher) -> None:
    atom = Atom("r", RELU, "a", ("x", "y"), node="n", positions=(0, "i"))
    matcher.add_query(Query("q", "phase", (atom,), ("r", "x", "y"), ("a", "n", "i")))
    matcher.add_node((3, RELU, 0, 1, 2, 2), variadic=True)
    matcher.load()
    assert matcher.matches("phase") == {"q": [(3, 1, 1, 0, 3, 0), (3, 1, 2, 0, 3, 1), (3, 1, 2, 0, 3, 2)]}


def test_neighbors_are_matched_at_positions_one_after_the_other(matcher: Matcher) -> None:
    atom = Atom("r", RELU, "a", ("x", "y"), node="n", positions=("i", "j"), neighbors=(("i", "j"),))
    matcher.add_query(Query("q", "phase", (atom,), ("r", "x", "y"), ("n", "i", "j")))
    matcher.add_node((3, RELU, 0, 1, 2, 2, 1), variadic=True)
    assert matcher.load()
    assert matcher.matches("phase") == {"q": [(3, 1, 2, 3, 0, 1), (3, 2, 1, 3, 2, 3), (3, 2, 2, 3, 1, 2)]}


def test_handles_that_moved_are_reported_once(matcher: Matcher) -> None:
    load(matcher, (3, RELU, 0, 1), (4, RELU, 0, 2), equal=[(1, 2)])
    assert matcher.canonical() == {2: 1, 4: 3}
    assert matcher.canonical() == {}


def filled(shared: SharedTables | None, *nodes: Row) -> Matcher:
    made = Matcher(shared)
    made.declare_commutative([ADD])
    for leaf in (0, 1, 2):
        made.add("leaf", leaf)
    made.add_query(RELU_OF_ADD)
    load(made, *nodes)
    return made


def test_shared_tables_are_empty_for_the_next_matcher() -> None:
    shared, neg = SharedTables(), 11
    first = filled(shared, (3, ADD, 0, 1, 2), (4, RELU, 9, 3))
    assert first.matches("phase") == {"q": [(4, 1, 2, 9), (4, 2, 1, 9)]}
    first.add_node((5, neg, 0, 4))  # its table is declared in the copy only
    assert first.load()
    first.close()
    for _ in range(2):
        following = filled(shared, (3, ADD, 0, 2, 2), (4, RELU, 8, 3), (5, neg, 0, 2))
        assert following.matches("phase") == {"q": [(4, 2, 2, 8)]}
        assert following.canonical() == {}
        following.close()


def test_a_second_matcher_at_the_same_time_has_tables_of_its_own() -> None:
    shared = SharedTables()
    nodes = ((3, ADD, 0, 1, 2), (4, RELU, 9, 3))
    first, second = filled(shared, *nodes), filled(shared, *nodes)
    assert first.matches("phase") == second.matches("phase") != {}
    for matcher in (second, first):
        matcher.close()
    assert filled(shared, *nodes).matches("phase")


def test_another_thread_may_collect_a_matcher(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    made: list[object] = [Matcher()]
    made.append(made)  # a cycle, which only the collector finds
    del made
    thread = threading.Thread(target=gc.collect)
    gc.disable()
    try:
        thread.start()
        thread.join()
    finally:
        gc.enable()
    assert not reported
    assert left_to(threading.current_thread())
    Matcher()
    assert not left_to(threading.current_thread())


def test_only_the_bindings_of_egglog_are_loaded_and_its_package_stays_whole() -> None:
    code = """
import sys
from rewrite.engine.egraph.matcher import Matcher
Matcher()
print(*sorted({"black", "graphviz", "opentelemetry", "anywidget", "cloudpickle", "egglog"} & set(sys.modules)))
import egglog
from rewrite.engine.egraph.matcher import bindings
assert egglog.bindings.EGraph is bindings().EGraph
assert egglog.EGraph() is not None
Matcher()
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == []


def left_to(thread: threading.Thread) -> list[object]:
    return [egraph for owner, egraph in matcher_module._LEFT if owner is thread]
