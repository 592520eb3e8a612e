"""Drawings say what they are given, and nothing that a name could smuggle in."""

from __future__ import annotations

import datetime as dt
import re
from xml.etree import ElementTree as Xml

from api.console.pages.topology import Column, Node, domain_picture
from api.console.pages.trace import draw_way
from api.console.pictures.series import Series, lifted_over_time, rates_of, series_picture
from orchestrator.client import Step
from orchestrator.wire.events import Event
from orchestrator.wire.hits import VerdictStretch

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert('x')</script>&\""


def texts(drawn: str) -> list[str]:
    tree = Xml.fromstring(drawn)
    return ["".join(each.itertext()) for each in tree.iter() if each.tag.removeprefix(SVG) in ("text", "span", "b")]


def test_the_way_of_a_packet_ends_where_it_is_denied() -> None:
    steps = [Step("a", "egress", "permit", "out"), Step("b", "ingress", "deny", None)]
    drawn = draw_way(steps, "192.0.2.1", "198.51.100.1", permitted=False)
    said = texts(drawn)
    assert said[:2] == ["from", "192.0.2.1"]
    assert "egress list of a" in said
    assert "rule out" in said
    assert said[-2:] == ["deny", "dropped"]
    assert "198.51.100.1" not in said


def test_the_way_of_a_permitted_packet_reaches_its_destination() -> None:
    said = texts(draw_way([Step(None, None, "permit", "dhcp")], "::1", "::2", permitted=True))
    assert said[-2:] == ["to", "::2"]
    assert "operator's rules" in said


def test_a_domain_with_all_that_is_in_it() -> None:
    columns = [
        Column("Edge switches", (Node("edge1", "holds generation 3", "good"),)),
        Column("Firewalls", ()),
        Column("Hosts", (Node("h1", "holds generation 3", "good", 0.5), Node("h2", "never reported", "bad"))),
        Column("Tenants", (Node("shop", "1 endpoint"), Node("bank", "2 endpoints"))),
    ]
    drawn = domain_picture("pop", columns, {"c1": "openflow, heard 1 s ago"})
    said = " ".join(texts(drawn))
    for word in ("edge1", "h1", "h2", "never reported", "shop", "1 endpoint", "2 endpoints", "c1", "driven by"):
        assert word in said
    assert "Firewalls" not in said
    assert 'aria-label="Domain pop: 1 edge switches, 2 hosts, 2 tenants"' in drawn


def test_what_stands_further_on_the_way_is_drawn_further_right() -> None:
    columns = [Column(str(number), (Node(f"n{number}", ""),)) for number in range(4)]
    tree = Xml.fromstring(domain_picture("pop", columns, {}))
    at = {each.text: float(each.get("x") or 0) for each in tree.iter(f"{SVG}text") if (each.text or "").startswith("n")}
    assert [at[f"n{number}"] for number in range(4)] == sorted(at.values())


def test_an_empty_domain_can_be_drawn() -> None:
    assert "alone" in domain_picture("alone", [], {})


def test_names_are_text_and_nothing_else() -> None:
    drawn = domain_picture(NASTY, [Column(NASTY, (Node(NASTY, NASTY, "warn"),))], {NASTY: NASTY})
    drawn += draw_way([Step(NASTY, "ingress", "deny", NASTY)], NASTY, NASTY, permitted=False)
    drawn += series_picture([NOON], [Series(NASTY, [1], limits=((NASTY, 2),))], dt.UTC)
    assert "<script" not in drawn


def test_counts_become_rates_that_add_up_and_stay_as_they_were() -> None:
    step = dt.timedelta(seconds=5)
    history = [VerdictStretch(NOON + dt.timedelta(seconds=each), 10 * each, each, 3 * each) for each in range(1, 40, 3)]
    now = NOON + dt.timedelta(seconds=38)
    found = rates_of(history, now, step, 6)
    over = [each for each in history if NOON + step <= each.start < NOON + 7 * step]
    assert sum(found.permitted) * 5 == sum(each.permitted for each in over)
    assert sum(found.denied) * 5 == sum(each.denied + each.denied_ahead for each in over)
    assert found.times == tuple(NOON + step * number for number in range(2, 8))
    later = rates_of([*history, VerdictStretch(now, 99, 99, 0)], now + dt.timedelta(seconds=1), step, 6)
    assert later == found


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


def test_lifted_rules_and_what_they_save_are_told_backwards_from_now() -> None:
    """One rule is lifted and stays; another was lifted before, lowered since, and had saved what was said then."""
    moves = [
        ("placement.lowered", "dns", {}),
        ("acl.replaced", "", {}),
        ("placement.lifted", "web", {"saves_us_per_s": 300}),
        ("placement.lifted", "dns", {"saves_us_per_s": 50}),
    ]
    events = [
        Event(9 - number, NOON - dt.timedelta(minutes=number), kind, "pop", {"tenant": "shop", "rule": rule, **more})
        for number, (kind, rule, more) in enumerate(moves, 1)
    ]
    other = {"tenant": "shop", "rule": "web", "saves_us_per_s": 9}
    events.append(Event(1, NOON - dt.timedelta(minutes=9), "placement.lifted", "another", other))
    found = lifted_over_time(events, "pop", {("shop", "web"): 400.0}, NOON)
    assert list(found.times) == sorted(found.times)
    assert found.counts == (0, 1, 1, 2, 2, 1, 1)
    assert found.saved_us_per_s == (0, 50, 50, 450, 450, 400, 400)
    assert found.times[-1] == NOON
    alone = lifted_over_time([], "pop", {("shop", "a"): 1.0, ("shop", "b"): 2.0}, NOON)
    assert (alone.times, alone.counts, alone.saved_us_per_s) == ((NOON,), (2,), (3.0,))
