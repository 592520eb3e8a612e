"""The queue part of the suite `classifier`: hping3 and the mix through a real kernel's queues, with few of each."""

from __future__ import annotations

import pytest

from orchestrator.bench.classifier import queue
from orchestrator.bench.results import Results

pytestmark = pytest.mark.system


def test_illegal_traffic_is_forwarded_at_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of RFC 2647 and RFC 3511 stand in the notes: latency, what was offered and forwarded, illegal traffic."""
    monkeypatch.setattr(queue, "RULES", 40)
    monkeypatch.setattr(queue, "_PROBES", 10)
    monkeypatch.setattr(queue, "_MIX", 12)
    monkeypatch.setattr(queue, "_FLOOD_S", 0.05)
    results = Results("classifier", {})
    queue.measure(results, quick=True, progress=lambda text, **_: None)
    assert {"iptables_added_us_p50", *queue.NAMES} <= set(results.figures), results.absent
    assert results.figures["queue_illegal_forwarded"].median == 0
    assert results.figures["queue_hping3_kpps"].median > 0
    notes = "\n".join(results.notes)
    assert "latency (RFC 2647) without a filter" in notes
    assert "hping3 --flood -S through queue: offered" in notes
