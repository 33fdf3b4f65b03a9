"""Integer powers that emitted IR calls: a loop over the exponent's bits, for vectors as long as one of theirs has bits left."""

from __future__ import annotations

import re
from collections.abc import Collection

DECLARED = re.compile(r"^declare (<(\d+) x (i\d+)>|i\d+) @ipow\.(\w+)\(.*\)$", re.MULTILINE)

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


def complete(text: str, _: Collection[str]) -> str:
    """The module with every such function defined, and what they call declared."""
    called: set[str] = set()
    made = DECLARED.sub(lambda match: _defined(match, called), text)
    return "\n".join([made, *sorted(called - set(text.splitlines()))])


def _defined(declared: re.Match[str], called: set[str]) -> str:
    type, lanes, word, suffix = declared.groups()
    if lanes is None:
        again = "  %again = or i1 %lanes, false"
        return _BODY.format(t=type, m="i1", s=suffix, o="1", any=again).replace("zeroinitializer", "0")
    mask = f"<{lanes} x i1>"
    again = f"  %again = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %lanes)"
    called.add(f"declare i1 @llvm.vector.reduce.or.v{lanes}i1({mask})")
    return _BODY.format(t=type, m=mask, s=suffix, o=f"splat ({word} 1)", any=again)
