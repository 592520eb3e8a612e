"""The table of formats: guessing, limits, and lists of several in one text."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.formats import chains as chains_module
from orchestrator.policy.formats.registry import FORMATS, guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Exported, Loss, Options, account
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.protocols import TCP

FIXTURES = Path(__file__).parent / "fixtures"
SET = "@192.0.2.0/24\t198.51.100.7/32\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1200\n"
SAMPLES = {path.name: path.read_text() for path in sorted(FIXTURES.glob("web.*"))} | {"set.rules": SET}
EXPECTED = {
    ".cisco": "cisco",
    ".iptables": "iptables",
    ".ip6tables": "ip6tables",
    ".json": "native",
    ".rules": "classbench",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_format_is_told_by_sight(name: str) -> None:
    assert guess(SAMPLES[name], "no-name").name == EXPECTED.get(Path(name).suffix, Path(name).suffix[1:])


def test_the_format_is_told_by_name_where_sight_fails() -> None:
    assert guess("# nothing yet\n", "empty.iptables").name == "iptables"
    with pytest.raises(BadInput, match="the format cannot be told"):
        guess("hello\n", "notes.txt")


def test_what_cannot_be_read_or_written_says_what_can() -> None:
    with pytest.raises(BadInput, match=r"'word' is not a format: .*iptables, classbench"):
        read("x", "word")
    with pytest.raises(BadInput, match=r"classbench can only be read; these can be written: .*native"):
        write(Acl(), "classbench")


def test_places_name_the_file_and_the_line() -> None:
    with pytest.raises(BadInput) as caught:
        read("*filter\n:FORWARD DROP [0:0]\n-A NOBODY -j ACCEPT\nCOMMIT\n", name="fw.v4")
    assert str(caught.value) == "fw.v4, line 3: the chain NOBODY is not declared"


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_too_large_is_refused_at_once(name: str) -> None:
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        read(b"x" * 1001, name, name="big", options=Options(max_bytes=1000))


def test_rules_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains that jump to one another twice over double at every level."""
    monkeypatch.setattr(chains_module, "MOST_STEPS", 50_000)
    chains = [f":C{n} - [0:0]" for n in range(40)]
    jumps = [f"-A C{n} -j C{n + 1}" for n in range(39) for _ in range(2)]
    text = "\n".join(
        ["*filter", ":FORWARD DROP [0:0]", *chains, "-A FORWARD -j C0", *jumps, "-A C39 -j ACCEPT", "COMMIT"]
    )
    with pytest.raises(TooLarge, match="jump to one another too often"):
        read(text, "iptables")
    with pytest.raises(TooLarge, match="more than 10 rules"):
        read(SET * 11, options=Options(max_rules=10))


def test_chains_that_jump_deep_or_in_a_circle() -> None:
    def table(*lines: str) -> str:
        chains = [f":C{n} - [0:0]" for n in range(3000)]
        return "\n".join(["*filter", ":FORWARD DROP [0:0]", *chains, "-A FORWARD -j C0", *lines, "COMMIT"])

    with pytest.raises(TooLarge, match="more than 200 levels"):
        read(table(*(f"-A C{n} -j C{n + 1}" for n in range(2999))), "iptables")
    with pytest.raises(BadInput, match="line 3006: the chains jump in a circle: C0 -> C1 -> C2 -> C0"):
        read(table("-A C0 -j C1", "-A C1 -j C2", "-A C2 -p tcp -j C0"), "iptables")
    with pytest.raises(BadInput, match="no rule can jump there"):
        read(
            table("-A C0 -j INPUT").replace(":FORWARD DROP [0:0]", ":FORWARD DROP [0:0]\n:INPUT ACCEPT [0:0]"),
            "iptables",
        )


def test_all_lists_of_a_configuration() -> None:
    found = read_all(SAMPLES["web.cisco"], name="web.cisco")
    assert {name: len(imported.acl.rules) for name, imported in found.items()} == {
        "shop-in": 14,
        "shop-in6": 7,
        "shop-out": 3,
    }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_file_is_read_in_the_encodings_that_machines_write(encoding: str) -> None:
    """Windows writes what a command prints in UTF-16, with a mark in front."""
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    assert read(mark + SET.encode(encoding), name="set.rules").acl == read(SET, name="set.rules").acl


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (gzip.compress(SET.encode(), mtime=0), "it is compressed"),
        (b"\xff\xfe" + SET.encode("utf-16-le") + b"\x00", "begins as UTF-16"),
        (SET.encode() + b"\xff", "line 2: the byte 0xff is not UTF-8"),
    ],
    ids=["gzip", "half of UTF-16", "no UTF-8"],
)
def test_what_is_no_text_says_what_it_is(octets: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read(octets, name="set.rules")


@pytest.mark.parametrize("name", [name for name, found in FORMATS.items() if found.write is not None])
def test_a_stateless_rule_is_written_or_a_note_says_that_it_is_not(name: str) -> None:
    side = Addresses((Prefix.parse("2001:db8::/32" if name == "ip6tables" else "192.0.2.0/24"),))
    web = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, source=side, stateless=True)
    plain, marked = (write(Acl((rule,)), name) for rule in (replace(web, stateless=False), web))
    if name.startswith("native"):
        assert read(marked.text, format_name=name).acl.rules == (web,)
        assert not marked.notes
    else:
        assert marked.text == plain.text
        assert any(str(note).startswith("rule 1: `stateless` is not written") for note in marked.notes), marked.notes


def test_an_account_counts_places() -> None:
    loss = Loss("", 1, "web", "there are no TCP flags", Effect.NARROWER)
    assert account("web.txt", Exported("", (loss,))).startswith("web.txt: 1 place could not")
    assert account("web.txt", Exported("", (loss, loss))).startswith("web.txt: 2 places could not")
