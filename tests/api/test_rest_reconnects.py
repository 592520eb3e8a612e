"""A thousand enforcement points that come back at once, some of them a hundred generations behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit

import pytest
from patience import PATIENCE_S
from served import Served

from orchestrator.client import Client
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import apply
from orchestrator.program.edits import Edits
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import EDITS_MEDIA_TYPE, STREAM_MEDIA_TYPE, decode

POINTS = 1000
BEHIND = 100
"""So many generations, where a point is far behind."""


class Stream:
    """An enforcement point's stream, without a thread of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting = b""

    @classmethod
    async def open(cls, service: Served, domain: str, held: Program | None) -> Stream:
        """Ask for the program of the domain's firewalls."""
        at = urlsplit(service.url)
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        query = {"tier": "server", "wait": 60}
        if held is not None:
            query |= {"have": held.digest.hex(), "generation": held.generation}
        head = (
            f"GET /v1/domains/{domain}/program/stream?{urlencode(query)} HTTP/1.1\r\nHost: {at.netloc}\r\n"
            f"X-Auth-Token: {service.token}\r\nAccept: {STREAM_MEDIA_TYPE}, {EDITS_MEDIA_TYPE}\r\n\r\n"
        )
        writer.write(head.encode())
        answered = await reader.readuntil(b"\r\n\r\n")
        assert answered.startswith(b"HTTP/1.1 200 "), answered
        return cls(reader, writer)

    async def read_frame(self) -> bytes:
        """The next program, delta or edits; nothing for a sign of life."""
        length = int.from_bytes(await self._read(4), "big")
        return await self._read(length)

    async def read_program(self) -> bytes:
        """The next frame that is no sign of life."""
        while not (body := await self.read_frame()):
            pass
        return body

    def close(self) -> None:
        """Break the connection."""
        self._writer.close()

    async def _read(self, length: int) -> bytes:
        while len(self._waiting) < length:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            assert size, "the stream ended"
            self._waiting += (await self._reader.readexactly(size + 2))[:-2]
        found, self._waiting = self._waiting[:length], self._waiting[length:]
        return found


def put_rules(admin: Client, count: int) -> None:
    rules = tuple(
        Rule(RuleId(f"r{port}"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(port, port),))
        for port in range(1000, 1000 + count)
    )
    admin.acls.put("back-shop", Acl(rules))


def firewalls_program(admin: Client) -> Program:
    found = admin.points.watch_program("back", tier=Tier.SERVER, wait_s=PATIENCE_S)
    assert isinstance(found, Program)
    return found


def brought_up_to_date(held: Program, body: bytes) -> tuple[str, bytes]:
    """What came, and the digest of what a point holds then, found out from its rows."""
    came = decode(body)
    if isinstance(came, Program):
        return "program", came.blocks.digest(())
    delta = came.delta_from(held) if isinstance(came, Edits) else came
    return type(came).__name__.lower(), apply(held, delta).blocks.digest(())


@pytest.fixture(scope="module")
def history(admin: Client) -> Sequence[Program]:
    """The firewalls' program a hundred generations ago, one ago, and now."""
    admin.domains.create("back")
    admin.tenants.create("back-shop", domain="back", prefixes=[Prefix.parse("198.18.64.0/26")])
    put_rules(admin, 20)
    admin.firewalls.add("back", "fw1", "nftables")
    found = [firewalls_program(admin)]
    for count in range(21, 21 + BEHIND):
        put_rules(admin, count)
        if count >= 21 + BEHIND - 2:
            found.append(firewalls_program(admin))
    assert found[-1].generation - found[0].generation >= BEHIND
    return found


def test_a_thousand_come_back_at_once_and_each_gets_what_it_lacks(
    service: Served, admin: Client, history: Sequence[Program]
) -> None:
    async def come_back() -> tuple[Counter[str], set[bytes], Counter[str]]:
        held = [(history[0], history[-2], history[-1], None)[number % 4] for number in range(POINTS)]
        streams = await asyncio.gather(*(Stream.open(service, "back", each) for each in held))
        first = await asyncio.gather(
            *(each.read_program() for each, has in zip(streams, held, strict=True) if has is not history[-1])
        )
        lacking = [each for each in held if each is not history[-1]]
        kinds, digests = Counter[str](), set[bytes]()
        for has, body in zip(lacking, first, strict=True):
            kind, digest = brought_up_to_date(has or history[0], body)
            kinds[kind] += 1
            digests.add(digest)
        await asyncio.to_thread(put_rules, admin, 200)
        following = await asyncio.gather(*(each.read_program() for each in streams))
        after = Counter(brought_up_to_date(history[-1], body)[0] for body in set(following))
        for each in streams:
            each.close()
        return kinds, digests, after

    kinds, digests, after = asyncio.run(asyncio.wait_for(come_back(), 10 * PATIENCE_S))
    assert kinds == {"program": POINTS // 2, "edits": POINTS // 4}
    assert digests == {history[-1].digest}
    assert after.total() == 1, "all hold the same by now, and are sent the same"


def test_a_point_a_hundred_generations_behind_is_brought_up_by_one_answer(
    service: Served, history: Sequence[Program]
) -> None:
    async def ask() -> bytes:
        stream = await Stream.open(service, "back", history[0])
        body = await stream.read_program()
        stream.close()
        return body

    body = asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))
    came = decode(body)
    assert isinstance(came, Program)
    assert came.blocks.digest(()) == came.digest
    assert came.generation >= history[-1].generation
