"""Small filter tables that random texts rarely make, against the same independent walk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from formats.iptables_texts import CHAINS, is_established, packets_at, permits
from formats.iptables_walk import Ruleset, World

from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import DEFAULT_OPTIONS, Imported, Options
from orchestrator.policy.model import Packet


def table(*lines: str, policy: str = "DROP") -> str:
    chains = [f":{name} - [0:0]" for name in CHAINS[1:]]
    return "\n".join(["*filter", f":FORWARD {policy} [0:0]", ":OUTPUT ACCEPT [0:0]", *chains, *lines, "COMMIT", ""])


STORIES = {
    "a doubtful return before a permit": table("-A FORWARD -j A", "-A A -i eth0 -j RETURN", "-A A -j ACCEPT"),
    "a doubtful return before a deny": table(
        "-A FORWARD -j A", "-A A -i eth0 -s 10.0.0.0/8 -j RETURN", "-A A -j DROP", policy="ACCEPT"
    ),
    "a doubtful return, then a sure one": table(
        "-A FORWARD -j A", "-A A -i eth0 -j RETURN", "-A A -p tcp -j RETURN", "-A A -j DROP", policy="ACCEPT"
    ),
    "return in the kernel's own chain": table("-A FORWARD -p tcp -j RETURN", "-A FORWARD -j ACCEPT"),
    "goto out of the kernel's own chain": table(
        "-A FORWARD -p tcp -g A", "-A FORWARD -j ACCEPT", "-A A -s 10.0.0.0/8 -j ACCEPT"
    ),
    "goto out of an inner chain": table(
        "-A FORWARD -j A",
        "-A FORWARD -p udp -j ACCEPT",
        "-A A -p udp -g B",
        "-A A -j DROP",
        "-A B -s 10.0.0.0/8 -j DROP",
    ),
    "jumps behind one another": table(
        "-A FORWARD -p tcp -j A",
        "-A A -s 10.0.0.0/8 -j B",
        "-A A -j DROP",
        "-A B ! -d 10.1.0.0/16 -j RETURN",
        "-A B -p tcp -m tcp --dport 22 -j C",
        "-A B -j ACCEPT",
        "-A C ! -s 10.1.2.3 -j RETURN",
        "-A C -j DROP",
    ),
    "not one code": table("-A FORWARD -p icmp -m icmp ! --icmp-type 3/4 -j ACCEPT"),
    "no code at all": table("-A FORWARD -p icmp -m icmp ! --icmp-type 3 -j ACCEPT"),
    "whole packets of udp": table("-A FORWARD -p udp -m udp -j ACCEPT"),
    "whole packets of icmp": table(
        "-A FORWARD -p icmp -m icmp --icmp-type any -j ACCEPT", "-A FORWARD -s 10.0.0.0/8 -j ACCEPT"
    ),
    "whole packets of anything": table("-A FORWARD ! -f -j ACCEPT"),
    "whole packets denied": table("-A FORWARD ! -f -s 10.0.0.0/8 -j DROP", "-A FORWARD -j ACCEPT"),
    "neither port": table("-A FORWARD -p tcp -m multiport ! --ports 22,80 -j ACCEPT"),
    "either port": table("-A FORWARD -p tcp -m multiport --ports 22,80 -j ACCEPT"),
    "one comment, two rules": table(
        '-A FORWARD -s 10.1.2.3/32 -d 10.1.0.0/16 -m comment --comment "[x] both" -j ACCEPT',
        '-A FORWARD -s 192.0.2.0/24 -d 10.1.2.3/32 -m comment --comment "[x] both" -j ACCEPT',
    ),
    "one comment, one rule": table(
        '-A FORWARD -s 10.1.2.3/32 -m comment --comment "[x] both" -j ACCEPT',
        '-A FORWARD -s 192.0.2.0/24 -m comment --comment "[x] both" -j ACCEPT',
    ),
    "an unknown target": table("-A FORWARD -s 10.0.0.0/8 -j NFQUEUE --queue-num 1", "-A FORWARD -j ACCEPT"),
    "counting only": table("-A FORWARD -s 10.0.0.0/8", "-A FORWARD -p udp -j ACCEPT"),
    "the old spelling": table(
        "-A FORWARD -s ! 10.0.0.0/8 -p ! udp -j ACCEPT", "-A FORWARD -p tcp -m tcp --dport ! 22 -j ACCEPT"
    ),
    "a mask with a gap": table("-A FORWARD -s 10.0.2.0/255.0.255.0 -j ACCEPT"),
}
STORIES6 = {
    "a protocol is denied": table("-A FORWARD -p tcp -j DROP", "-A FORWARD -j ACCEPT"),
    "a protocol is permitted": table("-A FORWARD -p ipv6-icmp -j ACCEPT"),
    "a protocol returns": table("-A FORWARD -j A", "-A A -p tcp -j RETURN", "-A A -j ACCEPT"),
    "every protocol but one": table("-A FORWARD ! -p udp -j DROP", policy="ACCEPT"),
}
STATELESS_STORIES = {
    "established first": table(
        "-A FORWARD -m state --state ESTABLISHED -j ACCEPT", "-A FORWARD -m state --state NEW -p tcp -j ACCEPT"
    ),
    "established last": table("-A FORWARD -m state --state NEW -p tcp -j DROP", "-A FORWARD -j ACCEPT"),
    "established returns": table("-A FORWARD -j A", "-A A -m state --state ESTABLISHED -j RETURN", "-A A -j ACCEPT"),
    "established is denied": table("-A FORWARD -m state --state ESTABLISHED -j DROP", "-A FORWARD -j ACCEPT"),
    "invalid is dropped": table("-A FORWARD -m conntrack --ctstate INVALID -j DROP", "-A FORWARD -p udp -j ACCEPT"),
    "established of udp": table("-A FORWARD -p udp -m state --state ESTABLISHED -j ACCEPT"),
    "not new": table(
        "-A FORWARD -p tcp -m state ! --state NEW -j ACCEPT", "-A FORWARD -p tcp -m state --state NEW -j ACCEPT"
    ),
}


def check(
    text: str, family: Family, worlds: Callable[[Packet], Iterable[World]], options: Options = DEFAULT_OPTIONS
) -> Imported:
    imported = read(text, "iptables" if family is Family.IPV4 else "ip6tables", options=options)
    walked = Ruleset.of(text)
    for packet in packets_at(imported, family, seed=1, least=400):
        ours = permits(imported, packet)
        answers = {walked.permits("FORWARD", packet, world) for world in worlds(packet)}
        exact = imported.exact and not (packet.later_fragment and family is Family.IPV6)
        assert answers == {ours} if exact else ours <= min(answers), (packet, answers, imported.losses)
    return imported


@pytest.mark.parametrize("story", STORIES)
def test_stories(story: str) -> None:
    numbers = Ruleset.of(STORIES[story]).numbers()
    some = (frozenset(), frozenset(numbers), frozenset(numbers[:1]), frozenset(numbers[1:]))
    check(STORIES[story], Family.IPV4, lambda packet: [World(holds=holds) for holds in some])


@pytest.mark.parametrize("story", STORIES6)
def test_stories_of_ipv6(story: str) -> None:
    check(STORIES6[story], Family.IPV6, lambda packet: [World(hidden_protocol=number) for number in (6, 17, 58)])


@pytest.mark.parametrize("story", STATELESS_STORIES)
def test_stories_of_states(story: str) -> None:
    def worlds(packet: Packet) -> list[World]:
        return [World("ESTABLISHED" if is_established(packet) else "NEW")]

    check(STATELESS_STORIES[story], Family.IPV4, worlds, Options(stateless=True))


@pytest.mark.parametrize(
    ("story", "exact"),
    [
        ("a doubtful return before a permit", False),
        ("return in the kernel's own chain", True),
        ("goto out of an inner chain", True),
        ("jumps behind one another", True),
        ("not one code", True),
        ("whole packets of udp", True),
        ("whole packets of icmp", False),
        ("whole packets of anything", True),
        ("whole packets denied", False),
        ("one comment, two rules", True),
        ("an unknown target", False),
        ("the old spelling", True),
        ("a mask with a gap", True),
    ],
)
def test_which_stories_are_read_exactly(story: str, exact: bool) -> None:
    assert read(STORIES[story], "iptables").exact is exact
