"""Replay in the suite classifier: a capture is timed only if every line of the list decides what was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bench.classifier.replay import (
    Written,
    check,
    mixed_list,
    sample_flows,
    write_each_a_flow,
    write_flows,
)
from orchestrator.classify.listdecider import Deciding
from orchestrator.classify.packets import Packets
from orchestrator.errors import Drifted
from orchestrator.policy.addresses import Family

PACKETS = 5_000
ACL = mixed_list(200)
DECIDING = Deciding(ACL)
FLOWS = sample_flows(ACL, 300)


def test_packets_are_of_both_ip_versions_and_of_many_rules() -> None:
    assert len(FLOWS) == 300
    assert (FLOWS["family"] == Family.IPV6.value).sum() == 100
    assert len(set(DECIDING.verdicts(FLOWS).decider.tolist())) > 50


@pytest.mark.parametrize("write", [write_flows, write_each_a_flow])
def test_the_answer_is_held_to_what_was_written(
    write: Callable[[Path, Deciding, Packets, int], Written], tmp_path: Path
) -> None:
    written = write(tmp_path / "day.pcap", DECIDING, FLOWS, PACKETS)
    assert sum(written.by_line) == PACKETS
    check(DECIDING, written, 2)
    one = next(number for number, count in enumerate(written.by_line) if count)
    moved = [*written.by_line]
    moved[one], moved[one - 1] = moved[one] - 1, moved[one - 1] + 1
    with pytest.raises(Drifted, match="other packets than were written"):
        check(DECIDING, replace(written, by_line=tuple(moved)), 2)
