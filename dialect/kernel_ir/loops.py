"""The loop language: kernels as nested loops over typed expressions of index notation.

    kernel    Kernel(name, parameters, body)        reads and writes parameters, results last
    loop      For(index, body, start, stop, kind)   kind: serial, parallel, unrolled, vector (of
                                                    `width`); block, thread (of a GPU), matrix;
                                                    intrinsic (`by` the code of its name)
    branch    If(condition, then, otherwise)
    name      Let(var, value)                       a variable for the rest of the block
    memory    Alloc(tensor)                         a buffer for the rest of the block
    write     Store(tensor, indices, value)
    check     Assert(condition, message, span)      reports an error unless the condition holds
    prefetch  Prefetch(tensor, indices)             prefetches a cache line
    loop      While(condition, body)                runs the body as long as the condition holds
    jump      Break() Continue()                    leaves a serial loop, or an iteration of it
    end       Return()                              ends the kernel, or a parallel loop's iteration
    error     Fail(message, span)                   ends the kernel by an error of the call

An accumulator is a register buffer of rank 0: `Alloc(acc)`, `Store(acc, (), acc[()] + x)`; it is a
value, not memory. A read is evaluated where its statement is: a guarded read stands under an `If`,
or in a loop whose bounds imply the guard. Nodes are immutable. A pass is a function from Kernel to
Kernel, in `lowering/`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_not
from typing import Literal, TypeAlias, TypeVar

from ..support.diagnostics import NOWHERE, Span
from ..types.sizes import Dim, product
from ..types.tensor_types import ElementType
from .affine import Affine, affine
from .expressions import (
    ZERO,
    Apply,
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    apply,
    as_index,
    axes,
    constant,
)
from .scalar_functions import SCALARS
from .traverse import rewrite, substitute, walk

MAX_STEPS = 1 << 40
UNBOUNDED = (1 << 63) - 1  # the extent of an index whose loop ends where data says
LoopKind: TypeAlias = Literal[
    "serial", "parallel", "vector", "unrolled", "block", "thread", "matrix", "intrinsic"
]


@dataclass(frozen=True, eq=False)
class For:
    """A loop: `index` runs from start to stop (by default its extent), exclusive.

    `vector` loops run `width` iterations at once; stop - start is a multiple of it, or the
    remainder runs one by one. `unrolled` loops have constant bounds. A `matrix` loop is a product
    by the threads of a warp (`lowering.gpu.mma`) or the tiles of a CPU
    (`lowering.contraction.matrix_tiles`), an `intrinsic` loop is executed `by` declared code
    (`lowering.analysis.intrinsics`). The first and last `overlap` iterations of a vector loop are
    also written by other loops, except at the ends of the index's extent: code may skip those
    before the first whole cache line, and as many at the end.
    """

    index: Index
    body: "Block"
    start: Expr = ZERO
    stop: Expr | None = None
    kind: LoopKind = "serial"
    width: int = 1
    overlap: int = 0
    by: str = ""

    @property
    def end(self) -> Expr:
        return as_index(self.index.extent) if self.stop is None else self.stop

    @property
    def length(self) -> Affine:
        """The number of iterations; negative for some loops that run none."""
        return affine(self.end) - affine(self.start)

    @property
    def is_whole(self) -> bool:
        """Test whether the loop is serial and runs over the full extent of its index."""
        return (
            self.kind == "serial"
            and self.stop is None
            and isinstance(self.start, Const)
            and self.start.value == 0
        )


@dataclass(frozen=True, eq=False)
class If:
    condition: Expr
    then: "Block"
    otherwise: "Block" = ()


@dataclass(frozen=True, eq=False)
class Let:
    var: Var
    value: Expr


@dataclass(frozen=True, eq=False)
class Alloc:
    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Store:
    tensor: Tensor
    indices: tuple[Expr, ...]
    value: Expr
    streaming: bool = False  # a non-temporal store


@dataclass(frozen=True, eq=False)
class Assert:
    condition: Expr
    message: str
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class Guard(Assert):
    """An assertion, as of the last pass, at which the kernel ends where it does not hold."""


@dataclass(frozen=True, eq=False)
class While:
    """A loop that runs as long as a condition holds, which is evaluated before each iteration."""

    condition: Expr
    body: "Block"


@dataclass(frozen=True, eq=False)
class Break:
    """A jump out of the innermost loop, which is serial."""


@dataclass(frozen=True, eq=False)
class Continue:
    """A jump to the next iteration of the innermost loop, which is serial."""


@dataclass(frozen=True, eq=False)
class Return:
    """The end of the kernel, or of an iteration of the parallel loop around."""


@dataclass(frozen=True, eq=False)
class Fail:
    """The end of the kernel by an error of the call."""

    message: str
    span: Span = NOWHERE


@dataclass(frozen=True, eq=False)
class Prefetch:
    """A prefetch of the cache line with an element. It computes nothing, and the element need not
    exist.
    """

    tensor: Tensor
    indices: tuple[Expr, ...]


T = TypeVar("T")


def replace(node: T, **changes: object) -> T:
    """The node with other values of some fields, as `dataclasses.replace` gives it in several times
    the time.
    """
    new = object.__new__(node.__class__)
    vars(new).update(vars(node), **changes)
    return new


Jump: TypeAlias = Break | Continue | Return | Fail
Statement: TypeAlias = For | While | If | Let | Alloc | Store | Assert | Prefetch | Jump
Block: TypeAlias = tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loop nest over named arrays. The last `results` parameters are written.

    The other fields direct passes and have their defaults once the last pass has run. `condition`:
    the kernel computes only where it holds. `sum_order`: how long float reductions are summed, in
    the order of their "terms", by "blocks", or "either", whichever the nest calls for. `scheduled`:
    the loops are final, and only the last passes run. `aliasing`: its parameters may overlap, and
    accesses stay in their order.
    """

    name: str
    parameters: tuple[Tensor, ...]
    body: Block
    results: int = 1
    span: Span = NOWHERE
    condition: Expr | None = None
    sum_order: Literal["either", "terms", "blocks"] = "either"
    scheduled: bool = False
    spans: tuple[Span, ...] = ()  # of all operations that the kernel computes
    aliasing: bool = False

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The parameters that are only read."""
        return self.parameters[: len(self.parameters) - self.results]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The parameters that are written."""
        return self.parameters[len(self.parameters) - self.results :]

    def with_body(self, body: Block) -> "Kernel":
        return self if body is self.body else replace(self, body=body)

    def only(self, condition: Expr | None) -> "Kernel":
        """The kernel with a further condition, whose arrays become parameters."""
        if condition is None:
            return self
        read = dict.fromkeys(e.tensor for e in walk(condition) if isinstance(e, Read))
        parameters = (*(t for t in read if t not in self.parameters), *self.parameters)
        joined = condition if self.condition is None else self.condition & condition
        return replace(self, parameters=parameters, condition=joined)


@dataclass(frozen=True)
class Steps:
    """The steps of a loop over a program.

    The first `carry` arguments of the program are the carried values, and so are its first results;
    `scan` further ones are slices of the loop's operands, and its further results slices of the
    loop's results. `reverse` begins at the last slice. Without `trips` the program's first result,
    before the carried values, is the condition of another step.
    """

    carry: int
    scan: int = 0
    trips: Dim | None = None
    reverse: bool = False

    @property
    def moving(self) -> dict[int, int]:
        """The numbers of the results of a step that are arguments of the next one, and theirs."""
        first = self.trips is None
        return {n + first: n for n in range(self.carry)}

    def sliced(self, arguments: Sequence[T], results: Sequence[T]) -> tuple[T, ...]:
        """Select the program's arguments and results that are slices."""
        return (
            ()
            if self.trips is None
            else (*arguments[self.carry : self.carry + self.scan], *results[self.carry :])
        )


NO_STEPS = Steps(0)


def is_aligned(shape: tuple[Dim, ...], element: ElementType) -> bool:
    """Test whether slices of this type, one after the other, begin as the vectors of a GPU do, of
    16 bytes.
    """
    size = product(shape)
    return isinstance(size, int) and size * element.bytes % 16 == 0


def accumulator(name: str, element: ElementType) -> Tensor:
    """A scalar that a nest updates."""
    return Tensor(name, (), element, "register")


def assign(accumulator: Tensor, value: Expr | int) -> Store:
    return Store(
        accumulator, (), value if isinstance(value, Expr) else constant(value, accumulator.element)
    )


def update(function: str, accumulator: Tensor, value: Expr) -> Store:
    """accumulator = function(accumulator, value)"""
    return Store(accumulator, (), apply(function, accumulator[()], value))


def nested(
    indices: Sequence[Index], body: Block, kind: Literal["serial", "unrolled"] = "serial"
) -> Block:
    """The body in a loop for each index, the first outermost."""
    for index in reversed(indices):
        body = (For(index, body, kind=kind),)
    return body


def vector_loop(lane: Index, *body: Statement) -> For:
    """A loop whose iterations are the lanes of one vector."""
    assert isinstance(lane.extent, int)
    return For(lane, body, kind="vector", width=lane.extent)


def outer_loops(
    block: Block, accepts: Callable[[For], bool] = lambda loop: loop.is_whole
) -> tuple[list[Index], Block]:
    """The indices of the perfectly nested outer loops that `accepts` holds for, and the innermost
    block.
    """
    indices: list[Index] = []
    while len(block) == 1 and isinstance(loop := block[0], For) and accepts(loop):
        indices.append(loop.index)
        block = loop.body
    return indices, block


def perfect_nest(loop: For) -> list[For]:
    """A loop and the serial ones inside, each alone in the one around it."""
    found = [loop]
    while (
        len(found[-1].body) == 1
        and isinstance(inner := found[-1].body[0], For)
        and inner.kind == "serial"
    ):
        found.append(inner)
    return found


def zeros(tensor: Tensor) -> Block:
    """A nest that fills an array with zeros."""
    at = axes(tensor.shape)
    value = Const(tensor.element.dtype.type(0).item(), tensor.element)
    return nested(at, (Store(tensor, at, value),))


def identity(function: str, element: ElementType) -> Const:
    """The identity of a reduction by this function."""
    start = SCALARS[function].identity
    assert start is not None, f"{function} has no identity"
    return constant(start(element), element)


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not of its body."""
    match statement:
        case For(_, _, start, _):
            return start, statement.end
        case If(condition, _, _) | Assert(condition, _, _) | While(condition, _):
            return (condition,)
        case Let(_, value):
            return (value,)
        case Store(_, at, value):
            return (*at, value)
        case Prefetch(_, at):
            return at
    return ()


def blocks(statement: Statement) -> tuple[Block, ...]:
    match statement:
        case For(_, body) | While(_, body):
            return (body,)
        case If(_, then, otherwise):
            return then, otherwise
    return ()


def reshaped_parameters(old: Kernel, new: Kernel) -> dict[Tensor, Tensor]:
    """Parameters that a pass gave another shape, and what they were."""
    return {n: o for o, n in zip(old.parameters, new.parameters, strict=True) if n is not o}


def has_loops(block: Block) -> bool:
    """Test whether a block has a loop, at any depth."""
    return any(isinstance(s, (For, While)) for s in statements(block))


def may_jump(block: Block) -> bool:
    """Test whether a block has jumps, or loops whose ends no bounds tell, at any depth."""
    return any(isinstance(s, (While, Break, Continue, Return, Fail)) for s in statements(block))


def ends_iterations(block: Block) -> bool:
    """Test whether a `return` ends an iteration of a parallel loop."""
    loops = (s for s in statements(block) if isinstance(s, For) and s.kind == "parallel")
    return any(isinstance(s, Return) for loop in loops for s in statements(loop.body))


def may_leave(block: Block) -> bool:
    """Test whether a loop of this body may end before its last iteration."""
    return any(
        isinstance(s, (Break, Return, Fail))
        or (isinstance(s, If) and (may_leave(s.then) or may_leave(s.otherwise)))
        or (
            isinstance(s, (For, While))
            and any(isinstance(t, (Return, Fail)) for t in statements(s.body))
        )
        for s in block
    )


@lru_cache(maxsize=512)
def statements(block: Block) -> tuple[Statement, ...]:
    """Every statement of a block, nested ones included, outer ones first."""
    found: list[Statement] = []
    for s in block:
        found.append(s)
        for inner in blocks(s):
            found += statements(inner)
    return tuple(found)


def nodes(block: Block) -> Iterator[Expr]:
    """Every node of the expressions of a block, nested statements included; shared nodes once for
    each statement.
    """
    return (e for s in statements(block) for top in expressions(s) for e in walk(top))


def shared_bytes(block: Sequence[Statement], within: bool = True) -> int:
    """The bytes of shared memory that a block's buffers take, and those of blocks `within` it,
    which share their places.
    """
    own = [s.tensor.bytes for s in block if isinstance(s, Alloc) and s.tensor.space == "shared"]
    inner = (shared_bytes(b) for s in block for b in blocks(s)) if within else ()
    return sum(-(-n // 16) * 16 for n in own if isinstance(n, int)) + max(inner, default=0)


def written(kernel: Kernel) -> set[Tensor]:
    return {s.tensor for s in statements(kernel.body) if isinstance(s, Store)}


def is_rare(s: Statement) -> bool:
    """Test whether a statement is a branch that hardly any element takes."""
    return isinstance(s, If) and isinstance(s.condition, Apply) and s.condition.function == "any"


def usual(block: Block) -> Iterator[Statement]:
    """Every statement of a block except those of rare branches, outer ones first."""
    for s in block:
        if not is_rare(s):
            yield s
            for inner in blocks(s):
                yield from usual(inner)


def rewrite_block(block: Block, change: Callable[[Statement], Block | None]) -> Block:
    """Replace statements, top down, by the blocks that `change` returns; None rewrites the
    statement's own blocks.
    """
    made: list[Statement] = []
    for s in block:
        new = change(s)
        made += (rewrite_within(s, change),) if new is None else new
    return as_before(block, made)


def rewrite_within(s: Statement, change: Callable[[Statement], Block | None]) -> Statement:
    """The statement with its own blocks rewritten."""
    return map_blocks(s, lambda block: rewrite_block(block, change))


def map_blocks(s: Statement, change: Callable[[Block], Block]) -> Statement:
    """The statement with each of its own blocks changed."""
    match s:
        case For(_, body) | While(_, body):
            new = change(body)
            return s if new is body else replace(s, body=new)
        case If(condition, then, otherwise):
            yes, no = change(then), change(otherwise)
            return s if yes is then and no is otherwise else If(condition, yes, no)
    return s


def located(block: Block, span: Span) -> Block:
    """The block with the place of its assertions and errors."""
    return rewrite_block(
        block, lambda s: (replace(s, span=span),) if isinstance(s, (Assert, Fail)) else None
    )


def as_before(block: Block, made: list[Statement]) -> Block:
    """The statements; the same block object if they are unchanged, so that caches keyed by it
    remain valid.
    """
    return block if len(made) == len(block) and not any(map(is_not, block, made)) else tuple(made)


def map_expressions(block: Block, change: Callable[[Expr], Expr]) -> Block:
    """The block with every expression changed."""

    def one(s: Statement) -> Statement:
        match s:
            case For(_, body, start, stop):
                inner, first, end = (
                    map_expressions(body, change),
                    change(start),
                    None if stop is None else change(stop),
                )
                same = inner is body and first is start and end is stop
                return s if same else replace(s, body=inner, start=first, stop=end)
            case If(condition, then, otherwise):
                return If(
                    change(condition),
                    map_expressions(then, change),
                    map_expressions(otherwise, change),
                )
            case Let(var, value):
                new = change(value)
                return s if new is value else Let(var, new)
            case Store(_, at, value):
                places, new = tuple([change(i) for i in at]), change(value)
                same = new is value and not any(map(is_not, places, at))
                return s if same else replace(s, indices=places, value=new)
            case Assert(condition, message, span):
                return Assert(change(condition), message, span)
            case While(condition, body):
                return While(change(condition), map_expressions(body, change))
            case Prefetch(tensor, at):
                return Prefetch(tensor, tuple([change(i) for i in at]))
        return s

    return as_before(block, [one(s) for s in block])


def substitute_block(block: Block, values: dict[Expr, Expr]) -> Block:
    """Indices and variables replaced by expressions throughout a block."""
    return map_expressions(block, lambda e: substitute(e, values))


def replace_reads(block: Block, values: Mapping[Tensor, Expr]) -> Block:
    """The block with values in place of every read of some tensors."""
    return map_expressions(
        block, lambda e: rewrite(e, lambda n: values.get(n.tensor) if isinstance(n, Read) else None)
    )


Move: TypeAlias = Callable[
    [Tensor, tuple[Expr, ...]], tuple[Tensor, tuple[Expr, ...]] | None
]  # an access to another one, or None where it stays


def redirect_reads(e: Expr, move: Move) -> Expr:
    """The expression with its reads at other elements of other tensors."""

    def read(e: Expr) -> Expr | None:
        found = move(e.tensor, e.indices) if isinstance(e, Read) else None
        return None if found is None else Read(found[0], tuple(rewrite(i, read) for i in found[1]))

    return rewrite(e, read)


def redirect(block: Block, move: Move) -> Block:
    """The block with its accesses at other elements of other tensors."""

    def store(s: Statement) -> Block | None:
        found = move(s.tensor, s.indices) if isinstance(s, Store) else None
        return None if found is None else (replace(s, tensor=found[0], indices=found[1]),)

    return map_expressions(rewrite_block(block, store), lambda e: redirect_reads(e, move))


def replace_arrays(
    block: Block,
    arrays: Mapping[Tensor, Tensor],
    place: Callable[[Tensor, tuple[Expr, ...]], tuple[Expr, ...]] = lambda array, indices: indices,
) -> Block:
    """The block with other arrays in place of some, accessed at the `place` for the old one and its
    indices.
    """

    def alloc(s: Statement) -> Block | None:
        return (Alloc(arrays[s.tensor]),) if isinstance(s, Alloc) and s.tensor in arrays else None

    return redirect(
        rewrite_block(block, alloc),
        lambda t, at: (arrays[t], place(t, at)) if t in arrays else None,
    )


def is_one_turn(s: For) -> bool:
    """Test whether a loop runs exactly once."""
    if isinstance(s.start, Const) and isinstance(s.end, Const):
        return s.end.value - s.start.value == s.width
    return s.kind == "vector" and not (length := s.length).terms and length.constant == s.width
