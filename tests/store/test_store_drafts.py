"""Expectations and shared drafts, on both databases: kept, bounded, and gone with their time or their tenant."""

from __future__ import annotations

import pytest
from store.conftest import FakeWall

from orchestrator.errors import BadInput, NotFound
from orchestrator.policy.model import Acl
from orchestrator.store import Store


@pytest.fixture
def stocked(store: Store) -> Store:
    with store.write() as unit:
        unit.domains.create("pop")
        for name in ("blue", "red"):
            unit.tenants.create(name, name="", domain="pop")
    return store


def test_expectations_belong_to_one_tenant(stocked: Store) -> None:
    with stocked.write() as unit:
        assert unit.expectations.get("blue").text == ""
        unit.expectations.keep("blue", "one", "member:1")
        unit.expectations.keep("blue", "two", "member:2")
    with stocked.read() as unit:
        kept = unit.expectations.get("blue")
        assert (kept.text, kept.author, kept.version > 0) == ("two", "member:2", True)
        assert unit.expectations.get("red").version == 0
        with pytest.raises(NotFound):
            unit.expectations.get("green")
    with stocked.write() as unit:
        unit.expectations.forget("blue")
        assert unit.expectations.get("blue").text == ""


def test_a_draft_is_gone_when_its_time_is_over(stocked: Store, wall: FakeWall) -> None:
    with stocked.write() as unit:
        shared = unit.drafts.share("blue", Acl(), base=0, author="member:1", message="look", days=2)
        for wrong in (0, 31):
            with pytest.raises(BadInput):
                unit.drafts.share("blue", Acl(), base=0, author="member:1", message="", days=wrong)
    with stocked.read() as unit:
        assert [each.id for each in unit.drafts.list("blue")] == [shared.id]
        assert unit.drafts.list("red") == []
        with pytest.raises(NotFound):
            unit.drafts.get("red", shared.id)
    wall.move(days=2, seconds=1)
    with stocked.write() as unit:
        assert unit.drafts.list("blue") == []
        with pytest.raises(NotFound):
            unit.drafts.get("blue", shared.id)


def test_both_go_with_their_tenant(stocked: Store) -> None:
    with stocked.write() as unit:
        unit.expectations.keep("blue", "one", "member:1")
        unit.drafts.share("blue", Acl(), base=0, author="member:1", message="", days=1)
        unit.tenants.delete("blue")
        unit.tenants.create("blue", name="", domain="pop")
        assert unit.expectations.get("blue").text == ""
        assert unit.drafts.list("blue") == []
