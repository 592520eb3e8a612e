"""nftables carries stateless rules out beside tracked ones, with real packets through a router.

Conversations and traces of chance run over the kernel and over the fake side by side, and both are held to the oracle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from compiled_filter import carried
from enforce.contract_filters import SHOP, bring, by_cookie, policy, program
from system.test_filters_contract import take_turns_while_nothing_passes
from system.test_filters_tracked import FLAGS, Both
from tracked_domain import answers_half_known, conversation, denying, error_about, marked, trackable

from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import LEFT, RIGHT, Router
from orchestrator.policy.connections import NONE, decide_tracked, ends_of, opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import owner
from orchestrator.policy.protocols import TCP

pytestmark = pytest.mark.system

TALKS = 60
"""So many talks run side by side."""
ENTRIES = "/proc/sys/net/netfilter/nf_conntrack_count"


@pytest.fixture
def both(layout: Layout) -> Iterator[Both]:
    with Router(layout.prefix) as router:
        yield Both(router, None)


def firsts(wanted: Policy, rng: random.Random, most: int) -> list[Packet]:
    """Packets that may open connections, each between other ends, one of which is a tenant's or both."""
    packets = [replace(each, tcp_flags=0x02 if each.protocol == TCP else 0) for each in policy_packets(wanted)]
    found = [each for each in dict.fromkeys(packets) if _can_cross(wanted, each)]
    rng.shuffle(found)
    by_ends = list({ends_of(packet): packet for packet in found}.values())
    return by_ends[:most]


def _can_cross(wanted: Policy, packet: Packet) -> bool:
    """Whether a packet has a frame that a router forwards, and an end that decides."""
    if not carried(packet) or opening(packet) is None or packet.protocol in (0, 44, 132):
        return False
    ends = packet.source, packet.destination
    upper = [address >> (packet.family.bits - 8) for address in ends]
    ours = any(owner(wanted, packet.family, each) is not None for each in ends)
    return ours and ends[0] != ends[1] and all(0 < each < 224 and each != 127 for each in upper)


def _entries(both: Both) -> int:
    return int(both.router.run("cat", ENTRIES))


@pytest.mark.parametrize("seed", range(4))
def test_conversations_pass_as_the_oracle_decides_and_changes_cut(both: Both, seed: int) -> None:
    """Step by step and rule by rule; what is decided alone makes no entry; then marks and actions change."""
    rng = random.Random(seed)
    states = [marked(policy(), rng), trackable(policy()), marked(policy(), rng)]
    alone = 0
    for wanted in states:
        both.load(wanted)
        both.counted = Counter()
        begun = [first for first in firsts(wanted, rng, 90) if not _is_half_known(both, first)]
        going = [list(conversation(first))[:5] for first in begun]
        for step in range(5):
            alone += _step(both, going, step)
        assert by_cookie(both.real.driver.hits()) == both.counted
    assert alone > 5


def _step(both: Both, going: list[list[Packet]], step: int) -> int:
    """Send the packets of a step, those of each direction together; talks that end leave the list.

    Returns how many were decided alone. The kernel is stricter than the oracle about connections of which it has not
    seen all packets, and about what answers at an end that does not know the connection: such talks end before.
    """
    batches: dict[tuple[bool, bool], list[list[Packet]]] = {}
    for talk in going:
        untracked = [_untracks(both, packet) for packet in talk]
        if untracked[step] is untracked[0] and not answers_half_known(talk[step], both.known):
            inside = owner(both.policy, talk[step].family, talk[step].source) is not None
            batches.setdefault((inside, untracked[step]), []).append(talk)
    going.clear()
    for (_, is_untracked), talks in batches.items():
        entries = _entries(both)
        came = both.meet([talk[step] for talk in talks], fully=True)
        assert not is_untracked or _entries(both) <= entries, "no state is made"
        going += [talk for talk, through in zip(talks, came, strict=True) if through]
    return sum(len(talks) for (_, is_untracked), talks in batches.items() if is_untracked)


def _is_half_known(both: Both, packet: Packet) -> bool:
    """Whether one end of a connection knows it from an earlier list, and another does not: then the kernel drops it."""
    ours = [each for each in (packet.source, packet.destination) if owner(both.policy, packet.family, each) is not None]
    return len({(ends_of(packet), each) in both.known for each in ours}) > 1


def _untracks(both: Both, packet: Packet) -> bool:
    assert isinstance(both.fake, FakeNft)
    return both.fake.ruleset.untracks(packet)


@pytest.mark.parametrize(
    "packets", [2_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)])]
)
def test_no_trace_gets_more_through_than_the_oracle_permits(both: Both, packets: int) -> None:
    """Talks side by side, with segments of chance and ICMP errors among them, while marks and actions change."""
    rng = random.Random(packets)
    met = 0
    while met < packets:
        base = policy()
        states = [*(marked(each, rng) for each in (base, base, denying(base))), trackable(base)]
        talks = [list(conversation(first)) for each in states for first in firsts(each, rng, 100)]
        rng.shuffle(talks)
        both.load(states[0])
        for begin in range(0, len(talks), TALKS):
            for turn in range(9):
                met += _meet_some(both, [talk[turn] for talk in talks[begin : begin + TALKS] if len(talk) > turn], rng)
                if rng.random() < 0.1:
                    both.load(rng.choice(states))
    assert both.passed > packets // 20


def _meet_some(both: Both, said: list[Packet], rng: random.Random) -> int:
    """Send a packet of each talk, those of each direction together; return how many were sent."""
    batches: dict[bool, list[Packet]] = {False: [], True: []}
    for packet in dict.fromkeys(said):
        odd = packet.protocol == TCP and rng.random() < 0.1
        sent = replace(packet, tcp_flags=rng.choice(FLAGS)) if odd else packet
        if rng.random() < 0.03:
            both.meet([error_about(sent, sent.destination)], quoted=sent)
        batches[owner(both.policy, sent.family, sent.source) is not None].append(sent)
    for batch in batches.values():
        if batch:
            both.meet(batch)
    return sum(map(len, batches.values()))


# -------------------------------------------------------------------------------------------- programs that take turns


def _marks_come_and_go(rng: random.Random) -> tuple[Policy, Policy]:
    return marked(policy(), rng), trackable(policy())


def _marks_change_rules(rng: random.Random) -> tuple[Policy, Policy]:
    return marked(policy(), rng), marked(denying(policy(), but_first=1), rng)


def _tracked_rules_change(rng: random.Random) -> tuple[Policy, Policy]:
    """Behind the last stateless rule: such a change is made in place."""
    rules = [replace(each, stateless=place < 2) for place, each in enumerate(SHOP)]
    return trackable(policy(rules)), trackable(policy([each for each in rules if each.id != "any"]))


@pytest.mark.parametrize("pair", [_marks_come_and_go, _marks_change_rules, _tracked_rules_change])
def test_nothing_passes_that_neither_policy_permits_while_they_take_turns(
    both: Both, pair: Callable[[random.Random], tuple[Policy, Policy]]
) -> None:
    """Whatever connections the others have opened meanwhile; some of those begin in the middle."""
    rng = random.Random(3)
    states = pair(rng)
    said = _said(states, rng)
    forbidden = _forbidden(states, said)
    batches = {
        side: [each for each in said if (owner(states[0], each.family, each.source) is not None) is (side == RIGHT)]
        for side in (LEFT, RIGHT)
    }
    assert len(forbidden) > 40
    assert all(forbidden & set(batch) for batch in batches.values())
    passed = 0

    def fire() -> int:
        nonlocal passed
        came = [
            packet
            for side, batch in batches.items()
            for packet, through in zip(batch, both.router.fire(batch, side), strict=True)
            if through
        ]
        passed += len(came)
        return sum(packet in forbidden for packet in came)

    programs = [program(both.real, each, 7 + turn) for turn, each in enumerate(states)]
    bring(both.real, programs[0])
    take_turns_while_nothing_passes(both.real, programs, fire)
    assert passed > 20, "what is permitted goes on meanwhile"


def _said(states: Sequence[Policy], rng: random.Random) -> list[Packet]:
    """Packets of conversations, of half of them without those that open."""
    found: dict[Packet, None] = {}
    for number, first in enumerate(firsts(states[0], rng, 90)):
        words = list(conversation(first))[:5]
        found.update(dict.fromkeys(words[1:] if number % 2 and first.protocol == TCP else words))
    return list(found)


def _forbidden(states: Sequence[Policy], said: Sequence[Packet]) -> set[Packet]:
    """Return what no policy permits, though every connection is known that any of them lets begin."""
    known = NONE
    for _ in range(2):
        for packet in said:
            for each in states:
                known = decide_tracked(each, packet, known).connections
    return {each for each in said if not any(decide_tracked(of, each, known).decision.permitted for of in states)}
