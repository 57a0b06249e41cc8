from __future__ import annotations

import fcntl
import subprocess
import venv
from pathlib import Path

import pytest
import rewrite

ROOT = Path(rewrite.__file__).parent


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The wheel as a user builds it: in an environment without the dependencies. All workers share one."""
    if not (ROOT / "setup.py").exists():
        pytest.skip("not a checkout")
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "wheel"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            venv.create(folder / "venv", with_pip=True)
            command = [str(folder / "venv/bin/python"), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
            command += [str(folder), str(ROOT)]
            done = subprocess.run(command, check=False, timeout=600, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    [found] = folder.glob("onnx_rewrite-*.whl")
    return found
