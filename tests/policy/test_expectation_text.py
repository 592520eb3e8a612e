"""The grammar of expectations, and that each error names file and line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.expectations import ANYTHING, Place, Service, Setting, Target, judge
from orchestrator.policy.expectationtext import MOST_EXPECTATIONS, read_expectations, read_sentence
from orchestrator.policy.model import Acl
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP

OWN = (Prefix.parse("198.51.100.0/24"),)
HTTPS = Service(TCP, (PortRange(443, 443),))

LINES = """
# the shop
own is 198.51.100.0/24 and 2001:db8::/48
alice is 192.0.2.10, 2001:db8:f::10   # at home
web1 is 198.51.100.10
Alice-2 is 192.0.2.11
alice reaches web1:443.
NOBODY REACHES web1:22 FROM outside
"""
YAML = """
own: [198.51.100.0/24, 2001:db8::/48]
names:
  alice: [192.0.2.10, "2001:db8:f::10"]
  web1: 198.51.100.10
  Alice-2: 192.0.2.11
expect:
- alice reaches web1:443
- "NOBODY REACHES web1:22 FROM outside"
"""


def test_lines_and_yaml_say_the_same() -> None:
    lines, yaml = read_expectations(LINES, "a"), read_expectations(YAML, "a")
    assert (lines.own, lines.names) == (yaml.own, yaml.names)
    assert [each.text for each in lines.sentences] == [each.text for each in yaml.sentences]
    assert [each.place for each in lines.sentences] == ["a, line 7", "a, line 8"]
    assert [each.place for each in yaml.sentences] == ["a, line 8", "a, line 9"]


@pytest.mark.parametrize(
    ("text", "reaches", "source", "target"),
    [
        ("alice reaches web1:443", True, Place(("alice",)), Target(Place(("web1",)), HTTPS)),
        ("alice can reach web1:443", True, Place(("alice",)), Target(Place(("web1",)), HTTPS)),
        ("a, b and c reach web1:443", True, Place(("a", "b", "c")), Target(Place(("web1",)), HTTPS)),
        ("alice does not reach web1", False, Place(("alice",)), Target(Place(("web1",)), ANYTHING)),
        ("alice cannot reach web1:443", False, Place(("alice",)), Target(Place(("web1",)), HTTPS)),
        ("nobody reaches @db:443 from outside", False, Place((), outside=True), Target(Place(("@db",)), HTTPS)),
        ("everybody reaches web1 with ping", True, Place(), Target(Place(("web1",)), Service(ping=True))),
        ("everybody reaches web1 with icmp", True, Place(), Target(Place(("web1",)), Service(ICMP))),
        ("web1 reaches anybody:443", True, Place(("web1",)), Target(Place(), HTTPS)),
        (
            "10.0.0.0/8 reaches web1:53,80-81/udp",
            True,
            Place(("10.0.0.0/8",)),
            Target(Place(("web1",)), Service(UDP, (PortRange(53, 53), PortRange(80, 81)))),
        ),
        (
            "2001:db8::7 reaches [2001:db8::8]:443",
            True,
            Place(("2001:db8::7/128",)),
            Target(Place(("2001:db8::8/128",)), HTTPS),
        ),
    ],
)
def test_a_sentence_is_read(text: str, reaches: bool, source: Place, target: Target) -> None:
    found = read_sentence(text, "line 1")
    assert (found.reaches, found.source, found.targets) == (reaches, source, (target,))


def test_clauses_come_in_any_order() -> None:
    one = read_sentence("nobody reaches web1:22 from 10.0.0.0/8 except 10.1.0.0/16 and bob", "p")
    other = read_sentence("nobody reaches web1:22 except 10.1.0.0/16 and bob from 10.0.0.0/8", "p")
    assert (one.source, one.besides) == (other.source, other.besides)
    assert one.besides == Place(("10.1.0.0/16", "bob"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("alice likes web1", "is no expectation"),
        ("alice reaches web1", "say what is reached"),
        ("everybody reaches web1", "say what is reached"),
        ("nobody does not reach web1:22", "nobody does not reach"),
        ("alice reaches web1:443 from outside", "`from` belongs to"),
        ("nobody reaches web1 from outside from here", "stands twice"),
        ("nobody reaches web1 from outside and bob", "`outside` stands alone"),
        ("alice reaches web1:443 with udp", "do not go together"),
        ("alice reaches web1:70000", "70000"),
        ("alice reaches web1:", "'web1:' is not an address"),
        ("alice reaches web1:443/icmp", "only tcp, udp and sctp have ports"),
        ("alice reaches web1 with nosuch", "nosuch"),
        ("alice reaches 10.0.0.1/8:443", "10.0.0.1/8"),
        ("al!ce reaches web1:443", "is neither a name"),
        ("x" * 600 + " reaches web1:443", "at most 500 characters"),
        ("own is 10.0.0.0/33", "10.0.0.0/33"),
        ("outside is 10.0.0.0/8", "cannot be a name"),
        ("a b reaches web1:1", "is neither a name"),
        ("web1 is 10.0.0.1", "was explained before"),
    ],
)
def test_each_error_names_file_and_line(line: str, reason: str) -> None:
    text = f"web1 is 198.51.100.10\nalice reaches web1:443\n\n{line}\n"
    with pytest.raises(BadInput) as caught:
        read_expectations(text, "shop.txt")
    assert (caught.value.place, reason in caught.value.reason) == ("shop.txt, line 4", True), str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("expect: 5\n", "s, line 1"),
        ("own: 5\nexpect:\n- alice reaches web1:443\n", "s, line 1"),
        ("names: [a]\nexpect: []\n", "s, line 1"),
        ("names:\n  web1: 10.0.0.0/33\nexpect: []\n", "s, line 2"),
        ("expect:\n- alice reaches web1:443\n- alice reaches\n", "s, line 3"),
        ("expect:\n- {alice: web1}\n", "s, line 2"),
        ("other: 1\nexpect: []\n", "s, line 1"),
        ("expect: [\n", "s, line 2"),
        ("expect: []\n", "s"),
        ("# nothing\n", "s"),
        ("", "s"),
    ],
)
def test_yaml_that_is_none_names_its_line(text: str, place: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_expectations(text, "s")
    assert caught.value.place == place


def test_too_many_are_refused() -> None:
    with pytest.raises(TooLarge):
        read_expectations("a reaches b:1\n" * (MOST_EXPECTATIONS + 1), "s")
    with pytest.raises(TooLarge):
        read_expectations("#" * 300_000, "s")


@given(st.text(alphabet="aw1. :,-/@[]#\nreachsnotbdyfmxcpiwth025{}", max_size=120))
def test_noise_is_refused_in_words(text: str) -> None:
    for said in (text, f"expect:\n- {text}"):
        refused = refusal_of(said)
        assert refused is None or refused.startswith("noise")


def refusal_of(text: str) -> str | None:
    try:
        found = read_expectations(text, "noise")
        judge(found.sentences, Acl(), Setting(OWN, found.names))
    except AclflowError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("bob reaches 198.51.100.7:443", "'bob' is nobody that is known"),
        ("@front reaches 198.51.100.7:443", "no address group 'front'"),
        ("10.0.0.1 reaches 10.0.0.2:443", "speaks of no packet that your list decides"),
        ("2001:db8::1 reaches 198.51.100.7:443", "speaks of no packet that your list decides"),
        ("nobody reaches 198.51.100.7:443 from 10.0.0.0/8 except 10.0.0.0/8", "speaks of no packet"),
    ],
)
def test_what_cannot_be_judged_is_said_with_its_place(sentence: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        judge((read_sentence(sentence, "s, line 1"),), Acl(), Setting(OWN))
    assert (caught.value.place, reason in caught.value.reason) == ("s, line 1", True)
