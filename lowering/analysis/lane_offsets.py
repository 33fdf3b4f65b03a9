"""Access pattern of a vector's lanes: the offset of each lane from lane 0, where it is the same for
every vector.

    x[n - i]  =>  0, -1, -2, -3
    x[i // 2]  =>  0, 0, 1, 1
    x[i mod 2, i // 2]  =>  0, n, 1, n + 1

Quotients and remainders are known if a vector begins at a multiple of their divisor. Lanes that lie
close together are loaded as whole vectors and shuffled.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd, lcm

from ...dialect.kernel_ir.affine import affine
from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Index, Read, Tensor
from ...dialect.kernel_ir.loops import For, If, statements
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.sizes import strides

VECTORS = 4  # vectors loaded for the lanes of one access, at most; tuned by hand (Zen 4, Zen 5)
# largest divisor whose quotients and remainders are analyzed; bounds compile time (by hand)
MAX_DIVISOR = 8
SQUARE_BYTES = 16  # of a row of a square that is transposed in registers


def period(reads: Iterable[Read], index: Index) -> int:
    """The alignment of vectors, in iterations, at which quotients and remainders of this index are
    known.
    """
    multiple = 1
    for e in (e for r in reads for i in r.indices for e in walk(i)):
        match e:
            case Apply("floordiv" | "floormod", (a, Const(divisor)), _) if affine(a).factor(index):
                multiple = lcm(multiple, divisor) if 0 < divisor <= MAX_DIVISOR else multiple
    return multiple if multiple <= MAX_DIVISOR else 1


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector loop: its index, a divisor of that index at lane 0 (0 if it is 0
    there), and their number.
    """

    index: Index
    first: int
    count: int
    same: Callable[[Expr], bool]  # tests whether an expression is uniform over the lanes


def offsets(tensor: Tensor, at: tuple[Expr, ...], lanes: Lanes) -> list[int] | None:
    """The offset of each lane from lane 0, in elements; None if unknown."""
    total = [0] * lanes.count
    for e, step in zip(at, strides(tensor.shape), strict=True):
        if (found := _differences(e, lanes)) is None or (any(found) and not isinstance(step, int)):
            return None
        if isinstance(step, int):
            total = [t + step * n for t, n in zip(total, found, strict=True)]
    return total


def _differences(e: Expr, lanes: Lanes) -> list[int] | None:
    """The difference of an index expression at each lane from its value at lane 0."""
    total = [0] * lanes.count
    for atom, factor in () if lanes.same(e) else affine(e).terms.values():
        if (found := _atom_differences(atom, lanes)) is None:
            return None
        total = [t + factor * n for t, n in zip(total, found, strict=True)]
    return total


def _atom_differences(e: Expr, lanes: Lanes) -> Sequence[int] | None:
    if e is lanes.index:
        return range(lanes.count)
    if lanes.same(e):
        return [0] * lanes.count
    match e:
        case Apply("floordiv" | "floormod", (a, Const(divisor)), _) if divisor > 0 and _is_multiple(
            a, divisor, lanes
        ):
            inner = _differences(a, lanes)
            return inner and [
                n // divisor if e.function == "floordiv" else n % divisor for n in inner
            ]
    return None


def _is_multiple(e: Expr, divisor: int, lanes: Lanes) -> bool:
    """Test whether an expression is a multiple of `divisor` at lane 0."""
    form, i = affine(e), lanes.index
    return not (form.without(i) + affine(i) * (form.factor(i) * lanes.first)).divisor % divisor


def begins(start: Expr, end: Expr, width: int) -> int:
    """The gcd of the indices at which vectors of a loop begin; 0 if the only one is 0."""
    form = affine(start)
    length = affine(end) - form
    return (
        form.divisor if not length.terms and length.constant == width else gcd(form.divisor, width)
    )


def windows(offsets: list[int]) -> list[int] | None:
    """The starts of the vectors that cover exactly these offsets; None if there are more than
    VECTORS.
    """
    low, high = min(offsets), max(offsets)
    length = min(len(offsets), high - low + 1)
    starts: list[int] = []
    for n in sorted(set(offsets)):
        if not starts or n >= starts[-1] + length:
            starts.append(min(n, high + 1 - length))
    return starts if len(starts) <= VECTORS else None


def is_square(rows: object, lanes: int, bytes: int) -> bool:
    """Test whether elements of so many bytes are transposed in registers, from rows of 16 bytes or
    of a whole vector.
    """
    return rows in (SQUARE_BYTES // bytes, lanes) and lanes % (SQUARE_BYTES // bytes) == 0


def square_of(s: For) -> For | None:
    """The vector loop that is all of an unrolled one, with one vector and no branches, so that the
    first iteration may load for all.
    """
    match s.body:
        case (For(_, body, Const(0), _, "vector", width) as lanes,):
            branches = any(isinstance(b, (For, If)) for b in statements(body))
            return lanes if lanes.index.extent == width and not branches else None
    return None
