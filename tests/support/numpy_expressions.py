"""Expressions of NumPy, and whether a traced function gives the same type and values: same,
different or refused.

python tests/support/numpy_expressions.py [--plain] [PART OF A NAME...]    counts, and all that is not the same
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

from numpy_forms import FORMS, OF_EDGES, OF_EMPTY, OF_STACKS  # noqa: E402

import cvm  # noqa: E402

TYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
PAIRS = (
    ("i1", "u1"),
    ("i4", "f4"),
    ("i8", "f4"),
    ("u8", "i8"),
    ("f4", "f8"),
    ("f2", "i1"),
    ("?", "i4"),
    ("u4", "i4"),
)
SCALARS = (2, -1, 0.1, True, 3.0, 1j)
UFUNCS = tuple(
    {
        f.__name__: f for f in map(np.__dict__.get, sorted(np.__dict__)) if isinstance(f, np.ufunc)
    }.values()
)
BATCH = 40  # expressions that are compiled together
# functions with bounds in units of the last place of NumPy's value; those of complex functions are
# relative to the modulus
LOOSE = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "cbrt",
        "cos",
        "cosh",
        "exp",
        "exp2",
        "expm1",
        "float_power",
        "hypot",
        "log",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "logaddexp2",
        "pow",
        "power",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)


@dataclass(frozen=True)
class Expression:
    """A function of arrays; `ulps` bounds the distance from NumPy, relative to the largest value
    where it `sums`.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    ulps: float = 0
    sums: bool = False
    grows: Callable[..., Any] = lambda *_: (
        1
    )  # by how much the bound of complex numbers does, element by element


def _of_exponent(z: Any, w: Any) -> Any:
    """A power is exp(w log z), whose exponent is rounded: that turns the result by so many times an
    ulp.
    """
    with np.errstate(all="ignore"):
        return 1 + np.nan_to_num(np.abs(np.multiply(w, np.log(np.asarray(z, np.complex128)))))


def values(dtype: str, seed: int, plain: bool, shape: tuple[int, ...] = (31,)) -> np.ndarray:
    """Elements of ordinary size, and where not `plain` those at the edges of the type among
    them.
    """
    random, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        return random.random(shape) < 0.5
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        found = random.integers(max(limits.min, -20), 40, shape).astype(kind)
        edges = np.array([0, 1, limits.max, limits.min, limits.max - 1], kind)
    elif kind.kind == "f":
        limits = np.finfo(kind)
        found = (random.standard_normal(shape) * 3).astype(kind)
        edges = np.array(
            [
                0.0,
                -0.0,
                np.inf,
                -np.inf,
                np.nan,
                limits.max,
                limits.tiny,
                limits.smallest_subnormal,
            ],
            kind,
        )
    else:
        part = "f4" if kind.itemsize == 8 else "f8"
        return (values(part, seed, True, shape) + 1j * values(part, seed + 1, True, shape)).astype(
            kind
        )
    return (
        found
        if plain
        else np.where(random.random(shape) < 0.25, random.choice(edges, shape), found).astype(kind)
    )


def of_ufuncs(plain: bool) -> Iterator[Expression]:
    """Every ufunc of every type alone, of eight pairs of types, and with Python's numbers on either
    side.
    """
    for ufunc in UFUNCS:
        ulps = 6 if ufunc.__name__ in LOOSE else 0
        grows = _of_exponent if ufunc.__name__ in ("power", "float_power") else Expression.grows
        if ufunc.signature is not None:
            yield from _of_matrices(ufunc, plain)
            continue
        for t in TYPES:
            x, y = values(t, 1, plain), values(t, 2, plain)
            if ufunc.nin == 1:
                yield Expression(f"np.{ufunc.__name__}({t})", ufunc, (x,), ulps)
                continue
            yield Expression(
                f"np.{ufunc.__name__}({t}, {t})", ufunc, (x, _exponent(ufunc, y)), ulps, grows=grows
            )
            for s in SCALARS:
                for name, order in (
                    (f"{t}, {s}", lambda a, s=s: (a, s)),
                    (f"{s}, {t}", lambda a, s=s: (s, a)),
                ):
                    given = x if name.startswith(t) else _exponent(ufunc, x)
                    call, grown = (lambda a, f=f, o=order: f(*o(a)) for f in (ufunc, grows))
                    yield Expression(
                        f"np.{ufunc.__name__}({name})", call, (given,), ulps, grows=grown
                    )
        for a, b in PAIRS if ufunc.nin == 2 else ():
            x, y = values(a, 1, plain), _exponent(ufunc, values(b, 2, plain))
            yield Expression(f"np.{ufunc.__name__}({a}, {b})", ufunc, (x, y), ulps, grows=grows)


def _exponent(ufunc: np.ufunc, y: np.ndarray) -> np.ndarray:
    """Exponents that integers may have."""
    return (
        np.where(y < 0, 3, y).astype(y.dtype)
        if ufunc.__name__ == "power" and y.dtype.kind == "i"
        else y
    )


def _of_matrices(ufunc: np.ufunc, plain: bool) -> Iterator[Expression]:
    shapes = {
        "matmul": ((3, 4), (4, 2)),
        "vecdot": ((3, 4), (4,)),
        "matvec": ((3, 4), (4,)),
        "vecmat": ((4,), (4, 3)),
    }
    for a, b in (*((t, t) for t in TYPES), *PAIRS):
        x, y = (
            values(t, n, True, s)
            for n, (t, s) in enumerate(zip((a, b), shapes[ufunc.__name__], strict=True))
        )
        yield Expression(f"np.{ufunc.__name__}({a}, {b})", ufunc, (x, y), 64, True)


M, V, EDGES = "m", "v", np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
W = np.array([2, 5, 1], "i4")
# by name: functions of a matrix of 4 by 6, with several arguments each; those of SUMMED have sums
FUNCTIONS: dict[str, Sequence[Callable[[Any], Any]]] = {
    "std": (
        lambda x: np.std(x),
        lambda x: np.std(x, axis=0),
        lambda x: x.std(axis=1, ddof=1, keepdims=True),
    ),
    "var": (
        lambda x: np.var(x),
        lambda x: np.var(x, axis=(0, 1)),
        lambda x: np.var(x, axis=1, dtype="f8"),
    ),
    "average": (
        lambda x: np.average(x),
        lambda x: np.average(x, axis=1, weights=np.arange(6) + 1.0),
    ),
    "median": (
        lambda x: np.median(x),
        lambda x: np.median(x, axis=0),
        lambda x: np.median(x, axis=1, keepdims=True),
    ),
    "ptp": (lambda x: np.ptp(x), lambda x: np.ptp(x, axis=1)),
    "argmax": (
        lambda x: np.argmax(x),
        lambda x: np.argmax(x, axis=0),
        lambda x: x.argmax(axis=1, keepdims=True),
    ),
    "argmin": (lambda x: np.argmin(x), lambda x: np.argmin(x, axis=0), lambda x: x.argmin(axis=-1)),
    "sort": (lambda x: np.sort(x), lambda x: np.sort(x, axis=0), lambda x: np.sort(x, axis=None)),
    "argsort": (
        lambda x: np.argsort(x, kind="stable"),
        lambda x: np.argsort(x, axis=0, stable=True),
    ),
    "cumsum": (
        lambda x: np.cumsum(x),
        lambda x: np.cumsum(x, axis=0),
        lambda x: x.cumsum(axis=1, dtype="f8"),
    ),
    "cumprod": (lambda x: np.cumprod(x), lambda x: np.cumprod(x, axis=0)),
    "diff": (
        lambda x: np.diff(x),
        lambda x: np.diff(x, n=2, axis=0),
        lambda x: np.diff(x, prepend=x[:, :1]),
        lambda x: np.diff(x, append=0),
    ),
    "count_nonzero": (lambda x: np.count_nonzero(x), lambda x: np.count_nonzero(x, axis=0)),
    "nansum": (lambda x: np.nansum(x), lambda x: np.nansum(x, axis=0)),
    "nanmax": (
        lambda x: np.nanmax(x),
        lambda x: np.nanmax(x, axis=1),
        lambda x: np.nanmin(x, axis=0),
    ),
    "any": (
        lambda x: np.any(x),
        lambda x: np.any(x, axis=0),
        lambda x: x.any(axis=1, keepdims=True),
    ),
    "all": (lambda x: np.all(x), lambda x: np.all(x, axis=0), lambda x: x.all(axis=1)),
    "sum": (
        lambda x: np.sum(x),
        lambda x: x.sum(axis=0),
        lambda x: np.sum(x, axis=1, keepdims=True),
        lambda x: x.sum(initial=3),
        lambda x: np.sum(x, where=x > 1),
    ),
    "prod": (lambda x: np.prod(x[:, :3]), lambda x: x.prod(axis=0)),
    "mean": (
        lambda x: np.mean(x),
        lambda x: x.mean(axis=0),
        lambda x: np.mean(x, axis=1, dtype="f8"),
    ),
    "max": (lambda x: np.max(x), lambda x: x.max(axis=0), lambda x: np.max(x, axis=1, initial=1)),
    "min": (
        lambda x: np.min(x),
        lambda x: x.min(axis=0),
        lambda x: np.min(x, axis=1, keepdims=True),
    ),
    "searchsorted": (
        lambda x: np.searchsorted(np.sort(x[0]), x[1]),
        lambda x: np.searchsorted(EDGES, x, side="right"),
    ),
    "digitize": (
        lambda x: np.digitize(x, EDGES),
        lambda x: np.digitize(x, EDGES[::-1], right=True),
    ),
    "bincount": (
        lambda x: np.bincount(abs(x[0] // 1), minlength=50),
        lambda x: np.bincount(W, weights=x[0, :3], minlength=50),
    ),
    "histogram": (
        lambda x: np.histogram(x, EDGES)[0],
        lambda x: np.histogram(x, bins=4, range=(0, 20))[0],
    ),
    "take": (
        lambda x: np.take(x, [5, -1, 0]),
        lambda x: x.take([[1, 2], [0, 3]], axis=0),
        lambda x: np.take(x, [9, -3], axis=1, mode="wrap"),
        lambda x: np.take(x, [9, 2], axis=1, mode="clip"),
    ),
    "take_along_axis": (
        lambda x: np.take_along_axis(x, np.array([[0], [2], [-1], [1]]), axis=1),
        lambda x: np.take_along_axis(x, np.argsort(x, axis=0, kind="stable"), axis=0),
    ),
    "einsum": (
        lambda x: np.einsum("ij,kj->ik", x, x),
        lambda x: np.einsum("ii->i", x[:, :4]),
        lambda x: np.einsum("ij->j", x),
        lambda x: np.einsum("...j,j->...", x, x[0]),
        lambda x: np.einsum("ij,jk,k", x, x.T, x[:, 0]),
    ),
    "tensordot": (
        lambda x: np.tensordot(x, x, axes=([1], [1])),
        lambda x: np.tensordot(x, x[:, 0], axes=(0, 0)),
    ),
    "outer": (lambda x: np.outer(x[0], x[1]), lambda x: np.outer(x[:, 0], W)),
    "inner": (lambda x: np.inner(x, x), lambda x: np.inner(x[0], x[1])),
    "dot": (
        lambda x: np.dot(x, x.T),
        lambda x: x.dot(x[0]),
        lambda x: np.dot(x[0], x[1]),
        lambda x: np.dot(x, 2),
        lambda x: np.dot(x[None], x.T),
    ),
    "matmul": (lambda x: x @ x.T, lambda x: np.matmul(x[None], x.T), lambda x: x @ x[0]),
    "vecdot": (lambda x: np.vecdot(x, x), lambda x: np.vecdot(x[:, :3], W)),
    "trace": (lambda x: np.trace(x), lambda x: x.trace(offset=1)),
    "norm": (
        lambda x: np.linalg.norm(x),
        lambda x: np.linalg.norm(x, axis=1),
        lambda x: np.linalg.norm(x[0], ord=1),
        lambda x: np.linalg.norm(x[0], ord=np.inf),
        lambda x: np.linalg.norm(x, ord=1),
        lambda x: np.linalg.norm(x[0], 3),
    ),
    "cross": (lambda x: np.cross(x[:, :3], x[:, 3:]), lambda x: np.cross(x[:, :3], W)),
    "kron": (lambda x: np.kron(x, np.array([[1, 2]], x.dtype)), lambda x: np.kron(x[0], x[1])),
    "convolve": (
        lambda x: np.convolve(x[0], x[1, :3]),
        lambda x: np.convolve(x[0], W, "same"),
        lambda x: np.convolve(x[0], W, "valid"),
    ),
    "correlate": (
        lambda x: np.correlate(x[0], x[1, :3]),
        lambda x: np.correlate(x[0], W, "full"),
        lambda x: np.correlate(x[0, :2], x[1], "same"),
    ),
    "pad": (
        lambda x: np.pad(x, 1),
        lambda x: np.pad(x, ((1, 0), (2, 3)), "edge"),
        lambda x: np.pad(x, 2, "reflect"),
        lambda x: np.pad(x, 3, "wrap"),
        lambda x: np.pad(x, (1, 2), constant_values=1),
        lambda x: np.pad(x, 2, mode="symmetric"),
    ),
    "tile": (
        lambda x: np.tile(x, 2),
        lambda x: np.tile(x, (2, 1)),
        lambda x: np.tile(x, (2, 1, 1)),
    ),
    "repeat": (
        lambda x: np.repeat(x, 2),
        lambda x: x.repeat(3, axis=1),
        lambda x: np.repeat(x, [1, 0, 2, 3], axis=0),
    ),
    "roll": (
        lambda x: np.roll(x, 7),
        lambda x: np.roll(x, -1, axis=1),
        lambda x: np.roll(x, (1, 2), axis=(0, 1)),
    ),
    "rot90": (lambda x: np.rot90(x), lambda x: np.rot90(x, 2), lambda x: np.rot90(x, -1)),
    "flip": (
        lambda x: np.flip(x),
        lambda x: np.flip(x, 0),
        lambda x: np.fliplr(x),
        lambda x: np.flipud(x),
    ),
    "triu": (lambda x: np.triu(x), lambda x: np.triu(x, 1)),
    "tril": (lambda x: np.tril(x), lambda x: np.tril(x, -1)),
    "diag": (
        lambda x: np.diag(x),
        lambda x: np.diag(x[0]),
        lambda x: np.diag(x[1], k=-2),
        lambda x: np.diagonal(x, 1),
    ),
    "eye": (
        lambda x: np.eye(4, 6) * x,
        lambda x: x + np.eye(4, 6, k=1, dtype=x.dtype),
        lambda x: x + np.identity(6)[:4],
    ),
    "zeros": (
        lambda x: np.zeros(x.shape) + x,
        lambda x: np.zeros((4, 1), x.dtype) + x,
        lambda x: np.zeros_like(x),
        lambda x: np.empty_like(x) is None,
    ),
    "ones": (
        lambda x: np.ones(6) * x,
        lambda x: np.ones_like(x),
        lambda x: np.ones_like(x, dtype="f4"),
    ),
    "full": (
        lambda x: np.full(6, 2) + x,
        lambda x: np.full_like(x, 1),
        lambda x: np.full_like(x, 2, dtype="f8"),
        lambda x: np.full((2, 2), x[0, 0]),
    ),
    "arange": (
        lambda x: x + np.arange(6),
        lambda x: np.arange(24).reshape(4, 6) * x,
        lambda x: x + np.arange(0, 3, 0.5),
    ),
    "linspace": (
        lambda x: x * np.linspace(0, 1, 6),
        lambda x: np.linspace(x[0], x[1], 5),
        lambda x: np.linspace(0, x[0, 0], 3, endpoint=False),
    ),
    "meshgrid": (
        lambda x: np.meshgrid(x[0], x[:, 0]),
        lambda x: np.meshgrid(x[0], W, indexing="ij"),
    ),
    "indices": (lambda x: np.indices(x.shape) + x, lambda x: x[tuple(np.indices((2, 2)))]),
    "broadcast_to": (
        lambda x: np.broadcast_to(x, (2, 4, 6)),
        lambda x: np.broadcast_to(x[:, :1], (4, 6)),
        lambda x: np.broadcast_arrays(x, x[0]),
    ),
    "split": (
        lambda x: np.split(x, 2),
        lambda x: np.split(x, [1, 4], axis=1),
        lambda x: np.array_split(x, 4, axis=1),
        lambda x: np.hsplit(x, 3),
        lambda x: np.vsplit(x, 2),
        lambda x: np.dsplit(x[None], [2]),
    ),
    "stack": (
        lambda x: np.stack([x, x]),
        lambda x: np.stack((x[0], x[1]), axis=-1),
        lambda x: np.vstack([x, x[0]]),
        lambda x: np.hstack([x, x]),
        lambda x: np.dstack([x, x]),
        lambda x: np.column_stack([x[0], x[1]]),
    ),
    "concatenate": (
        lambda x: np.concatenate([x, x]),
        lambda x: np.concatenate([x, x[:, :1]], axis=1),
        lambda x: np.concatenate([x, x], axis=None),
        lambda x: np.append(x, x, axis=0),
    ),
    "where": (
        lambda x: np.where(x > 1, x, 0),
        lambda x: np.where(x == x, x[:, ::-1], x),
        lambda x: np.where(x > 1, 1, 0),
        lambda x: np.where(x > 1, x, 0.5),
    ),
    "select": (
        lambda x: np.select([x > 1, x < -1], [x, x * 2], default=7),
        lambda x: np.select([x > 1], [x]),
    ),
    "choose": (
        lambda x: np.choose(np.array([0, 1, 2, 0, 1, 2]), [x, x * 2, x + 1]),
        lambda x: np.choose(x[0] > 1, [x[0], x[1]]),
    ),
    "clip": (
        lambda x: np.clip(x, 1, 3),
        lambda x: x.clip(max=2),
        lambda x: np.clip(x, x[0], 5),
        lambda x: np.clip(x, 0.5, 2.5),
    ),
    "nan_to_num": (lambda x: np.nan_to_num(x), lambda x: np.nan_to_num(x, nan=-1.0, posinf=9.0)),
    "interp": (
        lambda x: np.interp(x, EDGES, EDGES**2),
        lambda x: np.interp(x, EDGES, EDGES, left=-9.0, right=9.0),
    ),
    "round": (
        lambda x: np.round(x),
        lambda x: np.round(x, 2),
        lambda x: x.round(1),
        lambda x: np.around(x),
        lambda x: np.round(x, -1),
    ),
    "isclose": (
        lambda x: np.isclose(x, x + 1),
        lambda x: np.allclose(x, x),
        lambda x: np.array_equal(x, x),
    ),
    "subscripts": (
        lambda x: x[[0, 2]],
        lambda x: x[:, np.array([1, -1, 3])],
        lambda x: x[[0, 1], [2, 3]],
        lambda x: x[1:, ::-2],
        lambda x: x[None, 1, ..., [0, 1]],
        lambda x: x[np.array([True, False, True, True])],
    ),
    "sliding_window_view": (
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2)).sum(axis=(2, 3)),
    ),
    "rows": (
        lambda x: [row + 1 for row in x],
        lambda x: sum(row for row in x),
        lambda x: max(len(x), 3) * x,
    ),
    "modf": (
        lambda x: np.modf(x),
        lambda x: np.frexp(x),
        lambda x: np.divmod(x, 3),
        lambda x: divmod(x, 2),
        lambda x: np.ldexp(x, 2),
    ),
    "operators": (
        lambda x: x**2,
        lambda x: x**0.5,
        lambda x: 2**x,
        lambda x: -x,
        lambda x: x // 2,
        lambda x: x % 3,
        lambda x: 7 % x,
        lambda x: x << 1,
        lambda x: x / 3,
        lambda x: abs(x),
        lambda x: ~x,
        lambda x: x**3,
        lambda x: x**-1.0,
        lambda x: +x,
    ),
    "shapes": (
        lambda x: x.reshape(3, 8),
        lambda x: x.T,
        lambda x: np.ravel(x),
        lambda x: np.swapaxes(x, 0, 1),
        lambda x: np.moveaxis(x, 0, 1),
        lambda x: np.expand_dims(x, 0),
        lambda x: np.squeeze(x[None]),
        lambda x: np.atleast_2d(x[0]),
        lambda x: np.atleast_1d(x[0, 0]),
        lambda x: np.atleast_3d(x),
        lambda x: np.rollaxis(x, 1),
        lambda x: x.reshape(-1, order="C"),
    ),
    "complex": (
        lambda x: np.fix(x),
        lambda x: np.copy(x),
        lambda x: np.real(x),
        lambda x: np.imag(x),
        lambda x: np.angle(x),
        lambda x: np.conj(x),
        lambda x: (x + 1j).imag,
    ),
    "astype": (
        lambda x: x.astype("f4"),
        lambda x: x.astype(int),
        lambda x: x.astype(bool),
        lambda x: x.astype("u1"),
        lambda x: np.astype(x, np.dtype("i2")),
    ),
}
SUMMED = frozenset(
    [
        "std",
        "var",
        "average",
        "median",
        "nansum",
        "sum",
        "mean",
        "cumsum",
        "cumprod",
        "prod",
        "einsum",
        "tensordot",
        "outer",
        "inner",
        "dot",
        "matmul",
        "vecdot",
        "trace",
        "norm",
        "convolve",
        "correlate",
        "interp",
        "kron",
        "cross",
        "sliding_window_view",
        "linspace",
        "operators",
        "complex",
        "bincount",
    ]
)


def of_functions(plain: bool) -> Iterator[Expression]:
    for t in ("?", "u1", "i4", "i8", "f4", "f8", "c16"):
        x = values(t, 7, plain, (4, 6))
        for name, functions in FUNCTIONS.items():
            for n, f in enumerate(functions):
                yield Expression(
                    f"{name}[{n}]({t})", f, (x,), 64 if name in SUMMED else 0, name in SUMMED
                )


def of_forms(plain: bool) -> Iterator[Expression]:
    for t in ("?", "i1", "u1", "i4", "u8", "f2", "f4", "f8", "c8"):
        for forms, shape in ((FORMS, (4, 6)), (OF_STACKS, (2, 3, 4))):
            x = values(t, 7, plain, shape)
            for form in forms:
                name = f"{form} ({t}, {len(shape)}d)"
                yield Expression(name, eval(f"lambda x: {form}", {"np": np}), (x,), 64, True)


def of_edges() -> Iterator[Expression]:
    """Forms of arrays of one element and of none, and with arguments at the edges of what NumPy
    takes.
    """
    three = np.full((1, 1), 3, "f4")
    arrays: list[tuple[list[str], np.ndarray]] = [
        (OF_EDGES, x) for x in (three, values("f4", 3, True, (4, 6)), values("i4", 3, True, (4, 6)))
    ]
    arrays += [(OF_EMPTY, np.zeros(shape, "f4")) for shape in ((0, 6), (4, 0), (0,), (0, 0))]
    for forms, x in arrays:
        for form in forms:
            name = f"{form} ({x.dtype.str}, {'x'.join(map(str, x.shape))})"
            yield Expression(name, eval(f"lambda x: {form}", {"np": np}), (x,), 64, True)


def leaves(found: Any) -> list[np.ndarray]:
    return (
        [a for f in found for a in leaves(f)]
        if isinstance(found, (tuple, list))
        else [np.asarray(found)]
    )


def agrees(e: Expression, found: Any, wanted: Any) -> bool:
    """Test whether types, shapes and values are the same, values within the expression's bound."""
    pairs = list(zip(leaves(found), leaves(wanted), strict=False))
    if len(leaves(found)) != len(leaves(wanted)) or any(
        f.dtype != w.dtype or f.shape != w.shape for f, w in pairs
    ):
        return False
    return all(_near(e, f, w).all() for f, w in pairs)


def _near(e: Expression, found: np.ndarray, wanted: np.ndarray) -> Any:
    if wanted.dtype.kind not in "fc":
        return found == wanted
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    complex_arithmetic = wanted.dtype.kind == "c" or any(a.dtype.kind == "c" for a in e.arguments)
    bound: Any = max(e.ulps, 16 if complex_arithmetic else 0)
    if not bound:
        return same
    if complex_arithmetic:
        bound = bound * e.grows(*e.arguments)
    limits, size = np.finfo(wanted.dtype), np.abs(wanted)
    if e.name.startswith(
        "np.logaddexp"
    ):  # the logarithm of a sum near 1 is near 0, its error is not
        size = np.maximum(size, 1)
    if e.sums:
        size = np.full_like(size, np.max(size, initial=1, where=np.isfinite(size)))
    with np.errstate(all="ignore"):
        return same | (
            np.abs(found - wanted)
            <= bound * np.maximum(limits.eps * size, limits.smallest_subnormal)
        )


def expressions(plain: bool) -> list[Expression]:
    return [*of_ufuncs(plain), *of_functions(plain), *of_forms(plain), *of_edges()]


def judge(list_: Sequence[Expression], target: str = "cpu") -> dict[str, str]:
    """`same`, `different: ...` or `refused: ...` for each; those that NumPy refuses have to be
    refused.
    """
    found: dict[str, str] = {}
    groups: dict[tuple[int, ...], list[tuple[Expression, Any]]] = {}
    for e in list_:
        refusal = _refusal(e)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                wanted = e.function(*e.arguments)
            except (
                ArithmeticError,
                AttributeError,
                TypeError,
                ValueError,
                IndexError,
                np.linalg.LinAlgError,
            ):
                found[e.name] = (
                    "numpy refuses"
                    if refusal or _fails(e, target)
                    else "different: NumPy refuses it"
                )
                continue
        if refusal:
            found[e.name] = f"refused: {refusal}"
        else:
            key = tuple(hash((a.tobytes(), a.dtype.str, a.shape)) for a in e.arguments)
            groups.setdefault(key, []).append((e, wanted))
    for group in groups.values():
        for start in range(0, len(group), BATCH):
            part = group[start : start + BATCH]
            found |= _judged(part, target)
    return found


def _judged(part: list[tuple[Expression, Any]], target: str) -> dict[str, str]:
    try:
        together = cvm.compile(
            lambda *xs: [e.function(*xs) for e, _ in part], target=target, rules="numpy"
        )
        results = together(*part[0][0].arguments)
    except cvm.Error as error:
        if len(part) == 1:
            return {part[0][0].name: f"refused: {str(error).splitlines()[0][:150]}"}
        middle = len(part) // 2
        return _judged(part[:middle], target) | _judged(part[middle:], target)
    return {
        e.name: "same" if agrees(e, r, w) else f"different: {_shown(r)} for {_shown(w)}"
        for (e, w), r in zip(part, results, strict=True)
    }


def _shown(found: Any) -> str:
    return " ".join(f"{a.dtype}{list(a.shape)} {a.ravel()[:12].tolist()}" for a in leaves(found))[
        :300
    ]


def _refusal(e: Expression) -> str:
    """The error of an expression that cannot be traced, or nothing."""
    try:
        cvm.compile(lambda *xs: e.function(*xs), target="reference", rules="numpy").trace(
            *e.arguments
        )
    except cvm.Error as error:
        return str(error).splitlines()[0].partition("error[")[2][:150]
    except Exception as error:  # a mistake of ours
        return f"CRASH {type(error).__name__}: {error}"
    return ""


def _fails(e: Expression, target: str) -> bool:
    try:
        cvm.compile(lambda *xs: e.function(*xs), target=target, rules="numpy")(*e.arguments)
    except cvm.Error:
        return True
    return False


if __name__ == "__main__":
    chosen = [a for a in sys.argv[1:] if not a.startswith("--")]
    wanted = [
        e
        for e in expressions("--plain" in sys.argv)
        if not chosen or any(c in e.name for c in chosen)
    ]
    verdicts = judge(wanted)
    counts = Counter(v.partition(":")[0] for v in verdicts.values())
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    for name, verdict in verdicts.items():
        if not verdict.startswith(("same", "numpy refuses")):
            print(f"{name}: {verdict}")
