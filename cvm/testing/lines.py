"""The calls and literals of `run:` lines."""

import json
import re
from typing import Any, NamedTuple

import numpy as np

from cvm.dialect.types.tensor_types import kind_of

_JSON = {"(": '{"":[', ")": "]}", "nan": "NaN", "-nan": "NaN", "inf": "Infinity", "": "0"}


class Call(NamedTuple):
    """`@function(arguments) relation results`: `==` exactly, `~=` within 2.4e-7, or `error: code:
    message`.
    """

    function: str
    arguments: list[Any]
    relation: str
    results: list[Any]
    error: str = ""


def read_call(text: str) -> Call:
    """A `run:` line, without its `// run:`."""
    if (
        head := re.fullmatch(r"\s*@([\w.$-]+)\s*\((.*)\)\s*(==|~=|error:)(.*)", text, re.DOTALL)
    ) is None:
        raise ValueError(f"expected `@function(arguments) == results`, got {text!r}")
    function, arguments, relation, results = head[1], head[2], head[3], head[4].strip()
    if relation == "error:":
        return Call(function, _values(arguments), relation, [], results)
    return Call(function, _values(arguments), relation, _values(results))


def _values(text: str) -> list[Any]:
    """Values between commas: numbers and words, lists in brackets, and complex numbers, pairs in
    parentheses, by way of JSON.
    """
    written = re.sub(r"-?nan|inf|[()]|(?<=\d\.)(?!\d)", lambda m: _JSON[m[0]], text)
    try:
        return json.loads(f"[{written}]", object_hook=lambda pair: complex(*pair[""]))
    except json.JSONDecodeError:
        raise ValueError(
            f"expected numbers, true, false, nan or inf between commas, got {text!r}"
        ) from None


def as_array(value: object, dtype: np.dtype, shape: tuple[object, ...]) -> np.ndarray:
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
    """The first difference of two arrays of one type, in words; NaN equals NaN, and 0.0 differs
    from -0.0.
    """
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
    return (
        f"at {list(at)} it is {actual[at].item()!r}, not {expected[at].item()!r}; all of it is "
        f"{actual.tolist()}"
    )


def _signs(array: Any) -> np.ndarray:
    return np.signbit(array.real) + 2 * np.signbit(array.imag)
