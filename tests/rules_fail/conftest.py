"""The rule files here are wrong on purpose: `tests/grammar/test_rules_fail.py` reads them, pytest must not."""

collect_ignore_glob = ["*.rules", "*/*.rules"]
