import json

import numpy as np
from captcha_whisperer import CaptchaRecognizer
from common import picture

images = [picture(64, 200, word) for word in ("a7k2", "QX93")]
found = CaptchaRecognizer().recognize_arrays(images)
print(json.dumps(found, default=np.ndarray.tolist))
