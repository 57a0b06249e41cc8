import json

from common import picture
from rapid_layout import RapidLayout

page = picture(480, 360, "Title", "A paragraph of", "some words,", "and its end.")
found = RapidLayout()(page)
print(json.dumps([[list(map(float, box)) for box in found.boxes], found.class_names, list(map(float, found.scores))]))
