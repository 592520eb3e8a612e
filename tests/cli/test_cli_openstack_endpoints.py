"""`aclflow openstack endpoints` against a service, with an OpenStack in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cloud.test_endpoints import IDS, port
from command_line import Ended, aclflow
from served import Served, served

from orchestrator.cli import openstack as commands
from orchestrator.client import Host
from orchestrator.cloud.heat.fakeopenstack import FakeOpenStack
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Prefix


@dataclass
class Bench:
    """A tenant in a domain with two hosts, and what Nova has."""

    service: Served
    openstack: FakeOpenStack
    file: Path

    def run(self, *arguments: str) -> Ended:
        environment = {"ACLFLOW_URL": self.service.url, "ACLFLOW_TOKEN": self.service.token}
        command = ("openstack", "endpoints", "shop", "--cloud", str(self.file), *arguments)
        return aclflow(*command, environment=environment)

    def generation(self) -> int:
        with self.service.client() as client:
            return client.domains.read("pop1").generation

    def move(self, number: int, host: str) -> None:
        ports = self.openstack.tenants["shop"]
        ports[number] = replace(ports[number], host=host)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    file = tmp_path / "cloud.yaml"
    file.write_text(f"kind: heat\nenvironment: {tmp_path}/environment.yaml\ngroup_tokens: {tmp_path}\n")
    openstack = FakeOpenStack(tenants={"shop": [port(0), port(1, "two")]})
    monkeypatch.setattr(commands, "connect_openstack", lambda settings: openstack)
    with served(tmp_path / "state") as service, service.client() as client:
        client.domains.create("pop1")
        client.tenants.create("shop", domain="pop1", prefixes=[Prefix.parse("10.0.0.0/16")])
        for number, host in enumerate(("one", "two")):
            client.domains.add_host("pop1", Host(host, number + 1, "uplink"))
        yield Bench(service, openstack, file)


def test_machines_become_endpoints_and_go_again(bench: Bench) -> None:
    looked = bench.run("--json")
    assert looked.code == 1
    assert looked.json()["written"] == [IDS[0], IDS[1]]
    with bench.service.client() as client:
        assert client.domains.read_endpoints("pop1") == ()
        assert bench.run("--apply").code == 0
        assert [(each.name, each.port) for each in client.domains.read_endpoints("pop1")] == [
            (IDS[0], f"tap{IDS[0][:11]}"),
            (IDS[1], f"tap{IDS[1][:11]}"),
        ]
        assert bench.run().code == 0
        bench.openstack.tenants["shop"].pop()
        assert "is no port of OpenStack's any more" in bench.run("--apply").out
        assert [each.name for each in client.domains.read_endpoints("pop1")] == [IDS[0]]


def test_rows_and_columns_are_chosen(bench: Bench) -> None:
    assert bench.run("--apply").code == 0
    told = bench.run("--sort=-host", "-c", "host,state", "-o", "csv")
    assert (told.code, told.out.splitlines()) == (0, ["host,state", "two,known", "one,known"])
    assert [each["endpoint"] for each in bench.run("--filter", "host=two", "-o", "json").json()] == [IDS[1]]
    assert bench.run("-o", "yaml").out.startswith("endpoints:")


def test_a_migration_is_followed_and_changes_no_program(bench: Bench) -> None:
    assert bench.run("--apply").code == 0
    before = bench.generation()
    bench.move(0, "two")
    ended = bench.run("--apply", "--json")
    assert ended.code == 0
    assert {each["name"]: each["host"] for each in ended.json()["endpoints"]} == {IDS[0]: "two", IDS[1]: "two"}
    assert ended.json()["written"] == []
    assert bench.generation() == before
    bench.move(0, "elsewhere")
    ended = bench.run()
    assert ended.code == 1
    assert f"{IDS[0]} is on elsewhere, which is no host of the domain" in ended.err


def test_what_the_tenant_does_not_own_is_said_and_the_others_are_written(bench: Bench) -> None:
    foreign = replace(port(2), prefixes=(Prefix.parse("192.0.2.7/32"),))
    bench.openstack.tenants["shop"].insert(0, foreign)
    ended = bench.run("--apply", "--json")
    assert ended.code == 1
    assert "192.0.2.7" in ended.json()["refused"][IDS[2]]
    with bench.service.client() as client:
        assert [each.name for each in client.domains.read_endpoints("pop1")] == [IDS[0], IDS[1]]


def test_followed_it_tells_what_changes_and_bears_silence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def between(_seconds: float) -> None:
        looks.append("look")
        if len(looks) == 2:
            bench.move(0, "two")
        elif len(looks) == 3:
            bench.openstack.before["machine_ports"] = [Unreachable("Neutron does not answer")]
        elif len(looks) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands.time, "sleep", between)
    ended = bench.run("--apply", "--follow", "--every", "0.2")
    assert ended.code == 130
    assert "Neutron does not answer" in ended.err
    assert ended.out.count(IDS[1]) == 2  # at first, and as the other moved


def test_a_project_of_another_name_is_asked_for_and_missed(bench: Bench) -> None:
    ended = bench.run("--project", "nobodys")
    assert ended.code == 1
    assert "there is no project 'nobodys'" in ended.err


def test_machines_behind_legs_share_them_and_get_the_next_one_as_they_move(bench: Bench) -> None:
    bench.openstack.networks["segment"] = {IDS[0], IDS[1]}
    bench.openstack.tenants["shop"].append(port(2))
    legs = ("--leg", "one=tenants-0", "--leg", "two=tenants-1")
    for alone in (legs, ("--network", "segment")):
        assert "go together" in bench.run(*alone).err
    assert "only one leg" in bench.run("--leg", "a", "--leg", "b", "--network", "segment").err
    assert "there is no network 'other'" in bench.run(*legs, "--network", "other").err
    behind = (*legs, "--network", "segment")
    assert bench.run(*behind, "--json").json()["written"] == [IDS[0], IDS[1]]
    assert bench.run(*behind, "--apply").code == 0
    with bench.service.client() as client:

        def known() -> list[tuple[str, str, bool]]:
            return [(each.name, each.port, each.shared) for each in client.domains.read_endpoints("pop1")]

        assert known() == [(IDS[0], "tenants-0", True), (IDS[1], "tenants-1", True)]
        bench.move(0, "two")
        assert bench.run(*behind, "--apply").code == 0
        assert known() == [(IDS[0], "tenants-1", True), (IDS[1], "tenants-1", True)]
        bench.move(0, "elsewhere")
        ended = bench.run(*behind, "--apply")
        assert ended.code == 1
        assert f"{IDS[0]} is on elsewhere, which has no leg" in ended.err
        bench.openstack.tenants["shop"].pop(0)
        assert bench.run(*behind, "--apply").code == 0
        assert known() == [(IDS[1], "tenants-1", True)]
        bench.move(0, "")
        bench.openstack.tenants["shop"].pop()
        assert "these credentials see no hosts" in bench.run(*behind).err
