"""Heat itself on our templates: it validates them all, and creates those that no other test does."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from allinone.stack import AllInOne
from command_line import aclflow
from heatclient import client as heat_client
from heatclient.common import template_utils
from realbench import REAL, RealBench, settings_for, until

from orchestrator.errors import Refused

pytestmark = REAL

FOLDER = Path(__file__).resolve().parents[2] / "heat-templates"
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.yaml") if "environment" not in path.name)
OURS = {
    "image": "firewall",
    "flavor": "firewall",
    "management_network": "management",
    "service_url": "https://192.0.2.1:8420",
    "management_prefix": "10.91.0.0/24",
    "controller_token": "one-time",
    "domain": "pop1",
}


@pytest.fixture(scope="module")
def bench(all_in_one: AllInOne, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBench]:
    made = RealBench(all_in_one.place, settings_for(all_in_one.place, tmp_path_factory.mktemp("heat")))
    yield made
    made.cloud.close()


@pytest.mark.parametrize("name", TEMPLATES)
def test_heat_validates_it(bench: RealBench, name: str) -> None:
    found = bench.openstack.validate(name)
    assert all(each["Description"] for each in found["Parameters"].values())


def test_heat_says_what_is_wrong_with_one(bench: RealBench, tmp_path: Path) -> None:
    settings = settings_for(bench.place, tmp_path)
    (tmp_path / "wrong.yaml").write_text(
        "heat_template_version: 2018-08-31\nresources: {a: {type: 'OS::Nova::Server', properties: {colour: red}}}\n"
    )
    object.__setattr__(settings, "templates", tmp_path)
    with pytest.raises(Refused, match="colour"):
        RealBench(bench.place, settings).openstack.validate("wrong.yaml")


@pytest.mark.parametrize(
    ("name", "more", "machines"),
    [
        (
            "security-domain.yaml",
            {
                "switch_tokens": "one-time-0,one-time-1",
                "controller_flavor": "firewall",
                "uplink_network": "left",
                "tenant_network": "right",
            },
            3,
        ),
        (
            "security-domain.yaml",
            {
                "switch_tokens": "one-time-0,one-time-1",
                "controller_flavor": "firewall",
                "uplink_network": "left",
                "tenant_network": "right",
                "uplink_kind": "routed",
                "ranges": "198.51.100.0/24,2001:db8::/48",
                "router": "10.92.0.1",
            },
            3,
        ),
        (
            "security-domain.yaml",
            {
                "switch_tokens": "one-time-0,one-time-1",
                "controller_flavor": "firewall",
                "uplink_network": "left",
                "tenant_network": "right",
                "uplink_kind": "segment",
                "ranges": "10.92.0.128/25",
                "router": "10.92.0.1",
            },
            3,
        ),
        (
            "edge-pop.yaml",
            {
                "server_count": 1,
                "edge_flavor": "firewall",
                "enrol_token": "of-the-group",
                "outside_network": "left",
                "uplink_network": "right",
                "inside_network": "right",
            },
            2,
        ),
    ],
)
def test_heat_creates_what_it_describes_and_takes_it_away(
    bench: RealBench, name: str, more: dict[str, object], machines: int
) -> None:
    heat = heat_client.Client("1", session=bench.openstack.session, region_name="RegionOne")
    files, body = template_utils.get_template_contents(str(FOLDER / name))
    before = bench.machines()
    called = f"{Path(name).stem}-{more.get('uplink_kind', 'edge')}"  # Heat keeps a deleted stack's name for a moment
    stack = heat.stacks.create(stack_name=called, template=body, files=files, parameters={**OURS, **more})["stack"]

    def status() -> str:
        return str(heat.stacks.get(stack["id"], resolve_outputs=False).stack_status)

    until("the stack", lambda: not status().endswith("IN_PROGRESS"))
    assert status() == "CREATE_COMPLETE", heat.stacks.get(stack["id"]).stack_status_reason
    assert bench.machines() == before + machines
    outputs = {each["output_key"]: each["output_value"] for each in heat.stacks.get(stack["id"]).outputs}
    assert all(outputs.values()), outputs
    if "switches" in outputs:
        given = {index: _user_data(bench, server) for index, server in outputs["switches"].items()}
        assert {index: re.findall(r"ACLFLOW_TOKEN=([\w-]+)", text) for index, text in given.items()} == {
            "0": ["one-time-0"],
            "1": ["one-time-1"],
        }, "each switch is given its own token, and no other"
        kind = str(more.get("uplink_kind", "edge"))
        _check_uplinks(given, outputs["uplink_addresses"], kind, str(more.get("ranges", "")))
    heat.stacks.delete(stack["id"])
    until("the stack's end", lambda: bench.openstack.stack(called) is None)
    assert bench.machines() == before


def _check_uplinks(given: Mapping[str, str], addresses: Sequence[str], kind: str, ranges: str) -> None:
    """Each VNF-ACL has a leg of its own name; with ranges it announces or answers for them from its own address."""
    for (index, text), address in zip(sorted(given.items()), addresses, strict=True):
        (commands,) = re.findall(r"(?ms)^runcmd:$.*", text)
        assert f'add-port, br-aclflow, "tenants-{index}"' in commands
        (announced,) = re.findall(r"\[aclflow-announce, (.*)\]", commands)
        words = [word.strip('"') for word in announced.split('", "')]
        assert words[0] == ("segment" if kind == "segment" else "fabric")
        assert words[1] == ranges
        assert words[2:5] == ([address, "24", "10.92.0.1"] if ranges else ["", "", ""])
        assert ('"--routed"' in commands) is bool(ranges)


def _user_data(bench: RealBench, server: str) -> str:
    """What cloud-init is given, as Nova keeps it; it tells administrators."""
    answer = bench.admin.compute.get(f"/servers/{server}", microversion="2.3")
    return base64.b64decode(answer.json()["server"]["OS-EXT-SRV-ATTR:user_data"]).decode()


def test_the_command_line_shows_what_there_is(bench: RealBench, tmp_path: Path) -> None:
    settings_for(bench.place, tmp_path)
    files = f"environment: {tmp_path}/environment.yaml\ngroup_tokens: {tmp_path}\nclouds_file: {tmp_path}/clouds.yaml\n"
    (tmp_path / "cloud.yaml").write_text(f"kind: heat\ncloud: here\nrequest_s: 60\n{files}")
    ended = aclflow("openstack", "check", "--json", environment={"ACLFLOW_CLOUD": str(tmp_path / "cloud.yaml")})
    assert ended.code == 0, ended.err
    found = ended.json()
    assert found["fleets"] == []
    assert {"instances", "cores", "members of a server group"} <= {each["what"] for each in found["quotas"]}
    missing = aclflow("openstack", "alarms", "show", "pop1", "--cloud", str(tmp_path / "cloud.yaml"))
    assert missing.code == 1
    assert "no group that grows by alarms" in missing.err
