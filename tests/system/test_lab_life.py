"""A lab comes up, works, and goes without a trace: also one that was killed while it was being built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from system.leftovers import leftovers

from orchestrator.errors import BadInput, Conflict, Missing, NotFound, Refused
from orchestrator.lab import namespaces, network, pop, processes, specfile
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.sockets import Conversation, converse
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

REPO = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab(layout: Layout) -> Lab:
    return pop.up(layout, specfile.load())


def ports_of(lab: Lab, bridge: str) -> set[str]:
    return set(lab.ovs_of(bridge).vsctl("list-ports", bridge).split())


def everybody(protocol_of: dict[Family, int]) -> list[Conversation]:
    """Alice talks to everybody."""
    return [
        Conversation("alice", server, family, protocol, 8080)
        for server in ("mallory", "web1", "db1", "bank1", "bank2")
        for family, protocol in protocol_of.items()
    ]


def test_clients_talk_and_nobody_reaches_an_endpoint_before_a_program_says_so(lab: Lab) -> None:
    same = {family: protocol for family in Family for protocol in [TCP]}
    for protocols in (same, dict.fromkeys(Family, UDP), {Family.IPV4: ICMP, Family.IPV6: ICMPV6}):
        tried = everybody(protocols)
        answered = [item.server for item, outcome in zip(tried, converse(lab, tried), strict=True) if outcome.answered]
        assert answered == ["mallory", "mallory"]


def test_a_volley_is_lossless(lab: Lab) -> None:
    alice, mallory = (lab.spec.node(name).addresses[0].network for name in ("alice", "mallory"))
    packets = [Packet(Family.IPV4, alice, mallory, UDP, port, 9) for port in range(1, 2001)]
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, "alice", packet) for packet in packets])
    assert [landing.nodes for landing in landed] == [("mallory",)] * 2000
    assert landed[7].frame[:12].hex(":") == "0a:ac:1f:02:00:02:0a:ac:1f:00:00:01"


def test_the_frames_of_an_unprogrammed_host_go_nowhere(lab: Lab) -> None:
    web, mallory = (lab.spec.node(name).addresses[0].network for name in ("web1", "mallory"))
    with Wire(lab) as wire:
        assert wire.fire([shot(lab, "web1", Packet(Family.IPV4, web, mallory, UDP, 9, 9))])[0].nodes == ()


def test_the_edge_drops_a_tenants_address_that_comes_from_outside(lab: Lab) -> None:
    web, alice, mallory = (lab.spec.node(name).addresses[1].network for name in ("web1", "alice", "mallory"))
    with Wire(lab) as wire:
        landed = wire.fire(
            [shot(lab, "mallory", Packet(Family.IPV6, source, alice, UDP, 9, 9)) for source in (mallory, web)]
        )
    assert [landing.nodes for landing in landed] == [("alice",), ()]


def test_switches_are_set_up_as_a_controller_expects(lab: Lab) -> None:
    address, port = lab.controller_address
    for host in lab.spec.hosts:
        ovs = lab.ovs_of(host.name)
        bridge = ovs.vsctl("--columns=datapath_id,datapath_type,fail_mode,protocols", "list", "bridge", host.name)
        assert host.datapath_id in bridge
        assert all(word in bridge for word in ("netdev", "secure", "OpenFlow15"))
        assert ovs.vsctl("get-controller", host.name).strip() == f"tcp:{address}:{port}"
    ports = {bridge: ports_of(lab, bridge) for bridge in ("edge", "host1", "host2")}
    assert ports == {
        "edge": {"cl-alice", "cl-mallory", "to-router"},
        "host1": {"web1", "bank1", "up0"},
        "host2": {"db1", "bank2", "up0"},
    }


def test_an_endpoint_moves_between_hosts(lab: Lab) -> None:
    lab.move_endpoint("web1", "host2")
    assert ports_of(lab, "host2") == {"db1", "bank2", "up0", "web1"}
    assert "web1" not in ports_of(lab, "host1")
    assert pop.find(lab.layout).spec.endpoint("web1").host == "host2"
    lab.move_endpoint("web1", "host1")
    assert "web1" in ports_of(lab, "host1")
    with pytest.raises(NotFound, match="host9"):
        lab.move_endpoint("web1", "host9")


def test_an_endpoint_moves_between_hosts_with_private_links() -> None:
    layout = Layout("actest2-")
    pop.down(layout)
    with pop.temporary(layout, specfile.load().with_uplinks(routed=False)) as lab:
        assert ports_of(lab, "edge") == {"cl-alice", "cl-mallory", "to-host1", "to-host2"}
        lab.move_endpoint("web1", "host2")
        assert ports_of(lab, "host2") == {"db1", "bank2", "up-host2", "web1"}
        edge = lab.ovs.ofctl("dump-flows", "edge", options=["--names", "--no-stats"])
        assert 'output:"to-host2"' in next(line for line in edge.splitlines() if "nw_dst=198.51.100.10" in line)


def test_a_killed_switch_comes_back_with_the_edges_flows(lab: Lab) -> None:
    lab.kill("ovs-vswitchd")
    talk = [Conversation("alice", "mallory", Family.IPV4, TCP, 80)]
    assert not converse(lab, talk, patience_s=0.2)[0].answered
    lab.start_switch()
    assert converse(lab, talk)[0].answered
    lab.kill("ovsdb-server")
    lab.start_database()
    assert "edge" in lab.ovs.vsctl("list-br")


def test_another_process_finds_the_lab_and_runs_commands_in_it(lab: Lab) -> None:
    found = pop.find(lab.layout)
    assert found.state == lab.state
    program = (
        "from orchestrator.lab import pop; from orchestrator.lab.layout import Layout;"
        f"pop.find(Layout('{lab.layout.prefix}')).execute('db1', ['ip', '-json', 'address', 'show', 'eth0'])"
    )
    shown = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    addresses = {item["local"] for item in json.loads(shown.stdout)[0]["addr_info"]}
    assert {"198.51.100.20", "2001:db8:100::20"} <= addresses
    with pytest.raises(NotFound, match="'nobody'"):
        found.execute("nobody", ["true"])


def test_a_conversation_that_cannot_be_is_refused(lab: Lab) -> None:
    with pytest.raises(BadInput, match="not spoken"):
        Conversation("alice", "web1", Family.IPV4, ICMPV6)
    with pytest.raises(NotFound):
        converse(lab, [Conversation("nobody", "web1", Family.IPV4, TCP, 80)])
    with pytest.raises(Refused, match="no bridge named nowhere"):
        lab.ovs.vsctl("list-ports", "nowhere")


def test_a_second_lab_of_the_same_name_is_refused_and_one_beside_it_is_not_touched(lab: Lab) -> None:
    with pytest.raises(Conflict, match=f"aclflow lab down --prefix {lab.layout.prefix}"):
        pop.up(lab.layout, specfile.load())
    beside = Layout("actest2-")
    pop.down(beside)
    try:
        other = pop.up(beside, specfile.load())
        assert other.controller_address[0] != lab.controller_address[0]
    finally:
        assert not pop.down(beside).nothing
    assert pop.down(beside).nothing
    assert leftovers(beside) == []
    assert converse(lab, [Conversation("alice", "mallory", Family.IPV6, TCP, 80)])[0].answered


KILLED_BUILDER = """
    import os, signal, sys
    from orchestrator.lab import network, pop, specfile
    from orchestrator.lab.layout import Layout
    from orchestrator.lab.ovs import OpenVSwitch

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    owner, name = sys.argv[2].split(".")
    setattr({"network": network, "ovs": OpenVSwitch, "lab": pop.Lab}[owner], name, die)
    pop.up(Layout(sys.argv[1]), specfile.load())
"""


@pytest.mark.parametrize(
    "step",
    ["network.create_management", "network.create_links", "ovs.create", "ovs.vsctl", "ovs.start_switch", "ovs.ofctl"],
)
def test_what_a_killed_builder_left_is_removed(step: str) -> None:
    layout = Layout("actest3-")
    pop.down(layout)
    builder = [sys.executable, "-c", textwrap.dedent(KILLED_BUILDER), layout.prefix, step]
    assert subprocess.run(builder, cwd=REPO, check=False).returncode == -signal.SIGKILL
    assert leftovers(layout) != []
    with pytest.raises(Conflict):
        pop.up(layout, specfile.load())
    assert not pop.down(layout).nothing
    assert leftovers(layout) == []


def test_a_builder_that_fails_takes_back_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout("actest3-")
    monkeypatch.setattr("orchestrator.lab.ovs._SCHEMA", Path("/nowhere"))
    with pytest.raises(Missing, match="openvswitch-switch"):
        pop.up(layout, specfile.load())
    assert leftovers(layout) == []


def test_cleaning_up_ends_what_was_started_inside(layout: Layout) -> None:
    beside = Layout("actest3-")
    pop.down(beside)
    lab = pop.up(beside, specfile.load())
    sleeper = lab.start("sleeper", ["sleep", "60"], namespace=lab.namespace("web1"))
    inode = os.stat(f"/proc/{sleeper.pid}/ns/net").st_ino
    assert inode == os.stat(f"/run/netns/{lab.namespace('web1')}").st_ino
    removed = pop.down(beside)
    assert "sleep" in removed.processes
    assert set(removed.namespaces) >= {beside.ovs_namespace, beside.namespace("web1")}
    assert not processes.alive(sleeper)
    assert namespaces.with_prefix(beside.prefix) == ()
    assert not network.has_management(beside)
