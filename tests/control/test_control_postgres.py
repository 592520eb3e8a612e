"""Two services on one PostgreSQL: what one commits, the other publishes, without anybody asking for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from patience import until
from served import Served, served
from store.postgres_cluster import Cluster

from orchestrator.client import PointReport
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.pops.manager import key_of
from orchestrator.control.publisher import Publisher
from orchestrator.policy.addresses import EVERY_IPV4, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store import Store, open_store
from orchestrator.store.migrate import upgrade
from orchestrator.wire.enrolment import Enrolment


@dataclass(frozen=True)
class Replica:
    store: Store
    control: Control
    publisher: Publisher

    def generation(self) -> int:
        program = self.publisher.program("pop")
        return program.generation if program else 0


@pytest.fixture(scope="module")
def replicas(cluster: Cluster) -> Iterator[list[Replica]]:
    url = cluster.create_database("replicas")
    upgrade(url)
    made = []
    for _ in range(2):
        store, publisher = open_store(url), Publisher()
        made.append(Replica(store, Control(store, Compiler(Metrics()), publisher), publisher))
    for replica in made:
        replica.control.start()
    yield made
    for replica in made:
        replica.control.stop()
        replica.store.close()


def wait_for(replica: Replica, generation: int) -> None:
    until(lambda: replica.generation() >= generation, what=lambda: f"it is at {replica.generation()}, not {generation}")


def test_what_one_replica_commits_the_other_publishes(replicas: list[Replica]) -> None:
    first, second = replicas
    first.control.write(lambda unit: unit.domains.create("pop"))
    first.control.write(lambda unit: unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4]))
    for writer, reader in ((first, second), (second, first), (first, second)):
        rules = [{"id": "r", "action": "permit", "protocol": "tcp", "destination_ports": 1 + writer.generation()}]
        acl = acl_from_json({"rules": rules})
        change = writer.control.write(lambda unit, acl=acl: unit.acls.replace("all", acl, author="test"))  # type: ignore[misc]
        assert writer.generation() == change.generation
        wait_for(reader, change.generation)
        programs = [replica.publisher.program("pop") for replica in replicas]
        assert programs[0] is not None
        assert programs[1] is not None
        assert programs[0].digest == programs[1].digest


def _read_back(here: Served, server: str, agent: Enrolment, generation: int) -> bool:
    """A firewall server's agent says that it holds what it was sent; whether that is of a generation, or later."""
    program = here.service.parts.control.tiers.servers.publisher.program(key_of("pop", server))
    assert program is not None
    told = PointReport(server, program.generation, program.digest, "enforced")
    with here.client(agent.token) as client:
        client.points.report("pop", agent.enforcer, points=[told])
    return program.generation >= generation


def test_a_change_that_is_one_servers_alone_is_enforced(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is vouched for where services share a database, so the other server must be asked, too."""
    url = cluster.create_database("servers")
    upgrade(url)
    with served(tmp_path, database_url=url) as here, here.client() as admin:
        admin.domains.create("pop")
        admin.tenants.create("shop", domain="pop", prefixes=[Prefix.parse("198.51.100.0/24")])
        admin.pops.add("pop", "pop", ("outside",))
        agents = {}
        for number, server in enumerate(("fs1", "fs2"), 1):
            admin.firewalls.add("pop", server, "nftables")
            admin.pops.add_server("pop", server, f"to-{server}", f"0a:00:00:00:03:{number:02x}")
            agents[server] = admin.enrolment.enrol(admin.enrolment.invite("pop"), name=server, kind="nftables")
        admin.pops.place_tenants("pop", {"shop": "fs1"})
        for port in (80, 81, 82):
            rules = [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": port}]
            changed = admin.acls.put("shop", acl_from_json({"rules": rules}))
            for server, agent in agents.items():
                until(partial(_read_back, here, server, agent, changed.generation))
            assert admin.domains.wait_until_enforced("pop", changed.generation).done
