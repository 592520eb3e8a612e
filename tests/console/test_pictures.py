"""Drawings say what they are given, and nothing that a name could smuggle in."""

from __future__ import annotations

import datetime as dt
import re
from xml.etree import ElementTree as Xml

from api.console.pictures.path import way
from api.console.pictures.series import Series, series_picture
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
    drawn += series_picture([NOON], [Series(NASTY, [1], limits=((NASTY, 2),))], dt.UTC)
    assert "<script" not in drawn


NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def moments(count: int) -> list[dt.datetime]:
    return [NOON + dt.timedelta(seconds=5 * number) for number in range(count)]


def paths(drawn: str) -> list[list[tuple[float, float]]]:
    """The lines of the lanes, corner by corner."""
    lines = [
        each.get("d") or "" for each in Xml.fromstring(drawn).iter(f"{SVG}path") if each.get("stroke-width") == "2"
    ]
    return [[tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", line)] for line in lines]  # type: ignore[misc]


def test_numbers_over_time_say_what_they_are_now_and_were_at_most() -> None:
    lanes = [
        Series("load", [1000, 4000, 2000], "pps"),
        Series("size", [1, 2, 2], stepped=True, limits=(("most", 5),)),
    ]
    drawn = series_picture(moments(3), lanes, dt.UTC)
    said = texts(drawn)
    assert {"load", "4 kpps", "2 kpps", "size", "most", "12:00:00", "12:00:10"} <= set(said)
    assert 'aria-label="load 2 kpps now, 4 kpps at most; size 2 now, 2 at most"' in drawn


def test_what_is_larger_is_drawn_higher_and_what_is_later_further_right() -> None:
    (line,) = paths(series_picture(moments(4), [Series("load", [0, 300, 100, 200])], dt.UTC))
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    heights = [-y for _, y in line]
    assert sorted(range(4), key=heights.__getitem__) == [0, 2, 3, 1]


def test_many_numbers_are_thinned_and_neither_the_highest_nor_the_last_is_lost() -> None:
    values = [10.0] * 5000
    values[1234], values[-1] = 500.0, 7.0
    (line,) = paths(series_picture(moments(5000), [Series("load", values)], dt.UTC))
    assert len(line) <= 301
    alone = paths(series_picture(moments(3), [Series("load", [10.0, 500.0, 7.0])], dt.UTC))[0]
    assert min(y for _, y in line) == alone[1][1]
    assert line[-1] == alone[-1]


def test_one_number_alone_and_nothing_but_zeros_can_be_drawn() -> None:
    for count in (1, 3):
        assert "0" in texts(series_picture(moments(count), [Series("load", [0] * count)], dt.UTC))
