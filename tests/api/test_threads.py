"""Threads of requests: one tenant's writes that wait for their turn keep no thread from others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from served import Served, served

from api.threads import OF_ONE, READS_OF_ONE, THREADS, SharedThreads
from orchestrator.client import Client
from orchestrator.control.control import Control
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store.records import Role
from orchestrator.store.unit import Unit

RULE = {"id": "r", "action": "permit"}
WRITES = {"acl": {"rules": [RULE]}, "acl/rules/r": RULE}
"""Writes of a list by path."""
BY_FASTAPI = {"acl/expectations": {"text": "nobody reaches 198.51.100.20:22 from outside"}}
"""One that comes to its thread through FastAPI's own way, as routes do that have no plan."""

OWN = [Prefix.parse("198.51.100.0/24")]


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What work waits for; set at the end, so that no thread stays."""
    found = threading.Event()
    yield found
    found.set()


def test_a_share_takes_so_many_threads_and_its_other_work_goes_on_in_its_order(held: threading.Event) -> None:
    threads, done = SharedThreads(4, of_one=2, spare=1), []
    waiting = [threads.submit("a", lambda: held.wait(PATIENCE_S)) for _ in range(2)]
    behind = [threads.submit("a", lambda number=number: done.append(number)) for number in range(6)]
    assert behind[3].cancel(), "who left is not worked for"
    assert threads.submit("b", lambda: 1).result(PATIENCE_S) == 1
    assert threads.submit(None, lambda: 2).result(PATIENCE_S) == 2
    assert done == []
    held.set()
    wait([*waiting, *behind], PATIENCE_S)
    assert sorted(done) == [0, 1, 2, 4, 5]
    assert threads.submit("a", lambda: 3).result(PATIENCE_S) == 3


def test_shares_that_act_together_leave_threads_for_others(held: threading.Event) -> None:
    """Six tenants whose writes waited had all 48 threads."""
    threads, begun = SharedThreads(8, of_one=3, spare=4), threading.Semaphore(0)

    def wait_with_others() -> None:
        begun.release()
        held.wait(PATIENCE_S)

    works = [threads.submit(share, wait_with_others) for share in ("a", "b", "c") for _ in range(5)]
    for _ in range(3 + 1 + 1):
        assert begun.acquire(timeout=PATIENCE_S)
    for share in (None, "d", "e", None):
        assert threads.submit(share, lambda: 1).result(PATIENCE_S) == 1
    assert not begun.acquire(blocking=False), "beyond its first one a share takes no spare thread"
    held.set()
    wait(works, PATIENCE_S)
    assert all(each.done() for each in works)


def test_a_share_that_had_to_wait_has_its_threads_again(held: threading.Event) -> None:
    threads, order = SharedThreads(4, of_one=2, spare=2), []
    both = [threading.Event(), threading.Event()]

    def meet(at: int) -> None:
        both[at].set()
        assert both[1 - at].wait(PATIENCE_S), "the other one is not on a thread"

    others = [threads.submit(None, lambda: held.wait(PATIENCE_S)) for _ in range(2)]
    first = threads.submit("a", lambda: held.wait(PATIENCE_S))
    behind = [threads.submit("a", lambda at=at: order.append(at)) for at in range(2)]
    held.set()
    wait([*others, first, *behind], PATIENCE_S)
    assert order == [0, 1]
    meeting = [threads.submit("a", lambda at=at: meet(at)) for at in range(2)]
    for each in meeting:
        each.result(PATIENCE_S)


def test_a_tenant_reads_its_list_on_few_threads(
    service: Served, admin: Client, monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    """Its other reads wait without a thread, and hold up neither its writes nor reads of others."""
    admin.domains.create("reading")
    for name in ("reading", "another"):
        admin.tenants.create(name, domain="reading")
    read, reading, begun = Control.read, set[str](), threading.Semaphore(0)

    def hold_up(control: Control, work: Callable[[Unit], object]) -> object:
        thread = threading.current_thread().name
        if held.is_set() or not thread.startswith("request") or len(reading) == READS_OF_ONE:
            return read(control, work)
        reading.add(thread)
        begun.release()
        held.wait(PATIENCE_S)
        return read(control, work)

    with ExitStack() as open_, ThreadPoolExecutor(OF_ONE) as pool:
        open_.callback(held.set)
        token = service.make_token(Role.MEMBER, "reading")
        https = [open_.enter_context(service.http(token)) for _ in range(OF_ONE)]
        other = open_.enter_context(service.http(service.make_token(Role.READER, "another")))
        monkeypatch.setattr(Control, "read", hold_up)
        reads = [pool.submit(http.get, "/v1/tenants/reading/acl") for http in https[1:]]
        for _ in range(READS_OF_ONE):
            assert begun.acquire(timeout=PATIENCE_S)
        assert https[0].put("/v1/tenants/reading/acl", json=WRITES["acl"], headers={"If-Match": "*"}).is_success
        assert other.get("/v1/tenants/another/acl").is_success
        assert not any(each.done() for each in reads)
        held.set()
        assert all(each.result(PATIENCE_S).is_success for each in reads)


def test_a_setting_says_how_many_threads_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: threading.Event
) -> None:
    carry_out, begun = Control.carry_out, threading.Semaphore(0)

    def hold_up(control: Control, work: object, **how: object) -> object:
        if how.get("payer") == "red":
            begun.release()
            held.wait(PATIENCE_S)
        return carry_out(control, work, **how)  # type: ignore[arg-type]

    with ExitStack() as open_, ThreadPoolExecutor(OF_ONE) as pool:
        here = open_.enter_context(served(tmp_path, request_threads=12))
        open_.callback(held.set)
        admin = open_.enter_context(here.client())
        admin.domains.create("few")
        admin.tenants.create("red", domain="few")
        monkeypatch.setattr(Control, "carry_out", hold_up)
        token = here.make_token(Role.MEMBER, "red")
        https = [open_.enter_context(here.http(token)) for _ in range(OF_ONE)]
        writes = [
            pool.submit(http.put, "/v1/tenants/red/acl", json=WRITES["acl"], headers={"If-Match": "*"})
            for http in https
        ]
        for _ in range(12 // 6):
            assert begun.acquire(timeout=PATIENCE_S)
        reader = open_.enter_context(here.http(token))
        assert reader.get("/v1/tenants/red/acl").is_success
        assert not begun.acquire(blocking=False), "a sixth of them is a tenant's"
        held.set()
        assert all(each.result(PATIENCE_S).is_success for each in writes)


def test_what_work_raises_frees_its_thread() -> None:
    threads = SharedThreads(2, of_one=1, spare=0)

    def fails() -> None:
        raise LookupError

    for _ in range(3):
        with pytest.raises(LookupError):
            threads.submit("a", fails).result(PATIENCE_S)


@pytest.mark.parametrize("path", [*WRITES, *BY_FASTAPI])
def test_a_tenant_whose_writes_wait_keeps_no_thread_from_others(
    service: Served, admin: Client, monkeypatch: pytest.MonkeyPatch, held: threading.Event, path: str
) -> None:
    domain = path.replace("/", "-")
    slow, other = f"slow-{domain}", f"other-{domain}"
    admin.domains.create(domain)
    admin.tenants.create(slow, domain=domain, prefixes=OWN if path in BY_FASTAPI else ())
    admin.tenants.create(other, domain=domain)
    for tenant in (slow, other):
        admin.acls.put(tenant, acl_from_json(WRITES["acl"]))
    carry_out, waits = Control.carry_out, threading.Semaphore(0)

    def held_up(control: Control, work: object, **how: object) -> object:
        if how.get("payer") == slow:
            waits.release()
            held.wait(PATIENCE_S)
        return carry_out(control, work, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Control, "carry_out", held_up)
    tokens = {tenant: service.make_token(Role.MEMBER, tenant) for tenant in (slow, other)}
    with ExitStack() as open_, ThreadPoolExecutor(2 * THREADS) as pool:
        open_.callback(held.set)
        https = [open_.enter_context(service.http(tokens[slow])) for _ in range(2 * THREADS)]
        url, body = f"/v1/tenants/{slow}/{path}", (WRITES | BY_FASTAPI)[path]
        headers = {"If-Match": "*"} if path in WRITES else {}
        writes = [pool.submit(http.put, url, json=body, headers=headers) for http in https]
        for _ in range(OF_ONE):
            assert waits.acquire(timeout=PATIENCE_S)
        with service.http(tokens[other]) as http:
            for each, body in WRITES.items():
                assert http.put(f"/v1/tenants/{other}/{each}", json=body, headers={"If-Match": "*"}).is_success
            assert http.get(f"/v1/tenants/{other}/acl").is_success
        assert not waits.acquire(blocking=False), "no more of them have begun than threads of one share"
        held.set()
        until(lambda: all(each.done() for each in writes))
        assert all(each.result().is_success for each in writes)
