"""No text gets past the readers: out comes a list with its losses, or an error of ours with a place.

What is tried: noise, real texts that are cut, spliced, mangled by lines and by values, nesting without end, values of
other types, numbers that are too long, every kind of character. A list that comes out can be written, and is read
again from what was written.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from formats.samples import JSON, SAMPLES, WRITABLE, options_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.formats.registry import FORMATS, guess, read, write
from orchestrator.policy.formats.results import Options

LONGEST = 200_000
"""Lists whose text is longer are not written and read again: negations can make much of little."""

BUDGET = examples(600, fixed=60)
slow = settings(max_examples=BUDGET, deadline=None, suppress_health_check=list(HealthCheck))
names = st.sampled_from(sorted(FORMATS))
LINES = sorted({line for text in SAMPLES.values() for line in text.split("\n")})
WORDS = sorted({word for line in LINES for word in line.split(" ") if len(word) < 80})


def attempt(text: str | bytes, name: str | None, options: Options | None = None) -> None:
    """Read; write what comes out in its own format and in the native one, and read that again."""
    refusal, chosen, imported = "", "", None
    try:
        chosen = name or guess(text if isinstance(text, str) else text.decode("utf-8", "replace"), "fuzz").name
        imported = read(text, name, name="fuzz", options=options or options_of(chosen))
    except AclflowError as error:
        refusal = str(error)
    if imported is None:
        assert refusal.startswith("fuzz")
        assert len(refusal) < 3000
        return
    for loss in imported.losses:
        assert loss.file == "fuzz"
        assert len(str(loss)) < 3000
    for writer in {"native", chosen} & set(WRITABLE):
        try:
            exported = write(imported.acl, writer)
        except TooLarge:
            continue
        if len(exported.text) < LONGEST:
            again = read(exported.text, writer)
            assert again.acl == imported.acl or writer != "native"


def test_every_format_has_a_sample_that_is_read() -> None:
    for name, text in SAMPLES.items():
        assert read(text, name, options=options_of(name, stateless=True)).acl.rules, name


@slow
@given(st.text(max_size=200) | st.binary(max_size=200), st.none() | names)
def test_random_texts(text: str | bytes, name: str | None) -> None:
    attempt(text, name)


@pytest.mark.parametrize("name", [*FORMATS, None])
def test_noise(name: str | None) -> None:
    noise = random.Random(3).randbytes(500_000)
    letters = bytes(32 + byte % 95 if byte % 97 else 10 for byte in noise)
    for data in (noise, letters, letters.replace(b"\n", b" "), letters.replace(b" ", b"\n")):
        with pytest.raises(BadInput) as caught:
            read(data, name, name="noise")
        assert str(caught.value).startswith("noise")
        assert len(str(caught.value)) < 800


@st.composite
def mangled(draw: st.DrawFn, name: str) -> str:
    """A real text with lines repeated, cut, swapped, words of others put in, and characters changed."""
    lines = SAMPLES[name].split("\n")
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
            words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(WORDS))
        elif change == "noise":
            words[draw(st.integers(0, len(words) - 1))] = draw(st.text(max_size=8))
        else:
            words = words[: draw(st.integers(0, len(words)))]
        lines[place] = " ".join(words)
    return "\n".join(lines)


@pytest.mark.parametrize("name", sorted(FORMATS))
@slow
@given(st.data())
def test_mangled_texts(name: str, data: st.DataObject) -> None:
    text = data.draw(mangled(name))
    attempt(text, data.draw(st.sampled_from([name, name, None])), options_of(name, stateless=data.draw(st.booleans())))


@pytest.mark.parametrize("name", sorted(FORMATS))
@slow
@given(st.data())
def test_spliced_texts(name: str, data: st.DataObject) -> None:
    """The start of one text, then the rest of another, of any formats."""
    head, tail = SAMPLES[name], SAMPLES[data.draw(names)]
    text = head[: data.draw(st.integers(0, len(head)))] + tail[data.draw(st.integers(0, len(tail))) :]
    attempt(text, data.draw(st.sampled_from([name, None])))


ODD: list[Any] = [
    None, True, -1, 0, 65536, 10**400, 1e300, -0.5, "", " ", "any", "0", "-1", "00", "9" * 5000, "\u202e",
    "\ud7ff\uffff",
    "1.2.3.4/33", "::/129", "0.0.0.0/0", "2001:db8::/32", "@", "@x", "x" * 5000, "[", "[x] y", "ingress", [], {}, [[]],
    [None], {"": None}, {"set": []}, {"a": {"b": "c"}},
]  # fmt: skip
"""Values where others are expected."""


def nested(levels: int, kind: str) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value] if kind == "list" else {"set": value} if kind == "set" else {"a": value}
    return value


def places_of(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container and key in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        places_of(inner, found)
    return found


@pytest.mark.parametrize("name", sorted(JSON))
@slow
@given(st.data())
def test_values_of_other_types(name: str, data: st.DataObject) -> None:
    """A document with values replaced, dropped, doubled or nested far."""
    document = json.loads(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places_of(document, [])))
        change = data.draw(st.sampled_from(("odd", "odd", "nest", "drop", "double", "move")))
        if change == "odd":
            holder[key] = data.draw(st.sampled_from(ODD))
        elif change == "nest":
            holder[key] = nested(
                data.draw(st.sampled_from((3, 60, 300))), data.draw(st.sampled_from(("list", "set", "a")))
            )
        elif change == "drop":
            del holder[key]
        elif change == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(
                data.draw(st.sampled_from([inner[at] for inner, at in places_of(document, [])]))
            )
        if not places_of(document, []):
            break
    attempt(json.dumps(document), name, options_of(name, stateless=True))


DEEP = {
    "lists": "[" * 1_000_000,
    "objects": '{"a":' * 1_000_000,
    "closed lists": '{"rules": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "indented": "".join(" " * level + "a:\n" for level in range(1500)),
    "dashes": "- " * 1_000_000,
    "braces": "rules: " + "{a: " * 1_000_000,
    "questions": "? " * 100_000,
    "brackets": "access-list a extended permit ip " + "(" * 1_000_000,
    "quotes": '"' * 999_999,
    "escapes": '{"a": "' + '\\"' * 500_000,
    "strings": "{" + '"a' * 500_000,
}
"""Nesting and repetition without end."""


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("name", [*FORMATS, None])
def test_nesting_without_end(name: str | None, shape: str) -> None:
    attempt(DEEP[shape], name)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("levels", [*range(200, 1000, 50), *range(940, 1000, 6)])
def test_nesting_just_below_what_the_parser_takes(name: str, levels: int) -> None:
    """A value that the parser still reads must not be too deep for what comes after it."""
    document = json.loads(SAMPLES[name])
    places = places_of(document, [])
    for holder, key in places[:: len(places) // 4 + 1]:
        before = holder[key]
        holder[key] = nested(20, "list")
        text = json.dumps(document).replace("[" * 20 + "null" + "]" * 20, "[" * levels + "null" + "]" * levels)
        attempt(text, name)
        holder[key] = before


@pytest.mark.parametrize("name", FORMATS)
def test_a_number_of_thousands_of_digits(name: str) -> None:
    for number in ("9" * 300, "9" * 10_000, "-" + "9" * 10_000, "1e99999", "0x" + "f" * 5000):
        for old in ("80", "443", "24"):
            attempt(SAMPLES[name].replace(old, number, 1), name)


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_character(name: str) -> None:
    for character in (
        "\u202e",
        "\u2028",
        "\x85",
        "\x0b",
        "\r",
        "\ufeff",
        "\U0001f600",
        "\u0301",
        "\x1b",
        "\x7f",
        "٣",
        "²",
    ):
        for old in ("1", "web", " "):
            attempt(SAMPLES[name].replace(old, character), name)
            attempt(SAMPLES[name].replace(old, old + character, 3), name)
