"""`rewrite sign`: sign a bundle, so that those who load it know who made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from ...system.short_text import plural
from ..console import say
from ..options import Option


def command(
    bundle: Annotated[Path, Argument(metavar="BUNDLE", help="A bundle directory.")],
    key: Annotated[
        Path, Option("--key", "-k", metavar="KEY", help="Your private Ed25519 key, as OpenSSH or OpenSSL write it.")
    ],
) -> None:
    """Sign a bundle with a private key.

    `rewrite run BUNDLE --trusted KEY.pub` then loads it only if it is as it was signed."""
    from ... import api

    count = api.sign(bundle, key)
    say(f"{bundle}: {plural(count, 'file')} signed")
