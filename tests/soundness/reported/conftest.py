"""The rules here are data for `test_reported.py`; half of them are wrong, so their own tests need not pass."""

collect_ignore_glob = ["*.rules"]
