"""ClassBench filter sets and traces: what packet classifiers are compared on.

    @192.0.2.0/24	198.51.100.7/32	0 : 65535	80 : 80	0x06/0xFF	0x1000/0x1200
    source          destination      source    dest.     protocol    flags
                                     ports     ports     /mask       /mask

First match wins, the line is the priority. The sets have no actions; `Options.classbench_action` gives one to all, or
lets permit and deny take turns. The rules are `r0`, `r1` and so on, counted from 0 as the filter numbers of a trace.

The flags are 16 bits. For TCP the high byte holds the TCP flags: 0x1000/0x1000 asks for ACK, 0x0000/0x0200 for no SYN.
For ICMP they are the type and the code: 0x0303/0xffff is port unreachable. Other protocols have none, and a rule of
theirs that asks for some is a loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Assembler, Clause, Doubt, shown
from orchestrator.policy.formats.lineboxes import Axes, boxes_of_axes
from orchestrator.policy.formats.portnames import prefix_spans
from orchestrator.policy.formats.results import Imported, Notes, Options
from orchestrator.policy.model import Action, Direction, Packet
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, TCP, WITH_PORTS
from orchestrator.policy.space import ALL_BYTES, ALL_PORTS, WHOLE, possible
from orchestrator.policy.spans import Span, Spans

_HEX = r"0[xX][0-9a-fA-F]{1,4}"
_RULE = re.compile(
    r"@([0-9./]{1,18})\s+([0-9./]{1,18})\s+(\d{1,5})\s*:\s*(\d{1,5})\s+(\d{1,5})\s*:\s*(\d{1,5})"
    rf"\s+({_HEX})/({_HEX})(?:\s+({_HEX})/({_HEX}))?\s*\Z"
)


def looks_like_classbench(line: str) -> bool:
    """Whether a line is a rule of a filter set."""
    return _RULE.match(line.strip()) is not None


def read_classbench(text: str, name: str, options: Options) -> Imported:
    """Read a filter set.

    Raises BadInput, with the line as its place, for a line that is no rule.
    """
    notes = Notes()
    clauses: list[Clause] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line:
            turn = Action.PERMIT if len(clauses) % 2 == 0 else Action.DENY
            action = turn if options.classbench_action is None else options.classbench_action
            clauses.append(_read_clause(line, number, len(clauses), action))
    assembler = Assembler(name, notes, max_rules=options.max_rules)
    assembler.add(clauses, options.direction)
    chosen = "permit and deny in turn" if options.classbench_action is None else options.classbench_action.value
    notes.add(f"the action of the rules, of which the set says nothing, is {chosen}")
    egress_default = Action.DENY if options.direction is Direction.EGRESS else Action.PERMIT
    return Imported(assembler.acl(egress_default=egress_default), assembler.losses(), notes.taken_notes())


def _read_clause(line: str, number: int, position: int, action: Action) -> Clause:
    found = _RULE.match(line)
    if found is None:
        raise BadInput(f"'{shown(line)}' is no rule of a filter set", place=f"line {number}")
    source, destination, *ends, protocol, protocol_mask, flags, flags_mask = found.groups()
    axes: Axes = {}
    doubts: tuple[Doubt, ...] = ()
    try:
        axes = {"source": prefix_spans(source, Family.IPV4), "destination": prefix_spans(destination, Family.IPV4)}
        number_asked = int(protocol, 16), int(protocol_mask, 16)
        flags_asked = int(flags or "0", 16), int(flags_mask or "0", 16)
        if number_asked[1]:
            axes["protocols"] = _make_bytes(*number_asked)
        ports = (_read_ports(ends[0], ends[1]), _read_ports(ends[2], ends[3]))
    except BadInput as error:
        raise error.within(f"line {number}") from None
    reason = _narrow_ports(axes, *ports) or _narrow_flags(axes, *flags_asked)
    if any(mask and value & ~mask for value, mask in (number_asked, flags_asked)):
        reason = "a value has bits that its mask does not look at"
    if reason:
        doubts = (Doubt(number, line, reason),)
    boxes, _ = boxes_of_axes(axes, Family.IPV4)
    return Clause(action, () if doubts else boxes, boxes, doubts, number, line, "r", marker=f"r{position}")


def _read_ports(low: str, high: str) -> Spans:
    first, last = int(low), int(high)
    if not first <= last <= HIGHEST_PORT:
        raise BadInput(f"{low} : {high} is not a range of ports")
    return (Span(first, last),)


def _narrow_ports(axes: Axes, source_ports: Spans, destination_ports: Spans) -> str:
    """Narrow the ports; the reason if that cannot be done."""
    if source_ports == destination_ports == ALL_PORTS:
        return ""
    if axes.get("protocols") not in {1 << number for number in WITH_PORTS}:
        return "ports are looked at under tcp, udp and sctp only"
    axes.update(source_ports=source_ports, destination_ports=destination_ports, fragments=WHOLE)
    return ""


def _narrow_flags(axes: Axes, wanted: int, looked_at: int) -> str:
    """Narrow TCP flags, or ICMP type and code.

    Returns the reason if that cannot be done.
    """
    if not looked_at:
        return ""
    high, low = looked_at >> 8, looked_at & 0xFF
    if axes.get("protocols") == 1 << TCP and not low:
        axes["tcp_flags"] = _make_bytes(wanted >> 8, high)
    elif axes.get("protocols") == 1 << ICMP:
        axes["icmp_types"], axes["icmp_codes"] = _make_bytes(wanted >> 8, high), _make_bytes(wanted & 0xFF, low)
    else:
        return "only TCP and ICMP have flags to look at"
    axes["fragments"] = WHOLE
    return ""


def _make_bytes(wanted: int, looked_at: int) -> int:
    asked = wanted & looked_at
    return ALL_BYTES if not looked_at else sum(1 << byte for byte in range(256) if byte & looked_at == asked)


@dataclass(frozen=True, slots=True)
class TracePacket:
    """A packet of a trace, and the rule it was made from.

    That rule, `r<rule_number>`, is the first match for about 99 % of packets.
    """

    packet: Packet
    rule_number: int


def read_trace(text: str) -> tuple[TracePacket, ...]:
    """Read a trace: source, destination, ports, protocol, flags and filter number a line. Raises BadInput.

    The flags of a trace are those of the filter it was made from (value in the high half, mask in the low one), all
    ones for none; the packet gets the flags that the filter asks for, and no others.
    """
    return tuple(_read_trace_packet(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _read_trace_packet(line: str, number: int) -> TracePacket:
    words = line.split()
    if len(words) != 7 or not all(word.isascii() and word.isdigit() and len(word) <= 10 for word in words):
        raise BadInput(f"'{shown(line)}' is no line of a trace: seven numbers", place=f"line {number}")
    source, destination, source_port, destination_port, protocol, flags, rule_number = map(int, words)
    if max(source, destination, flags) >> 32 or max(source_port, destination_port) > HIGHEST_PORT or protocol > 255:
        raise BadInput(f"'{shown(line)}' holds a number that is too large", place=f"line {number}")
    asked = 0 if flags == 0xFFFFFFFF else (flags >> 16) & flags & 0xFFFF
    packet = Packet(
        Family.IPV4,
        source,
        destination,
        protocol,
        source_port=source_port,
        destination_port=destination_port,
        icmp_type=asked >> 8,
        icmp_code=asked & 0xFF,
        tcp_flags=asked >> 8,
    )
    return TracePacket(possible(packet), rule_number)
