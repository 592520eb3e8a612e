"""Certificates of our authority, as TLS itself takes them: who may be whom."""

from __future__ import annotations

import datetime as dt
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st
from identity.handshake import shake, written

from orchestrator import serving as own
from orchestrator.enforce.drivers.openflow.stream import Tls, hosts_named, tls_context
from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.identity.authority import BACKDATED, MACHINE_LASTS, Authority, Issued
from orchestrator.identity.files import AuthorityDir, encoded_key, parsed_certificate, read_certificate, read_key
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import EnrolmentToken, new_key
from orchestrator.identity.trust import client_context, load_chain, server_context, service_context

NOW = dt.datetime.now(dt.UTC)
AUTHORITY = Authority.create("ours", NOW)
OTHER = Authority.create("ours", NOW)
"""Another authority of the same name."""
HOST = "service.example"
CONSOLE_HOST = "console.example"

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.:-", min_size=1, max_size=64)


def issued(
    usage: Usage,
    name: str = "m",
    by: Authority = AUTHORITY,
    now: dt.datetime = NOW,
    lasts: dt.timedelta = MACHINE_LASTS,
) -> tuple[object, Issued]:
    key = new_key()
    hosts = {Usage.SERVICE: (HOST, "192.0.2.1", "2001:db8::1"), Usage.CONSOLE: (CONSOLE_HOST,)}.get(usage, ())
    return key, by.issue(Subject(usage, "pop1", name), key.public_key(), now, lasts, hosts=hosts)


def bearer(folder: Path, usage: Usage, **more: object) -> Path:
    key, made = issued(usage, **more)  # type: ignore[arg-type]
    return written(folder, f"{usage.value}.pem", key, made)  # type: ignore[arg-type]


def service(folder: Path, usage: Usage = Usage.SERVICE, **more: object) -> ssl.SSLContext:
    own_file = bearer(folder, usage, **more)
    return service_context(own_file, own_file, AUTHORITY.pem)


def client(file: Path | None = None) -> ssl.SSLContext:
    context = client_context(AUTHORITY.pem)
    if file is not None:
        load_chain(context, file, file)
    return context


# ------------------------------------------------------------------------------------------------------- who is who


@pytest.mark.parametrize("host", [HOST, "192.0.2.1", "2001:db8::1"])
def test_a_machine_and_its_service_know_each_other(tmp_path: Path, host: str) -> None:
    seen = shake(client(bearer(tmp_path, Usage.ENFORCER)), service(tmp_path), host)
    assert ("URI", "aclflow://pop1/enforcer/m") in seen["subjectAltName"]  # type: ignore[operator]
    assert shake(client(), service(tmp_path), host) == {}  # without a certificate it is somebody who bears a token


@pytest.mark.parametrize("usage", [Usage.ENFORCER, Usage.CONTROLLER, Usage.SWITCH])
def test_no_machine_can_be_taken_for_the_service(tmp_path: Path, usage: Usage) -> None:
    """Not even one that is called as the service's host is: common names count for nothing."""
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client(), service(tmp_path, usage, name=HOST), HOST)


def test_a_common_name_counts_for_nothing_where_names_of_hosts_are_compared(tmp_path: Path) -> None:
    """Should the authority ever sign one that is a host's name, for a bearer that may be a server."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    builder = (
        x509.CertificateBuilder(AUTHORITY.certificate.subject, name, key.public_key(), 7)
        .not_valid_before(NOW - BACKDATED)
        .not_valid_after(NOW + MACHINE_LASTS)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(AUTHORITY.key.public_key()), critical=False)
    )
    made = builder.sign(AUTHORITY.key, hashes.SHA256())
    file = tmp_path / "named.pem"
    file.write_bytes(encoded_key(key) + made.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(client(), service_context(file, file, AUTHORITY.pem), HOST)


def test_a_common_name_is_the_name_of_no_host() -> None:
    """Also for verifiers that do look at common names."""
    for usage in Usage:
        assert " " in Subject(usage, "pop1", HOST).common_name


def test_the_service_is_known_by_its_own_names_only(tmp_path: Path) -> None:
    for other in ("other.example", "192.0.2.2"):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(client(), service(tmp_path), other)


@pytest.mark.parametrize(
    "forged",
    [
        {"by": OTHER},
        {"now": NOW - dt.timedelta(days=60)},
        {"now": NOW + BACKDATED + dt.timedelta(hours=1)},
    ],
    ids=["another authority", "ended", "not begun"],
)
def test_certificates_of_others_and_of_other_times_are_refused(tmp_path: Path, forged: dict[str, object]) -> None:
    with pytest.raises(ssl.SSLError):
        shake(client(bearer(tmp_path, Usage.ENFORCER, **forged)), service(tmp_path), HOST)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client(), service(tmp_path, **forged), HOST)


@pytest.mark.parametrize("behind", [dt.timedelta(0), BACKDATED - dt.timedelta(hours=1)])
def test_a_clock_that_is_behind_or_ahead_does_no_harm(tmp_path: Path, behind: dt.timedelta) -> None:
    """Made by a service whose clock is ahead of ours; the other way round there are ten days before the end."""
    shake(client(bearer(tmp_path, Usage.ENFORCER, now=NOW + behind)), service(tmp_path), HOST)


def test_a_machine_cannot_sign_for_others(tmp_path: Path) -> None:
    """A certificate signed with a machine's key is one of nobody."""
    key, made = issued(Usage.CONTROLLER)
    with pytest.raises(BadInput, match="not an authority's"):
        Authority(key, parsed_certificate(made.pem.encode(), "x"))  # type: ignore[arg-type]


def test_an_authority_is_one_key_with_its_own_certificate() -> None:
    with pytest.raises(BadInput, match="not the one in its certificate"):
        Authority(OTHER.key, AUTHORITY.certificate)
    with pytest.raises(BadInput, match="own key"):
        AUTHORITY.issue(Subject(Usage.ENFORCER, "pop1", "m"), AUTHORITY.key.public_key(), NOW, MACHINE_LASTS)


@given(WORDS, WORDS, st.sampled_from(Usage))
def test_a_certificate_says_who_bears_it_and_for_what(domain: str, name: str, usage: Usage) -> None:
    subject = Subject(usage, domain, name)
    assert Subject.of_uri(subject.uri) == subject
    made = AUTHORITY.issue(subject, new_key().public_key(), NOW, MACHINE_LASTS)
    read = parsed_certificate(made.pem.encode(), "x")
    uris = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(uris) == [x509.UniformResourceIdentifier(subject.uri)]
    used_as = set(read.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert (ExtendedKeyUsageOID.CLIENT_AUTH in used_as, ExtendedKeyUsageOID.SERVER_AUTH in used_as) == (
        usage in (Usage.ENFORCER, Usage.CONTROLLER, Usage.SWITCH),
        usage in (Usage.CONTROLLER, Usage.SERVICE, Usage.CONSOLE),
    )
    assert not read.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not read.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_nothing_outlives_its_authority() -> None:
    late = AUTHORITY.ends - dt.timedelta(days=1)
    made = AUTHORITY.issue(Subject(Usage.ENFORCER, "pop1", "m"), new_key().public_key(), late, MACHINE_LASTS)
    assert made.ends == AUTHORITY.ends
    with pytest.raises(BadInput, match="make a new authority"):
        AUTHORITY.issue(Subject(Usage.ENFORCER, "p", "m"), new_key().public_key(), AUTHORITY.ends, MACHINE_LASTS)


def test_only_a_service_and_a_console_bear_names_of_hosts() -> None:
    for usage in (Usage.ENFORCER, Usage.CONTROLLER, Usage.SWITCH):
        with pytest.raises(BadInput, match="no names of hosts"):
            AUTHORITY.issue(Subject(usage, "p", "m"), new_key().public_key(), NOW, MACHINE_LASTS, hosts=[HOST])
    with pytest.raises(BadInput, match="neither the name nor the address"):
        AUTHORITY.issue(
            Subject(Usage.SERVICE, "p", "m"), new_key().public_key(), NOW, MACHINE_LASTS, hosts=["b\u00fcro"]
        )


# ---------------------------------------------------------------------------------------------------------- OpenFlow


def openflow(folder: Path) -> ssl.SSLContext:
    own_file = bearer(folder, Usage.CONTROLLER)
    (folder / "authority.pem").write_text(AUTHORITY.pem)
    return tls_context(Tls(own_file, own_file, folder / "authority.pem", "pop1"))


def switches_view(file: Path) -> ssl.SSLContext:
    """As Open vSwitch looks: whoever the authority signed as a server, of whatever name."""
    context = client(file)
    context.check_hostname = False
    return context


def test_a_switch_is_a_switch_of_its_domain(tmp_path: Path) -> None:
    seen = shake(switches_view(bearer(tmp_path, Usage.SWITCH, name="host1")), openflow(tmp_path), "x")
    assert hosts_named(seen, "pop1") == {"host1"}
    with pytest.raises(OSError, match="not of a switch of pop2"):
        hosts_named(seen, "pop2")


def test_a_console_shows_its_own_names_and_is_nobodys_client(tmp_path: Path) -> None:
    console = bearer(tmp_path, Usage.CONSOLE)
    assert shake(client(), server_context(console, console), CONSOLE_HOST) == {}
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client(), server_context(console, console), HOST)
    with pytest.raises(ssl.SSLError):
        shake(client(console), service(tmp_path), HOST)


@pytest.mark.parametrize("usage", [Usage.ENFORCER, Usage.CONTROLLER])
def test_no_other_machine_is_taken_for_a_switch(tmp_path: Path, usage: Usage) -> None:
    seen = shake(switches_view(bearer(tmp_path, usage, name="host1")), openflow(tmp_path), "x")
    with pytest.raises(OSError, match="not of a switch"):
        hosts_named(seen, "pop1")


@pytest.mark.parametrize(
    "said", [{}, {"subjectAltName": (("DNS", "aclflow://pop1/switch/h"),)}, {"subjectAltName": (("URI", "x"),)}]
)
def test_who_does_not_say_who_it_is_is_no_switch(said: dict[str, object]) -> None:
    with pytest.raises(OSError, match="does not say"):
        hosts_named(said, "pop1")


@pytest.mark.parametrize("usage", [Usage.ENFORCER, Usage.SWITCH])
def test_no_other_machine_is_taken_for_a_controller(tmp_path: Path, usage: Usage) -> None:
    with pytest.raises(ssl.SSLError):
        shake(switches_view(bearer(tmp_path, Usage.SWITCH)), service(tmp_path, usage), "x")


# -------------------------------------------------------------------------------------------------------- on the disk


def test_an_authority_is_made_once_and_its_key_is_for_its_owner(tmp_path: Path) -> None:
    place = AuthorityDir(tmp_path / "authority")
    with pytest.raises(Missing, match="aclflow certificates init"):
        place.load()
    made = place.create("x", NOW)
    assert place.load().fingerprint == made.fingerprint
    assert stat.S_IMODE(place.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o700
    with pytest.raises(Conflict):
        place.create("x", NOW)
    assert place.load().fingerprint == made.fingerprint


def test_an_authority_that_was_cut_off_in_the_making_is_made_good_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails before any of its files is in its place; whatever is there afterwards, the same makes one."""
    place = AuthorityDir(tmp_path / "authority")
    replace_file, left = Path.replace, 0

    def replace(beside: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return replace_file(beside, target)

    monkeypatch.setattr(Path, "replace", replace)
    for whole in range(2):
        left = whole
        with pytest.raises(KeyboardInterrupt):
            place.create("x", NOW)
        with pytest.raises(Missing, match="aclflow certificates init"):
            place.load()
    key = place.key.read_bytes()
    left = 2
    made = place.create("x", NOW)
    assert place.load().fingerprint == made.fingerprint
    assert place.key.read_bytes() == key, "what may have been copied already stays good"
    place.key.unlink()
    with pytest.raises(Conflict):
        place.create("x", NOW)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_may_read_is_taken_for_lost(tmp_path: Path, mode: int) -> None:
    place = AuthorityDir(tmp_path / "authority")
    place.create("x", NOW)
    place.key.chmod(mode)
    with pytest.raises(BadInput, match="others may read"):
        place.load()


def test_a_damaged_authority_is_told_by_its_file(tmp_path: Path) -> None:
    place = AuthorityDir(tmp_path / "authority")
    place.create("x", NOW)
    place.certificate.write_text(OTHER.pem)
    with pytest.raises(BadInput, match="not the one in its certificate"):
        place.load()
    place.certificate.write_text("nothing")
    with pytest.raises(BadInput, match="not a certificate"):
        place.load()


def test_the_service_keeps_its_certificate_until_it_is_time(tmp_path: Path) -> None:
    place = AuthorityDir(tmp_path / "authority")
    ours = place.create("x", NOW)
    names = ["a.example", "127.0.0.1"]
    assert own.ensure_certificate(place, ours, names, NOW)
    assert not own.ensure_certificate(place, ours, names, NOW + own.RENEWED_AFTER - dt.timedelta(minutes=1))
    assert own.ensure_certificate(place, ours, names, NOW + own.RENEWED_AFTER + dt.timedelta(minutes=1))
    assert own.ensure_certificate(place, ours, ["b.example"], NOW)


@pytest.mark.parametrize("fault", ["other key", "no key", "other authority", "nonsense"])
def test_a_pair_that_does_not_fit_is_made_anew(tmp_path: Path, fault: str) -> None:
    """As a service that was killed between the two files would find it, or one whose authority is a new one."""
    place = AuthorityDir(tmp_path / "authority")
    ours = place.create("x", NOW)
    own.ensure_certificate(place, ours, ["a.example"], NOW)
    match fault:
        case "other key":
            place.service_key.write_bytes(place.key.read_bytes())
        case "no key":
            place.service_key.unlink()
        case "other authority":
            ours = OTHER
        case _:
            place.service_certificate.write_text("x")
    assert own.ensure_certificate(place, ours, ["a.example"], NOW)
    assert read_certificate(place.service_certificate).public_key() == read_key(place.service_key).public_key()


# ------------------------------------------------------------------------------------------------------------- tokens


@given(st.text("abcXYZ019-_", min_size=1, max_size=60), st.none() | st.binary(min_size=32, max_size=32))
def test_a_token_says_whom_to_believe(secret: str, pin: bytes | None) -> None:
    token = EnrolmentToken(secret, pin)
    assert EnrolmentToken.parse(token.text) == token
    assert f"'{secret}'" not in repr(token)


@given(st.binary(min_size=32, max_size=32), st.data())
def test_a_token_that_was_cut_off_or_mistyped_is_not_one_without_a_pin(pin: bytes, data: st.DataObject) -> None:
    """Then nobody in particular would be believed: whatever is behind the dot must be a whole fingerprint."""
    text = EnrolmentToken("secret", pin).text
    cut = data.draw(st.integers(len("secret."), len(text) - 1))
    with pytest.raises(BadInput):
        EnrolmentToken.parse(text[:cut])
    with pytest.raises(BadInput):
        EnrolmentToken.parse(text + "A")
