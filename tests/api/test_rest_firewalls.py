"""Firewall VNFs over REST: onboarded like hosts, programs of their own, waited for like hosts, and their load."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from served import Served

from orchestrator.client import Client, Held, Host, PointReport
from orchestrator.client.spread import Carrier, Link
from orchestrator.compile.filters.clusterlists import LISTS
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.compile.filters.filterrows import FILTERS
from orchestrator.errors import BadPolicy, Conflict, NotAllowed, NotExpressible, NotFound
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Action, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch
from orchestrator.program.delta import Delta, apply
from orchestrator.program.edits import Edits
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import encode_delta, encode_edits
from orchestrator.wire.codec import fill
from orchestrator.wire.firewalls import Firewall, Load, Plane, SeenLoad

WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP)
ECE = Rule(RuleId("ece"), Action.PERMIT, protocol=TCP, tcp_flags=FlagMatch(0x40, 0x40))


@pytest.fixture(scope="module")
def domain(admin: Client) -> str:
    admin.domains.create("vnfs")
    admin.tenants.create("vnf-shop", domain="vnfs", prefixes=[Prefix.parse("203.0.113.0/26")])
    admin.acls.put("vnf-shop", Acl((WEB,)))
    return "vnfs"


def program(client: Client, domain: str, held: Held | None = None) -> Program | Delta | None:
    return client.points.watch_program(domain, held, tier=Tier.SERVER, wait_s=0)


def test_a_domain_without_firewalls_has_no_program_for_them(admin: Client) -> None:
    admin.domains.create("bare")
    with pytest.raises(NotFound, match="no firewall"):
        program(admin, "bare")


def test_a_stream_has_edits_for_those_who_ask_for_them_and_deltas_for_others(admin: Client) -> None:
    admin.domains.create("edited")
    admin.tenants.create("edited-shop", domain="edited", prefixes=[Prefix.parse("198.18.77.0/26")])
    rules = tuple(
        Rule(RuleId(f"r{port}"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(port, port),))
        for port in range(1000, 1040)
    )
    admin.acls.put("edited-shop", Acl(rules))
    admin.firewalls.add("edited", "fw1", "nftables")
    old = program(admin, "edited")
    assert isinstance(old, Program)
    admin.acls.put("edited-shop", Acl(rules[1:]))
    held = Held(old.digest, old.generation)
    streams = [
        admin.points.follow_program("edited", held, tier=Tier.SERVER, lasts_s=5, edits=edits) for edits in (True, False)
    ]
    edits, delta = (next(each for each in stream if each is not None) for stream in streams)
    assert isinstance(edits, Edits)
    assert isinstance(delta, Delta)
    assert len(encode_edits(edits)) < len(encode_delta(delta))
    assert encode_delta(edits.delta_from(old)) == encode_delta(delta)
    new = program(admin, "edited")
    assert isinstance(new, Program)
    assert apply(old, delta).blocks.digest(()) == new.digest


def test_onboarding_gives_the_plane_its_program(admin: Client, domain: str, service: Served) -> None:
    generation = admin.firewalls.add(domain, "fw1", "nftables")
    found = program(admin, domain)
    assert isinstance(found, Program)
    assert (found.tier, found.generation) == (Tier.SERVER, generation)
    with service.service.parts.store.read() as unit:
        policy = unit.domains.policy(domain).policy
    assert found.digest == filter_program(policy, [Plane.NFTABLES], domain=domain, generation=0).digest
    admin.firewalls.add(domain, "fw2", "iptables")
    both = program(admin, domain)
    assert isinstance(both, Program)
    assert set(both.flows.table.tolist()) == {*FILTERS[Plane.NFTABLES].values(), *FILTERS[Plane.IPTABLES].values()}
    assert [*admin.firewalls.read_all(domain)] == [
        Firewall("fw1", "nftables", None),
        Firewall("fw2", "iptables", None),
    ]
    admin.firewalls.remove(domain, "fw2")
    again = program(admin, domain)
    assert isinstance(again, Program)
    assert again.digest == found.digest
    assert again.generation > both.generation


def test_a_changed_list_comes_as_a_delta(admin: Client, domain: str) -> None:
    before = program(admin, domain)
    assert isinstance(before, Program)
    written = admin.acls.put("vnf-shop", Acl((WEB, Rule(RuleId("more"), Action.DENY))))
    change = program(admin, domain, Held(before.digest, before.generation))
    assert isinstance(change, Delta)
    after = apply(before, change)
    assert after.generation == written.generation
    assert after.blocks.digest(()) == after.digest
    assert len(change.added) < len(after.blocks)
    assert program(admin, domain, Held(after.digest, after.generation)) is None


def test_what_a_plane_cannot_carry_is_refused_with_its_place(admin: Client, domain: str) -> None:
    admin.tenants.create("vnf-six", domain=domain, prefixes=[Prefix.parse("2001:db8:f::/48")])
    admin.acls.put("vnf-six", Acl((ECE,)))
    before = admin.domains.read(domain).generation
    with pytest.raises(NotExpressible, match="ECE and CWR"):
        admin.firewalls.add(domain, "old", "iptables")
    assert [each.name for each in admin.firewalls.read_all(domain)] == ["fw1"]
    assert admin.domains.read(domain).generation == before
    admin.acls.put("vnf-six", Acl())
    admin.firewalls.add(domain, "old", "iptables")
    with pytest.raises(NotExpressible, match="ECE and CWR"):
        admin.acls.put("vnf-six", Acl((ECE,)))
    assert admin.acls.read("vnf-six").acl == Acl()
    admin.firewalls.remove(domain, "old")


def test_a_trace_tells_that_a_vnf_drops_what_comes_from_outside(admin: Client, service: Served, domain: str) -> None:
    """It holds the whole list, so no host sees a packet of it; which of several it is, a hash decides."""
    admin.acls.put("vnf-shop", Acl((WEB,)))
    packet = Packet(
        Family.IPV4, 0xC0000207, Prefix.parse(admin.tenants.read("vnf-shop").prefixes[0]).network + 9, UDP, 40000, 22
    )
    found = admin.acls.trace("vnf-shop", packet)
    assert (found.action, found.tier, found.server) == ("deny", "server", "fw1")
    _, member = admin.tokens.create("member", tenant="vnf-shop")
    with service.client(member) as client:
        assert (client.acls.trace("vnf-shop", packet).tier, client.acls.trace("vnf-shop", packet).server) == (
            "server",
            None,
        )
        inside = replace(packet, source=packet.destination + 1)
        admin.tenants.create("vnf-near", domain=domain, prefixes=[Prefix.parse("203.0.113.64/26")])
        neighbours = replace(packet, source=Prefix.parse(admin.tenants.read("vnf-near").prefixes[0]).network)
        for asks, of_neighbours in ((admin, "host"), (client, "server")):  # a member is not told who is a neighbour
            assert [asks.acls.trace("vnf-shop", each).tier for each in (inside, neighbours)] == ["host", of_neighbours]
    admin.firewalls.add(domain, "fw2", "nftables")
    assert (admin.acls.trace("vnf-shop", packet).tier, admin.acls.trace("vnf-shop", packet).server) == ("server", None)
    admin.firewalls.remove(domain, "fw2")


def test_names_are_shared_with_hosts(admin: Client, domain: str) -> None:
    admin.domains.add_host(domain, Host("host1", 0xF1, "up"))
    with pytest.raises(Conflict, match="already has a host or firewall"):
        admin.firewalls.add(domain, "host1", "nftables")
    with pytest.raises(Conflict, match="already has a host"):
        admin.domains.add_host(domain, Host("fw1", 0xF2, "up"))
    assert [host.name for host in admin.domains.read_hosts(domain)] == ["host1"]
    with pytest.raises(NotFound):
        admin.domains.remove_host(domain, "fw1")
    with pytest.raises(NotFound):
        admin.firewalls.remove(domain, "host1")
    admin.domains.remove_host(domain, "host1")


def test_a_generation_is_enforced_when_the_firewall_holds_it(admin: Client, service: Served, domain: str) -> None:
    joined = admin.enrolment.enrol(admin.enrolment.invite(domain), name="fw1", kind="nftables")
    generation = admin.domains.read(domain).generation
    assert [each.host for each in admin.domains.read_generation(domain, generation).laggards] == ["fw1"]
    with service.client(joined.token) as agent:
        agent.points.report(
            domain, joined.enforcer, points=[PointReport("fw1", generation, bytes(16), "enforced", None, 0, {})]
        )
        assert admin.domains.read_generation(domain, generation).done
        told = Load(120_000, 960_000_000, 730, 15, "the disk is full")
        for said in (None, "the disk is full", "the disk is full", None, "the disk is full"):
            agent.points.report_load(domain, joined.enforcer, replace(told, trouble=said))
    events = [each for each in admin.events.read(limit=1000).items if each.kind == "firewall.trouble"]
    assert [dict(each.detail) for each in events] == [{"firewall": "fw1", "trouble": "the disk is full"}] * 2
    (seen,) = admin.firewalls.read_all(domain)
    assert seen.load == fill(SeenLoad, told, reported=seen.load.reported)


def test_only_the_agent_itself_tells_its_load(admin: Client, service: Served, domain: str, http: httpx.Client) -> None:
    other = admin.enrolment.enrol(admin.enrolment.invite(domain), name="stranger", kind="nftables")
    load = Load(0, 0, 0, 0)
    (mine,) = (each.id for each in admin.points.read_all(domain) if each.name == "fw1")
    with service.client(other.token) as agent:
        with pytest.raises(NotFound, match="no firewall 'stranger'"):
            agent.points.report_load(domain, other.enforcer, load)
        with pytest.raises((NotAllowed, NotFound)):
            agent.points.report_load(domain, mine, load)
    path = f"/v1/domains/{domain}/enforcers/{other.enforcer}/load"
    assert http.put(path, json={"packets_pps": -1}).status_code in (400, 403, 422)


def test_a_firewall_goes_with_its_load_and_nobody_waits_for_it(admin: Client, domain: str) -> None:
    generation = admin.firewalls.remove(domain, "fw1")
    assert admin.domains.read_generation(domain, generation).done
    assert [*admin.firewalls.read_all(domain)] == []
    with pytest.raises(NotFound, match="no firewall"):
        program(admin, domain)


def test_firewalls_track_where_both_directions_of_a_connection_meet_the_same_one(
    admin: Client, service: Served
) -> None:
    """A flow cache passes the filter by, and a classifier in user space knows no connections: these go without."""
    admin.domains.create("meeting", return_traffic=ReturnTraffic.TRACKED)
    admin.tenants.create("meeting-shop", domain="meeting", prefixes=[Prefix.parse("198.51.100.192/28")])
    admin.acls.put("meeting-shop", Acl((WEB,)))
    admin.firewalls.add("meeting", "fw1", "nftables")
    admin.firewalls.add("meeting", "fw2", "queue")
    assert admin.domains.read("meeting").untracked == ("firewall VNFs (nftables)", "firewall VNFs (queue)")
    carriers = [Carrier("fw1", 1, Link("l1", "02:00:00:00:00:01"), Link("r1", "02:00:00:00:00:02"))]
    digests = []
    for stateful, synchronised in ((False, False), (True, False), (True, True)):
        before = admin.domains.read("meeting").generation
        admin.spread.configure("meeting", carriers, stateful=stateful, synchronised=synchronised)
        tracks = stateful and not synchronised
        after = admin.domains.read("meeting")
        assert after.untracked == (
            ("firewall VNFs (queue)",) if tracks else ("firewall VNFs (nftables)", "firewall VNFs (queue)")
        )
        found = admin.points.watch_program("meeting", None, tier=Tier.SERVER, wait_s=20)
        assert isinstance(found, Program)
        assert found.generation >= after.generation > before - (not digests)
        has_lists = LISTS in found.flows.table.tolist()
        assert has_lists is synchronised
        filters = found.flows.take(found.flows.table != LISTS)
        digests.append(Program.of("", Tier.SERVER, 0, filters, ()).digest)
    assert digests[0] == digests[2] != digests[1]


def test_firewalls_that_share_connections_get_the_lists(admin: Client) -> None:
    """A rule that no connection can be asked about is refused when they begin to share, and later."""
    admin.domains.create("sharing")
    admin.tenants.create("sharing-shop", domain="sharing", prefixes=[Prefix.parse("198.51.100.208/28")])
    admin.acls.put("sharing-shop", Acl((WEB,)))
    admin.firewalls.add("sharing", "fw1", "nftables")
    carriers = [Carrier("fw1", 1, Link("l1", "02:00:00:00:00:01"), Link("r1", "02:00:00:00:00:02"))]
    marked = Acl((WEB, Rule(RuleId("marked"), Action.PERMIT, dscp=1 << 46)))
    admin.acls.put("sharing-shop", marked)
    with pytest.raises(BadPolicy, match="marked") as refused:
        admin.spread.configure("sharing", carriers, stateful=True, synchronised=True)
    assert refused.value.place == "tenants[sharing-shop].acl.rules[1]"
    admin.acls.put("sharing-shop", Acl((WEB,)))
    before = program(admin, "sharing")
    assert isinstance(before, Program)
    admin.spread.configure("sharing", carriers, stateful=True, synchronised=True)
    after = admin.points.watch_program("sharing", None, tier=Tier.SERVER, wait_s=20)
    assert isinstance(after, Program)
    assert after.generation > before.generation
    texts = {row.match: row.instructions for row in after.flows.rows() if row.table == LISTS}
    assert {*texts} == {b"operator", b"tenant sharing-shop"}
    assert b'"web"' in texts[b"tenant sharing-shop"]
    with pytest.raises(BadPolicy, match="marked"):
        admin.acls.put("sharing-shop", marked)
