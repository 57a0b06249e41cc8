"""Int8 kernels: products and convolutions of quantized tensors with i32 sums, pooling, LSTM, dynamic quantization.

Input: integer or QLinear operators. A step packs weights that are not constant, in NCHW layout.
Output: GEMM and convolution steps whose epilogue requantizes, and the steps that pack activations.
"""
