"""Enrolment at the enforcement point's side: killed at any step, before somebody in the service's place, and after."""

from __future__ import annotations

import datetime as dt
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from identity.handshake import written
from machines.machine import Machine
from served import served

from orchestrator.client import Client
from orchestrator.enforce.enrolment import Membership, obtain_admission
from orchestrator.enforce.identity import Identity, Renewal
from orchestrator.enforce.state import StateDir
from orchestrator.errors import BadInput, NotFound, Unauthenticated, Unreachable
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.files import AuthorityDir, parsed_certificate
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import EnrolmentToken, new_key


def membership(machine: Machine, token: str, url: str | None = None) -> Membership:
    return Membership(url or machine.service.url, machine.folder / "state", machine.name, token=token)


def test_a_machine_needs_nothing_but_an_address_and_a_token(machine: Machine, admin: Client) -> None:
    state = StateDir(machine.folder / "state")
    token = admin.enrolment.invite("pop1", name=machine.name, kind="nftables")
    admission = obtain_admission(membership(machine, token), "nftables", state, threading.Event())
    assert admission is not None
    assert admission.credentials.name == machine.name
    with admission.service as client:
        client.points.begin_epoch("pop1", admission.credentials.enforcer)
    again = obtain_admission(membership(machine, ""), "nftables", StateDir(machine.folder / "state"), threading.Event())
    assert again is not None
    with again.service as client:
        assert client.tokens.read_own().role == "enforcer"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (machine.folder / "state").iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"identity.pem", "credentials.json", "authority.pem"} <= set(modes)


def test_somebody_in_the_services_place_is_told_nothing(machine: Machine, admin: Client, tmp_path: Path) -> None:
    """Another service, with an authority of the same name: the token's fingerprint tells."""
    token = admin.enrolment.invite("pop1")
    with served(tmp_path / "mallory", tls=True) as mallory:
        with pytest.raises(Unauthenticated, match="nothing was sent"):
            obtain_admission(
                membership(machine, token, mallory.url), "nftables", StateDir(tmp_path / "s"), threading.Event()
            )
        with mallory.service.parts.store.read() as unit:
            assert not [each for each in unit.events.since(0).events if each.kind.startswith("enrol")]
    machine.enrol(token)


def test_a_token_with_a_fingerprint_is_not_sent_in_clear(machine: Machine, admin: Client, tmp_path: Path) -> None:
    token = admin.enrolment.invite("pop1")
    plain = machine.service.url.replace("https", "http")
    with pytest.raises(BadInput, match="https://"):
        obtain_admission(membership(machine, token, plain), "nftables", StateDir(tmp_path / "s"), threading.Event())


@pytest.mark.parametrize("killed_after", ["request", "identity", "credentials"])
def test_killed_at_any_step_of_its_enrolment_it_goes_on_with_the_same_token(
    machine: Machine, admin: Client, killed_after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    token = admin.enrolment.invite("pop1")
    step = {"request": (Identity, "adopt"), "identity": (StateDir, "keep_credentials"), "credentials": None}[
        killed_after
    ]
    if step is not None:
        with monkeypatch.context() as patched:
            patched.setattr(*step, die)
            with pytest.raises(Killed):
                obtain_admission(
                    membership(machine, token), "nftables", StateDir(machine.folder / "state"), threading.Event()
                )
    admission = obtain_admission(
        membership(machine, token), "nftables", StateDir(machine.folder / "state"), threading.Event()
    )
    assert admission is not None
    with admission.service as client:
        client.points.begin_epoch("pop1", admission.credentials.enforcer)
    assert [each.name for each in admin.points.read_all("pop1")].count(machine.name) == 1


def test_it_renews_before_the_end_and_once(machine: Machine, admin: Client) -> None:
    state = StateDir(machine.folder / "state")
    admission = obtain_admission(
        membership(machine, admin.enrolment.invite("pop1")), "nftables", state, threading.Event()
    )
    assert admission is not None
    ahead = [dt.timedelta(0)]
    renewal = Renewal(
        admission.identity,
        admission.credentials,
        admission.service.points,
        admission.service.enrolment.read_authority,
        admission.connect_anew,
        laid_down_after_s=0.0,
        now=lambda: dt.datetime.now(dt.UTC) + ahead[0],
    )
    mine = lambda: [each for each in admin.certificates.read_all("pop1") if each.name == machine.name]  # noqa: E731 - a short way
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
        client.points.begin_epoch("pop1", admission.credentials.enforcer)


def test_an_ended_certificate_is_as_good_as_none_where_there_is_a_token(
    machine: Machine, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(machine.folder / "state")
    first = obtain_admission(membership(machine, admin.enrolment.invite("pop1")), "nftables", state, threading.Event())
    assert first is not None
    monkeypatch.setattr(Identity, "has_ended", lambda *_: True)
    second = obtain_admission(membership(machine, admin.enrolment.invite("pop1")), "nftables", state, threading.Event())
    assert second is not None
    assert second.credentials.enforcer != first.credentials.enforcer
    with second.service as client:
        client.points.begin_epoch("pop1", second.credentials.enforcer)
    with first.service as client:
        with suppress(Unreachable, Unauthenticated, NotFound):  # its open connection is cut, at this moment perhaps
            client.points.begin_epoch("pop1", first.credentials.enforcer)
        with pytest.raises((Unauthenticated, NotFound)):
            client.points.begin_epoch("pop1", first.credentials.enforcer)


def test_who_is_refused_because_its_own_clock_is_wrong_stays_who_it_was(
    machine: Machine, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock far ahead makes of a valid certificate one that has ended, and the token was used long ago."""
    state, member = StateDir(machine.folder / "state"), membership(machine, admin.enrolment.invite("pop1"))
    first = obtain_admission(member, "nftables", state, threading.Event())
    assert first is not None
    for _ in range(2):
        with monkeypatch.context() as wrong:
            wrong.setattr(Identity, "has_ended", lambda *_: True)
            with pytest.raises(Unauthenticated):
                obtain_admission(member, "nftables", StateDir(machine.folder / "state"), threading.Event())
    again = obtain_admission(member, "nftables", StateDir(machine.folder / "state"), threading.Event())
    assert again is not None
    assert again.credentials == first.credentials
    with again.service as client:
        client.points.begin_epoch("pop1", again.credentials.enforcer)


def test_a_service_of_another_authority_is_not_believed_later_either(
    machine: Machine, admin: Client, tmp_path: Path
) -> None:
    state = StateDir(machine.folder / "state")
    admission = obtain_admission(
        membership(machine, admin.enrolment.invite("pop1")), "nftables", state, threading.Event()
    )
    assert admission is not None
    with served(tmp_path / "mallory", tls=True) as mallory:
        assert admission.trust is not None
        with Client(mallory.url, trust=admission.trust) as client, pytest.raises(Unreachable, match="not the service"):
            client.points.begin_epoch("pop1", admission.credentials.enforcer)


def test_without_tls_a_machine_is_known_by_its_token(tmp_path: Path) -> None:
    with served(tmp_path / "service") as plain, plain.client() as boss:
        boss.domains.create("pop1")
        member = Membership(plain.url, tmp_path / "state", "m1", token=boss.enrolment.invite("pop1"))
        admission = obtain_admission(member, "nftables", StateDir(tmp_path / "state"), threading.Event())
        assert admission is not None
        assert (admission.trust, bool(admission.credentials.token)) == (None, True)
        assert not (tmp_path / "state" / "identity.pem").exists()
        with admission.service as client:
            client.points.begin_epoch("pop1", admission.credentials.enforcer)
            with pytest.raises(NotFound):
                client.enrolment.read_authority()


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
            boss.domains.create("pop1")
            token = boss.enrolment.invite("pop1")
        assert EnrolmentToken.parse(token).pin is None
        member = Membership(here.url, tmp_path / "state", "m1", token=token, authority=believed)
        admission = obtain_admission(member, "openflow", StateDir(tmp_path / "state"), threading.Event())
        assert admission is not None
        assert (admission.credentials.token, admission.credentials.pinned) == ("", False)
        with admission.service as client:
            client.points.begin_epoch("pop1", admission.credentials.enforcer)
        assert parsed_certificate((tmp_path / "state" / "authority.pem").read_bytes(), "x") == ours.certificate
