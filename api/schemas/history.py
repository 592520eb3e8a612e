"""Older versions of access lists, compared and taken back."""

from __future__ import annotations

from api.schemas.acl import ActionWord, DirectionWord
from api.schemas.common import Outgoing
from api.schemas.inspection import ChangeBody, PacketBody
from orchestrator.policy.history import Asked, Bisected, Blame, Verdict
from orchestrator.policy.model import Direction, ReturnTraffic


class DifferenceBody(Outgoing):
    """The packets whose fate differs between two versions of a list."""

    before: int
    after: int
    changes: list[ChangeBody]


class AskedBody(PacketBody):
    """A packet, and in which direction it meets the list."""

    direction: DirectionWord = "ingress"

    def to_question(self, returns: ReturnTraffic) -> Asked:
        """Return the packet and the direction asked about. Raises BadInput."""
        return Asked(self.packet(), Direction(self.direction), returns)


class VerdictBody(Outgoing):
    """The verdict of a version of the list on a packet.

    `rule` is null where the default decides.
    """

    version: int
    action: ActionWord
    rule: str | None

    @classmethod
    def of(cls, verdict: Verdict[int]) -> VerdictBody:
        return cls(version=verdict.version, action=verdict.action.value, rule=verdict.rule)


class BlameBody(Outgoing):
    """The version that brought what the newest one says of a packet.

    `before` is the last one that said otherwise, null where all that are kept say the same.
    """

    now: VerdictBody
    after: VerdictBody
    before: VerdictBody | None

    @classmethod
    def of(cls, found: Blame[int]) -> BlameBody:
        before = VerdictBody.of(found.before) if found.before is not None else None
        return cls(now=VerdictBody.of(found.now), after=VerdictBody.of(found.after), before=before)


class BisectedBody(Outgoing):
    """Two neighbouring versions that disagree about a packet, found by halving.

    Both are null where the oldest and the newest agree. `looked_at` of the `of` versions were read: where a verdict
    went back and forth, there are other such neighbours.
    """

    before: VerdictBody | None
    after: VerdictBody | None
    looked_at: int
    of: int

    @classmethod
    def from_result(cls, found: Bisected[int] | None, of: int) -> BisectedBody:
        if found is None:
            return cls(before=None, after=None, looked_at=min(of, 2), of=of)
        before, after = VerdictBody.of(found.before), VerdictBody.of(found.after)
        return cls(before=before, after=after, looked_at=found.looked_at, of=found.of)
