"""NumPy's functions called in all the ways NumPy allows: by position, by name, with dtype, out and
where, and in place.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest

import cvm

FORMS = (
    """
x.sum(0, 'f8')  x.sum(0, None, None, True)  np.sum(x, 0, None, None, True)  np.sum(a=x, axis=1)  x.sum(axis=1, where=x[0]>0)  np.sum(x, axis=())
np.max(x, 0, None, True)  np.max(a=x, axis=(0, 1), keepdims=True)  x.max(axis=0, where=x>0, initial=0)  np.mean(a=x, axis=0)  x.mean(1, None, None, True)
np.std(x, axis=0, where=x>-50)  x.var(axis=1, where=x>0)  np.var(x, correction=1)  np.std(a=x, ddof=1)  np.var(x, mean=x.mean())
np.cumsum(a=x, axis=1)  np.diff(a=x)  np.sort(a=x)  np.take(a=x, indices=[0])  np.repeat(a=x, repeats=2)  np.argmax(a=x)  np.expand_dims(a=x, axis=0)
np.squeeze(a=x[None])  np.tile(A=x, reps=2)  np.roll(a=x, shift=1)  np.flip(m=x)  np.round(a=x, decimals=1)  np.pad(array=x, pad_width=1)
np.median(a=x)  np.broadcast_to(array=x, shape=(2,4,6))  np.full_like(a=x, fill_value=2)  np.zeros_like(a=x)  np.ravel(a=x)  np.transpose(a=x)
np.swapaxes(a=x, axis1=0, axis2=1)  np.moveaxis(a=x, source=0, destination=1)  np.moveaxis(x[None], [0, 1], [-1, 0])  np.moveaxis(x[None], (2, 0), (0, 1))
np.count_nonzero(a=x)  np.histogram(a=x, bins=[0,1])[0]  np.trace(a=x)  np.diag(v=x)  np.triu(m=x)  np.average(a=x)  np.ptp(a=x)  np.all(a=x)  np.nansum(a=x)
np.append(arr=x, values=1)  np.rot90(m=x)  np.split(ary=x, indices_or_sections=2)  np.diagonal(a=x)  np.clip(a=x, a_min=0, a_max=1)  np.reshape(x, shape=(3, 8))
np.reshape(x, (6, 4), 'F')  x.reshape(6, 4, order='F')  x.ravel('F')  x.flatten('F')  np.size(x, 0) * x  np.meshgrid(x[0], x[1], sparse=True)  np.pad(x, {0: (1, 2)})
np.add(x, 1, dtype='f8')  np.multiply(x, x, dtype='f8')  np.add(x, 1, where=True)  np.vstack([x, x], casting='same_kind')
np.linalg.trace(x[None] * np.ones((3, 1, 1)))  np.linalg.diagonal(x[None])  np.linalg.matrix_norm(x)  np.linalg.vector_norm(x, axis=0)  np.linalg.norm(x=x)
np.linalg.matrix_power(x[:, :4], 3)  np.linalg.multi_dot([x, x.T, x])  np.linalg.matrix_transpose(x)  np.linalg.vecdot(x, x)  np.linalg.outer(x[0], x[1])
np.mean(x, dtype='i4')  np.mean(x, axis=0, dtype=np.int8, where=x > -50)  np.median(x, axis=(0, 1), keepdims=True)  np.median(x[None], axis=(0, -1))
np.add.reduce(x, out=np.zeros_like(x[0], dtype='f8'))  np.cumsum(x, out=np.zeros_like(x.ravel(), dtype='f8'))  np.logical_and.reduce(x, initial=False)
np.roll(x, (1, 2), axis=0)  np.roll(x, (1, 2))  np.roll(x, 3, axis=(0, 1, 0))  np.tile(x, 0)  np.tile(x, (2, 0))  np.tile(x, ())  x[(0, 2), :]  x[range(2)]  x[[]]
x.mT  x.astype('f8', copy=False)  np.full_like(x, np.nan, dtype='f4')  np.split(x, np.int64(2))  np.max(x + 1j, axis=(1,))  x.clip(1, max=2)  np.nan_to_num(np.sqrt(x - 1), nan=np.inf)
np.clip(x > 0, 0, np.uint8([1, 0, 1, 1, 0, 1]))  np.clip(x.astype('i1'), 0.5, np.float32([1, 2, 3, 4, 5, 6]))  np.clip(x.astype('u1'), -1, np.float32(2))
np.linalg.matmul(x, x.T)  np.linalg.tensordot(x, x, axes=((0, 1), (0, 1)))  np.linalg.cross(x[:, :3], x[:, 3:])
""".replace("\n", "  ")
    .strip()
    .split("  ")
)
STATEMENTS = (
    """
y[:, 1] += 5 | y[1:] -= y[:-1] | y[1:3, ::2] *= 2 | y[..., -1] = 7 | y[x > 0] = 0 | y[[0, 2]] = x[1] | y += x | y **= 2
y = y[::-1]; y[0] = 1 | z = y.T; y[0] = 1 | z = y[[0, 1]]; z += 1; y[0] = z[1] | z = y; z += 1 | y[0] += y[1]; y[1] += y[0]
np.add(y, 1, out=y) | np.sqrt(abs(x) + 0.0, out=y) | np.maximum(y, 0, y) | np.add(x, 1, out=y, where=x > 0) | np.cumsum(x, axis=0, out=y)
np.clip(y, 0, 1, out=y) | z = np.zeros_like(y[0]); np.sum(x, axis=0, out=z); y[0] = z | y = y / 0; np.nan_to_num(y, copy=False)
z = y.astype(y.dtype); z += 1; y *= 2 | z = np.roll(y, 0); z += 1 | z = np.pad(y, 0); y[0] = z[1] + 1 | y = y.astype('i4'); z = np.round(y); z += 1 | np.add.at(y, [0, 0], 1) | a = y * 1; np.modf(x, out=(y, a)); y += a
z = y[0]; z += 1 | z = y.T; y[0] = 1; y += z.T | y[0][1] += 5 | y[0], y[1] = y[1], y[0] | z = y[0]; z += 1; y[1] = z | np.add(1, x[0], out=y)
z = np.split(y, 2)[0]; z += 1 | z = np.broadcast_to(y, (2, 4, 6)); y += 1; y += z[0] | z = np.diagonal(y); y[0] = 9; y[0, :4] = z
z = np.lib.stride_tricks.sliding_window_view(y, 6, 1); y[0] = 9; y[:] = z[:, 0] | y[np.argmax(x[:, 0])] += 1 | z = copy(y); z += 1 | np.add(1, 2, out=y)
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
REFUSED = (
    """
z = x[0]; z += 1 | x[0] += 1 | z = np.broadcast_to(y, (2, 4, 6)); z += 1 | z = np.diagonal(y); z[0] = 1 | y.sum()[...] = 5 | np.add(1, 2, out=y.sum())
y = x.reshape(-1); y[0] = 1 | np.add(x, 1, out=x) | np.add(x, 1, where=x > 0) | np.multiply(x, 0.5, out=y.astype('i4')) | z = y.ravel(); z[0] = 1 | x @= np.eye(6)
y = y + 1j; y.real[0] = 1 | y = y.astype('i4'); y[0] = np.nan | z = np.lib.stride_tricks.sliding_window_view(y, 6, 1); z += 1
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


def compiled(statement: str) -> Any:
    names: dict[str, Any] = {"np": np, "copy": copy}
    exec(f"def f(x):\n    y = x + 0\n    {statement.strip()}\n    return y", names)
    return names["f"]


def elements(dtype: str) -> np.ndarray:
    return (np.random.default_rng(3).normal(size=(4, 6)) * 3).astype(dtype)


def compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, (list, tuple)):
        for one, other in zip(found, wanted, strict=True):
            compare(one, other)
        return
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(
        found, wanted, rtol=1e-5, atol=1e-5
    ) if wanted.dtype.kind in "fc" else np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", FORMS)
def test_expressions(form: str) -> None:
    function = eval(f"lambda x: {form}", {"np": np})
    for dtype in ("f4", "i4"):
        x = elements(dtype)
        compare(cvm.compile(function, target="reference", rules="numpy")(x), function(x))


NUMBERS = (
    """
np.sum(x, axis=0)  x.sum(axis=-1, keepdims=True)  np.prod(x, axis=0)  np.max(x, axis=-1)  np.any(x, axis=0)  np.squeeze(x, axis=0)
np.argmax(x, axis=0)  np.argsort(x, axis=-1)  np.cumsum(x, axis=0)  np.take(x, 0, axis=0)  np.repeat(x, 3, axis=-1)  np.median(x)  np.tile(x, 0)
""".replace("\n", "  ")
    .strip()
    .split("  ")
)


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_have_an_axis(form: str) -> None:
    function = eval(f"lambda x: {form}", {"np": np})
    for x in (np.float32(3), np.int32(2), np.bool_(True), np.complex64(1j)):
        compare(cvm.compile(function, target="reference", rules="numpy")(x), function(x))


# what NumPy refuses
ERRORS = (
    """
np.sum(x, axis=[0])  np.mean(x, axis=[0])  np.pad(x, 1, 'edge', constant_values=3)  np.pad(x, (1.5, 2))  np.meshgrid(x[0], indexing='zz')
np.clip(x, 1, 2, min=0)  np.std(x, ddof=1, correction=0)  np.linalg.norm(x, axis=())  np.linalg.norm(x[None], axis=(0, 1, 2))
np.add(x.astype('u1'), 300, dtype='u1')  np.full_like(x, -1, dtype='u1')  np.select([x], [x])  np.roll(x, (1, 2), axis=(0, 1, 0))  x[(0, 9), :]  np.linalg.outer(x, x[0])
np.sort(x, kind='other')  np.argsort(x, axis=None, kind='stable', stable=True)
""".replace("\n", "  ")
    .strip()
    .split("  ")
)


@pytest.mark.parametrize("form", ERRORS)
def test_what_numpy_refuses_is_refused(form: str) -> None:
    function = eval(f"lambda x: {form}", {"np": np})
    for x in (elements("f4"), elements("i4")):
        with pytest.raises((ArithmeticError, TypeError, ValueError, IndexError)):
            function(x)
        with pytest.raises(cvm.TraceError):
            cvm.compile(function, target="reference", rules="numpy")(x)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_that_change_arrays(statement: str) -> None:
    function, x = compiled(statement), elements("f4")
    found = cvm.compile(function, target="reference", rules="numpy")(x)
    compare(found, function(x.copy()))


@pytest.mark.parametrize("statement", REFUSED)
def test_what_would_change_arrays_unseen_is_refused(statement: str) -> None:
    with pytest.raises(cvm.TraceError):
        cvm.compile(compiled(statement), target="reference", rules="numpy")(elements("f4"))
