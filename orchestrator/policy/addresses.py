"""Addresses: families, prefixes, and the sets of prefixes that rules speak of.

A prefix is a pair of integers, not an `ipaddress` object: rule sets hold tens of thousands of them, and every
question asked of them (contains, overlaps) is one shift and one comparison.
"""

from __future__ import annotations

import enum
import ipaddress
import socket
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.errors import BadInput


class Family(enum.IntEnum):
    """The IP version; its value is the version number."""

    IPV4 = 4
    IPV6 = 6

    @property
    def bits(self) -> int:
        """Length of an address in bits."""
        return 32 if self is Family.IPV4 else 128

    @property
    def socket_family(self) -> socket.AddressFamily:
        return socket.AF_INET if self is Family.IPV4 else socket.AF_INET6


@dataclass(frozen=True, slots=True, order=True)
class Prefix:
    """A block of addresses: the `length` leading bits of `network`.

    The bits below are zero.
    """

    family: Family
    network: int
    length: int

    def __hash__(self) -> int:
        return hash((self.network, self.length))  # an enumeration takes ten times as long as both

    def __post_init__(self) -> None:
        bits = self.family.bits
        if not 0 <= self.length <= bits:
            raise BadInput(f"a prefix length of {self.length} is not in 0..{bits}")
        if not 0 <= self.network < 1 << bits:
            raise BadInput(f"{self.network:#x} is not an IPv{self.family.value} address")
        if self.network & ((1 << (bits - self.length)) - 1):
            mended = Prefix(self.family, self.network & self.mask, self.length)
            raise BadInput(
                f"{format_address(self.family, self.network)}/{self.length} has bits set below its length; "
                f"did you mean {mended}?"
            )

    @classmethod
    def parse(cls, text: str) -> Prefix:
        """Read ``10.0.0.0/8``, ``2001:db8::/32`` or a single address. Raises BadInput; never guesses."""
        address, slash, length_text = text.partition("/")
        family, network = parse_address(address, whole=text)
        if not slash:
            return cls(family, network, family.bits)
        if not (length_text.isascii() and length_text.isdigit() and len(length_text) <= 3):
            raise BadInput(f"'{text}' is not a prefix: '{length_text}' is not a length")
        length = int(length_text)
        if length > family.bits:
            raise BadInput(f"'{text}' is not a prefix: its length must be 0..{family.bits}")
        return cls(family, network, length)

    @property
    def mask(self) -> int:
        bits = self.family.bits
        return ((1 << self.length) - 1) << (bits - self.length)

    @property
    def last(self) -> int:
        """The highest address of the block."""
        return self.network | ((1 << (self.family.bits - self.length)) - 1)

    def holds(self, address: int) -> bool:
        """Whether an address of the same family lies in this block."""
        return (address ^ self.network) >> (self.family.bits - self.length) == 0

    def contains(self, other: Prefix) -> bool:
        return self.family is other.family and self.length <= other.length and self.holds(other.network)

    def overlaps(self, other: Prefix) -> bool:
        return self.contains(other) or other.contains(self)

    def halves(self) -> tuple[Prefix, Prefix]:
        """The two halves of this block, one bit longer.

        Raises ValueError for a single address.
        """
        if self.length == self.family.bits:
            raise ValueError(f"{self} is a single address")
        step = 1 << (self.family.bits - self.length - 1)
        longer = self.length + 1
        return Prefix(self.family, self.network, longer), Prefix(self.family, self.network | step, longer)

    def __str__(self) -> str:
        return f"{format_address(self.family, self.network)}/{self.length}"


EVERY_IPV4 = Prefix(Family.IPV4, 0, 0)
EVERY_IPV6 = Prefix(Family.IPV6, 0, 0)


def everything(family: Family) -> Prefix:
    """The prefix of length zero."""
    return EVERY_IPV4 if family is Family.IPV4 else EVERY_IPV6


def parse_address(text: str, *, whole: str | None = None) -> tuple[Family, int]:
    """Read one IPv4 (dotted quad) or IPv6 address.

    Raises BadInput, which quotes `whole` or else the text.
    """
    family = Family.IPV6 if ":" in text else Family.IPV4
    try:
        packed = socket.inet_pton(family.socket_family, text)
    except (OSError, ValueError):  # ValueError: an embedded NUL
        what = "a prefix" if "/" in (whole or "") else "an address"
        raise BadInput(f"'{whole or text}' is not {what}") from None
    return family, int.from_bytes(packed, "big")


def find_network(address: str) -> str:
    """Return the network whose addresses one machine may all take: of IPv6 the /64.

    Of IPv4, in IPv6's words too, it is the address; a text that is no address is returned as it is.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def format_address(family: Family, address: int) -> str:
    """The usual text of an address."""
    if family is Family.IPV4:
        return socket.inet_ntop(socket.AF_INET, address.to_bytes(4, "big"))
    return socket.inet_ntop(socket.AF_INET6, address.to_bytes(16, "big"))


def format_mac(mac: int) -> str:
    """The usual text of a MAC address."""
    return mac.to_bytes(6, "big").hex(":")


def read_mac(text: str) -> int:
    """Return the number of a MAC address in its usual text, whose form was looked at before."""
    return int(text.replace(":", ""), 16)


_PLACE = attrgetter("family", "network", "length")
"""The order of prefixes as a sort key: many times faster than comparing them as dataclasses do."""


def aggregate(prefixes: tuple[Prefix, ...]) -> tuple[Prefix, ...]:
    """The shortest list of disjoint prefixes that covers exactly the same addresses, sorted."""
    merged: list[Prefix] = []
    for prefix in sorted(prefixes, key=_PLACE):
        if merged and merged[-1].contains(prefix):
            continue
        merged.append(prefix)
        while len(merged) > 1:
            lower, upper = merged[-2:]
            if lower.family is not upper.family or lower.length != upper.length or lower.length == 0:
                break
            parent = Prefix(lower.family, lower.network & ~(1 << (lower.family.bits - lower.length)), lower.length - 1)
            if not parent.contains(upper):
                break
            merged[-2:] = [parent]
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class Addresses:
    """One side of a rule: a union of prefixes and named groups.

    Both tuples empty means any.
    """

    prefixes: tuple[Prefix, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        return not self.prefixes and not self.groups

    def __str__(self) -> str:
        return "any" if self.is_any else ",".join([*map(str, self.prefixes), *("@" + name for name in self.groups)])


ANY = Addresses()
