"""The calls and literals of `run:` lines, and text compared with `check:` lines, as LLVM's FileCheck does.

    check: T        T occurs after what was found before            check-next: T   on the line after that
    check-not: T    T does not occur before the next match          check-dag: T    with its neighbours, in any order

Blanks match any blanks. `{{...}}` is a regular expression, `[[x:...]]` one whose match is named x, `[[x]]` that text.
"""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cvm.dialect.ir.types import kind_of

from .filetest import Check, Failure

SHOWN = 12  # lines of text where a check fails
_PART = re.compile(r"\{\{(.+?)\}\}|\[\[([A-Za-z_]\w*)(?::(.+?))?\]\](?!\])")
_JSON = {"(": '{"":[', ")": "]}", "nan": "NaN", "-nan": "NaN", "inf": "Infinity", "": "0"}


class Call(NamedTuple):
    """`@function(arguments) relation results`: `==` exactly, `~=` within 2.4e-7, or `error: code: message`."""

    function: str
    arguments: list[Any]
    relation: str
    results: list[Any]
    error: str = ""


def read_call(text: str) -> Call:
    """A `run:` line, without its `// run:`."""
    if (
        head := re.fullmatch(
            r"\s*@([\w.$-]+)\s*\((.*)\)\s*(==|~=|error:)\s*(.*?)\s*", text, re.DOTALL
        )
    ) is None:
        raise ValueError(f"expected `@function(arguments) == results`, got {text!r}")
    function, arguments, relation, results = head.groups()
    if relation == "error:":
        return Call(function, _values(arguments), relation, [], results)
    return Call(function, _values(arguments), relation, _values(results))


def _values(text: str) -> list[Any]:
    """Values between commas: numbers and words, lists in brackets, and complex numbers, pairs in parentheses, by way of JSON."""
    written = re.sub(r"-?nan|inf|[()]|(?<=\d\.)(?!\d)", lambda m: _JSON[m[0]], text)
    try:
        return json.loads(f"[{written}]", object_hook=lambda pair: complex(*pair[""]))
    except json.JSONDecodeError:
        raise ValueError(
            f"expected numbers, true, false, nan or inf between commas, got {text!r}"
        ) from None


def as_array(value: Any, dtype: np.dtype, shape: tuple[Any, ...]) -> np.ndarray:
    """A literal as an array of this type; `[]` takes the shape where that holds no elements."""
    if (exact := np.array(value, object)).size == 0 and any(
        n == 0 for n in shape if isinstance(n, int)
    ):
        return np.empty([n if isinstance(n, int) else 0 for n in shape], dtype)
    with np.errstate(all="ignore"):
        array = exact.astype(dtype)
    if dtype.kind in "iub" and array.astype(object).tolist() != exact.tolist():
        raise ValueError(f"{value} does not fit {dtype}")
    return array


def difference(actual: np.ndarray, expected: np.ndarray, relation: str) -> str | None:
    """The first difference of two arrays of one type, in words; NaN equals NaN, and 0.0 differs from -0.0."""
    if actual.shape != expected.shape:
        return f"the shape is {actual.shape}, not {expected.shape}"
    if relation == "~=":
        with np.errstate(all="ignore"):
            same = np.isclose(actual, expected, rtol=2.4e-7, atol=0, equal_nan=True)
    elif kind_of(actual.dtype) in "fc":
        same = ((actual == expected) & (_signs(actual) == _signs(expected))) | (
            np.isnan(actual) & np.isnan(expected)
        )
    else:
        same = actual == expected
    if np.all(same):
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"at {list(at)} it is {actual[at].item()!r}, not {expected[at].item()!r}; all of it is {actual.tolist()}"


def _signs(array: Any) -> np.ndarray:
    return np.signbit(array.real) + 2 * np.signbit(array.imag)


def check_text(text: str, checks: Sequence[Check], path: Path) -> None:
    captured: dict[str, str] = {}
    forbidden: list[Check] = []
    at = 0
    for kind, group in groupby(checks, lambda c: c.kind):
        if kind == "check-not":
            forbidden += group
            continue
        for step in [[*group]] if kind == "check-dag" else [[c] for c in group]:
            spans: list[tuple[int, int]] = []
            for check in step:
                spans.append(_search(text, check, at, captured, path, spans))
            first = min(start for start, _ in spans)
            if kind == "check-next" and text.count("\n", at, first) != 1:
                raise _failed("is not on the next line", step[0], text, at, path)
            _absent(text[:first], forbidden, at, captured, path)
            forbidden, at = [], max(end for _, end in spans)
    _absent(text, forbidden, at, captured, path)


def _search(
    text: str,
    check: Check,
    at: int,
    captured: dict[str, str],
    path: Path,
    spans: Sequence[tuple[int, int]],
) -> tuple[int, int]:
    """The first match from a position on that lies apart from those taken; its captures are taken note of."""
    for match in _pattern(check, captured, path).finditer(text, at):
        if all(match.end() <= start or match.start() >= end for start, end in spans):
            captured.update(match.groupdict())
            return match.span()
    raise _failed("does not follow in", check, text, at, path)


def _absent(
    text: str, forbidden: Sequence[Check], at: int, captured: dict[str, str], path: Path
) -> None:
    for check in forbidden:
        if (match := _pattern(check, captured, path).search(text, at)) is not None:
            raise _failed("stands in", check, text, text.rfind("\n", 0, match.start()) + 1, path)


def _pattern(check: Check, captured: dict[str, str], path: Path) -> re.Pattern[str]:
    parts, at, own = [], 0, set[str]()
    for m in _PART.finditer(check.pattern):
        parts.append(_literal(check.pattern[at : m.start()]))
        expression, name, inner = m.groups()
        if expression is not None:
            parts.append(f"(?:{expression})")
        elif inner is not None:
            parts.append(f"(?P<{name}>{inner})")
            own.add(name)
        elif name in own:
            parts.append(f"(?P={name})")
        elif name in captured:
            parts.append(re.escape(captured[name]))
        else:
            raise Failure(f"{path}:{check.line}: [[{name}]] has not been captured before")
        at = m.end()
    parts.append(_literal(check.pattern[at:]))
    try:
        return re.compile("".join(parts))
    except re.error as e:
        raise Failure(
            f"{path}:{check.line}: {check.pattern!r} is no regular expression: {e}"
        ) from None


def _literal(text: str) -> str:
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))


def _failed(problem: str, check: Check, text: str, at: int, path: Path) -> Failure:
    lines = text[at:].splitlines()
    shown = "\n".join(lines[:SHOWN] + ["..."] * (len(lines) > SHOWN))
    return Failure(f"{path}:{check.line}: {check.kind}: {check.pattern!r} {problem}\n{shown}")
