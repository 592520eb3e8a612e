"""What every switch must be to its driver: one suite, run over the fake switch and over a real Open vSwitch.

A test module subclasses `DriverContract` and gives it a `bench`: a driver on a switch in its first state, and ways to
send frames through the switch and to meddle with it behind the driver's back. `TRIED` notes which verb met which kind
of flow; the last test of the class fails unless every verb was tried on every kind. Changes are written by column, or
row by row where the bench's driver is `ByRow`.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import ClassVar, Protocol

import numpy as np
import pytest
from enforce.contract_samples import SAMPLES, SYMBOLS, TO_VM2, Sample
from patience import PATIENCE_S

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, output, set_field
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.enforce.changing import finish
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.messages import Fragments, SwitchConfig, Type
from orchestrator.enforce.gap import changed_otherwise
from orchestrator.errors import Refused, Unreachable
from orchestrator.program.delta import Delta
from orchestrator.program.flows import SYMBOL_BASE, Flow, FlowTable
from orchestrator.program.program import Tier

NOTHING = FlowTable.of(())
RULE = Cookie(Tier.HOST, Kind.RULE).pack()
STRUCTURE = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
VERBS = ("add", "remove", "change cookie", "change instructions", "observe", "observe by cookie", "hits")

STAMP = Stamp(7, bytes(range(1, 17)))


class Bench(Protocol):
    """A switch with ports vm1, vm2, vm3 and wan0, its driver, started, and a second controller that may meddle.

    `epoch` is the one that the driver was started with.
    """

    epoch: int
    driver: OpenFlowDriver
    stranger: StreamChannel

    def forward(self, frame: bytes, port: str) -> list[tuple[str, bytes]]:
        """Send a frame in by a port; what comes out where."""
        ...

    def settle(self) -> None:
        """Wait until counters are up to date."""
        ...

    def limit(self, table: int, flows: int) -> None:
        """Let a table hold no more than so many flows."""
        ...

    def disconnect(self) -> None:
        """Cut the driver's connection."""
        ...


class ByRow(OpenFlowDriver):
    """A driver that writes every change as a small one, and looks at what it has read back of it."""

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        changed = finish(self.change(delta, stamp))
        assert changed_otherwise(changed, stamp) is None, changed
        assert {row.key: row for row in changed.wanted} == {
            row.key: row for row in self.resolve(delta.added, delta.ports).rows()
        }


def change(removed: FlowTable = NOTHING, added: FlowTable = NOTHING, symbols: tuple[str, ...] = SYMBOLS) -> Delta:
    return Delta(b"", STAMP.digest, STAMP.generation, removed, added, symbols)


def table(*flows: Flow) -> FlowTable:
    return FlowTable.of(flows)


def held(bench: Bench) -> dict[tuple[int, int, bytes], Flow]:
    """What the switch holds, by key; a key that is there twice fails."""
    flows = bench.driver.observe().flows.rows()
    by_key = {flow.key: flow for flow in flows}
    assert len(by_key) == len(flows)
    return by_key


def placed(bench: Bench, *flows: Flow) -> dict[tuple[int, int, bytes], Flow]:
    """The same flows as this switch must hold them."""
    return {flow.key: flow for flow in bench.driver.resolve(table(*flows), SYMBOLS).rows()}


def packets(bench: Bench, cookie: int) -> int | None:
    """The hits of a cookie, None if the switch does not know it."""
    bench.settle()
    hits = bench.driver.hits()
    rows = np.flatnonzero(hits.cookie == cookie)
    assert len(rows) <= 1
    return int(hits.packets[rows[0]]) if len(rows) else None


class DriverContract:
    TRIED: ClassVar[dict[str, set[str]]]

    def __init_subclass__(cls) -> None:
        cls.TRIED = defaultdict(set)

    def tried(self, verb: str, sample: Sample) -> None:
        assert verb in VERBS
        self.TRIED[verb].add(sample.name)

    # every verb on every kind of flow

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_a_flow_is_read_back_as_it_was_added_and_does_what_it_says(self, bench: Bench, sample: Sample) -> None:
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        assert held(bench) == placed(bench, *sample.flows)
        assert sorted(bench.forward(sample.hit, "vm1")) == sorted(sample.out)
        if sample.miss is not None:
            assert bench.forward(sample.miss, "vm1") == []
        self.tried("add", sample)
        self.tried("observe", sample)

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_hits_count_the_packets_that_met_a_flow_and_no_others(self, bench: Bench, sample: Sample) -> None:
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        for _ in range(3):
            bench.forward(sample.hit, "vm1")
        if sample.miss is not None:
            bench.forward(sample.miss, "vm1")
        assert packets(bench, sample.flow.cookie) == 3
        hits = bench.driver.hits()
        row = int(np.flatnonzero(hits.cookie == sample.flow.cookie)[0])
        assert int(hits.bytes[row]) == 3 * len(sample.hit)
        assert int(hits.idle_s[row]) < 60
        self.tried("hits", sample)

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_a_flow_that_is_removed_is_gone(self, bench: Bench, sample: Sample) -> None:
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        bench.driver.apply(change(removed=table(sample.flow)), STAMP)
        assert held(bench) == placed(bench, *sample.flows[:-1])
        assert bench.forward(sample.hit, "vm1") == []
        assert packets(bench, sample.flow.cookie) is None
        self.tried("remove", sample)

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_a_changed_cookie_counts_from_zero(self, bench: Bench, sample: Sample) -> None:
        old = sample.flow
        new = Flow(old.table, old.priority, old.match, old.instructions, old.cookie + 1000)
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        bench.forward(sample.hit, "vm1")
        assert packets(bench, old.cookie) == 1
        bench.driver.apply(change(removed=table(old), added=table(new)), STAMP)
        assert held(bench) == placed(bench, *sample.flows[:-1], new)
        assert packets(bench, old.cookie) is None
        assert packets(bench, new.cookie) == 0
        self.tried("change cookie", sample)

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_changed_instructions_take_the_place_of_the_old(self, bench: Bench, sample: Sample) -> None:
        old = sample.flow
        new = Flow(old.table, old.priority, old.match, instructions([output(SYMBOL_BASE + 2)]), old.cookie)
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        bench.forward(sample.hit, "vm1")
        bench.driver.apply(change(removed=table(old), added=table(new)), STAMP)
        assert held(bench) == placed(bench, *sample.flows[:-1], new)
        assert packets(bench, new.cookie) == 0
        assert [port for port, _ in bench.forward(sample.hit, "vm1")] == ["wan0"]
        self.tried("change instructions", sample)

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
    def test_flows_are_observed_by_cookie(self, bench: Bench, sample: Sample) -> None:
        other = Flow(200, 5, b"", TO_VM2, STRUCTURE)
        bench.driver.apply(change(added=table(*sample.flows, other)), STAMP)
        observed = bench.driver.observe(np.array([sample.flow.cookie, RULE + 999_999], np.uint64))
        assert {flow.key: flow for flow in observed.flows.rows()} == placed(bench, sample.flow)
        assert observed.stamp == STAMP
        self.tried("observe by cookie", sample)

    # small changes

    def test_a_small_change_shows_what_is_there_under_its_keys_and_nothing_else(self, bench: Bench) -> None:
        """The row that goes covers the others, which have its cookie too; one that comes was somebody else's before."""
        wide, narrow, other = (
            Flow(30, priority, match, TO_VM2, RULE + 1)
            for priority, match in (
                (5, b""), (6, oxm.pack([Term(oxm.ETH_SRC, 7)])), (7, oxm.pack([Term(oxm.ETH_SRC, 8)])),
            )
        )  # fmt: skip
        bench.driver.apply(change(added=table(wide, narrow)), STAMP)
        self._intrude(bench, Flow(other.table, other.priority, other.match, b"", RULE + 2))
        changed = finish(bench.driver.change(change(removed=table(wide), added=table(other)), Stamp(8, bytes(16))))
        assert set(changed.found) == set(changed.wanted) == set(placed(bench, other).values())
        assert changed.stamp == Stamp(8, bytes(16))
        assert held(bench) == placed(bench, narrow, other)

    def test_a_small_change_tells_what_its_removed_flows_had_counted(self, bench: Bench) -> None:
        sample = SAMPLES[0]
        bench.driver.apply(change(added=table(*sample.flows)), STAMP)
        for _ in range(3):
            bench.forward(sample.hit, "vm1")
        bench.settle()
        last = finish(bench.driver.change(change(removed=table(sample.flow)), STAMP)).last
        assert last is not None
        assert last.cookie.tolist() == [sample.flow.cookie]
        assert last.packets.tolist() == [3]
        assert finish(bench.driver.change(change(added=table(sample.flow)), STAMP)).last is None

    # one transaction

    def test_a_switch_in_its_first_state_holds_nothing(self, bench: Bench) -> None:
        observed = bench.driver.observe()
        assert len(observed.flows) == 0
        assert observed.stamp is None
        assert len(bench.driver.hits().cookie) == 0
        assert bench.forward(SAMPLES[0].hit, "vm1") == []

    def test_applying_what_is_there_changes_nothing(self, bench: Bench) -> None:
        flows = [flow for sample in SAMPLES[:8] for flow in sample.flows]
        everything = table(*{flow.key: flow for flow in flows}.values())
        bench.driver.apply(change(added=everything), STAMP)
        before = held(bench)
        bench.driver.apply(change(added=everything), STAMP)
        bench.driver.apply(change(removed=table(Flow(9, 9, b"", b"", 0))), STAMP)
        assert held(bench) == before
        assert bench.driver.observe().stamp == STAMP

    def test_adding_what_is_there_counts_from_zero(self, bench: Bench) -> None:
        sample = SAMPLES[0]
        bench.driver.apply(change(added=table(sample.flow)), STAMP)
        bench.forward(sample.hit, "vm1")
        bench.driver.apply(change(added=table(sample.flow)), STAMP)
        assert packets(bench, sample.flow.cookie) == 0

    def test_a_flow_that_stays_keeps_its_counters(self, bench: Bench) -> None:
        sample = SAMPLES[0]
        bench.driver.apply(change(added=table(sample.flow)), STAMP)
        bench.forward(sample.hit, "vm1")
        bench.driver.apply(change(added=table(Flow(0, 1, b"", b"", STRUCTURE))), Stamp(8, bytes(16)))
        bench.forward(sample.hit, "vm1")
        assert packets(bench, sample.flow.cookie) == 2

    def test_flows_that_differ_only_in_priority_or_table_are_different(self, bench: Bench) -> None:
        flows = [Flow(number, priority, b"", b"", RULE + priority) for number in (0, 30) for priority in (1, 2, 65535)]
        bench.driver.apply(change(added=table(*flows)), STAMP)
        bench.driver.apply(change(removed=table(flows[1])), STAMP)
        assert held(bench) == placed(bench, *flows[:1], *flows[2:])

    @pytest.mark.parametrize("spoiled", ["unknown field", "needs another field", "goes backwards", "no such port"])
    def test_one_flow_that_cannot_be_read_leaves_everything_as_it_was(self, bench: Bench, spoiled: str) -> None:
        bad = {
            "unknown field": Flow(0, 5, bytes.fromhex("ffff0604010203 04".replace(" ", "")), b"", RULE + 9),
            "needs another field": Flow(0, 5, Term(oxm.TCP_DST, 80).pack(), b"", RULE + 9),
            "goes backwards": Flow(30, 5, b"", instructions(goto=20), RULE + 9),
            "no such port": Flow(0, 5, b"", instructions([output(0xFF000001)]), RULE + 9),
        }[spoiled]
        self._refused_without_a_trace(bench, bad)

    def test_a_full_table_leaves_everything_as_it_was(self, bench: Bench) -> None:
        bench.limit(77, 2)
        self._refused_without_a_trace(bench, *(Flow(77, number, b"", b"", RULE + 9) for number in (1, 2, 3)))

    def _refused_without_a_trace(self, bench: Bench, *bad: Flow) -> None:
        stays, goes = SAMPLES[0].flow, Flow(20, 7, b"", b"", RULE + 50)
        bench.driver.apply(change(added=table(stays, goes)), STAMP)
        bench.forward(SAMPLES[0].hit, "vm1")
        before = held(bench)
        delta = change(removed=table(goes), added=table(Flow(20, 8, b"", b"", RULE + 51), *bad))
        with pytest.raises(Refused) as caught:
            bench.driver.apply(delta, Stamp(8, bytes(16)))
        assert f"{bad[0].cookie:#018x} in table {bad[0].table}" in str(caught.value)
        assert held(bench) == before
        assert bench.driver.observe().stamp == STAMP
        assert packets(bench, stays.cookie) == 1
        bench.driver.apply(change(removed=table(goes)), Stamp(9, bytes(16)))
        assert bench.driver.observe().stamp == Stamp(9, bytes(16))

    def test_a_large_change_is_one_transaction_and_is_read_back_whole(self, bench: Bench) -> None:
        flows = [
            Flow(30, 1000 + number, oxm.pack([Term(oxm.ETH_SRC, number)]), TO_VM2 if number % 3 else b"", RULE + number)
            for number in range(3000)
        ]
        bench.driver.apply(change(added=table(*flows)), STAMP)
        assert held(bench) == placed(bench, *flows)
        some = np.array([flow.cookie for flow in flows[:700]], np.uint64)
        assert len(bench.driver.observe(some).flows) == 700
        bench.driver.apply(change(removed=table(*flows[:2999])), STAMP)
        assert held(bench) == placed(bench, flows[2999])

    # the stamp

    def test_the_stamp_is_replaced_never_added_to(self, bench: Bench) -> None:
        for generation, digest in (
            (1, bytes(16)),
            (2, bytes(16)),
            (3, b"\xff" * 16),
            ((1 << 40) - 1, bytes(range(16))),
        ):
            bench.driver.apply(change(), Stamp(generation, digest))
            assert bench.driver.observe().stamp == Stamp(generation, digest)
            assert len(bench.driver.observe().flows) == 0
            assert len(bench.driver.hits().cookie) == 0

    def test_two_stamps_say_nothing(self, bench: Bench) -> None:
        bench.driver.apply(change(), STAMP)
        cookie = Cookie(Tier.HOST, Kind.STAMP, 9).pack()
        self._intrude(bench, Flow(pipeline.Table.STAMP, 0, oxm.stamp_match(b"x" * 16), b"", cookie))
        assert bench.driver.observe().stamp is None
        bench.driver.apply(change(), STAMP)
        assert bench.driver.observe().stamp == STAMP

    def test_what_only_looks_like_a_stamp_is_no_stamp(self, bench: Bench) -> None:
        cookie = Cookie(Tier.HOST, Kind.STAMP, 9).pack()
        self._intrude(bench, Flow(0, 0, b"", b"", cookie))
        observed = bench.driver.observe()
        assert observed.stamp is None
        assert [flow.cookie for flow in observed.flows.rows()] == [cookie]

    # others on the switch

    def test_foreign_flows_are_seen_and_can_be_removed(self, bench: Bench) -> None:
        ours = SAMPLES[0].flow
        bench.driver.apply(change(added=table(ours)), STAMP)
        foreign = [
            Flow(0, 65535, b"", b"", 0),
            Flow(0, 9, oxm.pack([Term(oxm.IN_PORT, 2)]), instructions([output(1)]), 0xFFFFFFFFFFFFFFFE),
            Flow(200, 1, oxm.pack([Term(oxm.REGISTERS[7], 1)]), instructions(goto=201), 0xAB << 56),
            Flow(253, 3, b"", b"", 5),
        ]
        self._intrude(bench, *foreign)
        observed = bench.driver.observe()
        assert {flow.key for flow in observed.flows.rows()} == {flow.key for flow in (ours, *foreign)}
        assert set(bench.driver.hits().cookie.tolist()) == {ours.cookie}
        strangers = observed.flows.take(observed.flows.cookie != np.uint64(ours.cookie))
        bench.driver.apply(change(removed=strangers), STAMP)
        assert held(bench) == placed(bench, ours)

    def test_a_flow_changed_by_others_is_seen_as_changed(self, bench: Bench) -> None:
        ours = SAMPLES[0].flow
        bench.driver.apply(change(added=table(ours)), STAMP)
        self._intrude(bench, Flow(ours.table, ours.priority, ours.match, b"", ours.cookie))
        assert held(bench) != placed(bench, ours)

    @staticmethod
    def _intrude(bench: Bench, *flows: Flow) -> None:
        """Add flows over another connection, by messages packed here."""
        xids = bench.stranger.reserve(len(flows) + 1)
        parts = []
        for xid, flow in zip(xids, flows, strict=False):
            body = struct.pack("!QQBBHHHIIIHH", flow.cookie, 0, flow.table, 0, 0, 0, flow.priority,
                               0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0)  # fmt: skip
            match = struct.pack("!HH", 1, 4 + len(flow.match)) + flow.match
            match += bytes(-len(match) % 8)
            parts.append(messages.message(Type.FLOW_MOD, xid, body + match + flow.instructions))
        whole = b"".join(parts) + messages.barrier_request(xids[-1])
        assert not messages.errors_in(bench.stranger.exchange(whole, xids, timeout_s=PATIENCE_S))

    # symbols

    def test_rows_without_their_port_are_left_out(self, bench: Bench) -> None:
        symbols = ("vm1", "absent", "uplink")
        here, there, way_out = (SYMBOL_BASE + index for index in range(3))
        flows = table(
            Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, here)]), instructions([output(way_out)]), RULE + 1, 5),
            Flow(0, 2, oxm.pack([Term(oxm.IN_PORT, there)]), b"", RULE + 2, 5),
            Flow(0, 3, b"", instructions([output(there)]), RULE + 3),
            Flow(40, 4, b"", instructions([set_field(pipeline.OUTPUT_PORT.field, there)], goto=50), RULE + 4),
            Flow(0, 5, b"", b"", RULE + 5),
        )
        bench.driver.apply(change(added=flows, symbols=symbols), STAMP)
        numbers = bench.driver.channel.ports
        out = instructions([output(numbers["wan0"])])
        assert held(bench) == {
            flow.key: flow
            for flow in (
                Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, numbers["vm1"])]), out, RULE + 1),
                Flow(0, 5, b"", b"", RULE + 5),
            )
        }  # fmt: skip
        bench.driver.apply(change(removed=flows, symbols=symbols), STAMP)
        assert held(bench) == {}

    # connections

    def test_fragments_are_shown_from_the_start_and_whenever_all_is_read(self, bench: Bench) -> None:
        assert self._fragments(bench) is Fragments.NX_MATCH
        xid, barrier = xids = bench.stranger.reserve(2)
        spoil = messages.set_config(xid, SwitchConfig(Fragments.NORMAL, 128)) + messages.barrier_request(barrier)
        bench.stranger.exchange(spoil, xids, timeout_s=PATIENCE_S)
        assert self._fragments(bench) is Fragments.NORMAL
        bench.driver.observe(np.array([RULE], np.uint64))
        assert self._fragments(bench) is Fragments.NORMAL
        bench.driver.observe()
        assert self._fragments(bench) is Fragments.NX_MATCH

    @staticmethod
    def _fragments(bench: Bench) -> Fragments:
        ask, barrier = xids = bench.stranger.reserve(2)
        answers = bench.stranger.exchange(
            messages.get_config_request(ask) + messages.barrier_request(barrier), xids, timeout_s=5
        )
        return messages.read_config(messages.only(answers, Type.GET_CONFIG_REPLY, ask)).fragments

    def test_an_older_epoch_is_refused(self, bench: Bench) -> None:
        bench.driver.start(bench.epoch + 2)
        late = OpenFlowDriver(bench.stranger, uplink="wan0")
        with pytest.raises(Refused, match="newer master"):
            late.start(bench.epoch + 1)
        late.start(bench.epoch + 3)
        with pytest.raises(Refused, match="not its master"):
            bench.driver.apply(change(added=table(SAMPLES[0].flow)), STAMP)
        assert len(late.observe().flows) == 0
        late.apply(change(added=table(SAMPLES[0].flow)), STAMP)
        assert len(bench.driver.observe().flows) == 1

    def test_a_lost_connection_is_unreachable(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(SAMPLES[0].flow)), STAMP)
        bench.disconnect()
        with pytest.raises(Unreachable):
            bench.driver.observe()
        with pytest.raises(Unreachable):
            bench.driver.apply(change(removed=table(SAMPLES[0].flow)), STAMP)
        assert bench.driver.channel.closed
        again = OpenFlowDriver(bench.stranger, uplink="wan0")
        assert len(again.observe().flows) == 1

    # the suite itself

    def test_the_samples_know_every_field_and_action(self) -> None:
        terms = [term for sample in SAMPLES for flow in sample.flows for term in oxm.unpack(flow.match)]
        assert {term.field for term in terms} >= set(oxm.FIELDS) - set(oxm.PACKET_REGISTERS)
        unmaskable = {oxm.CONJ_ID, oxm.IN_PORT, oxm.ETH_TYPE, oxm.IP_DSCP, oxm.IP_PROTO, oxm.ARP_OP, oxm.ICMP_TYPE,
                      oxm.ICMP_CODE, oxm.ICMPV6_TYPE, oxm.ICMPV6_CODE, oxm.CT_NW_PROTO}  # fmt: skip
        maskable = set(oxm.FIELDS) - set(oxm.PACKET_REGISTERS) - unmaskable
        assert {term.field for term in terms if term.mask is not None} >= maskable
        assert {term.field for term in terms} & set(oxm.REGISTERS)

    def test_every_verb_was_tried_on_every_kind(self, request: pytest.FixtureRequest) -> None:
        here = [item for item in request.session.items if getattr(item, "cls", None) is type(self)]
        every = {name for name in dir(type(self)) if name.startswith("test_")}
        if {item.originalname for item in here} != every or request.config.getoption("keyword"):
            pytest.skip("only part of the suite runs")
        assert dict(self.TRIED) == {verb: {sample.name for sample in SAMPLES} for verb in VERBS}
