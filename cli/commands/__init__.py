"""One module per command; each imports what it needs when it runs, so that `rewrite --help` is fast."""

NAMES = ("bench", "cache", "calibrate", "check", "explain", "fmt", "lsp", "optimize", "rules", "run", "test")
