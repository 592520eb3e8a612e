"""A change of operator's rules for people: in sentences, and as packets of every tenant."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.errors import TooLarge
from orchestrator.policy.describe import box_json
from orchestrator.policy.difference import Change, Fate, operator_difference
from orchestrator.policy.headline import Danger, Sentence, headline
from orchestrator.policy.model import Acl, ReturnTraffic

_DEFAULT = "_default"
"""How a difference names the default of a list as what decides."""


@dataclass(frozen=True, slots=True)
class OperatorChanges:
    """Packets that the operator's rules decide otherwise, whatever tenants' lists say.

    `permitted` and `denied` are decided by the operator from now on; `unpermitted` and `undenied` are left to the
    tenants' lists again, or are decided the other way. `stateless` and `tracked` have the same verdict of the operator,
    by stateless rules after the change, or before it. None: too different to tell.
    """

    permitted: tuple[Change, ...] | None
    denied: tuple[Change, ...] | None
    unpermitted: tuple[Change, ...] = ()
    undenied: tuple[Change, ...] = ()
    stateless: tuple[Change, ...] = ()
    tracked: tuple[Change, ...] = ()

    def says(self, kept: Collection[str]) -> tuple[Sentence, ...]:
        """Return the changes in sentences, worst first.

        `kept` are the rules that there are after the change.
        """
        if self.permitted is None or self.denied is None:
            return headline(None)
        changes = [_document(change, "permit") for change in self.permitted]
        ruled = [change for change in self.denied if any(name != _DEFAULT for name in change.before)]
        changes += [_document(change, "deny") for change in ruled]
        changes += [_document(change, "stateless") for change in self.stateless]
        changes += [_document(change, "tracked") for change in self.tracked]
        found = list(headline(changes, kept=kept)) if changes else []
        if len(ruled) < len(self.denied):
            found.append(Sentence("denies packets for every tenant, whatever their lists permit", Danger.SOME))
        for some, verb in ((self.unpermitted, "permitted"), (self.undenied, "denied")):
            if some:
                text = f"what was {verb} for every tenant is left to other rules and to the tenants' lists"
                found.append(Sentence(text, Danger.SOME))
        return tuple(found) or headline(())

    def parts(self) -> tuple[tuple[str, tuple[Change, ...]], ...]:
        """The sets of packets, each under its title."""
        return (
            ("Newly permitted for every tenant", self.permitted or ()),
            ("Newly denied for every tenant", self.denied or ()),
            ("No longer permitted for every tenant", self.unpermitted),
            ("No longer denied for every tenant", self.undenied),
            ("Decided without their connections for every tenant", self.stateless),
            ("Decided by their connections for every tenant", self.tracked),
        )


def compare_operator_rules(before: Acl, after: Acl, returns: ReturnTraffic) -> OperatorChanges:
    """Compare two versions of the operator's rules of a domain that lets `returns` back in."""
    try:
        found = operator_difference(before, after, returns)
    except TooLarge:
        return OperatorChanges(None, None)
    decided, left = found.decided, found.left
    return OperatorChanges(
        decided.permitted, decided.denied, left.denied, left.permitted, decided.stateless, decided.tracked
    )


def _document(change: Change, becomes: Fate) -> dict[str, object]:
    """A change as `headline` reads it."""
    return {
        "direction": change.direction.value,
        "becomes": becomes,
        "before": list(change.before),
        "after": list(change.after),
        "packets": box_json(change.box),
    }
