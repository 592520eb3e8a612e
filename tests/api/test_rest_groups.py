"""Address groups, quotas and histories over REST."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections.abc import Iterator

import httpx
import pytest
from served import Served

from orchestrator.client import Client
from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound, Stale, TooLarge
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Direction, Packet
from orchestrator.policy.protocols import TCP
from orchestrator.wire.tenants import Limits

_numbers = itertools.count()
OFFICE = {"prefixes": ["192.0.2.0/24", "192.0.2.7"], "description": "the office"}


def prefixes(*texts: str) -> list[Prefix]:
    return [Prefix.parse(text) for text in texts]


def acl(*rules: dict[str, object], groups: dict[str, object] | None = None) -> Acl:
    return acl_from_json({"groups": groups or {}, "rules": list(rules)})


def permit(name: str, port: int | str, **more: object) -> dict[str, object]:
    return {"id": name, "action": "permit", "protocol": "tcp", "destination_ports": port, **more}


@pytest.fixture
def tenant(admin: Client) -> Iterator[str]:
    name = f"gr{next(_numbers)}"
    admin.domains.create(name)
    admin.tenants.create(name, domain=name, prefixes=prefixes(f"10.{next(_numbers)}.0.0/16"))
    rule = permit("web", 80, source="@office")
    admin.acls.put(name, acl(rule, groups={"office": OFFICE}))
    yield name
    admin.tenants.delete(name)


# ---------------------------------------------------------------------------------------------------- groups


def test_a_group_is_seen_with_its_rules_and_its_members_in_pages(http: httpx.Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl/groups"
    seen = {"name": "office", "description": "the office", "members": 2, "rules": ["web"]}
    assert http.get(path).json() == {"items": [seen], "next": None}
    answer = http.get(f"{path}/office")
    assert (answer.json(), answer.headers["ETag"]) == (seen, '"1"')
    assert http.get(f"{path}/office", headers={"If-None-Match": '"1"'}).status_code == 304
    first = http.get(f"{path}/office/members", params={"limit": 1}).json()
    assert first == {"items": ["192.0.2.0/24"], "next": "192.0.2.0/24"}
    rest = http.get(f"{path}/office/members", params={"limit": 1, "marker": first["next"]}).json()
    assert rest == {"items": ["192.0.2.7/32"], "next": None}
    assert http.get(f"{path}/nobody").status_code == 404


def test_members_come_and_go_in_one_generation_that_history_shows(admin: Client, tenant: str) -> None:
    before = admin.acls.read(tenant)
    written = admin.groups.change_members(
        tenant, "office", add=prefixes("198.51.100.1", "192.0.2.7"), remove=prefixes("192.0.2.0/24")
    )
    assert (written.version, written.etag, written.changed) == (2, '"2"', True)
    assert list(admin.groups.read_members(tenant, "office")) == prefixes("192.0.2.7", "198.51.100.1")
    assert not admin.groups.change_members(tenant, "office", add=prefixes("192.0.2.7")).changed
    assert admin.acls.read(tenant, version=1).acl == before.acl
    changes = admin.acls.compare_versions(tenant, 1)["changes"]
    assert {(each["becomes"], each["before"][0], each["after"][0]) for each in changes} == {
        ("permit", "_default", "web"),
        ("deny", "web", "_default"),
    }
    admin.acls.restore(tenant, 1)
    assert admin.acls.read(tenant).acl == before.acl
    assert [each.version for each in admin.acls.read_versions(tenant)] == [3, 2, 1, 0]


def test_one_member_is_removed_by_its_path(http: httpx.Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl/groups/office/members"
    assert http.delete(f"{path}/192.0.2.7/32").status_code == 428
    assert http.delete(f"{path}/192.0.2.7", headers={"If-Match": '"9"'}).status_code == 412
    assert http.delete(f"{path}/203.0.113.1", headers={"If-Match": '"1"'}).status_code == 404
    assert http.delete(f"{path}/192.0.2.7/32", headers={"If-Match": '"1"'}).json()["version"] == 2
    assert http.get(path).json()["items"] == ["192.0.2.0/24"]
    assert http.delete(f"{path}/nonsense", headers={"If-Match": "*"}).json()["place"] == "path.member"


def test_a_group_is_made_replaced_and_deleted(http: httpx.Client, admin: Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl/groups/partners"
    made = http.put(path, json={"prefixes": ["203.0.113.1"]})
    assert (made.status_code, made.headers["Location"], made.headers["ETag"]) == (201, path, '"2"')
    assert http.put(path, json={"prefixes": []}).status_code == 428
    assert http.put(path, json={"prefixes": []}, headers={"If-Match": '"1"'}).status_code == 412
    replaced = http.put(path, json={"prefixes": [], "description": "x"}, headers={"If-Match": '"2"'})
    assert (replaced.status_code, replaced.json()["version"]) == (200, 3)
    assert (
        http.put(path, json={"prefixes": [], "description": "x"}, headers={"If-Match": "*"}).json()["changed"] is False
    )
    with pytest.raises(Stale):
        admin.groups.delete(tenant, "partners", etag='"1"')
    assert admin.groups.delete(tenant, "partners", etag='"3"').version == 4
    with pytest.raises(NotFound):
        admin.groups.delete(tenant, "partners")


def test_a_group_in_use_is_not_deleted_and_its_rules_are_named(admin: Client, tenant: str) -> None:
    with pytest.raises(Conflict, match="'office': web"):
        admin.groups.delete(tenant, "office")
    assert admin.groups.read(tenant, "office").members == 2


@pytest.mark.parametrize(
    ("body", "kind", "place"),
    [
        ({"add": ["10.0.0.0/33"]}, BadInput, "add[0]"),
        ({"add": ["192.0.2.1"], "remove": ["192.0.2.1"]}, BadInput, "remove[0]"),
        ({"add": "192.0.2.1"}, BadInput, "add"),
        ({"more": []}, BadInput, "more"),
        ({"remove": ["203.0.113.9"]}, NotFound, "remove[0]"),
    ],
)
def test_a_bad_change_names_the_place_and_changes_nothing(
    http: httpx.Client, admin: Client, tenant: str, body: dict[str, object], kind: type[Exception], place: str
) -> None:
    answer = http.post(f"/v1/tenants/{tenant}/acl/groups/office/members", json=body)
    assert answer.status_code == {BadInput: 400, NotFound: 404}[kind]
    assert answer.json()["place"] == place
    assert admin.acls.read(tenant).etag == '"1"'


def test_members_of_a_group_on_the_own_side_must_be_owned(admin: Client, tenant: str) -> None:
    (owned,) = map(Prefix.parse, admin.tenants.read(tenant).prefixes)
    group = {"servers": {"prefixes": [str(owned)]}}
    admin.acls.put(tenant, acl(permit("in", 80, destination="@servers"), groups=group))
    with pytest.raises(BadPolicy, match="rule 'in'") as caught:
        admin.groups.change_members(tenant, "servers", add=prefixes("203.0.113.1"))
    assert caught.value.place == "add[0]"


def test_a_change_of_members_is_carried_out_once(http: httpx.Client, admin: Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl/groups/office/members"
    once = {"Idempotency-Key": uuid.uuid4().hex}
    first = http.post(path, json={"add": ["203.0.113.1"]}, headers=once)
    admin.groups.change_members(tenant, "office", remove=prefixes("203.0.113.1"))
    again = http.post(path, json={"add": ["203.0.113.1"]}, headers=once)
    assert (again.status_code, again.content, again.headers["ETag"]) == (200, first.content, '"2"')
    assert len(list(admin.groups.read_members(tenant, "office"))) == 2
    other = http.post(path, json={"add": ["203.0.113.2"]}, headers=once)
    assert (other.status_code, other.json()["place"]) == (409, "Idempotency-Key")


# ---------------------------------------------------------------------------------------------------- histories


def test_a_version_is_taken_back_on_its_condition_and_once(http: httpx.Client, admin: Client, tenant: str) -> None:
    first = admin.acls.read(tenant).acl
    admin.acls.put(tenant, acl())
    path = f"/v1/tenants/{tenant}/acl/versions/1/restore"
    assert http.post(path).status_code == 428
    assert http.post(path, headers={"If-Match": '"1"'}).status_code == 412
    once = {"If-Match": '"2"', "Idempotency-Key": uuid.uuid4().hex}
    done = http.post(path, headers=once)
    assert (done.status_code, done.json()["version"], done.json()["left_out"]) == (200, 3, [])
    assert http.post(path, headers=once).content == done.content
    assert admin.acls.read(tenant).acl == first
    assert http.post(path.replace("/1/", "/99/"), headers={"If-Match": "*"}).status_code == 404


def test_a_rule_whose_time_is_over_does_not_come_back(service: Served, admin: Client, tenant: str) -> None:
    late = permit("late", 81, expires=service.clock().isoformat())
    with pytest.raises(BadPolicy, match="has passed already") as caught:
        admin.acls.put(tenant, acl(permit("a", 80), late))
    assert caught.value.place == "rules[1].expires"
    later = service.clock() + dt.timedelta(hours=1)
    version = admin.acls.put(tenant, acl(permit("a", 80), {**late, "expires": later.isoformat()})).version
    admin.acls.put(tenant, acl())
    assert admin.acls.restore(tenant, version)[1] == ()
    admin.acls.put(tenant, acl())
    service.clock.ahead += dt.timedelta(hours=1)
    assert admin.acls.restore(tenant, version)[1] == ("late",)
    assert [rule.id for rule in admin.acls.read(tenant).acl.rules] == ["a"]


def test_blame_and_bisect_find_the_version(admin: Client, tenant: str) -> None:
    (owned,) = map(Prefix.parse, admin.tenants.read(tenant).prefixes)
    packet = Packet(Family.IPV4, 0x01010101, owned.network + 1, TCP, 1024, 443)
    for number, port in enumerate((81, 82, 443, 443, 443)):
        admin.acls.put(tenant, acl(permit("tls", port), permit(f"x{number}", 9)))
    found = admin.acls.blame(tenant, packet, Direction.INGRESS)
    assert (found["now"]["version"], found["now"]["action"]) == (6, "permit")
    assert (found["after"]["version"], found["before"]["version"]) == (4, 3)
    assert found["before"]["rule"] is None
    halved = admin.acls.bisect(tenant, packet, Direction.INGRESS)
    assert (halved["before"]["version"], halved["after"]["version"]) == (3, 4)
    assert halved["looked_at"] <= halved["of"] == 7
    other = Packet(Family.IPV4, 0x01010101, owned.network + 1, TCP, 1024, 7)
    assert admin.acls.bisect(tenant, other, Direction.INGRESS)["before"] is None
    assert admin.acls.blame(tenant, other, Direction.INGRESS)["before"] is None


# ---------------------------------------------------------------------------------------------------- quotas and cost


def test_a_quota_is_held_before_anything_is_written(admin: Client, http: httpx.Client, tenant: str) -> None:
    admin.tenants.set_quota(tenant, Limits(rules=3, flows=71))
    wide = permit("wide", "1-65534")
    with pytest.raises(TooLarge, match="rule 'wide' needs most of them, 60") as caught:
        admin.acls.put(tenant, acl(permit("a", 80), {**wide, "source": ["192.0.2.0/24", "203.0.113.0/24"]}))
    assert caught.value.place == "rules[1]"
    with pytest.raises(TooLarge, match="4 rules, and the quota is 3: take 1 out"):
        admin.acls.put(tenant, acl(*(permit(f"r{port}", port) for port in range(4))))
    assert admin.acls.read(tenant).etag == '"1"'
    admin.acls.put(tenant, acl(wide))
    seen = http.get(f"/v1/tenants/{tenant}").json()
    cost = http.post(f"/v1/tenants/{tenant}/acl/check", json={"rules": [wide]}).json()["cost"]
    nothing = dict.fromkeys(("versions", "stored_bytes", "streams", "analysis_seconds"))
    assert seen["quota"] == {"rules": 3, "flows": 71, **nothing}
    assert seen["used"].pop("stored_bytes") > 0
    assert seen["used"].pop("analysis_seconds") == 0
    assert seen["used"].pop("streams") == 0
    assert seen["used"] == {"rules": 1, "flows": cost["ingress"]["flows"] + cost["egress"]["flows"]}
    told = http.get(f"/v1/tenants/{tenant}/quota").json()
    assert told["used"].pop("stored_bytes") > 0
    assert told["used"].pop("analysis_seconds") > 0
    assert told["used"].pop("streams") == 0
    assert told == {**seen["quota"], "used": seen["used"]}
    refused = http.post(f"/v1/tenants/{tenant}/acl/rules", json=permit("more", "1-65534"))
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:aclflow:problem:too-large")
    admin.tenants.set_quota(tenant, Limits(rules=None, flows=None))
    assert http.post(f"/v1/tenants/{tenant}/acl/rules", json=permit("more", "1-65534")).status_code == 201


def test_a_list_over_a_smaller_quota_may_only_shrink(admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, acl(*(permit(f"r{port}", port) for port in range(20))))
    admin.tenants.set_quota(tenant, Limits(rules=5, flows=5))
    admin.acls.delete_rule(tenant, "r3")
    admin.acls.put(tenant, acl(*(permit(f"r{port}", port + 100) for port in range(10))))
    with pytest.raises(TooLarge):
        admin.acls.put(tenant, acl(*(permit(f"r{port}", port) for port in range(11))))


def test_only_administrators_set_quotas_and_on_a_condition(service: Served, http: httpx.Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/quota"
    body = {"rules": 5, "flows": None}
    assert http.put(path, json=body).status_code == 428
    assert http.put(path, json={"rules": 5}, headers={"If-Match": "*"}).json()["place"] == "flows"
    assert http.put(path, json={**body, "rules": -1}, headers={"If-Match": "*"}).status_code == 400
    assert http.put(path, json=body, headers={"If-Match": '"1"'}).json()["quota"] == {
        **body,
        "versions": None,
        "stored_bytes": None,
        "streams": None,
        "analysis_seconds": None,
    }
    assert http.put(path, json=body, headers={"If-Match": '"1"'}).status_code == 412


def test_what_a_write_costs_is_told_where_it_is_asked(http: httpx.Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl"
    document = {"rules": [permit("a", "1-65534"), permit("six", 80, source="2001:db8::/32")]}
    told = http.put(path, json=document, params={"cost": True}, headers={"If-Match": "*"}).json()["cost"]
    checked = http.post(f"{path}/check", json=document).json()["cost"]
    assert checked["firewall"]["iptables_lines"] > 0
    assert {**checked, "firewall": None} == told
    assert told["tcam"]["slots"] == told["tcam"]["ipv4_entries"] + 4 * told["tcam"]["ipv6_entries"]
    inserted = http.post(f"{path}/rules", json=permit("b", 9), params={"cost": True}).json()["cost"]
    assert inserted["ingress"]["rules"] == 3
    assert http.delete(f"{path}/rules/b", headers={"If-Match": "*"}).json()["cost"] is None


def test_rules_about_to_expire_are_findings(service: Served, http: httpx.Client, tenant: str) -> None:
    path = f"/v1/tenants/{tenant}/acl/check"
    lead = dt.timedelta(seconds=service.settings.expiry_lead_s)
    for until, kinds in ((lead * 0.9, {"expiring": 1}), (lead * 1.1, {}), (-lead, {"expired": 1})):
        rules = [permit("a", 80, expires=(service.clock() + until).isoformat())]
        found = http.post(path, json={"rules": rules}).json()
        assert {kind: count for kind, count in found["counts"].items() if kind.startswith("expir")} == kinds
        assert [each["kind"] for each in found["findings"] if each["kind"].startswith("expir")] == list(kinds)
