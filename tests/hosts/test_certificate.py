"""A switch's certificate for a one-time token: got once, whole whatever interrupts it, from whom the token pins."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts.certifying import NOW, Service

from orchestrator.errors import BadInput, Missing, Unauthenticated, Unreachable
from orchestrator.hosts import certificate as module
from orchestrator.hosts.certificate import SwitchCertificate
from orchestrator.identity.authority import SWITCH_LASTS
from orchestrator.identity.files import read_certificate, read_key, write_key

URL = "https://192.0.2.1:8420"


class Killed(Exception):
    """The process ends here."""


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def switch(tmp_path: Path) -> SwitchCertificate:
    return SwitchCertificate("pop1", "acl-0", tmp_path / "tls")


def obtained(switch: SwitchCertificate, service: Service, token: str, now: dt.datetime = NOW) -> bool:
    service.now = now
    return switch.obtain(URL, token, None, service.connect, now)


def is_whole(switch: SwitchCertificate, service: Service) -> bool:
    held = read_certificate(switch.file)
    held.verify_directly_issued_by(read_certificate(switch.authority))
    assert switch.authority.read_text() == service.authority_.pem
    assert stat.S_IMODE(switch.file.stat().st_mode) == 0o600
    return held.public_key() == read_key(switch.file).public_key()


def test_it_is_got_once_and_renewed_in_time_with_another_token(switch: SwitchCertificate, service: Service) -> None:
    assert obtained(switch, service, service.token("one"))
    assert is_whole(switch, service)
    assert not switch.pending.exists()
    first = switch.file.read_bytes()
    for later, token in ((1, service.token("one")), (500, ""), (549, service.token("two"))):
        assert not obtained(switch, service, token, NOW + dt.timedelta(days=later))
    assert switch.file.read_bytes() == first
    assert service.given.keys() == {"one"}
    due = NOW + SWITCH_LASTS * 2 / 3 + dt.timedelta(seconds=1)
    with pytest.raises(Missing, match="a one-time token is needed"):
        obtained(switch, service, "", due)
    assert obtained(switch, service, service.token("two"), due)
    assert is_whole(switch, service)
    assert switch.file.read_bytes() != first


def test_killed_before_any_of_its_writes_it_is_whole_when_it_was_begun_again(
    switch: SwitchCertificate, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of renewal, each killed at every step: what is there is always a pair, and one token is enough."""
    for round_, now in (("one", NOW), ("two", NOW + SWITCH_LASTS * 3 / 4)):
        for steps in itertools.count():
            left = iter(range(steps))
            with monkeypatch.context() as patched:
                for place, name in ((module, "write_file"), (module, "write_key"), (Path, "unlink")):
                    patched.setattr(place, name, _mortal(getattr(place, name), left))
                with contextlib.suppress(Killed):
                    obtained(switch, service, service.token(round_), now)
                    break
            if switch.file.exists():
                assert read_certificate(switch.file).public_key() == read_key(switch.file).public_key()
        assert steps >= 4, "a key, whom to believe, the certificate, and the end of what was pending"
        assert is_whole(switch, service)
        assert not switch.pending.exists()
    assert service.given.keys() == {"one", "two"}


def test_killed_before_it_has_tidied_up_it_asks_with_another_key_the_next_time(
    switch: SwitchCertificate, service: Service
) -> None:
    obtained(switch, service, service.token("one"))
    write_key(switch.pending, read_key(switch.file))
    assert obtained(switch, service, service.token("two"), NOW + SWITCH_LASTS * 3 / 4)
    assert is_whole(switch, service)


def _mortal(call: Callable[..., object], left: Iterator[int]) -> Callable[..., object]:
    def called(*words: object, **more: object) -> object:
        if next(left, None) is None:
            raise Killed
        return call(*words, **more)

    return called


def test_a_lost_answer_and_a_service_that_is_away_cost_nothing(switch: SwitchCertificate, service: Service) -> None:
    service.is_away = True
    with pytest.raises(Unreachable):
        obtained(switch, service, service.token("one"))
    service.is_away, service.loses_answers = False, 2
    for _ in range(2):
        with pytest.raises(Unreachable):
            obtained(switch, service, service.token("one"))
    assert obtained(switch, service, service.token("one"))
    assert is_whole(switch, service)


def test_only_whom_the_token_pins_is_told_its_secret(switch: SwitchCertificate, service: Service) -> None:
    other = Service()
    with pytest.raises(Unauthenticated, match="nothing was sent"):
        obtained(switch, other, service.token("one"))
    assert not other.given
    assert not switch.file.exists()
    assert obtained(switch, service, service.token("one"))
    assert service.believed[0].verify_mode is ssl.CERT_NONE, "to look at only"
    assert service.believed[-1].verify_mode is ssl.CERT_REQUIRED
    assert [each["serialNumber"] for each in service.believed[-1].get_ca_certs()]


def test_a_token_of_a_new_authority_gets_another(switch: SwitchCertificate, service: Service) -> None:
    obtained(switch, service, service.token("one"))
    other = Service()
    assert obtained(switch, other, other.token("two"))
    assert is_whole(switch, other)


def test_what_is_not_what_was_asked_for_is_not_kept(switch: SwitchCertificate, service: Service) -> None:
    service.name = "acl-1"
    with pytest.raises(BadInput, match="something else than was asked for"):
        obtained(switch, service, service.token("one"))
    assert not switch.file.exists()
    with pytest.raises(BadInput, match="https://"):
        switch.obtain("http://192.0.2.1:8420", "token", None, service.connect, NOW)
    with pytest.raises(Missing, match="cannot be read"):
        switch.obtain(URL, "token", switch.folder / "none", service.connect, NOW)


def test_a_certificate_of_another_host_is_none_of_ours(switch: SwitchCertificate, service: Service) -> None:
    obtained(switch, service, service.token("one"))
    service.name = "acl-1"
    moved = SwitchCertificate("pop1", "acl-1", switch.folder)
    assert obtained(moved, service, service.token("two"))
    assert is_whole(moved, service)
