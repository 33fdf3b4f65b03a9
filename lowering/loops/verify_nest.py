"""Verify the nests of other packages' operators, as kernels that are given as text are."""

from typing import Any

from ...dialect.kernel_ir.loops import Kernel
from ...dialect.spec.foreign_operators import fault, source_place
from ..analysis.verify_kernel import LoweringError, check_kernel
from ..analysis.written import unwritten_in
from .zero_fill import fill


def verified_nest(kernel: Kernel, operator: Any) -> Kernel:
    """Verify the kernel of an operator's nest, with zeros in elements that are not proved to be
    written; raise if it is not legal.
    """
    place = source_place(operator.nest)
    try:
        check_kernel(kernel, strict=True)
    except LoweringError as e:
        raise fault(operator, f"`nest` is not legal: {e.message}", place) from None
    missing = unwritten_in(kernel, kernel.outputs)
    for u in (u for u in missing if u.sure):
        raise fault(operator, f"`nest` is not legal: {u.message}", place)
    return fill(kernel, {u.tensor for u in missing}) if missing else kernel
