"""PoPs over REST: laid out, given switches and servers, refused with what would fit, and told of."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from patience import until
from served import Served

from orchestrator.client import Client, Host
from orchestrator.compile.servers.programs import ServerCompiler
from orchestrator.errors import BadInput, Conflict, NotFound, TooLarge
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Endpoint, Packet, TenantId
from orchestrator.policy.protocols import TCP


class Site(NamedTuple):
    """A domain with a tenant, and the name of its PoP."""

    domain: str
    tenant: str
    pop: str


@pytest.fixture
def site(admin: Client) -> Site:
    number = next(_NUMBERS)
    found = Site(f"pop-domain-{number}", f"pop-shop-{number}", f"pop-{number}")
    admin.domains.create(found.domain)
    prefix = Prefix.parse(f"198.18.{number}.0/24")
    admin.tenants.create(found.tenant, domain=found.domain, prefixes=(prefix,))
    admin.pops.add(found.pop, found.domain, ("outside",), functions=8, heavy_interval_s=0)
    return found


_NUMBERS = itertools.count(1)


def test_a_pop_is_made_shown_changed_and_taken_away(admin: Client, site: Site) -> None:
    domain, tenant, pop = site
    seen = admin.pops.read(pop)
    assert (seen["domain"], seen["settings"]["functions"], seen["settings"]["ipv6_chunk"]) == (domain, 8, 48)
    assert pop in [each["name"] for each in admin.pops.read_all()]
    assert admin.pops.add_server(pop, "fs1", "to-fs1", "0a:00:00:00:00:01") == admin.domains.read(domain).generation
    with pytest.raises(Conflict, match="the address is that of 'fs1'") as refused:
        admin.pops.add_server(pop, "fs2", "to-fs2", "0a:00:00:00:00:01")
    assert refused.value.place == "mac"
    admin.pops.add_edge(pop, Host("e1", 0xE1, "wan"))
    assert admin.pops.read_edges(domain) == (Host("e1", 0xE1, "wan"),)
    seen = admin.pops.read(pop)
    assert seen["places"] == {tenant: "fs1"}
    assert seen["servers"] == [
        {"name": "fs1", "number": 1, "port": "to-fs1", "mac": "0a:00:00:00:00:01", "state": "serving"}
    ]
    assert seen["lines"]["ipv4"]["chunks"] == 1
    assert seen["lines"]["ipv4"]["misdirected"] == 0
    admin.pops.configure(pop, {"per_line": 4})
    assert admin.pops.read(pop)["settings"]["per_line"] == 4
    with pytest.raises(Conflict, match=r"still has edge switches \(.*\): first `aclflow pop edge remove "):
        admin.pops.remove(pop)
    admin.pops.remove_edge(pop, "e1")
    admin.pops.remove(pop)
    with pytest.raises(NotFound):
        admin.pops.read(pop)


def test_what_cannot_be_is_refused_with_its_place(admin: Client, site: Site) -> None:
    pop = site.pop
    for settings, place, words in (
        ({"functions": 300}, "functions", "300 functions in a line of 288 bits"),
        ({"ipv4_chunk": 40}, "ipv4_chunk", "share 1 to 32 leading bits"),
        ({"rebuild_share": 0.0}, "rebuild_share", "not a share"),
        ({"heavy_interval_s": 0.5}, "heavy_interval_s", "not between a second and a day"),
    ):
        with pytest.raises(BadInput, match=words) as caught:
            admin.pops.configure(pop, settings)
        assert caught.value.place == place
    admin.pops.add_server(pop, "fs1", "to-fs1", "0a:00:00:00:00:01")
    with pytest.raises(TooLarge, match="take larger"):
        admin.pops.configure(pop, {"ipv4_chunk": 30, "per_line": 1, "most_lines": 4})
    assert admin.pops.read(pop)["settings"]["ipv4_chunk"] == 24


def test_servers_are_lost_and_tenants_placed(admin: Client, site: Site) -> None:
    domain, tenant, pop = site
    for number in (1, 2):
        admin.pops.add_server(pop, f"fs{number}", f"to-fs{number}", f"0a:00:00:00:00:0{number}")
    admin.pops.place_tenants(pop, {tenant: "fs1"})
    assert admin.pops.read(pop)["places"] == {tenant: "fs1"}
    admin.pops.set_server(pop, "fs1", "lost")
    assert admin.pops.read(pop)["places"] == {tenant: "fs2"}
    kinds = [each.kind for each in admin.events.read().items]
    assert {"pop.added", "pop.server-added", "pop.placed", "pop.server", "pop.moved"} <= set(kinds)
    with pytest.raises(NotFound, match="no server 'fs9'"):
        admin.pops.place_tenants(pop, {tenant: "fs9"})
    admin.pops.remove_server(pop, "fs1")
    assert admin.pops.rebuild_lines(pop) == admin.domains.read(domain).generation


def test_traffic_and_heavy_hitters_are_told(admin: Client, site: Site) -> None:
    _, tenant, pop = site
    admin.pops.add_server(pop, "fs1", "to-fs1", "0a:00:00:00:00:01")
    seen = admin.pops.read_traffic(pop)
    assert seen["servers"]["fs1"]["tenants"] == [tenant]
    assert seen["tenants"][tenant]["bypass_share"] is None
    assert admin.pops.choose_heavy_hitters(pop)["chosen"] == []


def test_a_trace_tells_at_which_tier_a_packet_is_settled(admin: Client, site: Site, service: Served) -> None:
    domain, tenant, pop = site
    inside = Prefix.parse(admin.tenants.read(tenant).prefixes[0]).network + 5
    rules = [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 80}]
    admin.acls.put(tenant, acl_from_json({"rules": rules}))
    outside = parse_address("192.0.2.7")[1]

    def seen(client: Client, source: int, port: int, flags: int = 2) -> tuple[str, str, str | None]:
        packet = Packet(Family.IPV4, source, inside, TCP, 40000, port, tcp_flags=flags)
        found = client.acls.trace(tenant, packet)
        return found.action, found.tier, found.server

    assert seen(admin, outside, 81) == ("deny", "host", None)  # nobody stands before the hosts
    admin.pops.add_server(pop, "fs1", "to-fs1", "0a:00:00:00:00:01")
    assert seen(admin, outside, 81) == ("deny", "server", "fs1")
    assert seen(admin, outside, 80) == ("permit", "host", None)
    assert seen(admin, inside + 1, 81) == ("deny", "host", None)  # from inside it meets no server
    _, token = admin.tokens.create("reader", tenant=tenant)
    with service.client(token) as reader:
        assert seen(reader, outside, 81) == ("deny", "server", None)
    endpoint = Endpoint(f"{tenant}-1", TenantId(tenant), "tap1", 0x0A0000000001, (Prefix(Family.IPV4, inside, 32),))
    admin.domains.put_endpoint(domain, endpoint)
    packet = Packet(Family.IPV4, outside, inside, TCP, 40000, 80, tcp_flags=2)
    assert not admin.acls.trace(tenant, packet).lifted
    admin.placement.set_wish(domain, tenant, "web", "pinned")
    assert admin.acls.trace(tenant, packet).lifted


def test_only_administrators_see_pops(admin: Client, site: Site, service: Served) -> None:
    _, token = admin.tokens.create("member", tenant=site.tenant)
    with service.client(token) as member:
        for call in (
            lambda: list(member.pops.read_all()),
            lambda: member.pops.read(site.pop),
            lambda: member.pops.read_traffic(site.pop),
        ):
            with pytest.raises(NotFound):
                call()


def test_events_say_why_a_servers_program_cannot_be_made_and_that_it_can_again(
    admin: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TooLarge("so many rows")

    admin.pops.add_server(site.pop, "fs1", "to-fs1", "0a:00:00:00:00:01")
    with monkeypatch.context() as until_mended:
        until_mended.setattr(ServerCompiler, "program", refuse)
        admin.acls.put(site.tenant, acl_from_json({"rules": [{"id": "web", "action": "permit", "protocol": "tcp"}]}))
        until(lambda: _told(admin, site.domain, "firewall.unmade"))
    until(lambda: _told(admin, site.domain, "firewall.made"))
    assert _told(admin, site.domain, "firewall.unmade") == [{"firewall": "fs1", "because": "so many rows"}]
    assert _told(admin, site.domain, "firewall.made") == [{"firewall": "fs1"}]


def _told(admin: Client, domain: str, kind: str) -> list[dict[str, object]]:
    """What events of a kind say of a domain."""
    newest = admin.events.read_newest(limit=1000).items
    return [dict(each.detail) for each in newest if (each.kind, each.subject) == (kind, domain)]
