"""Read one line of an ASA's access list as one clause per IP version.

    permit tcp object-group OFFICES any4 eq https log
    permit object HTTPS any host 192.0.2.1
    ------ ------------ --- --------------- ----------
    action protocol     source      destination options
           or service   [ports]     [ports, types]

An ASA looks at a connection's first packet, and puts fragments together before it looks (see `unified`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Clause, Doubt, marker_in
from orchestrator.policy.formats.cisco import asa_groups
from orchestrator.policy.formats.cisco.accesslist import Config, Entry
from orchestrator.policy.formats.cisco.fieldwords import PORT_OPERATORS, Words, port_spans
from orchestrator.policy.formats.lineboxes import EVERYWHERE, Axes, Sides, by_version, protocol_of
from orchestrator.policy.model import Action
from orchestrator.policy.protocols import ICMP, ICMPV6, WITH_PORTS
from orchestrator.policy.space import ALL_ADDRESSES, WHOLE
from orchestrator.policy.spans import Spans

INACTIVE = "inactive"
_LEVELS = frozenset(
    {"alerts", "critical", "debugging", "emergencies", "errors", "informational", "notifications", "warnings"}
)
_REASONS: Mapping[str, str] = {
    "time-range": "no rule comes and goes by the hour here",
    "interface": "the address of an interface is not known here",
    "user": "who is logged in is not known here",
    "user-group": "who is logged in is not known here",
    "object-group-user": "who is logged in is not known here",
    "security-group": "security group tags are not looked at here",
    "object-group-security": "security group tags are not looked at here",
    "object-group-network-service": "the addresses of host names are not known here",
}


@dataclass(slots=True)
class _Draft:
    """The state of a line while it is read; every word only narrows it."""

    services: tuple[Axes, ...] = ({},)
    source: Sides = field(default_factory=lambda: EVERYWHERE)
    destination: Sides = field(default_factory=lambda: EVERYWHERE)
    log: bool = False


def clauses_of(entry: Entry, label: str, config: Config) -> list[Clause]:
    """Return the clauses of a line.

    None if the line is inactive, or if no packet can match it.
    """
    if entry.words[-1] == INACTIVE:
        return []
    draft = _Draft()
    doubts: tuple[Doubt, ...] = ()
    try:
        _read_entry(Words(entry.words[1:]), config, draft)
    except BadInput as error:
        doubts = (Doubt(entry.line, entry.text, error.reason),)
    marker, description = marker_in(entry.remark)
    line = Clause(
        action=Action(entry.words[0]),
        sure=(),
        maybe=(),
        doubts=doubts,
        line=entry.line,
        text=entry.text,
        label=label,
        marker=marker,
        description=description[:1024],
        log=draft.log,
    )
    return by_version(line, draft.services, draft.source, draft.destination)


def _read_entry(words: Words, config: Config, draft: _Draft) -> None:
    _service(words, config, draft)
    draft.source = _read_side(words, config)
    _ports(words, "source_ports", config, draft)
    draft.destination = _read_side(words, config)
    _ports(words, "destination_ports", config, draft)
    _icmp(words, config, draft)
    _end(words, draft)


def _service(words: Words, config: Config, draft: _Draft) -> None:
    """A protocol, an ``object`` of a service, or an ``object-group`` of protocols or services."""
    if words.take_if("object"):
        draft.services = asa_groups.service_object(words.take("the name of an object"), config)
    elif words.take_if("object-group"):
        draft.services = asa_groups.services(words.take("the name of an object group"), config)
    else:
        number = asa_groups.protocol(words.take("a protocol"))
        draft.services = ({} if number is None else {"protocols": 1 << number},)


def _read_side(words: Words, config: Config) -> Sides:
    word = words.peek()
    if word in _REASONS:
        raise BadInput(_REASONS[word])
    if words.take_if("any"):
        return EVERYWHERE if config.unified else _make_whole_side(Family.IPV4)
    if words.take_if("any4"):
        return _make_whole_side(Family.IPV4)
    if words.take_if("any6"):
        return _make_whole_side(Family.IPV6)
    if words.take_if("object"):
        return asa_groups.network_object(words.take("the name of an object"), config)
    if words.take_if("object-group"):
        return asa_groups.network_group(words.take("the name of an object group"), config)
    return asa_groups.addresses(words, config)


def _make_whole_side(family: Family) -> Sides:
    return {family: ALL_ADDRESSES[family]}


def _ports(words: Words, axis: str, config: Config, draft: _Draft) -> None:
    """The ports of one side, if any: an operator, or a group of ports."""
    numbers = [protocol_of(axes) for axes in draft.services]
    left = words.left()
    grouped = len(left) > 1 and left[0] == "object-group" and asa_groups.holds_ports(left[1], config)
    if not grouped and words.peek() not in PORT_OPERATORS:
        return
    if not set(numbers) <= WITH_PORTS:
        raise BadInput("ports are looked at under tcp, udp and sctp only")
    narrowed = []
    for place, (axes, number) in enumerate(zip(draft.services, numbers, strict=True), 1):
        here = words if place == len(numbers) else Words(left)
        narrowed.append({**axes, axis: _read_port_spans(here, number or 0, config), "fragments": WHOLE})
    draft.services = tuple(narrowed)


def _read_port_spans(words: Words, number: int, config: Config) -> Spans:
    if words.take_if("object-group"):
        return asa_groups.ports(words.take("the name of an object group"), config, number)
    return port_spans(words, number, asa_groups.ASA_PORTS)


def _icmp(words: Words, config: Config, draft: _Draft) -> None:
    """The types of a line about ICMP, if any."""
    number = protocol_of(draft.services[0])
    if len(draft.services) != 1 or number not in (ICMP, ICMPV6):
        return
    if words.take_if("object-group"):
        kinds = asa_groups.icmp_types(words.take("the name of an object group"), config, number)
        draft.services = ({**draft.services[0], "icmp_types": kinds, "fragments": WHOLE},)
    else:
        draft.services = ({**draft.services[0], **asa_groups.icmp(words, number)},)


def _end(words: Words, draft: _Draft) -> None:
    """``log [LEVEL | disable | default] [interval SECONDS]`` and whatever else there is."""
    if words.take_if("log"):
        draft.log = words.peek() not in ("disable", "default")
        if not draft.log or words.peek() in _LEVELS or words.peek().isdigit():
            words.take("a level")
        if words.take_if("interval"):
            words.take("a number of seconds")
    if words.peek() in _REASONS:
        raise BadInput(_REASONS[words.peek()])
    words.done()
