"""The wheel `onnx-rewrite-runtime`, for running bundles with NumPy alone: a part of the wheel `onnx-rewrite`.

    python -m distribution.runtime_wheel dist/onnx_rewrite-*.whl

Both have the same files under the same names, so that the runtime is what every test runs. It is taken from the built
wheel: compiled modules are the same bytes in both.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

NAME = "onnx-rewrite-runtime"
FILES = (
    "*.py", "py.typed", "system/*.py", "system/*.so", "pages/*.py",
    "engine/__init__.py", "engine/options.py", "engine/ir/*.py",
    "engine/operators/__init__.py", "engine/operators/schemas.py", "engine/operators/folding/*.py",
    "engine/verification/__init__.py", "engine/verification/random_inputs.py",
    "engine/cost/__init__.py", "engine/cost/likely_sizes.py",
    "grammar/__init__.py", "grammar/operator_info.py",
    "backend/__init__.py", "backend/ir/*.py", "backend/memory/*.py", "backend/bundle/*.py",
    "backend/runtime/*.py", "backend/runtime/native/*.py", "backend/runtime/native/*.so",
    "backend/codegen/__init__.py", "backend/codegen/render.py",
    "backend/toolchain/__init__.py", "backend/toolchain/kernel_cache.py",
    "cli/*.py", "cli/commands/__init__.py", "cli/commands/run.py", "cli/commands/bench.py",
)  # fmt: skip
"""Patterns of the files of the package; `*` does not cross a `/`."""
WITHOUT = (
    "testing.py", "pytest_plugin.py", "cli/application.py", "cli/replay.py", "cli/rule_files.py", "cli/verification.py",
    "backend/bundle/program_cache.py", "backend/bundle/save_bundle.py", "backend/runtime/profile.py",
    "backend/runtime/run_data.py",
    "backend/ir/lower.py", "backend/ir/iteration_space.py",
)  # fmt: skip
"""Files that match a pattern and serve only to compile."""
EXTRAS = {"operators": ("onnx", "onnxruntime"), "sign": ("cryptography",), "types": ("ml_dtypes",)}
"""Extras: for bundles with operators that have no kernel, with element types that NumPy lacks, and that are signed."""
DESCRIPTION = """\
Runs models that the distribution `onnx-rewrite` compiled, and needs NumPy only: `rewrite.load`, `rewrite run` and
`rewrite bench`. It is a part of that distribution under the same import name; install one of the two
in an environment, not both.
"""


def build(wheel: Path, folder: Path) -> Path:
    """Write the wheel of the runtime to `folder`; return its path.

    `wheel` is the built wheel of `onnx-rewrite`, whose versions of dependencies and tags it takes over."""
    with zipfile.ZipFile(wheel) as whole:
        [info] = {name.partition("/")[0] for name in whole.namelist() if ".dist-info/" in name}
        files = {name: whole.read(name) for name in whole.namelist() if _is_runtime(name)}
        licenses = [name for name in whole.namelist() if name.startswith(f"{info}/licenses/")]
        license_text = {name.partition("/")[2]: whole.read(name) for name in licenses}
        metadata = _metadata(whole.read(f"{info}/METADATA").decode())
        tags = whole.read(f"{info}/WHEEL")
    own = info.replace("onnx_rewrite-", NAME.replace("-", "_") + "-")
    files |= {f"{own}/{name}": data for name, data in license_text.items()}
    files[f"{own}/METADATA"] = metadata.encode()
    files[f"{own}/WHEEL"] = tags
    files[f"{own}/entry_points.txt"] = b"[console_scripts]\nrewrite = rewrite.cli.app:main\n"
    files[f"{own}/RECORD"] = _record(files, f"{own}/RECORD").encode()
    target = folder / wheel.name.replace("onnx_rewrite-", NAME.replace("-", "_") + "-", 1)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same bytes for the same wheel
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return target


def _is_runtime(name: str) -> bool:
    room, _, inside = name.partition("/")
    return room == "rewrite" and inside not in WITHOUT and any(_matches(inside, pattern) for pattern in FILES)


def _matches(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatch(name, pattern)


def _metadata(text: str) -> str:
    """Return the metadata: those of the whole distribution with another name and the dependencies of the runtime."""
    head, _, _ = text.partition("\n\n")
    needs = {re.split(r"[^\w-]", line)[0]: line for line in re.findall(r"Requires-Dist: ([^;\n]+)", head)}
    dropped = ("Requires-Dist:", "Provides-Extra:", "Name:", "Summary:", "Keywords:", "Description-Content-Type:")
    lines = [line for line in head.splitlines() if not line.startswith(dropped)]
    lines[1:1] = [f"Name: {NAME}", "Summary: Runs models that onnx-rewrite compiled, with NumPy alone"]
    lines.append(f"Requires-Dist: {needs['numpy']}")
    for extra, packages in EXTRAS.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {needs[package]} ; extra == "{extra}"' for package in packages]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join([*lines, "", DESCRIPTION])


def _record(files: Mapping[str, bytes], own: str) -> str:
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*rows, f"{own},,", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the wheel of the runtime beside the whole one."""
    parser = argparse.ArgumentParser(description="Build the wheel onnx-rewrite-runtime beside that of onnx-rewrite.")
    parser.add_argument("wheel", type=Path, nargs="+")
    for wheel in parser.parse_args(arguments).wheel:
        build(wheel, wheel.parent)


if __name__ == "__main__":
    main()
