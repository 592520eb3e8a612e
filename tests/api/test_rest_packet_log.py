"""Packets that rules with `log` decided, over HTTP: reports come in once; tenants see theirs, operators a domain's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from command_line import Ended, aclflow
from served import Served

from orchestrator.client import Client, Host
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import BadInput, Forbidden, NotFound, Stale
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program, Tier
from orchestrator.program.sightings import Sighting, Sightings

_numbers = itertools.count(100)
SYN = Packet(Family.IPV4, 0xC6336407, 0x0A640001, TCP, 40000, 23, tcp_flags=2)
NOON = 1_700_000_000_000_000


@dataclass
class Site:
    """A domain with a host, two tenants with a rule each that logs, and an enforcer."""

    domain: str
    tenant: str
    other: str
    enforcer: Client
    id: int
    numbers: dict[str, int]

    def tell(self, number: int, *rules: str, lost: int = 0, host: str = "host1", packet: Packet = SYN) -> None:
        seen = tuple(Sighting(host, NOON, self.numbers[rule], packet, 60) for rule in rules)
        self.enforcer.points.report_sightings(self.domain, self.id, Sightings(number, seen, lost))


def cookie(kind: Kind, number: int) -> int:
    return Cookie(Tier.HOST, kind, number).pack()


@pytest.fixture
def site(service: Served, admin: Client) -> Iterator[Site]:
    number = next(_numbers)
    domain, tenants = f"log{number}", (f"l{number}", f"m{number}")
    admin.domains.create(domain)
    admin.domains.add_host(domain, Host("host1", number << 16, "up0"))
    for index, tenant in enumerate(tenants):
        admin.tenants.create(tenant, domain=domain, prefixes=[Prefix.parse(f"10.{number}.{index}.0/24")])
        deny = {"id": "no-telnet", "action": "deny", "protocol": "tcp", "destination_ports": 23, "log": index == 0}
        admin.acls.put(tenant, acl_from_json({"rules": [deny, {"id": "rest", "action": "permit", "log": index == 1}]}))
    admin.domains.set_operator_rules(
        domain, [rule_from_json({"id": "all", "action": "deny", "protocol": 47, "log": True})]
    )
    with service.client("") as anybody:
        enrolment = anybody.enrolment.enrol(admin.enrolment.invite(domain), name="controller-1", kind="openflow")
    with service.client(enrolment.token) as enforcer:
        program = enforcer.points.watch_program(domain)
        assert isinstance(program, Program)
        rows = [row for row in program.flows.rows() if row.table in (Table.INGRESS, Table.OPERATOR)]
        taken = [(Cookie.unpack(row.cookie), row.tenant) for row in rows]
        by_kind = [(found.kind, found.number, owner) for found, owner in taken if found is not None]
        (operator,) = {each for kind, each, _ in by_kind if kind is Kind.OPERATOR_RULE}
        first, second = sorted({owner for kind, _, owner in by_kind if kind is Kind.RULE})
        deny, _ = sorted({each for kind, each, owner in by_kind if kind is Kind.RULE and owner == first})
        silent, rest = sorted({each for kind, each, owner in by_kind if kind is Kind.RULE and owner == second})
        numbers = {
            "no-telnet": cookie(Kind.RULE, deny), "rest": cookie(Kind.RULE, rest), "silent": cookie(Kind.RULE, silent),
            "operator": cookie(Kind.OPERATOR_RULE, operator), "nobody": cookie(Kind.RULE, 1 << 39),
        }  # fmt: skip
        yield Site(domain, *tenants, enforcer, enrolment.enforcer, numbers)


def shown(client: Client, tenant: str | None = None, **asked: object) -> list[tuple[str | None, str, str]]:
    return [(each["tenant"], each["rule"], each["action"]) for each in client.packet_log.read(tenant, **asked)]  # type: ignore[arg-type]


def test_a_report_is_taken_once_and_names_rule_tenant_verdict_and_five_tuple(site: Site, admin: Client) -> None:
    site.tell(5, "no-telnet", "rest")
    site.tell(5, "no-telnet", "rest")
    site.tell(4, "no-telnet")
    assert shown(admin, site.tenant) == [(site.tenant, "no-telnet", "deny")]
    assert shown(admin, site.other) == [(site.other, "rest", "permit")]
    (record,) = admin.packet_log.read(site.tenant)
    assert record["time"].startswith("2023-11-14T22:13:20")
    assert [record[name] for name in ("source", "source_port", "destination", "destination_port", "protocol")] == [
        "198.51.100.7", 40000, "10.100.0.1", 23, TCP
    ]  # fmt: skip
    assert (record["host"], record["direction"], record["tcp_flags"], record["octets"]) == ("host1", "ingress", 2, 60)


def test_numbers_begin_anew_with_an_epoch(site: Site, admin: Client) -> None:
    """They are of the enforcement point's clock, which may have been set back while it was away."""
    site.tell(9, "no-telnet", lost=1)
    site.tell(8, "no-telnet")
    assert len(shown(admin, site.tenant)) == 1
    site.enforcer.points.begin_epoch(site.domain, site.id)
    site.tell(8, "no-telnet")
    site.tell(8, "no-telnet")
    assert len(shown(admin, site.tenant)) == 2


def test_what_cannot_be_named_or_does_not_log_is_dropped(site: Site, admin: Client) -> None:
    site.tell(1, "nobody", "silent", "no-telnet", "operator")
    site.tell(2, "no-telnet", host="elsewhere")
    assert shown(admin, domain=site.domain) == [(site.tenant, "no-telnet", "deny"), (None, "all", "deny")]


def test_the_log_is_read_on_from_an_id_and_filtered(site: Site, admin: Client) -> None:
    for number in range(1, 4):
        site.tell(number, "no-telnet", "rest")
    first, *_ = admin.packet_log.read(domain=site.domain)
    assert len(admin.packet_log.read(domain=site.domain, after=first["id"])) == 5
    newest = [(site.tenant, "no-telnet", "deny"), (site.other, "rest", "permit")]
    assert shown(admin, domain=site.domain, limit=2) == newest
    assert {rule for _, rule, _ in shown(admin, domain=site.domain, action="permit")} == {"rest"}
    assert len(admin.packet_log.read(domain=site.domain, rule="no-telnet")) == 3


def test_tenants_see_their_own_only(site: Site, admin: Client, service: Served) -> None:
    site.tell(1, "no-telnet", "rest")
    _, secret = admin.tokens.create("reader", tenant=site.tenant)
    with service.client(secret) as tenant:
        assert shown(tenant, site.tenant) == [(site.tenant, "no-telnet", "deny")]
        with pytest.raises(NotFound):
            tenant.packet_log.read(site.other)
        with pytest.raises((Forbidden, NotFound)):
            tenant.packet_log.read(domain=site.domain)
        with pytest.raises((Forbidden, NotFound)):
            tenant.points.report_sightings(site.domain, site.id, Sightings(9, ()))


def test_a_wrong_report_changes_nothing(site: Site, admin: Client) -> None:
    with pytest.raises(BadInput) as refused:
        site.tell(1, "no-telnet", packet=Packet(Family.IPV4, 1, 2, 300))
    assert "seen" in (refused.value.place or "")
    assert admin.packet_log.read(site.tenant) == []
    site.tell(1, "no-telnet")
    assert len(admin.packet_log.read(site.tenant)) == 1


def test_the_limit_is_the_domains_and_reaches_the_switches(site: Site, admin: Client) -> None:
    assert admin.packet_log.read_limit(site.domain).limit == LogLimit()
    before = site.enforcer.points.watch_program(site.domain)
    assert admin.packet_log.set_limit(site.domain, LogLimit(50, 7)) == LogLimit(50, 7)
    after = site.enforcer.points.watch_program(site.domain)
    assert isinstance(before, Program)
    assert isinstance(after, Program)
    meters = [{row.match for row in each.flows.rows() if row.table == Table.METERS} for each in (before, after)]
    assert [len(each) for each in meters] == [3, 3]
    assert not meters[0] & meters[1]
    with pytest.raises(Stale):
        admin.packet_log.set_limit(site.domain, LogLimit(1, 1), etag='"10-20"')
    assert admin.packet_log.read_limit(site.domain).limit == LogLimit(50, 7)


def test_the_command_line_shows_and_sets(site: Site, service: Served) -> None:
    def said(*arguments: str) -> Ended:
        return aclflow(*arguments, environment={"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": service.token})

    site.tell(1, "no-telnet")
    text = said("acl", "log", site.tenant).out
    assert "198.51.100.7:40000" in text
    assert "no-telnet" in text
    assert [each["rule"] for each in said("acl", "log", "--domain", site.domain, "--json").json()] == ["no-telnet"]
    assert said("domain", "log", "set", site.domain, "--rate", "33", "--json").json() == {"rate": 33, "burst": 20}
    assert said("domain", "log", "show", site.domain, "--json").json() == {"rate": 33, "burst": 20}
    refused = said("domain", "log", "set", site.domain)
    assert refused.code == 2
    assert f"aclflow domain log show {site.domain}" in refused.err
    assert "it is called `aclflow domain log set" in said("domain", "log-limit", site.domain, "--rate", "1").err
    assert said("acl", "log").code == 2
