"""Intervals of integers, the domain of range analysis."""

from dataclasses import dataclass

from ..types.tensor_types import ElementType

UNBOUNDED = 1 << 200  # a bound that grows with sizes unknown at compile time


@dataclass(frozen=True)
class Interval:
    """The integers from `low` to `high`, both included; conditions are 0 and 1."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def within(self, other: "Interval | ElementType") -> bool:
        """Test whether the interval is contained in another one, or in the limits of a type."""
        low, high = (other.low, other.high) if isinstance(other, Interval) else other.limits
        return low <= self.low and self.high <= high

    def joined(self, other: "Interval") -> "Interval":
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def __str__(self) -> str:
        low = "-inf" if self.low <= -UNBOUNDED else str(self.low)
        return f"[{low}, {'inf' if self.high >= UNBOUNDED else self.high}]"


def whole(element: ElementType) -> Interval:
    """The interval of all values of a discrete type."""
    return Interval(*element.limits)
