"""The spelling of scalar functions and conversions in LLVM IR: a row for each function and kind of element."""

from __future__ import annotations

from typing import NamedTuple

from ...dialect.ir.types import ElementType
from ...dialect.notation.math_tables import ROWS


class Call(NamedTuple):
    """A call as an instruction of a row: the result's type, the function, and the operands with their types."""

    result: str
    function: str
    operands: tuple[tuple[str, str], ...]


Row = tuple[str | Call, ...]
HOLES = tuple(f"{{{n}}}" for n in range(64))  # results of a row's earlier instructions


def _intrinsic(name: str, operands: str = "abc"[:2]) -> Row:
    return (_call(f"llvm.{name}", operands),)


def _call(function: str, operands: str, result: str = "{t}") -> Call:
    return Call(result, f"{function}.{{s}}", tuple([("{t}", f"{{{o}}}") for o in operands]))


def _extreme(comparison: str) -> Row:
    return (f"fcmp {comparison} {{t}} {{a}}, {{b}}", "select {m} {0}, {t} {a}, {t} {b}")


def _floor_fix(correction: Row) -> Row:
    """Instructions after a truncated remainder {0}: the signs of remainder and divisor differ in {4}."""
    return (
        "srem {t} {a}, {b}",
        "icmp ne {t} {0}, {z}",
        "xor {t} {0}, {b}",
        "icmp slt {t} {2}, {z}",
        "and {m} {1}, {3}",
        *correction,
    )


def _shifted(row: Row, by: int) -> Row:
    """A row that stands after `by` other instructions, dividing by {1} in place of {b}."""
    words = {word: f"{{{word}}}" for word in "tmazxo"}
    return tuple([line.format(*HOLES[by:], b="{1}", **words) for line in row if isinstance(line, str)])


def _by_minus_one(row: Row, result: str) -> Row:
    """A division that the machine cannot do for the least integer by -1: it divides by 1 there, and fixes the result."""
    fix = ("sub {t} {z}, {a}",) if result == "negated" else ()
    last = f"{{{1 + len(row)}}}"
    chosen = f"{{{2 + len(row)}}}" if fix else "{z}"
    return (
        "icmp eq {t} {b}, {x}",
        "select {m} {0}, {t} {o}, {t} {b}",
        *_shifted(row, 2),
        *fix,
        f"select {{m}} {{0}}, {{t}} {chosen}, {{t}} {last}",
    )


_COMPARISONS = {"eq": ("eq", "eq", "oeq"), "ne": ("ne", "ne", "une"), "lt": ("slt", "ult", "olt"), "le": ("sle", "ule", "ole"), "gt": ("sgt", "ugt", "ogt"), "ge": ("sge", "uge", "oge")}  # fmt: skip


def _byte_product(place: int, first: int, signed: bool = False) -> Row:
    """The product of a byte without a sign, or a `signed` one, and one with it, of these bits on; the row has so many
    instructions before."""
    return (
        f"shl {{t}} {{a}}, {{k[{24 - place}]}}" if signed else f"lshr {{t}} {{a}}, {{k[{place}]}}",
        f"ashr {{t}} {{{first}}}, {{k[24]}}" if signed else f"and {{t}} {{{first}}}, {{k[255]}}",
        f"shl {{t}} {{b}}, {{k[{24 - place}]}}",
        f"ashr {{t}} {{{first + 2}}}, {{k[24]}}",
        f"mul {{t}} {{{first + 1}}}, {{{first + 3}}}",
    )


def _byte_pair(place: int, first: int) -> Row:
    """The sum of two products of bytes from this bit on, within 16 bits; the row has so many instructions before."""
    row: list[str | Call] = []
    for shift in (place, place + 8):
        row += _byte_product(shift, first + len(row))
    sum = first + len(row)
    row.append(f"add {{t}} {{{first + 4}}}, {{{first + 9}}}")
    for n, (beyond, end) in ((sum, ("slt", -32768)), (sum + 2, ("sgt", 32767))):
        row.append(f"icmp {beyond} {{t}} {{{n}}}, {{k[{end}]}}")
        row.append(f"select {{m}} {{{n + 1}}}, {{t}} {{k[{end}]}}, {{t}} {{{n}}}")
    return tuple(row)


INSTRUCTIONS: dict[tuple[str, str], Row] = {
    **{(f, k): (f"{f} {{t}} {{a}}, {{b}}",) for f in ("add", "sub", "mul", "and", "or", "xor") for k in ("int", "uint", "bool")},
    **{(f, "float"): (f"f{f} {{t}} {{a}}, {{b}}",) for f in ("add", "sub", "mul", "div", "rem")},
    ("div", "int"): ("sdiv {t} {a}, {b}",),
    ("div", "uint"): ("udiv {t} {a}, {b}",),
    ("rem", "int"): ("srem {t} {a}, {b}",),
    ("rem", "uint"): ("urem {t} {a}, {b}",),
    ("floordiv", "int"): _floor_fix(("sdiv {t} {a}, {b}", "sext {m} {4} to {t}", "add {t} {5}, {6}")),
    ("floordiv", "uint"): ("udiv {t} {a}, {b}",),
    ("floormod", "int"): _floor_fix(("select {m} {4}, {t} {b}, {t} {z}", "add {t} {0}, {5}")),
    ("floormod", "uint"): ("urem {t} {a}, {b}",),
    ("neg", "int"): ("sub {t} {z}, {a}",),
    ("neg", "uint"): ("sub {t} {z}, {a}",),
    ("neg", "float"): ("fneg {t} {a}",),
    ("abs", "int"): (Call("{t}", "llvm.abs.{s}", (("{t}", "{a}"), ("i1", "false"))),),
    ("abs", "uint"): ("or {t} {a}, {z}",),
    ("abs", "float"): _intrinsic("fabs", "a"),
    ("max", "int"): _intrinsic("smax", "ab"),
    ("max", "uint"): _intrinsic("umax", "ab"),
    ("max", "bool"): ("or {t} {a}, {b}",),
    ("max", "float"): _extreme("ogt"),
    ("min", "int"): _intrinsic("smin", "ab"),
    ("min", "uint"): _intrinsic("umin", "ab"),
    ("min", "bool"): ("and {t} {a}, {b}",),
    ("min", "float"): _extreme("olt"),
    **{(f, "float"): _intrinsic(f, "ab") for f in ("maximum", "minimum")},
    **{(f, k): (f"icmp {c} {{t}} {{a}}, {{b}}",) for f, (s, u, _) in _COMPARISONS.items() for k, c in (("int", s), ("uint", u), ("bool", u))},
    **{(f, "float"): (f"fcmp {c} {{t}} {{a}}, {{b}}",) for f, (_, _, c) in _COMPARISONS.items()},
    **{("not", k): ("xor {t} {a}, {x}",) for k in ("int", "uint", "bool")},
    ("shl", "int"): ("shl {t} {a}, {b}",),
    ("shl", "uint"): ("shl {t} {a}, {b}",),
    ("shr", "int"): ("ashr {t} {a}, {b}",),
    ("shr", "uint"): ("lshr {t} {a}, {b}",),
    **{("ipow", k): (_call("ipow", "ab"),) for k in ("int", "uint")},  # integer_powers.py defines it
    **{(f, "int"): (_call(f, "a", "{d}"),) for r in ROWS for f in r.columns},  # lookup_tables.py defines it
    ("clz", "int"): (Call("{t}", "llvm.ctlz.{s}", (("{t}", "{a}"), ("i1", "false"))),),
    ("clz", "uint"): (Call("{t}", "llvm.ctlz.{s}", (("{t}", "{a}"), ("i1", "false"))),),
    **{(f, k): ("select {m} {a}, {t} {b}, {t} {c}",) for f in ("select", "rarely") for k in ("int", "uint", "bool", "float")},
    **{(f, "float"): _intrinsic(f, "a") for f in ("sqrt", "floor", "ceil", "trunc", "rint")},
    ("fma", "float"): _intrinsic("fma", "abc"),
}  # fmt: skip

# sums of products of parts of words, for which many processors have instructions for vectors
INSTRUCTIONS["pairdot", "int"] = (
    "shl {t} {a}, {k[16]}",
    "ashr {t} {0}, {k[16]}",
    "shl {t} {b}, {k[16]}",
    "ashr {t} {2}, {k[16]}",
    "mul {t} {1}, {3}",
    "ashr {t} {a}, {k[16]}",
    "ashr {t} {b}, {k[16]}",
    "mul {t} {5}, {6}",
    "add {t} {4}, {7}",
)
INSTRUCTIONS["bytepairs", "int"] = (
    *_byte_pair(0, 0),
    *_byte_pair(16, 15),
    "and {t} {14}, {k[65535]}",
    "shl {t} {29}, {k[16]}",
    "or {t} {30}, {31}",
)
for _name, _signed in (("quaddot_us", False), ("quaddot", True)):
    INSTRUCTIONS[_name, "int"] = (
        *(line for n in range(4) for line in _byte_product(8 * n, 5 * n, _signed)),
        "add {t} {4}, {9}",
        "add {t} {14}, {19}",
        "add {t} {20}, {21}",
    )
HALVES = {"addhalves": "add", "subhalves": "sub"}
for _name, _instruction in HALVES.items():
    INSTRUCTIONS[_name, "int"] = (
        f"{_instruction} {{t}} {{a}}, {{b}}",
        "and {t} {0}, {k[65535]}",
        "and {t} {a}, {k[-65536]}",
        "and {t} {b}, {k[-65536]}",
        f"{_instruction} {{t}} {{2}}, {{3}}",
        "or {t} {1}, {4}",
    )
# what instructions.py defines for vectors of words: the operands, and the instructions for one word
WORDS: dict[str, tuple[str, Row]] = {
    **{f: ("ab", INSTRUCTIONS[f, "int"]) for f in ("pairdot", "bytepairs", *HALVES)},
    "quadsum": ("abc", (*INSTRUCTIONS["quaddot_us", "int"], "add {t} {22}, {c}")),
    "quadsum_ss": ("abc", (*INSTRUCTIONS["quaddot", "int"], "add {t} {22}, {c}")),
}
QUADSUMS = {"quaddot_us": "quadsum", "quaddot": "quadsum_ss"}  # products of four bytes, added to a sum
QUADSUM_ROWS: dict[str, Row] = {f: (_call(added, "abc"),) for f, added in QUADSUMS.items()}
VECTOR_ROWS: dict[str, Row] = {
    **{f: (_call(f, operands),) for f, (operands, _) in WORDS.items() if f not in QUADSUMS.values()},
    **{f: (_call(added, "abz"),) for f, added in QUADSUMS.items()},
}

# signed division by what may be -1: the least integer divided by it wraps
ANY_DIVISOR: dict[str, Row] = {
    "div": _by_minus_one(INSTRUCTIONS["div", "int"], "negated"),
    "rem": _by_minus_one(INSTRUCTIONS["rem", "int"], "zero"),
    "floordiv": _by_minus_one(INSTRUCTIONS["floordiv", "int"], "negated"),
    "floormod": _by_minus_one(INSTRUCTIONS["floormod", "int"], "zero"),
}


def conversion(source: ElementType, target: ElementType) -> str | Call:
    """The instruction that converts {a} of type {f} to {t}, or "" where the bits stay."""
    widen = target.bits > source.bits
    match source.kind, target.kind:
        case "bool", "float":
            return "uitofp {f} {a} to {t}"
        case "bool", _:
            return "zext {f} {a} to {t}" if widen else ""
        case _, "bool":
            return "fcmp une {f} {a}, {zf}" if source.kind == "float" else "icmp ne {f} {a}, {zf}"
        case (("int" | "uint"), ("int" | "uint")):
            if target.bits == source.bits:
                return ""
            return ("sext" if source.kind == "int" else "zext") + " {f} {a} to {t}" if widen else "trunc {f} {a} to {t}"
        case "int", "float":
            return "sitofp {f} {a} to {t}"
        case "uint", "float":
            return "uitofp {f} {a} to {t}"
        case "float", "int":
            return Call("{t}", "llvm.fptosi.sat.{s}.{sf}", (("{f}", "{a}"),))
        case "float", "uint":
            return Call("{t}", "llvm.fptoui.sat.{s}.{sf}", (("{f}", "{a}"),))
        case "float", "float":
            return ("fpext" if widen else "fptrunc") + " {f} {a} to {t}"
    raise TypeError(f"no conversion from {source} to {target}")
