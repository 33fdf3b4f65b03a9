"""The value that a store writes as a function of its place alone, so that stores of several
iterations to one element are known to write one value, as overlapping tiles do.

    for i { b[p] = w[p % 4]; y[min(8 * i, n - 8) * 4 + p] = x[min(8 * i, n - 8) * 4 + p] * b[p] }
    =>  y[P] = x[P] * w[P % 4]

Subscripts are solved for inner indices, and private buffers replaced by what fills them. Sums in
buffers, which several stores fill, are not followed.
"""

from dataclasses import dataclass, field

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, key
from ...dialect.kernel_ir.traverse import over, rebuild, rewrite, walk
from ...dialect.types.tensor_types import I64, MAX_RANK
from .accesses import allocated
from .instances import Access, Instance, Nest
from .written import covered

# factors in remainders, at most: a few indices below 2^40 times such numbers do not wrap
SMALL = 1 << 20
PLACES = tuple(ex.Var(f"place {n}", I64) for n in range(MAX_RANK))


def value_by_place(nest: Nest, loop: ir.For, store: Access) -> object:
    """The key of a store's value in terms of its place; None if it may differ between iterations of
    a loop otherwise.
    """
    value = _Values(nest, allocated(loop.body)).of(store, store.loops.index(loop) + 1)
    if value is None or any(_changes(nest, loop, n) for n in walk(value)):
        return None
    return key(value)


def _changes(nest: Nest, loop: ir.For, e: ex.Expr) -> bool:
    return e is loop.index or (isinstance(e, ex.Var) and loop in nest.loops_of.get(e, ()))


@dataclass
class _Values:
    nest: Nest
    private: set[ex.Tensor]
    followed: list[ex.Tensor] = field(default_factory=list[ex.Tensor])

    def of(self, store: Access, depth: int) -> ex.Expr | None:
        """The value of a store by its place and the first `depth` loops around it; None if it
        depends on further ones.
        """
        if not isinstance(store.statement, ir.Store):
            return None
        filled: dict[ex.Expr, ex.Expr] = {}
        for e in walk(store.statement.value):
            if isinstance(e, ex.Read) and e.tensor in self.private:
                if (value := self.buffered(e)) is None:
                    return None
                at = dict[ex.Expr, ex.Expr](zip(PLACES, e.indices, strict=False))
                filled[e] = rewrite(value, at.get)
        inner = [s.index for s in store.loops[depth:]]
        solved: dict[ex.Expr, ex.Expr] = {}

        def known(e: ex.Expr) -> ex.Expr:
            return _normal(rewrite(rewrite(e, self.nest.values.get), solved.get))

        for n, subscript in enumerate(store.indices):
            form = affine(known(subscript))
            index = next((i for i in reversed(inner) if form.factor(i) == 1), None)
            if index is not None:
                value = (affine(PLACES[n]) - form.without(index)).expression()
                one: dict[ex.Expr, ex.Expr] = {index: value}
                solved = {i: rewrite(e, one.get) for i, e in solved.items()}
                solved[index] = value
        value = known(rewrite(store.statement.value, filled.get))
        return None if any(n in inner for n in walk(value)) else value

    def buffered(self, read: ex.Read) -> ex.Expr | None:
        """The value that the one store to a private buffer has written, by the place of a read."""
        nest, tensor = self.nest, read.tensor
        stores = [s for s in nest.stores if s.tensor is tensor]
        access = next(a for a in nest.reads if a.indices is read.indices and a.tensor is tensor)
        at = Instance(nest, access, {})
        if (
            len(stores) != 1
            or tensor in self.followed
            or not covered(nest, access, at, at.indices())
        ):
            return None
        self.followed.append(tensor)
        value = self.of(stores[0], nest.depth[tensor])
        self.followed.pop()
        return value


def _normal(e: ex.Expr) -> ex.Expr:
    """The expression with index arithmetic in one form: sums in one order, remainders without
    multiples of their divisor.
    """

    def made(node: ex.Expr, parts: tuple[ex.Expr, ...]) -> ex.Expr:
        node = over(node, parts)
        match node:
            case ex.Apply("floormod", (a, ex.Const(int(c)) as divisor), _) if 0 < c < SMALL:
                form = affine(a)
                if all(map(_is_small, form.terms.values())) and abs(form.constant) < SMALL:
                    terms = {k: (t, f % c) for k, (t, f) in form.terms.items() if f % c}
                    return ex.apply("floormod", _sum(Affine(terms, form.constant % c)), divisor)
            case ex.Apply("add" | "sub" | "mul" | "neg") if node.type is I64:
                return _sum(affine(node))
        return node

    return rebuild(e, made, {})


def _is_small(term: tuple[ex.Expr, int]) -> bool:
    """Test whether a term of a sum is far from wrapping: it is of indices and sizes, times a small
    number.
    """
    atom, most = term
    for n in walk(atom):
        match n:
            case ex.Const(int(value)):
                most *= max(abs(value), 1)
            case ex.Apply("min" | "max" | "floordiv" | "floormod" | "add" | "sub" | "mul"):
                constant = any(isinstance(e, ex.Const) for e in n.operands)
                if n.function == "mul" and not constant:
                    return False
            case _:
                if not isinstance(n, (ex.Index, ex.Extent)) and n not in PLACES:
                    return False
    return abs(most) < SMALL


def _sum(form: Affine) -> ex.Expr:
    terms = dict(sorted(form.terms.items(), key=lambda t: repr(t[0])))
    return Affine(terms, form.constant).expression()
