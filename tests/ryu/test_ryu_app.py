"""The same application under ryu 4.34: the same tests as under os-ken, and one real switch from end to end."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
from enforce.dummy_ovs import DummyOvs, missing
from enforce.launched import *  # noqa: F403  # its fixtures
from enforce.programs import change, large_program, program, rule
from enforce.test_openflow_streams import *  # noqa: F403  # every test of the connections
from enforce.test_openflow_tls import *  # noqa: F403  # and of those over TLS
from enforce.test_osken_launcher import *  # noqa: F403  # every test of the launcher and the application
from enforce.tls_links import *  # noqa: F403  # its fixtures
from patience import PATIENCE_S

from orchestrator.enforce.drivers.openflow import compat
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.standing import Goal, Point, Timing
from orchestrator.wire.points import PointState


class OneSwitch:
    """An observer with one loop."""

    def __init__(self) -> None:
        self.points: queue.Queue[Point] = queue.Queue()
        self.loop = Loop("host1", self.points.put, lambda *_: None, timing=Timing())
        self.device: Switch | None = None

    def switch_connected(self, channel: Channel) -> None:
        self.device = Switch(channel, uplink="p2")
        self.loop.attach(self.device)

    def switch_disconnected(self, channel: Channel) -> None:
        if self.device is not None:
            self.loop.detach(self.device)

    def ports_changed(self, channel: Channel) -> None:
        if self.device is not None:
            self.loop.ports_changed(self.device)

    def links_changed(self, channel: Channel) -> None:
        """No port is down here."""

    def switch_demoted(self, channel: Channel) -> None:
        if self.device is not None:
            self.loop.give_way(self.device)

    def seen(self, channel: Channel, message: bytes) -> None:
        """Nothing logs here."""

    def wait(self, generation: int) -> None:
        point = Point("", PointState.APPLYING)
        while (point.state, point.generation) != (PointState.ENFORCED, generation):
            point = self.points.get(timeout=PATIENCE_S)


@pytest.fixture
def ovs(tmp_path: Path) -> Iterator[DummyOvs]:
    if missing():
        pytest.skip(str(missing()))
    ovs = DummyOvs(tmp_path)
    yield ovs
    ovs.close()


def test_this_is_ryu() -> None:
    assert compat.PROJECT == "ryu"


@pytest.mark.system
def test_a_real_switch_is_brought_to_its_program_and_back_after_its_death(ovs: DummyOvs) -> None:
    site = OneSwitch()
    launcher = Launcher(Listen("127.0.0.1", 0), site)
    launcher.start()
    site.loop.lead(1)
    site.loop.start()
    ovs.add_bridge("host1", datapath_id=0x11, ports=("p1", "p2"))
    ovs.set_controllers("host1", f"tcp:127.0.0.1:{launcher.port}")
    first, second = program([rule(1)]), program([rule(1), rule(2)], generation=2)
    site.loop.aim(Goal(first))
    site.wait(1)
    site.loop.aim(Goal(first).followed_by(second, change(first, second)))
    site.wait(2)
    assert sum("tcp" in flow for flow in ovs.flows("host1")) == 2
    large = large_program(5000, generation=3)
    site.loop.aim(Goal(large))
    site.wait(3)
    ovs.kill_switch()
    ovs.start_switch()
    site.wait(3)
    assert sum("tcp" in flow for flow in ovs.flows("host1")) == 5000
    site.loop.stop()
    launcher.stop()
    assert launcher.faults == 0
