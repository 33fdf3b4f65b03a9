"""Cache entries of compiled functions, which make lowering and optimization unnecessary.

An entry is a header in JSON, machine code and the constants in the kernels' layout. `source_cache`
maps a program's text to an entry.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialect.ir.function import Function
from ...dialect.support.diagnostics import Span
from ...dialect.types.sizes import Dim, Size
from ..cache import disk_cache
from ..calls.arguments import size_place


@dataclass(frozen=True)
class Compiled:
    """Machine code, and what a call needs besides."""

    images: tuple[bytes, ...]  # object files that belong together
    constants: tuple[np.ndarray, ...]
    workspace: Dim
    sizes: tuple[tuple[Any, ...], ...]  # what the entry wants to know, in its order
    requirements: tuple[tuple[str, Span], ...]
    in_place: frozenset[
        int
    ]  # the results that are computed in the storage of the argument they overwrite
    release: bool
    parallel: bool
    within: bool


def store(name: str, function: Function, compiled: Compiled) -> None:
    """Keep compiled code in the cache, where its requirements stand in the function's own text."""
    if any(span.source is not function.span.source for _, span in compiled.requirements):
        return
    atoms = {atom: n for n, atom in enumerate(compiled.sizes)}
    constants = [np.ascontiguousarray(c) for c in compiled.constants]
    header = {
        "images": [len(image) for image in compiled.images],
        "constants": [[c.dtype.str, list(c.shape)] for c in constants],
        "workspace": written(compiled.workspace, atoms),
        "places": [list(size_place(function, atom)) for atom in compiled.sizes],
        "requirements": [
            [message, span.start, span.end] for message, span in compiled.requirements
        ],
        "in_place": sorted(compiled.in_place),
        "flags": [compiled.release, compiled.parallel, compiled.within],
    }
    head = json.dumps(header).encode()
    data = [c.reshape(-1).view(np.uint8).data for c in constants]
    disk_cache.store(name, len(head).to_bytes(8, "little"), head, *compiled.images, *data)


def load(name: str, function: Function) -> Compiled | None:
    if (data := disk_cache.load(name)) is None:
        return None
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    end = start
    images, constants = [], []
    for length in header["images"]:
        images.append(data[end : end + length])
        end += length
    for dtype, shape in header["constants"]:
        count = int(np.prod(shape, dtype=np.int64))
        held = np.frombuffer(data, dtype, count, end) if count else np.empty(0, dtype)
        constants.append(held.reshape(shape).copy())
        end += constants[-1].nbytes
    dims = (function.arguments[n].known_type.array_shape[axis] for n, axis in header["places"])
    sizes = tuple(d.terms[0][0] for d in dims if isinstance(d, Size))
    source = function.span.source
    requirements = tuple(
        (message, Span(source, first, last)) for message, first, last in header["requirements"]
    )
    workspace = read(header["workspace"], sizes)
    in_place = frozenset(header["in_place"])
    return Compiled(
        tuple(images), tuple(constants), workspace, sizes, requirements, in_place, *header["flags"]
    )


def written(part: Any, atoms: Mapping[tuple[object, ...], int]) -> Any:
    """A size for the header: [constant, [factor, number of a known size] or [factor, operation,
    part, part], ...].
    """
    if not isinstance(part, Size):
        return part
    terms = [
        [f, atoms[a]] if a in atoms else [f, a[0], *(written(p, atoms) for p in a[1:])]
        for a, f in part.terms
    ]
    return [part.constant, *terms]


def read(part: Any, sizes: tuple[tuple[Any, ...], ...]) -> Any:
    if not isinstance(part, list):
        return part
    constant, *terms = part
    atoms = [
        (sizes[t[1]] if len(t) == 2 else (t[1], *(read(p, sizes) for p in t[2:])), t[0])
        for t in terms
    ]
    return Size(tuple(atoms), constant)
