"""Results as arrays of the caller's library, conversions that lose nothing, and tracebacks that end
in the user's line.
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cvm

PROGRAM = "func @main(%x: tensor<3xi32>) { %y = cvm.relu %x\n return %y }"


class Tensor:
    """An array of a library that is not NumPy's."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=lambda a: Tensor(np.from_dlpack(a)))


def test_results_are_of_the_library_that_arguments_are_of() -> None:
    x = np.arange(3, dtype=np.int32)
    for f in (cvm.compile(PROGRAM), cvm.compile(lambda x: x * 1, rules="numpy")):
        for _ in range(3):
            found = f(Tensor(x))
            assert isinstance(found, Tensor) and np.array_equal(found.array, x)
            assert isinstance(f(x), np.ndarray)
    several = cvm.compile(lambda d: {"sum": d["x"].sum(), "all": [d["x"], d["y"]]}, rules="numpy")
    found = several({"x": x, "y": Tensor(x)})
    assert isinstance(found["sum"], Tensor) and isinstance(found["all"][0], Tensor)
    assert isinstance(cvm.compile(PROGRAM, like="numpy")(Tensor(x)), np.ndarray)
    assert isinstance(
        cvm.compile(lambda x: x + 1, like="numpy", rules="numpy")(Tensor(x)), np.ndarray
    )
    with pytest.raises(cvm.Error, match="like is"):
        cvm.compile(PROGRAM, like="torch")  # type: ignore[call-overload]


def test_torch_tensors_come_back() -> None:
    torch = pytest.importorskip("torch")
    f = cvm.compile(lambda x: (x * 2, x.sum()), rules="numpy")
    doubled, total = f(torch.arange(4.0))
    assert (
        isinstance(doubled, torch.Tensor) and doubled.tolist() == [0, 2, 4, 6] and total.item() == 6
    )


def test_arrays_are_converted_where_every_value_fits() -> None:
    f, strict = cvm.compile(PROGRAM, convert=True), cvm.compile(PROGRAM)
    for given in (
        np.array([1, -2, 3]),
        np.array([1.0, -2.0, 3.0]),
        np.array([1, 254, 3], np.uint8),
    ):
        np.testing.assert_array_equal(f(given), np.maximum(given.astype(np.int32), 0), strict=True)
    for wrong in ([1, 2, 2**40], [1.5, 2, 3], [np.nan, 2, 3], [1e30, 2, 3]):
        with pytest.raises(cvm.CallError, match="with values that it does not hold"):
            f(np.array(wrong))
    with pytest.raises(cvm.CallError, match=r"help: x\.astype\(np\.int32\)"):
        strict(np.array([1, 2, 3]))
    with pytest.raises(cvm.Error, match="convert is for programs"):
        cvm.compile(lambda x: x, convert=True)  # type: ignore[call-overload]


def branch(x: Any) -> Any:
    return x if x > 0 else -x


def assign(x: Any) -> Any:
    y = np.zeros(3)
    y[0] = x[0]
    return y


@pytest.mark.parametrize(
    ("call", "last"),
    [
        (lambda: cvm.compile(PROGRAM)(np.ones(3)), "<lambda>"),
        (lambda: cvm.parse("func"), "<lambda>"),
        (lambda: cvm.load("no such file"), "<lambda>"),
        (lambda: cvm.compile(PROGRAM, entry="other"), "<lambda>"),
        (lambda: cvm.compile(branch, rules="numpy")(np.ones(3)), "branch"),
        (lambda: cvm.compile(assign, rules="numpy")(np.ones(3)), "assign"),
        (lambda: cvm.grad(branch)(np.ones(3)), "branch"),
    ],
)
def test_tracebacks_end_in_the_users_line(
    call: Callable[[], Any], last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(cvm.Error) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert {f.filename for f in frames} == {__file__} and frames[-1].name == last
    monkeypatch.setenv("CVM_TRACEBACK", "1")
    with pytest.raises(cvm.Error) as caught:
        call()
    assert len({f.filename for f in traceback.extract_tb(caught.value.__traceback__)}) > 1


def test_an_uncaught_error_shows_lines_of_the_user_alone() -> None:
    code = "import cvm\n\n\ndef main():\n    cvm.parse('func')\n\n\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.count("File ") == 2 and "cvm.ParseError" in done.stderr
