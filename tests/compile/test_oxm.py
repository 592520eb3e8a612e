"""Match bytes: terms come back, the form is canonical, and anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    copy_field,
    instructions,
    output,
    output_register,
    read_field,
    set_field,
)
from orchestrator.compile.openflow.oxm import FIELDS, PACKET_REGISTERS, REGISTERS, Field, Term, pack, unpack
from orchestrator.errors import BadInput

PLAIN = tuple(field for field in FIELDS if field not in PACKET_REGISTERS) + REGISTERS


@st.composite
def terms(draw: st.DrawFn) -> list[Term]:
    found = []
    for field in draw(st.lists(st.sampled_from(PLAIN), unique=True, max_size=8)):
        mask = draw(st.one_of(st.just(field.ones), st.integers(1, field.ones)))
        found.append(Term(field, draw(st.integers(0, field.ones)) & mask, mask))
    return found


@settings(max_examples=examples(300))
@given(terms())
def test_terms_come_back(found: list[Term]) -> None:
    back = unpack(pack(found))
    assert {(term.field.name, term.value, term.full_mask) for term in back} == {
        (term.field.name, term.value, term.full_mask) for term in found
    }
    assert pack(back) == pack(found) == pack(reversed(found))


@settings(max_examples=examples(300))
@given(st.binary(max_size=60))
def test_bytes_are_read_only_if_we_would_write_them(data: bytes) -> None:
    try:
        found = unpack(data)
    except BadInput:
        return
    assert pack(found) == data


def test_known_bytes() -> None:
    """As Open vSwitch 3.1 writes them."""
    found = [
        Term(REGISTERS[1], 6),
        Term(oxm.TCP_DST, 80),
        Term(oxm.ETH_TYPE, oxm.IPV4),
        Term(oxm.IP_PROTO, 6),
        Term(oxm.TCP_SRC, 0x0400, 0xFC00),
        Term(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK),
        Term(oxm.IPV4_SRC, 0x0A000000, 0xFF000000),
        Term(oxm.TCP_FLAGS, 0x10, 0x10),
    ]
    assert pack(found).hex() == (
        "80000a020800" "800017080a000000ff000000" "000135020002" "8000140106" "80001b040400fc00" "80001c020050"
        "8000550400100010" "80010110" "000000000000000600000000ffffffff"
    )  # fmt: skip


def test_registers_are_written_in_pairs() -> None:
    assert pack([Term(REGISTERS[0], 5), Term(REGISTERS[1], 6)]).hex() == "800100080000000500000006"
    assert pack([Term(REGISTERS[0], 5)]).hex() == "800101100000000500000000ffffffff00000000"


def test_a_mask_of_nothing_is_left_out() -> None:
    assert pack([Term(oxm.IPV4_SRC, 0, 0)]) == b""


@pytest.mark.parametrize(("value", "mask"), [(1 << 16, None), (2, 1), (0, 1 << 16), (-1, None)])
def test_values_that_do_not_fit_are_refused(value: int, mask: int | None) -> None:
    with pytest.raises(BadInput, match="eth_type"):
        Term(oxm.ETH_TYPE, value, mask)


@pytest.mark.parametrize("field", [oxm.ETH_TYPE, REGISTERS[2]])
def test_a_field_is_matched_once(field: Field) -> None:
    with pytest.raises(BadInput, match="twice"):
        pack([Term(field, 1), Term(field, 2)])


def test_the_stamp_is_the_digest_in_four_registers() -> None:
    digest = bytes(range(16))
    assert oxm.stamp_match(digest) == b"\x80\x01\0\x08" + digest[:8] + b"\x80\x01\x02\x08" + digest[8:]
    with pytest.raises(BadInput):
        oxm.stamp_match(digest[:-1])


def test_known_instructions() -> None:
    """As Open vSwitch 3.1 writes them."""
    actions = [set_field(REGISTERS[0], 5), output(3)]
    assert instructions(actions, goto=10).hex() == (
        "0004002800000000" "0019001000010004" "0000000500000000" "0000001000000003" "0000000000000000"
        "000100080a000000"
    )  # fmt: skip
    assert copy_field(oxm.ETH_SRC, oxm.ETH_DST).hex() == "001c00180030000000000000800008068000060600000000"
    assert output_register(REGISTERS[4]).hex() == "ffff001800002320000f001f00010804ffff000000000000"
    assert read_field(oxm.CT_TP_DST, REGISTERS[12], bits=16).hex() == (
        "ffff001800002320001b00000001fa020010000000000000ffff001800002320001c0000000118040010000000000000"
    )
    assert instructions() == b""
