"""A reduction of floats has one order, which depends on its sizes alone: known beforehand or not,
in whole or in part, on every compiled target and for every number of threads the bits are the same,
around the number of terms from which on there are blocks, and beside what fills vectors, tiles and
lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.reduce_in_order import BLOCK_TERMS, MIN_TERMS
from float_windows import shaped, text as windows
from legal_and_equal import legal
from tiers import some

import cvm

Shape = tuple[int, ...]
SOFTMAX = """%m = theano.max %x {axis = [LAST]}
  %n = theano.dimshuffle %m {new_order = [ROW]}
  %d = dali.sub %x, %n
  %e = dali.exp %d
  %s = theano.sum %e {axis = [LAST], acc_dtype = f32}
  %t = theano.dimshuffle %s {new_order = [ROW]}
  %y = dali.div %e, %t"""
NORMALISED = """%m = theano.sum %x {axis = [LAST], acc_dtype = f32}
  %n = theano.dimshuffle %m {new_order = [ROW]}
  %k = dali.mul %n, 0.001
  %d = dali.sub %x, %k
  %q = dali.mul %d, %d
  %s = theano.sum %q {axis = [LAST], acc_dtype = f32}
  %t = theano.dimshuffle %s {new_order = [ROW]}
  %u = dali.sqrt %t
  %y = dali.div %d, %u"""
PRODUCTS = """%p = theano.dimshuffle %x {new_order = [0, 1, "x"]}
  %q = theano.dimshuffle %w {new_order = ["x", 0, 1]}
  %r = dali.mul %p, %q
  %y = theano.sum %r {axis = [1], acc_dtype = f32}"""
DENSE = """%p = theano.dimshuffle %x {new_order = [0, "x", 1]}
  %q = theano.dimshuffle %w {new_order = ["x", 0, 1]}
  %r = dali.mul %p, %q
  %y = theano.sum %r {axis = [2], acc_dtype = f32}"""
TRANSPOSED = (
    "%t = theano.dimshuffle %x {new_order = [2, 0, 1]}\n  %e = dali.exp %t\n"
    "  %y = theano.sum %e {AXES}"
)
REPEATED = "%p = dali.add %x, %w\n  %y = theano.sum %p {AXES}"
FOLDS: dict[str, str] = {
    "sum": "%y = theano.sum %x {AXES}",
    "sum of f64": "%y = theano.sum %x {AXES}",
    "mean": "%s = theano.sum %x {AXES}\n  %y = dali.mul %s, 0.00123",
    "product": "%y = theano.prod %x {AXES}",
    "norm": "%q = dali.mul %x, %x\n  %s = theano.sum %q {AXES}\n  %y = dali.sqrt %s",
    "sum of functions": "%e = dali.exp %x\n  %y = theano.sum %e {AXES}",
    "sum of products": "%p = dali.mul %x, %w\n  %y = theano.sum %p {AXES}",
    "two at once": "%s = theano.sum %x {AXES}\n"
    "  %q = dali.mul %x, %x\n"
    "  %t = theano.sum %q {AXES}\n"
    "  %y = dali.sub %t, %s",
    "largest": "%y = theano.max %x {axis = [0]}",
    "softmax": SOFTMAX,
    "normalised": NORMALISED,
}
OF_ONE: list[tuple[Shape, list[int]]] = [
    ((100, 1), [0]),
    ((7, 100, 1), [1]),
    ((100, 1, 1), [0]),
    ((40, 1, 33), [0, 2]),
    ((1, 40, 33), [0, 2]),
    ((3, 40, 1), [1, 2]),
    ((1, 1, 40), [0, 2]),
    ((MIN_TERMS + 5, 1), [0]),
    ((1, 2, MIN_TERMS + 5), [0, 2]),
]
SHAPES: dict[str, list[Shape]] = {
    "whole": [
        (MIN_TERMS - 1,),
        (MIN_TERMS + BLOCK_TERMS // 2 + 5,),
        (513, 1, 512),
        (65, 64, 63),
        (1, 40, 1, 33),
    ],
    "rows": [(3, MIN_TERMS + 7), (17, MIN_TERMS)],
    "columns": [(MIN_TERMS - 3, 3), (MIN_TERMS + 9, 2), (MIN_TERMS + 20, 40)],
    "short": [(33, 100), (5, 31), (3, 4, 50), (100, 7)],
}


def text(
    body: str, types: Sequence[Sequence[object]], axes: Sequence[int], element: str = "f32"
) -> str:
    arguments = ", ".join(
        f"%{a}: tensor<{' x '.join(map(str, t))} x {element}>"
        for a, t in zip("xw", types, strict=False)
    )
    rank = len(types[0])
    row = ", ".join((*map(str, range(rank - 1)), '"x"'))
    body = body.replace("AXES", f"axis = {[*axes]}, acc_dtype = {element}").replace(
        "LAST", str(rank - 1)
    )
    return f"func @main({arguments}) {{\n  {body.replace('ROW', row)}\n  return %y\n}}\n"


def partly_known(shapes: Sequence[Shape], same: Sequence[Sequence[str]]) -> list[list[list[Any]]]:
    """The shapes with no size known, with the first one known, and with all others."""
    (first, *_), *_ = same
    everywhere = [
        [(n, name) for n, name in zip(s, names, strict=True)]
        for s, names in zip(shapes, same, strict=True)
    ]
    picks = (lambda name: True, lambda name: name != first, lambda name: name == first)
    return [
        [[f"?{name}" if pick(name) else n for n, name in shape] for shape in everywhere]
        for pick in picks
    ]


def agree(
    body: str,
    shapes: Sequence[Shape],
    same: Sequence[Sequence[str]],
    axes: Sequence[int],
    element: str,
) -> None:
    random = np.random.default_rng(len(body))
    about = 1 if "prod " in body else 0
    arrays = [
        (random.normal(size=s) * 10.0 ** (-3 * about) + about).astype(f"f{int(element[1:]) // 8}")
        for s in shapes
    ]
    known = cvm.compile(text(body, shapes, axes, element))
    expected = known(*arrays)
    assert np.isfinite(expected).all()
    functions = [
        known,
        *(cvm.compile(text(body, types, axes, element)) for types in partly_known(shapes, same)),
    ]
    before = cvm.get_num_threads()
    try:
        for threads in (1, 2, 3):
            cvm.set_num_threads(threads)
            for function in functions:
                np.testing.assert_array_equal(function(*arrays), expected, strict=True)
    finally:
        cvm.set_num_threads(before)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", some(list(FOLDS), 6))
@pytest.mark.parametrize("kind", ["whole", "rows", "columns", "short"])
def test_known_or_not(name: str, kind: str) -> None:
    body, element = FOLDS[name], "f64" if "f64" in name else "f32"
    for n, shape in enumerate(SHAPES[kind]):
        rank = len(shape)
        every = {"whole": [[*range(rank)]], "rows": [[rank - 1]], "columns": [[0]]}.get(
            kind, [[0], [rank - 1], [0, rank - 1]]
        )
        names = "ABCD"[:rank]
        for axes in every[: None if kind == "short" and n < 1 else 1]:
            shapes = [shape, shape] if "%w" in body else [shape]
            agree(body, shapes, [names] * len(shapes), axes, element)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", ["sum", "product", "norm", "sum of functions", "sum of products", "two at once"]
)
def test_sizes_that_turn_out_to_be_1(name: str) -> None:
    body = FOLDS[name]
    for shape, axes in OF_ONE:
        shapes = [shape, shape] if "%w" in body else [shape]
        agree(body, shapes, ["ABC"[: len(shape)]] * len(shapes), axes, "f32")


@pytest.mark.parametrize(
    "shape, axes", [((1, 100, 1), [0, 2]), ((9, 1, 40), [0, 1]), ((40, 9, 1), [1, 2])]
)
def test_transposed_reductions_of_sizes_that_turn_out_to_be_1(
    shape: Shape, axes: list[int]
) -> None:
    agree(TRANSPOSED, [shape], ["ABC"], axes, "f32")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "shape, other", [((17, 100), (1, 1)), ((64, 1), (1, 1)), ((9, 40), (9, 40)), ((64, 1), (1, 40))]
)
@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_reductions_of_what_is_repeated(shape: Shape, other: Shape, axes: list[int]) -> None:
    agree(REPEATED, [shape, other], ["AB", "CD"], axes, "f32")


@pytest.mark.parametrize(
    "shape, like",
    [
        ((1, 17, 2), (1, 1)),
        ((40, 33), (1,)),
        ((40, 1, 33), (1, 33)),
        ((5, 3, 40), (3, 1)),
        ((40, 3), (40, 1)),
    ],
)
def test_sums_to_what_turns_out_to_have_sizes_of_1(shape: Shape, like: Shape) -> None:
    agree(
        "%y = builtin.sum_like %x, %w",
        [shape, like],
        ["ABC"[: len(shape)], "DE"[: len(like)]],
        [],
        "f32",
    )


MEET = {
    "two": '%y = theano.elemwise %a, %b {scalar_op = "sub"}',
    "three": '%p = theano.elemwise %a, %b {scalar_op = "mul"}\n'
    '  %y = theano.elemwise %p, %c {scalar_op = "sub"}',
    "choice": '%p = theano.elemwise %a, %b {scalar_op = "le"}\n'
    '  %y = theano.elemwise %p, %c, %a {scalar_op = "switch"}',
    "broadcast too": '%p = dali.mul %b, %c\n  %y = theano.elemwise %a, %p {scalar_op = "add"}',
    "numpy": '%p = numpy.elementwise %c, %a {ufunc = "add"}\n'
    '  %y = numpy.elementwise %p, %b {ufunc = "multiply"}',
}


@pytest.mark.parametrize("name", MEET)
def test_sizes_that_operators_require_to_be_equal(name: str) -> None:
    """They need not share a name: `?x?` three times is as good as `?A x ?B` three times."""
    random = np.random.default_rng(1)
    rows = [[random.normal(size=(4, 5)) for _ in "abc"] for _ in range(20)]
    wanted: list[float] = []
    for sizes in (
        "4 x 5, 4 x 5, 4 x 5",
        "? x ?, ? x ?, ? x ?",
        "4 x 5, ? x ?, ? x ?",
        "? x ?, ? x 5, 4 x ?",
        "?P x ?Q, ? x ?Q, ? x ?",
    ):
        given = ", ".join(
            f"%{a}: tensor<{s} x f64>" for a, s in zip("abc", sizes.split(", "), strict=True)
        )
        f = cvm.compile(
            f"func @main({given}) {{\n  {MEET[name]}\n  %s = theano.sum %y\n  return %s\n}}\n"
        )
        found = [f(*arrays).item() for arrays in rows]
        wanted = wanted or found
        assert found == wanted, sizes
        with pytest.raises(cvm.Error):
            f(rows[0][0], rows[0][1][:3], rows[0][2])


@pytest.mark.parametrize(
    "rows, terms, columns",
    [
        (1, MIN_TERMS + 5, 2),
        (2, MIN_TERMS + 5, 1),
        (1, MIN_TERMS, 9),
        (9, MIN_TERMS, 1),
        (1, 400, 1),
    ],
)
@pytest.mark.parametrize("dense", [False, True])
def test_products_of_one_row_or_column(rows: int, terms: int, columns: int, dense: bool) -> None:
    if dense:
        agree(DENSE, [(rows, terms), (columns, terms)], ["MK", "NK"], [], "f32")
    else:
        agree(PRODUCTS, [(rows, terms), (terms, columns)], ["MK", "KN"], [], "f32")


@pytest.mark.parametrize(
    "rows, terms, columns",
    [(3, MIN_TERMS + 5, 2), (2, MIN_TERMS, 17), (9, MIN_TERMS + 1, 9), (7, 4097, 9)],
)
def test_contractions(rows: int, terms: int, columns: int) -> None:
    agree(PRODUCTS, [(rows, terms), (terms, columns)], ["MK", "KN"], [], "f32")


@pytest.mark.parametrize("columns", [1, 9])
def test_rows_of_long_products_do_not_depend_on_each_other(columns: int) -> None:
    """Blocks depend on the number of terms alone: not on the rows, of which 6 are packed and 5 are
    not.
    """
    random, terms = np.random.default_rng(0), MIN_TERMS + 5
    x, w = (random.normal(size=s).astype(np.float32) for s in ((7, terms), (terms, columns)))
    for sizes in ("?M", None):
        for rows in (1, 5, 6, 7):
            types = [(sizes or rows, terms), (terms, columns)]
            found = cvm.compile(text(PRODUCTS, types, []))(x[:rows], w)
            expected = cvm.compile(text(PRODUCTS, [(1, terms), (terms, columns)], []))(x[:1], w)
            np.testing.assert_array_equal(found[:1], expected)


def test_sums_with_a_guard_go_in_the_order_of_their_terms() -> None:
    """A window as large as the image, beyond whose edges nothing is added: one kernel has the sums
    that it has beside others.
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(1, 4, 256, 256)).astype(np.float32)
    w, b = random.normal(size=(8, 4, 256, 257)).astype(np.float32), np.zeros(8, np.float32)
    rows = []
    for kernels in (1, 5, 8):
        body = windows(shaped(*x.shape), shaped(*w[:kernels].shape), "padding = [1, 1]", "f32")
        rows.append(cvm.compile(body)(x, w[:kernels], b[:kernels])[:, :1])
        plain = cvm.compile(body, optimize=0)(x, w[:1], b[:1]) if kernels == 1 else rows[0]
        np.testing.assert_array_equal(rows[-1], plain)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape, axes",
    [
        ((MIN_TERMS + 5,), [0]),
        ((MIN_TERMS, 2), [0]),
        ((2, MIN_TERMS + 64), [1]),
        ((40, 33), [0, 1]),
        ((40, 33), [0]),
        ((40, 1), [0]),
        ((40, 1, 33), [0, 2]),
        ((9, 40, 1), [1]),
        ((MIN_TERMS, 1), [0]),
    ],
)
def test_on_a_gpu(shape: Shape, axes: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    body = FOLDS["sum"]
    expected = cvm.compile(text(body, [shape], axes))(x)
    for types in ([shape], *partly_known([shape], ["ABC"[: len(shape)]])[:1]):
        found = cvm.compile(text(body, types, axes), target="cuda-sim")(x)
        np.testing.assert_array_equal(found, expected, strict=True)


def test_the_order_is_that_of_blocks_and_lanes() -> None:
    """Blocks of so many terms, lanes of 16 in a block, halves added, what is left one by one;
    blocks from the first to the last.
    """
    x = np.random.default_rng(0).normal(size=MIN_TERMS + BLOCK_TERMS // 2 + 7).astype(np.float32)
    total = np.float32(0)
    for first in range(0, len(x), BLOCK_TERMS):
        block = x[first : first + BLOCK_TERMS]
        whole = len(block) // 16 * 16
        lanes = np.zeros(16, np.float32)
        for at in range(0, whole, 16):
            lanes = lanes + block[at : at + 16]
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        part = lanes[0]
        for value in block[whole:]:
            part = part + value
        total = total + part
    for size in (len(x), "?N"):
        assert cvm.compile(text(FOLDS["sum"], [[size]], [0]))(x) == total


@pytest.mark.parametrize("name", FOLDS)
def test_kernels_of_unknown_sizes_are_legal(name: str) -> None:
    body = FOLDS[name]
    for axes in ([0], [1], [0, 1]):
        types = [["?A", "?B"]] * (2 if "%w" in body else 1)
        assert legal(text(body, types, axes))
