"""Views of a list with stateless rules, where connections are tracked.

An end asks its list about the packet itself and, where no stateless rule decides, about the packets that may have
opened its connection. So a list says two things, and each is a list without marks:

    rule of the list                    `view_of_connections`                 `view_of_alone(PERMIT)`, `(DENY)`
    permit                              permit                                -, -
    deny                                deny                                  -, -
    permit, stateless                   deny: it opens no connection          permit, -
    deny, stateless                     deny                                  -, permit
    the default                         as it is                              -, -

The views of what is decided alone permit the packets that stateless rules permit, or deny, and no others: there a dash
is a deny. A packet that opens a connection is asked about as SYN alone, whole, and without ports of SCTP
(`connections.opening`): the view of connections has the denies that such packets meet, and every plane that tracks
connections can carry it out.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.policy.connections import SYN
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, trusted_acl
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import SCTP


def is_mixed(policy: Policy) -> bool:
    """Return whether some rules of a policy decide by connections, and some alone."""
    if policy.return_traffic is not ReturnTraffic.TRACKED:
        return False
    return any(rule.stateless for rule in policy.operator) or any(each.acl.has_stateless for each in policy.tenants)


def view_of_connections(acl: Acl) -> Acl:
    """Return a list as it decides about packets that open connections; itself without stateless rules."""
    return _replace_rules(acl, tuple(view_rules(acl.rules))) if acl.has_stateless else acl


def view_rules(rules: tuple[Rule, ...]) -> list[Rule]:
    """Return the rules of `view_of_connections`."""
    return [found for rule in rules if (found := _asked_of_opening(rule)) is not None]


def view_of_tracking(acl: Acl) -> Acl:
    """Return the view of connections without protocol 0, of which planes know no connection."""
    return _replace_rules(acl, view_of_operator(acl.rules)) if acl.has_stateless else acl


def view_of_operator(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the operator's rules as connections ask them, without protocol 0."""
    return tuple(rule for rule in view_rules(rules) if rule.protocol != 0)


def view_of_alone(acl: Acl, action: Action) -> Acl:
    """Return a list that permits just the packets which stateless rules alone decide so."""
    rules = tuple(
        replace(
            rule, action=Action.PERMIT if rule.stateless and rule.action is action else Action.DENY, stateless=False
        )
        for rule in acl.rules
    )
    return trusted_acl(rules, acl.groups, Action.DENY, Action.DENY)


def _replace_rules(acl: Acl, rules: tuple[Rule, ...]) -> Acl:
    return trusted_acl(rules, acl.groups, acl.ingress_default, acl.egress_default)


def _asked_of_opening(rule: Rule) -> Rule | None:
    """Return a rule as it decides about opening packets; None where it matches none."""
    if not rule.stateless:
        return rule
    if rule.fragments or (rule.flag_matches and not any(each.holds(SYN) for each in rule.flag_matches)):
        return None
    found = replace(rule, action=Action.DENY, stateless=False, established=False, tcp_flags=None)
    if rule.protocol != SCTP:
        return found
    at_zero = all(ports[0].low == 0 for ports in (rule.source_ports, rule.destination_ports))
    return replace(found, source_ports=EVERY_PORT, destination_ports=EVERY_PORT) if at_zero else None
