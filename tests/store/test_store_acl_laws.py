"""Whatever is done to a list, in whatever order, the store holds what plain Python lists would hold."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from law_examples import examples
from store.conftest import DATABASES, wiped
from store.postgres_cluster import Cluster
from strategies import OWNED, acls

from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.rulechanges import list_changes
from orchestrator.store import Store, open_store
from orchestrator.store.acls import lists
from orchestrator.store.sql import keys
from orchestrator.store.transaction import StoreSettings

IDS = tuple(f"r{number}" for number in range(6))

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@dataclass
class Model:
    """A list's history as plain values: `versions[v]` is the list at v, `numbers` what every id has now."""

    versions: list[Acl] = field(default_factory=lambda: [Acl()])
    numbers: dict[str, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)

    @property
    def now(self) -> Acl:
        return self.versions[-1]

    def becomes(self, acl: Acl) -> None:
        if acl != self.now:
            self.versions.append(acl)

    def check_numbers(self, found: dict[str, int]) -> None:
        """Ids keep their numbers, also after a break; the numbers of new ones were never seen before."""
        assert (list(found) and set(found) == {str(rule.id) for rule in self.now.rules}) or not self.now.rules
        for rule_id, number in found.items():
            if rule_id in self.numbers:
                assert number == self.numbers[rule_id]
            else:
                assert number not in self.used
        self.numbers |= found
        self.used |= set(found.values())


@contextmanager
def fresh_address(database: str, template: bytes, cluster: Cluster | None) -> Iterator[str]:
    if cluster is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "store.db"
            path.write_bytes(template)
            yield f"sqlite:///{path}"
        return
    yield wiped(cluster)


def one_step(data: DataObject, store: Store, model: Model) -> None:
    """One change, made in the store and in the model."""
    now = model.now
    kinds = ("move", "insert", "reorder", "edit", "delete", "put", "replace")
    kind = data.draw(st.sampled_from(kinds if len(now.rules) > 1 else ("replace",)), "what to do")
    if kind in ("replace", "reorder"):
        drawn = data.draw(acls(max_rules=len(IDS), min_rules=3), "list") if kind == "replace" else now
        kept = data.draw(st.permutations(now.rules), "order")[: data.draw(st.integers(0, len(now.rules)), "kept")]
        acl = _mixed(now, drawn, kept)
        with store.write() as unit:
            change = unit.acls.replace("t", acl, author="x", expected_version=len(model.versions) - 1)
        model.becomes(acl)
        assert change.version == len(model.versions) - 1
        return
    rules = list(now.rules)
    if kind in ("move", "delete"):
        rule = data.draw(st.sampled_from(rules), "rule")
        rules.remove(rule)
        position = data.draw(st.integers(0, len(rules)), "position")
        with store.write() as unit:
            if kind == "move":
                rules.insert(position, rule)
                unit.acls.move_rule("t", rule.id, position=position, author="x")
            else:
                unit.acls.delete_rule("t", rule.id, author="x")
    else:
        drawn = data.draw(acls(min_rules=1, max_rules=1, with_groups=False), "one rule")
        if not drawn.rules:
            return
        present = [str(rule.id) for rule in rules]
        absent = [rule_id for rule_id in IDS if rule_id not in present]
        choices = present if kind == "edit" else absent if kind == "insert" else list(IDS)
        if not choices:
            return
        rule = dataclasses.replace(drawn.rules[0], id=RuleId(data.draw(st.sampled_from(choices), "id")))
        position = data.draw(st.integers(0, len(rules)), "position")
        with store.write() as unit:
            if kind == "insert":
                rules.insert(position, rule)
                unit.acls.insert_rule("t", rule, position=position, author="x")
            else:
                unit.acls.put_rule("t", rule, author="x")
                where = present.index(str(rule.id)) if str(rule.id) in present else len(rules)
                rules[where : where + 1] = [rule]
    model.becomes(dataclasses.replace(now, rules=tuple(rules)))


def undone(data: DataObject, store: Store, model: Model) -> None:
    """A change that is read back and then rolled back: nothing of it may stay anywhere."""
    drawn, never = data.draw(acls(), "list never committed"), Rule(RuleId("never"), Action.DENY)

    def replace_and_fail() -> None:
        with store.write() as unit:
            unit.acls.replace("t", drawn, author="x")
            unit.acls.put_rule("t", never, author="x")
            assert unit.acls.current("t").acl.rules == (*drawn.rules, never)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replace_and_fail()
    check(store, model)


def _mixed(now: Acl, drawn: Acl, kept: list[Rule]) -> Acl:
    """The drawn list with some rules of the present one, in a new order, in front."""
    groups = {**now.groups, **drawn.groups}
    known = {rule.id for rule in kept}
    rules = (*kept, *(rule for rule in drawn.rules if rule.id not in known))
    return dataclasses.replace(drawn, rules=rules, groups=groups)


def check(store: Store, model: Model) -> None:
    with store.read() as unit:
        record = unit.acls.current("t")
        assert record.acl == model.now
        assert record.version == len(model.versions) - 1
        model.check_numbers(dict(record.numbers))


def check_history(store: Store, model: Model) -> None:
    """What each version is told to have edited is what an author would say, from the lists alone."""
    with store.read() as unit:
        told = {each.version: each.changes for each in unit.acls.versions("t")}
    assert told[0] is None
    for version, (before, after) in enumerate(pairwise(model.versions), 1):
        changes, expected = told[version], list_changes(before, after)
        assert changes is not None
        found = {kind: set(getattr(changes, kind).names) for kind in ("added", "removed", "changed", "moved")}
        assert all(getattr(changes, kind).count >= len(names) for kind, names in found.items())
        wanted = {kind: {each.id for each in expected.rules if each.kind == kind} for kind in found}
        for kind in ("added", "removed", "changed"):
            assert found[kind] == wanted[kind] or len(wanted[kind]) > len(found[kind]) == 5
        if not wanted["changed"]:  # else another rule may be said to have moved than the one that also changed
            assert len(found["moved"]) == len(wanted["moved"])
        assert (changes.groups, changes.defaults) == (expected.groups, tuple(way.value for way in expected.defaults))


def play(data: DataObject, address: str) -> None:
    store = open_store(address, settings=StoreSettings(cached_rules=data.draw(st.sampled_from((0, 100)), "cache")))
    other = open_store(address)
    try:
        with store.write() as unit:
            unit.domains.create("d")
            unit.tenants.create("t", name="T", domain="d", prefixes=OWNED)
        model = Model()
        for _ in range(data.draw(st.integers(1, 8), "steps")):
            if data.draw(st.booleans(), "undo a step first"):
                undone(data, store, model)
            with store.read() as old:
                assert old.acls.version("t") == len(model.versions) - 1
                before = model.now
                one_step(data, store, model)
                check(store, model)
                assert old.acls.current("t").acl == before
            if data.draw(st.booleans(), "look from another process"):
                check(other, model)
        cold = open_store(address)
        check(cold, model)
        with cold.read() as unit:
            for version, acl in enumerate(model.versions):
                assert unit.acls.at("t", version).acl == acl
        check_history(cold, model)
        cold.close()
    finally:
        store.close()
        other.close()


@pytest.mark.parametrize("database", DATABASES)
def test_a_list_is_what_plain_lists_would_be(
    database: str, request: pytest.FixtureRequest, sqlite_template: bytes
) -> None:
    cluster = request.getfixturevalue("cluster") if database == "postgresql" else None

    @settings(max_examples=examples(40) if cluster is None else 8, deadline=None, suppress_health_check=SLOW)
    @given(data=st.data())
    def law(data: DataObject) -> None:
        narrow = data.draw(st.booleans(), "gaps so narrow that rows must often be spread anew")
        with fresh_address(database, sqlite_template, cluster) as address, pytest.MonkeyPatch.context() as patch:
            if narrow:
                patch.setattr(keys, "STRIDE", 1)
                patch.setattr(lists, "_ROOMY", 1)
                patch.setattr(lists, "_FIRST_WINDOW", 1)
            play(data, address)

    law()
