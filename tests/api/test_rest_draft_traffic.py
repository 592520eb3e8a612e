"""What of a tenant's recorded traffic a draft would newly permit or refuse, by rule and peer."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import aclflow
from served import Served, served

from orchestrator.client import Client
from orchestrator.control.drafttraffic import MOST_PEERS, Sampled, tried_traffic
from orchestrator.errors import AclflowError, BadInput, BadPolicy, Forbidden, NotFound
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.findings import Checks
from orchestrator.policy.formats.native import acl_from_json, acl_text
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import TCP
from orchestrator.store.packetlog import LoggedPacket

OWN = Prefix.parse("10.200.0.0/24")
NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 80, "log": True}
SSH = {"id": "ssh", "action": "permit", "protocol": "tcp", "destination_ports": 22, "log": True}
NO_LAB = {"id": "no-lab", "action": "deny", "source": "192.0.2.0/24"}


def rules(*found: object) -> Acl:
    return acl_from_json({"rules": [*found]})


def packet(source: str, destination: str, port: int) -> Packet:
    (family, sender), (_, receiver) = parse_address(source), parse_address(destination)
    return Packet(family, sender, receiver, TCP, 40000, port, tcp_flags=2)


def sampled(*packets: Packet) -> list[Sampled]:
    return [Sampled(each, 60 + place, NOW + dt.timedelta(minutes=place)) for place, each in enumerate(packets)]


CHECKS = Checks(own=(OWN,), returns=ReturnTraffic.EXPLICIT, now=NOW)
SAMPLE = sampled(
    packet("192.0.2.1", "10.200.0.1", 80), packet("192.0.2.1", "10.200.0.2", 80), packet("192.0.2.9", "10.200.0.1", 80),
    packet("203.0.113.5", "10.200.0.1", 22), packet("10.200.0.1", "203.0.113.5", 443),
    packet("203.0.113.5", "198.51.100.1", 80),
)  # fmt: skip


def told(current: Acl, draft: Acl, sample: list[Sampled] = SAMPLE) -> list[tuple[object, ...]]:
    found = tried_traffic(current, acl_text(draft), CHECKS, sample)
    return [
        (each.direction, each.becomes, each.rule_before, each.rule, each.packets, each.octets,
         [(peer.peer, peer.packets, peer.octets) for peer in each.peers])
        for each in found.changes
    ]  # fmt: skip


def test_changes_are_told_by_rule_and_peer() -> None:
    assert told(rules(WEB), rules(NO_LAB, WEB, SSH)) == [
        ("ingress", "deny", "web", "no-lab", 3, 183, [("192.0.2.1", 2, 121), ("192.0.2.9", 1, 62)]),
        ("ingress", "permit", None, "ssh", 1, 63, [("203.0.113.5", 1, 63)]),
    ]
    found = tried_traffic(rules(WEB), acl_text(rules(NO_LAB, WEB, SSH)), CHECKS, SAMPLE)
    assert (found.packets, found.newly_permitted, found.newly_denied, found.since) == (5, 1, 3, NOW)


def test_what_the_tenant_sends_is_told_by_its_receiver() -> None:
    quiet = {"id": "quiet", "action": "deny", "direction": "egress"}
    assert told(rules(WEB), rules(WEB, quiet)) == [("egress", "deny", None, "quiet", 1, 64, [("203.0.113.5", 1, 64)])]


def test_nothing_is_told_where_nothing_changes() -> None:
    assert told(rules(WEB), rules(WEB)) == []
    found = tried_traffic(rules(WEB), acl_text(rules(SSH)), CHECKS, [])
    assert (found.packets, found.since, found.changes) == (0, None, ())


def test_peers_beyond_some_are_counted() -> None:
    many = sampled(*(packet(f"192.0.2.{number}", "10.200.0.1", 80) for number in range(MOST_PEERS + 5)))
    found = tried_traffic(rules(WEB), acl_text(rules(NO_LAB)), CHECKS, many)
    (change,) = found.changes
    assert (len(change.peers), change.peers_in_all, change.packets) == (MOST_PEERS, MOST_PEERS + 5, MOST_PEERS + 5)


def test_verdicts_are_the_oracles() -> None:
    """For packets at the corners of both lists: a change is told of exactly those that the oracle decides otherwise."""
    lists = rules(WEB, {**NO_LAB, "direction": "egress"}), rules(NO_LAB, SSH, WEB)
    policies = [
        Policy((Tenant(TenantId("t"), 1, (OWN,), acl, _numbered(acl)),), return_traffic=ReturnTraffic.EXPLICIT)
        for acl in lists
    ]
    told = 0
    for each in corner_packets([*lists[0].rules, *lists[1].rules], {}):
        if each.family is not Family.IPV4:
            continue
        for asked in (replace(each, source=OWN.network + 7), replace(each, destination=OWN.network + 7)):
            before, after = (decide(policy, asked).permitted for policy in policies)
            found = tried_traffic(lists[0], acl_text(lists[1]), CHECKS, sampled(asked))
            assert (found.newly_permitted, found.newly_denied) == (after and not before, before and not after), asked
            told += len(found.changes)
    assert told > 10


def _numbered(acl: Acl) -> dict[str, int]:
    return {rule.id: number for number, rule in enumerate(acl.rules, 1)}


def test_a_draft_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput):
        tried_traffic(rules(WEB), b"no list", CHECKS, SAMPLE)
    foreign = {"id": "x", "action": "permit", "destination": "192.0.2.1"}
    with pytest.raises(BadPolicy):
        tried_traffic(rules(WEB), acl_text(rules(foreign)), CHECKS, SAMPLE)


# ---- over HTTP


@pytest.fixture(scope="module")
def tenant(service: Served, admin: Client) -> str:
    """A tenant with a list and records of an hour and of two days ago."""
    name, domain = "traffic", "traffic-pop"
    admin.domains.create(domain)
    admin.tenants.create(name, domain=domain, prefixes=[OWN])
    admin.acls.put(name, rules(WEB))
    now = dt.datetime.now(dt.UTC)
    records = [
        LoggedPacket(now - dt.timedelta(hours=hours), name, "web", Action.PERMIT, Direction.INGRESS, "host1", each, 60)
        for hours, each in ((48, packet("192.0.2.1", "10.200.0.1", 80)), (1, packet("192.0.2.2", "10.200.0.1", 80)))
    ]
    service.service.parts.control.write(lambda unit: unit.packet_log.append(domain, records))
    return name


def test_yesterdays_traffic_over_http(admin: Client, tenant: str) -> None:
    found = admin.acls.check_traffic(tenant, rules(NO_LAB, WEB))
    assert (found.packets, found.newly_denied) == (1, 1)
    (change,) = found.changes
    assert (change.rule_before, change.rule, change.becomes) == ("web", "no-lab", "deny")
    assert [each.peer for each in change.peers] == ["192.0.2.2"]
    assert admin.acls.check_traffic(tenant, rules(NO_LAB, WEB), hours=72).newly_denied == 2
    assert admin.acls.read(tenant).acl == rules(WEB), "nothing was changed"
    with pytest.raises(BadInput):
        admin.acls.check_traffic(tenant, rules(WEB), hours=0)
    with pytest.raises(BadPolicy):
        admin.acls.check_traffic(tenant, rules({"id": "x", "action": "permit", "destination": "192.0.2.1"}))
    with pytest.raises(NotFound):
        admin.acls.check_traffic("nobody", rules(WEB))


def test_no_other_tenant_sees_it(admin: Client, service: Served, tenant: str) -> None:
    other = f"{tenant}-other"
    admin.tenants.create(other, domain="traffic-pop", prefixes=[Prefix.parse("10.201.0.0/24")])
    assert admin.acls.check_traffic(other, rules(NO_LAB)).packets == 0
    _, token = admin.tokens.create("reader", tenant=other)
    with service.client(token) as theirs, pytest.raises((Forbidden, NotFound)):
        theirs.acls.check_traffic(tenant, rules(NO_LAB))


def test_review_shows_it(admin: Client, service: Served, tenant: str, tmp_path: Path) -> None:
    path = tmp_path / "draft.json"
    path.write_bytes(acl_text(rules(NO_LAB, WEB)))
    call = ("acl", "review", tenant, str(path), "--traffic", "72", "--url", service.url)
    shown = aclflow(*call, environment={"ACLFLOW_TOKEN": service.token})
    assert "of 2 packets recorded since" in shown.out
    assert "- ingress: 2 packets  (web before, no-lab after)" in shown.out
    assert "    192.0.2.2: 1 packet, 60 bytes" in shown.out
    told = json.loads(aclflow(*call, "--json", environment={"ACLFLOW_TOKEN": service.token}).out)["traffic"]
    assert told["newly_denied"] == 2


def test_check_shows_it(service: Served, tenant: str, tmp_path: Path) -> None:
    path = tmp_path / "draft.json"
    path.write_bytes(acl_text(rules(NO_LAB, WEB)))
    call = ("acl", "check", str(path), "--traffic", tenant, "--url", service.url)
    environment = {"ACLFLOW_TOKEN": service.token}
    shown = aclflow(*call, environment=environment)
    assert "of 1 packet recorded since" in shown.out
    assert "- ingress: 1 packet  (web before, no-lab after)" in shown.out
    assert "    192.0.2.2: 1 packet, 60 bytes" in shown.out
    (told,) = json.loads(aclflow(*call, "--hours", "72", "--json", environment=environment).out)["files"]
    assert (told["traffic"]["packets"], told["traffic"]["newly_denied"]) == (2, 2)
    assert shown.code == aclflow("acl", "check", str(path)).code, "traffic does not change how the command ends"
    path.write_bytes(acl_text(rules({"id": "x", "action": "permit", "destination": "192.0.2.1"})))
    foreign = aclflow(*call, environment=environment)
    assert foreign.code == 1
    assert "192.0.2.1" in foreign.err
    table = aclflow(*call, "-o", "csv", environment=environment)
    assert table.code == 2
    assert "--traffic" in table.err
    without = aclflow("acl", "check", str(path), "--hours", "3")
    assert without.code == 2, without
    assert "--hours" in without.err


def test_headers_are_encrypted_in_the_database_and_asked_under_their_key(tmp_path: Path) -> None:
    """A tenant's records of before and after there was a key; another key, and none, are told of and show nothing."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path, key in ((first, "11" * 32), (second, "22" * 32)):
        path.write_text(key)
    spied = packet("192.0.2.77", "10.200.0.1", 80)
    with served(tmp_path, packet_log_key=first) as service, service.client() as admin:
        admin.domains.create("pop")
        admin.tenants.create("shop", domain="pop", prefixes=[OWN])
        admin.acls.put("shop", rules(WEB))
        record = LoggedPacket(
            dt.datetime.now(dt.UTC), "shop", "web", Action.PERMIT, Direction.INGRESS, "host1", spied, 60
        )
        service.service.parts.control.write(lambda unit: unit.packet_log.append("pop", [record]))
        found = admin.acls.check_traffic("shop", rules(NO_LAB, WEB))
        assert [peer.peer for change in found.changes for peer in change.peers] == ["192.0.2.77"]
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("aclflow.db*"))
    assert b"sealed:" in kept
    assert b"192.0.2.77" not in kept
    for key, reason in ((second, "under another key"), (None, "a key that this service does not have")):
        with served(tmp_path, packet_log_key=key) as service, service.client() as admin:
            with pytest.raises(AclflowError, match=reason):
                admin.acls.check_traffic("shop", rules(NO_LAB, WEB))
            assert admin.acls.read("shop").acl == rules(WEB)
