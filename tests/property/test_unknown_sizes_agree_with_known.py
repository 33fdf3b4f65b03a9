"""Programs of sizes that are known only when called give what the same programs of known sizes
give, to the bit: for sizes that fill vectors and tiles and sizes that do not, with and without an
interior, and for nothing at all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from cvm.dialect.types.sizes import strides
from legal_and_equal import legal

import cvm

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 64, 100)
SIDES = (1, 2, 3, 4, 6, 9, 10, 17, 18, 19, 28, 35)
POOL = "cvm.max_pool2d %a {pool_size = [3, 3], strides"
ROWS = [(m, n) for n in LENGTHS for m in (1, 3)]
IMAGES = [(n, n + more) for n in SIDES for more in (0, 1)]

# a body, the types of its arguments, which hold names for the sizes, and the sizes to try
PROGRAMS: dict[str, tuple[str, Sequence[str], Sequence[tuple[int, ...]]]] = {
    "elements": ("%y = dali.add %a, %b", ("?M x ?N x f32", "?M x ?N x f32"), ROWS),
    "a long chain": (
        "%t = dali.mul %a, %a\n  %u = dali.exp %t\n  %v = dali.div %u, %b\n  %y = dali.add %v, 1.5",
        ("?N x f32", "?N x f32"),
        [(n,) for n in (*LENGTHS, 4095, 4096, 4097, 4104, 8200)],
    ),
    "rows and columns": ("%y = dali.mul %a, %b", ("?M x 1 x f32", "1 x ?N x f32"), ROWS),
    "small integers": ("%y = dali.add %a, %b", ("?M x ?N x i8", "?N x i8"), ROWS),
    "axes that trade places": (
        "%y = cvm.transpose %a {axes = [1, 0, 2]}",
        ("3 x ?M x ?N x i32",),
        ROWS,
    ),
    "a bias for each channel": (
        "%y = cvm.broadcast_add %a, %b",
        ("?M x 5 x ?N x i32", "5 x 1 x i32"),
        ROWS,
    ),
    "colours": (
        "%t = dali.mul %a, %b\n  %y = dali.clamp %t, 30, 200",
        ("?H x ?W x 3 x ui8", "3 x f32"),
        [*IMAGES, (0, 5), (64, 100), (129, 77)],
    ),
    "colours by planes": (
        "%t = cvm.transpose %a {axes = [1, 2, 0]}\n  %y = dali.mul %t, 2.5",
        ("3 x ?H x ?W x ui8",),
        [*IMAGES, (0, 5), (64, 100), (129, 77)],
    ),
    "enlarged": ("%y = cvm.upsampling %a {scale = 2}", ("2 x 3 x ?H x ?W x i32",), IMAGES),
    "enlarged by 3": ("%y = cvm.upsampling %a {scale = 3}", ("1 x 2 x ?H x ?W x i32",), IMAGES),
    "repeated": (
        "%y = cvm.repeat %a {repeats = 2, axis = 1}",
        ("?M x ?N x i32",),
        [s for s in ROWS if all(s)],
    ),
    "tiled": ("%y = cvm.tile %a {reps = [2, 3]}", ("?M x ?N x i32",), [s for s in ROWS if all(s)]),
    "tiled and more": (
        "%t = cvm.tile %a {reps = [5]}\n  %y = cvm.relu %t",
        ("?N x i32",),
        [(1,), (2,), (9,), (40,)],
    ),
    "sums along rows": (
        "%y = cvm.sum %a {axes = [1]}",
        ("?M x ?N x i32",),
        [s for s in ROWS if all(s)],
    ),
    "sums of floats": (
        "%y = theano.sum %a {axis = [1], acc_dtype = f32}",
        ("?M x ?N x f32",),
        [s for s in ROWS if all(s)],
    ),
    "pools": (f"%y = {POOL} = [1, 1], padding = [1, 1]}}", ("2 x 3 x ?H x ?W x i32",), IMAGES),
    "pools by steps": (
        f"%y = {POOL} = [2, 2], padding = [1, 1]}}",
        ("2 x 3 x ?H x ?W x i32",),
        IMAGES,
    ),
    "pools without padding": (
        "%y = cvm.max_pool2d %a {pool_size = [2, 2], strides = [2, 2]}",
        ("2 x 3 x ?H x ?W x i32",),
        [s for s in IMAGES if s[0] > 1],
    ),
    "depthwise": (
        "%y = cvm.conv2d %a, %b {padding = [1, 1], groups = 4}",
        ("?N x 4 x ?H x ?W x i32", "4 x 1 x 3 x 3 x i32"),
        [(2, h, w) for h, w in IMAGES],
    ),
    "wide windows": (
        "%y = cvm.conv2d %a, %b {padding = [2, 2], groups = 2}",
        ("?N x 2 x ?H x ?W x i32", "2 x 1 x 5 x 5 x i32"),
        [(1, h, w) for h, w in IMAGES],
    ),
    "windows by steps": (
        "%y = cvm.conv2d %a, %b {padding = [1, 1], stride = [2, 2], groups = 2}",
        ("?N x 2 x ?H x ?W x i32", "2 x 1 x 3 x 3 x i32"),
        [(1, h, w) for h, w in IMAGES],
    ),
    "far apart": (
        "%y = cvm.conv2d %a, %b {padding = [2, 2], dilation = [2, 2], groups = 2}",
        ("?N x 2 x ?H x ?W x i32", "2 x 1 x 3 x 3 x i32"),
        [(1, h, w) for h, w in IMAGES if h > 1],
    ),
}


MEETING = {
    "one operation": ("%y = dali.add %a, %b", ("?x?", "?x?")),
    "two operations": ("%t = dali.mul %a, %b\n  %y = dali.sub %t, %c", ("?x?", "?x?", "?x?")),
    "costly ones": ("%t = dali.atan2 %a, %b\n  %y = dali.mul %t, %c", ("?x?", "?", "?x?")),
    "in ranks": ("%t = dali.mul %a, %b\n  %y = dali.sub %t, %c", ("?x?x?", "?x?", "?")),
    "summed": (
        "%t = dali.mul %a, %b\n  %y = theano.sum %t {axis = [1], acc_dtype = f32}",
        ("?x?", "?x?"),
    ),
}


def program(name: str, sizes: dict[str, int]) -> str:
    """The program with these sizes known."""
    body, types, _ = PROGRAMS[name]
    known = [re.sub(r"\?(\w)", lambda m: str(sizes.get(m[1], m[0])), t) for t in types]
    arguments = ", ".join(f"%{a}: tensor<{t}>" for a, t in zip("ab", known, strict=False))
    return f"func @main({arguments}) {{\n  {body}\n  return %y\n}}\n"


def values(
    types: Sequence[str], sizes: dict[str, int], random: np.random.Generator
) -> list[np.ndarray]:
    found = []
    for *dims, element in (t.split(" x ") for t in types):
        shape = [sizes[d[1:]] if d[0] == "?" else int(d) for d in dims]
        numbers = random.normal(size=shape) * 100
        found.append(
            numbers.astype(
                {"f": np.float32, "u": np.uint8}.get(element[0], element.replace("i", "int"))
            )
        )
    return found


def names(types: Sequence[str]) -> list[str]:
    """The names of the sizes, in the order in which they are first met."""
    return [*dict.fromkeys(re.findall(r"\?(\w)", " ".join(types)))]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_with_known_sizes(name: str) -> None:
    _, types, several = PROGRAMS[name]
    text = program(name, {})
    legal(text)
    unknown, random = cvm.compile(text), np.random.default_rng(0)
    for given in several:
        sizes = dict(zip(names(types), given, strict=True))
        arrays = values(types, sizes, random)
        known = cvm.compile(program(name, sizes))(*arrays)
        np.testing.assert_array_equal(unknown(*arrays), known, strict=True, err_msg=str(given))


def test_guards_that_always_hold_are_left_out() -> None:
    """A sum over two places of a padded array needs no guard, whatever the sizes are."""
    text = """
        func @main(%a: tensor<?M x ?N x f32>) -> tensor<?M x ?N x f32> {
          %whole = builtin.pad %a {before = [1, 1], after = [0, 0]}
          %one = builtin.strided_scatter_like %a, %whole {axes = [0, 1], begin = [0, 0], strides = [1, 1]}
          %two = builtin.strided_scatter_like %a, %whole {axes = [0, 1], begin = [1, 1], strides = [1, 1]}
          %sum = dali.add %one, %two
          %y = builtin.pad %sum {before = [-1, -1], after = [0, 0]}
          return %y
        }
    """
    f = cvm.compile(text)
    assert f.lower("schedule").count("for ") < 30
    for m, n in itertools.product((0, 1, 2, 5), (0, 1, 7, 40)):
        a = np.arange(m * n, dtype=np.float32).reshape(m, n)
        moved = np.pad(a, ((0, 1), (0, 1)))[1:, 1:]
        np.testing.assert_array_equal(f(a), a + moved, strict=True)


@pytest.mark.parametrize("name", MEETING)
def test_sizes_that_meet_and_may_be_one(name: str) -> None:
    """Sizes without names: whichever operands turn out to be repeated, the result is that of known
    sizes.
    """
    body, shapes = MEETING[name]

    def text(shapes: Sequence[str]) -> str:
        arguments = ", ".join(f"%{a}: tensor<{s}xf32>" for a, s in zip("abc", shapes, strict=False))
        return f"func @main({arguments}) {{\n  {body}\n  return %y\n}}\n"

    legal(text(shapes))
    unknown, random = cvm.compile(text(shapes)), np.random.default_rng(0)
    for rows, columns in ((5, 19), (1, 8), (3, 1), (2, 7), (0, 4), (4, 0)):
        for ones in itertools.product((False, True), repeat=sum(s.count("?") for s in shapes)):
            picks = iter(ones)
            whole = [(2, rows, columns)[3 - s.count("?") :] for s in shapes]
            given = [tuple(1 if next(picks) else n for n in s) for s in whole]
            if "summed" in name and not all(map(all, given)):
                continue
            arrays = [random.normal(size=s).astype(np.float32) for s in given]
            expected = cvm.compile(
                text(["x".join(map(str, s)) for s in given]), target="reference"
            )(*arrays)
            found = unknown(*arrays)
            if name in ("costly ones", "summed"):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("sizes", [("2", "?N"), ("?N", "2"), ("2", "?N", "?M"), ("?M", "?N", "2")])
@pytest.mark.parametrize("rows", [1, 5])
def test_sizes_that_meet_a_known_one(sizes: tuple[str, ...], rows: int) -> None:
    arguments = ", ".join(
        f"%{a}: tensor<{s} x {rows} x i32>" for a, s in zip("abc", sizes, strict=False)
    )
    more = "  %y = dali.sub %x, %c\n" if len(sizes) > 2 else ""
    text = (
        f"func @main({arguments}) {{\n  %x = dali.add %a, %b\n"
        f"{more}  return {'%y' if more else '%x'}\n}}\n"
    )
    legal(text)
    unknown, reference = cvm.compile(text), cvm.compile(text, target="reference")
    for ones in itertools.product((1, 2), repeat=len(sizes) - 1):
        picks = iter(ones)
        shapes = [(2 if s == "2" else next(picks), rows) for s in sizes]
        arrays = [
            np.arange(s[0] * rows, dtype=np.int32).reshape(s) + 10 * n for n, s in enumerate(shapes)
        ]
        np.testing.assert_array_equal(unknown(*arrays), reference(*arrays), strict=True)


def test_steps_of_shapes_whose_sizes_cannot_be_compared() -> None:
    """-1 and -2 have one hash, and with them such shapes: nothing may look one up by another."""
    h = (
        cvm.parse("func @main(%x: tensor<?xi32>) {\n return %x\n}\n")
        .functions["main"]
        .arguments[0]
        .known_type.array_shape[0]
    )
    shapes = [(3, (h + less) // 2 + 1) for less in (-1, -2)]
    assert len({hash(shape) for shape in shapes}) == 1
    assert [[str(step) for step in strides(shape)] for shape in shapes] == [
        [str(n), "1"] for _, n in shapes
    ]
