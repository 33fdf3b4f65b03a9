"""Quantised operators: integers that stand for (q - zero point) * scale, with every rounding
declared.
"""

from . import (
    contractions,
    elementwise,
    fixed_point_reciprocal as clz_reciprocal,
    pooling,
    requantize,
)
