"""Verify that a kernel is legal, as MLIR's verifier does between passes: `check_kernel` raises a
LoweringError that names the statement.

Every index and variable is bound once, before its use. Every buffer is allocated before its use.
Types agree. Every access is inside its tensor under the enclosing loop bounds and guards. A vector
loop's extent is a multiple of its width, unless its vectors may begin anywhere, and no result
depends on the order of its lanes. Unrolled loops have constant extents. Accesses are proved in
bounds by linear reasoning. An access that depends on data, or on sizes that are checked when the
program is called, may stay unproved: `check_kernel` returns these and raises for any other.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace as copy

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from ...dialect.kernel_ir.kernel_printer import statement_text
from ...dialect.kernel_ir.traverse import walk
from ...dialect.support.suggest import did_you_mean
from ...dialect.types.linear_form import Key
from ...dialect.types.sizes import Dim
from ...dialect.types.tensor_types import I1, I64
from .accesses import stores, varies
from .dependence import dependence
from .instances import Access, Nest
from .prove import prove
from .vector_alignment import begins_lines, can_shift, left_over

CONCURRENT = "vector", "parallel", "block", "thread"  # kinds of loops
LINEAR = ex.Const, ex.Index, ex.Extent
# bytes of a kernel's buffers, at most: bounds the stack of a thread, which is 8 MB on Linux
MAX_STACK = 1 << 21


class LoweringError(AssertionError):
    """An illegal kernel, made by a faulty pass or written by hand; `statement` is the one at fault,
    if it is in the body.
    """

    def __init__(
        self,
        message: str,
        statement: ir.Statement | None = None,
        code: str = "kernel.illegal",
        other: ir.Statement | None = None,
    ) -> None:
        super().__init__(
            message
            + ("" if statement is None else "\n" + statement_text(statement).partition("\n")[0])
        )
        self.message = message
        self.statement = statement
        self.code = code
        self.other = other  # an access that the statement conflicts with


@dataclass(frozen=True)
class Bindings:
    """The bindings and facts that hold at a statement."""

    indices: frozenset[ex.Index] = frozenset()
    variables: frozenset[ex.Var] = frozenset()
    tensors: frozenset[ex.Tensor] = frozenset()
    facts: tuple[Affine, ...] = ()
    order: dict[Key, int] = field(default_factory=dict)
    lane: ex.Index | None = None
    varying: frozenset[object] = frozenset()  # variables and buffers that have one value per lane
    jumps: bool = False  # whether the innermost loop may be left
    inner: frozenset[ex.Tensor] = (
        frozenset()
    )  # buffers private to an iteration of the vector or parallel loop


@dataclass(frozen=True)
class Unproved:
    """Accesses that depend on data, or on sizes that are checked when the program is called."""

    places: set[str] = field(default_factory=set)  # one message each
    indices: set[tuple[ex.Expr, Dim]] = field(default_factory=set)  # with the size of the axis
    ranges: set[ex.Index] = field(default_factory=set)  # whose loops may leave their extent


def check_kernel(
    kernel: ir.Kernel, strict: bool = False, home: Mapping[ex.Tensor, ex.Tensor] | None = None
) -> list[str]:
    """The accesses left unproved because they depend on data; raises LoweringError if the kernel is
    not legal: see `unproved_accesses`.
    """
    return sorted(unproved_accesses(kernel, strict, home).places)


def unproved_accesses(
    kernel: ir.Kernel,
    strict: bool = False,
    home: Mapping[ex.Tensor, ex.Tensor] | None = None,
    certain: bool = True,
) -> Unproved:
    """Verify a kernel, and return the accesses left unproved because they depend on data; raises
    LoweringError if the kernel is not legal.

    In kernels that are not cvm's own, `strict`, every loop that is not serial is proved to carry no
    dependence; of others, those whose subscripts are linear, and which do more than store to one
    element in several iterations. `home` has the arrays that parameters are views of. Where numbers
    alone bound an index beyond its array, the kernel is not legal if this is `certain`, as it is
    not where known sizes have taken the place of others, behind tests.
    """
    checker = _Checker(kernel, strict, home or {}, certain)
    scope = Bindings(tensors=frozenset(kernel.parameters))
    if kernel.condition is not None:
        checker.expression(kernel.condition, scope)
        checker.hold(kernel.condition.type is I1, f"a condition of type {kernel.condition.type}")
        scope = checker.given(scope, affine_conditions(kernel.condition))
    checker.block(kernel.body, scope)
    return checker.unproved


def carried(kernel: ir.Kernel, loop: ir.For, store: Access, other: Access) -> LoweringError:
    """The mistake of a loop whose iterations run at once, though one may meet the store of
    another.
    """
    name = f"%{store.tensor.name}"
    said = f"lanes write different values to one element of {name}"
    if not other.writes or loop.kind != "vector":
        said = f"{name} is carried from one iteration to another of the {loop.kind} loop"
    message = f"kernel @{kernel.name}: {said} over %{loop.index.name}"
    return LoweringError(message, other.statement, "kernel.dependence", store.statement)


def races(kernel: ir.Kernel, known: Collection[str] = ()) -> Iterator[tuple[str, LoweringError]]:
    """The arrays, but for those that are `known`, of which iterations of a loop that run at once
    may write elements that others use, each with the mistake.
    """
    nest = Nest(kernel.body, kernel.condition)
    for s in ir.statements(kernel.body):
        found = {*known}
        while isinstance(s, ir.For) and s.kind in CONCURRENT:
            if (pair := dependence(nest, s, found)) is None:
                break
            found.add(name := pair[0].tensor.name)
            yield name, carried(kernel, s, *pair)


class _Checker:
    def __init__(
        self,
        kernel: ir.Kernel,
        strict: bool,
        home: Mapping[ex.Tensor, ex.Tensor],
        certain: bool = True,
    ) -> None:
        self.kernel, self.strict, self.certain = kernel, strict, certain
        self.results = set(kernel.outputs)
        self.unproved = Unproved()
        self.stack = 0  # bytes
        self.nest = Nest(kernel.body, kernel.condition, home)
        self.at: ir.Statement | None = None
        self.read_by: dict[int, tuple[Affine, frozenset[object]]] = {}  # by id, of facts kept alive

    def hold(self, condition: bool, message: str) -> None:
        if not condition:
            raise LoweringError(f"kernel @{self.kernel.name}: {message}", self.at)

    def block(self, block: ir.Block, scope: Bindings) -> None:
        for s in block:
            self.at = s
            for e in ir.expressions(s):
                self.expression(e, scope)
            if isinstance(s, (ir.For, ir.While)):  # of which an iteration may follow a store
                scope = self.after_stores(s, scope)
            scope = self.after_stores(s, self.statement(s, scope))

    def statement(self, s: ir.Statement, scope: Bindings) -> Bindings:
        """Check one statement and return the scope of the statements after it."""
        match s:
            case ir.For():
                self.loop(s, scope)
            case ir.If(condition, then, otherwise):
                self.hold(condition.type is I1, f"a branch on {condition.type}")
                self.hold(
                    not self.varies(condition, scope), "a branch on what differs between lanes"
                )
                self.block(then, self.given(scope, affine_conditions(condition)))
                self.block(otherwise, self.given(scope, negated_conditions(condition)))
            case ir.Let(var, value):
                self.hold(
                    var.type is value.type, f"%{var.name} is {var.type}, its value {value.type}"
                )
                self.hold(var not in scope.variables, f"%{var.name} is named twice")
                scope = copy(scope, variables=scope.variables | {var})
                if self.varies(value, scope):
                    scope = copy(scope, varying=scope.varying | {var})
                if var.type is I64:
                    scope = self.given(scope, _equal(var, value), var)
            case ir.Alloc(tensor):
                scope = self.allocation(tensor, scope)
            case ir.Store():
                self.store(s, scope)
            case ir.Assert(condition, _, _):
                self.hold(condition.type is I1, f"a requirement of {condition.type}")
            case ir.While(condition, body):
                self.hold(condition.type is I1, f"a loop while {condition.type}")
                self.hold(scope.lane is None, "a loop without bounds inside a vector loop")
                self.block(body, self.given(copy(scope, jumps=True), affine_conditions(condition)))
            case ir.Break() | ir.Continue():
                self.hold(scope.jumps, "a jump outside of a serial loop")
            case ir.Return() | ir.Fail():
                self.hold(scope.lane is None, "the end of the kernel inside a vector loop")
            case ir.Prefetch(tensor, at):
                self.hold(tensor in scope.tensors, f"%{tensor.name} is not there")
                self.hold(all(e.type is I64 for e in at), "indices are i64")
        return scope

    def after_stores(self, s: ir.Statement, scope: Bindings) -> Bindings:
        """The scope without facts about elements that the statement may store to."""
        if not any(map(self.read_in, scope.facts)):
            return scope
        written = {self.home(t.tensor) for t in stores((s,))}
        kept = tuple(f for f in scope.facts if self.read_in(f).isdisjoint(written))
        return copy(scope, facts=kept)

    def read_in(self, fact: Affine) -> frozenset[object]:
        """The arrays whose elements a fact is about."""
        if (known := self.read_by.get(id(fact))) is None:
            reads = (n for n in _atoms(fact) if isinstance(n, ex.Read))
            known = self.read_by[id(fact)] = fact, frozenset(self.home(r.tensor) for r in reads)
        return known[1]

    def home(self, tensor: ex.Tensor) -> object:
        """The array of a name; arguments that may overlap count as one."""
        if self.kernel.aliasing and tensor in self.kernel.parameters:
            return self.kernel
        return self.nest.home.get(tensor, tensor)

    def given(
        self, scope: Bindings, facts: list[Affine] | None, bound: ex.Expr | None = None
    ) -> Bindings:
        order = scope.order if bound is None else {**scope.order, key(bound): len(scope.order) + 1}
        return copy(scope, facts=(*scope.facts, *(facts or ())), order=order)

    def allocation(self, tensor: ex.Tensor, scope: Bindings) -> Bindings:
        self.hold(tensor not in scope.tensors, f"%{tensor.name} is allocated twice")
        if tensor.space in ("register", "stack", "shared", "pack"):
            if not isinstance(size := tensor.bytes, int):
                raise LoweringError(
                    f"kernel @{self.kernel.name}: %{tensor.name} has an unknown size", self.at
                )
            self.stack += size
            self.hold(
                self.stack <= MAX_STACK,
                f"{self.stack} bytes on the stack, but the limit is {MAX_STACK}",
            )
            if scope.lane is not None:
                scope = copy(scope, varying=scope.varying | {tensor})
        else:
            self.hold(
                tensor.space == "heap" and scope.lane is None,
                f"%{tensor.name} cannot be allocated here",
            )
        return copy(scope, tensors=scope.tensors | {tensor}, inner=scope.inner | {tensor})

    # loops

    def loop(self, s: ir.For, scope: Bindings) -> None:
        self.hold(s.index not in scope.indices, f"%{s.index.name} is bound twice")
        self.hold(s.start.type is I64 and s.end.type is I64, "loop bounds are i64")
        self.hold(
            not (self.varies(s.start, scope) or self.varies(s.end, scope)),
            "bounds that differ between lanes",
        )
        self.range(s, scope)
        inside = copy(scope, indices=scope.indices | {s.index}, jumps=s.kind == "serial")
        scope = self.given(inside, bounds_of(s), s.index)
        if s.kind == "unrolled":
            constant = isinstance(s.start, ex.Const) and isinstance(s.end, ex.Const)
            self.hold(constant, "an unrolled loop with unknown bounds")
        if s.kind in CONCURRENT:
            scope = copy(scope, inner=frozenset())
            self.hold(scope.lane is None, f"a {s.kind} loop inside a vector loop")
            if self.strict or s.kind in ("vector", "parallel"):
                self.independent(s)  # the emulator finds races of cvm's own GPU kernels
        if s.kind == "intrinsic" and self.strict:
            self.intrinsic(s)
        self.hold(s.overlap == 0 or s.kind == "vector", f"a {s.kind} loop that overlaps others")
        if s.kind == "vector":
            self.hold(s.width > 1, f"{s.width} lanes")
            shifts = can_shift(s) and (
                left_over(s) > 0 or any(begins_lines(s, t) for t in stores(s.body))
            )
            whole = not s.length.divisor % s.width or shifts
            self.hold(whole, f"the extent is not known to be a multiple of {s.width}")
            scope = copy(scope, lane=s.index)
        self.block(s.body, scope)

    def intrinsic(self, s: ir.For) -> None:
        from .intrinsics import INTRINSICS, Differs, Match

        near = did_you_mean(s.by, INTRINSICS)
        self.hold(s.by in INTRINSICS, f"there is no intrinsic {s.by}{near}")
        try:
            Match(s.by, s)
        except Differs as e:
            self.hold(False, str(e))

    def range(self, s: ir.For, scope: Bindings) -> None:
        """Check that a loop that runs at all begins at 0 or above, and ends within the index's
        extent.
        """
        runs = (*scope.facts, *(f - affine(s.index) + affine(s.start) for f in bounds_of(s)[1:]))
        ends = ex.flat_operands("min", s.end)
        extent = affine(ex.as_index(s.index.extent))
        for goals, what in (
            ([affine(s.start)], "begin below 0"),
            ([extent - affine(e) for e in ends], f"go beyond {s.index.extent}"),
        ):
            if not any(prove(g, runs, scope.order) for g in goals):
                place = f"a loop over %{s.index.name} that may {what}"
                linear = all(isinstance(a, LINEAR) for g in goals for a in _atoms(g))
                self.hold(not linear or any(_open(g, scope) for g in goals), place)
                self.unproved.places.add(place)
                self.unproved.ranges.add(s.index)

    def independent(self, s: ir.For) -> None:
        """Check that iterations of a vector or parallel loop carry no dependence through memory."""
        if (found := dependence(self.nest, s)) is not None:
            store, other = found
            if not self.strict and other.writes and s.kind == "parallel":
                return  # a last tile that moves back stores the same values again
            subscripts = [affine(i) for i in (*store.indices, *other.indices)]
            if not self.strict and not all(
                isinstance(a, LINEAR) for i in subscripts for a in _atoms(i)
            ):
                return
            raise carried(self.kernel, s, store, other)

    def store(self, s: ir.Store, scope: Bindings) -> None:
        self.hold(
            s.value.type is s.tensor.element,
            f"%{s.tensor.name} is {s.tensor.element}, the value {s.value.type}",
        )
        self.hold(
            s.tensor in self.results or s.tensor not in self.kernel.parameters,
            f"%{s.tensor.name} is no result",
        )
        self.access(s.tensor, s.indices, scope)
        if scope.lane is not None and s.tensor not in scope.inner:
            one_value = any(self.varies(i, scope) for i in s.indices) or not self.varies(
                s.value, scope
            )
            self.hold(one_value, f"lanes write different values to one element of %{s.tensor.name}")

    # expressions

    def varies(self, e: ex.Expr, scope: Bindings) -> bool:
        """Test whether an expression may differ between the lanes of the vector loop."""
        if scope.lane is None or (isinstance(e, ex.Apply) and e.function == "any"):
            return False
        return any(n is scope.lane or varies(n, scope.varying) for n in walk(e))

    def expression(self, e: ex.Expr, scope: Bindings) -> None:
        for n in walk(e):
            match n:
                case ex.Index():
                    self.hold(n in scope.indices, f"%{n.name} is not bound")
                case ex.Var():
                    self.hold(n in scope.variables, f"%{n.name} is not bound")
                case ex.Reduce() | ex.When() | ex.Check():
                    self.hold(False, f"a {type(n).__name__} in a kernel")
                case ex.Read(tensor, at):
                    self.access(tensor, at, scope)

    def access(self, tensor: ex.Tensor, at: tuple[ex.Expr, ...], scope: Bindings) -> None:
        self.hold(tensor in scope.tensors, f"%{tensor.name} is not allocated")
        self.hold(
            len(at) == tensor.rank, f"%{tensor.name} has {tensor.rank} axes, got {len(at)} indices"
        )
        for i, d in zip(at, tensor.shape, strict=True):
            self.hold(i.type is I64, f"an index of %{tensor.name} is {i.type}")
            uniform = tensor not in scope.varying or not self.varies(i, scope)
            self.hold(
                uniform, f"%{tensor.name} has a value for each lane, and an index that differs"
            )
            for goal, what in (
                (affine(i), "below 0"),
                ((affine(ex.as_index(d)) - affine(i)).plus(-1), f"beyond {d}"),
            ):
                if not prove(goal, scope.facts, scope.order):
                    place = f"an index of %{tensor.name} may be {what}"
                    self.hold(not self.certain or _open(goal, scope), place)
                    self.unproved.places.add(place)
                    self.unproved.indices.add((i, d))


def _open(goal: Affine, scope: Bindings) -> bool:
    """Test whether a goal depends on data or on sizes that are checked when the program is
    called.
    """
    mine = _atoms(goal)
    reached: set[ex.Expr] = set()
    for fact in reversed(
        scope.facts
    ):  # innermost first: facts about the goal's atoms may mention further atoms
        parts = _atoms(fact)
        if parts & (mine | reached):
            reached |= parts
    partner = any(
        isinstance(n, ex.Apply) and n.function == "xor" for n in mine
    )  # another thread of the block
    return partner or any(isinstance(n, (ex.Read, ex.Var, ex.Extent)) for n in mine | reached)


def bounds_of(s: ir.For) -> list[Affine]:
    """The facts that hold of a loop's index in its body, each a form that is not negative."""
    index = affine(s.index)
    lower = [index - affine(e) for e in ex.flat_operands("max", s.start)]
    return [index, *lower, *((affine(e) - index).plus(-1) for e in ex.flat_operands("min", s.end))]


def _equal(var: ex.Var, value: ex.Expr) -> list[Affine]:
    difference = affine(var) - affine(value)
    return [difference, difference * -1]


def _atoms(sum: Affine) -> set[ex.Expr]:
    return {n for a, _ in sum.terms.values() for n in walk(a)}
