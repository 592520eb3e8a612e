"""Access lists: their versions, and what is told of them without changing them."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import author_in_words, describe, document
from orchestrator.wire.costs import WrittenList

FindingKind = Literal[
    "never", "duplicate", "shadowed", "redundant", "conflict", "wide", "expired", "group", "undecided"
]
WayWord = Literal["ingress", "egress"]
SeverityWord = Literal["note", "warning", "error"]


@document()
class EditedRules:
    """The rules that a version edited in one way."""

    count: int
    names: tuple[str, ...] = describe("the first of them; none where a version edited very many")

    def text(self) -> str:
        """Return them in words: ``'web', 'dns' and 3 more rules``."""
        if not self.names:
            return f"{self.count:,} rule{'' if self.count == 1 else 's'}"
        named = ", ".join(f"'{name}'" for name in self.names)
        more = self.count - len(self.names)
        return named if not more else f"{named} and {more:,} more rule{'' if more == 1 else 's'}"


@document(kw_only=True)
class VersionChanges:
    """A version's edits beside the version before it."""

    added: EditedRules
    removed: EditedRules
    changed: EditedRules
    moved: EditedRules
    groups: tuple[str, ...] = describe("address groups that are new, other or gone")
    defaults: tuple[WayWord, ...] = describe("directions with another default action")

    def text(self) -> str:
        """Return it in words: ``adds 'web'; changes 'dns'; deletes 12 rules``."""
        parts = [
            f"{verb} {rules.text()}"
            for verb, rules in (
                ("adds", self.added), ("changes", self.changed), ("moves", self.moved), ("deletes", self.removed)
            )
            if rules.count
        ]  # fmt: skip
        if self.groups:
            parts.append(f"changes {', '.join('@' + name for name in self.groups)}")
        parts += [f"changes the {way} default" for way in self.defaults]
        return "; ".join(parts) or "changes nothing"


@document(kw_only=True)
class AclVersion:
    """A line of a list's history."""

    version: int
    author: str
    author_name: str = describe("how its author was called then: what the token was described as")
    created: dt.datetime
    rules: int
    comment: str = describe("what its author says about it")
    changes: VersionChanges | None = describe("null for the oldest version that is known")

    def by(self) -> str:
        """Return its author in words: ``Ann (member 3)``."""
        return author_in_words(self.author, self.author_name)


@document()
class PeerTraffic:
    """Recorded packets to or from one address that is not the tenant's."""

    peer: str
    packets: int
    octets: int


@document(kw_only=True)
class ChangedTraffic:
    """Recorded packets that a line of a draft decides otherwise than the list.

    A line of the list decided them before.
    """

    direction: WayWord
    becomes: Literal["permit", "deny"]
    rule: str | None = describe("the draft's line; null for its default")
    rule_before: str | None = describe("the list's line; null for its default")
    packets: int
    octets: int
    peers_in_all: int
    peers: tuple[PeerTraffic, ...] = describe("those with the most packets")


@document(kw_only=True)
class DraftTraffic:
    """Packets of a tenant's recorded traffic that a draft would newly permit or refuse.

    Records are a sample: packets that rules with `log` decided, within the tenant's measure.
    """

    packets: int = describe("so many recorded packets were put to both lists")
    since: dt.datetime | None = describe("when the oldest of them was seen; null where there is none")
    newly_permitted: int
    newly_denied: int
    changes: tuple[ChangedTraffic, ...] = describe("by rule, those with the most packets")


@document()
class Unconfirmed:
    """A change of a list that is reverted unless it is confirmed in time."""

    version: int
    back_to: int = describe("the version that comes back")
    until: dt.datetime


@document(kw_only=True)
class Waiver:
    """A finding that somebody took responsibility for, until a day."""

    id: int
    kind: FindingKind
    rules: tuple[str, ...] = describe("the rule that the finding is said of; both rules of a conflict")
    group: str | None = describe("the address group, where one is meant")
    author: str
    reason: str
    created: dt.datetime
    ends: dt.datetime = describe("from then on the finding counts again")
    author_name: str = describe("how its author was called then: what the token was described as", default="")

    def by(self) -> str:
        """Return its author in words: ``Ann (member 3)``."""
        return author_in_words(self.author, self.author_name)


@document(kw_only=True)
class AddedWaiver(Waiver):
    """A waiver just added, and the one that it takes the place of."""

    replaced: Waiver | None = describe("the older waiver of the same finding, which is gone", default=None)


@document(kw_only=True)
class Restored(WrittenList):
    """Outcome of taking a version back."""

    left_out: tuple[str, ...] = describe("rules of that version whose time is over", default=())
