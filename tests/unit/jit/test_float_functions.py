"""Functions of floats where a processor has no instructions for them: the bits of IEEE 754, as
other code computes them.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from fractions import Fraction

import native_kernels
import numpy as np
import pytest
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.expressions import Expr, Index, apply, cast
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.types.tensor_types import F16, F32, F64, I16, I32, ElementType
from cvm.jit.llvm import float_functions, ir_builder as ll, native_code
from cvm.jit.llvm.emit import emit_plans
from cvm.lowering.processor import named, normalized
from native_kernels import kernel, tensor

BITS = {"float": np.uint32, "double": np.uint64}
FLOATS = {"float": np.float32, "double": np.float64}
EVERYTHING = frozenset((f, t) for f in float_functions.PROBED for t in FLOATS)
HALVES = ("half_to_float", "float")
DOUBLE = {F32: "float", F64: "double"}
WAYS: dict[str, Callable[..., np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def compiled(name: str, type: str, lanes: int, count: int) -> Callable[..., np.ndarray]:
    """A function of arrays that calls the definition for vectors."""
    wide = ll.ir_type(type, lanes)
    prefix = "" if name == "fmod" else "llvm."
    whole = ll.STATUS.of(lanes) if name == "lrint" else wide
    overload = f"i32.{ll.suffix(wide)}" if name == "lrint" else ll.suffix(wide)
    declared = ll.Declaration(whole, f"{prefix}{name}.{overload}", (wide,) * count)
    loads = [f"%x{n} = load {wide}, ptr %p{n}, align 4" for n in range(count)]
    pointers = ", ".join(f"ptr %p{n}" for n in range(count + 1))
    arguments = ", ".join(f"{wide} %x{n}" for n in range(count))
    body = "\n".join([*loads, f"%r = call {whole} @{declared.name}({arguments})"])
    text = (
        f"define i32 @run({pointers}) {{\n{body}\nstore {whole} %r, ptr %p{count}, align 4\n"
        f"ret i32 0\n}}\n"
    )
    image = native_code.fresh_object_code(ll.Module((declared,), text))
    library = native_code.Library([image], {"run": (ctypes.c_void_p,) * (count + 1)})
    result = np.int32 if name == "lrint" else FLOATS[type]

    def run(*arrays: np.ndarray) -> np.ndarray:
        parts = [np.ascontiguousarray(a.reshape(-1, lanes)) for a in arrays]
        found = np.empty(parts[0].shape, result)
        for n in range(len(found)):
            rows = [p[n].ctypes.data for p in (*parts, found)]
            assert library.functions["run"](*rows) == 0
        return found.reshape(-1)

    return run


@pytest.fixture(autouse=True)
def no_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float_functions, "calls_of", lambda _: EVERYTHING)


def numbers(type: str, count: int, seed: int) -> np.ndarray:
    """Numbers of any bits, small ones, halves, and those at the ends of the format."""
    random, float_type = np.random.default_rng(seed), FLOATS[type]
    any_bits = random.integers(0, np.iinfo(BITS[type]).max, count, BITS[type], endpoint=True)
    small = (random.integers(-64, 65, count) / 4).astype(float_type)
    near = random.normal(size=count).astype(float_type) * float_type(1e6)
    limits = np.finfo(float_type)
    ends = [0, 0.5, 1, 1.5, limits.max, limits.tiny, limits.smallest_subnormal, math.inf, math.nan]
    signed = np.array([*ends, *(-e for e in ends)], float_type)
    exact = float_type(2) ** random.integers(-30, 30, count).astype(float_type)
    found = np.concatenate([any_bits.view(float_type), small, near, signed, exact])
    random.shuffle(found)
    return found[: len(found) // 8 * 8]


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """The same bits, but of NaN."""
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    bits = BITS["float" if wanted.dtype == np.float32 else "double"]
    np.testing.assert_array_equal(found.view(bits)[~nan], wanted.view(bits)[~nan])


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("name", WAYS)
def test_bits_are_those_of_instructions(name: str, type: str, lanes: int) -> None:
    count = 1 + (name in ("fmod", "maximum", "minimum"))
    operands = [numbers(type, 400, seed) for seed in range(count)]
    with np.errstate(all="ignore"):
        wanted = WAYS[name](*operands)
    if name in ("maximum", "minimum"):  # NumPy takes either zero
        a, b = operands
        zero, first = (a == 0) & (b == 0), np.signbit(a) == (name == "minimum")
        wanted = np.where(zero, np.where(first, a, b), wanted)
    same(compiled(name, type, lanes, count)(*operands), wanted)


@pytest.mark.parametrize("type", FLOATS)
def test_rounded_integers_are_those_of_rint(type: str) -> None:
    x = numbers(type, 200, 1)
    x = x[np.abs(x) < 2**31 - 1]
    x = x[: len(x) // 4 * 4]
    np.testing.assert_array_equal(compiled("lrint", type, 4, 1)(x), np.rint(x).astype(np.int32))


def fma(a: float, b: float, c: float, type: str) -> float:
    """The sum of a product, exact and then rounded once."""
    float_type = FLOATS[type]
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(float_type(a) * float_type(b) + float_type(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        negative = math.copysign(1, a) * math.copysign(1, b) < 0
        both = negative == (math.copysign(1, c) < 0) and (a == 0 or b == 0) and c == 0
        return -0.0 if both and negative else 0.0
    return nearest(exact, type)


def nearest(exact: Fraction, type: str) -> float:
    digits, least = {"half": (11, -24), "float": (24, -149), "double": (53, -1074)}[type]
    size = abs(exact)
    if size == 0:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    rounded = round(size / unit) * unit  # to even
    limit = Fraction(float(np.finfo({"half": np.float16, **FLOATS}[type]).max))
    found = math.inf if abs(rounded) > limit else float(abs(rounded))
    return -found if exact < 0 else found


@pytest.mark.parametrize(
    ("type", "lanes"), [("float", 1), ("float", 8), ("double", 1), ("double", 2)]
)
def test_a_sum_of_a_product_is_rounded_once(type: str, lanes: int) -> None:
    a, b, c = (numbers(type, 600, seed) for seed in range(3))
    float_type = FLOATS[type]
    with np.errstate(all="ignore"):
        product = a * b
        near = (product * float_type(-1)).view(BITS[type])  # what cancels all digits but a few
        near = (near + np.random.default_rng(3).integers(0, 3, len(c)).astype(BITS[type])).view(
            float_type
        )
        half = product * float_type(2.0 ** (24 if type == "float" else 53)) * float_type(1.5)
        a, b, c = np.tile(a, 3), np.tile(b, 3), np.concatenate([c, near, half])
        wanted = [fma(float(x), float(y), float(z), type) for x, y, z in zip(a, b, c, strict=True)]
        same(compiled("fma", type, lanes, 3)(a, b, c), np.array(wanted, float_type))


def test_what_has_no_instruction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    roundings = {(f, t) for f in ("floor", "ceil", "trunc", "rint") for t in FLOATS}
    integers = {("lrint", t) for t in FLOATS}
    doubles = {(f, t) for f, t in EVERYTHING if t == "double" and f != "lrint"}
    wanted = {
        "x86-64": {*roundings, ("fma", "float"), ("fma", "double"), HALVES},
        "x86-64-v2": {("fma", "float"), ("fma", "double"), HALVES},
        "x86-64-v3": set(),
        "cortex-a53": set(),
        "rv64gc": {HALVES},
        "rv32imac": {*EVERYTHING, HALVES},
        "wasm32": {("fma", "float"), ("fma", "double"), *integers, HALVES},
        "cortex-m0": {*EVERYTHING, HALVES},
        "cortex-m4": {*doubles, *roundings, ("lrint", "float")},
        "cortex-m7": integers,
        "cortex-m33": {*doubles, ("lrint", "float")},
    }
    found = {}
    for name in wanted:
        described = named(name)
        assert described is not None
        found[name] = float_functions.calls_of(described)
    assert found == wanted


@pytest.mark.parametrize("element", [F32, F64, I16], ids=str)
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("soft", [False, True])
def test_halves_are_rounded_once(
    element: ElementType, lanes: int, soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All f16, and numbers at and beside the middles of two of them; by instructions, and by
    integers.
    """
    monkeypatch.setattr(float_functions, "calls_of", lambda _: {HALVES} if soft else set())
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    if element is not I16:
        finite = halves[np.isfinite(halves)]
        with np.errstate(over="ignore"):
            further = np.nextafter(finite, np.float16(np.inf))
        wide = finite.astype(element.dtype)
        middle = (wide + further) / 2
        sides = [np.nextafter(middle, element.dtype.type(to)) for to in (-np.inf, np.inf)]
        x = np.concatenate([wide, middle, *sides, numbers(DOUBLE[element], 500, 5)])
        x = x[: len(x) // 8 * 8]
        with np.errstate(all="ignore"):
            narrow = x.astype(np.float16)
        found = by_loop(lambda e: cast(e, F16), element, x, lanes)
        nan = np.isnan(narrow)
        np.testing.assert_array_equal(np.isnan(found), nan)
        np.testing.assert_array_equal(found.view(np.uint16)[~nan], narrow.view(np.uint16)[~nan])
    with np.errstate(all="ignore"):
        limits = np.nan_to_num(halves.astype(np.float64), posinf=4e9, neginf=-4e9)
        wanted = halves.astype(element.dtype)
    if element is I16:
        wanted = np.trunc(limits).clip(-(2**15), 2**15 - 1).astype(np.int16)
    np.testing.assert_array_equal(
        by_loop(lambda e: cast(e, element), F16, halves, lanes), wanted, strict=True
    )


def test_functions_of_halves_are_rounded_once() -> None:
    """No operation of f16 is emitted: LLVM 22.1 gets NaN to i16 wrong, and `lrint` truncates."""
    random = np.random.default_rng(0)
    a, b, c = (random.integers(0, 1 << 16, 4096, np.uint16).view(np.float16) for _ in range(3))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = (np.where(finite, v, np.float16(1)) for v in (a, b, c))
    exact = [
        Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    wanted = np.array([nearest(e, "half") for e in exact])
    k = Index("k", 4096)
    xs = [tensor(f"x{n}", F16, 4096) for n in range(3)]
    y, z = tensor("y", F16, 4096), tensor("z", I32, 4096)
    body = (
        Store(y, (k,), apply("fma", *(x[k] for x in xs))),
        Store(z, (k,), apply("lrint", xs[0][k])),
    )
    many = kernel((For(k, body, kind="vector", width=8),), *xs, y, z, results=2)
    found, whole = native_kernels.compiled(many, a, b, c)
    np.testing.assert_array_equal(found[wanted != 0].astype(float), wanted[wanted != 0])
    np.testing.assert_array_equal(whole, np.rint(a.astype(np.float64)).astype(np.int32))
    plan = Plan("k", many.inputs, many.outputs, {}, (many,))
    text = str(emit_plans(plan).module)
    operations = re.findall(r"= (?:f[a-z]+|call) .*half", text)
    assert operations and all(re.search("half_to_float|float_to_half", o) for o in operations)


def by_loop(
    formula: Callable[[Expr], Expr], element: ElementType, x: np.ndarray, lanes: int
) -> np.ndarray:
    k = Index("k", len(x))
    given = tensor("x", element, len(x))
    value = formula(given[k])
    result = tensor("y", value.type, len(x))
    shape = {"kind": "vector", "width": lanes} if lanes > 1 else {}
    body = For(k, (Store(result, (k,), value),), **shape)
    return native_kernels.compiled(kernel((body,), given, result), x)[0]


@pytest.mark.parametrize(
    ("triple", "wanted"),
    [
        ("thumbv7em-none-eabihf", "thumbv7em-unknown-none-eabihf"),
        ("riscv64-unknown-elf", "riscv64-unknown-none-elf"),
        ("aarch64-linux-gnu", "aarch64-unknown-linux-gnu"),
        ("x86_64-pc-linux-gnu", "x86_64-pc-linux-gnu"),
        ("wasm32-wasi", "wasm32-unknown-wasi"),
        ("wasm32-unknown-unknown", "wasm32-unknown-unknown"),
        ("aarch64-apple-darwin", "aarch64-apple-darwin"),
    ],
)
def test_the_parts_of_a_triple_are_in_their_places(triple: str, wanted: str) -> None:
    assert normalized(triple) == wanted == normalized(wanted)
