"""Measure the limits of this machine by loops in LLVM IR: bytes copied and read per second, multiply-adds of f32 and of
i16 pairs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
from cvm.jit.llvm.native_code import Library

SUMS = 4  # for each of two vectors that are loaded: eight sums, and all factors, in registers
TURNS = 4  # of both vectors, in one of the loop
MIB = 1 << 20
APART = 65 * 64  # bytes between arrays that are read side by side
READING = {"reading_streams": True, "reading": False}  # eight streams side by side, or one
COPY, READ, WRITE = (1, 1), (1, 0), (0, 1)  # arrays read and written
SHARES = (COPY, WRITE, (2, 1), (3, 1), (1, 4))
PEAKS = {"f32 multiply-add, GFLOP/s": "f32", "i16 multiply-add of pairs, GOP/s": "i16"}


def moving(name: str, read: int, written: int, streaming: bool) -> str:
    """i32 @name(ptr to, ptr from, i64 bytes): so many arrays of as many bytes are read, APART from each other, and what they
    hold is written to one as many times as large. Where none is read, it is the same all along."""
    hint = ", !nontemporal !0" if streaming else ""
    lines = [f"%far{k} = mul i64 %apart, {k}" for k in range(read)]
    for n in range(4):
        lines.append(f"%at{n} = add i64 %i, {32 * n}" if read else f"%held{n}_0 = load <8 x i32>, ptr %from, align 32")
        for k in range(read):
            lines += [
                f"%o{n}_{k} = add i64 %far{k}, %at{n}",
                f"%f{n}_{k} = getelementptr i8, ptr %from, i64 %o{n}_{k}",
                f"%v{n}_{k} = load <8 x i32>, ptr %f{n}_{k}, align 32",
                f"%held{n}_{k + 1} = or <8 x i32> {f'%held{n}_{k}' if k else 'zeroinitializer'}, %v{n}_{k}",
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
    """i32 @name(ptr sink, ptr from, i64 bytes): eight times as many bytes, 32 of each eighth a turn, or all in order."""
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
    return looped(name, "ptr %to, ptr %from, i64 %n", 32, lines, sums, kept(list(sums), "<8 x i32>"))


def adding(name: str, factor: str, sum: str, step: Callable[[str, str, str, str], list[str]]) -> str:
    """i32 @name(ptr sink, ptr factors, i64 turns): two vectors loaded, each multiplied by others into sums."""
    before: list[str] = []
    for n in range(SUMS):
        before += [
            f"%p{n} = getelementptr i8, ptr %from, i64 {32 * n}",
            f"%c{n} = load {factor}, ptr %p{n}, align 32",
        ]
    lines = ["%low = and i64 %i, 7", f"%near = getelementptr {factor}, ptr %from, i64 %low"]
    held = {(m, n): f"%sum{m}{n}" for m in range(2) for n in range(SUMS)}
    names = dict(held)
    for turn in range(2 * TURNS):
        m = turn % 2
        lines += [
            f"%f{turn} = getelementptr {factor}, ptr %near, i64 {turn}",
            f"%x{turn} = load {factor}, ptr %f{turn}, align 32",
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
    """A function of one loop: i from 0 below n by a step; each of `sums` is zero, then its new value."""
    phis = [f"{s} = phi {t} [ zeroinitializer, %entry ], [ {new}, %body ]" for s, (new, t) in sums.items()]
    return "\n".join([
        f"define i32 @{name}({parameters}) nounwind {{", "entry:", *(before or []), "br label %head", "head:",
        "%i = phi i64 [ 0, %entry ], [ %next, %body ]", *phis, "%more = icmp slt i64 %i, %n",
        "br i1 %more, label %body, label %done", "body:", *lines, f"%next = add i64 %i, {step}", "br label %head",
        "done:", after, "ret i32 0", "}", "",
    ])  # fmt: skip


def _fused(new: str, sum: str, x: str, y: str) -> list[str]:
    return [f"{new} = call <8 x float> @llvm.fma.v8f32(<8 x float> {x}, <8 x float> {y}, <8 x float> {sum})"]


def _pairs(new: str, sum: str, x: str, y: str) -> list[str]:
    product = new.replace("new", "product")
    return [
        f"{product} = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> {x}, <16 x i16> {y})",
        f"{new} = add <8 x i32> {sum}, {product}",
    ]


def _name(shares: tuple[int, int], past: bool) -> str:
    return f"move_{shares[0]}_{shares[1]}{'_past' if past else ''}"


TEXT = "\n".join([
    "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)",
    "declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)",
    *(moving(_name(shares, past), *shares, past) for shares in SHARES for past in (False, True)),
    *(reading(name, streams) for name, streams in READING.items()),
    adding("f32", "<8 x float>", "<8 x float>", _fused), adding("i16", "<16 x i16>", "<8 x i32>", _pairs), "!0 = !{i32 1}",
])  # fmt: skip


class Limits:
    """The loops, ready to run."""

    def __init__(self) -> None:
        names = [*(_name(shares, past) for shares in SHARES for past in (False, True)), *READING, *PEAKS.values()]
        self.library = Library(TEXT, {name: (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64) for name in names})

    def run(self, name: str, to: np.ndarray, given: np.ndarray, n: int) -> Callable[[], int]:
        function, target, source = self.library.functions[name], to.ctypes.data, given.ctypes.data
        return lambda _kept=(to, given): function(target, source, n)

    def moving(self, amount: int, shares: tuple[int, int] = COPY) -> dict[str, Callable[[], int]]:
        """Loops that move so many bytes in all, of so many arrays read and written; `past` are non-temporal stores."""
        if shares == READ:
            each = max(32, amount // 256 * 32)
            source = aligned(8 * each)
            return {name: self.run(name, aligned(512), source, each) for name in READING}
        read, written = shares
        size = max(128, amount // (read + written) // 128 * 128)
        source, target = aligned(max(read, 1) * (size + APART)), aligned(written * size)
        return {
            f"moving{' past' * past}": self.run(_name(shares, past), target, source, size) for past in (False, True)
        }

    def measured(self) -> dict[str, float]:
        """GB/s and G operations/s: the best of several turns."""
        copy, write = self.moving(128 * MIB), self.moving(64 * MIB, WRITE)
        read = self.moving(64 * MIB, READ)
        found = {
            f"{title}, GB/s": size * MIB / min(map(fastest, runs)) / 1e9
            for title, size, runs in (
                ("copy, ordinary stores", 128, [copy["moving"]]), ("copy, non-temporal stores", 128, [copy["moving past"]]),
                ("read", 64, read.values()), ("write, non-temporal stores", 64, [write["moving past"]]),
            )
        }  # fmt: skip
        turns, factors, sink = 50_000, aligned(1024, 0), aligned(1024)
        for title, kind in PEAKS.items():
            each = 16 if kind == "f32" else 32
            found[title] = turns * 2 * TURNS * SUMS * each / fastest(self.run(kind, sink, factors, turns)) / 1e9
        return found


def aligned(size: int, byte: int = 1) -> np.ndarray:
    """Bytes that begin at a multiple of 64, all alike. Memory takes zeros faster than other values."""
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
    for name, value in Limits().measured().items():
        print(f"{name:36} {value:8.1f}")
