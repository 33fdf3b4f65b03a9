"""Integer powers that emitted IR calls: a loop over the exponent's bits, for vectors as long as one
of theirs has bits left.
"""

from collections.abc import Collection

from .ir_builder import BIT, Constant, Declaration, splat_constant, suffix

NAME = "ipow"

# {t} the type, {m} of comparisons, {z} and {o} zero and one of it, {again} whether a lane has bits
# left
_BODY = """\
define internal {t} @ipow.{s}({t} %a, {t} %b) alwaysinline nounwind {{
  br label %loop
loop:
  %square = phi {t} [ %a, %0 ], [ %squared, %loop ]
  %left = phi {t} [ %b, %0 ], [ %rest, %loop ]
  %product = phi {t} [ {o}, %0 ], [ %next, %loop ]
  %odd = trunc {t} %left to {m}
  %more = mul {t} %product, %square
  %next = select {m} %odd, {t} %more, {t} %product
  %squared = mul {t} %square, %square
  %rest = lshr {t} %left, {o}
  %lanes = icmp ne {t} %rest, {z}
  %again = {again}
  br i1 %again, label %loop, label %done
done:
  ret {t} %next
}}"""


def define(declared: Declaration, _: Collection[str], called: set[str]) -> str:
    """The definition for one type."""
    type = declared.result
    mask = BIT.of(declared.result.lanes)
    zero, one = (splat_constant(Constant(n, type.of(1)), type.lanes).text for n in ("0", "1"))
    again = "or i1 %lanes, false"
    if type.lanes > 1:
        reduce = Declaration(BIT, f"llvm.vector.reduce.or.{suffix(mask)}", (mask,))
        called.add(str(reduce))
        again = f"call i1 @{reduce.name}({mask} %lanes)"
    return _BODY.format(t=type, m=mask, s=suffix(type), z=zero, o=one, again=again)
