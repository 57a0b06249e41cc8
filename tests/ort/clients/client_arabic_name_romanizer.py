import dataclasses
import json

from arabic_name_romanizer import transliterate_many

names = ["محمد", "عبد الرحمن", "ذكوانية", "بطريزة", "فاطمة الزهراء"]
found = transliterate_many(names, top_k=3)
print(json.dumps([[dataclasses.asdict(c) for c in candidates] for candidates in found], default=str))
