"""A classifier in user space lets through so many messages about path MTU a second, for each tenant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from enforce.contract_filters import bring, by_cookie, policy, program
from enforce.test_queue_fake_contract import QueueBench

from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.filterlists import Stage
from orchestrator.compile.filters.queuerows import QueueRow
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.queue.lists import Buckets, Lists
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Packet, ReturnTraffic
from orchestrator.policy.protocols import ICMP, TCP
from orchestrator.policy.space import Box
from orchestrator.program.program import Tier

LIMITED = replace(policy(bank=()), return_traffic=ReturnTraffic.PATH_MTU, path_mtu_rate=5)
OUTSIDE = Prefix.parse("192.0.2.9").network
SHOP, BANK = (Prefix.parse(text).network for text in ("198.51.100.10", "203.0.113.10"))
MANY = 20 * LIMITED.path_mtu_rate


def message(target: int) -> Packet:
    return Packet(Family.IPV4, OUTSIDE, target, ICMP, icmp_type=3, icmp_code=4)


@pytest.fixture
def bench() -> Iterator[QueueBench]:
    found = QueueBench()
    try:
        bring(found, program(found, LIMITED))
        yield found
    finally:
        found.driver.stop()


def test_a_flood_at_one_tenant_takes_nothing_from_another(bench: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.tool.engine, "buckets", Buckets(lambda: 0.0))
    web = Packet(Family.IPV4, OUTSIDE, SHOP, TCP, 40_000, 80)
    came = bench.machine.forward([message(SHOP)] * MANY)
    assert sum(came) == LIMITED.path_mtu_rate
    assert bench.machine.forward([message(BANK), web]) == [True, True]
    assert not any(bench.machine.forward([message(SHOP)] * 3))


def test_what_is_too_much_is_counted_like_the_rest(bench: QueueBench) -> None:
    bench.machine.forward([message(SHOP)] * MANY)
    assert by_cookie(bench.driver.hits()) == {Cookie(Tier.SERVER, Kind.INGRESS_RETURN, 1).pack(): MANY}


def test_a_program_without_the_setting_limits_nothing(bench: QueueBench) -> None:
    bring(bench, program(bench, policy(), 8))
    assert not bench.tool.engine.lists.limits
    bring(bench, program(bench, LIMITED, 9))
    assert len(bench.tool.engine.lists.limits) == 3


def packets_of(*some: Packet) -> Packets:
    return np.array([record(packet) for packet in some], PACKET)


def test_a_bucket_fills_with_time_and_holds_both_ip_versions() -> None:
    now = [0.0]
    buckets = Buckets(lambda: now[0])
    rows = {
        number: QueueRow(Stage.INGRESS, 1, 0, True, Box(family), "ingress-return 1", limit=4)
        for number, family in enumerate(Family)
    }
    lists = Lists.empty().exchange_rows({}, rows, len(rows), Stamp(1, bytes(16)))
    six = Packet(Family.IPV6, 1, 2, TCP)
    mixed = packets_of(*[message(SHOP), six] * 5)
    for after_s, wanted in ((0.0, 4), (0.0, 0), (0.5, 2), (60.0, 4)):
        now[0] += after_s
        assert np.count_nonzero(lists.limit(lists.judge(mixed), buckets).permitted) == wanted
