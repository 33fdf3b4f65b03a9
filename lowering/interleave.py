"""A short innermost axis, such as the colours of an image, in whole vectors:

    for i in 0..1000 { for c in 0..3 { y[i, c] = x[i, c] * g[c] } }
    =>  for b in 0..125 { for l in 0..24 vector 24 { y[b * 24 + l] = x[b * 24 + l] * g[l mod 3] } }
        and the iterations of i that are left over, as they were

What depends on the short axis alone is the same vector every time, and leaves the loop.
"""

from __future__ import annotations

from dataclasses import replace

from ..dialect.index import Expr, Index, as_index
from ..dialect.loops import For, If, Kernel, Statement, Store, rewrite_block, statements, substitute_block
from .accesses import allocated, reads, stores, stride
from .collapse import join
from .vectorise import independent, lanes

LONGEST = 7  # elements of the short axis
MANY = 64  # times as many iterations around it, at least
WORTH_SHARING = 1 << 16  # elements


def interleave(kernel: Kernel) -> Kernel:
    made = join(kernel)
    if made is None or len(kernel.body) != 1:
        return kernel
    (loop,) = (s for s in statements(made.kernel.body) if isinstance(s, For) and s.index is made.index)
    count, period = made.outer.extent, made.inner.extent
    if not (isinstance(count, int) and isinstance(period, int) and 2 <= period <= LONGEST and count >= MANY):
        return kernel
    if (
        any(isinstance(s, (For, If)) for s in statements(loop.body))
        or allocated(loop.body)
        or not _suits(loop, made.index)
    ):
        return kernel
    width = lanes(loop)
    block, lane = Index("b", count // width), Index("l", width * period)
    inside: dict[Expr, Expr] = {
        made.outer: block * width + lane // period,
        made.inner: lane % period,
        made.index: block * (width * period) + lane,
    }
    vectors = For(lane, substitute_block(loop.body, inside), kind="vector", width=width * period)
    alone = made.kernel.body == (loop,) and count % width == 0 and count * period >= WORTH_SHARING
    whole: list[Statement] = [For(block, (vectors,), kind="parallel" if alone else "serial")]
    if count % width:
        left: dict[Expr, Expr] = {made.outer: made.index // period, made.inner: made.index % period}
        rest = replace(loop, start=as_index(count // width * width * period))
        whole.append(replace(rest, body=substitute_block(loop.body, left)))
    return made.kernel.with_body(rewrite_block(made.kernel.body, lambda s: tuple(whole) if s is loop else None))


def _suits(loop: For, index: Index) -> bool:
    """Whether what is written moves with the joined index, and something is read with it."""
    written: list[Store] = list(stores(loop.body))
    contiguous = all(stride(s.tensor, s.indices, index) == 1 for s in written)
    return contiguous and independent(loop) and any(stride(r.tensor, r.indices, index) == 1 for r in reads(loop.body))
