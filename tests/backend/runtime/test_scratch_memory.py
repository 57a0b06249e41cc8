"""Memory of runs: scratch memory, checked by the compiler while kernels run, and its pages."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rewrite

_NATIVE = Path(rewrite.__file__).parent / "backend" / "runtime" / "native"
_HOLD = """
#include "frame.h"
size_t hold(size_t size, size_t *address) {
  frame_t frame;
  frame_make(&frame, 1);
  frame_hold(&frame, 0, size);
  const size_t room = frame.sizes[0];
  *address = (size_t)frame.bases[0];
  frame_free(&frame);
  return room;
}
"""
_TAKE = """
#include <malloc.h>
#include <string.h>
#include "memory.h"
long stale(size_t size) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  char *const before = malloc(3 * size);
  memset(before, 1, 3 * size);
  free(before);
  char *const block = memory_take(size);
  if (block < before || block >= before + 2 * size) return -1;
  long count = 0;
  for (size_t i = 0; i < size; i += MEMORY_PAGE) count += block[i];
  free(block);
  return count;
}
"""
_WITHOUT_KEYS = """
import numpy, onnx.parser
from rewrite.backend.compile_graph import compile_graph
from rewrite.engine.onnx_io.importer import read
model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 23]>
    g (float[1,2,S,16] q, float[1,2,T,16] k, float[1,2,T,16] v) => (float[1,2,S,16] y) { y = Attention(q, k, v) }''')
program = compile_graph(read(model), threads=1)
q, none = numpy.ones((1, 2, 3, 16), numpy.float32), numpy.ones((1, 2, 0, 16), numpy.float32)
for _ in range(3):
    assert not program.run({"q": q, "k": none, "v": none})["y"].any()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="gcc checks it on Linux")
def test_scratch_memory_of_no_bytes_has_an_address(tmp_path: Path) -> None:
    """Without keys there are no scores, and the kernel clears them by `memset`, which admits no null pointer."""
    checked = {"CC": "gcc -fsanitize=nonnull-attribute -fno-sanitize-recover=all", "REWRITE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_KEYS], env=os.environ | checked, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="compiled with gcc")
@pytest.mark.parametrize(
    ("size", "room"),
    [(0, 0), (0x3FFFF, 0x3FFFF), (0x40000, 2 << 20), (2 << 20, 2 << 20), ((2 << 20) + 1, 4 << 20)],
)
def test_all_but_small_buffers_take_whole_huge_pages(size: int, room: int, tmp_path: Path) -> None:
    (tmp_path / "hold.c").write_text(_HOLD)
    command = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I", str(_NATIVE), "hold.c", "-o", "hold.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    hold = ctypes.CDLL(str(tmp_path / "hold.so")).hold
    hold.restype, address = ctypes.c_size_t, ctypes.c_size_t()
    assert hold(ctypes.c_size_t(size), ctypes.byref(address)) == room
    assert address.value % (2 << 20 if room >= 2 << 20 else 64) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="compiled with gcc")
@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
def test_small_pages_that_malloc_has_are_given_back_for_huge_ones(size: int, tmp_path: Path) -> None:
    """Pages in use stay small, so weights where an earlier program had lain took up to 1.4 times as long to read."""
    (tmp_path / "take.c").write_text(_TAKE)
    command = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-I", str(_NATIVE), "take.c", "-o", "take.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    script = f"import ctypes; print(ctypes.CDLL('./take.so').stale(ctypes.c_size_t({size})))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == (0 if size >= 2 << 20 else size // 4096)


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="gcc checks it on Linux")
def test_buffers_are_exact_where_memory_is_checked(tmp_path: Path) -> None:
    """The runtime sees that the process has gcc's checker, though it is compiled without."""
    asked = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    found = asked.stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip("gcc has no checker")
    script = """
from rewrite.backend.runtime.native import executor
frame = executor.Frame(2)
frame.reserve(1, 300_000)
frame.memory(1, 0, 300_000)
try:
    frame.memory(1, 0, 300_001)
except IndexError:
    print("exact")
"""
    checked = {"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0"}
    for more, wanted in ((checked, "exact\n"), ({}, "")):
        done = subprocess.run([sys.executable, "-c", script], env=os.environ | more, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr
