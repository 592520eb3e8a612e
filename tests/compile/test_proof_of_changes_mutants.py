"""The law of changes notices what is left out of the proof of a change, and of what conjunctions become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from compile.test_proof_of_changes import check_spoilt
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from laws.test_levels_update import stories

from orchestrator.compile.conjunctions import clauses, conjunctive
from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.equivalence import conjunctionsteps, memberproof
from orchestrator.policy.model import ReturnTraffic, Tenant
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable

PLANTED = settings(
    max_examples=2000, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture
def eager() -> Iterator[None]:
    """Whatever can be a conjunction is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjunctive, "WORTH", 2)
        patch.setattr(conjunctive, "GAIN", 0)
        patch.setattr(conjunctive, "PORTS_WORTH", 2)
        yield


def dies(law: Callable[[], None]) -> bool:
    try:
        law()
    except BaseException:  # noqa: BLE001  (Hypothesis may give a group of them)
        return True
    return False


def members_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memberproof, "_check_exact", lambda *_: None)


def members_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memberproof.Regrouped, "other_places", lambda self, side: [])


def clauses_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conjunctionsteps, "_check_exact", lambda *_: None)


def _spoilt_changes_are_told_apart() -> bool:
    @PLANTED
    @given(stories(), st.data())
    def law(story: tuple[Tenant, ...], data: st.DataObject) -> None:
        check_spoilt(story, data.draw)

    return dies(law)


@pytest.mark.parametrize("plant", [members_not_looked_at, members_overlooked])
def test_what_is_left_out_of_members_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert _spoilt_changes_are_told_apart()


@pytest.mark.usefixtures("eager")
def test_what_is_left_out_of_conjunctions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    clauses_not_looked_at(monkeypatch)
    assert _spoilt_changes_are_told_apart()


def nobody_shares(patch: pytest.MonkeyPatch) -> None:
    """Entries are made anew for the rules that changed, and not for those that share them."""
    real = clauses._Touched.entries

    def entries(self: clauses._Touched, placed: Sequence[clauses.Placed], *rest: object) -> FlowTable:
        mine = {part.unit.number for part in self.parts}
        return real(self, [each for each in placed if each.number in mine], *rest)  # type: ignore[arg-type]

    patch.setattr(clauses._Touched, "entries", entries)


def members_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clauses._Touched, "add_members", lambda *_: None)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("plant", [nobody_shares, members_stay])
def test_entries_of_conjunctions_that_are_not_made_anew_are_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    @PLANTED
    @given(stories())
    def law(story: tuple[Tenant, ...]) -> None:
        compiled = TenantList.of(story[0], ReturnTraffic.EXPLICIT)
        for tenant in story[1:]:
            before, compiled = compiled, compiled.update_list(tenant, ReturnTraffic.EXPLICIT)
            if compiled.change is not None:
                rows = [FlowTable.join_tables(each.rows) for each in (before, compiled)]
                gone, come = difference(*rows)
                assert set(compiled.change.removed.rows()) == set(gone.rows())
                assert set(compiled.change.added.rows()) == set(come.rows())

    assert dies(law)
