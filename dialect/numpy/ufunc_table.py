"""A universal function of NumPy, as a row of one table: its NumPy function, the formula of an
element and a derivative.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..kernel_ir.expressions import Expr
from ..theano.complex_arithmetic import Z
from ..types.tensor_types import BY_DTYPE, ElementType, compute_type
from .astype_formula import cast_like_numpy

Formula = Callable[..., Expr]


@dataclass(frozen=True)
class Ufunc:
    """One row. `numpy` is the function itself, `ufunc` what says its types; of several results this
    is result `result`.

    `formula` takes expressions of the loop's element types (f16 and bf16 as f32) and gives the
    result's element. `types` replaces NumPy's own resolution for functions that are no ufuncs.
    `ulps` bounds the distance from NumPy's result.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    formula: Formula
    ufunc: np.ufunc | None = None
    result: int = 0
    takes_complex: bool = False
    keeps_f16: bool = False
    gradient: str | None = None  # the scalar operation of Theano that has the same derivative
    ulps: int = 0
    types: Callable[..., tuple[ElementType, ...] | None] | None = None

    def loop(self, elements: tuple[ElementType, ...]) -> tuple[ElementType, ...] | None:
        """The element types that operands are converted to, and the result's; None where NumPy has
        no loop for these.
        """
        elements_of_loop = (
            self.types(*elements)
            if self.types is not None
            else resolved(self.ufunc, self.result, elements)
        )
        if elements_of_loop is None or (
            not self.takes_complex and any(e.kind == "complex" for e in elements_of_loop)
        ):
            return None
        return elements_of_loop

    def expression(self, operands: list[Expr], result: ElementType) -> Expr:
        types = self.loop(tuple(o.type for o in operands))
        assert types is not None
        given = [cast_like_numpy(o, t) for o, t in zip(operands, types, strict=False)]
        if not self.keeps_f16:
            given = [cast_like_numpy(o, compute_type(o.type)) for o in given]
        return cast_like_numpy(self.formula(*given), result)


@lru_cache(maxsize=4096)
def resolved(
    ufunc: np.ufunc | None, result: int, elements: tuple[ElementType, ...]
) -> tuple[ElementType, ...] | None:
    """The element types of the operands and of one result in the loop that NumPy chooses, or None
    if there is no such loop.
    """
    assert ufunc is not None
    try:
        dtypes = ufunc.resolve_dtypes((*(e.dtype for e in elements), *(None,) * ufunc.nout))
    except TypeError:
        return None
    chosen = [*dtypes[: ufunc.nin], dtypes[ufunc.nin + result]]
    return tuple(BY_DTYPE[d] for d in chosen) if all(d in BY_DTYPE for d in chosen) else None


UFUNCS: dict[str, Ufunc] = {}


def complex_or(of_reals: Formula, of_parts: Any) -> Formula:
    """The formula of real elements, and of complex ones that of their parts, in f64."""

    def formula(*operands: Expr) -> Expr:
        if operands[0].type.kind != "complex":
            return of_reals(*operands)
        result = of_parts(*map(Z.of, operands))
        return result.expression(operands[0].type) if isinstance(result, Z) else result

    return formula


def row(name: str, formula: Formula, **more: Any) -> None:
    """Enters a ufunc of NumPy into the table, by its name there."""
    assert name not in UFUNCS, f"{name} is there twice"
    ufunc: np.ufunc = getattr(np, name)
    UFUNCS[name] = Ufunc(name, ufunc.nin, ufunc, formula, ufunc, **more)


def row_of_result(name: str, of: str, result: int, formula: Formula, **more: Any) -> None:
    """Enters one result of a ufunc that has several."""
    found: np.ufunc = getattr(np, of)
    UFUNCS[name] = Ufunc(
        name, found.nin, lambda *xs: found(*xs)[result], formula, found, result, **more
    )
