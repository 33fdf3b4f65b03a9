"""Measure the limits of this machine by loops in LLVM IR: bytes copied and read per second, and
multiply-adds of f32, of pairs of i16 and of bytes, by vectors of every width and every dot product
that the processor has.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
from cvm.jit.host_processor import host_processor
from cvm.jit.llvm.native_code import Library
from cvm.lowering.processor import DotProduct

PROCESSOR = host_processor()
# for each of two vectors that are loaded: eight sums or twelve, and all factors, in registers
SUMS = 4 if PROCESSOR.vector_registers < 32 else 6
TURNS = 4  # of both vectors, in one of the loop
MIB = 1 << 20
APART = 65 * 64  # bytes between arrays that are read side by side
READING = {"reading_streams": True, "reading": False}  # eight streams side by side, or one
COPY, READ, WRITE = (1, 1), (1, 0), (0, 1)  # arrays read and written
SHARES = (COPY, WRITE, (2, 1), (3, 1), (1, 4))
PEAKS = {
    "f32 multiply-add, GFLOP/s": "f32",
    "i16 multiply-add of pairs, GOP/s": "i16",
    "multiply-add of bytes, GOP/s": "i8",
}


def moving(name: str, read: int, written: int, streaming: bool) -> str:
    """i32 @name(ptr to, ptr from, i64 bytes): so many arrays of as many bytes are read, APART from
    each other, and what they hold is written to one as many times as large. Where none is read, it
    is the same all along.
    """
    hint = ", !nontemporal !0" if streaming else ""
    lines = [f"%far{k} = mul i64 %apart, {k}" for k in range(read)]
    for n in range(4):
        lines.append(
            f"%at{n} = add i64 %i, {32 * n}"
            if read
            else f"%held{n}_0 = load <8 x i32>, ptr %from, align 32"
        )
        for k in range(read):
            lines += [
                f"%o{n}_{k} = add i64 %far{k}, %at{n}",
                f"%f{n}_{k} = getelementptr i8, ptr %from, i64 %o{n}_{k}",
                f"%v{n}_{k} = load <8 x i32>, ptr %f{n}_{k}, align 32",
                f"%held{n}_{k + 1} = or <8 x i32> "
                f"{f'%held{n}_{k}' if k else 'zeroinitializer'}, %v{n}_{k}",
            ]
    lines.append(f"%begin = mul i64 %i, {written}")
    for n in range(4 * written):
        lines += [
            f"%at_{n} = add i64 %begin, {32 * n}",
            f"%t{n} = getelementptr i8, ptr %to, i64 %at_{n}",
            f"store <8 x i32> %held{n // written}_{read}, ptr %t{n}, align 32{hint}",
        ]
    before = [f"%apart = add i64 %n, {APART}"]
    return looped(name, "ptr %to, ptr %from, i64 %n", 128, lines, {}, "fence seq_cst", before)


def reading(name: str, streams: bool) -> str:
    """i32 @name(ptr sink, ptr from, i64 bytes): eight times as many bytes, 32 of each eighth a
    turn, or all in order.
    """
    lines = [] if streams else ["%first = mul i64 %i, 8"]
    for n in range(8):
        apart = [f"%o{n} = mul i64 %n, {n}", f"%at{n} = add i64 %o{n}, %i"]
        lines += apart if streams else [f"%at{n} = add i64 %first, {32 * n}"]
        lines += [
            f"%f{n} = getelementptr i8, ptr %from, i64 %at{n}",
            f"%v{n} = load <8 x i32>, ptr %f{n}, align 32",
            f"%new{n} = or <8 x i32> %sum{n}, %v{n}",
        ]
    sums = {f"%sum{n}": (f"%new{n}", "<8 x i32>") for n in range(8)}
    return looped(
        name, "ptr %to, ptr %from, i64 %n", 32, lines, sums, kept(list(sums), "<8 x i32>")
    )


def adding(name: str, width: int, sum: str, step: Callable[[str, str, str, str], list[str]]) -> str:
    """i32 @name(ptr sink, ptr factors, i64 turns): two vectors of so many bytes loaded, each
    multiplied by others into sums.
    """
    before: list[str] = []
    factor = sum
    for n in range(SUMS):
        before += [
            f"%p{n} = getelementptr i8, ptr %from, i64 {width * n}",
            f"%c{n} = load {factor}, ptr %p{n}, align {width}",
        ]
    lines = ["%low = and i64 %i, 7", f"%near = getelementptr {factor}, ptr %from, i64 %low"]
    held = {(m, n): f"%sum{m}{n}" for m in range(2) for n in range(SUMS)}
    names = dict(held)
    for turn in range(2 * TURNS):
        m = turn % 2
        lines += [
            f"%f{turn} = getelementptr {factor}, ptr %near, i64 {turn}",
            f"%x{turn} = load {factor}, ptr %f{turn}, align {width}",
        ]
        for n in range(SUMS):
            made = f"%new{turn}_{n}"
            lines += step(made, held[m, n], f"%x{turn}", f"%c{n}")
            held[m, n] = made
    sums = {names[place]: (made, sum) for place, made in held.items()}
    return looped(name, "ptr %to, ptr %from, i64 %n", 1, lines, sums, kept(list(sums), sum), before)


def kept(sums: list[str], type: str) -> str:
    """Stores of the sums, so that they are needed."""
    return "\n".join(
        f"%s{n} = getelementptr {type}, ptr %to, i64 {n}\nstore {type} {sum}, ptr %s{n}, align 32"
        for n, sum in enumerate(sums)
    )


def looped(
    name: str,
    parameters: str,
    step: int,
    lines: list[str],
    sums: dict[str, tuple[str, str]],
    after: str,
    before: list[str] | None = None,
) -> str:
    """A function of one loop: i from 0 below n by a step; each of `sums` is zero, then its new
    value.
    """
    phis = [
        f"{s} = phi {t} [ zeroinitializer, %entry ], [ {new}, %body ]"
        for s, (new, t) in sums.items()
    ]
    return "\n".join(
        [
            f"define i32 @{name}({parameters}) nounwind {{",
            "entry:",
            *(before or []),
            "br label %head",
            "head:",
            "%i = phi i64 [ 0, %entry ], [ %next, %body ]",
            *phis,
            "%more = icmp slt i64 %i, %n",
            "br i1 %more, label %body, label %done",
            "body:",
            *lines,
            f"%next = add i64 %i, {step}",
            "br label %head",
            "done:",
            after,
            "ret i32 0",
            "}",
            "",
        ]
    )


def fused(width: int) -> tuple[str, set[str]]:
    """The loop of f32 multiply-adds by vectors of a width, and what it declares."""
    v, n = f"<{width // 4} x float>", width // 4

    def step(new: str, sum: str, x: str, y: str) -> list[str]:
        return [f"{new} = call {v} @llvm.fma.v{n}f32({v} {x}, {v} {y}, {v} {sum})"]

    return adding(f"f32_{width}", width, v, step), {f"declare {v} @llvm.fma.v{n}f32({v}, {v}, {v})"}


def products(name: str, chain: list[DotProduct]) -> tuple[str, set[str]]:
    """The loop of dot products, each of the one before with the factors or with ones, added to
    sums; and what it declares.
    """
    width = chain[0].vector_bytes
    v, wanted = f"<{width // 4} x i32>", set()

    def step(new: str, sum: str, x: str, y: str) -> list[str]:
        lines, given = [], {"a": x, "b": y, "c": sum}
        for d in chain:
            parts, result = (
                f"<{8 * width // bits} x i{bits}>" for bits in (d.operand_bits, d.result_bits)
            )
            types = [result if o == "c" else parts for o in d.operands]
            wanted.add(f"declare {result} @{d.llvm}({', '.join(types)})")
            tag = f"{new}_{d.function}"
            lines += [
                f"{tag}{o} = bitcast {v} {given[o]} to {t}"
                for o, t in zip(d.operands, types, strict=True)
            ]
            operands = ", ".join(f"{t} {tag}{o}" for o, t in zip(d.operands, types, strict=True))
            lines += [
                f"{tag} = call {result} @{d.llvm}({operands})",
                f"{tag}w = bitcast {result} {tag} to {v}",
            ]
            given = {"a": f"{tag}w", "b": y, "c": sum}
        last = given["a"]
        return [
            *lines,
            f"{new} = {'or' if 'c' in chain[-1].operands else 'add'} {v} {last}, "
            f"{last if 'c' in chain[-1].operands else sum}",
        ]

    return adding(name, width, v, step), wanted


def peaks() -> dict[str, tuple[str, int, str, set[str]]]:
    """Loops by name: the kind of peak, the operations of a vector, the text, and what it
    declares.
    """
    found: dict[str, tuple[str, int, str, set[str]]] = {}
    widths = [w for w in (16, 32, 64) if w <= PROCESSOR.tile_vector_bytes]
    for width in widths:
        found[f"f32_{width}"] = ("f32", width // 2, *fused(width))
        has = {d.function: d for d in PROCESSOR.dot_products if d.vector_bytes == width}
        chains = [
            ("i16", 2, ["pairdot"]),
            ("i8", 4, ["bytepairs", "pairdot"]),
            ("i8", 4, ["quadsum"]),
            ("i8", 4, ["quadsum_ss"]),
        ]
        for kind, terms, functions in chains:
            if all(f in has for f in functions):
                name = f"{kind}_{functions[0]}_{width}"
                found[name] = (
                    kind,
                    2 * terms * width // 4,
                    *products(name, [has[f] for f in functions]),
                )
    return found


LOOPS = peaks()


def _name(shares: tuple[int, int], past: bool) -> str:
    return f"move_{shares[0]}_{shares[1]}{'_past' if past else ''}"


TEXT = "\n".join(
    [
        *sorted(set().union(*(wanted for *_, wanted in LOOPS.values()))),
        *(
            moving(_name(shares, past), *shares, past)
            for shares in SHARES
            for past in (False, True)
        ),
        *(reading(name, streams) for name, streams in READING.items()),
        *(text for _, _, text, _ in LOOPS.values()),
        "!0 = !{i32 1}",
    ]
)


class Limits:
    """The loops, ready to run."""

    def __init__(self) -> None:
        names = [
            *(_name(shares, past) for shares in SHARES for past in (False, True)),
            *READING,
            *LOOPS,
        ]
        self.reached_by: dict[str, str] = {}  # the loop of each peak that was measured
        self.library = Library(
            TEXT, {name: (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64) for name in names}
        )

    def run(self, name: str, to: np.ndarray, given: np.ndarray, n: int) -> Callable[[], int]:
        function, target, source = self.library.functions[name], to.ctypes.data, given.ctypes.data
        return lambda _kept=(to, given): function(target, source, n)

    def moving(self, amount: int, shares: tuple[int, int] = COPY) -> dict[str, Callable[[], int]]:
        """Loops that move so many bytes in all, of so many arrays read and written; `past` are
        non-temporal stores.
        """
        if shares == READ:
            each = max(32, amount // 256 * 32)
            source = aligned(8 * each)
            return {name: self.run(name, aligned(512), source, each) for name in READING}
        read, written = shares
        size = max(128, amount // (read + written) // 128 * 128)
        source, target = aligned(max(read, 1) * (size + APART)), aligned(written * size)
        return {
            f"moving{' past' * past}": self.run(_name(shares, past), target, source, size)
            for past in (False, True)
        }

    def measured(self) -> dict[str, float]:
        """GB/s and G operations/s: the best of several turns."""
        copy, write = self.moving(128 * MIB), self.moving(64 * MIB, WRITE)
        read = self.moving(64 * MIB, READ)
        found = {
            f"{title}, GB/s": size * MIB / min(map(fastest, runs)) / 1e9
            for title, size, runs in (
                ("copy, ordinary stores", 128, [copy["moving"]]),
                ("copy, non-temporal stores", 128, [copy["moving past"]]),
                ("read", 64, read.values()),
                ("write, non-temporal stores", 64, [write["moving past"]]),
            )
        }
        turns, factors, sink = 50_000, aligned(2048, 0), aligned(1024)
        for title, kind in PEAKS.items():
            rates = {
                name: turns
                * 2
                * TURNS
                * SUMS
                * each
                / fastest(self.run(name, sink, factors, turns))
                / 1e9
                for name, (of, each, *_) in LOOPS.items()
                if of == kind
            }
            if rates:
                self.reached_by[title] = max(rates, key=lambda name: rates[name])
            found[title] = max(
                rates.values(), default=found[list(found)[-1]]
            )  # without products of bytes, those of pairs
        return found


def aligned(size: int, byte: int = 1) -> np.ndarray:
    """Bytes that begin at a multiple of 64, all alike. Memory takes zeros faster than other
    values.
    """
    found = np.full(size + 64, byte, np.uint8)
    start = -found.ctypes.data % 64
    return found[start : start + size]


def fastest(run: Callable[[], object], turns: int = 9) -> float:
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    limits = Limits()
    for name, value in limits.measured().items():
        print(f"{name:36} {value:8.1f}  {limits.reached_by.get(name, '')}".rstrip())
