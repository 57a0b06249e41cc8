import json

from magika import Magika

texts = [
    "def f(x):\n    return x + 1\n" * 30,
    "#include <stdio.h>\nint main(void) { return 0; }\n" * 20,
    "a,b\n1,2\n" * 50,
]
model = Magika()
found = [model.identify_bytes(text.encode()) for text in texts]
print(json.dumps([[str(r.output.label), r.score] for r in found]))
