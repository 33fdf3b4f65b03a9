"""Parse printed formulas (`lowering.formulas.formula_printer`).

    formulas @f(%x: tensor<4xi32>) { %y[%i]: tensor<4xi32> = %x[%i] + 1  return %y }

A constant without values in the text is a further argument. Types of literals follow from context,
as in kernels.
"""

from collections.abc import Sequence, Set
from contextlib import suppress

import numpy as np

from ..dialect.kernel_ir import expressions as ex
from ..dialect.kernel_ir.formulas import Formula, Formulas, LoopNest, Nest, Step, View
from ..dialect.kernel_ir.kernel_printer import REDUCTIONS
from ..dialect.kernel_ir.loops import Steps
from ..dialect.kernel_ir.scalar_functions import SCALARS
from ..dialect.kernel_ir.traverse import walk
from ..dialect.support.diagnostics import Diagnostic, ParseError, Source, Span
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.sizes import Dim, Size
from ..dialect.types.tensor_types import I1, ElementType
from . import kernel_tree as tree
from .dense_literals import read_dense
from .kernel_actions import UnexpectedToken, parse_formulas_node
from .kernel_syntax_errors import CODE, explain
from .kernels import KernelReader, unquoted
from .syntax_tree import Mistake, Token

_FUNCTIONS = {shown: name for name, shown in REDUCTIONS.items()}
_REDUCING = [
    REDUCTIONS.get(name, name) for name, row in SCALARS.items() if row.identity is not None
]


def parse_formulas(text: str, filename: str = "<formulas>") -> Formulas:
    """The formulas of a text, not yet verified; raises ParseError with a mistake of each formula
    that has one.
    """
    source = Source(filename, text)
    try:
        return _Reader(source).formulas(parse_formulas_node(text))
    except UnexpectedToken as e:
        raise ParseError(explain(e, source, 0, len(text))) from None
    except RecursionError:
        deep = Diagnostic("the formulas are nested too deeply to be read", Span(source, 0, 0), CODE)
        raise ParseError(deep) from None


class _Reader(KernelReader):
    """The symbol table of the formulas of a function, or of the body of a loop."""

    sizes: Set[object] | None = None  # of the arguments, once they have been read
    outer: Set[object] = frozenset()  # those of the formulas around a body

    def formulas(self, node: tree.FormulasNode, slices: Steps | None = None) -> Formulas:
        """The formulas of a function, or of the body of a loop with these steps."""
        named = [t.name.text for t in node.arguments], [r.text for r in node.results]
        self.scope.sliced = set() if slices is None else {*slices.sliced(*named)}
        given = [self.tensor(t) for t in node.arguments]
        self.sizes = self.outer | {d.key for t in given for d in t.shape if isinstance(d, Size)}
        self.constants: list[ex.Tensor] = []  # without values
        self.data: dict[ex.Tensor, np.ndarray] = {}
        self.mistakes: list[Diagnostic] = []
        steps = [step for s in node.steps for step in self.step(s)]
        returned: tuple[ex.Tensor, ...] = ()
        try:
            returned = tuple(map(self.tensor_named, node.results))
        except ParseError as e:
            self.mistakes += e.diagnostics
        if self.mistakes:
            raise ParseError(self.mistakes)
        checks = tuple(r for step in steps for r in _requirements(step))
        return Formulas(
            node.name.name,
            (*given, *self.constants),
            returned,
            self.data,
            tuple(steps),
            checks,
            slices=slices,
        )

    def step(self, node: tree.StepNode) -> Sequence[Step]:
        """One definition. After a mistake in it the tensors that it defines are known, so that
        their uses report nothing.
        """
        known = dict(self.names)
        try:
            match node:
                case tree.FormulaNode():
                    return [self.formula(node)]
                case tree.ConstantNode():
                    self.constant(node)
                    return []
                case tree.ViewNode():
                    return [self.view(node)]
                case tree.NestNode():
                    return [self.nest(node)]
                case tree.LoopStepNode():
                    return [self.loop_over(node)]
        except ParseError as e:
            self.mistakes += e.diagnostics
            self.names = known
            sizes = self.sizes
            self.sizes = None
            for tensor in node.defined:
                with suppress(ParseError):
                    self.named(tensor)
            self.sizes = sizes
            return ()

    # definitions

    def named(self, node: tree.TensorNode) -> ex.Tensor:
        if node.name.text in self.names:
            raise self.mistake(f"{node.name.text} is defined twice", node.name)
        return self.tensor(node, "heap")

    def defined(
        self, nodes: Sequence[tree.TensorNode], count: int | None = None
    ) -> tuple[ex.Tensor, ...]:
        """The tensors that a step defines; exactly `count`, if given."""
        if count is not None and len(nodes) != count:
            raise self.mistake(f"expected one array, got {len(nodes)}", nodes[0].name)
        return tuple(map(self.named, nodes))

    def atom(self, token: Token) -> Dim:
        size = super().atom(token)
        if self.sizes is not None and isinstance(size, Size) and size.key not in self.sizes:
            raise self.mistake(f"{token.text} is the size of no argument", token)
        return size

    def formula(self, node: tree.FormulaNode) -> Formula:
        known = dict(self.names)
        name = node.name
        tensor = self.named(tree.TensorNode(name, node.type))
        self.names = known.copy()  # without the array itself
        if len(node.indices) != tensor.rank:
            raise self.mistake(
                f"{name.text} has {tensor.rank} axes, got {len(node.indices)} indices", name
            )
        at = tuple(
            self.name(ex.Index(i.name, d)) for i, d in zip(node.indices, tensor.shape, strict=True)
        )
        for variable, element, meaning in node.wheres:
            self.names[variable.text] = self.of_type(meaning, self.element(element), variable)
        value = self.of_type(node.value, tensor.element, name)
        self.names = {**known, name.text: tensor}
        return Formula(tensor, at, value, self.span(name), (self.span(name),))

    def of_type(self, node: tree.Expression, element: ElementType, token: Token) -> ex.Expr:
        typed = self.typed(node, element)
        if typed.type is not element:
            raise self.mistake(f"{token.text} is {element}, its value {typed.type}", token)
        return typed

    def constant(self, node: tree.ConstantNode) -> None:
        if (dense := node.dense) is None:
            self.constants += self.defined(node.defined)
            return
        (tensor,) = self.defined(node.defined, 1)
        if len(shape := tuple(d for d in tensor.shape if isinstance(d, int))) < tensor.rank:
            raise self.mistake("the sizes of a constant are known", dense)
        data = read_dense(dense, shape, tensor.element)
        if isinstance(data, Mistake):
            raise ParseError(
                Diagnostic(data.message, Span(self.source, data.start, data.end), data.code)
            )
        self.data[tensor] = data.array

    def view(self, node: tree.ViewNode) -> View:
        of = self.tensor_named(node.of)
        (tensor,) = self.defined(node.defined, 1)
        self.view_of(tensor, of, node.of)
        at = ex.axes(tensor.shape)
        value = of[ex.unflatten(ex.flat_index(at, tensor.shape), of.shape)]
        return View(tensor, of, Formula(tensor, at, value, self.span(node.of)))

    def nest(self, node: tree.NestNode) -> Nest:
        given = tuple(map(self.tensor_named, node.operands))
        tensors = self.defined(node.defined)
        known = dict(self.names)
        block = self.block(node.body)
        self.names = known
        return Nest(tensors, given, block, self.place(node.defined))

    def loop_over(self, node: tree.LoopStepNode) -> LoopNest:
        given = tuple(map(self.tensor_named, node.operands))
        steps = self.steps(node.steps)
        inner = _Reader(self.source)
        inner.anonymous = self.anonymous
        inner.outer = self.sizes or self.outer
        inside = inner.formulas(node.body, slices=steps)
        held = tuple(
            ex.Tensor(f"{inside.name}.{t.name}", t.shape, t.element) for t in inner.constants
        )
        self.constants += held  # the same at every step
        given += held
        tensors = self.defined(node.defined)
        self.check_steps(steps, given, tensors, inside, node.defined[0].name)
        return LoopNest(tensors, given, (), self.place(node.defined), inside, steps)

    def place(self, nodes: Sequence[tree.TensorNode]) -> Span:
        """The place of the definitions of some tensors."""
        return Span(self.source, nodes[0].name.start, nodes[-1].type.end)

    # expressions

    def access(self, node: tree.AccessNode) -> ex.Expr:
        read = super().access(node)
        if isinstance(read, ex.Read) and len(read.indices) != read.tensor.rank:
            raise self.mistake(
                f"{node.name.text} has {read.tensor.rank} axes, got {len(read.indices)} indices",
                node,
            )
        return read

    def call(
        self, name: Token, arguments: Sequence[tree.Expression], expected: ElementType | None
    ) -> ex.Expr | None:
        match name.text, arguments:
            case "when", [condition, *sides] if len(sides) == 2:
                type = expected or next(
                    (e.type for t in sides if (e := self.expression(t, None)) is not None), None
                )
                if type is None:
                    return None
                test, (then, otherwise) = (
                    self.typed(condition, I1),
                    (self.of_type(t, type, name) for t in sides),
                )
                return ex.When(test, then, otherwise)
            case "check", [condition, value, Token(type="STRING") as message]:
                call = self.expression(value, expected)
                said = unquoted(message.text)
                return (
                    None
                    if call is None
                    else ex.Check(self.typed(condition, I1), call, said, self.span(name))
                )
            case ("when" | "check") as form, _:
                shown = (
                    "when(condition, value, otherwise)"
                    if form == "when"
                    else 'check(condition, value, "message")'
                )
                raise self.mistake(f"expected {shown}", name)
            case _:
                return super().call(name, arguments, expected)

    def reduction(self, node: tree.ReductionNode, expected: ElementType | None) -> ex.Expr | None:
        name = node.function.text
        function = _FUNCTIONS.get(name, name)
        if function not in SCALARS or SCALARS[function].identity is None:
            raise self.mistake(
                f"there is no reduction {name}{did_you_mean(name, _REDUCING)}", node.function
            )
        known = dict(self.names)
        over = tuple(self.name(ex.Index(r.variable.name, self.size(r.extent))) for r in node.ranges)
        reduced = self.expression(node.body, expected)
        self.names = known
        return None if reduced is None else ex.Reduce(function, over, reduced)


def _requirements(step: Step) -> Sequence[tuple[str, Span]]:
    match step:
        case LoopNest():
            return step.program.requirements
        case Formula():
            return [(e.message, e.span) for e in walk(step.value) if isinstance(e, ex.Check)]
    return ()
