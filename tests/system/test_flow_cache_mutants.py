"""The flow cache's program with planted bugs: each must be noticed by the packets that the program's tests send."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import test_flow_cache_program as tests
from system.test_flow_cache_program import Bench

from orchestrator.compile.filters.cacherows import Verdict
from orchestrator.enforce.drivers.bpf import kernel
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import Router

NATIVE = Path(kernel.__file__).parent / "_native"
MUTANTS = {
    "one beyond a range": ("<= row->destination_span", "<= row->destination_span + 1"),
    "one short of a port range": ("<= row->destination_port_span", "< row->destination_port_span"),
    "flags not looked at": ("(flags & row->flags_mask) == row->flags", "true"),
    "protocol not looked at": ("(__u8)(protocol - row->protocol) <= row->protocol_span", "true"),
    "half of an address": ("right->high && left->low <= right->low", "right->high"),
    "the last row that holds": ("search->row = row;", "search->row = row; if (row < MOST_ROWS) return 0;"),
    "flows not told apart": ("whole[i] & looked[i]", "0"),
    "an old set's flows": ("known && known->serial == set->serial", "known"),
    "fragments taken for whole packets": ("ip->frag_off & ~bpf_htons(0x4000)", "0"),
    "the last hop forgotten": ("ip->ttl <= 1", "ip->ttl < 1"),
    "the last hop of IPv6 forgotten": ("ip->hop_limit <= 1", "ip->hop_limit < 1"),
    "options taken for ports": ("*(__u8 *)ip != 0x45", "(*(__u8 *)ip & 0xf0) != 0x40"),
    "tags not seen": ("skb->vlan_present || ", ""),
    "others' MACs": ("skb->pkt_type != PACKET_FOR_US || ", ""),
    "marks not seen": (" || skb->mark)", ")"),
    "wrong checksums": ("!right_checksum(ip)", "false"),
    "wrong lengths": ("!right_length(skb, total) || !right", "!right"),
    "extension headers": ("is_extension(ip->nexthdr) || ", ""),
    "cut headers": ("(const void *)(tcp + 1) > end || length < sizeof(*tcp)", "(const void *)(tcp + 1) > end"),
    "multicast": ("!unicast4(p.source) || !unicast4(p.destination) ||", ""),
    "link-local": ("!unicast6(p.source) || !unicast6(p.destination) ||", ""),
    "neighbours' messages": ("is_neighbourly(p.source_port)", "false"),
    "a hop not taken off": ("ip->ttl--;", ""),
    "a checksum not mended": ("ip->check = total + (total >= 0xffff);", ""),
    "a checksum without its carry": ("total + (total >= 0xffff)", "total"),
    "own addresses let in": ("found == BPF_FIB_LKUP_RET_NOT_FWDED || ", ""),
    "rp_filter not repeated": ("!comes_in(skb, ip, set->source_check) ||", ""),
    "out where it came in": ("route->ifindex != skb->ingress_ifindex", "true"),
    "too long for the way": ("= on_the_wire(skb, ip + 1, end, total, sizeof(*ip), p.protocol);", "= 1;"),
    "deny permits": ("outcome->verdict != PERMIT", "outcome->verdict == DEFER"),
    "deferred is denied": ("outcome->verdict == DEFER || ", ""),
    "not counted": ("counter->packets++;", ""),
    "counted for another": ("outcome->counters[i]", "outcome->counters[0]"),
}  # fmt: skip
"""What is written in the program, and what the mutant says there instead."""


@pytest.fixture(scope="module")
def router(layout: Layout) -> Iterator[Router]:
    with Router(layout.prefix) as router:
        yield router


def built(folder: Path, old: str, new: str, program: str = "flowcache") -> Path:
    """A program with other words somewhere, in its own file or in what programs share."""
    names = (f"{program}.bpf.c", "forwarding.h")
    sources = {name: (NATIVE / name).read_text() for name in names}
    assert any(old in source for source in sources.values())
    for name, source in sources.items():
        (folder / name).write_text(source.replace(old, new))
    target = folder / "mutant.bpf.o"
    headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    command = ["clang", "-O2", "-g", "-target", "bpf", headers, f"-I{NATIVE}", "-c", names[0], "-o", target.name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return target


def whole_suite(bench: Bench) -> None:
    """All that is asked of the program, one frame at a time."""
    tests.test_it_answers_as_its_rows_say(bench)
    for verdict in (Verdict.PERMIT, Verdict.DENY):
        bench.hold(*tests.everything(verdict))
        for name, craft in tests.PLAIN.items():
            assert bench.run(craft())[0] == tests.ANSWERS[verdict], name
        for name, craft in tests.NOT_PLAIN.items():
            assert bench.run(craft())[0] == tests.SLOW_PATH, name
        tests.test_the_routers_own_address_is_the_kernels_business(bench, "192.0.2.1/32", verdict)
    tests.test_a_marked_packet_is_somebody_elses(bench)
    tests.test_what_it_sends_on_has_one_hop_less_and_the_next_hops_address(bench)
    tests.test_every_checksum_stays_right(bench)
    tests.test_nothing_is_sent_where_there_is_no_way(bench)
    tests.test_a_source_is_asked_for_as_rp_filter_does(bench)
    tests.test_what_does_not_fit_is_left_to_the_kernel(bench)
    tests.test_for_whole_policies_it_agrees_with_the_oracle_and_counts_exactly(bench)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_noticed(router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(kernel, "OBJECT", built(tmp_path, *MUTANTS[name]))
    with pytest.raises(AssertionError):
        whole_suite(Bench(router))
