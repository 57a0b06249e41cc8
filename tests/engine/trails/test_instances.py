"""Every rule is repeated without egglog: what its own tests apply is an instance of its left side, and of it only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rewrite.engine.egraph.reasons import Applied, Defined
from rewrite.engine.ir.values import TensorRef
from rewrite.engine.rewriting.matching.compiled_patterns import CompiledRule
from rewrite.engine.rewriting.rule_library import standard_files
from rewrite.engine.rule_tests import run_tests
from rewrite.engine.trails.repetition import Translation
from rewrite.engine.trails.replay import Gap, Replay, Tables


class Recorder:
    """What the tests of a rule file applied, repeated at once."""

    def __init__(self) -> None:
        self.repeated = 0
        self.wrong: list[str] = []
        self.accepted: list[str] = []

    def saturate(self, suite: Any, context: Any, rules: list[CompiledRule], *args: Any, **options: Any) -> Any:
        """Saturate as the tests do, and repeat each step with the terms that stood there before."""
        given = len(context.egraph.nodes)
        count = ORIGINAL(suite, context, rules, *args, **options)
        tables = Tables(context.egraph.commutative)
        tables.extents = context.egraph.extents  # of a rule about kernels
        replay = Replay(replace(suite.library, rules=tuple(rules)), tables)
        replay.context.assumed = context.assumed
        replay.context.bodies.update(context.bodies)
        translation = Translation(context.egraph, replay)
        for handle in range(1, given):
            node = context.egraph.nodes[handle]
            if node.op == "Input":
                type_ = context.egraph.types(handle)[0]
                translation.at[handle] = tables.add_input(str(node.attrs["name"]), type_, context.egraph.value(handle))
            elif node.serial:
                return count
            else:
                translation.term(handle)
        last = None
        for reason in context.egraph.reasons:
            if not isinstance(reason, Applied | Defined) or reason is last:
                continue
            last = reason
            self.repeated += 1
            try:
                if isinstance(reason, Defined):
                    replay.define(translation.term(reason.node))
                else:
                    step = translation.step(reason)
                    self.tampered(replay, step)
                    replay.apply(step)
            except Gap as gap:
                self.wrong.append(f"{suite.rule.name}: {gap}")
        return count

    def tampered(self, replay: Replay, step: Applied) -> None:
        """Try the step with another operand in the place of a variable: that must be refused."""
        find, nodes = replay.egraph.find, replay.egraph.nodes
        for name, value in step.env.items():
            if not isinstance(value, TensorRef) or find(value.handle) in map(find, step.roots):
                continue
            type_ = replay.egraph.types(value.handle)[0]
            other = replay.egraph.add_input("another", type_)
            if find(other) == find(value.handle) or nodes[find(value.handle)].op == "Const":
                continue
            try:
                Replay(replay.rules, replay.egraph).apply(replace(step, env={**step.env, name: TensorRef(other)}))
                self.accepted.append(f"{step.rule}: {name}")
            except Gap:
                pass
            return


ORIGINAL = run_tests.RuleUnderTest.saturate


@pytest.mark.parametrize("file", standard_files(), ids=lambda path: path.stem)
def test_what_the_tests_of_rules_apply_is_repeated(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(
        run_tests.RuleUnderTest, "saturate", lambda suite, *args, **options: recorder.saturate(suite, *args, **options)
    )
    monkeypatch.setattr(run_tests, "_compare", lambda *args: None)  # the forms are compared where rules are tested
    found = run_tests.run_tests([file])
    assert not recorder.wrong, "\n".join(dict.fromkeys(recorder.wrong))
    assert not recorder.accepted, "\n".join(dict.fromkeys(recorder.accepted))
    assert recorder.repeated or not any(result.kind == "fires" for result in found)
