"""Steps of a schedule: a name, options, and the function that changes a kernel.

    split{loop=j by=32 into=jo,ji}

Options are names, whole numbers, `true` or `false`, and lists of names or numbers with commas.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TypeAlias, get_args, get_type_hints

from ...dialect.kernel_ir.loops import Block, For, Kernel, blocks
from ...dialect.support.suggest import did_you_mean

Value: TypeAlias = "str | int | bool | tuple[str, ...] | tuple[int, ...]"
NAME = re.compile(r"[A-Za-z_$][\w$.]*(#\d{1,9})?", re.ASCII)
MAX_COPIES = 64  # of a body, by unrolled loops within each other; bounds the time of compilation
NUMBER = re.compile(r"-?[0-9]{1,18}")


class Refused(Exception):
    """A step that is not legal, or whose options make no sense; the message says why."""


@dataclass(frozen=True)
class Step:
    """A step with its options, those without a value left out."""

    name: str
    options: Mapping[str, Value]

    def __str__(self) -> str:
        options = " ".join(f"{name}={_text(value)}" for name, value in self.options.items())
        return f"{self.name}{{{options}}}"

    def apply(self, kernel: Kernel) -> Kernel:
        """The kernel after the step; raises Refused."""
        made = STEPS[self.name](kernel, **self.options)
        copies = _copies(made.body)
        if copies > max(MAX_COPIES, _copies(kernel.body)):
            raise Refused(
                f"{self.name}: unrolling repeats a body {copies} times, more than {MAX_COPIES}"
            )
        return made


def _copies(block: Block) -> int:
    """The most copies of a body that unrolled loops within each other make."""
    return max(
        (
            (s.length.constant if isinstance(s, For) and s.kind == "unrolled" else 1)
            * max(map(_copies, blocks(s)), default=1)
            for s in block
        ),
        default=1,
    )


STEPS: dict[str, Callable[..., Kernel]] = {}


def step(function: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """Decorate a function of a kernel and options as the step of its name."""
    STEPS[function.__name__] = function
    return function


def options_of(name: str) -> dict[str, Parameter]:
    """The options of a step, with their types and default values."""
    function = STEPS[name]
    hints = get_type_hints(function)
    _, *parameters = signature(function).parameters.values()
    return {p.name: p.replace(annotation=hints[p.name]) for p in parameters}


def read_step(text: str) -> Step:
    """The step that a text names; raises Refused."""
    match = re.fullmatch(r"\s*(\w+)\s*(?:\{([^{}]*)\})?\s*", text, re.ASCII)
    if match is None:
        raise Refused(f"expected a step such as split{{loop=i by=8}}, got {text.strip()!r}")
    items = (item.partition("=") for item in (match[2] or "").split())
    return made_step(match[1], {name: value for name, _, value in items})


def made_step(name: str, given: Mapping[str, object]) -> Step:
    """A step of options as text or as Python values; raises Refused."""
    if name not in STEPS:
        raise Refused(f"there is no step {name}{did_you_mean(name, STEPS)}")
    known = options_of(name)
    options: dict[str, Value] = {}
    for option, value in given.items():
        if option not in known:
            near = did_you_mean(option, known)
            raise Refused(f"{name} has no option {option}{near}; its options: {', '.join(known)}")
        options[option] = _read(f"{name}{{{option}}}", known[option].annotation, value)
    if lacking := [
        n for n, p in known.items() if p.default is Parameter.empty and n not in options
    ]:
        raise Refused(f"{name} needs the option {lacking[0]}")
    return Step(name, {n: options[n] for n in known if n in options})


def _read(what: str, type: object, value: object) -> Value:
    """A value of an option's type."""
    if (inner := get_args(type)) and inner[-1] is not Ellipsis:  # a type or None
        return _read(what, next(t for t in inner if t is not None.__class__), value)
    if inner:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise Refused(f"{what}: expected a list with commas, got {value!r}")
        return tuple([_read(what, inner[0], part) for part in parts])  # type: ignore[return-value]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if type is bool and text in ("true", "false"):
        return text == "true"
    if type is int and not isinstance(value, bool) and NUMBER.fullmatch(text):
        return int(text)
    if type is str and isinstance(value, str) and NAME.fullmatch(text):
        return text
    kinds: dict[object, str] = {bool: "true or false", int: "a whole number"}
    raise Refused(f"{what}: expected {kinds.get(type, 'a name')}, got {value!r}")


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
