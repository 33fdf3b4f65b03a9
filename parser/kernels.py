"""Parse printed kernels (`dialect.notation.printer`).

Types of parameters, buffers and variables are in the text; the type of a literal follows from its context. Each kernel is
read on its own: a mistake in one hides none in the next."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from operator import add, mul, sub
from typing import Any, TypeAlias, TypeVar

from lark.exceptions import LarkError, UnexpectedInput
from ..dialect.ir.diagnostics import Diagnostic, ParseError, Source, Span
from ..dialect.ir.sizes import OPERATIONS, Dim, Size, may_be_same, product
from ..dialect.ir.suggest import did_you_mean
from ..dialect.ir.types import ELEMENT_TYPES, I1, I64, ElementType
from ..dialect.notation import expressions as ex
from ..dialect.notation.loops import Alloc, Assert, Block, For, If, Kernel, Let, Prefetch, Statement, Store
from ..dialect.notation.printer import PRECEDENCE
from ..dialect.notation.scalar_functions import SCALARS
from ..grammar import read
from .kernel_syntax_errors import CODE, explain

T = TypeVar("T")

_BINARY = {row.symbol: name for name, row in SCALARS.items() if row.arity == 2 and row.symbol}
_PREFIX = {row.symbol: name for name, row in SCALARS.items() if row.arity == 1 and row.symbol}
_SIZES = {"floordiv": "//", "mul": "*", "max": "max", "min": "min"}
assert all(symbol in _BINARY for level in PRECEDENCE for symbol in level)

KINDS = ("serial", "parallel", "vector", "unrolled", "block", "thread", "matrix")
_HEAD = re.compile(r"^[ \t]*kernel\b", re.MULTILINE)
Places: TypeAlias = dict[Statement, Span]
Views: TypeAlias = dict[ex.Tensor, ex.Tensor]


def read_kernels(text: str, filename: str = "<kernels>") -> tuple[list[Kernel], Places, Views]:
    """The kernels of a text, not yet verified, the place of each statement, and the parameters that are views of others;
    raises ParseError with a mistake of each kernel."""
    source = Source(filename, text)
    bounds = [0, *[m.start() for m in _HEAD.finditer(text)][1:], len(text)]
    kernels: list[Kernel] = []
    places: Places = {}
    views: Views = {}
    mistakes: list[Diagnostic] = []
    for start, end in pairwise(bounds):
        reader = KernelReader(source, start)
        try:
            kernels += [reader.kernel(tree) for tree in language().parse(text[start:end], start="start").children]
        except UnexpectedInput as e:
            mistakes.append(explain(e, source, start, end))
        except ParseError as e:
            mistakes += e.diagnostics
        except RecursionError:
            mistakes.append(Diagnostic("the kernels are nested too deeply to be read", Span(source, 0, 0), CODE))
        places |= reader.places
        views |= reader.views
    if mistakes:
        raise ParseError(mistakes)
    return kernels, places, views


@cache
def language() -> Any:
    """The parser of kernels, formulas and sizes."""
    from lark import Lark

    start = ["start", "size_sum", "formulas"]
    return Lark(read("loops.lark"), parser="lalr", start=start, maybe_placeholders=True, propagate_positions=True)


class KernelReader:
    """The symbol table of one kernel."""

    def __init__(self, source: Source, base: int) -> None:
        self.source = source
        self.base = base  # where the text that is read begins
        self.places: Places = {}
        self.views: Views = {}
        self.names: dict[str, ex.Expr | ex.Tensor] = {}  # a name of a formula stands for any expression
        self.anonymous: dict[str, Size] = {}

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
            near = did_you_mean(str(token).removeprefix(sigil), [k.removeprefix(sigil) for k in table], sigil)
            raise self.mistake(f"there is no {what} {token}{near}", token)
        return table[str(token)]

    def element(self, token: Any) -> ElementType:
        return self.known(ELEMENT_TYPES, token, "element type")

    # statements

    def kernel(self, tree: Any) -> Kernel:
        name, inputs, outputs, condition, order, scheduled, body = tree.children
        declared = [t.children for t in (*inputs.children, *outputs.children) if t is not None]
        parameters = tuple(self.tensor(t) for t, _ in declared)
        views = {t: of for t, (_, of) in zip(parameters, declared, strict=True) if of is not None}
        arrays = {f"%{t.name}": t for t in parameters if not views.get(t, "").startswith("%")}
        for t, of in views.items():
            home = self.known(arrays, of, "array") if of[0] == "%" else ex.Tensor(t.name, *self.shaped(of))
            self.views[t] = self.view_of(t, home, of)
        if order not in (None, "terms", "blocks"):
            raise self.mistake(f"expected sums terms or sums blocks, got sums {order}", order)
        return Kernel(
            name[1:],
            parameters,
            self.block(body),
            len([t for t in outputs.children if t is not None]),
            condition=None if condition is None else self.typed(condition, I1),
            span=self.span(name),
            sum_order="either" if order is None else str(order),  # type: ignore[arg-type]
            scheduled=scheduled is not None,
        )

    def tensor(self, tree: Any, space: str = "argument") -> ex.Tensor:
        value, type = tree.children
        return self.name(ex.Tensor(str(value)[1:], *self.shaped(type), space))

    def shaped(self, type: Any) -> tuple[tuple[Dim, ...], ElementType]:
        """The sizes and elements of a type."""
        parts = re.fullmatch(r"tensor<(?:(.*)( x |(?<! )x))?(complex<\w+>|\w+?)>", str(type))
        shape, apart, element = parts.groups() if parts else (None, "", "")
        dims = [] if shape is None else shape.split(apart)
        try:
            shape = tuple(self.size(language().parse(d.strip("[]"), start="size_sum")) for d in dims)
            return shape, ELEMENT_TYPES[element]
        except (KeyError, TypeError, LarkError):
            raise self.mistake(f"there is no type {type}", type) from None
        except ParseError as e:  # of a size
            raise self.mistake(e.diagnostics[0].message, type) from None

    def view_of(self, view: ex.Tensor, of: ex.Tensor, token: Any) -> ex.Tensor:
        """The array of a view, which has as many elements, or may have at a call."""
        if view.element is not of.element or not may_be_same(product(view.shape), product(of.shape)):
            raise self.mistake(f"{token} has other elements than a view of it", token)
        return of

    def name(self, e: Any) -> Any:
        self.names[f"%{e.name}"] = e
        return e

    def block(self, tree: Any) -> Block:
        made = []
        for s in tree.children:
            statement = getattr(self, s.data)(*s.children)
            self.places[statement] = self.span(s)
            made.append(statement)
        return tuple(made)

    def loop(self, name: Any, extent: Any, start: Any, stop: Any, kind: Any, body: Any) -> Statement:
        first, last = self.typed(start, I64), self.typed(stop, I64)
        if isinstance(first, ex.Const) and not first.value:
            first = ex.ZERO  # passes compare the start with it
        known = last.value if isinstance(last, ex.Const) else getattr(last, "size", 0)
        index = self.name(ex.Index(str(name)[1:], known if extent is None else self.size(extent)))
        how, width, overlap = kind.children if kind is not None else ("serial", None, None)
        if how not in KINDS:
            raise self.mistake(f"expected a kind of loop, {', '.join(KINDS)}, got {how}{did_you_mean(how, KINDS)}", how)
        if (width is None) is (how == "vector"):
            said = "a vector loop has a width, as in vector 8" if width is None else f"a {how} loop has no width"
            raise self.mistake(said, width or how)
        end = None if extent is None else last
        return For(index, self.block(body), first, end, str(how), int(width or 1), int(overlap or 0))  # type: ignore[arg-type]

    def branch(self, condition: Any, then: Any, otherwise: Any) -> Statement:
        return If(self.typed(condition, I1), self.block(then), self.block(otherwise) if otherwise is not None else ())

    def let(self, name: Any, type: Any, value: Any) -> Statement:
        element = self.element(type)
        found = self.typed(value, element)
        return Let(self.name(ex.Var(str(name)[1:], element)), found)

    def register(self, name: Any, type: Any) -> Statement:
        return Alloc(self.name(ex.Tensor(str(name)[1:], (), self.element(type), "register")))

    def buffer(self, space: Any, tensor: Any) -> Statement:
        return Alloc(self.tensor(tensor, str(space)))

    def store(self, name: Any, at: Any, value: Any, streaming: Any) -> Statement:
        tensor = self.buffer_named(name, "stored to")
        return Store(tensor, self.indices(at), self.typed(value, tensor.element), streaming is not None)

    def assert_(self, condition: Any, message: Any) -> Statement:
        return Assert(self.typed(condition, I1), unquoted(str(message)), self.span(message))

    def prefetch(self, name: Any, at: Any) -> Statement:
        return Prefetch(self.buffer_named(name, "prefetched"), self.indices(at))

    def buffer_named(self, name: Any, use: str) -> ex.Tensor:
        if not isinstance(tensor := self.known(self.names, name, "buffer"), ex.Tensor):
            raise self.mistake(f"{name} is no buffer that could be {use}", name)
        return tensor

    def indices(self, tree: Any) -> tuple[ex.Expr, ...]:
        return () if tree is None else tuple(self.typed(i, I64) for i in tree.children if i is not None)

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
            return ex.Const(float(sign + token) if type.kind == "float" else int(sign + token), type)
        except ValueError:
            raise self.mistake(f"expected a literal of type {type}, got {sign}{token}", token) from None

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

    def read_binary(self, expected: ElementType | None, a: Any, symbol: Any, b: Any) -> ex.Expr | None:
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
            raise self.mistake(f"{name} takes {SCALARS[function].arity} operands, got {len(arguments)}", name)
        return self.applied(function, list(arguments), expected)

    def read_reduction(self, expected: ElementType | None, name: Any, *parts: Any) -> ex.Expr | None:
        raise self.mistake("kernels reduce by loops; reductions stand in formulas", name)

    def misalignment(self, name: Any, arguments: tuple[Any, ...]) -> ex.Expr:
        match [(a.data, *a.children) for a in arguments]:
            case [("read", of, None), ("integer", count)] if int(count) > 0:
                if isinstance(tensor := self.known(self.names, of, "tensor"), ex.Tensor):
                    return ex.Misalignment(tensor, int(count))
        raise self.mistake("expected misalignment(tensor, elements of a line)", name)

    def applied(self, function: str, trees: list[Any], expected: ElementType | None) -> ex.Expr | None:
        row = SCALARS[function]
        chooses = [self.typed(trees.pop(0), I1)] if function == "select" else []
        if (type := None if row.predicate or row.element else expected) is None:
            found = (e.type for t in trees if (e := self.expression(t, None)) is not None)
            type = next(found, None if row.predicate else expected)
        if type is None:
            return None
        operands = (*chooses, *(self.typed(t, type) for t in trees))
        compared = operands[function in ("select", "rarely") :]
        if any(o.type is not compared[0].type for o in compared) or compared[-1].type.kind not in row.kinds:
            types = ", ".join(str(o.type) for o in operands)
            raise self.mistake(f"{row.symbol or function} does not take ({types})", trees[0])
        return ex.Apply(function, operands, row.result(*(o.type for o in operands)))

    # sizes

    def read_named_size(self, _: ElementType | None, token: Any) -> ex.Expr:
        return ex.Extent(self.atom(token))

    def read_sized(self, _: ElementType | None, total: Any) -> ex.Expr:
        return ex.as_index(self.size(total))

    def atom(self, token: Any) -> Size:
        if not token[1:].isdigit():
            return Size.named(token[1:])
        if token not in self.anonymous:
            self.anonymous[str(token)] = Size.unknown()
        return self.anonymous[token]

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
                return {"size_plus": add, "size_minus": sub, "size_times": mul}[which](self.size(a), self.size(b))
            case "size_call", (name, a, b):
                if _SIZES.get(str(name)) not in OPERATIONS:
                    raise self.mistake(f"there is no function of sizes {name}", name)
                return Size.of_atom((_SIZES[str(name)], self.size(a), self.size(b)))
        raise TypeError(f"no size: {tree.data}")


def unquoted(text: str) -> str:
    """The text of a string in quotes."""
    return ast.literal_eval(re.sub(r"\\u\{([0-9a-f]+)\}", lambda m: f"\\U{int(m[1], 16):08x}", text))
