"""Steps that change how a loop counts: split, peel, collapse, unroll.

    split{loop=i by=8 into=io,ii}
    for i in 0..n { A(i) }  =>  for io in 0..ceil(n / 8) { for ii in 0..min(8, n - io * 8) {
                                    A(io * 8 + ii) } }
    peel{loop=i first=1}
    for i in 0..n { A(i) }  =>  for i in 0..min(1, n) { A(i) }; for i in min(1, n)..n { A(i) }

The order of iterations stays, so they are always legal.
"""

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, key
from ...dialect.kernel_ir.expressions import (
    Const,
    Expr,
    Index,
    Read,
    constant,
    flat_operands,
    maximum,
    minimum,
)
from ...dialect.kernel_ir.kernel_printer import statement_text
from ...dialect.kernel_ir.traverse import walk
from ...dialect.types.tensor_types import I64
from ..analysis.accesses import allocated, depends, stores
from ..analysis.prove import prove
from ..loops.clone import clone
from .find_loops import chain, put, runs_whole, serial_loop
from .steps import Refused, step


@step
def split(
    kernel: ir.Kernel,
    loop: str,
    by: int,
    into: tuple[str, ...] | None = None,
    tail: str = "guard",
) -> ir.Kernel:
    """Make a loop two: one over parts of `by` iterations, and one over those of a part.

    Where `by` does not divide the count, the last part is shorter (`tail=guard`), or has a loop of
    its own after the others (`tail=peel`), or moves back and computes some elements twice
    (`tail=shift`).
    """
    s = serial_loop(kernel, loop)
    names = into or (f"{s.index.name}o", f"{s.index.name}i")
    if len(names) != 2:
        raise Refused(f"split makes 2 loops, got {len(names)} names: {','.join(names)}")
    return put(kernel, s, split_loop(s, by, (names[0], names[1]), tail))


def split_loop(s: ir.For, by: int, names: tuple[str, str], tail: str) -> ir.Block:
    """The loop over parts, with the one over a part alone inside of it, and the loop for the
    rest, if there is one.
    """
    if by < 2:
        raise Refused(f"parts have at least 2 iterations, got by={by}")
    if tail not in ("guard", "peel", "shift"):
        raise Refused(f"tail is guard, peel or shift, got {tail}")
    count = s.length.expression()
    whole = not s.length.divisor % by
    outer, inner = Index(names[0], (s.index.extent + by - 1) // by), Index(names[1], by)
    body = ir.substitute_block(s.body, {s.index: s.start + outer * by + inner})
    exact = whole or tail != "guard"
    parts = whole_parts(s, by) if exact else (count + (by - 1)) // by
    left = None if exact else minimum(by, count - outer * by)
    stop = None if runs_whole(s) and (whole or not exact) else parts
    tiles = ir.For(outer, (ir.For(inner, body, stop=left),), stop=stop)
    if whole or tail == "guard":
        return (tiles,)
    if tail == "shift":
        last = Index(names[1], by)
        again = clone(s.body, {s.index: s.end - by + last})
        return moved_back(s, by, tiles, ir.For(last, again))
    return tiles, rest_of(s, by)


def moved_back(s: ir.For, by: int, main: ir.For, last: ir.For) -> ir.Block:
    """The loops over whole parts, and over a last one that begins earlier, where a loop has `by`
    iterations or more. These run twice, which is legal: nothing that they store is read.
    """
    stored = {t.tensor: t for t in stores(s.body) if t.tensor not in allocated(s.body)}
    for t in ir.statements(s.body):
        for e in (e for top in ir.expressions(t) for e in walk(top) if isinstance(e, Read)):
            if e.tensor in stored:
                pair = " and ".join(
                    f"`{statement_text(x).partition(chr(10))[0]}`" for x in (stored[e.tensor], t)
                )
                raise Refused(f"tail=shift runs iterations twice, and %{e.tensor.name} is both "
                              f"stored and read: {pair}")  # fmt: skip
    if s.length.terms:
        enough = s.length.expression() >= by
        return (ir.If(enough, (main, last), (part_of(s, s.start, s.end),)),)
    if s.length.constant < by:
        raise Refused(f"tail=shift: {s.index.name} has {s.length.constant} iterations, not {by}")
    return main, last


def whole_parts(s: ir.For, by: int) -> Expr:
    """The number of parts of `by` iterations; negative for some loops that run none."""
    return s.length.expression() // by


def rest_of(s: ir.For, by: int) -> ir.For:
    """The loop over the iterations after those parts."""
    whole = s.start + whole_parts(s, by) * by
    never_negative = prove(s.length, (), {})
    return part_of(s, whole if never_negative else maximum(s.start, whole), s.end)


def part_of(s: ir.For, start: Expr, stop: Expr) -> ir.For:
    """A copy of a loop over some of its iterations, with an index, variables and buffers of its
    own.
    """
    index = Index(s.index.name, s.index.extent)
    return ir.For(index, clone(s.body, {s.index: index}), start, stop, s.kind)


@step
def peel(
    kernel: ir.Kernel, loop: str, first: int | None = None, last: int | None = None
) -> ir.Kernel:
    """Give the first or the last iterations a loop of their own; without a number, those whose
    inner loops are shorter than the others' (TVM's loop partition).
    """
    s = serial_loop(kernel, loop)
    if first is not None and last is not None:
        raise Refused("peel takes first or last, not both")
    if any(n is not None and n < 1 for n in (first, last)):
        raise Refused("peel takes at least 1 iteration")
    if first is not None:
        cut = minimum(s.start + first, s.end)
    elif last is not None:
        cut = maximum(s.start, s.end - last)
    else:
        return _full_tiles(kernel, s, loop)
    return put(kernel, s, (ir.replace(s, stop=cut), part_of(s, cut, s.end)))


def _full_tiles(kernel: ir.Kernel, s: ir.For, loop: str) -> ir.Kernel:
    """The iterations for which the end min(c, e - index * c) of an inner loop is c, before the
    others.
    """
    for inner in ir.statements(s.body):
        if not isinstance(inner, ir.For):
            continue
        match flat_operands("min", inner.end):
            case [Const(by), e] if (form := affine(e)).factor(s.index) == -by:
                total = form.without(s.index)
                if not depends(total.expression(), _bound_inside(s)):
                    cut = _at_least(s.start, affine(total.expression() // by))
                    main = ir.replace(s, stop=cut, body=_with_ends(s.body, inner.end, by))
                    return put(kernel, s, (main, part_of(s, cut, s.end)))
            case _:
                continue
    raise Refused(
        f"peel: no loop inside {loop} ends earlier in the last of its iterations: "
        "say how many, by first or last"
    )


def _bound_inside(s: ir.For) -> set[Expr]:
    inner = ir.statements(s.body)
    return {
        *(b.index for b in inner if isinstance(b, ir.For)),
        *(b.var for b in inner if isinstance(b, ir.Let)),
    }


def _with_ends(block: ir.Block, end: Expr, value: int) -> ir.Block:
    """The block with a number as the end of the loops that have this one."""

    def change(s: ir.Statement) -> ir.Block | None:
        if isinstance(s, ir.For) and key(s.end) == key(end):
            same = s.index.extent == value
            s = ir.replace(s, stop=None if same else constant(value, I64))
            return (ir.rewrite_within(s, change),)
        return None

    return ir.rewrite_block(block, change)


def _at_least(least: Expr, form: Affine) -> Expr:
    """The larger of two numbers, the second alone where it is known to be the larger."""
    sure = prove(form - affine(least), (), {})
    return form.expression() if sure else maximum(least, form.expression())


@step
def collapse(kernel: ir.Kernel, loops: tuple[str, ...], into: str | None = None) -> ir.Kernel:
    """Make a loop and the only loop inside of it one, over their pairs of iterations."""
    if len(loops) != 2:
        raise Refused(f"collapse takes 2 loops, got {len(loops)}: {','.join(loops)}")
    outer, inner = chain(kernel, loops)
    for s in (outer, inner):
        if s.kind != "serial" or ir.may_jump(s.body):
            raise Refused(f"collapse takes serial loops without jumps; {s.index.name} is not one")
    if depends(inner.start, {outer.index}) or depends(inner.end, {outer.index}):
        raise Refused(f"collapse: the bounds of {inner.index.name} depend on %{outer.index.name}")
    width = inner.length
    if width.terms or width.constant < 1:
        raise Refused(f"collapse: the number of iterations of {inner.index.name} is not a constant")
    n = width.constant
    index = Index(into or f"{outer.index.name}{inner.index.name}", outer.index.extent * n)
    values: dict[Expr, Expr] = {
        outer.index: outer.start + index // n,
        inner.index: inner.start + index % n,
    }
    body = ir.substitute_block(inner.body, values)
    stop = None if outer.is_whole else outer.length.expression() * n
    return put(kernel, outer, (ir.For(index, body, stop=stop),))


@step
def unroll(kernel: ir.Kernel, loop: str, by: int | None = None) -> ir.Kernel:
    """Repeat the body of a loop: for all of its iterations, whose number is constant, or `by` of
    them at a time.
    """
    if by is not None:
        s = serial_loop(kernel, loop)
        main, *rest = split_loop(s, by, (s.index.name, f"{s.index.name}u"), "peel")
        assert isinstance(main, ir.For)
        (inner,) = main.body
        unrolled = ir.replace(main, body=(ir.replace(inner, kind="unrolled"),))
        return put(kernel, s, (unrolled, *rest))
    s = serial_loop(kernel, loop)
    if s.length.terms or not isinstance(s.start, Const):
        raise Refused(f"unroll: the number of iterations of {loop} is not constant: give by")
    return put(kernel, s, (ir.replace(s, kind="unrolled"),))
