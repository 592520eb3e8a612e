"""A virtual machine that Nova moves to another host: `aclflow openstack endpoints` follows, and no program changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from allinone.contents import FLAVOR, IMAGE, PROJECT
from allinone.stack import AllInOne
from command_line import Ended, aclflow
from realbench import REAL, RealBench, settings_for, until
from served import Served, served

from orchestrator.client import Host
from orchestrator.policy.addresses import Prefix

pytestmark = REAL

LEFT = Prefix.parse("10.92.0.0/24")


@pytest.fixture(scope="module")
def bench(all_in_one: AllInOne, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBench]:
    """A cloud with two hosts, and an operator's files with an administrator's entry."""
    folder = tmp_path_factory.mktemp("cloud")
    made = RealBench(all_in_one.place, settings_for(all_in_one.place, folder))
    clouds = yaml.safe_load((folder / "clouds.yaml").read_text())
    here = clouds["clouds"]["here"]
    clouds["clouds"]["admin"] = here | {"auth": here["auth"] | {"username": "admin"}}
    (folder / "clouds.yaml").write_text(yaml.safe_dump(clouds))
    files = f"environment: {folder}/environment.yaml\ngroup_tokens: {folder}\nclouds_file: {folder}/clouds.yaml\n"
    (folder / "cloud.yaml").write_text(f"kind: heat\ncloud: here\nrequest_s: 60\n{files}")
    all_in_one.add_host("two")
    until("a second host", lambda: len(list(made.admin.compute.hypervisors())) == 2)
    yield made
    made.cloud.close()


@pytest.fixture(scope="module")
def machine(bench: RealBench) -> Iterator[Any]:
    """A tenant's virtual machine."""
    user = bench.user
    network = user.network.find_network("left")
    port = user.network.create_port(network_id=network.id)
    made = user.compute.create_server(
        name="web",
        image_id=user.image.find_image(IMAGE).id,
        flavor_id=user.compute.find_flavor(FLAVOR).id,
        networks=[{"port": port.id}],
    )
    until("the machine", lambda: user.compute.get_server(made.id).status == "ACTIVE")
    yield made
    user.compute.delete_server(made.id, ignore_missing=True)
    until("the machine's end", lambda: user.compute.find_server(made.id) is None)
    user.network.delete_port(port.id)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The tenant's domain, whose hosts are those of the cloud."""
    with served(tmp_path_factory.mktemp("service")) as found, found.client() as client:
        client.domains.create("pop1")
        client.tenants.create(PROJECT, domain="pop1", prefixes=[LEFT])
        for number, host in enumerate(("one", "two")):
            client.domains.add_host("pop1", Host(host, number + 1, "uplink"))
        yield found


def test_it_is_followed_from_host_to_host_and_out_of_the_domain(
    bench: RealBench, machine: Any, service: Served
) -> None:
    def look(*more: str) -> Ended:
        environment = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
        file = bench.settings.group_tokens / "cloud.yaml"
        return aclflow("openstack", "endpoints", PROJECT, "--cloud", str(file), *more, environment=environment)

    def host_seen() -> str:
        [seen] = look("--os-cloud", "admin", "--json").json()["endpoints"]
        return str(seen["host"])

    assert look("--apply", "--os-cloud", "admin").code == 0
    with service.client() as client:
        [endpoint] = client.domains.read_endpoints("pop1")
        before = client.domains.read("pop1").generation
    assert LEFT.contains(endpoint.prefixes[0])
    first = host_seen()
    other = "two" if first == "one" else "one"
    bench.admin.compute.live_migrate_server(machine.id, host=None, block_migration="auto")
    until(f"the machine on {other}", lambda: host_seen() == other)
    assert look("--apply", "--os-cloud", "admin").code == 0
    with service.client() as client:
        assert client.domains.read_endpoints("pop1") == (endpoint,)
        assert client.domains.read("pop1").generation == before

        client.domains.remove_host("pop1", other)
        ended = look("--os-cloud", "admin")
        assert ended.code == 1
        assert f"is on {other}, which is no host of the domain" in ended.err
        assert look().code == 0  # who is no administrator is not told where it is
        assert "not told" in look().out

        bench.user.compute.delete_server(machine.id)
        until("the machine's end", lambda: bench.user.compute.find_server(machine.id) is None)
        assert look("--apply").code == 0
        assert client.domains.read_endpoints("pop1") == ()


def test_a_project_that_is_not_there_is_said(bench: RealBench, service: Served) -> None:
    environment = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token}
    file = bench.settings.group_tokens / "cloud.yaml"
    words = ("openstack", "endpoints", PROJECT, "--cloud", str(file), "--project", "nobodys")
    for entry in ("here", "admin"):
        ended = aclflow(*words, "--os-cloud", entry, environment=environment)
        assert ended.code == 1
        assert "there is no project 'nobodys'" in ended.err
