import json

import numpy as np
from swift_f0 import SwiftF0

time = np.arange(16000) / 16000
phase = 2 * np.pi * (220 * time + 30 * time**2)
voice = sum(np.sin(k * phase) / k for k in range(1, 9)) + 0.05 * np.random.default_rng(0).standard_normal(16000)
found = SwiftF0().detect((0.2 * voice).astype(np.float32), 16000)
print(json.dumps([found.pitch_hz.tolist(), found.confidence.tolist()]))
