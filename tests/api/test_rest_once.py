"""Idempotency keys: every POST that makes something is carried out once, whatever happens in between."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx
import pytest
from served import Served, ServiceProcess

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store.records import Role
from orchestrator.wire.firewalls import Plane

READS = ("/check", "/traffic", "/trace", "/blame", "/bisect", "/try", "/test")
"""POSTs that change nothing."""
OF_ENFORCERS = (
    "/enrol",
    "/enrol/switch",
    "/epoch",
    "/report",
    "/counts",
    "/claim",
    "/certificate",
    "/enforcers/{enforcer}/token",
    "/log",
)
"""Their own ways of being safe to repeat: a one-time token, a growing number, the numbers of reports of all kinds, the
key that is to be certified."""
ROUNDS = ("/heavy",)
"""Had as often as they are asked for: each looks at what was counted since the one before."""
OF_AUTHORITIES = ("/enrolment-groups",)
"""What needs a service with a certificate authority: see `tests/machines`."""

SETTLING = ("/confirm", "/revert", "/approval", "/rejection", "/withdrawal")
"""What settles a change that waits: see `test_rest_confirm.py` and `test_rest_two_persons.py`."""

RULE = {"id": "r", "action": "permit"}
MAKING = {
    "/v1/domains": {"id": "once2"},
    "/v1/domains/once/hosts": {"name": "h", "datapath_id": "00000000000000aa", "uplink": "up0"},
    "/v1/domains/once/enrolment-tokens": {},
    "/v1/domains/once/firewalls": {"name": "fw", "plane": "nftables"},
    "/v1/domains/once/fleet/members/fw-0/drain": None,
    "/v1/capacities": {"plane": "nftables", "source": "once", "measured": [{"rules": 1, "octets": 64, "pps": 1e5}]},
    "/v1/pops": {"name": "once2", "domain": "once3", "outside": ["up0"]},
    "/v1/pops/once/edges": {"name": "e", "datapath_id": "00000000000000ab", "uplink": "up0"},
    "/v1/pops/once/servers": {"name": "fs", "port": "to-fs", "mac": "0a:00:00:00:00:01"},
    "/v1/pops/once/rebuild": None,
    "/v1/tenants": {"id": "once2", "domain": "once"},
    "/v1/tenants:batch": {"domain": "once", "tenants": [{"id": "once4"}, {"id": "once5"}]},
    "/v1/tenants/once/acl/drafts": {"acl": {"rules": [RULE]}, "base_version": 1},
    "/v1/tenants/once/acl/waivers": {
        "kind": "group",
        "group": "g",
        "reason": "on purpose",
        "ends": "2999-01-01T00:00:00Z",
    },
    "/v1/tenants/once/prefixes": {"prefix": "10.77.0.0/16"},
    "/v1/tenants/once/acl/rules": RULE,
    "/v1/tenants/once/acl/groups/g/members": {"add": ["192.0.2.1"]},
    "/v1/tenants/once/acl/versions/0/restore": None,
    "/v1/tokens": {"role": "reader", "tenant": "once"},
    "/v1/tokens/1/rotation": {"overlap_s": 86400.0},
}
SECRET = {"/v1/domains/once/enrolment-tokens", "/v1/tokens", "/v1/tokens/1/rotation"}


@pytest.fixture(scope="module", autouse=True)
def _made(admin: Client, service: Served) -> None:
    admin.domains.create("once")
    admin.domains.create("once3")
    admin.pops.add("once", "once", ("up0",))
    admin.firewalls.add("once", "fs", "nftables")
    admin.fleet.configure("once", {"size": 1})
    with service.service.parts.store.write() as unit:
        unit.fleets.ask("once", 1, Plane.NFTABLES, "to be drained")
    admin.tenants.create("once", domain="once")
    admin.acls.put("once", acl_from_json({"groups": {"g": {"prefixes": []}}, "rules": []}))


def test_every_post_is_tried(http: httpx.Client) -> None:
    paths = http.get("/v1/openapi.json").json()["paths"]
    posts = {
        path
        for path, item in paths.items()
        if "post" in item and not path.endswith((*READS, *OF_ENFORCERS, *ROUNDS, *OF_AUTHORITIES, *SETTLING))
    }
    names = {
        "{pop}": "once",
        "{tenant}": "once",
        "{domain}": "once",
        "{group}": "g",
        "{version}": "0",
        "{member}": "fw-0",
        "{token}": "1",
    }
    for name, value in names.items():
        posts = {path.replace(name, value) for path in posts}
    assert posts == set(MAKING)


@pytest.mark.parametrize("path", MAKING)
def test_it_is_carried_out_once(service: Served, http: httpx.Client, path: str) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex, "If-Match": "*"}
    first = http.post(path, json=MAKING[path], headers=headers)
    assert first.status_code in (200, 201), first.text
    before = state(service)
    again = http.post(path, json=MAKING[path], headers=headers)
    if path in SECRET:
        assert (again.status_code, again.json()["place"]) == (409, "Idempotency-Key")
        assert first.headers["Location"] in again.json()["detail"]
    else:
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers.get("ETag") == first.headers.get("ETag")
    elsewhere = next(each for each in MAKING if each != path)
    other = http.post(elsewhere, json=MAKING[elsewhere], headers=headers)
    assert (other.status_code, other.json()["place"]) == (409, "Idempotency-Key")
    assert state(service) == before


def state(service: Served) -> tuple[int, int]:
    """The log's end, and how many tokens there are."""
    with service.service.parts.store.read() as unit:
        return unit.events.last_id(), len(unit.tokens.list())


def test_only_so_many_answers_are_kept_for_a_token(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def post(key: str, number: int) -> httpx.Response:
        return http.post("/v1/domains", json={"id": f"kept-{number}"}, headers={"Idempotency-Key": key})

    first, key = uuid.uuid4().hex, uuid.uuid4().hex
    assert post(first, 1).status_code == 201
    monkeypatch.setattr("orchestrator.store.replies.MOST_KEPT", 1)
    refused = post(key, 2)
    assert (refused.status_code, refused.json()["place"]) == (429, "Idempotency-Key")
    assert http.get("/v1/domains/kept-2").status_code == 404, "nothing is done without being kept"
    assert post(first, 1).status_code == 201, "what was done is still answered"


def test_a_secret_is_kept_nowhere(service: Served, http: httpx.Client) -> None:
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    secret = http.post("/v1/tokens", json={"role": "admin"}, headers=headers).json()["token"]
    for path in filter(Path.is_file, service.settings.state_dir.rglob("*")):
        assert secret.encode() not in path.read_bytes(), path


def test_a_key_outlives_the_process_that_answered(tmp_path: Path) -> None:
    """Killed after it has answered: started anew, it gives the same answer and does nothing."""
    process = ServiceProcess(tmp_path)
    token = create_token(process.settings, Role.ADMIN).secret
    headers = {"X-Auth-Token": token, "Idempotency-Key": "k"}
    answers = []
    for _ in range(2):
        process.start()
        answers.append(httpx.post(f"{process.url}/v1/domains", json={"id": "one"}, headers=headers, timeout=30))
        process.kill()
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
