"""The audit trail over REST: who did what, what was refused, what tenants see of it; and that nobody erases it."""

from __future__ import annotations

import datetime as dt
import itertools
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from patience import PATIENCE_S, until
from served import Served, served

from api.rates import Rates
from orchestrator import wiring
from orchestrator.bootstrap import build_service
from orchestrator.client import Client
from orchestrator.control.audit import MOST_KEYS, OTHERS, UNKNOWN, Auditor, Refusal, Refusals
from orchestrator.control.auditsinks import AnchorFile, Syslog, message_of, open_sinks
from orchestrator.errors import BadInput, NotFound, TooLarge, TooOften
from orchestrator.identity.trail import AuditKey, Verified, Verifier
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import TenantId
from orchestrator.settings import Settings
from orchestrator.store.audit import Actor
from orchestrator.store.records import Principal, Role
from orchestrator.wire.audit import AuditAnchor, AuditEntry
from orchestrator.wire.tenants import Limits

_numbers = itertools.count()
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def acl(port: int) -> object:
    return acl_from_json({"rules": [{"id": "r", "action": "permit", "protocol": "tcp", "destination_ports": port}]})


@pytest.fixture
def tenant(admin: Client) -> str:
    name = f"au{next(_numbers)}"
    admin.domains.create(name)
    admin.tenants.create(name, domain=name, prefixes=[Prefix.parse(f"10.{next(_numbers)}.0.0/16")])
    return name


def of(client: Client, **wanted: str) -> list[AuditEntry]:
    return [*client.audit.read_entries(wanted)]


def look(service: Served) -> None:
    service.service.parts.auditor.look()


def verified(client: Client) -> Verified:
    verifier = Verifier([*client.audit.read_anchors()])
    for entry in client.audit.read_entries():
        verifier.read(entry)
    return verifier.result()


def test_many_writes_of_a_member_erase_nothing_of_an_administrator(
    service: Served, admin: Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6,200 PUTs of a list once pushed `token.created` out of the only record."""
    store = service.service.parts.store
    monkeypatch.setattr(store, "settings", type(store.settings)(events_kept=100))
    made, _ = admin.tokens.create("admin", description="a trace")
    with service.client(service.make_token(Role.MEMBER, tenant)) as member:
        for port in range(1, 300):
            member.acls.put(tenant, acl(port))  # type: ignore[arg-type]
    with store.read() as unit:
        kept = unit.events.since(0, limit=100_000).events
    assert ("token.created", str(made.id)) in {(event.kind, event.subject) for event in kept}
    assert [entry.subject for entry in of(admin, kind="token.created")].count(str(made.id)) == 1
    assert verified(admin).faults == ()


def test_a_write_is_told_with_who_from_where_and_digests(service: Served, admin: Client, tenant: str) -> None:
    token = service.make_token(Role.MEMBER, tenant)
    with service.client(token) as member:
        member.acls.put(tenant, acl(80))  # type: ignore[arg-type]
        member.acls.put(tenant, acl(81))  # type: ignore[arg-type]
        own = member.tokens.read_own().id
        first, second = of(member, kind="acl.replaced")
    assert (first.who, first.address, first.subject, first.result) == (f"member:{own}", "127.0.0.1", tenant, "done")
    assert (first.before, second.before) == (None, first.after)
    assert second.after not in (None, first.after)
    assert admin.audit.read_entry(second.id) == second


def test_what_is_refused_is_counted_by_principal_and_minute(service: Served, admin: Client, tenant: str) -> None:
    token = service.make_token(Role.READER, tenant)
    look(service)
    before = len(of(admin, kind="request.refused"))
    with service.http(token) as reader, service.http("aclflow_nobody") as nobody:
        for _ in range(30):
            assert reader.put(f"/v1/tenants/{tenant}/acl", json={"rules": []}).status_code == 403
            assert reader.get("/v1/tenants/another").status_code == 404
            assert nobody.get("/v1/tenants").status_code == 401
        assert reader.get("/v1/tenants?limit=0").status_code == 400  # nothing that says anything of who asks
    look(service)
    found = of(admin, kind="request.refused")[before:]
    counted = {(entry.who.split(":")[0], entry.detail["status"]): entry.detail["count"] for entry in found}
    assert counted == {("reader", 403): 30, ("reader", 404): 30, ("unknown", 401): 30}
    assert {entry.result for entry in found} == {"refused"}
    assert {entry.subject for entry in found} >= {f"PUT /v1/tenants/{tenant}/acl", "GET /v1/tenants"}
    assert all(entry.address == "127.0.0.1" for entry in found)


def test_a_path_of_a_stranger_is_written_as_it_came(service: Served, admin: Client) -> None:
    """PostgreSQL keeps no NUL: with one in a path, no refusal was written and no head anchored any more."""
    path = "/v1/%00%0a%1b%e2%80%ae%ff"
    with service.http("aclflow_nobody") as nobody:
        nobody.get(path)
    look(service)
    assert f"GET {path}" in {entry.subject for entry in of(admin, kind="request.refused")}


def refused(who: str, addresses: int, tenant: str | None = None, status: int = 404) -> Iterator[Refusal]:
    return (Refusal(Actor(who, f"2001:db8::{number:x}"), tenant, status) for number in range(addresses))


def noted(*refusals: Iterator[Refusal]) -> dict[Refusal, int]:
    """What is told of a minute in which these were refused, in this order."""
    found = Refusals()
    for refusal in itertools.chain(*refusals):
        found.note(refusal, "GET /v1/tenants")
    told = {refusal: count for refusal, count, _ in found.collect()}
    assert found.collect() == ()
    return told


def test_no_matter_how_many_addresses_the_trail_grows_little() -> None:
    told = noted(refused(UNKNOWN, MOST_KEYS + 500, status=401))
    assert len(told) == MOST_KEYS + 1
    assert told[Refusal(Actor(UNKNOWN), None, 401)] == 500


def test_no_matter_how_many_tokens_the_trail_grows_little() -> None:
    """A member may replace its token again and again."""
    members = (Refusal(Actor(f"member:{number}", "192.0.2.7"), "red", 404) for number in range(2000))
    told = noted(members)
    assert len(told) == 2 * MOST_KEYS + 1
    assert told[Refusal(OTHERS, "red", 404)] == 2000 - 2 * MOST_KEYS


def test_nobody_hides_what_another_was_refused_behind_many_addresses() -> None:
    """A stranger with a thousand of them had what others were refused told without their names."""
    probing = Refusal(Actor("member:7", "192.0.2.7"), "red", 404)
    told = noted(refused(UNKNOWN, 2000, status=401), refused("member:8", 2000, "blue"), iter([probing] * 3))
    assert told[probing] == 3
    assert told[Refusal(Actor("member:8"), "blue", 404)] == 2000 - MOST_KEYS
    assert len(told) == 2 * (MOST_KEYS + 1) + 1


def test_tenants_see_what_is_about_them(service: Served, admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
    (by_admin,) = of(admin, kind="acl.replaced", tenant=tenant)
    (foreign,) = of(admin, kind="token.created", subject=str(admin.tokens.create("admin")[0].id))
    with service.client(service.make_token(Role.MEMBER, tenant)) as member:
        seen = of(member)
        assert {entry.tenant for entry in seen} == {by_admin.tenant}
        assert [entry.address for entry in seen if entry.id == by_admin.id] == [""]
        assert member.audit.read_entry(by_admin.id).address == ""
        with pytest.raises(NotFound):
            member.audit.read_entry(foreign.id)
        with pytest.raises(NotFound):
            of(member, tenant="another")
    with service.http(service.make_token(Role.READER, tenant)) as reader:
        assert reader.get("/v1/audit").status_code == 403
        assert reader.get(f"/v1/audit/{by_admin.id}").status_code == 403
        assert reader.get("/v1/audit/anchors").status_code == 404


def test_filters_and_pages(admin: Client, http: httpx.Client, tenant: str) -> None:
    start = dt.datetime.now(dt.UTC)
    for port in range(1, 6):
        admin.acls.put(tenant, acl(port))  # type: ignore[arg-type]
    wanted = {"subject": tenant, "since": start.isoformat()}
    assert len(of(admin, **wanted)) == 5
    assert of(admin, subject=tenant, until=start.isoformat(), kind="acl.replaced") == []
    first = http.get("/v1/audit", params={**wanted, "limit": 2}).json()
    second = http.get("/v1/audit", params={**wanted, "limit": 2, "marker": first["next"]}).json()
    assert [entry["number"] for page in (first, second) for entry in page["items"]] == [
        entry.number for entry in of(admin, **wanted)[:4]
    ]
    newest = http.get("/v1/audit", params={**wanted, "limit": 2, "newest": True}).json()
    assert [entry["number"] for entry in newest["items"]] == [each.number for each in of(admin, **wanted)[:2:-1]]
    assert http.get("/v1/audit", params={"since": "2026-11-24T12:00:00"}).json()["place"] == "query.since"
    assert http.get("/v1/audit/anchors?after=x").status_code == 400
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert http.request(method, "/v1/audit/1").status_code == 405


# ---------------------------------------------------------------------------------------------------- anchors


def anchors_in(file: Path) -> list[AuditAnchor]:
    from orchestrator.cli.audit import anchors_in as read  # noqa: PLC0415

    return [*read(file)]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "service").mkdir()
    with served(tmp_path / "service", audit_file=tmp_path / "anchors") as running:
        yield running


def test_heads_are_anchored_in_a_file(alone: Served, tmp_path: Path) -> None:
    with alone.client() as admin:
        admin.domains.create("one")
        look(alone)
        look(alone)  # nothing new: no anchor
        admin.domains.create("two")
        look(alone)
        inside = [*admin.audit.read_anchors()]
    assert anchors_in(tmp_path / "anchors") == inside
    assert [anchor.number for anchor in inside] == [1, 2]
    assert {anchor.key for anchor in inside} == {(alone.settings.audit_dir / "key.pub").read_text().strip()}


def test_heads_are_anchored_again_and_again_at_least_each_minute(tmp_path: Path, alone: Served) -> None:
    store, file = alone.service.parts.store, tmp_path / "by-itself"
    assert Auditor(store, Refusals(), AuditKey.open(tmp_path / "key")).every_s <= 60.0
    auditor = Auditor(store, Refusals(), AuditKey.open(tmp_path / "key"), (AnchorFile(file),), every_s=0.01)
    auditor.start()
    try:
        with alone.client() as admin:
            for number in (1, 2):
                admin.domains.create(f"d{number}")
                until(lambda: [each.number for each in anchors_in(file)][-1:] == [number])  # noqa: B023
    finally:
        auditor.stop()


def test_what_says_that_old_entries_were_taken_out_is_anchored_at_once(tmp_path: Path, alone: Served) -> None:
    """Else it would permit nothing until the next look, and the trail would seem to be cut."""
    alone.service.parts.auditor.keep = dt.timedelta(days=-1)  # what is anchored is old at once
    with alone.client() as admin:
        admin.domains.create("one")
        look(alone)
        assert [entry.kind for entry in of(admin)] == ["audit.pruned"]
        result = verified(admin)
        assert (result.faults, result.unanchored) == ((), 0)
    assert [anchor.number for anchor in anchors_in(tmp_path / "anchors")] == [1, 2]


def test_a_sink_that_takes_nothing_is_told_of_and_gets_all_later(tmp_path: Path, alone: Served) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    store, key = alone.service.parts.store, AuditKey.open(tmp_path / "key")
    auditor = Auditor(store, Refusals(), key, (AnchorFile(folder / "anchors"),))
    (folder / "anchors").unlink()
    folder.rmdir()
    with alone.client() as admin:
        for name in ("one", "two"):
            admin.domains.create(name)
            auditor.look()
        assert auditor.unsent == 2
        (event,) = [event for event in admin.events.read(limit=1000).items if event.kind == "audit.unanchored"]
        assert str(folder) in event.detail["sink"]
        folder.mkdir()
        auditor.look()
    assert auditor.unsent == 0
    assert len(anchors_in(folder / "anchors")) == 2


def test_by_default_heads_are_sent_to_the_machines_own_log(tmp_path: Path) -> None:
    local, anchor = tmp_path / "log", AuditKey.open(tmp_path / "audit").anchor("c" * 32, 7, "ab" * 32, NOON)
    assert open_sinks(None, "", local) == (), "it has none"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as machine:
        machine.bind(str(local))
        machine.settimeout(PATIENCE_S)
        (sink,) = open_sinks(None, "", local)
        sink.send(anchor)
        assert machine.recv(65536) == message_of(anchor)
        assert open_sinks(None, "none", local) == ()
        assert [*map(str, open_sinks(tmp_path / "anchors", "", local))] == [str(tmp_path / "anchors")]
        assert [*map(str, open_sinks(None, "udp://logs:514", local))] == ["udp://logs:514"]


@pytest.mark.parametrize(("asked", "level"), [("", "warning"), ("none", "info")])
def test_a_service_without_a_sink_says_so(
    tmp_path: Path, asked: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Mock()
    monkeypatch.setattr(wiring, "LOCAL_LOG", tmp_path / "log")
    monkeypatch.setattr(wiring, "log", log)
    build_service(Settings(state_dir=tmp_path, audit_syslog=asked)).parts.close()
    assert [(name, words) for name, words, _ in log.method_calls] == [(level, ("audit.no_sink",))]


@pytest.mark.parametrize("scheme", ["udp", "tcp", "unix"])
def test_heads_are_sent_to_syslog(tmp_path: Path, scheme: str) -> None:
    anchor = AuditKey.open(tmp_path / "audit").anchor("c" * 32, 7, "ab" * 32, dt.datetime.now(dt.UTC))
    family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
    kind = socket.SOCK_STREAM if scheme == "tcp" else socket.SOCK_DGRAM
    received: list[bytes] = []
    with socket.socket(family, kind) as collector:
        collector.bind(str(tmp_path / "log") if scheme == "unix" else ("127.0.0.1", 0))
        collector.settimeout(PATIENCE_S)
        address = f"unix://{tmp_path}/log" if scheme == "unix" else f"{scheme}://127.0.0.1:{collector.getsockname()[1]}"
        sink = Syslog(address)
        if scheme == "tcp":
            collector.listen()

            def take() -> None:
                connection, _ = collector.accept()
                with connection:
                    connection.settimeout(PATIENCE_S)
                    received.append(connection.recv(65536))

            reader = threading.Thread(target=take)
            reader.start()
            sink.send(anchor)
            reader.join(PATIENCE_S)
        else:
            sink.send(anchor)
            received.append(collector.recv(65536))
    text = received[0].decode()
    if scheme == "tcp":
        length, _, text = text.partition(" ")
        assert int(length) == len(text.encode())
    assert text.startswith("<109>1 2")
    assert text == message_of(anchor).decode()
    (tmp_path / "collected").write_text(f"Nov 24 12:00:00 host {text}\n")
    assert anchors_in(tmp_path / "collected") == [anchor]


@pytest.mark.parametrize(
    "address", ["logs:514", "udp://logs", "tcp://:601", "unix://", "udp://logs:99999", "http://a:1"]
)
def test_an_address_that_is_no_collector_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="udp://HOST:PORT"):
        Syslog(address)


def test_the_trail_is_verified_across_restarts(tmp_path: Path) -> None:
    """Each process has a chain of its own; what the last one did is anchored when it ends."""
    anchors = tmp_path / "anchors"
    for name in ("one", "two"):
        with served(tmp_path, audit_file=anchors) as running, running.client() as admin:
            admin.domains.create(name)
    with served(tmp_path, audit_file=anchors) as running, running.client() as admin:
        look(running)
        result = verified(admin)
        assert (result.chains, result.entries, result.faults, result.unanchored) == (2, 2, (), 0)
    assert len(anchors_in(anchors)) == 2


# ---------------------------------------------------------------------------------------------------- rates, disks


def test_a_tenant_writes_only_so_often(tmp_path: Path) -> None:
    with served(tmp_path, tenant_changes_a_minute=10) as running, running.client() as admin:
        admin.domains.create("pop")
        for place, name in enumerate(("blue", "red")):
            admin.tenants.create(name, domain="pop", prefixes=[Prefix.parse(f"10.{place}.0.0/16")])
        tokens = [running.make_token(Role.MEMBER, "blue") for _ in range(2)]
        answers = []
        for place in range(14):
            with running.http(tokens[place % 2]) as http:
                answers.append(http.put("/v1/tenants/blue/acl", json={"rules": []}, headers={"If-Match": "*"}))
                assert http.get("/v1/tenants/blue").status_code == 200
        refused = [answer for answer in answers if answer.status_code == 429]
        assert 2 <= len(refused) <= 4
        assert 1 <= int(refused[-1].headers["Retry-After"]) <= 12
        with running.client(tokens[0]) as member, pytest.raises(TooOften):
            member.acls.put("blue", acl(80))  # type: ignore[arg-type]
        with running.client(running.make_token(Role.MEMBER, "red")) as other:
            other.acls.put("red", acl(80))  # type: ignore[arg-type]


def test_a_tenant_fills_the_trail_only_so_fast(tmp_path: Path) -> None:
    """Whatever it may write in a minute, it goes on as a day's share allows."""
    with served(tmp_path, tenant_changes_a_day=10) as running, running.client() as admin:
        admin.domains.create("pop")
        admin.tenants.create("blue", domain="pop", prefixes=[Prefix.parse("10.0.0.0/16")])
        with running.http(running.make_token(Role.MEMBER, "blue")) as http:
            answers = [http.put("/v1/tenants/blue/acl", json={"rules": []}, headers={"If-Match": "*"})
                       for _ in range(11)]  # fmt: skip
            assert http.get("/v1/tenants/blue").status_code == 200
        assert [each.status_code for each in answers] == [200] * 10 + [429]
        assert "10 changes a day" in answers[-1].json()["detail"]
        assert 8_000 < int(answers[-1].headers["Retry-After"]) <= 8_640
        admin.acls.put("blue", acl(80))  # type: ignore[arg-type]


def test_a_refused_change_takes_no_share_of_the_day() -> None:
    now = 0.0
    rates = Rates(2, tenant_a_day=4, ticks=lambda: now)
    member = Principal(1, Role.MEMBER, TenantId("blue"))
    for _ in range(2):
        rates.take(member)
    for _ in range(9):
        with pytest.raises(TooOften, match="2 changes a minute"):
            rates.take(member)
    now = 60.0
    for _ in range(2):
        rates.take(member)
    now = 120.0
    with pytest.raises(TooOften, match="4 changes a day") as refused:
        rates.take(member)
    assert 21_000 < (refused.value.after_s or 0) <= 21_600


def test_the_key_is_the_services_alone(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, audit_syslog="none")
    build_service(settings).parts.close()
    assert (settings.audit_dir / "key.pem").stat().st_mode & 0o077 == 0
    first = AuditKey.open(settings.audit_dir).public
    assert AuditKey.open(settings.audit_dir).public == first
    (settings.audit_dir / "key.pem").write_text("nothing")
    with pytest.raises(BadInput, match="Ed25519"):
        AuditKey.open(settings.audit_dir)


def test_of_two_services_with_one_folder_one_makes_the_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: AuditKey.open(tmp_path / "audit").public, range(16)))
    assert set(keys) == {(tmp_path / "audit" / "key.pub").read_text().strip()}
    assert sorted(path.name for path in (tmp_path / "audit").iterdir()) == ["key.pem", "key.pub"]


def test_what_a_list_and_its_history_take_up_is_shown_and_bounded(admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
    used = admin.tenants.read_quota(tenant).used.stored_bytes
    assert used is not None
    assert used > 0
    admin.tenants.set_quota(tenant, Limits(rules=None, flows=None, stored_bytes=used, versions=5))
    long = acl_from_json({"rules": [{"id": f"r{number}", "action": "permit"} for number in range(10)]})
    with pytest.raises(TooLarge, match="the quota is"):
        admin.acls.put(tenant, long)
    limits = admin.tenants.read_quota(tenant)
    assert (limits.stored_bytes, limits.versions, limits.used.stored_bytes) == (used, 5, used)
