"""CVM-Runtime's operators: deterministic integer neural networks. Elements are i32; arithmetic wraps modulo 2^32.

Operators that mean the same of floats take f32 and f64 as well, so that networks can be trained.
"""

from . import broadcast, elementwise, nn, reduce, slice, vision
from . import reshape as views
from . import take_where as select
from . import transpose_tile_concatenate as transform

__all__ = ["broadcast", "elementwise", "nn", "reduce", "select", "slice", "transform", "views", "vision"]
