"""Building what users install, apart from what `pip` builds of `pyproject.toml`."""
