"""Health checks of a spreading switch's ports: what is set, what is lacking, which ports buckets watch."""

from __future__ import annotations

import pytest

from orchestrator.hosts.healthchecks import BFD, PortCheck, watched_ports

GROUPS = """
NXST_GROUP_DESC reply (OF1.5) (xid=0x2):
 group_id=1,type=select,selection_method=hash,fields(ip_src,ip_dst),bucket=bucket_id:0,watch_port:3,actions=output:3,\
bucket=bucket_id:1,watch_port:15,actions=output:15,bucket=bucket_id:2,actions=drop
 group_id=2,type=select,bucket=bucket_id:0,watch_port:4,actions=output:4,bucket=bucket_id:1,watch_port:3,actions=output:3
"""


@pytest.mark.parametrize(
    "settings",
    [{}, {"enable": "false"}, {**BFD, "mult": "3"}, {key: BFD[key] for key in BFD if key != "min_rx"}],
    ids=["nothing", "off", "too soon", "one lacks"],
)
def test_what_lacks_is_set_by_one_command_that_keeps_the_rest(settings: dict[str, str]) -> None:
    before = PortCheck("fw1-left", {**settings, "bfd_local_dst_mac": "02:00:00:00:00:01"})
    assert not before.is_asked
    [(verb, table, port, *changes)] = before.commands()
    assert (verb, table, port) == ("set", "interface", "fw1-left")
    assert all(change.startswith("bfd:") for change in changes), "a key at a time: other keys of the column stay"
    after = dict(before.settings) | dict(change.removeprefix("bfd:").split("=") for change in changes)
    assert PortCheck("fw1-left", after).commands() == ()
    assert after["bfd_local_dst_mac"] == "02:00:00:00:00:01"


@pytest.mark.parametrize(("state", "is_up"), [("up", True), ("init", False), ("down", False)])
def test_a_firewall_is_well_where_the_switch_finds_it_so(state: str, is_up: bool) -> None:
    assert PortCheck("fw1-left", BFD, {"state": state}).is_up is is_up


def test_a_port_that_is_not_asked_is_not_found_well() -> None:
    assert not PortCheck("fw1-left").is_up


def test_watched_ports_are_those_of_all_buckets_of_all_groups() -> None:
    assert watched_ports(GROUPS.splitlines()) == {3, 4, 15}
    assert watched_ports(["group_id=1,type=select,bucket=bucket_id:0,actions=output:3"]) == set()
