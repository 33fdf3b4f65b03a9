"""The arithmetic of PTX instructions on registers: a row by name, from modifiers to a function of
arrays.

A row has the types of its operands and of its result, since an instruction names only one of
them.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from . import bit_operations, float_operations
from .ptx import Instruction, Unsupported
from .ptx_types import TRUTH, TYPES, WORD, Array, Compute, Operation, dtype


def operation(i: Instruction) -> Operation:
    if i.name not in _ROWS:
        raise Unsupported(f"the instruction {i}")
    return _ROWS[i.name](i)


def _same(compute: Compute) -> Callable[[Instruction], Operation]:
    """Operands and result of the instruction's type."""
    return lambda i: Operation((dtype(i.type),) * (len(i.operands) - 1), dtype(i.type), compute)


def _high(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    kind = a.dtype
    if kind.itemsize < 8:
        wide = np.dtype(f"{kind.kind}{2 * kind.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> (8 * kind.itemsize)).astype(kind)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x = a.view(np.uint64) if a.flags.c_contiguous else a.astype(np.uint64)
    y = np.asarray(b).astype(np.uint64)
    xl = x & mask
    xh = x >> shift
    yl = y & mask
    yh = y >> shift
    low, one, two = xl * yl, xh * yl, xl * yh
    middle = (low >> shift) + (one & mask) + (two & mask)
    high = xh * yh + (one >> shift) + (two >> shift) + (middle >> shift)
    if kind.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(kind)


def _mul(i: Instruction) -> Operation:
    kind = dtype(i.type)
    if "wide" in i.modifiers:
        wide = np.dtype(f"{kind.kind}{2 * kind.itemsize}")
        return Operation((kind, kind), wide, lambda a, b: a.astype(wide) * b.astype(wide))
    if "hi" in i.modifiers:
        return Operation((kind, kind), kind, _high)
    _directed(i)
    return Operation((kind, kind), kind, np.multiply)


def _directed(i: Instruction) -> None:
    if any(m in i.modifiers for m in ("rz", "rm", "rp", "sat", "cc")):
        raise Unsupported(f"the instruction {i}")


def _mad(i: Instruction) -> Operation:
    product = _mul(i)
    return Operation(
        (*product.operands, product.result),
        product.result,
        lambda a, b, c: product.compute(a, b) + c,
    )


def _fma(i: Instruction) -> Operation:
    kind = dtype(i.type)
    if (
        rounding := next((m for m in i.modifiers if m in ("rz", "rm", "rp")), "")
    ) and i.type == "f32":
        return Operation(
            (kind,) * 3, kind, lambda a, b, c: float_operations.fma_toward(a, b, c, rounding)
        )
    _directed(i)
    return Operation((kind,) * 3, kind, float_operations.fma)


def _plain(function: Compute) -> Callable[[Instruction], Operation]:
    """As `_same`; NumPy rounds to nearest, and other roundings of f32 are done in double
    precision.
    """

    def row(i: Instruction) -> Operation:
        rounding = next((m for m in i.modifiers if m in ("rz", "rm", "rp")), "")
        if rounding and i.type == "f32" and i.name in ("add", "sub"):
            sign = np.float32(-1 if i.name == "sub" else 1)
            return _same(
                lambda a, b: float_operations.fma_toward(a, np.ones_like(a), sign * b, rounding)
            )(i)
        _directed(i)
        return _same(function)(i)

    return row


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    return (
        quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0)))
        if a.dtype.kind == "i"
        else quotient
    )


_COMPARE: dict[str, Compute] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_OPPOSITE: dict[str, Compute] = {  # of NaN each of these is false
    "equ": lambda a, b: (a < b) | (a > b),
    "neu": np.equal,
    "ltu": np.greater_equal,
    "leu": np.greater,
    "gtu": np.less_equal,
    "geu": np.less,
}
_JOIN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compare(name: str, kind: np.dtype) -> Compute:
    if name in ("num", "nan"):
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == (name == "nan")
    if name in _OPPOSITE:
        return lambda a, b: ~_OPPOSITE[name](a, b)
    return _OPPOSITE["equ"] if name == "ne" and kind.kind == "f" else _COMPARE[name]


def _setp(i: Instruction) -> Operation:
    kind = dtype(i.type)
    compare = _compare(i.modifiers[0], kind)
    if i.modifiers[1] in _JOIN:
        join = _JOIN[i.modifiers[1]]
        return Operation((kind, kind, TRUTH), TRUTH, lambda a, b, p: join(compare(a, b), p))
    return Operation((kind, kind), TRUTH, compare)


def _chosen(kind: np.dtype, test: np.dtype, holds: Compute = lambda c: c) -> Operation:
    """The first operand where the third one passes a test, else the second."""
    return Operation((kind, kind, test), kind, lambda a, b, c: np.where(holds(c), a, b))


def _saturated(a: Array, kind: np.dtype) -> Array:
    mine = np.iinfo(a.dtype)
    wanted = np.iinfo(kind)
    return np.clip(a, max(mine.min, wanted.min), min(mine.max, wanted.max)).astype(kind)


def _cvt(i: Instruction) -> Operation:
    target, source = dtype(i.modifiers[-2]), dtype(i.type)
    rounding = next(
        (m for m in i.modifiers if m in ("rn", "rz", "rm", "rp", *float_operations.WHOLE)), ""
    )
    if source.kind == "f" and target.kind != "f":
        compute: Compute = partial(
            float_operations.to_integer, kind=target, rounding=rounding or "rzi"
        )
    elif source.kind == "f" and rounding in float_operations.WHOLE:
        compute = lambda a: float_operations.WHOLE[rounding](a).astype(target)  # noqa: E731
    elif target.kind == "f":
        compute = partial(float_operations.narrowed, kind=target, rounding=rounding)
    elif "sat" in i.modifiers:
        compute = partial(_saturated, kind=target)
    else:
        compute = partial(np.ndarray.astype, dtype=target)
    return Operation((source,), target, compute)


def _byte_dot_product(i: Instruction) -> Operation:
    """dp4a, and dp2a with halves of the first factor and the low or high bytes of the second."""
    widths = ("8", "8") if i.name == "dp4a" else ("16", "8")
    kinds = [np.dtype(TYPES[m[0] + bits]) for m, bits in zip(i.modifiers[-2:], widths, strict=True)]
    low = slice(0, 4) if i.name == "dp4a" else slice(0, 2)
    some = slice(2, 4) if "hi" in i.modifiers else low
    word = np.dtype(np.int32 if "s32" in i.modifiers else np.uint32)

    def parts(x: Array, kind: np.dtype) -> Array:
        return np.ascontiguousarray(x).view(kind).reshape(len(x), -1).astype(np.int32)

    def compute(a: Array, b: Array, c: Array) -> Array:
        return c + np.sum(
            parts(a, kinds[0]) * parts(b, kinds[1])[:, some], axis=1, dtype=np.int32
        ).view(word)

    return Operation((WORD,) * 2 + (word,), word, compute)


def _of_doubles(function: Callable[[Array], Array]) -> Callable[[Instruction], Operation]:
    return _same(lambda a: function(a.astype(np.float64)).astype(a.dtype))


_SAME: dict[str, Compute] = {
    "mov": lambda a: a,
    "cvta": lambda a: a,
    "rem": lambda a, b: (a - _quotient(a, b) * b).astype(a.dtype),
    "abs": np.abs,
    "neg": np.negative,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "copysign": lambda a, b: np.copysign(b, a),
}
_ROWS: dict[str, Callable[[Instruction], Operation]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _mul,
    "mad": _mad,
    "fma": _fma,
    "div": _plain(lambda a, b: _quotient(a, b).astype(a.dtype)),
    **{name: _same(function) for name, function in _SAME.items()},
    "shl": lambda i: bit_operations.shift(np.left_shift, i),
    "shr": lambda i: bit_operations.shift(np.right_shift, i),
    "shf": bit_operations.funnel,
    "setp": _setp,
    "selp": lambda i: _chosen(dtype(i.type), TRUTH),
    "slct": lambda i: _chosen(dtype(i.modifiers[-2]), dtype(i.type), lambda c: c >= 0),
    "cvt": _cvt,
    "clz": bit_operations.leading_zeros,
    "popc": lambda i: Operation(
        (dtype(i.type),), WORD, lambda a: np.bitwise_count(a).astype(np.uint32)
    ),
    "bfe": bit_operations.extract,
    "bfi": bit_operations.insert,
    "brev": bit_operations.bits_reversed,
    "prmt": bit_operations.permute,
    "lop3": bit_operations.lop3,
    "dp2a": _byte_dot_product,
    "dp4a": _byte_dot_product,
    "sqrt": _plain(np.sqrt),
    # approximations, here exact: what relies on their last bits relies on too much
    "rcp": _plain(np.reciprocal),
    "rsqrt": _of_doubles(lambda a: 1 / np.sqrt(a)),
    "ex2": _of_doubles(np.exp2),
    "lg2": _of_doubles(np.log2),
    **{f.__name__: _of_doubles(f) for f in (np.sin, np.cos, np.tanh)},
}
