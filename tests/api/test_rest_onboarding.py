"""Onboarding over REST: what is asked for is kept and worked on; what cannot be is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from patience import until
from served import Served, served

from orchestrator.client import Client, Host
from orchestrator.errors import BadInput, Conflict, Forbidden, NotFound, Unauthenticated
from orchestrator.identity.requests import EnrolmentToken, new_key, request_of
from orchestrator.settings import load

ASKED = {"name": "host1", "machine": {"address": "local"}, "uplink": "eth1", "controllers": ["tcp:192.0.2.1:6653"]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One whose machine has no Open vSwitch where it looks for it, and no Ansible."""
    folder = tmp_path_factory.mktemp("service")
    with served(folder, local_switch=folder / "nothing", ansible=str(folder / "no-such-program")) as running:
        yield running


@pytest.fixture(scope="module")
def domain(admin: Client) -> str:
    return admin.domains.create("machines").id


def ended(admin: Client, domain: str, host: str) -> str:
    until(lambda: not admin.onboarding.read(domain, host).under_way, what=lambda: admin.onboarding.read(domain, host))
    return admin.onboarding.read(domain, host).error or ""


def test_what_is_asked_for_is_under_way_and_fails_with_what_to_change(admin: Client, domain: str) -> None:
    seen = admin.onboarding.begin(domain, ASKED)
    assert (seen.name, seen.machine, seen.uplink, seen.state) == ("host1", "local", "eth1", "adding")
    assert "does not run" in ended(admin, domain, "host1") or "does not answer" in ended(admin, domain, "host1")
    assert [each.name for each in admin.onboarding.read_all(domain)] == ["host1"]
    assert admin.domains.read_hosts(domain) == (), "the domain does not wait for a machine that is not ready"
    kinds = [event.kind for event in admin.events.read().items if event.subject == domain]
    assert {"onboarding.asked", "onboarding.step", "onboarding.failed"} <= set(kinds)


def test_another_machine_needs_ansible(admin: Client, domain: str) -> None:
    admin.onboarding.begin(domain, {**ASKED, "name": "host2", "machine": {"address": "192.0.2.12", "user": "debian"}})
    assert "ansible-core" in ended(admin, domain, "host2")


def test_ansible_is_told_how_to_ask_for_a_certificate_and_to_join(tmp_path: Path) -> None:
    """With tokens for that alone, which are good no more when it ends; meanwhile it waits for `done`."""
    program = tmp_path / "ansible-playbook"
    lines = [
        "#!/bin/sh",
        f'cp "$2" {tmp_path}/inventory',
        f'cp "${{4#@}}" {tmp_path}/variables.new',
        f"mv {tmp_path}/variables.new {tmp_path}/variables",
        f"while ! test -e {tmp_path}/done; do sleep 0.05; done",
        "exit 3",
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    remote = {"machine": {"address": "192.0.2.13"}, "controller": {"address": "192.0.2.1"}, "controllers": []}
    with served(tmp_path, tls=True, ansible=str(program)) as running, running.client() as admin:
        admin.domains.create("far")
        admin.onboarding.begin("far", {**ASKED, **remote, "tls": True})
        until((tmp_path / "variables").exists)
        told = json.loads((tmp_path / "variables").read_text())
        assert "ACLFLOW_TOKEN" not in told["aclflow_asking"], "it is no administrator"
        asked = request_of(new_key(), "host1")
        with running.client("") as playbook:
            made = playbook.enrolment.enrol_switch(told["aclflow_switch_token"], name="host1", csr=asked)
            with pytest.raises(Unauthenticated):
                playbook.enrolment.enrol_switch(
                    told["aclflow_switch_token"], name="host1", csr=request_of(new_key(), "host1")
                )
            with pytest.raises(Forbidden, match="controller-192"):
                playbook.enrolment.enrol(
                    told["aclflow_invitation_token"], name="c", kind="openflow", csr=request_of(new_key(), "c")
                )
            (tmp_path / "done").touch()
            assert "ended with 3" in ended(admin, "far", "host1")
            name = "controller-192.0.2.1"
            with pytest.raises(Unauthenticated):
                playbook.enrolment.enrol(
                    told["aclflow_invitation_token"], name=name, kind="openflow", csr=request_of(new_key(), name)
                )
        assert made.certificate.startswith("-----BEGIN CERTIFICATE")
        assert len(list(admin.tokens.read_all())) == 1, "the administrator's own"
        assert Path(told["aclflow_authority_source"]).read_text() == admin.enrolment.read_authority()
        assert EnrolmentToken.parse(told["aclflow_invitation_token"]).pin is not None
    everybody = json.loads((tmp_path / "inventory").read_text())["all"]
    assert everybody["vars"]["aclflow_service_host"] in everybody["hosts"]


def test_a_host_without_a_machine_is_as_it_always_was(admin: Client, domain: str) -> None:
    admin.domains.add_host(domain, Host("plain", 0xABC, "up"))
    assert [host.name for host in admin.domains.read_hosts(domain)] == ["plain"]
    with pytest.raises(Conflict, match="already has a host"):
        admin.onboarding.begin(domain, {**ASKED, "name": "plain"})
    with pytest.raises(NotFound):
        admin.onboarding.give_back(domain, "plain")
    admin.domains.remove_host(domain, "plain")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"controllers": ["6653"]}, r"controllers\[0\]"),
        ({"controllers": []}, "controllers"),
        ({"uplink": "an uplink"}, "uplink"),
        ({"machine": {"address": "-oProxyCommand=x"}}, "address"),
        ({"essential_services": {"dns": ["nobody"]}}, r"essential_services\.dns\[0\]"),
        ({"controllers": ["ssl:192.0.2.1:6653"]}, "tls"),
        ({"controller": {"address": "192.0.2.2"}}, "controller"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    admin: Client, domain: str, change: dict[str, object], place: str
) -> None:
    with pytest.raises(BadInput, match=place):
        admin.onboarding.begin(domain, {**ASKED, "name": "wrong", **change})
    with pytest.raises(NotFound):
        admin.onboarding.read(domain, "wrong")


def test_words_about_a_switch_without_its_machine_are_refused(http: httpx.Client, domain: str) -> None:
    path = f"/v1/domains/{domain}/hosts"
    answer = http.post(path, json={"name": "x", "uplink": "up", "datapath_id": "0" * 15 + "1", "adopt": True})
    assert (answer.status_code, answer.json()["place"]) == (400, "adopt")
    answer = http.post(path, json={"name": "x", "uplink": "up"})
    assert (answer.status_code, answer.json()["place"]) == (400, "datapath_id")


def test_asked_for_twice_with_a_key_it_is_asked_for_once(http: httpx.Client, domain: str) -> None:
    asked = {**ASKED, "name": "keyed"}
    first, again = (
        http.post(f"/v1/domains/{domain}/hosts", json=asked, headers={"Idempotency-Key": "k1"}) for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.headers["Location"] == f"/v1/domains/{domain}/onboardings/keyed"
    assert first.json() == again.json()


def test_tenants_may_not_ask(service: Served, admin: Client, domain: str) -> None:
    admin.tenants.create("curious", domain=domain)
    _, token = admin.tokens.create("member", tenant="curious")
    with service.client(token) as tenant, pytest.raises(NotFound):
        tenant.onboarding.begin(domain, ASKED)


def test_the_folder_of_a_switch_is_a_setting(tmp_path: Path) -> None:
    assert load({"ACLFLOW_LOCAL_SWITCH": str(tmp_path)}).local_switch == tmp_path
    assert load({}).local_switch is None
