"""Scalar functions in LLVM IR: a row of instructions for each function and kind of element."""

from typing import Any

from ...dialect.kernel_ir.integer_lookup_tables import ROWS
from .ir_builder import FALSE, Ref, Row, Splat, Step


def _row(*steps: tuple[object, ...]) -> Row:
    return Row(*(Step(opcode, operands) for opcode, *operands in map(tuple, steps)))  # type: ignore[misc]


def _call(function: str, operands: str, *further: Ref, result: str = "") -> Row:
    return Row(Step("call", (*operands, *further), function, result))


def _intrinsic(name: str, operands: str = "ab") -> Row:
    return _call(f"llvm.{name}", operands)


def _extreme(comparison: str) -> Row:
    return _row((f"fcmp {comparison}", "a", "b"), ("select", 0, "a", "b"))


def _floor_fix(*correction: tuple[object, ...]) -> Row:
    """Instructions after a truncated remainder 0: the signs of remainder and divisor differ in
    4.
    """
    differ = (
        ("srem", "a", "b"),
        ("icmp ne", 0, "z"),
        ("xor", 0, "b"),
        ("icmp slt", 2, "z"),
        ("and", 1, 3),
    )
    return _row(*differ, *correction)


def _by_minus_one(row: Row, result: str) -> Row:
    """A division that the machine cannot do for the least integer by -1: it divides by 1 there, and
    fixes the result.
    """

    def moved(operand: Ref) -> Ref:
        if isinstance(operand, int):
            return operand + 2
        return 1 if operand == "b" else operand

    division = [step._replace(operands=tuple(map(moved, step.operands))) for step in row.steps]
    steps = [Step("icmp eq", ("b", "x")), Step("select", (0, "o", "b")), *division]
    last = len(steps) - 1
    fixed = "z"
    if result == "negated":
        steps.append(Step("sub", ("z", "a")))
        fixed = len(steps) - 1
    return Row(*steps, Step("select", (0, fixed, last)))


_COMPARISONS = {
    "eq": ("eq", "eq", "oeq"),
    "ne": ("ne", "ne", "une"),
    "lt": ("slt", "ult", "olt"),
    "le": ("sle", "ule", "ole"),
    "gt": ("sgt", "ugt", "ogt"),
    "ge": ("sge", "uge", "oge"),
}


def _byte_product(place: int, first: int, signs: str = "us") -> list[tuple[Any, ...]]:
    """The product of the bytes at bit `place`, each signed or unsigned, as instructions that begin
    at number `first`.
    """
    row = []
    for operand, sign in zip("ab", signs, strict=True):
        signed, at = sign == "s", first + len(row)
        row.append(
            ("shl", operand, Splat(24 - place)) if signed else ("lshr", operand, Splat(place))
        )
        row.append(("ashr", at, Splat(24)) if signed else ("and", at, Splat(255)))
    return [*row, ("mul", first + 1, first + 3)]


def _byte_pair(place: int, first: int) -> list[tuple[Any, ...]]:
    """The sum of two products of bytes from bit `place` on, within 16 bits, as instructions that
    begin at number `first`.
    """
    row = []
    for shift in (place, place + 8):
        row += _byte_product(shift, first + len(row))
    sum = first + len(row)
    row.append(("add", first + 4, first + 9))
    for n, (beyond, end) in ((sum, ("slt", -32768)), (sum + 2, ("sgt", 32767))):
        row.append((f"icmp {beyond}", n, Splat(end)))
        row.append(("select", n + 1, Splat(end), n))
    return row


def _each(names: str, kinds: str, *operands: Ref, prefix: str = "") -> dict[tuple[str, str], Row]:
    return {(f, k): _row((prefix + f, *operands)) for f in names.split() for k in kinds.split()}


INSTRUCTIONS: dict[tuple[str, str], Row] = {
    **_each("add sub mul and or xor", "int uint bool", "a", "b"),
    **_each("add sub mul div", "float", "a", "b", prefix="f"),
    ("rem", "float"): _call("fmod", "ab"),  # float_functions.py defines it
    **_each("div rem", "int", "a", "b", prefix="s"),
    **_each("div rem", "uint", "a", "b", prefix="u"),
    ("floordiv", "int"): _floor_fix(("sdiv", "a", "b"), ("sext", 4), ("add", 5, 6)),
    ("floordiv", "uint"): _row(("udiv", "a", "b")),
    ("floormod", "int"): _floor_fix(("select", 4, "b", "z"), ("add", 0, 5)),
    ("floormod", "uint"): _row(("urem", "a", "b")),
    **{("neg", k): _row(("sub", "z", "a")) for k in ("int", "uint")},
    ("neg", "float"): _row(("fneg", "a")),
    ("abs", "int"): _call("llvm.abs", "a", FALSE),
    ("abs", "uint"): _row(("or", "a", "z")),
    ("abs", "float"): _intrinsic("fabs", "a"),
    **{
        (f, k): _intrinsic(k[0].replace("i", "s") + f)
        for f in ("max", "min")
        for k in ("int", "uint")
    },
    **{(f, "bool"): _row((i, "a", "b")) for f, i in (("max", "or"), ("min", "and"))},
    **{(f, "float"): _extreme(c) for f, c in (("max", "ogt"), ("min", "olt"))},
    **{(f, "float"): _intrinsic(f) for f in ("maximum", "minimum")},
    **{
        (f, k): _row((f"icmp {c}", "a", "b"))
        for f, (s, u, _) in _COMPARISONS.items()
        for k, c in (("int", s), ("uint", u), ("bool", u))
    },
    **{(f, "float"): _row((f"fcmp {c}", "a", "b")) for f, (_, _, c) in _COMPARISONS.items()},
    **{("not", k): _row(("xor", "a", "x")) for k in ("int", "uint", "bool")},
    **{("shl", k): _row(("shl", "a", "b")) for k in ("int", "uint")},
    ("shr", "int"): _row(("ashr", "a", "b")),
    ("shr", "uint"): _row(("lshr", "a", "b")),
    **{("ipow", k): _call("ipow", "ab") for k in ("int", "uint")},  # integer_powers.py defines it
    **{
        (f, "int"): _call(f, "a", result="double") for r in ROWS for f in r.columns
    },  # lookup_tables.py defines it
    **{("clz", k): _call("llvm.ctlz", "a", FALSE) for k in ("int", "uint")},
    **{
        (f, k): _row(("select", "a", "b", "c"))
        for f in ("select", "rarely")
        for k in ("int", "uint", "bool", "float")
    },
    **{(f, "float"): _intrinsic(f, "a") for f in ("sqrt", "floor", "ceil", "trunc", "rint")},
    ("fma", "float"): _intrinsic("fma", "abc"),
    ("lrint", "float"): _call("llvm.lrint", "a", result="i32"),
}

# sums of products of parts of words, for which many processors have instructions for vectors
INSTRUCTIONS["pairdot", "int"] = _row(
    ("shl", "a", Splat(16)),
    ("ashr", 0, Splat(16)),
    ("shl", "b", Splat(16)),
    ("ashr", 2, Splat(16)),
    ("mul", 1, 3),
    ("ashr", "a", Splat(16)),
    ("ashr", "b", Splat(16)),
    ("mul", 5, 6),
    ("add", 4, 7),
)
INSTRUCTIONS["bytepairs", "int"] = _row(
    *_byte_pair(0, 0),
    *_byte_pair(16, 15),
    ("and", 14, Splat(65535)),
    ("shl", 29, Splat(16)),
    ("or", 30, 31),
)
for _name, _signs in (("quaddot_us", "us"), ("quaddot", "ss"), ("quaddot_uu", "uu")):
    INSTRUCTIONS[_name, "int"] = _row(
        *(step for n in range(4) for step in _byte_product(8 * n, 5 * n, _signs)),
        ("add", 4, 9),
        ("add", 14, 19),
        ("add", 20, 21),
    )
HALVES = {"addhalves": "add", "subhalves": "sub"}
for _name, _instruction in HALVES.items():
    INSTRUCTIONS[_name, "int"] = _row(
        (_instruction, "a", "b"),
        ("and", 0, Splat(65535)),
        ("and", "a", Splat(-65536)),
        ("and", "b", Splat(-65536)),
        (_instruction, 2, 3),
        ("or", 1, 4),
    )
# vectors of words that target_intrinsics.py defines: the operands, and the instructions for one
# word
WORDS: dict[str, tuple[str, Row]] = {
    **{f: ("ab", INSTRUCTIONS[f, "int"]) for f in ("pairdot", "bytepairs", *HALVES)},
    "quadsum": ("abc", Row(*INSTRUCTIONS["quaddot_us", "int"].steps, Step("add", (22, "c")))),
    "quadsum_ss": ("abc", Row(*INSTRUCTIONS["quaddot", "int"].steps, Step("add", (22, "c")))),
}
QUADSUMS = {
    "quaddot_us": "quadsum",
    "quaddot": "quadsum_ss",
}  # products of four bytes, added to a sum
QUADSUM_ROWS: dict[str, Row] = {f: _call(added, "abc") for f, added in QUADSUMS.items()}
VECTOR_ROWS: dict[str, Row] = {
    **{f: _call(f, operands) for f, (operands, _) in WORDS.items() if f not in QUADSUMS.values()},
    **{f: _call(added, "abz") for f, added in QUADSUMS.items()},
}

# signed division by what may be -1: the least integer divided by it wraps
ANY_DIVISOR: dict[str, Row] = {
    "div": _by_minus_one(INSTRUCTIONS["div", "int"], "negated"),
    "rem": _by_minus_one(INSTRUCTIONS["rem", "int"], "zero"),
    "floordiv": _by_minus_one(INSTRUCTIONS["floordiv", "int"], "negated"),
    "floormod": _by_minus_one(INSTRUCTIONS["floormod", "int"], "zero"),
}

# conversions between kinds of elements, of which the second one is wider, or of another kind
WIDENING = {
    ("bool", "float"): "uitofp",
    ("bool", "int"): "zext",
    ("bool", "uint"): "zext",
    ("int", "int"): "sext",
    ("int", "uint"): "sext",
    ("uint", "int"): "zext",
    ("uint", "uint"): "zext",
    ("int", "float"): "sitofp",
    ("uint", "float"): "uitofp",
    ("float", "float"): "fpext",
}
SATURATING = {"int": "llvm.fptosi.sat", "uint": "llvm.fptoui.sat"}  # of floats
