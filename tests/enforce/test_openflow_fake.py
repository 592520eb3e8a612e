"""What the fake switch does beyond the driver's contract: ties, time, ports, TCP, and speed enough to be used."""

from __future__ import annotations

import random
import socket
import struct

import numpy as np
import pytest
from enforce.contract_samples import SAMPLES

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, output, set_field
from orchestrator.compile.openflow.oxm import Term
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import HEADER
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import Ambiguous, FakeSwitch, TcpLink, channel_to
from orchestrator.enforce.drivers.openflow.headers import parse
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.program.delta import Delta
from orchestrator.program.flows import Flow, FlowTable

NOTHING = FlowTable.of(())
FRAME = SAMPLES[0].hit
TO_2, TO_3 = (instructions([output(port)]) for port in (2, 3))


def switch_with(*flows: Flow, **settings: object) -> tuple[FakeSwitch, OpenFlowDriver]:
    switch = FakeSwitch({"vm1": 1, "vm2": 2, "vm3": 3, "wan0": 4}, **settings)  # type: ignore[arg-type]
    driver = OpenFlowDriver(channel_to(switch), uplink="wan0")
    driver.start(1)
    add(driver, *flows)
    return switch, driver


def add(driver: OpenFlowDriver, *flows: Flow) -> None:
    driver.apply(Delta(b"", bytes(16), 1, NOTHING, FlowTable.of(flows), ()), Stamp(1, bytes(16)))


def test_a_packet_whose_fate_is_luck_is_not_forwarded() -> None:
    one = Flow(0, 5, oxm.pack([Term(oxm.ETH_TYPE, 0x0800)]), TO_2, 1)
    other = Flow(0, 5, oxm.pack([Term(oxm.ETH_SRC, 0x020000000A01)]), TO_3, 2)
    switch, driver = switch_with(one, other)
    with pytest.raises(Ambiguous, match=r"cookie 0x0000000000000002|cookie 0x0000000000000001"):
        switch.forward(FRAME, "vm1")
    assert driver.observe().flows.rows()
    above = Flow(0, 6, b"", TO_3, 3)
    add(driver, above)
    assert switch.forward(FRAME, "vm1") == [("vm3", FRAME)], "a tie below the entry that decides does not matter"


def test_a_tie_between_flows_that_do_the_same_is_none() -> None:
    one = Flow(0, 5, oxm.pack([Term(oxm.ETH_TYPE, 0x0800)]), TO_2, 1)
    other = Flow(0, 5, oxm.pack([Term(oxm.ETH_SRC, 0x020000000A01)]), TO_2, 2)
    switch, _ = switch_with(one, other)
    assert switch.forward(FRAME, "vm1") == [("vm2", FRAME)]


def test_idle_time_follows_the_clock() -> None:
    now = [100.0]
    switch, driver = switch_with(
        Flow(0, 5, oxm.pack([Term(oxm.ETH_TYPE, 0x0800)]), TO_2, 0xAC << 56 | 1),
        Flow(0, 4, b"", TO_2, 0xAC << 56 | 2),
        clock=lambda: now[0],
    )
    now[0] = 130.0
    switch.forward(FRAME, "vm1")
    now[0] = 137.5
    hits = driver.hits()
    assert dict(zip(hits.cookie.tolist(), hits.idle_s.tolist(), strict=True)) == {0xAC << 56 | 1: 7, 0xAC << 56 | 2: 37}


def test_flows_that_share_a_cookie_have_counters_of_their_own() -> None:
    cookie = 0xAC << 56 | 9
    now = [0.0]
    switch, driver = switch_with(
        Flow(0, 5, oxm.pack([Term(oxm.IN_PORT, 1)]), TO_2, cookie),
        Flow(0, 5, oxm.pack([Term(oxm.IN_PORT, 2)]), TO_3, cookie),
        clock=lambda: now[0],
    )
    switch.forward(FRAME, "vm1")
    now[0] = 50.0
    switch.forward(FRAME + b"!", "vm2")
    switch.forward(FRAME, "vm2")
    now[0] = 60.0
    hits = driver.hits()
    assert hits.cookie.tolist() == [cookie] * 2
    assert len(set(hits.key.tolist())) == 2
    assert sorted(zip(hits.packets.tolist(), hits.idle_s.tolist(), strict=True)) == [(1, 60), (2, 10)]
    assert hits.bytes.sum() == 3 * len(FRAME) + 1
    assert hits.age_s.tolist() == [60.0] * 2


def test_tracing_counts_nothing_and_tells_the_way() -> None:
    mark = instructions([set_field(oxm.REGISTERS[0], 7)], goto=10)
    switch, driver = switch_with(
        Flow(0, 5, b"", mark, 0xAC << 56 | 1),
        Flow(10, 5, oxm.pack([Term(oxm.REGISTERS[0], 7)]), instructions([output(2)], goto=20), 0xAC << 56 | 2),
    )
    trace = switch.trace(FRAME, "vm1")
    assert [entry.table for entry in trace.entries] == [0, 10]
    assert trace.cookies == (0xAC << 56 | 1, 0xAC << 56 | 2)
    assert trace.sent == ((2, FRAME),)
    assert trace.missed, "table 20 is empty"
    assert not driver.hits().packets.any()


def test_ports_come_and_go() -> None:
    switch, driver = switch_with(Flow(0, 5, b"", TO_2, 1))
    switch.set_ports({"vm1": 1, "vm9": 2})
    assert driver.channel.ports == {"vm1": 1, "vm9": 2}
    assert switch.forward(FRAME, "vm1") == [("vm9", FRAME)]
    switch.set_ports({"vm1": 1})
    assert switch.forward(FRAME, "vm1") == []


class Controller:
    """A listening socket that speaks raw OpenFlow."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]

    def accept(self) -> None:
        self._socket, _ = self._listener.accept()
        self._socket.settimeout(5)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next message."""
        head = self._exactly(8)
        return head + self._exactly(HEADER.unpack(head)[2] - 8)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def close(self) -> None:
        self._socket.close()
        self._listener.close()


def test_it_dials_a_controller_and_is_a_switch_to_it() -> None:
    switch = FakeSwitch({"vm1": 1, "wan0": 4}, datapath_id=0xCAFE)
    controller = Controller()
    link = TcpLink(switch, controller.address)
    controller.accept()
    assert controller.receive()[:2] == bytes((6, Type.HELLO))
    requests = messages.hello(1) + messages.features_request(2) + messages.port_desc_request(3)
    for octet in requests + messages.message(Type.ECHO_REQUEST, 4, b"ping"):
        controller.send(bytes((octet,)))
    assert messages.read_datapath_id(controller.receive()) == 0xCAFE
    assert messages.read_ports([controller.receive()]) == {"vm1": 1, "wan0": 4}
    assert controller.receive() == messages.message(Type.ECHO_REPLY, 4, b"ping")
    switch.set_ports({"vm2": 9})
    status = controller.receive()
    assert (status[1], struct.unpack_from("!I", status, 16)[0]) == (Type.PORT_STATUS, 9)
    assert link.is_open
    link.close()
    with pytest.raises((EOFError, ConnectionError)):
        controller.receive()
    controller.close()
    assert not link.is_open
    switch.set_ports({})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (messages.message(Type.BARRIER_REQUEST, 5)[:0] + bytes.fromhex("0414000800000005"), (1, 0)),
        (bytes.fromhex("0663000800000005"), (1, 1)),
        (messages.message(Type.MULTIPART_REQUEST, 5, struct.pack("!HH4x", 99, 0)), (1, 2)),
        (messages.message(Type.MULTIPART_REQUEST, 5, struct.pack("!HH", 1, 0)), (1, 6)),
        (messages.message(Type.ROLE_REQUEST, 5, struct.pack("!IHHQ", 9, 0, 0, 1)), (11, 2)),
        (messages.bundle_control(5, 9, messages.BundleControl.COMMIT), (17, 2)),
        (messages.bundle_control(5, 9, messages.BundleControl.DISCARD), (17, 2)),
    ],
)
def test_what_cannot_be_read_is_refused_and_the_rest_still_answered(raw: bytes, reason: tuple[int, int]) -> None:
    channel = channel_to(FakeSwitch({}))
    answers = []
    channel.deliver = answers.append  # type: ignore[method-assign]
    # Nothing public sends what is no message.
    channel._send(raw + messages.barrier_request(6))
    error = messages.read_error(answers[0])
    assert (error.xid, error.type, error.code) == (5, *reason)
    assert error.data == raw
    assert answers[1:] == [messages.message(Type.BARRIER_REPLY, 6)]


def test_the_look_up_finds_what_a_plain_search_finds() -> None:
    rng = random.Random(6)
    for _ in range(20):
        flows = {}
        for number in range(40):
            sample = rng.choice(SAMPLES)
            flow = Flow(0, rng.randrange(1, 30), sample.flow.match, instructions([output(number + 10)]), number)
            flows[flow.key] = flow
        switch, driver = switch_with(*flows.values())
        for key in list(flows)[::3]:
            driver.apply(Delta(b"", b"", 1, FlowTable.of([flows.pop(key)]), NOTHING, ()), Stamp(1, bytes(16)))
        for sample in SAMPLES:
            values = {**parse(sample.hit).values, "in_port": 1}
            matching = [
                entry for entry in switch.entries()
                if entry.table == 0
                and all(values.get(name, 0) & bits.mask == bits.value for name, bits in entry.match.items())
            ]  # fmt: skip
            top = max((entry.priority for entry in matching), default=0)
            best = [entry.cookie for entry in matching if entry.priority == top]
            try:
                found = list(switch.trace(sample.hit, "vm1").cookies)
            except Ambiguous:
                assert len(best) > 1
            else:
                assert found == best[:1]
                assert len(best) <= 1


def test_many_cookies_are_read_in_one_go() -> None:
    flows = [Flow(0, number, b"", b"", 0xAC << 56 | number) for number in range(1, 400)]
    _, driver = switch_with(*flows)
    for count in (1, 255, 256, 390):
        wanted = np.array([flow.cookie for flow in flows[:count]], np.uint64)
        assert sorted(driver.observe(wanted).flows.cookie.tolist()) == sorted(wanted.tolist())
