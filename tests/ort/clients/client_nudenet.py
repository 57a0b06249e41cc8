import json

import numpy as np
from common import picture
from nudenet import NudeDetector

detector = NudeDetector()
image = picture(320, 320, "nothing", "to see")
found = detector.detect(image)
[name] = [i.name for i in detector.onnx_session.get_inputs()]
[scores] = detector.onnx_session.run(None, {name: image.transpose(2, 0, 1)[None].astype(np.float32) / 255})
print(json.dumps([found, scores.max(2).tolist()]))
