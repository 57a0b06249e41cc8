"""Settings of all tests: Hypothesis is derandomized, so results depend only on the code.

`pytest --hypothesis-profile=default` draws new examples in each run.
"""

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.load_profile("same")
