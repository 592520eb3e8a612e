"""What tests of the device models share: PoCL's device, lists that models get wrong easily, and the oracle's rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from strategies import corner_packets_of

from orchestrator.classify.devices.device import Device
from orchestrator.classify.devices.devicesearch import DeviceSearch, Setup
from orchestrator.classify.devices.models import Model
from orchestrator.classify.devices.opencl import opencl_devices
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule, RuleId
from orchestrator.policy.oracle import matches
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.policy.rulelist import Row, rule_rows

SETUPS = tuple(Setup(model, items=16, room=48, lanes=2) for model in Model)
"""Small batches, so that lanes are used again, and one size of groups, so that little is compiled."""


@cache
def pocl() -> Device:
    """Return PoCL's device: this machine's processor.

    A test that asks for it fails where no OpenCL compiles for the processor: a skipped one would hide its faults.
    """
    processors = [device for device in opencl_devices() if not device.is_accelerator]
    for device in sorted(processors, key=lambda device: "Portable Computing Language" not in device.name):
        try:
            device.build("kernel void nothing(global int *into) { into[0] = 1; }")
        except Refused:
            continue
        return device
    pytest.fail("no OpenCL compiles for this processor; `make test` installs pocl-opencl-icd")


def records(packets: Sequence[Packet]) -> Packets:
    return np.array([record(packet) for packet in packets], PACKET)


def oracle_row(rows: Sequence[Row], packet: Packet, acl: Acl) -> int:
    """The first row that holds a packet, by the oracle's own words; the default's row holds everything."""
    for number, row in enumerate(rows):
        if row.rule is None or matches(row.rule, packet, acl.groups):
            return number
    return -1


def disagreements(device: Device, acl: Acl, setup: Setup, families: Sequence[Family] = tuple(Family)) -> list[str]:
    """Where a model names another row than the oracle for the corners of a list, in both directions."""
    corners = corner_packets_of(acl)
    told = []
    for direction in Direction:
        for family, rows in rule_rows(acl, direction).items():
            packets = [packet for packet in corners if packet.family is family]
            if family not in families or not packets:
                continue
            search = DeviceSearch(device, family, [row.box for row in rows], setup)
            for packet, found in zip(packets, search.first(records(packets)).tolist(), strict=True):
                wanted = oracle_row(rows, packet, acl)
                if found != wanted:
                    told.append(f"{setup.model.value}: row {found}, not {wanted}, for {packet}")
    return told


def tricky() -> Acl:
    """A list in which much overlaps: prefixes inside one another, ranges, flags, ICMP, fragments, scattered sets."""
    lines = [
        (TCP, ("2001:db8:1::/48",), ("2001:db8:a:1::1/128",), (PortRange(80, 80),), {}),
        (TCP, ("10.1.2.3/32", "10.1.2.9/32"), ("172.16.1.1/32",), (PortRange(22, 22), PortRange(80, 90)), {}),
        (TCP, ("10.1.0.0/16",), ("172.16.0.0/16",), (PortRange(0, 1023),), {"established": True}),
        (ICMP, (), ("172.16.0.0/16",), EVERY_PORT, {"icmp_type": 8, "icmp_code": 0}),
        (ICMPV6, ("2001:db8::/32",), (), EVERY_PORT, {"icmp_type": 128}),
        (None, ("10.0.0.0/8",), ("172.16.1.0/24",), EVERY_PORT, {"fragments": True}),
        (UDP, ("2001:db8:1:2::/64", "2001:db8:1:4::/64"), ("2001:db8:a:1::/64",), (PortRange(53, 53),), {}),
        (UDP, ("10.0.0.0/8",), ("172.16.0.0/16",), (PortRange(1, 65534),), {}),
        (None, ("2001:db8::/32",), ("2001:db8:a::/48",), EVERY_PORT, {}),
        (None, ("0.0.0.0/1",), (), EVERY_PORT, {}),
    ]
    rules = [
        Rule(
            RuleId(f"{direction.value}{place}"), Action.PERMIT if place % 3 else Action.DENY, direction, protocol,
            Addresses(tuple(map(Prefix.parse, sources))), Addresses(tuple(map(Prefix.parse, destinations))),
            destination_ports=ports, **more,
        )
        for direction in Direction for place, (protocol, sources, destinations, ports, more) in enumerate(lines)
    ]  # fmt: skip
    return Acl(tuple(rules))


def many(count: int) -> Acl:
    """More rows than a group has items and a tile has places: each next one about a wider range of ports."""
    rules = [
        Rule(
            RuleId(f"r{place}"), Action.PERMIT, Direction.INGRESS, TCP,
            Addresses((Prefix.parse("10.0.0.0/8"),)), destination_ports=(PortRange(2 * place, 4 * place + 1),),
        )
        for place in range(count)
    ]  # fmt: skip
    return Acl(tuple(rules))


def nested() -> Acl:
    """Shapes whose lowest rows come in another order than the rows that hold a packet."""
    texts = ("172.16.0.1/32", "172.16.0.0/24", "172.16.0.7/32", "172.16.0.0/16", "172.16.0.9/32", "172.16.1.0/24")
    rules = [
        Rule(RuleId(f"r{place}"), Action.PERMIT, destination=Addresses((Prefix.parse(text),)))
        for place, text in enumerate(texts)
    ]
    return Acl(tuple(rules))
