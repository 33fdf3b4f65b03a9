"""What every operator of the dialect shares: i32 elements, and the bounds the specification puts on attributes."""

from __future__ import annotations

from typing import Any

from ..op import C, Operator, T, Type
from ..types import I32

MIN_ATTR = 0
MAX_ATTR = 4097  # half open, as the text writes it: this admits CVM-Runtime's 4096


class CvmOperator(Operator[T]):
    """An operator of the formalization."""

    dialect = "cvm"


def i32(*names: str) -> C:
    """Constraint 0 of every operator: the elements are i32."""
    return C(0, " = ".join(f"element({n})" for n in names) + " = i32", lambda o: all(t.element is I32 for _, t in o.operands()))


def same_as_x(o: Any) -> Type:
    return o.x
