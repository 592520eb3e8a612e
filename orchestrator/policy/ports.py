"""Transport ports: ranges, and their cover by value/mask pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.errors import BadInput

HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports `low`..`high`, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for port in (self.low, self.high):
            if not 0 <= port <= HIGHEST_PORT:
                raise BadInput(f"port {port} is not in 0..{HIGHEST_PORT}")
        if self.low > self.high:
            raise BadInput(f"port range {self.low}-{self.high} is empty: the lower end is above the upper end")

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read ``80`` or ``1024-65535``. Raises BadInput."""
        low, dash, high = text.partition("-")
        ends = (low, high) if dash else (low, low)
        if not all(end.isascii() and end.isdigit() and len(end) <= 9 for end in ends):
            raise BadInput(f"'{text}' is not a port or a range of ports")
        return cls(int(ends[0]), int(ends[1]))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


EVERY_PORT = (PortRange(0, HIGHEST_PORT),)


def normalise_ranges(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """The same ports as sorted, disjoint, non-adjacent ranges."""
    merged: list[PortRange] = []
    for item in sorted(ranges):
        if merged and item.low <= merged[-1].high + 1:
            merged[-1] = PortRange(merged[-1].low, max(merged[-1].high, item.high))
        else:
            merged.append(item)
    return tuple(merged)


def masks(ports: PortRange) -> tuple[tuple[int, int], ...]:
    """Return the fewest 16-bit (value, mask) pairs for exactly a range, ascending.

    At most 30 for any range of 16-bit ports (2w - 2 for w bits).
    """
    pairs = []
    low = ports.low
    while low <= ports.high:
        size = low & -low or HIGHEST_PORT + 1
        while low + size - 1 > ports.high:
            size >>= 1
        pairs.append((low, HIGHEST_PORT + 1 - size))
        low += size
    return tuple(pairs)
