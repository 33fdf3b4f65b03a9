"""The call signature of a compiled function, and its JSON form in the cache."""

from dataclasses import dataclass
from typing import Any

from ...dialect.ir.deferred_size_limits import DeferredChecks
from ...dialect.ir.function import Function, Value
from ...dialect.support.diagnostics import Source, Span
from ...dialect.types.sizes import Size
from ...dialect.types.tensor_types import ELEMENT_TYPES, TensorType, Type
from .cache_entry import read, written


@dataclass(frozen=True)
class Signature:
    function: Function  # its operations are not looked at
    overwritten: dict[int, int]
    returned: int  # how many of the results the caller sees
    left_open: DeferredChecks | None  # of a function with unknown sizes


def described(head: Signature) -> dict[str, Any] | None:
    """The signature in JSON; None if calls depend on more than JSON can express."""
    function = head.function
    types = (*function.argument_types, *function.result_types)
    others = () if head.left_open is None else head.left_open.others
    if (
        any(t.element.kind == "declared" for t in types)
        or (head.left_open is None and not all(t.is_static for t in types))
        or not all(isinstance(t, TensorType) for t in (*types, *others))
        or any(
            v.span.source is not function.span.source
            for v in (*function.arguments, *function.results)
        )
    ):
        return None
    atoms = {}
    for d in (d for t in types for d in t.array_shape if isinstance(d, Size) and d.is_atom):
        atoms.setdefault(d.terms[0][0], len(atoms))

    def type_of(t: Type) -> list[Any]:
        return [t.element.name, *(written(d, atoms) for d in t.array_shape)]

    def value_of(v: Value) -> list[Any]:
        return [v.name, v.span.start, v.span.end, type_of(v.known_type), v.attributes]

    return {
        "name": function.name,
        "span": [function.span.start, function.span.end],
        "sizes": [atom[0] if len(atom) == 1 else None for atom in atoms],
        "arguments": [value_of(a) for a in function.arguments],
        "results": [value_of(r) for r in function.results],
        "others": None if head.left_open is None else [type_of(t) for t in others],
        "overwritten": list(head.overwritten.items()),
        "returned": head.returned,
    }


def signature_of(found: dict[str, Any], source: Source) -> Signature:
    """The signature of a function from its JSON form."""
    sizes = tuple(
        (Size.unknown() if name is None else Size.named(name)).terms[0][0]
        for name in found["sizes"]
    )

    def type_of(parts: list[Any]) -> Type:
        element, *dims = parts
        return TensorType(tuple(read(d, sizes) for d in dims), ELEMENT_TYPES[element])

    def value_of(
        name: str, start: int, end: int, type: list[object], attributes: dict[str, object]
    ) -> Value:
        told = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        return Value(name, type_of(type), Span(source, start, end), told)

    arguments, results = (
        tuple(value_of(*v) for v in found[values]) for values in ("arguments", "results")
    )
    function = Function(found["name"], arguments, (), results, span=Span(source, *found["span"]))
    others = found["others"]
    left_open = None
    if others is not None:
        left_open = DeferredChecks(
            function.argument_types, function.result_types, tuple(map(type_of, others))
        )
    return Signature(function, dict(found["overwritten"]), found["returned"], left_open)
