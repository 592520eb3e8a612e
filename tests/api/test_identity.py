"""Machines over real TLS: enrolment, requests known by certificates, renewal, revocation while a stream is open."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from identity.handshake import written
from patience import PATIENCE_S, until
from served import Served, served

from orchestrator.client import Client, Enrolment, Host
from orchestrator.enforce.enrolment import Membership, admitted
from orchestrator.enforce.identity import Identity, Renewal
from orchestrator.enforce.state import StateDir
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Conflict,
    Forbidden,
    NotFound,
    Unauthenticated,
    Unreachable,
)
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.files import AuthorityDir, encoded_key, parsed_certificate
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import PrivateKey, new_key, request_of
from orchestrator.identity.tokens import EnrolmentToken
from orchestrator.identity.trust import client_context, load_chain
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program

Steps = Iterator[Program | Delta | None]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service"), tls=True, heartbeat_s=0.2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Served) -> Iterator[Client]:
    with service.client() as client:
        client.create_domain("pop1")
        client.add_host("pop1", Host("host1", 1, "up0"))
        until(lambda: is_compiled(client))
        yield client


def is_compiled(client: Client) -> bool:
    try:
        next(client.follow_program("pop1", lasts_s=1))
    except Busy:
        return False
    return True


def secret_of(token: str) -> str:
    return EnrolmentToken.parse(token).secret


@dataclass
class Machine:
    """Somebody with a key, who may have got a certificate for it."""

    service: Served
    folder: Path
    name: str = field(default_factory=lambda: f"m-{uuid.uuid4().hex[:8]}")
    key: PrivateKey = field(default_factory=new_key)
    file: Path | None = None

    def enrol(self, token: str, **more: str) -> Enrolment:
        said = {"name": self.name, "kind": "nftables", "csr": request_of(self.key, more.get("name", self.name))} | more
        with self.service.client("") as anybody:
            found = anybody.enrol(secret_of(token), **said)
        self.keep(found.certificate)
        return found

    def keep(self, certificate: str, key: PrivateKey | None = None) -> None:
        self.file = self.folder / f"{uuid.uuid4().hex}.pem"
        self.file.write_bytes(encoded_key(key or self.key) + certificate.encode())
        self.file.chmod(0o600)

    def trust(self) -> ssl.SSLContext:
        assert self.service.authority is not None
        context = client_context(self.service.authority.read_text())
        if self.file is not None:
            load_chain(context, self.file, self.file)
        return context

    def client(self, token: str = "") -> Client:
        return Client(self.service.url, token, trust=self.trust())


@pytest.fixture
def machine(service: Served, admin: Client, tmp_path: Path) -> Machine:
    assert admin is not None
    return Machine(service, tmp_path)


def another(machine: Machine) -> Machine:
    return Machine(machine.service, machine.folder)


# -------------------------------------------------------------------------------------------------------- enrolment


def test_who_has_enrolled_is_known_by_its_certificate_and_by_no_token(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.invite_enforcer("pop1"))
    assert (found.token, found.name, found.domain) == ("", machine.name, "pop1")
    with machine.client() as client:
        assert client.new_epoch("pop1", found.enforcer) > found.epoch
        assert client.own_token().role == "enforcer"
        for denied in (lambda: list(client.tenants()), lambda: client.invite_enforcer("pop1")):
            with pytest.raises((NotFound, Forbidden)):
                denied()
    with machine.service.client("") as stranger, pytest.raises(Unauthenticated):
        stranger.new_epoch("pop1", found.enforcer)


def test_a_token_does_not_count_over_the_connection_of_a_machine(machine: Machine, admin: Client) -> None:
    machine.enrol(admin.invite_enforcer("pop1"))
    with machine.client(machine.service.token) as both, pytest.raises(BadInput, match="known by your certificate"):
        list(both.tenants())


def test_nothing_that_a_request_says_makes_somebody_a_machine(machine: Machine, admin: Client) -> None:
    """The fingerprint is the server's own word: no header stands for it."""
    machine.enrol(admin.invite_enforcer("pop1"))
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
    token = secret_of(admin.invite_enforcer("pop1"))
    with pytest.raises(error):
        forge(machine, token)
    machine.enrol(token)
    with pytest.raises(Unauthenticated):
        another(machine).enrol(token)


def test_a_replayed_enrolment_gives_the_thief_nothing(machine: Machine, admin: Client) -> None:
    """Who has listened in has the token and the request, and gets the certificate: without the key it is of no use."""
    token = admin.invite_enforcer("pop1")
    first = machine.enrol(token)
    thief = another(machine)
    again = thief.enrol(token, name=machine.name, csr=request_of(machine.key, machine.name))
    assert again.certificate == first.certificate
    with pytest.raises(ssl.SSLError):
        load_chain_of(thief)
    with machine.client() as client:
        client.new_epoch("pop1", first.enforcer)


def load_chain_of(thief: Machine) -> None:
    assert thief.file is not None
    client_context(None).load_cert_chain(thief.file, thief.file)


@pytest.mark.parametrize("usage", list(Usage))
def test_a_certificate_that_nobody_was_given_is_nobodys(machine: Machine, admin: Client, usage: Usage) -> None:
    """Signed by our own authority: whoever has its key still has to be in the service's book."""
    key = new_key()
    ours = AuthorityDir(machine.service.settings.authority_dir).load()
    subject = Subject(usage, "pop1", machine.name)
    made = ours.issue(subject, key.public_key(), dt.datetime.now(dt.UTC), MACHINE_LASTS)
    machine.file = written(machine.folder, "forged.pem", key, made)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.own_token()
    assert admin.enforcers("pop1") is not None


def test_a_certificate_of_another_authority_is_told_to_be_one(machine: Machine, admin: Client) -> None:
    key = new_key()
    other = Authority.create("test", dt.datetime.now(dt.UTC))
    made = other.issue(Subject(Usage.ENFORCER, "pop1", "x"), key.public_key(), dt.datetime.now(dt.UTC), MACHINE_LASTS)
    machine.file = written(machine.folder, "other.pem", key, made)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.own_token()
    assert admin is not None


def test_a_switch_is_nobody_at_the_service(machine: Machine, admin: Client) -> None:
    made = admin.issue_switch("pop1", "host1", request_of(machine.key, "host1"))
    machine.keep(made.certificate)
    with machine.client() as client, pytest.raises((Unauthenticated, Unreachable)):
        client.own_token()


def test_a_switch_gets_a_certificate_for_a_token_that_is_good_for_nothing_else(machine: Machine, admin: Client) -> None:
    name = machine.name
    token = admin.invite_enforcer("pop1", name=name, kind="switch")
    with machine.service.client("") as anybody:
        with pytest.raises(Forbidden):
            machine.enrol(token, kind="openflow")
        with pytest.raises(BadInput, match="csr"):
            anybody.enrol_switch(token, name=name, csr=request_of(machine.key, "other"))
        first = anybody.enrol_switch(token, name=name, csr=request_of(machine.key, name))
        assert anybody.enrol_switch(token, name=name, csr=request_of(machine.key, name)) == first
        anew = admin.invite_enforcer("pop1", name=name, kind="switch")
        second = anybody.enrol_switch(anew, name=name, csr=request_of(new_key(), name))
    assert (first.usage, first.name) == ("switch", name)
    known = {each.serial: each.valid for each in admin.certificates("pop1") if each.name == name}
    assert known == {first.serial: False, second.serial: True}
    said = [each for each in admin.events().items if each.kind == "certificate.issued" and each.detail["name"] == name]
    assert {each.detail["serial"] for each in said} == set(known)


def test_who_fails_often_is_told_to_wait(tmp_path: Path) -> None:
    with served(tmp_path) as service, service.http() as http:
        wrong = {"token": "aclflow_wrong", "name": "x", "kind": "x"}
        answers = [http.post("/v1/enrol", json=wrong) for _ in range(12)]
        assert http.post("/v1/enrol/switch", json={"token": "x", "name": "x", "csr": "x"}).status_code == 404
        events = http.get("/v1/events", params={"newest": True}).json()["items"]
    assert [each.status_code for each in answers] == [401] * 10 + [429] * 2
    assert answers[-1].headers["Retry-After"] == "60"
    assert answers[-1].json()["type"].endswith("too-often")
    assert [each["kind"] for each in events].count("enrolment.refused") == 10


def test_a_groups_token_needs_a_cloud(machine: Machine, admin: Client) -> None:
    made = admin.invite_group("pop1", "fleet", kind="nftables")
    assert [each.id for each in admin.group_tokens("pop1")] == [made.id]
    with pytest.raises(Forbidden, match="no cloud that vouches"):
        machine.enrol(made.token, instance="i-1")
    admin.remove_group_token("pop1", made.id)
    with pytest.raises(Unauthenticated):
        machine.enrol(made.token, instance="i-1")


# ------------------------------------------------------------------------------------------- renewing and revoking


class Following:
    """A program stream in a thread, as an agent holds it; how it ended, and when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.beats = 0
        self.ended: Exception | None = None
        self.ended_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                for _ in self._client.follow_program("pop1", lasts_s=30):
                    self.beats += 1
        except AclflowError as error:
            self.ended = error
        self.ended_s = time.monotonic()

    def wait_for_beats(self, more: int) -> None:
        wanted, until = self.beats + more, time.monotonic() + PATIENCE_S
        while self.beats < wanted:
            assert time.monotonic() < until
            assert self.ended is None, self.ended
            time.sleep(0.01)

    def wait_for_end(self) -> None:
        self._thread.join(PATIENCE_S)
        assert self.ended is not None


@pytest.mark.parametrize("how", ["certificate", "enforcer", "replaced"])
def test_who_is_revoked_is_cut_off_in_the_middle_of_a_stream(machine: Machine, admin: Client, how: str) -> None:
    found = machine.enrol(admin.invite_enforcer("pop1"))
    bystander = another(machine)
    bystander.enrol(admin.invite_enforcer("pop1"))
    with machine.client() as client, bystander.client() as other:
        following, unharmed = Following(client), Following(other)
        following.wait_for_beats(2)
        match how:
            case "certificate":
                serial = f"{parsed_certificate(found.certificate.encode(), 'x').serial_number:040x}"
                admin.revoke_certificate(serial)
                [record] = [each for each in admin.certificates("pop1") if each.serial == serial]
                assert (record.valid, record.revoked is None) == (False, False)
            case "enforcer":
                admin.remove_enforcer("pop1", found.enforcer)
            case _:
                another(machine).enrol(admin.invite_enforcer("pop1"), name=machine.name)
        following.wait_for_end()
        with pytest.raises(Unauthenticated):
            client.new_epoch("pop1", found.enforcer)
        unharmed.wait_for_beats(2)


def test_the_cut_comes_while_the_stream_says_nothing(machine: Machine, admin: Client) -> None:
    """A connection on which nothing is asked and nothing answered is looked at, too."""
    found = machine.enrol(admin.invite_enforcer("pop1"))
    assert machine.service.authority is not None
    port = int(machine.service.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as bare,
        machine.trust().wrap_socket(bare, server_hostname="127.0.0.1") as quiet,
    ):
        quiet.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in quiet.recv(4096)
        admin.remove_enforcer("pop1", found.enforcer)
        assert closed(quiet)


def closed(quiet: ssl.SSLSocket) -> bool:
    """Whether the other side ends a connection on which nothing is said."""
    try:
        while quiet.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_a_certificate_is_renewed_without_an_interruption(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.invite_enforcer("pop1"))
    trust = machine.trust()
    with Client(machine.service.url, trust=trust) as client:
        following = Following(client)
        following.wait_for_beats(1)
        key = new_key()
        request = request_of(key, machine.name)
        renewed = client.renew_certificate("pop1", found.enforcer, request)
        assert client.renew_certificate("pop1", found.enforcer, request) == renewed  # an answer that was lost
        machine.keep(renewed.certificate, key)
        assert machine.file is not None
        load_chain(trust, machine.file, machine.file)
        client.reconnect()
        client.new_epoch("pop1", found.enforcer)
        following.wait_for_beats(2)  # on the old one, which still holds
        client.lay_down_certificates("pop1", found.enforcer)
        following.wait_for_end()
        assert [each.serial for each in admin.certificates("pop1") if each.valid and each.name == machine.name] == [
            renewed.serial
        ]


def test_a_renewal_says_nothing_about_who_one_is(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.invite_enforcer("pop1"))
    other = another(machine)
    theirs = other.enrol(admin.invite_enforcer("pop1"))
    with machine.client() as client:
        with pytest.raises(BadInput, match="it is for"):
            client.renew_certificate("pop1", found.enforcer, request_of(new_key(), other.name))
        with pytest.raises(NotFound):
            client.renew_certificate("pop1", theirs.enforcer, request_of(new_key(), other.name))
        with pytest.raises(NotFound):
            client.lay_down_certificates("pop1", theirs.enforcer)
        with pytest.raises(Conflict):
            client.renew_certificate("pop1", found.enforcer, request_of(other.key, machine.name))
    with other.client() as client:
        client.new_epoch("pop1", theirs.enforcer)


# ---------------------------------------------------------------------------------------- the enforcement point's side


def membership(machine: Machine, token: str, url: str | None = None) -> Membership:
    return Membership(url or machine.service.url, machine.folder / "state", machine.name, token=token)


def test_a_machine_needs_nothing_but_an_address_and_a_token(machine: Machine, admin: Client) -> None:
    state = StateDir(machine.folder / "state")
    token = admin.invite_enforcer("pop1", name=machine.name, kind="nftables")
    admission = admitted(membership(machine, token), "nftables", state, threading.Event())
    assert admission is not None
    assert admission.credentials.name == machine.name
    with admission.service as client:
        client.new_epoch("pop1", admission.credentials.enforcer)
    again = admitted(membership(machine, ""), "nftables", StateDir(machine.folder / "state"), threading.Event())
    assert again is not None
    with again.service as client:
        assert client.own_token().role == "enforcer"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (machine.folder / "state").iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"identity.pem", "credentials.json", "authority.pem"} <= set(modes)


def test_somebody_in_the_services_place_is_told_nothing(machine: Machine, admin: Client, tmp_path: Path) -> None:
    """Another service, with an authority of the same name: the token's fingerprint tells."""
    token = admin.invite_enforcer("pop1")
    with served(tmp_path / "mallory", tls=True) as mallory:
        asked = mallory.service.app.state.services.desk
        with pytest.raises(Unauthenticated, match="nothing was sent"):
            admitted(membership(machine, token, mallory.url), "nftables", StateDir(tmp_path / "s"), threading.Event())
        assert asked is not None
        with mallory.service.parts.store.read() as unit:
            assert not [each for each in unit.events.since(0).events if each.kind.startswith("enrol")]
    machine.enrol(token)


def test_a_token_with_a_fingerprint_is_not_sent_in_clear(machine: Machine, admin: Client, tmp_path: Path) -> None:
    token = admin.invite_enforcer("pop1")
    plain = machine.service.url.replace("https", "http")
    with pytest.raises(BadInput, match="https://"):
        admitted(membership(machine, token, plain), "nftables", StateDir(tmp_path / "s"), threading.Event())


@pytest.mark.parametrize("killed_after", ["request", "identity", "credentials"])
def test_killed_at_any_step_of_its_enrolment_it_goes_on_with_the_same_token(
    machine: Machine, admin: Client, killed_after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    token = admin.invite_enforcer("pop1")
    step = {"request": (Identity, "adopt"), "identity": (StateDir, "keep_credentials"), "credentials": None}[
        killed_after
    ]
    if step is not None:
        with monkeypatch.context() as patched:
            patched.setattr(*step, die)
            with pytest.raises(Killed):
                admitted(membership(machine, token), "nftables", StateDir(machine.folder / "state"), threading.Event())
    admission = admitted(membership(machine, token), "nftables", StateDir(machine.folder / "state"), threading.Event())
    assert admission is not None
    with admission.service as client:
        client.new_epoch("pop1", admission.credentials.enforcer)
    assert [each.name for each in admin.enforcers("pop1")].count(machine.name) == 1


def test_it_renews_before_the_end_and_once(machine: Machine, admin: Client) -> None:
    state = StateDir(machine.folder / "state")
    admission = admitted(membership(machine, admin.invite_enforcer("pop1")), "nftables", state, threading.Event())
    assert admission is not None
    assert admission.trust is not None
    trust, ahead = admission.trust, [dt.timedelta(0)]
    renewal = Renewal(
        admission.identity,
        admission.credentials,
        admission.service,
        lambda: admission.identity.show(trust),
        laid_down_after_s=0.0,
        now=lambda: dt.datetime.now(dt.UTC) + ahead[0],
    )
    mine = lambda: [each for each in admin.certificates("pop1") if each.name == machine.name]  # noqa: E731 - a short way
    renewal.look()
    assert len(mine()) == 1
    ahead[0] = MACHINE_LASTS * 2 / 3 + dt.timedelta(minutes=1)
    renewal.look()
    assert (len(mine()), renewal.is_switching) == (2, True)
    assert all(each.valid for each in mine())
    renewal.look()
    assert ([each.valid for each in mine()], renewal.is_switching) == ([False, True], False)
    ahead[0] = dt.timedelta(0)
    renewal.look()
    assert len(mine()) == 2
    with admission.service as client:
        client.new_epoch("pop1", admission.credentials.enforcer)


def test_an_ended_certificate_is_as_good_as_none_where_there_is_a_token(
    machine: Machine, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(machine.folder / "state")
    first = admitted(membership(machine, admin.invite_enforcer("pop1")), "nftables", state, threading.Event())
    assert first is not None
    monkeypatch.setattr(Identity, "has_ended", lambda *_: True)
    second = admitted(membership(machine, admin.invite_enforcer("pop1")), "nftables", state, threading.Event())
    assert second is not None
    assert second.credentials.enforcer != first.credentials.enforcer
    with second.service as client:
        client.new_epoch("pop1", second.credentials.enforcer)
    with first.service as client, pytest.raises((Unauthenticated, NotFound)):
        client.new_epoch("pop1", first.credentials.enforcer)


def test_a_service_of_another_authority_is_not_believed_later_either(
    machine: Machine, admin: Client, tmp_path: Path
) -> None:
    state = StateDir(machine.folder / "state")
    admission = admitted(membership(machine, admin.invite_enforcer("pop1")), "nftables", state, threading.Event())
    assert admission is not None
    with served(tmp_path / "mallory", tls=True) as mallory:
        assert admission.trust is not None
        with Client(mallory.url, trust=admission.trust) as client, pytest.raises(Unreachable, match="not the service"):
            client.new_epoch("pop1", admission.credentials.enforcer)


def test_without_tls_all_is_as_it_was(tmp_path: Path) -> None:
    with served(tmp_path / "service") as plain, plain.client() as boss:
        boss.create_domain("pop1")
        member = Membership(plain.url, tmp_path / "state", "m1", token=boss.invite_enforcer("pop1"))
        admission = admitted(member, "nftables", StateDir(tmp_path / "state"), threading.Event())
        assert admission is not None
        assert (admission.trust, bool(admission.credentials.token)) == (None, True)
        assert admission.renewal() is None
        with admission.service as client:
            client.new_epoch("pop1", admission.credentials.enforcer)
            with pytest.raises(NotFound):
                client.authority()


def test_a_service_may_show_a_certificate_of_somebody_else(tmp_path: Path) -> None:
    """Then tokens pin nobody, machines believe whom they are told to, and are known by certificates all the same."""
    now = dt.datetime.now(dt.UTC)
    public, key = Authority.create("public", now), new_key()
    subject = Subject(Usage.SERVICE, "service", "x")
    made = public.issue(subject, key.public_key(), now, MACHINE_LASTS, hosts=("127.0.0.1",))
    file, believed = written(tmp_path, "public.pem", key, made), tmp_path / "believed.pem"
    believed.write_text(public.pem)
    ours = AuthorityDir(tmp_path / "service" / "authority").create("ours", now)
    with served(tmp_path / "service", tls=True, tls_certificate=file, tls_key=file) as here:
        with here.client() as boss:
            boss.create_domain("pop1")
            token = boss.invite_enforcer("pop1")
        assert EnrolmentToken.parse(token).pin is None
        member = Membership(here.url, tmp_path / "state", "m1", token=token, authority=believed)
        admission = admitted(member, "openflow", StateDir(tmp_path / "state"), threading.Event())
        assert admission is not None
        assert (admission.credentials.token, admission.credentials.pinned) == ("", False)
        with admission.service as client:
            client.new_epoch("pop1", admission.credentials.enforcer)
        assert parsed_certificate((tmp_path / "state" / "authority.pem").read_bytes(), "x") == ours.certificate
