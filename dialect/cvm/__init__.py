"""CVM-Runtime's operators: deterministic integer neural networks. Elements are i32; arithmetic wraps modulo 2^32."""

from . import broadcast, elementwise, nn, reduce, select, slice, transform, views, vision

__all__ = ["broadcast", "elementwise", "nn", "reduce", "select", "slice", "transform", "views", "vision"]
