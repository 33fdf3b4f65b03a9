"""Arguments of a function from the command line: from files and literals, or random."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cvm.cli import Usage
from cvm.commands.array_files import load, read_array
from cvm.dialect.ir.sizes import Size
from cvm.dialect.program.function import Function, Value

UNKNOWN = 4  # the value of an unknown size for random inputs
MAGNITUDE = 100  # bound of random integers without a declared range


def inputs(function: Function, options: Namespace) -> list[np.ndarray]:
    """An array for each argument of the function."""
    names = [a.name for a in function.arguments]
    given = _archive(options.inputs) if options.inputs else {}
    for name, item, path in _items(options):
        if name not in names:
            raise Usage(f"--input {item}: @{function.name} has no argument %{name}; {_arguments(function)}")
        given[name] = read_array(path, next(a.known_type for a in function.arguments if a.name == name))
    if missing := [a for a in function.arguments if a.name not in given]:
        if options.random_inputs is None:
            archive = f"; {options.inputs} holds {', '.join(given) or 'nothing'}" if options.inputs else ""
            raise Usage(
                f"no array for {', '.join('%' + a.name for a in missing)}: {_arguments(function)}{archive}\n"
                "give --input NAME=FILE.npy or NAME=[1,2,3], --inputs FILE.npz, or --random-inputs SEED"
            )
        given |= _random(function, missing, given, options.random_inputs)
    return [given[n] for n in names]


def random_arrays(function: Function, seed: int) -> list[np.ndarray]:
    """Random arrays for all arguments of the function; sizes that it leaves open are UNKNOWN."""
    return [*_random(function, list(function.arguments), {}, seed, told=False).values()]


def arrays_by_name(options: Namespace) -> dict[str, np.ndarray]:
    """The given arrays by name."""
    given = _archive(options.inputs) if options.inputs else {}
    return given | {name: read_array(path, None) for name, _, path in _items(options)}


def _items(options: Namespace) -> Iterator[tuple[str, str, str]]:
    """The name, the text and the file of each `--input NAME=FILE`."""
    names: set[str] = set()
    for item in options.input:
        name, separator, path = item.removeprefix("%").partition("=")
        if not separator or not path:
            raise Usage(f"--input {item}: expected NAME=FILE or NAME=NUMBERS, such as x=x.npy or x=[1,2,3]")
        if name in names:
            raise Usage(f"--input {item}: {name} is given twice")
        names.add(name)
        yield name, item, path


def _arguments(function: Function) -> str:
    listed = ", ".join(f"%{a.name}: {a.type}" for a in function.arguments)
    return f"it takes {listed}" if listed else "it takes none"


def _archive(path: str) -> dict[str, np.ndarray]:
    if isinstance(found := load(path), np.ndarray):
        raise Usage(f"{path} holds one array: give it with --input NAME={path}")
    return found


def _random(
    function: Function, missing: list[Value], given: Mapping[str, np.ndarray], seed: int, told: bool = True
) -> dict[str, np.ndarray]:
    """Arrays of random elements. An unknown size has the value of a given array, or else UNKNOWN, which is reported."""
    if seed < 0:
        raise Usage(f"--random-inputs: expected a seed of at least 0, got {seed}")
    known = [(a.known_type.array_shape, given[a.name].shape) for a in reversed(function.arguments) if a.name in given]
    sizes = {d.key: n for shape, ns in known for d, n in zip(shape, ns, strict=False) if isinstance(d, Size)}
    random = np.random.default_rng(seed)
    arrays = {}
    for a in missing:
        shape, open = [], []
        for d in a.known_type.array_shape:
            if isinstance(d, Size) and d.key not in sizes:
                open.append(f"{d} = {UNKNOWN}")
                sizes[d.key] = UNKNOWN
            shape.append(sizes[d.key] if isinstance(d, Size) else d)
        if open and told:
            print(f"sizes of %{a.name} left open, here {', '.join(open)}", file=sys.stderr)
        arrays[a.name] = _elements(random, a, tuple(shape))
    return arrays


def _elements(random: np.random.Generator, argument: Value, shape: tuple[int, ...]) -> np.ndarray:
    """Elements in the argument's declared range; otherwise small integers, or floats between -1 and 1."""
    element = argument.known_type.element
    bounds = argument.attributes.get("range")
    if element.is_discrete:
        least, most = element.limits
        low, high = bounds or (max(least, -MAGNITUDE), min(most, MAGNITUDE))
        wide = np.int64 if element.name != "ui64" else np.uint64
        return random.integers(low, high, shape, wide, endpoint=True).astype(element.dtype)
    low, high = bounds or (-1.0, 1.0)
    found: Any = random.uniform(low, high, shape)
    if element.kind == "complex":
        found = found + 1j * random.uniform(low, high, shape)
    return np.asarray(found).astype(element.dtype)
