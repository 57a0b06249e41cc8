"""The entry point of the command line.

Commands that compile need packages that a machine which only runs bundles lacks. There `runtime_application` offers the
commands that run them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    from ..system.process_pool import collect_seldom
    from .failures import run_app

    collect_seldom()
    os.environ["PYTHONSAFEPATH"] = "1"  # pools of processes: the working directory may be a stranger's
    sys.exit(run_app(_application(), list(sys.argv[1:] if arguments is None else arguments)))


def _application() -> Callable[..., Any]:
    """Return the application with all commands, or the one of the runtime if packages for the others are missing."""
    try:
        from .application import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", f"{__package__}.application"):
            raise
        from .runtime_application import run

        return run
    return app


if __name__ == "__main__":
    main()
