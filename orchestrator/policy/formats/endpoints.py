"""A list as one endpoint sees it, for systems that attach lists to single machines.

A security group is attached to a port, so the near side is the port itself and only the far side is named:

    the list                                     at web1, 198.51.100.10
    permit tcp any -> 198.51.100.10 443          permit tcp any -> any 443
    permit tcp office -> 198.51.100.20 22        left out: no packet of web1's

Of every packet to or from the endpoint's addresses the list of the endpoint says the same. A rule that names some of an
endpoint's addresses and not others keeps them, which a format may be unable to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.policy import spans
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, everything
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import Exported, TakenFrom
from orchestrator.policy.model import Acl, Direction, Rule, families, members, spans_of
from orchestrator.policy.protocols import only_family


def list_of_endpoint(acl: Acl, prefixes: tuple[Prefix, ...]) -> Acl:
    """Return a list's rules for an endpoint, without its own addresses where all match."""
    rules = [found for rule in acl.rules if (found := _at_endpoint(rule, acl, prefixes)) is not None]
    named = {name for rule in rules for side in (rule.source, rule.destination) for name in side.groups}
    return replace(acl, rules=tuple(rules), groups={name: acl.groups[name] for name in acl.groups if name in named})


def _at_endpoint(rule: Rule, acl: Acl, prefixes: tuple[Prefix, ...]) -> Rule | None:
    """The rule for packets of these addresses; None where it holds for none of them."""
    near = rule.own_side()
    holds_for: list[Family] = []
    for family in families(rule, acl.groups):
        own = spans_of(prefixes, family)
        if not own or only_family(rule.protocol) not in (None, family):
            continue
        named = members(near, acl.groups, family) if not near.is_any else own
        shared = spans.intersect(named, own)
        if shared and shared != own:
            return rule
        if shared:
            holds_for.append(family)
    if not holds_for:
        return None
    has = [family for family in Family if spans_of(prefixes, family)]
    if holds_for == has or near.is_any:
        return _set_sides(rule, ANY, _find_far_side(rule))
    far = Addresses(tuple(_select_families(_find_far_side(rule), acl, holds_for)))
    return _set_sides(rule, ANY, far)


def _select_families(addresses: Addresses, acl: Acl, wanted: Iterable[Family]) -> Iterable[Prefix]:
    for family in wanted:
        yield from (everything(family),) if addresses.is_any else acl.prefixes(addresses, family)


def _set_sides(rule: Rule, near: Addresses, far: Addresses) -> Rule:
    if rule.direction is Direction.INGRESS:
        return replace(rule, source=far, destination=near)
    return replace(rule, source=near, destination=far)


def write_at_endpoints(
    acl: Acl, form: str, endpoints: Mapping[str, tuple[Prefix, ...]], taken_from: TakenFrom | None = None
) -> Mapping[str, Exported]:
    """Write each endpoint's list, by name; rules are numbered as in the whole.

    Raises BadInput.
    """
    numbers = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    lists = {name: list_of_endpoint(acl, prefixes) for name, prefixes in endpoints.items()}
    return {
        name: write(each, form, taken_from).with_numbers([numbers[rule.id] for rule in each.rules])
        for name, each in lists.items()
    }


def _find_far_side(rule: Rule) -> Addresses:
    return rule.source if rule.direction is Direction.INGRESS else rule.destination
