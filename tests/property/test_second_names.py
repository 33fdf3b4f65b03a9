"""Random kernels that read and write an array under two names, beside the same Python text."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import tiers
from available_targets import HERE

import cvm
from cvm.terminal.read_program import compiled, read_level

ROWS, COLUMNS = 2, 3
N = ROWS * COLUMNS
DEEPEST = 3  # blocks in blocks


class Text:
    """Statements of the loop language on %x, %y, which is a view of it, and %z."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.has_rows = self.random.random() < 0.4
        self.lines: list[str] = []
        self.block(1, [])
        shape = f"{ROWS}x{COLUMNS}" if self.has_rows else N
        types = f"%y: tensor<{shape}xi64> view of %x, %z: tensor<{N}xi64> zero"
        head = f"kernel @k(%x: tensor<{N}xi64>) -> ({types}) {{"
        self.kernel = "\n".join([head, *self.lines, "}"])

    def block(self, depth: int, indices: list[str]) -> None:
        for _ in range(self.random.randint(1, 3)):
            choice = self.random.random() if depth < DEEPEST else 1
            if choice < 0.35:
                index = f"%i{len(self.lines)}"
                self.inside(f"for {index} in 1..{N - 1} {{", depth, [*indices, index])
            elif choice < 0.5:
                self.inside(
                    f"if {self.element(indices)} > {self.element(indices)} {{", depth, indices
                )
            else:
                a, b = self.element(indices), self.element(indices)
                value = f"{a} {self.random.choice('+-*')} {b}"
                self.lines.append(f"{'  ' * depth}{self.element(indices, 'yz')} = {value}")

    def inside(self, opening: str, depth: int, indices: list[str]) -> None:
        self.lines.append("  " * depth + opening)
        self.block(depth + 1, indices)
        self.lines.append("  " * depth + "}")

    def element(self, indices: list[str], arrays: str = "xyz") -> str:
        array = self.random.choice(arrays)
        near = [f"{i}{offset}" for i in indices for offset in ("", " + 1", " - 1")]
        at = self.random.choice([*near, "2", "%z[0]"])  # which may be beyond the end
        if array == "y" and self.has_rows:
            at = f"%x[1], {self.random.randrange(COLUMNS)}"
        return f"%{array}[{at}]"

    def in_python(self) -> str:
        """The same statements as Python."""
        text = "\n".join(line for line in self.lines if line.strip() != "}").replace("%", "")
        text = re.sub(r"for (\w+) in 1\.\.(\d+) {", r"for \1 in range(1, \2):", text)
        return "if True:\n" + text.replace(" {", ":")


class Checked:
    """An array without negative indices."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def place(self, at: int | tuple[int, ...]) -> tuple[int, ...]:
        at = at if isinstance(at, tuple) else (at,)
        if not all(0 <= i < n for i, n in zip(at, self.array.shape, strict=True)):
            raise IndexError
        return at

    def __getitem__(self, at: int | tuple[int, ...]) -> np.int64:
        return self.array[self.place(at)]

    def __setitem__(self, at: int | tuple[int, ...], value: np.int64) -> None:
        self.array[self.place(at)] = value


def results(text: Text, x: np.ndarray) -> tuple[list[int], list[int]] | None:
    x, z = x.copy(), np.zeros(N, np.int64)
    y = x.reshape(ROWS, COLUMNS) if text.has_rows else x
    try:
        with np.errstate(over="ignore"):
            exec(text.in_python(), {"x": Checked(x), "y": Checked(y), "z": Checked(z)})
    except IndexError:
        return None
    return x.tolist(), z.tolist()


@pytest.mark.parametrize("target", [t for t in HERE if t != "reference"])
def test_kernels_with_a_view_of_their_argument(target: str) -> None:
    ran = 0
    for seed in range(300 if tiers.everything else 25):
        text = Text(seed)
        x = np.random.default_rng(seed).integers(0, 3, N)
        try:
            f = compiled(read_level("k.loops", text.kernel.encode()), "kernels", target)
        except cvm.Error:  # an element of %z is read before it is written, or an index is wrong
            continue
        ran += 1
        if (expected := results(text, x)) is None:
            with pytest.raises(cvm.CallError, match="is outside of axis"):
                f(x.copy())
            continue
        found = dict(zip((r.name for r in f.head.results), f(x.copy()), strict=True))
        got = found["y" if "y" in found else "x"].ravel().tolist(), found["z"].tolist()
        assert got == expected, text.kernel
    assert ran > 10
