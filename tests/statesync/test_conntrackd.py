"""What conntrackd is told, and which wishes are refused."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from orchestrator.errors import BadInput
from orchestrator.statesync.conntrackd import SharedTracking


def test_one_other_confirms_and_several_are_told_by_multicast() -> None:
    one = SharedTracking.read("10.9.0.1", "share", ["10.9.0.2"]).text()
    assert "Mode FTFW" in one
    assert "IPv4_Destination_Address 10.9.0.2" in one
    several = SharedTracking.read("10.9.0.1", "share", ["10.9.0.2", "10.9.0.3"], port=3790).text()
    assert "Mode NOTRACK" in several
    assert "Destination" not in several
    assert "IPv4_address 225.0.0.50\n        Group 3790\n        IPv4_interface 10.9.0.1" in several
    for text in (one, several):
        assert text.count("{") == text.count("}")
        assert "DisableExternalCache On" in text, "what is heard belongs into the kernel's table"


def test_a_firewall_keeps_its_own_connections_to_itself() -> None:
    shared = SharedTracking.read("fd00::1", "share", ["fd00::2"], ["192.0.2.1"])
    assert shared.own == (ip_address("192.0.2.1"),)
    ignored = shared.text().partition("Address Ignore {")[2]
    for line in ("IPv4_address 127.0.0.1", "IPv6_address ::1", "IPv6_address fd00::1", "IPv4_address 192.0.2.1"):
        assert f"{line}\n" in ignored
    assert "IPv6_Destination_Address fd00::2" in shared.text()


@pytest.mark.parametrize(
    ("address", "interface", "peers", "place", "reason"),
    [
        ("10.9.0", "share", ["10.9.0.2"], "--address", "'10.9.0' is not an address"),
        ("10.9.0.1", "share", ["there"], "--peer", "'there' is not an address"),
        ("10.9.0.1", "share", [], "--peer", "name at least one other firewall"),
        ("10.9.0.1", "share", ["10.9.0.1"], "--peer", "10.9.0.1 is this firewall itself"),
        ("10.9.0.1", "share", ["10.9.0.2", "10.9.0.2"], "--peer", "a firewall is named twice"),
        ("10.9.0.1", "share", ["fd00::2"], "--peer", "a peer is of another IP version than 10.9.0.1"),
        ("fd00::1", "share", ["fd00::2", "fd00::3"], "--address", "over IPv4 only"),
        ("10.9.0.1", "share }", ["10.9.0.2"], "--interface", "'share }' is not the name of an interface"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    address: str, interface: str, peers: list[str], place: str, reason: str
) -> None:
    with pytest.raises(BadInput, match=reason) as error:
        SharedTracking.read(address, interface, peers)
    assert error.value.place == place
