"""Evaluate expressions of index notation in NumPy, for all values of their indices at once, as they
are defined.

    sum[%k in 0..3](%x[%i, %k])  =>  zeros + x[i, 0] + x[i, 1] + x[i, 2], i being all indices

Both sides of a guarded value are computed, from elements that exist, and the right one is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from ...dialect.kernel_ir import expressions as ex
from ...dialect.kernel_ir.loops import identity
from ...dialect.kernel_ir.scalar_functions import SCALARS
from ...dialect.support.diagnostics import CallError, Diagnostic
from ...dialect.types.cast_arrays import converted
from ...dialect.types.sizes import evaluate


@dataclass
class Evaluation:
    """Arrays by tensor, sizes by atom, and the values of indices: numbers, or arrays that broadcast
    with each other.
    """

    arrays: Mapping[ex.Tensor, np.ndarray] = field(default_factory=dict[ex.Tensor, np.ndarray])
    sizes: Mapping[Any, int] = field(default_factory=dict[Any, int])

    def shape(self, tensor: ex.Tensor) -> tuple[int, ...]:
        return tuple(evaluate(d, self.sizes) for d in tensor.shape)

    def values(self, e: ex.Expr, points: Mapping[ex.Expr, Any], where: Any = True) -> np.ndarray:
        """The values of an expression at these points. A check that fails `where` it is needed
        raises CallError.
        """
        done: dict[tuple[ex.Expr, int], np.ndarray] = {}

        def of(e: ex.Expr, where: Any) -> np.ndarray:
            if (key := (e, id(where))) not in done:
                done[key] = np.asarray(points[e] if e in points else found(e, where))
            return done[key]

        def found(e: ex.Expr, where: Any) -> Any:
            match e:
                case ex.Const(value, type):
                    return np.array(value, type.dtype)
                case ex.Extent(size):
                    return np.int64(evaluate(size, self.sizes))
                case ex.Read(tensor, indices):
                    array = self.arrays[tensor]
                    at = tuple(
                        np.clip(of(i, where), 0, n - 1)
                        for i, n in zip(indices, array.shape, strict=True)
                    )
                    return np.zeros((), array.dtype) if 0 in array.shape else array[at]
                case ex.Apply(function, operands, _):
                    return SCALARS[function].numpy(*(of(o, where) for o in operands))
                case ex.Cast(operand, type):
                    return converted(of(operand, where), type)
                case ex.Bitcast(operand, type):
                    return (
                        np.ascontiguousarray(of(operand, where))
                        .view(type.dtype)
                        .reshape(of(operand, where).shape)
                    )
                case ex.When(condition, then, otherwise):
                    holds = of(condition, where)
                    sides = where & holds, where & ~holds
                    masks.extend(sides)
                    return np.where(holds, of(then, sides[0]), of(otherwise, sides[1]))
                case ex.Check(condition, value, message, span):
                    if not np.all(of(condition, where) | ~np.asarray(where)):
                        raise CallError(Diagnostic(message, span, "run"))
                    return of(value, where)
                case ex.Reduce(function, over, body):
                    total = of(identity(function, body.type), where)
                    for point in product(*(range(evaluate(i.extent, self.sizes)) for i in over)):
                        inside = {**points, **dict(zip(over, map(np.int64, point), strict=True))}
                        total = SCALARS[function].numpy(total, self.values(body, inside, where))
                    return total
            raise TypeError(f"no values of {e.__class__.__name__}")

        masks = []  # which ids in `done` stand for
        with np.errstate(all="ignore"):
            return of(e, where)
