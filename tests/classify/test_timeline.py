"""Times of captures, kinds of packets, and counts by interval: each against its own words in plain Python."""

from __future__ import annotations

import io
import struct
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from classify.recorded import block, ethernet, ipv4, packet_block, pcap_header, section, simple_packet_block, web
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.classify import captures as reading
from orchestrator.classify.captures import Capture
from orchestrator.classify.frames import NO_TIME, Frames, read_frames
from orchestrator.classify.packets import SEEN
from orchestrator.classify.replay import kinds_of
from orchestrator.classify.timeline import MOST_BINS, WIDTHS, Fate, Timeline

SECOND = 1_000_000_000


def times_of(data: bytes) -> list[int]:
    found: list[int] = []
    for frames in Capture("day.pcap", io.BytesIO(data)).pieces():
        assert frames.times is not None
        found += frames.times.tolist()
    return found


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("order", ["<", ">"])
def test_pcap_has_micro_and_nanoseconds(order: str) -> None:
    frame = web()
    body = struct.pack(order + "IIII", 1_700_000_000, 999_999, len(frame), len(frame)) + frame
    assert times_of(pcap_header(order) + body) == [1_700_000_000 * SECOND + 999_999_000]
    assert times_of(pcap_header(order, nanoseconds=True) + body) == [1_700_000_000 * SECOND + 999_999]


def an_interface(order: str, *options: tuple[int, bytes]) -> bytes:
    listed = b"".join(
        struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in options
    )
    return block(1, struct.pack(order + "HHI", 1, 0, 0) + listed, order)


def at(ticks: int, number: int, order: str) -> bytes:
    frame = web()
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("order", ["<", ">"])
def test_interfaces_of_pcapng_have_clocks_of_their_own(order: str) -> None:
    offset = struct.pack(order + "q", -3600)
    interfaces = [
        an_interface(order),
        an_interface(order, (2, b"eth0"), (9, b"\x09")),
        an_interface(order, (9, b"\x8a"), (14, offset), (0, b"")),
        an_interface(order, (9, b"\x7f")),
        an_interface(order, (0, b""), (9, b"\x00")),
        an_interface(order, (9, b"\x00"), (14, struct.pack(order + "q", (1 << 63) - 1))),
    ]
    packets = [at(5_000_007, 0, order), at(5 << 32, 1, order), at(5 << 10 | 512, 2, order), at(1, 3, order),
               at(7_000_000, 4, order), at((1 << 64) - 1, 5, order), simple_packet_block(web(), order)]  # fmt: skip
    assert times_of(section(order) + b"".join(interfaces + packets)) == [
        5 * SECOND + 7_000, 5 << 32, (5 - 3600) * SECOND + SECOND // 2, NO_TIME, 7 * SECOND, 1 << 62, NO_TIME,
    ]  # fmt: skip


def frames_of(found: list[bytes], times: list[int] | None = None) -> Frames:
    lengths = np.array([len(frame) for frame in found], np.uint32)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64) if found else np.zeros(0, np.int64)
    links = np.ones(len(found), np.uint32)
    when = None if times is None else np.array(times, np.int64)
    return Frames(b"".join(found), starts, lengths, lengths, links, when)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=300))
def test_kinds_are_the_packets_each_once_with_their_sums(drawn: list[tuple[int, int, bool]]) -> None:
    frames = frames_of([web(f"192.0.2.{host}", port=port) + bytes(port * longer) for host, port, longer in drawn])
    packets = read_frames(frames)
    seen = [packet.tobytes()[:SEEN] for packet in packets]
    first = list(dict.fromkeys(seen))
    kinds = kinds_of(frames)
    assert [packet.tobytes()[:SEEN] for packet in kinds.packets] == first
    assert kinds.group.tolist() == [first.index(each) for each in seen]
    assert kinds.first.tolist() == [seen.index(each) for each in first]
    counted = Counter(seen)
    lengths = {each: sum(len(_frame(frames, place)) for place, one in enumerate(seen) if one == each) for each in first}
    assert kinds.count.tolist() == [counted[each] for each in first]
    assert kinds.byte_counts.tolist() == [lengths[each] for each in first]


def _frame(frames: Frames, place: int) -> bytes:
    start = int(frames.starts[place])
    return bytes(frames.data[start : start + int(frames.captured[place])])


def test_many_kinds_are_told_apart_while_the_table_grows() -> None:
    frames = [ethernet(0x0800, ipv4(6, web()[34:], f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")) for n in range(9_000)]
    kinds = kinds_of(frames_of([*frames, *frames[::-1]]))
    assert kinds.count.tolist() == [2] * 9_000
    assert kinds.group.tolist() == [*range(9_000), *range(8_999, -1, -1)]


def test_frames_outside_of_the_data_have_no_kinds() -> None:
    frames = frames_of([web(), web()])
    with pytest.raises(ValueError, match="do not lie in the data"):
        kinds_of(Frames(frames.data, frames.starts + 1, frames.captured, frames.wire, frames.links))


_TIMES = st.one_of(
    st.integers(0, 3 * SECOND), st.integers(-(1 << 62), 1 << 62), st.just(NO_TIME),
    st.integers(0, 10_000).map(lambda day: day * WIDTHS[8]),
)  # fmt: skip
_PACKETS = st.lists(st.tuples(_TIMES, st.integers(0, len(Fate) - 1)), max_size=60)


def counted(packets: list[tuple[int, int]]) -> Timeline:
    fates = np.array([fate for _, fate in packets], np.uint8)
    group = np.arange(len(packets), dtype=np.int32)
    return Timeline.of(np.array([when for when, _ in packets], np.int64), group, fates)


@given(_PACKETS, st.lists(st.integers(0, 60), max_size=4))
def test_pieces_add_up_to_the_whole_in_any_order(packets: list[tuple[int, int]], cuts: list[int]) -> None:
    """Also: the whole is what counting packet by packet gives, at the finest width of which not too many are needed."""
    whole = counted(packets)
    timed = [(when, fate) for when, fate in packets if when != NO_TIME]
    if timed:
        ends = min(timed)[0], max(timed)[0]
        fitting = [width for width in WIDTHS if ends[1] // width - ends[0] // width < MOST_BINS]
        assert whole.width == (fitting or [WIDTHS[-1]])[0]
    wanted = Counter((when // whole.width, fate) for when, fate in timed)
    found = {
        (number, fate): count
        for number, row in zip(whole.bins.tolist(), whole.counts.tolist(), strict=True)
        for fate, count in enumerate(row)
        if count
    }
    assert found == wanted
    places = [0, *sorted(cuts), len(packets)]
    pieces = [counted(packets[begin:end]) for begin, end in pairwise(places)]
    for order in (pieces, pieces[::-1]):
        total = Timeline.none()
        for piece in order:
            total += piece
        assert (total.bins.tolist(), total.counts.tolist()) == (whole.bins.tolist(), whole.counts.tolist())
        assert total.level == whole.level or not len(whole.bins)


def test_fates_of_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        Timeline.of(np.zeros(2, np.int64), np.array([0, 1], np.int32), np.zeros(1, np.uint8))


def test_a_capture_in_pieces_has_the_times_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = web()
    body = [struct.pack("<IIII", 100 + place, 0, len(frame), len(frame)) + frame for place in range(50)]
    monkeypatch.setattr(reading, "PIECE", 256)
    assert times_of(pcap_header() + b"".join(body)) == [(100 + place) * SECOND for place in range(50)]
    assert times_of(section() + an_interface("<") + packet_block(frame)) == [0]
