"""Convert operators of dialects into those of others (MLIR's dialect conversion).

    %y = dsp.fir %x, %taps  =>  the operations that the lowering of dsp.fir adds

Their lowerings state them. A table says which operators may stay: those of the dialects `from` are
illegal, unless their lowering declares one as legal; all others of the program are legal. A
lowering may add constants, operators of the dialects `to`, and those that are converted in turn.
Without `from`, operators that have no formula are illegal.
"""

from collections.abc import Callable, Iterator

from ...dialect.builtin import Const
from ...dialect.ir.function import Function, Operation, Value
from ...dialect.spec.foreign_operators import source_place, source_span
from ...dialect.spec.operator import OPERATORS, Operator
from ...dialect.support.diagnostics import Diagnostic, Error, Note, TargetError
from ...dialect.support.limits import LIMITS
from ...dialect.support.suggest import did_you_mean
from ..pass_context import Context
from ..passes import graph_pass
from .patterns import LOWERINGS, Pattern
from .rewrite import Builder, Rewriting, Slot
from .simplify import simplify

Test = Callable[[Operator[object]], bool]


@graph_pass
def convert(function: Function, context: Context, from_: str = "", to: str = "") -> Function:
    """The function with operators of the dialects `from`, separated by +, stated by those of the
    dialects `to`, or of any others where none are named.
    """
    sources, targets = _dialects(from_), _dialects(to)
    if both := sources & targets:
        raise Error(f"convert: the dialect {min(both)} is in both from and to")

    def is_illegal(op: Operator[object]) -> bool:
        return op.dialect in sources and not _is_spared(op) if sources else op.is_expanded

    def is_wanted(op: Operator[object]) -> bool:
        return not targets or op.dialect in targets or isinstance(op, Const) or _is_spared(op)

    return _converted(function, context, is_illegal, is_wanted)


def stated_by_others(
    function: Function, context: Context, which: Test = lambda op: op.is_expanded
) -> Function:
    """The function with these operators, by default those without formulas, replaced by what their
    lowerings state; patterns over them are applied first.
    """
    if not any(which(o.operator) for o in function.operations):
        return function
    return _converted(simplify(function, context), context, which, lambda op: True)


def _dialects(names: str) -> set[str]:
    found = {*filter(None, names.split("+"))}
    for name in found:
        if name not in (known := OPERATORS.dialects(name)):
            raise Error(f"convert: there is no dialect {name}{did_you_mean(name, known)}")
    return found


def _is_spared(op: Operator[object]) -> bool:
    _, legal = LOWERINGS.get(type(op), (None, None))
    return legal is not None and bool(legal(op))


def _converted(function: Function, context: Context, is_illegal: Test, is_wanted: Test) -> Function:
    """The function after the lowerings of illegal operators; Error with all that are left."""
    converting = Conversion(function, context, is_illegal)
    if converting.waiting:
        function = converting.run()
    mistakes = [*_left(function, is_illegal), *_unwanted(function, converting, is_wanted)]
    if mistakes:
        raise TargetError([*{str(d): d for d in mistakes}.values()])
    return function


class Conversion(Rewriting):
    """A function whose illegal operators are being replaced; each has to be."""

    def __init__(self, function: Function, context: Context, is_illegal: Test) -> None:
        self.is_illegal = is_illegal
        self.module = context.module
        self.added_by: dict[Value, Pattern] = {}
        super().__init__(function, [p for p, _ in LOWERINGS.values()], context.function is not None)
        self.budget = LIMITS.get().operations

    def too_many(self) -> str:
        return "lowerings add what they convert without an end"

    def patterns_of(self, operator: Operator[Value]) -> list[Pattern]:
        found = LOWERINGS.get(type(operator))
        return [found[0]] if found is not None and self.is_illegal(operator) else []

    def is_passed_over(self, slot: Slot) -> bool:
        return False

    def is_kept(self, root: Operation) -> bool:
        return False

    def misfit(self, slot: Slot, values: tuple[object, ...], builder: Builder) -> str:
        if wrong := super().misfit(slot, values, builder):
            raise self.mistake(slot, wrong)
        by = self.patterns_of(slot.operation.operator)[0]
        self.added_by.update(dict.fromkeys([*builder.added, *slot.operation.results], by))
        return ""


def _left(function: Function, is_illegal: Test) -> Iterator[Diagnostic]:
    """The mistake of each operation that no lowering took."""
    for o in function.operations:
        operator = o.operator
        if not is_illegal(operator):
            continue
        if operator.has_effect:
            message = (
                f"{operator.name} has an effect, which calls on cpu and reference run in Python"
            )
            yield Diagnostic(message, o.at(None), "effect.compiled")
            continue
        notes: list[Note] = []
        if (found := LOWERINGS.get(type(operator))) is not None:
            why = f"{found[0].who} does not match it"
            notes.append(Note("the lowering is declared here", found[0].place))
        else:
            why = "it has no lowering"
        if operator.is_expanded:
            place = source_span(*source_place(type(operator)))
            notes.append(Note(f"{operator.name} has no method `element`", place))
        yield Diagnostic(f"{operator.name} is left: {why}", o.at(None), "convert.left", (*notes,))


def _unwanted(function: Function, converting: Conversion, is_wanted: Test) -> Iterator[Diagnostic]:
    """The mistake of each added operation that may not stay."""
    for o in function.operations:
        by = next((converting.added_by[r] for r in o.results if r in converting.added_by), None)
        if by is not None and not is_wanted(o.operator) and not converting.is_illegal(o.operator):
            message = f"{by.who} adds {o.operator.name}, of a dialect that is not converted to"
            yield Diagnostic(message, o.at(None), "convert.left")
