"""From columns to barrier: encode, send one atomic bundle, wait for its confirmation.

The way of most controllers: the OpenFlow library's own objects, one message a flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.bench.benchlab import BASELINE_BRIDGES, channels, clear, flows_as_text, ofctl_add
from orchestrator.bench.control_plane.sizes import Sizes, name_of, record_ratio
from orchestrator.bench.results import Results, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.lists.lists import INGRESS_STAGE, priorities
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import rule_flows
from orchestrator.compile.pipelines.host import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import compat, messages
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.messages import BundleControl
from orchestrator.errors import Refused
from orchestrator.lab.pop import Lab
from orchestrator.policy.addresses import Family, format_address
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U16, U64, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import RuleTable

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


OFCTL = ("ofctl", "ovs-ofctl --bundle")
LIBRARY = ("osken", "os-ken's objects")
_TARGET = Target(0.6)


class _Columns:
    """A rule list in columns, with its priorities and cookies: where the clock starts."""

    def __init__(self, rules: int) -> None:
        acl = synthetic(rules)
        self.table: RuleTable = atoms(
            acl.rules, acl.groups, tenant=1, numbers={r.id: n for n, r in enumerate(acl.rules, 1)}
        )
        self.priority: U16 = priorities(
            levels(self.table), self.table, acl.rules, highest=HIGHEST_RULE_PRIORITY, lowest=LOWEST_RULE_PRIORITY
        )
        self.cookie: U64 = self.table.number | np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())

    def delta(self) -> Delta:
        """All of it as what is to be added to an empty switch."""
        added = rule_flows(self.table, INGRESS_STAGE, self.priority, self.cookie)
        nothing = FlowTable.of(())
        return Delta(bytes(DIGEST_BYTES), b"\1" * DIGEST_BYTES, 1, nothing, added, ())


def measure(lab: Lab, results: Results, sizes: Sizes, folder: Path, progress: Callable[[str], None]) -> None:
    """Measure against `ovs-ofctl`, alternating; and against the library's own objects, fewer times,"""
    columns, text = _Columns(sizes.rules), folder / "wire.flows"
    host, base = lab.spec.hosts[0], BASELINE_BRIDGES[0]
    ours, theirs, library = [], [], []
    with channels(lab) as connected:
        driver = OpenFlowDriver(connected[host.name], uplink=host.uplink)
        driver.start(1)
        for turn in range(sizes.rounds + 1):
            progress(f"wire, round {turn} of {sizes.rounds}")
            clear(lab, (host.name, base))
            started = time.perf_counter()
            delta = columns.delta()
            driver.apply(delta, Stamp(turn + 1, delta.target))
            seconds = time.perf_counter() - started
            if turn == 0:  # a first round warms both sides up, and gives the baseline its flows
                flows = flows_as_text(lab, host.name, text)
                results.notes.append(f"wire: {flows} flows of {sizes.rules} rules on either side")
                ofctl_add(lab, base, text)
                continue
            ours.append(seconds)
            theirs.append(ofctl_add(lab, base, text))
            if turn <= sizes.slow_rounds:
                clear(lab, (host.name,))
                library.append(library_add(connected[host.name], columns.delta().added))
    name = f"wire_{name_of(sizes.rules)}"
    record_ratio(results, name, ours, theirs, OFCTL, _TARGET)
    record_ratio(results, name, ours[: len(library)], library, LIBRARY)
    results.notes.append("wire: os-ken's objects carry no fragment matches, which that library does not know")
