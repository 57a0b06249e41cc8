"""Each stage of the engine can be called alone, and its value printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import rewrite
from rewrite.engine import optimizer, pipeline
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.ir.constants import summarize
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.engine.saturation.saturate import Limits
from rewrite.errors import UserError

MODEL = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> one (float[2, 4] x) => (float[2, 4] y)
<float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, float one = {1}>
{ a = Mul(x, one) b = MatMul(a, w) c = Relu(b) y = Relu(c) }""")

HALF = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]> one (float16[2, 4] x) => (float16[2, 4] y)
<float16 one = {1}> { a = Mul(x, one) b = Exp(a) y = Relu(b) }""")


def test_stages_give_what_the_optimizer_gives() -> None:
    values = list(pipeline.stages(MODEL))
    names = [name for name in dict(values) if name not in ("lower precision", "restrict", "saturate for kernels")]
    assert names == ["read", "encode", "saturate", "extract portable", "extract native", "decode", "export"]
    exported = dict(values)["export"]
    assert exported.SerializeToString() == optimizer.optimize(MODEL).model.SerializeToString()  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", [MODEL, HALF], ids=["f32", "f16"])
def test_the_graph_for_kernels_is_the_same_without_that_of_a_file(model: onnx.ModelProto) -> None:
    alone = optimizer.optimize_native(model)
    both = optimizer.optimize(model)
    assert (repr(alone.native), alone.is_repeatable) == (repr(both.native), True)
    assert alone.native.nodes == both.native.nodes


def test_progress_tells_choosing_from_saturating() -> None:
    """Both are work of the child process, and either may be the longer one."""
    source, limits = pipeline.read(MODEL, Options(), load_rules()), Limits()
    costs = [CostModel(target="portable"), CostModel(target="native")]
    setup = pipeline.prepare(source.library, source.graph.opset, Options(), costs)
    reported: list[str] = []
    done: list[tuple[str, str]] = []
    run = pipeline.optimize_graph(
        source.graph, setup, lambda: limits, progress=lambda stage, facts: reported.append(stage)
    )
    for name, _ in run:
        done.append((name, reported[-1] if reported else ""))
    assert ("saturate", "saturate") in done
    assert {stage for name, stage in done if name.startswith("extract")} == {"extract"}
    assert {stage for name, stage in done if name == "saturate for kernels"} <= {"saturate"}
    begun: list[str] = []
    optimizer.optimize_native(MODEL, progress=lambda stage, facts: begun.append(stage))
    assert begun[-2:] == ["extract", "extract"]  # the child's, and what its parent decodes


def test_constants_that_a_graph_comes_without_are_no_inputs() -> None:
    source = pipeline.read(MODEL, Options(), load_rules())
    setup = pipeline.prepare(source.library, source.graph.opset, Options(), [])
    light = replace(source.graph, constants={})
    infos = {name: summarize(constant) for name, constant in source.graph.constants.items()}
    for graph, constants in ((source.graph, None), (light, infos)):
        ops = [node.op for node in pipeline.encode(graph, setup, constants).egraph.nodes]
        assert ops.count("Const") == 2
        assert ops.count("Input") == len(graph.inputs)


def test_each_stage_can_be_called_alone_and_printed() -> None:
    library, options, limits = load_rules(), Options(), Limits()
    source = pipeline.read(MODEL, options, library)
    assert str(source).startswith("4 nodes, 2 constants, x → y")
    costs = [CostModel(target="portable"), CostModel(target="native")]
    setup = pipeline.prepare(library, source.graph.opset, options, costs)
    encoded = pipeline.encode(source.graph, setup)
    assert "Relu ×2" in str(encoded)
    saturated = pipeline.saturate(encoded, setup, limits)
    assert "then saturated" in str(saturated)
    assert "rules applied: " in str(saturated)
    chosen = pipeline.extract(saturated, setup, "native")
    assert str(chosen).startswith("native: predicted")
    kernels = pipeline.saturate_for_kernels(pipeline.restrict(chosen, source.graph, setup), setup, limits)
    assert len(kernels.egraph.nodes) < len(saturated.egraph.nodes)
    decoded = pipeline.decode(pipeline.extract(kernels, setup, "native"), source.graph)
    assert [node.op for node in decoded.graph.nodes].count("Relu") == 1
    assert "operators: " in str(decoded)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"numerics": "sloppy"}, "unknown numerics 'sloppy'\nChoose one of exact, reassoc, fast."),
        ({"precision": "f8"}, "unknown precision 'f8'"),
        ({"shapes": {"N": -1}}, "the size of 'N' must be a non-negative integer, not -1"),
        ({"rules": "my.rules"}, r"`rules` is a list of files, not 'my.rules'\nWrite rules=\['my.rules'\]."),
    ],
)
def test_options_are_checked_at_once(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Options.of(**given)
    with pytest.raises(UserError, match=message):
        rewrite.optimize("missing.onnx", **given)  # type: ignore[arg-type]


def test_the_key_of_options_covers_what_decides_the_result() -> None:
    plain = Options().key()
    assert Options(mapped=True, why_not="x", rules=(Path("a.rules"),)).key() == plain
    for other in (
        Options(precision="bf16"),
        Options(shapes={"N": 2}),
        Options(memory_limit=100),
        Options(disabled=["a"]),
    ):
        assert other.key() != plain


def test_rulesets_about_kernels_count_as_scheduled() -> None:
    assert rewrite.optimize(MODEL).report.egraph["unscheduled"] == []
