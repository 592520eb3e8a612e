"""The way of most controllers: the OpenFlow library's own objects, one message a flow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from orchestrator.compile.openflow import oxm
from orchestrator.enforce.drivers.openflow import compat, messages
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.messages import BundleControl
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family, format_address
from orchestrator.program.flows import FlowTable

_BUNDLE = 77
_PATIENCE_S = 120.0
_UNKNOWN = {"ip_frag"}
"""Fields that the library has no name for; they are left out, in its favour."""

_DIALECT: Any = SimpleNamespace(ofproto=compat.ofproto_v1_5, ofproto_parser=compat.ofproto_v1_5_parser)


def library_add(channel: Channel, flows: FlowTable) -> float:
    """Return seconds to build, serialize and send flows in one bundle.

    To the barrier. Raises Refused.
    """
    rows = [(row, oxm.unpack(row.match)) for row in flows.rows()]  # values, as an application would have them
    started = time.perf_counter()
    xids = channel.reserve(len(rows) + 3)
    parts = [messages.bundle_control(xids[0], _BUNDLE, BundleControl.OPEN)]
    for xid, (row, terms) in zip(xids[1:], rows, strict=False):
        parts.append(_bundle_flow(xid, row.table, row.priority, row.cookie, terms, row.instructions))
    parts.append(messages.bundle_control(xids[-2], _BUNDLE, BundleControl.COMMIT))
    parts.append(messages.barrier_request(xids[-1]))
    answers = channel.exchange(b"".join(parts), xids, timeout_s=_PATIENCE_S)
    seconds = time.perf_counter() - started
    errors = messages.errors_in(answers)
    if errors:
        raise Refused(f"the switch refused the library's flows, {errors[0]}")
    return seconds


def _bundle_flow(
    xid: int, table: int, priority: int, cookie: int, terms: tuple[oxm.Term, ...], instructions: bytes
) -> bytes:
    """One flow as a bundle-add message of the library's."""
    parser, protocol = _DIALECT.ofproto_parser, _DIALECT.ofproto
    match = parser.OFPMatch(**dict(_arguments(terms)))
    doing = [parser.OFPInstructionGotoTable(instructions[4])] if instructions else []
    flow = parser.OFPFlowMod(
        _DIALECT, cookie=cookie, table_id=table, command=protocol.OFPFC_ADD, priority=priority, match=match,
        instructions=doing,
    )  # fmt: skip
    flow.set_xid(xid)
    added = parser.OFPBundleAddMsg(_DIALECT, _BUNDLE, protocol.OFPBF_ATOMIC | protocol.OFPBF_ORDERED, flow, [])
    added.set_xid(xid)
    added.serialize()
    return bytes(added.buf)


def _arguments(terms: tuple[oxm.Term, ...]) -> Iterator[tuple[str, Any]]:
    """A match as the library's users write it: names, and texts for addresses."""
    for term in terms:
        name = term.field.name
        if name in _UNKNOWN:
            continue
        value: Any = term.value
        mask: Any = term.mask
        if name.startswith("ipv"):
            family = Family.IPV4 if name.startswith("ipv4") else Family.IPV6
            value = format_address(family, term.value)
            mask = None if term.mask is None else format_address(family, term.mask)
        yield name, value if mask is None else (value, mask)
