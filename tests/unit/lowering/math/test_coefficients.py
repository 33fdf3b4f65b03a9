"""Error bounds of lowering/math's tables: proved as claimed, and no longer where a digit that
matters changes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiers

mpmath = pytest.importorskip("mpmath")
sys.path.append(str(Path(__file__).parents[4] / "docs"))

import coefficients  # noqa: E402
from coefficients import TABLES  # noqa: E402

SLOW = ("ERF_CHANGE", "ERFC_CHANGE", "ERFCX", "ERFCX_PIECES")
QUICK = [n for n in TABLES if n not in SLOW]
CHOSEN = list(TABLES) if tiers.everything else tiers.some(QUICK, 12)


@pytest.mark.parametrize("name", CHOSEN)
def test_bounds_are_proved(name: str) -> None:
    table = TABLES[name]
    bits = table.bits()
    assert table.claimed <= bits < table.claimed + 0.1
    assert f"2^-{table.claimed}" in inspect.getsource(table.module), (
        "the comment tells another bound"
    )
    best = table.best()
    assert best is None or bits <= best + 0.01


def test_every_table_has_a_bound() -> None:
    """The tuples of floats of lowering/math: tables here, or among the constants."""
    constants = {
        *(
            [
                "HALF_PI",
                "QUARTER_TURN",
                "LN2",
                "SHORT_LN2",
                "HALF_PI_FACTORS",
                "RANGE",
                "RANGE2",
                "FACTOR",
                "START",
                "REST",
            ]
        ),
        *(["ERFC_CENTERS", "ERFCX_CENTERS", "ERFCX_START"]),
    }
    proved = {n.split()[0] for n in TABLES}
    for module in {t.module for t in TABLES.values()} | {
        coefficients.reduction,
        coefficients.primitives,
    }:
        for name, value in vars(module).items():
            value = next(iter(value.values())) if isinstance(value, dict) and value else value
            if name.isupper() and isinstance(value, tuple) and isinstance(value[0], (tuple, float)):
                assert name in proved | constants, name


def test_constants() -> None:
    with mpmath.workdps(coefficients.DIGITS):
        assert [name for name, holds in coefficients.constants() if not holds] == []


@pytest.mark.slow
def test_lookup_tables_are_the_nearest_numbers() -> None:
    with mpmath.workdps(coefficients.DIGITS):
        assert {count for _, count in coefficients.lookup_rows()} == {0}


def held(name: str) -> tuple[Any, Any]:
    """The tables of one name by element type, or a module's variables, and the key there."""
    attribute, _, element = name.partition(" ")
    tables = getattr(TABLES[name].module, attribute)
    if not element:
        return vars(TABLES[name].module), attribute
    tables = tables if isinstance(tables, dict) else tables.tail
    return tables, next(t for t in tables if str(t) == element)


def flat(numbers: Any) -> Iterator[float]:
    for n in numbers:
        yield from flat(n) if isinstance(n, tuple) else (n,)


def shaped(like: Any, numbers: Iterator[float]) -> Any:
    return tuple(shaped(n, numbers) if isinstance(n, tuple) else next(numbers) for n in like)


SINGLE = [
    n
    for n in QUICK
    if "PIECES" not in n and "TAIL" not in n and not (n.endswith("f64") and "AL" in n)
]


@pytest.mark.parametrize("name", tiers.some(SINGLE, 3))
def test_every_digit_that_matters_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change each number by as much as moves the function by three times the bound."""
    table, (tables, key) = TABLES[name], held(name)
    numbers = tables[key]

    def first_with(place: int, factor: float) -> Any:
        parts = [*flat(numbers)]
        parts[place] *= factor
        monkeypatch.setitem(tables, key, shaped(numbers, iter(parts)))
        with mpmath.workdps(coefficients.DIGITS):
            return next(iter(table.differences()))

    for place in range(len([*flat(numbers)])):
        before, after = (first_with(place, f) for f in (1, 1 + 2.0**-10))
        with mpmath.workdps(coefficients.DIGITS):
            moved = coefficients.less(after.error, before.error)
            most = max(
                abs(coefficients.value_at(moved, x) / coefficients.value_at(before.scale, x))
                for x in (before.low, before.high)
            )
        step = max(
            float(2.0**-10 * 3 * 2.0**-table.claimed / most),
            2.0**-22 if "f32" in name else 2.0**-51,
        )
        first_with(place, 1 + step * (-1) ** place)
        assert table._replace(cells=1 << 10).bits() < table.claimed - 0.5, place
