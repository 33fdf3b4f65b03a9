"""Quantized operators: integers that stand for (q - zero point) * scale, with every rounding
declared.
"""

from . import (  # noqa: F401  (registers the operators)
    contractions,
    elementwise,
    fixed_point_reciprocal,
    pooling,
    requantize,
)
