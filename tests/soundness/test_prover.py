"""The prover never proves a wrong rule, and proves right rules within its reach."""

# ruff: noqa: E501  (a rule in a line reads better)

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

pytest.importorskip("z3")

from rewrite.engine.rewriting.rule_library import load_rules, recognitions
from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast
from rewrite.soundness.prover import NotProved, Proof, prove, prover
from rewrite.soundness.prover.paths.path import Path as ProofPath
from rewrite.soundness.prover.paths.shared_solver import SharedSolver
from rewrite.soundness.prover.paths.step_budget import StepBudget
from rewrite.soundness.prover.terms import integers

WRONG = """
rule compose_backwards   Transpose(Transpose(x, perm: p), perm: q) => Transpose(x, perm: [q[i] for i in p]) class exact
rule inverse_forgotten   elementwise f(Transpose(x, perm: p), y) => Transpose(f(x, Transpose(y, perm: p)), perm: p)
                         where rank(x) == rank(y) class exact
rule any_transpose       Transpose(x, perm: p) => x where shape(x) == shape(x) class exact
rule wrong_reshape       Transpose(x, perm: p) => reshape(x, [dim(x, i) for i in p]) class exact
rule reshape_transpose   Reshape(Transpose(x, perm: [1, 0]), t, ..a) => Reshape(x, t, ..a) class exact
rule converted_integer   IsNaN(Cast(x, to: t, ..)) => full(shape(x), 0, bool) given x: integer class exact
rule converted_by_name   IsNaN(Cast(x, to: f8e4m3fn, ..)) => full(shape(x), 0, bool) given x: integer class exact
rule softmax_overflows   Softmax(x, axis: a) => Exp(x) / ReduceSum(Exp(x), [a], keepdims: 1) given x: float class reassoc
rule softplus_overflows  Softplus(x) => Log(Exp(x) + 1.0) given x: f32 class reassoc
rule quotient_of_all     Slice(x, b, e, [0], [1]) / Slice(y, b, e, [0], [1]) => Slice(x / y, b, e, [0], [1]) given x, y: i64[_] class exact
rule operator_of_all     elementwise f(Slice(x, b, e, a, s), Slice(y, b, e, a, s)) => Slice(f(x, y), b, e, a, s)
                         where shape(x) == shape(y) class exact
rule gelu_attributes     Gelu(x, ..) => Gelu(x) class reassoc
rule isinf_attributes    IsInf(x, ..) => IsInf(x) class exact
rule copied_dims         Reshape(Reshape(x, s), t) => Reshape(x, t) class exact
rule slice_off_by_one    Slice(Slice(x, b, e, a, s), c, f, a, t)
                           => Slice(x, [ints(b)[0] + ints(c)[0]], [min(ints(e)[0], ints(b)[0] + ints(f)[0] + 1)], a, s)
                         where len(ints(a)) == 1, ints(b)[0] >= 0, ints(c)[0] >= 0, ints(e)[0] >= 0, ints(f)[0] >= 0,
                               ints(s) == [1], ints(t) == [1] class exact
rule slice_unclamped     Slice(Slice(x, b, e, a, s), c, f, a, t)
                           => Slice(x, [ints(b)[0] + ints(c)[0]], [ints(b)[0] + ints(f)[0]], a, s)
                         where len(ints(a)) == 1, ints(b)[0] >= 0, ints(c)[0] >= 0, ints(e)[0] >= 0, ints(f)[0] >= 0,
                               ints(s) == [1], ints(t) == [1] class exact
rule slice_reversed      Slice(x, b, e, a = none, s = [1]) => x class exact
rule slice_of_concat     Slice(Concat(x, y, axis: c), b, e, a, s) => Slice(x, b, e, a, s)
                         where len(ints(a)) == 1, axis(ints(a)[0], rank(x)) == axis(c, rank(x)), ints(b)[0] >= 0,
                               ints(e)[0] >= 0, ints(e)[0] <= dim(x, c) + 1, ints(s)[0] > 0 class exact
rule concat_swapped      Concat(x, y, axis: a) => Concat(y, x, axis: a) class exact
rule concat_wrong_axis   Concat(Transpose(x, perm: p), Transpose(y, perm: p), axis: a)
                           => Transpose(Concat(x, y, axis: axis(a, rank(x))), perm: p) class exact
rule split_other         Split(Concat(x, y, axis: a), s, axis: a)[1] => x where shape(x) == shape(y) class exact
rule merged_parts        { y[i] = x @ W[i] } => { y[*] = Split(x @ Concat(W[*], axis: 1), [dim(W[i], 0)], axis: rank(x) - 1) }
                         given W[i]: [K, _] where rank(x) >= 2 class reassoc
rule pad_signed          Pad(Pad(x, p, v, mode: "constant"), q, v, mode: "constant")
                           => Pad(x, [ints(p)[i] + ints(q)[i] for i in range(0, len(ints(p)))], v, mode: "constant") class exact
rule pad_other_value     Pad(Pad(x, p, v, mode: "constant"), q, w, mode: "constant")
                           => Pad(x, [ints(p)[i] + ints(q)[i] for i in range(0, len(ints(p)))], v, mode: "constant")
                         where all([i >= 0 for i in ints(p)]), all([i >= 0 for i in ints(q)]) class exact
rule pads_off_by_one     Conv(x, W, auto_pad: "VALID", ..a) => Conv(x, W, auto_pad: "NOTSET", pads: repeat(1, 2 * (rank(W) - 2)), ..a)
                         class reassoc
rule lower_for_upper     Conv(x, W, B = none, auto_pad: "SAME_UPPER", strides: s, dilations: d, ..a)
                           => Conv(x, W, B, auto_pad: "SAME_LOWER", strides: s, dilations: d, ..a) class exact
rule scaled_padding      Conv(x + k, W, B = none, group: 1, pads: p, auto_pad: "NOTSET", ..a)
                           => Conv(x, W, B, group: 1, pads: p, auto_pad: "NOTSET", ..a) class reassoc
rule scale_other_channel Conv(x, W, group: 1, ..a) * k => Conv(x, W * expand_dims(k, 1 .. rank(W) - 2), group: 1, ..a)
                         given k: [_] class reassoc
rule matmul_commutes     x @ y => y @ x class reassoc
rule matmul_no_swap      Transpose(x @ y, perm: [1, 0]) => Transpose(x, perm: [1, 0]) @ Transpose(y, perm: [1, 0]) class reassoc
rule rows_for_columns    (x @ W) * k => x @ (W * reshape(k, [size(k), 1])) given W: [_, _], k: [_] class reassoc
rule bias_scaled_twice   Gemm(x, W, C, transB: 0, ..a) * k => Gemm(x, W * k, C, transB: 0, ..a) given k: [_] class reassoc
rule mean_of_means       ReduceMean(ReduceMean(x, a, keepdims: 1), b, keepdims: 1) => ReduceMean(x, b, keepdims: 1)
                         where len(ints(a)) > 0, len(ints(b)) > 0 class reassoc
rule sum_is_mean         ReduceMean(x, a) => ReduceSum(x, a) class reassoc
rule max_of_sum          ReduceMax(x + y, a) => ReduceMax(x, a) + ReduceMax(y, a) class fast
rule axis_not_turned     ReduceSum(Transpose(x, perm: [1, 0]), a, keepdims: 0) => ReduceSum(x, a, keepdims: 0) class reassoc
rule reduce_keeps        ReduceMax(x, a, keepdims: 0) => ReduceMax(x, a, keepdims: 1) where dim(x, 0) == 1 class exact
rule softmax_axis        Softmax(Transpose(x, perm: p), axis: a) => Transpose(Softmax(x, axis: a), perm: p) class exact
rule gather_shifted      Gather(x, i, axis: a) => Slice(x, [0], [n], [axis(a, rank(x))], [1]) given i: i64[n] class exact
rule depth_order         DepthToSpace(x, blocksize: n, mode: "DCR") => DepthToSpace(x, blocksize: n, mode: "CRD") class exact
rule average_counts      AveragePool(x, kernel_shape: k, pads: p, count_include_pad: 0)
                           => AveragePool(x, kernel_shape: k, pads: p, count_include_pad: 1) class reassoc
rule batch_norm_sigma    BatchNormalization(x, g, b, m, v, epsilon: e, training_mode: 0, ..)
                           => BatchNormalization(x, g, b, m, v * v, epsilon: e, training_mode: 0) class reassoc
rule add_zero_bits       x + c => x given x: float where all(c == 0) class exact
rule add_one             x + c => x where all(c == 1) class fast
rule sub_self_float      x - x => full(shape(x), 0, dtype(x)) given x: float class reassoc
rule mul_zero_float      x * c => full(broadcast(shape(x), shape(c)), 0, dtype(x)) given x: float where all(c == 0) class reassoc
rule div_self            x / x => full(shape(x), 1, dtype(x)) given x: float class reassoc
rule times_reciprocal    x * y / y => x given x: float class reassoc
rule not_less_float      Not(Less(x, y)) => LessOrEqual(y, x) given x: float class exact
rule equal_self_float    Equal(x, x) => full(shape(x), 1, bool) given x: float class exact
rule associate_exact     (x + y) + z => x + (y + z) given x: float class exact
rule associate_empty     (x @ y) @ z => x @ (y @ z) given x: [_, _], y: [_, _], z: [_, _]
                         where dim(y, 0) > 0 class reassoc
rule one_term_exact      x @ y => x * y where dim(x, -1) == 1, dim(y, -2) == 1, rank(x) >= 2 class exact
rule max_zero_exact      Max(x, c) => Relu(x) given x: float where all(c == 0) class exact
rule distribute_exact    x * y + x * z => x * (y + z) given x: float class exact
rule relu_where_nan      Where(Less(0, x), x, c) => Relu(x) given x: float where all(c == 0) class exact
rule relu_where_reassoc  Where(Less(0, x), x, c) => Relu(x) given x: float where all(c == 0) class reassoc
rule clip_crossed        Clip(Clip(x, a, b), c, d)
                           => Clip(x, const(max(scalar(a), scalar(c)), dtype(x)), const(min(scalar(b), scalar(d)), dtype(x)))
                         given x: float class fast
rule clip_order          Max(Min(x, b), a) => Min(Max(x, a), b) given x: float class exact
rule abs_of_integer      Abs(Abs(x) * Abs(x)) => Abs(x) * Abs(x) given x: i8 class exact
rule abs_grows           Abs(x) => Max(x, Neg(x)) given x: float class exact
rule div_neg_integer     Div(x, Neg(y)) => Neg(Div(x, y)) given x: i32 class exact
rule mod_floor           Mod(x, y, fmod: 0) => Mod(x, y, fmod: 1) given x: i32 class exact
rule div_mod             (x / y) * y => x given x: i32 class exact
rule mul_div             (x * y) / y => x given x: i32 class exact
rule halves              (x + y) / c => x / c + y / c given x: i32 where all(c == 2) class exact
rule leaky_steep         Max(x, x * a) => LeakyRelu(x, alpha: scalar(a)) given x: float, a: scalar where scalar(a) > 0 class reassoc
rule gelu_constant       x * 0.5 * (1 + Erf(x * 0.7072)) => Gelu(x, approximate: "none") class reassoc
rule sigmoid_sign        Reciprocal(Exp(x) + 1) => Sigmoid(x) class reassoc
rule exp_sum             Exp(x) + Exp(y) => Exp(x + y) class fast
rule sqrt_square_sign    Sqrt(x * x) => x class fast
rule prelu_is_commutative PRelu(x, Expand(s, t)) => PRelu(s, x) class exact
rule cast_narrow         Cast(Cast(x, to: w), to: t) => Cast(x, to: t) where w == i8, t == i64 given x: i64 class exact
rule squeeze_any         Unsqueeze(Squeeze(x, a), b) => x class exact
rule layer_norm_eps      LayerNormalization(x, s, epsilon: e, ..a) => LayerNormalization(x, s, epsilon: 0.5, ..a) class reassoc
rule wrong_branch        Where(Not(p), x, y) => Where(p, x, y) class exact
rule dropout_of_all      Dropout(x, r, t, ..) => x where scalar(r) == 1 class exact
rule dropout_in_training Dropout(x, r, t, ..) => x where all(t == true) class exact
rule root_of_any         (x + c) ** -0.5 => Reciprocal(Sqrt(x + c)) given c: const where positive(c) class reassoc
rule root_of_any_else    (x + c) ** -0.5 => Reciprocal(Sqrt(x + c)) given c: const where nonnegative(x) class reassoc
rule root_of_either      (x + c) ** -0.5 => Reciprocal(Sqrt(x + c)) given c: const where nonnegative(x) or positive(c) class reassoc
rule root_of_negative    (x + c) ** -0.5 => Reciprocal(Sqrt(x + c)) given c: const where not nonnegative(x), positive(c) class reassoc
rule xor_is_or           Xor(p, q) => Or(p, q) class exact
rule least_of_greatest   ReduceMin(ReduceMax(x, [1], keepdims: 0), [0], keepdims: 0)
                           => ReduceMin(ReduceMax(Transpose(x, perm: [1, 0]), [1], keepdims: 0), [0], keepdims: 0)
                         given x: float[N, N] class exact
rule sum_of_powers       ReduceSum(Exp(ReduceSum(x, [1], keepdims: 0)), [0], keepdims: 0)
                           => ReduceSum(Exp(ReduceSum(Transpose(x, perm: [1, 0]), [1], keepdims: 0)), [0], keepdims: 0)
                         given x: float[N, N] class reassoc
rule halved_then_cast    Cast((x * c) / c, to: f32) + y => Cast(x, to: f32) + y given x: i32, y: f32 where all(c == 2) class reassoc
rule halved_any_cast     Cast((x * c) / c, to: f32) => Cast(x, to: f32) where all(c == 2) class reassoc
rule negated_then_cast   Cast(x / Neg(y), to: f32) => Cast(Neg(x / y), to: f32) given x, y: i8 class exact
rule negated_compared    Less(x / Neg(y), z) => Less(Neg(x / y), z) given x, y, z: i8 class exact
rule halved_condition    Where(Less((x * c) / c, z), a, b) + y => Where(Less(x, z), a, b) + y given x: i32, y, a: f32 where all(c == 2) class reassoc
rule halved_of_any       elementwise f((x * c) / c, y) => f(x, y) given x: i32 where all(c == 2) class reassoc
rule halved_exponent     x ** ((n * c) / c) => x ** n given x: f32, n: i32 where all(c == 2) class reassoc
rule floats_of_integers  (elementwise f(x) + y) + z => f(x) + (y + z) given x: i32 class exact
rule floats_to_integers  Cast((x + y) + z, to: i32) => Cast(x + (y + z), to: i32) given x: f32 class exact
rule floats_compared     Less((x + y) + z, w) => Less(x + (y + z), w) given x: f32 class reassoc
rule dequantized_turned  Transpose(DequantizeLinear(x, s, z, ..a), perm: p) => DequantizeLinear(Transpose(x, perm: p), s, z, ..a) class exact
rule dequantized_other   DequantizeLinear(x, s, z, ..a) => DequantizeLinear(x, s, ..a) class exact
rule quantized_and_back  DequantizeLinear(QuantizeLinear(x, s, z, ..a), s, z, ..b) => x class fast
rule scale_reordered     DequantizeLinear(q, s, z, ..a) * k => DequantizeLinear(q, s * k, z, ..a) class exact
rule quantized_sum       QuantizeLinear((x + y) + w, s, z, ..a) => QuantizeLinear(x + (y + w), s, z, ..a) class exact
op Enlarged(x, alpha: 1.0) = x * alpha
  kind elementwise
  class exact
rule open_attribute      Enlarged(x, ..a) => x class exact
rule open_attributes     Enlarged(Enlarged(x, ..a), ..a) => Enlarged(x, ..a) class exact
rule bound_attribute     Enlarged(x, alpha: k) => x class exact
rule another_attribute   Enlarged(Enlarged(x, alpha: k), alpha: m) => Enlarged(Enlarged(x, alpha: k), alpha: k) class exact
rule labels_swapped      Einsum(x, equation: e) => Transpose(x, perm: [index(s[1], i) for i in s[0]])
                         let s = subscripts(e) where len(s) == 2 and len(s[0]) == len(s[1]) class exact
rule labels_summed       Einsum(x, equation: e) => ReduceSum(x, [index(s[0], i) for i in s[0] if i not in s[1]], keepdims: 0)
                         let s = subscripts(e) where len(s) == 2 class reassoc
rule outer_as_product    Einsum(x, y, equation: "i,j->ij") => Einsum(y, x, equation: "i,j->ij") class exact
rule member_after        SequenceAt(SequenceConstruct(xs[*], y), i) => y given i: const where scalar(i) == 0 class exact
rule member_dropped      SequenceErase(SequenceConstruct(x, y)) => SequenceConstruct(y) class exact
rule length_of_more      SequenceLength(SequenceConstruct(xs[*], y)) => const(len(xs[*]), i64) class exact
rule rounded_floats      Round(Cast(x, to: t)) => Cast(x, to: t) given x: float class exact
rule positive_integers   Relu(Cast(x, to: t)) => Cast(x, to: t) given x: integer class exact
rule mean_of_nothing     ReduceMean(x, a, keepdims: 0) => ReduceSum(x, a, keepdims: 0)
                         given x: float[M, N] where dim(x, 0) == 0, ints(a) == [0] class exact
rule dims_multiplied     ReduceProd(Shape(x), keepdims: 0) => reshape(Size(x) * 2, []) class exact
rule dims_added          ReduceSum(Shape(x), keepdims: 0) => const(2 * dim(x, 0), i64) where rank(x) == 2 class exact
rule target_of_zeros     Shape(Reshape(x, t)) => t class exact
rule minus_zero          Abs(x) => x given x: float where nonnegative(x) class exact
rule zeros_of_extremes   Max(x, y) => x given x: float where nonnegative(x) class exact signed_zero
rule rectified_minus     Relu(x) + y => x + y given x: float where positive(y) class exact
rule roots_of_either     Sqrt(x) * Sqrt(y) => Sqrt(x * y) given x: float where nonnegative(x) class fast
rule not_below_zero      Sqrt(x * x) => x where nonnegative(x) class exact
rule groups_swapped      ConvTranspose(Concat(x, y, axis: 1), Concat(V, W, axis: 0), group: 2, ..a)
                           => Concat(ConvTranspose(y, W, group: 1, ..a), ConvTranspose(x, V, group: 1, ..a), axis: 1)
                         class reassoc
rule masked_to_one       x * Cast(p, to: t) => Where(p, x, like(1, x)) given p: bool, x: float class fast
rule sum_up_to           CumSum(x, c, exclusive: 0, ..a) => CumSum(x, c, exclusive: 1, ..a) class reassoc
rule cumulated_elsewhere CumSum(Transpose(x, perm: [1, 0]), c, ..a) => Transpose(CumSum(x, c, ..a), perm: [1, 0]) class reassoc
rule greatest_is_least   ArgMax(x, axis: a, ..r) => ArgMin(x, axis: a, ..r) class exact
rule last_is_first       ArgMax(x, axis: a, keepdims: k, select_last_index: 1) => ArgMax(x, axis: a, keepdims: k, select_last_index: 0) class exact
rule negated_integers    ReduceMax(Neg(x), a, ..r) => Neg(ReduceMin(x, a, ..r)) given x: i8 class exact
rule greatest_negated    ReduceMax(Neg(x), a, ..r) => ReduceMin(x, a, ..r) given x: float class exact
rule greatest_of_none    ReduceMax(Exp(x), a, ..r) => Exp(ReduceMax(x, a, ..r)) given x: float class reassoc
rule greatest_of_cosine  ReduceMax(Cos(x), a, keepdims: 1) => Cos(ReduceMax(x, a, keepdims: 1))
                         where len(ints(a)) > 0, all([dim(x, i) > 0 for i in ints(a)]) class reassoc
rule negated_bits        ReduceSum(Neg(x), a, ..r) => Neg(ReduceSum(x, a, ..r)) given x: float class exact
rule cosine_is_odd       Cos(Neg(x)) => Neg(Cos(x)) class reassoc
rule transposed_conv     ConvTranspose(x, W, group: 1, ..a) * k => ConvTranspose(x, W * k, group: 1, ..a)
                         given k: [_, 1, 1] where rank(W) == 3 class reassoc
rule padding_mode        Pad(x, p, v, mode: "edge") => Pad(x, p, v, mode: "reflect") class exact
rule padded_twice        Pad(Pad(x, p, v, mode: m), q, v, mode: m)
                           => Pad(x, [ints(p)[i] + ints(q)[i] for i in range(0, len(ints(p)))], v, mode: m)
                         where all([i >= 0 for i in ints(p)]), all([i >= 0 for i in ints(q)]) class exact
rule squares_of_none     ReduceSumSquare(x, a, ..r) => ReduceSum(x, a, ..r) where len(ints(a)) == 0 class reassoc
rule two_of_top          TopK(x, [2], axis: a in rank(x), largest: 1, sorted: s)[0] => ReduceMax(x, [a], keepdims: 1)
                         where dim(x, a) > 1 class fast
rule wrong_choice        x - y => (x - y if rank(x) == 2 else y - x) given x: float class exact
rule product_of_powers   ReduceProd(Exp(x), a, ..r) => Exp(ReduceSum(x, a, ..r)) given x: float class exact
rule product_plus_zero   x * y + c => x * y given x: float, c: scalar where all(c == 0) class exact
rule scaled_infinite     (x @ W) * k => x @ (W * reshape(k, [size(k)])) given W: [_, _], k: const
                         where size(k) == 1, rank(x) >= 2 class reassoc
rule scaled_other_finite (x @ W) * k => x @ (W * reshape(k, [size(k)])) given W: [_, _], k: const
                         where size(k) == 1, rank(x) >= 2, finite(W) class reassoc
rule scaled_half_bounded (x @ W) * k => x @ (W * reshape(k, [size(k)])) given W: [_, _], k: const scalar
                         where size(k) == 1, rank(x) >= 2, scalar(k) < 1e9 class reassoc
rule below_half          Less(x, c) => full(shape(x), 0, bool) given x: u8 where all(c == 128) class exact
rule two_are_three       ReduceMax(Slice(x, [0], [2], [0], [1]), [0]) => ReduceMax(Slice(x, [0], [3], [0], [1]), [0])
                         given x: float[N] where dim(x, 0) >= 3 class exact
"""

RIGHT = """
rule reverse_twice        Transpose(Transpose(x, perm: p), perm: q) => Transpose(x, perm: [p[i] for i in q]) class exact
rule apart_and_together  Concat(Slice(x, [0], [2], [0], [1]), Slice(x, [2], [9999], [0], [1]), axis: 0) => x
                         where dim(x, 0) >= 2, dim(x, 0) <= 9000 class exact
rule backwards_twice     Slice(Slice(x, b, e, a, s), b, e, a, s) => x
                         where ints(b) == [-1], ints(e) == [-99999], ints(a) == [0], ints(s) == [-1], dim(x, 0) < 9999
                         class exact
rule pixels              DepthToSpace(SpaceToDepth(x, blocksize: n), blocksize: n, mode: "DCR") => x class exact
rule sum_over_concat     ReduceSum(Concat(x, y, axis: 1), [1], keepdims: 1)
                           => ReduceSum(x, [1], keepdims: 1) + ReduceSum(y, [1], keepdims: 1) class reassoc
rule product_of_concat   Concat(x, y, axis: 1) @ Concat(v, w, axis: 0) => x @ v + y @ w
                         given x: [M, K], y: [M, L], v: [K, N], w: [L, N] class reassoc
rule associate           (x @ y) @ z => x @ (y @ z) given x: [_, _], y: [_, _], z: [_, _]
                         where dim(y, 0) > 0, dim(y, 1) > 0 class reassoc
rule dropout_of_nothing  Dropout(x, r, t, ..) => x where scalar(r) == 0 class exact
rule dropout_in_use      Dropout(x, r, t, ..) => x where all(t == false) class exact
rule root_of_more        (x + c) ** -0.5 => Reciprocal(Sqrt(x + c)) given c: const where nonnegative(x), positive(c) class reassoc
rule root_of_square      (x * x + 1) ** -0.5 => Reciprocal(Sqrt(x * x + 1)) given x: float class reassoc
rule turned_product      Transpose(x @ y, perm: [1, 0]) => Transpose(y, perm: [1, 0]) @ Transpose(x, perm: [1, 0]) class reassoc
rule sum_of_square       ReduceSum(x * x, a) => ReduceSumSquare(x, a) class reassoc
rule pointwise_conv      Conv(x, W, pads: [0, 0, 0, 0], strides: [1, 1], dilations: [1, 1], kernel_shape: [1, 1], group: 1)
                           => Conv(x, W, pads: [0, 0, 0, 0], strides: [1, 1], group: 1) class exact
rule minimum_of_bounds   And(Less(x, a), Less(x, b)) => Less(x, Min(a, b)) given x: i32 class exact
rule not_less            Not(Less(x, y)) => LessOrEqual(y, x) given x: integer class exact
rule modulus_of_power    Mod(Mod(x, a, fmod: 0), b, fmod: 0) => Mod(x, b, fmod: 0)
                         given x: u8 where all(a == 8), all(b == 4) class exact
rule wraps               (x + y) - y => x given x: i8 class exact
rule de_morgan           Not(And(p, q)) => Or(Not(p), Not(q)) class exact
rule tile_is_expand      Tile(x, r) => Expand(x, r) class exact            # the engine checks that the shapes agree
rule extremes            Max(x, y) + Min(x, y) => x + y given x: i16 class exact
rule none_is_below_zero  Max(x, c) => x given x: u8 where all(c == 0) class exact
rule max_of_max          ReduceMax(ReduceMax(x, [1]), [0]) => ReduceMax(x, [0, 1]) given x: [_, _] class exact
rule relu_twice          Relu(Relu(x)) => Relu(x) class exact signed_zero
rule wraps_compared      Less((x + c) - c, y) => Less(x, y) given x: i32 where all(c == 2) class exact
rule squares_cast        Cast(Abs(x) * Abs(x), to: f32) * y => Cast(x * x, to: f32) * y given x: i8, y: f32 class reassoc
rule quantized_choice    Where(c, DequantizeLinear(p, s, z, ..a), DequantizeLinear(q, s, z, ..a)) => DequantizeLinear(Where(c, p, q), s, z, ..a)
                         given c, p, q: [_] where rank(s) == 0 class exact
rule quantized_rows      Slice(DequantizeLinear(q, s, z, axis: 1, block_size: 0, ..a), [0], [2], [0], [1])
                           => DequantizeLinear(Slice(q, [0], [2], [0], [1]), s, z, axis: 1, block_size: 0, ..a)
                         given q: [_, _] where rank(s) == 1, dim(q, 0) > 2 class exact
rule first_of_negated    ArgMin(Neg(x), ..r) => ArgMax(x, ..r) given x: float class exact
rule least_of_negated    ReduceMin(Neg(x), a, ..r) => Neg(ReduceMax(x, a, ..r)) given x: float class exact signed_zero
rule greatest_power      ReduceMax(Exp(x), a, keepdims: 1) => Exp(ReduceMax(x, a, keepdims: 1))
                         given x: [_, _] where len(ints(a)) > 0, all([dim(x, i) > 0 for i in ints(a)]) class reassoc
rule right_choice        x + y => (x + y if rank(x) == 2 else y + x) class exact
rule sine_is_odd         Sin(Neg(x)) => Neg(Sin(x)) class reassoc
rule shifted_channels    ConvTranspose(x, W, B, group: 1, ..a) + k => ConvTranspose(x, W, B + reshape(k, [dim(k, 0)]), group: 1, ..a)
                         given k: [_, 1] where rank(W) == 3, dim(k, 0) == dim(W, 1) class reassoc
rule padding_turned      Transpose(Pad(x, [0, 1, 0, 0, 2, 0], v, mode: m), perm: [0, 2, 1])
                           => Pad(Transpose(x, perm: [0, 2, 1]), [0, 0, 1, 0, 0, 2], v, mode: m) class exact
rule powers_multiplied   ReduceProd(Exp(x), [0], keepdims: 1) => Exp(ReduceSum(x, [0], keepdims: 1)) given x: float class fast
rule square_plus_zero    x * x + c => x * x given x: float, c: scalar where all(c == 0) class exact
rule scaled_finite       (x @ W) * k => x @ (W * reshape(k, [size(k)])) given W: [_, _], k: const
                         where size(k) == 1, rank(x) >= 2, finite(k) class reassoc
rule scaled_bounded      (x @ W) * k => x @ (W * reshape(k, [])) given W: [_, _], k: const scalar
                         where rank(k) == 0, rank(x) >= 2, scalar(k) > -1e9, scalar(k) < 1e9 class reassoc
rule clamp               Min(Max(x, a), b) => Max(Min(x, b), a) given x: float, a, b: scalar where scalar(a) <= scalar(b)
                         class reassoc
rule sigmoid_of_negative Sigmoid(Neg(x)) => 1 / (1 + Exp(x)) class reassoc
rule shape_of_turned     Gather(Shape(Transpose(x, perm: [1, 2, 0])), const(0, i64), axis: 0) => Gather(Shape(x), const(1, i64), axis: 0)
                         class exact
"""

STANDARD = [
    "mul_one", "add_zero", "pow_zero", "neg_sub", "add_self", "shift_then_scale", "sub_self", "max_max", "not_less",
    "where_not", "identity", "transpose_noop", "transpose_transpose", "transpose_unary", "reshape_noop",
    "reshape_unary", "conv_bn", "conv_valid", "conv_same_upper", "conv_zero_bias", "merge_conv", "merge_matmul",
    "gemm_to_matmul", "matmul_matmul_const", "gelu_erf", "silu", "leaky_relu_max", "global_average_pool",
    "softmax_axis", "cast_noop", "split_concat", "slice_unary", "channels_last_conv", "channels_last_conv_transpose",
    "channels_last_average_pool", "einsum_transpose", "sequence_at", "optional_element", "matmul_zero", "idempotent",
    "cast_of_rounded", "masked_by_product", "batch_norm", "shape_of_reshape", "size_of_binary", "pad_noop",
]  # fmt: skip


def loaded(tmp_path_factory: pytest.TempPathFactory, text: str) -> Library:
    path = tmp_path_factory.mktemp("rules") / "some.rules"
    path.write_text(text)
    return load_rules([path], std=False)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return loaded(tmp_path_factory, WRONG)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return loaded(tmp_path_factory, RIGHT)


@pytest.fixture(scope="module")
def standard() -> Library:
    return load_rules()


def names(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("rule ")]


def find(library: Library, name: str) -> ast.Rule:
    return next(r for r in (*recognitions(library), *library.rules) if r.name == name)


@pytest.mark.parametrize("name", names(WRONG))
def test_wrong_rules_are_never_proved(wrong: Library, name: str) -> None:
    found = prove(find(wrong, name), wrong, seconds=1)
    assert not isinstance(found, Proof), str(found)
    assert found.reason


@pytest.mark.parametrize("name", names(RIGHT))
def test_right_rules_are_proved(right: Library, name: str) -> None:
    found = prove(find(right, name), right, seconds=30)
    assert isinstance(found, Proof), found
    assert "proved for all sizes" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDARD)
def test_standard_rules_are_proved(standard: Library, name: str) -> None:
    found = prove(find(standard, name), standard, seconds=30)
    assert isinstance(found, Proof), found


def test_a_proof_lists_what_it_assumes(right: Library, standard: Library) -> None:
    found = prove(find(standard, "reduce_sum_square"), standard)
    assert isinstance(found, Proof)
    assert any("ReduceSum, ReduceSumSquare" in a for a in found.assumptions)
    assert any("overflow" in a for a in found.assumptions)
    assert any("over no axes" in a for a in found.assumptions)
    assert not any("z3" in a for a in found.assumptions)
    solved = prove(find(right, "extremes"), right)
    assert isinstance(solved, Proof)
    assert any("z3" in a for a in solved.assumptions)
    quantized = prove(find(standard, "transpose_dequantize"), standard)
    assert isinstance(quantized, Proof)
    assert any("one shape" in a and "zero point" in a for a in quantized.assumptions)


def test_a_group_is_proved_for_two_and_three_members(standard: Library) -> None:
    found = prove(find(standard, "merge_conv_no_bias"), standard, seconds=30)
    assert isinstance(found, Proof)
    assert "groups of 2 and 3" in str(found)


def test_an_operator_without_a_meaning_is_not_proved(tmp_path: Path) -> None:
    path = tmp_path / "own.rules"
    path.write_text("rule strange  NonZero(x * c) => NonZero(x) where all(c == 1) class exact\n")
    library = load_rules([path], std=False)
    found = prove(library.rules[0], library)
    assert isinstance(found, NotProved)
    assert "NonZero" in found.reason


def test_the_same_answer_twice(standard: Library) -> None:
    rule = find(standard, "conv_bn")
    found = prove(rule, standard)
    prove(find(standard, "merge_conv"), standard)
    assert str(prove(rule, standard)) == str(found)


def test_the_work_is_the_same_whatever_was_proved_before(right: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    meters: list[StepBudget] = []

    def made(seconds: float) -> StepBudget:
        meters.append(StepBudget(seconds))
        return meters[-1]

    monkeypatch.setattr(prover, "StepBudget", made)
    for name in ("reverse_twice", "pixels", "reverse_twice"):
        prove(find(right, name), right)
    first, other, again = (meter.spent for meter in meters)
    assert first == again != other


def test_a_proof_ends_when_its_budget_is_exhausted(right: Library) -> None:
    found = prove(find(right, "pixels"), right, seconds=0.001)
    assert isinstance(found, NotProved)
    assert found.reason.startswith("out of time")


def test_a_proof_by_too_many_cases_is_given_up_early(standard: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = StepBudget(6)
    monkeypatch.setattr(prover, "StepBudget", lambda seconds: meter)
    found = prove(find(standard, "shared_heads"), standard)
    assert isinstance(found, NotProved)
    assert found.reason.startswith("out of time")
    assert meter.spent < 0.3 * meter.limit


def test_a_proof_has_hope_as_long_as_its_rate_suffices() -> None:
    meter = StepBudget(1)
    meter.spend(meter.limit // 2)
    assert meter.hopeless(0, 0.1)
    assert not meter.hopeless(0, 0.3)
    assert not meter.hopeless(meter.spent, 0.001)  # nothing has been spent since


def test_a_question_to_the_solver_takes_no_more_than_what_is_left() -> None:
    meter = StepBudget(1)
    whole = meter.solver_steps(sys.maxsize)
    assert meter.solver_steps(1000) == 1000
    meter.spend(meter.limit // 2)
    assert meter.solver_steps(sys.maxsize) * 2 == whole
    meter.lift()
    assert meter.solver_steps(1000) == 1000


def test_a_convolution_has_the_group_size_of_another(standard: Library) -> None:
    assert isinstance(prove(find(standard, "sum_of_convs"), standard), Proof)


def test_a_path_keeps_the_facts_that_it_shares_with_the_one_before_only() -> None:
    shared, own, other = (integers.ge(integers.var("n"), k) for k in (1, 3, 2))
    formulas = {k: integers.cond_z3(k) for k in (shared, own, other)}
    paths = ("first", "second", "third")
    solver = SharedSolver()
    assert solver.holding(paths[0], [shared]).assertions()[:] == [formulas[shared]]
    assert solver.holding(paths[0], [shared, own]).assertions()[:] == [formulas[shared], formulas[own]]
    assert solver.holding(paths[1], [shared, other]).assertions()[:] == [formulas[shared], formulas[other]]
    assert solver.holding(paths[2], [own]).assertions()[:] == [formulas[own]]


def test_the_paths_of_a_proof_are_freed_without_the_garbage_collector() -> None:
    library = load_rules()
    rules = {rule.name: rule for rule in library.rules}
    for name in ("transpose_transpose", "reshape_reshape_dynamic"):  # proved, and out of time
        gc.collect()
        gc.disable()
        try:
            prove(rules[name], library, seconds=2)
            assert not [found for found in gc.get_objects() if isinstance(found, ProofPath)], name
        finally:
            gc.enable()
