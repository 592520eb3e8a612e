"""Machines enrol: by a token, once, and are known by their certificates from then on; switches, and what is forged."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from identity.handshake import written
from machines.machine import Machine, another, secret_of
from served import served

from orchestrator.client import Client
from orchestrator.errors import AclflowError, BadInput, Forbidden, NotFound, Unauthenticated, Unreachable
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.files import AuthorityDir
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key, request_of
from orchestrator.identity.trust import client_context

OPENAPI = Path(__file__).parents[1] / "api/openapi.json"


def test_who_has_enrolled_is_known_by_its_certificate_and_by_no_token(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.enrolment.invite("pop1"))
    assert (found.token, found.name, found.domain) == ("", machine.name, "pop1")
    with machine.client() as client:
        assert client.points.begin_epoch("pop1", found.enforcer) > found.epoch
        assert client.tokens.read_own().role == "enforcer"
        for denied in (lambda: list(client.tenants.read_all()), lambda: client.enrolment.invite("pop1")):
            with pytest.raises((NotFound, Forbidden)):
                denied()
    with machine.service.client("") as stranger, pytest.raises(Unauthenticated):
        stranger.points.begin_epoch("pop1", found.enforcer)


def test_a_token_does_not_count_over_the_connection_of_a_machine(machine: Machine, admin: Client) -> None:
    machine.enrol(admin.enrolment.invite("pop1"))
    with machine.client(machine.service.token) as both, pytest.raises(BadInput, match="known by your certificate"):
        list(both.tenants.read_all())


def test_nothing_that_a_request_says_makes_somebody_a_machine(machine: Machine, admin: Client) -> None:
    """The fingerprint is the server's own word: no header stands for it."""
    machine.enrol(admin.enrolment.invite("pop1"))
    assert machine.file is not None
    names = ("aclflow.certificate", "X-Aclflow-Certificate", "X-SSL-Client-Cert", "X-Forwarded-Client-Cert")
    said = {name: machine.file.read_text().replace("\n", " ").strip() for name in names}
    with httpx.Client(verify=another(machine).trust(), headers=said) as http:
        assert http.get(f"{machine.service.url}/v1/tokens/mine").status_code == 401


@pytest.mark.parametrize(
    ("forge", "error"),
    [
        (lambda m, t: m.enrol(t + "x"), Unauthenticated),
        (lambda m, t: m.enrol("aclflow_" + "A" * 43), Unauthenticated),
        (lambda m, t: m.enrol(t, csr=request_of(m.key, "somebody-else")), BadInput),
        (lambda m, t: m.enrol(t, csr="-----BEGIN CERTIFICATE REQUEST-----\n"), BadInput),
        (lambda m, t: m.enrol(t, name="not a name"), BadInput),
    ],
)
def test_a_forged_enrolment_is_refused_and_uses_nothing_up(
    machine: Machine, admin: Client, forge: Callable[[Machine, str], object], error: type[AclflowError]
) -> None:
    token = secret_of(admin.enrolment.invite("pop1"))
    with pytest.raises(error):
        forge(machine, token)
    machine.enrol(token)
    with pytest.raises(Unauthenticated):
        another(machine).enrol(token)


def test_a_replayed_enrolment_gives_the_thief_nothing(machine: Machine, admin: Client) -> None:
    """Who has listened in has the token and the request, and gets the certificate: without the key it is of no use."""
    token = admin.enrolment.invite("pop1")
    first = machine.enrol(token)
    thief = another(machine)
    again = thief.enrol(token, name=machine.name, csr=request_of(machine.key, machine.name))
    assert again.certificate == first.certificate
    with pytest.raises(ssl.SSLError):
        load_chain_of(thief)
    with machine.client() as client:
        client.points.begin_epoch("pop1", first.enforcer)


def load_chain_of(thief: Machine) -> None:
    assert thief.file is not None
    client_context(None).load_cert_chain(thief.file, thief.file)


@pytest.mark.parametrize("usage", list(Usage))
def test_a_certificate_that_nobody_was_given_is_nobodys(machine: Machine, usage: Usage) -> None:
    """Signed by our own authority: whoever has its key still has to be in the service's book."""
    key = new_key()
    ours = AuthorityDir(machine.service.settings.authority_dir).load()
    subject = Subject(usage, "pop1", machine.name)
    made = ours.issue(subject, key.public_key(), dt.datetime.now(dt.UTC), MACHINE_LASTS)
    machine.file = written(machine.folder, "forged.pem", key, made)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.tokens.read_own()


def test_a_certificate_of_another_authority_is_nobodys(machine: Machine) -> None:
    key = new_key()
    other = Authority.create("test", dt.datetime.now(dt.UTC))
    made = other.issue(Subject(Usage.ENFORCER, "pop1", "x"), key.public_key(), dt.datetime.now(dt.UTC), MACHINE_LASTS)
    machine.file = written(machine.folder, "other.pem", key, made)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.tokens.read_own()


def test_a_switch_is_nobody_at_the_service(machine: Machine, admin: Client) -> None:
    made = admin.certificates.issue_for_switch("pop1", "host1", request_of(machine.key, "host1"))
    machine.keep(made.certificate)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.tokens.read_own()


def test_a_switchs_certificate_is_good_on_no_route(machine: Machine, admin: Client) -> None:
    """Neither there where switches are spoken for nor anywhere else that asks who it is."""
    made = admin.certificates.issue_for_switch("pop1", "host1", request_of(machine.key, "host1"))
    machine.keep(made.certificate)
    enforcer = another(machine).enrol(admin.enrolment.invite("pop1")).enforcer
    values = {"domain": "pop1", "host": "host1", "enforcer": str(enforcer), "name": "host1"}
    paths = json.loads(OPENAPI.read_text())["paths"]
    asked = [(verb, path) for path, verbs in paths.items() for verb, said in verbs.items() if "security" in said]
    assert ("post", "/v1/domains/{domain}/enforcers/{enforcer}/report") in asked
    with httpx.Client(base_url=machine.service.url, verify=machine.trust(), timeout=30) as http:
        for verb, path in asked:
            url = re.sub(r"{(\w+)}", lambda name: values.get(name[1], "1"), path)
            assert ask_in_spite_of_cuts(http, verb, url).status_code == 401, (verb, path)


def ask_in_spite_of_cuts(http: httpx.Client, verb: str, url: str) -> httpx.Response:
    """Ask again where a connection was cut, as those are whose certificate stands for nobody."""
    for _ in range(5):
        with contextlib.suppress(httpx.NetworkError, httpx.RemoteProtocolError):
            return http.request(verb.upper(), url)
    raise AssertionError(f"{verb} {url}: cut each time")


def test_a_switch_gets_a_certificate_for_a_token_that_is_good_for_nothing_else(machine: Machine, admin: Client) -> None:
    name = machine.name
    token = admin.enrolment.invite("pop1", name=name, kind="switch")
    with machine.service.client("") as anybody:
        with pytest.raises(Forbidden):
            machine.enrol(token, kind="openflow")
        with pytest.raises(BadInput, match="csr"):
            anybody.enrolment.enrol_switch(token, name=name, csr=request_of(machine.key, "other"))
        first = anybody.enrolment.enrol_switch(token, name=name, csr=request_of(machine.key, name))
        assert anybody.enrolment.enrol_switch(token, name=name, csr=request_of(machine.key, name)) == first
        anew = admin.enrolment.invite("pop1", name=name, kind="switch")
        second = anybody.enrolment.enrol_switch(anew, name=name, csr=request_of(new_key(), name))
    assert (first.usage, first.name) == ("switch", name)
    known = {each.serial: each.valid for each in admin.certificates.read_all("pop1") if each.name == name}
    assert known == {first.serial: False, second.serial: True}
    said = [
        each for each in admin.events.read().items if each.kind == "certificate.issued" and each.detail["name"] == name
    ]
    assert {each.detail["serial"] for each in said} == set(known)


def test_who_fails_often_is_told_to_wait(tmp_path: Path) -> None:
    with served(tmp_path) as service, service.http() as http:
        wrong = {"token": "aclflow_wrong", "name": "x", "kind": "nftables"}
        answers = [http.post("/v1/enrol", json=wrong) for _ in range(12)]
        assert http.post("/v1/enrol/switch", json={"token": "x", "name": "x", "csr": "x"}).status_code == 404
        events = http.get("/v1/events", params={"newest": True}).json()["items"]
    assert [each.status_code for each in answers] == [401] * 10 + [429] * 2
    assert answers[-1].headers["Retry-After"] == "60"
    assert answers[-1].json()["type"].endswith("too-often")
    assert [each["kind"] for each in events].count("enrolment.refused") == 10


def test_a_groups_token_needs_a_cloud(machine: Machine, admin: Client) -> None:
    made = admin.enrolment.invite_group("pop1", "fleet", kind="nftables")
    assert [each.id for each in admin.enrolment.read_group_tokens("pop1")] == [made.id]
    with pytest.raises(Forbidden, match="no cloud that vouches"):
        machine.enrol(made.token, instance="i-1")
    admin.enrolment.remove_group_token("pop1", made.id)
    with pytest.raises(Unauthenticated):
        machine.enrol(made.token, instance="i-1")
