"""Stories about endpoints by name: in rules, which follow their addresses, and in traces."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from command_line import Ended
from served import Served

from orchestrator.client import Client, Host
from orchestrator.errors import BadPolicy, Conflict
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import AddressGroup, Endpoint, GroupName, TenantId
from orchestrator.store.records import Role

Run = Callable[..., Ended]
_numbers = itertools.count(1)


def placed(name: str, tenant: str, *addresses: str) -> Endpoint:
    """An endpoint at a port of its own."""
    number = next(_numbers)
    mac = 0x020000000000 + number
    return Endpoint(name, TenantId(tenant), f"tap{number}", mac, tuple(map(Prefix.parse, addresses)))


@pytest.fixture
def tenant(run: Run, service: Served) -> str:
    """A tenant with a web server, web1, and a database, db, in a domain whose programs are made."""
    name = f"e-{next(_numbers)}"
    net = f"10.{next(_numbers)}"
    with service.client() as client:
        client.domains.create(f"d-{name}")
        client.domains.add_host(f"d-{name}", Host("h1", 0x100 + next(_numbers), "up0"))
        client.tenants.create(name, domain=f"d-{name}", prefixes=[Prefix.parse(f"{net}.0.0/16")])
        client.domains.put_endpoint(f"d-{name}", placed("web1", name, f"{net}.0.1"))
        client.domains.put_endpoint(f"d-{name}", placed("db", name, f"{net}.0.2"))
    return name


def addresses(client: Client, tenant: str, endpoint: str) -> list[str]:
    return [str(prefix) for prefix in client.groups.read_members(tenant, f"endpoint:{endpoint}")]


def net_of(client: Client, tenant: str) -> str:
    return ".".join(client.tenants.read(tenant).prefixes[0].split(".")[:2])


def added(run: Run, tenant: str, *more: str, **named: Any) -> Ended:
    words = ("--permit", "-p", "tcp", "-s", "any", "-d", "web1", "--port", "https", "--yes", "--no-wait")
    return run("acl", "rule", "add", tenant, "web", *words, *more, **named)


def test_a_rule_follows_the_endpoint_that_it_names(run: Run, tenant: str, service: Served) -> None:
    """Permit https to web1; web1 gets another address; the rule means that one, without an edit."""
    member = service.make_token(Role.MEMBER, tenant)
    ended = added(run, tenant, token=member)
    assert ended.code == 0, ended.err
    with service.client() as client:
        net = net_of(client, tenant)
        assert client.acls.read_rule(tenant, "web").rule.destination.groups == ("endpoint:web1",)
        assert addresses(client, tenant, "web1") == [f"{net}.0.1/32"]
        packet = ("-s", "192.0.2.9", "-d", "web1", "--port", "https")
        assert "permit, by rule 'web'" in run("acl", "trace", tenant, *packet, token=member).out
        before = client.acls.read(tenant).version
        assert before == 1, "the endpoint's group came with the rule, in one version"
        moved = placed("web1", tenant, f"{net}.0.9", f"{net}.0.10")
        client.domains.put_endpoint(f"d-{tenant}", moved, etag='"1"')
        assert addresses(client, tenant, "web1") == [f"{net}.0.9/32", f"{net}.0.10/32"]
        assert client.acls.read(tenant).version == before + 1
        assert "permit, by rule 'web'" in run("acl", "trace", tenant, *packet).out
        assert run("acl", "trace", tenant, "-s", "192.0.2.9", "-d", f"{net}.0.1", "--port", "443").code == 1
        older = run("acl", "trace", f"{tenant}@{before}", "-s", "192.0.2.9", "-d", f"{net}.0.1", "--port", "443")
        assert older.code == 0, "an older version says what it said then"
        back = run("acl", "restore", tenant, str(before), "--yes", "--no-wait")
        assert back.code == 0, back.err
        assert addresses(client, tenant, "web1") == [f"{net}.0.9/32", f"{net}.0.10/32"], "an older list follows as well"


def test_an_endpoint_that_a_rule_names_stays(run: Run, tenant: str, service: Served) -> None:
    assert added(run, tenant).code == 0
    refused = run("domain", "endpoint", "remove", f"d-{tenant}", "web1")
    assert (refused.code, "web" in refused.err) == (1, True)
    with service.client() as client:
        client.tenants.create(f"{tenant}-2", domain=f"d-{tenant}", prefixes=[Prefix.parse("172.16.0.0/16")])
        with pytest.raises(Conflict, match="rules still use"):
            client.domains.put_endpoint(f"d-{tenant}", placed("web1", f"{tenant}-2", "172.16.0.1"), etag='"1"')
        assert {each.name for each in client.domains.read_endpoints(f"d-{tenant}")} == {"web1", "db"}
        assert run("acl", "rule", "delete", tenant, "web", "--yes", "--no-wait").code == 0
        assert run("domain", "endpoint", "remove", f"d-{tenant}", "web1").code == 0
        assert [group.name for group in client.groups.read_all(tenant)] == []


def test_what_the_service_keeps_is_not_written_by_hand(run: Run, tenant: str, service: Served) -> None:
    assert added(run, tenant).code == 0
    everybody = Prefix.parse("0.0.0.0/0")
    with service.client() as client:
        with pytest.raises(BadPolicy, match="follows endpoint 'web1'"):
            client.groups.put(tenant, AddressGroup(GroupName("endpoint:web1"), (everybody,)))
        with pytest.raises(BadPolicy, match="follows endpoint 'web1'"):
            client.groups.change_members(tenant, "endpoint:web1", add=[everybody])
        kept = addresses(client, tenant, "web1")
    text = run("acl", "show", tenant, "--json").out.replace(kept[0], "203.0.113.0/24")
    assert run("acl", "apply", tenant, "-", "--yes", "--no-wait", stdin=text).code in {0, 1}
    with service.client() as client:
        assert addresses(client, tenant, "web1") == kept


@pytest.mark.parametrize("name", ["ghost", "anyy", "ALL", "x" * 55])
def test_an_endpoint_that_is_not_there_is_told(run: Run, tenant: str, service: Served, name: str) -> None:
    words = ("--permit", "-p", "tcp", "-s", "any", "-d", name, "--port", "443", "--yes")
    ended = run("acl", "rule", "add", tenant, "new", *words)
    told = f"aclflow: --destination: '{name}' is no address, and {tenant} has no endpoint of that name\n"
    assert (ended.code, ended.err) == (1, told)
    with service.http() as http:
        rule = {"id": "new", "action": "permit", "destination": name}
        told = http.post(f"/v1/tenants/{tenant}/acl/rules", json=rule)
        assert (told.status_code, told.json()["place"]) == (422, "destination"), told.text
    traced = run("acl", "trace", tenant, "-s", "192.0.2.9", "-d", name, "--port", "443")
    assert (traced.code, "--destination" in traced.err) == (2, True)


def test_another_tenants_endpoint_is_not_there(run: Run, tenant: str, service: Served) -> None:
    with service.client() as client:
        client.tenants.create(f"{tenant}-3", domain=f"d-{tenant}", prefixes=[Prefix.parse("172.17.0.0/16")])
        reference = rule_from_json({"id": "spy", "action": "permit", "source": "@endpoint:web1"})
        with pytest.raises(BadPolicy, match="no endpoint 'web1'"):
            client.acls.insert_rule(f"{tenant}-3", reference)


def test_a_search_takes_an_endpoint_as_a_trace_does(run: Run, tenant: str, service: Served) -> None:
    assert added(run, tenant, token=service.make_token(Role.MEMBER, tenant)).code == 0
    assert [rule["id"] for rule in run("acl", "rule", "list", tenant, "web1:443", "--json").json()] == ["web"]
    assert run("acl", "rule", "list", tenant, "db:443", "--json").json() == []
    ended = run("acl", "rule", "list", tenant, "web9:443")
    assert ended.code == 2
    assert ended.err == "aclflow: WORD: 'web9' is no address, and no endpoint of the tenant\n"
