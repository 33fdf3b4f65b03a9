"""Functions that emitted IR calls where processors have an instruction of their own: defined for
the processor at hand.

`complete` puts a definition in place of each declaration, by processor features, in plain IR where
it has none.
"""

from collections.abc import Collection, Mapping

from ...lowering.processor import DOT_PRODUCTS, DotProduct
from . import ir_builder as ll
from .scalar_spelling import HALVES, WORDS

NAMES = tuple(WORDS)
_WAYS = {
    "quadsum": ("quadsum", "quadsum_ss")
}  # instructions that define a function, where there is more than one


def define(declared: ll.Declaration, features: Collection[str], called: set[str]) -> str:
    """Define a declared vector function, by an instruction of the processor if it has one."""
    has = {(d.function, d.vector_bytes // 4): d for d in DOT_PRODUCTS if d.is_in(features)}
    return _define(declared.stem, declared.result.lanes, has, called)


def _define(
    name: str,
    lanes: int,
    has: Mapping[tuple[str, int], DotProduct],
    calls: set[str],
    prefix: str = "",
) -> str:
    """Define a function for vectors of `lanes` words, and declare the intrinsics it calls."""
    before: list[str] = []
    b, wide, (operands, row) = ll.IRBuilder(), ll.STATUS.of(lanes), WORDS[name]
    parameters = [ll.Value(f"%{o}", wide) for o in operands]
    product = has.get((name, lanes))

    def declaration(name: str, lanes: int, further: str) -> ll.Declaration:
        before.append(_define(name, lanes, has, calls, f"{prefix}{further}."))
        return ll.Declaration(ll.STATUS.of(lanes), f"{prefix}{further}.{name}.v{lanes}i32", ())

    def number(n: int) -> ll.Constant:
        return ll.splat_constant(ll.Constant(str(n), ll.STATUS), lanes)

    if product is not None:
        parts, result = (
            ll.ir_type(f"i{n}", 32 // n * lanes)
            for n in (product.operand_bits, product.result_bits)
        )
        types = {"a": parts, "b": parts, "c": result}
        intrinsic = ll.Declaration(
            result, product.llvm, tuple([types[o] for o in product.operands])
        )
        calls.add(str(intrinsic))
        seen = {
            o: b.add(ll.cast("bitcast", v, types[o]))
            for o, v in zip(operands, parameters, strict=True)
        }
        sums = b.add(
            ll.cast(
                "bitcast", b.add(ll.call(intrinsic, *(seen[o] for o in product.operands))), wide
            )
        )
    elif (
        name == "quadsum" and ("quadsum_ss", lanes) in has
    ):  # 128 of an unsigned byte is less -128 of a signed one
        function, (x, y, z) = declaration("quadsum_ss", lanes, "of_signed"), parameters
        low, high = (b.add(ll.binary("and", x, number(n))) for n in (0x7F7F7F7F, -0x7F7F7F80))
        sum, less = (b.add(ll.call(function, v, y, c)) for v, c in ((low, z), (high, number(0))))
        sums = b.add(ll.binary("sub", sum, less))
    elif any(
        (f, lanes >> n) in has
        for f in _WAYS.get(name, (name,))
        for n in range(1, lanes.bit_length())
    ):
        half = lanes // 2
        function = declaration(name, half, "half")
        parts = (range(half), range(half, lanes))
        halves = [[b.add(ll.shuffle(v, part)) for part in parts] for v in parameters]
        x, y = (b.add(ll.call(function, *side)) for side in zip(*halves, strict=True))
        sums = b.add(ll.shuffle(x, range(lanes), y))
    elif name in HALVES:
        x, y = (b.add(ll.cast("bitcast", v, ll.ir_type("i16", 2 * lanes))) for v in parameters)
        sums = b.add(ll.cast("bitcast", b.add(ll.binary(HALVES[name], x, y)), wide))
    else:
        sums = b.spell(row, parameters, wide)
    b.do(ll.returned(sums))
    return "\n".join([*before, b.inlined(wide, f"{prefix}{name}.v{lanes}i32", *parameters)])
