"""A fake switch that speaks OpenFlow 1.5 in bytes and forwards real frames.

    switch = FakeSwitch({"vm1": 1, "wan0": 2})
    driver = OpenFlowDriver(channel_to(switch), uplink="wan0")
    switch.forward(frame, "vm1")           # -> [("wan0", frame)]

It follows Open vSwitch 3.1 as measured: the contract suite runs over both, and the same frames go through both.

    switch.py    ports, tables, forwarding            session.py   one connection: messages, roles, bundles
    pipeline.py  a packet's way                       table.py     entries, tuple space look-up
    fields.py    match fields                         rewrite.py   changed fields back into the frame
    actions.py   instructions                         replies.py   what it sends
    complaint.py what it refuses
"""

from orchestrator.enforce.drivers.openflow.fake.session import TcpLink, channel_to
from orchestrator.enforce.drivers.openflow.fake.switch import FakeSwitch
from orchestrator.enforce.drivers.openflow.fake.table import Ambiguous

__all__ = ["Ambiguous", "FakeSwitch", "TcpLink", "channel_to"]
