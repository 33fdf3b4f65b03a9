"""Arguments of a function from the command line: from files and literals, or random; and arrays in
files.

Literals, .npy, .npz, .csv and pictures are read; results are written as the same kinds of files.
"""

import ast
import io
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path
from typing import Any

import numpy as np

from cvm.dialect.ir.function import Function, Value
from cvm.dialect.support.array_files import Truncated, read_arrays
from cvm.dialect.support.suggest import similar_file
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import Type
from cvm.terminal.files import write
from cvm.terminal.read_program import check_size_names, parsed_sizes
from cvm.terminal.usage import Usage

UNKNOWN = 4  # the value of an unknown size for random inputs
MAGNITUDE = 100  # bound of random integers without a declared range
PICTURES = (".png", ".jpg", ".jpeg")
LITERAL = "+-0123456789.[("
WORDS = {"true": True, "false": False, "nan": np.nan, "inf": np.inf}


def inputs(function: Function, options: Namespace) -> list[np.ndarray]:
    arrays = arrays_by_name(options, function)
    given = _given_sizes(function, getattr(options, "size", ()))
    if missing := [a for a in function.arguments if a.name not in arrays]:
        if options.random_inputs is None:
            archive = (
                f"; {options.inputs} holds {', '.join(arrays) or 'nothing'}"
                if options.inputs
                else ""
            )
            raise Usage(
                f"no array for {', '.join('%' + a.name for a in missing)}: "
                f"{_arguments(function)}{archive}\n"
                "give --input NAME=FILE.npy or NAME=[1,2,3], --inputs FILE.npz, or "
                "--random-inputs SEED"
            )
        shapes = [
            (a.known_type.array_shape, arrays[a.name].shape)
            for a in function.arguments
            if a.name in arrays
        ][::-1]
        sizes = given | {
            d.key: n
            for shape, ns in shapes
            for d, n in zip(shape, ns, strict=False)
            if isinstance(d, Size)
        }
        arrays |= _random(missing, sizes, options.random_inputs)
    return [arrays[a.name] for a in function.arguments]


def _given_sizes(function: Function, items: Sequence[str]) -> dict[Any, int]:
    """The sizes of `--size`, by the keys of those that the arguments leave open."""
    open_sizes = {
        d.name: d.key
        for a in function.arguments
        for d in a.known_type.array_shape
        if isinstance(d, Size)
    }
    sizes = parsed_sizes(items)
    check_size_names(sizes, open_sizes, f"@{function.name}")
    return {open_sizes[name]: number for name, number in sizes.items()}


def random_arrays(
    function: Function, seed: int, sizes: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Random arrays for all arguments of the function; sizes that it leaves open, and that are not
    given, are UNKNOWN.
    """
    known = {Size.named(name).key: n for name, n in (sizes or {}).items()}
    return [*_random(function.arguments, known, seed, reports=False).values()]


def arrays_by_name(options: Namespace, function: Function | None = None) -> dict[str, np.ndarray]:
    """The given arrays by name, those of `--input` being arguments of the function, if there is
    one.
    """
    arrays = _archive(options.inputs) if options.inputs else {}
    types = {a.name: a.known_type for a in function.arguments} if function else {}
    names: set[str] = set()
    for item in options.input:
        name, separator, text = item.removeprefix("%").partition("=")
        if not separator or not text:
            raise Usage(
                f"--input {item}: expected NAME=FILE or NAME=NUMBERS, such as x=x.npy or x=[1,2,3]"
            )
        if name in names:
            raise Usage(f"--input {item}: {name} is given twice")
        if function and name not in types:
            raise Usage(
                f"--input {item}: @{function.name} has no argument %{name}; {_arguments(function)}"
            )
        names.add(name)
        try:
            arrays[name] = read_array(text, types.get(name))
        except Usage as e:
            raise Usage(f"--input {name}: {e}") from None
    return arrays


def _arguments(function: Function) -> str:
    listed = ", ".join(f"%{a.name}: {a.type}" for a in function.arguments)
    return f"it takes {listed}" if listed else "it takes none"


def _archive(path: str) -> dict[str, np.ndarray]:
    if isinstance(arrays := load(path), np.ndarray):
        raise Usage(f"{path} holds one array: give it with --input NAME={path}")
    return arrays


def _random(
    given: Sequence[Value], sizes: dict[Any, int], seed: int, reports: bool = True
) -> dict[str, np.ndarray]:
    """Arrays of random elements. An unknown size that `sizes` does not have, by its key, is
    UNKNOWN, which is reported.
    """
    if seed < 0:
        raise Usage(f"--random-inputs: expected a seed of at least 0, got {seed}")
    random = np.random.default_rng(seed)
    arrays = {}
    for a in given:
        shape, open = [], []
        for d in a.known_type.array_shape:
            if isinstance(d, Size) and d.key not in sizes:
                open.append(f"{d} = {UNKNOWN}")
                sizes[d.key] = UNKNOWN
            shape.append(sizes[d.key] if isinstance(d, Size) else d)
        if open and reports:
            print(f"sizes of %{a.name} left open, here {', '.join(open)}", file=sys.stderr)
        arrays[a.name] = _elements(random, a, tuple(shape))
    return arrays


def _elements(random: np.random.Generator, argument: Value, shape: tuple[int, ...]) -> np.ndarray:
    """Elements in the argument's declared range; otherwise small integers, or floats between -1 and
    1.
    """
    element = argument.known_type.element.storage
    bounds = argument.range
    if element.is_discrete:
        least, most = element.limits
        low, high = bounds or (max(least, -MAGNITUDE), min(most, MAGNITUDE))
        wide = np.int64 if element.name != "ui64" else np.uint64
        return random.integers(low, high, shape, wide, endpoint=True).astype(element.dtype)
    low, high = bounds or (-1.0, 1.0)
    numbers = random.uniform(low, high, shape)
    if element.kind == "complex":
        numbers = numbers + 1j * random.uniform(low, high, shape)
    return np.asarray(numbers).astype(element.dtype)


# Arrays in files


def read_array(text: str, type: Type | None) -> np.ndarray:
    """The array of a literal such as 3 or [[1, 2], [3, 4]], or of a file; of the type's element
    where that holds it.

    Texts, pictures and literals have no element type of their own; that of an .npy or .npz file is
    kept.
    """
    suffix = Path(text).suffix.lower()
    if text in WORDS or (text[0] in LITERAL and suffix not in (".npy", ".npz", ".csv", *PICTURES)):
        return _fitting(_literal(text), type, text)
    if suffix == ".csv" or suffix in PICTURES:
        return _fitting(_table(text, type) if suffix == ".csv" else _picture(text), type, text)
    if not isinstance(array := load(text), np.ndarray):
        raise Usage(f"{text} holds several arrays: give it with --inputs")
    return array


@contextmanager
def _reading(path: str, requirement: str) -> Iterator[None]:
    """Report an exception of a damaged file as a file of another format."""
    try:
        yield
    except OSError as e:
        said = (e.strerror or requirement).lower() + (
            similar_file(path) if e.errno == ENOENT else ""
        )
        raise Usage(f"{path} cannot be read: {said}") from None
    except Truncated as e:
        raise Usage(f"{path} cannot be read: {e}") from None
    except Exception as e:
        raise (
            e if isinstance(e, Usage) else Usage(f"{path} cannot be read: {requirement}")
        ) from None


def load(path: str) -> np.ndarray | dict[str, np.ndarray]:
    """The array of an .npy file, or the arrays of an .npz; nothing is unpickled."""
    with _reading(path, "not an .npy or .npz file of numbers"):
        return read_arrays(path)


def _literal(text: str) -> np.ndarray:
    try:
        if (
            array := np.array(WORDS[text] if text in WORDS else ast.literal_eval(text))
        ).dtype.kind not in "biufc":
            raise ValueError("expected numbers")
        return array
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as e:
        said = "expected numbers" if isinstance(e, ValueError) else "expected numbers in lists"
        said = "rows differ in length" if "inhomogeneous" in str(e) else said
        raise Usage(f"{text[:60]} is no array: {said}") from None


def _table(path: str, type: Type | None) -> np.ndarray:
    """The numbers of a file with commas between columns; a single row or column for an argument of
    rank 1.
    """
    with _reading(path, "expected rows of equally many numbers with commas between them"):
        rows: list[list[object]] = []
        for n, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
            if line.strip():
                rows.append([_cell(f"{path}:{n}", cell.strip()) for cell in line.split(",")])
                if len(rows[-1]) != len(rows[0]):
                    counts = f"{len(rows[-1])} numbers, and the first row {len(rows[0])}"
                    raise Usage(f"{path}:{n}: a row of {counts}")
        array = np.array(rows)
        if array.dtype.kind not in "biufc":
            raise ValueError
    return (
        array.reshape(-1)
        if type is not None and len(type.array_shape) == 1 and 1 in array.shape
        else array
    )


def _cell(place: str, text: str) -> object:
    try:
        if isinstance(value := ast.literal_eval(text), (int, float, complex)):
            return value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    raise Usage(f"{place}: expected a number, got {text[:60]!r}")


def _picture(path: str) -> np.ndarray:
    """The pixels: ui8, of shape H x W, or H x W x C."""
    with _reading(path, "not a picture"), _pillow().open(path) as picture:
        return np.asarray(
            picture if picture.mode in ("L", "RGB", "RGBA") else picture.convert("RGB")
        )


def _pillow() -> Any:
    try:
        from PIL import Image

        return Image
    except ImportError:
        raise Usage("pictures need Pillow: pip install 'cvm-lang[images]'") from None


def _fitting(array: np.ndarray, type: Type | None, text: str) -> np.ndarray:
    """The array with the type's elements, if these hold it exactly (floats: rounded once)."""
    if type is None:
        return array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)
    element = type.element
    with np.errstate(all="ignore"):
        converted = array.astype(element.dtype)
    if element.is_integer or element.name == "i1":
        if array.dtype.kind == "c" or not np.array_equal(converted.astype(array.dtype), array):
            raise Usage(
                f"{text[:60]} holds what {element} does not: give an .npy of another type, "
                "or other numbers"
            )
    elif array.dtype.kind == "c" and element.kind != "complex":
        raise Usage(f"{text[:60]} is complex, but the elements are {element}")
    return converted


def write_arrays(path: str, results: Mapping[str, np.ndarray]) -> None:
    """Write results to a file whose suffix says how; standard output takes an .npz."""
    if (suffix := ".npz" if path == "-" else Path(path).suffix.lower()) not in (".npz", *WRITERS):
        raise Usage(
            f"--output {path}: the name ends with .npz, {', '.join(WRITERS)}, which says "
            "how it is written"
        )
    if suffix != ".npz" and len(results) != 1:
        raise Usage(
            f"--output {path}: {suffix} holds one array, but there are {len(results)} "
            "results; .npz holds all"
        )
    file = io.BytesIO()
    if suffix == ".npz":
        np.savez(file, **results)  # type: ignore[arg-type]
    else:
        WRITERS[suffix](file, next(iter(results.values())), path)
    write(path, file.getvalue())


def _save_table(file: io.BytesIO, array: np.ndarray, path: str) -> None:
    if array.ndim > 2:
        raise Usage(f"--output {path}: .csv holds at most 2 dimensions, got {array.ndim}")
    file.writelines(
        (",".join(map(repr, row)) + "\n").encode() for row in np.atleast_2d(array).tolist()
    )


def _save_picture(file: io.BytesIO, array: np.ndarray, path: str) -> None:
    if array.dtype != np.uint8 or not (
        array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    ):
        type = f"{array.dtype} {'x'.join(map(str, array.shape))}"
        raise Usage(
            f"--output {path}: a picture is ui8 of shape H x W, H x W x 3 or H x W x 4, got {type}"
        )
    _pillow().fromarray(array).save(file, "PNG")


WRITERS: dict[str, Callable[[io.BytesIO, np.ndarray, str], object]] = {
    ".npy": lambda file, array, _: np.save(file, array),
    ".csv": _save_table,
    ".png": _save_picture,
}  # of one array each
