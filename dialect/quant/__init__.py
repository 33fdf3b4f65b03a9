"""Quantised operators: integers that stand for (q - zero point) * scale, with every rounding declared."""

from . import contractions, elementwise, fixed_point, pooling, requantize  # noqa: F401
