"""Every test that takes `store` or `address` runs twice: on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from store.postgres_cluster import Cluster, running

from orchestrator.store import Store, open_store
from orchestrator.store.migrate import upgrade
from orchestrator.store.schema.core import metadata

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running() as started:
        upgrade(started.create_database("migrated"))
        yield started


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("template") / "store.db"
    upgrade(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture(params=DATABASES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a fresh database with the schema in place."""
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        path.write_bytes(request.getfixturevalue("sqlite_template"))
        yield f"sqlite:///{path}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    yield wiped(cluster)


def wiped(cluster: Cluster) -> str:
    """The cluster's one database with the schema, emptied: a new one for each test would take ten times as long."""
    address = cluster.url("migrated")
    engine = create_engine(address)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    engine.dispose()
    return address


class FakeWall:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now

    def move(self, **difference: float) -> None:
        self.now += dt.timedelta(**difference)


@pytest.fixture
def wall() -> FakeWall:
    return FakeWall()


@pytest.fixture
def open_another(address: str, wall: FakeWall) -> Iterator[Callable[..., Store]]:
    """Opens further stores on the same database: what another process would see."""
    opened: list[Store] = []

    def opener(**options: object) -> Store:
        opened.append(open_store(address, clock=wall, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_another: Callable[..., Store]) -> Store:
    return open_another()
