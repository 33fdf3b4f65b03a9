"""The context of a pass: everything that it needs besides what it transforms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from ..dialect.ir.function import Function
from ..dialect.ir.module import Module
from ..dialect.kernel_ir.expressions import Tensor
from ..dialect.kernel_ir.integer_interval import Interval


@dataclass
class Context:
    """The module and function that a program is from, and, while passes transform kernels, the
    constants, ranges and views of the arrays that these access, in all shapes that passes have
    given them.

    `overwritten` maps the number of a result to that of the argument in whose storage the caller
    wants it, `carried` the same for the body of a loop, whose next step reads the result there. The
    processor compiled for is `processor()`, wherever a pass needs it.
    """

    module: Module = field(default_factory=lambda: Module({}))
    function: Function | None = None
    overwritten: Mapping[int, int] = field(default_factory=dict)
    carried: Mapping[int, int] = field(default_factory=dict)
    constants: dict[Tensor, np.ndarray] = field(default_factory=dict)
    ranges: dict[Tensor, Interval] = field(default_factory=dict)
    views: dict[Tensor, Tensor] = field(default_factory=dict)

    def seen(
        self, views: Mapping[Tensor, Tensor]
    ) -> tuple[dict[Tensor, np.ndarray], dict[Tensor, Interval]]:
        """The constants and the ranges, those of these views included."""
        context = Context(constants={**self.constants}, ranges={**self.ranges})
        context.add(views)
        return context.constants, context.ranges

    def add(
        self,
        views: Mapping[Tensor, Tensor],
        constants: Mapping[Tensor, np.ndarray] = MappingProxyType({}),
    ) -> None:
        """Take note of views and constants that a pass made."""
        self.views.update(views)
        for t, of in views.items():
            if of in self.constants:
                self.constants[t] = self.constants[of]
            if of in self.ranges and t.element is of.element:
                self.ranges[t] = self.ranges[of]
        self.constants.update(constants)
