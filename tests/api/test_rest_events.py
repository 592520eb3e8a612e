"""Events as they happen: typed, in order, resumable, each tenant its own; and nobody who follows holds up anybody."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from patience import PATIENCE_S, until
from served import Served, ServiceProcess, served

from api import streams
from orchestrator.bootstrap import create_token
from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.client.stream import Message, messages
from orchestrator.errors import Conflict, Unauthenticated, Unreachable
from orchestrator.eventkinds import KINDS
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.program.program import Program
from orchestrator.store.records import Role
from orchestrator.store.transaction import StoreSettings
from orchestrator.wire.events import Event
from orchestrator.wire.tenants import Limits

ACCEPT = {"Accept": "text/event-stream"}
_numbers = itertools.count()


def acl(port: int) -> object:
    return acl_from_json({"rules": [{"id": "r", "action": "permit", "protocol": "tcp", "destination_ports": port}]})


@pytest.fixture
def tenant(admin: Client) -> str:
    name = f"ev{next(_numbers)}"
    admin.domains.create(name)
    admin.tenants.create(name, domain=name, prefixes=[Prefix.parse(f"10.{next(_numbers)}.0.0/16")])
    return name


@contextmanager
def following(client: Client, **options: object) -> Iterator[Callable[[int], list[Event]]]:
    """Follow from now on; the block is given a function that waits for so many events."""
    stream = client.events.follow(**options)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as reader:
        yield lambda count: reader.submit(lambda: list(itertools.islice(stream, count))).result(timeout=PATIENCE_S)


def newest(admin: Client) -> int:
    since, page = 0, admin.events.read(limit=1000)
    while page.items:
        since = page.items[-1].id
        page = admin.events.read(since=since, limit=1000)
    return since


def test_changes_are_told_as_they_are_committed(admin: Client, tenant: str) -> None:
    with following(admin, after=newest(admin), tenant=tenant) as take:
        written = admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
        (event,) = take(1)
        assert (event.kind, event.subject, event.detail["generation"]) == ("acl.replaced", tenant, written.generation)
        admin.acls.put(tenant, acl(81))  # type: ignore[arg-type]
        assert take(1)[0].id > event.id


def test_what_was_missed_comes_first_and_nothing_twice(admin: Client, tenant: str) -> None:
    start = newest(admin)
    for port in range(130):
        admin.acls.put(tenant, acl(port))  # type: ignore[arg-type]
    with following(admin, after=start) as take:
        first = take(260)
        assert [event.id for event in first] == sorted({event.id for event in first})
        assert {event.kind for event in first} == {"acl.replaced", "generation.published"}
    with following(admin, after=first[100].id) as take:
        assert take(159) == first[101:]


def test_a_stream_is_in_the_form_of_html(service: Served, admin: Client, tenant: str) -> None:
    start = newest(admin)
    admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
    headers = {**ACCEPT, "Last-Event-ID": str(start)}
    with service.http() as http, http.stream("GET", "/v1/events", headers=headers) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        lines = answer.iter_lines()
        assert [next(lines), next(lines)] == ["retry: 1000", ""]
        block = list(itertools.takewhile(bool, lines))
    assert block[:2] == [f"id: {start + 1}", "event: acl.replaced"]
    assert json.loads(block[2].removeprefix("data: "))["subject"] == tenant
    assert len(block) == 3


def test_a_tenant_follows_its_own_only(service: Served, admin: Client, tenant: str) -> None:
    other = f"{tenant}x"
    admin.tenants.create(other, domain=tenant, prefixes=[Prefix.parse("172.16.0.0/12")])
    with service.client(service.make_token(Role.READER, tenant)) as reader, following(reader, after=0) as take:
        assert [event.kind for event in take(1)] == ["tenant.created"]
        for port in range(20):
            admin.acls.put(other, acl(port))  # type: ignore[arg-type]
        admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
        assert [(event.kind, event.subject) for event in take(1)] == [("acl.replaced", tenant)]
    admin.tenants.delete(other)


def test_a_new_tenant_of_an_old_name_does_not_inherit_a_past(service: Served, admin: Client, tenant: str) -> None:
    admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
    admin.tenants.delete(tenant)
    admin.tenants.create(tenant, domain=tenant)
    with service.client(service.make_token(Role.READER, tenant)) as reader:
        assert [event.kind for event in reader.events.read(limit=1000).items] == ["tenant.created"]


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 17, ""])
def test_an_id_that_is_none_is_refused(http: httpx.Client, after: str) -> None:
    answer = http.get("/v1/events", headers={**ACCEPT, "Last-Event-ID": after})
    assert (answer.status_code, answer.json()["place"]) == (400, "header.Last-Event-ID")


def test_enforcers_and_strangers_follow_nothing(service: Served, admin: Client, tenant: str) -> None:
    enrolled = admin.enrolment.enrol(admin.enrolment.invite(tenant), name="c", kind="openflow")
    with service.http(enrolled.token) as enforcer, service.http("nobody") as stranger:
        assert enforcer.get("/v1/events", headers=ACCEPT).status_code == 404
        assert stranger.get("/v1/events", headers=ACCEPT).status_code == 401
    with service.client("nobody") as client, pytest.raises(Unauthenticated):
        next(client.events.follow())
    with Client("http://127.0.0.1:1") as nowhere, pytest.raises(Unreachable):
        next(nowhere.events.follow())


def test_the_life_of_a_generation_and_its_enforcer(service: Served, admin: Client, tenant: str) -> None:
    """Published, refused, enforced; up, down and up again: each once, however often it is reported."""
    for name in ("h1", "h2"):
        admin.domains.add_host(tenant, Host(name, 100 + next(_numbers), "up0"))
    enrolled = admin.enrolment.enrol(admin.enrolment.invite(tenant), name="c", kind="openflow")
    start = newest(admin)
    written = admin.acls.put(tenant, acl(80))  # type: ignore[arg-type]
    with service.client(enrolled.token) as enforcer:

        def report(host: str, state: str, generation: int = written.generation) -> None:
            point = PointReport(host, generation, bytes(16), state, "no room" if state == "refused" else None)
            enforcer.points.report(tenant, enrolled.enforcer, points=[point])

        for host, state in (("h1", "enforced"), ("h2", "refused"), ("h2", "refused"), ("h2", "applying")):
            report(host, state)
        for _ in range(2):
            report("h2", "enforced")
        report("h1", "disconnected")
        report("h1", "enforced")
        service.clock.ahead += dt.timedelta(seconds=61)
        with service.service.parts.store.write() as unit:
            assert enrolled.enforcer in unit.enforcers.lose_silent(60)
            assert enrolled.enforcer not in unit.enforcers.lose_silent(60)
        report("h1", "enforced")
    told = [event for event in admin.events.read(since=start, limit=1000).items if event.subject == tenant]
    assert [event.kind for event in told] == [
        "acl.replaced", "generation.published", "enforcer.up", "host.refused", "host.recovered", "generation.enforced",
        "acl.enforced", "host.disconnected", "host.recovered", "enforcer.down", "enforcer.up",
    ]  # fmt: skip
    by_kind = {event.kind: event.detail for event in told}
    assert by_kind["host.refused"] == {"host": "h2", "generation": written.generation, "error": "no room"}
    assert by_kind["generation.enforced"] == {"generation": written.generation, "hosts": 2}
    assert by_kind["acl.enforced"] == {"version": written.version, "generation": written.generation}


def test_a_database_put_back_does_not_fall_behind_its_hosts(service: Served, admin: Client, tenant: str) -> None:
    """What may have been published and is not in it raises it: the next program is above what they hold, and compiled;
    an intersection with that comes before the policy itself."""
    admin.domains.add_host(tenant, Host("h1", 100 + next(_numbers), "up0"))
    enrolled = admin.enrolment.enrol(admin.enrolment.invite(tenant), name="c", kind="openflow")
    with service.client(enrolled.token) as enforcer:
        with pytest.raises(Conflict, match="has only come to"):
            enforcer.points.watch_program(tenant, Held(bytes(16), 5000), wait_s=5)
        known = []
        for _ in range(2):
            held = admin.domains.read(tenant).generation + 2
            known.append((held, True))
            enforcer.points.report(tenant, enrolled.enforcer, points=[PointReport("h1", held, bytes(16), "enforced")])
            answer = enforcer.points.watch_program(tenant, Held(bytes(16), held), wait_s=5)
            assert answer is not None
            assert held < answer.generation == admin.domains.read(tenant).generation - 1
    raised = [event.detail for event in admin.events.read(limit=1000).items if event.kind == "generation.raised"]
    assert [(each["held"], each["was"] < each["held"] < each["generation"]) for each in raised][-2:] == known


def test_who_was_replaced_is_refused(service: Served, admin: Client, tenant: str) -> None:
    admin.domains.add_host(tenant, Host("h1", 100 + next(_numbers), "up0"))
    first = admin.enrolment.enrol(admin.enrolment.invite(tenant), name="a", kind="openflow")
    second = admin.enrolment.enrol(admin.enrolment.invite(tenant), name="b", kind="openflow")
    point = [PointReport("h1", 1, bytes(16), "enforced")]
    with (
        service.client(first.token) as old,
        service.client(first.token) as young,
        service.client(second.token) as other,
    ):
        old.points.begin_epoch(tenant, first.enforcer)
        old.points.report(tenant, first.enforcer, points=point)
        young.points.begin_epoch(tenant, first.enforcer)  # the same enforcer, started anew
        with pytest.raises(Conflict, match="another process of the same name"):
            old.points.report(tenant, first.enforcer, points=point)
        with pytest.raises(Conflict, match="another process of the same name"):
            old.points.watch_program(tenant, wait_s=0)
        assert young.points.watch_program(tenant, wait_s=0) is not None
        other.points.begin_epoch(tenant, second.enforcer)
        other.points.report(tenant, second.enforcer, points=point)
        with pytest.raises(Conflict, match="host 'h1' is reported by enforcer 'b'"):
            young.points.report(tenant, first.enforcer, points=point)
        young.points.report(tenant, first.enforcer)  # a sign of life is none of it
        young.points.begin_epoch(tenant, first.enforcer)
        young.points.report(tenant, first.enforcer, points=point)


def test_a_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    with served(tmp_path, heartbeat_s=0.05) as running, running.client() as admin:
        admin.domains.create("pop")
        admin.tenants.create("red", domain="pop")
        record, secret = admin.tokens.create("reader", tenant="red")
        with running.http(secret) as http, http.stream("GET", "/v1/events", headers=ACCEPT) as answer:
            lines = answer.iter_lines()
            assert ":" in itertools.islice(lines, 6)  # its heart beats
            admin.tokens.revoke(record.id)
            assert all(line in ("", ":") for line in lines)  # and it ends


@pytest.mark.parametrize("who", ["an enforcement point", "an administrator"])
def test_a_revoked_token_ends_its_stream_of_programs(tmp_path: Path, who: str) -> None:
    """Within a heartbeat, not when the stream would have ended by itself."""
    with served(tmp_path, heartbeat_s=0.05, watch_limit_s=3600.0) as running, running.client() as admin:
        admin.domains.create("pop")
        admin.domains.add_host("pop", Host("h1", 1, "uplink"))
        if who == "an administrator":
            record, secret = admin.tokens.create("admin")
            revoke = lambda: admin.tokens.revoke(record.id)  # noqa: E731 - a short way
        else:
            point = admin.enrolment.enrol(admin.enrolment.invite("pop"), name="c1", kind="openflow")
            secret = point.token
            revoke = lambda: admin.points.remove("pop", point.enforcer)  # noqa: E731 - a short way
        path = "/v1/domains/pop/program/stream?wait=3600"
        with running.http(secret) as http, http.stream("GET", path, timeout=PATIENCE_S) as answer:
            beats = answer.iter_raw()
            next(beats)
            revoke()
            assert sum(1 for _ in itertools.islice(beats, 1000)) < 1000, "it goes on"


def test_a_held_request_of_a_revoked_token_gets_no_program(tmp_path: Path) -> None:
    with served(tmp_path, heartbeat_s=0.001, watch_limit_s=3600.0) as running, running.client() as admin:
        admin.domains.create("pop")
        admin.domains.add_host("pop", Host("h1", 1, "uplink"))
        record, secret = admin.tokens.create("admin")
        with Client(running.url, secret) as revoked, ThreadPoolExecutor(1) as beside, running.http() as http:
            program = revoked.points.watch_program("pop")
            assert isinstance(program, Program)
            held = Held(program.digest, program.generation)
            answer = beside.submit(revoked.points.watch_program, "pop", held, wait_s=PATIENCE_S)
            until(lambda: "\naclflow_watching 1.0\n" in http.get("/metrics").text)
            admin.tokens.revoke(record.id)
            admin.tenants.create("late", domain="pop", prefixes=[Prefix.parse("10.9.0.0/16")])
            with pytest.raises(Unauthenticated):
                answer.result(PATIENCE_S)


def test_a_service_that_stops_lets_those_who_follow_go_and_they_come_back(tmp_path: Path) -> None:
    process = ServiceProcess(tmp_path)
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    port = process.url.rsplit(":", 1)[1]
    with Client(process.url, token) as client, following(client, after=0) as take:
        client.domains.create("one")
        assert [event.kind for event in take(1)] == ["domain.created"]
        assert process.stop() < 8
        again = ServiceProcess(tmp_path, listen_port=port)
        again.start()
        client.domains.create("two")
        assert [(event.kind, event.subject) for event in take(1)] == [("domain.created", "two")]
        again.kill()


def test_who_is_too_slow_for_the_log_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.bootstrap.StoreSettings", lambda **given: StoreSettings(events_kept=100, **given))
    with served(tmp_path) as running, running.client() as admin:
        admin.domains.create("pop")
        with running.service.parts.store.write() as unit:
            for number in range(450):
                unit.events.append("domain.changed", "pop", {"number": number})
        with following(admin, after=1) as take:
            missed, *events = take(60)
        assert (missed.kind, missed.detail) == ("missed", {"after": 1})
        assert events[0].id > 300
        assert admin.events.read(since=1).items[0].id == events[0].id


def test_a_reader_that_takes_nothing_costs_nothing(service: Served, admin: Client, tenant: str) -> None:
    """Its connection fills up; all others go on, and writes do too."""
    with service.http() as http, http.stream("GET", "/v1/events", headers={**ACCEPT, "Last-Event-ID": "0"}):
        for port in range(50):
            admin.acls.put(tenant, acl(port))  # type: ignore[arg-type]
        with following(admin, after=newest(admin) - 3) as take:
            assert len(take(3)) == 3


def test_a_stalled_reader_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALLED_S", 0.01)

    async def chunks() -> Iterator[bytes]:  # type: ignore[misc]
        while True:
            yield b"x"

    async def never(_: object) -> None:
        await asyncio.sleep(60)

    async def stream() -> None:
        await streams.stream(chunks()).stream_response(never)  # type: ignore[arg-type]

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(stream(), 5))


def test_as_many_follow_as_the_setting_says(tmp_path: Path) -> None:
    with served(tmp_path, event_streams=2) as here, here.http() as http, ExitStack() as open_streams:
        for _ in range(2):
            assert open_streams.enter_context(http.stream("GET", "/v1/events", headers=ACCEPT)).status_code == 200
        answer = http.get("/v1/events", headers=ACCEPT)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_one_tenant_does_not_take_all_places(
    service: Served, admin: Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.control.feed.MOST_EACH", 2)
    token = {"X-Auth-Token": admin.tokens.create("reader", tenant=tenant)[1]}
    with service.http() as http, ExitStack() as open_streams:
        for _ in range(2):
            stream = open_streams.enter_context(http.stream("GET", "/v1/events", headers=ACCEPT | token))
            assert stream.status_code == 200
        refused = http.get("/v1/events", headers=ACCEPT | token)
        assert (refused.status_code, refused.json()["detail"].split(" are open")[0]) == (429, "2 streams of events")
        assert http.get("/v1/events", headers=token).status_code == 200, "pages are still given"
        with http.stream("GET", "/v1/events", headers=ACCEPT) as other:
            assert other.status_code == 200
        open_streams.close()
        until(lambda: follows(http, token))


def test_a_quota_says_how_many_streams_a_tenant_has(service: Served, admin: Client, tenant: str) -> None:
    admin.tenants.set_quota(tenant, Limits(rules=None, flows=None, streams=1))
    token = {"X-Auth-Token": admin.tokens.create("reader", tenant=tenant)[1]}
    with service.http() as http:
        with http.stream("GET", "/v1/events", headers=ACCEPT | token) as first:
            assert first.status_code == 200
            assert admin.tenants.read_quota(tenant).used.streams == 1
            refused = http.get("/v1/events", headers=ACCEPT | token)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
            assert "1 streams of events are open" in refused.json()["detail"]
            with http.stream("GET", "/v1/events", headers=ACCEPT) as others:
                assert others.status_code == 200
            admin.tenants.set_quota(tenant, Limits(rules=None, flows=None, streams=2))
            with http.stream("GET", "/v1/events", headers=ACCEPT | token) as second:
                assert second.status_code == 200
        until(lambda: admin.tenants.read_quota(tenant).used.streams == 0)
        admin.tenants.set_quota(tenant, Limits(rules=None, flows=None, streams=0))
        assert http.get("/v1/events", headers=ACCEPT | token).status_code == 429
        assert http.get("/v1/events", headers=token).status_code == 200, "pages are still given"


def follows(http: httpx.Client, token: dict[str, str]) -> bool:
    """Whether a stream begins."""
    with http.stream("GET", "/v1/events", headers=ACCEPT | token) as answer:
        return answer.status_code == 200


def test_every_kind_in_the_log_is_declared(service: Served, admin: Client) -> None:
    seen: set[str] = set()
    since = 0
    while page := admin.events.read(since=since, limit=1000).items:
        seen |= {event.kind for event in page}
        since = page[-1].id
    assert len(seen) > 8
    assert seen <= set(KINDS)


def test_messages_are_read_as_html_says() -> None:
    lines = [": hello", "retry: 5", "", "id: 1", "event: a", "data: x", "data:y", "", "data", "", "id:2", "data: z"]
    assert list(messages(lines)) == [Message("1", "a", "x\ny"), Message("1", "", "")]


def test_many_follow_while_many_write(service: Served, admin: Client, tenant: str) -> None:
    start = newest(admin)
    seen: list[list[int]] = []

    def follow() -> None:
        with service.client() as client:
            stream = client.events.follow(after=start, tenant=tenant)
            seen.append([event.id for event in itertools.islice(stream, 30)])

    threads = [threading.Thread(target=follow) for _ in range(6)]
    for thread in threads:
        thread.start()
    for port in range(30):
        admin.acls.put(tenant, acl(port))  # type: ignore[arg-type]
        time.sleep(0.002)
    for thread in threads:
        thread.join(20)
    assert len(seen) == 6
    assert [ids for ids in seen if ids != seen[0]] == []
