"""The version that a file was taken from goes through every format, and back."""

from __future__ import annotations

import pytest

from orchestrator.errors import BadInput
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.formats.registry import FORMATS, read, write
from orchestrator.policy.formats.results import TakenFrom

WRITABLE = [found.name for found in FORMATS.values() if found.write is not None]
ORIGIN = TakenFrom("blue", 7)
LIST = acl_from_json(
    {"rules": [{"id": "far", "action": "permit", "protocol": "tcp", "source": "192.0.2.0/24", "destination_ports": 22}]}
)
STATEMENT = 'aclflow: taken_from {"tenant": "blue", "version": 7}'


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("origin", [ORIGIN, TakenFrom("größe 'x' \"y\"", 0)], ids=["plain", "odd"])
def test_a_file_states_what_it_was_taken_from(name: str, origin: TakenFrom) -> None:
    plain, stated = write(LIST, name), write(LIST, name, origin)
    for chosen in (name, None):
        found = read(stated.text, chosen)
        assert found.taken_from == origin
        assert (found.acl, found.losses) == (read(plain.text, name).acl, ())
        assert read(plain.text, chosen).taken_from is None


@pytest.mark.parametrize("name", WRITABLE)
def test_the_origin_survives_comments_and_blanks_above(name: str) -> None:
    text = write(LIST, name, ORIGIN).text
    above = "\n  \n" if text.startswith("{") else "! edited by hand\n\n" if text.startswith("!") else "# by hand\n\n"
    assert read(above + text, name).taken_from == ORIGIN


def test_yaml_may_state_it_as_json_does() -> None:
    assert read("taken_from: {tenant: blue, version: 7}\nrules: []\n", "native-yaml").taken_from == ORIGIN


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("# aclflow: taken_from", "it is empty"),
        ("# aclflow: taken_from 7", "it must be an object"),
        ('# aclflow: taken_from {"tenant": "blue"}', "write it as"),
        ('# aclflow: taken_from {"tenant": "blue", "version": -7}', "is no version"),
    ],
)
def test_an_origin_that_cannot_be_read_is_refused_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(f"*filter\n:FORWARD DROP [0:0]\n{line}\nCOMMIT\n", "iptables", name="web")
    assert "web, line 3, taken_from" in str(caught.value)
    assert reason in caught.value.reason


def test_two_origins_are_none() -> None:
    other = STATEMENT.replace("7", "8")
    with pytest.raises(BadInput, match="several versions"):
        read(f"*filter\n:FORWARD DROP [0:0]\n# {STATEMENT}\n# {other}\nCOMMIT\n", "iptables")
    assert (
        read(f"*filter\n:FORWARD DROP [0:0]\n# {STATEMENT}\n# {STATEMENT}\nCOMMIT\n", "iptables").taken_from == ORIGIN
    )
