"""Lowerers of operators to native kernels; importing a module registers what it has."""
