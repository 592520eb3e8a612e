"""Counts in the store: each report once, sums that never go down, history that is bounded and adds up."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from store.conftest import FakeWall
from store.scenes import acl, populate, prefix, rule

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.errors import BadInput, Conflict, NotFound
from orchestrator.policy.model import RuleId
from orchestrator.program.countframes import CountFrame, Loss, Note, decode_frames, encode_frames
from orchestrator.program.counts import MOST, NO_COUNTS, Counts, counts_of, join_counts, sum_rows
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.hits import firstrules, rules
from orchestrator.store.hits.history import HitHistory, Resolution
from orchestrator.store.hits.hitrecords import HitOrder, RuleHits
from orchestrator.store.records import HostRecord
from orchestrator.store.sql.keys import to_micros
from orchestrator.store.transaction import HistorySettings, StoreSettings
from orchestrator.store.unit import Unit

HOSTS = ("host1", "host2")


def cookie(kind: Kind, number: int, tier: Tier = Tier.HOST) -> int:
    return Cookie(tier, kind, number).pack()


def counts(*rows: tuple[int, int]) -> Counts:
    """Rows of cookie and packets, 100 bytes each, hit at the moment."""
    columns = [np.array(column, np.int64) for column in zip(*((p, p * 100, 0, 1) for _, p in rows), strict=True)]
    return sum_rows(np.array([c for c, _ in rows], np.uint64), *columns) if rows else NO_COUNTS


def frame(host: str, sequence: int, *rows: tuple[int, int], chunk: bytes = b"", whole: bool = False) -> CountFrame:
    return CountFrame(host, sequence, counts(*rows), (), chunk, whole)


def scene(store: Store) -> dict[str, int]:
    """Two hosts and a list of rules a and b; their cookies."""
    populate(store)
    with store.write() as unit:
        for number, host in enumerate(HOSTS, 1):
            unit.domains.add_host("pop", HostRecord(host, number, "eth0"))
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
        numbers = unit.acls.current("blue").numbers
        return {name: cookie(Kind.RULE, numbers[name]) for name in numbers}


def take(store: Store, epoch: int, *frames: CountFrame) -> tuple[str, ...]:
    with store.write() as unit:
        now = to_micros(unit.now)
        return unit.counting.take("pop", epoch, decode_frames(encode_frames(frames, 1), now)).refused


def claim(store: Store, host: str, epoch: int) -> tuple[int, tuple[bytes, ...] | None]:
    with store.write() as unit:
        claimed = unit.counting.claim("pop", host, epoch)
        return claimed.sequence, claimed.chunks


def packets(store: Store) -> dict[str, int]:
    with store.read() as unit:
        return {name: hits.packets for name, hits in unit.hits.totals("blue").rules.items()}


def test_each_report_counts_once_and_in_order(store: Store) -> None:
    cookies = scene(store)
    assert claim(store, "host1", 5) == (0, None)
    assert take(store, 5, frame("host1", 1, (cookies["a"], 10), chunk=b"one", whole=True)) == ()
    assert take(store, 5, frame("host1", 1, (cookies["a"], 10), chunk=b"one", whole=True)) == ()  # doubled
    assert packets(store) == {"a": 10, "b": 0}
    assert take(store, 5, frame("host1", 3, (cookies["a"], 7))) == ("host1",)  # one is missing before it
    assert take(store, 5, frame("host1", 2, (cookies["a"], 1), chunk=b"two")) == ()
    assert packets(store)["a"] == 11
    assert claim(store, "host1", 6) == (2, (b"one", b"two"))
    assert take(store, 5, frame("host1", 3, (cookies["a"], 100))) == ("host1",)  # replaced by a later one
    assert take(store, 6, frame("host1", 3, (cookies["b"], 3), chunk=b"three", whole=True)) == ()
    assert packets(store) == {"a": 11, "b": 3}
    assert claim(store, "host1", 6) == (3, (b"three",))
    with pytest.raises(Conflict):
        claim(store, "host1", 5)


def test_hosts_and_tiers_are_told_apart(store: Store) -> None:
    cookies = scene(store)
    number = cookies["a"] & (1 << 40) - 1
    for host in HOSTS:
        claim(store, host, 1)
    at_server = cookie(Kind.RULE, number, Tier.SERVER)
    assert (
        take(store, 1, frame("host1", 1, (cookies["a"], 1)), frame("host2", 1, (cookies["a"], 2), (at_server, 40)))
        == ()
    )
    assert take(store, 1, frame("gone", 1, (cookies["a"], 9))) == ("gone",)
    assert packets(store)["a"] == 3
    with store.read() as unit:
        assert unit.hits.totals("blue", Tier.SERVER).rules["a"].packets == 40
        rates = unit.hits.rates("pop")
        assert (rates.number.tolist(), rates.packets.tolist()) == ([number], [3])
    with pytest.raises(NotFound):
        claim(store, "gone", 1)


def test_a_host_that_left_and_came_again_begins_anew_and_the_sums_stay(store: Store) -> None:
    cookies = scene(store)
    claim(store, "host1", 1)
    take(store, 1, frame("host1", 1, (cookies["a"], 10), chunk=b"one", whole=True))
    with store.write() as unit:
        unit.domains.remove_host("pop", "host1")
    assert take(store, 1, frame("host1", 2, (cookies["a"], 1))) == ("host1",)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
    assert claim(store, "host1", 1) == (0, None)
    assert packets(store)["a"] == 10


def test_cookies_that_are_not_ours_are_noted_and_unknown_numbers_harm_nobody(store: Store) -> None:
    cookies = scene(store)
    claim(store, "host1", 1)
    rows = ((0x1234, 9), (cookies["a"], 1), (cookie(Kind.RULE, 1 << 39), 4))
    with store.write() as unit:
        taken = unit.counting.take("pop", 1, [frame("host1", 1, *rows)])
    assert (taken.refused, taken.unknown) == ((), 1)
    assert packets(store) == {"a": 1, "b": 0}


def test_losses_are_told_with_the_watch(store: Store, wall: FakeWall) -> None:
    cookies = scene(store)
    with store.read() as unit:
        assert unit.hits.watch("pop").since is None
        assert unit.hits.watched_rules("blue") == ()
    claim(store, "host1", 1)
    note = Note(Loss.RENEWED, 7, 2.5)
    take(store, 1, CountFrame("host1", 1, counts((cookies["b"], 1)), (note,), b"", True))
    wall.move(seconds=30)
    claim(store, "host1", 2)
    with store.read() as unit:
        watch = unit.hits.watch("pop")
        told = [(lapse.kind, lapse.entries) for lapse in watch.lapses]
        assert told == [("claimed", 0), ("renewed", 7)]
        assert watch.lapses[0].within_s > 20
        assert watch.lapses[1].within_s == 2.5
        rules = {each.rule: each for each in unit.hits.watched_rules("blue")}
    assert rules["a"].hits == RuleHits()
    assert rules["b"].hits.packets == 1
    assert rules["a"].since == watch.since  # the rule is older than the counting


def test_a_rule_is_watched_from_when_it_came_into_the_list(store: Store, wall: FakeWall) -> None:
    scene(store)
    claim(store, "host1", 1)
    wall.move(hours=5)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("late"), rule("b")), author="ann")
        now = unit.now
    with store.read() as unit:
        since = {each.rule: each.since for each in unit.hits.watched_rules("blue")}
    assert since["late"] >= now - dt.timedelta(seconds=1)
    assert since["a"] <= now - dt.timedelta(hours=4)


def test_a_rule_that_comes_back_keeps_its_counts_and_is_watched_anew(store: Store, wall: FakeWall) -> None:
    """Else a rule that was away for a month would be called unused for a month."""
    cookies = scene(store)
    claim(store, "host1", 1)
    take(store, 1, frame("host1", 1, (cookies["a"], 7)))
    wall.move(hours=5)
    with store.write() as unit:
        kept = unit.acls.current("blue").acl
        unit.acls.replace("blue", acl(), author="ann")
    wall.move(hours=5)
    with store.write() as unit:
        unit.acls.replace("blue", kept, author="ann")
        now = unit.now
    with store.read() as unit:
        since = {each.rule: each.since for each in unit.hits.watched_rules("blue")}
    assert since["a"] >= now - dt.timedelta(seconds=1)
    assert packets(store) == {"a": 7, "b": 0}
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("a", port=443), author="ann")
    wall.move(hours=1)
    with store.read() as unit:
        assert {each.rule: each.since for each in unit.hits.watched_rules("blue")} == since, "an edit is no break"


def test_what_a_tenant_counted_goes_with_it(store: Store) -> None:
    cookies = scene(store)
    claim(store, "host1", 1)
    take(store, 1, frame("host1", 1, (cookies["a"], 10), (cookie(Kind.INGRESS_DEFAULT, 1), 4)))
    with store.write() as unit:
        unit.tenants.delete("blue")
        assert len(HitHistory(unit.transaction, "pop").totals()) == 0
    take(store, 1, frame("host1", 2, (cookies["b"], 5)))
    with store.read() as unit:
        assert unit.hits.rates("pop").packets.tolist() == [5]


def _rank(order: HitOrder, hits: RuleHits) -> float:
    """What an order asks a rule for; nothing in the order of lists."""
    moment = hits.last_hit.timestamp() if hits.last_hit else 0.0
    ranks = {HitOrder.RATE: hits.rate_pps, HitOrder.PACKETS: hits.packets, HitOrder.BYTES: hits.bytes}
    return ranks.get(order, moment if order is HitOrder.LAST_HIT else 0.0)


Entry = tuple[str, str, RuleHits, int]
"""A rule with its tenant, counts and number."""


def _every_rule(unit: Unit) -> list[Entry]:
    """All rules of the domain as they stand."""
    return [
        (name, each, hits, unit.acls.current(name).numbers[RuleId(each)])
        for name in (f"t{number}" for number in range(6))
        for each, hits in unit.hits.totals(name).rules.items()
    ]


def _first_of_all(every: list[Entry], order: HitOrder, contains: str, limit: int) -> list[Entry]:
    """The first rules, found by looking at all of them: ranked ones, then the others as they stand."""
    named = [each for each in every if contains in each[0] or contains in each[1]]
    ranked = sorted((each for each in named if _rank(order, each[2]) > 0), key=lambda each: each[3])
    ranked.sort(key=lambda each: _rank(order, each[2]), reverse=True)
    return [*ranked, *(each for each in named if not _rank(order, each[2]) > 0)][:limit]


@pytest.mark.parametrize(("few", "held"), [(9, 0), (10_000, 0), (9, 1_000)])
def test_the_first_rules_of_a_domain_are_those_among_all(
    open_another: Callable[..., Store], wall: FakeWall, few: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With names that are in memory, and with no room for them there."""
    store = open_another(settings=StoreSettings(cached_rules=held))
    for name in ("_FIRST_NUMBERS", "_MOST_NUMBERS", "_MOST_NAMED", "_MOST_NAMES"):
        monkeypatch.setattr(firstrules, name, few)
    monkeypatch.setattr(rules, "_FEW", few)
    chance = random.Random(7)
    with store.write() as unit:
        unit.domains.create("pop")
        unit.domains.create("else")
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
        for number in range(7):
            domain = "pop" if number < 6 else "else"
            own = prefix(f"10.{number}.0.0/16")
            unit.tenants.create(f"t{number}", name="", domain=domain, prefixes=[own])
            names = [f"r{port}" for port in chance.sample(range(200), 8 * number)]  # the first has no rule
            listed = (rule(name, port, str(own)) for port, name in enumerate(names))
            unit.acls.replace(f"t{number}", acl(*listed), author="ann")
    with store.read() as unit:
        numbers = [each for of in range(1, 7) for each in unit.acls.current(f"t{of}").numbers.values()]
    claim(store, "host1", 1)
    for sequence in range(1, 5):  # counts are few and small, so many are equal; the oldest are no part of a rate
        rows = [(cookie(Kind.RULE, each), chance.randint(1, 3)) for each in chance.sample(numbers, 60)]
        rows += [(cookie(Kind.INGRESS_DEFAULT, 1), 5), (cookie(Kind.RULE, numbers[0], Tier.SERVER), 1_000)]
        assert take(store, 1, frame("host1", sequence, *rows)) == ()
        wall.move(seconds=35)
    with store.write() as unit:
        unit.acls.delete_rule("t5", next(iter(unit.acls.current("t5").numbers)), author="ann")
        unit.acls.replace("t4", acl(), author="ann")
    with store.read() as unit:
        every = _every_rule(unit)
        for order, contains, limit in product(HitOrder, ("", "9", "t3", "R", "%", "none"), (7, 1000)):
            found = unit.hits.first_rules("pop", order, limit=limit, contains=contains)
            expected = [each[:3] for each in _first_of_all(every, order, contains, limit)]
            assert [(each.tenant, each.rule, each.hits) for each in found.rules] == expected, (order, contains, limit)
        assert unit.hits.count_rules("pop") == len(every) == 8 * (1 + 2 + 3) + 39
        rates = [each.hits.rate_pps for each in unit.hits.first_rules("pop", HitOrder.LIST, limit=1000).rules]
        assert sum(rates) > 0
        assert unit.hits.first_rules("pop", HitOrder.LIST, limit=1).rate_pps >= sum(rates) - 1e-9
        with pytest.raises(NotFound):
            unit.hits.first_rules("nowhere", HitOrder.RATE, limit=1)


def test_first_rules_are_found_behind_many_that_are_gone(store: Store) -> None:
    """Lists that were written anew leave counts of rules that are nobody's, ahead of all others."""
    scene(store)
    claim(store, "host1", 1)
    for sequence in range(1, 60):
        with store.write() as unit:
            unit.acls.replace("blue", acl(rule(f"r{sequence}"), rule("last", 81)), author="ann")
            numbers = unit.acls.current("blue").numbers
        gone, stays = (cookie(Kind.RULE, numbers[RuleId(name)]) for name in (f"r{sequence}", "last"))
        take(store, 1, frame("host1", sequence, (gone, 1_000 - sequence), (stays, 1)))
    with store.read() as unit:
        found = unit.hits.first_rules("pop", HitOrder.PACKETS, limit=2).rules
    assert [(each.rule, each.hits.packets) for each in found] == [("r59", 941), ("last", 59)]


def test_history_falls_in_resolution_and_adds_up(store: Store, wall: FakeWall) -> None:
    cookies = scene(store)
    claim(store, "host1", 1)
    began = wall.now
    for sequence in range(1, 41):
        take(store, 1, frame("host1", sequence, (cookies["a"], sequence)))
        wall.move(minutes=4)
    every = {resolution: stretches(store, resolution, began) for resolution in Resolution}
    assert sum(every[Resolution.MINUTES].values()) == sum(every[Resolution.HOURS].values()) == sum(range(41))
    assert len(every[Resolution.MINUTES]) == 40
    assert len(every[Resolution.HOURS]) in {3, 4}
    assert len(every[Resolution.MOMENTS]) <= 5  # a quarter of an hour is kept
    assert packets(store)["a"] == sum(range(41))
    with store.read() as unit:
        recent = unit.hits.rates("pop", since=unit.now - dt.timedelta(minutes=9))
        assert recent.packets.tolist() == [40 + 39]
        older = unit.hits.rates("pop", since=began)
        assert older.packets.tolist() == [sum(range(41))]
        assert older.since <= began + dt.timedelta(minutes=1)


def stretches(store: Store, resolution: Resolution, since: dt.datetime) -> dict[dt.datetime, int]:
    with store.read() as unit:
        found = unit.hits.history("blue", resolution, since)
        return {each.start: each.counts["a"][0] for each in found}


def test_history_is_bounded_in_octets(open_another: Callable[..., Store], wall: FakeWall) -> None:
    limit = 40 * 30
    store = open_another(settings=StoreSettings(history=HistorySettings(limit_bytes=limit)))
    cookies = scene(store)
    claim(store, "host1", 1)
    for sequence in range(1, 200):
        take(store, 1, frame("host1", sequence, (cookies["a"], 1)))
        wall.move(seconds=45)
    with store.read() as unit:
        history = HitHistory(unit.transaction, "pop")
        kept = [history.stretches(each, 0) for each in Resolution]
        octets = sum(len(stretch.counts.to_bytes()) for stretches in kept for stretch in stretches)
        assert octets <= limit + 3 * 40  # what came since the last minute, and what is not folded yet
        assert unit.hits.rates("pop", since=wall.now - dt.timedelta(days=9)).since > wall.now - dt.timedelta(days=9)
    assert packets(store)["a"] == 199


def test_a_clock_that_is_set_back_adds_nothing_twice(
    store: Store, open_another: Callable[..., Store], wall: FakeWall
) -> None:
    cookies = scene(store)
    claim(store, "host1", 1)
    for sequence in range(1, 10):
        take(store, 1, frame("host1", sequence, (cookies["a"], 1)))
        wall.move(minutes=20)
    wall.move(days=-2)
    after = open_another()  # a process that starts now goes by the wall
    for sequence in range(10, 20):
        take(after, 1, frame("host1", sequence, (cookies["a"], 1)))
        wall.move(minutes=20)
        assert packets(after)["a"] == sequence
    with after.read() as unit:
        assert unit.hits.rates("pop").packets.tolist() == [19]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:40]])
def test_frames_that_are_cut_off_are_refused(damage: Callable[[bytes], bytes]) -> None:
    data = encode_frames([frame("host1", 1, (cookie(Kind.RULE, 1), 5), chunk=b"abc")], 7)
    with pytest.raises(BadInput):
        list(decode_frames(damage(data), 0))


ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 50)), max_size=6)


@settings(max_examples=examples(60))
@given(st.lists(ROWS, max_size=6))
def test_sums_of_counts_do_not_depend_on_order_or_grouping(parts: list[list[tuple[int, int]]]) -> None:
    several = [counts(*rows) for rows in parts]
    wanted = Counter[int]()
    for number, count in (row for rows in parts for row in rows):
        wanted[number] += count
    whole = join_counts(several)
    assert dict(zip(whole.cookie.tolist(), whole.packets.tolist(), strict=True)) == dict(wanted)
    assert join_counts([join_counts(several[:2]), join_counts(several[2:])]).to_bytes() == whole.to_bytes()
    assert counts_of(whole.to_bytes()).to_bytes() == whole.to_bytes()


def test_a_sum_that_is_full_stays_full() -> None:
    most = sum_rows(np.array([1, 1], np.uint64), *(np.array([MOST, 5], np.int64) for _ in range(4)))
    assert most.packets.tolist() == [MOST]
