"""Parse printed kernels (`dialect.kernel_ir.kernel_printer`), and loops over kernels.

Types of parameters, buffers and variables are in the text; the type of a literal follows from its
context. Each kernel is read on its own: a mistake in one hides none in the next.
"""

import ast
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from operator import add, mul, sub
from typing import Any, TypeAlias, TypeVar, get_args

from lark.exceptions import LarkError, UnexpectedInput

from ..dialect.kernel_ir import expressions as ex, loops as ir
from ..dialect.kernel_ir.execution_plan import Loop, Plan
from ..dialect.kernel_ir.formulas import Formulas
from ..dialect.kernel_ir.index_bounds import index_extent
from ..dialect.kernel_ir.kernel_printer import PRECEDENCE, Names, tensor_text
from ..dialect.kernel_ir.scalar_functions import SCALARS
from ..dialect.support.diagnostics import Diagnostic, ParseError, Source, Span, VerifyError
from ..dialect.support.suggest import did_you_mean
from ..dialect.types.sizes import OPERATIONS, Dim, Size, may_be_same, product, same_size
from ..dialect.types.tensor_types import ELEMENT_TYPES, I1, I64, ElementType
from ..grammar import read
from .kernel_syntax_errors import CODE, syntax_errors
from .link_kernels import link_kernels

T = TypeVar("T")

_BINARY = {row.symbol: name for name, row in SCALARS.items() if row.arity == 2 and row.symbol}
_PREFIX = {row.symbol: name for name, row in SCALARS.items() if row.arity == 1 and row.symbol}
_SIZES = {"floordiv": "//", "mul": "*", "max": "max", "min": "min"}
assert all(symbol in _BINARY for level in PRECEDENCE for symbol in level)

KINDS: tuple[ir.LoopKind, ...] = get_args(ir.LoopKind)
_HEAD = re.compile(r"^([ \t]*)(?:kernel|loop|plan)\b", re.MULTILINE)
Places: TypeAlias = dict[ir.Statement, Span]


def read_kernels(text: str, filename: str = "<kernels>") -> tuple[Plan, Places]:
    """The kernels of a text, linked but not yet verified, and the place of each statement; raises
    with a mistake of each.
    """
    source = Source(filename, text)
    found = Scope(source)
    heads = [*_HEAD.finditer(text)]
    bounds = [0, *(m.start() for m in heads[1:] if len(m[1]) <= len(heads[0][1])), len(text)]
    for start, end in pairwise(bounds):
        try:
            for tree in language().parse(text[start:end], start="start").children:
                found.read(tree, start)
        except UnexpectedInput as e:
            found.mistakes += syntax_errors(e, source, start, end, language().parse)
        except RecursionError:
            found.mistakes.append(
                Diagnostic("the kernels are nested too deeply to be read", Span(source, 0, 0), CODE)
            )
    if found.mistakes:
        raise ParseError(found.mistakes)
    return link_kernels(found.kernels, found.views, found.sides, Span(source, 0, 0)), found.places


@dataclass
class Scope:
    """The kernels of a text, or of the body of a loop, as far as they have been read."""

    source: Source
    sizes: dict[str, Dim] | None = None  # the anonymous ones of a loop
    sliced: Set[str] = frozenset()  # the arrays of a loop's body that are slices of others
    sides: tuple[list[ex.Tensor], list[ex.Tensor]] = field(
        default_factory=lambda: ([], [])
    )  # that the text declares
    arrays: dict[str, ex.Tensor] = field(default_factory=dict[str, ex.Tensor])
    views: dict[ex.Tensor, ex.Tensor] = field(default_factory=dict[ex.Tensor, ex.Tensor])
    kernels: list[ir.Kernel] = field(default_factory=list[ir.Kernel])
    places: Places = field(default_factory=Places)
    mistakes: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def read(self, tree: Any, base: int) -> None:
        """Read a kernel, a loop, or a declaration of arguments and results."""
        try:
            getattr(KernelReader(self.source, base, self), tree.data)(*tree.children)
        except (ParseError, VerifyError) as e:
            self.mistakes += e.diagnostics


@cache
def language() -> Any:
    """The parser of kernels, formulas and sizes."""
    from lark import Lark

    start = ["start", "size_sum", "formulas"]
    return Lark(
        read("loops.lark"),
        parser="lalr",
        start=start,
        maybe_placeholders=True,
        propagate_positions=True,
    )


class KernelReader:
    """The symbol table of one kernel."""

    def __init__(self, source: Source, base: int, scope: Scope | None = None) -> None:
        self.source = source
        self.base = base  # where the text that is read begins
        self.scope = Scope(source) if scope is None else scope
        self.names: dict[
            str, ex.Expr | ex.Tensor
        ] = {}  # a name of a formula stands for any expression
        self.anonymous: dict[str, Dim] = {} if self.scope.sizes is None else self.scope.sizes

    def mistake(self, message: str, token: Any) -> ParseError:
        """A ParseError at a token, or at the first token of a tree."""
        tokens = [token] if isinstance(token, str) else list(token.scan_values(lambda _: True))
        start = self.base + (getattr(tokens[0], "start_pos", None) or 0 if tokens else 0)
        end = start + len(tokens[0]) if tokens else start
        return ParseError(Diagnostic(message, Span(self.source, start, end), CODE))

    def span(self, item: Any) -> Span:
        """The place of a token or a tree."""
        at = getattr(item, "meta", item)
        return Span(self.source, self.base + at.start_pos, self.base + at.end_pos)

    def known(self, table: Mapping[str, T], token: Any, what: str) -> T:
        if str(token) not in table:
            sigil = str(token)[:1] if str(token)[:1] in "%@?" else ""
            near = did_you_mean(
                str(token).removeprefix(sigil), [k.removeprefix(sigil) for k in table], sigil
            )
            raise self.mistake(f"there is no {what} {token}{near}", token)
        return table[str(token)]

    def element(self, token: Any) -> ElementType:
        return self.known(ELEMENT_TYPES, token, "element type")

    # kernels

    def kernel(self, *parts: Any) -> None:
        name, inputs, outputs, condition, order, aliasing, scheduled, body = parts
        parameters, results = self.parameters(inputs, outputs)
        if order not in (None, "terms", "blocks"):
            raise self.mistake(f"expected sums terms or sums blocks, got sums {order}", order)
        where = None if condition is None else self.typed(condition, I1)
        how: Any = "either" if order is None else str(order)
        block = (*self.zeros(inputs, outputs, parameters), *self.block(body))
        final = scheduled is not None or ir.may_jump(block)  # no pass reorders jumps
        given = parameters, block, results, self.span(name), where, how, final
        self.scope.kernels.append(ir.Kernel(name[1:], *given, aliasing=aliasing is not None))

    def zeros(self, inputs: Any, outputs: Any, parameters: Sequence[ex.Tensor]) -> ir.Block:
        """The nests that zero-fill results that the text declares as zeros."""
        if words := [t.children[1] for t in inputs.children if t and t.children[1]]:
            raise self.mistake("only results and buffers are filled with zeros", words[0])
        trees = [t for t in outputs.children if t is not None]
        results = parameters[len(parameters) - len(trees) :]
        pairs = zip(trees, results, strict=True)
        return tuple(s for tree, t in pairs if tree.children[1] for s in ir.zeros(t))

    def kernel_loop(self, *parts: Any) -> None:
        name, inputs, outputs, steps, operands, head, *bodies = parts
        parameters, count = self.parameters(inputs, outputs)
        results = parameters[len(parameters) - count :]
        given: Any = [self.known(self.names, v, "array") for v in operands.children]
        how = self.steps(steps)
        inside = Scope(self.source, self.anonymous)
        inside.sliced = {
            *how.sliced(
                *([str(t.children[0]) for t in side.children if t] for side in head.children)
            )
        }
        for tree in (head, *bodies):
            inside.read(tree, self.base)
        self.scope.places |= inside.places
        if inside.mistakes:
            raise ParseError(inside.mistakes)
        plan = link_kernels(inside.kernels, inside.views, inside.sides, self.span(name))
        self.check_steps(how, given, results, plan, name)
        if how.trips is None:
            if given[1 : 1 + how.carry] != [*results]:
                raise self.mistake(
                    "what a loop with a condition carries lies in its results", operands
                )
            del given[1 : 1 + how.carry]
            parameters = (*parameters[: len(parameters) - count], *results, *results)
        loop = Loop(name[1:], parameters, (), count, self.span(name), scheduled=True, steps=how)
        self.scope.kernels.append(
            replace(loop, operands=tuple(map(parameters.index, given))).with_plan(plan)
        )

    def plan(self, *sides: Any) -> None:
        self.scope.sizes = self.anonymous
        for side, trees in zip(self.scope.sides, sides, strict=True):
            for t in trees.children:
                side.append(self.tensor(t))
                self.scope.arrays.setdefault(f"%{side[-1].name}", side[-1])

    def parameters(self, inputs: Any, outputs: Any) -> tuple[tuple[ex.Tensor, ...], int]:
        """The parameters of a kernel, which may be views, and how many are results."""
        declared = [t.children for t in (*inputs.children, *outputs.children) if t is not None]
        for t in (t for t, _, of in declared if of is None):
            self.same_sizes(*t.children)
        found = tuple(self.tensor(t) for t, _, _ in declared)
        views = {t: of for t, (_, _, of) in zip(found, declared, strict=True) if of is not None}
        arrays = {f"%{t.name}": t for t in found if not views.get(t, "").startswith("%")}
        for t, of in views.items():
            home = (
                self.known(arrays, of, "array")
                if of[0] == "%"
                else ex.Tensor(t.name, *self.shaped(of))
            )
            self.scope.views[t] = self.view_of(t, home, of)
        self.scope.arrays = {
            f"%{t.name}": t for t in (self.scope.views.get(t, t) for t in found)
        } | self.scope.arrays
        return found, sum(t is not None for t in outputs.children)

    def same_sizes(self, name: Any, type: Any) -> None:
        """Anonymous sizes of an array are those that it has in kernels before."""
        known, dims = self.scope.arrays.get(str(name)), _split(type)[0]
        for text, n in (
            zip(dims, known.shape, strict=True)
            if known is not None and known.rank == len(dims)
            else ()
        ):
            if text[:1] == "?" and text[1:].isdigit():
                self.anonymous.setdefault(text, n)

    def steps(self, tree: Any) -> ir.Steps:
        parts: Any = tree.children if len(tree.children) == 4 else (None, *tree.children, 0, None)
        trips, carry, scan, reverse = parts
        how = ir.Steps(
            int(carry), int(scan), None if trips is None else self.size(trips), reverse is not None
        )
        if isinstance(how.trips, int) and not 0 < how.trips <= ir.MAX_STEPS:
            raise self.mistake(
                f"a loop takes between 1 and {ir.MAX_STEPS} steps, got {how.trips}", tree
            )
        return how

    def check_steps(
        self,
        steps: ir.Steps,
        given: Sequence[ex.Tensor],
        found: Sequence[ex.Tensor],
        body: Formulas | Plan,
        at: Any,
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

        def slices(arrays: Sequence[ex.Tensor], end: int) -> list[Any]:
            return [
                replace(t, shape=(steps.trips, *t.shape)) if carry <= n < end else t
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

    def tensor(self, tree: Any, space: str = "argument") -> ex.Tensor:
        value, type = tree.children
        shape, element = self.shaped(type)
        if (
            space in ("argument", "heap")
            and str(value) in self.scope.sliced
            and not ir.is_aligned(shape, element)
        ):
            space = "slice"
        return self.name(ex.Tensor(str(value)[1:], shape, element, space))

    def shaped(self, type: Any) -> tuple[tuple[Dim, ...], ElementType]:
        dims, element = _split(type)
        try:
            shape = tuple(
                self.size(language().parse(d.strip("[]"), start="size_sum")) for d in dims
            )
            return shape, ELEMENT_TYPES[element]
        except (KeyError, TypeError, LarkError):
            raise self.mistake(f"there is no type {type}", type) from None
        except ParseError as e:  # of a size
            raise self.mistake(e.diagnostics[0].message, type) from None

    def view_of(self, view: ex.Tensor, of: ex.Tensor, token: Any) -> ex.Tensor:
        """The array of a view, which has as many elements, or may have at a call."""
        if view.element is not of.element or not may_be_same(
            product(view.shape), product(of.shape)
        ):
            raise self.mistake(f"{token} has other elements than a view of it", token)
        return of

    # statements

    def name(self, e: Any) -> Any:
        self.names[f"%{e.name}"] = e
        return e

    def block(self, tree: Any) -> ir.Block:
        places: Places = {}
        for s in tree.children:
            statement = getattr(self, s.data)(*s.children)
            zero = s.data in ("register", "buffer") and s.children[-1] is not None
            for made in (statement, *(ir.zeros(statement.tensor) if zero else ())):
                places[made] = self.span(s)
        self.scope.places |= places
        return tuple(places)

    def loop(
        self, name: Any, extent: Any, start: Any, stop: Any, kind: Any, body: Any
    ) -> ir.Statement:
        first, last = self.typed(start, I64), self.typed(stop, I64)
        if isinstance(first, ex.Const) and not first.value:
            first = ex.ZERO  # passes compare the start with it
        bound = index_extent(last) if extent is None else self.size(extent)
        index = self.name(ex.Index(str(name)[1:], bound))
        how, width, overlap = kind.children if kind is not None else ("serial", None, None)
        spelled: ir.LoopKind | None = next((k for k in KINDS if k == how), None)
        if spelled is None:
            raise self.mistake(
                f"expected a kind of loop, {', '.join(KINDS)}, got {how}{did_you_mean(how, KINDS)}",
                how,
            )
        if (width is None) is (how == "vector"):
            said = (
                "a vector loop has a width, as in vector 8"
                if width is None
                else f"a {how} loop has no width"
            )
            raise self.mistake(said, width or how)
        known = last.value if isinstance(last, ex.Const) else getattr(last, "size", None)
        whole = extent is None and known is not None and same_size(known, bound)
        end = None if whole else last
        return ir.For(
            index, self.block(body), first, end, spelled, int(width or 1), int(overlap or 0)
        )

    def branch(self, condition: Any, then: Any, otherwise: Any) -> ir.Statement:
        return ir.If(
            self.typed(condition, I1),
            self.block(then),
            () if otherwise is None else self.block(otherwise),
        )

    def let(self, name: Any, type: Any, value: Any) -> ir.Statement:
        element = self.element(type)
        found = self.typed(value, element)
        return ir.Let(self.name(ex.Var(str(name)[1:], element)), found)

    def register(self, name: Any, type: Any, _: Any) -> ir.Statement:
        return ir.Alloc(self.name(ex.Tensor(str(name)[1:], (), self.element(type), "register")))

    def buffer(self, space: Any, tensor: Any, _: Any) -> ir.Statement:
        return ir.Alloc(self.tensor(tensor, str(space)))

    def store(self, name: Any, at: Any, value: Any, streaming: Any) -> ir.Statement:
        tensor = self.buffer_named(name, "stored to")
        return ir.Store(
            tensor, self.indices(at), self.typed(value, tensor.element), streaming is not None
        )

    def assert_(self, condition: Any, message: Any) -> ir.Statement:
        return ir.Assert(self.typed(condition, I1), unquoted(str(message)), self.span(message))

    def while_(self, condition: Any, body: Any) -> ir.Statement:
        return ir.While(self.typed(condition, I1), self.block(body))

    def break_(self) -> ir.Statement:
        return ir.Break()

    def continue_(self) -> ir.Statement:
        return ir.Continue()

    def return_(self) -> ir.Statement:
        return ir.Return()

    def fail(self, message: Any) -> ir.Statement:
        return ir.Fail(unquoted(str(message)), self.span(message))

    def prefetch(self, name: Any, at: Any) -> ir.Statement:
        return ir.Prefetch(self.buffer_named(name, "prefetched"), self.indices(at))

    def buffer_named(self, name: Any, use: str) -> ex.Tensor:
        if not isinstance(tensor := self.known(self.names, name, "buffer"), ex.Tensor):
            raise self.mistake(f"{name} is no buffer that could be {use}", name)
        return tensor

    def indices(self, tree: Any) -> tuple[ex.Expr, ...]:
        return (
            ()
            if tree is None
            else tuple(self.typed(i, I64) for i in tree.children if i is not None)
        )

    # expressions

    def typed(self, tree: Any, expected: ElementType | None) -> ex.Expr:
        if (found := self.expression(tree, expected)) is None:
            raise self.mistake("the type of this literal is not known; (1 : i32) says it", tree)
        return found

    def expression(self, tree: Any, expected: ElementType | None) -> ex.Expr | None:
        """The expression; None if it is made of literals and no type is expected."""
        if tree.data in ("type_name", "text"):
            kind = "the name " if tree.data == "type_name" else ""
            raise self.mistake(f"expected an operand, got {kind}{tree.children[0]}", tree)
        return getattr(self, f"read_{tree.data}")(expected, *tree.children)

    def literal(self, token: Any, type: ElementType | None, sign: str = "") -> ex.Expr | None:
        if type is None:
            return None
        try:
            return ex.Const(
                float(sign + token) if type.kind == "float" else int(sign + token), type
            )
        except ValueError:
            raise self.mistake(
                f"expected a literal of type {type}, got {sign}{token}", token
            ) from None

    def read_integer(self, expected: ElementType | None, token: Any) -> ex.Expr | None:
        return self.literal(token, expected)

    read_real = read_integer

    def read_boolean(self, _: ElementType | None, token: Any) -> ex.Expr:
        return ex.Const(str(token) == "true", I1)

    def read_ascribed(self, _: ElementType | None, value: Any, type: Any) -> ex.Expr | None:
        return self.expression(value, self.element(type))

    def read_read(self, expected: ElementType | None, name: Any, at: Any) -> ex.Expr:
        found = self.known(self.names, name, "value")
        return ex.Read(found, self.indices(at)) if isinstance(found, ex.Tensor) else found

    def read_binary(
        self, expected: ElementType | None, a: Any, symbol: Any, b: Any
    ) -> ex.Expr | None:
        return self.applied(_BINARY[str(symbol)], [a, b], expected)

    def read_prefix(self, expected: ElementType | None, symbol: Any, a: Any) -> ex.Expr | None:
        if symbol == "-" and a.data in ("integer", "real"):
            return self.literal(a.children[0], expected, "-")
        return self.applied(_PREFIX[str(symbol)], [a], expected)

    def read_call(self, expected: ElementType | None, name: Any, *arguments: Any) -> ex.Expr | None:
        if (function := str(name)) == "misalignment":
            return self.misalignment(name, arguments)
        if function == "bitcast" or function in ELEMENT_TYPES:
            operand = self.typed(arguments[0], None)
            if function in ELEMENT_TYPES:
                return ex.Cast(operand, ELEMENT_TYPES[function])
            if len(arguments) != 2 or arguments[1].data != "type_name":
                raise self.mistake("expected bitcast(value, type)", name)
            return ex.Bitcast(operand, self.element(arguments[1].children[0]))
        if len(arguments) != self.known(SCALARS, name, "function").arity:
            raise self.mistake(
                f"{name} takes {SCALARS[function].arity} operands, got {len(arguments)}", name
            )
        return self.applied(function, list(arguments), expected)

    def read_reduction(
        self, expected: ElementType | None, name: Any, *parts: Any
    ) -> ex.Expr | None:
        raise self.mistake("kernels reduce by loops; reductions stand in formulas", name)

    def misalignment(self, name: Any, arguments: tuple[Any, ...]) -> ex.Expr:
        match [(a.data, *a.children) for a in arguments]:
            case [("read", of, None), ("integer", count)] if int(count) > 0:
                if isinstance(tensor := self.known(self.names, of, "tensor"), ex.Tensor):
                    return ex.Misalignment(tensor, int(count))
        raise self.mistake("expected misalignment(tensor, elements of a line)", name)

    def applied(
        self, function: str, trees: list[Any], expected: ElementType | None
    ) -> ex.Expr | None:
        row = SCALARS[function]
        chooses = [self.typed(trees.pop(0), I1)] if function == "select" else []
        if (type := None if row.predicate or row.element else expected) is None:
            found = (e.type for t in trees if (e := self.expression(t, None)) is not None)
            type = next(found, None if row.predicate else expected)
        if type is None:
            return None
        operands = (*chooses, *(self.typed(t, type) for t in trees))
        if not row.takes(*(o.type for o in operands)):
            types = ", ".join(str(o.type) for o in operands)
            raise self.mistake(f"{row.symbol or function} does not take ({types})", trees[0])
        return ex.Apply(function, operands, row.result(*(o.type for o in operands)))

    # sizes

    def read_named_size(self, _: ElementType | None, token: Any) -> ex.Expr:
        return ex.as_index(self.atom(token))

    def read_sized(self, _: ElementType | None, total: Any) -> ex.Expr:
        return ex.as_index(self.size(total))

    def atom(self, token: Any) -> Dim:
        return (
            self.anonymous.setdefault(str(token), Size.unknown())
            if token[1:].isdigit()
            else Size.named(token[1:])
        )

    def size(self, tree: Any) -> Dim:
        match tree.data, tree.children:
            case "named_size", (token,):
                return self.atom(token)
            case "known_size", (token,):
                return int(token)
            case "negative_size", (_, token):
                return -int(token)
            case "sized", (total,):
                return self.size(total)
            case ("size_plus" | "size_minus" | "size_times") as which, (a, _, b):
                return {"size_plus": add, "size_minus": sub, "size_times": mul}[which](
                    self.size(a), self.size(b)
                )
            case "size_call", (name, a, b):
                if _SIZES.get(str(name)) not in OPERATIONS:
                    raise self.mistake(f"there is no function of sizes {name}", name)
                return Size.of_atom((_SIZES[str(name)], self.size(a), self.size(b)))
        raise TypeError(f"no size: {tree.data}")


def _split(type: Any) -> tuple[list[str], str]:
    """The texts of a type's sizes and of its elements."""
    parts = re.fullmatch(r"tensor<(?:(.*)( x |(?<! )x))?(complex<\w+>|\w+?)>", str(type))
    shape, apart, element = parts.groups() if parts else (None, "", "")
    return [] if shape is None else shape.split(apart), element


def unquoted(text: str) -> str:
    return ast.literal_eval(
        re.sub(r"\\u\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", text)
    )
