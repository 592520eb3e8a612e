"""Choose the VNFs that leave when a fleet shrinks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.scaling.lifecycle import COMING, MemberState


@dataclass(frozen=True, slots=True)
class Candidate:
    """A VNF that could leave: progress, health, connections, load and age order.

    The load is in packets a second; the number grows with the age of the order.
    """

    name: str
    number: int
    state: MemberState
    is_well: bool
    connections: int
    packets_pps: int


def victims(candidates: Sequence[Candidate], count: int) -> tuple[str, ...]:
    """Choose VNFs to remove: not serving first, then unhealthy, then least state, least traffic, youngest."""
    may_go = [each for each in candidates if each.state in COMING or each.state is MemberState.SERVING]
    return tuple(each.name for each in sorted(may_go, key=_rank_candidate)[: max(count, 0)])


def _rank_candidate(candidate: Candidate) -> tuple[int, bool, int, int, int]:
    """How much a VNF would be missed."""
    far = len(COMING) if candidate.state is MemberState.SERVING else COMING.index(candidate.state)
    return far, candidate.is_well, candidate.connections, candidate.packets_pps, -candidate.number
