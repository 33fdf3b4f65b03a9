"""Random graphs: their text, and their state before the first tick."""

from __future__ import annotations

import numpy as np
from cvm.jit.functions.clocked_program import CompiledGraph

import cvm

GRIDS = ((), (), (5,), (12,), (4, 9), (3, 2, 5))
TENSORS = ((), (), (), (2,))
CAST = {False: "f32", True: "complex<f32>"}

Kind = tuple[tuple[int, ...], tuple[int, ...], bool]  # field shape, tensor shape, whether complex


def type_text(kind: Kind) -> str:
    grid, tensor, complex = kind
    point = f"tensor<{'x'.join(map(str, tensor))}x{CAST[complex]}>" if tensor else CAST[complex]
    return f"!cog.field<[{', '.join(map(str, grid))}], {point}>"


class Program:
    """A random graph: its text, line by line, and the values so far by type."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.values: list[tuple[str, Kind]] = []
        self.states: list[tuple[str, Kind]] = []
        for _ in range(self.between(1, 6)):
            kind = self.pick(GRIDS), self.pick(TENSORS), bool(self.random.random() < 0.15)
            self.states.append(
                (self.define(kind, f'cog.field "s{len(self.values)}" : {type_text(kind)}'), kind)
            )
        for _ in range(self.between(2, 25)):
            self.operation()
        for name, kind in self.states:
            drivers = [v for v, k in self.values if k == kind]
            if self.random.random() < 0.85:
                self.lines.append(f"cog.feedback {name}, {self.pick(drivers)}")
        for n in range(self.between(0, 4)):
            self.lines.append(f'cog.probe "p{n}" {self.pick(self.values)[0]}')
        if self.random.random() < 0.5:
            self.lines.append(f'cog.actuator "a" {self.pick(self.values)[0]}')
        self.text = "\n  ".join(["graph @main {", *self.lines]) + "\n}\n"

    def between(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def pick(self, among: list | tuple):
        return among[self.between(0, len(among) - 1)]

    def define(self, kind: Kind, text: str) -> str:
        name = f"%v{len(self.values)}"
        self.lines.append(f"{name} = {text}")
        self.values.append((name, kind))
        return name

    def operation(self) -> None:
        name, (grid, tensor, complex) = self.pick(self.values)
        kind = grid, tensor, complex
        match self.between(0, 11):
            case 0 | 1 | 2 | 3:
                op = self.pick(
                    ["add", "sub", "mul"] + ([] if complex else ["max", "min", "lt", "eq"])
                )
                others = [v for v, k in self.values if k == kind or k == ((), (), False)]
                self.define(kind, f"cog.{op} {name}, {self.pick(others)}")
            case 4:
                self.define(kind, f"cog.mul {name}, 0.4375")
            case 5 | 6 if grid:
                op = self.pick(["shift", "shift_cyclic", "shift_cyclic"])
                self.define(
                    kind, f"cog.{op} {name} {{amount = {[self.between(-3, 3) for _ in grid]}}}"
                )
            case 7 if grid:
                self.define(
                    (grid[1:], tensor, complex),
                    f"cog.slice {name} {{index = {self.between(0, grid[0] - 1)}}}",
                )
            case 8 if grid:
                begin = [self.between(0, n - 1) for n in grid]
                end = [self.between(b + 1, n) for b, n in zip(begin, grid, strict=True)]
                part = self.define(
                    (tuple(e - b for b, e in zip(begin, end, strict=True)), tensor, complex),
                    f"cog.subfield {name} {{begin = {begin}, end = {end}}}",
                )
                border = self.pick(["zero", "clamp", "cyclic"])
                self.define(
                    kind, f'cog.expand {part} {{shape = {list(grid)}, border = "{border}"}}'
                )
            case 9 if not complex and not tensor:
                others = [
                    (v, k)
                    for v, k in self.values
                    if k[1:] == ((), False) and len(k[0]) + len(grid) <= 2
                ]
                if others and len(grid) <= 2:
                    other, (more, _, _) = self.pick(others)
                    self.define(((*grid, *more), (), False), f"cog.outer {name}, {other}")
            case 10 if not complex:
                self.define(
                    ((), tensor, False), f"cog.field_reduce_{self.pick(['min', 'max'])} {name}"
                )
            case 11 if len(grid) < 3:
                self.define(((2, *grid), tensor, complex), f"cog.stack {name}, {name}")


def set_up(text: str, target: str, optimize: int = 2) -> CompiledGraph:
    graph = cvm.compile(text, target=target, optimize=optimize)
    assert isinstance(graph, CompiledGraph)
    random = np.random.default_rng(1)
    for state in graph.writable:
        shape = state.initial.shape
        value = random.integers(-8, 9, shape) / 4 + (
            1j * random.integers(-8, 9, shape) if state.initial.dtype.kind == "c" else 0
        )
        graph.write(state.name, np.asarray(value).astype(state.initial.dtype))
    return graph
