"""The public functions: optimize a model, compile it, load or sign a compiled one, tune its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine.options import Options
from .errors import UserError, naming_packages
from .system.progress import Progress, ignore

if TYPE_CHECKING:
    from .backend.runtime.program import Program
    from .engine.optimizer import Optimized
    from .tuning.tune import Tuning


def optimize(
    model: Any,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    shapes: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    node_limit: int | None = None,
    memory_limit: int | None = None,
    disabled: Sequence[str] = (),
    schedule: str = "standard",
    precision: str = "f32",
    why_not: str | None = None,
    mapped: bool = False,
    progress: Progress | None = None,
) -> Optimized:
    """Rewrite the graph of `model` into the cheapest equal one that the rules reach.

    Args:
        model: the model, which is not changed: a path, bytes, a `ModelProto`, an `onnx_ir.Model`, a `torch.nn.Module`,
            a `torch.export.ExportedProgram` or a `torch.onnx.ONNXProgram`.
        args: positional example inputs of an `nn.Module`, on which it is exported.
        kwargs: example inputs of an `nn.Module` by name.
        dynamic_shapes: which sizes of the inputs of an `nn.Module` are free, as for `torch.export.export`.
        rules: rule files, or directories of them, used in addition to the standard library.
        std_rules: whether to use the standard library at all.
        numerics: the widest class of rules to admit: `exact`, `reassoc` or `fast`.
        shapes: sizes of symbolic input dimensions by name; the result is valid for these sizes only.
        time_limit: seconds for saturation and extraction; the best graph found by then is the result.
        node_limit: the largest number of e-nodes.
        memory_limit: memory for saturation in MiB; where rules need more, the result has fewer rewrites, and a
            warning says so.
        disabled: names of rules to leave out.
        schedule: the schedule to run, one of those in the rule files.
        precision: `f32`, or `bf16` or `int8` for native products of operands rounded to that where it is faster;
            `.model` stays f32. `rewrite MODEL --precision bf16` reports the error of the results.
        why_not: a rule to explain: `.why_not` of the result shows where it came closest to matching, and what was
            missing there.
        mapped: whether to leave large constants in the model's file, mapped into memory: the file must then not
            change while the result is in use.
        progress: called with the name of a stage and figures about it.

    Returns:
        A result with `.model` (a `ModelProto` at the input's opset), `.report` and `.explain(node)`.

    Raises:
        rewrite.errors.UserError: the model or a rule file cannot be used.
    """
    with naming_packages("optimizing a model"):
        from .engine.optimizer import optimize as optimize_model
        from .frontends.sources import as_source

    options = Options.of(
        rules=rules, std_rules=std_rules, numerics=numerics, shapes=shapes, time_limit=time_limit,
        node_limit=node_limit, memory_limit=memory_limit, disabled=disabled, schedule=schedule,
        precision=precision, why_not=why_not, mapped=mapped,
    )  # fmt: skip
    return optimize_model(as_source(model, args, kwargs, dynamic_shapes), options, progress)


def compile(
    model: Any,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int | None = None,
    target: str = "native",
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    precision: str = "f32",
    shapes: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    node_limit: int | None = None,
    measure: bool = False,
    progress: Progress | None = None,
) -> Program:
    """Optimize `model` and compile it to native code.

    The program of a model is cached for the user, and loaded from the cache the next time, except for a `ModelProto`.

    Args:
        model: as for `optimize`, like the arguments that are not listed here.
        threads: threads of one run; by default all cores that this process may use.
        target: the CPUs to compile for: `native` (this one), `avx512`, `avx2`, `portable`, or several separated by
            commas, all of which `program.save` writes; the best one that this CPU supports is run.
        measure: whether to time several graphs of the model and take the fastest (docs/tuning.md), which compiles each.
            It is recorded: later compiles of the same model with the same options take it.

    Returns:
        A program: `.run({name: array})` returns a dict of output arrays.

    Raises:
        rewrite.errors.UserError: the model or a rule file cannot be used, or there is no C compiler.
    """
    with naming_packages("compiling a model"):
        from .backend.compile_model import compile_model
        from .frontends.sources import as_source

    options = Options.of(
        rules=rules, std_rules=std_rules, numerics=numerics, precision=precision, shapes=shapes,
        time_limit=time_limit, node_limit=node_limit,
    )  # fmt: skip
    source = as_source(model, args, kwargs, dynamic_shapes)
    if measure:
        options = _measured(source, options, threads, target, progress)
    return compile_model(source, options, threads=threads, target=target, progress=progress or ignore)


def tune(
    model: Any,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    seconds: float = 300.0,
    threads: int | None = None,
    target: str = "native",
    rules: Sequence[str | PathLike[str]] = (),
    std_rules: bool = True,
    numerics: str = "reassoc",
    precision: str = "f32",
    shapes: Mapping[str, int] | None = None,
    search: str | None = None,
    workers: int = 0,
    scheduler: str = "",
    seed: int = 0,
    plans: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Search schedules for the kernels of `model` by measurement, and record those that are faster.

    Every later compile on this machine uses the records, for any model with the same kernels (docs/tuning.md).

    Args:
        model: as for `compile`, like the arguments that are not listed here.
        seconds: how long to search; compiling and comparing the whole model come on top.
        threads: threads of one run; records hold for this number.
        target: the CPU to tune for, which this one must be.
        search: how schedules are searched: "guided" (by a learned model), "evolution", "annealing", "tpe", "random" or
            "grid". By default "guided" where LightGBM is installed, else "evolution".
        workers: build candidates in as many local processes (extra `tune`); a script must then be safe to import.
        scheduler: address of a Dask scheduler (`tcp://host:port`) whose workers build candidates instead.
        plans: whether to choose among several graphs of the model by measurement first, as `compile(measure=True)`.
        seed: of the search. Measurements differ from run to run, and so does what is found.

    Returns:
        A result with `.kernels` (each with its default and tuned time and its schedule), `.untuned` and `.tuned`
        (seconds of a run) and `.gain`. After Ctrl-C it has what was found by then, and `.interrupted` is set.

    Raises:
        rewrite.errors.UserError: the model cannot be used, no kernel can be tuned, or there is no C compiler.
    """
    with naming_packages("tuning a model"):
        from .backend.compile_model import with_plan
        from .backend.ir.target import costs_of, thread_count
        from .engine.optimizer import optimize_native
        from .frontends.sources import as_source
        from .tuning.tune import tune_optimized

    options = Options.of(
        rules=rules, std_rules=std_rules, numerics=numerics, precision=precision, shapes=shapes, isa=costs_of(target)
    )
    source = as_source(model, args, kwargs, dynamic_shapes)
    if plans:
        options = _measured(source, options, threads, target, progress)
    else:
        options = with_plan(source, options, thread_count(threads), target)
    optimized = optimize_native(source, options, progress)
    return tune_optimized(
        optimized, seconds=seconds, threads=threads, target=target, search=search, workers=workers,
        scheduler=scheduler, seed=seed, progress=progress or ignore,
    )  # fmt: skip


def _measured(source: Any, options: Options, threads: int | None, target: str, progress: Progress | None) -> Options:
    """Return the options with the plan that is fastest by measurement."""
    from .backend.compile_model import recorded
    from .backend.ir.target import thread_count
    from .tuning.plan_choice import measured_plan

    return measured_plan(source, options, thread_count(threads), target, recorded(), progress or ignore)[0]


def load(
    bundle: str | PathLike[str], *, threads: int | None = None, trusted: Sequence[str | PathLike[str]] | None = None
) -> Program:
    """Load a bundle that `rewrite MODEL` wrote. `threads` of one run default to those that it was compiled for.

    With `trusted`, files of public Ed25519 keys, only a bundle that one of them signed is loaded. The default are the
    keys in `$REWRITE_TRUSTED_KEYS`; if there are none, every bundle is loaded.

    Raises:
        rewrite.errors.UserError: not a bundle, damaged, made for another kind of machine, or not signed by such a key.
    """
    from .backend.bundle.load_bundle import load as load_program
    from .backend.bundle.signature import trusted_keys

    keys = trusted_keys() if trusted is None else [Path(key) for key in trusted]
    if trusted is not None and not keys:
        raise UserError("no key is trusted", hint="Name a file of a public key, or leave `trusted` out.")
    with naming_packages("this bundle"):  # types that NumPy lacks
        return load_program(Path(bundle), threads=threads, trusted=keys)


def sign(bundle: str | PathLike[str], key: str | PathLike[str]) -> int:
    """Sign a bundle with the private Ed25519 key in a file; return the number of files that are signed.

    Raises:
        rewrite.errors.UserError: not a bundle, no such key, or a key with a passphrase.
    """
    from .backend.bundle import signature
    from .backend.bundle.load_bundle import read_manifest

    read_manifest(Path(bundle))
    return signature.sign(Path(bundle), Path(key))
