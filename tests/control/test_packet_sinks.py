"""Records of the packet log on their way out: IPFIX as any collector reads it, and lines of JSON."""

from __future__ import annotations

import datetime as dt
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.packets.ipfix import LONGEST, Exporter
from orchestrator.control.packets.sinks import Collector, JsonLines
from orchestrator.errors import BadInput, Missing
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Action, Direction, Packet
from orchestrator.policy.protocols import ICMP, TCP
from orchestrator.store.packetlog import LoggedPacket

NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 5000, tzinfo=dt.UTC)
_ADDRESSES = {Family.IPV4: (8, 12), Family.IPV6: (27, 28)}


class Reader:
    """A collector: what it knows of records is what templates told it."""

    def __init__(self) -> None:
        self.templates: dict[int, list[tuple[int, int]]] = {}
        self.expected = 0

    def read(self, message: bytes) -> list[Mapping[int, bytes]]:
        version, length, _, sequence, _ = struct.unpack_from("!HHIII", message)
        assert (version, length) == (10, len(message))
        assert sequence == self.expected
        found, at = [], 16
        while at < len(message):
            number, size = struct.unpack_from("!HH", message, at)
            body = message[at + 4 : at + size]
            if number == 2:
                self._learn(body)
            else:
                found += self._records(self.templates[number], body)
            at += size
        assert at == len(message)
        self.expected += len(found)
        return found

    def _learn(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            number, count = struct.unpack_from("!HH", body, at)
            fields = [struct.unpack_from("!HH", body, at + 4 + 4 * each) for each in range(count)]
            self.templates[number] = [(element, size) for element, size in fields]
            at += 4 + 4 * count

    def _records(self, fields: list[tuple[int, int]], body: bytes) -> list[Mapping[int, bytes]]:
        found, at = [], 0
        while at < len(body):
            record = {}
            for element, fixed in fields:
                size, at = (body[at], at + 1) if fixed == 0xFFFF else (fixed, at)
                record[element] = body[at : at + size]
                at += size
            found.append(record)
        return found


@st.composite
def records(draw: st.DrawFn) -> LoggedPacket:
    family = draw(st.sampled_from(list(Family)))
    addresses, byte, word = st.integers(0, (1 << family.bits) - 1), st.integers(0, 255), st.integers(0, 65535)
    names = st.text("abcdefghijklmnopqrstuvwxyz0123456789._:-", min_size=1, max_size=64)
    packet = Packet(
        family, draw(addresses), draw(addresses), draw(byte), draw(word), draw(word), draw(byte), draw(byte), draw(byte)
    )
    direction = draw(st.sampled_from([None, *Direction]))
    tenant = None if direction is None else draw(names)
    return LoggedPacket(
        NOON, tenant, draw(names), draw(st.sampled_from(list(Action))), direction, draw(names), packet, draw(word)
    )


@given(st.lists(records(), max_size=60))
def test_a_collector_reads_what_was_logged(logged: list[LoggedPacket]) -> None:
    messages = Exporter().messages("pop", logged, 1_700_000_000, with_templates=True)
    assert all(len(message) <= LONGEST for message in messages)
    reader = Reader()
    found = [record for message in messages for record in reader.read(message)]
    in_order = [each for family in Family for each in logged if each.packet.family is family]
    assert [_told(each) for each in found] == [_known(each) for each in in_order]


def _told(record: Mapping[int, bytes]) -> tuple[object, ...]:
    family = Family.IPV4 if 8 in record else Family.IPV6
    numbers = [int.from_bytes(record[each], "big") for each in (323, 233, 61, 1, 4, 6, 7, 11, *_ADDRESSES[family])]
    icmp = int.from_bytes(record[32 if family is Family.IPV4 else 139], "big")
    return (*numbers, icmp, *[record[each].decode() for each in (335, 236, 300)])


def _known(record: LoggedPacket) -> tuple[object, ...]:
    packet = record.packet
    pinged = packet.protocol == (ICMP if packet.family is Family.IPV4 else 58)
    return (
        int(record.time.timestamp() * 1000), 3 if record.action is Action.DENY else 1,
        int(record.direction is Direction.EGRESS), record.length, packet.protocol, packet.tcp_flags, packet.source_port,
        packet.destination_port, packet.source, packet.destination,
        packet.icmp_type << 8 | packet.icmp_code if pinged else 0, record.rule, record.tenant or "",
        f"pop/{record.host}",
    )  # fmt: skip


def one(rule: str = "web") -> LoggedPacket:
    packet = Packet(Family.IPV4, 0x0A000001, 0x0A000002, TCP, 1024, 80, tcp_flags=2)
    return LoggedPacket(NOON, "blue", rule, Action.DENY, Direction.INGRESS, "host1", packet, 60)


def test_templates_come_first_and_again_every_minute() -> None:
    now = 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(5)
        collector = Collector(f"127.0.0.1:{listening.getsockname()[1]}", clock=lambda: now)
        reader = Reader()
        told = []
        for now in (0.0, 1.0, 61.0):
            collector.write("pop", [one()])
            told.append([len(reader.read(listening.recv(2000))) for _ in range(2 if now != 1.0 else 1)])
    assert told == [[0, 1], [1], [0, 1]]


@pytest.mark.parametrize(
    "address", ["", "collector", "collector:", ":4739", "collector:0", "collector:70000", "collector:4739²"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="HOST:PORT"):
        Collector(address)


def test_all_messages_come_from_one_port_until_the_collector_was_away() -> None:
    """A collector reads records by the templates that came from the same port, and by no others."""
    now = 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        collector = Collector(f"127.0.0.1:{port}", clock=lambda: now)
        ports = []
        for now in (0.0, 1.0, 61.0):
            collector.write("pop", [one()])
            ports += [listening.recvfrom(2000)[1] for _ in range(2 if now != 1.0 else 1)]
    assert len({*ports}) == 1
    collector.write("pop", [one()])  # into the void, which is told at the next
    collector.write("pop", [one()])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", port))
        listening.settimeout(5)
        collector.write("pop", [one("too soon")])
        now += 1.0
        collector.write("pop", [one("again")])
        reader = Reader()
        found = [record for _ in range(2) for record in reader.read(listening.recv(2000))]
    assert [record[335] for record in found] == [b"again"], "in a session of its own, templates first"


@pytest.mark.parametrize("host", ["collector.invalid", "no..name", "a" * 64 + ".example"])
def test_a_collector_that_is_not_there_costs_nothing_but_the_records(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    look_up, now, looked = socket.getaddrinfo, 0.0, []

    def counted(*asked: Any, **more: Any) -> Any:
        looked.append(now)
        return look_up(*asked, **more)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    collector = Collector(f"{host}:4739", clock=lambda: now)
    for at in (0.0, 0.5, 1.0, 2.0, 2.5, 3.0):
        now = at
        collector.write("pop", [one()])
    assert looked == [0.0, 1.0, 3.0], "nobody waits for the name again and again"


def test_a_collector_that_has_moved_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose name nobody knows just now stays where it was."""
    now = 0.0

    def leads(*_: object, **__: object) -> list[tuple[Any, ...]]:
        if at is None:
            raise socket.gaierror(socket.EAI_AGAIN, "nobody knows just now")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", at.getsockname())]

    monkeypatch.setattr(socket, "getaddrinfo", leads)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        for each in (here, there):
            each.bind(("127.0.0.1", 0))
            each.settimeout(5)
        collector = Collector("collector.example:4739", clock=lambda: now)
        reader = Reader()
        for minute, (leads_to, comes_to) in enumerate([(here, here), (None, here), (there, there)]):
            now, at = 60.0 * minute, leads_to
            reader = Reader() if comes_to is there else reader
            collector.write("pop", [one()])
            assert sum(len(reader.read(comes_to.recv(2000))) for _ in range(2)) == 1


def test_lines_of_json_are_appended_and_the_file_may_be_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "packets.json"
    lines = JsonLines(path)
    lines.write("pop", [one("a"), one("b")])
    path.rename(tmp_path / "old.json")
    lines.write("pop", [one("c")])
    old = [json.loads(line) for line in (tmp_path / "old.json").read_text().splitlines()]
    assert [each["rule"] for each in old] == ["a", "b"]
    (new,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert new == {
        "time": "2026-01-02T12:00:00.005000+00:00", "domain": "pop", "tenant": "blue", "rule": "c", "action": "deny",
        "direction": "ingress", "host": "host1", "source": "10.0.0.1", "destination": "10.0.0.2", "protocol": 6,
        "source_port": 1024, "destination_port": 80, "tcp_flags": 2, "octets": 60,
    }  # fmt: skip


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="cannot be written"):
        JsonLines(tmp_path / "nowhere" / "packets.json")
