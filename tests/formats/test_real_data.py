"""Real configurations: each is read to a list or a precise report, and no list permits more than its original."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from formats import real_data
from formats.iptables_walk import Ruleset, World
from public_data import DATA

from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.registry import read, read_all, write
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Action, Direction, ReturnTraffic
from orchestrator.policy.oracle import ask, first_match, matches
from orchestrator.policy.protocols import TCP
from orchestrator.policy.tcpflags import TcpFlag

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="ACLFLOW_DATA names no folder of real configurations")
IPTABLES = real_data.iptables_files()
CISCO = real_data.cisco_files()
OTHERS = [path for path in real_data.every_file() if not {"iptables", "cisco", "classbench"} & set(path.parts)]
EVEN_SMALL = 400
"""Lines of a file that is walked for every packet; larger ones are walked for fewer."""


def generated(name: str) -> list[str]:
    text = real_data.DOCUMENT.read_text()
    return text.partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->")[0].splitlines()


def test_the_table_of_formats_in_the_document_is_current() -> None:
    assert generated("formats") == real_data.formats_table()


@needs_data
def test_the_results_in_the_document_are_current() -> None:
    for name, lines in real_data.data_parts().items():
        assert generated(name) == lines, name


@needs_data
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_lists_of_other_systems_are_a_fixed_point(path: Path) -> None:
    """What a reader makes of a file can be written in its format and read again as the same list."""
    one = real_data.outcome(path)
    for name, once in one.lists.items():
        exported = write(once.acl, one.format)
        again = read(exported.text, one.format)
        assert again.exact, (name, again.losses)
        assert exported.losses or again.acl == once.acl, name


@needs_data
@pytest.mark.parametrize("path", IPTABLES, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.parametrize("stateless", [False, True], ids=["strict", "stateless"])
def test_an_iptables_file_never_permits_more_than_it_did(path: Path, stateless: bool) -> None:
    """At corners of the rules that came out, in random worlds; with `stateless` in the world of the flags."""
    text = path.read_text()
    imported = read(text, "iptables", options=Options(stateless=stateless))
    walked = Ruleset.of(text)
    chain = imported_chain(imported.notes)
    dice = random.Random(7)
    rules = dice.sample(imported.acl.rules, min(40, len(imported.acl.rules)))
    packets = [
        packet
        for packet in corner_packets(rules, imported.acl.groups, overlaps=False)
        if packet.family is Family.IPV4 and packet.protocol not in NO_PACKETS[Family.IPV4]
    ]
    numbers = walked.numbers()
    for packet in dice.sample(packets, min(len(packets), 300 if len(numbers) < EVEN_SMALL else 25)):
        answered = packet.protocol == TCP and bool(packet.tcp_flags & (TcpFlag.ACK | TcpFlag.RST))
        state = "ESTABLISHED" if answered and not packet.later_fragment else "NEW"
        if not stateless:
            state = dice.choice(("NEW", "ESTABLISHED", "RELATED", "INVALID"))
        world = World(state, frozenset(dice.sample(numbers, len(numbers) // 2)))
        ours = ask(imported.acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).action is Action.PERMIT
        theirs = walked.permits(chain, packet, world)
        assert ours == theirs if imported.exact else ours <= theirs, (packet, world.state)


def imported_chain(notes: tuple[str, ...]) -> str:
    return next(note for note in notes if note.startswith("ingress is the chain")).rpartition(" ")[2]


@needs_data
@pytest.mark.parametrize("path", IPTABLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_iptables_file_is_a_fixed_point(path: Path) -> None:
    once = read(path.read_bytes(), "iptables", options=Options(stateless=True))
    exported = write(once.acl, "iptables")
    again = read(exported.text, "iptables")
    assert (exported.losses, again.losses) == ((), ())
    assert again.acl == once.acl


@needs_data
@pytest.mark.parametrize("path", CISCO, ids=lambda path: path.name)
def test_a_router_is_read_exactly_and_is_a_fixed_point(path: Path) -> None:
    for name, once in read_all(path.read_bytes(), name=path.name).items():
        assert once.exact, (name, once.losses)
        exported = write(once.acl, "cisco")
        again = read(exported.text, "cisco")
        assert (exported.losses, again.losses) == ((), ())
        assert again.acl == once.acl


@needs_data
@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k"])
def test_a_trace_agrees_with_its_set(name: str) -> None:
    """Every packet is matched by the rule it was made from; that rule is not always the first to match it."""
    folder = DATA / "classbench"
    rules = read((folder / f"{name}.rules").read_bytes(), "classbench").acl.rules
    trace = read_trace((folder / f"{name}.trace").read_text())
    assert len(trace) > 2000
    assert all(matches(rules[one.rule_number], one.packet, {}) for one in trace)
    first = [first_match(rules, one.packet, Direction.INGRESS, {}) for one in trace[:200]]
    named = [found is rules[one.rule_number] for found, one in zip(first, trace, strict=False)]
    assert 0.95 < sum(named) / len(named) < 1


@needs_data
@pytest.mark.parametrize("path", sorted((DATA / "classbench").glob("*.rules*")), ids=lambda path: path.name)
def test_every_set_is_read(path: Path) -> None:
    """All exactly but fw2, whose generator gave ports to ICMP and IGMP."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    imported = read(data, "classbench", name=path.name)
    assert len(imported.losses) == (630 if path.name == "fw2_1k.rules" else 0)
    assert len(imported.acl.rules) + len(imported.losses) == data.count(b"@")
