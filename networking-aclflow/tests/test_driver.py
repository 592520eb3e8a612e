"""What the driver makes of a port's changes, in the transaction in which Neutron makes them."""

from __future__ import annotations

import types
import unittest

import world
from neutron.db import models_v2
from neutron_lib import context as n_context
from neutron_lib.db import api as db_api

from networking_aclflow.driver import AclflowMechanismDriver, RefusedByAclflow


class TestStatus(unittest.TestCase):
    """A status that Neutron decided on may be late: the port went to another host meanwhile."""

    def setUp(self) -> None:
        world.fresh_database()
        self.driver = AclflowMechanismDriver()
        self.driver._networks, self.driver._settings = frozenset({world.PHYSICAL}), world.settings()
        self.network, subnet = world.add_network("blue", "10.1.0.0/24")
        self.port = world.add_port("blue", self.network, subnet, "10.1.0.5")

    def update(self, status: str, before: str, *, host_before: str = "h1") -> None:
        """Have Neutron write a port's status, as it is after another one and another host."""
        context = n_context.get_admin_context()
        with db_api.CONTEXT_WRITER.using(context):
            context.session.query(models_v2.Port).filter_by(id=self.port).one().status = status
            context.session.flush()
            state = {"id": self.port, "project_id": "blue", "network_id": self.network, "device_owner": ""}
            change = types.SimpleNamespace(
                current={**state, "status": status, "mac_address": "fa:16:3e:00:00:01"},
                original={**state, "status": before, "mac_address": "fa:16:3e:00:00:01"},
                host="h1",
                original_host=host_before,
                network=types.SimpleNamespace(network_segments=[{"physical_network": world.PHYSICAL}]),
                _plugin_context=context,
            )
            self.driver.update_port_precommit(change)

    def test_a_port_that_is_held_back_does_not_become_active(self) -> None:
        with self.assertRaisesRegex(RefusedByAclflow, "not in force yet on h1"):  # noqa: PT027 - without pytest there
            self.update("ACTIVE", "DOWN")
        assert world.status_of(self.port) == "DOWN"

    def test_a_port_that_nothing_holds_back_becomes_active(self) -> None:
        world.remove_blocks(self.port)
        self.update("ACTIVE", "DOWN")
        assert world.status_of(self.port) == "ACTIVE"

    def test_a_port_that_became_active_before_it_goes_to_another_host_is_down_there(self) -> None:
        world.remove_blocks(self.port)
        self.update("ACTIVE", "ACTIVE", host_before="h2")
        assert world.status_of(self.port) == "DOWN"
        assert world.blocked() == 1

    def test_an_active_port_stays_so_while_it_stays_where_it_is(self) -> None:
        self.update("ACTIVE", "ACTIVE")
        assert world.status_of(self.port) == "ACTIVE"


if __name__ == "__main__":
    unittest.main()
