"""Confirm or revert over HTTP."""

from __future__ import annotations

import itertools

import pytest
from served import Served

from orchestrator.client import Client
from orchestrator.errors import Conflict
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl

_numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def _domain(admin: Client) -> None:
    admin.domains.create("pop")


@pytest.fixture
def tenant(admin: Client) -> str:
    """A tenant with a /16 of its own, and a list of one rule."""
    name = f"t{next(_numbers)}"
    admin.tenants.create(name, domain="pop", prefixes=[Prefix.parse(f"10.{name[1:]}.0.0/16")])
    admin.acls.put(name, rules("web"))
    return name


def rules(*names: str) -> Acl:
    return acl_from_json({"rules": [{"id": name, "action": "permit", "protocol": "tcp"} for name in names]})


def ids(admin: Client, tenant: str) -> list[str]:
    return [rule.id for rule in admin.acls.read(tenant).acl.rules]


def test_a_change_waits_to_be_confirmed(admin: Client, tenant: str) -> None:
    written = admin.acls.put(tenant, rules("other"), confirm_s=60)
    waiting = admin.tenants.read(tenant).unconfirmed
    assert waiting is not None
    assert (waiting.version, waiting.back_to) == (written.version, written.version - 1)
    with pytest.raises(Conflict, match="waits until"):
        admin.acls.put(tenant, rules())
    assert admin.acls.confirm(tenant).version == written.version
    assert admin.tenants.read(tenant).unconfirmed is None
    assert ids(admin, tenant) == ["other"]


def test_a_change_is_taken_back_at_once(admin: Client, tenant: str) -> None:
    written = admin.acls.put(tenant, rules(), confirm_s=60)
    back = admin.acls.revert(tenant)
    assert (back.version, ids(admin, tenant)) == (written.version + 1, ["web"])
    with pytest.raises(Conflict, match="no change"):
        admin.acls.revert(tenant)


def test_a_change_that_changes_nothing_waits_for_nobody(admin: Client, tenant: str) -> None:
    assert not admin.acls.put(tenant, rules("web"), confirm_s=60).changed
    assert admin.tenants.read(tenant).unconfirmed is None


@pytest.mark.parametrize("verb", ["confirm", "revert"])
def test_settling_is_done_once_for_a_key(admin: Client, service: Served, tenant: str, verb: str) -> None:
    admin.acls.put(tenant, rules("other"), confirm_s=60)
    with service.http() as http:
        path, key = f"/v1/tenants/{tenant}/acl/{verb}", {"Idempotency-Key": f"{tenant}-{verb}"}
        first, again = (http.post(path, headers=key) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
