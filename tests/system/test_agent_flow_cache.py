"""`aclflow agent --flow-cache`: from a pinned rule at the service to packets that the filter never sees."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled_cache import first
from compiled_filter import carried
from enforce.contract_filters import corner_packets
from system.test_agent import LESS, WHOLE, Vnf, eventually, wrong

from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, Router
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Policy
from orchestrator.policy.oracle import decide


@pytest.fixture
def vnf(layout: Layout, tmp_path: Path) -> Iterator[Vnf]:
    with Router(layout.prefix) as router:
        vnf = Vnf(router, tmp_path, "nftables")
        try:
            vnf.inside(vnf.service.start)
            yield vnf
        finally:
            vnf.close()


def held(vnf: Vnf) -> tuple[CacheRow, ...]:
    """What the cache holds."""
    found = vnf.inside(KernelCache((LEFT, RIGHT)).read)
    return found.rows if found is not None else ()


def decides_rightly(rows: tuple[CacheRow, ...], policy: Policy) -> None:
    """Numbers of rules are the service's own, so that only verdicts can be compared."""
    decided = [(packet, row) for packet in filter(carried, policy_packets(policy)) if (row := first(rows, packet))]
    for packet, row in decided:
        if row.verdict is not Verdict.DEFER:
            assert (row.verdict is Verdict.PERMIT) == decide(policy, packet).permitted, packet


def test_a_pinned_rule_is_decided_before_the_filter(vnf: Vnf) -> None:
    packets = [each for each, came in zip(corner_packets(), vnf.router.fire(corner_packets()), strict=True) if came]
    vnf.start_agent(vnf.onboard(), "--flow-cache")
    vnf.enforced(vnf.ask(lambda client: client.domains.read("pop1").generation))
    assert held(vnf) == ()
    vnf.ask(lambda client: client.placement.set_wish("pop1", WHOLE.tenants[0].id, "web", "pinned"))
    eventually(lambda: held(vnf) != (), vnf)
    decides_rightly(held(vnf), WHOLE)
    assert wrong(vnf, WHOLE, packets) == []
    assert vnf.inside(KernelCache((LEFT, RIGHT)).read_counters).packets.sum() > 0
    vnf.enforced(vnf.ask(lambda client: vnf.put(client, LESS)))
    assert wrong(vnf, LESS, packets) == []
    decides_rightly(held(vnf), LESS)
    vnf.end_agent(signal.SIGKILL)
    vnf.start_agent()  # as it is started where no cache is wanted any more
    eventually(lambda: held(vnf) == (), vnf)
    assert wrong(vnf, LESS, packets) == []
