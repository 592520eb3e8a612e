"""Captures of every kind hold the same frames; damage is refused with its place, an early end is told."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from classify.recorded import (
    ReadsNothing,
    block,
    interface,
    old_packet_block,
    packed,
    packet_block,
    pcap,
    pcap_header,
    pcapng,
    record,
    section,
    simple_packet_block,
    web,
)

from orchestrator.classify import _records, records
from orchestrator.classify import captures as reading
from orchestrator.classify.captures import Capture, open_capture
from orchestrator.errors import BadInput, Missing

FRAMES = [web(f"192.0.2.{number}") + bytes(number) for number in range(9)]


def held(data: bytes) -> tuple[list[bytes], list[str]]:
    """The frames of a capture, and what was remarked."""
    capture = Capture("day.pcap", io.BytesIO(data))
    found = []
    for frames in capture.pieces():
        assert len(frames)
        ends = zip(frames.starts.tolist(), frames.captured.tolist(), strict=True)
        found += [frames.data[start : start + captured] for start, captured in ends]
    return found, capture.remarks


KINDS = {
    "little": pcap(FRAMES),
    "big": pcap(FRAMES, ">"),
    "nanoseconds": pcap(FRAMES, nanoseconds=True),
    "nanoseconds, big": pcap(FRAMES, ">", nanoseconds=True),
    "with check sequences": pcap(FRAMES, link=0x14000001),
    "pcapng": pcapng(FRAMES),
    "pcapng, big": pcapng(FRAMES, ">"),
    "old blocks": section() + interface() + b"".join(map(old_packet_block, FRAMES)),
    "simple blocks": section() + interface() + b"".join(map(simple_packet_block, FRAMES)),
    "blocks of other kinds": section() + block(0xBAD, b"?") + interface() + b"".join(
        block(5, bytes(12)) + packet_block(frame) for frame in FRAMES
    ),
    "sections of both orders": pcapng(FRAMES[:4]) + pcapng(FRAMES[4:], ">"),
    "a section without packets": section() + pcapng(FRAMES),
}  # fmt: skip


@pytest.mark.parametrize("piece", [reading.PIECE, 64, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_holds_the_frames(kind: str, piece: int, implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", piece)
    for data in (KINDS[kind], packed(KINDS[kind]), packed(KINDS[kind], 3), packed(KINDS[kind]) + bytes(512)):
        assert held(data) == (FRAMES, [])


def test_interfaces_have_links_of_their_own(implementation: str) -> None:
    ends = interface(link=1), interface(link=101), interface(link=105)
    packets = (packet_block(b"frame", number=number) for number in (2, 0, 1))
    capture = Capture("", io.BytesIO(section() + b"".join((*ends, *packets))))
    assert [frames.links.tolist() for frames in capture.pieces()] == [[105, 1, 101]]


def test_a_simple_packet_is_cut_at_the_snapshot_length() -> None:
    data = section() + interface(longest=20) + simple_packet_block(FRAMES[0][:20], wire=len(FRAMES[0]))
    (frames,) = Capture("", io.BytesIO(data)).pieces()
    assert (frames.captured.tolist(), frames.wire.tolist()) == ([20], [len(FRAMES[0])])


@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_may_end_anywhere(kind: str, implementation: str) -> None:
    """What is there whole is held; the rest is remarked, unless it ends between two packets."""
    data = KINDS[kind]
    for end in range(32, len(data), 7):
        found, remarks = held(data[:end])
        assert found == FRAMES[: len(found)]
        assert all("is cut off: it ends at byte" in remark for remark in remarks)
        assert len(remarks) <= 1


def test_where_it_ends_is_said() -> None:
    data = pcap(FRAMES[:2])
    assert held(data[:-1])[1] == [
        f"day.pcap is cut off: it ends at byte {24 + 16 + len(FRAMES[0])} inside what would be packet 2"
    ]


def test_an_end_inside_what_gzip_packed() -> None:
    data = packed(pcap(FRAMES * 50))
    found, remarks = held(data[: len(data) // 2])
    assert 0 < len(found) < len(FRAMES) * 50
    assert remarks[0] == "day.pcap is cut off: what gzip packed does not end"


def test_many_small_members_of_gzip_make_few_pieces() -> None:
    members = [gzip.compress(record(frame)) for frame in FRAMES * 100]
    capture = Capture("", io.BytesIO(gzip.compress(pcap_header()) + b"".join(members)))
    assert [len(frames) for frames in capture.pieces()] == [900]


def test_many_interfaces_among_packets() -> None:
    blocks = b"".join(interface() + packet_block(b"", number=number) for number in range(20_000))
    assert len(held(section() + blocks)[0]) == 20_000


def test_an_empty_capture_is_one() -> None:
    assert held(pcap([])) == ([], [])
    assert held(section()) == ([], [])


DAMAGE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "empty, packed": (gzip.compress(b""), "it is empty"),
    "packed, cut off at once": (packed(pcap(FRAMES))[:12], "it ends before there is anything to unpack"),
    "packed twice": (packed(packed(pcap(FRAMES))), "it is packed with gzip twice; unpack it first"),
    "text": (b"access-list 101 permit ip any any", "it is no capture: neither pcap nor pcapng nor IPFIX begins so"),
    "half a header": (pcap([])[:23], "it ends inside its own header"),
    "version": (pcap_header(major=3), "it is pcap of version 3; 2 is read"),
    "section's version": (section(major=2), "packet 1, at byte 0: a section is pcapng of version 2; 1 is read"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(60), "it is packed with zstd; unpack it first"),
    "link": (pcap([], link=105), "frames of link type 105 are not read, only 0 (null), 1 (ethernet), "),
    "not gzip": (b"\x1f\x8b" + bytes(60), "what gzip packed is damaged near byte 4"),
    "too long": (
        pcap(FRAMES[:2]) + struct.pack("<IIII", 0, 0, 2 << 20, 60) + bytes(60),
        f"packet 3, at byte {len(pcap(FRAMES[:2]))}: no packet is 2097152 bytes long: the capture is damaged here",
    ),
    "no block": (
        pcapng(FRAMES[:1]) + bytes(12),
        f"packet 2, at byte {len(pcapng(FRAMES[:1]))}: no block is 0 bytes long: the capture is damaged here",
    ),
    "two lengths": (
        section() + interface()[:-4] + bytes(4),
        "packet 1, at byte 28: a block says two lengths: the capture is damaged here",
    ),
    "no order": (
        block(0x0A0D0D0A, bytes(16)),
        "packet 1, at byte 0: a section does not say its byte order: the capture is damaged here",
    ),
    "no interface": (
        section() + packet_block(FRAMES[0]),
        "packet 1, at byte 56: nothing is said of interface 0, which a packet is of",
    ),
    "an interface of the section before": (
        pcapng(FRAMES[:1]) + section() + packet_block(FRAMES[0]), "nothing is said of interface 0, which a packet is of"
    ),
    "longer than its block": (
        section() + interface() + block(6, struct.pack("<IIIII", 0, 0, 0, 41, 41) + bytes(40)),
        "packet 1, at byte 76: a packet of 41 bytes does not fit into its block",
    ),
    "interfaces without end": (
        section() + interface() * 65_537,
        f"packet 1, at byte {28 + 65_536 * 20}: no section has more than 65536 interfaces",
    ),
    "a short block": (
        section() + interface() + block(6, bytes(16)),
        "packet 1, at byte 48: a block is shorter than what it must say: the capture is damaged here",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_with_its_place(name: str, implementation: str) -> None:
    data, words = DAMAGE[name]
    with pytest.raises(BadInput) as caught:
        held(data)
    assert str(caught.value).startswith("day.pcap: ")
    assert words in str(caught.value)


def test_damage_in_a_later_piece_is_counted_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 100)
    data = pcap(FRAMES)
    with pytest.raises(BadInput, match=f"packet {len(FRAMES) + 1}, at byte {len(data)}: no packet is 4294967295"):
        held(data + b"\xff" * 40)


def _came_of(data: bytes) -> str | tuple[list[bytes], list[str]]:
    try:
        return held(data)
    except BadInput as error:
        return str(error)


@pytest.mark.parametrize("data", [pcap(FRAMES[:3]), pcapng(FRAMES[:3], ">")])
def test_any_octet_may_be_wrong(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a capture holds, it is read or refused, nothing of it is made up, and C and Python say the same."""
    all_damaged = [
        data[:place] + bytes((octet,)) + data[place + 1 :]
        for place in range(len(data))
        for octet in (0x00, 0xFF, data[place] ^ 0x01)
    ]
    outcomes = [*map(_came_of, all_damaged)]
    for damaged, outcome in zip(all_damaged, outcomes, strict=True):
        assert isinstance(outcome, str) or all(frame in damaged for frame in outcome[0])
    monkeypatch.setattr(records, "_records", ReadsNothing)
    assert [*map(_came_of, all_damaged)] == outcomes


def test_a_run_outside_of_the_data_is_refused() -> None:
    for place in (-1, 5):
        with pytest.raises(ValueError, match="inside the data"):
            _records.records(b"four", place, False, 100, 1, 1)
    with pytest.raises(ValueError, match="inside the data"):
        _records.blocks(b"four", 0, False, 100, b"odd")


def test_a_cut_member_of_gzip_is_read_up_to_its_end_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed(pcap([bytes(300)] * 20))
    for end in range(len(data)):
        monkeypatch.setattr(reading, "PIECE", 4 << 20)
        whole = _came_of(data[:end])
        monkeypatch.setattr(reading, "PIECE", 64)
        assert _came_of(data[:end]) == whole


def test_the_file_is_told_of_as_it_is_read() -> None:
    told: list[int] = []
    data = packed(pcap(FRAMES))
    for _ in Capture("", io.BytesIO(data), told.append).pieces():
        pass
    assert told == sorted(told)
    assert told[-1] == len(data)


def test_what_does_not_wait_is_refused() -> None:
    """A pipe that is shared with something that made it non-blocking: what is not there yet is no end."""

    class Impatient(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(size) or None  # type: ignore[return-value] -- as raw streams say it

    with pytest.raises(Missing, match="it does not wait for what is yet to come"):
        list(Capture("day.pcap", Impatient(pcap(FRAMES))).pieces())


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for name, error, words in (
        (str(tmp_path / "none"), Missing, "No such file"),
        (str(tmp_path), BadInput, "it is a directory"),
        ("a\0b", Missing, "null"),
    ):
        with pytest.raises(error, match=words), open_capture(name):
            pass


def test_frames_longer_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 8)
    frames: Sequence[bytes] = [bytes(500), web(), bytes(300)]
    assert held(pcap(frames))[0] == frames
    assert held(b"".join((pcap_header(), *map(record, frames))))[0] == frames
