"""Inputs that all clients share: drawn texts, and tones."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np


def picture(height: int, width: int, *lines: str) -> Any:
    """An image with lines of text, u8[height, width, 3]."""
    image = np.full((height, width, 3), 255, np.uint8)
    for row, text in enumerate(lines):
        at = (10, int(height * (row + 0.7) / len(lines)))
        cv2.putText(image, text, at, cv2.FONT_HERSHEY_SIMPLEX, 1.0, (20, 20, 20), 2)
    return image
