"""Drawings say what they are given, and nothing that a name could smuggle in."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from api.console.pictures.path import way
from api.console.pictures.topology import HostState, TenantPlace, domain_picture
from orchestrator.client import Step

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert('x')</script>&\""


def texts(drawn: str) -> list[str]:
    tree = Xml.fromstring(drawn)
    return ["".join(each.itertext()) for each in tree.iter() if each.tag.removeprefix(SVG) == "text"]


def test_the_way_of_a_packet_ends_where_it_is_denied() -> None:
    steps = [Step("a", "egress", "permit", "out"), Step("b", "ingress", "deny", None)]
    drawn = way(steps, "192.0.2.1", "198.51.100.1", permitted=False)
    said = texts(drawn)
    assert said[:2] == ["from", "192.0.2.1"]
    assert "egress list of a" in said
    assert "rule out" in said
    assert said[-2:] == ["deny", "dropped"]
    assert "198.51.100.1" not in said


def test_the_way_of_a_permitted_packet_reaches_its_destination() -> None:
    said = texts(way([Step(None, None, "permit", "dhcp")], "::1", "::2", permitted=True))
    assert said[-2:] == ["to", "::2"]
    assert "operator's rules" in said


def test_a_domain_with_all_that_is_in_it() -> None:
    hosts = [HostState("h1", "holds generation 3", "good"), HostState("h2", "never reported", "bad")]
    tenants = [TenantPlace("shop", 1, "198.51.100.0/24"), TenantPlace("bank", 2, "")]
    said = " ".join(texts(domain_picture("pop", hosts, tenants, {"c1": "openflow, heard 1 s ago"})))
    for word in ("pop", "h1", "h2", "never reported", "shop", "1 endpoint", "2 endpoints", "c1"):
        assert word in said


def test_an_empty_domain_can_be_drawn() -> None:
    assert "alone" in " ".join(texts(domain_picture("alone", [], [], {})))


def test_names_are_text_and_nothing_else() -> None:
    drawn = domain_picture(NASTY, [HostState(NASTY, NASTY, "warn")], [TenantPlace(NASTY, 0, NASTY)], {NASTY: NASTY})
    drawn += way([Step(NASTY, "ingress", "deny", NASTY)], NASTY, NASTY, permitted=False)
    assert "<script" not in drawn
