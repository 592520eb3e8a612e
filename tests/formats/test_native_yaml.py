"""The native form as YAML: the same lists as in JSON, and none of what YAML can do besides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.errors import AclflowError, BadInput, TooLarge
from orchestrator.policy.formats.native import acl_from_json, acl_to_json
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.formats.yaml_text import line_of, load_documents, load_yaml
from orchestrator.policy.model import Acl, Action, Rule, RuleId

FIXTURE = (Path(__file__).parent / "fixtures" / "web.native-yaml").read_text()
plain = settings(max_examples=examples(200), deadline=None)
scalars = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(max_size=12)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


@plain
@given(acls())
def test_what_is_written_is_read_again(acl: Acl) -> None:
    text = write(acl, "native-yaml").text
    assert read(text, "native-yaml").acl == acl
    assert yaml.safe_load(text) == acl_to_json(acl)  # another reader, of the older YAML, sees the same


@plain
@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40))
def test_any_description_comes_back(text: str) -> None:
    acl = Acl((Rule(RuleId("r"), Action.PERMIT, description=text, owner=text),))
    assert read(write(acl, "native-yaml").text, "native-yaml").acl == acl


@plain
@given(values)
def test_json_is_yaml(value: object) -> None:
    """What JSON says, escaped as JSON escapes it, is the same value here."""
    text = json.dumps({"a": value})
    if "\\u" not in text and "<<" not in text:
        assert load_yaml(text) == json.loads(text)


def test_the_keys_are_those_of_json() -> None:
    assert read(FIXTURE, "native-yaml").acl == acl_from_json(load_yaml(FIXTURE))
    rules = {rule.id: rule for rule in read(FIXTURE).acl.rules}
    assert rules["web-in"].expires is not None
    assert rules["web-in"].description == "the shop: all of it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules:\n- id: a\n  action: permit\n- id: b\n  action: perhaps\n", "x, line 5, rules[1].action: 'perhaps' is"),
        ("rules:\n- {id: a, action: permit, protocol: tcp,\n   destination_ports: [80,\n   99999]}\n",
         "x, line 4, rules[0].destination_ports[1]: port 99999"),
        ("groups:\n  a.b:\n    prefixes: [10.0.0.0/33]\nrules: []\n", "x, line 3, groups.a.b.prefixes[0]: '10"),
        ("rules:\n- id: a\n", "x, line 2, rules[0].action: a rule needs its `action`"),
        ("rules: []\nrules: []\n", "x, line 2: the key 'rules' stands twice"),
        ("rules:\n- id: a\n  action: permit\n  log: yes\n", "x, line 4, rules[0].log: 'yes' is not true or false"),
        ("rules:\n- id: 7\n  action: permit\n", "x, line 2, rules[0].id: 7 is not a string"),
        ("rules: [\n", "x, line 2: it is not YAML"),
        ("- a\n", "x, line 1: a list cannot be an access list"),
        ("rules: []\n---\nrules: []\n", "x: it holds 2 YAML documents"),
        ("", "x: it holds 0 YAML documents"),
    ],
)  # fmt: skip
def test_faults_name_the_place_and_the_line(text: str, message: str) -> None:
    with pytest.raises(AclflowError) as caught:
        read(text, "native-yaml", name="x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x\n", "line 1: anchors and aliases"),
        ("a: 1\nb: *x\n", "line 2: anchors and aliases|it is not YAML"),
        ("a: !!python/object/apply:os.system [x]\n", "line 1: tags"),
        ("a: !!str 5\n", "line 1: tags"),
        ("a: {b: 1}\n<<: {c: 2}\n", r"line 2: merge keys"),
        ("? [1]\n: 2\n", "line 1: a key must be a word"),
        ("? {a: b}\n: 2\n", "line 1: a key must be a word"),
    ],
)
def test_what_yaml_can_do_besides_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_yaml(text)


def test_a_bomb_of_aliases_costs_nothing() -> None:
    text = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    with pytest.raises(BadInput, match="line 1: anchors"):
        load_yaml(text)


def test_depth_and_number_of_values_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge, match="line 3: it is nested deeper than 64"):
        load_yaml("a: 1\nb: 2\nc: " + "[" * 70)
    assert load_yaml("[" * 64 + "]" * 64) is not None
    monkeypatch.setattr("orchestrator.policy.formats.yaml_text.MOST_NODES", 100)
    with pytest.raises(TooLarge, match="more than 100 values"):
        load_yaml("- 1\n" * 101)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10), ("-3", -3), ("0", 0), ("010", "010"), ("0x1f", "0x1f"), ("1_000", "1_000"), ("22:30", "22:30"),
        ("1.5", 1.5), ("1e3", 1e3), (".5", ".5"), ("yes", "yes"), ("No", "No"), ("on", "on"), ("True", "True"),
        ("true", True), ("null", None), ("~", None), ("Null", "Null"), ("2030-01-31", "2030-01-31"), ('"10"', "10"),
        ("'true'", "true"), ("9" * 30, "9" * 30), (".inf", ".inf"), ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)  # fmt: skip
def test_plain_words_mean_what_they_would_in_json(text: str, value: object) -> None:
    assert load_yaml(f"a: {text}") == {"a": value}


def test_lines_of_places() -> None:
    text = "a:\n  b:\n  - 1\n  - c: 2\n---\nd.e:\n  - 3\n"
    assert [line_of(text, place) for place in ("", "a", "a.b", "a.b[1]", "a.b[1].c", "a.b[7]", "x")] == [
        1,
        1,
        2,
        4,
        4,
        2,
        1,
    ]
    assert line_of(text, "d.e[0]", 1) == 7
    assert list(load_documents(text)) == [{"a": {"b": [1, {"c": 2}]}}, {"d.e": [3]}]
