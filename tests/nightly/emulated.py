"""Tests on 64-bit Arm, emulated: this package and its dependencies in a Python for Arm that QEMU runs.

    python -m tests.nightly.emulated [PYTEST ARGUMENTS]

Makes the environment in `build/aarch64` on the first run: Python from Debian's packages, dependencies from the package
index, extensions and kernels by the cross compiler. Needs Debian or a descendant of it, with the packages qemu-user and
gcc-aarch64-linux-gnu. Emulated code is some 20 times slower, so without arguments only the tests of kernels run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "aarch64"
SYSTEM, SITE, TREE, STATE = (FOLDER / name for name in ("system", "site", "tree", "apt"))
PYTHON = FOLDER / "bin" / "python"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
VERSION = "python3.11"  # of Debian 12
TESTS = ("tests/backend/kernels", "tests/backend/test_doubles.py", "tests/backend/test_floats.py")

# newer ones end with a segmentation fault under QEMU 7.2, before their first line of output
PEER = "onnxruntime==1.27.0"
WHEELS = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 34)]
TRIES = 4  # of a test file
UNNEEDED = ("dpkg", "debconf", "tar", "perl-base")  # what only maintainer scripts use


def main(arguments: Sequence[str]) -> int:
    """Make the environment if it is not there, build the extensions, run pytest; return its exit code."""
    missing = [tool for tool in (COMPILER, EMULATOR, "apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        sys.exit(f"not found: {', '.join(missing)} (Debian: apt install qemu-user gcc-aarch64-linux-gnu)")
    if not (SITE / "pytest").is_dir():
        shutil.rmtree(FOLDER, ignore_errors=True)
        make_system()
        make_site()
    make_tree()
    environment = {
        **os.environ,
        "CC": COMPILER,
        "PYTHONPATH": f"{TREE}:{SITE}",
        "XDG_CACHE_HOME": str(FOLDER / "cache"),
    }
    if arguments:
        return run_pytest(arguments, environment)
    files = [file for test in TESTS for file in ([test] if test.endswith(".py") else find_tests(test))]
    return max(run_pytest(["-q", file], environment) for file in files)


def find_tests(folder: str) -> list[str]:
    """Return the test files of a folder of the checkout."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / folder).glob("test_*.py"))


def run_pytest(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return the exit code of pytest; run it again if QEMU hangs.

    A child that a process with threads forks can wait in QEMU for a lock that nobody holds. The children are
    compilers, and what they made before is in the cache, so another try gets further."""
    options = ["-p", "no:cacheprovider", "--timeout=400", "--timeout-method=thread"]
    command = [str(PYTHON), "-m", "pytest", *options, *arguments]
    for _ in range(TRIES):
        done = subprocess.run(
            command, cwd=TREE / "rewrite", env=environment, stderr=subprocess.PIPE, text=True, check=False
        )
        if "+ Timeout +" not in done.stderr:
            return done.returncode
    sys.exit(f"{' '.join(arguments)}: no end after {TRIES} tries")


def make_system() -> None:
    """Unpack Python for Arm and what it needs, and write the command that starts it."""
    packages = FOLDER / "packages"
    for folder in (packages, SYSTEM, STATE / "lists" / "partial", STATE / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True)
    (STATE / "status").touch()
    settings = [
        "APT::Architecture=arm64",
        "APT::Architectures=arm64",
        f"Dir::State={STATE}",
        f"Dir::State::status={STATE / 'status'}",
        f"Dir::Cache={STATE / 'cache'}",
        "APT::Sandbox::User=",
    ]
    options = [word for setting in settings for word in ("-o", setting)]
    run("apt-get", *options, "update", "-qq")
    needed = [VERSION, f"lib{VERSION}-dev", "libstdc++6", "libgomp1"]
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    listed = run("apt-cache", *options, "depends", "--recurse", *(f"--no-{kind}" for kind in kinds), *needed)
    names = sorted({line for line in listed.splitlines() if line[0].isalnum() and not line.startswith(UNNEEDED)})
    run("apt-get", *options, "download", "-qq", *names, cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        run("dpkg", "-x", str(package), str(SYSTEM))
    PYTHON.parent.mkdir(exist_ok=True)
    home, binary = SYSTEM / "usr", SYSTEM / "usr" / "bin" / VERSION
    start = f'PYTHONHOME={home} exec {EMULATOR} -L {SYSTEM} -0 {PYTHON} {binary} "$@"'
    PYTHON.write_text(f"#!/bin/sh\n{start}\n")
    PYTHON.chmod(0o755)


def make_site() -> None:
    """Install the dependencies as wheels for Arm."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    needed = [name for name in listed if not name.startswith(("onnx-rewrite", "onnxruntime"))]
    python = ["--python-version=3.11", "--implementation=cp", "--only-binary=:all:", *WHEELS]
    run(sys.executable, "-m", "pip", "install", "-q", f"--target={SITE}", *python, *needed, PEER)


def make_tree() -> None:
    """Show the sources as the package `rewrite`, with extensions for Arm."""
    TREE.mkdir(exist_ok=True)
    if not (TREE / "rewrite").exists():
        (TREE / "rewrite").symlink_to(ROOT)
    headers = SYSTEM / "usr" / "include"
    includes = [f"-I{headers / VERSION}", f"-I{headers / 'aarch64-linux-gnu' / VERSION}", f"-I{headers}"]
    for source in sorted(p for room in ("system", "backend") for p in (ROOT / room).rglob("*.pyx")):
        code, library = FOLDER / f"{source.stem}.c", source.with_suffix(".cpython-311-aarch64-linux-gnu.so")
        run(sys.executable, "-m", "cython", "-3", "-o", str(code), str(source))
        flags = ["-O2", "-shared", "-fPIC", "-pthread", "-w"]
        run(COMPILER, *flags, *includes, f"-I{source.parent}", str(code), "-o", str(library))


def run(*command: str, cwd: Path | None = None) -> str:
    """Return what a command prints; end with its messages if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} … failed:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
