"""nftables against the real thing: what is written loads, and the kernel decides as the list and the reader say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from formats.iptables_texts import packets_at, some_corners
from formats.kernel_verdicts import Kernel
from formats.nftables_stories import EXACT, LOSSY
from formats.nftables_texts import rulesets
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask

pytestmark = pytest.mark.system

BUDGET = examples(300, fixed=40)
slow = settings(max_examples=BUDGET, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as found:
        yield found


def may_leave(acl: Acl, packet: Packet) -> bool:
    return ask(acl, packet, Direction.EGRESS, ReturnTraffic.EXPLICIT).action is Action.PERMIT


@slow
@given(acls(min_rules=1, max_rules=8))
def test_the_kernel_decides_as_the_list_does(kernel: Kernel, acl: Acl) -> None:
    exported = write(acl, "nftables")
    listed = kernel.load(exported.text)
    assert listed is not None, exported.text
    packets = some_corners(acl)
    verdicts = kernel.verdicts(packets)
    sent = [(packet, passed) for packet, passed in zip(packets, verdicts, strict=True) if passed is not None]
    event(f"some sent: {bool(sent)}")
    for packet, passed in sent:
        ours = may_leave(acl, packet)
        assert passed == ours if exported.exact else passed <= ours, packet
    assert read(listed, "nftables").acl == read(exported.text, "nftables").acl


@slow
@given(rulesets(with_unseen=True), st.integers(0, 1 << 32))
def test_nothing_is_read_that_the_kernel_would_drop(kernel: Kernel, text: str, seed: int) -> None:
    """Random rulesets at the hook output; they are read from the text and from what nft lists of it.

    Not of later fragments: without a guard the kernel compares whatever bytes they have (see `nftables/matches`).
    """
    moved = text.replace('"hook": "forward"', '"hook": "output"')
    listed = kernel.load(moved)
    event(f"loaded: {listed is not None}")
    assume(listed is not None)
    for form in (moved, listed):
        imported = read(
            form, "nftables", options=Options(chains=("forward=egress", "later=egress")[: 1 + ("later" in form)])
        )
        packets = [packet for family in Family for packet in packets_at(imported, family, seed, least=20)]
        for packet, passed in zip(packets, kernel.verdicts(packets), strict=True):
            if passed is None or packet.later_fragment:
                continue
            ours = may_leave(imported.acl, packet)
            assert ours == passed if imported.exact else ours <= passed, packet


@pytest.mark.parametrize("name", [*EXACT, *LOSSY])
def test_the_kernel_passes_what_is_read_of_a_ruleset_in_words(kernel: Kernel, name: str) -> None:
    listed = kernel.load(EXACT.get(name) or LOSSY[name])
    assert listed is not None
    imported = read(listed, "nftables")
    assert imported.exact is (name in EXACT), imported.losses
    for family in Family:
        packets = [packet for packet in packets_at(imported, family, 1) if not packet.later_fragment]
        for packet, passed in zip(packets, kernel.verdicts(packets), strict=True):
            if passed is not None:
                ours = may_leave(imported.acl, packet)
                assert ours == passed if imported.exact else ours <= passed, packet


def test_most_packets_are_sent(kernel: Kernel) -> None:
    """The laws above are about packets that the kernel was given."""
    packets = packets_at(read(write(Acl(), "nftables").text, "nftables"), Family.IPV4, 1)
    packets += packets_at(read(write(Acl(), "nftables").text, "nftables"), Family.IPV6, 1)
    assert kernel.load(write(Acl(egress_default=Action.DENY), "nftables").text) is not None
    verdicts = kernel.verdicts(packets)
    assert verdicts.count(False) > len(packets) * 0.7
    assert True not in verdicts
