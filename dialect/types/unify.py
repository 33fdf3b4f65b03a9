"""Unify types with unknown sizes: bind sizes to those of a call, and find conflicts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .sizes import OPERATIONS, Dim, Size, atoms_of, certainly, in_order, larger, same_size, smaller
from .tensor_types import Type


def bind(declared: Sequence[Type], actual: Sequence[Type]) -> dict[Any, Dim]:
    """The size in the actual types of each named or anonymous size of the declared types; the first
    occurrence decides.
    """
    bound = {}
    for stated, given in _met(declared, actual):
        bound.setdefault(stated.terms[0][0], given)
    return bound


def _met(declared: Sequence[Type], actual: Sequence[Type]) -> Iterator[tuple[Size, Dim]]:
    """The named and anonymous sizes of the declared types, each with the actual one in its
    place.
    """
    for d, a in zip(declared, actual, strict=True):
        for stated, given in zip(d.array_shape, a.array_shape, strict=False):
            if isinstance(stated, Size) and stated.is_atom:
                yield stated, given


def size_conflict(declared: Sequence[Type], actual: Sequence[Type]) -> str | None:
    """A message if one named size has two different values; None otherwise."""
    bound = bind(declared, actual)
    for stated, given in _met(declared, actual):
        first = bound[stated.terms[0][0]]
        if certainly(lambda first=first, given=given: first != given):
            return f"{stated} is one size, but it is {first} and {given}"
    return None


def received(declared: Sequence[Type], given: Sequence[Type]) -> list[Type]:
    """The types of a function's arguments in a call: the given sizes where the declared ones are
    unknown.
    """
    bound = bind(declared, given)
    return [with_sizes(d, bound) for d in declared]


def renamed(declared: Sequence[Type], given: Sequence[Type]) -> tuple[list[Type], dict[Any, Dim]]:
    """The types over the callee's size names, or numbers, so that equal calls are shared; the size
    of each name.
    """
    names = {}
    taken = {}
    pairs = [
        p
        for d, g in zip(declared, given, strict=True)
        for p in zip(d.array_shape, g.array_shape, strict=True)
    ]
    for own, size in pairs:
        if isinstance(own, Size) and own.is_atom and isinstance(size, Size) and size.is_atom:
            ours, theirs = own.terms[0][0], size.terms[0][0]
            if ours not in taken and theirs not in names:
                names[theirs], taken[ours] = own, size
    for _, size in pairs:
        for atom in sorted(size.atoms(), key=in_order) if isinstance(size, Size) else ():
            if atom not in names:
                number = ("?", -1 - len(names))
                names[atom], taken[number] = Size.of_atom(number), Size.of_atom(atom)
    return [with_sizes(g, names) for g in given], taken


def named_back(results: Sequence[Type], names: Mapping[Any, Dim]) -> tuple[Type, ...]:
    """A callee's result types over the caller's sizes; a size that the callee computes is a new one
    in every call.
    """
    atoms = atoms_of(d for r in results for d in r.array_shape)
    ordered = sorted(atoms, key=in_order) if atoms else []
    sizes = {a: names[a] if a in names else Size.unknown() for a in ordered}
    return tuple(with_sizes(r, sizes) for r in results)


def with_sizes(type: Type, bound: Mapping[Any, Dim]) -> Type:
    """The type with bound sizes substituted."""
    if type.is_static or not bound:
        return type
    return type.with_array_shape(tuple(put(d, bound) for d in type.array_shape))


def put(dim: Dim, bound: Mapping[Any, Dim]) -> Dim:
    if isinstance(dim, int):
        return dim
    return dim.evaluate({a: bound.get(a, Size.of_atom(a)) for a in dim.atoms()}, SYMBOLIC)


def _quotient(a: Dim, b: Dim) -> Dim:
    return OPERATIONS["//"](a, b) if isinstance(a, int) and isinstance(b, int) else a // b


SYMBOLIC: dict[str, Callable[..., Dim]] = {
    "*": lambda a, b: a * b,
    "//": _quotient,
    "max": larger,
    "min": smaller,
}


def agree(stated: Type, inferred: Type) -> bool:
    """Test whether a value of the inferred type may have the stated type; unknown sizes are checked
    when called.
    """
    if (
        type(stated) is not type(inferred)
        or stated.element is not inferred.element
        or stated.rank != inferred.rank
    ):
        return False
    a, b = stated.array_shape, inferred.array_shape
    return len(a) == len(b) and not any(
        certainly(lambda x=x, y=y: x != y) for x, y in zip(a, b, strict=True)
    )


def refine(inferred: Type, stated: Type) -> Type:
    """The inferred type, refined by the known sizes of the stated type."""
    dims = []
    for i, s in zip(inferred.array_shape, stated.array_shape, strict=True):
        better = isinstance(i, Size) and (
            isinstance(s, int) or (s.name is not None and not same_size(s, i))
        )
        dims.append(s if better else i)
    return inferred.with_array_shape(tuple(dims))
