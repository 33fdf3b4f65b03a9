"""The accesses of a kernel, and instances of them: an access at given values of its loops' indices,
with the facts that hold there. Dependence tests and proofs of initialization compare instances.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, affine_conditions, key, negated_conditions
from ...dialect.kernel_ir.traverse import rewrite, walk
from ...dialect.types.linear_form import Key
from ...dialect.types.tensor_types import I64
from .prove import plain, prove

# affine forms that each search for a contradiction examines; bounds compile time (by hand)
CONTRADICTION_STEPS = 100

Values = Mapping[ex.Expr, ex.Expr]
Side = tuple[object, bool]  # a branch at an instance, and the side that is taken there
Branch = tuple[ir.If, bool]  # a branch, and which side of it
Path = tuple[ir.For | ir.While, ...]  # loops around a statement, outermost first


@dataclass(frozen=True, eq=False)
class Jump:
    """A jump within the loop `of`, out of it or to its next iteration; out of the kernel, None."""

    statement: ir.Break | ir.Continue | ir.Return
    of: ir.For | ir.While | None
    path: Path
    position: int


@dataclass(frozen=True, eq=False)
class Access:
    """A read or a store, with the loops and branches around it, outermost first, and its place in
    program order. `path` has loops without bounds, too.
    """

    statement: ir.Statement
    tensor: ex.Tensor
    indices: tuple[ex.Expr, ...]
    loops: tuple[ir.For, ...]
    branches: tuple[Branch, ...]
    path: Path
    position: int

    @property
    def writes(self) -> bool:
        return self.position % 2 == 1


@dataclass
class Nest:
    """The accesses of a block. `depth` is the number of loops around the allocation of a buffer, or
    around a `Let`; `home` has the array that a view is of.
    """

    block: ir.Block
    condition: ex.Expr | None = None
    home: Mapping[ex.Tensor, ex.Tensor] = field(default_factory=dict[ex.Tensor, ex.Tensor])
    reads: list[Access] = field(default_factory=list[Access])
    stores: list[Access] = field(default_factory=list[Access])
    values: dict[ex.Expr, ex.Expr] = field(default_factory=dict[ex.Expr, ex.Expr])
    depth: dict[object, int] = field(default_factory=dict[object, int])
    around: dict[ex.Tensor, tuple[Branch, ...]] = field(
        default_factory=dict[ex.Tensor, tuple[Branch, ...]]
    )
    loops_of: dict[ex.Expr, tuple[ir.For, ...]] = field(
        default_factory=dict[ex.Expr, tuple[ir.For, ...]]
    )
    order: dict[Key, int] = field(default_factory=dict[Key, int])
    jumps: list[Jump] = field(default_factory=list[Jump])
    within: dict[ex.Tensor, Path] = field(default_factory=dict[ex.Tensor, Path])  # of its Alloc

    def __post_init__(self) -> None:
        self._numbers = count()
        self.mutable = {s.tensor for s in ir.statements(self.block) if isinstance(s, ir.Store)}
        self._visit(self.block, (), (), ())

    def _visit(
        self,
        block: ir.Block,
        loops: tuple[ir.For, ...],
        branches: tuple[Branch, ...],
        path: Path,
    ) -> None:
        for s in block:
            number = next(self._numbers)
            for top in ir.expressions(s):
                self.reads += [
                    Access(s, e.tensor, e.indices, loops, branches, path, 2 * number)
                    for e in walk(top)
                    if isinstance(e, ex.Read)
                ]
            match s:
                case ir.For():
                    self.rank(s.index)
                    self._visit(s.body, (*loops, s), branches, (*path, s))
                case ir.While(_, body):
                    self._visit(body, loops, branches, (*path, s))
                case ir.If(_, then, otherwise):
                    self._visit(then, loops, (*branches, (s, True)), path)
                    self._visit(otherwise, loops, (*branches, (s, False)), path)
                case ir.Let(var, value):
                    self.rank(var)
                    self.loops_of[var] = loops
                    reads = (e for e in walk(value) if isinstance(e, ex.Read))
                    if var.type is I64 and not any(e.tensor in self.mutable for e in reads):
                        self.values[var] = rewrite(value, self.values.get)
                case ir.Alloc(tensor):
                    self.depth[tensor] = len(loops)
                    self.around[tensor] = branches
                    self.within[tensor] = path
                case ir.Store(tensor, at, _):
                    stored = Access(s, tensor, at, loops, branches, path, 2 * number + 1)
                    self.stores.append(stored)
                case ir.Break() | ir.Continue():
                    self.jumps.append(Jump(s, path[-1], path, 2 * number))
                case ir.Return():
                    self.jumps.append(Jump(s, None, path, 2 * number))

    def is_left_out(self, store: Access, read: Access | None) -> bool:
        """Test whether a jump, or a loop without bounds, may leave instances of a store out that
        are before a read, or before the end of the kernel.

        In a loop that both are in, an iteration that reaches the read has reached what stands
        before it; this tells of a buffer of the loop's own, and of the outermost loop, which no
        iteration before has left.
        """

        def is_reached(loop: ir.For | ir.While, other_iterations: bool) -> bool:
            if read is None or loop not in read.path:
                return False
            if loop in self.within.get(store.tensor, ()):
                return store.position < read.position
            return other_iterations and store.path[0] is loop is read.path[0]

        for loop in store.path:
            if isinstance(loop, ir.While) and not is_reached(loop, False):
                return True
        for jump in self.jumps:
            if jump.of is None:
                in_one_loop = store.path[:1] == jump.path[:1] != ()
                if read is None and (in_one_loop or store.position > jump.position):
                    return True
            elif jump.of in store.path:
                goes_on = isinstance(jump.statement, ir.Continue)
                skips = not goes_on or jump.position < store.position
                if skips and not is_reached(jump.of, not goes_on):
                    return True
        return False

    def rank(self, atom: ex.Expr) -> None:
        """Number an index or a variable, so that proofs eliminate it before those outside of it."""
        self.order[key(atom)] = len(self.order) + 1

    def fresh(self, index: ex.Index) -> ex.Index:
        """An index of the same extent, ranked as the innermost."""
        new = ex.Index(f"{index.name}'", index.extent)
        self.rank(new)
        return new


class Instance:
    """An access at other values of its indices; an unknown value is a variable of the instance."""

    def __init__(self, nest: Nest, access: Access, values: Values) -> None:
        self.nest, self.access, self.values = nest, access, values
        self._own: dict[object, ex.Expr] = {}

    def at(self, e: ex.Expr) -> ex.Expr:
        return rewrite(rewrite(e, self.nest.values.get), self._moved)

    def _moved(self, e: ex.Expr) -> ex.Expr | None:
        if e in self.values:
            return self.values[e]
        inside = isinstance(e, ex.Var) and any(
            s.index in self.values for s in self.nest.loops_of.get(e, ())
        )
        if inside or (isinstance(e, ex.Read) and e.tensor in self.nest.mutable):
            if e not in self._own:
                name = "unknown" if self.values else "here"
                self._own[e] = new = ex.Var(name, e.type)
                self.nest.rank(new)
            return self._own[e]
        return None

    def indices(self) -> tuple[ex.Expr, ...]:
        return tuple(map(self.at, self.access.indices))

    def bounds(self, s: ir.For) -> list[Affine]:
        """The facts of a loop's bounds at the instance."""
        index = affine(self.at(s.index))
        lower = [index - affine(self.at(e)) for e in ex.flat_operands("max", s.start)]
        upper = [affine(self.at(e)) - index for e in ex.flat_operands("min", s.end)]
        return [index, *lower, *(u.plus(-1) for u in upper)]

    def guards(self, inside: int = 0) -> tuple[list[Affine], list[Side]]:
        """The conditions under which the instance is executed: affine ones, and sides of branches
        of other conditions; without those of the first `inside` branches around it.
        """
        found, opaque = list[Affine](), list[Side]()
        parts = [] if self.nest.condition is None else ex.conjunction(self.nest.condition)
        for part in parts:
            found += affine_conditions(self.at(part)) or []
        for (branch, side), way in zip(
            self.access.branches[inside:], self.sides(inside), strict=True
        ):
            forms = affine_conditions if side else negated_conditions
            conditions = ex.conjunction(branch.condition) if side else [branch.condition]
            known = [forms(self.at(c)) for c in conditions]
            opaque += [way] if any(k is None for k in known) else []
            found += [f for k in known for f in k or ()]
        return found, opaque

    def sides(self, inside: int = 0) -> list[Side]:
        """The sides of the branches around the instance: each is the branch at the values of the
        loops around it.
        """
        return [
            (
                (
                    id(branch),
                    *(key(self.at(s.index)) for s in self.access.loops if _within(branch, s.body)),
                ),
                side,
            )
            for branch, side in self.access.branches[inside:]
        ]

    def facts(self) -> list[Affine]:
        """The facts that hold where the instance is executed."""
        stated = list[Affine]()
        for s in self.access.loops:
            stated += (bounds := self.bounds(s))
            count = len(ex.flat_operands("min", s.end))
            stated += [low + high for low in bounds[:-count] for high in bounds[-count:]]
        stated += self.guards()[0]
        return [*dict.fromkeys(r for f in stated for r in _relaxed(f))]


def _relaxed(fact: Affine, depth: int = 3) -> Iterator[Affine]:
    """A fact, and those that follow with bounds in place of quotients, least and greatest
    values.
    """
    yield fact
    for atom, factor in fact.terms.values() if depth else ():
        rest = fact.without(atom)
        match atom:
            case ex.Apply("floordiv", (a, ex.Const(c))) if c > 0:
                bound = affine(a) if factor > 0 else affine(a).plus(1 - c)
                yield from _relaxed(rest * c + bound * factor, depth - 1)
            case ex.Apply("min" | "max" as which, operands) if (factor > 0) is (which == "min"):
                for e in operands:
                    yield from _relaxed(rest + affine(e) * factor, depth - 1)


def _within(statement: ir.Statement, block: ir.Block) -> bool:
    return statement in ir.statements(block)


def apart(
    nest: Nest, a: tuple[ex.Expr, ...], b: tuple[ex.Expr, ...], facts: Iterable[Affine]
) -> bool:
    """Test whether two accesses are to different elements under facts: equal subscripts contradict
    them.
    """
    equal = [plain(affine(x) - affine(y)) for x, y in zip(a, b, strict=True)]
    facts = [plain(f) for f in facts]
    for n, d in enumerate(equal):
        others = [e * sign for e in equal[:n] + equal[n + 1 :] for sign in (1, -1)]
        goals = [(d * sign).plus(-1) for sign in (1, -1)]
        if _never_zero(d) or any(prove(g, [*facts, *others], nest.order) for g in goals):
            return True
    solved = _solved(nest, equal, facts)
    if solved is None:
        return True
    return any(f.constant < 0 and not f.terms for f in solved) or any(
        prove((f * -1).plus(-1), solved, nest.order, CONTRADICTION_STEPS) for f in solved
    )


def _solved(nest: Nest, equal: list[Affine], facts: list[Affine]) -> list[Affine] | None:
    """The facts after elimination of what equalities determine; None if those contradict each
    other.

    Where c * x + y = 0 and y is known to be less than c, both x and y are 0 (delinearization).
    """
    known = {_identity(f) for f in facts}
    waiting = [*(f for f in facts if f.terms and _identity(f * -1) in known), *equal]
    for _ in range(4 * len(waiting) + 8):
        if not waiting:
            break
        d = waiting.pop()
        if _never_zero(d):
            return None
        if not d.terms:
            continue
        unit = [t for t in d.terms.values() if abs(t[1]) == 1 and not isinstance(t[0], ex.Extent)]
        if unit:
            atom, factor = unit[0]
            value = d.without(atom) * -factor

            def put(form: Affine, atom: ex.Expr = atom, value: Affine = value) -> Affine:
                return form.without(atom) + value * form.factor(atom)

            waiting, facts = [put(e) for e in waiting], [put(f) for f in facts]
            continue
        most = max(abs(f) for _, f in d.terms.values())
        large = Affine({k: t for k, t in d.terms.items() if not t[1] % most})
        small = d - large
        if small.terms and all(
            prove((small * sign).plus(most - 1), facts, nest.order) for sign in (1, -1)
        ):
            ones = {k: (a, f // most) for k, (a, f) in large.terms.items()}
            waiting += [small, Affine(ones)]
        else:  # until others are solved
            waiting.insert(0, d)
    return facts


def _identity(form: Affine) -> object:
    return frozenset((k, f) for k, (_, f) in form.terms.items()), form.constant


def _never_zero(sum: Affine) -> bool:
    """Test whether a sum cannot be 0 by the gcd test: its constant is no multiple of the gcd of its
    factors.
    """
    factors = sum.plus(-sum.constant).divisor
    return bool(sum.constant % factors if factors else sum.constant)
