"""Recurrent layers: RNN, LSTM and GRU with constant weights, and attention whose state each token updates.

Input: a layer node, or LinearAttention. Those of int8 weights are in `quantized`.
Output: a GEMM step for the inputs of all time steps, then the time loop as one step; one step for LinearAttention.
"""
