"""What a switch that forwards in the kernel cannot do, and a program does without there.

A neighbour solicitation is made its own answer by writing two fields that Linux' datapath does not know (Open vSwitch
calls them the ND extensions): the kind of the first option, and the flags. Where the datapath is the kernel's, Open
vSwitch refuses such a row at once. All else of a program is as good there, so that row is left out, and such a switch
answers no solicitations: fewer packets come out of it, never others. Forwarding in the daemon (`datapath_type=netdev`)
knows both fields.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.drivers.openflow.messages import ErrorMessage
from orchestrator.program.flows import Flow, FlowTable

LACKING = "it answers no neighbour solicitations: its datapath, the kernel's, cannot write the fields of the answer"
"""What is said of such a switch."""

_FIELDS = tuple(field.header.to_bytes(4, "big") for field in (oxm.ND_RESERVED, oxm.ND_OPTIONS_TYPE))
_BAD_ACTION, _BAD_SET_ARGUMENT = 2, 15


def is_answer(flow: Flow) -> bool:
    """Whether a row makes a solicitation its answer."""
    return flow.table == Table.RESPONDER and _writes(flow.instructions)


def are_answers(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Which rows do."""
    found: npt.NDArray[np.bool_] = flows.table == Table.RESPONDER
    if found.any():
        found &= np.array([_writes(each) for each in flows.instruction_set], np.bool_)[flows.instructions]
    return found


def is_about_it(error: ErrorMessage, flow: Flow | None) -> bool:
    """Whether a complaint, about the message that carried a row, says that the datapath does not know the fields."""
    return (error.type, error.code) == (_BAD_ACTION, _BAD_SET_ARGUMENT) and flow is not None and is_answer(flow)


def _writes(instructions: bytes) -> bool:
    return any(field in instructions for field in _FIELDS)
