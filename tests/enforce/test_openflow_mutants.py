"""The contract suite is worth something: each planted bug in the driver makes a test of it fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from enforce.contract_driver import ByRow, DriverContract
from enforce.contract_samples import Sample
from enforce.test_openflow_fake_contract import FakeBench

from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow import bundle, driver, flowdesc, flowmods, messages, resolve
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.flowmods import Command, Encoded
from orchestrator.enforce.drivers.openflow.ownrows import OwnRows
from orchestrator.enforce.drivers.openflow.smallchange import SmallChange
from orchestrator.errors import AclflowError
from orchestrator.program.flows import Flow, FlowTable

bundled_row, read_counters = flowmods.bundled_row, flowdesc.read_counters
bundled, decode, request, resolved = flowmods.bundle_flows, flowdesc.decode, flowdesc.request, resolve.resolve


class Suite(DriverContract):
    """The contract as plain functions, without the test that only looks back at the others, and the slow one."""

    LEFT_OUT = (
        "test_every_verb_was_tried_on_every_kind",
        "test_a_large_change_is_one_transaction_and_is_read_back_whole",
    )


def survives(route: type[OpenFlowDriver] = OpenFlowDriver) -> bool:
    """Whether the whole contract holds over the fake switch, with changes written by a kind of driver."""
    names = (name for name in dir(Suite) if name.startswith("test_") and name not in Suite.LEFT_OUT)
    tests = [getattr(Suite(), name) for name in names]
    return all(holds(test, sample, route) for test in tests for sample in arguments_of(test))


def arguments_of(test: Callable[..., None]) -> list[Any]:
    """What a test is parametrised with."""
    marks = getattr(test, "pytestmark", [])
    return list(marks[0].args[1]) if marks else [None]


def holds(test: Callable[..., None], argument: Sample | str | None, route: type[OpenFlowDriver]) -> bool:
    bench = [FakeBench(route)] if "bench" in test.__code__.co_varnames[: test.__code__.co_argcount] else []
    try:
        test(*bench, *([argument] if argument is not None else []))
    except (AssertionError, AclflowError, IndexError, pytest.fail.Exception):
        return False
    return True


def spoil_octets(find: bytes, put: bytes) -> Callable[..., Encoded]:
    """An encoder that writes some bytes wrong."""

    def spoiled(command: Command, flows: FlowTable, *, bundle: int, first_xid: int) -> Encoded:
        encoded = bundled(command, flows, bundle=bundle, first_xid=first_xid)
        return Encoded(encoded.rows, lambda: iter([encoded.data.replace(find, put)]))

    return spoiled


def with_flows(change: Callable[[FlowTable], FlowTable], only: Command) -> Callable[..., Encoded]:
    """An encoder that writes rows other than those it was given."""

    def spoiled(command: Command, flows: FlowTable, *, bundle: int, first_xid: int) -> Encoded:
        return bundled(command, change(flows) if command is only else flows, bundle=bundle, first_xid=first_xid)

    return spoiled


def shifted_cookies(flows: FlowTable) -> FlowTable:
    return dataclasses.replace(flows, cookie=flows.cookie << np.uint64(1))


def one_priority_lower(flows: FlowTable) -> FlowTable:
    return dataclasses.replace(flows, priority=np.maximum(flows.priority, 1) - np.uint16(1))


def swapped_instructions(flows: FlowTable) -> FlowTable:
    return dataclasses.replace(flows, instructions=flows.instructions[::-1].copy())


def no_removals(command: Command, flows: FlowTable, *, bundle: int, first_xid: int) -> Encoded:
    kept = flows if command is Command.ADD else flows.take(np.zeros(len(flows), np.bool_))
    return bundled(command, kept, bundle=bundle, first_xid=first_xid)


def wrong_mask(flows: FlowTable) -> FlowTable:
    """Every second match loses the last bit of its last byte, which is a mask's where there is one."""
    match = flows.match.copy()
    for row in range(0, len(flows), 2):
        if flows.match_length[row]:
            match[row, flows.match_length[row] - 1] &= 0xFE
    return dataclasses.replace(flows, match=match)


def counters_of_the_next_row(replies: list[bytes]) -> Hits:
    hits = read_counters(replies)
    return dataclasses.replace(hits, packets=np.roll(hits.packets, 1))


def matches_cut_short(replies: list[bytes]) -> flowdesc.FlowStats:
    stats = decode(replies)
    flows = dataclasses.replace(stats.flows, match_length=np.minimum(stats.flows.match_length, 30).astype(np.uint8))
    return dataclasses.replace(stats, flows=flows)


def resolve_without_leaving_out(flows: FlowTable, symbols: Any, ports: Any, uplink: str) -> FlowTable:
    return resolved(flows, symbols, {**dict.fromkeys(symbols, 99), **ports}, uplink)


def resolve_all_to_one(flows: FlowTable, symbols: Any, ports: Any, uplink: str) -> FlowTable:
    return resolved(flows, symbols, dict.fromkeys(ports, 1), uplink)


def only_our_flows(xid: int, **named: int) -> bytes:
    return request(xid, **{"cookie": 0xAC << 56, "cookie_mask": 0xFF << 56, **named})


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "wrong mask": (flowmods, "bundle_flows", with_flows(wrong_mask, Command.ADD)),
    "shifted cookie": (flowmods, "bundle_flows", with_flows(shifted_cookies, Command.ADD)),
    "lower priority": (flowmods, "bundle_flows", with_flows(one_priority_lower, Command.ADD)),
    "lower priority of deletes": (flowmods, "bundle_flows", with_flows(one_priority_lower, Command.DELETE_STRICT)),
    "instructions of another row": (flowmods, "bundle_flows", with_flows(swapped_instructions, Command.ADD)),
    "missing removal": (flowmods, "bundle_flows", no_removals),
    "counters not reset": (flowmods, "RESET_COUNTS", 0),
    "not atomic, not ordered": (flowmods, "ATOMIC_ORDERED", 0),
    "wrong port": (flowmods, "bundle_flows", spoil_octets(b"\0\0\0\x10\0\0\0\2", b"\0\0\0\x10\0\0\0\3")),
    "wrong table": (flowmods, "bundle_flows", spoil_octets(b"\x0a\0\0\0\0\0", b"\x0b\0\0\0\0\0")),
    "counters of another row": (flowdesc, "read_counters", counters_of_the_next_row),
    "matches cut short": (flowdesc, "decode", matches_cut_short),
    "absent ports kept": (driver, "resolve", resolve_without_leaving_out),
    "all ports the same": (driver, "resolve", resolve_all_to_one),
    "complaints overheard": (messages, "errors_in", lambda answers: []),
    "stamps of other tables": (OwnRows, "are_stamps", lambda self, flows: flows.cookie >> 48 == 0xAC1F),
    "stamp kept beside the new": (flowmods, "bundled_delete", lambda *args, **named: b""),
    "blamed on another flow": (bundle, "_name_flow", lambda flow: "flow"),
    "fragments hidden": (driver.OpenFlowDriver, "_show_fragments", lambda self: None),
    "foreign flows overlooked": (flowdesc, "request", only_our_flows),
}  # fmt: skip


def spoil_row(change: Callable[[Flow], Flow | None], only: Command) -> Callable[..., bytes]:
    """A packer of single rows that writes another row than it was given, or an empty deletion for none."""

    def spoiled(command: Command, flow: Flow, *, bundle: int, xid: int) -> bytes:
        changed = change(flow) if command is only and flow.table != 253 else flow
        if changed is None:
            return flowmods.bundled_delete(flow.table, 1, (1 << 64) - 1, bundle=bundle, xid=xid)
        return bundled_row(command, changed, bundle=bundle, xid=xid)

    return spoiled


def asked_for_nothing(xid: int, *, match: bytes = b"", **named: int) -> bytes:
    return request(xid, **{**named, "cookie": 1} if match else named)


MUTANTS_BY_ROW: dict[str, tuple[Any, str, Any]] = {
    "shifted cookie": (
        flowmods, "bundled_row", spoil_row(lambda row: replace(row, cookie=row.cookie + 1), Command.ADD)
    ),
    "lower priority": (
        flowmods, "bundled_row", spoil_row(lambda row: replace(row, priority=max(row.priority - 1, 0)), Command.ADD)
    ),
    "missing removal": (flowmods, "bundled_row", spoil_row(lambda _: None, Command.DELETE_STRICT)),
    "missing addition": (flowmods, "bundled_row", spoil_row(lambda _: None, Command.ADD)),
    "no instructions": (flowmods, "bundled_row", spoil_row(lambda row: replace(row, instructions=b""), Command.ADD)),
    "counters not reset": (flowmods, "RESET_COUNTS", 0),
    "not atomic, not ordered": (flowmods, "ATOMIC_ORDERED", 0),
    "asked for other entries": (flowdesc, "request", asked_for_nothing),
    "nothing seen": (flowdesc, "entries", lambda replies: []),
    "all seen is taken for touched": (OwnRows, "is_stamp", lambda self, row: False),
    "absent ports kept": (driver, "resolve_row", lambda row, numbers: row),
    "complaints overheard": (messages, "errors_in", lambda answers: []),
    "stamp kept beside the new": (flowmods, "bundled_delete", lambda *args, **named: b""),
    "blamed on another flow": (bundle, "_name_flow", lambda flow: "flow"),
    "committed in spite of complaints": (SmallChange, "discard", SmallChange.close),
}  # fmt: skip


@pytest.mark.parametrize("route", [OpenFlowDriver, ByRow])
def test_the_driver_itself_survives(route: type[OpenFlowDriver]) -> None:
    assert survives(route)


@pytest.mark.parametrize("name", MUTANTS_BY_ROW)
def test_a_bug_planted_in_small_changes_does_not_survive(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place, attribute, bug = MUTANTS_BY_ROW[name]
    monkeypatch.setattr(place, attribute, bug)
    assert not survives(ByRow)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_does_not_survive(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place, attribute, bug = MUTANTS[name]
    monkeypatch.setattr(place, attribute, bug)
    assert not survives()
