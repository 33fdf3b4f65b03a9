"""Status codes of failed checks: the earliest check in program order has the greatest code, and wins."""

from __future__ import annotations

from collections.abc import Iterable

from ...dialect.ir.diagnostics import Span
from ...dialect.notation.plan import Plan


class Requirements:
    """The messages, and where in the program; the numbers count from 1."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        self.listed = [r for plan in plans for r in reversed(dict.fromkeys(plan.requirements))]

    def number(self, message: str, span: Span) -> int:
        """The number of a check."""
        if (message, span) not in self.listed:  # kernels that were given without a program
            self.listed.append((message, span))
        return self.listed.index((message, span)) + 1
