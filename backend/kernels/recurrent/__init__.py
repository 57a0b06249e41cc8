"""Recurrent layers: RNN, LSTM and GRU with constant weights.

Input: a layer node with the default activations.
Output: a GEMM step for the inputs of all time steps, then the time loop as one step.
"""
