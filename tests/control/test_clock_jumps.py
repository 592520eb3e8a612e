"""Clocks that jump by an hour, forward and back, while services run: real processes under a clock that can be moved."""

from __future__ import annotations

import datetime as dt
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import until
from served import ServiceProcess
from store.postgres_cluster import Cluster, running

import orchestrator.lab.chaos
from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.errors import Conflict, Unauthenticated
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.settings import Settings
from orchestrator.store.migrate import upgrade
from orchestrator.store.records import Role

DOMAINS = ("d0",)
HOUR_S = 3600
CONFIRM_S = 10
SOON, LATER = dt.timedelta(minutes=30), dt.timedelta(days=30)


@dataclass(frozen=True)
class MovableClock:
    """A clock of some processes that may be ahead of the machine's (`lab/chaos/_native/clock.c`)."""

    file: Path
    library: Path

    def move(self, seconds: int) -> None:
        """Have it say so many seconds more, or less."""
        with self.file.open("r+b") as clock:
            clock.write(struct.pack("<q", seconds))

    def start(self, service: ServiceProcess) -> None:
        """Start a service under it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self.library))
            patch.setenv("CHAOS_CLOCK", str(self.file))
            service.start()


@pytest.fixture
def clock(tmp_path: Path) -> MovableClock:
    source = Path(orchestrator.lab.chaos.__file__).parent / "_native" / "clock.c"
    made = MovableClock(tmp_path / "clock", tmp_path / "clock.so")
    made.file.write_bytes(struct.pack("<q", 0))
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", made.library, source], check=True)
    return made


def rules_ending(**ends: dt.timedelta) -> Acl:
    """A list of one rule for each name, which ends so long from now."""
    now = dt.datetime.now(dt.UTC)
    rules = [
        {"id": name, "action": "permit", "protocol": "tcp", "expires": (now + end).isoformat()}
        for name, end in ends.items()
    ]
    return acl_from_json({"rules": rules})


def names(client: Client, tenant: str) -> list[str]:
    return [rule.id for rule in client.acls.read(tenant).acl.rules]


def is_known(service: ServiceProcess, token: str) -> bool:
    try:
        with Client(service.url, token) as client:
            client.read_status()
    except Unauthenticated:
        return False
    return True


def times(client: Client, tenant: str) -> list[dt.datetime]:
    """The times of a list's versions, the oldest first."""
    return [each.created for each in client.acls.read_versions(tenant)][::-1]


def test_a_service_alone_goes_on_and_its_time_never_goes_back(tmp_path: Path, clock: MovableClock) -> None:
    """It has no other clock: what ends within the hour ends early. Nothing that was over comes back."""
    service = ServiceProcess(tmp_path)
    token = create_token(service.settings, Role.ADMIN).secret
    short = create_token(service.settings, Role.ADMIN, expires=dt.datetime.now(dt.UTC) + SOON).secret
    clock.start(service)
    try:
        with Client(service.url, token) as client:
            client.domains.create("d")
            client.tenants.create("shop", domain="d", prefixes=[Prefix.parse("10.0.0.0/16")])
            client.acls.put("shop", rules_ending(soon=SOON, later=LATER))
            assert is_known(service, short)
            for ahead in (HOUR_S, 0, -HOUR_S, 0):
                clock.move(ahead)
                until(lambda: not is_known(service, short))
                until(lambda: names(client, "shop")[0] == "later")
                added = f"after{len(names(client, 'shop'))}"
                (rule,) = rules_ending(**{added: LATER}).rules
                generation = client.acls.insert_rule("shop", rule).generation
                assert client.points.watch_program("d", wait_s=30).generation >= generation
                assert client.is_ready("d")
            assert names(client, "shop") == ["later", "after1", "after2", "after3", "after4"]
            found = times(client, "shop")
            assert found == sorted(found)
    finally:
        service.kill()


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_an_unconfirmed_change_waits_for_its_time_over_a_jump(
    tmp_path: Path, clock: MovableClock, ahead_s: int
) -> None:
    """It goes back neither at once nor an hour late."""
    service = ServiceProcess(tmp_path)
    token = create_token(service.settings, Role.ADMIN).secret
    clock.start(service)
    try:
        wait_for_a_change_to_go_back(service, token, lambda: clock.move(ahead_s))
    finally:
        service.kill()


def wait_for_a_change_to_go_back(service: ServiceProcess, token: str, jump: Callable[[], None]) -> None:
    """Make a change that nobody confirms, let something happen, and see that it goes back in its time."""
    with Client(service.url, token) as client:
        client.domains.create("d")
        client.tenants.create("shop", domain="d", prefixes=[Prefix.parse("10.0.0.0/16")])
        client.acls.put("shop", rules_ending(before=LATER))
        begun = time.monotonic()
        client.acls.put("shop", rules_ending(after=LATER), confirm_s=CONFIRM_S)
        jump()
        until(lambda: names(client, "shop") == ["before"])
        assert time.monotonic() - begun > CONFIRM_S - 1


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_an_unconfirmed_change_waits_for_its_time_over_a_jump_of_the_databases_clock(
    tmp_path: Path, clock: MovableClock, ahead_s: int
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # the database's own user reads both files
        moved = MovableClock(folder / "clock", folder / "clock.so")
        moved.file.write_bytes(struct.pack("<q", 0))
        shutil.copy(clock.library, moved.library)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(moved.library))
            patch.setenv("CHAOS_CLOCK", str(moved.file))
            cluster = stack.enter_context(running())
        url = cluster.create_database("jumps")
        upgrade(url)
        service = ServiceProcess(tmp_path, database_url=url)
        stack.callback(service.kill)
        token = create_token(Settings(state_dir=tmp_path, database_url=url), Role.ADMIN).secret
        service.start()
        wait_for_a_change_to_go_back(service, token, lambda: moved.move(ahead_s))
        with cluster.connect("jumps") as connection:
            (now,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
        assert isinstance(now, dt.datetime)
        assert abs((now - dt.datetime.now(dt.UTC)).total_seconds() - ahead_s) < SOON.total_seconds()


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    services = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        services.append(ServiceProcess(tmp_path / name, database_url=url))
    yield services
    for service in services:
        service.kill()


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_of_services_on_one_database_one_clock_may_say_anything(
    url: str, cluster: Cluster, tmp_path: Path, clock: MovableClock, fleet: list[ServiceProcess], ahead_s: int
) -> None:
    """Ends of rules and tokens, and the time to confirm a change, are told by the database's clock."""
    settings = Settings(state_dir=tmp_path / "a", database_url=url)
    token = create_token(settings, Role.ADMIN).secret
    short = create_token(settings, Role.ADMIN, expires=dt.datetime.now(dt.UTC) + SOON).secret
    clock.start(fleet[0])
    fleet[1].start()
    with Client(fleet[0].url, token) as moved, Client(fleet[1].url, token) as right:
        right.acls.put("of-d0", rules_ending(soon=SOON), confirm_s=int(SOON.total_seconds()))
        clock.move(ahead_s)
        look = lookout(moved, right)
        for client in (moved, right):  # each service has looked at the time since
            until(look(client))
        assert is_known(fleet[0], short)
        assert is_known(fleet[1], short)
        assert "soon" in names(right, "of-d0")
        right.acls.confirm("of-d0")
        with pytest.raises(Conflict):
            moved.acls.confirm("of-d0")
        found = times(moved, "of-d0") + times(moved, "sign")
        assert max(found) - min(found) < SOON


def lookout(moved: Client, right: Client) -> Callable[[Client], Callable[[], bool]]:
    """Return what tells whether a rule that a service was given has ended."""
    right.tenants.create("sign", domain="d0", prefixes=[Prefix.parse("10.99.0.0/16")])

    def look(client: Client) -> Callable[[], bool]:
        client.acls.put("sign", rules_ending(sign=dt.timedelta(seconds=3), later=LATER))
        return lambda: names(moved, "sign") == names(right, "sign") == ["later"]

    return look
