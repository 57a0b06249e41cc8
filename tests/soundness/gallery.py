"""Gallery: rules that look right but are wrong, and sound rules of every kind.

Most of the wrong ones come from compilers, or from changes proposed to one.
"""

UNSOUND = """
rule broadcast_lost                            # c may make the sum longer
  ReduceSum(x * c, [0], keepdims: 0)  =>  ReduceSum(x, [0], keepdims: 0)
  where all(c == 1)
  class reassoc
  test fires    x: f32[2, 3], c = [1, 1, 1]

rule clipped_average                           # an infinite average becomes finite
  GlobalAveragePool(x)  =>  Min(GlobalAveragePool(x), like(3e38, x))
  class reassoc
  test fires    x: f32[2, 3, 4, 5]

rule enlarged_norm                             # what is normalized overflows though its squares do not
  InstanceNormalization(x, s, b)  =>  InstanceNormalization(x, s, b) * 1e35 / 1e35
  given x: f32
  class reassoc
  test fires    x: f32[2, 6, 4], s: f32[6], b: f32[6]

rule enlarged_magnitude                        # in f16 the constant is infinite, and all is NaN
  Sqrt(x * x)  =>  Abs(x) * 1e35 / 1e35
  given x: float
  class fast
  test fires    x: f32[2, 3]

rule enlarged_positive                         # overflow counts where an exponential is infinite, too
  Relu(x) + Min(Exp(x), 0)  =>  Relu(x) * 1e35 / 1e35
  given x: f32
  class reassoc
  test fires    x: f32[2, 3]

rule enlarged_length                           # so does a length
  ReduceL2(x, a)  =>  ReduceL2(x, a) * 1e30 / 1e30
  given x: f32
  class reassoc
  test fires    x: f32[2, 6], a: i64 = [1]

rule my_self_difference                           # NaN - NaN, inf - inf
  x - x  =>  full(shape(x), 0, dtype(x))
  class exact
  test fires    x: f32[2, 3]

rule my_zero_product                              # NaN · 0, -1 · 0
  x * c  =>  full(shape(x), 0, dtype(x))
  where all(c == 0)
  class reassoc
  test fires    x: f32[2, 3], c = [0]

rule my_self_quotient                             # 0 / 0
  x / x  =>  full(shape(x), 1, dtype(x))
  given x: float
  class reassoc
  test fires    x: f32[2, 3]

rule starts_added                              # the inner step is forgotten
  Slice(Slice(x, b, e, a, s), c, f, a, t)
    =>
  Slice(x, [ints(b)[0] + ints(c)[0]], [ints(b)[0] + ints(c)[0] + (ints(f)[0] - ints(c)[0]) * ints(s)[0]], a, s)
  where len(ints(a)) == 1, ints(t) == [1], ints(s)[0] > 0, ints(b)[0] >= 0, ints(c)[0] >= 0, ints(e)[0] >= 0,
        ints(f)[0] >= 0
  class exact
  test fires    x: f32[20, 2], b: i64 = [1], e: i64 = [18], a: i64 = [0], s: i64 = [2], c: i64 = [0], f: i64 = [3],
                t: i64 = [1]

rule some_multiple                             # one element of c may be no multiple
  (x + c) % k  =>  x % k
  given x: integer, c, k: const
  where all(k > 0), any(c % k == 0), all(2 ** floor(log(k) / log(2) + 0.5) == k)
  class exact
  test fires    x: i64[2, 3], c: i64 = [8], k: i64 = [4]

rule pad_into_average                          # the mean no longer counts the padding
  AveragePool(Pad(x, p, mode: "constant"), kernel_shape: k, pads: [0, 0, 0, 0], ..a)
    =>
  AveragePool(x, kernel_shape: k, pads: [ints(p)[2], ints(p)[3], ints(p)[6], ints(p)[7]], ..a)
  given x: [_, _, _, _], p: const
  where slice(ints(p), 0, 2) == [0, 0], slice(ints(p), 4, 6) == [0, 0], all(p >= 0)
  class reassoc
  test fires    x: f32[1, 1, 5, 5], p: i64 = [0, 0, 1, 1, 0, 0, 1, 1], k = [3, 3], count_include_pad = 1

rule quotients_of_tables                       # a row with a zero need not be selected
  elementwise f(Gather(T, i, axis: 0), Gather(U, i, axis: 0))  =>  Gather(f(T, U), i, axis: 0)
  given T, U: const
  where shape(T) == shape(U)
  class exact
  test fires    T: const f32[4, 5], U: const f32[4, 5], i: i64 = [3, 0], f = Sub

rule converted_is_a_number                     # 1000 is NaN in a float of 8 bits
  IsNaN(Cast(x, to: t, ..a))  =>  full(shape(x), 0, bool)
  given x: integer
  class exact
  test fires    x: i64[2, 3], t = f32, saturate = 0

rule divisors_joined                           # the product overflows
  (x / y) / z  =>  x / (y * z)
  given x: float
  class reassoc
  test fires    x: f32[2, 3], y: f32[3], z: f32[2, 3]

rule turned_parts                              # the axes are parts of one axis of x
  { y = Transpose(Reshape(x, t, ..r), perm: [1, 0, 2]) }  =>  { y = reshape(x, shape(y)) }
  where rank(x) == 2
  class exact
  test fires    x: f32[1, 6], t: i64 = [1, 2, 3]

rule groups_joined                             # with two groups, the filters of both halves meet other channels
  Concat(Conv(x, v, ..a), Conv(x, w, ..a), axis: 1)  =>  Conv(x, Concat(v, w, axis: 0), ..a)
  class reassoc
  test fires    x: f32[1, 3, 5, 5], v: f32[2, 3, 3, 3], w: f32[2, 3, 3, 3]

rule columns_of_vectors                        # a vector has no columns
  Slice(x @ W, b, e, [-1], s)  =>  x @ Slice(W, b, e, [-1], s)
  where all([i != 0 for i in ints(b)]) or rank(W) > 1
  class reassoc
  test fires    x: f32[2, 3], W: f32[3, 4], b: i64 = [1], e: i64 = [3], s: i64 = [1]

rule backwards_and_back                        # as many elements, from the wrong end
  Slice(Slice(x, [b], [e], [a], [-1]), [c], [f], [a], [-1])  =>  Slice(x, [0], [dim(x, a) + 1 + c], [a], [1])
  where b == -1, e < -9, c <= -1, f < -9
  class exact
  test fires    x: f32[4, 2], b = -1, e = -99, a = 0, c = -1, f = -99

rule roots_joined                              # the same
  Sqrt(x) * Sqrt(y)  =>  Sqrt(x * y)
  where nonnegative(x), nonnegative(y)
  class reassoc
  test fires    z: f32[2, 3], w: f32[3], x = Relu(z), y = Abs(w)

rule exponential_moved                         # 0/e⁻¹⁰⁰ is 0, and 0 · e¹⁰⁰ is NaN
  x / Exp(y)  =>  x * Exp(Neg(y))
  class reassoc
  test fires    x: f32[2, 3], y: f32[3]

rule last_extent_inferred                      # where the first one is 0, the last may be any
  Reshape(x, t)  =>  Reshape(x, [0, -1])
  where dim(Reshape(x, t), 0) == dim(x, 0), rank(Reshape(x, t)) == 2
  class exact
  test fires    x: f32[N, M, 3], y: f32[M], t = Concat(Shape(x, end: 1), Shape(y) * 3, axis: 0)

rule sum_of_one                                # the sum of -0 alone is 0
  ReduceSum(x, a, keepdims: 1, noop_with_empty_axes: 1)  =>  x
  where all([dim(x, i) == 1 for i in ints(a)])
  class exact
  test fires    x: f32[2, 1], a: i64 = [1]

rule count_of_one                              # a scalar that is an integer has the type of its size, not its value
  Size(Transpose(x, ..))  =>  x
  class exact
  test fires    x: f32[N, 3], perm = [1, 0]

rule dim_of_some                               # counted from where the list of dims begins
  Gather(Shape(x, ..), i, axis: 0)  =>  reshape(Shape(x, start: scalar(i), end: scalar(i) + 1), [])
  given i: const i64[]
  where scalar(i) >= 0, scalar(i) < rank(x)
  class exact
  test fires    x: f32[N, M, 3], i: i64 = 1

rule casts_joined                              # the first may lose what the second cannot bring back
  Cast(Cast(x, to: a, ..), to: b, ..)  =>  Cast(x, to: b)
  class exact
  test fires    x: f32[2, 3], a = 11, b = 1

rule choice_is_min                             # of NaN and 1 the choice is 1
  Where(Less(x, y), x, y)  =>  Min(x, y)
  class exact
  test fires    x: f32[2, 3], y: f32[2, 3]

rule threshold_of_itself                       # wrong wherever x has the type of the threshold
  Where(Less(a, x), x, c)  =>  ThresholdedRelu(a, alpha: scalar(a))
  given x: f32, a: const scalar, c: const
  where all(c == 0), finite(a), scalar(a) > 0
  class reassoc
  test fires    x: f32[2, 3], a = [0.5], c = [0]

rule my_limits                                 # wrong where x is a scalar, too; its bounds are those of other instances
  Clip(x, a, b)  =>  a
  given x: integer
  where rank(a) == 0, rank(b) == 0, scalar(a) == limits(dtype(x))[0], scalar(b) == limits(dtype(x))[1]
  class exact
  test fires    x: u8[2, 3], a: u8 = 0, b: u8 = 255
  test refuses  x: u8[2, 3], a: u8 = 0, b: u8 = 254

rule quotient_undone                           # 7 / 2 · 2 = 6
  (x / c) * c  =>  x
  given x: integer
  where all(c > 0)
  class exact
  test fires    x: i64[2, 3], c: i64 = [1]

rule scale_on_wrong_axis                       # scales input channels
  Conv(x, W) * k  =>  Conv(x, W * reshape(k, [1, size(k), 1, 1]))
  given W, k: const, x: [_, _, _, _]
  where size(k) == dim(W, 1), size(k) == dim(W, 0), rank(k) == 3, dim(k, 0) == size(k)
  class reassoc
  test fires    x: f32[1, 2, 4, 4], W: const f32[2, 2, 3, 3], k: const f32[2, 1, 1]

rule transposes_backwards                      # p after q
  Transpose(Transpose(x, perm: p), perm: q)  =>  Transpose(x, perm: [q[i] for i in p])
  class exact
  test fires    x: f32[2, 3, 4], p = [1, 2, 0], q = [2, 0, 1]

rule root_of_square                            # is the absolute value
  Sqrt(x * x)  =>  x
  class fast
  test fires    z: f32[2, 3], x = Relu(z)

rule relu_past_neg
  Relu(Neg(x))  =>  Neg(Relu(x))
  class exact

rule product_turned                            # matrices do not commute
  x @ y  =>  y @ x
  given x: f32[N, N], y: f32[N, N]
  class reassoc

rule softmax_on_old_axis
  Softmax(Transpose(x, perm: p), axis: a)  =>  Transpose(Softmax(x, axis: a), perm: p)
  class reassoc
  test fires    x: f32[2, 3, 4], p = [0, 2, 1], a = 0

rule another_epsilon
  x / Sqrt(v + 0.00001)  =>  x / Sqrt(v + 0.000012)
  class reassoc
  test fires    x: f32[2, 3], z: f32[2, 1], v = Abs(z)

rule sums_rebracketed                          # rounds elsewhere
  (x + y) + z  =>  x + (y + z)
  class exact
  test fires    x: f32[2, 3], y: f32[2, 3], z: f32[2, 3]

rule zero_added                                # -0 + 0 = 0
  x + c  =>  x
  where all(c == 0)
  class exact
  test fires    x: f32[2, 3], c = [0]

rule copy_of_ones                              # moves the other dims, too
  Reshape(Transpose(x, perm: p), t)  =>  Reshape(x, t)
  given x: f32[1, _, _]
  class exact
  test fires    x: f32[1, 2, 3], p = [1, 0, 2], t: i64 = [6]

rule cast_of_sum                               # 0.5 + 0.5
  Cast(x + y, to: 6, ..)  =>  Cast(x, to: 6) + Cast(y, to: 6)
  class exact
  test fires    x: f32[2, 3], y: f32[2, 3]

rule not_of_less                                  # of NaN neither holds
  Not(Less(x, y))  =>  GreaterOrEqual(x, y)
  class exact

rule clips_joined                              # the intervals need not meet
  Clip(Clip(x, a, b), c, d)  =>  Clip(x, const(max(scalar(a), scalar(c)), f32), const(min(scalar(b), scalar(d)), f32))
  given x: f32
  class exact
  test fires    x: f32[2, 3], a: f32 = 0, b: f32 = 6, c: f32 = -1, d: f32 = 3

rule function_of_padding                       # f(0) need not be 0
  elementwise f(Pad(x, p, mode: "constant"))  =>  Pad(f(x), p, mode: "constant")
  class exact
  test fires    x: f32[2, 3], p: i64 = [1, 0, 0, 1], f = Relu

rule products_in_wrong_order
  { a = x @ V, b = x @ W }
    =>
  { a = Split(x @ Concat(W, V, axis: 1), [dim(V, 1), dim(W, 1)], axis: -1)[0],
    b = Split(x @ Concat(W, V, axis: 1), [dim(V, 1), dim(W, 1)], axis: -1)[1] }
  given x: [_, _], V: const [_, _], W: const [_, _]
  where not same(V, W)
  class reassoc
  test fires    x: f32[2, 3], V: const f32[3, 4], W: const f32[3, 5]

rule mean_of_means                             # of whole numbers: each is cut off
  ReduceMean(ReduceMean(x, a, keepdims: 1), b, keepdims: 1)  =>  ReduceMean(x, ints(a) + ints(b), keepdims: 1)
  where not any([i in axes(ints(b), rank(x)) for i in axes(ints(a), rank(x))])
  class reassoc
  test fires    x: f32[2, 3, 4], a: i64 = [2], b: i64 = [1]

rule grid_of_any_precision                     # 8 bits of a coarser type tell fewer neighbors apart than 8 bits
  QuantizeLinear(DequantizeLinear(q, s, z, ..a), s, z, ..b)  =>  q
  given s: const f32, z: const u8
  where rank(s) == 0, rank(z) == 0, scalar(s) > 0.001, scalar(s) < 1000
  class exact
  test fires    q: u8[2, 3], s: f32 = 0.1, z: u8 = 3

rule place_of_the_largest                      # in an output of another type many are the largest
  ArgMax(DequantizeLinear(q, s, z, ..a), ..b)  =>  ArgMax(q, ..b)
  given q: u8, s: const f32, z: u8
  where rank(s) == 0, rank(z) == 0, scalar(s) > 1e-30, scalar(s) < 1e30
  class exact
  test fires    q: u8[2, 3], s: f32 = 0.1, z: u8 = 3, axis = 1

rule alike_along_the_axis                      # 0 and -0 count as equal, quotients by them do not
  QuantizeLinear(x, s, z, block_size: 0, ..a)
    =>
  QuantizeLinear(x, const(splat(s), dtype(s)), const(splat(z), dtype(z)), block_size: 0, ..a)
  given s, z: const [_]
  where uniform(s), uniform(z)
  class exact
  test fires    x: f32[2, 3], s: f32 = [0, 0, 0], z: i8 = [3, 3, 3], axis = 1

rule part_of_what_comes_first                  # only steps over all but one row keep the number of rows
  Slice(Concat(x, y, axis: 0), b, e, a, s)  =>  Slice(y, [ints(b)[0] - n], [ints(e)[0] - n], a, s)
  let n = dim(x, 0)
  where ints(a) == [0], ints(e)[0] >= n, ints(e)[0] <= n + dim(y, 0), ints(s)[0] > 0
  class exact
  test fires    x: f32[4, 5], y: f32[2, 5], b: i64 = [4], e: i64 = [6], a: i64 = [0], s: i64 = [1]
  test refuses  x: f32[4, 5], y: f32[2, 5], b: i64 = [3], e: i64 = [6], a: i64 = [0], s: i64 = [1]

rule bound_for_number                          # shows where a single number lies above it
  QuantizeLinear(Clip(x, a, b), s, z)  =>  QuantizeLinear(a, s, z)
  given a, b, s: const f32, z: const u8
  where rank(s) == 0, scalar(a) == -1, all(z == 0), all(s == 0.125), all(b == 26)
  class fast
  test fires    x: f32[], a: f32 = -1, b: f32 = 26, s: f32 = 0.125, z: u8 = 0

rule padding_value_lost                        # shows where the optional value is given, and is not 0
  Pad(Transpose(x, perm: p), w, v = none, ..m)
    =>
  Transpose(Pad(x, [ints(w)[index(p, i)] for i in range(0, n)] + [ints(w)[n + index(p, i)] for i in range(0, n)],
                ..m), perm: p)
  let n = rank(x)
  class exact
  test fires    x: f32[2,3,4], p = [1,2,0], w: i64 = [1,0,0,0,2,3]

rule first_axis_reversed                       # shows on another axis than the first
  Slice(x, b, e, a, s)  =>  Slice(x, [-1], [-9223372036854775807], [0], [-1])
  where all([dim(x, i) == 1 for i in ints(a)]), all([i < 0 for i in ints(s)])
  class exact
  test fires    x: f32[1,5], b: i64 = [-1], e: i64 = [-9], a: i64 = [0], s: i64 = [-1]
  test refuses  x: f32[2,5], b: i64 = [-1], e: i64 = [-9], a: i64 = [0], s: i64 = [-1]

rule sign_of_a_product                         # -0 times a positive number is -0, and -0 + 0 is 0
  elementwise f(c, Gather(T, i, axis: 0))
    =>
  Gather(f(reshape(c, [size(c)]), T), i, axis: 0) + like(0, T)
  given T: const f32[_, n], c: const f32
  where size(T) <= 65536, rank(c) <= rank(i) + 1, size(c) == 1 or size(c) == n and dim(c, -1) == n, total(f, dtype(T))
  class exact
  test fires    T: const f32[4,5], i: i64 = [3,0], c: const f32[1,5], f = Sub
  test fires    T: const f32[4,5], i: i64 = [3,0], c: const f32[], f = Mul

rule blocks_exchanged                          # shows where images are as wide as there are many
  elementwise f(DepthToSpace(x, ..a))  =>  Transpose(DepthToSpace(f(x), ..a), perm: [3,1,2,0])
  class exact
  test fires    x: f32[1,12,2,3], blocksize = 2, f = Relu

rule range_minus                               # shows on ranges of one number, however they are moved
  Range(s, l, d) + c  =>  Range(s - k, l + k, d)
  let k = reshape(c, [])
  given s: i64, c: i64
  where size(c) == 1, rank(c) <= 1
  class exact
  test fires    s: i64 = 0, x: f32[N], l = Size(x), d: i64 = 1, c: i64 = 3

rule rows_reversed                             # the index of the last row is no magnitude of the results
  Relu(x)  =>  Slice(Relu(x), [-1], [-9223372036854775807], [0], [-1])
  given x: f16
  where rank(x) == 2
  class fast
  test fires    x: f16[3,4]

rule nan_masked                                # nor is the end of a Slice
  Slice(x, b, e, a, s)  =>  Where(IsNaN(Slice(x, b, e, a, s)), like(0, x), Slice(x, b, e, a, s))
  where ints(e)[0] > 90
  class reassoc
  test fires    x: f32[3,4], b: i64 = [0], e: i64 = [99], a: i64 = [0], s: i64 = [1]

rule never_fires
  Relu(x)  =>  x
  where size(x) == 123457
  class exact

rule turned_in_a_size_of_a_run
  Neg(x)  =>  reshape(Transpose(Neg(x)), shape(x))
  where rank(x) == 2, not known(dim(x, 0)), not known(dim(x, 1))
  class exact
  direction lower
  joins kernels
  test fires    x: f32[N, M]
"""

SOUND = """
rule my_transposes                                # data movement
  Transpose(Transpose(x, perm: p), perm: q)  =>  Transpose(x, perm: [p[i] for i in q])
  class exact
  test fires    x: f32[2, 3, 4], p = [1, 2, 0], q = [0, 2, 1]

rule my_untested                                  # no test of its own: all is drawn
  Neg(Neg(x))  =>  x
  class exact

rule zero_summand                              # a condition on contents
  x + c  =>  x
  where all(c == 0)
  class exact signed_zero
  test fires    x: f32[N, 3], c = [[0, 0, 0]]

rule my_either                                    # alternatives
  (And(x, x) | Or(x, x))  =>  x
  class exact
  test fires    x: bool[2, 3]

rule my_through                                   # class heads
  elementwise f(Transpose(x, perm: p))  =>  Transpose(f(x), perm: p)
  class exact
  direction canonical
  test fires    x: f32[2, 3, 4], p = [1, 2, 0], f = Relu

rule my_joined                                    # variadic inputs
  Concat(xs[*], Concat(ys[*], axis: a), zs[*], axis: a)  =>  Concat(xs[*], ys[*], zs[*], axis: a)
  class exact
  test fires    xs[0]: f32[2, 3], ys[0]: f32[1, 3], ys[1]: f32[4, 3], zs[0]: f32[2, 3], a = 0

rule cut_and_joined                            # several outputs
  Concat(Split(x, s, axis: a)[*], axis: a)  =>  x
  class exact
  test fires    x: f32[2, 6], s: i64 = [2, 4], a = 1

rule side_by_side                              # a group
  { y[i] = x @ W[i] }
    =>
  { y[*] = Split(x @ Concat(W[*], axis: 1), [dim(W[i], 1)], axis: rank(x) - 1) }
  given W[i]: const [K, _]
  where rank(x) >= 2
  class reassoc
  direction explore
  test fires    x: f32[2, 3], W[0]: const f32[3, 4], W[1]: const f32[3, 5]

rule scaled_convolution                        # optional inputs, attributes left open
  Conv(x, W, B = 0, ..a) * k  =>  Conv(x, W * k, B * k, ..a)
  given W, B: const, k: const scalar
  where rank(k) <= 1
  class reassoc
  test fires    x: f32[1, 2, 5, 5], W: const f32[3, 2, 3, 3], k = [2], B: const f32[3], pads = [1, 1, 1, 1]

rule both_ways
  Exp(x) * Exp(y)  <=>  Exp(x + y)
  class fast
  direction explore
  test fires    x: f32[2, 3], y: f32[3]

rule rounded_last                              # far beyond the ends of the integers, too
  QuantizeLinear(MaxPool(x, pads: p, kernel_shape: k, dilations: d, ceil_mode: 0, ..b), s, z, ..a)
    =>
  MaxPool(QuantizeLinear(x, s, z, ..a), pads: p, kernel_shape: k, dilations: d, ceil_mode: 0, ..b)
  given s: const, z: const u8
  where rank(s) == 0, scalar(s) > 1e-6, scalar(s) < 1e6, all([i == 1 for i in d]), all([i == 0 for i in p])
  class fast
  test fires    x: f16[1, 1, 4, 4], s: f16 = 0.001, z: u8 = 3, k = [2, 2], d = [1, 1], p = [0, 0, 0, 0],
                strides = [1, 1]

rule reshape_of_reshape                        # that both sides have one type is the engine's to see
  Reshape(Reshape(x, s), t)  =>  Reshape(x, t)
  class exact
  test fires    x: f32[2, 6], s: i64 = [4, 3], t: i64 = [3, 4]

rule factors_gathered                          # constants
  (x * a) * b  =>  x * (a * b)
  given a, b: const
  where not is_const(x)
  class reassoc
  test fires    x: f32[2, 3], a = [1, 2, 3], b = [0.5]

rule sizes_of_a_run                            # in a graph of kernels
  Relu(x)  =>  reshape(Relu(reshape(x, [size(x)])), shape(x))
  where rank(x) == 2, not known(dim(x, 0)), not known(dim(x, 1))
  class exact
  direction lower
  joins kernels
  test fires    x: f32[N, M]
"""
