"""Parse printed formulas (`lowering.formulas.formula_printer`).

    formulas @f(%x: tensor<4xi32>) { %y[%i]: tensor<4xi32> = %x[%i] + 1  return %y }

A constant without values in the text is a further argument. Types of literals follow from context,
as in kernels.
"""

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any

import numpy as np
from lark import Tree
from lark.exceptions import UnexpectedInput

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
from .dense_literals import read_dense
from .kernel_syntax_errors import CODE, explain
from .kernels import KernelReader, language, unquoted
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
        return _Reader(source, 0).formulas(*language().parse(text, start="formulas").children)
    except UnexpectedInput as e:
        raise ParseError(explain(e, source, 0, len(text))) from None
    except RecursionError:
        deep = Diagnostic("the formulas are nested too deeply to be read", Span(source, 0, 0), CODE)
        raise ParseError(deep) from None


class _Reader(KernelReader):
    """The symbol table of the formulas of a function, or of the body of a loop."""

    sizes: Set[object] | None = None  # of the arguments, once they have been read
    outer: Set[object] = frozenset()  # those of the formulas around a body

    def formulas(
        self, name: Any, arguments: Any, *rest: Any, slices: Steps | None = None
    ) -> Formulas:
        """The formulas of a function, or of the body of a loop with these steps."""
        *steps, results = rest
        trees = [t for t in arguments.children if t is not None]
        named = [str(t.children[0]) for t in trees], [str(r) for r in results.children]
        self.scope.sliced = set() if slices is None else {*slices.sliced(*named)}
        given = [self.tensor(t) for t in trees]
        self.sizes = self.outer | {d.key for t in given for d in t.shape if isinstance(d, Size)}
        self.constants: list[ex.Tensor] = []  # without values
        self.data: dict[ex.Tensor, np.ndarray] = {}
        self.mistakes: list[Diagnostic] = []
        made = [m for s in steps for m in self.step(s)]
        returned: tuple[ex.Tensor, ...] = ()
        try:
            returned = tuple(map(self.tensor_named, results.children))
        except ParseError as e:
            self.mistakes += e.diagnostics
        if self.mistakes:
            raise ParseError(self.mistakes)
        checks = tuple(r for m in made for r in _requirements(m))
        return Formulas(
            name[1:],
            (*given, *self.constants),
            returned,
            self.data,
            tuple(made),
            checks,
            slices=slices,
        )

    def step(self, tree: Any) -> Sequence[Step]:
        """One definition. After a mistake in it what it defines is known, so that those who read it
        go on.
        """
        known = dict(self.names)
        try:
            return getattr(self, tree.data)(*tree.children)
        except ParseError as e:
            self.mistakes += e.diagnostics
            self.names = known
            sizes = self.sizes
            self.sizes = None
            first, *more = tree.children
            tensors = (
                [(first, more[1])]
                if tree.data == "formula"
                else [t.children for t in first.children]
            )
            for name, type in tensors:
                with suppress(ParseError):
                    self.named(name, type)
            self.sizes = sizes
            return ()

    # definitions

    def named(self, name: Any, type: Any) -> ex.Tensor:
        if str(name) in self.names:
            raise self.mistake(f"{name} is defined twice", name)
        return self.tensor(Tree("tensor", [name, type]), "heap")

    def defined(self, tree: Any, count: int | None = None) -> tuple[ex.Tensor, ...]:
        """The tensors that a step defines; exactly `count`, if given."""
        if count is not None and len(tree.children) != count:
            raise self.mistake(f"expected one array, got {len(tree.children)}", tree)
        return tuple(self.named(*t.children) for t in tree.children)

    def atom(self, token: Any) -> Dim:
        size = super().atom(token)
        if self.sizes is not None and isinstance(size, Size) and size.key not in self.sizes:
            raise self.mistake(f"{token} is the size of no argument", token)
        return size

    def tensor_named(self, token: Any) -> ex.Tensor:
        tensor = self.known(self.names, token, "array")
        assert isinstance(tensor, ex.Tensor)
        return tensor

    def formula(self, name: Any, indices: Any, type: Any, value: Any, *wheres: Any) -> list[Step]:
        known = dict(self.names)
        tensor = self.named(name, type)
        self.names = known.copy()  # without the array itself
        if len(indices.children) != tensor.rank:
            raise self.mistake(
                f"{name} has {tensor.rank} axes, got {len(indices.children)} indices", name
            )
        at = tuple(
            self.name(ex.Index(str(i)[1:], d))
            for i, d in zip(indices.children, tensor.shape, strict=True)
        )
        for where in wheres:
            variable, element, meaning = where.children
            self.names[str(variable)] = self.of_type(meaning, self.element(element), variable)
        value_of_type = self.of_type(value, tensor.element, name)
        self.names = {**known, str(name): tensor}
        return [Formula(tensor, at, value_of_type, self.span(name), (self.span(name),))]

    def of_type(self, tree: Any, element: ElementType, token: Any) -> ex.Expr:
        typed = self.typed(tree, element)
        if typed.type is not element:
            raise self.mistake(f"{token} is {element}, its value {typed.type}", token)
        return typed

    def constant(self, defined: Any, dense: Any) -> list[Step]:
        if dense is None:
            self.constants += self.defined(defined)
            return []
        (tensor,) = self.defined(defined, 1)
        if len(shape := tuple(d for d in tensor.shape if isinstance(d, int))) < tensor.rank:
            raise self.mistake("the sizes of a constant are known", dense)
        start = self.base + dense.start_pos
        data = read_dense(
            Token("DENSE", str(dense), start, start + len(dense)), shape, tensor.element
        )
        if isinstance(data, Mistake):
            raise ParseError(
                Diagnostic(data.message, Span(self.source, data.start, data.end), data.code)
            )
        self.data[tensor] = data.array
        return []

    def view(self, defined: Any, token: Any) -> list[Step]:
        of = self.tensor_named(token)
        (tensor,) = self.defined(defined, 1)
        self.view_of(tensor, of, token)
        at = ex.axes(tensor.shape)
        value = of[ex.unflatten(ex.flat_index(at, tensor.shape), of.shape)]
        return [View(tensor, of, Formula(tensor, at, value, self.span(token)))]

    def nest(self, defined: Any, operands: Any, body: Any) -> list[Step]:
        given = tuple(map(self.tensor_named, operands.children))
        tensors = self.defined(defined)
        known = dict(self.names)
        block = self.block(body)
        self.names = known
        return [Nest(tensors, given, block, self.span(defined))]

    def loop_over(self, defined: Any, steps: Any, operands: Any, program: Any) -> list[Step]:
        given = tuple(map(self.tensor_named, operands.children))
        known = self.steps(steps)
        inner = _Reader(self.source, self.base)
        inner.anonymous = self.anonymous
        inner.outer = self.sizes or self.outer
        inside = inner.formulas(*program.children, slices=known)
        held = tuple(
            ex.Tensor(f"{inside.name}.{t.name}", t.shape, t.element) for t in inner.constants
        )
        self.constants += held  # the same at every step
        given += held
        tensors = self.defined(defined)
        self.check_steps(known, given, tensors, inside, defined)
        return [LoopNest(tensors, given, (), self.span(defined), inside, known)]

    # expressions

    def read_read(self, expected: ElementType | None, name: Any, at: Any) -> ex.Expr:
        read = super().read_read(expected, name, at)
        if isinstance(read, ex.Read) and len(read.indices) != read.tensor.rank:
            raise self.mistake(
                f"{name} has {read.tensor.rank} axes, got {len(read.indices)} indices", name
            )
        return read

    def read_call(self, expected: ElementType | None, name: Any, *arguments: Any) -> ex.Expr | None:
        match str(name), arguments:
            case "when", (condition, *sides) if len(sides) == 2:
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
            case "check", (condition, value, message) if message.data == "text":
                call = self.expression(value, expected)
                said = unquoted(str(message.children[0]))
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
        return super().read_call(expected, name, *arguments)

    def read_reduction(
        self, expected: ElementType | None, name: Any, *parts: Any
    ) -> ex.Expr | None:
        *ranges, body = parts
        if (function := _FUNCTIONS.get(str(name), str(name))) not in SCALARS or SCALARS[
            function
        ].identity is None:
            raise self.mistake(
                f"there is no reduction {name}{did_you_mean(str(name), _REDUCING)}", name
            )
        known = dict(self.names)
        over = tuple(
            self.name(ex.Index(str(r.children[0])[1:], self.size(r.children[2]))) for r in ranges
        )
        reduced = self.expression(body, expected)
        self.names = known
        return None if reduced is None else ex.Reduce(function, over, reduced)


def _requirements(step: Step) -> Sequence[tuple[str, Span]]:
    match step:
        case LoopNest():
            return step.program.requirements
        case Formula():
            return [(e.message, e.span) for e in walk(step.value) if isinstance(e, ex.Check)]
    return ()
