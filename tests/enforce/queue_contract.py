"""What differs for a classifier in user space: foreign hands reach the kernel's rule, not our process' rows."""

from __future__ import annotations

import pytest
from enforce.contract_filters import (
    POLICIES,
    Bench,
    FilterContract,
    assert_decides,
    assert_holds,
    bring,
    program,
)

from orchestrator.enforce import gap

MEDDLINGS = {
    "opens everything": "-F FORWARD\n-A FORWARD -j ACCEPT",
    "leads to another queue": "-F FORWARD\n-A FORWARD -j NFQUEUE --queue-num 77",
    "takes the rule away": "-F FORWARD",
    "opens the other IP version": "6 -F FORWARD\n-A FORWARD -j ACCEPT",
    "adds a bypass": "-F FORWARD\n-A FORWARD -j NFQUEUE --queue-balance {queues} --queue-bypass",
    "adds a rule behind": "-A FORWARD -j ACCEPT",
    "changes the policy": ":FORWARD ACCEPT [0:0]\n-F FORWARD",
}


class QueueContract(FilterContract):
    """The contract of packet filters, with other foreign hands."""

    test_a_foreign_change_is_seen_and_put_right = None  # type: ignore[assignment]

    @pytest.mark.parametrize("meddling", MEDDLINGS)
    def test_a_foreign_change_of_the_kernels_rule_is_seen_and_put_right(self, bench: Bench, meddling: str) -> None:
        wanted = program(bench, POLICIES["whole"])
        bring(bench, wanted)
        text = MEDDLINGS[meddling].format(queues="0:1")
        restore = "ip6tables-restore" if text.startswith("6 ") else "iptables-restore"
        bench.run((restore, "--noflush"), f"*filter\n{text.removeprefix('6 ')}\nCOMMIT\n")
        found = bench.driver.observe()
        assert gap.mismatch(found, bench.driver.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is not None
        bring(bench, wanted)
        assert_holds(bench, wanted)
        assert_decides(bench, POLICIES["whole"], bench.packets)
