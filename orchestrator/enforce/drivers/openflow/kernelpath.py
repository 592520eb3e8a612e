"""The limits of switches that forward in the kernel, and the replacements.

A neighbour solicitation is made its own answer by writing two fields that Linux' datapath does not know (Open vSwitch
calls them the ND extensions): the kind of the first option, and the flags. Where the datapath is the kernel's, Open
vSwitch refuses such a row at once, which tells one kind of switch from the other. Forwarding in the daemon
(`datapath_type=netdev`) knows both.

There the solicitation is made another one, from the address that was asked for, about the asker's own. It names its
sender's MAC address, which the asker notes before it answers (RFC 4861, section 7.2.3), and that is what it wanted.
Such a note is "stale": good to send to, and never confirmed, so an asker that hears nothing back from higher layers
asks again now and then, and is told again. Its answers are dropped, as all discovery from endpoints is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import IN_PORT, copy_field, instructions, output, set_field
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.pipelines.host import GATEWAY_MAC, Table
from orchestrator.enforce.drivers.openflow.messages import ErrorMessage
from orchestrator.policy.protocols import ICMPV6
from orchestrator.program.flows import Flow, FlowTable

_UNKNOWN = tuple(field.header.to_bytes(4, "big") for field in (oxm.ND_RESERVED, oxm.ND_OPTIONS_TYPE))
_BAD_ACTION, _BAD_SET_ARGUMENT = 2, 15
_ADVERTISEMENT = 136

ASKING_BACK = instructions(
    (
        copy_field(oxm.ETH_SRC, oxm.ETH_DST),
        set_field(oxm.ETH_SRC, GATEWAY_MAC),
        copy_field(oxm.IPV6_SRC, oxm.IPV6_DST),
        copy_field(oxm.ND_TARGET, oxm.IPV6_SRC),
        copy_field(oxm.IPV6_DST, oxm.ND_TARGET),
        set_field(oxm.ND_SLL, GATEWAY_MAC),
        output(IN_PORT),
    )
)
"""What happens there to a solicitation."""

TRIAL = Flow(
    Table.RESPONDER,
    0,
    oxm.pack((Term(oxm.ETH_TYPE, oxm.IPV6), Term(oxm.IP_PROTO, ICMPV6), Term(oxm.ICMPV6_TYPE, _ADVERTISEMENT))),
    instructions((set_field(oxm.ND_RESERVED, 0),)),
    0,
)
"""A row that is only ever put into a bundle that is thrown away: a switch that refuses it forwards in the kernel."""


def adapt_rows(flows: FlowTable) -> FlowTable:
    """Rows of a program as a switch that forwards in the kernel holds them."""
    answering = [
        index
        for index in np.flatnonzero(flows.table == Table.RESPONDER).tolist()
        if _writes_unknown(flows.instruction_set[flows.instructions[index]])
    ]
    if not answering:
        return flows
    which = flows.instructions.copy()
    which[answering] = len(flows.instruction_set)
    return replace(flows, instructions=which, instruction_set=(*flows.instruction_set, ASKING_BACK))


def adapted_row(flow: Flow) -> Flow:
    """The same for one row."""
    return replace(flow, instructions=ASKING_BACK) if is_answer(flow) else flow


def is_answer(flow: Flow) -> bool:
    """Whether a row makes a solicitation its answer, as the kernel cannot."""
    return flow.table == Table.RESPONDER and _writes_unknown(flow.instructions)


def is_refusal(error: ErrorMessage) -> bool:
    """Whether a complaint about the trial says that the datapath does not know a field."""
    return (error.type, error.code) == (_BAD_ACTION, _BAD_SET_ARGUMENT)


def _writes_unknown(data: bytes) -> bool:
    return any(field in data for field in _UNKNOWN)
