"""The rows of classifiers in user space: what is written is read, and together they decide as the oracle does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from compiled_filter import carried, counted_under, logs
from enforce import contract_filters
from hypothesis import given, settings
from strategies import policies, policy_corner_packets

from orchestrator.compile.filters import queuerows
from orchestrator.compile.filters.filterlists import Stage
from orchestrator.compile.filters.iptables import FORWARD
from orchestrator.compile.filters.queuerows import QueueRow, queue_objects, read_row, write_row
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import EVERY_PORT

FROM_PORT_0 = replace(contract_filters.SHOP[4], source_ports=EVERY_PORT, destination_ports=contract_filters.ports(0, 9))
POLICY = contract_filters.policy((FROM_PORT_0, *contract_filters.SHOP[:4], *contract_filters.SHOP[5:]))
"""A later fragment has port 0, and is not held by a rule that asks for it."""


def rows_of(policy: Policy) -> list[QueueRow]:
    return [
        read_row(family, name, lines)
        for family, objects in queue_objects(policy).items()
        for name, lines in objects.items()
        if name != FORWARD
    ]


def decided(rows: list[QueueRow], packet: Packet) -> tuple[bool, list[str], list[bool]]:
    """The verdict of rows read back, whom the packet counts for, and whether they log, asked row by row."""
    counted: list[str] = []
    reported: list[bool] = []
    permitted = False
    for stage in Stage:
        held = [row for row in rows if row.stage is stage and row.box.family is packet.family and row.box.holds(packet)]
        first = min(held, key=lambda row: row.order, default=None)
        if first is None:
            continue
        assert [row.order for row in held].count(first.order) == 1, f"two rows decide {packet}"
        counted.append(first.comment)
        reported.append(first.log is not None)
        permitted = first.permit
        if stage is Stage.OPERATOR or not permitted:
            break
    return permitted, counted, reported


def check(policy: Policy) -> None:
    rows = rows_of(policy)
    for packet in filter(carried, policy_corner_packets(policy)):
        decision = decide(policy, packet)
        logging = [logs(policy, step) for step in decision.steps]
        wanted = decision.permitted, counted_under(policy, decision), logging
        assert decided(rows, packet) == wanted, f"{packet}: {decision}"


@settings(deadline=None)
@given(policies())
def test_rows_decide_and_count_as_the_oracle(policy: Policy) -> None:
    check(policy)


@settings(deadline=None)
@given(policies())
def test_a_row_is_read_as_it_was_written(policy: Policy) -> None:
    for family, objects in queue_objects(policy).items():
        assert objects[FORWARD][-1] == "-j QUEUE"
        for name, lines in objects.items():
            if name != FORWARD:
                assert write_row(read_row(family, name, lines)) == lines


BAD = {
    "another name": ("ingress_1 nobody 3", ("order 1 permit",)),
    "no name": ("INPUT", ("order 1 permit",)),
    "nothing": ("ingress_1 rule 3", ()),
    "no order": ("ingress_1 rule 3", ("permit",)),
    "an order too high": ("ingress_1 rule 3", (f"order {queuerows.DEFAULT_ORDER + 1} permit",)),
    "another verdict": ("ingress_1 rule 3", ("order 1 accept",)),
    "a field that there is not": ("ingress_1 rule 3", ("order 1 permit", "ttl 7")),
    "no members": ("ingress_1 rule 3", ("order 1 permit", "protocols ")),
    "a word as a number": ("ingress_1 rule 3", ("order 1 permit", "protocols tcp")),
    "backwards": ("ingress_1 rule 3", ("order 1 permit", "source_ports 9-3")),
    "too high": ("ingress_1 rule 3", ("order 1 permit", "source_ports 3-65536")),
    "out of order": ("ingress_1 rule 3", ("order 1 permit", "source_ports 5,3")),
    "touching": ("ingress_1 rule 3", ("order 1 permit", "source_ports 3,4")),
    "an address of the other IP version": ("ingress_1 rule 3", ("order 1 permit", "source 2001:db8::1")),
    "no fragments": ("ingress_1 rule 3", ("order 1 permit", "fragments none")),
    "a measure that is none": ("ingress_1 rule 3", ("order 1 permit log 0 20",)),
    "a limit that permits nothing": ("ingress_1 rule 3", ("order 1 permit limit 0",)),
    "a limit too high": ("ingress_1 rule 3", ("order 1 permit limit 10001",)),
    "a rule of iptables": ("ingress_1 rule 3", ("-j nowhere",)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused_with_their_place(name: str) -> None:
    place, lines = BAD[name]
    with pytest.raises(BadInput) as refused:
        read_row(Family.IPV4, place, lines)
    assert place in str(refused.value)


def _higher_first(row: QueueRow) -> tuple[str, ...]:
    order = queuerows.DEFAULT_ORDER - row.order
    return _lines(row)[0].replace(f"order {row.order} ", f"order {order} "), *_lines(row)[1:]


_lines = queuerows.write_row


def _without_ports(row: QueueRow) -> tuple[str, ...]:
    return tuple(line for line in _lines(row) if not line.startswith("destination_ports"))


def _without_fragments(row: QueueRow) -> tuple[str, ...]:
    return tuple(line for line in _lines(row) if not line.startswith("fragments"))


def _all_permit(row: QueueRow) -> tuple[str, ...]:
    return _lines(row)[0].replace("deny", "permit"), *_lines(row)[1:]


@pytest.mark.parametrize(
    "bug", [_higher_first, _without_ports, _without_fragments, _all_permit], ids=lambda bug: bug.__name__
)
def test_planted_bugs_are_noticed(monkeypatch: pytest.MonkeyPatch, bug: Callable[[QueueRow], tuple[str, ...]]) -> None:
    monkeypatch.setattr(queuerows, "write_row", bug)
    with pytest.raises(AssertionError):
        check(POLICY)
