"""Find the checks that verification with unknown sizes leaves to calls: of all calls, where these
are only of size limits, or of those that are decided as one call is.
"""

from collections.abc import Sequence

from ..builtin import Calling
from ..spec.operator import violated
from ..support.diagnostics import VerifyError
from ..types.sizes import DECIDED, DecidedSizes, Size, Undecided, atoms_of, same_size
from ..types.tensor_types import Type
from ..types.unify import bind
from .deferred_size_limits import DeferredChecks
from .function import Function, Operation
from .module import Module
from .verify import instantiate


def find_deferred_checks(function: Function) -> DeferredChecks | None:
    """The checks that calls of a verified function need; None if more than size limits is
    undecided.
    """
    arguments = function.argument_types
    sizes = [d for t in arguments for d in t.array_shape if isinstance(d, Size)]
    if not all(d.is_atom for d in sizes):
        return None
    told = {d.terms[0][0] for d in sizes}
    others: dict[object, Type] = {}
    for operation in function.operations:
        if not _settled(operation):
            return None
        others.update(
            (r.known_type.key, r.known_type)
            for r in operation.results
            if not r.known_type.is_static
        )
    for t in others.values():
        if any(not d.atoms() <= told for d in t.array_shape if isinstance(d, Size)):
            return None
    results = function.result_types
    if function.declared is not None and not _as_stated(function.declared, results):
        return None
    for t in results:
        others.pop(t.key, None)
    return DeferredChecks(arguments, results, tuple(others.values()))


def checks_as_in(
    module: Module, function: Function, given: Sequence[Type]
) -> DeferredChecks | None:
    """The checks of calls that are verified as one with these argument types is, and the types
    there; None if sizes of results are neither those of arguments nor computed from these.
    """
    arguments = function.argument_types
    if not all(d.is_atom for t in arguments for d in t.array_shape if isinstance(d, Size)):
        return None
    sizes = bind(arguments, given)
    known = {atom: n for atom, n in sizes.items() if isinstance(n, int)}
    decided = DecidedSizes(known)
    types: dict[object, Type | None] = {}
    before = DECIDED.set(decided)
    try:
        values = instantiate(module, function, arguments, types)
    except (VerifyError, Undecided):
        return None
    finally:
        DECIDED.reset(before)
    results = tuple(values.get(r) or r.known_type for r in function.results)
    others = [t for t in types.values() if t is not None]
    if len(others) < len(types):
        return None
    if not atoms_of(d for t in (*results, *others) for d in t.array_shape) <= known.keys():
        return None
    return DeferredChecks(arguments, results, tuple(others), tuple(decided.conditions.values()))


def _settled(operation: Operation) -> bool:
    """Test whether every constraint of the operation was decided, and no stated type depends on
    unknown sizes.
    """
    operands = [v.known_type for _, v in operation.operator.operands()]
    found = [r.known_type for r in operation.results]
    if all(t.is_static for t in (*operands, *found)):
        return True
    if isinstance(operation.operator, Calling):
        return False  # the callee may have undecided constraints
    typed = operation.operator.map(lambda v: v.known_type)
    broken, waits = violated(typed, typed.constraints)
    inferred = typed.result_types()
    stated = ((operation.declared, found), (operation.declared_operands, operands))
    return (
        broken is None
        and not waits
        and all(a.key == b.key for a, b in zip(inferred, found, strict=True))
        and all(s is None or _as_stated(s, types) for s, types in stated)
    )


def _as_stated(stated: Sequence[Type], found: Sequence[Type]) -> bool:
    pairs = [
        p
        for s, f in zip(stated, found, strict=True)
        for p in zip(s.array_shape, f.array_shape, strict=True)
    ]
    return all(
        same_size(s, f) or (isinstance(s, Size) and s.is_atom and s.name is None) for s, f in pairs
    )
