"""The help of all commands, and completion of the shell."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .command import environment, rewrite


def test_help_of_all_commands(tmp_path: Path) -> None:
    shown = rewrite("--help-all", cwd=tmp_path)
    assert shown.returncode == 0
    usages = re.findall(r"Usage: (rewrite .*?)\[OPTIONS\]", shown.stdout)
    assert {"rewrite ", "rewrite run ", "rewrite check ", "rewrite warm ", "rewrite cache clear "} <= set(usages)
    assert len(usages) == len(set(usages))
    assert "--why-not" in shown.stdout


def test_the_shell_completes_commands(tmp_path: Path) -> None:
    words = {"_REWRITE_COMPLETE": "complete_bash", "COMP_WORDS": "rewrite wa", "COMP_CWORD": "1"}
    command = Path(sys.executable).with_name("rewrite")
    done = subprocess.run([command], cwd=tmp_path, env=environment(**words), capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["warm"], done.stderr
    for shell, word in {"bash": "COMP_WORDS", "zsh": "#compdef rewrite", "fish": "complete --command rewrite"}.items():
        assert word in rewrite("--show-completion", shell, cwd=tmp_path).stdout
    unknown = rewrite("--show-completion", "tcsh", cwd=tmp_path)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: no completion for the shell 'tcsh'\nThere is one for bash, zsh, fish")
