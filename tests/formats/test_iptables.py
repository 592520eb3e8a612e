"""iptables-save: golden files, notes and losses, chains and options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.results import Effect, Imported, Interfaces, Options
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ownership import check_ownership
from orchestrator.policy.tcpflags import FlagMatch

FIXTURES = Path(__file__).parent / "fixtures"
POLICIES = Path(__file__).parents[2] / "orchestrator" / "lab" / "policies"


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def table(*lines: str, forward: str = "DROP", output: str = "ACCEPT", more: str = "") -> str:
    head = ["*filter", ":INPUT ACCEPT [0:0]", f":FORWARD {forward} [0:0]", f":OUTPUT {output} [0:0]", *more.split("\n")]
    return "\n".join([*filter(None, head), *lines, "COMMIT", ""])


def one(line: str, **options: bool) -> Imported:
    return read(table(f"-A FORWARD {line}"), "iptables", name="fw", options=Options(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["web.iptables", "web.ip6tables"])
def test_the_examples_are_read_as_the_golden_files_say(name: str) -> None:
    imported = read(fixture(name), name=name)
    assert imported.losses == ()
    assert write(imported.acl, "native").text == fixture(f"{name}.json")
    check_ownership(imported.acl, (Prefix.parse("203.0.113.0/25"), Prefix.parse("2001:db8:200::/48")))


def test_the_example_is_written_for_cisco_as_the_golden_file_says() -> None:
    assert write(read(fixture("web.iptables")).acl, "cisco").text == fixture("web.as.cisco")


def test_the_notes_of_the_example() -> None:
    assert read(fixture("web.iptables")).notes == (
        "ingress is the chain FORWARD",
        "egress is the chain OUTPUT",
        "line 30: REJECT becomes deny: nothing is sent back",
    )


def test_the_shipped_list_is_read_exactly() -> None:
    imported = read((POLICIES / "bank.iptables").read_bytes(), name="bank.iptables")
    assert imported.exact
    assert len(imported.acl.rules) > 5


def test_ids_come_from_comments_or_from_what_a_rule_says() -> None:
    text = table(
        '-A FORWARD -p tcp -m tcp --dport 22 -m comment --comment "[ssh] of all" -j ACCEPT',
        "-A FORWARD -p udp -j ACCEPT",
    )
    ssh, udp, policy = read(text, "iptables").acl.rules
    assert (ssh.id, ssh.description, policy.id) == ("ssh", "of all", "OUTPUT.policy")
    moved = read(table("-A FORWARD -p gre -j DROP", "-A FORWARD -p udp -j ACCEPT"), "iptables").acl.rules
    assert moved[1].id == udp.id
    assert udp.id.startswith("FORWARD-")


WAYS = """*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
-A FORWARD -i lo -j ACCEPT
-A FORWARD -i eth0 -o tun+ -p tcp --dport 1 -j ACCEPT
-A FORWARD -i eth+ -p tcp --dport 2 -j ACCEPT
-A FORWARD ! -i eth0 -p tcp --dport 3 -j ACCEPT
-A FORWARD ! -i wan -p tcp --dport 4 -j ACCEPT
-A FORWARD -o eth1 -p tcp --dport 5 -j DROP
COMMIT
"""


def test_lines_of_interfaces_are_read_where_it_is_said_which_packets_take() -> None:
    """By eth0 in and tun0 out; where nothing is said of a way, a permit that asks for it is left out."""

    def permitted(**ways: str) -> tuple[list[int], bool]:
        found = read(WAYS, "iptables", options=Options(interfaces=Interfaces(**ways)))
        ingress = [rule for rule in found.acl.rules if rule.direction is Direction.INGRESS]
        return [rule.destination_ports[0].low for rule in ingress], found.exact

    assert permitted(arrives="eth0", leaves="tun0") == ([1, 2, 4], True)
    assert permitted(arrives="eth0", leaves="eth1") == ([2, 4, 5], True)
    assert permitted(arrives="eth0") == ([2, 4, 5], False)  # a deny that may hold is kept, and covers more
    assert permitted() == ([5], False)
    assert permitted(arrives="lo", leaves="x")[0][0] == 0
    notes = read(WAYS, "iptables", options=Options(interfaces=Interfaces("eth0", "tun0"))).notes
    assert "every packet is taken to come in by the interface eth0" in notes


def test_a_rule_said_twice_gets_two_ids() -> None:
    rules = read(table(*["-A FORWARD -p udp -j ACCEPT"] * 3), "iptables").acl.rules
    assert [rule.id.partition(".")[2] for rule in rules] == ["", "2", "3", "policy"]


@pytest.mark.parametrize(
    ("line", "effect", "reason"),
    [
        ("-i eth0 -j ACCEPT", Effect.NARROWER, "the interface a packet takes cannot be seen here; --in-interface"),
        ("-m limit --limit 3/min -j ACCEPT", Effect.NARROWER, "-m limit: rates are not counted here"),
        (
            "-m mac ! --mac-source 0:1:2:3:4:5 -j ACCEPT",
            Effect.NARROWER,
            "-m mac: MAC addresses are not looked",
        ),
        ("-m shiny --new thing -j ACCEPT", Effect.NARROWER, "-m shiny: this match is not known here"),
        ("--brand-new 5 -j ACCEPT", Effect.NARROWER, "'--brand-new' is not known here"),
        ("-m state --state NEW -j ACCEPT", Effect.NARROWER, "connections are not tracked here"),
        ("-s host.example -j ACCEPT", Effect.NARROWER, "'host.example' is not an address"),
        ("-p 33 -m dccp --dport 5 -j ACCEPT", Effect.NARROWER, "-m dccp: this match is not known here"),
        ("-p udplite -m multiport --dports 5 -j ACCEPT", Effect.NARROWER, "header cannot be looked into here"),
        ("-p tcp -m tcp --dport 99999 -j ACCEPT", Effect.NARROWER, "'99999' is not a port"),
        ("-p icmp -m icmp --icmp-type odd -j ACCEPT", Effect.NARROWER, "'odd' is not an ICMP type or code"),
    ],
)
def test_what_cannot_be_seen_is_a_loss(line: str, effect: Effect, reason: str) -> None:
    (loss,) = one(line).losses
    assert (loss.file, loss.line, loss.effect, loss.text) == ("fw", 5, effect, f"-A FORWARD {line}")
    assert reason in loss.reason
    denied = one(line.replace("ACCEPT", "DROP"))
    assert denied.exact, "nothing further down permits what the deny takes along"
    wider = read(table(f"-A FORWARD {line.replace('ACCEPT', 'DROP')}", forward="ACCEPT"), "iptables").losses
    assert {loss.effect for loss in wider} == {Effect.WIDER}


def test_a_loss_of_a_jump_says_how_much_hangs_on_it() -> None:
    text = table("-A FORWARD -i eth0 -j A", "-A A -p tcp -j ACCEPT", "-A A -p udp -j ACCEPT", more=":A - [0:0]")
    (loss,) = read(text, "iptables").losses
    assert str(loss) == (
        "-:6: permit left out (narrower): the interface a packet takes cannot be seen here; --in-interface and "
        "--out-interface tell it (2 rules hang on it): "
        "-A FORWARD -i eth0 -j A"
    )


def test_drops_in_other_tables_are_losses() -> None:
    text = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -s 10.0.0.0/8 -j DROP\nCOMMIT\n" + table()
    (loss,) = read(text, "iptables").losses
    assert (loss.line, loss.effect, loss.reason) == (3, Effect.REFUSED, "a drop in the table raw is not carried over")
    assert read(text.replace("-j", "--jump"), "iptables").losses[0].line == 3


def test_log_marks_the_rule_it_stands_before() -> None:
    imported = read(table("-A FORWARD -p tcp -m limit --limit 1/s -j LOG", "-A FORWARD -p tcp -j DROP"), "iptables")
    assert [rule.log for rule in imported.acl.rules] == [True, False]
    alone = read(table("-A FORWARD -p udp -j LOG", "-A FORWARD -p tcp -j DROP"), "iptables")
    assert not any(rule.log for rule in alone.acl.rules)
    assert "line 5: LOG by itself logs nothing here: a rule that decides can log" in alone.notes


def test_stateless_reads_states_and_says_what_it_made_of_them() -> None:
    text = table(
        "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A FORWARD -m conntrack --ctstate INVALID -j DROP",
        "-A FORWARD -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT",
    )
    assert [loss.line for loss in read(text, "iptables").losses] == [5, 6, 7]
    imported = read(text, "iptables", options=Options(stateless=True))
    assert imported.exact
    replies, ssh, _ = imported.acl.rules
    assert replies.established
    assert str(ssh.destination_ports[0]) == "22"
    assert imported.notes[1:4] == (
        "line 5: established is told by TCP's ACK and RST flags; replies of no other protocol",
        "line 6: left out: which packets belong to no valid connection is not known here",
        "line 7: NEW is ignored: established connections were accepted before",
    )


def test_chains_are_chosen_by_what_they_decide_or_by_name() -> None:
    text = table("-A INPUT -p tcp -j ACCEPT", "-A FORWARD -j LOG")
    assert "ingress is the chain INPUT" in read(text, "iptables").notes
    both = table("-A INPUT -p tcp -j ACCEPT", "-A FORWARD -p udp -j ACCEPT")
    assert "the chain INPUT (1 lines) is left out: choose it with its name" in read(both, "iptables").notes
    chosen = read(both, "iptables", options=Options(chains=("INPUT", "FORWARD=egress"))).acl.rules
    assert [(rule.direction, rule.protocol) for rule in chosen] == [
        (Direction.INGRESS, 6),
        (Direction.INGRESS, None),
        (Direction.EGRESS, 17),
    ]
    with pytest.raises(BadInput, match="there is no chain NOBODY; there are INPUT, FORWARD, OUTPUT"):
        read(both, "iptables", options=Options(chains=("NOBODY",)))
    with pytest.raises(BadInput, match="both INPUT and FORWARD are chosen for ingress"):
        read(both, "iptables", options=Options(chains=("INPUT", "FORWARD")))


def test_every_rule_names_its_ip_version_and_policies_are_rules() -> None:
    acl = read(table("-A FORWARD -p tcp -j DROP", forward="ACCEPT"), "iptables").acl
    assert acl.ingress_default is acl.egress_default is Action.DENY
    assert [(rule.id, str(rule.source), str(rule.destination)) for rule in acl.rules[1:]] == [
        ("FORWARD.policy", "0.0.0.0/0", "any"),
        ("OUTPUT.policy", "any", "0.0.0.0/0"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no .filter table"),
        ("*nat\nCOMMIT\n", "there is no .filter table"),
        ("-A FORWARD -j DROP\n", "line 1: this is no line of iptables-save"),
        ("*filter\n:FORWARD DROP [0:0]\n", "line 1: .filter has no COMMIT: is the file cut off"),
        ("*filter\n:FORWARD MAYBE [0:0]\nCOMMIT\n", "line 2: .* is no chain"),
        (
            "*filter\n:FORWARD DROP [0:0]\niptables -A FORWARD -j DROP\nCOMMIT\n",
            "line 3: .* is no line of iptables-save",
        ),
        ("*filter\nCOMMIT\n*filter\nCOMMIT\n", "line 3: a second .filter table; the first is on line 1"),
        ("*filter\n:A - [0:0]\n-N A\nCOMMIT\n", "line 3: '-N A' declares no new chain"),
        ("*filter\n-A INPUT -j DROP\n-I INPUT 3 -j ACCEPT\nCOMMIT\n", "line 3: there is no place 3 in INPUT"),
        ("*filter\n-I INPUT 0 -j ACCEPT\nCOMMIT\n", "line 2: there is no place 0 in INPUT"),
        ("*filter\n:A - [0:0]\n-P A DROP\nCOMMIT\n", "line 3: '-P A DROP' is no policy"),
        ("*filter\n-P INPUT\nCOMMIT\n", "line 2: '-P INPUT' is no policy"),
        ("*filter\n:A - [0:0]\nCOMMIT\n", "none of the chains FORWARD, INPUT and OUTPUT"),
        ('*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m comment --comment "x -j DROP\nCOMMIT\n', "line 3: a quote"),
    ],
)
def test_texts_that_are_no_iptables_save(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(text, "iptables")


def test_what_cannot_be_written_is_left_out_or_widened_and_reported() -> None:
    flags = {"protocol": 6, "tcp_flags": FlagMatch(0x80, 0x80)}
    acl = Acl((Rule(RuleId("p"), Action.PERMIT, **flags), Rule(RuleId("d"), Action.DENY, **flags)))  # type: ignore[arg-type]
    exported = write(acl, "iptables")
    assert [(loss.line, loss.text, loss.effect) for loss in exported.losses] == [
        (1, "p", Effect.NARROWER),
        (2, "d", Effect.WIDER),
    ]
    assert '-A FORWARD -p tcp -m comment --comment "[d]" -j DROP' in exported.text
    assert '"[p]"' not in exported.text


def test_texts_with_quotes_and_counters() -> None:
    text = table('[3:180] -A FORWARD -p udp -m comment --comment "say \\"no\\" -j ACCEPT" -j DROP')
    rule = read(text, "iptables").acl.rules[0]
    assert (rule.action, rule.description) == (Action.DENY, 'say "no" -j ACCEPT')
    again = read(write(Acl((rule,)), "iptables").text, "iptables").acl.rules[0]
    assert again == rule


BY_HAND = """*filter
-P INPUT DROP
:web - DROP [0:0]
-A INPUT -p tcp --dport 80 -j web
-A web -j LOG --log-prefix="in: "
-A web -s 10.0.0.0/8 -j ACCEPT
-I INPUT -s 192.0.2.66 -j DROP
-I INPUT 2 -p tcp --dport 22 -j ACCEPT
-N ping
--append ping -j ACCEPT
--insert INPUT 4 -p icmp -j ping
COMMIT
"""
SAVED = """*filter
:INPUT DROP [0:0]
:web - [0:0]
:ping - [0:0]
-A INPUT -s 192.0.2.66/32 -j DROP
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m tcp --dport 80 -j web
-A INPUT -p icmp -j ping
-A web -j LOG --log-prefix "in: "
-A web -s 10.0.0.0/8 -j ACCEPT
-A ping -j ACCEPT
COMMIT
"""


def test_commands_of_files_written_by_hand_are_read_as_iptables_restore_takes_them() -> None:
    by_hand = read(BY_HAND, "iptables")
    assert by_hand.exact
    assert by_hand.acl == read(SAVED, "iptables").acl


def test_a_chain_that_is_declared_again_is_empty() -> None:
    text = table("-A FORWARD -p tcp -j ACCEPT", ":FORWARD DROP [0:0]", "-A FORWARD -p udp -j ACCEPT")
    assert [rule.protocol for rule in read(text, "iptables").acl.rules if rule.direction is Direction.INGRESS] == [17]


@pytest.mark.parametrize("head", ["", ":INPUT - [0:0]\n"])
def test_a_policy_that_the_file_does_not_give_is_a_loss_where_a_packet_meets_it(head: str) -> None:
    open_end = read(f"*filter\n{head}-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT\n", "iptables")
    assert [(loss.line, loss.effect) for loss in open_end.losses] == [(2, Effect.WIDER)]
    assert "the policy of the chain INPUT is not in the file" in open_end.losses[0].reason
    assert [rule.action for rule in open_end.acl.rules] == [Action.PERMIT, Action.DENY]
    left = read(f"*filter\n{head}-A INPUT -p udp -j RETURN\n-A INPUT -j ACCEPT\nCOMMIT\n", "iptables")
    assert [rule.action for rule in left.acl.rules[:2]] == [Action.DENY, Action.PERMIT]
    assert not left.exact
    assert read(f"*filter\n{head}-A INPUT -p tcp -j ACCEPT\n-A INPUT -j REJECT\nCOMMIT\n", "iptables").exact


@pytest.mark.skipif(shutil.which("iptables-legacy-restore") is None, reason="iptables is not installed")
@pytest.mark.system
def test_real_iptables_makes_the_same_of_a_file_written_by_hand() -> None:
    for variant in ("legacy", "nft"):
        command = ["unshare", "-n", "sh", "-c", f"iptables-{variant}-restore && iptables-{variant}-save"]
        done = subprocess.run(command, input=BY_HAND, text=True, capture_output=True, check=True)
        chosen = Options(chains=("INPUT",))
        assert read(done.stdout, "iptables", options=chosen).acl == read(SAVED, "iptables", options=chosen).acl


@pytest.mark.skipif(shutil.which("iptables-legacy-restore") is None, reason="iptables is not installed")
@pytest.mark.system
@pytest.mark.parametrize("name", ["web.iptables", "web.ip6tables", "web.cisco"])
def test_real_iptables_takes_what_is_written(name: str) -> None:
    options = Options(lists=("shop-in", "shop-in6", "shop-out=egress")) if name == "web.cisco" else Options()
    acl = read(fixture(name), options=options).acl
    for program in ("iptables", "ip6tables"):
        text = write(acl, program).text
        for variant in ("legacy", "nft"):
            command = ["unshare", "-n", f"{program}-{variant}-restore", "--test"]
            done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr


def test_ipv6_rules_of_a_protocol_keep_later_fragments_out() -> None:
    """ip6tables finds the protocol of later fragments; a bare `-m tcp` fails for them, as the rule does."""
    acl = Acl((Rule(RuleId("t"), Action.PERMIT, protocol=6), Rule(RuleId("a"), Action.PERMIT)))
    assert '-A FORWARD -p tcp -m tcp -m comment --comment "[t]" -j ACCEPT' in write(acl, "ip6tables").text
    assert '-A FORWARD -p tcp -m comment --comment "[t]" -j ACCEPT' in write(acl, "iptables").text


def test_ipv6_rules_of_a_protocol_without_ports_are_two_lines_and_one_rule_again() -> None:
    """One line for packets that are no fragments, one for first fragments; either alone says something else."""
    rule = Rule(RuleId("e"), Action.PERMIT, protocol=50, source=Addresses((Prefix.parse("::/0"),)), log=True)
    text = write(Acl((rule,)), "ip6tables").text
    kinds = ("-m ipv6header ! --header ipv6-frag --soft", "-m frag --fragfirst")
    lines = [
        f'-A FORWARD -p 50 {kind} -m comment --comment "[e]" -j {to}' for to in ("LOG", "ACCEPT") for kind in kinds
    ]
    assert [line for line in text.splitlines() if line.startswith("-A FORWARD")] == lines
    assert read(text, "ip6tables").acl.rules[0] == rule
    for alone in lines[2:]:
        assert not read(text.replace(f"{alone}\n", ""), "ip6tables").exact
