"""Reports of counts: what is wrong with one is found before anybody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.control import counting
from orchestrator.control.counting import CountDesk
from orchestrator.errors import BadInput
from orchestrator.program.countframes import CountFrame, encode_frames
from orchestrator.program.counts import NO_COUNTS
from orchestrator.store import Store, open_store
from orchestrator.store.records import HostRecord
from orchestrator.store.transaction import StoreSettings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.db'}", settings=StoreSettings(busy_timeout_s=0.1))
    yield opened
    opened.close()


@pytest.fixture
def enforcer(store: Store) -> int:
    with store.write() as unit:
        unit.domains.create("pop")
        unit.domains.add_host("pop", HostRecord("h1", 1, "up"))
        token = unit.enforcers.invite("pop", expires=unit.now.replace(year=unit.now.year + 1), author="x")
        return unit.enforcers.enrol(token, name="one", kind="openflow").enforcer.id


def report(*hosts: str) -> bytes:
    return encode_frames([CountFrame(host, 1, NO_COUNTS, (), b"", whole=False) for host in hosts], 1)


@pytest.mark.parametrize("wrong", [b"nonsense", report("h1", "h1"), report("h1", "h2", "h3")])
def test_a_wrong_report_takes_nobodys_turn(
    store: Store, enforcer: int, wrong: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of frames of a few bytes a million may come: nobody writes while they are read."""
    monkeypatch.setattr(counting, "MOST_HOSTS", 2)
    with store.write(), pytest.raises(BadInput):
        CountDesk(store).take("pop", enforcer, 1, wrong)


def test_hosts_that_are_not_there_are_told_together(store: Store, enforcer: int) -> None:
    desk = CountDesk(store)
    with store.read() as unit:
        epoch = unit.enforcers.list("pop")[0].epoch
    desk.claim("pop", enforcer, "h1", epoch)
    assert desk.take("pop", enforcer, epoch, report("gone", "h1", "other")) == ("gone", "other")
