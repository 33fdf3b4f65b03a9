"""Define the functions of floats that a processor has no instructions for, in place of calls of C's
libm.

LLVM calls `floorf` or `fma` of whatever libm a program is linked with where it has no instructions
for `llvm.floor.f32` or `llvm.fma.f64`. `define` puts functions of the module there, exact as IEEE
754 has them: by integers, which need nothing else where a processor has no floats. Which functions
call libm is found by compiling all of them for the processor. `fmod` is an instruction of IR that
always calls it.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import llvmlite.binding as llvm

from ...dialect.types.tensor_types import F32
from ...lowering.processor import Processor, processor
from . import ir_builder as ll
from .ir_files import definitions, read_ir
from .llvm_context import target_machine


class Format(NamedTuple):
    """A binary format of IEEE 754: the bits of a number and of its fraction, and the type that
    products fit into.
    """

    bits: int
    fraction: int
    wider: str

    @property
    def bias(self) -> int:
        return (1 << self.bits - self.fraction - 2) - 1

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    @property
    def one(self) -> int:
        return self.bias << self.fraction


FORMATS = {
    "half": Format(16, 10, "float"),
    "float": Format(32, 23, "double"),
    "double": Format(64, 52, ""),
}
PROBED = {"floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "lrint": 1, "sqrt": 1, "fma": 3}  # operands
# those that LLVM has instructions for where it has some for another; compiled without, they may end
# the process
LIKE = {"maximum": "sqrt", "minimum": "sqrt", "float_to_half": "half_to_float"}
HALVES = {"half_to_float": "fpext", "float_to_half": "fptrunc"}  # and the instructions of IR
HELPERS = "__extendhfsf2|__gnu_h2f_ieee|__aeabi_h2f"  # of compilers' libraries, for these


def define(declared: ll.Declaration, _: Collection[str], called: set[str]) -> str:
    """The definition of a function that would call libm, or its declaration where there are
    instructions for it.
    """
    name = declared.stem
    type = declared.parameters[0]
    assert isinstance(type, ll.Type)
    scalar = "float" if type.scalar == "half" else type.scalar
    calls = calls_of(processor())
    lacks = (LIKE.get(name, name), scalar) in calls or (
        name == "lrint" and ("rint", scalar) in calls
    )
    if name in ("maximum", "minimum") and processor().triple.startswith("thumb"):
        lacks = True  # some of f64 end the process in LLVM 22
    if not (lacks or name == "fmod" or name in HALVES):
        return str(declared)
    is_soft = ("sqrt", "float") in calls
    b = ll.IRBuilder()
    format = FORMATS[type.scalar]
    parameters = [ll.Value(f"%{n}", type) for n in "abc"[: len(declared.parameters)]]
    if name in HALVES:
        (x,) = parameters
        by_words = half_to_float if type.scalar == "half" else _float_to_half
        result = by_words(b, x) if lacks else b.add(ll.cast(HALVES[name], x, declared.result))
    elif name in BY_WORDS:
        words = ll.ir_type(f"i{format.bits}", type.lanes)
        operands = [Word(b, b.add(ll.cast("bitcast", p, words))) for p in parameters]
        result = b.add(ll.cast("bitcast", BY_WORDS[name](format, *operands).value, type))
    elif name == "lrint":
        rint = ll.Declaration(type, f"llvm.rint.{ll.suffix(type)}", (type,))
        called.add(text := define(rint, (), called))
        own = own_name(rint) if text.startswith("define") else rint.name
        whole = b.add(ll.call(rint._replace(name=own), *parameters))
        sat = f"llvm.fptosi.sat.{ll.suffix(declared.result)}.{ll.suffix(type)}"
        integer = ll.Declaration(declared.result, sat, (type,))
        called.add(str(integer))
        result = b.add(ll.call(integer, whole))
    elif name == "fma" and format.wider and not (is_soft and type.lanes > 1):
        result = _fma_of_wider(b, ll.ir_type(format.wider, type.lanes), parameters)
    else:
        of_lane = ll.Declaration(type.of(1), f"{name}.{ll.suffix(type.of(1))}", (type.of(1),) * 3)
        by_lane = name == "fma" and format.wider  # whose code is long
        called.update((define(of_lane, (), called),) if by_lane else _of_doubles(name))
        result = ll.poison(type)
        for lane in range(type.lanes):
            parts = [b.add(ll.extract(p, lane)) if type.lanes > 1 else p for p in parameters]
            part = b.add(ll.call(of_lane, *parts)) if by_lane else _by_double(b, name, parts)
            result = b.add(ll.insert(result, part, lane)) if type.lanes > 1 else part
    b.do(ll.returned(result))
    text = b.inlined(declared.result, own_name(declared), *parameters)
    is_long = is_soft and name == "fma" and type.lanes == 1
    return text.replace("alwaysinline", "noinline", 1) if is_long else text


def own_name(declared: ll.Declaration) -> str:
    """The name of the definition of an intrinsic."""
    return declared.name.removeprefix("llvm.")


@lru_cache(maxsize=64)
def calls_of(described: Processor) -> frozenset[tuple[str, str]]:
    """The functions, with their types, for which LLVM has no instructions on a processor."""
    machine = target_machine(jit=False, described=described)
    lines = [f'target datalayout = "{machine.target_data}"']
    for name, count in PROBED.items():
        for type in (ll.ir_type("float"), ll.ir_type("double")):
            result, also = (ll.STATUS, "i32.") if name == "lrint" else (type, "")
            full = f"llvm.{name}.{also}{ll.suffix(type)}"
            declared = ll.Declaration(result, full, (type,) * count)
            operands = ", ".join(f"{type} %{n}" for n in "abc"[:count])
            body = f"%r = call {result} @{declared.name}({operands})\n  ret {result} %r"
            head = f"define {result} @probe_{name}_{type}({operands}) nounwind"
            lines += [str(declared), f"{head} {{\n  {body}\n}}"]
    body = "%r = fpext half %a to float\n  ret float %r"
    lines.append(f"define float @probe_half(half %a) nounwind {{\n  {body}\n}}")
    module = llvm.parse_assembly("\n".join(lines), llvm.create_context())
    assembly = machine.emit_assembly(module)
    found = re.findall(rf"(?<![\w.])({'|'.join(PROBED)})(f?)(?![\w.])", assembly)
    halves = [("half_to_float", "f")] * bool(re.search(HELPERS, assembly))
    return frozenset((name, "float" if f else "double") for name, f in found + halves)


# By integers: elements of vectors alike


@dataclass(frozen=True)
class Word:
    """An integer, or a vector of integers, whose operators append instructions. Nothing has a
    sign.
    """

    b: ll.IRBuilder
    value: ll.Value

    def number(self, n: int) -> "Word":
        scalar = ll.Constant(f"u0x{n:X}" if n >= 0 else str(n), self.value.type.of(1))
        return Word(self.b, ll.splat_constant(scalar, self.value.type.lanes))

    def by(self, opcode: str, other: "Word | int") -> "Word":
        y = other if isinstance(other, Word) else self.number(other)
        return Word(self.b, self.b.once(ll.binary(opcode, self.value, y.value)))

    def __add__(self, other: "Word | int") -> "Word":
        return self.by("add", other)

    def __sub__(self, other: "Word | int") -> "Word":
        return self.by("sub", other)

    def __and__(self, other: "Word | int") -> "Word":
        return self.by("and", other)

    def __or__(self, other: "Word | int") -> "Word":
        return self.by("or", other)

    def __xor__(self, other: "Word | int") -> "Word":
        return self.by("xor", other)

    def __lshift__(self, other: "Word | int") -> "Word":
        return self.by("shl", other)

    def __rshift__(self, other: "Word | int") -> "Word":
        return self.by("lshr", other)

    def test(self, how: str, other: "Word | int") -> ll.Value:
        y = other if isinstance(other, Word) else self.number(other)
        return self.b.once(ll.compare(how, self.value, y.value))

    def where(self, condition: ll.Value, other: "Word | int") -> "Word":
        """Select this word where a condition holds, and another elsewhere."""
        y = other if isinstance(other, Word) else self.number(other)
        return Word(self.b, self.b.once(ll.select(condition, self.value, y.value)))


def _rounded(name: str, f: Format, x: Word) -> Word:
    """Round to an integer: clear the bits of the fraction, after adding to a number that is to
    grow.
    """
    sign = x & f.sign
    size = x & (f.sign - 1)
    none = x.number(0)
    exponent = size >> f.fraction
    bits = x.number(f.bias + f.fraction) - exponent  # of a fraction, where it is of some of them
    bits = bits.where(bits.test("ult", f.fraction), f.fraction)
    fraction = (x.number(1) << bits) - 1
    if name == "trunc":
        more, small = none, none
    elif name == "rint":  # the last bit of 1.f is that of the exponent, as the bias is odd
        more = (fraction >> 1) + (x >> bits & 1)
        small = x.number(f.one).where(size.test("ugt", f.one - (1 << f.fraction)), 0)
    else:
        away = sign.test("eq", f.sign if name == "floor" else 0)
        more = fraction.where(away, 0)
        small = x.number(f.one).where(size.where(away, 0).test("ne", 0), 0)
    moved = x + more
    rounded = (sign | small).where(exponent.test("ult", f.bias), moved - (moved & fraction))
    is_integer = size.test("uge", (f.bias + f.fraction) << f.fraction)  # or infinite, or NaN
    return x.where(is_integer, rounded)


def _extreme(how: str, f: Format, x: Word, y: Word) -> Word:
    """Choose the greater or the lesser number, NaN where one is; bits of negative numbers are
    inverted to compare them.
    """
    turned = [v ^ (v.by("ashr", f.bits - 1) & (f.sign - 1)) for v in (x, y)]
    result = x.where(turned[0].test(how, turned[1]), y)
    for v in (y, x):
        nan = (v & (f.sign - 1)).test("ugt", (2 * f.bias + 1) << f.fraction)
        result = v.where(nan, result)
    return result


def _of(function: Callable[..., Word], how: str) -> Callable[..., Word]:
    return lambda *operands: function(how, *operands)


BY_WORDS: dict[str, Callable[..., Word]] = {
    **{name: _of(_rounded, name) for name in ("floor", "ceil", "trunc", "rint")},
    "maximum": _of(_extreme, "sgt"),
    "minimum": _of(_extreme, "slt"),
}
NAMES = (*BY_WORDS, "lrint", "sqrt", "fma", "fmod", *HALVES)


# Between f16 and f32


def half_to_float(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    """An f16 as f32. A subnormal number becomes one of f32, which the product makes normal."""
    narrow = ll.ir_type("i16", x.lanes)
    wide = ll.STATUS.of(x.lanes)
    bits = Word(b, b.add(ll.cast("zext", b.add(ll.cast("bitcast", x, narrow)), wide)))
    size = bits & 0x7FFF
    moved = size << 13
    number = _in_floats(moved, "fmul", 2.0 ** (127 - 15))
    special = moved | moved.number(0x7FC00000).where(size.test("ugt", 0x7C00), 0x7F800000)
    found = special.where(size.test("uge", 0x7C00), number) | (bits & 0x8000) << 16
    return b.add(ll.cast("bitcast", found.value, ll.ir_type("float", x.lanes)))


def _float_to_half(b: ll.IRBuilder, x: ll.Value) -> ll.Value:
    """An f32 as the nearest f16, ties to even. The last place of 0.5 is the least f16."""
    bits = Word(b, b.add(ll.cast("bitcast", x, ll.STATUS.of(x.lanes))))
    size = bits & 0x7FFFFFFF
    small = _in_floats(size, "fadd", 0.5) - 0x3F000000
    usual = (size - (127 - 15 << 23) + 0xFFF + (size >> 13 & 1)) >> 13
    number = small.where(size.test("ult", 127 - 14 << 23), usual)
    number = size.number(0x7C00).where(size.test("uge", 0x477FF000), number)  # from 65520 on
    nan = size >> 13 & 0x3FF | 0x7E00
    found = nan.where(size.test("ugt", 0x7F800000), number) | bits >> 16 & 0x8000
    narrow = b.add(ll.cast("trunc", found.value, ll.ir_type("i16", x.lanes)))
    return b.add(ll.cast("bitcast", narrow, ll.ir_type("half", x.lanes)))


def _in_floats(x: Word, opcode: str, y: float) -> Word:
    """An operation of f32 on the numbers that words are, and on a constant."""
    type = ll.ir_type("float", x.value.lanes)
    operand = ll.splat_constant(ll.number(y, F32), type.lanes)
    result = x.b.add(ll.binary(opcode, x.b.add(ll.cast("bitcast", x.value, type)), operand))
    return Word(x.b, x.b.add(ll.cast("bitcast", result, x.value.type)))


# By a wider type


def _fma_of_wider(b: ll.IRBuilder, wide: ll.Type, operands: list[ll.Value]) -> ll.Value:
    """The sum of a product that is exact in a wider type, rounded to odd there: rounded again, it
    is rounded once.

    The rounding error is exact (Knuth's TwoSum). Where it is not 0 and the last bit of the sum is,
    the number on the other side of the exact sum has that bit.
    """
    x, y, z = (b.add(ll.cast("fpext", v, wide)) for v in operands)

    def put(opcode: str, p: ll.Value, q: ll.Value) -> ll.Value:
        return b.add(ll.binary(opcode, p, q))

    product = put("fmul", x, y)
    sum = put("fadd", product, z)
    rest = put("fsub", sum, product)
    error = put("fadd", put("fsub", product, put("fsub", sum, rest)), put("fsub", z, rest))
    words = ll.ir_type(f"i{FORMATS[wide.scalar].bits}", wide.lanes)
    bits, less = (Word(b, b.add(ll.cast("bitcast", v, words))) for v in (sum, error))
    step = bits.number(-1).where((bits ^ less).test("slt", 0), 1)
    zero = ll.splat_constant(ll.Constant("0.0", wide.of(1)), wide.lanes)
    inexact = b.add(ll.compare("one", error, zero))
    odd = bits + step.where(inexact, 0).where((bits & 1).test("eq", 0), 0)
    return b.add(ll.cast("fptrunc", b.add(ll.cast("bitcast", odd.value, wide)), operands[0].type))


def _by_double(b: ll.IRBuilder, name: str, operands: list[ll.Value]) -> ll.Value:
    """Call a function of doubles. The result for a narrower type is exact, or of more than twice
    its digits, and rounded once.
    """
    type = operands[0].type
    double = ll.ir_type("double")
    if is_narrow := type is not double:
        operands = [b.add(ll.cast("fpext", v, double)) for v in operands]
    words = [b.add(ll.cast("bitcast", v, ll.WORD)) for v in operands]
    found = b.add(ll.call(ll.Declaration(ll.WORD, f"{name}_of_doubles", ()), *words))
    result = b.add(ll.cast("bitcast", found, double))
    return b.add(ll.cast("fptrunc", result, type)) if is_narrow else result


def _of_doubles(name: str) -> tuple[str, ...]:
    """The IR of a function of doubles as words, and of what it calls."""
    parts, own = read_ir("llvm/double_parts.ll"), read_ir(f"llvm/{name}_of_doubles.ll")
    return "declare i64 @llvm.ctlz.i64(i64, i1)", definitions(parts), definitions(own)
