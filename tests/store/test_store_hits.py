"""Counters: what devices report becomes sums that belong to rules and never go down."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.conftest import FakeWall
from store.scenes import acl, populate, rule

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.errors import BadInput, NotFound
from orchestrator.policy.model import Action, Rule, RuleId
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.hits import grown
from orchestrator.store.records import HostCounters, HostRecord, RuleHits, TenantHits

UNKNOWN = (1 << 64) - 1


def counters(*rows: tuple[int, int, int, int]) -> HostCounters:
    """Rows of cookie, packets, bytes, idle seconds."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    return HostCounters(
        *(np.array(column, dtype=np.uint64) for column in columns[:3]), np.array(columns[3], dtype=np.uint32)
    )


def cookie(kind: Kind, number: int, tier: Tier = Tier.HOST) -> int:
    return Cookie(tier, kind, number).pack()


def scene(store: Store) -> tuple[dict[str, int], int]:
    """Two hosts and a list of rules a and b; their cookies, and the tenant's number."""
    populate(store)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
        unit.domains.add_host("pop", HostRecord("host2", 2, "eth0"))
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
        numbers = unit.acls.current("blue").numbers
        return {name: cookie(Kind.RULE, numbers[name]) for name in numbers}, unit.tenants.get("blue").number


def report(store: Store, host: str, *rows: tuple[int, int, int, int]) -> TenantHits:
    with store.write() as unit:
        unit.hits.record("pop", host, counters(*rows))
        return unit.hits.totals("blue")


def test_sums_grow_over_hosts_reports_and_resets(store: Store, wall: FakeWall) -> None:
    cookies, _ = scene(store)
    a = cookies["a"]
    first = report(store, "host1", (a, 10, 1000, 60), (cookies["b"], 0, 0, 99)).rules
    assert (first["a"].packets, first["a"].bytes, first["a"].resets) == (10, 1000, 0)
    assert first["b"] == RuleHits()
    assert first["a"].last_hit is not None
    assert abs(first["a"].last_hit - (wall.now - dt.timedelta(seconds=60))) < dt.timedelta(seconds=20)
    assert report(store, "host1", (a, 10, 1000, 61)).rules["a"] == first["a"]  # the same report again
    assert report(store, "host2", (a, 5, 500, 3600)).rules["a"].packets == 15
    after_reset = report(store, "host1", (a, 4, 400, 0)).rules["a"]
    assert (after_reset.packets, after_reset.bytes, after_reset.resets) == (19, 1900, 1)
    at_zero = report(store, "host1", (a, 0, 0, 0)).rules["a"]
    assert (at_zero.packets, at_zero.resets) == (19, 2)
    assert report(store, "host1", (a, 1, 64, 0)).rules["a"].packets == 20


def test_the_last_hit_never_goes_back(store: Store, wall: FakeWall) -> None:
    cookies, _ = scene(store)
    newest = report(store, "host1", (cookies["a"], 1, 64, 5)).rules["a"].last_hit
    assert report(store, "host2", (cookies["a"], 1, 64, 500)).rules["a"].last_hit == newest
    wall.move(hours=-3)
    assert newest is not None
    for host, packets, idle_s in (("host1", 2, 4), ("host2", 2, 0)):
        later = report(store, host, (cookies["a"], packets, 128, idle_s)).rules["a"].last_hit
        assert later is not None
        assert later > newest
        newest = later


def test_defaults_and_return_rules_have_their_own_sums(store: Store) -> None:
    _, number = scene(store)
    kinds = (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN)
    rows = [(cookie(kind, number), index, index * 64, 0) for index, kind in enumerate(kinds, start=1)]
    found = report(store, "host1", *rows)
    sums = (found.ingress_default, found.egress_default, found.ingress_return, found.egress_return)
    assert [one.packets for one in sums] == [1, 2, 3, 4]


def test_operator_rules_are_counted(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
        unit.domains.set_operator_rules("pop", [Rule(RuleId("dns"), Action.PERMIT), Rule(RuleId("x"), Action.DENY)])
        number = unit.domains.operator_rules("pop").numbers["dns"]
        unit.hits.record("pop", "host1", counters((cookie(Kind.OPERATOR_RULE, number), 7, 70, 0)))
        found = unit.hits.operator_totals("pop")
    assert (found["dns"].packets, found["x"].packets) == (7, 0)


def test_what_is_not_the_tenants_is_passed_over(store: Store) -> None:
    cookies, _ = scene(store)
    rows = [
        (0, 1, 1, 0),
        (cookies["a"] & ((1 << 56) - 1), 5, 5, 0),
        (cookies["a"], UNKNOWN, UNKNOWN, 0),
        (cookies["b"], UNKNOWN, 64, 0),
        (cookie(Kind.RULE, 1, Tier.EDGE), 9, 9, 0),
        (cookie(Kind.STAMP, 1), 9, 9, 0),
    ]
    found = report(store, "host1", *rows)
    assert found.rules["a"] == found.rules["b"] == RuleHits()
    assert report(store, "host1").rules["a"] == RuleHits()
    with store.write() as unit:
        with pytest.raises(NotFound):
            unit.hits.record("pop", "host9", counters())
        with pytest.raises(NotFound):
            unit.hits.totals("red")
    with pytest.raises(BadInput):
        HostCounters(np.zeros(2, np.uint64), np.zeros(1, np.uint64), np.zeros(2, np.uint64), np.zeros(2, np.uint32))


def test_a_rule_that_comes_back_counts_from_zero(store: Store) -> None:
    cookies, _ = scene(store)
    report(store, "host1", (cookies["a"], 10, 10, 0))
    with store.write() as unit:
        unit.acls.delete_rule("blue", "a", author="ann")
        unit.acls.put_rule("blue", rule("a"), author="ann")
        assert unit.hits.totals("blue").rules["a"] == RuleHits()


def test_counters_go_with_their_tenant(store: Store) -> None:
    cookies, number = scene(store)
    with store.write() as unit:
        unit.tenants.create("red", name="Red", domain="pop")
        unit.acls.put_rule("red", Rule(RuleId("keep"), Action.PERMIT), author="ann")
        kept = cookie(Kind.RULE, unit.acls.current("red").numbers["keep"])
    report(store, "host1", (cookies["a"], 1, 1, 0), (cookie(Kind.INGRESS_DEFAULT, number), 1, 1, 0), (kept, 3, 3, 0))
    with store.write() as unit:
        unit.tenants.delete("blue")
        assert unit.hits.totals("red").rules["keep"].packets == 3
    with store.engine.connect() as connection:
        for table in ("hits", "hit_baselines"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 1


def test_many_counters_at_once(store: Store) -> None:
    populate(store)
    rules = acl(*(rule(f"r{index}") for index in range(2000)))
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
        unit.acls.replace("blue", rules, author="ann")
        numbers = unit.acls.current("blue").numbers
    for factor in (1, 2, 2):
        report(
            store, "host1", *((cookie(Kind.RULE, number), number * factor, number, 0) for number in numbers.values())
        )
    with store.read() as unit:
        found = unit.hits.totals("blue").rules
    assert {name: hits.packets for name, hits in found.items()} == {
        name: 2 * number for name, number in numbers.items()
    }


steps = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(0, 3), st.integers(0, 1000)),
        st.tuples(st.just("reset"), st.integers(0, 3), st.integers(0, 5)),
        st.tuples(st.just("report"), st.integers(0, 3), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(steps=steps)
def test_sums_are_all_that_was_seen(steps: list[tuple[str, int, int]]) -> None:
    """A device counts and resets; the sums must be what every report showed for the first time, never less."""
    device = dict.fromkeys(range(4), 0)
    shown = dict(device)  # the counter at the last report
    expected, sums = dict(device), dict(device)
    baseline: dict[int, int] = {}
    for kind, which, amount in [*steps, ("report", 0, 0)]:
        if kind == "grow":
            device[which] += amount
        elif kind == "reset":
            device[which] = amount
        else:
            for one, count in device.items():
                expected[one] += count - shown[one] if count >= shown[one] else count
            shown = dict(device)
            before = np.array([(one, count, count) for one, count in sorted(baseline.items())], np.int64).reshape(-1, 3)
            rows = counters(*((cookie(Kind.RULE, one), count, count, 0) for one, count in reversed(device.items())))
            growth = grown(rows, before, now=1_000_000_000)
            for one, count, more, octets in zip(
                growth.cookie, growth.packets, growth.more_packets, growth.more_bytes, strict=True
            ):
                baseline[int(one)] = int(count)
                sums[int(one) & 0xFF] += int(more)
                assert more == octets >= 0
    assert sums == expected


def test_a_cookie_reported_twice_is_summed() -> None:
    one = cookie(Kind.RULE, 5)
    growth = grown(counters((one, 3, 30, 9), (one, 4, 40, 2)), np.zeros((0, 3), np.int64), now=10_000_000)
    assert growth.packets.tolist() == [7]
    assert growth.more_bytes.tolist() == [70]
    assert growth.last_hit.tolist() == [8_000_000]
