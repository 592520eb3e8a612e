"""Writing changed fields back into a frame before it leaves, with checksums kept right.

As in Open vSwitch, set-field changes what later tables see at once, but the frame only when it is sent, and then in the
switch's own order. That matters for neighbour discovery: the kind of the first option is written before the link
address is, and the address goes into that option as what it has become.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.headers import Headers
from orchestrator.policy.protocols import ICMPV6, TCP, UDP

_LINK = ("eth_dst", "eth_src")
_ARP = ("arp_op", "arp_sha", "arp_spa", "arp_tha", "arp_tpa")
_NETWORK = ("ipv4_src", "ipv4_dst", "ipv6_src", "ipv6_dst")

_CHECKSUM_AT = {TCP: 16, UDP: 6, ICMPV6: 2}
"""Where in a transport header the checksum lies that covers IP addresses too."""

_FIRST_OPTION = 24
"""Where in a neighbour discovery message the options begin."""


def written(frame: bytes, headers: Headers, values: Mapping[str, int]) -> bytes:
    """The frame with `values` in place of those that `headers` found in it."""
    data = bytearray(frame)
    for name in _LINK:
        _put(data, headers, values, name)
    if values.get("arp_op") or values.get("ip_proto"):  # the switch takes 0 to mean that there is no such layer
        for name in _ARP:
            _put(data, headers, values, name)
        for name in _NETWORK:
            if _put(data, headers, values, name):
                _mend_network(data, headers, name)
        if headers.transport_at is not None and headers.values.get("ip_proto") == ICMPV6:
            _write_icmpv6(data, headers, values, headers.transport_at)
    return bytes(data)


def _put(data: bytearray, headers: Headers, values: Mapping[str, int], name: str) -> bool:
    """Write one field; return whether it changed.

    A field that the frame lacks cannot be written.
    """
    place = headers.places.get(name)
    if place is None or values.get(name) == headers.values.get(name):
        return False
    data[place] = values.get(name, 0).to_bytes(place.stop - place.start, "big")
    return True


def _write_icmpv6(data: bytearray, headers: Headers, values: Mapping[str, int], at: int) -> None:
    """Write fields of the message at a place.

    Those of neighbour discovery only where there is room for them.
    """
    before = bytes(data[at:])
    if headers.end - at >= _FIRST_OPTION:
        _write_discovery(data, headers, values, at)
    for name in ("icmpv6_type", "icmpv6_code"):
        _put(data, headers, values, name)
    after = bytes(data[at:])
    if headers.end - at >= _FIRST_OPTION and _has_changed(headers, values, "nd_reserved", "nd_options_type"):
        _renew_checksum(data, headers, at)
    elif after != before:
        _mend(data, at + _CHECKSUM_AT[ICMPV6], before, after)


def _write_discovery(data: bytearray, headers: Headers, values: Mapping[str, int], at: int) -> None:
    option = headers.places.get("nd_options_type")
    kind = values.get("nd_options_type", 0)
    if kind != headers.values.get("nd_options_type", 0) and at + _FIRST_OPTION < len(data):
        option = slice(at + _FIRST_OPTION, at + _FIRST_OPTION + 1)
        data[option] = bytes((kind,))
    if option is not None and option.start + 8 <= headers.end:
        name = _ADDRESS_OPTIONS.get(bytes(data[option.start : option.start + 2]))
        if name is not None and _has_changed(headers, values, "nd_target", "nd_sll", "nd_tll"):
            data[option.start + 2 : option.start + 8] = frames.mac_bytes(values.get(name, 0))
    for each in ("nd_reserved", "nd_target"):
        _put(data, headers, values, each)


def _renew_checksum(data: bytearray, headers: Headers, at: int) -> None:
    """Recompute an ICMPv6 message's checksum.

    The switch does so too, so that a wrong one becomes right.
    """
    addresses = (int.from_bytes(data[headers.places[name]], "big") for name in ("ipv6_src", "ipv6_dst"))
    place = slice(at + _CHECKSUM_AT[ICMPV6], at + _CHECKSUM_AT[ICMPV6] + 2)
    data[place] = bytes(2)
    message = bytes(data[at : headers.end])
    data[place] = frames.checksum(frames.pseudo_v6(*addresses)(ICMPV6, len(message)) + message).to_bytes(2, "big")


def _has_changed(headers: Headers, values: Mapping[str, int], *names: str) -> bool:
    return any(values.get(name, 0) != headers.values.get(name, 0) for name in names)


_ADDRESS_OPTIONS: Mapping[bytes, str] = {
    bytes((frames.SOURCE_LINK_ADDRESS, 1)): "nd_sll",
    bytes((frames.TARGET_LINK_ADDRESS, 1)): "nd_tll",
}
"""By kind and length, the latter in units of eight bytes."""


def _mend_network(data: bytearray, headers: Headers, name: str) -> None:
    """Bring the checksums up to date that cover an IP address."""
    assert headers.network_at is not None
    place = headers.places[name]
    old = headers.values[name].to_bytes(place.stop - place.start, "big")
    new = bytes(data[place])
    if name.startswith("ipv4"):
        _mend(data, headers.network_at + 10, old, new)
    transport = headers.values.get("ip_proto", 0)
    if headers.transport_at is not None and transport in _CHECKSUM_AT:
        at = headers.transport_at + _CHECKSUM_AT[transport]
        absent = transport == UDP and data[at : at + 2] == b"\0\0"
        if at + 2 <= len(data) and not absent and not (transport == ICMPV6 and name.startswith("ipv4")):
            _mend(data, at, old, new)


def _mend(data: bytearray, at: int, old: bytes, new: bytes) -> None:
    """Update the checksum at a place for a change of its data (RFC 1624)."""
    before = int.from_bytes(data[at : at + 2], "big")
    pieces = (before ^ 0xFFFF, frames.checksum(old), frames.checksum(new) ^ 0xFFFF)
    data[at : at + 2] = frames.checksum(b"".join(piece.to_bytes(2, "big") for piece in pieces)).to_bytes(2, "big")
