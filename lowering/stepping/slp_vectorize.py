"""SLP-vectorize isomorphic updates of scalar state (LLVM's SLPVectorizer).

    s[0] = f(s[2], s[0]); s[1] = f(s[0], s[1]); s[2] = f(s[1], s[2]); ...
    =>  for l vector 8 { t[l] = f(s[l + 8], s[l]); t[8 + l] = f(s[l], s[8 + l]) ... }
        for l vector 8 { s[l] = t[l] ... }

Legal since all next values are computed before any is stored. Pays from `group_scalars` isomorphic
updates. A lane holds consecutive scalars, one per vector row, so a read of a neighbor reads
another row; only at a row's ends it reads the next lane. `arrange` assigns positions, `roll` writes
the loop. A kernel of two ticks needs no copy: the second tick goes back from t to s.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...dialect.kernel_ir.affine import key
from ...dialect.kernel_ir.expressions import (
    Apply,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    select,
)
from ...dialect.kernel_ir.loops import Alloc, For, Kernel, Let, Statement, Store, vector_loop
from ...dialect.kernel_ir.traverse import children as parts_of, with_children
from ...dialect.types.tensor_types import ElementType
from ..clocked_plan import Group, StepPlan
from ..passes import step_pass
from ..processor import processor

Rolled = tuple[Kernel, Kernel | None, dict[Tensor, np.ndarray]]
# rows and rotations that one vector is assembled from, at most; tuned by hand (Zen 4, Zen 5)
SOURCES = 3


@dataclass(frozen=True)
class Arrangement:
    """The position of every scalar in an array, and the array's groups."""

    places: Mapping[Tensor, int]
    size: int
    groups: tuple[Group, ...]


def arrange(kernels: Iterable[Kernel], numbers: Sequence[Tensor]) -> Arrangement:
    """Positions for 0-dimensional arrays of one element type: isomorphic ones first, by groups."""
    kinds: dict[Tensor, int] = {}
    for kernel in kernels:
        kinds.update(_kinds(kernel))
    members: dict[int, list[Tensor]] = {}
    for number in numbers:
        if number in kinds:
            members.setdefault(kinds[number], []).append(number)
    lanes = processor().vector_bytes // numbers[0].element.bytes
    places: dict[Tensor, int] = {}
    groups: list[Group] = []
    size = 0
    for group in members.values():
        if len(group) >= processor().tuning.group_scalars and numbers[0].element.kind == "float":
            groups.append(Group(size, len(group), -(-len(group) // lanes), lanes))
            places.update({t: groups[-1].place(n) for n, t in enumerate(group)})
            size += groups[-1].rows * lanes
    for number in numbers:
        if number not in places:
            places[number] = size
            size += 1
    return Arrangement(places, size, tuple(groups))


def _kinds(kernel: Kernel) -> dict[Tensor, int]:
    """The isomorphism class of each scalar that a kernel stores: equal if only constants and scalar
    reads differ.
    """
    known: dict[object, int] = {}
    found: dict[int, int] = {}
    kinds: dict[Tensor, int] = {}

    def kind(e: Expr) -> int:
        if id(e) not in found:
            match e:
                case Const(_, type):
                    looks: tuple[object, ...] = ("constant", type.name)
                case Read(tensor, ()):
                    looks = ("number", tensor.element.name)
                case Read():
                    looks = ("element", key(e))
                case Apply(function, operands, type):
                    looks = (function, type.name, *map(kind, operands))
                case Cast(operand, type):
                    looks = ("cast", type.name, kind(operand))
                case _:
                    looks = (id(e),)
            found[id(e)] = known.setdefault(looks, len(known))
        return found[id(e)]

    for s in kernel.body:
        match s:
            case Let(var, value):
                found[id(var)] = kind(value)
            case Store(tensor, (), value):
                kinds[tensor] = kind(value)
    return kinds


@step_pass
def slp_vectorize(step: StepPlan) -> StepPlan:
    """The tick with its scalars in rows, two at a time where it is nothing else."""
    plan = step.plan
    groups = step.groups
    constants = dict(step.plan.constants)
    once: list[Kernel] = []
    twice: Kernel | None = None
    for kernel in plan.kernels:
        rolled = next(
            (r for t in groups if t in kernel.parameters if (r := roll(kernel, t, groups[t]))), None
        )
        kernel, twice, lanes = rolled or (kernel, None, {})
        constants.update(lanes)
        once.append(kernel)
    step = replace(step, plan=replace(plan, constants=constants, kernels=tuple(once)))
    return step if step.turns or len(once) != 1 or twice is None else step.with_several(twice, 2)


def roll(kernel: Kernel, array: Tensor, groups: Sequence[Group]) -> Rolled | None:
    """The kernel with vector stores to an array's groups, and its per-lane constants; None if not
    isomorphic.
    """
    try:
        return _Rolling(kernel, array, groups).rolled()
    except _Unlike:
        return None


class _Unlike(Exception):
    """Updates of one row are not isomorphic, or read too many rows."""


class _Rolling:
    def __init__(self, kernel: Kernel, array: Tensor, groups: Sequence[Group]) -> None:
        self.kernel = kernel
        self.array = array
        self.groups = groups
        self.lanes = groups[0].lanes
        self.lane = Index("l", self.lanes)
        self.values: dict[Var, Expr] = {}
        self.stores: dict[int, Store] = {}
        self.remaining: list[Statement] = []
        self.constants: dict[tuple[ElementType, bytes], Tensor] = {}
        self.built: dict[tuple[int, ...], Expr] = {}
        grouped = {g.place(n) for g in groups for n in range(g.size)}
        for s in kernel.body:
            match s:
                case Let(var, value):
                    self.values[var] = value
                    self.remaining.append(s)
                case Store(tensor, (Const(place),)) if tensor is array and place in grouped:
                    self.stores[place] = s
                case Store():
                    self.remaining.append(s)
                case _:
                    raise _Unlike
        if self.stores.keys() != grouped:
            raise _Unlike
        self.source = array
        self.end = groups[-1].first + groups[-1].rows * self.lanes

    def rolled(self) -> Rolled:
        """The vectorized kernel: all next values are computed before any is stored; others first,
        and stored last.
        """
        following = replace(self.array, name=f"{self.array.name}.next", space="stack")
        forth = self.step(self.array, following)
        again = self.step(following, self.array)
        back = self.loop(self.array, [(first, following[self.at(first)]) for first in self.rows()])
        lets = tuple(s for s in self.remaining if isinstance(s, Let))
        stores = tuple(s for s in self.remaining if isinstance(s, Store))
        kernel = replace(
            self.kernel, parameters=(*self.constants.values(), *self.kernel.parameters)
        )
        constants = {
            t: np.frombuffer(numbers, type.dtype) for (type, numbers), t in self.constants.items()
        }
        if stores:
            return (
                kernel.with_body((*lets, Alloc(following), forth, back, *stores)),
                None,
                constants,
            )
        once, twice = ((Alloc(following), forth, last) for last in (back, again))
        return kernel.with_body(once), kernel.with_body(twice), constants

    def rows(self) -> list[int]:
        return [g.first + j * g.lanes for g in self.groups for j in range(g.rows)]

    def step(self, source: Tensor, target: Tensor) -> For:
        """The loop that computes all groups from those of the source."""
        self.source = source
        self.built.clear()
        values = [self.row(g, j) for g in self.groups for j in range(g.rows)]
        return self.loop(target, zip(self.rows(), values, strict=True))

    def loop(self, target: Tensor, rows: Iterable[tuple[int, Expr]]) -> For:
        return vector_loop(
            self.lane, *(Store(target, (self.at(first),), value) for first, value in rows)
        )

    def at(self, first: int, turn: int = 0) -> Expr:
        """The positions of a row, with lanes rotated."""
        return (self.lane + turn) % self.lanes + first if turn else self.lane + first

    def row(self, group: Group, j: int) -> Expr:
        """The vector expression of a row, from its scalars' expressions."""
        return self.together(
            [None if n is None else self.stores[group.place(n)].value for n in group.row(j)]
        )

    def together(self, values: Sequence[Expr | None]) -> Expr:
        """One expression for all lanes; a lane with None accepts any value."""
        values = [None if v is None else self.plain(v) for v in values]
        if (name := tuple(map(id, values))) not in self.built:
            self.built[name] = self.one(values)
        return self.built[name]

    def plain(self, e: Expr) -> Expr:
        while isinstance(e, Var) and e in self.values:
            e = self.values[e]
        return e

    def one(self, values: Sequence[Expr | None]) -> Expr:
        present = [v for v in values if v is not None]
        first = present[0]
        match first:
            case Const(_, type) if all(isinstance(v, Const) and v.type is type for v in present):
                numbers = np.array(
                    [v.value if isinstance(v, Const) else first.value for v in values], type.dtype
                )
                return (
                    first
                    if len({n.tobytes() for n in numbers}) == 1
                    else self.constant(first, numbers)
                )
            case Read(tensor, (Const(),)) if tensor is self.array:
                return self.gathered([None if v is None else self.element(v) for v in values])
            case Read() if all(key(v) == key(first) for v in present):
                return first
            case Apply() | Cast() if all(_head(v) == _head(first) for v in present):
                parts = [
                    (None,) * len(parts_of(first)) if v is None else parts_of(v) for v in values
                ]
                return with_children(first, tuple(map(self.together, zip(*parts, strict=True))))
        raise _Unlike

    def constant(self, like: Const, numbers: np.ndarray) -> Expr:
        tensor = Tensor(
            f"{self.array.name}.constants{len(self.constants)}",
            (self.lanes,),
            like.type,
            "constant",
        )
        return self.constants.setdefault((like.type, numbers.tobytes()), tensor)[self.lane]

    def element(self, e: Expr) -> int:
        match e:
            case Read(tensor, (Const(place),)) if tensor is self.array:
                return place
        raise _Unlike

    def gathered(self, places: Sequence[int | None]) -> Expr:
        """Elements of the array: one element, a row, or a shuffle of rows."""
        present = {p for p in places if p is not None}
        if len(present) == 1 and len(places) - places.count(None) > 1:
            return self.tensor(place := present.pop())[place]
        ways = [
            None if p is None else (p - p % self.lanes, (p - n) % self.lanes)
            for n, p in enumerate(places)
        ]
        (usual, _), *rest = Counter(w for w in ways if w is not None).most_common()
        if len(rest) >= SOURCES:
            raise _Unlike
        found: Expr = self.tensor(usual[0])[self.at(*usual)]
        for way, _ in rest:
            for lane in (n for n, w in enumerate(ways) if w == way):
                found = select(self.lane.eq(lane), self.tensor(way[0])[self.at(*way)], found)
        return found

    def tensor(self, place: int) -> Tensor:
        """The array from which the scalar at a position is read; others do not alternate between
        buffers.
        """
        return self.source if place < self.end else self.array


def _head(e: Expr) -> tuple[object, ...]:
    match e:
        case Apply(function, operands, type):
            return function, len(operands), type.name
        case Cast(_, type):
            return "cast", type.name
    return (id(e),)
