"""ASA import and export against an independent reading of the lists, at the corners of the rules."""

from __future__ import annotations

from formats import asa_walk
from formats.iptables_texts import packets_at, permits, seeds, some_corners
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic
from orchestrator.policy.oracle import ask

OBJECTS = """object network HOST
 host 10.1.2.3
object network HOST6
 host 2001:db8:1::5
object network NET
 subnet 10.0.0.0 255.0.0.0
object network SPAN
 range 10.0.0.200 10.1.2.3
object service HTTPS
 service tcp destination eq https
object service FROM-DNS
 service tcp-udp source eq domain
object service PING
 service icmp echo
object-group network INNER
 network-object 192.0.2.0 255.255.255.0
 network-object object HOST6
object-group network BOTH
 network-object host 10.1.2.4
 network-object object SPAN
 network-object 2001:db8::/32
 group-object INNER
object-group protocol TRANSPORT
 protocol-object tcp
 protocol-object udp
object-group service SHOP
 service-object udp destination range 20 25
 service-object object HTTPS
 service-object icmp6 neighbor-solicitation
 service-object gre
object-group service WEB tcp
 port-object eq www
 port-object range 1024 65535
object-group service NAMES tcp-udp
 port-object eq domain
object-group icmp-type ERRORS
 icmp-object unreachable
 icmp-object echo
"""
SIDES = (
    *("any", "any", "any4", "any6", "host 10.1.2.3", "10.1.0.0 255.255.0.0", "2001:db8::/32", "host 2001:db8:1::5"),
    *("object HOST", "object HOST6", "object NET", "object SPAN", "object-group BOTH", "object-group INNER"),
)
PORTS = ("", "eq 22", "eq domain", "neq 80", "gt 1023", "lt 23", "range 20 25", "lt 0", "object-group NAMES")
ICMP = {"icmp": ("", "echo", "3 4", "object-group ERRORS"), "icmp6": ("", "echo", "135", "1 4")}


@st.composite
def lines(draw) -> str:
    protocols = ("ip", "tcp", "tcp", "udp", "icmp", "icmp6", "50", "object HTTPS", "object FROM-DNS", "object PING")
    protocol = draw(st.sampled_from((*protocols, "object-group SHOP", "object-group TRANSPORT")))
    source, destination = (draw(st.sampled_from(SIDES)) for _ in range(2))
    ports = ["", ""]
    if protocol in ("tcp", "udp", "object-group TRANSPORT"):
        allowed = (*PORTS, "object-group WEB") if protocol == "tcp" else PORTS
        ports = [draw(st.sampled_from(allowed)) for _ in range(2)]
    end = draw(st.sampled_from(ICMP.get(protocol, ("",))))
    option = draw(st.sampled_from(("", "", "log", "log 7 interval 600", "log disable", "inactive")))
    action = draw(st.sampled_from(("permit", "permit", "deny")))
    return " ".join(f"extended {action} {protocol} {source} {ports[0]} {destination} {ports[1]} {end} {option}".split())


slow = settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(st.lists(lines(), min_size=1, max_size=6), st.sampled_from(Family), seeds)
def test_lists_are_read_exactly(found: list[str], family: Family, seed: int) -> None:
    text = OBJECTS + "".join(f"access-list web {line}\n" for line in found)
    imported = read(text, "asa")
    assert imported.exact, imported.losses
    for packet in packets_at(imported, family, seed):
        if not packet.later_fragment:
            assert permits(imported, packet) is asa_walk.permits(text, "web", packet), packet


BROAD = ("extended permit ip any any", "extended deny tcp any any", "extended permit tcp any any4 eq 22")
HOURS = ("", "", " time-range day", " time-range night")
timed = st.tuples(st.one_of(lines(), st.sampled_from(BROAD)), st.sampled_from(HOURS))


@slow
@given(st.lists(timed, min_size=2, max_size=6), st.sampled_from(Family), seeds)
def test_what_cannot_be_seen_never_permits_more(drawn: list[tuple[str, str]], family: Family, seed: int) -> None:
    """Whatever the hour, a packet that our list lets pass is one that the ASA lets pass."""
    text = OBJECTS + "".join(f"access-list web {line.removesuffix(' inactive')}{when}\n" for line, when in drawn)
    imported = read(text, "asa")
    for packet in packets_at(imported, family, seed):
        if not packet.later_fragment and permits(imported, packet):
            for hours in ((), ("day",), ("night",), ("day", "night")):
                assert asa_walk.permits(text, "web", packet, frozenset(hours)), (packet, hours)


@slow
@given(acls(max_rules=4))
def test_what_is_written_decides_as_the_list_does(acl: Acl) -> None:
    exported = write(acl, "asa")
    for packet in some_corners(acl):
        if packet.later_fragment:
            continue
        for direction in Direction:
            ours = ask(acl, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT
            theirs = f"access-list {direction.value} " not in exported.text or asa_walk.permits(
                exported.text, direction.value, packet
            )
            assert theirs is ours if exported.exact else theirs <= ours, (packet, direction)


@slow
@given(acls(max_rules=4))
def test_reading_what_was_written_is_a_fixed_point(acl: Acl) -> None:
    once = read(write(acl, "asa").text, "asa")
    assert once.exact, once.losses
    exported = write(once.acl, "asa")
    again = read(exported.text, "asa")
    assert (exported.losses, again.acl) == ((), once.acl)
