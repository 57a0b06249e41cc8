"""What the package of the VS Code extension must hold: `python -m tests.editors.package_contents FILE.vsix`."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

NEEDED = ("package.json", "readme.md", "LICENSE.txt", "language-configuration.json")
CLIENT = "node_modules/vscode-languageclient/package.json"


def missing(package: Path) -> list[str]:
    """The files that the extension needs and the package has not, or has without content."""
    with zipfile.ZipFile(package) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        manifest = json.loads(archive.read("extension/package.json"))
    named = [manifest["main"].removeprefix("./"), CLIENT, *NEEDED]
    for kind in ("languages", "grammars", "snippets"):
        for entry in manifest["contributes"][kind]:
            named += [entry[key].removeprefix("./") for key in ("path", "configuration") if key in entry]
    return sorted(name for name in set(named) if not sizes.get(f"extension/{name}"))


if __name__ == "__main__":
    lost = missing(Path(sys.argv[1]))
    sys.exit(f"{sys.argv[1]} lacks {', '.join(lost)}" if lost else 0)
