"""The flags of a TCP header, and what a rule may ask of them."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.bitsets import halve_members


class TcpFlag(enum.IntFlag):
    """The flags of a TCP header as bits, RFC 9293."""

    FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))


_HIGHEST_FLAG = 7


@dataclass(frozen=True, slots=True)
class FlagMatch:
    """TCP flags that must be set (`value`) among those looked at (`mask`), both 8 bits."""

    value: int
    mask: int

    def __post_init__(self) -> None:
        if not 0 < self.mask <= 0xFF:
            raise BadInput(f"a TCP flag mask of {self.mask:#x} looks at no flag that TCP has", place="tcp_flags")
        if self.value & ~self.mask:
            raise BadInput("a TCP flag is required that the mask does not look at", place="tcp_flags")

    def holds(self, flags: int) -> bool:
        """Whether a packet with these flags matches."""
        return flags & self.mask == self.value


ESTABLISHED = (FlagMatch(TcpFlag.ACK, TcpFlag.ACK), FlagMatch(TcpFlag.RST, TcpFlag.RST | TcpFlag.ACK))
"""`established` as two disjoint matches: ACK set; or RST set without ACK."""

ESTABLISHED_SET = sum(1 << flags for flags in range(256) if any(match.holds(flags) for match in ESTABLISHED))
"""The flag bytes of `established`; bit 0x12 of the set stands for SYN and ACK."""


@functools.lru_cache(maxsize=4096)
def flag_matches_of(flags: int) -> tuple[FlagMatch, ...]:
    """Return disjoint flag matches whose union is a set of flag bytes.

    Bit 0x12 of the set stands for SYN and ACK. The full set gives none.
    """
    return tuple(FlagMatch(value, mask) for value, mask in halve_members(flags, _HIGHEST_FLAG) if mask)
