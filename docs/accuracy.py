"""Writes docs/accuracy.md: the largest error of each transcendental function, and how many values
were tried.

python docs/accuracy.py [--seconds N] [FUNCTION ...]

Measures the functions named, or all, where docs/accuracy.json does not have them with the bits they
give now: of f16 and f32 all values there are, of f64 and of pairs of arguments many. After so many
seconds it stops, and goes on there the next time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from cvm.dialect.types.tensor_types import F16, F32, F64, ElementType  # noqa: E402
from cvm.lowering.math import FUNCTIONS  # noqa: E402
from exact_functions import LONG, NUMPY, in_mpmath, in_numpy  # noqa: E402
from ulps import LANES, PAIRS, against_f64, arguments, digest, numbered, run, ulps, worst  # noqa: E402

ELEMENTS = (F16, F32, F64)
CHUNK = 1 << 16  # arguments at a time
MILLION = 1 << 20
FOUND = ROOT / "docs" / "accuracy.json"
PAGE = ROOT / "docs" / "accuracy.md"
TEXT = """# Accuracy

cvm has its own transcendental functions, with the same expression on every target (`lowering/math`), so their results
have the same bits everywhere. The table gives the largest error found for each function, in units in the last place
of the exact result, and the argument at which it occurs. The bound is 2; a correctly rounded result has an error of
at most 0.5.

| function | f16 | f32 | at | f32 tried | f64 | at | f64 tried |
|---|---|---|---|---|---|---|---|
{rows}

"all" means the 2^32 values of f32 (and the 2^16 values of f16). f32 results are compared with f64, which has 29 bits more. f64
results are compared with mpmath at 100 bits; those after the plus sign are compared with glibc's long double, which has 11
bits more. f64 arguments and pairs of them are drawn from all magnitudes, and from near the points where a function overflows,
vanishes, crosses zero or changes its formula, such as multiples of pi / 2. f16 is computed in f32 and rounded.

`docs/accuracy.py` writes this page from `docs/accuracy.json`. `tests/property/test_accuracy.py` fails if a function gives different bits than
when it was measured, or if an argument with a larger error is found; `tests/property/test_transcendental_functions.py` tests the edge cases.
"""


def total(function: str, element: ElementType) -> int:
    """The number of arguments to test."""
    if element is F64:
        return MILLION + (16 * MILLION if _has_quick(function) else 0)
    return 128 * MILLION if function in PAIRS else 1 << element.bits


def _has_quick(function: str) -> bool:
    return LONG and function in NUMPY


def error(function: str, element: ElementType, start: int) -> tuple[float, tuple[float, ...]]:
    """The largest error of a chunk of arguments, and where."""
    if element is F64 or function in PAIRS:
        operands = arguments(function, element, CHUNK, seed=start // CHUNK)
        operands = tuple(o[: len(o) // LANES * LANES] for o in operands)
    else:
        operands = (numbered(element, start, start + CHUNK),)
    if element is not F64 and (function not in NUMPY or start // CHUNK % 16):
        return worst(against_f64(function, *operands), operands)
    exact = in_mpmath if element is F64 and start < MILLION else in_numpy
    return worst(ulps(run(function, *operands), exact(function, *operands)), operands)


def measure(
    function: str, element: ElementType, known: dict[str, Any], deadline: float
) -> dict[str, Any]:
    """Continue the measurement of a function until all arguments are tested or time is up."""
    bits = digest(function, element)
    found = (
        known if known.get("bits") == bits else {"bits": bits, "tried": 0, "ulps": 0.0, "at": []}
    )
    count = total(function, element)
    while found["tried"] < count and time.monotonic() < deadline:
        start = found["tried"]
        if not start // CHUNK % 64:
            print(
                f"\r{function} {element}: {start * 100 // count}%  ",
                end="\r",
                file=sys.stderr,
                flush=True,
            )
        here, at = error(function, element, start)
        if here > found["ulps"]:
            found |= {"ulps": round(here, 4), "at": list(at)}
        found["tried"] = start + CHUNK
    return found


def page(found: dict[str, Any]) -> str:
    def cells(function: str) -> list[str]:
        half, single, double = (found[function][str(e)] for e in ELEMENTS)
        return [
            *(
                function,
                f"{half['ulps']:.2f}",
                f"{single['ulps']:.2f}",
                _numbers(single["at"], np.float32),
            ),
            "all" if single["tried"] == 1 << 32 else f"{single['tried']:,}",
            *(f"{double['ulps']:.2f}", _numbers(double["at"], np.float64)),
            f"{min(MILLION, double['tried']):,}"
            + (f" + {double['tried'] - MILLION:,}" if double["tried"] > MILLION else ""),
        ]

    return TEXT.format(rows="\n".join(f"| {' | '.join(cells(f))} |" for f in FUNCTIONS))


def _numbers(numbers: list[float], type: type[np.floating[Any]]) -> str:
    return ", ".join(str(type(x)) for x in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description="How accurate the transcendental functions are.")
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="measure only these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    for function in options.functions or FUNCTIONS:
        for element in ELEMENTS:
            row = found.setdefault(function, {})
            row[str(element)] = measure(function, element, row.get(str(element), {}), deadline)
            FOUND.write_text(
                json.dumps({f: found[f] for f in FUNCTIONS if f in found}, indent=1) + "\n",
                encoding="utf-8",
            )
    if all(
        found.get(f, {}).get(str(e), {}).get("tried") == total(f, e)
        for f in FUNCTIONS
        for e in ELEMENTS
    ):
        PAGE.write_text(page(found), encoding="utf-8")
    else:
        print("docs/accuracy.md is left as it is: not all is measured yet")


if __name__ == "__main__":
    main()
