import json

from common import picture
from rapidocr_onnxruntime import RapidOCR

found, _ = RapidOCR()(picture(160, 320, "Hello, world", "12345 67890"))
print(json.dumps([[box, text, float(score)] for box, text, score in found]))
