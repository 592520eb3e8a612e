"""Edits lead where the delta leads, are much shorter for a filter's texts, and are never taken for anything else."""

from __future__ import annotations

from unittest import mock

import pytest
from flow_tables import flows, programs, same_columns
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.errors import BadInput, Stale
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program import edits as module
from orchestrator.program.delta import apply, between
from orchestrator.program.edits import Edits
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import decode, decode_delta, decode_edits, decode_program, encode_delta, encode_edits
from orchestrator.wire.firewalls import Plane

LINES = st.sampled_from(
    (b"elements = {\n", b"\t192.0.2.0/24 : accept,\n", b"\t198.51.100.7 : drop,\n", b"}\n", b"\n", b"x")
)
TEXTS = st.lists(LINES, max_size=6).map(b"".join)


@st.composite
def texts(draw: st.DrawFn) -> Program:
    """A program whose rows have texts, of lines out of few."""
    rows = draw(st.lists(st.tuples(flows(), TEXTS), max_size=8, unique_by=lambda each: each[0].key))
    table = FlowTable.of(Flow(row.table, row.priority, row.match, text, row.cookie, row.tenant) for row, text in rows)
    return Program.of("d1", Tier.SERVER, draw(st.integers(0, 9)), table, ())


def edits_of(old: Program, new: Program) -> Edits:
    with mock.patch.object(module, "LEAST_TEXT", 0):
        found = Edits.of(between(old, new))
    assert found is not None
    return found


@settings(max_examples=examples(200), deadline=None)
@given(texts(), texts())
def test_edits_come_to_the_delta_that_they_were_made_of(old: Program, new: Program) -> None:
    delta = between(old, new)
    sent = encode_edits(edits_of(old, new))
    back = decode(sent)
    assert isinstance(back, Edits)
    found = back.delta_from(old)
    assert same_columns(found.removed, delta.removed)
    assert same_columns(found.added, delta.added)
    assert encode_delta(found) == encode_delta(delta)
    assert apply(old, found).blocks.digest(new.ports) == new.digest
    for read in (decode_delta, decode_program):
        with pytest.raises(BadInput):
            read(sent)


@settings(max_examples=examples(60), deadline=None)
@given(programs(), programs())
def test_port_names_come_with_them(old: Program, new: Program) -> None:
    delta = between(old, new)
    found = decode_edits(encode_edits(edits_of(old, new))).delta_from(old)
    assert (found.ports, found.base_ports, found.generation) == (delta.ports, delta.base_ports, delta.generation)


@settings(max_examples=examples(200), deadline=None)
@given(texts(), texts(), st.data())
def test_damaged_recipes_are_refused_or_lead_to_a_delta(old: Program, new: Program, data: st.DataObject) -> None:
    edits = edits_of(old, new)
    if not edits.added.instruction_set:
        return
    which = data.draw(st.integers(0, len(edits.added.instruction_set) - 1))
    recipe = bytearray(edits.added.instruction_set[which])
    recipe[data.draw(st.integers(0, len(recipe) - 1))] = data.draw(st.integers(0, 255))
    recipes = list(edits.added.instruction_set)
    recipes[which] = bytes(recipe)
    columns = edits.added.columns() | {"instruction_set": tuple(recipes)}
    damaged = Edits(edits.base, edits.target, 1, edits.removed, FlowTable(**columns), ())
    try:
        found = damaged.delta_from(old)
    except (BadInput, Stale):
        return
    assert len(found.added.rows()) == len(edits.added)


COPY = b"\xd1\x0f\x00"
"""1000 bytes of the source from its beginning."""


@pytest.mark.parametrize(
    ("recipes", "why"),
    [
        ([b"\xe8\x07\x01" + COPY * 100], "more than it says"),
        ([b"\xe9\x07\x01" + COPY], "comes to 1000 bytes where it says 1001"),
        ([b"\xb0\xea\x01\x01" + COPY * 30, b"\xb1\xea\x01\x01" + COPY * 30], "cannot be followed"),
        ([b"\xff\xff\xff\xff\x7f\x01" + COPY], "cannot be followed"),
        ([b"\xe8\x07\x02" + COPY], "removed row 2 cannot"),
        ([b"\xe8\x07\x01" + b"\xd1\x0f\x01"], "what is not there"),
        ([b"\x02\x00\x04x"], "what is not there"),
        ([b"\x81"], "does not end"),
        ([b"\x81\x81\x81\x81\x81\x00\x00"], "does not end"),
    ],
)
def test_a_recipe_for_what_cannot_be_is_refused(recipes: list[bytes], why: str) -> None:
    old = Program.of("d1", Tier.SERVER, 1, FlowTable.of([Flow(1, 0, b"map a", b"x" * 1000, 0, 0)]), ())
    rows = [Flow(1, 0, b"map %d" % number, b"%d" % number, 0, 0) for number in range(len(recipes))]
    edits = edits_of(old, Program.of("d1", Tier.SERVER, 2, FlowTable.of(rows), ()))
    columns = edits.added.columns() | {"instruction_set": tuple(recipes)}
    strange = Edits(edits.base, edits.target, 2, edits.removed, FlowTable(**columns), ())
    with mock.patch.object(module, "MOST_TEXT", 50_000), pytest.raises(BadInput, match=why):
        strange.delta_from(old)


@settings(max_examples=examples(40), deadline=None)
@given(texts(), texts(), texts())
def test_edits_apply_to_their_base_alone(old: Program, new: Program, other: Program) -> None:
    if other.digest != old.digest:
        with pytest.raises(Stale):
            edits_of(old, new).delta_from(other)


def test_a_row_that_the_base_lacks_is_noticed_whatever_the_digest_says() -> None:
    rows = [Flow(1, 0, name, b"text of " + name, 0, 0) for name in (b"map a", b"map b", b"map")]
    old, less = (Program.of("d1", Tier.SERVER, 1, FlowTable.of(each), ()) for each in (rows, rows[1:]))
    edits = edits_of(old, less)
    lying = Program("d1", Tier.SERVER, 1, old.digest, less.blocks, ())
    with pytest.raises(Stale, match="not in the program"):
        edits.delta_from(lying)


def test_rows_of_a_divided_bucket_are_found() -> None:
    rows = [Flow(1, 0, b"map %d" % number, b"text %d" % number, 0, 0) for number in range(2000)]
    old, new = (Program.of("d1", Tier.SERVER, 1, FlowTable.of(each), ()) for each in (rows, rows[5:]))
    assert apply(old, edits_of(old, new).delta_from(old)).blocks.digest(()) == new.digest


def policy(rules: int) -> Policy:
    """A tenant's list of so many permits, the newest first."""
    listed = tuple(
        Rule(
            RuleId(f"r{number}"),
            Action.PERMIT,
            direction=Direction.INGRESS,
            source=Addresses((Prefix(Family.IPV4, 192 << 24 | number << 8, 24),)),
            destination_ports=(PortRange(1000 + number, 1000 + number),),
            protocol=TCP,
        )
        for number in reversed(range(rules))
    )
    numbers = {f"r{number}": number + 1 for number in range(rules)}
    return Policy((Tenant(TenantId("shop"), 1, (Prefix.parse("203.0.113.0/24"),), Acl(listed), rule_numbers=numbers),))


@pytest.mark.parametrize("rules", [10, 100, 1000])
def test_one_rule_of_a_list_costs_the_same_whatever_the_list(rules: int) -> None:
    old, new = (
        filter_program(policy(count), [Plane.NFTABLES], domain="d1", generation=count) for count in (rules, rules + 1)
    )
    delta = between(old, new)
    edits = Edits.of(delta)
    assert edits is not None
    sent = encode_edits(edits)
    assert len(sent) < 700, f"{len(encode_delta(delta))} bytes as a delta"
    assert apply(old, decode_edits(sent).delta_from(old)).blocks.digest(()) == new.digest


def test_a_delta_of_a_switch_goes_as_it_is() -> None:
    rows = [Flow(0, 300 + number, bytes((number,)), b"\0\x01\0\x08\x0a\0\0\0", number, 7) for number in range(9)]
    old, new = (Program.of("d1", Tier.HOST, 1, FlowTable.of(each), ()) for each in (rows, rows[1:]))
    assert Edits.of(between(old, new)) is None


def test_more_text_than_is_read_goes_as_it_is() -> None:
    old, new = (
        Program.of("d1", Tier.SERVER, 1, FlowTable.of([Flow(1, 0, b"map " + name, name * 2000, 0, 0)]), ())
        for name in (b"a", b"b")
    )
    with mock.patch.object(module, "MOST_TEXT", 2000):
        assert Edits.of(between(old, new)) is not None
    with mock.patch.object(module, "MOST_TEXT", 1999):
        assert Edits.of(between(old, new)) is None


def test_many_maps_with_the_same_frame_find_the_one_that_they_are_like() -> None:
    def objects(added: bytes) -> FlowTable:
        frame = b"typeof ip saddr : verdict\nflags interval\nelements = {\n%s}"
        bodies = (
            b"".join(b"\t192.0.%d.%d : accept,\n" % (number, place) for place in range(20)) for number in range(200)
        )
        return FlowTable.of(
            Flow(1, 0, b"map %d%s" % (number, added), frame % (body + added), number, 0)
            for number, body in enumerate(bodies)
        )

    old, new = (Program.of("d1", Tier.SERVER, 1, objects(added), ()) for added in (b"", b"\t198.51.100.7 : drop,\n"))
    edits = Edits.of(between(old, new))
    assert edits is not None
    assert max(map(len, edits.added.instruction_set)) < 60
    assert apply(old, edits.delta_from(old)).blocks.digest(()) == new.digest
