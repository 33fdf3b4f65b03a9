"""Parse printed kernels (`dialect.kernel_ir.kernel_printer`), and loops over kernels.

Types of parameters, buffers and variables are in the text; the type of a literal follows from its
context. Each kernel is read on its own: a mistake in one hides none in the next.
"""

import ast
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import add, mul, sub
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeGuard, TypeVar, get_args

from ..dialect.kernel_ir import expressions as ex, loops as ir
from ..dialect.kernel_ir.execution_plan import Loop, Plan
from ..dialect.kernel_ir.formulas import Formulas
from ..dialect.kernel_ir.index_bounds import index_extent
from ..dialect.kernel_ir.kernel_printer import PRECEDENCE, Names, tensor_text
from ..dialect.kernel_ir.scalar_functions import SCALARS
from ..dialect.support.diagnostics import Diagnostic, ParseError, Source, Span, VerifyError
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.sizes import OPERATIONS, Dim, Size, may_be_same, product, same_size
from ..dialect.types.tensor_types import ELEMENT_TYPES, I1, I64, ElementType, TensorType
from ..dialect.types.unify import bind, with_sizes
from . import kernel_tree as tree
from .kernel_actions import UnexpectedToken, parse_members, parse_size
from .kernel_syntax_errors import CODE, syntax_errors
from .link_kernels import link_kernels
from .syntax_tree import ExpressionNode, Token

T = TypeVar("T")
N = TypeVar("N", ex.Index, ex.Var, ex.Tensor)

_BINARY = {row.symbol: name for name, row in SCALARS.items() if row.arity == 2 and row.symbol}
_PREFIX = {row.symbol: name for name, row in SCALARS.items() if row.arity == 1 and row.symbol}
_SIZES = {"floordiv": "//", "mul": "*", "max": "max", "min": "min"}
_SUMS = {"+": add, "-": sub, "*": mul}
assert all(symbol in _BINARY for level in PRECEDENCE for symbol in level)

KINDS: tuple[ir.LoopKind, ...] = get_args(ir.LoopKind)
SumOrder: TypeAlias = Literal["terms", "blocks"]
SUM_ORDERS: tuple[SumOrder, ...] = get_args(SumOrder)
MOST_CALLS = 500  # of kernels, whose statements stand in the place of each (by hand)
JUMPS = {"break": ir.Break, "continue": ir.Continue, "return": ir.Return}
_HEAD = re.compile(r"^([ \t]*)(?:kernel|loop|plan)\b", re.MULTILINE)
Places: TypeAlias = dict[ir.Statement, Span]


def read_kernels(
    text: str, filename: str = "<kernels>", known: Mapping[str, int] = MappingProxyType({})
) -> tuple[Plan, Places]:
    """The kernels of a text, linked but not yet verified, and the place of each statement; raises
    with a mistake of each. Named sizes may be `known`.
    """
    source = Source(filename, text)
    scope = KernelSymbols(source, known=known)
    heads = [*_HEAD.finditer(text)]
    bounds = [0, *(m.start() for m in heads[1:] if len(m[1]) <= len(heads[0][1])), len(text)]
    for start, end in pairwise(bounds):
        try:
            for node in parse_members(text, start, end):
                scope.read(node)
        except UnexpectedToken as e:
            scope.mistakes += syntax_errors(e, source, start, end)
        except RecursionError:
            scope.mistakes.append(
                Diagnostic("the kernels are nested too deeply to be read", Span(source, 0, 0), CODE)
            )
    if scope.mistakes:
        raise ParseError([*dict.fromkeys(scope.mistakes)])
    kernels = [k for k in scope.kernels if k.name not in scope.called]
    return link_kernels(kernels, scope.views, scope.sides, Span(source, 0, 0)), scope.places


@dataclass
class KernelSymbols:
    """The kernels of a text, or of the body of a loop, as far as they have been read."""

    source: Source
    sizes: dict[str, Dim] | None = None  # the anonymous ones of a loop
    known: Mapping[str, Dim] = field(default_factory=dict[str, Dim])  # named sizes with a value
    sliced: Set[str] = frozenset()  # the arrays of a loop's body that are slices of others
    sides: tuple[list[ex.Tensor], list[ex.Tensor]] = field(
        default_factory=lambda: ([], [])
    )  # that the text declares
    arrays: dict[str, ex.Tensor] = field(default_factory=dict[str, ex.Tensor])
    views: dict[ex.Tensor, ex.Tensor] = field(default_factory=dict[ex.Tensor, ex.Tensor])
    kernels: list[ir.Kernel] = field(default_factory=list[ir.Kernel])
    places: Places = field(default_factory=Places)
    mistakes: list[Diagnostic] = field(default_factory=list[Diagnostic])
    above: dict[str, tree.KernelNode] = field(default_factory=dict[str, tree.KernelNode])
    called: list[str] = field(default_factory=list[str])  # kernels, once for each call

    def read(self, node: tree.MemberNode) -> None:
        """Read a kernel, a loop, or a declaration of arguments and results."""
        reader = KernelReader(self.source, self)
        try:
            match node:
                case tree.KernelNode():
                    reader.kernel(node)
                case tree.KernelLoopNode():
                    reader.kernel_loop(node)
                case tree.PlanNode():
                    reader.plan(node)
        except (ParseError, VerifyError) as e:
            self.mistakes += e.diagnostics


class KernelReader:
    """The symbol table of one kernel."""

    def __init__(self, source: Source, scope: KernelSymbols | None = None) -> None:
        self.source = source
        self.scope = KernelSymbols(source) if scope is None else scope
        self.names: dict[
            str, ex.Expr | ex.Tensor
        ] = {}  # a name of a formula stands for any expression
        self.anonymous: dict[str, Dim] = {} if self.scope.sizes is None else self.scope.sizes

    def mistake(self, message: str, at: tree.Expression) -> ParseError:
        """A ParseError at a token, or at the first token of an expression."""
        return ParseError(Diagnostic(message, self.span(tree.first_token(at)), CODE))

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def known(self, table: Mapping[str, T], token: Token, what: str) -> T:
        name = token.text
        if name not in table:
            sigil = name[:1] if name[:1] in "%@?" else ""
            near = did_you_mean(
                name.removeprefix(sigil), [k.removeprefix(sigil) for k in table], sigil
            )
            raise self.mistake(f"there is no {what} {name}{near}", token)
        return table[name]

    def element(self, token: Token) -> ElementType:
        return self.known(ELEMENT_TYPES, token, "element type")

    # kernels

    def kernel(self, node: tree.KernelNode) -> None:
        parameters, results = self.parameters(node.inputs, node.outputs)
        order: Literal["either", "terms", "blocks"] = "either"
        if (word := node.sum_order) is not None:
            named = _one_of(SUM_ORDERS, word.text)
            if named is None:
                raise self.mistake(
                    f"expected sums terms or sums blocks, got sums {word.text}", word
                )
            order = named
        where = None if node.condition is None else self.typed(node.condition, I1)
        block = (*self.zeros(node.inputs, node.outputs, parameters), *self.block(node.body))
        kernel = ir.Kernel(
            node.name.name,
            parameters,
            block,
            results,
            self.span(node.name),
            where,
            order,
            scheduled=node.scheduled is not None or ir.may_jump(block),  # no pass reorders jumps
            aliasing=node.aliasing is not None,
        )
        self.scope.kernels.append(kernel)
        self.scope.above[node.name.text] = node

    def zeros(
        self,
        inputs: Sequence[tree.ParameterNode],
        outputs: Sequence[tree.ParameterNode],
        parameters: Sequence[ex.Tensor],
    ) -> ir.Block:
        """The nests that zero-fill results that the text declares as zeros."""
        if words := [p.zero for p in inputs if p.zero is not None]:
            raise self.mistake("only results and buffers are filled with zeros", words[0])
        results = parameters[len(parameters) - len(outputs) :]
        pairs = zip(outputs, results, strict=True)
        return tuple(s for node, t in pairs if node.zero is not None for s in ir.zeros(t))

    def kernel_loop(self, node: tree.KernelLoopNode) -> None:
        parameters, count = self.parameters(node.inputs, node.outputs)
        results = parameters[len(parameters) - count :]
        given = [self.tensor_named(v) for v in node.operands]
        how = self.steps(node.steps)
        inside = KernelSymbols(self.source, self.anonymous, self.scope.known)
        sides = node.plan.arguments, node.plan.results
        inside.sliced = {*how.sliced(*([t.name.text for t in side] for side in sides))}
        for member in (node.plan, *node.members):
            inside.read(member)
        self.scope.places |= inside.places
        if inside.mistakes:
            raise ParseError(inside.mistakes)
        plan = link_kernels(inside.kernels, inside.views, inside.sides, self.span(node.name))
        self.check_steps(how, given, results, plan, node.name)
        if how.trips is None:
            if given[1 : 1 + how.carry] != [*results]:
                raise self.mistake(
                    "what a loop with a condition carries lies in its results", node.operands[0]
                )
            del given[1 : 1 + how.carry]
            parameters = (*parameters[: len(parameters) - count], *results, *results)
        else:
            moved = [given[k] for n, k in how.moving.items() if plan.results[n] in plan.arguments]
            parameters = (*parameters[: len(parameters) - count], *moved, *results)
        loop = Loop(
            node.name.name,
            parameters,
            (),
            count,
            self.span(node.name),
            scheduled=True,
            steps=how,
            operands=tuple(map(parameters.index, given)),
        )
        self.scope.kernels.append(loop.with_plan(plan))

    def plan(self, node: tree.PlanNode) -> None:
        self.scope.sizes = self.anonymous
        for side, tensors in zip(self.scope.sides, node, strict=True):
            for t in tensors:
                side.append(self.tensor(t))
                self.scope.arrays.setdefault(f"%{side[-1].name}", side[-1])

    def parameters(
        self, inputs: Sequence[tree.ParameterNode], outputs: Sequence[tree.ParameterNode]
    ) -> tuple[tuple[ex.Tensor, ...], int]:
        """The parameters of a kernel, which may be views, and how many are results."""
        declared = [*inputs, *outputs]
        for node in declared:
            if node.of is None:
                self.same_sizes(node.tensor)
        parameters = tuple(self.tensor(node.tensor) for node in declared)
        views = {
            t: node.of for t, node in zip(parameters, declared, strict=True) if node.of is not None
        }
        arrays = {
            f"%{t.name}": t
            for t in parameters
            if (of := views.get(t)) is None or not of.text.startswith("%")
        }
        for t, of in views.items():
            home = (
                self.known(arrays, of, "array")
                if of.text[0] == "%"
                else ex.Tensor(t.name, *self.shaped(of))
            )
            self.scope.views[t] = self.view_of(t, home, of)
        self.scope.arrays = {
            f"%{t.name}": t for t in (self.scope.views.get(t, t) for t in parameters)
        } | self.scope.arrays
        return parameters, len(outputs)

    def same_sizes(self, node: tree.TensorNode) -> None:
        """Anonymous sizes of an array are those that it has in kernels before."""
        known, dims = self.scope.arrays.get(node.name.text), _split(node.type.text)[0]
        for text, n in (
            zip(dims, known.shape, strict=True)
            if known is not None and known.rank == len(dims)
            else ()
        ):
            if text[:1] == "?" and text[1:].isdigit():
                self.anonymous.setdefault(text, n)

    def steps(self, node: tree.StepsNode) -> ir.Steps:
        how = ir.Steps(
            int(node.carry.text),
            0 if node.scan is None else int(node.scan.text),
            None if node.trips is None else self.size(node.trips),
            node.reverse is not None,
        )
        if isinstance(how.trips, int) and not 0 < how.trips <= ir.MAX_STEPS:
            raise self.mistake(
                f"a loop takes between 1 and {ir.MAX_STEPS} steps, got {how.trips}", node.word
            )
        return how

    def check_steps(
        self,
        steps: ir.Steps,
        given: Sequence[ex.Tensor],
        found: Sequence[ex.Tensor],
        body: Formulas | Plan,
        at: Token,
    ) -> None:
        """Raise ParseError unless a loop is given, and gives, what its body takes and gives at
        every step, or slices of it.
        """
        first, carry, end = int(steps.trips is None), steps.carry, steps.carry + steps.scan
        taken, returned = body.arguments, body.results
        gives, counts = len(returned) - first, (len(given) - first, len(found))
        if counts != (len(taken), gives) or end > len(taken) or carry > gives:
            raise self.mistake(
                f"the body takes {len(taken)} arrays and gives {gives}, got {counts[0]} "
                f"and {counts[1]}",
                at,
            )

        def slices(arrays: Sequence[ex.Tensor], end: int) -> list[ex.Tensor]:
            trips = () if steps.trips is None else (steps.trips,)
            return [
                replace(t, shape=(*trips, *t.shape)) if carry <= n < end else t
                for n, t in enumerate(arrays)
            ]

        truth = [replace(t, shape=(), element=I1) for t in given[:first]]
        inside = (
            *truth,
            *slices(taken, end),
            *slices(returned[first:], gives),
            *taken[:carry],
            *truth,
        )
        for array, inner in zip(
            (*given, *found, *found[:carry], *returned[:first]), inside, strict=True
        ):
            same = array.rank == inner.rank and all(map(same_size, inner.shape, array.shape))
            if array.element is not inner.element or not same:
                wanted, got = (tensor_text(t, Names()).partition(": ")[2] for t in (inner, array))
                raise self.mistake(
                    f"%{array.name} is {wanted} by the body of the loop, got {got}", at
                )
        for n, result in enumerate(returned):
            if isinstance(body, Plan) and result in taken:
                k = steps.moving.get(n)
                if k is None or taken[k] is not result:
                    raise self.mistake(
                        f"%{result.name} is both an argument and a result of the body, which what "
                        "it carries may be, in its place",
                        at,
                    )
                if first == 0 and given[k] is not found[k]:
                    raise self.mistake(
                        f"what a loop updates in place lies in its result %{found[k].name}, got "
                        f"%{given[k].name}",
                        at,
                    )

    def tensor(self, node: tree.TensorNode, space: str = "argument") -> ex.Tensor:
        shape, element = self.shaped(node.type)
        if (
            space in ("argument", "heap")
            and node.name.text in self.scope.sliced
            and not ir.is_aligned(shape, element)
        ):
            space = "slice"
        return self.name(ex.Tensor(node.name.name, shape, element, space))

    def shaped(self, type: Token) -> tuple[tuple[Dim, ...], ElementType]:
        dims, element = _split(type.text)
        try:
            sizes = [parse_size(d.strip("[]")) for d in dims]
            return tuple(map(self.size, sizes)), ELEMENT_TYPES[element]
        except (KeyError, TypeError, UnexpectedToken):
            raise self.mistake(f"there is no type {type.text}", type) from None
        except ParseError as e:  # of a size
            raise self.mistake(e.diagnostics[0].message, type) from None

    def view_of(self, view: ex.Tensor, of: ex.Tensor, token: Token) -> ex.Tensor:
        """The array of a view, which has as many elements, or may have at a call."""
        if view.element is not of.element or not may_be_same(
            product(view.shape), product(of.shape)
        ):
            raise self.mistake(f"{token.text} has other elements than a view of it", token)
        return of

    # statements

    def name(self, e: N) -> N:
        self.names[f"%{e.name}"] = e
        return e

    def block(self, node: tree.BlockNode) -> ir.Block:
        places: Places = {}
        for s in node.statements:
            place = Span(self.source, s.word.start, s.end)
            for statement in self.statement(s):
                places[statement] = place
        self.scope.places |= places
        return tuple(places)

    def statement(self, node: tree.StatementNode) -> ir.Block:
        """The statement of a node, and the nests that fill a buffer that it allocates with
        zeros.
        """
        match node:
            case tree.ForNode():
                return (self.loop(node),)
            case tree.IfNode(_, condition, then, otherwise):
                test = self.typed(condition, I1)
                yes = self.block(then)
                return (ir.If(test, yes, () if otherwise is None else self.block(otherwise)),)
            case tree.LetNode(_, name, type, value):
                element = self.element(type)
                meaning = self.typed(value, element)
                return (ir.Let(self.name(ex.Var(name.name, element)), meaning),)
            case tree.RegisterNode(_, name, type, zero):
                register = ex.Tensor(name.name, (), self.element(type), "register")
                return self.allocated(self.name(register), zero)
            case tree.BufferNode(_, space, tensor, zero):
                return self.allocated(self.tensor(tensor, space.text), zero)
            case tree.StoreNode(name, at, value, streaming):
                target = self.buffer_named(name, "stored to")
                indices = self.indices(at)
                stored = self.typed(value, target.element)
                return (ir.Store(target, indices, stored, streaming is not None),)
            case tree.AssertNode(_, condition, message):
                test = self.typed(condition, I1)
                return (ir.Assert(test, unquoted(message.text), self.span(message)),)
            case tree.PrefetchNode(_, name, at):
                return (ir.Prefetch(self.buffer_named(name, "prefetched"), self.indices(at)),)
            case tree.WhileNode(_, condition, body):
                return (ir.While(self.typed(condition, I1), self.block(body)),)
            case tree.JumpNode(word):
                return (JUMPS[word.text](),)
            case tree.FailNode(_, message):
                return (ir.Fail(unquoted(message.text), self.span(message)),)
            case tree.CallNode():
                return self.called_kernel(node)

    def allocated(self, tensor: ex.Tensor, zero: Token | None) -> ir.Block:
        return (ir.Alloc(tensor), *(() if zero is None else ir.zeros(tensor)))

    def called_kernel(self, node: tree.CallNode) -> ir.Block:
        """The statements of a kernel above this one, on these arrays: `call @k(%x) -> (%y)`."""
        callee = self.known(self.scope.above, node.name, "kernel above this one")
        self.scope.called.append(callee.name.name)
        if len(self.scope.called) > MOST_CALLS:
            raise self.mistake(
                f"a text has at most {MOST_CALLS} calls, counted in calls", node.name
            )
        for what, wanted, given in (
            ("operands", callee.inputs, node.operands),
            ("results", callee.outputs, node.results),
        ):
            if len(wanted) != len(given):
                message = f"{node.name.text} has {len(wanted)} {what}, got {len(given)}"
                raise self.mistake(message, node.name)
        statements: list[ir.Statement] = []
        arrays: dict[str, ex.Tensor] = {}
        types: list[tuple[TensorType, TensorType, tree.Expression]] = []
        plain = KernelReader(self.source, KernelSymbols(self.source))
        for p, operand in zip(callee.inputs, node.operands, strict=True):
            shape, element = plain.shaped(p.tensor.type)
            match operand:
                case tree.AccessNode(name, None) if shape or self.is_updated(callee, p):
                    array = self.buffer_named(name, "an operand")
                case _ if not shape:
                    array = ex.Tensor(p.tensor.name.name, (), element, "register")
                    value = ir.assign(array, self.typed(operand, element))
                    statements += [ir.Alloc(array), value]
                case _:
                    raise self.mistake(f"{p.tensor.name.text} is an array: name one", operand)
            arrays[p.tensor.name.text] = array
            types.append((TensorType(shape, element), _type_of(array), operand))
        written: list[ex.Tensor] = []

        def memory(array: ex.Tensor) -> ex.Tensor:
            return self.scope.views.get(array, array)

        for p, name in zip(callee.outputs, node.results, strict=True):
            array = self.buffer_named(name, "a result")
            home = None if p.of is None else arrays.get(p.of.text)
            taken = [*written, *(arrays.values() if home is None else ())]
            apart = home is not None and memory(home) is not memory(array)
            if apart or memory(array) in map(memory, taken):
                own = f"that of {p.of.text}" if p.of is not None else "an array of its own"
                raise self.mistake(f"the result {p.tensor.name.text} is {own}", name)
            arrays[p.tensor.name.text] = array
            written.append(array)
            types.append((TensorType(*plain.shaped(p.tensor.type)), _type_of(array), name))
        sizes = self.sizes_of(node.name, types)
        scope = self.scope
        inner = KernelReader(
            self.source, KernelSymbols(self.source, known=sizes, above=scope.above)
        )
        inner.scope.places, inner.scope.called = scope.places, scope.called
        inner.scope.views = scope.views
        inner.names.update(arrays)
        statements += inner.zeros(callee.inputs, callee.outputs, written)
        body = inner.block(callee.body)
        if any(isinstance(s, ir.Return) for s in ir.statements(body)):
            raise self.mistake("a kernel that is called has no return", node.name)
        read = {t for t in arrays.values() if t not in written}
        if stored := [s.tensor for s in ir.statements(body) if isinstance(s, ir.Store)]:
            for name, t in arrays.items():
                if t in read and t in stored:
                    message = f"{node.name.text} stores into {name}, which is no result of it"
                    raise self.mistake(message, node.name)
        if callee.condition is not None:
            body = (ir.If(inner.typed(callee.condition, I1), body),)
        return (*statements, *body)

    def is_updated(self, callee: tree.KernelNode, p: tree.ParameterNode) -> bool:
        """Test whether a result lies in an argument."""
        return any(r.of is not None and r.of.text == p.tensor.name.text for r in callee.outputs)

    def sizes_of(
        self, name: Token, types: Sequence[tuple[TensorType, TensorType, tree.Expression]]
    ) -> dict[str, Dim]:
        """The sizes that a called kernel names, by the arrays it is given."""
        declared, given = [d for d, _, _ in types], [g for _, g, _ in types]
        bound = {}
        if all(d.rank == g.rank for d, g in zip(declared, given, strict=True)):
            bound = bind(declared, given)
            declared = [with_sizes(d, bound) for d in declared]
        for wanted, (_, got, at) in zip(declared, types, strict=True):
            same = wanted.element is got.element and wanted.rank == got.rank
            if not (same and all(map(same_size, wanted.array_shape, got.array_shape))):
                raise self.mistake(f"{name.text} takes {wanted} here, got {got}", at)
        return {atom[0]: size for atom, size in bound.items() if len(atom) == 1}

    def stepped(self, node: tree.ForNode, step: tree.StrideNode) -> ir.For:
        """A loop over numbers that are a step apart, of which the first is in the loop, as a loop
        over how many there are: for %i in a..b step 2 => for %i.n in 0..(b - a + 1) // 2.
        """
        size = int(step.size.text)
        if not 0 < size < 1 << 31:
            raise self.mistake("a step is a number of 31 bits that is not 0", step.size)
        if node.extent is not None:
            raise self.mistake("a loop with a step states no extent by `of`", node.variable)
        first, last = self.typed(node.first, I64), self.typed(node.last, I64)
        low, high = (last, first) if step.is_down else (first, last)
        count = ex.maximum(0, (high - low + (size - 1)) // size)
        index = ex.Index(f"{node.variable.name}.n", index_extent(count))
        var = self.name(ex.Var(node.variable.name, I64))
        value = first - index * size if step.is_down else first + index * size
        kind = self.kind(node.kind)
        body = (ir.Let(var, value), *self.block(node.body))
        return ir.For(index, body, ex.ZERO, count, *kind)

    def loop(self, node: tree.ForNode) -> ir.For:
        if node.stride is not None:
            return self.stepped(node, node.stride)
        first, last = self.typed(node.first, I64), self.typed(node.last, I64)
        if isinstance(first, ex.Const) and not first.value:
            first = ex.ZERO  # passes compare the start with it
        bound = index_extent(last) if node.extent is None else self.size(node.extent)
        index = self.name(ex.Index(node.variable.name, bound))
        kind = self.kind(node.kind)
        known = last.value if isinstance(last, ex.Const) else getattr(last, "size", None)
        whole = node.extent is None and known is not None and same_size(known, bound)
        end = None if whole else last
        return ir.For(index, self.block(node.body), first, end, *kind)

    def kind(self, node: tree.KindNode | None) -> tuple[ir.LoopKind, int, int, str]:
        """The kind of a loop, its width and its overlap, and the intrinsic that it is."""
        if node is None:
            return "serial", 1, 0, ""
        word, by, width, overlap = node
        kind = _one_of(KINDS, word.text)
        if kind is None:
            raise self.mistake(
                f"expected a kind of loop, {', '.join(KINDS)}, got {word.text}"
                f"{did_you_mean(word.text, KINDS)}",
                word,
            )
        if width is None and kind == "vector":
            raise self.mistake("a vector loop has a width, as in vector 8", word)
        if width is not None and kind != "vector":
            raise self.mistake(f"{kind} loops have no width", width)
        if (by is None) is (kind == "intrinsic"):
            named = "an intrinsic loop names the intrinsic, as in intrinsic dot4"
            raise self.mistake(named if by is None else f"{kind} loops have no name", by or word)
        steps = 1 if width is None else int(width.text)
        shared = 0 if overlap is None else int(overlap.text)
        return kind, steps, shared, "" if by is None else by.text

    def buffer_named(self, name: Token, use: str) -> ex.Tensor:
        if not isinstance(tensor := self.known(self.names, name, "buffer"), ex.Tensor):
            raise self.mistake(f"{name.text} is no buffer that could be {use}", name)
        return tensor

    def tensor_named(self, name: Token) -> ex.Tensor:
        tensor = self.known(self.names, name, "array")
        assert isinstance(tensor, ex.Tensor)
        return tensor

    def indices(self, node: tree.IndicesNode | None) -> tuple[ex.Expr, ...]:
        return () if node is None else tuple(self.typed(i, I64) for i in node.indices)

    # expressions

    def typed(self, node: tree.Expression, expected: ElementType | None) -> ex.Expr:
        if (e := self.expression(node, expected)) is None:
            raise self.mistake("the type of this literal is not known; (1 : i32) says it", node)
        return e

    def expression(self, node: tree.Expression, expected: ElementType | None) -> ex.Expr | None:
        """The expression; None if it is made of literals and no type is expected."""
        match node:
            case Token():
                return self.leaf(node, expected)
            case tree.AccessNode():
                return self.access(node)
            case tree.AscribedNode(value, type):
                return self.expression(value, self.element(type))
            case tree.SizeNode(_, size):
                return ex.as_index(self.size(size))
            case tree.ReductionNode():
                return self.reduction(node, expected)
            case ExpressionNode(Token(type="NAME") as name, operands):
                return self.call(name, operands, expected)
            case ExpressionNode(mark, [operand]):
                if mark.text == "-" and _is_number(operand):
                    return self.literal(operand, expected, "-")
                return self.applied(_PREFIX[mark.text], [operand], expected)
            case ExpressionNode(mark, operands):
                return self.applied(_BINARY[mark.text], operands, expected)

    def leaf(self, token: Token, expected: ElementType | None) -> ex.Expr | None:
        match token.type:
            case "BOOLEAN":
                return ex.Const(token.text == "true", I1)
            case "SIZE":
                return ex.as_index(self.atom(token))
            case "NAME" | "STRING":
                kind = "the name " if token.type == "NAME" else ""
                raise self.mistake(f"expected an operand, got {kind}{token.text}", token)
        return self.literal(token, expected)

    def literal(self, token: Token, type: ElementType | None, sign: str = "") -> ex.Expr | None:
        if type is None:
            return None
        text = sign + token.text
        try:
            value = float(text) if type.kind == "float" else int(text)
        except ValueError:
            value = None
        fits = not type.is_discrete or value is None or type.limits[0] <= value <= type.limits[1]
        if value is None or not fits:
            raise self.mistake(f"expected a literal of type {type}, got {text}", token)
        return ex.Const(value, type)

    def access(self, node: tree.AccessNode) -> ex.Expr:
        named = self.known(self.names, node.name, "value")
        return ex.Read(named, self.indices(node.indices)) if isinstance(named, ex.Tensor) else named

    def call(
        self, name: Token, arguments: Sequence[tree.Expression], expected: ElementType | None
    ) -> ex.Expr | None:
        if (function := name.text) == "misalignment":
            return self.misalignment(name, arguments)
        if function == "bitcast" or function in ELEMENT_TYPES:
            operand = self.typed(arguments[0], None)
            if function in ELEMENT_TYPES:
                return ex.Cast(operand, ELEMENT_TYPES[function])
            match arguments:
                case [_, Token(type="NAME") as type]:
                    return ex.Bitcast(operand, self.element(type))
            raise self.mistake("expected bitcast(value, type)", name)
        if len(arguments) != self.known(SCALARS, name, "function").arity:
            raise self.mistake(
                f"{function} takes {SCALARS[function].arity} operands, got {len(arguments)}", name
            )
        return self.applied(function, arguments, expected)

    def reduction(self, node: tree.ReductionNode, expected: ElementType | None) -> ex.Expr | None:
        raise self.mistake("kernels reduce by loops; reductions stand in formulas", node)

    def misalignment(self, name: Token, arguments: Sequence[tree.Expression]) -> ex.Expr:
        match arguments:
            case [tree.AccessNode(of, None), Token(type="INTEGER") as count] if int(count.text) > 0:
                if isinstance(tensor := self.known(self.names, of, "tensor"), ex.Tensor):
                    return ex.Misalignment(tensor, int(count.text))
        raise self.mistake("expected misalignment(tensor, elements of a line)", name)

    def applied(
        self, function: str, given: Sequence[tree.Expression], expected: ElementType | None
    ) -> ex.Expr | None:
        row = SCALARS[function]
        chooses = [self.typed(given[0], I1)] if function == "select" else []
        given = given[len(chooses) :]
        if (type := None if row.predicate or row.element else expected) is None:
            known = (e.type for node in given if (e := self.expression(node, None)) is not None)
            type = next(known, None if row.predicate else expected)
        if type is None:
            return None
        operands = (*chooses, *(self.typed(node, type) for node in given))
        if not row.takes(*(o.type for o in operands)):
            types = ", ".join(str(o.type) for o in operands)
            raise self.mistake(f"{row.symbol or function} does not take ({types})", given[0])
        return ex.Apply(function, operands, row.result(*(o.type for o in operands)))

    # sizes

    def atom(self, token: Token) -> Dim:
        if token.name.isdigit():
            return self.anonymous.setdefault(token.text, Size.unknown())
        found = self.scope.known.get(token.name)
        return Size.named(token.name) if found is None else found

    def size(self, node: tree.Expression) -> Dim:
        match node:
            case Token(type="SIZE"):
                return self.atom(node)
            case Token(text=text):
                return int(text)
            case tree.SizeNode(_, size):
                return self.size(size)
            case ExpressionNode(Token(type="NAME") as name, [a, b]):
                if _SIZES.get(name.text) not in OPERATIONS:
                    raise self.mistake(f"there is no function of sizes {name.text}", name)
                first, second, operation = self.size(a), self.size(b), _SIZES[name.text]
                if isinstance(first, int) and isinstance(second, int):
                    return OPERATIONS[operation](first, second)
                return Size.of_atom((operation, first, second))
            case ExpressionNode(_, [Token(text=text)]):
                return -int(text)
            case ExpressionNode(mark, [a, b]):
                if mark.text not in _SUMS:
                    raise self.mistake(f"sizes are joined by +, - and *, got {mark.text}", mark)
                return _SUMS[mark.text](self.size(a), self.size(b))
        raise TypeError(f"no size: {node}")


def _one_of(known: Sequence[T], text: str) -> T | None:
    """The one of some literal types that a text spells."""
    return next((k for k in known if k == text), None)


def _type_of(array: ex.Tensor) -> TensorType:
    return TensorType(array.shape, array.element)


def _is_number(node: tree.Expression) -> TypeGuard[Token]:
    return isinstance(node, Token) and node.type in ("INTEGER", "FLOAT")


def _split(type: str) -> tuple[list[str], str]:
    """The texts of a type's sizes and of its elements."""
    parts = re.fullmatch(r"tensor<(?:(.*)( x |(?<! )x))?(complex<\w+>|\w+?)>", type)
    shape, apart, element = parts.groups() if parts else (None, "", "")
    return [] if shape is None else shape.split(apart), element


def unquoted(text: str) -> str:
    return ast.literal_eval(
        re.sub(r"\\u\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", text)
    )
