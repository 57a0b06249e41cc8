"""The commands, one module each.

In: parsed options. Out: results on standard output or in files. Each command imports what it needs inside its function,
so that `rewrite --help` and cached runs start fast.
"""

NAMES = (
    "optimize",
    "run",
    "bench",
    "test",
    "check",
    "fmt",
    "lsp",
    "rules",
    "explain",
    "verify",
    "calibrate",
    "tune",
    "cache",
    "warm",
    "sign",
)
"""In the order of the help."""

RUNTIME_NAMES = ("run", "bench")
"""Those that run bundles, with NumPy alone."""
