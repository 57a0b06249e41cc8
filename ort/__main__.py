"""`python -m rewrite.ort script.py …`: a script with `onnxruntime` replaced by `rewrite.ort`."""

from __future__ import annotations

import sys
from pathlib import Path

from .replacement import run_script

USAGE = "usage: python -m rewrite.ort SCRIPT.py [ARGUMENTS…]\n       python -m rewrite.ort -m MODULE [ARGUMENTS…]"


def main() -> None:
    """Run the script that the command line names."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(USAGE, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    if arguments[0] != "-m" and not Path(arguments[0]).exists():
        print(f"error: {arguments[0]}: no such file\n{USAGE}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    run_script(arguments)


main()
