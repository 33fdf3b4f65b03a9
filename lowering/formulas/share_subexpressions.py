"""Name subexpressions that a statement uses more than once (common subexpression elimination on
expressions).

    y[i] = (x[i] + 1) * (x[i] + 1)  =>  let t = x[i] + 1; y[i] = t * t

Legal for every pure expression. Formulas share subexpressions as DAGs; a pass that walks one as a
tree would visit a shared node once per use. Index arithmetic, reads and constants are not named.
"""

from collections import Counter
from itertools import count

from ...dialect.kernel_ir.expressions import Apply, Bitcast, Cast, Check, Expr, Reduce, Var, When
from ...dialect.kernel_ir.loops import (
    Assert,
    Block,
    For,
    If,
    Kernel,
    Let,
    Statement,
    Store,
    expressions,
    replace,
)
from ...dialect.kernel_ir.traverse import children, over, rebuild


def share_subexpressions(kernel: Kernel) -> Kernel:
    """The kernel with a `Let` for each subexpression that its statement uses more than once."""
    return kernel.with_body(_Sharing().block(kernel.body))


def named(value: Expr) -> tuple[list[Let], Expr]:
    """An expression with its shared subexpressions named, definitions before uses; the bodies of
    reductions stay as they are.
    """
    lets: list[Statement] = []
    (changed,) = _Sharing().changed((value,), lets)
    return [s for s in lets if isinstance(s, Let)], changed


class _Sharing:
    def __init__(self) -> None:
        self.names = count()

    def block(self, block: Block) -> Block:
        return tuple(new for s in block for new in self.statement(s))

    def statement(self, s: Statement) -> Block:
        lets: list[Statement] = []
        changed = self.changed(expressions(s), lets)
        match s:
            case For(_, body, _, stop):
                start, end = changed
                return (
                    *lets,
                    replace(
                        s, body=self.block(body), start=start, stop=None if stop is None else end
                    ),
                )
            case If(_, then, otherwise):
                return (*lets, If(changed[0], self.block(then), self.block(otherwise)))
            case Let(var, _):
                return (*lets, Let(var, changed[0]))
            case Store():
                return (*lets, replace(s, indices=changed[:-1], value=changed[-1]))
            case Assert(_, message, span):
                return (*lets, Assert(changed[0], message, span))
        return (s,)

    def changed(self, expressions: tuple[Expr, ...], lets: list[Statement]) -> tuple[Expr, ...]:
        """The expressions with shared subexpressions named by `lets`, definitions before uses."""
        uses = _uses(expressions)
        if not any(n > 1 for n in uses.values()):
            return expressions
        done: dict[int, Expr] = {}

        def named(e: Expr, parts: tuple[Expr, ...]) -> Expr:
            new = over(e, parts)
            if uses[id(e)] > 1 and isinstance(e, (Apply, Cast, Bitcast, Reduce)):
                var = Var(f"t{next(self.names)}", e.type)
                lets.append(Let(var, new))
                return var
            return new

        return tuple(rebuild(e, named, done) for e in expressions)


def _uses(expressions: tuple[Expr, ...]) -> Counter[int]:
    """The number of uses of each node that computes elements, as an operand or as one of the
    expressions.
    """
    uses: Counter[int] = Counter(id(e) for e in expressions)
    seen: set[Expr] = set()
    stack = list(expressions)
    while stack:
        if (e := stack.pop()) not in seen and isinstance(e, (Apply, Cast, Bitcast, Check, When)):
            seen.add(e)
            uses.update(map(id, children(e)))
            stack += children(e)
    return uses
