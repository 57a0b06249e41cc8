"""The command line as users run it, in a separate process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENTRY = "from rewrite.cli.app import main; main()"


def rewrite(*arguments: str, cwd: Path, code: str = ENTRY) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_help_shows_the_main_job_and_the_other_commands(tmp_path: Path) -> None:
    done = rewrite("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "MODEL.onnx" in done.stdout
    assert "--numerics" in done.stdout
    for command in ("run", "bench", "test", "rules", "explain", "calibrate", "cache"):
        assert f" {command} " in done.stdout


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rewrite.cli.app import main\n"
        "try: main(['--help'])\n"
        "except SystemExit:\n"
        "    print('LOADED', *sorted({'numpy', 'onnx', 'egglog', 'jinja2', 'lark', 'Cython'} & set(sys.modules)))"
    )
    done = rewrite(cwd=tmp_path, code=code)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_version(tmp_path: Path) -> None:
    from rewrite import __version__

    for option in ("--version", "-V"):
        assert rewrite(option, cwd=tmp_path).stdout == f"rewrite {__version__}\n"


def test_help_as_a_word(tmp_path: Path) -> None:
    assert rewrite("help", cwd=tmp_path).stdout == rewrite("--help", cwd=tmp_path).stdout != ""
    assert rewrite("help", "run", cwd=tmp_path).stdout == rewrite("run", "--help", cwd=tmp_path).stdout != ""


def test_a_misspelled_command_is_not_a_model(tmp_path: Path) -> None:
    done = rewrite("explane", "m.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: 'explane' is neither a command nor a file\nDid you mean `rewrite explain`?")
    (tmp_path / "explane").write_text("not a model")
    assert "not an ONNX model" in rewrite("explane", cwd=tmp_path).stderr


def test_a_word_like_no_command_is_not_a_model_either(tmp_path: Path) -> None:
    done = rewrite("compile", "m.onnx", cwd=tmp_path)
    assert done.returncode == 2
    hint = "`rewrite MODEL.onnx` compiles a model. `rewrite help` lists the commands."
    assert done.stderr == f"error: 'compile' is neither a command nor a file\n{hint}\n"
    assert hint in rewrite("bundle", cwd=tmp_path).stderr  # which is not `tune` misspelled
    assert rewrite("some/folder/model", cwd=tmp_path).stderr == "error: some/folder/model: no such file\n"


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "rewrite", "explane"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Did you mean `rewrite explain`?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.onnx"], "missing.onnx: no such file"),
        (["rulez"], "Did you mean `rewrite rules`?"),
        (["."], "is a directory, not an ONNX model"),
        (["model.onnx", "--emit", "exe"], "--emit takes"),
        (["model.onnx", "-o", "model.onnx"], "would replace the model itself"),
        (["model.onnx", "-o", "nowhere/out.onnx"], "no such directory"),
        (["model.onnx", "--program", "model.onnx"], "takes a directory"),
        (["model.onnx", "--numerics", "loose"], "loose"),
        (["model.onnx", "--threads", "0"], "--threads"),
        (["model.onnx", "--unknown"], "--unknown"),
        (["run", "missing.onnx"], "no such file"),
        (["run", "model.onnx", "-i", "x"], "--input takes NAME=FILE"),
        (["run", "model.onnx", "-i", "x=missing.npy"], "missing.npy: no such file"),
        (["run", "model.onnx", "-i", "x=model.onnx"], "is not a NumPy array file"),
        (["test", "missing.rules"], "missing.rules: no such file"),
    ],
)
def test_mistakes_end_with_2_and_a_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    done = rewrite(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx"]


def test_an_internal_error_leaves_a_reproducer(tmp_path: Path) -> None:
    code = (
        "from rewrite.cli import app\nfrom rewrite.cli.commands import cache\n"
        "import rewrite.system.store as c\n"
        "def broken(self): raise RuntimeError('a cog is loose')\n"
        "c.Store.info = broken\napp.main(['cache', 'info'])"
    )
    done = rewrite(cwd=tmp_path, code=code)
    assert done.returncode == 3
    assert "internal error: RuntimeError: a cog is loose" in done.stderr
    assert "Traceback" not in done.stderr
    (file,) = tmp_path.glob("rewrite-crash-*.txt")
    assert file.name in done.stderr
    text = file.read_text()
    assert "command: rewrite cache info" in text
    assert "in broken" in text


@pytest.mark.parametrize(("error", "message"), [
    ("OSError(errno.ENOSPC, 'No space left on device', '/full/disk')", "/full/disk: No space left on device"),
    ("MemoryError", "error: there is not enough memory\nFree some"),
])  # fmt: skip
def test_a_full_disk_and_too_little_memory_are_not_our_mistake(tmp_path: Path, error: str, message: str) -> None:
    code = (
        "import errno\nfrom rewrite.cli import app\nimport rewrite.system.store as c\n"
        f"def full(self): raise {error}\n"
        "c.Store.info = full\napp.main(['cache', 'info'])"
    )
    done = rewrite(cwd=tmp_path, code=code)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -P -c '{ENTRY}' --help | true; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stuck", [False, True])
def test_an_interrupt_ends_within_a_second(tmp_path: Path, stuck: bool) -> None:
    """Also when Python cannot raise KeyboardInterrupt, since a library does not return or swallows it."""
    busy = (
        "def busy(self):\n    print('ready', flush=True)\n"
        "    while True:\n        try: time.sleep(60)\n        except KeyboardInterrupt:\n"
        f"            if not {stuck}: raise\n"
    )
    code = (
        f"import time\nfrom rewrite.cli import app\nimport rewrite.system.store as c\n{busy}"
        "c.Store.info = busy\napp.main(['cache', 'info'])"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert time.monotonic() - start < 1.5
    assert b"Traceback" not in errors
