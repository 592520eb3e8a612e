"""Spreading a domain's traffic: what is stored, what is published, and what a spreading switch comes to hold."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from served import Served, served

from orchestrator.compile.spreadprogram import Member, MemberState, Side, spread_program
from orchestrator.control.publisher import Held, Publisher
from orchestrator.control.spreading import Spreading
from orchestrator.errors import BadInput, NotFound, Stale, Unreachable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import decode
from orchestrator.scaling.buckets import BUCKETS, count_moved, share
from orchestrator.store import Store, open_store


def member(name: str, number: int, **more: object) -> Member:
    sides = Side(f"l{name}", 2 * number + 1), Side(f"r{name}", 2 * number + 2)
    return replace(Member(name, number, *sides), **more)  # type: ignore[arg-type]


A, B, C = (member(name, number) for number, name in enumerate("abc"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'aclflow.db'}")
    with opened.write() as unit:
        unit.domains.create("shop")
    yield opened
    opened.close()


@pytest.fixture
def controller(store: Store) -> int:
    """The enforcement point that controls the spreading switch."""
    with store.write() as unit:
        token = unit.enforcers.invite("shop", expires=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), author="test")
        return unit.enforcers.enrol(token, name="controller", kind="openflow").enforcer.id


@pytest.fixture
def spreading(store: Store) -> Spreading:
    return Spreading(store, Publisher())


def program(spreading: Spreading) -> Program:
    answer = asyncio.run(spreading.watch("shop", None, 0.0))
    assert answer is not None
    found = decode(answer.body)
    assert isinstance(found, Program)
    return found


def enforced(spreading: Spreading) -> int | None:
    record = spreading.current("shop")
    return None if record is None else record.enforced


def test_traffic_that_was_never_spread_is_nobodys(spreading: Spreading) -> None:
    assert spreading.current("shop") is None
    found = program(spreading)
    assert (found.generation, found.tier) == (0, Tier.SPREAD)


def test_members_own_buckets_and_the_same_members_change_nothing(spreading: Spreading) -> None:
    assert spreading.set_members("shop", [A, B]) == 1
    assert spreading.set_members("shop", [A, B]) == 1
    record = spreading.current("shop")
    assert record is not None
    assert share(record.spread.owners) == {"a": 128, "b": 128}
    assert program(spreading).digest == spread_program(record.spread, domain="shop", generation=1).digest


def test_what_another_process_stored_goes_on_from_its_owners(store: Store, spreading: Spreading) -> None:
    spreading.set_members("shop", [A, B])
    before = spreading.current("shop")
    successor = Spreading(store, Publisher())
    assert successor.set_members("shop", [A, B, C]) == 2
    after = successor.current("shop")
    assert before is not None
    assert after is not None
    assert count_moved(before.spread.owners, after.spread.owners) == BUCKETS // 3
    assert program(successor).generation == 2
    assert program(spreading).generation == 2


def test_who_drains_or_is_left_out_owns_nothing(spreading: Spreading) -> None:
    spreading.set_members("shop", [A, B, C])
    spreading.set_members("shop", [A, replace(B, state=MemberState.DRAINING)])
    record = spreading.current("shop")
    assert record is not None
    assert share(record.spread.owners) == {"a": BUCKETS}
    assert [each.name for each in record.spread.members] == ["a", "b"]
    spreading.set_members("shop", [])
    record = spreading.current("shop")
    assert record is not None
    assert not share(record.spread.owners)


def test_weights_decide_the_shares(spreading: Spreading) -> None:
    spreading.set_members("shop", [A, replace(B, weight=3.0)])
    record = spreading.current("shop")
    assert record is not None
    assert share(record.spread.owners) == {"a": 64, "b": 192}


def test_what_was_read_back_counts_up_to_what_was_published_and_never_goes_back(
    spreading: Spreading, controller: int
) -> None:
    spreading.set_members("shop", [A])
    spreading.report("shop", controller, 7, None)
    assert enforced(spreading) == 1
    spreading.set_members("shop", [A, B])
    assert enforced(spreading) == 1
    spreading.report("shop", controller, 0, "drifted")
    assert enforced(spreading) == 1
    record = spreading.current("shop")
    assert record is not None
    assert record.trouble == "drifted"
    spreading.report("shop", controller, 2, None)
    record = spreading.current("shop")
    assert record is not None
    assert (record.enforced, record.trouble) == (2, None)


def given_up(spreading: Spreading) -> tuple[str, ...]:
    record = spreading.current("shop")
    assert record is not None
    return record.given_up


def of_firewalls(store: Store) -> list[tuple[str, object]]:
    with store.read() as unit:
        found = unit.events.since(0, limit=1000).events
    kinds = ("firewall.given-up", "firewall.heard")
    return [(each.kind, each.detail["firewall"]) for each in found if each.kind in kinds]


def test_a_firewall_that_the_switch_gives_up_is_told_once(spreading: Spreading, store: Store, controller: int) -> None:
    """One link is enough; interfaces of nobody's do not matter. What is told stays when the shares change."""
    spreading.report_links("shop", controller, {"la"})  # nothing is spread
    spreading.set_members("shop", [A, B, C], stateful=True, synchronised=True)
    assert given_up(spreading) == ()
    for down in ({"la", "up0"}, {"la", "ra"}, {"ra"}):
        spreading.report_links("shop", controller, down)
        assert given_up(spreading) == ("a",)
    assert of_firewalls(store) == [("firewall.given-up", "a")]
    spreading.set_members("shop", [A, B], stateful=True, synchronised=True)
    assert given_up(spreading) == ("a",)
    spreading.report_links("shop", controller, {"rb"})
    assert given_up(spreading) == ("b",)
    spreading.report_links("shop", controller, ())
    assert given_up(spreading) == ()
    assert of_firewalls(store)[1:] == [
        ("firewall.given-up", "b"), ("firewall.heard", "a"), ("firewall.heard", "b"),
    ]  # fmt: skip


def test_where_the_service_gives_firewalls_up_the_switch_has_given_up_none(
    spreading: Spreading, store: Store, controller: int
) -> None:
    spreading.set_members("shop", [A, B], stateful=True)
    spreading.report_links("shop", controller, {"la"})
    assert given_up(spreading) == ()
    assert of_firewalls(store) == []


def test_a_switch_that_is_ahead_of_a_restored_database_gets_a_newer_spread(spreading: Spreading) -> None:
    spreading.set_members("shop", [A])
    answer = asyncio.run(spreading.watch("shop", Held(bytes(16), 41), 0.0))
    assert answer is not None
    assert answer.generation == 42
    assert spreading.set_members("shop", [A]) == 42


def test_two_firewalls_of_one_name_or_number_are_refused(spreading: Spreading) -> None:
    for twin in (replace(B, name="a"), replace(B, number=A.number)):
        with pytest.raises(BadInput):
            spreading.set_members("shop", [A, twin])
    assert spreading.current("shop") is None
    with pytest.raises(NotFound):
        spreading.set_members("nowhere", [A])


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as running:
        with running.client() as client:
            client.domains.create("shop")
        yield running


def test_over_rest(here: Served) -> None:
    spreading = here.service.parts.spreading
    with here.client() as client:
        with pytest.raises(NotFound, match="not spread"):
            client.spread.read("shop")
        stream = client.spread.follow("shop", lasts_s=20.0)
        first = next(stream)
        assert isinstance(first, Program)
        assert first.generation == 0
        spreading.set_members("shop", [A, replace(B, state=MemberState.DRAINING)])
        second = next(each for each in stream if each is not None)
        assert second.generation == 1
        seen = client.spread.read("shop")
        assert [(each.carrier.name, each.carrier.state, each.buckets) for each in seen.firewalls] == [
            ("a", "serving", 256), ("b", "draining", 0),
        ]  # fmt: skip
        assert (seen.given_up, seen.carrying) == ((), ("a",))
        again = [each.carrier for each in seen.firewalls]
        assert client.spread.configure("shop", again) == 1
        assert client.spread.configure("shop", again[:1]) == 2
        with pytest.raises(Stale):
            client.spread.configure("shop", again, etag='"1"')
        assert next(each for each in stream if each is not None).generation == 2
        assert (seen.generation, seen.enforced, seen.stateful, seen.trouble) == (1, 0, False, None)
        log = [event.kind for event in client.events.read(limit=1000).items]
        assert "spread.changed" in log


def test_a_domain_that_is_made_anew_begins_anew(here: Served) -> None:
    spreading = here.service.parts.spreading
    with here.client() as client:
        for members in ([A], [A, B], [A, B, C]):
            spreading.set_members("shop", members)
        assert program(spreading).generation == 3
        client.domains.delete("shop")
        client.domains.create("shop")
        assert program(spreading).generation == 0
        assert spreading.set_members("shop", [B]) == 1
        assert program(spreading).generation == 1


def test_who_follows_while_the_database_goes_away_is_to_ask_again(
    spreading: Spreading, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise Unreachable("the database is away")

    async def followed() -> int:
        answers = await spreading.follow("shop", None, 3600.0, heartbeat_s=3600.0)
        await anext(answers)
        monkeypatch.setattr(store, "read", away)
        return len([answer async for answer in answers])

    assert asyncio.run(followed()) == 0
