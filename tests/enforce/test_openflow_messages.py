"""Our messages against two strangers' reading and writing of OpenFlow: os-ken's objects and `ovs-ofctl`."""

from __future__ import annotations

import shutil
import struct
import subprocess
from unittest.mock import patch

import numpy as np
import pytest
from enforce.contract_samples import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from os_ken.ofproto import ofproto_v1_5 as ofproto
from os_ken.ofproto import ofproto_v1_5_parser as osken
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    IN_PORT,
    copy_field,
    instructions,
    output,
    output_register,
    set_field,
)
from orchestrator.compile.openflow.oxm import Term
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow import flowdesc, flowmods, messages
from orchestrator.enforce.drivers.openflow.flowmods import Command
from orchestrator.enforce.drivers.openflow.messages import (
    BundleControl,
    Fragments,
    Multipart,
    Role,
    SwitchConfig,
    Type,
)
from orchestrator.errors import Drifted
from orchestrator.program.flows import Flow, FlowTable, entry_keys

DATAPATH = ProtocolDesc(version=ofproto.OFP_VERSION)


def written(message: object, xid: int) -> bytes:
    """os-ken's bytes of one of its messages."""
    message.set_xid(xid)  # type: ignore[attr-defined]
    message.serialize()  # type: ignore[attr-defined]
    return bytes(message.buf)  # type: ignore[attr-defined]


def split(data: bytes) -> list[bytes]:
    """The messages in a run of them."""
    found = []
    while data:
        length = int.from_bytes(data[2:4], "big")
        assert 8 <= length <= len(data)
        found.append(data[:length])
        data = data[length:]
    return found


def flow_mods(data: bytes) -> list[bytes]:
    """The flow-mods inside bundle-add messages."""
    for message in split(data):
        assert message[1] == Type.BUNDLE_ADD
        assert message[4:8] == message[20:24], "the xid of a bundled message is its wrapper's"
    return [message[16:] for message in split(data)]


def ofp_print(data: bytes) -> str:
    if shutil.which("ovs-ofctl") is None:
        pytest.skip("needs ovs-ofctl")
    shown = subprocess.run(["ovs-ofctl", "ofp-print", data.hex()], capture_output=True, text=True, check=True)
    assert not shown.stderr, shown.stderr
    return shown.stdout


def test_single_messages_are_written_as_os_ken_writes_them() -> None:
    pairs = [
        (messages.features_request(5), osken.OFPFeaturesRequest(DATAPATH)),
        (messages.barrier_request(5), osken.OFPBarrierRequest(DATAPATH)),
        (messages.get_config_request(5), osken.OFPGetConfigRequest(DATAPATH)),
        (messages.set_config(5, SwitchConfig(Fragments.NX_MATCH, 77)), osken.OFPSetConfig(DATAPATH, 3, 77)),
        (
            messages.role_request(5, Role.MASTER, (1 << 64) - 2),
            osken.OFPRoleRequest(DATAPATH, ofproto.OFPCR_ROLE_MASTER, 0xFFFF, (1 << 64) - 2),
        ),
        (
            messages.bundle_control(5, 9, BundleControl.COMMIT),
            osken.OFPBundleCtrlMsg(DATAPATH, 9, ofproto.OFPBCT_COMMIT_REQUEST, 3, []),
        ),
        (messages.port_desc_request(5), osken.OFPPortDescStatsRequest(DATAPATH, 0, ofproto.OFPP_ANY)),
        (
            flowdesc.request(5, table=9, cookie=3, cookie_mask=7),
            osken.OFPFlowDescStatsRequest(DATAPATH, 0, 9, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 3, 7, osken.OFPMatch()),
        ),
    ]
    for ours, theirs in pairs:
        assert ours == written(theirs, 5), type(theirs).__name__


def test_hello_offers_exactly_our_version() -> None:
    hello = osken.OFPHello.parser(DATAPATH, 6, 0, 16, 5, messages.hello(5))
    assert [element.versions for element in hello.elements] == [[ofproto.OFP_VERSION]]


def test_a_flow_in_a_bundle_is_written_as_os_ken_writes_it() -> None:
    match = oxm.pack([Term(oxm.IN_PORT, 3), Term(oxm.ETH_TYPE, 0x0800), Term(oxm.IPV4_DST, 0x0A010200, 0xFFFFFF00)])
    actions = [set_field(oxm.ETH_DST, 0x0A0B0C0D0E0F), output(4)]
    flow = Flow(30, 1234, match, instructions(actions, goto=60), 0xAC11000000000063)
    theirs = osken.OFPFlowMod(
        DATAPATH, cookie=flow.cookie, table_id=30, command=ofproto.OFPFC_ADD, priority=1234,
        buffer_id=ofproto.OFP_NO_BUFFER, out_port=ofproto.OFPP_ANY, out_group=ofproto.OFPG_ANY,
        flags=ofproto.OFPFF_RESET_COUNTS,
        match=osken.OFPMatch(in_port=3, eth_type=0x0800, ipv4_dst=("10.1.2.0", "255.255.255.0")),
        instructions=[
            osken.OFPInstructionActions(
                ofproto.OFPIT_APPLY_ACTIONS,
                [osken.OFPActionSetField(eth_dst="0a:0b:0c:0d:0e:0f"), osken.OFPActionOutput(4, 0)],
            ),
            osken.OFPInstructionGotoTable(60),
        ],
    )  # fmt: skip
    bundled = osken.OFPBundleAddMsg(DATAPATH, 9, 3, theirs, [])
    ours = flowmods.bundle_flows(Command.ADD, FlowTable.of([flow]), bundle=9, first_xid=5)
    assert ours.data == written(bundled, 5)


def test_ovs_ofctl_reads_what_the_samples_say() -> None:
    expected = {
        "tcp-port-bits": "tcp,tp_src=0x200/0xfe00,tp_dst=0x40/0xffc0 actions=output:4261412865",
        "tcp-flags-rst": "tcp,tcp_flags=+rst-ack actions=output:4261412865",
        "later-fragment": "udp,nw_frag=later actions=output:4261412865",
        "not-later": "udp,nw_frag=not_later,tp_dst=53 actions=output:4261412865",
        "register-7": "reg7=0x80000000/0x80000000 actions=output:4261412865",
        "drop": "ip actions=drop",
    }
    for sample in SAMPLES:
        if sample.name in expected:
            rewritten = sample.flow.instructions.replace(bytes.fromhex("fe000001"), bytes(3) + b"\2")
            flow = Flow(sample.flow.table, 77, sample.flow.match, rewritten, 0xAC11)
            encoded = flowmods.bundle_flows(Command.ADD, FlowTable.of([flow]), bundle=9, first_xid=5)
            shown = ofp_print(encoded.data)
            table = f"table:{flow.table} " if flow.table else ""
            wanted = expected[sample.name].replace("output:4261412865", "output:2")
            assert "bundle_id=0x9 flags=atomic ordered" in shown
            assert f"ADD {table}priority=77,{wanted.replace(' ', ' cookie:0xac11 reset_counts ')}" in shown


def test_deletes_name_the_key_alone() -> None:
    flow = Flow(30, 77, oxm.pack([Term(oxm.ETH_TYPE, 0x0800)]), instructions([output(3)]), 0xAC11)
    shown = ofp_print(flowmods.bundle_flows(Command.DELETE_STRICT, FlowTable.of([flow]), bundle=9, first_xid=5).data)
    assert "DEL_STRICT table:30 priority=77,ip actions=drop" in shown
    shown = ofp_print(flowmods.bundled_delete(253, 0xAC1F << 48, 0xFFFF << 48, bundle=9, xid=5))
    assert "DEL table:253 priority=0 cookie:0xac1f000000000000/0xffff000000000000 actions=drop" in shown


FLOWS = st.builds(
    Flow,
    table=st.integers(0, 253),
    priority=st.integers(0, 65535),
    match=st.sampled_from([sample.flow.match for sample in SAMPLES]),
    instructions=st.sampled_from([sample.flow.instructions for sample in SAMPLES]),
    cookie=st.integers(0, (1 << 64) - 1),
)


@given(
    st.lists(FLOWS, max_size=12), st.sampled_from([Command.ADD, Command.DELETE_STRICT]), st.sampled_from([1, 3, 2048])
)
@settings(max_examples=examples(60), deadline=None)
def test_every_row_becomes_one_message_and_is_found_again_by_its_number(
    flows: list[Flow], command: Command, at_a_time: int
) -> None:
    with patch.object(flowmods, "PIECE_ROWS", at_a_time):
        encoded = flowmods.bundle_flows(command, FlowTable.of(flows), bundle=7, first_xid=100)
    assert all(1 <= len(split(part)) <= at_a_time for part in encoded.parts())
    wrappers = split(encoded.data)
    assert sorted(encoded.rows.tolist()) == list(range(len(flows)))
    assert [int.from_bytes(each[4:8], "big") for each in wrappers] == list(range(100, 100 + len(flows)))
    for raw, row in zip(flow_mods(encoded.data), encoded.rows.tolist(), strict=True):
        flow = flows[row]
        match_end = 52 + len(flow.match)
        instructions_at = match_end + -match_end % 8
        version, kind, length, xid = struct.unpack_from("!BBHI", raw)
        assert length == len(raw)
        mod = osken.OFPFlowMod.parser(DATAPATH, version, kind, instructions_at, xid, raw)
        assert (mod.table_id, mod.priority, mod.command) == (flow.table, flow.priority, command)
        assert (mod.buffer_id, mod.out_port, mod.out_group) == (0xFFFFFFFF,) * 3
        assert (mod.cookie_mask, mod.idle_timeout, mod.hard_timeout, mod.importance) == (0, 0, 0, 0)
        assert raw[48:match_end] == struct.pack("!HH", 1, 4 + len(flow.match)) + flow.match
        assert not any(raw[match_end:instructions_at])
        if command is Command.ADD:
            assert (mod.cookie, mod.flags) == (flow.cookie, ofproto.OFPFF_RESET_COUNTS)
            assert raw[instructions_at:] == flow.instructions
        else:
            assert (mod.cookie, mod.flags, raw[instructions_at:]) == (0, 0, b"")


def described(flow: Flow, packets: int, octets: int, idle_s: int, *, extra: bool = False) -> bytes:
    """A flow description as os-ken writes one."""
    values = {"duration": (5, 6), "idle_time": (idle_s, 0), "packet_count": packets, "byte_count": octets}
    stats = osken.OFPStats(**({**values, "flow_count": 3} if extra else values))
    match = struct.pack("!HH", 1, 4 + len(flow.match)) + flow.match
    buffer = bytearray()
    stats.serialize(buffer, 0)
    rest = match + bytes(-len(match) % 8) + bytes(buffer) + flow.instructions
    head = struct.pack("!HxxBxHHHHHQ", 24 + len(rest), flow.table, flow.priority, 0, 0, 4, 0, flow.cookie)
    return head + rest


def reply(*descriptions: bytes, more: bool = False) -> bytes:
    body = struct.pack("!HH4x", Multipart.FLOW_DESC, 1 if more else 0) + b"".join(descriptions)
    return messages.message(Type.MULTIPART_REPLY, 5, body)


COUNTERS = st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 32) - 2))


@given(st.lists(st.tuples(FLOWS, COUNTERS, st.booleans()), max_size=12), st.integers(0, 12))
@settings(max_examples=examples(60), deadline=None)
def test_descriptions_as_os_ken_writes_them_are_read(
    rows: list[tuple[Flow, tuple[int, int, int], bool]], cut: int
) -> None:
    entries = [described(flow, *counters, extra=extra) for flow, counters, extra in rows]
    stats = flowdesc.decode([reply(*entries[:cut], more=True), reply(*entries[cut:])])
    assert stats.flows.rows() == [flow for flow, _, _ in rows]
    found = zip(stats.packets.tolist(), stats.bytes.tolist(), stats.idle_s.tolist(), strict=True)
    assert list(found) == [counters for _, counters, _ in rows]


def counters_of(stats: flowdesc.FlowStats) -> Hits:
    """Take the counters of entries that were read as a whole."""
    flows = stats.flows
    return Hits(entry_keys(flows), flows.cookie, stats.packets, stats.bytes, stats.idle_s, stats.age_s)


@given(st.lists(st.tuples(FLOWS, COUNTERS, st.booleans()), max_size=12), st.integers(0, 12))
@settings(max_examples=examples(60), deadline=None)
def test_counters_read_in_c_are_those_of_whole_entries(
    rows: list[tuple[Flow, tuple[int, int, int], bool]], cut: int
) -> None:
    entries = [described(flow, *counters, extra=extra) for flow, counters, extra in rows]
    replies = [reply(*entries[:cut], more=True), reply(*entries[cut:])]
    found, wanted = flowdesc.read_counters(replies), counters_of(flowdesc.decode(replies))
    for column in ("key", "cookie", "packets", "bytes", "idle_s", "age_s"):
        assert getattr(found, column).tolist() == getattr(wanted, column).tolist()
    different = {(flow.key, flow.cookie) for flow, _, _ in rows}
    assert len(set(found.key.tolist())) == len(different)


@given(st.data())
def test_counters_of_garbled_entries_are_refused(data: st.DataObject) -> None:
    whole = reply(described(Flow(3, 1, bytes(12), b"\0" * 8, 9), 1, 2, 3))
    cut = data.draw(st.integers(17, len(whole) - 1))
    with pytest.raises(Drifted):
        flowdesc.read_counters([whole[:cut]])


def test_a_counter_that_is_not_kept_reads_all_ones() -> None:
    flow = Flow(0, 1, b"", b"", 9)
    stats = flowdesc.decode([reply(described(flow, (1 << 64) - 1, (1 << 64) - 1, 5))])
    assert (stats.packets.tolist(), stats.bytes.tolist(), stats.idle_s.tolist()) == ([2**64 - 1], [2**64 - 1], [5])


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_garbled_descriptions_are_drifted_or_read_but_never_crash(data: st.DataObject) -> None:
    good = b"".join(described(sample.flow, 1, 2, 3) for sample in data.draw(st.permutations(SAMPLES[:6])))
    garbled = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        garbled[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    garbled = garbled[: data.draw(st.integers(0, len(garbled)))]
    try:
        stats = flowdesc.decode([reply(bytes(garbled))])
    except Drifted:
        return
    assert len(stats.flows) == len(stats.packets)


def test_ports_are_read_from_all_parts() -> None:
    def port(number: int, name: str) -> bytes:
        return struct.pack("!IHxx6sxx16sII", number, 72, bytes(6), name.encode(), 0, 4) + struct.pack("!HH28x", 0, 32)

    parts = [
        messages.message(Type.MULTIPART_REPLY, 5, struct.pack("!HH4x", Multipart.PORT_DESC, more) + ports)
        for more, ports in ((1, port(1, "vm1") + port(0xFFFFFFFE, "br0")), (0, port(70000, "a-name-of-15-ch")))
    ]
    assert messages.read_ports(parts) == {"vm1": 1, "br0": 0xFFFFFFFE, "a-name-of-15-ch": 70000}


def test_errors_are_told_in_words() -> None:
    def text(kind: int, code: int) -> str:
        return str(messages.read_error(messages.message(Type.ERROR, 5, struct.pack("!HH", kind, code) + b"begin")))

    assert text(5, 1) == "flow not taken: the table is full"
    assert text(4, 9) == "bad match: a field without what it needs before it"
    assert text(4, 999) == "bad match: code 999"
    assert text(4000, 1) == "error type 4000: code 1"


def test_an_answer_that_is_not_there_is_drifted() -> None:
    answers = [messages.message(Type.BARRIER_REPLY, 6), messages.message(Type.ROLE_REPLY, 5)]
    assert messages.only(answers, Type.BARRIER_REPLY, 6) == answers[0]
    with pytest.raises(Drifted, match="no role reply"):
        messages.only(answers, Type.ROLE_REPLY, 6)


def test_actions_are_read_by_ovs_ofctl_as_they_were_meant() -> None:
    """os-ken cannot read a copy-field action that another follows."""
    raw = instructions(
        [
            copy_field(oxm.ARP_SHA, oxm.ARP_THA),
            set_field(oxm.ARP_OP, 2),
            set_field(oxm.REGISTERS[4], 9),
            output_register(oxm.REGISTERS[4]),
            output(IN_PORT),
        ],
        goto=9,
    )
    flow = FlowTable.of([Flow(0, 1, oxm.pack([Term(oxm.ETH_TYPE, 0x0806)]), raw, 1)])
    shown = ofp_print(flowmods.bundle_flows(Command.ADD, flow, bundle=1, first_xid=1).data)
    actions = shown.strip().rpartition("actions=")[2]
    assert actions == (
        "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:2->arp_op,set_field:0x9->reg4,"
        "output:NXM_NX_REG4[],IN_PORT,goto_table:9"
    )


def test_empty_tables_make_no_messages() -> None:
    encoded = flowmods.bundle_flows(Command.ADD, FlowTable.of([]), bundle=1, first_xid=1)
    assert encoded.data == b""
    assert encoded.rows.dtype == np.intp
    assert len(flowdesc.decode([]).flows) == 0
