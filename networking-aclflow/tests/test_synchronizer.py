"""What the worker makes of Neutron's database, in an order and with faults of our choice."""

from __future__ import annotations

import unittest

import world
from neutron.db import provisioning_blocks

from networking_aclflow import bindings, journal
from networking_aclflow.worker import Synchronizer


class Case(unittest.TestCase):
    """A database and a service, both empty, and a synchronizer between them."""

    def setUp(self) -> None:
        world.fresh_database()
        self.service = world.FakeService()
        self.one = Synchronizer(world.settings(), self.service)
        self.network, self.subnet = world.add_network("blue", "10.1.0.0/24")

    def work(self) -> None:
        self.one.work_off()

    def port(self, address: str, **more: object) -> str:
        return world.add_port("blue", self.network, self.subnet, address, **more)

    def prefixes(self, port: str) -> tuple[str, ...]:
        return self.service.held[port][0].prefixes


class TestPorts(Case):
    """Ports become endpoints, and cease to be."""

    def test_a_bound_port_becomes_an_endpoint_of_its_projects_tenant(self) -> None:
        port = self.port("10.1.0.5")
        self.work()
        found = self.service.held[port][0]
        assert (found.tenant, found.port, found.prefixes) == ("blue", f"tap{port}"[:14], ("10.1.0.5/32",))
        assert self.service.owned["blue"][0] == {"10.1.0.0/24"}
        assert world.journal_rows() == []

    def test_a_port_without_a_host_is_none(self) -> None:
        port = self.port("10.1.0.5", host="")
        self.work()
        assert port not in self.service.held

    def test_a_port_that_another_driver_bound_is_none(self) -> None:
        port = self.port("10.1.0.5", driver="openvswitch")
        self.work()
        assert port not in self.service.held

    def test_a_port_that_was_deleted_while_the_service_was_away_goes_when_it_is_back(self) -> None:
        port = self.port("10.1.0.5")
        self.work()
        self.service.away = True
        world.remove_port(port)
        self.one.step()
        assert port in self.service.held
        self.service.away = False
        self.one._again_at = 0
        self.one.step()
        assert port not in self.service.held

    def test_a_port_that_came_and_went_while_the_service_was_away_is_never_told(self) -> None:
        world.remove_port(self.port("10.1.0.5"))
        self.work()
        assert self.service.writes == []
        assert world.journal_rows() == []

    def test_rows_that_are_doubled_write_once(self) -> None:
        port = self.port("10.1.0.5")
        for _ in range(3):
            with world.writing() as session:
                journal.note(session, journal.PORT, port)
            self.work()
        assert self.service.writes == [f"put {port}"]

    def test_a_slow_server_cannot_bring_back_what_another_removed(self) -> None:
        port = self.port("10.1.0.5")

        def overtake() -> None:
            world.remove_port(port)
            other = self.service
            Synchronizer(world.settings(), other).work_off()
            assert port not in other.held

        self.work()
        with world.writing() as session:
            session.query(bindings.models_v2.Port).filter_by(id=port).one().mac_address = "fa:16:3e:ff:ff:ff"
            journal.note(session, journal.PORT, port)
        self.service.before_write.append(overtake)
        self.work()
        assert port not in self.service.held

    def test_a_row_that_comes_while_its_port_is_told_stays(self) -> None:
        port = self.port("10.1.0.5")

        def another() -> None:
            with world.writing() as session:
                journal.note(session, journal.PORT, port)

        self.service.before_write.append(another)
        self.work()
        assert world.journal_rows() == [("port", port, None)]

    def test_a_refusal_holds_up_nobody_else_and_is_kept_with_its_reason(self) -> None:
        first, second = self.port("10.1.0.5"), self.port("10.1.0.6")
        self.service.refuses.add(first)
        self.work()
        assert set(self.service.held) == {second}
        assert world.journal_rows() == [("port", first, "no")]
        self.service.refuses.clear()
        with world.writing() as session:
            session.query(journal.JournalRow).update({"due": journal._now()})
        self.work()
        assert set(self.service.held) == {first, second}


class TestAddresses(Case):
    """Whose an address is."""

    def test_of_ports_that_share_an_allowed_address_the_first_has_it_until_it_goes(self) -> None:
        first, second = (self.port(each, pairs=("10.1.0.9",)) for each in ("10.1.0.5", "10.1.0.6"))
        self.work()
        assert self.prefixes(first) == ("10.1.0.5/32", "10.1.0.9/32")
        assert self.prefixes(second) == ("10.1.0.6/32",)
        world.remove_port(first)
        with world.writing() as session:
            journal.note(session, journal.PORT, second)
        self.work()
        assert self.prefixes(second) == ("10.1.0.6/32", "10.1.0.9/32")

    def test_an_allowed_address_that_is_another_ports_own_stays_that_ones(self) -> None:
        port, other = self.port("10.1.0.5", pairs=("10.1.0.6",)), self.port("10.1.0.6")
        self.work()
        assert (self.prefixes(port), self.prefixes(other)) == (("10.1.0.5/32",), ("10.1.0.6/32",))

    def test_on_a_shared_network_a_project_owns_its_own_addresses_only(self) -> None:
        network, subnet = world.add_network("operator", "10.2.0.0/24", shared=True)
        for project, address in (("blue", "10.2.0.5"), ("red", "10.2.0.6")):
            world.add_port(project, network, subnet, address)
        self.work()
        assert self.service.owned["blue"][0] == {"10.1.0.0/24", "10.2.0.5/32"}
        assert self.service.owned["red"][0] == {"10.2.0.6/32"}
        with world.writing() as session:
            journal.note(session, journal.PROJECT, "operator")
        self.work()
        assert "operator" not in self.service.owned

    def test_a_prefix_that_a_rule_still_needs_holds_up_no_port(self) -> None:
        self.service.owned["blue"] = frozenset({"10.9.0.0/24"}), 1
        self.service.needed["blue"] = {"10.9.0.0/24"}
        port = self.port("10.1.0.5")
        self.work()
        assert self.service.owned["blue"][0] == {"10.1.0.0/24", "10.9.0.0/24"}
        other = self.port("10.1.0.6")
        self.work()
        assert set(self.service.held) == {port, other}
        assert world.journal_rows() == []

    def test_an_allowed_prefix_that_holds_another_ports_address_is_not_given(self) -> None:
        port, other = self.port("10.1.0.5", pairs=("10.1.0.16/28", "10.1.0.64/28")), self.port("10.1.0.20")
        self.work()
        assert self.prefixes(port) == ("10.1.0.5/32", "10.1.0.64/28")
        assert self.prefixes(other) == ("10.1.0.20/32",)

    def test_other_networks_own_nothing_here(self) -> None:
        world.add_network("blue", "10.3.0.0/24", physical="other")
        self.port("10.1.0.5")
        self.work()
        assert self.service.owned["blue"][0] == {"10.1.0.0/24"}


class TestComparison(Case):
    """All bindings beside all endpoints."""

    def test_what_no_row_names_is_found(self) -> None:
        port, gone = self.port("10.1.0.5"), world.new_id()
        with world.writing() as session:
            session.query(journal.JournalRow).delete()
        self.service.owned["blue"] = frozenset({"10.1.0.0/24"}), 1
        self.service.held[gone] = world.Endpoint(gone, "blue", "tapx", "fa:16:3e:00:00:01", ("10.1.0.8/32",)), 1
        self.service.held["by-hand"] = world.Endpoint("by-hand", "blue", "tapy", "fa:16:3e:00:00:02", ()), 1
        self.one.step()
        assert set(self.service.held) == {port, "by-hand"}


class TestPrefixes(unittest.TestCase):
    """Prefixes as sets of addresses."""

    def test_outermost_ones_are_kept(self) -> None:
        texts = ("10.0.0.0/25", "10.0.0.0/24", "10.0.0.7/32", "10.0.1.0/24", "2001:db8::/64", "2001:db8::1/128")
        assert list(map(str, bindings.outermost(texts))) == ["10.0.0.0/24", "10.0.1.0/24", "2001:db8::/64"]


class TestProvisioning(Case):
    """A port is released when its rows were read back on its host, and not before."""

    def test_only_where_it_is_and_only_when_nothing_is_pending(self) -> None:
        port = self.port("10.1.0.5")
        self.service.there = {"h1": {port}}
        self.one.release()
        assert world.blocked() == 1, "its row in the journal is pending"
        self.one._is_time = lambda host, ports: True
        self.work()
        self.service.there = {"h1": set(), "h2": {port}}
        self.one.release()
        assert world.blocked() == 1, "it is in force elsewhere"
        self.service.there = {"h1": {port}}
        self.one.release()
        assert world.blocked() == 0

    def test_the_block_of_an_agent_that_never_sees_the_port_ends_with_ours(self) -> None:
        """ML2/OVS adds it where its agent runs on the same host."""
        port = self.port("10.1.0.5")
        world.add_block(port, provisioning_blocks.L2_AGENT_ENTITY)
        self.work()
        self.one.release()
        assert world.blocked() == 2, "it was not read back"
        self.one._is_time = lambda host, ports: True
        self.service.there = {"h1": {port}}
        self.one.release()
        assert world.blocked() == 0

    def test_a_port_that_goes_elsewhere_meanwhile_stays_held_back(self) -> None:
        """The block may be the next host's, by the time the service has answered about the one before."""
        port = self.port("10.1.0.5")
        self.work()

        def move(_domain: str, host: str) -> frozenset[str]:
            world.move_port(port, "h2")
            return frozenset({port})

        self.service.in_force = move
        self.one.release()
        assert world.blocked() == 1


if __name__ == "__main__":
    unittest.main()
