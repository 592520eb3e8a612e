"""Programs and deltas on the wire: they come back as they went, and nothing else is taken for one."""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import replace
from unittest import mock

import pytest
from flow_tables import programs, same_columns
from hypothesis import example, given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import BadInput
from orchestrator.program import wire
from orchestrator.program.delta import Delta, between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import (
    MOST_BYTES,
    decode,
    decode_delta,
    decode_program,
    encode_delta,
    encode_program,
    frame_body,
    frames,
    written,
)

NOTHING = FlowTable.of(())
EMPTY = Program.of("d1", Tier.HOST, 0, NOTHING, ())
HEAD = struct.Struct("<4sBBBQ")


@settings(max_examples=examples(120), deadline=None)
@given(programs())
@example(EMPTY)
def test_programs_come_back(program: Program) -> None:
    back = decode_program(encode_program(program))
    assert same_columns(back.flows, program.flows)
    assert (back.domain, back.tier, back.generation, back.digest, back.ports) == (
        program.domain,
        program.tier,
        program.generation,
        program.digest,
        program.ports,
    )
    assert encode_program(back) == encode_program(program)


each_way = pytest.mark.parametrize("few", [0, 64])
"""How many rows are read one by one."""


@each_way
@settings(max_examples=examples(120), deadline=None)
@given(programs(), programs())
def test_deltas_come_back(few: int, old: Program, new: Program) -> None:
    delta = between(old, new)
    with mock.patch.object(wire, "FEW_ROWS", few):
        back = decode_delta(encode_delta(delta))
    assert same_columns(back.removed, delta.removed)
    assert same_columns(back.added, delta.added)
    assert (back.base, back.target, back.generation, back.ports, back.base_ports) == (
        delta.base,
        delta.target,
        delta.generation,
        delta.ports,
        delta.base_ports,
    )


@settings(max_examples=examples(60), deadline=None)
@given(programs(), programs())
def test_a_delta_is_passed_on_as_it_came_and_with_other_rows_as_it_is(old: Program, new: Program) -> None:
    sent = encode_delta(between(old, new))
    came = decode_delta(sent)
    assert encode_delta(came) is sent
    ready = written(between(old, new))
    assert (encode_delta(ready) is ready.wire, ready.wire) == (True, sent)
    other = replace(came, removed=came.added, added=came.removed)
    back = decode_delta(encode_delta(other))
    assert same_columns(back.removed, came.added)
    assert same_columns(back.added, came.removed)


@settings(max_examples=examples(120), deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    for read in (decode_program, decode_delta):
        with pytest.raises(BadInput):
            read(data)


@settings(max_examples=examples(120), deadline=None)
@given(st.binary(max_size=300), st.sampled_from((1, 2)), st.sampled_from((0, 1, 2)))
def test_random_bodies_are_refused_or_read(body: bytes, kind: int, packing: int) -> None:
    data = HEAD.pack(b"ACLF", 2, kind, packing, len(body)) + (zlib.compress(body, 1) if packing == 1 else body)
    with pytest.raises(BadInput):
        (decode_program if kind == 1 else decode_delta)(data)


@each_way
@settings(max_examples=examples(120), deadline=None)
@given(programs(), programs(), st.data())
def test_damaged_bodies_are_refused_or_read(few: int, old: Program, new: Program, data: st.DataObject) -> None:
    """A changed byte inside a well-packed body never leads to anything but BadInput or a value."""
    with mock.patch.object(wire, "SMALL_BYTES", data.draw(st.sampled_from((0, 1 << 20)))):
        encoded = data.draw(st.sampled_from((encode_program(new), encode_delta(between(old, new)))))
    kind, packing = encoded[5:7]
    body = bytearray(zlib.decompress(encoded[HEAD.size :]) if packing else encoded[HEAD.size :])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    packed = zlib.compress(bytes(body), 1) if packing else bytes(body)
    damaged = HEAD.pack(b"ACLF", 2, kind, packing, len(body)) + packed
    try:
        with mock.patch.object(wire, "FEW_ROWS", few):
            value = (decode_program if kind == 1 else decode_delta)(damaged)
    except BadInput:
        return
    tables = (value.flows,) if isinstance(value, Program) else (value.removed, value.added)
    for table in tables:
        assert len(table.rows()) == len(table)


@settings(max_examples=examples(100), deadline=None)
@given(programs(), st.integers(0, 400))
def test_cut_short_is_refused(program: Program, cut: int) -> None:
    encoded = encode_program(program)
    if cut < len(encoded):
        with pytest.raises(BadInput):
            decode_program(encoded[:cut])
    with pytest.raises(BadInput):
        decode_program(encoded + b"x")


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(1 << 24), 9)
    for says in (MOST_BYTES + 1, 10):
        with pytest.raises(BadInput):
            decode_program(HEAD.pack(b"ACLF", 2, 1, 1, says) + bomb)


def test_a_program_is_not_a_delta() -> None:
    with pytest.raises(BadInput):
        decode_delta(encode_program(EMPTY))
    with pytest.raises(BadInput):
        decode_program(encode_delta(between(EMPTY, EMPTY)))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(map(frame_body, bodies))
    chunks, at = [], 0
    for size in itertools.cycle(cuts):
        if at >= len(whole):
            break
        chunks.append(whole[at : at + size])
        at += size
    assert list(frames(chunks)) == bodies
    assert list(frames([*chunks, frame_body(b"cut off")[:-1]])) == bodies


def test_a_frame_that_says_it_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput, match="over"):
        list(frames([b"\xff\xff\xff\xff"]))


@settings(max_examples=examples(50), deadline=None)
@given(programs(), programs())
def test_a_piece_of_a_stream_says_itself_what_it_is(old: Program, new: Program) -> None:
    whole, step = decode(encode_program(new)), decode(encode_delta(between(old, new)))
    assert isinstance(whole, Program)
    assert isinstance(step, Delta)
    assert (whole.digest, step.target) == (new.digest, new.digest)
