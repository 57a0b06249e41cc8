"""What holds for all tests: generated examples are the same in every run, so that a change is judged by itself.

`pytest --hypothesis-profile=default` draws others each time, to look for what these do not show.
"""

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.load_profile("same")
