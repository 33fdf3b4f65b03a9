"""Quantised operators: integers that stand for (q - zero point) * scale, with every rounding declared."""

from . import clz_reciprocal, contractions, elementwise, pooling, requantize  # noqa: F401
