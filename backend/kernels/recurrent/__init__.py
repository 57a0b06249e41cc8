"""Recurrent layers: RNN, LSTM and GRU, and attention whose state each token updates.

Input: a layer node, or LinearAttention. Those of int8 weights are in `quantized`.
Output: steps that reorder weights that are not constant, a GEMM step for the inputs of all time steps, then the time
loop as one step; one step for LinearAttention.
"""
