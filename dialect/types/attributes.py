"""Attribute values: the values that an annotation admits, and their text."""

import typing
from types import NoneType, UnionType
from typing import Any

from .tensor_types import ElementType


class Symbol(str):
    """The name of a function or graph as an attribute's value, written `@name`."""

    __slots__ = ()


# the classes of values that an annotation admits; true and false are no numbers
ACCEPTED: dict[Any, Any] = {
    bool: bool,
    str: str,
    int: int,
    float: (int, float),
    NoneType: NoneType,
    None: NoneType,
}


def conform(value: Any, annotation: Any) -> Any:
    """The value converted to the annotation's type (an int to a float, a list to a tuple), or a
    ValueError with the type.
    """
    if annotation in ACCEPTED:
        if isinstance(value, ACCEPTED[annotation]) and (
            annotation is bool or not isinstance(value, bool)
        ):
            return float(value) if annotation is float else value
    elif annotation is Any or (isinstance(annotation, type) and isinstance(value, annotation)):
        return value
    elif (origin := typing.get_origin(annotation)) is tuple:
        parts = typing.get_args(annotation)
        if isinstance(value, (list, tuple)):
            wanted = (
                [parts[0]] * len(value) if len(parts) == 2 and parts[1] is Ellipsis else list(parts)
            )
            if len(wanted) == len(value):
                try:
                    return tuple(conform(v, w) for v, w in zip(value, wanted, strict=True))
                except ValueError:
                    pass
    elif origin is typing.Union or origin is UnionType:
        for choice in typing.get_args(annotation):
            try:
                return conform(value, choice)
            except ValueError:
                continue
    elif origin is dict:
        if isinstance(value, dict):
            key, item = typing.get_args(annotation)
            return {conform(k, key): conform(v, item) for k, v in value.items()}
    elif origin is typing.Literal and value in typing.get_args(annotation):
        return value
    raise ValueError(f"expected {describe(annotation)}, got {attribute_text(value)}")


_NAMES: dict[object, str] = {
    int: "an integer",
    bool: "true or false",
    float: "a number",
    str: "a string",
    type(None): "none",
    ElementType: "an element type",
}


def describe(annotation: object) -> str:
    """The attribute values of an annotation, in words."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        count = "" if parts[-1] is Ellipsis else f"{len(parts)} "
        return f"an array of {count}{_plural(parts[0])}"
    if origin is typing.Union or origin is UnionType:
        return " or ".join(describe(p) for p in parts)
    if origin is typing.Literal:
        return ("one of " if len(parts) > 1 else "") + ", ".join(attribute_text(p) for p in parts)
    if origin is dict:
        return "a dictionary"
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _plural(annotation: object) -> str:
    """The attribute values of an annotation, in words, as a plural."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is UnionType:
        return " or ".join(map(_plural, parts))
    one = describe(annotation).removeprefix("an ").removeprefix("a ")
    if origin is tuple:
        return one.replace("array", "arrays", 1)
    return one if annotation is bool or origin is typing.Literal else one + "s"


def attribute_text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Symbol):
        return f"@{value}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {attribute_text(v)}" for k, v in value.items()) + "}"
    return str(value)


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    """A string literal of the language."""
    return (
        '"'
        + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in text)
        + '"'
    )
