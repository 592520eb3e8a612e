"""The paper's worst case: only the last rule permits the generators' packets."""

from __future__ import annotations

from functools import cache

from orchestrator.bench.traffic.addresses import SERVER, alone
from orchestrator.bench.traffic.filters import Filter, text_of
from orchestrator.bench.traffic.rules import NO_RULES, Listed
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Acl, Action, Rule, RuleId

_FEWEST = 20
"""A list has room for the rules of its traffic, which are not taken."""


def worst_case(rules: int) -> Acl:
    """Make `rules` rules of which only the last permits the server; none: everything passes.

    Of twice as many, drawn from a fixed seed, those are taken that do not speak of the server.
    """
    if not rules:
        return NO_RULES
    drawn = (rule for rule in Listed(2 * rules + _FEWEST).acl().rules if not _is_of_server(rule))
    last = Rule(RuleId("last"), Action.PERMIT, destination=Addresses((SERVER,)))
    return Acl((*(rule for rule, _ in zip(drawn, range(rules - 1), strict=False)), last))


@cache
def filter_text(rules: int, kind: Filter = Filter.IPTABLES_LEGACY) -> str:
    """Return the list as a stateless filter's text.

    One line a rule as `iptables-restore` has it, look-ups for `nft`.
    """
    return text_of(kind, alone(worst_case(rules)))


def _is_of_server(rule: Rule) -> bool:
    return any(each.overlaps(SERVER) for each in rule.destination.prefixes)
