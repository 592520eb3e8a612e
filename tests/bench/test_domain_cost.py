"""The measurement of a large domain compiles and proves what it says."""

from __future__ import annotations

from orchestrator.bench.control_plane import domain


def test_a_small_domain_is_compiled_and_proven() -> None:
    cost = domain.cost(3, 40)
    assert cost.flows > 3 * 40
    assert 0 < cost.policy_mib <= cost.peak_mib
    assert cost.compile_s > 0
    assert cost.prove_s > 0
