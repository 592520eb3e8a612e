"""`aclflow acl hits` and `unused`: what a tenant's rules decided, and which decided nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import Enum
from typing import Annotated

import typer

from orchestrator.cli.connection import service
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import TenantName, Url, taking
from orchestrator.cli.tables import Shown
from orchestrator.cli.terminal import remark, say
from orchestrator.wire.hits import RuleHits, TierWord, Unused

_END_NAMES = {
    "ingress_default": "(ingress default)",
    "egress_default": "(egress default)",
    "ingress_return": "(ingress return traffic)",
    "egress_return": "(egress return traffic)",
}
_AHEAD: Mapping[TierWord, str] = {"server": "at firewalls", "edge": "at the edge"}
"""The headings of packets that were counted on a tier ahead of the hosts."""
_DAY_S = 86400.0


class SortBy(Enum):
    """Orders of rules."""

    LIST = "list"
    RATE = "rate"
    PACKETS = "packets"
    BYTES = "bytes"
    LAST_HIT = "last_hit"


class TierName(Enum):
    """Where packets are counted."""

    HOST = "host"
    SERVER = "server"
    EDGE = "edge"


class In(Enum):
    """The length of a stretch of history."""

    MOMENTS = "moments"
    MINUTES = "minutes"
    HOURS = "hours"


OfTier = Annotated[TierName, typer.Option("--tier", help="Where they were counted.")]


@taking
def hits(
    tenant: TenantName,
    shown: Shown,
    history: Annotated[In | None, typer.Option("--history", help="How each rule fared, in such stretches.")] = None,
    hours: Annotated[float, typer.Option("--hours", min=0, help="How far the history goes back.")] = 1.0,
    tier: OfTier = TierName.HOST,
    url: Url = None,
) -> None:
    """Show how often each rule of a tenant decided, and how often none did.

    Where firewall servers, firewall VNFs or an edge stand ahead of the hosts, what they decided has columns of its own:
    what they permit is counted again by its host, what they deny is not. --sort takes list, rate and last_hit as well.
    """
    sort = SortBy.LIST
    if shown.sort in {each.value for each in SortBy}:
        shown, sort = replace(shown, sort=None), SortBy(shown.sort)
    with service(url) as client:
        if history is not None:
            since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
            _say_history(client.hits.read_history(tenant, history.value, since=since, tier=tier.value), shown)
            return
        found = client.hits.read(tenant, sort=sort.value, tier=tier.value)
    ends = (found.ingress_default, found.egress_default, found.ingress_return, found.egress_return)
    counted = (*found.rules, *ends)
    ahead = [tier for tier in _AHEAD if tier in found.ingress_default.ahead]
    shown.say(
        [hits_json(one) for one in counted],
        ("rule", "packets", *map(_AHEAD.__getitem__, ahead), "bytes", "packets/s", "last hit", "resets"),
        (
            (
                _END_NAMES.get(one.rule, one.rule),
                one.packets,
                *(one.ahead[tier] for tier in ahead),
                one.bytes,
                f"{one.packets_per_s:.1f}",
                _spell_time(one.last_hit),
                one.resets,
            )
            for one in counted
        ),
    )


@taking
def show_unused(
    tenant: TenantName,
    shown: Shown,
    days: Annotated[float, typer.Option("--days", min=0, help="For how long nothing met the rule.")] = 30.0,
    tier: OfTier = TierName.HOST,
    url: Url = None,
) -> None:
    """Show the rules of a tenant that nothing met, and for how long anybody looked.

    A rule that was not watched for so long is not called unused. Ends with 1 if there are unused rules.
    """
    with service(url) as client:
        found = client.hits.read_unused_rules(tenant, idle_s=days * _DAY_S, tier=tier.value)
    _say_unused(found, days, shown)
    if found.items:
        raise typer.Exit(ANSWER_IS_NO)


def _spell_time(last_hit: dt.datetime | None) -> str:
    """Spell the time of a rule's last hit to the second; none: never."""
    return last_hit.isoformat(timespec="seconds") if last_hit else "never"


def hits_json(one: RuleHits) -> dict[str, object]:
    """A rule's counts for programs; what is empty is left out."""
    return {name: value for name, value in asdict(one).items() if name not in ("tenant", "history", "ahead") or value}


def _say_history(rules: tuple[RuleHits, ...], shown: Shown) -> None:
    shown.say(
        [hits_json(one) for one in rules],
        ("rule", "from", "packets", "bytes"),
        (
            (one.rule, f"{each.start:%Y-%m-%d %H:%M:%S}", each.packets, each.bytes)
            for one in rules
            for each in one.history or ()
        ),
    )


def _say_unused(found: Unused, days: float, shown: Shown) -> None:
    if found.watched_since is None and shown.is_for_people:
        say("no host is counted yet: nothing can be said")
        return
    members = {name: value for name, value in asdict(found).items() if name != "items"}
    shown.say(
        members | {"unused": found.items},
        ("rule", "watched since", "days", "last hit", "resets"),
        (
            (one.rule, f"{one.watched_since:%Y-%m-%d %H:%M}", f"{one.watched_s / _DAY_S:.1f}",
             _spell_time(one.last_hit), one.resets)
            for one in found.items
        ),
    )  # fmt: skip
    if not shown.is_for_people:
        return
    say(f"of {found.rules} rules {found.never:.1%} were never met, {found.idle:.1%} not for {days:g} days")
    if found.too_young:
        remark(f"{found.too_young} rules are watched for less than {days:g} days, and so are not listed")
    for lapse in found.lapses:
        what = f"{lapse.entries} entries" if lapse.entries else "counting"
        remark(f"{lapse.at:%Y-%m-%d %H:%M:%S}: {what} {lapse.kind}, packets of {lapse.within_s:.1f} s may be missing")
