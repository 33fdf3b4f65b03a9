"""Verify rewrites: both programs are legal and of the same types, and the first one has a root."""

from collections.abc import Iterator
from dataclasses import replace

from ..builtin import Calling, Const
from ..support.diagnostics import Diagnostic, VerifyError, counted
from ..types.unify import agree
from .function import Function, Rewrite
from .module import Module
from .verify import instantiated


def verify_rewrite(rewrite: Rewrite) -> tuple[Rewrite, list[Diagnostic]]:
    """The rewrite with every value typed, and its mistakes."""
    mistakes = [d for f in (rewrite.before, rewrite.after) for d in _misplaced(f)]
    mistakes += _rootless(rewrite.before)
    typed: list[Function] = []
    for f in (rewrite.before, rewrite.after) if not mistakes else ():
        try:
            typed.append(instantiated(Module({}), f, f.argument_types))
        except VerifyError as e:
            mistakes += e.diagnostics
    if mistakes:
        return rewrite, mistakes
    rewrite = replace(rewrite, before=typed[0], after=typed[1])
    return rewrite, [*_of_other_types(rewrite)]


def _misplaced(program: Function) -> Iterator[Diagnostic]:
    """The operations of which a rewrite has none, and arguments that are overwritten."""
    for o in program.operations:
        operator = o.operator
        if isinstance(operator, Calling) or operator.placement or operator.afterwards:
            message = f"a rewrite has no {operator.name}, which depends on its function"
            yield Diagnostic(message, o.at(None), "rewrite.operation")
        elif operator.destroys():
            message = f"a rewrite has no operation in place, got {operator.name}"
            yield Diagnostic(message, o.at(None), "rewrite.operation")
        elif o.declared is not None and not isinstance(operator, Const):
            message = "types of a rewrite are those of its arguments, others are inferred"
            yield Diagnostic(message, o.at("types"), "rewrite.type")
    for a in program.arguments:
        if "inplace" in a.attributes:
            message = f"an argument of a rewrite is not overwritten, but %{a.name} is inplace"
            yield Diagnostic(message, a.span, "rewrite.argument")


def _rootless(program: Function) -> list[Diagnostic]:
    """The mistakes of a first program: the last operation is its root, which needs all others."""
    root = program.operations[-1] if program.operations else None
    spans = program.return_spans or (program.span,)
    if root is None or isinstance(root.operator, Const) or program.results != root.results:
        message = (
            "the first program of a rewrite returns the results of its last operation, which is "
            "replaced, and is no constant"
        )
        return [Diagnostic(message, spans[0], "rewrite.root")]
    used = {v for o in program.operations for _, v in o.operator.operands()}
    unused = [
        Diagnostic(
            f"%{v.name} is not used by the first program, which would match whatever it is",
            v.span,
            "rewrite.argument",
        )
        for v in program.arguments
        if v not in used
    ]
    return unused + [
        Diagnostic(
            "the result of the first program does not depend on this operation",
            o.at(None),
            "rewrite.operation",
        )
        for o in program.operations[:-1]
        if used.isdisjoint(o.results)
    ]


def _of_other_types(rewrite: Rewrite) -> Iterator[Diagnostic]:
    """The mistakes of a second program whose results have not the types of the first one's."""
    before, after = rewrite.before.results, rewrite.after.results
    spans = rewrite.after.return_spans or (rewrite.after.span,)
    if len(before) != len(after):
        message = (
            f"expected {counted(len(before), 'value')} as of the first program, got {len(after)}"
        )
        yield Diagnostic(message, spans[0], "rewrite.type")
        return
    for b, a, span in zip(before, after, spans, strict=True):
        if not agree(b.known_type, a.known_type):
            message = f"%{b.name} is {b.type} in the first program, but {a.type} in the second"
            yield Diagnostic(message, span, "rewrite.type")
