"""A cloud in which instances run, for the tests of this folder. They run with INSTANCES=1 only.

`INSTANCES_DIR` names a directory whose cloud runs already (`PYTHONPATH=tests/openstack python -m twohosts begin
DIRECTORY`); it is used, and stays.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from instances.looking import LONG_S, fetches
from patience import until
from twohosts import example, network
from twohosts.addresses import PREFIX
from twohosts.cloud import Cloud
from twohosts.example import Instance

WANTED = os.environ.get("INSTANCES", "") not in ("", "0")
KEPT = os.environ.get("INSTANCES_DIR", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without INSTANCES=1 they are skipped, with a word."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.timeout(3600))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
            )
            if not WANTED:
                item.add_marker(pytest.mark.skip(reason="instances run with INSTANCES=1 only (make test-cloud)"))


@pytest.fixture(scope="session")
def cloud() -> Iterator[Cloud]:
    """OpenStack, two compute hosts, a router, and aclflow."""
    if KEPT:
        yield Cloud.in_directory(Path(KEPT).absolute())
        return
    directory = Path(tempfile.mkdtemp(prefix="aclflow-cloud-", dir="/var/tmp"))
    network.create(PREFIX)
    try:
        made = Cloud.in_directory(directory)
        made.begin()
        yield made
    finally:
        Cloud.in_directory(directory).end()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def instances(cloud: Cloud) -> Iterator[dict[str, Instance]]:
    """`shop` of blue on one, `base` of red on two."""
    begun = example.begin(cloud)
    yield begun
    for each in begun.values():
        each.project.cloud.compute.delete_server(each.server)


@pytest.fixture(scope="session")
def shop(instances: dict[str, Instance]) -> Instance:
    return instances["shop"]


@pytest.fixture(scope="session")
def base(instances: dict[str, Instance]) -> Instance:
    return instances["base"]


@pytest.fixture(scope="module")
def near(cloud: Cloud, shop: Instance) -> Iterator[Instance]:
    """Another instance of `shop`'s network, on the same host."""
    booted = example.boot(cloud, shop.project, "near", "one")
    until(lambda: fetches(cloud, booted.address), LONG_S)
    yield booted
    shop.project.cloud.compute.delete_server(booted.server)
    until(lambda: booted.address not in cloud.announced(), LONG_S)
