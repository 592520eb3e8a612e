"""The Heat templates as they stand in the folder: what they refer to is there, and everything says what it is for.

No Heat is asked; `test_templates.py` does that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import aclflow

FOLDER = Path(__file__).resolve().parents[2] / "heat-templates"
TEMPLATES = sorted(path.name for path in FOLDER.glob("*.yaml") if "environment" not in path.name)
ENVIRONMENTS = {
    "environment.yaml": ("firewall-fleet.yaml", {"service_url", "enrol_token"}),
    "security-domain.environment.yaml": ("security-domain.yaml", {"controller_token", "switch_tokens"}),
    "edge-pop.environment.yaml": ("edge-pop.yaml", {"controller_token", "enrol_token"}),
}
READ_BY_OTHERS = {"/usr/local/sbin/": "0755", "/etc/systemd/network/": "0644"}
"""Folders whose files are no secret: what is run, and what networkd reads as a user of its own."""
STARTED = {"firewall-vnf": "agent", "controller": "controller", "edge-pop": "controller", "acl-switch": "host enrol"}
"""What the unit that a machine starts does with ACLFLOW_ARGUMENTS."""
PSEUDO = {"OS::stack_name", "OS::stack_id", "OS::project_id"}
FORWARDING = re.compile(r"left_port|right_port|uplink_port|tenant_port|outside_port|service_port")


def read(name: str) -> dict[str, Any]:
    found = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def walk(value: object) -> Iterator[tuple[str, object]]:
    """Every function and property below a value, as it is written."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def used(template: dict[str, Any], function: str) -> set[str]:
    """The first argument of each use of a function."""
    parts = {key: template.get(key, {}) for key in ("resources", "outputs", "conditions")}
    arguments = [inner for key, inner in walk(parts) if key == function]
    return {each if isinstance(each, str) else each[0] for each in arguments if isinstance(each, (str, list))}


def required(template: dict[str, Any]) -> set[str]:
    return {name for name, each in template["parameters"].items() if "default" not in each}


def test_there_are_templates_for_what_is_promised() -> None:
    promised = {"security-domain.yaml", "firewall-vnf.yaml", "firewall-autoscaling.yaml", "edge-pop.yaml"}
    assert promised | {"firewall-fleet.yaml"} <= set(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_everything_says_what_it_is_for(name: str) -> None:
    template = read(name)
    assert template["description"].strip()
    for parameter, each in template["parameters"].items():
        assert each["description"].strip().endswith((".", ")")), parameter
        assert "default" in each or each.get("constraints"), f"{parameter} takes anything"
        assert each.get("hidden", False) == parameter.endswith(("token", "tokens")), parameter
    assert template["outputs"]
    for output, each in template["outputs"].items():
        assert each["description"].strip(), output
        assert "value" in each


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_referred_to_is_there_and_what_is_there_is_used(name: str) -> None:
    template = read(name)
    parameters, resources = set(template["parameters"]), set(template["resources"])
    assert used(template, "get_param") - PSEUDO <= parameters
    assert parameters <= used(template, "get_param"), "a parameter that changes nothing"
    assert used(template, "get_resource") | used(template, "get_attr") | used(template, "depends_on") <= resources
    grouped = [each for group in template.get("parameter_groups", []) for each in group["parameters"]]
    assert sorted(grouped) == sorted(parameters if grouped else [])
    assert not parameters & resources, "Heat takes no name twice"
    for file in used(template, "get_file"):
        assert (FOLDER / file).is_file(), file


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_passed_to_a_nested_template_is_what_it_asks_for(name: str) -> None:
    for _, value in walk({"all": read(name)["resources"]}):
        if isinstance(value, dict) and str(value.get("type", "")).endswith(".yaml"):
            nested = read(value["type"])
            passed = set(value["properties"])
            assert passed <= set(nested["parameters"])
            assert required(nested) <= passed


@pytest.mark.parametrize("name", TEMPLATES)
def test_ports_that_forward_have_no_port_security_and_all_others_do(name: str) -> None:
    for port, each in read(name)["resources"].items():
        if each["type"] == "OS::Neutron::Port":
            forwards = FORWARDING.fullmatch(port) is not None
            assert each["properties"].get("port_security_enabled", True) is not forwards, port
            assert ("security_groups" in each["properties"]) is not forwards, port


def test_a_firewall_is_in_three_networks_and_apart_from_others() -> None:
    resources = read("firewall-vnf.yaml")["resources"]
    server = resources["server"]["properties"]
    assert [each["port"]["get_resource"] for each in server["networks"]] == [
        "management_port",
        "left_port",
        "right_port",
    ]
    for name in ("firewall-fleet.yaml", "firewall-autoscaling.yaml"):
        group = read(name)["resources"]
        assert group["hosts"]["type"] == "OS::Nova::ServerGroup"
        assert ("server_group", {"get_resource": "hosts"}) in list(walk(group["group"]))
        allowed = read(name)["parameters"]["placement"]["constraints"][0]["allowed_values"]
        assert set(allowed) == {"anti-affinity", "soft-anti-affinity"}


@pytest.mark.parametrize("environment", sorted(ENVIRONMENTS))
def test_an_environment_names_what_the_template_asks_for(environment: str) -> None:
    name, added = ENVIRONMENTS[environment]
    template, parameters = read(name), set(read(environment)["parameters"])
    assert parameters <= set(template["parameters"])
    assert required(template) == (required(template) & parameters) | added
    if name == "firewall-fleet.yaml":
        assert parameters <= set(read("firewall-autoscaling.yaml")["parameters"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_cloud_init_is_given_is_whole(name: str) -> None:
    """Put together as Heat does: YAML that cloud-init takes, with nothing left to be filled in."""
    for key, value in walk(read(name)["resources"]):
        if key != "str_replace":
            continue
        assert isinstance(value, dict)
        text = _text(value["template"])
        assert set(re.findall(r"@\w+@", text)) == set(value["params"])
        for placeholder in value["params"]:
            text = text.replace(placeholder, "x")
        assert text.startswith("#cloud-config\n")
        config = yaml.safe_load(text)
        assert set(config) == {"write_files", "runcmd"}
        for file in config["write_files"]:
            folder = next((each for each in READ_BY_OTHERS if file["path"].startswith(each)), "")
            assert file["permissions"] == READ_BY_OTHERS.get(folder, "0600")
            assert file["content"]
        assert all(isinstance(word, str) for command in config["runcmd"] for word in command)


def _text(template: dict[str, Any]) -> str:
    if "get_file" in template:
        return (FOLDER / template["get_file"]).read_text(encoding="utf-8")
    between, parts = template["list_join"]
    return between.join(_text(part) for part in parts)  # type: ignore[no-any-return]


def test_each_group_of_firewalls_is_told_what_filters_there() -> None:
    """Those of a fleet hold the domain's whole policy, those of an edge their share of its tenants."""
    drivers = {
        name: read(name)["resources"]["group"]["properties"]
        for name in ("firewall-fleet.yaml", "firewall-autoscaling.yaml", "edge-pop.yaml")
    }
    planes = {name: next(value for key, value in walk(each) if key == "plane") for name, each in drivers.items()}
    assert planes.pop("edge-pop.yaml") == "firewall-server"
    assert all(plane == {"get_param": "plane"} for plane in planes.values())
    known = read("firewall-vnf.yaml")["parameters"]["plane"]["constraints"][0]["allowed_values"]
    assert known == ["nftables", "iptables", "firewall-server"]
    for plane in known:
        ended = aclflow("agent", "--driver", plane, "--help")
        assert ended.code == 0, ended.err


def test_openflow_leaves_no_machine_in_clear() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.cloud-config")}
    listens = {name: re.findall(r"(--tls )?--listen (\S+):6653", text) for name, text in texts.items()}
    dials = {name: re.findall(r"\b(tcp|ssl):(\S+):6653", text) for name, text in texts.items()}
    assert {name: found for name, found in listens.items() if found} == {
        "controller.cloud-config": [("--tls ", "0.0.0.0")],
        "edge-pop.cloud-config": [("", "127.0.0.1")],
    }
    assert {name: found for name, found in dials.items() if found} == {
        "acl-switch.cloud-config": [("ssl", "@controller@")],
        "edge-pop.cloud-config": [("tcp", "127.0.0.1")],
    }


@pytest.mark.parametrize(("name", "command"), sorted(STARTED.items()))
def test_machines_start_what_the_command_line_has(name: str, command: str) -> None:
    """The options exist: `--help` comes after them, and would not be reached otherwise."""
    text = (FOLDER / f"{name}.cloud-config").read_text(encoding="utf-8")
    asked = [[*command.split(), *words.split()] for words in re.findall(r"(?m)^ +ACLFLOW_ARGUMENTS=(.*)$", text)]
    asked += [found.split(", ") for found in re.findall(r"/opt/aclflow/bin/aclflow, (.*)\]", text)]
    assert asked
    for words in asked:
        filled = [re.sub(r"@\w+@", _value, word.strip('"')) for word in words]
        ended = aclflow(*filled, "--help")
        assert ended.code == 0, (filled, ended.err)


def _value(placeholder: re.Match[str]) -> str:
    known = {"@plane@": "nftables", "@report_every@": "0.5", "@port@": "up0", "@kind@": "--routed"}
    return known.get(placeholder[0], "192.0.2.1")


def test_sshd_of_a_firewall_is_reached_by_management_alone(tmp_path: Path) -> None:
    """The script binds it to the first interface that is no leg; it runs with a `systemctl` of our own."""
    joined = "".join((FOLDER / f"{name}.cloud-config").read_text() for name in ("interfaces", "firewall-vnf"))
    config = yaml.safe_load(joined.replace("@token@", "x"))
    assert ["aclflow-ssh", "left", "right"] in config["runcmd"]
    assert config["runcmd"].index(["aclflow-ssh", "left", "right"]) > 1, "legs have their names by then"
    (script,) = (each["content"] for each in config["write_files"] if each["path"].endswith("/aclflow-ssh"))
    for name in ("lo", "right", "left", "ens3"):
        (tmp_path / "net" / name).mkdir(parents=True)
    moved = script.replace("/sys/class/net", str(tmp_path / "net")).replace("/etc/systemd", str(tmp_path / "systemd"))
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    (tmp_path / "systemctl").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", moved, "sh", "left", "right"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "systemd/system/ssh.socket.d/management.conf").read_text() == "[Socket]\nBindToDevice=ens3\n"
    assert (tmp_path / "said").read_text().splitlines()[-2:] == ["disable --now ssh.service", "enable --now ssh.socket"]
    all_legs = subprocess.run(["sh", "-c", moved, "sh", "left", "right", "ens3"], capture_output=True, check=False)
    assert all_legs.returncode == 1


@pytest.mark.parametrize("name", ["firewall-vnf", "acl-switch", "edge-pop"])
def test_what_is_gone_after_a_boot_is_done_at_each(name: str, tmp_path: Path) -> None:
    """cloud-init runs these commands once; the first of them has it run them again."""
    joined = "".join((FOLDER / f"{each}.cloud-config").read_text() for each in ("interfaces", name))
    config = yaml.safe_load(re.sub(r"@\w+@", "x", joined))
    assert config["runcmd"][0] == ["aclflow-each-boot"]
    (script,) = (each["content"] for each in config["write_files"] if each["path"].endswith("/aclflow-each-boot"))
    once = tmp_path / "instance/scripts/runcmd"
    once.parent.mkdir(parents=True)
    once.write_text("#!/bin/sh\n")
    subprocess.run(["sh", "-c", script.replace("/var/lib/cloud", str(tmp_path))], check=True)
    again = tmp_path / "scripts/per-boot/aclflow"
    assert again.read_text() == once.read_text()
    assert os.access(again, os.X_OK)


def announce(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a VNF-ACL's `aclflow-announce` with a folder as its root, and with an `ip` and a `systemctl` of our own."""
    config = yaml.safe_load("write_files:\n" + (FOLDER / "acl-switch.cloud-config").read_text(encoding="utf-8"))
    (script,) = (each["content"] for each in config["write_files"] if each["path"].endswith("/aclflow-announce"))
    for name in ("etc/aclflow", "etc/bird", "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    moved = script.replace("/opt/aclflow/share/aclflow", str(FOLDER.parent / "packaging"))
    moved = moved.replace("/etc/", f"{folder}/etc/")
    for name in ("ip", "systemctl"):
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/said\n')
        program.chmod(0o755)
    path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", moved, "sh", *words], env=path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("router6", ["", "2001:db8:ff::1"])
def test_a_vnf_acl_with_a_routed_uplink_announces_by_the_shipped_example(tmp_path: Path, router6: str) -> None:
    ranges = "198.51.100.0/24,2001:db8::/48"
    done = announce(tmp_path, "fabric", ranges, "203.0.113.7", "24", "203.0.113.1", router6, "65001", "64999")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "ip address replace 203.0.113.7/24 dev uplink"
    assert said[1:] == ["systemctl enable --now aclflow-uplink", "systemctl enable bird", "systemctl restart bird"]
    (words,) = re.findall("ACLFLOW_ARGUMENTS=(.*)", (tmp_path / "etc/aclflow/aclflow-uplink.env").read_text())
    assert words.split() == [
        "--fabric", "uplink", "--range", "198.51.100.0/24", "--range", "2001:db8::/48"
    ]  # fmt: skip
    assert aclflow("uplink", "run", *words.split(), "--help").code == 0
    bird = (tmp_path / "etc/bird/bird.conf").read_text()
    assert "router id 203.0.113.7;" in bird
    assert "neighbor 203.0.113.1 as 65001;" in bird
    assert bird.count("64999") == 3, "its own number where it announces, and where it lengthens a path"
    assert (f"neighbor {router6} as 65001;" in bird) is bool(router6)
    assert "65009" not in bird
    assert "fd00:1::1" not in bird
    if shutil.which("bird"):
        subprocess.run(["bird", "-p", "-c", str(tmp_path / "etc/bird/bird.conf")], check=True)


@pytest.mark.parametrize("router6", ["", "fe80::9"])
def test_a_vnf_acl_on_a_segment_answers_there_and_sends_by_its_router(tmp_path: Path, router6: str) -> None:
    done = announce(tmp_path, "segment", "198.51.100.64/26", "198.51.100.7", "24", "198.51.100.1", router6, "1", "2")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "ip address replace 198.51.100.7/24 dev uplink"
    assert said[-1] == "systemctl enable --now aclflow-uplink", "and no BIRD"
    for family, router in (("-4", "198.51.100.1"), ("-6", router6)):
        added = [line for line in said if line.startswith(f"ip {family}") and " delete " not in line]
        assert added == ([
            f"ip {family} route replace default via {router} dev uplink table 101",
            f"ip {family} rule add iif up0 priority 100 lookup main suppress_prefixlength 0",
            f"ip {family} rule add iif up0 priority 101 lookup 101",
        ] if router else [])  # fmt: skip
    (words,) = re.findall("ACLFLOW_ARGUMENTS=(.*)", (tmp_path / "etc/aclflow/aclflow-uplink.env").read_text())
    assert words.split() == ["--segment", "uplink", "--range", "198.51.100.64/26"]
    assert aclflow("uplink", "run", *words.split(), "--help").code == 0
    assert list((tmp_path / "etc/bird").iterdir()) == []


def test_a_vnf_acl_in_front_of_an_edge_of_ours_announces_nothing(tmp_path: Path) -> None:
    assert announce(tmp_path, "fabric", "", "", "", "", "", "", "").returncode == 0
    assert not (tmp_path / "said").exists()
    assert list((tmp_path / "etc/bird").iterdir()) == []


def test_each_vnf_acl_has_a_leg_of_its_own_name() -> None:
    """Rows of a leg are live wherever a port of that name is: two of one name would deliver to the same endpoints."""
    params = read("acl-switch.yaml")["resources"]["server"]["properties"]["user_data"]["str_replace"]["params"]
    assert params["@leg@"] == {"list_join": ["-", ["tenants", {"get_param": "index"}]]}
