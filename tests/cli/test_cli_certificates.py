"""`aclflow certificates` and the tokens of `aclflow domain invite`, against a service that speaks TLS."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended, aclflow
from cryptography import x509
from served import Served, served

from orchestrator.client import Host
from orchestrator.identity.authority import fingerprint_of
from orchestrator.identity.files import AuthorityDir, parsed_certificate, read_certificate, read_key
from orchestrator.identity.requests import EnrolmentToken

Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("service"), tls=True) as here, here.client() as client:
        client.domains.create("pop1")
        for number in (1, 2):
            client.domains.add_host("pop1", Host(f"host{number}", number, "up0"))
        yield here


@pytest.fixture
def run(service: Served) -> Run:
    believed = {"ACLFLOW_AUTHORITY": str(service.authority)}

    def call(*arguments: str, stdin: str = "", **more: str) -> Ended:
        said = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token} | believed | more
        return aclflow(*arguments, stdin=stdin, environment=said)

    return call


def test_an_authority_is_made_once_and_shown(tmp_path: Path) -> None:
    here = {"ACLFLOW_STATE_DIR": str(tmp_path)}
    missing = aclflow("certificates", "show", environment=here)
    assert (missing.code, "aclflow certificates init" in missing.err) == (3, True)
    made = aclflow("certificates", "init", "--json", environment=here)
    authority = AuthorityDir(tmp_path / "authority").load()
    assert (made.code, made.json()["fingerprint"]) == (0, authority.fingerprint.hex())
    assert authority.fingerprint.hex() in aclflow("certificates", "show", environment=here).out
    again = aclflow("certificates", "init", environment=here)
    assert (again.code, "already" in again.err) == (1, True)
    assert AuthorityDir(tmp_path / "authority").load().fingerprint == authority.fingerprint


def test_a_switch_gets_its_certificate(run: Run, tmp_path: Path) -> None:
    key, asked, got = tmp_path / "key.pem", tmp_path / "csr.pem", tmp_path / "cert.pem"
    assert run("certificates", "request", "--name", "host1", "--key", str(key), "--out", str(asked)).code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert run("certificates", "request", "--name", "host1", "--key", str(key)).code == 1
    issued = run("certificates", "issue", "pop1", "host1", "--csr", str(asked), "--also", "host2", "--out", str(got))
    assert issued.code == 0, issued.err
    assert read_certificate(got).public_key() == read_key(key).public_key()
    printed = run("certificates", "issue", "pop1", "host1", "--csr", str(asked)).out
    assert printed == got.read_text(), "what is printed is PEM, too"
    [listed] = [each for each in run("certificates", "list", "--json").json() if each["name"] == "host1"]
    assert (listed["usage"], listed["valid"]) == ("switch", True)
    assert run("certificates", "revoke", listed["serial"]).code == 0
    assert f"{listed['serial']}\tswitch\tpop1\thost1" in (table := run("certificates", "list", "--domain", "pop1").out)
    assert "revoked" in table
    assert run("certificates", "revoke", "0" * 40).code != 0
    assert run("certificates", "issue", "pop1", "host9", "--csr", str(asked)).code != 0
    assert run("certificates", "issue", "pop1", "host1", "--csr", str(tmp_path / "none")).code == 3


def test_a_switch_gets_its_certificate_for_a_one_time_token(run: Run, tmp_path: Path) -> None:
    key, asked, got = tmp_path / "key.pem", tmp_path / "csr.pem", tmp_path / "cert.pem"
    assert run("certificates", "request", "--name", "host2", "--key", str(key), "--out", str(asked)).code == 0
    token = tmp_path / "token"
    token.write_text(run("domain", "invite", "pop1", "--name", "host2", "--kind", "switch").out)
    words = ("certificates", "enrol", "host2", "--enrol-file", str(token))
    made = run(*words, "--csr", "-", "--out", str(got), stdin=asked.read_text(), ACLFLOW_TOKEN="")
    assert made.code == 0, made.err
    assert read_certificate(got).public_key() == read_key(key).public_key()
    assert run(*words, "--csr", str(asked), ACLFLOW_TOKEN="").out == got.read_text()
    other = run("certificates", "request", "--name", "host2", "--key", str(tmp_path / "other.pem")).out
    assert run(*words, "--csr", "-", stdin=other, ACLFLOW_TOKEN="").code == 1


def test_a_machine_with_nothing_but_a_token_gets_its_switch_a_certificate(
    run: Run, service: Served, tmp_path: Path
) -> None:
    """As a machine that a cloud made: it believes nobody yet, and its folder is not there."""
    assert service.authority is not None
    files, nothing = tmp_path / "etc/tls", {"ACLFLOW_AUTHORITY": ""}
    token = run("domain", "invite", "pop1", "--name", "host2", "--kind", "switch").out.strip()
    words = ("host", "enrol", "pop1", "host2", "--folder", str(files))
    lacking = run(*words, **nothing, ACLFLOW_TOKEN="")
    assert (lacking.code, "one-time token" in lacking.err) == (3, True)
    wrong = run(*words, **nothing, ACLFLOW_TOKEN=token[:-43] + "A" * 43)
    assert (wrong.code, files.exists()) == (1, False), wrong.err
    away = run(*words, **nothing, ACLFLOW_TOKEN=token, ACLFLOW_URL="https://127.0.0.1:9")
    assert away.code == 3, "what the unit tries again"
    made = run(*words, **nothing, ACLFLOW_TOKEN=token)
    assert made.code == 0, made.err
    held = read_certificate(files / "switch.pem")
    assert held.public_key() == read_key(files / "switch.pem").public_key()
    assert (files / "authority.pem").read_text() == service.authority.read_text()
    again = run(*words, **nothing, ACLFLOW_TOKEN=token)
    assert (again.code, "holds" in again.out) == (0, True), again.err
    stolen = run(*words[:-1], str(tmp_path / "other"), **nothing, ACLFLOW_TOKEN=token)
    assert stolen.code == 1, stolen.out


def test_a_console_gets_a_certificate_from_the_authority_of_this_machine(tmp_path: Path) -> None:
    here = {"ACLFLOW_STATE_DIR": str(tmp_path)}
    aclflow("certificates", "init", environment=here)
    asked = aclflow("certificates", "request", "--name", "c1", "--key", str(tmp_path / "key.pem")).out
    words = ("certificates", "console", "c1", "--csr", "-", "--host", "console.example", "--host", "192.0.2.2")
    made = aclflow(*words, stdin=asked, environment=here)
    assert made.code == 0, made.err
    read = parsed_certificate(made.out.encode(), "x")
    read.verify_directly_issued_by(read_certificate(tmp_path / "authority/authority.pem"))
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each.value) for each in names} == {"aclflow://service/console/c1", "console.example", "192.0.2.2"}
    elsewhere = aclflow(*words, stdin=asked, environment={"ACLFLOW_STATE_DIR": str(tmp_path / "none")})
    assert (elsewhere.code, "aclflow certificates init" in elsewhere.err) == (3, True)


def test_whom_to_believe_is_asked_for_by_its_fingerprint(run: Run, service: Served, tmp_path: Path) -> None:
    assert service.authority is not None
    known = fingerprint_of(read_certificate(service.authority)).hex()
    out = tmp_path / "authority.pem"
    stranger = {"ACLFLOW_AUTHORITY": ""}
    assert "not of the authority" in run("certificates", "authority", **stranger).err
    wrong = run("certificates", "authority", "--fingerprint", "00" * 32, "--out", str(out), **stranger)
    assert (wrong.code, out.exists()) == (2, False)
    assert run("certificates", "authority", "--fingerprint", known.upper(), "--out", str(out), **stranger).code == 0
    assert out.read_text() == service.authority.read_text()


def test_tokens_carry_the_fingerprint(run: Run, service: Served) -> None:
    assert service.authority is not None
    pin = fingerprint_of(read_certificate(service.authority))
    one = run("domain", "invite", "pop1", "--name", "fw1", "--kind", "nftables", "--json").json()
    group = run("domain", "group", "invite", "pop1", "fleet", "--json").json()
    for text in (one["token"], group["token"]):
        assert EnrolmentToken.parse(text).pin == pin
    assert [each["id"] for each in run("domain", "group", "list", "pop1", "--json").json()] == [group["id"]]
    assert "fleet" in run("domain", "group", "list", "pop1").out
    assert run("domain", "group", "remove", "pop1", str(group["id"])).code == 0
    assert run("domain", "group", "list", "pop1", "--json").json() == []


def test_a_service_does_not_speak_in_clear_over_a_network_unless_told_to(tmp_path: Path) -> None:
    here = {"ACLFLOW_STATE_DIR": str(tmp_path)}
    refused = aclflow("serve", "--host", "192.0.2.1", environment=here)
    assert (refused.code, "--plain-http" in refused.err) == (2, True)
    no_authority = aclflow("serve", "--tls", environment=here)
    assert (no_authority.code, "aclflow certificates init" in no_authority.err) == (3, True)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (("--host", "192.0.2.1"), "--plain-http"),
        (("--tls-key", "k.pem"), "go together"),
        (("--tls-certificate", "c.pem"), ""),
    ],
)
def test_a_console_does_not_speak_in_clear_over_a_network_unless_told_to(said: tuple[str, ...], place: str) -> None:
    refused = aclflow("console", *said)
    assert (refused.code, place in refused.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("agent", "--driver", "nftables"),
        ("controller",),
        ("console",),
        ("certificates", "authority"),
    ],
)
def test_nobody_asks_a_service_in_clear_over_a_network_unless_told_to(tmp_path: Path, words: tuple[str, ...]) -> None:
    far = "http://192.0.2.1:8420"
    own = {"ACLFLOW_STATE_DIR": str(tmp_path), "ACLFLOW_URL": far, "ACLFLOW_TOKEN": "aclflow_x"}
    refused = aclflow(*words, environment=own)
    assert (refused.code, "ACLFLOW_PLAIN_HTTP=yes" in refused.err, far in refused.err) == (2, True, True), refused


def test_a_token_file_that_is_not_there_is_no_token(tmp_path: Path) -> None:
    """It is removed once a machine has enrolled, and then is not needed."""
    here = {"ACLFLOW_STATE_DIR": str(tmp_path / "state")}
    for command in ("controller", "agent"):
        ended = aclflow(command, "--enrol-file", str(tmp_path / "none"), environment=here)
        assert (ended.code, "enrolment token is needed" in ended.err) == (3, True)
