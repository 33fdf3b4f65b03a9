"""Whether verification decided everything of a function though sizes are unknown, and what it left open then (`left_open`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..builtin import Calling
from ..ir.sizes import Size, same_size
from ..ir.types import Type
from ..spec.op import Operator, violated
from .deferred_checks import DeferredChecks
from .module import Function, Operation, Value


def find_deferred_checks(function: Function) -> DeferredChecks | None:
    """What calls of a verified function are held against; None where more is to be looked at than sizes."""
    arguments = function.argument_types
    sizes = [d for t in arguments for d in t.array_shape if isinstance(d, Size)]
    if not all(d.is_atom for d in sizes):
        return None
    told = {d.terms[0][0] for d in sizes}
    others: dict[object, Type] = {}
    for operation in function.operations:
        if not _settled(operation):
            return None
        others.update((r.known_type.key, r.known_type) for r in operation.results if not r.known_type.is_static)
    for t in others.values():
        if any(not d.atoms() <= told for d in t.array_shape if isinstance(d, Size)):
            return None
    results = function.result_types
    if function.declared is not None and not _as_stated(function.declared, results):
        return None
    for t in results:
        others.pop(t.key, None)
    return DeferredChecks(arguments, results, tuple(others.values()))


def _settled(operation: Operation) -> bool:
    """Whether every rule of the operation was decided, and nothing that the text states of it waits for sizes."""
    operands = [v.known_type for _, v in operation.operator.operands()]
    found = [r.known_type for r in operation.results]
    if all(t.is_static for t in (*operands, *found)):
        return True
    if isinstance(operation.operator, Calling):
        return False  # its function may leave something open
    typed: Operator[Any] = operation.operator.map(_type_of)
    broken, waits = violated(typed, typed.constraints)
    inferred = typed.result_types()
    stated = ((operation.declared, found), (operation.declared_operands, operands))
    return (
        broken is None
        and not waits
        and all(a.key == b.key for a, b in zip(inferred, found, strict=True))
        and all(s is None or _as_stated(s, types) for s, types in stated)
    )


def _type_of(value: Value) -> Type:
    return value.known_type


def _as_stated(stated: Sequence[Type], found: Sequence[Type]) -> bool:
    """Whether what is stated of the sizes holds whatever they are."""
    pairs = [p for s, f in zip(stated, found, strict=True) for p in zip(s.array_shape, f.array_shape, strict=True)]
    return all(same_size(s, f) or (isinstance(s, Size) and s.is_atom and s.name is None) for s, f in pairs)
