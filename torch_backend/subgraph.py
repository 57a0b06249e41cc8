"""A compiled graph, as PyTorch calls it: arguments in, outputs out.

The program is made at the first call, when the weights are known. Weights are arguments as well: PyTorch may call one
graph for several modules of a class, and a module's weights may change. So each call compares them with those of the
program, by identity, address and version, and another program is made for others."""

from __future__ import annotations

import itertools
import operator
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..engine.verification.compare import compare
from ..errors import RewriteError
from ..frontends.torch_models import root_cause
from .lowering import Lowered, Unsupported, lower
from .settings import LOG, Settings, warn_once
from .tensors import as_array, as_tensor

if TYPE_CHECKING:
    from ..backend.runtime.program import Program

_MOST_CHANGES = 3
"""Changes of a weight after which it becomes an input of the program, whose products are slower."""
_MOST_MODULES = 64
"""Sets of weights that get a program of their own."""

_version = operator.attrgetter("_version")


class Subgraph:
    """A graph with its programs. Calls take a list of arguments, which AOTAutograd calls boxed."""

    _boxed_call = True

    def __init__(self, graph: torch.fx.GraphModule, settings: Settings, mutated: frozenset[int]) -> None:
        self._graph, self._settings, self._mutated = graph, settings, mutated
        self._lock = threading.Lock()
        self._static: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self._numbers: tuple[int, ...] = ()
        self._programs: dict[tuple[int, ...], WeightedProgram] = {}
        self._latest: WeightedProgram | None = None
        self._changes: Counter[int] = Counter()
        self._eager = False

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Run the graph; return its outputs."""
        if self._eager:
            return self._run_eagerly(args)
        if self._latest is not None and (outputs := self._latest.run_directly(args)) is not None:
            return outputs
        if self._static is not None:
            static = self._static(args)
            found = self._programs.get(tuple(map(id, static)))
            if found is not None and found.is_current(static):
                self._latest = found
                return found.run(args)
        with self._lock:
            return self._make(args)

    def _run_eagerly(self, args: Sequence[Any]) -> Sequence[Any]:
        outputs: Sequence[Any] = self._graph.forward(*args)
        return outputs

    def _make(self, args: list[Any]) -> Sequence[Any]:
        """Make the program for these weights, and run it; run eagerly, with a warning, if there is none."""
        if self._static is None:
            self._choose_weights(args)
        assert self._static is not None
        static = self._static(args)
        key = tuple(map(id, static))
        found = self._programs.get(key)
        if found is not None:
            if found.is_current(static):  # another thread made it
                return found.run(args)
            self._changes.update(self._numbers[at] for at in found.changed(static))
        if len(self._programs) >= _MOST_MODULES:
            self._changes.update(dict.fromkeys(self._numbers, _MOST_CHANGES))
        if any(self._changes[number] >= _MOST_CHANGES for number in self._numbers):
            LOG.info("weights that change often become inputs")
            self._choose_weights(args)
            return self._make(args)
        try:
            with torch.inference_mode(False), torch.no_grad():
                made = self._compiled(args)
            expected = self._run_eagerly(args) if self._settings.verify or made is None else None
            if made is None:
                self._eager = True
                return expected or ()
            outputs = made.run(args)
            if expected is not None:
                _compare(expected, outputs, self._settings.options.precision)
        except Exception as error:  # the exporter's errors have no common base class, and eager mode is always right
            self._eager = True
            LOG.debug("a graph was not compiled", exc_info=error)
            reason = root_cause(error)
            ours = isinstance(reason, Unsupported | RewriteError)
            text = str(reason) if ours else f"{type(reason).__name__}: {reason}"
            warn_once(f"a graph of {self._size()} operators runs in eager mode: {text}")
            return self._run_eagerly(args)
        self._programs[key] = self._latest = made
        return outputs

    def _size(self) -> int:
        return sum(node.op == "call_function" for node in self._graph.graph.nodes)

    def _choose_weights(self, args: Sequence[Any]) -> None:
        """Decide which arguments are weights: parameters and buffers that the graph does not change."""
        self._programs, self._latest = {}, None
        self._numbers = tuple(
            number
            for number, value in enumerate(args)
            if isinstance(value, torch.Tensor)
            and (isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type"))
            and number not in self._mutated
            and self._changes[number] < _MOST_CHANGES
        )
        numbers = self._numbers
        self._static = operator.itemgetter(*numbers) if len(numbers) > 1 else lambda args: [args[n] for n in numbers]

    def _compiled(self, args: Sequence[Any]) -> WeightedProgram | None:
        """Return the program for these weights; None if the graph computes nothing."""
        from ..backend.compile_model import compile_model

        weights = {number: args[number] for number in self._numbers}
        lowered = lower(self._graph, weights)
        if lowered is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators without a kernel, which the next lines handle
            program = compile_model(lowered.model, self._settings.options, threads=self._settings.threads)
        if names := program.fallbacks():
            raise Unsupported(f"no kernel for {', '.join(sorted(names))}")
        return WeightedProgram(lowered, program, weights, args)


class WeightedProgram:
    """A program, and the weights that it was made for."""

    def __init__(
        self, lowered: Lowered, program: Program, weights: Mapping[int, torch.Tensor], args: Sequence[Any]
    ) -> None:
        self._tracked = not any(weight.is_inference() for weight in weights.values())
        self._weights = list(weights.values())
        self._state = self._state_of(self._weights)
        self._program, self._epilogue = program, lowered.epilogue
        by_name = {item.name: item for item in lowered.inputs}
        self._inputs = [by_name[port.name] for port in program.inputs]
        names = [port.name for port in program.outputs]
        places = [names.index(name) for name in lowered.outputs]
        self._places = None if places == list(range(len(names))) else places
        self._direct: Callable[[Sequence[Any]], list[Any] | None] | None = None
        if all(item.is_tensor for item in self._inputs):
            versions = map(_version, self._weights) if self._tracked else itertools.repeat(None)
            rows = zip(weights, self._weights, self._state, versions, strict=False)
            order = {item: item.order or tuple(range(args[item.argument].dim())) for item in self._inputs}
            inputs = [(item.argument, type(args[item.argument]), order[item]) for item in self._inputs]
            self._direct = program.on_tensors(list(rows), inputs, torch.from_numpy)

    def _state_of(self, weights: Sequence[torch.Tensor]) -> list[Any]:
        """Return what changes with the contents of weights. Tensors made in inference mode have no version."""
        return [*map(torch.Tensor.data_ptr, weights), *(map(_version, weights) if self._tracked else ())]

    def is_current(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether the weights, which are the same objects, are unchanged."""
        return self._state_of(weights) == self._state

    def changed(self, weights: Sequence[torch.Tensor]) -> set[int]:
        """Return the positions of the weights that have changed."""
        state = zip(self._state_of(weights), self._state, strict=True)
        return {at % len(weights) for at, (new, old) in enumerate(state) if new != old}

    def run_directly(self, args: list[Any]) -> Sequence[Any] | None:
        """Return what `run` does, if the weights are unchanged and the inputs have the sizes of an earlier run."""
        found = None if self._direct is None else self._direct(args)
        return None if found is None else self._finish(found, args)

    def run(self, args: Sequence[Any]) -> Sequence[Any]:
        """Run the program, then the epilogue. Outputs are tensors in memory of their own."""
        values = []
        for item in self._inputs:
            value = args[item.argument]
            if not item.is_tensor:
                values.append(np.array(value, np.int64))
                continue
            values.append(as_array(value if item.order is None else value.permute(item.order)))
        return self._finish([as_tensor(array) for array in self._program.call(values)], args)

    def _finish(self, found: list[Any], args: Sequence[Any]) -> Sequence[Any]:
        if self._places is not None:
            found = [found[place] for place in self._places]
        return found if self._epilogue is None else self._epilogue(*found, *args)


def _compare(expected: Sequence[Any], found: Sequence[Any], precision: str) -> None:
    """Raise `Unsupported` if the first results of a program are not those of eager mode.

    The tolerance is wide, since eager mode rounds 16-bit floats after each operator: it detects wrong translations."""
    numerics = "fast" if precision == "f32" else precision
    for number, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(wanted, torch.Tensor):
            continue
        strides = zip(wanted.shape, wanted.stride(), got.stride(), strict=True)
        if wanted.numel() and any(size > 1 and a != b for size, a, b in strides):
            raise Unsupported(f"strides {got.stride()} of output {number} instead of {wanted.stride()}")
        difference = compare(as_array(wanted), as_array(got), numerics)
        if difference.problem:
            raise Unsupported(f"output {number} differs from eager mode: {difference.problem}")
