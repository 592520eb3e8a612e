"""Which connections lists forbid: as the oracle decides about the packets that opened them; refused files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies
from tracked_domain import trackable

from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.statesync.lists import Duty, Lists, TenantList, read_lists
from orchestrator.statesync.messages import Key


def lists_of(policy: Policy) -> Lists:
    return Lists(1, tuple(TenantList(each.prefixes, each.acl) for each in policy.tenants), policy.operator)


def key_of(packet: Packet) -> tuple[Key, bool]:
    """The key of the connection that a packet opens, and whether its upper end has."""
    mapped = 0xFFFF << 32 if packet.family is Family.IPV4 else 0
    ports = (7, 7) if packet.protocol in (ICMP, ICMPV6) else (packet.source_port, packet.destination_port)
    ends = [(packet.source | mapped, ports[0]), (packet.destination | mapped, ports[1])]
    (low, low_port), (high, high_port) = sorted(ends)
    return Key(low, high, low_port, high_port, packet.protocol), ends[0] > ends[1]


@settings(max_examples=examples(60), deadline=None)
@given(policies(max_tenants=3, max_rules=6), st.randoms(use_true_random=False))
def test_lists_forbid_what_the_oracle_denies(policy: Policy, rng: random.Random) -> None:
    tracked = trackable(policy)
    packets = [each for each in map(opening, policy_packets(tracked)) if each is not None and _is_known(each)]
    packets = rng.sample(packets, min(len(packets), 200))
    found = [key_of(each) for each in packets]
    openers = np.array([opener for _, opener in found], np.bool_)
    forbidden = lists_of(tracked).forbid(b"".join(key.pack() for key, _ in found), openers)
    assert forbidden.tolist() == [not decide(tracked, each).permitted for each in packets]


def _is_known(packet: Packet) -> bool:
    """Whether a cluster knows connections that such a packet opens."""
    asks = {Family.IPV4: (ICMP, 8), Family.IPV6: (ICMPV6, 128)}[packet.family]
    return packet.protocol in (TCP, UDP) or (packet.protocol, packet.icmp_type) == asks


PLAIN = {"id": "plain", "action": "permit", "stateless": False}
FAST = {"id": "fast", "action": "permit", "stateless": True}
WHOLE = {"generation": 3, "tenants": [{"prefixes": ["10.1.0.0/16"], "acl": {"rules": []}}]}


@pytest.mark.parametrize("named", [{}, {"tenant": "shop"}])
def test_a_file_of_lists_is_read(tmp_path: Path, named: dict[str, str]) -> None:
    file = tmp_path / "lists.json"
    tenants = [each | named for each in WHOLE["tenants"]]  # type: ignore[attr-defined]
    file.write_text(json.dumps(WHOLE | {"tenants": tenants}))
    assert read_lists(file).generation == 3


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"generation": -1}, "generation"),
        ({"generation": True}, "generation"),
        ({"more": 1}, "more"),
        ({"tenants": 7}, "tenants"),
        ({"tenants": [{"prefixes": ["10.1.0.0/16"]}]}, "tenants[0]"),
        ({"tenants": [{"prefixes": ["10.1.0.0/33"], "acl": {"rules": []}}]}, "tenants[0].prefixes[0]"),
        ({"tenants": [{"prefixes": [1], "acl": {"rules": []}}]}, "tenants[0].prefixes[0]"),
        ({"tenants": [{"prefixes": [], "acl": {"rules": [{"id": "a"}]}}]}, "tenants[0].acl.rules[0].action"),
        ({"operator": [{"id": "a", "action": "permitt"}]}, "operator[0].action"),
        ({"operator": [FAST]}, "operator[0]"),
        ({"tenants": [{"prefixes": [], "acl": {"rules": [PLAIN, FAST]}}]}, "tenants[0].acl.rules[1]"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, changed: dict[str, object], place: str) -> None:
    file = tmp_path / "lists.json"
    file.write_text(json.dumps(WHOLE | changed))
    with pytest.raises(AclflowError) as refused:
        read_lists(file)
    assert refused.value.place == f"{file}.{place}"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"generation": 1}'])
def test_what_is_no_file_of_lists_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lists.json"
    file.write_text(text)
    with pytest.raises(AclflowError, match=r"lists\.json"):
        read_lists(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AclflowError, match="nowhere"):
        read_lists(tmp_path / "nowhere")


# ---------------------------------------------------------------------------------------------------------------- when


def test_lists_are_looked_by_once_for_each_reason() -> None:
    duty, lists = Duty(), Lists(4, ())
    duty.hear(2, is_news=True)
    assert duty.due() is None, "it was given none"
    duty.give(lists)
    assert duty.due() is lists
    duty.finish(lists, 3)
    assert (duty.due(), duty.done.generation, duty.done.closed) == (None, 4, 3)
    duty.hear(4, is_news=True)
    assert duty.due() is lists
    duty.hear(4, is_news=True)
    duty.finish(lists, 0)
    assert duty.due() is lists, "something came while it looked"


def test_older_lists_close_nothing() -> None:
    duty, lists = Duty(), Lists(4, ())
    duty.give(lists)
    duty.hear(5, is_news=True)
    assert duty.due() is None, "another member has newer ones"
    duty.give(Lists(3, ()))
    duty.give(newer := Lists(5, ()))
    assert duty.due() is newer
