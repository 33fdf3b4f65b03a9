"""Choose the version of a library for the processor it is loaded on.

Each version is compiled for one processor under symbols of its own. An object file beside them
defines the symbols that are called: they branch by a number, of the last version whose features are
there, which a constructor finds when the library is loaded. The first version is what every machine
must have.
"""

import platform
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from ...dialect.support.diagnostics import TargetError
from ...lowering.processor import LEVELS, Processor, freestanding


class Word(NamedTuple):
    """An instruction that reads feature bits."""

    call: str
    operands: str
    result: str  # of the instruction: a type, and where it has several the index after a comma


CPUID = 'call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"'
LEAF_1 = Word(CPUID, "(i32 1, i32 0)", "i32, 2")
XCR0 = Word(
    'call { i32, i32 } asm "xgetbv", "={ax},={dx},{cx}"', "(i32 0)", "i32, 0"
)  # read where LEAF_1 has OSXSAVE
EXTENDED = Word(CPUID, "(i32 -2147483647, i32 0)", "i32, 2")
LEAF_7B, LEAF_7C = (Word(CPUID, "(i32 7, i32 0)", f"i32, {n}") for n in (1, 2))
LEAF_7_1 = Word(CPUID, "(i32 7, i32 1)", "i32, 0")
HWCAP, HWCAP2 = (Word("call i64 @getauxval", f"(i64 {n})", "i64") for n in (16, 26))
WORDS: dict[
    Word, dict[str, int]
] = {  # the bits of each feature by LLVM's name, in an order in which they may be read
    LEAF_1: {
        "sse3": 0x1,
        "ssse3": 0x200,
        "fma": 0x1000,
        "cx16": 0x2000,
        "sse4.1": 0x8_0000,
        "sse4.2": 0x10_0000,
        "crc32": 0x10_0000,
        "movbe": 0x40_0000,
        "popcnt": 0x80_0000,
        "xsave": 0xC00_0000,
        "avx": 0x1C00_0000,
        "f16c": 0x2000_0000,
    },
    XCR0: {"avx": 0x6, "avx512f": 0xE6},
    EXTENDED: {"sahf": 0x1, "lzcnt": 0x20},
    LEAF_7B: {
        "bmi": 0x8,
        "avx2": 0x20,
        "bmi2": 0x100,
        "avx512f": 0x1_0000,
        "avx512dq": 0x2_0000,
        "avx512cd": 0x1000_0000,
        "avx512bw": 0x4000_0000,
        "avx512vl": 0x8000_0000,
    },
    LEAF_7C: {"avx512vnni": 0x800},
    LEAF_7_1: {"avxvnni": 0x10},
    HWCAP: {"neon": 0x2, "dotprod": 0x10_0000},
    HWCAP2: {"i8mm": 0x2000},
}
ALWAYS = frozenset({"cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})  # in every processor of x86-64


def several(processors: Sequence[Processor | None]) -> list[Processor]:
    """The processors of several versions, none where there is but one; TargetError if a machine
    cannot choose among them.
    """
    if len(processors) == 1:
        return []
    levels = [p for p in processors if p is not None and p.cpu in LEVELS]
    architectures = sorted({p.triple.partition("-")[0] or "x86_64" for p in levels})
    if len(architectures) > 1:
        raise TargetError(
            f"the processors are of {' and of '.join(architectures)}; a library is of one"
        )
    if len(levels) < len(processors) or freestanding(levels[0].triple):
        raise TargetError(
            "one of these processors cannot be chosen when a library is loaded; name others"
        )
    if architectures[0] == "x86_64" != platform.machine():
        raise TargetError(
            "versions for x86-64 need LLVM's assembler for it, which only such a machine has"
        )
    for described in levels:
        masks(described)
    return levels


def masks(described: Processor) -> dict[Word, int]:
    """The bits that a processor must have to run code for this one."""
    features = {*LEVELS[described.cpu], *described.features} - ALWAYS
    mask_of = {
        word: reduce(or_, (bits[f] for f in features & bits.keys()), 0)
        for word, bits in WORDS.items()
    }
    if features.difference(*WORDS.values()):
        raise TargetError(
            f"code for {described.cpu} cannot be chosen when it is loaded; built alone it can"
        )
    return {word: mask for word, mask in mask_of.items() if mask}


def dispatch(
    versions: Sequence[Processor], functions: Mapping[str, tuple[str, int]], number: str
) -> str:
    """The IR that chooses a version: functions by symbol, with result type and number of pointers
    (-1: one i32).
    """
    chosen = f"@{number}"
    entry = f"{{ i32, ptr, ptr }} {{ i32 101, ptr {chosen}_choose, ptr null }}"
    lines = [f"{chosen} = global i32 0\ndeclare i64 @getauxval(i64)"]
    lines.append(f"@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}] [{entry}]")
    lines.append(f"define internal void {chosen}_choose() nounwind {{\n  br label %version1")
    for n, described in enumerate(versions[1:], 1):
        lines.append(f"version{n}:")
        for k, (word, mask) in enumerate(masks(described).items()):
            type, _, index = word.result.partition(", ")
            value = f"%v{n}.{k}"
            lines.append(f"  {value}.all = {word.call}{word.operands}")
            if index:
                pack = word.call.removeprefix("call ").partition(" asm")[0]
                lines.append(f"  {value}.word = extractvalue {pack} {value}.all, {index}")
            lines += [
                f"  {value}.bits = and {type} {value}.{'word' if index else 'all'}, {mask}",
                f"  {value} = icmp eq {type} {value}.bits, {mask}",
                f"  br i1 {value}, label %version{n}.{k}, label %version{n + 1}",
                f"version{n}.{k}:",
            ]
        lines += [f"  store i32 {n}, ptr {chosen}", f"  br label %version{n + 1}"]
    lines += [f"version{len(versions)}:", "  ret void", "}"]
    for symbol, (type, pointers) in functions.items():
        parameters = (
            ", ".join(f"ptr %a{n}" for n in range(pointers)) if pointers >= 0 else "i32 %a0"
        )
        cases = " ".join(f"i32 {n}, label %version{n}" for n in range(1, len(versions)))
        lines += [
            f"define {type} @{symbol}({parameters}) nounwind {{",
            f"  %n = load i32, ptr {chosen}",
        ]
        lines.append(f"  switch i32 %n, label %version0 [ {cases} ]")
        for n in range(len(versions)):
            call = f"tail call {type} @{version_symbol(symbol, n)}({parameters})"
            lines += [f"version{n}:", f"  %result{n} = {call}", f"  ret {type} %result{n}"]
        lines.append("}")
        lines += [
            f"declare {type} @{version_symbol(symbol, n)}({parameters})"
            for n in range(len(versions))
        ]
    return "\n".join(lines)


def version_symbol(symbol: str, number: int) -> str:
    """The symbol of a function's version."""
    return f"{symbol}_version{number}"
