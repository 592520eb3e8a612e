"""What an operator writes about OpenStack, and what is said about mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import AclflowError, BadInput, Missing

FILES = {"environment": "/etc/aclflow/environment.yaml", "group_tokens": "/etc/aclflow/tokens"}


def test_paths_are_paths_and_the_templates_are_found() -> None:
    settings = HeatSettings.read({"kind": "heat", "cloud": "mine", "request_s": 5, **FILES})
    assert settings.environment == Path("/etc/aclflow/environment.yaml")
    assert settings.cloud == "mine"
    assert settings.request_s == 5.0
    assert settings.template("firewall-fleet.yaml").is_file()
    with pytest.raises(Missing, match="no such template"):
        settings.template("nothing.yaml")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"colour": "red"}, "colour"),
        ({"environment": ""}, "environment"),
        ({"environment": 7}, "environment"),
        ({"request_s": "soon"}, "request_s"),
        ({"request_s": True}, "request_s"),
        ({"request_s": 0}, "request_s"),
        ({"request_s": float("nan")}, "request_s"),
        ({"stack_minutes": 1.5}, "stack_minutes"),
        ({"look_s": "often"}, "look_s"),
        ({"look_s": 0}, "look_s"),
        ({"look_s": 6}, "look_s"),
        ({"look_most_s": 301}, "look_most_s"),
        ({"stack_minutes": 0}, "stack_minutes"),
        ({"stack_minutes": float("inf")}, "stack_minutes"),
        ({"left_port": "sw-left"}, "right_port"),
        ({"right_port": "sw-right"}, "left_port"),
        ({"installation": "1st"}, "installation"),
        ({"installation": "a_b"}, "installation"),
    ],
)
def test_a_mistake_is_said_with_its_key(more: dict[str, object], place: str) -> None:
    with pytest.raises(AclflowError) as caught:
        HeatSettings.read({"kind": "heat", **FILES, **more})
    assert isinstance(caught.value, BadInput)
    assert caught.value.place == place


def test_ports_of_the_spreading_switch_are_links_of_both_sides_or_none() -> None:
    assert HeatSettings.read(FILES).links == {}
    named = HeatSettings.read({**FILES, "left_port": "sw-left", "right_port": "sw-right"})
    assert named.links == {"left": "sw-left", "right": "sw-right"}


@pytest.mark.parametrize("key", sorted(FILES))
def test_what_must_be_set_is_said(key: str) -> None:
    with pytest.raises(BadInput, match="must be set") as caught:
        HeatSettings.read({name: value for name, value in FILES.items() if name != key})
    assert caught.value.place == key


def test_a_person_waits_as_long_as_heat_does_and_longer_if_told() -> None:
    settings = HeatSettings.read(FILES)
    assert settings.request_s == 10
    assert settings.patient().request_s == 75
    assert HeatSettings.read({**FILES, "request_s": 200}).patient().request_s == 200


def test_stacks_are_named_after_fleets_and_back(tmp_path: Path) -> None:
    settings = HeatSettings(tmp_path, tmp_path, installation="two")
    for fleet in ("pop1", "a", "pop-1.x_y"):
        assert settings.fleet_of(settings.stack_name(fleet)) == fleet
        assert settings.fleet_of(settings.stack_name(fleet, "alarms")) is None
    assert settings.fleet_of("aclflow-fleet-pop1") is None
    assert settings.fleet_of("two-fleet-") is None
    with pytest.raises(BadInput, match="colon"):
        settings.stack_name("pop:1")


def test_the_flavor_is_read_from_the_environment_file(tmp_path: Path) -> None:
    file = tmp_path / "environment.yaml"
    settings = HeatSettings(file, tmp_path)
    for text, flavor in (("parameters: {flavor: big}", "big"), ("parameters: {}", ""), ("", ""), ("parameters: 3", "")):
        file.write_text(text)
        assert settings.flavor() == flavor
    file.write_text("{")
    with pytest.raises(BadInput):
        settings.flavor()
    file.unlink()
    with pytest.raises(BadInput):
        settings.flavor()


@pytest.mark.parametrize("text", [" \n", "aclflow: the service does not answer\n"], ids=["nothing", "an error"])
def test_what_is_no_token_is_not_sent_anywhere(tmp_path: Path, text: str) -> None:
    (tmp_path / "pop1.token").write_text(text)
    with pytest.raises(Missing, match="holds no token"):
        HeatSettings(tmp_path, tmp_path).token_of("pop1", "pop1")
