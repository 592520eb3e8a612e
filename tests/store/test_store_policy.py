"""A domain's policy is the same from memory and from the rows, whoever wrote, also in the transaction that writes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from store.scenes import acl, endpoint, populate, prefix, rule

from orchestrator.errors import AclflowError
from orchestrator.policy.model import Acl, Action, AddressGroup, GroupName, ReturnTraffic
from orchestrator.store import Store, open_store
from orchestrator.store.domains import Domains
from orchestrator.store.records import HostRecord, PolicySnapshot
from orchestrator.store.unit import Unit

Work = Callable[[Unit], object]
IDS = ("r0", "r1", "r2", "r3")
GROUP = AddressGroup(GroupName("web"), (prefix("192.0.2.1/32"),))

list_works: st.SearchStrategy[Work] = st.one_of(
    st.builds(
        lambda name, port: lambda unit: unit.acls.put_rule("blue", rule(name, port), author="x"),
        st.sampled_from(IDS),
        st.integers(1, 3),
    ),
    st.builds(
        lambda name, at: lambda unit: unit.acls.insert_rule("blue", rule(name), position=at, author="x"),
        st.sampled_from(IDS),
        st.integers(0, 2),
    ),
    st.builds(
        lambda name, at: lambda unit: unit.acls.move_rule("blue", name, position=at, author="x"),
        st.sampled_from(IDS),
        st.integers(0, 2),
    ),
    st.builds(lambda name: lambda unit: unit.acls.delete_rule("blue", name, author="x"), st.sampled_from(IDS)),
    st.builds(
        lambda names, default: (
            lambda unit: unit.acls.replace(
                "blue", Acl(tuple(map(rule, names)), {"web": GROUP}, egress_default=default), author="x"
            )
        ),
        st.lists(st.sampled_from(IDS), unique=True),
        st.sampled_from(Action),
    ),
    st.just(lambda unit: unit.acls.replace("red", acl(rule("r9", destination="10.2.0.0/24")), author="x")),
    st.builds(
        lambda members: (
            lambda unit: unit.groups.put("blue", AddressGroup(GROUP.name, tuple(map(prefix, members))), author="x")
        ),
        st.lists(st.sampled_from(("192.0.2.1/32", "192.0.2.2/32")), min_size=1, unique=True),
    ),
)
other_works: st.SearchStrategy[Work] = st.sampled_from(
    [
        lambda unit: unit.domains.put_endpoint("pop", endpoint("e1", "10.1.0.1/32")),
        lambda unit: unit.domains.remove_endpoint("pop", "e1"),
        lambda unit: unit.domains.set_return_traffic("pop", ReturnTraffic.EXPLICIT),
        lambda unit: unit.domains.set_operator_rules("pop", [rule("dns")]),
        lambda unit: unit.tenants.add_prefix("blue", prefix("10.9.0.0/16")),
        lambda unit: unit.tenants.remove_prefix("blue", prefix("10.9.0.0/16")),
        lambda unit: unit.tenants.create("azure", name="", domain="pop", prefixes=[prefix("10.8.0.0/16")]),
        lambda unit: unit.tenants.delete("azure"),
        lambda unit: unit.domains.add_host("pop", HostRecord("h9", 99, "wan0")),
        lambda unit: unit.domains.remove_host("pop", "h9"),
    ]
)
units = st.tuples(st.booleans(), st.lists(st.one_of(list_works, list_works, other_works), min_size=1, max_size=3))
"""Which of two processes writes, and what it does in one transaction."""


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}")
    try:
        yield store
    finally:
        store.close()


def written(store: Store, works: list[Work]) -> PolicySnapshot | None:
    """The policy as the writing transaction sees it; None when the works were refused, and so undone."""
    try:
        with store.write() as unit:
            for work in works:
                work(unit)
            return unit.domains.policy("pop")
    except AclflowError:
        return None


def check_story(template: bytes, story: list[tuple[bool, list[Work]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        path.write_bytes(template)
        with opened(path) as one, opened(path) as two:
            populate(one)
            with one.write() as unit:
                unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix("10.2.0.0/16")])
            for by_two, works in story:
                writing = written(two if by_two else one, works)
                with opened(path) as fresh:
                    right = policy_of(fresh)
                assert writing in (None, right)
                assert policy_of(one) == policy_of(two) == right


def policy_of(store: Store) -> PolicySnapshot:
    with store.read() as unit:
        return unit.domains.policy("pop")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(units, min_size=1, max_size=6))
def test_memory_changes_nothing(sqlite_template: bytes, story: list[tuple[bool, list[Work]]]) -> None:
    check_story(sqlite_template, story)


PLANTED: dict[str, tuple[str, Callable[..., object]]] = {
    "tenants stay as they were": ("_tenant_now", lambda _self, _domain, _name, known: [known] if known else []),
    "tenants go": ("_tenant_now", lambda _self, _domain, _name, _known: []),
    "endpoints go": ("_read_endpoint", lambda _self, _domain, _name: []),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_the_law_notices_what_was_not_followed(
    sqlite_template: bytes, monkeypatch: pytest.MonkeyPatch, planted: tuple[str, Callable[..., object]]
) -> None:
    monkeypatch.setattr(Domains, *planted)

    @settings(max_examples=60, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(story=st.lists(units, min_size=1, max_size=6))
    def law(story: list[tuple[bool, list[Work]]]) -> None:
        check_story(sqlite_template, story)

    with pytest.raises(AssertionError):
        law()


def test_what_did_not_change_stays_the_same_object(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix("10.2.0.0/16")])
        unit.acls.replace("blue", acl(rule("r0"), rule("r1")), author="x")
    before = policy_of(store).policy
    with store.write() as unit:
        unit.acls.insert_rule("blue", rule("r2"), position=1, author="x")
        after = unit.domains.policy("pop").policy
    assert after.endpoints is before.endpoints
    assert after.tenants[1] is before.tenants[1]
    kept = after.tenants[0].acl.rules[0], after.tenants[0].acl.rules[2]
    assert all(new is old for new, old in zip(kept, before.tenants[0].acl.rules, strict=True))
    assert policy_of(store).policy is after
