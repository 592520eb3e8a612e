"""A store that an earlier service wrote is upgraded; its lists are served, and change."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from patience import until
from served import served

from orchestrator.policy.addresses import parse_address
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.store import migrate, open_store
from orchestrator.store.schema.core import HEAD

FIXTURE = Path(__file__).parent / "fixtures" / "schema_0014.sql"
"""Written by that service's own code: two tenants, five versions of a list with a group, rules that expire, rules of
the operator, a pinned rule, counts, and tokens, whose secrets are in its first lines."""
KEPT = ["first", "ping", "web", "ssh", "late", "out"]
"""The rules of now; `soon` has expired since."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The state directory of a service whose store was upgraded."""
    database = tmp_path / "aclflow.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(FIXTURE.read_text())
    assert migrate.upgrade(f"sqlite:///{database}") == migrate.Upgrade("0014", HEAD)
    return tmp_path


def secret_of(bearer: str) -> str:
    """The secret of a token that the earlier service made."""
    begins = f"-- {bearer}: "
    return next(line.removeprefix(begins) for line in FIXTURE.read_text().splitlines() if line.startswith(begins))


def syn(destination: str, port: int, source: str = "192.0.2.9") -> Packet:
    family, to = parse_address(destination)
    return Packet(family, parse_address(source)[1], to, TCP, 49152, port, tcp_flags=2)


def test_an_upgraded_store_keeps_versions_groups_numbers_counts_and_placements(folder: Path) -> None:
    with closing(open_store(f"sqlite:///{folder / 'aclflow.db'}")) as store, store.read() as unit:
        lists = [[str(rule.id) for rule in unit.acls.at("blue", version).acl.rules] for version in range(6)]
        now, red = unit.acls.current("blue"), unit.acls.current("red")
        counted = unit.hits.totals("blue").rules
        pinned = [(str(each.rule.rule), each.wish and each.wish.value) for each in unit.placements.list("pop")]
        policy = unit.domains.policy("pop").policy
    whole = ["web", "ssh", "ping", "soon", "late", "old", "out"]
    short = [each for each in whole if each != "old"]
    assert lists == [[], [], whole, short, ["first", *short], ["first", "ping", "web", "ssh", "soon", "late", "out"]]
    assert [str(rule.id) for rule in red.acl.rules] == ["sql"]
    assert {str(rule): now.numbers[rule] for rule in ("web", "ping", "first")} == {"web": 1, "ping": 3, "first": 8}
    assert [str(prefix) for prefix in now.acl.groups["office"].prefixes] == ["192.0.2.0/24", "2001:db8:ff::/48"]
    assert (counted["web"].packets, counted["ssh"].packets) == (5, 6)
    assert pinned == [("web", "pinned")]
    assert [str(rule.id) for rule in policy.operator] == ["no-telnet"]


def test_lists_of_an_upgraded_store_are_served_and_change(folder: Path) -> None:
    """What ended meanwhile expires; the earlier tokens are good; edits get versions, and decide."""
    with served(folder) as service, service.client(secret_of("administrator")) as admin:
        until(lambda: [str(rule.id) for rule in admin.acls.read_rules("blue")] == KEPT)
        assert admin.acls.trace("blue", syn("10.1.0.5", 80)).action == "permit"
        assert admin.acls.trace("blue", syn("10.1.0.5", 80, "203.0.113.9")).action == "deny"
        assert admin.acls.trace("blue", syn("10.1.0.5", 8443)).action == "deny"
        with service.client(secret_of("member of blue")) as member:
            seen = member.acls.read("blue")
            member.acls.insert_rule(
                "blue",
                rule_from_json({"id": "alt", "action": "permit", "protocol": "tcp", "destination_ports": 8443}),
                position=0,
            )
            member.acls.delete_rule("blue", "first")
        assert [str(rule.id) for rule in admin.acls.read_rules("blue")] == ["alt", *KEPT[1:]]
        versions = [each.version for each in admin.acls.read_versions("blue")]
        assert versions == sorted(versions, reverse=True)
        assert (versions[0], versions[-1]) == (8, 0)
        assert [str(rule.id) for rule in admin.acls.read("blue", version=6).acl.rules] == [
            str(r.id) for r in seen.acl.rules
        ]
        assert admin.acls.trace("blue", syn("10.1.0.5", 8443)).action == "permit"
        assert admin.acls.trace("blue", syn("10.1.0.5", 80, "203.0.113.9")).action == "permit"
        assert admin.is_ready("pop")
