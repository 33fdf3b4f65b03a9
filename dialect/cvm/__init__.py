"""CVM-Runtime's operators: deterministic integer neural networks. Elements are i32; arithmetic
wraps modulo 2^32.

Operators that mean the same of floats take f32 and f64 as well, so that networks can be trained.
"""

from . import (  # noqa: F401
    broadcast,
    elementwise,
    nn,
    reduce,
    reshape,
    slice,
    take_where,
    transpose_tile_concatenate,
    vision,
)
