"""MLIR of `func`, `linalg`, `arith`, `math` and `tensor`, parsed by xDSL, to programs.

Integers without a sign are signed; what reads them as unsigned converts them before and after.
Undefined behavior has our meaning. An operation of `linalg` is its body, element by element, over
the space of its loops, and the reductions in it:

    linalg.generic {indexing_maps = [(i, j, k) -> (i, k), (k, j), (i, j)]} ... { yield out + a * b }
        =>  out + the sum over k of A[i, 'x', k] * B['x', j, k]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

import cvm
from cvm.dialect.ir.builder import Node
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.support.diagnostics import Diagnostic, Source, Span
from cvm.dialect.support.limits import LIMITS, excess
from cvm.dialect.types.sizes import Dim, Size, same_size
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I1, I32, I64, TensorType
from cvm.importers import refuse
from cvm.importers.exactness import EXACT, Exactness, Imported
from cvm.importers.graph import importer as graph
from cvm.importers.graph.elementwise import ufunc
from cvm.importers.graph.importer import MAX_DEPTH, MISSING, GraphNode, Importer
from cvm.importers.graph.rules import (
    Array,
    Because,
    ImportRule,
    Known,
    Unsupported,
    known_size,
    table,
)

# what an axis is read at: a dimension, or a sum of some, each times a factor, and a number
Access: TypeAlias = int | tuple[dict[int, int], int]
RULES: dict[str, ImportRule] = {}
rule = table(RULES)


def imported(text: str, filename: str) -> Imported:
    """The function @main of a module, or its public one, with those that it calls inlined."""
    module, lines = parsed(text, filename)
    functions = {
        ("func", o.sym_name.data): o for o in module.ops if o.name == "func.func" and o.body.blocks
    }
    public = [f for f in functions.values() if "private" not in str(f.sym_visibility)]
    main = functions.get(("func", "main"), public[0] if len(public) == 1 else None)
    if main is None or any(o.name != "func.func" for o in module.ops):
        names = ", ".join(map(name_of, module.ops)) or "none"
        refuse(
            filename,
            "expected a module of functions, one of them @main or the only public one, "
            f"got {names}",
        )
    to = Reader("MLIR", "line", functions=functions, lines=lines)
    try:
        args = [
            to.argument(a.name_hint or f"arg{n}", typed(a.type))
            for n, a in enumerate(main.body.blocks[0].args)
        ]
        results = to.block(main.body, args)
    except Unsupported as e:
        refuse(filename, f"the function cannot be imported: {e}")
    to.check(filename)
    to.names.clear()
    return to.imported(
        filename, [to.result(filename, f"{n}", v) for n, v in enumerate(results)], ""
    )[0]


def parsed(text: str, filename: str) -> tuple[Any, dict[Any, int]]:
    """The module in a text, as xDSL's operations, and the line of each."""
    source, lines = Source(filename, text), dict[Any, int]()
    try:
        context, parser = (
            import_module("xdsl.context").Context(True),
            import_module("xdsl.parser").Parser,
        )
        for name, dialect in import_module("xdsl.dialects").get_all_dialects().items():
            context.register_dialect(name, dialect)
    except ImportError:
        raise cvm.Error("MLIR needs the xdsl package: pip install 'cvm-lang[interop]'") from None

    class WithLines(parser):
        def parse_operation(self) -> Any:
            start = self._current_token.span.start
            lines[operation := super().parse_operation()], _ = source.place(start)
            return operation

    for token in re.finditer(
        r'//[^\n]*+|"(?:[^"\\\n\v\f]++|\\["nt\\]|\\[0-9A-Fa-f][0-9A-Fa-f])*+("?)', text
    ):
        if token[1] == "":  # for which xDSL would search exponentially long
            raise cvm.ParseError(
                Diagnostic("a string that does not end", Span(source, *token.span()), "import")
            )
    try:
        flags = re.compile(
            r'(?<="arith\.trunci")(\([^)]*\)) <{overflowFlags = [^}]*}>'
        )  # xDSL has none of trunci
        module = WithLines(
            context, flags.sub(lambda m: m[1].ljust(len(m[0])), text), filename
        ).parse_module()
        module.verify()
    except Exception as e:  # of xDSL's kinds, and what its parser lets through
        at, said = getattr(e, "span", None), getattr(e, "msg", "") or str(e) or type(e).__name__
        span = Span(source, at.start, at.end) if at else Span(Source(filename, ""), 0, 0)
        raise cvm.ParseError(
            Diagnostic(f"xDSL cannot read this: {said.splitlines()[0]}", span, "import")
        ) from None
    return module, lines


@dataclass
class Reader(Importer):
    """The program so far."""

    functions: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    lines: Mapping[Any, int] = field(default_factory=dict)  # of the operations in the text
    values: dict[Any, Any] = field(default_factory=dict)  # by those of xDSL
    count: int = 0  # of operations, those of a body once for each time that it is taken

    def block(
        self, region: Any, arguments: Sequence[Any], extents: Sequence[Dim] | None = None
    ) -> list[Any]:
        """The operands of a region's last operation; `extents` are the sizes of the loops of which
        it is the body.
        """
        last = region.block.last_op if len(region.blocks) == 1 else None
        if last is None or name_of(last).rpartition(".")[2] not in ("return", "yield"):
            raise Unsupported("a region that is not one block, which returns or yields")
        if self.depth > MAX_DEPTH:
            raise Unsupported(f"a region or call more than {MAX_DEPTH} deep in others")
        self.count += len(region.block.ops)
        if self.count > LIMITS.get().operations:
            raise Because(excess("operations", self.count))
        self.values |= zip(region.block.args, arguments, strict=False)
        self.depth += 1
        for o in [*region.block.ops][:-1]:
            node = GraphNode(name_of(o), o.operands, o.results)
            self.add(At(self, node, self.values, str(self.lines[o]), o, extents))
        self.depth -= 1
        return [self.values[v] for v in last.operands]


@dataclass
class At(graph.At):
    """An operation while it is imported."""

    importer: Reader
    operation: Any
    extents: Sequence[Dim] | None  # of the loops of which it stands in the body
    rule_exactness: Exactness | None = field(default=EXACT, kw_only=True)
    rules = RULES

    def __post_init__(self) -> None:
        super().__post_init__()
        self.op = "linalg" if self.op not in RULES and self.op.startswith("linalg.") else self.op
        self.attributes = {**self.operation.properties, **self.operation.attributes}

    def run(self) -> Any:
        results = super().run()
        for r, x in zip(
            self.operation.results, results if isinstance(results, list) else [results], strict=True
        ):
            sizes = zip(x.shape, typed(r.type).shape, strict=False) if isinstance(x, Node) else ()
            differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
            if differ or (isinstance(x, Node) and x.element is not typed(r.type).element):
                raise Because(f"its result is {x.array_type}, the module says otherwise")
        return results

    @property
    def type(self) -> TensorType:
        return typed(self.operation.results[0].type)

    def region(
        self, number: int, arguments: Sequence[Any] = (), extents: Sequence[Dim] | None = None
    ) -> list[Any]:
        return self.importer.block(self.operation.regions[number], arguments, extents)


def name_of(operation: Any) -> str:
    return operation.op_name.data if operation.name == "builtin.unregistered" else operation.name


def typed(type: Any) -> TensorType:
    """The type of an MLIR value; an index is an i64."""
    shape, element = (type.get_shape(), type.element_type) if type.name == "tensor" else ((), type)
    if (name := "i64" if element.name == "index" else str(element)) not in ELEMENT_TYPES:
        raise Unsupported(f"a value of type {type}")
    return TensorType(tuple(n if n >= 0 else Size.unknown() for n in shape), ELEMENT_TYPES[name])


# of NumPy; operations on integers end with i, those that read them as unsigned with ui
FUNCTIONS = {
    **{
        f"arith.{n}": u
        for n, u in {
            "addi": "add",
            "subi": "subtract",
            "muli": "multiply",
            "divsi": "floor_divide",
            "floordivsi": "floor_divide",
            "remsi": "fmod",
            "maxsi": "maximum",
            "minsi": "minimum",
            "shli": "left_shift",
            "shrsi": "right_shift",
            "divui": "floor_divide",
            "remui": "fmod",
            "maxui": "maximum",
            "minui": "minimum",
            "shrui": "right_shift",
            "andi": "bitwise_and",
            "ori": "bitwise_or",
            "xori": "bitwise_xor",
            "addf": "add",
            "subf": "subtract",
            "mulf": "multiply",
            "divf": "divide",
            "remf": "fmod",
            "negf": "negative",
            "maximumf": "maximum",
            "minimumf": "minimum",
            "maxnumf": "fmax",
            "minnumf": "fmin",
            "select": "where",
        }.items()
    },
    "math.absi": "absolute",
    "math.absf": "absolute",
    "math.roundeven": "rint",
    "math.powf": "power",
    **{f"math.a{n}": f"arc{n}" for n in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")},
    **{
        f"math.{n}": n
        for n in (
            "cbrt",
            "ceil",
            "copysign",
            "cos",
            "cosh",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "log",
            "log10",
            "log1p",
            "log2",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
        )
    },
}
PREDICATES = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
REDUCTIONS = {n: n for n in ("add", "maximum", "minimum")} | {"multiply": "mul"}
REDUCTIONS |= {"bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor"}


def unsigned(x: Node) -> Node:
    """The bits of integers as unsigned ones."""
    return x if x.element is I1 else x.cast(ELEMENT_TYPES[f"u{x.element}"])


def compute(op: str, *xs: Node) -> Node:
    """A scalar function by the name of its operation."""
    name = FUNCTIONS[op]
    if op.endswith("i") and xs[0].element is I1 and not name.startswith("bitwise"):
        raise Unsupported("arithmetic of i1")
    if op.endswith("ui"):
        return ufunc(name, *map(unsigned, xs)).cast(xs[0].element)
    if op == "arith.divsi":  # toward zero: what the remainder leaves is divided exactly
        return ufunc(name, ufunc("subtract", xs[0], ufunc("fmod", *xs)), xs[1])
    return ufunc(name, *xs)


@rule("arith.cmpi")
def cmpi(at: At, a: Node, b: Node) -> Node:
    """Predicates from 6 on are the last four, of unsigned integers; with a sign, true is -1."""
    if (p := at.attributes["predicate"].value.data) > 5:
        return ufunc(PREDICATES[p - 4], unsigned(a), unsigned(b))
    return ufunc(PREDICATES[p], *((b, a) if p > 1 and a.element is I1 else (a, b)))


@rule("arith.cmpf")
def cmpf(at: At, a: Node, b: Node) -> Node:
    """The bits of predicates 1 to 7 stand for =, > and <; 8 to 14 are the negated others."""
    if not 0 < (p := at.attributes["predicate"].value.data) < 15:
        raise Unsupported("a comparison that is constant")
    bits = p if p < 8 else 14 - p or 7
    comparisons = [
        ufunc(f, a, b) for f, n in (("equal", 1), ("greater", 2), ("less", 4)) if bits & n
    ]
    y = reduce(partial(ufunc, "bitwise_or"), comparisons)
    return ufunc("logical_not", y) if p > 7 else y


@rule(
    "arith.extf",
    "arith.extsi",
    "arith.fptosi",
    "arith.index_cast",
    "arith.sitofp",
    "arith.truncf",
    "arith.trunci",
)
def cast(at: At, x: Node) -> Node:
    if I1 in (x.element, at.type.element):
        raise Unsupported("i1 as a number with a sign")
    return x.cast(at.type.element)


@rule("math.ctlz")
def leading_zeros(at: At, x: Node) -> Node:
    """Those of i32; of i64 they are those of two words, and what is narrower has zeros before
    it.
    """
    if x.element is not I64:
        return (unsigned(x).cast(I32).apply("quant.leading_zeros") - (32 - x.element.bits)).cast(
            x.element
        )
    words = (ufunc("right_shift", x, at.node(np.array(32))), x)
    high, low = (n.cast(I32).apply("quant.leading_zeros") for n in words)
    return ufunc("where", high.scalar("eq", 32), high + low, high).cast(I64)


@rule("arith.constant")
def constant(at: At) -> np.ndarray:
    value, type = at.attributes["value"], at.type
    if hasattr(value, "value"):
        return np.array(value.value.data).astype(type.element.dtype)
    if value.name != "dense":
        raise Unsupported(f"a constant that is {value.name}")
    array = np.frombuffer(value.data.data, np.uint8 if type.element is I1 else type.element.dtype)
    return array.astype(type.element.dtype).reshape(type.shape)  # type: ignore[arg-type]


def spread(at: At, x: Node, extents: Sequence[Dim]) -> Node:
    """The node repeated along the dimensions of which it has one element."""
    x = x if x.rank else x.dimshuffle(["x"] * len(extents))
    if not any(
        same_size(n, 1) and not same_size(e, 1) for n, e in zip(x.shape, extents, strict=True)
    ):
        return x
    array = at.importer.builder.constants.get(x.value)
    if array is not None and array.size == 1 and all(isinstance(e, int) for e in extents):
        return at.node(np.broadcast_to(array, extents))  # type: ignore[arg-type]
    return at.like(extents).scalar("second", x)


def reshaped(at: At, x: Node, shape: Sequence[Dim]) -> Node:
    sizes = tuple(n if isinstance(n, int) else -1 for n in shape)
    return x if len(shape) == x.rank else at.apply("cvm.reshape", x, target_shape=sizes)


@rule("tensor.empty")
def empty(at: At, *dims: Known) -> Node:
    arrays = [n for n in dims if isinstance(n, np.ndarray)]
    if len(arrays) < len(dims):
        raise Unsupported("a size that depends on data")
    sizes = [n if isinstance(n, int) else arrays.pop(0).item() for n in at.type.shape]
    return spread(at, at.node(np.zeros((), at.type.element.dtype)), sizes)


def place(at: At, whole: Sequence[Dim]) -> Any:
    """Offsets, sizes and strides of a part."""
    numbers = [
        at.attributes[f"static_{name}"].get_values() for name in ("offsets", "sizes", "strides")
    ]
    if not all(0 <= o <= o + (n - 1) * s < of for o, n, s, of in zip(*numbers, whole, strict=True)):
        raise Unsupported("a part that is not constant, or not inside")
    return numbers


@rule("tensor.extract_slice")
def extract_slice(at: At, x: Node, *bounds: Known) -> Node:
    begin, sizes, strides = place(at, x.shape)
    end = tuple(o + (n - 1) * s + 1 for o, n, s in zip(begin, sizes, strides, strict=True))
    return reshaped(
        at, at.apply("cvm.slice", x, begin=begin, end=end, strides=strides), at.type.shape
    )


@rule("tensor.insert_slice")
def insert_slice(at: At, x: Node, into: Node, *bounds: Known) -> Node:
    begin, sizes, strides = place(at, into.shape)
    parts = reshaped(at, x, sizes), at.node(np.broadcast_to(True, sizes))
    placed, here = (
        n.apply("builtin.strided_scatter_like", into, begin=begin, strides=strides) for n in parts
    )
    return ufunc("where", here, placed, into)


@rule("tensor.pad")
def pad(at: At, x: Node, *borders: Known) -> Node:
    (value,) = at.region(0, [MISSING] * x.rank)
    if value is MISSING:
        raise Unsupported("a value that depends on the place")
    parts = x, ufunc("logical_not", at.like(x.shape))
    before, after = (at.attributes[f"static_{name}"].get_values() for name in ("low", "high"))
    padded, here = (n.apply("builtin.pad", before=before, after=after) for n in parts)
    zero = isinstance(value, np.ndarray) and not value.tobytes().strip(b"\0")
    return padded if zero else ufunc("where", here, padded, at.node(value))


@rule("tensor.extract")
def extract(at: At, x: Node, *places: Node) -> Node:
    """Places outside, of which the result is undefined, are moved inside."""
    if not places:
        return x
    shapes = [p.shape for p in places if p.rank == max(p.rank for p in places)]
    shape = [next((n for n in ns if not same_size(n, 1)), 1) for ns in zip(*shapes, strict=True)]
    return x.apply(
        "builtin.gather",
        *(spread(at, p, shape) for p in places),
        axes=(*range(x.rank),),
        mode="clip",
    )


@rule("scf.if")
def branches(at: At, condition: Node) -> list[Any]:
    """Both are computed, since no operation here fails where the other one would be taken."""
    pairs = zip(*(at.region(n, (), at.extents) for n in range(2)), strict=True)
    return [
        MISSING if any(v is MISSING for v in p) else ufunc("where", condition, *map(at.node, p))
        for p in pairs
    ]


@rule("scf.for")
def turns(at: At, start: Array, stop: Array, step: Array, *carried: Known) -> Sequence[Any]:
    """As often as it is taken, which is to be known."""
    for n in range(start.item(), stop.item(), step.item()):
        carried = (*at.region(0, [np.array(n), *carried], at.extents),)
        if any(v is MISSING for v in carried):
            break
    return [*carried]


@rule("func.call")
def call(at: At, *xs: Known) -> Sequence[Any]:
    name = at.attributes["callee"].root_reference.data
    if (function := at.importer.functions.get(("func", name))) is None:
        raise Because(f"@{name} is no function with a body")
    return at.importer.block(function.body, xs, at.extents)


@rule("linalg.index")
def index(at: At) -> Node:
    d, sizes = at.attributes["dim"].value.data, list(at.extents or ())
    is_static = isinstance(n := sizes[d], int)
    row = (
        at.node(np.arange(n)) if is_static else at.apply("builtin.iota_like", at.like((n,)), axis=0)
    )
    at.importer.builder.constants.pop(
        row.value, None
    )  # what is computed of it is not to become constants
    return row.dimshuffle([0 if a == d else "x" for a in range(len(sizes))])


@rule("linalg")
def structured(at: At, *xs: Node) -> list[Any]:
    count, maps = len(at.operation.results), indexing_maps(at, [x.rank for x in xs])
    pairs = [pair for x, m in zip(xs, maps, strict=True) for pair in zip(m, x.shape, strict=True)]
    axes = [(d, n) for d, n in pairs if isinstance(d, int)]
    size_of = dict(
        sorted(axes, key=lambda axis: isinstance(axis[1], int))
    )  # sizes that are known take precedence
    result_maps: list[Any] = maps[-count:]
    over = size_of.keys() - result_maps[0]
    if {d for m in maps for a in m for d in ([a] if isinstance(a, int) else a[0])} != {
        *range(len(size_of))
    }:
        raise Unsupported("a dimension that no axis has for itself")
    if differing := [
        f"{n} and {size_of[d]}" for d, n in axes if isinstance(n, int) and n != size_of[d]
    ]:
        raise ValueError(f"one dimension has sizes {differing[0]}")
    if not count or any(sorted(k) != sorted(size_of.keys() - over) for k in result_maps):
        raise Unsupported("memory in the place of tensors, or a result of other dimensions")
    extents: list[Dim] = [size_of[d] for d in range(len(size_of))]
    operands = [arranged(x, m, extents) for x, m in zip(xs, maps, strict=True)]
    body_results = at.region(
        0, [*operands[:-count], *([MISSING] * count if over else operands[-count:])], extents
    )
    if not over:
        results = zip(body_results, result_maps, strict=True)
        return [
            y if y is MISSING else spread(at, at.node(y), extents).dimshuffle(k) for y, k in results
        ]
    body = at.operation.regions[0].block
    yielded = zip(body.last_op.operands, body.args[-count:], xs[-count:], result_maps, strict=True)
    return [
        reduced(at, *combination(y, out), initial, k, extents) for y, out, initial, k in yielded
    ]


def indexing_maps(at: At, ranks: Sequence[int]) -> list[list[Access]]:
    """For each operand, what its axes are read at: MLIR's generic form has the maps of most named
    operations.
    """
    for name in {"indexing_maps", "linalg.memoized_indexing_maps"} & at.attributes.keys():
        return [accesses(m.data) for m in at.attributes[name]]
    every = [*range(max(ranks))]
    match name_of(at.operation):
        case "linalg.copy" | "linalg.fill" | "linalg.map":
            return [[*every[:rank]] for rank in ranks]
        case "linalg.transpose":
            return [np.argsort(at.attributes["permutation"].get_values()).tolist(), [*every]]
        case "linalg.broadcast" | "linalg.reduce":
            gone = at.attributes["dimensions"].get_values()
            return [[d for d in every if rank == len(every) or d not in gone] for rank in ranks]
        case "linalg.matmul":
            return [[0, 2], [2, 1], [0, 1]]
    raise Unsupported("an operation of linalg without indexing maps")


def accesses(map: Any) -> list[Access]:
    """The axes of an operand by an affine map of the dimensions."""
    if map.num_symbols or "div" in str(map) or "mod" in str(map):
        raise Unsupported(f"the map {map}")
    added, units = map.eval([0] * map.num_dims, []), np.eye(map.num_dims, dtype=int).tolist()
    steps = [
        [n - zero for n, zero in zip(map.eval(unit, []), added, strict=True)] for unit in units
    ]
    factors = [
        {d: step[axis] for d, step in enumerate(steps) if step[axis]} for axis in range(len(added))
    ]
    return [
        next(iter(f)) if [*f.values(), n] == [1, 0] else (f, n)
        for f, n in zip(factors, added, strict=True)
    ]


def arranged(x: Node, map: Sequence[Access], extents: Sequence[Dim]) -> Node:
    """An operand over the space of the loops, with size 1 along the dimensions that it does not
    have; sums become windows.
    """
    place: dict[int, int] = {}  # the axis of each dimension
    for axis, access in enumerate(map):
        steps, added = ({access: 1}, 0) if isinstance(access, int) else access
        if not isinstance(access, int):
            if len(steps) > 2 or min(added + 1, *steps.values(), 1) < 1:
                raise Unsupported(
                    f"an index {' + '.join(f'd{d} * {n}' for d, n in steps.items())} + {added}"
                )
            size, *counts = (
                known_size(n, "windows") for n in (x.shape[axis], *(extents[d] for d in steps))
            )
            (windows, window), (stride, dilation) = [*counts, 1, 1][:2], [*steps.values(), 1, 1][:2]
            if (beyond := (windows - 1) * stride + (window - 1) * dilation + added + 1 - size) > 0:
                raise Because(f"it reads {beyond} elements beyond its operand")
            x = x.apply(
                "builtin.windows",
                axes=(axis,),
                sizes=(window,),
                strides=(stride,),
                dilations=(dilation,),
                before=(-added,),
                after=(beyond,),
            )
        if place.keys() & steps:
            raise Unsupported("a diagonal")
        place |= zip(steps, (axis, x.rank - 1), strict=False)
    return x.dimshuffle([place.get(d, "x") for d in range(len(extents))])


def combination(result: Any, out: Any) -> tuple[str, Any]:
    """The operation by which the body combines a value with the result so far, and that value."""
    operands, uses = [*getattr(result.owner, "operands", ())], 1
    name = name_of(result.owner) if operands else ""
    if (
        name == "arith.select" and [*getattr(operands[0].owner, "operands", ())] == operands[1:]
    ):  # a > b ? a : b
        compare, uses = operands.pop(0).owner, 2
        p = compare.predicate.value.data if compare.name == "arith.cmpi" else 0
        name = f"arith.{('max', 'min')[p // 2 % 2]}{'si' if p < 6 else 'ui'}" if p > 1 else ""
    if (
        FUNCTIONS.get(name) not in REDUCTIONS
        or operands.count(out) != 1
        or len([*out.uses]) != uses
    ):
        raise Unsupported(
            "a reduction that is no sum, product, maximum, minimum or operation of bits"
        )
    return name, operands[operands[0] is out]


def reduced(
    at: At, name: str, value: Any, initial: Node, result_dims: Sequence[int], extents: Sequence[Dim]
) -> Any:
    if (operand := at.values[value]) is MISSING:
        return MISSING
    x, function = spread(at, at.node(operand), extents), REDUCTIONS[FUNCTIONS[name]]
    if function in ("add", "mul") and (
        x.element is I1 or (x.element.kind == "float" and x.element.bits == 16)
    ):
        raise Unsupported(f"a reduction in {x.element}")
    x = unsigned(x) if name.endswith("ui") else x
    y = x.reduce(
        "careduce", [d for d in range(len(extents)) if d not in result_dims], scalar_op=function
    )
    y = y.dimshuffle([sorted(result_dims).index(d) for d in result_dims])
    initial_array, neutral = (
        at.importer.builder.constants.get(initial.value),
        SCALARS[function.rstrip("_")].identity,
    )
    if (
        initial_array is not None
        and neutral
        and (initial_array.astype(y.element.dtype) == neutral(y.element)).all()
    ):
        return y.cast(initial.element)
    return compute(name, initial, y.cast(initial.element))


SINGLE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(FUNCTIONS, lambda at, *xs: compute(at.op, *xs)),
    "arith.bitcast": lambda at, x: x.apply("builtin.bitcast", dtype=at.type.element),
    "arith.fptoui": lambda at, x: x.cast(ELEMENT_TYPES[f"u{at.type.element}"]).cast(
        at.type.element
    ),
    **{
        f"arith.{n}": lambda at, x: unsigned(x).cast(at.type.element)
        for n in ("extui", "index_castui", "uitofp")
    },
    "math.erf": lambda at, x: x.scalar("erf"),
    "tensor.cast": lambda at, x: x,
    "tensor.concat": lambda at, *xs: at.apply(
        "cvm.concatenate", *xs, axis=at.attributes["dim"].value.data
    ),
    "tensor.dim": lambda at, x, axis: np.array(
        n := x.shape[axis.item()], np.int64 if isinstance(n, int) else object
    ),
    **{
        f"tensor.{n}_shape": lambda at, x, *known: reshaped(at, x, at.type.shape)
        for n in ("collapse", "expand")
    },
}
for name, single in SINGLE.items():
    rule(name)(single)
