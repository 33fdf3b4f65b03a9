"""Random networks of floats as programs."""

from __future__ import annotations

import numpy as np

FACTORS = 0.0, 0.0, 1e-30, 1e-42, 1e6, 1e30, 1.0, 1.0, np.inf, np.nan
LITERT = (
    "func @main(%x: tensor<2x{c}x{h}x{w}xf32>) -> tensor<{to}xf32> {{\n{lines}  return %{y}\n}}"
)


def random_network(random: np.random.Generator, special: bool = False) -> str:
    """Layers, windows, clamps, tables and operators of two values, in random order; `special` ones
    have axes of size 1, and weights that are 0, very large or small, infinite or NaN.
    """
    (c, h, w), lines = random.integers(1 if special else 3, 7, 3).tolist(), list[str]()
    shape, values = (c, h, w), [("x", (c, h, w))]

    def put(text: str, *to: int) -> None:
        values.append((f"v{len(lines)}", to))
        lines.append(f"  %{values[-1][0]} = {text}\n")

    def const(*of: int) -> str:
        array = random.normal(size=of)
        if special:
            array[: random.integers(len(array) + 1)] *= random.choice(FACTORS)
        put(f"const dense<{array.tolist()}> : tensor<{'x'.join(map(str, of))}xf32>")
        return "%" + values.pop()[0]

    def scalar(op: str, *operands: str) -> None:
        put(f'theano.elemwise {", ".join(operands)} {{scalar_op = "{op}"}}', *shape)

    for kind in random.integers(0, 9, int(random.integers(2, 7))):
        name, shape = values[-1]
        (c, h, w), v = shape, f"%{name}"
        other = "%" + random.choice([n for n, s in values if s == shape])
        if kind == 0:
            p, q, k = *random.integers(0, 2, 2).tolist(), int(random.integers(1, 4))
            to = int(random.integers(1, 4))
            pads = f"padding = [{p}, {q}], stride = [1, 2]"
            w_and_b = f"{const(to, c, 1, min(k, w))}, {const(to)}"
            columns = (w + 2 * q - min(k, w)) // 2 + 1
            put(f"cvm.conv2d {v}, {w_and_b} {{{pads}}}", to, h + 2 * p, columns)
        elif kind == 1:
            kernel = const(2 * c, 1, 3, 3)
            put(f"cvm.conv2d {v}, {kernel} {{padding = [1, 1], groups = {c}}}", 2 * c, h, w)
        elif kind == 2:
            size = [min(h, 2), min(w, 2)]
            pool = f"pool_size = {size}, strides = {size}, padding = [0, 0], ceil_mode = true"
            put(f"cvm.max_pool2d {v} {{{pool}}}", c, -(-h // size[0]), -(-w // size[1]))
        elif kind == 3:  # an average
            ones = "strides = [1, 1], dilations = [1, 1]"
            ends = "before = [1, 0], after = [1, 0]"
            put(f"builtin.windows {v} {{axes = [2, 3], sizes = [3, 1], {ones}, {ends}}}")
            v = "%" + values.pop()[0]
            put(f"theano.sum {v} {{axis = [4, 5], dtype = f32, acc_dtype = f32}}", *shape)
            scalar("true_div", "%" + values[-1][0], "3.0 : f32")
        elif kind == 4:
            low, high = ((0.0, 6.0), (-0.5, 0.75))[random.integers(2)]
            scalar("maximum", v, f"{low} : f32")
            scalar("minimum", "%" + values[-1][0], f"{high} : f32")
        elif kind == 5:
            scalar(str(random.choice(["tanh", "sigmoid"])), v)
        elif kind == 6:
            scalar(str(random.choice(["add", "sub", "mul"])), v, other)
        elif kind == 7:
            put(f"cvm.concatenate {v}, {other} {{axis = 1}}", 2 * c, h, w)
        else:
            put(f"cvm.transpose {v} {{axes = [0, 1, 3, 2]}}", c, w, h)
    (c, h, w), (y, to) = values[0][1], values[-1]
    return LITERT.format(c=c, h=h, w=w, to="x".join(map(str, (2, *to))), lines="".join(lines), y=y)
