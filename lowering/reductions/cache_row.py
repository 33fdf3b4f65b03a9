"""Cache values of a row that several loops over it compute (Halide's store_at, TVM's cache_write).

    for i { for k { e = exp(x[i, k]); acc = acc + e }; for j { e = exp(x[i, j]); y[i, j] = e / acc }
    }
    =>  for i {
          alloc stack row: tensor<4096xf32>
          for k { e = exp(x[i, k]); row[k] = e }
          for k { acc = acc + row[k] }
          for j { y[i, j] = row[j] / acc }
        }

Legal since equal pure statements give equal values. Pays for at least `cached_operations`
operations, and a row that fits the L1 cache; for rows of unknown length the kernel tests the length
at run time.
"""

from itertools import takewhile

from ...dialect.kernel_ir import loops as ir
from ...dialect.kernel_ir.expressions import Const, Expr, Extent, Index, Read, Tensor, Var, as_index
from ...dialect.kernel_ir.traverse import children, rewrite
from ...dialect.types.sizes import same_size
from ..analysis.accesses import allocated, reads, stores
from ..analysis.cost import UNKNOWN, block_operations
from ..loops.clone import clone
from ..passes import kernel_pass
from ..processor import processor


@kernel_pass
def cache_row(kernel: ir.Kernel) -> ir.Kernel:
    return kernel.with_body(ir.rewrite_block(kernel.body, _rows))


def _rows(s: ir.Statement) -> ir.Block | None:
    if not isinstance(s, ir.For) or s.kind != "serial":
        return None
    loop = ir.rewrite_within(s, _rows)
    assert isinstance(loop, ir.For)
    body = _with_rows(loop.body)
    return (loop if body is loop.body else ir.replace(loop, body=body),)


def _with_rows(block: ir.Block) -> ir.Block:
    """The block with a row cached for its first loops that compute the same values, if it is not
    too long.
    """
    for n, first in enumerate(block):
        for m in range(n + 1, len(block)):
            if (alike := _alike(first, block[m], block[n : m + 1])) is not None:
                assert isinstance(first, ir.For)
                cached = _with_row(block, n, m, *alike)
                longest = _longest(alike[1])
                if isinstance(first.index.extent, int):
                    return cached
                return (
                    ir.If(
                        as_index(first.index.extent) <= longest, cached, clone(block, {}, "long")
                    ),
                )
    return block


def _longest(value: Var | Tensor) -> int:
    """The elements of the longest row to cache."""
    return processor().l1_bytes // (value.type if isinstance(value, Var) else value.element).bytes


def _alike(
    a: ir.Statement, b: ir.Statement, between: ir.Block
) -> tuple[int, Var | Tensor, Var | Tensor] | None:
    """The number of leading statements of two loops that compute one value, and its names; None if
    it is 0.
    """
    if not (isinstance(a, ir.For) and isinstance(b, ir.For) and a.is_whole and b.is_whole):
        return None
    if not same_size(a.index.extent, b.index.extent):
        return None
    pairs: dict[object, object] = {a.index: b.index}
    count = sum(
        1 for _ in takewhile(lambda xy: _same(*xy, pairs), zip(a.body, b.body, strict=False))
    )
    head = a.body[:count]
    if block_operations(head, UNKNOWN) < processor().tuning.cached_operations:
        return None
    written = {s.tensor for s in stores(between)} - allocated(head)
    if any(r.tensor in written for r in reads(head)):
        return None
    first = _used(head, a.body[count:])
    second = _used(b.body[:count], b.body[count:])
    if {*first, *second} & {s.tensor for s in (*stores(a.body[count:]), *stores(b.body[count:]))}:
        return None
    if (
        len(first) != 1
        or len(second) != 1
        or pairs.get(value := first.pop()) is not (other := second.pop())
    ):
        return None
    return (
        None
        if isinstance(a.index.extent, int) and a.index.extent > _longest(value)
        else (count, value, other)
    )


def _same(a: ir.Statement, b: ir.Statement, pairs: dict[object, object]) -> bool:
    """Test whether two statements are equal under `pairs` of corresponding names; names that they
    define are added.
    """
    match a, b:
        case ir.Let(), ir.Let():
            same = _equal(a.value, b.value, pairs)
            pairs[a.var] = b.var
            return same
        case ir.Alloc(), ir.Alloc():
            x, y = a.tensor, b.tensor
            pairs[x] = y
            return (x.element, x.shape, x.space) == (y.element, y.shape, y.space) and not x.shape
        case ir.Store(), ir.Store():
            return pairs.get(a.tensor) is b.tensor and _equal(
                a.value, b.value, pairs
            )  # both are scalars
        case ir.If(), ir.If():
            statements = zip((*a.then, *a.otherwise), (*b.then, *b.otherwise), strict=True)
            alike = (len(a.then), len(a.otherwise)) == (len(b.then), len(b.otherwise))
            return (
                _equal(a.condition, b.condition, pairs)
                and alike
                and all(_same(x, y, pairs) for x, y in statements)
            )
    return False


def _equal(a: Expr, b: Expr, pairs: dict[object, object]) -> bool:
    if a in pairs or type(a) is not type(b) or a.type is not b.type:
        return pairs.get(a) is b
    match a, b:
        case Const(), Const():
            return repr(a.value) == repr(b.value)  # by text, since 0.0 == -0.0
        case (Index() | Var(), _):
            return a is b
        case Extent(), Extent():
            return same_size(a.size, b.size)
        case Read(), Read() if pairs.get(a.tensor, a.tensor) is not b.tensor:
            return False
    if getattr(a, "function", None) != getattr(b, "function", None):
        return False
    x, y = children(a), children(b)
    return len(x) == len(y) and all(_equal(c, d, pairs) for c, d in zip(x, y, strict=True))


def _used(head: ir.Block, rest: ir.Block) -> set[Var | Tensor]:
    """The names that the rest of a loop's body takes from its head."""
    defined = {
        s.var if isinstance(s, ir.Let) else s.tensor
        for s in head
        if isinstance(s, (ir.Let, ir.Alloc))
    }
    used = {
        x.tensor if isinstance(x, Read) else x for x in ir.nodes(rest) if isinstance(x, (Read, Var))
    }
    return defined & (used | {s.tensor for s in stores(rest)})


def _with_row(
    block: ir.Block, n: int, m: int, count: int, value: Var | Tensor, other: Var | Tensor
) -> ir.Block:
    first, second = block[n], block[m]
    assert isinstance(first, ir.For) and isinstance(second, ir.For)
    at = first.index
    length = at.extent if isinstance(at.extent, int) else _longest(value)
    row = Tensor(
        f"{value.name}.row",
        (length,),
        value.type if isinstance(value, Var) else value.element,
        "stack",
    )
    computed = value if isinstance(value, Var) else value[()]
    fills = ir.replace(first, body=(*first.body[:count], ir.Store(row, (at,), computed)))
    rest = _from_row(first.body[count:], value, row, at)
    again = ir.replace(
        first, index=(k := Index(f"{at.name}.row", at.extent)), body=clone(rest, {at: k}, "row")
    )
    uses = ir.replace(second, body=_from_row(second.body[count:], other, row, second.index))
    return (*block[:n], ir.Alloc(row), fills, again, *block[n + 1 : m], uses, *block[m + 1 :])


def _from_row(rest: ir.Block, value: Var | Tensor, row: Tensor, at: Index) -> ir.Block:
    def put(e: Expr) -> Expr | None:
        return row[at] if e is value or (isinstance(e, Read) and e.tensor is value) else None

    return ir.map_expressions(rest, lambda e: rewrite(e, put))
