"""The small models that tests in the standard library name: `python -m tests.project.rule_models` writes them again."""

from __future__ import annotations

from pathlib import Path

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'

_BRANCHES = """g (bool c, float[2, 2] x, float[2, 2] y) => (float[2, 2] z) {{
  z = If (c) <then_branch = t () => (float[2, 2] p) {{ p = {then} }},
              else_branch = e () => (float[2, 2] q) {{ q = {other} }}>
}}"""
_QUOTIENT = _BRANCHES.replace("float", "int32").format(then="Div (x, y)", other="Sub (x, y)")
_TRUTH = """g (bool c, float[2, 2] x, float[2, 2] y) => (bool[2, 2] z) {
  z = If (c) <then_branch = t () => (bool[2, 2] p) { p = Less (x, y) },
              else_branch = e () => (bool[2, 2] q) { q = Equal (x, y) }>
}"""
_BRANCHES_OF_TWO = """g (bool c, float[2] x) => (float[2] z, float[2] w) {{
  z, w = If (c) <then_branch = t () => (float[2] p, float[2] q) {{ p = Neg (x)  q = {then} (x) }},
                 else_branch = e () => (float[2] r, float[2] s) {{ r = Abs (x)  s = {other} (x) }}>
}}"""
_LOOP = """g (float[2] x, float[2] y) => (float[2] z, float[2] w) <int64 n = {{{times}}}> {{
  z, w = Loop (n, , x, y) <body = b (int64 i, bool go, float[2] p, float[2] q) => (bool on, float[2] r, float[2] s) {{
    on = Identity (go)
    r = Add (p, q)
    s = Mul (q, x)
  }}>
}}"""
_LOOP_OF_ONE = """g (float[2] x, float[2] y) => (float[2] z) <int64 n = {{{times}}}> {{
  z = Loop (n, , x) <body = b (int64 i, bool go, float[2] p) => (bool on, float[2] r) {{
    on = Identity (go)
    r = Mul (p, y)
  }}>
}}"""
_SCAN = """g (float[5, 2] x, float[5, 2] y, float[{shape}] k) => (float[5, 2] z, float[5, 2] w) {{
  z, w = Scan <num_scan_inputs = 2, body = b (float[2] p, float[2] q) => (float[2] r, float[2] s) {{
    r = Add (p, q)
    s = {op} (r, k)
  }}> (x, y)
}}"""
_SCAN_OF_ONE = """g (float[5, 2] x, float[{shape}] k) => (float[5, 2] z) {{
  z = Scan <num_scan_inputs = 1, body = b (float[2] p) => (float[2] r) {{ r = {op} (p, k) }}> (x)
}}"""
_SCAN_QUOTIENT = """g (int32[N, 2] x, int32[2] k, int32[2] l) => (int32[N, 2] z) {
  z = Scan <num_scan_inputs = 1, body = b (int32[2] p) => (int32[2] r) { q = Div (k, l)  r = Add (p, q) }> (x)
}"""
_LOOP_INVARIANT = """g (float[4, 4] x, float[4, 4] y{given}) => (float[4, 4] z, float[4, 4] w){constant} {{
  z, w = Loop (n, , x, y) <body = b (int64 i, bool go, float[4, 4] p, float[4, 4] q)
      => (bool on, float[4, 4] r, float[4, 4] s) {{
    on = Identity (go)
    t = MatMul (x, y)
    u = Softmax (t)
    r = Add (p, u)
    s = Mul (q, t)
  }}>
}}"""
_LOOP_UNCHANGED = """g (float[2] x, float[2] y) => (float[2] z, float[2] w) <int64 n = {9}> {
  z, w = Loop (n, , x, y) <body = b (int64 i, bool go, float[2] p, float[2] q) => (bool on, float[2] r, float[2] s) {
    on = Identity (go)
    t = Sin (q)
    r = Add (p, t)
    s = Identity (q)
  }>
}"""
_LOOP_UNREAD = """g (float[2] x, float[2] y) => (float[2] z) <int64 n = {9}> {
  z, w, o = Loop (n, , x, y) <body = b (int64 i, bool go, float[2] p, float[2] q)
      => (bool on, float[2] r, float[2] s, float[2] m) {
    on = Identity (go)
    r = Sin (p)
    s = Add (p, q)
    m = Exp (q)
  }>
}"""
_LOOP_TWINS = """g (float[2] x, float[2] y) => (float[2] z, float[2] w, float[2] k) <int64 n = {{9}}> {{
  z, w, k = Loop (n, , x, x, y) <body = b (int64 i, bool go, float[2] p, float[2] q, float[2] l)
      => (bool on, float[2] r, float[2] s, float[2] m) {{
    on = Identity (go)
    r = Sin (p)
    s = {op} (q)
    m = Add (p, q)
  }}>
}}"""
_LOOP_FLAG = """g (float[2] x, bool go) => ({results}) <int64 n = {{9}}, bool[1] no = {{0}}, bool never = {{0}}> {{
  z, f = Loop (n, , x, go) <body = b (int64 i, bool on, float[2] p, bool[] q) => (bool more, float[2] r, bool[] s) {{
    {steps}
    s = If (q) <then_branch = t () => (bool[] a) {{ a = Or (q, no) }},
                else_branch = e () => (bool d) {{ d = Identity (never) }}>
    more = Not (s)
  }}>
}}"""
_RANK_OF_FLAG = "h = Shape (q)  k = Size (h)  l = Cast <to = 1> (k)  r = Add (p, l)"
_SCAN_INVARIANT = """g (float[5, 2] x, float[2, 2] k, float[2] y) => (float[2] z, float[5, 2] w) {
  z, w = Scan <num_scan_inputs = 1, body = b (float[2] p, float[2] q) => (float[2] r, float[2] s) {
    t = MatMul (y, k)
    r = Add (p, t)
    s = Mul (q, t)
  }> (y, x)
}"""
_LOOP_OF_PRODUCTS = """g (float[5, 1, 2] x, float[2, 2] k, float[1, 2] h, int64 n)
    => (float[1, 2] z, float[T, 1, 2] w) {{
  z, w = Loop (n, , h) <body = b (int64 i, bool go, float[1, 2] p) => (bool on, float[1, 2] r, float[1, 2] s) {{
    on = Identity (go)
    five = Constant <value_int = 5> ()
    j = Mod (i, five)
    q = Gather <axis = 0> (x, j)
    t = MatMul ({left}, k)
    u = Add (t, p)
    r = Tanh (u)
    s = Mul (r, q)
  }}>
}}"""
_SCAN_OF_PRODUCTS = """g (float[5, 2] x, float[2, 2] k, float[2] h) => (float[2] z, float[5, 2] w) {
  z, w = Scan <num_scan_inputs = 1, body = b (float[2] p, float[2] q) => (float[2] r, float[2] s) {
    t = MatMul (q, k)
    u = MatMul (p, k)
    v = Add (t, u)
    r = Tanh (v)
    s = Mul (r, q)
  }> (h, x)
}"""
_SCAN_OF_ONE_OF_PRODUCTS = """g (float[5, 2] x, float[2, 3] k, float[2, 3] l) => (float[5, 3] z) {
  z = Scan <num_scan_inputs = 1, body = b (float[2] p) => (float[3] r) {
    s = MatMul (p, k)
    t = MatMul (p, l)
    r = Max (s, t)
  }> (x)
}"""

MODELS = {
    "if_same": _BRANCHES.format(then="Add (x, y)", other="Add (x, y)"),
    "if_pointwise": _BRANCHES.format(then="Add (x, y)", other="Sub (x, y)"),
    "if_quotient": _QUOTIENT,
    "if_truth": _TRUTH,
    "if_products": _BRANCHES.format(then="MatMul (x, y)", other="Add (x, y)"),
    "if_same_second": _BRANCHES_OF_TWO.format(then="Relu", other="Relu"),
    "if_two": _BRANCHES_OF_TWO.format(then="Relu", other="Exp"),
    "loop_0": _LOOP.format(times=0),
    "loop_3": _LOOP.format(times=3),
    "loop_9": _LOOP.format(times=9),
    "loop_of_one_0": _LOOP_OF_ONE.format(times=0),
    "loop_of_one_3": _LOOP_OF_ONE.format(times=3),
    "loop_of_one_9": _LOOP_OF_ONE.format(times=9),
    "loop_invariant": _LOOP_INVARIANT.format(given="", constant=" <int64 n = {9}>"),
    "loop_invariant_0": _LOOP_INVARIANT.format(given="", constant=" <int64 n = {0}>"),
    "loop_invariant_n": _LOOP_INVARIANT.format(given=", int64 n", constant=""),
    "loop_unchanged": _LOOP_UNCHANGED,
    "loop_unread": _LOOP_UNREAD,
    "loop_twins": _LOOP_TWINS.format(op="Sin"),
    "loop_no_twins": _LOOP_TWINS.format(op="Cos"),
    "loop_flag": _LOOP_FLAG.format(results="float[2] z", steps="r = Sin (p)"),
    "loop_flag_read": _LOOP_FLAG.format(results="float[2] z, bool f", steps="r = Sin (p)"),
    "loop_flag_shape": _LOOP_FLAG.format(results="float[2] z", steps=_RANK_OF_FLAG),
    "scan_invariant": _SCAN_INVARIANT,
    "loop_of_products": _LOOP_OF_PRODUCTS.format(left="q"),
    "loop_products": _LOOP_OF_PRODUCTS.format(left="p"),
    "scan_of_products": _SCAN_OF_PRODUCTS,
    "scan_of_one_of_products": _SCAN_OF_ONE_OF_PRODUCTS,
    "scan_pointwise": _SCAN.format(op="Mul", shape="2"),
    "scan_quotient": _SCAN_QUOTIENT,
    "scan_products": _SCAN.format(op="MatMul", shape="2, 2"),
    "scan_of_one_pointwise": _SCAN_OF_ONE.format(op="Mul", shape="2"),
    "scan_of_one_products": _SCAN_OF_ONE.format(op="MatMul", shape="2, 2"),
}


def contents(text: str) -> bytes:
    """The file of a model given as ONNX text."""
    import onnx.parser

    model = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


if __name__ == "__main__":
    for name, text in MODELS.items():
        (Path(__file__).parents[2] / "rules" / "models" / f"{name}.onnx").write_bytes(contents(text))
