"""Lines of iptables-save that are easily taken for something else: each denies, in a chain that is open otherwise.

What iptables 1.8.9 makes of each line was looked up with it: `expected` is how it lists the line, in short.
"""

from __future__ import annotations

import pytest

from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Effect, Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId

EVERYTHING = "None 0.0.0.0/0>any 0-65535"


def table(*lines: str, chains: tuple[str, ...] = ()) -> str:
    head = ["*filter", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", *(f":{name} - [0:0]" for name in chains)]
    return "\n".join([*head, *lines, "COMMIT", ""])


def one(line: str, format_name: str = "iptables") -> Imported:
    return read(table(f"-A FORWARD {line}"), format_name, name="fw")


def said(found: Imported) -> list[str]:
    """The rules of ingress but for the policy."""
    return [
        f"{rule.action.value} {rule.protocol} {rule.source}>{rule.destination} "
        + ",".join(map(str, rule.destination_ports))
        for rule in found.acl.rules
        if rule.direction is Direction.INGRESS and not rule.id.endswith(".policy")
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('-m comment --comment "!" -j DROP', EVERYTHING),
        ('-m comment --comment "!" -p tcp -j DROP', "6 0.0.0.0/0>any 0-65535"),
        ('-m comment --comment "-j" -s 10.0.0.0/8 -j DROP', "None 10.0.0.0/8>any 0-65535"),
        ("-m comment --comment --dport=5 -j DROP", EVERYTHING),
        ("-m comment --comment - -j DROP", EVERYTHING),
        ("-p tcp --dport=22 -j DROP", "6 0.0.0.0/0>any 22"),
        ("--protocol=udp --source=10.0.0.0/8 --dport=53 --jump=DROP", "17 10.0.0.0/8>any 53"),
        ("-p tcp -j DROP -m tcp --dport 80", "6 0.0.0.0/0>any 80"),
        ("-p hopopt -j DROP", EVERYTHING),
        ("-p IP -j DROP", EVERYTHING),
        ("-p 0 -j DROP", EVERYTHING),
        ("-j REJECT -p tcp --reject-with tcp-reset", "6 0.0.0.0/0>any 0-65535"),
    ],
)
def test_what_can_be_read_is_read_as_iptables_reads_it(line: str, expected: str) -> None:
    found = one(line)
    assert (said(found), found.losses) == ([f"deny {expected}"], ())


def test_protocol_zero_of_ip6tables_is_every_protocol() -> None:
    assert said(one("-p hopopt -j DROP", "ip6tables")) == ["deny None ::/0>any 0-65535"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-m policy --dir in --pol ipsec --proto esp -j DROP", "IPsec cannot be seen"),
        ("-m policy --dir in --pol ipsec -m comment --comment x --proto esp -j DROP", "IPsec cannot be seen"),
        ('-m string --string "!" --algo bm -j DROP', "-m string: this match is not known"),
        ('-m string --algo bm --string "-j" -j DROP', "-m string: this match is not known"),
        ("-m set ! --match-set good src -j DROP", "the set is not in the file"),
        ("-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP", "connection states"),
        ("-m mark ! --mark 0x4000/0x4000 -j DROP", "packet marks"),
        ("-m addrtype ! --dst-type LOCAL --limit-iface-in -j DROP", "table of addresses"),
        ("-m limit --limit 1/s --jump=DROP", "rates are not counted"),
        ("--jum DROP", "'--jum' is not known here"),
        ("-jDROP", "'-jDROP' is not known here"),
        ('"-j" DROP', "'-j' is not known here"),
        ("-4 -j DROP", "'-4' is not known here"),
        ("-j DROP --tcp-option 5", "'--tcp-option' is not known here"),
        ("-j REJECT --reject-with tcp-reset --tcp-option 5", "'--tcp-option' is not known here"),
        ("-j TARPIT --tarpit", "the target TARPIT decides in a way"),
    ],
)
def test_a_deny_with_something_unknown_covers_all_that_it_may_cover(line: str, reason: str) -> None:
    found = one(line)
    assert said(found) == [f"deny {EVERYTHING}"]
    assert {loss.effect for loss in found.losses} == {Effect.WIDER}
    assert any(reason in loss.reason for loss in found.losses)


@pytest.mark.parametrize("target", ["ACCEPT", "inner"])
def test_a_match_behind_the_target_counts(target: str) -> None:
    """Of a chain with an option that is not known, nothing surely comes to the chain."""
    lines = (f"-A FORWARD -p tcp -j {target} --tcp-option 5", "-A inner -j ACCEPT", "-A FORWARD -j DROP")
    found = read(table(*lines, chains=("inner",)), "iptables")
    assert said(found) == [f"deny {EVERYTHING}"]
    assert [loss.effect for loss in found.losses] == [Effect.NARROWER]


def test_a_quoted_exclamation_mark_does_not_negate_what_follows() -> None:
    found = one('-m string --algo bm --string "!" -p tcp -j DROP')
    assert said(found) == ["deny 6 0.0.0.0/0>any 0-65535"]


def test_options_of_targets_that_decide_nothing_are_no_matches() -> None:
    lines = ('-A FORWARD -j LOG --log-prefix "x: " --log-level 4', "-A FORWARD -j SET --add-set seen src --exist")
    assert read(table(*lines), "iptables").losses == ()


def test_established_elsewhere_does_not_make_new_ones_readable() -> None:
    """Only by eth0 are established connections accepted: without that it is not known which the others are."""
    established = "-A web -m state --state ESTABLISHED -j ACCEPT"
    new = "-A FORWARD -p tcp --dport 80 -m state --state NEW -j ACCEPT"
    for jump, effects in (("-i eth0 -j web", {Effect.NARROWER}), ("-j web", set())):
        text = table(f"-A FORWARD {jump}", established, new, "-A FORWARD -j DROP", chains=("web",))
        found = read(text, "iptables", options=Options(stateless=True))
        assert {loss.effect for loss in found.losses} == effects
        assert ("permit 6 0.0.0.0/0>any 80" in said(found)) is (not effects)


def test_descriptions_are_cut_between_characters_to_what_iptables_keeps() -> None:
    """iptables cuts a comment after 255 bytes, through the middle of a character if need be."""
    exported = write(Acl((Rule(RuleId("a"), Action.PERMIT, description="ü" * 300),)), "iptables")
    comment = exported.text.split('"')[1]
    assert comment == f"[a] {'ü' * 125}"
    assert [*map(str, exported.notes)] == ["rule 1: the description is cut to fit 255 bytes"]
