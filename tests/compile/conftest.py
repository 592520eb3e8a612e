"""One real switch a module, with a bridge whose rows are all sent anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enforce.dummy_ovs import DummyOvs
from traced_switch import Bridge


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummyOvs]:
    switch = DummyOvs(tmp_path_factory.mktemp("ovs"))
    try:
        switch.add_bridge("br0", datapath_id=1, ports=("up0", "a0", "b0", "c0", "d0"))
        switch.ofctl("set-frags", "br0", "nx-match")
        yield switch
    finally:
        switch.close()


@pytest.fixture
def bridge(ovs: DummyOvs) -> Iterator[Bridge]:
    found = Bridge(ovs.directory / "br0.mgmt")
    yield found
    found.close()
