"""Quantised operators: integers that stand for (q - zero point) * scale, with every rounding declared."""

from . import contractions, pooling, requantize

__all__ = ["contractions", "pooling", "requantize"]
