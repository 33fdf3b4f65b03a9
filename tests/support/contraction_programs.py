"""Programs of one contraction: of an image or rows by weights, which are an argument or
constant.
"""

from __future__ import annotations

from math import inf

import numpy as np
from cvm.lowering.contraction.strategies import STRATEGIES

Shape = tuple[int, ...]
Contraction = tuple[str, Shape, Shape]  # the operation, and the shapes of what it takes


def preferred(name: str = "", without: tuple[str, ...] = ()) -> tuple[tuple[str, float], ...]:
    """Factors of the strategies' costs that leave some out, and by which one is taken wherever it
    applies.
    """
    left_out = tuple((s.name, inf) for s in STRATEGIES if s.name.startswith(without or "-"))
    return (*left_out, (name, 0)) if name and name not in dict(left_out) else left_out


def text(
    program: Contraction, declared: str = "", weights: np.ndarray | str = "", more: str = ""
) -> str:
    """Its text. `declared` is said of the image, and `weights` of the weights, unless it is what
    they are; `more` makes %z of %y.
    """
    operation, x, w = program
    image, kernel = (f"tensor<{'x'.join(map(str, s))}xi32>" for s in (x, w))
    given, constant = f", %w: {kernel}{weights}", ""
    if isinstance(weights, np.ndarray):
        given, constant = "", f"  %w = const dense<{weights.tolist()}> : {kernel}\n"
    result = "%z" if more else "%y"
    return (
        f"func @main(%x: {image}{declared}{given}) {{\n{constant}  %y = {operation}\n"
        f"{more}  return {result}\n}}\n"
    )
