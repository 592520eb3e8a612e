"""What a tenant's member can provoke says nothing of a neighbour: not its name, addresses, endpoints, groups or rules.

Each request names something of the neighbour, and then something that does not exist: both get the same answer, but
for the name that the request itself brought.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI, Request
from served import Served

from api import problems
from orchestrator.client import Client, Host
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.records import Principal, Role

ANY = {"If-Match": "*"}
SECRETS = {
    "zorvex": "absent",
    "203.0.113.": "198.18.5.",
    "vault-nic": "absent-nic",
    "tapvault7": "tapabsent",
    "quagga": "absentgroup",
    "zebra-rule": "absentrule",
    "host-kestrel": "host-absent",
    "fw-kestrel": "fw-absent",
}
"""What is the neighbour's, or the operator's, and what is nobody's."""

LIST = {"rules": [{"id": "mine", "action": "permit", "protocol": "tcp", "source": "192.0.2.7", "log": True}]}
ACL, ME = "/v1/tenants/me/acl", "/v1/tenants/me"
FAR = "203.0.113.9"
PACKET = {"source": FAR, "destination": "198.51.100.9", "protocol": "tcp", "destination_port": 22}
OUT = {"source": "198.51.100.9", "destination": FAR, "protocol": "tcp", "destination_port": 22}


def of_list(**rule: object) -> dict[str, object]:
    return {"rules": [{"id": "r", "action": "permit", **rule}]}


REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("PUT", ACL, of_list(destination="203.0.113.0/24")),
    ("PUT", ACL, of_list(destination="203.0.113.9/32")),
    ("PUT", ACL, of_list(direction="egress", source="203.0.113.0/24")),
    ("PUT", ACL, of_list(source="203.0.113.0/24")),
    ("PUT", ACL, of_list(source="@quagga")),
    ("PUT", ACL, of_list(destination="@endpoint:vault-nic")),
    ("PUT", ACL, {"rules": [], "groups": {"endpoint:vault-nic": {"prefixes": ["203.0.113.9"]}}}),
    ("PUT", ACL, {"rules": [], "taken_from": {"tenant": "zorvex", "version": 1}}),
    ("POST", f"{ACL}/check", of_list(destination="203.0.113.0/24")),
    ("POST", f"{ACL}/check", of_list(source="203.0.113.0/24")),
    ("POST", f"{ACL}/check", of_list(direction="egress", destination="203.0.113.0/24")),
    ("POST", f"{ACL}/traffic", of_list(source="203.0.113.0/24")),
    ("POST", f"{ACL}/trace", PACKET),
    ("POST", f"{ACL}/trace", OUT),
    ("POST", f"{ACL}/blame", PACKET),
    ("POST", f"{ACL}/bisect", OUT),
    ("POST", f"{ACL}/test", {"expectations": "nobody reaches vault-nic:22"}),
    ("POST", f"{ACL}/test", {"expectations": "nobody reaches 203.0.113.9:22"}),
    ("POST", f"{ACL}/test", {"expectations": "zorvex reaches 198.51.100.9:22"}),
    ("POST", f"{ACL}/test", {"expectations": "203.0.113.9 reaches 198.51.100.9:22"}),
    ("PUT", f"{ACL}/expectations", {"text": "nobody reaches vault-nic:22"}),
    ("PUT", f"{ACL}/expectations", {"text": "everybody reaches 203.0.113.9:22"}),
    ("POST", f"{ACL}/rules", {"id": "r", "action": "permit", "destination": "203.0.113.9"}),
    ("PUT", f"{ACL}/rules/zebra-rule", {"id": "zebra-rule", "action": "permit", "destination": "203.0.113.9"}),
    ("DELETE", f"{ACL}/rules/zebra-rule", None),
    ("GET", f"{ACL}/rules/zebra-rule", None),
    ("GET", f"{ACL}/groups/quagga", None),
    ("DELETE", f"{ACL}/groups/quagga", None),
    ("PUT", f"{ACL}/groups/endpoint:vault-nic", {"prefixes": ["203.0.113.9"]}),
    ("POST", f"{ACL}/groups/quagga/members", {"add": ["203.0.113.9"]}),
    ("POST", f"{ACL}/waivers", {"kind": "wide", "rules": ["zebra-rule"], "reason": "x", "ends": "2101-01-01T00:00Z"}),
    ("POST", f"{ACL}/drafts", {"acl": of_list(destination="203.0.113.9"), "base_version": 1}),
    ("POST", f"{ME}/prefixes", {"prefix": "203.0.113.0/25"}),
    ("PUT", f"{ME}/prefixes", {"prefixes": ["203.0.113.0/25"]}),
    ("POST", "/v1/tenants", {"id": "zorvex", "domain": "pop"}),
    ("POST", "/v1/tenants:batch", {"domain": "pop", "tenants": [{"id": "zorvex"}]}),
    ("PUT", "/v1/domains/pop/endpoints/vault-nic", {
        "tenant": "me", "port": "tapvault7", "mac": "0a:00:00:00:00:02", "prefixes": ["203.0.113.9/32"],
    }),
    ("GET", "/v1/domains/pop/endpoints/vault-nic", None),
    ("GET", "/v1/domains/pop/hosts/host-kestrel", None),
    ("GET", "/v1/tenants/zorvex", None),
    ("GET", "/v1/tenants/zorvex/acl", None),
    ("GET", "/v1/events?tenant=zorvex", None),
    ("GET", "/v1/audit?tenant=zorvex", None),
    ("GET", "/v1/tenants?marker=zorvex", None),
    ("GET", "/v1/tenants?domain=pop", None),
    ("POST", "/v1/tokens", {"role": "member", "tenant": "zorvex"}),
)  # fmt: skip
SEEN = (
    ME, ACL, f"{ME}/prefixes", f"{ME}/quota", f"{ME}/endpoints", f"{ACL}/versions", f"{ACL}/findings", f"{ACL}/cost",
    f"{ACL}/hits", f"{ACL}/log", f"{ACL}/waivers", f"{ACL}/drafts", f"{ACL}/groups", f"{ACL}/expectations",
    f"{ME}/proposals", "/v1/tenants", "/v1/events?limit=1000", "/v1/audit?limit=1000", "/v1/domains",
    "/v1/domains/pop", "/v1/domains/pop/hosts", "/v1/domains/pop/firewalls", "/v1/domains/pop/generations/2",
    "/v1/domains/pop/endpoints", "/v1/domains/pop/operator-rules", "/v1/tokens/mine", "/metrics", "/readyz", "/healthz",
)  # fmt: skip


@dataclass(frozen=True)
class Callers:
    """Two who see the tenant `me` alone."""

    member: httpx.Client
    reader: httpx.Client


@pytest.fixture(scope="module")
def callers(service: Served, admin: Client) -> Iterator[Callers]:
    admin.domains.create("pop")
    admin.domains.add_host("pop", Host("host-kestrel", 0x51, "up0"))
    admin.firewalls.add("pop", "fw-kestrel", "iptables")
    for name, prefix in (("me", "198.51.100.0/24"), ("zorvex", "203.0.113.0/24")):
        admin.tenants.create(name, domain="pop", prefixes=[Prefix.parse(prefix)])
    admin.acls.put("me", acl_from_json(LIST))
    theirs = {"groups": {"quagga": {"prefixes": ["198.51.100.0/25"]}}, **of_list(id="zebra-rule", source="@quagga")}
    admin.acls.put("zorvex", acl_from_json(theirs), comment="for zorvex")
    admin.domains.put_endpoint(
        "pop", Endpoint("vault-nic", TenantId("zorvex"), "tapvault7", 0x0A0000000001, (Prefix.parse("203.0.113.9/32"),))
    )
    with (
        service.http(service.make_token(Role.MEMBER, "me")) as member,
        service.http(service.make_token(Role.READER, "me")) as reader,
    ):
        yield Callers(member, reader)


def exchange(text: str) -> str:
    """The same with what is nobody's in the place of what is the neighbour's."""
    for secret, nobody in SECRETS.items():
        text = text.replace(secret, nobody)
    return text


VARYING = re.compile(r'"(version|generation|created|time|since|expires|base_version|id)": ?("[^"]*"|\d+)')
"""What differs between two answers to the same request."""


def varying(text: str) -> str:
    return VARYING.sub("", text)


def ask(http: httpx.Client, method: str, path: str, body: object) -> tuple[int, str]:
    answer = http.request(method, path, json=body, headers=ANY)
    if method == "GET":
        return answer.status_code, answer.text
    put_back = http.put(ACL, json=LIST, headers=ANY)
    assert put_back.status_code in {200, 403}, put_back.text
    return answer.status_code, answer.text


@pytest.mark.parametrize("role", ["member", "reader"])
@pytest.mark.parametrize("path", SEEN)
def test_what_a_tenant_reads_names_no_neighbour(callers: Callers, role: str, path: str) -> None:
    text = getattr(callers, role).get(path).text
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize("role", ["member", "reader"])
@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=lambda each: str(each)[:60])
def test_what_is_a_neighbours_is_answered_as_what_is_nobodys(
    callers: Callers, role: str, method: str, path: str, body: object
) -> None:
    http: httpx.Client = getattr(callers, role)
    status, text = ask(http, method, path, body)
    other, expected = ask(http, method, exchange(path), json.loads(exchange(json.dumps(body))))
    assert (status, exchange(varying(text))) == (other, exchange(varying(expected)))
    asked = path + json.dumps(body)
    for secret in SECRETS:
        assert secret in asked or secret not in text


@pytest.mark.parametrize(("tenant", "says"), [("me", False), ("zorvex", True), (None, True)])
def test_an_error_about_another_tenants_list_is_answered_without_its_words(tenant: str | None, says: bool) -> None:
    """Should a change ever be refused for what a neighbour's list says, its author learns that alone."""
    caller = Principal(1, Role.ADMIN) if tenant is None else Principal(1, Role.MEMBER, TenantId(tenant))
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    async def fail(request: Request) -> None:
        request.scope[problems.PRINCIPAL] = caller
        raise TooLarge("rule 'zebra-rule' needs most of them", place="tenants[zorvex].acl.rules[3]")

    async def ask_it() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await client.get("/")

    answer = asyncio.run(ask_it())
    assert answer.status_code == 413
    assert [secret in answer.text for secret in ("zorvex", "zebra-rule")] == [says, says]
    assert says or "beside the lists of others" in answer.json()["detail"]
