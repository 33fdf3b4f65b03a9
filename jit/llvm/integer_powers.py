"""Integer powers that emitted IR calls: a loop over the exponent's bits, for vectors as long as one of theirs has bits left."""

from __future__ import annotations

from collections.abc import Collection

from .ir_writer import Declaration

NAME = "ipow"

# {t} the type, {m} of comparisons, {o} its splat of one, {any} whether a lane has bits left
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
  %lanes = icmp ne {t} %rest, zeroinitializer
{any}
  br i1 %again, label %loop, label %done
done:
  ret {t} %next
}}"""


def define(declared: Declaration, _: Collection[str], called: set[str]) -> str:
    """The definition for one type."""
    type, suffix = declared.result, declared.name.partition(".")[2]
    if declared.lanes == 1:
        again = "  %again = or i1 %lanes, false"
        return _BODY.format(t=type, m="i1", s=suffix, o="1", any=again).replace("zeroinitializer", "0")
    mask, word = f"<{declared.lanes} x i1>", type.rpartition(" ")[2].removesuffix(">")
    reduce = Declaration("i1", f"llvm.vector.reduce.or.v{declared.lanes}i1", (mask,))
    called.add(str(reduce))
    again = f"  %again = call i1 @{reduce.name}({mask} %lanes)"
    return _BODY.format(t=type, m=mask, s=suffix, o=f"splat ({word} 1)", any=again)
