"""Fourier transforms: one or two vectors' worth of signals at once, by factors of their length.

Input: a single node: DFT or STFT.
Output: one step, over tables of roots of unity if the length is known.
"""
