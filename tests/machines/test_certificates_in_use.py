"""Certificates while they are in use: renewal without an interruption, revocation while a stream is open."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest
from machines.machine import Machine, another
from patience import PATIENCE_S

from api import context
from orchestrator.client import Client
from orchestrator.errors import AclflowError, BadInput, Conflict, NotFound, Unauthenticated
from orchestrator.identity.files import parsed_certificate
from orchestrator.identity.requests import new_key, request_of
from orchestrator.identity.trust import load_chain
from orchestrator.program.program import Tier


class Following:
    """A program stream in a thread, as an agent holds it; how it ended, and when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.beats = 0
        self.ended: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                for _ in self._client.points.follow_program("pop1", tier=Tier.SERVER, lasts_s=30):
                    self.beats += 1
        except AclflowError as error:
            self.ended = error

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
    found = machine.enrol(admin.enrolment.invite("pop1"))
    bystander = another(machine)
    bystander.enrol(admin.enrolment.invite("pop1"))
    with machine.client() as client, bystander.client() as other:
        following, unharmed = Following(client), Following(other)
        following.wait_for_beats(2)
        match how:
            case "certificate":
                serial = f"{parsed_certificate(found.certificate.encode(), 'x').serial_number:040x}"
                admin.certificates.revoke(serial)
                [record] = [each for each in admin.certificates.read_all("pop1") if each.serial == serial]
                assert (record.valid, record.revoked is None) == (False, False)
            case "enforcer":
                admin.points.remove("pop1", found.enforcer)
            case _:
                another(machine).enrol(admin.enrolment.invite("pop1"), name=machine.name)
        following.wait_for_end()
        with pytest.raises(Unauthenticated):
            client.points.begin_epoch("pop1", found.enforcer)
        unharmed.wait_for_beats(2)


def test_the_cut_comes_while_the_stream_says_nothing(machine: Machine, admin: Client) -> None:
    """A connection on which nothing is asked and nothing answered is looked at, too."""
    found = machine.enrol(admin.enrolment.invite("pop1"))
    assert machine.service.authority is not None
    port = int(machine.service.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as bare,
        machine.trust().wrap_socket(bare, server_hostname="127.0.0.1") as quiet,
    ):
        quiet.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in quiet.recv(4096)
        admin.points.remove("pop1", found.enforcer)
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
    found = machine.enrol(admin.enrolment.invite("pop1"))
    trust = machine.trust()
    with Client(machine.service.url, trust=trust) as client:
        following = Following(client)
        following.wait_for_beats(1)
        key = new_key()
        request = request_of(key, machine.name)
        renewed = client.points.renew_certificate("pop1", found.enforcer, request)
        assert client.points.renew_certificate("pop1", found.enforcer, request) == renewed  # an answer that was lost
        machine.keep(renewed.certificate, key)
        assert machine.file is not None
        load_chain(trust, machine.file, machine.file)
        client.reconnect(trust)
        client.points.begin_epoch("pop1", found.enforcer)
        following.wait_for_beats(2)  # on the old one, which still holds
        client.points.lay_down_certificates("pop1", found.enforcer)
        following.wait_for_end()
        assert [
            each.serial for each in admin.certificates.read_all("pop1") if each.valid and each.name == machine.name
        ] == [renewed.serial]


def test_a_renewal_says_nothing_about_who_one_is(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.enrolment.invite("pop1"))
    other = another(machine)
    theirs = other.enrol(admin.enrolment.invite("pop1"))
    with machine.client() as client:
        with pytest.raises(BadInput, match="it is for"):
            client.points.renew_certificate("pop1", found.enforcer, request_of(new_key(), other.name))
        with pytest.raises(NotFound):
            client.points.renew_certificate("pop1", theirs.enforcer, request_of(new_key(), other.name))
        with pytest.raises(NotFound):
            client.points.lay_down_certificates("pop1", theirs.enforcer)
        with pytest.raises(Conflict):
            client.points.renew_certificate("pop1", found.enforcer, request_of(other.key, machine.name))
    with other.client() as client:
        client.points.begin_epoch("pop1", theirs.enforcer)


def test_a_report_that_waited_is_taken_from_a_machine_that_is_known(
    machine: Machine, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked up again then, by its certificate."""
    monkeypatch.setattr(context, "CHECKED_S", -1.0)
    found = machine.enrol(admin.enrolment.invite("pop1"))
    with machine.client() as client:
        client.points.report("pop1", found.enforcer, points=[])


def test_who_has_a_certificate_gets_no_token_beside_it(machine: Machine, admin: Client) -> None:
    found = machine.enrol(admin.enrolment.invite("pop1"))
    with machine.client() as client, pytest.raises(Conflict, match="certificate"):
        client.points.renew_token("pop1", found.enforcer)
