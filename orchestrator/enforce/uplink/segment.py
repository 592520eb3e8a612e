"""The segments of an uplink: networks on which the kernel answers for endpoints.

Where endpoints have addresses of a network that the host is on (flat or VLAN), nobody has to announce routes:

    router ── who has 198.51.100.10? ──▶ eth0 of the host ── its own MAC address ──▶ router
    an endpoint has come ────────────────▶ eth0 ── 198.51.100.10 is at my MAC address ──▶ everybody, four times

The kernel answers for entries of its table of proxies, each one address; those of ours bear our protocol number. An
endpoint that has sent nothing here yet is not answered for: it may still run on another host, which answers.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.kernelobjects import explain_errors, set_kernel
from orchestrator.enforce.uplink.routeduplink import ROUTE_PROTOCOL
from orchestrator.errors import Missing
from orchestrator.policy.addresses import Family, Prefix, format_address, parse_address, read_mac
from orchestrator.policy.protocols import ICMPV6

_PROXY = 8
"""NTF_PROXY."""
_FAILED = 0x20
"""NUD_FAILED: whom it is about does not answer."""
_LINK_SCOPE = 253
_GONE = (2, 19)
"""ENOENT, ENODEV: an entry or interface that went meanwhile."""
_REFUSED = "the kernel refuses to answer for endpoints"
_AWAY = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)
_SETTINGS = {
    "net/ipv6/conf/all/proxy_ndp": "1",
    "net/ipv4/neigh/{name}/proxy_delay": "0", "net/ipv6/neigh/{name}/proxy_delay": "0",
    "net/ipv4/conf/{name}/send_redirects": "0",
}  # fmt: skip
"""Answers go out at once: nobody else answers for endpoints."""
_ALL_NODES = 0xFF02 << 112 | 1
_ALL_NODES_MAC = 0x333300000001
_BROADCAST = (1 << 48) - 1
_OVERRIDE = 1 << 29
"""Of an advertisement: what was known before is wrong."""
_TOLD_AFTER_S = (0.0, 1.0, 5.0, 20.0)
"""When an endpoint that has come is told of: a neighbour may have asked when two hosts answered, or lost a frame."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An address that the kernel answers for on an interface."""

    address: Prefix
    index: int


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """Repairs on segments: addresses answered for from now on and no more, and settings.

    `trouble` says in words what cannot be answered for, and which gateway does not answer.
    """

    answered: frozenset[Prefix] = frozenset()
    silenced: frozenset[Prefix] = frozenset()
    repaired: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.answered or self.silenced or self.repaired)


@dataclass(frozen=True, slots=True)
class KernelSegments:
    """The kernel's answers on some interfaces."""

    interfaces: tuple[str, ...] = ()
    system: Path = Path("/proc/sys")

    def look(self) -> frozenset[Prefix]:
        """Return the addresses that the kernel answers for, wherever. Raises Refused."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            return frozenset(answer.address for answer in _read_answers(kernel))

    def follow(self, prefixes: Collection[Prefix]) -> SegmentChange:
        """Have the kernel answer for exactly these, on these interfaces alone; return the repairs.

        Without interfaces nothing is asked. Raises Refused and Missing where the kernel does not let us.
        """
        if not self.interfaces:
            return SegmentChange()
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            found = _find_indices(kernel, self.interfaces)
            single = frozenset(prefix for prefix in prefixes if prefix.length == prefix.family.bits)
            wanted = {Answer(prefix, index) for prefix in single for index in found.values()}
            held = _read_answers(kernel)
            repaired = tuple(self._repair_settings(found)) if wanted else ()
            for answer in held - wanted:
                _change_answer(kernel, "del", answer)
            for answer in wanted - held:
                _change_answer(kernel, "add", answer)
            trouble = (*_name_wide(frozenset(prefixes) - single), *self._name_missing(found))
            return SegmentChange(
                frozenset(answer.address for answer in wanted - held),
                frozenset(answer.address for answer in held - wanted),
                repaired,
                (*trouble, *_name_silent_gateways(kernel, found)),
            )

    def tell(self, addresses: Iterable[Prefix]) -> None:
        """Tell everybody on the segments that these addresses are here. Raises Refused, Missing."""
        told = tuple(addresses)
        if not told or not self.interfaces:
            return
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            for name, index in _find_indices(kernel, self.interfaces).items():
                mac = read_mac(kernel.get_links(index)[0].get_attr("IFLA_ADDRESS"))
                own = _find_link_address(kernel, index)
                _send(name, filter(None, (make_announcement(each, mac, own) for each in told)))

    def close(self) -> None:
        """Answer for nobody any more; settings stay."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            for answer in _read_answers(kernel):
                _change_answer(kernel, "del", answer)

    def _repair_settings(self, found: Mapping[str, int]) -> Iterator[str]:
        """Set what answering takes; yield what was otherwise."""
        settings = {setting.format(name=name): value for name in found for setting, value in _SETTINGS.items()}
        for name, value in settings.items():
            if set_kernel(self.system / name, value, place=name):
                yield name

    def _name_missing(self, found: Mapping[str, int]) -> Iterator[str]:
        for name in self.interfaces:
            if name not in found:
                yield f"there is no interface '{name}' here: nobody answers for endpoints there (--segment)"


@dataclass(slots=True)
class Announcements:
    """When which addresses are told of. Times are in seconds of one clock."""

    _due: dict[Prefix, list[float]] = field(default_factory=dict, init=False)

    def note(self, change: SegmentChange, now: float) -> None:
        """Note who is answered for from now on, and who is not."""
        for address in change.silenced:
            self._due.pop(address, None)
        for address in change.answered:
            self._due[address] = [now + after for after in _TOLD_AFTER_S]

    def take(self, now: float) -> frozenset[Prefix]:
        """Return the addresses to be told of now, once each."""
        due = frozenset(address for address, times in self._due.items() if times[0] <= now)
        for address in due:
            later = [at for at in self._due[address] if at > now]
            if later:
                self._due[address] = later
            else:
                del self._due[address]
        return due


def make_announcement(address: Prefix, mac: int, own: int | None) -> bytes | None:
    """Return the frame that says where an address is: gratuitous ARP, or an unsolicited advertisement.

    None for IPv6 where the interface has no address of the link (`own`) to say it from.
    """
    if address.family is Family.IPV4:
        asked = frames.arp(frames.ARP_REQUEST, mac, address.network, 0, address.network)
        return frames.ethernet(mac, _BROADCAST, frames.ARP, asked)
    if own is None:
        return None
    option = frames.link_address(frames.TARGET_LINK_ADDRESS, mac)
    pseudo = frames.pseudo_v6(own, _ALL_NODES)
    said = frames.neighbour(frames.ADVERTISEMENT, _OVERRIDE, address.network, option, pseudo)
    packet = frames.ipv6(own, _ALL_NODES, ICMPV6, said, hops=255)  # RFC 4861: others are not believed
    return frames.ethernet(mac, _ALL_NODES_MAC, frames.IPV6, packet)


def _send(name: str, made: Iterable[bytes]) -> None:
    """Send frames by an interface; one that is down sends none.

    Raises Missing without the right to.
    """
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((name, 0))
            for frame in made:
                raw.send(frame)
    except OSError as error:
        if error.errno in _AWAY:
            return
        raise Missing(f"nobody is told on '{name}' of endpoints that came: {error.strerror} (CAP_NET_RAW)") from None


def _find_indices(kernel: IPRoute, names: Iterable[str]) -> dict[str, int]:
    """Return the interfaces that are there, with their numbers."""
    found = {name: next(iter(kernel.link_lookup(ifname=name)), None) for name in names}
    return {name: index for name, index in found.items() if index is not None}


def _find_link_address(kernel: IPRoute, index: int) -> int | None:
    """Return an interface's IPv6 address of the link."""
    for each in kernel.get_addr(family=socket.AF_INET6, index=index, scope=_LINK_SCOPE):
        return parse_address(each.get_attr("IFA_ADDRESS"))[1]
    return None


def _read_answers(kernel: IPRoute) -> frozenset[Answer]:
    """Return the proxies that bear our protocol number."""
    return frozenset(
        Answer(Prefix.parse(each.get_attr("NDA_DST")), each["ifindex"])
        for family in Family
        # without a filter of its own, or it leaves the flag out that asks for proxies
        for each in kernel.neigh("dump", family=family.socket_family, flags=_PROXY, dump_filter=None)
        if each.get_attr("NDA_PROTOCOL") == ROUTE_PROTOCOL
    )


def _change_answer(kernel: IPRoute, how: str, answer: Answer) -> None:
    """Add or delete a proxy; one that is gone already is none."""
    family = answer.address.family
    try:
        kernel.neigh(
            how, dst=format_address(family, answer.address.network), ifindex=answer.index, family=family.socket_family,
            flags=_PROXY, state=0, protocol=ROUTE_PROTOCOL,
        )  # fmt: skip
    except NetlinkError as error:
        if error.code not in _GONE:
            raise


def _name_wide(prefixes: Collection[Prefix]) -> Iterator[str]:
    if prefixes:
        said = ", ".join(map(str, sorted(prefixes)[:5])) + (" and others" if len(prefixes) > 5 else "")
        yield f"{said}: no single address, so nobody answers for it on the segment: route it to this host there"


def _name_silent_gateways(kernel: IPRoute, found: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each default route by a segment whose gateway does not answer."""
    names = {index: name for name, index in found.items()}
    for family in Family:
        for route in kernel.get_routes(family=family.socket_family, dst_len=0):
            gateway, index = route.get_attr("RTA_GATEWAY"), route.get_attr("RTA_OIF")
            if gateway is None or index not in names or route["dst_len"]:
                continue
            known = kernel.get_neighbours(family=family.socket_family, ifindex=index, dst=gateway)
            if any(each["state"] & _FAILED and each.get_attr("NDA_DST") == gateway for each in known):
                yield f"the gateway {gateway} does not answer on '{names[index]}'"
