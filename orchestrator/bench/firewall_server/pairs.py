"""Millions of permitted address pairs, and two kinds of kernel sets that hold them.

A *hash set* is our servers': source and destination, written by the agent's own messages (`PairTable`). An *interval
set* holds source addresses as ranges, as `nft` makes of prefixes; it is a tree that is written anew as a whole.
"""

from __future__ import annotations

import numpy as np

from orchestrator.bench.traffic.addresses import SERVER, Clients
from orchestrator.compile.nftables.served import PAIRED
from orchestrator.compile.servers.exactpairs import HOSTS4, Keys
from orchestrator.enforce.drivers.nftables.pairs import PairTable
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

_SOURCES = Clients.OUTSIDE.value.network
_DESTINATIONS = Prefix.parse("203.0.113.0/24").network
_A_SOURCE = 256
"""Pairs that share a source."""
_PORTS = (40_000, 9)

_AFRESH = "table ip aclbench\ndelete table ip aclbench\n"
MARKED_ONLY = f"""{_AFRESH}
table ip aclbench {{
  chain forward {{
    type filter hook forward priority filter; policy drop;
    meta mark & 0xff000000 == {PAIRED:#x} accept
    iifname "right" accept
  }}
}}
"""
_INTERVALS = """
table ip aclbench {{
  set permitted {{ type ipv4_addr; flags interval; elements = {{ {elements} }} }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    ip saddr @permitted accept
    iifname "right" accept
  }}
}}
"""


def pairs(count: int, first: int = 0) -> Keys:
    """`count` pairs, from number `first` on: a longer list begins as a shorter one does."""
    number = np.arange(first, first + count, dtype=np.uint32)
    both = np.stack([_SOURCES + 2 * (number // _A_SOURCE), _DESTINATIONS + number % _A_SOURCE], axis=1)
    return np.ascontiguousarray(both.astype(">u4")).view(np.uint8).reshape(count, 8)


def traffic() -> Keys:
    """The pair that the line's tools speak between."""
    both = np.array([[Clients.ONE.value.network, SERVER.network]], ">u4")
    return both.view(np.uint8).reshape(1, 8)


def packets(keys: Keys) -> list[Packet]:
    """A datagram for each pair."""
    addresses = keys.view(">u4").reshape(-1, 2).tolist()
    return [Packet(Family.IPV4, source, destination, UDP, *_PORTS) for source, destination in addresses]


def evenly(count: int, wanted: int) -> Keys:
    """Take at most `wanted` of the `count` pairs, evenly."""
    chosen = np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64))
    return np.concatenate([pairs(1, int(index)) for index in chosen])


class HashSet:
    """A hash set, made in the namespace that each call is made in."""

    def __init__(self) -> None:
        self.table = PairTable()

    def create(self) -> None:
        """Create an empty set and `MARKED_ONLY`, the filter behind it that passes marked packets."""
        self.table.remove()
        self.table.create()

    def load(self, keys: Keys) -> None:
        """Add many. Raises Refused if the kernel did not take the last."""
        self.table.load(HOSTS4, keys)
        if not self.table.holds(HOSTS4, keys[-1:]).all():
            raise Refused("the kernel does not hold what was loaded")

    def add_one(self, key: bytes) -> None:
        """Add one, as the agent does it."""
        self.table.add_one(HOSTS4, key)

    def add(self, keys: Keys) -> None:
        """Add a few in one transaction."""
        self.table.change({HOSTS4: keys}, {})

    def remove(self, keys: Keys) -> None:
        """Take a few elements out of the set."""
        self.table.change({}, {HOSTS4: keys})


def intervals(count: int) -> str:
    """Return a script for an interval set of `count` separate ranges before a filter."""
    elements = ", ".join(format_address(Family.IPV4, _SOURCES + 2 * index) for index in range(count))
    return _AFRESH + _INTERVALS.format(elements=elements)


def interval_packets(count: int, wanted: int) -> list[Packet]:
    """Datagrams from at most so many of its addresses."""
    chosen = np.unique(np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)).tolist()
    return [Packet(Family.IPV4, _SOURCES + 2 * index, _DESTINATIONS, UDP, *_PORTS) for index in chosen]


def typed_interval(number: int) -> tuple[str, ...]:
    """The command that adds one range that is not there yet."""
    element = format_address(Family.IPV4, _SOURCES - 2 - 2 * number)
    return ("nft", "add", "element", "ip", "aclbench", "permitted", f"{{ {element} }}")


def typed_pair(number: int) -> tuple[str, ...]:
    """The command that adds one pair that is not there yet."""
    element = f"{{ {format_address(Family.IPV4, _SOURCES - 2 - 2 * number)} . 203.0.113.1 }}"
    return ("nft", "add", "element", "ip", "aclflow_pairs", HOSTS4.name, element)
