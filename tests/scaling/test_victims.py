"""Whoever leaves is missed least: no state is given up while somebody has less of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.scaling.decide import Candidate, victims
from orchestrator.scaling.lifecycle import COMING, MemberState

FEW = st.integers(0, 5)
FLEETS = st.lists(st.tuples(st.sampled_from(MemberState), st.booleans(), FEW, FEW), max_size=8).map(
    lambda rows: [Candidate(f"fw-{number}", number, *row) for number, row in enumerate(rows)]
)


@given(FLEETS, st.integers(-1, 9))
def test_those_who_leave_are_missed_least(fleet: list[Candidate], count: int) -> None:
    gone = set(victims(fleet, count))
    able = [each for each in fleet if each.state in COMING or each.state is MemberState.SERVING]
    assert len(gone) == min(max(count, 0), len(able))
    assert gone <= {each.name for each in able}
    for leaves in (each for each in able if each.name in gone):
        for stays in (each for each in able if each.name not in gone):
            if stays.state in COMING:
                assert leaves.state in COMING
                assert COMING.index(leaves.state) <= COMING.index(stays.state)
            elif leaves.state is MemberState.SERVING:
                assert leaves.is_well <= stays.is_well
                if leaves.is_well == stays.is_well:
                    assert leaves.connections <= stays.connections


def test_among_equals_the_youngest_leaves() -> None:
    fleet = [Candidate(f"fw-{number}", number, MemberState.SERVING, True, 7, 100) for number in range(3)]
    assert victims(fleet, 2) == ("fw-2", "fw-1")
