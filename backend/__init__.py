"""The native back end: fusion groups to kernels, kernels to code, code to programs."""
