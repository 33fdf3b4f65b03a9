"""Random kernels as text, against a serial interpreter: accepted kernels give its bits at three
vector widths and, of a share, on cuda-sim, and no element of a result or a buffer that nobody wrote.
"""

from __future__ import annotations

import random
import zlib
from contextlib import suppress
from functools import cache
from typing import Any

import loop_interpreter
import numpy as np
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.jit.host_processor import check_runs_here, resolve
from cvm.jit.options import CompileOptions
from cvm.jit.targets import find_target
from cvm.lowering.loops.zero_fill import filled
from cvm.lowering.processor import Processor

import cvm
from cvm.terminal.read_program import compiled, read_kernels

N = 12  # elements of an axis
POISON = 0x5A
EMULATED = 4  # one accepted kernel in this number also runs on cuda-sim
LEVELS = "x86-64", "x86-64-v3", "x86-64-v4"


@cache
def processors() -> list[Processor | None]:
    """The processors of three vector widths that can run here; the host's own where none can."""
    found: list[Processor | None] = []
    for name in LEVELS:
        with suppress(cvm.Error):
            check_runs_here(described := resolve(name))
            found.append(described)
    return found or [None]


class Writer:
    """One random kernel: its text line by line, and the names in scope."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines: list[str] = []
        self.indices: list[str] = []
        self.buffers: list[tuple[str, int]] = [("%y", 1), ("%z", 2)]
        self.scalars: list[str] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def kernel(self) -> str:
        word = " zero" if self.chance.random() < 0.15 else ""
        head = f"kernel @k(%x: tensor<{N}xi32>, %w: tensor<{N}x{N}xi32>, %r: tensor<{N}xi64>)"
        self.lines = [f"{head} -> (%y: tensor<{N}xi32>{word}, %z: tensor<{N}x{N}xi32>) {{"]
        if self.chance.random() < 0.9:
            self.fill()
        self.block(1, self.chance.randint(1, 3))
        return "\n".join([*self.lines, "}"]) + "\n"

    def fill(self) -> None:
        whole = f"0..{N}"
        part = self.chance.choice([whole, whole, whole, whole, f"1..{N}", f"0..{N - 1}"])
        self.lines += [
            f"  for %f in {part} {{",
            "    %y[%f] = %x[%f]",
            f"    for %g in {whole} {{",
            "      %z[%f, %g] = %w[%g, %f]",
            "    }",
            "  }",
        ]

    def block(self, depth: int, count: int) -> None:
        buffers, scalars = list(self.buffers), list(self.scalars)
        for _ in range(count):
            kinds = ["store"] * 3 + ["loop"] * (3 if depth < 4 else 0) + ["if", "let", "alloc"]
            getattr(self, self.chance.choice(kinds if depth > 1 else ["loop", "loop", "alloc"]))(
                depth
            )
        self.buffers, self.scalars = buffers, scalars

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def loop(self, depth: int) -> None:
        i = self.name("i")
        start, end = self.chance.choice(
            [
                ("0", str(N)),
                ("0", str(N)),
                ("1", str(N)),
                ("0", str(N - 1)),
                ("2", f"{N} - 2"),
                *(
                    (
                        ("0", j),
                        (j, str(N)),
                        (f"{j} + 1", str(N)),
                        (f"max({j} - 1, 0)", f"min({j} + 2, {N})"),
                        (f"%r[{j}]", f"min(%r[{j}] + 3, {N})"),
                        ("0", f"%r[{j}]"),
                        (f"{j} // 2", f"{N} - {j}"),
                    )[self.chance.randrange(7)]
                    for j in self.indices
                ),
            ]
        )
        marks = ["", "", "", "", " parallel", " vector 4", " vector 2"]
        kind = self.chance.choice([*marks, *([" unrolled"] if end.isdigit() else [])])
        self.line(depth, f"for {i} in {start}..{end}{kind} {{")
        self.indices.append(i)
        self.block(depth + 1, self.chance.randint(1, 3))
        self.indices.pop()
        self.line(depth, "}")

    def alloc(self, depth: int) -> None:
        word = " zero" if self.chance.random() < 0.1 else ""
        name = self.name("b")
        if self.chance.random() < 0.5:
            self.line(depth, f"alloc {name}: i32{word}")
            self.buffers.append((name, 0))
            if self.chance.random() < 0.8:
                self.line(depth, f"{name} = {self.value()}")
        else:
            self.line(depth, f"alloc stack {name}: tensor<{N}xi32>{word}")
            self.buffers.append((name, 1))

    def let(self, depth: int) -> None:
        value, name = self.index(), self.name("e")
        self.line(depth, f"let {name}: i64 = {value}")
        self.scalars.append(name)

    def store(self, depth: int) -> None:
        name, rank = self.chance.choice(self.buffers)
        at = f"[{', '.join(self.index() for _ in range(rank))}]" if rank else ""
        value = self.value()
        if self.chance.random() < 0.4:
            value = f"{name}{at} + {value}"
        self.line(depth, f"{name}{at} = {value}")

    def branch(self, depth: int) -> None:
        test = self.chance.choice(
            [
                f"{self.index()} < {self.chance.randrange(N)}",
                f"{self.value()} > (0 : i32)",
                f"{self.index()} mod 2 == 0",
            ]
        )
        self.line(depth, f"if {test} {{")
        self.block(depth + 1, self.chance.randint(1, 2))
        if self.chance.random() < 0.5:
            self.line(depth, "} else {")
            self.block(depth + 1, 1)
        self.line(depth, "}")

    def index(self) -> str:
        if not (atoms := [*self.indices, *self.scalars]) or self.chance.random() < 0.1:
            return str(self.chance.randrange(N))
        a, b = self.chance.choice(atoms), self.chance.choice(atoms)
        return self.chance.choice(
            [
                a,
                a,
                a,
                a,
                f"{N - 1} - {a}",
                f"min({a} + 1, {N - 1})",
                f"max({a} - 1, 0)",
                f"{a} // 2",
                f"({a} + {b}) mod {N}",
                f"{a} * 2 mod {N}",
                f"%r[{a}]",
                f"{a} - 1",
                f"{a} + 1",
            ]
        )

    def value(self) -> str:
        name, rank = self.chance.choice([*self.buffers, ("%x", 1), ("%w", 2)])
        at = f"[{', '.join(self.index() for _ in range(rank))}]" if rank else ""
        return self.chance.choice(
            [
                f"{name}{at}",
                f"{name}{at} * 3",
                f"%x[{self.index()}]",
                f"({self.chance.randrange(9)} : i32)",
            ]
        )


setattr(Writer, "if", Writer.branch)


def text_of(seed: bytes) -> bytes:
    return Writer(random.Random(seed)).kernel().encode()


def run(data: bytes) -> bool:
    """Compare a kernel with the interpreter; False if it is refused, which raises no other error
    than `cvm.Error`.
    """
    text = data.decode("utf-8", "replace")
    try:
        plan = read_kernels(text, "fuzz.loops")
    except cvm.Error:
        return False
    chance = np.random.default_rng(len(text))
    arrays = {
        "x": chance.integers(-9, 9, N, np.int32),
        "w": chance.integers(-9, 9, (N, N), np.int32),
        "r": chance.integers(0, N, N, np.int64),
        "y": chance.integers(-9, 9, N, np.int32),
        "z": chance.integers(-9, 9, (N, N), np.int32),
    }
    arguments = [arrays[t.name] for t in plan.arguments]
    wanted = interpreted(plan, arrays)
    ways = [("cpu", CompileOptions(cpu=cpu)) for cpu in processors()]
    if zlib.crc32(data) % EMULATED == 0 and not find_target("cuda-sim").missing():
        ways.append(("cuda-sim", CompileOptions()))
    for target, options in ways:
        f = compiled(plan, plan.name, target, options)
        out = [np.full((N,) * t.rank, POISON, np.int32) for t in plan.results]
        given = [a.copy() for a in arguments]
        try:
            f(*given, out=tuple(out) if len(out) > 1 else out[0])
        except cvm.CallError as e:
            assert wanted is None, f"{e}\n{text}"
            continue
        assert wanted is not None, f"an access outside of an array runs\n{text}"
        for got, right in zip(out, wanted, strict=True):
            assert np.array_equal(got, right), (
                f"{target}, {options.cpu}: {got}, not {right}\n{text}"
            )
    return True


def interpreted(plan: Any, arrays: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The results of the serial interpreter, which asserts that what is read is written; None for
    an access outside.
    """
    machine = loop_interpreter.Machine()
    (kernel,) = filled(plan).kernels
    assert isinstance(kernel, Kernel)
    given = {t.name for t in plan.arguments}
    for t in kernel.parameters:
        if t.name in given:
            machine.give(t, arrays[t.name].copy())
        else:
            machine.allocate(t)
    try:
        machine.run(kernel.body)
    except AssertionError as e:
        if any(word in str(e) for word in ("read before", "multiple", "a race")):
            raise
        return None
    written = {t.name: machine.result(t) for t in kernel.outputs}
    return [written[t.name] for t in plan.results]


def attack(seed: bytes) -> None:
    run(text_of(seed))
