"""Elements of the dialect my."""

from __future__ import annotations

from cvm.extending import UI8, DeclaredElement, element_type


@element_type
class Percent(DeclaredElement):
    """A whole number from 0 to 100, stored in a byte: tensor<4x!my.percent>."""

    type_name = "my.percent"
    storage = UI8
    low, high = 0, 100
