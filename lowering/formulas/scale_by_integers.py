"""Scale integers by a multiplier and a shift where f64 arithmetic is by a library.

    i64(minimum(maximum(round_half_away(f64(x[n]) * 0.0004), -142.0), 113.0))
    =>  i64(t) * 3602879701896 + (4503599627370496 + (i64(t >> 31) & -1)) >> 53
        where t = min(max(x[n], -356250), 283750)

Legal where x is i32: the result steps up at as many numbers as it has values. These are found with
floats, and multiplier and summand are taken if the integers step up at each of them. Pays on
processors without f64, whose int8 models then have no float.
"""

from dataclasses import replace

import numpy as np

from ...dialect.kernel_ir.expressions import Apply, Cast, Const, Expr, Read, Tensor, apply, constant
from ...dialect.kernel_ir.formulas import Formula, Formulas
from ...dialect.kernel_ir.traverse import rewrite
from ...dialect.types.tensor_types import F64, I32, I64, ElementType
from ..passes import formula_pass
from ..processor import processor

BITS = 61  # of products, with one to spare for the sum


@formula_pass
def scale_by_integers(program: Formulas) -> Formulas:
    """The formulas with scaled integers rounded by integers."""
    if processor().has_doubles:
        return program
    constants = dict(program.constants)

    def change(e: Expr) -> Expr | None:
        match e:
            case Cast(
                Apply("minimum", (Apply("maximum", (rounded, Const(low))), Const(high))), to
            ) if to is I64 and (scaled := _rounded(rounded)) is not None:
                x, by = scaled
                scales = _known(by, constants)
                if scales is None or (found := _steps(scales.reshape(-1), low, high)) is None:
                    return None
                *columns, shift = found
                x = rewrite(x, change)
                like = [
                    _like(by, v.reshape(scales.shape), t, constants)
                    for v, t in zip(columns, (I64, I64, I64, I32, I32), strict=True)
                ]
                multiplier, more, less, below, above = like
                inside = apply("min", apply("max", x, below), above)
                more = more + (Cast(inside >> constant(31, I32), I64) & less)
                y = (Cast(inside, I64) * multiplier + more) >> constant(shift, I64)
                if scales.max() <= 1:
                    return y
                ends = constant(int(low), I64), constant(int(high), I64)  # a step may go past them
                return apply("min", apply("max", y, ends[0]), ends[1])
        return None

    steps = tuple(
        replace(s, value=rewrite(s.value, change)) if isinstance(s, Formula) else s
        for s in program.steps
    )
    return replace(program, steps=steps, constants=constants)


def _rounded(e: Expr) -> tuple[Expr, Const | Read] | None:
    """The integer and the scale of a scaled integer that is rounded, halves away from zero."""
    match e:
        case Apply(
            "select",
            (
                Apply("ge", (Apply("sub", (x, Apply("trunc", (y,)) as whole)) as rest, Const(0.5))),
                Apply("add", (up, Const(1.0))),
                Apply(
                    "select",
                    (
                        Apply("le", (same, Const(-0.5))),
                        Apply("sub", (down, Const(1.0))),
                        otherwise,
                    ),
                ),
            ),
        ) if same is rest and x is y and up is down is otherwise is whole:
            match x:
                case Apply("mul", (Cast(integer, to), (Const() | Read()) as by)) if (
                    integer.type is I32 and to is F64
                ):
                    return integer, by
    return None


def _known(by: Const | Read, constants: dict[Tensor, np.ndarray]) -> np.ndarray | None:
    return np.array(by.value) if isinstance(by, Const) else constants.get(by.tensor)


def _like(
    by: Const | Read, values: np.ndarray, element: ElementType, constants: dict[Tensor, np.ndarray]
) -> Expr:
    """Constants where those of `by` are read."""
    if isinstance(by, Const) or (values == values.flat[0]).all():
        return constant(int(values.flat[0]), element)
    tensor = Tensor(f"{by.tensor.name}.{len(constants)}", by.tensor.shape, element, "constant")
    constants[tensor] = values.astype(element.dtype)
    return Read(tensor, by.indices)


def _steps(
    scales: np.ndarray, low: float, high: float
) -> tuple[*tuple[np.ndarray, ...], int] | None:
    """The numbers of `_step` for all scales, and the shift; None where no integers give the same
    for one.
    """
    if low != int(low) or high != int(high) or not low < high or not (scales > 0).all():
        return None
    shift = BITS - int(max(-low, high) + 1).bit_length()
    values = np.arange(int(low) + 1, int(high) + 1)
    steps = [_step(float(scale), values, shift) for scale in scales]
    if any(f is None for f in steps):
        return None
    return *(np.array(c, np.int64) for c in zip(*filter(None, steps), strict=True)), shift


def _step(scale: float, values: np.ndarray, shift: int) -> tuple[int, ...] | None:
    """A multiplier, a summand and what negative numbers have more, and the integers before the
    first step and at the last.
    """
    multiplier = round(scale * 2.0**shift)  # near enough where each step fits
    steps = _first(scale, values)
    inside = (steps > I32.limits[0]) & (steps <= I32.limits[1])
    if not inside.any() or not 0 < multiplier < 1 << BITS:
        return None
    half = 1 << shift - 1
    summands = []
    places = steps[inside].tolist()
    pairs = [(n, k << shift) for n, k in zip(places, values[inside].tolist(), strict=True)]
    for negative in (False, True):  # a float product may be a half where the exact one is not
        least = [product - n * multiplier for n, product in pairs if (n < 0) is negative]
        most = [product - (n - 1) * multiplier - 1 for n, product in pairs if (n < 1) is negative]
        summands.append(min(max([half - negative, *least]), *most, 1 << shift))
        if summands[-1] < max(least, default=0):
            return None
    return multiplier, summands[0], summands[1] - summands[0], places[0] - 1, places[-1]


def _first(scale: float, values: np.ndarray) -> np.ndarray:
    """The least integers whose scaled ones are rounded to values, or more."""
    low, high = (np.full(len(values), v, np.int64) for v in (I32.limits[0] - 1, I32.limits[1] + 1))
    while (high - low > 1).any():
        middle = (low + high) // 2
        scaled = middle.astype(np.float64) * scale
        whole = np.trunc(scaled)
        reaches = np.where(np.abs(scaled - whole) >= 0.5, whole + np.sign(scaled), whole) >= values
        high, low = np.where(reaches, middle, high), np.where(reaches, low, middle)
    return high
