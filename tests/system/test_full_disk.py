"""A full disk stops writes, loudly, and nothing else: programs are read, and what was acknowledged stays."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from served import ServiceProcess
from store.postgres_cluster import Server, binaries

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.errors import Full, TryAgain
from orchestrator.identity.trail import Verifier
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.settings import Settings
from orchestrator.store.migrate import upgrade
from orchestrator.store.records import Role

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "aclflow-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def rules(count: int, port: int) -> Acl:
    rule = {"action": "permit", "protocol": "tcp", "destination_ports": port}
    listed = [{"id": f"r{number}", "source": f"192.0.{number % 250}.0/24", **rule} for number in range(count)]
    return acl_from_json({"rules": listed})


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"\0" * 65536)


def write_until_refused(client: Client, versions: list[int]) -> None:
    for port in range(1000, 1050):
        versions.append(client.acls.put("blue", rules(300, port)).version)  # noqa: PERF401 - those before the refusal count


def test_a_full_disk_stops_writes_and_says_so(small_disk: Path) -> None:
    process = ServiceProcess(small_disk)
    token = create_token(process.settings, Role.ADMIN).secret
    process.start()
    filler = small_disk / "filler"
    try:
        with Client(process.url, token) as admin:
            admin.domains.create("pop")
            admin.tenants.create("blue", domain="pop", prefixes=[Prefix.parse("10.0.0.0/16")])
            versions = [admin.acls.put("blue", rules(5, 80)).version]
            with pytest.raises(OSError, match="No space"):
                fill(filler)
            with pytest.raises(Full, match="disk of the store is full"):
                write_until_refused(admin, versions)
            kept = versions[-1]
            assert "is full" in process.log
            assert "error" in next(line for line in process.log.splitlines() if "is full" in line)
            assert admin.acls.read("blue").version == kept  # what was acknowledged is there, and can be read
            filler.unlink()
            assert admin.acls.put("blue", rules(3, 81)).version == kept + 1
            verifier = Verifier([*admin.audit.read_anchors()])
            entries = [*admin.audit.read_entries()]
            for entry in entries:
                verifier.read(entry)
            assert verifier.result().faults == ()
            assert [entry.detail["version"] for entry in entries if entry.kind == "acl.replaced"][-1] == kept + 1
    finally:
        process.kill()


@pytest.fixture
def small_server() -> Iterator[Server]:
    """A PostgreSQL whose files lie on a small disk."""
    if binaries() is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    place = Path(tempfile.mkdtemp(prefix="aclflow-pg-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "aclflow-test", str(place)], check=True)
    server = Server(place)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.clear()
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


def is_written(client: Client, acl: Acl) -> bool:
    try:
        client.acls.put("blue", acl)
    except TryAgain:
        return False
    return True


def test_a_full_disk_of_the_database_stops_writes_and_loses_nothing(small_server: Server, tmp_path: Path) -> None:
    """Whether PostgreSQL refuses a row or ends itself for want of room for its log, which it does, too."""
    url = small_server.cluster.create_database("small")
    upgrade(url)
    process = ServiceProcess(tmp_path, database_url=url)
    token = create_token(Settings(state_dir=tmp_path, database_url=url), Role.ADMIN).secret
    process.start()
    filler = small_server.directory / "filler"
    try:
        with Client(process.url, token) as admin:
            admin.domains.create("pop")
            admin.tenants.create("blue", domain="pop", prefixes=[Prefix.parse("10.0.0.0/16")])
            versions = [admin.acls.put("blue", rules(5, 80)).version]
            with pytest.raises(OSError, match="No space"):
                fill(filler)
            with pytest.raises(TryAgain):
                write_until_refused(admin, versions)
            filler.unlink()
            until(lambda: is_written(admin, rules(3, 81)))
            now = admin.acls.read("blue")
            assert now.acl == rules(3, 81)
            verifier = Verifier([*admin.audit.read_anchors()])
            entries = [*admin.audit.read_entries()]
            for entry in entries:
                verifier.read(entry)
            assert verifier.result().faults == ()
            written = [entry.detail["version"] for entry in entries if entry.kind == "acl.replaced"]
            assert written == list(range(versions[0], now.version + 1)), "each version is recorded, each once"
            assert set(versions) < set(written), "what was acknowledged is there"
    finally:
        process.kill()
