"""Two services on one PostgreSQL: what one commits, the other publishes, without anybody asking for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from patience import until
from store.postgres_cluster import binaries, running

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.policy.addresses import EVERY_IPV4
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.store import Store, open_store
from orchestrator.store.migrate import upgrade


@dataclass(frozen=True)
class Replica:
    store: Store
    control: Control
    publisher: Publisher

    def generation(self) -> int:
        program = self.publisher.program("pop")
        return program.generation if program else 0


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Replica]]:
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    with running(programs) as cluster:
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
