"""Names that all rooms share: operators of the `rewrite` domain, and the marks that encode bodies in an e-graph."""

from itertools import count

OWN_DOMAIN = "rewrite"
"""Domain of the operators that rule files declare without a domain."""
LOWER_PRECISION = frozenset(
    f"{OWN_DOMAIN}.{name}" for name in ("MatMulBf16", "ConvBf16", "ChannelsLastConvBf16", "ImageConvBf16")
)
"""Operators of the standard library that multiply in a lower precision than that of their operands."""
CHANNELS_LAST = frozenset(
    f"{OWN_DOMAIN}.ChannelsLast{name}"
    for name in ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "ConvTranspose", "GroupNormalization")
)
"""Operators on images in NHWC layout."""
ATTENTION = frozenset(f"{OWN_DOMAIN}.{name}" for name in ("ScaledDotProductAttention", "AttentionBf16"))
"""Fused attention, with products in f32 or of operands rounded to bf16."""
BLOCKWISE = frozenset((f"{OWN_DOMAIN}.MatMulBlockwise",))
"""Products with weights of few bits, quantized in blocks."""
CACHES = frozenset((f"{OWN_DOMAIN}.UpdateCache",))
"""Writes into caches of keys and values, in place where the caller gives one array for both."""
SIZES = f"{OWN_DOMAIN}.Sizes"
"""A list of integers, or one, known from the sizes of a graph's inputs: the texts of `dims`, of the type `to`."""
KERNEL_OPERATORS = LOWER_PRECISION | CHANNELS_LAST | ATTENTION | BLOCKWISE | CACHES | {SIZES}
"""Operators of the standard library that have a kernel; any other stands for its definition."""

UNQUALIFIED = {"SimplifiedLayerNormalization": "com.microsoft.SimplifiedLayerNormalization"}
"""Operators that ONNX Runtime adds to the standard's domain: names in models, and in graphs."""

WITH_BODIES = ("If", "Loop", "Scan")
"""Operators with graphs among their attributes, which may read any number of values from the graph around them."""

ABSENT = 0
"""Handle of an absent optional input in every e-graph."""
LEAVES = ("Absent", "Input", "Const")
"""E-nodes without operands that stand for values from outside the graph."""
CAPTURES = "$captures"
"""Attribute with the names of the values that the bodies of a node capture: the last children of its e-node."""
LOCAL = "$"
"""Prefix of the names under which bodies made by rules read captured values."""


def unique_name(hint: str, taken: set[str]) -> str:
    """Return `hint`, or the first of `hint_2`, `hint_3`, … that is free, and add it to `taken`."""
    name = next(name for n in count(1) if (name := hint if n == 1 else f"{hint}_{n}") not in taken)
    taken.add(name)
    return name
