"""Random numbers by key and counter: published answers, the same bits everywhere, and mistakes."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from available_targets import HERE, WIDTHS

import cvm
from cvm import random
from cvm.random import _words

KEY = random.key(12345)


def test_published_answers() -> None:
    """The known answers of Random123 for Philox-4x32 in 10 rounds."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert random.bits(random.key(0), 4).tolist() == words
    numbers = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    a, b, c, d = (np.array([n], np.uint32) for n in numbers)
    found = _words(np.array([[0xA4093822], [0x299F31D0]], np.uint32), a, b, d[0], c)
    assert [int(w[0]) for w in found] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "bits": lambda k: random.bits(k, (3, 5)),
    "bits of 64": lambda k: random.bits(k, 7, np.uint64),
    "uniform": lambda k: random.uniform(k, 9),
    "uniform f64": lambda k: random.uniform(k, 9, np.float64, -2, 5),
    "normal": lambda k: random.normal(k, 33),
    "normal f64": lambda k: random.normal(k, (2, 8), np.float64),
    "integers": lambda k: random.integers(k, -7, 9, 20),
    "integers of 64": lambda k: random.integers(k, 0, 1 << 64, 3, np.uint64),
    "bernoulli": lambda k: random.bernoulli(k, 0.25, 20),
    "permutation": lambda k: random.permutation(k, 30),
    "split": lambda k: random.split(k, 3),
    "fold_in": lambda k: random.fold_in(k, 1 << 40),
    "none": lambda k: random.uniform(k, (0, 3)),
    "one": random.uniform,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_target_and_width_has_the_same_bits(name: str) -> None:
    function = FUNCTIONS[name]
    wanted = function(KEY)
    reference = cvm.compile(function, target="reference")(KEY)
    if name.startswith("normal"):  # whose erfinv the reference rounds correctly
        np.testing.assert_array_max_ulp(reference, wanted, 2)
    else:
        assert reference.dtype == wanted.dtype and reference.tobytes() == wanted.tobytes()
    made: list[Any] = [cvm.compile(function, cpu=cpu) for cpu in WIDTHS]
    if "cuda-sim" in HERE:
        made.append(cvm.compile(function, target="cuda-sim"))
    for f in made:
        got = f(KEY)
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes()


def test_integers_follow_their_rule() -> None:
    words = random.bits(KEY, 50, np.uint64)
    for low, high in [(0, 1), (-5, 6), (0, 1 << 33), (-(1 << 63), 1 << 63), (-1, (1 << 62) + 7)]:
        wanted = [low + (int(r) * (high - low) >> 64) for r in words]
        assert random.integers(KEY, low, high, 50).tolist() == wanted
    assert random.integers(KEY, -128, 128, 4000, np.int8).min() == -128


def test_floats_are_exact_and_spread() -> None:
    n = 1 << 16
    single, double = random.uniform(KEY, n), random.uniform(KEY, n, np.float64)
    assert (single.astype(np.float64) * 2**24 % 1 == 0).all()
    assert 0 <= single.min() < single.max() < 1
    assert all(Fraction(float(x)) * 2**53 % 1 == 0 for x in double[:99])
    # chi squared of 16 bins, of 15 degrees of freedom: beyond 40 for one key in 2,000
    counts = np.histogram(single, 16, (0, 1))[0]
    assert ((counts - n / 16) ** 2 / (n / 16)).sum() < 40
    for dtype in (np.float32, np.float64):
        x = random.normal(KEY, n, dtype).astype(np.float64)
        assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02 and abs((x**3).mean()) < 0.05
        assert np.isfinite(x).all()
    assert abs(random.bernoulli(KEY, 0.25, n).mean() - 0.25) < 0.01
    assert sorted(random.permutation(KEY, 1000)) == [*range(1000)]
    rows = np.arange(30).reshape(10, 3)
    assert (random.permutation(KEY, rows) == rows[random.permutation(KEY, 10)]).all()


def test_keys_are_streams_of_their_own() -> None:
    keys = random.split(KEY, 4)
    made = [KEY, *keys, *(random.fold_in(KEY, n) for n in range(4)), random.fold_in(keys[0], 0)]
    streams = {random.bits(k, 4).tobytes() for k in made}
    assert len(streams) == len(made)
    assert (random.fold_in(KEY, -1) == random.fold_in(KEY, np.uint64(2**64 - 1))).all()
    each = cvm.vmap(lambda k: random.normal(k, 3))(keys)
    assert all((row == random.normal(k, 3)).all() for row, k in zip(each, keys, strict=True))


def test_in_traced_functions_with_open_sizes_and_derivatives() -> None:
    noisy = cvm.compile(lambda k, x: x + random.normal(k, x.shape))
    for n in (1, 2, 5, 33, 3, 4, 6, 7, 8, 9, 10):  # after some sizes, one program for all
        x = np.zeros((n, 3), np.float32)
        assert noisy(KEY, x).tobytes() == random.normal(KEY, (n, 3)).tobytes()
    loss = cvm.grad(lambda w: (w * random.uniform(KEY, 3)).sum())
    assert (loss(np.ones(3, np.float32)) == random.uniform(KEY, 3)).all()


def test_in_kernels() -> None:
    @cvm.kernel
    def fill(key: Any, words: Any, y: Any) -> None:
        for i in cvm.prange(len(y)):
            y[i] = random.uniform_at(key, i)
            words[i] = random.bits_at(key, i)

    words, y = np.zeros(1001, np.uint32), np.zeros(1001, np.float32)
    fill(KEY, words, y)
    assert (words == random.bits(KEY, 1001)).all() and (y == random.uniform(KEY, 1001)).all()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: random.key(-1), "a seed is an integer from 0 to 2.64 - 1, got -1"),
        (lambda: random.key(True), "got True"),
        (lambda: random.bits(KEY, -1), "sizes are integers from 0, got -1"),
        (lambda: random.bits(KEY, (2.5,)), r"sizes are integers from 0, got \(2.5,\)"),
        (lambda: random.bits(KEY, 3, np.int8), "uint32 or uint64, got int8"),
        (lambda: random.uniform(np.zeros(3), 3), r"a key is two ui32.*float64 of shape \(3,\)"),
        (lambda: random.uniform("a", 3), "str|<U1"),
        (lambda: random.normal(KEY, 3, np.float16), "float32 or float64, got float16"),
        (lambda: random.integers(KEY, 3, 3), "low < high .* got 3 and 3"),
        (lambda: random.integers(KEY, 0, 300, 3, np.int8), "-128 <= low < high <= 128"),
        (lambda: random.integers(KEY, 0.5, 3), "numbers of Python, got 0.5 and 3"),
        (lambda: random.integers(KEY, 0, 3, 3, np.float32), "a type of integers, got float32"),
        (lambda: random.bits(KEY, 3, "bytes of"), "expected a type of NumPy, got 'bytes of'"),
        (lambda: random.permutation(KEY, np.float32(1)), "got an array of rank 0"),
        (lambda: random.fold_in(KEY, [1, 2]), "data is one integer"),
        (lambda: random.fold_in(KEY, 0.5), "data is one integer, got float64"),
        (lambda: random.split(KEY, -1), "sizes are integers from 0"),
    ],
)
def test_mistakes(call: Callable[[], object], said: str) -> None:
    with pytest.raises(cvm.Error, match=said):
        call()


def test_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "random.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    for n, block in enumerate(blocks):  # a kernel is read from a file
        (file := tmp_path / f"block{n}.py").write_text(block)
        runpy.run_path(str(file))
    assert capsys.readouterr().out.startswith("[3 4 1 0 2]\n[[0. 2. 2. 2. 2.]\n")
