"""Random kernels of statements on slices, whose arrays overlap, against the Python function on NumPy
arrays.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cvm

# slices of one length each, of arrays of one size
FAMILIES = (
    (":", "::-1", ":len(a)", "0:"),
    ("1:", ":-1", "-2::-1", ":0:-1", "k - 1:", ":len(a) - 1"),
    ("1:-1", ":-2", "2:", "k:", "-2:0:-1", ":-k", "-3::-1"),
    ("::2",),
    ("1:3", "2:4", "0:2", "-2:", ":2"),
)
OF_LOOPS = (
    (":{0}", "-{0}:", ":{0}"),
    ("{0}:", "{0}:len(a)", ":-{0}"),
    ("{0} + 1:", "{0}:-1"),
)


class Writer:
    """One random kernel: its lines, and the names of vectors, matrices and loops in scope."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lines: list[str] = ["def kernel(a, b, M, N, c, k):"]
        self.vectors, self.matrices, self.loops = ["a", "b"], ["M", "N"], list[str]()
        self.family: tuple[str, ...] = FAMILIES[0]
        self.made: list[str] = []  # names of results, which get other values later

    def text(self) -> str:
        for _ in range(self.chance.randint(2, 6)):
            self.statement(1)
        self.slices()
        some = self.any(*self.vectors, *self.matrices)
        returned = self.any(some, f"{some}[{self.slice()}]", f"{some}.T", self.vector(), "None")
        return "\n".join([*self.lines, f"    return {returned}", ""])

    def any(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def slices(self) -> None:
        """The slices of a statement have one length."""
        more = [tuple(s.format(i) for s in f) for i in self.loops for f in OF_LOOPS]
        self.family = self.chance.choice([*FAMILIES, *more])

    def slice(self) -> str:
        if self.chance.random() < 0.04:
            ends = ["", "1", "-2", "k", "0", *self.loops]
            return f"{self.any(*ends)}:{self.any(*ends)}{self.any('', ':2', ':-1', ':3')}"
        return self.any(*self.family)

    def index(self) -> str:
        return self.any("0", "1", "-1", "k", *self.loops, *self.loops)

    def row(self) -> str:
        m, s, i = self.any(*self.matrices), self.slice(), self.index()
        plain = f"{self.any(*self.vectors)}[{s}]"
        return self.any(plain, plain, f"{m}[{i}, {s}]", f"{m}[{s}, {i}]", f"{m}.T[{i}, {s}]")

    def block(self) -> str:
        part = f"[{self.slice()}, {self.slice()}]"
        return self.any(*self.matrices) + self.any(part, part, f".T{part}")

    def number(self) -> str:
        v, m = self.any(*self.vectors), self.any(*self.matrices)
        element = self.any(f"{v}[{self.index()}]", f"{m}[{self.index()}, {self.index()}]")
        return self.any("c", "2", "3", element, f"np.sum({self.row()})", f"len({v})")

    def vector(self, depth: int = 0) -> str:
        r = self.chance.random()
        if depth > 2 or r < 0.3:
            return self.any(self.row(), self.row(), f"np.flip({self.row()})")
        x, y, n = self.vector(depth + 1), self.vector(depth + 1), self.number()
        if r < 0.75:
            return f"({x} {self.any('+', '-', '*')} {self.any(y, y, n)})"
        wide = self.matrix(depth + 1)
        calls = (f"np.where({x} > {n}, {y}, {n})", f"np.maximum({x}, {y})", f"-abs({x})")
        return self.any(*calls, f"np.sum({wide}, axis={self.any('0', '1')})", f"({wide} @ {x})")

    def matrix(self, depth: int = 0) -> str:
        r = self.chance.random()
        if depth > 2 or r < 0.4:
            return self.block()
        x, y = self.matrix(depth + 1), self.vector(depth + 1)
        if r < 0.8:
            other = self.any(self.matrix(depth + 1), y, self.number(), f"{y}[:, None]")
            return f"({x} {self.any('+', '-', '*')} {other})"
        largest = f"np.max({x}, axis={self.any('0', '1')}, keepdims=True)"
        return self.any(f"np.outer({y}, {y})", f"({self.block()} @ {x})", largest)

    def statement(self, depth: int) -> None:
        r = self.chance.random()
        self.slices()
        tab = "    " * depth
        if depth < 3 and r < 0.2:
            i = "ij"[depth - 1]
            ends = self.any("3", "len(a)", "1, len(b)", "4, 0, -1", "M.shape[0]")
            head = self.any(f"for {i} in range({ends}):", f"if {self.number()} > 1:")
            self.lines.append(tab + head)
            looping = head.startswith("for")
            self.loops += [i] * looping
            for _ in range(self.chance.randint(1, 3)):
                self.statement(depth + 1)
            del self.loops[len(self.loops) - looping :]
            return
        v, n = self.any(*self.vectors), self.number()
        op = self.any("=", "=", "+=", "-=", "*=")
        value = self.any(self.vector(), self.vector(), n)
        if r < 0.5:
            line = f"{self.row()} {op} {value}"
        elif r < 0.75:
            line = f"{self.block()} {op} {self.any(self.matrix(), self.matrix(), value)}"
        elif r < 0.85:
            line = f"{v}[{v} > {n}] {self.any(f'{op} {n}', f'= {v}[{v} > {n}] * 2')}"
        elif r < 0.9 and depth == 1:
            self.family = FAMILIES[0]
            line = f"t{len(self.lines)} = {self.vector()}"
            self.vectors.append(f"t{len(self.lines)}")
            self.made.append(self.vectors[-1])
        elif r < 0.93 and self.made:
            self.family = FAMILIES[0]
            line = f"{self.any(*self.made)} = {self.vector()}"
        elif r < 0.96:
            line = f"{v}[{self.index()}] = {n}"
        else:
            line = f"{self.row()}, {self.row()} = {self.vector()}, {self.vector()}"
        self.lines.append(tab + line)


def arrays(chance: random.Random, floats: bool) -> tuple[Any, ...]:
    """Arguments whose arrays overlap, lie apart by strides, or neither."""
    n, kind = chance.choice([2, 3, 4, 5, 5, 6, 7]), chance.randrange(4)
    rng = np.random.default_rng(chance.randrange(1 << 30))
    big = rng.integers(-4, 5, size=(4 * n, 2 * n)).astype(np.float64 if floats else np.int64)
    if kind == 0:
        given = big[0, :n], big[1, ::2], big[2 : n + 2, :n], big[n : 2 * n, 1 : n + 1].T
    else:
        given = tuple(p.copy() for p in (big[0, :n], big[1, :n], big[:n, :n], big[n : 2 * n, :n]))
    return (*given, 2.0 if floats else 2, 2)


def loaded(path: Path, text: str) -> Any:
    """The module of a text, which is written to the file that its functions are read from."""
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(function: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Exception | None]:
    """The result of a Python function, or the error that it raises."""
    try:
        with np.errstate(all="ignore"):
            return function(*given), None
    except (IndexError, ValueError, TypeError) as e:
        return None, e


def run(seed: str, folder: Path) -> bool:
    """Compare one random kernel with the Python function; whether both accept it."""
    chance = random.Random(seed)
    text = Writer(chance).text()
    module = loaded(folder / "random_statements.py", f"import numpy as np\n\n{text}")
    floats, state = chance.random() < 0.6, chance.random()
    one, other = (arrays(random.Random(state), floats) for _ in range(2))
    wanted, failed = outcome(module.kernel, other)
    try:
        found = cvm.kernel(module.kernel)(*one)
    except cvm.TraceError:
        return False
    except cvm.Error as e:
        assert failed is not None and isinstance(e, type(failed)), text
        return False
    assert failed is None, text
    for a, b in zip((found, *one), (wanted, *other), strict=True):
        check(a, b, text)
    return True


def check(found: Any, wanted: Any, text: str) -> None:
    """Equal integers; floats within a sum's rounding, as NumPy adds in an order of its own."""
    if wanted is None:
        assert found is None, text
        return
    a, b = np.asarray(found), np.asarray(wanted)
    assert a.dtype == b.dtype and a.shape == b.shape, text
    finite = np.isfinite(b)
    size = float(np.max(np.abs(b[finite]), initial=1.0))
    close = np.allclose(a, b, rtol=1e-9, atol=1e-9 * size, equal_nan=True)
    assert np.array_equal(a, b) if a.dtype.kind != "f" else close, text
