"""Quantized networks, made of exports by ONNX Runtime's tools with seeded data.

`qdq`: statically, with QuantizeLinear and DequantizeLinear around all operators and a scale for each channel;
`qoperator`: QLinear operators; `dynamic`: activations are quantized at run time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCES = {
    "resnet18.qdq": "resnet18.ts.opt",
    "resnet18.qoperator": "resnet18.ts.opt",
    "resnet50.qdq": "resnet50.ts.opt",
    "mobilenet_v2.qdq": "mobilenet_v2.ts.opt",
    "bert_mini.dynamic": "bert_mini.ts.opt",
}
"""Source model of each."""
NAMES = tuple(SOURCES) if find_spec("onnxruntime") else ()
IMAGES = 4


def make(name: str, target: Path, source: Path, feeds: Callable[[int], dict[str, Any]]) -> None:
    """Quantizes the model at `source`; `feeds(seed)` gives inputs to calibrate with."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    logging.getLogger().setLevel(logging.ERROR)  # it recommends a step that exports do without
    if name.endswith(".dynamic"):
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
        return

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left: Iterator[dict[str, Any]] = iter([feeds(seed) for seed in range(IMAGES)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.left, None)

    separate = name.endswith(".qdq")
    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QDQ if separate else QuantFormat.QOperator,
        per_channel=separate,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
