"""How well the cost model predicts the time of kernels: measured over predicted, in whole models.

    python -m benchmarks.prediction --prepare light_squeezenet vit_small.dynamo.raw   compile, so that runs only measure
    python -m benchmarks.prediction light_squeezenet vit_small.dynamo.raw --save times.jsonl
    python -m benchmarks.prediction --load times.jsonl --by kernels

A model is a name of the zoo or the path of a bundle. The prediction of a kernel is what extraction adds up for its
nodes: an anchor, and pointwise nodes that join it. `--save` stores the nodes and the times, so that `--load` can tell
what another profile (`--profile FILE`) or a changed model predicts for them, without measuring again.

For each model and for all of them a line shows, over kernels:

- the rank correlation of Spearman;
- the geometric-mean error, exp(mean |log(measured/predicted)|), and the same weighted by measured time;
- the geometric mean of measured over predicted: 1 if times are right on average.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rewrite.backend.calibration import timing
from rewrite.engine.cost import machine as machines
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.samples import Application, Sample
from rewrite.engine.ir.graph import DType, OtherType, TensorType, ValueType
from rewrite.system import hardware

from . import models

if TYPE_CHECKING:
    from rewrite.backend.runtime.program import Program

NAMES = (
    "light_squeezenet", "light_inception_v1", "light_densenet121", "resnet50.ts.raw", "regnet.ts.raw",
    "mobilenet_v2.ts.raw", "efficientnet_b0.ts.raw", "convnext_tiny.ts.raw", "yolo.ts.raw", "unet.ts.raw",
    "segformer.ts.raw", "vit_small.dynamo.raw", "swin_tiny.ts.raw", "bert_mini.dynamic", "gpt2.dynamo.raw",
    "crnn.ts.raw",
)  # fmt: skip
"""Models whose kernels are measured by default: of each family of networks one or two."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel of a model, measured with a vector extension."""

    model: str
    isa: str
    sample: Sample

    @property
    def kernels(self) -> str:
        """Templates of the kernel."""
        return self.sample.kernels


# --- storage ----------------------------------------------------------------------------------------------------------


def to_json(found: Measured) -> dict[str, Any]:
    """Return a measurement as JSON data; types as `["f32", [1, 3]]`, and null where absent or not of tensors."""

    def encoded(type_: ValueType | None) -> Any:
        if type_ is None or isinstance(type_, OtherType):
            return None
        return [type_.dtype and type_.dtype.value, None if type_.shape is None else [*type_.shape]]

    nodes = [
        [n.op, {k: v for k, v in n.attrs.items() if isinstance(v, int | float | str | tuple)},
         [*map(encoded, n.inputs)], [*map(encoded, n.outputs)]]
        for n in found.sample.nodes
    ]  # fmt: skip
    about = {"model": found.model, "isa": found.isa, "kernels": found.kernels}
    return {**about, "seconds": found.sample.seconds, "nodes": nodes}


def from_json(data: dict[str, Any]) -> Measured:
    """Return a measurement that `to_json` encoded."""

    def decoded(given: Any) -> ValueType | None:
        if given is None:
            return None
        dtype, shape = given
        return TensorType(dtype and DType(dtype), None if shape is None else tuple(shape))

    nodes = [
        Application(
            op,
            {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()},
            [*map(decoded, inputs)],
            [*map(decoded, outputs)],
        )
        for op, attrs, inputs, outputs in data["nodes"]
    ]
    return Measured(data["model"], data["isa"], Sample(data["kernels"], data["seconds"], nodes))


# --- statistics -------------------------------------------------------------------------------------------------------


def spearman(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Return Spearman's rank correlation; NaN for fewer than three pairs."""
    if len(a) < 3:
        return math.nan
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal ones share the mean of theirs."""
    _, which, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]


def statistics(pairs: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return what the docstring of the module names, for pairs of measured and predicted seconds."""
    measured, predicted = (np.asarray(values) for values in zip(*pairs, strict=True))
    ratios = np.log(measured / predicted)
    return {
        "kernels": len(measured),
        "spearman": spearman(measured, predicted),
        "error": float(np.exp(np.abs(ratios).mean())),
        "weighted": float(np.exp(np.average(np.abs(ratios), weights=measured))),
        "ratio": float(np.exp(ratios.mean())),
        "ms": float(measured.sum()) * 1e3,
        "predicted ms": float(predicted.sum()) * 1e3,
    }


def table(found: Sequence[Measured], cost: CostModel, by: str, least: float) -> list[tuple[str, dict[str, float]]]:
    """Return a row for each model or kernel, and one for all; kernels below `least` seconds are left out."""
    pairs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in found:
        if one.sample.seconds < least:
            continue
        pair = one.sample.seconds, one.sample.predicted(cost, known=False)
        pairs[getattr(one, by)].append(pair)
        pairs["all"].append(pair)
    return [(name, statistics(group)) for name, group in sorted(pairs.items(), key=lambda item: item[0] == "all")]


def _label(name: str) -> str:
    """Return the name of a model of the zoo, which may be given as a bundle."""
    return Path(name).name.removesuffix(".rewrite").removesuffix(f".{machines.isa_name()}")


def _program(name: str) -> tuple[Program, dict[str, np.ndarray]]:
    """Return the program of a model of the zoo, from the cache if it is there, or of a bundle, and its inputs."""
    import rewrite

    if Path(name).is_dir():
        return rewrite.load(name, threads=1), models.inputs(_label(name))
    return rewrite.compile(models.path(name), threads=1), models.inputs(name)


def main() -> None:
    """Measure models or read measurements, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES), help="models of the zoo, or bundles of some")
    parser.add_argument("--prepare", action="store_true", help="compile only")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each model")
    parser.add_argument("--save", type=Path, help="append the measurements to a file of JSON lines")
    parser.add_argument("--load", type=Path, nargs="+", help="read measurements instead of measuring")
    parser.add_argument("--profile", type=Path, help="machine profile to predict with; by default that of this machine")
    parser.add_argument("--by", choices=("model", "kernels"), default="model")
    parser.add_argument("--least", type=float, default=0.0, help="leave out kernels of fewer microseconds")
    parser.add_argument(
        "--rows", type=int, default=0, help="list that many kernels, those with the largest error first"
    )
    options = parser.parse_args()
    found: list[Measured] = []
    if options.load:
        lines = [line for path in options.load for line in path.read_text().splitlines()]
        found = [one for one in map(from_json, map(json.loads, lines)) if one.isa == machines.isa_name()]
    else:
        for name in options.names:
            program, feeds = _program(name)
            if not options.prepare:
                every = timing.samples(program.profile(feeds, seconds=options.seconds))
                found += [Measured(_label(name), machines.isa_name(), sample) for sample in every]
    if options.save:
        with options.save.open("a") as file:
            file.writelines(json.dumps(to_json(one)) + "\n" for one in found)
    if not found:
        return
    machine = machines.load(options.profile)
    cost = CostModel(target="native", machine=machine)
    print(f"{hardware.cpu_name()}, {machines.isa_name()}, profile: {machine.source}\n")
    print("| | kernels | Spearman | error | weighted | measured/predicted | ms | predicted ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, row in table(found, cost, options.by, options.least * 1e-6):
        figures = (f"{row[key]:.2f}" for key in ("spearman", "error", "weighted", "ratio", "ms", "predicted ms"))
        print(f"| {name} | {row['kernels']} | {' | '.join(figures)} |")
    worst = sorted(found, key=lambda one: -one.sample.seconds * abs(math.log(_error(one.sample, cost))))
    for one in worst[: options.rows]:
        nodes = one.sample.nodes
        shapes = ", ".join(str(t) for t in (*nodes[0].inputs[:2], nodes[-1].outputs[0]))
        print(
            f"{one.sample.seconds * 1e6:9.1f} us {_error(one.sample, cost):6.2f}x {one.model[:16]:16} {one.kernels:20} "
            f"{' '.join(n.op for n in nodes)[:60]} {shapes}"
        )


def _error(sample: Sample, cost: CostModel) -> float:
    """Return measured over predicted time."""
    return sample.seconds / sample.predicted(cost, known=False)


if __name__ == "__main__":
    main()
