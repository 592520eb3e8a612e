"""Expectations that are kept with a list, drafts that are traced and tested, and drafts that are shared."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import Served

from orchestrator.client import Client
from orchestrator.errors import BadInput, BadPolicy, NotFound, TooLarge
from orchestrator.policy.addresses import Prefix, parse_address
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import Acl, Endpoint, Packet, TenantId
from orchestrator.policy.protocols import TCP
from orchestrator.store.drafts import MOST_DRAFTS
from orchestrator.store.records import Role

_numbers = itertools.count(1)
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
SSH = {"id": "ssh", "action": "permit", "protocol": "tcp", "destination_ports": 22}
NOBODY = "nobody reaches 198.51.100.7:22 from outside"


def listed(*rules: dict[str, Any]) -> Acl:
    return acl_from_json({"rules": list(rules)})


@pytest.fixture(scope="module")
def domain(admin: Client) -> str:
    admin.domains.create("drafts")
    return "drafts"


@pytest.fixture
def tenant(admin: Client, domain: str) -> Iterator[str]:
    """A tenant with one rule."""
    name = f"draft-{next(_numbers)}"
    admin.tenants.create(name, domain=domain, prefixes=[Prefix.parse("198.51.100.0/24")])
    admin.acls.put(name, listed(WEB))
    yield name
    admin.tenants.delete(name)


def syn(port: int) -> Packet:
    family, source = parse_address("192.0.2.9")
    return Packet(family, source, parse_address("198.51.100.7")[1], TCP, 49152, port, tcp_flags=2)


def test_a_commit_that_breaks_an_expectation_is_refused_with_a_packet(admin: Client, tenant: str) -> None:
    admin.expectations.keep(tenant, f"{NOBODY}\neverybody reaches 198.51.100.7:443\n")
    before = admin.acls.read(tenant)
    with pytest.raises(BadPolicy) as caught:
        admin.acls.put(tenant, listed(WEB, SSH))
    assert f"`{NOBODY}` (expectations, line 1)" in caught.value.reason
    assert "192.0.2.1:49152 > 198.51.100.7:22 syn would get permit by rule 'ssh'" in caught.value.reason
    with pytest.raises(BadPolicy, match="1 more"):
        admin.acls.put(tenant, listed(SSH))
    for change in (
        lambda: admin.acls.insert_rule(tenant, rule_from_json(SSH)),
        lambda: admin.acls.put_rule(tenant, rule_from_json({**WEB, "destination_ports": [22, 443]})),
        lambda: admin.acls.delete_rule(tenant, "web"),
    ):
        with pytest.raises(BadPolicy, match="breaks the expectation"):
            change()
    assert admin.acls.read(tenant) == before


def test_an_override_is_explicit_and_leaves_a_trace(admin: Client, tenant: str) -> None:
    admin.expectations.keep(tenant, NOBODY)
    written = admin.acls.put(tenant, listed(WEB, SSH), despite=True)
    kinds = [each.kind for each in admin.events.read(limit=1000).items if each.subject == tenant]
    assert (written.changed, kinds.count("expectations.broken")) == (True, 1)
    admin.acls.put(tenant, listed(SSH, WEB))  # what was broken before is not held against a change
    admin.acls.put(tenant, listed(WEB))
    with pytest.raises(BadPolicy):
        admin.acls.put(tenant, listed(SSH, WEB))


def test_what_is_expected_is_kept_and_can_go(admin: Client, http: httpx.Client, tenant: str) -> None:
    assert admin.expectations.read(tenant).text == ""
    assert admin.acls.test(tenant).expectations == ()
    admin.expectations.keep(tenant, NOBODY)
    assert admin.expectations.read(tenant).text == NOBODY
    for wrong in ("", "al ice", "bob reaches 198.51.100.7:1", "10.0.0.1 reaches 10.0.0.2:1"):
        with pytest.raises(BadInput, match="expectations"):
            admin.expectations.keep(tenant, wrong)
    kept = admin.expectations.read(tenant)
    assert kept.text == NOBODY
    path, body = f"/v1/tenants/{tenant}/acl/expectations", {"text": "everybody reaches 198.51.100.7:443"}
    assert http.put(path, json=body, headers={"If-Match": f'"{kept.version}"'}).status_code == 200
    assert http.put(path, json=body, headers={"If-Match": f'"{kept.version}"'}).status_code == 412
    admin.expectations.delete(tenant)
    admin.acls.put(tenant, listed(SSH))


def test_names_are_those_of_endpoints_and_groups(admin: Client, tenant: str, domain: str) -> None:
    web1 = Endpoint("web1", TenantId(tenant), "tap1", 0x0A0000000001, (Prefix.parse("198.51.100.7/32"),))
    admin.domains.put_endpoint(domain, web1)
    group = {"db": {"prefixes": ["198.51.100.20/32"]}}
    admin.acls.put(tenant, acl_from_json({"rules": [WEB], "groups": group}))
    found = admin.acls.test(tenant, None, "everybody reaches web1:443\nnobody reaches @db:1", name="a")
    assert [each.kept for each in found.expectations] == [True, True]
    admin.expectations.keep(tenant, "nobody reaches @db:1")
    with pytest.raises(BadPolicy, match="cannot be judged any more"):
        admin.acls.put(tenant, listed(WEB))
    admin.acls.put(tenant, listed(WEB), despite=True)
    admin.domains.remove_endpoint(domain, "web1")


def test_a_draft_is_tested_and_changes_nothing(admin: Client, tenant: str) -> None:
    admin.expectations.keep(tenant, NOBODY)
    before = admin.acls.read(tenant)
    found = admin.acls.test(tenant, listed(WEB, SSH))
    (outcome,) = found.expectations
    assert (found.version, found.broken, outcome.kept) == (None, 1, False)
    assert outcome.packet is not None
    assert (outcome.packet.destination_port, outcome.decided[0].rule) == (22, "ssh")
    now = admin.acls.test(tenant)
    assert (now.version, now.broken) == (before.version, 0)
    with pytest.raises(BadPolicy):
        admin.acls.test(tenant, listed({**WEB, "destination": "203.0.113.9"}))
    assert admin.acls.read(tenant) == before


def test_a_draft_is_traced_in_the_place_of_the_list(admin: Client, tenant: str) -> None:
    assert admin.acls.trace(tenant, syn(22)).action == "deny"
    found = admin.acls.trace(tenant, syn(22), listed(WEB, SSH))
    assert (found.action, found.rule and found.rule["id"]) == ("permit", "ssh")
    assert admin.acls.trace(tenant, syn(22)).action == "deny"
    with pytest.raises(BadPolicy):
        admin.acls.trace(tenant, syn(22), listed({**WEB, "destination": "203.0.113.9"}))


def test_a_shared_draft_is_for_members_only(service: Served, admin: Client, tenant: str, domain: str) -> None:
    shared = admin.drafts.share(tenant, listed(WEB, SSH), base=1, message="look at ssh", days=3)
    found, acl = admin.drafts.read(tenant, shared.id)
    assert (found, acl) == (shared, listed(WEB, SSH))
    assert shared.expires - shared.created == dt.timedelta(days=3)
    with service.client(service.make_token(Role.MEMBER, tenant)) as member:
        assert member.drafts.read(tenant, shared.id)[1] == acl
        assert [each.id for each in member.drafts.read_all(tenant)] == [shared.id]
    admin.tenants.create(f"{tenant}-other", domain=domain)
    with service.client(service.make_token(Role.MEMBER, f"{tenant}-other")) as stranger:
        for name in (tenant, f"{tenant}-other"):
            with pytest.raises(NotFound):
                stranger.drafts.read(name, shared.id)
    admin.drafts.delete(tenant, shared.id)
    with pytest.raises(NotFound):
        admin.drafts.read(tenant, shared.id)
    admin.tenants.delete(f"{tenant}-other")


def test_shared_drafts_are_bounded(admin: Client, http: httpx.Client, tenant: str) -> None:
    for _ in range(MOST_DRAFTS):
        admin.drafts.share(tenant, listed(WEB), base=1)
    with pytest.raises(TooLarge, match="delete one"):
        admin.drafts.share(tenant, listed(WEB), base=1)
    path = f"/v1/tenants/{tenant}/acl/drafts"
    document = {"rules": []}
    for wrong in ({"days": 0}, {"days": 31}, {"base_version": -1}, {"message": "x" * 1001}, {"message": "two\nlines"}):
        assert http.post(path, json={"acl": document, "base_version": 1, **wrong}).status_code == 400, wrong
    assert http.get(f"{path}/../x").status_code == 404
    assert http.get(f"{path}/{'0' * 32}").status_code == 404
