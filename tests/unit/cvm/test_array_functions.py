"""NumPy's functions of traced arrays: what NumPy gives, for integers, floats and element types that
are promoted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy_expressions
import numpy_forms
import pytest

import cvm
from cvm.numpy import FUNCTIONS as NUMPYS, REFUSED

RANDOM = np.random.default_rng(3)
X = {
    "f4": RANDOM.standard_normal((4, 6)).astype("f4"),
    "f8": np.where(RANDOM.random((4, 6)) < 0.15, np.nan, RANDOM.standard_normal((4, 6))),
    "i4": RANDOM.integers(-5, 6, (4, 6)).astype("i4"),
    "u1": RANDOM.integers(0, 200, (4, 6)).astype("u1"),
    "?": RANDOM.random((4, 6)) < 0.4,
}
V, W = np.array([3.0, -1.0, 2.5, 0.0, 7.0], "f4"), np.array([2, 5, 1], "i4")
EDGES = np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "var": lambda x: (np.var(x), x.var(axis=1, ddof=1), np.var(x, axis=(0, 1), keepdims=True)),
    "std": lambda x: (np.std(x, axis=0), x.std()),
    "average": lambda x: (np.average(x, axis=1), np.average(x, axis=1, weights=np.arange(6) + 1.0)),
    "median": lambda x: (
        np.median(x),
        np.median(x, axis=0),
        np.median(x[:, :5], axis=1, keepdims=True),
    ),
    "ptp": lambda x: np.ptp(x, axis=1),
    "count_nonzero": lambda x: (
        np.count_nonzero(x, axis=0),
        np.count_nonzero(x, axis=1, keepdims=True),
    ),
    "nansum": lambda x: (np.nansum(x, axis=0), np.nanprod(x[:2], axis=1)),
    "nanmax": lambda x: (np.nanmax(x, axis=1), np.nanmin(x)),
    "nanmean": lambda x: np.nanmean(x, axis=1),
    "argmax": lambda x: (np.argmax(x), x.argmax(axis=0), np.argmin(x, axis=1, keepdims=True)),
    "sort": lambda x: (np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None)),
    "argsort": lambda x: np.argsort(x, axis=1, kind="stable"),
    "cumsum": lambda x: (np.cumsum(x), x.cumsum(axis=1), np.cumsum(x, axis=0, dtype="f8")),
    "cumprod": lambda x: np.cumprod(x, axis=0),
    "diff": lambda x: (np.diff(x), np.diff(x, n=2, axis=0)),
    "searchsorted": lambda x: (
        np.searchsorted(np.sort(V), x[0]),
        np.searchsorted(EDGES, x, side="right"),
    ),
    "digitize": lambda x: (np.digitize(x, EDGES), np.digitize(x, EDGES[::-1], right=True)),
    "take": lambda x: (
        np.take(x, [5, -1, 0]),
        x.take([[1, 2], [0, 3]], axis=0),
        np.take(x, 2, axis=1),
    ),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0], [2], [-1], [1]]), axis=1),
    "diagonal": lambda x: (np.diagonal(x), x.diagonal(offset=2), np.trace(x), x.trace(offset=-1)),
    "diag": lambda x: (np.diag(x), np.diag(x[0]), np.diag(x[1], k=-2)),
    "interp": lambda x: (
        np.interp(x, EDGES, EDGES**2),
        np.interp(x, EDGES, EDGES, left=-9.0, right=9.0),
    ),
    "outer": lambda x: np.outer(x[0], V),
    "vecdot": lambda x: np.vecdot(x[:, :3], W),
    "tensordot": lambda x: (
        np.tensordot(x, x, axes=([1], [1])),
        np.tensordot(x, x[:, 0], axes=(0, 0)),
    ),
    "inner": lambda x: np.inner(x, x),
    "kron": lambda x: np.kron(x, np.array([[1, 2]], x.dtype)),
    "cross": lambda x: np.cross(x[:, :3], W),
    "norm": lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x[0], ord=1)),
    "einsum": lambda x: (
        np.einsum("ij,kj->ik", x, x),
        np.einsum("ii->i", x[:, :4]),
        np.einsum("ij->", x),
    ),
    "convolve": lambda x: (
        np.convolve(x[0], W),
        np.convolve(x[0], W, "valid"),
        np.convolve(x[0], W, "same"),
    ),
    "correlate": lambda x: (np.correlate(x[0], W), np.correlate(x[0], W, "full")),
    "sliding_window_view": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1),
    "broadcast_to": lambda x: np.broadcast_to(x[:, None], (4, 2, 6)),
    "tile": lambda x: np.tile(x, (2, 1)),
    "roll": lambda x: (np.roll(x, 7), np.roll(x, -1, axis=1), np.roll(x, (1, 2), axis=(0, 1))),
    "rot90": lambda x: (np.rot90(x), np.rot90(x, 2), np.rot90(x, -1)),
    "pad": lambda x: (
        np.pad(x, 1),
        np.pad(x, ((1, 0), (2, 3)), "edge"),
        np.pad(x, 2, "reflect"),
        np.pad(x, 3, "wrap"),
    ),
    "triu": lambda x: (np.triu(x), np.triu(x, 1), np.tril(x, -1), np.tril(x)),
    "zeros_like": lambda x: (np.zeros_like(x), np.ones_like(x, dtype="f8"), np.full_like(x, 1)),
    "split": lambda x: (
        *np.split(x, 2),
        *np.split(x, [1, 4], axis=1),
        *np.array_split(x, 4, axis=1),
    ),
    "vstack": lambda x: (np.vstack([x, x[0]]), np.hstack([x, x]), np.hstack([x[0], x[1]])),
    "meshgrid": lambda x: (*np.meshgrid(x[0], V), *np.meshgrid(x[0], V, indexing="ij")),
    "select": lambda x: np.select([x > 1, x < -1], [x, x * 2], default=7),
    "nan_to_num": lambda x: (np.nan_to_num(x), np.nan_to_num(x, nan=-1.0)),
    "round": lambda x: (np.round(x), np.around(x * 10)),
    "isclose": lambda x: (np.isclose(x, x + 1e-9), np.allclose(x, x + 1)),
    "real": lambda x: (np.real(x), x.imag, (x * 1j).imag),
    "subscripts": lambda x: (
        x[[0, 2]],
        x[:, np.array([1, -1, 3])],
        x[[0, 1], [2, 3]],
        x[None, 1, ..., [0, 1]],
        x[np.array([True, False, True, True])],
    ),
    "rows": lambda x: tuple(row + 1 for row in x),
}
SUMS = (
    "var",
    "std",
    "average",
    "nansum",
    "nanmean",
    "tensordot",
    "inner",
    "norm",
    "einsum",
    "convolve",
    "correlate",
    "interp",
    "cumsum",
    "cumprod",
    "vecdot",
    "median",
    "diagonal",
)


@pytest.mark.sample(100)
@pytest.mark.parametrize("dtype", X)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpys_values_and_types(name: str, dtype: str) -> None:
    x, function = X[dtype], FUNCTIONS[name]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            wanted = function(x)
        except (TypeError, ValueError, np.linalg.LinAlgError):
            with pytest.raises(cvm.Error):
                cvm.compile(function, rules="numpy")(x)
            return
    found = cvm.compile(function, rules="numpy")(x)
    several = isinstance(wanted, tuple)
    for got, want in zip(
        found if several else (found,), wanted if several else (wanted,), strict=True
    ):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        if name in SUMS and want.dtype.kind in "fc":
            eps = 32 * np.finfo(want.dtype).eps
            np.testing.assert_allclose(
                got, want, rtol=eps, atol=eps * max(1.0, np.nanmax(np.abs(want)))
            )
        else:
            np.testing.assert_array_equal(got, want)


def test_histogram_of_known_edges() -> None:
    counts, edges = cvm.compile(lambda x: np.histogram(x, EDGES), rules="numpy")(X["f4"])
    wanted = np.histogram(X["f4"], EDGES)
    assert counts.tolist() == wanted[0].tolist() and edges.tolist() == EDGES.tolist()


def test_every_function_is_tested() -> None:
    """Here, among the forms of calls, or in the list of expressions, which has all ufuncs."""
    lists = numpy_expressions.__file__, numpy_forms.__file__
    beside = ("test_numpy_call_forms.py", "test_linear_algebra.py")
    files = (__file__, *map(Path(__file__).with_name, beside), *lists)
    text = "".join(Path(file).read_text("utf-8") for file in files)
    assert not [
        n for n in NUMPYS if f".{n}" not in text and not isinstance(getattr(np, n, None), np.ufunc)
    ]


def test_parts_of_complex_numbers_that_are_nan() -> None:
    nan, inf = np.nan, np.inf
    x = np.array(
        [
            [1 + 2j, complex(nan, 1), 3 - 1j],
            [complex(2, nan), -1j, complex(inf, 1)],
            [complex(nan, nan), 2, 0.25j],
        ]
    )
    for form in [
        "np.nansum(x,axis=0)",
        "np.nanmean(x[:,:2])",
        "np.nanvar(x[:,:2],axis=0)",
        "np.nanmax(x)",
        "np.nanmin(x,axis=1)",
        "np.nan_to_num(x)",
        "np.nan_to_num(x,nan=7.0,posinf=9.0)",
        "np.round(x,1)",
        "np.median(x)",
        "np.median(x,axis=0)",
        "np.sort(x,axis=0)",
        "np.argmax(x)",
    ]:
        function = eval(f"lambda x: {form}", {"np": np})
        wanted = np.asarray(function(x))
        found = cvm.compile(function, rules="numpy")(x)
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        for got, want in ((found.real, wanted.real), (found.imag, wanted.imag)):
            np.testing.assert_allclose(got, want, rtol=1e-14)


def test_more_shapes_than_are_compiled_one_by_one() -> None:
    """Sizes are unknown then, but for a function that needs them."""
    for function in (
        lambda x: x.sum(axis=0) / len(x),
        lambda x: np.pad(np.roll(x, 1), 1, "wrap"),
        lambda x: x[1:] if len(x) > 9 else x,
    ):
        f = cvm.compile(function, target="reference", rules="numpy")
        for n in range(2, 14):
            x = np.arange(float(n))
            np.testing.assert_array_equal(f(x), function(x))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_sizes_unknown_while_compiling_of_which_nothing_is_left(target: Any) -> None:
    for function in (lambda x: x[::-1], lambda x: x[3:], lambda x: np.diff(x, 2)):
        f = cvm.compile(function, target=target, rules="numpy")
        for n in (*range(4, 15), 3, 2, 1, 0, 20):
            x = np.arange(float(n))
            np.testing.assert_array_equal(f(x), function(x), strict=True)


def test_bincount_of_a_known_size() -> None:
    x = np.array([3, 0, 3, 1], "u1")
    assert cvm.compile(lambda x: np.bincount(x, minlength=5), rules="numpy")(x).tolist() == [
        1,
        1,
        0,
        2,
        0,
    ]
    one = cvm.compile(lambda x: np.take(x, 7), rules="numpy")
    with pytest.raises(cvm.CallError, match="an index is outside of its axis"):
        one(np.ones(1))  # whose only element is read at 0, whatever the index
    for wrong in (np.array([5, 0]), np.array([-1, 0])):
        with pytest.raises(cvm.Error, match="an index is outside of its axis"):
            cvm.compile(lambda x: np.bincount(x, minlength=5), rules="numpy")(wrong)
    with pytest.raises(cvm.TraceError, match="give minlength"):
        cvm.compile(lambda x: np.bincount(x), rules="numpy")(x)


@pytest.mark.parametrize("side", ["left", "right"])
def test_complex_numbers_that_are_nan_have_a_place(side: Any) -> None:
    z = np.array([complex(a, b) for a in (0, 1, -1, np.nan, 2) for b in (0, np.nan, 1, -1)])
    ordered = np.sort(z)
    found = cvm.compile(lambda z: np.searchsorted(ordered, z, side), rules="numpy")(z)
    np.testing.assert_array_equal(found, np.searchsorted(ordered, z, side))


@pytest.mark.parametrize("exponent", [0.5, np.float64(0.5), np.float32(0.5), np.array(0.5)])
def test_roots_of_what_has_none(exponent: Any) -> None:
    """NumPy takes the root for an exponent of one half: -0 of -0, and NaN of -inf."""
    x = np.array([-0.0, -np.inf, 4, np.nan])
    with np.errstate(invalid="ignore"):
        wanted = np.power(x, exponent)
    found = cvm.compile(lambda x: np.power(x, exponent), rules="numpy")(x)
    np.testing.assert_array_equal(found, wanted)
    assert np.signbit(found[0])


def test_elements_are_changed() -> None:
    """`at` as JAX has it, subscripts of arrays that the function made, and functions that change
    them.
    """

    def changed(x: Any, m: Any) -> Any:
        y = x * 2
        y[1] = 7
        y[m > 0] = -1
        np.put_along_axis(y, np.array([[0], [1], [2], [3]]), 9, axis=1)
        np.put_along_axis(
            y, np.array([[4, -1]]), x[:, :1], axis=1
        )  # indices of one row are those of every row
        np.put_along_axis(y, np.array([3, 9]), 5, axis=None)
        np.add.at(y, [0, 0], x[1])
        z = x.copy()
        z[0] = x[1] + 1
        return y, z

    x = np.arange(24).reshape(4, 6)
    m = (np.arange(24).reshape(4, 6) % 5 == 0) * 1.0
    for got, want in zip(cvm.compile(changed, rules="numpy")(x, m), changed(x, m), strict=True):
        np.testing.assert_array_equal(got, want)
    at = cvm.compile(
        lambda x: (
            x.at[1].set(5),
            x.at[[0, 0, 2], 1].add(10),
            x.at[:, 1:3].multiply(3),
            x.at[1:, [0, 0]].max(50),
            x.at[x > 20].min(3),
            x.at[np.array([True, False, False, True])].set(x[0]),
            x.at[0].get(),
        ),
        rules="numpy",
    )(x)
    wanted = [x.copy() for _ in range(6)]
    wanted[0][1] = 5
    np.add.at(wanted[1], ([0, 0, 2], 1), 10)
    wanted[2][:, 1:3] *= 3
    np.maximum.at(wanted[3], (slice(1, None), [0, 0]), 50)
    wanted[4][x > 20] = 3
    wanted[5][[0, 3]] = x[0]
    for got, want in zip(at, [*wanted, x[0]], strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x.__setitem__(0, 1),
            "leaves its arguments as they are: make a new array, as by",
        ),
        (
            lambda x: (y := x + 1, y.ravel().__setitem__(0, 1), y.sum())[-1],
            r"may share memory with another one, which line \d+ changes",
        ),
        (
            lambda x: x.at[0].set(np.zeros(5)),
            r"values of shape \(5,\) do not fit elements of shape \(6,\)",
        ),
        (lambda x: x.at[0].set(2**70), "out of bounds for int64"),
        (lambda x: x.at[x > 1].set(x), "elements that a mask chooses take a number"),
    ],
)
def test_what_cannot_be_changed(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(cvm.Error, match=message):
        cvm.compile(change, rules="numpy")(np.arange(24).reshape(4, 6))


def test_python_numbers_stay_numbers() -> None:
    """Results of two Python numbers give way to the types of arrays, as in Python."""
    x = np.ones(3, np.float32)
    f = cvm.compile(
        lambda x, a, b: (x * (a * b), x + a / b, x - abs(-b), x * (2**b)), rules="numpy"
    )
    for got, want in zip(f(x, 3, 2), (x * 6, x + 1.5, x - 2, x * 4), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["nonzero", "unique", "argwhere"])
def test_what_depends_on_elements_is_refused(name: str) -> None:
    assert name in REFUSED
    with pytest.raises(cvm.TraceError, match="size depends on the elements"):
        cvm.compile(lambda x: getattr(np, name)(x), rules="numpy")(X["i4"])


def test_a_mask_is_no_subscript() -> None:
    with pytest.raises(cvm.TraceError, match=r"use np\.where"):
        cvm.compile(lambda x: x[x > 0], rules="numpy")(X["i4"])


def test_updates_by_values_of_a_wider_type_are_refused() -> None:
    """NumPy adds in the wider type, and converts each sum."""

    def added(x: Any) -> Any:
        y = x + 0
        np.add.at(y, [0, 0], x.mean() - 5)
        return y

    with pytest.raises(cvm.TraceError, match="computes this in float64 and converts each result"):
        cvm.compile(added)(np.array([[5, 6, 0], [6, 2, 4], [4, 2, 6]]))
