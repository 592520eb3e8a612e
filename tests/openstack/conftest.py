"""A real OpenStack for the tests of this folder: begun once, ended with them. They run with OPENSTACK=1 only.

`OPENSTACK_DIR` names a directory whose set-up is used if it runs, else begun, and stays in either case: beginning
takes about a minute. `PYTHONPATH=tests/openstack python -m allinone end DIRECTORY` ends it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from allinone.stack import AllInOne

WANTED = os.environ.get("OPENSTACK", "") not in ("", "0")
KEPT = os.environ.get("OPENSTACK_DIR", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without OPENSTACK=1 they are skipped, with a word."""
    if WANTED:
        return
    skipped = pytest.mark.skip(reason="a real OpenStack is begun with OPENSTACK=1 only (make test-openstack)")
    for item in items:
        if item.get_closest_marker("openstack"):
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def all_in_one() -> Iterator[AllInOne]:
    """Keystone, Glance, Placement, Neutron, Nova and Heat, on loopback."""
    if KEPT:
        here = AllInOne.in_directory(Path(KEPT).absolute())
        here.begin()
        yield here
        return
    directory = Path(tempfile.mkdtemp(prefix="aclflow-openstack-"))
    here = AllInOne.in_directory(directory)
    try:
        here.begin()
        yield here
    finally:
        here.end()
        shutil.rmtree(directory)
