"""Write the tables of `operators.md`: what becomes of each operator of ONNX and of ai.onnx.ml; `--check` only compares.

`operators.txt` has one node for each operator: a line is its name, its operands and its attributes as JSON. An operand
is `TYPE[DIMS]` for an input of the model, `=TYPE[DIMS]` for a weight, `TYPE=VALUE` for a constant, `-` for an absent
one. `T` stands for each element type that the newest schema admits. The nodes of one element type are planned together,
as the compiler plans a model, without compiling C. The reasons are in `REASONS`; the script fails for an operator
outside without one, and for an operator of the standard without a line.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rewrite.backend.ir.kernel_graph import Control, Fallback, Step
from rewrite.backend.ir.target import make_target
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.engine import pipeline
from rewrite.engine.ir.graph import DType, Graph
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.engine.saturation.saturate import Limits
from rewrite.engine.stage_values import Chosen

HERE = Path(__file__).parent
PAGE, NODES = HERE / "operators.md", HERE / "operators.txt"
BEGIN, END = "<!-- begin: operators, made by operators.py -->", "<!-- end: operators -->"
COLUMNS = {
    "f32": ("f32",),
    "f16, bf16": ("f16", "bf16"),
    "f64": ("f64",),
    "integers, bool": ("i64", "i32", "i8", "u8", "bool"),
}
"""Columns of the table, each with its element types."""
OUTSIDE = "outside"
ML, ML_OPSET = "ai.onnx.ml", 3
"""Domain of the second half of the table, at the opset that converters write."""
DISSOLVED = "where members are known when it is compiled; other sequences exist in Python only"
OPTIONALS = "where the model itself makes the optional; others exist in Python only"
STRINGS = "strings have no kernels"
IMAGES = "images have no kernels"
MAPS = "maps exist in Python only"
INTEGERS = "no kernel computes it in integers"
UNCOUNTED = (STRINGS, IMAGES)
"""Reasons of operators that no numerical kernel could compute."""
REASONS = {
    **dict.fromkeys(
        ("Gemm", "MatMul", "Einsum"), "products of integers have kernels for 8 bits only (`MatMulInteger`)"
    ),
    **dict.fromkeys(("ReduceL2", "Shrink", "QuantizeLinear", "ReduceMax", "ReduceMin"), INTEGERS),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"), STRINGS),
    f"{ML}.Binarizer": "only floats are defined by rules",
    f"{ML}.Imputer": "integers are compared with an attribute of their own",
    f"{ML}.LabelEncoder": "floats are looked up in keys of floats",
    f"{ML}.OneHotEncoder": "only integers are defined by rules",
    "Col2Im": "sums of booleans",
    "AffineGrid": "the reference implementation rounds f64 to f32",
    "ImageDecoder": IMAGES,
    "Resize": "floats do not hold the largest integers of 32 and 64 bits",
}
"""Why an operator runs outside for some element type."""
ELSEWHERE = {
    **dict.fromkeys(("If", "Loop", "Scan"), ("runtime", "driven in C, or from Python where a body needs it")),
    "SequenceMap": ("runtime", "driven from Python over a compiled body"),
    "BitCast": ("free", ""),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), ("rules", OPTIONALS)),
    **dict.fromkeys(("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty"), ("rules", DISSOLVED)),
    **dict.fromkeys(("SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence"), ("rules", DISSOLVED)),
    **dict.fromkeys((f"{ML}.{op}" for op in ("CastMap", "DictVectorizer", "ZipMap")), (OUTSIDE, MAPS)),
    f"{ML}.CategoryMapper": (OUTSIDE, STRINGS),
}
"""What becomes of operators without a sample, which have bodies, sequences, maps, strings or a result of another type,
and why."""


@dataclass(frozen=True)
class Sample:
    """A node: its operator, operands as texts, attributes, and the number of its outputs."""

    op: str
    operands: tuple[str, ...]
    attributes: Mapping[str, Any]
    outputs: int


def samples() -> list[Sample]:
    """Return the nodes in `operators.txt`."""
    found = []
    for line in NODES.read_text(encoding="utf-8").splitlines():
        before, brace, attributes = line.partition(" {")
        op, *operands = before.split()
        attrs = json.loads(brace.strip() + attributes) if brace else {}
        outputs = attrs.pop("outputs", 1)
        found.append(Sample(op, tuple(operands), attrs, outputs))
    return found


@dataclass
class Model:
    """A model that grows by one node at a time."""

    dtype: str
    nodes: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Add a node with inputs of its own."""
        names = []
        for number, text in enumerate(sample.operands):
            name = f"{sample.op}.{number}"
            names.append("" if text == "-" else name)
            is_weight, text = text.startswith("="), text.removeprefix("=")
            kind, equals, value = text.partition("=")
            if equals:
                dtype = DType(kind.replace("T", self.dtype))
                self.constants.append(numpy_helper.from_array(np.array(json.loads(value), dtype.numpy), name))
            elif text != "-":
                kind, _, dims = text.rstrip("]").partition("[")
                dtype = DType(kind.replace("T", self.dtype))
                shape = [int(d) for d in dims.split(",") if d]
                if is_weight:
                    self.constants.append(numpy_helper.from_array(np.ones(shape, dtype.numpy), name))
                else:
                    self.inputs.append(helper.make_tensor_value_info(name, dtype.onnx, shape))
        made = [f"{sample.op}:{i}" for i in range(sample.outputs)]
        attributes = {key: self._attribute(value) for key, value in sample.attributes.items()}
        domain, _, name = sample.op.rpartition(".")
        self.nodes.append(helper.make_node(name, names, made, domain=domain, **attributes))
        self.outputs += made

    def _attribute(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        dtype = DType(value["type"].replace("T", self.dtype))
        return numpy_helper.from_array(np.array(value["value"], dtype.numpy))

    def proto(self) -> onnx.ModelProto:
        """Return the model at the newest opset."""
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "operators", self.inputs, outputs, self.constants)
        imports = [helper.make_opsetid("", onnx.defs.onnx_opset_version()), helper.make_opsetid(ML, ML_OPSET)]
        return helper.make_model(graph, opset_imports=imports)


def states(found: Sequence[Sample], dtype: str) -> dict[str, str]:
    """Return what becomes of each of these operators on one element type."""
    model = Model(dtype)
    for sample in found:
        model.add(sample)
    graph = _native_graph(model.proto())
    policy = standard_policy()
    plan = lower(group(graph, PlanSettings(policy, make_target("avx2"), 1)))
    makers = graph.producers()
    host = {v for item in plan.items if isinstance(item, Fallback | Control) for v in _outputs(item)}
    steps = {v for item in plan.items if isinstance(item, Step) for v in item.outputs}

    def state(sample: Sample) -> str:
        values, seen = [f"{sample.op}:{i}" for i in range(sample.outputs)], set[str]()
        while values:
            value = values.pop()
            if value not in seen and (node := makers.get(value)) is not None:
                values += [v for v in node.inputs if v]
            seen.add(value)
        if seen & host:
            return OUTSIDE
        if any(_plain(makers[v].op) == sample.op for v in seen if v in makers):
            own = "rules" if "." in sample.op and sample.op in policy.defined else "kernel"
            return own if seen & steps else "free"
        return "rules"

    return {sample.op: state(sample) for sample in found}


def _plain(op: str) -> str:
    """Return an operator without its version, and without its layout, which depends on the machine's costs."""
    return op.partition("@")[0].removeprefix("rewrite.ChannelsLast")


def _native_graph(model: onnx.ModelProto) -> Graph:
    """Return the graph that is compiled for a model."""
    options, library = Options(), load_rules()
    source = pipeline.read(model, options, library)
    graph = pipeline.promote(source, options) or source.graph
    setup = pipeline.prepare(library, graph.opset, options, pipeline.cost_models(graph, options))
    limits = Limits(options.time_limit, options.node_limit)
    with declared_operators(source.operators):
        for _, value in pipeline.optimize_graph(graph, setup, lambda: limits, targets=["native"]):
            if isinstance(value, Chosen):
                chosen = value
        return pipeline.decode(chosen, graph).graph


def _outputs(item: Fallback | Control) -> Sequence[str]:
    return item.node.outputs if isinstance(item, Fallback) else item.outputs


def admits(sample: Sample, dtype: str) -> bool:
    """Whether the newest schema of an operator admits an element type for the operands `T` of its sample."""
    domain, _, name = sample.op.rpartition(".")
    schema = onnx.defs.get_schema(name, ML_OPSET if domain else onnx.defs.onnx_opset_version(), domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    wanted = f"tensor({helper.tensor_dtype_to_string(DType(dtype).onnx).rpartition('.')[2].lower()})"
    kinds = [re.split(r"[\[=]", text.removeprefix("="))[0] for text in sample.operands]
    for number, kind in enumerate(kinds):
        formal = schema.inputs[min(number, len(schema.inputs) - 1)].type_str
        if kind == "T" and wanted not in allowed.get(formal, [formal]):
            return False
    if "T" in kinds or any(isinstance(v, dict) and v["type"] == "T" for v in sample.attributes.values()):
        return True
    return (kinds[0] if kinds else "f32") == dtype


def table() -> dict[str, tuple[list[str], str]]:
    """Return the cells of each operator, and why it runs outside.

    Raises SystemExit for operators without a sample or a reason."""
    found = {sample.op: sample for sample in samples()}
    names = {s.name for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated}
    history = onnx.defs.get_all_schemas_with_history()
    names |= {f"{ML}.{s.name}" for s in history if s.domain == ML and s.since_version <= ML_OPSET}
    if names != found.keys() | ELSEWHERE.keys():
        sys.exit(f"in the standard or in {NODES.name}, not in both: {names ^ (found.keys() | ELSEWHERE.keys())}")
    cells = {
        dtype: states([s for s in found.values() if admits(s, dtype)], dtype)
        for dtypes in COLUMNS.values()
        for dtype in dtypes
    }
    reasons, rows = dict(REASONS), {}
    for op in sorted(names, key=lambda op: (ML in op, op)):
        if op in ELSEWHERE:
            state, why = ELSEWHERE[op]
            row = [state] * len(COLUMNS)
        else:
            row = [_cell({d: cells[d][op] for d in dtypes if op in cells[d]}) for dtypes in COLUMNS.values()]
            is_outside = any(OUTSIDE in cell for cell in row) or all(cell == "–" for cell in row)
            why = reasons.pop(op, "") if is_outside else ""
            if is_outside and not why:
                sys.exit(f"{op} runs outside, and REASONS does not say why")
        rows[op] = (row, why)
    if reasons:
        sys.exit(f"reasons for operators that do not run outside: {', '.join(reasons)}")
    return rows


def summary(rows: Mapping[str, tuple[list[str], str]]) -> str:
    """Return how many of the standard's operators run natively, and what keeps the others outside."""
    standard = {op: row for op, row in rows.items() if not op.startswith(ML)}
    outside: dict[str, list[str]] = {}
    for op, (cells, why) in standard.items():
        main = next((cell for cell in cells if cell != "–"), OUTSIDE)
        if OUTSIDE in main and not any(state in main for state in ("kernel", "rules", "free")):
            outside.setdefault(why, []).append(f"`{op}`")
    native = len(standard) - sum(map(len, outside.values()))
    left = [(why, ops) for why, ops in outside.items() if why not in UNCOUNTED]
    counted = native + sum(len(ops) for _, ops in left)
    skipped = [(why, ops) for why, ops in outside.items() if why in UNCOUNTED]
    text = (
        f"Of the {len(standard)} operators of the standard, {native} ({native / len(standard):.1%}) run natively for "
        f"their main element type, f32 where they admit it. That is {native / counted:.1%} of the {counted} that "
        f"compute with numbers: without {_listed(skipped)}."
    )
    if left:
        text += f" The others outside are {_listed(left)}."
    return "\n".join(textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)) + "\n\n"


def _listed(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    return "; ".join(f"{', '.join(ops)} ({why})" for why, ops in groups)


def _cell(found: Mapping[str, str]) -> str:
    """Return one word for the element types of a column, or each with its own."""
    by_state: dict[str, list[str]] = {}
    for dtype, state in found.items():
        by_state.setdefault(state, []).append(dtype)
    if len(by_state) < 2:
        return next(iter(by_state), "–")
    return "; ".join(f"{', '.join(dtypes)}: {state}" for state, dtypes in by_state.items())


def page() -> str:
    """The page with a fresh table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    head = f"| operator | {' | '.join(COLUMNS)} | why not |\n|{'---|' * (len(COLUMNS) + 2)}\n"
    rows = table()
    lines = "".join(f"| `{op}` | {' | '.join(cells)} | {why} |\n" for op, (cells, why) in rows.items())
    return f"{before}{BEGIN}\n\n{summary(rows)}{head}{lines}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    fresh = page()
    if "--check" in sys.argv[1:]:
        sys.exit("docs/operators.md is out of date" if fresh != PAGE.read_text(encoding="utf-8") else 0)
    PAGE.write_text(fresh, encoding="utf-8")
