"""What rules decided, over HTTP: counts come in once; tenants see their own, operators a domain's."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from command_line import Ended, aclflow
from served import Served

from api.routes import hits
from orchestrator.client import Client, Host
from orchestrator.compile.cookies import NO_ROOM, Cookie, Kind
from orchestrator.errors import BadInput, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.program.countframes import CountFrame, Loss, Note, encode_frames
from orchestrator.program.counts import sum_rows
from orchestrator.program.program import Program, Tier
from orchestrator.store.records import Role
from orchestrator.wire.hits import BusyRule

_numbers = itertools.count(200)


@dataclass
class Site:
    """A domain with two hosts and a tenant, whose two rules an enforcer counts."""

    domain: str
    tenant: str
    enforcer: Client
    id: int
    cookies: list[int] = field(default_factory=list)
    sequences: dict[str, int] = field(default_factory=dict)

    def claim(self, *hosts: str) -> None:
        for host in hosts:
            self.sequences[host] = self.enforcer.points.claim_counts(self.domain, self.id, host).sequence

    def count(self, host: str, *packets: int, notes: tuple[Note, ...] = (), again: bool = False) -> list[str]:
        """Tell what the rules decided on a host since the last time; `again`: the report of the last time."""
        self.sequences[host] += 0 if again else 1
        column = np.array(packets, np.int64)
        hit = np.where(column > 0, 1, 0)
        counts = sum_rows(np.array(self.cookies[: len(packets)], np.uint64), column, column * 100, hit * 0, hit)
        frame = CountFrame(host, self.sequences[host], counts, notes, b"chunk", False)
        return list(self.enforcer.points.report_counts(self.domain, self.id, encode_frames([frame], 2_000_000)))


@pytest.fixture
def site(service: Served, admin: Client) -> Iterator[Site]:
    number = next(_numbers)
    domain, tenant = f"hits{number}", f"h{number}"
    admin.domains.create(domain)
    admin.tenants.create(tenant, domain=domain, prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    for index in (1, 2):
        admin.domains.add_host(domain, Host(f"host{index}", number << 8 | index, "up0"))
    rules = [{"id": f"p{port}", "action": "permit", "protocol": "tcp", "destination_ports": port} for port in (80, 443)]
    admin.acls.put(tenant, acl_from_json({"rules": rules}))
    with service.client("") as anybody:
        enrolment = anybody.enrolment.enrol(admin.enrolment.invite(domain), name="controller-1", kind="openflow")
    with service.client(enrolment.token) as enforcer:
        enforcer.points.begin_epoch(domain, enrolment.enforcer)
        program = enforcer.points.watch_program(domain)
        assert isinstance(program, Program)
        cookies = sorted({row.cookie for row in program.flows.rows() if row.cookie >> 48 & 0xF == Kind.RULE.value})
        yield Site(domain, tenant, enforcer, enrolment.enforcer, cookies)


def seen(admin: Client, site: Site, **asked: str) -> list[tuple[str, int, int]]:
    return [(each.rule, each.packets, each.bytes) for each in admin.hits.read(site.tenant, **asked).rules]


def test_counts_add_up_over_hosts_each_once(site: Site, admin: Client) -> None:
    site.claim("host1", "host2")
    assert site.count("host1", 10, 0) == site.count("host2", 5, 1) == []
    assert seen(admin, site) == [("p80", 15, 1500), ("p443", 1, 100)]
    assert site.count("host1", 10, 0, again=True) == []
    assert seen(admin, site) == [("p80", 15, 1500), ("p443", 1, 100)]
    site.sequences["host1"] += 1  # a report was lost
    assert site.count("host1", 7, 0) == ["host1"]
    site.claim("host1")
    assert site.count("host1", 2, 0) == []
    assert seen(admin, site) == [("p80", 17, 1700), ("p443", 1, 100)]
    first = admin.hits.read(site.tenant).rules[0]
    assert first.last_hit is not None
    assert first.packets_per_s > 0
    assert first.bits_per_s == pytest.approx(800 * first.packets_per_s, rel=0.01)
    assert not first.lifted


def test_somebody_who_was_replaced_counts_no_more(service: Served, admin: Client, site: Site) -> None:
    site.claim("host1")
    site.count("host1", 1, 0)
    with service.client("") as anybody:
        later = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="controller-2", kind="openflow")
    with service.client(later.token) as second:
        second.points.begin_epoch(site.domain, later.enforcer)
        claim = second.points.claim_counts(site.domain, later.enforcer, "host1")
        assert (claim.sequence, claim.chunks) == (1, (b"chunk",))
    assert site.count("host1", 50, 0) == ["host1"]
    with pytest.raises(Conflict):
        site.claim("host1")
    assert seen(admin, site)[0] == ("p80", 1, 100)


def test_only_the_enforcer_itself_counts(service: Served, admin: Client, site: Site) -> None:
    site.claim("host1")
    with service.client("") as anybody:
        other = anybody.enrolment.enrol(admin.enrolment.invite(site.domain), name="other", kind="openflow")
    with service.client(other.token) as second:
        second.points.begin_epoch(site.domain, other.enforcer)
        with pytest.raises(NotFound):
            second.points.report_counts(site.domain, site.id, b"")
    with pytest.raises(NotFound):
        site.claim("host9")


@pytest.mark.parametrize("octets", [b"x", b"\0" * 40, b"\xff" * 200])
def test_counts_that_are_none_are_refused(site: Site, octets: bytes) -> None:
    with pytest.raises(BadInput):
        site.enforcer.points.report_counts(site.domain, site.id, octets)


def test_lists_are_sorted_and_paged(service: Served, site: Site, admin: Client) -> None:
    site.claim("host1")
    site.count("host1", 1, 9)
    assert [rule for rule, _, _ in seen(admin, site)] == ["p80", "p443"]
    for sort in ("rate", "packets", "bytes"):
        assert [rule for rule, _, _ in seen(admin, site, sort=sort)] == ["p443", "p80"]
    with service.http() as http:
        path = f"/v1/tenants/{site.tenant}/acl/hits"
        first = http.get(path, params={"sort": "packets", "limit": 1}).json()
        assert ([item["rule"] for item in first["items"]], first["next"]) == (["p443"], "p443")
        rest = http.get(path, params={"sort": "packets", "limit": 1, "marker": first["next"]}).json()
        assert ([item["rule"] for item in rest["items"]], rest["next"]) == (["p80"], None)
        assert http.get(path, params={"sort": "colour"}).status_code == 400
        assert http.get(path, params={"resolution": "weeks"}).status_code == 400


def test_history_tells_when(site: Site, admin: Client, service: Served) -> None:
    site.claim("host1")
    site.count("host1", 3, 0)
    for resolution in ("moments", "minutes", "hours"):
        first, second = admin.hits.read_history(site.tenant, resolution)
        assert [each.packets for each in first.history] == [3]
        assert second.history == ()
    later = service.clock() + dt.timedelta(hours=1)
    assert admin.hits.read_history(site.tenant, "moments", since=later)[0].history == ()


def test_a_summary_says_what_its_parts_add_up_to(service: Served, site: Site, admin: Client) -> None:
    deny = {"id": "d22", "action": "deny", "protocol": "tcp", "destination_ports": 22}
    admin.acls.insert_rule(site.tenant, rule_from_json(deny), position=0)
    program = site.enforcer.points.watch_program(site.domain)
    assert isinstance(program, Program)
    kinds = (Kind.RULE, Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN)
    site.cookies = sorted(
        {row.cookie for row in program.flows.rows() if (row.cookie >> 48 & 0xF) in [each.value for each in kinds]}
    )
    site.claim("host1")
    site.count("host1", *range(1, len(site.cookies) + 1))
    everything = admin.hits.read(site.tenant)
    of_rule = {each.rule: each.packets for each in everything.rules}
    found = admin.hits.read_summary(site.tenant, top=2)
    ends = everything.egress_default.packets + everything.ingress_return.packets + everything.egress_return.packets
    assert found.permitted == of_rule["p80"] + of_rule["p443"] + ends
    assert found.denied == of_rule["d22"] + everything.ingress_default.packets
    assert (found.rules, found.unused) == (3, 0)
    most = sorted(of_rule.items(), key=lambda item: -item[1])[:2]
    assert [(each.rule, each.packets) for each in found.busiest] == most
    assert sum(each.permitted for each in found.history) == found.permitted
    assert sum(each.denied for each in found.history) == found.denied
    later = service.clock() + dt.timedelta(hours=1)
    assert admin.hits.read_summary(site.tenant, since=later).history == ()
    with pytest.raises(NotFound):
        admin.hits.read_summary("nobody")


def test_all_who_look_within_a_moment_are_told_the_same(
    service: Served, site: Site, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 100.0
    monkeypatch.setattr(hits, "monotonic", lambda: seconds)
    site.claim("host1")
    site.count("host1", *range(1, len(site.cookies) + 1))
    first = admin.hits.read_summary(site.tenant)
    assert first.history
    site.count("host1", *range(11, len(site.cookies) + 11))
    assert admin.hits.read_summary(site.tenant) == first
    assert admin.hits.read_summary(site.tenant, since=service.clock()).history == ()
    assert (
        admin.hits.read_summary(site.tenant, since=dt.datetime.min.replace(tzinfo=dt.UTC)).permitted > first.permitted
    )
    seconds += 2.0
    assert admin.hits.read_summary(site.tenant).permitted > first.permitted


def test_hits_of_some_rules_are_those_among_all(site: Site, admin: Client) -> None:
    site.claim("host1")
    site.count("host1", 3, 1)
    assert {name: each.packets for name, each in admin.hits.read_of_rules(site.tenant, ["p443", "gone"]).items()} == {
        "p443": 1
    }
    assert admin.hits.read_of_rules(site.tenant, ["p80", "p443"]).keys() == {"p80", "p443"}


def test_tenants_see_their_own_and_operators_all(service: Served, site: Site, admin: Client) -> None:
    site.claim("host1")
    site.count("host1", 3, 1)
    listed = admin.hits.read_domain(site.domain)
    assert [(each.tenant, each.rule, each.packets) for each in listed.items] == [
        (site.tenant, "p80", 3), (site.tenant, "p443", 1)
    ]  # fmt: skip
    assert listed.rules == 2
    assert listed.packets_per_s == pytest.approx(sum(each.packets_per_s for each in listed.items), abs=0.01)
    assert [each.rule for each in admin.hits.read_domain(site.domain, contains="443").items] == ["p443"]
    with service.client(service.make_token(Role.READER, tenant=site.tenant)) as tenant:
        assert tenant.hits.read(site.tenant).rules[0].packets == 3
        with pytest.raises(NotFound):
            tenant.hits.read_domain(site.domain)


def test_a_rule_is_unused_only_when_it_was_watched_long_enough(service: Served, site: Site, admin: Client) -> None:
    assert admin.hits.read_unused_rules(site.tenant, idle_s=0).watched_since is None
    site.claim("host1")
    site.count("host1", 0, 5, notes=(Note(Loss.UNREAD, 7, 1.5),))
    found = admin.hits.read_unused_rules(site.tenant, idle_s=3600)
    assert (found.items, found.too_young, found.rules) == ((), 2, 2)
    service.clock.ahead += dt.timedelta(hours=2)
    found = admin.hits.read_unused_rules(site.tenant, idle_s=3600)
    assert {each.rule: each.last_hit is None for each in found.items} == {"p80": True, "p443": False}
    assert (found.never, found.idle, found.too_young) == (0.5, 1.0, 0)
    assert all(each.watched_s >= 7200 for each in found.items)
    assert [(each.kind, each.entries, each.within_s) for each in found.lapses] == [("unread", 7, 1.5)]


def test_metrics_have_a_domains_sums_and_name_no_tenant(service: Served, site: Site, admin: Client) -> None:
    site.claim("host1")
    site.count("host1", 3, 1)
    rules = f'by="rule",domain="{site.domain}",tier="host"'

    def text() -> str:
        with service.http() as http:
            return http.get("/metrics").text

    assert f"aclflow_counted_packets_total{{{rules}}} 4.0" in text()
    assert f"aclflow_counted_octets_total{{{rules}}} 400.0" in text()
    assert f'aclflow_lifted_rules{{domain="{site.domain}"}} 0.0' in text()
    assert f'"{site.tenant}"' not in text()
    admin.tenants.delete(site.tenant)
    assert f"aclflow_counted_packets_total{{{rules}}} 4.0" in text(), "what is forgotten is no beginning anew"


@pytest.mark.parametrize("tier", NO_ROOM, ids=lambda tier: tier.value)
def test_a_host_without_room_for_connections_is_told_and_not_too_often(
    service: Served, site: Site, admin: Client, tier: Tier
) -> None:
    def told() -> list[dict[str, object]]:
        return [
            dict(each.detail)
            for each in reversed(admin.events.read_newest().items)
            if (each.kind, each.subject) == ("host.full", site.domain)
        ]

    site.cookies = [NO_ROOM[tier]]
    site.claim("host1", "host2")
    site.count("host1", 7)
    site.count("host1", 7, again=True)
    site.count("host2", 0)
    assert told() == [{"host": "host1", "packets": 7}]
    site.count("host1", 2)
    site.count("host2", 4)
    assert told() == [{"host": "host1", "packets": 7}, {"host": "host2", "packets": 4}]
    service.clock.ahead += dt.timedelta(minutes=11)
    site.count("host1", 1)
    assert told()[2:] == [{"host": "host1", "packets": 1}]
    with service.http() as http:
        text = http.get("/metrics").text
    assert f'aclflow_counted_packets_total{{by="no-room",domain="{site.domain}",tier="{tier.value}"}} 14.0' in text


def test_tiers_are_told_apart(site: Site, admin: Client) -> None:
    site.claim("host1")
    site.count("host1", 3, 1)
    of_server = [Cookie(Tier.SERVER, Kind.RULE, cookie & (1 << 40) - 1).pack() for cookie in site.cookies]
    site.cookies = of_server
    site.count("host1", 40, 0)
    assert seen(admin, site)[0] == ("p80", 3, 300)
    assert seen(admin, site, tier="server")[0] == ("p80", 40, 4000)


def _count_ahead(admin: Client, site: Site) -> None:
    """Behind a PoP: a rule that denies drops 40 packets on a server, where one that permits lets 7 on; the edge sends
    90 on that the deny matches, and lets 2 past the servers."""
    admin.pops.add(site.domain, site.domain, ("outside",), functions=8, heavy_interval_s=0)
    deny = {"id": "d22", "action": "deny", "protocol": "tcp", "destination_ports": 22}
    admin.acls.insert_rule(site.tenant, rule_from_json(deny), position=0)
    program = site.enforcer.points.watch_program(site.domain)
    assert isinstance(program, Program)
    permits = [cookie & (1 << 40) - 1 for cookie in site.cookies]
    denied = max(row.cookie & (1 << 40) - 1 for row in program.flows.rows() if row.cookie >> 48 & 0xF == Kind.RULE)
    counted = {
        (Tier.HOST, permits[0]): 9,
        (Tier.SERVER, permits[0]): 7,
        (Tier.EDGE, permits[0]): 2,
        (Tier.SERVER, denied): 40,
        (Tier.EDGE, denied): 90,
    }
    site.cookies = [Cookie(tier, Kind.RULE, number).pack() for tier, number in counted]
    site.claim("host1")
    assert site.count("host1", *counted.values()) == []


def test_what_was_decided_ahead_of_the_hosts_is_told_apart(service: Served, site: Site, admin: Client) -> None:
    """A domain without firewalls or an edge has nothing ahead; a deny at the edge is no drop but sent on."""
    assert all(not each.ahead for each in admin.hits.read(site.tenant).rules)
    _count_ahead(admin, site)
    found = admin.hits.read(site.tenant, sort="packets")
    assert [(each.rule, each.packets, dict(each.ahead)) for each in found.rules] == [
        ("d22", 0, {"server": 40, "edge": 0}),
        ("p80", 9, {"server": 7, "edge": 2}),
        ("p443", 0, {"server": 0, "edge": 0}),
    ]
    assert found.ingress_default.ahead == {"server": 0, "edge": 0}
    assert admin.hits.read_of_rules(site.tenant, ["d22"])["d22"].ahead["server"] == 40
    assert all(not each.ahead for each in admin.hits.read(site.tenant, tier="server").rules)
    summary = admin.hits.read_summary(site.tenant, top=1)
    assert (summary.permitted, summary.denied, summary.denied_ahead, summary.unused) == (9, 0, 40, 1)
    assert summary.busiest == (BusyRule("d22", 40),)
    shown = called(service, "acl", "hits", site.tenant, "--sort", "packets").out.splitlines()
    assert shown[0].split("\t")[:4] == ["rule", "packets", "at firewalls", "at the edge"]
    assert shown[1].split("\t")[:4] == ["d22", "0", "40", "0"]


def test_a_rule_that_drops_ahead_of_the_hosts_is_not_unused(service: Served, site: Site, admin: Client) -> None:
    _count_ahead(admin, site)
    assert {
        each.rule for each in admin.hits.read_unused_rules(site.tenant, idle_s=0).items if each.last_hit is None
    } == {"p443"}


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def busy(site: Site) -> Site:
    site.claim("host1")
    site.count("host1", 3, 9)
    return site


def called(service: Served, *arguments: str, token: str | None = None) -> Ended:
    environment = {"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": token or service.token}
    return aclflow(*arguments, environment=environment)


def test_top_looks_at_a_domain_or_a_tenant(service: Served, busy: Site) -> None:
    seen = called(service, "top", "--domain", busy.domain, "--once")
    assert seen.code == 0
    rows = [line.split("\t") for line in seen.out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [[busy.tenant, "p443"], [busy.tenant, "p80"]]
    assert [row[4] for row in rows[1:]] == ["75.0%", "25.0%"]
    by_name = called(service, "top", "--tenant", busy.tenant, "--once", "--filter", "80", "--sort", "packets", "--json")
    assert [item["rule"] for item in by_name.json()["items"]] == ["p80"]
    assert by_name.json()["rules"] == 2
    alone = called(service, "top", "--once", "--json", token=service.make_token(Role.READER, tenant=busy.tenant))
    assert [item["rule"] for item in alone.json()["items"]] == ["p443", "p80"]
    assert called(service, "top", "--once", "--tenant", "a", "--domain", "b").code == 2


def test_counts_outlive_a_list_that_is_wiped_and_restored(service: Served, busy: Site) -> None:
    """The same rule ids go on with their counts; what is unused is watched from the restore on."""
    before = called(service, "acl", "hits", busy.tenant, "-c", "rule,packets", "-o", "json").json()
    assert ({"rule": "p443", "packets": 9} in before, {"rule": "p80", "packets": 3} in before) == (True, True)
    member = service.make_token(Role.MEMBER, tenant=busy.tenant)
    wiped = aclflow(
        *("acl", "apply", busy.tenant, "-", "--yes", "--no-wait"),
        stdin='{"rules": []}',
        environment={"ACLFLOW_URL": service.url, "ACLFLOW_TOKEN": member},
    )
    assert wiped.code == 0, wiped.err
    gone = called(service, "acl", "hits", busy.tenant, "-c", "rule", "-o", "csv").out
    assert "p443" not in gone
    assert called(service, "acl", "restore", busy.tenant, "1", "--yes", "--no-wait").code == 0
    assert called(service, "acl", "hits", busy.tenant, "-c", "rule,packets", "-o", "json").json() == before
    versions = called(service, "acl", "versions", busy.tenant, "--json").json()
    restored = dt.datetime.fromisoformat(versions[0]["created"])
    watched = called(service, "acl", "unused", busy.tenant, "--days", "0", "--json").json()["unused"]
    assert {dt.datetime.fromisoformat(each["watched_since"]) for each in watched} == {restored}


def test_hits_and_unused_rules_are_shown(service: Served, busy: Site) -> None:
    shown = called(service, "acl", "hits", busy.tenant, "--sort", "rate")
    assert [line.split("\t")[:2] for line in shown.out.splitlines()[1:3]] == [["p443", "9"], ["p80", "3"]]
    history = called(service, "acl", "hits", busy.tenant, "--history", "minutes", "--json").json()
    assert [item["history"][0]["packets"] for item in history] == [3, 9]
    young = called(service, "acl", "unused", busy.tenant)
    assert young.code == 0
    assert "2 rules are watched for less than 30 days" in young.err
    now = called(service, "acl", "unused", busy.tenant, "--days", "0", "--json")
    assert now.code == 1
    assert {item["rule"] for item in now.json()["unused"]} == {"p80", "p443"}
