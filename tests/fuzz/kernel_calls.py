"""Random kernels that call kernels, on arrays that overlap, against the same Python functions without
`@cvm.kernel`.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cvm

from .array_statements import loaded, outcome

Names = tuple[list[str], list[str]]  # of arrays and of numbers in scope


class Writer:
    """A random module: some functions that call those before them, and `main`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.functions: list[tuple[str, list[str], str]] = []  # names, parameters, and results

    def any(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def text(self) -> str:
        lines = ["import numpy as np", "", "import cvm", ""]
        for n in range(self.chance.randint(1, 3)):
            kind = self.any("number", "number", "array", "none")
            parameters = self.chance.choice([["a", "k"], ["a", "b", "k"], ["a", "k", "m"]])
            arrays = [p for p in parameters if p in "ab"]
            names = arrays, [p for p in parameters if p not in "ab"]
            body = ["    s = 0.0", "    t = k"]
            if kind == "array":
                body.append(self.any("    c = np.zeros(len(a))", "    c = a * 2.0"))
                arrays.append("c")
            names[1].extend("st")
            body += self.block(names, kind, 1, self.chance.randint(1, 4))
            body.append("    " + self.returned(names, kind))
            lines += ["@cvm.kernel", f"def f{n}({', '.join(parameters)}):", *body, "", ""]
            self.functions.append((f"f{n}", parameters, kind))
        names = ["a", "b"], ["k", "s", "t"]
        body = self.block(names, "pair", 1, self.chance.randint(2, 5))
        begin = ["@cvm.kernel", "def main(a, b, k):", "    s = 0.0", "    t = 1.0"]
        return "\n".join([*lines, *begin, *body, "    return s, t", ""])

    def element(self, names: Names) -> str:
        loops = [n for n in names[1] if n in "ij"]
        return f"{self.any(*names[0])}[{self.any('0', '-1', '1', 'int(s) % 5', *loops * 2)}]"

    def condition(self, names: Names, depth: int = 0) -> str:
        compared = f"{self.number(names, depth + 1)} {self.any('<', '>', '==')} 1"
        other = f"({compared} {self.any('and', 'or')} {self.number(names, depth + 1)} > 0)"
        return self.any(compared, compared, other)

    def number(self, names: Names, depth: int = 0) -> str:
        r = self.chance.random()
        if depth > 2 or r < 0.35:
            return self.any("1", "2", *names[1], self.element(names), self.element(names))
        x, y = self.number(names, depth + 1), self.number(names, depth + 1)
        if r < 0.7:
            return f"({x} {self.any('+', '-', '*')} {y})"
        if r < 0.75:
            return f"({x} if {self.condition(names, depth + 1)} else {y})"
        return self.call(names, "number", depth) or f"min({x}, {y})"

    def array(self, names: Names, depth: int = 0) -> str:
        a, r = self.any(*names[0]), self.chance.random()
        if r < 0.5 or depth > 1:
            return a
        if r < 0.7:
            return self.any(f"{a}[1:]", f"{a}[::-1]", f"({a} + {self.number(names, depth + 1)})")
        return self.call(names, "array", depth) or a

    def call(self, names: Names, kind: str, depth: int = 0) -> str:
        """A call of a function with results of a kind; empty if there is none."""
        if not (found := [f for f in self.functions if kind in (f[2], "")]):
            return ""
        name, parameters, _ = self.chance.choice(found)
        given = [
            self.array(names, depth + 2) if p in "ab" else self.number(names, depth + 2)
            for p in parameters
        ]
        if self.chance.random() < 0.2:
            given[-1] = f"{parameters[-1]}={given[-1]}"
        return f"{name}({', '.join(given)})"

    def returned(self, names: Names, kind: str) -> str:
        number = self.number(names)
        values = {"number": number, "array": "c", "none": "", "pair": f"s, {number}"}
        return f"return {values[kind]}".strip()

    def block(
        self, names: Names, kind: str, depth: int, count: int, loops: bool = False
    ) -> list[str]:
        lines: list[str] = []
        tab = "    " * depth
        for _ in range(count):
            r = self.chance.random()
            inner = self.chance.randint(1, 2)
            if r < 0.2:
                op = self.any("=", "+=", "-=")
                lines.append(f"{tab}{self.element(names)} {op} {self.number(names)}")
            elif r < 0.4:
                lines.append(
                    f"{tab}{self.any('s', 't')} {self.any('=', '+=')} {self.number(names)}"
                )
            elif r < 0.52 and depth < 3:
                i = "?ij"[depth]
                ends = self.any("2", "len(a) - 1", "1, 3", "2, 0, -1")
                lines.append(f"{tab}for {i} in range({ends}):")
                lines += self.block((names[0], [*names[1], i]), kind, depth + 1, inner, True)
                if self.chance.random() < 0.2:
                    lines += [f"{tab}else:", *self.block(names, kind, depth + 1, 1, loops)]
            elif r < 0.7 and depth < 4:
                lines.append(f"{tab}if {self.condition(names)}:")
                lines += self.block(names, kind, depth + 1, inner, loops)
                if self.chance.random() < 0.4:
                    lines += [f"{tab}else:", *self.block(names, kind, depth + 1, 1, loops)]
            elif r < 0.8 and depth > 1:
                return [*lines, tab + self.returned(names, kind)]
            elif r < 0.84 and loops:
                return [*lines, tab + self.any("break", "continue")]
            elif r < 0.95:
                lines.append(tab + (self.call(names, "") or "s += 1"))
            else:
                lines.append(f"{tab}s, t = {self.number(names)}, {self.number(names)}")
        return lines or [f"{tab}pass"]


def run(seed: str, folder: Path, target: str | None = None) -> bool:
    """Compare one random module with itself in Python; whether both accept it. With a target the
    kernel is called in a function that is compiled for it.
    """
    chance = random.Random(seed)
    text = Writer(chance).text()
    kernels, python = (
        loaded(folder / f"{name}.py", t)
        for name, t in (("kernels", text), ("python", text.replace("@cvm.kernel\n", "")))
    )
    kind = 0 if target else chance.randrange(3)
    one, other = _arrays(kind), _arrays(kind)
    wanted, failed = outcome(python.main, other)
    try:
        if target:
            a, b, *found = cvm.compile(partial(traced, kernels.main), target=target)(*one)
            one = a, b, one[2]
        else:
            found = kernels.main(*one)
    except cvm.TraceError:
        return False
    except cvm.Error as e:
        assert failed is not None and isinstance(e, type(failed)), text
        if target:  # whose arguments stay as they are
            return True
        found = None
    else:
        assert failed is None, text
    values = zip((*one, *(found or ())), (*other, *(wanted or ())), strict=True)
    for a, b in values:
        assert np.asarray(a, float).tobytes() == np.asarray(b, float).tobytes(), text
    return True


def traced(kernel: Any, a: Any, b: Any, k: Any) -> tuple[Any, ...]:
    """The arrays that a kernel updates, and what it returns."""
    a, b = a.copy(), b.copy()
    return a, b, *kernel(a, b, k)


def _arrays(kind: int) -> tuple[Any, ...]:
    """Arguments that lie apart, overlap, or lie apart by strides."""
    x = np.arange(12.0) - 3
    if kind == 0:
        return x[:4].copy(), x[5:9].copy(), 2
    return (x[:4], x[2:6], 2) if kind == 1 else (x[:8:2], x[3:11:2], 1)
