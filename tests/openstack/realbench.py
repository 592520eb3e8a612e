"""A fleet in the real OpenStack, and what somebody else may do to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from allinone.contents import FLAVOR, IMAGE, PROJECT, USER, connect
from allinone.place import PASSWORD, REGION, Place

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.cloud.heat.openstack import OpenStackClient
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import TryAgain

_QUIET = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning")
"""openstacksdk warns of its own ways."""
PATIENCE_S = 600.0
"""A loaded machine takes long; a change takes ten seconds on one at rest."""
REAL = [pytest.mark.system, pytest.mark.openstack, pytest.mark.timeout(6 * PATIENCE_S), _QUIET]
"""What every test over a real OpenStack is marked with: it waits for several things, the first also for the set-up."""
_UNDER_WAY = {VnfState.COMING, VnfState.LEAVING}


def settings_for(place: Place, folder: Path, **parameters: object) -> HeatSettings:
    """What an operator would write: clouds.yaml, an environment file, a group token."""
    auth = {"auth_url": place.keystone, "username": USER, "password": PASSWORD, "project_name": PROJECT}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    clouds = {"clouds": {"here": {"auth": auth | domains, "region_name": REGION}}}
    networks = {"management_network": "management", "left_network": "left", "right_network": "right"}
    chosen = {"image": IMAGE, "flavor": FLAVOR, **networks, **parameters}
    (folder / "clouds.yaml").write_text(yaml.safe_dump(clouds))
    (folder / "environment.yaml").write_text(yaml.safe_dump({"parameters": chosen}))
    for group in ("pop1", "pop2"):
        (folder / f"{group}.token").write_text("a-token-for-nobody\n")
    return HeatSettings.read(
        {
            "kind": "heat",
            "cloud": "here",
            "clouds_file": str(folder / "clouds.yaml"),
            "environment": str(folder / "environment.yaml"),
            "group_tokens": str(folder),
            "request_s": 60,
        }
    )


def until(what: str, is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so, asking gently."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not so after {within_s:.0f} s"
        time.sleep(1.5)


@dataclass
class RealBench:
    """See `cloud.contract_heat.Bench`."""

    place: Place
    settings: HeatSettings
    fleet: str = "pop1"

    def __post_init__(self) -> None:
        self.openstack = OpenStackClient(self.settings)
        self.cloud = HeatCloud(self.settings, self.openstack)
        self.user = connect(self.place)
        self.admin = connect(self.place, "admin", PROJECT)

    def settle(self) -> tuple[Vnf, ...]:
        seen: list[tuple[Vnf, ...]] = []

        def is_settled() -> bool:
            try:
                seen.append(self.cloud.list(self.fleet))
            except TryAgain:  # a loaded machine loses an answer now and then; the loop asks again too
                return False
            return not _UNDER_WAY & {vnf.state for vnf in seen[-1]} and not self._is_busy()

        until("the fleet", is_settled)
        return seen[-1]

    @contextmanager
    def no_host(self) -> Iterator[None]:
        services = list(self.admin.compute.services(binary="nova-compute"))
        for service in services:
            self.admin.compute.disable_service(service)
        try:
            yield
        finally:
            for service in services:
                self.admin.compute.enable_service(service)

    @contextmanager
    def full(self) -> Iterator[None]:
        project = self.user.session.get_project_id()
        self.admin.set_compute_quotas(project, instances=self.machines())
        try:
            yield
        finally:
            self.admin.delete_compute_quotas(project)

    def resize_group(self, by: int) -> None:
        stack = self.openstack.stack(self.settings.stack_name(self.fleet))
        assert stack is not None
        self.openstack.update_stack(stack, {"count": int(stack.parameters["count"]) + by})
        until("the group", lambda: not self._is_busy())

    def lose_machine(self, vnf: Vnf) -> None:
        self.user.compute.delete_server(vnf.instance_id)
        until("Nova", lambda: self.user.compute.find_server(vnf.instance_id) is None)

    def machines(self) -> int:
        return len(list(self.user.compute.servers(details=False)))

    def is_empty(self) -> bool:
        """Whether nothing is left of anything."""
        return not (list(self.user.compute.servers(details=False)) or list(self.user.network.ports()))

    def _is_busy(self) -> bool:
        stack = self.openstack.stack(self.settings.stack_name(self.fleet))
        return stack is not None and stack.standing.status.value == "IN_PROGRESS"
