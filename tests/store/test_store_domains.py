"""Domains, hosts, endpoints, operator rules, and the policy as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from store.scenes import OWN4, OWN6, acl, endpoint, populate, prefix, rule

from orchestrator.errors import AclflowError, BadInput, BadPolicy, Conflict, NotFound, Stale
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Action, Endpoint, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import UDP
from orchestrator.store import Store
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

DNS = Rule(RuleId("dns"), Action.PERMIT, protocol=UDP)
NTP = Rule(RuleId("ntp"), Action.DENY, protocol=UDP)


def generation(store: Store) -> int:
    with store.read() as unit:
        return unit.domains.get("pop").generation


def test_a_domain_is_what_was_made(store: Store) -> None:
    with store.write() as unit:
        made = unit.domains.create("pop", return_traffic=ReturnTraffic.EXPLICIT)
        assert (made.id, made.return_traffic, made.generation, made.version) == ("pop", ReturnTraffic.EXPLICIT, 1, 1)
        unit.domains.create("edge")
        with pytest.raises(Conflict):
            unit.domains.create("pop")
    with store.read() as unit:
        assert [domain.id for domain in unit.domains.list()] == ["edge", "pop"]
        assert [domain.id for domain in unit.domains.list(limit=1, marker="edge")] == ["pop"]
        assert unit.domains.get("pop") == made
        with pytest.raises(NotFound):
            unit.domains.get("nowhere")


def test_the_generation_moves_once_a_unit_and_with_every_change(store: Store) -> None:
    populate(store)
    host = HostRecord("host1", 1, "uplink0")
    steps: list[tuple[Callable[[Unit], object], int]] = [
        (lambda unit: unit.acls.put_rule("blue", rule("a"), author="ann"), 1),
        (lambda unit: unit.acls.put_rule("blue", rule("a"), author="ann"), 0),
        (lambda unit: unit.tenants.add_prefix("blue", prefix("10.9.0.0/16")), 1),
        (lambda unit: unit.tenants.rename("blue", "B"), 0),
        (lambda unit: unit.domains.put_endpoint("pop", endpoint("web", "10.1.0.1")), 1),
        (lambda unit: unit.domains.put_endpoint("pop", endpoint("web", "10.1.0.1")), 0),
        (lambda unit: unit.domains.set_operator_rules("pop", [DNS]), 1),
        (lambda unit: unit.domains.set_operator_rules("pop", [DNS]), 0),
        (lambda unit: unit.domains.set_return_traffic("pop", ReturnTraffic.EXPLICIT), 1),
        (lambda unit: unit.domains.set_return_traffic("pop", ReturnTraffic.EXPLICIT), 0),
        (lambda unit: unit.domains.set_return_traffic("pop", path_mtu_rate=7), 1),
        (lambda unit: unit.domains.set_return_traffic("pop", ReturnTraffic.EXPLICIT, path_mtu_rate=7), 0),
        (lambda unit: unit.domains.add_host("pop", host), 1),
        (lambda unit: unit.domains.bump_generation("pop"), 1),
        (lambda unit: (unit.domains.bump_generation("pop"), unit.domains.bump_generation("pop")), 1),
        (lambda unit: unit.domains.remove_endpoint("pop", "web"), 1),
        (lambda unit: unit.tenants.delete("blue"), 1),
    ]
    for number, (step, moves) in enumerate(steps):
        before = generation(store)
        with store.write() as unit:
            step(unit)
        assert generation(store) - before == moves, number


def test_the_policy_is_everything_at_one_generation(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.create("other")
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix("10.2.0.0/16")])
        unit.tenants.create("far", name="Far", domain="other", prefixes=[prefix("10.3.0.0/16")])
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
        unit.domains.put_endpoint("pop", endpoint("web", "2001:db8:1::1", "10.1.0.1"))
        unit.domains.put_endpoint("pop", endpoint("db", "10.2.0.1", tenant="red"))
        unit.domains.set_operator_rules("pop", [NTP, DNS])
        unit.domains.set_return_traffic("pop", ReturnTraffic.EXPLICIT, path_mtu_rate=7)
    with store.read() as unit:
        snapshot = unit.domains.policy("pop")
        blue, red = snapshot.policy.tenants
        assert snapshot.generation == unit.domains.get("pop").generation
        assert (blue.id, blue.prefixes, blue.acl) == ("blue", (OWN4, OWN6), acl(rule("a"), rule("b")))
        assert dict(blue.rule_numbers) == dict(unit.acls.current("blue").numbers)
        assert blue.number == unit.tenants.get("blue").number
        assert (red.id, red.prefixes, red.acl) == ("red", (prefix("10.2.0.0/16"),), acl())
        assert (snapshot.policy.return_traffic, snapshot.policy.path_mtu_rate) == (ReturnTraffic.EXPLICIT, 7)
        assert snapshot.policy.operator == (NTP, DNS)
        assert set(snapshot.policy.operator_numbers) == {"dns", "ntp"}
        assert snapshot.policy.return_traffic is ReturnTraffic.EXPLICIT
        assert [found.name for found in snapshot.policy.endpoints] == ["db", "web"]
        assert snapshot.policy.endpoints[1].prefixes == (prefix("10.1.0.1"), prefix("2001:db8:1::1"))
        numbers = [*blue.rule_numbers.values(), *snapshot.policy.operator_numbers.values()]
        assert len(set(numbers)) == 4
        assert [tenant.id for tenant in unit.domains.policy("other").policy.tenants] == ["far"]


def test_operator_rules_keep_their_numbers(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        assert unit.domains.set_operator_rules("pop", [DNS, NTP], expected_version=0).version == 1
        before = unit.domains.operator_rules("pop")
        assert (before.version, before.rules) == (1, (DNS, NTP))
    changed = dataclasses.replace(NTP, action=Action.PERMIT)
    with store.write() as unit:
        unit.domains.set_operator_rules("pop", [changed, dataclasses.replace(DNS, id=RuleId("dns2"))])
        after = unit.domains.operator_rules("pop")
        assert after.rules[0] == changed
        assert after.numbers["ntp"] == before.numbers["ntp"]
        assert after.numbers["dns2"] > max(before.numbers.values())
    grouped = dataclasses.replace(DNS, source=Addresses(groups=("g",)))
    with store.write() as unit:
        with pytest.raises(Stale):
            unit.domains.set_operator_rules("pop", [], expected_version=1)
        with pytest.raises(BadPolicy):
            unit.domains.set_operator_rules("pop", [grouped])
        with pytest.raises(BadPolicy):
            unit.domains.set_operator_rules("pop", [DNS, DNS])
        with pytest.raises(BadPolicy) as caught:
            unit.domains.set_operator_rules("pop", [DNS, dataclasses.replace(NTP, expires=unit.now)])
        assert caught.value.place == "rules[1].expires"
        assert unit.domains.operator_rules("pop") == after


def test_hosts_are_onboarded_once(store: Store) -> None:
    populate(store)
    one = HostRecord("host1", (1 << 64) - 1, "eth0")
    with store.write() as unit:
        assert unit.domains.add_host("pop", one) == 3
        unit.domains.create("other")
        with pytest.raises(Conflict, match="ffffffffffffffff") as taken:
            unit.domains.add_host("other", HostRecord("hostX", one.datapath_id, "eth0"))
        assert taken.value.place == "datapath_id"
        with pytest.raises(Conflict) as named:
            unit.domains.add_host("pop", HostRecord("host1", 2, "eth0"))
        assert named.value.place == "name"
        unit.domains.add_host("other", HostRecord("host1", 2, "eth0"))
        assert unit.domains.hosts("pop") == (one,)
        with pytest.raises(Conflict, match="tenants"):
            unit.domains.delete("pop")
        with pytest.raises(Conflict, match="hosts"):
            unit.domains.delete("other")
        unit.domains.remove_host("other", "host1")
        with pytest.raises(NotFound):
            unit.domains.remove_host("other", "host1")
        with pytest.raises(Stale):
            unit.domains.delete("other", expected_version=2)
        unit.domains.delete("other", expected_version=1)
        with pytest.raises(NotFound):
            unit.domains.hosts("other")


@pytest.mark.parametrize("uplink", ["", "with space", "a/b", "sixteen-letters-", "..", "eth0:1", "é"])
def test_interfaces_have_names_that_linux_takes(uplink: str) -> None:
    with pytest.raises(BadInput):
        HostRecord("host1", 1, uplink)


def test_a_domain_of_the_same_name_begins_above_the_old_one(store: Store) -> None:
    populate(store)
    for _ in range(5):
        with store.write() as unit:
            unit.domains.bump_generation("pop")
    with store.write() as unit:
        unit.tenants.delete("blue")
        last = unit.domains.get("pop").generation
        unit.domains.delete("pop")
        assert unit.domains.create("pop").generation == last + 1


@pytest.mark.parametrize(
    ("attempt", "error", "place"),
    [
        (endpoint("a", "10.2.0.1"), BadPolicy, "prefixes[0]"),
        (endpoint("a", "10.1.0.9", "10.2.0.1"), BadPolicy, "prefixes[1]"),
        (endpoint("a", "10.1.0.1"), Conflict, "prefixes[0]"),
        (endpoint("a", "10.1.0.9", "10.1.0.0/24"), BadInput, "prefixes[1]"),
        (endpoint("a", "10.1.0.0/24"), Conflict, "prefixes[0]"),
        (endpoint("a", "10.1.0.9", port="tap-web"), Conflict, "port"),
        (endpoint("a", "10.1.0.9", port="uplink"), BadInput, "port"),
        (endpoint("a", "10.1.0.9", port="far too long a name"), BadInput, "port"),
        (endpoint("a", "10.1.0.9", mac=0), BadInput, "mac"),
        (endpoint("a", "10.1.0.9", mac=0x010000000000), BadInput, "mac"),
        (endpoint("a", "10.1.0.9", mac=1 << 48), BadInput, "mac"),
        (endpoint("a"), BadInput, "prefixes"),
        (endpoint("a b", "10.1.0.9"), BadInput, "name"),
        (endpoint("a", "10.3.0.9", tenant="far"), BadPolicy, "tenant"),
        (endpoint("a", "10.1.0.9", tenant="nobody"), BadPolicy, "tenant"),
    ],
)
def test_endpoints_are_checked(store: Store, attempt: Endpoint, error: type[AclflowError], place: str) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.create("other")
        unit.tenants.create("far", name="Far", domain="other", prefixes=[prefix("10.3.0.0/16")])
        unit.domains.put_endpoint("pop", endpoint("web", "10.1.0.1"))
    with pytest.raises(error) as caught, store.write() as unit:
        unit.domains.put_endpoint("pop", attempt)
    assert caught.value.place == place
    with store.read() as unit:
        assert [record.endpoint.name for record in unit.domains.endpoints("pop")] == ["web"]


LEG = endpoint("one", "10.1.0.1", port="inside", mac=0x020000000001, shared=True)


@pytest.mark.parametrize(
    ("attempt", "error", "place"),
    [
        (endpoint("a", "10.1.0.9", port="inside", mac=0x020000000002), Conflict, "port"),
        (endpoint("a", "10.1.0.9", port="tap-web", mac=0x020000000002, shared=True), Conflict, "port"),
        (endpoint("a", "10.1.0.9", port="inside", shared=True), Conflict, "mac"),
        (endpoint("a", "10.2.0.9", port="inside", mac=0x020000000002, tenant="red", shared=True), Conflict, "tenant"),
        (endpoint("a", "10.1.0.1", port="inside", mac=0x020000000002, shared=True), Conflict, "prefixes[0]"),
        (
            endpoint("a", "10.1.0.9", "10.1.9.0/24", port="inside", mac=0x020000000002, shared=True),
            BadInput, "prefixes[1]",
        ),
        (endpoint("one", "10.1.0.1", port="inside"), None, ""),
        (endpoint("two", "10.1.0.2", port="inside"), Conflict, "port"),
    ],
)  # fmt: skip
def test_what_no_shared_port_tells_apart_is_refused(
    store: Store, attempt: Endpoint, error: type[AclflowError] | None, place: str
) -> None:
    """One alone behind a port may give up sharing it, two cannot."""
    populate(store)
    with store.write() as unit:
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix("10.2.0.0/16")])
        unit.domains.put_endpoint("pop", endpoint("web", "10.1.0.3"))
        unit.domains.put_endpoint("pop", LEG)
        if attempt.name == "two":
            unit.domains.put_endpoint("pop", dataclasses.replace(attempt, mac=0x020000000002, shared=True))
    if error is None:
        with store.write() as unit:
            assert unit.domains.put_endpoint("pop", attempt).version == 2
        return
    with pytest.raises(error) as caught, store.write() as unit:
        unit.domains.put_endpoint("pop", attempt)
    assert caught.value.place == place


def test_endpoints_share_a_port_where_each_says_so(store: Store) -> None:
    populate(store)
    legs = [
        LEG,
        endpoint("three", "10.1.0.3", port="inside", mac=0x020000000003, shared=True),
        endpoint("two", "10.1.0.2", "2001:db8:1::2", port="inside", mac=0x020000000002, shared=True),
    ]
    with store.write() as unit:
        for each in legs:
            unit.domains.put_endpoint("pop", each)
    with store.write() as unit:
        before = unit.domains.endpoints("pop")
        assert not unit.domains.put_endpoint("pop", legs[2]).changed
    assert sorted((each.endpoint for each in before), key=lambda each: each.name) == legs
    with store.read() as unit:
        assert list(unit.domains.policy("pop").policy.endpoints) == legs
    with store.write() as unit:
        unit.domains.remove_endpoint("pop", "two")
        assert [each.endpoint.name for each in unit.domains.endpoints("pop")] == ["one", "three"]


def test_endpoints_change_under_their_version(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        assert unit.domains.put_endpoint("pop", endpoint("web", "10.1.0.1"), expected_version=0).version == 1
        unit.domains.put_endpoint("pop", endpoint("db", "10.1.0.2"))
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix("10.2.0.0/16")])
    moved = endpoint("web", "10.1.0.9", "2001:db8:1::9", port="tap9")
    with store.write() as unit:
        with pytest.raises(Stale):
            unit.domains.put_endpoint("pop", moved, expected_version=0)
        assert unit.domains.put_endpoint("pop", moved, expected_version=1).version == 2
        assert unit.domains.endpoint("pop", "web").endpoint == moved
        assert unit.domains.put_endpoint("pop", endpoint("www", "10.1.0.1", port="tap-web")).version == 1
        assert unit.domains.page_of_tenant("red", limit=9) == ()
        assert len(unit.domains.page_of_tenant("blue", limit=9)) == 3
        with pytest.raises(Stale):
            unit.domains.remove_endpoint("pop", "web", expected_version=1)
        unit.domains.remove_endpoint("pop", "web", expected_version=2)
        with pytest.raises(NotFound):
            unit.domains.endpoint("pop", "web")


def test_the_busiest_domain_is_named_first(store: Store) -> None:
    with store.write() as unit:
        for name in ("idle", "large", "larger", "busy", "other"):
            unit.domains.create(name)
        for number, domain in enumerate(("large", "larger", "larger"), 1):
            unit.domains.add_host(domain, HostRecord(f"host{number}", number, "uplink0"))
        for domain in ("busy", "other", "busy"):
            unit.events.append("generation.published", domain, {"generation": 1})
        for _ in range(3):
            unit.events.append("generation.enforced", "idle", {"generation": 1})
    with store.read() as unit:
        assert unit.domains.names() == ("busy", "other", "larger", "large", "idle")
