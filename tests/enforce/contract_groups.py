"""What every switch must be to its driver where groups are rows of a program: over the fake and over Open vSwitch."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from enforce.contract_driver import RULE, STAMP, Bench, change, held, packets, placed, table
from enforce.contract_samples import A4, B4, GATEWAY, ME, P4, VM2
from patience import PATIENCE_S

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import groups, oxm
from orchestrator.compile.openflow.instructions import instructions, output, set_field
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.frames import IPV4, ethernet, ipv4, tcp
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.enforce.gap import correction
from orchestrator.errors import Refused
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import SYMBOL_BASE, Flow
from orchestrator.program.program import Program, Tier

WAN, ABSENT = SYMBOL_BASE + 2, SYMBOL_BASE + 9
BUCKETS = 256
NUMBER = 7
TO_GROUP = Flow(0, 5, b"", instructions([groups.group(NUMBER)]), RULE + 1)


def group(ports: Sequence[int], number: int = NUMBER) -> Flow:
    """Buckets in turn by these ports, each of which writes the bucket's number."""
    turns = zip(range(BUCKETS), itertools.cycle(ports), strict=False)
    buckets = (groups.bucket(index, [set_field(oxm.ETH_DST, index), output(port)]) for index, port in turns)
    return groups.select_group(Tier.HOST, number, buckets)


def frame(port: int) -> bytes:
    return ethernet(ME, GATEWAY, IPV4, ipv4(A4, B4, TCP, tcp(port, 80, 2, b"", P4)))


class GroupContract:
    def test_a_group_and_the_flow_that_leads_to_it_come_in_one_transaction(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(TO_GROUP, group([VM2, WAN]))), STAMP)
        assert held(bench) == placed(bench, TO_GROUP, group([VM2, WAN]))
        assert packets(bench, TO_GROUP.cookie) == 0
        (sent,) = bench.forward(frame(1), "vm1")
        assert sent[0] in ("vm2", "wan0")
        assert sent[1][:6] != frame(1)[:6]
        assert packets(bench, TO_GROUP.cookie) == 1

    def test_a_flow_keeps_to_its_bucket_and_all_buckets_are_used(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(TO_GROUP, group([VM2, WAN]))), STAMP)
        ways = [tuple(bench.forward(frame(port), "vm1")) for port in range(60)]
        assert ways[:5] == [tuple(bench.forward(frame(port), "vm1")) for port in range(5)]
        shares = Counter(port for way in ways for port, _ in way)
        assert sum(shares.values()) == 60
        assert min(shares["vm2"], shares["wan0"]) >= 10

    def test_a_group_is_changed_in_place_and_only_what_changed_moves(self, bench: Bench) -> None:
        old, new = group([VM2, VM2]), group([VM2, WAN])
        bench.driver.apply(change(added=table(TO_GROUP, old)), STAMP)
        before = [bench.forward(frame(port), "vm1")[0] for port in range(40)]
        bench.driver.apply(change(removed=table(old), added=table(new)), Stamp(8, bytes(16)))
        assert held(bench) == placed(bench, TO_GROUP, new)
        assert packets(bench, TO_GROUP.cookie) == 40
        after = [bench.forward(frame(port), "vm1")[0] for port in range(40)]
        assert [one[1] for one in before] == [one[1] for one in after]
        for _, sent in after:
            assert int.from_bytes(sent[:6], "big") < BUCKETS
        assert {port for port, sent in after if sent[5] % 2 == 0} == {"vm2"}
        assert {port for port, sent in after if sent[5] % 2} == {"wan0"}

    def test_a_group_goes_with_the_flow_that_led_to_it(self, bench: Bench) -> None:
        stays = Flow(0, 4, b"", b"", RULE + 2)
        bench.driver.apply(change(added=table(TO_GROUP, group([VM2]), stays)), STAMP)
        bench.driver.apply(change(removed=table(group([VM2]), TO_GROUP)), STAMP)
        assert held(bench) == placed(bench, stays)
        assert bench.forward(frame(1), "vm1") == []

    def test_without_buckets_nothing_passes(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(TO_GROUP, group([]))), STAMP)
        assert held(bench) == placed(bench, TO_GROUP, group([]))
        assert bench.forward(frame(1), "vm1") == []

    def test_buckets_whose_port_is_not_there_drop_and_the_others_go_on(self, bench: Bench) -> None:
        bench.driver.apply(change(added=table(TO_GROUP, group([VM2, ABSENT]))), STAMP)
        ways = [bench.forward(frame(port), "vm1") for port in range(40)]
        assert {way[0][0] for way in ways if way} == {"vm2"}
        assert 5 <= sum(not way for way in ways) <= 35

    def test_a_group_is_observed_by_its_cookie(self, bench: Bench) -> None:
        one, other = group([VM2]), group([WAN], number=8)
        bench.driver.apply(change(added=table(TO_GROUP, one, other)), STAMP)
        observed = bench.driver.observe(np.array([other.cookie], np.uint64))
        assert {row.key: row for row in observed.flows.rows()} == placed(bench, other)
        assert observed.stamp == STAMP

    @pytest.mark.parametrize("edit", ["changed", "deleted", "another"])
    def test_a_group_edited_by_hand_is_seen_and_put_right(self, bench: Bench, edit: str) -> None:
        wanted = Program.of("shop", Tier.HOST, STAMP.generation, table(TO_GROUP, group([VM2])), ("vm1", "vm2"))
        stamp = Stamp(wanted.generation, wanted.digest)
        bench.driver.apply(change(added=wanted.flows), stamp)
        by_hand = {
            "changed": (0x8000, group([WAN])),
            "deleted": (2, group([])),
            "another": (0, group([WAN], number=99)),
        }[edit]
        self._intrude(bench, *by_hand)
        assert held(bench) != placed(bench, TO_GROUP, group([VM2]))
        bench.driver.apply(correction(bench.driver.observe(), wanted, bench.driver.resolve), stamp)
        assert held(bench) == placed(bench, TO_GROUP, group([VM2]))
        assert bench.forward(frame(1), "vm1")[0][0] == "vm2"

    def _intrude(self, bench: Bench, command: int, row: Flow) -> None:
        """Another controller's group-mod."""
        resolved = bench.driver.resolve(table(row), ("vm1", "vm2", "uplink")).rows()[0]
        kind, buckets, properties = groups.split_group(resolved.instructions)
        number = int.from_bytes(row.match, "big")
        body = struct.pack("!HBxIHxxI", command, kind, number, len(buckets), 0xFFFFFFFF) + buckets + properties
        if command == 2:
            body = body[:16]
        xids = bench.stranger.reserve(2)
        asked = messages.message(Type.GROUP_MOD, xids[0], body) + messages.barrier_request(xids[1])
        assert not messages.errors_in(bench.stranger.exchange(asked, xids, timeout_s=PATIENCE_S))

    @pytest.mark.parametrize("spoiled", ["no such group", "two buckets of one number", "bad port"])
    def test_a_refused_change_leaves_groups_as_they_were(self, bench: Bench, spoiled: str) -> None:
        old = group([VM2])
        bench.driver.apply(change(added=table(TO_GROUP, old)), STAMP)
        twice = groups.bucket(1, [output(VM2)]) * 2
        bad = {
            "no such group": Flow(0, 9, b"", instructions([groups.group(12345)]), RULE + 9),
            "two buckets of one number": groups.select_group(Tier.HOST, 9, [twice]),
            "bad port": groups.select_group(Tier.HOST, 9, [groups.bucket(0, [output(0xFF000001)])]),
        }[spoiled]
        with pytest.raises(Refused) as caught:
            bench.driver.apply(change(removed=table(old), added=table(group([WAN]), bad)), Stamp(8, bytes(16)))
        assert ("group 9" if bad.table == groups.GROUPS else f"{bad.cookie:#018x}") in str(caught.value)
        assert held(bench) == placed(bench, TO_GROUP, old)
        assert bench.driver.observe().stamp == STAMP

    def test_counters_are_of_flows_only(self, bench: Bench) -> None:
        rows = table(TO_GROUP, group([VM2]))
        bench.driver.apply(change(added=rows), STAMP)
        keys = bench.driver.counter_keys(bench.driver.resolve(rows, ("vm1", "vm2", "uplink")))
        assert keys is not None
        assert keys.tolist() == bench.driver.hits().key.tolist()

    def test_a_switch_in_its_first_state_has_no_groups(self, bench: Bench) -> None:
        cookie = np.array([Cookie(Tier.HOST, Kind.GROUP, NUMBER).pack()], np.uint64)
        assert len(bench.driver.observe(cookie).flows) == 0
        bench.driver.apply(change(removed=table(group([VM2]))), STAMP)
        assert len(bench.driver.observe().flows) == 0
