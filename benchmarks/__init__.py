"""Benchmarks: a zoo of models made on the spot, and runs side by side with the peers."""
