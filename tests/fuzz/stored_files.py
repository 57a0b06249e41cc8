"""Damage bundles and caches at random, and use them: `python -m tests.fuzz.stored_files FIRST LAST`.

`--only numbers` takes one bundle after the other and changes every number of its plan in turn, by hand as it were: the
manifest's checksum is computed again. Whatever the number, there is one error or a result, and no crash.

Each case runs in a process of its own. A damaged bundle computes what it did before, or is refused with one error.
A damaged cache costs time only: the command ends with code 0 and the same results, or with code 2 and one message.
A seed is a case; what was damaged is reported with it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import rewrite
from onnx import numpy_helper
from rewrite.backend.bundle.manifest import sealed
from rewrite.cli import app
from rewrite.errors import UserError

Arrays = dict[str, np.ndarray[Any, Any]]
PATIENCE = 120
"""Seconds that a case may take."""
NUMBERS = (0, 1, 2, 7, 63, 64, 65, 255, 4096, 2**31 - 1, 2**31, 2**32, 2**48, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
_HEAD = '<ir_version: 10, opset_import: ["": 21]>'
_TEXTS = {
    "layers": """g (float[N, 8] x) => (float y, float s)
        { h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = Softmax(r) t = Transpose(y) s = MatMul(t, h) }""",
    "loop": """g (float[4] x, int64 n) => (float y, float z)
        { c = Constant<value: tensor = bool {1}>() y, z = Loop(n, c, x) <body = step (int64 i, bool go, float[4] v) =>
            (bool on, float[4] u, float[4] k) { on = Identity(go) u = Mul(v, b) k = Exp(u) }> }""",
    "counted": """g (float[N] x) => (float y, float e) { y = NonZero(x) f = Cast<to = 1>(y) e = MatMul(f, q) }""",
}


def model(name: str) -> onnx.ModelProto:
    """Return a model of a few nodes: free sizes, a loop, or sizes that data determine."""
    rng = np.random.default_rng(0)
    found = onnx.parser.parse_model(f"{_HEAD} {_TEXTS[name]}")
    for output in found.graph.output:
        output.ClearField("type")
    shapes = {"layers": {"w": (8, 4), "b": (4,)}, "loop": {"b": (4,)}, "counted": {"q": (6, 3)}}[name]
    for constant, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        found.graph.initializer.append(numpy_helper.from_array(values, constant))
    return found


def feeds(name: str) -> Arrays:
    """Return inputs of a model."""
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    if name == "layers":
        return {"x": x}
    if name == "loop":
        return {"x": x[0, :4], "n": np.array(3)}
    return {"x": np.array([1, 0, 2, 3, 0, 4, 5, 6], np.float32)}


@dataclass(frozen=True)
class Originals:
    """Models with their bundles, the cache that compiling them filled, and the results."""

    folder: Path

    @property
    def cache(self) -> Path:
        """The cache."""
        return self.folder / "cache"

    def bundle(self, name: str) -> Path:
        """Return the bundle of a model."""
        return self.folder / f"{name}.rewrite"

    def results(self, name: str) -> Mapping[str, Any]:
        """Return what a model computes of its inputs."""
        return dict(np.load(self.folder / f"{name}.npz"))

    def make(self) -> None:
        """Write everything, in a process of its own: nothing is read before that the cases should read."""

        def work() -> None:
            os.environ["REWRITE_CACHE_DIR"] = str(self.cache)
            for name in _TEXTS:
                onnx.save(model(name), self.folder / f"{name}.onnx")
                code, text = command(str(self.folder / f"{name}.onnx"), "-o", str(self.folder / f"{name}.out.onnx"))
                assert not code, text
                found = rewrite.compile(model(name), threads=1)
                found.save(self.bundle(name))
                np.savez(self.folder / f"{name}.npz", **found.run(feeds(name)))

        if problem := in_child(work):
            raise RuntimeError(problem)


def command(*arguments: str) -> tuple[int, str]:
    """Run the command line in this process; return its exit code and what it wrote to stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            app.main(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, errors.getvalue()


def in_child(work: Callable[[], None]) -> str:
    """Run this in a child; return how it failed, empty if it did not."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        problem = ""
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(PATIENCE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                work()
        except BaseException:
            problem = traceback.format_exc()
        finally:
            os.write(write, problem.encode()[-4000:])
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as source:
        problem = source.read().decode()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return problem or (f"the process ended with {code}" if code else "")


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(rng: random.Random, root: Path) -> str:
    """Damage one file below a directory, of one of its parts; return what was done."""
    part = rng.choice(sorted(root.iterdir()))
    files = sorted(p for p in ([part] if part.is_file() else part.rglob("*")) if p.is_file())
    if not files:
        return "nothing"
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data)) if data else 0
    size = rng.choice((1, 8, 64, 4096))
    kinds = {
        "bits": lambda: _bits(rng, data),
        "number": lambda: _number(rng, data),
        "cut off": lambda: data.__delitem__(slice(at, None)),
        "emptied": data.clear,
        "extended": lambda: data.extend(rng.randbytes(size)),
        "removed inside": lambda: data.__delitem__(slice(at, at + size)),
        "zeroed": lambda: data.__setitem__(slice(at, at + size), bytes(len(data[at : at + size]))),
        "copied inside": lambda: data.__setitem__(slice(at, at + size), data[: len(data[at : at + size])]),
    }
    whole = ("missing", "swapped", "a directory")
    kind = rng.choice((*kinds, "bits", "number", "number", *whole))
    if kind in kinds:
        kinds[kind]()
        path.write_bytes(data)
    elif kind == "swapped":
        other = rng.choice(files)
        contents = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(contents)
        kind += f" with {other.name}"
    else:
        path.unlink()
        if kind == "a directory":
            path.mkdir(mode=0o700)
    return f"{path.relative_to(root)}: {kind}"


def _bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 3, 20)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(rng: random.Random, data: bytearray) -> None:
    """Change a number in a text."""
    found = [m.span() for m in re.finditer(rb"-?\d+", data)]
    if not found:
        return _bits(rng, data)
    start, end = rng.choice(found)
    near = int(data[start:end]) + rng.choice((-1, 1)) if end - start < 20 else 0
    data[start:end] = str(rng.choice((near, near, rng.choice(NUMBERS), -rng.choice(NUMBERS)))).encode()
    return None


# --- numbers changed on purpose --------------------------------------------------------------------------------------

CHANGES: tuple[Callable[[int], int], ...] = (
    lambda n: 0, lambda n: -1, lambda n: n + 1, lambda n: max(0, n - 1), lambda n: 2 * n + 2, lambda n: 2**31,
    lambda n: 2**40, lambda n: 2**63,
)  # fmt: skip
_SIZES = {
    "dims", "shape", "scratch", "threads", "only", "offset", "offsets", "iterations", "most", "excess", "requirements"
}  # fmt: skip
"""Keys of the manifest below which a text is a dim."""
_OTHERS = {"files", "version", "params", "origins"}
"""Keys below which numbers are no numbers of the plan: kernel parameters are those of the machine code."""


def numbers(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], int | str]]:
    """Yield the numbers of a manifest and the texts that are dims, each with its path."""
    if _OTHERS.intersection(path):
        return
    is_dim = isinstance(value, str) and _SIZES.intersection(path) and re.search(r"(?<!\w)\d", value)
    if is_dim or (isinstance(value, int) and not isinstance(value, bool)):
        yield path, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(part, (*path, key))


def changed(manifest: Mapping[str, Any], path: Sequence[str | int], change: Callable[[int], int]) -> bytes:
    """Return a manifest with one number changed, sealed again."""
    found = json.loads(json.dumps(manifest))
    place = found
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    new = re.sub(r"(?<!\w)\d+", lambda m: str(change(int(m[0]))), old, count=1) if isinstance(old, str) else change(old)
    place[path[-1]] = new
    return sealed(found)


def number_cases(originals: Originals, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield manifests of a bundle with one number changed, and what was changed."""
    manifest = json.loads((originals.bundle(name) / "manifest.json").read_text())
    for path, old in numbers(manifest):
        for change in CHANGES:
            text = changed(manifest, path, change)
            yield f"{name}: {'.'.join(map(str, path))} = {old}, change {CHANGES.index(change)}", text


def number_case(originals: Originals, name: str, text: bytes) -> str:
    """Load a bundle with another manifest and run it; return what was wrong (empty: nothing)."""

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        with contextlib.suppress(UserError, MemoryError):
            rewrite.load(folder, threads=1).run(feeds(name))

    with tempfile.TemporaryDirectory(prefix="stored-") as temporary:
        folder = Path(temporary) / "m.rewrite"
        shutil.copytree(originals.bundle(name), folder)
        (folder / "manifest.json").write_bytes(text)
        return in_child(work)


# --- cases ------------------------------------------------------------------------------------------------------------


def bundle_case(originals: Originals, name: str, folder: Path) -> None:
    """Load a damaged bundle and run it. Raises AssertionError for a wrong result, and whatever else is wrong."""
    try:
        found = rewrite.load(folder, threads=1).run(feeds(name))
    except UserError:
        return
    _same(found, originals.results(name))


def cache_case(originals: Originals, name: str, folder: Path, cache: Path) -> None:
    """Compile a model with a damaged cache, by the command and by the function, and run the results."""
    os.environ["REWRITE_CACHE_DIR"] = str(cache)
    target = folder / "out.onnx"
    code, text = command(str(originals.folder / f"{name}.onnx"), "-o", str(target))
    assert code in (0, 2), f"exit code {code}: {text}"
    assert code == 0 or text.count("error:") == 1, text
    if not code:
        assert target.read_bytes() == (originals.folder / f"{name}.out.onnx").read_bytes(), "another model was written"
    with contextlib.suppress(UserError):
        _same(rewrite.compile(model(name), threads=1).run(feeds(name)), originals.results(name))


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert list(found) == list(wanted)
    for output, array in wanted.items():
        np.testing.assert_array_equal(found[output], array, strict=True)


def case(originals: Originals, seed: int, kinds: str) -> tuple[str, str]:
    """Run the case of a seed; return what was damaged, and what was wrong (empty: nothing)."""
    rng = random.Random(seed)
    name = rng.choice(sorted(_TEXTS))
    caches = kinds == "caches" or (kinds == "all" and seed % 8 == 0)
    with tempfile.TemporaryDirectory(prefix="stored-") as temporary:
        folder = Path(temporary)
        root = folder / "copy"
        shutil.copytree(originals.cache if caches else originals.bundle(name), root)
        if caches and rng.random() < 0.7:  # else they answer before anything else is read
            shutil.rmtree(root / "programs")
        done = "; ".join(damage(rng, root) for _ in range(rng.choice((1, 1, 2, 4))))
        if caches:
            problem = in_child(lambda: cache_case(originals, name, folder, root))
        else:
            problem = in_child(lambda: bundle_case(originals, name, root))
    return f"{'cache' if caches else 'bundle'} of {name}: {done}", problem


def run(first: int, last: int, kinds: str, report: Callable[[str], object]) -> int:
    """Run the cases of some seeds; return how many were wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="stored-") as folder:
        originals = Originals(Path(folder))
        originals.make()
        if kinds == "numbers":
            cases = ((name, *case) for name in sorted(_TEXTS) for case in number_cases(originals, name))
            for name, done, text in itertools.islice(cases, first, last):
                if problem := number_case(originals, name, text):
                    wrong += 1
                    report(f"{done}\n{problem}\n")
            return wrong
        for seed in range(first, last):
            done, problem = case(originals, seed, kinds)
            if problem:
                wrong += 1
                report(f"{seed}: {done}\n{problem}\n")
    return wrong


def main() -> None:
    """Run the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.stored_files", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument(
        "--only",
        choices=("bundles", "caches", "numbers"),
        default="all",
        help="what is damaged (default: bundles, caches)",
    )
    given = parser.parse_args()
    started = time.monotonic()
    wrong = run(given.first, given.last, given.only, sys.stdout.write)
    seconds = time.monotonic() - started
    sys.stdout.write(f"{given.last - given.first} cases, of which {wrong} were wrong, in {seconds:.0f} s\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
