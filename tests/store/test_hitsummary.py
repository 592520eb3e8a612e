"""What a list decided in all: the sums of what its rules and its ends decided, whoever else counted in the domain."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store.conftest import FakeWall
from store.scenes import acl, populate, rule

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.errors import NotFound
from orchestrator.policy.model import Acl, Action, TenantId
from orchestrator.program.counts import NO_COUNTS, Counts, sum_rows
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.hits.history import HitHistory, Resolution
from orchestrator.store.hits.summary import _Columns
from orchestrator.store.records import AclRecord
from orchestrator.store.sql.keys import from_micros
from orchestrator.wire.hits import BusyRule

TENANT = 3
ENDS = (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN)
NUMBERS = st.lists(st.integers(1, 12), unique=True, max_size=6)
ACTIONS = st.sampled_from(Action)
COUNTED = st.dictionaries(
    st.builds(
        lambda tier, kind, number: Cookie(tier, kind, number).pack(),
        st.sampled_from([Tier.HOST, Tier.SERVER]),
        st.sampled_from([Kind.RULE, *ENDS]),
        st.integers(1, 14),
    ),
    st.integers(1, 1000),
    max_size=20,
)


def counts(packets: dict[int, int]) -> Counts:
    if not packets:
        return NO_COUNTS
    column = np.array([*packets.values()], np.int64)
    return sum_rows(np.array([*packets], np.uint64), column, column * 100, column * 0, column * 0 + 1)


@given(NUMBERS, st.data(), COUNTED)
def test_a_stretch_is_what_the_list_decided_of_it(
    numbers: list[int], data: st.DataObject, packets: dict[int, int]
) -> None:
    """Told by looking for what moved; asked here of every rule and end, one by one."""
    rules = [rule(f"r{number}", action=data.draw(ACTIONS)) for number in numbers]
    listed = Acl(tuple(rules), ingress_default=data.draw(ACTIONS), egress_default=data.draw(ACTIONS))
    known = {each.id: number for each, number in zip(rules, numbers, strict=True)}
    record = AclRecord(TenantId("blue"), 1, listed, known, "ann", from_micros(0))
    ends = dict(zip(ENDS, (listed.ingress_default, listed.egress_default, *[Action.PERMIT] * 2), strict=True))
    decided = {Cookie(Tier.HOST, Kind.RULE, known[each.id]).pack(): each.action for each in rules}
    decided |= {Cookie(Tier.HOST, kind, TENANT).pack(): action for kind, action in ends.items()}

    told = _Columns.of(record, TENANT, Tier.HOST).stretch(5, counts(packets))

    for action, number in ((Action.PERMIT, told.permitted), (Action.DENY, told.denied)):
        assert number == sum(packets.get(cookie, 0) for cookie, each in decided.items() if each is action)
    denies = [Cookie.unpack(cookie) for cookie, each in decided.items() if each is Action.DENY]
    assert told.denied_ahead == sum(
        packets.get(Cookie(Tier.SERVER, each.kind, each.number).pack(), 0) for each in denies if each is not None
    )
    assert told.start == from_micros(5)


def test_a_list_is_summed_up(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("b", action=Action.DENY), rule("c")), author="ann")
        numbers = unit.acls.current("blue").numbers
    a, b = (Cookie(Tier.HOST, Kind.RULE, numbers[name]).pack() for name in "ab")
    strange = Cookie(Tier.HOST, Kind.RULE, 999).pack()
    for packets in ({a: 5, strange: 7}, {a: 1, b: 4}, {strange: 1}):
        wall.now += dt.timedelta(seconds=1)
        with store.write() as unit:
            HitHistory(unit.transaction, "pop").append(counts(packets))
    with store.read() as unit:
        found = unit.hit_summaries.of(
            "blue", top=5, resolution=Resolution.MOMENTS, since=wall.now - dt.timedelta(hours=1)
        )
        with pytest.raises(NotFound):
            unit.hit_summaries.of("red", top=5, resolution=Resolution.MOMENTS, since=wall.now)
    assert (found.permitted, found.denied, found.rules, found.unused) == (6, 4, 3, 1)
    assert found.busiest == (BusyRule("a", 6), BusyRule("b", 4))
    assert [(each.permitted, each.denied) for each in found.history] == [(5, 0), (1, 4), (0, 0)]


def test_what_is_dropped_ahead_of_the_hosts_is_decided_too(store: Store, wall: FakeWall) -> None:
    """A permit counts once, on its host; a deny counts wherever it was; who met anything anywhere is not unused."""
    populate(store)
    with store.write() as unit:
        rules = rule("a"), rule("b", action=Action.DENY), rule("c"), rule("d", action=Action.DENY)
        unit.acls.replace("blue", acl(*rules), author="ann")
        numbers = unit.acls.current("blue").numbers

    def cookie(tier: Tier, name: str) -> int:
        return Cookie(tier, Kind.RULE, numbers[name]).pack()

    hosts = {cookie(Tier.HOST, "a"): 5, cookie(Tier.HOST, "b"): 1}
    servers = {cookie(Tier.SERVER, "a"): 6, cookie(Tier.SERVER, "b"): 4, cookie(Tier.SERVER, "c"): 2}
    edge = {cookie(Tier.EDGE, "b"): 90}
    wall.now += dt.timedelta(seconds=1)
    with store.write() as unit:
        HitHistory(unit.transaction, "pop").append(counts({**hosts, **servers, **edge}))
    with store.read() as unit:
        every, alone = (
            unit.hit_summaries.of("blue", top=5, resolution=Resolution.MOMENTS, since=wall.now, tier=tier)
            for tier in (Tier.HOST, Tier.SERVER)
        )
    assert (every.permitted, every.denied, every.denied_ahead, every.unused) == (5, 1, 4, 1)
    assert every.busiest == (BusyRule("a", 5), BusyRule("b", 5))
    assert [(each.permitted, each.denied, each.denied_ahead) for each in every.history] == [(5, 1, 4)]
    assert (alone.permitted, alone.denied, alone.denied_ahead, alone.unused) == (8, 4, 0, 1)
    assert alone.busiest == (BusyRule("a", 6), BusyRule("b", 4), BusyRule("c", 2))
