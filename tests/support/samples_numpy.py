"""Random ufuncs of NumPy over arrays: exact ones, so that formulas and references agree bit for
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvm.dialect.numpy.ufunc_table import UFUNCS
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.types.tensor_types import BF16, ELEMENT_TYPES, F16
from samples import between, flag, sample, shape
from samples_dali import values

REALS = tuple(e for e in ELEMENT_TYPES.values() if e.kind != "complex" and e not in (F16, BF16))
NOT_SAMPLED = (
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "where",
    "rad2deg",
    "deg2rad",
)  # zeros of two signs, three operands
EXACT = [n for n, row in UFUNCS.items() if not row.ulps and n not in NOT_SAMPLED]


@sample(OPERATORS["numpy.elementwise"])
def elementwise(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n = shape(random)
    while True:
        name = str(random.choice(EXACT))
        row = UFUNCS[name]
        elements = tuple(REALS[int(k)] for k in random.integers(0, len(REALS), row.arity))
        if row.loop(elements) is not None and F16 not in (row.loop(elements) or ()):
            break
    arrays = [
        values(random, e, n[between(random, 0, len(n)) if flag(random) else 0 :]) for e in elements
    ]
    return cls(tuple(arrays), ufunc=name)


@sample(OPERATORS["numpy.gcd"])
def gcd(random: np.random.Generator, cls: Any) -> Operator[np.ndarray]:
    n, integers = shape(random), [e for e in REALS if e.is_integer]
    element = integers[between(random, 0, len(integers) - 1)]
    return cls(values(random, element, n), values(random, element, n))
