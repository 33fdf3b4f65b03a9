"""Writes docs/accuracy.md: the largest error found of each transcendental function.

python docs/accuracy.py [--exhaustive] [FUNCTION ...]

Of f32, every 997th of all values, and of f64 a million; --exhaustive takes every f32, minutes for each function, and says
how far it is. With names of functions, only those are measured, and printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cvm.dialect.types import F32, F64, ElementType  # noqa: E402
from cvm.lowering.polynomials import FUNCTIONS  # noqa: E402
from ulps import SLOW, arguments, every, worst  # noqa: E402

EXHAUSTIVE = "--exhaustive" in sys.argv
CHUNK = 1 << 22  # values at a time
NAMES = [name for name in sys.argv[1:] if name != "--exhaustive"]
# where --exhaustive found the largest error of f32; tried again every time
WORST = {"tan": 70625.3594, "atan": 0.501788199, "tanh": 0.556310594, "atanh": 0.461329341}
PAGE = """# Accuracy

The transcendental functions are our own, the same expression on every target (`lowering/polynomials`), so their results
are the same bits everywhere. This is the largest error found of each, in units in the last place of the exact result,
whose bound is 2; {f32}. Correct rounding is 0.5.
Of {worst} the figure for f32 is the largest of all 2^32 values.
f16 is computed in f32 and rounded: its error is 0.5, or hardly more.

| function | f32 | at | f64 | at |
|---|---|---|---|---|
{rows}

Written by `docs/accuracy.py`; `tests/test_polynomials.py` holds the bound and the values at the edges.
"""


def batches(function: str, element: ElementType) -> Iterator[tuple[np.ndarray, ...]]:
    if function in SLOW:
        yield arguments(function, element, 20_000)
        return
    yield arguments(function, element, 1_000_000)
    if element is F32 and function in WORST:
        yield (np.array([WORST[function]], np.float32),)
    if element is F32 and function not in ("pow", "atan2"):
        for n, x in enumerate(every(element, 1 if EXHAUSTIVE else 997, CHUNK)):
            if EXHAUSTIVE:
                print(f"\r{function}: {n * 100 * CHUNK >> 32}%", end="\r", file=sys.stderr, flush=True)
            x[np.isnan(x)] = np.nan
            yield (x,)


def row(function: str) -> str:
    cells = [function]
    for element in (F32, F64):
        error, where, _ = worst(function, batches(function, element))
        cells += [f"{error:.2f}", ", ".join(f"{x:.9g}" if element is F32 else repr(x) for x in where)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if NAMES:
        for function in NAMES:
            print(row(function), flush=True)
    else:
        f32 = "all values of f32 were tried" if EXHAUSTIVE else "every 997th of all values of f32 and a million of f64"
        page = PAGE.format(f32=f32, worst=", ".join(WORST), rows="\n".join(map(row, FUNCTIONS)))
        (ROOT / "docs" / "accuracy.md").write_text(page, encoding="utf-8")
