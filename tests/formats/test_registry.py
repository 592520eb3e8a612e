"""The table of formats: guessing, limits, and that no text at all gets past the errors of ours."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.formats.iptables import chains as chains_module
from orchestrator.policy.formats.registry import FORMATS, guess, read, read_all, write
from orchestrator.policy.formats.results import Imported, Options
from orchestrator.policy.model import Acl

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
    with pytest.raises(BadInput, match="'word' is not a format: native, ip6tables, iptables, classbench, cisco"):
        read("x", "word")
    with pytest.raises(BadInput, match="classbench can only be read; these can be written: native"):
        write(Acl(), "classbench")


def test_places_name_the_file_and_the_line() -> None:
    with pytest.raises(BadInput) as caught:
        read("*filter\n:FORWARD DROP [0:0]\n-A NOBODY -j ACCEPT\nCOMMIT\n", name="fw.v4")
    assert str(caught.value) == "fw.v4, line 3: the chain NOBODY is not declared"


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_too_large_is_refused_at_once(name: str) -> None:
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        read(b"x" * 1001, name, name="big", options=Options(max_bytes=1000))


@pytest.mark.parametrize("name", [*FORMATS, None])
def test_five_megabytes_of_noise(name: str | None) -> None:
    dice = random.Random(3)
    noise = dice.randbytes(5_000_000)
    letters = bytes(32 + byte % 95 if byte % 97 else 10 for byte in noise)
    start = time.perf_counter()
    for data in (noise, letters, letters.replace(b"\n", b" ")):
        with pytest.raises(BadInput) as caught:
            read(data, name, name="noise")
        assert str(caught.value).startswith("noise")
        assert len(str(caught.value)) < 600
    assert time.perf_counter() - start < 10


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


LINES = sorted({line for text in SAMPLES.values() for line in text.split("\n")})


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A real text with lines repeated, cut, swapped, and characters changed."""
    lines = draw(st.sampled_from(sorted(SAMPLES.values()))).split("\n")
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        words = lines[place].split(" ")
        change = draw(st.sampled_from(("drop", "repeat", "other", "word", "noise", "cut")))
        if change == "drop":
            words = []
        elif change == "repeat":
            words = [*words, *words]
        elif change == "other":
            words = draw(st.sampled_from(LINES)).split(" ")
        elif change == "word":
            words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(LINES)).split(" ")[-1]
        elif change == "noise":
            words[draw(st.integers(0, len(words) - 1))] = draw(st.text(max_size=8))
        else:
            words = words[: draw(st.integers(0, len(words)))]
        lines[place] = " ".join(words)
    return "\n".join(lines)


def attempt(text: str | bytes, name: str | None, options: Options) -> None:
    """Read; what comes out can be written, and is read again from what was written."""
    refusal = "fuzz"
    imported = Imported(Acl())
    try:
        imported = read(text, name, name="fuzz", options=options)
    except AclflowError as error:
        refusal = str(error)
    assert refusal.startswith("fuzz")
    for writer in ("native", "iptables", "ip6tables", "cisco"):
        exported = write(imported.acl, writer)
        again = read(exported.text, writer)
        if writer == "native":
            assert again.acl == imported.acl


slow = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(mangled(), st.sampled_from([None, "native", "iptables", "ip6tables", "cisco", "classbench"]), st.booleans())
def test_mangled_texts_are_lists_or_errors_of_ours(text: str, name: str | None, stateless: bool) -> None:
    attempt(text, name, Options(stateless=stateless))
    if name in (None, "cisco"):
        attempt(text, name, Options(acls=("shop-in", "shop-out=egress")))


@slow
@given(st.text(max_size=200) | st.binary(max_size=200), st.sampled_from([None, *FORMATS]))
def test_random_texts_are_errors_of_ours(text: str | bytes, name: str | None) -> None:
    attempt(text, name, Options())


@slow
@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 5000))
def test_texts_that_break_off(name: str, length: int) -> None:
    attempt(SAMPLES[name][:length], None, Options())


def test_all_lists_of_a_configuration() -> None:
    found = read_all(SAMPLES["web.cisco"], name="web.cisco")
    assert {name: len(imported.acl.rules) for name, imported in found.items()} == {
        "shop-in": 14,
        "shop-in6": 7,
        "shop-out": 3,
    }
