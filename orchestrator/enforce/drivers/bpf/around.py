"""Other deciders of packets on this machine that a flow cache would bypass.

The cache sends a packet on before the kernel's IP stack has seen it. What happens there besides the filter of ours must
be repeated by the cache or not be there:

    rp_filter              repeated: how strict is part of the set of rows
    ip_forward             the kernel's own answer to the question for a route says it
    IPv6 forwarding        asked here: in IPv6 the switch for all interfaces decides, and that answer looks at one
    NAT, mangle, raw, ...  must not be there, nor a filter that is not the plane's
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.compile.filters.legs import GUARD_TABLE
from orchestrator.compile.filters.rows import Plane
from orchestrator.enforce.drivers.nftables import netlink
from orchestrator.enforce.drivers.nftables.pairs import NAMES as PAIR_TABLES
from orchestrator.enforce.drivers.nftables.scripts import NAMES

_OURS: Mapping[Plane, tuple[str, ...]] = {
    Plane.NFTABLES: (*NAMES, *PAIR_TABLES),
    Plane.IPTABLES: ("filter",),
    Plane.QUEUE: ("filter",),
}
"""Names of the tables that the cache repeats; iptables over nftables keeps its tables under the same names."""
Tables = Callable[[], Iterable[tuple[str, str]]]
"""The tables of nftables that there are, by family and name."""
_GUARD = ("inet", GUARD_TABLE)
"""What keeps other interfaces' packets from the legs, and those of the legs from the machine."""
_FAMILIES = frozenset({"ip", "ip6"})
_NOT_OF_IP = frozenset({"arp", "bridge"})
_LEGACY = ("ip_tables_names", "ip6_tables_names")
_STRICTNESS = (0, 2, 1)
"""Values of rp_filter, the least strict first."""


@dataclass(frozen=True, slots=True)
class Around:
    """`bystanders` are the tables of packet filters that are not ours; `source_check` the strictest rp_filter."""

    source_check: int
    forwards_ipv6: bool
    bystanders: tuple[str, ...]


def look_around(
    interfaces: Sequence[str], plane: Plane, tables: Tables = netlink.tables, root: Path = Path("/proc")
) -> Around:
    """The namespace that this is called in, whose filter is of one plane."""
    ours = _OURS[plane]
    conf = root / "sys/net/ipv4/conf"
    everywhere = _number(conf / "all/rp_filter")
    checks = [max(everywhere, _number(conf / interface / "rp_filter")) for interface in interfaces]
    legacy = [
        f"{name.partition('_')[0]}tables {table}"
        for name in _LEGACY
        for table in _words(root / "net" / name)
        if plane is Plane.NFTABLES or table not in ours
    ]
    return Around(
        source_check=max(checks, key=_STRICTNESS.index, default=0),
        forwards_ipv6=_number(root / "sys/net/ipv6/conf/all/forwarding") == 1,
        bystanders=(*legacy, *_nftables(tables(), ours)),
    )


def _nftables(tables: Iterable[tuple[str, str]], ours: Sequence[str]) -> list[str]:
    return [
        f"nft {family} {name}"
        for family, name in tables
        if family not in _NOT_OF_IP and not (family in _FAMILIES and name in ours) and (family, name) != _GUARD
    ]


def _number(path: Path) -> int:
    text = "".join(_words(path))
    return int(text) if text.isdigit() else 0


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except FileNotFoundError:  # that version of IP, or that kind of filter, is not there
        return []
