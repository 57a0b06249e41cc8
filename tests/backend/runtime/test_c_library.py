"""The C library: the same results as from Python, and an error for everything that can be wrong."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from rewrite.backend.bundle import c_bundle
from rewrite.backend.bundle.c_bundle import SOURCES, add_c
from rewrite.backend.bundle.save_bundle import save
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir import dim_program
from rewrite.backend.ir.kernel_graph import Shape
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.backend.runtime.program import Program
from rewrite.benchmarks import harness
from rewrite.engine import optimizer
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.dim_expr import FUNCTIONS
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.engine.onnx_io import importer
from rewrite.engine.verification import random_inputs
from rewrite.errors import UserError
from rewrite.tests.fuzz import graphs as random_graphs

from .. import models
from ..planning import test_guarded_branches, test_shape_versions
from .c_program import CError, CProgram, tensors
from .test_program import branches

Array = NDArray[Any]
Feeds = Mapping[str, Array]
RNG = np.random.default_rng(3)
EXAMPLE = SOURCES.parents[2] / "examples" / "run_bundle.c"
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
(INVALID, NO_BUNDLE, DAMAGED, VERSION, CPU, UNSUPPORTED) = range(1, 7)


def saved(program: Program, path: Path) -> Path:
    assert add_c(program.save(path)) == ""
    return path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(compile_graph(models.long_chain(), threads=2), tmp_path_factory.mktemp("c") / "chain.rewrite")


@pytest.fixture
def copy(chain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(chain, tmp_path / "chain.rewrite"))


def agree(program: Program, bundle: Path, *feeds: Feeds, threads: int = 0) -> None:
    """Compare all outputs, bit by bit; twice, because the second run finds its layout in the cache."""
    found = CProgram(bundle, threads)
    try:
        for given in (*feeds, *feeds):
            wanted = program.run(dict(given))
            got = found.run(given)
            assert list(got) == list(wanted)
            for name, array in wanted.items():
                np.testing.assert_array_equal(got[name], array)
                assert got[name].dtype == array.dtype
    finally:
        found.close()


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_free_sizes(chain: Path, threads: int) -> None:
    program = compile_graph(models.long_chain(), threads=threads)
    feeds = [{"v0": RNG.standard_normal((n, 64), np.float32)} for n in (64, 1, 3, 0, 500)]
    agree(program, chain, *feeds, threads=threads)


def test_more_sizes_than_layouts_are_cached(chain: Path) -> None:
    program = compile_graph(models.long_chain(), threads=1)
    agree(program, chain, *({"v0": RNG.standard_normal((n, 64), np.float32)} for n in range(40)), threads=1)


def test_versions_by_size(tmp_path: Path) -> None:
    text = """
    agraph (float[N, 5] x) => (float[N, 5] y) {
        one = Constant<value_int = 1>()
        n = Shape<start = 0, end = 1>(x)
        is = Equal(n, one)
        y = If(is) <
            then_branch = yes () => (a) { a = Softmax(x) },
            else_branch = no () => (b) { e = Exp(x)  b = Softmax(e) }
        >
    }"""
    program = test_guarded_branches.compiled(text)
    assert len(program.plan.versions) == 2
    feeds = [{"x": RNG.standard_normal((n, 5)).astype(np.float32)} for n in (1, 4, 2)]
    agree(program, saved(program, tmp_path / "v.rewrite"), *feeds)


def test_sizes_are_computed_as_in_python(tmp_path: Path) -> None:
    """Every function of dims, as the shape of an output."""
    assert set(dim_program._FUNCTIONS) == {*FUNCTIONS, "floordiv"}
    dims = ["N*N - 2*N + 7", "(N + 1)//3 + M//(N + 2)", "max(N, M, 3)", "min(N, 5) + bcast(N, M)", "same(N, M)"]
    dims += ["(3 - N)//2", "truncdiv(3 - N, 2)"]
    x, y = Node("Relu", ("x",), ("r",), name="r"), np.zeros((2, 3), np.float32)
    graph = harness.make_graph([x], {"x": y}, outputs=["r"], symbolic_shapes={"x": ("N", "M")})
    plan = compile_graph(graph, threads=1).plan
    shape = Shape("s", tuple(map(parse, dims)))
    kind = TensorType(DType.I64, (len(dims),))
    whole = replace(plan, items=(*plan.items, shape), outputs=("r", "s"), types={**plan.types, "s": kind})
    path = save([(make_target("native"), whole)], tmp_path / "s.rewrite", threads=1)
    assert add_c(path) == ""
    found = CProgram(path)
    for n, m in ((4, 4), (0, 0), (1, 1), (9, 9)):
        got = found.run({"x": np.zeros((n, m), np.float32)})["s"]
        assert got.tolist() == [symbolic.evaluate(parse(dim), {"N": n, "M": m}) for dim in dims]
    with pytest.raises(CError, match="sizes that must be equal are not"):
        found.run({"x": np.zeros((1, 3), np.float32)})
    with pytest.raises(CError, match="sizes cannot be broadcast together"):
        found.run({"x": np.zeros((2, 3), np.float32)})
    found.close()


def test_operands_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    node = Node("Concat", ("x", "y"), ("z",), {"axis": 1}, name="join")
    x = np.zeros((2, 3), np.float32)
    shapes = {"x": ("N", 3), "y": ("M", 3)}
    graph = harness.make_graph([node], {"x": x, "y": x}, outputs=["z"], symbolic_shapes=shapes)
    path = save([(make_target("native"), compile_graph(graph, threads=1).plan)], tmp_path / "j.rewrite", threads=1)
    assert add_c(path) == ""
    found = CProgram(path)
    assert found.run({"x": x, "y": x})["z"].shape == (2, 6)
    with pytest.raises(CError, match=r"do not fit together: node 'join' \(Concat\): axis 0: N is not M"):
        found.run({"x": x, "y": x[:1]})
    found.close()


def test_outputs_of_unknown_rank_are_refused(tmp_path: Path) -> None:
    program = test_shape_versions.compiled(test_shape_versions.squeezed())
    assert add_c(program.save(tmp_path / "v.rewrite")) == "'y' is a tensor of unknown rank or element type"


@pytest.mark.parametrize("text", [test_guarded_branches.SIMPLE, test_guarded_branches.NESTED], ids=["one", "nested"])
@pytest.mark.parametrize("threads", [1, 2])
def test_conditions_on_data(tmp_path: Path, text: str, threads: int) -> None:
    program = test_guarded_branches.compiled(text, threads)
    bundle = saved(program, tmp_path / "c.rewrite")
    for answers in itertools.product((False, True), repeat=2):
        given = iter(answers)
        feeds = {}
        for port in program.inputs:
            shape = tuple(d if isinstance(d, int) else 4 for d in port.shape or ())
            drawn = RNG.standard_normal(shape).astype(np.float32)
            feeds[port.name] = np.full(shape, next(given)) if port.dtype is DType.BOOL else drawn
        agree(program, bundle, feeds, threads=threads)


def test_outputs_that_are_inputs_constants_and_parts(tmp_path: Path) -> None:
    graph = harness.make_graph(
        [
            Node("Split", ("x",), ("a", "b"), {"axis": 0, "num_outputs": 2}, name="split"),
            Node("Neg", ("x",), ("n",), name="neg"),
        ],
        {"x": np.zeros((4, 6), np.float32)},
        constants={"c": models.B},
        outputs=["a", "b", "n"],
    )
    graph.outputs = ("a", "x", "b", "c", "n")
    program = compile_graph(graph, threads=1)
    agree(program, saved(program, tmp_path / "p.rewrite"), {"x": RNG.standard_normal((4, 6), np.float32)})


def test_an_input_with_a_default(tmp_path: Path) -> None:
    x = np.ones(3, np.float32)
    graph = harness.make_graph([Node("Add", ("x", "c"), ("y",), name="n")], {"x": x, "c": x}, outputs=["y"])
    graph.defaults = {"c": Constant(x * 2)}
    bundle = saved(compile_graph(graph), tmp_path / "d.rewrite")
    found = CProgram(bundle)
    assert [port.optional for port in found.inputs] == [0, 1]
    assert found.run({"x": x})["y"].tolist() == [3.0, 3.0, 3.0]
    assert found.run({"x": x, "c": x})["y"].tolist() == [2.0, 2.0, 2.0]
    found.close()


@pytest.mark.parametrize("seed", range(200, 208))
def test_random_graphs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite.engine.saturation import saturation_process

    monkeypatch.setattr(saturation_process, "run", lambda task, progress, child: task(progress))
    model = random_graphs.make(seed)
    graph = importer.read(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = compile_graph(optimizer.optimize(model).native, threads=2)
        bundle = program.save(tmp_path / "r.rewrite")
    refused = add_c(bundle)
    if refused:
        with pytest.raises(CError) as error:
            CProgram(bundle)
        assert (error.value.status, error.value.message.endswith(refused)) == (UNSUPPORTED, True)
    else:
        agree(program, bundle, random_inputs.make_inputs(graph))


def test_an_output_may_be_written_over_an_input(tmp_path: Path) -> None:
    program = compile_graph(models.long_chain(), threads=1)
    found = CProgram(saved(program, tmp_path / "i.rewrite"))
    x = RNG.standard_normal((64, 64), np.float32)
    wanted = program.run({"v0": x})["v12"]
    same = x.copy()
    assert found.run({"v0": same}, {"v12": same})["v12"] is same
    np.testing.assert_array_equal(same, wanted)
    memory = np.zeros(64 * 64 + 64, np.float32)  # the output begins in the middle of the input
    memory[: 64 * 64] = x.ravel()
    part = memory[64:].reshape(64, 64)
    np.testing.assert_array_equal(found.run({"v0": memory[: 64 * 64].reshape(64, 64)}, {"v12": part})["v12"], wanted)
    found.close()


def test_arrays_may_begin_anywhere(chain: Path) -> None:
    program, found = compile_graph(models.long_chain(), threads=1), CProgram(chain, 1)
    x = RNG.standard_normal((5, 64), np.float32)
    memory, result = np.zeros(5 * 64 + 1, np.float32), np.zeros(5 * 64 + 1, np.float32)
    memory[1:] = x.ravel()
    found.run({"v0": memory[1:].reshape(5, 64)}, {"v12": result[1:].reshape(5, 64)})
    np.testing.assert_array_equal(result[1:].reshape(5, 64), program.run({"v0": x})["v12"])
    found.close()


def test_several_contexts_in_threads(chain: Path) -> None:
    program = compile_graph(models.long_chain(), threads=2)
    feeds = [{"v0": RNG.standard_normal((n, 64), np.float32)} for n in (2, 64, 300, 7)]
    wanted = [program.run(given)["v12"] for given in feeds]
    wrong: list[int] = []

    def use(number: int) -> None:
        found = CProgram(chain, 2)
        for _ in range(50):
            if not np.array_equal(found.run(feeds[number])["v12"], wanted[number]):
                wrong.append(number)
        found.close()

    threads = [threading.Thread(target=use, args=(i % 4,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_end_with_the_last_program(chain: Path) -> None:
    """In a process without others, so that threads can be counted."""
    code = """
import os, sys
import numpy as np
from pathlib import Path
from rewrite.tests.backend.runtime.c_program import CProgram
def count(): return len(os.listdir("/proc/self/task"))
before = count()
first, second = CProgram(Path(sys.argv[1]), 3), CProgram(Path(sys.argv[1]), 3)
x = np.ones((2000, 64), np.float32)
for _ in range(2):
    y = first.run({"v0": x})["v12"]
    assert count() == before + 2, count()
    first.close()
    assert count() == before + 2
    assert (second.run({"v0": x})["v12"] == y).all()
    second.close()
    assert count() == before, count()
    first, second = CProgram(Path(sys.argv[1]), 3), CProgram(Path(sys.argv[1]), 3)
"""
    subprocess.run([sys.executable, "-P", "-c", code, str(chain)], check=True, timeout=120)


# --- questions and errors ---------------------------------------------------------------------------------------------


def test_ports_are_described(chain: Path) -> None:
    found = CProgram(chain)
    [x], [y] = found.inputs, found.outputs
    assert (x.name, x.type, x.element_size, x.shape) == (b"v0", 1, 4, ("N", 64))
    assert (y.name, y.shape, y.optional) == (b"v12", ("N", 64), 0)
    assert found.output_shapes([np.empty((7, 64), np.float32)]) == [(7, 64)]
    assert found.library.rewrite_thread_count(found.program) == 2
    version = re.search(r"API_VERSION (\d+)", (chain / "include" / "rewrite.h").read_text())
    assert version
    assert found.library.rewrite_api_version() == int(version[1])
    found.close()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 63), "dim 1 of input 'v0' is 63, the model wants 64"),
        ((3, 64, 1), "input 'v0' has rank 3, the model wants 2"),
    ],
)
def test_wrong_inputs_are_reported(chain: Path, shape: tuple[int, ...], message: str) -> None:
    found = CProgram(chain)
    with pytest.raises(CError) as error:
        found.run({"v0": np.zeros(shape, np.float32)})
    assert (error.value.status, error.value.message) == (INVALID, message)
    found.close()


def test_missing_and_small_arrays_are_reported(chain: Path) -> None:
    found = CProgram(chain)
    x = np.zeros((3, 64), np.float32)
    with pytest.raises(CError, match="input 'v0' has rank 0"):
        found.run({})
    with pytest.raises(CError, match="output 'v12' has other dims than the model: dim 0 is 3"):
        found.run({"v0": x}, {"v12": np.zeros((2, 64), np.float32)})
    with pytest.raises(CError, match="output 'v12' has other dims"):
        found.run({"v0": x}, {"v12": np.zeros((16,), np.float32)})
    (given, _), (made, _) = tensors([x]), tensors([np.zeros(16, np.float32)])
    made[0].dims = None
    with pytest.raises(CError, match="output 'v12' has 64 bytes, 768 are needed"):
        found.call("rewrite_run", found.context, given, ctypes.c_size_t(1), made, ctypes.c_size_t(1))
    found.close()


def test_a_number_of_threads_out_of_range(chain: Path) -> None:
    with pytest.raises(CError, match="threads must be 1 to 256, or 0, not 257"):
        CProgram(chain, 257)


@pytest.mark.parametrize(
    ("graph", "operators"),
    [(models.mixed, "no kernel: NonZero"), (branches, "iterate, which the C library .*: Loop .*in C")],
)
def test_models_that_need_python_are_refused(graph: Callable[[], Graph], operators: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = compile_graph(graph()).save(tmp_path / "m.rewrite")
    assert re.search(operators, add_c(bundle))
    with pytest.raises(CError, match=f"cannot run without Python: .*{operators}") as error:
        CProgram(bundle)
    assert error.value.status == UNSUPPORTED


def test_no_bundle(tmp_path: Path, chain: Path) -> None:
    library = chain / "lib" / "librewrite.so"
    with pytest.raises(CError, match="there is no such bundle") as error:
        CProgram(tmp_path / "nothing", library=library)
    assert error.value.status == NO_BUNDLE
    with pytest.raises(CError, match=r"has no plan.bin. Compile the model with --c"):
        CProgram(tmp_path, library=library)


def altered(bundle: Path, at: int, word: int) -> None:
    """Replace a word of the plan, and make its checksum right again."""
    data = bytearray((bundle / "plan.bin").read_bytes())
    data[at : at + 8] = struct.pack("<q", word)
    data[8:16] = struct.pack("<Q", zlib.crc32(data[16:]))
    (bundle / "plan.bin").write_bytes(data)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "status", "message"),
    [
        (lambda b: _flip(b / "plan.bin"), DAMAGED, "plan.bin has changed"),
        (lambda b: _flip(next(b.glob("kernels/*.so"))), DAMAGED, r"kernels/\w+.so has changed"),
        (lambda b: next(b.glob("kernels/*.so")).unlink(), DAMAGED, "No such file"),
        (lambda b: (b / "weights.bin").write_bytes(b"more"), DAMAGED, "weights.bin has changed"),
        (lambda b: (b / "plan.bin").write_bytes(b"RWPLAN"), DAMAGED, "plan.bin is not a plan"),
        (lambda b: altered(b, 16, 99), VERSION, "by version 0.1.0 of rewrite .plan 99., this library reads plan 1"),
        (lambda b: altered(b, 40, 1000), DAMAGED, "plan.bin is wrong: a number is out of range"),
    ],
)
def test_damage_is_reported(copy: Path, damage: Callable[[Path], Any], status: int, message: str) -> None:
    damage(copy)
    with pytest.raises(CError, match=message) as error:
        CProgram(copy)
    assert error.value.status == status


@pytest.mark.skipif(not runs_here(make_target("avx2")), reason="this CPU has no AVX2")
def test_the_best_variant_for_the_cpu_is_loaded(tmp_path: Path) -> None:
    bundle = saved(compile_graph(models.chain(), target="portable,avx2", threads=1), tmp_path / "t.rewrite")
    x = RNG.standard_normal((3, 8), np.float32)
    wanted = CProgram(bundle).run({"x": x})["y"]
    code = """
import sys
from pathlib import Path
from rewrite.tests.backend.runtime.c_program import CError, CProgram
try:
    CProgram(Path(sys.argv[1]))
    print("loaded")
except CError as error:
    print(error)
"""
    line = [sys.executable, "-P", "-c", code]
    limited = {**os.environ, "REWRITE_MAX_ISA": "portable"}
    done = subprocess.run([*line, str(bundle)], env=limited, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "loaded\n"
    only = saved(compile_graph(models.chain(), target="avx2", threads=1), tmp_path / "a.rewrite")
    done = subprocess.run([*line, str(only)], env=limited, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"{CPU}: ")
    assert "this CPU cannot run the bundle's kernels, which are for avx2 on x86_64" in done.stdout
    np.testing.assert_array_equal(CProgram(only).run({"x": x})["y"], wanted)


def test_a_library_that_does_not_compile_leaves_the_bundle_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = compile_graph(models.chain()).save(tmp_path / "m.rewrite")

    def fail(machine: str) -> bytes:
        raise UserError("no C compiler found")

    monkeypatch.setattr(c_bundle, "build_library", fail)
    with pytest.raises(UserError, match="no C compiler"):
        add_c(bundle)
    assert not (bundle / "plan.bin").exists()


# --- C ----------------------------------------------------------------------------------------------------------------

compiles = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def build(output: Path, *arguments: object) -> Path:
    command = [*map(str, arguments), "-o", str(output)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    return output


def run(*command: object, **env: str) -> subprocess.CompletedProcess[str]:
    line = list(map(str, command))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | env
    return subprocess.run(line, check=False, capture_output=True, text=True, timeout=240, env=clean)


@pytest.fixture(scope="module")
def example(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as its comment says to compile it, here with all warnings."""
    output = tmp_path_factory.mktemp("example") / "run_bundle"
    flags = ["-Wall", "-Wextra", "-pedantic", "-std=c99", "-I", chain / "include", "-L", chain / "lib"]
    return build(output, "cc", *flags, EXAMPLE, "-lrewrite")


@pytest.fixture(scope="module")
def line(chain: Path) -> str:
    y = compile_graph(models.long_chain(), threads=1).run({"v0": np.ones((2, 64), np.float32)})["v12"]
    return f"v12 [2,64] {y[0, 0]:.6g}\n"


@compiles
def test_the_example_runs(example: Path, chain: Path, line: str) -> None:
    done = run(example, chain, LD_LIBRARY_PATH=str(chain / "lib"))
    assert (done.returncode, done.stdout, done.stderr) == (0, line, "")
    assert run(example, chain / "lib", LD_LIBRARY_PATH=str(chain / "lib")).returncode == 2


@compiles
def test_the_example_leaks_and_overruns_nothing(chain: Path, line: str, tmp_path: Path) -> None:
    """The library as a part of the program, so that all of it is checked."""
    built = build(tmp_path / "checked", "cc", *SANITIZED, "-I", SOURCES, EXAMPLE, SOURCES / "rewrite.c", "-ldl")
    done = run(built, chain)
    assert (done.returncode, done.stdout, done.stderr) == (0, line, "")


@compiles
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no such checker")
def test_contexts_in_threads_have_no_races(chain: Path, tmp_path: Path) -> None:
    """The library and its threads are checked, kernels are not: what they write is divided by the library."""
    flags = ["-g", "-O1", "-fsanitize=thread", "-pthread", "-I", SOURCES, Path(__file__).with_name("contexts.c")]
    built = build(tmp_path / "contexts", "cc", *flags, SOURCES / "rewrite.c", "-ldl")
    done = run("setarch", "-R", built, chain)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@compiles
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
@pytest.mark.skipif(not runs_here(make_target("avx2")), reason="this CPU has no AVX2")
def test_the_example_under_valgrind(example: Path, line: str, tmp_path: Path) -> None:
    """With kernels for AVX2, because valgrind lacks AVX-512."""
    program = compile_graph(models.long_chain(), target="avx2", threads=2)
    bundle = saved(program, tmp_path / "m.rewrite")
    command = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=9"]
    done = run(*command, example, bundle, LD_LIBRARY_PATH=str(bundle / "lib"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[:2] == line.split()[:2]


@compiles
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_header_is_cpp_as_well(chain: Path, tmp_path: Path) -> None:
    source = tmp_path / "main.cpp"
    source.write_text("#include <rewrite.h>\nint main() { return rewrite_api_version() != REWRITE_API_VERSION; }\n")
    flags = ["-Wall", "-Wextra", "-pedantic", "-std=c++11", "-I", chain / "include", "-L", chain / "lib"]
    built = build(tmp_path / "main", "c++", *flags, source, "-lrewrite")
    assert run(built, LD_LIBRARY_PATH=str(chain / "lib")).returncode == 0


def test_the_library_exports_its_interface_only(chain: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    found = run("nm", "-D", "--defined-only", chain / "lib" / "librewrite.so").stdout
    declared = set(re.findall(r"\b(rewrite_\w+)\(", (chain / "include" / "rewrite.h").read_text()))
    names = {row.split()[-1] for row in found.splitlines()}
    assert names <= declared
    assert "rewrite_run" in names


@compiles
@pytest.mark.parametrize("seed", [1, 2])
def test_altered_plans_are_refused_or_safe(chain: Path, tmp_path: Path, seed: int) -> None:
    """Thousands of plans with wrong numbers and right checksums, under AddressSanitizer."""
    source = Path(__file__).with_name("fuzz_plans.c")
    built = build(tmp_path / "fuzz", "cc", *SANITIZED, "-I", SOURCES, source, "-ldl")
    done = run(built, chain, 1000, seed)
    assert done.returncode == 0, done.stderr[:3000]
    loaded, refused = map(int, re.findall(r"\d+", done.stdout))
    assert loaded + refused == 1000
    assert min(loaded, refused) > 50


def test_onnx_is_not_needed_to_describe_types() -> None:
    """The header's numbers are those of ONNX."""
    names = {"F32": "FLOAT", "U8": "UINT8", "I8": "INT8", "BOOL": "BOOL", "F16": "FLOAT16", "F64": "DOUBLE",
             "I64": "INT64", "BF16": "BFLOAT16"}  # fmt: skip
    text = (SOURCES / "rewrite.h").read_text()
    for ours, theirs in names.items():
        assert f"REWRITE_{ours} = {getattr(onnx.TensorProto, theirs)}" in text
