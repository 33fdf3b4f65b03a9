"""Contractions of sizes that are known only when called: by tiles or as plain loops, they agree
with the reference, and floats with the program of known sizes to the bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Expr, Index
from cvm.dialect.types.sizes import Size
from legal_and_equal import legal

import cvm

FOUR = "?x?x?x?"
PROGRAMS = {
    "dense": (
        "cvm.dense %a, %b",
        ("?x?", "?x?"),
        [
            ((m, k), (n, k))
            for m, k, n in (
                (6, 8, 8),
                (13, 33, 21),
                (64, 70, 48),
                (5, 40, 9),
                (7, 7, 7),
                (1, 64, 64),
            )
        ],
    ),
    "dense of a known layer": (
        "cvm.dense %a, %b",
        ("?x34", "19x34"),
        [((n, 34), (19, 34)) for n in (6, 5, 1, 23)],
    ),
    "nothing at all": (
        "cvm.dense %a, %b",
        ("?x?", "?x?"),
        [((0, 9), (9, 9)), ((9, 9), (0, 9)), ((9, 0), (9, 0))],
    ),
    "1x1": (
        "cvm.conv2d %a, %b",
        ("?x?x?x?", "?x?x1x1"),
        [((2, c, 5, 4), (13, c, 1, 1)) for c in (9, 16, 3)],
    ),
    "3x3": (
        "cvm.conv2d %a, %b {padding = [1, 1]}",
        (FOUR, FOUR),
        [
            ((2, c, 9, w), (o, c, 3, 3))
            for c, w, o in ((4, 17, 6), (3, 8, 13), (5, 7, 9), (2, 16, 5))
        ],
    ),
    "3x3 of a known layer": (
        "cvm.conv2d %a, %b {padding = [1, 1]}",
        ("?x5x?x?", "7x5x3x3"),
        [((n, 5, 9, w), (7, 5, 3, 3)) for n, w in ((1, 17), (2, 8), (0, 9), (1, 3))],
    ),
    "strided": (
        "cvm.conv2d %a, %b {padding = [2, 3], stride = [2, 2]}",
        (FOUR, FOUR),
        [((1, 3, 9, w), (o, 3, 5, 7)) for w, o in ((26, 8), (13, 6), (31, 4))],
    ),
    "groups": (
        "cvm.conv2d %a, %b {padding = [1, 1], groups = 3}",
        (FOUR, FOUR),
        [
            ((2, 3 * c, 9, w), (o, c, 3, 3))
            for c, w, o in ((4, 17, 18), (3, 8, 21), (1, 9, 3), (2, 16, 6))
        ],
    ),
    "groups of known channels": (
        "cvm.conv2d %a, %b {padding = [1, 1], groups = 2}",
        ("?x6x?x?", "?x3x3x3"),
        [((2, 6, 9, w), (o, 3, 3, 3)) for w, o in ((17, 12), (7, 2), (8, 10))],
    ),
    "far strides": (
        "cvm.conv2d %a, %b {stride = [1, 6]}",
        (FOUR, FOUR),
        [((1, 3, 3, 60), (7, 3, 2, 3))],
    ),
    "dilated": (
        "cvm.conv2d %a, %b {padding = [1, 4], dilation = [1, 4]}",
        (FOUR, FOUR),
        [((1, c, 4, 12), (6, c, 3, 3)) for c in (2, 3)],
    ),
    "a batch of unknown size": (
        "cvm.conv2d %a, %b {padding = [1, 1]}",
        ("?x16x9x12", "8x16x3x3"),
        [((n, 16, 9, 12), (8, 16, 3, 3)) for n in (3, 1, 0)],
    ),
}
RANGES = {"8 bits": 128, "16 bits": 32768, "just beyond 16 bits": 32769, "32 bits": 2**31}


@pytest.fixture(autouse=True)
def small_ones_too(compile_for: Callable[..., None]) -> None:
    compile_for(packing_products=0)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_path(name: str) -> None:
    operation, (a, b), shapes = PROGRAMS[name]
    program = (
        f"func @main(%a: tensor<{a}xi32>, %b: tensor<{b}xi32>) {{\n  %y = {operation}\n"
        f"  return %y\n}}\n"
    )
    function, reference = (cvm.compile(program, target=t) for t in ("cpu", "reference"))
    lowered = function.lower("schedule")
    assert "pairdot" in lowered and (".small(" in lowered) == ("batch" not in name)
    module = cvm.parse(program)
    legal(module)
    random = np.random.default_rng(0)
    for x, w in shapes:
        for most in RANGES.values():
            values = [random.integers(-m, m, s).astype(np.int32) for m, s in ((most, x), (128, w))]
            np.testing.assert_array_equal(function(*values), reference(*values), strict=True)


def test_what_is_large_goes_by_tiles(compile_for: Callable[..., None]) -> None:
    compile_for()
    program = (
        "func @main(%a: tensor<?x?xi32>, %b: tensor<?x?xi32>) {\n  %y = cvm.dense %a, %b\n"
        "  return %y\n}\n"
    )
    condition = "?0 >= 6 & ?2 >= 8 & ?1 >= 8 & [mul(mul(?0, ?2), ?1)] >= 32768"
    tiles, small = (
        cvm.compile(program)
        .lower("schedule")
        .split("kernel @main.0.large.tiles(")[1]
        .split("kernel @")
    )
    assert f"if {condition} {{" in tiles and f"if ~({condition}) {{" in small


def test_groups_are_apart_where_they_are_whole() -> None:
    program = (
        "func @main(%a: tensor<?x?x?x?xi32>, %b: tensor<?x?x?x?xi32>) {\n"
        "  %y = cvm.conv2d %a, %b {groups = 3}\n  return %y\n}\n"
    )
    function = cvm.compile(program)
    kernels = function.lower("schedule").split("kernel @main.0.")
    (tiles,) = (k for k in kernels if k.startswith("large.tiles("))
    (other,) = (k for k in kernels if k.startswith("other("))
    assert "] * 3 & " in tiles
    assert "if ~(?4 == [floordiv(?4, 3)] * 3 & ?1 == ?5 * 3) {" in other
    with pytest.raises(cvm.Error, match="groups"):
        function(np.zeros((1, 6, 3, 9), np.int32), np.zeros((8, 2, 3, 1), np.int32))


@pytest.mark.parametrize("times", [2, 3, 4, 6])
def test_reductions_that_are_multiples(times: int) -> None:
    """Sizes that are not known, but to be multiples of what a word holds."""
    body = f"  %t = cvm.tile %a {{reps = [1, {times}]}}\n  %y = cvm.dense %t, %b\n  return %y\n"
    program = f"func @main(%a: tensor<?x?xi32>, %b: tensor<?x?xi32>) {{\n{body}}}\n"
    function, reference = (cvm.compile(program, target=t) for t in ("cpu", "reference"))
    random = np.random.default_rng(0)
    for m, n, k in ((13, 21, 3), (6, 8, 8), (1, 40, 5), (9, 9, 0)):
        for most in RANGES.values():
            a, b = (
                random.integers(-most, most, s).astype(np.int32) for s in ((m, k), (n, times * k))
            )
            np.testing.assert_array_equal(function(a, b), reference(a, b), strict=True)


@pytest.mark.parametrize("x, w", [((40, 8, 3, 1), (40, 8, 3, 1)), ((40, 16, 1, 1), (24, 16, 3, 3))])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("most", [127, 2**31])
def test_single_places_beside_padding(
    x: tuple[int, ...], w: tuple[int, ...], known: bool, most: int
) -> None:
    """A guard without an index of the result protects the guarded read beyond its ends."""
    sizes = ["x".join(map(str, s if known else ("?", "?", *s[2:]))) for s in (x, w)]
    how = "padding = [1, 0], dilation = [2, 1]" if w[3] == 1 else "padding = [1, 1]"
    body = f"  %y = cvm.conv2d %x, %w {{{how}}}\n  return %y\n"
    program = f"func @main(%x: tensor<{sizes[0]}xi32>, %w: tensor<{sizes[1]}xi32>) {{\n{body}}}\n"
    module = cvm.parse(program)
    legal(module)
    random = np.random.default_rng(0)
    values = [random.integers(-most, most, s).astype(np.int32) for s in (x, w)]
    expected = cvm.compile(module, target="reference")(*values)
    for target in ("cpu", "cuda-sim"):
        np.testing.assert_array_equal(
            cvm.compile(module, target=target)(*values), expected, strict=True
        )


def test_groups_of_an_unknown_size_on_a_gpu() -> None:
    program = (
        "func @main(%x: tensor<2x?x9x9xi32>, %w: tensor<?x3x?x2xi32>) {\n"
        "  %y = cvm.conv2d %x, %w {stride = [7, 1], groups = 3}\n  return %y\n}\n"
    )
    x, w = (np.arange(np.prod(s), dtype=np.int32).reshape(s) for s in ((2, 9, 9, 9), (6, 3, 7, 2)))
    simulated, reference = (cvm.compile(program, target=t)(x, w) for t in ("cuda-sim", "reference"))
    np.testing.assert_array_equal(simulated, reference, strict=True)


def matmul(element: str, a: str, b: str) -> str:
    return f"""func @main(%a: tensor<{a} x {element}>, %b: tensor<{b} x {element}>) {{
  %p = theano.dimshuffle %a {{new_order = [0, 1, "x"]}}
  %q = theano.dimshuffle %b {{new_order = ["x", 0, 1]}}
  %m = theano.elemwise %p, %q {{scalar_op = "mul"}}
  %y = theano.sum %m {{axis = [1], acc_dtype = {element}}}
  return %y
}}
"""


@pytest.mark.parametrize("element", ["f32", "f64", "i32"])
@pytest.mark.parametrize(
    "sizes",
    [
        (6, 9, 16),
        (13, 33, 21),
        (9, 800, 24),
        (4, 40, 24),
        (5, 40, 24),
        (9, 7, 24),
        (9, 40, 7),
        (7, 20000, 9),
    ],
)
def test_known_or_not_the_result_is_the_same(element: str, sizes: tuple[int, int, int]) -> None:
    rows, terms, columns = sizes
    random = np.random.default_rng(0)
    x, w = (random.normal(size=s) * 100 for s in ((rows, terms), (terms, columns)))
    dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[element]
    x, w = x.astype(dtype), w.astype(dtype)
    known = cvm.compile(matmul(element, f"{rows} x {terms}", f"{terms} x {columns}"))
    unknown = cvm.compile(matmul(element, "?M x ?K", "?K x ?N"))
    found = unknown(x, w)
    np.testing.assert_array_equal(found, known(x, w), strict=True)
    before = cvm.get_num_threads()
    try:
        for threads in (1, 2, 3):
            cvm.set_num_threads(threads)
            np.testing.assert_array_equal(unknown(x, w), found, strict=True)
    finally:
        cvm.set_num_threads(before)
    exact = x.astype(np.longdouble) @ w.astype(np.longdouble)
    bound = (
        0 if element == "i32" else terms * np.finfo(dtype).eps * (np.abs(x) @ np.abs(w))
    )  # of any summation
    assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul])
def test_a_size_computes_with_sizes_only(operation: Callable[[Any, Any], Any]) -> None:
    """Other operands of a size's operators define the operation themselves, or fail."""
    size = Size.named("N")
    assert isinstance(operation(size, 2), Size) and isinstance(operation(2, size), Size)
    assert all(
        isinstance(operation(*both), Expr)
        for both in ((size, Index("i", 4)), (Index("i", 4), size))
    )
    with pytest.raises(TypeError, match="unsupported operand"):
        operation(size, 1.5)
