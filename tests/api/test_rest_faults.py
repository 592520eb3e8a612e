"""What goes wrong around the service: locks, floods, races, kills and restarts."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from command_line import aclflow
from patience import PATIENCE_S, until
from served import Served, ServiceProcess, served

from orchestrator.bootstrap import create_token, opened_store, serve
from orchestrator.client import Client, Held, Host
from orchestrator.compile.hostprogram import compile_host
from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.errors import AclflowError, BadInput, Busy, Conflict, Missing, Stale, Unreachable
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import Acl
from orchestrator.program.delta import Delta, apply
from orchestrator.program.program import Program
from orchestrator.settings import Settings
from orchestrator.store.records import PolicySnapshot, Role

LIMIT = 50_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a low limit for bodies and no patience with locks."""
    with served(tmp_path_factory.mktemp("small"), body_limit_bytes=LIMIT, busy_timeout_s=0.2) as running:
        with running.client() as admin:
            prepare(admin)
        yield running


def prepare(admin: Client) -> None:
    admin.domains.create("pop")
    admin.tenants.create("all", domain="pop", prefixes=[EVERY_IPV4, EVERY_IPV6])


def ports(first: int, count: int) -> Acl:
    rules = [
        {"id": f"r{port}", "action": "permit", "protocol": "tcp", "destination_ports": port}
        for port in range(first, first + count)
    ]
    return acl_from_json({"rules": rules})


# ---------------------------------------------------------------------------------------------------- bodies


def padded(size: int) -> bytes:
    """A list that is right, and of so many bytes."""
    return b'{"rules": []}'.ljust(size)


def in_chunks(body: bytes) -> Iterator[bytes]:
    """Sent without Content-Length."""
    for start in range(0, len(body), 4096):
        yield body[start : start + 4096]


@pytest.mark.parametrize("sending", [lambda body: body, in_chunks], ids=["announced", "chunked"])
def test_a_body_beyond_the_limit_is_refused(small: Served, sending: Callable[[bytes], bytes | Iterator[bytes]]) -> None:
    headers = {"If-Match": "*"}
    with small.http() as http:
        path = "/v1/tenants/all/acl"
        assert http.put(path, content=sending(padded(LIMIT)), headers=headers).status_code == 200
        answer = http.put(path, content=sending(padded(LIMIT + 1)), headers=headers)
        assert answer.status_code == 413
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert str(LIMIT) in answer.json()["detail"]
        assert http.get(path).status_code == 200


def test_a_body_that_announces_too_much_is_refused_before_it_comes(small: Served) -> None:
    host, port = small.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as line:
        line.sendall(f"PUT /v1/tenants/all/acl HTTP/1.1\r\nHost: x\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_small_documents_have_a_limit_of_their_own(service: Served, http: httpx.Client) -> None:
    body = b'{"id": "x", "domain": "y", "name": "' + b"a" * (1 << 20) + b'"}'
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/tenants", "/v1/tenants/x/acl/rules"):
        assert http.post(path, content=body, headers=headers).status_code == 413
        assert http.post(path, content=in_chunks(body), headers=headers).status_code == 413
        assert http.patch(path, content=body, headers=headers).status_code == 405
    with service.http("nobody") as stranger:
        answer = stranger.put("/v1/tenants/x/acl", content=b"[" * (8 << 20))
        assert answer.status_code == 401


# ---------------------------------------------------------------------------------------------------- locks and races


def test_a_locked_database_is_503_and_nothing_is_lost(small: Served) -> None:
    with small.client() as admin, small.http() as http:
        before = admin.acls.put("all", ports(1, 3))
        other = sqlite3.connect(small.settings.state_dir / "aclflow.db", isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Busy, match="try again"):
                admin.acls.put("all", ports(1, 4))
            answer = http.delete("/v1/tenants/all/acl/rules/r1", headers={"If-Match": "*"})
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert admin.acls.read("all").etag == before.etag  # readers are not held up
        finally:
            other.execute("ROLLBACK")
            other.close()
        assert admin.acls.put("all", ports(1, 4)).changed


def test_of_many_writers_on_one_condition_one_wins(service: Served, admin: Client) -> None:
    admin.domains.create("race")
    admin.tenants.create("race", domain="race")
    etag = admin.acls.read("race").etag

    def write(first: int) -> int | None:
        try:
            admin.acls.put("race", ports(first, 2), etag=etag)
        except Stale:
            return None
        return first

    with ThreadPoolExecutor(8) as pool:
        winners = [first for first in pool.map(write, range(1, 9)) if first is not None]
    assert len(winners) == 1
    assert admin.acls.read("race").acl == ports(winners[0], 2)


def test_many_writers_of_single_rules_all_get_in(service: Served, admin: Client) -> None:
    admin.domains.create("crowd")
    admin.tenants.create("crowd", domain="crowd")
    rules = ports(1000, 24).rules
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda rule: admin.acls.insert_rule("crowd", rule), rules))
    generations = [each.generation for each in written]  # who writes at the same time may share one
    assert sorted(set(generations)) == list(range(min(generations), max(generations) + 1))
    assert {rule.id for rule in admin.acls.read("crowd").acl.rules} == {rule.id for rule in rules}
    program = admin.points.watch_program("crowd")
    assert isinstance(program, Program)
    assert program.generation == max(generations)
    with service.service.parts.store.read() as unit:
        policy = unit.domains.policy("crowd").policy
    assert program.digest == compile_host(policy, domain="crowd", generation=1).digest


# ---------------------------------------------------------------------------------------------------- processes


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServiceProcess]:
    running = ServiceProcess(tmp_path)
    yield running
    running.kill()


def test_a_restart_goes_on_where_it_was(process: ServiceProcess) -> None:
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    with Client(process.url, token) as admin:
        prepare(admin)
        admin.acls.put("all", ports(1, 50))
        before = admin.points.watch_program("pop")
    process.stop()
    process.start()
    with Client(process.url, token) as admin:
        after = admin.points.watch_program("pop")
        assert isinstance(before, Program)
        assert isinstance(after, Program)
        assert (after.digest, after.generation) == (before.digest, before.generation)
        assert admin.points.watch_program("pop", Held(before.digest, before.generation), wait_s=0) is None
        assert admin.acls.put("all", ports(1, 51)).generation > before.generation
        delta = admin.points.watch_program("pop", Held(before.digest, before.generation), wait_s=0)
        assert isinstance(delta, Delta)
        assert apply(before, delta).generation > before.generation


def test_a_second_service_keeps_away_from_the_database(process: ServiceProcess) -> None:
    process.start()
    with pytest.raises(Conflict, match="one at a time"):
        serve(process.settings)
    process.stop()
    process.start()


def test_what_keeps_a_service_from_starting_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wrong: list[tuple[dict[str, object], type[AclflowError]]] = [
            ({"listen_port": taken.getsockname()[1]}, Missing),
            ({"listen_host": "203.0.113.1", "plain_http": True}, Missing),
            ({"listen_host": "203.0.113.1"}, BadInput),
            ({"tls": True}, Missing),
            ({"tls_key": tmp_path / "none", "tls_certificate": tmp_path / "none"}, Missing),
            ({"tls_key": Path("/etc/hostname"), "tls_certificate": Path("/etc/hostname")}, Missing),
            ({"database_url": "sqlite:////nowhere/aclflow.db"}, Missing),
            ({"database_url": "mysql://x/y"}, BadInput),
            ({"database_url": "postgresql+psycopg://u@127.0.0.1:1/x"}, Unreachable),
            ({"state_dir": Path("/proc/none")}, Missing),
        ]
        for chosen, error in wrong:
            with pytest.raises(error):
                serve(Settings(**{"state_dir": tmp_path, "listen_port": 0} | chosen))  # type: ignore[arg-type]


def test_a_service_speaks_tls_to_those_who_trust_its_authority(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run([*made, *subject, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    process = ServiceProcess(tmp_path, tls_key=key, tls_certificate=certificate)
    try:
        process.start(authority=certificate)
        token = create_token(process.settings, Role.ADMIN).secret
        with Client(process.url, token, authority=certificate) as trusting:
            assert list(trusting.domains.read_all()) == []
        with Client(process.url, token) as other, pytest.raises(Unreachable, match="certificate"):
            list(other.domains.read_all())
        with pytest.raises(Missing):
            Client(process.url, token, authority=tmp_path / "none.pem")
        environment = {"ACLFLOW_URL": process.url, "ACLFLOW_TOKEN": token}
        assert aclflow("domain", "list", environment=environment).code == 3
        trusted = aclflow("domain", "list", environment={**environment, "ACLFLOW_AUTHORITY": str(certificate)})
        assert trusted.code == 0
    finally:
        process.kill()


def test_a_service_that_is_to_stop_answers_those_who_wait(process: ServiceProcess) -> None:
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    answers: list[object] = []
    with Client(process.url, token) as admin:
        prepare(admin)
        admin.domains.add_host("pop", Host("host1", 1, "up0"))
        program = admin.points.watch_program("pop")
        assert isinstance(program, Program)
        held = Held(program.digest, program.generation)
        waits = (
            lambda: answers.append(
                admin.domains.wait_until_enforced("pop", program.generation, timeout_s=PATIENCE_S).done
            ),
            lambda: answers.append(admin.points.watch_program("pop", held, wait_s=PATIENCE_S)),
        )
        threads = [threading.Thread(target=wait) for wait in waits]
        for thread in threads:
            thread.start()
        until(lambda: "aclflow_watching 1.0" in httpx.get(f"{process.url}/metrics").text)
        time.sleep(0.3)
        process.stop()
        for thread in threads:
            thread.join(timeout=PATIENCE_S)
    assert sorted(answers, key=str) == [False, None]
    assert "Traceback" not in process.log


def test_killed_in_the_middle_of_a_write_it_holds_the_old_list_or_the_new(process: ServiceProcess) -> None:
    """After each kill the list is the acknowledged one, or the one whose answer was lost; never a mixture."""
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    with Client(process.url, token) as admin:
        prepare(admin)
        acknowledged = ports(1, 1500)
        admin.acls.put("all", acknowledged)
    outcomes = set()
    for turn, delay_s in enumerate((0.0, 0.02, 0.05, 0.08, 0.12)):
        wanted = ports(2000 * (turn + 1), 1500)
        answered = put_and_kill(process, token, wanted, delay_s)
        process.start()
        with Client(process.url, token) as admin:
            seen = admin.acls.read("all").acl
            assert seen in ((wanted,) if answered else (acknowledged, wanted))
            outcomes.add(seen == wanted)
            program = admin.points.watch_program("pop")
            assert isinstance(program, Program)
            assert program.generation == admin.domains.read("pop").generation
            assert program.digest == digest_of_stored(process)
            acknowledged = seen
    assert False in outcomes, "no kill came before the commit: the delays are too long to show anything"


def put_and_kill(process: ServiceProcess, token: str, acl: Acl, delay_s: float) -> bool:
    """Send a list, kill the service a moment later; whether the list was acknowledged."""
    with Client(process.url, token) as admin, ThreadPoolExecutor(1) as pool:
        admin.domains.read("pop")  # the connection is there
        sending = pool.submit(admin.acls.put, "all", acl)
        time.sleep(delay_s)
        process.kill()
        try:
            return sending.result(timeout=PATIENCE_S).changed
        except Unreachable:
            return False


def digest_of_stored(process: ServiceProcess) -> bytes:
    with opened_store(process.settings) as store, store.read() as unit:
        snapshot = unit.domains.policy("pop")
    return compile_host(snapshot.policy, domain="pop", generation=1).digest


def test_single_rules_survive_a_kill_once_acknowledged(process: ServiceProcess) -> None:
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    acknowledged: list[str] = []
    with Client(process.url, token) as admin:
        prepare(admin)

        def insert() -> None:
            for port in range(1, 100_000):
                rule = {"id": f"r{port}", "action": "permit", "protocol": "tcp", "destination_ports": port}
                try:
                    admin.acls.insert_rule("all", rule_from_json(rule), position=0)
                except AclflowError:
                    return
                acknowledged.append(rule["id"])  # type: ignore[arg-type]

        writer = threading.Thread(target=insert)
        writer.start()
        until(lambda: len(acknowledged) > 5)
        process.kill()
        writer.join(timeout=PATIENCE_S)
    process.start()
    with Client(process.url, token) as admin:
        kept = [rule.id for rule in admin.acls.read("all").acl.rules]
    newest_first = acknowledged[::-1]
    assert kept in (newest_first, [f"r{len(acknowledged) + 1}", *newest_first])


def test_a_domain_that_does_not_compile_keeps_none_of_fifty_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are given out, written and ready, and the one is named until it compiles again."""
    domains, broken = [f"d{number:02}" for number in range(50)], "d00"
    with opened_store(Settings(state_dir=tmp_path)) as store, store.write() as unit:
        for number, domain in enumerate(domains):
            unit.domains.create(domain)
            owned = [Prefix.parse(f"10.{number}.0.0/16")]
            unit.tenants.create(f"of-{domain}", name="", domain=domain, prefixes=owned)
    compile_one, faults = Compiler.compile, {broken}

    def compile_others(self: Compiler, domain: str, snapshot: PolicySnapshot, **more: bool) -> Compiled:
        if domain in faults:
            raise MemoryError("planted")
        return compile_one(self, domain, snapshot, **more)

    monkeypatch.setattr(Compiler, "compile", compile_others)
    with served(tmp_path) as running, running.client() as admin:
        assert [domain for domain in domains if not admin.is_ready(domain)] == [broken]
        assert [(each.kind, each.domain) for each in admin.read_status().concerns] == [("uncompiled", broken)]
        for domain in (domains[1], domains[-1]):
            generation = admin.acls.put(f"of-{domain}", ports(1, 3)).generation
            assert admin.points.watch_program(domain, wait_s=PATIENCE_S).generation >= generation
        with running.client() as another, pytest.raises(AclflowError):
            another.acls.put(f"of-{broken}", ports(1, 3))
        assert not admin.acls.read(f"of-{broken}").acl.rules
        faults.clear()
        until(lambda: admin.is_ready(broken))
        assert admin.read_status().concerns == ()
