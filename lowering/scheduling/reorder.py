"""Steps that change the order of loops: reorder, tile, unroll_and_jam.

    reorder{loops=j,i}
    for i { for j { A(i, j) } }  =>  for j { for i { A(i, j) } }

Legal where no two accesses to one element, of which one is a store, change their order.
"""

from collections.abc import Sequence

from ...dialect.kernel_ir import loops as ir
from ..analysis.accesses import depends
from .find_loops import chain, loops_by_name, put, serial_loop
from .legality import check_order
from .restructure import split, split_loop
from .steps import Refused, step


@step
def reorder(kernel: ir.Kernel, loops: tuple[str, ...], reassociate: bool = False) -> ir.Kernel:
    """Nest loops in this order, the first outermost. Each is alone in the one around it.

    With `reassociate`, updates of float accumulators may change their order, and so the bits of
    the result.
    """
    old = chain(kernel, loops)
    by_name = loops_by_name(kernel)
    new = [by_name[name] for name in loops]
    return put(kernel, old[0], _nested(kernel, old, new, reassociate))


def _nested(
    kernel: ir.Kernel, old: Sequence[ir.For], new: Sequence[ir.For], reassociate: bool
) -> ir.Block:
    for s in old:
        if s.kind not in ("serial", "unrolled") or ir.may_jump(s.body):
            name = s.index.name
            raise Refused(f"reorder takes serial loops without jumps; {name} is not one")
    for n, s in enumerate(new):
        for inner in new[n:]:
            if depends(s.start, {inner.index}) or depends(s.end, {inner.index}):
                raise Refused(
                    f"reorder: the bounds of {s.index.name} depend on %{inner.index.name}, "
                    "which would be inside of it"
                )
    check_order(kernel, old, new, reassociate)
    block = old[-1].body
    for s in reversed(new):
        block = (ir.replace(s, body=block),)
    return block


@step
def tile(
    kernel: ir.Kernel,
    loops: tuple[str, ...],
    by: tuple[int, ...],
    into: tuple[str, ...] | None = None,
    reassociate: bool = False,
) -> ir.Kernel:
    """Split each loop, and nest the loops over parts around those of a part."""
    if len(by) != len(loops):
        raise Refused(f"tile: {len(loops)} loops, and {len(by)} sizes")
    plain = [serial_loop(kernel, name).index.name for name in loops]
    names = into or (*(f"{n}o" for n in plain), *(f"{n}i" for n in plain))
    if len(names) != 2 * len(loops):
        raise Refused(f"tile makes {2 * len(loops)} loops, got {len(names)} names")
    pairs = zip(names[: len(loops)], names[len(loops) :], strict=True)
    for loop, size, pair in zip(loops, by, pairs, strict=True):
        kernel = split(kernel, loop, size, pair)
    return reorder(kernel, tuple(names), reassociate)


@step
def unroll_and_jam(kernel: ir.Kernel, loop: str, by: int, reassociate: bool = False) -> ir.Kernel:
    """Repeat the bodies of the innermost loop of a perfect nest for `by` iterations of an outer
    one.
    """
    s = serial_loop(kernel, loop)
    nest = ir.perfect_nest(s)
    if len(nest) < 2:
        raise Refused(f"unroll_and_jam: there is no loop alone inside {loop}")
    main, *rest = split_loop(s, by, (s.index.name, f"{s.index.name}u"), "peel")
    assert isinstance(main, ir.For)
    kernel = put(kernel, s, (main, *rest))
    made, *inside = ir.perfect_nest(main)[1:]
    block = _nested(kernel, [made, *inside], [*inside, made], reassociate)

    def unrolled(t: ir.Statement) -> ir.Block | None:
        is_made = isinstance(t, ir.For) and t.index is made.index
        return (ir.replace(t, kind="unrolled"),) if is_made else None

    return put(kernel, made, ir.rewrite_block(block, unrolled))
