"""Lower infix expressions to operations of the dialect.

    %y = dali.expr(%x * 2 + 1)  =>  %y.0 = dali.mul %x, 2;  %y = dali.add %y.0, 1

Every operator and call becomes an operation located at its part of the text, verified like any
other. Operands are evaluated from left to right.
"""

from functools import cache
from typing import Any, TypeAlias

from ..dialect.ir.function import Operation, Value
from ..dialect.spec.operator import OPERATORS, Operator
from ..dialect.support.diagnostics import Span
from .build_operation import build_literal, form_of, operand_count, unknown_operator
from .scope import Scope
from .syntax_tree import ExpressionNode, OperandNode, OperationNode, Token


@cache
def marks(dialect: str) -> dict[tuple[str, int], type[Operator[Any]]]:
    """The operators of a dialect that expressions write as marks, by the mark and the number of
    operands.
    """
    operators = [o for o in OPERATORS.values() if o.dialect == dialect and getattr(o, "symbol", "")]
    return {(o.symbol, form_of(o).least): o for o in operators if not o.symbol.isidentifier()}  # type: ignore[attr-defined]


def build_infix(scope: Scope, node: OperationNode) -> list[Operation]:
    """The operations of an expression, the last of which gives its results; none where it is
    broken.
    """
    dialect = node.name.text.removesuffix(".expr")
    made = None
    if marks(dialect):
        made = _Building(scope, node, dialect).operations()
    else:
        scope.report.at(node.name, "op.unknown", unknown_operator(scope.report, node.name.text))
    results = tuple([scope.define(r) for r in node.results])
    if made is None:
        scope.forgiven.update({r.name: r for r in results})
        return []
    *before, (operator, _, span, spans) = made
    if results:
        spans["results"] = results[0].span
    last = Operation(operator, results, span, spans=spans)
    return [*(Operation(o, (value,), s, spans=places) for o, value, s, places in before), last]


Part: TypeAlias = ExpressionNode[OperandNode]
# a value, the token of one, a literal, or None where a part is broken
Operand: TypeAlias = Value | OperandNode | None
Step = tuple[Operator[Value], Value, Span, dict[str, Span]]


class _Building:
    """One expression: its parts in the order in which they are computed, each giving a value."""

    def __init__(self, scope: Scope, node: OperationNode, dialect: str) -> None:
        self.scope = scope
        self.node = node
        self.dialect = dialect
        self.steps: list[Step] = []

    def operations(self) -> list[Step] | None:
        whole = self.node.expression
        assert whole is not None
        if not isinstance(whole, ExpressionNode):  # a value or a number alone
            sign = Token("PLUS", "+", whole.start, whole.start)
            whole = ExpressionNode[OperandNode](sign, [whole], whole.start, whole.end)
        good = True
        values: list[Operand] = []  # of the parts that are complete, the latest last
        # a stack: expressions may be nested as deep as one likes
        waiting: list[tuple[Part | OperandNode, bool]] = [(whole, False)]
        while waiting:
            part, ready = waiting.pop()
            if not isinstance(part, ExpressionNode):
                values.append(part)
            elif not ready:
                waiting.append((part, True))
                waiting += [(o, False) for o in reversed(part.operands)]
            else:
                count = len(part.operands)
                operands = values[len(values) - count :]
                del values[len(values) - count :]
                value = self.apply(part, operands)
                good = good and value is not None
                values.append(value)
        return self.steps if good else None

    def apply(self, part: Part, operands: list[Operand]) -> Value | None:
        """One operator of operands: values, tokens of values, literals, or None where they are
        broken.
        """
        scope, word = self.scope, part.operator
        name = f"{self.dialect}.{word.text}"
        called = word.type == "NAME"
        operator = (
            OPERATORS.get(name) if called else marks(self.dialect).get((word.text, len(operands)))
        )
        if operator is None:
            said = (
                unknown_operator(scope.report, name)
                if called
                else f"{self.dialect} has no operator {word.text}"
            )
            scope.report.at(word, "op.unknown", said)
        form = None if operator is None else form_of(operator)
        fits = (
            form is not None
            and form.least <= len(operands)
            and len(operands) <= (form.most or len(operands))
        )
        if operator is not None and form is not None and not fits:
            scope.report.at(
                word,
                f"{operator.name}.operands",
                f"expected {operand_count(form)}, got {len(operands)}",
            )
        found: list[Value | None] = []
        for o in operands:
            if isinstance(o, Token):
                found.append(scope.use(o))
            elif isinstance(o, Value) or o is None:
                found.append(o)
            else:
                found.append(None if operator is None else build_literal(scope, o, operator))
        if operator is None or form is None or not fits or None in found:
            return None
        place = Span(scope.report.source, part.start, part.end)
        fields = [f.name for f in form.operands]
        parts = zip(fields, part.operands, strict=False)
        source = scope.report.source
        spans = {"op": place, **{f: Span(source, o.start, o.end) for f, o in parts}}
        results = self.node.results
        value = Value(f"{results[0].name if results else 'expr'}.{len(self.steps)}", None, place)
        self.steps.append((operator(**dict(zip(fields, found, strict=False))), value, place, spans))
        return value
