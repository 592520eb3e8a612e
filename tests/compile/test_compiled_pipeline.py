"""The compiled pipeline agrees with the oracle, packet by packet and rule by rule."""

from __future__ import annotations

from compiled_domain import check_policy
from hypothesis import HealthCheck, given, settings
from law_examples import examples
from strategies import policies

from orchestrator.policy.model import Policy


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=5))
def test_switches_do_what_the_oracle_decides(policy: Policy) -> None:
    check_policy(policy)
